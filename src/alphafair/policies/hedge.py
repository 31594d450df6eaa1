"""Exponential weights."""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.kernels import Kernels, exponential_weights
from alphafair.policies.base import BasePolicy
from alphafair.types import Feedback, Matrix


class Hedge(BasePolicy):
    """Maximise the sum of rewards, seeing all of them; blind to contexts and to fairness.

    $p_i \\propto \\exp(\\eta \\sum_t r_i(t))$, kept as logarithms. With a known horizon T,
    $\\eta = \\sqrt{8 \\ln n / T}$ has regret at most $\\sqrt{T \\ln n / 2}$; without one, round t uses
    $\\eta_t = \\sqrt{8 \\ln n / t}$.

    Parameters
    ----------
    n_contexts, n_arms
        How many of each; contexts are accepted and ignored.
    horizon
        Number of rounds, if it is known.
    learning_rate
        Instead of a horizon; the paper's experiments use $\\sqrt{\\ln n / T}$.
    seed
        For `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import Hedge
    >>> policy = Hedge(n_contexts=1, n_arms=3, horizon=6, seed=0)
    >>> policy.update(policy.choose(0), [1.0, 0.2, 0.6])
    >>> policy.probabilities(0).round(6).tolist()
    [0.501004, 0.190257, 0.308739]

    References
    ----------
    Freund and Schapire, 1997; Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, sections 2.2-2.3.
    """

    name: ClassVar[str] = "hedge"
    feedback = Feedback.FULL
    look = ("#D55E00", "D")
    kernels = Kernels(exponential_weights.draw, exponential_weights.learn, exponential_weights.change_arms)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        horizon: int | None = None,
        learning_rate: float | None = None,
        seed: int | None = None,
    ) -> None:
        n_contexts, n_arms = self._sizes(n_contexts, n_arms)
        if horizon is not None and learning_rate is not None:
            raise validate.Refusal("learning_rate", "None when horizon is given", learning_rate, "Give one of the two.")
        if horizon is not None:
            horizon = validate.horizon(horizon)
        if learning_rate is not None:
            learning_rate = validate.number("learning_rate", learning_rate, low=0.0, high=math.inf, low_open=True)
        settings = {"horizon": horizon, "learning_rate": learning_rate}
        super().__init__(n_contexts, n_arms, seed, settings, exponential_weights.first_shared(n_arms))

    @classmethod
    def variants(cls, n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
        return {"": {}, "horizon": {"horizon": 1000}}

    def _make_work(self, n_live: int) -> Matrix:
        rate, horizon = self.settings["learning_rate"] or 0.0, self.settings["horizon"] or 0.0
        return exponential_weights.make_work(n_live, rate, horizon)
