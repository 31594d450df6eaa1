"""How soon a fresh process answers, and what the first simulation on a fresh machine costs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

SIMULATION = """
from alphafair import AlphaFair, simulate, streams
simulate(AlphaFair(33, 19), streams.stochastic(1000, 33, 19))
"""
REPEATS = 5


def rows() -> Iterator[Row]:
    times = best(
        {
            "python -c pass": lambda: process("-c", "pass"),
            "import alphafair": lambda: process("-c", "import alphafair"),
            "alphafair --help": lambda: process("-m", "alphafair", "--help"),
        },
        REPEATS,
    )
    bare = times.pop("python -c pass")
    for job, taken in times.items():
        yield limited(job, taken, "python -c pass", bare, 0.4)
    with tempfile.TemporaryDirectory() as folder:
        first = process("-c", SIMULATION, NUMBA_CACHE_DIR=folder)
        second = best({"again": lambda: process("-c", SIMULATION, NUMBA_CACHE_DIR=folder)}, REPEATS)["again"]
    yield limited("first simulation on a fresh machine", first, "itself, second time", second, 10.0)
    yield limited("simulation in a fresh process", second, "python -c pass", bare, 1.0)


def process(*arguments: str, **environment: str) -> float:
    """Wall time of a Python process from start to end."""
    command = [sys.executable, *arguments]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment}))


def limited(job: str, taken: float, rival: str, theirs: float, most: float) -> Row:
    """A whole process may take at most so many seconds."""
    return Row(
        job, duration(taken), rival, duration(theirs), f"{taken / theirs:.3g} x", f"under {most:g} s", taken < most
    )
