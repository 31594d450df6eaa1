"""Waiting times that end: who is overdue, in what order they are settled, and how little is read to find them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from alphafair import Engine
from alphafair.engine import Activate, Decide, Outcome, Receipt, Reward, Unavailable
from alphafair.engine.store.ledger import Settled
from alphafair.engine.store.sqlite import SqliteStore
from tests.serving import running
from tests.stores import both_stores, open_store, rows_of, sqlite_only

pytestmark = both_stores

ARMS = ("ada", "ben")
SECOND = 10**9
Book = dict[str, dict[str, Any]]  # by id: the experiment, since when it waits, whether it counts, what became of it


class Recording(SqliteStore):
    """Remembers how many decisions each transaction has settled."""

    settled: list[int]

    def commit(self, parts: Any, statements: Any = ()) -> None:
        if not hasattr(self, "settled"):
            self.settled = []
        super().commit(parts, statements)
        self.settled.append(sum(len(part.rows[Settled]) for part in parts))


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    with Engine(Recording(tmp_path / "shop.db"), seed=1, clock=clock) as engine:
        yield engine


def sources(engine: Engine) -> dict[str, str]:
    """How every decision was settled, by its id."""
    return dict(rows_of(engine, "select d.id, r.source from reward r join decision d on d.event = r.decision"))


def test_a_request_settles_a_page_and_is_answered(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=ARMS, reward_wait=60, default_reward=0.0)
    engine.create("other", arms=ARMS)
    with mock.patch("alphafair.engine.decisions.PAGE", 10):
        engine.submit([Decide("home", "v", f"{k}") for k in range(95)])
        clock.now += 61 * SECOND
        engine._store.settled.clear()
        assert isinstance(engine.decide("other", "w"), Receipt)
        assert 1 <= engine._store.settled[-1] <= 10
        assert len(sources(engine)) == engine._store.settled[-1]
        n_left = 95 - len(sources(engine))
        assert engine.experiment("home").pending == n_left
        assert engine.expire() == n_left
        assert max(engine._store.settled) <= 10
        assert engine.expire() == 0
    status = engine.experiment("home")
    assert (status.pending, status.defaulted) == (0, 95)
    assert list(sources(engine)) == [f"{k}" for k in range(95)]  # in the order in which they were made
    engine.verify()


def test_overdue_decisions_are_expired_before_they_are_settled(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=ARMS, reward_wait=60)
    with mock.patch("alphafair.engine.decisions.PAGE", 1):
        engine.submit([Decide("home", "v", f"{k}", None, k % 2 == 1) for k in range(20)])
        clock.now += 60 * SECOND
        answers = engine.submit([Reward("18", 0.5), Activate("19"), Reward("16", 0.25), Reward("16", 0.25)])
        assert answers == [Outcome("expired")] * 4
        assert sources(engine) == {"0": "expired", "18": "expired", "19": "lapsed", "16": "expired"}
        assert len(rows_of(engine, "select * from late_reward")) == 2
        assert engine.decide("home", "v", "18") == engine.decide("home", "v", "18")
        engine.expire()
    assert engine.experiment("home").pending == 0
    engine.verify()


def test_a_waiting_decision_does_not_delay_other_experiments(engine: Engine, clock: Clock) -> None:
    engine.create("slow", arms=ARMS, reward_wait=1_000)
    engine.create("quick", arms=ARMS, reward_wait=10)
    engine.decide("slow", "v", "s")
    engine.decide("quick", "v", "q")
    clock.now += 11 * SECOND
    assert engine.expire() == 1
    assert sources(engine) == {"q": "expired"}
    clock.now += 989 * SECOND
    assert engine.expire() == 1
    assert sources(engine) == {"q": "expired", "s": "expired"}


@pytest.mark.parametrize("seed", range(6))
def test_expiry_agrees_with_a_full_scan(tmp_path: Path, clock: Clock, seed: int) -> None:
    """Random requests, pages of three and stretches of seven: after each step the same decisions are settled."""
    rng = random.Random(seed)
    waits = {"a": 10, "b": 10, "c": 25, "d": None}
    engine = Engine(open_store(tmp_path / "shop.db"), seed=seed, clock=clock)
    for name, wait in waits.items():
        engine.create(name, arms=ARMS, reward_wait=wait, default_reward=0.5 if name == "b" else None)
    book: Book = {}
    patches = (mock.patch("alphafair.engine.decisions.PAGE", 3), mock.patch("alphafair.engine.maintenance.STRETCH", 7))
    with patches[0], patches[1]:
        for step in range(120):
            clock.now += rng.choice((0, 1, 1, 2, 9, 30)) * SECOND
            play(engine, book, rng, step, clock.now)
            if rng.random() < 0.2:
                engine.expire()
                settle(book, waits, clock.now)
                assert sources(engine) == {id: entry["source"] for id, entry in book.items() if entry["source"]}
            if rng.random() < 0.1:  # a crash, or a stop
                if rng.random() < 0.5:
                    engine._store.close()
                else:
                    engine.close()
                engine = Engine(open_store(tmp_path / "shop.db"), seed=step, clock=clock)
        clock.now += 100 * SECOND
        engine.expire()
    settle(book, waits, clock.now)
    assert sources(engine) == {id: entry["source"] for id, entry in book.items() if entry["source"]}
    assert {id for id, entry in book.items() if not entry["source"]} == {
        id for id, entry in book.items() if entry["experiment"] == "d" and not entry["rewarded"]
    }
    engine.verify()
    engine.close()


def play(engine: Engine, book: Book, rng: random.Random, step: int, now: int) -> None:
    """Some decisions, and rewards or activations of some that are known."""
    made = [(f"{step}-{k}", rng.choice("abcd"), rng.random() < 0.3) for k in range(rng.randrange(4))]
    engine.submit([Decide(name, "v", id, None, deferred) for id, name, deferred in made])
    for id, name, deferred in made:
        book[id] = {"experiment": name, "since": now, "active": not deferred, "source": None, "rewarded": False}
    for id in rng.sample(sorted(book), min(len(book), 3)):
        entry = book[id]
        if entry["active"]:
            if engine.reward(id, 0.25).outcome == "applied":
                entry["source"], entry["rewarded"] = "client", True
        elif engine.activate(id).outcome == "activated":
            entry["since"], entry["active"] = now, True


def settle(book: Book, waits: dict[str, int | None], now: int) -> None:
    """Look at every decision."""
    for entry in book.values():
        wait = waits[entry["experiment"]]
        if entry["source"] is None and wait is not None and entry["since"] + wait * SECOND <= now:
            expired = "default" if entry["experiment"] == "b" else "expired"
            entry["source"] = expired if entry["active"] else "lapsed"


def steps_of(engine: Engine, requests: list[Decide]) -> int:
    """How much SQLite had to do for them, in hundreds of its instructions."""
    n_steps = 0

    def count() -> int:
        nonlocal n_steps
        n_steps += 1
        return 0

    connection: sqlite3.Connection = engine._store.connection
    connection.set_progress_handler(count, 100)
    engine.submit(requests)
    connection.set_progress_handler(None, 100)
    return n_steps


@sqlite_only("counts instructions of SQLite")
@pytest.mark.parametrize("kind", ["waiting", "activated", "rewarded", "of another experiment"])
def test_waiting_decisions_are_not_read_with_every_request(tmp_path: Path, clock: Clock, kind: str) -> None:
    """One decision becomes overdue with each request: the work is that of these, however many others there are."""
    with mock.patch("alphafair.engine.maintenance.STRETCH", 100):
        few, many = (work_with(tmp_path / f"{n}.db", clock, kind, n) for n in (100, 20_000))
    assert max(many) <= max(few) + 20, (few, many)


def work_with(path: Path, clock: Clock, kind: str, n_more: int) -> list[int]:
    """How much a request takes while decisions made a second apart become overdue, beside so many others."""
    with Engine(open_store(path), seed=1, clock=clock) as engine:
        engine.create("home", arms=ARMS, reward_wait=1_000)
        engine.create("other", arms=ARMS)
        name = "other" if kind == "of another experiment" else "home"
        others = [Decide(name, "v", f"{k}", None, kind == "activated") for k in range(n_more)]
        start = clock.now
        if kind == "activated":
            engine.submit(others)
        for k in range(6):
            clock.now += SECOND
            engine.decide("home", "v", f"early-{k}")
        if kind == "activated":
            clock.now = start + 990 * SECOND
            engine.submit([Activate(request.id or "") for request in others])
        else:
            engine.submit(others)
        if kind == "rewarded":
            engine.submit([Reward(request.id or "", 0.5) for request in others])
        clock.now = start + 1_000 * SECOND
        engine.expire()
        found = []
        for k in range(5):
            clock.now += SECOND
            found.append(steps_of(engine, [Decide("other", "w")]))
            assert sources(engine)[f"early-{k}"] == "expired"
        return found


def test_overdue_decisions_are_settled_after_a_failed_commit(engine: Engine, clock: Clock) -> None:
    engine.create("home", arms=ARMS, reward_wait=60)
    engine.submit([Decide("home", "v", f"{k}") for k in range(20)])
    clock.now += 61 * SECOND
    with (
        mock.patch.object(SqliteStore, "_commit", side_effect=Unavailable("the disk is full")),
        pytest.raises(Unavailable),
    ):
        engine.expire()
    assert sources(engine) == {}
    assert engine.expire() == 20
    engine.verify()


@pytest.mark.compiled
def test_the_service_settles_in_pages_beside_requests(tmp_path: Path, clock: Clock) -> None:
    engine = Engine(Recording(tmp_path / "shop.db"), seed=1, clock=clock)
    engine.create("home", arms=ARMS, reward_wait=60)
    engine.submit([Decide("home", "v", f"{k}") for k in range(200)])
    clock.now += 61 * SECOND
    with (
        mock.patch("alphafair.engine.decisions.PAGE", 10),
        mock.patch("alphafair.service.service.MAINTENANCE_PAUSE", 0.0),
        running(tmp_path / "shop.db", engine=engine) as shop,
    ):
        while engine.experiment("home").pending:
            assert shop.post("/home/decisions/batch", {"items": []}).status_code in (200, 422)
        assert max(engine._store.settled) <= 10
        engine.verify()
