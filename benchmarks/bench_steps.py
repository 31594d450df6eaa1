"""Single steps that are not the plain loop, against choose and update; whole runs with more to do in a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from alphafair import AlphaFairAdaptive, AlphaFairBandit, BasePolicy, Uniform, simulate
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, duration
from benchmarks.timing import best

ROUNDS, WHOLE_RUN, REPEATS = 20_000, 100_000, 9
rng = np.random.default_rng(0)
CONTEXTS = rng.integers(0, N_CONTEXTS, ROUNDS).tolist()
MASKS = rng.random((64, N_ARMS)) < 0.8
MASKS[:, 0] = True


def rows() -> Iterator[Row]:
    """All of them."""
    yield from rows_of_steps()
    yield from rows_of_others()
    yield from rows_of_sides()


def rows_of_steps() -> Iterator[Row]:
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


def rows_of_others() -> Iterator[Row]:
    """What a round costs beside a predictor that others teach, and an observed one, against a round of simulate."""
    stream = common(WHOLE_RUN)
    log = simulate(Uniform(N_CONTEXTS, N_ARMS, feedback="bandit"), stream, seed=0, log=True).log
    assert log is not None
    alone, beside = (AlphaFairAdaptive(N_CONTEXTS, N_ARMS, alpha=ALPHA, seed=0) for _ in range(2))
    beside.observe_log(log)
    steps: dict[str, Callable[[], object]] = {
        "alone": lambda: simulate(alone, stream, seed=0),
        "a round after decisions of others": lambda: simulate(beside, stream, seed=0),
        "a decision of others": lambda: beside.observe_log(log),
    }
    times = best({name: partial(taken, step) for name, step in steps.items()}, REPEATS)
    for name, most in (("a round after decisions of others", 1.9), ("a decision of others", 0.4)):
        ratio = times[name] / times["alone"]
        yield Row(
            f"{name}, AlphaFairAdaptive, compiled",
            duration(times[name] / WHOLE_RUN),
            "a round without others",
            duration(times["alone"] / WHOLE_RUN),
            f"{ratio:.2f} x",
            f"at most {most:g} x",
            ratio <= most,
        )


SIDES: dict[str, tuple[dict[str, float], float]] = {  # the most that a round may cost
    "a context weight": ({"context_weight": 0.25}, 1.15),
    "a promise to contexts": ({"context_share": 0.6}, 1.3),
}


def rows_of_sides() -> Iterator[Row]:
    """What a round costs that is fair to contexts too, at alpha = 1, against a round of simulate without."""
    stream = common(WHOLE_RUN)
    for feedback in ("bandit", "full"):
        made = partial(AlphaFairAdaptive, N_CONTEXTS, N_ARMS, alpha=1.0, feedback=feedback, seed=0)
        policies = {"neither": made(), **{name: made(**given) for name, (given, _) in SIDES.items()}}
        for policy in policies.values():
            simulate(policy, stream, seed=0)  # compiles
        runs = {name: partial(simulate, policy, stream, seed=0) for name, policy in policies.items()}
        times = best({name: partial(taken, run) for name, run in runs.items()}, REPEATS)
        for name, (_, most) in SIDES.items():
            ratio = times[name] / times["neither"]
            yield Row(
                f"a round with {name}, AlphaFairAdaptive ({feedback}), compiled",
                duration(times[name] / WHOLE_RUN),
                "a round without",
                duration(times["neither"] / WHOLE_RUN),
                f"{ratio:.2f} x",
                f"at most {most:g} x",
                ratio <= most,
            )


def taken(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


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
