// What fairness costs: the best fixed policy at every alpha, estimated from this experiment's own log.

import { get, may, pageOf, routeOf } from "../api.js";
import { asTable, card, lines } from "../charts.js";
import { h, icon, label, put, s, setText, table } from "../dom.js";
import { ago, alpha as alphaText, duration, fixed, integer, number, percent, sentence } from "../format.js";
import { crumbs, tabs } from "../frame.js";
import { setAlpha } from "../actions.js";

// Alpha from 0 to infinity on a line from 0 to 1, with 1 in the middle.
const toLine = (alpha) => (alpha === "inf" || alpha === Infinity ? 1 : alpha / (1 + alpha));
const fromLine = (at) => (at >= 1 ? Infinity : at / (1 - at));
const TICKS = [0, 0.25, 0.5, 1, 2, 4, Infinity];
const SNAP = 0.012;
const NOW = { w: 28, h: 14 }; // pixels of the word "now"
const REASONS = 3; // of a thin log; more would not be read

export async function show(content, name) {
  crumbs(name, "What if");
  const path = pageOf(name, "what-if.json");
  const status = h("div", { class: "notices", role: "status" });
  const body = h("div", {});
  const { sides } = await get(routeOf(name));
  let source = ""; // whose decisions: empty for the policy's
  const renew = h("button", { type: "button", onclick: () => load({ renew: "true" }) }, "Compute again");
  const whose = h(
    "label",
    { hidden: (sides ?? []).length < 2 },
    "Decisions of ",
    h(
      "select",
      {
        onchange: ({ target }) => {
          source = target.value;
          view = null;
          load();
        },
      },
      (sides ?? []).map((each, k) => h("option", { value: k === 0 ? "" : each.source }, each.source)),
    ),
  );
  put(
    content,
    h(
      "div",
      { class: "view-head" },
      h(
        "div",
        { class: "titles" },
        h("h1", {}, label(name)),
        h(
          "p",
          { class: "lead" },
          "What would other values of α have earned, and how evenly? The best fixed policy at every α, estimated from this experiment’s own log.",
        ),
      ),
      h("div", { class: "acts" }, whose, renew),
    ),
    tabs(name, "what-if"),
    status,
    body,
  );
  let view = null;

  async function load(more = {}) {
    const asked = source;
    const ask = (others) => get(`${path}?${new URLSearchParams({ ...(asked ? { source: asked } : {}), ...others })}`);
    renew.disabled = true;
    let answer = await ask(more);
    for (;;) {
      if (asked !== source) return; // another one was chosen meanwhile
      drawAnswer(answer);
      if (answer.status !== "computing") break;
      await new Promise((resolve) => setTimeout(resolve, 700));
      answer = await ask({});
    }
    renew.disabled = false;
  }

  function drawAnswer(answer) {
    const { curve } = answer;
    const poor = curve && curve.verdict !== "trustworthy";
    put(
      status,
      answer.status !== "ready" &&
        h(
          "p",
          { class: `notice ${answer.status === "failed" ? "bad" : ""}`, data: { status: answer.status } },
          icon(answer.status === "failed" ? "warning" : "info"),
          h("span", {}, answer.sentence),
        ),
      poor &&
        h(
          "div",
          { class: `notice ${curve.verdict === "thin" ? "warn" : "bad"}`, data: { verdict: curve.verdict } },
          icon("warning"),
          h(
            "div",
            {},
            h(
              "strong",
              {},
              curve.verdict === "thin"
                ? "The log is thin: read the bands, not the lines."
                : "Do not use these estimates.",
            ),
            curve.reasons.slice(0, REASONS).map((each) => h("div", {}, sentence(each.replace(/^at alpha = inf/, "at α = ∞").replace(/^at alpha/, "at α")))),
          ),
        ),
    );
    if (!curve) return void put(body);
    if (view === null || view.curve.computed_at !== curve.computed_at) {
      view = curveView(name, answer);
      put(body, view.element);
      view.draw();
    }
  }

  await load();
}

