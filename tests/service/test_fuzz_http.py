"""A short run of the fuzzer of HTTP against a service in this process, whose tasks and connections can be seen."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest

from tests.fuzz_http import MOST_MORE_FILES, MOST_MORE_MEMORY, fuzz
from tests.serving import ARMS, Running, running

pytestmark = pytest.mark.compiled

N = 15_000


def settle(shop: Running) -> tuple[int, int]:
    """Tasks and open files, once the connections and requests that clients have left behind are gone."""
    until = time.monotonic() + 30.0
    while True:
        shop.http.get("/health")  # keeps its one connection open
        time.sleep(0.1)
        connections = shop.service.connections
        if len(connections.open) == 1 and not connections.tasks:
            return len(asyncio.all_tasks(shop.server._loop)), len(os.listdir("/proc/self/fd"))
        assert time.monotonic() < until, (len(connections.open), connections.tasks)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_random_bytes_cause_no_errors_and_no_leaks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with running(tmp_path / "shop.db") as shop:
        shop.engine.create("home", arms=ARMS)
        shop.engine.create("told", arms=ARMS, features={"age": "number", "kind": ["new", "*"]})
        fuzz(shop.port, n_requests=4000, seed=1)
        n_tasks_before, n_files_before = settle(shop)
        memory = resident()
        n_sent, statuses, complaints = fuzz(shop.port, n_requests=N, seed=0)
        assert not complaints
        assert n_sent >= N
        assert {200, 400, 403, 404, 422} <= set(statuses)
        n_tasks, n_files = settle(shop)
        assert n_tasks <= n_tasks_before + 1
        assert n_files <= n_files_before + MOST_MORE_FILES
        assert resident() - memory < MOST_MORE_MEMORY
        assert shop.http.get("/ready").status_code == 200
        shop.engine.verify()
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []
