// Who gets what: the share of decisions and of reward of every arm or group against what it is entitled to.

import { segments } from "./charts.js";
import { h, label, setText } from "./dom.js";
import { integer, number, percent } from "./format.js";

const FEW = 12; // rows before "show all"

/** A table of bars that keeps its rows, and changes only what differs. */
export function sharesTable() {
  const body = h("tbody");
  const more = h("button", { type: "button", class: "quiet", onclick: () => ((all = !all), draw(...last)) });
  const order = segments(
    "Order",
    [
      ["most", "Most first"],
      ["least", "Least first"],
    ],
    "most",
    (value) => ((first = value), draw(...last)),
  );
  const foot = h("div", { class: "shares-foot" }, more, order);
  const unit = h("th", { scope: "col", class: "who" }, "Arm");
  const element = h(
    "div",
    {},
    h(
      "table",
      { class: "shares" },
      h("caption", { class: "visually-hidden" }, "Shares of reward and of decisions against entitlements"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          unit,
          h("th", { scope: "col" }, "Share of reward"),
          h("th", { scope: "col" }, "Share of decisions"),
        ),
      ),
      body,
    ),
    foot,
  );
  const rows = new Map();
  let all = false;
  let first = "most";
  let last = [];

  function draw(kind, shares, colors) {
    last = [kind, shares, colors];
    setText(unit, kind);
    const sign = first === "most" ? 1 : -1;
    const sorted =
      shares.length > FEW ? [...shares].sort((a, b) => sign * ((b.rewards ?? 0) - (a.rewards ?? 0))) : shares;
    const shown = all ? sorted : sorted.slice(0, FEW);
    const scale =
      1.08 * Math.max(1e-9, ...shown.flatMap((each) => [each.rewards ?? 0, each.decisions ?? 0, each.entitled ?? 0]));
    for (const [name, row] of rows) {
      if (!shown.some((each) => each.label === name)) {
        row.element.remove();
        rows.delete(name);
      }
    }
    shown.forEach((each, k) => {
      if (!rows.has(each.label)) rows.set(each.label, shareRow(each.label));
      const row = rows.get(each.label);
      row.set(each, colors.get(each.label) ?? "arm-other", scale);
      if (body.children[k] !== row.element) body.insertBefore(row.element, body.children[k] ?? null);
    });
    foot.hidden = sorted.length <= FEW;
    setText(more, all ? `Show the first ${FEW}` : `Show all ${integer(sorted.length)}`);
  }

  return { element, draw };
}

function shareRow(name) {
  const tag = h("span", { class: "tag", hidden: true });
  const key = h("span", { class: "key", "aria-hidden": "true" });
  const reward = bar("");
  const decisions = bar("soft");
  const element = h(
    "tr",
    { data: { label: name } },
    h("th", { scope: "row" }, h("span", { class: "who-label" }, key, label(name), tag)),
    h("td", {}, reward.element),
    h("td", {}, decisions.element),
  );
  return {
    element,
    set(share, color, scale) {
      key.style.setProperty("--color", `var(--${color})`);
      const state = share.live === false ? "retired" : share.masked ? "masked" : "";
      setText(tag, state);
      tag.hidden = !state;
      tag.title = state === "masked" ? "Not drawn until it is unmasked" : state === "retired" ? "Never drawn again" : "";
      const due = share.entitled ? `entitled to ${percent(share.entitled)}` : "";
      reward.set(
        share.rewards,
        share.entitled,
        scale,
        color,
        [`${number(share.reward_sum, 4)} in all`, due].filter(Boolean).join(", "),
      );
      decisions.set(share.decisions, null, scale, color, integer(share.n_decisions));
      reward.element.dataset.sum = share.reward_sum;
      decisions.element.dataset.count = share.n_decisions;
    },
  };
}

function bar(look) {
  const due = h("span", { class: "due", hidden: true });
  const track = h("div", { class: `track ${look}` }, h("div", { class: "bar" }), due);
  const text = h("span", { class: "num" });
  const element = h("div", { class: "cell" }, track, text);
  return {
    element,
    set(value, entitled, scale, color, title) {
      track.style.setProperty("--share", String((value ?? 0) / scale));
      track.style.setProperty("--color", `var(--${color})`);
      due.hidden = !entitled;
      if (entitled) due.style.setProperty("--due", String(entitled / scale));
      setText(text, percent(value));
      element.title = title;
    },
  };
}

/** Arms one by one where the experiment is fair to groups; of the current period, or since the start. */
export function armShares({ experiment, period_pulls: drawn, period_shares: inPeriod }, period) {
  const arms = [...experiment.arms, ...experiment.retired_arms];
  const earned = period && inPeriod ? experiment.periods.at(-1).rewards : experiment.cumulative_rewards;
  const pulls = period && inPeriod ? drawn : experiment.pulls;
  const all = (values) => arms.reduce((sum, arm) => sum + (values[arm] ?? 0), 0);
  return arms.map((arm) => ({
    label: arm,
    live: !experiment.retired_arms.includes(arm),
    masked: experiment.masked_arms.includes(arm),
    entitled: null,
    decisions: pulls === null ? null : (pulls[arm] ?? 0) / Math.max(1, all(pulls)),
    rewards: all(earned) > 0 ? (earned[arm] ?? 0) / all(earned) : null,
    n_decisions: pulls === null ? null : (pulls[arm] ?? 0),
    reward_sum: earned[arm] ?? 0,
  }));
}
