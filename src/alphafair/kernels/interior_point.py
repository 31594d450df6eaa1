"""The best fixed policy in hindsight: max over (simplex_n)^m of sum_i phi(1 + sum_j W_ji x_ji), with proof.

Optimality needs a price w an arm and a multiplier mu a context:

    w_i = R_i^(-alpha),  R_i = base_i + sum_j W_ji x_ji,  sum_i x_ji = 1,  z_ji = mu_j - W_ji w_i >= 0,  x_ji z_ji = 0

`follow` asks for x z = t instead and drives t to 0, by Mehrotra's primal-dual predictor-corrector. With d = x/z
and x z to change by z (c - x), a Newton step on these equations, the first of them in logarithms, is

    [ R/(alpha w) + sum_j W^2 d   -(W d)' ] [ dw  ]   [ -(R/alpha) log(w R^alpha) + sum_j W (x - c) ]
    [          -(W d)            sum_i d  ] [ dmu ] = [ sum_i c - 1                                 ]

    dz = dmu - W dw ,   dx = c - x - d dz

Both blocks on the diagonal are diagonal themselves: the longer side is eliminated, a square of the shorter one
is factored, and an iteration costs O(m n min(m, n)).

Prices settle most of it beforehand. Where W_ji w_i is clearly below the best of its row, x_ji = 0, and a row with
one candidate left is settled; at the optimum fewer than n rows share. So `solve` takes its first prices from
a sample of the rows, keeps the candidates within a band of the best, and widens the band until `certify`, which
looks at every entry, is content. Nothing but `certify` has to be trusted.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.log_barrier import level

EPSILON = 2.220446049250313e-16
BLOCK = 32  # rows at a time, in a factor and in an update
TILE = 256  # columns at a time
MOST_STEPS = 100
MOST_STAGES = 12
SAMPLE = 40  # rows an arm


@kernel
def certify(totals, x, alpha, earned, prices):
    """R, w = phi'(R), the value and its certified gap, rounding included, for rows x that sum to 1.

    Concavity: OPT - value <= sum_j (max_i W_ji w_i - sum_i x_ji W_ji w_i) = sum_ji x_ji (mu_j - W_ji w_i), where every
    term is >= 0 and nothing cancels. A difference mu_j - W_ji w_i is off by at most 2 epsilon mu_j; a row that
    sums to 1 + s moves its context by s mu_j; R is a compensated sum, so the value is off by a few epsilon and
    a half for every arm; w is off by 1 epsilon, which any price may be. All of it is added to the gap.
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
            rounding = 4.0
            for i in range(n):
                if x[j, i] > 0.0:
                    slack += x[j, i] * (best - totals[j, i] * prices[i])
                    excess += x[j, i]
                    rounding += 0.5
            gap += slack
            doubt += best * (abs(excess) + rounding * EPSILON)
    return value, gap * (1.0 + (m + n) * EPSILON) + doubt + (64.0 + 0.5 * n) * EPSILON * value


@kernel
def _subtract_squares(v, first, last, low, square):
    """square[a, b] -= sum_r v[r, a] v[r, b] over the rows first <= r < last, for low <= a <= b, tile by tile."""
    n = square.shape[0]
    for left in range(low, n, TILE):
        right = min(left + TILE, n)
        for top in range(low, right, BLOCK):
            bottom = min(top + BLOCK, right)
            whole = last - (last - first) % 4
            for r in range(first, whole, 4):
                for a in range(top, bottom):
                    v0, v1, v2, v3 = v[r, a], v[r + 1, a], v[r + 2, a], v[r + 3, a]
                    for b in range(max(a, left), right):
                        square[a, b] -= (v0 * v[r, b] + v1 * v[r + 1, b]) + (v2 * v[r + 2, b] + v3 * v[r + 3, b])
            for r in range(whole, last):
                for a in range(top, bottom):
                    v0 = v[r, a]
                    for b in range(max(a, left), right):
                        square[a, b] -= v0 * v[r, b]


