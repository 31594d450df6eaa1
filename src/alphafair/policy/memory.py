"""The memory of a policy: arrays with named cells, its regressors and random numbers, and reading snapshots.

`Layout` names the cells of one algorithm, `Memory` is the argument of its kernels, and `Learned` the memory of one
policy, with the accounts of retired arms.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument, shown
from alphafair.math.floors import GroupMemory, no_groups
from alphafair.math.least_squares import LEARNED, PER_ARM
from alphafair.values import State
from alphafair.values.arrays import Matrix, Vector, positions

DAMAGED = "The snapshot is damaged."
NOTHING = positions()
FEATURES = tuple(f"feature_{name}" for name in LEARNED)  # in snapshots of policies with features
ALWAYS = ("live", "retired_accounts", "entry_accounts")  # in every snapshot, besides the names of the layout
OF_PERIODS = ("period", "closed_rewards")  # in snapshots after the first period


class Memory(NamedTuple):
    """The argument of kernels. The layout of the algorithm names the cells of all fields but the last two.

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
    groups: GroupMemory
    features: Any = ()  # a `least_squares.FeatureMemory`, for algorithms that can use features


@dataclass(frozen=True)
class Layout:
    """The names of the cells of an algorithm's memory, each made with `positions`; no name occurs twice."""

    settings: Any = NOTHING
    scalars: Any = NOTHING
    arms: Any = NOTHING
    context_scalars: Any = NOTHING
    contexts: Any = NOTHING
    scratch: Any = NOTHING
    parts: Any = NOTHING
    only_with_groups: str | None = None  # the last row of `arms`, present with groups or entitlements
    may_be_infinite: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        learned = [
            name for part in (self.scalars, self.arms, self.context_scalars, self.contexts) for name in part._fields
        ]
        reserved = {*ALWAYS, *OF_PERIODS, *FEATURES, "group_accounts", "group_entry"}
        twice = {name for name in learned if learned.count(name) > 1} | {*learned} & reserved
        assert not twice, f"repeated names: {sorted(twice)}"

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
                if start < cells.shape[axis]:
                    place: Any = start if width == 1 else slice(start, start + width)
                    found[name] = cells[(slice(None),) * axis + (place, ...)]
        if memory.features:
            learned = {f"feature_{name}": getattr(memory.features, name) for name in LEARNED}
            found |= learned if len(memory.features.theta) else {}
        return found


def settings_vector(names: Any, values: Mapping[str, Any]) -> Vector:
    """Write the settings to a vector."""
    assert {*values} == {*names._fields}, f"expected settings {sorted(names._fields)}, got {sorted(values)}"
    vector = np.zeros(names.size)
    for name, value in values.items():
        start = getattr(names, name)
        vector[start : start + names.widths[name]] = value
    return vector


