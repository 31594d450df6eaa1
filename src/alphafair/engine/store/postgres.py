"""The event log in a PostgreSQL database, which any number of processes append to.

A commit is of one experiment. It is one statement and so one transaction: it moves the experiment's row only if that
still has the expected position, and inserts events only if it has moved. So no process holds a lock while it thinks,
and one that is stopped in the middle leaves nothing behind. Only a process that was too late keeps the row locked for
its next attempt, which could otherwise be too late again and again; the server ends such a transaction after a second.

When a connection is lost before the answer has arrived, the same rows are written again: either that succeeds, or the
rows at those positions tell whether they are the ones that were sent.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.addresses import shown
from alphafair.engine.clock import WrongClock
from alphafair.engine.store.connections import LATER, SOON, ConnectionLost, ConnectionPool
from alphafair.engine.store.dialect import NEWEST, POSTGRES, as_dict
from alphafair.engine.store.ledger import (
    EVENTS,
    SNAPSHOTS_KEPT,
    TABLES,
    Behind,
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
    check_finite,
    conflict_of,
)
from alphafair.engine.store.migrate import migrate, move_in_database
from alphafair.errors import InvalidArgument, RequestError, Unavailable, Uncertain
from alphafair.extras import needed_by

with needed_by("A ledger in PostgreSQL", "postgres"):
    import psycopg

SHIFT: Final = 36  # bits of a position in an event
MOST_POSITION: Final = (1 << SHIFT) - 1
AGAIN: Final = (0.0, 0.1, 0.4, 1.0)  # seconds before each attempt to commit what may have been written
GIVE_UP: Final = 10.0  # seconds after which there is no other attempt
MOST_SKEW: Final = 5.0  # seconds between the clocks of a process and of the database
TURN: Final = "1s"  # others wait so long for a process that was stopped in its turn
LONG_READ: Final = "1h"  # the idle time of a transaction that only reads, which delays no writer
MIGRATING: Final = 6 * 3600.0  # seconds until the answer to a statement that brings a database to this version
Result = TypeVar("Result")

_HEADS = "select key, name, position, at from experiment"
_REMOVE_UNUSED = """delete from snapshot_piece p where experiment = $1 and node = $2 and not exists
    (select 1 from snapshot s where s.experiment = p.experiment and s.position = p.position and s.node = p.node)"""
_OLDEST_KEPT = (  # null while there are fewer: another process may still be writing the pieces of an earlier one
    "(select position from snapshot where experiment = $1 order by position desc offset $2::bigint - 1 limit 1)"
)
_FOUND = """select c.relname, a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
    union all select c.relname, case o.contype when 'p' then 'primary key' else 'unique' end
    from pg_class c join pg_constraint o on o.conrelid = c.oid
    where c.relnamespace = $1::regnamespace and o.contype in ('p', 'u')"""
_ADDED = """select t.tgname from pg_class c join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal
    where c.relnamespace = $1::regnamespace union all select r.rulename from pg_class c
    join pg_rewrite r on r.ev_class = c.oid where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p')"""


