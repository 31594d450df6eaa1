// Changes of experiments, for admins. Each says first what will be recorded and what it does to the guarantee.

import { address, explained, get, may, pageOf, routeOf, send, sentences, session } from "./api.js";
import { announce, h, put, setText } from "./dom.js";
import { ask, field, menu } from "./dialogs.js";
import { ago, alpha as alphaText, integer, quoted, seconds, sentence, time } from "./format.js";

const by = () => `by ${quoted(session.name ?? "anybody on this machine")}`;
const event = (kind, rest = "") =>
  `The event ${kind}${rest}, ${by()}, with the time and its position in the event log.`;
const linesOf = (text) =>
  text
    .split("\n")
    .map((each) => each.trim())
    .filter(Boolean);
const readAlpha = (text) => (/^(inf|∞|infinity)$/i.test(text) ? "inf" : Number(text));
const alphaField = (value) =>
  field("alpha", "α", {
    value,
    required: true,
    pattern: "\\s*([0-9]*\\.?[0-9]+([eE][+\\-]?[0-9]+)?|inf|∞|[iI]nfinity)\\s*",
    title: "A number from 0 on, or inf",
    hint: "0: the largest sum of rewards. 1: proportional fairness. inf: the largest minimum.",
  });

/** The menu of an experiment; `live()` is what the page knows now. */
export function actionsMenu(name, live) {
  const change = (body) => send("PATCH", routeOf(name), body);
  const known = () => live().experiment;
  return menu("Actions", () => {
    const { paused, masked_arms: masked, alpha, arm_features: declared } = known();
    return [
      paused
        ? { text: "Resume", icon: "play", act: () => resume(name, change) }
        : { text: "Pause", icon: "pause", act: () => pause(name, change) },
      alpha !== null && { text: "Change α", icon: "sliders", act: () => setAlpha(name, known, change) },
      { text: "Change periods", icon: "calendar", act: () => setPeriod(known, change) },
      { text: "Start a new period", icon: "calendar", act: () => newPeriod(known, change) },
      { text: "Change who decides", icon: "people", act: () => setMode(name, known(), change) },
      { text: "Change groups and floors", icon: "people", act: () => setGroups(known, change) },
      { text: "Change the weight of contexts", icon: "sliders", act: () => setContexts(change) },
      { text: "Change the wait for rewards", icon: "calendar", act: () => setWait(known, change) },
      declared !== null && {
        text: "Change features of arms",
        icon: "sliders",
        act: () => setArmFeatures(known, change),
      },
      null,
      { text: "Add an arm", icon: "plus", act: () => addArm(name, known, change) },
      { text: "Mask an arm", icon: "people", act: () => maskArm(name, known, change) },
      masked.length > 0 && { text: "Unmask an arm", icon: "people", act: () => unmaskArm(name, known, change) },
      { text: "Retire an arm", icon: "close", act: () => retireArm(name, known, change) },
      null,
      { text: "Roll back", icon: "back", act: () => rollBack(live) },
      { text: "Erase a context", icon: "erase", act: () => erase(name) },
    ].filter((each) => each !== false);
  });
}

function pause(name, change) {
  ask({
    title: `Pause ${name}`,
    lead: "Decisions are refused until the experiment is resumed. Rewards of earlier decisions are still accepted.",
    recorded: event("pause"),
    guarantee: sentences.guarantees.pause,
    confirm: "Pause",
    act: () => change({ paused: true }),
  });
}

function resume(name, change) {
  ask({
    title: `Resume ${name}`,
    lead: "Decisions are made again.",
    recorded: event("resume"),
    guarantee: sentences.guarantees.resume,
    confirm: "Resume",
    act: () => change({ paused: false }),
  });
}

export function setAlpha(name, known, change = (body) => send("PATCH", routeOf(name), body), wanted = known().alpha) {
  const present = alphaText(known().alpha);
  ask({
    title: "Change α",
    fields: [alphaField(alphaText(wanted) === "∞" ? "inf" : wanted)],
    unchanged: ({ alpha }) => alphaText(readAlpha(alpha)) === present,
    recorded: ({ alpha }) => {
      const next = alphaText(readAlpha(alpha));
      if (next === present) return `Nothing yet: α is ${present}.`;
      return event("set_alpha", ` from ${present}${next === "NaN" ? "" : ` to ${next}`}`);
    },
    guarantee: sentences.guarantees.set_alpha,
    confirm: "Change α",
    act: ({ alpha }) => change({ alpha: readAlpha(alpha) }),
  });
}

