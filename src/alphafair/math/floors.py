"""Accounts that groups of arms share, entitlements, and floors under the probabilities.

With G the group of an arm and s its entitlement, every arm of G has the same account, rho = R_G/s_G, so that kernels
use phi'(R_G/s_G) in place of phi'(R_i). A round adds to it

    (sum of the rewards of the arms of G)/s_G ,

and the rewards of every arm itself are kept separately. Floors, with y the distribution before floors:

    p_i = nu + (1 - n nu) y_i                        nu for each of n arms
    p_i = (1 - sum nu) y_i + nu_G y_i/y(G)           nu_G for each group, divided inside it by y

Nothing here is learned: `GroupMemory` holds the groups and work space.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm, mask_distribution
from alphafair.math.utility import ACCOUNT, earn
from alphafair.math.welfare import current_welfare
from alphafair.values.arrays import positions

GROUPS = True  # False in machine code for policies without groups and floors

# pooled: whether there are groups or entitlements; unpromised: 1 minus the sum of floors, now, and with all retired
# arms, its least value; group_floored: the number of groups, if some of them have floors, else 0; total_weight: S
F = positions("pooled", "arm_floor", "unpromised", "least_unpromised", "group_floored", "total_weight")
# rows: by arm its part of s (they add up to s over the group), its group (read as unsigned) and 1/s; by group its
# floor; then scratch, the first three by group
R = positions("weight", "group", "inverse_entitlement", "floor", "pool", "group_share", "count", "increment", "ones")
LEAST_PROPENSITY = 1e-100  # a lower bound of all propensities; those of policies are far above
TIE = 1.0 - 1e-9  # values above this times the best count as ties, so that rounding does not choose between arms


class GroupMemory(NamedTuple):
    """`numbers` by the names of `F`, `rows` by those of `R`; only `weight` without groups, entitlements and floors."""

    numbers: Any
    rows: Any


def no_groups(n_arms: int) -> GroupMemory:
    """Return the memory for arms without groups, entitlements and floors."""
    numbers = np.zeros(F.size)
    numbers[[F.unpromised, F.least_unpromised]], numbers[F.total_weight] = 1.0, n_arms
    return GroupMemory(numbers, np.ones((1, n_arms)))


def group_memory(
    group: np.ndarray,
    entitlements: np.ndarray,
    *,
    pooled: bool,
    arm_floor: float,
    group_floors: np.ndarray,
    least_unpromised: float,
) -> GroupMemory:
    """Return the memory for the groups of live arms, numbered from 0 without gaps."""
    n = len(group)
    numbers, rows = np.zeros(F.size), np.zeros((R.size, n))
    rows[R.group], rows[R.inverse_entitlement], rows[R.ones] = group, 1.0 / entitlements[group], 1.0
    rows[R.weight] = entitlements[group] / np.bincount(group)[group]
    rows[R.floor, : len(group_floors)] = group_floors
    numbers[F.pooled], numbers[F.arm_floor], numbers[F.total_weight] = pooled, arm_floor, rows[R.weight].sum()
    numbers[F.unpromised] = max(0.0, 1.0 - (n * arm_floor + group_floors.sum()))
    numbers[F.least_unpromised] = least_unpromised
    numbers[F.group_floored] = len(group_floors) if group_floors.any() else 0
    return GroupMemory(numbers, rows)


@kernel
def pool(groups, probabilities, rewards):
    """Write what a round adds to rho of every arm's group to the row `increment`."""
    n, rows = rewards.shape[0], groups.rows
    group, inverse = rows[R.group], rows[R.inverse_entitlement]
    pooled, increment = rows[R.pool], rows[R.increment]
    for i in range(n):
        pooled[i] = 0.0
        increment[i] = probabilities[i] * rewards[i]
    for i in range(n):
        pooled[np.uint32(group[i])] += increment[i]
    for i in range(n):
        increment[i] = pooled[np.uint32(group[i])] * inverse[i]


@kernel
def earn_together(groups, arms, earned, settings, unit, probabilities, rewards):
    """`earn` for accounts of arms or of groups; row `earned` of `arms` has the arms' own rewards."""
    gained, weights = probabilities, rewards
    if GROUPS and groups.numbers[F.pooled] > 0.0:
        own = arms[earned]
        for i in range(rewards.shape[0]):
            own[i] += probabilities[i] * rewards[i]
        pool(groups, probabilities, rewards)
        gained, weights = groups.rows[R.increment], groups.rows[R.ones]
    return earn(arms, settings, unit, gained, weights)


