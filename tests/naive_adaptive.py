"""The slow oracle of the adaptive policy: its formulas as plainly as NumPy allows, sharing nothing with the package.

om, c and q2: mean, largest and mean square of the rewards seen; sigma: how far predictions are off;
y = r - om; g, long, recent, latest, age: the features of an arm;
f: what the context's or the arm's own features say of it, by least squares;
m: what it is predicted to pay; a: what the index plays; B: the guaranteed learner; h, q: how much of it is played.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.naive import (
    Feedback,
    Matrix,
    Outcome,
    Policy,
    Vector,
    log_barrier_leader,
    project_on_simplex,
    with_newcomers,
)

DECAYS = (1.0, 0.97, 0.8)
PRIOR = np.array([1.0, 1.0, 0.5, 0.5, 0.0])
KAPPA = 0.005
HEAD_START = 16  # rewards of size c that the index is ahead of B at first


class LeastSquares:
    """f = theta.z with z = (1, features): a theta per arm on the context's features, or one for all on arms' own."""

    def __init__(self, n_arms: int, n_features: int, of_arms: bool) -> None:
        self.n_terms, self.of_arms = n_features + 1, of_arms
        self.gram = [np.zeros((self.n_terms, self.n_terms)) for _ in range(1 if of_arms else n_arms)]
        self.moment, self.theta = ([np.zeros(self.n_terms) for _ in self.gram] for _ in range(2))
        self.squares, self.nonzero = np.zeros(self.n_terms), np.zeros(self.n_terms)
        self.n_arms, self.shown = n_arms, np.zeros((n_arms, n_features))

    def z(self, arm: int) -> Vector:
        return np.append(1.0, self.shown[arm] if self.of_arms else self.shown)

    def say(self) -> Vector:
        return np.array([self.theta[0 if self.of_arms else i] @ self.z(i) for i in range(self.n_arms)])

    def solve(self, place: int) -> None:
        ridge = np.diag([5 * s / n if n > 0 else 1.0 for s, n in zip(self.squares, self.nonzero, strict=True)])
        self.theta[place] = np.linalg.solve(self.gram[place] + ridge, self.moment[place])

    def learn(self, arms: Any, ys: Vector) -> None:
        """An arm's theta is solved for when the arm is seen: with the ridge of then."""
        for place in {0 if self.of_arms else int(arm) for arm in arms}:
            self.gram[place] *= 0.999
            self.moment[place] *= 0.999
        for arm, y in zip(arms, ys, strict=True):
            place, z = 0 if self.of_arms else int(arm), self.z(int(arm))
            self.gram[place] += np.outer(z, z)
            self.moment[place] += y * z
            self.squares += z**2
            self.nonzero += z != 0
            if not self.of_arms:
                self.solve(place)
        if self.of_arms:
            self.solve(0)

    def change_arms(self, kept: list[int], n_new: int) -> None:
        if not self.of_arms:
            size = self.n_terms
            self.gram = [self.gram[k] for k in kept] + [np.zeros((size, size)) for _ in range(n_new)]
            self.moment, self.theta = (
                [each[k] for k in kept] + [np.zeros(size) for _ in range(n_new)] for each in (self.moment, self.theta)
            )
        self.n_arms = len(kept) + n_new


