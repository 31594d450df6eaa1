"""The primal-dual method for slates, and for two sides: the best fixed policy for any alpha, with proof.

With levels y_G = R_G/s_G, V_ji = W_ji/s_G in the group G of arm i, and kappa_j the number of arms that context j shows,

    max  welfare of y   over   y_G = y_G(0) + sum_j sum_{i in G} V_ji x_ji ,  0 <= x <= 1 ,  sum_i x_ji = kappa_j .

With w_G = s_G y_G^(-alpha) any x has

    W <= W(OPT) <= W (1 + gap/money) ,  money = sum_G w_G y_G ,  gap = sum_j [topsum(V_j w) - <V_j w, x_j>]

where topsum is the sum of the kappa_j largest entries, the last one in part: `certify`. Optimality needs multipliers mu
per context, z of x >= 0 and v of x <= 1:

    z - v = mu - V w ,  x z = t ,  (1 - x) v = t        with t = 0

`follow` drives t to 0 by Mehrotra's predictor-corrector, on the system of `alphafair.offline.interior_point` with
1/d = z/x + v/(1 - x) in place of z/x. For a large alpha `by_dual` solves the problem of `steep._dual` in the same way.

With a second side (`alphafair.offline.sides`), of one arm per decision, contexts have prices p, and W_ji p_j is added
to V_ji w. After mu each p_j is eliminated, too: with V- the entries of W less their mean at the weights d,

    sum_i d V- (V dw) + [sum_i d V-^2 + stiffness] dp = right

The prices w of the joint objective are relative to the money of arms, sum_G w_G y_G = 1, so that log w = log s
- alpha log y - log sum_G s_G y_G^(1-alpha): a rank one more in the system of accounts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.math.welfare import welfare
from alphafair.offline.hindsight import EPSILON, LINEAR
from alphafair.offline.sides import Joint, OfJoint, OfPromise, Side
from alphafair.offline.steep import REACH, STAGE, STAGED, Solution, _exponents
from alphafair.values.arrays import Matrix, Vector

MOST_STEPS = 100
WARM = 0.97  # of x of the last stage, the rest is uniform
MOST_FACTOR = math.e  # by which a step may change a price
BEFORE_DUAL = (
    8.0,
    2.0,
)  # exponents of the prices at which the dual of the joint objective starts: from afar it is lost
CALM = 8  # steps without progress


class Problem(NamedTuple):
    """V (contexts, arms), y(0) and s by group, the one-hot table of arms and groups, kappa by context, and the second
    side if there is one."""

    totals: Matrix
    base: Vector
    s: Vector
    member: Matrix
    kappa: Vector
    side: Side | None = None

    @property
    def is_joint(self) -> bool:
        return isinstance(self.side, Joint)

    def levels(self, x: Matrix) -> Vector:
        """y."""
        return np.asarray(self.base + (self.totals * x).sum(axis=0) @ self.member)

    def worth(self, w: Vector, p: Vector | None = None) -> Matrix:
        """V w, and W p if contexts have prices."""
        worth = np.asarray(self.totals * (self.member @ w))
        return worth if p is None or self.side is None else worth + self.side.rewards * p[:, None]


def solve(
    totals: Matrix,
    initial: Vector,
    of_arms: NDArray[np.int64],
    entitlements: Vector,
    kappa: Vector,
    alpha: float,
    tolerance: float,
    side: Side | None = None,
) -> Solution:
    """Return x, the accounts and the relative gap of the welfare; `initial` and `entitlements` are by group.

    A second side has the rewards of `totals`; its prices are derivatives of the welfare, by reward.
    """
    n = totals.shape[1]
    shares = np.repeat(kappa[:, None] / n, n, axis=1)
    member = (of_arms[:, None] == np.arange(len(initial))).astype(np.float64)
    shares[kappa >= n] = 1.0
    rows = totals.any(axis=1) & (kappa < n) & (kappa > 0.0)
    fixed = initial + (totals * shares)[~rows].sum(axis=0) @ member
    paid = totals.any(axis=0) @ member > 0.0
    if isinstance(side, Joint):  # W is a part of the objective: accounts that stay count, too
        paid[:] = True
    prices = None if side is None else np.zeros(len(totals))
    if not rows.any():
        return Solution(shares, fixed, (64.0 + n) * EPSILON, 0, prices)
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
            None if side is None else side.of_rows(rows, unit),
        )
        found = _maximize(problem, alpha, tolerance)
    shares[rows] = found.shares
    if prices is not None:
        prices[rows] = found.context_prices
    accounts = initial + (totals * shares).sum(axis=0) @ member
    return found._replace(shares=shares, accounts=accounts, context_prices=prices)


def _maximize(problem: Problem, alpha: float, tolerance: float) -> Solution:
    uniform = np.repeat(problem.kappa[:, None] / problem.totals.shape[1], problem.totals.shape[1], axis=1)
    uniform = uniform if problem.side is None else problem.side.inside(uniform)
    if alpha <= LINEAR:
        return _certified(problem, alpha, greedy(problem.worth(problem.s), problem.kappa), 0)
    best, x, steps = _certified(problem, alpha, uniform, 0), uniform, 0
    if alpha <= STAGED:
        for exponent in [
            *_exponents(alpha),
            *([alpha] if problem.side is not None else []),
        ]:  # once more from elsewhere
            aim = tolerance if exponent == alpha else STAGE
            found = follow(problem, exponent, aim, WARM * x + (1.0 - WARM) * uniform)
            x, steps = found.shares, steps + found.steps
            if exponent == alpha and found.welfare_gap <= tolerance:
                break
        best = min(best, _certified(problem, alpha, x, steps), key=lambda solution: solution.welfare_gap)
    if alpha > 1.0 and best.welfare_gap > tolerance:
        for first in BEFORE_DUAL if problem.is_joint else (0.0,):
            x = uniform
            for exponent in _exponents(min(alpha, first)) if first > 0.0 else ():
                found = follow(problem, exponent, STAGE, WARM * x + (1.0 - WARM) * uniform)
                x, steps = WARM * found.shares + (1.0 - WARM) * uniform, steps + found.steps
            found = by_dual(problem, alpha, tolerance, x, first)
            best = min(best, found._replace(steps=found.steps + steps), key=lambda solution: solution.welfare_gap)
            if best.welfare_gap <= tolerance:
                break
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


def certify(problem: Problem, x: Matrix, w: Vector, p: Vector | None = None) -> float:
    """Return the gap of x at prices w, and p of contexts, raised by what rounding may hide.

    With c the threshold of a row it is sum (V w - c)+ (1 - x) + (c - V w)+ x: every term is >= 0, nothing cancels.
    """
    worth = problem.worth(w, p)
    level = thresholds(worth, problem.kappa)
    over = worth - level[:, None]
    terms = np.where(over > 0.0, over * (1.0 - x), -over * x).sum(axis=1)
    m, n = x.shape
    excess = np.abs(x.sum(axis=1) - problem.kappa) + 4.0 * EPSILON * (n + problem.kappa)
    unspent = 0.0 if p is None or problem.side is None else problem.side.unspent(x, p)
    return float((terms * (1.0 + (m + n) * EPSILON) + worth.max(axis=1) * excess).sum()) + unspent


def _certified(problem: Problem, alpha: float, x: Matrix, steps: int) -> Solution:
    side = problem.side
    x = x if side is None else side.kept(x)
    y = problem.levels(x)
    unit = float(y.min()) if alpha > 1.0 else 1.0
    if alpha == math.inf:
        return Solution(x, y, math.inf, steps, None if side is None else np.zeros(len(x)))
    w = problem.s * (y / unit) ** -alpha
    money = float(w @ y)
    rounding = (64.0 + x.shape[1]) * EPSILON
    if side is None:
        return Solution(x, y, certify(problem, x, w) / money + rounding, steps)
    p = side.prices(problem.worth(w), money, x)
    relative = certify(problem, x, w, p) / (money * (1.0 + float(side.parts.sum())))
    return Solution(x, y, relative + rounding, steps, p * (float(welfare(y, problem.s, alpha)) / money))


class Point:
    """x with its slack 1 - x, the multipliers z and v of both, mu of every context, and its price on the second side.

    `second` has the prices of contexts, and what they are prices of.
    """

    def __init__(self, problem: Problem, x: Matrix, w: Vector, scale: float = 1.0) -> None:
        worth = problem.worth(w)
        self.second: OfPromise | OfJoint | None = None
        if problem.side is not None:
            self.second = problem.side.start(x, worth, scale)
            worth = problem.worth(w, self.second.p)
        self.x, self.rest, self.mu = x, 1.0 - x, thresholds(worth, problem.kappa)
        lead = worth - self.mu[:, None]
        least = 0.1 * np.abs(lead).mean(axis=1, keepdims=True) + 1e-3 * worth.max(axis=1, keepdims=True)
        low = high = least
        if self.second is not None:  # x may begin close to its bounds: products are to be alike
            even = problem.kappa[:, None] / x.shape[1]
            low, high = least * even / x, least * (1.0 - even) / self.rest
        self.z, self.v = np.maximum(-lead, 0.0) + low, np.maximum(lead, 0.0) + high

    @property
    def p(self) -> Vector | None:
        return None if self.second is None else self.second.p

    @property
    def products(self) -> float:
        of_x = float((self.x * self.z).sum() + (self.rest * self.v).sum())
        return of_x if self.second is None else of_x + self.second.products

    @property
    def n_products(self) -> int:
        return 2 * self.x.size + (0 if self.second is None else self.second.n_products)

    def products_after(self, step: Step, primal: float, dual: float) -> float:
        """The products where a step ends."""
        at_zero = ((self.x + primal * step.dx) * (self.z + dual * step.dz)).sum()
        of_x = float(at_zero + ((self.rest - primal * step.dx) * (self.v + dual * step.dv)).sum())
        return of_x if self.second is None else of_x + self.second.products_after(step.dp, step.own, primal, dual)

    def targets(self, step: Step | None, target: float, scale: float = 1.0) -> Targets:
        """What z and v become for products of `target`, second-order terms of a step before included."""
        second = None
        if self.second is not None:
            second = self.second.right(self.x, scale, target, None if step is None else (step.dp, step.own))
        if step is None:
            return Targets(np.zeros_like(self.x), np.zeros_like(self.x), second)
        return Targets((target - step.dx * step.dz) / self.x, (target + step.dx * step.dv) / self.rest, second)

    def lengths(self, reach: float, step: Step, primal: Pairs = (), dual: Pairs = ()) -> tuple[float, float]:
        """How far x and other values of the primal, and z, v, p and others of the dual may go along a step."""
        if self.second is not None:
            primal = (*primal, *self.second.limits(step.own))
            dual = (*dual, (self.second.p, step.dp))
        return (
            longest(reach, (self.x, step.dx), (self.rest, -step.dx), *primal),
            longest(reach, (self.z, step.dz), (self.v, step.dv), *dual),
        )

    def move(self, problem: Problem, step: Step, primal: float, dual: float) -> None:
        """Go along; x is put back to its sum along x (1 - x)."""
        self.x, self.rest = self.x + primal * step.dx, self.rest - primal * step.dx
        room = self.x * self.rest
        back = room * ((problem.kappa - self.x.sum(axis=1)) / room.sum(axis=1))[:, None]
        self.x, self.rest = self.x + back, self.rest - back
        self.z, self.v, self.mu = self.z + dual * step.dz, self.v + dual * step.dv, self.mu + dual * step.dmu
        if self.second is not None:
            self.second.move(self.x, step.dp, step.own, primal, dual)

    def is_inside(self) -> bool:
        inside = bool(min(self.x.min(), self.rest.min(), self.z.min(), self.v.min()) > 0.0)
        return inside and (self.second is None or self.second.is_inside)


Pairs = tuple[tuple[Vector | Matrix, Vector | Matrix], ...]  # values with their changes


class Targets(NamedTuple):
    """What z and v are to become, and the right-hand side of the second side."""

    of_x: Matrix
    of_rest: Matrix
    second: Vector | None


class Step(NamedTuple):
    """Changes of x, z, v and mu, those of the prices w followed by other unknowns, and of p with what it is a price of.

    Without a second side the last two are empty.
    """

    dx: Matrix
    dz: Matrix
    dv: Matrix
    dmu: Vector
    unknowns: Vector
    dp: Vector
    own: Vector


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
        self.residual = problem.worth(w, point.p) - point.mu[:, None] + point.z - point.v
        self.lacking = problem.kappa - point.x.sum(axis=1)
        if point.second is not None and problem.side is not None:
            rewards = problem.side.rewards
            self.mean = (self.d * rewards).sum(axis=1) / self.total
            self.off_mean = rewards - self.mean[:, None]
            self.cross = (problem.totals * self.d * self.off_mean) @ problem.member
            self.stretch = (self.d * self.off_mean**2).sum(axis=1) + point.second.stiffness
            self.matrix -= self.cross.T @ (self.cross / self.stretch[:, None])

    def border(self, g: Vector, below: Vector, scale: float) -> None:
        """Add an unknown, with -g in the rows of accounts and one more row; the prices of contexts rise with it."""
        self.along = None if self.point.second is None else self.point.second.along(scale)
        beside = -g if self.along is None else -g + (self.along / self.stretch) @ self.cross
        self.matrix = np.block([[self.matrix, beside[:, None]], [below[None], np.zeros((1, 1))]])

    def solve(self, targets: Targets, right: Vector, *more: float) -> Step:
        """Return the step to x z = x `of_x` and (1 - x) v = (1 - x) `of_rest`; `right` is that of the accounts."""
        problem, point, d, (of_x, of_rest, second) = self.problem, self.point, self.d, targets
        pull = self.residual + (of_x - point.z) - (of_rest - point.v)
        by_context = ((d * pull).sum(axis=1) - self.lacking) / self.total
        by_group = right - (problem.totals * d * pull).sum(axis=0) @ problem.member + by_context @ self.flow
        if second is not None:
            second = second - self.mean * self.lacking - (d * self.off_mean * pull).sum(axis=1)
            by_group = by_group - (second / self.stretch) @ self.cross
        unknowns = np.linalg.solve(self.matrix, np.append(by_group, more))
        dw = unknowns[: len(right)]
        dp, worth = np.empty(0), problem.worth(dw)
        if second is not None:
            further = self.along * unknowns[-1] if more and self.along is not None else 0.0
            dp = (second + further - self.cross @ dw) / self.stretch
            worth = problem.worth(dw, dp)
        moved = d * (worth + pull)
        dmu = (moved.sum(axis=1) - self.lacking) / self.total
        dx = moved - d * dmu[:, None]
        dz, dv = of_x - point.z - point.z / point.x * dx, of_rest - point.v + point.v / point.rest * dx
        own = np.empty(0) if point.second is None else point.second.change(dx, dp)
        return Step(dx, dz, dv, dmu, unknowns, dp, own)


def longest(reach: float, *pairs: tuple[Vector | Matrix, Vector | Matrix]) -> float:
    """Return the longest step, at most 1, that goes at most `reach` of the way to where a value becomes 0."""
    return min(1.0, *(reach / max(float((-change / value).max()), 1e-300) for value, change in pairs))


def follow(problem: Problem, alpha: float, tolerance: float, x: Matrix) -> Solution:
    """The primal-dual method for a finite alpha > 0, from x inside."""
    s, y = problem.s, problem.levels(x)

    def by_slopes(y: Vector) -> tuple[Vector, Matrix]:
        """Return the logarithms of w at y, and the derivatives of y by them, less their sign."""
        logs, pulls = np.log(s) - alpha * np.log(y), np.diag(y / alpha)
        if problem.is_joint:
            most = float((logs + np.log(y)).max())
            logs = logs - most - math.log(float(np.exp(logs + np.log(y) - most).sum()))
            pulls = pulls - (1.0 - alpha) / alpha * np.outer(y, y * np.exp(logs))
        return logs, pulls

    w = np.exp(by_slopes(y)[0])
    point = Point(problem, x, w)
    best, waited, n_steps = _certified(problem, alpha, x, 0), 0, 0
    while n_steps < MOST_STEPS and waited <= CALM and best.welfare_gap > 0.5 * tolerance:
        n_steps += 1
        system, (logs, pulls) = System(problem, point, w), by_slopes(y)
        system.matrix += pulls / w
        off = logs - np.log(w)  # what w lacks
        try:
            step = system.solve(point.targets(None, 0.0), pulls @ off)
            dw = step.unknowns
            left = point.products_after(step, *point.lengths(1.0, step, (), ((w, dw),))) / point.products
            a, b = np.clip(dw / w, -0.5, 0.5), np.clip(pulls @ (off - dw / w) / y, -0.5, 0.5)
            bend = 0.5 * (a * a + alpha * b * b)
            targets = point.targets(step, left**3 * point.products / point.n_products)
            step = system.solve(targets, pulls @ (off + bend))
        except np.linalg.LinAlgError:  # singular to the last digit
            break
        dw = step.unknowns
        primal, dual = point.lengths(REACH, step, (), ((w, dw),))
        for price, change in [(w, dw)] if point.second is None else [(w, dw), (point.second.p, step.dp)]:
            dual = min(dual, (1.0 - 1.0 / MOST_FACTOR) / max(float(np.abs(change / price).max()), 1e-300))
        point.move(problem, step, primal, dual)
        w = w + dual * dw
        if not (point.is_inside() and w.min() > 0.0):  # rounding, or not a number
            break
        y = problem.levels(point.x)
        found = _certified(problem, alpha, point.x, n_steps)
        waited = 0 if found.welfare_gap < best.welfare_gap else waited + 1
        best = min(best, found, key=lambda solution: solution.welfare_gap)
    return best._replace(steps=n_steps)


def by_dual(problem: Problem, alpha: float, tolerance: float, x: Matrix, first: float = 0.0) -> Solution:
    """The dual for alpha > 1, inf included: the best proof A(w) G(w)^(-alpha/(alpha-1)), as in `steep._dual`.

    It starts from x and prices of the exponent `first`.

    The prices w are then derivatives of the welfare W by levels, and t becomes W. With the parts f of contexts, any
    prices p > 0 of theirs prove

        W prod_j U_j^f_j <= (A/(1 + F))^(1 + F) G(w)^(-alpha/(alpha-1)) prod_j (f_j/p_j)^f_j ,   F = sum_j f_j

    because W <= <w, y> G^(...) and prod_j (p_j U_j/f_j)^(f_j/F) <= <p, U>/F, whose sum is at most A.
    """
    root, q, side = 1.0 / alpha, problem.s / problem.s.sum(), problem.side
    w, g, y = q.copy(), np.ones_like(q), problem.levels(x)
    if first > 0.0:
        w = q * (y / y.min()) ** -min(alpha, first)
        w /= float(w @ (q / w) ** root) ** (1.0 / (1.0 - root))
        g = (q / w) ** root
    t = 0.9 * float(y.min())
    u = y - t
    point, n_groups = Point(problem, x, w, t), len(q)
    proof = Proof(problem, alpha)
    n_steps = 0
    while True:
        y = problem.levels(point.x)
        proof.improve(point.x, w, g)
        if proof.log_gap <= 0.5 * tolerance or n_steps == MOST_STEPS:
            break
        n_steps += 1
        system = System(problem, point, w)
        system.matrix[np.diag_indices_from(system.matrix)] += (u + root * t * g) / w
        system.border(g, (1.0 - root) * g, t)
        lacking = 1.0 - float(w @ g)
        try:
            step = system.solve(point.targets(None, 0.0, t), t * g - y, lacking)
            dw = step.unknowns[:n_groups]
            du = -u - u / w * dw
            primal, dual = point.lengths(1.0, step, ((u, du),), ((w, dw),))
            products = point.products + float(u @ w)
            left = point.products_after(step, primal, dual) + float((u + primal * du) @ (w + dual * dw))
            target = (left / products) ** 3 * products / (point.n_products + n_groups)
            of_u = (target - du * dw) / w
            step = system.solve(point.targets(step, target, t), of_u + t * g - y, lacking)
        except np.linalg.LinAlgError:  # singular to the last digit
            break
        dw, dt = step.unknowns[:n_groups], float(step.unknowns[n_groups])
        du = of_u - u - u / w * dw
        primal, dual = point.lengths(REACH, step, ((u, du),), ((w, dw),))
        if (
            prices := point.p
        ) is not None and problem.is_joint:  # prices of contexts and t are coupled by their logarithms
            most = max(abs(dt) / t, float(np.abs(step.dp / prices).max()))
            primal = dual = min(primal, dual, (1.0 - 1.0 / MOST_FACTOR) / max(most, 1e-300))
        point.move(problem, step, primal, dual)
        u, t, w = u + primal * du, t + primal * dt, w + dual * dw
        g = (q / w) ** root
        if not (point.is_inside() and u.min() > 0.0 and w.min() > 0.0):  # rounding, or not a number
            break
    gap = max(0.0, math.expm1(proof.log_gap)) + (64.0 + sum(x.shape)) * EPSILON
    prices = None if side is None else proof.prices
    return Solution(proof.x, problem.levels(proof.x), gap, n_steps, prices)


class Proof:
    """The best policy that was met, and the best proof, of the dual."""

    def __init__(self, problem: Problem, alpha: float) -> None:
        self.problem, self.alpha = problem, alpha
        self.power = -1.0 / (1.0 - 1.0 / alpha)
        self.rounding = (16.0 + problem.totals.shape[1]) * EPSILON / abs(1.0 - 1.0 / alpha)
        self.reached, self.bound = -math.inf, math.inf  # logarithms
        self.x = np.empty(0)
        self.prices = np.zeros(len(problem.totals))

    @property
    def log_gap(self) -> float:
        """Of the welfare, or of the joint objective."""
        side = self.problem.side
        return (self.bound - self.reached) / (1.0 + (0.0 if side is None else float(side.parts.sum())))

    def improve(self, x: Matrix, w: Vector, g: Vector) -> None:
        """Take x, and the prices w with their g, where they are better."""
        problem, side = self.problem, self.problem.side
        x = x if side is None else side.kept(x)
        y = problem.levels(x)
        achieved = float(welfare(y, problem.s, self.alpha))
        log_achieved, log_rest, p = math.log(achieved), 0.0, None
        most = float(problem.base @ w)
        if side is not None:
            p = side.prices(problem.worth(w), achieved, x)
            most += side.beside(p)
            log_achieved += side.log_worth(x)
            log_rest = side.log_rest(p)
        most += float(topsum(problem.worth(w, p), problem.kappa).sum())
        if log_achieved > self.reached:
            self.x, self.reached = x, log_achieved
        whole = 1.0 if side is None else 1.0 + float(side.parts.sum())
        log_bound = whole * math.log(most / whole) + self.power * math.log(float(w @ g)) + log_rest
        log_bound += whole * self.rounding
        if log_bound < self.bound:
            self.bound = log_bound
            if p is not None:
                self.prices = p / float(w @ g)
