"""Hedge: p_i proportional to exp(eta G_i), G the sum of rewards, in the log domain so that nothing overflows.

eta is fixed (for a known horizon T: sqrt(8 ln n/T)) or sqrt(8 ln n/t) in round t.

    shared (1, 1, n + 2):  G, column n: eta (0: anytime), number of rounds learned
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm


def first_shared(n_arms: int, learning_rate: float) -> np.ndarray:
    """No reward seen."""
    shared = np.zeros((1, 1, n_arms + 2))
    shared[0, 0, n_arms] = learning_rate
    return shared


@kernel
def draw(shared, learners, context, uniform, out):
    """Write exp(eta (G - max G)), normalised, to `out` and draw an arm from it."""
    n = out.shape[0]
    eta = shared[0, 0, n]
    if eta == 0.0:
        eta = math.sqrt(8.0 * math.log(n) / (shared[0, 0, n + 1] + 1.0))
    largest = shared[0, 0, 0]
    for i in range(1, n):
        largest = max(largest, shared[0, 0, i])
    total = 0.0
    for i in range(n):
        out[i] = math.exp(eta * (shared[0, 0, i] - largest))
        total += out[i]
    for i in range(n):
        out[i] /= total
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(shared, learners, context, probabilities, rewards):
    """G += r."""
    n = rewards.shape[0]
    for i in range(n):
        shared[0, 0, i] += rewards[i]
    shared[0, 0, n + 1] += 1.0
