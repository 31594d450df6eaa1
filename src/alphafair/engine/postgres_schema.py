"""The tables in PostgreSQL: made, brought to the current version, checked, and removed where nothing is in them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import time
from importlib import resources
from typing import Any

from alphafair import __version__
from alphafair.engine.postgres_connections import Connections
from alphafair.errors import InvalidArgument
from alphafair.extras import needed_by

with needed_by("A ledger in PostgreSQL", "postgres"):
    import psycopg


def migrations() -> list[tuple[int, str, str]]:
    """Return the numbered SQL files: number, name, text."""
    folder = resources.files("alphafair.engine").joinpath("schema_postgres")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name[:4]), file.name[5:-4], file.read_text(encoding="utf-8")) for file in files]


def lock_number(*names: str) -> int:
    """Return the number of an advisory lock."""
    return int.from_bytes(hashlib.sha256("\0".join(("alphafair", *names)).encode()).digest()[:8], "big", signed=True)


def has_table(connection: psycopg.Connection[Any], schema: str, table: str) -> bool:
    query = "select 1 from pg_catalog.pg_tables where schemaname = $1 and tablename = $2"
    return bool(connection.execute(query, (schema, table)).fetchall())


_CREATE = re.compile(r"create table (\w+) \((.*?)\n\);", re.DOTALL)
_TYPE = r"(?:double precision|\w+)"
_ADD = re.compile(rf"alter table (\w+) add column (\w+ {_TYPE})")
_PART = re.compile(rf"^ *(primary key|unique|\w+ {_TYPE})([^\n]*)", re.MULTILINE)
_FOUND = """select c.relname, a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
    union all select c.relname, case o.contype when 'p' then 'primary key' else 'unique' end
    from pg_class c join pg_constraint o on o.conrelid = c.oid
    where c.relnamespace = $1::regnamespace and o.contype in ('p', 'u')"""
_ADDED = """select t.tgname from pg_class c join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal
    where c.relnamespace = $1::regnamespace union all select r.rulename from pg_class c
    join pg_rewrite r on r.ev_class = c.oid where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p')"""


@functools.cache
def _parts() -> frozenset[tuple[str, str]]:
    """Return every table of the schema with its columns and types, and `unique` and `primary key` where it has them."""
    found = set[tuple[str, str]]()
    for _, _, text in migrations():
        for table, body in _CREATE.findall(text):
            for part, rest in _PART.findall(body):
                found |= {(table, part)}
                found |= {(table, key) for key in ("primary key", "unique") if key in rest.partition("--")[0]}
        found |= set(_ADD.findall(text))
    return frozenset(found)


def check_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Refuse a schema that lacks a table, a column of its type or a constraint, or that has triggers or rules.

    All of that could change what is written or read. More tables, columns and indexes do no harm.
    """
    lacking = _parts() - {(table, part) for table, part in connection.execute(_FOUND, (schema,)).fetchall()}
    differing = sorted(f"{table}: {part}" for table, part in lacking)
    differing += sorted(name for (name,) in connection.execute(_ADDED, (schema,)).fetchall())
    if differing:
        allowed, repair = "a schema that alphafair made", "The schema was changed: restore a backup."
        raise InvalidArgument("address", allowed, f"{schema}: {differing[:5]}", repair)


def migrate(connection: psycopg.Connection[Any], schema: str, *, read_only: bool) -> bool:
    """Bring the tables to the current version, one process at a time; return whether there were none."""
    known = migrations()
    with connection.transaction():
        if not read_only:
            connection.execute("select pg_advisory_xact_lock($1)", (lock_number("migrate", schema),))
        has_tables, done, newest = has_table(connection, schema, "migration"), 0, known[-1][0]
        if has_tables:
            ((done, version),) = connection.execute(
                "select number, code_version from migration order by number desc limit 1"
            ).fetchall()
            if done > newest:
                allowed, repair = f"a database of version {newest} or older", f"Install alphafair {version} or later."
                raise InvalidArgument("address", allowed, done, repair)
        if read_only:
            if done < newest:
                raise InvalidArgument(
                    "address", f"a database of version {newest}", done, "Open it for writing once, which migrates it."
                )
            return False
        if not has_tables:
            connection.execute(f"create schema if not exists {schema}")
            connection.execute(
                "create table migration (number bigint primary key, name text, code_version text, at bigint)"
            )
        for number, name, text in known:
            if number > done:
                connection.execute(text)
                row = (number, name, __version__, time.time_ns() // 1000)
                connection.execute("insert into migration values ($1, $2, $3, $4)", row)
        return not has_tables


def make_way(connection: psycopg.Connection[Any], schema: str) -> None:
    """Remove a schema in which nothing was ever kept, and refuse any other; called in a transaction.

    Nobody writes to it meanwhile: its tables are locked before they are read.
    """
    connection.execute("select pg_advisory_xact_lock($1)", (lock_number("migrate", schema),))
    tables = sorted({"migration", *(table for table, _ in _parts())})
    repair = "Add ?schema=NAME to the address, with another name: nothing is ever overwritten."
    if all(has_table(connection, schema, table) for table in tables):
        connection.execute(f"lock table {schema}.position, {schema}.api_key in access exclusive mode")
        for table in ("position", "api_key"):
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
    connections = Connections(url, read_only=False)

    def work(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction(force_rollback=True):
            make_way(connection, connections.schema)

    with contextlib.closing(connections):
        connections.run(work)
    return connections.schema
