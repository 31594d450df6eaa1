"""The best fixed policy in hindsight: max over (simplex_n)^m of sum_i phi(1 + sum_j W_ji x_ji), with a certificate.

Optimality asks for a multiplier mu a context, with w_i = R_i^(-alpha) and R = 1 + sum_j W_j x_j:

    z_ji = mu_j - W_ji w_i >= 0 ,   x_ji z_ji = 0 ,   sum_i x_ji = 1.

A primal-dual interior point asks for x z = t instead and drives t to 0 (Mehrotra's predictor and corrector). With
d = x/z, h_i = alpha R_i^(-alpha-1), residual r = mu - W w - z and x z to change by c, a Newton step is

    dz = dmu + W h u + r ,   dx = c/z - d dz ,   u_i = sum_j W_ji dx_ji ,   sum_i dx_ji = 0

and eliminating dx and dmu leaves n equations for v = h u, symmetric and positive definite:

    [ 1/h_i + sum_j W_ji^2 d_ji - sum_j (W d)_ji (W d)_jk / D_j ] v = sum_j W_ji (s_ji - d_ji a_j/D_j),
    s = c/z - d r ,   a_j = sum_i s_ji ,   D_j = sum_i d_ji.

An iteration costs O(m n^2 + n^3). Nothing but `certify` has to be trusted.
"""

import math

import numpy as np

from alphafair.jit import kernel

EPSILON = 2.220446049250313e-16
BLOCK = 32  # rows of the problem taken together, so that a large matrix is read once for all of them
MOST_STEPS = 200
NEARNESS = 1e-2  # of a warm start to the optimum of the prefix before
PATIENCE = 15  # steps without a better certificate before giving up


@kernel
def certify(totals, x, alpha, earned, prices):
    """R, w = phi'(R), the value, and a bound of OPT - value, for rows x >= 0 that sum to 1.

    Concavity: OPT - value <= sum_j (mu_j - sum_i x_ji W_ji w_i) = sum_ji x_ji (mu_j - W_ji w_i), mu_j = max_i W_ji w_i.
    Every term is >= 0, so nothing cancels. What rounding may hide is added: R is a compensated sum, so R, w and the
    value are off by a few epsilon; a difference by 2 epsilon mu_j; a row sums to 1 up to n/2 epsilon.
    """
    m, n = totals.shape
    lost = np.zeros(n)
    for i in range(n):
        earned[i] = 1.0
    for j in range(m):
        for i in range(n):
            term = totals[j, i] * x[j, i] - lost[i]
            total = earned[i] + term
            lost[i] = (total - earned[i]) - term
            earned[i] = total
    value = 0.0
    for i in range(n):
        prices[i] = math.pow(earned[i], -alpha)
        value += earned[i] * prices[i]
    value /= 1.0 - alpha
    gap = (8.0 + n) * EPSILON * value
    for j in range(m):
        best = 0.0
        for i in range(n):
            best = max(best, totals[j, i] * prices[i])
        slack = (4.0 + 0.5 * n) * EPSILON * best
        for i in range(n):
            slack += x[j, i] * (best - totals[j, i] * prices[i])
        gap += slack
    return value, gap


@kernel
def _system(totals, x, z, widths, matrix):
    """sum_j W^2 d - (W d)(W d)'/D, lower half, without the cancellation in rows where one arm dominates."""
    m, n = totals.shape
    scaled, inverses = np.empty((BLOCK, n)), np.zeros(BLOCK)
    for i in range(n):
        for k in range(i + 1):
            matrix[i, k] = 0.0
    for first in range(0, m, BLOCK):
        last = min(first + BLOCK, m)
        for j in range(first, last):
            top, largest, width = 0, 0.0, 0.0
            for i in range(n):
                d = x[j, i] / z[j, i]
                scaled[j - first, i] = totals[j, i] * d
                width += d
                if d > largest:
                    top, largest = i, d
            rest = 0.0
            for i in range(n):
                if i != top:
                    rest += x[j, i] / z[j, i]
            widths[j] = width
            inverses[j - first] = 1.0 / width
            for i in range(n):
                others = rest if i == top else width - x[j, i] / z[j, i]
                matrix[i, i] += scaled[j - first, i] * totals[j, i] * (others / width)
        for b in range(last - first, BLOCK):
            for i in range(n):
                scaled[b, i] = 0.0
        for i in range(n):
            for b in range(0, last - first, 4):  # four rows at a time: the matrix is read and written once for them
                f0, f1 = scaled[b, i] * inverses[b], scaled[b + 1, i] * inverses[b + 1]
                f2, f3 = scaled[b + 2, i] * inverses[b + 2], scaled[b + 3, i] * inverses[b + 3]
                for k in range(i):
                    near = f0 * scaled[b, k] + f1 * scaled[b + 1, k]
                    matrix[i, k] -= near + (f2 * scaled[b + 2, k] + f3 * scaled[b + 3, k])


