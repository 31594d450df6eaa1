// Cards of one experiment as it is now: shares, delays, the certificate, changes, books of periods.

import { rollBackButton } from "./actions.js";
import { asTable, card, delayBars, delayRows, quantile, segments, sinceChoice } from "./charts.js";
import { h, label, put, renew, setText, table } from "./dom.js";
import { change as changeText, duration, fixed, fullTime, integer, number, percent, shortTime, time } from "./format.js";
import { armShares, sharesTable } from "./shares.js";

const PERIOD_COLUMNS = 12; // groups, or arms, in the books of periods
const LOOSE = 2; // a certificate above says little

// shares now

export function whoGetsWhat() {
  const shown = sharesTable();
  const byGroup = h("div", {});
  const least = h("p", { class: "muted small", id: "least-context", hidden: true });
  const promise = h("p", { class: "muted small", id: "context-promise", hidden: true });
  const since = sinceChoice((value) => ((period = value), draw(...last)));
  const aside = h("div", { class: "asides" }, since.element, byGroup);
  let grouped = true;
  let period = true;
  let last = null;
  function draw(live, colors) {
    last = [live, colors];
    since.show(live);
    const shares = (period && live.period_shares) || live.shares;
    const groups = live.experiment.groups?.labels;
    if (groups && !byGroup.firstChild)
      put(
        byGroup,
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
      const arms = armShares(live, period);
      shown.draw(
        "Arm",
        arms,
        new Map(arms.map((each) => [each.label, colors.get(groups[each.label]) ?? "arm-other"])),
      );
    } else shown.draw(groups ? "Group" : "Arm", shares, colors);
    say(least, live.least_context);
    say(promise, live.context_promise);
  }
  function say(line, said) {
    line.hidden = !said;
    setText(line, said?.sentence ?? "");
    line.title = said?.note ?? "";
  }
  const element = card(
    "Who gets what",
    { id: "who-gets-what", span: "span-6 wide-4", sub: "The upright mark is what each is entitled to.", aside },
    shown.element,
    promise,
    least,
  );
  return { element, draw };
}

// rewards that come late

export function delays() {
  const body = h("div", { class: "fill" });
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
    renew(body, delayBars(live.delays, live.experiment.reward_wait));
    renew(
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
      { id: "delays", span: "span-5 wide-4", sub: "From the decision to its reward." },
      body,
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
      renew(
        body,
        certificate.welfare_ratio !== null &&
          h(
            "div",
            {},
            h("div", { class: "big" }, `≤ ${number(certificate.welfare_ratio, 4)}×`),
            h("p", { class: "muted small" }, "the present welfare: no fixed policy in hindsight has more"),
          ),
        h("p", {}, certificate.sentence),
        certificate.welfare_ratio > LOOSE &&
          h("p", { class: "muted" }, "So loose a bound says little yet. It tightens as rewards arrive."),
        certificate.regret !== null &&
          h("dl", { class: "pairs" }, h("dt", {}, "Regret at most"), h("dd", {}, number(certificate.regret, 4))),
      );
    } else {
      const text =
        experiment.feedback === "bandit"
          ? "With bandit feedback the guarantee is a bound on the average over the policy’s draws. It does not bound a single run, so there is no certificate for this one."
          : `The policy ${experiment.policy} proves no bound for a single run.`;
      renew(body, h("p", { class: "muted" }, text));
    }
  }
  return {
    element: card(
      "Certificate",
      { id: "certificate", sub: "What is proved about this run." },
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
  let drawn = -1; // changes in the list
  function draw(live) {
    last = live;
    const newest = [...live.changes].reverse();
    const shown = newest.slice(0, all ? undefined : 8);
    if (drawn !== live.changes.length || list.children.length !== shown.length) {
      drawn = live.changes.length;
      put(
        list,
        shown.map((each) =>
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
      { id: "history", sub: "Who changed what, newest first." },
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
    { id: "periods", sub: "What each earned, period by period, and how evenly." },
    body,
  );
  function draw({ books: periods, shares }) {
    element.hidden = periods.length === 0; // there was never more than one
    if (periods.length === 0) return;
    const columns = shares.map((each) => each.label).slice(0, PERIOD_COLUMNS);
    const sum = (each) => Object.values(each.rewards).reduce((all, one) => all + one, 0);
    const part = (each, value) => (each.ended && sum(each) > 0 ? percent(value / sum(each), 0) : null);
    renew(
      body,
      table(
        "Rewards and fairness by period",
        [
          {
            title: "Period",
            rowHead: true,
            class: "nowrap",
            cell: (each) => [
              `${each.number}`,
              h(
                "div",
                { class: "muted small", title: `${fullTime(each.started)} – ${each.ended ? fullTime(each.ended) : "now"}` },
                `${shortTime(each.started)} – ${each.ended ? shortTime(each.ended) : "now"}`,
              ),
            ],
          },
          { title: "Jain’s index", number: true, cell: (each) => fixed(each.jain_index, 3) },
          { title: "All", number: true, cell: (each) => number(sum(each), 4) },
          ...columns.map((one) => ({
            title: label(one),
            number: true,
            cell: (each) =>
              one in each.rewards
                ? [
                    number(each.rewards[one], 4),
                    h("div", { class: "muted small" }, part(each, each.rewards[one])),
                  ]
                : "–",
          })),
        ],
        [...periods].reverse(),
      ),
    );
  }
  return { element, draw };
}
