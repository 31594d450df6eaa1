"""The best fixed policy in hindsight, max over (simplex_n)^m of sum_i f_i phi(R_i(0) + sum_j W_ji x_ji), with proof.

With the right price w_i = f_i phi'(R_i) of every arm, a context plays only the arms whose W_ji w_i is largest. So
prices decide most contexts before the interior point method starts. If W_ji w_i is clearly below the best of its row,
arm i is not a candidate in context j; a row with one candidate is decided, and at the optimum fewer than n rows have
several. `solve` takes first prices from a sample of the rows, keeps the rows that are undecided given the uncertainty
`doubt` of each price, and calls `certify`, which reads every entry; if the gap is too large, it repeats with new prices
and doubts, and finally solves the whole problem. Correctness depends on `certify` alone.

Groups and floors are not part of this problem: `alphafair.offline.reduction` removes them.
"""

import math

import numpy as np

from alphafair.jit import kernel, long_kernel
from alphafair.offline.interior_point import follow, money_per_value
from alphafair.offline.reduction import add, merge

EPSILON = 2.220446049250313e-16
LINEAR = 1e-15  # for smaller alpha every price is 1, to more digits than any tolerance
MOST_STAGES, SAMPLED_STAGES = 12, 5
FIRST, SAMPLE = 20, 160  # rows per arm of a sample: where every arm is a candidate, and where few are
FEW = 400  # rows per arm that are solved as they are, where few arms are candidates
LARGE = 100_000  # entries
MARGIN = 4.0  # how much more than last time prices may move until the next prefix


@long_kernel
def certify(totals, initial, factors, x, alpha, unit, earned, prices):
    """R, w = f phi'(R/unit), the value and its certified gap, for rows x >= 0 that sum to 1.

    Above NEAR_ONE the value is sum_i w_i R_i, and gap over value is the certified relative gap of the welfare. The unit
    is 1, or close to the least R where alpha is so large that R^-alpha leaves the range of numbers.

    Concavity: OPT - value <= sum_j (mu_j - sum_i x_ji W_ji w_i) = sum_ji x_ji (mu_j - W_ji w_i), mu_j = max_i W_ji w_i:
    every term is >= 0, nothing cancels. What rounding may hide is added: a difference is off by 2 epsilon mu_j; a row
    that sums to 1 + s moves its context by s mu_j; R is a compensated sum, so the value is off by a few epsilon and
    half of one per arm; and any prices would do, so an error of w costs its square over alpha, 60 epsilon at most.
    """
    m, n = totals.shape
    carry = np.zeros(n)
    for i in range(n):
        earned[i] = initial[i]
    for j in range(m):
        for i in range(n):
            earned[i], carry[i] = add(earned[i], carry[i], totals[j, i] * x[j, i])
    value = 0.0
    for i in range(n):
        earned[i] += carry[i]
        prices[i] = factors[i] * math.pow(earned[i] / unit, -alpha)
        value += earned[i] * prices[i]
    value /= money_per_value(alpha)
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
def _screen(totals, initial, prices, doubt, grain, x, base, row, kept):
    """Decide the rows with one candidate, keep the others; return the numbers of rows and candidates, and the weight.

    Price i is within a factor exp(doubt_i): arm i is not a candidate in row j, and is kept there with 0, if W_ji at its
    highest price is below some W_jk at its lowest. Rows without any reward stay uniform. With a grain, only
    those rows are kept at which the accumulated weight max_i W_ji w_i passes a multiple of it, scaled to weigh as much.
    """
    m, n = totals.shape
    low, high = np.empty(n), np.empty(n)
    for i in range(n):
        base[i] = initial[i]
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
def _greedy(totals, x):
    """alpha = 0: every context plays its largest total; ties share equally."""
    m, n = totals.shape
    for j in range(m):
        best, count = 0.0, 0
        for i in range(n):
            best = max(best, totals[j, i])
        for i in range(n):
            count += 1 if totals[j, i] == best else 0
        for i in range(n):
            x[j, i] = 1.0 / count if totals[j, i] == best else 0.0


@kernel
def _forget(totals, initial, factors, alpha, prices, doubt):
    """Reset to the prices of uniform play, with infinite doubt; above alpha = 1 to those of 1.

    At the prices of a large alpha only the poorest arm counts, and the central path is far away.
    """
    m, n = totals.shape
    for i in range(n):
        prices[i], doubt[i] = initial[i], np.inf
    for j in range(m):
        for i in range(n):
            prices[i] += totals[j, i] / n
    for i in range(n):
        prices[i] = factors[i] * math.pow(prices[i], -min(alpha, 1.0))


