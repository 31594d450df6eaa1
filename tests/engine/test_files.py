"""The files under an engine: deleted, moved or replaced while in use, empty, mistyped, or known by several names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from alphafair import Engine, InvalidArgument
from alphafair.engine import Mismatch, Outcome, Unavailable
from alphafair.engine.writer import Writer
from alphafair.service import keys
from alphafair.service.http.errors import as_failure
from alphafair.service.server import log_store
from tests.service.test_process import refused, serving
from tests.serving import ARMS, running, wait_until_ready
from tests.stores import rows_of


def made(path: Path) -> Path:
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS)
        engine.decide("home", "v", id="first")
    return path


def other_file(path: Path) -> None:
    """Another engine's file takes the name."""
    made(path.with_name("other.db")).rename(path)


def copy(path: Path) -> None:
    """The same bytes under the same name, in another file."""
    twin = path.with_name("twin.db")
    twin.write_bytes(path.read_bytes())
    twin.rename(path)


WAYS: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "moved": lambda path: path.rename(path.with_name("moved.db")),
    "replaced": other_file,
    "copied over": copy,
    "log deleted": lambda path: Path(f"{path}-wal").unlink(),
    "log replaced": lambda path: (Path(f"{path}-wal").unlink(), Path(f"{path}-wal").touch()),
    "index deleted": lambda path: Path(f"{path}-shm").unlink(),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_acknowledged_after_a_file_is_removed(path: Path, way: str) -> None:
    engine = Engine.open(made(path), seed=2)
    receipt = engine.decide("home", "v")
    assert engine.health()["ready"]
    WAYS[way](path)
    assert not engine.health(probe=False)["ready"]
    for _ in range(2):
        with pytest.raises(Unavailable, match="while it was in use"):
            engine.reward(receipt.id, 0.5)
        with pytest.raises(Unavailable, match="while it was in use"):
            engine.pause("home")
        with pytest.raises(Unavailable, match="while it was in use"):
            engine.verify()
        health = engine.health()
        assert not health["ready"]
        assert str(path) in health["reason"]
    engine.close()


def test_the_first_request_after_a_deletion_is_refused(path: Path) -> None:
    """Before anybody has asked how it is."""
    engine = Engine.open(made(path))
    path.unlink()
    with pytest.raises(Unavailable, match="deleted or moved"):
        engine.decide("home", "v")
    engine.close()


def test_a_file_that_is_put_back_is_used_again(path: Path) -> None:
    with Engine.open(made(path), seed=2) as engine:
        path.rename(path.with_name("moved.db"))
        with pytest.raises(Unavailable):
            engine.decide("home", "v", id="second")
        path.with_name("moved.db").rename(path)
        assert engine.health()["ready"]
        assert engine.reward("first", 0.5) == Outcome("applied")
        assert engine.decide("home", "v", id="second") == engine.decide("home", "v", id="second")
        engine.verify()


