"""The slow oracle with groups, entitlements and floors: R_G in a dictionary, one formula after the other.

`live` are the numbers of live arms; everything else is by number or by label and never forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import naive
from tests.naive_adaptive import HEAD_START, KAPPA, AlphaFairAdaptive, best_of

Vector = naive.Vector


def project_on_floors(v: Vector, groups: list[Any], floors: dict[Any, float]) -> Vector:
    """sum_G max(nu_G, sum over G of max(v - theta, 0)) = 1; groups that are short have a theta of their own."""
    members = {g: np.array([k == g for k in groups]) for g in dict.fromkeys(groups)}

    def mass(group: Any, theta: float) -> float:
        return float(np.maximum(v[members[group]] - theta, 0).sum())

    def too_much(theta: float) -> float:
        return sum(max(floors.get(g, 0.0), mass(g, theta)) for g in members) - 1

    x = np.maximum(v - naive.falls_to_zero(too_much, v.min() - 2.0, v.max()), 0)
    for g, m in members.items():
        if x[m].sum() < floors.get(g, 0.0):
            own = naive.falls_to_zero(lambda theta, g=g: mass(g, theta) - floors[g], v[m].min() - 2.0, v[m].max())
            x[m] = np.maximum(v[m] - own, 0)
    return x


class GroupTerms:
    """Who is terms what: groups of all arms ever, accounts by group, floors."""

    def __init__(self, groups: list[Any], entitlements: dict[Any, float], pull_floor: Any) -> None:
        self.groups, self.entitlements, self.pull_floor = list(groups), dict(entitlements), pull_floor
        self.live = list(range(len(groups)))
        self.accounts = dict.fromkeys(groups, 1.0)
        self.own = np.ones(len(groups))

    def s(self, group: Any) -> float:
        return self.entitlements.get(group, 1.0)

    @property
    def live_groups(self) -> list[Any]:
        return [self.groups[i] for i in self.live]

    def levels(self) -> Vector:
        """R_G/s_G of every live arm's group."""
        return np.array([self.accounts[g] / self.s(g) for g in self.live_groups])

    def earn(self, arm: int, amount: float) -> None:
        self.own[arm] += amount
        self.accounts[self.groups[arm]] += amount

    @property
    def floors(self) -> dict[Any, float]:
        return self.pull_floor if isinstance(self.pull_floor, dict) else {}

    @property
    def nu(self) -> float:
        return 0.0 if isinstance(self.pull_floor, dict) else float(self.pull_floor)

    @property
    def keep(self) -> float:
        """What no floor has promised."""
        return 1 - len(self.live) * self.nu - sum(self.floors.get(g, 0.0) for g in set(self.live_groups))

    def members(self, group: Any) -> Vector:
        return np.array([g == group for g in self.live_groups])

    def lifted(self, y: Vector) -> Vector:
        """(1 - sum nu) y_i + nu_G y_i/y(G)."""
        p = np.zeros(len(y))
        for g in set(self.live_groups):
            m = self.members(g)
            p[m] = self.keep * y[m] + self.floors.get(g, 0.0) * y[m] / y[m].sum()
        return p

    def floored(self, y: Vector) -> Vector:
        return self.lifted(y) if self.floors else self.nu + self.keep * y

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        """Retire an arm, or let new ones come."""
        least = self.levels().min()
        if arm is not None:
            self.live.remove(arm)
        for g in new_groups:
            self.entitlements |= {g: s[g]} if g in s and g not in self.accounts else {}
            if g not in self.accounts:
                self.accounts[g] = max(1.0, least * self.s(g)) if account is None else account
            self.live.append(len(self.groups))
            self.groups.append(g)
            self.own = np.append(self.own, 1.0)


