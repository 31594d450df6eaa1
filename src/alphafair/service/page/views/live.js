// One experiment while it runs.

import { follow, get, may, pageOf } from "../api.js";
import { actionsMenu } from "../actions.js";
import { asTable, card, colourOf, delayBars, legend, lines, quantile, segments } from "../charts.js";
import { h, icon, label, put, setText, table } from "../dom.js";
import { alpha, ago, change as changeText, compact, day, duration, fixed, fullTime, integer, number, percent, plural, rate, time } from "../format.js";
import { connection, crumbs, notice, tabs } from "../frame.js";
import { heatMap } from "../heat_map.js";
import { cumulativeShares, held, movingMean, reach, times, updated } from "../series.js";
import { armShares, sharesTable } from "../shares.js";

const PERIOD_COLUMNS = 12; // arms in the books of periods
const GREY_LINES = 40; // arms without a colour that still get a thin line

export async function show(content, name) {
  crumbs(name, null);
  let live = await get(pageOf(name, "live.json"));
  let colours = null;
  let scheduled = 0;

  const heading = head(name, () => live);
  const marks = h("div", { class: "notices" });
  const figures = tiles();
  const parts = [fairness(), earnings(), sharesOverTime(), whoGetsWhat(), delays(), guarantee(), history(), books()];
  const heat = heatMap(name, "span-7 wide-8");
  const [fair, earned, over, who, late, proof, events, periods] = parts.map((part) => part.element);
  put(content, heading.element, tabs(name, "live"), marks, figures.element, h("div", { class: "grid" }, fair, earned, over, who, heat.element, late, proof, events, periods));

  function draw() {
    scheduled = 0;
    const labels = live.shares.map((each) => each.label);
    if (colours === null || (labels.length <= 8 && labels.length !== colours.size)) colours = colourOf(labels, live.shares.map((each) => each.rewards ?? 0));
    heading.draw(live);
    put(marks, live.marks.map(notice));
    figures.draw(live);
    for (const part of parts) part.draw(live, colours);
    heat.renew();
  }

  const later = () => (scheduled ||= requestAnimationFrame(draw));
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
    draw({ experiment }) {
      put(
        facts,
        experiment.paused ? h("span", { class: "chip warn" }, icon("pause"), "Paused") : h("span", { class: "chip good" }, icon("check"), "Running"),
        experiment.alpha !== null && h("span", { class: "chip accent", data: { fact: "alpha" } }, `α = ${alpha(experiment.alpha)}`),
        h("span", {}, experiment.policy),
        h("span", {}, experiment.feedback === "full" ? "full information" : "bandit feedback"),
        h("span", {}, plural(experiment.arms.length, "arm")),
        experiment.period_ends && h("span", { title: fullTime(experiment.period_ends) }, `period of ${duration(experiment.period)}, until ${day(experiment.period_ends)}`),
      );
    },
  };
}

function tiles() {
  const names = ["decisions", "rewards", "reward", "jain", "welfare", "contexts"];
  const titles = { decisions: "Decisions", rewards: "Rewards", reward: "Mean reward", jain: "Jain’s index", welfare: "Welfare", contexts: "Contexts" };
  const parts = Object.fromEntries(names.map((each) => [each, { value: h("div", { class: "value", data: { figure: each } }), note: h("div", { class: "note" }) }]));
  return {
    element: h("dl", { class: "tiles" }, names.map((each) => h("div", { class: "tile" }, h("dt", {}, titles[each]), h("dd", {}, parts[each].value, parts[each].note)))),
    draw({ experiment, decisions_per_second: perSecond, last_event: last, at, shares }) {
      const sum = Object.values(experiment.cumulative_rewards).reduce((all, each) => all + each, 0);
      const counted = experiment.rewards + experiment.defaulted;
      const least = shares.filter((each) => each.live && each.rewards !== null).reduce((found, each) => Math.min(found, each.rewards), Infinity);
      const set = (part, value, note) => {
        setText(parts[part].value, value);
        setText(parts[part].note, note);
        parts[part].note.title = note;
      };
      set("decisions", integer(experiment.decisions), `${rate(perSecond)} · last ${ago(last, at)}`);
      set("rewards", integer(experiment.rewards), `${integer(experiment.pending)} pending${experiment.defaulted ? ` · ${integer(experiment.defaulted)} by default` : ""}${experiment.expired ? ` · ${integer(experiment.expired)} expired` : ""}`);
      set("reward", counted ? number(sum / counted) : "–", `in [${number(experiment.reward_range[0])}, ${number(experiment.reward_range[1])}]`);
      set("jain", fixed(experiment.jain_index, 3), Number.isFinite(least) ? `least share ${percent(least)}` : "1 is equal");
      set("welfare", number(experiment.welfare, 4), experiment.alpha === null ? "" : `at α = ${alpha(experiment.alpha)}`);
      set("contexts", integer(experiment.contexts), `room for ${compact(experiment.max_contexts)}`);
    },
  };
}