def test_a_link_that_leads_elsewhere_counts_as_replaced(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "current.db"
    link.symlink_to(made(path))
    with Engine.open(link) as engine:
        assert engine.health()["ready"]
        link.unlink()
        link.symlink_to(made(tmp_path / "next.db"))
        with pytest.raises(Unavailable, match="replaced"):
            engine.decide("home", "v")


@pytest.mark.compiled
def test_the_service_recovers_when_the_file_is_back(path: Path) -> None:
    with running(made(path)) as shop:
        assert shop.post("/home/decisions", {"context": "v"}).status_code == 200
        path.rename(path.with_name("moved.db"))
        for _ in range(3):
            assert shop.post("/home/decisions", {"context": "v"}).status_code == 503
            answer = shop.http.get("/ready")
            assert answer.status_code == 503
            assert "deleted or moved" in answer.json()["reason"]
            assert "alphafair_ready 0.0" in shop.http.get("/metrics").text
        path.with_name("moved.db").rename(path)
        wait_until_ready(shop.http)
        assert shop.post("/home/decisions", {"context": "v"}).status_code == 200
        shop.engine.verify()


@pytest.mark.parametrize("kind", ["symbolic link", "chain of links", "linked folder", "relative path"])
def test_a_file_has_one_writer_under_any_name(
    path: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(path)
    link = tmp_path / "link.db"
    if kind == "linked folder":
        (tmp_path / "folder").symlink_to(tmp_path)
        name = tmp_path / "folder" / "shop.db"
    elif kind == "relative path":
        monkeypatch.chdir(tmp_path)
        name = Path("shop.db")
    else:
        link.symlink_to(path)
        name = link
        if kind == "chain of links":
            name = tmp_path / "second.db"
            name.symlink_to(link)
    for first, second in ((path, name), (name, path)):
        with Engine.open(first), pytest.raises(Unavailable, match=f"has a writer already: process {os.getpid()}"):
            Engine.open(second)
    with Engine.open(name) as engine:
        assert engine.experiments() == ["home"]


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "shop.db")
    with Engine.open(link) as engine:
        engine.create("home", arms=ARMS)
        with pytest.raises(Unavailable, match="has a writer already"):
            Engine.open(tmp_path / "shop.db")
    with Engine.open(tmp_path / "shop.db") as engine:
        assert engine.experiments() == ["home"]


def test_a_second_hard_link_is_refused_for_writing(path: Path, tmp_path: Path) -> None:
    """SQLite would keep a write-ahead log for each name, and neither would know of the other."""
    with Engine.open(made(path)) as engine:
        os.link(path, tmp_path / "other.db")
        with pytest.raises(InvalidArgument, match="one hard link"):
            Engine.open(tmp_path / "other.db")
        assert engine.decide("home", "v", id="second")
    with pytest.raises(InvalidArgument, match="one hard link"):
        Engine.open(path)
    (tmp_path / "other.db").unlink()
    with Engine.open(path) as engine:
        engine.verify()


def test_an_empty_file_counts_as_missing(path: Path) -> None:
    path.touch()
    with pytest.raises(InvalidArgument, match="not an empty one"):
        Engine.open(path, create=False)
    with pytest.raises(InvalidArgument, match="not an empty one"):
        Engine.open(path, read_only=True)
    with Engine.open(path) as engine:
        assert engine.writers.store.opened.was_empty
    with Engine.open(path, create=False) as engine:
        assert not engine.writers.store.opened.was_empty
    with pytest.raises(InvalidArgument, match="an existing file"):
        Engine.open(path.with_name("shpo.db"), create=False)
    assert not path.with_name("shpo.db").exists()


@pytest.mark.parametrize("left", ["missing", "empty"])
def test_a_write_ahead_log_without_its_file_is_kept(path: Path, left: str) -> None:
    """SQLite would delete it without a word."""
    engine = Engine.open(path)
    engine.create("home", arms=ARMS)
    log, whole = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    engine.close()
    path.unlink()
    if left == "empty":
        path.touch()
    Path(f"{path}-wal").write_bytes(log)
    for options in ({}, {"create": False}, {"read_only": True}):
        with pytest.raises(InvalidArgument, match=r"shop\.db-wal|an existing file|not an empty one"):
            Engine.open(path, **options)  # type: ignore[arg-type]
    assert Path(f"{path}-wal").read_bytes() == log
    path.write_bytes(whole)
    with Engine.open(path) as engine:
        assert engine.experiments() == ["home"]


def test_a_removed_lock_does_not_mix_two_histories(path: Path) -> None:
    """Two writers at once are refused by the position that each expects; a client sees 503, not 500."""
    first = Engine.open(made(path), seed=1)
    Path(f"{path}.lock").unlink()
    second = Engine.open(path, seed=2)
    assert second.decide("home", "w").arm in ARMS
    with pytest.raises(Mismatch) as caught:
        first.decide("home", "v")
    assert as_failure(caught.value).status == 503
    assert first.decide("home", "v").arm in ARMS  # it has read what the other wrote
    second._store.close()
    first.verify()
    first.close()


# the program


@pytest.mark.compiled
def test_a_new_file_is_logged_and_can_be_refused(path: Path) -> None:
    typo, link = path.with_name("shpo.db"), path.with_name("link.db")
    assert "an existing file" in refused("--db", str(typo), "--must-exist")
    assert not typo.exists()
    link.symlink_to(typo)
    with serving(typo) as (process, _):
        assert f"{link} has a writer already" in refused("--db", str(link), "--must-exist")
        assert process.end() == 0
    entry = next(json.loads(line) for line in process.lines if '"experiments"' in line)
    assert (entry["level"], entry["path"], entry["experiments"]) == ("warning", str(typo), 0)
    assert "--must-exist" in entry["message"]


def test_the_file_that_is_served_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with Engine.open(made(path)) as engine:
        log_store(engine, path)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.fields == {"path": str(path), "experiments": 1, "events": 2}  # type: ignore[attr-defined]


@pytest.mark.compiled
def test_the_clock_lag_is_shown_to_keys_only(path: Path) -> None:
    made(path)
    with Engine.open(path) as engine:
        later = int((time.time() + 7200) * 1e6)
        for table in ("decision", "experiment"):
            rows_of(engine, f"update {table} set at = ?", (later,))
    key = keys.create(path, "read", "you")
    with running(path) as shop:
        assert shop.http.get("/ready").json() == {"ready": True}
        shop.http.headers["authorization"] = f"Bearer {key}"
        assert shop.http.get("/ready").json()["clock_behind_seconds"] == pytest.approx(7200, abs=120)
        numbers = dict(line.rsplit(" ", 1) for line in shop.http.get("/metrics").text.splitlines())
        assert float(numbers["alphafair_clock_behind_seconds"]) == pytest.approx(7200, abs=120)


def test_a_reader_follows_a_writer_without_loading_the_file_again(path: Path) -> None:
    """New experiments, contexts with the same numbers, and erasures of one of them only."""
    with Engine.open(path, seed=1) as engine, Engine.open(path, read_only=True) as reader:
        assert reader.experiments() == []
        with mock.patch.object(Writer, "load", side_effect=AssertionError("loaded again")):
            for name in ("home", "other"):
                engine.create(name, arms=ARMS, contexts=["known"], reward_wait=60.0)
                for k in range(3):
                    engine.reward(engine.decide(name, f"visitor-{k}").id, 0.5)
                assert reader.experiment(name) == engine.experiment(name)
            engine.erase("home", "visitor-1")
            engine.decide("other", "visitor-1")
            engine.decide("home", "visitor-1")
            for name in ("home", "other"):
                assert reader.experiment(name) == engine.experiment(name)
            assert reader.experiment("home").contexts == 5
            assert reader.experiment("other").contexts == 4
            assert reader.verify() == engine.verify()
