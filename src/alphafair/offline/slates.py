"""Several arms per decision: which arms a row of totals can show, and the best fixed slates in hindsight.

A slate shows k arms and an arm at most once, so a policy has probabilities to be shown, at most 1 each, that sum to k.
Floors are taken off: what is left is the problem of `alphafair.offline.primal_dual`, with any kappa between 0 and the
number of arms. Several arms of a group may be shown together, so a group is not one arm as in
`alphafair.offline.reduction`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups
from alphafair.offline.hindsight import EPSILON
from alphafair.offline.primal_dual import solve, topsum
from alphafair.values.arrays import Matrix, Vector


class Rows(NamedTuple):
    """Rows of W whose decisions show several arms: which arms are present, their floor, and k, at most all of them."""

    there: NDArray[np.bool_]
    floor: Vector
    k: Vector

    @classmethod
    def of(cls, k: ArrayLike, shape: tuple[int, ...], groups: ArmGroups, present: NDArray[np.bool_] | None) -> Rows:
        """Check k, one number or one per row, and the floors."""
        m, n = shape
        there = np.ones((m, n), dtype=np.bool_) if present is None else np.repeat(present, m // len(present), axis=0)
        count = there.sum(axis=1)
        if groups.floored:
            repair = "Pass one pull_floor for all arms."
            raise InvalidArgument("k", "1 with a pull_floor by group", k, repair)
        return cls(there, np.minimum(groups.arm_floor, 1.0 / count), np.minimum(checked_k(k, m), count).astype(float))

    @property
    def kappa(self) -> Vector:
        """What is left for z in x = floor + (1 - floor) z."""
        count, left = self.there.sum(axis=1), np.maximum(1.0 - self.floor, EPSILON)
        return np.asarray(np.where(self.k >= count, count, (self.k - count * self.floor) / left))

    def promised(self, totals: Matrix) -> Vector:
        """What arms earn by their floors."""
        return np.asarray((totals * self.there * self.floor[:, None]).sum(axis=0))

    def most(self, totals: Matrix, w: Vector | float = 1.0) -> float:
        """The most that slates can earn above the floors, at the prices w of arms."""
        return float(((1.0 - self.floor) * topsum(totals * w, self.kappa)).sum())

    def policy(self, z: Matrix) -> Matrix:
        """Return x. What absent arms have of z, where nothing better is left, goes to the present ones."""
        absent = np.where(self.there, 0.0, z).sum(axis=1, keepdims=True)
        room = np.where(self.there, 1.0 - z, 0.0)
        total = room.sum(axis=1, keepdims=True)
        z = np.where(self.there, z + room * (absent / np.where(total > 0.0, total, 1.0)), 0.0)
        return np.where(self.there, self.floor[:, None] + (1.0 - self.floor[:, None]) * z, 0.0)


def checked_k(k: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    """Check the number of arms per decision: one number, or one per row."""
    if np.ndim(k) == 0:
        return np.full(n_rows, validate.integer("k", k, low=1))
    return validate.indices("k", k, None, n_entries=n_rows, low=1).astype(np.int64)


def best_slates(
    totals: Matrix, initial: Vector, groups: ArmGroups, rows: Rows, alpha: float, tolerance: float
) -> tuple[Matrix, Vector, Vector, float, int]:
    """Return x, the accounts of groups, the rewards of arms, the relative gap of the welfare, and the steps."""
    of_arms, n_groups = groups.of_arms, groups.n_groups
    base = initial + np.bincount(of_arms, rows.promised(totals), n_groups)
    above = totals * (1.0 - rows.floor)[:, None]
    found = solve(above, base, of_arms, groups.entitlements, rows.kappa, alpha, tolerance)
    x = rows.policy(found.shares)
    earned = (totals * x).sum(axis=0)
    return x, initial + np.bincount(of_arms, earned, n_groups), earned, found.welfare_gap, found.steps
