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
def _begin(owed, epoch, order, starts, arm_floors, group_floors):
    """Who is there in an epoch, the floors of those, and `room`: 1 less all of them.

    Group g has the arms order[starts[g]:starts[g + 1]]; unsigned, so that compiled code need not ask for a sign.
    """
    of_arms, there, n_groups = owed.of_arms, owed.there[epoch], group_floors.shape[0]
    n, n_there, promised = there.shape[0], 0, 0.0
    for g in range(n_groups + 1):
        starts[g] = 0
    for i in range(n):
        starts[of_arms[i] + 1] += 1 if there[i] else 0
        n_there += 1 if there[i] else 0
    floor = min(owed.arm_floor, 1.0 / n_there)
    for g in range(n_groups):
        group_floors[g] = owed.group_floors[g] if starts[g + 1] > 0 else 0.0
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
def merge(totals, initial, owed, best, merged, base):
    """One arm per group in place of its arms, and none of the floors; f and alpha stay.

    best_jG = max_{i in G} W_ji ,   merged = room best
    base_G = R_G(0) + sum_j (sum_{i in G} nu_i W_ji + nu_G best_jG)
    """
    (m, n_groups), n = merged.shape, totals.shape[1]
    order, starts = np.empty(n, np.uint64), np.empty(n_groups + 1, np.uint64)
    arm_floors, group_floors, carry = np.empty(n), np.empty(n_groups), np.zeros(n_groups)
    rows, room = m // owed.there.shape[0], 1.0
    for g in range(n_groups):
        base[g] = initial[g]
    for j in range(m):
        if j % rows == 0:
            room = _begin(owed, j // rows, order, starts, arm_floors, group_floors)
        for g in range(n_groups):
            most = given = 0.0
            for k in range(starts[g], starts[g + 1]):
                i = order[k]
                most = max(most, totals[j, i])
                given += arm_floors[i] * totals[j, i]
            best[j, g], merged[j, g] = most, room * most
            base[g], carry[g] = add(base[g], carry[g], given + group_floors[g] * most)
    for g in range(n_groups):
        base[g] += carry[g]


@long_kernel
def spread(totals, owed, best, y, x, earned):
    """What y, the answer to the merged problem, means to arms: the best arms of a group have all of its share.

    x_ji = nu_i + (nu_G + room y_jG)/k if i is one of the k best arms of G that are there, else nu_i. What y leaves for
    groups that are not there goes to those that are, in proportion. Arm i earns sum_j W_ji x_ji.
    """
    (m, n_groups), n = y.shape, totals.shape[1]
    order, starts = np.empty(n, np.uint64), np.empty(n_groups + 1, np.uint64)
    arm_floors, group_floors = np.empty(n), np.empty(n_groups)
    rows, room = m // owed.there.shape[0], 1.0
    earned[:] = 0.0
    for j in range(m):
        if j % rows == 0:
            room = _begin(owed, j // rows, order, starts, arm_floors, group_floors)
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
                share = (group_floors[g] + room * y[j, g] / played) / count
                if count == 1:
                    x[j, one] += share
                    earned[one] += share * most
                else:
                    for k in range(starts[g], starts[g + 1]):
                        i = order[k]
                        own = share if totals[j, i] == most else 0.0
                        x[j, i] += own
                        earned[i] += own * most
