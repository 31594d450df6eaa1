"""Measure what it costs to explore more while rewards are pending: `python -m tools.measure_pending`.

Prints the table of docs/arena.md: the share of the gap that the adaptive policy closes in stationary worlds if rewards
arrive in order, and if each arrives two rounds late. Then one is pending whenever an arm is chosen, as in a live
engine, and little else is different.
"""

from __future__ import annotations

import numpy as np

from alphafair import AlphaFairAdaptive, metrics, offline_optimum, simulate, streams
from alphafair.offline import context_reward_totals

ALPHAS, SEEDS = (0.0, 0.5, 0.9), range(100)
STUDENT = 1.984  # 97.5% of Student's t with 99 degrees of freedom
SIZES = ((30_000, 12, 10), (500, 5, 5))  # rounds, contexts, arms


def closed(sizes: tuple[int, int, int], alpha: float, seed: int, delay: int | None) -> float:
    """Percent of the gap."""
    stream = streams.stationary(*sizes, seed=seed)
    policy = AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha)
    totals = context_reward_totals(stream)
    best, even = offline_optimum(totals, alpha).value, 1.0 + totals.sum(axis=0) / stream.n_arms
    final = simulate(policy, stream, seed=seed, delay=delay).final
    return 100.0 * float(metrics.gap_closed(best, even, final, alpha))


def row(sizes: tuple[int, int, int], alpha: float) -> str:
    shares = np.array([[closed(sizes, alpha, seed, delay) for delay in (None, 2)] for seed in SEEDS])
    cost = shares[:, 0] - shares[:, 1]
    half = STUDENT * cost.std(ddof=1) / np.sqrt(len(SEEDS))
    in_order, pending = shares.mean(axis=0)
    rounds = f"{sizes[0]:,} rounds, {sizes[1]} contexts, {sizes[2]} arms"
    return f"| {rounds} | {alpha:g} | {in_order:.1f} | {pending:.1f} | {cost.mean():.1f} \u00b1 {half:.1f} |"


def main() -> None:
    print("| stationary | \u03b1 | rewards in order | one always pending | cost |\n|---|---:|---:|---:|---:|")
    for sizes in SIZES:
        for alpha in ALPHAS:
            print(row(sizes, alpha), flush=True)


if __name__ == "__main__":
    main()
