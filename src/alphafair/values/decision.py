"""Decisions, of one arm or of a slate: what `choose` returns and `update` takes back."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Decision(NamedTuple):
    """One choice, with everything that is needed to learn from it later: pass it to `update` with its reward."""

    context: int
    arm: int
    propensity: float
    probabilities: Vector

    @property
    def features(self) -> NDArray[np.float64] | None:
        """The features that were passed to `choose`, if any."""
        return None


class DescribedDecision(Decision):
    """A decision with the features of its round; as a tuple it has the same four fields."""

    def __new__(
        cls,
        context: int,
        arm: int,
        propensity: float,
        probabilities: Vector,
        features: NDArray[np.float64] | None = None,
    ) -> Self:
        decision = super().__new__(cls, context, arm, propensity, probabilities)
        decision._features = features
        return decision

    _features: NDArray[np.float64] | None

    @property
    def features(self) -> NDArray[np.float64] | None:
        return self._features

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**{**self._asdict(), "features": self.features, **changes})


class ChosenDecision(DescribedDecision):
    """What `choose` returns: a `Decision` that also records which policies have learned from it.

    A policy accepts it once. Copies, unpickled decisions and results of `_replace` are new decisions.
    """

    _features: NDArray[np.float64] | None = None
    _used: tuple[object, ...] = ()  # markers of the policies that used it: see `BasePolicy`

    def _replace(self, **changes: Any) -> DescribedDecision:  # type: ignore[override]
        return DescribedDecision(*self, self._features)._replace(**changes)

    def __reduce__(self) -> Any:
        return DescribedDecision, (*self, self._features)

    def __repr__(self) -> str:
        return repr(Decision(*self))


class SlateDecision(NamedTuple):
    """One choice of several arms, which are all shown and all rewarded: pass it to `update` with their rewards.

    `arms` are in the order of their slots, `propensities` are their probabilities to be in the slate. `probabilities`
    has those of all arms; they sum to the number of shown arms.
    """

    context: int
    arms: tuple[int, ...]
    propensities: tuple[float, ...]
    probabilities: Vector

    @property
    def features(self) -> NDArray[np.float64] | None:
        """The features that were passed to `choose`, if any."""
        return None

    @property
    def exposures(self) -> tuple[float, ...] | None:
        """How much each slot is looked at, the first 1, if that was passed to `choose`."""
        return None


class DescribedSlate(SlateDecision):
    """A slate with the features of its round and the exposures of its slots; as a tuple it has the same four fields."""

    def __new__(
        cls,
        context: int,
        arms: tuple[int, ...],
        propensities: tuple[float, ...],
        probabilities: Vector,
        features: NDArray[np.float64] | None = None,
        exposures: tuple[float, ...] | None = None,
    ) -> Self:
        decision = super().__new__(cls, context, arms, propensities, probabilities)
        decision._features, decision._exposures = features, exposures
        return decision

    _features: NDArray[np.float64] | None
    _exposures: tuple[float, ...] | None

    @property
    def features(self) -> NDArray[np.float64] | None:
        return self._features

    @property
    def exposures(self) -> tuple[float, ...] | None:
        return self._exposures

    def _replace(self, **changes: Any) -> Self:
        return type(self)(**{**self._asdict(), "features": self.features, "exposures": self.exposures, **changes})


class ChosenSlate(DescribedSlate):
    """What `choose` returns with `k`: a `SlateDecision` that also records which rewards policies have learned from.

    A policy accepts each of them once. Copies, unpickled decisions and results of `_replace` are new decisions.
    """

    _features: NDArray[np.float64] | None = None
    _exposures: tuple[float, ...] | None = None
    _used: tuple[object, ...] = ()  # markers of the policies that expected or forwent it: see `BasePolicy`
    _rewarded: Mapping[object, frozenset[int]] = MappingProxyType({})  # by marker of the policy: arms with a reward

    def _replace(self, **changes: Any) -> DescribedSlate:  # type: ignore[override]
        return DescribedSlate(*self, self._features, self._exposures)._replace(**changes)

    def __reduce__(self) -> Any:
        return DescribedSlate, (*self, self._features, self._exposures)

    def __repr__(self) -> str:
        return repr(SlateDecision(*self))
