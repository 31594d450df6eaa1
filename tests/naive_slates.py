"""The slow oracle with slates: its formulas as plainly as NumPy allows, by bisection where the package has Newton.

k arms of n are shown; p = nu + keep y with 0 <= y <= top, sum y = 1. Rewards of a slate come as {arm: reward}.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import numpy as np

from tests import naive, naive_groups
from tests.naive_adaptive import DECAYS, HEAD_START, KAPPA, Index

Vector = naive.Vector


def frame(n: int, k: int, nu: float) -> tuple[float, float, float]:
    """keep, top and the spread of the set."""
    keep = k - n * nu
    top = min(1.0, (1 - nu) / keep) if keep > 0 else 1.0
    return keep, top, 1.0 if k == 1 else 0.0 if k == n else sqrt(top * min(1.0, n * top - 1))


def project(v: Vector, top: float) -> Vector:
    """clip(v - theta, 0, top) with sum 1."""
    if len(v) * top <= 1 + 1e-9:
        return np.full(len(v), 1 / len(v))
    theta = naive.falls_to_zero(lambda t: np.clip(v - t, 0, top).sum() - 1, v.min() - 1.0, v.max())
    return np.clip(v - theta, 0, top)


def leader(v: Vector, top: float) -> Vector:
    """min(top, 1/(mu + v)) with sum 1."""
    if len(v) * top <= 1 + 1e-9:
        return np.full(len(v), 1 / len(v))
    above = v - v.min()

    def with_cap(mu: float) -> Vector:
        return np.where(mu + above <= 1 / top, top, 1 / np.maximum(mu + above, 1e-300))

    mu = naive.falls_to_zero(lambda mu: with_cap(mu).sum() - 1, -above.max() - 1.0, len(v) + 1.0)
    return with_cap(mu)


def restrict(p: Vector, available: Any, k: int, nu: float) -> Vector:
    """Proportional above the floors; arms that would rise above 1 are fixed there, one after the other."""
    arms = np.flatnonzero(available)
    if len(arms) <= k:
        return np.where(available, 1.0, 0.0)
    out, free = np.zeros(len(p)), list(arms)
    while True:
        q = np.maximum(p[free] - nu, 0)
        left = k - nu * len(arms) - (1 - nu) * (len(arms) - len(free))
        now = nu + (left * q / q.sum() if q.sum() > 0 else np.full(len(free), left / len(free)))
        if (now <= 1).all():
            out[free] = now
            return out
        largest = free[int(np.argmax(now))]
        out[largest] = 1.0
        free.remove(largest)


def bar(v: Vector, top: float) -> tuple[Any, Any, Any]:
    """The arms above the least score that the mass 1 reaches, those at it, and that score."""
    least = np.sort(v)[::-1][min(len(v), ceil(1 / top - 1e-9)) - 1]
    above = (1 - 1e-9) * v > least
    return above, (v >= (1 - 1e-9) * least) & ~above, least


class Adaptive(naive_groups.Adaptive):
    """Both kinds of feedback."""

    most = 1  # the largest number of arms shown so far

    def frame(self, k: int) -> tuple[float, float, float]:
        return frame(self.n_arms, k, self.terms.nu)

    def inclusion(self, context: int, k: int) -> Vector:
        if k >= self.n_arms:
            return np.ones(self.n_arms)
        keep, top, _ = self.frame(k)
        if self.feedback == "full":
            x = self.held(context, top)
            return self.terms.nu + keep * ((1 - self.share) * self.scores(context, top) + self.share * x)
        now = self.parts(context, k)
        return self.terms.nu + keep * ((1 - now["q"]) * now["a"] + now["q"] * now["played"])

    def probabilities(self, context: int) -> Vector:
        return self.inclusion(context, 1)

    def parts(self, context: int, k: int = 1) -> dict[str, Any]:
        keep, top, _ = self.frame(k)
        n, c, size = self.n_arms, self.index.largest, max(self.most, k) * self.index.largest
        w, m = self.slopes(), np.zeros(n)
        gamma = min(0.5, 0.3 * np.sqrt(n / (self.n_updates + k)))
        s = (1 - gamma) * w / w.max()
        h, a, b, raised = 0.5, np.full(n, 1 / n), np.full(n, 1 / n), m
        q = KAPPA + (1 - KAPPA) * h
        if c > 0:
            m, a = self.mixed(context, lambda m: self.capped(w, m, top))
            zeta = 2 / np.sqrt(16 * size**2 + 2 * self.spread)
            h = naive.log_barrier_leader(np.array([0.0, zeta * (self.lead + HEAD_START * size)]))[1]
            q = KAPPA + (1 - KAPPA) * h
            eta = n / np.sqrt(c**2 + n * self.norms[context])
            raised = np.maximum(m, c - keep * ((1 - q) * a / top + q * (1 - gamma)) / (2 * eta * s))
            b = leader(eta * (self.losses[context] - s * raised), top)
        played = (1 - gamma) * b + gamma / n
        return {"w": w, "m": m, "raised": raised, "a": a, "h": h, "q": q, "s": s, "b": b, "played": played}

    def capped(self, w: Vector, m: Vector, top: float) -> Vector:
        above, at, least = bar(w * m, top)
        tail = 200 if self.pending.any() else 1000
        scale = tail * len(m) / (w[at].max() * self.index.sigma)
        part = min(1 - above.sum() * top, top)
        a = part / (len(m) + scale * np.maximum(least - w * m, 0))
        a[above] = top
        a[at] = (1 - a[~at].sum()) / at.sum()
        return np.asarray(a)

    def learn_some(
        self,
        context: int,
        k: int,
        given: dict[int, tuple[float, float]],
        *,
        first: bool,
        exposures: dict[int, float] | None = None,
    ) -> None:
        """{place: (propensity, reward)} of some of the k arms; what is learned are rewards over exposures."""
        earned = {place: reward for place, (_, reward) in given.items()}
        given = {place: (p, reward / (exposures or {}).get(place, 1.0)) for place, (p, reward) in given.items()}
        for place in given:
            self.forgo(place)
        now, p, c, share = self.parts(context, k), self.inclusion(context, k), self.index.largest, len(given) / k
        self.most = max(self.most, k)
        if c > 0:
            ahead = share * (now["a"] - now["played"]) @ (now["w"] * now["m"])
            self.losses[context] -= share * now["s"] * now["raised"]
            for i, (propensity, reward) in given.items():
                hit = (min(reward, c) - np.array([now["m"][i], now["raised"][i]])) / max(propensity, p[i])
                ahead += (now["a"] - now["played"])[i] * now["w"][i] * hit[0]
                self.losses[context, i] -= now["s"][i] * hit[1]
                self.norms[context] += (now["b"][i] * now["s"][i] * hit[1]) ** 2
            ahead *= self.frame(k)[0] / now["w"].max()
            self.lead += ahead
            self.spread += (now["h"] * (1 - now["h"]) * ahead) ** 2
        self.n_updates += len(given)
        places, rewards = list(given), np.array([reward for _, reward in given.values()])
        self.weigh(context, places, rewards)
        misses = self.index.misses + float(((rewards - now["m"][places]) ** 2).sum())
        for each in self.indices():
            self.learn_index(each, context, places, rewards, first=first)
        self.index.misses = misses
        for place, reward in earned.items():
            self.terms.earn(self.terms.live[place], reward)
            self.refresh(place)

    @staticmethod
    def learn_index(index: Index, context: int, places: list[int], rewards: Vector, *, first: bool) -> None:
        """A context ages, and the regression forgets, with the first rewards of a decision."""
        if index.largest > 0:
            f = index.features(context)[places]
            forget = 0.9995 if first else 1.0
            index.gram = forget * index.gram + f.T @ f
            index.moment = forget * index.moment + f.T @ (rewards - index.mean)
        index.total, index.squares = index.total + rewards.sum(), index.squares + (rewards**2).sum()
        index.seen, index.largest = index.seen + len(rewards), max(index.largest, float(rewards.max()))
        if index.largest > 0:
            ridge = 5 * index.mean * index.size
            index.beta = np.linalg.solve(index.gram + ridge * np.eye(5), index.moment + ridge * index.prior)
        news = np.array([rewards - index.mean, np.ones(len(rewards))])
        for decay, memory in zip(DECAYS, index.own[context], strict=True):
            memory *= decay if first else 1.0
            memory[:, places] += news
        index.of_arm[:, places] += news
        index.of_age[index.octave(context)][:, places] += news
        index.visits[context] += 1 if first else 0

    # full information

    def held(self, context: int, top: float) -> Vector:
        x = self.distributions[context]
        return project(x, top) if x.max() > top else x

    def scores(self, context: int, top: float) -> Vector:
        above, at, _ = bar(self.slopes() * self.index.predict(context), top)
        a = np.where(above, top, 0.0)
        a[at] = (1 - a.sum()) / at.sum()
        return a

    def learn_every(self, context: int, k: int, used: Vector, rewards: Vector) -> None:
        terms, live = self.terms, self.terms.live
        keep, top, spread = self.frame(k)
        g, x, a = self.slopes() * keep * rewards[live], self.held(context, top), self.scores(context, top)
        d = (x - a) @ g
        if abs(d) > 1e-12 * ((x + a) @ g):
            self.spread += d**2
            self.share = float(np.clip(self.share + d / np.sqrt(2 * self.spread), 0, 1))
        if g.any() and spread > 0:
            self.norms[context] += g @ g
            self.distributions[context] = project(x + spread * g / np.sqrt(self.norms[context]), top)
        self.index.learn(context, np.arange(self.n_arms), rewards[live])
        for i in live:
            terms.earn(i, used[i] * rewards[i])


class AlphaFair(naive_groups.AlphaFair):
    """Full information."""

    def inclusion(self, context: int, k: int) -> Vector:
        keep, top, _ = frame(self.n_arms, k, self.terms.nu)
        x = self.distributions[context]
        return self.terms.nu + keep * (project(x, top) if x.max() > top else x)

    def learn_every(self, context: int, k: int, used: Vector, rewards: Vector) -> None:
        keep, top, spread = frame(self.n_arms, k, self.terms.nu)
        x, live = self.distributions[context], self.terms.live
        x = project(x, top) if x.max() > top else x
        g = self.terms.levels() ** -self.alpha * keep * rewards[live]
        if g.any() and spread > 0:
            self.norms[context] += g @ g
            self.distributions[context] = project(x + spread * g / np.sqrt(self.norms[context]), top)
        for i in live:
            self.terms.earn(i, used[i] * rewards[i])


class AlphaFairBandit(naive_groups.AlphaFairBandit):
    """Bandit feedback; the learner's own p stays without a cap."""

    def leader(self, context: int, k: int) -> Vector:
        learner = self.learners[context]
        return leader(learner.eta * learner.losses, frame(self.n_arms, k, self.terms.nu)[1])

    def inclusion(self, context: int, k: int) -> Vector:
        gamma, n = self.learners[context].gamma, self.n_arms
        y = (1 - gamma) * self.leader(context, k) + gamma / n
        return np.minimum(1, self.terms.nu + frame(n, k, self.terms.nu)[0] * y)

    def learn_some(self, context: int, k: int, given: dict[int, tuple[float, float]], *, first: bool) -> None:
        learner, top, y = self.learners[context], frame(self.n_arms, k, self.terms.nu)[1], self.leader(context, k)
        estimates, w = np.zeros(self.n_arms), self.terms.levels() ** -self.alpha
        for i, (propensity, reward) in given.items():
            estimates[i] = -w[i] * reward / propensity
        q = leader(learner.eta * estimates + 1 / y, top)
        divergence = (q / y - 1 - np.log(q / y)).sum()
        learner.stability_sum += max(0.0, float(estimates @ (y - q) - divergence / learner.eta))
        learner.exploration_sum += learner.gamma * float(np.abs(estimates).sum())
        learner.losses, learner.n_updates = learner.losses + estimates, learner.n_updates + len(given)
        learner.gamma = self.n_arms / (2 * self.n_arms + learner.exploration_sum)
        learner.eta = self.n_arms / (1 + learner.stability_sum)
        learner.p = naive.log_barrier_leader(learner.eta * learner.losses)
        for place, (_, reward) in given.items():
            self.terms.earn(self.terms.live[place], reward)
