// Cards of one experiment with charts over time: fairness, reward and traffic, shares.

import { card, legend, lines, segments, sinceChoice } from "./charts.js";
import { h, renew, setText } from "./dom.js";
import { compact, duration, fixed, integer, number, percent, plain, plural } from "./format.js";
import { cumulativeShares, entitledAt, held, movingMean, reach, times, upToNow } from "./series.js";

const GRAY_LINES = 40; // arms without a color that still get a thin line

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
    const column = held(upToNow(live, live.series[shown], null));
    const from = column.findIndex((each) => each !== null);
    chart.draw(
      [{ text: shown === "jain_index" ? "Jain’s index" : "Welfare", name: "accent", fill: true }],
      from < 0 ? [] : x.slice(from),
      [from < 0 ? [] : column.slice(from)],
      live.changes,
    );
    chart.describe(from < 0 ? "No data yet." : `Now ${number(column.at(-1), 4)}.`);
    const { policy, accounts } = live.experiment;
    const counts = Object.keys(accounts).length > 0;
    chart.explain(
      counts
        ? "Fairness is shown from the first reward on."
        : shown === "welfare"
          ? `The policy ${policy} keeps no accounts, so there is no welfare.`
          : live.experiment.rewards + live.experiment.defaulted > 0
            ? "Jain’s index needs rewards that are not negative, and some that are positive."
            : "Fairness is shown from the first reward on.",
    );
    setText(
      sub,
      counts
        ? "How evenly accounts stand, 1 being as entitled. Dashed lines mark changes."
        : `How evenly rewards are shared, 1 being as entitled: the policy ${policy} keeps no accounts.`,
    );
  }
  const sub = h("span", {});
  const element = card(
    "Fairness",
    { id: "fairness", span: "span-6 wide-4", sub, aside: choice },
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
      const n = reach(series.rewards.length);
      const mean = upToNow(live, movingMean(series.reward_sums, series.rewards, n), null);
      const means = series.rewards.map((count, k) => (count > 0 ? series.reward_sums[k] / count : null));
      const raw = upToNow(live, means, null);
      const any = raw.some((each) => each !== null);
      const width = duration(n * series.width);
      const named = [
        { text: `Mean of ${width}`, name: "arm-2", width: 2.5, gap: 0 }, // it covers silences of that length itself
        {
          text: `Each ${series.width === 1 ? "second" : duration(series.width)}`,
          name: "arm-2",
          width: 1,
          faint: true,
          gap: n * series.width,
        },
      ];
      chart.draw(named, any ? x : [], any ? [mean, raw] : [[], []], live.changes);
      chart.describe(any ? `Mean reward of late ${number(mean.findLast((each) => each !== null))}.` : "No data yet.");
      renew(key, any && legend(named));
    } else {
      const perSecond = (column) =>
        upToNow(
          live,
          column.map((each) => each / series.width),
          0,
        );
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
      renew(key, legend(named));
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
  let period = true;
  let last = null;
  const chart = lines({
    title: "Shares over time",
    format: (value) => percent(value),
    axisFormat: (value) => `${plain(100 * value)}%`,
    range: (_, high) => [0, Math.min(1, Math.max(0.05, (high ?? 1) * 1.1))],
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
  const since = sinceChoice((value) => ((period = value), draw(...last)));
  const sub = h("span", {});
  function draw(live, colors) {
    last = [live, colors];
    since.show(live);
    const inPeriod = period && live.period_shares !== null;
    const shares = inPeriod ? live.period_shares : live.shares;
    setText(sub, `Of everything ${inPeriod ? "in this period" : "since the start"}, up to each moment.`);
    const started = inPeriod ? live.books.at(-1).started : -Infinity;
    const begin = Math.max(0, Math.floor((started - live.series.start) / live.series.width));
    const arms = (rows) => rows.map((row) => upToNow(live, row, 0).slice(begin));
    const series = { arms: live.series.arms, [shown]: arms(live.series[shown]) };
    const rank = (each) => (colors.has(each.label) ? 1 : 0);
    const kept = [...shares].sort((a, b) => rank(a) - rank(b)).slice(-GRAY_LINES - colors.size); // colored lines are drawn last, on top
    const row = new Map(series.arms.map((arm, k) => [arm, k]));
    const membersOf = (each) => each.arms.map((arm) => row.get(arm)).filter((k) => k !== undefined);
    const every = cumulativeShares(series[shown], shares.map(membersOf));
    const place = new Map(shares.map((each, k) => [each.label, k]));
    const columns = kept.map((each) => every[place.get(each.label)]);
    const x = times(live).slice(begin);
    const from = columns.length ? columns[0].findIndex((each) => each !== null) : -1;
    const named = kept.map((each) => ({
      text: each.label,
      name: colors.get(each.label) ?? "arm-other",
      width: colors.has(each.label) ? 2 : 1,
      faint: !colors.has(each.label),
      hideTip: !colors.has(each.label),
    }));
    const after = x.slice(Math.max(0, from));
    const entitled = dueLines(after, shares, colors);
    if (from < 0) chart.draw([], [], [], live.changes);
    else
      chart.draw(
        [...named, ...entitled.map(([line]) => line)],
        after,
        [...columns.map((each) => each.slice(from)), ...entitled.map(([, column]) => column)],
        live.changes,
      );
    chart.describe(
      shares.length <= 12
        ? shares
            .map((each) => `${each.label} ${percent(shown === "arm_decisions" ? each.decisions : each.rewards)}`)
            .join(", ")
        : `${shares.length} lines.`,
    );
    const gray = shares.length - [...colors.keys()].length;
    renew(
      key,
      from >= 0 &&
        legend([
          ...shares
            .filter((each) => colors.has(each.label))
            .map((each) => ({ text: each.label, name: colors.get(each.label) })),
          ...(gray > 0 ? [{ text: plural(gray, "other"), name: "arm-other" }] : []),
          ...(entitled.length > 0 ? [{ text: "Entitled", name: "ink-2", kind: "dashed" }] : []),
        ]),
    );
  }
  const element = card(
    "Shares over time",
    {
      id: "shares-over-time",
      span: "span-6 wide-4",
      sub,
      aside: h("div", { class: "asides" }, since.element, choice),
    },
    chart.element,
    key,
    chart.numbers,
  );
  return { element, draw };
}

/** One dashed line where all are entitled to the same, else one for each that has a color. */
function dueLines(x, shares, colors) {
  const column = entitledAt(x, shares);
  const dashed = { width: 1.5, dash: [5, 4], hideTip: true, steps: true, gap: 0 };
  if (new Set(shares.map((each) => each.entitlement)).size === 1) {
    const all = shares.map(column);
    const value = x.map((_, k) => all.find((each) => each[k] !== null)?.[k] ?? null);
    return [[{ text: "Entitled", name: "ink-2", ...dashed, hideTip: false }, value]];
  }
  return shares
    .filter((each) => colors.has(each.label))
    .map((each) => [{ text: `Entitled: ${each.label}`, name: colors.get(each.label), ...dashed }, column(each)]);
}

// sides: the policy beside the incumbent

const COLORS = ["accent", "arm-5", "arm-2", "arm-3", "arm-4", "arm-6", "arm-7", "arm-8", "arm-9"];
const inPercent = (value) => `${plain(Math.round(1000 * value) / 10)}%`;
const span = ({ value, low, high }, text, unit = "") =>
  `${text(value)}${unit}${low === null ? "" : ` (${text(low)} to ${text(high)})`}`;
const turned = ({ value, low, high }, by) => ({ value: by(value), low: low === null ? null : by(high), high: low === null ? null : by(low) });

/** What the sides say, in a sentence or two. */
export function sidesSentence({ mode, share, sides, share_seen: seen }) {
  const [ours, ...others] = sides;
  const theirs = others.find((each) => each.source === "incumbent");
  const who = { live: "All visitors", watch: "No visitors yet", share: `${inPercent(share ?? 0)} of visitors` }[mode];
  const parts = [];
  if (mode === "watch") {
    const count = theirs ? plural(theirs.rewarded, "rewarded decision") : "no decisions";
    parts.push(`The policy watches: it has ${count} of the incumbent to learn from, and decides nothing.`);
  } else if (ours.mean_reward === null) parts.push(`${who}: no rewards yet.`);
  else if (!theirs?.against_policy) parts.push(`${who}: ${number(ours.mean_reward.value)} per decision.`);
  else {
    const { mean_reward: mean, welfare_ratio: ratio } = theirs.against_policy;
    const isLess = mean.value > 0;
    const more = isLess ? mean : turned(mean, (x) => -x);
    const times = ratio === null ? "" : `; welfare ${span(turned(ratio, (x) => 1 / x), (x) => number(x, 2), " times")}`;
    const known = mean.low === null ? ", too few visitors for an interval" : "";
    parts.push(
      `${who}: ${number(ours.mean_reward.value)} per decision, ${span(more, number)} ${isLess ? "less" : "more"} than beside it${times}${known}.`,
    );
  }
  if (seen && seen.low !== null && (share < seen.low || share > seen.high))
    parts.push(
      `The share is seen as ${span(seen, inPercent)}, not ${inPercent(share)}: decisions of a side are lost, or its visitors come more often.`,
    );
  return parts.join(" ");
}

const SINCE = "Since the mode or the share changed, with 95% intervals that hold at every look:";

export function sides(buttons) {
  const chart = lines({
    title: "Mean reward of both sides over time",
    format: (value) => number(value),
    range: padded,
    sync: "time",
    empty: "The first reward has not arrived yet.",
  });
  const said = h("p", { class: "muted", data: { fact: "sides" } });
  const key = h("div", {});
  const rows = h("tbody");
  const acts = h("div", { class: "asides acts" });
  const table = h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h("caption", { class: "visually-hidden" }, "Decisions and rewards of every side"),
      h(
        "thead",
        {},
        h("tr", {}, ["Side", "Decisions", "Mean reward", "Welfare", "Jain’s index", "Least share"].map((each) => h("th", { scope: "col" }, each))),
      ),
      rows,
    ),
  );
  function draw(live) {
    const { experiment, series } = live;
    element.hidden = experiment.sides === null;
    if (element.hidden) return;
    setText(said, sidesSentence(experiment));
    const n = reach(series.rewards.length);
    const columns = [
      upToNow(live, movingMean(series.reward_sums, series.rewards, n), null),
      ...series.sources.map((_, k) => upToNow(live, movingMean(series.source_reward_sums[k], series.source_rewards[k], n), null)),
    ];
    const named = ["policy", ...series.sources].map((text, k) => ({ text, name: COLORS[k % COLORS.length], width: 2, gap: 0 }));
    const any = columns.some((column) => column.some((each) => each !== null));
    chart.draw(named, any ? times(live) : [], any ? columns : columns.map(() => []), live.changes);
    chart.describe(said.textContent);
    renew(key, any && legend(named));
    const cell = (interval, text) => h("td", { class: "num" }, interval === null ? "–" : span(interval, text));
    renew(
      rows,
      experiment.sides.filter((side, k) => k === 0 || side.decisions > 0).map((side) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, side.source),
          h("td", { class: "num" }, integer(side.decisions)),
          cell(side.mean_reward, number),
          cell(side.welfare, (value) => number(value, 4)),
          cell(side.jain_index, (value) => fixed(value, 3)),
          h("td", { class: "num" }, side.least_share === null ? "–" : percent(side.least_share)),
        ),
      ),
    );
    renew(acts, buttons(experiment));
  }
  const element = card(
    "Sides",
    { id: "sides", span: "span-12 wide-8", sub: said, aside: acts },
    chart.element,
    key,
    h("p", { class: "muted" }, SINCE),
    table,
    chart.numbers,
  );
  element.hidden = true;
  return { element, draw };
}

function padded(low, high) {
  if (low === null || low === undefined) return [0, 1];
  const room = Math.max((high - low) * 0.12, Math.abs(high) * 0.02, 1e-9);
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}
