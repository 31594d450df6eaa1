// Made by `python -m alphafair.service.javascript`; do not edit: change core.js or the table of endpoints.
// Not for browsers: a key in a page is public, and the service sends no CORS headers.

const FIRST_PAUSE = 50, LONGEST_PAUSE = 2000; // milliseconds between attempts
const FAILURES = 3, FIRST_BREAK = 1000, LONGEST_BREAK = 30000; // after 3 failures, decisions fall back for a second
const MOST_QUEUED = 10000, BATCH = 1000, EVERY = 1000; // entries, entries of a request, milliseconds
const NOTHING_DONE = [429, 503], TEMPORARY = [408, 429, 502, 503, 504];
const OF_ONE_EXPERIMENT = ["paused", "policy_failed", "not_described"]; // errors that say nothing about the service
const REFUSED = [404, 409, 410, 413, 422]; // statuses of entries that would be refused again, but for "not_found"
const UNLOGGED = "unlogged-"; // begins ids of decisions that no log has, because the experiment lacks their arm
const QUEUED = {
  observation: "/v1/experiments/{name}/observations",
  reward: "/v1/experiments/{name}/rewards/batch",
  activation: "/v1/experiments/{name}/activations",
};

/** The service, or a proxy, rejects a call; `code`, `argument` and `repair` are the service's own. */
export class ServiceError extends Error {
  constructor(status, code, message, argument = null, repair = null) {
    super(`${status} ${code}: ${message}${repair && !message.includes(repair) ? ` ${repair}` : ""}`);
    Object.assign(this, { name: "ServiceError", status, code, argument, repair });
  }
}

/** There was no answer in time. */
export class ConnectionError extends Error {
  name = "ConnectionError";
}

const now = () => performance.now();
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const statusOf = (code) => STATUSES[code] ?? 422;

/** An id of 96 random bits after a time stamp, so that new ids are close together in an index. */
function newId() {
  const stamp = Math.floor(Date.now() / 1024) % 2 ** 32;
  const bytes = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0"));
  return stamp.toString(16).padStart(8, "0") + bytes.join("");
}

/** JSON has no infinity: alpha is then the string "inf"; any other number that is not finite is an error. */
const encoded = (body) =>
  JSON.stringify(body, (key, value) => {
    if (typeof value !== "number" || Number.isFinite(value)) return value;
    if (key === "alpha" && value === Infinity) return "inf";
    throw new ServiceError(422, "bad_request", `${key} must be a finite number; got ${value}.`, key);
  });

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function errorOf(status, error, text = "") {
  if (error) return new ServiceError(status, error.code, error.message, error.argument, error.repair);
  const message = `This answer is not from the service; it begins with ${JSON.stringify(text.slice(0, 100))}.`;
  const code = status === 404 ? "not_found" : "bad_answer";
  return new ServiceError(status, code, message, null, "Check the url, and any proxy.");
}

/** The milliseconds to wait that an answer asks for: seconds, or a date by the clock of the sender. */
function retryAfter(headers) {
  const asked = headers.get("retry-after") ?? "";
  if (/^[0-9]+(\.[0-9]+)?$/.test(asked)) return 1000 * asked;
  return Math.max(Date.parse(asked) - (Date.parse(headers.get("date")) || Date.now()), 0) || 0;
}

/** Whether nobody answered, or the answer is "not now". */
const isOutage = ({ name, status, code }) =>
  name === "ConnectionError" ||
  (name === "ServiceError" && (status >= 500 || [408, 429].includes(status) || ["paused", "bad_answer"].includes(code)));
const isRefused = (problem) => REFUSED.includes(problem.status) && problem.code !== "not_found" && !isOutage(problem);

/** What every call goes through: attempts until a deadline, the fallback, and the queue of what was shown. */
class Calls {
  #queue = new Map();
  #failures = 0;
  #pause = FIRST_BREAK;
  #until = 0; // decisions fall back at once before then, once enough calls have failed
  #delivery = null;
  #timer = null;
  #warned = new Set();
  #fallsBack;
  #closed = false;

