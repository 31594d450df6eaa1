"""The central path of max over (simplex_n)^m of sum_i f_i phi(base_i + sum_j W_ji x_ji), for any finite alpha > 0.

Optimality needs a price w per arm and a multiplier mu per context:

    w_i = f_i R_i^(-alpha), R_i = base_i + sum_j W_ji x_ji, sum_i x_ji = 1, z_ji = mu_j - W_ji w_i >= 0, x_ji z_ji = 0

`follow` requires x z = t instead and drives t to 0, by Mehrotra's primal-dual predictor-corrector. With d = x/z
and x z to change by z (c - x), a Newton step on these equations, the first of them in logarithms, is

    [ R/(alpha w) + sum_j W^2 d   -(W d)' ] [ dw  ]   [ -(R/alpha) log(w R^alpha/f) + sum_j W (x - c) ]
    [          -(W d)            sum_i d  ] [ dmu ] = [ sum_i c - 1                                   ]

    dz = dmu - W dw ,   dx = c - x - d dz

Both blocks on the diagonal are diagonal themselves: the longer side is eliminated, a square of the shorter one
is factored, and an iteration costs O(m n min(m, n)). Inner loops run over one row from its first entry and gather by
arm what they sum, which the compiler vectorizes.
"""

import math

import numpy as np

from alphafair.jit import kernel, long_kernel
from alphafair.math.cholesky import BLOCK, factor, subtract
from alphafair.math.cholesky import solve as solve_factored
from alphafair.math.log_barrier import level

NEAR_ONE = 0.999  # up to this alpha gaps are relative to the value, above it to sum_i w_i R_i
MOST_STEPS = 200
AHEAD = 1e4  # the largest ratio of the whole gap to x z
CALM = 4  # steps without halving the gap, before x and z take steps of one length
PATIENCE = 20  # such steps with x z small enough, before it stops because of rounding


@long_kernel
def eliminate(weight, x, z, wide, floor, stiffness, flow, inverse, square):
    """Eliminate the groups (contexts, or arms if wide) from the Newton system: `square` couples the others, the nodes.

    Its diagonal is sum W^2 d (D - d)/D, not sum W^2 d - sum (W d)^2/D, and D - d for the largest d is the sum of
    the others: every entry is right to the last digits, however lopsided d becomes.
    """
    n_groups, size = flow.shape
    own, other, diagonal = np.empty(size), np.empty(size), np.zeros(size)
    block = np.zeros((BLOCK, size))
    for g in range(n_groups):
        r = g % BLOCK
        if wide:
            for k in range(size):
                other[k] = x[k, g] / z[k, g]
                flow[g, k] = weight[k, g] * other[k]
                own[k] = weight[k, g] * flow[g, k]
        else:
            for k in range(size):
                own[k] = x[g, k] / z[g, k]
                flow[g, k] = weight[g, k] * own[k]
                other[k] = weight[g, k] * flow[g, k]
        top, total, others = 0, floor[g], floor[g]
        for k in range(size):
            total += own[k]
            top = k if own[k] > own[top] else top
        for k in range(size):
            others += own[k] if k != top else 0.0
        inverse[g] = 1.0 / total
        root = math.sqrt(inverse[g])
        for k in range(size):
            own[k] = total - own[k]
        own[top] = others
        for k in range(size):
            diagonal[k] += other[k] * (own[k] * inverse[g])
        for k in range(size):
            block[r, k] = flow[g, k] * root
        if r == BLOCK - 1 or g == n_groups - 1:
            subtract(block, 0, r + 4 - r % 4, 0, square)
            block[:, :] = 0.0
    for k in range(size):
        square[k, k] = diagonal[k] if wide else diagonal[k] + stiffness[k]


@kernel
def _solve(flow, inverse, square, groups, nodes):
    """The Newton system, with square = U'U: right-hand sides of groups and nodes in, the solution out, in place."""
    n_groups, size = flow.shape
    for g in range(n_groups):
        share = groups[g] * inverse[g]
        for k in range(size):
            nodes[k] += flow[g, k] * share
    solve_factored(square, nodes)
    for g in range(n_groups):
        total = groups[g]
        for k in range(size):
            total += flow[g, k] * nodes[k]
        groups[g] = total * inverse[g]


@kernel
def _begin(weight, prices, barrier, x, z):
    """x and z of every row with x z = t and sum x = 1, given the prices: z = mu - W w for the right mu."""
    m, n = weight.shape
    for j in range(m):
        best = 0.0
        for i in range(n):
            best = max(best, weight[j, i] * prices[i])
        for i in range(n):
            z[j, i] = (best - weight[j, i] * prices[i]) / barrier
        mu = level(z[j], 1.0, 1e-6, x[j])
        for i in range(n):
            x[j, i] = 1.0 / (mu + z[j, i])
            z[j, i] = barrier * (mu + z[j, i])


@kernel
def money_per_value(alpha):
    """sum_i w_i R_i over the value, 1 - alpha; 1 above NEAR_ONE, where gaps are relative to the sum itself.

    Near alpha = 1 the value is nearly all constant, and from 1 on it is 0 or negative. A gap relative to sum_i w_i R_i
    is one in welfare for every alpha: docs/background/theory.md, Theorem B.
    """
    return 1.0 - alpha if alpha <= NEAR_ONE else 1.0


