"""The adversaries and the rival of the arena, said as plainly as NumPy allows: see `naive`."""

import numpy as np

from tests.naive import Matrix, Outcome, Policy, Vector, draw, marginal_utility


class Adversary:
    """Pays the levels of the context; `move` says what arms pay once it is told p."""

    def __init__(self, levels: Matrix) -> None:
        self.levels = np.array(levels)
        self.seen: list[list[Vector]] = [[] for _ in levels]

    def move(self, context: int, p: Vector) -> Vector:
        raise NotImplementedError


class Settled(Adversary):
    """Every 1,000 visits: the largest sum of p over them, of those above 0.05, is 0.05 from the next visit on."""

    def move(self, context: int, p: Vector) -> Vector:
        pays = self.levels[context].copy()
        self.seen[context].append(p)
        if len(self.seen[context]) == 1000:
            held = np.sum(self.seen[context], axis=0)
            left = np.flatnonzero(pays > 0.05)
            if len(left) > 2:
                self.levels[context, left[held[left].argmax()]] = 0.05
            self.seen[context] = []
        return pays


class Largest(Adversary):
    """The arm of the largest p pays 0.05."""

    def move(self, context: int, p: Vector) -> Vector:
        pays = self.levels[context].copy()
        pays[p.argmax()] = 0.05
        return pays


class Halving(Adversary):
    """Whoever had the largest p 60 times is halved; then the best pays 1 and nobody less than 0.01."""

    def __init__(self, levels: Matrix) -> None:
        super().__init__(levels)
        self.times = np.zeros_like(self.levels)

    def move(self, context: int, p: Vector) -> Vector:
        self.times[context, p.argmax()] += 1
        if self.times[context, p.argmax()] == 60:
            self.times[context, p.argmax()] = 0
            self.levels[context, p.argmax()] /= 2
            self.levels[context] = np.maximum(self.levels[context] / self.levels[context].max(), 0.01)
        return self.levels[context].copy()


ADVERSARIES: dict[str, type[Adversary]] = {"settled": Settled, "largest": Largest, "halving": Halving}


def face(
    policy: Policy, adversary: Adversary, contexts: list[int], uniforms: Vector, *, full: bool
) -> tuple[Vector, Matrix]:
    """R and what arms paid in every round (T, N)."""
    total, paid = np.ones(adversary.levels.shape[1]), []
    for context, uniform in zip(contexts, uniforms, strict=True):
        p = policy.probabilities(context)
        arm = draw(p, uniform)
        rewards = adversary.move(context, p)
        outcome: Outcome = rewards if full else float(rewards[arm])
        policy.learn(context, arm, float(p[arm]), p, outcome)
        if full:
            total += p * rewards
        else:
            total[arm] += rewards[arm]
        paid.append(rewards)
    return total, np.array(paid)


class OptimisticFrankWolfe(Policy):
    """argmax R^-alpha U, U = min(1, m + sqrt(L/2n), m + L/n + sqrt((L/n)^2 + 2mL/n)), L = ln t; ties share."""

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float) -> None:
        super().__init__(n_contexts, n_arms)
        self.alpha, self.total = alpha, np.ones(n_arms)
        self.log: list[tuple[int, int, float]] = []

    def probabilities(self, context: int) -> Vector:
        log_rounds = np.log(len(self.log) + 1)
        bounds = np.ones(self.n_arms)
        for i in range(self.n_arms):
            mine = [reward for j, arm, reward in self.log if (j, arm) == (context, i)]
            if mine:
                mean, width = float(np.mean(mine)), log_rounds / len(mine)
                further = min(np.sqrt(width / 2), width + np.sqrt(width**2 + 2 * mean * width))
                bounds[i] = min(1.0, mean + further)
        index = marginal_utility(self.total, self.alpha) * bounds
        best = index >= (1 - 1e-12) * index.max()
        return np.asarray(best / best.sum(), dtype=np.float64)

    def learn(self, context: int, arm: int, propensity: float, p: Vector, outcome: Outcome) -> None:
        self.log.append((context, arm, float(outcome)))
        self.total[arm] += float(outcome)
