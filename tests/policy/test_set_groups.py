"""Groups, entitlements and floors that change while a policy runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    Decision,
    Feedback,
    Groups,
    InvalidArgument,
    ScaleFree,
    load_policy,
    metrics,
)
from alphafair.notions import Promised
from alphafair.policy.base import BasePolicy

N_ARMS = 5
MADE: dict[str, Callable[..., BasePolicy]] = {
    "full": AlphaFair,
    "bandit": AlphaFairBandit,
    "adaptive": AlphaFairAdaptive,
    "adaptive-full": lambda *sizes, **settings: AlphaFairAdaptive(*sizes, feedback="full", **settings),
}
TWO, THREE = ["north", "south", "north", "south", "north"], ["north", "south", "east", "south", "south"]


def played(policy: BasePolicy, n_rounds: int = 40, seed: int = 0, arms: Any = None) -> BasePolicy:
    """Rounds whose arms are those passed, so that different policies have the same decisions."""
    rng, n = np.random.default_rng(seed), policy.n_arms
    for t in range(n_rounds):
        arm = int(rng.integers(n)) if arms is None else arms[t % len(arms)]
        if policy.feedback is Feedback.FULL:
            policy.update(Decision(t % 2, arm, 1.0 / n, np.full(n, 1.0 / n)), rng.random(n))
        else:
            policy.update(Decision(t % 2, arm, 1.0, None), float(rng.random()))  # type: ignore[arg-type]
    return policy


@pytest.mark.parametrize("alpha", [0.5, 2.0])
@pytest.mark.parametrize("kind", MADE)
def test_accounts_are_those_of_a_policy_that_always_had_these_groups(kind: str, alpha: float) -> None:
    given = [None, TWO, Groups(THREE, {"east": 3.0}), Groups(entitlements=[1.0, 2.0, 3.0, 4.0, 5.0]), Groups(TWO)]
    changing = MADE[kind](2, N_ARMS, alpha=alpha)
    for n, groups in enumerate(given):
        changing.set_groups(groups)
        played(changing, seed=n)
        always = MADE[kind](2, N_ARMS, alpha=alpha, groups=groups)
        for k in range(n + 1):
            played(always, seed=k)
        np.testing.assert_allclose(changing.accounts, always.accounts, rtol=1e-13)
        np.testing.assert_allclose(changing.cumulative_rewards, always.cumulative_rewards, rtol=1e-13)
        assert changing.settings == always.settings
        changing._check()  # slopes belong to the accounts


@pytest.mark.parametrize("kind", MADE)
def test_changing_back_gives_the_old_accounts(kind: str) -> None:
    """There and back, between any groups, after periods, with arms that came and went; and no reward is ever lost."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        policy = played(MADE[kind](2, 3, alpha=0.9), seed=seed)
        if seed % 2:
            policy.set_groups(["north", "south", "north"])
        played(policy)
        policy.new_period(0.5)
        played(policy)
        policy.grow(n_arms=N_ARMS, groups=["south", "west"] if seed % 2 else None)
        played(policy)
        policy.retire(int(rng.integers(N_ARMS)))
        for _ in range(5):
            first, before, entries = policy.groups, policy.accounts, policy.entry_accounts
            assert first is not None
            labels = [["north", "south", "east", "west"][g] for g in rng.integers(4, size=N_ARMS)]
            other = None if rng.random() < 0.3 else Groups(labels)
            policy.set_groups(other)
            assert np.sum(policy.accounts - np.ones(1)) == pytest.approx(np.sum(before - np.ones(1)), rel=1e-12)
            policy._check()
            policy.set_groups(first)
            assert policy.groups is not None
            np.testing.assert_allclose(policy.accounts, before, rtol=1e-12)
            np.testing.assert_allclose(policy.entry_accounts, entries, rtol=1e-12)
            assert (
                policy.settings["groups"] == first.settings() if first.settings() else "groups" not in policy.settings
            )
            played(policy, 10)
            policy.set_groups(other)
            played(policy, 10)


def test_an_arm_takes_along_what_it_earned_in_this_period() -> None:
    policy = AlphaFairBandit(2, 3, groups=["a", "a", "b"])
    for arm, reward in ((0, 1.0), (1, 1.0), (2, 1.0), (2, 1.0)):
        policy.update(Decision(0, arm, 1.0, None), reward)  # type: ignore[arg-type]
    policy.new_period(0.5)
    assert np.array(policy.accounts).tolist() == [2.0, 2.0]
    policy.update(Decision(0, 1, 1.0, None), 0.75)  # type: ignore[arg-type]
    policy.set_groups(["a", "b", "b"])
    assert np.array(policy.accounts).tolist() == [2.0, 2.75]  # what was carried over stayed
    policy.set_groups(["a", "c", "b"])
    assert np.array(policy.accounts).tolist() == [2.0, 1.75, 2.0]  # a new group
    policy.set_groups(["b", "c", "b"])
    assert np.array(policy.accounts).tolist() == [3.0, 1.75]  # the last arm of a group takes everything along


