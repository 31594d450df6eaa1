"""The best fixed policy in hindsight: max over (simplex_n)^m of sum_i phi(1 + sum_j W_ji x_ji), with a certificate.

Optimality needs a price w an arm and a multiplier mu a context:

    w_i = R_i^(-alpha),  R_i = base_i + sum_j W_ji x_ji,  sum_i x_ji = 1,  z_ji = mu_j - W_ji w_i >= 0,  x_ji z_ji = 0

`follow` asks for x z = t instead and drives t to 0, by Mehrotra's primal-dual predictor-corrector. With d = x/z
and x z to change by z (c - x), a Newton step on these equations, the first of them in logarithms, is

    [ R/(alpha w) + sum_j W^2 d   -(W d)' ] [ dw  ]   [ -(R/alpha) log(w R^alpha) + sum_j W (x - c) ]
    [          -(W d)            sum_i d  ] [ dmu ] = [ sum_i c - 1                                 ]

    dz = dmu - W dw ,   dx = c - x - d dz

Both blocks on the diagonal are diagonal themselves: the longer side is eliminated, a square of the shorter one
is factored, and an iteration costs O(m n min(m, n)).

Prices settle most of it beforehand. Where W_ji w_i is clearly below the best of its row, x_ji = 0; a row with one
candidate left is settled, and at the optimum fewer than n rows share. So `solve` takes first prices from a sample
of the rows, keeps the candidates that the doubt about each price leaves, and asks `certify`, which looks at every
entry, whether that was enough; if not, new prices, new doubts. Nothing but `certify` has to be trusted.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.log_barrier import level

EPSILON = 2.220446049250313e-16
BLOCK = 32  # rows taken together, so that a large square is read once for all of them; a multiple of 4
LINEAR = 1e-12  # an alpha below this leaves every price at 1, to more digits than a tolerance asks for
MOST_STEPS = 200
PATIENCE = 20  # steps near the end without half the gap, before rounding is to blame
MOST_STAGES, SAMPLED_STAGES = 12, 5
FIRST, SAMPLE, FEW = 20, 160, 400  # rows an arm: of a sample with all arms, of one with candidates, and too few for one
LARGE = 100_000  # entries
MARGIN = 4.0  # prices of the next prefix move less than this times what they did last


@kernel
def certify(totals, x, alpha, earned, prices):
    """R, w = phi'(R), the value and its certified gap, for rows x >= 0 that sum to 1.

    Concavity: OPT - value <= sum_j (mu_j - sum_i x_ji W_ji w_i) = sum_ji x_ji (mu_j - W_ji w_i), mu_j = max_i W_ji w_i:
    every term is >= 0, nothing cancels. What rounding may hide is added: a difference is off by 2 epsilon mu_j; a row
    that sums to 1 + s moves its context by s mu_j; R is a compensated sum, so the value is off by a few epsilon and
    half of one an arm; and any prices would do, so an error of w costs its square over alpha, 60 epsilon at most.
    """
    m, n = totals.shape
    carry = np.zeros(n)
    earned[:] = 1.0
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
    gap = (64.0 + 0.5 * n) * EPSILON * value
    for j in range(m):
        best, slack, excess = 0.0, 0.0, -1.0
        for i in range(n):
            best = max(best, totals[j, i] * prices[i])
        for i in range(n):
            slack += x[j, i] * (best - totals[j, i] * prices[i])
            excess += x[j, i]
        gap += slack * (1.0 + (m + n) * EPSILON) + best * (abs(excess) + (4.0 + 0.5 * n) * EPSILON)
    return value, gap


@kernel
def _subtract(v, first, last, low, s):
    """s[a, b] -= sum_r v[r, a] v[r, b] over first <= r < last, whole fours of rows, for low <= a and a <= b."""
    n = s.shape[0]
    for a in range(low, n):
        for r in range(first, last, 4):
            v0, v1, v2, v3 = v[r, a], v[r + 1, a], v[r + 2, a], v[r + 3, a]
            if v0 != 0.0 or v1 != 0.0 or v2 != 0.0 or v3 != 0.0:
                for b in range(a, n):
                    s[a, b] -= (v0 * v[r, b] + v1 * v[r + 1, b]) + (v2 * v[r + 2, b] + v3 * v[r + 3, b])


@kernel
def _factor(s):
    """s = U'U, by Cholesky, upper triangle in place, block by block."""
    n = s.shape[0]
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        for k in range(first, last):
            for r in range(first, k):
                for b in range(k, n):
                    s[k, b] -= s[r, k] * s[r, b]
            scale = 1.0 / math.sqrt(max(s[k, k], 1e-300))
            for b in range(k, n):
                s[k, b] *= scale
        if last < n:
            _subtract(s, first, last, last, s)


