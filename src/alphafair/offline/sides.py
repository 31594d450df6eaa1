"""The second side of the optimum in hindsight: every context gets a share of its best, or counts in the objective.

With V_ji the rewards of arm i in context j, B_j = max_i V_ji, C_j = sum_i V_ji x_ji and U_j = 1 + C_j, it is one of

    Promise     C_j >= share B_j in every context
    Joint       maximize W(R)^(1-theta) prod_j U_j^(theta q_j) instead of W(R)

With prices w_i of arms, and p_j >= 0 of contexts, an arm is shown in j only if V_ji (w_i + p_j) is largest. Any prices
prove that no policy that keeps the promise earns more, at the prices w, than

    sum_i w_i a_i + sum_j [max_i V_ji (w_i + p_j) - p_j share B_j]

For the joint objective p_j = theta/(1-theta) q_j sum_i w_i R_i / U_j, and the gap is that of its linear problem,
because the objective is concave and scales with the accounts. On the path of `alphafair.offline.primal_dual`
p_j slack_j = t, or p_j U_j is what it is at the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups
from alphafair.offline.reduction import Reduction
from alphafair.values.arrays import Matrix, Vector

EPSILON = float(np.finfo(np.float64).eps)
INSIDE = 0.5  # of the way from the promise to the best arm, where the path starts
FIRST_PRICE = 0.1  # of the mean worth of a context, over its best reward


class Sides(NamedTuple):
    """A checked second side: the share that every context gets, or theta with the part q of every context in it."""

    share: float
    weight: float
    weights: Vector

    @classmethod
    def of(
        cls,
        totals: Matrix,
        context_share: float,
        context_weight: float,
        context_weights: ArrayLike | None,
        present: ArrayLike | None = None,
        k: ArrayLike = 1,
    ) -> Sides | None:
        """Check the arguments; None without a second side."""
        share, weight = validate.context_share(context_share), validate.context_weight(context_weight)
        if weight == 0.0 and context_weights is not None:
            raise InvalidArgument(
                "context_weights", "None without a context_weight", context_weights, "Pass a context_weight as well."
            )
        if share == 0.0 and weight == 0.0:
            return None
        if share > 0.0 and weight > 0.0:
            repair = "Pass one of them."
            raise InvalidArgument("context_share", "left out with a context_weight", context_share, repair)
        name = "context_share" if share > 0.0 else "context_weight"
        if present is not None:
            repair = "Solve every epoch by itself."
            raise InvalidArgument("present", f"left out with a {name}", f"shape {np.shape(present)}", repair)
        if (np.asarray(k) != 1).any():
            raise InvalidArgument("k", f"1 with a {name}", k, "Pass one arm per decision.")
        if weight == 0.0:
            return cls(share, 0.0, np.zeros(len(totals)))
        if context_weights is None:
            repair = "Pass np.bincount(stream.contexts) to weigh contexts by their visits."
            raise InvalidArgument("context_weights", "given with a context_weight", None, repair)
        weights = validate.context_weights(context_weights, len(totals), totals.max(axis=1) == 0.0)
        return cls(0.0, weight, weights / weights.sum())


def cheapest_prices(worth: Matrix, rewards: Matrix, due: Vector) -> Vector:
    """Return the p >= 0 of every row at which max_i (worth_i + p rewards_i) - p due is least.

    That is a convex function of p with linear pieces: its minimum is at 0, or where a line that falls, of an arm with
    less than what is due, crosses one that does not.
    """
    rows = np.arange(len(worth))

    def largest(first: Matrix, second: Matrix) -> NDArray[np.intp]:
        """The largest entry of every row of `first`, of several the one with the most of `second`."""
        return np.asarray(np.where(first == first.max(axis=1, keepdims=True), second, -np.inf).argmax(axis=1))

    falling, rising = largest(worth, rewards), largest(rewards, worth)
    p = np.zeros(len(worth))
    open_rows = rewards[rows, falling] < due
    while open_rows.any():  # every pass leaves a row with two lines between whose slopes fewer others lie
        here = rows[open_rows]
        a, b = falling[here], rising[here]
        apart = rewards[here, b] - rewards[here, a]
        p[here] = np.maximum(0.0, worth[here, a] - worth[here, b]) / apart
        height = worth[here] + p[here, None] * rewards[here]
        top = height.argmax(axis=1)
        better = height[np.arange(len(here)), top] > height[np.arange(len(here)), a] * (1.0 + 4.0 * EPSILON)
        better &= (top != a) & (top != b)
        falls = rewards[here, top] < due[here]
        falling[here] = np.where(better & falls, top, a)
        rising[here] = np.where(better & ~falls, top, b)
        open_rows[here] = better
    return p


def check_room(share: float, groups: ArmGroups) -> None:
    """Check that floors leave room for a share."""
    left = 1.0 - groups.n_arms * groups.arm_floor - float(groups.group_floors.sum())
    if share > 0.0 and share >= left:
        allowed = f"below {max(0.0, left):.4g}, what the floors leave"
        raise InvalidArgument("context_share", allowed, share, "Lower the floors or the share.")


def side_of(sides: Sides, reduction: Reduction, totals: Matrix, best: Matrix, merged: Matrix) -> Side:
    """Return the second side of the problem with an arm per group and no floors, from W and `reduction.merge` of it."""
    groups = reduction.groups
    given = groups.arm_floor * totals.sum(axis=1) + best @ groups.group_floors
    if sides.weight > 0.0:
        return Joint(merged, 1.0 + given, sides.weight / (1.0 - sides.weight) * sides.weights)
    check_room(sides.share, groups)
    return Promise(merged, sides.share * totals.max(axis=1) - given)


class Promise(NamedTuple):
    """Every context gets at least `due` of the rewards of its arms, beside what floors give it."""

    rewards: Matrix
    due: Vector

    @property
    def parts(self) -> Vector:
        """What contexts own of the money of arms."""
        return np.zeros(len(self.due))

    def of_rows(self, rows: NDArray[np.bool_], unit: float) -> Promise:
        return Promise(self.rewards[rows] / unit, self.due[rows] / unit)

    def start(self, x: Matrix, worth: Matrix, scale: float) -> OfPromise:
        return OfPromise(self, x, worth)

    def inside(self, x: Matrix) -> Matrix:
        """Return x, mixed with the best arms where it does not keep the promise with room to spare."""
        return self._lifted(x, self.due + INSIDE * (self.rewards.max(axis=1) - self.due))

    def kept(self, x: Matrix) -> Matrix:
        """Return x, mixed with the best arms by what rounding may have taken from the promise."""
        return self._lifted(x, self.due * (1.0 + 4.0 * EPSILON))

    def _lifted(self, x: Matrix, least: Vector) -> Matrix:
        earned, most = (self.rewards * x).sum(axis=1), self.rewards.max(axis=1)
        lacks = earned < least
        part = np.where(lacks, (least - earned) / np.where(lacks, most - earned, 1.0), 0.0)
        best = self.rewards == most[:, None]
        return np.asarray(x + np.clip(part, 0.0, 1.0)[:, None] * (best / best.sum(axis=1, keepdims=True) - x))

    def prices(self, worth: Matrix, money: float, x: Matrix) -> Vector:
        """The prices of the best proof."""
        return cheapest_prices(worth, self.rewards, self.due)

    def beside(self, p: Vector) -> float:
        """What a proof at the prices p adds to what arms earn at most."""
        return -float(p @ self.due)

    def log_worth(self, x: Matrix) -> float:
        """What contexts add to the logarithm of the welfare."""
        return 0.0

    def log_rest(self, p: Vector) -> float:
        """What the proof of `primal_dual.by_dual` adds to it for contexts, beside A."""
        return 0.0

    def unspent(self, x: Matrix, p: Vector) -> float:
        """What is paid at the prices of contexts above the promise, rounding included."""
        earned = (self.rewards * x).sum(axis=1)
        return float((p * (np.maximum(0.0, earned - self.due) + (4.0 + x.shape[1]) * EPSILON * earned)).sum())


class Joint(NamedTuple):
    """Accounts of contexts, with what floors give them, and the parts theta/(1-theta) q of the money of arms."""

    rewards: Matrix
    base: Vector
    parts: Vector

    def of_rows(self, rows: NDArray[np.bool_], unit: float) -> Joint:
        return Joint(self.rewards[rows] / unit, self.base[rows] / unit, self.parts[rows])

    def start(self, x: Matrix, worth: Matrix, scale: float) -> OfJoint:
        return OfJoint(self, x, scale)

    def inside(self, x: Matrix) -> Matrix:
        return x

    def kept(self, x: Matrix) -> Matrix:
        return x

    def accounts(self, x: Matrix) -> Vector:
        return np.asarray(self.base + (self.rewards * x).sum(axis=1))

    def prices(self, worth: Matrix, money: float, x: Matrix) -> Vector:
        """The derivatives of the objective, over that of the arms' part in their money."""
        return self.parts * money / self.accounts(x)

    def beside(self, p: Vector) -> float:
        return float(p @ self.base)

    def log_worth(self, x: Matrix) -> float:
        return float(self.parts @ np.log(self.accounts(x)))

    def log_rest(self, p: Vector) -> float:
        return float(self.parts @ np.log(self.parts / p))

    def unspent(self, x: Matrix, p: Vector) -> float:
        return 0.0