const readPeriod = (text) => (/^[0-9.]+$/.test(text) ? Number(text) : text);
const startField = (hint) => field("start", "Periods start", { kind: "datetime-local", step: 1, hint });
const readStart = (text) => new Date(text).toISOString();

function setPeriod(known, change) {
  const { period, carry } = known();
  ask({
    title: "Change periods",
    lead: "From now on periods end by this calendar. The present one goes on until the calendar’s next boundary.",
    fields: [
      field("period", "Period", {
        value: period === null ? "" : `${period}`,
        hint: "Seconds, or such as 7d or 12h. Empty: periods end only by hand.",
      }),
      field("carry", "Carry", {
        kind: "number",
        min: 0,
        max: 1,
        step: "any",
        value: carry,
        hint: "The part of accounts that counts in the next period.",
      }),
      startField("Empty: as before if the length stays, else now."),
    ],
    names: { period_start: "start" },
    unchanged: ({ period: wanted, carry: part, start }) =>
      wanted === `${period ?? ""}` && Number(part) === carry && !start,
    recorded: ({ period: wanted, carry: part }) =>
      event("set_period", ` to ${wanted || "none"}${part ? ` with carry ${part}` : ""}`),
    guarantee: sentences.guarantees.set_period,
    confirm: "Change the periods",
    act: ({ period: wanted, carry: part, start }) =>
      change({
        period: wanted ? readPeriod(wanted) : null,
        ...(part ? { carry: Number(part) } : {}),
        ...(start ? { period_start: readStart(start) } : {}),
      }),
  });
}

function newPeriod(known, change) {
  ask({
    title: "Start a new period",
    lead: `Every account keeps ${integer(100 * known().carry)}% of what it has earned; what was learned about rewards stays. The books of the present period are closed.`,
    recorded: event("new_period", ` with carry ${known().carry}`),
    guarantee: sentences.guarantees.new_period,
    confirm: "Start a period",
    act: () => change({ new_period: true }),
  });
}

/** Terms that differ from the present ones. */
const newTerms = (terms, present) =>
  Object.fromEntries(
    Object.entries(terms).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(present[name])),
  );
const termsEvent = (terms) => {
  const names = Object.keys(terms).map((each) => each.replaceAll("_", " "));
  return names.length === 0 ? "Nothing yet: no term is changed." : event("terms", ` with new ${names.join(" and ")}`);
};
const newFeatures = (arms) =>
  arms.length === 0 ? "Nothing yet: no feature is changed." : event("terms", ` with new features of ${arms.join(", ")}`);
const equalOf = (labels) => Object.entries(labels ?? {}).map(([label, value]) => `${label} = ${value}`).join("\n");

const MODES = {
  watch: "watch: the incumbent decides, the policy learns from it",
  share: "share: the policy decides for a part of the visitors",
  live: "live: the policy decides for everybody",
};

/** Buttons beside the report of sides: the next step, and the way back; only for admins. */
export function modeButtons(name, experiment) {
  if (!may("admin")) return [];
  const open = (wanted, text) =>
    h("button", { type: "button", onclick: () => setMode(name, experiment, undefined, wanted) }, text);
  return {
    watch: [open({ mode: "share", share: 0.05 }, "Share 5%")],
    share: [
      open({ mode: "share", share: experiment.share }, "Change the share"),
      open({ mode: "live" }, "Go live"),
      open({ mode: "watch" }, "Go back to watching"),
    ],
    live: [open({ mode: "share", share: 0.2 }, "Share the traffic"), open({ mode: "watch" }, "Go back to watching")],
  }[experiment.mode];
}

