"""Reduce the offline problem with groups and floors to one with an arm per group and no floors: the same optimum.

In a context a group earns most with its best arm, so only max_{i in G} W_ji matters. A policy that keeps the floors is
the floors plus `unpromised` times any policy, where `unpromised` is 1 minus the sum of the floors.
docs/background/theory.md has the proof. `merge` builds the reduced problem for `offline.hindsight`, `spread` turns its
solution back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.jit import kernel, long_kernel
from alphafair.values.arrays import Matrix, Vector

MOST_REWARD = 1e100  # upper bound of an arm's total in a context
LEAST_INITIAL = 1e-150  # of an account: below it products of accounts and prices lose their digits


class GroupData(NamedTuple):
    """The group of every arm; which arms are present, (n_epochs, n_arms); one floor for all arms, or one per group.

    Every epoch has the same number of rows of W. Floors apply to the present arms and groups.
    """

    of_arms: Any
    there: Any
    arm_floor: float
    group_floors: Any


@kernel
def add(total, carry, term):
    """total + term, and carry + what rounding lost of it (Knuth's two-sum)."""
    grown = total + term
    part = grown - total
    return grown, carry + ((total - (grown - part)) + (term - part))


@kernel
def _begin(groups, epoch, order, starts, arm_floors, group_floors):
    """Find the present arms of an epoch and their floors; return 1 minus the sum of the floors.

    Group g has the arms order[starts[g]:starts[g + 1]]. Indices are unsigned: compiled code then tests no sign.
    """
    of_arms, there, n_groups = groups.of_arms, groups.there[epoch], group_floors.shape[0]
    n, n_there, promised = there.shape[0], 0, 0.0
    for g in range(n_groups + 1):
        starts[g] = 0
    for i in range(n):
        starts[of_arms[i] + 1] += 1 if there[i] else 0
        n_there += 1 if there[i] else 0
    floor = min(groups.arm_floor, 1.0 / n_there)
    for g in range(n_groups):
        group_floors[g] = groups.group_floors[g] if starts[g + 1] > 0 else 0.0
        promised += group_floors[g]
        starts[g + 1] += starts[g]
    for i in range(n - 1, -1, -1):  # from the back: where a group ends moves to where it begins
        arm_floors[i] = floor if there[i] else 0.0
        if there[i]:
            starts[of_arms[i] + 1] -= 1
            order[starts[of_arms[i] + 1]] = i
    for g in range(n_groups):
        starts[g] = starts[g + 1]
    starts[n_groups] = n_there
    return max(0.0, 1.0 - (n_there * floor + promised))


@long_kernel
def merge(totals, initial, groups, best, merged, base):
    """Build the problem with one arm per group and no floors; f and alpha stay the same.

    best_jG = max_{i in G} W_ji ,   merged = unpromised best
    base_G = R_G(0) + sum_j (sum_{i in G} nu_i W_ji + nu_G best_jG)
    """
    (m, n_groups), n = merged.shape, totals.shape[1]
    order, starts = np.empty(n, np.uint64), np.empty(n_groups + 1, np.uint64)
    arm_floors, group_floors, carry = np.empty(n), np.empty(n_groups), np.zeros(n_groups)
    rows, unpromised = m // groups.there.shape[0], 1.0
    for g in range(n_groups):
        base[g] = initial[g]
    for j in range(m):
        if j % rows == 0:
            unpromised = _begin(groups, j // rows, order, starts, arm_floors, group_floors)
        for g in range(n_groups):
            most = given = 0.0
            for k in range(starts[g], starts[g + 1]):
                i = order[k]
                most = max(most, totals[j, i])
                given += arm_floors[i] * totals[j, i]
            best[j, g], merged[j, g] = most, unpromised * most
            base[g], carry[g] = add(base[g], carry[g], given + group_floors[g] * most)
    for g in range(n_groups):
        base[g] += carry[g]


@long_kernel
def spread(totals, groups, best, y, x, earned):
    """Turn y, the solution of the merged problem, into a distribution over arms: a group's share goes to its best arms.

    x_ji = nu_i + (nu_G + unpromised y_jG)/k if i is one of the k best present arms of G, else nu_i. The share of absent
    groups goes to the present ones, in proportion. Arm i earns sum_j W_ji x_ji.
    """
    (m, n_groups), n = y.shape, totals.shape[1]
    order, starts = np.empty(n, np.uint64), np.empty(n_groups + 1, np.uint64)
    arm_floors, group_floors = np.empty(n), np.empty(n_groups)
    rows, unpromised = m // groups.there.shape[0], 1.0
    earned[:] = 0.0
    for j in range(m):
        if j % rows == 0:
            unpromised = _begin(groups, j // rows, order, starts, arm_floors, group_floors)
        played = 1.0
        for g in range(n_groups):
            played -= 0.0 if starts[g + 1] > starts[g] else y[j, g]
        for i in range(n):
            x[j, i] = arm_floors[i]
            earned[i] += totals[j, i] * arm_floors[i]
        for g in range(n_groups):
            if starts[g + 1] > starts[g]:
                count, one, most = 0, order[starts[g]], best[j, g]
                for k in range(starts[g], starts[g + 1]):
                    i = order[k]
                    one = i if totals[j, i] == most else one
                    count += 1 if totals[j, i] == most else 0
                share = (group_floors[g] + unpromised * y[j, g] / played) / count
                if count == 1:
                    x[j, one] += share
                    earned[one] += share * most
                else:
                    for k in range(starts[g], starts[g + 1]):
                        i = order[k]
                        own = share if totals[j, i] == most else 0.0
                        x[j, i] += own
                        earned[i] += own * most


@dataclass(frozen=True, eq=False)
class Reduction:
    """Groups, and which arms are present in every epoch, (n_epochs, n_arms); None: all of them.

    Every epoch has the same number of rows of W. Floors apply to the present arms and groups.
    """

    groups: ArmGroups
    present: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, n_arms: int, groups: GroupsLike | None, present: NDArray[np.bool_] | None) -> Reduction:
        """Resolve an argument `groups`."""
        if present is None:
            return _plain(n_arms) if groups is None else cls(arm_groups(groups, n_arms))
        return cls(arm_groups(groups, n_arms, n_live=int(present.sum(axis=1).max())), present)

    @cached_property
    def is_identity(self) -> bool:
        """Whether there is nothing to reduce: every arm is a group, always present, without floors."""
        groups, present = self.groups, self.present
        alone = groups.n_groups == groups.n_arms and groups.arm_floor == 0.0 and not groups.group_floors.any()
        return alone and (present is None or bool(present.all()))

    @cached_property
    def kernel_groups(self) -> GroupData:
        """The groups as kernels take them."""
        groups = self.groups
        there = _all_present(groups.n_arms) if self.present is None else self.present
        return GroupData(groups.of_arms, there, groups.arm_floor, groups.group_floors)

    def merge(self, totals: Matrix, initial: Vector) -> tuple[Matrix, Matrix, Vector]:
        """Return the best W of every group, for `spread`, and W and R(0) of the problem with an arm per group."""
        if self.is_identity:
            return totals, totals, initial
        best, merged = np.empty((2, len(totals), self.groups.n_groups))
        base = np.empty(self.groups.n_groups)
        merge(totals, initial, self.kernel_groups, best, merged, base)
        return best, merged, base

    def spread(self, totals: Matrix, best: Matrix, shares: Matrix) -> tuple[Matrix, Vector]:
        """Return the distributions over arms, and what every arm earns, from the shares of groups."""
        if self.is_identity:
            with np.errstate(under="ignore"):
                return shares, (totals * shares).sum(axis=0)
        distributions, earned = np.empty_like(totals), np.empty(totals.shape[1])
        spread(totals, self.kernel_groups, best, shares, distributions, earned)
        return distributions, earned


@lru_cache(maxsize=8)
def _plain(n_arms: int) -> Reduction:
    """The reduction without groups; cached, because building it costs a tenth of solving a small problem."""
    return Reduction(ArmGroups.of(n_arms))


@lru_cache(maxsize=8)
def _all_present(n_arms: int) -> NDArray[np.bool_]:
    return np.ones((1, n_arms), dtype=np.bool_)


def checked_initial(value: ArrayLike, n_groups: int) -> Vector:
    """Check the accounts before the first reward: one number for all groups, or one each."""
    repair = "Leave it out for 1."
    first = validate.floats("initial", "positive numbers", value, repair)
    if first.shape not in ((), (n_groups,)) or not ((first >= LEAST_INITIAL) & (first <= MOST_REWARD)).all():
        allowed = f"a number in [{LEAST_INITIAL:g}, {MOST_REWARD:g}], or {n_groups} of them, one per group"
        raise InvalidArgument("initial", allowed, value, repair)
    return np.full(n_groups, first)


def checked_presence(present: ArrayLike, totals: Matrix) -> NDArray[np.bool_]:
    """Check a row of booleans per epoch; absent arms must have totals of 0."""
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
