"""Measure two defaults that have no proof, carry 1/2 and exponent 16: `python -m tools.measure_alpha`.

Prints the three tables of docs/alpha.md: by carry, on the streams that 1/2 was chosen on and on others, and by exponent
on the others. A cell is the percent of the gap between uniform play and the optimum that
`AlphaFairAdaptive` closes in welfare, with full information and with bandit feedback, as a mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from alphafair import AlphaFairAdaptive, context_reward_totals, metrics, offline_optimum, simulate, streams
from alphafair.values import Stream

SEEDS = (101, 102, 103)
CARRIES = (0.0, 0.25, 0.5, 0.75, 1.0)
EXPONENTS = (8.0, 16.0, 32.0)
STREAMS: dict[str, tuple[int, Callable[[int], Stream]]] = {  # rounds of a period, and the stream of a seed
    "zipf contexts, 40 x 12": (2_000, lambda seed: streams.zipf_contexts(20_000, 40, 12, seed=seed)),
    "drifting ratings, 15 x 14": (2_000, lambda seed: streams.drifting_ratings(20_000, 15, 14, seed=seed)),
    "sparse clicks, 5 x 6": (8_000, lambda seed: streams.sparse_clicks(40_000, 5, 6, seed=seed)),
    "day and night, 8 x 7": (1_500, lambda seed: streams.day_and_night(18_000, 8, 7, period=1_000, seed=seed)),
}
CHOSEN_ON: dict[str, tuple[int, tuple[float, ...], Callable[[int], Stream]]] = {  # a seed is that of the draws alone
    "MovieLens, 20,000 ratings": (2_000, (0.9, 2.0), lambda _: streams.movielens_small().head(20_000)),
    "MovieLens, users with 500 ratings": (4_000, (0.9, 2.0), lambda _: streams.movielens_small(min_ratings=500)),
    "six phases, 12 x 10": (3_000, (0.9,), lambda _: streams.phases(60_000, 12, 10, seed=5)),
    "day and night, 12 x 10": (6_000, (0.9,), lambda _: streams.day_and_night(60_000, 12, 10, seed=5)),
    "stationary, 12 x 10": (6_000, (0.9,), lambda _: streams.stationary(60_000, 12, 10, seed=5)),
}


def policy(stream: Stream, alpha: float, feedback: str) -> AlphaFairAdaptive:
    return AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha, feedback=feedback)  # type: ignore[arg-type]


def closed_by_period(stream: Stream, period: int, alpha: float, feedback: str, seed: int) -> Iterator[float]:
    """The share of the gap closed for every carry: welfare summed over periods, against the optimum of each period."""
    totals = context_reward_totals(stream, period=period)
    best = sum(offline_optimum(each, alpha).welfare for each in totals)
    even = sum(metrics.welfare(1.0 + each.sum(axis=0) / stream.n_arms, alpha) for each in totals)
    for carry in CARRIES:
        run = simulate(policy(stream, alpha, feedback), stream, seed=seed, period=period, carry=carry)
        yield (sum(metrics.welfare(1.0 + each.rewards, alpha) for each in run.periods) - even) / (best - even)


def closed_by_exponent(stream: Stream, feedback: str, seed: int) -> Iterator[float]:
    """The share of the gap in the poorest account that is closed, for every exponent that stands for infinity."""
    totals = context_reward_totals(stream)
    best, even = offline_optimum(totals, math.inf).welfare, (1.0 + totals.sum(axis=0) / stream.n_arms).min()
    for exponent in EXPONENTS:
        yield (simulate(policy(stream, exponent, feedback), stream, seed=seed).final.min() - even) / (best - even)


def row(title: str, measure: Callable[[Stream, str, int], Iterator[float]], make: Callable[[int], Stream]) -> str:
    """One row of a table: full information / bandit feedback."""
    means = [
        np.mean([[*measure(make(seed), feedback, seed)] for seed in SEEDS], axis=0) for feedback in ("full", "bandit")
    ]
    cells = (f"{100 * full:.0f} / {100 * bandit:.0f}" for full, bandit in zip(*means, strict=True))
    return f"| {title} | {' | '.join(cells)} |"


def print_by_carry(of: dict[str, tuple[int, tuple[float, ...], Callable[[int], Stream]]]) -> None:
    print(f"| stream, period | \u03b1 | {' | '.join(f'{carry:g}' for carry in CARRIES)} |")
    print(f"|---|---|{'---|' * len(CARRIES)}")
    for title, (period, alphas, make) in of.items():
        for alpha in alphas:

            def by_period(
                stream: Stream, feedback: str, seed: int, period: int = period, alpha: float = alpha
            ) -> Iterator[float]:
                return closed_by_period(stream, period, alpha, feedback, seed)

            print(row(f"{title}, {period:,} | {alpha:g}", by_period, make), flush=True)
    print()


def main() -> None:
    print_by_carry(CHOSEN_ON)
    print_by_carry({title: (period, (0.9, 1.0, 2.0), make) for title, (period, make) in STREAMS.items()})
    print(f"| stream | {' | '.join(f'{each:g}' for each in EXPONENTS)} |\n|---|{'---|' * len(EXPONENTS)}")
    for title, (_, make) in STREAMS.items():
        print(row(title, closed_by_exponent, make), flush=True)


if __name__ == "__main__":
    main()
