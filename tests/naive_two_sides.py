"""The slow oracle of policies that are fair to contexts too: `naive_alpha` with prices of arms and contexts.

U_j = 1 + the rewards of context j, n_j its rounds, t their sum, q_j fixed or n_j/t (1/(t+1) before its first round):
W_2 = W^(1-theta) prod_j U_j^(theta q_j), and in context j the price of an arm is dW_2/dR_i + dW_2/dU_j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from tests import naive_alpha
from tests.naive_adaptive import Vector, best_of
from tests.naive_alpha import Books, slopes, welfare


class Sides:
    """Accounts and weights of contexts, and the prices that follow."""

    def __init__(self, n_contexts: int, theta: float, weights: Sequence[float] | None) -> None:
        self.theta = theta
        self.u, self.entry, self.rounds = np.ones(n_contexts), np.ones(n_contexts), np.zeros(n_contexts)
        self.fixed = None if weights is None else np.array(weights) / np.sum(weights)

    def parts(self, context: int) -> Vector:
        """q, for a round of this context."""
        if self.fixed is not None:
            return self.fixed
        rounds = self.rounds.copy()
        if rounds[context] == 0:
            rounds[context] = 1
        return np.asarray(rounds / rounds.sum())

    def welfare(self, books: Books, alpha: float, context: int) -> float:
        logs = self.parts(context) @ np.log(self.u)
        return float(books.welfare(alpha) ** (1 - self.theta) * math.exp(self.theta * logs))

    def derivatives(self, books: Books, alpha: float, context: int) -> Vector:
        """Of ln W_2, by what an arm earns in this context; of every live arm."""
        r, s = books.vectors()
        w = slopes(r / s, alpha)
        of_arm = (1 - self.theta) * slopes(books.levels(), alpha) / (w @ r)
        return np.asarray(of_arm + self.theta * self.parts(context)[context] / self.u[context])

    def pay(self, context: int, amount: float) -> None:
        self.u[context] += amount

    def new_period(self, carry: float) -> None:
        self.u = 1 + carry * (self.u - 1)
        self.entry, self.rounds = self.u.copy(), carry * self.rounds

    def grow(self, n_contexts: int, weights: Sequence[float] | None = None) -> None:
        more = n_contexts - len(self.u)
        self.u, self.entry = np.append(self.u, np.ones(more)), np.append(self.entry, np.ones(more))
        self.rounds = np.append(self.rounds, np.zeros(more))
        self.fixed = None if weights is None else np.array(weights) / np.sum(weights)


class AlphaFair(naive_alpha.AlphaFair):
    """The ascent on the gradient of W_2."""

    def __init__(
        self, n_contexts: int, books: Books, *, alpha: float, context_weight: float, context_weights: Any = None
    ) -> None:
        self.sides, self.context = Sides(n_contexts, context_weight, context_weights), 0
        super().__init__(n_contexts, books, alpha=alpha, on_welfare=True)

    def scales(self) -> tuple[Vector, float]:
        level = self.sides.welfare(self.books, self.alpha, self.context)
        return level * self.sides.derivatives(self.books, self.alpha, self.context), 1 / level

    def learn(self, context: int, used: Vector, rewards: Vector) -> None:
        self.context, live = context, [i for i in self.books.live if i < len(used)]
        of_live = float(used[live] @ np.asarray(rewards)[live])
        self.sides.pay(context, float(used @ rewards) - of_live)
        super().learn(context, used, rewards)
        self.sides.pay(context, of_live)
        self.sides.rounds[context] += 1

    def new_period(self, carry: float) -> None:
        self.sides.new_period(carry)
        super().new_period(carry)

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        super().change(kept, n_new, books_change)
        self.restart()

    def grow(self, n_contexts: int, weights: Sequence[float] | None = None) -> None:
        n_arms, more = len(self.books.live), n_contexts - len(self.x)
        self.x = np.vstack([self.x, [self.books.projected(np.full(n_arms, 1 / n_arms))] * more])
        self.norms = np.append(self.norms, np.zeros(more))
        self.reopened = np.append(self.reopened, np.zeros(more, dtype=bool))
        self.sides.grow(n_contexts, weights)
        if weights is not None:
            self.restart()


class AdaptiveFull(AlphaFair, naive_alpha.AdaptiveFull):
    """The favorite of the largest price times prediction, mixed with the ascent."""

    def __init__(
        self, n_contexts: int, books: Books, *, alpha: float, context_weight: float, context_weights: Any = None
    ) -> None:
        self.sides, self.context = Sides(n_contexts, context_weight, context_weights), 0
        naive_alpha.AdaptiveFull.__init__(self, n_contexts, books, alpha=alpha, on_welfare=True)

    def favorite(self, context: int) -> Vector:
        books = self.books
        v = self.sides.derivatives(books, self.alpha, context) * self.index.predict(context)
        a = best_of(v) / best_of(v).sum()
        if books.group_floors:
            a = books.unpromised * a
            for g in books.present:
                best = best_of(v[books.members(g)])
                a[books.members(g)] += books.group_floors.get(g, 0.0) * best / best.sum()
        return np.asarray(a)

    def grow(self, n_contexts: int, weights: Sequence[float] | None = None) -> None:
        self.index.grow(n_contexts)
        super().grow(n_contexts, weights)


class Promise(AdaptiveFull):
    """What every context is owed is paid in excursions, by experts: the arms, and the favorites as one."""

    def __init__(
        self, n_contexts: int, books: Books, *, alpha: float, context_share: float, context_weight: float = 0.0
    ) -> None:
        n = len(books.live)
        self.sigma, self.totals = context_share, np.zeros((n_contexts, n))
        self.paid = np.zeros(n_contexts)
        self.excursions: list[Any] = [None] * n_contexts  # gains of arms and of the adviser, or None
        super().__init__(n_contexts, books, alpha=alpha, context_weight=context_weight)

    @property
    def eta(self) -> float:
        part = self.sigma / self.books.unpromised
        return float(brentq(lambda eta: math.log1p(eta) / eta - part, 1e-9, 1e9, xtol=1e-14, rtol=1e-14))

    def debt(self, context: int) -> float:
        return float(self.sigma * self.totals[context].max() - self.paid[context])

    def debt_bound(self) -> float:
        n, keep = len(self.books.live), self.books.unpromised
        return self.sigma + keep * math.log(2 * n) / self.eta

    def advice(self, context: int) -> Vector:
        best = best_of(self.index.predict(context))
        return np.asarray(best / best.sum())

    def served(self, context: int) -> Vector:
        """Of live arms, with floors."""
        gains, adviser = self.excursions[context] or (np.zeros(len(self.books.live)), 0.0)
        top = max(gains.max(), adviser)
        q = (1 + self.eta) ** (gains - top) / (2 * len(gains))
        q = q + 0.5 * (1 + self.eta) ** (adviser - top) * self.advice(context)
        return self.books.floored(q / q.sum())

    def scales(self) -> tuple[Vector, float]:
        return super().scales() if self.sides.theta > 0 else naive_alpha.AlphaFair.scales(self)

    def held(self, context: int) -> Vector:
        """What would be played without a promise; drift is measured from it."""
        return super().probabilities(context)

    def probabilities(self, context: int) -> Vector:
        out = self.held(context)
        if not self.holding and self.debt(context) > 0:
            out[self.books.live] = self.served(context)
        return out

    holding = False  # while the cost of an excursion is measured

    def learn(self, context: int, used: Vector, rewards: Vector) -> None:
        live = self.books.live
        r = np.append(rewards, np.zeros(len(self.books.labels) - len(rewards)))[live]
        if self.debt(context) <= 0:
            self.excursions[context] = None
        else:
            gains, adviser = self.excursions[context] or (np.zeros(len(live)), 0.0)
            self.excursions[context] = gains + r, adviser + float(self.advice(context) @ r)
        self.totals[context] += r
        self.paid[context] += float(used @ rewards)
        self.holding = True
        super().learn(context, used, rewards)
        self.holding = False

    def new_period(self, carry: float) -> None:
        self.totals, self.paid = carry * self.totals, carry * self.paid
        self.excursions = [each and (carry * each[0], carry * each[1]) for each in self.excursions]
        super().new_period(carry)

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        self.totals = np.hstack([self.totals[:, kept], np.zeros((len(self.totals), n_new))])
        self.excursions = [None] * len(self.excursions)
        if self.sides.theta > 0:
            super().change(kept, n_new, books_change)
        else:
            naive_alpha.AdaptiveFull.change(self, kept, n_new, books_change)

    def grow(self, n_contexts: int, weights: Sequence[float] | None = None) -> None:
        more = n_contexts - len(self.paid)
        self.totals = np.vstack([self.totals, np.zeros((more, len(self.books.live)))])
        self.paid, self.excursions = np.append(self.paid, np.zeros(more)), self.excursions + [None] * more
        super().grow(n_contexts, weights)


class AdaptiveBandit(naive_alpha.AdaptiveBandit):
    """All losses over the largest price of the context; with fixed weights d is over that of all contexts."""

    def __init__(
        self, n_contexts: int, books: Books, *, alpha: float, context_weight: float, context_weights: Any = None,
        context_share: float = 0.0,
    ) -> None:  # fmt: skip
        self.sides, self.sigma = Sides(n_contexts, context_weight, context_weights), context_share
        self.totals, self.paid = np.zeros((n_contexts, len(books.live))), np.zeros(n_contexts)
        super().__init__(n_contexts, books, alpha=alpha)

    def debt(self, context: int) -> float:
        """By predictions."""
        return float(self.sigma * self.totals[context].max() - self.paid[context])

    def prices(self, context: int) -> tuple[Vector, float]:
        """p_i + p_j of every live arm, and the largest p_i + p_l in any context."""
        books, alpha, sides = self.books, self.alpha, self.sides
        levels, r = self.levels(), self.books.vectors()[0]
        own = [books.live_groups.index(g) for g in books.present]
        w = slopes(levels, alpha)
        of_arm = (1 - sides.theta) * w / (w[own] @ r)
        q = sides.parts(context)
        of_all = sides.theta * q / sides.u
        p = of_arm + of_all[context]
        if self.debt(context) > 0:
            p = np.full(len(p), p.max())
        return p, float(of_arm.max() + of_all.max())

    def relative_prices(self, context: int) -> Vector:
        p, _ = self.prices(context)
        return np.asarray(p / p.max())

    def parts(self, context: int) -> dict[str, Any]:
        p, of_all = self.prices(context)
        return {**super().parts(context), "peak": float(p.max()), "peak of all": of_all}

    def peak_of_master(self, now: dict[str, Any]) -> float:
        return float(now["peak" if self.sides.fixed is None else "peak of all"])

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        predicted = self.index.predict(context)
        super().learn(context, arm, propensity, reward)
        self.sides.pay(context, reward)
        self.paid[context] += reward
        if arm in self.books.live:
            self.sides.rounds[context] += 1
            self.totals[context] += predicted

    def new_period(self, carry: float) -> None:
        self.sides.new_period(carry)
        super().new_period(carry)
        self.totals, self.paid = carry * self.totals, carry * self.paid
        self.head_start = self.index.largest * self.prices(0)[1]

    def change(self, kept: list[int], n_new: int, books_change: Any) -> None:
        self.totals = np.hstack([self.totals[:, kept], np.zeros((len(self.totals), n_new))])
        super().change(kept, n_new, books_change)

    def grow(self, n_contexts: int, weights: Sequence[float] | None = None) -> None:
        more = n_contexts - self.n_contexts
        self.losses = np.vstack([self.losses, np.zeros((more, len(self.books.live)))])
        self.norms, self.n_contexts = np.append(self.norms, np.zeros(more)), n_contexts
        self.totals = np.vstack([self.totals, np.zeros((more, len(self.books.live)))])
        self.paid = np.append(self.paid, np.zeros(more))
        self.index.grow(n_contexts)
        self.sides.grow(n_contexts, weights)


def joint_welfare(accounts: Any, of_contexts: Any, alpha: float, theta: float, parts: Any, s: Any = None) -> float:
    """W_2."""
    return float(welfare(accounts, alpha, s) ** (1 - theta) * math.exp(theta * np.dot(parts, np.log(of_contexts))))


def certificate(
    totals: Any, accounts: Any, of_contexts: Any, alpha: float, theta: float, parts: Any,
    entry: Any = 1.0, entry_of_contexts: Any = 1.0,
) -> float:  # fmt: skip
    """A = sum_k p_k Y0_k + sum_j max_i V_ji (p_i + p_j), without groups and floors: at least W_2(Y*)/W_2(Y)."""
    accounts, of_contexts = np.asarray(accounts), np.asarray(of_contexts)
    w = slopes(accounts, alpha)
    p, q = (1 - theta) * w / (w @ accounts), theta * np.asarray(parts) / of_contexts
    best = (np.asarray(totals) * (p + q[:, None])).max(axis=1).sum()
    return float((p * entry).sum() + (q * entry_of_contexts).sum() + best)
