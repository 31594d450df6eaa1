"""Exponential weights: what a new arm must be credited with to start with an equal share."""

import math

import numpy as np


def equal_share(scores: np.ndarray, rate: float) -> float:
    """The score at which a new arm has the mean weight of the others, exp(rate score): an equal share for it."""
    if rate == 0.0:
        return float(scores.mean())
    largest = scores.max()
    return float(largest + math.log(np.exp(rate * (scores - largest)).mean()) / rate)
