"""The scale-free adversarial bandit of Putta and Agrawal."""

from typing import Any, ClassVar, Literal

from alphafair import validate
from alphafair.kernels import Kernels, log_barrier, scale_free
from alphafair.policies.base import BasePolicy
from alphafair.policies.memory import DAMAGED
from alphafair.types import Feedback, Matrix

EXPLORATIONS = {"adaptive": log_barrier.ADAPTIVE, "sqrt": log_barrier.SQRT}


class ScaleFree(BasePolicy):
    """Maximise the sum of rewards of any size and sign, seeing one reward per round; blind to contexts.

    Follow the leader with a log barrier,
    $p = \\arg\\min_p \\langle p, L \\rangle - \\frac1\\eta \\sum_k \\log p_k$, on importance-weighted losses
    $\\tilde l = -r/p'_i$, at a rate $\\eta = n/(1 + \\sum M)$ that falls with the learner's own stability, and
    plays $p' = (1-\\gamma) p + \\gamma/n$. Nobody tells it the range of the rewards.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; contexts are accepted and ignored.
    exploration
        `"adaptive"`: $\\gamma = n/(2n + \\sum \\gamma |l|/p')$, as in the paper's experiments; `"sqrt"`:
        $\\gamma = \\min(1/2, \\sqrt{n/t})$.
    seed
        For `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import ScaleFree
    >>> policy = ScaleFree(n_contexts=1, n_arms=2, seed=3)
    >>> for _ in range(300):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 5000.0 if decision.arm == 1 else -2000.0)
    >>> bool(policy.probabilities(0)[1] > 0.9)
    True

    References
    ----------
    Putta and Agrawal, Scale-Free Adversarial Multi-Armed Bandits, PMLR 167, 2022, Algorithm 1.
    """

    name: ClassVar[str] = "scale-free"
    feedback = Feedback.BANDIT
    reward_range = validate.ANY_REWARD
    look = ("#E69F00", "v")
    kernels = Kernels(scale_free.draw, scale_free.learn, scale_free.change_arms)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        exploration: Literal["adaptive", "sqrt"] = "adaptive",
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self._option = EXPLORATIONS[validate.choice("exploration", exploration, EXPLORATIONS)]
        super().__init__(
            n_contexts, n_arms, seed, {"exploration": exploration}, log_barrier.first_learner(n_arms)[None]
        )

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        return {"": {}, "sqrt": {"exploration": "sqrt"}}

    def _make_work(self, n_live: int) -> Matrix:
        return scale_free.make_work(n_live, self.n_arms, self._option)

    def _check_memory(self) -> None:
        check_log_barrier(self._memory.shared)

    def _least_propensity(self, context: int) -> float:
        return float(log_barrier.least_propensity(self._memory.shared, 0, self.n_arms, self._option))


def check_log_barrier(learners: Matrix) -> None:
    """Refuse learners that no rounds can have left."""
    if not log_barrier.are_sound(learners):
        raise validate.Refusal("state.arrays", "of positive probabilities, rates and sums", learners, DAMAGED)
