"""Connections to PostgreSQL that end soon where nothing answers, and that no lock delays for long."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from alphafair.engine.addresses import DatabaseUrl, not_understood, shown
from alphafair.errors import InvalidArgument, Unavailable
from alphafair.extras import needed_by

with needed_by("A ledger in PostgreSQL", "postgres"):
    import psycopg

SCHEMA: Final = "alphafair"
CONNECTIONS: Final = 20  # at a time
WAIT: Final = 5.0  # seconds for one of them
SOON: Final = 10.0  # seconds until the answer to a statement that requests wait for
LATER: Final = 90.0  # seconds until the answer to a long one, which the server itself ends earlier
DURABLE: Final = ("on", "remote_write", "remote_apply")  # of synchronous_commit
CONNECTING: Final = {  # a server that no longer answers is noticed within some seconds
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "application_name": "alphafair",
    "client_encoding": "UTF8",
}
SESSION: Final = {  # a process that is stopped does not hold up others
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "5s",
    "statement_timeout": "60s",
    # every query has its index, but a plan that was made while a table was small, or had no statistics, may not use it
    "plan_cache_mode": "force_custom_plan",
    "join_collapse_limit": "1",  # in the order in which they are written
    **{f"enable_{each}": "off" for each in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "material")},
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
Result = TypeVar("Result")


class ConnectionLost(Unavailable):
    """The connection ended before the answer arrived: what was sent may have been done."""


class DatabaseConnection(psycopg.Connection[Any]):
    """A connection that ends where the server gives no answer in time.

    A server that is stopped, or whose disk hangs, still acknowledges what arrives, so that no time-out of TCP sees it;
    nor does it end the statement by itself.
    """

    limit = SOON  # seconds

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = self.limit if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit)
        except psycopg.OperationalError:
            if self.closed or self.pgconn.transaction_status != psycopg.pq.TransactionStatus.ACTIVE:
                raise  # this was reported by the server or the network
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {limit:g} seconds") from None


class ConnectionPool:
    """Connections to one database: idle ones are used again, dead ones are replaced."""

    def __init__(self, url: str, *, read_only: bool, most: int = CONNECTIONS) -> None:
        self.path = shown(url)
        self.schema, self._arguments = _connection_arguments(url, read_only)
        self._read_only = read_only
        self._idle: deque[DatabaseConnection] = deque()
        self._free = threading.BoundedSemaphore(most)
        self._most, self._closed = most, False

    @contextlib.contextmanager
    def one(self, limit: float = SOON) -> Iterator[DatabaseConnection]:
        """Lend a connection that waits `limit` seconds for each answer; it is kept for the next use unless broken."""
        if not self._free.acquire(timeout=WAIT):
            raise Unavailable(f"{self.path}: all {self._most} connections are in use.")
        try:
            connection = self._live_one()
            connection.limit = limit
            try:
                yield connection
            finally:
                if (
                    connection.closed
                    or connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE
                    or self._closed
                ):
                    connection.close()
                else:
                    self._idle.append(connection)
        finally:
            self._free.release()

    def _live_one(self) -> DatabaseConnection:
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
                connection.close()  # the server has ended it
        return self.new()

    def new(self) -> DatabaseConnection:
        """Open a connection of its own."""
        try:
            connection = DatabaseConnection.connect(
                **self._arguments, autocommit=True, cursor_factory=psycopg.RawCursor
            )
            try:
                ((durable, is_standby),) = connection.execute(
                    "select current_setting('synchronous_commit'), pg_is_in_recovery()"
                ).fetchall()
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as problem:
            raise Unavailable(f"{self.path} cannot be reached: {message_of(problem)}") from None
        if not self._read_only and (is_standby or durable not in DURABLE):
            connection.close()
            if is_standby:
                raise Unavailable(f"{self.path} is a standby, which cannot be written to.")
            repair = "Remove it from the address: every answer must be on the disk."
            raise InvalidArgument("synchronous_commit", f"one of {', '.join(DURABLE)}", durable, repair)
        return connection

    def run(
        self, work: Callable[[psycopg.Connection[Any]], Result], *, again: bool = False, limit: float = SOON
    ) -> Result:
        """Run statements on a connection; `again`: they may be repeated on another one if the first is lost."""
        try:
            with self.one(limit) as connection, self.translated(connection):
                return work(connection)
        except ConnectionLost:
            self.drop_idle()
            if not again:
                raise
        with self.one(limit) as connection, self.translated(connection):
            return work(connection)

    @contextlib.contextmanager
    def translated(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Raise `Unavailable` for what PostgreSQL reports, and `ConnectionLost` where it can no longer report."""
        try:
            yield
        except psycopg.Error as problem:
            if connection.closed:
                raise ConnectionLost(f"{self.path}: the connection was lost: {message_of(problem)}") from problem
            raise Unavailable(f"{self.path}: {message_of(problem)}") from problem

    def drop_idle(self) -> None:
        """Close connections that are not in use: the server may have ended all of them."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        self._closed = True
        self.drop_idle()


def _connection_arguments(url: str, read_only: bool) -> tuple[str, dict[str, Any]]:
    """Return the schema and the arguments of libpq: those of the URL, and ours where it has none."""
    parts = DatabaseUrl.parse(url)
    schema = SCHEMA if parts.schema is None else parts.schema
    if not _NAME.fullmatch(schema):
        allowed = "lower-case letters, digits and underscores, beginning with a letter"
        raise InvalidArgument("schema", allowed, schema, "Leave it out, or choose another name.")
    try:
        given = psycopg.conninfo.conninfo_to_dict(str(parts.with_schema(None)))
    except (psycopg.Error, ValueError):  # its message may quote the password
        raise not_understood() from None
    session = {**SESSION, "search_path": schema}
    if read_only:
        session["default_transaction_read_only"] = "on"
    # the last of several values counts: an address may set what is not set here, and make commits wait for more
    options = [f"-c synchronous_commit={DURABLE[0]}", str(given.get("options") or "")]
    options += [f"-c {name}={value}" for name, value in session.items()]
    return schema, {**CONNECTING, **given, "options": " ".join(options)}


def message_of(problem: Exception) -> str:
    """Return an error of PostgreSQL in one line."""
    return " ".join(str(problem).split()) or type(problem).__name__
