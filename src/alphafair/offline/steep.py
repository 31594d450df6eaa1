"""The best fixed policy in hindsight for alpha above 0.999, max-min (alpha = inf) included, with proof.

The problem is that of `hindsight`, without groups and floors, but the proof is in welfare W (see `math.welfare`). With
levels y_i = R_i/s_i and w_i = s_i y_i^(-alpha), any x >= 0 with rows that sum to 1 has

    W <= W(OPT) <= W (1 + gap/money),   money = sum_i w_i y_i ,   gap = sum_j (max_i V_ji w_i - sum_i x_ji V_ji w_i)

where V = W_ji/s_i: Theorem B of docs/theory.md. Four things differ from `hindsight`:

- Only the size of w relative to the poorest arm matters, so levels are divided by a unit. At alpha = 64 an account of
  10^5 has w = 10^-320.
- Entitlements divide the columns of W, because s^alpha overflows.
- Arms without any reward are left out; at a large alpha one of them would make every other price vanish.
- Above alpha = 5 the exponent doubles from 2. Each solution starts from the prices of the last, those of alpha = 1 at
  first: at the prices of a large alpha only the poorest arm counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from alphafair.offline import hindsight
from alphafair.offline.hindsight import EPSILON
from alphafair.offline.interior_point import eliminate, follow
from alphafair.values.arrays import Matrix, Vector

SCREENED = 2.0  # up to this alpha `hindsight.solve` is used: it decides most contexts by their prices
DIRECT = 5.0  # up to this alpha the exponent does not have to grow in stages
PROVEN = 64.0  # above this alpha stages may fail to reach the tolerance, and max-min is tried as well
MOST_STAGED = 2.0**14  # above this alpha only max-min is tried
STAGE = 1e-2  # the gap at which a stage ends
MOST_STEPS = 100  # of max-min
REACH = 0.995  # of the way to the boundary that a step of max-min may go


class Solution(NamedTuple):
    """Shares of arms by context, the accounts, the certified relative gap of the welfare, and the steps taken."""

    shares: Matrix
    accounts: Vector
    welfare_gap: float
    steps: int


def solve(totals: Matrix, initial: Vector, entitlements: Vector, alpha: float, tolerance: float) -> Solution:
    """Maximise the welfare of initial + sum_j W_ji x_ji over distributions x, one per context."""
    shares, accounts = np.full(totals.shape, 1.0 / totals.shape[1]), initial.copy()
    rows, arms = totals.any(axis=1), totals.any(axis=0)
    if not rows.any():
        return Solution(shares, accounts, 0.0, 0)
    s, paid = entitlements[arms], np.ix_(rows, arms)
    totals, base = totals[paid] / s, initial[arms] / s
    unit = math.exp(float(np.log(base + totals.sum(axis=0) / len(s)).mean()))  # of uniform play
    totals, base = totals / unit, base / unit
    with np.errstate(all="ignore"):  # only certified points are kept
        if alpha == math.inf:
            x, levels, gap, steps = _max_min(totals, base, tolerance)
        else:
            maximise = _screened if alpha <= SCREENED else _in_stages
            x, levels, gap, steps = maximise(totals, base, s, alpha, tolerance)
    shares[rows] = 0.0
    shares[paid] = x
    accounts[arms] = levels * unit * s
    return Solution(shares, accounts, gap, steps)


def _screened(totals: Matrix, base: Vector, s: Vector, alpha: float, tolerance: float) -> Solution:
    x, levels = np.empty_like(totals), np.empty_like(base)
    unknown = np.ones_like(base), np.full_like(base, np.inf)
    money, gap, steps = hindsight.solve(totals, base, s, alpha, tolerance, *unknown, x, levels)
    return Solution(x, levels, float(gap / money), int(steps))


def _in_stages(totals: Matrix, base: Vector, s: Vector, alpha: float, tolerance: float) -> Solution:
    m, n = totals.shape
    best = _certified(totals, base, s, alpha, np.full((m, n), 1.0 / n))
    levels, n_entries, steps = best.accounts, np.count_nonzero(totals), 0
    prices, doubt = s / levels, 1.0
    for exponent in _exponents(alpha) if alpha <= MOST_STAGED else ():
        # a unit in which the mean logarithm of s y^(-exponent)/w is 0
        unit = math.exp(float((np.log(prices / s) + exponent * np.log(levels)).mean()) / exponent)
        aim = max(0.1 * tolerance, 1e-14) if exponent == alpha else STAGE
        barrier = max(doubt * float((totals / unit * prices).sum()) * m / n_entries**2, 1e-300)
        x = np.empty((m, n))
        steps += int(follow(totals / unit, base / unit, s, exponent, aim, barrier, prices, x, np.empty(n)))
        if not np.isfinite(x).all():
            break
        found = _certified(totals, base, s, alpha, x / x.sum(axis=1, keepdims=True))
        best = min(best, found, key=lambda solution: solution.welfare_gap)
        levels, doubt = found.accounts, 0.1
    if alpha > PROVEN and best.welfare_gap > tolerance:
        best = min(best, _near_max_min(totals, base, s, alpha, tolerance), key=lambda solution: solution.welfare_gap)
    return best._replace(steps=steps)


def _near_max_min(totals: Matrix, base: Vector, s: Vector, alpha: float, tolerance: float) -> Solution:
    """Return the max-min solution with its gap at alpha: min y <= W(y) <= (s_least/S)^(-1/(alpha-1)) min y."""
    found = _max_min(totals, base, tolerance)
    spread = -math.log(float(s.min() / s.sum())) / (alpha - 1.0)
    return found._replace(welfare_gap=math.expm1(math.log1p(found.welfare_gap) + spread))


def _exponents(alpha: float) -> list[float]:
    """Return the exponents of the stages: 2, 4, 8, ... alpha."""
    if alpha <= DIRECT:
        return [alpha]
    doublings = math.ceil(math.log2(alpha / 2.0))
    return [*(2.0 * 2.0**k for k in range(doublings)), alpha]


def _certified(totals: Matrix, base: Vector, s: Vector, alpha: float, x: Matrix) -> Solution:
    levels = base + (totals * x).sum(axis=0)
    money, gap = hindsight.certify(totals, base, s, x, alpha, levels.min(), levels, np.empty_like(s))
    return Solution(x, levels, float(gap / money), 0)


def _max_min(totals: Matrix, base: Vector, tolerance: float) -> Solution:
    """Maximise t subject to R_i = R_i(0) + sum_j W_ji x_ji >= t, by Mehrotra's predictor-corrector; R are levels.

    With y = R - t >= 0, prices w and a multiplier mu per context, optimality needs

        y_i w_i = 0 ,   sum_i w_i = 1 ,   z_ji = mu_j - W_ji w_i >= 0 ,   x_ji z_ji = 0 ,   sum_i x_ji = 1

    This is the system of `interior_point` with y/w in place of R/(alpha w), and one more unknown, t. With d = x/z and
    D_j = sum_i d_ji, after the contexts are eliminated its matrix is

        [ sum_j W^2 d + y/w - (W d)'(W d)/D   -1 ]
        [                1'                    0 ]

    Any w > 0 proves min_i R*_i <= (sum_i w_i R_i(0) + sum_j max_i W_ji w_i)/sum_i w_i.
    """
    m, n = totals.shape
    x, w = np.full((m, n), 1.0 / n), np.full(n, 1.0 / n)
    y = base + totals.sum(axis=0) / n
    y -= 0.9 * y.min()
    best = totals.max(axis=1) / n
    z = (best + np.maximum(1e-3 * best, y @ w))[:, None] - totals * w
    flow, inverse, zeros = np.empty((m, n)), np.empty(m), np.zeros((m, n))
    bordered = np.zeros((n + 1, n + 1))
    bordered[:n, n], bordered[n, :n] = -1.0, 1.0

    def move(x_target: Matrix, y_target: Vector) -> tuple[Matrix, Vector, Matrix, Vector]:
        """Return the steps of x, y, z and w to x z = x_target z and y w = y_target w."""
        by_context = (x_target.sum(axis=1) - 1.0) * inverse
        by_arm = y_target - y + (totals * (x - x_target)).sum(axis=0) + np.einsum("ji,j->i", flow, by_context)
        dw = np.linalg.solve(bordered, np.append(by_arm, 1.0 - w.sum()))[:n]
        dz = (by_context + np.einsum("ji,i->j", flow, dw) * inverse)[:, None] - totals * dw
        return x_target - x * (1.0 + dz / z), y_target - y * (1.0 + dw / w), dz, dw

    solution, least, bound, step = x, 0.0, math.inf, 0
    while True:
        feasible = x / x.sum(axis=1, keepdims=True)
        low = float((base + (totals * feasible).sum(axis=0)).min())
        if low > least:
            solution, least = feasible, low
        bound = min(bound, float(base @ w + (totals * w).max(axis=1).sum()) / float(w.sum()))
        if bound <= (1.0 + 0.5 * tolerance) * least or step == MOST_STEPS:
            break
        step += 1
        matrix = np.zeros((n, n))
        eliminate(totals, x, z, False, zeros[:, 0], y / w, flow, inverse, matrix)
        bordered[:n, :n] = np.triu(matrix) + np.triu(matrix, 1).T
        dx, dy, dz, dw = move(zeros, zeros[0])
        primal, dual = _longest(1.0, (x, dx), (y, dy)), _longest(1.0, (z, dz), (w, dw))
        products = float((x * z).sum() + y @ w)
        left = float(((x + primal * dx) * (z + dual * dz)).sum() + (y + primal * dy) @ (w + dual * dw))
        target = (left / products) ** 3 * products / (m * n + n)
        dx, dy, dz, dw = move((target - dx * dz) / z, (target - dy * dw) / w)
        primal, dual = _longest(REACH, (x, dx), (y, dy)), _longest(REACH, (z, dz), (w, dw))
        x, y, z, w = x + primal * dx, y + primal * dy, z + dual * dz, w + dual * dw
        if not (x.min() > 0.0 and y.min() > 0.0 and z.min() > 0.0 and w.min() > 0.0):  # rounding, or not a number
            break
    gap = max(0.0, bound / least - 1.0) + (64.0 + m + n) * EPSILON
    return Solution(solution, base + (totals * solution).sum(axis=0), gap, step)


def _longest(reach: float, *pairs: tuple[Vector | Matrix, Vector | Matrix]) -> float:
    """Return the longest step, at most 1, that goes at most `reach` of the way to where a value becomes 0."""
    return min(1.0, *(reach / max(float((-change / value).max()), 1e-300) for value, change in pairs))
