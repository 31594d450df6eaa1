"""What every arm pays in every context, estimated from a log: cell means, shrunk toward the arm's own mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from alphafair.evaluation.log_scores import Model, Rows, add_cells
from alphafair.values import Matrix, Vector


class Cells(NamedTuple):
    """By context and arm: times shown, sums of rewards r, of r^2, of 1/p and r/p, and rows without the arm.

    Rewards are in `unit`, see `batches.reward_unit`; what `model_totals` and `robust_totals` return is not.
    """

    counts: Matrix
    sums: Matrix
    squares: Matrix
    inverses: Matrix
    worths: Matrix
    missing: Matrix  # rows in which the arm was not available
    unit: float = 1.0

    @classmethod
    def blank(cls, n_contexts: int, n_arms: int, unit: float = 1.0) -> Cells:
        return cls._make([*np.zeros((len(cls._fields) - 1, n_contexts, n_arms)), unit])

    @classmethod
    def together(cls, parts: Sequence[Cells]) -> Cells:
        """The cells of all rows, from those of parts of one log."""
        return cls._make([*np.sum([part[:-1] for part in parts], axis=0), parts[0].unit])

    def add(self, rows: Rows) -> None:
        add_cells(rows, *self[:-1])

    @property
    def visits(self) -> Vector:
        """Rows per context."""
        visits: Vector = self.counts.sum(axis=1)
        return visits

    @property
    def available(self) -> Matrix:
        """Rows of a context in which each arm was available."""
        return np.asarray(self.visits[:, None] - self.missing)

    @property
    def per_available(self) -> Matrix:
        """Rows of a context, over those in which each arm was available: 1 where it always was, or never."""
        return divided(
            np.broadcast_to(self.visits[:, None], self.counts.shape), self.available, self.counts * 0.0 + 1.0
        )


def model_totals(cells: Cells) -> Matrix:
    """What every arm would have paid in each context's rounds, by the model; contexts without any count as one."""
    return np.asarray(cells.unit * (np.maximum(cells.visits, 1.0)[:, None] * fit(cells).means))


def robust_totals(cells: Cells) -> Matrix:
    """The same, doubly robust, and where noise makes it negative 0: n_j (m_ji + sum (r - m_ji)/p / n_ji).

    n_j are the context's rounds, n_ji those in which the arm was available.
    """
    means, part = fit(cells).means, cells.per_available
    found = cells.visits[:, None] * means + part * cells.worths - means * (part * cells.inverses)
    return np.asarray(cells.unit * np.maximum(0.0, found))


def fit(cells: Cells) -> Model:
    """m(j, i) = (S_ji + k S_i/n_i) / (n_ji + k), with k = sigma^2/tau^2 from the log itself.

    sigma^2 is how much rewards differ within a context and arm, tau^2 how much the means of contexts differ within an
    arm: both by the method of moments for random effects (Searle, Casella and McCulloch, Variance Components, 1992). Of
    an arm that was never shown nothing is known, and the mean of all rewards stands in.

    >>> counts, sums = np.array([[4.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> cells = Cells(counts, sums, squares=sums, inverses=2 * counts, worths=2 * sums, missing=0 * sums)
    >>> fit(cells).means.round(3).tolist()
    [[0.4, 1.0], [0.4, 1.0]]
    """
    counts, sums = cells.counts, cells.sums
    arm_counts, arm_sums = counts.sum(axis=0), sums.sum(axis=0)
    targets = divided(arm_sums, arm_counts, np.full_like(arm_sums, sums.sum() / max(counts.sum(), 1.0)))
    k = _shrinkage(cells)
    rest = np.broadcast_to(targets, counts.shape)
    means = rest.copy() if math.isinf(k) else divided(sums + k * targets, counts + k, rest)
    return Model(means, counts, sums, arm_counts, arm_sums, k)


def _shrinkage(cells: Cells) -> float:
    """k: 0 where rewards never differ within a cell, infinite where contexts show no difference."""
    counts, sums = cells.counts, cells.sums
    shown, shown_arms = counts > 0.0, counts.sum(axis=0) > 0.0
    n_rows, n_cells, n_arms = float(counts.sum()), int(shown.sum()), int(shown_arms.sum())
    if n_rows <= n_cells or n_cells <= n_arms:  # nothing was repeated, or there is one context
        return math.inf
    arm_counts = counts.sum(axis=0)[shown_arms]
    by_cell = float((sums[shown] ** 2 / counts[shown]).sum())
    by_arm = float((sums.sum(axis=0)[shown_arms] ** 2 / arm_counts).sum())
    within = max(0.0, (float(cells.squares.sum()) - by_cell) / (n_rows - n_cells))
    room = n_rows - float(((counts**2).sum(axis=0)[shown_arms] / arm_counts).sum())
    between = (by_cell - by_arm - (n_cells - n_arms) * within) / room
    return within / between if between > 1e-12 * (within + by_cell / n_rows) else math.inf


def divided(part: Matrix, whole: Matrix, otherwise: Matrix) -> Matrix:
    """part/whole, and something else where the whole is nothing."""
    return np.asarray(np.divide(part, whole, out=np.array(otherwise), where=whole > 0.0))
