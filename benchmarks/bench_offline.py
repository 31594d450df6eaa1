"""The offline optimum against CVXPY with Clarabel on the same matrix, both gaps computed in the same way."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from alphafair import Groups, metrics, offline_curve, offline_optimum
from alphafair.offline import context_reward_totals, hindsight
from alphafair.offline import large as large_problems
from alphafair.offline.reduction import Reduction
from alphafair.values import Matrix
from benchmarks.jobs import common
from benchmarks.table import Row, duration, faster, named
from benchmarks.timing import best

ALPHA = 0.9
PROMISED = 0.8  # of its best, to every context
SIZES = (  # alpha, shape, target, repeats
    (ALPHA, (33, 19), 50.0, 15),
    (ALPHA, (1000, 19), 25.0, 5),
    (ALPHA, (20_000, 20), 40.0, 1),
    (1.0, (20_000, 20), 100.0, 1),
)


def matrix(n_contexts: int, n_arms: int, seed: int = 0) -> Matrix:
    """Totals like those of ratings: rewards 1 or 0.2, users whose numbers of rounds have a heavy tail."""
    rng = np.random.default_rng(seed)
    rounds = np.ceil(20.0 * (1.0 + rng.pareto(1.2, n_contexts))).astype(np.int64)
    taste = np.where(rng.random((n_contexts, n_arms)) < 0.2, 0.7, 0.1)
    fits = rng.binomial(rounds[:, None], taste)
    return fits + 0.2 * (rounds[:, None] - fits)


def relative_gap(totals: Matrix, x: Matrix, alpha: float) -> float:
    """The certificate of any rows, made feasible first: relative to the value, and at alpha = 1 to the welfare."""
    x = np.maximum(x, 0.0)
    x /= x.sum(axis=1, keepdims=True)
    earned = 1.0 + (totals * x).sum(axis=0)
    slopes = totals * earned**-alpha
    gap = (x * (slopes.max(axis=1, keepdims=True) - slopes)).sum()
    return float(gap * (1.0 - alpha if alpha < 1.0 else 1.0) / (earned ** (1.0 - alpha)).sum())


def clarabel(totals: Matrix, alpha: float, share: float = 0.0) -> Matrix:
    cp: Any = importlib.import_module("cvxpy")
    x = cp.Variable(totals.shape, nonneg=True)
    if alpha == 1.0:  # the geometric mean, in units of uniform play: it gives up on a sum of logarithms of this size
        unit = 1.0 + totals.mean(axis=1).sum()
        goal = cp.geo_mean(1.0 / unit + cp.sum(cp.multiply(totals / unit, x), axis=0))
    else:
        goal = cp.sum(cp.power(1.0 + cp.sum(cp.multiply(totals, x), axis=0), 1.0 - alpha))
    rules = [cp.sum(x, axis=1) == 1]
    if share > 0.0:
        rules.append(cp.sum(cp.multiply(totals, x), axis=1) >= share * totals.max(axis=1))
    problem = cp.Problem(cp.Maximize(goal), rules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that a solution may be inaccurate; the gap says how inaccurate
        problem.solve(solver=cp.CLARABEL)
    return np.asarray(x.value)


def rows() -> Iterator[Row]:
    yield from large()  # first: a child's peak memory counts what its parent held
    rival = f"{named('cvxpy')}, {named('clarabel')}"
    for alpha, shape, target, repeats in SIZES:
        totals = matrix(*shape)
        kept: dict[str, Matrix] = {}

        def ours(totals: Matrix = totals, kept: dict[str, Matrix] = kept, alpha: float = alpha) -> float:
            start = time.perf_counter()
            kept["ours"] = offline_optimum(totals, alpha).distributions
            return time.perf_counter() - start

        def theirs(totals: Matrix = totals, kept: dict[str, Matrix] = kept, alpha: float = alpha) -> float:
            start = time.perf_counter()
            kept["theirs"] = clarabel(totals, alpha)
            return time.perf_counter() - start

        ours()
        taken = best({"ours": ours, "theirs": theirs}, repeats)
        name = f"offline optimum {shape}" + (", alpha 1" if alpha == 1.0 else "")
        row = faster(name, taken["ours"], rival, taken["theirs"], target)
        gaps = {key: f"{relative_gap(totals, x, alpha):.0e}" for key, x in kept.items()}
        yield row._replace(ours=f"{row.ours}, gap {gaps['ours']}", theirs=f"{row.theirs}, gap {gaps['theirs']}")
    yield from grouped()
    yield from promised(rival)
    yield curve()


def grouped() -> Iterator[Row]:
    """Groups of arms and a floor under each arm, against the problem they are reduced to; in processor time."""
    sizes = ((33, 40), 19, 500), ((500, 200), 12, 100), ((1000, 100), 20, 30), ((20_000, 100), 20, 3)
    for shape, n_groups, repeats in sizes:
        totals, groups = matrix(*shape), Groups(np.arange(shape[1]) % n_groups, pull_floor=0.2 / shape[1])
        _, reduced, base = Reduction.of(shape[1], groups, None).merge(totals, np.ones(n_groups))

        def ours(totals: Matrix = totals, groups: Groups = groups) -> float:
            start = time.process_time()
            offline_optimum(totals, ALPHA, groups=groups)
            return time.process_time() - start

        def plain(reduced: Matrix = reduced, base: Any = base) -> float:
            start = time.process_time()
            offline_optimum(reduced, ALPHA, initial=base)
            return time.process_time() - start

        ours()
        taken = best({"ours": ours, "plain": plain}, repeats)
        ratio = taken["ours"] / taken["plain"]
        yield Row(
            f"offline optimum {shape}, arms in {n_groups} groups, floors",
            duration(taken["ours"]),
            "the reduced problem",
            duration(taken["plain"]),
            f"{ratio:.2f} x",
            "at most 1.2 x",
            ratio <= 1.2,
        )


def promised(rival: str) -> Iterator[Row]:
    """A promise of 0.8 to every context at alpha = 1, in processor time; the gap of both is ours, of their prices."""
    for shape, target, repeats in (((33, 19), 2.0, 9), ((1000, 19), 5.0, 3)):
        totals = matrix(*shape)
        found: dict[str, Any] = {}

        def ours(totals: Matrix = totals, found: dict[str, Any] = found) -> float:
            start = time.process_time()
            found["ours"] = offline_optimum(totals, 1.0, context_share=PROMISED)
            return time.process_time() - start

        def theirs(totals: Matrix = totals, found: dict[str, Any] = found) -> float:
            start = time.process_time()
            found["theirs"] = clarabel(totals, 1.0, PROMISED)
            return time.process_time() - start

        taken = best({"ours": ours, "theirs": theirs}, repeats)
        row = faster(
            f"offline optimum {shape}, contexts promised {PROMISED:g}", taken["ours"], rival, taken["theirs"], target
        )
        x = np.maximum(found["theirs"], 0.0)
        x /= x.sum(axis=1, keepdims=True)
        behind = 1.0 - metrics.welfare(1.0 + (totals * x).sum(axis=0), 1.0) / found["ours"].welfare
        yield row._replace(
            ours=f"{row.ours}, gap {found['ours'].welfare_gap:.0e}", theirs=f"{row.theirs}, {behind:.0e} behind"
        )


def large() -> Iterator[Row]:
    """All users of MovieLens 25M, and a square problem that LAPACK solves, each in a process of its own."""
    for shape, seconds in (((162_541, 20), math.inf), ((2000, 2000), 5.0)):
        code = (
            "import resource, time; from alphafair import offline_optimum\n"
            "from benchmarks.bench_offline import matrix\n"
            f"totals = matrix{shape}; offline_optimum(totals[:3], 0.9)\n"
            "offline_optimum(totals[:300, :300], 0.9); start = time.perf_counter()\n"
            "best = offline_optimum(totals, 0.9); spent = time.perf_counter() - start\n"
            "print(spent, best.gap / best.value, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
        )
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        spent, gap, gigabytes = (float(word) for word in answer.stdout.split())
        yield Row(
            f"offline optimum {shape}",
            f"{duration(spent)}, gap {gap:.0e}",
            "memory",
            f"{gigabytes:.2f} GB",
            "-",
            "gap 1e-09, 1 GB" if seconds == math.inf else f"under {seconds:g} s, gap 1e-09, 1 GB",
            gap <= 1e-9 and gigabytes <= 1.0 and spent < seconds,
        )
    yield crossover()


def crossover() -> Row:
    """At the size from which LAPACK is used, its time against that of the compiled loops."""
    shape = (large_problems.SIZE, large_problems.SIZE)
    totals, n = matrix(*shape), shape[1]
    x, earned, ones = np.empty(shape), np.empty(n), np.ones(n)

    def lapack() -> float:
        start = time.perf_counter()
        large_problems.solve(totals, ones, ones, ALPHA, 1e-9, x, earned)
        return time.perf_counter() - start

    def loops() -> float:
        start = time.perf_counter()
        hindsight.solve(totals, ones, ones, ALPHA, 1e-9, np.ones(n), np.full(n, np.inf), x, earned)
        return time.perf_counter() - start

    lapack(), loops()
    taken = best({"lapack": lapack, "loops": loops}, 9)
    return faster(f"offline optimum {shape}, the crossover", taken["lapack"], "compiled loops", taken["loops"], 0.5)


def curve() -> Row:
    """Every prefix of 5,000 rounds, against single solves of the last."""
    stream = common(5000)
    totals = context_reward_totals(stream)

    def single() -> float:
        start = time.perf_counter()
        offline_optimum(totals, ALPHA)
        return time.perf_counter() - start

    def prefixes() -> float:
        start = time.perf_counter()
        values, gaps = offline_curve(stream, ALPHA, np.arange(1, stream.n_rounds + 1))
        assert (gaps <= 1e-9 * values).all()
        return time.perf_counter() - start

    taken = best({"curve": prefixes, "single": single}, 5)
    ratio = taken["curve"] / taken["single"]
    return Row(
        "offline curve, 5,000 prefixes certified",
        duration(taken["curve"]),
        "one single solve",
        duration(taken["single"]),
        f"{ratio:,.0f} solves",
        "under 4,000 solves",
        ratio < 4000,
    )