Side = Promise | Joint


class OfPromise:
    """The prices p of contexts on the path, and the slack of their promises: p slack = t."""

    def __init__(self, side: Promise, x: Matrix, worth: Matrix) -> None:
        self.side = side
        self.slack = (side.rewards * x).sum(axis=1) - side.due
        self.p = FIRST_PRICE * worth.mean(axis=1) / side.rewards.max(axis=1)
        self.of = np.zeros_like(self.p)  # the slack at which p slack would have its target

    @property
    def products(self) -> float:
        return float((self.slack * self.p).sum())

    @property
    def n_products(self) -> int:
        return len(self.p)

    @property
    def stiffness(self) -> Vector:
        return np.asarray(self.slack / self.p)

    def along(self, scale: float) -> Vector:
        return np.zeros_like(self.p)

    def right(self, x: Matrix, scale: float, target: float, first: tuple[Vector, Vector] | None) -> Vector:
        """The right-hand side of the rows of contexts; `first` are the changes of p and the slack before."""
        self.of = (target - (0.0 if first is None else first[0] * first[1])) / self.p
        return np.asarray(self.of - ((self.side.rewards * x).sum(axis=1) - self.side.due))

    def change(self, x_change: Matrix, dp: Vector) -> Vector:
        """The change of the slack."""
        return np.asarray(self.of - self.slack - self.stiffness * dp)

    def products_after(self, dp: Vector, change: Vector, primal: float, dual: float) -> float:
        return float(((self.slack + primal * change) * (self.p + dual * dp)).sum())

    def move(self, x: Matrix, dp: Vector, change: Vector, primal: float, dual: float) -> None:
        self.slack, self.p = self.slack + primal * change, self.p + dual * dp

    def limits(self, change: Vector) -> list[tuple[Vector, Vector]]:
        """What must stay positive along a step in x, with its change."""
        return [(self.slack, change)]

    @property
    def is_inside(self) -> bool:
        return bool(min(self.slack.min(), self.p.min()) > 0.0)


