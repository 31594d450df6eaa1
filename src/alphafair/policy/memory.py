"""The memory of a policy: arrays with named cells.

`Layout` names the cells of one algorithm, `Memory` is the argument of its kernels, and `LearnedState` is everything
that one policy has learned, the accounts of retired arms included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.math.floors import no_groups
from alphafair.math.least_squares import LEARNED, PER_ARM, feature_memory
from alphafair.math.two_sides import add_late
from alphafair.values.arrays import Matrix, Vector, positions

if TYPE_CHECKING:
    from alphafair.policy.algorithm import Algorithm
    from alphafair.policy.group_accounts import GroupAccounts
    from alphafair.policy.regressors import Regressors

DAMAGED = "The snapshot is damaged."
NOTHING = positions()
FEATURES = tuple(f"feature_{name}" for name in LEARNED)  # in snapshots of policies with features
OTHERS = "others_"  # before the names of `Memory.others`, in snapshots of policies that have observed others
ALWAYS = ("live", "retired_accounts", "entry_accounts")  # in every snapshot, besides the names of the layout
OF_PERIODS = ("period", "closed_rewards")  # in snapshots after the first period


class Memory(NamedTuple):
    """The argument of kernels. The layout of the algorithm names the cells of all fields but the last three.

    `scalars`, `arms[name, arm]`, `context_scalars[context, name]`, `contexts[context, name, arm]` and parts of
    `features` are learned. `settings` are the settings of the policy as numbers. `scratch[name, arm]` and `parts` are
    work space. Arms are the live ones.
    """

    settings: Any
    scalars: Any
    arms: Any
    context_scalars: Any
    contexts: Any
    scratch: Any
    parts: Any
    groups: Any  # a `floors.GroupMemory`
    features: Any = ()  # a `least_squares.FeatureMemory`, for algorithms that can use features
    others: Any = ()  # a `Memory` without groups, once decisions of others were observed: what all of them taught


@dataclass(frozen=True)
class Layout:
    """The names of the cells of an algorithm's memory, each made with `positions`; no name occurs twice.

    `others` is the layout of `Memory.others`, whose cells begin as copies of those with the same name, for algorithms
    that can use features.
    """

    settings: Any = NOTHING
    scalars: Any = NOTHING
    arms: Any = NOTHING
    context_scalars: Any = NOTHING
    contexts: Any = NOTHING
    scratch: Any = NOTHING
    parts: Any = NOTHING
    only_with_groups: str | None = None  # the last row of `arms`, present with groups or entitlements
    may_be_infinite: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()  # of its cells
    others: Layout | None = None

    def __post_init__(self) -> None:
        learned = [
            name for part in (self.scalars, self.arms, self.context_scalars, self.contexts) for name in part._fields
        ]
        reserved = {*ALWAYS, *OF_PERIODS, *FEATURES, "group_accounts", "group_entry"}
        twice = {name for name in learned if learned.count(name) > 1} | {*learned} & reserved
        assert not twice, f"repeated names: {sorted(twice)}"
        assert not any(name.startswith(OTHERS) for name in learned), f"names that start with {OTHERS}"

    def blank(self, n_contexts: int, n_arms: int, *, pooled: bool = False, features: Any = ()) -> Memory:
        """Allocate a memory of zeros."""
        n_rows = self.arms.size - (0 if pooled or self.only_with_groups is None else 1)
        return Memory(
            np.zeros(self.settings.size),
            np.zeros(self.scalars.size),
            np.zeros((n_rows, n_arms)),
            np.zeros((n_contexts, self.context_scalars.size)),
            np.zeros((n_contexts, self.contexts.size, n_arms)),
            np.zeros((self.scratch.size, n_arms)),
            np.zeros(self.parts.size),
            no_groups(n_arms),
            features,
        )

    def names(self, features: Collection[str]) -> set[str]:
        """Return the names of `named`, with those of features that are among `features`."""
        parts = (self.scalars, self.arms, self.context_scalars, self.contexts)
        return {*(name for part in parts for name in part._fields), *({*FEATURES} & {*features})} - {*self.unused}

    def named(self, memory: Memory) -> dict[str, NDArray[Any]]:
        """Return views of everything learned, by name."""
        found: dict[str, NDArray[Any]] = {}
        for names, cells, axis in (
            (self.scalars, memory.scalars, 0),
            (self.arms, memory.arms, 0),
            (self.context_scalars, memory.context_scalars, 1),
            (self.contexts, memory.contexts, 1),
        ):
            for name, start in zip(names._fields, names, strict=True):
                width = names.widths[name]
                if start < cells.shape[axis] and name not in self.unused:
                    place: Any = start if width == 1 else slice(start, start + width)
                    found[name] = cells[(slice(None),) * axis + (place, ...)]
        if memory.features:
            learned = {f"feature_{name}": getattr(memory.features, name) for name in LEARNED}
            found |= learned if len(memory.features.theta) else {}
        if memory.others and self.others is not None:
            found |= {f"{OTHERS}{name}": cells for name, cells in self.others.named(memory.others).items()}
        return found


def linked(memory: Memory) -> Memory:
    """Return a memory whose `others` see its settings and the features of its round."""
    if not memory.others:
        return memory
    features = memory.others.features._replace(z=memory.features.z)
    return memory._replace(others=memory.others._replace(settings=memory.settings, features=features))


def settings_vector(names: Any, values: Mapping[str, Any]) -> Vector:
    """Write the settings to a vector."""
    assert {*values} == {*names._fields}, f"expected settings {sorted(names._fields)}, got {sorted(values)}"
    vector = np.zeros(names.size)
    for name, value in values.items():
        start = getattr(names, name)
        vector[start : start + names.widths[name]] = value
    return vector


class LearnedState:
    """Everything that a policy has learned: the memory of live arms, and the accounts of retired ones.

    `version` rises with every write. `accounts_in` names the row of `arms` that holds accounts, or of `contexts` if
    every context has its own; None if there are none. Retired arms have no column; `retired_accounts` holds their
    accounts by arm number, `group_accounts` those of groups without a live arm. `entry_accounts` are the initial
    accounts of all arms: 1, or the account with which a later arm entered. A new period changes accounts and entry
    accounts: `period` is its number and `first_round` the number of rounds before it, `closed_rewards` are the rewards
    of all earlier periods, `group_entry` the initial accounts of groups.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        n_contexts: int,
        live: NDArray[np.bool_],
        settings: Mapping[str, Any],
        *,
        groups: GroupAccounts | None = None,
        regressors: Regressors | None = None,
        n_features: int = 0,
        features_of_arms: bool = False,
    ) -> None:
        self.version = 0
        self.algorithm, self.groups, self.regressors = algorithm, groups, regressors
        self.n_features, self.features_of_arms = n_features, features_of_arms
        self.live, self.live_arms, self.all_live = live, np.flatnonzero(live), bool(live.all())
        if groups is not None:
            groups.live_groups = groups.groups.among(self.live_arms)
        self.accounts_in = self._accounts_row
        self.memory = self.blank(n_contexts, settings, n_ever=len(live))
        self._storage = storage_of(self.memory)
        self.retired_accounts = self._retired_storage = np.zeros((len(self.accounts), len(live)))
        self.retired_accounts[:, ~live] = 1.0
        self.entry_accounts = self._entry_storage = np.ones((len(self.accounts), len(live)))
        self.closed_rewards = self._closed_storage = np.zeros_like(self.entry_accounts)
        self.group_accounts, self.group_entry = np.zeros(0), np.zeros(0)
        if groups is not None and not groups.groups.is_default:
            self.group_accounts = np.ones(groups.groups.n_groups)
            self.group_accounts[groups.groups.of_arms[self.live_arms]] = 0.0
            self.group_entry = np.ones(groups.groups.n_groups)
        self.period, self.first_round = 0, 0

    def blank(self, n_contexts: int, settings: Mapping[str, Any], n_ever: int) -> Memory:
        """Return the initial memory of so many contexts and the live arms, of `n_ever` arms with the retired ones."""
        features: Any = ()
        if "FEATURES" in self.algorithm.flags:
            fits = self.n_features if self.regressors is None else 0
            features = feature_memory(fits, len(self.live_arms), of_arms=self.features_of_arms)
        memory = self.layout.blank(n_contexts, len(self.live_arms), pooled=self.pooled, features=features)
        memory = self.with_settings(memory, settings, n_ever)
        self.algorithm.start(memory)
        self.algorithm.start_contexts(memory)
        if self.groups is not None:
            if self.pooled:
                self.groups.start(memory, self.layout.arms.size - 1)
            self.groups.project(memory)
        return memory

    def with_settings(self, memory: Memory, settings: Mapping[str, Any], n_ever: int) -> Memory:
        """Return a memory with these settings, and the groups of the live arms."""
        groups = memory.groups if self.groups is None else self.groups.memory(n_ever)
        return linked(memory._replace(settings=settings_vector(self.layout.settings, settings), groups=groups))

    def begin_others(self) -> None:
        """Make `memory.others`, as a copy of what own decisions have taught so far."""
        layout = self.layout.others
        assert layout is not None
        own = self.memory.features
        features = own._replace(**{name: getattr(own, name).copy() for name in (*LEARNED, "lower")})
        others = layout.blank(len(self.memory.contexts), len(self.live_arms), features=features)._replace(groups=())
        known = self.named()
        for name, cells in layout.named(others).items():
            if name in known:
                cells[...] = known[name]
        self.memory = linked(self.memory._replace(others=others))
        self._storage = storage_of(self.memory)
        self.version += 1

    @property
    def pooled(self) -> bool:
        """Whether accounts are those of groups, or of arms with entitlements."""
        return self.groups is not None and self.groups.pooled

    @property
    def _accounts_row(self) -> str | None:
        return self.layout.only_with_groups if self.pooled else self.algorithm.accounts

    @property
    def in_order(self) -> bool:
        """Whether rewards of retired arms must be booked in order, because slopes or prices depend on them."""
        return self.pooled or self.algorithm.of_sides is not None

    @property
    def layout(self) -> Layout:
        return self.algorithm.layout

    @property
    def n_arms(self) -> int:
        return int(self.retired_accounts.shape[1])

    @property
    def accounts(self) -> Matrix:
        """A view of the accounts of live arms: one row, one per context, or none."""
        if self.accounts_in is None:
            return np.empty((0, len(self.live_arms)))
        if self.accounts_per_context:
            view: Matrix = self.memory.contexts[:, getattr(self.layout.contexts, self.accounts_in)]
            return view
        row = getattr(self.layout.arms, self.accounts_in)
        view = self.memory.arms[row : row + 1]
        return view

    @property
    def accounts_of_all(self) -> Matrix:
        """The accounts of all arms, including retired ones."""
        return self.per_arm(self.accounts) + self.retired_accounts

    @property
    def rewards_of_all(self) -> Matrix:
        """The rewards of all arms in this period, including retired ones."""
        return self.accounts_of_all - self.entry_accounts

    @property
    def accounts_per_context(self) -> bool:
        """Whether there is an account per arm and context."""
        return self.accounts_in is not None and self.accounts_in in self.layout.contexts._fields

    def per_arm(self, live: Matrix) -> Matrix:
        """Return one column per arm, with zeros for retired arms."""
        out = np.zeros((*live.shape[:-1], self.n_arms))
        out[..., self.live_arms] = live
        return out

    @property
    def bytes_per_context(self) -> int:
        """The size of the memory of one context."""
        n_accounts = 2 * self.n_arms if self.accounts_per_context else 0
        parts = [self.memory, *([self.memory.others] if self.memory.others else [])]
        cells = sum(int(np.prod(part.contexts.shape[1:])) + part.context_scalars.shape[1] for part in parts)
        return 8 * int(cells + n_accounts)

    def named(self) -> dict[str, NDArray[Any]]:
        """Return views of everything learned about live arms, by name."""
        return self.layout.named(self.memory)

    # adding contexts, adding and retiring arms: see `alphafair.policy.arms`

    def add_contexts(self, first: Memory, n_contexts: int) -> None:
        """Extend to `n_contexts`, copying the only context of `first`; a MemoryError leaves everything unchanged."""
        others, of_others = self.memory.others, self._storage.others
        storage, memory = more_contexts(self._storage, self.memory, first, n_contexts)
        if others and self.layout.others is not None:
            blank = self.layout.others.blank(1, len(self.live_arms))
            of_others, others = more_contexts(of_others, others, blank, n_contexts)
        retired, entry = (self._retired_storage, self.retired_accounts), (self._entry_storage, self.entry_accounts)
        closed = (self._closed_storage, self.closed_rewards)
        if self.accounts_per_context:
            untouched = np.where(self.live, 0.0, 1.0)  # retired arms never took part in new contexts
            retired = more_rows(*retired, n_contexts, untouched)
            entry = more_rows(*entry, n_contexts, np.ones(self.n_arms))
            closed = more_rows(*closed, n_contexts, np.zeros(self.n_arms))
        self._storage, self.memory = storage._replace(others=of_others), memory._replace(others=others)
        self._retired_storage, self.retired_accounts = retired
        self._entry_storage, self.entry_accounts = entry
        self._closed_storage, self.closed_rewards = closed
        self.version += 1

    def change_arms(self, kept: NDArray[np.int64], n_new: int) -> None:
        """Drop the columns that are not in `kept`, and append `n_new` columns of zeros."""
        self.retired_accounts[:, np.delete(self.live_arms, kept)] = np.delete(self.accounts, kept, axis=1)
        arrived = self.n_arms + np.arange(n_new)
        self.retired_accounts = self._retired_storage = np.pad(self.retired_accounts, ((0, 0), (0, n_new)))
        self.entry_accounts = self._entry_storage = np.pad(
            self.entry_accounts, ((0, 0), (0, n_new)), constant_values=1.0
        )
        self.closed_rewards = self._closed_storage = np.pad(self.closed_rewards, ((0, 0), (0, n_new)))
        self.live_arms = np.concatenate([self.live_arms[kept], arrived])
        self.live = np.isin(np.arange(self.n_arms), self.live_arms)
        self.all_live = bool(self.live.all())
        memory = self._with_arms(self.memory, kept, n_new)
        if memory.others:
            memory = memory._replace(others=self._with_arms(memory.others, kept, n_new))
        self.memory = memory  # `with_settings` comes next
        self._storage = storage_of(self.memory)
        self.version += 1

    def _with_arms(self, memory: Memory, kept: NDArray[np.int64], n_new: int) -> Memory:
        """Return a memory with the columns `kept`, followed by `n_new` columns of zeros."""
        features = memory.features
        if features and self.features_of_arms:
            z = np.zeros((len(features.z), len(kept) + n_new))
            z[:1] = 1.0
            features = features._replace(z=z)
        elif features:
            features = features._replace(**{name: _columns(getattr(features, name), kept, n_new) for name in PER_ARM})
        return memory._replace(
            arms=_columns(memory.arms, kept, n_new),
            contexts=_columns(memory.contexts, kept, n_new),
            scratch=np.zeros((len(memory.scratch), len(kept) + n_new)),
            features=features,
        )

    def pool_accounts(self) -> None:
        """Add or drop the row of the arms' own rewards, after groups came or went."""
        rows = self.layout.blank(1, self.memory.arms.shape[1], pooled=self.pooled).arms
        n_kept = min(len(rows), len(self.memory.arms))
        rows[:n_kept] = self.memory.arms[:n_kept]
        self.memory, self.accounts_in = self.memory._replace(arms=rows), self._accounts_row

    def note_entries(self, n_kept: int) -> None:
        """Record the current accounts of live arms after the first `n_kept`, which are new, as their entry accounts."""
        self.entry_accounts[:, self.live_arms[n_kept:]] = self.accounts[:, n_kept:]

    def new_period(self, carry: float) -> None:
        """Close the rewards of the period; every account becomes 1 + carry (R - 1), which is its new entry account."""
        self.closed_rewards = self._closed_storage = self.closed_rewards + self.rewards_of_all
        self.accounts[...] = 1.0 + carry * (self.accounts - 1.0)
        gone = ~self.live
        self.retired_accounts[:, gone] = 1.0 + carry * (self.retired_accounts[:, gone] - 1.0)
        self.entry_accounts[...] = self.accounts_of_all
        self.period += 1
        self.count_rounds()
        self.version += 1

    def count_rounds(self) -> None:
        """Record the number of rounds so far, if the algorithm counts them, as those before the current period."""
        names = self.layout.scalars
        self.first_round = int(self.memory.scalars[names.rounds]) if "rounds" in names._fields else 0

    def change_algorithm(self, algorithm: Algorithm, settings: Mapping[str, Any]) -> None:
        """Move to the blank memory of another algorithm; what both layouts name is kept."""
        before, others, n_contexts = self.named(), self.memory.others, len(self.memory.contexts)
        self.algorithm = algorithm
        if self.groups is not None:
            self.groups.algorithm = algorithm
        self.memory = linked(self.blank(n_contexts, settings, self.n_arms)._replace(others=others))
        self._storage = storage_of(self.memory)
        for name, cells in self.named().items():
            if name in before:
                cells[...] = before[name]
        self.version += 1

    def column(self, arm: int) -> int:
        """Return the column of a live arm; -1 for a retired one."""
        place = int(np.searchsorted(self.live_arms, arm))
        return place if place < len(self.live_arms) and self.live_arms[place] == arm else -1

    # rewards of retired arms

    def book_late(self, contexts: NDArray[Any], arms: NDArray[Any], rewards: Vector) -> None:
        """Add one reward each to the accounts of retired arms."""
        with np.errstate(all="ignore"):
            if len(self.retired_accounts):
                np.add.at(self.retired_accounts, (np.minimum(contexts, len(self.retired_accounts) - 1), arms), rewards)
            self._pay_contexts(contexts, rewards)
            self._groups_earned(arms, rewards)

    def book_retired(self, contexts: Any, earned: Matrix) -> None:
        """Add rewards by context to the accounts of retired arms; columns of live arms are ignored."""
        if self.all_live:
            return
        gone = np.flatnonzero(~self.live)
        with np.errstate(all="ignore"):
            if len(self.retired_accounts):  # one row for all contexts, or one for each
                rows = np.minimum(contexts, len(self.retired_accounts) - 1)
                np.add.at(self.retired_accounts, rows, np.where(self.live, 0.0, earned))
            self._pay_contexts(contexts, earned[:, gone].sum(axis=1))
            self._groups_earned(gone, earned[:, gone].sum(axis=0))

    def _pay_contexts(self, contexts: Any, amounts: Vector) -> None:
        """Add rewards of retired arms to the accounts of contexts."""
        if self.algorithm.of_sides is not None:
            add_late(*self.algorithm.of_sides(self.memory), contexts, amounts)
            if self.algorithm.sides_changed is not None:
                self.algorithm.sides_changed(self.memory)

    def _groups_earned(self, arms: NDArray[Any], amounts: Vector) -> None:
        """Add rewards of retired arms to the accounts of their groups."""
        if self.groups is not None and self.pooled:
            self.groups.retired_earned(self, arms, amounts)
        self.version += 1

    # copies

    def copied_arrays(self) -> tuple[Any, ...]:
        """Return copies of everything that a log can change, for `put_back`."""
        return copies(self.named()), self.retired_accounts.copy(), self.group_accounts.copy()

    def put_back(self, arrays: tuple[Any, ...]) -> None:
        learned, retired, self.group_accounts = arrays
        for name, cells in self.named().items():
            cells[...] = learned[name]
        self.retired_accounts[...] = retired
        self.version += 1

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`, which do not preserve views; the policy restores the algorithm."""
        own = ("algorithm", "_storage", "_retired_storage", "_entry_storage", "_closed_storage")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._storage = storage_of(self.memory)
        self._retired_storage, self._entry_storage = self.retired_accounts, self.entry_accounts
        self._closed_storage = self.closed_rewards


def copies(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copy arrays. Floats share one block, so that a lack of memory shows before anything is copied."""
    block = np.empty(sum(array.size for array in arrays.values() if array.dtype == np.float64))
    made: dict[str, NDArray[Any]] = {}
    start = 0
    for name, array in arrays.items():
        if array.dtype == np.float64:
            made[name] = block[start : start + array.size].reshape(array.shape)
            made[name][...] = array
            start += array.size
        else:
            made[name] = array.copy()
    return made


def _columns(cells: NDArray[Any], kept: NDArray[np.int64], n_new: int) -> NDArray[Any]:
    """Return the columns `kept`, followed by `n_new` columns of zeros."""
    changed = np.zeros((*cells.shape[:-1], len(kept) + n_new))  # in C order, which machine code relies on
    changed[..., : len(kept)] = cells[..., kept]
    return changed


class Storage(NamedTuple):
    """Arrays with spare rows, of which those of a memory that have a row per context are the first rows."""

    context_scalars: Any
    contexts: Any
    others: Any = ()  # the same of `Memory.others`


def storage_of(memory: Memory) -> Storage:
    """Return the arrays of a memory, without spare rows."""
    others = storage_of(memory.others) if memory.others else ()
    return Storage(memory.context_scalars, memory.contexts, others)


def more_contexts(storage: Storage, memory: Memory, first: Memory, n_contexts: int) -> tuple[Storage, Memory]:
    """Extend a memory to `n_contexts`, copying the only context of `first`, but not its `others`."""
    scalars = more_rows(storage.context_scalars, memory.context_scalars, n_contexts, first.context_scalars[0])
    rows = more_rows(storage.contexts, memory.contexts, n_contexts, first.contexts[0])
    return Storage(scalars[0], rows[0]), memory._replace(context_scalars=scalars[1], contexts=rows[1])


def more_rows(storage: Matrix, rows: Matrix, n_rows: int, first: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """Extend to `n_rows` rows equal to `first`, in a storage that doubles, so that adding rows is amortized."""
    known = len(rows)
    if n_rows > len(storage):
        storage = np.empty((max(n_rows, 2 * known), *first.shape))
        storage[:known] = rows
    storage[known:n_rows] = first
    return storage, storage[:n_rows]
