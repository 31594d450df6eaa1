"""Single steps that are not the plain loop: expecting, forgoing and masks, against choose and update."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from alphafair import AlphaFairAdaptive, AlphaFairBandit, BasePolicy
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS
from benchmarks.table import Row, duration
from benchmarks.timing import best

ROUNDS, REPEATS = 20_000, 9
rng = np.random.default_rng(0)
CONTEXTS = rng.integers(0, N_CONTEXTS, ROUNDS).tolist()
MASKS = rng.random((64, N_ARMS)) < 0.8
MASKS[:, 0] = True


def rows() -> Iterator[Row]:
    """What a step costs beside choose and update, of which a round has one each."""
    for kind in (AlphaFairAdaptive, AlphaFairBandit):
        policy = kind(N_CONTEXTS, N_ARMS, alpha=ALPHA, seed=0)
        steps: dict[str, Callable[[BasePolicy], float]] = {
            "choose + update": plain,
            "expect": partial(notified, forgone=False),
            "forgo": partial(notified, forgone=True),
            "choose with a mask + update": masked,
        }
        for step in steps.values():
            step(policy)  # compiles
        times = best({name: partial(step, policy) for name, step in steps.items()}, REPEATS)
        for name in (name for name in steps if name != "choose + update"):
            ratio, ours, theirs = times[name] / times["choose + update"], times[name], times["choose + update"]
            yield Row(
                f"{name}, {kind.__name__}",
                duration(ours / ROUNDS),
                "choose + update",
                duration(theirs / ROUNDS),
                f"{ratio:.2f} x",
                "at most 1.5 x",
                ratio <= 1.5,
            )


def plain(policy: BasePolicy) -> float:
    start = time.process_time()
    for context in CONTEXTS:
        policy.update(policy.choose(context), 0.5)
    return time.process_time() - start


def masked(policy: BasePolicy) -> float:
    start = time.process_time()
    for t, context in enumerate(CONTEXTS):
        policy.update(policy.choose(context, available=MASKS[t % 64]), 0.5)
    return time.process_time() - start


def notified(policy: BasePolicy, forgone: bool) -> float:
    """Expect all decisions, then forgo them; the time of one or the other."""
    decisions = [policy.choose(context) for context in CONTEXTS]
    start = time.process_time()
    for decision in decisions:
        policy.expect(decision)
    expected = time.process_time()
    for decision in decisions:
        policy.forgo(decision)
    return time.process_time() - expected if forgone else expected - start