@kernel
def _eliminate(start, order, node, weight, ratio, wide, floor, stiffness, inverse, square):
    """Eliminate the groups (contexts, or arms if wide) from the Newton system: `square` couples the nodes.

    Its diagonal is sum W^2 d (D - d)/D, not sum W^2 d - sum (W d)^2/D, and D - d for the largest d is the sum of
    the others: every entry is right to the last digits, however lopsided d becomes.
    """
    n_groups, size = start.shape[0] - 1, square.shape[0]
    at, own, diagonal = np.empty(size, np.int64), np.empty(size), np.zeros(size)
    block = np.zeros((BLOCK, size))
    for g in range(n_groups):
        first, count, r = start[g], start[g + 1] - start[g], g % BLOCK
        top, total, others = 0, floor[g], floor[g]
        for k in range(count):
            e = order[first + k]
            at[k] = node[e]
            own[k] = weight[e] * weight[e] * ratio[e] if wide else ratio[e]
            total += own[k]
            top = k if own[k] > own[top] else top
        for k in range(count):
            others += own[k] if k != top else 0.0
        inverse[g] = 1.0 / total
        for k in range(count):
            e = order[first + k]
            other = ratio[e] if wide else weight[e] * weight[e] * ratio[e]
            diagonal[at[k]] += other * ((others if k == top else total - own[k]) * inverse[g])
            block[r, at[k]] = weight[e] * ratio[e] * math.sqrt(inverse[g])
        if r == BLOCK - 1 or g == n_groups - 1:
            _subtract(block, 0, r + 4 - r % 4, 0, square)
            block[:, :] = 0.0
    for i in range(size):
        square[i, i] = diagonal[i] if wide else diagonal[i] + stiffness[i]


@kernel
def _solve(start, order, node, weight, ratio, inverse, square, groups, nodes):
    """The Newton system, with square = U'U: right-hand sides of groups and nodes in, the solution out, in place."""
    for g in range(start.shape[0] - 1):
        share = groups[g] * inverse[g]
        for k in range(start[g], start[g + 1]):
            nodes[node[order[k]]] += weight[order[k]] * ratio[order[k]] * share
    size = square.shape[0]
    for k in range(size):
        nodes[k] /= square[k, k]
        for b in range(k + 1, size):
            nodes[b] -= nodes[k] * square[k, b]
    for k in range(size - 1, -1, -1):
        for b in range(k + 1, size):
            nodes[k] -= square[k, b] * nodes[b]
        nodes[k] /= square[k, k]
    for g in range(start.shape[0] - 1):
        total = groups[g]
        for k in range(start[g], start[g + 1]):
            total += weight[order[k]] * ratio[order[k]] * nodes[node[order[k]]]
        groups[g] = total * inverse[g]


