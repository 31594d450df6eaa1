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
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

from alphafair.engine import Engine, addresses
from alphafair.engine.live import LiveState
from alphafair.engine.postgres_store import PostgresStore
from alphafair.engine.sqlite_store import SqliteStore
from tests.postgres import Server

Path = str | os.PathLike[str]
both_stores = pytest.mark.both_stores
sqlite_only = pytest.mark.sqlite_only
_server: Server | None = None  # while a test runs on PostgreSQL
_opened: set[str] = set()


def live_state(engine: Engine, name: str | None = None) -> LiveState:
    """The state in memory: of the ledger with an experiment, or of the only ledger."""
    if name is not None:
        return engine._of(name).live
    (only,) = engine._engines()
    return only.live


class QueriedStore(PostgresStore):
    """Takes queries of tests, written for SQLite."""

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        query = query.replace("d.seq = r.decision", "d.seq = r.decision and d.experiment = r.experiment")
        numbers = itertools.count(1)
        return super().rows("".join(f"${next(numbers)}" if c == "?" else c for c in query), values)


def address_of(path: Path) -> Path:
    """The address that stands for a path in this run."""
    if _server is None or addresses.is_url(path):
        return path
    schema = f"test_{hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16]}"
    _opened.add(schema)
    return _server.url(schema)


def open_store(path: Path, **options: Any) -> Any:
    """The store of this run at a path."""
    if _server is None and not addresses.is_url(path):
        return SqliteStore(path, **options)
    return QueriedStore(str(address_of(path)), **options)


def execute(path: Path, *statements: str) -> list[Any]:
    """Run statements behind the back of all engines; return the rows of the last."""
    if _server is not None or addresses.is_url(path):
        assert _server is not None
        schema = str(address_of(path)).rpartition("schema=")[2]
        return [_server.execute(statement, schema) for statement in statements][-1]
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        return [file.execute(statement).fetchall() for statement in statements][-1]


def _open_store(path: Path, *, read_only: bool = False, create: bool = True) -> Any:
    return QueriedStore(str(address_of(path)), read_only=read_only, create=create)


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
