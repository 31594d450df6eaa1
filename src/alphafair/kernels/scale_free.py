"""The scale-free bandit on its own, blind to contexts: one learner, fed the loss -r, rewards of any size.

shared:  the learner, see `log_barrier`
"""

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels import log_barrier
from alphafair.kernels.log_barrier import MOST_ARMS, V, W, absorb, explore, is_possible
from alphafair.kernels.memory import ARMS, SETTINGS, blank_work

OPTION = 1  # among the settings, after MOST_ARMS


def make_work(n_arms: int, most_arms: int, option: int) -> np.ndarray:
    return blank_work(2, n_arms, most_arms, option)


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write the learner's distribution to `out` and draw an arm from it."""
    return explore(shared, 0, uniform, out)


@kernel
def learn(work, shared, learners, context, arm, propensity, reward):
    """Feed the learner the loss -r; False if no such propensity was ever drawn from."""
    settings = work[SETTINGS]
    n = shared.shape[2] - ARMS
    if not is_possible(shared, 0, propensity, settings[MOST_ARMS], settings[OPTION]):
        return False
    absorb(shared, 0, arm, propensity, -reward, settings[OPTION], work[V, :n], work[W, :n])
    return True


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an equal share of the probability."""
    return log_barrier.change_arms(shared, kept, len(entries), int(work[SETTINGS, OPTION])), learners
