"""The best fixed policy in hindsight of many contexts and many arms: few candidates, and LAPACK.

With the right prices w_i = f_i phi'(R_i) only a few arms per context are close to the best W_ji w_i. So this

1. finds rough prices by multiplicative steps, x_ji <- x_ji W_ji w_i / sum_k x_jk W_jk w_k (at alpha = 1 the
   proportional response of buyers in a market),
2. keeps the entries whose W_ji w_i is within a margin of the best of their context, the candidates,
3. follows the central path of `interior_point` on the candidates, with the normal equations formed from them and
   factored by LAPACK, from 1,000 on, and with Gondzio's centrality corrections, because a factorization costs more
   than a solution,
4. certifies the result on all entries, and repeats from 2 at the new prices if something was left out.

Correctness depends on `hindsight.certify` alone. Below `SIZE` contexts or arms, and where this fails, `hindsight.solve`
is used: up to there compiled loops without a single call into Python are faster, and they give the same bits
everywhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.jit import long_kernel
from alphafair.math.cholesky import factor
from alphafair.math.cholesky import solve as substitute
from alphafair.math.log_barrier import level
from alphafair.offline import hindsight
from alphafair.offline.interior_point import money_per_value
from alphafair.values.arrays import Matrix, Vector

SIZE = 150  # contexts and arms from which this pays: see benchmarks/bench_offline.py
LAPACK_SIZE = 1000  # unknowns from which LAPACK pays; its threads wait for each other on busy machines
RESPONSES = 20  # multiplicative steps; half of them are repeated to see how far prices still move
LEAST_MARGIN, MOST_ROUNDS = 0.02, 6
MOST_STEPS, MOST_CORRECTIONS = 100, 3
PATIENCE = 10  # steps that do not halve the gap, before it stops because of rounding
REACH = 0.99  # of the way to the boundary that a step may go
BEND = 30.0  # the largest second-order term, in units of the mean of x z
LOW, HIGH = 0.1, 10.0  # products x z outside these multiples of the target are corrected
FURTHER, WORTH = 0.3, 0.02  # how much longer a corrected step aims to be, and has to be
SPARSE = 1.0 / 12.0  # share of the products of two entries up to which loops are faster than BLAS
BLOCK = 256  # of triangular systems
Indices = NDArray[np.int64]


class Candidates(NamedTuple):
    """The entries that take part, by row: of the rows with several candidates, renumbered, and of all arms."""

    row: Indices
    arm: Indices
    weight: Vector
    first: Indices  # entry of every row


def solve(
    totals: Matrix, initial: Vector, factors: Vector, alpha: float, tolerance: float, x: Matrix, earned: Vector
) -> tuple[float, float, int]:
    """Return the value, its certified gap and the steps taken, with x and R in place, as `hindsight.solve` does."""
    steps = 0
    if min(totals.shape) >= SIZE and alpha > hindsight.LINEAR:
        with np.errstate(all="ignore"):  # only certified points are kept
            value, gap, steps = _with_candidates(totals, initial, factors, alpha, tolerance, x, earned)
        if gap <= tolerance * value:
            return value, gap, steps
    n = totals.shape[1]
    unknown = np.ones(n), np.full(n, np.inf)
    value, gap, more = hindsight.solve(totals, initial, factors, alpha, tolerance, *unknown, x, earned)
    return value, gap, steps + more


def _with_candidates(
    totals: Matrix, initial: Vector, factors: Vector, alpha: float, tolerance: float, x: Matrix, earned: Vector
) -> tuple[float, float, int]:
    n = totals.shape[1]
    prices, before = np.empty(n), np.empty(n)
    x[:] = 1.0 / n
    respond(totals, initial, factors, alpha, RESPONSES // 2, x, before)
    respond(totals, initial, factors, alpha, RESPONSES - RESPONSES // 2, x, prices)
    moved = float(np.abs(np.log(prices / before)).max())
    margin = max(LEAST_MARGIN, 2.0 * max(1.0, alpha) * moved)
    kept = np.zeros(totals.shape, dtype=np.bool_)
    value, gap, steps, aim = 0.0, math.inf, 0, max(0.1 * tolerance, 1e-14)
    for _ in range(MOST_ROUNDS):
        some, undecided, base = screen(totals, initial, prices, min(margin, 1.0), kept, x)
        found = follow(some, len(undecided), base, factors, alpha, aim, margin, prices)
        if found is None:
            break
        shares, more = found
        steps += more
        sums = np.add.reduceat(shares, some.first) if len(shares) else shares
        x[undecided[some.row], some.arm] = shares / sums[some.row]
        value, gap = hindsight.certify(totals, initial, factors, x, alpha, 1.0, earned, prices)
        if not gap > tolerance * value:
            break
    return value, gap, steps


@long_kernel
def respond(totals, initial, factors, alpha, n_steps, x, prices):
    """Take multiplicative steps from x, and write the prices f R^(-alpha) before the last of them to `prices`."""
    m, n = totals.shape
    earned = np.empty(n)
    for step in range(n_steps + 1):
        for i in range(n):
            earned[i] = initial[i]
        for j in range(m):
            if step > 0:
                total = 0.0
                for i in range(n):
                    x[j, i] *= totals[j, i] * prices[i]
                    total += x[j, i]
                for i in range(n):
                    x[j, i] = x[j, i] / total if total > 0.0 else 1.0 / n
            for i in range(n):
                earned[i] += totals[j, i] * x[j, i]
        for i in range(n):
            prices[i] = factors[i] * math.pow(earned[i], -alpha)


def screen(
    totals: Matrix, initial: Vector, prices: Vector, margin: float, kept: NDArray[np.bool_], x: Matrix
) -> tuple[Candidates, Indices, Vector]:
    """Return the candidates, the contexts that they belong to, and what decided contexts and `initial` give every arm.

    `kept` are the candidates so far, to which these are added. Contexts without rewards stay uniform; those with one
    candidate play it.
    """
    worth = totals * prices
    best = worth.max(axis=1, keepdims=True)
    kept |= (worth >= (1.0 - margin) * best) & (worth > 0.0)
    counts = kept.sum(axis=1)
    x[:] = 0.0
    x[counts == 0] = 1.0 / totals.shape[1]
    decided, choice = counts == 1, kept.argmax(axis=1)
    x[decided, choice[decided]] = 1.0
    base = initial + np.bincount(choice[decided], totals[decided, choice[decided]], totals.shape[1])
    undecided = np.flatnonzero(counts > 1)
    row, arm = np.nonzero(kept[undecided])
    first = np.concatenate([[0], np.cumsum(counts[undecided])[:-1]]) if len(undecided) else np.empty(0, np.int64)
    return Candidates(row, arm, totals[undecided[row], arm], first), undecided, base


@long_kernel
def begin(first, values, barrier, x, z):
    """x and z of every row with x z = t and sum x = 1, for the values W w: z = mu - W w for the right mu."""
    for j in range(first.shape[0]):
        start = first[j]
        stop = first[j + 1] if j + 1 < first.shape[0] else values.shape[0]
        best = 0.0
        for e in range(start, stop):
            best = max(best, values[e])
        for e in range(start, stop):
            z[e] = (best - values[e]) / barrier
        mu = level(z[start:stop], 1.0, 1e-6, x[start:stop])
        for e in range(start, stop):
            x[e] = 1.0 / (mu + z[e])
            z[e] = barrier * (mu + z[e])


@long_kernel
def couple(first, node, own, other, flow, floor, all_pairs, inverse, square):
    """Eliminate the groups from the Newton system: `square`, its upper triangle, couples the nodes.

    `interior_point.eliminate` for entries by group; the diagonal is right to the last digits for the same reason.
    Without `all_pairs` only the diagonal is written.
    """
    for g in range(first.shape[0]):
        start = first[g]
        stop = first[g + 1] if g + 1 < first.shape[0] else node.shape[0]
        top, total = start, floor[g]
        for e in range(start, stop):
            total += own[e]
            top = e if own[e] > own[top] else top
        others = floor[g]
        for e in range(start, stop):
            others += own[e] if e != top else 0.0
        inverse[g] = 1.0 / total
        for e in range(start, stop):
            k, scale = node[e], flow[e] * inverse[g]
            square[k, k] += other[e] * ((others if e == top else total - own[e]) * inverse[g])
            if all_pairs:
                for b in range(start, e):
                    square[node[b], k] -= scale * flow[b]


@long_kernel
def factor_small(square):
    """square = U'U, in its upper triangle."""
    factor(square)


