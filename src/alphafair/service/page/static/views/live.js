// One experiment while it runs.

import { actionsMenu, modeButtons } from "../actions.js";
import { follow, get, may, pageOf } from "../api.js";
import { books, delays, guarantee, history, whoGetsWhat } from "../cards_now.js";
import { earnings, fairness, sharesOverTime, sides } from "../cards_over_time.js";
import { colorOf } from "../charts.js";
import { h, icon, label, put, renew, setText } from "../dom.js";
import {
  alpha,
  ago,
  compact,
  day,
  duration,
  fixed,
  fullTime,
  integer,
  number,
  percent,
  plural,
  rate,
} from "../format.js";
import { connection, crumbs, notice, tabs } from "../frame.js";
import { heatMap } from "../heat_map.js";
import { paced } from "../redraws.js";
import { updated } from "../series.js";

export async function show(content, name) {
  crumbs(name, null);
  let live = await get(pageOf(name, "live.json"));
  let colors = null;

  const heading = head(name, () => live);
  const marks = h("div", { class: "notices" });
  const figures = tiles();
  const compared = sides((experiment) => modeButtons(name, experiment));
  const parts = [fairness(), earnings(), sharesOverTime(), whoGetsWhat(), delays(), guarantee(), history(), books()];
  const heat = heatMap(name, () => live, "span-7 wide-8 tall");
  const [fair, earned, over, who, late, proof, events, periods] = parts.map((part) => part.element);
  put(
    content,
    heading.element,
    tabs(name, "live"),
    marks,
    figures.element,
    h("div", { class: "grid" }, compared.element, fair, earned, over, who, heat.element, late, h("div", { class: "last-row" }, proof, events, periods)),
  );

  function draw() {
    const labels = live.shares.map((each) => each.label);
    if (colors === null || (labels.length <= 8 && labels.length !== colors.size))
      colors = colorOf(
        labels,
        live.shares.map((each) => each.rewards ?? 0),
      );
    heading.draw(live);
    renew(marks, live.marks.map(notice));
    marks.hidden = live.marks.length === 0;
    figures.draw(live);
    for (const part of [compared, ...parts]) part.draw(live, colors);
    heat.renew();
  }

  const later = paced(draw);
  draw();
  follow(pageOf(name, "events"), {
    state: (answer) => ((live = answer), later()),
    update: (answer) => ((live = updated(live, answer)), later()),
    status: connection,
  });
}

// the heading and the figures below it

function head(name, live) {
  const facts = h("div", { class: "facts" });
  const acts = h("div", { class: "acts" }, may("admin") && actionsMenu(name, live));
  return {
    element: h("div", { class: "view-head" }, h("div", { class: "titles" }, h("h1", {}, label(name)), facts), acts),
    draw({ experiment, last_event: last, at }) {
      renew(
        facts,
        experiment.paused
          ? h("span", { class: "chip warn" }, icon("pause"), "Paused")
          : h("span", { class: "chip good" }, icon("check"), "Running"),
        experiment.alpha !== null &&
          h("span", { class: "chip accent", data: { fact: "alpha" } }, `α = ${alpha(experiment.alpha)}`),
        h("span", {}, experiment.policy),
        h("span", {}, experiment.feedback === "full" ? "full information" : "bandit feedback"),
        h("span", {}, plural(experiment.arms.length, "arm")),
        experiment.features !== null &&
          h(
            "span",
            { title: Object.keys(experiment.features).join(", "), data: { fact: "features" } },
            plural(Object.keys(experiment.features).length, "feature"),
          ),
        h("span", { title: fullTime(last) }, `last event ${ago(last, at)}`),
        experiment.period_ends &&
          h(
            "span",
            { title: fullTime(experiment.period_ends) },
            `period of ${duration(experiment.period)}, until ${day(experiment.period_ends)}`,
          ),
      );
    },
  };
}

function tiles() {
  const names = ["decisions", "rewards", "reward", "jain", "welfare", "contexts"];
  const titles = {
    decisions: "Decisions",
    rewards: "Rewards",
    reward: "Mean reward",
    jain: "Jain’s index",
    welfare: "Welfare",
    contexts: "Contexts",
  };
  const parts = Object.fromEntries(
    names.map((each) => [
      each,
      { value: h("div", { class: "value", data: { figure: each } }), note: h("div", { class: "note" }) },
    ]),
  );
  return {
    element: h(
      "dl",
      { class: "tiles" },
      names.map((each) =>
        h("div", { class: "tile" }, h("dt", {}, titles[each]), h("dd", {}, parts[each].value, parts[each].note)),
      ),
    ),
    draw({ experiment, decisions_per_second: perSecond, shares }) {
      const sum = Object.values(experiment.cumulative_rewards).reduce((all, each) => all + each, 0);
      const counted = experiment.rewards + experiment.defaulted;
      const least = shares
        .filter((each) => each.live && each.rewards !== null)
        .reduce((found, each) => Math.min(found, each.rewards), Infinity);
      const set = (part, value, note) => {
        setText(parts[part].value, value);
        setText(parts[part].note, note);
        parts[part].note.title = note;
      };
      set("decisions", integer(experiment.decisions), `${rate(perSecond)} in the last minute`);
      set(
        "rewards",
        integer(experiment.rewards),
        `${integer(experiment.pending)} pending${experiment.defaulted ? ` · ${integer(experiment.defaulted)} by default` : ""}${experiment.expired ? ` · ${integer(experiment.expired)} expired` : ""}`,
      );
      set(
        "reward",
        counted ? number(sum / counted) : "–",
        `in [${number(experiment.reward_range[0])}, ${number(experiment.reward_range[1])}]`,
      );
      set(
        "jain",
        fixed(experiment.jain_index, 3),
        Number.isFinite(least) ? `least share ${percent(least)}` : "1 is equal",
      );
      set(
        "welfare",
        number(experiment.welfare, 4),
        experiment.alpha === null ? "" : `at α = ${alpha(experiment.alpha)}`,
      );
      set("contexts", integer(experiment.contexts), `room for ${compact(experiment.max_contexts)}`);
    },
  };
}
