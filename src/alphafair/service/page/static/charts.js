// Charts: time series with uPlot, sparklines, and the table behind each of them.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { announce, h, label, put, renew, s, table } from "./dom.js";
import { change as changeText, duration, fullTime, plain, seconds, time } from "./format.js";
import { whenSeen } from "./redraws.js";

// colors

const COLORED = 8; // as many hues as people tell apart; --arm-0 to --arm-7 in style.css
const probe = h("span", { hidden: true });
const resolved = new Map();

/** A color of style.css as a canvas needs it. */
export function color(name) {
  if (!resolved.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    resolved.set(name, getComputedStyle(probe).color);
  }
  return resolved.get(name);
}

/** The same color, more transparent. */
export const faded = (name, part) =>
  color(name).replace(/^rgb\((.*)\)$/, (_, inner) => `rgb(${inner.replaceAll(",", " ")} / ${part})`);

/**
 * The color of every arm or group. Up to eight have one each, in their order; of more, the seven with the most weight
 * when they are first seen, and all others share a gray, so that no color changes its meaning while one looks.
 */
export function colorOf(labels, weights) {
  const chosen =
    labels.length <= COLORED
      ? labels
      : labels
          .map((each, k) => [weights[k] ?? 0, k])
          .sort((a, b) => b[0] - a[0] || a[1] - b[1])
          .slice(0, COLORED - 1)
          .map(([, k]) => labels[k]);
  return new Map(chosen.map((each, k) => [each, `arm-${k}`]));
}

const drawn = new Set();

function themeChanged() {
  resolved.clear();
  for (const chart of drawn) chart.redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
new MutationObserver(themeChanged).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// parts of a card

/** A card with a heading, a line below it, something on the right of the heading, and a body. */
export function card(title, { sub, aside, id, span = "" } = {}, ...body) {
  const heading = h("h2", { id: id && `${id}-title` }, title);
  return h(
    "section",
    { class: `card ${span}`, id, "aria-labelledby": id && `${id}-title` },
    h("header", {}, heading, aside, sub && h("p", { class: "sub" }, sub)),
    ...body,
  );
}

/** Buttons of which one is pressed. */
export function segments(name, choices, chosen, onchoose) {
  const group = h("div", { class: "segments", role: "group", "aria-label": name });
  const buttons = choices.map(([value, text]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === chosen),
        onclick: () => {
          for (const [k, button] of buttons.entries())
            button.setAttribute("aria-pressed", String(choices[k][0] === value));
          onchoose(value);
        },
      },
      text,
    ),
  );
  return put(group, buttons);
}

/** The choice between the current period and everything; hidden where there was never more than one period. */
export function sinceChoice(onchoose) {
  const element = segments(
    "Counted",
    [
      [true, "This period"],
      [false, "Since the start"],
    ],
    true,
    onchoose,
  );
  return { element, show: (live) => (element.hidden = live.period_shares === null) };
}

/** The numbers of a chart as a table, built when it is opened and kept up to date while it is open. */
export function asTable(build) {
  const holder = h("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "The numbers of this chart",
  });
  const details = h(
    "details",
    { class: "as-table", ontoggle: () => details.open && renew(holder, build()) },
    h("summary", {}, "Show as table"),
    holder,
  );
  details.renew = () => details.open && renew(holder, build());
  return details;
}

export function legend(entries) {
  return h(
    "ul",
    { class: "legend" },
    entries.map(({ text, name, faint, kind = "line" }) =>
      h(
        "li",
        {},
        h("span", {
          class: `key ${kind} ${faint ? "faint" : ""}`,
          style: { "--color": `var(--${name})` },
          "aria-hidden": "true",
        }),
        label(text),
      ),
    ),
  );
}

// charts over time

const FONTS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
const SHORTEST = 20; // seconds on the axis of time
const ROWS = 240; // of the table of a chart: more would only slow down a screen reader
const READ = 4; // lines that are read to a screen reader at a moment

/** Pixels of a length in design pixels: canvases grow with the letters around them, as on a 4K screen. */
const scaled = (length) => (length * parseFloat(getComputedStyle(document.documentElement).fontSize)) / 16;

/**
 * A chart of lines, with changes marked. Lines: {text, name (of a color), width, dash, fill (where the axis starts at
 * 0), faint, steps (up to each x), hideTip, gap (how much of x without values a line spans; default: any)}.
 * `draw(x, columns, changes)` shows new data. Options: format, range(min, max), height (the least; a chart fills its
 * card), sync, empty, xFormat, xTitle, bands, scale (of x, not time).
 */
