"""Whole runs: the compiled simulation against a NumPy loop of the same algorithm on the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from alphafair import AlphaFair, AlphaFairBandit, Policy, simulate
from benchmarks import numpy_loops
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, faster, named
from benchmarks.timing import best, seconds

OURS, THEIRS, REPEATS = 1_000_000, 20_000, 5  # rounds of a turn, and turns


def rows() -> Iterator[Row]:
    yield compare("AlphaFair", lambda: AlphaFair(N_CONTEXTS, N_ARMS, alpha=ALPHA), numpy_loops.alpha_fair)
    yield compare(
        "AlphaFairBandit", lambda: AlphaFairBandit(N_CONTEXTS, N_ARMS, alpha=ALPHA), numpy_loops.alpha_fair_bandit
    )


def compare(name: str, make: Callable[[], Policy], loop: Callable[..., numpy_loops.Outcome]) -> Row:
    long = common(OURS)
    short = long.head(THEIRS)
    uniforms = np.random.default_rng(0).random(THEIRS)
    trace = simulate(make(), short, seed=0)  # compiles
    earned, pulls = loop(short, uniforms, ALPHA)
    if not (np.array_equal(trace.pulls, pulls) and np.allclose(trace.final, earned, rtol=1e-9)):
        raise AssertionError(f"{name}: the NumPy loop and the compiled run are not the same algorithm")

    def compiled() -> float:
        policy = make()
        return seconds(lambda: simulate(policy, long, seed=0)) / OURS

    def interpreted() -> float:
        return seconds(lambda: loop(short, uniforms, ALPHA)) / THEIRS

    times = best({"compiled": compiled, "numpy": interpreted}, REPEATS)
    job = f"simulate {name}: {1e-6 / times['compiled']:.2f} million rounds a second"
    return faster(job, times["compiled"], f"{named('numpy')} loop", times["numpy"], 100)
