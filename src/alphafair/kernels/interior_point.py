"""The best fixed policy in hindsight: max over (simplex_n)^m of sum_i phi(1 + sum_j W_ji x_ji), with a certificate.

Optimality needs a price w an arm and a multiplier mu a context:

    w_i = R_i^(-alpha),  R_i = base_i + sum_j W_ji x_ji,  sum_i x_ji = 1,  z_ji = mu_j - W_ji w_i >= 0,  x_ji z_ji = 0

`follow` asks for x z = t instead and drives t to 0, by Mehrotra's primal-dual predictor-corrector. With d = x/z
and x z to change by z (c - x), a Newton step on these equations, the first of them in logarithms, is

    [ R/(alpha w) + sum_j W^2 d   -(W d)' ] [ dw  ]   [ -(R/alpha) log(w R^alpha) + sum_j W (x - c) ]
    [          -(W d)            sum_i d  ] [ dmu ] = [ sum_i c - 1                                 ]

    dz = dmu - W dw ,   dx = c - x - d dz

Both blocks on the diagonal are diagonal themselves: the longer side is eliminated, a square of the shorter one
is factored, and an iteration costs O(m n min(m, n)). Inner loops run over one row from its first entry and gather by
arm what they sum, because that is what a compiler turns into vector instructions.

Prices settle most of it beforehand. Where W_ji w_i is clearly below the best of its row, arm i is out of the running
in context j; a row with one candidate left is settled, and at the optimum fewer than n rows share. So `solve` takes
first prices from a sample of the rows, keeps the rows that the doubt about each price leaves open, and asks `certify`,
which looks at every entry, whether that was enough; if not, new prices, new doubts. Nothing but `certify` has to be
trusted.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels import cholesky
from alphafair.kernels.cholesky import BLOCK
from alphafair.kernels.log_barrier import level

EPSILON = 2.220446049250313e-16
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
def _eliminate(weight, x, z, wide, floor, stiffness, flow, inverse, square):
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
            cholesky.subtract(block, 0, r + 4 - r % 4, 0, square)
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
    cholesky.solve(square, nodes)
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
def follow(weight, base, alpha, tolerance, barrier, prices, x, earned):
    """The central path from t = barrier to a gap of tolerance * value: prices, x and R in place; the steps taken."""
    m, n = weight.shape
    z, move, change = np.empty((m, n)), np.zeros((m, n)), np.empty(n)
    dmu, dw, residual, stiffness = np.zeros(m), np.zeros(n), np.empty(n), np.empty(n)
    product, lowest, highest, first, second = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)  # by arm
    wide = m < n
    groups, nodes = (dw, dmu) if wide else (dmu, dw)
    floor = stiffness if wide else np.zeros(m)
    size = nodes.shape[0]
    flow, inverse, square = np.empty((groups.shape[0], size)), np.empty(groups.shape[0]), np.empty((size, size))
    _begin(weight, prices, barrier, x, z)
    step_x, step_z, waited, least_gap = 0.0, 0.0, 0, np.inf
    for step in range(MOST_STEPS):
        product[:], earned[:] = 0.0, base
        for i in range(n):
            prices[i] += step_z * dw[i]
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
        _eliminate(weight, x, z, wide, floor, stiffness, flow, inverse, square)
        cholesky.factor(square)
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
        centring = (left / products) * (left / products) * (left / products)
        target = max(centring * products, 0.1 * tolerance * value) / (m * n)
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
        reach = min(max(0.99, 1.0 - centring), 1.0 - 1e-6)
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
    return MOST_STEPS


@kernel
def _screen(totals, prices, doubt, grain, x, base, row, kept):
    """Settle the rows whose best arm is beyond doubt, keep the others: how many, how many candidates, of what weight.

    Price i is within a factor exp(doubt_i): arm i is out of the running in row j, where it is kept as worth nothing, if
    W_ji at its highest price is below some W_jk at its lowest. Rows without any reward stay uniform. With a grain, only
    those rows are kept at which the accumulated weight max_i W_ji w_i passes a multiple of it, scaled to weigh as much.
    """
    m, n = totals.shape
    low, high = np.empty(n), np.empty(n)
    base[:] = 1.0
    for i in range(n):
        low[i], high[i] = prices[i] * math.exp(-doubt[i]), prices[i] * math.exp(min(doubt[i], 500.0))
    n_rows, n_entries, whole = 0, 0, 0.0
    for j in range(m):
        bar = best = 0.0
        for i in range(n):
            x[j, i] = 0.0
            bar, best = max(bar, totals[j, i] * low[i]), max(best, totals[j, i] * prices[i])
        count, last = 0, 0
        for i in range(n):
            if totals[j, i] > 0.0 and totals[j, i] * high[i] >= bar:
                count, last = count + 1, i
        if count == 0:
            for i in range(n):
                x[j, i] = 1.0 / n
        elif count == 1:
            x[j, last] = 1.0
            base[last] += totals[j, last]
        else:
            hits = math.floor((whole + best) / grain) - math.floor(whole / grain) if grain > 0.0 else 1
            whole += best
            if hits > 0:
                scale = hits * grain / best if grain > 0.0 else 1.0
                for i in range(n):
                    kept[n_rows, i] = totals[j, i] * scale if totals[j, i] * high[i] >= bar else 0.0
                row[n_rows] = j
                n_rows += 1
                n_entries += count
    return n_rows, n_entries, whole


@kernel
def solve(totals, alpha, tolerance, prices, doubt, x, earned):
    """Value, certified gap and steps taken; x, R, the prices and the doubt about them in place.

    Price i is taken to be right within a factor exp(doubt_i), infinity if nothing is known; by how much it has moved
    comes back. Wrong doubts cost time, nothing else.
    """
    m, n = totals.shape
    base, fresh, row, kept = np.empty(n), np.empty(n), np.empty(m, np.int64), np.empty((m, n))
    value, gap, steps = np.inf, np.inf, 0
    for i in range(n):
        if alpha <= LINEAR:
            prices[i], doubt[i] = 1.0, 0.0
        elif doubt[i] == np.inf and m * n > LARGE and m <= 2 * FIRST * n:
            doubt[i] = alpha  # too large to look at everything, too few rows to look at some
    for stage in range(MOST_STAGES):
        cold, grain = doubt[0] == np.inf, 0.0
        n_rows, n_entries, whole = _screen(totals, prices, doubt, grain, x, base, row, kept)
        if stage < SAMPLED_STAGES and n_rows > (2 * FIRST if cold else FEW) * n:
            grain = whole / ((FIRST if cold else SAMPLE) * n)
            n_rows, n_entries, whole = _screen(totals, prices, doubt, grain, x, base, row, kept)
        shares = np.ones((n_rows, n))
        fresh[:] = prices
        if n_rows > 0 and alpha > LINEAR:
            barrier = 0.0
            for r in range(n_rows):
                for i in range(n):
                    barrier += min(doubt[i], 1.0) * kept[r, i] * prices[i]
            barrier *= n_rows / (n_entries * n_entries)
            aim = 1e-5 * (1.0 - alpha) if grain > 0.0 else max(0.1 * tolerance, 1e-14)
            steps += follow(kept[:n_rows], base, alpha, aim, max(barrier, 1e-300), fresh, shares, earned)
        elif n_rows > 0:  # the ties of a linear problem share alike
            for r in range(n_rows):
                for i in range(n):
                    shares[r, i] = 1.0 if kept[r, i] > 0.0 else 0.0
        if grain > 0.0:  # what a sample of so many grains an arm can tell
            for i in range(n):
                count, share = fresh[i] * earned[i] / grain, max(0.0, 1.0 - base[i] / earned[i])
                doubt[i] = alpha / (1.0 + 4.0 * alpha) * (math.sqrt(share / (count + 1.0)) + 3.0 / (count + 1.0))
                prices[i] = math.pow(earned[i] * (1.0 + 1.0 / (count * (1.0 + count))), -alpha)
            continue
        for r in range(n_rows):
            total = 0.0
            for i in range(n):
                total += shares[r, i]
            for i in range(n):
                x[row[r], i] = shares[r, i] / total
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