export function lines(options) {
  const { format, height = 220, sync, empty = "No data yet.", linear = null } = options;
  const plot = h("div", {
    class: "plot chart",
    role: "img",
    tabindex: "0",
    "aria-label": options.title,
    style: { "--height": `${height / 16}rem` },
  });
  const nothing = h("p", { class: "nothing" }, empty);
  const tip = h("div", { class: "tip", hidden: true });
  const numbers = asTable(() => numbersOf());
  let chart = null;
  let specification = [];
  let shown = null; // what was last drawn, as JSON
  let painted = null; // the specification that the chart was built from, as JSON
  let data = [[]];
  let changes = [];
  let letters = 0; // their size when the chart was built
  let pinned = null; // the x that is read with the keyboard

  function numbersOf() {
    const [x, ...columns] = data;
    const stride = Math.max(1, Math.ceil(x.length / ROWS));
    const picked = x
      .map((_, k) => k)
      .filter((k) => (x.length - 1 - k) % stride === 0 && columns.some((column) => column[k] !== null));
    if (!linear) picked.reverse();
    return table(
      options.title,
      [
        {
          title: linear ? linear.title : "Time",
          cell: (k) => (linear ? linear.format(x[k], k) : time(x[k])),
          rowHead: true,
        },
        ...specification.map((line, column) => ({
          title: label(line.text),
          number: true,
          cell: (k) => format(columns[column][k]),
        })),
      ],
      picked,
    );
  }

  function build() {
    chart?.destroy();
    drawn.delete(chart);
    letters = scaled(12);
    const axis = {
      stroke: () => color("ink-3"),
      font: `${letters}px ${FONTS}`,
      grid: { stroke: () => color("grid"), width: 1 },
      ticks: { show: false },
    };
    chart = new uPlot(
      {
        width: plot.clientWidth || 600,
        height: plot.clientHeight || scaled(height),
        padding: [scaled(10), scaled(22), 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 }, sync: sync && { key: sync } },
        scales: {
          x: linear
            ? { time: false, range: linear.range }
            : { time: true, range: (_, low, high) => (high - low < SHORTEST ? [low, low + SHORTEST] : [low, high]) },
          y: { range: (_, low, high) => options.range(...(options.settle ? settled(low, high) : [low, high])) },
        },
        axes: [
          {
            ...axis,
            space: linear
              ? scaled(30)
              : (_, __, low, high, width) =>
                  scaled(high - low > 36000 ? 96 : (scaled(44) * (high - low)) / width > 30 ? 44 : 74), // seconds are longer
            ...(linear
              ? { splits: linear.splits, values: (_, at) => at.map((each) => linear.format(each)) }
              : { values: TIME_VALUES }),
            gap: scaled(6),
            size: scaled(30),
          },
          {
            ...axis,
            size: scaled(54),
            gap: scaled(6),
            space: scaled(32),
            values: (_, at) => at.map((each) => (options.axisFormat ?? plain)(each)),
          },
        ],
        series: [
          {},
          ...specification.map((line) => ({
            label: line.text,
            stroke: line.hidden ? "transparent" : () => (line.faint ? faded(line.name, 0.4) : color(line.name)),
            width: line.hidden ? 0 : (line.width ?? 2),
            dash: line.dash,
            fill: line.fill ? (self) => (self.scales.y.min === 0 ? faded(line.name, 0.13) : "transparent") : undefined,
            points: {
              show: line.points ?? ((plot) => plot.data[0].length < 4),
              size: 6,
              fill: () => color(line.name),
            },
            paths: line.steps ? uPlot.paths.stepped({ align: -1 }) : undefined,
            spanGaps: line.gap === undefined,
            gaps: (self, _, __, ___, found) => {
              const span = line.gap === undefined ? 0 : devicePixelRatio * (self.valToPos(line.gap, "x") - self.valToPos(0, "x"));
              return found.filter(([from, to]) => to - from > span);
            },
          })),
        ],
        bands: (options.bands ?? []).map(({ series, name }) => ({ series, fill: () => faded(name, 0.16) })),
        hooks: { setCursor: [showTip], drawClear: [marks], draw: [point], setSize: [marks] },
      },
      data,
      plot,
    );
    drawn.add(chart);
    chart.over.append(tip);
    options.ready?.(chart);
  }

  /** The extremes without the first twentieth, where few rewards make wild shares. */
  function settled(low, high) {
    const from = Math.floor(data[0].length / 20);
    if (from < 2) return [low, high];
    let [least, most] = [Infinity, -Infinity];
    for (const column of data.slice(1)) {
      for (let k = from; k < column.length; k += 1) {
        if (column[k] === null) continue;
        least = Math.min(least, column[k]);
        most = Math.max(most, column[k]);
      }
    }
    return most < least ? [low, high] : [least, most];
  }

  function marks() {
    if (!chart) return;
    for (const old of chart.over.querySelectorAll(".change-mark")) old.remove();
    const width = chart.over.clientWidth;
    for (const change of changes) {
      const left = chart.valToPos(seconds(change.at), "x");
      if (left >= -1 && left <= width + 1)
        chart.over.prepend(
          h("div", { class: "change-mark", style: { left: `${left}px` }, data: { kind: change.kind } }),
        );
    }
    options.marks?.(chart);
  }

  function showTip() {
    const { idx, left, top } = chart.cursor;
    if (idx === null || idx === undefined || left < 0) {
      tip.hidden = true;
      return;
    }
    const reach = (chart.scales.x.max - chart.scales.x.min) * (6 / Math.max(1, chart.over.clientWidth));
    const at = chart.posToVal(left, "x");
    const near = changes.filter((each) => Math.abs(seconds(each.at) - at) <= reach).slice(0, 4);
    const rows = specification
      .map((line, k) => ({ line, value: data[k + 1][idx] }))
      .filter(({ line, value }) => !line.hideTip && value !== null && value !== undefined);
    if (options.sortTip) rows.sort((a, b) => b.value - a.value);
    const more = rows.length - 9;
    put(
      tip,
      h("div", { class: "when" }, linear ? linear.tip(data[0][idx], idx) : fullTime(data[0][idx])),
      rows
        .slice(0, 9)
        .map(({ line, value }) =>
          h(
            "div",
            { class: "row" },
            h("span", { class: "key mark", style: { "--color": `var(--${line.name})` } }),
            label(line.text),
            h("b", {}, format(value)),
          ),
        ),
      more > 0 && h("div", { class: "when" }, `and ${more} more`),
      near.map((each) => h("div", { class: "change" }, changeText(each))),
    );
    tip.hidden = false;
    const over = chart.over;
    const x = left + 16 + tip.offsetWidth > over.clientWidth ? left - 16 - tip.offsetWidth : left + 16;
    const y = Math.max(0, Math.min((top < 0 ? 0 : top) - 20, over.clientHeight - tip.offsetHeight));
    tip.style.transform = `translate(${Math.max(-40, x)}px, ${y}px)`;
  }

  new ResizeObserver(() => {
    if (!chart || !plot.clientWidth) return;
    if (letters !== scaled(12)) build();
    else if (plot.clientWidth !== chart.width || plot.clientHeight !== chart.height)
      chart.setSize({ width: plot.clientWidth, height: plot.clientHeight });
  }).observe(plot);

  const paint = whenSeen(plot, () => {
    const lines = JSON.stringify(specification);
    if (chart && lines === painted) chart.setData(data);
    else build();
    painted = lines;
  });

  /** Point at the moment that is read with the keyboard: new data must not move it. */
  function point() {
    if (pinned !== null && chart) chart.setCursor({ left: chart.valToPos(pinned, "x"), top: scaled(30) });
  }

  /** What the chart shows at a moment, in words. */
  function reading(k) {
    const values = specification
      .map((line, column) => ({ line, value: data[column + 1][k] }))
      .filter(({ line, value }) => !line.hideTip && value !== null && value !== undefined);
    const near = changes.filter((each) => !linear && seconds(each.at) > (data[0][k - 1] ?? 0) && seconds(each.at) <= data[0][k]);
    return [
      linear ? linear.tip(data[0][k], k) : time(data[0][k]),
      ...values.slice(0, READ).map(({ line, value }) => `${line.text} ${format(value)}`),
      values.length > READ && `and ${values.length - READ} more`,
      ...near.map(changeText),
    ]
      .filter(Boolean)
      .join(", ");
  }

  const unpin = () => (pinned = null);
  plot.addEventListener("pointermove", unpin);
  plot.addEventListener("blur", () => {
    if (pinned !== null) chart?.setCursor({ left: -10, top: -10 });
    unpin();
  });

  plot.addEventListener("keydown", (event) => {
    if (!chart || !["ArrowLeft", "ArrowRight", "Home", "End", "Escape"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "Escape") {
      unpin();
      return void chart.setCursor({ left: -10, top: -10 });
    }
    const last = data[0].length - 1;
    const now = pinned !== null ? nearest(data[0], pinned) : chart.cursor.left >= 0 ? (chart.cursor.idx ?? last) : last;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
    const at = Math.min(last, Math.max(0, to));
    pinned = data[0][at];
    point();
    announce(reading(at));
  });

  return {
    element: plot,
    numbers,
    get chart() {
      return chart;
    },
    /** Show columns of numbers, if they differ from those shown. Lines may change: the chart is then built again. */
    draw(newLines, x, columns, newChanges = []) {
      const given = JSON.stringify([newLines, x, columns, newChanges]);
      if (given === shown) return;
      shown = given;
      specification = newLines;
      data = [x, ...columns];
      if (x.length === 1 && !linear) data = [[x[0] - 1, x[0]], ...columns.map((column) => [null, column[0]])]; // uPlot would show years
      changes = newChanges;
      plot.dataset.points = x.length;
      if (x.length === 0) {
        if (!nothing.isConnected) plot.append(nothing);
      } else {
        nothing.remove();
        paint();
        plot.dataset.last = columns.length ? String(columns[0].at(-1)) : "";
      }
      numbers.renew();
    },
    /** Say why there is nothing to show. */
    explain(text) {
      nothing.textContent = text;
    },
    /** Say in words what the chart shows, for screen readers. */
    describe(text) {
      plot.setAttribute("aria-label", `${options.title}. ${text}`);
    },
  };
}