@long_kernel
def solve_small(upper, y):
    """U'U y' = y, in place."""
    substitute(upper, y)


class _Newton:
    """The Newton system of `interior_point`, formed from the candidates and factored by LAPACK."""

    def __init__(self, some: Candidates, n_rows: int, n_arms: int) -> None:
        self.some, self.n_rows, self.n_arms = some, n_rows, n_arms
        self.wide = n_rows < n_arms  # contexts are the nodes
        self.order = np.argsort(some.arm, kind="stable") if self.wide else np.arange(len(some.arm))
        group, node = (some.arm, some.row) if self.wide else (some.row, some.arm)
        self.group, self.node = group[self.order], node[self.order]
        self.used = np.unique(self.group)  # arms without candidates are no groups
        self.first = np.searchsorted(self.group, self.used)
        self.size = n_rows if self.wide else n_arms
        counts = np.diff(np.append(self.first, len(group))).astype(float)
        self.all_pairs = bool(0.5 * (counts**2).sum() <= SPARSE * len(self.used) * 0.5 * self.size**2)
        self.square = np.empty((self.size, self.size))

    def factor(self, x: Vector, z: Vector, stiffness: Vector) -> None:
        some = self.some
        d = x / z
        self.flow = some.weight * d
        pull = some.weight * self.flow
        own, other = (pull, d) if self.wide else (d, pull)
        floor = stiffness[self.used] if self.wide else np.zeros(len(self.used))
        inverse = np.empty(len(self.used))
        square, diagonal = self.square, np.diag_indices(self.size)
        square[:] = 0.0
        if not self.wide:
            square[diagonal] = stiffness
        flow = self.flow[self.order]
        entries = own[self.order], other[self.order], flow
        couple(self.first, self.node, *entries, floor, self.all_pairs, inverse, square)
        if not self.all_pairs:
            table = np.zeros((len(self.used), self.size))
            place = np.searchsorted(self.used, self.group)
            table[place, self.node] = flow * np.sqrt(inverse)[place]
            kept = square[diagonal]
            square -= table.T @ table
            square[diagonal] = kept
        self.inverse = 1.0 / stiffness if self.wide else np.empty(self.n_rows)
        self.inverse[self.used] = inverse
        if self.size < LAPACK_SIZE:
            factor_small(square)
            return
        self.lower = _cholesky(square.T)
        blocks = range(0, self.size, BLOCK)
        self.blocks = [(b, np.linalg.inv(self.lower[b : b + BLOCK, b : b + BLOCK])) for b in blocks]

    def solve(self, by_row: Vector, by_arm: Vector) -> tuple[Vector, Vector]:
        """Return dmu and dw."""
        some = self.some
        if self.wide:
            nodes = by_row + np.bincount(some.row, self.flow * (by_arm * self.inverse)[some.arm], self.n_rows)
            dmu = self._substitute(nodes)
            dw = (by_arm + np.bincount(some.arm, self.flow * dmu[some.row], self.n_arms)) * self.inverse
            return dmu, dw
        nodes = by_arm + np.bincount(some.arm, self.flow * (by_row * self.inverse)[some.row], self.n_arms)
        dw = self._substitute(nodes)
        return (by_row + np.bincount(some.row, self.flow * dw[some.arm], self.n_rows)) * self.inverse, dw

    def _substitute(self, y: Vector) -> Vector:
        """Solve L L' y' = y in place, block by block: NumPy has no function for triangular systems."""
        if self.size < LAPACK_SIZE:
            solve_small(self.square, y)
            return y
        lower = self.lower
        for b, inverse in self.blocks:
            stop = b + BLOCK
            y[b:stop] = inverse @ (y[b:stop] - lower[b:stop, :b] @ y[:b])
        for b, inverse in reversed(self.blocks):
            stop = b + BLOCK
            y[b:stop] = inverse.T @ (y[b:stop] - y[stop:] @ lower[stop:, b:stop])
        return y