class AlphaFair(naive.AlphaFair):
    def __init__(self, n_contexts: int, terms: GroupTerms, **options: Any) -> None:
        super().__init__(n_contexts, len(terms.live), **options)
        self.terms = terms
        self.keep_floors()

    def keep_floors(self) -> None:
        if self.terms.floors:
            rows = [project_on_floors(x, self.terms.live_groups, self.terms.floors) for x in self.distributions]
            self.distributions = np.array(rows)

    def stepped(self, context: int, rewards: Any, at: Vector) -> tuple[Vector, float]:
        scale = self.terms.keep if self.terms.nu > 0 else 1.0
        g = at**-self.alpha * (scale * np.asarray(rewards))
        x, norm = self.distributions[context], float(self.norms[context] + (g**2).sum())
        if not g.any():
            return x.copy(), norm
        v = x + g / np.sqrt(norm)
        if self.terms.floors:
            return project_on_floors(v, self.terms.live_groups, self.terms.floors), norm
        return naive.project_on_simplex(v), norm

    def current(self, context: int) -> tuple[Vector, float]:
        return self.stepped(context, 0.0, self.terms.levels())

    def probabilities(self, context: int) -> Vector:
        x = self.current(context)[0]
        return x if self.terms.floors else self.terms.floored(x)

    def learn(self, context: int, arm: int, propensity: float, p: Any, outcome: Any) -> None:
        """p and rewards of all arms of then, by number."""
        live, before = self.terms.live, self.terms.levels()
        used, rewards = (np.append(each, np.zeros(len(self.terms.groups) - len(each))) for each in (p, outcome))
        gone = [i for i in range(len(rewards)) if i not in live]
        for i in gone:
            self.terms.earn(i, used[i] * rewards[i])
        before = self.terms.levels()
        self.distributions[context], self.norms[context] = self.stepped(context, rewards[live], before)
        for i in live:
            self.terms.earn(i, used[i] * rewards[i])

    def grow(self, n_contexts: int) -> None:
        super().grow(n_contexts)
        self.keep_floors()

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        place = [k for k, i in enumerate(self.terms.live) if i != arm]
        super().change_arms(place, [1.0] * len(new_groups))  # accounts are ours
        self.terms.change(arm, new_groups, account, s)
        self.keep_floors()


class AlphaFairBandit(naive.AlphaFairBandit):
    def __init__(self, n_contexts: int, terms: GroupTerms, **options: Any) -> None:
        super().__init__(n_contexts, len(terms.live), **options)
        self.terms = terms

    def probabilities(self, context: int) -> Vector:
        return self.terms.floored(super().probabilities(context))

    def learn(self, context: int, arm: int, propensity: float, p: Any, outcome: Any) -> None:
        if arm in self.terms.live:
            place = self.terms.live.index(arm)
            gain = self.terms.levels()[place] ** -self.alpha * outcome
            self.learners[context].learn(0, place, propensity, p, gain)
        self.terms.earn(arm, outcome)

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        place = [k for k, i in enumerate(self.terms.live) if i != arm]
        super().change_arms(place, [1.0] * len(new_groups))
        self.terms.change(arm, new_groups, account, s)


