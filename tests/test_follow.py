"""What a durable log says was done, done again: in one compiled call, and one by one through public methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, AlphaFairBandit, Groups, InvalidArgument, ScaleFree, Uniform
from alphafair.engine import follow as following
from alphafair.engine.experiment import same_state
from alphafair.engine.follow import Steps, follow
from alphafair.policy.base import BasePolicy
from alphafair.policy.loops import DRAW, EXPECT, FORGO, LEARN

MADE: dict[str, Any] = {
    "adaptive": lambda: AlphaFairAdaptive(2, 4, alpha=0.9),
    "bandit": lambda: AlphaFairBandit(2, 4, alpha=0.5),
    "groups": lambda: AlphaFairBandit(2, 4, groups=Groups(["a", "b", "a", "b"], entitlements={"b": 2.0})),
    "scale-free": lambda: ScaleFree(2, 4),
    "uniform": lambda: Uniform(2, 4, feedback="bandit"),
}


def steps_of(policy: BasePolicy, seed: int, *, retired: int | None) -> Steps:
    """Draws, some of them masked, expectations, rewards and farewells, in an order that a log could have."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, float, float]] = []
    masks: dict[int, np.ndarray] = {}
    for _ in range(60):
        context, reward = int(rng.integers(5)), float(rng.random())
        arm = int(rng.choice([i for i in range(4) if i != retired or rng.random() < 0.3]))
        propensity = float(rng.uniform(0.4, 1.0))
        if rng.random() < 0.5:
            if rng.random() < 0.5:
                mask = rng.random(4) < 0.5
                mask[arm] = mask[3 if retired != 3 else 2] = True
                masks[len(rows)] = mask
            rows.append((DRAW, context, arm, propensity, 0.0))
        rows.append((EXPECT, context, arm, propensity, 0.0))
        step = LEARN if rng.random() < 0.8 else FORGO
        rows.append((step, context, arm, propensity, reward))
    steps, contexts, arms, propensities, rewards = (np.array(column) for column in zip(*rows, strict=True))
    kinds = steps.astype(np.int8), contexts.astype(np.int32), arms.astype(np.int32)
    return Steps(*kinds, propensities, rewards, masks)


@pytest.mark.parametrize("retired", [None, 1])
@pytest.mark.parametrize("name", MADE)
def test_compiled_and_one_by_one_agree_to_the_last_bit(
    name: str, retired: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, stepwise = MADE[name](), MADE[name]()
    for policy in (compiled, stepwise):
        if retired is not None:
            policy.retire(retired)
    log = steps_of(compiled, 3, retired=retired)
    drawn = follow(compiled, log)
    monkeypatch.setattr(following, "has_whole_runs", lambda policy: False)
    assert (follow(stepwise, log) == drawn).all()
    assert same_state(compiled.snapshot(), stepwise.snapshot())
    assert compiled.n_contexts == 5
    assert (drawn[log.steps == DRAW] >= 0.0).all()
    assert drawn[log.steps == DRAW].any()


def test_no_steps_are_no_work() -> None:
    policy = MADE["adaptive"]()
    before = policy.snapshot()
    empty = Steps(*(np.empty(0, dtype=kind) for kind in (np.int8, np.int32, np.int32, float, float)))
    assert len(follow(policy, empty)) == 0
    assert same_state(policy.snapshot(), before)


@pytest.mark.parametrize("retired", [None, 0])
def test_an_impossible_propensity_is_named(retired: int | None) -> None:
    policy = MADE["bandit"]()
    if retired is not None:
        policy.retire(retired)
    entry = (np.array([value]) for value in (LEARN, 0, 2, 1e-9, 0.5))
    step, context, arm, propensity, reward = entry
    kinds = step.astype(np.int8), context.astype(np.int32), arm.astype(np.int32)
    with pytest.raises(InvalidArgument, match=r"propensities\[0\] must be at least"):
        follow(policy, Steps(*kinds, propensity, reward))
