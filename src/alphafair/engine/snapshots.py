"""Snapshots, written in pieces between commits: a large state holds up requests for no longer than a piece takes.

The state is copied at one moment, which is quick; then the copy is encoded and written, one piece per transaction, and
the policy learns on meanwhile. A snapshot is there once its row in `snapshot` is, which comes last. Pieces without that
row were left by a crash, or by a snapshot that is not kept any more: they are never read, and are removed one by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from alphafair import __version__
from alphafair.engine.events import Snapshot, SnapshotPiece
from alphafair.engine.experiment import SAVING, Experiment, checks_of
from alphafair.engine.ledger import Ledger

PIECE = 1 << 18  # bytes written in one transaction
TOUCHED: Final = 1 << 21  # bytes of memory that are looked for in one step
KEPT: Final = 3  # snapshots of an experiment
PATIENCE: Final = 0.02  # seconds of preparing a piece, before requests go first
REST = 2.0  # times as long as the last step took: requests have the writer for most of the time
REST_AFTER_FAILURE = 10.0  # seconds
BYTES_PER_EVENT = 100  # larger states are kept more rarely: so many bytes for each event that need not be learned again

Row = Snapshot | SnapshotPiece
BEYOND_KEPT = """delete from snapshot where experiment = ?1 and seq not in
    (select seq from snapshot where experiment = ?1 order by seq desc limit ?2)"""
PIECES = "select bytes from snapshot_piece where experiment = ? and seq = ? order by number"
UNUSED = """select experiment, seq, number from snapshot_piece p where not exists
    (select 1 from snapshot s where s.experiment = p.experiment and s.seq = p.seq) limit 1"""
REMOVE = "delete from snapshot_piece where experiment = ? and seq = ? and number = ?"


def whole(ledger: Ledger, experiment: int, seq: int, last: bytes) -> bytes:
    """The state of a snapshot, from the pieces that were written apart and the last one."""
    return b"".join([*(piece for (piece,) in ledger.each(PIECES, (experiment, seq))), last])


class Unfinished:
    """A snapshot of which some rows are still to be written."""

    def __init__(self, experiment: Experiment, rows: Iterator[Row | None]) -> None:
        self.experiment, self.rows = experiment, rows
        self.size = 0  # bytes written


class Snapshots:
    """Takes one snapshot at a time, and removes pieces that belong to none."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._unfinished: Unfinished | None = None
        self._position = 0  # of the log
        self._to_tidy = True  # whether there may be pieces that belong to nothing
        self._rest_until = 0.0
        self._has_failed = False  # the last time

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do, soon."""
        return (self._unfinished is not None or self._to_tidy) and not (self._has_failed and self.is_resting)

    @property
    def is_resting(self) -> bool:
        """Whether requests go first."""
        return time.perf_counter() < self._rest_until

    def step(self, due: Iterable[Experiment], position: int) -> bool:
        """Copy the state of an experiment that is due, write a piece, or remove one; whether there is more to do.

        `position` is that of the log, up to which all policies have learned.
        """
        began = time.perf_counter()
        try:
            self._position = position
            if self._unfinished is None and not self._tidy(position):
                for experiment in due:
                    self._unfinished = Unfinished(experiment, self._rows(experiment))
                    break
            if self._unfinished is not None:
                self._write(self._unfinished, position)
        except Exception:  # a row that was made may not have been written
            self.give_up()
            self._rest_until, self._has_failed = time.perf_counter() + REST_AFTER_FAILURE, True
            raise
        self._has_failed = False
        now = time.perf_counter()
        self._rest_until = now + REST * (now - began) if self.is_busy else 0.0
        return self.is_busy

    def finish(self, due: Sequence[Experiment], position: int) -> None:
        """Do it all now; one that was begun before and is behind the log is begun anew."""
        if self._unfinished is not None and self._unfinished.experiment in due:
            self.give_up()
        while self.step(due, position) or due:
            due = [experiment for experiment in due if experiment.unsaved]

    def give_up(self) -> None:
        """Leave a snapshot unfinished; its experiment has something unsaved then."""
        if self._unfinished is not None:
            experiment = self._unfinished.experiment
            experiment.unsaved = max(1, experiment.unsaved)
        self._unfinished, self._to_tidy = None, True

    def _tidy(self, position: int) -> bool:
        """Remove a piece that belongs to nothing; whether there was one."""
        if self._to_tidy:
            unused = self._ledger.rows(UNUSED)
            if unused:
                self._ledger.append(position, position, {}, [(REMOVE, unused)])
            self._to_tidy = bool(unused)
        return self._to_tidy

    def _rows(self, experiment: Experiment) -> Iterator[Row | None]:
        """The rows of a snapshot, the one in `snapshot` last; None after some work that has led to no row."""
        yield from _touched(experiment.state_bytes)
        experiment.unsaved = 0
        state, position, tally = experiment.copied_state(), self._position, experiment.tally.to_json()
        if state is None:
            return
        yield from checks_of(state)
        held, number = b"", 0
        for piece in state.pieces(PIECE):
            if held:
                yield SnapshotPiece(experiment.key, position, number, held)
                number += 1
            held = piece
        yield Snapshot(experiment.key, position, __version__, tally, held)

    def _write(self, unfinished: Unfinished, position: int) -> None:
        """One row, if it can be prepared in a moment; a state that fits into one piece is done at once."""
        until, row = time.perf_counter() + PATIENCE, None
        while row is None and time.perf_counter() < until:
            try:
                row = next(unfinished.rows)
            except StopIteration:  # its policy cannot be saved
                self._unfinished = None
                return
            except Exception as problem:  # whatever a policy has put into its state
                self.give_up()
                unfinished.experiment.unsaved = 0
                unfinished.experiment.failed(SAVING, problem)
                return
        if isinstance(row, SnapshotPiece):
            self._ledger.append(position, position, {SnapshotPiece: [row]})
            unfinished.size += len(row.bytes)
        elif isinstance(row, Snapshot):
            self._ledger.append(position, position, {Snapshot: [row]}, [(BEYOND_KEPT, [(row.experiment, KEPT)])])
            unfinished.experiment.saved((unfinished.size + len(row.state)) // BYTES_PER_EVENT)
            self._unfinished, self._to_tidy = None, bool(self._ledger.rows(UNUSED))


def _touched(n_bytes: int) -> Iterator[None]:
    """Have the system find memory for a large copy, step by step, and let it go again.

    The copy is made while requests wait. In memory that is at hand it takes 0.2 ms per MB; where the system has to find
    it first, which a virtual machine may do page by page, twenty times as long.
    """
    if n_bytes > TOUCHED:
        memory = np.empty(n_bytes, dtype=np.uint8)
        for first in range(0, n_bytes, TOUCHED):
            memory[first : first + TOUCHED] = 0
            yield
