"""`PlainPolicy`: a policy from two plain Python methods, a distribution and what to learn. Nothing is compiled.

It is a `BasePolicy` whose kernels are these two methods and whose memory is named by `Array`, `Number` and `Accounts`
in the body of the class. Choosing, masks, arms that come and go, snapshots, threads, simulation, the engine and
`alphafair check` are those of all policies.

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

from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair.errors import InvalidArgument
from alphafair.math.distributions import draw_arm
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout, Memory
from alphafair.values.arrays import Vector, positions

Axis = Literal["contexts", "arms"] | int
PARTS = {  # of a policy's memory, by whether it has a row per context and a column per arm
    (False, False): "scalars",
    (False, True): "arms",
    (True, False): "context_scalars",
    (True, True): "contexts",
}


class StoredValue:
    """Something that a policy keeps: it is in its snapshots under the name of the attribute."""

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
        """As `positions` takes it."""
        widths = [axis for axis in self.axes if isinstance(axis, int)]
        return f"{self.name}[{widths[0]}]" if widths else self.name

    def first_value(self, policy: PlainPolicy) -> float:
        return float(policy.settings[self.first]) if isinstance(self.first, str) else self.first


class Number(StoredValue):
    """A float that a policy keeps; `first` is what it starts with, or the name of the setting that says it."""

    def __init__(self, first: float | str = 0.0) -> None:
        self.first = first

    @overload
    def __get__(self, policy: None, owner: type) -> Self: ...
    @overload
    def __get__(self, policy: PlainPolicy, owner: type) -> float: ...
    def __get__(self, policy: PlainPolicy | None, owner: type) -> Any:
        return self if policy is None else float(policy._stored[self.name])


class Array(StoredValue):
    """A NumPy array of floats that a policy keeps.

    Axes, in this order and each of them optional: `"contexts"`, a fixed number of at least 2, `"arms"`. An axis of arms
    has the live ones. New contexts and new arms start with `first`: a number, or the name of the setting that says it.
    """

    def __init__(self, *axes: Axis, first: float | str = 0.0) -> None:
        widths = [axis for axis in axes if isinstance(axis, int)]
        known = [*(["contexts"] if "contexts" in axes else []), *widths, *(["arms"] if "arms" in axes else [])]
        if not axes or list(axes) != known or len(widths) > 1 or min(widths, default=2) < 2:
            allowed = "'contexts', a number of at least 2 and 'arms', in this order, some of them left out"
            raise InvalidArgument("axes", allowed, axes, "Use Number for a single number, two arrays for more axes.")
        self.axes, self.first = axes, first

    @overload
    def __get__(self, policy: None, owner: type) -> Self: ...
    @overload
    def __get__(self, policy: PlainPolicy, owner: type) -> NDArray[np.float64]: ...
    def __get__(self, policy: PlainPolicy | None, owner: type) -> Any:
        return self if policy is None else policy._stored[self.name]


class Accounts(Array):
    """What every arm has earned, and 1: an array of `"arms"`, or of `"contexts", "arms"`; a policy has one at most.

    The policy then has `accounts` and `cumulative_rewards`. `learn` adds what was earned; rewards of retired arms are
    booked by themselves. New arms enter as `grow` says: with the least account of the others, unless told otherwise.
    """

    def __init__(self, *axes: Axis) -> None:
        super().__init__(*(axes or ("arms",)), first=1.0)


class PlainPolicy(BasePolicy):
    """Derive from it: give a `name` and a `feedback`, name what is kept, write `distribution` and `learn`.

    - `distribution(context)`: one probability per live arm; changes nothing.
    - `learn(context, arm, propensity, reward)` under bandit feedback, with full information `learn(context,
      probabilities, rewards)`: one round, perhaps late.
    - `arms_added(first)`, if need be: columns from `first` on are new.

    Only live arms are shown to these methods: a distribution has an entry, and an array of arms a column, for each of
    them, in their order, and `arm` is its place among them. (`n_arms` counts retired arms too.) `__init__` takes
    `n_contexts`, `n_arms`, settings by name and `seed`, checks the settings, and passes all of them on.

    Every call has the policy for itself, so `learn` needs no lock. What it raises, `update` raises; it should do so
    before it has changed anything.
    """

    _kinds: ClassVar[dict[str, StoredValue]] = {}  # what is kept, by name
    _stored: dict[str, NDArray[np.float64]]  # the same in this policy: views of its memory

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
        layout = Layout(**named, may_be_infinite=tuple(cls._kinds))
        accounts = [name for name, kept in cls._kinds.items() if isinstance(kept, Accounts)]
        if len(accounts) > 1:
            raise InvalidArgument(cls.__name__, "a class with one Accounts at most", accounts, "Use Array for others.")
        nothing: Any = None  # `_draw_interpreted` and `_learn_interpreted` call the methods themselves
        cls.algorithm = Algorithm(layout, nothing, nothing, accounts=accounts[0] if accounts else None)

    # what a subclass says

    def distribution(self, context: int) -> ArrayLike:
        """One probability per live arm; changes nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no method distribution(context)")

    def learn(self, *args: Any, **kwargs: Any) -> None:
        """Learn from one round: `learn(context, arm, propensity, reward)` under bandit feedback, with full information
        `learn(context, probabilities, rewards)`. Rounds may come late and in any order.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method learn")

    def arms_added(self, first: int) -> None:
        """Arms have come: columns from `first` on are new, and hold first values; write others here, if need be."""

    # what `BasePolicy` asks for

    def _plays_whole_runs(self) -> bool:
        return False

    def _keeps_group_accounts(self) -> bool:
        return False

    def _blank(self, n_contexts: int, n_live: int) -> Memory:
        memory = super()._blank(n_contexts, n_live)
        views = self._algorithm.layout.named(memory)
        for name, kept in self._kinds.items():
            views[name][...] = kept.first_value(self)
        return memory

    def _memory_changed(self) -> None:
        super()._memory_changed()
        self._stored = self._algorithm.layout.named(self._memory)

    def _shareable(self) -> dict[str, Any]:
        return {name: value for name, value in super()._shareable().items() if name != "_stored"}

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        super()._change_arms(kept, entries)
        if not len(entries):
            return
        for name, kind in self._kinds.items():
            if "arms" in kind.axes:
                cells = self._stored[name]
                least = cells[..., : len(kept)].min(axis=-1, keepdims=True)
                entering = np.where(np.isnan(entries), least, entries)
                cells[..., len(kept) :] = entering if isinstance(kind, Accounts) else kind.first_value(self)
        self.arms_added(len(kept))
        self._learned.note_entries(len(kept))

    def _draw_interpreted(self, *arguments: Any) -> tuple[int, float]:
        _, context, uniform, out = arguments
        given = self.distribution(context)
        try:
            p = np.asarray(given, dtype=np.float64)
            total = float(p.sum())
        except (TypeError, ValueError):
            p, total = np.empty(0), 0.0
        if p.shape != out.shape or not (p >= 0.0).all() or not abs(total - 1.0) <= 1e-6:
            allowed = f"{len(out)} probabilities, one per live arm, that sum to 1"
            repair = "Arrays of arms have a column per live arm; n_arms counts retired arms too."
            raise InvalidArgument(f"{self.__class__.__name__}.distribution({context})", allowed, given, repair)
        out[:] = p / total
        arm = draw_arm(out, uniform)
        return arm, float(out[arm])

    def _learn_interpreted(self, *arguments: Any) -> bool:
        self.learn(*arguments[1:])
        return True