@kernel
def _dot(matrix, i, k, count):
    """First entries of two rows, multiplied and added; four sums side by side, because one waits for itself."""
    s0 = s1 = s2 = s3 = 0.0
    whole = count - count % 4
    for c in range(0, whole, 4):
        s0 += matrix[i, c] * matrix[k, c]
        s1 += matrix[i, c + 1] * matrix[k, c + 1]
        s2 += matrix[i, c + 2] * matrix[k, c + 2]
        s3 += matrix[i, c + 3] * matrix[k, c + 3]
    for c in range(whole, count):
        s0 += matrix[i, c] * matrix[k, c]
    return (s0 + s1) + (s2 + s3)


@kernel
def _factor(matrix):
    """Cholesky in place, lower half."""
    for i in range(matrix.shape[0]):
        for k in range(i):
            matrix[i, k] = (matrix[i, k] - _dot(matrix, i, k, k)) / matrix[k, k]
        pivot = matrix[i, i]
        matrix[i, i] = math.sqrt(max(pivot - _dot(matrix, i, i, i), 1e-14 * pivot))


@kernel
def _substitute(matrix, v):
    """Solve with the factor, in place."""
    n = matrix.shape[0]
    for i in range(n):
        for k in range(i):
            v[i] -= matrix[i, k] * v[k]
        v[i] /= matrix[i, i]
    for i in range(n - 1, -1, -1):
        v[i] /= matrix[i, i]
        for k in range(i):
            v[k] -= matrix[i, k] * v[i]


@kernel
def _direction(totals, x, z, mu, prices, sizes, matrix, widths, target, correct, dx, dz, dmu, v):
    """A Newton step toward x z = target, and how much of it keeps x and z positive.

    `correct` adds the second-order term of the step that dx and dz still hold.
    """
    m, n = totals.shape
    for i in range(n):
        v[i] = 0.0
    for j in range(m):
        a = 0.0
        for i in range(n):
            c = target * sizes[j] - x[j, i] * z[j, i] - correct * dx[j, i] * dz[j, i]
            residual = mu[j] - totals[j, i] * prices[i] - z[j, i]
            dx[j, i] = (c - x[j, i] * residual) / z[j, i]
            dz[j, i] = residual
            a += dx[j, i]
        dmu[j] = a / widths[j]
        for i in range(n):
            v[i] += totals[j, i] * (dx[j, i] - x[j, i] / z[j, i] * dmu[j])
    _substitute(matrix, v)
    longest_x = longest_z = 1.0
    for j in range(m):
        shift = 0.0
        for i in range(n):
            shift += totals[j, i] * (x[j, i] / z[j, i]) * v[i]
        dmu[j] -= shift / widths[j]
        for i in range(n):
            move = dmu[j] + totals[j, i] * v[i]
            dx[j, i] -= x[j, i] / z[j, i] * move
            dz[j, i] += move
            longest_x = max(longest_x, -dx[j, i] / x[j, i])
            longest_z = max(longest_z, -dz[j, i] / z[j, i])
    return 1.0 / longest_x, 1.0 / longest_z


