"""Distributions with a cap, which slates are drawn from: 0 <= y <= top, sum y = 1.

A decision that shows k of n arms has inclusion probabilities p = nu + keep y, with nu the floor of every arm and

    keep = k - n nu ;   top = min(1, (1 - nu)/keep) ;   spread = sqrt(top min(1, n top - 1))

so that p <= 1 and sum p = k. Between two points of this set no entry moves by more than `top`, and no more mass than
min(1, n top - 1), the room above a point: its diameter is at most sqrt(2) `spread`. With k = 1 the cap is 1, and the
set is the simplex. With k = n there is one point, 1/n.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.math.floors import TIE
from alphafair.math.log_barrier import level, power_sums

ROUNDING = 1e-9
MOST_STEPS = 60  # of Newton's method, which takes about five
LEAST_MASS = 1e-100  # of the arms below the cap, which rounding may leave without any


@kernel
def frame(n, k, floor):
    """Return keep, top and spread."""
    if k >= n:
        return n * (1.0 - floor), 1.0 / n, 0.0
    keep = k - n * floor
    if keep <= 0.0:  # k = 1, and the floors leave nothing
        return 0.0, 1.0, 1.0
    if k == 1:
        return keep, 1.0, 1.0
    top = min(1.0, (1.0 - floor) / keep)
    return keep, top, math.sqrt(max(0.0, top * min(1.0, n * top - 1.0)))


@kernel
def inclusion(n, k, floor, keep, y):
    """Return p = nu + keep y of an arm in a slate of k."""
    return 1.0 if k >= n else min(1.0, floor + keep * y)


@kernel
def full_count(top):
    """Return how many arms the mass 1 reaches."""
    return max(1, int(np.ceil(1.0 / top - ROUNDING)))


@kernel
def bar(v, m, largest):
    """Return the m-th largest entry of v, counting ties; `largest` is scratch (n)."""
    n_kept = 0
    for i in range(v.shape[0]):
        if n_kept == m and v[i] <= largest[m - 1]:
            continue
        place = min(n_kept, m - 1)
        while place > 0 and largest[place - 1] < v[i]:
            largest[place] = largest[place - 1]
            place -= 1
        largest[place] = v[i]
        n_kept = min(n_kept + 1, m)
    return largest[m - 1]


@kernel
def favorites(scores, top, largest):
    """Replace `scores` by a distribution: `top` on those above the bar, the rest on those at it; `largest` is scratch.

    The bar is the least score that the mass 1 reaches.
    """
    n, n_above, n_at = scores.shape[0], 0, 0
    limit = bar(scores, min(full_count(top), n), largest)
    for i in range(n):
        if TIE * scores[i] > limit:
            n_above += 1
        elif scores[i] >= TIE * limit:
            n_at += 1
    for i in range(n):
        if TIE * scores[i] > limit:
            scores[i] = top
        else:
            scores[i] = (1.0 - n_above * top) / n_at if scores[i] >= TIE * limit else 0.0


@kernel
def settle_capped(v, top, out):
    """Write the projection of v, clip(v - theta, 0, top) with sum 1, to `out`.

    The arms below the cap are projected on the mass that is left. Those that exceed the cap are fixed at it, and the
    rest again. theta only falls, so a fixed arm stays fixed: they are the arms above `edge`.
    """
    n = v.shape[0]
    if full_count(top) >= n:
        for i in range(n):
            out[i] = 1.0 / n
        return
    edge, theta, left, n_fixed = np.inf, 0.0, 1.0, 0
    while True:
        theta, before = -np.inf, n + 1
        while True:  # any set of arms gives a lower bound of theta, as in `simplex`
            total, count = 0.0, 0
            for i in range(n):
                if theta < v[i] <= edge:
                    total += v[i]
                    count += 1
            if count == 0 or count >= before:
                break
            theta, before = (total - left) / count, count
        before, n_fixed, next_edge = n_fixed, 0, theta + top
        for i in range(n):
            n_fixed += 1 if v[i] > next_edge else 0
        if n_fixed <= before:
            break
        edge, left = next_edge, max(0.0, 1.0 - n_fixed * top)
    for i in range(n):
        out[i] = min(max(v[i] - theta, 0.0), top)


@kernel
def level_below(distances, edge, left, guess):
    """Return mu with sum 1/(mu + d_i) = `left` over the arms with d_i >= edge, by Newton's method on left/sum - 1.

    It is concave in mu, so from the left it increases to the root, and from the right its first step lands on the left,
    but not below 1/left less the smallest d.
    """
    n, smallest = distances.shape[0], np.inf
    for i in range(n):
        if distances[i] >= edge:
            smallest = min(smallest, distances[i])
    least = 1.0 / left - smallest
    mu = max(least, guess)
    for _ in range(MOST_STEPS):  # pragma: no branch - it ends by itself
        total = squares = 0.0
        for i in range(n):
            if distances[i] >= edge:
                w = 1.0 / (mu + distances[i])
                total += w
                squares += w * w
        step = max(least - mu, total * (total - left) / (left * squares))
        mu += step
        if abs(step) <= 1e-13 * (mu + smallest):
            break
    return mu


@kernel
def capped_barrier(distances, top, guess, out):
    """Write argmin <d, y> - sum ln y over 0 <= y <= top, sum y = 1 to `out`: min(top, 1/(mu + d)).

    The smallest distance is 0. Returns mu without the cap, where the next search may begin. With the cap mu only falls,
    so arms that have reached it stay there: they are those below `edge`.
    """
    n = distances.shape[0]
    without = mu = level(distances, guess, 1e-5, out)
    if full_count(top) >= n:
        for i in range(n):
            out[i] = 1.0 / n
        return without
    edge, n_fixed, left = -np.inf, 0, 1.0
    while True:
        before, next_edge, n_fixed = n_fixed, 1.0 / top - mu, 0
        for i in range(n):
            n_fixed += 1 if distances[i] < next_edge else 0
        if n_fixed <= before:
            break
        edge, left = next_edge, max(LEAST_MASS, 1.0 - n_fixed * top)
        mu = level_below(distances, edge, left, mu)
    if n_fixed == 0:
        for i in range(n):
            out[i] = 1.0 / (mu + distances[i])
        total, _, _ = power_sums(out)
        for i in range(n):
            out[i] /= total
        return without
    total = 0.0
    for i in range(n):
        out[i] = 1.0 / (mu + distances[i])
        total += out[i] if distances[i] >= edge else 0.0
    for i in range(n):
        out[i] = min(top, out[i] * left / total) if distances[i] >= edge else top
    return without


@kernel
def stability_capped(y, top, eta, estimates, distances, q):
    """M(eta) of `alphafair.math.log_barrier` with the cap, for a loss estimate of every arm, 0 for those not seen.

    The maximum is over distributions with the cap: at q = min(top, 1/(mu + 1/y + eta l)). Replaces `q`, `distances`.
    """
    n, smallest = y.shape[0], np.inf
    for i in range(n):
        distances[i] = 1.0 / y[i] + eta * estimates[i]
        smallest = min(smallest, distances[i])
    for i in range(n):
        distances[i] -= smallest
    capped_barrier(distances, top, smallest, q)
    gained = moved = 0.0
    for i in range(n):
        ratio = q[i] / y[i]
        gained += estimates[i] * (y[i] - q[i])
        moved += ratio - 1.0 - math.log(ratio)
    return max(0.0, gained - moved / eta)
