"""Ceilings under groups: kept by the policy that has them, refused with the way around by all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, Groups, InvalidArgument, metrics, offline_optimum, simulate, streams
from alphafair.notions import ConstrainedGreedy

CAPPED = Groups(["a", "a", "b", "c"], pull_floor={"c": 0.1}, pull_ceiling={"a": 0.5})


def test_the_ceiling_is_kept_in_every_round() -> None:
    policy = ConstrainedGreedy(2, 4, groups=CAPPED, seed=0)
    stream = streams.stationary(300, 2, 4, seed=1)
    for t in range(300):
        context = int(stream.contexts[t])
        p = policy.probabilities(context)
        assert p[:2].sum() <= 0.5 + 1e-12
        assert p[3] >= 0.1 - 1e-12
        decision = policy.choose(context)
        policy.update(decision, float(stream.rewards(t)[decision.arm]))


def test_ceilings_of_groups_are_the_bounds_of_the_policy() -> None:
    ours = ConstrainedGreedy(1, 4, groups=CAPPED)
    same = ConstrainedGreedy(1, 4, groups=["a", "a", "b", "c"], low={"c": 0.1}, high={"a": 0.5})
    assert ours.settings == same.settings


def test_a_floor_under_the_other_group_is_a_ceiling() -> None:
    groups = Groups(["a", "b", "b"], pull_floor={"a": 0.4, "b": 0.4})
    policy = AlphaFairAdaptive(1, 3, alpha=0.0, groups=groups, seed=0)
    for _ in range(200):
        p = policy.probabilities(0)
        assert 0.4 - 1e-12 <= p[0] <= 0.6 + 1e-12
        decision = policy.choose(0)
        policy.update(decision, 1.0 if decision.arm == 0 else 0.0)
    simulate(policy, streams.stationary(50, 1, 3, seed=0))


@pytest.mark.parametrize(
    "use",
    [
        lambda: AlphaFair(1, 4, groups=CAPPED),
        lambda: AlphaFairAdaptive(1, 4, groups=CAPPED),
        lambda: offline_optimum(np.ones((2, 4)), 0.5, groups=CAPPED),
        lambda: metrics.welfare([1.0] * 4, 0.5, groups=CAPPED),
    ],
)
def test_others_refuse_ceilings_and_say_what_to_do(use: Callable[[], Any]) -> None:
    with pytest.raises(
        InvalidArgument, match=r"pull_ceiling must be None here; got .*Put floors under the other groups"
    ):
        use()


def test_a_ceiling_is_shown() -> None:
    assert "pull_ceiling={'a': 0.5}" in repr(CAPPED)
