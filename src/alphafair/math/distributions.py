"""Distributions over arms: drawing, masking, checking, and the share of a new arm."""

import math

import numpy as np

from alphafair.jit import kernel

TIE = 1e-12  # relative difference up to which scores are equal


@kernel
def draw_arm(probabilities, uniform):
    """First arm whose cumulative probability exceeds the uniform; never an arm of probability 0.

    If the probabilities are not a distribution, the returned arm has probability 0 or NaN, which callers check.
    """
    cumulative = 0.0
    for i in range(probabilities.shape[0]):
        cumulative += probabilities[i]
        if uniform < cumulative:
            return i
    arm = probabilities.shape[0] - 1  # rounding: the sum is below the uniform
    while arm > 0 and probabilities[arm] == 0.0:
        arm -= 1
    if math.isnan(cumulative):
        arm = 0
        while not math.isnan(probabilities[arm]) and arm < probabilities.shape[0] - 1:
            arm += 1
    return arm


@kernel
def draw_from(x, uniform, out):
    """Copy the distribution x to `out`, and draw an arm: return it and its probability."""
    for i in range(out.shape[0]):
        out[i] = x[i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def mask_distribution(probabilities, available):
    """Renormalize over the available arms, in place; uniform over them if they hold no probability."""
    total = 0.0
    n_available = 0
    for i in range(probabilities.shape[0]):
        if available[i]:
            total += probabilities[i]
            n_available += 1
    for i in range(probabilities.shape[0]):
        if not available[i]:
            probabilities[i] = 0.0
        elif total == 0.0:
            probabilities[i] = 1.0 / n_available
        else:
            probabilities[i] /= total


@kernel
def mask_alone(memory, probabilities, available, uniform):
    """The default mask of policies: renormalize over the available arms, in place, and draw one of them."""
    mask_distribution(probabilities, available)
    arm = draw_arm(probabilities, uniform)
    return arm, probabilities[arm]


@kernel
def play_largest(scores, share):
    """Replace scores by a distribution: `share` on the arms of the largest score, equally, the rest on all arms."""
    n, best, ties = scores.shape[0], scores[0], 0.0
    for i in range(n):
        best = max(best, scores[i])
    least = best - TIE * abs(best) if best < math.inf else best
    for i in range(n):
        ties += 1.0 if scores[i] >= least else 0.0
    for i in range(n):
        largest = share / ties if scores[i] >= least else 0.0
        scores[i] = largest + (1.0 - share) / n


@kernel
def all_within(vector, low, high):
    """Whether every entry is in [low, high]; NaN is not."""
    for i in range(vector.shape[0]):
        if not low <= vector[i] <= high:
            return False
    return True


@kernel
def is_distribution(vector):
    """Whether the entries are in [0, 1] and sum to 1, up to 1e-6."""
    total = 0.0
    for i in range(vector.shape[0]):
        if not 0.0 <= vector[i] <= 1.0:
            return False
        total += vector[i]
    return abs(total - 1.0) <= 1e-6


def equal_share(scores: np.ndarray, rate: float) -> float:
    """Return the score that gives a new arm the mean weight exp(rate score) of the others: an equal share."""
    if rate == 0.0:
        return float(scores.mean())
    largest = scores.max()
    return float(largest + math.log(np.exp(rate * (scores - largest)).mean()) / rate)
