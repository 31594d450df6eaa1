"""Nash confidence bound: fair to rounds, by exploration that ends when some arm has earned enough.

L = ln T ;   uniform play in a context until S_ji > explore c^2 L for one of its arms
then the largest m_ji + 2 c sqrt(2 m_ji L/n_ji), infinite where n_ji = 0
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.jit import kernel
from alphafair.notions._counts import C, K, add_reward, draw_largest
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("c", "explore", "log_horizon")


@kernel
def draw(memory, context, uniform, out):
    """Draw any arm while the context explores, and then the one of the largest bound."""
    rows, c, log_horizon = memory.contexts[context], memory.settings[S.c], memory.settings[S.log_horizon]
    most = 0.0
    for i in range(out.shape[0]):
        most = max(most, rows[C.sums, i])
    if most > memory.settings[S.explore] * c * c * log_horizon:
        for i in range(out.shape[0]):
            n = rows[C.counts, i]
            mean = rows[C.sums, i] / max(1.0, n)
            out[i] = mean + 2.0 * c * math.sqrt(2.0 * mean * log_horizon / n) if n > 0.0 else math.inf
    else:
        for i in range(out.shape[0]):
            out[i] = 1.0
    return draw_largest(out, uniform)


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to the mean of its arm."""
    add_reward(memory, context, arm, reward)
    return True


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name: with the constants of the proof it plays uniformly in all of them."""
    return {"": {"horizon": 20_000, "c": 0.1}}


class NashConfidenceBound(BasePolicy):
    """Be fair to the rounds, that is to visitors: sacrifice no early one to exploration.

    The promise is a Nash regret $\\mu^* - (\\prod_t E \\mu_{I_t})^{1/T} = O(\\sqrt{N \\ln T/T})$: the geometric mean
    over rounds in place of the arithmetic one. What is treated fairly are rounds, not arms.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    horizon
        The expected number of rounds T.
    c, explore
        The constants of the bound and of the end of exploration, above 0 and at most 100, and at least 0. The defaults
        are those of the proof.
    seed
        Seed of `choose` without `rng`.

    Notes ----- With the published constants exploration ends when an arm has earned 3,780 ln T in its context, 37,400
    at T = 20,000: it is uniform play there. c = 0.1 lowers that to 42, without the proof, and is uniform play too where
    no arm earns as much in a context. The paper has no contexts; here each has its own means. An arm that earned 0 in
    all its pulls has the bound 0 and does not return; an arm that is added later is played first. Late rewards only
    delay what is learned, and a mask is renormalized. After exploration arms are drawn with probability 1: the log of
    this policy cannot be used to evaluate others.

    Examples
    --------
    >>> from alphafair.notions import NashConfidenceBound
    >>> policy = NashConfidenceBound(1, 2, horizon=1000, c=0.1, seed=0)
    >>> for _ in range(200):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 0.9 if decision.arm == 1 else 0.1)
    >>> policy.probabilities(0).tolist()
    [0.0, 1.0]

    References
    ----------
    Barman, Khan, Maiti and Sawarni, Fairness and Welfare Quantification for Regret in Multi-Armed Bandits, AAAI 2023;
    for single runs and the constants, Ghosh, arXiv 2610.07737.
    """

    name: ClassVar[str] = "nash-confidence-bound"
    feedback = Feedback.BANDIT
    traits = Traits(variants=variants)
    algorithm = Algorithm(Layout(settings=S, context_scalars=K, contexts=C), draw, learn)

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        horizon: int,
        c: float = 3.0,
        explore: float = 420.0,
        seed: int | None = None,
    ) -> None:
        settings = {
            "horizon": validate.horizon(horizon),
            "c": validate.number("c", c, low=0.0, high=100.0, low_open=True),
            "explore": validate.number("explore", explore, low=0.0, high=float("inf")),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        constants = {"c": self.settings["c"], "explore": self.settings["explore"]}
        return {**constants, "log_horizon": math.log(self.settings["horizon"])}
