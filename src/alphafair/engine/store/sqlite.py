"""The event log in a SQLite file, which one process writes.

The file uses WAL with synchronous=FULL, so events are on the disk when `commit` returns. Any number of processes may
read meanwhile. One transaction may have events of several experiments.

An erasure overwrites rows. But where SQLite has rearranged a page, copies of labels and ids may be left in its unused
part, which only rewriting the whole file removes. A small file is rewritten at once, unless another process reads it; a
large one, which would hold up requests for too long, when it is next opened for writing. Until then the erasure is
recorded in the file.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.store import questions
from alphafair.engine.store.dialect import SQLITE
from alphafair.engine.store.files import DatabaseFiles, WriterLock
from alphafair.engine.store.ledger import (
    EVENT_TABLES,
    EVENTS,
    MARKED,
    SNAPSHOTS_KEPT,
    TABLES,
    Context,
    Head,
    KeyRow,
    Opened,
    Part,
    Question,
    Snapshot,
    SnapshotPiece,
    Span,
    Statement,
    Store,
    check_finite,
    conflict_of,
)
from alphafair.engine.store.migrate import check_file, is_before_first, migrate_file, needs_migration_of
from alphafair.errors import InvalidArgument, Mismatch, Unavailable

APPLICATION: Final = 0xA1FA  # SQLite's application_id, which marks a file of this package
ROWS_PER_STATEMENT: Final = (256, 64, 16, 4, 1)
BUSY: Final = 5.0  # seconds to wait for SQLite's own lock
FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
REWRITE_AT_ONCE: Final = 1 << 25  # bytes of a file that is rewritten between two requests
REWRITE_PAUSE: Final = 60.0  # seconds until the next attempt, if the file was being read or the disk was full

Connect = Callable[..., sqlite3.Connection]

_MOVED = "update experiment set position = ?, at = ? where key = ? and position = ?"
_CREATED = "insert into experiment (key, name, position, at) values (?, ?, ?, ?)"
_MARKED = "insert into mark (experiment, block, event) values (?, ?, ?)"
_MARK = "select event from mark where experiment = ? and block = ?"
_LAST = " union all ".join(f"select max(event) from {table}" for table in EVENT_TABLES)
_N_EVENTS = "select coalesce(sum(position), 0) from experiment", "select last from position"  # in older versions
_UNUSED_PIECE = """delete from snapshot_piece where rowid = (select p.rowid from snapshot_piece p
    where p.experiment = ? and not exists
    (select 1 from snapshot s where s.experiment = p.experiment and s.position = p.position) limit 1)"""
_REMOVE_OLD_SNAPSHOTS = """delete from snapshot where experiment = ? and position not in
    (select position from snapshot where experiment = ? order by position desc limit ?)"""


class Counter:
    """Numbers of a file: one more than the last."""

    def __init__(self, store: SqliteStore, event: int) -> None:
        self._store, self.event = store, event

    def next(self, key: int, position: int) -> int:
        self.event += 1
        return self.event

    def new_key(self) -> int:
        return max((head.key for head in self._store.heads()), default=0) + 1


class SqliteStore:
    """A connection to the file. A writer holds the file's lock until it is closed."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        connect: Connect = sqlite3.connect,
        prove: Callable[[Store], None] = lambda store: None,
    ) -> None:
        self.path, self._connect = str(path), connect
        self.files = DatabaseFiles(path)
        self._lock = None if read_only else WriterLock(Path(path))
        self._not_before, self._n_tried = 0.0, 0  # when to rewrite the file again, and for how many erasures it failed
        try:
            self.files.check_before_opening(for_writing=not read_only)
            was_empty = self.files.is_empty
            if not read_only:
                self.files.make_private()
            self.opened = Opened(read_only, was_empty, self.files.readable_by_others, True, self._lock)
            self.connection = self._open()
            self._last: int | None = None  # the last event, once a migration is done
            self._migrate(prove)
            self.files.remember(only_grows=not read_only)
        except BaseException:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        try:
            uri = f"{self.files.path.as_uri()}?mode={'ro' if self.opened.read_only else 'rwc'}"
            connection = self._connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY, cached_statements=256
            )
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be opened: {problem}") from problem
        try:
            connection.execute("pragma trusted_schema = off")
            is_ours = check_application(connection, Path(self.path), may_be_empty=not self.opened.read_only)
            if not self.opened.read_only:
                if not is_ours:
                    connection.execute(f"pragma application_id = {APPLICATION}")
                connection.execute("pragma journal_mode = wal")
                connection.execute("pragma synchronous = full")
                connection.execute("pragma wal_autocheckpoint = 2000")  # pages
                connection.execute("pragma journal_size_limit = 33554432")  # bytes kept after readers made it longer
                connection.execute("pragma cache_size = -16384")  # kB
                connection.execute("pragma secure_delete = on")
            check_file(connection, self.path)
        except sqlite3.Error as problem:
            connection.close()
            raise Unavailable(f"{self.path}: {problem}") from problem
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, prove: Callable[[Store], None]) -> None:
        """Migrate an older file; where `prove` raises, or the disk is full, it stays as it was."""
        try:
            is_rewritten = migrate_file(
                self.connection, self.files.path, read_only=self.opened.read_only, prove=lambda: prove(self)
            )
            if is_rewritten:
                with contextlib.suppress(sqlite3.Error):  # it has the size of both versions otherwise
                    self.connection.execute("vacuum")
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be migrated, and is as it was: {problem}") from problem

    def reader(self) -> SqliteStore:
        """Open another connection to the same file, for reading."""
        self.files.check()
        return SqliteStore(self.path, read_only=True, connect=self._connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        if self._lock is not None:
            self._lock.release()

    @property
    def address(self) -> str:
        return str(self.files.path)

    def turn(self, key: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def announce(self, code: str) -> None:
        """The lock of the file keeps other writers away."""

    def alone_with(self, codes: Sequence[str]) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)

    # reading

    def _rows(self, query: str, values: Any = ()) -> list[Any]:
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def rows(self, question: Question, **values: Any) -> list[Any]:
        return self._rows(SQLITE.question(question), _encoded(values))

    def each(self, question: Question, **values: Any) -> Generator[Any]:
        try:
            with contextlib.closing(self.connection.execute(SQLITE.question(question), _encoded(values))) as cursor:
                yield from cursor
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def columns(self, question: Question, width: int, **values: Any) -> NDArray[np.float64]:
        try:
            cells = chain.from_iterable(self.connection.execute(SQLITE.question(question), values))
            return np.fromiter(cells, dtype=np.float64).reshape(-1, width)
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        if self.connection.in_transaction:  # left by a write that failed and could not be rolled back
            self._rows("rollback")
        self._rows("begin")
        try:
            yield
        finally:
            self._rows("commit")

    def heads(self, key: int | None = None) -> list[Head]:
        query, values = "select key, name, position, at from experiment", () if key is None else (key,)
        return [Head(*row) for row in self._rows(f"{query}{' where key = ?' if values else ' order by key'}", values)]

    def span(self, key: int, after: int, until: int) -> Span:
        (low,) = self._rows(_MARK, (key, (after + 1) // MARKED)) or [(1,)]
        behind = self._rows(_MARK, (key, until // MARKED + 1)) if until < questions.LATEST else []
        return Span(low[0], behind[0][0] - 1 if behind else self._last_event())

    def _last_event(self) -> int:
        if self.opened.read_only or self._last is None:
            return max(last or 0 for (last,) in self._rows(_LAST))
        return self._last

    # writing

    def _commit(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Run one durable transaction; on a full disk, try once more after a checkpoint, which may free space."""
        try:
            try:
                self._transact(write)
            except sqlite3.Error as problem:
                if getattr(problem, "sqlite_errorcode", None) not in FULL:
                    raise
                self._checkpoint()
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

    def numbers(self) -> Counter:
        if self._last is None:
            self._last = self._last_event()
        return Counter(self, self._last)

    def commit(self, parts: Sequence[Part], statements: Sequence[Statement] = ()) -> None:
        """Write all parts in one transaction, or none of them.

        Rows with a number that is not finite are rejected before they reach the disk: SQLite would store NaN as NULL.
        """
        rows: dict[Any, list[Any]] = {}
        for kind in (*EVENTS, Context):
            if events := [row for part in parts for row in part.rows.get(kind, ())]:
                rows[kind] = events
                if len(parts) > 1:
                    events.sort(key=_first)  # a page is full before the next one begins
        check_finite(self.path, rows)

        def write(connection: sqlite3.Connection) -> None:
            self._move(connection, parts)
            marks = [(part.key, *mark) for part in parts for mark in part.marks]
            if marks:
                connection.executemany(_MARKED, marks)
            for kind, events in rows.items():
                _insert(connection, kind, events)
            for statement, values in statements:
                connection.executemany(SQLITE.question(statement), values)

        try:
            self._commit(write)
        except BaseException:
            self._last = None  # it may have been written after all
            raise
        if self._last is not None:
            self._last = max((rows[kind][-1][0] for kind in EVENTS if kind in rows), default=self._last)

    def _move(self, connection: sqlite3.Connection, parts: Sequence[Part]) -> None:
        """Move every experiment to the end of its part."""
        new = [(part.key, part.name, part.position, part.at) for part in parts if not part.expected]
        if new:
            connection.executemany(_CREATED, new)
        old = [(part.position, part.at, part.key, part.expected) for part in parts if part.expected]
        if old and connection.executemany(_MOVED, old).rowcount != len(old):
            expected = ", ".join(f"{part.expected} of {part.name}" for part in parts[:5] if part.expected)
            raise Mismatch(f"{self.path} is no longer at position {expected}: another process has written to it.")

    def save(self, row: Snapshot | SnapshotPiece) -> None:
        def write(connection: sqlite3.Connection) -> None:
            columns = ", ".join((*row._fields, "node"))
            marks = ", ".join("?" * (len(row) + 1))
            statement = f"insert into {TABLES[type(row)]} ({columns}) values ({marks}) on conflict {conflict_of(row)}"
            connection.execute(statement, (*row, ""))
            if isinstance(row, Snapshot):
                connection.execute(_REMOVE_OLD_SNAPSHOTS, (row.experiment, row.experiment, SNAPSHOTS_KEPT))

        self._commit(write)

    def tidy(self, key: int) -> bool:
        removed = 0

        def write(connection: sqlite3.Connection) -> None:
            nonlocal removed
            removed = connection.execute(_UNUSED_PIECE, (key,)).rowcount

        if self._rows("select 1 from snapshot_piece where experiment = ? limit 1", (key,)):
            self._commit(write)
        return bool(removed)

    def probe(self, n_bytes: int = 0) -> None:
        """Write `n_bytes` durably and remove them in the same transaction, or raise what a commit would raise.

        `secure_delete` overwrites deleted bytes, so all of them reach the disk. The pages stay in the file, free for
        the next commit.
        """

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("insert into scratch values (zeroblob(?))", (n_bytes,))
            connection.execute("delete from scratch")

        self.files.check()
        if n_bytes:
            self._commit(write)

    # what erasures leave behind

    def compact(self, *, at_once: bool) -> int:
        n_erasures = questions.n_erasures(self)
        now = time.monotonic()
        if not n_erasures or self.opened.read_only or (n_erasures == self._n_tried and now < self._not_before):
            return n_erasures
        self._n_tried, self._not_before = n_erasures, now + REWRITE_PAUSE
        if not at_once and self._n_bytes > REWRITE_AT_ONCE:
            self._checkpoint()
        elif self._rewrite():
            with contextlib.suppress(Unavailable):  # it stays recorded then
                self._commit(_forget_erasures)
                self._n_tried = 0
        return questions.n_erasures(self)

    @property
    def _n_bytes(self) -> int:
        """The size of the main file."""
        ((pages,),), ((size,),) = self._rows("pragma page_count"), self._rows("pragma page_size")
        return int(pages * size)

    def _checkpoint(self) -> bool:
        """Move the write-ahead log into the main file, without waiting; False if a reader still needs some of it."""
        try:
            self.connection.execute("pragma busy_timeout = 0")
            ((busy, _, _),) = self.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
            return not busy
        except sqlite3.Error:
            return False
        finally:
            self.connection.execute(f"pragma busy_timeout = {int(BUSY * 1000)}")

    def _rewrite(self) -> bool:
        """Rewrite the whole file, which removes every overwritten byte; False if that is not possible now.

        It is not possible while another process reads an older state of the file, or without space for a second copy.
        """
        try:
            if not self._checkpoint():
                return False
            self.connection.execute("vacuum")
            is_rewritten = self._checkpoint()
            self.files.remember(only_grows=is_rewritten)  # otherwise a later checkpoint makes the file shorter
            return is_rewritten
        except sqlite3.Error:
            return False

    # damage

    def check_pages(self) -> None:
        """Raise `Mismatch` if SQLite finds the file damaged."""
        found = self._rows("pragma integrity_check(1)")[0][0]
        if found != "ok":
            raise Mismatch(f"{self.path} is damaged: {found}.")


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

    def clear(self) -> None:
        with self._writing() as connection:
            connection.execute("delete from api_key")

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


def _forget_erasures(connection: sqlite3.Connection) -> None:
    connection.execute("delete from erasure")


def _first(row: Any) -> Any:
    return row[0]


def _encoded(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of parameters, a list of ids as JSON."""
    return values | {"ids": json.dumps(values["ids"])} if "ids" in values else values


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
        return needs_migration_of(connection)
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
            ((last,),) = copied.execute(_N_EVENTS[is_before_first(copied)])
        except sqlite3.DatabaseError as problem:
            raise Mismatch(f"{path} is damaged: {problem}.") from problem
    if found != "ok":
        raise Mismatch(f"{path} is damaged: {found}.")
    return int(last)
