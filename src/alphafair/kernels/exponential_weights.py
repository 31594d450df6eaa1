"""Hedge: p_i proportional to exp(eta G_i), G the sum of rewards, in the log domain so that nothing overflows.

eta is fixed (for a known horizon T: sqrt(8 ln n/T)) or sqrt(8 ln n/t) in round t.

    shared:  SUM (G), head ROUNDS
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.memory import ARMS, SETTINGS, blank, blank_work, rearranged

SUM = 0
ROUNDS = 0  # head of SUM
RATE, HORIZON = 0, 1  # among the settings, each 0 if it is not given


def make_work(n_arms: int, rate: float, horizon: float) -> np.ndarray:
    return blank_work(0, n_arms, rate, horizon)


def first_shared(n_arms: int) -> np.ndarray:
    """No reward seen."""
    return blank(1, n_arms)[None]


@kernel
def learning_rate(settings, rounds, n):
    """As given, for the horizon, or for the round that comes."""
    if settings[RATE] > 0.0:
        return settings[RATE]
    horizon = settings[HORIZON] if settings[HORIZON] > 0.0 else rounds + 1.0
    return math.sqrt(8.0 * math.log(n) / horizon)


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write exp(eta (G - max G)), normalised, to `out` and draw an arm from it."""
    n = out.shape[0]
    total = shared[0, SUM, ARMS:]
    eta = learning_rate(work[SETTINGS], shared[0, SUM, ROUNDS], n)
    largest = total[0]
    for i in range(1, n):
        largest = max(largest, total[i])
    normaliser = 0.0
    for i in range(n):
        out[i] = math.exp(eta * (total[i] - largest))
        normaliser += out[i]
    for i in range(n):
        out[i] /= normaliser
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(work, shared, learners, context, probabilities, rewards):
    """G += r."""
    head, total = shared[0, SUM, :ARMS], shared[0, SUM, ARMS:]
    for i in range(rewards.shape[0]):
        total[i] += rewards[i]
    head[ROUNDS] += 1.0


def equal_share(scores: np.ndarray, rate: float) -> float:
    """The score at which a new arm has the mean weight of the others, exp(rate score): an equal share for it."""
    if rate == 0.0:
        return float(scores.mean())
    largest = scores.max()
    return float(largest + math.log(np.exp(rate * (scores - largest)).mean()) / rate)


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an equal share of the probability."""
    shared = rearranged(shared, kept, len(entries))
    total = shared[0, SUM, ARMS:]
    rate = learning_rate(work[SETTINGS], shared[0, SUM, ROUNDS], len(total))
    total[len(kept) :] = equal_share(total[: len(kept)], rate)
    return shared, learners
