"""What a policy has learned has a version, which rises with every write; what was drawn serves one version only."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, Decision, Log, simulate, streams
from alphafair.run import over_log

STREAM = streams.ratings(20, 2, 3, seed=0)


def late_reward_of_a_retired_arm(policy: Any) -> None:
    policy.update(Decision(0, 2, 0.3, np.array([0.3, 0.4, 0.3])), 0.5)


WRITES: dict[str, Callable[[Any], Any]] = {
    "update": lambda policy: policy.update(policy.choose(0), 0.5),
    "expect": lambda policy: policy.expect(policy.choose(0)),
    "forgo": lambda policy: policy.forgo(policy.choose(0)),
    "observe": lambda policy: policy.observe(0, 1, 0.5),
    "observe a log": lambda policy: policy.observe_log(Log([0], [1], [0.5], [0.3], n_contexts=2, n_arms=3)),
    "grow contexts": lambda policy: policy.grow(n_contexts=3),
    "grow arms": lambda policy: policy.grow(n_arms=4),
    "retire": lambda policy: policy.retire(0),
    "set alpha": lambda policy: policy.set_alpha(0.5),
    "cross 1": lambda policy: policy.set_alpha(2.0),
    "new period": lambda policy: policy.new_period(),
    "simulate": lambda policy: simulate(policy, STREAM),
    "learn from a log": lambda policy: over_log(policy, Log([0], [1], [0.5], [0.3], n_contexts=2, n_arms=3)),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("groups", [None, ["a", "a", "b"]])
def test_every_write_raises_the_version(write: str, groups: list[str] | None) -> None:
    policy = AlphaFairAdaptive(2, 3, groups=groups, seed=0)
    before = policy._learned.version
    WRITES[write](policy)
    assert policy._learned.version > before


@pytest.mark.parametrize("groups", [None, ["a", "a", "b"]])
def test_rewards_of_retired_arms_raise_it(groups: list[str] | None) -> None:
    policy = AlphaFairAdaptive(2, 3, groups=groups, seed=0)
    policy.retire(2)
    before = policy._learned.version
    late_reward_of_a_retired_arm(policy)
    assert policy._learned.version > before


def test_questions_do_not() -> None:
    policy = AlphaFairAdaptive(2, 3, seed=0)
    before = policy._learned.version
    policy.choose(0)
    policy.choose(1, available=[True, False, True])
    policy.probabilities(0)
    policy.snapshot()
    assert policy._learned.version == before


CHANGES = {name: write for name, write in WRITES.items() if name not in ("retire", "update", "learn from a log")}
CHANGES["update"] = lambda policy: policy.update(
    policy.choose(0), 0.5 if policy.feedback == "bandit" else [0.5, 0.1, 1]
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("feedback", ["bandit", "full"])
def test_a_draw_before_a_change_does_not_serve_the_update_after_it(feedback: Any, change: str) -> None:
    """As if scratch were forgotten: a copy has none."""
    policy = AlphaFairAdaptive(2, 3, feedback=feedback, seed=0)
    reward: Any = [0.2, 0.9, 0.4] if feedback == "full" else 0.7
    for t in range(10):
        policy.update(policy.choose(t % 2), reward)
    decision = policy.choose(0)
    CHANGES[change](policy)
    fresh = copy.deepcopy(policy)
    fresh.update(Decision(*decision), reward)
    policy.update(decision, reward)
    assert policy.snapshot().to_bytes() == fresh.snapshot().to_bytes()
