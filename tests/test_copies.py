"""Copies from a file to a database and back: the same ids, events, tallies and keys, and a log that verifies."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alphafair import Engine
from alphafair.cli import app
from alphafair.engine import Mismatch, copy, restore
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
        engine.decide("home", "after")
        after, n_events = told(engine), engine.verify()
        saved = postgres_server.execute("select count(*) from snapshot", url.rpartition("=")[2])
        assert saved == [(3,)]
    assert [key.name for key in keys.all_of(url)] == ["somebody"]
    assert copy(url, back) == n_events
    with Engine.open(back) as engine:
        assert told(engine) == after
        assert engine.verify() == n_events
        position = engine.experiment("home").position
        engine.reward(engine.decide("home", "more").id, 1.0)
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
        file.execute("update decision set propensity = 0.25 where seq = 6")
        file.execute("delete from snapshot")
    with pytest.raises(Mismatch):
        copy(path, url)
    left = postgres_server.execute("select nspname from pg_namespace where nspname like '%copy%'")
    assert left == []
    with Engine.open(url) as engine:
        assert engine.experiments() == []


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