@kernel
def _factor(square):
    """square = U'U, by Cholesky, upper triangle in place."""
    n = square.shape[0]
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for k in range(first, last):
            for r in range(first, k):
                v = square[r, k]
                for b in range(k, n):
                    square[k, b] -= v * square[r, b]
            scale = 1.0 / math.sqrt(max(square[k, k], 1e-300))
            for b in range(k, n):
                square[k, b] *= scale
        if last < n:
            _subtract_squares(square, first, last, last, square)


@kernel
def _substitute(square, y):
    """Solve U'U y = y in place."""
    n = square.shape[0]
    for k in range(n):
        y[k] /= square[k, k]
        for b in range(k + 1, n):
            y[b] -= y[k] * square[k, b]
    for k in range(n - 1, -1, -1):
        rest = y[k]
        for b in range(k + 1, n):
            rest -= square[k, b] * y[b]
        y[k] = rest / square[k, k]


@kernel
def _assemble(start, order, node, weight, ratio, wide, floor, inverse, rows, square):
    """Eliminate the groups (contexts, or arms if wide): what is left couples the nodes, in `square`.

    The diagonal is sum W^2 d (D - d)/D, not sum W^2 d - sum (W d)^2/D, and D - d is a sum of the others.
    """
    n = square.shape[0]
    dense = rows.shape[0] > 1
    n_rows = 0
    for g in range(start.shape[0] - 1):
        total = floor[g]
        top = start[g]
        most = -1.0
        for k in range(start[g], start[g + 1]):
            e = order[k]
            own = weight[e] * weight[e] * ratio[e] if wide else ratio[e]
            total += own
            if own > most:
                top, most = k, own
        others = floor[g]
        for k in range(start[g], start[g + 1]):
            if k != top:
                e = order[k]
                others += weight[e] * weight[e] * ratio[e] if wide else ratio[e]
        inverse[g] = 1.0 / total
        root = math.sqrt(inverse[g])
        if dense:
            for b in range(n):
                rows[n_rows, b] = 0.0
        for k in range(start[g], start[g + 1]):
            e = order[k]
            i = node[e]
            if wide:
                square[i, i] += ratio[e] * (
                    (others if k == top else total - weight[e] * weight[e] * ratio[e]) * inverse[g]
                )
            else:
                square[i, i] += (
                    weight[e] * weight[e] * ratio[e] * ((others if k == top else total - ratio[e]) * inverse[g])
                )
            rows[n_rows, i if dense else k - start[g]] = weight[e] * ratio[e] * root
        if dense:
            n_rows += 1
            if n_rows == rows.shape[0]:
                _take(rows, n_rows, square)
                n_rows = 0
        else:
            for k in range(start[g], start[g + 1]):
                i = node[order[k]]
                v = rows[0, k - start[g]]
                for l in range(k + 1, start[g + 1]):
                    square[i, node[order[l]]] -= v * rows[0, l - start[g]]
    if dense:
        _take(rows, n_rows, square)


@kernel
def _take(rows, n_rows, square):
    """Subtract the squares of some rows, the diagonal apart: it is known better."""
    n = square.shape[0]
    diagonal = np.empty(n)
    for i in range(n):
        diagonal[i] = square[i, i]
    _subtract_squares(rows, 0, n_rows, 0, square)
    for i in range(n):
        square[i, i] = diagonal[i]


@kernel
def _solve(start, order, node, weight, ratio, inverse, square, groups, nodes):
    """The Newton system: right-hand sides of groups and nodes in, the solution out, in place."""
    for g in range(start.shape[0] - 1):
        share = groups[g] * inverse[g]
        for k in range(start[g], start[g + 1]):
            e = order[k]
            nodes[node[e]] += weight[e] * ratio[e] * share
    _substitute(square, nodes)
    for g in range(start.shape[0] - 1):
        total = groups[g]
        for k in range(start[g], start[g + 1]):
            e = order[k]
            total += weight[e] * ratio[e] * nodes[node[e]]
        groups[g] = total * inverse[g]


