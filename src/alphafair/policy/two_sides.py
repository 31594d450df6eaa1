"""`TwoSided`: the second side of policies that can be fair to contexts as well as to arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups, Labels
from alphafair.math.two_sides import OWN
from alphafair.policy import arms
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import DAMAGED
from alphafair.values import Account
from alphafair.values.arrays import Vector

VISITS = "visits"


def side_settings(n_contexts: int, context_weight: Any, context_weights: Any) -> dict[str, Any]:
    """Check the settings of the second side, and return those that are not at their defaults."""
    weight = validate.context_weight(context_weight)
    if weight == 0.0:
        if context_weights is not None:
            repair = "Pass a context_weight as well."
            raise InvalidArgument("context_weights", "None without a context_weight", context_weights, repair)
        return {}
    if context_weights is None:
        return {"context_weight": weight}
    n_contexts = validate.integer("n_contexts", n_contexts, low=1)
    return {"context_weight": weight, "context_weights": validate.context_weights(context_weights, n_contexts).tolist()}


class TwoSided(BasePolicy):
    """A policy whose objective can have a second side: contexts, beside arms."""

    # with a second side; None: a derived class that has none
    sides_algorithm: ClassVar[Any]

    # settings

    @property
    def context_weight(self) -> float:  # type: ignore[override]
        """The weight of contexts in the objective; 0: it is fair to arms alone."""
        return float(self.settings.get("context_weight", 0.0))

    @property
    def context_weights(self) -> list[float] | None:  # type: ignore[override]
        """The fixed weights of contexts, as passed; None: the part of all rounds so far."""
        return self.settings.get("context_weights")

    @property
    def context_accounts(self) -> Vector | None:  # type: ignore[override]
        """U: 1 + the rewards in every context so far; None without a second side."""
        with self._lock:
            own = self._of_sides()
            return None if own is None else own[2][:, OWN.context_account].copy()

    @property
    def context_entry_accounts(self) -> Vector | None:  # type: ignore[override]
        """The accounts of contexts at the start of this period; None without a second side."""
        with self._lock:
            own = self._of_sides()
            return None if own is None else own[2][:, OWN.context_entry].copy()

    def set_sides(self, context_weight: float | None = None, context_weights: ArrayLike | None = None) -> None:
        """Change the weight of contexts, or their weights; None keeps what is set.

        `context_weights="visits"` weighs contexts by their rounds again. Accounts and everything learned stay; contexts
        without accounts begin with 1. Certificates cover only later rounds, and norms, mixing weights and bandit
        learners start anew, because gains change their scale.
        """
        with self._lock, np.errstate(all="ignore"):
            weight = self.context_weight if context_weight is None else validate.context_weight(context_weight)
            weights: Any = self.context_weights if context_weights is None else context_weights
            if isinstance(weights, str) and weights == VISITS:
                weights = None
            if weight == 0.0 and context_weights is None:
                weights = None
            added = side_settings(self.n_contexts, weight, weights)
            self._check_sides(added)
            kept = {
                name: value
                for name, value in self.settings.items()
                if name not in ("context_weight", "context_weights")
            }
            self._change_sides({**kept, **added})

    def _check_sides(self, settings: Mapping[str, Any]) -> None:
        """Raise if the policy cannot have this second side."""
        found, weight = type(self).sides_algorithm, settings.get("context_weight", 0.0)
        if weight and (found is None or (isinstance(found, Mapping) and self.feedback not in found)):
            repair = "Use AlphaFair, or AlphaFairAdaptive with full information."
            raise InvalidArgument("context_weight", f"0 for {self.name}", weight, repair)

    # how it is played

    def _sided(self) -> bool:
        return self.context_weight > 0.0

    def _on_welfare(self) -> bool:
        return self._sided() or super()._on_welfare()

    def _own_algorithm(self) -> Algorithm:
        if not self._sided():
            return super()._own_algorithm()
        chosen: Any = type(self).sides_algorithm
        return chosen if isinstance(chosen, Algorithm) else chosen[self.feedback]

    def _numbers_of_sides(self) -> dict[str, Any]:
        """Return the settings of the second side as numbers."""
        fixed = self.context_weights is not None
        return {
            "on_welfare": self._on_welfare(),
            "sided": self._sided(),
            "context_weight": self.context_weight,
            "fixed_weights": fixed,
        }

    def _of_sides(self) -> tuple[Any, Any, Any] | None:
        find = self._learned.algorithm.of_sides
        return None if find is None else find(self._learned.memory)

    def _start(self, live: NDArray[np.bool_], *parts: Any, **named: Any) -> None:
        super()._start(live, *parts, **named)
        self._write_parts()

    def _write_parts(self) -> None:
        own = self._of_sides()
        if own is not None:
            own[2][:, OWN.context_part] = self._parts()
            if self._learned.algorithm.sides_changed is not None:
                self._learned.algorithm.sides_changed(self._learned.memory)

    def _parts(self) -> Vector:
        """Return the fixed weights, divided by their sum; zeros without."""
        weights = self.context_weights
        return np.zeros(self.n_contexts) if weights is None else np.array(weights) / sum(weights)

    def _change_sides(self, settings: dict[str, Any]) -> None:
        before, self.settings = self._learned.algorithm, settings
        algorithm = self._own_algorithm()
        if algorithm is not before:
            arms.move(self._learned, algorithm, self._numbers())
        self._write_parts()
        arms.set_terms(self._learned, self._numbers())
        self._make_stepper()

    def _check(self) -> None:
        super()._check()
        own = self._of_sides()
        if own is not None and not np.array_equal(own[2][:, OWN.context_part], self._parts()):
            raise InvalidArgument("state.arrays['context_part']", f"{self._parts().tolist()}", "others", DAMAGED)

    # contexts that come

    def grow(
        self,
        n_contexts: int | None = None,
        n_arms: int | None = None,
        account: Account = "least",
        *,
        groups: Groups | Labels | None = None,
        context_weights: ArrayLike | None = None,
    ) -> None:
        """Add contexts and arms, as `BasePolicy.grow`.

        With fixed weights new contexts need `context_weights`, of all contexts; bounds then start anew.
        """
        with self._lock, np.errstate(all="ignore"):
            more = n_contexts is not None and validate.integer("n_contexts", n_contexts, low=self.n_contexts)
            fixed, weights = self.context_weights is not None, None
            if context_weights is not None:
                if not fixed:
                    allowed, repair = "None unless weights are fixed", "Use set_sides."
                    raise InvalidArgument("context_weights", allowed, context_weights, repair)
                weights = validate.context_weights(context_weights, more or self.n_contexts).tolist()
            elif fixed and more and more > self.n_contexts:
                allowed = f"positive numbers, one per context ({more})"
                repair = 'Pass the weights of all contexts, or set_sides(context_weights="visits") first.'
                raise InvalidArgument("context_weights", allowed, None, repair)
            super().grow(n_contexts, n_arms, account, groups=groups)
            if weights is not None:
                self._change_sides({**self.settings, "context_weights": weights})