function setMode(name, { mode, share }, change = (body) => send("PATCH", routeOf(name), body), wanted = { mode, share }) {
  const read = (values) => ({
    mode: values.mode,
    share: values.mode === "share" ? Number(values.percent) / 100 : null,
  });
  const terms = (values) => {
    const { mode: next, share: part } = read(values);
    const salt = values.salt ? { salt: values.salt } : {};
    return next === "share" ? { mode: next, share: part, ...salt } : { mode: next, ...salt };
  };
  const unchanged = (values) => read(values).mode === mode && read(values).share === share && !values.salt;
  const lead = h("span");
  ask({
    title: "Change who decides",
    lead,
    fields: [
      field("mode", "Mode", { kind: "select", choices: Object.entries(MODES), value: wanted.mode }),
      field("percent", "Share of visitors, in %", {
        kind: "number",
        min: 0.1,
        max: 99.9,
        step: "any",
        value: `${Math.round(1000 * (wanted.share ?? 0.05)) / 10}`,
        hint: "The same visitors stay when it grows. The report of sides starts again.",
      }),
      field("salt", "Salt", { maxlength: 200, hint: "Empty: as before. A new one divides the visitors anew." }),
    ],
    names: { share: "percent" },
    adapt(form) {
      const next = form.elements.namedItem("mode").value;
      const control = form.elements.namedItem("percent");
      control.disabled = next !== "share";
      control.closest(".field").hidden = next !== "share";
      setText(
        lead,
        {
          watch: "From the next decision on, everybody sees what the incumbent shows. Decisions need an incumbent.",
          share: "From the next decision on, these visitors see what the policy draws, all others what the incumbent shows. Decisions need an incumbent.",
          live: "From the next decision on, everybody sees what the policy draws. The program may go on to pass an incumbent.",
        }[next],
      );
    },
    unchanged,
    recorded: (values) =>
      unchanged(values)
        ? "Nothing yet: nothing is changed."
        : event("terms", ` with the mode ${values.mode}${values.mode === "share" ? ` and a share of ${values.percent}%` : ""}`),
    guarantee: (values) => {
      if (values.salt) return sentences.guarantees.salt;
      return values.mode === "share" ? sentences.guarantees.share : sentences.guarantees.mode;
    },
    confirm: "Change who decides",
    act: (values) => change({ terms: terms({ ...values, percent: values.percent ?? "" }) }),
  });
}

function setGroups(known, change) {
  const { groups, arms, retired_arms: retired } = known();
  const floor = groups?.pull_floor ?? null;
  const present = { groups: groups?.labels ?? null, entitlements: groups?.entitlements ?? null, pull_floor: floor };
  const read = ({ labels, entitlements, floors }) => {
    const byLabel = (name, text, read = Number) => (text.trim() ? equations(name, text, read) : null);
    const plain = /^\s*[0-9.eE+-]*\s*$/.test(floors);
    return {
      groups: byLabel("groups", labels, (text) => text),
      entitlements: byLabel("entitlements", entitlements),
      pull_floor: plain ? (floors.trim() ? Number(floors) : null) : byLabel("pull_floor", floors),
    };
  };
  const terms = (values) => newTerms(read(values), present);
  ask({
    title: "Change groups and floors",
    lead: "An arm that changes its group takes with it what it has earned in this period. Accounts that lie below their entitlement are served more from now on.",
    fields: [
      field("labels", "Groups", {
        kind: "textarea",
        value: equalOf(groups?.labels),
        hint: `The group of every arm, one per line, as ${(arms[0] ?? retired[0]) || "ada"} = north. Empty: every arm by itself.`,
      }),
      field("entitlements", "Entitlements", {
        kind: "textarea",
        value: equalOf(groups?.entitlements),
        hint: "One per line, as north = 2, of groups or of arms. Empty: 1 each.",
      }),
      field("floors", "Floors", {
        kind: "textarea",
        value: floor === null ? "" : typeof floor === "number" ? `${floor}` : equalOf(floor),
        hint: "The least probability in every decision: one number for every arm, or lines as north = 0.1. Empty: none.",
      }),
    ],
    names: { groups: "labels", pull_floor: "floors" },
    unchanged: (values) => attempt(() => Object.keys(terms(values)).length === 0, false),
    recorded: (values) => attempt(() => termsEvent(terms(values)), event("terms")),
    guarantee: (values) => {
      const found = attempt(() => terms(values), present);
      const said = [
        "groups" in found && sentences.guarantees.groups,
        "entitlements" in found && sentences.guarantees.entitlements,
        "pull_floor" in found && sentences.guarantees.pull_floor,
      ].filter(Boolean);
      return said.length === 0 ? "Unchanged." : said.join(" ");
    },
    confirm: "Change the terms",
    act: (values) => change({ terms: terms(values) }),
  });
}

