// Made by `python -m alphafair.service.javascript`; do not edit: change core.js or the table of endpoints.
// Not for browsers: a key in a page is public, and the service sends no CORS headers.

/** The names of experiments. */
export interface Experiments {
  experiments: string[];
}

/** The arguments of `Engine.create`; `settings` are passed to the policy. */
export interface NewExperiment {
  /** Letters, digits, dots, dashes and underscores: it is part of a path. */
  name: string;
  /** The labels of the arms. */
  arms: string[];
  /** The name of a policy. */
  policy?: string;
  /** 0: the largest sum of rewards; 1: proportional fairness; the string inf: the largest minimum. */
  alpha?: number | "inf";
  /** The group of every arm. */
  groups?: string[] | GroupsOfArms;
  /** The smallest and the largest reward. */
  reward_range?: number[];
  /** Seconds to wait for a reward. */
  reward_wait?: number | null;
  /** The reward of a decision whose waiting time has ended. */
  default_reward?: number | null;
  /** Fairness counts per period of so many seconds, or of a duration such as 7d. */
  period?: number | string;
  /** When a period starts, in ISO 8601. Default: the creation. */
  period_start?: string;
  /** The part of what was earned that counts in the next period. Default: 0.5. */
  carry?: number;
  /** Features of every decision by name: "number", "number?" if it may be missing, or a list of labels, in which "*" stands for all others. */
  features?: Record<string, string | string[]>;
  /** Features of every decision by name: "number", "number?" if it may be missing, or a list of labels, in which "*" stands for all others. */
  arm_features?: Record<string, string | string[]>;
  /** Who decides: the policy, the incumbent, or the policy for a share of the units. */
  mode?: "live" | "share" | "watch";
  /** The part of units that the policy decides for. */
  share?: number | null;
  /** Of the hash that divides units. Default: the name. */
  salt?: string | null;
  /** Settings of the policy. */
  settings?: Record<string, boolean | number | string>;
}

/** The groups to be fair to. Without `labels`, every arm is a group of its own. */
export interface GroupsOfArms {
  /** The group of every arm: a list in the order of arms, or an object from arm to group. */
  labels?: string[] | Record<string, string> | null;
  /** What each group is entitled to. Default: 1 each. */
  entitlements?: Record<string, number> | null;
  /** The least probability: one number for each arm, or one per group. */
  pull_floor?: number | Record<string, number> | null;
}

/** The current state of an experiment. `decisions` is the sum of `rewards` (received), `defaulted` (got the default reward when their waiting time ended), `expired` (closed without a reward then), `lapsed` (deferred, and not activated before then), `rolled_back` (closed by a rollback) and `pending` (waiting for a reward or an activation). `position` is that of its last event, which a rollback takes. `cumulative_rewards` is the sum of each arm's rewards in the units of `reward_range`. `accounts` is 1 plus the rewards mapped to [0, 1], for every group or arm; fairness is measured on it. `welfare` is the power mean of the accounts, which `alpha` maximizes. Without accounts `jain_index` is that of `cumulative_rewards`. `alpha` is a number or the string "inf". `mode` says who decides. `sides` compares the policy's decisions with those of others since the last change of mode, share or salt; it is null before the first mode or observation. `share_seen` is the policy's part of the decisions in mode `share`. `alpha_performance` is null where it is not finite, as for "inf". `groups` is null if every arm is a group of its own. `unhealthy` is null, or why the policy failed. `period` is in seconds; `periods` has the books of every period, the current one last, and is empty if there was never more than one. `features` are those of every decision, as declared, or null. `arm_features` are those of arms, and `features_by_arm` their values, null for an arm that lacks a required one. With a `context_share` every context is promised that part of the rewards of its best arm: `largest_context_debt` is what is missing, and at most `context_share_bound` with full information. With bandit feedback the promise is a target: the debt is computed from predictions, and the bound is null. */
export interface ExperimentAnswer {
  name: string;
  policy: string;
  feedback: "bandit" | "full";
  alpha: number | "inf" | null;
  arms: string[];
  retired_arms: string[];
  masked_arms: string[];
  paused: boolean;
  /** The smallest and the largest reward. */
  reward_range: number[];
  reward_wait: number | null;
  default_reward: number | null;
  contexts: number;
  max_contexts: number;
  decisions: number;
  rewards: number;
  defaulted: number;
  expired: number;
  lapsed: number;
  rolled_back: number;
  pending: number;
  position: number;
  pulls: Record<string, number>;
  cumulative_rewards: Record<string, number>;
  accounts: Record<string, number>;
  groups: GroupStatus | null;
  context_weight: number;
  context_share: number;
  largest_context_debt: number | null;
  context_share_bound: number | null;
  welfare: number | null;
  jain_index: number | null;
  alpha_performance: number | null;
  period: number | null;
  period_ends: string | null;
  carry: number;
  periods: PeriodStatus[];
  features: Record<string, string | string[]> | null;
  arm_features: Record<string, string | string[]> | null;
  features_by_arm: Record<string, Record<string, number | string | null> | null> | null;
  mode: "live" | "share" | "watch";
  share: number | null;
  sides: SideStatus[] | null;
  share_seen: Interval | null;
  unhealthy: string | null;
}

