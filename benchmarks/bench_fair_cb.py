"""FairCB's step against CVXPY with Clarabel, on the very problems that a run meets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from alphafair import FairCB, Stream, simulate
from alphafair.kernels.pull_floor import FULL, learning_rate
from alphafair.types import Matrix
from benchmarks.jobs import N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, faster, named
from benchmarks.timing import best, seconds

HORIZON = 5_000
ROUNDS = (1_000, 2_000, 3_000, 4_000, 4_999)
FLOOR = 0.5 / N_ARMS
ETA = learning_rate(N_CONTEXTS, N_ARMS, HORIZON, FULL)
REPEATS = 5


class Solved(NamedTuple):
    distributions: Matrix
    seconds: float


def rows() -> Iterator[Row]:
    stream = common(HORIZON)
    weights = np.bincount(stream.contexts, minlength=N_CONTEXTS) / HORIZON
    rival = CvxpyStep(weights)
    name = f"{named('cvxpy')} + {named('clarabel')}"
    update, parametrised, rebuilt = [], [], []
    short, gap = [0.0, 0.0], 0.0
    for t in ROUNDS:
        losses = losses_after(stream, t)
        mine, theirs = our_step(stream, weights, t), rival.solve(losses)
        times = best(
            {
                "ours": lambda t=t: our_step(stream, weights, t).seconds,
                "parameters": lambda losses=losses: rival.solve(losses).seconds,
                "rebuilt": lambda losses=losses: seconds(lambda: CvxpyStep(weights).solve(losses)),
            },
            REPEATS,
        )
        update.append(times["ours"])
        parametrised.append(times["parameters"])
        rebuilt.append(times["rebuilt"])
        short = [max(a, FLOOR - (weights @ s.distributions).min()) for a, s in zip(short, (mine, theirs), strict=True)]
        gap = max(gap, objective(mine, losses) - objective(theirs, losses), key=abs)
    yield faster("FairCB.update", np.mean(update), f"{name}, built once", np.mean(parametrised), 500)
    yield faster("FairCB.update", np.mean(update), f"{name}, built anew", np.mean(rebuilt), 500)
    run = best({"run": lambda: whole_run(stream, weights)}, REPEATS)["run"]
    yield faster("simulate FairCB, mean of all rounds", run, f"{name}, built once", np.mean(parametrised), 500)
    yield Row(
        "FairCB: most that a marginal is short of the floor",
        f"{short[0]:.0e}",
        name,
        f"{short[1]:.0e}",
        "-",
        "at most 1e-09",
        short[0] <= 1e-9,
    )
    yield Row(
        "FairCB: objective, ours less theirs", f"{gap:+.0e}", name, "0", "-", "at most +1e-06 of 1e+01", gap <= 1e-6
    )


def losses_after(stream: Stream, n_rounds: int) -> Matrix:
    """L: the losses 1 - r of every context and arm so far."""
    losses = np.zeros((N_CONTEXTS, N_ARMS))
    np.add.at(losses, stream.contexts[:n_rounds], 1.0 - stream.reward_table[stream.items[:n_rounds]])
    return losses


def objective(solved: Solved, losses: Matrix) -> float:
    """eta <P, L> + sum P ln P."""
    p = np.maximum(solved.distributions, 1e-300)
    return float((p * (ETA * losses + np.log(p))).sum())


def policy(weights: np.ndarray) -> FairCB:
    return FairCB(
        N_CONTEXTS, N_ARMS, pull_floor=FLOOR, horizon=HORIZON, context_weights=weights, feedback="full", seed=0
    )


def our_step(stream: Stream, weights: np.ndarray, t: int) -> Solved:
    """The update of round t, from where the run stands by then: public door and all."""
    fair = policy(weights)
    simulate(fair, stream.head(t - 1))
    decision = fair.choose(int(stream.contexts[t - 1]))
    start = time.perf_counter()
    fair.update(decision, stream.rewards(t - 1))
    return Solved(fair.distributions, time.perf_counter() - start)


def whole_run(stream: Stream, weights: np.ndarray) -> float:
    fair = policy(weights)
    return seconds(lambda: simulate(fair, stream)) / HORIZON


class CvxpyStep:
    """The same problem for CVXPY, with the losses as a parameter so that it is compiled once."""

    def __init__(self, weights: np.ndarray) -> None:
        import cvxpy as cp

        self._losses = cp.Parameter((N_CONTEXTS, N_ARMS))
        self._p = cp.Variable((N_CONTEXTS, N_ARMS))
        goal = cp.sum(cp.multiply(self._losses, self._p)) - cp.sum(cp.entr(self._p))
        limits = [cp.sum(self._p, axis=1) == 1, weights @ self._p >= FLOOR]
        self._problem: Any = cp.Problem(cp.Minimize(goal), limits)

    def solve(self, losses: Matrix) -> Solved:
        self._losses.value = ETA * losses
        taken = seconds(lambda: self._problem.solve(solver="CLARABEL"))
        return Solved(np.asarray(self._p.value), taken)
