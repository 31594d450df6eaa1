"""The slow oracle of the second side: formulas as plainly as Python allows, and the optimum by a second solver.

Nothing here is shared with the package. R accounts of arms or groups with entitlements s, U accounts of contexts, V_ji
the sum of arm i's rewards in context j, B_j = max_i V_ji, q weights of contexts that sum to 1, theta their part.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np


def shares(rewards: Any, totals: Any) -> list[float]:
    return [earned / max(row) if max(row) > 0 else 1.0 for earned, row in zip(rewards, totals, strict=True)]


def share_at(values: Any, rounds: Any, part: float) -> float:
    so_far = 0.0
    for share, count in sorted(zip(values, rounds, strict=True)):
        so_far += count
        if so_far >= part * sum(rounds) * (1 - 1e-12):
            return float(share)
    raise AssertionError


def welfare(accounts: Any, alpha: float, s: Any = None) -> float:
    s = [1.0] * len(accounts) if s is None else s
    levels = [account / each for account, each in zip(accounts, s, strict=True)]
    if alpha == math.inf:
        return float(min(levels))
    if alpha == 1.0:
        return math.exp(sum(each * math.log(y) for each, y in zip(s, levels, strict=True)) / sum(s))
    mean = sum(each * y ** (1 - alpha) for each, y in zip(s, levels, strict=True)) / sum(s)
    return float(mean ** (1 / (1 - alpha)))


def joint(accounts: Any, of_contexts: Any, alpha: float, theta: float, q: Any, s: Any = None) -> float:
    logs = sum(part * math.log(u) for part, u in zip(q, of_contexts, strict=True)) / sum(q)
    return float(welfare(accounts, alpha, s) ** (1 - theta) * math.exp(theta * logs))


def promised_bound(totals: Any, w: Any, first: Any, share: float) -> float:
    """A = sum w a + sum_j min over mu of [max_i V_ji (w_i + mu) - share mu B_j], trying every crossing of two lines."""
    found = sum(each * a for each, a in zip(w, first, strict=True))
    for row in totals:
        lines = [(v * each, v) for v, each in zip(row, w, strict=True)]
        tried = [0.0]
        for (a, b), (c, d) in itertools.combinations(lines, 2):
            if b != d and (c - a) / (b - d) > 0:
                tried.append((c - a) / (b - d))
        found += min(max(a + b * mu for a, b in lines) - share * mu * max(row) for mu in tried)
    return float(found)


def joint_bound(totals: Any, accounts: Any, of_contexts: Any, alpha: float, theta: float, q: Any) -> float:
    """A = sum_k p_k + sum_j max_i V_ji (p_i + p_j), for first accounts of 1."""
    slopes = [account**-alpha for account in accounts]
    money = sum(slope * account for slope, account in zip(slopes, accounts, strict=True))
    p = [(1 - theta) * slope / money for slope in slopes]
    of = [theta * part / sum(q) / u for part, u in zip(q, of_contexts, strict=True)]
    best = sum(
        max(v * (each + own) for v, each in zip(row, p, strict=True)) for row, own in zip(totals, of, strict=True)
    )
    return float(sum(p) + sum(of) + best)


def optimum(
    totals: Any, alpha: float, *, share: float = 0.0, theta: float = 0.0, q: Any = None, of: Any, s: Any, floor: float
) -> tuple[float, Any]:
    """The welfare, or W_2, of the best policy that Clarabel finds, and the policy."""
    import cvxpy as cp

    totals, of, s = np.asarray(totals, dtype=float), np.asarray(of), np.asarray(s, dtype=float)
    unit = max(1.0, float(totals.max()))
    x = cp.Variable(totals.shape)
    earned = cp.multiply(totals / unit, x)
    of_arms, of_contexts = cp.sum(earned, axis=0), cp.sum(earned, axis=1)
    y = cp.hstack([(1 / unit + cp.sum(of_arms[np.flatnonzero(of == g)])) / s[g] for g in range(len(s))])
    part = s / s.sum()
    if alpha == math.inf:
        log_welfare, plain = cp.log(cp.min(y)), cp.min(y)
    elif alpha == 1.0:
        log_welfare = plain = part @ cp.log(y)
    elif alpha == 0.0:
        log_welfare, plain = cp.log(part @ y), part @ y
    else:
        plain = part @ cp.power(y, 1 - alpha) / (1 - alpha)
        log_welfare = cp.log(cp.pnorm(cp.multiply(y, part ** (1 / (1 - alpha))), 1 - alpha))
    rules = [x >= floor, cp.sum(x, axis=1) == 1, of_contexts >= share * totals.max(axis=1) / unit]
    objective = plain
    if theta > 0.0:
        weights = np.asarray(q) / np.sum(q)
        objective = (1 - theta) * log_welfare + theta * weights @ cp.log(1 / unit + of_contexts)
    task = cp.Problem(cp.Maximize(objective), rules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task.solve(solver=cp.CLARABEL)
    inside = np.clip(x.value, floor, 1.0)
    inside /= inside.sum(axis=1, keepdims=True)
    accounts = 1 + np.bincount(of, (totals * inside).sum(axis=0), len(s))
    paid = 1 + (totals * inside).sum(axis=1)
    reached = joint(accounts, paid, alpha, theta, q, s) if theta > 0.0 else welfare(accounts, alpha, s)
    return reached, inside
