"""`PlainPolicy`: a policy from two plain Python methods, `distribution` and `learn`. Nothing is compiled.

It is a `BasePolicy` whose kernels are these two methods and whose memory is declared with `Array`, `Number` and
`Accounts` in the class body. Everything else works as for all policies: choosing, masks, adding and retiring arms,
snapshots, threads, simulation, the engine, `alphafair check`.

    class Greedy(PlainPolicy):
        name = "greedy"
        feedback = Feedback.FULL
        earned = Array("contexts", "arms")                     # zeros, a row per context, a column per live arm

        def __init__(self, n_contexts, n_arms, *, seed=None):
            super().__init__(n_contexts, n_arms, settings={}, seed=seed)

        def distribution(self, context):
            best = self.earned[context] == self.earned[context].max()
            return best / best.sum()

        def learn(self, context, probabilities, rewards):
            self.earned[context] += rewards
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair.errors import InvalidArgument
from alphafair.jit import Bundle
from alphafair.math.distributions import draw_arm
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout, Memory
from alphafair.policy.stepper import Stepper
from alphafair.values.arrays import Vector, positions

Axis = Literal["contexts", "arms"] | int
PARTS = {  # fields of `Memory`, by whether they have a row per context and a column per arm
    (False, False): "scalars",
    (False, True): "arms",
    (True, False): "context_scalars",
    (True, True): "contexts",
}


class StoredValue:
    """A value in the memory of a policy; snapshots hold it under the name of the attribute."""

    axes: tuple[Axis, ...] = ()
    first: float | str

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, policy: PlainPolicy, value: ArrayLike) -> None:
        policy._stored[self.name][...] = value

    @property
    def part(self) -> str:
        return PARTS["contexts" in self.axes, "arms" in self.axes]

    @property
    def position(self) -> str:
        """The argument for `positions`."""
        widths = [axis for axis in self.axes if isinstance(axis, int)]
        return f"{self.name}[{widths[0]}]" if widths else self.name

    def first_value(self, layout: Layout, memory: Memory) -> float:
        if isinstance(self.first, str):
            return float(memory.settings[getattr(layout.settings, self.first)])
        return self.first


class Number(StoredValue):
    """A float in the memory of a policy; `first` is its initial value, or the name of a setting."""

    def __init__(self, first: float | str = 0.0) -> None:
        self.first = first

    @overload
    def __get__(self, policy: None, owner: type) -> Self: ...
    @overload
    def __get__(self, policy: PlainPolicy, owner: type) -> float: ...
    def __get__(self, policy: PlainPolicy | None, owner: type) -> Any:
        return self if policy is None else float(policy._stored[self.name])


class Array(StoredValue):
    """A NumPy array of floats in the memory of a policy.

    Axes, in this order and each optional: `"contexts"`, a fixed number of at least 2, `"arms"` (the live ones). New
    contexts and new arms start with `first`: a number, or the name of a setting.
    """

    def __init__(self, *axes: Axis, first: float | str = 0.0) -> None:
        widths = [axis for axis in axes if isinstance(axis, int)]
        known = [*(["contexts"] if "contexts" in axes else []), *widths, *(["arms"] if "arms" in axes else [])]
        if not axes or list(axes) != known or len(widths) > 1 or min(widths, default=2) < 2:
            allowed = "some of 'contexts', an integer of at least 2, and 'arms', in this order"
            raise InvalidArgument("axes", allowed, axes, "Use Number for a single number, or two arrays for more axes.")
        self.axes, self.first = axes, first

    @overload
    def __get__(self, policy: None, owner: type) -> Self: ...
    @overload
    def __get__(self, policy: PlainPolicy, owner: type) -> NDArray[np.float64]: ...
    def __get__(self, policy: PlainPolicy | None, owner: type) -> Any:
        return self if policy is None else policy._stored[self.name]


class Accounts(Array):
    """1 + the rewards of every arm: an array of `"arms"`, or of `"contexts", "arms"`; at most one per policy.

    The policy then has `accounts` and `cumulative_rewards`. `learn` adds rewards; those of retired arms are added
    automatically. New arms enter with the account that `grow` is called with, by default the least of the others.
    """

    def __init__(self, *axes: Axis) -> None:
        super().__init__(*(axes or ("arms",)), first=1.0)


class PlainPolicy(BasePolicy):
    """Base class of policies in plain Python: set `name` and `feedback`, declare the memory, write two methods.

    - `distribution(context)` returns one probability per live arm and changes nothing.
    - `learn(context, arm, propensity, reward)` under bandit feedback, or `learn(context, probabilities, rewards)` with
      full information, learns from one round, possibly a late one.
    - `arms_added(first)`, optional: columns from `first` on are new.

    These methods see live arms only: a distribution has one entry, and an array of arms one column, per live arm, and
    `arm` is an index among them. (`n_arms` counts retired arms too.) `__init__` takes `n_contexts`, `n_arms`, settings
    by name and `seed`, validates the settings, and passes everything on.

    Calls are atomic, so `learn` needs no lock. `update` raises what `learn` raises; it should raise before it changes
    anything.
    """

    _kinds: ClassVar[dict[str, StoredValue]] = {}  # declarations by name

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        of_bases = {
            name: kept for base in reversed(cls.__mro__[1:]) for name, kept in getattr(base, "_kinds", {}).items()
        }
        own = {name: value for name, value in vars(cls).items() if isinstance(value, StoredValue)}
        cls._kinds = {**of_bases, **own}
        of_parts: dict[str, list[str]] = {part: [] for part in PARTS.values()}
        for kept in cls._kinds.values():
            of_parts[kept.part].append(kept.position)
        named = {part: positions(*names) for part, names in of_parts.items()}
        firsts = tuple(dict.fromkeys(kept.first for kept in cls._kinds.values() if isinstance(kept.first, str)))
        layout = Layout(**named, settings=positions(*firsts), may_be_infinite=tuple(cls._kinds))
        accounts = [name for name, kept in cls._kinds.items() if isinstance(kept, Accounts)]
        if len(accounts) > 1:
            raise InvalidArgument(
                cls.__name__, "a class with at most one Accounts", accounts, "Use Array for the others."
            )
        nothing: Any = None  # not used: `_PlainStepper` has its own steps
        of_contexts, others = (
            partial(
                _set_first,
                layout,
                {name: kept for name, kept in cls._kinds.items() if is_own == ("contexts" in kept.axes)},
            )
            for is_own in (True, False)
        )
        cls.algorithm = Algorithm(
            layout,
            nothing,
            nothing,
            start=others,
            start_contexts=of_contexts,
            admit=partial(_admit, layout, cls._kinds),
            accounts=accounts[0] if accounts else None,
        )

    # for subclasses to override

    def distribution(self, context: int) -> ArrayLike:
        """Return one probability per live arm; must not change anything."""
        raise NotImplementedError(f"{type(self).__name__} has no method distribution(context)")

    def learn(self, *args: Any, **kwargs: Any) -> None:
        """Learn from one round: `learn(context, arm, propensity, reward)` under bandit feedback, `learn(context,
        probabilities, rewards)` with full information. Rounds may come late and in any order.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method learn")

    def arms_added(self, first: int) -> None:
        """Initialize the columns of new arms, from `first` on, if their `first` values are not enough."""

    # overrides of `BasePolicy`

    def _keeps_group_accounts(self) -> bool:
        return False

    def _numbers(self) -> dict[str, float]:
        return {name: float(self.settings[name]) for name in self._own_algorithm().layout.settings._fields}

    @property
    def _stored(self) -> dict[str, NDArray[np.float64]]:
        """Views of the memory by name; made again when it has moved."""
        memory = self._learned.memory
        if self.__dict__.get("_viewed") is not memory:
            self._viewed, self._views = memory, self._learned.named()
        return self._views

    def _shareable(self) -> dict[str, Any]:
        return {name: value for name, value in super()._shareable().items() if name not in ("_viewed", "_views")}

    def _arms_added(self, first: int) -> None:
        self.arms_added(first)
        self._learned.note_entries(first)

    def _stepper_of(self, flags: Mapping[str, bool], bundle: Bundle, whole_runs: bool) -> Stepper:
        stepper = _PlainStepper(self._learned, self.feedback, flags, bundle, self._lock, whole_runs=False)
        stepper.policy = weakref.proxy(self)  # without a reference cycle, so that the policy is freed at once
        return stepper


