"""Work between requests: overdue decisions and snapshots, each in short steps."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from alphafair import __version__
from alphafair.engine.state.experiment import SAVING, Experiment, checks_of
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import OpenDecision, Snapshot, SnapshotPiece, Store

STRETCH: Final = 5_000  # events of the log that one search reads at most
SEARCHES: Final = 4  # in one transaction, of different experiments
SEARCH_SECONDS: Final = 0.005  # for all of them; at least one decision is found, if there is any

PIECE = 1 << 18  # bytes of a snapshot written in one transaction
ALLOCATED: Final = 1 << 21  # bytes of memory that are allocated in one step
PREPARE_SECONDS: Final = 0.02  # for preparing a piece, before it is the requests' turn
REST = 2.0  # times as long as the last step took: requests have the writer for most of the time
REST_AFTER_FAILURE = 10.0  # seconds
BYTES_PER_EVENT = 100  # larger states are saved less often: one event per so many bytes


# overdue decisions


class Search(NamedTuple):
    """How far overdue decisions have been searched for: it holds once those that were found are settled."""

    deadline: Deadline
    low: int  # the event with which the next search begins
    position: int | None  # up to which everything was searched; None: not known
    next_due: int | None  # when to search again; None while no decision waits

    def apply(self) -> None:
        self.deadline.low, self.deadline.next_due = self.low, self.next_due
        if self.position is not None:
            self.deadline.experiment.tally.settled_to = self.position


class Deadline:
    """The search for overdue decisions of one experiment."""

    def __init__(self, experiment: Experiment, wait: int) -> None:
        self.experiment, self.wait = experiment, wait
        self.low = 0
        self.next_due: int | None = 0  # when to search again; None while no decision waits

    def search(self, store: Store, now: int, most: int, until: float) -> tuple[list[OpenDecision], Search]:
        """Return the next overdue decisions, at most so many, found until some moment, and where the search ended."""
        key, position = self.experiment.key, self.experiment.position
        span = store.span(key, self.experiment.tally.settled_to, position)
        low = max(self.low, span.low)
        high = min(span.high, low + STRETCH - 1)
        since_decided, since_activated = questions.waiting(store, key, low, high)
        overdue: list[OpenDecision] = []
        with contextlib.closing(since_decided), contextlib.closing(since_activated):
            for row in heapq.merge(since_decided, since_activated):
                found = OpenDecision(*row)
                if found.position > position:  # of another process
                    break
                if found.waits_since + self.wait > now:
                    due = found.waits_since + self.wait
                    return overdue, Search(self, found.since, found.position - 1, due)
                overdue.append(found)
                if len(overdue) == most or time.perf_counter() > until:
                    return overdue, Search(self, found.since + 1, found.position, 0)
        if high < span.high:
            return overdue, Search(self, high + 1, None, 0)
        return overdue, Search(self, span.high + 1, position, None)


class Deadlines:
    """Finds overdue decisions in the order of the log, a bounded part of it at a time.

    A decision waits from the moment it was made, a deferred one from its activation. Times in the log never fall, so
    the decisions of an experiment become overdue in their order. A search starts where the last one ended and stops at
    the first decision that is not overdue: what it reads depends on how many have become overdue, not on how many wait.
    It also ends after some milliseconds, because beside a busy thread every row has to wait for Python's lock. A search
    changes nothing: it is applied once what it found is settled.
    """

    def __init__(self, store: Store, experiments: Iterable[Experiment]) -> None:
        self._store = store
        self._deadlines: dict[int, Deadline] = {}
        for experiment in experiments:
            self.add(experiment)

    def add(self, experiment: Experiment) -> None:
        """Add an experiment, or search it again after a change of its waiting time: other decisions are overdue."""
        wait, known = experiment.settings.wait, self._deadlines.get(experiment.key)
        if known is not None and known.wait == wait:
            return
        self._deadlines.pop(experiment.key, None)
        if wait is not None:
            self._deadlines[experiment.key] = Deadline(experiment, wait)

    def begin(self, experiment: Experiment, at: int, event: int = 0) -> None:
        """A decision of an experiment starts to wait; its `event`, where that is known."""
        found = self._deadlines[experiment.key]
        if found.next_due is None:
            found.next_due, found.low = at + found.wait, max(found.low, event)

    def is_behind(self, now: int) -> bool:
        """Whether there may be overdue decisions."""
        return any(each.next_due is not None and each.next_due <= now for each in self._deadlines.values())

    def overdue(self, now: int, most: int) -> Iterator[tuple[list[OpenDecision], Search]]:
        """Yield overdue decisions, those first that have been overdue longest."""
        if not self._deadlines:
            return
        until = time.perf_counter() + SEARCH_SECONDS
        due = [
            (each.next_due, key)
            for key, each in self._deadlines.items()
            if each.next_due is not None and each.next_due <= now
        ]
        for _, key in sorted(due)[:SEARCHES]:
            if most <= 0 or time.perf_counter() > until:
                return
            found, search = self._deadlines[key].search(self._store, now, most, until)
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

    def __init__(self, store: Store, keys: Iterable[int]) -> None:
        self._store = store
        self._unfinished: UnfinishedSnapshot | None = None
        self._untidy = [*keys]  # experiments that may have pieces of no snapshot
        self._rest_until = 0.0
        self._has_failed = False  # the last time

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do soon."""
        return bool(self._unfinished is not None or self._untidy) and not (self._has_failed and self.is_resting)

    @property
    def is_resting(self) -> bool:
        """Whether it is the requests' turn."""
        return time.perf_counter() < self._rest_until

    def step(self, due: Iterable[Experiment]) -> bool:
        """Copy the state of an experiment that is due, write a piece, or remove one; return whether there is more."""
        began = time.perf_counter()
        try:
            if self._unfinished is None and not self._tidied():
                for experiment in due:
                    if not self._saved_by_others(experiment):
                        self._unfinished = UnfinishedSnapshot(experiment, self._rows(experiment))
                        break
            if self._unfinished is not None:
                self._write(self._unfinished)
        except Exception:  # a prepared row may not have been written
            self.abandon()
            self._rest_until, self._has_failed = time.perf_counter() + REST_AFTER_FAILURE, True
            raise
        self._has_failed = False
        now = time.perf_counter()
        self._rest_until = now + REST * (now - began) if self.is_busy else 0.0
        return self.is_busy

    def finish(self, due: Sequence[Experiment]) -> None:
        """Write all snapshots that are due now; one that was begun at an earlier position is started again."""
        if self._unfinished is not None and self._unfinished.experiment in due:
            self.abandon()
        while self.step(due) or due:
            due = [experiment for experiment in due if experiment.unsaved]

    def abandon(self) -> None:
        """Leave a snapshot unfinished; its experiment is due again."""
        if self._unfinished is not None:
            experiment = self._unfinished.experiment
            experiment.unsaved = max(1, experiment.unsaved)
            self._untidy.append(experiment.key)
        self._unfinished = None

    def _saved_by_others(self, experiment: Experiment) -> bool:
        """Whether another process has written a snapshot that is as good: half of the events are in it."""
        if self._store.opened.together:
            return False
        last = questions.snapshot_positions(self._store, experiment.key)[-1:]
        since = max(0, experiment.position - sum(last))
        if 2 * since > experiment.unsaved:
            return False
        experiment.unsaved = since
        return True

    def _tidied(self) -> bool:
        """Remove a piece that belongs to no snapshot; return whether there may be more of the same experiment."""
        while self._untidy:
            if self._store.tidy(self._untidy[-1]):
                return True
            self._untidy.pop()
        return False

    def _rows(self, experiment: Experiment) -> Iterator[Snapshot | SnapshotPiece | None]:
        """Yield the rows of a snapshot, the one in `snapshot` last; None after work that has led to no row."""
        yield from _allocate(n_state_bytes(experiment))
        experiment.unsaved = 0
        state, position, tally = experiment.copied_state(), experiment.position, experiment.tally.to_json()
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

    def _write(self, unfinished: UnfinishedSnapshot) -> None:
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
        self._store.save(row)
        if isinstance(row, Snapshot):
            unfinished.experiment.snapshot_every = (unfinished.size + len(row.state)) // BYTES_PER_EVENT
            unfinished.experiment.problems.pop(SAVING, None)
            self._unfinished = None
            self._untidy.append(unfinished.experiment.key)
        else:
            unfinished.size += len(row.bytes)


def n_state_bytes(experiment: Experiment) -> int:
    """Return the approximate size of the state of a policy."""
    if not experiment.has_policy:
        return 0
    return experiment.policy.n_contexts * experiment.policy.stepper.bytes_per_context


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
