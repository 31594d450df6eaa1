"""The features of arms: their values now and before, as matrices with a row per arm that a policy gets.

Values are terms, so they change by events alone, and a decision was made with those of the last such event before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.engine.state.steps import ArmFeatures
from alphafair.errors import InvalidArgument, RequestError
from alphafair.values import FeatureSchema, Matrix, Vector


class ArmValues:
    """The features of every arm. None where an arm lacks a required one."""

    def __init__(self, declared: Mapping[str, Any], n_arms: int) -> None:
        self.schema = FeatureSchema(declared, argument="arm_features")
        self._values: list[Vector | None] = [self._without_values] * n_arms
        self._since, self._matrices = [0], [self._matrix()]  # by the position from which on they hold

    @property
    def _without_values(self) -> Vector | None:
        """The features of an arm that none were passed for: enough where all may be missing."""
        try:
            return self.schema.stored({})
        except InvalidArgument:
            return None

    def stored(self, values: Any) -> Vector:
        """Check the features of an arm."""
        try:
            return self.schema.stored(values)
        except InvalidArgument as refused:
            raise RequestError("bad_features", *refused.args) from None

    def values(self, arm: int) -> dict[str, float | str | None] | None:
        """Return the features of an arm by name."""
        stored = self._values[arm]
        return None if stored is None else self.schema.values(stored)

    # changes

    def add_arm(self, position: int, values: Mapping[str, Any] | None) -> None:
        self._values.append(self._without_values if values is None else self.schema.stored(values))
        self._changed(position)

    def set(self, position: int, values: Mapping[int, Mapping[str, Any]] | None) -> None:
        """Set the features of some arms; None: those of all arms to what they were without any."""
        if values is None:
            self._values = [self._without_values] * len(self._values)
        else:
            for arm, each in values.items():
                self._values[arm] = self.schema.stored(each)
        self._changed(position)

    def _changed(self, position: int) -> None:
        self._since.append(position)
        self._matrices.append(self._matrix())

    def _matrix(self) -> Matrix:
        matrix = np.zeros((len(self._values), len(self.schema.columns)))
        for row, stored in zip(matrix, self._values, strict=True):
            if stored is not None:
                row[:] = self.schema.encoded(stored)
        matrix.setflags(write=False)
        return matrix

    # for a policy

    def present(self, labels: Mapping[int, str]) -> Matrix:
        """Return the features of all arms now; refused where a live one, of these labels, lacks a required one."""
        missing = [label for arm, label in labels.items() if self._values[arm] is None]
        if missing:
            allowed = "those of every live arm that are required"
            repair = f"Pass them to set_terms, for {validate.listed(missing)}."
            raise RequestError("bad_features", "arm_features", allowed, None, repair)
        return self._matrices[-1]

    def of_steps(self, decisions: NDArray[np.int64]) -> ArmFeatures:
        """Return the features with which decisions at these positions were made."""
        numbers = [bisect_left(self._since, position) - 1 for position in decisions.tolist()]
        return ArmFeatures(self._matrices, np.array(numbers, dtype=np.int64))