function curveView(name, { curve, present, rewards }) {
  const grid = curve.alphas.map(toLine);
  const measures = [
    { key: "average_reward", title: "Mean reward", format: (value) => number(value), name: "arm-2" },
    { key: "jain_index", title: "Jain’s index", format: (value) => fixed(value, 3), name: "accent" },
    { key: "least_share", title: "Least share", format: (value) => percent(value), name: "arm-1" },
  ];
  const start = present.alpha === null ? 0.5 : toLine(present.alpha);
  let at = start;

  const slider = h("input", {
    type: "range",
    id: "alpha",
    min: 0,
    max: 1,
    step: 0.005,
    "aria-describedby": "alpha-now",
  });
  slider.value = String(start);
  const shown = h("output", { id: "alpha-now", for: "alpha", class: "big" });
  const between = h("span", { class: "muted small" });
  const readout = h("dl", { class: "readout" });
  const act =
    may("admin") &&
    present.alpha !== null &&
    h(
      "button",
      { type: "button", onclick: () => setAlpha(name, () => present, undefined, Number(fromLine(at).toPrecision(2))) },
      "Use this α",
    );
  slider.addEventListener("input", () => {
    const wanted = Number(slider.value);
    const nearest = [...grid, start].reduce(
      (best, each) => (Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best),
      9,
    );
    at = Math.abs(nearest - wanted) < SNAP ? nearest : wanted;
    draw();
  });

  const trade = tradeOff(curve, present);
  const charts = measures.map((measure) => {
    const { value, low, high } = curve[measure.key];
    const chart = lines({
      title: `${measure.title} by α`,
      format: measure.format,
      axisFormat: measure.format,
      range: (least, most) => {
        const room = Math.max((most - least) * 0.15, Math.abs(most) * 0.01, 1e-6);
        return [
          Math.max(measure.key === "average_reward" && least < 0 ? -Infinity : 0, least - room),
          measure.key === "average_reward" ? most + room : Math.min(1, most + room),
        ];
      },
      height: 200,
      bands: [{ series: [2, 3], name: measure.name }],
      linear: {
        title: "α",
        range: [0, 1],
        splits: () => TICKS.map(toLine),
        format: (each) => alphaText(nice(fromLine(each))),
        tip: (each) => `α = ${alphaText(nice(fromLine(each)))}`,
      },
      marks: (plot) => marksOf(plot, measure),
    });
    const element = card(
      measure.title,
      { id: measure.key.replaceAll("_", "-"), span: "span-4" },
      chart.element,
      chart.numbers,
    );
    const draw = () =>
      chart.draw(
        [
          { text: measure.title, name: measure.name, width: 2.5, points: true },
          { text: "upper end of the band", name: measure.name, hidden: true },
          { text: "lower end of the band", name: measure.name, hidden: true },
        ],
        grid,
        [value, high, low],
      );
    return { element, draw, chart };
  });

  /** Where the slider stands, and where the experiment is now. */
  function marksOf(plot, measure) {
    for (const old of plot.over.querySelectorAll(".alpha-mark, .present-mark")) old.remove();
    plot.over.append(h("div", { class: "alpha-mark", style: { left: `${plot.valToPos(at, "x")}px` } }));
    if (present.alpha !== null && present[measure.key] !== null) {
      const top = plot.valToPos(present[measure.key], "y");
      if (top >= -4 && top <= plot.over.clientHeight + 4)
        plot.over.append(
          h("div", {
            class: "present-mark",
            title: `Now: ${measure.format(present[measure.key])}`,
            style: { left: `${plot.valToPos(start, "x")}px`, top: `${top}px` },
          }),
        );
    }
  }

  function draw() {
    const alpha = nice(fromLine(at));
    slider.setAttribute("aria-valuetext", `alpha ${alphaText(alpha)}`);
    setText(shown, `α = ${alphaText(alpha)}`);
    setText(between, grid.some((each) => Math.abs(each - at) < 1e-9) ? "" : "between two computed values");
    const price = priceAt(curve.average_reward, grid, at);
    put(
      readout,
      measures.map((measure) => {
        const band = curve[measure.key];
        const [value, low, high] = [band.value, band.low, band.high].map((column) => interpolated(column, grid, at));
        return h(
          "div",
          { data: { measure: measure.key } },
          h("dt", {}, measure.title),
          h(
            "dd",
            {},
            h("div", { class: "value" }, measure.format(value)),
            h(
              "div",
              { class: "note" },
              low === null ? "the log says nothing here" : `${measure.format(low)} to ${measure.format(high)}`,
            ),
            h(
              "div",
              { class: "note" },
              present[measure.key] === null ? "" : `now ${measure.format(present[measure.key])}`,
            ),
          ),
        );
      }),
      h(
        "div",
        { data: { measure: "price" } },
        h("dt", {}, "Price of fairness"),
        h(
          "dd",
          {},
          h("div", { class: "value" }, price.value),
          price.notes.map((each) => h("div", { class: "note" }, each)),
        ),
      ),
    );
    for (const { chart } of charts) if (chart.chart) chart.chart.redraw(false);
    trade.draw(at, grid);
  }

  const element = h(
    "div",
    { class: "grid" },
    card(
      "Choose an α",
      {
        id: "choose",
        span: "span-6",
        sub: `${percent(curve.confidence, 0)} bands from ${integer(curve.rounds)} rewarded decisions, computed in ${duration(curve.seconds)}, ${ago(curve.computed_at, Date.now() / 1000)}.`,
        aside: act,
      },
      h(
        "div",
        { class: "fields" },
        h("div", { class: "chosen-alpha" }, shown, between),
        h(
          "div",
          { class: "slider" },
          h("label", { class: "visually-hidden", for: "alpha" }, "α"),
          slider,
          h(
            "div",
            { class: "scale", "aria-hidden": "true" },
            TICKS.map((each) => h("span", { style: { "--at": String(toLine(each)) } }, alphaText(each))),
          ),
        ),
        readout,
      ),
    ),
    trade.element,
    charts.map((each) => each.element),
  );
  return {
    element,
    curve,
    rewards,
    draw() {
      for (const chart of charts) chart.draw();
      draw();
    },
  };
}

