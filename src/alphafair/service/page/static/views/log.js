// The log: decisions, newest first, with filters that are part of the address.

import { decisionLink, get, may, pageOf, routeOf } from "../api.js";
import { field } from "../dialogs.js";
import { h, icon, label, put, table } from "../dom.js";
import { duration, fixed, fullTime, integer, number, quoted, timeParts } from "../format.js";
import { crumbs, tabs } from "../frame.js";

export const STATES = {
  pending: ["Pending", ""],
  deferred: ["Deferred", ""],
  rewarded: ["Rewarded", "good"],
  defaulted: ["Default", "warn"],
  expired: ["Expired", "warn"],
  lapsed: ["Lapsed", "warn"],
  rolled_back: ["Rolled back", "bad"],
};

export const stateChip = (state) =>
  h("span", { class: `chip ${STATES[state]?.[1] ?? ""}`, data: { state } }, STATES[state]?.[0] ?? state);

export async function show(content, name) {
  crumbs(name, "Log");
  const query = new URLSearchParams(location.search);
  const problem = unreadable(query);
  const answer = problem
    ? { items: [], next: null, searched_to: 0 }
    : await get(`${pageOf(name, "log.json")}?${asked(query)}&limit=50`);
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
    problem && h("p", { class: "notice bad", role: "alert" }, icon("warning"), h("span", {}, problem)),
    h("div", { class: "card" }, filters(name, query, filtered), rows, pager(name, query, answer)),
  );
  put(
    rows,
    answer.items.length > 0
      ? table("Decisions", columns(name), answer.items, { class: "log decisions" })
      : h(
          "p",
          { class: "muted" },
          problem
            ? "Nothing was searched."
            : filtered
            ? answer.next === null
              ? "No decision matches."
              : "No decision matches among those searched so far."
            : "No decision has been made yet.",
        ),
  );
}

/** What cannot be understood in the filters of the address, as a sentence; null if all can be. */
function unreadable(query) {
  const state = query.get("state");
  if (state && !(state in STATES))
    return `No decision has the state ${quoted(state)}. The states are ${Object.keys(STATES).join(", ")}.`;
  for (const each of ["since", "until"])
    if (query.get(each) && Number.isNaN(Date.parse(query.get(each))))
      return `${quoted(query.get(each))} is not a time. Write it as 2026-11-18T19:00.`;
  if (query.get("before") && !/^[0-9]+$/.test(query.get("before")))
    return `${quoted(query.get("before"))} is not a position of the log.`;
  return null;
}

/** The filters of the address as log.json takes them: times in seconds since 1970. */
export function asked(query) {
  const found = new URLSearchParams();
  for (const each of ["context", "arm", "state", "before"]) if (query.get(each)) found.set(each, query.get(each));
  for (const each of ["since", "until"])
    if (query.get(each)) found.set(each, String(Date.parse(query.get(each)) / 1000));
  return found;
}

function columns(name) {
  return [
    {
      title: "Decided",
      rowHead: true,
      cell: (row) => {
        const [day, clock] = timeParts(row.at);
        return h(
          "a",
          { href: decisionLink(name, row.id), title: fullTime(row.at) },
          h("span", { class: "day" }, day),
          clock,
        );
      },
    },
    { title: "Context", cell: (row) => label(row.context) },
    {
      title: "Arm",
      cell: (row) => (row.slate === null ? label(row.arm) : label(row.slate.map((each) => each.arm).join(", "))),
    },
    { title: "By", cell: (row) => (row.decided_by === null ? "policy" : label(row.decided_by)) },
    {
      title: "Propensity",
      number: true,
      cell: (row) => (row.slate !== null || row.propensity === null ? "–" : fixed(row.propensity, 3)),
    },
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
  const links = [
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
  return h("div", { class: "downloads", role: "group", "aria-labelledby": "downloads" }, [
    h("span", { id: "downloads" }, "The whole log:"),
    links,
  ]);
}
