"""Any alpha from 0 to inf in the engine: its log, its reports, and what a replay leads to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, Engine, Groups, metrics
from alphafair.engine.state.experiment import same_state
from alphafair.errors import InvalidArgument
from tests.stores import both_stores, execute, live_state

pytestmark = [both_stores, pytest.mark.compiled]

POLICIES = ("alpha-fair-adaptive", "alpha-fair-bandit", "alpha-fair")


def play(engine: Engine, n_rounds: int, name: str = "home", seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    full = engine.experiment(name).feedback == "full"
    n_arms = len(engine.experiment(name).pulls)
    for k in range(n_rounds):
        receipt = engine.decide(name, f"visitor-{k % 3}")
        reward = rng.random(n_arms).tolist() if full else float(rng.random() < 0.2 * (1 + k % 4))
        assert engine.reward(receipt.id, reward).outcome == "applied"


def bodies(path: Path) -> list[str]:
    return [body for (body,) in execute(path, "select body from change order by position")]


@pytest.mark.parametrize("alpha", [1.0, 2.0, math.inf, "inf"])
@pytest.mark.parametrize("policy", POLICIES)
def test_an_experiment_has_any_alpha(tmp_path: Path, policy: str, alpha: Any) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=["ada", "ben", "cyd"], policy=policy, alpha=alpha)
        play(engine, 40)
        before = engine.experiment("home")
        assert before.alpha == float(alpha)
        assert before.welfare == metrics.welfare([*before.accounts.values()], float(alpha))
        middle = engine.position
        play(engine, 20, seed=1)
        engine.rollback("home", middle)
        play(engine, 20, seed=2)
        engine.verify()
        after = engine.experiment("home")
        state = live_state(engine, "home").find("home").policy.snapshot()
        assert engine.export("home", tmp_path / "log.jsonl") == 80
    assert not any("Infinity" in body for body in bodies(path))
    with Engine.open(path, seed=2) as engine:  # from its snapshot
        assert engine.experiment("home") == after
        play(engine, 10, seed=3)
        assert engine.verify() == engine.position
    execute(path, "delete from snapshot")
    with Engine.open(path, read_only=True) as engine:  # from the log alone
        engine.verify()
        found = live_state(engine, "home").find("home")
        assert found.alpha == found.policy.alpha == float(alpha)
        assert type(found.alpha) is float
        assert found.policy.snapshot().settings["alpha"] == state.settings["alpha"]


@pytest.mark.parametrize("policy", POLICIES)
def test_alpha_is_changed_from_below_1_to_inf_and_back(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "shop.db"
    alphas = (0.9, 2.0, math.inf, 1.0, 0.9)
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=["ada", "ben", "cyd"], policy=policy, alpha=alphas[0])
        positions = []
        for k, alpha in enumerate(alphas):
            accounts = engine.experiment("home").accounts
            if k:
                engine.set_alpha("home", alpha)
            found = engine.experiment("home")
            assert (found.alpha, found.accounts) == (alpha, pytest.approx(accounts, rel=1e-12))
            play(engine, 30, seed=k)
            positions.append(engine.position)
            engine.verify()
        engine.rollback("home", positions[2])  # what was learned at inf, with today's alpha
        assert engine.experiment("home").alpha == 0.9
        play(engine, 10, seed=9)
        engine.verify()
        changes = [each.details["alpha"] for each in engine.history("home") if each.kind == "set_alpha"]
        assert changes == [2.0, "inf", 1.0, 0.9]
        state = live_state(engine, "home").find("home").policy.snapshot()
    assert not any("Infinity" in body for body in bodies(path))
    execute(path, "delete from snapshot")
    with Engine.open(path) as engine:
        assert same_state(live_state(engine, "home").find("home").policy.snapshot(), state)
        engine.verify()


@pytest.mark.parametrize("alpha", [-0.1, math.nan, -math.inf, "x", None, True])
def test_a_bad_alpha_changes_nothing(tmp_path: Path, alpha: Any) -> None:
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create("home", arms=["ada", "ben"], alpha=2.0)
        with pytest.raises(InvalidArgument, match="alpha must be a number of at least 0, or inf"):
            engine.set_alpha("home", alpha)
        assert (engine.position, engine.experiment("home").alpha) == (1, 2.0)


def test_an_experiment_starts_from_a_snapshot_at_inf(tmp_path: Path) -> None:
    policy = AlphaFairAdaptive(1, 2, alpha=math.inf)
    policy.update(policy.choose(0), 1.0)
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create("home", arms=["ada", "ben"], contexts=["v"], start=policy.snapshot(), alpha=math.inf)
        assert engine.experiment("home").welfare == policy.accounts.min()
        engine.verify()
    assert json.loads(bodies(tmp_path / "shop.db")[0])["settings"]["alpha"] == "inf"


def test_welfare_is_weighted_by_entitlements(tmp_path: Path) -> None:
    entitlements = {"g": 1.0, "h": 2.0}
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=["a", "b", "c"], alpha=1.0, groups=Groups(["g", "g", "h"], entitlements))
        play(engine, 30)
        found = engine.experiment("home")
        g, h = found.accounts["g"], found.accounts["h"] / 2.0
        assert found.welfare == pytest.approx((g * h**2) ** (1 / 3), rel=1e-12)
        engine.create("even", arms=["a", "b"], policy="uniform")
        assert engine.experiment("even").welfare is None