  constructor(url = "http://127.0.0.1:8000", options = {}) {
    const { key, timeout = 5000, decideTimeout = timeout, retries = 8, fallback = null } = options;
    for (const [name, value] of Object.entries({ timeout, decideTimeout })) {
      if (!(value > 0 && value < 2 ** 31)) throw new RangeError(`${name} must be milliseconds in (0, 2^31); got ${value}.`);
    }
    this.url = new URL(url).href.replace(/\/+$/, "");
    this.headers = { accept: "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
    Object.assign(this, { timeout, decideTimeout, retries, fallback, dropped: 0 });
    this.#fallsBack = fallback !== null; // or once a decision has: then rewards are queued, too
  }

  /** How many decisions, rewards and activations wait until somebody answers. */
  get queued() {
    return [...this.#queue.values()].filter((entry) => entry.kind !== "deferred").length;
  }

  /** Send what is queued, for at most so many milliseconds; true if nothing is left. */
  async flush(timeout = this.timeout) {
    const deadline = now() + timeout;
    while (this.queued > 0 && now() < deadline) {
      if (!(await this.#deliver(deadline))) await sleep(Math.min(FIRST_PAUSE, Math.max(deadline - now(), 0)));
    }
    return this.queued === 0;
  }

  /** Send what is queued for up to a second; later calls fail. */
  async close() {
    await this.flush(1000);
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** Send a request, again after failures if sending it twice has no further effect, and return the answer. */
  async _call(endpoint, parameters, { body, query, timeout = this.timeout } = {}) {
    if (this.#closed) throw new ConnectionError("This client is closed. Create a new one, or close it later.");
    const path = endpoint.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(parameters[name]));
    const search = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value != null)).toString();
    const headers = body === undefined ? this.headers : { ...this.headers, "content-type": "application/json" };
    const request = { method: endpoint.method, headers, body: body && encoded(body), redirect: "manual" };
    const deadline = now() + timeout;
    for (let attempt = 1, bound = FIRST_PAUSE; ; attempt++, bound = Math.min(2 * bound, LONGEST_PAUSE)) {
      const left = Math.min(deadline - now(), endpoint.repeatable ? timeout / 2 : timeout);
      let failure, again = endpoint.repeatable, asked = 0;
      try {
        const signal = AbortSignal.timeout(Math.max(Math.ceil(left), 1));
        const response = await fetch(this.url + path + (search && `?${search}`), { ...request, signal });
        if (response.ok && endpoint.raw) return response;
        const text = await response.text(), found = parsed(text);
        if (response.ok && found !== undefined && !found?.error) return found;
        failure = errorOf(response.status, found?.error, text);
        again &&= TEMPORARY.includes(response.status);
        again ||= NOTHING_DONE.includes(response.status) && Boolean(found?.error);
        asked = retryAfter(response.headers);
      } catch (problem) {
        const unknown = endpoint.repeatable ? "" : " Whether it was carried out is unknown: look before you repeat it.";
        const reason = `${problem.cause?.message ?? problem.message}.${unknown}`;
        failure = new ConnectionError(`No answer to ${endpoint.method} ${path}: ${reason}`, { cause: problem });
      }
      const pause = asked + (0.5 + 0.5 * Math.random()) * bound;
      if (!again || attempt > this.retries || now() + pause >= deadline) throw failure;
      await sleep(pause);
    }
  }

  /** A batch; decisions without an id get one, so that repeated attempts are one decision each. */
  _batch(endpoint, parameters, { body, ...options }) {
    const items = body.items.map((item) => ({ ...item, id: item.id ?? newId() }));
    return this._call(endpoint, parameters, { ...options, body: { ...body, items } });
  }

  // while nobody answers

  /** A decision; if there is an arm to fall back on, it is shown in an outage. */
  async _decision(endpoint, { name }, { body, timeout = this.decideTimeout }) {
    const item = { ...body, id: body?.id ?? newId() };
    const send = () => this._call(endpoint, { name }, { body: item, timeout });
    if ((item.incumbent ?? this.fallback) === null || item.k != null) return send();
    return this.#unlessBroken(send, (problem) => this.#fallBack(name, item, problem));
  }

  /** A reward or an activation: added to its decision if that is queued, and queued itself in an outage. */
  async _report(endpoint, { name }, { body, timeout }) {
    if (String(body.id).startsWith(UNLOGGED)) return { outcome: "unknown" };
    const entry = this.#queue.get(`observation ${name} ${body.id}`);
    if (entry !== undefined) {
      if (endpoint.queued === "reward") entry.body = { ...entry.body, reward: body.reward };
      if (endpoint.queued === "activation") entry.kind = "observation";
      this.#deliverSoon();
      return { outcome: "queued" };
    }
    const send = () => this._call(endpoint, { name }, { body, timeout });
    if (!this.#fallsBack) return send();
    return this.#unlessBroken(send, (problem) => {
      if (problem && !isOutage(problem)) throw problem;
      this.#put(endpoint.queued, name, body);
      return { outcome: "queued" };
    });
  }

  /** The breaker: after failures in a row, `otherwise` answers at once, but for one trial after each pause. */
  async #unlessBroken(send, otherwise) {
    if (this.#failures >= FAILURES) {
      if (now() < this.#until) return otherwise(null);
      this.#pause = Math.min(2 * this.#pause, LONGEST_BREAK);
      this.#until = now() + this.#pause;
    }
    try {
      const answer = await send();
      this.#failures = 0;
      if (this.queued > 0) this.#deliver(now() + this.timeout);
      return answer;
    } catch (problem) {
      if (this.#closed) throw problem;
      if (!isOutage(problem)) this.#failures = 0;
      else if (!OF_ONE_EXPERIMENT.includes(problem.code) && now() >= this.#until && ++this.#failures >= FAILURES) {
        if (this.#failures === FAILURES) this.#pause = FIRST_BREAK;
        this.#until = now() + this.#pause;
      }
      return otherwise(problem);
    }
  }

  /** The receipt of an arm that is shown without the service; whatever is no outage is thrown. */
  #fallBack(name, { id: asked, context, available, incumbent, deferred, ...told }, problem) {
    const isNewArm = problem?.code === "unknown_arm" && problem.argument === "incumbent";
    if (problem && !isOutage(problem) && !isNewArm) throw problem;
    let arm = incumbent ?? this.fallback;
    if (typeof arm === "function") arm = arm(name, context, available);
    else if (incumbent == null && available && !available.includes(arm)) arm = available[0];
    const id = (isNewArm ? UNLOGGED : "") + newId();
    if (isNewArm) {
      this.dropped++;
      if (!this.#warned.has(arm)) console.warn(`alphafair: ${name} has no arm ${arm}: it is shown, and not logged.`);
      this.#warned.add(arm);
    } else {
      const { features, unit, incumbent_propensity: propensity } = told;
      const body = { id, context, arm, source: "fallback", propensity, features, unit, instead_of: asked };
      this.#put(deferred ? "deferred" : "observation", name, body); // if deferred, it waits for its activation
    }
    return { id, arm, propensity: null, context, source: "fallback" };
  }

  #put(kind, name, body) {
    this.#fallsBack = true;
    this.#queue.set(`${kind === "deferred" ? "observation" : kind} ${name} ${body.id}`, { kind, name, body });
    if (this.#queue.size > MOST_QUEUED) {
      const [oldest, entry] = this.#queue.entries().next().value;
      this.#queue.delete(oldest);
      if (entry.kind !== "deferred") this.dropped++;
    }
    this.#deliverSoon();
  }

  #deliverSoon() {
    this.#timer ??= setTimeout(async () => {
      await this.#deliver(now() + this.timeout);
      this.#timer = null;
      if (this.queued > 0 && !this.#closed) this.#deliverSoon();
    }, EVERY);
    this.#timer.unref?.(); // a program may end without it
  }

  /** Send all that is queued, one delivery at a time; false if some of it has to wait. */
  #deliver(deadline) {
    this.#delivery ??= this.#deliverAll(deadline).finally(() => (this.#delivery = null));
    return this.#delivery;
  }

