"""What the engine asks of a store: rows of the event log as types, and the questions of a ledger as a protocol.

A *ledger* is an event log with one order: experiments that share a position. A SQLite file is one ledger with all of
its experiments. In PostgreSQL every experiment is a ledger of its own, whose positions start at 1, so that experiments
are written side by side. `append` is the only way to add events; it succeeds only at the position that the caller has
processed.

Nothing here imports a policy: an export runs in a process of its own, without compiled code.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import Mismatch, Unavailable

PAGE_BYTES: Final = 4096
COMMIT_PAGES: Final = 16  # pages that every commit writes: the last ones of each table and index, and the position
SNAPSHOTS_KEPT: Final = 3  # per experiment
SOURCES: Final = ("client", "default", "expired", "lapsed", "rollback")  # what settles a decision

Statement = tuple[str, Iterable[Sequence[Any]]]  # SQL of a store and its rows of values


# rows: one type per table, whose fields are the columns


class Change(NamedTuple):
    """An experiment is created, or runs differently from this event on."""

    seq: int
    experiment: int
    kind: str
    body: str
    state: bytes | None
    at: int
    by: str | None = None  # who made the change: see `Engine.acting_as`


class Context(NamedTuple):
    """A new context; it has no position of its own in the order of events."""

    experiment: int
    number: int
    label: str


class Decided(NamedTuple):
    """An arm was drawn."""

    seq: int
    id: str
    experiment: int
    context: int
    arm: int
    propensity: float
    state_version: int
    policy_version: int
    deferred: int
    available: bytes | None
    probabilities: bytes | None
    at: int
    checksum: int


class Activated(NamedTuple):
    """A deferred decision counts from this event on."""

    seq: int
    decision: int
    at: int


class Settled(NamedTuple):
    """A decision has received its reward, or is closed without one."""

    seq: int
    decision: int
    reward: float | None
    source: str
    rewards: bytes | None
    at: int


class Late(NamedTuple):
    """A reward that arrived after its decision was closed; no policy learns from it."""

    seq: int
    decision: int
    reward: float | None
    rewards: bytes | None
    at: int


class SnapshotPiece(NamedTuple):
    """Part of a state that is too large for one transaction, written before its `Snapshot`."""

    experiment: int
    seq: int
    number: int
    bytes: bytes


class Snapshot(NamedTuple):
    """The state of a policy at a position, or the last piece of it."""

    experiment: int
    seq: int
    code_version: str
    tally: str
    state: bytes
    summary: int | None = None  # how many bytes after the state are a `Summary`; None: saved by an older version


Event = Change | Context | Decided | Activated | Settled | Late | SnapshotPiece | Snapshot
TABLES: Final[dict[type, str]] = {
    Change: "change",
    Context: "context",
    Decided: "decision",
    Activated: "activation",
    Settled: "reward",
    Late: "late_reward",
    SnapshotPiece: "snapshot_piece",
    Snapshot: "snapshot",
}
EVENT_TABLES: Final = ("change", "decision", "activation", "reward", "late_reward")  # rows with a position of their own
EVENTS: Final[tuple[Any, ...]] = (Change, Decided, Activated, Settled, Late)  # their types
FLOATS: Final[dict[type, tuple[str, str]]] = {  # the column with one number, and the one with a float64 per arm
    Decided: ("propensity", "probabilities"),
    Settled: ("reward", "rewards"),
    Late: ("reward", "rewards"),
}


class FoundDecision(NamedTuple):
    """A decision looked up by its id, with all that has happened to it."""

    id: str
    seq: int
    experiment: int
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


class FoundRow(NamedTuple):
    """A decision as the log shows it, with all that has happened to it."""

    seq: int
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

    event: int
    waits_since: int
    is_active: int
    id: str
    seq: int
    experiment: int
    context: int
    arm: int
    propensity: float
    probabilities: bytes | None


class EventColumns(NamedTuple):
    """Events between two positions, a row of numbers each, in their order."""

    decided: NDArray[np.float64]  # seq, experiment, context, arm, propensity, at, deferred
    activated: NDArray[np.float64]  # seq, decision, at
    settled: NDArray[np.float64]  # seq, decision, at, reward, number of its source
    activated_earlier: NDArray[np.float64]  # seq, experiment, context, arm, propensity; of decisions before `start`
    settled_earlier: NDArray[np.float64]  # the same, and the time from which the decision has waited


class SavedState(NamedTuple):
    """The state of a policy, and what was counted up to then."""

    seq: int
    tally: str
    state: bytes | memoryview
    summary: memoryview | None  # None: saved by a version that kept none


def split_state(blob: bytes, n_summary: int | None) -> tuple[bytes | memoryview, memoryview | None]:
    """Return a saved state, and the summary that follows it."""
    if not n_summary:
        return blob, None
    return memoryview(blob)[:-n_summary], memoryview(blob)[-n_summary:]


def commit_bytes(rows: Mapping[type, Sequence[Any]]) -> int:
    """Return an upper bound of what a commit of these rows writes: each row, and one page of an index per row."""
    fields = (field for events in rows.values() for event in events for field in event)
    payload = sum(len(field) for field in fields if isinstance(field, str | bytes))
    return (sum(map(len, rows.values())) + COMMIT_PAGES) * PAGE_BYTES + payload


def check_finite(path: object, rows: Mapping[type, Sequence[Any]]) -> None:
    for kind, columns in FLOATS.items():
        events = rows.get(kind)
        if not events:
            continue
        number, blob = (kind._fields.index(column) for column in columns)  # type: ignore[attr-defined]
        finite = all(map(math.isfinite, [event[number] for event in events if event[number] is not None]))
        blobs = b"".join([event[blob] for event in events if event[blob] is not None])
        if not finite or (blobs and not np.isfinite(np.frombuffer(blobs, dtype="<f8")).all()):
            raise Mismatch(f"{path}: a {TABLES[kind]} with a number that is not finite was not written.")


class Behind(Unavailable):
    """Another process has added events: process them first, then try again."""


class Ledger(Protocol):
    """One event log. Positions are exact integers; `seq` is the position of an event."""

    @property
    def path(self) -> object: ...  # the store in messages, without a password
    @property
    def read_only(self) -> bool: ...
    @property
    def shared(self) -> bool: ...  # other processes may append, too
    @property
    def key(self) -> int | None: ...  # of its one experiment; None: several, each with the seq of its first event

    # append at an expected position

    @property
    def position(self) -> int: ...  # of the last event, 0 if there is none

    def last_time(self) -> int:
        """Return the time of the last event in microseconds, 0 if there is none."""
        ...

    def append(
        self, expected: int, last: int, rows: Mapping[type, Sequence[Any]], statements: Sequence[Statement] = ()
    ) -> None:
        """Write all events in one durable transaction, after position `expected` and up to `last`, or none of them.

        Raises `Behind` (in a file, where no other process may write, `Mismatch`) if the last event is another one.
        """
        ...

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """Let other processes wait until the next `append`, or the end: for fairness, nothing else depends on it."""
        ...

    def probe(self, n_bytes: int) -> None:
        """Find out whether a commit of so many bytes can succeed now, or raise what it would raise."""
        ...

    def alone_with(self, codes: Sequence[str]) -> contextlib.AbstractContextManager[bool]:
        """Return whether no other process with this code has the store open for writing, and keep it so inside."""
        ...

    # reading

    def reader(self) -> Self:
        """Open the same log once more, for reading; close it in the end."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *problem: object) -> None: ...

    def at_one_moment(self) -> contextlib.AbstractContextManager[None]:
        """Let all reads inside see the log as it is now, whatever others write meanwhile."""
        ...

    def changes(self, until: int, experiment: int | None = None, after: int = 0) -> list[Change]:
        """Return the changes between two positions, of all experiments or of one."""
        ...

    def contexts(self, experiment: int | None = None, first: int = 0) -> Iterator[Context]:
        """Yield contexts by experiment and number, from a number on; the label of an erased one is None."""
        ...

    def labels(self, experiment: int) -> list[str]:
        """Return the labels of an experiment's contexts in order; an erased one is called `erased-<number>`."""
        ...

    def columns(self, start: int, end: int) -> EventColumns:
        """Return decisions, activations and settlements between two positions as columns of numbers."""
        ...

    def state_versions(self, start: int, end: int) -> NDArray[np.float64]:
        """Return the position that had been processed when each decision between two positions was drawn."""
        ...

    def least_state_version(self, start: int, end: int) -> int | None: ...

    def masks(self, start: int, end: int) -> dict[int, bytes]:
        """Return the arms that decisions were drawn among, by seq, where not all arms were available."""
        ...

    def full_rewards(self, start: int, end: int) -> dict[int, tuple[bytes, bytes]]:
        """Return the distribution and the rewards of all arms, by the seq of the reward, under full information."""
        ...

    def has_full_information(self, experiment: int) -> bool:
        """Return whether the decisions of an experiment have their distribution with them."""
        ...

    def earned(self, experiment: int, until: int, after: int = 0) -> Iterator[tuple[int, float]]:
        """Yield the arm and the reward of every decision that was paid, after a position and up to another."""
        ...

    def pulls(self, experiment: int, until: int, after: int = 0) -> list[tuple[int, int]]:
        """Return arms and how many decisions drew them, after a position and up to another."""
        ...

    def events(self, start: int, end: int) -> dict[type, list[Any]]:
        """Return all events between two positions by type, as tuples with the fields of their type."""
        ...

    # decisions

    def find(self, ids: Sequence[str]) -> list[FoundDecision]:
        """Return the decisions that have these ids, of all experiments."""
        ...

    def waiting(self, start: int, end: int, experiments: Sequence[int]) -> tuple[Generator[Any], Generator[Any]]:
        """Yield the fields of `OpenDecision` in order: decisions that wait since they were made, or were activated.

        Only events between two positions are searched. The caller closes both generators.
        """
        ...

    def open_after(self, experiment: int, position: int) -> list[str]:
        """Return the ids of decisions without a reward that were made, or activated, after a position."""
        ...

    def settled_between(self, experiment: int, position: int, end: int) -> list[tuple[int, int, int, float]]:
        """Return seq, context, arm, propensity of decisions open at `position` and settled before `end`."""
        ...

    def erasure(self, experiment: int, context: int, new_id: Callable[[], str]) -> list[Statement]:
        """Return the statements that remove a context's label and its decisions' ids; pass them to `append`."""
        ...

    def exported(self, experiment: int, after: int, until: int, limit: int) -> list[tuple[Any, ...]]:
        """Return the next decisions after a position, with their rewards up to `until`, for an export."""
        ...

    def log_rows(self, experiment: int, wanted: LogSearch) -> list[FoundRow]:
        """Return decisions of an experiment, the newest first."""
        ...

    def log_row(self, experiment: int, id: str) -> FoundRow | None:
        """Return the decision of an experiment that has an id."""
        ...

    def decision_time(self, position: int) -> int | None:
        """Return when the last decision up to a position was made; None if there was none. Times never fall."""
        ...

    def rewarded(self, experiment: int, latest: int | None = None) -> list[tuple[Any, ...]]:
        """Return context, arm, reward, rewards, propensity, at, policy_version and available of rewarded decisions.

        With `latest`, only of so many, the last ones.
        """
        ...

    # snapshots

    def states(self, experiment: int, until: int) -> Generator[SavedState]:
        """Yield everything that was saved up to a position, the latest first."""
        ...

    def snapshot_positions(self, until: int) -> list[tuple[int, int]]:
        """Return the experiment and position of every snapshot up to a position."""
        ...

    def snapshot_state(self, experiment: int, seq: int) -> bytes | memoryview:
        """Return the state of one snapshot."""
        ...

    def last_snapshot(self, experiment: int) -> int:
        """Return the position of the last snapshot of an experiment, 0 if there is none."""
        ...

    def save(self, position: int, row: Snapshot | SnapshotPiece) -> None:
        """Write a snapshot or a piece of one; old snapshots beyond those kept are removed."""
        ...

    def has_unused_piece(self) -> bool:
        """Return whether a snapshot piece belongs to no snapshot."""
        ...

    def remove_unused_piece(self, position: int) -> bool:
        """Remove one snapshot piece that belongs to no snapshot; return whether there was one."""
        ...

    # queries for `verify`

    def check_pages(self) -> None:
        """Raise `Mismatch` if the store finds itself damaged."""
        ...

    def events_per_position(self, start: int, end: int) -> NDArray[np.int64]:
        """Return how many events each position after `start` and up to `end` has."""
        ...

    def event_outside(self, last: int) -> tuple[str, int] | None:
        """Return the table and seq of an event whose position is not in [1, last], if there is one."""
        ...

    def labelled_decisions(self) -> Iterator[tuple[Any, ...]]:
        """Yield seq, id, experiment, context, both versions, checksum, whether the context has a row, and its label."""
        ...

    def without_decision(self) -> tuple[str, int, int] | None:
        """Return the table, seq and decision of the first event whose decision does not precede it, if there is one."""
        ...

    def unknown_source(self) -> tuple[int, str] | None:
        """Return the seq and source of a reward whose source is none of `SOURCES`, if there is one."""
        ...

    def out_of_order(self) -> str | None:
        """Describe an event that could not have been written at its position, if there is one."""
        ...


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