@long_kernel
def follow(weight, base, factors, alpha, tolerance, barrier, prices, x, earned):
    """The central path from t = barrier to a gap of tolerance * value: prices, x and R in place; the steps taken.

    Above NEAR_ONE `value` is sum_i w_i R_i.
    """
    m, n = weight.shape
    z, move, change = np.empty((m, n)), np.zeros((m, n)), np.empty(n)
    dmu, dw, residual, stiffness = np.zeros(m), np.zeros(n), np.empty(n), np.empty(n)
    product, lowest, highest, first, second = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)  # by arm
    log_factors = np.empty(n)
    for i in range(n):
        log_factors[i] = math.log(factors[i])
    wide = m < n
    groups, nodes = (dw, dmu) if wide else (dmu, dw)
    floor = stiffness if wide else np.zeros(m)
    size = nodes.shape[0]
    flow, inverse, square = np.empty((groups.shape[0], size)), np.empty(groups.shape[0]), np.empty((size, size))
    _begin(weight, prices, barrier, x, z)
    step_x, step_z, waited, late, least_gap = 0.0, 0.0, 0, 0, np.inf
    for step in range(MOST_STEPS):
        for i in range(n):
            prices[i] += step_z * dw[i]
            product[i], earned[i] = 0.0, base[i]
        for j in range(m):
            for i in range(n):
                x[j, i] += step_x * move[j, i]
            for i in range(n):
                z[j, i] += step_z * (dmu[j] - weight[j, i] * dw[i])
            for i in range(n):
                product[i] += x[j, i] * z[j, i]
                earned[i] += weight[j, i] * x[j, i]
        products = value = paid = worst = 0.0
        for i in range(n):
            products += product[i]
            residual[i] = -math.log(prices[i]) - alpha * math.log(earned[i]) + log_factors[i]
            stiffness[i] = earned[i] / (alpha * prices[i])
            if alpha <= NEAR_ONE:
                value += earned[i] * prices[i] / (1.0 - alpha)
            else:
                value += earned[i] * prices[i]
            paid += (earned[i] - base[i]) * prices[i]
            worst = max(worst, abs(residual[i]))
        gap = products + 2.0 * worst * paid  # the most that prices R^(-alpha) can make of it
        waited = 0 if gap < 0.5 * least_gap else waited + 1
        late = min(late + 1, waited) if products <= tolerance * value else 0
        least_gap = min(least_gap, gap)
        if gap <= tolerance * value or late > PATIENCE:
            return step
        square[:, :] = 0.0
        eliminate(weight, x, z, wide, floor, stiffness, flow, inverse, square)
        factor(square)
        for i in range(n):  # the predictor: straight to x z = 0
            dw[i] = stiffness[i] * prices[i] * residual[i] + earned[i] - base[i]
        dmu[:] = -1.0
        _solve(flow, inverse, square, groups, nodes)
        bound = 3.0 * products / (m * n)  # of a second-order term: a few outliers must not bend the whole step
        lowest[:], highest[:], first[:], second[:] = 0.0, 0.0, 0.0, 0.0
        for j in range(m):
            for i in range(n):
                change[i] = (dmu[j] - weight[j, i] * dw[i]) / z[j, i]  # dz/z, and dx/x is -1 - dz/z
            for i in range(n):
                lowest[i], highest[i] = min(lowest[i], change[i]), max(highest[i], change[i])
            for i in range(n):
                move[j, i] = x[j, i] * z[j, i] * change[i]  # x dz
                first[i] += move[j, i]
            for i in range(n):
                move[j, i] *= 1.0 + change[i]  # -dx dz
                second[i] += move[j, i]
            for i in range(n):
                move[j, i] = min(max(move[j, i], -bound), bound) / z[j, i]
        least = most = along = cross = 0.0
        for i in range(n):
            least, most = min(least, lowest[i]), max(most, highest[i])
            along += first[i]
            cross -= second[i]
        step_x, step_z = 1.0 / (1.0 + most), 1.0 / max(1.0, -least)
        for i in range(n):
            step_z = min(step_z, 1.0 / max(1.0, -dw[i] / prices[i]))
        left = (1.0 - step_x) * products + (step_z - step_x) * along + step_x * step_z * cross
        centering = (left / products) * (left / products) * (left / products)
        if gap > AHEAD * products and worst > 0.5:  # x z must wait for prices that are far from R^(-alpha)
            centering = 1.0
        target = max(centering * products, 0.1 * tolerance * value) / (m * n)
        for i in range(n):  # the corrector: to x z = target, second-order terms included
            a = min(max(dw[i] / prices[i], -0.5), 0.5)
            b = min(max((prices[i] * residual[i] - dw[i]) * stiffness[i] / earned[i], -0.5), 0.5)
            bend = 0.5 * (a * a + alpha * b * b)
            dw[i] = stiffness[i] * prices[i] * (residual[i] + bend) + earned[i] - base[i]
        for j in range(m):
            dmu[j] = -1.0
            for i in range(n):
                move[j, i] += target / z[j, i]
            for i in range(n):
                dmu[j] += move[j, i]
            for i in range(n):
                dw[i] -= weight[j, i] * move[j, i]
        _solve(flow, inverse, square, groups, nodes)
        reach = min(max(0.99, 1.0 - centering), 1.0 - 1e-6)
        lowest[:], highest[:] = -reach, reach
        for j in range(m):
            for i in range(n):
                change[i] = (dmu[j] - weight[j, i] * dw[i]) / z[j, i]
                lowest[i] = min(lowest[i], change[i])
            for i in range(n):
                move[j, i] -= x[j, i] * (1.0 + change[i])
                highest[i] = max(highest[i], -move[j, i] / x[j, i])
        longest_x = longest_z = reach
        for i in range(n):
            longest_x = max(longest_x, highest[i])
            longest_z = max(longest_z, -lowest[i], -dw[i] / prices[i])
        step_x, step_z = reach / longest_x, reach / longest_z
        if waited > CALM:  # steps of two lengths can take turns for ever
            step_x = step_z = min(step_x, step_z)
    return MOST_STEPS
