"""Results as JSON: the only place where they are anything else than values."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from alphafair.errors import InvalidArgument
from alphafair.lab.results import Arena, Band, Results

NUMBERS = re.compile(r"\[\n\s*([-+.\deE,\s]+?)\s*\n\s*\]")


def plain(value: Any, where: str = "results") -> Any:
    """A value as JSON has it: objects, lists, finite numbers. An optional field that says nothing is left out."""
    if is_dataclass(value) and not isinstance(value, type):
        optional = {field.name for field in fields(value) if field.default is None}
        value = {name: each for name, each in vars(value).items() if each is not None or name not in optional}
    if isinstance(value, Band):
        value = value._asdict()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each, f"{where}[{place}]") for place, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(where, "finite", value, "Run that experiment again; a report has no gaps.")
    return value


def as_json(results: Results | Arena) -> str:
    """In the order of the values, a list of numbers on one line, and nothing that JSON has no word for."""
    text = json.dumps(plain(results), indent=1, ensure_ascii=False, allow_nan=False)
    return NUMBERS.sub(lambda found: f"[{re.sub(chr(92) + 's+', ' ', found[1])}]", text) + "\n"
