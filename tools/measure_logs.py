"""Measure what logs of the adaptive policy are worth for evaluation: `python -m tools.measure_logs`.

Prints the table of docs/logs.md. Each row is a setting of `AlphaFairAdaptive` at alpha 0.9: what it learns, its least
propensity, and for two fixed policies the effective rounds, the width of the 95% interval and the verdicts of
`evaluation.evaluate` on its logs. Numbers are medians over the seeds, but a mean for the gap; the width is infinite
where there is no estimate.

The least share of the guaranteed learner is a constant of the algorithm, so logs with another one are played with
interpreted kernels, which takes a few minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from alphafair import AlphaFairAdaptive, Groups, Log, evaluation, metrics, offline_optimum, simulate, streams
from alphafair.algorithms import adaptive_bandit
from alphafair.jit import using_mode
from alphafair.offline import context_reward_totals
from alphafair.values import Stream

ALPHA, SEEDS = 0.9, range(6)
STREAMS: dict[str, Callable[[int], Stream]] = {
    "20,000 rounds, 10 contexts, 10 arms, stationary": lambda seed: streams.stationary(20_000, 10, 10, seed=seed),
    "40,034 ratings, 43 contexts, 19 arms": lambda _: streams.movielens_small(min_ratings=500),
}


class Setting(NamedTuple):
    title: str
    floor: float = 0.0  # of every arm
    delay: int | None = None  # of rewards, in rounds
    share: float = adaptive_bandit.KAPPA  # the least share of the guaranteed learner


SETTINGS = (
    Setting("least share 0.02, as in earlier versions", share=0.02),
    Setting("no floor"),
    Setting("no floor, a reward always pending", delay=2),
    Setting("floor 0.002", floor=0.002),
    Setting("floor 0.005", floor=0.005),
)


@contextmanager
def least_share(share: float) -> Iterator[None]:
    """Play with another least share; compiled kernels would keep the constant."""
    usual = adaptive_bandit.KAPPA
    if share == usual:
        yield
        return
    adaptive_bandit.KAPPA = share
    try:
        with using_mode("off"):
            yield
    finally:
        adaptive_bandit.KAPPA = usual


def log_of(stream: Stream, seed: int, setting: Setting) -> tuple[float, Log]:
    """The share of the gap closed by one run, and its log."""
    groups = Groups(pull_floor=setting.floor) if setting.floor else None
    policy = AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=ALPHA, groups=groups, seed=seed)
    with least_share(setting.share):
        trace = simulate(policy, stream, seed=seed, delay=setting.delay, log=True)
    assert trace.log is not None
    totals = context_reward_totals(stream)
    even = 1.0 + totals.sum(axis=0) / stream.n_arms
    return float(metrics.gap_closed(offline_optimum(totals, ALPHA).value, even, trace.final, ALPHA)), trace.log


def worth(log: Log, stream: Stream, seed: int) -> list[float]:
    """The least propensity; effective rounds, width and verdict for uniform play and for half the best policy."""
    best = offline_optimum(context_reward_totals(stream), ALPHA).distributions
    even = np.full(best.shape, 1.0 / stream.n_arms)
    numbers = [float(log.propensities.min())]
    for target in (even, (even + best) / 2.0):
        found = evaluation.evaluate(log, target, ALPHA, seed=seed)
        value, low, high = found.alpha_performance
        width = 100.0 * (high - low) / value if found.verdict != "do not use" else math.inf
        numbers += [found.effective_sample_size, width, float(found.verdict == "trustworthy")]
    return numbers


def row(setting: Setting, stream_of: Callable[[int], Stream]) -> str:
    closed, numbers = [], []
    for seed in SEEDS:
        stream = stream_of(seed)
        share, log = log_of(stream, seed, setting)
        closed.append(share)
        numbers.append(worth(log, stream, seed))
    least, *middle = np.median(numbers, axis=0)
    sums = np.sum(numbers, axis=0)
    cells = [f"{100.0 * np.mean(closed):.1f}%", f"{least:.2g}"]
    for column in (1, 4):
        size, width = middle[column - 1 : column + 1]
        interval = f"{width:.1f}%" if math.isfinite(width) else "no estimate"
        cells.append(f"{size:,.0f}, {interval}, {sums[column + 2]:.0f} of {len(SEEDS)}")
    return f"| {setting.title} | {' | '.join(cells)} |"


def main() -> None:
    print("| log of the policy with | gap closed | least propensity | uniform play | mixture |")
    print("|---|---:|---:|---:|---:|")
    for title, stream_of in STREAMS.items():
        print(f"| *{title}* | | | | |")
        for setting in SETTINGS:
            print(row(setting, stream_of), flush=True)


if __name__ == "__main__":
    main()
