"""What a policy has learned: a few arrays whose cells have names, arms that come and go, snapshots.

`Layout` names the cells of one algorithm; `Memory` is what its kernels are given; `Learned` is what a policy holds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.math.floors import GroupMemory, no_groups
from alphafair.math.least_squares import LEARNED, PER_ARM
from alphafair.values import State
from alphafair.values.arrays import Matrix, Vector, positions

DAMAGED = "The snapshot is damaged."
NOTHING = positions()
FEATURES = tuple(f"feature_{name}" for name in LEARNED)  # in the snapshots of policies with features
ALWAYS = ("live", "retired_accounts", "entry_accounts")  # in every snapshot, beside what the layout names


class Memory(NamedTuple):
    """What kernels are given. The cells of all but the last two have the names that the algorithm's layout gives them.

    Learned are `scalars`, `arms[name, arm]`, `context_scalars[context, name]`, `contexts[context, name, arm]`, and
    `features` in part. `settings` are the policy's settings as numbers. `scratch[name, arm]` and `parts` are room to
    calculate in. Arms are the live ones.
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
    """The names of what an algorithm keeps, each made with `positions`; names are different from each other."""

    settings: Any = NOTHING
    scalars: Any = NOTHING
    arms: Any = NOTHING
    context_scalars: Any = NOTHING
    contexts: Any = NOTHING
    scratch: Any = NOTHING
    parts: Any = NOTHING
    only_with_groups: str | None = None  # the last row of `arms`, which is there with groups or entitlements
    may_be_infinite: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        learned = [
            name for part in (self.scalars, self.arms, self.context_scalars, self.contexts) for name in part._fields
        ]
        twice = {name for name in learned if learned.count(name) > 1} | {*learned} & {
            *ALWAYS,
            *FEATURES,
            "group_accounts",
        }
        assert not twice, f"names that stand for two things: {sorted(twice)}"

    def blank(self, n_contexts: int, n_arms: int, *, pooled: bool = False, features: Any = ()) -> Memory:
        """Zeros everywhere."""
        n_rows = self.arms.size - (0 if pooled or self.only_with_groups is None else 1)
        return Memory(
            np.zeros(self.settings.size),
            np.zeros(self.scalars.size),
            np.zeros((n_rows, n_arms)),
            np.zeros((n_contexts, self.context_scalars.size)),
            np.zeros((n_contexts, self.contexts.size, n_arms)),
            np.zeros((self.scratch.size, n_arms)),
            np.zeros(self.parts.size),
            no_groups(),
            features,
        )

    def named(self, memory: Memory) -> dict[str, NDArray[Any]]:
        """Views of all that is learned, by name."""
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
    """Settings as numbers, in their cells."""
    assert {*values} == {*names._fields}, f"settings {sorted(names._fields)}, values for {sorted(values)}"
    vector = np.zeros(names.size)
    for name, value in values.items():
        start = getattr(names, name)
        vector[start : start + names.widths[name]] = value
    return vector


