// Cards of one experiment with charts over time: fairness, reward and traffic, shares.

import { card, legend, lines, segments } from "./charts.js";
import { h, put } from "./dom.js";
import { compact, duration, fixed, integer, number, percent, plural } from "./format.js";
import { cumulativeShares, held, movingMean, reach, times } from "./series.js";

const GREY_LINES = 40; // arms without a colour that still get a thin line

export function fairness() {
  let shown = "jain_index";
  let last = null;
  const chart = lines({
    title: "Fairness over time",
    format: (value) => (shown === "jain_index" ? fixed(value, 3) : number(value, 4)),
    axisFormat: (value) => (shown === "jain_index" ? fixed(value, 2) : compact(value)),
    range: (low, high) =>
      shown === "jain_index" ? [Math.max(0, Math.min(0.9, Math.floor(10 * (low ?? 0)) / 10)), 1] : padded(low, high),
    sync: "time",
    empty: "Fairness is shown from the first reward on.",
  });
  const choice = segments(
    "Measure of fairness",
    [
      ["jain_index", "Jain’s index"],
      ["welfare", "Welfare"],
    ],
    shown,
    (value) => {
      shown = value;
      if (last) draw(last);
    },
  );
  function draw(live) {
    last = live;
    const x = times(live);
    const column = held(live.series[shown]);
    const from = column.findIndex((each) => each !== null);
    chart.draw(
      [{ text: shown === "jain_index" ? "Jain’s index" : "Welfare", name: "accent", fill: true }],
      from < 0 ? [] : x.slice(from),
      [from < 0 ? [] : column.slice(from)],
      live.changes,
    );
    chart.describe(from < 0 ? "No data yet." : `Now ${number(column.at(-1), 4)}.`);
  }
  const element = card(
    "Fairness",
    {
      id: "fairness",
      span: "span-6 wide-4",
      sub: "How evenly accounts stand, 1 being as entitled. Dashed lines mark changes.",
      aside: choice,
    },
    chart.element,
    chart.numbers,
  );
  return { element, draw };
}

export function earnings() {
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
  const choice = segments(
    "What is shown",
    [
      ["reward", "Reward"],
      ["traffic", "Traffic"],
    ],
    shown,
    (value) => {
      shown = value;
      if (last) draw(last);
    },
  );
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
        {
          text: `Each ${series.width === 1 ? "second" : duration(series.width)}`,
          name: "arm-2",
          width: 1,
          faint: true,
        },
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
      chart.draw(
        named,
        x,
        [perSecond(series.decisions), perSecond(series.rewards), perSecond(series.expired)],
        live.changes,
      );
      chart.describe(`${integer(series.decisions.at(-1) ?? 0)} decisions in the last ${duration(series.width)}.`);
      put(key, legend(named));
    }
  }
  const element = card(
    "Reward per decision",
    { id: "reward", span: "span-6 wide-4", aside: choice, sub: "What decisions earn when their reward arrives." },
    chart.element,
    key,
    chart.numbers,
  );
  return { element, draw };
}

export function sharesOverTime() {
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
  const choice = segments(
    "Share of",
    [
      ["arm_reward_sums", "Reward"],
      ["arm_decisions", "Decisions"],
    ],
    shown,
    (value) => {
      shown = value;
      if (last) draw(...last);
    },
  );
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
    const named = kept.map((each) => ({
      text: each.label,
      name: colours.get(each.label) ?? "arm-other",
      width: colours.has(each.label) ? 2 : 1,
      faint: !colours.has(each.label),
      hideTip: !colours.has(each.label),
    }));
    const entitled = dueLines(shares, due, colours);
    const after = x.slice(Math.max(0, from));
    if (from < 0) chart.draw([], [], [], live.changes);
    else
      chart.draw(
        [...named, ...entitled],
        after,
        [...columns.map((each) => each.slice(from)), ...entitled.map((each) => after.map(() => each.value))],
        live.changes,
      );
    chart.describe(
      shares.length <= 12
        ? shares
            .map((each) => `${each.label} ${percent(shown === "arm_decisions" ? each.decisions : each.rewards)}`)
            .join(", ")
        : `${shares.length} lines.`,
    );
    const grey = shares.length - [...colours.keys()].length;
    put(
      key,
      legend([
        ...shares
          .filter((each) => colours.has(each.label))
          .map((each) => ({ text: each.label, name: colours.get(each.label) })),
        ...(grey > 0 ? [{ text: plural(grey, "other"), name: "arm-other" }] : []),
        ...(entitled.length > 0 ? [{ text: "Entitled", name: "ink-2", kind: "dashed" }] : []),
      ]),
    );
  }
  const element = card(
    "Shares over time",
    { id: "shares-over-time", span: "span-6 wide-4", sub: "Of everything earned up to each moment.", aside: choice },
    chart.element,
    key,
    chart.numbers,
  );
  return { element, draw };
}

/** One dashed line where all are entitled to the same, else one for each that has a colour. */
function dueLines(shares, due, colours) {
  const dashed = { width: 1.5, dash: [5, 4], hideTip: true };
  if (due.length === 1) return [{ text: "Entitled", name: "ink-2", value: due[0], ...dashed, hideTip: false }];
  return shares
    .filter((each) => each.live && colours.has(each.label))
    .map((each) => ({
      text: `Entitled: ${each.label}`,
      name: colours.get(each.label),
      value: each.entitled,
      ...dashed,
    }));
}

function padded(low, high) {
  if (low === null || low === undefined) return [0, 1];
  const room = Math.max((high - low) * 0.12, Math.abs(high) * 0.02, 1e-9);
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}
