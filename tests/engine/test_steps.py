"""Steps of an event log, repeated in one compiled call, and one by one through public methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, AlphaFairBandit, Groups, InvalidArgument, ScaleFree, Uniform
from alphafair.engine.state import steps as engine_steps
from alphafair.engine.state.experiment import same_state
from alphafair.engine.state.steps import CLIENT, DECIDED, DRAWN, EXPIRED, NO_BUCKET, OWN, Row, Steps, follow
from alphafair.values.available import packed

MADE: dict[str, Any] = {
    "adaptive": lambda: AlphaFairAdaptive(2, 4, alpha=0.9),
    "bandit": lambda: AlphaFairBandit(2, 4, alpha=0.5),
    "groups": lambda: AlphaFairBandit(2, 4, groups=Groups(["a", "b", "a", "b"], entitlements={"b": 2.0})),
    "scale-free": lambda: ScaleFree(2, 4),
    "uniform": lambda: Uniform(2, 4, feedback="bandit"),
}


def steps_of(seed: int, *, retired: int | None) -> Steps:
    """Draws, some of them masked, rewards and expirations, also of others, in an order that a log could have."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    masks: dict[int, bytes] = {}
    for _ in range(60):
        context, reward = int(rng.integers(5)), float(rng.random())
        arm = int(rng.choice([i for i in range(4) if i != retired or rng.random() < 0.3]))
        propensity = float(rng.uniform(0.4, 1.0))
        if rng.random() < 0.5:
            if rng.random() < 0.5:
                mask = rng.random(4) < 0.5
                mask[arm] = mask[3 if retired != 3 else 2] = True
                masks[len(rows)] = packed(mask)
            rows.append((len(rows), DRAWN, context, arm, propensity, 0.0, OWN, NO_BUCKET, 0))
        rows.append((len(rows), DECIDED, context, arm, propensity, 0.0, OWN, NO_BUCKET, 0))
        kind = CLIENT if rng.random() < 0.8 else EXPIRED
        rows.append((len(rows), kind, context, arm, propensity, reward, OWN, NO_BUCKET, 0))
        if rng.random() < 0.3:
            rows.append((len(rows), CLIENT, context, arm, 0.0, 1.0 - reward, 1, 3, 0))
    return replace(Steps.of(rows, {}), masks=masks)


def unchanged(rewards: Any) -> Any:
    return rewards


@pytest.mark.parametrize("retired", [None, 1])
@pytest.mark.parametrize("name", MADE)
def test_compiled_and_one_by_one_agree_to_the_last_bit(
    name: str, retired: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, stepwise = MADE[name](), MADE[name]()
    for policy in (compiled, stepwise):
        if retired is not None:
            policy.retire(retired)
    steps = steps_of(3, retired=retired)
    drawn = follow(compiled, steps, unchanged)
    monkeypatch.setattr(engine_steps, "has_whole_runs", lambda policy: False)
    assert (follow(stepwise, steps, unchanged) == drawn).all()
    assert same_state(compiled.snapshot(), stepwise.snapshot())
    assert compiled.n_contexts == 5
    assert (drawn[steps.kind == DRAWN] >= 0.0).all()
    assert drawn[steps.kind == DRAWN].any()


def test_no_steps_change_nothing() -> None:
    policy = MADE["adaptive"]()
    before = policy.snapshot()
    empty = steps_of(3, retired=None)[:0]
    assert len(follow(policy, empty, unchanged)) == 0
    assert same_state(policy.snapshot(), before)


@pytest.mark.parametrize("retired", [None, 0])
def test_an_impossible_propensity_is_named(retired: int | None) -> None:
    policy = MADE["bandit"]()
    if retired is not None:
        policy.retire(retired)
    steps = Steps.of([(1, CLIENT, 0, 2, 1e-9, 0.5, OWN, NO_BUCKET, 1)], {})
    with pytest.raises(InvalidArgument, match=r"propensities\[0\] must be at least"):
        follow(policy, steps, unchanged)
