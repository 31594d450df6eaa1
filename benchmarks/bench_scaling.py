"""How the cost of a round grows with the number of arms and of contexts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Stream, simulate
from benchmarks.jobs import ALPHA, N_CONTEXTS, with_arms, with_contexts
from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

Kind = type[AlphaFair] | type[AlphaFairBandit] | type[AlphaFairAdaptive]
ARMS = (10, 100, 1_000, 10_000, 100_000)
CONTEXTS = (N_CONTEXTS, 200_000)
ARM_ROUNDS = 2_000  # the same for every size: early rounds cost more than late ones
CONTEXT_ROUNDS = 2_000_000
NOISE = 0.1  # that much more is forgiven where ten times the arms may cost ten times as much
REPEATS = 5


def rows() -> Iterator[Row]:
    for kind in (AlphaFair, AlphaFairBandit):
        yield from arms(kind)
    for kind in (AlphaFair, AlphaFairBandit, AlphaFairAdaptive):
        yield contexts(kind)


def cost(kind: Kind, stream: Stream) -> float:
    """Processor seconds per round: a short run may find the machine idle where a long one has to share it."""
    policy = kind(stream.n_contexts, stream.n_arms, alpha=ALPHA)
    return seconds(lambda: simulate(policy, stream), time.process_time) / stream.n_rounds


def arms(kind: Kind) -> Iterator[Row]:
    jobs = {n: with_arms(n, ARM_ROUNDS) for n in ARMS}
    cost(kind, jobs[10].head(10))  # compiles
    costs = best({n: partial(cost, kind, stream) for n, stream in jobs.items()}, REPEATS)
    for few, many in pairwise(ARMS):
        yield grown(f"{kind.__name__}, {many:,} arms", costs[many], f"{few:,} arms", costs[few], many // few)


def contexts(kind: Kind) -> Row:
    jobs = {m: with_contexts(m, CONTEXT_ROUNDS) for m in CONTEXTS}
    costs = best({m: partial(cost, kind, stream) for m, stream in jobs.items()}, REPEATS)
    few, many = CONTEXTS
    return grown(f"{kind.__name__}, {many:,} contexts", costs[many], f"{few:,} contexts", costs[few], 2, noise=0.0)


def grown(job: str, ours: float, rival: str, theirs: float, most: float, noise: float = NOISE) -> Row:
    """Our cost may be at most so many times the cost of the smaller job."""
    ratio = ours / theirs
    target = f"at most {most:g} x" + (f" (+{noise:.0%})" if noise else "")
    reached = ratio <= most * (1.0 + noise)
    return Row(job, duration(ours), f"itself, {rival}", duration(theirs), f"{ratio:.3g} x", target, reached)
