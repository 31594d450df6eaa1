"""A clock that jumps ahead: nothing is written with a time that cannot be taken back."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from alphafair.engine import Engine, RequestError, Reward, Unavailable
from alphafair.engine import clock as clocks
from alphafair.engine.store import files
from alphafair.engine.writer import ConditionKind
from tests.serving import error, running, told, wait_for
from tests.stores import both_stores, execute, is_postgres, open_store, sqlite_only, writer_of

pytestmark = both_stores

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 365 * 86_400
ARMS = ["ada", "ben"]
REASON = "has jumped 120 minutes ahead"


class Machine:
    """The two clocks of a machine, moved by hand; `passes` moves both, `jumps` only the one that can be set."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_800_000_000 * 10**9, 5_000 * 10**9

    def passes(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)
        self.steady += int(seconds * 1e9)

    def jumps(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)

    def open(self, path: Path) -> Engine:
        return Engine(open_store(path), clock=lambda: self.wall, steady=lambda: self.steady)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def times(path: Path) -> list[int]:
    found = [execute(path, f"select at from {table}") for table in ("change", "decision", "reward")]
    return sorted(at for rows in found for (at,) in rows)


def writes(engine: Engine) -> dict[str, Callable[[], object]]:
    return {
        "decide": lambda: engine.decide("home", "ann", id="late"),
        "reward": lambda: engine.reward("early", 0.5),
        "create": lambda: engine.create("other", arms=ARMS),
        "change": lambda: engine.set_alpha("home", 0.5),
        "rollback": lambda: engine.rollback("home", 1),
        "erase": lambda: engine.erase("home", "ann"),
        "expire": engine.expire,
        "maintain": engine.maintain,
    }


def test_nothing_is_written_after_a_jump_ahead(machine: Machine, path: Path) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS, reward_wait=60.0, default_reward=0.0, period=300.0)
        engine.decide("home", "ann", id="early")
        engine.decide("home", "ann", id="overdue")
        before = times(path)
        machine.passes(30)
        machine.jumps(2 * HOUR)
        health = engine.health()
        assert not health["ready"]
        assert REASON in health["reason"]
        assert "with the option that accepts it" in health["reason"]
        assert engine.health(probe=False)["reason"] == health["reason"]
        for name, write in writes(engine).items():
            with pytest.raises(Unavailable, match=REASON):
                write()
            assert writer_of(engine, "home").condition.kind is not ConditionKind.STALE, name
        assert times(path) == before
        assert engine.experiment("home").pending == 2  # readers are served
        machine.jumps(-2 * HOUR)
        assert engine.health()["ready"]
        assert engine.reward("early", 0.5).outcome == "applied"
        assert engine.decide("home", "ann", id="late").context == "ann"
        assert engine.experiment("home").pending == 2
        engine.verify()
    assert max(times(path)) == machine.wall // 1000


def test_a_jump_that_is_accepted(machine: Machine, path: Path) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS, reward_wait=60.0, default_reward=0.0)
        engine.decide("home", "ann", id="early")
        machine.jumps(2 * HOUR)
        assert not engine.health()["ready"]
        engine.accept_clock()
        assert engine.health()["ready"]
        assert engine.reward("early", 0.5).outcome == "expired"
        machine.jumps(2 * HOUR)  # the next jump is another one
        assert REASON in engine.health()["reason"]
    assert max(times(path)) == machine.wall // 1000 - 2 * HOUR * 10**6


@pytest.mark.parametrize(
    "moves",
    [
        [("jumps", 1.0)],  # a leap second
        [("jumps", 4 * MINUTE), ("passes", DAY), ("jumps", 4 * MINUTE)],  # corrections
        [("passes", 60 * HOUR)],  # a weekend, or a machine that was suspended: the steady clock counts that, too
        [("jumps", -2 * HOUR)],
        [("jumps", -2 * HOUR), ("passes", 4 * HOUR), ("jumps", 2 * HOUR)],  # set back, and forth again
    ],
    ids=lambda moves: "-".join(f"{kind} {seconds:g}" for kind, seconds in moves),
)
def test_what_is_no_jump_ahead(machine: Machine, path: Path, moves: list[tuple[str, float]]) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
        for kind, seconds in moves:
            getattr(machine, kind)(seconds)
            assert engine.health()["ready"], (kind, seconds)
            engine.decide("home", "ann")


def test_small_steps_and_then_a_jump(machine: Machine, path: Path) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
        for seconds, is_ready in ((299, True), (299, True), (301, False)):
            machine.jumps(seconds)
            assert engine.health()["ready"] is is_ready


