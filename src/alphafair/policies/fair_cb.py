"""FairCB: exponential weights under a floor on every arm's pull rate."""

import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.kernels import Kernels
from alphafair.kernels import pull_floor as floors
from alphafair.kernels.memory import ARMS
from alphafair.kernels.pull_floor import WEIGHT, P
from alphafair.policies.base import BasePolicy
from alphafair.types import Feedback, Matrix, Vector

LEARN = {Feedback.FULL: floors.learn_full, Feedback.BANDIT: floors.learn_bandit}
KINDS = {Feedback.FULL: floors.FULL, Feedback.BANDIT: floors.BANDIT}


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
    costs time in proportion to the number of contexts. With bandit feedback a propensity below 1e-9 is refused, unless
    the decision was drawn just before: one loss over it would outweigh all others.

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
    contexts_apart = False
    feedbacks = tuple(Feedback)
    look = ("#CC79A7", "P")

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
        horizon = validate.horizon(horizon)
        self.feedback = validate.choice("feedback", feedback, Feedback)
        weights = None
        if context_weights is not None:
            weights = validate.distribution(
                "context_weights",
                context_weights,
                n_contexts,
                "per context",
                "Divide the counts of visits by their sum.",
            )
        self.kernels = Kernels(floors.draw, LEARN[self.feedback], floors.change_arms)
        settings = {
            "pull_floor": floor,
            "horizon": horizon,
            "context_weights": None if weights is None else weights.tolist(),
            "feedback": self.feedback.value,
        }
        kind = KINDS[self.feedback]
        shared = floors.first_shared(n_contexts, n_arms, floor, horizon, kind, weights is not None)
        super().__init__(n_contexts, n_arms, seed, settings, shared)
        if weights is not None:
            self._memory.learners[:, P, WEIGHT] = _summing_to_one(weights)

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        weights = [1.0 / n_contexts] * n_contexts
        known = {"context_weights": weights, "pull_floor": 0.6 / n_arms}  # a floor that leaves room for more arms
        kinds = {"": known, "unknown": {}}
        return {
            f"{kind}-{feedback}".strip("-"): {"horizon": 1000, "feedback": str(feedback), **settings}
            for kind, settings in kinds.items()
            for feedback in cls.feedbacks
        }

    def _first_learner(self, n_live: int) -> Matrix:
        return floors.first_learner(n_live)

    def _make_work(self, n_live: int) -> Matrix:
        return floors.make_work(n_live, self.settings["pull_floor"], self.settings["horizon"], KINDS[self.feedback])

    def _check_memory(self) -> None:
        weights, held = self.settings["context_weights"], self._memory.learners[:, P, WEIGHT]
        if weights is not None and not np.allclose(held, weights, rtol=1e-5, atol=0.0):
            raise validate.Refusal(
                "state.arrays['learners']", f"of weights {weights}", held, "The snapshot is damaged."
            )

    def _least_propensity(self, context: int) -> float:
        return floors.LEAST_PROPENSITY

    def _check_room(self, n_live: int) -> None:
        if self.settings["pull_floor"] * n_live >= 1.0:
            most = math.ceil(1.0 / self.settings["pull_floor"]) - 1
            repair = "Retire an arm first, or start anew with a lower pull_floor."
            raise validate.Refusal("n_arms", f"at most {most} live arms with this pull_floor", n_live, repair)

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        weights = self.settings["context_weights"]
        if weights is None:
            return self.settings
        return {**self.settings, "context_weights": weights + [0.0] * (n_contexts - len(weights))}

    @property
    def distributions(self) -> Matrix:
        """P: the distribution of every context (n_contexts, n_arms)."""
        with self._lock:
            return self._memory.per_arm(self._memory.learners[:, P, ARMS:])

    @property
    def marginals(self) -> Vector:
        """How often each arm is pulled overall, under the weights in force: at least the floor in force."""
        with self._lock:
            weights, learners = self._memory.learners[:, P, WEIGHT], self._memory.learners[:, P, ARMS:]
            return self._memory.per_arm(weights @ learners)


def _summing_to_one(weights: Vector) -> Vector:
    """Weights divided by their sum where it is 1 but for more than rounding: all floors together may need all of it."""
    total = weights.sum()
    return weights / total if abs(total - 1.0) > 1e-12 else weights