/** What evenness costs: the part of the reward at α = 0 that is lost. Its band is that of the two bands together. */
function priceAt({ value, low, high }, grid, at) {
  if (at <= grid[0] + 1e-9) return { value: percent(0), notes: ["α = 0 is what others are compared with"] };
  const [reward, least, most] = [value, low, high].map((column) => interpolated(column, grid, at));
  const unclear = { value: "–", notes: ["the log cannot tell"] };
  if (reward === null || !(high[0] > 0)) return unclear;
  const from = low[0] > 0 ? Math.max(0, 1 - most / low[0]) : 0;
  const to = 1 - least / high[0];
  const band = `${percent(from)} to ${percent(to)}`;
  if (from === 0 || reward > value[0]) return { ...unclear, notes: [...unclear.notes, band] };
  return { value: percent(1 - reward / value[0]), notes: [band, "less than at α = 0"] };
}

/** Two digits: a slider is not more exact. */
const nice = (alpha) => (Number.isFinite(alpha) ? Number(alpha.toPrecision(2)) : alpha);

function interpolated(column, grid, at) {
  const above = grid.findIndex((each) => each >= at - 1e-9);
  if (above <= 0) return column[Math.max(0, above)] ?? null;
  if (Math.abs(grid[above] - at) < 1e-9) return column[above];
  const [a, b] = [column[above - 1], column[above]];
  if (a === null || b === null) return null;
  return a + ((b - a) * (at - grid[above - 1])) / (grid[above] - grid[above - 1]);
}

