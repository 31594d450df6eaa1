"""Seeded synthetic streams of rewards that differ widely in size: most are small, and a few make up much of the sum.

A reward is its mean times a positive random number X with mean 1. Rewards lie in [0, 1], so they are scaled, and the
few that are still above 1 are cut off there, which lowers means a little.
Contexts are equally likely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.streams.means import checked_sizes, seeded_generator
from alphafair.values import Matrix, Stream

RANGE = 64.0  # a reward of 1 is so many times the largest possible mean
LOWEST_MEAN = 0.2  # of the largest
PURCHASE_RANGE = 16.0  # a reward of 1 is so many typical purchases
SIGMA_OF_PURCHASES = 1.0


def lognormal_rewards(n_rounds: int, n_contexts: int, n_arms: int, *, sigma: float = 1.5, seed: int = 0) -> Stream:
    """Make a stream of lognormal rewards: min(1, m X/64) with X = exp(sigma Z - sigma^2/2) and a normal Z.

    m is uniform in [0.2, 1] for every context and arm. At the default sigma the mean of X^2 is 9.5 times the square of
    its mean, and the cut at 1 lowers no mean by more than 1%.

    >>> stream = lognormal_rewards(n_rounds=1000, n_contexts=5, n_arms=4, seed=1)
    >>> f"mean {stream.reward_table.mean():.4f}, largest {stream.reward_table.max():.2f}"
    'mean 0.0079, largest 0.88'
    """
    sizes = checked_sizes(n_rounds, n_contexts, n_arms)
    sigma = validate.number("sigma", sigma, low=0.0, high=3.0, low_open=True)
    rng = seeded_generator(9, 0, seed)
    contexts, means = _means(rng, *sizes)
    return _cut(contexts, means * _lognormal(rng, means.shape, sigma) / RANGE, sizes[1])


def pareto_rewards(n_rounds: int, n_contexts: int, n_arms: int, *, shape: float = 2.0, seed: int = 0) -> Stream:
    """Make a stream of Pareto rewards: min(1, m X/64), where X is above x with probability ((1 - 1/shape)/x)^shape.

    m is uniform in [0.2, 1] for every context and arm. X has mean 1, and an infinite variance for a shape of at most 2.
    At the default shape the cut at 1 lowers no mean by more than 1%.

    >>> stream = pareto_rewards(n_rounds=1000, n_contexts=5, n_arms=4, seed=1)
    >>> f"least {stream.reward_table.min():.4f}, mean {stream.reward_table.mean():.4f}"
    'least 0.0017, mean 0.0089'
    """
    sizes = checked_sizes(n_rounds, n_contexts, n_arms)
    shape = validate.number("shape", shape, low=1.1, high=100.0)
    rng = seeded_generator(10, 0, seed)
    contexts, means = _means(rng, *sizes)
    drawn = (1.0 - 1.0 / shape) * (1.0 - rng.random(means.shape)) ** (-1.0 / shape)
    return _cut(contexts, means * drawn / RANGE, sizes[1])


def purchases(
    n_rounds: int, n_contexts: int, n_arms: int, *, rates: Sequence[float] = (0.01, 0.05), seed: int = 0
) -> Stream:
    """Make a stream of rare purchases of different sizes: a reward is min(1, b X/16) at a rate, else 0.

    Rates are uniform in a range for every context and arm. X = exp(Z - 1/2) with a normal Z, and b, the mean size of
    the purchases of an arm, is between 1/2 and 2, its logarithm uniform. The cut at 1 lowers no mean by more than 2%.

    >>> stream = purchases(n_rounds=1000, n_contexts=5, n_arms=4, seed=1)
    >>> f"{(stream.reward_table > 0).mean():.1%} purchases"
    '3.2% purchases'
    """
    n_rounds, n_contexts, n_arms = sizes = checked_sizes(n_rounds, n_contexts, n_arms)
    low = validate.number("rates[0]", rates[0], low=0.0, high=1.0)
    high = validate.number("rates[1]", rates[1], low=low, high=1.0)
    rng = seeded_generator(11, 0, seed)
    table = rng.uniform(low, high, (n_contexts, n_arms))
    sizes_of_arms = 2.0 ** rng.uniform(-1.0, 1.0, n_arms)
    contexts = rng.integers(0, n_contexts, n_rounds)
    bought = rng.random((n_rounds, n_arms)) < table[contexts]
    amounts = sizes_of_arms * _lognormal(rng, bought.shape, SIGMA_OF_PURCHASES) / PURCHASE_RANGE
    return _cut(contexts, np.where(bought, amounts, 0.0), sizes[1])


def _means(rng: np.random.Generator, n_rounds: int, n_contexts: int, n_arms: int) -> tuple[NDArray[np.int64], Matrix]:
    """Draw the context of every round, and the means m of its arms."""
    table = rng.uniform(LOWEST_MEAN, 1.0, (n_contexts, n_arms))
    contexts = rng.integers(0, n_contexts, n_rounds)
    return contexts, table[contexts]


def _lognormal(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Matrix:
    """Draw X = exp(sigma Z - sigma^2/2), which has mean 1."""
    return np.asarray(np.exp(sigma * rng.normal(size=shape) - sigma * sigma / 2.0))


def _cut(contexts: NDArray[np.int64], rewards: Matrix, n_contexts: int) -> Stream:
    """Make a stream of these rewards, at most 1."""
    items = np.arange(len(contexts), dtype=np.int32)
    return Stream(contexts.astype(np.int32), items, np.minimum(rewards, 1.0), n_contexts=n_contexts)
