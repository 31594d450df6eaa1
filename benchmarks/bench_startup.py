"""How soon a fresh process answers, and what the first simulation on a fresh machine costs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

DECISION = """
from alphafair import AlphaFairAdaptive
policy = AlphaFairAdaptive(33, 19)
policy.update(policy.choose(0), 0.5)
"""
SIMULATION = """
from alphafair import AlphaFairAdaptive, simulate, streams
simulate(AlphaFairAdaptive(33, 19), streams.ratings(2000, 33, 19))
"""
COMPILE = ["-m", "alphafair", "compile", "alpha-fair-adaptive+bandit"]
REPEATS = 5
ANSWER, COLD, WARM, AT_ONCE, COMPILED = 0.4, 0.5, 0.3, 1.0, 15.0  # limits


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
        cache = {"NUMBA_CACHE_DIR": folder, "ALPHAFAIR_JIT": "auto"}
        jobs = {"decision": DECISION, "simulation": SIMULATION}
        turns = {name: partial(process, python, "-c", code, **cache) for name, code in jobs.items()}
        cold = best({name: partial(in_empty_folder, python, "-c", code) for name, code in jobs.items()}, REPEATS)
        compiling = process(python, *COMPILE, **cache)
        warm = best(turns, REPEATS)
    yield limited("first decision and its reward, nothing compiled yet", cold["decision"], "python -c pass", bare, COLD)
    yield limited("first decision and its reward, all compiled before", warm["decision"], "python -c pass", bare, WARM)
    yield limited(
        "2,000 rounds, start to end, nothing compiled yet", cold["simulation"], "python -c pass", bare, AT_ONCE
    )
    yield limited(
        "2,000 rounds, start to end, all compiled before", warm["simulation"], "python -c pass", bare, AT_ONCE
    )
    yield limited("all kernels of AlphaFairAdaptive, compiled", compiling, "python -c pass", bare, COMPILED)


def in_empty_folder(*command: str) -> float:
    """With nothing compiled, and with nobody who compiles."""
    with tempfile.TemporaryDirectory() as folder:
        blocked = Path(folder) / "file"  # not a folder, so that no helper starts and goes on after the process
        blocked.touch()
        return process(*command, NUMBA_CACHE_DIR=str(blocked), ALPHAFAIR_JIT="auto")


def process(*command: str, **environment: str) -> float:
    """Wall time of a process from start to end."""
    settings = {**os.environ, **environment}
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True, env=settings))


def limited(job: str, taken: float, rival: str, theirs: float, most: float) -> Row:
    """A whole process may take at most so many seconds."""
    return Row(
        job, duration(taken), rival, duration(theirs), f"{taken / theirs:.3g} x", f"under {most:g} s", taken < most
    )
