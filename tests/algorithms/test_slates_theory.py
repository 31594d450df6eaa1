"""Theorem 1 for slates, in the mean over seeds: where rewards stay, where they turn, and with a floor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairAdaptive, Groups, Stream, context_reward_totals, metrics, offline_optimum, simulate

pytestmark = pytest.mark.compiled
N_ROUNDS, N_SEEDS, N_ARMS = 2_000, 10, 6
WORLDS: dict[str, Any] = {
    "stays": lambda rng, t: np.clip(np.linspace(0.1, 0.9, N_ARMS) + 0.1 * rng.normal(size=N_ARMS), 0.0, 1.0),
    "turns": lambda rng, t: np.where((t // 250 + np.arange(N_ARMS)) % N_ARMS < 2, 1.0, 0.02),
    "rare": lambda rng, t: (rng.random(N_ARMS) < 0.03).astype(float),
}


def stream_of(world: str) -> Stream:
    rng = np.random.default_rng(len(world))
    rewards = np.array([WORLDS[world](rng, t) for t in range(N_ROUNDS)])
    return Stream.from_arrays(rng.integers(0, 2, N_ROUNDS), rewards)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("k", "floor"), [(2, 0.0), (3, 0.05), (5, 0.0)])
def test_regret_is_below_the_bound_in_the_mean(world: str, k: int, floor: float) -> None:
    """With a band of 99.9%, against the best fixed slates; and the bound is what its sums add up to."""
    groups, alpha, stream = Groups(pull_floor=floor) if floor else None, 0.5, stream_of(world)
    totals = context_reward_totals(stream)
    best = offline_optimum(totals, alpha, groups=groups, k=k)
    excess, bounds = [], []
    for seed in range(N_SEEDS):
        policy = AlphaFairAdaptive(2, N_ARMS, alpha=alpha, groups=groups)
        trace = simulate(policy, stream, seed=seed, k=k)
        regret = float(metrics.approximate_regret(best.value, trace, alpha)[-1])
        bounds.append(float(metrics.bound_in_expectation(policy)))
        excess.append(regret - bounds[-1])
    assert metrics.average_over_seeds(np.array(excess), level=0.999).high <= 0.0
    learned, n_rewards = policy.snapshot().arrays, k * N_ROUNDS
    log, keep = math.log(n_rewards), k - N_ARMS * floor
    added = (log + 1 + math.sqrt(1 + k / N_ARMS)) * learned["learner_roots"] + learned["explored"]
    added += 2 * learned["peaks"] / n_rewards
    expected = keep * added + (log / 2 + 2.4) * learned["mixing_roots"] + 16 * learned["head_start"]
    assert policy.expected_surrogate_regret_bound == pytest.approx(float(expected), rel=1e-9)
    assert bounds[-1] == pytest.approx((1 - alpha) ** alpha * float(expected), rel=1e-9)
    assert learned["most_shown"] == k


def test_the_head_start_counts_the_largest_slate() -> None:
    """16 times the sum of W (rise of k c): k times that of single arms where the first rewards are the same."""
    sums = []
    for k in (1, 3):
        policy = AlphaFairAdaptive(1, 4, alpha=0.5, seed=1)
        decision = policy.choose(0, k=k)
        policy.update(decision, [0.5] * k)
        sums.append(float(policy.snapshot().arrays["head_start"]))
    assert sums == [0.5, 1.5]