class Learned:
    """Memory for live arms, and what is remembered of those that have left.

    `accounts_in` names the row in which accounts stand, if any: of `arms`, or of `contexts`, where every context has
    accounts of its own. Retired arms have no column any more; `retired_accounts` keeps theirs under their numbers, and
    `group_accounts` those of groups that are left without an arm. `entry_accounts` are what all arms began with: 1, or
    what one that came later was taken to have earned.
    """

    def __init__(self, layout: Layout, memory: Memory, live: NDArray[np.bool_], accounts_in: str | None) -> None:
        self.layout, self.memory, self.accounts_in = layout, memory, accounts_in
        self._storage = memory.context_scalars, memory.contexts
        self.live, self.live_arms, self.all_live = live, np.flatnonzero(live), bool(live.all())
        self.retired_accounts = self._retired_storage = np.zeros((len(self.accounts), len(live)))
        self.entry_accounts = self._entry_storage = np.ones((len(self.accounts), len(live)))
        self.group_accounts = np.zeros(0)

    @property
    def n_arms(self) -> int:
        return int(self.retired_accounts.shape[1])

    @property
    def accounts(self) -> Matrix:
        """Accounts of live arms, a view: one row, one per context, or none."""
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
        """Accounts of every arm, retired ones included."""
        return self.per_arm(self.accounts) + self.retired_accounts

    @property
    def rewards_of_all(self) -> Matrix:
        """What every arm has earned, retired ones included."""
        return self.accounts_of_all - self.entry_accounts

    @property
    def accounts_per_context(self) -> bool:
        """Whether there is an account per arm and context."""
        return self.accounts_in is not None and self.accounts_in in self.layout.contexts._fields

    def per_arm(self, live: Matrix) -> Matrix:
        """One column per arm, from those of the live ones; retired arms have none of it."""
        out = np.zeros((*live.shape[:-1], self.n_arms))
        out[..., self.live_arms] = live
        return out

    @property
    def bytes_per_context(self) -> int:
        """What is kept for a context."""
        n_accounts = 2 * self.n_arms if self.accounts_per_context else 0
        cells = int(np.prod(self.memory.contexts.shape[1:])) + self.memory.context_scalars.shape[1]
        return 8 * int(cells + n_accounts)

    def named(self) -> dict[str, NDArray[Any]]:
        """Views of all that is learned about live arms, by name."""
        return self.layout.named(self.memory)

    # contexts and arms that come and go

    def add_contexts(self, first: Memory, n_contexts: int) -> None:
        """Rows for so many contexts, each as the only one of `first`; or a MemoryError and nothing changed."""
        scalars, rows = self._storage
        grown_scalars = more_rows(scalars, self.memory.context_scalars, n_contexts, first.context_scalars[0])
        grown_rows = more_rows(rows, self.memory.contexts, n_contexts, first.contexts[0])
        retired, entry = (self._retired_storage, self.retired_accounts), (self._entry_storage, self.entry_accounts)
        if self.accounts_per_context:
            untouched = np.where(self.live, 0.0, 1.0)  # where retired arms never took part
            retired = more_rows(*retired, n_contexts, untouched)
            entry = more_rows(*entry, n_contexts, np.ones(self.n_arms))
        self._storage = grown_scalars[0], grown_rows[0]
        self.memory = self.memory._replace(context_scalars=grown_scalars[1], contexts=grown_rows[1])
        self._retired_storage, self.retired_accounts = retired
        self._entry_storage, self.entry_accounts = entry

    def change_arms(self, kept: NDArray[np.int64], n_new: int, *, features_of_arms: bool) -> None:
        """Leave out the columns that were not kept, and add zeros for new ones at the end."""
        self.retired_accounts[:, np.delete(self.live_arms, kept)] = np.delete(self.accounts, kept, axis=1)
        arrived = self.n_arms + np.arange(n_new)
        self.retired_accounts = self._retired_storage = np.pad(self.retired_accounts, ((0, 0), (0, n_new)))
        self.entry_accounts = self._entry_storage = np.pad(
            self.entry_accounts, ((0, 0), (0, n_new)), constant_values=1.0
        )
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
        """Arms after the first `n_kept` live ones are new: what they have now is what they enter with."""
        self.entry_accounts[:, self.live_arms[n_kept:]] = self.accounts[:, n_kept:]

    def column(self, arm: int) -> int:
        """Where a live arm stands; -1 for a retired one."""
        place = int(np.searchsorted(self.live_arms, arm))
        return place if place < len(self.live_arms) and self.live_arms[place] == arm else -1

    # rewards of retired arms

    def book_late(self, contexts: NDArray[Any], arms: NDArray[Any], rewards: Vector) -> None:
        """Rewards of retired arms, one each."""
        if len(self.retired_accounts):
            np.add.at(self.retired_accounts, (np.minimum(contexts, len(self.retired_accounts) - 1), arms), rewards)

    def book_retired(self, contexts: Any, earned: Matrix) -> None:
        """What retired arms still earn, by context; columns of live arms do not count."""
        if len(self.retired_accounts):  # one row for all contexts, or one for each
            rows = np.minimum(contexts, len(self.retired_accounts) - 1)
            np.add.at(self.retired_accounts, rows, np.where(self.live, 0.0, earned))

    # snapshots

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copies of all that is learned, by name, for a State."""
        named = {**self.named(), "live": self.live}
        named |= {"retired_accounts": self.retired_accounts, "entry_accounts": self.entry_accounts}
        if len(self.group_accounts):
            named["group_accounts"] = self.group_accounts
        return copies(named)

    def names(self) -> set[str]:
        """Those of the arrays of a snapshot."""
        names = {*self.named(), *ALWAYS}
        return names | {"group_accounts"} if len(self.group_accounts) else names

    def check_names(self, state: State, n_contexts: int) -> None:
        """Refuse a State with other arrays than this memory, or another number of contexts, before room is made."""
        if {*state.arrays} != self.names():
            repair = "It is damaged, or alphafair.load_policy(state) builds the policy that it belongs to."
            raise InvalidArgument("state.arrays", f"named {sorted(self.names())}", sorted(state.arrays), repair)
        for name in (*self.layout.context_scalars._fields, *self.layout.contexts._fields):
            if np.shape(state.arrays[name])[:1] != (n_contexts,):
                got = f"shape {np.shape(state.arrays[name])}"
                raise InvalidArgument(f"state.arrays[{name!r}]", f"of {n_contexts} contexts", got, DAMAGED)

    def read(self, state: State) -> None:
        """Take the arrays of a State, which must have the shapes of those that are there."""
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

    def check_accounts(self) -> None:
        """Accounts never fall below the initial 1, and live arms have theirs among the live."""
        live = self.live
        sound = (self.accounts >= 1.0).all() and (self.retired_accounts[:, ~live] >= 1.0).all()
        sound &= (self.entry_accounts >= 1.0).all() and (self.rewards_of_all >= 0.0).all()
        if not sound or self.retired_accounts[:, live].any() or not np.isfinite(self.accounts_of_all).all():
            raise InvalidArgument("state.arrays", "accounts of at least 1", self.accounts_of_all, DAMAGED)

    def copied_arrays(self) -> tuple[Any, ...]:
        """All that a log can change, to be put back by `put_back`."""
        return copies(self.named()), self.retired_accounts.copy(), self.group_accounts.copy()

    def put_back(self, arrays: tuple[Any, ...]) -> None:
        learned, retired, self.group_accounts = arrays
        for name, cells in self.named().items():
            cells[...] = learned[name]
        self.retired_accounts[...] = retired

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`, which would cut arrays loose from their views; the policy has the layout."""
        own = ("layout", "_storage", "_retired_storage", "_entry_storage")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._storage = self.memory.context_scalars, self.memory.contexts
        self._retired_storage, self._entry_storage = self.retired_accounts, self.entry_accounts