// charts over time

function fairness() {
  let shown = "jain_index";
  let last = null;
  const chart = lines({
    title: "Fairness over time",
    format: (value) => (shown === "jain_index" ? fixed(value, 3) : number(value, 4)),
    axisFormat: (value) => (shown === "jain_index" ? fixed(value, 2) : compact(value)),
    range: (low, high) => (shown === "jain_index" ? [Math.max(0, Math.min(0.9, Math.floor(10 * (low ?? 0)) / 10)), 1] : padded(low, high)),
    sync: "time",
    empty: "Fairness is shown from the first reward on.",
  });
  const choice = segments("Measure of fairness", [["jain_index", "Jain’s index"], ["welfare", "Welfare"]], shown, (value) => {
    shown = value;
    if (last) draw(last);
  });
  function draw(live) {
    last = live;
    const x = times(live);
    const column = held(live.series[shown]);
    const from = column.findIndex((each) => each !== null);
    chart.draw([{ text: shown === "jain_index" ? "Jain’s index" : "Welfare", name: "accent", fill: true }], from < 0 ? [] : x.slice(from), [from < 0 ? [] : column.slice(from)], live.changes);
    chart.describe(from < 0 ? "No data yet." : `Now ${number(column.at(-1), 4)}.`);
  }
  const element = card("Fairness", { id: "fairness", span: "span-6 wide-4", sub: "How evenly accounts stand, 1 being as entitled. Dashed lines mark changes.", aside: choice }, chart.element, chart.numbers);
  return { element, draw };
}

function earnings() {
  let shown = "reward";
  let last = null;
  const chart = lines({
    title: "Reward and traffic over time",
    format: (value) => number(value),
    range: (low, high) => (shown === "reward" ? padded(low, high) : [0, Math.max(1e-3, (high ?? 1) * 1.12)]),
    sync: "time",
    empty: "The first reward has not arrived yet.",
  });
  const key = h("div", {});
  const choice = segments("What is shown", [["reward", "Reward"], ["traffic", "Traffic"]], shown, (value) => {
    shown = value;
    if (last) draw(last);
  });
  function draw(live) {
    last = live;
    const { series } = live;
    const x = times(live);
    if (shown === "reward") {
      const mean = movingMean(series.reward_sums, series.rewards, reach(x.length));
      const raw = series.rewards.map((count, k) => (count > 0 ? series.reward_sums[k] / count : null));
      const any = raw.some((each) => each !== null);
      const width = duration(reach(x.length) * series.width);
      const named = [
        { text: `Mean of ${width}`, name: "arm-2", width: 2.5 },
        { text: `Each ${series.width === 1 ? "second" : duration(series.width)}`, name: "arm-2", width: 1, faint: true },
      ];
      chart.draw(named, any ? x : [], any ? [mean, raw] : [[], []], live.changes);
      chart.describe(any ? `Mean reward of late ${number(mean.at(-1))}.` : "No data yet.");
      put(key, legend(named));
    } else {
      const perSecond = (column) => column.map((each) => each / series.width);
      const named = [
        { text: "Decisions per second", name: "arm-0", fill: true, steps: true, width: 1.5 },
        { text: "Rewards per second", name: "arm-2", steps: true, width: 1.5 },
        { text: "Expired per second", name: "arm-5", steps: true, width: 1.5 },
      ];
      chart.draw(named, x, [perSecond(series.decisions), perSecond(series.rewards), perSecond(series.expired)], live.changes);
      chart.describe(`${integer(series.decisions.at(-1) ?? 0)} decisions in the last ${duration(series.width)}.`);
      put(key, legend(named));
    }
  }
  const element = card("Reward per decision", { id: "reward", span: "span-6 wide-4", aside: choice, sub: "What decisions earn when their reward arrives." }, chart.element, key, chart.numbers);
  return { element, draw };
}

