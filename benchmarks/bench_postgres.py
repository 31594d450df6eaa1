"""The service on PostgreSQL against the service on SQLite, in one run; and how fast a node reads a long log.

The database, the nodes and the load generators share the machine's cores. Servers take turns, and the best turn of each
counts. PostgreSQL runs with fsync on, as the file of SQLite does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench_service import begin, running
from benchmarks.jobs import ALPHA, N_ARMS
from benchmarks.table import Row, duration, print_table
from tests import postgres

TURNS, SECONDS, CONNECTIONS = 4, 3.0, 128
EVENTS, BATCH = 1_000_000, 5_000
AT_LEAST = {"one": 0.6, "two": 1.5, "fight": 0.5, "recovery": 0.3e6}


def rows() -> Iterator[Row]:
    if postgres.missing() is not None:
        print(postgres.missing(), file=sys.stderr)
        return
    postgres.SETTINGS |= {"fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB", "autovacuum": "on"}
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        server = stack.enter_context(postgres.running())
        url = server.url("bench")
        sqlite = stack.enter_context(running("-m", "alphafair", "serve", "--db", f"{folder}/bench.db", "--port"))
        first = stack.enter_context(running("-m", "alphafair", "serve", "--db", url, "--port"))
        second = stack.enter_context(running("-m", "alphafair", "serve", "--db", url, "--port"))
        begin(sqlite)
        begin(first)
        create(first, "other")
        wait_for(second, "other")
        best = dict.fromkeys(("sqlite", "one", "two", "fight"), 0.0)
        for port in (sqlite, first, second):
            load([(port, "bench")], seconds=1.0)
        for _ in range(TURNS):
            for name, where in (
                ("sqlite", [(sqlite, "bench")]),
                ("one", [(first, "bench")]),
                ("two", [(first, "bench"), (second, "other")]),
                ("fight", [(first, "bench"), (second, "bench")]),
            ):
                best[name] = max(best[name], load(where))
            print({name: round(each) for name, each in best.items()}, file=sys.stderr)
        cores = f"{os.cpu_count()} cores"
        for name, job, rival in (
            ("one", "one node on PostgreSQL, decide and reward over HTTP, per second", "sqlite"),
            ("two", f"two nodes, each with an experiment of its own, {cores}", "one"),
            ("fight", "two nodes that write one experiment", "one"),
        ):
            ratio, target = best[name] / best[rival], AT_LEAST[name]
            theirs = "the service on SQLite" if rival == "sqlite" else "one node"
            numbers = (f"{best[name]:,.0f}", theirs, f"{best[rival]:,.0f}", f"{ratio:.3g} x", f"at least {target:g} x")
            yield Row(job, *numbers, ratio >= target)
    with postgres.running() as server:
        yield recovery_row(server)


def create(port: int, name: str) -> None:
    body = {"name": name, "arms": [f"arm-{k}" for k in range(N_ARMS)], "alpha": ALPHA}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/experiments", json.dumps(body).encode()):
        pass


def wait_for(port: int, name: str) -> None:
    """Until a node knows an experiment that another one has made."""
    until = time.monotonic() + 120.0
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/experiments/{name}"):
            return
        time.sleep(0.1)
    raise TimeoutError(name)


def load(where: list[tuple[int, str]], seconds: float = SECONDS) -> float:
    """Answers per second of all load generators together, one for each node and experiment."""
    root, each = Path(__file__).parents[1], str(CONNECTIONS // len(where))
    generators = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.load", str(port), "decide_and_reward", str(seconds)),
                *("--connections", each, "--experiment", experiment),
            ],
            stdout=subprocess.PIPE,
            cwd=root,
        )
        for port, experiment in where
    ]
    total = 0.0
    for generator in generators:
        out, _ = generator.communicate(timeout=60.0 + seconds)
        found: dict[str, Any] = json.loads(out)
        assert set(found["statuses"]) == {"200"}, found
        total += found["per_second"]
    return total


def recovery_row(server: postgres.Server) -> Row:
    """A node without snapshots reads a million events, in a process that has its machine code."""
    from alphafair import Engine
    from alphafair.engine import Decide, Receipt, Reward

    url = server.url("recovery")
    with Engine.open(url, seed=0) as engine:
        engine.create("bench", arms=[f"arm-{k}" for k in range(N_ARMS)], alpha=ALPHA)
        for first in range(0, EVENTS // 2, BATCH):
            numbers = range(first, first + BATCH)
            receipts = engine.submit([Decide("bench", f"c{n * 7 % 33}", f"id-{n}") for n in numbers])
            drawn = [each for each in receipts if isinstance(each, Receipt)]
            engine.submit([Reward(each.id, n % 2, "bench") for n, each in zip(numbers, drawn, strict=True)])
        expected = engine.experiment("bench")
    server.execute("delete from snapshot", "recovery")
    server.execute("delete from snapshot_piece", "recovery")
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        with Engine.open(url, seed=0, read_only=True) as engine:
            assert engine.experiment("bench").cumulative_rewards == expected.cumulative_rewards
            taken.append(time.perf_counter() - start)
    per_second = expected.position / min(taken)
    target = AT_LEAST["recovery"]
    job = f"recovery of {expected.position:,} events from PostgreSQL, without a snapshot: {duration(min(taken))}"
    return Row(job, f"{per_second:,.0f}/s", "", "", "-", f"at least {target:,.0f}/s", per_second >= target)


if __name__ == "__main__":
    print_table([*rows()])
