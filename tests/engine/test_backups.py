"""Backups and restored files: whole under their own name, with all that belongs to them, or not there at all."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alphafair import Engine
from alphafair.cli import app
from alphafair.engine import Mismatch, Unavailable, restore
from alphafair.engine.backup import copy_database
from alphafair.errors import InvalidArgument
from tests import ROOT
from tests.older import take_back
from tests.stores import HAVE_CODE

ARMS = ("ada", "ben")


def filled(path: Path, n: int = 20) -> Path:
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS)
        for k in range(n):
            engine.reward(engine.decide("home", f"visitor {k} " + "x" * 100, f"{k}").id, 0.5)
    return path


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with Engine.open(filled(tmp_path / "sunday.db"), read_only=True) as engine:
        assert engine.backup(tmp_path / "monday.db") == 41
    return tmp_path / "monday.db"


def left(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def sound(path: Path, n_events: int = 41) -> None:
    """Whatever SQLite finds under this name, it is what was backed up."""
    hand = sqlite3.connect(path)
    assert hand.execute("pragma integrity_check").fetchall() == [("ok",)]
    hand.close()
    with Engine.open(path) as engine:
        assert engine.verify() == n_events
        assert engine.decide("home", "visitor 0 " + "x" * 100, "0").id == "0"


# all files of a database


def crashed(folder: Path) -> Path:
    """A file whose last events are in its write-ahead log alone, as a process leaves it that was killed."""
    path = folder / "live.db"
    engine = Engine.open(path, seed=5)
    engine.create("other", arms=ARMS)
    for k in range(50):
        engine.decide("other", f"somebody {k}")
    (folder / "dead").mkdir()
    for ending in ("", "-wal", "-shm", ".lock"):
        shutil.copy(f"{path}{ending}", folder / "dead" / f"shop.db{ending}")
    engine.close()
    return folder / "dead" / "shop.db"


@pytest.mark.parametrize("endings", [("-wal",), ("-shm",), ("-journal",), ("-wal", "-shm")])
@pytest.mark.parametrize("verb", ["restore", "backup"])
def test_nothing_is_written_beside_what_another_file_has_left(
    tmp_path: Path, backup: Path, endings: tuple[str, ...], verb: str
) -> None:
    dead = crashed(tmp_path)
    (dead.parent / "shop.db-journal").write_bytes(b"what was there before")
    for ending in {"", "-wal", "-shm", "-journal"} - {*endings}:
        Path(f"{dead}{ending}").unlink()
    before = left(dead.parent)
    with pytest.raises(InvalidArgument) as refusal:
        (restore if verb == "restore" else copy_database)(backup, dead)
    assert f"shop.db{endings[0]}" in str(refusal.value)
    assert "Move" in refusal.value.repair
    assert left(dead.parent) == before
    for ending in endings:
        Path(f"{dead}{ending}").unlink()
    assert restore(backup, dead) == 41
    sound(dead)


def test_the_command_refuses_leftover_files(tmp_path: Path, backup: Path) -> None:
    dead = crashed(tmp_path)
    dead.unlink()
    result = CliRunner().invoke(app, ["restore", str(backup), str(dead)])
    assert result.exit_code == 2
    assert "verified" not in result.output
    assert "shop.db-wal" in result.output
    assert not dead.exists()


def test_leftover_files_beside_a_backup_are_refused(tmp_path: Path, backup: Path) -> None:
    dead = crashed(tmp_path)
    shutil.copy(f"{dead}-wal", f"{backup}-wal")
    target = tmp_path / "new.db"
    try:
        n_events = restore(backup, target)
    except (Mismatch, Unavailable, InvalidArgument):
        assert not [name for name in left(tmp_path) if name.startswith("new.db")]
    else:  # whatever SQLite made of it, it is sound
        with Engine.open(target) as engine:
            assert engine.verify() == n_events


def test_restore_refuses_the_file_of_a_running_service(tmp_path: Path, backup: Path) -> None:
    path = filled(tmp_path / "shop.db", 1)
    with Engine.open(path) as engine:
        with pytest.raises(InvalidArgument, match="a new file"):
            restore(backup, path)
        engine.decide("home", "v")
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").rename(tmp_path / f"away.db{ending}")
        with pytest.raises(Unavailable, match=f"process {os.getpid()}"):
            restore(backup, path)
        with pytest.raises(Unavailable, match="has a writer"):
            copy_database(backup, path)
        assert not path.exists()
    assert restore(backup, path) == 41
    sound(path)


def test_a_dangling_link_is_refused(tmp_path: Path, backup: Path) -> None:
    (tmp_path / "new.db").symlink_to(tmp_path / "nowhere.db")
    with pytest.raises(InvalidArgument, match="a new file"):
        restore(backup, tmp_path / "new.db")
    assert "nowhere.db" not in left(tmp_path)


# what a backup contains


def test_a_backup_reports_the_events_that_it_contains(tmp_path: Path) -> None:
    path = filled(tmp_path / "shop.db")
    with Engine.open(path, read_only=True) as reader, Engine.open(path) as engine:
        engine.decide("home", "v")
        assert reader.position == 41  # it has not looked since
        assert reader.backup(tmp_path / "copy.db") == 42
        assert engine.backup(tmp_path / "again.db") == 42
    sound(tmp_path / "copy.db", 42)


def test_a_backup_made_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More events come between the copy and its report: it reports its own."""
    path = filled(tmp_path / "shop.db")
    with Engine.open(path) as engine:
        link = os.link

        def write_and_link(*arguments: Any, **options: Any) -> None:
            engine.decide("home", "late")
            link(*arguments, **options)

        monkeypatch.setattr(os, "link", write_and_link)
        assert engine.backup(tmp_path / "copy.db") == 41
        assert engine.position == 42
    sound(tmp_path / "copy.db")


