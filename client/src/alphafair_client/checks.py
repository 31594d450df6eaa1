"""Checks of numbers; the standard library alone. Numbers of NumPy are taken by `__index__` and `__float__`."""

from __future__ import annotations

import math
import operator
from typing import Any

from alphafair_client.answers import InvalidArgument, shown


def is_bool(value: Any) -> bool:
    """Whether a value is true or false, of Python or of NumPy, which `float` would take for a number."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", None) == "b"


def integer(argument: str, value: Any, *, low: int, high: int | None = None) -> int:
    """Check an integer in [low, high]."""
    allowed = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {shown(high)}]"
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(argument, allowed, value, "Pass an int.") from None
    if is_bool(value) or number < low or (high is not None and number > high):
        raise InvalidArgument(argument, allowed, value, f"Choose {argument} inside that range.")
    return number


def as_float(value: Any) -> float:
    """Convert to float; unlike `float`, refuse strings, and raise ValueError for integers that are too large."""
    if isinstance(value, str | bytes):
        raise TypeError
    try:
        return float(value)
    except OverflowError:
        raise ValueError from None


def number(
    argument: str, value: Any, *, low: float, high: float, low_open: bool = False, high_open: bool = False
) -> float:
    """Check a finite number between low and high, either end open or closed."""
    try:
        real, repair = as_float(value), f"Choose {argument} inside that range."
    except (TypeError, ValueError):
        real, repair = math.nan, "Pass a float."
    inside = (low < real if low_open else low <= real) and (real < high if high_open else real <= high)
    if inside and math.isfinite(real):
        return real
    first, last = "(" if low_open or low == -math.inf else "[", ")" if high_open or high == math.inf else "]"
    raise InvalidArgument(argument, f"a number in {first}{low:g}, {high:g}{last}", value, repair)
