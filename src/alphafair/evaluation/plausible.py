"""Rewards that a log may have come from: what the rounds would have paid had every arm been shown, drawn given the log.

The optimum of estimated rewards is not an estimate of the optimum: noise makes arms look better in one context than in
another, and shrinking makes them look alike. Rewards drawn given the log differ as much as the true ones do.

Contexts' means are normal around the arm's, with one covariance T for all contexts; T by moments, and given the log

    m_j ~ N(t + C D (mean_j - t), C),     D = diag(n_ji/sigma_i^2),     C = (T^-1 + D)^-1

What was seen stays; rounds in which an arm was not shown pay its m plus noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alphafair.evaluation.model import Cells, divided
from alphafair.types import Matrix, Vector

MOST_ARMS = 64  # of more, arms are taken as unrelated
ROWS = 4096  # contexts at once


def plausible_totals(cells: Cells, n_draws: int, seed: int) -> Iterator[Matrix]:
    """What every arm would have paid in each context's rounds, so many times, each (n_contexts, n_arms)."""
    counts, sums = cells.counts, cells.sums
    targets = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
    apart = divided(sums, counts, np.tile(targets, (len(counts), 1))) - targets
    noise = _noise(cells)
    precision: Matrix = np.linalg.inv(_covariance(counts, apart, noise)).astype(np.float64)
    generator = np.random.default_rng(seed)
    unseen = cells.visits[:, None] - counts
    for _ in range(n_draws):
        means = np.concatenate(
            [
                _drawn(precision, counts[rows] / noise, apart[rows], generator)
                for rows in (slice(first, first + ROWS) for first in range(0, len(counts), ROWS))
            ]
        )
        paid = unseen * (targets + means) + np.sqrt(unseen * noise) * generator.normal(size=counts.shape)
        yield np.maximum(0.0, sums + paid)


def _drawn(precision: Matrix, seen: Matrix, apart: Matrix, generator: np.random.Generator) -> Matrix:
    """m - t of some contexts."""
    if len(precision) > MOST_ARMS:
        spread = 1.0 / (np.diag(precision) + seen)
        return np.asarray(spread * seen * apart + np.sqrt(spread) * generator.normal(size=seen.shape))
    known = precision + seen[:, :, None] * np.eye(len(precision))
    factor = np.linalg.cholesky(np.linalg.inv(known))
    centred = np.linalg.solve(known, (seen * apart)[:, :, None])[:, :, 0]
    return np.asarray(centred + (factor @ generator.normal(size=(*seen.shape, 1)))[:, :, 0])


def _noise(cells: Cells) -> Vector:
    """sigma^2 of every arm: how much its rewards differ within a context."""
    counts, sums = cells.counts, cells.sums
    explained = divided(sums**2, counts, np.zeros_like(sums)).sum(axis=0)
    spare = np.maximum((counts - (counts > 0.0)).sum(axis=0), 1.0)
    found: Vector = (cells.squares.sum(axis=0) - explained) / spare
    return np.maximum(found, 1e-9)


def _covariance(counts: Matrix, apart: Matrix, noise: Vector) -> Matrix:
    """T: products of deviations, less what noise adds to squares; nothing negative is left in it."""
    weighted = counts * apart
    pairs = np.maximum(counts.T @ counts, 1e-9)
    found = (weighted.T @ weighted - np.diag((counts * noise).sum(axis=0))) / pairs
    if len(found) > MOST_ARMS:
        found = np.diag(np.diag(found))
    values, vectors = np.linalg.eigh(found)
    return np.asarray((vectors * np.maximum(values, 1e-9)) @ vectors.T)
