"""`Promised` around policies with groups, features and periods, and each way to a policy by its name."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, AlphaFairBandit, FairCB, Groups, State, Uniform, load_policy, notions, register
from alphafair.algorithms import POLICIES
from alphafair.notions import NOTIONS, Promised


def play(policy: Any, n_rounds: int, **shown: Any) -> None:
    rng = np.random.default_rng(n_rounds)
    for _ in range(n_rounds):
        decision = policy.choose(int(rng.integers(policy.n_contexts)), rng=rng, **shown)
        policy.update(decision, float(rng.random()))


def test_groups_of_the_policy_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "promised", Promised)
    inside = AlphaFairBandit(2, 3, groups=Groups(["a", "b", "a"], entitlements={"b": 2.0}))
    policy = Promised(inside, rates=0.1, tolerance=1.0)
    play(policy, 30)
    assert inside.cumulative_rewards is not None
    assert not inside.cumulative_rewards.any(), "the policy was copied"
    assert policy.cumulative_rewards is not None
    assert policy.cumulative_rewards.sum() > 0.0
    policy.grow(n_arms=5, groups=["b", "c"])
    policy.retire(0)
    play(policy, 30)
    assert policy.groups is not None
    assert policy.groups.labels == ("a", "b", "c")
    assert policy.entry_accounts is not None
    restored = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
    for context in range(2):
        np.testing.assert_array_equal(restored.probabilities(context), policy.probabilities(context))
    np.testing.assert_array_equal(restored.accounts, policy.accounts)
    assert restored.groups.labels == policy.groups.labels
    fresh = policy.fresh()
    assert not fresh.cumulative_rewards[fresh.live_arms].any()
    assert fresh.live_arms.tolist() == policy.live_arms.tolist()
    with pytest.raises(ValueError, match="labels"):
        policy.grow(n_arms=6, groups=["a", "b"])
    assert policy.n_arms == policy.policy.n_arms == 5


def test_a_policy_with_retired_arms() -> None:
    inside = Uniform(1, 4)
    inside.retire(2)
    policy = Promised(inside, rates=0.3)
    assert policy.live_arms.tolist() == [0, 1, 3]
    play(policy, 60)
    assert (policy.behind() <= 10.0).all()
    play(copy.deepcopy(policy), 10)
    play(pickle.loads(pickle.dumps(policy)), 10)


def test_features_reach_the_policy_inside() -> None:
    policy, alone = Promised(AlphaFairAdaptive(2, 3, n_features=2), rates=0.0), AlphaFairAdaptive(2, 3, n_features=2)
    rng = np.random.default_rng(0)
    for t in range(40):
        features = rng.normal(size=2)
        one, two = (each.choose(t % 2, rng=np.random.default_rng(t), features=features) for each in (policy, alone))
        assert one[:3] == pytest.approx(two[:3], rel=1e-12)
        reward = float(rng.random())
        policy.update(one, reward)
        alone.update(two, reward)
    policy.retire(1)
    alone.retire(1)
    one, two = (each.probabilities(0, features=np.ones(2)) for each in (policy, alone))
    np.testing.assert_allclose(one, two, rtol=1e-12)
    assert policy.feature_shape == (2,)
    late = policy.choose(0, features=np.ones(2))
    policy.retire(late.arm)
    policy.update(late, 0.5)  # counted inside only


def test_alpha_and_periods_are_those_of_the_policy_inside() -> None:
    policy = Promised(1, 3, inside={"policy": "alpha-fair-adaptive", "alpha": 0.5}, rates=0.1)
    play(policy, 20)
    policy.set_alpha(2.0)
    assert policy.alpha == 2.0
    assert policy.settings["inside"]["alpha"] == 2.0
    policy.new_period(0.0)
    assert policy.period == policy.policy.period == 1
    assert policy.period_rewards is not None
    assert not policy.period_rewards.any()
    play(policy, 20)
    assert policy.fresh().alpha == 2.0
    assert policy.stepper.bytes_per_context > policy.policy.stepper.bytes_per_context


def test_contexts_that_the_policy_inside_weighs(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Promised(FairCB(2, 3, horizon=50, context_weights=[0.4, 0.6]), rates=0.1)
    policy.grow(3)
    play(policy, 20)
    restored = Promised(FairCB(2, 3, horizon=50, context_weights=[0.4, 0.6]), rates=0.1)
    restored.restore(policy.snapshot())
    np.testing.assert_array_equal(restored.probabilities(2), policy.probabilities(2))
    monkeypatch.setitem(POLICIES, "promised", Promised)
    loaded = load_policy(policy.snapshot())
    np.testing.assert_array_equal(loaded.probabilities(2), policy.probabilities(2))


def test_an_unknown_policy_inside_has_no_name_to_come_back_by() -> None:
    class Own(Uniform):
        name = "own"

    with pytest.raises(ValueError, match="inside"):
        Promised(Own(1, 3))


def test_registered_notions_are_loaded_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in NOTIONS:
        with monkeypatch.context() as patch:
            patch.setitem(POLICIES, kind.name, kind)
            assert register(kind) is kind
            policy: Any = kind(2, 4, **kind.traits.variants(2, 4)[""])
            assert type(load_policy(policy.snapshot())) is kind
        assert kind.name not in POLICIES


def test_groups_of_constrained_greedy_grow() -> None:
    policy = notions.ConstrainedGreedy(1, 3, groups=["a", "b", "b"], low={"a": 0.2, "c": 0.3}, high={"a": 0.4}, gap=3.0)
    policy.grow(n_arms=5, groups=["c", "a"])
    play(policy, 60)
    p = policy.probabilities(0)
    assert 0.2 - 1e-12 <= p[[0, 4]].sum() <= 0.4 + 1e-12
    assert p[3] >= 0.3 - 1e-12
    for arm in (1, 2, 3):
        policy.retire(arm)
    assert policy.probabilities(0).sum() == pytest.approx(1.0)  # the ceiling of the only group left is raised
    tight = notions.ConstrainedGreedy(1, 2, low=[0.5, 0.5], high=Groups(None).entitlements)
    np.testing.assert_allclose(tight.probabilities(0), 0.5)
    thin = notions.ConstrainedGreedy(1, 10, high=0.1)  # ten times 0.1 is below 1
    np.testing.assert_allclose(thin.probabilities(0), 0.1)
    empty = notions.ConstrainedGreedy(1, 2, high=[0.0, 1.0])
    np.testing.assert_allclose(empty.probabilities(0), [0.0, 1.0])
    empty.retire(1)
    np.testing.assert_allclose(empty.probabilities(0), [1.0, 0.0])
