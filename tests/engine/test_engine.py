"""The engine through its own methods: exactly once, labels, the clock, changes while it runs, files."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from alphafair import AlphaFairAdaptive, Engine, Log, evaluation, load_policy, run
from alphafair.engine import Activate, Decide, Mismatch, Outcome, Receipt, RequestError, Reward, Unavailable, restore
from alphafair.engine.state.experiment import same_state
from alphafair.engine.store.dialect import FIRST, NEWEST, SQLITE
from alphafair.engine.store.migrate import older
from alphafair.errors import InvalidArgument
from tests.clocks import Clock
from tests.stores import (
    HAVE_CODE,
    address_of,
    both_stores,
    connected,
    execute,
    live_state,
    open_store,
    rows_of,
    sqlite_only,
    writer_of,
)

LATE = "select d.position, l.reward from late_reward l join decision d on d.event = l.decision order by l.event"

pytestmark = both_stores


def reopened(engine: Engine, clock: Clock) -> Engine:
    path = engine._store.path
    engine.close()
    return Engine(open_store(path), seed=2, clock=clock)


def test_a_repeated_id_returns_the_same_arm(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben", "cyd"])
    first = engine.decide("home", "visitor", id="order-1")
    for _ in range(20):
        assert engine.decide("home", "visitor", id="order-1") == first
    engine = reopened(engine, clock)
    assert engine.decide("home", "visitor", id="order-1") == first
    assert engine.experiment("home").decisions == 1
    with pytest.raises(RequestError, match="id must be one that no other decision of home has") as refusal:
        engine.decide("home", "somebody else", id="order-1")
    assert refusal.value.code == "id_taken"
    engine.verify()


def test_a_reward_counts_once(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"])
    receipt = engine.decide("home", "visitor")
    outcomes = [engine.reward(receipt.id, value).outcome for value in (0.5, 0.5, 0.25)]
    assert outcomes == ["applied", "repeated", "conflict"]
    assert engine.reward("nobody", 0.5).outcome == "unknown"
    engine = reopened(engine, clock)
    assert [engine.reward(receipt.id, value).outcome for value in (0.5, 0.25)] == ["repeated", "conflict"]
    assert engine.experiment("home").cumulative_rewards[receipt.arm] == 0.5
    engine.close()


def test_one_batch_is_answered_in_order_and_finds_its_own_decisions(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    answers = engine.submit(
        [
            Decide("home", "v", "a"),
            Decide("home", "v", "a"),
            Reward("a", 1.0),
            Reward("a", 1.0),
            Reward("a", 0.5),
            Decide("nowhere", "v"),
            Activate("a"),
            Reward("a", 2.0),
            "nonsense",  # type: ignore[list-item]
        ]
    )
    assert isinstance(answers[0], Receipt)
    assert answers[1] == answers[0]
    assert answers[2:5] == [Outcome("applied"), Outcome("repeated"), Outcome("conflict")]
    codes = [answer.code for answer in answers if isinstance(answer, RequestError)]
    assert codes == ["unknown_experiment", "bad_reward", "bad_request"]
    assert answers[6] == Outcome("repeated")
    assert engine.verify() == 3


def test_a_deferred_decision_counts_once_activated(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    receipt = engine.decide("home", "v", deferred=True)
    with pytest.raises(RequestError) as refusal:
        engine.reward(receipt.id, 1.0)
    assert refusal.value.code == "not_activated"
    assert [engine.activate(receipt.id).outcome for _ in range(2)] == ["activated", "repeated"]
    assert engine.reward(receipt.id, 1.0).outcome == "applied"
    assert engine.activate("nobody").outcome == "unknown"
    engine.verify()


@pytest.mark.parametrize("default", [None, 0.25])
def test_overdue_decisions_are_settled(engine: Engine, clock: Clock, default: float | None) -> None:
    engine.create("home", arms=["ada", "ben"], reward_wait=60, default_reward=default)
    first, second = engine.decide("home", "v"), engine.decide("home", "v", deferred=True)
    clock.now += 30
    third = engine.decide("home", "v")
    fourth = engine.decide("home", "v", deferred=True)
    engine.activate(fourth.id)
    clock.now += 31
    assert engine.expire() == 2
    assert engine.expire() == 0
    assert engine.experiment("home").pending == 2
    assert engine.reward(first.id, 1.0).outcome == "expired"
    assert engine.reward(first.id, 0.5).outcome == "expired"
    assert engine.activate(second.id).outcome == "expired"
    assert engine.reward(third.id, 1.0).outcome == "applied"
    clock.now += 60
    assert engine.reward(fourth.id, 1.0).outcome == "expired"
    status = engine.experiment("home")
    assert (status.decisions, status.rewards, status.lapsed, status.pending) == (4, 1, 1, 0)
    assert (status.defaulted, status.expired) == ((0, 2) if default is None else (2, 0))
    assert sum(status.cumulative_rewards.values()) == pytest.approx(1.0 + 2 * (default or 0.0))
    assert rows_of(engine, LATE) == [(2, 1.0), (5, 1.0)]
    engine.verify()
    engine = reopened(engine, clock)
    assert engine.reward(first.id, 1.0).outcome == "expired"
    assert engine.experiment("home") == status
    engine.close()


def test_times_in_the_log_never_fall(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], reward_wait=60)
    engine.decide("home", "v")
    clock.now -= 3600
    engine.decide("home", "v")
    assert engine.health()["clock_behind_seconds"] == pytest.approx(3600)
    assert engine.expire() == 0
    times = [at for (at,) in rows_of(engine, "select at from decision order by position")]
    assert times == sorted(times)


def test_arms_and_alpha_change_while_it_runs(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], alpha=0.9)
    pending = [engine.decide("home", f"v{k % 3}") for k in range(12)]
    engine.add_arm("home", "cyd")
    engine.set_alpha("home", 0.5)
    engine.retire_arm("home", "ada")
    engine.mask_arm("home", "ben")
    assert {engine.decide("home", f"v{k}").arm for k in range(5)} == {"cyd"}
    engine.unmask_arm("home", "ben")
    assert {engine.decide("home", f"v{k}").arm for k in range(40)} == {"ben", "cyd"}
    assert {engine.reward(receipt.id, 0.5).outcome for receipt in pending} == {"applied"}
    engine.pause("home")
    with pytest.raises(RequestError) as refusal:
        engine.decide("home", "v0")
    assert refusal.value.code == "paused"
    engine.resume("home")
    engine.decide("home", "v0")
    status = engine.experiment("home")
    assert (status.alpha, status.arms, status.retired_arms) == (0.5, ("ben", "cyd"), ("ada",))
    with pytest.raises(RequestError, match="new"):
        engine.add_arm("home", "ada")
    with pytest.raises(InvalidArgument, match="alpha"):
        engine.set_alpha("home", -1.5)
    engine.retire_arm("home", "ben")
    with pytest.raises(RequestError, match="at least two live arms"):
        engine.retire_arm("home", "cyd")
    engine.verify()
    before = engine.experiment("home")
    engine = reopened(engine, clock)
    assert engine.experiment("home") == before
    engine.verify()
    engine.close()


def test_a_change_that_the_policy_refuses_leaves_nothing_behind(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"], policy="fair-cb", pull_share=0.4, horizon=100)
    position = engine.position
    with pytest.raises(InvalidArgument, match="pull_share"):
        engine.add_arm("home", "cyd")
    with pytest.raises(InvalidArgument, match="alpha"):
        engine.set_alpha("home", 0.5)
    assert engine.position == position
    engine.verify()


def test_a_rollback_undoes_learning_and_nothing_else(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"])
    open_before = engine.decide("home", "v0")
    for k in range(30):
        engine.reward(engine.decide("home", f"v{k % 3}").id, 0.5)
    then, accounts = engine.experiment("home").position, engine.experiment("home").accounts
    spoiled = [engine.decide("home", f"v{k % 3}") for k in range(10)]
    for receipt in spoiled[:5]:
        engine.reward(receipt.id, 1.0)
    engine.add_arm("home", "cyd")
    engine.rollback("home", then)
    assert engine.experiment("home").accounts == {**accounts, "cyd": min(accounts.values())}
    assert engine.reward(spoiled[0].id, 1.0).outcome == "repeated"
    for _ in range(2):
        assert engine.reward(spoiled[7].id, 1.0).outcome == "rolled_back"
    assert engine.reward(open_before.id, 1.0).outcome == "applied"
    engine.verify()
    for k in range(10):
        engine.reward(engine.decide("home", f"w{k}").id, 0.3)
    engine.rollback("home", then)
    engine.rollback("home", engine.experiment("home").position)
    engine.verify()
    engine = reopened(engine, clock)
    engine.verify()
    for receipt in spoiled[7:]:
        assert engine.reward(receipt.id, 1.0).outcome == "rolled_back"
    with pytest.raises(InvalidArgument, match="position"):
        engine.rollback("home", engine.experiment("home").position + 1)
    engine.close()


def test_a_second_rollback_includes_the_decisions_closed_by_the_first(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    engine.create("next", arms=["ada", "ben"])
    for name in ("home", "next"):
        for k in range(10):
            engine.reward(engine.decide(name, f"v{k % 3}").id, 0.5)
    for _ in range(9):
        engine.decide("home", "v0")  # these stay open
    then = engine.experiment("home").position
    for _ in range(5):
        engine.decide("home", "v0")
    writer_of(engine, "home").take_snapshots(least=1)
    engine.rollback("home", then)
    change = engine.experiment("home").position - 5
    policy = live_state(engine, "home").experiments["home"].policy
    after = policy.snapshot()
    for position in (change, change + 3):  # itself, and one of them
        engine.rollback("home", position)
        assert same_state(live_state(engine, "home").experiments["home"].policy.snapshot(), after)
    engine.verify()


def test_full_information(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben", "cyd"], policy="alpha-fair", alpha=0.5, reward_range=(0, 10))
    for k in range(50):
        receipt = engine.decide("home", f"v{k % 4}")
        value: Any = {"ada": 1, "ben": 5, "cyd": 10} if k % 2 else [1, 5, 10]
        assert engine.reward(receipt.id, value).outcome == "applied"
        assert engine.reward(receipt.id, [1, 5, 10]).outcome == "repeated"
        assert engine.reward(receipt.id, [2, 5, 10]).outcome == "conflict"
    for bad in (0.5, {"ada": 1}, [1, 2], {"ada": 1, "ben": 2, "cyd": 3, "dan": 4}, [1, 2, 11], "x"):
        with pytest.raises(InvalidArgument, match="reward"):
            engine.reward(engine.decide("home", "v").id, bad)  # type: ignore[arg-type]
    engine.add_arm("home", "dan")
    engine.reward(engine.decide("home", "v").id, [1, 5, 10, 2])
    engine.verify()
    engine = reopened(engine, clock)
    engine.verify()
    assert engine.log("home").n_rounds == 51
    engine.close()


@pytest.mark.parametrize("policy", ["alpha-fair-bandit", "scale-free", "hedge", "uniform", "independent-alpha-fair"])
def test_any_registered_policy(engine: Engine, clock: Clock, policy: str) -> None:
    engine.create("home", arms=["ada", "ben"], policy=policy)
    full = engine.experiment("home").feedback == "full"
    for k in range(40):
        engine.reward(engine.decide("home", f"v{k % 5}").id, [0.3, 0.7] if full else 0.5)
    engine.verify()
    engine = reopened(engine, clock)
    engine.verify()
    engine.close()


def test_fair_cb_whose_contexts_depend_on_each_other(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"], policy="fair-cb", pull_share=0.2, horizon=100, feedback="bandit")
    ids: list[str] = []
    for k in range(30):  # new contexts and rewards in one group
        answers = engine.submit([*(Reward(id, 0.5) for id in ids), *(Decide("home", f"v{k + j}") for j in range(3))])
        ids = [answer.id for answer in answers if isinstance(answer, Receipt)]
    engine.verify()
    path = engine._store.path
    with Engine.open(path, read_only=True) as reader:
        reader.verify()


@sqlite_only("searches the bytes of the file")
def test_contexts_are_erased_for_good(engine: Engine, clock: Clock, tmp_path: Path) -> None:
    engine.create("home", arms=["ada", "ben"])
    secret = "jane.doe@example.com"
    for k in range(20):
        engine.reward(
            engine.decide("home", secret if k % 2 else "other", id=f"{secret}-{k}" if k == 1 else None).id, 0.5
        )
    assert any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir())
    engine.erase("home", secret)
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir())
    engine.export("home", tmp_path / "log.csv")
    assert "erased-1" in (tmp_path / "log.csv").read_text()
    engine.verify()
    with pytest.raises(RequestError, match="a context of home"):
        engine.erase("home", secret)
    engine.decide("home", secret)
    assert engine.experiment("home").contexts == 3
    engine = reopened(engine, clock)
    engine.verify()
    engine.close()


def test_any_id_can_be_erased(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(1, 9):
        engine.decide("home", f"v{k % 2}", id=f"erased-{k:010x}")
    engine.erase("home", "v0")
    assert engine.activate("erased-0000000002") == Outcome("unknown")
    engine.verify()


def test_ids_that_the_engine_makes_cannot_be_guessed(tmp_path: Path) -> None:
    made: list[str] = []
    for k in range(2):
        with Engine.open(tmp_path / f"{k}.db") as engine:
            engine.create("home", arms=["ada", "ben"], policy="uniform", feedback="bandit")
            receipts = engine.submit([Decide("home", "v")] * 1000)
            made += [receipt.id for receipt in receipts if isinstance(receipt, Receipt)]
    assert len(set(made)) == 2000
    assert {len(id) for id in made} == {32}
    for place in range(8, 32):  # every digit is any of sixteen: each is there 125 times on average
        counts = np.bincount([int(id[place], 16) for id in made], minlength=16)
        assert counts.min() > 60
        assert counts.max() < 200
    for before, after in itertools.pairwise(made):
        same = sum(one == other for one, other in zip(before[8:], after[8:], strict=True))
        assert same < 16


@sqlite_only("reads pages of the file")
@pytest.mark.parametrize("seed", [None, 3])
def test_ids_made_together_are_adjacent_in_the_index(tmp_path: Path, seed: int | None) -> None:
    """Otherwise every decision of a commit writes a page of its own, once there are many."""
    path = tmp_path / "a.db"
    with Engine.open(path, seed=seed) as engine:
        engine.create("home", arms=["ada", "ben"], policy="uniform", feedback="bandit")
        for _ in range(20):
            engine.submit([Decide("home", "v")] * 1000)
        engine._store.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        engine.submit([Decide("home", "v")] * 200)
        n_pages = Path(f"{path}-wal").stat().st_size // 4096
    assert n_pages < 50


def test_a_seed_repeats_ids_without_changing_draws(tmp_path: Path) -> None:
    paths: list[list[Any]] = []
    for k in range(2):
        with Engine.open(tmp_path / f"{k}.db", seed=3) as engine:
            engine.create("home", arms=["ada", "ben"], policy="uniform", feedback="bandit")
            paths.append([engine.decide("home", "v") for _ in range(600)])
    assert paths[0] == paths[1]


def test_a_batch_finds_its_own_decisions_with_a_small_cache(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair.engine.decisions.RECENT", 1)
    engine.create("home", arms=["ada", "ben"])
    engine.decide("home", "v", id="a", deferred=True)
    others = [Decide("home", "v", f"{k}") for k in range(3)]
    answers = engine.submit([Activate("a"), *others, Reward("a", 0.5), *others, Reward("a", 0.5), Activate("a")])
    outcomes = [answer.outcome for answer in answers if isinstance(answer, Outcome)]
    assert outcomes == ["activated", "applied", "repeated", "repeated"]
    assert engine.experiment("home").decisions == 4
    engine.verify()


def test_export_and_log_read_back(engine: Engine, clock: Clock, tmp_path: Path) -> None:
    engine.create("home", arms=["ada", "ben"])
    assert engine.export("home", tmp_path / "empty.parquet") == 0
    for k in range(50):
        receipt = engine.decide("home", f"v,{k % 5}")
        if k % 3:
            engine.reward(receipt.id, k / 50)
    columns = [
        "seq",
        "id",
        "context",
        "arm",
        "propensity",
        "reward",
        "reward_source",
        "decided_at",
        "rewarded_at",
        "period",
        "policy_version",
        "available",
    ]
    for name in ("log.parquet", "log.csv", "log.jsonl"):
        assert engine.export("home", tmp_path / name) == 50
    read = {
        "parquet": pl.read_parquet(tmp_path / "log.parquet"),
        "csv": pl.read_csv(tmp_path / "log.csv"),
        "jsonl": pl.read_ndjson(tmp_path / "log.jsonl"),
    }
    for frame in read.values():
        assert frame.columns == columns
        assert frame["reward"].null_count() == 17
        assert frame["propensity"].to_list() == read["parquet"]["propensity"].to_list()
    log = engine.log("home")
    assert log.n_rounds == 33
    for name in ("log.parquet", "log.csv", "log.jsonl"):  # what was written is read back as it is
        again = Log.from_table(tmp_path / name)
        assert again.context_labels == log.context_labels
        assert (again.rewards == log.rewards).all()
        assert (again.propensities == log.propensities).all()
    assert log.context_labels == tuple(f"v,{k}" for k in range(5))
    with pytest.raises(InvalidArgument, match="format"):
        engine.export("home", tmp_path / "log.xlsx")


def test_the_log_replays_to_the_live_state(engine: Engine) -> None:
    """Rewards at once and in order: the plain loop over a log, which knows nothing of the engine, ends in the same."""
    engine.create("home", arms=["ada", "ben", "cyd"], policy="alpha-fair-bandit")
    rng = np.random.default_rng(0)
    for _ in range(200):
        engine.reward(engine.decide("home", f"v{rng.integers(4)}").id, float(rng.random()))
    live = live_state(engine, "home").experiments["home"].policy
    twin = type(live)(4, 3, alpha=0.9)
    run.over_log(twin, engine.log("home"))
    for context in range(4):
        assert (twin.probabilities(context) == live.probabilities(context)).all()


def test_warm_start(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(50):
        engine.reward(engine.decide("home", f"v{k % 2}").id, 0.2 + 0.6 * (k % 2))
    state = live_state(engine, "home").experiments["home"].policy.snapshot()
    engine.create("next", arms=["ada", "ben"], start=state, contexts=["v0", "v1"])
    warm, old = live_state(engine, "next").experiments["next"].policy, load_policy(state)
    assert (warm.probabilities(1) == old.probabilities(1)).all()
    engine.reward(engine.decide("next", "v1").id, 0.5)
    engine.decide("next", "v9")
    assert engine.experiment("next").contexts == 3
    with pytest.raises(RequestError, match="start"):
        engine.create("wrong", arms=["ada"], start=state, contexts=["v0", "v1"])
    engine.verify()
    engine = reopened(engine, clock)
    engine.verify()
    engine.close()


def test_an_experiment_starts_from_the_log_of_another(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(200):
        receipt = engine.decide("home", f"v{k % 2}")
        engine.reward(receipt.id, 0.9 if receipt.arm == "ben" else 0.1)
    log = engine.log("home")
    policy = evaluation.warm_start(log, AlphaFairAdaptive, alpha=0.0, weight=0.5)
    labels: Any = (log.arm_labels, log.context_labels)
    engine.create("next", arms=labels[0], start=policy.snapshot(), contexts=labels[1])
    drawn = [engine.decide("next", f"v{k % 2}").arm for k in range(50)]
    assert drawn.count("ben") > 40
    assert engine.experiment("next").contexts == 2
    engine.verify()


def test_bad_labels_and_settings_are_refused_and_change_nothing(engine: Engine) -> None:
    engine.create("home", arms=["ada", "ben"])
    position = engine.position
    for label in ("", "x" * 201, "a\nb", "\x00", "\ud800", 7, None, "x" * 10_000_000):
        with pytest.raises(InvalidArgument) as refusal:
            engine.decide("home", label)  # type: ignore[arg-type]
        assert len(str(refusal.value)) < 300
        with pytest.raises(InvalidArgument):
            engine.create(label, arms=["ada"])  # type: ignore[arg-type]
    for options in (
        {"arms": []},
        {"arms": ["ada", "ada"]},
        {"arms": "ada"},
        {"arms": ["a"], "policy": "alpha-fare"},
        {"arms": ["a"], "alpha": -1.0},
        {"arms": ["a"], "beta": 1.0},
        {"arms": ["a"], "reward_range": (1, 0)},
        {"arms": ["a"], "reward_wait": 0},
        {"arms": ["a"], "default_reward": 0.5},
        {"arms": ["a"], "reward_wait": 1, "default_reward": 2},
    ):
        with pytest.raises(InvalidArgument):
            engine.create("other", **options)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="new"):
        engine.create("home", arms=["ada"])
    with pytest.raises(RequestError, match="at least one arm"):
        engine.decide("home", "v", available=[])
    with pytest.raises(RequestError, match="an arm of home"):
        engine.decide("home", "v", available=["eve"])
    assert engine.position == position
    receipts = [engine.decide("home", label) for label in ("'; drop table decision; --", "имя 名前 😀", "a/b?c=d")]
    assert [receipt.context for receipt in receipts] == ["'; drop table decision; --", "имя 名前 😀", "a/b?c=d"]
    engine.verify()


@sqlite_only("is about the lock of the file")
def test_one_writer_and_many_readers(engine: Engine, clock: Clock, tmp_path: Path) -> None:
    import os

    engine.create("home", arms=["ada", "ben"])
    with pytest.raises(Unavailable, match=f"process {os.getpid()}"):
        Engine.open(tmp_path / "shop.db")
    with Engine.open(tmp_path / "shop.db", read_only=True) as reader:
        assert reader.experiment("home").decisions == 0
        engine.decide("home", "v")
        assert reader.experiment("home").decisions == 1
        with pytest.raises(RequestError, match="opened for writing"):
            reader.decide("home", "v")
        with pytest.raises(RequestError, match="opened for writing"):
            reader.pause("home")
    engine.close()
    with pytest.raises(RequestError, match="open"):
        engine.decide("home", "v")
    with pytest.raises(InvalidArgument, match="an existing file"):
        Engine.open(tmp_path / "none.db", read_only=True)


@sqlite_only("is about files that are no databases of ours")
def test_foreign_and_newer_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look at: " * 100)
    with pytest.raises(InvalidArgument, match=r"a file that alphafair made; got '.*text\.db'. Pass another file"):
        Engine.open(tmp_path / "text.db")
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("create table t (x)")
    foreign.close()
    with pytest.raises(InvalidArgument, match="a file that alphafair made"):
        Engine.open(tmp_path / "foreign.db")
    Engine.open(tmp_path / "shop.db").close()
    future = sqlite3.connect(tmp_path / "shop.db")
    future.execute("insert into migration values (99, 'teleport', '9.0', 0)")
    future.commit()
    future.close()
    with pytest.raises(InvalidArgument, match=r"version \d+ or older; got 99. Install alphafair 9.0 or later"):
        Engine.open(tmp_path / "shop.db")


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.number for step in (*older(SQLITE), *SQLITE.steps)] == list(range(1, NEWEST + 1))
    assert SQLITE.steps[0].number == FIRST


def test_verify_finds_every_forgery(tmp_path: Path) -> None:
    def forged(statement: str) -> None:
        path = tmp_path / f"{abs(hash(statement))}.db"
        with Engine.open(path, seed=3) as engine:
            engine.create("home", arms=["ada", "ben"])
            for k in range(30):
                engine.reward(engine.decide("home", f"v{k % 2}").id, 0.5)
            assert engine.verify() == 61
        with connected(path) as hand:
            assert hand.execute(statement).rowcount == 1, statement
        with Engine.open(path, read_only=True) as reader, pytest.raises(Mismatch):
            reader.verify()

    forged("update reward set reward = 0.75 where position = 31")
    forged("update decision set propensity = propensity * (1 + 1e-15) where position = 40")
    forged("update decision set context = 1 - context where position = 20")
    forged("update decision set state_version = state_version - 2 where position = 40")
    forged("delete from reward where position = 33")
    forged("update change set body = replace(body, '0.9', '0.8')")


def test_backup_and_restore(engine: Engine, tmp_path: Path) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(20):
        engine.reward(engine.decide("home", f"v{k}").id, 0.5)
    engine.backup(tmp_path / "copy.db")
    with pytest.raises(Unavailable, match="cannot be written"):
        engine.backup(tmp_path / "nowhere" / "copy.db")
    lost = engine.decide("home", "v")
    assert restore(tmp_path / "copy.db", address_of(tmp_path / "new.db")) == 41
    with Engine.open(tmp_path / "new.db") as other:
        assert other.experiment("home").decisions == 20
        again = other.decide("home", "v")
        assert again.id != lost.id  # an id that was given out after the backup never means another decision
        assert other.reward(lost.id, 1.0).outcome == "unknown"
        other.verify()
    for target in (tmp_path / "copy.db", address_of(tmp_path / "new.db")):
        with pytest.raises(InvalidArgument, match=r"a new file|a database without experiments"):
            restore(tmp_path / "copy.db", target)


def test_an_upgrade_keeps_the_state_and_is_recorded(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(30):
        engine.reward(engine.decide("home", f"v{k % 3}").id, k / 30)
    early = engine.position
    for k in range(10):
        engine.decide("home", f"v{k % 3}")
    before = engine.experiment("home").cumulative_rewards
    for module in HAVE_CODE:
        monkeypatch.setattr(f"alphafair.engine.{module}.CODE", "other kernels")
    with (
        Engine.open(engine._store.path, read_only=True) as reader,
        pytest.raises(RequestError, match="by this version"),
    ):
        reader.verify()
    engine = reopened(engine, clock)
    assert engine.experiment("home").cumulative_rewards == before
    execute(engine._store.path, "update reward set reward = 0 where position = 20")  # the old code's word is taken
    engine.verify()
    for k in range(10):
        engine.reward(engine.decide("home", f"v{k % 4}").id, 0.5)
    engine.rollback("home", early)
    engine.verify()
    engine = reopened(engine, clock)
    engine.verify()
    engine.close()


def test_an_unreadable_snapshot_is_skipped(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=["ada", "ben"])
    for k in range(30):
        engine.reward(engine.decide("home", f"v{k % 3}").id, k / 30)
    before, path = engine.experiment("home"), engine._store.path
    engine.close()
    with connected(path) as hand:
        assert hand.execute("update snapshot set state = ?", (b"\0",)).rowcount == 1
    engine = Engine(open_store(path), seed=2, clock=clock)
    assert engine.experiment("home") == before
    engine.close()


def test_many_threads_on_one_engine(engine: Engine) -> None:
    """Eight threads with retries: every decision is made once, every reward booked once, and the log verifies."""
    import threading

    engine.create("home", arms=["ada", "ben", "cyd"])
    earned = [0.0] * 8

    def work(me: int) -> None:
        for k in range(40):
            receipts = {engine.decide("home", f"v{k % 5}", id=f"{me}-{k}") for _ in range(2)}
            outcomes = [engine.reward(receipts.pop().id, k / 64).outcome for _ in range(2) if receipts]
            assert outcomes == ["applied"]
            assert engine.reward(f"{me}-{k}", k / 64).outcome == "repeated"
            earned[me] += k / 64

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = engine.experiment("home")
    assert (status.decisions, status.rewards, status.pending) == (320, 320, 0)
    assert sum(status.cumulative_rewards.values()) == sum(earned)  # multiples of 1/64: exact in any order
    assert sum(earned) == 8 * sum(range(40)) / 64
    engine.verify()


def test_snapshots_shorten_recovery_and_old_ones_are_removed(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alphafair.engine.writer.SNAPSHOT_EVERY", 10)
    engine.create("home", arms=["ada", "ben"])
    for k in range(300):
        engine.reward(engine.decide("home", f"v{k % 7}").id, 0.5)
    taken = [position for (position,) in rows_of(engine, "select position from snapshot order by position")]
    assert len(taken) == 3
    assert taken[-1] > 300  # the larger a state, the more events between two of them
    engine.verify()
    before = json.dumps(engine.experiment("home").cumulative_rewards)
    engine = reopened(engine, clock)
    assert json.dumps(engine.experiment("home").cumulative_rewards) == before
    engine.close()
