"""Contexts and arms that come and go."""

import numpy as np

from alphafair.checks.subject import Subject, go_the_same_way, is_sound, memory, reward_of, rounds
from alphafair.values import Account, Policy, State


def contexts_may_be_added(subject: Subject) -> None:
    policy = subject.trained()
    before = [policy.probabilities(context) for context in range(3)]
    policy.grow(7)
    assert policy.n_contexts == 7, f"n_contexts is {policy.n_contexts}"
    is_sound(policy, "after new contexts: ")
    for context in range(3):
        assert np.array_equal(before[context], policy.probabilities(context)), "growing changed an old context"
    decision = policy.choose(6)
    policy.update(decision, reward_of(policy, decision, np.array([1.0, 0.2, 0.2, 0.2])))
    twin = subject.make()
    twin.restore(policy.snapshot())
    assert twin.n_contexts == 7, "a snapshot forgot the grown contexts"


def arms_may_be_added(subject: Subject) -> None:
    accounts: tuple[Account, ...] = ("least", "fresh", 2.5)
    for account in accounts:
        policy = subject.trained()
        old = policy.choose(1)
        policy.grow(n_arms=6, account=account)
        assert policy.n_arms == 6, f"n_arms is {policy.n_arms}"
        is_sound(policy, f"with newcomers of account {account}: ")
        policy.update(old, reward_of(policy, old, np.array([0.5, 1.0, 0.0, 0.25])))
        for arm in range(6):  # all of them can be drawn, learned from and masked
            only = np.arange(6) == arm
            decision = policy.choose(0, available=only)
            assert decision.arm == arm, f"arm {decision.arm} was drawn where only arm {arm} was available"
            policy.update(decision, reward_of(policy, decision, np.linspace(0.0, 1.0, 6)))
        is_sound(policy, f"with newcomers of account {account}, after their rewards: ")


def retired_arms_are_never_drawn(subject: Subject) -> None:
    policy = subject.trained()
    waiting = [policy.choose(0, available=np.arange(4) == 1) for _ in range(2)]
    late = np.array([0.25, 1.0, 0.5, 0.0])
    policy.retire(1)
    _plays_without(policy, 1)
    policy.update(waiting[0], reward_of(policy, waiting[0], late))
    _plays_without(policy, 1)
    policy.grow(n_arms=6)
    assert policy.n_arms == 6, f"a retired arm keeps its number, so n_arms is 6, not {policy.n_arms}"
    policy.update(waiting[1], reward_of(policy, waiting[1], late))
    _plays_without(policy, 1)
    before = memory(policy)
    for what, call in (
        ("a retired arm was retired again", lambda: policy.retire(1)),
        ("a retired arm was the only one available", lambda: policy.choose(0, available=np.arange(6) == 1)),
    ):
        try:
            call()
        except ValueError:
            assert memory(policy) == before, f"{what}: refused, but something changed"
        else:
            raise AssertionError(f"{what}, and nothing was refused")


def _plays_without(policy: Policy, arm: int) -> None:
    is_sound(policy, "after an arm was retired: ")
    rng = np.random.default_rng(4)
    for context in range(policy.n_contexts):
        p = policy.probabilities(context)
        assert p[arm] == 0.0, f"a retired arm has probability {p[arm]}"
        for _ in range(100):
            decision = policy.choose(context, rng=rng)
            assert decision.arm != arm, "a retired arm was drawn"
            assert decision.propensity == p[decision.arm], "the propensity is not the true one beside a retired arm"


def snapshot_after_changes(subject: Subject) -> None:
    policy = subject.trained()
    policy.grow(5, 6)
    policy.retire(2)
    stream = rounds(200, 5, 6, seed=3)
    for t in range(100):
        decision = policy.choose(int(stream.contexts[t]))
        policy.update(decision, reward_of(policy, decision, stream.rewards(t)))
    twin = subject.make()
    twin.restore(State.from_bytes(policy.snapshot().to_bytes()))
    assert (twin.n_contexts, twin.n_arms) == (5, 6), f"restored with {twin.n_contexts} contexts, {twin.n_arms} arms"
    go_the_same_way(policy, twin, stream, 100)
    _plays_without(twin, 2)
