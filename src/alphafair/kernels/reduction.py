"""Groups of arms, and floors under what is drawn, out of the offline problem and back into its answer.

`merge` makes the problem of `kernels.hindsight` out of theirs, with one arm per group and no floors, and `spread` turns
its answer back: nothing is lost on either way (docs/theory.md).
"""

from typing import Any, NamedTuple

import numpy as np

from alphafair.jit import kernel, long_kernel


class Owed(NamedTuple):
    """Of every arm its group; who is there, (n_epochs, n_arms); one floor nu for all arms, or nu_G of every group.

    Rows of W belong to equal epochs. Floors are kept among those that are there.
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
def _members(of_arms, n_groups):
    """Group g has the arms order[starts[g]:starts[g + 1]]; unsigned, so that compiled code need not ask for a sign."""
    n = of_arms.shape[0]
    order, starts, filled = np.empty(n, np.uint64), np.zeros(n_groups + 1, np.uint64), np.zeros(n_groups, np.int64)
    for i in range(n):
        filled[of_arms[i]] += 1
    end = 0
    for g in range(n_groups):
        end += filled[g]
        starts[g + 1], filled[g] = end, end - filled[g]
    for i in range(n):
        order[filled[of_arms[i]]] = i
        filled[of_arms[i]] += 1
    return order, starts


@kernel
def _floors(owed, epoch, arm_floors, group_floors, groups_there):
    """The floors of one epoch, 0 for those who are not there, and `room`: 1 less all of them."""
    there = owed.there[epoch]
    n, n_there, promised = there.shape[0], 0, 0.0
    for g in range(group_floors.shape[0]):
        groups_there[g] = False
    for i in range(n):
        n_there += 1 if there[i] else 0
        groups_there[owed.of_arms[i]] |= there[i]
    floor = min(owed.arm_floor, 1.0 / n_there)
    for i in range(n):
        arm_floors[i] = floor if there[i] else 0.0
    for g in range(group_floors.shape[0]):
        group_floors[g] = owed.group_floors[g] if groups_there[g] else 0.0
        promised += group_floors[g]
    return max(0.0, 1.0 - (n_there * floor + promised))


@long_kernel
def merge(totals, initial, owed, merged, base):
    """One arm per group in place of its arms, and none of the floors; f and alpha stay.

    merged_jG = room max_{i in G} W_ji ,   base_G = R_G(0) + sum_j (sum_{i in G} nu_i W_ji + nu_G max_{i in G} W_ji)
    """
    m, n_groups = merged.shape
    order, starts = _members(owed.of_arms, n_groups)
    arm_floors, group_floors = np.empty(totals.shape[1]), np.empty(n_groups)
    groups_there, carry = np.empty(n_groups, np.bool_), np.zeros(n_groups)
    rows, room = m // owed.there.shape[0], 1.0
    for g in range(n_groups):
        base[g] = initial[g]
    for j in range(m):
        if j % rows == 0:
            room = _floors(owed, j // rows, arm_floors, group_floors, groups_there)
        for g in range(n_groups):
            best = given = 0.0
            for k in range(starts[g], starts[g + 1]):
                i = order[k]
                best = max(best, totals[j, i])
                given += arm_floors[i] * totals[j, i]
            merged[j, g] = room * best
            base[g], carry[g] = add(base[g], carry[g], given + group_floors[g] * best)
    for g in range(n_groups):
        base[g] += carry[g]


@long_kernel
def spread(totals, initial, owed, y, accounts, x, earned):
    """What y, the answer to the merged problem, means to arms: the best arms of a group have all of its share.

    x_ji = nu_i + (nu_G + room y_jG)/k if i is one of the k best arms of G that are there, else nu_i. What y leaves for
    groups that are not there goes to those that are, in proportion. Arm i has sum_j W_ji x_ji and its part, equal for
    all arms of the group, of what that began with, so that R_G = 1 + sum (R_i - 1): alone, the account itself.
    """
    m, n = totals.shape
    n_groups = y.shape[1]
    order, starts = _members(owed.of_arms, n_groups)
    arm_floors, group_floors = np.empty(n), np.empty(n_groups)
    groups_there, there = np.empty(n_groups, np.bool_), owed.there[0]
    rows, room = m // owed.there.shape[0], 1.0
    for i in range(n):
        earned[i] = 0.0
    for j in range(m):
        if j % rows == 0:
            there = owed.there[j // rows]
            room = _floors(owed, j // rows, arm_floors, group_floors, groups_there)
        played = 1.0
        for g in range(n_groups):
            played -= 0.0 if groups_there[g] else y[j, g]
        for i in range(n):
            x[j, i] = arm_floors[i]
            earned[i] += totals[j, i] * arm_floors[i]
        for g in range(n_groups):
            if groups_there[g]:
                best, count, one = -1.0, 0.0, np.uint64(0)
                for k in range(starts[g], starts[g + 1]):
                    i = order[k]
                    value = totals[j, i] if there[i] else -2.0
                    one = i if value > best else one
                    count = 0.0 if value > best else count
                    best = max(best, value)
                    count += 1.0 if value == best else 0.0
                share = group_floors[g] + room * y[j, g] / played
                if count == 1.0:
                    x[j, one] += share
                    earned[one] += share * best
                else:
                    share /= count
                    for k in range(starts[g], starts[g + 1]):
                        i = order[k]
                        own = share if there[i] & (totals[j, i] == best) else 0.0
                        x[j, i] += own
                        earned[i] += own * best
    for i in range(n):
        g = owed.of_arms[i]
        size = starts[g + 1] - starts[g]
        earned[i] = accounts[g] if size == 1 else 1.0 + (initial[g] - 1.0) / size + earned[i]