@kernel
def follow(totals, alpha, tolerance, x, z, mu, earned):
    """Drive an interior point x, z, mu to the optimum: value, certified gap, steps; x and R are the best certified."""
    m, n = totals.shape
    prices, v, matrix = np.empty(n), np.empty(n), np.empty((n, n))
    widths, dmu = np.empty(m), np.empty(m)
    dx, dz, best_x = np.zeros((m, n)), np.zeros((m, n)), x.copy()
    value, gap = certify(totals, x, alpha, earned, prices)
    best_value, best_gap = value, gap
    steps = waited = 0
    sizes, size = mu.copy(), 0.0
    for j in range(m):
        size += sizes[j]
    while best_gap > tolerance * best_value and steps < MOST_STEPS and waited < PATIENCE:
        _system(totals, x, z, widths, matrix)
        for i in range(n):
            matrix[i, i] += earned[i] / (alpha * prices[i])  # 1/h
        _factor(matrix)
        short_x, short_z = _direction(totals, x, z, mu, prices, sizes, matrix, widths, 0.0, 0.0, dx, dz, dmu, v)
        before = after = 0.0
        for j in range(m):
            for i in range(n):
                before += x[j, i] * z[j, i]
                after += (x[j, i] + short_x * dx[j, i]) * (z[j, i] + short_z * dz[j, i])
        target = before / (n * size) * (after / before) ** 3
        short_x, short_z = _direction(totals, x, z, mu, prices, sizes, matrix, widths, target, 1.0, dx, dz, dmu, v)
        for j in range(m):
            total = 0.0
            for i in range(n):
                x[j, i] += min(1.0, 0.995 * short_x) * dx[j, i]
                z[j, i] += min(1.0, 0.995 * short_z) * dz[j, i]
                total += x[j, i]
            mu[j] += min(1.0, 0.995 * short_z) * dmu[j]
            for i in range(n):
                x[j, i] /= total
        value, gap = certify(totals, x, alpha, earned, prices)
        steps += 1
        waited = 0 if gap < 0.9 * best_gap else waited + 1
        if gap < best_gap:
            best_value, best_gap = value, gap
            for j in range(m):
                for i in range(n):
                    best_x[j, i] = x[j, i]
    for j in range(m):
        for i in range(n):
            x[j, i] = best_x[j, i]
    certify(totals, x, alpha, earned, prices)
    return best_value, best_gap, steps


@kernel
def begin(totals, alpha, nearness, x, z, mu):
    """An interior point around the rows x: no x below `nearness`/n, no multiplier that close to a price.

    Then x z is about nearness mu for every entry, on the support and off it: a centred start. 1 forgets x.
    """
    m, n = totals.shape
    earned, prices = np.empty(n), np.empty(n)
    for j in range(m):
        for i in range(n):
            x[j, i] = (1.0 - nearness) * x[j, i] + nearness / n
    certify(totals, x, alpha, earned, prices)
    for j in range(m):
        best = 0.0
        for i in range(n):
            best = max(best, totals[j, i] * prices[i])
        mu[j] = (1.0 + 0.5 * nearness) * best
        for i in range(n):
            z[j, i] = mu[j] - totals[j, i] * prices[i]


@kernel
def best_arms(totals, x):
    """alpha = 0: every row all on its largest total."""
    for j in range(totals.shape[0]):
        top = 0
        for i in range(totals.shape[1]):
            x[j, i] = 0.0
            if totals[j, i] > totals[j, top]:
                top = i
        x[j, top] = 1.0


@kernel
def solve(totals, alpha, tolerance, nearness, x, z, mu, earned):
    """The optimum for rows that are not all zero, begun at that nearness to x; value, certified gap and steps."""
    if alpha == 0.0:
        best_arms(totals, x)
        value, gap = certify(totals, x, alpha, earned, np.empty(totals.shape[1]))
        return value, gap, 0
    begin(totals, alpha, nearness, x, z, mu)
    value, gap, steps = follow(totals, alpha, tolerance, x, z, mu, earned)
    if gap > tolerance * value and nearness < 1.0:  # too near for comfort: begin from the middle
        begin(totals, alpha, 1.0, x, z, mu)
        value, gap, more = follow(totals, alpha, tolerance, x, z, mu, earned)
        steps += more
    return value, gap, steps


@kernel
def add_rewards(contexts, items, reward_table, totals):
    """W_ji += r_i(t) for the rounds of an indexed stream."""
    for t in range(contexts.shape[0]):
        context, item = np.int64(contexts[t]), np.int64(items[t])
        for i in range(totals.shape[1]):
            totals[context, i] += reward_table[item, i]


@kernel
def curve(contexts, items, reward_table, rounds, alpha, tolerance, places, totals, x, z, mu, values, gaps):
    """The optimum after each of the rounds (counted from the start of `contexts`), begun from the one before.

    places[c] is the row of context c, -1 until it has earned something: rows of zeros have no part in the problem.
    """
    n = totals.shape[1]
    earned = np.empty(n)
    used = 0
    for c in range(places.shape[0]):
        used = max(used, places[c] + 1)
    t = 0
    for k in range(rounds.shape[0]):
        while t < rounds[k]:
            context, item = np.int64(contexts[t]), np.int64(items[t])
            most = 0.0
            for i in range(n):
                most = max(most, reward_table[item, i])
            if most > 0.0 and places[context] < 0:
                places[context] = used
                for i in range(n):
                    x[used, i] = 1.0 / n
                used += 1
            if most > 0.0:
                for i in range(n):
                    totals[places[context], i] += reward_table[item, i]
            t += 1
        values[k], gaps[k], _ = solve(totals[:used], alpha, tolerance, NEARNESS, x[:used], z[:used], mu[:used], earned)
