"""The slow oracle with groups, entitlements and floors: R_G in a dictionary, one formula after the other.

`live` are the numbers of live arms; everything else is by number or by label and never forgotten.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import naive
from tests.naive_adaptive import KAPPA, AlphaFairAdaptive, best_of

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


class Owed:
    """Who is owed what: groups of all arms ever, accounts by group, floors."""

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
    def __init__(self, n_contexts: int, owed: Owed, **options: Any) -> None:
        super().__init__(n_contexts, len(owed.live), **options)
        self.owed = owed
        self.keep_floors()

    def keep_floors(self) -> None:
        if self.owed.floors:
            rows = [project_on_floors(x, self.owed.live_groups, self.owed.floors) for x in self.distributions]
            self.distributions = np.array(rows)

    def stepped(self, context: int, rewards: Any, at: Vector) -> tuple[Vector, float]:
        scale = self.owed.keep if self.owed.nu > 0 else 1.0
        g = at**-self.alpha * (scale * np.asarray(rewards))
        x, norm = self.distributions[context], float(self.norms[context] + (g**2).sum())
        if not g.any():
            return x.copy(), norm
        v = x + g / np.sqrt(norm)
        if self.owed.floors:
            return project_on_floors(v, self.owed.live_groups, self.owed.floors), norm
        return naive.project_on_simplex(v), norm

    def current(self, context: int) -> tuple[Vector, float]:
        return self.stepped(context, self.pending.get(context, 0.0), self.owed.levels())

    def probabilities(self, context: int) -> Vector:
        x = self.current(context)[0]
        return x if self.owed.floors else self.owed.floored(x)

    def learn(self, context: int, arm: int, propensity: float, p: Any, outcome: Any) -> None:
        """p and rewards of all arms of then, by number."""
        live, before = self.owed.live, self.owed.levels()
        used, rewards = (np.append(each, np.zeros(len(self.owed.groups) - len(each))) for each in (p, outcome))
        gone = [i for i in range(len(rewards)) if i not in live]
        for i in gone:
            self.owed.earn(i, used[i] * rewards[i])
        before = self.owed.levels()
        now = self.current(context)
        for i in live:
            self.owed.earn(i, used[i] * rewards[i])
        if self.marginal == "next_visit":
            new, self.pending[context] = now, rewards[live]
        else:
            new = self.stepped(context, rewards[live], before if self.marginal == "before" else self.owed.levels())
        self.distributions[context], self.norms[context] = new

    def grow(self, n_contexts: int) -> None:
        super().grow(n_contexts)
        self.keep_floors()

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        place = [k for k, i in enumerate(self.owed.live) if i != arm]
        super().change_arms(place, [1.0] * len(new_groups))  # accounts are ours
        self.owed.change(arm, new_groups, account, s)
        self.keep_floors()


class AlphaFairBandit(naive.AlphaFairBandit):
    def __init__(self, n_contexts: int, owed: Owed, **options: Any) -> None:
        super().__init__(n_contexts, len(owed.live), **options)
        self.owed = owed

    def probabilities(self, context: int) -> Vector:
        return self.owed.floored(super().probabilities(context))

    def learn(self, context: int, arm: int, propensity: float, p: Any, outcome: Any) -> None:
        if arm in self.owed.live:
            place = self.owed.live.index(arm)
            gain = self.owed.levels()[place] ** -self.alpha * outcome
            self.learners[context].learn(0, place, propensity, p, gain)
        self.owed.earn(arm, outcome)

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        place = [k for k, i in enumerate(self.owed.live) if i != arm]
        super().change_arms(place, [1.0] * len(new_groups))
        self.owed.change(arm, new_groups, account, s)


class Adaptive(AlphaFairAdaptive):
    def __init__(self, n_contexts: int, owed: Owed, **options: Any) -> None:
        super().__init__(n_contexts, len(owed.live), **options)
        self.owed = owed
        self.keep_floors()

    keep_floors = AlphaFair.keep_floors

    @property
    def at_stake(self) -> float:  # type: ignore[override]
        return self.owed.keep if self.owed.nu > 0 else 1.0

    def slopes(self) -> Vector:
        """With the credit of all of a group's arms."""
        credits = [self.credit[self.owed.members(g)].sum() / self.owed.s(g) for g in self.owed.live_groups]
        return (self.owed.levels() + np.array(credits)) ** -self.alpha

    def tails(self, v: Vector, scale: float) -> Vector:
        """1/(k + scale k (v_b - v_i)), the rest on the best."""
        best = best_of(v)
        a = 1 / (len(v) * (1 + scale * (v.max() - v)))
        a[best] = (1 - a[~best].sum()) / best.sum()
        return a

    def parts(self, context: int) -> dict[str, Any]:
        owed, n, c = self.owed, self.n_arms, self.index.largest
        w, m = self.slopes(), self.index.predict(context)
        gamma = min(0.5, 0.3 * np.sqrt(n / (self.n_updates + 1)))
        s = (1 - gamma) * w / w.max()
        if c == 0:
            h, a, b, raised = 0.5, np.full(n, 1 / n), np.full(n, 1 / n), m
            a = owed.lifted(a) if owed.floors else a
            q = KAPPA + (1 - KAPPA) * h
        else:
            v = w * m
            scale = 400 / (w[best_of(v)].max() * np.sqrt(self.index.mean * c))
            a = self.tails(v, scale)
            if owed.floors:
                a = owed.keep * a
                for g in set(owed.live_groups):
                    a[owed.members(g)] += owed.floors.get(g, 0.0) * self.tails(v[owed.members(g)], scale)
            h = naive.log_barrier_leader(np.array([0.0, 2 / np.sqrt(16 * c**2 + 2 * self.spread) * self.lead]))[1]
            q = KAPPA + (1 - KAPPA) * h
            eta = n / np.sqrt(c**2 + n * self.norms[context])
            raised = np.maximum(m, c - owed.keep * ((1 - q) * a + q * (1 - gamma)) / (2 * eta * s))
            b = naive.log_barrier_leader(eta * (self.losses[context] - s * raised))
        played = (1 - gamma) * b + gamma / n
        played = owed.lifted(played) if owed.floors else played
        return {"w": w, "m": m, "raised": raised, "a": a, "h": h, "q": q, "s": s, "b": b, "played": played}

    def favourite(self, context: int) -> Vector:
        v = self.slopes() * self.index.predict(context)
        a = best_of(v) / best_of(v).sum()
        if self.owed.floors:
            a = self.owed.keep * a
            for g in set(self.owed.live_groups):
                best = best_of(v[self.owed.members(g)])
                a[self.owed.members(g)] += self.owed.floors.get(g, 0.0) * best / best.sum()
        return np.asarray(a)

    def probabilities(self, context: int) -> Vector:
        y = super().probabilities(context)
        return y if self.owed.floors else self.owed.nu + self.owed.keep * y

    def learn(self, context: int, arm: int, propensity: float, p: Any, outcome: Any) -> None:
        owed = self.owed
        if self.feedback == "full":
            used, rewards = (np.append(each, np.zeros(len(owed.groups) - len(each))) for each in (p, outcome))
            for i in range(len(rewards)):
                if i not in owed.live:
                    owed.earn(i, used[i] * rewards[i])
            self.learn_all(context, used, rewards)
            return
        if arm not in owed.live:
            owed.earn(arm, outcome)
            for k in range(self.n_arms):
                if owed.live_groups[k] == owed.groups[arm]:
                    self.refresh(k)
            return
        place = owed.live.index(arm)
        self.forgo(place)
        self.blame(context, place, propensity, float(outcome))
        owed.earn(arm, float(outcome))
        for k in range(self.n_arms):
            if owed.live_groups[k] == owed.groups[arm]:
                self.refresh(k)

    def learn_all(self, context: int, used: Vector, rewards: Vector) -> None:
        owed, live = self.owed, self.owed.live
        g, x, a = self.slopes() * (self.at_stake * rewards[live]), self.distributions[context], self.favourite(context)
        d = (x - a) @ g
        if abs(d) > 1e-12 * ((x + a) @ g):
            self.spread += d**2
            self.share = float(np.clip(self.share + d / np.sqrt(2 * self.spread), 0, 1))
        if g.any():
            self.norms[context] += g @ g
            v = x + g / np.sqrt(self.norms[context])
            floors = owed.floors
            new = project_on_floors(v, owed.live_groups, floors) if floors else naive.project_on_simplex(v)
            self.distributions[context] = new
        self.index.learn(context, np.arange(self.n_arms), rewards[live])
        for i in live:
            owed.earn(i, used[i] * rewards[i])

    def refresh(self, place: int) -> None:
        """The credit of every arm of the group is made anew with the mean of now."""
        for k in range(self.n_arms):
            if not hasattr(self, "owed") or self.owed.live_groups[k] == self.owed.live_groups[place]:
                super().refresh(k)

    def grow(self, n_contexts: int) -> None:
        super().grow(n_contexts)
        self.keep_floors()

    def change(self, arm: int | None, new_groups: list[Any], account: float | None, s: dict[Any, float]) -> None:
        place = [k for k, i in enumerate(self.owed.live) if i != arm]
        super().change_arms(place, [1.0] * len(new_groups))
        self.owed.change(arm, new_groups, account, s)
        if self.feedback == "full":
            self.keep_floors()
        else:
            for place in range(self.n_arms):
                AlphaFairAdaptive.refresh(self, place)
