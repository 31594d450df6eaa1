// Contexts by arms: the current probabilities, the most frequent contexts first, searchable.

import { explained, get, may, pageOf } from "./api.js";
import { card } from "./charts.js";
import { h, icon, label, put, renew, setText } from "./dom.js";
import { compact, integer, percent } from "./format.js";
import { paced, whenSeen } from "./redraws.js";

const ROWS = matchMedia("(min-width: 110rem)").matches ? 20 : 12; // contexts at first; "more" adds as many again
const COLUMNS = 30; // arms with a column of their own
const OFTEN = 2000; // milliseconds between two questions
const FEW = 10; // arms that keep their order: of more, the most likely come first

export function heatMap(name, live, span) {
  const holder = h("div", {
    class: "scroll edges",
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

  input.addEventListener("input", () => {
    clearTimeout(timer);
    limit = ROWS;
    timer = setTimeout(refresh, 200);
  });

  async function refresh() {
    if (!may("log")) {
      renew(
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
    } catch (problem) {
      if (problem.name !== "AbortError" && problem.status) renew(holder, h("p", { class: "muted" }, explained(problem)));
    }
  }

  function draw({ arms, total, items }) {
    const columns = columnsOf(arms, items);
    setText(found, `${integer(items.length)} of ${compact(total)}${input.value.trim() ? " that match" : ""}`);
    more.hidden = items.length >= total || limit >= 200;
    if (items.length === 0) {
      renew(
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
    renew(
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
            h("th", { scope: "col", class: "n" }, "Decisions"),
            columns.map((column) => h("th", { scope: "col" }, label(column.text), masked(column))),
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
              h("td", { class: "seen" }, compact(row.decisions)),
              columns.map((column) => cell(column.of(row.probabilities), most)),
            ),
          ),
        ),
      ),
    );
  }

  const masked = ({ text, sum }) =>
    !sum &&
    live().experiment.masked_arms.includes(text) &&
    h("span", { class: "tag", title: "Not drawn until it is unmasked" }, "masked");

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
    renew: whenSeen(element, paced(refresh, OFTEN)),
  };
}

/** All arms; of many, the most likely first, and one column for those behind. */
function columnsOf(arms, items) {
  const every = arms.map((text, k) => ({ text, of: (row) => row[k] }));
  if (arms.length <= FEW) return every;
  const weight = arms.map((_, k) => items.reduce((sum, row) => sum + (row.probabilities[k] ?? 0), 0));
  const sorted = [...weight.keys()].sort((a, b) => weight[b] - weight[a] || a - b);
  if (arms.length <= COLUMNS) return sorted.map((k) => every[k]);
  const others = sorted.slice(COLUMNS - 1);
  return [
    ...sorted.slice(0, COLUMNS - 1).map((k) => every[k]),
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
