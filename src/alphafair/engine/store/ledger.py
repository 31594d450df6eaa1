"""The event log as types: rows, what a commit adds to an experiment, and what a store of either kind can do.

Every experiment has a ledger of its own: its *positions* number its events from 1 on, without gaps. A row is found by
its *event*, an integer that is unique in a store and never shown. `Store.commit` is the only way to add events; it
succeeds only at the position that the caller has processed. What is asked of a store is in `questions`.

Nothing here imports a policy: an export runs in a process of its own, without compiled code.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.store.slates import Rewards, Slate
from alphafair.errors import Mismatch, Unavailable

if TYPE_CHECKING:
    from alphafair.engine.store.files import WriterLock

PAGE_BYTES: Final = 4096
COMMIT_PAGES: Final = 16  # pages that every commit writes: the last ones of each table and index
SNAPSHOTS_KEPT: Final = 3  # per experiment
SOURCES: Final = ("client", "default", "expired", "lapsed", "rollback")  # what settles a decision
PARTLY: Final = -1  # in place of the number of a source: arms of a slate are still without a reward
MARKED: Final = 256  # positions from one mark to the next
N_ORIGINS: Final = 65  # of one source: its buckets, and none

Question = str  # SQL with named parameters and the words of `dialect`
Statement = tuple[str, Iterable[Mapping[str, Any]]]  # the same, and the values of every row


# rows: one type per table, whose fields are the columns


class Change(NamedTuple):
    """An experiment is created, or runs differently from this event on."""

    event: int
    experiment: int
    position: int
    kind: str
    body: str
    state: bytes | None
    at: int
    by: str | None = None  # who made the change: see `Engine.acting_as`


class Context(NamedTuple):
    """A new context; it has no position of its own in the order of events."""

    experiment: int
    number: int
    label: str | None  # None once it is erased


class Decided(NamedTuple):
    """An arm was drawn, or another source has told which one it showed."""

    event: int
    experiment: int
    position: int
    id: str
    context: int
    arm: int
    propensity: float
    state_version: int
    policy_version: int
    deferred: int
    available: bytes | None
    probabilities: bytes | None
    at: int
    checksum: int | None
    slate: bytes | None
    decided_by: str | None  # None: the policy
    features: bytes | None
    bucket: int | None


class Activated(NamedTuple):
    """A deferred decision counts from this event on."""

    event: int
    experiment: int
    position: int
    decision: int  # its event
    at: int


class Settled(NamedTuple):
    """A decision has received its reward, or is closed without one."""

    event: int
    experiment: int
    position: int
    decision: int
    reward: float | None
    source: str
    rewards: bytes | None
    at: int


class SlateSettled(NamedTuple):
    """Some arms of a slate have received their rewards together, or it is closed without those that are missing."""

    event: int
    experiment: int
    position: int
    decision: int
    source: str
    rewards: bytes | None
    remaining: int
    at: int


class Late(NamedTuple):
    """A reward that arrived after its decision was closed; no policy learns from it."""

    event: int
    experiment: int
    position: int
    decision: int
    reward: float | None
    rewards: bytes | None
    at: int


class SnapshotPiece(NamedTuple):
    """Part of a state that is too large for one transaction, written before its `Snapshot`."""

    experiment: int
    position: int
    number: int
    bytes: bytes


class Snapshot(NamedTuple):
    """The state of a policy at a position, or the last piece of it."""

    experiment: int
    position: int
    code_version: str
    tally: str
    state: bytes
    summary: int | None = None  # how many bytes after the state are a `Summary`; None: saved by an older version


TABLES: Final[dict[Any, str]] = {
    Change: "change",
    Context: "context",
    Decided: "decision",
    Activated: "activation",
    Settled: "reward",
    SlateSettled: "slate_reward",
    Late: "late_reward",
    SnapshotPiece: "snapshot_piece",
    Snapshot: "snapshot",
}
EVENTS: Final = tuple(kind for kind in TABLES if "event" in kind._fields)  # rows that have a position
EVENT_TABLES: Final = tuple(TABLES[kind] for kind in EVENTS)
SPARSE: Final[dict[Any, str]] = {  # columns with a float64 per slot of a slate, NaN where there is none
    SlateSettled: "rewards",
    Late: "rewards",
}
FLOATS: Final[dict[type, tuple[str, str]]] = {  # the column with one number, and the one with a float64 per arm
    Decided: ("propensity", "probabilities"),
    Settled: ("reward", "rewards"),
    Late: ("reward", "rewards"),
}


# what is read


class Head(NamedTuple):
    """The last event of an experiment."""

    key: int
    name: str
    position: int
    at: int


class Span(NamedTuple):
    """The first and the last event between which some positions of an experiment lie."""

    low: int
    high: int


class FoundDecision(NamedTuple):
    """A decision looked up by its id, with all that has happened to it."""

    event: int
    experiment: int
    position: int
    id: str
    context: int
    label: str | None
    arm: int
    propensity: float
    is_active: int
    waits_since: int
    probabilities: bytes | None
    is_settled: int
    reward: float | None
    source: str
    rewards: bytes | None
    has_late_reward: int
    decided_by: str | None
    features: bytes | None
    bucket: int | None
    slate: Slate | None = None
    arrived: Rewards | None = None  # of a slate, by slot


class FoundRow(NamedTuple):
    """A decision as the log shows it, with all that has happened to it."""

    position: int
    id: str
    at: int
    context: int
    label: str  # `erased-<number>` once it is erased
    arm: int
    propensity: float
    deferred: int
    activated_at: int | None
    reward: float | None
    rewards: bytes | None
    source: str | None  # None: it waits
    settled_at: int | None
    available: bytes | None
    probabilities: bytes | None
    state_version: int
    policy_version: int
    late_reward: float | None
    late_rewards: bytes | None
    late_at: int | None
    decided_by: str | None
    features: bytes | None
    bucket: int | None
    slate: Slate | None = None
    arrived: Rewards | None = None  # of a slate, by slot


class LogSearch(NamedTuple):
    """Which decisions to read: the last ones after a position and up to another; None stands for all."""

    after: int
    until: int
    limit: int
    context: int | None = None
    arm: int | None = None
    state: str | None = None  # "pending", "deferred" or one of SOURCES


class OpenDecision(NamedTuple):
    """A decision without a reward, and the event from which its waiting time counts."""

    since: int  # the event
    waits_since: int
    is_active: int
    position: int  # of the event
    event: int  # of the decision
    id: str
    context: int
    arm: int
    propensity: float
    probabilities: bytes | None
    slate: bytes | None
    decided_by: str | None
    features: bytes | None
    bucket: int | None
    made: int  # the position of the decision


class EventColumns(NamedTuple):
    """Events of some experiments, a row of numbers each, in their order; events are counted from the first one.

    `origin` is 0 for a decision of the policy without a bucket, else `N_ORIGINS` times the number of its source in
    `sources`, from 1 on, plus its bucket and 1.
    """

    decided: NDArray[np.float64]  # event, experiment, position, context, arm, propensity, origin, at, deferred, state
    activated: NDArray[np.float64]  # event, experiment, position, decision, at
    settled: NDArray[np.float64]  # event, experiment, position, decision, at, reward, number of its source, or `PARTLY`
    activated_earlier: NDArray[np.float64]  # event, context, arm, propensity, origin, decision; of those before
    settled_earlier: NDArray[np.float64]  # the same, and the time from which the decision has waited


class SavedState(NamedTuple):
    """The state of a policy, and what was counted up to then."""

    position: int
    tally: str
    state: bytes | memoryview
    summary: memoryview | None  # None: saved by a version that kept none


def split_state(blob: bytes, n_summary: int | None) -> tuple[bytes | memoryview, memoryview | None]:
    """Return a saved state, and the summary that follows it."""
    if not n_summary:
        return blob, None
    return memoryview(blob)[:-n_summary], memoryview(blob)[-n_summary:]


# what is written


class Numbers(Protocol):
    """Gives numbers to rows that are not written yet; what is not written is given again."""

    def next(self, key: int, position: int) -> int:
        """Return the event of a position."""
        ...

    def new_key(self) -> int:
        """Return the key of a new experiment."""
        ...


class Part:
    """What one commit adds to one experiment, after the position of its head."""

    __slots__ = ("at", "expected", "key", "marks", "name", "numbers", "position", "rows")

    def __init__(self, head: Head, numbers: Numbers, at: int) -> None:
        self.key, self.name, self.expected, self.at = head.key, head.name, head.position, at
        self.position = head.position  # of the last event
        self.numbers = numbers
        self.rows: defaultdict[Any, list[Any]] = defaultdict(list)  # tuples, by their type
        self.marks: list[tuple[int, int]] = []  # number of a block of positions, and its event

    def next(self) -> int:
        """Return the event of the next position."""
        self.position = position = self.position + 1
        event = self.numbers.next(self.key, position)
        if not position % MARKED or position == 1:
            self.marks.append((position // MARKED, event))
        return event


def commit_bytes(parts: Iterable[Part]) -> int:
    """Return an upper bound of what a commit writes: each row, and one page of an index per row."""
    rows = [row for part in parts for rows in part.rows.values() for row in rows]
    payload = sum(len(field) for row in rows for field in row if isinstance(field, str | bytes))
    return (len(rows) + COMMIT_PAGES) * PAGE_BYTES + payload


def conflict_of(row: Snapshot | SnapshotPiece) -> str:
    """Return what to do where there is such a row: a snapshot is the same, a piece may be left of an unfinished one."""
    if isinstance(row, Snapshot):
        return "do nothing"
    return "(experiment, position, node, number) do update set bytes = excluded.bytes"


def check_finite(path: str, rows: Mapping[Any, Sequence[Any]]) -> None:
    for kind, columns in FLOATS.items():
        events = rows.get(kind)
        if not events:
            continue
        number, blob = (kind._fields.index(column) for column in columns)  # type: ignore[attr-defined]
        finite = all(map(math.isfinite, [event[number] for event in events if event[number] is not None]))
        blobs = [] if kind in SPARSE else [event[blob] for event in events if event[blob] is not None]
        if not finite or (blobs and not np.isfinite(np.frombuffer(b"".join(blobs), dtype="<f8")).all()):
            raise _not_finite(path, kind)
    for kind, column in SPARSE.items():
        at = kind._fields.index(column)
        blobs = [row[at] for row in rows.get(kind, ()) if row[at] is not None]
        if blobs and np.isinf(np.frombuffer(b"".join(blobs), dtype="<f8")).any():
            raise _not_finite(path, kind)


def _not_finite(path: str, kind: type) -> Mismatch:
    return Mismatch(f"{path}: a {TABLES[kind]} with a number that is not finite was not written.")


# stores


class Behind(Unavailable):
    """Another process has added events: process them first, then try again."""


class Opened(NamedTuple):
    """What was found when a store was opened."""

    read_only: bool
    was_empty: bool  # before it was opened
    readable_by_others: bool  # by other users of this machine
    together: bool  # one commit may have parts of several experiments, and no other process writes
    lock: WriterLock | None = None  # of the writer of a file: keeps a record for the next one


class Store(Protocol):
    """A file or a database with the ledgers of any number of experiments."""

    @property
    def path(self) -> str: ...  # in messages, without a password
    @property
    def address(self) -> str: ...  # opens it again, with a password if it has one
    @property
    def opened(self) -> Opened: ...

    def heads(self, key: int | None = None) -> list[Head]:
        """Return the last event of every experiment, in the order of their creation, or of one."""
        ...

    def numbers(self) -> Numbers:
        """Return what numbers the rows of the next commit."""
        ...

    def commit(self, parts: Sequence[Part], statements: Sequence[Statement] = ()) -> None:
        """Write all parts in one durable transaction, each at the position that it expects, or nothing.

        Raises `Behind` (in a file, where no other process may write, `Mismatch`) if an experiment is at another one.
        """
        ...

    def turn(self, key: int) -> AbstractContextManager[None]:
        """Let other processes wait until the next `commit`, or the end: for fairness, nothing else depends on it."""
        ...

    def announce(self, code: str) -> None:
        """Tell other processes that this one writes with these kernels."""
        ...

    def alone_with(self, codes: Sequence[str]) -> AbstractContextManager[bool]:
        """Return whether no other process writes with these kernels, and keep it so inside."""
        ...

    def span(self, key: int, after: int, until: int) -> Span:
        """Return events between which the positions after one and up to another lie."""
        ...

    def rows(self, question: Question, **values: Any) -> list[Any]:
        """Return all rows."""
        ...

    def each(self, question: Question, **values: Any) -> Generator[Any]:
        """Yield rows one by one, without a list of them where that is possible."""
        ...

    def columns(self, question: Question, width: int, **values: Any) -> NDArray[np.float64]:
        """Return rows of `width` numbers as one array, without a list of them; integers are exact up to 2^53."""
        ...

    def reader(self) -> Self:
        """Open the same store once more, for reading beside this one; close it in the end."""
        ...

    def at_one_moment(self) -> AbstractContextManager[None]:
        """Let all reads inside see one state, whatever others write meanwhile."""
        ...

    def save(self, row: Snapshot | SnapshotPiece) -> None:
        """Write without a condition: a state follows from the log up to its position, whatever comes after it.

        Old snapshots beyond those kept are removed.
        """
        ...

    def tidy(self, key: int) -> bool:
        """Remove a piece that belongs to no snapshot; return whether there may be more."""
        ...

    def probe(self, n_bytes: int = 0) -> None:
        """Raise what a commit of so many bytes would raise now; 0: find out only whether the store is still there."""
        ...

    def compact(self, *, at_once: bool) -> int:
        """Remove the last bytes of what was erased, at once or where it is quick; return how many are pending."""
        ...

    def check_pages(self) -> None:
        """Raise `Mismatch` if the store finds itself damaged."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *problem: object) -> None: ...


# keys of the service, which are no events


class KeyRow(NamedTuple):
    """A key of the service as it is stored. Times are microseconds since 1970."""

    id: str
    name: str
    role: str
    experiments: str | None  # JSON, a list of names; None: all
    hash: bytes
    created_at: int
    created_by: str | None
    expires_at: int | None
    revoked_at: int | None
    revoked_by: str | None
    epoch: int  # how often its browsers were signed out


class KeyTable(Protocol):
    """The keys of the service, which are no events. Each method is a durable transaction of its own."""

    def check(self) -> None:
        """Refuse a store that alphafair did not make, or one of another version; create a missing one."""
        ...

    def close(self) -> None: ...

    def all(self) -> list[KeyRow]:
        """Return all keys, oldest first."""
        ...

    def add(self, key: KeyRow, *, instead_of: str | None = None, until: int | None = None) -> None:
        """Add a key; `instead_of` another one, which expires at `until`."""
        ...

    def revoke(self, id: str, at: int, by: str | None) -> None:
        """Revoke a key, unless it has been revoked already."""
        ...

    def end_epoch(self, id: str, epoch: int) -> None:
        """Raise the epoch of a key above this one, unless that has been done already."""
        ...

    def clear(self) -> None:
        """Remove all keys."""
        ...
