"""The rival from the stochastic literature: for the arena only."""

from typing import ClassVar

from alphafair import validate
from alphafair.kernels import Kernels, optimistic_index
from alphafair.kernels.memory import blank
from alphafair.policies import BasePolicy
from alphafair.types import Feedback, Matrix


class OptimisticFrankWolfe(BasePolicy):
    """Play the arm of the largest $R_i^{-\\alpha} U_{ji}$, U an upper confidence bound per context and arm.

    Frank and Wolfe's step on the utility of what arms have earned, taken with optimistic estimates of what they pay. It
    assumes that every context pays as it always did: there is no guarantee where that changes. Not in POLICIES.

    References
    ----------
    Agrawal and Devanur, Bandits with Concave Rewards and Convex Knapsacks, EC 2014; Berthet and Perchet, Fast Rates for
    Bandit Optimization with Upper-Confidence Frank-Wolfe, NIPS 2017. The bounds are Chernoff's, see the kernel.
    """

    name: ClassVar[str] = "optimistic-frank-wolfe"
    feedback = Feedback.BANDIT
    look = ("#117733", "D")
    _accounts_in = ("shared", optimistic_index.TOTAL)
    kernels = Kernels(optimistic_index.draw, optimistic_index.learn, optimistic_index.change_arms)

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self.alpha = validate.alpha(alpha)
        super().__init__(n_contexts, n_arms, seed, {"alpha": self.alpha}, optimistic_index.first_shared(n_arms))

    def _first_learner(self, n_live: int) -> Matrix:
        return blank(2, n_live)

    def _make_work(self, n_live: int) -> Matrix:
        return optimistic_index.make_work(n_live, self.alpha)
