"""Every arm alike."""

from typing import Any, ClassVar, Literal

from alphafair import validate
from alphafair.kernels import Kernels, uniform
from alphafair.kernels.memory import blank
from alphafair.policies.base import BasePolicy
from alphafair.types import Feedback

LEARN = {Feedback.FULL: uniform.learn_full, Feedback.BANDIT: uniform.learn_bandit}


class Uniform(BasePolicy):
    """Play every arm with probability 1/n and learn nothing: the line every learner has to beat.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each.
    feedback
        What `update` is shown and how a run is booked: `"full"` (expected) or `"bandit"` (realised).
    seed
        For `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import Uniform
    >>> Uniform(n_contexts=1, n_arms=4).probabilities(0).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    name: ClassVar[str] = "uniform"
    learns: ClassVar[bool] = False
    feedbacks = tuple(Feedback)
    look = ("#7F7F7F", "X")

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        feedback: Literal["full", "bandit"] = "full",
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        self.kernels = Kernels(uniform.draw, LEARN[self.feedback], uniform.change_arms)
        super().__init__(n_contexts, n_arms, seed, {"feedback": self.feedback.value}, blank(0, n_arms)[None])

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        return {"": {}, "bandit": {"feedback": "bandit"}}
