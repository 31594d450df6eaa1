"""Fair epsilon-greedy: with probability epsilon any arm, else one of the largest w_i m_ji.

    p_i = epsilon/n + (1 - epsilon) [i has the largest w_i m_ji]/ties

w and m are those of `_scores`, with the setting `prior` for k. A slate holds any k arms with probability epsilon, else
those of the k largest.
"""

from typing import Any, ClassVar

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.jit import kernel
from alphafair.lab.rivals._scores import (
    A,
    C,
    N,
    T,
    admit,
    estimate,
    learn,
    learn_slate,
    play_largest,
    show_largest,
    start,
    weigh,
)
from alphafair.math.distributions import draw_arm
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.utility import played_alpha
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("alpha", "epsilon", "prior")


@kernel
def score(memory, context, out):
    """Write w m to `out`."""
    weights = memory.scratch[T.weights]
    weigh(memory.arms[A.total], memory.settings[S.alpha], weights)
    estimate(memory, context, memory.settings[S.prior], out)
    for i in range(out.shape[0]):
        out[i] *= weights[i]


@kernel
def draw(memory, context, uniform, out):
    """Write the distribution to `out`, and draw an arm."""
    score(memory, context, out)
    play_largest(out, 1.0 - memory.settings[S.epsilon])
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write the probabilities of all arms to be in the slate to `out`, and draw it."""
    score(memory, context, out)
    show_largest(out, k, 1.0 - memory.settings[S.epsilon], memory.scratch[T.means])
    return draw_from(out, k, uniform, slate)


class FairEpsilonGreedy(BasePolicy):
    """Play the arm of the largest $R_i^{-\\alpha} m_{ji}$, and any arm with probability epsilon.

    m is the mean reward in the context, drawn towards that of the arm with the strength `prior`.
    """

    name: ClassVar[str] = "fair-epsilon-greedy"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(slates=True, style=("#999933", "v"))
    algorithm = Algorithm(
        Layout(S, N, A, contexts=C, scratch=T),
        draw,
        learn,
        start,
        admit=admit,
        draw_slate=draw_slate,
        learn_slate=learn_slate,
        accounts="total",
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        epsilon: float = 0.03,
        prior: float = 10.0,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.epsilon = validate.number("epsilon", epsilon, low=0.0, high=1.0, low_open=True)
        self.prior = validate.number("prior", prior, low=0.0, high=1e6, low_open=True)
        settings = {"alpha": self.alpha, "epsilon": self.epsilon, "prior": self.prior}
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {**self.settings, "alpha": played_alpha(self.alpha)}
