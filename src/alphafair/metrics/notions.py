"""What published notions of fairness ask for: envy, proportional shares, promised pulls and rates, merit."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.metrics.accounts import MOST_ACCOUNT, Floats

ROUNDING = 1e-9  # of a share times a number of rounds, and of a mean
ROUNDS_REPAIR = "Pass the rounds of one run, in order."


def envy(values: ArrayLike) -> float:
    """max over i and k of (1 + V_ik)/(1 + V_ii) - 1: how much better off some arm would be in the rounds of another.

    V_ik = sum_t p_tk r_ti is what arm i would have earned with the probabilities of arm k, and V_ii what it earned
    with its own; see `exchange_values`. 0: nobody envies anybody, as at the optimum of alpha = 1.

    >>> envy([[4.0, 9.0], [1.0, 3.0]])
    1.0
    """
    v = _exchange(values)
    return float(((1.0 + v) / (1.0 + np.diag(v))[:, None]).max()) - 1.0


def proportional_share(values: ArrayLike) -> float:
    """min over i of (1 + V_ii)/(1 + sum_k V_ik/n): what the worst-off arm has of an n-th of all that it could earn.

    At least 1: every arm is at least as well off as under uniform play.

    >>> proportional_share([[4.0, 8.0], [1.0, 3.0]])
    0.7142857142857143
    """
    v = _exchange(values)
    return float(((1.0 + np.diag(v)) / (1.0 + v.mean(axis=1))).min())


def exchange_values(probabilities: ArrayLike, rewards: ArrayLike) -> Floats:
    """V_ik = sum_t p_tk r_ti, what arm i would have earned with the probabilities of arm k; both (n_rounds, n_arms).

    >>> exchange_values([[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [1.0, 2.0]]).tolist()
    [[1.5, 0.5], [1.0, 1.0]]
    """
    p = _rows("probabilities", probabilities, low=0.0, high=1.0)
    r = _rows("rewards", rewards, low=-MOST_ACCOUNT, high=MOST_ACCOUNT)
    if p.shape != r.shape:
        raise InvalidArgument("rewards", f"of shape {p.shape}, as probabilities", f"shape {r.shape}", ROUNDS_REPAIR)
    return np.asarray(r.T @ p)


def pull_lapse(arms: ArrayLike, shares: ArrayLike) -> float:
    """max over t and i of floor(v_i t) - N_i(t), in pulls: how far some arm ever was behind a share of the pulls.

    `arms` are the arms played, in order, `shares` one number per arm. At most 0: the shares were kept at every time.

    >>> pull_lapse([0, 0, 0, 0, 1], [0.25, 0.5])
    2.0
    """
    v = _per_arm("shares", shares, high=1.0)
    played = validate.indices("arms", arms, len(v))
    lapse, rounds = -math.inf, np.arange(1.0, len(played) + 1.0)
    for arm, share in enumerate(v):
        lapse = max(lapse, float((np.floor(share * rounds + ROUNDING) - np.cumsum(played == arm)).max()))
    return lapse


def rate_shortfall(rewards: ArrayLike, rates: ArrayLike, n_rounds: int) -> float:
    """max over i of (1 - S_i/(lambda_i T))+: the part of a promised reward that some arm did not get.

    `rewards` are S, what every arm earned, and `rates` lambda, what it was promised per round.

    >>> rate_shortfall([30.0, 9.0], [0.25, 0.125], 100)
    0.28
    """
    promised = _per_arm("rates", rates, high=MOST_ACCOUNT) * validate.integer("n_rounds", n_rounds, low=1)
    earned = validate.floats("rewards", f"{len(promised)} finite numbers", rewards, ROUNDS_REPAIR)
    if earned.shape != promised.shape or not np.isfinite(earned).all():
        raise InvalidArgument("rewards", f"{len(promised)} finite numbers, one per arm", earned, ROUNDS_REPAIR)
    owed = promised > 0.0
    return float(np.maximum(0.0, 1.0 - earned[owed] / promised[owed]).max(initial=0.0))


def longest_wait(arms: ArrayLike, n_arms: int) -> int:
    """The most rounds in a row in which some arm is not played; the whole run if an arm is never played.

    >>> longest_wait([0, 1, 1, 0, 1], n_arms=2), longest_wait([0, 0, 0], n_arms=2)
    (2, 3)
    """
    n_arms = validate.integer("n_arms", n_arms, low=1)
    played = validate.indices("arms", arms, n_arms)
    ends = (np.concatenate([[-1], np.flatnonzero(played == arm), [len(played)]]) for arm in range(n_arms))
    return max(int(np.diff(end).max()) - 1 for end in ends)


def merit_distance(probabilities: ArrayLike, merits: ArrayLike) -> float:
    """mean over t of (1/2) sum_i abs(p_ti - f_ti/sum_k f_tk): how far exposure is from being in proportion to merit.

    `merits` are f > 0 of every arm: in every round, (n_rounds, n_arms), or the same in all, (n_arms).

    >>> merit_distance([[0.5, 0.5], [0.75, 0.25]], [3.0, 1.0])
    0.125
    """
    p = _rows("probabilities", probabilities, low=0.0, high=1.0)
    f = _as_rows("merits", merits, p, low=1.0 / MOST_ACCOUNT)
    return float(0.5 * np.abs(p - f / f.sum(axis=1, keepdims=True)).sum(axis=1).mean())


def favoring(probabilities: ArrayLike, means: ArrayLike) -> float:
    """mean over t of max (p_ti - p_tk)+ over pairs with mu_ti < mu_tk: how much a worse arm is favored over a better.

    `means` are mu of every arm: in every round, (n_rounds, n_arms), or the same in all, (n_arms). Differences of up to
    1e-9 are none.

    >>> favoring([[0.75, 0.25], [0.25, 0.75]], [0.1, 0.2])
    0.25
    """
    p = _rows("probabilities", probabilities, low=0.0, high=1.0)
    mu = _as_rows("means", means, p, low=-MOST_ACCOUNT)
    most = np.zeros(len(p))
    for i in range(p.shape[1]):
        better = mu > mu[:, i : i + 1] + ROUNDING
        most = np.maximum(most, np.where(better, p[:, i : i + 1] - p, 0.0).max(axis=1))
    return float(most.mean())


def _exchange(values: ArrayLike) -> Floats:
    repair = "Pass exchange_values(probabilities, rewards)."
    allowed = f"a square of numbers in [0, {MOST_ACCOUNT:g}]"
    v = validate.floats("values", allowed, values, repair)
    if v.ndim != 2 or v.shape[0] != v.shape[1] or not v.size or not ((v >= 0.0) & (v <= MOST_ACCOUNT)).all():
        raise InvalidArgument("values", allowed, v, repair)
    return v


def _rows(argument: str, values: ArrayLike, *, low: float, high: float) -> Floats:
    allowed = f"numbers in [{low:g}, {high:g}], one row per round and one column per arm"
    rows = validate.floats(argument, allowed, values, ROUNDS_REPAIR)
    if rows.ndim != 2 or not rows.size or not ((rows >= low) & (rows <= high)).all():
        raise InvalidArgument(argument, allowed, rows, ROUNDS_REPAIR)
    return rows


def _as_rows(argument: str, values: ArrayLike, like: Floats, *, low: float) -> Floats:
    """Return one row per round, of one row per round or one for all."""
    rows = _rows(argument, np.atleast_2d(np.asarray(values)), low=low, high=MOST_ACCOUNT)
    if rows.shape not in (like.shape, (1, like.shape[1])):
        allowed = f"one row of {like.shape[1]} numbers, or one per round ({len(like)})"
        raise InvalidArgument(argument, allowed, f"shape {rows.shape}", ROUNDS_REPAIR)
    return np.broadcast_to(rows, like.shape)


def _per_arm(argument: str, values: ArrayLike, *, high: float) -> Floats:
    allowed = f"numbers in [0, {high:g}], one per arm"
    found = validate.floats(argument, allowed, values, "Pass a list with one number per arm.")
    if found.ndim != 1 or not found.size or not ((found >= 0.0) & (found <= high)).all():
        raise InvalidArgument(argument, allowed, found, "Pass a list with one number per arm.")
    return found