/** The place of the value that is nearest to one; values increase. */
function nearest(values, wanted) {
  const after = values.findIndex((each) => each >= wanted);
  if (after <= 0) return after < 0 ? values.length - 1 : 0;
  return wanted - values[after - 1] < values[after] - wanted ? after - 1 : after;
}

// Times below an axis, by the distance between marks.
const TIME_VALUES = [
  [3600 * 24 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24 * 28, "{MMM} {YYYY}", null, null, null, null, null, null, 1],
  [3600 * 24, "{D} {MMM}", null, null, null, null, null, null, 1],
  [3600, "{D} {MMM} {HH}:{mm}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
  [0.001, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];

// small pictures

/** An area over time, without axes: for a glance. */
export function sparkline(values, title) {
  const width = 240;
  const height = 48;
  const most = Math.max(...values, 1e-9);
  const points = values.map(
    (value, k) =>
      `${((k * width) / Math.max(1, values.length - 1)).toFixed(1)},${(height - 1.5 - (value / most) * (height - 4)).toFixed(1)}`,
  );
  return s(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": title,
    },
    s("line", { class: "base", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
    s("polygon", { class: "area", points: `0,${height} ${points.join(" ")} ${width},${height}` }),
    s("polyline", { class: "stroke", points: points.join(" ") }),
  );
}

/** The parts of a histogram of delays, the empty ones between others included. */
export const delayRows = ({ edges, counts }) =>
  counts.map((count, k) => {
    const [lower, upper] = [edges[k], edges[k + 1]];
    const text = upper === null ? `longer than ${duration(lower)}` : `${duration(lower)} to ${duration(upper)}`;
    return { count, lower, upper, text };
  });

/** A histogram of delays with logarithmic bounds. */
export function delayBars(delays, wait) {
  const shown = delayRows(delays);
  const total = shown.reduce((sum, each) => sum + each.count, 0);
  if (total === 0) return h("p", { class: "muted" }, "No reward has arrived yet.");
  const most = Math.max(...delays.counts);
  const stride = Math.ceil(shown.length / 5);
  return h(
    "div",
    {},
    h(
      "div",
      {
        class: "bars",
        role: "img",
        "aria-label": `Delay of rewards: ${shown.map((each) => `${each.text}: ${each.count}`).join(", ")}`,
      },
      shown.map((each) =>
        h(
          "div",
          {
            class: `col ${wait && each.upper && each.upper > wait ? "late" : ""}`,
            title: `${each.text}: ${each.count} (${((100 * each.count) / total).toFixed(1)}%)`,
          },
          h("i", { style: { "--part": String(each.count / most) } }),
        ),
      ),
    ),
    h(
      "div",
      { class: "bar-axis", "aria-hidden": "true" },
      shown.map((each, k) =>
        h("span", {}, k % stride === 0 ? (each.upper === null ? `> ${duration(each.lower)}` : duration(each.upper)) : ""),
      ),
    ),
  );
}

/** A quantile of a histogram: the upper bound of the part that contains it. */
export function quantile(delays, part) {
  const total = delays.counts.reduce((sum, each) => sum + each, 0);
  let reached = 0;
  for (const [k, count] of delays.counts.entries()) {
    reached += count;
    if (total > 0 && reached >= part * total) return delays.edges[k + 1];
  }
  return null;
}