@kernel
def welfare_together(groups, arms, unit, alpha):
    """W of accounts of arms or of groups, for alpha >= 1."""
    equal = not GROUPS or groups.numbers[F.pooled] == 0.0
    weights = groups.rows[R.weight]
    return current_welfare(arms[ACCOUNT.account], weights, arms[ACCOUNT.slope], unit, alpha, equal)


@kernel
def price_units(groups, arms, unit, first_welfare, alpha):
    """For alpha >= 1: k with p = k (R/unit)^(-alpha), p the gradient of W, and u = S (W_0/W)^alpha.

    The slopes R^(-alpha) are u p, in units of W_0^(-alpha); u never rises while W does not fall.
    """
    welfare, total = welfare_together(groups, arms, unit, alpha), groups.numbers[F.total_weight]
    return math.pow(welfare / unit, alpha) / total, total * math.pow(first_welfare / welfare, alpha)


@kernel
def earn_one(groups, arms, earned, arm, reward):
    """Add a reward to the account of all arms of its group, and to the arm's own rewards."""
    account = arms[ACCOUNT.account]
    if GROUPS and groups.numbers[F.pooled] > 0.0:
        group, inverse = groups.rows[R.group], groups.rows[R.inverse_entitlement]
        for i in range(account.shape[0]):
            if group[i] == group[arm]:
                account[i] += reward * inverse[i]
        arms[earned, arm] += reward
    else:
        account[arm] += reward


@kernel
def at_stake(groups):
    """Return the part of the probability that y decides: 1 - n nu with a floor nu for arms, else 1."""
    return groups.numbers[F.unpromised] if groups.numbers[F.arm_floor] > 0.0 else 1.0


@kernel
def sum_by_group(groups, values, sums):
    """Sum values by group, if some groups have floors."""
    group = groups.rows[R.group]
    for g in range(int(groups.numbers[F.group_floored])):
        sums[g] = 0.0
    for i in range(values.shape[0]):
        sums[np.uint32(group[i])] += values[i]


@kernel
def lift_groups(groups, y):
    """Raise y, positive everywhere, to the floors of groups, and clip it to 1."""
    group, floor, share = groups.rows[R.group], groups.rows[R.floor], groups.rows[R.group_share]
    keep = groups.numbers[F.unpromised]
    sum_by_group(groups, y, share)
    for i in range(y.shape[0]):
        g = np.uint32(group[i])
        y[i] = min(1.0, y[i] * (keep + floor[g] / share[g]))


@kernel
def least_drawn(groups, arm, least):
    """Return a lower bound of the propensity of an arm at any time, if y was at least `least`.

    nu + keep y_i with floors for arms, (keep + nu_G/y(G)) y_i, at least (keep + nu_G) y_i, with floors for groups. An
    arm with probability 0 can still be drawn if only it is available.
    """
    numbers, own = groups.numbers, 0.0
    if GROUPS and numbers[F.group_floored] > 0.0:
        own = groups.rows[R.floor, int(groups.rows[R.group, arm])]
    return max(numbers[F.arm_floor] + (numbers[F.least_unpromised] + own) * least, LEAST_PROPENSITY)


@kernel
def keep_floors(groups, y):
    """Raise y, positive everywhere, to the floors; return False without floors."""
    if not GROUPS:
        return False  # pragma: no cover - machine code alone
    if groups.numbers[F.group_floored] > 0.0:
        lift_groups(groups, y)
        return True
    if groups.numbers[F.arm_floor] > 0.0:
        floor, keep = groups.numbers[F.arm_floor], groups.numbers[F.unpromised]
        for i in range(y.shape[0]):
            y[i] = floor + keep * y[i]
        return True
    return False


@kernel
def mask_and_keep_floors(memory, p, available, uniform):
    """Remove the floors, renormalize over the available arms, raise these to the floors again, and draw one of them."""
    groups, n = memory.groups, p.shape[0]
    floor, keep = groups.numbers[F.arm_floor], groups.numbers[F.unpromised]
    if GROUPS and groups.numbers[F.group_floored] > 0.0:
        _mask_groups(groups, p, available)
    else:
        if floor > 0.0:
            for i in range(n):
                p[i] = max(0.0, p[i] - floor)
        mask_distribution(p, available)
        if floor > 0.0:
            n_available = 0
            for i in range(n):
                n_available += 1 if available[i] else 0
            keep = max(0.0, 1.0 - n_available * floor)
            for i in range(n):
                p[i] = floor + keep * p[i] if available[i] else 0.0
    arm = draw_arm(p, uniform)
    return arm, p[arm]


