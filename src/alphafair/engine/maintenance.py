"""Work between requests: overdue decisions, snapshots, and the removal of erased bytes, each in short steps."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from alphafair import __version__
from alphafair.engine.experiment import SAVING, Experiment, checks_of
from alphafair.engine.ledger import Ledger, OpenDecision, Snapshot, SnapshotPiece, Store
from alphafair.errors import Unavailable

STRETCH: Final = 5_000  # positions of the log that one search reads at most
SEARCHES: Final = 4  # in one transaction, where experiments have different waiting times
SEARCH_SECONDS: Final = 0.005  # for all of them; at least one decision is found, if there is any

PIECE = 1 << 18  # bytes of a snapshot written in one transaction
ALLOCATED: Final = 1 << 21  # bytes of memory that are allocated in one step
PREPARE_SECONDS: Final = 0.02  # for preparing a piece, before it is the requests' turn
REST = 2.0  # times as long as the last step took: requests have the writer for most of the time
REST_AFTER_FAILURE = 10.0  # seconds
BYTES_PER_EVENT = 100  # larger states are saved less often: one event per so many bytes

REWRITE_AT_ONCE: Final = 1 << 25  # bytes of a file that is rewritten between two requests
REWRITE_PAUSE: Final = 60.0  # seconds until the next attempt, if the file was being read or the disk was full


# overdue decisions


class Search(NamedTuple):
    """How far overdue decisions have been searched for: it holds once those that were found are settled."""

    deadline: Deadline
    searched_to: int  # position
    next_due: int | None  # when to search again; None while no decision waits

    def apply(self) -> None:
        self.deadline.next_due, self.deadline.searched_to = self.next_due, self.searched_to
        for experiment in self.deadline.experiments:
            experiment.tally.settled_to = self.searched_to


class Deadline:
    """The search for overdue decisions of all experiments that have the same waiting time."""

    def __init__(self, wait: int, experiments: list[Experiment]) -> None:
        self.wait, self.experiments = wait, experiments
        self.searched_to = min(experiment.tally.settled_to for experiment in experiments)
        self.next_due: int | None = 0  # when to search again; None while no decision waits

    def search(
        self, store: Ledger, position: int, now: int, most: int, until: float
    ) -> tuple[list[OpenDecision], Search]:
        """Return the next overdue decisions, at most so many, found until some moment, and where the search ended."""
        start, end = self.searched_to, min(self.searched_to + STRETCH, position)
        since_decided, since_activated = store.waiting(start, end, [experiment.key for experiment in self.experiments])
        overdue: list[OpenDecision] = []
        with closing(since_decided) as decided, closing(since_activated) as activated:
            for row in heapq.merge(decided, activated):
                found = OpenDecision(*row)
                if found.waits_since + self.wait > now:
                    return overdue, Search(self, found.event - 1, found.waits_since + self.wait)
                overdue.append(found)
                if len(overdue) == most or time.perf_counter() > until:
                    return overdue, Search(self, found.event, 0)
        return overdue, Search(self, end, 0 if end < position else None)


class Deadlines:
    """Finds overdue decisions in the order of the log, a bounded part of it at a time.

    A decision waits from the moment it was made, a deferred one from its activation. Times in the log never fall, so
    under one waiting time decisions become overdue in their order. A search starts where the last one ended and stops
    at the first decision that is not overdue: what it reads depends on how many have become overdue, not on how many
    wait. It also ends after some milliseconds, because beside a busy thread every row has to wait for Python's lock.
    A search changes nothing: it is applied once what it found is settled.
    """

    def __init__(self, store: Ledger, experiments: Iterable[Experiment]) -> None:
        self._store = store
        by_wait: dict[int, list[Experiment]] = {}
        for experiment in experiments:
            if experiment.wait is not None:
                by_wait.setdefault(experiment.wait, []).append(experiment)
        self._deadlines = {wait: Deadline(wait, together) for wait, together in by_wait.items()}

    def add(self, experiment: Experiment) -> None:
        """Add a new experiment, which has no decisions yet."""
        if experiment.wait is None:
            return
        found = self._deadlines.get(experiment.wait)
        if found is None:
            experiment.tally.settled_to = experiment.changes[0].seq
            self._deadlines[experiment.wait] = Deadline(experiment.wait, [experiment])
        else:
            experiment.tally.settled_to = found.searched_to
            found.experiments.append(experiment)

    def begin(self, wait: int, at: int) -> None:
        """A decision starts to wait."""
        found = self._deadlines[wait]
        if found.next_due is None:
            found.next_due = at + wait

    def is_behind(self, now: int) -> bool:
        """Whether there may be overdue decisions."""
        return any(each.next_due is not None and each.next_due <= now for each in self._deadlines.values())

    def overdue(self, position: int, now: int, most: int) -> Iterator[tuple[list[OpenDecision], Search]]:
        """Yield overdue decisions in the log up to a position, those first that have been overdue longest."""
        until = time.perf_counter() + SEARCH_SECONDS
        due = [(each.next_due, wait) for wait, each in self._deadlines.items() if each.next_due is not None]
        for next_due, wait in sorted(due)[:SEARCHES]:
            if next_due > now or most <= 0 or time.perf_counter() > until:
                return
            found, search = self._deadlines[wait].search(self._store, position, now, most, until)
            most -= len(found)
            yield found, search


# snapshots


class UnfinishedSnapshot:
    """A snapshot of which some rows have not been written."""

    def __init__(self, experiment: Experiment, rows: Iterator[Snapshot | SnapshotPiece | None]) -> None:
        self.experiment, self.rows = experiment, rows
        self.size = 0  # bytes written


class SnapshotWriter:
    """Writes one snapshot at a time, in pieces between commits, so that a large state does not hold up requests.

    The state is copied at one moment, which is quick; then the copy is encoded and written, one piece per transaction,
    while the policy goes on learning. A snapshot exists once its row in `snapshot` does, which is written last. Pieces
    without that row were left by a crash, or by a snapshot that is no longer kept: they are never read, and are removed
    one by one.
    """

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self._unfinished: UnfinishedSnapshot | None = None
        self._position = 0  # of the log
        self._has_unused = True  # there may be pieces that belong to no snapshot
        self._rest_until = 0.0
        self._has_failed = False  # the last time

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do soon."""
        return (self._unfinished is not None or self._has_unused) and not (self._has_failed and self.is_resting)

    @property
    def is_resting(self) -> bool:
        """Whether it is the requests' turn."""
        return time.perf_counter() < self._rest_until

    def step(self, due: Iterable[Experiment], position: int) -> bool:
        """Copy the state of an experiment that is due, write a piece, or remove one; return whether there is more.

        `position` is that of the log, up to which all policies have learned.
        """
        began = time.perf_counter()
        try:
            self._position = position
            if self._unfinished is None and not self._remove_unused(position):
                for experiment in due:
                    if not self._saved_by_others(experiment, position):
                        self._unfinished = UnfinishedSnapshot(experiment, self._rows(experiment))
                        break
            if self._unfinished is not None:
                self._write(self._unfinished, position)
        except Exception:  # a prepared row may not have been written
            self.abandon()
            self._rest_until, self._has_failed = time.perf_counter() + REST_AFTER_FAILURE, True
            raise
        self._has_failed = False
        now = time.perf_counter()
        self._rest_until = now + REST * (now - began) if self.is_busy else 0.0
        return self.is_busy

    def finish(self, due: Sequence[Experiment], position: int) -> None:
        """Write all snapshots that are due now; one that was begun at an earlier position is started again."""
        if self._unfinished is not None and self._unfinished.experiment in due:
            self.abandon()
        while self.step(due, position) or due:
            due = [experiment for experiment in due if experiment.unsaved]

    def abandon(self) -> None:
        """Leave a snapshot unfinished; its experiment is due again."""
        if self._unfinished is not None:
            experiment = self._unfinished.experiment
            experiment.unsaved = max(1, experiment.unsaved)
        self._unfinished, self._has_unused = None, True

    def _saved_by_others(self, experiment: Experiment, position: int) -> bool:
        """Whether another process has written a snapshot that is as good: half of the events are in it."""
        if not self._store.shared:
            return False
        since = max(0, position - self._store.last_snapshot(experiment.key))
        if 2 * since > experiment.unsaved:
            return False
        experiment.unsaved = since
        return True

    def _remove_unused(self, position: int) -> bool:
        """Remove a piece that belongs to no snapshot; return whether there was one."""
        if self._has_unused:
            self._has_unused = self._store.remove_unused_piece(position)
        return self._has_unused

    def _rows(self, experiment: Experiment) -> Iterator[Snapshot | SnapshotPiece | None]:
        """Yield the rows of a snapshot, the one in `snapshot` last; None after work that has led to no row."""
        yield from _allocate(experiment.n_state_bytes)
        experiment.unsaved = 0
        state, position, tally = experiment.copied_state(), self._position, experiment.tally.to_json()
        if state is None:
            return
        summary = experiment.summary.to_bytes()
        yield from checks_of(state)
        held, number = b"", 0
        for piece in chain(state.pieces(PIECE), _cut(summary)):
            if held and len(held) + len(piece) > PIECE:
                yield SnapshotPiece(experiment.key, position, number, held)
                held, number = b"", number + 1
            held += piece
        yield Snapshot(experiment.key, position, __version__, tally, held, len(summary))

    def _write(self, unfinished: UnfinishedSnapshot, position: int) -> None:
        """Write one row, if it can be prepared in a moment; a state that fits into one piece is done at once."""
        until, row = time.perf_counter() + PREPARE_SECONDS, None
        while row is None and time.perf_counter() < until:
            try:
                row = next(unfinished.rows)
            except StopIteration:  # its policy cannot be saved
                self._unfinished = None
                return
            except Exception as problem:  # whatever a policy has put into its state
                self.abandon()
                unfinished.experiment.unsaved = 0
                unfinished.experiment.failed(SAVING, problem)
                return
        if row is None:
            return
        self._store.save(position, row)
        if isinstance(row, Snapshot):
            unfinished.experiment.saved((unfinished.size + len(row.state)) // BYTES_PER_EVENT)
            self._unfinished, self._has_unused = None, self._store.has_unused_piece()
        else:
            unfinished.size += len(row.bytes)


def _cut(blob: bytes) -> Iterator[bytes]:
    for first in range(0, len(blob), PIECE):
        yield blob[first : first + PIECE]


def _allocate(n_bytes: int) -> Iterator[None]:
    """Allocate memory for a large copy step by step, and free it again.

    The copy is made while requests wait. In memory that the process already has it takes 0.2 ms per MB; where the
    system has to provide it first, which a virtual machine may do page by page, twenty times as long.
    """
    if n_bytes > ALLOCATED:
        memory = np.empty(n_bytes, dtype=np.uint8)
        for first in range(0, n_bytes, ALLOCATED):
            memory[first : first + ALLOCATED] = 0
            yield


# erased bytes


class Erasures:
    """Removes the last copies of what was erased.

    An erasure overwrites rows. But where SQLite has rearranged a page, copies of labels and ids may be left in its
    unused part, which only rewriting the whole file removes. A small file is rewritten at once, unless another process
    reads it; a large one, which would hold up requests for too long, when it is next opened for writing. Until then the
    erasure is recorded in the file.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._not_before = 0.0
        if not store.read_only and store.n_erasures:
            self._rewrite()

    def clean(self, *, again: bool = False) -> None:
        """Rewrite a small file if an erasure is pending; `again`: only if the last attempt was long ago."""
        due = not again or time.monotonic() >= self._not_before
        if not due or not self._store.n_erasures:
            return
        self._not_before = time.monotonic() + REWRITE_PAUSE
        if self._store.n_bytes <= REWRITE_AT_ONCE:
            self._rewrite()
        else:
            self._store.checkpoint()

    def _rewrite(self) -> None:
        if self._store.rewrite():
            with contextlib.suppress(Unavailable):  # it stays recorded then
                self._store.clear_erasures()
