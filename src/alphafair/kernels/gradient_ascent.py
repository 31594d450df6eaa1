"""alpha-FairCB with full information: adaptive gradient ascent, one learner a context, one shared account R.

Round t, context j, distribution x used, rewards r, g = phi'(R_*) r:

    S_j += ||g||^2 ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R += x r

The step is D/sqrt(2 S_j) with D = sqrt(2), the diameter of the simplex. R_* is R before the round (what the
lemmas analyse), after it, or as it stands when the context comes again (the paper's pseudo-code to the letter).

    shared (1, 7, n + 2):    scratch | account (rows 1-5, see `utility`) | reading, drift
    learners (M, 1, n + 2):  x, column n: S | for next_visit: the rewards that wait

When contexts are not coupled, each has an account of its own:

    learners (M, 6, n + 2):  x, column n: S | account (rows 1-5)

`drift` adds up <g, x held - x used>: zero while rewards arrive in order and no arm is masked. With it the
regret certificate holds for late and masked decisions as well.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.simplex import settle
from alphafair.kernels.utility import SLOPE, TOTAL, earn, first_account, marginal_utility

BEFORE, NEXT_VISIT, AFTER = 0, 1, 2
SETTINGS = 6


def first_shared(n_arms: int, alpha: float, reading: int) -> np.ndarray:
    """Nothing earned, nothing drifted."""
    shared = np.zeros((1, 7, n_arms + 2))
    shared[0, :6] = first_account(n_arms, alpha)
    shared[0, SETTINGS, 0] = reading
    return shared


def first_learner(n_arms: int, reading: int) -> np.ndarray:
    """Uniform, with no gradient seen and nothing waiting."""
    learner = np.zeros((2 if reading == NEXT_VISIT else 1, n_arms + 2))
    learner[0, :n_arms] = 1.0 / n_arms
    return learner


def first_independent_learner(n_arms: int, alpha: float) -> np.ndarray:
    """Uniform, with an account of its own."""
    learner = first_account(n_arms, alpha)
    learner[0, :n_arms] = 1.0 / n_arms
    return learner


@kernel
def ascend(slopes, k, learners, context, rewards, step, out):
    """Take the step along g = phi'(R) r, phi'(R) from account k; writes the new x to `out` and returns the new S."""
    n = rewards.shape[0]
    count = 0
    for i in range(n):
        step[i] = slopes[k, SLOPE, i] * rewards[i]
        count += 1 if learners[context, 0, i] > 0.0 else 0
    q0 = q1 = s0 = s1 = 0.0  # the sums of g^2, and of g over the support of x, two side by side
    for i in range(0, n - 1, 2):
        g0, g1 = step[i], step[i + 1]
        q0 += g0 * g0
        q1 += g1 * g1
        s0 += g0 if learners[context, 0, i] > 0.0 else 0.0
        s1 += g1 if learners[context, 0, i + 1] > 0.0 else 0.0
    if n % 2 == 1:
        q0 += step[n - 1] * step[n - 1]
        s0 += step[n - 1] if learners[context, 0, n - 1] > 0.0 else 0.0
    squared_norms = learners[context, 0, n] + (q0 + q1)
    if q0 + q1 == 0.0:  # no gradient, no step
        for i in range(n):
            out[i] = learners[context, 0, i]
        return squared_norms
    step_size = 1.0 / math.sqrt(squared_norms)
    for i in range(n):
        step[i] = learners[context, 0, i] + step_size * step[i]
    settle(step, step_size * ((s0 + s1) / count), out)  # theta, if the support of x stays; else below it
    return squared_norms


@kernel
def squared_gradient_norms(shared, learners, out):
    """S_j of every context, the gradient that still waits for the next visit included."""
    n = learners.shape[2] - 2
    step, x = np.empty(n), np.empty(n)
    for context in range(learners.shape[0]):
        out[context] = learners[context, 0, n]
        if shared[0, SETTINGS, 0] == NEXT_VISIT:
            out[context] = ascend(shared, 0, learners, context, learners[context, 1, :n], step, x)


@kernel
def _catch_up(shared, learners, context, out):
    """Write x after the step that has waited for this visit; the learner stays as it is."""
    n = out.shape[0]
    ascend(shared, 0, learners, context, learners[context, 1, :n], np.empty(n), out)


@kernel
def draw(shared, learners, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    n = out.shape[0]
    if shared[0, SETTINGS, 0] == NEXT_VISIT:
        _catch_up(shared, learners, context, out)
    else:
        for i in range(n):
            out[i] = learners[context, 0, i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(shared, learners, context, probabilities, rewards):
    """Earn x r and take the ascent step, with phi' of the time that the reading asks for."""
    n = rewards.shape[0]
    reading = shared[0, SETTINGS, 0]
    step = shared[0, 0, :n]
    if reading == AFTER:
        earn(shared, 0, probabilities, rewards)
    waiting = learners[context, 1, :n] if reading == NEXT_VISIT else rewards
    learners[context, 0, n] = ascend(shared, 0, learners, context, waiting, step, learners[context, 0, :n])
    if reading == NEXT_VISIT:
        for i in range(n):
            learners[context, 1, i] = rewards[i]
    if reading != AFTER:
        earn(shared, 0, probabilities, rewards)


@kernel
def learn_any_time(shared, learners, context, probabilities, rewards):
    """`learn`, for a decision that may be late or masked: first the drift, zero if it is neither."""
    n = rewards.shape[0]
    reading = shared[0, SETTINGS, 0]
    held = np.empty(n)
    draw(shared, learners, context, 0.0, held)
    for i in range(n):
        ahead = held[i] - probabilities[i]
        slope = shared[0, SLOPE, i]
        if reading == AFTER and ahead != 0.0:
            slope = marginal_utility(shared[0, TOTAL, i] + probabilities[i] * rewards[i], shared[0, TOTAL, n])
        if reading == NEXT_VISIT:  # g will be read later and can only be smaller: an upper bound
            ahead = max(ahead, 0.0)
        shared[0, SETTINGS, 1] += slope * rewards[i] * ahead
    learn(shared, learners, context, probabilities, rewards)


@kernel
def learn_independently(shared, learners, context, probabilities, rewards):
    """The same with R of this context alone; shared is scratch."""
    n = rewards.shape[0]
    step = shared[0, 0, :n]
    learners[context, 0, n] = ascend(learners, context, learners, context, rewards, step, learners[context, 0, :n])
    earn(learners, context, probabilities, rewards)
