"""The schema of a database: numbered migrations, and a check that a file has exactly the schema of its version.

A file may come from somebody else. A trigger, a view or an expression in its schema would run when it is written to, so
a schema that differs from what the migrations make is refused before anything else is read.

The first migration after a release raises the version of the package, which a file names to older versions.
"""

from __future__ import annotations

import functools
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import resources

from alphafair import __version__
from alphafair.errors import InvalidArgument

Migration = tuple[int, str, str]  # number, name, SQL
RECORDS = "create table migration (number integer primary key, name text, code_version text, at integer) strict"
_FAIR_TO_GROUPS = ("alpha-fair-adaptive", "alpha-fair", "alpha-fair-bandit")
_TOKEN = re.compile(r"""--[^\n]*|"(?:[^"]|"")*"|'(?:[^']|'')*'|\w+|\S""")  # quoted text is not searched for comments
_QUOTED = re.compile(r'"\w+"')  # SQLite adds and removes quotes around names when a table is altered


def schema() -> list[Migration]:
    """Return the numbered SQL files: number, name, text."""
    files = sorted(
        (
            file
            for file in resources.files("alphafair.engine").joinpath("schema").iterdir()
            if file.name.endswith("sql")
        ),
        key=lambda file: file.name,
    )
    return [(int(file.name[:4]), file.name[5:-4], file.read_text(encoding="utf-8")) for file in files]


def migrate(
    connection: sqlite3.Connection,
    known: Sequence[Migration],
    *,
    read_only: bool = False,
    prove: Callable[[], None] = lambda: None,
) -> None:
    """Migrate a file to the current version in one transaction, which is committed once `prove` returns."""
    newest = known[-1][0]
    done = _done(connection)
    if done > newest:
        written = connection.execute("select code_version from migration order by number desc").fetchone()[0]
        raise InvalidArgument(
            "path", f"a file of version {newest} or older", done, f"Install alphafair {written} or later."
        )
    if read_only and done < newest:
        raise InvalidArgument(
            "path", f"a file of version {newest}", done, "Open it for writing once, which migrates it."
        )
    if done == newest:
        return
    connection.create_function("with_present_names", 1, with_present_names, deterministic=True)
    connection.execute("begin immediate")
    try:
        if not _has_records(connection):
            connection.execute(RECORDS)
        for number, name, text in known:
            if number > done:
                for statement in _statements(text):
                    connection.execute(statement)
                record = (number, name, __version__, time.time_ns() // 1000)
                connection.execute("insert into migration values (?, ?, ?, ?)", record)
        prove()
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def is_older(connection: sqlite3.Connection) -> bool:
    """Whether an older version of this package made a file."""
    return 0 < _done(connection) < schema()[-1][0]


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


def check_schema(connection: sqlite3.Connection, path: object) -> None:
    """Refuse a file whose tables, indexes, triggers or views are not those of its version."""
    known = tuple(schema())
    done = _done(connection)
    if done > known[-1][0]:
        return  # of a later version: `migrate` refuses it
    expected = _expected(tuple(migration for migration in known if migration[0] <= done))
    found = _objects(connection)
    differing = sorted({name for (_, name), _ in expected.items() ^ found.items()})
    if differing:
        repair = "The schema was changed: restore a backup that you made yourself."
        raise InvalidArgument("path", "a file with the schema that alphafair made", f"{path}: {differing[:5]}", repair)


@functools.cache
def _expected(migrations: tuple[Migration, ...]) -> dict[tuple[str, str], str]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        if migrations:
            migrate(connection, migrations)
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


def _has_records(connection: sqlite3.Connection) -> bool:
    ((present,),) = connection.execute("select count(*) from sqlite_master where type = 'table' and name = 'migration'")
    return bool(present)


def _done(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration that a file has had."""
    if not _has_records(connection):
        return 0
    ((number,),) = connection.execute("select ifnull(max(number), 0) from migration")
    return int(number)


def _statements(text: str) -> Iterator[str]:
    """Yield statements one by one: `executescript` would commit on its own."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