class Store(Protocol):
    """A file or a database with ledgers and the keys of the service."""

    @property
    def path(self) -> object: ...  # in messages, without a password
    @property
    def address(self) -> str: ...  # opens it again, with a password if it has one
    @property
    def read_only(self) -> bool: ...
    @property
    def was_empty(self) -> bool: ...  # before it was opened
    @property
    def readable_by_others(self) -> bool: ...  # by other users of this machine

    @property
    def clock_record(self) -> str: ...  # of the writer before, on this machine: see `Clock.record`

    def close(self) -> None: ...

    def check(self) -> None:
        """Raise `Unavailable` if what was opened is no longer there."""
        ...

    def keep_clock_record(self, record: str) -> None:
        """Keep a record of the clock for the next writer on this machine, where the store is one of this machine."""
        ...

    def remove_keys(self) -> None:
        """Remove all keys of the service."""
        ...

    # what erasures leave behind

    @property
    def n_erasures(self) -> int: ...  # whose old bytes may still be in the file
    @property
    def n_bytes(self) -> int: ...  # of the main file

    def clear_erasures(self) -> None: ...
    def checkpoint(self) -> bool: ...
    def rewrite(self) -> bool: ...


class SharedStore(Store, Protocol):
    """A store that any number of processes write to, with a ledger per experiment."""

    def announce(self, code: str) -> None:
        """Tell other processes that this one writes with these kernels."""
        ...

    def positions(self) -> dict[str, tuple[int, int]]:
        """Return the key and the last position of every experiment by name, in the order of their creation."""
        ...

    def ledger(self, name: str, key: int | None = None) -> Ledger:
        """Return the ledger of an experiment; without `key` a new one, which exists once an event is appended."""
        ...

    def owners(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """Return the keys of the experiments that have a decision with these ids."""
        ...