class Index:
    """m_i = clip(om + beta.F_i, 0, c)."""

    def __init__(
        self, n_contexts: int, n_arms: int, described: LeastSquares | None = None, *, full: bool = False
    ) -> None:
        self.n_arms, self.described, self.full = n_arms, described, full
        self.prior = PRIOR if described is None else np.array([0.0, 0, 0, 0, 0, 1])
        self.total, self.seen, self.largest = 0.0, 0, 0.0
        self.squares, self.misses = 0.0, 0.0  # sums of r^2 and of (r - m)^2
        self.of_arm = np.zeros((2, n_arms))  # sums and counts of y
        self.of_age = np.zeros((8, 2, n_arms))
        self.own = np.zeros((n_contexts, 3, 2, n_arms))  # with the three decays
        self.visits = np.zeros(n_contexts, dtype=int)
        size = len(self.prior)
        self.gram, self.moment, self.beta = np.zeros((size, size)), np.zeros(size), self.prior.copy()

    @property
    def mean(self) -> float:
        return self.total / self.seen

    @property
    def mean_square(self) -> float:
        return self.squares / self.seen

    @property
    def size(self) -> float:
        """The size of rewards: c if all of them are seen."""
        return self.largest if self.full else self.mean_square / self.mean

    @property
    def sigma(self) -> float:
        return float(np.sqrt((self.misses + 20 * self.mean_square) / (self.seen + 20)))

    def octave(self, context: int) -> int:
        return min(7, int(np.log2(self.visits[context] + 1)))

    def features(self, context: int) -> Matrix:
        slow, quick = 2.5 * self.size / self.mean, 0.5 * self.size / self.mean
        g = self.of_arm[0] / (self.of_arm[1] + slow)
        memories = [*self.own[context], self.of_age[self.octave(context)]]
        rest = [(s - n * g) / (n + k) for (s, n), k in zip(memories, (slow, quick, quick, slow), strict=True)]
        said = [] if self.described is None else [self.said()]
        return np.array([g, *rest, *said]).T

    def said(self) -> Vector:
        """What features say of every arm, no more than rewards have ever been apart."""
        assert self.described is not None
        return np.clip(self.described.say(), -self.largest, self.largest)

    def predict(self, context: int) -> Vector:
        if self.largest == 0:
            return np.zeros(self.n_arms)
        return np.clip(self.mean + self.features(context) @ self.beta, 0, self.largest)

    def learn(self, context: int, arms: Any, rewards: Vector) -> None:
        said = 0.0 if self.described is None else self.said()[arms]
        self.misses += float(((rewards - self.predict(context)[arms]) ** 2).sum())
        if self.largest > 0:
            f = self.features(context)[arms]
            self.gram = 0.9995 * self.gram + f.T @ f
            self.moment = 0.9995 * self.moment + f.T @ (rewards - self.mean)
        self.total += float(rewards.sum())
        self.squares += float((rewards**2).sum())
        self.seen += len(rewards)
        self.largest = max(self.largest, float(rewards.max()))
        if self.largest > 0:
            ridge = 5 * self.mean * self.size
            self.beta = np.linalg.solve(self.gram + ridge * np.eye(len(self.prior)), self.moment + ridge * self.prior)
        news = np.array([rewards - self.mean - said, np.ones(len(rewards))])
        if self.described is not None:
            self.described.learn(arms, rewards - self.mean)
        for decay, memory in zip(DECAYS, self.own[context], strict=True):
            memory *= decay
            memory[:, arms] += news
        self.of_arm[:, arms] += news
        self.of_age[self.octave(context)][:, arms] += news
        self.visits[context] += 1

    def grow(self, n_contexts: int) -> None:
        n_more = n_contexts - len(self.visits)
        self.own = np.concatenate([self.own, np.zeros((n_more, 3, 2, self.n_arms))])
        self.visits = np.append(self.visits, np.zeros(n_more, dtype=int))

    def change_arms(self, kept: list[int], n_new: int) -> None:
        def changed(array: Any) -> Any:
            return np.concatenate([array[..., kept], np.zeros((*array.shape[:-1], n_new))], axis=-1)

        self.of_arm, self.of_age, self.own = changed(self.of_arm), changed(self.of_age), changed(self.own)
        if self.described is not None:
            self.described.change_arms(kept, n_new)
        self.n_arms = len(kept) + n_new


def best_of(values: Vector) -> Vector:
    """The arms that are as good as the best, up to rounding."""
    return values >= (1 - 1e-9) * values.max()


