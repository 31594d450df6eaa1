"""Running experiments: tables are written as they are done, so a stopped run goes on where it was.

Every task of an experiment is one Parquet file in a folder named by the experiment's digest, beside its settings as
JSON. So nothing old is reused and nothing is computed twice: what counts is the settings, the rounds, and the code that
plays them; the words and pictures of the report are no part of it. A file that cannot be read is made again. Kernels
release the GIL, so threads use all cores.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

import alphafair
from alphafair.lab.atomic_write import atomic_write
from alphafair.values import Stream

PACKAGE = Path(alphafair.__file__).parent
Task = Callable[[], pl.DataFrame]
Started = Callable[[str, int], Callable[[int], None]]  # told a title and a total, it says whom to tell of progress
COMPUTING = (  # all code that a table depends on
    "algorithms/*.py",
    "math/*.py",
    "offline/*.py",
    "streams/*.py",
    *(f"{name}.py" for name in ("algorithm", "arrays", "available", "contexts", "csv_text", "data", "decision")),
    *(f"{name}.py" for name in ("group_accounts", "groups", "jit", "log", "loops", "machine_code")),
    *(f"{name}.py" for name in ("memory", "memory_limit", "metrics", "played", "policy", "random_numbers")),
    *(f"{name}.py" for name in ("regressors", "rewards", "run", "simulation", "types")),
    *(f"experiments/{name}.py" for name in ("experiment", "match", "published", "rival")),
)
REPORTING = ("**/*.py", "*.mplstyle", "experiments/templates/*")  # and all that makes a report of the tables


@dataclass(frozen=True)
class Work:
    """What is to be run: what names its results, and tasks by name, each of which makes a table."""

    name: str
    title: str
    settings: dict[str, Any]
    tasks: dict[str, Task]

    @property
    def digest(self) -> str:
        """Names the results: the same settings on the same rounds, run by the same code."""
        return short_digest([self.settings, code_digest()])


def short_digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_digest(patterns: tuple[str, ...] = COMPUTING, package: Path = PACKAGE) -> str:
    """The names and contents of the files of a package that match, in sixteen letters."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in package.glob(pattern) if path.is_file()}):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def stream_digest(stream: Stream) -> str:
    """What a stream's rounds are, in sixteen letters."""
    found = hashlib.sha256()
    for array in (stream.contexts, stream.items, stream.reward_table):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()[:16]


def untold(title: str, total: int) -> Callable[[int], None]:
    """Nobody is told."""
    return lambda done: None


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = ("numpy", "numba", "polars", "matplotlib")
    own = {"alphafair": alphafair.__version__, "code": code_digest(REPORTING), "python": platform.python_version()}
    return own | {package: version(package) for package in packages}


def run(
    work: Work,
    home: Path,
    *,
    jobs: int | None = None,
    started: Started = untold,
    prepare: Callable[[], None] = lambda: None,
) -> dict[str, pl.DataFrame]:
    """All tables by name: those that are kept are read, the others made, after `prepare`, and kept."""
    folder = home / f"{work.name}-{work.digest}"
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "experiment.json", json.dumps(work.settings, indent=2, sort_keys=True) + "\n")
    tables = {name: table for name in work.tasks if (table := _read(folder / f"{name}.parquet")) is not None}
    missing = {name: task for name, task in work.tasks.items() if name not in tables}
    if missing:
        prepare()
    advance = started(work.title, len(work.tasks))
    advance(len(tables))
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count()) as pool:
        making = {pool.submit(_made, task, folder / f"{name}.parquet"): name for name, task in missing.items()}
        try:
            for future in as_completed(making):
                tables[making[future]] = future.result()
                advance(1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: tables[name] for name in work.tasks}


def _read(path: Path) -> pl.DataFrame | None:
    """The table, or None where there is none that can be read."""
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None


def _made(task: Task, path: Path) -> pl.DataFrame:
    table, content = task(), BytesIO()
    table.write_parquet(content)
    atomic_write(path, content.getvalue())
    return table
