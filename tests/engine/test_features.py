"""Decisions with features: golden values in the log, the runs of `simulate` to the bit, and what `verify` finds."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from alphafair import AlphaFairAdaptive, Log, simulate, streams
from alphafair.engine import Decide, Engine, RequestError, SlateReceipt
from alphafair.engine.copies import copy
from alphafair.engine.state.experiment import same_state
from alphafair.engine.state.verify import checksum
from alphafair.errors import InvalidArgument, Mismatch
from alphafair.lab.rivals.lin_ucb import FairLinUCB
from alphafair.values import FeatureSchema
from tests import ROOT
from tests.stores import both_stores, is_postgres, live_state, open_store, rows_of, sqlite_only, writer_of

pytestmark = both_stores
GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "golden-adoption.json").read_text())["features"]
DECLARED = {"age": "number", "visits": "number?", "segment": ["new", "loyal", "*"], "device": ["phone", "desk"]}
ARMS = ["ada", "ben", "cyd"]


class Replay:
    """A source of uniform numbers that are known."""

    def __init__(self, uniforms: Any) -> None:
        self.random = iter(uniforms.tolist()).__next__


def values(rng: np.random.Generator) -> dict[str, Any]:
    """The features of one visit; those that may be missing sometimes are."""
    found: dict[str, Any] = {"age": float(rng.normal()), "device": str(rng.choice(["phone", "desk"]))}
    if rng.random() < 0.5:
        found["visits"] = int(rng.integers(9))
    if rng.random() < 0.7:
        found["segment"] = str(rng.choice(["new", "loyal", "vip"]))
    return found


class Shop:
    """An engine with an experiment that has features, at a time that tests move."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.rng = path, 1_700_000_000 * 10**9, np.random.default_rng(4)
        self.engine = self.opened()
        self.engine.create("home", arms=ARMS, alpha=0.5, features=DECLARED, reward_wait=100.0)

    def opened(self) -> Engine:
        return Engine(open_store(self.path), seed=3, clock=lambda: self.now)

    def play(self, n_decisions: int, **options: Any) -> None:
        for _ in range(n_decisions):
            shown = values(self.rng)
            receipt = self.engine.decide("home", f"c{self.rng.integers(3)}", features=shown, **options)
            self.reward(receipt, shown)

    def reward(self, receipt: Any, shown: dict[str, Any]) -> None:
        lean = 0.3 * math.tanh(shown["age"])
        rewards = {arm: 0.5 + lean * (1 if arm == "ada" else -1) for arm in [*ARMS, "dov"]}
        if isinstance(receipt, SlateReceipt):
            self.engine.reward(receipt.id, {arm: rewards[arm] for arm in receipt.arms})
        else:
            self.engine.reward(receipt.id, rewards[receipt.arm])

    @property
    def state(self) -> Any:
        return live_state(self.engine).experiments["home"].policy.snapshot()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop.db")
    yield made
    made.engine.verify()
    made.engine.close()


def test_golden_values_are_in_the_log(shop: Shop) -> None:
    shop.engine.create("golden", arms=ARMS, features=GOLDEN["features"])
    for row in GOLDEN["rows"]:
        shop.engine.decide("golden", "c", features=row["values"])
    blobs = [blob for (blob,) in rows_of(shop.engine, "select features from decision order by event")]
    stored = [struct.unpack("<4d", blob) for blob in blobs]
    expected = [[math.nan if each == "nan" else each for each in row["stored"]] for row in GOLDEN["rows"]]
    assert np.array_equal(stored, expected, equal_nan=True)
    status = shop.engine.experiment("golden")
    assert status.features == GOLDEN["features"]
    assert shop.engine.history("golden")[0].details["features"] == GOLDEN["features"]


