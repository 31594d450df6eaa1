// All experiments at a glance.

import { address, follow, get, mayOperate, pageOf } from "../api.js";
import { createExperiment } from "../actions.js";
import { sparkline } from "../charts.js";
import { h, icon, label, put, renew, setText } from "../dom.js";
import { ago, alpha, compact, duration, fixed, number, plural, rate } from "../format.js";
import { connection, crumbs, notice } from "../frame.js";
import { paced } from "../redraws.js";

const FEW = 8; // experiments that need no filter

export async function show(content) {
  crumbs(null, null);
  const marks = h("div");
  const count = h("p", { class: "lead" });
  const grid = h("ul", { class: "experiments", hidden: true });
  const nothing = empty();
  const noMatch = h("p", { class: "muted", role: "status", hidden: true }, "No experiment has this in its name.");
  const filter = h("input", {
    type: "search",
    placeholder: "Filter experiments",
    "aria-label": "Filter experiments",
    autocomplete: "off",
    spellcheck: "false",
    oninput: narrow,
  });
  const filterBox = h("div", { class: "search", hidden: true }, icon("search"), filter);
  const head = h(
    "div",
    { class: "view-head", hidden: true },
    h("div", { class: "titles" }, h("h1", {}, "Experiments"), count),
    h(
      "div",
      { class: "acts" },
      filterBox,
      mayOperate() &&
        h(
          "button",
          { type: "button", class: "primary", onclick: () => createExperiment() },
          icon("plus"),
          "New experiment",
        ),
    ),
  );
  const cards = new Map(); // by name; a card stays the same element, so that clicks and selections are not lost

  function draw() {
    const { items } = answer;
    renew(marks, h("div", { class: "notices" }, [...answer.marks, ...answer.left_out.map(leftOut)].map(notice)));
    head.hidden = grid.hidden = items.length === 0;
    nothing.hidden = items.length + answer.left_out.length > 0;
    filterBox.hidden = items.length <= FEW && filter.value === "";
    const busy = items.reduce((sum, each) => sum + each.decisions_per_second, 0);
    const troubled = items.filter((each) => severity(each) > 0).length;
    setText(
      count,
      `${plural(items.length, "experiment")} · ${rate(busy)} decisions in the last minute${troubled ? ` · ${troubled} ${troubled === 1 ? "needs" : "need"} attention` : ""}`,
    );
    const names = new Set(items.map((each) => each.name));
    for (const [name, { element }] of cards)
      if (!names.has(name)) {
        element.remove();
        cards.delete(name);
      }
    for (const item of items) {
      if (!cards.has(item.name)) {
        cards.set(item.name, experimentCard(item.name));
        grid.append(cards.get(item.name).element);
      }
      cards.get(item.name).draw(item, answer.at);
    }
    if (!grid.matches(":hover, :focus-within")) sort(items);
    narrow();
  }

  /** Those that need attention first, the others as they were created; never below somebody's pointer. */
  function sort(items) {
    [...items]
      .sort((one, other) => severity(other) - severity(one))
      .forEach(({ name }, k) => {
        const { element } = cards.get(name);
        if (grid.children[k] !== element) grid.insertBefore(element, grid.children[k]);
      });
  }

  function narrow() {
    const wanted = filter.value.trim().toLowerCase();
    for (const [name, { element }] of cards) element.hidden = !name.toLowerCase().includes(wanted);
    noMatch.hidden = cards.size === 0 || [...cards.values()].some(({ element }) => !element.hidden);
  }

  let answer = await get(address("/index.json"));
  const later = paced(draw);
  draw();
  put(content, head, marks, nothing, grid, noMatch);
  let isFirst = true;
  const update = (found) => ((answer = found), later());
  const state = (found) => {
    if (!isFirst || found.position >= answer.position) update(found); // the first may be a second old
    isFirst = false;
  };
  follow(address("/events"), { state, update, status: connection });
}

const SEVERITIES = ["info", "warning", "critical"];
const severity = (item) => Math.max(0, ...item.marks.map((mark) => SEVERITIES.indexOf(mark.severity)));

const leftOut = (name) => ({
  code: "left_out",
  severity: "critical",
  sentence: `${name} cannot be shown here. It may work nevertheless: /ready has the reason, and the log of the service more.`,
});

/** The card of an experiment: its element, and a function that shows new numbers in it. */
function experimentCard(name) {
  const titles = ["Decisions", "Pending", "Welfare", "Jain’s index"];
  const values = titles.map(() => h("dd"));
  const span = h("p", { class: "span" });
  const chart = h("div", { class: "chart" });
  const [facts, last] = [h("span"), h("span", { class: "nowrap" })];
  const [chip, notices] = [h("span", { class: "state" }), h("div")];
  return {
    element: h(
      "li",
      { class: "card experiment", data: { name } },
      h("div", { class: "name" }, h("h2", {}, h("a", { href: pageOf(name, "live") }, label(name))), chip),
      notices,
      h(
        "dl",
        { class: "figures" },
        titles.map((title, k) => h("div", {}, h("dt", {}, title), values[k])),
      ),
      span,
      chart,
      h("p", { class: "last" }, facts, last),
    ),
    draw(item, now) {
      const { decisions, width } = item.sparkline;
      const { text, look, sign } = state(item);
      const shownMarks = item.marks.filter((mark) => mark.code !== "paused");
      renew(chip, h("span", { class: `chip ${look}` }, sign && icon(sign), text));
      renew(notices, h("div", { class: "notices" }, shownMarks.map(notice)));
      [compact(item.decisions), compact(item.pending), number(item.welfare), fixed(item.jain_index, 3)].forEach(
        (value, k) => setText(values[k], value),
      );
      setText(span, `Decisions, last ${duration(width * decisions.length)}`);
      renew(
        chart,
        sparkline(
          decisions,
          `Decisions over the last ${duration(width * decisions.length)}: ${compact(decisions.reduce((sum, each) => sum + each, 0))}`,
        ),
      );
      setText(
        facts,
        `${rate(item.decisions_per_second)} in the last minute · α ${alpha(item.alpha)} · ${plural(item.arms, "arm")} · ${plural(item.contexts, "context")}`,
      );
      setText(last, `· ${ago(item.last_event, now)}`);
    },
  };
}

function state(item) {
  const worst = item.marks.find((mark) => mark.severity !== "info");
  if (worst?.severity === "critical") return { text: "Failing", look: "bad" };
  if (worst) return { text: "Attention", look: "warn" };
  if (item.paused) return { text: "Paused", look: "", sign: "pause" };
  return { text: item.decisions_per_second > 0 ? "Running" : "Ready", look: "good", sign: "check" };
}

function empty() {
  const example = `curl ${location.origin}${address("/v1/experiments")} \\\n  -d '{"name": "home", "arms": ["ada", "ben"], "alpha": 0.9}'`;
  return h(
    "div",
    { class: "empty" },
    h("h1", {}, "No experiments yet"),
    h(
      "p",
      { class: "lead" },
      "An experiment divides decisions among arms (sellers, creators, genres) and keeps what they earn fair over time.",
    ),
    mayOperate() && [
      h(
        "button",
        { type: "button", class: "primary", onclick: () => createExperiment() },
        icon("plus"),
        "Create the first experiment",
      ),
      h("p", { class: "or" }, "or from a shell"),
    ],
    h("pre", { tabindex: "0" }, h("code", {}, example)),
    h(
      "p",
      { class: "or" },
      "then ask for decisions and report rewards: ",
      h("a", { href: address("/docs") }, "the API"),
    ),
  );
}
