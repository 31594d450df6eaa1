"""An optimistic Frank-Wolfe index: the largest upper confidence bound, weighed by the slope of the arm's account.

Round t, context c:   play argmax_i  R_i^(-alpha) U_ci ,   L = ln t, m the mean of the n rewards of arm i in context c,

    U = min( 1,  m + sqrt(L/2n),  m + L/n + sqrt((L/n)^2 + 2 m L/n) ),   1 where n = 0.

Both bounds are Chernoff's, n kl(m, U) = L solved with kl(m, u) >= 2 (u - m)^2 and kl(m, u) >= (u - m)^2/2u: the first
is the shorter for means in the middle, the second for rewards that are rare. Arms that tie share the round.

    shared:    TOTAL, R of every arm; its head ROUNDS
    learners:  COUNT and SUM of the rewards of every arm
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.memory import ARMS, SETTINGS, blank, blank_work, rearranged
from alphafair.kernels.utility import marginal_utility

TOTAL, ROUNDS = 0, 0
COUNT, SUM = 0, 1
ALPHA = 0  # among the settings
TIE = 1e-12


def make_work(n_arms: int, alpha: float) -> np.ndarray:
    return blank_work(0, n_arms, alpha)


def first_shared(n_arms: int) -> np.ndarray:
    """R = 1 for every arm."""
    shared = blank(1, n_arms)
    shared[TOTAL, ARMS:] = 1.0
    return shared[None]


@kernel
def upper_bound(count, total, log_rounds):
    """U of one arm."""
    if count == 0.0:
        return 1.0
    mean, width = total / count, log_rounds / count
    short = min(math.sqrt(0.5 * width), width + math.sqrt(width * width + 2.0 * mean * width))
    return min(1.0, mean + short)


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Share 1 among the arms of the largest index."""
    total, head = shared[0, TOTAL, ARMS:], shared[0, TOTAL]
    count, earned = learners[context, COUNT, ARMS:], learners[context, SUM, ARMS:]
    log_rounds, best = math.log(head[ROUNDS] + 1.0), 0.0
    for i in range(out.shape[0]):
        weight = marginal_utility(total[i], work[SETTINGS, ALPHA])
        out[i] = weight * upper_bound(count[i], earned[i], log_rounds)
        best = max(best, out[i])
    n_best = 0
    for i in range(out.shape[0]):
        n_best += 1 if out[i] >= (1.0 - TIE) * best else 0
    for i in range(out.shape[0]):
        out[i] = 1.0 / n_best if out[i] >= (1.0 - TIE) * best else 0.0
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(work, shared, learners, context, arm, propensity, reward):
    """Count the reward, for the context and for the account."""
    shared[0, TOTAL, ROUNDS] += 1.0
    shared[0, TOTAL, ARMS + arm] += reward
    learners[context, COUNT, ARMS + arm] += 1.0
    learners[context, SUM, ARMS + arm] += reward
    return True


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an account, and nothing known of them."""
    shared = rearranged(shared, kept, len(entries))
    total = shared[0, TOTAL, ARMS:]
    total[len(kept) :] = np.where(np.isnan(entries), total[: len(kept)].min(), entries)
    return shared, rearranged(learners, kept, len(entries))