@sqlite_only("is about what a policy learns, which no store changes")
@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_the_runs_of_simulate(tmp_path: Path, feedback: str) -> None:
    """The same contexts, features, uniform numbers and rewards lead to the same propensities and state, to the bit."""
    n_rounds = 300
    stream = streams.described("linear", n_rounds=n_rounds, n_arms=3, n_features=2, seed=1)
    assert stream.features is not None
    policy = AlphaFairAdaptive(1, 3, alpha=0.5, n_features=2, feedback=feedback)  # type: ignore[arg-type]
    trace = simulate(policy, stream, seed=5, log=feedback == "bandit")
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create(
            "home", arms=ARMS, alpha=0.5, features={"x": "number", "y": "number"}, contexts=["c"], feedback=feedback
        )
        writer_of(engine)._handler._random = Replay(np.random.default_rng(5).random(n_rounds))  # type: ignore[assignment]
        propensities = []
        for t, (x, y) in enumerate(stream.features.tolist()):
            receipt = engine.decide("home", "c", features={"x": x, "y": y})
            rewards = dict(zip(ARMS, stream.reward_table[stream.items[t]].tolist(), strict=True))
            engine.reward(receipt.id, rewards if feedback == "full" else rewards[receipt.arm])
            propensities.append(receipt.propensity)
        if trace.log is not None:
            assert propensities == trace.log.propensities.tolist()
            log = engine.log("home")
            assert np.array_equal(log.features, stream.features)  # type: ignore[arg-type]
        accounts = engine.experiment("home").accounts
        assert [*accounts.values()] == trace.final.tolist()
        assert same_state(live_state(engine).experiments["home"].policy.snapshot(), policy.snapshot())
        assert engine.verify() == 1 + 2 * n_rounds


def test_everything_leads_to_the_same_state(shop: Shop, tmp_path: Path) -> None:
    """Slates, late rewards, masks, arms that come and go, a rollback, an erasure: replayed from the log to the bit."""
    engine = shop.engine
    shop.play(40)
    engine.expire()  # nothing yet: a snapshot of memory alone
    waiting = [engine.decide("home", "late", features=values(shop.rng), deferred=k % 2 == 1) for k in range(6)]
    shop.play(10, available=["ada", "ben"])
    shop.play(10, k=2)
    engine.activate(waiting[1].id)
    engine.add_arm("home", "dov")
    engine.retire_arm("home", "cyd")
    for receipt in waiting[:3]:
        engine.reward(receipt.id, 0.25)
    shop.play(10)
    engine.rollback("home", 90)
    engine.erase("home", "c1")
    shop.play(10)
    shop.now += 200 * 10**9  # the others expire
    engine.expire()
    before, n_events = shop.state, engine.verify()
    engine.close()
    shop.engine = engine = shop.opened()  # from the snapshot
    assert same_state(shop.state, before)
    rows_of(engine, "delete from snapshot returning position")
    if not is_postgres():
        engine._store.connection.commit()  # type: ignore[attr-defined]
    live_state(engine).load()  # from the log
    assert same_state(shop.state, before)
    assert engine.verify() == n_events
    target = tmp_path / "copy.db"
    assert engine.backup(target) == n_events
    with Engine.open(target, read_only=True) as again:
        assert again.verify() == n_events


def test_rewards_of_decisions_that_are_not_in_memory(shop: Shop) -> None:
    """Their features are found with them, in the log."""
    shop.play(20)
    old = [shop.engine.decide("home", "c0", features=values(shop.rng)) for _ in range(3)]
    shop.engine.close()
    shop.engine = shop.opened()
    shop.engine.reward(old[0].id, 1.0)
    shop.now += 101 * 10**9
    assert shop.engine.expire() == 2
    assert shop.engine.verify() == 1 + 40 + 6


def test_a_repeated_id_returns_its_decision(shop: Shop) -> None:
    receipt = shop.engine.decide("home", "c", "visit", features={"age": 1, "device": "desk"})
    for features in (None, {"age": "wrong"}, {"age": 2, "device": "phone"}):
        assert shop.engine.decide("home", "c", "visit", features=features) == receipt  # type: ignore[arg-type]


def test_many_decisions(shop: Shop) -> None:
    shown: list[Any] = [
        {"age": 1, "device": "desk"},
        {"age": "x", "device": "desk"},
        None,
        {"age": 2, "device": "desk"},
    ]
    answers = shop.engine.decide_many("home", ["a", "b", "c", "d"], features=shown)
    assert [getattr(answer, "code", None) for answer in answers] == [None, "bad_features", "bad_features", None]
    assert shop.engine.experiment("home").contexts == 2
    with pytest.raises(InvalidArgument, match="features must be as many as contexts"):
        shop.engine.decide_many("home", ["a"], features=shown)


