"""alpha-FairCB with bandit feedback: one scale-free learner per context, one shared account R.

Round t, context c, arm I drawn, reward r:   feed learner c the loss -phi'(R_I) r ;   R_I += r

The sign matters: fed the gain itself as a loss, a learner runs toward the worst arm.

    shared:    TOTAL, R of every arm, or R_G/s_G of its group (see `groups`)
    learners:  see `log_barrier`
"""

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels import log_barrier
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.groups import LEAST_UNPROMISED, UNPROMISED, earn_one, keep_floors, least_drawn
from alphafair.kernels.log_barrier import ADAPTIVE, MOST_ARMS, V, W, absorb, explore, least_propensity
from alphafair.kernels.memory import ARMS, SETTINGS, blank, blank_work, rearranged
from alphafair.kernels.utility import marginal_utility

TOTAL = 0
ALPHA = 1  # among the settings, after MOST_ARMS


def make_work(n_arms: int, most_arms: int, alpha: float) -> np.ndarray:
    work = blank_work(2, n_arms, most_arms, alpha)
    work[SETTINGS, [UNPROMISED, LEAST_UNPROMISED]] = 1.0
    return work


def first_shared(n_arms: int) -> np.ndarray:
    """R = 1 for every arm."""
    shared = blank(1, n_arms)
    shared[TOTAL, ARMS:] = 1.0
    return shared[None]


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    arm, propensity = explore(learners, context, uniform, out)
    if keep_floors(work, out):
        arm = draw_arm(out, uniform)
        propensity = out[arm]
    return arm, propensity


@kernel
def learn(work, shared, learners, context, arm, propensity, reward):
    """Feed the context's learner the loss -phi'(R) r, then earn r; False if no such propensity was ever drawn from."""
    settings, total = work[SETTINGS], shared[0, TOTAL, ARMS:]
    n = total.shape[0]
    least = least_propensity(learners, context, settings[MOST_ARMS], ADAPTIVE)
    if propensity < least_drawn(work, arm, least) * (1.0 - 1e-9):
        return False
    gain = marginal_utility(total[arm], settings[ALPHA]) * reward
    absorb(learners, context, arm, propensity, -gain, ADAPTIVE, work[V, :n], work[W, :n])
    earn_one(work, shared, TOTAL, arm, reward)
    return True


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an account and, in every context, with an equal share of the probability."""
    shared = rearranged(shared, kept, len(entries))
    total = shared[0, TOTAL, ARMS:]
    total[len(kept) :] = np.where(np.isnan(entries), total[: len(kept)].min(), entries)
    return shared, log_barrier.change_arms(learners, kept, len(entries), ADAPTIVE)
