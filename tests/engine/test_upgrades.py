"""Files and databases of older versions: proved before they are migrated, and left as they were where that fails."""

from __future__ import annotations

import gzip
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import alphafair
from alphafair.cli import app
from alphafair.engine import Engine, Mismatch, Unavailable, restore
from alphafair.engine import memory as memory_module
from alphafair.engine.store.dialect import NEWEST, POSTGRES
from alphafair.engine.store.files import WriterLock
from alphafair.engine.store.ledger import Store
from alphafair.engine.store.sqlite import SqliteStore
from alphafair.errors import InvalidArgument
from tests import ROOT
from tests.engine.test_version_11 import restored
from tests.older import take_back
from tests.postgres import Server

DATA = ROOT / "tests" / "fixtures"
OLDER = {"version-8": 8, "version-11": 11, "adaptive-4": 11}
SCHEMAS = {"0.1.0": (11, 2), "1.0.0": (13, 13), "1.1.0": (15, 15)}  # of files and databases that each version makes


@pytest.fixture(params=OLDER)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "shop.db"
    path.write_bytes(gzip.decompress((DATA / f"{name}.db.gz").read_bytes()))
    return path


def content(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return list(file.iterdump())


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Nothing in a file changes, and nothing is left beside it but the lock."""
    before, names = content(path), {each.name for each in path.parent.iterdir()}
    yield
    assert content(path) == before
    assert {each.name for each in path.parent.iterdir()} - {"shop.db.lock"} == names - {"shop.db.lock"}


def verify(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", str(path)])
    return result.exit_code, result.output


def without_code(folder: Path) -> Path:
    """A file of the first ledgers, which did not say which code had written them."""
    path = folder / "shop.db"
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=["ada", "ben"])
        engine.reward(engine.decide("home", "ann").id, 0.5)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        take_back(file, 2)
        file.execute("delete from snapshot")
        file.execute("update change set body = json_remove(body, '$.code')")
    return path


def test_a_file_that_cannot_be_loaded_is_left_as_it_was(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(replay: Any, *arguments: Any) -> None:
        raise KeyError("code")

    with unchanged(older), monkeypatch.context() as patch:
        patch.setattr(memory_module.Replay, "run", fails)
        with pytest.raises(Unavailable, match=r"shop\.db cannot be loaded by this version: KeyError: 'code'\. It was"):
            Engine.open(older)
    with Engine.open(older) as engine:
        engine.verify()


@pytest.mark.parametrize("number", [2, None])
def test_a_file_of_the_first_ledgers_is_refused(tmp_path: Path, number: int | None) -> None:
    path = without_code(tmp_path)
    if number is None:  # an earlier version has migrated it before it failed
        SqliteStore(path).close()
    refusal = "a file of alphafair 0.1.0 or later; got 'one of an unreleased version'. Export its log"
    with unchanged(path):
        with pytest.raises(InvalidArgument, match=re.escape(refusal)):
            Engine.open(path)
        with pytest.raises(InvalidArgument, match=re.escape(refusal)):
            restore(path, tmp_path / "restored.db")
        code, text = verify(path)
        assert code != 0
        assert refusal in text


def test_a_process_that_is_killed_while_it_migrates(older: Path, tmp_path: Path) -> None:
    """What is on the disk at the last moment before the commit is the file of the older version."""
    crashed, before = tmp_path / "crashed.db", content(older)

    def prove(store: Store) -> None:
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{older}{suffix}", f"{crashed}{suffix}")

    SqliteStore(older, prove=prove).close()
    assert content(crashed) == before != content(older)
    with Engine.open(crashed) as engine:
        engine.verify()


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = unpacked("adaptive-4", tmp_path)

    def full(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = sqlite3.connect(*arguments, **options)
        ((pages,),) = connection.execute("pragma page_count").fetchall()
        connection.execute(f"pragma max_page_count = {pages}").fetchall()
        return connection

    with closing(sqlite3.connect(path)) as file:
        file.execute("vacuum")
    with unchanged(path), pytest.raises(Unavailable, match="cannot be migrated, and is as it was: database or disk is"):
        SqliteStore(path, connect=full)
    SqliteStore(path).close()


def test_an_older_file_is_verified_before_it_is_migrated(older: Path) -> None:
    """Also while the older version uses it; a copy is migrated, and nothing is left of it."""
    lock = WriterLock(older)
    try:
        with unchanged(older):
            for _ in range(2):
                code, text = verify(older)
                assert code == 0, text
                assert "every propensity, snapshot and state is equal to the last bit" in text
                assert "is of an older version, and was left as it is: a migrated copy was verified." in text
    finally:
        lock.release()
    Engine.open(older).close()
    code, text = verify(older)
    assert code == 0
    assert "a migrated copy" not in text


def test_a_damaged_older_file_is_found_before_it_is_migrated(older: Path) -> None:
    with closing(sqlite3.connect(older)) as file, file:
        assert file.execute("delete from reward where seq = (select max(seq) from reward)").rowcount == 1
    with unchanged(older):
        code, text = verify(older)
        assert (code, "1 of its events belong to no experiment. It is unchanged" in text) == (1, True), text
        with pytest.raises(Mismatch, match=r"`alphafair verify` of version 0\.1 names the first"):
            restore(older, older.with_name("restored.db"))


def test_an_older_file_with_a_trigger_is_not_copied_and_run(tmp_path: Path) -> None:
    path = unpacked("version-11", tmp_path)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("create trigger t after insert on migration begin delete from reward; end")
    with unchanged(path):
        code, text = verify(path)
        assert (code, "a file with the schema that alphafair made" in text) == (2, True), text


def test_a_database_that_cannot_be_migrated_is_left_as_it_was(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version() -> Any:
        return postgres_server.execute("select max(number) from shop.migration")

    with restored(postgres_server) as url:
        with monkeypatch.context() as patch:
            first = POSTGRES.steps[0]
            patch.setitem(vars(POSTGRES), "steps", [first._replace(text=first.text + "nonsense;\n")])
            with pytest.raises(Unavailable, match="nonsense"):
                Engine.open(url)
        assert version() == [(2,)]
        postgres_server.execute("create rule r as on insert to shop.api_key do nothing")
        with pytest.raises(InvalidArgument, match="a schema that alphafair made"):
            Engine.open(url)
        assert version() == [(2,)]
        postgres_server.execute("drop rule r on shop.api_key")
        with Engine.open(url) as engine:
            engine.verify()
        assert version() == [(NEWEST,)]


# the version of the package


def test_every_schema_has_a_version_of_the_package() -> None:
    """Whoever is told "Install alphafair X or later" must not have X: a new step needs a new version."""
    assert list(SCHEMAS)[-1] == alphafair.__version__, "name the schemas of this version"
    assert len(set(SCHEMAS.values())) == len(SCHEMAS)
    assert SCHEMAS[alphafair.__version__] == (NEWEST, NEWEST), (
        "raise alphafair.__version__ with the first step after a release"
    )


@pytest.mark.parametrize("name", OLDER)
def test_a_migrated_file_names_a_version_that_can_open_it(name: str, tmp_path: Path) -> None:
    path = unpacked(name, tmp_path)
    Engine.open(path).close()
    with closing(sqlite3.connect(path)) as file:
        found = file.execute("select number, code_version from migration order by number desc limit 1").fetchone()
    assert found == (NEWEST, alphafair.__version__)
