"""Bringing rewards into the range that the guarantee is proved for."""

import math

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.types import Vector


def rescale_rewards(rewards: ArrayLike, low: float, high: float, *, floor: float = 0.2) -> Vector:
    """Map rewards of a known range [low, high] onto [floor, 1], in a straight line.

    The fair policies take rewards in [0, 1]. Their guarantee is proved for rewards of at least a positive floor:
    with exact zeros an arm may earn nothing for ever, and what fairness owes it has no bound. Use a floor whenever
    zeros are common (clicks, purchases); 0.2 is what the paper's experiments use. Use `floor=0` when rewards are
    already bounded away from zero, or when a true zero must stay one.

    A float comes back for a float, an array of the same shape for an array. The order of rewards never changes.

    >>> rescale_rewards([0, 2.5, 5], 0, 5).round(6).tolist()
    [0.2, 0.6, 1.0]
    >>> float(rescale_rewards(4.0, 0.5, 5.0))
    0.8222222222222222
    """
    low = validate.number("low", low, low=-math.inf, high=math.inf)
    high = validate.number("high", high, low=low, high=math.inf, low_open=True)
    floor = validate.number("floor", floor, low=0.0, high=1.0, high_open=True)
    allowed = f"numbers in [{low:g}, {high:g}]"
    values = validate.floats("rewards", allowed, rewards, "Pass floats.")
    inside = (values >= low) & (values <= high)
    validate.every("rewards", values, inside, allowed, "Widen low and high to the true range, or clip first.")
    if math.isinf(high - low):  # half of everything has the same shares
        values, low, high = values / 2.0, low / 2.0, high / 2.0
    return np.minimum(floor + (1.0 - floor) * ((values - low) / (high - low)), 1.0)
