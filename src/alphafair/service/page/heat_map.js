// Contexts by arms: the current probabilities, the most frequent contexts first, searchable.

import { explained, get, may, pageOf } from "./api.js";
import { card } from "./charts.js";
import { h, icon, label, put, setText } from "./dom.js";
import { compact, integer, percent } from "./format.js";

const ROWS = 12; // contexts at first; "more" adds as many again
const COLUMNS = 30; // arms with a column of their own

export function heatMap(name, span) {
  const holder = h("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "Probabilities of arms by context",
  });
  const found = h("span", { class: "muted small", role: "status" });
  const more = h(
    "button",
    { type: "button", class: "quiet", hidden: true, onclick: () => ((limit += ROWS), refresh()) },
    "Show more contexts",
  );
  const input = h("input", {
    type: "search",
    placeholder: "Search contexts",
    "aria-label": "Search contexts",
    autocomplete: "off",
    spellcheck: "false",
  });
  const top = h("span", {}, "100%");
  let limit = ROWS;
  let timer = 0;
  let waiting = null;
  let stamp = -Infinity;

  input.addEventListener("input", () => {
    clearTimeout(timer);
    limit = ROWS;
    timer = setTimeout(refresh, 200);
  });

  async function refresh() {
    if (!may("log")) {
      put(
        holder,
        h(
          "p",
          { class: "muted" },
          "Contexts have labels, which may be personal: a key of the role log or admin sees them.",
        ),
      );
      return;
    }
    waiting?.abort();
    waiting = new AbortController();
    const query = new URLSearchParams({ search: input.value.trim(), limit: String(Math.min(limit, 200)) });
    try {
      draw(await get(`${pageOf(name, "contexts.json")}?${query}`, { signal: waiting.signal }));
      stamp = performance.now();
    } catch (problem) {
      if (problem.name !== "AbortError" && problem.status) put(holder, h("p", { class: "muted" }, explained(problem)));
    }
  }

  function draw({ arms, total, items }) {
    const columns = columnsOf(arms, items);
    setText(found, `${integer(items.length)} of ${compact(total)}${input.value.trim() ? " that match" : ""}`);
    more.hidden = items.length >= total || limit >= 200;
    if (items.length === 0) {
      put(
        holder,
        h("p", { class: "muted" }, input.value.trim() ? "No context matches." : "No context has been seen yet."),
      );
      return;
    }
    const most = Math.max(
      0.05,
      ...items.flatMap((row) =>
        columns.filter((column) => !column.sum).map((column) => column.of(row.probabilities) ?? 0),
      ),
    );
    setText(top, percent(most, 0));
    put(
      holder,
      h(
        "table",
        { class: "heat" },
        h("caption", { class: "visually-hidden" }, "Probability of every arm in the most frequent contexts"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Context"),
            columns.map((column) => h("th", { scope: "col" }, label(column.text))),
            h("th", { scope: "col", class: "n" }, "Decisions"),
          ),
        ),
        h(
          "tbody",
          {},
          items.map((row) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, label(row.label)),
              columns.map((column) => cell(column.of(row.probabilities), most)),
              h("td", { class: "seen" }, compact(row.decisions)),
            ),
          ),
        ),
      ),
    );
  }

  const element = card(
    "Contexts by arms",
    {
      id: "heat-map",
      span,
      sub: "The probability with which each arm would be drawn now; the most frequent contexts first.",
      aside: h("div", { class: "search" }, icon("search"), input),
    },
    holder,
    h("div", { class: "pager" }, found, h("span", { class: "ramp", "aria-hidden": "true" }, "0%", h("i"), top), more),
  );
  return {
    element,
    refresh,
    /** Ask again, at most every three seconds. */
    renew() {
      if (performance.now() - stamp > 3000) {
        stamp = performance.now();
        refresh();
      }
    },
  };
}

/** All arms, or those that are likely somewhere and one column for the others. */
function columnsOf(arms, items) {
  const every = arms.map((text, k) => ({ text, of: (row) => row[k] }));
  if (arms.length <= COLUMNS) return every;
  const weight = arms.map((_, k) => items.reduce((sum, row) => sum + (row.probabilities[k] ?? 0), 0));
  const kept = new Set([...weight.keys()].sort((a, b) => weight[b] - weight[a]).slice(0, COLUMNS - 1));
  const others = arms.map((_, k) => k).filter((k) => !kept.has(k));
  return [
    ...every.filter((_, k) => kept.has(k)),
    {
      text: `${others.length} others`,
      sum: true,
      of: (row) => (row[others[0]] === null ? null : others.reduce((sum, k) => sum + row[k], 0)),
    },
  ];
}

function cell(value, most) {
  if (value === null) return h("td", { class: "p none" }, "–");
  return h(
    "td",
    { class: "p", style: { "--p": String(Math.min(1, value / most)) }, title: percent(value, 2) },
    value === 0 ? "0" : value < 0.005 ? "<1%" : percent(value, 0),
  );
}
