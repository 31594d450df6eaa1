"""The policy that learns fast and falls back on a guaranteed learner.

Its two algorithms, one for each kind of feedback, are `adaptive_bandit` and `adaptive_full`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.algorithms import adaptive_bandit, adaptive_full, adaptive_slates
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups, Labels
from alphafair.math.gradient_ascent import of_single_arms
from alphafair.math.utility import account_settings, played_alpha
from alphafair.policy.archive import array_of
from alphafair.policy.two_sides import TwoSided, side_settings
from alphafair.values import Feedback, State, Traits


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test: both kinds of feedback, alpha 0, and two sides."""
    return {
        "bandit": {"alpha": 0.9, "feedback": "bandit"},
        "full": {"alpha": 0.9, "feedback": "full"},
        "efficient": {"alpha": 0.0, "feedback": "bandit"},
        "nash": {"alpha": 1.0, "feedback": "bandit"},
        "two": {"alpha": 2.0, "feedback": "full"},
        "max-min": {"alpha": math.inf, "feedback": "bandit"},
        "two-sided": {"alpha": 1.0, "feedback": "full", "context_weight": 0.25},
        "promise-bandit": {"alpha": 0.5, "feedback": "bandit", "context_share": 0.7},
        "promise": {"alpha": 0.5, "feedback": "full", "context_share": 0.7},
        "two-sided-bandit": {"alpha": 1.0, "feedback": "bandit", "context_weight": 0.25},
    }


