"""For the arena only: the rival from the stochastic literature, and half of the adaptive policy on its own.

The rival is an optimistic Frank-Wolfe index: round t, context c, play argmax_i R_i^(-alpha) U_ci. With L = ln t and m
the mean of the n rewards of arm i in context c,

    U = min( 1,  m + sqrt(L/2n),  m + L/n + sqrt((L/n)^2 + 2 m L/n) ),   1 where n = 0.

Both bounds are Chernoff's, n kl(m, U) = L solved with kl(m, u) >= 2 (u - m)^2 and kl(m, u) >= (u - m)^2/2u: the first
is the shorter for means in the middle, the second for rewards that are rare. Arms that tie share the round.

    R `total` · t - 1 `rounds` · n `counts`, n m `sums` of a context
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

from alphafair import validate
from alphafair.algorithms import AlphaFairAdaptive, BasePolicy
from alphafair.algorithms.adaptive_bandit import N as OF_ADAPTIVE
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm
from alphafair.math.utility import entry_accounts, marginal_utility
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
    """U of one arm."""
    if count == 0.0:
        return 1.0
    mean, width = total / count, log_rounds / count
    short = min(math.sqrt(0.5 * width), width + math.sqrt(width * width + 2.0 * mean * width))
    return min(1.0, mean + short)


@kernel
def draw(memory, context, uniform, out):
    """Share 1 among the arms of the largest R^(-alpha) U."""
    total, counts, sums = memory.arms[A.total], memory.contexts[context, C.counts], memory.contexts[context, C.sums]
    log_rounds, best = math.log(memory.scalars[N.rounds] + 1.0), 0.0
    for i in range(out.shape[0]):
        weight = marginal_utility(total[i], memory.settings[S.alpha])
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
    """Count the reward, for the context and for the account."""
    memory.scalars[N.rounds] += 1.0
    memory.arms[A.total, arm] += reward
    memory.contexts[context, C.counts, arm] += 1.0
    memory.contexts[context, C.sums, arm] += reward
    return True


def start(memory: Any) -> None:
    """R = 1 for every arm."""
    memory.arms[A.total] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """New arms enter with an account, and nothing known of them."""
    total = memory.arms[A.total]
    total[n_kept:] = entry_accounts(total[:n_kept], entries)


class OptimisticFrankWolfe(BasePolicy):
    """Play the arm of the largest $R_i^{-\\alpha} U_{ji}$, U an upper confidence bound per context and arm.

    Frank and Wolfe's step on the utility of what arms have earned, taken with optimistic estimates of what they pay. It
    assumes that every context pays as it always did: there is no guarantee where that changes. Not in POLICIES.

    References
    ----------
    Agrawal and Devanur, Bandits with Concave Rewards and Convex Knapsacks, EC 2014; Berthet and Perchet, Fast Rates for
    Bandit Optimization with Upper-Confidence Frank-Wolfe, NIPS 2017. The bounds are Chernoff's, see the module.
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
        return {"alpha": self.alpha}


class GuaranteedLearner(AlphaFairAdaptive):
    """`AlphaFairAdaptive` under bandit feedback without its predictor: the guaranteed learner plays every round itself.

    A mixture that finds the predictor behind by 1e100 from the start gives it nothing: q = 1. The learner keeps its
    hints, what the predictor says, since its guarantee is the same with any. Not in POLICIES.
    """

    name: ClassVar[str] = "guaranteed-learner"
    feedback = Feedback.BANDIT
    traits = replace(AlphaFairAdaptive.traits, feedbacks=(Feedback.BANDIT,), style=("#332288", "p"))

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        feedback: Literal["bandit"] = "bandit",
        seed: int | None = None,
    ) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha, feedback=feedback, seed=seed)
        self._memory.scalars[OF_ADAPTIVE.lead] = -1e100
