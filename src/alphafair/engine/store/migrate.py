"""The schema of a store: made, brought to the current version, and checked.

A file may come from somebody else. A trigger, a view or an expression in its schema would run when it is written to, so
a schema that differs from what was made for its version is refused before anything else is read.

The first migration after a release raises the version of the package, which a store names to older versions.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from alphafair import __version__
from alphafair.engine.store.dialect import FIRST, NEWEST, SQLITE, Dialect, Step, read_steps
from alphafair.errors import InvalidArgument, Mismatch, Unavailable

Execute = Callable[..., list[Any]]  # a statement and values: rows
RECORDS: Final = "create table migration (number {int} primary key, name text, code_version text, at {int}) {strict};"
MOVED: Final = (  # tables of older versions that have another form now
    *("change", "context", "decision", "activation", "reward", "late_reward"),
    *("snapshot", "snapshot_piece", "api_key"),
)
SPACE: Final = 3  # times the size of a file that bringing it to version 13 may need
_FAIR_TO_GROUPS = ("alpha-fair-adaptive", "alpha-fair", "alpha-fair-bandit")
_TOKEN = re.compile(r"""--[^\n]*|"(?:[^"]|"")*"|'(?:[^']|'')*'|\w+|\S""")  # quoted text is not searched for comments
_QUOTED = re.compile(r'"\w+"')  # SQLite adds and removes quotes around names when a table is altered


def older(dialect: Dialect) -> list[Step]:
    """Return the migrations before the one text of both stores."""
    return read_steps(f"before_{FIRST}", dialect.name)


def migrate(
    execute: Execute, dialect: Dialect, done: int, read_only: bool, move: Callable[[Callable[[], None]], None]
) -> bool:
    """Bring a store to the current version, in the caller's transaction; return whether it was of an older one.

    `done` is its version, 0 for a new one. `move` brings rows of the last version before `FIRST` into the tables that
    the function makes which it is called with.
    """
    if done > NEWEST:
        ((written,),) = execute("select code_version from migration order by number desc limit 1")
        allowed = f"a {dialect.name} of version {NEWEST} or older"
        raise InvalidArgument(dialect.argument, allowed, done, f"Install alphafair {written} or later.")
    if read_only and done < NEWEST:
        repair = "Open it for writing once, which migrates it."
        raise InvalidArgument(dialect.argument, f"a {dialect.name} of version {NEWEST}", done, repair)
    if done == NEWEST:
        return False

    def run(text: str) -> None:
        for statement in _statements(text):
            execute(statement)

    def record(number: int, name: str) -> None:
        at = time.time_ns() // 1000
        execute(f"insert into migration values ({number}, '{name}', '{__version__}', {at})")

    if not done:
        run(dialect.types_in(RECORDS))
    elif done < FIRST:
        for number, name, text in older(dialect):
            if number > done:
                run(text)
                record(number, name)
    for number, name, text in dialect.steps:
        if number == FIRST and 0 < done < FIRST:
            move(functools.partial(run, text))
        elif number > done:
            run(text)
        if number > done:
            record(number, name)
    return done > 0


