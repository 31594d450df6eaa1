"""alpha-FairCB with full information as in the code published with the paper: the step adds up norms, not squares.

    S_j += ||g|| ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R += x r

Only for showing what that does; the layout is that of `gradient_ascent`, and phi' is read before the round.
"""

import math

from alphafair.jit import kernel
from alphafair.kernels.simplex import project
from alphafair.kernels.utility import SLOPE, earn


@kernel
def learn(shared, learners, context, probabilities, rewards):
    """Take the ascent step along g = phi'(R) r, then earn x r."""
    n = rewards.shape[0]
    step = shared[0, 0, :n]
    squared_norm = 0.0
    for i in range(n):
        step[i] = shared[0, SLOPE, i] * rewards[i]
        squared_norm += step[i] * step[i]
    if squared_norm > 0.0:
        learners[context, 0, n] += math.sqrt(squared_norm)
        step_size = 1.0 / math.sqrt(learners[context, 0, n])
        for i in range(n):
            step[i] = learners[context, 0, i] + step_size * step[i]
        project(step, learners[context, 0, :n])
    earn(shared, 0, probabilities, rewards)
