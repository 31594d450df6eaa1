"""FairCB's step against CVXPY with Clarabel, on the very problems that a run meets while its floors bind."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from alphafair import Decision, FairCB, State, Stream, simulate
from alphafair.values import Matrix, Vector
from benchmarks.jobs import N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, faster, named
from benchmarks.timing import best, seconds

HORIZON = 5_000
ROUNDS = (1_000, 2_000, 3_000, 4_000, 4_999)  # whose updates are compared
FLOOR = 0.5 / N_ARMS
ETA = math.sqrt(2.0 * N_CONTEXTS * math.log(N_ARMS) / HORIZON)
REPEATS = 7


def rows() -> Iterator[Row]:
    stream = common(HORIZON)
    weights = np.bincount(stream.contexts, minlength=N_CONTEXTS) / HORIZON
    rival = CvxpyStep(weights)
    name = f"{named('cvxpy')}, {named('clarabel')}"
    times, short, gaps = [], [], []
    for t in ROUNDS:
        ours, losses = OurStep(stream, weights, t), losses_after(stream, t)
        turns: dict[str, Callable[[], float]] = {
            "ours": ours.play,
            "built once": partial(rival.solve, losses),
            "built anew": partial(built_anew, weights, losses),
        }
        times.append(best(turns, REPEATS))
        points = (ours.policy.distributions, rival.distributions)
        short.append([FLOOR - float((weights @ p).min()) for p in points])
        mine, theirs = (objective(feasible(p, weights), losses) for p in points)
        gaps.append(mine - theirs)
    mean = {key: float(np.mean([taken[key] for taken in times])) for key in times[0]}
    for variant in ("built once", "built anew"):
        yield faster("FairCB.update", mean["ours"], f"{name}, {variant}", mean[variant], 500)
    whole = best({"run": lambda: seconds_a_round(stream, weights)}, REPEATS)["run"]
    yield faster("simulate FairCB, mean of 5,000 rounds", whole, f"{name}, built once", mean["built once"], 500)
    mine, theirs = np.max(short, axis=0)
    yield Row(
        "FairCB: most that a marginal is short",
        f"{mine:.0e}",
        name,
        f"{theirs:.0e}",
        "-",
        "at most 1e-09",
        mine <= 1e-9,
    )
    worst = max(gaps)
    yield Row("FairCB: objective above the rival's", f"{worst:+.0e}", name, "0", "-", "at most 1e-09", worst <= 1e-9)


def new_policy(weights: Vector) -> FairCB:
    return FairCB(N_CONTEXTS, N_ARMS, pull_share=FLOOR, horizon=HORIZON, context_weights=weights, feedback="full")


def seconds_a_round(stream: Stream, weights: Vector) -> float:
    policy = new_policy(weights)
    return seconds(lambda: simulate(policy, stream)) / stream.n_rounds


class OurStep:
    """The update of round t from where a run stands by then, as often as it takes to time it; through the door."""

    def __init__(self, stream: Stream, weights: Vector, t: int) -> None:
        self.policy = new_policy(weights)
        simulate(self.policy, stream.head(t - 1))
        self._before: State = self.policy.snapshot()
        self._decision: Decision = self.policy.choose(int(stream.contexts[t - 1]))
        self._rewards = stream.rewards(t - 1)

    def play(self, n_times: int = 20) -> float:
        taken = []
        for _ in range(n_times):
            self.policy.restore(self._before)
            taken.append(seconds(lambda: self.policy.update(self._decision, self._rewards)))
        return min(taken)


class CvxpyStep:
    """The same problem for CVXPY; the losses are a parameter, so it need be translated for the solver only once."""

    def __init__(self, weights: Vector) -> None:
        cp: Any = importlib.import_module("cvxpy")
        self._losses = cp.Parameter((N_CONTEXTS, N_ARMS))
        self._p = cp.Variable((N_CONTEXTS, N_ARMS))
        goal = cp.sum(cp.multiply(self._losses, self._p)) - cp.sum(cp.entr(self._p))
        limits = [cp.sum(self._p, axis=1) == 1, weights @ self._p >= FLOOR]
        self._problem: Any = cp.Problem(cp.Minimize(goal), limits)

    def solve(self, losses: Matrix) -> float:
        self._losses.value = ETA * losses
        return seconds(lambda: self._problem.solve(solver="CLARABEL"))

    @property
    def distributions(self) -> Matrix:
        return np.asarray(self._p.value)


def built_anew(weights: Vector, losses: Matrix) -> float:
    return seconds(lambda: CvxpyStep(weights).solve(losses))


def losses_after(stream: Stream, n_rounds: int) -> Matrix:
    """L: the losses 1 - r of every context and arm so far."""
    losses = np.zeros((N_CONTEXTS, N_ARMS))
    np.add.at(losses, stream.contexts[:n_rounds], 1.0 - stream.reward_table[stream.items[:n_rounds]])
    return losses


def feasible(p: Matrix, weights: Vector) -> Matrix:
    """The point, mixed with just enough uniform play to keep every floor: else a violation would pass for a gain."""
    p = np.maximum(p, 1e-300)
    p = p / p.sum(axis=1, keepdims=True)
    short = np.maximum(FLOOR - weights @ p, 0.0)
    share = float((short / (short + 1.0 / N_ARMS - FLOOR)).max())
    mixed: Matrix = (1.0 - share) * p + share / N_ARMS
    return mixed


def objective(p: Matrix, losses: Matrix) -> float:
    """eta <P, L> + sum P ln P."""
    return float((p * (ETA * losses + np.log(p))).sum())
