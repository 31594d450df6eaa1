// The client against the real service, directly and through a proxy that cuts connections.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, ConnectionError, ServiceError } from "../../../clients/javascript/alphafair.js";

const { URL_OF_SERVICE, URL_OF_PROXY } = process.env;
const client = new Client(`${URL_OF_SERVICE}/`, { timeout: 60000 });

test("a life of an experiment", async () => {
  const made = await client.create({ name: "life", arms: ["ada", "ben", "cyd"], alpha: Infinity });
  assert.equal(made.alpha, "inf");
  assert.equal((await client.change("life", { alpha: 0.5 })).alpha, 0.5);
  assert.ok((await client.experiments()).experiments.includes("life"));
  const drawn = await client.decide("life", { context: "visitor 7/ü" });
  assert.deepEqual(await client.decide("life", { context: "visitor 7/ü", id: drawn.id }), drawn);
  assert.deepEqual(await client.reward("life", { id: drawn.id, reward: 0.8 }), { outcome: "applied" });
  assert.deepEqual(await client.reward("life", { id: drawn.id, reward: 0.8 }), { outcome: "repeated" });
  const late = await client.decide("life", { context: "v", deferred: true, available: ["ben"] });
  assert.deepEqual([late.arm, late.propensity], ["ben", 1]);
  assert.deepEqual(await client.activate("life", { id: late.id }), { outcome: "activated" });
  const { items } = await client.decideMany("life", { items: [{ context: "a" }, { context: "b" }] });
  assert.deepEqual(items.map((item) => item.context), ["a", "b"]);
  const rewards = items.map(({ id }) => ({ id, reward: 0 }));
  const outcomes = await client.rewardMany("life", { items: [...rewards, { id: "nobody", reward: 1 }] });
  assert.deepEqual(outcomes.items.map((item) => item.outcome), ["applied", "applied", "unknown"]);
  const log = await (await client.log("life", { format: "csv" })).text();
  assert.equal(log.trim().split("\n").length, 1 + 4);
  assert.equal((await client.history("life")).items.at(-1).kind, "set_alpha");
  assert.equal((await client.experiment("life")).decisions, 4);
  await client.erase("life", { label: "a" });
  assert.match(await (await client.prometheus()).text(), /alphafair_/);
});

test("a slate", async () => {
  await client.create({ name: "shelf", arms: ["ada", "ben", "cyd"] });
  const shown = await client.decide("shelf", { context: "v", k: 2 });
  assert.equal(shown.arms.length, 2);
  assert.equal((await client.reward("shelf", { id: shown.id, reward: { [shown.arms[0]]: 1 } })).outcome, "applied");
});

test("errors have the parts of the service's", async () => {
  await assert.rejects(client.decide("nowhere", { context: "v" }), (problem) => {
    assert.ok(problem instanceof ServiceError);
    assert.deepEqual([problem.status, problem.code, problem.argument], [404, "unknown_experiment", "experiment"]);
    return true;
  });
  await assert.rejects(client.reward("life", { id: "x", reward: NaN }), /reward must be a finite number; got NaN/);
  await assert.rejects(client.create({ name: "life", arms: ["ada"] }), { code: "experiment_exists" });
  assert.throws(() => new Client("somewhere"), TypeError);
  assert.throws(() => new Client(URL_OF_SERVICE, { timeout: 0 }), /timeout must be milliseconds in/);
  const closed = new Client(URL_OF_SERVICE, { fallback: "ada" });
  await closed.close();
  await assert.rejects(closed.decide("life", { context: "v" }), ConnectionError);
});

test("in a network that cuts connections, every decision and every reward counts once", async () => {
  const cut = new Client(URL_OF_PROXY, { timeout: 60000, retries: 1000 });
  await client.create({ name: "cut", arms: ["ada", "ben"] });
  const visit = async (k) => {
    const { id } = await cut.decide("cut", { context: `v${k}` });
    assert.match((await cut.reward("cut", { id, reward: 1 })).outcome, /applied|repeated/);
  };
  await Promise.all(Array.from({ length: 40 }, (_, k) => visit(k)));
  const { items } = await cut.decideMany("cut", { items: Array.from({ length: 10 }, () => ({ context: "v" })) });
  await cut.rewardMany("cut", { items: items.map(({ id }) => ({ id, reward: 1 })) });
  const { decisions, rewards } = await client.experiment("cut");
  assert.deepEqual([decisions, rewards], [50, 50]);
});

test("what was shown while nobody answered is in the log, with its reward", async () => {
  await client.create({ name: "away", arms: ["ada", "ben"] });
  const shop = new Client("http://127.0.0.1:9", { fallback: "ben", retries: 0, timeout: 60000 }); // where nobody listens
  const shown = await shop.decide("away", { context: "v" });
  assert.deepEqual(await shop.reward("away", { id: shown.id, reward: 0.75 }), { outcome: "queued" });
  const drawn = await client.decide("away", { context: "w" });
  assert.deepEqual(await shop.reward("away", { id: drawn.id, reward: 0.5 }), { outcome: "queued" });
  shop.url = URL_OF_SERVICE;
  assert.equal(await shop.flush(), true);
  assert.equal(shop.dropped, 0);
  assert.deepEqual(await shop.reward("away", { id: shown.id, reward: 0.75 }), { outcome: "repeated" });
  assert.deepEqual(await client.reward("away", { id: drawn.id, reward: 0.5 }), { outcome: "repeated" });
  const rows = (await (await client.log("away", { format: "jsonl" })).text()).trim().split("\n").map((row) => JSON.parse(row));
  const { arm, reward, source } = rows.find(({ id }) => id === shown.id);
  assert.deepEqual([rows.length, arm, reward, source], [2, "ben", 0.75, "fallback"]);
});
