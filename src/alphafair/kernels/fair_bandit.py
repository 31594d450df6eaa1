"""alpha-FairCB with bandit feedback: one scale-free learner a context, one shared account R.

Round t, context c, arm I drawn, reward r:   feed learner c the loss -phi'(R_I) r ;   R_I += r

The sign matters: fed the gain itself as a loss, a learner runs toward the worst arm.

    shared (1, 3, n + 2):    R, column n: alpha;   scratch, twice
    learners (M, 2, n + 3):  see `log_barrier`
"""

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.log_barrier import ADAPTIVE, absorb, explore
from alphafair.kernels.utility import marginal_utility


def first_shared(n_arms: int, alpha: float) -> np.ndarray:
    """R = 1 for every arm."""
    shared = np.ones((1, 3, n_arms + 2))
    shared[0, 0, n_arms] = alpha
    return shared


@kernel
def draw(shared, learners, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    return explore(learners, context, uniform, out)


@kernel
def learn(shared, learners, context, arm, propensity, reward):
    """Feed the context's learner the loss -phi'(R) r, then earn r."""
    n = shared.shape[2] - 2
    gain = marginal_utility(shared[0, 0, arm], shared[0, 0, n]) * reward
    absorb(learners, context, arm, propensity, -gain, ADAPTIVE, shared[0, 1, :n], shared[0, 2, :n])
    shared[0, 0, arm] += reward
