"""Many concurrent calls of the asynchronous client, compared with aiohttp, and what importing the clients costs."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench_service import begin, running
from benchmarks.table import Row, duration, named
from benchmarks.timing import best

TURNS, CALLS = 5, 1000
AT_LEAST, AT_MOST = 0.8, 1.0  # of the rival's speed; seconds
IMPORT = 0.1  # seconds of CPU, beyond those of Python itself


def rows() -> Iterator[Row]:
    taken = best(
        {code: partial(processor_seconds, code) for code in ("pass", "from alphafair_client import Client")}, TURNS
    )
    bare, ours = taken.values()
    yield Row(
        "from alphafair_client import Client, CPU",
        duration(ours),
        "python -c pass",
        duration(bare),
        f"{ours / bare:.3g} x",
        f"under {duration(IMPORT)} more",
        ours - bare < IMPORT,
    )
    with tempfile.TemporaryDirectory() as folder:
        command = ("-m", "alphafair", "serve", "--db", f"{folder}/bench.db", "--port")
        with running(*command) as port:
            begin(port)
            seconds = best({client: partial(in_flight, port, client) for client in ("ours", "aiohttp")}, TURNS)
            ratio = seconds["aiohttp"] / seconds["ours"]
            yield Row(
                f"{CALLS:,} decisions in flight, AsyncClient, durable",
                duration(seconds["ours"]),
                named("aiohttp"),
                duration(seconds["aiohttp"]),
                f"{ratio:.3g} x",
                f"under {duration(AT_MOST)}, at least {AT_LEAST:g} x",
                ratio >= AT_LEAST and seconds["ours"] < AT_MOST,
            )


def processor_seconds(code: str) -> float:
    """What a process costs that runs this code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_flight(port: int, client: str) -> float:
    command = [sys.executable, "-m", "benchmarks.in_flight", str(port), client, str(CALLS)]
    folder = Path(__file__).parents[1]
    return float(subprocess.run(command, check=True, capture_output=True, cwd=folder).stdout)
