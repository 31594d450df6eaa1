"""Results as JSON and back: the only place where they are anything else than values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from alphafair import validate
from alphafair.experiments.results import Arena, Results

NUMBERS = re.compile(r"\[\n\s*([-+.\deE,\s]+?)\s*\n\s*\]")


def plain(value: Any, where: str = "results") -> Any:
    """A value as JSON has it: objects, lists, finite numbers. An optional field that says nothing is left out."""
    if is_dataclass(value) and not isinstance(value, type):
        optional = {field.name for field in fields(value) if field.default is None}
        value = {name: each for name, each in vars(value).items() if each is not None or name not in optional}
    if isinstance(value, Mapping):
        return {key: plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each, f"{where}[{place}]") for place, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise validate.Refusal(where, "finite", value, "Run that experiment again; a report has no gaps.")
    return value


def as_value(kind: Any, found: Any) -> Any:
    """The other way: what JSON has, as a value of this kind.

    >>> from alphafair.experiments.results import Band
    >>> as_value(Band, {"mean": 1.0, "low": 0.5, "high": 1.5})
    Band(mean=1.0, low=0.5, high=1.5)
    """
    inside = get_args(kind)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: as_value(hints[name], each) for name, each in found.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        return tuple(as_value(inside[0], each) for each in found)
    if get_origin(kind) is dict:
        return {key: as_value(inside[1], each) for key, each in found.items()}
    if NoneType in inside:
        return None if found is None else as_value(inside[0], found)
    return found


def as_json(results: Results | Arena) -> str:
    """Sorted keys, a list of numbers on one line, and nothing that JSON has no word for."""
    text = json.dumps(plain(results), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(lambda found: f"[{re.sub(chr(92) + 's+', ' ', found[1])}]", text) + "\n"


def from_json(text: str) -> Results:
    """What `as_json` has written."""
    found: Results = as_value(Results, json.loads(text))
    return found