@kernel
def _by_arm(start, arm, n):
    """The same candidates arm by arm: where each arm starts, their order, and the row of each."""
    first, order, row = np.zeros(n + 1, np.int64), np.empty_like(arm), np.empty_like(arm)
    for e in range(arm.shape[0]):
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
def _begin(start, arm, weight, prices, barrier, x, z):
    """x and z of every row with x z = t and sum x = 1, given the prices: z = mu - W w for the right mu."""
    for j in range(start.shape[0] - 1):
        best = 0.0
        for e in range(start[j], start[j + 1]):
            z[e] = weight[e] * prices[arm[e]]
            best = max(best, z[e])
        for e in range(start[j], start[j + 1]):
            z[e] = (best - z[e]) / barrier
        mu = level(z[start[j] : start[j + 1]], 1.0, 1e-6, x[start[j] : start[j + 1]])
        for e in range(start[j], start[j + 1]):
            x[e] = 1.0 / (mu + z[e])
            z[e] = barrier * (mu + z[e])


@kernel
def follow(start, arm, weight, base, alpha, tolerance, barrier, prices, x, earned):
    """The central path from t = barrier to a gap of tolerance * value: prices, x and R in place; the steps taken.

    Row j has the candidates start[j] <= e < start[j + 1], their arms rising.
    """
    m, n, n_entries = start.shape[0] - 1, base.shape[0], arm.shape[0]
    z, ratio, move = np.empty(n_entries), np.empty(n_entries), np.zeros(n_entries)
    dmu, dw, residual, stiffness = np.zeros(m), np.zeros(n), np.empty(n), np.empty(n)
    wide = m < n
    first, order, node = _by_arm(start, arm, n) if wide else (start, np.arange(n_entries), arm)
    groups, nodes = (dw, dmu) if wide else (dmu, dw)
    floor = stiffness if wide else np.zeros(m)
    inverse, square = np.empty(groups.shape[0]), np.empty((nodes.shape[0], nodes.shape[0]))
    _begin(start, arm, weight, prices, barrier, x, z)
    step_x, step_z, waited, least_gap = 0.0, 0.0, 0, np.inf
    for step in range(MOST_STEPS):
        products, earned[:] = 0.0, base
        for i in range(n):
            prices[i] += step_z * dw[i]
        for j in range(m):
            for e in range(start[j], start[j + 1]):
                x[e] += step_x * move[e]
                z[e] += step_z * (dmu[j] - weight[e] * dw[arm[e]])
                ratio[e] = x[e] / z[e]
                products += x[e] * z[e]
                earned[arm[e]] += weight[e] * x[e]
        value = paid = worst = 0.0
        for i in range(n):
            residual[i] = -math.log(prices[i]) - alpha * math.log(earned[i])
            stiffness[i] = earned[i] / (alpha * prices[i])
            value += earned[i] * prices[i] / (1.0 - alpha)
            paid += (earned[i] - base[i]) * prices[i]
            worst = max(worst, abs(residual[i]))
        gap = products + 2.0 * worst * paid  # the most that prices R^(-alpha) can make of it
        if products <= tolerance * value:
            waited = 0 if gap < 0.5 * least_gap else waited + 1
            least_gap = min(least_gap, gap)
            if gap <= tolerance * value or waited > PATIENCE:
                return step
        square[:, :] = 0.0
        _eliminate(first, order, node, weight, ratio, wide, floor, stiffness, inverse, square)
        _factor(square)
        for i in range(n):  # the predictor: straight to x z = 0
            dw[i] = stiffness[i] * prices[i] * residual[i] + earned[i] - base[i]
        dmu[:] = -1.0
        _solve(first, order, node, weight, ratio, inverse, square, groups, nodes)
        least = most = along = cross = 0.0
        bound = 3.0 * products / n_entries  # of a second-order term: a few outliers must not bend the whole step
        for j in range(m):
            for e in range(start[j], start[j + 1]):
                q = (dmu[j] - weight[e] * dw[arm[e]]) / z[e]  # dz/z, and dx/x is -1 - q
                least, most = min(least, q), max(most, q)
                second = x[e] * z[e] * q * (1.0 + q)  # -dx dz
                along += x[e] * z[e] * q
                cross -= second
                move[e] = min(max(second, -bound), bound) / z[e]
        step_x, step_z = 1.0 / (1.0 + most), 1.0 / max(1.0, -least)
        for i in range(n):
            step_z = min(step_z, 1.0 / max(1.0, -dw[i] / prices[i]))
        left = (1.0 - step_x) * products + (step_z - step_x) * along + step_x * step_z * cross
        centring = (left / products) * (left / products) * (left / products)
        target = max(centring * products, 0.1 * tolerance * value) / n_entries
        for i in range(n):  # the corrector: to x z = target, second-order terms included
            a = min(max(dw[i] / prices[i], -0.5), 0.5)
            b = min(max((prices[i] * residual[i] - dw[i]) * stiffness[i] / earned[i], -0.5), 0.5)
            second = 0.5 * (a * a + alpha * b * b)
            dw[i] = stiffness[i] * prices[i] * (residual[i] + second) + earned[i] - base[i]
        for j in range(m):
            dmu[j] = -1.0
            for e in range(start[j], start[j + 1]):
                move[e] += target / z[e]
                dmu[j] += move[e]
                dw[arm[e]] -= weight[e] * move[e]
        _solve(first, order, node, weight, ratio, inverse, square, groups, nodes)
        longest_x = longest_z = reach = min(max(0.99, 1.0 - centring), 1.0 - 1e-6)
        for j in range(m):
            for e in range(start[j], start[j + 1]):
                q = (dmu[j] - weight[e] * dw[arm[e]]) / z[e]
                move[e] -= x[e] * (1.0 + q)
                longest_x, longest_z = max(longest_x, -move[e] / x[e]), max(longest_z, -q)
        for i in range(n):
            longest_z = max(longest_z, -dw[i] / prices[i])
        step_x, step_z = reach / longest_x, reach / longest_z
    return MOST_STEPS


