"""The offline problem of groups and floors as one with an arm per group and no floors: the same optimum, exactly.

In a context a group is best served by its best arm, so only max_{i in G} W_ji matters; and a policy that keeps floors
is what they give away for certain, plus `room`, 1 less all of them, times any policy at all. docs/theory.md has the
proof, `offline.reduction_kernels` the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.offline import reduction_kernels as kernels
from alphafair.values.arrays import Matrix, Vector

MOST_REWARD = 1e100  # of an arm in a context, in all
LEAST_INITIAL = 1e-150  # of an account: below it products of accounts and prices lose their digits


@dataclass(frozen=True, eq=False)
class Reduction:
    """Groups, and who is there in every epoch, (n_epochs, n_arms): everybody, if None. W has as many rows for each.

    Floors are kept among the arms, and the groups, that are there.
    """

    groups: ArmGroups
    present: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, n_arms: int, groups: GroupsLike | None, present: NDArray[np.bool_] | None) -> Reduction:
        """From an argument `groups`."""
        if present is None:
            return _plain(n_arms) if groups is None else cls(arm_groups(groups, n_arms))
        return cls(arm_groups(groups, n_arms, n_live=int(present.sum(axis=1).max())), present)

    @cached_property
    def is_identity(self) -> bool:
        """Whether the problem is its own reduction: every arm a group, always there, without floors."""
        groups, present = self.groups, self.present
        alone = groups.n_groups == groups.n_arms and groups.arm_floor == 0.0 and not groups.group_floors.any()
        return alone and (present is None or bool(present.all()))

    @cached_property
    def owed(self) -> kernels.Owed:
        """As kernels take it."""
        groups = self.groups
        there = _everybody(groups.n_arms) if self.present is None else self.present
        return kernels.Owed(groups.of_arms, there, groups.arm_floor, groups.group_floors)

    def merge(self, totals: Matrix, initial: Vector) -> tuple[Matrix, Matrix, Vector]:
        """The best of every group's W, for `spread`; W and R(0) of the problem with an arm per group."""
        if self.is_identity:
            return totals, totals, initial
        best, merged = np.empty((2, len(totals), self.groups.n_groups))
        base = np.empty(self.groups.n_groups)
        kernels.merge(totals, initial, self.owed, best, merged, base)
        return best, merged, base

    def spread(self, totals: Matrix, best: Matrix, shares: Matrix) -> tuple[Matrix, Vector]:
        """From the shares of groups: the distributions over arms, and what every arm earns."""
        if self.is_identity:
            return shares, (totals * shares).sum(axis=0)
        distributions, earned = np.empty_like(totals), np.empty(totals.shape[1])
        kernels.spread(totals, self.owed, best, shares, distributions, earned)
        return distributions, earned


@lru_cache(maxsize=8)
def _plain(n_arms: int) -> Reduction:
    """Without groups; kept, because making it takes a tenth as long as solving a small problem."""
    return Reduction(ArmGroups.of(n_arms))


@lru_cache(maxsize=8)
def _everybody(n_arms: int) -> NDArray[np.bool_]:
    return np.ones((1, n_arms), dtype=np.bool_)


def checked_initial(value: ArrayLike, n_groups: int) -> Vector:
    """What groups have before the first reward: one number for all, or one each."""
    repair = "Leave it out for 1."
    first = validate.floats("initial", "positive numbers", value, repair)
    if first.shape not in ((), (n_groups,)) or not ((first >= LEAST_INITIAL) & (first <= MOST_REWARD)).all():
        allowed = f"a number in [{LEAST_INITIAL:g}, {MOST_REWARD:g}], or {n_groups} of them, one per group"
        raise InvalidArgument("initial", allowed, value, repair)
    return np.full(n_groups, first)


def checked_presence(present: ArrayLike, totals: Matrix) -> NDArray[np.bool_]:
    """A row of booleans per epoch, each for as many rows of the totals; who is not there earns nothing."""
    (m, n), there = totals.shape, np.asarray(present)
    repair = "Pass present_arms(stream) with context_reward_totals(stream)."
    if there.dtype != np.bool_ or there.ndim != 2 or there.shape[1] != n or not len(there) or m % len(there):
        allowed = f"booleans, {n} per epoch, in a number of epochs that divides {m} rows"
        raise InvalidArgument("present", allowed, f"{there.dtype} of shape {there.shape}", repair)
    if not there.any(axis=1).all():
        raise InvalidArgument("present", "at least one arm in every epoch", there, repair)
    absent = np.repeat(~there, m // len(there), axis=0)
    validate.every("context_reward_totals", totals, ~absent | (totals == 0.0), "0 for arms not present", repair)
    return np.ascontiguousarray(there)
