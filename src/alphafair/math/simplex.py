"""Euclidean projection on the probability simplex.

    argmin_x ||x - v||  over  x >= 0, sum x = 1   is   x = max(v - theta, 0)   with   sum max(v - theta, 0) = 1.

For any set A of coordinates, theta_A = (sum_A v - 1)/|A| is a lower bound of theta, so any set is a valid
start: the next set {v > theta_A} contains the support, and later passes only drop coordinates. This usually takes a
handful of passes. If it takes more, with many arms, a pivot splits the rest, as in quickselect, so the expected time is
linear for any input. Both end with the same sum over the same set in the same order.
"""

import numpy as np

from alphafair.jit import kernel

MANY_ARMS, MANY_PASSES = 256, 6


@kernel
def above(v, theta):
    """Sum of the coordinates above theta; four partial sums, for instruction-level parallelism."""
    s0 = s1 = s2 = s3 = 0.0
    n = v.shape[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        s0 += v[i] if v[i] > theta else 0.0
        s1 += v[i + 1] if v[i + 1] > theta else 0.0
        s2 += v[i + 2] if v[i + 2] > theta else 0.0
        s3 += v[i + 3] if v[i + 3] > theta else 0.0
    for i in range(whole, n):
        s0 += v[i] if v[i] > theta else 0.0
    return (s0 + s1) + (s2 + s3)


@kernel
def number_above(v, theta):
    """Number of the coordinates above theta; a separate loop, because integers are counted eight at a time."""
    count = 0
    for i in range(v.shape[0]):
        count += 1 if v[i] > theta else 0
    return count


@kernel
def _split_by_pivot(v):
    """theta up to rounding, in expected linear time."""
    left = v.copy()
    n_left = left.shape[0]
    total = 0.0  # of the coordinates known to be in the support
    count = 0
    state = 1
    while n_left > 0:
        state = (state * 1103515245 + 12345) % 2147483648
        pivot = left[state % n_left]
        head = 0.0
        n_head = 0
        for i in range(n_left):
            if left[i] >= pivot:
                head += left[i]
                n_head += 1
        belongs = total + head - (count + n_head) * pivot < 1.0  # the pivot, and so all above it
        if belongs:
            total += head
            count += n_head
        kept = 0
        for i in range(n_left):
            if left[i] < pivot if belongs else left[i] > pivot:
                left[kept] = left[i]
                kept += 1
        n_left = kept
    return (total - 1.0) / count


@kernel
def settle(v, theta, out):
    """Write the projection of v to `out`, from any lower bound of theta; the closer, the fewer passes.

    v must not be much larger than 1: `project` shifts it first, and an ascent step never is.
    """
    n = v.shape[0]
    count = number_above(v, theta)
    n_passes = 0
    while True:
        if n_passes == MANY_PASSES and n > MANY_ARMS:
            theta = _split_by_pivot(v) - 1e-9  # below theta despite rounding
            count = number_above(v, theta)
        theta = (above(v, theta) - 1.0) / count
        before = count
        count = 0
        for i in range(n):
            out[i] = max(v[i] - theta, 0.0)
            count += 1 if v[i] > theta else 0
        n_passes += 1
        if count >= before:  # the same set, up to a coordinate equal to theta that rounding brings back
            return


@kernel
def project(v, out):
    """Project v on the simplex; v may have any size, because adding a constant to v changes nothing."""
    largest = v[0]
    for i in range(1, v.shape[0]):
        largest = max(largest, v[i])
    shifted = np.empty(v.shape[0])
    for i in range(v.shape[0]):
        shifted[i] = v[i] - largest
    settle(shifted, -1.0, out)
