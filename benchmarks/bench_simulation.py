"""Whole runs: the compiled simulation against a NumPy loop of the same algorithm on the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Policy, Stream, simulate
from alphafair.values import Vector
from benchmarks import numpy_loops
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, duration, faster, named
from benchmarks.timing import best, seconds
from tests import naive

OURS, THEIRS, REPEATS = 1_000_000, 20_000, 5  # rounds of a turn, and turns


def rows() -> Iterator[Row]:
    """Two rivals each: a loop tuned line by line, and the oracle of the tests, which says the formulas as they are."""
    fair, bandit = (partial(kind, N_CONTEXTS, N_ARMS, alpha=ALPHA) for kind in (AlphaFair, AlphaFairBandit))
    yield compare("AlphaFair", fair, numpy_loops.alpha_fair, "tuned loop")
    yield compare("AlphaFair", fair, partial(oracle, naive.AlphaFair, "full"), "plain loop (tests/naive.py)")
    yield compare("AlphaFairBandit", bandit, numpy_loops.alpha_fair_bandit, "tuned loop")
    adaptive = partial(AlphaFairAdaptive, N_CONTEXTS, N_ARMS, alpha=ALPHA)
    yield compare("AlphaFairAdaptive", adaptive, numpy_loops.alpha_fair_adaptive, "tuned loop", 50)
    yield early_rounds(fair)
    yield slates(adaptive)


def slates(make: Callable[[], Policy]) -> Row:
    """Three arms of nineteen in one decision, against one arm: per decision."""
    stream, policies = common(THEIRS), {k: make() for k in (1, 3)}

    def run(k: int) -> float:
        return seconds(lambda: simulate(policies[k], stream, seed=0, k=None if k == 1 else k)) / THEIRS

    times = best({str(k): partial(run, k) for k in policies}, 10 * REPEATS)
    ratio = times["3"] / times["1"]
    job, rival = f"simulate AlphaFairAdaptive, 3 of {N_ARMS} arms, per decision", "1 arm"
    return Row(job, duration(times["3"]), rival, duration(times["1"]), f"{ratio:.2f} x", "at most 2 x", ratio <= 2.0)


def early_rounds(make: Callable[[], Policy]) -> Row:
    """Early rounds take more powers than late ones, since accounts then grow fast in proportion."""
    streams = {"short": common(THEIRS), "long": common(OURS)}

    def run(name: str) -> float:
        policies = [make() for _ in range(OURS // streams[name].n_rounds)]
        return seconds(lambda: [simulate(policy, streams[name], seed=0) for policy in policies]) / OURS

    times = best({name: partial(run, name) for name in streams}, REPEATS)
    ratio = times["short"] / times["long"]
    job, rival = f"simulate AlphaFair, {THEIRS:,} rounds, per round", f"{OURS:,} rounds"
    return Row(
        job, duration(times["short"]), rival, duration(times["long"]), f"{ratio:.2f} x", "at most 1.6 x", ratio <= 1.6
    )


def oracle(kind: Any, feedback: Any, stream: Stream, uniforms: Vector, alpha: float) -> numpy_loops.Outcome:
    """A run of `tests/naive.py` on the same rounds."""
    policy = kind(stream.n_contexts, stream.n_arms, alpha=alpha)
    rewards = stream.reward_table[stream.items]
    arms, _, earned = naive.play(policy, stream.contexts.tolist(), rewards, uniforms, feedback)
    return earned, np.bincount(arms, minlength=stream.n_arms)


def compare(
    name: str, make: Callable[[], Policy], loop: Callable[..., numpy_loops.Outcome], words: str, least: float = 100
) -> Row:
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
    job = f"simulate {name}: {1e-6 / times['compiled']:.2f} million rounds per second"
    return faster(job, times["compiled"], f"{named('numpy')}, {words}", times["numpy"], least)
