"""The service under load, compared with an empty POST and with FastAPI around other libraries.

The load generator and the servers share the machine's cores. Servers take turns, and the best turn of each counts.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.jobs import ALPHA, N_ARMS
from benchmarks.load import BATCH
from benchmarks.table import Row, duration, named

TURNS, SECONDS, CONNECTIONS, CONNECTIONS_OF_BATCHES = 4, 3.0, 256, 8
AT_LEAST = {"starlette": 0.45, "vowpal_wabbit": 1.0, "mabwiser": 1.0}  # of what each reaches
BATCHED, P99 = 60_000, 0.025
DECISIONS, MOST_MORE = 1_000_000, 50e6  # bytes


def rows() -> Iterator[Row]:
    names = rivals()
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        ours = stack.enter_context(running("-m", "alphafair", "serve", "--db", f"{folder}/bench.db", "--port"))
        ports = {name: stack.enter_context(running("-m", "benchmarks.contenders", name)) for name in names}
        begin(ours)
        load(ours, "decide_and_reward", seconds=1.0)
        best = dict.fromkeys(["ours", *names], 0.0)
        for _ in range(TURNS):
            for name, port in {"ours": ours, **ports}.items():
                kind = "nothing" if name == "starlette" else "decide_and_reward"
                best[name] = max(best[name], load(port, kind)["per_second"])
        for name, at_least in AT_LEAST.items():
            ratio = best["ours"] / best[name]
            yield Row(
                "decide and reward over HTTP, half and half, durable, per second",
                f"{best['ours']:,.0f}",
                names[name],
                f"{best[name]:,.0f}",
                f"{ratio:.3g} x",
                f"at least {at_least:g} x",
                ratio >= at_least,
            )
        half = min(
            (load(ours, "decide_and_reward", rate=best["ours"] / 2) for _ in range(TURNS)),
            key=lambda found: found["p99"],
        )
        yield Row(
            f"decide and reward over HTTP at {half['per_second']:,.0f} per second, half of that load: p99",
            duration(half["p99"]),
            "p50",
            duration(half["p50"]),
            f"{half['p99'] / half['p50']:.3g} x",
            f"under {duration(P99)}",
            half["p99"] < P99,
        )
        batched = (
            max(load(ours, "batches", connections=CONNECTIONS_OF_BATCHES)["per_second"] for _ in range(TURNS)) * BATCH
        )
        yield Row(
            f"batches of {BATCH} over HTTP, events per second",
            f"{batched:,.0f}",
            "one at a time",
            f"{best['ours']:,.0f}",
            f"{batched / best['ours']:.3g} x",
            f"at least {BATCHED:,}",
            batched >= BATCHED,
        )
        before = metrics(ours)
        while (now := metrics(ours))["alphafair_decisions_total"] < before["alphafair_decisions_total"] + DECISIONS:
            load(ours, "batches", seconds=5.0, connections=CONNECTIONS_OF_BATCHES)
        grown = now["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]
        yield Row(
            "memory of the service over a million decisions",
            f"{grown / 1e6:.0f} MB more",
            "all it had before",
            f"{before['process_resident_memory_bytes'] / 1e6:.0f} MB",
            "-",
            "flat: under 50 MB",
            grown < MOST_MORE,
        )


def metrics(port: int) -> dict[str, float]:
    """The values of /metrics by name, without labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {line.partition("{")[0].partition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def rivals() -> dict[str, str]:
    return {
        "starlette": f"an empty POST, {named('starlette')}",
        "vowpal_wabbit": f"{named('fastapi')} around {named('vowpalwabbit')}, in memory",
        "mabwiser": f"{named('fastapi')} around {named('mabwiser')}, in memory",
    }


@contextlib.contextmanager
def running(*command: str) -> Iterator[int]:
    """Start a server; the last argument of its command is a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, *command, str(port)], stderr=subprocess.DEVNULL)
    try:
        while True:
            assert server.poll() is None, f"{command} has ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


def until_ready(port: int) -> str:
    """The address of a service, once it is ready."""
    url = f"http://127.0.0.1:{port}"
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/ready"):
            return url
        time.sleep(0.1)


def begin(port: int) -> None:
    """Create the experiment when the service is ready."""
    url = until_ready(port)
    body = {"name": "bench", "arms": [f"arm-{k}" for k in range(N_ARMS)], "alpha": ALPHA}
    with urllib.request.urlopen(f"{url}/v1/experiments", json.dumps(body).encode()):
        pass


def load(
    port: int,
    kind: str,
    *,
    seconds: float = SECONDS,
    connections: int = CONNECTIONS,
    rate: float | None = None,
    experiment: str = "bench",
) -> dict[str, Any]:
    """Run the load generator and return its result; every answer must be 200."""
    options = [
        "--connections",
        str(connections),
        "--experiment",
        experiment,
        *([] if rate is None else ["--rate", str(rate)]),
    ]
    command = [sys.executable, "-m", "benchmarks.load", str(port), kind, str(seconds), *options]
    folder = Path(__file__).parents[1]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=folder).stdout)
    assert set(found["statuses"]) == {"200"}, found
    return found
