"""The scale-free bandit on its own, blind to contexts: one learner, fed the loss -r, rewards of any size.

shared (2, 2, n + 3):  the learner (see `log_barrier`);  then scratch, column n: option
"""

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.log_barrier import absorb, explore, first_learner


def first_shared(n_arms: int, option: int) -> np.ndarray:
    """One learner that has seen nothing."""
    shared = np.stack([first_learner(n_arms), np.zeros((2, n_arms + 3))])
    shared[1, 0, n_arms] = option
    return shared


@kernel
def draw(shared, learners, context, uniform, out):
    """Write the learner's distribution to `out` and draw an arm from it."""
    return explore(shared, 0, uniform, out)


@kernel
def learn(shared, learners, context, arm, propensity, reward):
    """Feed the learner the loss -r."""
    n = shared.shape[2] - 3
    absorb(shared, 0, arm, propensity, -reward, shared[1, 0, n], shared[1, 0, :n], shared[1, 1, :n])