@kernel
def _mask_groups(groups, p, available):
    """The same with floors of groups: y(G) = (p(G) - nu_G)/(1 - sum nu), of which what is available stays."""
    n, group, floor, keep = p.shape[0], groups.rows[R.group], groups.rows[R.floor], groups.numbers[F.unpromised]
    whole, left, count = groups.rows[R.pool], groups.rows[R.group_share], groups.rows[R.count]
    n_groups = int(groups.numbers[F.group_floored])
    sum_by_group(groups, p, whole)
    for g in range(n_groups):
        count[g] = 0.0
    for i in range(n):
        if not available[i]:
            p[i] = 0.0
    for i in range(n):
        count[np.uint32(group[i])] += 1.0 if available[i] else 0.0
    sum_by_group(groups, p, left)
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
def _own_thresholds(groups, v):
    """Write theta_G with sum max(v_i - theta_G, 0) = nu_G over a group's arms to row `pool`; infinite if nu_G is 0.

    Any set of a group's arms gives a lower bound: first its largest arm, then those above the last bound.
    """
    n, n_groups, rows = v.shape[0], int(groups.numbers[F.group_floored]), groups.rows
    group, floor, theta, total = rows[R.group], rows[R.floor], rows[R.pool], rows[R.group_share]
    number, before = rows[R.count], rows[R.increment]
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
            if 0.0 < number[g] < before[g]:  # rounding may bring back an arm equal to theta
                risen, before[g] = (total[g] - floor[g]) / number[g], number[g]
                some_rose |= risen > theta[g]  # not if only the largest arm counts
                theta[g] = risen


@kernel
def project_on_floors(groups, v, theta, out):
    """Project v on x >= 0 with sum 1 and x(G) >= nu_G: x = max(v - theta, 0), with theta_G in groups below their floor.

    Those are the groups with theta_G < theta. The sum of x is convex in theta, so Newton's method from any lower bound
    increases to the solution in few steps, and arms at 0 and groups at their floor stay there.
    """
    n, n_groups, group = v.shape[0], int(groups.numbers[F.group_floored]), groups.rows[R.group]
    floor, own = groups.rows[R.floor], groups.rows[R.pool]
    _own_thresholds(groups, v)
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


@kernel
def favorites_of_groups(groups, scores, best, ties):
    """a with full information and floors of groups: uniform on the largest w m of all arms.

    The floor of a group goes to its own largest. Replaces w m in `scores` by a.
    """
    rows = groups.rows
    n, group, floor, best_of, ties_of = scores.shape[0], rows[R.group], rows[R.floor], rows[R.pool], rows[R.count]
    for g in range(n):
        best_of[g] = ties_of[g] = 0.0
    for i in range(n):
        best_of[int(group[i])] = max(best_of[int(group[i])], scores[i])
    for i in range(n):
        ties_of[int(group[i])] += 1.0 if scores[i] >= TIE * best_of[int(group[i])] else 0.0
    for i in range(n):
        g, value = int(group[i]), scores[i]
        scores[i] = groups.numbers[F.unpromised] / ties if value >= TIE * best else 0.0
        if value >= TIE * best_of[g]:
            scores[i] += floor[g] / ties_of[g]


@kernel
def tails_in_groups(groups, scores, best, scale, values):
    """a with bandit feedback and floors of groups: 1/(n + scale (v_b - v_i)) on arms below the best.

    The floor of a group is divided the same way among its arms. Replaces v = w m in `scores` by a; `values` is scratch.
    """
    rows = groups.rows
    n, group, floor, keep = scores.shape[0], rows[R.group], rows[R.floor], groups.numbers[F.unpromised]
    best_of, count_of, ties_of, rest_of = rows[R.pool], rows[R.count], rows[R.group_share], rows[R.increment]
    for g in range(n):
        best_of[g] = count_of[g] = ties_of[g] = 0.0
        rest_of[g], values[g] = 1.0, scores[g]
    rest, ties = 1.0, 0.0
    for i in range(n):
        g = int(group[i])
        best_of[g] = max(best_of[g], values[i])
        count_of[g] += 1.0
        ties += 1.0 if values[i] >= TIE * best else 0.0
    for i in range(n):
        g = int(group[i])
        if values[i] >= TIE * best_of[g]:
            ties_of[g] += 1.0
        else:
            rest_of[g] -= 1.0 / (count_of[g] * (1.0 + scale / n * (best_of[g] - values[i])))
        if values[i] < TIE * best:
            rest -= 1.0 / (n + scale * (best - values[i]))
    for i in range(n):
        g = int(group[i])
        below, below_own = scale * (best - values[i]), scale / n * (best_of[g] - values[i])
        scores[i] = keep * (rest / ties if values[i] >= TIE * best else 1.0 / (n + below))
        own = rest_of[g] / ties_of[g] if values[i] >= TIE * best_of[g] else 1.0 / (count_of[g] * (1.0 + below_own))
        scores[i] += floor[g] * own