def _statements(text: str) -> Iterator[str]:
    """Yield statements one by one: `executescript` would commit on its own."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


# files


def migrate_file(connection: sqlite3.Connection, path: Path, *, read_only: bool, prove: Callable[[], None]) -> bool:
    """Bring a file to the current version in one transaction, which is committed once `prove` returns.

    Return whether it was of an older one.
    """
    done = _done(connection)
    if done != NEWEST and not read_only:
        if done < FIRST:
            _check_space(path)
        connection.create_function("with_present_names", 1, with_present_names, deterministic=True)
        connection.execute("begin immediate")
    try:

        def execute(statement: str) -> list[Any]:
            return connection.execute(statement).fetchall()

        is_older = migrate(execute, SQLITE, done, read_only, lambda make: _move_in_file(connection, path, make))
        if is_older:
            prove()
        if connection.in_transaction:
            connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return is_older


def _check_space(path: Path) -> None:
    n_bytes = path.stat().st_size * SPACE
    if n_bytes > shutil.disk_usage(path.parent).free:
        n_needed = -(-n_bytes // 10**6)
        raise Unavailable(
            f"{path.name} needs {n_needed} MB of free space to be brought to version {NEWEST}. It is unchanged."
        )


_PLACES = """
create temp table place as select event, experiment,
    row_number() over (partition by experiment order by event) as position, at from (
    select seq as event, experiment, at from old_change
    union all select seq, experiment, at from old_decision
    union all select a.seq, d.experiment, a.at from old_activation a join old_decision d on d.seq = a.decision
    union all select r.seq, d.experiment, r.at from old_reward r join old_decision d on d.seq = r.decision
    union all select l.seq, d.experiment, l.at from old_late_reward l join old_decision d on d.seq = l.decision)
    where experiment in (select experiment from old_change where kind = 'create');
create unique index temp.event_of_place on place (event);
create index temp.position_of_place on place (experiment, event, position);
"""
_PLACE = "(select p.position from temp.place p where p.event = {0}.seq)"
_UP_TO = """(select p.position from temp.place p where p.experiment = d.experiment and p.event <= d.{0}
    order by p.event desc limit 1)"""
_LATEST = "d.seq = (select max(s.seq) from old_snapshot s where s.experiment = d.experiment)"
_FROM_12 = f"""
insert into experiment select c.experiment, json_extract(c.body, '$.name'), p.position, p.at from old_change c
    join temp.place p on p.event = (select max(event) from temp.place l where l.experiment = c.experiment)
    where c.kind = 'create' and c.seq = (select min(event) from temp.place l where l.experiment = c.experiment)
    order by c.experiment;
insert into change (event, experiment, position, kind, body, state, at, by)
    select c.seq, c.experiment, {_PLACE.format("c")}, c.kind,
    case when c.kind in ('rollback', 'upgrade') then with_positions(c.experiment, c.body) else c.body end,
    c.state, c.at, c.by from old_change c order by c.seq;
insert into context select experiment, number, label from old_context;
insert into decision (event, experiment, position, id, context, arm, propensity, state_version, policy_version,
    deferred, available, probabilities, at, checksum)
    select d.seq, d.experiment, {_PLACE.format("d")}, d.id, d.context, d.arm, d.propensity,
    coalesce({_UP_TO.format("state_version")}, 0), coalesce({_UP_TO.format("policy_version")}, 0),
    d.deferred, d.available, d.probabilities, d.at, d.checksum from old_decision d order by d.seq;
insert into activation (event, experiment, position, decision, at)
    select a.seq, d.experiment, {_PLACE.format("a")}, a.decision, a.at
    from old_activation a join old_decision d on d.seq = a.decision order by a.seq;
insert into reward (event, experiment, position, decision, reward, source, rewards, at)
    select r.seq, d.experiment, {_PLACE.format("r")}, r.decision, r.reward, r.source, r.rewards, r.at
    from old_reward r join old_decision d on d.seq = r.decision order by r.seq;
insert into late_reward (event, experiment, position, decision, reward, rewards, at)
    select l.seq, d.experiment, {_PLACE.format("l")}, l.decision, l.reward, l.rewards, l.at
    from old_late_reward l join old_decision d on d.seq = l.decision order by l.seq;
insert into mark select experiment, position / 256, event from temp.place where position % 256 = 0 or position = 1;
insert into snapshot select d.experiment, {_UP_TO.format("seq")}, d.code_version,
    tally_with_positions(d.experiment, d.tally), d.state, d.summary, '' from old_snapshot d where {_LATEST};
insert into snapshot_piece select d.experiment, {_UP_TO.format("seq")}, d.number, d.bytes, ''
    from old_snapshot_piece d where {_LATEST};