/** The groups of an experiment, by label; None where nothing was set. */
export interface GroupStatus {
  labels: Record<string, string> | null;
  entitlements: Record<string, number> | null;
  pull_floor: number | Record<string, number> | null;
}

/** The books of one period: by arm what it earned in the period, by group or arm the accounts of fairness. Arms that were retired before the period are left out, unless a late reward arrived for them. */
export interface PeriodStatus {
  number: number;
  started: string;
  ended: string | null;
  first_position: number;
  last_position: number | null;
  rewards: Record<string, number>;
  entry_accounts: Record<string, number>;
  accounts: Record<string, number>;
}

/** What one side earned, of decisions since the last change of mode, share or salt; None before its first reward. Welfare and Jain's index are those of accounts that the rewards of the side would lead to with the decisions of both sides, so that sides are comparable. */
export interface SideStatus {
  source: string;
  decisions: number;
  rewarded: number;
  mean_reward: Interval | null;
  welfare: Interval | null;
  jain_index: Interval | null;
  least_share: number | null;
  against_policy: AgainstPolicy | null;
}

/** A value, and a 95% interval that holds at every look; without one where too few visitors were rewarded. */
export interface Interval {
  value: number;
  low: number | null;
  high: number | null;
}

/** What the incumbent's side has more than the policy's, and its welfare over the policy's. */
export interface AgainstPolicy {
  mean_reward: Interval;
  welfare_ratio: Interval | null;
  jain_index: Interval;
}

/** One change of a running experiment: exactly one field. But `group`, `entitlement` and `features` go with `add_arm`, `period_start` with `period`, and `carry` with `period` or `new_period`. */
export interface ChangeRequest {
  /** 0: the largest sum of rewards; 1: proportional fairness; the string inf: the largest minimum. */
  alpha?: number | "inf";
  /** Add this arm. */
  add_arm?: string;
  /** The group of the added arm. */
  group?: string;
  /** What a new group is entitled to. */
  entitlement?: number;
  /** The features of the added arm. */
  features?: Record<string, unknown>;
  /** Never draw this arm again. */
  retire_arm?: string;
  /** Do not draw this arm until it is unmasked. */
  mask_arm?: string;
  /** Draw this arm again. */
  unmask_arm?: string;
  /** Reject decisions, or accept them again. */
  paused?: boolean;
  /** Forget what was learned after this position of the event log. */
  rollback?: number;
  /** True: start a period now. */
  new_period?: boolean;
  /** Later periods, in seconds or as 7d. null: they end by new_period alone. */
  period?: number | string | null;
  /** When a period starts, in ISO 8601. Default: as before if the length stays, else now. */
  period_start?: string;
  /** The carry of later periods, or of this new_period. */
  carry?: number;
  terms?: ChangedTerms;
}