  async #deliverAll(deadline) {
    const failed = new Set(); // kinds and experiments
    for (let batch; (batch = this.#nextBatch(failed)).length > 0; ) {
      try {
        await this.#send(batch, deadline);
        this.#until = Math.min(this.#until, now()); // somebody answers: the next decision is a trial
      } catch {
        failed.add(batch[0].kind + batch[0].name);
      }
    }
    return failed.size === 0;
  }

  /** The oldest entries of one kind and experiment; decisions come before the rewards that refer to them. */
  #nextBatch(failed) {
    const entries = [...this.#queue].map(([key, entry]) => ({ key, ...entry }));
    const ready = entries.filter(({ kind, name }) => kind !== "deferred" && !failed.has(kind + name));
    const first = ready.find(({ kind }) => kind === "observation") ?? ready[0];
    const alike = ready.filter(({ kind, name }) => kind === first.kind && name === first.name);
    return alike.slice(0, first?.kind === "activation" ? 1 : BATCH);
  }

  async #send(batch, deadline) {
    const [{ kind, name, body }] = batch, single = kind === "activation";
    const endpoint = { method: "POST", path: QUEUED[kind], repeatable: true };
    const timeout = Math.max(Math.min(deadline - now(), this.timeout), 1);
    let answers;
    try {
      const sent = single ? body : { items: batch.map((each) => each.body) };
      const found = await this._call(endpoint, { name }, { body: sent, timeout });
      answers = single ? [found] : found.items;
    } catch (problem) {
      if (!isRefused(problem)) throw problem;
      if (batch.length > 1 && [413, 422].includes(problem.status)) { // perhaps for one of them
        const half = batch.length >> 1;
        await this.#send(batch.slice(0, half), deadline);
        return this.#send(batch.slice(half), deadline);
      }
      answers = batch.map(() => ({ error: problem }));
    }
    const problems = answers.map(({ error }) => error && errorOf(statusOf(error.code), error));
    batch.forEach((entry, k) => this.#settle(entry, problems[k]));
    const waits = problems.find((problem) => problem && !isRefused(problem));
    if (waits) throw waits;
  }

