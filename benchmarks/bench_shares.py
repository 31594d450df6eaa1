"""What a key notices of another key that sends as much as it can."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alphafair import Engine
from alphafair.engine import Decide
from alphafair.service import keys
from benchmarks.bench_service import running, until_ready
from benchmarks.jobs import ALPHA, N_ARMS
from benchmarks.table import Row, duration

SECONDS, AHEAD = 5.0, 2.0  # of the load that is measured, and of the other load before it
PENDING = 250_000  # decisions, of which none is found
DECISIONS, METRICS = 0.05, 1.0  # seconds


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "bench.db"
        tokens = {role: keys.create(path, role, role) for role in ("write", "log", "metrics")}
        neighbor = keys.create(path, "write", "neighbor")
        fill(path)
        port = stack.enter_context(running("-m", "alphafair", "serve", "--db", str(path), "--port"))
        until_ready(port)
        decisions = ["decide_and_reward", "--key", neighbor, "--connections", "1", "--experiment", "neighbor"]
        flood = ["batches", "--batch", "1000", "--key", tokens["write"], "--connections", "40"]
        load(port, *decisions)
        yield compared(
            "decide and reward one at a time, beside 40 connections of another key with batches of 1,000: median",
            load(port, *decisions),
            beside(port, flood, decisions),
            "p50",
            DECISIONS,
        )
        pages = ["metrics", "--key", tokens["metrics"], "--connections", "1"]
        searches = ["search", "--key", tokens["log"], "--connections", "200"]
        yield compared(
            f"/metrics beside 200 connections of another key that search {PENDING:,} decisions: the longest",
            load(port, *pages),
            beside(port, searches, pages),
            "longest",
            METRICS,
        )


def fill(path: Path) -> None:
    with Engine.open(path) as engine:
        for name in ("bench", "neighbor"):
            engine.create(name, arms=[f"arm-{k}" for k in range(N_ARMS)], alpha=ALPHA)
        for first in range(0, PENDING, 1000):
            engine.submit([Decide("bench", f"c{k % 100}", f"pending-{first + k}") for k in range(1000)])


def compared(job: str, alone: dict[str, Any], besides: dict[str, Any], figure: str, limit: float) -> Row:
    """A load that must not be rejected, and has to be answered within a limit."""
    refused = sum(count for status, count in besides["statuses"].items() if status != "200")
    return Row(
        job,
        f"{duration(besides[figure])}, {refused} rejected",
        "alone",
        duration(alone[figure]),
        f"{besides[figure] / alone[figure]:.3g} x",
        f"under {duration(limit)}, none rejected",
        besides[figure] < limit and not refused,
    )


def beside(port: int, others: list[str], options: list[str]) -> dict[str, Any]:
    """The result of a load while others are running."""
    with started(port, *others, seconds=SECONDS + 2 * AHEAD) as flood:
        with contextlib.suppress(subprocess.TimeoutExpired):
            flood.wait(AHEAD)
        found = load(port, *options)
        assert flood.poll() is None, "the other load has ended early"
        flood.communicate()
    return found


def load(port: int, *options: str) -> dict[str, Any]:
    with started(port, *options, seconds=SECONDS) as process:
        found: dict[str, Any] = json.loads(process.communicate()[0])
    return found


def started(port: int, *options: str, seconds: float) -> subprocess.Popen[bytes]:
    kind, *others = options
    command = [sys.executable, "-m", "benchmarks.load", str(port), kind, str(seconds), *others]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
