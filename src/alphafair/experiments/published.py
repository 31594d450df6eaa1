"""The policies of the code published with the paper, which differ from its text: for the reproduction only."""

from __future__ import annotations

from typing import ClassVar

from alphafair.kernels import gradient_ascent, published_sign, published_step
from alphafair.policies import AlphaFairBandit, BasePolicy
from alphafair.types import Feedback


class PublishedSign(AlphaFairBandit):
    """`AlphaFairBandit` with the sign of the code published with the paper; not for use, so not in POLICIES."""

    name: ClassVar[str] = "published-sign"
    _learn = staticmethod(published_sign.learn)


class PublishedStep(BasePolicy):
    """`AlphaFair` with the step size of the code published with the paper: no certificate, not for use."""

    name: ClassVar[str] = "published-step"
    feedback = Feedback.FULL
    _draw = staticmethod(gradient_ascent.draw)
    _learn = staticmethod(published_step.learn)

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        shared = gradient_ascent.first_shared(n_arms, alpha, gradient_ascent.BEFORE)
        learner = gradient_ascent.first_learner(n_arms, gradient_ascent.BEFORE)
        super().__init__(n_contexts, n_arms, seed, {"alpha": alpha}, shared, learner)
