"""A full disk: readiness tells the truth, nothing acknowledged is lost, and room is all that is needed to go on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from alphafair import Engine
from alphafair.engine import Decide, Outcome, Receipt, Reward, Unavailable
from alphafair.engine.writer import Writer
from tests import ROOT
from tests.disks import WAYS, Disk, small_disk
from tests.serving import running, wait_until_ready

ARMS = ("ada", "ben")
SIZES = (8_192, 65_536, 524_288, 3_145_728)  # bytes that are left


@pytest.fixture(params=WAYS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with small_disk(request.param, tmp_path) as disk:
        yield disk


def group(n: int, size: int = 50) -> list[Decide | Reward]:
    """As many decisions, each for somebody new, and their rewards."""
    ids = [f"{n}-{k}" for k in range(size)]
    return [*(Decide("home", f"visitor {id} {'x' * 100}", id) for id in ids), *(Reward(id, 0.5) for id in ids)]


def fill(engine: Engine) -> list[list[Receipt | Outcome]]:
    """Groups of decisions until one is refused; what was answered."""
    answered: list[list[Receipt | Outcome]] = []
    for n in range(5_000):
        try:
            answered.append(engine.submit(group(n)))  # type: ignore[arg-type]
        except Unavailable:
            return answered
    raise AssertionError("there was room for everything")


@pytest.mark.parametrize("left", SIZES)
def test_readiness_agrees_with_requests_on_a_full_disk(disk: Disk, left: int) -> None:
    engine = Engine.open(disk.path, seed=1)
    assert engine.health()["ready"]
    engine.create("home", arms=ARMS)
    disk.leave(engine, left)
    answered = fill(engine)
    for _ in range(5):
        for n, size in ((len(answered), 50), (10_000, 1), (20_000, 2)):
            before = engine.health()
            with pytest.raises(Unavailable, match=r"full|disk I/O"):
                engine.submit(group(n, size))
            after = engine.health()
            assert (before["ready"], after["ready"]) == (False, False)
            assert "cannot be written" in after["reason"]
    assert engine.experiment("home").rewards == 50 * len(answered)  # reading goes on
    disk.make_room(engine)
    assert engine.health()["ready"]
    for n in range(len(answered) + 1):
        answers = engine.submit(group(n))
        if n < len(answered):
            assert answers[:50] == answered[n][:50]
            assert answers[50:] == [Outcome("repeated")] * 50
    status = engine.experiment("home")
    assert (status.decisions, status.rewards) == (50 * (len(answered) + 1),) * 2
    engine.verify()
    engine.close()


def test_requests_detect_free_space(disk: Disk) -> None:
    with Engine.open(disk.path, seed=1) as engine:
        engine.create("home", arms=ARMS)
        disk.leave(engine, 65_536)
        n_answered = len(fill(engine))
        disk.make_room(engine)
        assert len(engine.submit(group(n_answered))) == 100
        assert engine.health(probe=False)["ready"]
        engine.verify()


def test_memory_is_not_loaded_again_after_a_full_disk(tmp_path: Path) -> None:
    """A commit that fails has changed nothing, so neither failing requests nor the next one read the file again."""
    with small_disk("a limit on pages", tmp_path) as disk, Engine.open(disk.path, seed=1) as engine:
        engine.create("home", arms=ARMS)
        disk.leave(engine, 65_536)
        with mock.patch.object(Writer, "load", autospec=True, side_effect=Writer.load) as load:
            n_answered = len(fill(engine))
            for n in range(10):
                with pytest.raises(Unavailable):
                    engine.submit(group(1_000 + n))
                assert engine.experiment("home").rewards == 50 * n_answered
            disk.make_room(engine)
            assert len(engine.submit(group(1_000))) == 100
            assert load.call_count == 0
        engine.verify()


def test_a_new_engine_is_ready_once_something_was_written(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db") as engine:
        assert not engine.health(probe=False)["ready"]
        assert engine.health()["ready"]
        assert engine.health(probe=False)["ready"]
        assert engine.position == 0
    with Engine.open(tmp_path / "shop.db") as engine:
        engine.create("home", arms=ARMS)
        assert engine.health(probe=False)["ready"]
        with Engine.open(tmp_path / "shop.db", read_only=True) as reader:
            assert reader.health()["ready"]


@pytest.mark.compiled
@pytest.mark.parametrize("left", SIZES[1:3])
def test_the_service_is_never_ready_while_decisions_fail(disk: Disk, left: int) -> None:
    with running(disk.path) as shop:
        assert shop.post("", {"name": "home", "arms": ARMS}).status_code == 201
        disk.leave(shop.engine, left)
        acknowledged: dict[str, str] = {}
        lied, failed = 0, 0
        n = 0
        while failed < 15:
            ids = [f"{n}-{k}" for k in range(100)]
            n += 1
            items = [{"context": f"visitor {id} {'x' * 100}", "id": id} for id in ids]
            answer = shop.post("/home/decisions/batch", {"items": items})
            ready = shop.http.get("/ready")
            if answer.status_code == 200:
                acknowledged |= {item["id"]: item["arm"] for item in answer.json()["items"]}
            else:
                assert answer.status_code == 503
                failed += 1
                lied += ready.status_code == 200 or "alphafair_ready 0.0" not in shop.http.get("/metrics").text
                assert "cannot be written" in shop.http.get("/ready").json()["reason"]
        assert lied == 0
        assert shop.post("/home/decisions", {"context": "v"}).status_code == 503  # nor are small ones taken
        disk.make_room(shop.engine)
        wait_until_ready(shop.http)  # nobody sends anything meanwhile
        items = [{"context": f"visitor {id} {'x' * 100}", "id": id} for id in acknowledged]
        for first in range(0, len(items), 1_000):
            again = shop.post("/home/decisions/batch", {"items": items[first : first + 1_000]}).json()["items"]
            assert all(item["arm"] == acknowledged[item["id"]] for item in again)
        assert shop.engine.experiment("home").decisions == len(acknowledged)
        shop.engine.verify()


def in_small_files(path: Path) -> None:
    """In a process whose files may not grow beyond a size; prints what was acknowledged."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    engine = Engine.open(path)
    engine.create("home", arms=ARMS)
    for n, _ in enumerate(fill(engine)):
        print(n, flush=True)
    os._exit(0)


def test_a_long_write_ahead_log_is_moved_into_the_file_before_giving_up(tmp_path: Path) -> None:
    """No file may become larger than a megabyte: the log is, long before the main file."""
    path = tmp_path / "shop.db"
    script = f"from tests.engine.test_full_disk import in_small_files; in_small_files({str(path)!r})"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    n_answered = len(done.stdout.splitlines())
    with Engine.open(path) as engine:
        assert engine.experiment("home").rewards in (50 * n_answered, 50 * (n_answered + 1))
        engine.verify()
    assert path.stat().st_size > 900_000