insert into api_key select * from old_api_key;
insert into erasure select * from old_erasure;
"""


def _move_in_file(connection: sqlite3.Connection, path: Path, make: Callable[[], None]) -> None:
    """Bring a file from version 12 to 13: number the events of every experiment, and translate what names a position.

    The last snapshot of every experiment is kept: an older version may have led to another state than this one.
    """
    moved = (*MOVED, "erasure", "scratch")
    for table in moved:
        connection.execute(f"alter table {table} rename to old_{table}")
    for statement in _statements(_PLACES):
        connection.execute(statement)
    ((last,),) = connection.execute("select last from position")
    ((placed, most),) = connection.execute("select count(*), coalesce(max(event), 0) from temp.place")
    if placed != last or most != last:
        raise Mismatch(
            f"{path.name} cannot be brought to version {NEWEST}: {max(abs(last - placed), 1)} of its events belong to "
            "no experiment. It is unchanged; `alphafair verify` of version 0.1 names the first."
        )
    make()

    def translated(experiment: int, position: int) -> int:
        query = "select max(position) from temp.place where experiment = ? and event <= ?"
        ((found,),) = connection.execute(query, (experiment, position))
        return found or 0

    connection.create_function(
        "tally_with_positions", 2, lambda experiment, tally: _tally(tally, lambda at: translated(experiment, at))
    )
    connection.create_function(
        "with_positions", 2, lambda experiment, body: with_positions(body, lambda at: translated(experiment, at))
    )
    for statement in _statements(_FROM_12):
        connection.execute(statement)
    for table in (*(f"old_{table}" for table in moved), "position", "temp.place"):
        connection.execute(f"drop table {table}")


def with_positions(body: str, translated: Callable[[int], int]) -> str:
    """Return the body of a rollback or an upgrade with translated positions."""
    fields = json.loads(body)
    if "position" in fields:
        fields["position"] = translated(fields["position"])
    return json.dumps({**fields, "tally": _tally(fields["tally"], translated)})


def _tally(text: str, translated: Callable[[int], int]) -> str:
    tally = json.loads(text)
    return json.dumps({**tally, "settled_to": translated(tally.get("settled_to", 0))})


def with_present_names(body: str) -> str:
    """Return the body of a change that created an experiment, with the settings that migration 9 renames.

    `groups`, `entitlements` and `pull_floor` became `groups` with three fields, and the `pull_floor` of FairCB, a share
    of all rounds, became `pull_share`. A body that cannot be parsed is returned unchanged, for its reader to refuse.
    """
    try:
        fields = json.loads(body)
        settings, policy = dict(fields["settings"]), fields["policy"]
    except (KeyError, TypeError, ValueError):
        return body
    if "pull_floor" in settings and policy == "fair-cb":
        settings["pull_share"] = settings.pop("pull_floor")
    elif "pull_floor" in settings and policy in _FAIR_TO_GROUPS:
        labels = settings.pop("groups", None)
        numbers = {name: settings.pop(name, None) for name in ("entitlements", "pull_floor")}
        settings["groups"] = {"labels": labels, **numbers}
    return json.dumps({**fields, "settings": settings})


def needs_migration_of(connection: sqlite3.Connection) -> bool:
    """Whether an older version of this package made a file."""
    return 0 < _done(connection) < NEWEST


def is_before_first(connection: sqlite3.Connection) -> bool:
    """Whether the tables of a file are not those of the one text."""
    return 0 < _done(connection) < FIRST


def check_file(connection: sqlite3.Connection, path: object) -> None:
    """Refuse a file whose tables, indexes, triggers or views are not those of its version."""
    done = _done(connection)
    if done > NEWEST:
        return  # of a later version: `migrate` refuses it
    expected, found = _expected(done), _objects(connection)
    differing = sorted({name for (_, name), _ in expected.items() ^ found.items()})
    if differing:
        repair = "The schema was changed: restore a backup that you made yourself."
        raise InvalidArgument("path", "a file with the schema that alphafair made", f"{path}: {differing[:5]}", repair)


@functools.cache
def _expected(version: int) -> dict[tuple[str, str], str]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.create_function("with_present_names", 1, with_present_names, deterministic=True)
    try:
        steps = older(SQLITE) if version < FIRST else SQLITE.steps
        texts = [step.text for step in steps if step.number <= version]
        for text in [SQLITE.types_in(RECORDS), *texts] if version else []:
            for statement in _statements(text):
                connection.execute(statement)
        return _objects(connection)
    finally:
        connection.close()


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return everything in the schema by kind and name: its SQL as tokens, without comments."""
    rows = connection.execute("select type, name, ifnull(sql, tbl_name) from sqlite_master")
    return {(kind, name): " ".join(_tokens(sql)) for kind, name, sql in rows}


