"""A number and its confidence interval."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np


class Interval(NamedTuple):
    """An estimate and its confidence interval: three floats, or three arrays of one shape.

    >>> Interval(0.5, -0.25, 1.5).clip(0.0, 1.0)
    Interval(value=0.5, low=0.0, high=1.0)
    >>> Interval.exact(3.0).random
    False
    """

    value: Any
    low: Any
    high: Any

    @classmethod
    def exact(cls, value: Any) -> Self:
        """The interval of a number that is not random: it has no width."""
        return cls(value, value, value)

    @property
    def random(self) -> bool:
        """Whether the interval has a width anywhere."""
        return bool(np.any(self.high > self.low))

    @property
    def last(self) -> Interval:
        """The last entries of three arrays."""
        return Interval(*(side[-1] for side in self))

    def clip(self, low: float, high: float) -> Interval:
        """The part that lies in [low, high]."""
        return Interval(*(min(max(side, low), high) for side in self))

    def __sub__(self, level: Any) -> Interval:
        """The interval of the difference to a fixed number."""
        return Interval(*(side - level for side in self))