function setContexts(change) {
  const read = ({ weight, least }) => ({
    ...(weight ? { context_weight: Number(weight) } : {}),
    ...(least ? { context_share: Number(least) } : {}),
  });
  ask({
    title: "Change the weight of contexts",
    lead: "How much fairness to contexts counts beside fairness to arms, and the least part of its best that a context gets.",
    fields: [
      field("weight", "Weight", { kind: "number", min: 0, max: 1, step: "any", hint: "From 0 on, below 1. Empty: as before." }),
      field("least", "Promise", { kind: "number", min: 0, max: 1, step: "any", hint: "From 0 on, below 1. Empty: as before." }),
    ],
    names: { context_weight: "weight", context_share: "least" },
    unchanged: (values) => Object.keys(read(values)).length === 0,
    recorded: (values) => termsEvent(read(values)),
    guarantee: ({ weight, least }) =>
      [weight && sentences.guarantees.context_weight, least && sentences.guarantees.context_share]
        .filter(Boolean)
        .join(" ") || "Unchanged.",
    confirm: "Change the weight",
    act: (values) => change({ terms: read(values) }),
  });
}

function setWait(known, change) {
  const { reward_wait: wait, default_reward: reward } = known();
  const terms = (values) =>
    newTerms(
      {
        reward_wait: values.wait ? Number(values.wait) : null,
        default_reward: values.default ? Number(values.default) : null,
      },
      { reward_wait: wait, default_reward: reward },
    );
  ask({
    title: "Change the wait for rewards",
    lead: "The new time holds for decisions that wait already: a shorter one settles those that have waited longer.",
    fields: [
      field("wait", "Wait for a reward", {
        kind: "number",
        min: 0,
        step: "any",
        value: wait === null ? "" : `${wait}`,
        hint: "Seconds. Empty: for ever.",
      }),
      field("default", "Reward after the wait", {
        kind: "number",
        step: "any",
        value: reward === null ? "" : `${reward}`,
        hint: "Empty: none.",
      }),
    ],
    names: { reward_wait: "wait", default_reward: "default" },
    unchanged: (values) => Object.keys(terms(values)).length === 0,
    recorded: (values) => termsEvent(terms(values)),
    guarantee: (values) =>
      "default_reward" in terms(values)
        ? `${sentences.guarantees.reward_wait} ${sentences.guarantees.default_reward}`
        : sentences.guarantees.reward_wait,
    confirm: "Change the wait",
    act: (values) => change({ terms: terms(values) }),
  });
}

function setArmFeatures(known, change) {
  const { arm_features: declared, features_by_arm: values, arms } = known();
  const present = Object.fromEntries(arms.map((arm) => [arm, values[arm] ?? {}]));
  const read = ({ values: text }) => {
    return Object.fromEntries(
      Object.entries(readObject("arm_features", text)).filter(([arm, each]) => JSON.stringify(each) !== JSON.stringify(present[arm])),
    );
  };
  ask({
    title: "Change features of arms",
    lead: `Every arm has ${Object.keys(declared).join(", ")}. Arms that are left out keep what they have.`,
    fields: [
      field("values", "Features", {
        kind: "textarea",
        value: JSON.stringify(present, null, 1),
        hint: "A JSON object from arm to its features by name.",
      }),
    ],
    names: { arm_features: "values" },
    unchanged: (given) => attempt(() => Object.keys(read(given)).length === 0, false),
    recorded: (given) =>
      attempt(() => newFeatures(Object.keys(read(given))), event("terms")),
    guarantee: sentences.guarantees.arm_features,
    confirm: "Change the features",
    act: (given) => change({ terms: { arm_features: read(given) } }),
  });
}

function addArm(name, known, change) {
  const groups = known().groups?.labels;
  const declared = known().arm_features;
  ask({
    title: "Add an arm",
    fields: [
      field("arm", "Label", { required: true, maxlength: 200 }),
      groups &&
        field("group", "Group", {
          required: true,
          maxlength: 200,
          list: "groups-known",
          hint: "One of the groups that exist, or a new one.",
        }),
      groups &&
        h(
          "datalist",
          { id: "groups-known" },
          [...new Set(Object.values(groups))].map((each) => h("option", { value: each })),
        ),
      field("entitlement", groups ? "Entitlement of a new group" : "Entitlement", {
        kind: "number",
        min: 0,
        step: "any",
        hint: "Leave it empty for 1, or for a group that exists.",
      }),
      declared &&
        field("features", "Features", {
          kind: "textarea",
          value: JSON.stringify(Object.fromEntries(Object.keys(declared).map((each) => [each, null]))),
          hint: "A JSON object from name to value.",
        }),
    ].filter(Boolean),
    recorded: ({ arm }) => event("add_arm", arm ? ` with the label ${quoted(arm)}` : ""),
    guarantee: sentences.guarantees.add_arm,
    confirm: "Add the arm",
    names: { add_arm: "arm" },
    act: ({ arm, group, entitlement, features }) =>
      change({
        add_arm: arm,
        ...(features ? { features: readObject("features", features) } : {}),
        ...(group ? { group } : {}),
        ...(entitlement ? { entitlement: Number(entitlement) } : {}),
      }),
  });
}