class _PlainStepper(Stepper):
    """Steps that call `distribution` and `learn` of a policy."""

    policy: PlainPolicy

    def _call(self, name: str, kernel: Any, rounds: float, arguments: tuple[Any, ...], **flags: bool) -> Any:
        return kernel(*arguments)

    def draw(self, *arguments: Any) -> tuple[int, float]:
        _, context, uniform, out = arguments
        given = self.policy.distribution(context)
        try:
            p = np.asarray(given, dtype=np.float64)
            total = float(p.sum())
        except (TypeError, ValueError):
            p, total = np.empty(0), 0.0
        if p.shape != out.shape or not (p >= 0.0).all() or not abs(total - 1.0) <= 1e-6:
            allowed = f"{len(out)} probabilities with sum 1, one per live arm"
            repair = "Return one per live arm; n_arms counts retired arms too."
            name = f"{self.policy.__class__.__name__}.distribution({context})"
            raise InvalidArgument(name, allowed, given, repair)
        out[:] = p / total
        arm = draw_arm(out, uniform)
        return arm, float(out[arm])

    def learn(self, *arguments: Any) -> bool:
        self.policy.learn(*arguments[1:])
        return True


def _set_first(layout: Layout, kinds: Mapping[str, StoredValue], memory: Memory) -> None:
    """Write the first values of declarations to a memory."""
    views = layout.named(memory)
    for name, kept in kinds.items():
        views[name][...] = kept.first_value(layout, memory)


def _admit(
    layout: Layout, kinds: Mapping[str, StoredValue], memory: Memory, n_kept: int, some_left: bool, entries: Vector
) -> None:
    """Write the first values of new arms, and the accounts with which they enter."""
    views = layout.named(memory)
    for name, kept in kinds.items():
        if "arms" in kept.axes and len(entries):
            cells = views[name]
            least = cells[..., :n_kept].min(axis=-1, keepdims=True)
            entering = np.where(np.isnan(entries), least, entries)
            cells[..., n_kept:] = entering if isinstance(kept, Accounts) else kept.first_value(layout, memory)