class Adaptive(AlphaFairAdaptive):
    def __init__(self, n_contexts: int, terms: GroupTerms, **options: Any) -> None:
        super().__init__(n_contexts, len(terms.live), **options)
        self.terms = terms
        self.keep_floors()

    keep_floors = AlphaFair.keep_floors

    @property
    def at_stake(self) -> float:  # type: ignore[override]
        return self.terms.keep if self.terms.nu > 0 else 1.0

    def slopes(self) -> Vector:
        """With the credit of all of a group's arms."""
        credits = [self.credit[self.terms.members(g)].sum() / self.terms.s(g) for g in self.terms.live_groups]
        return (self.terms.levels() + np.array(credits)) ** -self.alpha

    def tails(self, v: Vector, scale: float) -> Vector:
        """1/(k + scale k (v_b - v_i)), the rest on the best."""
        best = best_of(v)
        a = 1 / (len(v) * (1 + scale * (v.max() - v)))
        a[best] = (1 - a[~best].sum()) / best.sum()
        return a

    def parts(self, context: int) -> dict[str, Any]:
        terms, n, c = self.terms, self.n_arms, self.index.largest
        w = self.slopes()
        gamma = min(0.5, 0.3 * np.sqrt(n / (self.n_updates + 1)))
        s = (1 - gamma) * w / w.max()
        if c == 0:
            m = np.zeros(n)
            h, a, b, raised = 0.5, np.full(n, 1 / n), np.full(n, 1 / n), m
            a = terms.lifted(a) if terms.floors else a
            q = KAPPA + (1 - KAPPA) * h
        else:
            m, a = self.mixed(context, lambda m: self.concentrated(w, m))
            zeta = 2 / np.sqrt(16 * c**2 + 2 * self.spread)
            h = naive.log_barrier_leader(np.array([0.0, zeta * (self.lead + HEAD_START * c)]))[1]
            q = KAPPA + (1 - KAPPA) * h
            eta = n / np.sqrt(c**2 + n * self.norms[context])
            raised = np.maximum(m, c - terms.keep * ((1 - q) * a + q * (1 - gamma)) / (2 * eta * s))
            b = naive.log_barrier_leader(eta * (self.losses[context] - s * raised))
        played = (1 - gamma) * b + gamma / n
        played = terms.lifted(played) if terms.floors else played
        return {"w": w, "m": m, "raised": raised, "a": a, "h": h, "q": q, "s": s, "b": b, "played": played}

    def concentrated(self, w: Vector, m: Vector) -> Vector:
        v, terms = w * m, self.terms
        tail = 200 if self.pending.any() else 1000
        scale = tail / (w[best_of(v)].max() * self.index.sigma)
        a = self.tails(v, scale)
        if terms.floors:
            a = terms.keep * a
            for g in set(terms.live_groups):
                a[terms.members(g)] += terms.floors.get(g, 0.0) * self.tails(v[terms.members(g)], scale)
        return a

    def favorite(self, context: int) -> Vector:
        v = self.slopes() * self.index.predict(context)
        a = best_of(v) / best_of(v).sum()
        if self.terms.floors:
            a = self.terms.keep * a
            for g in set(self.terms.live_groups):
                best = best_of(v[self.terms.members(g)])
                a[self.terms.members(g)] += self.terms.floors.get(g, 0.0) * best / best.sum()
        return np.asarray(a)

    def probabilities(self, context: int) -> Vector:
        y = super().probabilities(context)
        return y if self.terms.floors else self.terms.nu + self.terms.keep * y

    def learn(self, context: int, arm: int, propensity: float, p: Any, outcome: Any) -> None:
        terms = self.terms
        if self.feedback == "full":
            used, rewards = (np.append(each, np.zeros(len(terms.groups) - len(each))) for each in (p, outcome))
            for i in range(len(rewards)):
                if i not in terms.live:
                    terms.earn(i, used[i] * rewards[i])
            self.learn_all(context, used, rewards)
            return
        if arm not in terms.live:
            terms.earn(arm, outcome)
            for k in range(self.n_arms):
                if terms.live_groups[k] == terms.groups[arm]:
                    self.refresh(k)
            return
        place = terms.live.index(arm)
        self.forgo(place)
        self.blame(context, place, propensity, float(outcome))
        terms.earn(arm, float(outcome))
        for k in range(self.n_arms):
            if terms.live_groups[k] == terms.groups[arm]:
                self.refresh(k)

    def learn_all(self, context: int, used: Vector, rewards: Vector) -> None:
        terms, live = self.terms, self.terms.live
        g, x, a = self.slopes() * (self.at_stake * rewards[live]), self.distributions[context], self.favorite(context)
        d = (x - a) @ g
        if abs(d) > 1e-12 * ((x + a) @ g):
            self.spread += d**2
            self.share = float(np.clip(self.share + d / np.sqrt(2 * self.spread), 0, 1))
        if g.any():
            self.norms[context] += g @ g
            v = x + g / np.sqrt(self.norms[context])
            floors = terms.floors
            new = project_on_floors(v, terms.live_groups, floors) if floors else naive.project_on_simplex(v)
            self.distributions[context] = new
        self.index.learn(context, np.arange(self.n_arms), rewards[live])
        for i in live:
            terms.earn(i, used[i] * rewards[i])

    def refresh(self, place: int) -> None:
        """The credit of every arm of the group is made anew with the mean of now."""
        for k in range(self.n_arms):
            if not hasattr(self, "terms") or self.terms.live_groups[k] == self.terms.live_groups[place]:
                super().refresh(k)

    def grow(self, n_contexts: int) -> None:
        super().grow(n_contexts)
        self.keep_floors()

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        place = [k for k, i in enumerate(self.terms.live) if i != arm]
        super().change_arms(place, [1.0] * len(new_groups))
        self.terms.change(arm, new_groups, account, s)
        if self.feedback == "full":
            self.keep_floors()
        else:
            for place in range(self.n_arms):
                AlphaFairAdaptive.refresh(self, place)
