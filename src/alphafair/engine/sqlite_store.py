"""The event log in a SQLite file: one ledger with all experiments of the file.

The file uses WAL with synchronous=FULL, so events are on the disk when `append` returns. One process writes; any number
may read. All SQL for SQLite is in this module, in `migrations.py` and in `schema/`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.files import DatabaseFiles, WriterLock
from alphafair.engine.ledger import (
    EVENT_TABLES,
    EVENTS,
    SNAPSHOTS_KEPT,
    SOURCES,
    TABLES,
    Change,
    Context,
    EventColumns,
    FoundDecision,
    FoundRow,
    KeyRow,
    Ledger,
    LogSearch,
    SavedState,
    Snapshot,
    SnapshotPiece,
    Statement,
    check_finite,
    split_state,
)
from alphafair.engine.migrations import check_schema, is_older, migrate, schema
from alphafair.errors import InvalidArgument, Mismatch, Unavailable

APPLICATION: Final = 0xA1FA  # SQLite's application_id, which marks a file of this package
ROWS_PER_STATEMENT: Final = (256, 64, 16, 4, 1)
BUSY: Final = 5.0  # seconds to wait for SQLite's own lock
FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)

Connect = Callable[..., sqlite3.Connection]

_SOURCE_NUMBER = "case source " + " ".join(f"when '{name}' then {k}" for k, name in enumerate(SOURCES)) + " end"
_BETWEEN = "where seq > ? and seq <= ? order by seq"
_DECIDED = f"select seq, experiment, context, arm, propensity, at, deferred from decision {_BETWEEN}"
_ACTIVATED = f"select seq, decision, at from activation {_BETWEEN}"
_SETTLED = f"select seq, decision, at, ifnull(reward, 0), ifnull({_SOURCE_NUMBER}, 4) from reward {_BETWEEN}"
_ACTIVATED_EARLIER = """select r.seq, d.experiment, d.context, d.arm, d.propensity
    from activation r join decision d on d.seq = r.decision
    where r.seq > ? and r.seq <= ? and r.decision <= ? order by r.seq"""
_SETTLED_EARLIER = """select r.seq, d.experiment, d.context, d.arm, d.propensity, ifnull(a.at, d.at)
    from reward r join decision d on d.seq = r.decision left join activation a on d.deferred and a.decision = d.seq
    where r.seq > ? and r.seq <= ? and r.decision <= ? order by r.seq"""
_FULL_REWARDS = """select r.seq, d.probabilities, r.rewards from reward r join decision d on d.seq = r.decision
    where r.seq > ? and r.seq <= ? and r.rewards is not null"""
_FIND = """select d.id, d.seq, d.experiment, d.context, c.label, d.arm, d.propensity,
    d.deferred = 0 or a.seq is not null, ifnull(a.at, d.at), d.probabilities, r.seq is not null, r.reward,
    r.source, r.rewards, l.seq is not null from decision d
    left join activation a on a.decision = d.seq left join reward r on r.decision = d.seq
    left join late_reward l on l.decision = d.seq
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.id in (select value from json_each(?))"""
_OPEN_COLUMNS = "d.id, d.seq, d.experiment, d.context, d.arm, d.propensity, d.probabilities"
_WAITING_SINCE_DECIDED = f"""select d.seq, d.at, d.deferred = 0, {_OPEN_COLUMNS} from decision d
    where d.seq > ?1 and d.seq <= ?2 and d.experiment in (select value from json_each(?3))
    and not exists (select 1 from reward r where r.decision = d.seq)
    and not (d.deferred and exists (select 1 from activation a where a.decision = d.seq)) order by d.seq"""
_WAITING_SINCE_ACTIVATED = f"""select a.seq, a.at, 1, {_OPEN_COLUMNS} from activation a
    join decision d on d.seq = a.decision
    where a.seq > ?1 and a.seq <= ?2 and d.experiment in (select value from json_each(?3))
    and not exists (select 1 from reward r where r.decision = a.decision) order by a.seq"""
_OPEN_AFTER = """select d.id from decision d left join activation a on a.decision = d.seq
    left join reward r on r.decision = d.seq
    where d.experiment = ? and max(d.seq, ifnull(a.seq, 0)) > ? and r.seq is null order by d.seq"""
_SETTLED_BETWEEN = """select d.seq, d.context, d.arm, d.propensity from decision d
    left join activation a on a.decision = d.seq join reward r on r.decision = d.seq
    where d.experiment = ?1 and d.seq <= ?2 and (d.deferred = 0 or a.seq <= ?2) and r.seq > ?2 and r.seq < ?3
    order by d.seq"""
_EARNED = """select d.arm, r.reward, r.rewards from reward r join decision d on d.seq = r.decision
    where d.experiment = ? and r.seq > ? and r.seq <= ? and r.source in ('client', 'default') order by r.seq"""
_PULLS = "select arm, count(*) from decision where experiment = ? and seq > ? and seq <= ? group by arm"
_STATES = """select seq, tally, state, summary, true from snapshot where experiment = ?1 and seq <= ?2
    union all select seq, json_extract(body, '$.tally'), state, json_extract(body, '$.summary'), false from change
    where experiment = ?1 and seq <= ?2 and kind in ('rollback', 'upgrade') order by seq desc"""
_PIECES = "select bytes from snapshot_piece where experiment = ? and seq = ? order by number"
_UNUSED_PIECE = """select experiment, seq, number from snapshot_piece p where not exists
    (select 1 from snapshot s where s.experiment = p.experiment and s.seq = p.seq) limit 1"""
_REMOVE_PIECE = "delete from snapshot_piece where experiment = ? and seq = ? and number = ?"
_REMOVE_OLD_SNAPSHOTS = """delete from snapshot where experiment = ?1 and seq not in
    (select seq from snapshot where experiment = ?1 order by seq desc limit ?2)"""
_EXPORTED = """select d.seq, d.id, ifnull(c.label, 'erased-' || d.context), d.arm, d.propensity, r.reward, r.rewards,
    r.source, d.at, r.at, r.seq, d.policy_version, d.available from decision d
    left join reward r on r.decision = d.seq and r.seq <= ?3
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.experiment = ?1 and d.seq > ?2 and d.seq <= ?3 order by d.seq limit ?4"""
_LOG_ROW = """select d.seq, d.id, d.at, d.context, ifnull(c.label, 'erased-' || d.context), d.arm, d.propensity,
    d.deferred, a.at, r.reward, r.rewards, r.source, r.at, d.available, d.probabilities, d.state_version,
    d.policy_version, l.reward, l.rewards, l.at from decision d
    left join activation a on a.decision = d.seq left join reward r on r.decision = d.seq
    left join late_reward l on l.decision = d.seq
    left join context c on c.experiment = d.experiment and c.number = d.context"""
_LOG_FILTERS = """ where d.experiment = ? and d.seq > ? and d.seq <= ? and ifnull(d.context = ?, true)
    and ifnull(d.arm = ?, true) {state} order by d.seq desc limit ?"""
_STATE_FILTERS = {  # of decisions that wait; all others have the source that settled them
    "pending": "and r.seq is null and (not d.deferred or a.seq is not null)",
    "deferred": "and r.seq is null and d.deferred and a.seq is null",
}
_REWARDED = """select d.context, d.arm, r.reward, r.rewards, d.propensity, d.at, d.policy_version, d.available
    from decision d join reward r on r.decision = d.seq
    where d.experiment = ? and (r.reward is not null or r.rewards is not null) order by d.seq desc limit ?"""
_LABELLED_DECISIONS = """select d.seq, d.id, d.experiment, d.context, d.state_version, d.policy_version, d.checksum,
    c.number is not null, c.label from decision d
    left join context c on c.experiment = d.experiment and c.number = d.context order by d.seq"""
_WITHOUT_DECISION = """select e.seq, e.decision from {table} e
    left join decision d on d.seq = e.decision and d.seq < e.seq where d.seq is null order by e.seq limit 1"""
_OUT_OF_ORDER = {  # the first event of each kind that could not have been written at its position
    "activation {} belongs to decision {}, which was not deferred": """select a.seq, a.decision from activation a
        join decision d on d.seq = a.decision where not d.deferred order by a.seq limit 1""",
    "reward {} belongs to decision {}, which was not activated before it": """select r.seq, r.decision from reward r
        join decision d on d.seq = r.decision left join activation a on a.decision = d.seq and a.seq < r.seq
        where d.deferred and a.seq is null and r.source in ('client', 'default', 'expired') order by r.seq limit 1""",
    "late_reward {} belongs to decision {}, which was not closed before it": """select l.seq, l.decision
        from late_reward l
        left join reward r on r.decision = l.decision and r.seq < l.seq and r.source <> 'client'
        where r.seq is null order by l.seq limit 1""",
}


class SqliteStore:
    """A connection to the file: a `Store` and its one `Ledger`. A writer holds the file's lock until it is closed."""

    shared: Final = False
    key: Final = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        connect: Connect = sqlite3.connect,
        prove: Callable[[Ledger], None] = lambda ledger: None,
    ) -> None:
        self.path, self.read_only, self._connect = Path(path), read_only, connect
        self.files = DatabaseFiles(path)
        self._lock: WriterLock | None = None
        if not read_only:
            self._lock = WriterLock(self.path)
        try:
            self.files.check_before_opening(for_writing=not read_only)
            self.was_empty = self.files.is_empty
            if not read_only:
                self.files.make_private()
            self.connection = self._open()
            self._migrate(prove)
            self.files.remember(only_grows=not read_only)
        except BaseException:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        try:
            uri = f"{self.files.path.as_uri()}?mode={'ro' if self.read_only else 'rwc'}"
            connection = self._connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY, cached_statements=256
            )
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be opened: {problem}") from problem
        try:
            connection.execute("pragma trusted_schema = off")
            is_ours = check_application(connection, self.path, may_be_empty=not self.read_only)
            if not self.read_only:
                if not is_ours:
                    connection.execute(f"pragma application_id = {APPLICATION}")
                connection.execute("pragma journal_mode = wal")
                connection.execute("pragma synchronous = full")
                connection.execute("pragma wal_autocheckpoint = 2000")  # pages
                connection.execute("pragma journal_size_limit = 33554432")  # bytes kept after readers made it longer
                connection.execute("pragma cache_size = -16384")  # kB
                connection.execute("pragma secure_delete = on")
            check_schema(connection, self.path)
        except sqlite3.Error as problem:
            connection.close()
            raise Unavailable(f"{self.path}: {problem}") from problem
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, prove: Callable[[Ledger], None]) -> None:
        """Migrate an older file; where `prove` raises, or the disk is full, it stays as it was."""
        try:
            migrate(self.connection, schema(), read_only=self.read_only, prove=lambda: prove(self))
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be migrated, and is as it was: {problem}") from problem

    def reader(self) -> SqliteStore:
        """Open another connection to the same file, for reading."""
        self.files.check()
        return SqliteStore(self.path, read_only=True, connect=self._connect)

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None  # the number of its handle may soon be that of another file

    @property
    def address(self) -> str:
        return str(self.files.path)

    @property
    def readable_by_others(self) -> bool:
        return self.files.readable_by_others

    @property
    def clock_record(self) -> str:
        return "" if self._lock is None else self._lock.record

    def keep_clock_record(self, record: str) -> None:
        if self._lock is not None and self._lock.record != record:
            self._lock.write(record)

    def check(self) -> None:
        self.files.check()

    def turn(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def alone_with(self, codes: Sequence[str]) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)  # the lock of the file keeps other writers away

    # how statements are run

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def each(self, query: str, values: Sequence[Any] = ()) -> Generator[tuple[Any, ...]]:
        """Yield the rows of a query one by one, without a list of them."""
        try:
            with contextlib.closing(self.connection.execute(query, values)) as cursor:
                yield from cursor
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def numbers(self, query: str, width: int, values: Sequence[Any] = ()) -> NDArray[np.float64]:
        """Return rows of `width` numbers as one array, without a list of them; positions are exact up to 2^53."""
        try:
            cells = chain.from_iterable(self.connection.execute(query, values))
            return np.fromiter(cells, dtype=np.float64).reshape(-1, width)
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Let all reads inside see the file as it is now, whatever others write meanwhile."""
        if self.connection.in_transaction:  # left by a write that failed and could not be rolled back
            self.rows("rollback")
        self.rows("begin")
        try:
            yield
        finally:
            self.rows("commit")

    def _commit(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Run one durable transaction; on a full disk, try once more after a checkpoint, which may free space."""
        try:
            try:
                self._transact(write)
            except sqlite3.Error as problem:
                if getattr(problem, "sqlite_errorcode", None) not in FULL:
                    raise
                self.checkpoint()
                self._transact(write)
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be written: {problem}") from problem
        self.files.check()

    def _transact(self, write: Callable[[sqlite3.Connection], None]) -> None:
        connection = self.connection
        try:
            connection.execute("begin immediate")
            write(connection)
            connection.execute("commit")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("rollback")
            raise

    # append at an expected position

    @property
    def position(self) -> int:
        """The seq of the last event."""
        (last,) = self.rows("select last from position")[0]
        return int(last)

    def append(
        self, expected: int, last: int, rows: Mapping[type, Sequence[Any]], statements: Sequence[Statement] = ()
    ) -> None:
        """Write all events in one transaction, after position `expected` and up to `last`, or none of them.

        `rows` has the events by type. Rows with a number that is not finite are rejected before they reach the disk:
        SQLite would store NaN as NULL.
        """
        check_finite(self.path, rows)

        def write(connection: sqlite3.Connection) -> None:
            moved = connection.execute("update position set last = ? where last = ?", (last, expected)).rowcount
            if moved != 1:
                raise Mismatch(f"{self.path} is no longer at position {expected}: another process has written to it.")
            for kind, events in rows.items():
                _insert(connection, kind, events)
            for statement, values in statements:
                connection.executemany(statement, values)

        self._commit(write)

    def probe(self, n_bytes: int) -> None:
        """Write `n_bytes` durably and remove them in the same transaction, or raise what a commit would raise.

        `secure_delete` overwrites deleted bytes, so all of them reach the disk. The pages stay in the file, free for
        the next commit.
        """

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("insert into scratch values (zeroblob(?))", (n_bytes,))
            connection.execute("delete from scratch")

        self.files.check()
        self._commit(write)

    # the event log

    def changes(self, until: int, experiment: int | None = None, after: int = 0) -> list[Change]:
        columns, where = ", ".join(Change._fields), "seq > ?1 and seq <= ?2 and ifnull(experiment = ?3, true)"
        query = f"select {columns} from change where {where} order by seq"
        return [Change(*row) for row in self.rows(query, (after, until, experiment))]

    def contexts(self, experiment: int | None = None, first: int = 0) -> Iterator[Context]:
        where = "ifnull(experiment = ?1, true) and number >= ?2"
        query = f"select experiment, number, label from context where {where} order by experiment, number"
        for row in self.each(query, (experiment, first)):
            yield Context(*row)

    def labels(self, experiment: int) -> list[str]:
        query = "select ifnull(label, 'erased-' || number) from context where experiment = ? order by number"
        return [label for (label,) in self.rows(query, (experiment,))]

    def last_time(self) -> int:
        last = "select at from {} order by seq desc limit 1"
        return max((at for table in EVENT_TABLES for (at,) in self.rows(last.format(table))), default=0)

    def columns(self, start: int, end: int) -> EventColumns:
        return EventColumns(
            self.numbers(_DECIDED, 7, (start, end)),
            self.numbers(_ACTIVATED, 3, (start, end)),
            self.numbers(_SETTLED, 5, (start, end)),
            self.numbers(_ACTIVATED_EARLIER, 5, (start, end, start)),
            self.numbers(_SETTLED_EARLIER, 6, (start, end, start)),
        )

    def state_versions(self, start: int, end: int) -> NDArray[np.float64]:
        return self.numbers(f"select state_version from decision {_BETWEEN}", 1, (start, end))[:, 0]

    def least_state_version(self, start: int, end: int) -> int | None:
        ((least,),) = self.rows("select min(state_version) from decision where seq > ? and seq <= ?", (start, end))
        return None if least is None else int(least)

    def masks(self, start: int, end: int) -> dict[int, bytes]:
        query = "select seq, available from decision where seq > ? and seq <= ? and available is not null"
        return dict(self.rows(query, (start, end)))

    def full_rewards(self, start: int, end: int) -> dict[int, tuple[bytes, bytes]]:
        return {seq: (used, rewards) for seq, used, rewards in self.rows(_FULL_REWARDS, (start, end))}

    def has_full_information(self, experiment: int) -> bool:
        first = self.rows("select probabilities is not null from decision where experiment = ? limit 1", (experiment,))
        return bool(first and first[0][0])

    def earned(self, experiment: int, until: int, after: int = 0) -> Iterator[tuple[int, float]]:
        for arm, reward, rewards in self.each(_EARNED, (experiment, after, until)):
            yield arm, reward if rewards is None else float(np.frombuffer(rewards, dtype="<f8")[arm])

    def pulls(self, experiment: int, until: int, after: int = 0) -> list[tuple[int, int]]:
        return self.rows(_PULLS, (experiment, after, until))

    def events(self, start: int, end: int) -> dict[type, list[Any]]:
        return {
            kind: self.rows(f"select {', '.join(kind._fields)} from {TABLES[kind]} {_BETWEEN}", (start, end))
            for kind in EVENTS
        }

    # decisions

    def find(self, ids: Sequence[str]) -> list[FoundDecision]:
        """Return the decisions that have these ids."""
        return [FoundDecision(*row) for row in self.rows(_FIND, (json.dumps(ids),))] if ids else []

    def waiting(self, start: int, end: int, experiments: Sequence[int]) -> tuple[Generator[Any], Generator[Any]]:
        values = (start, end, json.dumps(list(experiments)))
        return self.each(_WAITING_SINCE_DECIDED, values), self.each(_WAITING_SINCE_ACTIVATED, values)

    def open_after(self, experiment: int, position: int) -> list[str]:
        return [id for (id,) in self.rows(_OPEN_AFTER, (experiment, position))]

    def settled_between(self, experiment: int, position: int, end: int) -> list[tuple[int, int, int, float]]:
        return self.rows(_SETTLED_BETWEEN, (experiment, position, end))

    def erasure(self, experiment: int, context: int, new_id: Callable[[], str]) -> list[Statement]:
        query = "select seq from decision where experiment = ? and context = ?"
        ids = [(f"erased-{new_id()}", seq) for (seq,) in self.rows(query, (experiment, context))]
        return [
            ("update context set label = null where experiment = ? and number = ?", [(experiment, context)]),
            ("update decision set id = ?, checksum = null where seq = ?", ids),
            ("insert into erasure select last from position", [()]),
        ]

    def exported(self, experiment: int, after: int, until: int, limit: int) -> list[tuple[Any, ...]]:
        return self.rows(_EXPORTED, (experiment, after, until, limit))

    def log_rows(self, experiment: int, wanted: LogSearch) -> list[FoundRow]:
        after, until, limit, context, arm, state = wanted
        condition = _STATE_FILTERS.get(state or "", "and r.source = ?" if state else "")
        values = [experiment, after, until, context, arm, *([state] if "?" in condition else []), limit]
        query = _LOG_ROW + _LOG_FILTERS.format(state=condition)
        return [FoundRow(*row) for row in self.rows(query, values)]

    def log_row(self, experiment: int, id: str) -> FoundRow | None:
        for row in self.rows(f"{_LOG_ROW} where d.id = ? and d.experiment = ?", (id, experiment)):
            return FoundRow(*row)
        return None

    def decision_time(self, position: int) -> int | None:
        query = "select at from decision where seq <= ? order by seq desc limit 1"
        for (at,) in self.rows(query, (position,)):
            return int(at)
        return None

    def rewarded(self, experiment: int, latest: int | None = None) -> list[tuple[Any, ...]]:
        return self.rows(_REWARDED, (experiment, -1 if latest is None else latest))[::-1]

    # snapshots

    def states(self, experiment: int, until: int) -> Generator[SavedState]:
        for seq, tally, state, n_summary, in_pieces in self.each(_STATES, (experiment, until)):
            blob = self._joined(experiment, seq, state) if in_pieces else state
            yield SavedState(seq, tally, *split_state(blob, n_summary))

    def snapshot_positions(self, until: int) -> list[tuple[int, int]]:
        return self.rows("select experiment, seq from snapshot where seq <= ?", (until,))

    def snapshot_state(self, experiment: int, seq: int) -> bytes | memoryview:
        query = "select state, summary from snapshot where experiment = ? and seq = ?"
        ((last, n_summary),) = self.rows(query, (experiment, seq))
        return split_state(self._joined(experiment, seq, last), n_summary)[0]

    def _joined(self, experiment: int, seq: int, last: bytes) -> bytes:
        return b"".join([*(piece for (piece,) in self.each(_PIECES, (experiment, seq))), last])

    def last_snapshot(self, experiment: int) -> int:
        ((last,),) = self.rows("select ifnull(max(seq), 0) from snapshot where experiment = ?", (experiment,))
        return int(last)

    def save(self, position: int, row: Snapshot | SnapshotPiece) -> None:
        removal: list[Statement] = []
        if isinstance(row, Snapshot):
            removal = [(_REMOVE_OLD_SNAPSHOTS, [(row.experiment, SNAPSHOTS_KEPT)])]
        self.append(position, position, {type(row): [row]}, removal)

    def has_unused_piece(self) -> bool:
        return bool(self.rows(_UNUSED_PIECE))

    def remove_unused_piece(self, position: int) -> bool:
        unused = self.rows(_UNUSED_PIECE)
        if unused:
            self.append(position, position, {}, [(_REMOVE_PIECE, unused)])
        return bool(unused)

    # what is not an event: keys of the service, erasures to be completed, space in the file

    def _update(self, statement: str) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(statement)

        self._commit(write)

    def remove_keys(self) -> None:
        """Remove all keys of the service."""
        self._update("delete from api_key")

    @property
    def n_erasures(self) -> int:
        """Erasures whose old bytes may still be in the file."""
        ((count,),) = self.rows("select count(*) from erasure")
        return int(count)

    def clear_erasures(self) -> None:
        self._update("delete from erasure")

    @property
    def n_bytes(self) -> int:
        """The size of the main file."""
        ((pages,),), ((size,),) = self.rows("pragma page_count"), self.rows("pragma page_size")
        return int(pages * size)

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the main file, without waiting; False if a reader still needs some of it."""
        try:
            self.connection.execute("pragma busy_timeout = 0")
            ((busy, _, _),) = self.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
            return not busy
        except sqlite3.Error:
            return False
        finally:
            self.connection.execute(f"pragma busy_timeout = {int(BUSY * 1000)}")

    def rewrite(self) -> bool:
        """Rewrite the whole file, which removes every overwritten byte; False if that is not possible now.

        It is not possible while another process reads an older state of the file, or without space for a second copy.
        """
        try:
            if not self.checkpoint():
                return False
            self.connection.execute("vacuum")
            is_rewritten = self.checkpoint()
            self.files.remember(only_grows=is_rewritten)  # otherwise a later checkpoint makes the file shorter
            return is_rewritten
        except sqlite3.Error:
            return False

    # queries for `verify`

    def check_pages(self) -> None:
        """Raise `Mismatch` if SQLite finds the file damaged."""
        found = self.rows("pragma integrity_check(1)")[0][0]
        if found != "ok":
            raise Mismatch(f"{self.path} is damaged: {found}.")

    def events_per_position(self, start: int, end: int) -> NDArray[np.int64]:
        found = np.zeros(end - start, dtype=np.int64)
        for table in EVENT_TABLES:
            seqs = self.numbers(f"select seq from {table} where seq > ? and seq <= ?", 1, (start, end))[:, 0]
            found += np.bincount(seqs.astype(np.int64) - start - 1, minlength=end - start)
        return found

    def event_outside(self, last: int) -> tuple[str, int] | None:
        for table in EVENT_TABLES:
            for (seq,) in self.rows(f"select seq from {table} where seq <= 0 or seq > ? limit 1", (last,)):
                return table, int(seq)
        return None

    def labelled_decisions(self) -> Iterator[tuple[Any, ...]]:
        return self.each(_LABELLED_DECISIONS)

    def without_decision(self) -> tuple[str, int, int] | None:
        for table in ("activation", "reward", "late_reward"):
            for seq, decision in self.rows(_WITHOUT_DECISION.format(table=table)):
                return table, seq, decision
        return None

    def unknown_source(self) -> tuple[int, str] | None:
        query = "select seq, source from reward where source not in (select value from json_each(?)) limit 1"
        for seq, source in self.rows(query, (json.dumps(SOURCES),)):
            return seq, source
        return None

    def out_of_order(self) -> str | None:
        for description, query in _OUT_OF_ORDER.items():
            for row in self.rows(query):
                return description.format(*row)
        return None


class SqliteKeys:
    """The keys of the service in a file, over connections of their own: the engine of a service holds its lock.

    A file that does not exist is created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def close(self) -> None:
        """Every method has a connection of its own."""

    def all(self, timeout: float = BUSY) -> list[KeyRow]:
        query = f"select {', '.join(KeyRow._fields)} from api_key order by created_at, id"
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=timeout)) as connection:
                return [KeyRow(*row) for row in connection.execute(query)]
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def add(self, key: KeyRow, *, instead_of: str | None = None, until: int | None = None) -> None:
        marks = ", ".join("?" * len(key))
        with self._writing() as connection:
            connection.execute(f"insert into api_key ({', '.join(KeyRow._fields)}) values ({marks})", key)
            if instead_of is not None:
                connection.execute("update api_key set expires_at = ? where id = ?", (until, instead_of))

    def revoke(self, id: str, at: int, by: str | None) -> None:
        with self._writing() as connection:
            revoked = "update api_key set revoked_at = ?, revoked_by = ? where id = ? and revoked_at is null"
            connection.execute(revoked, (at, by, id))

    def end_epoch(self, id: str, epoch: int) -> None:
        with self._writing() as connection:
            connection.execute("update api_key set epoch = ? where id = ? and epoch <= ?", (epoch + 1, id, epoch))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection with a transaction; a running service may write meanwhile."""
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=2 * BUSY)) as connection, connection:
                connection.execute("pragma synchronous = full")
                yield connection
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be written: {problem}") from problem

    def check(self) -> None:
        SqliteStore(self.path, read_only=self.path.exists()).close()


def check_application(connection: sqlite3.Connection, path: Path, *, may_be_empty: bool = False) -> bool:
    """Refuse a file that another program made; return whether it is marked as one of this package."""
    try:
        (application,) = connection.execute("pragma application_id").fetchone()
        (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.DatabaseError as problem:
        if getattr(problem, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:  # errors of Python have no code
            raise
        repair = "Pass another file; if it was one, it is damaged: restore a backup."
        raise InvalidArgument("path", "a file that alphafair made", str(path), repair) from problem
    if application != APPLICATION and (tables or not may_be_empty):
        raise InvalidArgument("path", "a file that alphafair made", str(path), "Pass another file, or a new one.")
    return bool(application == APPLICATION)


def _insert(connection: sqlite3.Connection, kind: type, events: Sequence[Any]) -> None:
    """Insert many rows per statement: each statement releases Python's lock, which a busy thread may hold for long."""
    first = 0
    for size in ROWS_PER_STATEMENT:
        while len(events) - first >= size:
            values = chain.from_iterable(events[first : first + size])
            connection.execute(_insertion(kind, size), tuple(values))
            first += size


