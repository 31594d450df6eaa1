// The frame of every page: its view, where one is, the theme, and who is signed in.

import { address, explained, loadSession, may, mayOperate, page, Problem, root, send, sentences, session, signIn, signInAddress } from "./api.js";
import { ask } from "./dialogs.js";
import { h, icon, label, put } from "./dom.js";
import { quoted } from "./format.js";

const content = document.getElementById("content");

async function start() {
  const module = import(`./views/${page.view}.js`);
  try {
    await loadSession();
    tools();
    foot();
    if (!session.signed_in && page.view !== "sign_in") return signIn();
    if (page.role !== null && !may(page.role)) throw lacking();
    const { show, asked } = await module;
    if (asked) foot(asked(new URLSearchParams(location.search)));
    await show(content, page.name);
  } catch (problem) {
    failed(problem);
  }
}

/** Words, with "or" before the last one. */
const listed = (words) => words.join(", ").replace(/, ([^,]*)$/, " or $1");

/** What a key without a role is told. */
const lacking = () =>
  new Problem(403, {
    code: "forbidden",
    message: `This page needs a key of the role ${listed(page.roles)}. You are signed in as ${quoted(session.name)}, with the role ${session.role}.`,
  });

/** Show why a view cannot be shown, and how to repair it. */
function failed(problem) {
  document.title = "Problem · alphafair";
  put(
    content,
    h(
      "div",
      { class: "empty" },
      h(
        "h1",
        {},
        problem.status === 404
          ? "There is no such experiment or decision"
          : problem.status === 403
            ? "This key may not see this page"
            : "This page cannot be shown",
      ),
      h("p", { class: "lead" }, explained(problem)),
      h(
        "p",
        {},
        problem.status === 403
          ? h("a", { class: "button primary", href: signInAddress(true) }, "Sign in with another key")
          : h("button", { type: "button", onclick: () => location.reload() }, "Try again"),
        " ",
        h("a", { class: "button quiet", href: address("/") }, "See all experiments"),
      ),
    ),
  );
  if (!problem.status && problem.code !== "no_connection") console.error(problem);
}

function tools() {
  put(
    document.getElementById("tools"),
    h("span", { id: "connection", class: "connection", hidden: true }),
    mayOperate() &&
      h("a", { class: "button quiet", href: address("/keys") }, icon("key"), h("span", { class: "text" }, "Keys")),
    theme(),
    session.needs_key &&
      session.signed_in && [
        label(session.name ?? "", { class: "who" }),
        h("button", { type: "button", class: "quiet", onclick: signOut }, "Sign out"),
      ],
  );
}

function signOut() {
  ask({
    title: "Sign out",
    lead: `You are signed in as ${quoted(session.name)}. ${sentences.signing_out}`,
    confirm: "Sign out everywhere",
    act: () => send("DELETE", address("/session")),
    done: () => location.assign(address("/sign-in")),
  });
}

/** Three states in turn: as the system prefers, light, dark. */
function theme() {
  const states = ["auto", "light", "dark"];
  const icons = { auto: "auto", light: "sun", dark: "moon" };
  const texts = { auto: "Theme: as the system prefers", light: "Theme: light", dark: "Theme: dark" };
  const button = h("button", {
    type: "button",
    class: "quiet square",
    id: "theme",
    onclick: () => {
      const next = states[(states.indexOf(current()) + 1) % states.length];
      if (next === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = next;
      try {
        localStorage.setItem("alphafair.theme", next);
      } catch {
        // storage is blocked: the choice holds for this page
      }
      draw();
    },
  });
  const current = () => document.documentElement.dataset.theme ?? "auto";
  const draw = () => {
    put(button, icon(icons[current()]));
    button.setAttribute("aria-label", texts[current()]);
    button.title = texts[current()];
  };
  draw();
  return button;
}

/** The last line; `query` is that of the address as the JSON takes it. */
function foot(query = location.search.slice(1)) {
  put(
    document.getElementById("foot"),
    h("span", {}, `alphafair ${session.version}`),
    session.signed_in && h("a", { href: address("/docs") }, "The API"),
    h("a", { href: jsonAddress(query) }, "This page as JSON"),
  );
}

function jsonAddress(query) {
  const path = location.pathname.slice(root.length) || "/";
  if (path === "/sign-in") return address("/session.json");
  return address((path === "/" ? "/index.json" : `${path}.json`) + (`${query}` && `?${query}`));
}

start();