@sqlite_only("the clock of a database shows which one is behind, which `test_nodes` tests")
def test_a_clock_that_was_behind_may_jump_to_the_true_time(
    machine: Machine, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a battery starts in the past: the last event proves that its clock is wrong."""
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(clocks, "BOOT_ID", tmp_path / "boot")
    rebooted = Machine()
    rebooted.jumps(-YEAR)
    with rebooted.open(path) as engine:
        engine.decide("home", "ann")
        rebooted.jumps(YEAR + DAY)
        assert engine.health()["ready"]
        engine.decide("home", "ann")
    assert max(times(path)) == rebooted.wall // 1000


def test_an_experiment_with_times_ahead_leaves_the_others_protected(machine: Machine, path: Path) -> None:
    """In a database every experiment has a log of its own: the latest time of all says nothing about the clock."""
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
        engine.create("other", arms=ARMS)
        machine.jumps(YEAR)
        engine.accept_clock()
        engine.decide("home", "ann")
        machine.jumps(-YEAR)
        engine.decide("other", "ann")
    before = times(path)
    for seconds in (YEAR // 2, 2 * YEAR):
        with machine.open(path) as engine:
            machine.jumps(seconds)
            if seconds > YEAR or is_postgres():
                with pytest.raises(Unavailable, match="minutes ahead"):
                    engine.decide("other", "ann")
            assert times(path) == before
            machine.jumps(-seconds)


def test_a_shop_that_was_closed_opens_again(machine: Machine, path: Path) -> None:
    """The last event may be old by right: the age of the log proves nothing."""
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    machine.passes(10 * DAY)
    with machine.open(path) as engine:
        assert engine.health()["ready"]
        engine.decide("home", "ann")


@sqlite_only("a database has a clock of its own, which `test_nodes` tests")
def test_a_restart_does_not_accept_a_jump(machine: Machine, path: Path) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    machine.jumps(2 * HOUR)
    for _ in range(2):
        with machine.open(path) as engine:
            assert REASON in engine.health()["reason"]
            with pytest.raises(Unavailable, match=REASON):
                engine.decide("home", "ann")
    machine.jumps(-2 * HOUR)
    with machine.open(path) as engine:
        engine.decide("home", "ann")
    machine.jumps(2 * HOUR)
    with machine.open(path) as engine:
        engine.accept_clock()
    with machine.open(path) as engine:  # accepted once and for all
        engine.decide("home", "ann")


@sqlite_only("a database keeps no record")
def test_a_killed_process_leaves_the_steps_that_it_has_accepted(machine: Machine, path: Path, tmp_path: Path) -> None:
    """Small steps of weeks are more than one jump; only the record that a killed process leaves has them."""
    lock, killed = path.with_name("shop.db.lock"), tmp_path / "killed"
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
        for _ in range(4):
            machine.jumps(2 * MINUTE)
            engine.maintain()
        shutil.copyfile(lock, killed)
        machine.passes(DAY)
        written = lock.stat().st_mtime_ns
        engine.maintain()  # no step, nothing to write
        assert lock.stat().st_mtime_ns == written
    shutil.copyfile(killed, lock)
    with machine.open(path) as engine:
        engine.decide("home", "ann")


@sqlite_only("a database keeps no record")
def test_a_full_disk_keeps_the_record(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    machine.jumps(2 * HOUR)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "pwrite", full)
        machine.open(path).close()
    with machine.open(path) as engine:
        assert REASON in engine.health()["reason"]


def test_a_closed_engine_accepts_no_clock(machine: Machine, path: Path, tmp_path: Path) -> None:
    """The numbers of its handles may be those of other files by then."""
    engine = machine.open(path)
    engine.close()
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context((tmp_path / f"other-{k}").open("w+")) for k in range(8)]
        for each in others:
            each.write("mine")
            each.flush()
        with pytest.raises(RequestError, match="closed"):
            engine.accept_clock()
        assert [Path(each.name).read_text() for each in others] == ["mine"] * 8


def test_a_reader_accepts_no_clock(machine: Machine, path: Path) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    with Engine(open_store(path, read_only=True)) as reader, pytest.raises(RequestError, match="read_only"):
        reader.accept_clock()


@sqlite_only("a database has a clock of its own, which `test_nodes` tests")
@pytest.mark.parametrize("boot", ["another", None])
def test_the_record_is_of_this_start_of_the_machine(
    machine: Machine, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str | None
) -> None:
    """After a reboot, or where the system does not say which, nothing is known of the clock."""
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    if boot is not None:
        (tmp_path / "boot").write_text(boot)
    monkeypatch.setattr(clocks, "BOOT_ID", tmp_path / "boot")
    machine.jumps(2 * HOUR)
    with machine.open(path) as engine:
        assert engine.health()["ready"]
        engine.decide("home", "ann")


@sqlite_only("a database keeps no record")
@pytest.mark.parametrize("left", ["", "1\n", "1\nx\n", "1\nx y\n", "1\n{boot} \n", "1\n{boot} 1e9\n", "\0\n\0 \0\n"])
def test_a_record_that_means_nothing(machine: Machine, path: Path, left: str) -> None:
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    lock = path.with_name("shop.db.lock")
    lock.write_text(left.format(boot=clocks.boot_id()))
    machine.jumps(2 * HOUR)
    with machine.open(path) as engine:
        engine.decide("home", "ann")


@sqlite_only("a database keeps no record")
def test_an_upgrade_waits_for_the_clock(machine: Machine, path: Path) -> None:
    """A state that other code has led to is saved by an event, too."""
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
    execute(path, "update change set body = json_set(body, '$.code', 'other')")
    machine.jumps(2 * HOUR)
    with machine.open(path) as engine:
        assert REASON in engine.health()["reason"]
        assert [each.kind for each in engine.history("home")] == ["create"]
        machine.jumps(-2 * HOUR)
        engine.maintain()
        assert engine.health()["ready"]
        assert [each.kind for each in engine.history("home")] == ["create", "upgrade"]


def test_the_steady_clock_counts_suspension() -> None:
    assert abs(clocks.steady_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) < 60 * 10**9


LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
IN_A_PROCESS = """
import os, sys
from alphafair.engine import Engine, Unavailable
def jump(to):
    with open(os.environ["FAKETIME_TIMESTAMP_FILE"], "w") as file:
        file.write(to)
with Engine.open(sys.argv[1]) as engine:
    engine.create("home", arms=["ada", "ben"])
    jump("+2h")
    try:
        engine.decide("home", "ann")
    except Unavailable as problem:
        print(problem)
    jump("+0s")
    print(engine.decide("home", "ann").context)
"""


@sqlite_only("the clocks are those of a process, whatever it writes to")
@pytest.mark.skipif(not LIBRARY.exists(), reason="needs libfaketime")
def test_the_clocks_of_a_process(path: Path, tmp_path: Path) -> None:
    (tmp_path / "time").write_text("+0s")
    faked = {"FAKETIME_TIMESTAMP_FILE": str(tmp_path / "time"), "FAKETIME_NO_CACHE": "1", "LD_PRELOAD": str(LIBRARY)}
    steady = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}  # old and new versions
    answer = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(path)],
        env={**os.environ, **faked, **steady, "ALPHAFAIR_JIT": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    refused, decided = answer.stdout.splitlines()
    assert REASON in refused
    assert decided == "ann"


def test_a_service_after_a_jump(machine: Machine, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="alphafair.service")
    engine = machine.open(path)
    with running(path, engine=engine) as shop:
        engine.create("home", arms=ARMS)
        machine.jumps(2 * HOUR)
        answer = shop.http.get("/ready")
        assert answer.status_code == 503
        assert REASON in answer.json()["reason"]
        metrics = told(shop)
        assert metrics["alphafair_ready"] == 0.0
        assert any(name.startswith("alphafair_not_ready") and REASON in name for name in metrics)
        refused = shop.post("/home/decisions", {"context": "ann"})
        assert refused.status_code == 503
        assert REASON in error(refused)["message"]
        assert shop.http.get("/v1/experiments/home").status_code == 200
        logged = wait_for(lambda: [each for each in caplog.records if each.getMessage() == "not ready"])
        assert REASON in logged[0].fields["reason"]  # type: ignore[attr-defined]
        machine.jumps(-2 * HOUR)
        assert shop.http.get("/ready").status_code == 200
        assert shop.post("/home/decisions", {"context": "ann"}).status_code == 200


def test_what_is_settled_by_batches(machine: Machine, path: Path) -> None:
    """A batch is refused as a whole, each request with the reason."""
    with machine.open(path) as engine:
        engine.create("home", arms=ARMS)
        engine.decide("home", "ann", id="early")
        machine.jumps(2 * HOUR)
        with pytest.raises(Unavailable, match=REASON):
            engine.submit([Reward("early", 0.5, "home")])
        assert engine.experiment("home").pending == 1
