"""Copies from a file to a database and back: the same ids, events, tallies and keys, and a log that verifies."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from alphafair import Engine
from alphafair.cli import app
from alphafair.engine import Mismatch, copies, copy, restore
from alphafair.engine.store.postgres import PostgresStore
from alphafair.errors import InvalidArgument
from alphafair.service import keys
from tests.postgres import Server

ARMS = ["ada", "ben", "cyd"]


@pytest.fixture
def url(postgres_server: Server) -> Iterator[str]:
    address = postgres_server.url()
    yield address
    postgres_server.execute(f"drop schema if exists {address.rpartition('=')[2]} cascade")


def play(engine: Engine) -> None:
    """Everything that a log can have, in three experiments at once."""
    engine.create("home", arms=ARMS, reward_wait=3600.0, default_reward=0.5)
    engine.create("full", arms=ARMS, policy="alpha-fair", contexts=["never seen"])
    engine.create('Straße, "quoted" \\ {}', arms=["ä,b", '"', "\\"], policy="alpha-fair-bandit")
    for k in range(30):
        for name in engine.experiments():
            engine.decide(name, f"visitor-{k % 4}", id=f"request-{k}", deferred=k % 7 == 0)
            if k % 7 == 0 and k % 2:
                engine.activate(f"request-{k}", name)
            if k % 3 and k % 7:
                engine.reward(f"request-{k}", [0.5, 0.25, 1.0] if name == "full" else k / 30, name)
    engine.mask_arm("home", "ada")
    engine.decide("home", "visitor-9", available=["ben"])
    engine.rollback("home", engine.experiment("home").position - 10)
    engine.reward("request-29", 1.0, "home")
    engine.add_arm("home", "dan")
    engine.retire_arm("home", "ben")
    engine.set_alpha("home", 0.5)
    engine.new_period("home")
    engine.erase("home", "visitor-2")
    for k in range(10):
        engine.reward(engine.decide("home", f"late-{k}").id, 0.25, "home")
    engine.observe("home", "visitor-1", "ada", 0.75, "seen", propensity=0.5, source="history")
    engine.observe("home", "new", "dan", id="waits")
    engine.set_terms("home", mode="share", share=0.5, groups=dict.fromkeys((*ARMS, "dan"), "a"), reward_wait=60.0)
    for k in range(8):
        engine.decide("home", "late-0", f"side-{k}", incumbent="ada", incumbent_propensity=0.25, unit=f"visitor-{k}")
        engine.reward(f"side-{k}", k / 8, "home")


def told(engine: Engine) -> dict[str, Any]:
    """What must be the same in every copy: positions are those of the store."""
    found: dict[str, Any] = {}
    for name in engine.experiments():
        status = {**vars(engine.experiment(name))}
        for field in ("position", "policy_version", "periods", "max_contexts"):
            del status[field]
        log = engine.log(name)
        found[name] = [status, log.arms.tolist(), log.propensities.tolist(), log.rewards.tolist()]
        found[name] += [[(each.kind, each.at, each.by) for each in engine.history(name)]]
        found[name] += [engine.decide(name, "visitor-1", id="request-1")]
    return found


def test_there_and_back(tmp_path: Path, url: str, postgres_server: Server) -> None:
    path, back = tmp_path / "shop.db", tmp_path / "back.db"
    with Engine.open(path, seed=1) as engine:
        play(engine)
        before = told(engine)
        n_events = engine.verify()
    token = keys.create(path, "admin", "somebody")
    assert copy(path, url) == n_events
    with Engine.open(url, seed=2) as engine:
        assert told(engine) == before
        assert engine.verify() == n_events
        assert engine.reward("request-3", 0.5, "home").outcome in ("applied", "rolled_back")
        engine.decide("home", "after", incumbent="dan")
        after, n_events = told(engine), engine.verify()
        saved = postgres_server.execute("select count(*) from snapshot", url.rpartition("=")[2])
        assert saved == [(3,)]
    assert [key.name for key in keys.all_of(url)] == ["somebody"]
    assert copy(url, back) == n_events
    with Engine.open(back) as engine:
        assert told(engine) == after
        assert engine.verify() == n_events
        position = engine.experiment("home").position
        engine.reward(engine.decide("home", "more", incumbent="dan").id, 1.0)
        engine.rollback("home", position)
        engine.verify()
    assert keys.any_valid(back)
    assert token.split("_")[1] == keys.all_of(back)[0].id
    other = postgres_server.url()
    assert copy(url, other) == n_events
    with Engine.open(other) as engine:
        assert told(engine) == after


def test_a_backup_of_a_database_is_a_file(tmp_path: Path, url: str, postgres_server: Server) -> None:
    with Engine.open(url, seed=1) as engine:
        play(engine)
        keys.create(url, "read", "somebody")
        n_events = engine.backup(tmp_path / "monday.db")
        before = told(engine)
    target = postgres_server.url()
    assert restore(tmp_path / "monday.db", target) == n_events
    with Engine.open(target) as engine:
        assert told(engine) == before
    assert keys.all_of(target) == []
    with pytest.raises(InvalidArgument, match="a database without experiments"):
        restore(tmp_path / "monday.db", url)


def test_a_forged_log_is_not_copied(tmp_path: Path, url: str, postgres_server: Server) -> None:
    """A copy that does not verify is removed, whatever was wrong with its source."""
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS)
        for k in range(5):
            engine.reward(engine.decide("home", f"v{k}").id, 1.0)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("update decision set propensity = 0.25 where position = 6")
        file.execute("delete from snapshot")
    with pytest.raises(Mismatch):
        copy(path, url)
    left = postgres_server.execute("select nspname from pg_namespace where nspname like '%copy%'")
    assert left == []
    assert url.rpartition("=")[2] not in schemas(postgres_server)


def schemas(server: Server) -> set[str]:
    return {name for (name,) in server.execute("select nspname from pg_namespace")}


def one_experiment(path: Path) -> Path:
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS)
        engine.reward(engine.decide("home", "v").id, 1.0)
    return path


def test_keys_of_the_target_are_kept(tmp_path: Path, url: str) -> None:
    path = one_experiment(tmp_path / "shop.db")
    keys.create(url, "admin", "somebody")
    for work in (copy, restore):
        with pytest.raises(InvalidArgument, match="a database without experiments and keys"):
            work(path, url)
    assert [key.name for key in keys.all_of(url)] == ["somebody"]


@pytest.mark.parametrize("what", ["experiment", "key"])
def test_what_is_written_to_the_target_meanwhile_is_kept(
    tmp_path: Path, url: str, postgres_server: Server, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path, prove = one_experiment(tmp_path / "shop.db"), copies.prove
    Engine.open(url).close()

    def slow(*arguments: Any, **options: Any) -> int:
        if what == "key":
            keys.create(url, "admin", "somebody")
        else:
            with Engine.open(url, seed=2) as engine:
                engine.create("early", arms=ARMS)
        return prove(*arguments, **options)

    monkeypatch.setattr(copies, "prove", slow)
    before = schemas(postgres_server)
    with pytest.raises(InvalidArgument, match="a database without experiments and keys"):
        copy(path, url)
    assert schemas(postgres_server) == before
    with Engine.open(url) as engine:
        assert engine.experiments() == (["early"] if what == "experiment" else [])
        assert len(keys.all_of(url)) == (what == "key")


def test_an_experiment_that_is_committed_during_the_renaming_is_kept(
    tmp_path: Path, url: str, postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction began before the target was looked at, and ends afterwards."""
    path, rename = one_experiment(tmp_path / "shop.db"), PostgresStore.take_name
    Engine.open(url).close()
    schema = url.rpartition("=")[2]

    def slow(self: PostgresStore, name: str) -> None:
        with psycopg.connect(postgres_server.url(None)) as creating:
            creating.execute(f"insert into {schema}.experiment values (1, 'early', 1, 0)")  # type: ignore[arg-type]
            waiting = threading.Timer(0.5, creating.commit)
            waiting.start()
            try:
                rename(self, name)
            finally:
                waiting.join()

    monkeypatch.setattr(PostgresStore, "take_name", slow)
    with pytest.raises(InvalidArgument, match="a database without experiments and keys"):
        copy(path, url)
    assert postgres_server.execute("select name from experiment", schema) == [("early",)]


