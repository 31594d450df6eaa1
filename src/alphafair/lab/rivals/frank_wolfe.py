"""A rival from the literature on stochastic bandits: optimistic Frank-Wolfe steps.

In round t and context c it plays argmax_i R_i^(-alpha) U_ci. With L = ln t and m the mean of the
n rewards of arm i in context c,

    U = min( 1,  m + sqrt(L/2n),  m + L/n + sqrt((L/n)^2 + 2 m L/n) ),   1 where n = 0.

From alpha = 1 on R is relative to the poorest account, so that no weight vanishes; infinity is played as 16.

Both are Chernoff bounds, n kl(m, U) = L solved with kl(m, u) >= 2 (u - m)^2 and kl(m, u) >= (u - m)^2/2u: the first
is tighter for means near 1/2, the second for rare rewards. Ties are broken uniformly.

    R `total` · t - 1 `rounds` · n `counts`, n m `sums` of a context
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm
from alphafair.math.utility import entry_accounts, marginal_utility, played_alpha
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

S = positions("alpha")
N = positions("rounds")
A = positions("total")
C = positions("counts", "sums")
TIE = 1e-12


@kernel
def upper_bound(count, total, log_rounds):
    """The upper confidence bound U of one arm."""
    if count == 0.0:
        return 1.0
    mean, width = total / count, log_rounds / count
    short = min(math.sqrt(0.5 * width), width + math.sqrt(width * width + 2.0 * mean * width))
    return min(1.0, mean + short)


@kernel
def draw(memory, context, uniform, out):
    """Draw uniformly from the arms with the largest R^(-alpha) U."""
    total, counts, sums = memory.arms[A.total], memory.contexts[context, C.counts], memory.contexts[context, C.sums]
    log_rounds, best, alpha, unit = math.log(memory.scalars[N.rounds] + 1.0), 0.0, memory.settings[S.alpha], 1.0
    if alpha >= 1.0:
        unit = total[0]
        for i in range(1, out.shape[0]):
            unit = min(unit, total[i])
    for i in range(out.shape[0]):
        weight = marginal_utility(total[i] / unit, alpha)
        out[i] = weight * upper_bound(counts[i], sums[i], log_rounds)
        best = max(best, out[i])
    n_best = 0
    for i in range(out.shape[0]):
        n_best += 1 if out[i] >= (1.0 - TIE) * best else 0
    for i in range(out.shape[0]):
        out[i] = 1.0 / n_best if out[i] >= (1.0 - TIE) * best else 0.0
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to the statistics of its context and to the account of its arm."""
    memory.scalars[N.rounds] += 1.0
    memory.arms[A.total, arm] += reward
    memory.contexts[context, C.counts, arm] += 1.0
    memory.contexts[context, C.sums, arm] += reward
    return True


def start(memory: Any) -> None:
    """Set R = 1 for every arm."""
    memory.arms[A.total] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an account and empty statistics."""
    total = memory.arms[A.total]
    total[n_kept:] = entry_accounts(total[:n_kept], entries)


class OptimisticFrankWolfe(BasePolicy):
    """Play the arm of the largest $R_i^{-\\alpha} U_{ji}$, U an upper confidence bound per context and arm.

    A Frank-Wolfe step on the utility of the accounts, with optimistic estimates of the arms' mean rewards. It assumes
    that the means of a context do not change, and has no guarantee where they do.

    References
    ----------
    Agrawal and Devanur, Bandits with Concave Rewards and Convex Knapsacks, EC 2014; Berthet and Perchet, Fast Rates for
    Bandit Optimization with Upper-Confidence Frank-Wolfe, NIPS 2017. The bounds are in the module docstring.
    """

    name: ClassVar[str] = "optimistic-frank-wolfe"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(style=("#117733", "D"))
    algorithm = Algorithm(Layout(S, N, A, contexts=C), draw, learn, start, admit=admit, accounts="total")

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        self.alpha = validate.alpha(alpha)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha}, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {"alpha": played_alpha(self.alpha)}