class Learned:
    """The memory of live arms, and the accounts of retired ones.

    `accounts_in` names the row of `arms` that holds accounts, or of `contexts` if every context has its own; None if
    there are none. Retired arms have no column; `retired_accounts` holds their accounts by arm number, `group_accounts`
    those of groups without a live arm. `entry_accounts` are the initial accounts of all arms: 1, or the account with
    which a later arm entered. A new period changes accounts and entry accounts: `period` is its number and the number
    of rounds before it, `closed_rewards` are the rewards of all earlier periods, `group_entry` the initial accounts of
    groups.
    """

    def __init__(self, layout: Layout, memory: Memory, live: NDArray[np.bool_], accounts_in: str | None) -> None:
        self.layout, self.memory, self.accounts_in = layout, memory, accounts_in
        self._storage = memory.context_scalars, memory.contexts
        self.live, self.live_arms, self.all_live = live, np.flatnonzero(live), bool(live.all())
        self.retired_accounts = self._retired_storage = np.zeros((len(self.accounts), len(live)))
        self.entry_accounts = self._entry_storage = np.ones((len(self.accounts), len(live)))
        self.closed_rewards = self._closed_storage = np.zeros_like(self.entry_accounts)
        self.group_accounts, self.group_entry = np.zeros(0), np.zeros(0)
        self.period, self.first_round = 0, 0

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
        cells = int(np.prod(self.memory.contexts.shape[1:])) + self.memory.context_scalars.shape[1]
        return 8 * int(cells + n_accounts)

    def named(self) -> dict[str, NDArray[Any]]:
        """Return views of everything learned about live arms, by name."""
        return self.layout.named(self.memory)

    # adding contexts, adding and retiring arms

    def add_contexts(self, first: Memory, n_contexts: int) -> None:
        """Extend to `n_contexts`, copying the only context of `first`; a MemoryError leaves everything unchanged."""
        scalars, rows = self._storage
        grown_scalars = more_rows(scalars, self.memory.context_scalars, n_contexts, first.context_scalars[0])
        grown_rows = more_rows(rows, self.memory.contexts, n_contexts, first.contexts[0])
        retired, entry = (self._retired_storage, self.retired_accounts), (self._entry_storage, self.entry_accounts)
        closed = (self._closed_storage, self.closed_rewards)
        if self.accounts_per_context:
            untouched = np.where(self.live, 0.0, 1.0)  # retired arms never took part in new contexts
            retired = more_rows(*retired, n_contexts, untouched)
            entry = more_rows(*entry, n_contexts, np.ones(self.n_arms))
            closed = more_rows(*closed, n_contexts, np.zeros(self.n_arms))
        self._storage = grown_scalars[0], grown_rows[0]
        self.memory = self.memory._replace(context_scalars=grown_scalars[1], contexts=grown_rows[1])
        self._retired_storage, self.retired_accounts = retired
        self._entry_storage, self.entry_accounts = entry
        self._closed_storage, self.closed_rewards = closed

    def change_arms(self, kept: NDArray[np.int64], n_new: int, *, features_of_arms: bool) -> None:
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
        memory = self.memory
        features = memory.features
        if features and features_of_arms:
            z = np.zeros((len(features.z), len(self.live_arms)))
            z[:1] = 1.0
            features = features._replace(z=z)
        elif features:
            features = features._replace(**{name: _columns(getattr(features, name), kept, n_new) for name in PER_ARM})
        self.memory = memory._replace(
            arms=_columns(memory.arms, kept, n_new),
            contexts=_columns(memory.contexts, kept, n_new),
            scratch=np.zeros((len(memory.scratch), len(self.live_arms))),
            features=features,
        )
        self._storage = self.memory.context_scalars, self.memory.contexts

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

    def count_rounds(self) -> None:
        """Record the number of rounds so far, if the algorithm counts them, as those before the current period."""
        names = self.layout.scalars
        self.first_round = int(self.memory.scalars[names.rounds]) if "rounds" in names._fields else 0

    def change_layout(self, layout: Layout, memory: Memory) -> None:
        """Move to the blank memory of another layout; what both layouts name is kept."""
        before = self.named()
        self.layout, self.memory = layout, memory
        self._storage = memory.context_scalars, memory.contexts
        for name, cells in self.named().items():
            if name in before:
                cells[...] = before[name]

    def column(self, arm: int) -> int:
        """Return the column of a live arm; -1 for a retired one."""
        place = int(np.searchsorted(self.live_arms, arm))
        return place if place < len(self.live_arms) and self.live_arms[place] == arm else -1

    # rewards of retired arms

    def book_late(self, contexts: NDArray[Any], arms: NDArray[Any], rewards: Vector) -> None:
        """Add one reward each to the accounts of retired arms."""
        if len(self.retired_accounts):
            np.add.at(self.retired_accounts, (np.minimum(contexts, len(self.retired_accounts) - 1), arms), rewards)

    def book_retired(self, contexts: Any, earned: Matrix) -> None:
        """Add rewards by context to the accounts of retired arms; columns of live arms are ignored."""
        if len(self.retired_accounts):  # one row for all contexts, or one for each
            rows = np.minimum(contexts, len(self.retired_accounts) - 1)
            np.add.at(self.retired_accounts, rows, np.where(self.live, 0.0, earned))

    # snapshots

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of everything learned, by name, for a State."""
        named = {**self.named(), "live": self.live}
        named |= {"retired_accounts": self.retired_accounts, "entry_accounts": self.entry_accounts}
        if len(self.group_accounts):
            named["group_accounts"] = self.group_accounts
        if self.period or self.first_round:
            named |= {"period": np.array([self.period, self.first_round]), "closed_rewards": self.closed_rewards}
        if (self.group_entry != 1.0).any():
            named["group_entry"] = self.group_entry
        return copies(named)

    def names(self, given: Collection[str] = ()) -> set[str]:
        """Return the names of the arrays in a snapshot, of which `given` are there."""
        names = {*self.named(), *ALWAYS}
        names |= {*OF_PERIODS} if "period" in given else set()
        if len(self.group_accounts):
            names |= {"group_accounts"} | ({"group_entry"} & {*given})
        return names

    def check_names(self, state: State, n_contexts: int) -> None:
        """Raise for a State with other arrays, or another number of contexts, before memory is allocated."""
        names = self.names(state.arrays)
        if {*state.arrays} != names:
            repair = "It is damaged, or belongs to other settings: try alphafair.load_policy(state)."
            raise InvalidArgument("state.arrays", f"named {sorted(names)}", sorted(state.arrays), repair)
        for name in (*self.layout.context_scalars._fields, *self.layout.contexts._fields):
            if np.shape(state.arrays[name])[:1] != (n_contexts,):
                got = f"shape {np.shape(state.arrays[name])}"
                raise InvalidArgument(f"state.arrays[{name!r}]", f"of {shown(n_contexts)} contexts", got, DAMAGED)

    def read(self, state: State) -> None:
        """Read the arrays of a State; their shapes must match."""
        for name, cells in self.named().items():
            cells[...] = array_of(state, name, np.float64, cells.shape)
            if not np.isfinite(cells).all() and name not in self.layout.may_be_infinite:
                raise InvalidArgument(f"state.arrays[{name!r}]", "finite", "infinite values", DAMAGED)
        retired = array_of(state, "retired_accounts", np.float64, self.retired_accounts.shape)
        self.retired_accounts = self._retired_storage = retired
        entry = array_of(state, "entry_accounts", np.float64, self.entry_accounts.shape)
        self.entry_accounts = self._entry_storage = entry
        if len(self.group_accounts):
            self.group_accounts = array_of(state, "group_accounts", np.float64, self.group_accounts.shape)
        if "group_entry" in state.arrays:
            self.group_entry = array_of(state, "group_entry", np.float64, self.group_entry.shape)
        if "period" in state.arrays:
            self.period, self.first_round = array_of(state, "period", np.int64, (2,)).tolist()
            closed = array_of(state, "closed_rewards", np.float64, self.closed_rewards.shape)
            self.closed_rewards = self._closed_storage = closed

    def check_accounts(self) -> None:
        """Raise for accounts below the initial 1, or in the wrong place."""
        live = self.live
        sound = (self.accounts >= 1.0).all() and (self.retired_accounts[:, ~live] >= 1.0).all()
        sound &= (self.entry_accounts >= 1.0).all() and (self.rewards_of_all >= 0.0).all()
        sound &= (self.closed_rewards >= 0.0).all() and np.isfinite(self.closed_rewards).all()
        sound &= (self.group_entry >= 1.0).all() and min(self.period, self.first_round) >= 0
        if not sound or self.retired_accounts[:, live].any() or not np.isfinite(self.accounts_of_all).all():
            raise InvalidArgument("state.arrays", "accounts of at least 1", self.accounts_of_all, DAMAGED)

    def copied_arrays(self) -> tuple[Any, ...]:
        """Return copies of everything that a log can change, for `put_back`."""
        return copies(self.named()), self.retired_accounts.copy(), self.group_accounts.copy()

    def put_back(self, arrays: tuple[Any, ...]) -> None:
        learned, retired, self.group_accounts = arrays
        for name, cells in self.named().items():
            cells[...] = learned[name]
        self.retired_accounts[...] = retired

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`, which do not preserve views; the policy restores the layout."""
        own = ("layout", "_storage", "_retired_storage", "_entry_storage", "_closed_storage")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._storage = self.memory.context_scalars, self.memory.contexts
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


