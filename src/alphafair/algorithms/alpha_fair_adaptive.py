"""The policy that learns fast and falls back on a guaranteed learner.

Its two algorithms, one for each kind of feedback, are `adaptive_bandit` and `adaptive_full`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from alphafair import validate
from alphafair.algorithms import adaptive_bandit, adaptive_full
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups, Labels
from alphafair.math.utility import account_settings
from alphafair.policy.base import BasePolicy
from alphafair.values import Feedback, Traits


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Both kinds of feedback, and no fairness at all."""
    return {
        "bandit": {"alpha": 0.9, "feedback": "bandit"},
        "full": {"alpha": 0.9, "feedback": "full"},
        "efficient": {"alpha": 0.0, "feedback": "bandit"},
    }


class AlphaFairAdaptive(BasePolicy):
    """Maximise the alpha-fair utility of what every arm earns, learning fast and never far below a guaranteed learner.

    A predictor says what every arm will pay in a context, from the arm's record, the context's own long-run and recent
    record, and that of contexts as old as this one; arms are scored by $R_i^{-\\alpha} m_i$. A learner with a guarantee
    runs beside it on the same account, and a mixing weight moves the play to whichever does better.

    With bandit feedback that learner is an optimistic log barrier on doubly robust losses, scaled by the largest
    weight, so that no reward scale enters. With full information it is `AlphaFair`'s own gradient ascent, and the
    certificate holds on every single run.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; `grow` and `retire` change it later.
    alpha
        Fairness, in [0, 1): 0 maximises the sum of rewards, toward 1 the shares become equal.
    feedback
        `"bandit"`: the reward of the arm played; `"full"`: the rewards of all arms.
    groups
        Whom to be fair to: a `Groups`, or a label per arm. See docs/groups.md.
    n_features
        How many numbers describe a round; 0 for none. `choose` then asks for them: `choose(context, features=z)`.
    features_of
        Whom they describe. `"context"`: z has shape (n_features,), and every arm learns what they mean to it. `"arms"`:
        one row per arm, (n_arms, n_features), and they mean the same to all arms, so that a new arm starts with what
        its features say.
    regressor
        In place of the least squares on the features: anything with scikit-learn's `partial_fit` and `predict`. Copies
        of it are taught, one per arm, or one for all with `features_of="arms"`. Rounds are then played one by one.
    seed
        For `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1]; their scale does not matter, and zeros are welcome; until one of at least 1e-140 has
    come, all count as zeros. There is nothing to tune. When rewards come late, call `expect(decision)` for every
    decision whose reward is on its way, so that arms that wait for theirs are not taken for poor ones; `update` ends
    the wait, and so does `forgo(decision)` if no reward will come.
    The theorem is for rewards in order, no arm masked, a fixed set of arms.

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
    alpha: float
    traits = Traits(feedbacks=(Feedback.FULL, Feedback.BANDIT), style=("#882255", "h"), variants=variants)
    algorithm: ClassVar = {Feedback.FULL: adaptive_full.ALGORITHM, Feedback.BANDIT: adaptive_bandit.ALGORITHM}

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        feedback: Literal["bandit", "full"] = "bandit",
        groups: Groups | Labels | None = None,
        n_features: int = 0,
        features_of: Literal["context", "arms"] = "context",
        regressor: Any = None,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        self.n_features = validate.integer("n_features", n_features, low=0)
        self._features_of = validate.choice("features_of", features_of, ("context", "arms"))
        settings: dict[str, Any] = {"alpha": self.alpha, "feedback": self.feedback.value}
        if self.n_features:
            settings |= {"n_features": self.n_features, "features_of": self._features_of}
        elif regressor is not None:
            repair = "Pass the number of features."
            raise InvalidArgument("n_features", "at least 1 with a regressor", 0, repair)
        self.n_arms = n_arms  # `feature_shape` asks for it
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed, groups=groups, regressor=regressor)

    def _numbers(self) -> dict[str, Any]:
        return {
            **account_settings(self.alpha),
            "most_arms": self.n_arms,
            "described": self.n_features > 0,
            "fits": self.n_features > 0 and self._regressors is None,
            "features_of_arms": self._features_of == "arms",
        }

    @property
    def feature_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of what `choose` asks for: (n_features,), or (n_arms, n_features) with `features_of="arms"`."""
        if self.n_features == 0:
            return ()
        return (self.n_features,) if self._features_of == "context" else (self.n_arms, self.n_features)

    @property
    def surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """With full information, the most by which any policy, fixed per epoch, can be ahead in sum_t <g, x>."""
        if self.feedback is Feedback.BANDIT:
            return None
        with self._lock:
            return adaptive_full.surrogate_regret_bound(self._memory)

    @property
    def expected_surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """With bandit feedback, what Theorem 1 of docs/theory.md adds up; None where the theorem does not speak."""
        if self.feedback is Feedback.FULL:
            return None
        with self._lock:
            return adaptive_bandit.expected_surrogate_regret_bound(self._memory)
