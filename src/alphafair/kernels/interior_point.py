"""The best fixed policy in hindsight: max over (simplex_n)^m of sum_i phi(1 + sum_j W_ji x_ji), with proof.

Optimality needs prices w, one an arm, and a multiplier mu_j a context:

    w_i = R_i^(-alpha) ,   R_i = base_i + sum_j W_ji x_ji ,   sum_i x_ji = 1 ,   z_ji = mu_j - W_ji w_i >= 0 ,   x_ji z_ji = 0

`follow` replaces the last by x z = t and drives t to 0: Mehrotra's primal-dual predictor-corrector. With
d = x/z and h = alpha w/R, and c for what x z must change by, divided by z, a Newton step is

    [ 1/h + sum_j W^2 d    -(W d)' ] [ dw  ]   [ (log-residual of w)/(alpha/R) + R - base - sum_j W (x + c) ]
    [      -(W d)         sum_i d  ] [ dmu ] = [ -1 + sum_i c                                             ]

and dz = dmu - W dw, dx = c - x - d dz. Both blocks on the diagonal are diagonal, so the longer side is
eliminated and only a square of the shorter one is factored: O(m n min(m, n)) an iteration.

Prices settle most of the problem. Where W_ji w_i is clearly below the best of its row, x_ji = 0; a row with one
candidate left is settled. At most n - 1 rows share at the optimum, so among many contexts few are in doubt:
`solve` takes first prices from a sample of rows, keeps the candidates within a band of the best, and widens the
band until `certify`, which looks at every entry, is satisfied. Nothing but `certify` needs to be trusted.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.log_barrier import level

EPSILON = 2.220446049250313e-16
BLOCK = 32  # rows of a factor, or of an update, at a time
TILE = 256  # columns of an update at a time
MOST_STEPS = 100
MOST_STAGES = 12


@kernel
def certify(totals, x, alpha, earned, prices):
    """R, w = phi'(R), the value and its certified gap, rounding included, for rows x that sum to 1.

    Concavity: OPT - value <= sum_j (max_i W_ji w_i - sum_i x_ji W_ji w_i) = sum_ji x_ji (mu_j - W_ji w_i), every
    term >= 0, so nothing cancels. A product W w is off by half an epsilon, a difference of two by at most
    epsilon mu_j; a row that sums to 1 + s moves its context by s mu_j; R is a compensated sum, so the value is
    off by a few epsilon. All of that is added to the gap.
    """
    m, n = totals.shape
    carry = np.zeros(n)
    for i in range(n):
        earned[i] = 1.0
    for j in range(m):
        for i in range(n):
            term = totals[j, i] * x[j, i]
            total = earned[i] + term
            part = total - earned[i]
            carry[i] += (earned[i] - (total - part)) + (term - part)
            earned[i] = total
    value = 0.0
    for i in range(n):
        earned[i] += carry[i]
        prices[i] = math.pow(earned[i], -alpha)
        value += earned[i] * prices[i]
    value /= 1.0 - alpha
    gap = 0.0
    doubt = 0.0
    for j in range(m):
        best = 0.0
        for i in range(n):
            best = max(best, totals[j, i] * prices[i])
        if best > 0.0:
            slack = 0.0
            excess = -1.0
            for i in range(n):
                if x[j, i] > 0.0:
                    slack += x[j, i] * (best - totals[j, i] * prices[i])
                    excess += x[j, i]
            gap += slack
            doubt += best * (abs(excess) + 4.0 * EPSILON)
    return value, gap * (1.0 + (m + n) * EPSILON) + doubt + (8.0 + n * EPSILON) * EPSILON * value
