"""Features by name and type: what is declared, which values are allowed, how they are stored and what is learned from.

| declared | value | columns |
|---|---|---|
| `"number"` | a finite number or a boolean | the number |
| `"number?"` | the same; may be missing | the number, or 0; 1 if it is missing |
| labels, such as `["new", "loyal"]` | one of them | one per label: 1 or 0 |
| labels with `"*"` | any; `"*"` stands for all others and for none | one per label: 1 or 0 |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument, encodable
from alphafair.values.arrays import Vector

MOST_FEATURES: Final = 50
MOST_COLUMNS: Final = 64  # solving for the coefficients is cubic in them
MOST_LABELS: Final = 50  # of one feature
NUMBER, OPTIONAL = "number", "number?"
OTHER: Final = "*"  # the category of every value that has none of its own
KINDS: Final = f'"{NUMBER}", "{OPTIONAL}" or a list of 2 to {MOST_LABELS} labels'
A_NUMBER: Final = f"a finite number of at most {validate.ANY_FEATURE:g} in size, or a boolean"
FEATURE: Final = "feature."  # in an exported log, before the name of a feature
NOT_A_CODE: Final = -1.0  # in place of the number of a category


@dataclass(frozen=True)
class FeatureSchema:
    """The features of an experiment, or of a log: a type for every name, in an order that never changes.

    Values are stored as one float64 per feature: the number, NaN where it is missing, or the place of the category.
    A policy gets the `columns`.

    >>> schema = FeatureSchema({"age": "number", "visits": "number?", "segment": ["new", "loyal", "*"]})
    >>> schema.columns
    ('age', 'visits', 'visits is missing', 'segment=new', 'segment=loyal', 'segment=*')
    >>> stored = schema.stored({"age": 31, "segment": "vip"})
    >>> stored, schema.encoded(stored)
    (array([31., nan,  2.]), array([31.,  0.,  1.,  0.,  0.,  1.]))
    >>> schema.values(stored)
    {'age': 31.0, 'visits': None, 'segment': '*'}
    """

    declared: Mapping[str, str | tuple[str, ...]]
    argument: str = field(default="features", kw_only=True)  # in errors

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", _checked(self.argument, self.declared))
        if len(self.columns) > MOST_COLUMNS:
            repair = "Leave out features or labels; numbers take one column, or two with ?, and labels one each."
            raise InvalidArgument(self.argument, f"at most {MOST_COLUMNS} columns", len(self.columns), repair)

    @classmethod
    def of(cls, declared: FeatureSchema | Mapping[str, Any]) -> FeatureSchema:
        """A schema as it is, or of what is declared."""
        return declared if isinstance(declared, FeatureSchema) else cls(declared)

    @property
    def as_json(self) -> dict[str, str | list[str]]:
        """What was declared, as JSON has it."""
        return {name: kind if isinstance(kind, str) else [*kind] for name, kind in self.declared.items()}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.declared)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of what a policy gets."""
        found: list[str] = []
        for name, kind in self.declared.items():
            if isinstance(kind, tuple):
                found += [f"{name}={label}" for label in kind]
            else:
                found += [name, f"{name} is missing"] if kind == OPTIONAL else [name]
        return tuple(found)

    def codes(self, name: str) -> dict[str, int] | None:
        """The numbers of the categories of a feature; None for a number."""
        return self._codes[name]

    @cached_property
    def _codes(self) -> dict[str, dict[str, int] | None]:
        return {
            name: {label: code for code, label in enumerate(kind)} if isinstance(kind, tuple) else None
            for name, kind in self.declared.items()
        }

    @cached_property
    def _only_numbers(self) -> bool:
        """Whether columns are what is stored."""
        return all(kind == NUMBER for kind in self.declared.values())

    @cached_property
    def _sources(self) -> tuple[NDArray[np.int64], Vector, NDArray[np.int64]]:
        """Of every column its feature, and the code it stands for; and the columns that are 1 where it is missing."""
        sources: list[int] = []
        codes: list[float] = []
        missing: list[int] = []
        for number, kind in enumerate(self.declared.values()):
            own = [*range(len(kind))] if isinstance(kind, tuple) else [NOT_A_CODE] * (2 if kind == OPTIONAL else 1)
            sources += [number] * len(own)
            codes += map(float, own)
            if kind == OPTIONAL:
                missing.append(len(sources) - 1)
        return np.array(sources), np.array(codes), np.array(missing, dtype=np.int64)

    # one decision

    def stored(self, values: Any) -> Vector:
        """Return the values of a decision as they are stored; refused unless they are those that are declared."""
        given = {} if values is None else values
        if not isinstance(given, Mapping):
            repair = f"Declared: {validate.listed(self.names)}."
            raise InvalidArgument(self.argument, "an object from name to value", values, repair)
        for name in given:
            if name not in self.declared:
                allowed = f"left out: declared are {validate.listed(self.names)}"
                repair = validate.did_you_mean(name, self.names, "Leave it out: features are declared once.")
                raise InvalidArgument(self._named(name), allowed, given[name], repair)
        most = validate.ANY_FEATURE
        return np.array(
            [
                value
                if codes is None and type(value := given.get(name)) is float and -most <= value <= most
                else self._stored(name, codes, given.get(name))
                for name, codes in self._codes.items()
            ]
        )

    def _stored(self, name: str, codes: dict[str, int] | None, value: Any) -> float:
        if codes is not None:
            code = codes.get(value) if isinstance(value, str) else None
            code = codes.get(OTHER) if code is None else code
            if code is None:
                repair = f'"{OTHER}" among the labels would take all others.'
                raise InvalidArgument(self._named(name), f"one of {validate.listed(codes)}", value, repair)
            return float(code)
        if value is None and self.declared[name] == OPTIONAL:
            return math.nan
        number = value if type(value) is float else _as_float(value)
        if abs(number) <= validate.ANY_FEATURE:  # not if it is NaN
            return number
        repair = "Pass a number, without quotation marks." if isinstance(value, str) else "Pass a number."
        if self.declared[name] == OPTIONAL:
            repair = "Leave it out where it is missing."
        elif value is None:
            repair = "It is required."
        allowed = f"{A_NUMBER}, as declared ({self.declared[name]})"
        raise InvalidArgument(self._named(name), allowed, value, repair)

    def _named(self, name: object) -> str:
        return f"{self.argument}.{encodable(str(name)[:40])}"

    def values(self, stored: Vector) -> dict[str, float | str | None]:
        """Return values that are stored as these numbers."""
        found: dict[str, float | str | None] = {}
        for (name, kind), number in zip(self.declared.items(), stored.tolist(), strict=True):
            if isinstance(kind, tuple):
                found[name] = kind[int(number)]
            else:
                found[name] = None if math.isnan(number) else number
        return found

    # one decision, or a row each

    def encoded(self, stored: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a policy gets, of one decision or of many."""
        if self._only_numbers:
            return stored.copy()
        sources, codes, missing = self._sources
        own = stored[..., sources]
        found = np.where(codes >= 0.0, own == codes, own)
        np.nan_to_num(found, copy=False, nan=0.0)
        found[..., missing] = np.isnan(own[..., missing])
        return found

    def are_possible(self, stored: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rows can be those of decisions."""
        low, high, optional, codes = self._limits
        possible = (stored >= low) & (stored <= high)
        possible[:, optional] |= np.isnan(stored[:, optional])
        possible[:, codes] &= stored[:, codes] == np.floor(stored[:, codes])
        return np.asarray(possible.all(axis=1))

    @cached_property
    def _limits(self) -> tuple[Vector, Vector, NDArray[np.int64], NDArray[np.int64]]:
        """The least and the largest stored number of every feature, which may be missing, and which are categories."""
        kinds, most = [*self.declared.values()], validate.ANY_FEATURE
        return (
            np.array([0.0 if isinstance(kind, tuple) else -most for kind in kinds]),
            np.array([len(kind) - 1.0 if isinstance(kind, tuple) else most for kind in kinds]),
            np.array([k for k, kind in enumerate(kinds) if kind == OPTIONAL], dtype=np.int64),
            np.array([k for k, kind in enumerate(kinds) if isinstance(kind, tuple)], dtype=np.int64),
        )


def _as_float(value: Any) -> float:
    """Return a number or a boolean as a float; NaN for anything else."""
    try:
        return float(value) if isinstance(value, Real | np.bool_) else math.nan
    except OverflowError:
        return math.inf


def _checked(argument: str, declared: Any) -> dict[str, str | tuple[str, ...]]:
    """Return a declaration with the labels of categories as tuples."""
    if not isinstance(declared, Mapping) or not 1 <= len(declared) <= MOST_FEATURES:
        got = f"{len(declared)} of them" if isinstance(declared, Mapping) else declared
        repair = 'Pass, for example, {"age": "number", "segment": ["new", "loyal", "*"]}.'
        raise InvalidArgument(argument, f"an object of 1 to {MOST_FEATURES} features, from name to type", got, repair)
    found: dict[str, str | tuple[str, ...]] = {}
    for name, kind in declared.items():
        if not _is_label(name):
            repair = "Use a short name, such as age."
            raise InvalidArgument(argument, f"named by strings of {validate.LABELS}", name, repair)
        if isinstance(kind, str) and kind in (NUMBER, OPTIONAL):
            found[name] = kind
            continue
        labels = [*kind] if isinstance(kind, list | tuple) else []
        if not 2 <= len(labels) <= MOST_LABELS or not all(map(_is_label, labels)) or len({*labels}) != len(labels):
            repair = (
                f'Pass "{NUMBER}" or ["new", "loyal", "{OTHER}"], for example; labels are different, short strings.'
            )
            raise InvalidArgument(f"{argument}.{name}", KINDS, kind, repair)
        found[name] = tuple(labels)
    return found


def _is_label(value: object) -> bool:
    return isinstance(value, str) and validate.is_label(value)