/** Terms to change, all at once. What is left out stays; null returns to the default. */
export interface ChangedTerms {
  /** The group of arms; those left out stay. At first all of them. null: each by itself. */
  groups?: Record<string, string> | null;
  /** Of groups, or of arms without groups; others stay. */
  entitlements?: Record<string, number> | null;
  /** The least probability: one number for each arm, or one per group. */
  pull_floor?: number | Record<string, number> | null;
  /** Who decides: the policy, the incumbent, or the policy for a share of the units. */
  mode?: "live" | "share" | "watch" | null;
  /** The part of units that the policy decides for. */
  share?: number | null;
  /** Of the hash that divides units. Default: the name. */
  salt?: string | null;
  /** The weight of contexts beside arms. null: 0. */
  context_weight?: number | null;
  /** The part of its best arm promised to contexts. null: 0. */
  context_share?: number | null;
  /** Seconds to wait for a reward. */
  reward_wait?: number | null;
  /** The reward of a decision whose waiting time has ended. */
  default_reward?: number | null;
  /** Features by arm and name; other arms stay. */
  arm_features?: Record<string, Record<string, unknown>> | null;
}

/** The query of a request that erases a context. */
export interface ContextQuery {
  /** The context to erase. */
  label: string;
}

/** All changes, oldest first. */
export interface History {
  items: ChangeItem[];
}

/** A change of an experiment; `by` is null if it was not recorded. */
export interface ChangeItem {
  position: number;
  at: string;
  kind: string;
  by: string | null;
  details: Record<string, unknown>;
}

/** The query of an evaluation. */
export interface EvaluationQuery {
  /** Whose decisions: incumbent, for example. Default: the policy's. */
  source?: string;
}

/** The curve, or why there is none yet. */
export interface WhatIfAnswer {
  status: "computing" | "failed" | "no propensities" | "ready" | "too few";
  sentence: string;
  rewards: number;
  present: PresentPoint;
  curve: Curve | null;
  source?: string | null;
}

/** Where the experiment itself is, from its own counts. */
export interface PresentPoint {
  alpha: number | "inf" | null;
  average_reward: number | null;
  jain_index: number | null;
  least_share: number | null;
}

/** The price of fairness: the best fixed policy at every alpha, estimated from the log. */
export interface Curve {
  alphas: (number | "inf")[];
  average_reward: Band;
  jain_index: Band;
  least_share: Band;
  confidence: number;
  verdict: "do not use" | "thin" | "trustworthy";
  reasons: string[];
  rounds: number;
  position: number;
  computed_at: number;
  seconds: number;
}

