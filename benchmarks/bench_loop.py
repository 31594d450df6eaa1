"""The plain Python loop, one decision and one update per round: ours against other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from alphafair import AlphaFairAdaptive, AlphaFairBandit, Stream
from benchmarks import numpy_loops, rivals
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.rivals import Rounds
from benchmarks.table import Row, faster, named
from benchmarks.timing import best, seconds

OURS, REPEATS = 100_000, 5


def rows() -> Iterator[Row]:
    """Each rival takes turns with our loop, with rounds enough for about half a second a turn."""
    stream = common(OURS)
    rewards = stream.reward_table[stream.items].tolist()
    rounds = list(zip(stream.contexts.tolist(), rewards, strict=True))
    river, mabwiser, wabbit = named("river"), named("mabwiser"), named("vowpalwabbit")
    contenders: list[tuple[str, Callable[[Rounds], float], int]] = [
        (f"{river} EpsilonGreedy, blind to contexts", rivals.river_epsilon_greedy, 100_000),
        (f"{river} Exp3, blind to contexts", rivals.river_exp3, 50_000),
        (f"{mabwiser} EpsilonGreedy, blind to contexts", rivals.mabwiser_epsilon_greedy, 4_000),
        (f"{mabwiser} LinGreedy, one-hot contexts", rivals.mabwiser_lin_greedy, 400),
        (f"{wabbit} cb_explore", rivals.vowpal_wabbit, 20_000),
        (f"{wabbit} cb_explore_adf", rivals.vowpal_wabbit_adf, 4_000),
        (f"{named('numpy')} loop of Hedge, blind to contexts", partial(numpy_hedge, stream), 50_000),
    ]
    for rival, play, n_rounds in contenders:
        turns = {kind.__name__: partial(ours, kind, rounds) for kind in (AlphaFairAdaptive, AlphaFairBandit)}
        times = best({**turns, rival: partial(play, rounds[:n_rounds])}, REPEATS)
        for name in turns:
            yield faster(f"choose + update, {name}", times[name] / OURS, rival, times[rival] / n_rounds, 1)


def ours(kind: type[AlphaFairAdaptive] | type[AlphaFairBandit], rounds: Rounds) -> float:
    policy = kind(N_CONTEXTS, N_ARMS, alpha=ALPHA, seed=0)
    policy.update(policy.choose(0), 1.0)  # compiles
    start = time.perf_counter()
    for context, rewards in rounds:
        decision = policy.choose(context)
        policy.update(decision, rewards[decision.arm])
    return time.perf_counter() - start


def numpy_hedge(stream: Stream, rounds: Rounds) -> float:
    """The yardstick: the same rounds, with all rewards seen and random numbers drawn beforehand."""
    some = stream.head(len(rounds))
    uniforms = np.random.default_rng(0).random(some.n_rounds)
    return seconds(lambda: numpy_loops.hedge(some, uniforms, 0.01))
