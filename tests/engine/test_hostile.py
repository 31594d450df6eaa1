"""Files that somebody else has made or can reach: their schema, keys and modes, and links in the place of locks."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alphafair.cli import app as program
from alphafair.engine import Engine, Unavailable, restore
from alphafair.engine.store.dialect import NEWEST
from alphafair.engine.store.migrate import check_file
from alphafair.errors import InvalidArgument
from alphafair.service import keys
from alphafair.service.server import bound
from tests.older import take_back
from tests.postgres import Server
from tests.stores import rows_of

ARMS = ["ada", "ben"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "shop.db"
    with Engine.open(found, seed=0) as engine:
        engine.create("home", arms=ARMS, policy="uniform", feedback="bandit")
        engine.decide("home", "v", id="one")
    return found


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


# schemas

HOSTILE = {
    "a trigger": "create trigger t after update on api_key begin update api_key set revoked_at = null; end",
    "a trigger on decisions": "create trigger t after insert on decision begin delete from reward; end",
    "a view": "create view v as select * from api_key",
    "a table": "create table extra (x)",
    "an index": "create index i on decision (at)",
    "an index of an expression": "create index i on decision (abs(at))",
    "a column": "alter table api_key add column extra text default 'x'",
    "a missing table": "drop table late_reward",
}


@pytest.mark.parametrize("statement", HOSTILE.values(), ids=HOSTILE)
def test_a_changed_schema_is_refused(path: Path, tmp_path: Path, statement: str) -> None:
    execute(path, statement)
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(
            InvalidArgument, match=r"must be a file with the schema that alphafair made; .* The schema was changed"
        ):
            Engine.open(path, read_only=read_only)
    for command in (["verify", str(path)], ["keys", "list", "--db", str(path)]):
        assert CliRunner().invoke(program, command).exit_code == 2
    with pytest.raises(InvalidArgument, match="schema"):
        restore(path, tmp_path / "new.db")
    with pytest.raises(InvalidArgument, match="schema"):
        keys.revoke(path, "0badc0de")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("new")] == []


HOSTILE_IN_POSTGRES = {
    "a trigger": """create trigger t before update on {s}.api_key for each row
        execute function suppress_redundant_updates_trigger()""",
    "a rule": "create rule r as on insert to {s}.reward do instead nothing",
    "a missing table": "drop table {s}.late_reward",
    "a missing column": "alter table {s}.decision drop column checksum",
    "a column of another type": "alter table {s}.decision alter column propensity type real",
    "an added column of another type": "alter table {s}.snapshot alter column summary type text",
    "a missing key": "alter table {s}.decision drop constraint decision_pkey",
    "an id that is no longer unique": "alter table {s}.decision drop constraint decision_id_experiment_key",
}


@pytest.mark.parametrize("statement", HOSTILE_IN_POSTGRES.values(), ids=HOSTILE_IN_POSTGRES)
def test_a_changed_schema_in_postgres_is_refused(postgres_server: Server, tmp_path: Path, statement: str) -> None:
    url = postgres_server.url()
    schema = url.rpartition("=")[2]
    with Engine.open(url, seed=0) as engine:
        engine.create("home", arms=ARMS, policy="uniform", feedback="bandit")
    postgres_server.execute(statement.format(s=schema))
    try:
        for read_only in (True, False):
            with pytest.raises(
                InvalidArgument, match=r"must be a schema that alphafair made; .* The schema was changed"
            ):
                Engine.open(url, read_only=read_only)
        for command in (["verify", url], ["backup", url, str(tmp_path / "new.db")], ["keys", "list", "--db", url]):
            assert CliRunner().invoke(program, command).exit_code == 2
        assert not list(tmp_path.iterdir())
    finally:
        postgres_server.execute(f"drop schema {schema} cascade")


def test_a_database_may_have_more_than_alphafair_made(postgres_server: Server) -> None:
    url = postgres_server.url()
    schema = url.rpartition("=")[2]
    Engine.open(url).close()
    postgres_server.execute(f"create index i on {schema}.decision (at)")
    postgres_server.execute(f"create view {schema}.v as select * from {schema}.decision")
    postgres_server.execute(f"alter table {schema}.reward add column note text")
    with Engine.open(url, seed=0) as engine:
        engine.create("home", arms=ARMS)
        engine.reward(engine.decide("home", "v").id, 1.0)
        engine.verify()
    postgres_server.execute(f"drop schema {schema} cascade")


SLIPPED_IN = {
    "a check": ("revoked_by text", "revoked_by text check (revoked_at is null)"),
    "a comment that is none": ("check (role in", 'check ("role-- or 1"\n in'),
    "a text for a name": ("check (role in", "check ('role' in"),
}


@pytest.mark.parametrize(("old", "new"), SLIPPED_IN.values(), ids=SLIPPED_IN)
def test_a_changed_table_is_refused(path: Path, old: str, new: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("pragma writable_schema = on")
    change = "update sqlite_master set sql = replace(sql, ?, ?) where name = 'api_key' and instr(sql, ?)"
    assert connection.execute(change, (old, new, old)).rowcount == 1
    connection.commit()
    connection.close()
    with pytest.raises(InvalidArgument, match="schema that alphafair made"):
        Engine.open(path)


def test_every_older_version_has_its_own_schema(tmp_path: Path) -> None:
    """A file of an older version is compared with what that version was, then brought up to date."""
    for version in range(1, NEWEST + 1):
        path = tmp_path / f"{version}.db"
        Engine.open(path).close()
        connection = sqlite3.connect(path, isolation_level=None)
        take_back(connection, version)
        check_file(connection, "it")
        connection.execute("create trigger t after insert on decision begin delete from reward; end")
        with pytest.raises(InvalidArgument, match="schema"):
            check_file(connection, "it")
        connection.execute("drop trigger t")
        connection.close()
        Engine.open(path).close()


def test_functions_in_a_schema_are_not_trusted(path: Path) -> None:
    with Engine.open(path) as engine:
        ((trusted,),) = rows_of(engine, "pragma trusted_schema")
        assert trusted == 0


# keys and backups


def test_a_restored_file_has_no_keys_unless_asked(path: Path, tmp_path: Path) -> None:
    token = keys.create(path, "admin", "me")
    with Engine.open(path) as engine:
        engine.backup(tmp_path / "backup.db")
    keys.revoke(path, token.split("_")[1])
    answer = CliRunner().invoke(program, ["restore", str(tmp_path / "backup.db"), str(tmp_path / "new.db")])
    assert answer.exit_code == 0
    assert "It has no keys" in answer.stderr
    assert keys.all_of(tmp_path / "new.db") == []
    assert token.split("_")[1].encode() not in (tmp_path / "new.db").read_bytes()
    kept = CliRunner().invoke(
        program, ["restore", str(tmp_path / "backup.db"), str(tmp_path / "kept.db"), "--keep-keys"]
    )
    assert kept.exit_code == 0
    assert [key.id for key in keys.all_of(tmp_path / "kept.db")] == [token.split("_")[1]]
    with Engine.open(tmp_path / "new.db") as engine:
        assert engine.decide("home", "v", id="one").context == "v"


# modes


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Engine.open(tmp_path / "shop.db") as engine:
            engine.create("home", arms=ARMS, policy="uniform", feedback="bandit")
            engine.backup(tmp_path / "backup.db")
            restore(tmp_path / "backup.db", tmp_path / "restored.db")
            found = modes(tmp_path)
    finally:
        os.umask(before)
    assert set(found) >= {"shop.db", "shop.db-wal", "shop.db-shm", "shop.db.lock", "backup.db", "restored.db"}
    assert set(found.values()) == {0o600}


def test_a_file_readable_by_others_is_reported(path: Path) -> None:
    path.chmod(0o644)
    with Engine.open(path) as engine:
        assert engine.writers.store.opened.readable_by_others
    path.chmod(0o600)
    with Engine.open(path) as engine:
        assert not engine.writers.store.opened.readable_by_others


def test_a_lock_that_is_a_link_is_not_written_through(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "diary.txt"
    victim.write_text("dear diary")
    (tmp_path / "shop.db.lock").unlink()
    (tmp_path / "shop.db.lock").symlink_to(victim)
    with pytest.raises(Unavailable, match=r"shop\.db\.lock must be a regular file"):
        Engine.open(path)
    (tmp_path / "new.db.lock").symlink_to(victim)
    with pytest.raises(Unavailable, match=r"new\.db\.lock must be a regular file"):
        restore(path, tmp_path / "new.db")
    assert victim.read_text() == "dear diary"


def test_a_lock_that_is_another_file_is_not_written_to(path: Path, tmp_path: Path) -> None:
    victim, lock = tmp_path / "diary.txt", tmp_path / "shop.db.lock"
    victim.write_text("dear diary")
    lock.unlink()
    os.link(victim, lock)
    with pytest.raises(Unavailable, match=r"shop\.db\.lock must be a regular file"):
        Engine.open(path)
    assert victim.read_text() == "dear diary"
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(Unavailable, match=r"shop\.db\.lock must be a regular file"):
        Engine.open(path)


def test_a_lock_that_others_can_read_becomes_private(path: Path, tmp_path: Path) -> None:
    """An older version made it for everybody, and whoever can open a file can hold a lock on it."""
    lock = tmp_path / "shop.db.lock"
    lock.chmod(0o644)
    Engine.open(path).close()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_a_lock_of_another_user_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, nobody, real = tmp_path / "shop.db.lock", 65534, os.fstat

    def belongs_to_another(handle: int) -> Any:
        found = real(handle)
        is_lock = (found.st_dev, found.st_ino) == (lock.stat().st_dev, lock.stat().st_ino)
        return os.stat_result([nobody if k == 4 and is_lock else value for k, value in enumerate(found)])

    monkeypatch.setattr(os, "fstat", belongs_to_another)
    with pytest.raises(Unavailable, match=r"shop\.db\.lock belongs to user 65534"):
        Engine.open(path)
    monkeypatch.undo()
    Engine.open(path).close()


# the socket


def test_a_socket_is_for_its_owner_and_group(tmp_path: Path) -> None:
    where = tmp_path / "s"
    before = os.umask(0)
    try:
        with bound(where) as listening:
            listening.listen()
            assert stat.S_IMODE(where.stat().st_mode) == 0o660
            with pytest.raises(InvalidArgument, match="no other process listens on"), bound(where):
                pass
            assert where.is_socket()
    finally:
        os.umask(before)
    assert not where.exists()


def test_a_socket_that_was_left_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "s"))
    left.close()
    with bound(tmp_path / "s"):
        assert (tmp_path / "s").is_socket()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidArgument, match="unix_socket must be a path to bind to"), bound(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(InvalidArgument, match="unix_socket"), bound(tmp_path / ("x" * 200)):
        pass
