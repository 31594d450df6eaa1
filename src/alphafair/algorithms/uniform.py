"""Uniform play: the baseline."""

from typing import Any, ClassVar, Literal

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm
from alphafair.math.slates import draw_slate as draw_from
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits


@kernel
def draw(memory, context, uniform, out):
    """Write 1/n to `out` and draw an arm from it."""
    for i in range(out.shape[0]):
        out[i] = 1.0 / out.shape[0]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn_full(memory, context, probabilities, rewards):
    """Do nothing."""


@kernel
def learn_bandit(memory, context, arm, propensity, reward):
    """Do nothing."""
    return True


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write k/n to `out`, draw k arms to `slate`, and return how many there are."""
    n = out.shape[0]
    for i in range(n):
        out[i] = k / n
    return draw_from(out, k, uniform, slate)


@kernel
def learn_slate_full(memory, context, k, probabilities, rewards):
    """Do nothing."""


@kernel
def learn_slate_bandit(memory, context, k, arms, propensities, rewards, first):
    """Do nothing."""
    return True


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {"feedback": "full"}, "bandit": {"feedback": "bandit"}}


class Uniform(BasePolicy):
    """Play every arm with probability 1/n and learn nothing: the baseline for every learner.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms.
    feedback
        What `update` takes, and how a run is recorded: `"bandit"` (realized rewards) or `"full"` (expected ones).
    seed
        Seed of `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import Uniform
    >>> Uniform(n_contexts=1, n_arms=4).probabilities(0).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    name: ClassVar[str] = "uniform"
    traits = Traits(learns=False, feedbacks=tuple(Feedback), slates=True, style=("#7F7F7F", "X"), variants=variants)
    algorithm: ClassVar = {
        Feedback.FULL: Algorithm(Layout(), draw, learn_full, draw_slate=draw_slate, learn_slate=learn_slate_full),
        Feedback.BANDIT: Algorithm(Layout(), draw, learn_bandit, draw_slate=draw_slate, learn_slate=learn_slate_bandit),
    }

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        feedback: Literal["bandit", "full"] = "bandit",
        seed: int | None = None,
    ) -> None:
        self.feedback = validate.choice("feedback", feedback, Feedback)
        super().__init__(n_contexts, n_arms, settings={"feedback": self.feedback.value}, seed=seed)
