// The story of one decision.

import { decisionLink, get, pageOf } from "../api.js";
import { card } from "../charts.js";
import { h, icon, label, put, table } from "../dom.js";
import {
  alpha,
  change as changeText,
  duration,
  fixed,
  fullTime,
  integer,
  number,
  percent,
  plural,
  time,
} from "../format.js";
import { crumbs, tabs } from "../frame.js";
import { stateChip } from "./log.js";

const PATIENCE = 30; // times to ask again while probabilities are computed

export async function show(content, name) {
  crumbs(name, "Decision");
  const id = new URLSearchParams(location.search).get("id") ?? "";
  const path = `${pageOf(name, "decision.json")}?id=${encodeURIComponent(id)}`;
  let story = await get(path);
  draw(content, name, story);
  for (let k = 0; k < PATIENCE && story.probabilities_status === "computing"; k += 1) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    story = await get(path);
    draw(content, name, story);
  }
}

function draw(content, name, story) {
  const { row, settings } = story;
  put(
    content,
    h(
      "div",
      { class: "view-head" },
      h("div", { class: "titles" }, h("h1", {}, label(name)), h("p", { class: "lead" }, ...sentence(story))),
    ),
    tabs(name, "log"),
    h(
      "div",
      { class: "grid" },
      card(
        "The decision",
        { id: "decision", span: "span-4", aside: stateChip(row.state) },
        pairs([
          ["Id", label(row.id, { class: "mono" })],
          ["Context", label(row.context)],
          row.slate === null && ["Arm", label(row.arm)],
          row.decided_by !== null && ["Decided by", label(row.decided_by)],
          row.slate === null && ["Propensity", row.propensity === null ? "unknown" : fixed(row.propensity, 6)],
          ...(row.slate ?? []).map((shown, slot) => [
            `Slot ${slot + 1}`,
            h("span", {}, label(shown.arm), ` with ${percent(shown.propensity)}, reward ${number(shown.reward, 6)}`),
          ]),
          ...Object.entries(story.features ?? {}).map(([name, value]) => [
            h("span", {}, "Feature ", label(name)),
            value === null ? "missing" : typeof value === "number" ? number(value, 6) : label(value),
          ]),
          ["Decided", time(row.at)],
          ["Position", integer(row.position)],
          story.deferred && ["Activated", story.activated_at === null ? "not yet" : time(story.activated_at)],
          ["Reward", number(row.reward, 6)],
          ["Settled", row.rewarded_at === null ? "not yet" : time(row.rewarded_at)],
          row.rewarded_at !== null && ["After", duration(row.rewarded_at - row.at)],
          story.source && [
            "Settled by",
            {
              client: "the client",
              default: "the default reward",
              expired: "the end of its waiting time",
              lapsed: "lapse: never activated",
              rollback: "a rollback",
            }[story.source] ?? story.source,
          ],
          story.late_reward !== null && [
            "Late reward, not learned from",
            `${number(story.late_reward, 6)}, ${time(story.late_reward_at)}`,
          ],
        ]),
        h("p", {}, h("br"), h("a", { href: decisionLink(name, row.id) }, icon("link"), " Permanent link")),
      ),
      card(
        "The draw",
        { id: "draw", span: "span-8", sub: story.probabilities_sentence },
        h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Arms at that moment" },
          table(
            "Arms at the moment of the decision",
            [
              {
                title: "Arm",
                rowHead: true,
                cell: (each) => [label(each.arm), each.drawn && [" ", h("span", { class: "chip accent" }, row.decided_by === null ? "drawn" : "shown")]],
              },
              { title: "Available", cell: (each) => (each.available ? "yes" : "no") },
              { title: "Probability", cell: (each) => bar(each.probability) },
              { title: "Reward", number: true, cell: (each) => number(each.reward) },
            ],
            story.arms,
            { class: "probabilities" },
          ),
        ),
      ),
      card(
        "Settings at that moment",
        { id: "settings", span: "span-4" },
        pairs([
          ["α", alpha(settings.alpha)],
          ["Policy", settings.policy],
          ["Arms", integer(settings.arms.length)],
          [
            "Masked",
            settings.masked_arms.length ? settings.masked_arms.map((each, k) => [k > 0 && ", ", label(each)]) : "none",
          ],
          ["Period", integer(settings.period)],
          ["Last change at position", integer(settings.version)],
          ["Had learned up to position", integer(story.state_version)],
        ]),
      ),
      card(
        "What changed since",
        { id: "since", span: "span-8", sub: `${plural(story.events_since, "event")} in the log since this decision.` },
        story.changes_since.length === 0
          ? h("p", { class: "muted" }, "No setting has changed.")
          : h(
              "ol",
              { class: "timeline" },
              story.changes_since.map((each) =>
                h(
                  "li",
                  {},
                  h("span", { class: "what" }, changeText(each)),
                  h("time", { datetime: each.at, title: fullTime(each.at) }, time(each.at)),
                  h("span", { class: "by" }, each.by ? ["by ", label(each.by)] : "author not recorded"),
                ),
              ),
            ),
      ),
    ),
  );
}

/** The story in one sentence; labels stay elements of their own. */
function sentence({ row, deferred }) {
  const parts = [
    "For ",
    h("strong", {}, label(row.context)),
    ...(row.decided_by === null ? [" the policy drew "] : [" ", h("strong", {}, label(row.decided_by)), " showed "]),
    ...(row.slate === null
      ? [h("strong", {}, label(row.arm)), row.propensity === null ? "" : ` with probability ${percent(row.propensity)}`]
      : [h("strong", {}, label(row.slate.map((shown) => shown.arm).join(", "))), " together"]),
  ];
  const ends = {
    rewarded: [
      `, and a reward of ${number(row.reward)} arrived ${row.rewarded_at === null ? "" : `${duration(row.rewarded_at - row.at)} later`}.`,
    ],
    defaulted: [`; no reward arrived in time, so it counts as ${number(row.reward)}.`],
    expired: ["; no reward arrived in time, and it was closed without one."],
    lapsed: ["; it was never carried out, and does not count."],
    rolled_back: ["; a rollback has closed it."],
    pending: ["; its reward has not arrived yet."],
    deferred: ["; it counts once it is carried out."],
  };
  return [...parts, ...(ends[row.state] ?? [deferred ? "." : "."])];
}

function pairs(entries) {
  return h(
    "dl",
    { class: "pairs" },
    entries.filter(Boolean).map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]),
  );
}

function bar(value) {
  if (value === null) return "–";
  return h(
    "div",
    { class: "cell-bar" },
    h(
      "div",
      { class: "track", style: { "--share": String(value), "--color": "var(--accent)" } },
      h("div", { class: "bar" }),
    ),
    h("span", { class: "n" }, percent(value, 2)),
  );
}
