"""A user's own regressor in place of the least squares: anything with scikit-learn's `partial_fit` and `predict`."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.values import Vector


class Regressors:
    """One per live arm where the features are the context's, or one for all where every arm has its own features."""

    def __init__(self, blank: Any, n_arms: int, *, of_arms: bool) -> None:
        if not all(callable(getattr(blank, name, None)) for name in ("partial_fit", "predict")):
            repair = "Pass, for example, sklearn.linear_model.SGDRegressor()."
            raise InvalidArgument("regressor", "one with partial_fit and predict", blank, repair)
        self.blank, self.of_arms = copy.deepcopy(blank), of_arms
        self.fitted: list[Any] = [None] * (1 if of_arms else n_arms)  # None: has seen nothing, and predicts 0

    def predict(self, features: NDArray[np.float64]) -> Vector:
        """f of every live arm: what it will pay over the mean reward, in [-1, 1]."""
        if self.of_arms:
            predicted = np.zeros(len(features)) if self.fitted[0] is None else self.fitted[0].predict(features)
        else:
            row = features[None]
            predicted = np.array(
                [0.0 if each is None else float(np.ravel(each.predict(row))[0]) for each in self.fitted]
            )
        return np.clip(np.nan_to_num(np.asarray(predicted, dtype=np.float64)), -1.0, 1.0)

    def fit(self, arm: int, features: NDArray[np.float64], y: float) -> None:
        """One more reward of an arm, over the mean."""
        place, row = (0, features[arm]) if self.of_arms else (arm, features)
        if self.fitted[place] is None:
            self.fitted[place] = copy.deepcopy(self.blank)
        self.fitted[place].partial_fit(row[None], np.array([y]))

    def change_arms(self, kept: NDArray[np.int64], n_new: int) -> None:
        if not self.of_arms:
            self.fitted = [self.fitted[k] for k in kept] + [None] * n_new