class AlphaFairAdaptive(TwoSided):
    """Maximize the alpha-fair utility of the rewards of every arm: fast learning, mixed with a guaranteed learner.

    A predictor estimates the reward of every arm in a context, from the arm's history, the context's long-run and
    recent history, and that of contexts of the same age; arms are scored by $R_i^{-\\alpha} m_i$. A learner with a
    guarantee runs beside it on the same account, and a mixing weight shifts probability to whichever does better.

    With bandit feedback this learner is an optimistic log barrier on doubly robust losses, scaled by the largest
    weight, so that the scale of rewards does not matter. With full information it is the gradient ascent of
    `AlphaFair`, and the certificate holds on every single run. From alpha = 1 on the mixing weight is that of AdaHedge
    on gains in units of the welfare.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, 0 to inf: 0 maximizes the sum of rewards, 1 the Nash welfare (proportional fairness), inf the poorest
        account. Above 64, inf included, it is played as 16, which serves the poorest account better.
    feedback
        `"bandit"`: the reward of the arm played; `"full"`: the rewards of all arms.
    groups
        A `Groups`, or a label per arm. See docs/howto/groups_and_entitlements.md.
    context_weight
        The weight of contexts, in [0, 1): 0 is fair to arms alone, and near 1 every context is served its best. The
        objective is $W_\\alpha(R)^{1-\\theta} \\prod_j U_j^{\\theta q_j}$ with $U_j$ the rewards in context j, plus 1.
        Slates are then not possible.
    context_weights
        Positive weights of contexts, with which bounds hold. None: the part of all rounds so far.
    context_share
        A promise to every context, in [0, 1): this part of the rewards of its best arm. With full information it is
        kept at any time and whatever the rewards are, but for `context_share_bound`. With bandit feedback it is a
        target without a guarantee: debts are computed from predictions, and a context in debt is served as at alpha=0.
        It is met where the best arm of a context can be learned; where it cannot, predictions say that it is met.
    n_features
        Number of features of a round; 0 for none. `choose` then needs them: `choose(context, features=z)`.
    features_of
        `"context"`: features have shape (n_features,), and every arm has its own coefficients. `"arms"`: one row per
        arm, (n_arms, n_features), and all arms share the coefficients, so that they apply to new arms too.
    regressor
        Replaces the least squares on features: any object with scikit-learn's `partial_fit` and `predict`. Copies of it
        are fitted, one per arm, or one for all with `features_of="arms"`. Rounds are then played one by one.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1]; their scale does not matter, and zeros are allowed; until the first reward of at least
    1e-140 all count as zeros. There is nothing to tune. If rewards come late, call `expect(decision)` for every
    decision with a pending reward, so that pending rewards are counted in the accounts; `update` ends this, and so does
    `forgo(decision)` if no reward will come. With bandit feedback the policy explores more while any reward is pending:
    the predictor shows each arm that is clearly behind about five times as often. The theorem holds for rewards in
    order, without masks, and for a fixed set of arms.

    With bandit feedback it also learns from decisions of others, with `observe` and `observe_log`; accounts and
    theorems are those of its own decisions. See docs/howto/learn_from_others.md.

    Arms that it avoids are shown rarely: the least propensity is 0.005 gamma/n with gamma = 0.3 sqrt(n/t) in round t.
    If the log will be used to evaluate other policies, pass `groups=Groups(pull_floor=0.002)`;
    docs/howto/evaluate_a_log.md has what a floor costs and what it is worth.

    Examples
    --------
    >>> from alphafair import AlphaFairAdaptive
    >>> policy = AlphaFairAdaptive(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> for _ in range(200):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 1.0 if decision.arm == 2 else 0.1)
    >>> int(policy.probabilities(0).argmax())
    2
    """

    name: ClassVar[str] = "alpha-fair-adaptive"
    _version: ClassVar[int] = 6
    alpha: float
    traits = Traits(feedbacks=(Feedback.FULL, Feedback.BANDIT), slates=True, style=("#882255", "h"), variants=variants)
    algorithm: ClassVar = {Feedback.FULL: adaptive_full.ALGORITHM, Feedback.BANDIT: adaptive_slates.ALGORITHM}
    welfare_algorithm: ClassVar = {Feedback.FULL: adaptive_full.ON_WELFARE, Feedback.BANDIT: adaptive_slates.ON_WELFARE}
    sides_algorithm: ClassVar[Any] = {
        Feedback.FULL: adaptive_full.TWO_SIDED,
        Feedback.BANDIT: adaptive_slates.TWO_SIDED,
    }

    promise_algorithm: ClassVar[Any] = {Feedback.FULL: adaptive_full.PROMISE, Feedback.BANDIT: adaptive_slates.PROMISE}

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        feedback: Literal["bandit", "full"] = "bandit",
        groups: Groups | Labels | None = None,
        context_weight: float = 0.0,
        context_weights: ArrayLike | None = None,
        context_share: float = 0.0,
        n_features: int = 0,
        features_of: Literal["context", "arms"] = "context",
        regressor: Any = None,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        self.n_features = validate.integer("n_features", n_features, low=0)
        self.features_of = validate.choice("features_of", features_of, ("context", "arms"))
        settings: dict[str, Any] = {"alpha": self.alpha, "feedback": self.feedback.value}
        settings |= side_settings(n_contexts, context_weight, context_weights, context_share)
        self._check_sides(settings)
        if self.n_features:
            settings |= {"n_features": self.n_features, "features_of": self.features_of}
        elif regressor is not None:
            repair = "Pass the number of features."
            raise InvalidArgument("n_features", "at least 1 with a regressor", 0, repair)
        self.n_arms = n_arms  # `feature_shape` needs it
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed, groups=groups, regressor=regressor)

    def _numbers(self) -> dict[str, Any]:
        return {
            **account_settings(played_alpha(self.alpha)),
            **self._numbers_of_sides(),
            "most_arms": self.n_arms,
            "described": self.n_features > 0,
            "fits": self.n_features > 0 and self.regressor is None,
            "features_of_arms": self.features_of == "arms",
        }

    @classmethod
    def _of_this_version(cls, state: State) -> State:
        """Add what older versions did not keep: what slates need, and before version 5 sums of squares.

        Version 4 took om c for the mean square of rewards and of misses. The bound of Theorem 1 does not cover a change
        of the algorithm, so there is none until the next period.
        """
        if state.policy != cls.name or state.version not in (4, 5):
            return state
        added: dict[str, Any] = of_single_arms(state)
        if state.settings.get("feedback") == Feedback.BANDIT.value:
            before = array_of(state, "period", np.int64, (2,))[1] if "period" in state.arrays else 0
            learned = array_of(state, "rounds", np.float64, ()) > before  # in this period
            added = {"most_shown": 1.0, "shown": 1.0 if learned else 0.0}
        if state.settings.get("feedback") == Feedback.BANDIT.value and state.version == 4:
            total, largest, outside = (
                array_of(state, name, np.float64, ()) for name in ("reward_sum", "largest", "outside")
            )
            added |= {"squared_rewards": total * largest, "squared_misses": total * largest}
            added |= {"head_start": 0.0, "outside": outside + 1.0}
        arrays = {**state.arrays, **{name: np.asarray(value) for name, value in added.items()}}
        return replace(state, version=6, arrays=arrays)

    @property
    def regressor(self) -> Any:
        """The regressor that was passed, not fitted."""
        return self.settings.get("regressor")

    @property
    def feature_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of `features`: (n_features,), or (n_arms, n_features) with `features_of="arms"`."""
        if self.n_features == 0:
            return ()
        return (self.n_features,) if self.features_of == "context" else (self.n_arms, self.n_features)

    @property
    def most_shown(self) -> int:  # type: ignore[override]
        """The largest number of arms of a decision that it has learned from; of this period with full information."""
        if self.feedback is Feedback.BANDIT:
            return int(self._memory.scalars[adaptive_bandit.N.most_shown])
        return max(1, int(self._memory.context_scalars[:, adaptive_full.K.shown].max()))

    @property
    def context_share_bound(self) -> float | None:  # type: ignore[override]
        """An upper bound of every debt of `context_debts`, with full information; None without a promise.

        sigma + keep ln(2N)/eta, with ln(1+eta)/eta = sigma/keep and keep what floors leave. Debts at the last change of
        arms, floors or the promise, and what late and masked decisions lost in a context that was owed, are added.
        """
        if self.feedback is Feedback.BANDIT or self.context_share == 0.0:
            return None
        with self._lock:
            return adaptive_full.context_share_bound(self._memory)

    @property
    def surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """With full information, an upper bound of the regret in sum_t <g, x> against policies fixed per epoch."""
        if self.feedback is Feedback.BANDIT:
            return None
        with self._lock:
            return adaptive_full.surrogate_regret_bound(self._memory)

    @property
    def expected_surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """With bandit feedback, the bound of Theorem 1 in docs/background/theory.md; None outside its conditions."""
        if self.feedback is Feedback.FULL:
            return None
        with self._lock:
            return adaptive_bandit.expected_surrogate_regret_bound(self._memory, self._learned.first_round)
