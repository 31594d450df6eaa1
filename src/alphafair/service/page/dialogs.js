// A dialog that says what will be recorded and what it does to the guarantee before anything is sent.

import { explained } from "./api.js";
import { announce, h, icon, put, setText } from "./dom.js";

let count = 0;

/** A field of a form. Kinds: text, number, textarea, select (with `choices`), checkbox. */
export function field(name, text, { kind = "text", hint, choices, value = "", ...props } = {}) {
  const id = `field-${(count += 1)}`;
  const common = { id, name, "aria-describedby": hint ? `${id}-hint` : null, ...props };
  let input;
  if (kind === "select")
    input = h(
      "select",
      common,
      choices.map(([each, shown]) => h("option", { value: each, selected: each === value }, shown)),
    );
  else if (kind === "textarea") input = h("textarea", { ...common, value, spellcheck: "false" });
  else input = h("input", { ...common, type: kind, value, autocomplete: "off", spellcheck: "false" });
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, text),
    input,
    hint && h("p", { class: "hint", id: `${id}-hint` }, hint),
  );
}

/**
 * Ask for confirmation. `recorded` and `guarantee` are sentences, or functions of the values of the form; `act(values)`
 * sends the request; `danger` asks for a tick first.
 */
export function ask({ title, fields = [], lead, recorded, guarantee, confirm, danger = false, act, done, validate }) {
  const problem = h("p", { class: "problem", role: "alert" });
  const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm);
  const agreed = danger && h("input", { type: "checkbox", id: "agreed", required: true });
  const entries = [
    ["Recorded", recorded],
    ["Guarantee", guarantee],
  ].filter(([, text]) => text);
  const texts = entries.map(() => h("dd"));
  const form = h(
    "form",
    { method: "dialog", onsubmit: submit, oninput: describe },
    h(
      "header",
      {},
      h("h2", { id: "dialog-title" }, title),
      h(
        "button",
        { type: "button", class: "quiet square close", "aria-label": "Close", onclick: () => dialog.close() },
        icon("close"),
      ),
    ),
    lead && h("p", { class: "muted" }, lead),
    fields.length > 0 && h("div", { class: "fields" }, fields),
    entries.length > 0 &&
      h(
        "div",
        { class: "consequence" },
        h(
          "dl",
          {},
          entries.map(([name], k) => h("div", {}, h("dt", {}, name), texts[k])),
        ),
      ),
    danger && h("label", { class: "agree" }, agreed, h("span", {}, danger)),
    problem,
    h(
      "div",
      { class: "buttons" },
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      button,
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, form);

  const values = () => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()]));

  function describe() {
    entries.forEach(([, text], k) => setText(texts[k], typeof text === "function" ? text(values()) : text));
    if (validate) setText(problem, "");
  }

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    setText(problem, "");
    try {
      const answer = await act(values());
      announce(`Done: ${title}.`);
      if (done) done(answer, dialog, form);
      else dialog.close();
    } catch (failure) {
      setText(problem, explained(failure));
    } finally {
      button.disabled = false;
    }
  }

  describe();
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector(".fields input, .fields textarea, .fields select") ?? button).focus();
  return dialog;
}

/** A button that opens a list of actions; arrows move, Escape closes. */
export function menu(text, items) {
  const list = h("ul", { role: "menu", hidden: true });
  const button = h(
    "button",
    { type: "button", "aria-haspopup": "menu", "aria-expanded": "false", onclick: () => toggle() },
    icon("sliders"),
    text,
  );
  const holder = h("div", { class: "menu" }, button, list);

  function toggle(open = list.hidden) {
    if (open) {
      put(
        list,
        items().map((item) =>
          item === null
            ? h("li", { class: "rule", role: "separator" })
            : h(
                "li",
                { role: "none" },
                h(
                  "button",
                  { type: "button", role: "menuitem", tabindex: "-1", onclick: () => (toggle(false), item.act()) },
                  icon(item.icon),
                  item.text,
                ),
              ),
        ),
      );
    }
    list.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) list.querySelector("button").focus();
  }

  holder.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to !== undefined && !list.hidden) {
      event.preventDefault();
      buttons[(to + buttons.length) % buttons.length].focus();
    } else if (event.key === "Escape" && !list.hidden) {
      toggle(false);
      button.focus();
    }
  });
  holder.addEventListener("focusout", (event) => {
    if (!list.hidden && !holder.contains(event.relatedTarget)) toggle(false);
  });
  document.addEventListener("click", (event) => {
    if (!list.hidden && !holder.contains(event.target)) toggle(false);
  });
  return holder;
}
