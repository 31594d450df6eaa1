"""alpha-FairCB with bandit feedback (Algorithm 2)."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.groups import Groups, Labels, PerGroup
from alphafair.kernels import Kernels, fair_bandit, log_barrier
from alphafair.kernels.groups import mask_and_keep_floors
from alphafair.policies.grouped import GroupedPolicy
from alphafair.policies.scale_free import check_log_barrier
from alphafair.types import Feedback, Matrix


class AlphaFairBandit(GroupedPolicy):
    """Maximise the alpha-fair utility of what every arm earns, seeing only the reward of the arm pulled.

    One scale-free bandit per context, one shared R. The arm I pulled in context c with reward r earned the gain
    $g = R_I^{-\\alpha} r$; the context's learner is fed the loss $-g$, importance-weighted by the propensity of
    the decision, and then $R_I \\mathrel{+}= r$. Gains shrink as R grows, which is why the learner must adapt to
    their size: one with a plain $\\sqrt T$ bound says nothing for $\\alpha \\ge 1/2$.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; `grow` and `retire` change it later.
    alpha
        Fairness, in [0, 1): 0 maximises the sum of rewards, toward 1 the shares become equal.
    groups, entitlements, pull_floor
        Whom to be fair to: see `AlphaFair`, and docs/groups.md.
    seed
        For `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1]. The loss is $-g$: fed $+g$, as in the code published with the paper, the learner
    prefers the worst arm; fed $1 - g$, it loses its rate. In order this is the paper's algorithm; for rewards
    that arrive late it is a sensible extension (propensity of the decision, everything else of the moment of the
    update) without a theorem.

    Examples
    --------
    >>> from alphafair import AlphaFairBandit
    >>> policy = AlphaFairBandit(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> for _ in range(200):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 1.0 if decision.arm == 2 else 0.1)
    >>> int(policy.probabilities(0).argmax())
    2

    References
    ----------
    Chaudhary and Sinha, arXiv 2310.14164, Algorithm 2; Putta and Agrawal, Scale-Free Adversarial Multi-Armed
    Bandits, PMLR 167, 2022, Algorithm 1.
    """

    name: ClassVar[str] = "alpha-fair-bandit"
    feedback = Feedback.BANDIT
    look = ("#56B4E9", "s")
    _account_rows = 1
    kernels = Kernels(fair_bandit.draw, fair_bandit.learn, fair_bandit.change_arms, mask=mask_and_keep_floors)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        groups: Labels | None = None,
        entitlements: PerGroup | None = None,
        pull_floor: PerGroup = 0.0,
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self.alpha = validate.alpha(alpha)
        owed = Groups.of(n_arms, groups, entitlements, pull_floor)
        super().__init__(n_contexts, n_arms, seed, {"alpha": self.alpha}, fair_bandit.first_shared(n_arms), owed)

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        return {"": {}, "efficient": {"alpha": 0.0}}

    def _first_learner(self, n_live: int) -> Matrix:
        return log_barrier.first_learner(n_live)

    def _plain_work(self, n_live: int) -> Matrix:
        return fair_bandit.make_work(n_live, self.n_arms, self.alpha)

    def _check_memory(self) -> None:
        super()._check_memory()
        check_log_barrier(self._memory.learners)

    def _least_propensity(self, context: int) -> float:
        least = log_barrier.least_propensity(self._memory.learners, context, self.n_arms, log_barrier.ADAPTIVE)
        return self._least_drawn(least)

    def _reopen(self, columns: NDArray[np.int64]) -> None:
        """Nothing stands beside an account here."""