@long_kernel
def solve(totals, initial, factors, alpha, tolerance, prices, doubt, x, earned):
    """Value, certified gap and steps taken; x, R, the prices and the doubt about them in place; 0 <= alpha <= 2.

    Above NEAR_ONE the value is sum_i w_i R_i, as in `certify`, and `alphafair.offline.steep` prepares the problem.

    Price i is assumed right within a factor exp(doubt_i), infinity if unknown; its actual change is returned in
    `doubt`. Wrong doubts cost time only: if they fail, the whole problem is solved from the start.
    """
    m, n = totals.shape
    if alpha <= LINEAR:
        _greedy(totals, x)
        value, gap = certify(totals, initial, factors, x, alpha, 1.0, earned, prices)
        return value, gap, 0
    base, fresh, tried, row = np.empty(n), np.empty(n), np.empty(n), np.empty(m, np.int64)
    trial, kept = np.empty((m, n)), np.empty((m, n))
    x[:, :] = 1.0 / n
    value, gap = certify(totals, initial, factors, x, alpha, 1.0, earned, fresh)
    steps, sampling = 0, True
    if doubt[0] == np.inf:
        _forget(totals, initial, factors, alpha, prices, doubt)
        if m * n > LARGE and m <= 2 * FIRST * n:
            doubt[:] = alpha  # too large to solve at once, too few rows for a sample
    for stage in range(MOST_STAGES):
        cold, grain = doubt[0] == np.inf, 0.0
        n_rows, n_entries, whole = _screen(totals, initial, prices, doubt, grain, trial, base, row, kept)
        if sampling and stage < SAMPLED_STAGES and n_rows > (2 * FIRST if cold else FEW) * n:
            grain = whole / ((FIRST if cold else SAMPLE) * n)
            n_rows, n_entries, whole = _screen(totals, initial, prices, doubt, grain, trial, base, row, kept)
        shares = np.empty((n_rows, n))
        for i in range(n):
            fresh[i] = prices[i]
        if n_rows > 0:
            barrier = 0.0
            for r in range(n_rows):
                for i in range(n):
                    barrier += min(doubt[i], 1.0) * kept[r, i] * prices[i]
            barrier *= n_rows / (n_entries * n_entries)
            aim = 1e-5 * money_per_value(alpha) if grain > 0.0 else max(0.1 * tolerance, 1e-14)
            steps += follow(kept[:n_rows], base, factors, alpha, aim, max(barrier, 1e-300), fresh, shares, tried)
        if grain > 0.0:  # the accuracy of a sample with so many grains per arm
            for i in range(n):
                count, share = fresh[i] * tried[i] / grain, max(0.0, 1.0 - base[i] / tried[i])
                doubt[i] = alpha / (1.0 + 4.0 * alpha) * (math.sqrt(share / (count + 1.0)) + 3.0 / (count + 1.0))
                prices[i] = factors[i] * math.pow(tried[i] * (1.0 + 1.0 / (count * (1.0 + count))), -alpha)
            continue
        for r in range(n_rows):
            total = 0.0
            for i in range(n):
                total += shares[r, i]
            for i in range(n):
                trial[row[r], i] = shares[r, i] / total
        trial_value, trial_gap = certify(totals, initial, factors, trial, alpha, 1.0, tried, fresh)
        if trial_gap < gap:
            value, gap = trial_value, trial_gap
            for i in range(n):
                earned[i] = tried[i]
            for j in range(m):
                for i in range(n):
                    x[j, i] = trial[j, i]
        surprise = False
        for i in range(n):
            moved = abs(math.log(fresh[i] / prices[i]))
            surprise |= moved > doubt[i]
            doubt[i] = moved if gap <= tolerance * value else max(0.3 * doubt[i], moved)
            prices[i] = fresh[i]
        if gap <= tolerance * value or cold:
            break
        if not surprise or stage == MOST_STAGES - 2:
            sampling = False
            _forget(totals, initial, factors, alpha, prices, doubt)
    return value, gap, steps


@long_kernel
def add_rounds(contexts, items, table, first, last, totals):
    """W_ji += r_i(t) for the rounds first <= t < last, with j the context of t."""
    for t in range(first, last):
        for i in range(table.shape[1]):
            totals[contexts[t], i] += table[items[t], i]


@long_kernel
def curve(data, done, rounds, problem, groups, plain, alpha, tolerance, state, x, earned, values, gaps):
    """Solve every prefix in `rounds`, increasing, each from the prices of the last; totals hold `done` rounds.

    If `plain`, merged and base are the totals and the initial accounts themselves.
    """
    contexts, items, table = data
    totals, initial, factors = problem
    best, merged, base, prices, doubt = state
    for k in range(rounds.shape[0]):
        add_rounds(contexts, items, table, done, rounds[k], totals)
        done = rounds[k]
        if not plain:
            merge(totals, initial, groups, best, merged, base)
        for g in range(doubt.shape[0]):
            doubt[g] = min(max(MARGIN * doubt[g], 1e-6), 1.0) if doubt[g] < np.inf else np.inf
        values[k], gaps[k], _ = solve(merged, base, factors, alpha, tolerance, prices, doubt, x, earned)