@pytest.mark.parametrize(
    ("features", "argument"),
    [
        ({"age": 1.0, "device": "desk", "height": 2}, "features.height"),
        ({"device": "desk"}, "features.age"),
        ({"age": "31", "device": "desk"}, "features.age"),
        ({"age": math.inf, "device": "desk"}, "features.age"),
        ({"age": 1.0, "device": "car"}, "features.device"),
        ([1.0], "features"),
        (None, "features.age"),
    ],
)
def test_refusals_change_nothing(shop: Shop, features: Any, argument: str) -> None:
    with pytest.raises(RequestError) as refused:
        shop.engine.decide("home", "new", features=features)
    assert (refused.value.code, refused.value.argument) == ("bad_features", argument)
    assert shop.engine.experiment("home").contexts == 0
    assert shop.engine.position == 1


def test_features_that_are_not_declared(shop: Shop) -> None:
    shop.engine.create("plain", arms=ARMS)
    with pytest.raises(RequestError, match="features must be left out: none are declared") as refused:
        shop.engine.decide("plain", "c", features={"age": 1.0})
    assert refused.value.code == "bad_features"
    assert shop.engine.experiment("plain").features is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"policy": "uniform", "features": DECLARED},
            r"policy must be one with features \(alpha-fair-adaptive.*cluster",
        ),
        ({"n_features": 3}, "n_features must be left out.*Pass features by name and type"),
        ({"features": {"age": "number"}, "n_features": 1}, "n_features must be left out"),
        ({"features": {"age": "number"}, "regressor": 1}, "regressor must be left out"),
        ({"features": {"age": "integer"}}, r"features\.age must be"),
        ({"features": {}}, "features must be an object of 1 to 50 features"),
    ],
)
def test_experiments_that_are_refused(shop: Shop, options: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        shop.engine.create("new", arms=ARMS, **options)
    assert shop.engine.experiments() == ["home"]


def test_a_policy_that_was_warmed_with_features(shop: Shop) -> None:
    policy = AlphaFairAdaptive(1, 3, alpha=0.5, n_features=8, seed=0)
    start = policy.snapshot()
    shop.engine.create("warm", arms=ARMS, contexts=["c"], start=start, features=DECLARED)
    shop.engine.decide("warm", "c", features={"age": 1, "device": "desk"})
    for features in ({"age": "number"}, None):
        with pytest.raises(RequestError, match="start must be a state with"):
            shop.engine.create("other", arms=ARMS, contexts=["c"], start=start, features=features)
    of_arms = AlphaFairAdaptive(1, 3, alpha=0.5, n_features=8, features_of="arms", seed=0).snapshot()
    with pytest.raises(RequestError, match=r"start must be a state with features of shape \(8,\); got"):
        shop.engine.create("other", arms=ARMS, contexts=["c"], start=of_arms, features=DECLARED)


def test_policies_that_need_features(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from alphafair.algorithms import POLICIES

    class Ignoring(AlphaFairAdaptive):
        """Takes the argument, and has no features all the same."""

        name = "ignoring"

        def __init__(self, n_contexts: int, n_arms: int, *, n_features: int = 0, seed: int | None = None) -> None:
            super().__init__(n_contexts, n_arms, seed=seed)

    monkeypatch.setitem(POLICIES, "lin-ucb", FairLinUCB)  # type: ignore[arg-type]
    monkeypatch.setitem(POLICIES, "ignoring", Ignoring)
    with pytest.raises(RequestError, match=r"features must be passed: .* requires them"):
        shop.engine.create("other", arms=ARMS, policy="lin-ucb")
    with pytest.raises(RequestError, match="policy must be one with the declared features"):
        shop.engine.create("other", arms=ARMS, policy="ignoring", features=DECLARED)


# the log


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_exported_features(shop: Shop, tmp_path: Path, suffix: str) -> None:
    shop.play(30)
    shop.engine.decide("home", "c0", features={"age": 1, "device": "desk"})  # without a reward
    path = tmp_path / f"log.{suffix}"
    assert shop.engine.export("home", path) == 31
    log = shop.engine.log("home")
    again = Log.from_table(path, features=DECLARED)
    assert log.features is not None
    assert again.features is not None
    assert log.features.shape == (30, len(FeatureSchema(DECLARED).columns))
    assert np.array_equal(log.features, again.features)
    assert np.array_equal(log.arms, [log.arm_labels.index(again.arm_labels[arm]) for arm in again.arms])  # type: ignore
    if suffix == "parquet":
        frame = pl.read_parquet(path)
        assert frame.columns[-4:] == [f"feature.{name}" for name in DECLARED]
        assert frame["feature.segment"].to_list()[-1] == "*"
        assert frame["feature.visits"].to_list()[-1] is None


def test_exported_slates_and_formulas(shop: Shop, tmp_path: Path) -> None:
    shop.engine.create("sheet", arms=ARMS, features={"=a, b": ["=1+1", "-2"]})
    receipt = shop.engine.decide("sheet", "c", k=2, features={"=a, b": "=1+1"})
    shop.engine.reward(receipt.id, dict.fromkeys(receipt.arms, 0.5))
    assert shop.engine.export("sheet", tmp_path / "log.csv") == 2
    log = Log.from_table(tmp_path / "log.csv", features={"=a, b": ["=1+1", "-2"]})
    assert log.features is not None
    assert log.features.tolist() == [[1.0, 0.0]] * 2
    assert np.array_equal(log.features, shop.engine.log("sheet").features)  # type: ignore[arg-type]


# what verify finds


OTHERS: list[tuple[Any, str]] = [
    ((math.nan, 1.0, 0.0, 1.0), "does not have the declared features"),
    ((0.5, 1.0, 3.0, 1.0), "does not have the declared features"),
    ((0.5, 1.0, 0.0), "does not have the declared features"),
    (None, "does not have the declared features"),
    ((0.5, 1.0, 0.0, 1.0), "is not what|leads to"),
]


@sqlite_only("changes bytes of a file")
@pytest.mark.parametrize(("row", "words"), OTHERS)
def test_changed_features_are_found(tmp_path: Path, row: Any, words: str) -> None:
    """By their checksum; where that was forged as well, because the log no longer leads to what it says."""
    shop = Shop(tmp_path / "shop.db")
    shop.play(30)
    blob = None if row is None else struct.pack(f"<{len(row)}d", *row)
    with contextlib.closing(sqlite3.connect(shop.path)) as file:
        file.execute("update decision set features = ? where position = 20", [blob])
        file.commit()
        with pytest.raises(Mismatch, match=r"was not made for context .* or not under this id"):
            shop.engine.verify()
        query = """select d.context, c.label, d.id from decision d
            join context c on c.experiment = d.experiment and c.number = d.context where d.position = 20"""
        (made,) = file.execute(query).fetchall()
        file.execute("update decision set checksum = ? where position = 20", [checksum(1, *made, blob)])
        file.commit()
    with pytest.raises(Mismatch, match=words):
        shop.engine.verify()
    shop.engine.close()


def test_decisions_of_others_have_features(shop: Shop) -> None:
    """They are learned from with them: live, from the log, and from a snapshot, to the bit."""
    shop.play(10)
    for t in range(20):
        shown = values(shop.rng)
        shop.engine.observe("home", "c0", "ada", 0.5 + 0.4 * math.tanh(shown["age"]), f"other-{t}", features=shown)
    with pytest.raises(RequestError, match=r"features\.age"):
        shop.engine.observe("home", "c0", "ada", 0.5, features={"age": "x", "device": "desk"})
    shop.play(10)
    before, n_events = shop.state, shop.engine.verify()
    live_state(shop.engine).load()
    assert same_state(shop.state, before)
    shop.engine.close()
    shop.engine = shop.opened()
    assert same_state(shop.state, before)
    assert shop.engine.verify() == n_events


def test_a_copy_has_them(shop: Shop, tmp_path: Path) -> None:
    shop.play(10)
    shop.engine.close()
    store = shop.engine._store
    copy(store.address, tmp_path / "copy.db")
    with Engine.open(tmp_path / "copy.db") as again:
        assert again.verify() == 21
        assert again.log("home").features is not None
    shop.engine = shop.opened()


def test_requests_of_several_experiments(shop: Shop) -> None:
    """Experiments with other features, or none, are written and read side by side."""
    shop.engine.create("one", arms=ARMS, features={"x": "number"})
    shop.engine.create("none", arms=ARMS)
    for t in range(20):
        answers = shop.engine.submit(
            [
                Decide("home", "c", features={"age": t, "device": "desk"}),
                Decide("one", "c", features={"x": -t}),
                Decide("none", "c"),
            ]
        )
        for answer in answers:
            shop.engine.reward(answer.id, 0.5)  # type: ignore[union-attr]
    n_events = shop.engine.verify()
    shop.engine.close()
    shop.engine = shop.opened()
    assert shop.engine.verify() == n_events
