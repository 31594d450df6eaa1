"""The mathematics, as plain functions on arrays: they never validate, draw random numbers or log.

Every policy is a few kernels on two arrays of memory (see `memory` for how a row is laid out):

    draw(work, shared, learners, context, uniform, out) -> (arm, propensity)       writes the distribution to `out`
    learn(work, shared, learners, context, probabilities, rewards)                 full information
    learn(work, shared, learners, context, arm, propensity, reward) -> bool        bandit feedback
    change_arms(work, shared, learners, kept, entries) -> (shared, learners)       arms come and go

`shared` (1, row, column) is what all contexts have in common; `learners` (context, row, column) has a block of rows per
context; `work` has the settings and scratch rows. A bandit's `learn` says whether it accepted: False, and nothing
changed, where the policy cannot have drawn an arm so rarely. `change_arms` is not compiled: it is given the columns
that stay and an account for every new arm (NaN: the least there is), and makes new arrays. `loops` calls the first two
once per round, which is why stepwise and compiled runs agree to the last bit.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, Self


class Kernels(NamedTuple):
    """What a policy is made of; `learn_in_order` is a quicker `learn` where nothing is late or masked."""

    draw: Callable[..., tuple[int, float]]
    learn: Callable[..., bool | None]
    change_arms: Callable[..., tuple[Any, Any]]
    learn_in_order: Callable[..., bool | None] | None = None
    expect: Callable[..., None] | None = None  # (work, shared, learners, context, arm): its reward is on its way
    forgo: Callable[..., None] | None = None  # it will never come
    show: Callable[..., None] | None = None  # (work, features, t): row t describes the round that comes next
    mask: Callable[..., None] | None = None  # (work, probabilities, available): in place; by default renormalised

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> Any:
        """Pickled by name: a policy's file must not bring code of its own."""
        return _found, tuple(kernel and (kernel.__module__, kernel.__qualname__) for kernel in self)


def _found(*names: tuple[str, str] | None) -> Kernels:
    kernels: Any = [name and getattr(import_module(name[0]), name[1]) for name in names]
    return Kernels(*kernels)
