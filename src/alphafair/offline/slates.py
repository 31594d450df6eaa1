"""The best fixed slates in hindsight, for any alpha, with proof: a context shows k arms, so no arm takes more than 1.

With levels y_G = R_G/s_G, V_ji = W_ji/s_G in the group G of arm i, and kappa_j the number of arms that context j shows,

    max  welfare of y   over   y_G = y_G(0) + sum_j sum_{i in G} V_ji x_ji ,  0 <= x <= 1 ,  sum_i x_ji = kappa_j .

Floors are taken off before: kappa may be any number between 0 and the number of arms. Several arms of a group may be
shown together, so a group is not one arm as in `alphafair.offline.reduction`. With w_G = s_G y_G^(-alpha) any x has

    W <= W(OPT) <= W (1 + gap/money) ,  money = sum_G w_G y_G ,  gap = sum_j [topsum(V_j w) - <V_j w, x_j>]

where topsum is the sum of the kappa_j largest entries, the last one in part: `certify`. Optimality needs multipliers mu
per context, z of x >= 0 and v of x <= 1:

    z - v = mu - V w ,  x z = t ,  (1 - x) v = t        with t = 0

`follow` drives t to 0 by Mehrotra's predictor-corrector, on the system of `alphafair.offline.interior_point` with
1/d = z/x + v/(1 - x) in place of z/x. For a large alpha `by_dual` solves the problem of `steep._dual` in the same way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups
from alphafair.math.welfare import welfare
from alphafair.offline.hindsight import EPSILON, LINEAR
from alphafair.offline.steep import REACH, STAGE, STAGED, Solution, _exponents
from alphafair.values.arrays import Matrix, Vector

MOST_STEPS = 100
WARM = 0.97  # of x of the last stage, the rest is uniform
MOST_FACTOR = math.e  # by which a step may change a price
CALM = 8  # steps without progress


class Problem(NamedTuple):
    """V (contexts, arms), y(0) and s by group, the one-hot table of arms and groups, and kappa by context."""

    totals: Matrix
    base: Vector
    s: Vector
    member: Matrix
    kappa: Vector

    def levels(self, x: Matrix) -> Vector:
        """y."""
        return np.asarray(self.base + (self.totals * x).sum(axis=0) @ self.member)

    def worth(self, w: Vector) -> Matrix:
        """V w."""
        return self.totals * (self.member @ w)


class Rows(NamedTuple):
    """Rows of W whose decisions show several arms: which arms are present, their floor, and k, at most all of them."""

    there: NDArray[np.bool_]
    floor: Vector
    k: Vector

    @classmethod
    def of(cls, k: ArrayLike, shape: tuple[int, ...], groups: ArmGroups, present: NDArray[np.bool_] | None) -> Rows:
        """Check k, one number or one per row, and the floors."""
        m, n = shape
        there = np.ones((m, n), dtype=np.bool_) if present is None else np.repeat(present, m // len(present), axis=0)
        count = there.sum(axis=1)
        if groups.floored:
            repair = "Pass one pull_floor for all arms."
            raise InvalidArgument("k", "1 with a pull_floor by group", k, repair)
        return cls(there, np.minimum(groups.arm_floor, 1.0 / count), np.minimum(checked_k(k, m), count).astype(float))

    @property
    def kappa(self) -> Vector:
        """What is left for z in x = floor + (1 - floor) z."""
        count, left = self.there.sum(axis=1), np.maximum(1.0 - self.floor, EPSILON)
        return np.asarray(np.where(self.k >= count, count, (self.k - count * self.floor) / left))

    def promised(self, totals: Matrix) -> Vector:
        """What arms earn by their floors."""
        return np.asarray((totals * self.there * self.floor[:, None]).sum(axis=0))

    def most(self, totals: Matrix, w: Vector | float = 1.0) -> float:
        """The most that slates can earn above the floors, at the prices w of arms."""
        return float(((1.0 - self.floor) * topsum(totals * w, self.kappa)).sum())

    def policy(self, z: Matrix) -> Matrix:
        """Return x. What absent arms have of z, where nothing better is left, goes to the present ones."""
        absent = np.where(self.there, 0.0, z).sum(axis=1, keepdims=True)
        room = np.where(self.there, 1.0 - z, 0.0)
        total = room.sum(axis=1, keepdims=True)
        z = np.where(self.there, z + room * (absent / np.where(total > 0.0, total, 1.0)), 0.0)
        return np.where(self.there, self.floor[:, None] + (1.0 - self.floor[:, None]) * z, 0.0)


def checked_k(k: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    """Check the number of arms per decision: one number, or one per row."""
    if np.ndim(k) == 0:
        return np.full(n_rows, validate.integer("k", k, low=1))
    return validate.indices("k", k, None, n_entries=n_rows, low=1).astype(np.int64)


def best_slates(
    totals: Matrix, initial: Vector, groups: ArmGroups, rows: Rows, alpha: float, tolerance: float
) -> tuple[Matrix, Vector, Vector, float, int]:
    """Return x, the accounts of groups, the rewards of arms, the relative gap of the welfare, and the steps."""
    of_arms, n_groups = groups.of_arms, groups.n_groups
    base = initial + np.bincount(of_arms, rows.promised(totals), n_groups)
    above = totals * (1.0 - rows.floor)[:, None]
    found = solve(above, base, of_arms, groups.entitlements, rows.kappa, alpha, tolerance)
    x = rows.policy(found.shares)
    earned = (totals * x).sum(axis=0)
    return x, initial + np.bincount(of_arms, earned, n_groups), earned, found.welfare_gap, found.steps


def solve(
    totals: Matrix,
    initial: Vector,
    of_arms: NDArray[np.int64],
    entitlements: Vector,
    kappa: Vector,
    alpha: float,
    tolerance: float,
) -> Solution:
    """Return x, the accounts and the relative gap of the welfare; `initial` and `entitlements` are by group."""
    n = totals.shape[1]
    shares = np.repeat(kappa[:, None] / n, n, axis=1)
    member = (of_arms[:, None] == np.arange(len(initial))).astype(np.float64)
    shares[kappa >= n] = 1.0
    rows = totals.any(axis=1) & (kappa < n) & (kappa > 0.0)
    fixed = initial + (totals * shares)[~rows].sum(axis=0) @ member
    paid = totals.any(axis=0) @ member > 0.0
    if not rows.any():
        return Solution(shares, fixed, (64.0 + n) * EPSILON, 0)
    with np.errstate(all="ignore"):  # only certified points are kept
        per_level = totals[rows] / (member @ entitlements)
        levels = fixed / entitlements
        average = levels + (per_level * shares[rows]).sum(axis=0) @ member
        unit = math.exp(float(np.log(average[paid]).mean()))
        problem = Problem(
            per_level / unit,
            levels[paid] / unit,
            entitlements[paid],
            np.ascontiguousarray(member[:, paid]),
            kappa[rows],
        )
        found = _maximize(problem, alpha, tolerance)
    shares[rows] = found.shares
    return found._replace(shares=shares, accounts=initial + (totals * shares).sum(axis=0) @ member)


def _maximize(problem: Problem, alpha: float, tolerance: float) -> Solution:
    uniform = np.repeat(problem.kappa[:, None] / problem.totals.shape[1], problem.totals.shape[1], axis=1)
    if alpha <= LINEAR:
        return _certified(problem, alpha, greedy(problem.worth(problem.s), problem.kappa), 0)
    best, x, steps = _certified(problem, alpha, uniform, 0), uniform, 0
    if alpha <= STAGED:
        for exponent in _exponents(alpha):
            aim = tolerance if exponent == alpha else STAGE
            found = follow(problem, exponent, aim, WARM * x + (1.0 - WARM) * uniform)
            x, steps = found.shares, steps + found.steps
        best = min(best, _certified(problem, alpha, x, steps), key=lambda solution: solution.welfare_gap)
    if alpha > 1.0 and best.welfare_gap > tolerance:
        found = by_dual(problem, alpha, tolerance, uniform)
        best = min(best, found._replace(steps=found.steps + steps), key=lambda solution: solution.welfare_gap)
    return best._replace(steps=max(steps, best.steps))


def thresholds(worth: Matrix, kappa: Vector) -> Vector:
    """Return the entry of every row at which the kappa largest end."""
    last = np.minimum(np.ceil(kappa).astype(np.int64), worth.shape[1]) - 1
    return np.asarray(-np.sort(-worth, axis=1)[np.arange(len(worth)), last])


def greedy(worth: Matrix, kappa: Vector) -> Matrix:
    """Return x with the largest entries of every row; ties at the end share equally."""
    level = thresholds(worth, kappa)[:, None]
    above, at = worth > level, worth == level
    left = kappa - above.sum(axis=1)
    return np.asarray(above + at * (left / at.sum(axis=1))[:, None])


def topsum(worth: Matrix, kappa: Vector) -> Vector:
    """Return the sum of the kappa largest entries of every row, the last one in part."""
    level = thresholds(worth, kappa)
    return np.asarray(np.maximum(worth - level[:, None], 0.0).sum(axis=1) + kappa * level)


def certify(problem: Problem, x: Matrix, w: Vector) -> float:
    """Return the gap of x at prices w, raised by what rounding may hide.

    With c the threshold of a row it is sum (V w - c)+ (1 - x) + (c - V w)+ x: every term is >= 0, nothing cancels.
    """
    worth = problem.worth(w)
    level = thresholds(worth, problem.kappa)
    over = worth - level[:, None]
    terms = np.where(over > 0.0, over * (1.0 - x), -over * x).sum(axis=1)
    m, n = x.shape
    excess = np.abs(x.sum(axis=1) - problem.kappa) + 4.0 * EPSILON * (n + problem.kappa)
    return float((terms * (1.0 + (m + n) * EPSILON) + worth.max(axis=1) * excess).sum())


def _certified(problem: Problem, alpha: float, x: Matrix, steps: int) -> Solution:
    y = problem.levels(x)
    unit = float(y.min()) if alpha > 1.0 else 1.0
    if alpha == math.inf:
        return Solution(x, y, math.inf, steps)
    w = problem.s * (y / unit) ** -alpha
    relative = certify(problem, x, w) / float(w @ y)
    return Solution(x, y, relative + (64.0 + x.shape[1]) * EPSILON, steps)


class Point:
    """x with its slack 1 - x, the multipliers z and v of both, and mu of every context."""

    def __init__(self, problem: Problem, x: Matrix, w: Vector) -> None:
        worth = problem.worth(w)
        self.x, self.rest, self.mu = x, 1.0 - x, thresholds(worth, problem.kappa)
        lead = worth - self.mu[:, None]
        least = 0.1 * np.abs(lead).mean(axis=1, keepdims=True) + 1e-3 * worth.max(axis=1, keepdims=True)
        self.z, self.v = np.maximum(-lead, 0.0) + least, np.maximum(lead, 0.0) + least

    @property
    def products(self) -> float:
        return float((self.x * self.z).sum() + (self.rest * self.v).sum())

    def products_after(self, step: Step, primal: float, dual: float) -> float:
        """The products where a step ends."""
        at_zero = ((self.x + primal * step.dx) * (self.z + dual * step.dz)).sum()
        return float(at_zero + ((self.rest - primal * step.dx) * (self.v + dual * step.dv)).sum())

    def targets(self, step: Step, target: float) -> tuple[Matrix, Matrix]:
        """What z and v become for products of `target`, second-order terms included."""
        return (target - step.dx * step.dz) / self.x, (target + step.dx * step.dv) / self.rest

    def move(self, problem: Problem, step: Step, primal: float, dual: float) -> None:
        """Go along; x is put back to its sum along x (1 - x)."""
        self.x, self.rest = self.x + primal * step.dx, self.rest - primal * step.dx
        room = self.x * self.rest
        back = room * ((problem.kappa - self.x.sum(axis=1)) / room.sum(axis=1))[:, None]
        self.x, self.rest = self.x + back, self.rest - back
        self.z, self.v, self.mu = self.z + dual * step.dz, self.v + dual * step.dv, self.mu + dual * step.dmu

    def is_inside(self) -> bool:
        return bool(min(self.x.min(), self.rest.min(), self.z.min(), self.v.min()) > 0.0)


class Step(NamedTuple):
    """Changes of x, z, v and mu, and those of the prices w followed by other unknowns."""

    dx: Matrix
    dz: Matrix
    dv: Matrix
    dmu: Vector
    unknowns: Vector


class System:
    """The Newton system at a point with prices w, reduced to the accounts of groups."""

    def __init__(self, problem: Problem, point: Point, w: Vector) -> None:
        self.problem, self.point = problem, point
        self.d = 1.0 / (point.z / point.x + point.v / point.rest)
        self.total = self.d.sum(axis=1)
        self.flow = (problem.totals * self.d) @ problem.member
        own = problem.totals * problem.totals * self.d
        self.matrix = np.diag(own.sum(axis=0) @ problem.member) - self.flow.T @ (self.flow / self.total[:, None])
        if (problem.member.sum(axis=0) <= 1.0).all():  # then the diagonal is right to the last digits
            others = self.total[:, None] - self.d
            np.fill_diagonal(self.matrix, (own * (others / self.total[:, None])).sum(axis=0) @ problem.member)
        self.residual = problem.worth(w) - point.mu[:, None] + point.z - point.v
        self.lacking = problem.kappa - point.x.sum(axis=1)

    def stiffen(self, stiffness: Vector) -> None:
        self.matrix[np.diag_indices_from(self.matrix)] += stiffness

    def solve(self, of_x: Matrix, of_rest: Matrix, right: Vector, *more: float) -> Step:
        """Return the step to x z = x `of_x` and (1 - x) v = (1 - x) `of_rest`; `right` is that of the accounts."""
        problem, point, d = self.problem, self.point, self.d
        pull = self.residual + (of_x - point.z) - (of_rest - point.v)
        by_context = ((d * pull).sum(axis=1) - self.lacking) / self.total
        by_group = right - (problem.totals * d * pull).sum(axis=0) @ problem.member + by_context @ self.flow
        unknowns = np.linalg.solve(self.matrix, np.append(by_group, more))
        moved = d * (problem.worth(unknowns[: len(right)]) + pull)
        dmu = (moved.sum(axis=1) - self.lacking) / self.total
        dx = moved - d * dmu[:, None]
        dz, dv = of_x - point.z - point.z / point.x * dx, of_rest - point.v + point.v / point.rest * dx
        return Step(dx, dz, dv, dmu, unknowns)


def longest(reach: float, *pairs: tuple[Vector | Matrix, Vector | Matrix]) -> float:
    """Return the longest step, at most 1, that goes at most `reach` of the way to where a value becomes 0."""
    return min(1.0, *(reach / max(float((-change / value).max()), 1e-300) for value, change in pairs))


def follow(problem: Problem, alpha: float, tolerance: float, x: Matrix) -> Solution:
    """The primal-dual method for a finite alpha > 0, from x inside."""
    s, y, zeros = problem.s, problem.levels(x), np.zeros_like(x)
    w = s * y**-alpha
    point = Point(problem, x, w)
    best, waited, n_steps = _certified(problem, alpha, x, 0), 0, 0
    while n_steps < MOST_STEPS and waited <= CALM and best.welfare_gap > 0.5 * tolerance:
        n_steps += 1
        system, stiffness = System(problem, point, w), y / (alpha * w)
        system.stiffen(stiffness)
        off = np.log(s / w) - alpha * np.log(y)  # what w lacks to be s y^(-alpha)
        try:
            step = system.solve(zeros, zeros, stiffness * w * off)
            dw = step.unknowns
            primal = longest(1.0, (point.x, step.dx), (point.rest, -step.dx))
            dual = longest(1.0, (point.z, step.dz), (point.v, step.dv), (w, dw))
            left = point.products_after(step, primal, dual) / point.products
            a, b = np.clip(dw / w, -0.5, 0.5), np.clip((off - dw / w) / alpha, -0.5, 0.5)
            bend = 0.5 * (a * a + alpha * b * b)
            targets = point.targets(step, left**3 * point.products / (2.0 * x.size))
            step = system.solve(*targets, stiffness * w * (off + bend))
        except np.linalg.LinAlgError:  # singular to the last digit
            break
        dw = step.unknowns
        primal = longest(REACH, (point.x, step.dx), (point.rest, -step.dx))
        dual = longest(REACH, (point.z, step.dz), (point.v, step.dv), (w, dw))
        dual = min(dual, (1.0 - 1.0 / MOST_FACTOR) / max(float(np.abs(dw / w).max()), 1e-300))
        point.move(problem, step, primal, dual)
        w = w + dual * dw
        if not (point.is_inside() and w.min() > 0.0):  # rounding, or not a number
            break
        y = problem.levels(point.x)
        found = _certified(problem, alpha, point.x, n_steps)
        waited = 0 if found.welfare_gap < best.welfare_gap else waited + 1
        best = min(best, found, key=lambda solution: solution.welfare_gap)
    return best._replace(steps=n_steps)


def by_dual(problem: Problem, alpha: float, tolerance: float, x: Matrix) -> Solution:
    """The dual for alpha > 1, inf included: the best proof A(w) G(w)^(-alpha/(alpha-1)), as in `steep._dual`."""
    root, q, zeros = 1.0 / alpha, problem.s / problem.s.sum(), np.zeros_like(x)
    w, g, y = q.copy(), np.ones_like(q), problem.levels(x)
    t = 0.9 * float(y.min())
    u = y - t
    point, n_groups = Point(problem, x, w), len(q)
    solution, reached, bound, n_steps = x, 0.0, math.inf, 0
    rounding = (16.0 + x.shape[1]) * EPSILON / abs(1.0 - root)
    while True:
        y = problem.levels(point.x)
        achieved = float(welfare(y, q, alpha))
        if achieved > reached:
            solution, reached = point.x, achieved
        most = float(problem.base @ w + topsum(problem.worth(w), problem.kappa).sum())
        bound = min(bound, float(most * np.float64(w @ g) ** (-1.0 / (1.0 - root))) * (1.0 + rounding))
        if bound <= (1.0 + 0.5 * tolerance) * reached or n_steps == MOST_STEPS:
            break
        n_steps += 1
        system = System(problem, point, w)
        system.stiffen((u + root * t * g) / w)
        system.matrix = np.block([[system.matrix, -g[:, None]], [(1.0 - root) * g[None], np.zeros((1, 1))]])
        lacking = 1.0 - float(w @ g)
        try:
            step = system.solve(zeros, zeros, t * g - y, lacking)
            dw = step.unknowns[:n_groups]
            du = -u - u / w * dw
            primal = longest(1.0, (point.x, step.dx), (point.rest, -step.dx), (u, du))
            dual = longest(1.0, (point.z, step.dz), (point.v, step.dv), (w, dw))
            products = point.products + float(u @ w)
            left = point.products_after(step, primal, dual) + float((u + primal * du) @ (w + dual * dw))
            target = (left / products) ** 3 * products / (2 * x.size + n_groups)
            of_u = (target - du * dw) / w
            step = system.solve(*point.targets(step, target), of_u + t * g - y, lacking)
        except np.linalg.LinAlgError:  # singular to the last digit
            break
        dw, dt = step.unknowns[:n_groups], float(step.unknowns[n_groups])
        du = of_u - u - u / w * dw
        primal = longest(REACH, (point.x, step.dx), (point.rest, -step.dx), (u, du))
        dual = longest(REACH, (point.z, step.dz), (point.v, step.dv), (w, dw))
        point.move(problem, step, primal, dual)
        u, t, w = u + primal * du, t + primal * dt, w + dual * dw
        g = (q / w) ** root
        if not (point.is_inside() and u.min() > 0.0 and w.min() > 0.0):  # rounding, or not a number
            break
    gap = max(0.0, bound / reached - 1.0) + (64.0 + sum(x.shape)) * EPSILON
    return Solution(solution, problem.levels(solution), gap, n_steps)
