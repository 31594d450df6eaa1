"""alpha-FairCB with full information as in the code published with the paper: the step adds up norms, not squares.

    S_j += ||g|| ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R += x r

Only for showing what that does; the layout is that of `gradient_ascent`, and phi' is read before the round.
"""

import math

from alphafair.jit import kernel
from alphafair.kernels.gradient_ascent import SQUARED_NORMS, STEP, X
from alphafair.kernels.memory import ARMS, SETTINGS
from alphafair.kernels.simplex import project
from alphafair.kernels.utility import SLOPE, earn


@kernel
def learn(work, shared, learners, context, probabilities, rewards):
    """Take the ascent step along g = phi'(R) r, then earn x r."""
    n = rewards.shape[0]
    head, x = learners[context, X, :ARMS], learners[context, X, ARMS:]
    slope, step = shared[0, SLOPE, ARMS:], work[STEP, :n]
    squared_norm = 0.0
    for i in range(n):
        step[i] = slope[i] * rewards[i]
        squared_norm += step[i] * step[i]
    if squared_norm > 0.0:
        head[SQUARED_NORMS] += math.sqrt(squared_norm)  # the slip: the norm itself
        step_size = 1.0 / math.sqrt(head[SQUARED_NORMS])
        for i in range(n):
            step[i] = x[i] + step_size * step[i]
        project(step, x)
    earn(shared, 0, 0, work[SETTINGS], probabilities, rewards)
