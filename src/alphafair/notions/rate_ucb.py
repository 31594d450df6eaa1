"""Rate-constrained UCB1: every arm has probability v in every round, the rest goes to UCB1.

p = v + (1 - N v) [largest m_ji + width sqrt(ln t_j/n_ji)]
"""

from typing import Any, ClassVar

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm
from alphafair.notions._counts import C, K, add_reward, default_share, draw_largest, refuse_too_many, upper_bounds
from alphafair.notions.fair_learn import SQRT_2
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("pull_share", "width")


@kernel
def draw(memory, context, uniform, out):
    """Give the share to every arm, and the rest to the arms with the largest bound."""
    n, share = out.shape[0], memory.settings[S.pull_share]
    upper_bounds(memory.contexts[context], memory.context_scalars[context, K.visits], memory.settings[S.width], out)
    draw_largest(out, uniform)
    for i in range(n):
        out[i] = share + max(0.0, 1.0 - n * share) * out[i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to the mean of its arm."""
    add_reward(memory, context, arm, reward)
    return True


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "narrow": {"pull_share": 0.1 / n_arms, "width": 0.1}}


class RateUCB(BasePolicy):
    """Guarantee every arm a probability in every round: rate-constrained UCB1.

    The promise is $p_i \\ge v$ in every round and every context. The rest, $1 - N v$, goes to the arm of the largest
    $m_{ji} + w \\sqrt{\\ln t_j / n_{ji}}$ of the context.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    pull_share
        v, in (0, 1/n_arms). Default: half an equal share.
    width
        w, in [0, 100]; sqrt(2) is UCB1.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    The paper has no contexts; here each has its own UCB1. Its strict variant, a share of the pulls in place of the
    probability, is `FairLearn`. Late rewards change nothing about the promise; a mask is renormalized and can only
    raise a probability. Every propensity is at least v, so the log of this policy can be used to evaluate others.

    Examples
    --------
    >>> from alphafair import simulate, streams
    >>> from alphafair.notions import RateUCB
    >>> policy = RateUCB(2, 4, pull_share=0.125)
    >>> trace = simulate(policy, streams.ratings(n_rounds=2000, n_contexts=2, n_arms=4), seed=0)
    >>> policy.probabilities(0).min()
    np.float64(0.125)

    References
    ----------
    Claure, Chen, Modi, Jung and Nikolaidis, Multi-Armed Bandits with Fairness Constraints for Distributing Resources to
    Human Teammates, HRI 2020.
    """

    name: ClassVar[str] = "rate-ucb"
    feedback = Feedback.BANDIT
    traits = Traits(variants=variants)
    algorithm = Algorithm(Layout(settings=S, context_scalars=K, contexts=C), draw, learn)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        pull_share: float | None = None,
        width: float = SQRT_2,
        seed: int | None = None,
    ) -> None:
        half = default_share(n_arms)
        share = half if pull_share is None else pull_share
        most = 2.0 * half
        settings = {
            "pull_share": validate.number("pull_share", share, low=0.0, high=most, low_open=True, high_open=True),
            "width": validate.number("width", width, low=0.0, high=100.0),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return self.settings

    def _check_n_live(self, n_live: int) -> None:
        refuse_too_many("pull_share", self.settings["pull_share"], n_live, open_end=True)
