// The log: decisions, newest first, with filters that are part of the address.

import { decisionLink, get, may, pageOf, routeOf } from "../api.js";
import { field } from "../dialogs.js";
import { h, icon, label, put, table } from "../dom.js";
import { duration, fixed, fullTime, integer, number, time } from "../format.js";
import { crumbs, tabs } from "../frame.js";

export const STATES = {
  pending: ["Pending", ""],
  deferred: ["Deferred", ""],
  rewarded: ["Rewarded", "good"],
  defaulted: ["Default reward", "warn"],
  expired: ["Expired", "warn"],
  lapsed: ["Lapsed", "warn"],
  rolled_back: ["Rolled back", "bad"],
};

export const stateChip = (state) =>
  h("span", { class: `chip ${STATES[state]?.[1] ?? ""}`, data: { state } }, STATES[state]?.[0] ?? state);

export async function show(content, name) {
  crumbs(name, "Log");
  const query = new URLSearchParams(location.search);
  const answer = await get(`${pageOf(name, "log.json")}?${asked(query)}`);
  const rows = h("div", { class: "wide-table" });
  const filtered = ["context", "arm", "state", "since", "until"].some((each) => query.get(each));
  put(
    content,
    h(
      "div",
      { class: "view-head" },
      h(
        "div",
        { class: "titles" },
        h("h1", {}, label(name)),
        h("p", { class: "lead" }, "Every decision, the newest first. Each has a permanent link that tells its story."),
      ),
      h("div", { class: "acts" }, may("log") && exports(name)),
    ),
    tabs(name, "log"),
    h("div", { class: "card" }, filters(name, query, filtered), rows, pager(name, query, answer)),
  );
  put(
    rows,
    answer.items.length > 0
      ? table("Decisions", columns(name), answer.items, { class: "log decisions" })
      : h(
          "p",
          { class: "muted" },
          filtered
            ? answer.next === null
              ? "No decision matches."
              : "No decision matches among those searched so far."
            : "No decision has been made yet.",
        ),
  );
}

/** The filters of the address as log.json takes them. */
function asked(query) {
  const found = new URLSearchParams();
  for (const each of ["context", "arm", "state", "before"]) if (query.get(each)) found.set(each, query.get(each));
  for (const each of ["since", "until"])
    if (query.get(each)) found.set(each, String(Date.parse(query.get(each)) / 1000));
  found.set("limit", "50");
  return found;
}

function columns(name) {
  return [
    {
      title: "Decided",
      rowHead: true,
      cell: (row) => h("a", { href: decisionLink(name, row.id), title: fullTime(row.at) }, time(row.at)),
    },
    { title: "Context", cell: (row) => label(row.context) },
    { title: "Arm", cell: (row) => label(row.arm) },
    { title: "Propensity", number: true, cell: (row) => fixed(row.propensity, 3) },
    { title: "State", cell: (row) => stateChip(row.state) },
    { title: "Reward", number: true, cell: (row) => number(row.reward) },
    {
      title: "After",
      number: true,
      cell: (row) => (row.rewarded_at === null ? "–" : duration(row.rewarded_at - row.at)),
    },
    { title: "Id", cell: (row) => label(row.id, { class: "mono small muted" }) },
    { title: "Position", number: true, cell: (row) => integer(row.position) },
  ];
}

function filters(name, query, filtered) {
  const states = [["", "Any"], ...Object.entries(STATES).map(([state, [text]]) => [state, text])];
  return h(
    "form",
    {
      class: "filters",
      role: "search",
      "aria-label": "Filter decisions",
      onsubmit: (event) => {
        event.preventDefault();
        const values = [...new FormData(event.target)].filter(([, value]) => value !== "");
        location.assign(`${pageOf(name, "log")}?${new URLSearchParams(values)}`);
      },
    },
    field("context", "Context", { value: query.get("context") ?? "", maxlength: 200 }),
    field("arm", "Arm", { value: query.get("arm") ?? "", maxlength: 200 }),
    field("state", "State", { kind: "select", choices: states, value: query.get("state") ?? "" }),
    field("since", "From", { kind: "datetime-local", step: 1, value: query.get("since") ?? "" }),
    field("until", "Until", { kind: "datetime-local", step: 1, value: query.get("until") ?? "" }),
    h(
      "div",
      { class: "go" },
      h("button", { type: "submit", class: "primary" }, "Filter"),
      filtered && h("a", { class: "button quiet", href: pageOf(name, "log") }, "Clear"),
    ),
  );
}

function pager(name, query, answer) {
  const older = new URLSearchParams(query);
  if (answer.next !== null) older.set("before", String(answer.next));
  const newest = new URLSearchParams(query);
  newest.delete("before");
  const text = answer.items.length
    ? `Positions ${integer(answer.items.at(-1).position)} to ${integer(answer.items[0].position)}`
    : answer.next === null
      ? ""
      : `Searched back to position ${integer(answer.searched_to)}`;
  return h(
    "nav",
    { class: "pager", "aria-label": "Pages of the log" },
    h("span", {}, text),
    h(
      "span",
      { class: "turn" },
      query.get("before") && h("a", { class: "button", href: `${pageOf(name, "log")}?${newest}` }, "Newest"),
      answer.next !== null &&
        h(
          "a",
          { class: "button", rel: "next", href: `${pageOf(name, "log")}?${older}` },
          answer.items.length ? "Older" : "Search further back",
        ),
    ),
  );
}

function exports(name) {
  return [
    ["parquet", "Parquet"],
    ["csv", "CSV"],
    ["jsonl", "JSON lines"],
  ].map(([format, text]) =>
    h(
      "a",
      { class: "button", href: `${routeOf(name, "/log")}?format=${format}`, download: true },
      icon("download"),
      text,
    ),
  );
}
