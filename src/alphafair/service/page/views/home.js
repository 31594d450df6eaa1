// All experiments at a glance.

import { address, follow, get, may, pageOf } from "../api.js";
import { createExperiment } from "../actions.js";
import { sparkline } from "../charts.js";
import { h, icon, label, put } from "../dom.js";
import { ago, alpha, compact, duration, fixed, number, plural, rate } from "../format.js";
import { connection, crumbs, notice } from "../frame.js";

export async function show(content) {
  crumbs(null, null);
  const marks = h("div", { class: "notices" });
  const count = h("p", { class: "lead" });
  const list = h("div", {});
  const cards = new Map();

  function draw(answer) {
    put(marks, answer.marks.map(notice));
    if (answer.items.length === 0) {
      put(list, empty());
      head.hidden = true;
      return;
    }
    head.hidden = false;
    const busy = answer.items.reduce((sum, each) => sum + each.decisions_per_second, 0);
    const troubled = answer.items.filter((each) => each.marks.some((mark) => mark.severity !== "info")).length;
    count.textContent = `${plural(answer.items.length, "experiment")} · ${rate(busy)} decisions in the last minute${troubled ? ` · ${troubled} ${troubled === 1 ? "needs" : "need"} attention` : ""}`;
    const grid = list.querySelector(".experiments") ?? put(list, h("ul", { class: "experiments" })).firstChild;
    for (const [name, old] of cards) if (!answer.items.some((each) => each.name === name)) old.remove();
    for (const item of answer.items) {
      const fresh = experiment(item, answer.at);
      const old = cards.get(item.name);
      const focused = old?.contains(document.activeElement);
      if (old) old.replaceWith(fresh);
      else grid.append(fresh);
      if (focused) fresh.querySelector("a").focus();
      cards.set(item.name, fresh);
    }
  }

  const head = h(
    "div",
    { class: "view-head" },
    h("div", { class: "titles" }, h("h1", {}, "Experiments"), count),
    h(
      "div",
      { class: "acts" },
      may("admin") &&
        h(
          "button",
          { type: "button", class: "primary", onclick: () => createExperiment() },
          icon("plus"),
          "New experiment",
        ),
    ),
  );
  const answer = await get(address("/index.json"));
  put(content, head, marks, list);
  draw(answer);
  follow(address("/events"), { state: draw, update: draw, status: connection });
}

function experiment(item, now) {
  const { sparkline: spark } = item;
  const span = duration(spark.width * spark.decisions.length);
  return h(
    "li",
    { class: "card experiment", data: { name: item.name } },
    h(
      "div",
      { class: "name" },
      h("h2", {}, h("a", { href: pageOf(item.name, "live") }, label(item.name))),
      state(item),
    ),
    item.marks.filter((mark) => mark.code !== "paused").map(notice),
    h(
      "dl",
      { class: "figures" },
      pair("Decisions", compact(item.decisions)),
      pair("Pending", compact(item.pending)),
      pair("Welfare", number(item.welfare)),
      pair("Jain’s index", fixed(item.jain_index, 3)),
    ),
    sparkline(
      spark.decisions,
      `Decisions over the last ${span}: ${compact(spark.decisions.reduce((sum, each) => sum + each, 0))}`,
    ),
    h(
      "p",
      { class: "last" },
      h(
        "span",
        {},
        `${rate(item.decisions_per_second)} in the last minute · α ${alpha(item.alpha)} · ${plural(item.arms, "arm")} · ${plural(item.contexts, "context")}`,
      ),
      h("span", { class: "nowrap" }, `· ${ago(item.last_event, now)}`),
    ),
  );
}

function pair(title, value) {
  return h("div", {}, h("dt", {}, title), h("dd", {}, value));
}

function state(item) {
  const worst = item.marks.find((mark) => mark.severity !== "info");
  if (worst?.severity === "critical") return h("span", { class: "chip bad" }, "Failing");
  if (worst) return h("span", { class: "chip warn" }, "Attention");
  if (item.paused) return h("span", { class: "chip" }, icon("pause"), "Paused");
  return h("span", { class: "chip good" }, icon("check"), item.decisions_per_second > 0 ? "Running" : "Ready");
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
    may("admin") && [
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
