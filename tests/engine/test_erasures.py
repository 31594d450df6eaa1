"""What was erased leaves no copy in the file, also where somebody reads it, or it is large, or the disk is full."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from alphafair.engine import Engine, RequestError
from alphafair.engine.requests import Decide
from alphafair.engine.store import sqlite
from tests.stores import both_stores, sqlite_only

pytestmark = both_stores

PEOPLE, EACH = 100, 50


def label(who: int) -> str:
    return f"person-{who:03}@example.com"


def ids(who: int) -> list[str]:
    """Names of somebody's decisions, shorter than what takes their place, so that pages overflow and are split."""
    return [f"{random.Random(who * EACH + k).getrandbits(40):010x}" for k in range(EACH)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with decisions of many people in any order: the index of their ids was rearranged often."""
    found = tmp_path / "shop.db"
    decisions = [Decide("home", label(who), id) for who in range(PEOPLE) for id in ids(who)]
    random.Random(0).shuffle(decisions)
    with Engine.open(found, seed=0) as engine:
        engine.create("home", arms=["ada", "ben"], policy="uniform", feedback="bandit")
        for first in range(0, len(decisions), 20):
            engine.submit(decisions[first : first + 20])
    return found


def traces(path: Path, *people: int) -> list[str]:
    """The labels and ids of people that are anywhere in the file or the files beside it."""
    files = [file.read_bytes() for file in path.parent.iterdir() if file.name.startswith(path.name)]
    texts = [text for who in people for text in (label(who), *ids(who))]
    return [text for text in texts if any(text.encode() in file for file in files)]


@sqlite_only("searches the bytes of the file")
def test_no_copy_is_left_in_unused_parts_of_pages(path: Path) -> None:
    with Engine.open(path) as engine:
        for who in range(20):
            assert len(traces(path, who)) == 1 + EACH
            engine.erase("home", label(who))
        assert traces(path, *range(20)) == []
        assert engine.erasures_pending == 0
        engine.verify()


@sqlite_only("rewrites the file")
def test_an_erasure_beside_a_reader_is_done_at_once_and_cleaned_up_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(path) as engine:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("begin")
        reader.execute("select * from context").fetchall()
        engine.erase("home", label(7))
        assert engine.erasures_pending == 1
        with pytest.raises(RequestError, match="context must be a context of "):
            engine.erase("home", label(7))
        engine.maintain()
        assert engine.erasures_pending == 1
        reader.close()
        engine.maintain()
        assert engine.erasures_pending == 1, "it tries again after a pause"
        monkeypatch.setattr(sqlite.time, "monotonic", lambda: 1e12)
        engine.maintain()
        assert engine.erasures_pending == 0
        assert traces(path, 7) == []


@sqlite_only("rewrites the file")
def test_a_large_file_is_rewritten_when_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine.open(path) as engine:
        monkeypatch.setattr(sqlite, "REWRITE_AT_ONCE", 0)
        engine.erase("home", label(3))
        engine.maintain()
        assert engine.erasures_pending == 1
    with Engine.open(path, read_only=True) as reader:
        assert reader.erasures_pending == 1
    with Engine.open(path) as engine:
        assert engine.erasures_pending == 0
        assert traces(path, 3) == []
        engine.verify()


@sqlite_only("rewrites the file")
def test_without_space_for_a_second_copy_the_erasure_stays_pending(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine.open(path) as engine:
        monkeypatch.setattr(engine._store, "_rewrite", lambda: False)
        engine.erase("home", label(5))
        assert engine.erasures_pending == 1
        assert engine.health()["ready"]
        monkeypatch.undo()
        engine.decide("home", label(6))
    with Engine.open(path) as engine:
        assert engine.erasures_pending == 0
