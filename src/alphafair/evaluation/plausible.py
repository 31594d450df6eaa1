"""Rewards that a log may have come from: what the rounds would have paid had every arm been shown, drawn given the log.

The optimum of estimated rewards is not an estimate of the optimum: noise makes arms look better in one context than in
another, and shrinking makes them look alike. Rewards drawn given the log differ as much as the true ones do.

Contexts' means are normal around the arm's, with one covariance T for all contexts; T by moments, and given the log

    m_j ~ N(t + C D (mean_j - t), C),     D = diag(n_ji/sigma_i^2),     C = (T^-1 + D)^-1

Of the rounds' own rewards what was seen stays, and rounds in which an arm was not shown pay its m plus noise; expected
rewards are m in every round. The rewards of an arm are measured in
their root mean square, so that what is negligible does not depend on the currency or on what other arms pay.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alphafair.evaluation.model import Cells, divided
from alphafair.values import Matrix, Vector

MOST_ARMS = 64  # of more, arms are taken as unrelated
ROWS = 4096  # contexts at once
NEGLIGIBLE = 1e-9  # of the mean square of rewards: the least variance


def plausible_totals(cells: Cells, n_draws: int, seed: int, *, expected: bool = False) -> Iterator[Matrix]:
    """What every arm would have paid in each context's rounds, so many times, each (n_contexts, n_arms).

    In all of them, also where it was not available: there as in the others.

    With `expected`, what it would have paid on average, had the same contexts come again and again.
    """
    size = _sizes(cells)
    counts, sums, squares = cells.counts, cells.sums / size, cells.squares.sum(axis=0) / size**2
    targets = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
    apart = divided(sums, counts, np.tile(targets, (len(counts), 1))) - targets
    noise = _noise(counts, sums, squares)
    precision = _precision(counts, apart, noise)
    generator = np.random.default_rng(seed)
    unseen = cells.available - counts
    for _ in range(n_draws):
        means = np.concatenate(
            [
                _drawn(precision, counts[rows] / noise, apart[rows], generator)
                for rows in (slice(first, first + ROWS) for first in range(0, len(counts), ROWS))
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
    """The root mean square of every arm's rewards; of all rewards for an arm that paid nothing."""
    squares, counts = cells.squares.sum(axis=0), cells.counts.sum(axis=0)
    overall = float(squares.sum()) / max(float(counts.sum()), 1.0) or 1.0
    found = divided(squares, counts, np.zeros_like(counts))
    return np.asarray(np.sqrt(np.where(found > 0.0, found, overall)))


def _noise(counts: Matrix, sums: Matrix, squares: Vector) -> Vector:
    """sigma^2 of every arm: how much its rewards differ within a context."""
    explained = divided(sums**2, counts, np.zeros_like(sums)).sum(axis=0)
    spare = np.maximum((counts - (counts > 0.0)).sum(axis=0), 1.0)
    return np.asarray(np.maximum((squares - explained) / spare, NEGLIGIBLE))


def _precision(counts: Matrix, apart: Matrix, noise: Vector) -> Matrix:
    """T^-1, T from products of deviations, less what noise adds to squares; nothing negative is left in it."""
    weighted = counts * apart
    pairs = np.maximum(counts.T @ counts, 1.0)
    found = (weighted.T @ weighted - np.diag((counts * noise).sum(axis=0))) / pairs
    if len(found) > MOST_ARMS:
        found = np.diag(np.diag(found))
    values, vectors = np.linalg.eigh(found)
    values = np.maximum(values, NEGLIGIBLE * max(1.0, float(values.max())))
    return np.asarray((vectors / values) @ vectors.T)
