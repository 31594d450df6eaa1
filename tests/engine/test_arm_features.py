"""Features of arms in the engine: declared once, values that are terms, and the same state from the log to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, Stream, simulate
from alphafair.engine import Engine, RequestError, SlateReceipt
from alphafair.engine.state import steps as steps_module
from alphafair.engine.state.experiment import same_state
from alphafair.engine.state.steps import ArmFeatures
from alphafair.errors import InvalidArgument
from tests.engine.test_features import Replay
from tests.stores import both_stores, live_state, open_store, sqlite_only, writer_of

pytestmark = both_stores
ARMS = ["ada", "ben", "cyd"]
DECLARED = {"price": "number", "kind": ["book", "*"]}
VALUES = {"ada": {"price": 1.0, "kind": "book"}, "ben": {"price": 2}, "cyd": {"price": -1, "kind": "toy"}}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine(open_store(tmp_path / "shop.db"), seed=3)
    made.create("home", arms=ARMS, alpha=0.5, arm_features=DECLARED)
    yield made
    made.verify()
    made.close()


def play(engine: Engine, n_decisions: int, **options: Any) -> list[Any]:
    """Decide, and reward two of three; return the others."""
    left = []
    for t in range(n_decisions):
        receipt = engine.decide("home", f"c{t % 4}", **options)
        if isinstance(receipt, SlateReceipt):
            engine.reward(receipt.id, dict.fromkeys(receipt.arms, 0.5))
        elif t % 3:
            engine.reward(receipt.id, 0.8 if receipt.arm == "ada" else 0.3)
        else:
            left.append(receipt)
    return left


@sqlite_only("is about what a policy learns, which no store changes")
@pytest.mark.parametrize("at_once", [1 << 22, 8])
def test_the_runs_of_simulate(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same features of arms, uniform numbers and rewards lead to the same state, however many steps are at once."""
    monkeypatch.setattr(steps_module, "MOST_NUMBERS", at_once)
    n_rounds, rng = 200, np.random.default_rng(1)
    matrices = np.repeat(rng.normal(size=(4, 3, 2)), n_rounds // 4, axis=0)  # changed three times
    rewards = np.clip(0.5 + 0.3 * matrices[:, :, 0], 0.0, 1.0)
    stream = Stream(np.zeros(n_rounds, dtype=int), np.arange(n_rounds), rewards, features=matrices)
    policy = AlphaFairAdaptive(1, 3, alpha=0.5, n_features=2, features_of="arms")
    trace = simulate(policy, stream, seed=5, log=True)
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create("home", arms=ARMS, alpha=0.5, arm_features={"x": "number", "y": "number"}, contexts=["c"])
        writer_of(engine)._handler._random = Replay(np.random.default_rng(5).random(n_rounds))  # type: ignore[assignment]
        propensities = []
        for t in range(n_rounds):
            if t % (n_rounds // 4) == 0:
                values = {arm: {"x": row[0], "y": row[1]} for arm, row in zip(ARMS, matrices[t].tolist(), strict=True)}
                engine.set_terms("home", arm_features=values)
            receipt = engine.decide("home", "c")
            engine.reward(receipt.id, float(rewards[t, ARMS.index(receipt.arm)]))
            propensities.append(receipt.propensity)
        assert trace.log is not None
        assert propensities == trace.log.propensities.tolist()
        before = live_state(engine).experiments["home"].policy.snapshot()
        assert same_state(before, policy.snapshot())
        live_state(engine).load()
        assert same_state(live_state(engine).experiments["home"].policy.snapshot(), before)
        assert engine.verify() == 1 + 4 + 2 * n_rounds


def test_everything_leads_to_the_same_state(engine: Engine) -> None:
    """Late rewards of decisions with earlier values, new arms, slates, a rollback: replayed to the bit."""
    engine.set_terms("home", arm_features=VALUES)
    late = play(engine, 30)
    engine.set_terms("home", arm_features={"ben": {"price": 5, "kind": "book"}})
    for receipt in late[:5]:
        engine.reward(receipt.id, 0.4)
    for t in range(5):
        engine.observe("home", "c1", "ben", 0.9, f"other-{t}")
    engine.add_arm("home", "dov", features={"price": 3})
    for receipt in late[5:]:
        engine.reward(receipt.id, 0.6)  # of decisions that did not know the new arm
    play(engine, 20)
    engine.retire_arm("home", "cyd")
    play(engine, 10, k=2)
    engine.rollback("home", 60)
    play(engine, 10)
    values = engine.experiment("home").features_by_arm
    assert values is not None
    assert values["ben"] == {"price": 5.0, "kind": "book"}  # a rollback keeps terms
    assert values["dov"] == {"price": 3.0, "kind": "*"}
    before, n_events = live_state(engine, "home").experiments["home"].policy.snapshot(), engine.verify()
    live_state(engine, "home").load()
    assert same_state(live_state(engine, "home").experiments["home"].policy.snapshot(), before)
    assert engine.verify() == n_events


def test_every_live_arm_needs_what_is_required(engine: Engine) -> None:
    for arms in (ARMS, ["ben", "cyd"], ["cyd"]):
        position = engine.position
        with pytest.raises(RequestError, match=f"for '{arms[0]}'") as refused:
            engine.decide("home", "c")
        assert (refused.value.code, refused.value.argument) == ("bad_features", "arm_features")
        assert engine.position == position
        engine.set_terms("home", arm_features={arms[0]: {"price": 1}})
    engine.decide("home", "c")
    with pytest.raises(RequestError, match="features must be left out"):
        engine.decide("home", "c", features={"price": 1})
    engine.set_terms("home", arm_features=None)
    assert engine.experiment("home").features_by_arm == dict.fromkeys(ARMS)
    with pytest.raises(RequestError, match="arm_features must be those"):
        engine.decide("home", "c")
    engine.set_terms("home", arm_features={"ada": {"price": 1}, "ben": {"price": 1}})
    engine.retire_arm("home", "cyd")
    engine.decide("home", "c")
    changes = [change.details for change in engine.history("home") if change.kind == "terms"]
    assert changes[0] == {"set": {"arm_features": {"ada": {"price": 1.0, "kind": "*"}}}}


def test_values_that_may_all_be_missing(engine: Engine) -> None:
    engine.create("loose", arms=ARMS, arm_features={"price": "number?"})
    engine.decide("loose", "c")
    engine.set_terms("loose", arm_features={"ben": {"price": 2}})
    engine.add_arm("loose", "dov", features={})
    receipt = engine.decide("loose", "c")
    engine.reward(receipt.id, 0.5)
    status = engine.experiment("loose")
    assert status.arm_features == {"price": "number?"}
    assert status.features_by_arm == {arm: {"price": 2.0 if arm == "ben" else None} for arm in [*ARMS, "dov"]}


@pytest.mark.parametrize(
    ("values", "code", "argument"),
    [
        ({"ada": {"price": "x"}}, "bad_features", "arm_features.price"),
        ({"ada": {}}, "bad_features", "arm_features.price"),
        ({"ada": {"price": 1, "size": 2}}, "bad_features", "arm_features.size"),
        ({"ada": 3}, "bad_features", "arm_features"),
        ({"zoe": {"price": 1}}, "unknown_arm", "arm_features"),
        ([1], "bad_features", "arm_features"),
    ],
)
def test_values_that_are_refused(engine: Engine, values: Any, code: str, argument: str) -> None:
    with pytest.raises(RequestError) as refused:
        engine.set_terms("home", arm_features=values)
    assert (refused.value.code, refused.value.argument) == (code, argument)
    assert engine.position == 1


def test_new_arms_without_features_are_refused(engine: Engine) -> None:
    engine.create("plain", arms=ARMS)
    for name, features in (("home", None), ("home", {"price": "x"}), ("plain", {"price": 1})):
        with pytest.raises(RequestError) as refused:
            engine.add_arm(name, "new", features=features)
        assert refused.value.code == "bad_features"
    with pytest.raises(RequestError, match="arm_features must be left out: none are declared"):
        engine.set_terms("plain", arm_features={"ada": {"price": 1}})
    assert engine.experiment("plain").arm_features is None
    assert engine.experiment("plain").features_by_arm is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arm_features": {"a": "number"}, "features": {"b": "number"}}, "arm_features must be left out"),
        ({"arm_features": {"a": "number"}, "policy": "uniform"}, "policy must be one with features"),
        ({"arm_features": {"a": "text"}}, r"arm_features\.a must be"),
        ({"arm_features": {"a": "number"}, "features_of": "arms"}, "features_of must be left out"),
    ],
)
def test_experiments_that_are_refused(engine: Engine, options: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        engine.create("new", arms=ARMS, **options)


@sqlite_only("is about arrays")
def test_rows_of_steps() -> None:
    rows = ArmFeatures([np.ones((2, 1)), np.full((3, 1), 2.0), np.full((3, 1), 3.0)], np.array([0, 2, 0]))
    assert rows.table(3)[:, :, 0].tolist() == [[1.0, 1.0, 0.0], [3.0, 3.0, 3.0], [1.0, 1.0, 0.0]]
    assert rows[1:].table(3).shape == (2, 3, 1)
