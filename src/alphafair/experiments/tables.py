"""What tasks make: the table of a policy's play, of the optimum over time, of the two-context instance."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from alphafair import metrics, streams
from alphafair.offline import context_reward_totals, offline_curve, offline_optimum
from alphafair.policies import AlphaFair, BasePolicy
from alphafair.simulation import simulate
from alphafair.types import Stream, Vector


class Part(NamedTuple):
    """What one contender did at one alpha: R by seed, recorded round and arm, and pulls by seed and arm."""

    rewards: Vector
    pulls: Vector


def record_every(n_rounds: int, n_records: int) -> int:
    return -(-n_rounds // n_records)


def record_rounds(n_rounds: int, n_records: int) -> NDArray[np.int64]:
    """The rounds that `simulate` records: every so many, and the last."""
    every = record_every(n_rounds, n_records)
    return np.minimum(np.arange(1, -(-n_rounds // every) + 1) * every, n_rounds)


def played(policy: BasePolicy, stream: Stream, seeds: Sequence[int], n_records: int) -> pl.DataFrame:
    """The cumulative rewards of every arm at every recorded round, and how often it was pulled in all, seed by seed."""
    every = record_every(stream.n_rounds, n_records)
    frames = []
    for seed in seeds:
        trace = simulate(policy.fresh(), stream, seed=seed, record_every=every)
        n_rows, n_arms = trace.cumulative_rewards.shape
        frames.append(
            pl.DataFrame(
                {
                    "seed": np.full(n_rows * n_arms, seed, dtype=np.int32),
                    "round": np.repeat(trace.rounds, n_arms),
                    "arm": np.tile(np.arange(n_arms, dtype=np.int32), n_rows),
                    "reward": trace.cumulative_rewards.ravel(),
                    "pulls": np.tile(trace.pulls, n_rows),
                }
            )
        )
    return pl.concat(frames)


def part(table: pl.DataFrame) -> Part:
    """The table of a play as arrays."""
    shape = tuple(table[name].n_unique() for name in ("seed", "round", "arm"))
    rewards, pulls = (table[name].to_numpy().reshape(shape) for name in ("reward", "pulls"))
    return Part(rewards, pulls[:, -1].astype(np.float64))


def optimum(stream: Stream, alpha: float, n_records: int) -> pl.DataFrame:
    """The certified optimum of every recorded prefix, with its gaps."""
    rounds = record_rounds(stream.n_rounds, n_records)
    values, gaps = offline_curve(stream, alpha, rounds)
    return pl.DataFrame({"round": rounds, "value": values, "gap": gaps})


def two_contexts(n_half: int, alpha: float, seeds: Sequence[int]) -> pl.DataFrame:
    """OPT/ALG of alpha-FairCB on the impossibility instance; the seed is its coin."""
    ratios = []
    for seed in seeds:
        stream = streams.impossibility(n_half, seed=seed)
        earned = simulate(AlphaFair(2, 2, alpha=alpha), stream).final
        best = offline_optimum(context_reward_totals(stream), alpha).value
        ratios.append(float(metrics.performance_ratio(best, earned, alpha)))
    return pl.DataFrame({"seed": list(seeds), "ratio": ratios})