@kernel
def _by_arm(start, arm, n):
    """The same candidates arm by arm: where each arm starts, their order, and the row of each."""
    n_entries = arm.shape[0]
    first = np.zeros(n + 1, np.int64)
    order = np.empty(n_entries, np.int64)
    row = np.empty(n_entries, np.int64)
    for e in range(n_entries):
        first[arm[e] + 1] += 1
    for i in range(n):
        first[i + 1] += first[i]
    place = first.copy()
    for j in range(start.shape[0] - 1):
        for e in range(start[j], start[j + 1]):
            order[place[arm[e]]] = e
            place[arm[e]] += 1
            row[e] = j
    return first, order, row


@kernel
def _centre(start, arm, weight, prices, barrier, x, z):
    """x and z of every row with x z = t and sum x = 1, given the prices: z = mu - W w for the right mu."""
    for j in range(start.shape[0] - 1):
        first, last = start[j], start[j + 1]
        v = z[first:last]
        best = 0.0
        for e in range(first, last):
            z[e] = weight[e] * prices[arm[e]]
            best = max(best, z[e])
        for e in range(first, last):
            z[e] = (best - z[e]) / barrier
        mu = level(v, 1.0, 1e-6)
        for e in range(first, last):
            x[e] = 1.0 / (mu + z[e])
            z[e] = barrier * (mu + z[e])


@kernel
def _slack(start, arm, weight, x, prices):
    """The certified gap, rounding aside, of the candidates alone."""
    gap = 0.0
    for j in range(start.shape[0] - 1):
        best = 0.0
        total = 0.0
        for e in range(start[j], start[j + 1]):
            best = max(best, weight[e] * prices[arm[e]])
            total += x[e]
        slack = 0.0
        for e in range(start[j], start[j + 1]):
            slack += x[e] * (best - weight[e] * prices[arm[e]])
        gap += slack / total
    return gap


