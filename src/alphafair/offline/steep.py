"""The best fixed policy in hindsight for alpha above 0.999, max-min (alpha = inf) included, with proof.

The problem is that of `hindsight`, without groups and floors, but the proof is in welfare W (see `math.welfare`). With
levels y_i = R_i/s_i and w_i = s_i y_i^(-alpha), any x >= 0 with rows that sum to 1 has

    W <= W(OPT) <= W (1 + gap/money),   money = sum_i w_i y_i ,   gap = sum_j (max_i V_ji w_i - sum_i x_ji V_ji w_i)

where V = W_ji/s_i: Theorem B of docs/background/theory.md. Five things differ from `hindsight`:

- Only the size of w relative to the poorest arm matters, so levels are divided by a unit. At alpha = 64 an account of
  10^5 has w = 10^-320.
- Entitlements divide the columns of W, because s^alpha overflows.
- Arms without any reward are left out; at a large alpha one of them would make every other price vanish.
- Above alpha = 5 the exponent doubles from 2. Each solution starts from the prices of the last, those of alpha = 1 at
  first: at the prices of a large alpha only the poorest arm counts.
- Above alpha = 64, and where this fails, Newton's method is applied to the dual, which stays well conditioned as alpha
  grows: see `_dual`. It takes longer, and next to alpha = 1 its proof has no digits left.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from alphafair.math.welfare import welfare
from alphafair.offline import hindsight, large
from alphafair.offline.hindsight import EPSILON
from alphafair.offline.interior_point import eliminate, follow
from alphafair.values.arrays import Matrix, Vector

SCREENED = 2.0  # up to this alpha `hindsight.solve` is used: it decides most contexts by their prices
DIRECT = 5.0  # up to this alpha the exponent does not have to grow in stages
STAGED = 64.0  # up to this alpha stages are tried before the dual
STAGE = 1e-2  # the gap at which a stage ends
MOST_STEPS = 100  # of the dual
LEAST_DISTANCE = 1e-6  # of alpha from 1, at which the dual is tried
REACH = 0.995  # of the way to the boundary that a step of the dual may go


class Solution(NamedTuple):
    """Shares of arms by context, the accounts, the certified relative gap of the welfare, and the steps taken.

    Where contexts have prices, their prices as derivatives of the welfare by reward.
    """

    shares: Matrix
    accounts: Vector
    welfare_gap: float
    steps: int
    context_prices: Vector | None = None


def solve(totals: Matrix, initial: Vector, entitlements: Vector, alpha: float, tolerance: float) -> Solution:
    """Maximize the welfare of initial + sum_j W_ji x_ji over distributions x, one per context."""
    shares, accounts = np.full(totals.shape, 1.0 / totals.shape[1]), initial.copy()
    rows, arms = totals.any(axis=1), totals.any(axis=0)
    if not rows.any():
        return Solution(shares, accounts, (64.0 + totals.shape[1]) * EPSILON, 0)  # rounding of the welfare
    s, paid = entitlements[arms], np.ix_(rows, arms)
    with np.errstate(all="ignore"):  # only certified points are kept
        totals, base = totals[paid] / s, initial[arms] / s
        unit = math.exp(float(np.log(base + totals.sum(axis=0) / len(s)).mean()))  # of uniform play
        totals, base = totals / unit, base / unit
        maximize = _screened if alpha <= SCREENED else _in_stages if alpha <= STAGED else _dual
        found = maximize(totals, base, s, alpha, tolerance)
        if alpha <= STAGED and abs(alpha - 1.0) >= LEAST_DISTANCE and found.welfare_gap > tolerance:
            found = min(found, _dual(totals, base, s, alpha, tolerance), key=lambda solution: solution.welfare_gap)
    x, levels, gap, steps, _ = found
    shares[rows] = 0.0
    shares[paid] = x
    accounts[arms] = levels * unit * s
    return Solution(shares, accounts, gap, steps)


def _screened(totals: Matrix, base: Vector, s: Vector, alpha: float, tolerance: float) -> Solution:
    x, levels = np.empty_like(totals), np.empty_like(base)
    money, gap, steps = large.solve(totals, base, s, alpha, tolerance, x, levels)
    return Solution(x, levels, float(gap / money), int(steps))


def _in_stages(totals: Matrix, base: Vector, s: Vector, alpha: float, tolerance: float) -> Solution:
    m, n = totals.shape
    best = _certified(totals, base, s, alpha, np.full((m, n), 1.0 / n))
    levels, n_entries, steps = best.accounts, np.count_nonzero(totals), 0
    prices, doubt = s / levels, 1.0
    for exponent in _exponents(alpha):
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
    return best._replace(steps=steps)


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


def _dual(totals: Matrix, base: Vector, s: Vector, alpha: float, tolerance: float) -> Solution:
    """Maximize the welfare of levels y_i = y_i(0) + sum_j W_ji x_ji through the dual, for alpha > 1, inf included.

    Let q = s/sum s. By Theorem B any prices w > 0 prove

        W(OPT) <= A(w) G(w)^(-alpha/(alpha-1)) ,   A = sum_i w_i y_i(0) + sum_j max_i W_ji w_i ,   G = sum_i w_i g_i

    with g_i = (q_i/w_i)^(1/alpha). The best proof minimizes A subject to G = 1. G is nearly linear if alpha is large,
    and linear for max-min (g = 1), so the dual is nearly a linear program, while the primal has slopes y^(-alpha).
    Rounding of G is magnified by alpha/|alpha-1|, and the proof is raised by that.
    Optimality needs a multiplier mu per context, t of G and u of w >= 0:

        y_i = t g_i + u_i ,  u_i w_i = 0 ,  G(w) = 1 ,  z_ji = mu_j - W_ji w_i >= 0 ,  x_ji z_ji = 0 ,  sum_i x_ji = 1

    (u is 0 at the optimum unless alpha is inf. On the way it lets the price of a rich arm, whose exact value may be
    10^-300, be any number that is too small to matter.) Mehrotra's predictor-corrector solves the system of
    `interior_point` with u/w + t g/(alpha w) in place of R/(alpha w), and one more unknown, t. With d = x/z and
    D_j = sum_i d_ji, after the contexts are eliminated its matrix is

        [ sum_j W^2 d + u/w + t g/(alpha w) - (W d)'(W d)/D   -g ]
        [               (1 - 1/alpha) g'                       0 ]
    """
    (m, n), root = totals.shape, 1.0 / alpha
    x, q = np.full((m, n), 1.0 / n), s / s.sum()
    w, g, levels = q.copy(), np.ones(n), base + totals.sum(axis=0) / n
    t = 0.9 * float(levels.min())
    u = levels - t
    best = (totals * w).max(axis=1)
    z = (best + np.maximum(1e-3 * best, u @ w))[:, None] - totals * w
    flow, inverse, zeros = np.empty((m, n)), np.empty(m), np.zeros((m, n))
    bordered = np.zeros((n + 1, n + 1))

    def move(x_target: Matrix, u_target: Vector) -> tuple[Matrix, Vector, Matrix, Vector, float]:
        """Return the steps of x, u, z, w and t to x z = x_target z and u w = u_target w."""
        by_context = (x_target.sum(axis=1) - 1.0) * inverse
        by_arm = u_target + t * g - levels + (totals * (x - x_target)).sum(axis=0) + by_context @ flow
        steps = np.linalg.solve(bordered, np.append(by_arm, 1.0 - w @ g))
        dw, dt = steps[:n], float(steps[n])
        dz = (by_context + (flow @ dw) * inverse)[:, None] - totals * dw
        return x_target - x * (1.0 + dz / z), u_target - u * (1.0 + dw / w), dz, dw, dt

    solution, reached, bound, step = x, 0.0, math.inf, 0
    rounding = (16.0 + n) * EPSILON / abs(1.0 - root)
    while True:
        feasible = x / x.sum(axis=1, keepdims=True)
        achieved = float(welfare(base + (totals * feasible).sum(axis=0), q, alpha))
        if achieved > reached:
            solution, reached = feasible, achieved
        most = float(base @ w + (totals * w).max(axis=1).sum())
        bound = min(bound, float(most * np.float64(w @ g) ** (-1.0 / (1.0 - root))) * (1.0 + rounding))
        if bound <= (1.0 + 0.5 * tolerance) * reached or step == MOST_STEPS:
            break
        step += 1
        matrix, levels = np.zeros((n, n)), base + (totals * x).sum(axis=0)
        eliminate(totals, x, z, False, zeros[:, 0], (u + root * t * g) / w, flow, inverse, matrix)
        bordered[:n, :n] = np.triu(matrix) + np.triu(matrix, 1).T
        bordered[:n, n], bordered[n, :n] = -g, (1.0 - root) * g
        try:
            dx, du, dz, dw, _ = move(zeros, zeros[0])
            primal, dual = _longest(1.0, (x, dx), (u, du)), _longest(1.0, (z, dz), (w, dw))
            products = float((x * z).sum() + u @ w)
            left = ((x + primal * dx) * (z + dual * dz)).sum() + (u + primal * du) @ (w + dual * dw)
            target = float((left / products) ** 3 * products / (m * n + n))
            dx, du, dz, dw, dt = move((target - dx * dz) / z, (target - du * dw) / w)
        except np.linalg.LinAlgError:  # singular to the last digit
            break
        primal, dual = _longest(REACH, (x, dx), (u, du)), _longest(REACH, (z, dz), (w, dw))
        x, u, t, z, w = x + primal * dx, u + primal * du, t + primal * dt, z + dual * dz, w + dual * dw
        g = (q / w) ** root
        if not (x.min() > 0.0 and u.min() > 0.0 and z.min() > 0.0 and w.min() > 0.0):  # rounding, or not a number
            break
    gap = max(0.0, bound / reached - 1.0) + (64.0 + m + n) * EPSILON
    return Solution(solution, base + (totals * solution).sum(axis=0), gap, step)


def _longest(reach: float, *pairs: tuple[Vector | Matrix, Vector | Matrix]) -> float:
    """Return the longest step, at most 1, that goes at most `reach` of the way to where a value becomes 0."""
    return min(1.0, *(reach / max(float((-change / value).max()), 1e-300) for value, change in pairs))
