"""Accounts that groups of arms share, entitlements, and floors under the probabilities.

With G the group of an arm and s its entitlement, the column of every arm of G holds the same account, rho = R_G/s_G, so
that a kernel finds phi'(R_G/s_G) where it finds phi'(R_i) of an arm on its own. A round adds to it

    (sum of what the arms of G earn)/s_G ,

and what every arm earns itself stands in the last row of `shared`. Floors, where y is the policy's own distribution:

    p_i = nu + (1 - n nu) y_i                        nu for each of n arms
    p_i = (1 - sum nu) y_i + nu_G y_i/y(G)           nu_G for each group, inside which y divides it

All of it is a setting: it stands in the last rows of `work`, which `attach` adds, and in five entries of SETTINGS.
"""

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import mask_distribution
from alphafair.kernels.memory import ARMS, SETTINGS
from alphafair.kernels.utility import earn

LEAST_UNPROMISED = 11  # among the settings: the least UNPROMISED there ever was, with all that have left
POOLED, ARM_FLOOR, UNPROMISED = 12, 13, 14  # among the settings; UNPROMISED: 1 less all floors
GROUP_FLOORED = 15  # among the settings: how many groups there are, if some have floors; else 0
GROUP, INVERSE, FLOOR = -1, -2, -3  # rows: of every arm its group (read without a sign) and 1/s; of groups their floor
LEAST_PROPENSITY = 1e-100  # below it nothing was ever drawn, whatever the floors: those of policies are far above
POOL, GROUP_SHARE, COUNT, INCREMENT, ONES, EXTRA_ROWS = -4, -5, -6, -7, -8, 8  # scratch, the first three by group


def attach(
    work: np.ndarray,
    group: np.ndarray,
    inverse: np.ndarray,
    *,
    pooled: bool,
    arm_floor: float,
    group_floors: np.ndarray,
) -> np.ndarray:
    """The same work with what is to be known about groups, of live arms alone and numbered from 0 without gaps."""
    work = np.concatenate([work, np.zeros((EXTRA_ROWS, work.shape[1]))])
    n = len(group)
    work[GROUP, :n], work[INVERSE, :n], work[ONES] = group, inverse, 1.0
    work[FLOOR, : len(group_floors)] = group_floors
    keep = max(0.0, 1.0 - (n * arm_floor + group_floors.sum()))
    n_floored = len(group_floors) if group_floors.any() else 0
    work[SETTINGS, [POOLED, ARM_FLOOR, UNPROMISED, GROUP_FLOORED]] = pooled, arm_floor, keep, n_floored
    return work


@kernel
def pool(work, probabilities, rewards):
    """What a round adds to rho of every arm's group, into INCREMENT."""
    n = rewards.shape[0]
    group, inverse, pooled, increment = work[GROUP], work[INVERSE], work[POOL], work[INCREMENT]
    for i in range(n):
        pooled[i] = 0.0
        increment[i] = probabilities[i] * rewards[i]
    for i in range(n):
        pooled[np.uint32(group[i])] += increment[i]
    for i in range(n):
        increment[i] = pooled[np.uint32(group[i])] * inverse[i]


@kernel
def earn_together(work, shared, probabilities, rewards):
    """`earn` for accounts that stand first in `shared`, of arms or of groups."""
    n = rewards.shape[0]
    gained, weights = probabilities, rewards
    if work[SETTINGS, POOLED] > 0.0:
        own = shared[0, shared.shape[1] - 1, ARMS:]
        for i in range(n):
            own[i] += probabilities[i] * rewards[i]
        pool(work, probabilities, rewards)
        gained, weights = work[INCREMENT, :n], work[ONES, :n]
    earn(shared, 0, 0, work[SETTINGS], gained, weights)


@kernel
def earn_one(work, shared, first, arm, reward):
    """What one arm has earned into its own row and to the account, row `first`, of all arms of its group."""
    if work[SETTINGS, POOLED] > 0.0:
        group, inverse, own = work[GROUP], work[INVERSE], shared.shape[1] - 1
        for i in range(shared.shape[2] - ARMS):
            if group[i] == group[arm]:
                shared[0, first, ARMS + i] += reward * inverse[i]
        shared[0, own, ARMS + arm] += reward
    else:
        shared[0, first, ARMS + arm] += reward


@kernel
def at_stake(work):
    """What part of the rewards the choice of y decides about: 1 - n nu under a floor nu for arms, all without."""
    return work[SETTINGS, UNPROMISED] if work[SETTINGS, ARM_FLOOR] > 0.0 else 1.0


@kernel
def sum_by_group(work, values, sums):
    """The sum of every group's values, where some have floors."""
    group = work[GROUP]
    for g in range(int(work[SETTINGS, GROUP_FLOORED])):
        sums[g] = 0.0
    for i in range(values.shape[0]):
        sums[np.uint32(group[i])] += values[i]


@kernel
def lift_groups(work, y):
    """Raise y, positive everywhere, to the groups' floors; under a floor of 1 rounding must not raise it above 1."""
    group, floor, share, keep = work[GROUP], work[FLOOR], work[GROUP_SHARE], work[SETTINGS, UNPROMISED]
    sum_by_group(work, y, share)
    for i in range(y.shape[0]):
        g = np.uint32(group[i])
        y[i] = min(1.0, y[i] * (keep + floor[g] / share[g]))


