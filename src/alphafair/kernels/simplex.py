"""Euclidean projection on the probability simplex.

    argmin_x ||x - v||  over  x >= 0, sum x = 1   is   x = max(v - theta, 0)   with   sum max(v - theta, 0) = 1.

For any set A of coordinates, theta_A = (sum_A v - 1)/|A| is a lower bound of theta, so any guess is a fair
start: the next set {v > theta_A} contains the support, and passes over it only ever drop coordinates. That
is a handful of passes for twenty arms. For thousands, a pivot splits what is left, as in quickselect, so the
expected time is linear whatever the input. Both end with the same sum over the same set in the same order.
"""

from alphafair.jit import kernel

MANY_ARMS = 256


@kernel
def above(v, theta):
    """Sum and number of the coordinates above theta; four sums side by side, because one waits for itself."""
    s0 = s1 = s2 = s3 = 0.0
    k0 = k1 = k2 = k3 = 0
    n = v.shape[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        v0, v1, v2, v3 = v[i], v[i + 1], v[i + 2], v[i + 3]
        s0 += v0 if v0 > theta else 0.0
        s1 += v1 if v1 > theta else 0.0
        s2 += v2 if v2 > theta else 0.0
        s3 += v3 if v3 > theta else 0.0
        k0 += 1 if v0 > theta else 0
        k1 += 1 if v1 > theta else 0
        k2 += 1 if v2 > theta else 0
        k3 += 1 if v3 > theta else 0
    for i in range(whole, n):
        s0 += v[i] if v[i] > theta else 0.0
        k0 += 1 if v[i] > theta else 0
    return (s0 + s1) + (s2 + s3), (k0 + k1) + (k2 + k3)


@kernel
def _split_by_pivot(v):
    """theta up to rounding, in expected linear time."""
    left = v.copy()
    n_left = left.shape[0]
    total = 0.0  # sum and number of the coordinates already known to be in the support
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
def threshold(v, total, count):
    """theta, given sum and number of some set of coordinates that holds the support.

    v must not be large against 1: `project` shifts it first, and the ascent step of a policy never is.
    """
    if v.shape[0] > MANY_ARMS:
        total, count = above(v, _split_by_pivot(v) - 1e-9)  # below theta whatever the rounding
    while True:
        theta = (total - 1.0) / count
        before = count
        total, count = above(v, theta)
        if count >= before:  # exactly the same set; by rounding, a coordinate equal to theta may come back
            return theta


@kernel
def project(v, out):
    """The point of the simplex nearest to v, whatever its size: adding a constant to v changes nothing."""
    largest = v[0]
    for i in range(1, v.shape[0]):
        largest = max(largest, v[i])
    for i in range(v.shape[0]):
        out[i] = v[i] - largest
    total, count = above(out, -1.0)
    theta = threshold(out, total, count)
    for i in range(v.shape[0]):
        out[i] = max(out[i] - theta, 0.0)