@kernel
def follow(start, arm, weight, base, alpha, tolerance, prices, barrier, x):
    """The central path from t = barrier to a gap of tolerance * value; x and prices in place, steps returned.

    Row j of the problem is weight[start[j]:start[j + 1]], for the arms of the same slice, in rising order.
    """
    m, n, n_entries = start.shape[0] - 1, base.shape[0], arm.shape[0]
    z, ratio, move = np.empty(n_entries), np.empty(n_entries), np.zeros(n_entries)
    dmu, dw, predicted = np.zeros(m), np.zeros(n), np.empty(n)
    earned, residual, stiffness, fresh = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    wide = m < n
    if wide:
        first, order, node = _by_arm(start, arm, n)
    else:
        first, order, node = start, np.arange(n_entries), arm
    pairs = 0.0
    for g in range(first.shape[0] - 1):
        pairs += float(first[g + 1] - first[g]) ** 2
    size = min(m, n)
    square = np.empty((size, size))
    n_groups = max(m, n)
    inverse = np.empty(n_groups)
    nothing = np.zeros(n_groups)
    rows = np.empty((BLOCK if pairs > 0.15 * n_groups * size * size else 1, max(size, n_groups if not wide else 0)))
    _centre(start, arm, weight, prices, barrier, x, z)
    primal_step = dual_step = 0.0
    best = np.inf
    stalled = 0
    for step in range(MOST_STEPS + 1):
        for i in range(n):
            prices[i] += dual_step * dw[i]
            earned[i] = base[i]
        complementarity = 0.0
        for j in range(m):
            for e in range(start[j], start[j + 1]):
                x[e] += primal_step * move[e]
                z[e] += dual_step * (dmu[j] - weight[e] * dw[arm[e]])
                ratio[e] = x[e] / z[e]
                complementarity += x[e] * z[e]
                earned[arm[e]] += weight[e] * x[e]
        value = 0.0
        for i in range(n):
            logarithm = alpha * math.log(earned[i])
            fresh[i] = math.exp(-logarithm)
            value += earned[i] * fresh[i] / (1.0 - alpha)
            residual[i] = -math.log(prices[i]) - logarithm
            stiffness[i] = earned[i] / (alpha * prices[i])
        if complementarity <= tolerance * value:
            gap = _slack(start, arm, weight, x, fresh)
            stalled = 0 if gap < 0.5 * best else stalled + 1
            best = min(best, gap)
            if gap <= tolerance * value or stalled > 5:
                return step
        for a in range(size):
            for b in range(a, size):
                square[a, b] = 0.0
            if not wide:
                square[a, a] = stiffness[a]
        _assemble(first, order, node, weight, ratio, wide, stiffness if wide else nothing, inverse, rows, square)
        _factor(square)
        for i in range(n):
            dw[i] = stiffness[i] * prices[i] * residual[i] + earned[i] - base[i]
        for j in range(m):
            dmu[j] = -1.0
        if wide:
            _solve(first, order, node, weight, ratio, inverse, square, dw, dmu)
        else:
            _solve(first, order, node, weight, ratio, inverse, square, dmu, dw)
        low = high = along = cross = 0.0
        for j in range(m):
            for e in range(start[j], start[j + 1]):
                q = (dmu[j] - weight[e] * dw[arm[e]]) / z[e]  # dz/z, and dx/x = -1 - q
                low = min(low, q)
                high = max(high, q)
                along += x[e] * z[e] * q
                cross -= x[e] * z[e] * q * (1.0 + q)
                move[e] = q
        primal_step = 1.0 / (1.0 + high)
        dual_step = 1.0 / max(1.0, -low)
        for i in range(n):
            if dw[i] < -prices[i]:
                dual_step = min(dual_step, -prices[i] / dw[i])
        left = (
            (1.0 - primal_step) * complementarity + (dual_step - primal_step) * along + primal_step * dual_step * cross
        )
        centring = (left / complementarity) ** 3
        target = max(centring * complementarity, 0.01 * tolerance * value) / n_entries
        for i in range(n):
            a = min(max(dw[i] / prices[i], -0.5), 0.5)
            b = min(max((prices[i] * residual[i] - dw[i]) * stiffness[i] / earned[i], -0.5), 0.5)
            second = 0.5 * (a * a + alpha * b * b)
            dw[i] = stiffness[i] * prices[i] * (residual[i] + second) + earned[i] - base[i]
        for j in range(m):
            dmu[j] = -1.0
            for e in range(start[j], start[j + 1]):
                move[e] = target / z[e] + x[e] * move[e] * (1.0 + move[e])
                dmu[j] += move[e]
                dw[arm[e]] -= weight[e] * move[e]
        if wide:
            _solve(first, order, node, weight, ratio, inverse, square, dw, dmu)
        else:
            _solve(first, order, node, weight, ratio, inverse, square, dmu, dw)
        primal = dual = 1e-300
        for j in range(m):
            for e in range(start[j], start[j + 1]):
                q = (dmu[j] - weight[e] * dw[arm[e]]) / z[e]
                move[e] -= x[e] * (1.0 + q)
                dual = max(dual, -q)
                primal = max(primal, -move[e] / x[e])
        for i in range(n):
            dual = max(dual, -dw[i] / prices[i])
        reach = min(max(0.99, 1.0 - centring), 1.0 - 1e-6)
        primal_step = min(1.0, reach / primal)
        dual_step = min(1.0, reach / dual)
    return MOST_STEPS


@kernel
def _settle(totals, prices, band, scale, x, base):
    """Settle the rows whose best arm is clear, leave scale 1 for the others; how many candidates these have."""
    m, n = totals.shape
    n_entries = 0
    for i in range(n):
        base[i] = 1.0
    for j in range(m):
        best = 0.0
        top = 0
        for i in range(n):
            x[j, i] = 0.0
            if totals[j, i] * prices[i] > best:
                best, top = totals[j, i] * prices[i], i
        scale[j] = 0.0
        if best == 0.0:
            for i in range(n):
                x[j, i] = 1.0 / n
        else:
            count = 0
            for i in range(n):
                count += 1 if totals[j, i] * prices[i] > (1.0 - band) * best else 0
            if count > 1:
                scale[j] = 1.0
                n_entries += count
            else:
                x[j, top] = 1.0
                base[top] += totals[j, top]
    return n_entries


