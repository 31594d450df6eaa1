"""What rivals share that score arms by R^-alpha times an estimate of their reward.

Weights are relative to the poorest account, w_i = (R_i/min R)^-alpha, which changes no choice and keeps them in range
at every alpha; infinity is played as 16. Means of the rewards of arm i in context j are drawn towards those of the arm,
and these towards the mean reward, with k the strength of the prior:

    M = (sum of all rewards)/(their number) ;   M_i = (S_i + M)/(n_i + 1) ;   m_ji = (S_ji + k M_i)/(n_ji + k)

    R `total` · S_i `arm_sums`, n_i `arm_counts` · S_ji `sums`, n_ji `counts`
"""

from typing import Any

from alphafair.jit import kernel
from alphafair.math.capped import favorites
from alphafair.math.distributions import play_largest as play_largest
from alphafair.math.utility import entry_accounts, marginal_utility
from alphafair.values.arrays import Vector, positions

N = positions("reward_sum", "seen")
A = positions("total", "arm_sums", "arm_counts")
C = positions("sums", "counts")
T = positions("weights", "means")


@kernel
def weigh(total, alpha, weights):
    """w = (R/min R)^-alpha."""
    poorest = total[0]
    for i in range(1, total.shape[0]):
        poorest = min(poorest, total[i])
    for i in range(total.shape[0]):
        weights[i] = marginal_utility(total[i] / poorest, alpha)


@kernel
def estimate(memory, context, prior, means):
    """Write m of every arm in the context to `means`: 0 before the first reward."""
    numbers, arms, rows = memory.scalars, memory.arms, memory.contexts[context]
    overall = numbers[N.reward_sum] / numbers[N.seen] if numbers[N.seen] > 0.0 else 0.0
    for i in range(means.shape[0]):
        of_arm = (arms[A.arm_sums, i] + overall) / (arms[A.arm_counts, i] + 1.0)
        means[i] = (rows[C.sums, i] + prior * of_arm) / (rows[C.counts, i] + prior)


@kernel
def learn(memory, context, arm, propensity, reward):
    """Add the reward to all sums, and to the account of its arm."""
    memory.scalars[N.reward_sum] += reward
    memory.scalars[N.seen] += 1.0
    memory.arms[A.total, arm] += reward
    memory.arms[A.arm_sums, arm] += reward
    memory.arms[A.arm_counts, arm] += 1.0
    memory.contexts[context, C.sums, arm] += reward
    memory.contexts[context, C.counts, arm] += 1.0
    return True


@kernel
def learn_slate(memory, context, k, arms, propensities, rewards, first):
    """Learn from every reward."""
    for a in range(arms.shape[0]):
        learn(memory, context, arms[a], propensities[a], rewards[a])
    return True


@kernel
def show_largest(scores, k, share, work):
    """Replace scores by probabilities to be in a slate: `share` of it is the k largest, the rest any k arms.

    Arms that tie for the last places share them equally.
    """
    n = scores.shape[0]
    favorites(scores, 1.0 / k, work)
    for i in range(n):
        scores[i] = share * min(1.0, k * scores[i]) + (1.0 - share) * k / n


def start(memory: Any) -> None:
    """Set R = 1 for every arm. The account is the first row of every rival."""
    memory.arms[A.total] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an account and empty sums."""
    total = memory.arms[A.total]
    total[n_kept:] = entry_accounts(total[:n_kept], entries)
