"""A model of rewards: the mean of every context and arm, estimated from a log, and rewards that are plausible given it.

The optimum of estimated rewards is not an estimate of the optimum: noise makes arms look better in one context than in
another, and shrinkage makes them look alike. Rewards drawn given the log (`plausible_totals`) differ as much as true
ones do. Means of contexts are normal around the arm's, with one covariance T for all contexts; T by moments, and given
the log

    m_j ~ N(t + C D (mean_j - t), C),     D = diag(n_ji/sigma_i^2),     C = (T^-1 + D)^-1

Of the rounds' own rewards those that were observed are kept, and rounds in which an arm was not shown pay its m plus
noise; expected rewards are m in every round. The rewards of an arm are measured in their root mean square, so that
neither the currency nor the rewards of other arms matter to what is negligible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.evaluation.log_rows import Rows
from alphafair.jit import kernel, long_kernel
from alphafair.values import Matrix, Vector

COUNTS, SUMS, SQUARES, INVERSES, WORTHS, MISSING, REPEATS = range(
    7
)  # the rows of `FoldCells.table`, and fields of `Cells`
MOST_ARMS = 64  # with more, arms are assumed to be unrelated
CONTEXTS_AT_ONCE = 4096
NEGLIGIBLE = 1e-9  # of the mean square of rewards: the least variance


class Cells(NamedTuple):
    """By context and arm: times shown, sums of rewards r, of r^2, of 1/p and r/p, and decisions without the arm.

    Where a decision shows k arms, in k rows, each row has 1/k of it, and p is k times the propensity of a row. Rewards
    are in `unit`, see `log_rows.reward_unit`; the results of `model_totals` and `robust_totals` are not.
    """

    counts: Matrix
    sums: Matrix
    squares: Matrix
    inverses: Matrix
    worths: Matrix
    missing: Matrix  # decisions in which the arm was not available
    unit: float = 1.0
    repeats: Matrix | float = 0.0  # 1 - 1/k, summed over rows

    @property
    def visits(self) -> Vector:
        """Decisions per context."""
        visits: Vector = (self.counts - self.repeats).sum(axis=1)
        return visits

    @property
    def available(self) -> Matrix:
        """Decisions of a context in which each arm was available."""
        return np.asarray(self.visits[:, None] - self.missing)

    @property
    def per_available(self) -> Matrix:
        """Decisions of a context, divided by those in which each arm was available: 1 where it always was, or never."""
        visits = np.broadcast_to(self.visits[:, None], self.counts.shape)
        return divide(visits, self.available, self.counts * 0.0 + 1.0)


class FoldCells:
    """Cells added up over rows, by fold."""

    def __init__(self, folds: NDArray[np.int64], n_contexts: int, n_arms: int, unit: float) -> None:
        self.folds, self.unit = folds, unit  # the fold of every cluster
        self.table = np.zeros((int(folds.max()) + 1, REPEATS + 1, n_contexts, n_arms))

    def add(self, rows: Rows) -> None:
        add_cells(rows, self.folds, self.table)

    @property
    def sums(self) -> Any:
        return self.table

    def merge(self, later: Any) -> None:
        self.table += later

    @property
    def by_fold(self) -> list[Cells]:
        return [self._cells(fold) for fold in self.table]

    @property
    def together(self) -> Cells:
        """The cells of all folds."""
        return self._cells(np.sum(self.table, axis=0))

    def _cells(self, table: Any) -> Cells:
        return Cells._make([*table[:REPEATS], self.unit, table[REPEATS]])


@long_kernel
def add_cells(rows, folds, table):
    """n, S, the sums of r^2, 1/p and r/p, and the decisions without the arm, of every fold, context and arm."""
    for t in range(rows.contexts.shape[0]):
        context, arm, reward, propensity = rows.contexts[t], rows.arms[t], rows.rewards[t], rows.propensities[t]
        fold, k = folds[rows.clusters[t]], rows.shown[t]
        propensity *= k
        table[fold, REPEATS, context, arm] += 1.0 - 1.0 / k
        table[fold, COUNTS, context, arm] += 1.0
        table[fold, SUMS, context, arm] += reward
        table[fold, SQUARES, context, arm] += reward * reward
        table[fold, INVERSES, context, arm] += 1.0 / propensity
        table[fold, WORTHS, context, arm] += reward / propensity
        if rows.of_sets[t] >= 0:
            for i in range(table.shape[3]):
                table[fold, MISSING, context, i] += 0.0 if rows.sets[rows.of_sets[t], i] else 1.0 / k


class Model(NamedTuple):
    """Mean rewards of contexts and arms, and the sums from which a row can be left out."""

    means: Any  # (n_contexts, n_arms)
    counts: Any  # times shown, (n_contexts, n_arms)
    sums: Any  # of rewards, (n_contexts, n_arms)
    arm_counts: Any
    arm_sums: Any
    shrinkage: float  # k, in rows; infinite: the arm's mean in every context

    @classmethod
    def zero(cls, n_arms: int) -> Model:
        """The model of an estimator without one."""
        cells, arms = np.zeros((1, n_arms)), np.zeros(n_arms)
        return cls(cells, cells, cells, arms, arms, math.inf)


@kernel
def left_out(model, context, arm, reward):
    """The model's mean without one row; 0 for an arm that was shown in no other."""
    n, k, others = model.counts[context, arm] - 1.0, model.shrinkage, model.arm_counts[arm] - 1.0
    if others == 0.0:
        return 0.0
    target = (model.arm_sums[arm] - reward) / others
    if n == 0.0 or k > 1e12:
        return target
    return (model.sums[context, arm] - reward + k * target) / (n + k)


