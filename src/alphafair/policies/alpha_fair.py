"""alpha-FairCB with full information (Algorithm 1)."""

from typing import Any, ClassVar, Literal

import numpy as np

from alphafair import validate
from alphafair.groups import Groups, Labels, PerGroup
from alphafair.kernels import Kernels, gradient_ascent
from alphafair.kernels.gradient_ascent import CLOSED_ROOTS, DRIFT, X
from alphafair.kernels.groups import mask_and_keep_floors
from alphafair.kernels.memory import ARMS
from alphafair.kernels.utility import ACCOUNT_ROWS, SLOPE, TOTAL
from alphafair.policies.grouped import GroupedPolicy
from alphafair.types import Feedback, Matrix, Vector

READINGS = {
    "before": gradient_ascent.BEFORE,
    "next_visit": gradient_ascent.NEXT_VISIT,
    "after": gradient_ascent.AFTER,
}


class AlphaFair(GroupedPolicy):
    """Maximise the alpha-fair utility of what every arm earns over the whole run, seeing all rewards.

    The utility is linearised where it stands: in round t, context j, the gain of arm i is
    $g_i = R_i^{-\\alpha} r_i(t)$, so an arm that has earned little counts for more. Each context runs its own
    gradient ascent on the simplex, with a step that adapts to the gradients it has met,

    $$S_j \\mathrel{+}= \\|g\\|^2, \\qquad x^j \\leftarrow \\Pi_\\Delta\\big(x^j + g/\\sqrt{S_j}\\big), \\qquad
    R \\mathrel{+}= x^j \\odot r,$$

    and contexts are coupled only through the shared R. Against any adversary
    $OPT - c_\\alpha \\sum_i \\phi(R_i)$ is at most what `metrics.regret_certificate` says, on every run.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; `grow` and `retire` change it later.
    alpha
        Fairness, in [0, 1): 0 maximises the sum of rewards, toward 1 the shares become equal.
    marginal
        When the slope of the utility is read. `"before"` the round's own reward is booked: what the theorem
        analyses. `"after"` it. `"next_visit"`: when the context comes again, the paper's pseudo-code to the
        letter. All three keep the guarantee.
    groups, entitlements, pull_floor
        Whom to be fair to: a label per arm; what groups (or arms) are entitled to, 1 where nothing is said; the least
        share of every round's draw, for each arm or by group, 0 or at least 1e-12. See docs/groups.md.
    seed
        For `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1], and the guarantee's constants want them above a positive floor: see
    `alphafair.rescale_rewards`. The paper prints $\\phi'(R)$ without saying when R is taken, and its step size
    without the root that the lemma it cites has; here both are as the proof needs them. For an arm that was
    masked report what it would have earned, so that being out of stock is not unlearned.

    Examples
    --------
    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> decision = policy.choose(0)
    >>> policy.update(decision, [1.0, 0.2, 0.6])
    >>> policy.probabilities(0).round(6).tolist()
    [0.669031, 0.0, 0.330969]

    References
    ----------
    Chaudhary and Sinha, alpha-Fair Contextual Bandits, arXiv 2310.14164, Algorithm 1.
    """

    name: ClassVar[str] = "alpha-fair"
    feedback = Feedback.FULL
    look = ("#0072B2", "o")
    _account_rows = ACCOUNT_ROWS
    _projected_row = X
    kernels = Kernels(
        gradient_ascent.draw,
        gradient_ascent.learn_any_time,
        gradient_ascent.change_arms,
        learn_in_order=gradient_ascent.learn,
        mask=mask_and_keep_floors,
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        marginal: Literal["before", "next_visit", "after"] = "before",
        groups: Labels | None = None,
        entitlements: PerGroup | None = None,
        pull_floor: PerGroup = 0.0,
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self.alpha = validate.alpha(alpha)
        self.marginal = validate.choice("marginal", marginal, READINGS)
        settings = {"alpha": self.alpha, "marginal": self.marginal}
        shared = gradient_ascent.first_shared(n_arms, self.alpha)
        owed = Groups.of(n_arms, groups, entitlements, pull_floor)
        if owed.are_plain and marginal == "before" and self.kernels is AlphaFair.kernels:
            self.kernels = PLAIN
        super().__init__(n_contexts, n_arms, seed, settings, shared, owed)

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        alone = {"": {"alpha": 0.9}, "half": {"alpha": 0.5}}
        return alone | {marginal: {"marginal": marginal} for marginal in READINGS if marginal != "before"}

    def _first_learner(self, n_live: int) -> Matrix:
        return gradient_ascent.first_learner(n_live, READINGS[self.marginal])

    def _plain_work(self, n_live: int) -> Matrix:
        return gradient_ascent.make_work(n_live, self.alpha, READINGS[self.marginal])

    def _check_memory(self) -> None:
        super()._check_memory()
        check_slopes(self._levels, self._memory.shared[0, SLOPE, ARMS:], self.alpha)

    def _alpha_changed(self) -> None:
        memory = self._memory
        self._reopen(np.arange(len(memory.live_arms)))
        memory.learners[:, X, CLOSED_ROOTS] = memory.shared[0, TOTAL, DRIFT] = 0.0

    @property
    def distributions(self) -> Matrix:
        """The distribution held by every context (n_contexts, n_arms)."""
        with self._lock:
            return self._memory.per_arm(self._memory.learners[:, X, ARMS:])

    @property
    def squared_gradient_norms(self) -> Vector:
        """S_j of every context, a gradient that waits for its next visit included."""
        with self._lock:
            return gradient_ascent.squared_gradient_norms(self._work, self._memory.shared, self._memory.learners)

    @property
    def drift(self) -> float:
        """What late and masked decisions add to the certificate; 0 if there were none."""
        return float(self._memory.shared[0, TOTAL, DRIFT])

    @property
    def surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """The most by which any policy, fixed between arms' comings and goings, can be ahead in sum_t <g, x>.

        Per context $\\sqrt{S_j}$ now, and $\\sqrt{S_j}$ at the end of every epoch, this one included; and the drift.
        """
        with self._lock:
            memory = self._memory
            norms = gradient_ascent.squared_gradient_norms(self._work, memory.shared, memory.learners)
            closed, drift = memory.learners[:, X, CLOSED_ROOTS].sum(), memory.shared[0, TOTAL, DRIFT]
        return float(2.0 * np.sqrt(norms).sum() + closed + drift)


PLAIN = AlphaFair.kernels._replace(  # quicker, and sooner compiled
    draw=gradient_ascent.draw_plainly,
    learn=gradient_ascent.learn_plainly_any_time,
    learn_in_order=gradient_ascent.learn_plainly,
)


def check_slopes(totals: Matrix, slopes: Matrix, alpha: float) -> None:
    """Refuse accounts whose slopes are not those of their totals: a memory from another alpha, or a damaged one."""
    if not (totals > 0.0).all() or not np.allclose(slopes, totals**-alpha, rtol=1e-9, atol=0.0):
        allowed = f"accounts with the slopes of alpha {alpha}"
        raise validate.Refusal("state.arrays", allowed, slopes, "The snapshot is damaged.")
