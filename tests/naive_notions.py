"""The policies of `alphafair.notions`, written from the papers as plainly as NumPy allows: see `naive`.

Each keeps the log of its rewards and recomputes everything from it in every round. Arms have their numbers for life;
`live` are those that are not retired. A pull counts when it is announced or, without that, when its reward is there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import brentq

from tests import naive
from tests.naive import Vector


def largest(scores: Vector) -> Vector:
    """Equal shares of the largest scores; all infinite ones tie."""
    chosen = np.isinf(scores) if np.isinf(scores).any() else np.isclose(scores, scores.max(), rtol=1e-12, atol=0.0)
    return np.asarray(chosen / chosen.sum())


class Notion:
    """What all of them know: the log of rewards, and the pulls that count."""

    def __init__(self, n_contexts: int, n_arms: int, **settings: Any) -> None:
        self.n_contexts, self.n_ever, self.live = n_contexts, n_arms, list(range(n_arms))
        self.settings = settings
        self.log: list[tuple[int, int, float]] = []
        self.t, self.visits = 0, dict.fromkeys(range(1000), 0)
        self.pulls, self.waiting = dict.fromkeys(range(n_arms), 0), dict.fromkeys(range(n_arms), 0)
        self.entry = dict.fromkeys(range(n_arms), 0)

    def number(self, name: str, arm: int) -> float:
        """The setting of an arm."""
        value = self.settings[name]
        if isinstance(value, Mapping):
            return float(value.get(arm, 0.0))
        return float(value[arm]) if np.ndim(value) else float(value)

    def numbers(self, name: str) -> Vector:
        return np.array([self.number(name, arm) for arm in self.live])

    def add_arms(self, n_new: int) -> None:
        for arm in range(self.n_ever, self.n_ever + n_new):
            self.live.append(arm)
            self.pulls[arm], self.waiting[arm], self.entry[arm] = 0, 0, self.t
        self.n_ever += n_new

    def retire(self, arm: int) -> None:
        self.live.remove(arm)

    def add_context(self) -> None:
        self.n_contexts += 1

    def learn(self, context: int, arm: int, propensity: float, reward: Any) -> None:
        if arm in self.live:
            if self.waiting[arm]:
                self.waiting[arm] -= 1
            else:
                self.count(arm, 1)
            self.log.append((context, arm, float(reward)))
            self.visits[context] += 1

    def expect(self, arm: int) -> None:
        if arm in self.live:
            self.waiting[arm] += 1
            self.count(arm, 1)

    def forgo(self, arm: int) -> None:
        if arm in self.live and self.waiting[arm]:
            self.waiting[arm] -= 1
            self.count(arm, -1)

    def count(self, arm: int, sign: int) -> None:
        self.t += sign
        self.pulls[arm] += sign

    def rewards(self, arm: int, context: int | None = None) -> list[float]:
        return [r for j, i, r in self.log if i == arm and context in (None, j)]

    def upper_bounds(self, context: int, width: float) -> Vector:
        """m + width sqrt(ln t_j/n)."""
        found = []
        for arm in self.live:
            seen = self.rewards(arm, context)
            radius = width * math.sqrt(math.log(self.visits[context]) / len(seen)) if seen else math.inf
            found.append(np.mean(seen) + radius if seen else math.inf)
        return np.array(found)

    def probabilities(self, context: int) -> Vector:
        raise NotImplementedError


class FairLearn(Notion):
    def probabilities(self, context: int) -> Vector:
        shares = self.numbers("shares")
        behind = np.array(
            [r * (self.t - self.entry[i]) - self.pulls[i] for r, i in zip(shares, self.live, strict=True)]
        )
        if behind.max() > self.settings.get("tolerance", 0.0):
            return largest(behind)
        return largest(self.upper_bounds(context, self.settings.get("width", math.sqrt(2))))


class RateUCB(Notion):
    def probabilities(self, context: int) -> Vector:
        v = self.settings["pull_share"]
        best = largest(self.upper_bounds(context, self.settings.get("width", math.sqrt(2))))
        return np.asarray(v + (1 - len(self.live) * v) * best)


class LFG(Notion):
    def __init__(self, n_contexts: int, n_arms: int, **settings: Any) -> None:
        super().__init__(n_contexts, n_arms, **settings)
        self.queues = dict.fromkeys(range(n_arms), 0.0)

    def add_arms(self, n_new: int) -> None:
        super().add_arms(n_new)
        self.queues |= {arm: 0.0 for arm in self.live if arm not in self.queues}

    def count(self, arm: int, sign: int) -> None:
        super().count(arm, sign)
        for i in self.live:
            self.queues[i] = max(0.0, self.queues[i] + sign * (self.number("shares", i) - (i == arm)))

    def probabilities(self, context: int) -> Vector:
        bounds = np.minimum(1.0, self.upper_bounds(context, self.settings.get("width", math.sqrt(1.5))))
        return largest(np.array([self.queues[i] for i in self.live]) + self.settings.get("eta", 10.0) * bounds)


class FairBandits(Notion):
    """Intervals and active arms by context; the intervals of later contexts are wider."""

    def __init__(self, n_contexts: int, n_arms: int, **settings: Any) -> None:
        super().__init__(n_contexts, n_arms, **settings)
        self.intervals: dict[tuple[int, int], tuple[float, float]] = {}
        self.gone: set[tuple[int, int]] = set()

    def active(self, context: int) -> list[int]:
        return [arm for arm in self.live if (context, arm) not in self.gone]

    def retire(self, arm: int) -> None:
        super().retire(arm)
        for context in range(self.n_contexts):
            if not self.active(context):
                self.gone -= {(context, other) for other in self.live}

    def learn(self, context: int, arm: int, propensity: float, reward: Any) -> None:
        super().learn(context, arm, propensity, reward)
        if arm not in self.live:
            return
        seen, delta = self.rewards(arm, context), self.settings["delta"] / self.n_contexts
        radius = math.sqrt(math.log((math.pi * (self.visits[context] + 1)) ** 2 / (3 * delta)) / (2 * len(seen)))
        self.intervals[context, arm] = np.mean(seen) - radius, np.mean(seen) + radius
        active = self.active(context)
        low, high = np.array([self.intervals.get((context, i), (0.0, 1.0)) for i in active]).T
        overlap = (low[:, None] <= high[None]) & (low[None] <= high[:, None])
        linked = np.linalg.matrix_power(overlap.astype(float), len(active)) > 0
        top = int(high.argmax())
        self.gone |= {(context, i) for k, i in enumerate(active) if not linked[top, k]}

    def probabilities(self, context: int) -> Vector:
        active = np.isin(self.live, self.active(context))
        return np.asarray(active / active.sum())


class FairX(Notion):
    """All corners of the box."""

    def probabilities(self, context: int) -> Vector:
        seen = [self.rewards(arm, context) for arm in self.live]
        if not all(seen):
            unknown = np.array([not each for each in seen])
            return np.asarray(unknown / unknown.sum())
        width, c = self.settings.get("width"), self.settings.get("slope", 4.0)
        if width is None:
            terms = 4 * self.settings["horizon"] * self.n_ever / self.settings.get("delta", 0.1)
            width = math.sqrt(2 * math.log(terms))
        boxes = [
            (max(0.0, np.mean(each) - width / math.sqrt(len(each))), min(1.0, np.mean(each) + width / len(each) ** 0.5))
            for each in seen
        ]
        corners = np.array(list(itertools.product(*boxes)))
        merits = np.exp(c * corners)
        best = ((merits * corners).sum(axis=1) / merits.sum(axis=1)).argmax()
        return np.asarray(merits[best] / merits[best].sum())


class BanditQ(Notion):
    def __init__(self, n_contexts: int, n_arms: int, **settings: Any) -> None:
        super().__init__(n_contexts, n_arms, **settings)
        self.queues = dict.fromkeys(range(n_arms), 0.0)
        self.learners = [naive.ScaleFree(1, n_arms, exploration="sqrt") for _ in range(n_contexts)]

    def add_arms(self, n_new: int) -> None:
        for learner in self.learners:
            learner.change_arms(list(range(len(self.live))), [None] * n_new)
        super().add_arms(n_new)
        self.queues |= {arm: 0.0 for arm in self.live if arm not in self.queues}

    def retire(self, arm: int) -> None:
        place = self.live.index(arm)
        for learner in self.learners:
            learner.change_arms([k for k in range(len(self.live)) if k != place], [])
        super().retire(arm)

    def add_context(self) -> None:
        super().add_context()
        self.learners.append(naive.ScaleFree(1, len(self.live), exploration="sqrt"))

    def learn(self, context: int, arm: int, propensity: float, reward: Any) -> None:
        if arm not in self.live:
            return
        before = self.queues[arm]
        for i in self.live:
            self.queues[i] = max(0.0, self.queues[i] + self.number("rates", i) - (reward if i == arm else 0.0))
        owed = self.queues[arm] if self.settings.get("queue_first") else before
        gain = (owed + math.sqrt(self.settings["horizon"])) * reward
        self.learners[context].learn(0, self.live.index(arm), propensity, np.empty(0), gain)

    def probabilities(self, context: int) -> Vector:
        return self.learners[context].probabilities(0)


def kl_upper(mean: float, level: float) -> float:
    """The q above the mean with kl(mean, q) = level, by a bracketing solver."""

    def excess(q: float) -> float:
        found = mean * math.log(mean / q) if mean > 0 else 0.0
        return found + ((1 - mean) * math.log((1 - mean) / (1 - q)) if mean < 1 else 0.0) - level

    if mean >= 1 or level <= 0:
        return mean if level <= 0 else 1.0
    highest = 1 - 2.0**-53
    return float(brentq(excess, mean, highest, xtol=1e-16, rtol=1e-15)) if excess(highest) > 0 else 1.0


class GuaranteedRevenue(Notion):
    def probabilities(self, context: int) -> Vector:
        known = [bool(self.rewards(arm)) for arm in self.live]
        if not all(known):
            unknown = ~np.array(known)
            return np.asarray(unknown / unknown.sum())
        rates = self.numbers("rates")
        means = np.array([np.mean(self.rewards(arm)) for arm in self.live])
        q = np.array([rate / max(rate, mean) if rate > 0 else 0.0 for rate, mean in zip(rates, means, strict=True)])
        if q.sum() >= 1:
            return np.asarray(q / q.sum())
        bounds = []
        for arm in self.live:
            seen = self.rewards(arm, context)
            level = 2 * math.log(self.visits[context]) / len(seen) if seen else 0.0
            bounds.append(kl_upper(float(np.mean(seen)), level) if seen else 1.0)
        return np.asarray(q + (1 - q.sum()) * largest(np.maximum(rates, bounds)))


class ConstrainedGreedy(Notion):
    """Groups by label; `low` and `high` by label."""

    def probabilities(self, context: int) -> Vector:
        labels = np.array([self.settings["groups"][arm] for arm in self.live])
        present = [label for label in dict.fromkeys(self.settings["groups"]) if label in labels]  # of ties the first
        low = np.array([self.settings["low"].get(label, 0.0) for label in present])
        high = np.array([self.settings["high"].get(label, 1.0) for label in present])
        if high.sum() < 1:
            high /= high.sum()
        mass = low + (1 - low.sum()) / (high - low).sum() * (high - low) if (high > low).any() else low
        sizes = np.array([(labels == label).sum() for label in present])
        spread = (mass / sizes)[[present.index(label) for label in labels]]
        t, gap = self.visits[context] + 1, self.settings["gap"]
        eps = min(1.0, 4 / (spread[spread > 0].min() * gap**2 * t))
        means = np.array([np.mean(self.rewards(arm, context) or [0.0]) for arm in self.live])
        best = np.array([means[labels == label].max() for label in present])
        greedy, left = low.copy(), 1 - low.sum()
        for k in np.argsort(-best, kind="stable"):
            added = min(left, high[k] - greedy[k])
            greedy[k], left = greedy[k] + added, left - added
        v = np.zeros(len(labels))
        for label, mass_of in zip(present, greedy, strict=True):
            inside = np.flatnonzero(labels == label)
            v[inside] = mass_of * largest(means[inside])
        return np.asarray((1 - eps) * v + eps * spread)


class NashConfidenceBound(Notion):
    def probabilities(self, context: int) -> Vector:
        c, log_horizon = self.settings.get("c", 3.0), math.log(self.settings["horizon"])
        seen = [self.rewards(arm, context) for arm in self.live]
        if max(map(sum, seen)) <= self.settings.get("explore", 420.0) * c**2 * log_horizon:
            return np.full(len(self.live), 1 / len(self.live))
        means = [np.mean(each) if each else math.inf for each in seen]
        return largest(
            np.array(
                [
                    m + 2 * c * math.sqrt(2 * m * log_horizon / len(each)) if each else math.inf
                    for m, each in zip(means, seen, strict=True)
                ]
            )
        )


class HorizonFair(Notion):
    def __init__(self, n_contexts: int, n_arms: int, **settings: Any) -> None:
        super().__init__(n_contexts, n_arms, **settings)
        self.x = {context: np.full(n_arms, 1 / n_arms) for context in range(n_contexts)}
        self.squares = dict.fromkeys(range(n_contexts), 0.0)
        self.w = np.ones(n_arms)

    def add_arms(self, n_new: int) -> None:
        n = len(self.live)
        for context, x in self.x.items():
            self.x[context] = np.append(x * n / (n + n_new), np.full(n_new, 1 / (n + n_new)))
        self.w = np.append(self.w, np.full(n_new, self.w.max()))
        super().add_arms(n_new)

    def retire(self, arm: int) -> None:
        place = self.live.index(arm)
        for context, x in self.x.items():
            self.x[context] = naive.project_on_simplex(np.delete(x, place))
        self.w = np.delete(self.w, place)
        super().retire(arm)

    def add_context(self) -> None:
        self.x[self.n_contexts] = np.full(len(self.live), 1 / len(self.live))
        self.squares[self.n_contexts] = 0.0
        super().add_context()

    def expect(self, arm: int) -> None:
        """Rounds count when their rewards are there."""

    def learn_all(self, context: int, p: Vector, rewards: Vector) -> None:
        alpha, low = self.settings["alpha"], self.settings["low"]
        g = self.w * rewards
        self.squares[context] += float(g @ g)
        step = math.sqrt(2) / math.sqrt(self.squares[context]) * g
        self.x[context] = naive.project_on_simplex(self.x[context] + step)
        self.t += 1
        dual = self.w + alpha * low ** (-1 - alpha) / self.t * (self.w ** (-1 / alpha) - p * rewards)
        self.w = np.clip(dual, 1.0, low**-alpha)

    def probabilities(self, context: int) -> Vector:
        return self.x[context]


class PromisedUniform(Notion):
    """Around uniform play, in every mask."""

    def count(self, arm: int, sign: int) -> None:
        if self.settings.get("of", "pulls") == "pulls":
            super().count(arm, sign)

    def learn(self, context: int, arm: int, propensity: float, reward: Any) -> None:
        super().learn(context, arm, propensity, reward)
        if self.settings.get("of", "pulls") == "reward" and arm in self.live:
            self.t += 1

    def probabilities(self, context: int, available: Any = None) -> Vector:
        tolerance, of_reward = self.settings.get("tolerance", 10.0), self.settings.get("of", "pulls") == "reward"
        mask = np.ones(len(self.live), dtype=bool) if available is None else np.asarray(available)[self.live]
        paid = [sum(self.rewards(arm)) if of_reward else self.pulls[arm] for arm in self.live]
        since = np.array([self.t - self.entry[arm] for arm in self.live])
        debts = np.where(mask, self.numbers("rates") * since - np.array(paid), -np.inf)
        if debts.max() > tolerance:
            chosen = debts >= debts.max() - 1e-9
            return np.asarray(chosen / chosen.sum())
        overall = np.mean([r for _, _, r in self.log]) if self.log else 0.0
        means = []
        for arm in self.live:
            everywhere, here = self.rewards(arm), self.rewards(arm, context)
            of_arm = (sum(everywhere) + overall) / (len(everywhere) + 1)
            means.append((sum(here) + 10 * of_arm) / (len(here) + 10))
        loss = np.max(np.array(means)[mask]) - means
        if tolerance > 0:
            with np.errstate(invalid="ignore"):
                worth = debts / tolerance * (np.array(means) if of_reward else 1.0) - loss
            worth[~(debts > 0)] = -np.inf
            if worth.max() > 0:
                chosen = worth >= worth.max() - 1e-9
                return np.asarray(chosen / chosen.sum())
        return np.asarray(mask / mask.sum())