def _cholesky(square: Matrix) -> Matrix:
    """Return the Cholesky factor, of a slightly larger diagonal if the matrix is singular up to rounding."""
    more, diagonal = 1e-15, np.diag_indices(len(square))
    while True:
        try:
            return np.asarray(np.linalg.cholesky(square), dtype=np.float64)
        except np.linalg.LinAlgError:
            if more > 1e-9:
                raise
            square[diagonal] *= 1.0 + more
            more *= 100.0


def follow(
    some: Candidates,
    n_rows: int,
    base: Vector,
    factors: Vector,
    alpha: float,
    tolerance: float,
    margin: float,
    prices: Vector,
) -> tuple[Vector, int] | None:
    """Return the shares of the candidates and the steps taken; None where the steps break down."""
    row, arm, weight, first = some
    n, n_entries = len(base), len(weight)
    if n_entries == 0:
        return weight, 0
    newton = _Newton(some, n_rows, n)
    w, log_factors = prices.copy(), np.log(factors)
    x, z = np.empty(n_entries), np.empty(n_entries)
    values = weight * w[arm]
    begin(first, values, min(margin, 1.0) * float(values.sum()) * n_rows / n_entries**2, x, z)
    least, waited = math.inf, 0
    for step in range(MOST_STEPS):
        earned = base + np.bincount(arm, weight * x, n)
        products = float(x @ z)
        residual = log_factors - np.log(w) - alpha * np.log(earned)
        value = float(earned @ w) / money_per_value(alpha)
        worst = float(np.abs(residual).max())
        gap = products + 2.0 * worst * float((earned - base) @ w)
        if not math.isfinite(gap):
            return None
        waited = 0 if gap < 0.5 * least else waited + 1
        least = min(least, gap)
        if gap <= tolerance * value or (waited > PATIENCE and products <= tolerance * value):
            return x, step
        stiffness = earned / (alpha * w)
        try:
            newton.factor(x, z, stiffness)
        except np.linalg.LinAlgError:
            return None

        def direction(target: Vector, bend: Vector | float) -> tuple[Vector, Vector, Vector, Vector]:
            """Return the steps of x, mu and w to x z = target z, and dz/z."""
            by_arm = stiffness * w * (residual + bend) + earned - base - np.bincount(arm, weight * target, n)  # noqa: B023
            dmu, dw = newton.solve(np.add.reduceat(target, first) - 1.0, by_arm)
            change = (dmu[row] - weight * dw[arm]) / z  # noqa: B023
            return target - x * (1.0 + change), dmu, dw, change  # noqa: B023

        def lengths(dx: Vector, dw: Vector, change: Vector, reach: float) -> tuple[float, float]:
            """Return the longest steps of x, and of z and w, that keep them positive."""
            of_x = max(reach, float((-dx / x).max()))  # noqa: B023
            return reach / of_x, reach / max(reach, float((-change).max()), float((-dw / w).max()))  # noqa: B023

        dx, _, dw, change = direction(np.zeros(n_entries), 0.0)
        step_x, step_z = lengths(dx, dw, change, 1.0)
        left = float((x + step_x * dx) @ (z * (1.0 + step_z * change)))
        centering = 1.0 if gap > 1e4 * products and worst > 0.5 else min(1.0, max(0.0, left / products)) ** 3
        target = max(centering * products, 0.1 * tolerance * value) / n_entries
        bound = BEND * products / n_entries
        a = np.clip(dw / w, -0.5, 0.5)
        b = np.clip((w * residual - dw) * stiffness / earned, -0.5, 0.5)
        bend = 0.5 * (a * a + alpha * b * b)
        aim = (target + np.clip(x * z * change * (1.0 + change), -bound, bound)) / z
        dx, dmu, dw, change = direction(aim, bend)
        reach = min(max(REACH, 1.0 - centering), 1.0 - 1e-6)
        step_x, step_z = lengths(dx, dw, change, reach)
        for _ in range(MOST_CORRECTIONS if min(step_x, step_z) < 0.9 else 0):
            further_x, further_z = min(1.0, step_x + FURTHER), min(1.0, step_z + FURTHER)
            reached = (x + further_x * dx) * (z * (1.0 + further_z * change))
            aim = aim + np.maximum(np.clip(reached, LOW * target, HIGH * target) - reached, -HIGH * target) / z
            tried = direction(aim, bend)
            longer_x, longer_z = lengths(tried[0], tried[2], tried[3], reach)
            if longer_x + longer_z < step_x + step_z + WORTH:
                break
            (dx, dmu, dw, change), step_x, step_z = tried, longer_x, longer_z
        if waited > 4:  # steps of two lengths can take turns for ever
            step_x = step_z = min(step_x, step_z)
        x, w, z = x + step_x * dx, w + step_z * dw, z + step_z * (dmu[row] - weight * dw[arm])
    return x, MOST_STEPS