const armField = (arms) =>
  field("arm", "Arm", { kind: "select", choices: arms.map((each) => [each, each]), value: arms[0] });

function maskArm(name, known, change) {
  ask({
    title: "Mask an arm",
    lead: "It is not drawn until it is unmasked: out of stock, on holiday, under review.",
    fields: [armField(known().arms.filter((each) => !known().masked_arms.includes(each)))],
    recorded: ({ arm }) => event("mask_arm", ` for ${quoted(arm)}`),
    guarantee: sentences.guarantees.mask_arm,
    confirm: "Mask the arm",
    names: { mask_arm: "arm" },
    act: ({ arm }) => change({ mask_arm: arm }),
  });
}

function unmaskArm(name, known, change) {
  ask({
    title: "Unmask an arm",
    fields: [armField(known().masked_arms)],
    recorded: ({ arm }) => event("unmask_arm", ` for ${quoted(arm)}`),
    guarantee: sentences.guarantees.unmask_arm,
    confirm: "Unmask the arm",
    names: { unmask_arm: "arm" },
    act: ({ arm }) => change({ unmask_arm: arm }),
  });
}

function retireArm(name, known, change) {
  ask({
    title: "Retire an arm",
    lead: "It is never drawn again, and cannot come back under its label. Its late rewards still count.",
    fields: [armField(known().arms)],
    recorded: ({ arm }) => event("retire_arm", ` for ${quoted(arm)}`),
    guarantee: sentences.guarantees.retire_arm,
    confirm: "Retire the arm",
    danger: "I understand that this cannot be undone.",
    names: { retire_arm: "arm" },
    act: ({ arm }) => change({ retire_arm: arm }),
  });
}

function rollBack(live, position = "") {
  const { name, position: last } = live().experiment;
  const moment = h("p", { class: "hint", role: "status" });
  const input = field("position", "Position", {
    kind: "number",
    min: 1,
    max: last,
    step: 1,
    required: true,
    value: position,
    hint: `The log is at ${integer(last)}. Positions stand in the log and beside every change.`,
  });
  let timer = 0;
  let asked = "";

  /** Tell what the position is once it is typed. */
  function adapt(form) {
    const wanted = form.elements.namedItem("position").value;
    if (wanted === asked) return;
    asked = wanted;
    clearTimeout(timer);
    setText(moment, "");
    if (/^[1-9][0-9]*$/.test(wanted)) timer = setTimeout(() => tell(Number(wanted)), 200);
  }

  async function tell(wanted) {
    const query = new URLSearchParams({ before: String(wanted + 1), limit: "1" });
    const items = await get(`${pageOf(name, "log.json")}?${query}`).then(
      (answer) => answer.items,
      () => [],
    );
    if (String(wanted) !== asked) return;
    const decided = items.map((each) => each.at);
    const changed = live().changes.filter((each) => each.position <= wanted);
    const at = Math.max(...decided, ...changed.map((each) => seconds(each.at)));
    setText(
      moment,
      Number.isFinite(at)
        ? `The last decision or change up to there: ${time(at)}, ${ago(at, Date.now() / 1000)}.`
        : "The experiment did not exist yet.",
    );
  }

  input.append(moment);
  ask({
    title: "Roll back",
    lead: "The policy forgets what it learned after a position of the event log. Nothing is deleted; arms, masks and α stay as they are. Decisions made since are closed.",
    fields: [input],
    names: { rollback: "position" },
    adapt,
    recorded: ({ position: wanted }) => event("rollback", wanted ? ` to position ${integer(Number(wanted))}` : ""),
    guarantee: sentences.guarantees.rollback,
    confirm: "Roll back",
    danger: "I understand that decisions made since are closed, and that their rewards will be refused.",
    act: ({ position: wanted }) => send("PATCH", routeOf(name), { rollback: Number(wanted) }),
  });
}