@kernel
def _screen(totals, prices, doubt, grain, x, base, start, row, arm, weight):
    """Settle the rows whose best arm is beyond doubt, list the candidates of the others: how many, of what weight.

    Price i is within a factor exp(doubt_i): arm i is out of the running in row j if W_ji at its highest price is
    below some W_jk at its lowest. Rows without any reward stay uniform. With a grain, only those rows are listed at
    which the accumulated weight max_i W_ji w_i passes a multiple of it, scaled to weigh as much.
    """
    m, n = totals.shape
    low, high = np.empty(n), np.empty(n)
    base[:] = 1.0
    for i in range(n):
        low[i], high[i] = prices[i] * math.exp(-doubt[i]), prices[i] * math.exp(min(doubt[i], 500.0))
    n_rows, whole, start[0] = 0, 0.0, 0
    for j in range(m):
        bar = best = 0.0
        e = first = start[n_rows]
        for i in range(n):
            x[j, i] = 0.0
            bar, best = max(bar, totals[j, i] * low[i]), max(best, totals[j, i] * prices[i])
        for i in range(n):
            if totals[j, i] > 0.0 and totals[j, i] * high[i] >= bar:
                arm[e], weight[e] = i, totals[j, i]
                e += 1
        if e == first:
            for i in range(n):
                x[j, i] = 1.0 / n
        elif e == first + 1:
            x[j, arm[first]] = 1.0
            base[arm[first]] += weight[first]
        else:
            hits = math.floor((whole + best) / grain) - math.floor(whole / grain) if grain > 0.0 else 1
            whole += best
            if hits > 0:
                for k in range(first, e):
                    weight[k] *= hits * grain / best if grain > 0.0 else 1.0
                row[n_rows] = j
                n_rows += 1
                start[n_rows] = e
    return n_rows, whole