def copies(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copies of some arrays. Numbers go into one block: where memory is short it is there for all of them, or none."""
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
    """The same rows with the arms that stay, in their order, and zeros for new ones after them."""
    changed = np.zeros((*cells.shape[:-1], len(kept) + n_new))  # in C order, as machine code takes it for granted
    changed[..., : len(kept)] = cells[..., kept]
    return changed


def more_rows(storage: Matrix, rows: Matrix, n_rows: int, first: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """So many rows, all new ones alike, in a storage that doubles: growing one by one costs no more than at once."""
    known = len(rows)
    if n_rows > len(storage):
        storage = np.empty((max(n_rows, 2 * known), *first.shape))
        storage[:known] = rows
    storage[known:n_rows] = first
    return storage, storage[:n_rows]


# besides the arrays


class RandomNumbers:
    """`generator.random()` one by one, drawn a block at a time for speed; `block` is what is left of one, reversed."""

    BLOCK = 256

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._generator = validate.random_generator("seed", seed)
        self._refill()

    def _refill(self) -> None:
        self._start = self._generator.bit_generator.state
        self.block: list[float] = self._generator.random(self.BLOCK)[::-1].tolist()

    def random(self) -> float:
        """The first number of a new block, where the last is used up."""
        self._refill()
        return self.block.pop()

    def state(self) -> dict[str, Any]:
        """All that is needed to go on from here."""
        return {"seed": self.seed, "generator": self._start, "used": self.BLOCK - len(self.block)}

    @classmethod
    def at(cls, state: Any) -> Self:
        """Going on from there."""
        try:
            numbers = cls(state["seed"])
            numbers._generator.bit_generator.state = state["generator"]
            numbers._refill()
            used = validate.integer("used", state["used"], low=0, high=cls.BLOCK)
            del numbers.block[cls.BLOCK - used :]
            return numbers
        except (TypeError, KeyError, ValueError) as problem:
            repair = "The snapshot is damaged."
            raise InvalidArgument("state.rng", "the state of a PCG64 generator", state, repair) from problem


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


# reading snapshots


def check_state(state: Any) -> None:
    """Refuse what is no snapshot at all."""
    parts = (state.settings, state.rng, state.arrays) if isinstance(state, State) else (None,)
    if not all(isinstance(part, Mapping) for part in parts):
        raise InvalidArgument("state", "a State", state, "Make one with State.from_bytes or State.load.")


def check_kind(state: State, name: str, version: int) -> None:
    """Refuse a snapshot of another policy, or of another version of this one."""
    check_state(state)
    if state.policy != name:
        raise InvalidArgument("state.policy", repr(name), state.policy, "Restore it into a policy of its own kind.")
    if state.version != version:
        repair = DAMAGED
        if isinstance(state.version, int):
            repair = "It was written by a newer alphafair: update this one."
            if state.version < version:
                repair = "Its memory is laid out as in an older alphafair: start afresh, or load it there."
        raise InvalidArgument("state.version", str(version), state.version, repair)


def checked_state(state: State, settings: Iterable[str]) -> tuple[int, NDArray[np.bool_]]:
    """The number of contexts and the live arms of a snapshot that has these settings and no others."""
    names, known = set(state.settings), {"n_contexts", "n_arms", *settings}
    if names != known:
        repair = "It is damaged, or alphafair.load_policy(state) builds the policy that it belongs to."
        raise InvalidArgument("state.settings", f"named {sorted(known)}", sorted(names), repair)
    return validate.integer("state.settings['n_contexts']", state.settings["n_contexts"], low=1), live_of(state)


def live_of(state: State) -> NDArray[np.bool_]:
    """Which arms of a snapshot are live."""
    n_arms = validate.integer("state.settings['n_arms']", state.settings.get("n_arms"), low=1)
    live = array_of(state, "live", np.bool_, (n_arms,))
    if not live.any():
        raise InvalidArgument("state.arrays['live']", "true for some arm", live, DAMAGED)
    return live


def array_of(state: State, key: str, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """One of a State's arrays, a copy."""
    array: Any = state.arrays.get(key)
    known = isinstance(array, np.ndarray)
    got = f"{array.dtype} of shape {array.shape}" if known else type(array).__name__
    if not known or array.shape != shape or array.dtype != kind or np.isnan(array).any():
        allowed = f"{np.dtype(kind)} of shape {shape} without NaN"
        raise InvalidArgument(f"state.arrays[{key!r}]", allowed, got, DAMAGED)
    return np.array(array, order="C")
