"""The rivals of the arena that score arms by R^-alpha times an estimate, as plainly as NumPy allows: see `naive`.

Each keeps the log of its rewards and recomputes everything from it in every round.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy import integrate, stats

from tests.naive import Outcome, Policy, Vector


class Scored(Policy):
    """Keeps (context, arm, reward) of every round; weights are R^-alpha."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float) -> None:
        super().__init__(n_contexts, n_arms)
        self.alpha, self.log = min(alpha, 16.0), list[tuple[int, int, float]]()

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        self.log.append((context, arm, float(outcome)))

    def rewards(self, arm: int, context: int | None = None) -> list[float]:
        return [r for j, i, r in self.log if i == arm and context in (None, j)]

    @property
    def weights(self) -> Vector:
        accounts = np.array([1 + sum(self.rewards(i)) for i in range(self.n_arms)])
        return (accounts / accounts.min()) ** -self.alpha

    def means(self, context: int, k: float) -> Vector:
        """M = mean of all rewards; M_i = (S_i + M)/(n_i + 1); m = (S + k M_i)/(n + k)."""
        overall = np.mean([r for _, _, r in self.log]) if self.log else 0.0
        found = []
        for i in range(self.n_arms):
            everywhere, here = self.rewards(i), self.rewards(i, context)
            of_arm = (sum(everywhere) + overall) / (len(everywhere) + 1)
            found.append((sum(here) + k * of_arm) / (len(here) + k))
        return np.array(found)


def best(scores: Vector) -> Vector:
    """Uniform over the largest."""
    chosen = np.isclose(scores, scores.max(), rtol=1e-12, atol=0.0)
    return np.asarray(chosen / chosen.sum())


def among_best(scores: Vector, k: int) -> Vector:
    """1 for the k largest; those that tie for the last places share them."""
    least = np.sort(scores)[-k]
    at = np.isclose(scores, least, rtol=1e-9, atol=0.0)
    above = (scores > least) & ~at
    return np.asarray(above + at * (k - above.sum()) / at.sum())


class FairEpsilonGreedy(Scored):
    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float, epsilon: float, prior: float) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha)
        self.epsilon, self.prior = epsilon, prior

    def probabilities(self, context: int) -> Vector:
        scores = self.weights * self.means(context, self.prior)
        return self.epsilon / self.n_arms + (1 - self.epsilon) * best(scores)

    def inclusion(self, context: int, k: int) -> Vector:
        scores = self.weights * self.means(context, self.prior)
        return self.epsilon * k / self.n_arms + (1 - self.epsilon) * among_best(scores, k)


class FairUCB(Scored):
    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float, width: float, discount: float = 1.0) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha)
        self.width, self.discount = width, discount

    def probabilities(self, context: int) -> Vector:
        return best(self.scores(context))

    def inclusion(self, context: int, k: int) -> Vector:
        return among_best(self.scores(context), k)

    def scores(self, context: int) -> Vector:
        """A reward counts discount^age, the last one of the context as it stood when it was added."""
        now, bounds = len(self.log), np.ones(self.n_arms)
        age = [self.discount ** (now - t) for t in range(now)]  # the reward of round t
        horizon = sum(self.discount**k for k in range(now))
        for i in range(self.n_arms):
            mine = [(age[t], r) for t, (j, arm, r) in enumerate(self.log) if (j, arm) == (context, i)]
            if mine:
                count = sum(weight for weight, _ in mine)
                mean = sum(weight * r for weight, r in mine) / count
                bounds[i] = min(1.0, mean + self.width * np.sqrt(np.log(1 + horizon) / count))
        return np.asarray(self.weights * bounds)