  /** Remove an entry that was answered for good; a reward that arrived meanwhile becomes an entry of its own. */
  #settle({ key, kind, name, body }, problem) {
    if (problem && !isRefused(problem)) return;
    const { reward } = this.#queue.get(key)?.body ?? body;
    this.#queue.delete(key);
    if (problem) this.dropped++;
    const shown = { ...body, reward: undefined };
    if (kind !== "observation") return;
    if (problem?.argument?.includes("reward") && body.reward !== undefined) this.#put(kind, name, shown);
    else if (!problem && reward !== body.reward) this.#put("reward", name, { id: body.id, reward });
  }
}

const STATUSES = {
  "unknown_experiment": 404,
  "unknown_arm": 404,
  "unknown_context": 404,
  "unknown_key": 404,
  "unknown_decision": 404,
  "unknown_group": 404,
  "experiment_exists": 409,
  "arm_exists": 409,
  "paused": 409,
  "too_many_contexts": 409,
  "too_many_sources": 409,
  "id_taken": 409,
  "not_activated": 409,
  "conflict_decision": 409,
  "expired_decision": 410,
  "rolled_back_decision": 410,
  "policy_failed": 503
}; // else 422

const ENDPOINTS = {
  experiments: { method: "GET", path: "/v1/experiments", repeatable: true },
  create: { method: "POST", path: "/v1/experiments", repeatable: false },
  experiment: { method: "GET", path: "/v1/experiments/{name}", repeatable: true },
  change: { method: "PATCH", path: "/v1/experiments/{name}", repeatable: false },
  erase: { method: "DELETE", path: "/v1/experiments/{name}/contexts", repeatable: false },
  history: { method: "GET", path: "/v1/experiments/{name}/history", repeatable: true },
  evaluate: { method: "GET", path: "/v1/experiments/{name}/evaluation", repeatable: true },
  log: { method: "GET", path: "/v1/experiments/{name}/log", repeatable: true, raw: true },
  decide: { method: "POST", path: "/v1/experiments/{name}/decisions", repeatable: true },
  reward: { method: "POST", path: "/v1/experiments/{name}/rewards", repeatable: true, queued: "reward" },
  activate: { method: "POST", path: "/v1/experiments/{name}/activations", repeatable: true, queued: "activation" },
  decideMany: { method: "POST", path: "/v1/experiments/{name}/decisions/batch", repeatable: true },
  rewardMany: { method: "POST", path: "/v1/experiments/{name}/rewards/batch", repeatable: true },
  observeMany: { method: "POST", path: "/v1/experiments/{name}/observations", repeatable: true },
  createKey: { method: "POST", path: "/v1/keys", repeatable: false },
  listKeys: { method: "GET", path: "/v1/keys", repeatable: true },
  rotateKey: { method: "POST", path: "/v1/keys/{id}/rotations", repeatable: false },
  revokeKey: { method: "DELETE", path: "/v1/keys/{id}", repeatable: true },
  health: { method: "GET", path: "/health", repeatable: true },
  ready: { method: "GET", path: "/ready", repeatable: true },
  prometheus: { method: "GET", path: "/metrics", repeatable: true, raw: true },
  openapi: { method: "GET", path: "/openapi.json", repeatable: true },
};

