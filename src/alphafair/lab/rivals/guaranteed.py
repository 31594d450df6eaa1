"""One half of the adaptive policy: its guaranteed learner, which plays every round."""

from dataclasses import replace
from typing import ClassVar, Literal

from alphafair.algorithms import AlphaFairAdaptive
from alphafair.algorithms.adaptive_bandit import N as ADAPTIVE_SCALARS
from alphafair.lab.rivals.one_by_one import variants
from alphafair.values import Feedback


class GuaranteedLearner(AlphaFairAdaptive):
    """`AlphaFairAdaptive` under bandit feedback without its predictor: the guaranteed learner plays every round.

    The mixture starts with the predictor behind by 1e100 and therefore gives it no weight: q = 1. The learner still
    takes the predictor's hints, since its guarantee holds for any hints.
    """

    name: ClassVar[str] = "guaranteed-learner"
    feedback = Feedback.BANDIT
    traits = replace(AlphaFairAdaptive.traits, feedbacks=(Feedback.BANDIT,), style=("#332288", "p"), variants=variants)
    sides_algorithm: ClassVar = None
    promise_algorithm: ClassVar = None

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        feedback: Literal["bandit"] = "bandit",
        seed: int | None = None,
    ) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha, feedback=feedback, seed=seed)
        self._memory.scalars[ADAPTIVE_SCALARS.lead] = -1e100
