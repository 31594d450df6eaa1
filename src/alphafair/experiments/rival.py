"""For the arena only: the rival from the stochastic literature, and half of the adaptive policy on its own."""

from typing import ClassVar, Literal

from alphafair import validate
from alphafair.kernels import Kernels, optimistic_index
from alphafair.kernels.index import LEAD
from alphafair.kernels.memory import ARMS, blank
from alphafair.policies import AlphaFairAdaptive, BasePolicy
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
    alpha: float
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


class GuaranteedLearner(AlphaFairAdaptive):
    """`AlphaFairAdaptive` under bandit feedback without its index: the guaranteed learner plays every round itself.

    A master that finds the index behind by 1e100 from the start gives it nothing: q = 1. The learner keeps its hints,
    what the index predicts, since its guarantee is the same with any. Not in POLICIES.
    """

    name: ClassVar[str] = "guaranteed-learner"
    feedback = Feedback.BANDIT
    feedbacks: ClassVar[tuple[Feedback, ...]] = (Feedback.BANDIT,)
    look = ("#332288", "p")

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
        self._memory.shared[0, LEAD // ARMS, LEAD % ARMS] = -1e100