/** A client of the service: one method for each endpoint, with the fields of its JSON. */
export class Client extends Calls {
  /** List the names of the experiments that the key may see. */
  experiments(options) {
    return this._call(ENDPOINTS.experiments, {}, { ...options });
  }

  /** Create an experiment; the key must not be limited. */
  create(body, options) {
    return this._call(ENDPOINTS.create, {}, { ...options, body });
  }

  /** Show the current state of an experiment. */
  experiment(name, options) {
    return this._call(ENDPOINTS.experiment, { name }, { ...options });
  }

  /** Change a running experiment: exactly one change per request. */
  change(name, body, options) {
    return this._call(ENDPOINTS.change, { name }, { ...options, body });
  }

  /** Erase a context's label and the ids of its decisions permanently; the numbers stay. */
  erase(name, query, options) {
    return this._call(ENDPOINTS.erase, { name }, { ...options, query });
  }

  /** List every change of an experiment: when, what, and by which key. */
  history(name, options) {
    return this._call(ENDPOINTS.history, { name }, { ...options });
  }

  /** Estimate from the log what fair policies would have earned, in the background: ask again while it computes. */
  evaluate(name, query, options) {
    return this._call(ENDPOINTS.evaluate, { name }, { ...options, query });
  }

  /** Download the log: context, arm, propensity and reward of every decision. One download per key, two in all. */
  log(name, query, options) {
    return this._call(ENDPOINTS.log, { name }, { timeout: 600000, ...options, query });
  }

  /** Draw an arm for a context, or `k` of them. The same id again returns the same decision. */
  decide(name, body, options) {
    return this._decision(ENDPOINTS.decide, { name }, { ...options, body });
  }

  /** Report the reward of a decision. The same reward again has no effect; another one is a conflict. */
  reward(name, body, options) {
    return this._report(ENDPOINTS.reward, { name }, { ...options, body });
  }

  /** Report that a deferred decision was carried out: from then on it counts. */
  activate(name, body, options) {
    return this._report(ENDPOINTS.activate, { name }, { ...options, body });
  }

  /** Make up to 1,000 decisions: one answer per item, in order. An item with an error does not affect the others. */
  decideMany(name, body, options) {
    return this._batch(ENDPOINTS.decideMany, { name }, { ...options, body });
  }

  /** Report up to 1,000 rewards: one answer per item, in order. */
  rewardMany(name, body, options) {
    return this._call(ENDPOINTS.rewardMany, { name }, { ...options, body });
  }

  /** Record up to 1,000 decisions that others made, with or without rewards: one answer per item, in order. */
  observeMany(name, body, options) {
    return this._batch(ENDPOINTS.observeMany, { name }, { ...options, body });
  }

  /** Create a key. Only this answer shows it. The first one must be an admin key without limits. */
  createKey(body, options) {
    return this._call(ENDPOINTS.createKey, {}, { ...options, body });
  }

  /** List all keys without their secrets. */
  listKeys(options) {
    return this._call(ENDPOINTS.listKeys, {}, { ...options });
  }

  /** Replace a key by a new one of the same name, role and limits; the old one expires after `grace` seconds. */
  rotateKey(id, body, options) {
    return this._call(ENDPOINTS.rotateKey, { id }, { ...options, body });
  }

  /** Revoke a key. */
  revokeKey(id, options) {
    return this._call(ENDPOINTS.revokeKey, { id }, { ...options });
  }

  /** Report that the process is running. */
  health(options) {
    return this._call(ENDPOINTS.health, {}, { ...options });
  }

  /** Report whether decisions are made now; with a key, also why not. */
  ready(options) {
    return this._call(ENDPOINTS.ready, {}, { ...options });
  }

  /** Show counts and times for Prometheus. */
  prometheus(options) {
    return this._call(ENDPOINTS.prometheus, {}, { ...options });
  }

  /** Describe the routes for programs. */
  openapi(options) {
    return this._call(ENDPOINTS.openapi, {}, { ...options });
  }
}