def test_other_tables_in_the_schema_are_kept(tmp_path: Path, url: str, postgres_server: Server) -> None:
    path, schema = one_experiment(tmp_path / "shop.db"), url.rpartition("=")[2]
    postgres_server.execute(f"create schema {schema}")
    postgres_server.execute(f"create table {schema}.reward (diary text)")
    before = schemas(postgres_server)

    def refused() -> None:
        with pytest.raises(InvalidArgument, match="a schema without other tables"):
            copy(path, url)
        assert schemas(postgres_server) == before

    refused()
    postgres_server.execute(f"alter table {schema}.reward rename to diary")
    Engine.open(url).close()  # tables of an engine beside it
    refused()
    assert postgres_server.execute("select count(*) from diary", schema) == [(0,)]
    assert postgres_server.execute("select count(*) from reward", schema) == [(0,)]


def test_an_empty_schema_is_filled(tmp_path: Path, url: str, postgres_server: Server) -> None:
    path = one_experiment(tmp_path / "shop.db")
    postgres_server.execute(f"create schema {url.rpartition('=')[2]}")
    assert copy(path, url) == 3


def test_a_copy_that_fails_leaves_no_schema(tmp_path: Path, url: str, postgres_server: Server) -> None:
    before = schemas(postgres_server)
    for source in (url.replace("?schema=", "?schema=nowhere_"), tmp_path / "nowhere.db"):
        with pytest.raises(InvalidArgument, match="for a typo"):
            copy(source, url)
        assert schemas(postgres_server) == before
    assert list(tmp_path.iterdir()) == []


def test_commands_take_either_address(tmp_path: Path, url: str) -> None:
    path = str(tmp_path / "shop.db")
    with Engine.open(path, seed=1) as engine:
        play(engine)
        n_events = engine.position
    secret = url.replace("shop@", "shop:hunter2@")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == 0, done.output
        assert "hunter2" not in done.output
        return done.output

    assert f"{n_events:,} events, verified" in run("copy", path, secret)
    assert "equal to the last bit" in run("verify", secret)
    assert "create" in run("history", secret, "-e", "home")
    run("erase", secret, "-e", "home", "--context", "visitor-1")
    run("export", secret, "-e", "home", "-o", str(tmp_path / "home.csv"))
    run("keys", "create", "--db", secret, "--role", "admin", "--name", "you")
    assert "you" in run("keys", "list", "--db", secret)
    run("backup", secret, str(tmp_path / "copy.db"))
    assert "verified" in run("restore", str(tmp_path / "copy.db"), str(tmp_path / "restored.db"))
    refused = CliRunner().invoke(app, ["restore", str(tmp_path / "copy.db"), secret])
    assert refused.exit_code == 2
    assert "hunter2" not in refused.output
