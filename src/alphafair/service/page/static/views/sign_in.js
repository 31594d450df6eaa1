// Signing in with a key; the service keeps it in a cookie that scripts cannot read.

import { address, explained, send, session } from "../api.js";
import { h, put, setText } from "../dom.js";

/** Where to go afterwards: only pages of this service. */
function next() {
  const home = address("/");
  const wanted = new URLSearchParams(location.search).get("next") ?? "/";
  try {
    const { origin, pathname, href } = new URL(address(wanted), location.origin); // drops tabs and line ends
    return origin === location.origin && pathname.startsWith(home) && !pathname.startsWith("//") ? href : home;
  } catch {
    return home; // not an address
  }
}

export async function show(content) {
  document.title = "Sign in · alphafair";
  if (session.signed_in && !new URLSearchParams(location.search).get("another")) return location.replace(next());
  const problem = h("p", { class: "problem", role: "alert" });
  const key = h("input", {
    id: "key",
    name: "key",
    type: "password",
    autocomplete: "current-password",
    required: true,
    maxlength: 200,
    placeholder: "af_…",
    spellcheck: "false",
    "aria-describedby": "key-hint",
  });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        setText(problem, "");
        try {
          await send("POST", address("/session"), { key: key.value.trim() });
          location.replace(next());
        } catch (failure) {
          setText(problem, explained(failure));
          button.disabled = false;
          key.focus();
          key.select();
        }
      },
    },
    h(
      "div",
      {},
      h("h1", {}, "Sign in"),
      h("p", { class: "lead" }, "This service has keys. Yours decides what you see and what you may change."),
    ),
    h(
      "div",
      { class: "field" },
      h("label", { for: "key" }, "Key"),
      key,
      h("p", { class: "hint", id: "key-hint" }, "Created with ", h("code", {}, "alphafair keys create"), "."),
    ),
    problem,
    button,
  );
  put(content, h("div", { class: "card sign-in" }, form));
  key.focus();
  return undefined;
}
