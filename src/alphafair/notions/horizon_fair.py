"""OHF: alpha-fair over the horizon by primal and dual steps, with full information.

x^j <- projection of x^j + w r sqrt(2)/sqrt(sum of squared norms of w r in context j)
w <- clip(w + alpha low^(-1 - alpha)/t (w^(-1/alpha) - x r), 1, low^(-alpha))

`weight`: w, the slope of the utility at the average reward w^(-1/alpha) · t `rounds`
"""

import math
from typing import Any, ClassVar

import numpy as np

from alphafair import validate
from alphafair.jit import kernel, repeated
from alphafair.math.distributions import draw_from
from alphafair.math.simplex import project
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

S = positions("alpha", "low")
N = positions("rounds")
A = positions("weight")
K = positions("squared_norms")
C = positions("x")
T = positions("step")


@kernel
def draw(memory, context, uniform, out):
    """Copy x of the context to `out` and draw an arm from it."""
    return draw_from(memory.contexts[context, C.x], uniform, out)


@kernel
def learn(memory, context, probabilities, rewards):
    """Take the step of x in the context, then that of w, with what the decision earned."""
    n, x, own = rewards.shape[0], memory.contexts[context, C.x], memory.context_scalars[context]
    weight, step = memory.arms[A.weight], memory.scratch[T.step]
    alpha, low = memory.settings[S.alpha], memory.settings[S.low]
    squares = 0.0
    for i in range(n):
        step[i] = weight[i] * rewards[i]
        squares += step[i] * step[i]
    if squares > 0.0:
        own[K.squared_norms] += squares
        size = math.sqrt(2.0) / math.sqrt(own[K.squared_norms])
        for i in range(n):
            step[i] = x[i] + size * step[i]
        project(step, x)
    memory.scalars[N.rounds] += 1.0
    highest = math.pow(low, -alpha)
    size = alpha * math.pow(low, -1.0 - alpha) / memory.scalars[N.rounds]
    for i in range(n):
        moved = weight[i] + size * (math.pow(weight[i], -1.0 / alpha) - probabilities[i] * rewards[i])
        weight[i] = min(highest, max(1.0, moved))


def start(memory: Any) -> None:
    """Weights of average rewards of 1."""
    memory.arms[A.weight] = 1.0


def start_contexts(memory: Any) -> None:
    """Start uniform."""
    memory.contexts[:, C.x] = 1.0 / memory.contexts.shape[2]


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Project on the remaining arms; new arms enter with an equal share, and the largest weight of the others."""
    n, weight = memory.contexts.shape[2], memory.arms[A.weight]
    weight[n_kept:] = weight[:n_kept].max()
    find = repeated(project, len(memory.contexts))
    for x in memory.contexts[:, C.x]:
        kept = np.ascontiguousarray(x[:n_kept])
        if some_left:
            find(kept.copy(), kept)
        x[:n_kept], x[n_kept:] = kept * (n_kept / n), 1.0 / n


def check(memory: Any) -> str | None:
    """Check the range of weights."""
    weight, highest = memory.arms[A.weight], memory.settings[S.low] ** -memory.settings[S.alpha]
    sound = (weight >= 1.0).all() and (weight <= highest * (1.0 + 1e-9)).all()
    return None if sound else f"with weights in [1, {highest:g}]"


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "half": {"alpha": 0.5, "low": 0.05}, "two": {"alpha": 2.0, "low": 0.05}}


class HorizonFair(BasePolicy):
    """Maximize the alpha-fair utility of average rewards over the horizon, seeing all rewards: primal-dual OHF.

    The promise is that the regret against the best fixed allocation in the alpha-fair utility of average rewards
    vanishes for adversaries whose perturbations are limited. Gradient ascent on $\\sum_i w_i x_i r_i$ in every context,
    with weights $w_i$ that follow the slope $\\bar r_i^{-\\alpha}$ of the utility by steps of size 1/t.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, above 0 and at most 64.
    low
        A lower bound of average rewards, in (0, 1): weights are at most low^(-alpha). Default: 0.1/n_arms.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    `AlphaFair` has the same aim and a theorem for every adversary: this is a rival for comparisons. In the paper arms
    are recipients, and any allocation is allowed; here it is a distribution in every context, with one vector of
    weights for all contexts. The default of `low` is ours. Late rewards use the distribution of their decision for w
    and the current x for its step. A new arm has an equal share of the probability. Distributions have zeros, so the
    log of this policy can seldom be used to evaluate others.

    Examples
    --------
    >>> from alphafair import metrics, simulate, streams
    >>> from alphafair.notions import HorizonFair
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=2, n_arms=4)
    >>> trace = simulate(HorizonFair(2, 4, alpha=1.0), stream, seed=0)
    >>> round(metrics.jain_index(trace.final), 2)
    0.95

    References
    ----------
    Si Salem, Iosifidis and Neglia, Enabling Long-term Fairness in Dynamic Resource Allocation, SIGMETRICS 2022.
    """

    name: ClassVar[str] = "horizon-fair"
    feedback = Feedback.FULL
    alpha: float
    traits = Traits(variants=variants, contexts_apart=False)
    algorithm = Algorithm(
        Layout(S, N, A, K, C, T), draw, learn, start, start_contexts=start_contexts, admit=admit, check=check
    )

    def __init__(
        self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, low: float | None = None, seed: int | None = None
    ) -> None:
        n_arms = validate.integer("n_arms", n_arms, low=1)
        self.alpha = validate.number("alpha", alpha, low=0.0, high=64.0, low_open=True)
        low = 0.1 / n_arms if low is None else low
        settings = {
            "alpha": self.alpha,
            "low": validate.number("low", low, low=0.0, high=1.0, low_open=True, high_open=True),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "low": self.settings["low"]}

    def set_alpha(self, alpha: float) -> None:
        """Change alpha; weights move to its range with the next rewards."""
        super().set_alpha(validate.number("alpha", alpha, low=0.0, high=64.0, low_open=True))
