"""Read results.json back: what `alphafair.lab.results.as_json` has written, as values."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from alphafair.lab.results import Results


def as_value(kind: Any, found: Any) -> Any:
    """JSON content as a value of this type.

    >>> from alphafair.values import Interval
    >>> as_value(Interval, {"value": 1.0, "low": 0.5, "high": [1.5]})
    Interval(value=1.0, low=0.5, high=array([1.5]))
    """
    inside = get_args(kind)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return kind(**{name: as_value(hints[name], each) for name, each in found.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        return tuple(as_value(inside[0], each) for each in found)
    if get_origin(kind) is dict:
        return {key: as_value(inside[1], each) for key, each in found.items()}
    if NoneType in inside:
        return None if found is None else as_value(inside[0], found)
    if kind is float:
        return float(found)  # alpha may be the string "inf"
    return np.array(found) if isinstance(found, list) else found


def from_json(text: str) -> Results:
    """Results from the text of results.json."""
    found: Results = as_value(Results, json.loads(text))
    return found
