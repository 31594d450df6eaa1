"""Faults at every point where the writer touches the disk: nothing acknowledged is lost, nothing counts twice.

Whoever asks gets an answer or `Unavailable`, and may ask again with the same ids.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest

from alphafair import Engine
from alphafair.engine import (
    Decide,
    Outcome,
    Receipt,
    RequestError,
    Reward,
    SlateReceipt,
    Unavailable,
)
from alphafair.engine.store import connections as postgres_connections
from alphafair.engine.store.sqlite import SqliteStore
from tests import FULL, ROOT
from tests.stores import both_stores, is_postgres, open_store, sqlite_only

pytestmark = both_stores

ARMS = ("ada", "ben")
OURS, THEIRS = "visitor-2", "visitor-1"  # units on either side of a share of a half
MESSAGES = ("disk I/O error", "database or disk is full", "database is locked")


class Lost(psycopg.OperationalError):
    """An error that the server reports, or the end of a connection."""


class Disk:
    """Fails when it is told to: from the `first` touch on, so many times, before or after doing what was asked."""

    def __init__(self, first: int = -1, times: int = 1, *, after: bool = False) -> None:
        self.first, self.times, self.after = first, times, after
        self.touches, self.failures = 0, 0
        self.writes: list[int] = []  # which touches were not mere questions
        self.commits_wait: threading.Event | None = None

    def fails(self) -> bool:
        return self.first <= self.touches < self.first + self.times

    def touch(self, do: Callable[..., Any], statement: str, *values: Any) -> Any:
        statement = statement.replace("synchronous = full", "synchronous = off")
        return self.count(statement, lambda: do(statement, *values), sqlite3.OperationalError)

    def count(self, statement: str, do: Callable[[], Any], error: type[Exception]) -> Any:
        if self.commits_wait is not None and statement.startswith(("commit", "with moved")):
            self.commits_wait.wait()
        self.touches += 1
        if not statement.startswith(("select", "pragma")):
            self.writes.append(self.touches)
        failing = self.fails()
        if failing and not self.after:
            self.fail(error)
        done = do()
        if failing:
            self.fail(error)
        return done

    def fail(self, error: type[Exception]) -> None:
        self.failures += 1
        raise error(MESSAGES[self.first % len(MESSAGES)])

    def open(self, path: Path) -> Any:
        """Open the store of this run on this disk, or on a database behind connections that fail like one."""
        if is_postgres():
            with mock.patch("alphafair.engine.store.postgres.ConnectionPool", self.connections()):
                return open_store(path)
        return SqliteStore(path, connect=self.connect)

    def connections(self) -> Any:
        """A class of connections to PostgreSQL; a failure after the work is done is a connection that is lost."""
        disk = self

        class Connection(psycopg.Connection[Any]):
            statement = ""

            def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
                self.statement = str(query)
                return super().execute(query, *arguments, **options)

            def wait(self, *what: Any, **options: Any) -> Any:
                """Every exchange with the server: a statement, or the begin or commit of a transaction."""
                if self._pipeline is not None:  # the commit that follows is counted
                    return super().wait(*what, **options)
                statement, self.statement = self.statement or "commit", ""
                try:
                    return disk.count(statement, lambda: super(Connection, self).wait(*what, **options), Lost)
                except Lost:
                    if disk.after or disk.first % 2 or statement == "commit":  # otherwise the server reports it
                        self.close()
                    raise

        class Opened(postgres_connections.ConnectionPool):
            def new(self) -> Any:
                connection = super().new()
                connection.__class__ = Connection
                return connection

        return Opened

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, *what: Any) -> sqlite3.Cursor:
                return disk.touch(super().execute, *what)  # type: ignore[no-any-return]

            def executemany(self, *what: Any) -> sqlite3.Cursor:
                return disk.touch(super().executemany, *what)  # type: ignore[no-any-return]

        connection = sqlite3.connect(*arguments, factory=Connection, **options)
        sqlite3.Connection.execute(connection, "pragma synchronous = off")  # these are not real crashes
        return connection


class Session:
    """A client that asks again until it is answered, and remembers what it was told."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path, self.disk = path, disk
        self.now = 1_800_000_000.0
        self.receipts: dict[str, Receipt] = {}
        self.refusals: list[str] = []
        self.rewarded: dict[str, float] = {}
        self.slates: dict[str, SlateReceipt] = {}
        self.paid: dict[str, dict[str, float]] = {}  # rewards of slates, by arm
        self.engine: Engine = self.insist(self.opened)

    def opened(self) -> Engine:
        return Engine(self.disk.open(self.path), seed=1, clock=lambda: int(self.now * 1e9))

    def insist(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer; a change that was made although it was said to have failed is refused then."""
        for attempt in range(10):
            try:
                return ask()
            except Unavailable:
                continue
            except RequestError as refused:
                if attempt and refused.code in ("experiment_exists", "arm_exists", "unknown_context"):
                    return None
                raise
        raise AssertionError("never answered")

    def reopen(self) -> None:
        with contextlib.suppress(Unavailable):
            self.engine.close()
        self.engine = self.insist(self.opened)

    def decide(self, name: str, id: str, **told: Any) -> None:
        receipt = self.insist(lambda: self.engine.decide(name, f"v{len(id) % 3}", id, **told))
        assert self.receipts.setdefault(id, receipt) == receipt

    def reward(self, id: str, value: float) -> None:
        assert self.insist(lambda: self.engine.reward(id, value)).outcome in ("applied", "repeated")
        self.rewarded[id] = value

    def see(self) -> None:
        """A decision of somebody else, with its reward."""
        seen = self.insist(lambda: self.engine.observe("home", "v1", "ben", 0.5, "seen", propensity=0.5))
        assert seen.outcome in ("recorded", "repeated")

    def show(self, id: str) -> None:
        slate = self.insist(lambda: self.engine.decide("row", f"v{len(id) % 2}", id, k=2))
        assert self.slates.setdefault(id, slate) == slate
        assert len(slate.arms) == 2

    def pay(self, id: str, *rewards: float | None) -> None:
        """By slot; None for an arm whose reward has not come yet."""
        arms = self.slates[id].arms
        given = {arm: each for arm, each in zip(arms, rewards, strict=True) if each is not None}
        assert self.insist(lambda: self.engine.reward(id, given)).outcome in ("applied", "repeated")
        self.paid[id] = {**self.paid.get(id, {}), **given}

    def submit(self, ids: list[str]) -> None:
        requests = [*(Decide("home", f"w{k}", id) for k, id in enumerate(ids)), *(Reward(id, 0.25) for id in ids)]
        answers = self.insist(lambda: self.engine.submit(requests))
        for id, receipt, outcome in zip(ids, answers, answers[len(ids) :], strict=False):
            assert self.receipts.setdefault(id, receipt) == receipt
            assert outcome.outcome in ("applied", "repeated")
            self.rewarded[id] = 0.25

    def play(self) -> None:
        """All that an engine can be asked, with snapshots and a restart on the way."""
        insist = self.insist
        insist(lambda: self.engine.create("home", arms=ARMS, reward_wait=60, default_reward=0.5))
        insist(lambda: self.engine.create("other", arms=ARMS, policy="alpha-fair"))
        for id in ("a", "bb"):
            self.decide("home", id)
        self.reward("a", 0.75)
        self.decide("home", "ccc", deferred=True)
        assert insist(lambda: self.engine.activate("ccc")).outcome in ("activated", "repeated")
        self.submit(["d", "ee", "fff"])
        self.decide("other", "x")
        insist(lambda: self.engine.reward("x", [0.5, 0.5]))
        insist(lambda: self.engine.create("row", arms=(*ARMS, "cyd"), reward_wait=60, default_reward=0.5))
        for id in ("s", "ss", "sss"):
            self.show(id)
        self.pay("s", 1.0, 0.25)
        self.pay("ss", None, 0.75)
        position = insist(lambda: self.engine.experiment("other").position)
        self.decide("other", "y")
        insist(lambda: self.engine.rollback("other", position))
        insist(lambda: self.engine.add_arm("other", "cyd"))
        insist(lambda: self.engine.retire_arm("other", "ada"))
        insist(lambda: self.engine.mask_arm("other", "ben"))
        self.reopen()
        insist(lambda: self.engine.set_alpha("other", 0.5))
        self.reward("ccc", 0.125)
        self.pay("ss", 0.5, 0.75)
        insist(lambda: self.engine.erase("other", "v1"))
        self.now += 61
        insist(self.engine.expire)
        self.decide("home", "bb")
        assert insist(lambda: self.engine.reward("bb", 0.25)).outcome == "expired"
        self.decide("home", "gggg")
        self.reward("gggg", 1.0)
        self.see()
        insist(lambda: self.engine.set_terms("home", mode="share", share=0.5, reward_wait=120))
        for id, unit in (("ours", OURS), ("theirs", THEIRS)):
            self.decide("home", id, incumbent="ada", unit=unit)
            self.reward(id, 0.5)

    def check(self) -> None:
        """Everything counts once, in the engine that went through it and in one that reads the file anew."""
        earned = dict.fromkeys(ARMS, 0.0)
        for id, value in {**self.rewarded, "bb": 0.5}.items():
            earned[self.receipts[id].arm] += value if id != "theirs" else 0.0
        for _ in range(2):
            home, other = self.engine.experiment("home"), self.engine.experiment("other")
            assert (home.decisions, home.rewards, home.defaulted, home.pending) == (8, 7, 1, 0)
            assert (home.mode, home.share, home.reward_wait) == ("share", 0.5, 120.0)
            assert [(side.source, side.rewarded) for side in home.sides] == [("policy", 1), ("incumbent", 1)]
            self.see()
            assert home.cumulative_rewards == earned
            assert (other.decisions, other.rewards, other.pending) == (2, 1, 0)
            assert (other.arms, other.masked_arms, other.alpha) == (("ben", "cyd"), ("ben",), 0.5)
            assert sum(list(other.cumulative_rewards.values())[:2]) == 0.5
            for id, receipt in self.receipts.items():
                if receipt.context.startswith("w") or id in ("a", "bb", "ccc", "gggg"):
                    assert self.engine.decide("home", receipt.context, id) == receipt
            for id, value in self.rewarded.items():
                assert self.engine.reward(id, value) == Outcome("repeated")
            row = self.engine.experiment("row")
            assert (row.decisions, row.rewards, row.defaulted, row.pending) == (3, 2, 1, 0)
            paid = [*self.paid.values(), dict.fromkeys(self.slates["sss"].arms, 0.5)]
            for arm, amount in row.cumulative_rewards.items():
                assert amount == sum(each.get(arm, 0.0) for each in paid)
            for id, slate in self.slates.items():
                assert self.engine.decide("row", slate.context, id, k=2) == slate
            for id, given in self.paid.items():
                assert self.engine.reward(id, given) == Outcome("repeated")
            assert self.engine.health()["ready"]
            self.reopen()
        self.engine.verify()
        self.engine.close()


@pytest.fixture(autouse=True)
def _small_snapshots() -> Iterator[None]:
    with (
        mock.patch("alphafair.engine.writer.SNAPSHOT_EVERY", 4 if is_postgres() else 9),
        mock.patch("alphafair.engine.store.postgres.AGAIN", (0.0,) * 4),
    ):
        yield


@pytest.mark.parametrize(("times", "after"), [(1, False), (1, True), (2, False)], ids=["before", "after", "and again"])
def test_a_fault_at_every_disk_operation(tmp_path: Path, times: int, after: bool) -> None:
    peaceful = Session(tmp_path / "peaceful.db", Disk())
    peaceful.play()
    everywhere = range(1, peaceful.disk.touches + 1)
    writes = list(peaceful.disk.writes)
    peaceful.check()
    assert len(writes) > (50 if is_postgres() else 80)
    some = list(everywhere if times == 1 and not after else writes)
    if is_postgres():
        some = some[times :: max(1, len(some) // (25 if FULL else 12))]
    elif not FULL and (after or times == 2):
        some = some[after::5]
    elif not FULL:
        some = [n for n in some if n % 2 or n in writes]
    missed = 0
    for n in some:
        folder = tmp_path / f"{n}"
        folder.mkdir()
        disk = Disk(n, times, after=after)
        session = Session(folder / "shop.db", disk)
        session.play()
        touches, disk.times = disk.touches, 0
        assert disk.failures == min(times, max(0, touches - n + 1))
        missed += not disk.failures  # how often the disk is touched can differ by a few from one session to the next
        session.check()
        shutil.rmtree(folder)
    assert missed <= 3


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def engine(tmp_path: Path, disk: Disk) -> Iterator[Engine]:
    engine = Engine(disk.open(tmp_path / "shop.db"), seed=1)
    engine.create("home", arms=ARMS)
    yield engine
    engine.close()


def earned(engine: Engine) -> float:
    """All that the arms of "home" have earned."""
    return sum(engine.experiment("home").cumulative_rewards.values())


def test_health_gives_the_reason_and_recovers(engine: Engine, disk: Disk) -> None:
    receipt = engine.decide("home", "v")
    position = engine.position
    disk.first, disk.times = 0, 10**9
    for _ in range(3):
        with pytest.raises(Unavailable, match=r": disk I/O error"):
            engine.reward(receipt.id, 0.5)
        health = engine.health()
        assert not health["ready"]
        assert "disk I/O error" in health["reason"]
    with pytest.raises(Unavailable):
        engine.pause("home")
    disk.times = 0
    assert engine.health()["ready"]  # nobody had to ask for anything in between
    assert engine.position == position
    assert engine.reward(receipt.id, 0.5) == Outcome("applied")
    assert not engine.experiment("home").paused
    engine.verify()


def test_a_failed_read_in_the_middle_of_a_group_leaves_nothing_behind(engine: Engine, disk: Disk) -> None:
    """The first request of the group is answered from memory; the second has to look on the disk, and cannot."""
    requests = [Decide("home", "somebody new", "first"), Reward("long ago", 0.5)]
    disk.first, disk.times = disk.touches + 2, 10**9  # a read over a lost connection is tried again
    with pytest.raises(Unavailable):
        engine.submit(requests)
    disk.times = 0
    assert engine.experiment("home").contexts == 0
    assert engine.activate("first") == Outcome("unknown")
    receipt, outcome = engine.submit(requests)
    assert isinstance(receipt, Receipt)
    assert outcome == Outcome("unknown")
    assert engine.experiment("home").decisions == 1
    engine.verify()


def test_uncommitted_decisions_are_not_visible(engine: Engine, disk: Disk, tmp_path: Path) -> None:
    receipt = engine.decide("home", "v")
    disk.commits_wait = threading.Event()
    answers: list[Any] = []
    clients = [threading.Thread(target=lambda: answers.append(engine.reward(receipt.id, 0.5))) for _ in range(2)]
    try:
        for client in clients:
            client.start()
        with Engine.open(tmp_path / "shop.db", read_only=True) as reader:
            assert reader.experiment("home").rewards == 0
            assert reader.verify() == 2
        assert answers == []
    finally:
        disk.commits_wait.set()
        for client in clients:
            client.join()
    assert sorted(answer.outcome for answer in answers) == ["applied", "repeated"]
    assert earned(engine) == 0.5
    engine.verify()


@sqlite_only("is about SQLite's own locks")
@pytest.mark.parametrize("lock", ["immediate", "exclusive"])
def test_a_locked_file_is_waited_for_and_then_refused(tmp_path: Path, lock: str) -> None:
    with mock.patch("alphafair.engine.store.sqlite.BUSY", 0.01):
        engine = Engine(SqliteStore(tmp_path / "shop.db"))
    engine.create("home", arms=ARMS)
    receipt = engine.decide("home", "v")
    other = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    other.execute(f"begin {lock}")
    for _ in range(2):
        with pytest.raises(Unavailable, match="locked"):
            engine.reward(receipt.id, 0.5)
    assert "locked" in engine.health()["reason"]
    with pytest.raises(Unavailable, match="locked"):
        engine.decide("home", "v", id="new")
    other.execute("rollback")
    other.close()
    assert engine.health()["ready"]
    assert engine.reward(receipt.id, 0.5) == Outcome("applied")
    assert engine.decide("home", "v", id="new") == engine.decide("home", "v", id="new")
    assert engine.experiment("home").decisions == 2
    engine.verify()
    engine.close()


@sqlite_only("limits the pages of the file")
def test_a_full_disk(tmp_path: Path) -> None:
    engine = Engine(SqliteStore(tmp_path / "shop.db"), seed=1)
    engine.create("home", arms=ARMS)
    connection = engine._store.connection
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count = {pages + 3}")
    done: list[Receipt] = []
    with contextlib.suppress(Unavailable):
        for k in range(10_000):
            group = [Decide("home", f"visitor {k} " + "x" * 150, f"{k}"), Reward(f"{k}", 0.5)]
            done.append(engine.submit(group)[0])  # type: ignore[arg-type]
    assert 0 < len(done) < 10_000
    for _ in range(3):
        with pytest.raises(Unavailable, match="full"):
            engine.submit(group)
    assert engine.experiment("home").rewards == len(done)
    assert earned(engine) == len(done) / 2
    engine.verify()
    connection.execute("pragma max_page_count = 1000000")
    assert engine.health()["ready"]
    assert engine.submit(group) == [engine.decide("home", group[0].context, group[0].id), Outcome("applied")]
    assert engine.experiment("home").rewards == len(done) + 1
    for receipt in done:
        assert engine.decide("home", receipt.context, receipt.id) == receipt
    engine.verify()
    engine.close()


def fill(path: Path) -> None:
    """In a process whose files may not grow beyond a size; prints what was acknowledged, then what was refused."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
    with Engine.open(path) as engine:
        engine.create("home", arms=ARMS)
        for k in range(2_000):
            try:
                engine.submit([Decide("home", f"visitor {k} " + "x" * 150, f"{k}"), Reward(f"{k}", 0.5)])
            except Unavailable as problem:
                print("refused", problem)
                os._exit(0)
            print(k, flush=True)


@sqlite_only("limits the size of files")
def test_files_that_may_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    script = f"from tests.engine.test_faults import fill; from pathlib import Path; fill(Path({str(path)!r}))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *acknowledged, refused = done.stdout.splitlines()
    assert refused.startswith("refused")
    assert acknowledged
    with Engine.open(path) as engine:
        kept = engine.experiment("home").rewards
        assert kept in (len(acknowledged), len(acknowledged) + 1)
        again = [engine.reward(k, 0.5).outcome for k in acknowledged]
        assert again == ["repeated"] * len(acknowledged)
        assert earned(engine) == kept / 2
        engine.verify()


@sqlite_only("damages pages of the WAL")
def test_a_torn_page_in_the_last_commit(tmp_path: Path) -> None:
    """Whatever is wrong with the frames of the last commit, it is as if it had not been asked for."""
    path = tmp_path / "shop.db"
    engine = Engine(SqliteStore(path), seed=1)
    engine.create("home", arms=ARMS)
    receipts = [engine.decide("home", f"v{k}", f"{k}") for k in range(5)]
    wal = Path(f"{path}-wal")
    acknowledged = wal.stat().st_size
    lost = engine.reward("0", 0.5)
    assert lost == Outcome("applied")
    whole, size = path.read_bytes(), wal.stat().st_size
    frames = wal.read_bytes()
    engine.close()
    (page,) = struct.unpack(">I", frames[8:12])
    frame = page + 24
    assert (size - acknowledged) % frame == 0
    last = size - frame
    flipped = [bytearray(frames) for _ in range(4)]
    for torn, at in zip(flipped, (acknowledged + 30, last + 1, last + 20, size - 1), strict=True):
        torn[at] ^= 0x40
    cut = [frames[:length] for length in (acknowledged, acknowledged + 10, last, last + 24, size - 512, size - 1)]
    zeroed = frames[: size - 512] + bytes(512)
    for k, torn in enumerate([*flipped, *cut, zeroed, frames]):
        copy = tmp_path / f"{k}.db"
        copy.write_bytes(whole)
        Path(f"{copy}-wal").write_bytes(torn)
        with Engine.open(copy) as after:
            assert after.experiment("home").rewards == (torn is frames)
            after.verify()
            assert after.reward("0", 0.5).outcome == ("repeated" if torn is frames else "applied")
            assert [after.decide("home", f"v{j}", f"{j}") for j in range(5)] == receipts
            assert earned(after) == 0.5
            after.verify()