@kernel
def least_drawn(work, arm, least):
    """What an arm has been drawn with at least, whenever it was, if y had at least `least` of it.

    nu + keep y_i with floors for arms, (keep + nu_G/y(G)) y_i, at least (keep + nu_G) y_i, with floors for groups. An
    arm that floors leave nothing is drawn where it alone is available.
    """
    settings, own = work[SETTINGS], 0.0
    if settings[GROUP_FLOORED] > 0.0:
        own = work[FLOOR, int(work[GROUP, arm])]
    return max(settings[ARM_FLOOR] + (settings[LEAST_UNPROMISED] + own) * least, LEAST_PROPENSITY)


@kernel
def keep_floors(work, y):
    """Raise y, positive everywhere, to the floors; False if there are none."""
    if work[SETTINGS, GROUP_FLOORED] > 0.0:
        lift_groups(work, y)
        return True
    if work[SETTINGS, ARM_FLOOR] > 0.0:
        floor, keep = work[SETTINGS, ARM_FLOOR], work[SETTINGS, UNPROMISED]
        for i in range(y.shape[0]):
            y[i] = floor + keep * y[i]
        return True
    return False


@kernel
def mask_and_keep_floors(work, p, available):
    """Take the floors away, renormalise over the available arms, and raise those to the floors again; in place."""
    n, floor, keep = p.shape[0], work[SETTINGS, ARM_FLOOR], work[SETTINGS, UNPROMISED]
    if work[SETTINGS, GROUP_FLOORED] > 0.0:
        _mask_groups(work, p, available)
        return
    if floor > 0.0:
        for i in range(n):
            p[i] = max(0.0, p[i] - floor)
    mask_distribution(work, p, available)
    if floor > 0.0:
        n_available = 0
        for i in range(n):
            n_available += 1 if available[i] else 0
        keep = max(0.0, 1.0 - n_available * floor)
        for i in range(n):
            p[i] = floor + keep * p[i] if available[i] else 0.0


@kernel
def _mask_groups(work, p, available):
    """The same with floors of groups: y(G) = (p(G) - nu_G)/(1 - sum nu), of which what is available stays."""
    n, group, floor, keep = p.shape[0], work[GROUP], work[FLOOR], work[SETTINGS, UNPROMISED]
    whole, left, count = work[POOL], work[GROUP_SHARE], work[COUNT]
    n_groups = int(work[SETTINGS, GROUP_FLOORED])
    sum_by_group(work, p, whole)
    for g in range(n_groups):
        count[g] = 0.0
    for i in range(n):
        if not available[i]:
            p[i] = 0.0
    for i in range(n):
        count[np.uint32(group[i])] += 1.0 if available[i] else 0.0
    sum_by_group(work, p, left)
    total, promised, n_available = 0.0, 0.0, 0.0
    for g in range(n_groups):
        if count[g] > 0.0:
            own = max(0.0, whole[g] - floor[g]) if keep > 0.0 else whole[g]
            whole[g] = own * left[g] / whole[g] if whole[g] > 0.0 else 0.0
            total += whole[g]
            promised += floor[g]
            n_available += count[g]
    free = max(0.0, 1.0 - promised)
    for i in range(n):
        if available[i]:
            k = np.uint32(group[i])
            share = floor[k] + free * (whole[k] / total if total > 0.0 else count[k] / n_available)
            p[i] = min(1.0, share * (p[i] / left[k] if left[k] > 0.0 else 1.0 / count[k]))


@kernel
def _own_thresholds(work, v):
    """theta_G with sum max(v_i - theta_G, 0) = nu_G over the arms of every group, into POOL; infinite if nu_G is 0.

    Any set of a group's arms bounds it from below: first its largest arm, then those above the bound before.
    """
    n, n_groups, group, floor = v.shape[0], int(work[SETTINGS, GROUP_FLOORED]), work[GROUP], work[FLOOR]
    theta, total, number, before = work[POOL], work[GROUP_SHARE], work[COUNT], work[INCREMENT]
    for g in range(n_groups):
        theta[g], before[g] = -np.inf if floor[g] > 0.0 else np.inf, n + 1.0
    for i in range(n):
        k = np.uint32(group[i])
        theta[k] = max(theta[k], v[i] - floor[k])
    some_rose = True
    while some_rose:
        for g in range(n_groups):
            total[g] = number[g] = 0.0
        for i in range(n):
            k = np.uint32(group[i])
            if v[i] > theta[k]:
                total[k] += v[i]
                number[k] += 1.0
        some_rose = False
        for g in range(n_groups):
            if 0.0 < number[g] < before[g]:  # by rounding, an arm equal to theta may come back
                risen, before[g] = (total[g] - floor[g]) / number[g], number[g]
                some_rose |= risen > theta[g]  # not if it was the largest arm's alone
                theta[g] = risen


@kernel
def project_on_floors(work, v, theta, out):
    """The nearest x >= 0 with sum 1 and x(G) >= nu_G: v less one theta, but in groups that this leaves short their own.

    Those are the groups with theta_G < theta. The sum of x is convex in theta, so Newton's method from any lower bound
    rises to it in few steps, and whoever has dropped out or is short stays so.
    """
    n, n_groups, group = v.shape[0], int(work[SETTINGS, GROUP_FLOORED]), work[GROUP]
    floor, own = work[FLOOR], work[POOL]
    _own_thresholds(work, v)
    before = n + 1
    while True:
        free, total, number = 1.0, 0.0, 0
        for g in range(n_groups):
            free -= floor[g] if own[g] < theta else 0.0
        for i in range(n):
            if v[i] > theta and own[np.uint32(group[i])] >= theta:
                total += v[i]
                number += 1
        if number == 0 or number >= before:
            break
        theta, before = (total - free) / number, number
    for i in range(n):
        out[i] = min(max(v[i] - min(theta, own[np.uint32(group[i])]), 0.0), 1.0)
