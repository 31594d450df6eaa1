"""Regressors of the user in place of least squares on features."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.values.arrays import Vector


class Regressors:
    """Regressors of the user, with scikit-learn's `partial_fit` and `predict`, in place of least squares.

    One per live arm for features of the context, or a single one if every arm has its own features.
    """

    def __init__(self, blank: Any, n_arms: int, *, of_arms: bool) -> None:
        if not all(callable(getattr(blank, name, None)) for name in ("partial_fit", "predict")):
            repair = "Pass, for example, sklearn.linear_model.SGDRegressor()."
            raise InvalidArgument("regressor", "an object with partial_fit and predict", blank, repair)
        self.blank, self.of_arms = copy.deepcopy(blank), of_arms
        self.fitted: list[Any] = [None] * (1 if of_arms else n_arms)  # None: not fitted yet, predicts 0

    def predict(self, features: NDArray[np.float64]) -> Vector:
        """Return f of every live arm: its predicted reward minus the mean reward, in [-1, 1]."""
        if self.of_arms:
            predicted = np.zeros(len(features)) if self.fitted[0] is None else self.fitted[0].predict(features)
        else:
            row = features[None]
            predicted = np.array(
                [0.0 if each is None else float(np.ravel(each.predict(row))[0]) for each in self.fitted]
            )
        return np.clip(np.nan_to_num(np.asarray(predicted, dtype=np.float64)), -1.0, 1.0)

    def fit(self, arm: int, features: NDArray[np.float64], y: float) -> None:
        """Fit one more reward of an arm, minus the mean reward."""
        place, row = (0, features[arm]) if self.of_arms else (arm, features)
        if self.fitted[place] is None:
            self.fitted[place] = copy.deepcopy(self.blank)
        self.fitted[place].partial_fit(row[None], np.array([y]))

    def change_arms(self, kept: NDArray[np.int64], n_new: int) -> None:
        if not self.of_arms:
            self.fitted = [self.fitted[k] for k in kept] + [None] * n_new
