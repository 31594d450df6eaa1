"""The file: an append-only log in SQLite, with one writer and any number of readers.

`append(expected, events)` is the only way in: one durable transaction, committed only if the last event in the file is
the one that the caller has folded. WAL with synchronous=FULL: when it returns, the events are on the disk.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.events import NUMBERS, TABLES
from alphafair.engine.files import DatabaseFiles, WriterLock
from alphafair.engine.migrations import check_schema, migrate, schema
from alphafair.errors import InvalidArgument, Mismatch, Unavailable

APPLICATION: Final = 0xA1FA  # SQLite's application_id: how one of our files is recognised
SIZES: Final = (256, 64, 16, 4, 1)  # rows per statement
BUSY: Final = 5.0  # seconds to wait for somebody who holds SQLite's own lock
FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
PAGE_BYTES: Final = 4096
OVERHEAD: Final = 16  # pages that every commit writes: the last ones of each table and index, and the position

Connect = Callable[..., sqlite3.Connection]
Update = tuple[str, Iterable[Sequence[Any]]]  # a statement and its rows


class Ledger:
    """A connection to the file. A writer holds the file's lock until it is closed."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, connect: Connect = sqlite3.connect):
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
                connection.execute("pragma wal_autocheckpoint = 2000")  # pages, which a checkpoint needs room for
                connection.execute("pragma journal_size_limit = 33554432")  # bytes kept after readers made it longer
                connection.execute("pragma cache_size = -16384")  # kB
                connection.execute("pragma secure_delete = on")
            check_schema(connection, self.path)
            migrate(connection, schema(), read_only=self.read_only)
        except sqlite3.Error as problem:
            connection.close()
            raise Unavailable(f"{self.path}: {problem}") from problem
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def position(self) -> int:
        """The seq of the last event."""
        (last,) = self.rows("select last from position")[0]
        return int(last)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def numbers(self, query: str, width: int, values: Sequence[Any] = ()) -> NDArray[np.float64]:
        """Rows of so many numbers as one array, without a list of them in between; positions are exact up to 2^53."""
        try:
            cells = chain.from_iterable(self.connection.execute(query, values))
            return np.fromiter(cells, dtype=np.float64).reshape(-1, width)
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def each(self, query: str, values: Sequence[Any] = ()) -> Generator[tuple[Any, ...]]:
        """Rows one by one, read when they are asked for."""
        try:
            with contextlib.closing(self.connection.execute(query, values)) as cursor:
                yield from cursor
        except sqlite3.Error as problem:
            raise Unavailable(f"{self.path} cannot be read: {problem}") from problem

    def append(
        self, expected: int, last: int, rows: Mapping[type, Sequence[Any]], updates: Sequence[Update] = ()
    ) -> None:
        """Write all events in one transaction, after `expected` and up to `last`, or none of them.

        `rows` has the events by their kind: see `alphafair.engine.events`. One with a number that is not finite is not
        offered to the disk: SQLite takes NaN for NULL.
        """
        _check_numbers(self.path, rows)

        def write(connection: sqlite3.Connection) -> None:
            moved = connection.execute("update position set last = ? where last = ?", (last, expected)).rowcount
            if moved != 1:
                raise Mismatch(f"{self.path} has moved on from position {expected}: somebody else has written to it.")
            for kind, events in rows.items():
                _insert(connection, kind, events)
            for statement, values in updates:
                connection.executemany(statement, values)

        self._commit(write)

    def probe(self, n_bytes: int) -> None:
        """Write so many bytes durably and take them back in the same transaction, or raise what a commit would.

        `secure_delete` overwrites deleted bytes, so they all reach the disk. The pages stay in the file, free for the
        next commit.
        """

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("insert into scratch values (zeroblob(?))", (n_bytes,))
            connection.execute("delete from scratch")

        self.files.check()
        self._commit(write)

    def _commit(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """One durable transaction; on a full disk tried once more after a checkpoint, which may have made room."""
        try:
            try:
                self._transact(write)
            except sqlite3.Error as problem:
                if not _is_full(problem):
                    raise
                self.empty_log()  # which makes room, if there is anything to move
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

    def empty_log(self) -> bool:
        """Move the write-ahead log into the main file, without waiting; False if a reader still needs some of it."""
        try:
            self.connection.execute("pragma busy_timeout = 0")
            ((busy, _, _),) = self.connection.execute("pragma wal_checkpoint(truncate)").fetchall()
            return not busy
        except sqlite3.Error:
            return False
        finally:
            self.connection.execute(f"pragma busy_timeout = {int(BUSY * 1000)}")

    @property
    def n_bytes(self) -> int:
        """Of the main file."""
        ((pages,),), ((size,),) = self.rows("pragma page_count"), self.rows("pragma page_size")
        return int(pages * size)

    def rewrite(self) -> bool:
        """Write the whole file anew: nothing is left of what was overwritten. False if that is not possible just now.

        It is not while somebody reads an older state of the file, and needs room on the disk for a second copy.
        """
        try:
            if not self.empty_log():
                return False
            self.connection.execute("vacuum")
            is_rewritten = self.empty_log()
            self.files.remember(only_grows=is_rewritten)  # else it becomes shorter with some later checkpoint
            return is_rewritten
        except sqlite3.Error:
            return False

    def update(self, updates: Sequence[Update]) -> None:
        """Statements that write no event, in one durable transaction."""

        def write(connection: sqlite3.Connection) -> None:
            for statement, values in updates:
                connection.executemany(statement, values)

        self._commit(write)

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Reads inside see the file as it is now, whatever is written meanwhile."""
        if self.connection.in_transaction:  # a write that failed, and could not be taken back then
            self.rows("rollback")
        self.rows("begin")
        try:
            yield
        finally:
            self.rows("commit")

    def remove_keys(self) -> None:
        """Keys of the service are not events: who may use it is not part of the log."""
        self.update([("delete from api_key", [()])])

    def reader(self) -> Ledger:
        """Another connection to the same file, for reading."""
        self.files.check()
        return Ledger(self.path, read_only=True, connect=self._connect)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        if self._lock is not None:
            self._lock.release()


def check_application(connection: sqlite3.Connection, path: Path, *, may_be_empty: bool = False) -> bool:
    """Refuse a file that something else made; whether it says that it is one of ours."""
    (application,) = connection.execute("pragma application_id").fetchone()
    (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    if application != APPLICATION and (tables or not may_be_empty):
        raise InvalidArgument("path", "a file that alphafair made", str(path), "Name another file, or a new one.")
    return bool(application == APPLICATION)


def commit_bytes(rows: Mapping[type, Sequence[Any]]) -> int:
    """At most what a commit of these rows writes: each row, and a page per row, as it may be anywhere in an index."""
    fields = (field for events in rows.values() for event in events for field in event)
    payload = sum(len(field) for field in fields if isinstance(field, str | bytes))
    return (sum(map(len, rows.values())) + OVERHEAD) * PAGE_BYTES + payload


def _is_full(problem: sqlite3.Error) -> bool:
    """The disk, a quota or the largest file allowed; SQLite says so in several ways."""
    return getattr(problem, "sqlite_errorcode", None) in FULL


def _check_numbers(path: Path, rows: Mapping[type, Sequence[Any]]) -> None:
    for kind, columns in NUMBERS.items():
        events = rows.get(kind)
        if not events:
            continue
        number, blob = (kind._fields.index(column) for column in columns)  # type: ignore[attr-defined]
        sound = all(map(math.isfinite, [event[number] for event in events if event[number] is not None]))
        blobs = b"".join([event[blob] for event in events if event[blob] is not None])
        if not sound or (blobs and not np.isfinite(np.frombuffer(blobs, dtype="<f8")).all()):
            raise Mismatch(f"{path}: a {TABLES[kind]} with a number that is not finite was not written.")


def _insert(connection: sqlite3.Connection, kind: type, events: Sequence[Any]) -> None:
    """Few statements for many rows: each gives up Python's lock, which is hard to get back beside a busy thread."""
    first = 0
    for size in SIZES:
        while len(events) - first >= size:
            values = chain.from_iterable(events[first : first + size])
            connection.execute(_statement(kind, size), tuple(values))
            first += size


@functools.cache
def _statement(kind: Any, n_rows: int) -> str:
    row = f"({', '.join('?' * len(kind._fields))})"
    return f"insert into {TABLES[kind]} ({', '.join(kind._fields)}) values {', '.join([row] * n_rows)}"  # noqa: S608 - our own names