class FairThompson(Scored):
    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float, scale: float) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha)
        self.scale = scale

    def laws(self, context: int) -> tuple[Vector, Vector]:
        counts = np.array([len(self.rewards(i, context)) for i in range(self.n_arms)])
        return self.weights * self.means(context, 2.0), self.weights * self.scale / np.sqrt(counts + 1)

    def probabilities(self, context: int) -> Vector:
        """The trapezoidal rule on 32 cells."""
        v, s = self.laws(context)
        low, high = (v - 3.5 * s).max(), (v + 3.5 * s).max()
        below = stats.norm.cdf(np.linspace(low, high, 33)[:, None], v, s)
        found = []
        for i in range(self.n_arms):
            rest = np.delete(below, i, axis=1).prod(axis=1)
            found.append(float((np.diff(below[:, i]) * (rest[1:] + rest[:-1]) / 2).sum()))
        found = [p if v[i] + 3.5 * s[i] >= low else 0.0 for i, p in enumerate(found)]
        return np.array(found) / sum(found)

    def inclusion(self, context: int, k: int) -> Vector:
        """The trapezoidal rule on 32 cells between the k-th largest ends, and what is above them."""
        if k == self.n_arms:
            return np.ones(k)
        v, s = self.laws(context)
        low, high = (np.sort(ends)[-k] for ends in (v - 3.5 * s, v + 3.5 * s))
        below = stats.norm.cdf(np.linspace(low, high, 33)[:, None], v, s)
        found = []
        for i in range(self.n_arms):
            rest = fewer_above(np.delete(below, i, axis=1), k)
            within = (np.diff(below[:, i]) * (rest[1:] + rest[:-1]) / 2).sum()
            found.append(min(1.0, float(within + 1 - below[-1, i])))
        p, n = np.array(found), self.n_arms
        return p * k / p.sum() if p.sum() > k else 1 - (1 - p) * (n - k) / (n - p.sum())


def fewer_above(below: Vector, k: int) -> Vector:
    """The probability that fewer than k numbers are above, from the probabilities (..., n) that each is below."""
    n, found = below.shape[-1], np.zeros(below.shape[:-1])
    for m in range(k):
        for above in combinations(range(n), m):
            found += np.where(np.isin(np.arange(n), above), 1 - below, below).prod(axis=-1)
    return found


def among_largest_normals(v: Vector, s: Vector, k: int) -> Vector:
    """The probability that each is among the k largest, by adaptive quadrature."""

    def density(x: float, i: int) -> float:
        return float(stats.norm.pdf(x, v[i], s[i]) * fewer_above(np.delete(stats.norm.cdf(x, v, s), i), k))

    ends = [(v[i] - 8 * s[i], v[i] + 8 * s[i]) for i in range(len(v))]
    return np.array([integrate.quad(density, *ends[i], args=(i,), limit=100)[0] for i in range(len(v))])


def largest_of_normals(v: Vector, s: Vector) -> Vector:
    """The probability that each is the largest, by adaptive quadrature."""

    def density(x: float, i: int) -> float:
        others = np.delete(stats.norm.cdf(x, v, s), i)
        return float(stats.norm.pdf(x, v[i], s[i]) * others.prod())

    ends = [(v[i] - 8 * s[i], v[i] + 8 * s[i]) for i in range(len(v))]
    return np.array([integrate.quad(density, *ends[i], args=(i,), limit=200)[0] for i in range(len(v))])


class FairLinUCB(Scored):
    """Ridge regression with a ridge of 1, solved from the log in every round; `features` are those of all rounds."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float, width: float, features: Vector) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha)
        self.width, self.z = width, np.column_stack([np.ones(len(features)), features])

    def probabilities(self, context: int) -> Vector:
        z, bounds = self.z[len(self.log)], []
        for i in range(self.n_arms):
            rows = [t for t, (_, arm, _) in enumerate(self.log) if arm == i]
            seen, rewards = self.z[rows], np.array([self.log[t][2] for t in rows])
            a = np.eye(len(z)) + seen.T @ seen
            mean = z @ np.linalg.solve(a, seen.T @ rewards)
            bounds.append(max(0.0, mean + self.width * np.sqrt(z @ np.linalg.solve(a, z))))
        return best(self.weights * np.array(bounds))
