"""Algorithm 1 with the slope phi'(R) read elsewhere than before the round, for alpha < 1 and without groups.

The paper does not say which R is meant. Its lemmas need R before the round: that is `AlphaFair`. Its pseudo-code can
also be read as one of these; the regret certificate holds for both.

    AlphaFairAfter        R after the round
    AlphaFairNextVisit    R at the next round of the context: until then the step is postponed, and `waiting` keeps r
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from alphafair import validate
from alphafair.algorithms.alpha_fair import A, AlphaFair, K, N, S, T, earn_round, take_step
from alphafair.algorithms.alpha_fair import C as ASCENT_CONTEXTS
from alphafair.jit import kernel, repeated
from alphafair.math.distributions import draw_arm
from alphafair.math.gradient_ascent import ascend_on_floors
from alphafair.math.utility import marginal_utility
from alphafair.policy.memory import Layout
from alphafair.values import Traits
from alphafair.values.arrays import Vector, positions

C = positions(ASCENT_CONTEXTS, "waiting")


@kernel
def learn_after_in_order(memory, context, probabilities, rewards):
    """Add x r to the accounts, then take the ascent step."""
    earn_round(memory, context, probabilities, rewards)
    take_step(memory, context, rewards)


@kernel
def learn_after(memory, context, probabilities, rewards):
    """Learn from a decision that may be late or masked: add the drift first, at the slope after the round."""
    x, account, alpha = memory.contexts[context, C.x], memory.arms[A.account], memory.settings[S.alpha]
    for i in range(rewards.shape[0]):
        ahead = x[i] - probabilities[i]
        slope = memory.arms[A.slope, i]
        if ahead != 0.0:
            slope = marginal_utility(account[i] + probabilities[i] * rewards[i], alpha)
        memory.scalars[N.drift] += slope * rewards[i] * ahead
    learn_after_in_order(memory, context, probabilities, rewards)


@kernel
def take_postponed_step(memory, context, out):
    """Write x after the postponed step of a context to `out`; return S after it."""
    rows, before = memory.contexts[context], memory.context_scalars[context, K.squared_norms]
    slope, step = memory.arms[A.slope], memory.scratch[T.step]
    return ascend_on_floors(memory.groups, slope, 1.0, rows[C.x], before, rows[C.waiting], step, out)


@kernel
def draw_at_next_visit(memory, context, uniform, out):
    """Write the distribution after the postponed step to `out` and draw an arm from it."""
    take_postponed_step(memory, context, out)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn_at_next_visit_in_order(memory, context, probabilities, rewards):
    """Take the postponed step, postpone that of this round, and add x r to the accounts."""
    waiting = memory.contexts[context, C.waiting]
    take_step(memory, context, waiting)
    for i in range(rewards.shape[0]):
        waiting[i] = rewards[i]
    earn_round(memory, context, probabilities, rewards)


@kernel
def learn_at_next_visit(memory, context, probabilities, rewards):
    """Learn from a decision that may be late or masked: the slope is read later and can only be smaller, so the drift
    is an upper bound."""
    held, slope = memory.scratch[T.held], memory.arms[A.slope]
    take_postponed_step(memory, context, held)
    for i in range(rewards.shape[0]):
        memory.scalars[N.drift] += slope[i] * rewards[i] * max(held[i] - probabilities[i], 0.0)
    learn_at_next_visit_in_order(memory, context, probabilities, rewards)


def take_all_postponed_steps(memory: Any) -> None:
    """Take the postponed steps of all contexts now."""
    take_one = repeated(take_step, len(memory.contexts))
    for context, rows in enumerate(memory.contexts):
        take_one(memory, context, rows[C.waiting])
        rows[C.waiting] = 0.0


def _below_one(alpha: float) -> float:
    return validate.number("alpha", alpha, low=0.0, high=1.0, high_open=True)


class AlphaFairAfter(AlphaFair):
    """`AlphaFair` with the slope after the round."""

    name: ClassVar[str] = "alpha-fair-after"
    algorithm = replace(AlphaFair.algorithm, learn=learn_after, learn_in_order=learn_after_in_order, draw_slate=None)
    sides_algorithm: ClassVar = None
    traits = Traits(style=("#661100", "^"))

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        super().__init__(n_contexts, n_arms, alpha=_below_one(alpha), seed=seed)

    def set_alpha(self, alpha: float) -> None:
        super().set_alpha(_below_one(alpha))


class AlphaFairNextVisit(AlphaFairAfter):
    """`AlphaFair` with the slope at the next round of the context."""

    name: ClassVar[str] = "alpha-fair-next-visit"
    algorithm = replace(
        AlphaFair.algorithm,
        layout=Layout(S, N, A, K, C, T, only_with_groups="earned"),
        draw=draw_at_next_visit,
        learn=learn_at_next_visit,
        learn_in_order=learn_at_next_visit_in_order,
        before_arms_change=take_all_postponed_steps,
        draw_slate=None,
    )
    traits = Traits(style=("#661100", "v"))

    @property
    def squared_gradient_norms(self) -> Vector:
        """S_j of every context, postponed gradients included."""
        with self._lock:
            return np.fromiter(self._norms_after_postponed_steps(), np.float64, self.n_contexts)

    def _norms_after_postponed_steps(self) -> Iterator[float]:
        after, out = repeated(take_postponed_step, self.n_contexts), np.empty(len(self._learned.live_arms))
        for context in range(self.n_contexts):
            yield after(self._memory, context, out)


READINGS: dict[str, type[AlphaFair]] = {
    "before": AlphaFair,
    "next_visit": AlphaFairNextVisit,
    "after": AlphaFairAfter,
}
