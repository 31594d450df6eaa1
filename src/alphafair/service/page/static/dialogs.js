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
 * sends the request; `danger` asks for a tick first; while `unchanged(values)` there is nothing to confirm.
 * `adapt(form)` follows every input. `names` maps arguments of the API to fields that are named otherwise, so that a
 * problem with an argument is shown where it can be repaired.
 */
export function ask({
  title,
  fields = [],
  lead,
  recorded,
  guarantee,
  confirm,
  danger = false,
  act,
  done,
  unchanged,
  adapt,
  names = {},
}) {
  const problem = h("p", { class: "problem", id: "dialog-problem", role: "alert" });
  const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm);
  const agreed = danger && h("input", { type: "checkbox", id: "agreed", required: true });
  const entries = [
    ["Recorded", recorded],
    ["Guarantee", guarantee],
  ].filter(([, text]) => text);
  const texts = entries.map(() => h("dd"));
  const form = h(
    "form",
    { method: "dialog", onsubmit: submit, oninput: changed },
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
    h(
      "div",
      { class: "buttons" },
      problem,
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      button,
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, form);

  const values = () => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()]));

  function changed({ target }) {
    faultless(target);
    describe();
  }

  function describe() {
    adapt?.(form);
    const now = values();
    entries.forEach(([, text], k) => setText(texts[k], typeof text === "function" ? text(now) : text));
    button.disabled = Boolean(unchanged?.(now));
  }

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    setText(problem, "");
    for (const each of form.querySelectorAll("[aria-invalid]")) faultless(each);
    try {
      const answer = await act(values());
      announce(`Done: ${title}.`);
      if (done) done(answer, dialog, form);
      else dialog.close();
    } catch (failure) {
      const control = controlOf(form, failure.argument, names);
      setText(problem, inWordsOf(form, failure, control, names));
      button.disabled = false;
      if (control) faulty(control);
      (control ?? button).focus();
    } finally {
      button.disabled = false;
    }
  }

  // a field that the browser finds invalid must be seen
  form.addEventListener("invalid", ({ target }) => target.closest("details")?.setAttribute("open", ""), true);
  describe();
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector(".fields input, .fields textarea, .fields select") ?? button).focus();
  return dialog;
}

/** The control for an argument of the API, such as `reward_range[1]`; null if the form has none. */
function controlOf(form, argument, names) {
  const part = argument?.replace(/[.[].*$/, "");
  const found = [names[argument], argument, names[part], part].find((each) => each && form.elements.namedItem(each));
  return found ? form.elements.namedItem(found) : null;
}

/** A problem in the words of the form: labels instead of arguments. */
function inWordsOf(form, failure, control, names) {
  const labelOf = (each) => each?.labels?.[0]?.textContent;
  if (control && /^(Expected `|Invalid enum value|Invalid value)/.test(failure.message)) {
    const hint = document.getElementById(`${control.id}-hint`)?.textContent ?? "";
    return `${labelOf(control)}: this value cannot be used. ${hint}`.trim();
  }
  let text = explained(failure);
  if (control && text.startsWith(`${failure.argument} `))
    text = labelOf(control) + text.slice(failure.argument.length);
  for (const argument of Object.keys(names).sort((one, other) => other.length - one.length))
    if (/[_.[]/.test(argument)) text = text.replaceAll(argument, `‘${labelOf(controlOf(form, argument, names))}’`);
  return text;
}

function faulty(control) {
  control.closest("details")?.setAttribute("open", "");
  const described = control.getAttribute("aria-describedby");
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-describedby", described ? `${described} dialog-problem` : "dialog-problem");
}

function faultless(control) {
  if (!control.hasAttribute("aria-invalid")) return;
  control.removeAttribute("aria-invalid");
  const described = control.getAttribute("aria-describedby").replace(/ ?dialog-problem$/, "");
  if (described) control.setAttribute("aria-describedby", described);
  else control.removeAttribute("aria-describedby");
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
                  { type: "button", role: "menuitem", tabindex: "-1", onclick: () => choose(item) },
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

  /** Close the list before its dialog opens: the focus then returns to the button. */
  function choose(item) {
    toggle(false);
    button.focus();
    item.act();
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
