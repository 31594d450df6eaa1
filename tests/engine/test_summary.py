"""The summary over time: what a slow count of the log says, and the same however the engine has arrived at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import Activate, Decide, Mismatch, Reward, writer
from alphafair.engine.state import replay, summary
from alphafair.engine.state.experiment import Experiment
from alphafair.engine.state.replay import Replay
from alphafair.engine.state.summary import DELAY_BOUNDS, SECOND, Summary, most_buckets
from tests.clocks import Clock
from tests.older import take_back
from tests.stores import (
    HAVE_CODE,
    both_stores,
    connected,
    copy_as_crashed,
    live_state,
    make_stale,
    open_store,
    rows_of,
    sqlite_only,
)

pytestmark = both_stores

START = 1_800_000_000  # seconds
ARMS = ["ada", "ben", "cyd"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that buckets are merged, chunks end and snapshots are taken often."""
    monkeypatch.setattr(summary, "MOST_BUCKETS", 32)
    monkeypatch.setattr(summary, "MOST_CELLS", 100)
    monkeypatch.setattr(writer, "SNAPSHOT_EVERY", 40)
    monkeypatch.setattr(replay, "CHUNK", 37)


EXPERIMENTS: dict[str, dict[str, Any]] = {
    "bandit": {"reward_wait": 40.0},
    "default": {"reward_wait": 25.0, "default_reward": 0.25, "period": 120.0},
    "full": {"policy": "alpha-fair"},
    "groups": {"groups": ["x", "y", "x"], "reward_range": (-1.0, 3.0)},
    "no accounts": {"policy": "uniform", "feedback": "bandit"},
}


def play(engine: Engine, clock: Clock, n: int, seed: int) -> None:
    """Decisions, rewards at once, late, too late and never, deferred decisions and changes, at irregular times."""
    rng = np.random.default_rng(seed)
    waiting: list[tuple[str, str]] = []
    for k in range(n):
        clock.now += float(rng.choice([0.0, 0.2, 1.0, 7.0], p=[0.4, 0.3, 0.2, 0.1]))
        name = str(rng.choice(list(EXPERIMENTS)))
        status = engine.experiment(name)
        batch: list[Any] = []
        for number in range(int(rng.integers(1, 4))):
            id = f"{seed} {k} {number}"
            deferred = bool(rng.random() < 0.2)
            batch.append(Decide(name, f"visitor {int(rng.integers(12))}", id, None, deferred))
            if deferred and rng.random() < 0.7:
                batch.append(Activate(id, name))
            if not deferred or rng.random() < 0.7:
                waiting.append((name, id))
        engine.submit(batch)
        while waiting and rng.random() < 0.75:
            name, id = waiting.pop(int(rng.integers(len(waiting))))
            low, high = engine.experiment(name).reward_range
            value = low + (high - low) * float(rng.random())
            rewards = value
            if name == "full":
                rewards = dict.fromkeys([*engine.experiment(name).arms, *engine.experiment(name).retired_arms], value)
            engine.submit([Reward(id, rewards, name)])
        if k % 29 == 7 and len(status.arms) < 6:
            groups = {"group": "y"} if status.name == "groups" else {}
            engine.add_arm(status.name, f"new {k} {seed}", **groups)
        if k % 31 == 9:
            engine.set_alpha("bandit", float(rng.choice([0.5, 0.9])))
        if k % 53 == 11:
            engine.rollback("bandit", engine.experiment("bandit").position - int(rng.integers(10)))
        if k % 61 == 13 and len(engine.experiment("default").arms) > 2:
            engine.retire_arm("default", engine.experiment("default").arms[0])
        if k % 47 == 3:
            clock.now += 30.0
            engine.expire()


@pytest.fixture
def path(tmp_path: Path, clock: Clock) -> Path:
    path = tmp_path / "shop.db"
    with Engine(open_store(path), seed=3, clock=clock) as engine:
        for name, settings in EXPERIMENTS.items():
            engine.create(name, arms=ARMS, **settings)
        play(engine, clock, 150, 1)
    return path


