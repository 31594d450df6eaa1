// The fallback: a server that answers as a test wants, or not at all.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { afterEach, beforeEach, test } from "node:test";
import { Client, ConnectionError } from "../../../clients/javascript/alphafair.js";

const DRAWN = { id: "x", arm: "ben", propensity: 0.5, context: "v" };
const each = (outcome) => ({ items }) => [200, { items: items.map(() => outcome) }];
const refused = (status, code, argument) => [status, { error: { code, message: "No.", argument } }];
let server, url, seen, answers;

beforeEach(async () => {
  seen = [];
  answers = {
    decisions: () => [200, DRAWN],
    observations: each({ id: "x", outcome: "recorded" }),
    batch: each({ outcome: "applied" }),
    rewards: () => [200, { outcome: "applied" }],
    activations: () => [200, { outcome: "activated" }],
  };
  server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    const route = request.url.split("/").at(-1), body = JSON.parse(text);
    seen.push([route, body]);
    const answer = answers[route](body);
    if (answer === undefined) return; // never
    if (answer === null) return response.destroy();
    response.writeHead(answer[0], { "content-type": "application/json" }).end(JSON.stringify(answer[1]));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${server.address().port}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const sentTo = (route) => seen.filter(([name]) => name === route).map(([, body]) => body);
const client = (options) => new Client(url, { timeout: 20000, retries: 0, ...options });

test("without a fallback, an outage is thrown", async () => {
  answers.decisions = () => undefined;
  await assert.rejects(client({ decideTimeout: 60 }).decide("home", { context: "v" }), ConnectionError);
  answers.decisions = () => refused(503, "unavailable");
  await assert.rejects(client().decide("home", { context: "v" }), { status: 503 });
  answers.rewards = answers.decisions;
  await assert.rejects(client().reward("home", { id: "x", reward: 1 }), { status: 503 });
});

test("what is shown in an outage is recorded once somebody answers, with its reward", async () => {
  const shop = client({ fallback: (experiment, context, available) => `${experiment}:${context}:${available}` });
  answers.decisions = () => null;
  const shown = await shop.decide("home", { context: "v", id: "mine", available: ["ada", "cyd"] });
  assert.deepEqual({ ...shown, id: "" }, { id: "", arm: "home:v:ada,cyd", propensity: null, context: "v", source: "fallback" });
  const other = await shop.decide("home", { context: "w", incumbent: "ben" });
  assert.equal(other.arm, "ben");
  assert.notEqual(shown.id, other.id);
  assert.deepEqual(await shop.reward("home", { id: shown.id, reward: 0.5 }), { outcome: "queued" });
  assert.equal(shop.queued, 2);
  assert.equal(await shop.flush(), true);
  const [{ items }] = sentTo("observations");
  assert.deepEqual(items[0], { id: shown.id, context: "v", arm: shown.arm, source: "fallback", instead_of: "mine", reward: 0.5 });
  assert.equal(items[1].instead_of, sentTo("decisions").at(-1).id);
  assert.deepEqual([shop.queued, shop.dropped, sentTo("batch").length], [0, 0, 0]);
  assert.deepEqual(await shop.reward("home", { id: shown.id, reward: 0.5 }), { outcome: "applied" });
});

test("an arm that cannot be shown is not, and mistakes are thrown", async () => {
  const shop = client({ fallback: "ada" });
  answers.decisions = () => refused(409, "paused");
  assert.equal((await shop.decide("home", { context: "v" })).arm, "ada");
  assert.equal((await shop.decide("home", { context: "v", available: ["ben", "cyd"] })).arm, "ben");
  for (const problem of [refused(422, "bad_request"), refused(401, "unauthorized"), refused(404, "unknown_arm", "available")]) {
    answers.decisions = () => problem;
    await assert.rejects(shop.decide("home", { context: "v" }), { status: problem[0] });
  }
  answers.decisions = () => refused(503, "unavailable");
  await assert.rejects(shop.decide("home", { context: "v", k: 2 }), { status: 503 }); // a slate has no fallback
});

test("after three failures in a row, decisions fall back at once, but for one trial after each pause", async () => {
  const shop = client({ fallback: "ada" });
  answers.decisions = answers.observations = () => refused(503, "unavailable");
  for (let k = 0; k < 20; k++) assert.equal((await shop.decide("home", { context: "v" })).source, "fallback");
  assert.equal(sentTo("decisions").length, 3);
  await new Promise((resolve) => setTimeout(resolve, 1050));
  for (let k = 0; k < 20; k++) await shop.decide("home", { context: "v" });
  assert.equal(sentTo("decisions").length, 4);
  answers.observations = each({ id: "x", outcome: "recorded" });
  answers.decisions = () => [200, DRAWN];
  assert.equal(await shop.flush(), true); // somebody answers: the next decision is a trial
  assert.deepEqual(await shop.decide("home", { context: "v" }), DRAWN);
  assert.equal(sentTo("observations").flatMap(({ items }) => items).length >= 40, true);
});

test("rewards and activations of other decisions wait, too", async () => {
  const shop = client({ fallback: "ada" });
  answers.rewards = answers.activations = () => null;
  answers.batch = () => refused(503, "unavailable");
  assert.deepEqual(await shop.reward("home", { id: "a", reward: 1 }), { outcome: "queued" });
  assert.deepEqual(await shop.activate("home", { id: "b" }), { outcome: "queued" });
  assert.equal(await shop.flush(100), false);
  answers.activations = () => [200, { outcome: "activated" }];
  answers.batch = each({ outcome: "applied" });
  assert.equal(await shop.flush(), true);
  assert.deepEqual(sentTo("batch").at(-1), { items: [{ id: "a", reward: 1 }] });
  assert.deepEqual(sentTo("activations").at(-1), { id: "b" });
});

test("a deferred decision waits for its activation", async () => {
  const shop = client({ fallback: "ada" });
  answers.decisions = () => null;
  const [shown, hidden] = [await shop.decide("home", { context: "v", deferred: true }), await shop.decide("home", { context: "w", deferred: true })];
  assert.equal(shop.queued, 0);
  assert.deepEqual(await shop.activate("home", { id: shown.id }), { outcome: "queued" });
  assert.equal(await shop.flush(), true);
  const ids = sentTo("observations").flatMap(({ items }) => items.map(({ id }) => id));
  assert.deepEqual([ids.includes(shown.id), ids.includes(hidden.id)], [true, false]);
});

test("a new arm of the incumbent is shown, and not logged", async (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const shop = client();
  answers.decisions = () => refused(404, "unknown_arm", "incumbent");
  for (let k = 0; k < 2; k++) {
    const shown = await shop.decide("home", { context: "v", incumbent: "new" });
    assert.equal(shown.arm, "new");
    assert.deepEqual(await shop.reward("home", { id: shown.id, reward: 1 }), { outcome: "unknown" });
  }
  assert.deepEqual([shop.queued, shop.dropped, warn.mock.callCount(), sentTo("rewards").length], [0, 2, 1, 0]);
});

test("entries that are refused for good are counted, and do not hold up the others", async () => {
  const shop = client({ fallback: "ada" });
  answers.decisions = () => null;
  const shown = [];
  for (const context of ["long", "bad reward", "good"]) shown.push(await shop.decide("home", { context }));
  await shop.reward("home", { id: shown[1].id, reward: 99 });
  answers.observations = ({ items }) => {
    if (items.length > 1 && items.some(({ context }) => context === "long")) return refused(413, "too_large");
    return [200, { items: items.map(({ context, reward }) =>
      context === "long" ? { error: { code: "bad_request", message: "No." } }
        : reward === 99 ? { error: { code: "bad_reward", message: "No.", argument: "reward" } } : { outcome: "recorded" }) }];
  };
  assert.equal(await shop.flush(), true);
  assert.equal(shop.dropped, 2); // an entry, and a reward
  assert.deepEqual(sentTo("observations").at(-1).items.map(({ context, reward }) => [context, reward]), [["bad reward", undefined]]);
});

test("a reward that arrives while its decision is sent is sent after it", async () => {
  const shop = client({ fallback: "ada" });
  answers.decisions = () => null;
  const shown = await shop.decide("home", { context: "v" });
  let arrived = null;
  answers.observations = (body) => ((arrived ??= shop.reward("home", { id: shown.id, reward: 1 })), each({ outcome: "recorded" })(body));
  assert.equal(await shop.flush(), true);
  assert.deepEqual(await arrived, { outcome: "queued" });
  assert.deepEqual(sentTo("batch"), [{ items: [{ id: shown.id, reward: 1 }] }]);
});

test("the queue has a limit, and the oldest go first", async () => {
  const shop = client({ fallback: "ada" });
  server.closeAllConnections();
  server.close();
  for (let k = 0; k < 10010; k++) await shop.decide("home", { context: `${k}` });
  assert.deepEqual([shop.queued, shop.dropped], [10000, 10]);
});