class Shift:
    """Numbers of a database: the key and the position in one integer."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def next(self, key: int, position: int) -> int:
        return key << SHIFT | position

    def new_key(self) -> int:
        return int(self._store._rows("select nextval('experiment_key')")[0][0])


class PostgresStore:
    """A database. `reader` gives the same one once more, over the same connections, to be used by one thread."""

    def __init__(
        self, url: str, *, read_only: bool = False, create: bool = True, parent: PostgresStore | None = None
    ) -> None:
        self.address, self.path = url, shown(url)
        self._pinned: psycopg.Connection[Any] | None = None  # of a transaction that reads
        self._pin = threading.RLock()
        self._turn: psycopg.Connection[Any] | None = None  # of a transaction that others wait for
        self._session: psycopg.Connection[Any] | None = None  # holds the lock that announces this process
        self._announced: str | None = None
        self._parent = parent
        self.connections: ConnectionPool
        self.opened: Opened
        self.node: str
        if parent is not None:
            self.connections, self.opened, self.node = parent.connections, parent.opened, parent.node
            self.schema: str = parent.schema
            return
        self.connections = ConnectionPool(url, read_only=read_only)
        self.schema = self.connections.schema
        self.node = secrets.token_hex(8)
        try:
            was_empty = self.connections.run(
                lambda connection: self._prepare(connection, read_only, create), limit=MIGRATING
            )
        except BaseException:
            self.close()
            raise
        self.opened = Opened(read_only, was_empty, readable_by_others=False, together=False)

    def _prepare(self, connection: psycopg.Connection[Any], read_only: bool, create: bool) -> bool:
        """Bring the tables to the current version, one process at a time; return whether there were none."""
        schema = self.schema
        if (read_only or not create) and not has_table(connection, schema, "migration"):
            allowed, repair = f"a database with the schema {schema}", "Check the address for a typo."
            raise InvalidArgument("address", allowed, self.path, repair)
        done = 0

        def execute(statement: str) -> list[Any]:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

        with connection.transaction():  # one that is refused is left as it was
            if not read_only:
                connection.execute("select pg_advisory_xact_lock($1)", (lock_number("migrate", schema),))
            if has_table(connection, schema, "migration"):
                ((done,),) = connection.execute("select max(number) from migration").fetchall()
            elif not read_only:
                connection.execute(f"create schema if not exists {schema}")
                connection.execute("create sequence experiment_key")
            if 0 < done < NEWEST:
                check_schema(connection, schema, set())
                execute("set local statement_timeout = 0")
                for each in ("seqscan", "hashjoin", "bitmapscan"):
                    execute(f"set local enable_{each} = on")
            migrate(execute, POSTGRES, done, read_only, lambda make: move_in_database(execute, self.path, make))
            check_schema(connection, schema, PARTS)
        return not done

    def __repr__(self) -> str:
        return f"PostgresStore({self.path!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def reader(self) -> Self:
        return type(self)(self.address, parent=self)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._parent is None:
            self.connections.close()

    # reading

    def _read(self, work: Callable[[psycopg.Connection[Any]], Result], limit: float = LATER) -> Result:
        with self._pin:
            if self._pinned is not None:
                with self.connections.translated(self._pinned):
                    return work(self._pinned)
        return self.connections.run(work, again=True, limit=limit)

    def _rows(self, query: str, values: Sequence[Any] = (), limit: float = LATER) -> list[Any]:
        return self._read(lambda connection: connection.execute(query, values, binary=True).fetchall(), limit)

    def rows(self, question: Question, **values: Any) -> list[Any]:
        query, names = POSTGRES.numbered(question)
        if "ids" in names:
            values["ids"] = _texts(values["ids"])
        return self._rows(query, as_dict(names, values), SOON if "ids" in names else LATER)

    def each(self, question: Question, **values: Any) -> Generator[Any]:
        yield from self.rows(question, **values)

    def columns(self, question: Question, width: int, **values: Any) -> NDArray[np.float64]:
        query, names = POSTGRES.numbered(question)
        columns = [f"c{k}" for k in range(width)]
        arrays = ", ".join(f"array_agg({column}::float8)" for column in columns)
        text = f"select {arrays} from ({query}) as found({', '.join(columns)})"

        def read(connection: psycopg.Connection[Any]) -> NDArray[np.float64]:
            result = connection.execute(text, as_dict(names, values), binary=True).pgresult
            return _parsed([None if result is None else result.get_value(0, k) for k in range(width)])

        return self._read(read)

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        with self.connections.one() as connection:
            with self.connections.translated(connection):
                connection.execute("begin isolation level repeatable read read only")
                connection.execute(f"set local idle_in_transaction_session_timeout = '{LONG_READ}'")
                connection.limit = LATER
            self._pinned = connection
            try:
                yield
            finally:
                with self._pin:
                    self._pinned = None
                with contextlib.suppress(psycopg.Error):
                    connection.execute("commit")

    def heads(self, key: int | None = None) -> list[Head]:
        if key is None:
            return [Head(*row) for row in self._rows(f"{_HEADS} order by key")]
        return [Head(*row) for row in self._rows(f"{_HEADS} where key = $1", (key,), SOON)]

    def span(self, key: int, after: int, until: int) -> Span:
        first = key << SHIFT
        return Span(first + after + 1, first + min(until, MOST_POSITION))

    # writing

    def numbers(self) -> Shift:
        return Shift(self)

    def commit(self, parts: Sequence[Part], statements: Sequence[Statement] = ()) -> None:
        (part,) = parts
        check_finite(self.path, part.rows)
        kinds = tuple(kind for kind in (*EVENTS, Context) if part.rows.get(kind))
        expected: Any = part.expected or part.name
        values: list[Any] = [part.key, part.position, part.at, expected]
        for kind in kinds:
            types = POSTGRES.tables[TABLES[kind]]
            columns = zip(*part.rows[kind], strict=True)
            values += [ARRAYS[types[name]](column) for name, column in zip(kind._fields, columns, strict=True)]
        text, problem, until = _commit_text(kinds, not part.expected), "", time.monotonic() + GIVE_UP
        for pause in AGAIN:
            if pause and time.monotonic() > until:
                break
            time.sleep(pause)
            try:
                if self._write(text, values, statements):
                    return
                if problem and self._has(part):
                    self._wait_for_standby(part.key)
                    return
            except Unavailable as failed:
                if not problem and not isinstance(failed, ConnectionLost):
                    raise
                problem = str(failed)
            else:
                if not part.expected:
                    repair = "Choose another, or use the existing one."
                    raise RequestError("experiment_exists", "name", "new", part.name, repair)
                raise Behind(f"{self.path}: {part.name} is no longer at position {part.expected}.")
        raise Uncertain(problem)

    def _write(self, text: str, values: Sequence[Any], statements: Sequence[Statement]) -> bool:
        """Write in one transaction if the position is the expected one; return whether it was."""

        def work(connection: psycopg.Connection[Any]) -> bool:
            if not statements:
                return self._executed(connection, text, values)
            with connection.transaction() as transaction:
                if not self._executed(connection, text, values):
                    raise psycopg.Rollback(transaction)
                for statement, batch in statements:
                    query, names = POSTGRES.numbered(statement)
                    with connection.cursor() as cursor:
                        cursor.executemany(query, [as_dict(names, dict(each)) for each in batch])
                return True
            return False

        turn, self._turn = self._turn, None
        if turn is None:
            return self.connections.run(work)
        with self.connections.translated(turn):
            is_written = work(turn)
            turn.execute("commit")
            return is_written

    @contextlib.contextmanager
    def turn(self, key: int) -> Iterator[None]:
        with self.connections.one() as connection:
            with self.connections.translated(connection):
                connection.execute("begin")
                connection.execute(f"set local idle_in_transaction_session_timeout = '{TURN}'")
                connection.execute("select position from experiment where key = $1 for update", (key,))
            self._turn = connection
            try:
                yield
            finally:
                self._turn = None
                if connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    with contextlib.suppress(psycopg.Error):
                        connection.execute("rollback")

    def _executed(self, connection: psycopg.Connection[Any], text: str, values: Sequence[Any]) -> bool:
        ((moved,),) = connection.execute(text, values, prepare=True).fetchall()
        return bool(moved)

    def _has(self, part: Part) -> bool:
        """Return whether exactly these events are in the log."""
        low, high = self.span(part.key, part.expected, part.position)
        for kind in EVENTS:
            query = f"select {', '.join(kind._fields)} from {TABLES[kind]} where event between $1 and $2 order by event"
            if [tuple(row) for row in self._rows(query, (low, high))] != [tuple(row) for row in part.rows[kind]]:
                return False
        return True

    def _wait_for_standby(self, key: int) -> None:
        """Commit once more, which a synchronous standby has to confirm, and with it all that was committed before.

        A server that was restarted while it waited for its standby shows rows that the standby may not have.
        """
        touch = "update experiment set position = position where key = $1"
        self.connections.run(lambda connection: connection.execute(touch, (key,)))

    def probe(self, n_bytes: int = 0) -> None:
        """Find out whether the database answers, can be written to, and knows of this process."""
        began = time.time()
        ((is_standby, now),) = self.connections.run(
            lambda connection: connection.execute(
                "select pg_is_in_recovery(), extract(epoch from clock_timestamp())::float8"
            ).fetchall(),
            again=True,
        )
        if self.opened.read_only:
            return
        if is_standby:
            raise Unavailable(f"{self.path} is a standby, which cannot be written to.")
        ahead = began - now if began > now else min(0.0, time.time() - now)
        if abs(ahead) > MOST_SKEW:  # it would settle decisions of others too early, or its own too late
            side = "ahead of" if ahead > 0.0 else "behind"
            what = f"the clock of this machine is {abs(ahead):.0f} seconds {side} that of the database"
            raise WrongClock(f"{self.path}: {what}. Set both by NTP.")

    def announce(self, code: str) -> None:
        session = self._session
        if session is not None and self._announced == code:
            with contextlib.suppress(psycopg.Error):
                session.execute("select 1")
                return
            session.close()
        self._session = self.connections.new()
        with self.connections.translated(self._session):
            self._session.execute("select pg_advisory_lock_shared($1)", (lock_number("code", self.schema, code),))
        self._announced = code

    @contextlib.contextmanager
    def alone_with(self, codes: Sequence[str]) -> Iterator[bool]:
        numbers = [lock_number("code", self.schema, code) for code in codes]
        with self.connections.one() as connection, self.connections.translated(connection):
            taken = []
            try:
                for number in numbers:
                    ((got,),) = connection.execute("select pg_try_advisory_lock($1)", (number,)).fetchall()
                    if got:
                        taken.append(number)
                yield len(taken) == len(numbers)
            finally:
                for number in taken:
                    connection.execute("select pg_advisory_unlock($1)", (number,))

    # snapshots: each process has its own pieces, and a snapshot is complete once its row is there

    def save(self, row: Snapshot | SnapshotPiece) -> None:
        columns = (*row._fields, "node")
        marks = ", ".join(f"${k + 1}" for k in range(len(columns)))
        statement = (
            f"insert into {TABLES[type(row)]} ({', '.join(columns)}) values ({marks}) on conflict {conflict_of(row)}"
        )

        def work(connection: psycopg.Connection[Any]) -> None:
            if isinstance(row, SnapshotPiece):
                connection.execute(statement, (*row, self.node))
                return
            with connection.transaction():
                connection.execute(statement, (*row, self.node))
                for table in ("snapshot", "snapshot_piece"):
                    query = f"delete from {table} where experiment = $1 and position < {_OLDEST_KEPT}"
                    connection.execute(query, (row.experiment, SNAPSHOTS_KEPT))

        self.connections.run(work)

    def tidy(self, key: int) -> bool:
        """Remove all pieces that this process has left unfinished: the next ones may be of the same position.

        Those of other processes go with the snapshots after them.
        """
        self.connections.run(lambda connection: connection.execute(_REMOVE_UNUSED, (key, self.node)))
        return False

    def compact(self, *, at_once: bool) -> int:
        """Vacuuming removes old rows."""
        return 0

    def check_pages(self) -> None:
        """PostgreSQL has its own checks."""

    # databases as a whole

    def take_name(self, schema: str) -> None:
        """Give a copy the name of a schema, which no schema with anything in it may have."""

        def work(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                connection.execute("select setval('experiment_key', greatest(1, max(key))) from experiment")
                make_way(connection, schema)
                connection.execute(f"alter schema {self.schema} rename to {schema}")

        self.connections.run(work, limit=LATER)

    def drop(self) -> None:
        """Remove the schema with everything in it."""
        statement = f"drop schema if exists {self.schema} cascade"
        self.connections.run(lambda connection: connection.execute(statement), limit=LATER)


# schemas


def lock_number(*names: str) -> int:
    """Return the number of an advisory lock."""
    return int.from_bytes(hashlib.sha256("\0".join(("alphafair", *names)).encode()).digest()[:8], "big", signed=True)


def has_table(connection: psycopg.Connection[Any], schema: str, table: str) -> bool:
    query = "select 1 from pg_catalog.pg_tables where schemaname = $1 and tablename = $2"
    return bool(connection.execute(query, (schema, table)).fetchall())


PARTS: Final = POSTGRES.constraints | {  # tables with their columns and types, and `primary key` and `unique`
    (table, f"{name} {type_}") for table, columns in POSTGRES.tables.items() for name, type_ in columns.items()
}


def check_schema(connection: psycopg.Connection[Any], schema: str, parts: set[tuple[str, str]]) -> None:
    """Refuse a schema that lacks a column of its type or a constraint, or that has triggers or rules.

    All of that could change what is written or read. More tables, columns and indexes do no harm.
    """
    lacking = parts - set(connection.execute(_FOUND, (schema,)).fetchall())
    differing = sorted(f"{table}: {part}" for table, part in lacking)
    differing += sorted(name for (name,) in connection.execute(_ADDED, (schema,)).fetchall())
    if differing:
        allowed, repair = "a schema that alphafair made", "The schema was changed: restore a backup."
        raise InvalidArgument("address", allowed, f"{schema}: {differing[:5]}", repair)


def make_way(connection: psycopg.Connection[Any], schema: str) -> None:
    """Remove a schema in which nothing was ever kept, and refuse any other; called in a transaction.

    Nobody writes to it meanwhile: its tables are locked before they are read.
    """
    connection.execute("select pg_advisory_xact_lock($1)", (lock_number("migrate", schema),))
    tables = sorted({"migration", *POSTGRES.tables})
    repair = "Add ?schema=NAME to the address, with another name: nothing is ever overwritten."
    if all(has_table(connection, schema, table) for table in tables):
        connection.execute(f"lock table {schema}.experiment, {schema}.api_key in access exclusive mode")
        for table in ("experiment", "api_key"):
            if connection.execute(f"select 1 from {schema}.{table} limit 1").fetchall():
                raise InvalidArgument("address", "a database without experiments and keys", f"schema {schema}", repair)
    else:
        tables = []
    try:  # PostgreSQL refuses to drop what anything else depends on, and a schema with anything else in it
        for table in tables:
            connection.execute(f"drop table {schema}.{table}")
        if tables:
            connection.execute(f"drop sequence {schema}.experiment_key")
        connection.execute(f"drop schema if exists {schema}")
    except psycopg.errors.DependentObjectsStillExist:
        raise InvalidArgument("address", "a schema without other tables", f"schema {schema}", repair) from None


def check_unused(url: str) -> str:
    """Refuse a database whose schema is in use, and return the schema; nothing is changed."""
    connections = ConnectionPool(url, read_only=False)

    def work(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction(force_rollback=True):
            make_way(connection, connections.schema)

    with contextlib.closing(connections):
        connections.run(work)
    return connections.schema


# rows as arrays, and arrays as rows


@functools.cache
def _commit_text(kinds: tuple[Any, ...], is_new: bool) -> str:
    """Return the statement that moves an experiment and inserts rows of these types if it has moved."""
    if is_new:
        moved = "insert into experiment (key, name, position, at) values ($1, $4, $2, $3) on conflict do nothing"
    else:
        moved = "update experiment set position = $2, at = $3 where key = $1 and position = $4"
    parts, number = [f"moved as ({moved} returning 1)"], 5
    for kind in kinds:
        types = [POSTGRES.tables[TABLES[kind]][name] for name in kind._fields]
        arrays = ", ".join(f"${number + k}::{type_}[]" for k, type_ in enumerate(types))
        number += len(types)
        parts.append(
            f"{TABLES[kind]}_rows as (insert into {TABLES[kind]} ({', '.join(kind._fields)}) select new.* "
            f"from unnest({arrays}) as new where exists (select 1 from moved))"
        )
    return f"with {', '.join(parts)} select count(*) from moved"


def _numbers(values: Sequence[Any]) -> str:
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def _texts(values: Sequence[Any]) -> str:
    quoted = [
        "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    ]
    return "{" + ",".join(quoted) + "}"


def _blobs(values: Sequence[Any]) -> str:
    return "{" + ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]) + "}"


ARRAYS: Final[dict[str, Callable[[Sequence[Any]], str]]] = {
    "bigint": _numbers,
    "double precision": _numbers,
    "text": _texts,
    "bytea": _blobs,
}


def _parsed(arrays: Sequence[bytes | None]) -> NDArray[np.float64]:
    """Return rows from binary arrays of float8: a header of 20 bytes, and per element its length and eight bytes."""
    if arrays[0] is None:
        return np.empty((0, len(arrays)))
    element = np.dtype([("length", ">i4"), ("value", ">f8")])
    parsed = np.empty(((len(arrays[0]) - 20) // element.itemsize, len(arrays)))
    for k, array in enumerate(arrays):
        parsed[:, k] = np.frombuffer(array or b"", dtype=element, offset=20)["value"]
    return parsed


# keys of the service


class PostgresKeys:
    """The keys of the service in a database, over a connection of their own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: PostgresStore | None = None

    def _opened(self) -> PostgresStore:
        if self._store is None:
            self._store = PostgresStore(self._url)
        return self._store

    def check(self) -> None:
        self._opened()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def all(self) -> list[KeyRow]:
        query = f"select {', '.join(KeyRow._fields)} from api_key order by created_at, id"
        return [KeyRow(*row) for row in self._opened().rows(query)]

    def clear(self) -> None:
        self._write(lambda connection: connection.execute("delete from api_key"))

    def add(self, key: KeyRow, *, instead_of: str | None = None, until: int | None = None) -> None:
        marks = ", ".join(f"${k + 1}" for k in range(len(key)))

        def work(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                connection.execute(f"insert into api_key ({', '.join(KeyRow._fields)}) values ({marks})", key)
                if instead_of is not None:
                    connection.execute("update api_key set expires_at = $1 where id = $2", (until, instead_of))

        self._write(work)

    def revoke(self, id: str, at: int, by: str | None) -> None:
        revoked = "update api_key set revoked_at = $1, revoked_by = $2 where id = $3 and revoked_at is null"
        self._write(lambda connection: connection.execute(revoked, (at, by, id)))

    def end_epoch(self, id: str, epoch: int) -> None:
        ended = "update api_key set epoch = $1 where id = $2 and epoch <= $3"
        self._write(lambda connection: connection.execute(ended, (epoch + 1, id, epoch)))

    def _write(self, work: Callable[[psycopg.Connection[Any]], object]) -> None:
        try:
            self._opened().connections.run(work)
        except ConnectionLost as lost:
            raise Uncertain(str(lost)) from lost