class OfJoint:
    """The prices p of contexts on the path, and their accounts U: log p + log U = log(parts scale)."""

    n_products, products = 0, 0.0

    def __init__(self, side: Joint, x: Matrix, scale: float) -> None:
        self.side, self.account = side, side.accounts(x)
        self.p = side.parts * scale / self.account

    @property
    def stiffness(self) -> Vector:
        return np.asarray(self.account / self.p)

    def along(self, scale: float) -> Vector:
        """By how much the right-hand side rises with the scale."""
        return np.asarray(self.account / scale)

    def right(self, x: Matrix, scale: float, target: float, first: tuple[Vector, Vector] | None) -> Vector:
        off = np.log(self.side.parts * scale) - np.log(self.p) - np.log(self.account)
        if first is not None:
            a, b = (np.clip(each, -0.5, 0.5) for each in (first[0] / self.p, first[1] / self.account))
            off = off + 0.5 * (a * a + b * b)
        return np.asarray(self.account * off)

    def change(self, x_change: Matrix, dp: Vector) -> Vector:
        """The change of the accounts."""
        return np.asarray((self.side.rewards * x_change).sum(axis=1))

    def products_after(self, dp: Vector, change: Vector, primal: float, dual: float) -> float:
        return 0.0

    def move(self, x: Matrix, dp: Vector, change: Vector, primal: float, dual: float) -> None:
        self.account, self.p = self.side.accounts(x), self.p + dual * dp

    def limits(self, change: Vector) -> list[tuple[Vector, Vector]]:
        return []

    @property
    def is_inside(self) -> bool:
        return bool(self.p.min() > 0.0)