/** Reward against Jain's index: one curve, a point per alpha, the present point beside it. */
function tradeOff(curve, present) {
  const height = 300;
  const pad = { left: 58, right: 18, top: 14, bottom: 40 };
  const svg = s("svg", { class: "trade", role: "img", height });
  const holder = h("div", { class: "plot", style: { height: `${height}px` } }, svg);
  const points = curve.alphas
    .map((alpha, k) => ({ alpha, x: curve.jain_index.value[k], y: curve.average_reward.value[k], k }))
    .filter((each) => each.x !== null && each.y !== null);
  const numbers = asTable(() =>
    table(
      "Price of fairness",
      [
        { title: "α", rowHead: true, cell: (each) => alphaText(each.alpha) },
        { title: "Jain’s index", number: true, cell: (each) => fixed(each.x, 3) },
        { title: "Reward per decision", number: true, cell: (each) => number(each.y) },
        { title: "Least share", number: true, cell: (each) => percent(curve.least_share.value[each.k]) },
      ],
      points,
    ),
  );
  let last = null;

  function draw(at, grid) {
    last = [at, grid];
    const width = holder.clientWidth || 560;
    const known = (column) => column.filter((each) => each !== null);
    const xs = [...points.map((each) => each.x), ...(present.jain_index === null ? [] : [present.jain_index])];
    const ys = [
      ...known(curve.average_reward.low),
      ...known(curve.average_reward.high),
      ...(present.average_reward === null ? [] : [present.average_reward]),
    ];
    const [x0, x1] = spread(Math.min(...xs), Math.min(1, Math.max(...xs)), 1);
    const [y0, y1] = spread(Math.min(...ys), Math.max(...ys), Infinity);
    const px = (x) => pad.left + ((x - x0) / (x1 - x0)) * (width - pad.left - pad.right);
    const py = (y) => height - pad.bottom - ((y - y0) / (y1 - y0)) * (height - pad.top - pad.bottom);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    const path = points.map((each, k) => `${k ? "L" : "M"}${px(each.x).toFixed(1)},${py(each.y).toFixed(1)}`).join("");
    const banded = points.filter((each) => curve.average_reward.low[each.k] !== null);
    const band = [
      ...banded.map((each) => `${px(each.x)},${py(curve.average_reward.high[each.k])}`),
      ...banded.reverse().map((each) => `${px(each.x)},${py(curve.average_reward.low[each.k])}`),
    ].join(" ");
    const chosen = {
      x: interpolated(curve.jain_index.value, grid, at),
      y: interpolated(curve.average_reward.value, grid, at),
    };
    const named = points.filter((each) => [0, 0.5, 1, 2].includes(each.alpha) || each.alpha === "inf");
    const labels = apart(named, px, py);

    /** Where the word "now" lies on nothing else: left of the diamond, or else right, below or above of it. */
    function nowAt() {
      const [x, y] = [px(present.jain_index), py(present.average_reward)];
      const taken = [
        ...labels.map((each) => ({ x: px(each.x) + 7 + 16, y: py(each.y) - 12, w: 32, h: 14 })),
        ...(chosen.x === null || chosen.y === null ? [] : [{ x: px(chosen.x), y: py(chosen.y), w: 20, h: 20 }]),
      ];
      const free = (place) =>
        place.x - NOW.w / 2 > pad.left &&
        place.x + NOW.w / 2 < width &&
        place.y + NOW.h / 2 < height - pad.bottom &&
        taken.every(
          (each) =>
            Math.abs(each.x - place.x) > (each.w + NOW.w) / 2 || Math.abs(each.y - place.y) > (each.h + NOW.h) / 2,
        );
      const places = [
        { x: x - 10 - NOW.w / 2, y },
        { x: x + 10 + NOW.w / 2, y },
        ...[18, 34].flatMap((away) => [-20, 0, -44, 20].flatMap((aside) => [y + away, y - away].map((at) => ({ x: x + aside, y: at })))),
      ];
      const place = places.find(free) ?? places[0];
      return { x: place.x - NOW.w / 2, y: place.y + 4 };
    }

    put(
      svg,
      ticks(y0, y1, 5).map((y) => [
        s("line", { class: "gridline", x1: pad.left, x2: width - pad.right, y1: py(y), y2: py(y) }),
        s("text", { class: "tick end", x: pad.left - 8, y: py(y) + 4 }, number(y)),
      ]),
      ticks(x0, x1, Math.max(3, Math.floor(width / 110))).map((x) =>
        s("text", { class: "tick middle", x: px(x), y: height - pad.bottom + 18 }, fixed(x, 2)),
      ),
      s(
        "text",
        { class: "axis-title middle", x: (pad.left + width - pad.right) / 2, y: height - 4 },
        "Jain’s index: more even →",
      ),
      s("polygon", { class: "band", points: band }),
      s("path", { class: "curve", d: path }),
      points.map((each) =>
        s(
          "circle",
          { class: "point", cx: px(each.x), cy: py(each.y), r: 3 },
          s("title", {}, `α = ${alphaText(each.alpha)}: reward ${number(each.y)}, Jain’s index ${fixed(each.x, 3)}`),
        ),
      ),
      labels.map((each) =>
        s("text", { class: "tick", x: px(each.x) + 7, y: py(each.y) - 8 }, `α ${alphaText(each.alpha)}`),
      ),
      chosen.x !== null &&
        chosen.y !== null &&
        s("circle", { class: "chosen-point", cx: px(chosen.x), cy: py(chosen.y), r: 8 }),
      present.jain_index !== null &&
        present.average_reward !== null &&
        s(
          "g",
          { class: "present" },
          s("rect", {
            x: px(present.jain_index) - 5,
            y: py(present.average_reward) - 5,
            width: 10,
            height: 10,
            transform: `rotate(45 ${px(present.jain_index)} ${py(present.average_reward)})`,
          }),
          s("text", { class: "tick strong now", ...nowAt() }, "now"),
        ),
    );
    svg.setAttribute(
      "aria-label",
      `Reward per decision against Jain’s index. ${points.map((each) => `alpha ${alphaText(each.alpha)}: ${number(each.y)} at ${fixed(each.x, 3)}`).join("; ")}`,
    );
  }
  new ResizeObserver(() => last && draw(...last)).observe(holder);
  return {
    element: card(
      "The price of fairness",
      {
        id: "price",
        span: "span-6",
        sub: "Reward per decision against evenness, a point per α; the diamond is the experiment now, the ring your choice.",
      },
      holder,
      numbers,
    ),
    draw,
  };
}

/** Labels that would lie on each other are left out. */
function apart(points, px, py) {
  const kept = [];
  for (const each of points)
    if (kept.every((other) => Math.hypot(px(other.x) - px(each.x), py(other.y) - py(each.y)) > 34)) kept.push(each);
  return kept;
}

function spread(low, high, most) {
  const room = Math.max((high - low) * 0.12, 0.005);
  return [Math.max(0, low - room), Math.min(most === 1 ? 1.02 : most, high + room)];
}

function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + 1e-12; at += step) found.push(at);
  return found;
}
