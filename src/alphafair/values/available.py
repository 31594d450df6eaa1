"""Which arms were available in every round of a log: each distinct set once, and one set number per round.

A log of 100 million rounds with a thousand different sets of a hundred arms takes 0.4 GB this way, and 10 GB as one
boolean per round and arm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.values.arrays import Indices, frozen

ALL = -1  # the set number of rounds with every arm available
MOST_CELLS = 1 << 24  # booleans processed at once
REPAIR = "Pass one boolean per round and arm, or (sets, of_rounds)."


class AvailableArms(NamedTuple):
    """The sets of arms that decisions were drawn among.

    `sets` is boolean, (n_sets, n_arms); `of_rounds` has the row of `sets` for each round, or -1 if every arm was
    available.

    >>> available = AvailableArms.of([[True, False, True], [True, True, True], [True, False, True]])
    >>> available.sets.tolist(), available.of_rounds.tolist()
    ([[True, False, True]], [0, -1, 0])
    >>> AvailableArms.of(([[True, True, False]], [-1, 0])).table().tolist()
    [[True, True, True], [True, True, False]]
    """

    sets: NDArray[np.bool_]
    of_rounds: Indices

    @classmethod
    def of(cls, value: Any) -> AvailableArms:
        """Convert one boolean per round and arm, or the pair (sets, of_rounds)."""
        if isinstance(value, tuple) and len(value) == 2:
            return cls._of_pair(*value)
        table, numbers = _booleans("available", value), SetNumbers(np.shape(value)[1])
        rows = max(1, MOST_CELLS // table.shape[1])
        return numbers.available([numbers.add(table[k : k + rows]) for k in range(0, len(table), rows)])

    @classmethod
    def _of_pair(cls, sets: Any, of_rounds: Any) -> AvailableArms:
        given, numbers = _booleans("available: sets", sets), np.asarray(of_rounds)
        allowed = f"integers in [-1, {len(given) - 1}]: rows of sets, or -1 for every arm"
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or np.ma.is_masked(of_rounds):
            got = f"{numbers.dtype} of shape {numbers.shape}"
            raise InvalidArgument("available: of_rounds", allowed, got, REPAIR)
        validate.every("available: of_rounds", numbers, (numbers >= ALL) & (numbers < len(given)), allowed, REPAIR)
        of_sets = np.append(np.where(given.all(axis=1), ALL, np.arange(len(given))), ALL).astype(np.int32)
        return cls(
            _owned(np.ascontiguousarray(given)), frozen(of_sets[numbers])
        )  # full sets become -1, so that nothing is renormalized

    @classmethod
    def every(cls, n_rounds: int, n_arms: int) -> AvailableArms:
        """All arms in all rounds."""
        none = np.empty((0, n_arms), dtype=np.bool_)
        return cls(frozen(none), frozen(np.full(n_rounds, ALL, dtype=np.int32)))

    @property
    def n_arms(self) -> int:
        return int(self.sets.shape[1])

    def of_round(self, t: int) -> NDArray[np.bool_] | None:
        """Return the mask of one round; None if every arm was available."""
        number = self.of_rounds[t]
        return None if number == ALL else self.sets[number]

    def take(self, rounds: Any) -> AvailableArms:
        """Return the rounds of an index or a slice."""
        return AvailableArms(self.sets, frozen(self.of_rounds[rounds]))

    def table(self) -> NDArray[np.bool_]:
        """Return one boolean per round and arm."""
        found = np.ones((len(self.of_rounds), self.n_arms), dtype=np.bool_)
        some = self.of_rounds != ALL
        found[some] = self.sets[self.of_rounds[some]]
        return found

    def includes(self, arms: Indices) -> NDArray[np.bool_]:
        """Whether the arm of each round was available."""
        found = np.ones(len(arms), dtype=np.bool_)
        some = np.flatnonzero(self.of_rounds != ALL)
        found[some] = self.sets[self.of_rounds[some], arms[some]]
        return found


class SetNumbers:
    """Number distinct sets of arms in the order of their first occurrence."""

    def __init__(self, n_arms: int) -> None:
        self.n_arms = n_arms
        self._numbers: dict[bytes, int] = {np.packbits(np.ones(n_arms, dtype=np.bool_)).tobytes(): ALL}

    def add(self, table: NDArray[np.bool_]) -> Indices:
        """Return the set number of every row."""
        packed = np.packbits(table, axis=1)
        rows = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))[:, 0]
        met, places = np.unique(rows, return_inverse=True)
        numbers = [self._numbers.setdefault(each.tobytes(), len(self._numbers) - 1) for each in met]
        return np.array(numbers, dtype=np.int32)[places]

    @property
    def sets(self) -> NDArray[np.bool_]:
        """All sets so far, by number."""
        width = (self.n_arms + 7) // 8
        packed = np.frombuffer(b"".join(self._numbers), dtype=np.uint8).reshape(-1, width)[1:]
        return np.unpackbits(packed, axis=1, count=self.n_arms).astype(np.bool_)

    def available(self, of_rounds: list[Indices]) -> AvailableArms:
        return AvailableArms(frozen(self.sets), frozen(np.concatenate(of_rounds)))


def _booleans(argument: str, value: Any) -> NDArray[np.bool_]:
    """Check a boolean table with a column per arm and at least one True in every row."""
    allowed = "booleans, a row per round and a column per arm"
    try:
        table = np.asarray(value)
    except ValueError:
        raise InvalidArgument(argument, allowed, value, REPAIR) from None
    if table.dtype != np.bool_ or table.ndim != 2 or table.shape[1] == 0 or np.ma.is_masked(value):
        got = "masked entries" if np.ma.is_masked(value) else f"{table.dtype} of shape {table.shape}"
        raise InvalidArgument(argument, allowed, got, REPAIR)
    empty = np.flatnonzero(~table.any(axis=1))
    if len(empty):
        repair = "Remove rounds without an available arm."
        raise InvalidArgument(f"{argument}[{empty[0]}]", "true for at least one arm", "none", repair)
    return table


def _owned(array: NDArray[Any]) -> Any:
    """Return a read-only array: a copy if the array is writeable."""
    return frozen(array.copy() if array.flags.writeable else array)


def packed(mask: NDArray[np.bool_]) -> bytes:
    """Pack a mask into one bit per arm, as the ledger stores it."""
    return np.packbits(mask).tobytes()


def unpacked(blob: bytes, n_arms: int) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(blob, dtype=np.uint8), count=n_arms).astype(np.bool_)