class Observing:
    """Beside the index, P, one of the rewards of others too, J; tau: how much better J predicts own rewards."""

    index: Index
    joint: Index | None = None
    tau = 0.0

    def observe(self, context: int, arm: int, reward: float) -> None:
        if self.joint is None:
            self.joint = copy.deepcopy(self.index)
        self.joint.learn(context, [arm], np.array([reward]))

    def indices(self) -> list[Index]:
        return [self.index] if self.joint is None else [self.index, self.joint]

    def mixed(self, context: int, concentrate: Callable[[Vector], Vector]) -> tuple[Vector, Vector]:
        """m and a: of both indices, w in J, if J is there."""
        m = self.index.predict(context)
        if self.joint is None:
            return m, concentrate(m)
        w, joint = 0.97 / (1 + np.exp(-(np.log(4) + self.tau))), self.of_joint(context)
        return (1 - w) * m + w * joint, (1 - w) * concentrate(m) + w * concentrate(joint)

    def of_joint(self, context: int) -> Vector:
        assert self.joint is not None
        return np.minimum(self.joint.predict(context), self.index.largest)

    def weigh(self, context: int, arms: Any, rewards: Vector) -> None:
        """After own rewards, before an index learns from them."""
        if self.joint is None or self.index.largest == 0:
            return
        alone, joint, sigma = self.index.predict(context), self.of_joint(context), self.index.sigma
        for arm, r in zip(arms, rewards, strict=True):
            better = ((r - alone[arm]) ** 2 - (r - joint[arm]) ** 2) / (2 * sigma**2)
            self.tau = float(np.clip(0.999 * self.tau + better, -20, 20))

    def learn_rewards(self, context: int, m: Vector, arms: Any, rewards: Vector) -> None:
        """Own rewards; `m` is what was predicted of all arms, by both."""
        self.weigh(context, arms, rewards)
        misses = self.index.misses + float(((rewards - m[arms]) ** 2).sum())
        for each in self.indices():
            each.learn(context, arms, rewards)
        self.index.misses = misses


