"""alpha-FairCB in every context on its own."""

from typing import ClassVar

from alphafair import validate
from alphafair.kernels import Kernels, gradient_ascent
from alphafair.kernels.gradient_ascent import OWN_ACCOUNT
from alphafair.kernels.memory import ARMS, blank
from alphafair.kernels.utility import SLOPE, TOTAL, open_accounts
from alphafair.policies.alpha_fair import check_slopes
from alphafair.policies.base import BasePolicy
from alphafair.types import Feedback, Matrix


class IndependentAlphaFair(BasePolicy):
    """Be fair inside every context instead of across them: what the coupling in `AlphaFair` is compared with.

    Context j keeps rewards $R^j$ of its own and takes the same steps on $g_i = (R^j_i)^{-\\alpha} r_i(t)$. An arm
    that is worst everywhere is then propped up everywhere, which a fair share of the whole does not need.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; `grow` and `retire` change it later.
    alpha
        Fairness, in [0, 1).
    seed
        For `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import IndependentAlphaFair
    >>> policy = IndependentAlphaFair(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> policy.update(policy.choose(0), [1.0, 0.2, 0.6])
    >>> policy.cumulative_rewards.round(4).tolist()
    [[1.3333, 1.0667, 1.2], [1.0, 1.0, 1.0]]
    """

    name: ClassVar[str] = "independent-alpha-fair"
    feedback = Feedback.FULL
    alpha: float
    look = ("#009E73", "^")
    _accounts_in = ("learners", OWN_ACCOUNT + TOTAL)
    kernels = Kernels(
        gradient_ascent.draw, gradient_ascent.learn_independently, gradient_ascent.change_independent_arms
    )

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self.alpha = validate.alpha(alpha)
        super().__init__(n_contexts, n_arms, seed, {"alpha": self.alpha}, blank(0, n_arms)[None])

    def _first_learner(self, n_live: int) -> Matrix:
        return gradient_ascent.first_independent_learner(n_live, self.alpha)

    def _make_work(self, n_live: int) -> Matrix:
        return gradient_ascent.make_work(n_live, self.alpha)

    def _alpha_changed(self) -> None:
        accounts = self._memory.learners[:, OWN_ACCOUNT:, ARMS:]
        open_accounts(accounts.swapaxes(0, 1), accounts[:, TOTAL].copy(), self.alpha)

    def _check_memory(self) -> None:
        check_slopes(self._memory.accounts, self._memory.learners[:, OWN_ACCOUNT + SLOPE, ARMS:], self.alpha)

    @property
    def cumulative_rewards(self) -> Matrix:  # type: ignore[override]
        """R of every context (n_contexts, n_arms), on top of the initial 1."""
        with self._lock:
            return self._memory.earned