/** An estimate with its band, a value per alpha; null where the log says nothing. */
export interface Band {
  value: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/** The query of a request for a log. */
export interface LogQuery {
  /** The file format. */
  format?: "csv" | "jsonl" | "parquet";
}

/** A decision to make: the context, and which arms can be drawn. */
export interface DecisionRequest {
  /** Who or what it is for. */
  context: string;
  /** Your own id: the same id again returns the same decision. */
  id?: string | null;
  /** The arms that can be drawn now. Default: all. */
  available?: string[] | null;
  /** The decision counts only after it is activated. */
  deferred?: boolean;
  /** Show so many different arms. Left out: one arm, as `arm`. */
  k?: number | null;
  /** A value per declared feature: a number, a boolean or a label; null where it is missing. */
  features?: Record<string, unknown> | null;
  /** The arm that you would show without the experiment. */
  incumbent?: string | null;
  /** Its probability, if the incumbent knows it. */
  incumbent_propensity?: number | null;
  /** Whom it is for, such as a visitor. Default: the context. */
  unit?: string | null;
}

/** The arm, and its probability. `source` is left out where the policy drew it; else it is who decided. */
export interface Receipt {
  id: string;
  arm: string;
  propensity: number | null;
  context: string;
  source?: string | null;
}

/** The arms that are shown, in the order of slots, and the probability of each to be among them. */
export interface SlateReceipt {
  id: string;
  arms: string[];
  propensities: number[];
  context: string;
}

/** The reward of a decision. */
export interface RewardRequest {
  /** The id of the decision. */
  id: string;
  /** A number; under full information, one for every arm; of a slate, some or all of its arms. */
  reward: number | Record<string, number>;
}

/** What became of a reward or an activation. */
export interface Outcome {
  outcome: "activated" | "applied" | "conflict" | "expired" | "repeated" | "rolled_back" | "unknown";
}

/** A deferred decision that was carried out. */
export interface ActivationRequest {
  /** The id of the decision. */
  id: string;
}

/** Decisions, made in this order. */
export interface DecisionBatch {
  items: DecisionRequest[];
}

/** One answer per item, in order. */
export interface DecisionAnswers {
  items: DecisionItem[];
}

/** The fields of a receipt, of one arm or of several, or an error. */
export interface DecisionItem {
  id?: string | null;
  arm?: string | null;
  propensity?: number | null;
  context?: string | null;
  arms?: string[] | null;
  propensities?: number[] | null;
  source?: string | null;
  error?: Problem | null;
}

/** What went wrong, with which argument, and how to repair it. */
export interface Problem {
  code: string;
  message: string;
  argument?: string | null;
  repair?: string | null;
}

/** Rewards, applied in this order. */
export interface RewardBatch {
  items: RewardRequest[];
}

/** One answer per item, in order. */
export interface RewardAnswers {
  items: RewardItem[];
}

/** An outcome, an error, or both. */
export interface RewardItem {
  outcome?: "activated" | "applied" | "conflict" | "expired" | "repeated" | "rolled_back" | "unknown" | null;
  error?: Problem | null;
}

/** Decisions of others, recorded in this order. */
export interface ObservationBatch {
  items: ObservationRequest[];
}

/** A decision that somebody else made. */
export interface ObservationRequest {
  /** Who or what it was for. */
  context: string;
  /** The arm that was shown. */
  arm: string;
  /** Your own id: the same id again returns the same decision. */
  id?: string | null;
  /** Its reward. Left out: it may be sent later. */
  reward?: number | null;
  /** The probability of the arm, if the source knows it. */
  propensity?: number | null;
  /** Who decided: at most eight in an experiment. */
  source?: string;
  /** Features of the decision. */
  features?: Record<string, unknown> | null;
  /** Whom it was made for. Default: the context. */
  unit?: string | null;
  /** The id of a decision that was not carried out because of this one. */
  instead_of?: string | null;
}

/** One answer per item, in order. */
export interface ObservationAnswers {
  items: ObservationItem[];
}

/** The id of the decision with an outcome, an error, or both. */
export interface ObservationItem {
  id?: string | null;
  outcome?: "conflict" | "expired" | "recorded" | "repeated" | "rolled_back" | null;
  error?: Problem | null;
}

/** A key to create: its role, its owner, and optional limits. */
export interface NewKey {
  role: "admin" | "log" | "metrics" | "read" | "write";
  /** The key's owner. */
  name: string;
  /** Default: all. */
  experiments?: string[] | null;
  /** Seconds. Default: until it is revoked. */
  expires_in?: number | null;
}

/** A new key. It is not shown again. */
export interface CreatedKey {
  id: string;
  key: string;
}

/** All keys, valid or not. */
export interface Keys {
  items: KeyAnswer[];
}

/** A key without its secret. A time is null if the event has not happened or never will. */
export interface KeyAnswer {
  id: string;
  name: string;
  role: "admin" | "log" | "metrics" | "read" | "write";
  experiments: string[] | null;
  valid: boolean;
  created_at: string;
  created_by: string | null;
  expires_at: string | null;
  revoked_at: string | null;
  revoked_by: string | null;
}

/** How long the old key stays valid beside the new one. */
export interface Rotation {
  /** Seconds. */
  grace?: number;
}

/** The process answers. */
export interface Health {
  status: "ok";
  version: string;
}

/** Whether decisions are made now. Callers with a key also get the reason and the state of the clock. `unhealthy` maps experiments whose policies fail, or that cannot be described, to the reason; the others are served. */
export interface Readiness {
  ready: boolean;
  reason?: string | null;
  clock_behind_seconds?: number | null;
  unhealthy?: Record<string, string>;
}

/** The service, or a proxy, rejects a call; `code`, `argument` and `repair` are the service's own. */
export class ServiceError extends Error {
  constructor(status: number, code: string, message: string, argument?: string | null, repair?: string | null);
  readonly status: number;
  readonly code: string;
  readonly argument: string | null;
  readonly repair: string | null;
}

/** There was no answer in time. */
export class ConnectionError extends Error {}

export interface ClientOptions {
  key?: string;
  /** Milliseconds of a call with all its attempts: 5000 unless given. */
  timeout?: number;
  /** Milliseconds of `decide`; by default `timeout`. */
  decideTimeout?: number;
  /** How often a request is sent again, at most: 8 unless given. */
  retries?: number;
  /** An arm, or what returns one, for decisions while nobody answers. */
  fallback?: string | ((experiment: string, context: string, available?: string[] | null) => string);
}

export interface CallOptions {
  /** Milliseconds of this call. */
  timeout?: number;
}

export class Client {
  /** By default http://127.0.0.1:8000. */
  constructor(url?: string | URL, options?: ClientOptions);
  /** How many decisions, rewards and activations wait until somebody answers. */
  readonly queued: number;
  /** How many were dropped: refused by the service, or too old for the queue. */
  readonly dropped: number;
  /** Send what is queued, for at most so many milliseconds; true if nothing is left. */
  flush(timeout?: number): Promise<boolean>;
  /** Send what is queued for up to a second; later calls fail. */
  close(): Promise<void>;
  /** List the names of the experiments that the key may see. */
  experiments(options?: CallOptions): Promise<Experiments>;
  /** Create an experiment; the key must not be limited. */
  create(body: NewExperiment, options?: CallOptions): Promise<ExperimentAnswer>;
  /** Show the current state of an experiment. */
  experiment(name: string, options?: CallOptions): Promise<ExperimentAnswer>;
  /** Change a running experiment: exactly one change per request. */
  change(name: string, body: ChangeRequest, options?: CallOptions): Promise<ExperimentAnswer>;
  /** Erase a context's label and the ids of its decisions permanently; the numbers stay. */
  erase(name: string, query: ContextQuery, options?: CallOptions): Promise<ExperimentAnswer>;
  /** List every change of an experiment: when, what, and by which key. */
  history(name: string, options?: CallOptions): Promise<History>;
  /** Estimate from the log what fair policies would have earned, in the background: ask again while it computes. */
  evaluate(name: string, query: EvaluationQuery, options?: CallOptions): Promise<WhatIfAnswer>;
  /** Download the log: context, arm, propensity and reward of every decision. One download per key, two in all. */
  log(name: string, query: LogQuery, options?: CallOptions): Promise<Response>;
  /** Draw an arm for a context, or `k` of them. The same id again returns the same decision. */
  decide(name: string, body: DecisionRequest & { k?: null }, options?: CallOptions): Promise<Receipt>;
  decide(name: string, body: DecisionRequest & { k: number }, options?: CallOptions): Promise<SlateReceipt>;
  /** Report the reward of a decision. The same reward again has no effect; another one is a conflict. */
  reward(name: string, body: RewardRequest, options?: CallOptions): Promise<Outcome>;
  /** Report that a deferred decision was carried out: from then on it counts. */
  activate(name: string, body: ActivationRequest, options?: CallOptions): Promise<Outcome>;
  /** Make up to 1,000 decisions: one answer per item, in order. An item with an error does not affect the others. */
  decideMany(name: string, body: DecisionBatch, options?: CallOptions): Promise<DecisionAnswers>;
  /** Report up to 1,000 rewards: one answer per item, in order. */
  rewardMany(name: string, body: RewardBatch, options?: CallOptions): Promise<RewardAnswers>;
  /** Record up to 1,000 decisions that others made, with or without rewards: one answer per item, in order. */
  observeMany(name: string, body: ObservationBatch, options?: CallOptions): Promise<ObservationAnswers>;
  /** Create a key. Only this answer shows it. The first one must be an admin key without limits. */
  createKey(body: NewKey, options?: CallOptions): Promise<CreatedKey>;
  /** List all keys without their secrets. */
  listKeys(options?: CallOptions): Promise<Keys>;
  /** Replace a key by a new one of the same name, role and limits; the old one expires after `grace` seconds. */
  rotateKey(id: string, body: Rotation, options?: CallOptions): Promise<CreatedKey>;
  /** Revoke a key. */
  revokeKey(id: string, options?: CallOptions): Promise<KeyAnswer>;
  /** Report that the process is running. */
  health(options?: CallOptions): Promise<Health>;
  /** Report whether decisions are made now; with a key, also why not. */
  ready(options?: CallOptions): Promise<Readiness>;
  /** Show counts and times for Prometheus. */
  prometheus(options?: CallOptions): Promise<Response>;
  /** Describe the routes for programs. */
  openapi(options?: CallOptions): Promise<Record<string, unknown>>;
}