@pytest.mark.parametrize("kind", MADE)
def test_the_next_draw_keeps_new_floors_and_none_that_were_taken_away(kind: str) -> None:
    policy = played(MADE[kind](2, N_ARMS, alpha=0.9), 200)
    policy.set_groups(Groups(TWO, pull_floor={"south": 0.4}))
    south = np.array([label == "south" for label in TWO])
    assert all(policy.probabilities(context)[south].sum() >= 0.4 - 1e-12 for context in (0, 1))
    policy.set_groups(Groups(pull_floor=0.1))
    assert all(policy.probabilities(context).min() >= 0.1 - 1e-12 for context in (0, 1))
    policy.set_groups(None)
    assert policy.groups is not None
    assert policy.groups.is_default
    assert "groups" not in policy.settings
    copied = load_policy(policy.snapshot())
    for each in (policy, copied):
        played(each, seed=5)
    assert copied.probabilities(0).tolist() == policy.probabilities(0).tolist()


@pytest.mark.parametrize("groups", [None, TWO, Groups(TWO, {"south": 2.0}, 0.1)])
@pytest.mark.parametrize("kind", MADE)
def test_snapshots_after_a_change_continue_to_the_bit(kind: str, groups: Any) -> None:
    policy = played(MADE[kind](2, N_ARMS, alpha=2.0, groups=THREE))
    policy.retire(0)
    policy.set_groups(groups)
    copied = load_policy(policy.snapshot())
    for each in (policy, copied):
        played(each, arms=(1, 4))
        each.new_period()
    first, second = policy.snapshot().arrays, copied.snapshot().arrays
    assert {name: array.tobytes() for name, array in first.items()} == {
        name: array.tobytes() for name, array in second.items()
    }


def test_a_change_is_outside_the_theorem_and_starts_certificates_anew() -> None:
    bandit = AlphaFairAdaptive(2, N_ARMS, alpha=0.5, seed=1)
    full = AlphaFair(2, N_ARMS, alpha=2.0, seed=1)
    for t in range(100):
        decision = bandit.choose(t % 2)
        bandit.update(decision, 0.5)
        full.update(full.choose(t % 2), np.linspace(0.0, 1.0, N_ARMS))
    assert metrics.bound_in_expectation(bandit) > 0.0
    assert metrics.welfare_certificate(full) > 1.0
    bandit.set_groups(TWO)
    full.set_groups(TWO)
    assert bandit.expected_surrogate_regret_bound is None
    assert full.surrogate_regret_bound == 0.0
    full.update(full.choose(0), np.linspace(0.0, 1.0, N_ARMS))
    assert full.surrogate_regret_bound > 0.0


def test_learning_goes_on_after_a_change() -> None:
    policy = AlphaFairAdaptive(1, N_ARMS, alpha=0.5, seed=2)

    def play(n_rounds: int) -> None:
        for _ in range(n_rounds):
            decision = policy.choose(0)
            policy.update(decision, 0.9 if decision.arm == 4 else 0.1)

    play(300)
    before = policy.snapshot().arrays
    policy.set_groups(Groups(THREE, {"south": 4.0}))
    after = policy.snapshot().arrays
    changed = {name for name in before if before[name].tobytes() != after[name].tobytes()}
    assert changed <= {"account", "slope", "anchor", "inverse_anchor", "anchor_slope", "outside"}
    play(300)
    assert policy.probabilities(0).argmax() == 4  # of the group that is entitled to most, the best arm


def test_promises_pass_groups_to_the_policy_inside() -> None:
    policy = Promised(AlphaFairBandit(2, 3), rates=0.1)
    policy.set_groups(["a", "b", "a"])
    assert policy.groups is not None
    assert policy.groups.labels == ("a", "b")
    copied = policy.fresh()
    copied.restore(policy.snapshot())
    assert copied.groups is not None
    assert copied.groups.labels == ("a", "b")
    policy.set_groups(None)
    assert "groups" not in policy.settings


def test_a_refused_change_changes_nothing() -> None:
    policy = played(AlphaFairAdaptive(2, N_ARMS, groups=TWO))
    before = policy.snapshot()
    for groups, sentence in (
        (["a", "b"], "groups must be 5 labels"),
        (Groups(TWO, pull_floor={"north": 0.7, "south": 0.6}), "sum of at most 1"),
        (Groups(TWO, pull_floor=1e-20), "pull_floor must be 0 or at least"),
        (Groups(pull_floor=0.3), "pull_floor must be at most 0.2"),
        (Groups(TWO, {"east": 2.0}), "for groups among"),
        (Groups(TWO, {"north": 0.0}), "entitlements must be numbers in"),
    ):
        with pytest.raises(InvalidArgument, match=sentence):
            policy.set_groups(groups)
    after = policy.snapshot()
    assert before.settings == after.settings
    assert all(before.arrays[name].tobytes() == after.arrays[name].tobytes() for name in before.arrays)
    with pytest.raises(InvalidArgument, match="scale-free does not support groups"):
        ScaleFree(2, 3).set_groups(["a", "b", "a"])
