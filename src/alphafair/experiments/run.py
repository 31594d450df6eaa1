"""Running experiments: tables are written as they are done, so a stopped run goes on where it was.

Every task of an experiment is one Parquet file in a folder named by the experiment's digest, beside its settings as
JSON. A file that cannot be read is made again. Kernels release the GIL, so threads use all cores.
"""

import json
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

import polars as pl

import alphafair
from alphafair.experiments.atomic_write import atomic_write, write_text
from alphafair.experiments.digests import digest, report_digest
from alphafair.experiments.experiment import Task, Work

Started = Callable[[str, int], Callable[[int], None]]  # told a title and a total, it says whom to tell of progress


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