def _tokens(sql: str) -> Iterator[str]:
    for token in _TOKEN.findall(sql):
        if not token.startswith("--"):
            yield token.strip('"') if _QUOTED.fullmatch(token) else token


def _done(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration that a file has had."""
    query = "select count(*) from sqlite_master where type = 'table' and name = 'migration'"
    ((has_records,),) = connection.execute(query)
    if not has_records:
        return 0
    ((number,),) = connection.execute("select ifnull(max(number), 0) from migration")
    return int(number)


# databases

FROM_3: Final = """
insert into experiment select experiment, name, last, at from old_position;
insert into change (event, experiment, position, kind, body, state, at, by)
    select experiment << 36 | seq, experiment, seq, kind, body, state, at, by from old_change;
insert into context select experiment, number, label from old_context;
insert into decision (event, experiment, position, id, context, arm, propensity, state_version, policy_version,
    deferred, available, probabilities, at, checksum)
    select experiment << 36 | seq, experiment, seq, id, context, arm, propensity, state_version,
    policy_version, deferred, available, probabilities, at, checksum from old_decision;
insert into activation (event, experiment, position, decision, at)
    select experiment << 36 | seq, experiment, seq, experiment << 36 | decision, at
    from old_activation;
insert into reward (event, experiment, position, decision, reward, source, rewards, at)
    select experiment << 36 | seq, experiment, seq, experiment << 36 | decision, reward, source, rewards,
    at from old_reward;
insert into late_reward (event, experiment, position, decision, reward, rewards, at)
    select experiment << 36 | seq, experiment, seq, experiment << 36 | decision, reward, rewards, at
    from old_late_reward;
insert into snapshot select experiment, seq, code_version, tally, state, summary, node from old_snapshot;
insert into snapshot_piece select experiment, seq, number, bytes, node from old_snapshot_piece;
insert into api_key select id, name, role, experiments, hash, created_at, created_by, expires_at, revoked_at,
    revoked_by, epoch from old_api_key;
"""
_N_MISPLACED = """select coalesce(sum(abs(coalesce(p.last, 0) - coalesce(e.n, 0))), 0)::bigint from position p
    full join (select experiment, count(*) as n from (select experiment from change
    union all select experiment from decision union all select experiment from activation
    union all select experiment from reward union all select experiment from late_reward) as every
    group by experiment) as e on e.experiment = p.experiment"""


def move_in_database(execute: Execute, shown: str, make: Callable[[], None]) -> None:
    """Bring a database from version 3 to 13, while no other process uses it."""
    moved = (*MOVED, "position")
    execute(f"lock table {', '.join(moved)} in access exclusive mode")
    ((n_misplaced,),) = execute(_N_MISPLACED)
    if n_misplaced:
        raise Mismatch(
            f"{shown} cannot be brought to version {NEWEST}: {n_misplaced} of its events belong to no experiment. It "
            "is unchanged; `alphafair verify` of version 0.1 names the first."
        )
    for table in moved:
        execute(f"alter table {table} rename to old_{table}")
    make()
    for statement in _statements(FROM_3):
        execute(statement)
    execute("drop table " + ", ".join(f"old_{table}" for table in moved))
