"""How soon a fresh process answers, and what the first simulation on a fresh machine costs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

SIMULATION = """
from alphafair import AlphaFair, simulate, streams
simulate(AlphaFair(33, 19), streams.ratings(1000, 33, 19))
"""
REPEATS = 5
ANSWER, FEW_SECONDS, AT_ONCE = 0.4, 10.0, 1.0  # limits


def rows() -> Iterator[Row]:
    python = sys.executable
    installed = Path(python).with_name("alphafair")
    command = [str(installed)] if installed.exists() else [python, "-m", "alphafair"]
    times = best(
        {
            "python -c pass": lambda: process(python, "-c", "pass"),
            "import alphafair": lambda: process(python, "-c", "import alphafair"),
            "alphafair --help": lambda: process(*command, "--help"),
        },
        REPEATS,
    )
    bare = times.pop("python -c pass")
    for job, taken in times.items():
        yield limited(job, taken, "python -c pass", bare, ANSWER)
    with tempfile.TemporaryDirectory() as folder:
        first = process(python, "-c", SIMULATION, NUMBA_CACHE_DIR=folder)
        turns = {"second": lambda: process(python, "-c", SIMULATION, NUMBA_CACHE_DIR=folder)}
        second = best(turns, REPEATS)["second"]
    yield limited("first simulation, nothing compiled yet", first, "the second time", second, FEW_SECONDS)
    yield limited("simulation of 1,000 rounds, start to end", second, "python -c pass", bare, AT_ONCE)


def process(*command: str, **environment: str) -> float:
    """Wall time of a process from start to end."""
    settings = {**os.environ, **environment}
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True, env=settings))


def limited(job: str, taken: float, rival: str, theirs: float, most: float) -> Row:
    """A whole process may take at most so many seconds."""
    return Row(
        job, duration(taken), rival, duration(theirs), f"{taken / theirs:.3g} x", f"under {most:g} s", taken < most
    )
