"""The event log in PostgreSQL: a ledger per experiment, which any number of processes append to.

`append` is one statement and so one transaction: it moves the experiment's row in `position` only if that still has
the expected position, and inserts events only if it has moved. So no process holds a lock while it thinks, and one that
is stopped in the middle leaves nothing behind. Only a process that was too late keeps the row locked for its next
attempt, which could otherwise be too late again and again; the server ends such a transaction after a second.

When a connection is lost before the answer has arrived, the same rows are appended again: either that succeeds, or the
rows at those positions tell whether they are the ones that were sent.

All SQL for PostgreSQL is in this module, in `postgres_schema` with its folder `schema_postgres/`, and, for the settings
of a session, in `postgres_connections`.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.addresses import shown
from alphafair.engine.clock import WrongClock
from alphafair.engine.ledger import (
    EVENT_TABLES,
    EVENTS,
    SNAPSHOTS_KEPT,
    SOURCES,
    TABLES,
    Activated,
    Behind,
    Change,
    Context,
    Decided,
    EventColumns,
    FoundDecision,
    FoundRow,
    KeyRow,
    Late,
    LogSearch,
    SavedState,
    Settled,
    Snapshot,
    SnapshotPiece,
    Statement,
    check_finite,
    split_state,
)
from alphafair.engine.postgres_connections import LATER, SOON, ConnectionLost, Connections
from alphafair.engine.postgres_schema import check_schema, has_table, lock_number, make_way, migrate
from alphafair.errors import InvalidArgument, Mismatch, RequestError, Unavailable, Uncertain
from alphafair.extras import needed_by

with needed_by("A ledger in PostgreSQL", "postgres"):
    import psycopg

AGAIN: Final = (0.0, 0.1, 0.4, 1.0)  # seconds before each attempt to append what may have been written
GIVE_UP: Final = 10.0  # seconds after which there is no other attempt
MOST_SKEW: Final = 5.0  # seconds between the clocks of a process and of the database
PAGE: Final = 50_000  # positions read at a time by `verify`
TURN: Final = "1s"  # others wait so long for a process that was stopped in its turn
LONG_READ: Final = "1h"  # the idle time of a transaction that only reads, and so holds nobody up
TYPES: Final[dict[Any, str]] = {  # of the columns of each table, in the order of its fields
    Change: "bigint bigint text text bytea bigint text",
    Context: "bigint bigint text",
    Decided: "bigint text bigint bigint bigint float8 bigint bigint smallint bytea bytea bigint bigint",
    Activated: "bigint bigint bigint",
    Settled: "bigint bigint float8 text bytea bigint",
    Late: "bigint bigint float8 bytea bigint",
}
Result = TypeVar("Result")

_SOURCE_NUMBER = "case source " + " ".join(f"when '{name}' then {k}" for k, name in enumerate(SOURCES)) + " end"
_BETWEEN = "where experiment = {key} and seq > {start} and seq <= {end} order by seq"
_DECIDED = """select seq::float8, experiment::float8, context::float8, arm::float8, propensity, at::float8,
    deferred::float8 from decision """
_ACTIVATED = "select seq::float8, decision::float8, at::float8 from activation "
_SETTLED = f"""select seq::float8, decision::float8, at::float8, coalesce(reward, 0),
    coalesce({_SOURCE_NUMBER}, 4)::float8 from reward """
_EARLIER = "select r.seq::float8, d.experiment::float8, d.context::float8, d.arm::float8, d.propensity"
_OF_EARLIER = """
    where r.experiment = {key} and r.seq > {start} and r.seq <= {end} and r.decision <= {start} order by r.seq"""
_ACTIVATED_EARLIER = f"""{_EARLIER} from activation r
    join decision d on d.experiment = r.experiment and d.seq = r.decision {_OF_EARLIER}"""
_SETTLED_EARLIER = f"""{_EARLIER}, coalesce(a.at, d.at)::float8 from reward r
    join decision d on d.experiment = r.experiment and d.seq = r.decision
    left join activation a on a.experiment = d.experiment and a.decision = d.seq {_OF_EARLIER}"""
_FULL_REWARDS = """select r.seq, d.probabilities, r.rewards from reward r
    join decision d on d.experiment = r.experiment and d.seq = r.decision
    where r.experiment = $1 and r.seq > $2 and r.seq <= $3 and r.rewards is not null"""
# `offset 0`: one id after the other by their index, never by going through the experiment
_FIND = """select d.id, d.seq, d.experiment, d.context, c.label, d.arm, d.propensity,
    d.deferred = 0 or a.seq is not null, coalesce(a.at, d.at), d.probabilities, r.seq is not null, r.reward,
    r.source, r.rewards, l.seq is not null
    from unnest($2::text[]) as wanted(id) cross join lateral
    (select * from decision where id = wanted.id and experiment = $1 offset 0) d
    left join activation a on a.experiment = d.experiment and a.decision = d.seq
    left join reward r on r.experiment = d.experiment and r.decision = d.seq
    left join late_reward l on l.experiment = d.experiment and l.decision = d.seq
    left join context c on c.experiment = d.experiment and c.number = d.context"""
_OWNERS = """select d.id, d.experiment from unnest($1::text[]) as wanted(id) cross join lateral
    (select id, experiment from decision where id = wanted.id offset 0) d"""
_OPEN_COLUMNS = "d.id, d.seq, d.experiment, d.context, d.arm, d.propensity, d.probabilities"
_IS_OPEN = "not exists (select 1 from reward r where r.experiment = d.experiment and r.decision = d.seq)"
_WAITING_SINCE_DECIDED = f"""select d.seq, d.at, (d.deferred = 0)::int, {_OPEN_COLUMNS} from decision d
    where d.experiment = $1 and d.seq > $2 and d.seq <= $3 and {_IS_OPEN} and not (d.deferred = 1 and exists
    (select 1 from activation a where a.experiment = d.experiment and a.decision = d.seq)) order by d.seq"""
_WAITING_SINCE_ACTIVATED = f"""select a.seq, a.at, 1, {_OPEN_COLUMNS} from activation a
    join decision d on d.experiment = a.experiment and d.seq = a.decision
    where a.experiment = $1 and a.seq > $2 and a.seq <= $3 and {_IS_OPEN} order by a.seq"""
_OPEN_AFTER = f"""select d.id from decision d
    left join activation a on a.experiment = d.experiment and a.decision = d.seq
    where d.experiment = $1 and greatest(d.seq, coalesce(a.seq, 0)) > $2 and {_IS_OPEN} order by d.seq"""
_SETTLED_BETWEEN = """select d.seq, d.context, d.arm, d.propensity from decision d
    left join activation a on a.experiment = d.experiment and a.decision = d.seq
    join reward r on r.experiment = d.experiment and r.decision = d.seq
    where d.experiment = $1 and d.seq <= $2 and (d.deferred = 0 or a.seq <= $2) and r.seq > $2 and r.seq < $3
    order by d.seq"""
_EARNED = """select d.arm, r.reward, r.rewards from reward r
    join decision d on d.experiment = r.experiment and d.seq = r.decision
    where r.experiment = $1 and r.seq > $2 and r.seq <= $3 and r.source in ('client', 'default') order by r.seq"""
_PULLS = "select arm, count(*) from decision where experiment = $1 and seq > $2 and seq <= $3 group by arm"
_STATES = """select seq, true from snapshot where experiment = $1 and seq <= $2
    union all select seq, false from change
    where experiment = $1 and seq <= $2 and kind in ('rollback', 'upgrade') order by 1 desc"""
_CHANGE_STATE = """select body::json ->> 'tally', state, (body::json ->> 'summary')::bigint from change
    where experiment = $1 and seq = $2"""
_SAVE = """insert into snapshot (experiment, seq, code_version, tally, state, summary, node)
    values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing"""
_SAVE_PIECE = """insert into snapshot_piece (experiment, seq, node, number, bytes) values ($1, $2, $3, $4, $5)
    on conflict (experiment, seq, node, number) do update set bytes = excluded.bytes"""
_REMOVE_UNUSED = """delete from snapshot_piece p where experiment = $1 and node = $2 and not exists
    (select 1 from snapshot s where s.experiment = p.experiment and s.seq = p.seq and s.node = p.node)"""
_OLDEST_KEPT = (  # null while there are fewer: another process may still be writing the pieces of an earlier one
    "(select seq from snapshot where experiment = $1 order by seq desc offset $2::bigint - 1 limit 1)"
)
_EXPORTED = """select d.seq, d.id, coalesce(c.label, 'erased-' || d.context), d.arm, d.propensity, r.reward, r.rewards,
    r.source, d.at, r.at, r.seq, d.policy_version, d.available from decision d
    left join reward r on r.experiment = d.experiment and r.decision = d.seq and r.seq <= $3
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.experiment = $1 and d.seq > $2 and d.seq <= $3 order by d.seq limit $4"""
_REWARDED = """select d.context, d.arm, r.reward, r.rewards, d.propensity, d.at, d.policy_version, d.available
    from decision d join reward r on r.experiment = d.experiment and r.decision = d.seq
    where d.experiment = $1 and (r.reward is not null or r.rewards is not null) order by d.seq desc limit $2"""
_LOG_ROW = """select d.seq, d.id, d.at, d.context, coalesce(c.label, 'erased-' || d.context), d.arm, d.propensity,
    d.deferred, a.at, r.reward, r.rewards, r.source, r.at, d.available, d.probabilities, d.state_version,
    d.policy_version, l.reward, l.rewards, l.at from decision d
    left join activation a on a.experiment = d.experiment and a.decision = d.seq
    left join reward r on r.experiment = d.experiment and r.decision = d.seq
    left join late_reward l on l.experiment = d.experiment and l.decision = d.seq
    left join context c on c.experiment = d.experiment and c.number = d.context where d.experiment = $1"""
_LOG_FILTERS = """ and d.seq > $2 and d.seq <= $3 and ($5::bigint is null or d.context = $5)
    and ($6::bigint is null or d.arm = $6) and ($7::text is null or case
        when r.source is not null then r.source
        when d.deferred = 1 and a.seq is null then 'deferred' else 'pending' end = $7)
    order by d.seq desc limit $4"""
_LABELLED_DECISIONS = """select d.seq, d.id, d.experiment, d.context, d.state_version, d.policy_version, d.checksum,
    c.number is not null, c.label from decision d
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.experiment = $1 and d.seq > $2 and d.seq <= $3 order by d.seq"""
_WITHOUT_DECISION = """select e.seq, e.decision from {table} e
    left join decision d on d.experiment = e.experiment and d.seq = e.decision and d.seq < e.seq
    where e.experiment = $1 and d.seq is null order by e.seq limit 1"""
_OUT_OF_ORDER = {  # the first event of each kind that could not have been written at its position
    "activation {} belongs to decision {}, which was not deferred": """select a.seq, a.decision from activation a
        join decision d on d.experiment = a.experiment and d.seq = a.decision
        where a.experiment = $1 and d.deferred = 0 order by a.seq limit 1""",
    "reward {} belongs to decision {}, which was not activated before it": """select r.seq, r.decision from reward r
        join decision d on d.experiment = r.experiment and d.seq = r.decision
        left join activation a on a.experiment = d.experiment and a.decision = d.seq and a.seq < r.seq
        where r.experiment = $1 and d.deferred = 1 and a.seq is null
        and r.source in ('client', 'default', 'expired') order by r.seq limit 1""",
    "late_reward {} belongs to decision {}, which was not closed before it": """select l.seq, l.decision
        from late_reward l left join reward r on r.experiment = l.experiment and r.decision = l.decision
        and r.seq < l.seq and r.source <> 'client'
        where l.experiment = $1 and r.seq is null order by l.seq limit 1""",
}


# the store


class PostgresStore:
    """A database with a ledger per experiment."""

    readable_by_others: Final = False
    n_erasures: Final = 0  # vacuuming removes old rows
    n_bytes: Final = 0
    clock_record: Final = ""  # a database has a clock of its own, with which every process is compared

    def __init__(self, url: str, *, read_only: bool = False, create: bool = True) -> None:
        self.address, self.read_only, self.path = url, read_only, shown(url)
        self.connections = Connections(url, read_only=read_only)
        self.schema = self.connections.schema
        self.node = secrets.token_hex(8)
        self._session: psycopg.Connection[Any] | None = None  # holds the lock that announces this process
        self._announced: str | None = None

        def prepare(connection: psycopg.Connection[Any]) -> bool:
            if (read_only or not create) and not has_table(connection, self.schema, "migration"):
                allowed, repair = f"a database with the schema {self.schema}", "Check the address for a typo."
                raise InvalidArgument("address", allowed, self.path, repair)
            with connection.transaction():  # one that is refused is left as it was
                was_empty = migrate(connection, self.schema, read_only=read_only)
                check_schema(connection, self.schema)
            return was_empty

        try:
            self.was_empty = self.connections.run(prepare, limit=LATER)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresStore({self.path!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self.connections.close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query that only reads."""
        return self.connections.run(lambda connection: connection.execute(query, values).fetchall(), again=True)

    def check(self) -> None:
        """Raise `Unavailable` if the database does not answer, or can no longer be written to."""
        began = time.time()
        ((is_standby, now),) = self.rows("select pg_is_in_recovery(), extract(epoch from clock_timestamp())::float8")
        if self.read_only:
            return
        if is_standby:
            raise Unavailable(f"{self.path} is a standby, which cannot be written to.")
        ahead = began - now if began > now else min(0.0, time.time() - now)
        if abs(ahead) > MOST_SKEW:  # it would settle decisions of others too early, or its own too late
            side = "ahead of" if ahead > 0.0 else "behind"
            what = f"the clock of this machine is {abs(ahead):.0f} seconds {side} that of the database"
            raise WrongClock(f"{self.path}: {what}. Set both by NTP.")

    def keep_clock_record(self, record: str) -> None:
        """There is nothing to keep."""

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

    def positions(self) -> dict[str, tuple[int, int]]:
        return {
            name: (key, last)
            for name, key, last in self.rows("select name, experiment, last from position order by experiment")
        }

    def ledger(self, name: str, key: int | None = None) -> PostgresLedger:
        if key is None:
            ((key,),) = self.rows("select nextval('experiment_key')")
        return PostgresLedger(self, name, int(key or 0))

    def owners(self, ids: Sequence[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for id, key in self.rows(_OWNERS, (_texts([*dict.fromkeys(ids)]),)):
            found.setdefault(id, []).append(key)
        return found

    @contextlib.contextmanager
    def all_at_one_moment(self) -> Iterator[list[PostgresLedger]]:
        """Yield all ledgers as they are now, for reading."""
        first = PostgresLedger(self, "", 0)
        with first.at_one_moment():
            keys = first.rows("select name, experiment from position order by experiment")
            ledgers = [PostgresLedger(self, name, key) for name, key in keys]
            for each in ledgers:
                each._pinned, each._pin = first._pinned, first._pin
            yield ledgers

    def rename(self, schema: str) -> None:
        """Give the schema another name, which no schema with anything in it may have."""

        def work(connection: psycopg.Connection[Any]) -> None:
            with connection.transaction():
                make_way(connection, schema)
                connection.execute(f"alter schema {self.schema} rename to {schema}")

        self.connections.run(work, limit=LATER)

    def drop(self) -> None:
        """Remove the schema with everything in it."""
        statement = f"drop schema if exists {self.schema} cascade"
        self.connections.run(lambda connection: connection.execute(statement), limit=LATER)

    def remove_keys(self) -> None:
        self.connections.run(lambda connection: connection.execute("delete from api_key"))

    def clear_erasures(self) -> None:
        """There is nothing to clear."""

    def checkpoint(self) -> bool:
        return True

    def rewrite(self) -> bool:
        return True


class PostgresLedger:
    """The log of one experiment."""

    shared: Final = True

    def __init__(self, store: PostgresStore, name: str, key: int) -> None:
        self.store, self.name, self.key, self.path, self.read_only = store, name, key, store.path, store.read_only
        self._pinned: psycopg.Connection[Any] | None = None  # of a transaction that reads
        self._pin = threading.RLock()
        self._turn: psycopg.Connection[Any] | None = None  # of a transaction that others wait for
        self._at = 0

    def reader(self) -> PostgresLedger:
        return PostgresLedger(self.store, self.name, self.key)

    def close(self) -> None:
        """The store closes the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # how statements are run

    def _read(self, work: Callable[[psycopg.Connection[Any]], Result], limit: float = LATER) -> Result:
        connections = self.store.connections
        with self._pin:
            if self._pinned is not None:
                with connections.translated(self._pinned):
                    return work(self._pinned)
        return connections.run(work, again=True, limit=limit)

    def rows(self, query: str, values: Sequence[Any] = (), limit: float = LATER) -> list[Any]:
        """Return all rows of a query."""
        return self._read(lambda connection: connection.execute(query, values, binary=True).fetchall(), limit)

    def each(self, query: str, values: Sequence[Any] = ()) -> Generator[Any]:
        yield from self.rows(query, values)

    def numbers(self, query: str, width: int, start: int, end: int) -> NDArray[np.float64]:
        """Return rows of `width` float8 as one array; positions are exact up to 2^53."""
        columns = [f"c{k}" for k in range(width)]
        arrays = ", ".join(f"array_agg({column})" for column in columns)
        text = query.format(key="$1", start="$2::bigint", end="$3::bigint")
        text = f"select {arrays} from ({text}) as found({', '.join(columns)})"

        def read(connection: psycopg.Connection[Any]) -> NDArray[np.float64]:
            result = connection.execute(text, (self.key, start, end), binary=True).pgresult
            return _parsed([None if result is None else result.get_value(0, k) for k in range(width)])

        return self._read(read)

    @contextlib.contextmanager
    def at_one_moment(self) -> Iterator[None]:
        connections = self.store.connections
        with connections.one() as connection:
            with connections.translated(connection):
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

    # append at an expected position

    @property
    def position(self) -> int:
        found = self.rows("select last, at from position where experiment = $1", (self.key,), SOON)
        last, self._at = found[0] if found else (0, 0)
        return int(last)

    def last_time(self) -> int:
        """Return the time of the event at the position that was read last."""
        return self._at

    def append(
        self, expected: int, last: int, rows: Mapping[type, Sequence[Any]], statements: Sequence[Statement] = ()
    ) -> None:
        check_finite(self.path, rows)
        kinds = tuple(kind for kind in TYPES if rows.get(kind))
        at = max(rows[kind][0][kind._fields.index("at")] for kind in kinds if "at" in kind._fields)
        values: list[Any] = [self.key, last, at, self.name if expected == 0 else expected]
        for kind in kinds:
            columns = zip(*rows[kind], strict=True)
            values += [ARRAYS[type_](column) for type_, column in zip(TYPES[kind].split(), columns, strict=True)]
        text, problem, until = _append_text(kinds, expected == 0), "", time.monotonic() + GIVE_UP
        for pause in AGAIN:
            if pause and time.monotonic() > until:
                break
            time.sleep(pause)
            try:
                if self._write(text, values, statements):
                    return
                if problem and self._has(rows):
                    self._wait_for_standby()
                    return
            except Unavailable as failed:
                if not problem and not isinstance(failed, ConnectionLost):
                    raise
                problem = str(failed)
            else:
                if expected == 0:
                    repair = "Choose another, or use the existing one."
                    raise RequestError("experiment_exists", "name", "new", self.name, repair)
                raise Behind(f"{self.path}: {self.name} is no longer at position {expected}.")
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
                    with connection.cursor() as cursor:
                        cursor.executemany(statement, list(batch))
                return True
            return False

        turn, self._turn = self._turn, None
        if turn is None:
            return self.store.connections.run(work)
        with self.store.connections.translated(turn):
            is_written = work(turn)
            turn.execute("commit")
            return is_written

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        connections = self.store.connections
        with connections.one() as connection:
            with connections.translated(connection):
                connection.execute("begin")
                connection.execute(f"set local idle_in_transaction_session_timeout = '{TURN}'")
                connection.execute("select last from position where experiment = $1 for update", (self.key,))
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

    def _has(self, rows: Mapping[type, Sequence[Any]]) -> bool:
        """Return whether exactly these events are in the log."""
        for kind in TYPES:
            events = rows.get(kind)
            if not events or kind is Context:
                continue
            fields = ", ".join(kind._fields)
            query = f"select {fields} from {TABLES[kind]} where experiment = $1 and seq between $2 and $3 order by seq"
            found = self.rows(query, (self.key, events[0][0], events[-1][0]))
            if [tuple(row) for row in found] != [tuple(event) for event in events]:
                return False
        return True

    def _wait_for_standby(self) -> None:
        """Commit once more, which a synchronous standby has to confirm, and with it all that was committed before.

        A server that was restarted while it waited for its standby shows rows that the standby may not have.
        """
        touch = "update position set last = last where experiment = $1"
        self.store.connections.run(lambda connection: connection.execute(touch, (self.key,)))

    def probe(self, n_bytes: int) -> None:
        """Find out whether the database answers and can be written to."""
        self.store.check()

    @contextlib.contextmanager
    def alone_with(self, codes: Sequence[str]) -> Iterator[bool]:
        connections = self.store.connections
        numbers = [lock_number("code", self.store.schema, code) for code in codes]
        with connections.one() as connection, connections.translated(connection):
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

    # the event log

    def changes(self, until: int, experiment: int | None = None, after: int = 0) -> list[Change]:
        query = f"""select {", ".join(Change._fields)} from change
            where experiment = $1 and seq > $2 and seq <= $3 order by seq"""
        return [Change(*row) for row in self.rows(query, (self.key, after, until))]

    def contexts(self, experiment: int | None = None, first: int = 0) -> Iterator[Context]:
        query = "select experiment, number, label from context where experiment = $1 and number >= $2 order by number"
        for row in self.each(query, (self.key, first)):
            yield Context(*row)

    def labels(self, experiment: int) -> list[str]:
        query = "select coalesce(label, 'erased-' || number) from context where experiment = $1 order by number"
        return [label for (label,) in self.rows(query, (self.key,))]

    def columns(self, start: int, end: int) -> EventColumns:
        return EventColumns(
            self.numbers(_DECIDED + _BETWEEN, 7, start, end),
            self.numbers(_ACTIVATED + _BETWEEN, 3, start, end),
            self.numbers(_SETTLED + _BETWEEN, 5, start, end),
            self.numbers(_ACTIVATED_EARLIER, 5, start, end),
            self.numbers(_SETTLED_EARLIER, 6, start, end),
        )

    def state_versions(self, start: int, end: int) -> NDArray[np.float64]:
        return self.numbers(f"select state_version::float8 from decision {_BETWEEN}", 1, start, end)[:, 0]

    def least_state_version(self, start: int, end: int) -> int | None:
        query = "select min(state_version) from decision where experiment = $1 and seq > $2 and seq <= $3"
        ((least,),) = self.rows(query, (self.key, start, end))
        return None if least is None else int(least)

    def masks(self, start: int, end: int) -> dict[int, bytes]:
        query = """select seq, available from decision
            where experiment = $1 and seq > $2 and seq <= $3 and available is not null"""
        return dict(self.rows(query, (self.key, start, end)))

    def full_rewards(self, start: int, end: int) -> dict[int, tuple[bytes, bytes]]:
        return {seq: (used, rewards) for seq, used, rewards in self.rows(_FULL_REWARDS, (self.key, start, end))}

    def has_full_information(self, experiment: int) -> bool:
        first = self.rows("select probabilities is not null from decision where experiment = $1 limit 1", (self.key,))
        return bool(first and first[0][0])

    def earned(self, experiment: int, until: int, after: int = 0) -> Iterator[tuple[int, float]]:
        for arm, reward, rewards in self.each(_EARNED, (self.key, after, until)):
            yield arm, reward if rewards is None else float(np.frombuffer(rewards, dtype="<f8")[arm])

    def pulls(self, experiment: int, until: int, after: int = 0) -> list[tuple[int, int]]:
        return self.rows(_PULLS, (self.key, after, until))

    def events(self, start: int, end: int) -> dict[type, list[Any]]:
        return {
            kind: self.rows(
                f"select {', '.join(kind._fields)} from {TABLES[kind]} "
                "where experiment = $1 and seq > $2 and seq <= $3 order by seq",
                (self.key, start, end),
            )
            for kind in EVENTS
        }

    # decisions

    def find(self, ids: Sequence[str]) -> list[FoundDecision]:
        if not ids:
            return []
        return [FoundDecision(*row) for row in self.rows(_FIND, (self.key, _texts([*dict.fromkeys(ids)])), SOON)]

    def waiting(self, start: int, end: int, experiments: Sequence[int]) -> tuple[Generator[Any], Generator[Any]]:
        values = (self.key, start, end)
        return self.each(_WAITING_SINCE_DECIDED, values), self.each(_WAITING_SINCE_ACTIVATED, values)

    def open_after(self, experiment: int, position: int) -> list[str]:
        return [id for (id,) in self.rows(_OPEN_AFTER, (self.key, position))]

    def settled_between(self, experiment: int, position: int, end: int) -> list[tuple[int, int, int, float]]:
        return self.rows(_SETTLED_BETWEEN, (self.key, position, end))

    def erasure(self, experiment: int, context: int, new_id: Callable[[], str]) -> list[Statement]:
        query = "select seq from decision where experiment = $1 and context = $2"
        ids = [(f"erased-{new_id()}", self.key, seq) for (seq,) in self.rows(query, (self.key, context))]
        label = "update context set label = null where experiment = $1 and number = $2"
        return [
            (label, [(self.key, context)]),
            ("update decision set id = $1, checksum = null where experiment = $2 and seq = $3", ids),
        ]

    def exported(self, experiment: int, after: int, until: int, limit: int) -> list[tuple[Any, ...]]:
        return self.rows(_EXPORTED, (self.key, after, until, limit))

    def log_rows(self, experiment: int, wanted: LogSearch) -> list[FoundRow]:
        return [FoundRow(*row) for row in self.rows(_LOG_ROW + _LOG_FILTERS, (self.key, *wanted))]

    def log_row(self, experiment: int, id: str) -> FoundRow | None:
        for row in self.rows(f"{_LOG_ROW} and d.id = $2", (self.key, id)):
            return FoundRow(*row)
        return None

    def decision_time(self, position: int) -> int | None:
        query = "select at from decision where experiment = $1 and seq <= $2 order by seq desc limit 1"
        for (at,) in self.rows(query, (self.key, position)):
            return int(at)
        return None

    def rewarded(self, experiment: int, latest: int | None = None) -> list[tuple[Any, ...]]:
        return self.rows(_REWARDED, (self.key, latest))[::-1]

    # snapshots: each process has its own pieces, and a snapshot is complete once its row is there

    def states(self, experiment: int, until: int) -> Generator[SavedState]:
        for seq, in_pieces in self.rows(_STATES, (self.key, until)):
            if in_pieces:
                query = "select tally, summary from snapshot where experiment = $1 and seq = $2"
                for tally, n_summary in self.rows(query, (self.key, seq)):  # none if it was removed meanwhile
                    yield SavedState(seq, tally, *split_state(self._joined(seq), n_summary))
            else:
                for tally, state, n_summary in self.rows(_CHANGE_STATE, (self.key, seq)):
                    yield SavedState(seq, tally, *split_state(state, n_summary))

    def snapshot_positions(self, until: int) -> list[tuple[int, int]]:
        query = "select experiment, seq from snapshot where experiment = $1 and seq <= $2"
        return self.rows(query, (self.key, until))

    def snapshot_state(self, experiment: int, seq: int) -> bytes | memoryview:
        ((n_summary,),) = self.rows("select summary from snapshot where experiment = $1 and seq = $2", (self.key, seq))
        return split_state(self._joined(seq), n_summary)[0]

    def _joined(self, seq: int) -> bytes:
        ((last, node),) = self.rows(
            "select state, node from snapshot where experiment = $1 and seq = $2", (self.key, seq)
        )
        pieces = """select bytes from snapshot_piece
            where experiment = $1 and seq = $2 and node = $3 order by number"""
        return b"".join([*(piece for (piece,) in self.each(pieces, (self.key, seq, node))), last])

    def last_snapshot(self, experiment: int) -> int:
        ((last,),) = self.rows("select coalesce(max(seq), 0) from snapshot where experiment = $1", (self.key,))
        return int(last)

    def save(self, position: int, row: Snapshot | SnapshotPiece) -> None:
        """Write without a condition: a state follows from the log up to its position, whatever comes after it."""
        node = self.store.node

        def work(connection: psycopg.Connection[Any]) -> None:
            if isinstance(row, SnapshotPiece):
                connection.execute(_SAVE_PIECE, (row.experiment, row.seq, node, row.number, row.bytes))
                return
            with connection.transaction():
                save(connection, row)

        def save(connection: psycopg.Connection[Any], row: Snapshot) -> None:
            connection.execute(_SAVE, (*row, node))
            for table in ("snapshot", "snapshot_piece"):
                query = f"delete from {table} where experiment = $1 and seq < {_OLDEST_KEPT}"
                connection.execute(query, (self.key, SNAPSHOTS_KEPT))

        self.store.connections.run(work)

    def has_unused_piece(self) -> bool:
        return False  # those of other processes go with the snapshots after them

    def remove_unused_piece(self, position: int) -> bool:
        """Remove all pieces that this process has left unfinished: the next ones may be of the same position."""
        values = (self.key, self.store.node)
        self.store.connections.run(lambda connection: connection.execute(_REMOVE_UNUSED, values))
        return False

    # queries for `verify`

    def check_pages(self) -> None:
        """Raise `Mismatch` if there are events of an experiment that does not exist."""
        for table, number in (*((table, "seq") for table in EVENT_TABLES), ("context", "number")):
            query = f"""select {number}, experiment from {table} e
                where not exists (select 1 from position p where p.experiment = e.experiment) limit 1"""
            for found, key in self.rows(query):
                raise Mismatch(f"{self.path}: {table} {found} belongs to experiment {key}, which was not created.")

    def events_per_position(self, start: int, end: int) -> NDArray[np.int64]:
        found = np.zeros(end - start, dtype=np.int64)
        for table in EVENT_TABLES:
            seqs = self.numbers(f"select seq::float8 from {table} {_BETWEEN}", 1, start, end)[:, 0]
            found += np.bincount(seqs.astype(np.int64) - start - 1, minlength=end - start)
        return found

    def event_outside(self, last: int) -> tuple[str, int] | None:
        for table in EVENT_TABLES:
            query = f"select seq from {table} where experiment = $1 and (seq <= 0 or seq > $2) limit 1"
            for (seq,) in self.rows(query, (self.key, last)):
                return table, int(seq)
        return None

    def labelled_decisions(self) -> Iterator[tuple[Any, ...]]:
        for start in range(0, self.position, PAGE):
            yield from self.rows(_LABELLED_DECISIONS, (self.key, start, start + PAGE))

    def without_decision(self) -> tuple[str, int, int] | None:
        for table in ("activation", "reward", "late_reward"):
            for seq, decision in self.rows(_WITHOUT_DECISION.format(table=table), (self.key,)):
                return table, seq, decision
        return None

    def unknown_source(self) -> tuple[int, str] | None:
        query = "select seq, source from reward where experiment = $1 and source <> all($2::text[]) limit 1"
        for seq, source in self.rows(query, (self.key, _texts(SOURCES))):
            return seq, source
        return None

    def out_of_order(self) -> str | None:
        for description, query in _OUT_OF_ORDER.items():
            for row in self.rows(query, (self.key,)):
                return description.format(*row)
        return None


# rows as arrays, and arrays as rows


@functools.cache
def _append_text(kinds: tuple[Any, ...], is_new: bool) -> str:
    """Return the statement that moves the position and inserts rows of these types if it has moved."""
    if is_new:
        moved = "insert into position (experiment, name, last, at) values ($1, $4, $2, $3) on conflict do nothing"
    else:
        moved = "update position set last = $2, at = $3 where experiment = $1 and last = $4"
    parts, number = [f"moved as ({moved} returning 1)"], 5
    for kind in kinds:
        types = TYPES[kind].split()
        arrays = ", ".join(f"${number + k}::{type_}[]" for k, type_ in enumerate(types))
        number += len(types)
        fields = ", ".join(kind._fields)
        key, own = ("", "") if "experiment" in kind._fields else ("experiment, ", "$1::bigint, ")
        parts.append(
            f"{TABLES[kind]}_rows as (insert into {TABLES[kind]} ({key}{fields}) select {own}new.* "
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
    "smallint": _numbers,
    "float8": _numbers,
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
