"""The best fixed policy for the rounds of a log, also where not all arms were always available.

The best fixed policy has a distribution for every situation, which is a context with a set of available arms. Its
rewards depend only on how often it shows each arm in each context, if the reward of an arm does not depend on which
others are available. One table shows arms as often, up to any precision: weights u per context and arm, renormalized
over the set S of available arms, u_i / sum_{k in S} u_k. They maximize the concave likelihood

    sum_i E_i log u_i - sum_S n_S log sum_{k in S} u_k,     where arm i is expected E_i times

(Luce, Individual Choice Behavior, 1959), found arm by arm with Newton's steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.evaluation.log_rows import (
    Advance,
    AnyLog,
    Rows,
    add_up,
    check_log,
    cluster_count,
    folds_of,
    has_available,
    reward_unit,
    scatter,
    silent,
)
from alphafair.evaluation.reward_model import Cells, FoldCells, divide, model_totals
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.offline import offline_optimum
from alphafair.offline.reduction import MOST_REWARD
from alphafair.values import Indices, Matrix, Vector

MOST_CELLS = 1 << 20  # situations times arms: with more, a sample of rounds is counted
TOLERANCE = 1e-6  # of an optimum, relative: far below the precision of a log
SWEEPS = 60
STEP = 3.0  # of a logarithm at once
LEAST_LOG = -600.0
NEAR = 1e-9  # as a fraction of a context's rounds


# The first pass over a log


class Survey(NamedTuple):
    """The counts and sums of a log from which policies and the model of rewards are made."""

    halves: list[Cells]  # by fold of the clusters
    cells: Cells
    situations: Situations | None  # None where every arm was always available
    shown: Indices | None = None  # the most arms that a decision of each context shows; None where all show one


def survey(log: AnyLog, advance: Advance = silent, executor: Executor | None = None) -> Survey:
    """One pass over a log: its cells, in all and by half, and its situations."""
    cells, *counts = add_up(log, _survey_sums, advance, executor)
    situations = Situations.of(counts[0].found, log.n_contexts, log.n_arms) if counts else None
    return Survey(cells.by_fold, cells.together, situations, log.most_shown if (log.most_shown > 1).any() else None)


def _survey_sums(log: AnyLog) -> list[Any]:
    cells = FoldCells(folds_of(cluster_count(log)), log.n_contexts, log.n_arms, reward_unit(log))
    return [cells, SituationCounts(log.n_rounds, log.n_arms)] if has_available(log) else [cells]


class SituationCounts:
    """The number of rows of every situation; of a sample of rows where there are too many situations."""

    def __init__(self, n_rounds: int, n_arms: int) -> None:
        self._most = max(1, MOST_CELLS // n_arms)
        self._rate = None  # of the sample; None where no sample can be needed
        if n_rounds > self._most:
            self._rate = np.uint64(int(2.0**64 * min(1.0, self._most / n_rounds) * (1.0 - 2.0**-50)))
        self._every = np.ones((1, n_arms), dtype=np.bool_)
        self._counts: dict[tuple[int, bytes], int] | None = {}  # None after there were too many
        self._sample: dict[tuple[int, bytes], int] = {}

    @property
    def found(self) -> dict[tuple[int, bytes], int]:
        return self._sample if self._counts is None else self._counts

    def add(self, rows: Rows) -> None:
        packed = np.packbits(np.concatenate([rows.sets, self._every]), axis=1)  # the last is for -1
        pairs = rows.contexts.astype(np.int64) * len(packed) + rows.of_sets % len(packed)
        if self._counts is not None:
            _count(self._counts, pairs, packed)
        if self._rate is not None:
            numbers = np.arange(rows.first, rows.first + len(pairs))
            _count(self._sample, pairs[scatter(numbers) < self._rate], packed)
        self._limit()

    @property
    def sums(self) -> Any:
        return self._counts, self._sample

    def merge(self, later: Any) -> None:
        counts, sample = later
        self._counts = None if self._counts is None or counts is None else self._counts
        for own, other in ((self._counts, counts), (self._sample, sample)):
            if own is not None and other is not None:
                for key, count in other.items():
                    own[key] = own.get(key, 0) + count
        self._limit()

    def _limit(self) -> None:
        if self._counts is not None and len(self._counts) > self._most:
            self._counts = None


def _count(found: dict[tuple[int, bytes], int], pairs: NDArray[np.int64], packed: NDArray[np.uint8]) -> None:
    """Add the number of rows of every pair of a context and a set."""
    for pair, count in zip(*(each.tolist() for each in np.unique(pairs, return_counts=True)), strict=True):
        key = pair // len(packed), packed[pair % len(packed)].tobytes()
        found[key] = found.get(key, 0) + count


class Situations(NamedTuple):
    """Every context with every set of arms that were available in it, and the fraction of its rounds with that set."""

    contexts: NDArray[np.int64]
    sets: NDArray[np.bool_]
    parts: Vector
    n_contexts: int

    @classmethod
    def of(cls, counts: dict[tuple[int, bytes], int], n_contexts: int, n_arms: int) -> Situations:
        """From the number of rows of every situation; a context without rows has every arm available."""
        with_rows = {context for context, _ in counts}
        every = np.packbits(np.ones(n_arms, dtype=np.bool_)).tobytes()
        counts = counts | {(context, every): 1 for context in range(n_contexts) if context not in with_rows}
        counts = dict(sorted(counts.items()))
        contexts = np.array([context for context, _ in counts], dtype=np.int64)
        packed = np.frombuffer(b"".join(each for _, each in counts), dtype=np.uint8).reshape(len(counts), -1)
        sets = np.unpackbits(packed, axis=1, count=n_arms).astype(np.bool_)
        numbers = np.array(list(counts.values()), dtype=np.float64)
        parts = numbers / np.bincount(contexts, numbers, minlength=n_contexts)[contexts]
        return cls(contexts, sets, parts, n_contexts)

    def totals(self, totals: Matrix) -> Matrix:
        """The rewards of arms in every situation, from those in each context with every arm always available."""
        return np.asarray(np.where(self.sets, self.parts[:, None] * totals[self.contexts], 0.0))

    def by_context(self, values: Matrix) -> Matrix:
        """Sums over the situations of every context."""
        found = np.zeros((self.n_contexts, values.shape[1]))
        np.add.at(found, self.contexts, values)
        return found

    @property
    def available(self) -> Matrix:
        """The fraction of a context's rounds in which each arm was available."""
        return self.by_context(self.parts[:, None] * self.sets)

    def shown(self, distributions: Matrix) -> Matrix:
        """The fraction of each context's rounds in which each arm is shown."""
        return self.by_context(self.parts[:, None] * distributions)

    def k(self, shown: Indices) -> NDArray[np.int64]:
        """The number of arms that every situation shows, from the most of each context."""
        return np.asarray(np.minimum(shown[self.contexts], self.sets.sum(axis=1)), dtype=np.int64)

    def table(self, shown: Matrix, most: Indices | None = None) -> Matrix:
        """The table (n_contexts, n_arms) that shows arms as often as this, renormalized over what is available.

        Where decisions show up to `most` arms, no arm has more than 1/k of them, before or after.
        """
        rates = divide(shown, self.available, np.zeros_like(shown))
        logs = np.where(rates > 0.0, np.log(np.maximum(rates, 1e-12)), np.where(self.available > 0.0, -28.0, -np.inf))
        for _ in range(SWEEPS):
            off = 0.0
            for arm in range(shown.shape[1]):
                off = max(off, self._fit(arm, logs, shown, most))
            top = logs.max(axis=1, keepdims=True)
            logs = np.where(np.isinf(logs), logs, np.maximum(logs - top, LEAST_LOG))
            if off <= NEAR:
                break
        single = np.bincount(self.contexts, minlength=self.n_contexts) == 1
        weights = np.where(single[:, None], shown, np.exp(logs))
        if most is not None:
            return capped_shares(weights, most)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def _fit(self, arm: int, logs: Matrix, shown: Matrix, most: Indices | None) -> float:
        """One Newton step for the weight of an arm in all contexts, in place; returns the error before it."""
        inside = np.flatnonzero(self.sets[:, arm])
        contexts, parts = self.contexts[inside], self.parts[inside]
        weights = np.where(self.sets[inside], np.exp(logs[contexts]), 0.0)
        if most is None:
            p = weights[:, arm] / weights.sum(axis=1)
        else:
            p = capped_shares(weights, self.k(most)[inside])[:, arm]
        found, slope = (np.bincount(contexts, parts * each, minlength=self.n_contexts) for each in (p, p * (1.0 - p)))
        apart = shown[:, arm] - found
        logs[:, arm] += apart / np.maximum(np.maximum(slope, np.abs(apart) / STEP), 1e-300)
        return float(np.abs(apart).max())