class AlphaFairAdaptive(Observing, Policy):
    """p = (1 - q) a + q ((1 - gamma) B + gamma / N), or p = (1 - h) a + h x with full information."""

    at_stake = 1.0  # less where something is promised to arms whatever is chosen

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float,
        feedback: Feedback = "bandit",
        n_features: int = 0,
        features_of: str = "context",
    ) -> None:
        super().__init__(n_contexts, n_arms)
        described = LeastSquares(n_arms, n_features, features_of == "arms") if n_features else None
        self.alpha, self.feedback = alpha, feedback
        self.index = Index(n_contexts, n_arms, described, full=feedback == "full")
        self.accounts, self.pending, self.credit = np.ones(n_arms), np.zeros(n_arms), np.zeros(n_arms)
        self.losses, self.norms = np.zeros((n_contexts, n_arms)), np.zeros(n_contexts)
        self.lead = self.spread = 0.0
        self.share, self.n_updates = 1.0, 0

    def show(self, features: Matrix) -> None:
        """Features of live arms, or of the context, for what is asked or learned next."""
        for each in self.indices():
            assert each.described is not None
            each.described.shown = np.asarray(features)

    def slopes(self) -> Vector:
        return (self.accounts + self.credit) ** -self.alpha

    def parts(self, context: int) -> dict[str, Any]:
        """All that is fixed before the draw of a bandit round."""
        n, c, w = self.n_arms, self.index.largest, self.slopes()
        gamma = min(0.5, 0.3 * np.sqrt(n / (self.n_updates + 1)))
        s = (1 - gamma) * w / w.max()
        if c == 0:
            m = np.zeros(n)
            h, a, b, raised = 0.5, np.full(n, 1 / n), np.full(n, 1 / n), m
            q = KAPPA + (1 - KAPPA) * h
        else:
            m, a = self.mixed(context, lambda m: self.concentrated(w, m))
            zeta = 2 / np.sqrt(16 * c**2 + 2 * self.spread)
            h = log_barrier_leader(np.array([0.0, zeta * (self.lead + HEAD_START * c)]))[1]
            q = KAPPA + (1 - KAPPA) * h
            eta = n / np.sqrt(c**2 + n * self.norms[context])
            raised = np.maximum(m, c - ((1 - q) * a + q * (1 - gamma)) / (2 * eta * s))
            b = log_barrier_leader(eta * (self.losses[context] - s * raised))
        played = (1 - gamma) * b + gamma / n
        return {"w": w, "m": m, "raised": raised, "a": a, "h": h, "q": q, "s": s, "b": b, "played": played}

    def concentrated(self, w: Vector, m: Vector) -> Vector:
        v = w * m
        best = best_of(v)
        tail = 200 if self.pending.any() else 1000
        a = 1 / (len(v) + tail * len(v) * (v.max() - v) / (w[best].max() * self.index.sigma))
        a[best] = (1 - a[~best].sum()) / best.sum()
        return np.asarray(a)

    def favorite(self, context: int) -> Vector:
        best = best_of(self.slopes() * self.index.predict(context))
        return best / best.sum()

    def probabilities(self, context: int) -> Vector:
        if self.feedback == "full":
            return (1 - self.share) * self.favorite(context) + self.share * self.distributions[context]
        now = self.parts(context)
        return np.asarray((1 - now["q"]) * now["a"] + now["q"] * now["played"])

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        if self.feedback == "full":
            self.learn_full(context, p, np.asarray(outcome))
            return
        self.forgo(arm)
        self.blame(context, arm, propensity, float(outcome))
        self.accounts[arm] += outcome
        self.refresh(arm)

    def blame(self, context: int, arm: int, propensity: float, reward: float) -> None:
        """Teach master, guaranteed learner and index."""
        now = self.parts(context)
        if self.index.largest > 0:
            chance = max(propensity, self.probabilities(context)[arm])
            hit = np.eye(self.n_arms)[arm] / chance
            known = min(reward, self.index.largest)
            gain = now["w"] * (now["m"] + hit * (known - now["m"])) / now["w"].max()
            ahead = self.at_stake * ((now["a"] - now["played"]) @ gain)
            self.lead += ahead
            self.spread += (now["h"] * (1 - now["h"]) * ahead) ** 2
            surprise = now["s"] * hit * (now["raised"] - known)
            self.losses[context] += surprise - now["s"] * now["raised"]
            self.norms[context] += ((now["b"] * surprise) ** 2).sum()
        self.n_updates += 1
        self.learn_rewards(context, now["m"], [arm], np.array([reward]))

    def learn_full(self, context: int, p: Vector, rewards: Vector) -> None:
        g, x, a = self.slopes() * rewards, self.distributions[context], self.favorite(context)
        d = (x - a) @ g
        if abs(d) > 1e-12 * ((x + a) @ g):
            self.spread += d**2
            self.share = float(np.clip(self.share + d / np.sqrt(2 * self.spread), 0, 1))
        if g.any():
            self.norms[context] += g @ g
            self.distributions[context] = project_on_simplex(x + g / np.sqrt(self.norms[context]))
        self.index.learn(context, np.arange(self.n_arms), rewards)
        self.accounts = self.accounts + p * rewards

    def refresh(self, arm: int) -> None:
        total, count = self.index.of_arm[:, arm]
        waits = self.pending[arm] > 0 and self.index.seen > 0
        self.credit[arm] = self.pending[arm] * max(0.0, self.index.mean + total / (count + 1)) if waits else 0.0

    def expect(self, arm: int) -> None:
        self.pending[arm] += 1
        self.refresh(arm)

    def forgo(self, arm: int) -> None:
        if self.pending[arm] > 0:
            self.pending[arm] -= 1
            self.refresh(arm)

    def grow(self, n_contexts: int) -> None:
        n_more = n_contexts - self.n_contexts
        self.losses = np.vstack([self.losses, np.zeros((n_more, self.n_arms))])
        self.norms = np.append(self.norms, np.zeros(n_more))
        for each in self.indices():
            each.grow(n_contexts)
        super().grow(n_contexts)

    def change_arms(self, kept: list[int], entries: list[float | None]) -> None:
        """No memory, the mean loss of the others, x = 0 (uniform where nothing was learned)."""
        rows = [np.append(project_on_simplex(x[kept]), np.zeros(len(entries))) for x in self.distributions]
        super().change_arms(kept, entries)
        for each in self.indices():
            each.change_arms(kept, len(entries))
        self.accounts = with_newcomers(self.accounts[kept], entries)
        self.pending, self.credit = (
            np.append(each[kept], np.zeros(len(entries))) for each in (self.pending, self.credit)
        )
        left = self.losses[:, kept]
        self.losses = np.hstack([left, np.repeat(left.mean(axis=1, keepdims=True), len(entries), axis=1)])
        if self.feedback == "full":
            self.distributions = np.array(rows)
            self.distributions[self.norms == 0] = 1 / self.n_arms
