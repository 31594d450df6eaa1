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
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import polars as pl

import alphafair
from alphafair.experiments.atomic_write import atomic_write, write_text
from alphafair.types import Stream

Task = Callable[[], pl.DataFrame]
Started = Callable[[str, int], Callable[[int], None]]  # told a title and a total, it says whom to tell of progress
COMPUTING = (  # all code that a table depends on
    "kernels/*.py",
    "policies/*.py",
    "streams/*.py",
    *(f"{name}.py" for name in ("arrays", "contexts", "decision", "drive", "groups", "jit", "log", "metrics")),
    *(f"{name}.py" for name in ("offline", "played", "reduction", "rewards", "simulation", "types")),
    *(f"experiments/{name}.py" for name in ("experiment", "match", "published", "rival")),
)
REPORTING = ("**/*.py", "*.mplstyle", "experiments/templates/*")  # and all that makes a report of the tables


class Work(Protocol):
    """What is asked of an experiment: what names its results, and tasks by name, each of which makes a table."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    def settings(self) -> dict[str, Any]: ...
    def tasks(self) -> dict[str, Task]: ...


def digest(work: Work) -> str:
    """Names the results of an experiment: the same settings on the same rounds, run by the same code."""
    return short_digest([work.settings(), code_digest()])


def short_digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_digest() -> str:
    """The code that results depend on, in sixteen letters: change it, and they are computed again."""
    return files_digest(Path(alphafair.__file__).parent, COMPUTING)


@cache
def report_digest() -> str:
    """The code above and all that draws and lays out the report: change it, and the report is made again."""
    return files_digest(Path(alphafair.__file__).parent, REPORTING)


def files_digest(package: Path, patterns: tuple[str, ...]) -> str:
    """The names and contents of the files of a package that match."""
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
    own = {"alphafair": alphafair.__version__, "code": report_digest(), "python": platform.python_version()}
    return own | {package: version(package) for package in packages}


def run(
    work: Work, home: Path, *, jobs: int | None = None, advance: Callable[[int], None] = lambda tables: None
) -> Path:
    """Run what has not been run: the folder of all tables; `advance` is told of every one that is there."""
    folder = home / f"{work.name}-{digest(work)}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "experiment.json", json.dumps(work.settings(), indent=2, sort_keys=True) + "\n")
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count()) as pool:
        futures = []
        for name, task in work.tasks().items():
            path = folder / f"{name}.parquet"
            if _is_sound(path):
                advance(1)
            else:
                futures.append(pool.submit(_write, task, path))
        try:
            for future in as_completed(futures):
                future.result()
                advance(1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return folder


def is_done(work: Work, home: Path) -> bool:
    """Whether nothing is left to run."""
    folder = home / f"{work.name}-{digest(work)}"
    return all(_is_sound(folder / f"{name}.parquet") for name in work.tasks())


def read(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{name}.parquet")


def _is_sound(path: Path) -> bool:
    try:
        pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def _write(task: Task, path: Path) -> None:
    table = task()
    with atomic_write(path) as temporary:
        table.write_parquet(temporary)
