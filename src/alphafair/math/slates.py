"""Slates: draw k arms with given probabilities of inclusion, with one uniform number, and restrict these to some arms.

Systematic sampling (Madow, 1949): with the arms in some order, the arm in whose interval of cumulative probability
u + s falls is shown, for s = 0 ... k-1. Arm i is in the slate with probability p_i exactly, whatever the order. In a
fixed order neighbors would never be shown together, so the uniform number gives the order too: its 53 bits start
Lehmer's generator, 48271 s mod (2^31 - 1), which shuffles the arms by Fisher and Yates. About 2^22 uniform numbers lead
to each order, so no p_i is off by more than 2^-21 within one. The slots are shuffled as well: arm i is in each of them
with probability p_i/k.
"""

import numpy as np

from alphafair.jit import kernel
from alphafair.math.floors import LEAST_PROPENSITY, F

MODULUS, MULTIPLIER = 2147483647, 48271
SHOWN, ORDER = 0, 1  # rows of the table that a slate is written to: its arms first; and the order, as work space


@kernel
def next_state(state):
    """Return the next state of the generator."""
    return MULTIPLIER * state % MODULUS


@kernel
def shuffle(uniform, order):
    """Write a permutation of 0 ... n-1 to `order`, and return the state of the generator after it."""
    bits = np.int64(uniform * 9007199254740992.0)
    state = 1 + (bits % 2147483646 + 16807 * (bits // 2147483646 % 65536)) % 2147483646
    for _ in range(4):
        state = next_state(state)
    n = order.shape[0]
    for i in range(n):
        order[i] = i
    for i in range(n - 1, 0, -1):
        state = next_state(state)
        j = state * (i + 1) // MODULUS
        order[i], order[j] = order[j], order[i]
    return state


@kernel
def draw_slate(p, k, uniform, slate):
    """Draw k arms with probabilities of inclusion p to the first cells of a row, and return how many there are.

    Fewer than k only if p does not sum to k.
    """
    n, shown, order = p.shape[0], slate[SHOWN], slate[ORDER]
    if k == 1:
        for i in range(n):
            order[i] = i
        state = np.int64(1)
    else:
        state = shuffle(uniform, order)
    total, taken = 0.0, 0
    for i in range(n):
        arm = order[i]
        total += p[arm]
        if taken < k and uniform + taken < total and p[arm] > 0.0:
            shown[taken] = arm
            taken += 1
    for i in range(n - 1, -1, -1):  # rounding: the sum is below k
        if taken == k:
            break
        arm, is_shown = order[i], False
        for slot in range(taken):
            is_shown |= shown[slot] == arm
        if p[arm] > 0.0 and not is_shown:
            shown[taken] = arm
            taken += 1
    for a in range(k - 1, 0, -1):
        state = next_state(state)
        j = state * (a + 1) // MODULUS
        shown[a], shown[j] = shown[j], shown[a]
    return taken


@kernel
def restrict(p, available, k, floor):
    """Restrict probabilities of inclusion to the available arms, in place; return how many of them are shown.

    What p has above the floors keeps its proportions. Arms that would rise above 1 are fixed there, and the rest again.
    """
    n, n_available = p.shape[0], 0
    for i in range(n):
        n_available += 1 if available[i] else 0
    if n_available <= k:
        for i in range(n):
            p[i] = 1.0 if available[i] else 0.0
        return n_available
    for i in range(n):
        p[i] = max(0.0, p[i] - floor) if available[i] else 0.0
    n_fixed, some_rose = 0, True
    while some_rose:  # arms at 1 are marked by -1
        total, some_rose = 0.0, False
        left, n_free = max(0.0, k - floor * n_available - n_fixed * (1.0 - floor)), n_available - n_fixed
        for i in range(n):
            total += max(0.0, p[i])
        factor = left / total if total > 0.0 else 0.0
        for i in range(n):
            if floor + factor * p[i] > 1.0:
                p[i] = -1.0
                n_fixed += 1
                some_rose = True
    for i in range(n):
        if p[i] < 0.0:
            p[i] = 1.0
        elif available[i]:
            p[i] = floor + (factor * p[i] if total > 0.0 else left / n_free)
    return k


@kernel
def mask_slate(memory, p, available, k, uniform, slate):
    """The mask of all policies that show slates: restrict p, in place, and draw; return how many arms are shown."""
    n_shown = restrict(p, available, k, memory.groups.numbers[F.arm_floor])
    return draw_slate(p, n_shown, uniform, slate)


@kernel
def least_shown(groups, k, least):
    """Return a lower bound of the probability of an arm to be in a slate of k, if y was at least `least`."""
    keep = k - 1.0 + groups.numbers[F.least_unpromised]
    return max(min(1.0, groups.numbers[F.arm_floor] + keep * least), LEAST_PROPENSITY)
