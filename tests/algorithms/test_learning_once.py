"""A decision of `choose` is learned from once, whoever asks and however often; a rebuilt one is the caller's affair."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alphafair
from alphafair import AlphaFairAdaptive, AlphaFairBandit, Decision, DescribedDecision, Policy, load_policy
from alphafair.algorithms import CLASSES, BasePolicy
from alphafair.errors import InvalidArgument

N_ARMS = 3


def made(kind: type[BasePolicy]) -> Iterator[BasePolicy]:
    for settings in kind.traits.variants(2, N_ARMS).values():
        yield kind(2, N_ARMS, seed=0, **settings)


def reward_for(policy: Policy) -> Any:
    return np.full(policy.n_arms, 0.5) if policy.feedback == "full" else 0.5


def arrays(policy: BasePolicy) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in policy.snapshot().arrays.items()}


@pytest.mark.parametrize("kind", list(CLASSES.values()), ids=lambda kind: kind.name)
def test_the_second_update_is_refused_and_changes_nothing(kind: type[BasePolicy]) -> None:
    for policy in made(kind):
        decision = policy.choose(1)
        policy.update(decision, reward_for(policy))
        before = arrays(policy)
        with pytest.raises(
            InvalidArgument, match=r"decision must be a decision that this policy has not learned from; .* once"
        ):
            policy.update(decision, reward_for(policy))
        assert arrays(policy) == before


def test_a_refused_update_leaves_the_decision_to_be_learned_from() -> None:
    policy = AlphaFairBandit(1, 2, seed=0)
    decision = policy.choose(0)
    with pytest.raises(InvalidArgument, match="reward"):
        policy.update(decision, 1.5)
    policy.update(decision, 1.0)
    assert policy.accounts.sum() == 3.0


@pytest.mark.parametrize(
    "rebuilt",
    [
        lambda decision: Decision(*decision),
        lambda decision: tuple(decision),
        lambda decision: decision._replace(),
        copy.copy,
        copy.deepcopy,
        lambda decision: pickle.loads(pickle.dumps(decision)),
    ],
    ids=["Decision(*)", "tuple", "_replace", "copy", "deepcopy", "pickle"],
)
def test_a_rebuilt_decision_counts_as_new(rebuilt: Callable[[Decision], Decision]) -> None:
    policy = AlphaFairBandit(1, 2, seed=0)
    decision = policy.choose(0)
    policy.update(decision, 1.0)
    again = rebuilt(decision)
    policy.update(again, 1.0)
    policy.update(again, 1.0)
    assert policy.accounts.sum() == 5.0


def test_a_rebuilt_decision_keeps_its_features_and_reads_like_any_other() -> None:
    policy = AlphaFairAdaptive(1, 2, n_features=1, seed=0)
    decision = policy.choose(0, features=[0.25])
    for again in (copy.copy(decision), pickle.loads(pickle.dumps(decision)), decision._replace(arm=0)):
        assert type(again) is DescribedDecision
        assert again.features is not None
        assert again.features.tolist() == [0.25]
    plain = AlphaFairBandit(1, 2, seed=0).choose(0)
    assert repr(plain).startswith("Decision(context=0, arm=")
    assert plain == Decision(*plain)


def test_another_policy_may_learn_from_it_too() -> None:
    policy, other = AlphaFairBandit(1, 2, seed=0), AlphaFairBandit(1, 2, seed=1)
    decision = policy.choose(0)
    for each in (policy, other):
        each.update(decision, 1.0)
        with pytest.raises(InvalidArgument, match="has not learned from"):
            each.update(decision, 1.0)


def test_what_a_restored_policy_has_forgotten_it_may_learn_again() -> None:
    policy = AlphaFairBandit(1, 2, seed=0)
    decision, before = policy.choose(0), policy.snapshot()
    policy.update(decision, 1.0)
    policy.restore(before)
    policy.update(decision, 1.0)
    twin = load_policy(before)
    twin.update(decision, 1.0)
    assert policy.accounts.tolist() == twin.accounts.tolist()


def test_a_log_that_is_refused_halfway_does_not_make_decisions_new() -> None:
    policy = AlphaFairAdaptive(1, 2, seed=0)
    decision = policy.choose(0)
    policy.update(decision, 1.0)
    log = alphafair.Log([0, 0], [0, 1], [0.5, 0.5], [0.5, 1e-300])
    with pytest.raises(InvalidArgument, match="propensit"):
        alphafair.run.over_log(policy, log)
    with pytest.raises(InvalidArgument, match="has not learned from"):
        policy.update(decision, 1.0)


def test_a_reward_is_expected_and_given_up_once() -> None:
    policy = AlphaFairAdaptive(1, 2, seed=0)
    decision = policy.choose(0)
    policy.expect(decision)
    with pytest.raises(InvalidArgument, match="a decision that is not expected yet"):
        policy.expect(decision)
    policy.forgo(decision)
    with pytest.raises(InvalidArgument, match="a decision whose reward may still come"):
        policy.forgo(decision)
    late = policy.choose(0)
    policy.expect(late)
    policy.update(late, 0.5)
    for again in (policy.expect, policy.forgo):
        with pytest.raises(InvalidArgument, match="decision must be a decision"):
            again(late)


def test_threads_that_share_a_decision_learn_from_it_once() -> None:
    policy = AlphaFairBandit(1, 2, seed=0)
    policy.update(policy.choose(0), 0.0)  # compiled by now
    decisions = [policy.choose(0) for _ in range(500)]
    start, taken = threading.Barrier(8), []
    interval = sys.getswitchinterval()

    def work() -> None:
        start.wait()
        for decision in decisions:
            try:
                policy.update(decision, 1.0)
            except InvalidArgument:
                continue
            taken.append(decision)

    threads = [threading.Thread(target=work) for _ in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(taken) == 500
    assert policy.accounts.sum() == 502.0