@functools.cache
def _insertion(kind: Any, n_rows: int) -> str:
    row = f"({', '.join('?' * len(kind._fields))})"
    return f"insert into {TABLES[kind]} ({', '.join(kind._fields)}) values {', '.join([row] * n_rows)}"


# copies of a file


def copy_pages(source: Path, part: Path) -> None:
    """Copy what a reader sees now, whatever is written meanwhile."""
    uri = f"{source.absolute().as_uri()}?mode=ro"
    with contextlib.ExitStack() as opened:
        try:
            original = opened.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True)))
            check_application(original, source)
        except sqlite3.Error as problem:
            raise Unavailable(f"{source} cannot be read: {problem}") from problem
        with contextlib.closing(sqlite3.connect(part)) as copied:
            original.backup(copied)


def needs_migration(path: Path) -> bool:
    """Whether a file is of an older version; False where it cannot be read."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        return is_older(connection)
    return False


def make_one_file(path: Path) -> None:
    """Leave a copy without files beside it, so that it can be read without writing any."""
    with contextlib.closing(sqlite3.connect(path)) as copied:
        copied.execute("pragma journal_mode = delete")


def n_events_of(path: Path) -> int:
    """Return how many events a file has; refused where SQLite finds it damaged."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as copied:
        try:
            ((found,),) = copied.execute("pragma integrity_check(1)")
            ((last,),) = copied.execute("select last from position")
        except sqlite3.DatabaseError as problem:
            raise Mismatch(f"{path} is damaged: {problem}.") from problem
    if found != "ok":
        raise Mismatch(f"{path} is damaged: {found}.")
    return int(last)