function sharesOverTime() {
  let shown = "arm_reward_sums";
  let last = null;
  const chart = lines({
    title: "Shares over time",
    format: (value) => percent(value),
    axisFormat: (value) => percent(value, 0),
    range: (low, high) => [0, Math.min(1, Math.max(0.05, (high ?? 1) * 1.1))],
    sync: "time",
    sortTip: true,
    settle: true,
    empty: "Shares are shown from the first reward on.",
  });
  const key = h("div", {});
  const choice = segments("Share of", [["arm_reward_sums", "Reward"], ["arm_decisions", "Decisions"]], shown, (value) => {
    shown = value;
    if (last) draw(...last);
  });
  function draw(live, colours) {
    last = [live, colours];
    const { series, shares } = live;
    const rank = (each) => (colours.has(each.label) ? 1 : 0);
    const kept = [...shares].sort((a, b) => rank(a) - rank(b)).slice(-GREY_LINES - colours.size); // coloured lines are drawn last, on top
    const row = new Map(series.arms.map((arm, k) => [arm, k]));
    const membersOf = (each) => each.arms.map((arm) => row.get(arm)).filter((k) => k !== undefined);
    const every = cumulativeShares(series[shown], shares.map(membersOf));
    const place = new Map(shares.map((each, k) => [each.label, k]));
    const columns = kept.map((each) => every[place.get(each.label)]);
    const x = times(live);
    const from = columns.length ? columns[0].findIndex((each) => each !== null) : -1;
    const due = [...new Set(shares.filter((each) => each.live).map((each) => each.entitled.toFixed(6)))].map(Number);
    const named = kept.map((each) => ({ text: each.label, name: colours.get(each.label) ?? "arm-other", width: colours.has(each.label) ? 2 : 1, faint: !colours.has(each.label), hideTip: !colours.has(each.label) }));
    const entitled = dueLines(shares, due, colours);
    const after = x.slice(Math.max(0, from));
    if (from < 0) chart.draw([], [], [], live.changes);
    else chart.draw([...named, ...entitled], after, [...columns.map((each) => each.slice(from)), ...entitled.map((each) => after.map(() => each.value))], live.changes);
    chart.describe(shares.length <= 12 ? shares.map((each) => `${each.label} ${percent(shown === "arm_decisions" ? each.decisions : each.rewards)}`).join(", ") : `${shares.length} lines.`);
    const grey = shares.length - [...colours.keys()].length;
    put(
      key,
      legend([
        ...shares.filter((each) => colours.has(each.label)).map((each) => ({ text: each.label, name: colours.get(each.label) })),
        ...(grey > 0 ? [{ text: plural(grey, "other"), name: "arm-other" }] : []),
        ...(entitled.length > 0 ? [{ text: "Entitled", name: "ink-2", kind: "dashed" }] : []),
      ]),
    );
  }
  const element = card("Shares over time", { id: "shares-over-time", span: "span-6 wide-4", sub: "Of everything earned up to each moment.", aside: choice }, chart.element, key, chart.numbers);
  return { element, draw };
}

/** One dashed line where all are entitled to the same, else one for each that has a colour. */
function dueLines(shares, due, colours) {
  const dashed = { width: 1.5, dash: [5, 4], hideTip: true };
  if (due.length === 1) return [{ text: "Entitled", name: "ink-2", value: due[0], ...dashed, hideTip: false }];
  return shares.filter((each) => each.live && colours.has(each.label)).map((each) => ({ text: `Entitled: ${each.label}`, name: colours.get(each.label), value: each.entitled, ...dashed }));
}

