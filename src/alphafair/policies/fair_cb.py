"""FairCB: exponential weights under a floor on every arm's pull rate."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.kernels import pull_floor as kernels
from alphafair.policies.base import BasePolicy
from alphafair.types import Feedback, Matrix, Vector

LEARN = {Feedback.FULL: kernels.learn_full, Feedback.BANDIT: kernels.learn_bandit}
KINDS = {Feedback.FULL: kernels.FULL, Feedback.BANDIT: kernels.BANDIT}


class FairCB(BasePolicy):
    """Maximise the sum of rewards while every arm is pulled in at least a share `pull_floor` of all rounds.

    All contexts move together: with losses $L^j$ and context weights q,

    $$P = \\arg\\min_P \\sum_j \\langle p^j, L^j \\rangle + \\frac1\\eta \\sum_{j,i} p^j_i \\ln p^j_i
    \\quad\\text{over}\\quad \\sum_j q_j p^j_i \\ge \\nu \\text{ for every arm } i.$$

    The floor is on pulls, not on rewards: the other way to be fair, and the rival of the paper.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; contexts added by `grow` weigh nothing.
    pull_floor
        $\\nu$ in (0, 1/n_arms); by default 1/(2 n_arms), as in the paper's experiments.
    horizon
        Number of rounds T, which sets the learning rate.
    context_weights
        How often each context comes, a distribution. None: learned in epochs of length 1, 2, 4, ..., with a floor
        lowered by what the counts may be wrong, which for short runs means no floor at all.
    feedback
        `"bandit"`, as published, or `"full"`: the same step on the true losses, regret at most
        $\\sqrt{2 T M \\ln N}$.
    seed
        For `choose` without `rng`.

    Notes
    -----
    Losses are 1 - r. Every update solves the problem above anew, in its dual of n_arms variables, so an update
    costs time in proportion to the number of contexts.

    Examples
    --------
    >>> from alphafair import FairCB
    >>> policy = FairCB(2, 3, pull_floor=0.3, horizon=1000, context_weights=[0.6, 0.4], feedback="full", seed=0)
    >>> for _ in range(200):
    ...     policy.update(policy.choose(0), [1.0, 0.2, 0.2])
    >>> policy.marginals.round(6).tolist()
    [0.4, 0.3, 0.3]

    References
    ----------
    Chen, Cuellar, Luo, Modi, Nemlekar and Nikolaidis, Fair Contextual Multi-Armed Bandits, PMLR 124, 2020; its
    supplement for unknown weights.
    """

    name: ClassVar[str] = "fair-cb"
    _draw = staticmethod(kernels.draw)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        pull_floor: float | None = None,
        horizon: int,
        context_weights: ArrayLike | None = None,
        feedback: Literal["bandit", "full"] = "bandit",
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        floor = validate.number(
            "pull_floor",
            0.5 / n_arms if pull_floor is None else pull_floor,
            low=0.0,
            high=1.0 / n_arms,
            low_open=True,
            high_open=True,
        )
        horizon = validate.integer("horizon", horizon, low=1)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        weights = None
        if context_weights is not None:
            weights = validate.distribution(
                "context_weights", context_weights, n_contexts, "a context", "Divide the counts of visits by their sum."
            )
        self._learn = LEARN[self.feedback]
        kind = KINDS[self.feedback]
        super().__init__(
            n_contexts,
            n_arms,
            seed,
            {
                "pull_floor": floor,
                "horizon": horizon,
                "context_weights": None if weights is None else weights.tolist(),
                "feedback": self.feedback.value,
            },
            kernels.first_shared(n_contexts, n_arms, floor, horizon, kind, weights is not None),
            kernels.first_learner(n_arms),
        )
        if weights is not None:
            self._learners[:, 0, n_arms] = weights

    def grow(self, n_contexts: int) -> None:
        """Make room for contexts nobody announced: they start uniform and, where weights are known, weigh 0."""
        super().grow(n_contexts)
        self.settings = {**self.settings, **self._comparable_settings(n_contexts)}

    def _comparable_settings(self, n_contexts: int) -> dict[str, Any]:
        weights = self.settings["context_weights"]
        if weights is None:
            return self.settings
        return {**self.settings, "context_weights": weights + [0.0] * (n_contexts - len(weights))}

    @property
    def distributions(self) -> Matrix:
        """P: the distribution of every context (n_contexts, n_arms)."""
        return np.array(self._learners[:, 0, : self.n_arms])

    @property
    def marginals(self) -> Vector:
        """How often each arm is pulled overall, under the weights in force: at least the floor in force."""
        weights = self._learners[:, 0, self.n_arms]
        return np.asarray(weights @ self.distributions, dtype=np.float64)