def model_totals(cells: Cells) -> Matrix:
    """The total reward of every arm in each context's decisions, by the model; a context without any has one."""
    return np.asarray(cells.unit * (np.maximum(cells.visits, 1.0)[:, None] * fit(cells).means))


def robust_totals(cells: Cells) -> Matrix:
    """The same, doubly robust, and 0 where noise makes it negative: n_j (m_ji + sum (r - m_ji)/p / n_ji).

    n_j are the context's decisions, n_ji those in which the arm was available.
    """
    means, part = fit(cells).means, cells.per_available
    found = cells.visits[:, None] * means + part * cells.worths - means * (part * cells.inverses)
    return np.asarray(cells.unit * np.maximum(0.0, found))


def fit(cells: Cells) -> Model:
    """m(j, i) = (S_ji + k S_i/n_i) / (n_ji + k), with k = sigma^2/tau^2 from the log itself.

    sigma^2 is the variance of rewards within a context and arm, tau^2 that of the means of contexts within an arm: both
    by the method of moments for random effects (Searle, Casella and McCulloch, Variance Components, 1992). The mean of
    an arm that was never shown is the mean of all rewards.

    >>> counts, sums = np.array([[4.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> cells = Cells(counts, sums, squares=sums, inverses=2 * counts, worths=2 * sums, missing=0 * sums)
    >>> fit(cells).means.round(3).tolist()
    [[0.4, 1.0], [0.4, 1.0]]
    """
    counts, sums = cells.counts, cells.sums
    arm_counts, arm_sums = counts.sum(axis=0), sums.sum(axis=0)
    targets = divide(arm_sums, arm_counts, np.full_like(arm_sums, sums.sum() / max(counts.sum(), 1.0)))
    k = _shrinkage(cells)
    rest = np.broadcast_to(targets, counts.shape)
    means = rest.copy() if math.isinf(k) else divide(sums + k * targets, counts + k, rest)
    return Model(means, counts, sums, arm_counts, arm_sums, k)


def _shrinkage(cells: Cells) -> float:
    """k: 0 where rewards never differ within a cell, infinite where the means of contexts do not differ."""
    counts, sums = cells.counts, cells.sums
    shown, shown_arms = counts > 0.0, counts.sum(axis=0) > 0.0
    n_rows, n_cells, n_arms = float(counts.sum()), int(shown.sum()), int(shown_arms.sum())
    if n_rows <= n_cells or n_cells <= n_arms:  # no cell has two rows, or there is one context
        return math.inf
    arm_counts = counts.sum(axis=0)[shown_arms]
    by_cell = float((sums[shown] ** 2 / counts[shown]).sum())
    by_arm = float((sums.sum(axis=0)[shown_arms] ** 2 / arm_counts).sum())
    within = max(0.0, (float(cells.squares.sum()) - by_cell) / (n_rows - n_cells))
    room = n_rows - float(((counts**2).sum(axis=0)[shown_arms] / arm_counts).sum())
    between = (by_cell - by_arm - (n_cells - n_arms) * within) / room
    return within / between if between > 1e-12 * (within + by_cell / n_rows) else math.inf


