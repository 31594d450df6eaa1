"""What docs/background/theory.md proves about groups, entitlements and floors, as inequalities on runs and numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair import AlphaFair, AlphaFairAdaptive, Groups, Stream, metrics, simulate
from alphafair.algorithms.adaptive_bandit import KAPPA
from tests import naive

SEED = st.integers(0, 2**32 - 1)


def allowed(rng: np.random.Generator, group: np.ndarray, floors: np.ndarray, size: int) -> np.ndarray:
    """Distributions of all kinds that keep the groups' floors: sum_G nu_G Delta_G + (1 - sum nu) Delta."""
    n, kind = len(group), rng.choice([0.05, 1.0])
    x = (1.0 - floors.sum()) * rng.dirichlet(np.full(n, kind), size)
    for g, floor in enumerate(floors):
        members = np.flatnonzero(group == g)
        x[:, members] += floor * rng.dirichlet(np.full(len(members), kind), size)
    return x


@pytest.mark.parametrize("drawn", [False, True])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=SEED, alpha=st.sampled_from([0.0, 0.2, 0.5, 0.9, 0.99]))
def test_lemma_4_for_any_play_against_any_policy(drawn: bool, seed: int, alpha: float) -> None:
    """Rewards of 1 now and then, so that accounts grow as fast as they may; play that learns, and that does not."""
    rng = np.random.default_rng(seed)
    m, n, n_rounds = int(rng.integers(1, 4)), int(rng.integers(2, 7)), int(rng.integers(1, 60))
    group = np.unique(rng.integers(0, n, n), return_inverse=True)[1]
    k = int(group.max()) + 1
    factors = (10.0 ** rng.uniform(-2, 2, k)) ** alpha
    floors = rng.choice([0.0, 0.7]) * rng.dirichlet(np.ones(k))
    comparator, played = (allowed(rng, group, floors, m) for _ in range(2))
    accounts, rival, surrogate = np.ones(k), np.ones(k), 0.0
    for _ in range(n_rounds):
        j = rng.integers(m)
        rewards = np.where(rng.random(n) < 0.3, 1.0, rng.random(n))
        gains = (factors * naive.marginal_utility(accounts, alpha))[group] * rewards
        booked = np.eye(n)[rng.choice(n, p=played[j] / played[j].sum())] if drawn else played[j]
        surrogate += float(gains @ (comparator[j] - booked))
        accounts = accounts + np.bincount(group, booked * rewards, k)
        rival = rival + np.bincount(group, comparator[j] * rewards, k)
        if rng.random() < 0.5:  # toward what pays now
            played[j] = 0.5 * (played[j] + np.eye(n)[gains.argmax()])
    value, achieved = (float((factors * naive.utility(r, alpha)).sum()) for r in (rival, accounts))
    regret = value - naive.approximation_factor(alpha) * achieved
    assert regret <= (1.0 - alpha) ** alpha * surrogate + 1e-12 * (value + achieved)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(seed=SEED)
def test_the_change_of_the_mixing_weight_is_bounded_under_floors(seed: int) -> None:
    """Step (viii): |xi| <= c/(1 - kappa), where a and B have anything at all on any number of arms."""
    rng = np.random.default_rng(seed)
    n, share, left = int(rng.integers(2, 60)), rng.random() ** rng.choice([0.05, 1.0, 20.0]), 1.0 - rng.random()
    a, b = (rng.dirichlet(np.full(n, rng.choice([0.01, 1.0]))) for _ in range(2))
    safe = KAPPA + (1.0 - KAPPA) * share
    p = (1.0 - left) / n + left * ((1.0 - safe) * a + safe * b)
    predicted, rewards = rng.random((2, n)).round()
    ahead = left * ((a - b) @ predicted + (b - a) * (predicted - rewards) / p)
    assert np.abs(share * (1.0 - share) * ahead).max() <= (1.0 + 1e-12) / (1.0 - KAPPA)


@pytest.mark.parametrize("policy", [AlphaFair, AlphaFairAdaptive])
@pytest.mark.parametrize("floor", [0.0, 0.15, {"a": 0.5, "b": 0.3}])
def test_certificates_on_hostile_rewards(policy: type, floor: object) -> None:
    """The arm with the largest account is paid least; conftest.py checks the bound after `simulate`."""
    rng = np.random.default_rng(3)
    rewards = np.where(np.arange(600)[:, None] // 100 % 4 == np.arange(4), 0.05, 0.9) * rng.random((600, 4)).round(1)
    stream = Stream.from_arrays(rng.integers(0, 2, 600), rewards, n_contexts=2)
    extra = {"feedback": "full"} if policy is AlphaFairAdaptive else {}
    groups = Groups(["a", "b", "a", "c"], entitlements={"b": 5.0}, pull_floor=floor)
    fair = policy(2, 4, alpha=0.7, groups=groups, **extra)
    trace = simulate(fair, stream)
    np.testing.assert_allclose(fair.accounts, metrics.group_accounts(trace, groups)[-1], rtol=1e-12)