def test_a_backup_does_not_replay_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "shop.db")
    monkeypatch.setattr("alphafair.engine.state.replay.Replay.run", None)
    result = CliRunner().invoke(app, ["backup", str(path), str(tmp_path / "copy.db")])
    assert (result.exit_code, result.output) == (0, f"{tmp_path / 'copy.db'}: 41 events\n")


@pytest.mark.parametrize("what", ["kernels", "schema"])
def test_a_backup_of_an_older_version_is_restored(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The copy is brought up to date; the backup stays as it is."""
    if what == "kernels":
        for module in HAVE_CODE:
            monkeypatch.setattr(f"alphafair.engine.{module}.CODE", "other kernels")
    else:
        hand = sqlite3.connect(backup)
        take_back(hand, 2)
        hand.commit()
        hand.close()
    before = backup.read_bytes()
    n_events = restore(backup, tmp_path / "new.db")
    assert n_events == (42 if what == "kernels" else 41)
    assert backup.read_bytes() == before
    sound(tmp_path / "new.db", n_events)


# one that fails leaves nothing


def copying(backup: Path, target: Path) -> list[Callable[[], object]]:
    def engine_backup() -> None:
        with Engine.open(backup, read_only=True) as engine:
            engine.backup(target)

    return [lambda: restore(backup, target), engine_backup]


@pytest.mark.parametrize("verb", [0, 1], ids=["restore", "backup"])
@pytest.mark.parametrize("function", ["fsync", "link"])
@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_copy_leaves_nothing(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, verb: int, function: str, problem: BaseException
) -> None:
    before = left(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(os, function, fail)
    kind = Unavailable if isinstance(problem, OSError) else KeyboardInterrupt
    with pytest.raises(kind):
        copying(backup, tmp_path / "new.db")[verb]()
    assert left(tmp_path) == before


@pytest.mark.parametrize("problem", [errno.EPERM, errno.EOPNOTSUPP])
def test_file_systems_without_links(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, problem: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(problem, "not here")

    monkeypatch.setattr(os, "link", fail)
    assert restore(backup, tmp_path / "new.db") == 41
    sound(tmp_path / "new.db")
    assert not list(tmp_path.glob("*.part*"))


def test_a_disk_that_is_full_in_the_middle(tmp_path: Path) -> None:
    path = filled(tmp_path / "monday.db", 300)
    assert path.stat().st_size > 80_000
    folder = tmp_path / "full"
    folder.mkdir()
    script = f"from tests.engine.test_backups import copy_within; copy_within({str(path)!r}, {str(folder)!r})"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert len(lines) == 8, done.stderr
    assert all(line.startswith("[] Unavailable") for line in lines), lines
    assert restore(path, folder / "new.db") == 601
    sound(folder / "new.db", 601)


def copy_within(path: str, folder: str) -> None:
    """In a process whose files may not grow beyond a size, which is raised step by step; prints what was left."""
    for size in (0, 5_000, 20_000, 60_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        for work in copying(Path(path), Path(folder, "new.db")):
            try:
                work()
            except Unavailable as problem:
                print(sorted(left(Path(folder))), "Unavailable", problem)


def test_a_damaged_backup_is_not_restored(tmp_path: Path, backup: Path) -> None:
    content = bytearray(backup.read_bytes())
    before = left(tmp_path)
    page = 4096 * 3
    content[page : page + 4096] = bytes(4096)
    backup.write_bytes(content)
    with pytest.raises((Mismatch, Unavailable)):
        restore(backup, tmp_path / "new.db")
    backup.write_bytes(content[: len(content) // 2])
    with pytest.raises((Mismatch, Unavailable)):
        restore(backup, tmp_path / "new.db")
    backup.write_bytes(b"not a database at all" * 100)
    with pytest.raises((InvalidArgument, Unavailable)):
        restore(backup, tmp_path / "new.db")
    assert left(tmp_path) == before
    with pytest.raises(InvalidArgument, match="an existing file"):
        restore(tmp_path / "nowhere.db", tmp_path / "new.db")


def test_a_forged_backup_is_not_restored(tmp_path: Path, backup: Path) -> None:
    hand = sqlite3.connect(backup)
    hand.execute("update reward set reward = 0.75 where position = 5")
    hand.commit()
    hand.close()
    before = left(tmp_path)
    with pytest.raises(Mismatch):
        restore(backup, tmp_path / "new.db")
    assert left(tmp_path) == before


def test_leftovers_of_a_killed_copy_are_removed(tmp_path: Path, backup: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm", ".lock"):
        (tmp_path / f"new.db.part{ending}").write_bytes(b"half of something" * 1000)
    assert restore(backup, tmp_path / "new.db") == 41
    assert not list(tmp_path.glob("*.part*"))
    sound(tmp_path / "new.db")


def test_a_renamed_leftover_of_a_killed_copy_is_kept(tmp_path: Path, backup: Path) -> None:
    """It was killed between the two: the operator's file is another name of what is swept away."""
    restore(backup, tmp_path / "new.db")
    os.link(tmp_path / "new.db", tmp_path / "new.db.part")
    (tmp_path / "new.db").rename(tmp_path / "old.db")
    assert restore(backup, tmp_path / "new.db") == 41
    sound(tmp_path / "old.db")
    sound(tmp_path / "new.db")


def test_only_one_of_two_simultaneous_copies_is_made(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, began, go_on = tmp_path / "new.db", threading.Event(), threading.Event()
    fsync = os.fsync

    def slow(handle: int) -> None:
        began.set()
        assert go_on.wait(60)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slow)
    made: list[int] = []
    first = threading.Thread(target=lambda: made.append(copy_database(backup, target)))
    first.start()
    assert began.wait(60)
    with pytest.raises(Unavailable, match="another copy"):
        copy_database(backup, target)
    go_on.set()
    first.join(60)
    assert made == [41]
    assert not list(tmp_path.glob("*.part*"))
    sound(target)


def test_a_file_created_meanwhile_is_not_overwritten(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service starts under the name, and makes its file there, while a copy is on its way to it."""
    target, link = tmp_path / "new.db", os.link

    def late(*arguments: Any, **options: Any) -> None:
        filled(target, 1)
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(InvalidArgument, match="a new file"):
        restore(backup, target)
    assert not list(tmp_path.glob("*.part*"))
    sound(target, 3)
