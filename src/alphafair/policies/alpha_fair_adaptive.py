"""The policy that learns fast and falls back on a guaranteed learner."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.groups import Groups, Labels, PerGroup
from alphafair.kernels import Kernels, index, safe_mixture, twin
from alphafair.kernels.groups import UNPROMISED, mask_and_keep_floors
from alphafair.kernels.index import (
    BASE,
    CLOSED_ROOTS,
    DRIFT,
    EXPLORED,
    MASTER_ROOTS,
    N_NUMBERS,
    NEVER_NEGATIVE,
    NORMS,
    NUMBERS,
    OUTSIDE,
    PEAKS,
    PENDING,
    READY,
    REWARD_SUM,
    ROOTS,
    ROUNDS,
    SAID,
    SEEN,
    SPREAD,
)
from alphafair.kernels.memory import ARMS, SETTINGS
from alphafair.kernels.utility import ACCOUNT_ROWS, SLOPE
from alphafair.policies.alpha_fair import check_slopes
from alphafair.policies.grouped import GroupedPolicy
from alphafair.policies.regressors import Regressors
from alphafair.types import Feedback, Matrix, State, Vector

KERNELS = {
    Feedback.FULL: Kernels(twin.draw, twin.learn, twin.change_arms, show=index.show, mask=mask_and_keep_floors),
    Feedback.BANDIT: Kernels(
        safe_mixture.draw,
        safe_mixture.learn,
        safe_mixture.change_arms,
        expect=safe_mixture.expect,
        forgo=safe_mixture.forgo,
        show=index.show,
        mask=mask_and_keep_floors,
    ),
}


class AlphaFairAdaptive(GroupedPolicy):
    """Maximise the alpha-fair utility of what every arm earns, learning fast and never far below a guaranteed learner.

    An index predicts what every arm will pay in a context, from the arm's record, the context's own long-run and recent
    record, and that of contexts as old as this one, and prefers $R_i^{-\\alpha} m_i$. A learner with a guarantee runs
    beside it on the same account, and a master moves the play to whichever does better.

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
    groups, entitlements, pull_floor
        Whom to be fair to: see `AlphaFair`, and docs/groups.md.
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
    come, all count as zeros. There is nothing to tune. When
    rewards come late, say `expect(decision)` for every decision whose reward is on its way, so that arms which wait for
    theirs are not taken for poor ones; `update` ends the wait, and so does `forgo(decision)` if no reward will come.
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
    version: ClassVar[int] = 3
    feedbacks: ClassVar[tuple[Feedback, ...]] = (Feedback.FULL, Feedback.BANDIT)
    look = ("#882255", "h")
    _account_rows = ACCOUNT_ROWS

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        feedback: Literal["bandit", "full"] = "bandit",
        groups: Labels | None = None,
        entitlements: PerGroup | None = None,
        pull_floor: PerGroup = 0.0,
        n_features: int = 0,
        features_of: Literal["context", "arms"] = "context",
        regressor: Any = None,
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        self.alpha = validate.alpha(alpha)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        self.n_features = validate.integer("n_features", n_features, low=0)
        self.features_of = validate.choice("features_of", features_of, ("context", "arms"))
        self.kernels = KERNELS[self.feedback]
        settings: dict[str, Any] = {"alpha": self.alpha, "feedback": self.feedback.value}
        if self.n_features:
            settings |= {"n_features": self.n_features, "features_of": self.features_of}
        self._regressors: Regressors | None = None
        if regressor is not None:
            if not self.n_features:
                raise validate.Refusal("n_features", "at least 1 with a regressor", 0, "Say how many features come.")
            self._regressors = Regressors(regressor, n_arms, of_arms=self.features_of == "arms")
            settings["regressor"] = self._regressors.blank
            self.compiles = False
        shared = index.first_shared(n_arms, self.alpha, self.n_features, fits=regressor is None)
        if self.feedback is Feedback.FULL:
            self._projected_row = BASE
        super().__init__(
            n_contexts, n_arms, seed, settings, shared, Groups.of(n_arms, groups, entitlements, pull_floor)
        )

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        """Both kinds of feedback, and no fairness at all."""
        return {
            "bandit": {"alpha": 0.9, "feedback": "bandit"},
            "full": {"alpha": 0.9, "feedback": "full"},
            "efficient": {"alpha": 0.0, "feedback": "bandit"},
        }

    def _first_learner(self, n_live: int) -> Matrix:
        full = self.feedback is Feedback.FULL
        return index.first_learner(n_live, *((1.0 / n_live, 0.0) if full else (0.0, n_live)))

    def _plain_work(self, n_live: int) -> Matrix:
        own, fits = self.features_of == "arms", self._regressors is None
        return index.make_work(n_live, self.n_arms, self.alpha, self.n_features, of_arms=own, fits=fits)

    @property
    def feature_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of what `choose` asks for: (n_features,), or (n_arms, n_features) with `features_of="arms"`."""
        if self.n_features == 0:
            return ()
        return (self.n_features,) if self.features_of == "context" else (self.n_arms, self.n_features)

    # a regressor of the user's own: asked before every draw, taught after every reward

    def _show(self, features: Any) -> NDArray[np.float64]:
        shown = super()._show(features)
        if self._regressors is not None:
            live = self._memory.live_arms
            self._seen = shown if shown.ndim == 1 else shown[live]
            self._work[SAID, : len(live)] = self._regressors.say(self._seen)
            self._work[NUMBERS, READY] = 0.0
        return shown

    def _first_learn(self, *arguments: Any) -> bool | None:
        if self._regressors is None:
            return super()._first_learn(*arguments)
        accepted = self.kernels.learn(*arguments)
        arms, rewards = (arguments[4], arguments[6]) if self._bandit else (slice(None), arguments[5])
        if accepted is not False:
            numbers = self._numbers()
            over = np.atleast_1d(rewards - numbers[REWARD_SUM] / numbers[SEEN])
            for arm, y in zip(np.atleast_1d(np.arange(len(self._memory.live_arms))[arms]), over, strict=True):
                self._regressors.fit(int(arm), self._seen, float(y))
        return accepted

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        super()._change_arms(kept, entries)
        if self._pooled:  # those on their way to arms that left, and to the groups that others join
            self._refresh(np.arange(len(self._memory.live_arms)))
        if self._regressors is not None:
            self._regressors.change_arms(kept, len(entries))

    def snapshot(self) -> State:
        if self._regressors is not None:
            repair = "Keep the log and learn from it again, or use copy.deepcopy."
            raise validate.Refusal("regressor", "None for a snapshot", self.settings["regressor"], repair)
        return super().snapshot()

    def _numbers(self) -> Vector:
        numbers = np.empty(N_NUMBERS)
        index.gather(self._memory.shared, numbers)
        return numbers

    def _least_propensity(self, context: int) -> float:
        return self._least_drawn(safe_mixture.least_propensity(self._numbers()[ROUNDS], float(self.n_arms)))

    def _reopen(self, columns: NDArray[np.int64]) -> None:
        super()._reopen(columns)
        self._refresh(columns)

    def _refresh(self, columns: NDArray[np.int64]) -> None:
        """With bandit feedback rewards on their way count into the slope."""
        if self.feedback is Feedback.BANDIT:
            for column in columns:
                safe_mixture.refresh(self._work, self._memory.shared, column)

    def _alpha_changed(self) -> None:
        memory, numbers = self._memory, self._numbers()
        self._reopen(np.arange(len(memory.live_arms)))
        if self.feedback is Feedback.BANDIT:
            numbers[OUTSIDE] += 1.0
        else:
            memory.learners[:, BASE, CLOSED_ROOTS] = numbers[DRIFT] = 0.0
        index.scatter(numbers, memory.shared)

    def _check_memory(self) -> None:
        super()._check_memory()
        totals, slopes = self._levels, self._memory.shared[0, SLOPE, ARMS:]
        pending, owed = self._memory.shared[0, PENDING, ARMS:], self._live_groups
        if self._pooled:
            pending = (np.bincount(owed.of_arms, pending) / owed.entitlements)[owed.of_arms]
        check_slopes(totals[pending == 0.0], slopes[pending == 0.0], self.alpha)
        most = totals + 3.0 * pending  # rewards on their way count into the slope
        if ((slopes > totals**-self.alpha * (1 + 1e-9)) | (slopes < most**-self.alpha * (1 - 1e-9))).any():
            raise validate.Refusal("state.arrays", f"slopes of alpha {self.alpha}", slopes, "The snapshot is damaged.")
        numbers, heads = self._numbers(), self._memory.learners[..., :ARMS]
        if not np.isfinite(numbers).all() or min(numbers[NEVER_NEGATIVE].min(), heads.min()) < 0.0:
            raise validate.Refusal("state.arrays", "finite, counts not negative", numbers, "The snapshot is damaged.")

    @property
    def surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """With full information, the most by which any policy, fixed per epoch, can be ahead in sum_t <g, x>."""
        if self.feedback is Feedback.BANDIT:
            return None
        with self._lock:
            heads, numbers = self._memory.learners[:, BASE, :ARMS].copy(), self._numbers()
        roots = 2.0 * np.sqrt(heads[:, NORMS]).sum() + heads[:, CLOSED_ROOTS].sum()
        return float(roots + np.sqrt(2.0 * numbers[SPREAD]) + numbers[DRIFT])

    @property
    def expected_surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """With bandit feedback, what Theorem 1 of docs/theory.md adds up; its mean over draws bounds the mean regret.

        None where the theorem does not speak: fewer than two rounds or arms, rewards that came late or for masked
        decisions, arms that came or went, another alpha than at first, or floors under groups.
        """
        with self._lock:
            numbers, n = self._numbers(), len(self._memory.live_arms)
            left = float(self._work[SETTINGS, UNPROMISED])  # 1, or 1 - n nu
        n_rounds = numbers[ROUNDS]
        outside = numbers[OUTSIDE] > 0.0 or self.groups.group_floors.any()
        if self.feedback is Feedback.FULL or outside or min(n_rounds, n) < 2:
            return None
        log = math.log(n_rounds)
        learners = (log + 1.0 + math.sqrt((n + 1) / n)) * numbers[ROOTS]
        master = (0.5 * log + 2.4) * numbers[MASTER_ROOTS]
        return float(left * (learners + numbers[EXPLORED] + 2.0 * numbers[PEAKS] / n_rounds) + master)
