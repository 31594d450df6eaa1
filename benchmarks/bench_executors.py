"""Work on executors: the report on a Dask cluster and on a process pool, a log in 50 files on one worker and on two.

Everything must be equal to the last bit. `python -m benchmarks.bench_executors [ROWS]` measures with a log of so many
rows, 100 million by default; `... cluster` the report alone, with a worker that is killed in the middle.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from alphafair.evaluation import LogFile, evaluate_all
from alphafair.executors import ProcessPool, connect
from alphafair.lab import runner
from alphafair.lab.reproduction import Data, measure_all
from alphafair.lab.results import plain
from benchmarks.table import Row, duration, faster, print_table
from benchmarks.timing import seconds
from tests.clusters import local_cluster

FILES, ROWS = 50, 100_000_000
N_CONTEXTS, N_ARMS = 33, 19
TURNS, KILL_AFTER = 2, 120
POLICIES = {"logged": "logged", "uniform": "uniform", "fair": "fair"}


def rows(n_rows: int = ROWS) -> Iterator[Row]:
    yield from report_rows()
    yield from log_rows(n_rows)


def report(executor: Executor) -> dict[str, Any]:
    """All experiments of the report, from the beginning."""
    with tempfile.TemporaryDirectory() as folder:
        return plain(measure_all(Data(), Path(folder), executor=executor))


def report_rows() -> Iterator[Row]:
    """The workers of both start and load machine code before the clock does; the best of turns counts."""
    expected, times = None, {"pool": [], "cluster": [], "threads": []}
    with ProcessPool(2) as pool, local_cluster(2) as local, connect(local.scheduler_address) as dask, threads(2) as two:
        for turn in range(TURNS + 1):
            for name, executor in (("pool", pool), ("cluster", dask), ("threads", two)):
                start = time.perf_counter()
                found = report(executor)
                times[name].append(time.perf_counter() - start)
                expected = expected or found
                assert found == expected, f"{name}: other numbers"
            if turn == 0:
                times = {name: [] for name in times}
    best = {name: min(taken) for name, taken in times.items()}
    yield faster("reproduce on Dask, two workers", best["cluster"], "two processes", best["pool"], 0.9)
    yield faster("reproduce on two threads", best["threads"], "two processes", best["pool"], 1.0)
    yield killed_row(expected)


def threads(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n)


def killed_row(expected: dict[str, Any] | None = None) -> Row:
    """The report on a cluster that loses one of its two workers in the middle."""
    write, written = runner.atomic_write, []
    with threads(2) as two:
        expected = expected or report(two)
    with local_cluster(2) as local, connect(local.scheduler_address) as dask:
        from distributed import Client

        with Client(local.scheduler_address, set_as_default=False) as client:
            pid = next(iter(client.run(os.getpid).values()))

        def counting(path: Path, content: Any) -> None:
            write(path, content)
            written.append(path.name)
            if len(written) == KILL_AFTER:
                os.kill(pid, signal.SIGKILL)

        runner.atomic_write = counting  # type: ignore[assignment]
        try:
            start = time.perf_counter()
            found = report(dask)
            taken = time.perf_counter() - start
        finally:
            runner.atomic_write = write
    same = found == expected and len(written) > KILL_AFTER
    job = f"reproduce on Dask, one of two workers killed after {KILL_AFTER} of {len(written)} files"
    return Row(job, duration(taken), "results without", "", "equal" if same else "DIFFERENT", "every bit", same)


def log_rows(n_rows: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as small:
        folder = Path(name)
        make_log(folder, n_rows)
        make_log(Path(small), 100 * FILES)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        results: dict[str, Any] = {}

        def run(label: str, executor: Executor | None) -> float:
            def work() -> None:
                log = LogFile(folder, executor=executor)
                found = evaluate_all(log, POLICIES, executor=executor)
                results[label] = {name: each.as_dict() for name, each in found.items()}

            return seconds(work)

        def warm_up(executor: Executor) -> None:
            """Let workers start and load modules and machine code before the clock does."""
            for _ in range(2):
                evaluate_all(LogFile(small, executor=executor), POLICIES, executor=executor)

        made: dict[str, Callable[[], Any]] = {
            "one process": lambda: ProcessPool(1),
            "two processes": lambda: ProcessPool(2),
        }
        times: dict[str, list[float]] = {label: [] for label in (*made, "one Dask worker", "two Dask workers")}
        for _ in range(TURNS):
            for label, make in made.items():
                with make() as executor:
                    warm_up(executor)
                    times[label].append(run(label, executor))
            for n, label in ((1, "one Dask worker"), (2, "two Dask workers")):
                with local_cluster(n) as local, connect(local.scheduler_address) as dask:
                    warm_up(dask)
                    times[label].append(run(label, dask))
            print({label: [round(each, 1) for each in taken] for label, taken in times.items()}, file=sys.stderr)
        first, *others = results.values()
        assert all(first == other for other in others), "other numbers"
        best = {label: min(taken) for label, taken in times.items()}
        job = f"evaluate, {n_rows / 1e6:g} million rows in {FILES} Parquet files ({size:.2f} GB)"
        for one, two in (("one process", "two processes"), ("one Dask worker", "two Dask workers")):
            yield faster(f"{job}, {two}", best[two], one, best[one], 1.6)


def make_log(folder: Path, n_rows: int) -> None:
    """Rows with integer labels, written file by file."""
    for number in range(FILES):
        rng, n = np.random.default_rng(number), n_rows // FILES
        columns = {
            "context": rng.integers(0, N_CONTEXTS, n).astype(np.int32),
            "arm": rng.integers(0, N_ARMS, n).astype(np.int32),
            "reward": (rng.random(n) < 0.3).astype(float),
            "propensity": np.full(n, 1.0 / N_ARMS),
        }
        pl.DataFrame(columns).write_parquet(folder / f"{number:03d}.parquet")


if __name__ == "__main__":
    if sys.argv[1:] == ["cluster"]:
        print_table([killed_row()])
    else:
        print_table([*rows(*map(int, sys.argv[1:]))])
