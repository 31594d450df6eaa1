"""Greedy fairness with kl-UCB: the promised rate of reward for every arm by randomization, the rest to the best bound.

    every arm once ;   m_i = S_i/N_i ;   q_i = lambda_i/max(lambda_i, m_i)
    sum q >= 1: p = q/sum q ;   else p = q + (1 - sum q) [largest max(lambda_i, U_ji)]
    kl(m_ji, U_ji) = 2 ln t_j/n_ji, U = 1 where n_ji = 0

    lambda `reward_rate` · N_i `arm_counts`, S_i `arm_sums`, over all contexts · t_j `visits`, n_ji `counts`, S_ji
    `sums`

Only the largest U matters, and `kl_ceiling` rules out most arms without solving for theirs.
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm, play_largest
from alphafair.math.kl_bound import kl_ceiling, kl_entropy, kl_upper
from alphafair.notions._counts import C as COUNTS
from alphafair.notions._counts import K, PerArm, PerArmPolicy, add_reward, per_arm
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

A = positions("reward_rate", "arm_counts", "arm_sums")
C = positions(COUNTS, "entropy")
T = positions("promised", "ceiling")
SLACK = 1e-9  # of comparisons that rule out arms


@kernel
def promise(arms, promised):
    """Write q to `promised`, and return its sum; for arms without a reward, 1 each, and minus their number."""
    unknown, total = 0.0, 0.0
    for i in range(promised.shape[0]):
        unknown += 1.0 if arms[A.arm_counts, i] == 0.0 else 0.0
    for i in range(promised.shape[0]):
        rate, n = arms[A.reward_rate, i], arms[A.arm_counts, i]
        if unknown > 0.0:
            promised[i] = 1.0 if n == 0.0 else 0.0
        else:
            promised[i] = rate / max(rate, arms[A.arm_sums, i] / n) if rate > 0.0 else 0.0
        total += promised[i]
    return total, unknown > 0.0


@kernel
def largest_bound(rows, visits, rate, ceiling, out):
    """Write max(lambda, U) to `out` for arms that may have the largest one, and -1 for the others.

    U is above b where kl(m, b) = entropy - m ln b - (1 - m) ln(1 - b) is below the level: no logarithm per arm.
    """
    n, log_visits, best, first = out.shape[0], 2.0 * math.log(max(1.0, visits)), 0.0, 0
    for i in range(n):
        count = rows[C.counts, i]
        ceiling[i], out[i] = 1.0, -1.0
        if count > 0.0:
            ceiling[i] = max(rate[i], kl_ceiling(min(1.0, rows[C.sums, i] / count), log_visits / count))
        first = i if ceiling[i] > ceiling[first] else first
        best = max(best, rate[i])
    log_best, log_rest = math.log(max(1e-300, best)), math.log1p(-best * (1.0 - SLACK))
    for k in range(n + 1):  # the highest ceiling first: its bound rules out most of the others
        i = first if k == 0 else k - 1
        if out[i] < 0.0 and ceiling[i] >= best * (1.0 - SLACK):
            count, bound = rows[C.counts, i], 1.0
            if count > 0.0:
                mean, level = min(1.0, rows[C.sums, i] / count), log_visits / count
                relative = rows[C.entropy, i] - mean * log_best - (1.0 - mean) * log_rest
                inside = mean >= best * (1.0 - SLACK) or relative <= level + SLACK
                bound = kl_upper(mean, level) if inside else -1.0
            if bound >= 0.0 or rate[i] >= best * (1.0 - SLACK):
                out[i] = max(rate[i], bound)
            if out[i] > best:
                best = out[i]
                log_best, log_rest = math.log(best), math.log1p(-best * (1.0 - SLACK))


@kernel
def draw(memory, context, uniform, out):
    """Pay what is promised, give the rest to the arms with the largest bound, and draw an arm."""
    n, promised = out.shape[0], memory.scratch[T.promised]
    total, unknown = promise(memory.arms, promised)
    if unknown or total >= 1.0:
        for i in range(n):
            out[i] = promised[i] / total
    else:
        rows, visits = memory.contexts[context], memory.context_scalars[context, K.visits]
        largest_bound(rows, visits, memory.arms[A.reward_rate], memory.scratch[T.ceiling], out)
        play_largest(out, 1.0)
        for i in range(n):
            out[i] = promised[i] + (1.0 - total) * out[i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to the mean of its arm, and to that in the context."""
    memory.arms[A.arm_counts, arm] += 1.0
    memory.arms[A.arm_sums, arm] += reward
    add_reward(memory, context, arm, reward)
    rows = memory.contexts[context]
    mean = min(1.0, rows[C.sums, arm] / rows[C.counts, arm])
    rows[C.entropy, arm] = -kl_entropy(mean)
    return True


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {"rates": 0.05 / n_arms}, "nothing-promised": {"rates": 0.0}}


class GuaranteedRevenue(PerArmPolicy):
    """Promise every arm a rate of reward in stationary worlds, without a horizon: greedy fairness with kl-UCB.

    The promise is $\\sum_t r_i(t) \\ge \\lambda_i T - O(\\sqrt T)$ for every arm, for rates that can be paid and
    rewards with constant means. Arm i has probability $q_i = \\lambda_i/\\max(\\lambda_i, m_i)$, which earns it its
    rate; the rest goes to the arm of the largest kl upper confidence bound of the context.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    rates
        The promised rewards per round, in [0, 1]: one number, a list with one per arm, or a mapping from arm to rate,
        in which others have 0. Arms that are added later have the one number, the rate that a mapping names, or 0.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    The paper has no contexts. Here $m_i$ is the mean of an arm over all contexts, and bounds are those of the context,
    so the promise is paid in every context alike, also where the arm is bad. 2 ln t in the bounds, and the rate under
    them, are those of the public code; Newton's method takes the place of its bisection. Late rewards only delay what
    is learned; until the first rewards, arms without one are played. A mask is renormalized, and an arm that is absent
    is not paid later. Arms with rate 0 are drawn with probability 1 or 0: the log of this policy cannot be used to
    evaluate others.

    Examples
    --------
    >>> from alphafair import simulate, streams
    >>> from alphafair.notions import GuaranteedRevenue
    >>> stream = streams.ratings(n_rounds=5000, n_contexts=2, n_arms=4)
    >>> trace = simulate(GuaranteedRevenue(2, 4, rates=0.1), stream, seed=0)
    >>> int(trace.final.min())  # 500 are promised
    493

    References
    ----------
    Baudry, Merlis, Molina, Richard and Perchet, Multi-Armed Bandits with Guaranteed Revenue per Arm, AISTATS 2024.
    """

    name: ClassVar[str] = "guaranteed-revenue"
    feedback = Feedback.BANDIT
    per_arm = "rates"
    row = A.reward_rate
    traits = Traits(variants=variants, contexts_apart=False)
    algorithm = Algorithm(Layout(arms=A, context_scalars=K, contexts=C, scratch=T), draw, learn)

    def __init__(self, n_contexts: int, n_arms: int, *, rates: PerArm, seed: int | None = None) -> None:
        n_arms = validate.integer("n_arms", n_arms, low=1)
        self.rates = per_arm("rates", rates, n_arms)
        super().__init__(n_contexts, n_arms, settings={"rates": self.rates}, seed=seed)
