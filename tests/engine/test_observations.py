"""Decisions of others: recorded once, counted apart, closed when others replace them, replayed and proved."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from alphafair import Engine, Log
from alphafair.engine import Activate, Decide, Observe, RequestError, Reward
from alphafair.engine.state.sides import place_of
from alphafair.errors import InvalidArgument, Mismatch
from tests.clocks import Clock
from tests.stores import both_stores, execute, is_postgres, live_state, open_store, rows_of

pytestmark = both_stores
ITEM: Mapping[str, Any] = {"context": "v", "arm": "ada"}


def outcome(engine: Engine, *arguments: Any, **told: Any) -> str:
    return engine.observe("home", *arguments, **told).outcome


def stored(engine: Engine, id: str) -> tuple[Any, ...]:
    columns = "decided_by, arm, propensity, bucket, probabilities, available, features, deferred"
    ((row),) = rows_of(engine, f"select {columns} from decision where id = '{id}'")
    return tuple(row)


def test_what_is_told_is_stored_and_nothing_of_the_policy_changes(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    mine = engine.decide("home", "v")
    engine.reward(mine.id, 1.0)
    before = engine.experiment("home")
    assert outcome(engine, "v", "ben", 0.5, "one", propensity=0.25, unit="u") == "recorded"
    assert outcome(engine, "new", "ada", None, "two", source="history") == "recorded"
    assert stored(engine, "one") == ("incumbent", 1, 0.25, place_of("u", "home").bucket, None, None, None, 0)
    assert stored(engine, "two") == ("history", 0, 0.0, place_of("new", "home").bucket, None, None, None, 0)
    after = engine.experiment("home")
    for name in ("decisions", "rewards", "pending", "pulls", "cumulative_rewards", "accounts", "welfare"):
        assert getattr(after, name) == getattr(before, name)
    assert after.contexts == 2
    assert after.position == before.position + 3  # a decision with its reward, and one without
    assert engine.reward("two", 1.0).outcome == "applied"
    engine.verify()


def test_an_id_is_one_decision_whoever_made_it(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    mine = engine.decide("home", "v", id="mine")
    assert outcome(engine, "v", "ada", None, "one", propensity=0.5) == "recorded"
    assert outcome(engine, "v", "ada", None, "one") == "repeated"  # whatever else is told
    assert outcome(engine, "v", "ada", 0.5, "one") == "recorded"  # its first reward
    assert outcome(engine, "v", "ada", 0.5, "one") == "repeated"
    assert outcome(engine, "v", "ada", 0.6, "one") == "conflict"
    position = engine.position
    for told in ({"context": "w"}, {"arm": "ben"}, {"source": "history"}):
        with pytest.raises(RequestError, match="id must be one that no other decision of home has") as refused:
            engine.observe("home", **{**ITEM, "id": "one", **told})
        assert refused.value.code == "id_taken"
    with pytest.raises(RequestError, match="to repeat an observation, repeat its context, arm and source"):
        outcome(engine, "v", mine.arm, None, "mine")
    assert engine.position == position
    repeated = engine.decide("home", "v", id="one")
    assert repeated == ("one", "ada", 0.5, "v", "incumbent")
    assert engine.decide("home", "v", id="mine") == mine
    assert mine.source is None
    outcome(engine, "v", "ben", id="silent")
    assert engine.decide("home", "v", id="silent").propensity is None
    engine.create("other", arms=["ada"])
    assert engine.observe("other", "v", "ada", id="one").outcome == "recorded"


@pytest.mark.parametrize(
    ("told", "code", "words"),
    [
        ({"arm": "cyd"}, "unknown_arm", "an arm of home; got 'cyd'. home has 'ada', 'ben'"),
        ({"context": ""}, "bad_label", "context"),
        ({"context": "much"}, "too_many_contexts", "one of at most 2 contexts"),
        ({"source": ""}, "bad_label", "source must be a string of 1 to 200 characters"),
        ({"source": "policy"}, "bad_request", "who decided, and not 'policy'"),
        ({"propensity": 0.0}, "bad_request", r"propensity must be a number in \(0, 1\]; got 0.0"),
        ({"propensity": 1.5}, "bad_request", r"\(0, 1\]; got 1.5"),
        ({"propensity": True}, "bad_request", "got True"),
        ({"propensity": {}}, "bad_request", r"got \{\}"),
        ({"propensity": float("nan")}, "bad_request", "got nan"),
        ({"reward": 2.0}, "bad_reward", r"a number in \[0, 1\]; got 2.0"),
        ({"reward": {"ada": 1.0}}, "bad_reward", "a number in"),
        ({"unit": 7}, "bad_label", "unit"),
        ({"id": ""}, "bad_label", "id"),
        ({"id": "x", "instead_of": "x"}, "bad_request", "instead_of must be the id of another decision"),
        ({"instead_of": 7}, "bad_label", "instead_of"),
        ({"features": {"age": 1}}, "bad_features", "features must be left out: none are declared"),
    ],
)
def test_refusals_change_nothing(path: Path, told: dict[str, Any], code: str, words: str) -> None:
    with Engine(open_store(path), seed=1, max_contexts=2) as engine:
        engine.create("home", arms=["ada", "ben"])
        outcome(engine, "v", "ada", 0.5)
        outcome(engine, "w", "ada")
        before = engine.position, live_state(engine, "home").experiments["home"].tally.to_dict()
        with pytest.raises(RequestError, match=words) as refused:
            engine.observe("home", **{**ITEM, **told})
        assert refused.value.code == code
        assert before == (engine.position, live_state(engine, "home").experiments["home"].tally.to_dict())
        with pytest.raises(RequestError, match="the name of an experiment"):
            engine.observe("nowhere", **ITEM)


def test_an_experiment_has_eight_sources(engine: Engine) -> None:
    engine.create("home", arms=["ada"])
    items = [{**ITEM, "source": f"s{k}"} for k in range(9)]
    *known, refused = engine.observe_many("home", items)
    assert [each.outcome for each in known if not isinstance(each, RequestError)] == ["recorded"] * 8
    assert isinstance(refused, RequestError)
    assert refused.code == "too_many_sources"
    assert "one of the 8 sources of home, 's0', " in str(refused)
    assert outcome(engine, "v", "ada", source="s7") == "recorded"
    with pytest.raises(RequestError, match="Use one label for each who decides"):
        outcome(engine, "v", "ada", source="s8")


def test_items_are_mappings(engine: Engine) -> None:
    engine.create("home", arms=["ada"])
    for item in ("v", {"context": "v"}, {**ITEM, "rewards": 1.0}):
        with pytest.raises(InvalidArgument, match="items must be mappings with context and arm, and any of reward, id"):
            engine.observe_many("home", [ITEM, item])  # type: ignore[list-item]
    assert engine.position == 1


def test_a_retired_arm_and_a_paused_experiment_are_recorded(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    engine.retire_arm("home", "ada")
    engine.pause("home")
    assert outcome(engine, "v", "ada", 1.0) == "recorded"
    engine.verify()


def test_whoever_falls_back_closes_what_was_not_carried_out(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], reward_wait=60.0, default_reward=0.0)
    asked = {deferred: engine.decide("home", "v", deferred=deferred).id for deferred in (False, True)}
    for id in asked.values():
        assert outcome(engine, "v", "ada", 1.0, f"instead of {id}", instead_of=id) == "recorded"
    status = engine.experiment("home")
    assert (status.expired, status.lapsed, status.defaulted, status.pending) == (1, 1, 0, 0)
    assert engine.reward(asked[False], 1.0).outcome == "expired"
    paid, other, late = engine.decide("home", "v").id, "other", engine.decide("home", "v").id
    engine.reward(paid, 1.0)
    outcome(engine, "v", "ada", id=other)
    clock.now += 61.0
    for id in (paid, other, late, "nobody"):  # rewarded, not the policy's, overdue, and never made
        assert outcome(engine, "v", "ada", 1.0, f"instead of {id}", instead_of=id) == "recorded"
    status = engine.experiment("home")
    assert (status.rewards, status.defaulted, status.expired, status.pending) == (1, 1, 1, 0)
    in_one_batch = [Decide("home", "v", "asked"), Observe("home", "v", "ada", None, "shown", instead_of="asked")]
    engine.submit(in_one_batch)
    assert engine.experiment("home").expired == 2
    engine.verify()


def test_others_wait_and_expire_as_own_decisions_do(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], reward_wait=60.0)
    engine.create("shop", arms=["ada", "ben"], reward_wait=60.0, default_reward=0.25)
    for name in ("home", "shop"):
        engine.observe(name, "v", "ben", id="one")
    clock.now += 61.0
    assert engine.expire() == 2
    assert engine.observe("home", "v", "ben", 1.0, "one").outcome == "expired"
    found = rows_of(engine, "select reward, source from reward order by experiment")
    assert [tuple(row) for row in found] == [(None, "expired"), (0.25, "default")]
    for name in ("home", "shop"):
        status = engine.experiment(name)
        assert (status.decisions, status.expired, status.defaulted, status.pending) == (0, 0, 0, 0)
    assert engine.verify()


def test_units_have_buckets_from_the_first_observation_on(engine: Engine) -> None:
    engine.create("home", arms=["ada"])
    first = engine.decide("home", "v").id
    outcome(engine, "v", "ada", id="theirs", unit="somebody")
    later = engine.decide("home", "v").id
    buckets = dict(map(tuple, rows_of(engine, "select id, bucket from decision")))
    own = place_of("v", "home").bucket
    assert buckets == {first: None, "theirs": place_of("somebody", "home").bucket, later: own}


def played(engine: Engine, clock: Clock, n: int, seed: int = 3) -> None:
    """Own decisions beside those of others, in every order, with erasures, rollbacks, periods and new arms."""
    rng = random.Random(seed)
    engine.create("home", arms=["ada", "ben"], alpha=0.5, reward_wait=100.0, default_reward=0.5)
    for turn in range(n):
        clock.now += rng.randrange(9)
        some = [Decide("home", f"v{rng.randrange(4)}", f"own-{turn}", deferred=rng.random() < 0.3)]
        told = (rng.choice([None, 0.5]), f"o{rng.randrange(1, 4)}", rng.choice([None, 1.0]))
        source, propensity, reward = told[1], told[0], told[2]
        seen: list[Any] = [
            Observe(
                *("home", f"v{rng.randrange(6)}", rng.choice(["ada", "ben"]), reward, f"seen-{turn}", propensity),
                source,
                instead_of=f"own-{rng.randrange(turn + 1)}" if rng.random() < 0.2 else None,
            )
        ]
        ids = [f"{who}-{rng.randrange(turn + 1)}" for who in ("own", "seen", "own")]
        later = [Activate(ids[0]), Reward(ids[1], rng.random()), Reward(ids[2], rng.random())]
        requests = [*some, *seen, *later]
        rng.shuffle(requests)
        engine.submit(requests)
        if turn == n // 3:
            engine.rollback("home", engine.experiment("home").position // 2)
            engine.add_arm("home", "cyd")
        if turn == n // 2:
            engine.erase("home", "v5")
            engine.new_period("home")
            engine.retire_arm("home", "ada")


def test_the_log_leads_to_the_same_state(engine: Engine, clock: Clock, path: Path) -> None:
    played(engine, clock, 60)
    experiment = live_state(engine, "home").by_key[1]
    tally, snapshot = experiment.tally.to_dict(), experiment.policy.snapshot().to_bytes()
    first = "select decided_by from decision where decided_by is not null group by decided_by order by min(event)"
    assert tally["sources"] == [source for (source,) in rows_of(engine, first)]
    assert len(tally["sources"]) == 3
    engine.verify()
    engine.close()
    with Engine(open_store(path), clock=clock) as again:  # from a snapshot
        assert live_state(again, "home").by_key[1].tally.to_dict() == tally
        again.verify()
    execute(path, "delete from snapshot")
    with Engine(open_store(path), clock=clock) as again:
        found = live_state(again, "home").by_key[1]
        assert {**found.tally.to_dict(), "settled_to": tally["settled_to"]} == tally  # searched, not counted
        assert found.policy.snapshot().to_bytes() == snapshot
        again.verify()


@pytest.mark.parametrize(
    "change",
    [
        "arm = 1 - arm",
        "propensity = 0.125",
        "propensity = 0.0",
        "decided_by = 'somebody'",
        "decided_by = null",
        "bucket = 1 - sign(bucket)",
        "features = {blob}",
        "context = 1 - context",
    ],
)
def test_a_forged_observation_is_found(engine: Engine, path: Path, change: str) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(4):
        outcome(engine, f"v{k % 2}", "ada", 1.0, f"seen-{k}", propensity=0.5)
    engine.verify()
    blob = r"'\x00'" if is_postgres() else "x'00'"
    execute(path, f"update decision set {change.format(blob=blob)} where id = 'seen-2'")
    with pytest.raises(Mismatch, match=r"decision 6 \('seen-2'\)"):
        engine.verify()


def test_a_forged_source_of_an_own_decision_is_found(engine: Engine, path: Path) -> None:
    engine.create("home", arms=["ada", "ben"])
    outcome(engine, "v", "ada", 1.0)
    engine.decide("home", "v", id="own")
    for change, words in (("bucket = 64", "was not made for"), ("decided_by = 'incumbent'", "is not what was told")):
        execute(path, f"update decision set {change} where id = 'own'")
        with pytest.raises(Mismatch, match=words):
            engine.verify()


def test_a_forged_source_that_is_not_counted_is_found(engine: Engine, path: Path) -> None:
    """The checksum of an erased decision is gone, but who decided first is part of the state."""
    engine.create("home", arms=["ada", "ben"])
    outcome(engine, "v", "ada", 1.0, "one")
    engine.erase("home", "v")
    execute(path, "update decision set decided_by = 'nobody'")
    with pytest.raises(Mismatch, match="counted"):
        engine.verify()


def test_logs_and_exports_tell_who_decided(engine: Engine, tmp_path: Path) -> None:
    engine.create("home", arms=["ada", "ben"])
    outcome(engine, "v", "ada", 0.25, "one", propensity=0.5, source="=ranker")
    outcome(engine, "w", "ben", 0.5, "two", source="=ranker")
    engine.retire_arm("home", "ben")
    outcome(engine, "w", "ben", 0.75, "three", source="history")
    engine.reward(engine.decide("home", "v", id="own").id, 1.0)
    log = engine.log("home", "=ranker")
    assert (log.contexts.tolist(), log.arms.tolist(), log.rewards.tolist()) == ([0, 1], [0, 1], [0.25, 0.5])
    assert log.propensities[0] == 0.5
    assert np.isnan(log.propensities[1])
    assert engine.log("home").rewards.tolist() == [1.0]
    with pytest.raises(RequestError, match="source must be one whose decisions have rewards; got 'nobody'"):
        engine.log("home", "nobody")
    own, home = place_of("v", "home").bucket, place_of("w", "home").bucket
    for format in ("parquet", "csv", "jsonl"):
        file = tmp_path / f"log.{format}"
        assert engine.export("home", file) == 4
        assert Log.from_table(file).rewards.tolist() == [1.0]  # the policy's own
        assert Log.from_table(file, propensity=None).n_rounds == 1
    rows = pl.read_parquet(tmp_path / "log.parquet").sort("seq")
    assert rows.columns[-2:] == ["source", "bucket"]
    told = rows.select("id", "propensity", "source", "bucket", "available").rows()
    assert told == [
        ("one", 0.5, "=ranker", own, None),
        ("two", None, "=ranker", home, None),
        ("three", None, "history", home, None),
        ("own", 1.0, None, own, ["ada"]),
    ]
    assert "'=ranker" in (tmp_path / "log.csv").read_text()


def test_under_full_information_others_have_one_reward(engine: Engine, tmp_path: Path) -> None:
    engine.create("home", arms=["ada", "ben"], feedback="full")
    outcome(engine, "v", "ben", 0.25, "one", propensity=0.5)
    outcome(engine, "v", "ben")
    with pytest.raises(RequestError, match="a number in"):
        outcome(engine, "v", "ben", [0.5, 1.0])  # type: ignore[arg-type]
    engine.reward(engine.decide("home", "v", id="own").id, [0.5, 1.0])
    engine.export("home", tmp_path / "log.parquet")
    rows = pl.read_parquet(tmp_path / "log.parquet").sort("seq")
    assert rows["reward"].to_list() == [[None, 0.25], None, [0.5, 1.0]]
    assert engine.verify()


def test_features_of_others_are_kept_and_tied(engine: Engine, path: Path) -> None:
    engine.create("home", arms=["ada", "ben"], features={"age": "number"})
    for told, words in (({}, "age"), ({"features": {"age": "old"}}, "age"), ({"features": {"size": 1}}, "size")):
        with pytest.raises(RequestError, match=words) as refused:
            engine.observe("home", **{**ITEM, **told})
        assert refused.value.code == "bad_features"
    engine.observe("home", **ITEM, reward=1.0, id="one", features={"age": 31.0})
    assert engine.observe("home", **ITEM, id="one").outcome == "repeated"
    engine.reward(engine.decide("home", "v", features={"age": 7.0}).id, 0.5)
    assert engine.log("home", "incumbent").features.tolist() == [[31.0]]  # type: ignore[union-attr]
    engine.verify()
    other = struct.pack("<d", 32.0).hex()
    blob = rf"'\x{other}'" if is_postgres() else f"x'{other}'"
    execute(path, f"update decision set features = {blob} where id = 'one'")
    with pytest.raises(Mismatch, match="is not what was told"):
        engine.verify()