def naive(path: Path, experiment: Experiment) -> dict[str, Any]:
    """What the summary must contain, counted event by event from the tables."""
    of_decision = "join decision d on d.event = r.decision where d.experiment = ? order by r.event"
    with open_store(path, read_only=True) as store:
        decisions = rows_of(
            store, "select event, context, arm, at, deferred from decision where experiment = ?", (experiment.key,)
        )
        activated = dict(rows_of(store, f"select r.decision, r.at from activation r {of_decision}", (experiment.key,)))
        rewards = rows_of(
            store,
            f"select r.event, r.decision, d.arm, r.reward, r.rewards, r.source, r.at, d.at from reward r {of_decision}",
            (experiment.key,),
        )
    found = experiment.summary
    shape = found.n_buckets, len(experiment.arms)
    counts: dict[str, Any] = {
        "arm_decisions": np.zeros(shape, dtype=np.int64),
        "arm_rewards": np.zeros(shape),
        "rewards": np.zeros(shape[0], dtype=np.int64),
        "expired": np.zeros(shape[0], dtype=np.int64),
        "contexts": np.zeros(experiment.n_contexts, dtype=np.int64),
        "delays": np.zeros(len(DELAY_BOUNDS) + 1, dtype=np.int64),
    }
    for _, context, arm, at, _ in decisions:
        counts["arm_decisions"][(at - found.start) // found.width, arm] += 1
        counts["contexts"][context] += 1
    for _, decision, arm, reward, blob, source, at, decided_at in rewards:
        bucket = (at - found.start) // found.width
        if source in ("client", "default"):
            value = reward if blob is None else float(np.frombuffer(blob)[arm])
            counts["arm_rewards"][bucket, arm] += value
            counts["rewards"][bucket] += 1
        if source == "expired":
            counts["expired"][bucket] += 1
        if source == "client":
            delay = at - activated.get(decision, decided_at)
            counts["delays"][sum(delay > bound for bound in DELAY_BOUNDS)] += 1
    return counts


def experiments_of(path: Path, how: str) -> dict[str, Experiment]:
    """The experiments as a replay of everything, or one that starts at the last snapshots, arrives at them."""
    found: dict[str, Experiment] = {}
    with open_store(path, read_only=True) as store:
        again = Replay(store, {head.key: head.position for head in store.heads()})
        repeated = (again.from_snapshots() if how == "snapshots" else again).run()
        found |= {each.name: each for each in repeated.values()}
    return found


def fields(found: Summary) -> dict[str, Any]:
    """Everything that a summary consists of."""
    found.flush()
    kept = {name: value for name, value in vars(found).items() if not name.startswith("_")}
    counted = {f"sides {number}": table for number, table in kept.pop("sides").tables.items()}
    return {**kept, **counted, "contexts": np.trim_zeros(kept["contexts"], "b")}


def assert_same(one: Summary, other: Summary) -> None:
    first, second = fields(one), fields(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_is_what_a_slow_count_of_the_log_says(path: Path, name: str) -> None:
    found = experiments_of(path, "all")[name]
    kept, counted = fields(found.summary), naive(path, found)
    assert found.summary.width > SECOND
    for each in ("arm_decisions", "rewards", "expired"):
        np.testing.assert_array_equal(kept[each][: found.summary.n_buckets], counted[each], err_msg=each)
        assert not kept[each][found.summary.n_buckets :].any()
    np.testing.assert_allclose(kept["arm_rewards"][: found.summary.n_buckets], counted["arm_rewards"], atol=1e-9)
    np.testing.assert_array_equal(kept["contexts"], counted["contexts"][: len(kept["contexts"])])
    np.testing.assert_array_equal(kept["delays"], counted["delays"])
    assert counted["delays"].sum() > 5
    assert counted["arm_decisions"].sum() == found.tally.decisions


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_does_not_depend_on_how_the_engine_has_arrived_at_it(path: Path, clock: Clock, name: str) -> None:
    with Engine(open_store(path), seed=4, clock=clock) as engine:
        play(engine, clock, 60, 2)
        live_summary = live_state(engine, name).experiments[name].summary.copy()
        assert rows_of(engine, "select count(*) from snapshot where summary is not null")[0][0] >= 5
        crashed = path.with_name("crashed.db")
        copy_as_crashed(path, crashed)
    replayed = experiments_of(crashed, "all")[name].summary
    assert_same(live_summary, replayed)
    assert_same(live_summary, experiments_of(crashed, "snapshots")[name].summary)
    assert_same(live_summary, Summary.from_bytes(live_summary.to_bytes()))
    fairness = live_summary.fairness[: live_summary.bucket]
    assert np.isnan(fairness).all() == (name == "no accounts")


def test_a_rollback_or_an_upgrade_keeps_it(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last state to start from may be one of those, and not a snapshot."""
    with Engine(open_store(path), seed=4, clock=clock) as engine:
        clock.now += 5.0
        engine.rollback("bandit", engine.experiment("bandit").position - 60)
        engine.decide("bandit", "visitor 1")
        kept = live_state(engine, "bandit").experiments["bandit"].summary.copy()
        assert "summary" not in engine.history("bandit")[-1].details
        crashed = path.with_name("crashed.db")
        copy_as_crashed(path, crashed)
    assert_same(kept, experiments_of(crashed, "snapshots")["bandit"].summary)
    assert_same(kept, experiments_of(crashed, "all")["bandit"].summary)
    for module in HAVE_CODE:
        monkeypatch.setattr(f"alphafair.engine.{module}.CODE", "other code")
    with Engine(open_store(crashed), seed=5, clock=clock) as engine:
        engine.decide("bandit", "visitor 1")
        kept = live_state(engine, "bandit").experiments["bandit"].summary.copy()
        make_stale(engine, "bandit")  # so that no snapshot is saved
    assert_same(kept, experiments_of(crashed, "snapshots")["bandit"].summary)
    with Engine(open_store(crashed), seed=5, clock=clock) as engine:
        engine.verify()


@sqlite_only("is about files of older versions")
def test_a_file_of_an_older_version_is_counted_once(path: Path, clock: Clock) -> None:
    """Old snapshots have no summary: the counts are taken from the log, only past fairness stays unknown."""
    expected = experiments_of(path, "all")
    with connected(path) as file:
        (cut,) = file.execute("select count(*) from snapshot_piece").fetchone()
        assert not cut
        rows = file.execute("select rowid, state, summary from snapshot").fetchall()
        file.executemany("update snapshot set state = ? where rowid = ?", [(s[:-n], r) for r, s, n in rows])
        bodies = file.execute("select event, body, state from change where kind = 'rollback'").fetchall()
        assert bodies
        for seq, body, state in bodies:
            old = json.loads(body)
            n = old.pop("summary")
            file.execute("update change set body = ?, state = ? where event = ?", (json.dumps(old), state[:-n], seq))
        take_back(file, 10)
    with Engine(open_store(path), seed=4, clock=clock) as engine:
        for name, experiment in live_state(engine).experiments.items():
            first, second = fields(experiment.summary), fields(expected[name].summary)
            for each in first:
                if each != "fairness":
                    np.testing.assert_array_equal(first[each], second[each], err_msg=f"{name} {each}")
        assert np.isnan(live_state(engine, "bandit").experiments["bandit"].summary.fairness[:3]).all()
        engine.verify()
        play(engine, clock, 20, 3)
        engine.verify()


def test_verify_compares_it(path: Path, clock: Clock) -> None:
    with Engine(open_store(path), seed=4, clock=clock) as engine:
        engine.verify()
        live_state(engine, "bandit").experiments["bandit"].summary.contexts[0] += 1
        with pytest.raises(Mismatch, match="bandit: its summary over time is not what the log leads to"):
            engine.verify()


def test_there_are_never_more_buckets_than_allowed() -> None:
    found = Summary(START * SECOND, 3)
    most = most_buckets(3)
    for second in (0, 5, most - 1, most, 10 * most, 10**6):
        found.advance((START + second) * SECOND, lambda: (1.0, 2.0))
        assert found.n_buckets <= most == len(found.rewards)
        assert found.start + found.bucket * found.width <= (START + second) * SECOND < found.ends
    assert found.width == SECOND << 15  # the first power of two that reaches a million seconds with 32 buckets
    for _ in range(40):
        found.add_arm()
    assert len(found.rewards) == most_buckets(43) == summary.LEAST_BUCKETS
    assert found.arm_decisions.shape == (summary.LEAST_BUCKETS, 43)


def test_fairness_of_a_bucket_is_the_one_at_its_end() -> None:
    found = Summary(START * SECOND, 3)
    values = iter([(0.5, 1.0), (0.75, 2.0), (1.0, 3.0)])
    for second in (1, 1.5, 3, 40):
        found.advance(int((START + second) * SECOND), lambda: next(values))
    assert found.width == 2 * SECOND
    assert found.fairness[0].tolist() == [0.75, 2.0]  # of second 1, merged with second 0
    assert found.fairness[1].tolist() == [1.0, 3.0]
    assert np.isnan(found.fairness[2:]).all()


def test_recent_counts_cover_the_last_seconds(clock: Clock, tmp_path: Path) -> None:
    with Engine(open_store(tmp_path / "shop.db"), seed=1, clock=clock) as engine:
        engine.create("home", arms=["ada", "ben"])
        for _ in range(20):
            clock.now += 1.0
            engine.submit([Decide("home", "v")] * 5)
        found = live_state(engine, "home").experiments["home"].summary.copy().recent(clock() // 1000, 10.0)
    assert found.decisions.sum() == 5 * 11  # the bucket that began ten seconds ago, and ten later ones
    assert found.seconds == pytest.approx(10.0)


def test_other_bytes_are_refused() -> None:
    blob = Summary(START * SECOND, 3).to_bytes()
    for wrong in (b"", b"{}\n", blob[:-1], blob[:40], b"\xff" * 30):
        with pytest.raises(ValueError, match="not the bytes of a summary"):
            Summary.from_bytes(wrong)
