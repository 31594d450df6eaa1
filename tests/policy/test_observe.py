"""Rewards of decisions that somebody else made: what every policy accepts, refuses and leaves alone."""

from typing import Any

import numpy as np
import pytest

from alphafair import POLICIES, AlphaFairBandit, InvalidArgument, Policy
from alphafair.policy import archive
from alphafair.policy.loops import LEARN, OBSERVE, LogSteps
from tests.protocol_policy import EpsilonGreedy


def state_of(policy: Any) -> bytes:
    return bytes(policy.snapshot().to_bytes())


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_does_not_learn_from_others_stays_as_it_is(name: str) -> None:
    for settings in POLICIES[name].traits.variants(2, 3).values():
        policy = POLICIES[name](2, 3, seed=0, **settings)
        if policy.learns_from_others:
            continue
        before = state_of(policy)
        assert policy.observe(1, 2, 0.5) is False
        assert state_of(policy) == before
        assert policy.trust is None


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ((2, 0, 0.5), "context"),
        ((0, 3, 0.5), "arm"),
        ((0, -1, 0.5), "arm"),
        ((0, 0, 1.5), "reward"),
        ((0, 0, float("nan")), "reward"),
        ((0, 0, 0.5, [1.0]), "features"),
    ],
)
def test_bad_observations_are_refused(arguments: Any, wrong: str) -> None:
    policy = AlphaFairBandit(2, 3, seed=0)
    before = state_of(policy)
    with pytest.raises(InvalidArgument, match=f"^{wrong}"):
        policy.observe(*arguments)
    assert state_of(policy) == before


def test_observations_in_a_log_leave_other_policies_alone() -> None:
    observing, learning = AlphaFairBandit(2, 3, seed=0), AlphaFairBandit(2, 3, seed=0)
    contexts, arms, rewards = np.array([0, 1, 0, 1]), np.array([0, 1, 2, 0]), np.array([0.5, 0.25, 1.0, 0.75])
    steps = LogSteps.learning(contexts, arms, np.full(4, 0.5), rewards)
    own = np.array([True, False, True, False])
    archive.follow(observing, steps._replace(steps=np.where(own, LEARN, OBSERVE).astype(np.int8)))
    archive.follow(learning, LogSteps.learning(contexts[own], arms[own], np.full(2, 0.5), rewards[own]))
    assert state_of(observing) == state_of(learning)


def test_policies_of_the_protocol_alone_learn_nothing_from_others() -> None:
    policy: Policy = EpsilonGreedy(2, 3)
    assert policy.observe(0, 0, 0.5) is False
    assert (policy.learns_from_others, policy.trust) == (False, None)
