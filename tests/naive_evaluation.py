"""Estimators from a log as their formulas stand, in plain Python: the oracle of `alphafair.evaluation`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def cell_sums(log: Any) -> tuple[dict[Any, int], dict[Any, float], dict[int, int], dict[int, float]]:
    counts: dict[Any, int] = {}
    sums: dict[Any, float] = {}
    arm_counts: dict[int, int] = {}
    arm_sums: dict[int, float] = {}
    for c, a, r in zip(log.contexts.tolist(), log.arms.tolist(), log.rewards.tolist(), strict=True):
        counts[c, a] = counts.get((c, a), 0) + 1
        sums[c, a] = sums.get((c, a), 0.0) + r
        arm_counts[a] = arm_counts.get(a, 0) + 1
        arm_sums[a] = arm_sums.get(a, 0.0) + r
    return counts, sums, arm_counts, arm_sums


def shrinkage(log: Any) -> float:
    """sigma^2/tau^2 of one-way random effects, cells within arms, from residuals and deviations one by one."""
    counts, sums, arm_counts, arm_sums = cell_sums(log)
    if log.n_rounds <= len(counts) or len(counts) <= len(arm_counts):
        return math.inf
    within = 0.0
    for c, a, r in zip(log.contexts.tolist(), log.arms.tolist(), log.rewards.tolist(), strict=True):
        within += (r - sums[c, a] / counts[c, a]) ** 2
    within /= log.n_rounds - len(counts)
    between = 0.0
    for (c, a), n in counts.items():
        between += n * (sums[c, a] / n - arm_sums[a] / arm_counts[a]) ** 2
    room = log.n_rounds - sum(n * n / arm_counts[a] for (_, a), n in counts.items())
    tau = (between - (len(counts) - len(arm_counts)) * within) / room
    return within / tau if tau > 1e-10 else math.inf


def restricted(log: Any, policy: Sequence[Sequence[float]]) -> list[list[float]]:
    """The policy's distribution in every round: over the arms that were available, alike if it shows none of them."""
    table = None if log.available is None else log.available.table().tolist()
    found = []
    for t, context in enumerate(log.contexts.tolist()):
        there = [True] * log.n_arms if table is None else table[t]
        row = [x if here else 0.0 for x, here in zip(policy[context], there, strict=True)]
        if math.fsum(row) == 0.0:
            row = [1.0 if here else 0.0 for here in there]
        found.append([x / math.fsum(row) for x in row])
    return found


def accounts(log: Any, policy: Sequence[Sequence[float]], estimator: str) -> list[float]:
    """R of every arm, the initial 1 included; the model is fitted anew, without the row, for every single row."""
    n_arms, limit = log.n_arms, math.sqrt(log.n_rounds)
    rows = list(
        zip(log.contexts.tolist(), log.arms.tolist(), log.rewards.tolist(), log.propensities.tolist(), strict=True)
    )
    counts, sums, arm_counts, arm_sums = cell_sums(log)
    k = shrinkage(log)
    overall = math.fsum(log.rewards.tolist()) / log.n_rounds

    def mean(c: int, i: int, out: tuple[int, float] | None) -> float:
        n, s, na, sa = counts.get((c, i), 0), sums.get((c, i), 0.0), arm_counts.get(i, 0), arm_sums.get(i, 0.0)
        if out is not None and out[0] == i:
            n, s, na, sa = n - 1, s - out[1], na - 1, sa - out[1]
            if na == 0:
                return 0.0
        target = sa / na if na else overall
        return target if math.isinf(k) or n + k == 0 else (s + k * target) / (n + k)

    total, weights = [[] for _ in range(n_arms)], []
    for (c, a, r, p), pi in zip(rows, restricted(log, policy), strict=True):
        w = pi[a] / p
        weights.append(w)
        for i in range(n_arms):
            m = mean(c, i, (a, r)) if estimator in ("dr", "switch") else 0.0
            v = w
            if estimator == "clipped":
                v = min(w, limit)
            if estimator == "switch" and w > limit:
                v = 0.0
            total[i].append(pi[i] * m + (v * (r - m) if i == a else 0.0))
    scale = log.n_rounds / math.fsum(weights) if estimator == "snips" else 1.0
    return [max(1.0, 1.0 + scale * math.fsum(each)) for each in total]


def rewarded_rounds(log: Any, policy: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Per arm, Kish's count of weights of rows that paid, and the same cut down for rewards that are uneven."""
    rows = list(
        zip(log.contexts.tolist(), log.arms.tolist(), log.rewards.tolist(), log.propensities.tolist(), strict=True)
    )
    kish = [[math.fsum(x) ** 2 / math.fsum(y * y for y in x) for x in arms] for arms in _paid_weights(rows, policy)]
    deviations, spare = [], 0
    for i in range(log.n_arms):
        logs = [math.log(r) for _, a, r, _ in rows if a == i and r > 0.0]
        deviations += [(x - math.fsum(logs) / len(logs)) ** 2 for x in logs]
        spare += len(logs) - 1
    paid, seen = kish
    c = max(1.0, min(math.exp(math.fsum(deviations) / spare), 2.0 * math.fsum(paid) / math.fsum(seen)))
    return paid, [min(s, n / c, 10.0 / 3.0 * n / c / c) for n, s in zip(paid, seen, strict=True)]


def _paid_weights(rows: Any, policy: Sequence[Sequence[float]]) -> tuple[list[list[float]], list[list[float]]]:
    """w, and w r, of the rows of every arm that paid anything."""
    arms = range(len(policy[0]))
    weights = [[policy[c][a] / p for c, a, r, p in rows if a == i and r > 0.0] for i in arms]
    worths = [[policy[c][a] / p * r for c, a, r, p in rows if a == i and r > 0.0] for i in arms]
    return weights, worths