def divide(part: Matrix, whole: Matrix, otherwise: Matrix) -> Matrix:
    """part/whole, and `otherwise` where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.array(otherwise), where=whole > 0.0))


def plausible_totals(cells: Cells, n_draws: int, seed: int, *, expected: bool = False) -> Iterator[Matrix]:
    """Draws of the total reward of every arm in each context's rounds, each (n_contexts, n_arms).

    Totals are over all rounds, also those in which an arm was not available. With `expected` they are the expected
    rewards, given the contexts of the rounds.
    """
    size = _sizes(cells)
    counts, sums, squares = cells.counts, cells.sums / size, cells.squares.sum(axis=0) / size**2
    targets = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
    apart = divide(sums, counts, np.tile(targets, (len(counts), 1))) - targets
    noise = _noise(counts, sums, squares)
    precision = _precision(counts, apart, noise)
    generator = np.random.default_rng(seed)
    unseen = np.maximum(0.0, cells.available - counts)
    for _ in range(n_draws):
        means = np.concatenate(
            [
                _drawn(precision, counts[rows] / noise, apart[rows], generator)
                for rows in (
                    slice(first, first + CONTEXTS_AT_ONCE) for first in range(0, len(counts), CONTEXTS_AT_ONCE)
                )
            ]
        )
        if expected:
            paid = cells.visits[:, None] * (targets + means)
        else:
            luck = np.sqrt(unseen * noise) * generator.normal(size=counts.shape)
            paid = cells.per_available * (sums + unseen * (targets + means) + luck)
        yield cells.unit * (size * np.maximum(0.0, paid))


def _drawn(precision: Matrix, seen: Matrix, apart: Matrix, generator: np.random.Generator) -> Matrix:
    """m - t of some contexts: with L L' = T^-1 + D, (L')^-1 (L^-1 D (mean - t) + z) has the mean and the covariance."""
    normal = generator.normal(size=seen.shape)
    if len(precision) > MOST_ARMS:
        spread = 1.0 / (np.diag(precision) + seen)
        return np.asarray(spread * seen * apart + np.sqrt(spread) * normal)
    factor = np.linalg.cholesky(precision + seen[:, :, None] * np.eye(len(precision)))
    half = np.linalg.solve(factor, (seen * apart)[:, :, None]) + normal[:, :, None]
    return np.asarray(np.linalg.solve(factor.transpose(0, 2, 1), half)[:, :, 0])


def _sizes(cells: Cells) -> Vector:
    """The root mean square of every arm's rewards; of all rewards for an arm whose rewards are 0."""
    squares, counts = cells.squares.sum(axis=0), cells.counts.sum(axis=0)
    overall = float(squares.sum()) / max(float(counts.sum()), 1.0) or 1.0
    found = divide(squares, counts, np.zeros_like(counts))
    return np.asarray(np.sqrt(np.where(found > 0.0, found, overall)))


def _noise(counts: Matrix, sums: Matrix, squares: Vector) -> Vector:
    """sigma^2 of every arm: the variance of its rewards within a context."""
    explained = divide(sums**2, counts, np.zeros_like(sums)).sum(axis=0)
    spare = np.maximum((counts - (counts > 0.0)).sum(axis=0), 1.0)
    return np.asarray(np.maximum((squares - explained) / spare, NEGLIGIBLE))


def _precision(counts: Matrix, apart: Matrix, noise: Vector) -> Matrix:
    """T^-1, T from products of deviations, without the noise in the squares, and made positive definite."""
    weighted = counts * apart
    pairs = np.maximum(counts.T @ counts, 1.0)
    found = (weighted.T @ weighted - np.diag((counts * noise).sum(axis=0))) / pairs
    if len(found) > MOST_ARMS:
        found = np.diag(np.diag(found))
    values, vectors = np.linalg.eigh(found)
    values = np.maximum(values, NEGLIGIBLE * max(1.0, float(values.max())))
    return np.asarray((vectors / values) @ vectors.T)