/** A button beside a change that proposes to roll back to it; only for admins. */
export const rollBackButton = (live, position) =>
  may("admin") &&
  h(
    "button",
    {
      type: "button",
      class: "link",
      "aria-label": `Roll back to position ${position}`,
      onclick: () => rollBack(live, position),
    },
    "Roll back to here",
  );

function erase(name) {
  ask({
    title: "Erase a context",
    lead: "The label, and the ids of its decisions, are removed from every table and overwritten. The numbers stay, so that the log still verifies. Earlier backups and exports are not changed.",
    fields: [field("label", "Context", { required: true, maxlength: 200 })],
    recorded: `${event("erase")} The event has a number in place of the label.`,
    guarantee: sentences.guarantees.erase,
    confirm: "Erase the context",
    danger: "I understand that the label cannot be restored.",
    act: ({ label }) => send("DELETE", `${routeOf(name, "/contexts")}?label=${encodeURIComponent(label)}`),
  });
}

// creating an experiment

const FEEDBACK = {
  bandit: "bandit: only the reward of the drawn arm is known",
  full: "full information: the rewards of all arms are known",
};
const HOLDS = {
  "every run": "A bound for this very run, which the certificate shows: it covers every round from the first on.",
  "on average": "A bound on the average over the policy’s draws, from the first round on. It does not bound a single run.",
};
const NO_BOUND = "This policy has no bound that can be computed while it runs.";
const NAMES = {
  default_reward: "default",
  period_start: "start",
  reward_range: "low",
  "reward_range[0]": "low",
  "reward_range[1]": "high",
  reward_wait: "wait",
};

export async function createExperiment() {
  try {
    createWith((await get(address("/policies.json"))).items);
  } catch (problem) {
    announce(explained(problem));
  }
}

function createWith(policies) {
  const policyOf = (values) => policies.find((each) => each.name === values.policy) ?? policies[0];
  const needed = [...new Set(policies.flatMap((each) => each.needs))];
  const more = h(
    "details",
    {},
    h("summary", {}, "Groups, rewards and periods"),
    h(
      "div",
      { class: "fields" },
      h("br"),
      field("groups", "Groups", {
        kind: "textarea",
        hint: "The group of every arm, one per line, in the order of the arms. Empty: every arm by itself.",
      }),
      field("entitlements", "Entitlements", {
        kind: "textarea",
        hint: "One per line, as label = number, of groups or of arms. Empty: 1 each.",
      }),
      h(
        "div",
        { class: "fields two" },
        field("low", "Least reward", { kind: "number", step: "any", value: "0" }),
        field("high", "Largest reward", { kind: "number", step: "any", value: "1" }),
      ),
      h(
        "div",
        { class: "fields two" },
        field("wait", "Wait for a reward", { kind: "number", min: 0, step: "any", hint: "Seconds. Empty: for ever." }),
        field("default", "Reward after the wait", { kind: "number", step: "any", hint: "Empty: none." }),
      ),
      h(
        "div",
        { class: "fields two" },
        field("period", "Period", { hint: "Such as 7d. Empty: one period for ever." }),
        field("carry", "Carry", {
          kind: "number",
          min: 0,
          max: 1,
          step: "any",
          hint: "The part of accounts that counts in the next period. Empty: 0.5.",
        }),
      ),
      startField("Empty: when the experiment is created."),
    ),
  );

  /** Show the fields that the chosen policy has. */
  function adapt(form) {
    const policy = policyOf({ policy: form.elements.namedItem("policy").value });
    const show = (name, wanted) => {
      const control = form.elements.namedItem(name);
      control.disabled = !wanted;
      control.closest(".field").hidden = !wanted;
    };
    show("alpha", policy.takes.includes("alpha"));
    for (const each of ["groups", "entitlements"]) show(each, policy.takes.includes("groups"));
    for (const each of needed) show(each, policy.needs.includes(each));
    const feedback = form.elements.namedItem("feedback");
    const kinds = policy.guarantees.map((each) => each.feedback);
    if (feedback.dataset.kinds !== kinds.join()) {
      feedback.dataset.kinds = kinds.join();
      put(
        feedback,
        kinds.map((each) => h("option", { value: each }, FEEDBACK[each])),
      );
    }
    setText(form.querySelector(`#${form.elements.namedItem("policy").id}-hint`), sentence(policy.summary));
  }

  ask({
    title: "New experiment",
    fields: [
      field("name", "Name", {
        required: true,
        maxlength: 100,
        pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*",
        title: "Letters, digits, dots, dashes and underscores",
        hint: "Letters, digits, dots, dashes and underscores: it is part of addresses.",
      }),
      field("arms", "Arms", { kind: "textarea", required: true, hint: "One label per line." }),
      field("policy", "Policy", {
        kind: "select",
        choices: policies.map((each) => [each.name, each.name]),
        value: policies[0].name,
        hint: policies[0].summary,
      }),
      field("feedback", "Feedback", { kind: "select", choices: [] }),
      alphaField("0.9"),
      needed.map((each) =>
        field(each, sentence(each.replaceAll("_", " ")).slice(0, -1), {
          kind: "number",
          step: "any",
          required: true,
          hint: "A setting of this policy: a number.",
        }),
      ),
      more,
    ],
    recorded: ({ name, arms }) =>
      event(
        "create",
        `${name ? ` of ${quoted(name)}` : ""} with its settings and ${integer(linesOf(arms ?? "").length)} arms`,
      ),
    guarantee: (values) => {
      const kinds = policyOf(values).guarantees;
      return HOLDS[(kinds.find((each) => each.feedback === values.feedback) ?? kinds[0]).holds] ?? NO_BOUND;
    },
    adapt,
    names: NAMES,
    confirm: "Create the experiment",
    act: (values) => send("POST", address("/v1/experiments"), newExperiment(values, policyOf(values))),
    done: (answer) => location.assign(pageOf(answer.name, "live")),
  });
}

