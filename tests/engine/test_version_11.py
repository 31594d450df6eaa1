"""Files of schema 11 and databases of schema 2, made by version 0.1: opened, verified and exported as they were.

`make_version_11_ledger.py` has how they were made, and what that version said of them is beside them.
"""

from __future__ import annotations

import bisect
import contextlib
import gzip
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alphafair.engine import Engine, Mismatch, Unavailable, copy
from alphafair.engine.addresses import open_store
from alphafair.engine.copies import for_verification
from tests import ROOT
from tests.make_version_11_ledger import described
from tests.postgres import Server
from tests.stores import HAVE_CODE

DATA = ROOT / "tests" / "fixtures"
FILES = ("version-11", "version-11-single")
CODE = "f61582b45b5915d9"  # of the kernels that made them
KEPT = ("state", "probabilities", "log", "history")


def records(name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "shop.db"
    path.write_bytes(gzip.decompress((DATA / f"{name}.db.gz").read_bytes()))
    return path


@pytest.fixture(autouse=True)
def _the_kernels_of_that_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that these kernels are those of the fixtures: then `verify` recomputes everything with them, to the bit."""
    for module in HAVE_CODE:
        monkeypatch.setattr(f"alphafair.engine.{module}.CODE", CODE)


@contextlib.contextmanager
def restored(server: Server) -> Iterator[str]:
    """The database of the fixture, in a schema of the server."""
    try:
        server.execute(gzip.decompress((DATA / "database-2.sql.gz").read_bytes()).decode())
        yield server.url("shop")
    finally:
        server.execute("drop schema if exists shop cascade")


def positions_of(path: Path) -> dict[str, list[int]]:
    """The events of every experiment by their numbers in a file of version 11, in plain Python."""
    with contextlib.closing(sqlite3.connect(path)) as file:
        owner, found = dict[int, int](), dict[int, list[int]]()
        for table in ("change", "decision"):
            for seq, key in file.execute(f"select seq, experiment from {table}"):
                found.setdefault(key, []).append(seq)
                owner[seq] = key
        for table in ("activation", "reward", "late_reward"):
            for seq, decision in file.execute(f"select seq, decision from {table}"):
                found[owner[decision]].append(seq)
        named = file.execute("select experiment, body from change where kind = 'create'").fetchall()
    return {json.loads(body)["name"]: sorted(found[key]) for key, body in named}


def translated(experiment: dict[str, Any], seqs: list[int]) -> dict[str, Any]:
    """What was said of an experiment of a file, with its own positions for those of the file."""

    def position(seq: int) -> int:
        return bisect.bisect_right(seqs, seq)

    def replaced(fields: dict[str, Any], *names: str) -> dict[str, Any]:
        return fields | {name: position(fields[name]) for name in names if fields.get(name) is not None}

    status = replaced(experiment["status"], "position", "policy_version")
    status["periods"] = [replaced(each, "first_position", "last_position") for each in status["periods"]]
    history = [replaced(each, "position") for each in experiment["history"]]
    history = [each | {"details": replaced(each["details"], "position")} for each in history]
    log = [replaced(each, "seq", "policy_version") for each in experiment["log"]]
    return experiment | {"status": status, "history": history, "log": log}


def check_as_before(address: Any, name: str, folder: Path) -> None:
    """Everything that the version which made it said of it, but for what moves with the clock and the memory."""
    before = records(name)
    if isinstance(address, Path):
        seqs, was = positions_of(address), before["experiments"]
        if len(was) > 1:
            before["experiments"] = {each: translated(was[each], seqs[each]) for each in was}
    with Engine(open_store(address), clock=lambda: 0) as opened:  # nothing becomes due
        assert opened.verify() == before["position"]
        now = json.loads(json.dumps(described(opened, folder)))
    assert list(now["experiments"]) == list(before["experiments"])
    for name, was in before["experiments"].items():
        found = now["experiments"][name]
        for part in KEPT:
            assert found[part] == was[part], (name, part)
        same = {key: value for key, value in was["status"].items() if key != "max_contexts"}
        assert {key: found["status"][key] for key in same} == same
        later = {key: found["status"][key] for key in found["status"].keys() - was["status"].keys()}
        assert {key for key, value in later.items() if value} == {"mode"}
        assert later["mode"] == "live"


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_it_said(name: str, tmp_path: Path) -> None:
    check_as_before(unpacked(name, tmp_path), name, tmp_path)


def test_a_database_says_what_it_said(postgres_server: Server, tmp_path: Path) -> None:
    with restored(postgres_server) as url:
        check_as_before(url, "database-2", tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_the_fixture_is_of_version_11(name: str, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(unpacked(name, tmp_path))) as file:
        assert file.execute("select max(number) from migration").fetchone() == (11,)


# a migration that fails leaves version 11


def content(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


KILLED = """
import os, signal, sys
from alphafair.engine.store.sqlite import SqliteStore
SqliteStore(sys.argv[1], prove=lambda store: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_migration_that_is_killed_leaves_version_11(tmp_path: Path) -> None:
    path = unpacked("version-11", tmp_path)
    before = content(path)
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(path) == before
    check_as_before(path, "version-11", tmp_path)


def test_a_file_with_events_of_no_experiment_is_refused(tmp_path: Path) -> None:
    path = unpacked("version-11", tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("update reward set decision = 99999 where seq in (select seq from reward limit 1)")
    before = content(path)
    refused = "shop.db cannot be brought to version 15: 1 of its events belong to no experiment. It is unchanged; "
    with pytest.raises(Mismatch, match=f"^{re.escape(refused)}`alphafair verify` of version 0.1 names the first.$"):
        Engine.open(path)
    assert content(path) == before


def test_a_file_without_space_beside_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = unpacked("version-11", tmp_path)
    before, n_needed = content(path), -(-3 * path.stat().st_size // 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(0, 0, n_needed * 10**5))
    with pytest.raises(
        Unavailable, match=f"^shop.db needs {n_needed} MB of free space to be brought to version 15. It"
    ):
        Engine.open(path)
    assert content(path) == before


def test_a_refused_copy_names_the_file_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the `.part` file: damage is in the source, space lacks beside the copy."""
    path = unpacked("version-11", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(0, 0, 1))
    with pytest.raises(Unavailable, match=r"^new.db needs \d+ MB of free space"):
        copy(path, tmp_path / "new.db")
    with pytest.raises(Unavailable, match=r"^shop.db needs \d+ MB"), for_verification(path):
        pass
    monkeypatch.undo()
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("update reward set decision = 99999 where seq in (select seq from reward limit 1)")
    with pytest.raises(Mismatch, match=r"^shop.db cannot be brought to version 15"):
        copy(path, tmp_path / "new.db")
    with pytest.raises(Mismatch, match=r"^shop.db cannot be brought to version 15"), for_verification(path):
        pass
    assert [each.name for each in tmp_path.iterdir() if "new" in each.name or "part" in each.name] == []


def test_a_database_with_events_of_no_experiment_is_refused(postgres_server: Server) -> None:
    with restored(postgres_server) as url:
        postgres_server.execute("delete from shop.reward where seq = (select max(seq) from shop.reward)")
        with pytest.raises(Mismatch, match=r"cannot be brought to version 15: 1 of its events belong to no experiment"):
            Engine.open(url)
        assert postgres_server.execute("select max(number) from shop.migration") == [(2,)]


def test_a_copy_keeps_keys_positions_and_checksums(postgres_server: Server, tmp_path: Path) -> None:
    """To a database and back: the same rows, apart from the numbers that a store gives them."""
    path, back, url = unpacked("version-11", tmp_path), tmp_path / "back.db", postgres_server.url("copied")
    Engine.open(path).close()
    try:
        assert copy(path, url) == copy(url, back)
    finally:
        postgres_server.execute("drop schema if exists copied cascade")
    for table, columns in (
        ("experiment", "key, name, position, at"),
        ("change", "experiment, position, kind, body, state, at, by"),
        ("context", "experiment, number, label"),
        (
            "decision",
            "experiment, position, id, context, arm, propensity, state_version, policy_version, deferred, "
            "available, probabilities, at, checksum",
        ),
        ("activation", "experiment, position, at"),
        ("reward", "experiment, position, reward, source, rewards, at"),
        ("late_reward", "experiment, position, reward, rewards, at"),
        ("api_key", "*"),
    ):
        query = f"select {columns} from {table} order by 1, 2"
        rows = []
        for each in (path, back):
            with contextlib.closing(sqlite3.connect(each)) as file:
                rows.append(file.execute(query).fetchall())
        assert rows[0] == rows[1], table
