// Keys of the service, for admins: who may do what, until when.

import { address, get, send, sentences, session } from "../api.js";
import { ask, field } from "../dialogs.js";
import { announce, h, icon, label, put, setText, table } from "../dom.js";
import { quoted, time } from "../format.js";
import { crumbs } from "../frame.js";

const ROLES = Object.entries(sentences.roles).map(([role, may]) => [role, `${role}: ${may.replaceAll("`", "")}`]);
const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]{0,99}"; // of an experiment
const by = () => `by ${quoted(session.name ?? "anybody on this machine")}`;

export async function show(content) {
  crumbs("Keys", null);
  const list = h("div", { class: "wide-table" });
  const draw = async () => {
    const { items } = await get(address("/keys.json"));
    put(
      list,
      items.length
        ? keysTable(items, draw)
        : h(
            "p",
            { class: "muted" },
            "There are no keys: the service answers only requests of this machine. Once there is one, every request needs a key.",
          ),
    );
    if (add.isConnected && !content.contains(document.activeElement)) add.focus(); // the row of the key was drawn again
  };
  const add = h(
    "button",
    { type: "button", class: "primary", onclick: () => create(draw) },
    icon("plus"),
    "New key",
  );
  await draw();
  put(
    content,
    h(
      "div",
      { class: "view-head" },
      h(
        "div",
        { class: "titles" },
        h("h1", {}, "Keys"),
        h(
          "p",
          { class: "lead" },
          "A key has a role and a name. Changes of experiments are recorded with the name of the key that made them.",
        ),
      ),
      h("div", { class: "acts" }, add),
    ),
    h("div", { class: "card" }, list),
  );
}

function keysTable(items, draw) {
  return table(
    "Keys",
    [
      { title: "Name", rowHead: true, cell: (key) => label(key.name) },
      { title: "Id", cell: (key) => h("code", {}, key.id) },
      { title: "Role", cell: (key) => h("span", { class: "chip" }, key.role) },
      { title: "Experiments", cell: (key) => (key.experiments === null ? "all" : key.experiments.join(", ")) },
      { title: "Created", cell: (key) => time(key.created_at) },
      {
        title: "State",
        cell: (key) =>
          key.valid
            ? h("span", { class: "chip good" }, key.expires_at ? `until ${time(key.expires_at)}` : "valid")
            : h("span", { class: "chip" }, key.revoked_at ? "revoked" : "expired"),
      },
      {
        title: h("span", { class: "visually-hidden" }, "Actions"),
        cell: (key) =>
          key.valid && [
            h("button", { type: "button", class: "quiet", onclick: () => rotate(key, draw) }, "Rotate"),
            h("button", { type: "button", class: "quiet", onclick: () => revoke(key, draw) }, "Revoke"),
          ],
      },
    ],
    [...items].reverse(),
    { class: "log" },
  );
}

function create(draw) {
  const first = !session.needs_key;
  const roles = first ? ROLES.filter(([role]) => role === "admin") : ROLES;
  ask({
    title: first ? "First key" : "New key",
    lead:
      first &&
      "Once there is a key, every request needs one, this page included. So the first is an admin key without limits: sign in with it.",
    fields: [
      field("name", "Owner", {
        required: true,
        maxlength: 100,
        hint: "Recorded with every change that the key makes.",
      }),
      field("role", "Role", { kind: "select", choices: roles, value: first ? "admin" : "read" }),
      !first &&
        field("experiments", "Only these experiments", {
          pattern: `\\s*(${NAME}\\s*(,\\s*${NAME}\\s*)*)?`,
          title: "Names of experiments, separated by commas",
          hint: "Names, separated by commas. Empty: all.",
        }),
      field("days", "Valid for", { kind: "number", min: 0, step: "any", hint: "Days. Empty: until it is revoked." }),
    ].filter(Boolean),
    names: { expires_in: "days" },
    recorded: ({ name, role }) =>
      `The key’s owner${name ? ` ${quoted(name)}` : ""}, role ${role ?? ""} and a hash of it, ${by()}. The key itself is shown once and stored nowhere.`,
    guarantee: sentences.guarantees.key,
    confirm: "Create the key",
    act: ({ name, role, experiments = "", days }) => {
      const names = experiments
        .split(",")
        .map((each) => each.trim())
        .filter(Boolean);
      return send("POST", address("/v1/keys"), {
        name,
        role,
        ...(names.length ? { experiments: names } : {}),
        ...(days ? { expires_in: 86400 * Number(days) } : {}),
      });
    },
    done: (answer, dialog, form) => secret(answer, dialog, form, draw),
  });
}

/** The new key, which cannot be shown again: only its button closes the dialog, not Escape. */
function secret({ key }, dialog, form, draw) {
  const code = h("code", { id: "new-key" }, key);
  const note = h("p", { class: "hint", role: "status" });
  const button = h("button", { type: "button", onclick: () => copy() }, "Copy");
  const stay = (event) => (event.type === "cancel" || event.key === "Escape") && event.preventDefault();
  dialog.addEventListener("cancel", stay);
  dialog.addEventListener("keydown", stay);
  dialog.addEventListener("close", () => draw());

  async function copy() {
    try {
      await navigator.clipboard.writeText(key);
      setText(button, "Copied");
      setText(note, "");
      announce("Copied.");
    } catch {
      getSelection().selectAllChildren(code); // pages without encryption have no clipboard
      setText(note, "The browser does not let this page copy. The key is selected: press Ctrl-C, or ⌘C.");
    }
  }

  put(
    form,
    h("header", {}, h("h2", { id: "dialog-title" }, "Copy the key now")),
    h("p", { class: "muted" }, "It is not shown again: the service stores only a hash of it."),
    h("div", { class: "secret" }, code, button),
    note,
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "I have copied it"),
    ),
  );
  button.focus();
}

function rotate(key, draw) {
  ask({
    title: `Rotate ${key.name}`,
    lead: "A new key of the same name, role and limits replaces this one.",
    fields: [
      field("grace", "The old key stays valid for", {
        kind: "number",
        min: 0,
        step: "any",
        value: "3600",
        hint: "Seconds.",
      }),
    ],
    recorded: `A new key for ${quoted(key.name)} and the end of the old one, ${by()}.`,
    guarantee: sentences.guarantees.key,
    confirm: "Rotate the key",
    act: ({ grace }) =>
      send("POST", address(`/v1/keys/${encodeURIComponent(key.id)}/rotations`), { grace: Number(grace || 0) }),
    done: (answer, dialog, form) => secret(answer, dialog, form, draw),
  });
}

function revoke(key, draw) {
  ask({
    title: `Revoke ${key.name}`,
    lead: "Requests with this key are refused within a second.",
    recorded: `When the key ${key.id} was revoked, ${by()}.`,
    guarantee: sentences.guarantees.key,
    confirm: "Revoke the key",
    danger: "I understand that a revoked key cannot be restored.",
    act: () => send("DELETE", address(`/v1/keys/${encodeURIComponent(key.id)}`)),
    done: (_, dialog) => {
      dialog.close();
      draw();
    },
  });
}
