"""Fair UCB: the arm of the largest w_i U_ji, with or without discounted counts.

In round t, n_ji and S_ji are the number and the sum of the rewards of arm i in context j, each counted gamma^(its age
in rounds), and t_gamma is the number of all rounds so far, counted in the same way:

    U_ji = min(1, S_ji/n_ji + width sqrt(ln(1 + t_gamma)/n_ji)),   1 where n_ji = 0

gamma = 1 is UCB, and a smaller gamma discounted UCB (Garivier and Moulines, On Upper-Confidence Bound Policies for
Switching Bandit Problems, ALT 2011). Weights w are those of `_scores`; ties are broken uniformly. A slate holds the k
arms of the largest w U, and its rewards are learned one after the other, as k rounds.

    S_ji `sums` and n_ji `counts` as of the round `updated` of the context · t `rounds`, t_gamma `horizon`
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.jit import kernel
from alphafair.lab.rivals._scores import admit, play_largest, show_largest, start, weigh
from alphafair.math.distributions import draw_arm
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.utility import played_alpha
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("alpha", "width", "discount")
N = positions("rounds", "horizon")
A = positions("total")
K = positions("updated")
C = positions("sums", "counts")
T = positions("weights", "work")
LEAST_COUNT = 1e-9  # a discounted count below it is none


@kernel
def fading(memory, context):
    """gamma^(age of the counts of a context)."""
    discount = memory.settings[S.discount]
    if discount == 1.0:
        return 1.0
    return math.pow(discount, memory.scalars[N.rounds] - memory.context_scalars[context, K.updated])


@kernel
def score(memory, context, out):
    """Write w U to `out`."""
    rows, weights, fade = memory.contexts[context], memory.scratch[T.weights], fading(memory, context)
    weigh(memory.arms[A.total], memory.settings[S.alpha], weights)
    log_rounds, width = math.log(1.0 + memory.scalars[N.horizon]), memory.settings[S.width]
    for i in range(out.shape[0]):
        bound, count = 1.0, fade * rows[C.counts, i]
        if count > LEAST_COUNT:
            bound = min(1.0, rows[C.sums, i] / rows[C.counts, i] + width * math.sqrt(log_rounds / count))
        out[i] = weights[i] * bound


@kernel
def draw(memory, context, uniform, out):
    """Draw uniformly from the arms with the largest w U."""
    score(memory, context, out)
    play_largest(out, 1.0)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Draw the k arms with the largest w U, uniformly where there are ties."""
    score(memory, context, out)
    show_largest(out, k, 1.0, memory.scratch[T.work])
    return draw_from(out, k, uniform, slate)


@kernel
def learn(memory, context, arm, propensity, reward):
    """Discount the counts of the context, then add the reward to them and to the account of its arm."""
    numbers, rows, fade = memory.scalars, memory.contexts[context], fading(memory, context)
    if fade != 1.0:
        for i in range(rows.shape[1]):
            rows[C.sums, i] *= fade
            rows[C.counts, i] *= fade
    memory.context_scalars[context, K.updated] = numbers[N.rounds]
    rows[C.sums, arm] += reward
    rows[C.counts, arm] += 1.0
    memory.arms[A.total, arm] += reward
    numbers[N.rounds] += 1.0
    numbers[N.horizon] = memory.settings[S.discount] * numbers[N.horizon] + 1.0
    return True


@kernel
def learn_slate(memory, context, k, arms, propensities, rewards, first):
    """Learn from every reward."""
    for a in range(arms.shape[0]):
        learn(memory, context, arms[a], propensities[a], rewards[a])
    return True


class FairUCB(BasePolicy):
    """Play the arm of the largest $R_i^{-\\alpha} U_{ji}$, U an upper confidence bound with a width to tune."""

    name: ClassVar[str] = "fair-ucb"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(slates=True, style=("#44aa99", "^"))
    algorithm = Algorithm(
        Layout(S, N, A, K, C, T),
        draw,
        learn,
        start,
        admit=admit,
        draw_slate=draw_slate,
        learn_slate=learn_slate,
        accounts="total",
    )

    def __init__(
        self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, width: float = 0.1, seed: int | None = None
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.width = validate.number("width", width, low=0.0, high=100.0)
        super().__init__(n_contexts, n_arms, settings=self._own_settings(), seed=seed)

    def _own_settings(self) -> dict[str, float]:
        return {"alpha": self.alpha, "width": self.width}

    def _numbers(self) -> dict[str, Any]:
        return {"discount": 1.0, **self.settings, "alpha": played_alpha(self.alpha)}


class FairDiscountedUCB(FairUCB):
    """`FairUCB` whose counts and sums lose the share 1 - `discount` in every round, so that it follows changes."""

    name: ClassVar[str] = "fair-discounted-ucb"
    traits = Traits(slates=True, style=("#6699cc", "s"))

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        width: float = 0.1,
        discount: float = 0.999,
        seed: int | None = None,
    ) -> None:
        self.discount = validate.number("discount", discount, low=0.5, high=1.0)
        super().__init__(n_contexts, n_arms, alpha=alpha, width=width, seed=seed)

    def _own_settings(self) -> dict[str, float]:
        return {**super()._own_settings(), "discount": self.discount}
