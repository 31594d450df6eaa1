"""FairX: exposure in proportion to merit, with the most favorable means inside a confidence box.

    box: |mu - m_ji| <= w0/sqrt(n_ji), within [0, 1] ;   f(mu) = exp(slope mu)
    mu~ = argmax over the box of sum f(mu) mu/sum f(mu) ;   p = f(mu~)/sum f(mu~)

Arms without a reward in the context come first, with equal shares.
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm
from alphafair.math.merit import merits, optimistic_merit
from alphafair.notions._counts import C, K, add_reward
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("slope", "radius")
T = positions("low", "high", "merit_low", "merit_high")


@kernel
def draw(memory, context, uniform, out):
    """Write the shares of merit to `out` and draw an arm."""
    n, rows, settings = out.shape[0], memory.contexts[context], memory.settings
    low, high = memory.scratch[T.low], memory.scratch[T.high]
    merit_low, merit_high = memory.scratch[T.merit_low], memory.scratch[T.merit_high]
    unknown = 0.0
    for i in range(n):
        unknown += 1.0 if rows[C.counts, i] == 0.0 else 0.0
    if unknown > 0.0:
        for i in range(n):
            out[i] = 1.0 / unknown if rows[C.counts, i] == 0.0 else 0.0
    else:
        for i in range(n):
            mean, radius = rows[C.sums, i] / rows[C.counts, i], settings[S.radius] / math.sqrt(rows[C.counts, i])
            low[i], high[i] = min(1.0, max(0.0, mean - radius)), max(0.0, min(1.0, mean + radius))
        merits(low, settings[S.slope], merit_low)
        merits(high, settings[S.slope], merit_high)
        optimistic_merit(low, high, merit_low, merit_high, out)
        total = 0.0
        for i in range(n):
            out[i] = merit_high[i] if out[i] == 1.0 else merit_low[i]
            total += out[i]
        for i in range(n):
            out[i] /= total
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to the mean of its arm."""
    add_reward(memory, context, arm, reward)
    return True


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {"horizon": 20_000}, "narrow": {"width": 0.3, "slope": 8.0}}


class FairX(BasePolicy):
    """Expose arms in proportion to merit: FairX-UCB, with the merit f(mu) = exp(slope mu).

    The promise is $p_i/p_k \\to f(\\mu_i)/f(\\mu_k)$ in every context, with a fairness regret $\\sum_t |p_t - p^*|$ of
    order $\\sqrt T$ up to logarithms for rewards with constant means. Means are known up to a box
    $|\\mu - m| \\le w_0/\\sqrt n$; the policy plays the shares of the means in it that would earn most.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    horizon
        The expected number of rounds T, for the default width.
    slope
        c of the merit exp(c mu), in [0, 100]: 0 is uniform play, a large one greedy.
    width
        $w_0$, in [0, 100]. None: the published $\\sqrt{2 \\ln(4 T N/\\delta)}$, which needs `horizon`.
    delta
        The probability, in (0, 1), with which the published box may miss a mean.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    The paper has no contexts and maximizes over the box by projected gradients; here each context has its own merits,
    and `alphafair.math.merit` has the exact maximum in a few steps. The published width is 5.6 at T = 20,000 and
    N = 10, wider than the differences of means until an arm has hundreds of rewards in a context: play stays near the
    merit of optimistic guesses. A width of 0.3 comes nearer to merit where contexts have thousands of rounds, without
    the theorem. Late rewards only delay what is learned. Merits are positive, so the log of this policy can be used to
    evaluate others, except for the first pull of every arm in a context.

    Examples
    --------
    >>> from alphafair.notions import FairX
    >>> policy = FairX(1, 2, width=0.0, slope=2.0)
    >>> for reward in (0.25, 0.75):
    ...     policy.update(policy.choose(0), reward)
    >>> policy.probabilities(0).max().round(4)  # 1/(1 + exp(-1))
    np.float64(0.7311)

    References
    ----------
    Wang, Bai, Sun and Joachims, Fairness of Exposure in Stochastic Bandits, ICML 2021.
    """

    name: ClassVar[str] = "fairx"
    feedback = Feedback.BANDIT
    traits = Traits(variants=variants)
    algorithm = Algorithm(Layout(settings=S, context_scalars=K, contexts=C, scratch=T), draw, learn)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        horizon: int | None = None,
        slope: float = 4.0,
        width: float | None = None,
        delta: float = 0.1,
        seed: int | None = None,
    ) -> None:
        if horizon is None and width is None:
            repair = "Pass horizon=, the expected number of rounds, or width=, such as 0.3."
            raise InvalidArgument("horizon", "an integer of at least 1 if width is None", horizon, repair)
        settings = {
            "horizon": None if horizon is None else validate.horizon(horizon),
            "slope": validate.number("slope", slope, low=0.0, high=100.0),
            "width": None if width is None else validate.number("width", width, low=0.0, high=100.0),
            "delta": validate.number("delta", delta, low=0.0, high=1.0, low_open=True, high_open=True),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        horizon, radius = self.settings["horizon"], self.settings["width"]
        if radius is None:
            radius = math.sqrt(2.0 * math.log(4.0 * horizon * self.n_arms / self.settings["delta"]))
        return {"slope": self.settings["slope"], "radius": radius}