function padded(low, high) {
  if (low === null || low === undefined) return [0, 1];
  const room = Math.max((high - low) * 0.12, Math.abs(high) * 0.02, 1e-9);
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

// shares now

function whoGetsWhat() {
  const shown = sharesTable();
  const aside = h("div", {});
  let grouped = true;
  let last = null;
  function draw(live, colours) {
    last = [live, colours];
    const groups = live.experiment.groups?.labels;
    if (groups && !aside.firstChild) put(aside, segments("Fair to", [[true, "Groups"], [false, "Arms"]], grouped, (value) => ((grouped = value), draw(...last))));
    if (groups && !grouped) {
      const arms = armShares(live.experiment);
      shown.draw("Arm", arms, new Map(arms.map((each) => [each.label, colours.get(groups[each.label]) ?? "arm-other"])));
    } else shown.draw(groups ? "Group" : "Arm", live.shares, colours);
  }
  const element = card("Who gets what", { id: "who-gets-what", span: "span-6 wide-4", sub: "The upright mark is what each is entitled to.", aside }, shown.element);
  return { element, draw };
}

// rewards that come late

function delays() {
  const body = h("div", {});
  const figures = h("dl", { class: "pairs" });
  let last = null;
  const numbers = asTable(() => {
    const { bounds, counts } = last.delays;
    const rows = counts.map((count, k) => ({ count, upper: bounds[k] ?? null, lower: bounds[k - 1] ?? 0 })).filter((each) => each.count > 0);
    return table("Delay of rewards", [
      { title: "Delay", rowHead: true, cell: (each) => (each.upper === null ? `over ${duration(each.lower)}` : `${duration(each.lower)} to ${duration(each.upper)}`) },
      { title: "Rewards", number: true, cell: (each) => integer(each.count) },
    ], rows);
  });
  function draw(live) {
    last = live;
    const count = live.delays.counts.reduce((sum, each) => sum + each, 0);
    put(body, delayBars(live.delays, live.experiment.reward_wait));
    put(
      figures,
      count > 0 && [
        [h("dt", {}, "Half arrive within"), h("dd", {}, duration(quantile(live.delays, 0.5)))],
        [h("dt", {}, "95% arrive within"), h("dd", {}, duration(quantile(live.delays, 0.95)))],
        [h("dt", {}, "Mean"), h("dd", {}, duration(live.delays.total / count))],
      ],
      [h("dt", {}, "The service waits"), h("dd", {}, live.experiment.reward_wait === null ? "for ever" : duration(live.experiment.reward_wait))],
      live.experiment.default_reward !== null && [h("dt", {}, "Then the reward is"), h("dd", {}, number(live.experiment.default_reward))],
    );
    numbers.renew();
  }
  return { element: card("Delay of rewards", { id: "delays", span: "span-5 wide-3", sub: "From the decision to its reward." }, body, h("br"), figures, numbers), draw };
}

// what is proved

function guarantee() {
  const body = h("div", { class: "fields" });
  function draw({ certificate, experiment }) {
    if (certificate) {
      put(
        body,
        certificate.welfare_ratio !== null && h("div", {}, h("div", { class: "big" }, `≤ ${number(certificate.welfare_ratio, 4)}×`), h("p", { class: "muted small" }, "the present welfare: no fixed policy in hindsight has more")),
        h("p", {}, certificate.sentence),
        certificate.regret !== null && h("dl", { class: "pairs" }, h("dt", {}, "Regret at most"), h("dd", {}, number(certificate.regret, 4))),
      );
    } else {
      const text =
        experiment.feedback === "bandit"
          ? "With bandit feedback the guarantee is a bound on the average over the policy’s draws. It does not bound a single run, so there is no certificate for this one."
          : `The policy ${experiment.policy} proves no bound for a single run.`;
      put(body, h("p", { class: "muted" }, text));
    }
  }
  return { element: card("Certificate", { id: "certificate", span: "span-4 wide-3", sub: "What is proved about this run." }, body), draw };
}

// changes

function history() {
  const list = h("ol", { class: "timeline", id: "changes" });
  const more = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => ((all = true), draw(last)) });
  let all = false;
  let last = null;
  let drawn = -1;
  function draw(live) {
    last = live;
    const newest = [...live.changes].reverse();
    if (drawn !== live.changes.length || all) {
      drawn = live.changes.length;
      put(
        list,
        newest.slice(0, all ? undefined : 8).map((each) =>
          h(
            "li",
            { data: { kind: each.kind, position: each.position } },
            h("span", { class: "what" }, changeText(each)),
            h("time", { datetime: each.at, title: fullTime(each.at) }, time(each.at)),
            h("span", { class: "by" }, each.by ? ["by ", label(each.by)] : "author not recorded", ` · position ${integer(each.position)}`),
          ),
        ),
      );
    }
    more.hidden = all || newest.length <= 8;
    setText(more, `Show all ${integer(newest.length)}`);
  }
  return { element: card("Changes", { id: "history", span: "span-4 wide-3", sub: "Who changed what, newest first." }, list, more), draw };
}

// books of periods

function books() {
  const body = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Books of periods" });
  const element = card("Books of periods", { id: "periods", span: "span-4 wide-3", sub: "What each arm earned, period by period." }, body);
  function draw({ experiment }) {
    if (experiment.periods.length === 0) {
      put(body, h("p", { class: "muted" }, "Fairness counts since the experiment was created: there is one period. Start another by hand, or create an experiment with a period such as 7d."));
      return;
    }
    const arms = [...experiment.arms, ...experiment.retired_arms].slice(0, PERIOD_COLUMNS);
    put(
      body,
      table(
        "Rewards by period and arm",
        [
          { title: "Period", rowHead: true, class: "nowrap", cell: (each) => [`${each.number}`, h("div", { class: "muted small" }, each.ended ? `${time(each.started)}` : "now")] },
          { title: "All", number: true, cell: (each) => number(Object.values(each.rewards).reduce((sum, one) => sum + one, 0), 4) },
          ...arms.map((arm) => ({ title: label(arm), number: true, cell: (each) => (arm in each.rewards ? number(each.rewards[arm], 4) : "–") })),
        ],
        [...experiment.periods].reverse(),
      ),
    );
  }
  return { element, draw };
}