def more_rows(storage: Matrix, rows: Matrix, n_rows: int, first: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """Extend to `n_rows` rows equal to `first`, in a storage that doubles, so that adding rows is amortised."""
    known = len(rows)
    if n_rows > len(storage):
        storage = np.empty((max(n_rows, 2 * known), *first.shape))
        storage[:known] = rows
    storage[known:n_rows] = first
    return storage, storage[:n_rows]


# regressors and random numbers


class RandomNumbers:
    """The random numbers of a policy, drawn in blocks for speed; `block` is the unused rest of one, reversed."""

    BLOCK = 256

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._generator = validate.random_generator("seed", seed)
        self._refill()

    def _refill(self) -> None:
        self._start = self._generator.bit_generator.state
        self.block: list[float] = self._generator.random(self.BLOCK)[::-1].tolist()

    def random(self) -> float:
        """Return the first number of a new block."""
        self._refill()
        return self.block.pop()

    def state(self) -> dict[str, Any]:
        """Return the state, for a snapshot."""
        return {"seed": self.seed, "generator": self._start, "used": self.BLOCK - len(self.block)}

    @classmethod
    def at(cls, state: Any) -> Self:
        """Continue from a state."""
        try:
            numbers = cls(state["seed"])
            numbers._generator.bit_generator.state = state["generator"]
            numbers._refill()
            used = validate.integer("used", state["used"], low=0, high=cls.BLOCK)
            del numbers.block[cls.BLOCK - used :]
            return numbers
        except (TypeError, KeyError, ValueError, OverflowError) as problem:
            raise InvalidArgument("state.rng", "the state of a PCG64 generator", state, DAMAGED) from problem


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


# reading snapshots


def check_state(state: Any) -> None:
    """Raise for anything but a State."""
    parts = (state.settings, state.rng, state.arrays) if isinstance(state, State) else (None,)
    if not all(isinstance(part, Mapping) for part in parts):
        raise InvalidArgument("state", "a State", state, "Use State.from_bytes or State.load.")


def check_kind(state: State, name: str, version: int) -> None:
    """Raise for a snapshot of another policy, or of another version."""
    check_state(state)
    if state.policy != name:
        raise InvalidArgument("state.policy", repr(name), state.policy, "Restore it into a policy of that name.")
    if state.version != version:
        repair = DAMAGED
        if isinstance(state.version, int):
            repair = "It was written by a newer version: update alphafair."
            if state.version < version:
                repair = "It was written by an older version: load it there, or learn from the log again."
        raise InvalidArgument("state.version", str(version), state.version, repair)


def checked_state(state: State, settings: Iterable[str]) -> tuple[int, NDArray[np.bool_]]:
    """Return the number of contexts and the live arms; raise unless the snapshot has exactly these settings."""
    names, known = set(state.settings), {"n_contexts", "n_arms", *settings}
    if names != known:
        repair = "It is damaged, or belongs to other settings: try alphafair.load_policy(state)."
        raise InvalidArgument("state.settings", f"named {sorted(known)}", sorted(names), repair)
    return validate.integer("state.settings['n_contexts']", state.settings["n_contexts"], low=1), live_of(state)


def live_of(state: State) -> NDArray[np.bool_]:
    """Return which arms of a snapshot are live."""
    n_arms = validate.integer("state.settings['n_arms']", state.settings.get("n_arms"), low=1)
    live = array_of(state, "live", np.bool_, (n_arms,))
    if not live.any():
        raise InvalidArgument("state.arrays['live']", "true for some arm", live, DAMAGED)
    return live


def array_of(state: State, key: str, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Check an array of a State, and return a copy."""
    array: Any = state.arrays.get(key)
    known = isinstance(array, np.ndarray)
    got = f"{array.dtype} of shape {array.shape}" if known else type(array).__name__
    if not known or array.shape != shape or array.dtype != kind or np.isnan(array).any():
        allowed = f"{np.dtype(kind)} of shape {shape} without NaN"
        raise InvalidArgument(f"state.arrays[{key!r}]", allowed, got, DAMAGED)
    return np.array(array, order="C")
