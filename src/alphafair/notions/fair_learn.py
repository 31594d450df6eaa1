"""Fair-Learn: every arm has its share of the pulls at every time, the rest goes to UCB1.

D_i = r_i t - N_i ;   max D > tolerance: play the largest D ;   else: play the largest UCB1 of the context

UCB1 = m_ji + width sqrt(ln t_j/n_ji), infinite where n_ji = 0; ties are broken uniformly
"""

from typing import Any, ClassVar

from alphafair import validate
from alphafair.jit import kernel
from alphafair.notions import _pulls
from alphafair.notions._counts import (
    C,
    K,
    PerArm,
    PerArmPolicy,
    add_reward,
    default_share,
    draw_largest,
    per_arm,
    refuse_too_many,
    upper_bounds,
)
from alphafair.notions._pulls import A, N, behind, count_learned, expect, forgo
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("tolerance", "width")
SQRT_2 = 2.0**0.5


@kernel
def draw(memory, context, uniform, out):
    """Draw the arm that is furthest behind, or else the one with the largest bound."""
    if behind(memory, out) <= memory.settings[S.tolerance]:
        visits = memory.context_scalars[context, K.visits]
        upper_bounds(memory.contexts[context], visits, memory.settings[S.width], out)
    return draw_largest(out, uniform)


@kernel
def learn(memory, context, arm, propensity, reward):
    """Count the pull, unless it is counted already, and add the reward."""
    count_learned(memory, arm)
    add_reward(memory, context, arm, reward)
    return True


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "tolerant": {"shares": 0.25 / n_arms, "tolerance": 3.0, "width": 0.1}}


class FairLearn(PerArmPolicy):
    """Guarantee every arm a share of the pulls, at every time: Fair-Learn around UCB1.

    The promise is $\\lfloor r_i t \\rfloor - N_i(t) \\le$ `tolerance` for every arm and every round t, whatever the
    rewards are, with $N_i$ the pulls of arm i so far. With $D_i = r_i t - N_i$, a round in which $\\max D$ exceeds the
    tolerance goes to the arm of the largest $D_i$, every other one to the arm of the largest
    $m_{ji} + w \\sqrt{\\ln t_j / n_{ji}}$ of the context (UCB1 for $w = \\sqrt 2$).

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    shares
        The promised shares of the pulls, in [0, 1/n_arms): one number, a list with one per arm, or a mapping from arm
        to share, in which others have 0. Default: half an equal share. Arms that are added later have the one number,
        the share that a mapping names, or 0, counted from their entry.
    tolerance
        The number of pulls that an arm may be behind, at least 0. It acts as the next integer above.
    width
        w, in [0, 100].
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    The paper has no contexts. Here pulls are counted over all contexts, and each context has its own means. Pulls count
    at `expect`, if rewards come late, and at `update` otherwise; `forgo` takes one back. So the promise holds for
    rewards in order, and for late ones that are expected. A mask can break it for as long as an arm that is owed a
    pull is absent. Most arms are drawn with probability 1: the log of this policy cannot be used to evaluate another.

    Examples
    --------
    >>> from alphafair import simulate, streams
    >>> from alphafair.notions import FairLearn
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=2, n_arms=4)
    >>> trace = simulate(FairLearn(2, 4, shares=0.2), stream, seed=0)
    >>> int(trace.pulls.min())
    400

    References
    ----------
    Patil, Ghalme, Nair and Narahari, Achieving Fairness in the Stochastic Multi-Armed Bandit Problem, JMLR 22, 2021.
    """

    name: ClassVar[str] = "fair-learn"
    feedback = Feedback.BANDIT
    per_arm = "shares"
    row = A.share
    traits = Traits(variants=variants)
    algorithm = Algorithm(Layout(S, N, A, K, C), draw, learn, admit=_pulls.admit, expect=expect, forgo=forgo)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        shares: PerArm | None = None,
        tolerance: float = 0.0,
        width: float = SQRT_2,
        seed: int | None = None,
    ) -> None:
        equal = default_share(n_arms)
        settings = {
            "shares": per_arm("shares", equal if shares is None else shares, n_arms, high=2.0 * equal, high_open=True),
            "tolerance": validate.number("tolerance", tolerance, low=0.0, high=float("inf")),
            "width": validate.number("width", width, low=0.0, high=100.0),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {name: self.settings[name] for name in S._fields}

    def _check_n_live(self, n_live: int) -> None:
        refuse_too_many("shares", self.settings["shares"], n_live, open_end=True)
