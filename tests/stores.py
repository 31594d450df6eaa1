"""The two stores of an engine: tests of the engine and the service run on both.

A module with `pytestmark = both_stores` runs each of its tests twice. In the second run every path that a test opens
stands for a schema of its own in PostgreSQL, so the tests are the same. A test of the file itself says `sqlite_only`,
with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import psycopg
import pytest

from alphafair.engine import Engine, addresses
from alphafair.engine.memory import EngineMemory
from alphafair.engine.store.ledger import EVENT_TABLES
from alphafair.engine.store.postgres import PostgresStore
from alphafair.engine.store.sqlite import SqliteStore
from alphafair.engine.writer import Condition, ConditionKind, Writer
from tests import FULL
from tests.postgres import Server

Path = str | os.PathLike[str]
both_stores = pytest.mark.both_stores
sqlite_only = pytest.mark.sqlite_only
either_store = both_stores if FULL else sqlite_only("is about bytes and connections: on PostgreSQL in the soak")
HAVE_CODE = ("engine", "writers", "writer", "state.experiment", "state.verify")  # modules with the digest of kernels
_server: Server | None = None  # while a test runs on PostgreSQL
_opened: set[str] = set()
_stores: list[PostgresStore] = []  # opened by the test that runs
COPIED = ("experiment", *EVENT_TABLES, "context", "snapshot", "snapshot_piece", "api_key")


def writer_of(engine: Engine, name: str | None = None) -> Writer:
    """The writer of an experiment, or the only one."""
    if name is not None:
        return engine.writers.of(name)
    (only,) = engine.writers.all()
    return only


def live_state(engine: Engine, name: str | None = None) -> EngineMemory:
    """What is in memory: of the writer of an experiment, or of the only one."""
    return writer_of(engine, name).memory


def make_stale(engine: Engine, name: str | None = None) -> None:
    """Let memory be loaded again before it is used, as after a batch that could not be applied."""
    writer_of(engine, name).condition = Condition(ConditionKind.STALE, "A test has asked for it.")


def store_of(engine: Engine, name: str) -> Any:
    """The store of an experiment."""
    return engine.writers.of(name).store


def key_of(engine: Engine, name: str) -> int:
    """The key of an experiment."""
    return live_state(engine, name).find(name).key


def rows_of(opened: Any, query: str, values: Sequence[Any] = ()) -> list[Any]:
    """The rows of a query that a test has written for SQLite; of an engine, or a store."""
    store = getattr(opened, "_store", opened)
    return store._rows(query if store.opened.together else _translated(query), tuple(values))


def is_postgres() -> bool:
    """Whether this is the run on PostgreSQL."""
    return _server is not None


def _translated(query: str) -> str:
    """A query of a test, written for SQLite, in the SQL of PostgreSQL."""
    numbers = itertools.count(1)
    return "".join(f"${next(numbers)}" if c == "?" else c for c in query)


class QueriedStore(PostgresStore):
    """Is closed after the test that opened it."""

    def __init__(self, url: str, **options: Any) -> None:
        _stores.append(self)
        super().__init__(url, **options)


@contextlib.contextmanager
def closing_stores() -> Iterator[None]:
    """Close what is opened inside and left open: a test may end with an engine that was never closed."""
    before = len(_stores)
    try:
        yield
    finally:
        for store in _stores[before:]:
            if hasattr(store, "connections"):
                store.close()
        del _stores[before:]


def address_of(path: Path) -> Path:
    """The address that stands for a path in this run; a file that is there stands for itself."""
    if _server is None or addresses.is_url(path) or os.path.isfile(path):
        return path
    schema = f"test_{hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16]}"
    _opened.add(schema)
    return _server.url(schema)


def open_store(path: Path, **options: Any) -> Any:
    """The store of this run at a path."""
    address = address_of(path)
    return QueriedStore(str(address), **options) if addresses.is_url(address) else SqliteStore(path, **options)


class Translating:
    """A connection of PostgreSQL that takes statements written for SQLite."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(_translated(statement), values or None)  # type: ignore[arg-type]

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        for values in rows:
            self.execute(statement, values)


@contextlib.contextmanager
def connected(path: Path) -> Iterator[Any]:
    """Connect behind the back of all engines; what is executed is committed at the end."""
    address = address_of(path)
    if not addresses.is_url(address):
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            yield file
        return
    url, _, schema = str(address).partition("?schema=")
    with psycopg.connect(url, options=f"-c search_path={schema}", cursor_factory=psycopg.RawCursor) as connection:
        yield Translating(connection)


def execute(path: Path, *statements: str) -> list[Any]:
    """Run statements behind the back of all engines; return the rows of the last."""
    with connected(path) as connection:
        *_, last = [connection.execute(statement) for statement in statements]
        return last.fetchall() if last.description else []


def copy_as_crashed(path: Path, target: Path) -> None:
    """Copy a ledger that may be in use, as a crash would leave it now."""
    if _server is None:
        for suffix in ("", "-wal"):
            if os.path.exists(f"{path}{suffix}"):
                shutil.copyfile(f"{path}{suffix}", f"{target}{suffix}")
        return
    source = str(address_of(path)).partition("?schema=")[2]
    open_store(target).close()
    with connected(target) as connection:
        for table in COPIED:
            connection.execute(f"insert into {table} select * from {source}.{table}")
        connection.execute(f"select setval('experiment_key', nextval('{source}.experiment_key'))")


def _open_store(path: Path, *, read_only: bool = False, create: bool = True, **options: Any) -> Any:
    address = address_of(path)
    if not addresses.is_url(address):
        return addresses.open_store(path, read_only=read_only, create=create, **options)
    return QueriedStore(str(address), read_only=read_only, create=create)


@contextlib.contextmanager
def on_postgres(server: Server) -> Iterator[None]:
    """Let paths stand for schemas."""
    global _server
    keys_of = addresses.keys_of
    _server = server
    try:
        with (
            mock.patch("alphafair.engine.engine.open_store", _open_store),
            mock.patch("alphafair.service.keys.keys_of", lambda path: keys_of(address_of(path))),
        ):
            yield
    finally:
        _server = None
        for schema in _opened:
            server.execute(f"drop schema if exists {schema} cascade")
        _opened.clear()