/** A problem that is found before anything is sent. */
const wrong = (argument, message) => Object.assign(new Error(message), { argument });

/** A JSON object that somebody has typed. */
function readObject(argument, text) {
  const found = attempt(() => JSON.parse(text), null);
  if (found === null || typeof found !== "object") throw wrong(argument, "Write a JSON object, as it was there before.");
  return found;
}

/** The result of some work, or something else where it throws. */
function attempt(work, otherwise) {
  try {
    return work();
  } catch {
    return otherwise;
  }
}

/** Lines such as "ada = 2" as an object. */
function equations(argument, text, read = Number) {
  return Object.fromEntries(
    linesOf(text).map((line) => {
      const at = line.lastIndexOf("=");
      const value = read(line.slice(at + 1).trim());
      if (at < 1 || value === "" || Number.isNaN(value))
        throw wrong(argument, `${sentence(argument).slice(0, -1)} must be lines such as ada = 2; got ${quoted(line)}.`);
      return [line.slice(0, at).trim(), value];
    }),
  );
}

function newExperiment(values, policy) {
  const body = { name: values.name, arms: linesOf(values.arms), policy: values.policy };
  const twice = body.arms.find((each, k) => body.arms.indexOf(each) !== k);
  if (twice !== undefined) throw wrong("arms", `Every arm needs a label of its own; ${quoted(twice)} is there twice.`);
  if (policy.takes.includes("alpha")) body.alpha = readAlpha(values.alpha);
  const settings = Object.fromEntries(policy.needs.map((each) => [each, Number(values[each])]));
  if (policy.takes.includes("feedback")) settings.feedback = values.feedback;
  if (Object.keys(settings).length > 0) body.settings = settings;
  const labels = linesOf(values.groups ?? "");
  const entitlements = equations("entitlements", values.entitlements ?? "");
  if (labels.length > 0 || Object.keys(entitlements).length > 0) {
    body.groups = {
      ...(labels.length > 0 ? { labels } : {}),
      ...(Object.keys(entitlements).length > 0 ? { entitlements } : {}),
    };
  }
  if (labels.length > 0 && labels.length !== body.arms.length)
    throw wrong("groups", `There are ${integer(body.arms.length)} arms, and the groups of ${integer(labels.length)}.`);
  if (values.low !== "" || values.high !== "") body.reward_range = [Number(values.low || 0), Number(values.high || 1)];
  if (values.wait) body.reward_wait = Number(values.wait);
  if (values.default) body.default_reward = Number(values.default);
  if (values.period) body.period = readPeriod(values.period);
  if (values.start) body.period_start = readStart(values.start);
  if (values.carry) body.carry = Number(values.carry);
  return body;
}
