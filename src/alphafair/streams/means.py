"""Seeded synthetic streams with a mean for every context and arm: a reward is 1 or the floor, drawn with that mean.

Every kind of stream has its own generator, so a stream and a policy with the same seed are independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.values import Adversary, Matrix, Stream

RANK = 3  # of the matrix of means of `zipf_contexts`, before the logistic function


def stationary(n_rounds: int, n_contexts: int, n_arms: int, *, reward_floor: float = 0.2, seed: int = 0) -> Stream:
    """Make a stream of rewards of 1 or the floor, with constant means, uniform in [floor, 1] per context and arm.

    Contexts are equally likely.

    >>> stream = stationary(n_rounds=100, n_contexts=5, n_arms=4, seed=1)
    >>> stream.n_rounds, stream.n_contexts, stream.n_arms, stream.rewards(0).tolist()
    (100, 5, 4, [1.0, 1.0, 1.0, 0.2])
    """
    sizes, floor = checked_sizes(n_rounds, n_contexts, n_arms), _floor(reward_floor)
    rng = seeded_generator(1, sizes[1], seed)
    return _in_turn(rng, sizes, floor, 1, np.zeros(sizes[0], dtype=np.int64))


def phases(
    n_rounds: int, n_contexts: int, n_arms: int, *, n_phases: int = 6, reward_floor: float = 0.2, seed: int = 0
) -> Stream:
    """Make a stream like `stationary` whose means are drawn again in every phase; phases have equal lengths.

    The best fixed policy cannot adapt, so a policy that learns quickly can close more than 100% of the gap.

    >>> phases(n_rounds=100, n_contexts=5, n_arms=4, n_phases=3, seed=1).n_rounds
    100
    """
    sizes, floor = checked_sizes(n_rounds, n_contexts, n_arms), _floor(reward_floor)
    n_phases = validate.integer("n_phases", n_phases, low=1, high=sizes[0])
    rng = seeded_generator(2, n_phases, seed)
    return _in_turn(rng, sizes, floor, n_phases, np.arange(sizes[0]) * n_phases // sizes[0])


def day_and_night(
    n_rounds: int, n_contexts: int, n_arms: int, *, period: int = 2000, reward_floor: float = 0.2, seed: int = 0
) -> Stream:
    """Make a stream that alternates between two tables of means, each as in `stationary`, every half period.

    >>> day_and_night(n_rounds=100, n_contexts=5, n_arms=4, period=20, seed=1).n_rounds
    100
    """
    sizes, floor = checked_sizes(n_rounds, n_contexts, n_arms), _floor(reward_floor)
    period = validate.integer("period", period, low=2)
    rng = seeded_generator(3, 0, seed)
    return _in_turn(rng, sizes, floor, 2, np.arange(sizes[0]) % period * 2 // period)


def zipf_contexts(n_rounds: int, n_contexts: int, n_arms: int, *, reward_floor: float = 0.2, seed: int = 0) -> Stream:
    """Make a stream whose k-th context has a frequency proportional to 1/k, and whose contexts have related means.

    An arm's mean in a context is floor + (1 - floor) s(b_i + <u_j, v_i> - 1) with the logistic s and normal b, u and v
    of three entries.

    >>> stream = zipf_contexts(n_rounds=1000, n_contexts=50, n_arms=4, seed=1)
    >>> bool((stream.contexts == 0).sum() > 5 * (stream.contexts == 20).sum())
    True
    """
    sizes, floor = checked_sizes(n_rounds, n_contexts, n_arms), _floor(reward_floor)
    n_rounds, n_contexts, n_arms = sizes
    rng = seeded_generator(4, 0, seed)
    taste = rng.normal(size=(n_contexts, RANK)) @ rng.normal(size=(RANK, n_arms)) + rng.normal(size=n_arms) - 1.0
    means = floor + (1.0 - floor) / (1.0 + np.exp(-taste))
    weights = 1.0 / np.arange(1, n_contexts + 1)
    contexts = rng.choice(n_contexts, n_rounds, p=weights / weights.sum())
    return _drawn(rng, contexts, means[contexts], floor, n_contexts)


def sparse_clicks(
    n_rounds: int,
    n_contexts: int,
    n_arms: int,
    *,
    rates: Sequence[float] = (0.02, 0.03),
    best: float | None = 0.06,
    seed: int = 0,
) -> Stream:
    """Make a stream of rare clicks: rewards are 1 at rates uniform in a range, else 0; contexts are equally likely.

    In every context one arm, drawn at random, has the rate `best` instead, unless that is None.

    >>> stream = sparse_clicks(n_rounds=1000, n_contexts=5, n_arms=4, seed=1)
    >>> float(stream.reward_table.min()), bool(0.02 < stream.reward_table.mean() < 0.05)
    (0.0, True)
    """
    n_rounds, n_contexts, n_arms = checked_sizes(n_rounds, n_contexts, n_arms)
    low = validate.number("rates[0]", rates[0], low=0.0, high=1.0)
    high = validate.number("rates[1]", rates[1], low=low, high=1.0)
    rng = seeded_generator(5 if best is not None else 6, 0, seed)
    means = rng.uniform(low, high, (n_contexts, n_arms))
    if best is not None:
        favorites = rng.integers(0, n_arms, n_contexts)
        means[np.arange(n_contexts), favorites] = validate.number("best", best, low=0.0, high=1.0)
    contexts = rng.integers(0, n_contexts, n_rounds)
    return _drawn(rng, contexts, means[contexts], 0.0, n_contexts)


def adversary(kind: str, n_rounds: int, n_contexts: int, n_arms: int, *, seed: int = 0) -> Adversary:
    """Make an adversary that sets the rewards of a round after it sees the distribution, but not the arm drawn.

    Contexts are equally likely. Rewards start uniform in [0.2, 1], for every context and arm, and change by kind:

    - `"settled"`: after every 1,000 rounds of a context, the arm with the largest sum of p in these rounds, of those
      not lowered yet, pays 0.05 from then on; the last two arms are never lowered.
    - `"largest"`: in every round the arm with the largest p pays 0.05.
    - `"halving"`: the reward of an arm that had the largest p in 60 rounds is halved; then all rewards are scaled so
      that the greatest is 1 and none is below 0.01.

    >>> adversary("largest", n_rounds=100, n_contexts=2, n_arms=3, seed=1).stream.n_arms
    3
    """
    n_rounds, n_contexts, n_arms = checked_sizes(n_rounds, n_contexts, n_arms)
    rng = seeded_generator(7, 0, seed)
    levels = rng.uniform(0.2, 1.0, (n_contexts, n_arms))
    contexts = rng.integers(0, n_contexts, n_rounds).astype(np.int32)
    return Adversary(kind, Stream(contexts, contexts, levels, n_contexts=n_contexts))


def checked_sizes(n_rounds: int, n_contexts: int, n_arms: int) -> tuple[int, int, int]:
    return (
        validate.integer("n_rounds", n_rounds, low=1),
        validate.integer("n_contexts", n_contexts, low=1),
        validate.integer("n_arms", n_arms, low=1),
    )


def _floor(reward_floor: float) -> float:
    return validate.number("reward_floor", reward_floor, low=0.0, high=1.0, high_open=True)


def seeded_generator(kind: int, detail: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([kind, detail, validate.integer("seed", seed, low=0)])


def _in_turn(
    rng: np.random.Generator, sizes: tuple[int, int, int], floor: float, n_tables: int, turns: NDArray[np.int64]
) -> Stream:
    """Make a stream from tables of means, uniform in [floor, 1]; `turns` has the table of every round."""
    n_rounds, n_contexts, n_arms = sizes
    means = rng.uniform(floor, 1.0, (n_tables, n_contexts, n_arms))
    contexts = rng.integers(0, n_contexts, n_rounds)
    return _drawn(rng, contexts, means[turns, contexts], floor, n_contexts)


def _drawn(
    rng: np.random.Generator, contexts: NDArray[np.int64], means: Matrix, floor: float, n_contexts: int
) -> Stream:
    """Draw rewards of 1 with the probability that gives the mean, else the floor."""
    table = np.where(rng.random(means.shape) < (means - floor) / (1.0 - floor), 1.0, floor)
    return Stream(contexts.astype(np.int32), np.arange(len(contexts), dtype=np.int32), table, n_contexts=n_contexts)