@kernel
def _sample(totals, prices, size, scale):
    """Rows at even steps of their accumulated weight max_i W_ji w_i, scaled to stand for the step they fall in."""
    m, n = totals.shape
    whole = 0.0
    for j in range(m):
        scale[j] = 0.0
        for i in range(n):
            scale[j] = max(scale[j], totals[j, i] * prices[i])
        whole += scale[j]
    step = whole / size
    passed = 0.0
    n_entries = 0
    for j in range(m):
        before = math.floor(passed / step)
        passed += scale[j]
        hits = math.floor(passed / step) - before
        if hits > 0:
            scale[j] = hits * step / scale[j]
            for i in range(n):
                n_entries += 1 if totals[j, i] > 0.0 else 0
        else:
            scale[j] = 0.0
    return n_entries


@kernel
def _gather(totals, prices, band, scale, n_entries):
    """The candidates of the rows with a scale: where each row starts, its arms, and W times the scale."""
    m, n = totals.shape
    n_rows = 0
    for j in range(m):
        n_rows += 1 if scale[j] > 0.0 else 0
    start = np.zeros(n_rows + 1, np.int64)
    arm = np.empty(n_entries, np.int64)
    weight = np.empty(n_entries)
    r = e = 0
    for j in range(m):
        if scale[j] > 0.0:
            best = 0.0
            for i in range(n):
                best = max(best, totals[j, i] * prices[i])
            for i in range(n):
                if totals[j, i] * prices[i] > (1.0 - band) * best:
                    arm[e] = i
                    weight[e] = totals[j, i] * scale[j]
                    e += 1
            r += 1
            start[r] = e
    return start, arm, weight


@kernel
def _barrier(start, arm, weight, prices, band):
    """A first t for prices that are right within the band."""
    whole = 0.0
    for j in range(start.shape[0] - 1):
        best = 0.0
        for e in range(start[j], start[j + 1]):
            best = max(best, weight[e] * prices[arm[e]])
        whole += best
    if band >= 1.0:
        return COLD * whole / arm.shape[0]
    return WARM * band * whole / start.shape[0]


COLD = 3.0
WARM = 0.1


@kernel
def solve(totals, alpha, tolerance, prices, band, x, earned):
    """Value, certified gap, steps taken and by how much prices moved; x, R and prices in place.

    `prices` are a guess, right within the band; band 1 means a guess of no worth.
    """
    m, n = totals.shape
    base, fresh = np.ones(n), np.empty(n)
    scale = np.empty(m)
    steps = 0
    moved = 0.0
    value = gap = np.inf
    if band >= 1.0 and m > 4 * SAMPLE * n:
        n_entries = _sample(totals, prices, SAMPLE * n, scale)
        start, arm, weight = _gather(totals, prices, 1.0, scale, n_entries)
        barrier = _barrier(start, arm, weight, prices, 1.0)
        steps += follow(start, arm, weight, base, alpha, 1e-5, prices, barrier, np.empty(n_entries))
        band = 0.05
    for stage in range(MOST_STAGES):
        n_entries = _settle(totals, prices, band, scale, x, base)
        for i in range(n):
            fresh[i] = prices[i]
        if n_entries > 0:
            start, arm, weight = _gather(totals, prices, band, scale, n_entries)
            entries = np.empty(n_entries)
            barrier = _barrier(start, arm, weight, prices, band)
            steps += follow(start, arm, weight, base, alpha, 0.1 * tolerance, fresh, barrier, entries)
            r = 0
            for j in range(m):
                if scale[j] > 0.0:
                    total = 0.0
                    for e in range(start[r], start[r + 1]):
                        total += entries[e]
                    for e in range(start[r], start[r + 1]):
                        x[j, arm[e]] = entries[e] / total
                    r += 1
        value, gap = certify(totals, x, alpha, earned, fresh)
        moved = 0.0
        for i in range(n):
            moved = max(moved, abs(math.log(fresh[i] / prices[i])))
            prices[i] = fresh[i]
        if gap <= tolerance * value or band >= 1.0:
            break
        band = min(1.0, max(1.5 * band, 0.5 * moved)) if stage < 6 else 1.0
    return value, gap, steps, moved
