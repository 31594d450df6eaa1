"""What a policy has learned, as a value: two arrays with a column per live arm, and which arms those are."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.kernels.memory import ARMS
from alphafair.types import Matrix, State, Vector

ARRAYS = ("shared", "learners", "live", "retired_accounts")  # of a State, and "group_accounts" where there are any
DAMAGED = "The snapshot is damaged."
Row = tuple[str, int]  # an array of the memory and a row of it


class Memory:
    """`shared` for all contexts, `learners` with a block per context; see `alphafair.kernels.memory` for their rows.

    `accounts_in` says in which row what arms have earned stands, if anywhere: one account per arm, or one per arm and
    context. Retired arms have no column any more; `retired_accounts` keeps what they earned under their numbers, and
    `group_accounts` what groups have that are left without an arm.
    """

    def __init__(self, shared: Matrix, learners: Matrix, live: NDArray[np.bool_], accounts_in: Row | None) -> None:
        self.shared, self.learners, self._storage = shared, learners, learners
        self.live, self.live_arms, self.all_live = live, np.flatnonzero(live), bool(live.all())
        self.accounts_in = accounts_in
        self.retired_accounts = self._retired_storage = np.zeros((len(self.accounts), len(live)))
        self.group_accounts = np.zeros(0)

    @property
    def n_arms(self) -> int:
        return int(self.retired_accounts.shape[1])

    @property
    def accounts(self) -> Matrix:
        """What live arms have earned, a view: one row, one per context, or none."""
        if self.accounts_in is None:
            return np.empty((0, len(self.live_arms)))
        array, row = self.accounts_in
        view: Matrix = getattr(self, array)[:, row, ARMS:]
        return view

    @property
    def earned(self) -> Matrix:
        """What every arm has earned, retired ones included."""
        return self.per_arm(self.accounts) + self.retired_accounts

    def per_arm(self, live: Matrix) -> Matrix:
        """One column per arm, from those of the live ones; retired arms have none of it."""
        out = np.zeros((*live.shape[:-1], self.n_arms))
        out[..., self.live_arms] = live
        return out

    def add_contexts(self, n_contexts: int, first: Matrix) -> None:
        """Rows for so many contexts, or a MemoryError and nothing changed."""
        storage, learners = more_rows(self._storage, self.learners, n_contexts, first)
        retired = self._retired_storage, self.retired_accounts
        if self.accounts_per_context:
            untouched = np.where(self.live, 0.0, 1.0)  # where retired arms never took part
            retired = more_rows(*retired, n_contexts, untouched)
        self._storage, self.learners = storage, learners
        self._retired_storage, self.retired_accounts = retired

    @property
    def accounts_per_context(self) -> bool:
        """Whether there is an account per arm and context."""
        return self.accounts_in is not None and self.accounts_in[0] == "learners"

    @property
    def bytes_per_context(self) -> int:
        """What is kept for a context."""
        n_accounts = self.n_arms if self.accounts_per_context else 0
        return int(np.prod(self.learners.shape[1:])) * self.learners.itemsize + 8 * n_accounts

    def change_arms(self, shared: Matrix, learners: Matrix, kept: NDArray[np.int64], n_new: int) -> None:
        """The arrays without the columns that were not kept, and with new ones at the end."""
        self.retired_accounts[:, np.delete(self.live_arms, kept)] = np.delete(self.accounts, kept, axis=1)
        arrived = self.n_arms + np.arange(n_new)
        self.retired_accounts = self._retired_storage = np.pad(self.retired_accounts, ((0, 0), (0, n_new)))
        self.live_arms = np.concatenate([self.live_arms[kept], arrived])
        self.live = np.isin(np.arange(self.n_arms), self.live_arms)
        self.all_live = bool(self.live.all())
        self.shared, self.learners, self._storage = shared, learners, learners

    def column(self, arm: int) -> int:
        """Where a live arm stands; -1 for a retired one."""
        place = int(np.searchsorted(self.live_arms, arm))
        return place if place < len(self.live_arms) and self.live_arms[place] == arm else -1

    def book_late(self, contexts: NDArray[Any], arms: NDArray[Any], rewards: Vector) -> None:
        """Rewards of retired arms, one each."""
        if len(self.retired_accounts):
            np.add.at(self.retired_accounts, (np.minimum(contexts, len(self.retired_accounts) - 1), arms), rewards)

    def check_accounts(self) -> None:
        """Accounts never fall below the initial 1, and live arms have theirs among the live."""
        live = self.live
        sound = (self.accounts >= 1.0).all() and (self.retired_accounts[:, ~live] >= 1.0).all()
        if not sound or self.retired_accounts[:, live].any() or not np.isfinite(self.earned).all():
            raise validate.Refusal("state.arrays", "accounts of at least 1", self.earned, DAMAGED)

    def book_retired(self, contexts: Any, earned: Matrix) -> None:
        """What retired arms still earn, by context; columns of live arms do not count."""
        if len(self.retired_accounts):  # one row for all contexts, or one for each
            rows = np.minimum(contexts, len(self.retired_accounts) - 1)
            np.add.at(self.retired_accounts, rows, np.where(self.live, 0.0, earned))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copies, for a State."""
        values = (self.shared, self.learners, self.live, self.retired_accounts)
        arrays = {name: np.array(value) for name, value in zip(ARRAYS, values, strict=True)}
        return arrays | ({"group_accounts": self.group_accounts.copy()} if len(self.group_accounts) else {})

    def read(self, state: State) -> Self:
        """Take the arrays of a State, which must have the shapes that are there."""
        self.shared = array_of(state, "shared", np.float64, self.shared.shape)
        self.learners = self._storage = array_of(state, "learners", np.float64, self.learners.shape)
        retired = array_of(state, "retired_accounts", np.float64, self.retired_accounts.shape)
        self.retired_accounts = self._retired_storage = retired
        if len(self.group_accounts):
            self.group_accounts = array_of(state, "group_accounts", np.float64, self.group_accounts.shape)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`, which would cut arrays loose from their views."""
        return {**vars(self), "_storage": self.learners, "_retired_storage": self.retired_accounts}


def more_rows(storage: Matrix, rows: Matrix, n_rows: int, first: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """So many rows, all new ones alike, in a storage that doubles: growing one by one costs no more than at once."""
    known = len(rows)
    if n_rows > len(storage):
        storage = np.empty((max(n_rows, 2 * known), *first.shape))
        storage[:known] = rows
    storage[known:n_rows] = first
    return storage, storage[:n_rows]


def check_state(state: Any) -> None:
    """Refuse what is no snapshot at all."""
    parts = (state.settings, state.rng, state.arrays) if isinstance(state, State) else (None,)
    if not all(isinstance(part, Mapping) for part in parts):
        raise validate.Refusal("state", "a State", state, "Make one with State.from_bytes or State.load.")


def check_kind(state: State, name: str, version: int) -> None:
    """Refuse a snapshot of another policy, or of another version of this one."""
    check_state(state)
    if state.policy != name:
        raise validate.Refusal("state.policy", repr(name), state.policy, "Restore it into a policy of its own kind.")
    if state.version != version:
        repair = DAMAGED
        if isinstance(state.version, int):
            repair = "It was written by a newer alphafair: update this one."
            if state.version < version:
                repair = "Its memory is laid out as in an older alphafair: start afresh, or load it there."
        raise validate.Refusal("state.version", str(version), state.version, repair)


def checked_state(state: State, settings: Mapping[str, Any]) -> tuple[int, NDArray[np.bool_]]:
    """The number of contexts and the live arms of a snapshot that has all its parts and no others."""
    names, known = set(state.settings), {"n_contexts", "n_arms", *settings}
    parts = {*ARRAYS, "group_accounts"} if "groups" in settings else {*ARRAYS}
    if names != known or set(state.arrays) != parts:
        allowed = f"of settings {sorted(known)} and arrays {sorted(parts)}"
        repair = "It is damaged, or alphafair.load_policy(state) builds the policy that it belongs to."
        raise validate.Refusal("state", allowed, [sorted(names), sorted(state.arrays)], repair)
    n_contexts = validate.integer("state.settings['n_contexts']", state.settings["n_contexts"], low=1)
    if np.shape(state.arrays["learners"])[:1] != (n_contexts,):
        raise validate.Refusal("state.arrays['learners']", f"of {n_contexts} contexts", "another number", DAMAGED)
    return n_contexts, live_of(state)


def live_of(state: State) -> NDArray[np.bool_]:
    """Which arms of a snapshot are live."""
    n_arms = validate.integer("state.settings['n_arms']", state.settings.get("n_arms"), low=1)
    live = array_of(state, "live", np.bool_, (n_arms,))
    if not live.any():
        raise validate.Refusal("state.arrays['live']", "true for some arm", live, DAMAGED)
    return live


def array_of(state: State, key: str, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """One of a State's arrays, a copy."""
    array: Any = state.arrays.get(key)
    known = isinstance(array, np.ndarray)
    got = f"{array.dtype} of shape {array.shape}" if known else type(array).__name__
    if not known or array.shape != shape or array.dtype != kind or np.isnan(array).any():
        allowed = f"{np.dtype(kind)} of shape {shape} without NaN"
        raise validate.Refusal(f"state.arrays[{key!r}]", allowed, got, DAMAGED)
    return np.array(array, order="C")


def copied(value: Any, n_arms: int) -> Vector | None:
    """A copy of an array that is already of the right kind, so that kernels meet one type only; else None."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n_arms,):
        return value.copy()
    return None


def blank_rows(n_arms: int) -> list[tuple[Vector, Vector]]:
    """Room for the distributions of decisions: cut from one block, each with a read-only face for the decision."""
    block = np.empty((max(1, min(64, 4096 // n_arms)), n_arms))
    face = block.view()
    face.setflags(write=False)
    return list(zip(block, face, strict=True))