def capped_shares(weights: Matrix, k: NDArray[Any]) -> Matrix:
    """Shares in proportion to weights, none above 1/k; those that would be are fixed there, and the rest again.

    >>> capped_shares(np.array([[6.0, 3.0, 1.0], [6.0, 3.0, 1.0]]), np.array([1, 2])).round(3).tolist()
    [[0.6, 0.3, 0.1], [0.5, 0.375, 0.125]]
    """
    cap = np.broadcast_to(1.0 / k[:, None], weights.shape)
    fixed = np.zeros(weights.shape, dtype=np.bool_)
    while True:
        free = np.where(fixed, 0.0, weights)
        left = 1.0 - np.where(fixed, cap, 0.0).sum(axis=1, keepdims=True)
        total = free.sum(axis=1, keepdims=True)
        found = np.where(fixed, cap, free * divide(np.maximum(left, 0.0), total, np.zeros_like(total)))
        rising = ~fixed & (found > cap)
        if not rising.any():
            return np.asarray(found)
        fixed |= rising


# Policies


def fair_policy(log: AnyLog, alpha: float = 0.9, *, groups: GroupsLike | None = None) -> Matrix:
    """The best fixed policy for a log's rounds, by the model of its rewards: (n_contexts, n_arms).

    Where not all arms are available, renormalize it over those that are. Where decisions show several arms, entries are
    the shares of a slot, none above 1/k: k times an entry is the probability of the arm to be shown.
    """
    check_log(log)
    resolved, found = arm_groups(groups, log.n_arms), survey(log)
    totals, alpha = model_totals(found.cells), validate.alpha(alpha)
    return best_policy(totals, alpha, resolved, found.situations, found.shown).distributions()


