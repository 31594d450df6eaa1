// What views of one experiment share: the heading with its facts, tabs, marks, and the state of the connection.

import { may, pageOf } from "./api.js";
import { announce, h, icon, label, put, setText } from "./dom.js";
import { timeParts } from "./format.js";

export function crumbs(name, page) {
  document.title = [page, name, "alphafair"].filter(Boolean).join(" · ");
  put(
    document.getElementById("crumbs"),
    name &&
      h(
        "ol",
        {},
        h(
          "li",
          {},
          page ? h("a", { href: pageOf(name, "live") }, label(name)) : label(name, { "aria-current": "page" }),
        ),
        page && h("li", { "aria-current": "page", class: "nowrap" }, page),
      ),
  );
}

export function tabs(name, current) {
  const pages = [
    ["live", "Live"],
    ["what-if", "What if"],
    ...(may("log") ? [["log", "Log"]] : []), // labels of contexts may be personal
  ];
  return h(
    "nav",
    { class: "tabs", "aria-label": "Pages of this experiment" },
    pages.map(([page, text]) =>
      h("a", { href: pageOf(name, page), "aria-current": page === current ? "page" : null }, text),
    ),
  );
}

const SEVERITY = { critical: ["bad", "warning"], warning: ["warn", "warning"], info: ["", "info"] };

/** Something that needs attention, with its sentence. */
export function notice(mark) {
  const [look, sign] = SEVERITY[mark.severity] ?? SEVERITY.info;
  return h("p", { class: `notice ${look}`, data: { code: mark.code } }, icon(sign), h("span", {}, mark.sentence));
}

/** Whether the page hears from the service. */
export function connection(state) {
  const shown = document.getElementById("connection");
  if (shown.dataset.state === state) return;
  const before = shown.dataset.state;
  shown.dataset.state = state;
  shown.hidden = false;
  setText(shown, state === "live" ? "Live" : `Reconnecting · as of ${timeParts(Date.now() / 1000)[1]}`);
  document.body.classList.toggle("stale", state === "lost");
  if (state === "lost") announce("The connection to the service is lost. The page reconnects by itself.");
  else if (before === "lost") announce("Connected again.");
}
