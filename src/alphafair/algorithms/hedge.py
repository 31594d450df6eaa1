"""Hedge: p_i proportional to exp(eta G_i), G the sum of rewards, in the log domain so that nothing overflows.

eta is fixed, or sqrt(8 ln n/T) for a known horizon T, or sqrt(8 ln n/t) in round t.

    G `reward_sums` · t - 1 `rounds` · eta `learning_rate` · T `horizon`
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm, equal_share
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

S = positions("learning_rate", "horizon")  # each 0 if it is not given
N = positions("rounds")
A = positions("reward_sums")


@kernel
def current_rate(settings, rounds, n):
    """Return the given rate, or the rate for the horizon, or for the next round."""
    if settings[S.learning_rate] > 0.0:
        return settings[S.learning_rate]
    horizon = settings[S.horizon] if settings[S.horizon] > 0.0 else rounds + 1.0
    return math.sqrt(8.0 * math.log(n) / horizon)


@kernel
def draw(memory, context, uniform, out):
    """Write exp(eta (G - max G)), normalized, to `out` and draw an arm from it."""
    n = out.shape[0]
    sums = memory.arms[A.reward_sums]
    eta = current_rate(memory.settings, memory.scalars[N.rounds], n)
    largest = sums[0]
    for i in range(1, n):
        largest = max(largest, sums[i])
    normalizer = 0.0
    for i in range(n):
        out[i] = math.exp(eta * (sums[i] - largest))
        normalizer += out[i]
    for i in range(n):
        out[i] /= normalizer
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, probabilities, rewards):
    """G += r."""
    sums = memory.arms[A.reward_sums]
    for i in range(rewards.shape[0]):
        sums[i] += rewards[i]
    memory.scalars[N.rounds] += 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an equal share of the probability."""
    sums = memory.arms[A.reward_sums]
    rate = current_rate(memory.settings, memory.scalars[N.rounds], len(sums))
    sums[n_kept:] = equal_share(sums[:n_kept], rate)


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "horizon": {"horizon": 1000}}


class Hedge(BasePolicy):
    """Maximize the sum of rewards, with full information; ignores contexts and fairness.

    $p_i \\propto \\exp(\\eta \\sum_t r_i(t))$, kept as logarithms. With a known horizon T,
    $\\eta = \\sqrt{8 \\ln n / T}$ has regret at most $\\sqrt{T \\ln n / 2}$; without one, round t uses
    $\\eta_t = \\sqrt{8 \\ln n / t}$.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; contexts are ignored.
    horizon
        Number of rounds, if known.
    learning_rate
        Instead of a horizon; the paper's experiments use $\\sqrt{\\ln n / T}$.
    seed
        Seed of `choose` without `rng`.

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
    traits = Traits(style=("#D55E00", "D"), variants=variants)
    algorithm = Algorithm(Layout(S, N, A), draw, learn, admit=admit)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        horizon: int | None = None,
        learning_rate: float | None = None,
        seed: int | None = None,
    ) -> None:
        if horizon is not None and learning_rate is not None:
            repair = "Pass one or the other."
            raise InvalidArgument("learning_rate", "None when horizon is given", learning_rate, repair)
        if horizon is not None:
            horizon = validate.horizon(horizon)
        if learning_rate is not None:
            learning_rate = validate.number("learning_rate", learning_rate, low=0.0, high=math.inf, low_open=True)
        settings = {"horizon": horizon, "learning_rate": learning_rate}
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    @property
    def horizon(self) -> int | None:
        """The number of rounds that the learning rate is for."""
        return self.settings["horizon"]

    @property
    def learning_rate(self) -> float | None:
        """The fixed learning rate."""
        return self.settings["learning_rate"]

    def _numbers(self) -> dict[str, Any]:
        return {name: value or 0.0 for name, value in self.settings.items()}
