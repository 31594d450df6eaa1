"""What these policies share: pulls counted when they are played, means of rewards with a width, one number per arm.

A pull counts from `expect` on, if that is called, else from `learn` on; `forgo` takes it back. `waiting` is the number
of pulls of an arm that have been counted and not learned from yet.

    t `rounds` · r `share` · N_i `pulls` · t_j `visits` · n_ji `counts` · S_ji `sums`
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm, play_largest
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import DAMAGED
from alphafair.values.arrays import Vector, positions

K = positions("visits")
C = positions("counts", "sums")

PerArm = float | Mapping[int, float] | ArrayLike  # one number for every live arm, or one for each


# kernels


@kernel
def add_reward(memory, context, arm, reward):
    """t_j += 1, n_ji += 1, S_ji += r."""
    memory.context_scalars[context, K.visits] += 1.0
    memory.contexts[context, C.counts, arm] += 1.0
    memory.contexts[context, C.sums, arm] += reward


@kernel
def upper_bounds(rows, visits, width, out):
    """Write m_ji + width sqrt(ln t_j/n_ji), infinite where n_ji = 0, to `out`."""
    log_visits = math.log(max(1.0, visits))
    for i in range(out.shape[0]):
        n = rows[C.counts, i]
        out[i] = rows[C.sums, i] / n + width * math.sqrt(log_visits / n) if n > 0.0 else math.inf


@kernel
def draw_largest(scores, uniform):
    """Replace scores by equal shares of the largest ones, and draw an arm."""
    play_largest(scores, 1.0)
    arm = draw_arm(scores, uniform)
    return arm, scores[arm]


# settings with one number per arm


def per_arm(argument: str, value: Any, n_arms: int, *, high: float = 1.0, high_open: bool = False) -> Any:
    """Check one number for every arm, or one for each; return a float, or a mapping from arm numbers as strings.

    A mapping may leave out arms, which have 0, and name arms that are added later.

    >>> per_arm("shares", [0.25, 0.5], 2), per_arm("shares", 0.25, 2)
    ({'0': 0.25, '1': 0.5}, 0.25)
    """
    allowed = f"numbers in [0, {high:.6g}{')' if high_open else ']'}, one for all or one per arm ({n_arms})"
    repair = "Pass a float, a list with one number per arm, or a mapping from arm to number."
    given: dict[Any, Any]
    if isinstance(value, Mapping):
        given = dict(value)
    elif isinstance(value, str) or np.ndim(value) > 1 or (np.ndim(value) == 1 and len(value) != n_arms):
        raise InvalidArgument(argument, allowed, value, repair)
    else:
        given = dict(enumerate(value)) if np.ndim(value) == 1 else {None: value}
    found = {}
    for arm, number in given.items():
        is_arm = arm is None or (str(arm).isascii() and str(arm).isdigit())
        try:
            real = validate.as_float(number)
        except (TypeError, ValueError):
            real = math.nan
        if not (is_arm and 0.0 <= real <= high) or (high_open and real == high) or isinstance(number, bool):
            raise InvalidArgument(argument, allowed, value, f"Choose {argument} inside that range.")
        found["" if arm is None else str(int(arm))] = real
    return found.get("", found)


def of_arms(value: Any, arms: NDArray[np.int64]) -> Vector:
    """Return the number of each of these arms, from what `per_arm` returned."""
    if isinstance(value, Mapping):
        return np.array([value.get(str(arm), 0.0) for arm in arms.tolist()])
    return np.full(len(arms), float(value))


class PerArmPolicy(BasePolicy):
    """A policy whose setting `per_arm` has one number per arm, which it keeps in the row `row` of its memory."""

    per_arm: ClassVar[str]
    row: ClassVar[int]

    def _start(self, live: NDArray[np.bool_], *parts: Any, **named: Any) -> None:
        super()._start(live, *parts, **named)
        self._write_row(0)

    def _arms_added(self, first: int) -> None:
        self._write_row(first)

    def _write_row(self, first: int) -> None:
        arms = self._learned.live_arms[first:]
        self._memory.arms[self.row, first:] = of_arms(self.settings[self.per_arm], arms)

    def _check(self) -> None:
        super()._check()
        kept, expected = self._memory.arms[self.row], of_arms(self.settings[self.per_arm], self._learned.live_arms)
        if not np.array_equal(kept, expected):
            raise InvalidArgument(f"state: {self.per_arm}", f"those of its settings, {expected}", kept, DAMAGED)


def default_share(n_arms: Any) -> float:
    """Half an equal share."""
    return 0.5 / validate.integer("n_arms", n_arms, low=1)


def refuse_too_many(argument: str, value: Any, n_live: int, *, open_end: bool) -> None:
    """Raise unless so many live arms can have their numbers.

    With an open end each number is below 1/n_live; else n_live times the one number is at most 1.
    """
    largest = max(value.values(), default=0.0) if isinstance(value, Mapping) else value
    if largest * n_live >= 1.0 if open_end else not isinstance(value, Mapping) and largest * n_live > 1.0 + 1e-12:
        most = math.ceil(1.0 / largest) - 1 if open_end else int(1.0 / largest + 1e-12)
        repair = f"Retire an arm first, or construct the policy with lower {argument}."
        raise InvalidArgument("n_arms", f"at most {most} live arms with {argument} up to {largest:g}", n_live, repair)
