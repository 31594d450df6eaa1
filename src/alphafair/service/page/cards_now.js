// Cards of one experiment as it is now: shares, delays, the certificate, changes, books of periods.

import { rollBackButton } from "./actions.js";
import { asTable, card, delayBars, delayRows, quantile, segments } from "./charts.js";
import { h, label, put, setText, table } from "./dom.js";
import { change as changeText, duration, fullTime, integer, number, time } from "./format.js";
import { armShares, sharesTable } from "./shares.js";

const PERIOD_COLUMNS = 12; // arms in the books of periods

// shares now

export function whoGetsWhat() {
  const shown = sharesTable();
  const aside = h("div", {});
  let grouped = true;
  let last = null;
  function draw(live, colours) {
    last = [live, colours];
    const groups = live.experiment.groups?.labels;
    if (groups && !aside.firstChild)
      put(
        aside,
        segments(
          "Fair to",
          [
            [true, "Groups"],
            [false, "Arms"],
          ],
          grouped,
          (value) => ((grouped = value), draw(...last)),
        ),
      );
    if (groups && !grouped) {
      const arms = armShares(live.experiment);
      shown.draw(
        "Arm",
        arms,
        new Map(arms.map((each) => [each.label, colours.get(groups[each.label]) ?? "arm-other"])),
      );
    } else shown.draw(groups ? "Group" : "Arm", live.shares, colours);
  }
  const element = card(
    "Who gets what",
    { id: "who-gets-what", span: "span-6 wide-4", sub: "The upright mark is what each is entitled to.", aside },
    shown.element,
  );
  return { element, draw };
}

// rewards that come late

export function delays() {
  const body = h("div", {});
  const figures = h("dl", { class: "pairs" });
  let last = null;
  const numbers = asTable(() => {
    return table(
      "Delay of rewards",
      [
        { title: "Delay", rowHead: true, cell: (each) => each.text },
        { title: "Rewards", number: true, cell: (each) => integer(each.count) },
      ],
      delayRows(last.delays).filter((each) => each.count > 0),
    );
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
      [
        h("dt", {}, "The service waits"),
        h("dd", {}, live.experiment.reward_wait === null ? "for ever" : duration(live.experiment.reward_wait)),
      ],
      live.experiment.default_reward !== null && [
        h("dt", {}, "Then the reward is"),
        h("dd", {}, number(live.experiment.default_reward)),
      ],
    );
    numbers.renew();
  }
  return {
    element: card(
      "Delay of rewards",
      { id: "delays", span: "span-5 wide-3", sub: "From the decision to its reward." },
      body,
      h("br"),
      figures,
      numbers,
    ),
    draw,
  };
}

// what is proved

export function guarantee() {
  const body = h("div", { class: "fields" });
  function draw({ certificate, experiment }) {
    if (certificate) {
      put(
        body,
        certificate.welfare_ratio !== null &&
          h(
            "div",
            {},
            h("div", { class: "big" }, `≤ ${number(certificate.welfare_ratio, 4)}×`),
            h("p", { class: "muted small" }, "the present welfare: no fixed policy in hindsight has more"),
          ),
        h("p", {}, certificate.sentence),
        certificate.regret !== null &&
          h("dl", { class: "pairs" }, h("dt", {}, "Regret at most"), h("dd", {}, number(certificate.regret, 4))),
      );
    } else {
      const text =
        experiment.feedback === "bandit"
          ? "With bandit feedback the guarantee is a bound on the average over the policy’s draws. It does not bound a single run, so there is no certificate for this one."
          : `The policy ${experiment.policy} proves no bound for a single run.`;
      put(body, h("p", { class: "muted" }, text));
    }
  }
  return {
    element: card(
      "Certificate",
      { id: "certificate", span: "span-4 wide-3", sub: "What is proved about this run." },
      body,
    ),
    draw,
  };
}

// changes

export function history() {
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
        newest
          .slice(0, all ? undefined : 8)
          .map((each) =>
            h(
              "li",
              { data: { kind: each.kind, position: each.position } },
              h("span", { class: "what" }, changeText(each)),
              h("time", { datetime: each.at, title: fullTime(each.at) }, time(each.at)),
              h(
                "span",
                { class: "by" },
                each.by ? ["by ", label(each.by)] : "author not recorded",
                ` · position ${integer(each.position)} `,
                rollBackButton(() => last, each.position),
              ),
            ),
          ),
      );
    }
    more.hidden = all || newest.length <= 8;
    setText(more, `Show all ${integer(newest.length)}`);
  }
  return {
    element: card(
      "Changes",
      { id: "history", span: "span-4 wide-3", sub: "Who changed what, newest first." },
      list,
      more,
    ),
    draw,
  };
}

// books of periods

export function books() {
  const body = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Books of periods" });
  const element = card(
    "Books of periods",
    { id: "periods", span: "span-4 wide-3", sub: "What each arm earned, period by period." },
    body,
  );
  function draw({ experiment }) {
    if (experiment.periods.length === 0) {
      put(
        body,
        h(
          "p",
          { class: "muted" },
          "Fairness counts since the experiment was created: there is one period. Start another by hand, or create an experiment with a period such as 7d.",
        ),
      );
      return;
    }
    const arms = [...experiment.arms, ...experiment.retired_arms].slice(0, PERIOD_COLUMNS);
    put(
      body,
      table(
        "Rewards by period and arm",
        [
          {
            title: "Period",
            rowHead: true,
            class: "nowrap",
            cell: (each) => [
              `${each.number}`,
              h("div", { class: "muted small" }, each.ended ? `${time(each.started)}` : "now"),
            ],
          },
          {
            title: "All",
            number: true,
            cell: (each) =>
              number(
                Object.values(each.rewards).reduce((sum, one) => sum + one, 0),
                4,
              ),
          },
          ...arms.map((arm) => ({
            title: label(arm),
            number: true,
            cell: (each) => (arm in each.rewards ? number(each.rewards[arm], 4) : "–"),
          })),
        ],
        [...experiment.periods].reverse(),
      ),
    );
  }
  return { element, draw };
}