@kernel
def solve(totals, alpha, tolerance, prices, doubt, x, earned):
    """Value, certified gap and steps taken; x, R, the prices and the doubt about them in place.

    Price i is taken to be right within a factor exp(doubt_i), infinity if nothing is known; by how much it has moved
    comes back. Wrong doubts cost time, nothing else.
    """
    m, n = totals.shape
    base, fresh, start, row = np.empty(n), np.empty(n), np.empty(m + 1, np.int64), np.empty(m, np.int64)
    arm, weight = np.empty(m * n, np.int64), np.empty(m * n)
    value, gap, steps = np.inf, np.inf, 0
    for i in range(n):
        if alpha <= LINEAR:
            prices[i], doubt[i] = 1.0, 0.0
        elif doubt[i] == np.inf and m * n > LARGE and m <= 2 * FIRST * n:
            doubt[i] = alpha  # too large to look at everything, too few rows to look at some
    for stage in range(MOST_STAGES):
        cold, grain = doubt[0] == np.inf, 0.0
        n_rows, whole = _screen(totals, prices, doubt, grain, x, base, start, row, arm, weight)
        if stage < SAMPLED_STAGES and n_rows > (2 * FIRST if cold else FEW) * n:
            grain = whole / ((FIRST if cold else SAMPLE) * n)
            n_rows, whole = _screen(totals, prices, doubt, grain, x, base, start, row, arm, weight)
        n_entries = start[n_rows]
        entries = np.ones(n_entries)
        fresh[:] = prices
        if n_rows > 0 and alpha > LINEAR:  # the ties of a linear problem share alike
            barrier = 0.0
            for e in range(n_entries):
                barrier += min(doubt[arm[e]], 1.0) * weight[e] * prices[arm[e]] / n_entries
            aim = 1e-5 * (1.0 - alpha) if grain > 0.0 else max(0.01 * tolerance, 1e-14)
            rows, arms, weights = start[: n_rows + 1], arm[:n_entries], weight[:n_entries]
            steps += follow(rows, arms, weights, base, alpha, aim, max(barrier, 1e-300), fresh, entries, earned)
        if grain > 0.0:  # what a sample of so many grains an arm can tell
            for i in range(n):
                count, share = fresh[i] * earned[i] / grain, max(0.0, 1.0 - base[i] / earned[i])
                doubt[i] = alpha / (1.0 + 4.0 * alpha) * (math.sqrt(share / (count + 1.0)) + 3.0 / (count + 1.0))
                prices[i] = math.pow(earned[i] * (1.0 + 1.0 / (count * (1.0 + count))), -alpha)
            continue
        for r in range(n_rows):
            total = 0.0
            for e in range(start[r], start[r + 1]):
                total += entries[e]
            for e in range(start[r], start[r + 1]):
                x[row[r], arm[e]] = entries[e] / total
        value, gap = certify(totals, x, alpha, earned, fresh)
        surprise, done = False, gap <= tolerance * value or cold or alpha <= LINEAR
        for i in range(n):
            moved = abs(math.log(fresh[i] / prices[i]))
            surprise |= moved > doubt[i]
            doubt[i] = moved if done else max(0.3 * doubt[i], moved) if stage < MOST_STAGES - 2 else np.inf
            prices[i] = fresh[i]
        if done or not surprise:
            break
    return value, gap, steps


@kernel
def add_rounds(contexts, items, table, first, last, totals):
    """W_ji += r_i(t) for the rounds first <= t < last, with j the context of t."""
    for t in range(first, last):
        for i in range(table.shape[1]):
            totals[contexts[t], i] += table[items[t], i]


@kernel
def curve(contexts, items, table, done, rounds, alpha, tolerance, totals, prices, doubt, x, earned, values, gaps):
    """The optimum of every prefix in `rounds`, rising, each from the last one's prices; totals hold `done` rounds."""
    for k in range(rounds.shape[0]):
        add_rounds(contexts, items, table, done, rounds[k], totals)
        done = rounds[k]
        for i in range(doubt.shape[0]):
            doubt[i] = min(max(MARGIN * doubt[i], 1e-6), 1.0) if doubt[i] < np.inf else np.inf
        values[k], gaps[k], _ = solve(totals, alpha, tolerance, prices, doubt, x, earned)