def logged_policy(log: AnyLog) -> Matrix:
    """The frequency of every arm in every context of the log: (n_contexts, n_arms). Contexts without rows are uniform.

    Where not all arms were always available, it is the table that shows every arm as often as the log did once it is
    renormalized over the available ones.
    """
    check_log(log)
    return logged_distributions(survey(log))


def logged_distributions(found: Survey) -> Matrix:
    """`logged_policy` of the log that was surveyed."""
    counts, situations = found.cells.counts, found.situations
    visits = counts.sum(axis=1, keepdims=True)
    parts = divide(counts, visits, np.full_like(counts, 1.0 / counts.shape[1]))
    return parts if situations is None else situations.table(parts, found.shown)


class Best(NamedTuple):
    """The best fixed policy for some totals, and its accounts.

    Where not all arms were always available, `shown` is how often it shows each arm of a context while that is
    available: not a distribution, to be scored with renormalize=False.
    """

    shown: Matrix
    accounts: Vector
    distributions: Callable[[], Matrix]  # the policy as a table, to be renormalized over the available arms


def best_policy(
    totals: Matrix,
    alpha: float,
    groups: ArmGroups,
    situations: Situations | None,
    most_shown: Indices | None = None,
    context_share: float = 0.0,
) -> Best:
    """Solve for totals by decision, with slates of up to `most_shown` arms in each context.

    A promise to contexts needs one arm per decision, of arms that were always available.

    Totals too large for `offline_optimum` are scaled down, and the initial 1 with them.
    """
    part = min(1.0, 0.5 * MOST_REWARD / max(float(totals.max()), 1.0))
    part = math.ldexp(1.0, math.frexp(part)[1] - 1)
    settings: dict[str, Any] = {"tolerance": TOLERANCE, "initial": part, "groups": groups}
    if most_shown is not None:
        settings["k"] = most_shown if situations is None else situations.k(most_shown)
    if situations is None:
        found = offline_optimum(part * totals, alpha, **settings, context_share=context_share)
        slots = found.distributions if most_shown is None else _of_a_slot(found.distributions)
        return Best(slots, found.accounts / part, lambda: slots)
    found = offline_optimum(situations.totals(part * totals), alpha, **settings, present=situations.sets)
    shown = situations.shown(found.distributions if most_shown is None else _of_a_slot(found.distributions))
    rates = divide(shown, situations.available, np.zeros_like(shown))
    return Best(
        rates, found.accounts / part, lambda: raise_to_floors(situations.table(shown, most_shown), groups, most_shown)
    )


def _of_a_slot(inclusion: Matrix) -> Matrix:
    """The probabilities of arms to be in a slot, from those to be shown."""
    return np.asarray(inclusion / inclusion.sum(axis=1, keepdims=True))


def raise_to_floors(table: Matrix, groups: ArmGroups, most_shown: Indices | None = None) -> Matrix:
    """A table that keeps the floors; renormalizing over fewer arms only raises the probabilities of arms."""
    base = np.full_like(table, groups.arm_floor)
    if most_shown is not None:
        base /= most_shown[:, None]
    if groups.floored:
        inside = groups.of_arms == np.arange(groups.n_groups)[:, None]  # (n_groups, n_arms)
        whole = (table @ inside.T)[:, groups.of_arms]
        even = np.broadcast_to(1.0 / inside.sum(axis=1)[groups.of_arms], table.shape)
        base = groups.group_floors[groups.of_arms] * divide(table, whole, even)
    above = np.maximum(table - base, 0.0)
    free = np.broadcast_to(above.sum(axis=1, keepdims=True), table.shape)
    room = 1.0 - base.sum(axis=1, keepdims=True)
    return np.asarray(base + room * divide(above, free, np.full_like(table, 1.0 / table.shape[1])))
