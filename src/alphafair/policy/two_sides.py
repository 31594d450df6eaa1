"""`TwoSided`: the second side of policies that can be fair to contexts as well as to arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups, Labels
from alphafair.math.floors import F
from alphafair.math.two_sides import OWN, PROMISED, debts
from alphafair.policy import arms
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import DAMAGED
from alphafair.values import Account
from alphafair.values.arrays import Vector

VISITS = "visits"


def side_settings(
    n_contexts: int, context_weight: Any, context_weights: Any, context_share: Any = 0.0
) -> dict[str, Any]:
    """Check the settings of the second side, and return those that are not at their defaults."""
    share = validate.context_share(context_share)
    promised = {"context_share": share} if share > 0.0 else {}
    return {**weight_settings(n_contexts, context_weight, context_weights), **promised}


def weight_settings(n_contexts: int, context_weight: Any, context_weights: Any) -> dict[str, Any]:
    """Do the same for the weight of contexts."""
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

    # with a context weight, and with a promise; None: a class that has none
    sides_algorithm: ClassVar[Any]
    promise_algorithm: ClassVar[Any] = None

    # settings

    @property
    def context_weight(self) -> float:  # type: ignore[override]
        """The weight of contexts in the objective; 0: it is fair to arms alone."""
        return float(self.settings.get("context_weight", 0.0))

    @property
    def context_share(self) -> float:  # type: ignore[override]
        """The part of the rewards of its best arm that every context is promised; 0: none."""
        return float(self.settings.get("context_share", 0.0))

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

    @property
    def context_debts(self) -> Vector | None:  # type: ignore[override]
        """What every context is owed: the promised part of the rewards of its best arm, minus its own.

        Negative where it has got more; None without a promise. With bandit feedback rewards of arms are predictions.
        """
        with self._lock:
            named, own = self._learned.named(), self._of_sides()
            if own is None or "context_totals" not in named:
                return None
            return debts(own[0], own[2], named["context_totals"])

    def set_sides(
        self,
        context_weight: float | None = None,
        context_weights: ArrayLike | None = None,
        context_share: float | None = None,
    ) -> None:
        """Change the weight of contexts, their weights, or what they are promised; None keeps what is set.

        `context_weights="visits"` weighs contexts by their rounds again. Accounts and everything learned stay; contexts
        without accounts begin with 1. Certificates cover only later rounds, and norms, mixing weights and bandit
        learners start anew, because gains change their scale. A promise counts rewards from when it is first made.
        """
        with self._lock, np.errstate(all="ignore"):
            share = self.context_share if context_share is None else context_share
            weight = self.context_weight if context_weight is None else validate.context_weight(context_weight)
            weights: Any = self.context_weights if context_weights is None else context_weights
            if isinstance(weights, str) and weights == VISITS:
                weights = None
            if weight == 0.0 and context_weights is None:
                weights = None
            added = side_settings(self.n_contexts, weight, weights, share)
            self._check_sides(added)
            self._check_room(added.get("context_share", 0.0), self._left_by_floors())
            kept = {
                name: value
                for name, value in self.settings.items()
                if name not in ("context_weight", "context_weights", "context_share")
            }
            self._change_sides({**kept, **added})

    def _check_sides(self, settings: Mapping[str, Any]) -> None:
        """Raise if the policy cannot have this second side."""
        found, weight = type(self).sides_algorithm, settings.get("context_weight", 0.0)
        if weight and found is None:
            raise InvalidArgument("context_weight", f"0 for {self.name}", weight, "Use AlphaFair or AlphaFairAdaptive.")
        found, share = type(self).promise_algorithm, settings.get("context_share", 0.0)
        if share and found is None:
            raise InvalidArgument("context_share", f"0 for {self.name}", share, "Use AlphaFairAdaptive.")

    def _left_by_floors(self) -> float:
        return float(self._memory.groups.numbers[F.unpromised])

    @staticmethod
    def _check_room(share: float, left: float) -> None:
        """Raise for a promise that floors leave no room for."""
        if share > 0.0 and share >= left:
            repair = "Lower the floors or the share."
            raise InvalidArgument("context_share", f"below {left:.3g}, what the floors leave", share, repair)

    # how it is played

    def _sided(self) -> bool:
        return self.context_weight > 0.0 or self.context_share > 0.0

    def _on_welfare(self) -> bool:
        return self._sided() or super()._on_welfare()

    def _own_algorithm(self) -> Algorithm:
        if not self._sided():
            return super()._own_algorithm()
        chosen: Any = type(self).promise_algorithm if self.context_share > 0.0 else type(self).sides_algorithm
        return chosen if isinstance(chosen, Algorithm) else chosen[self.feedback]

    def _numbers_of_sides(self) -> dict[str, Any]:
        """Return the settings of the second side as numbers."""
        fixed = self.context_weights is not None
        return {
            "on_welfare": self._on_welfare(),
            "sided": self._sided(),
            "context_weight": self.context_weight,
            "fixed_weights": fixed,
            "context_share": self.context_share,
        }

    def _of_sides(self) -> tuple[Any, Any, Any] | None:
        find = self._learned.algorithm.of_sides
        return None if find is None else find(self._learned.memory)

    def _start(self, live: NDArray[np.bool_], *parts: Any, **named: Any) -> None:
        super()._start(live, *parts, **named)
        self._check_room(self.context_share, self._left_by_floors())
        self._write_parts()

    def _write_parts(self) -> None:
        own = self._of_sides()
        if own is not None:
            own[2][:, OWN.context_part] = self._parts()
            if self._learned.algorithm.sides_changed is not None:
                self._learned.algorithm.sides_changed(self._learned.memory)

    def _check_n_live(self, n_live: int) -> None:
        super()._check_n_live(n_live)
        if self.groups is not None and self.context_share > 0.0:
            more = n_live - len(self._learned.live_arms)
            self._check_room(self.context_share, self._left_by_floors() - more * self.groups.arm_floor)

    def set_groups(self, groups: Groups | Labels | None) -> None:
        """Change groups, entitlements and floors, as `BasePolicy.set_groups`; a promise needs what floors leave."""
        with self._lock:
            live = self._learned.live_arms
            known = Groups.of(groups).for_arms(self.n_arms, n_live=len(live)).among(live)
            floors = len(live) * known.arm_floor + float(known.group_floors.sum())
            self._check_room(self.context_share, 1.0 - floors)
            super().set_groups(groups)

    def _parts(self) -> Vector:
        """Return the fixed weights, divided by their sum; zeros without."""
        weights = self.context_weights
        return np.zeros(self.n_contexts) if weights is None else np.array(weights) / sum(weights)

    def _change_sides(self, settings: dict[str, Any]) -> None:
        before, promised, self.settings = self._learned.algorithm, self.context_share > 0.0, settings
        algorithm = self._own_algorithm()
        if algorithm is not before:
            arms.move(self._learned, algorithm, self._numbers())
            if self.context_share > 0.0 and not promised:
                own = self._of_sides()[2]  # type: ignore[index]
                own[:, PROMISED.context_base] = own[:, OWN.context_account]
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
