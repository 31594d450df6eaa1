"""Run a plan: every task of every experiment, on any executor, keeping tables on disk.

Each table is a Parquet file in a folder named after a digest of the experiment's settings, its rounds and the code that
computes it. An interrupted run continues where it stopped, a second run reads everything back, and results of other
code or settings are never reused. Kernels release the GIL, so the default executor is a pool of threads.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from alphafair.child import Child, ChildFailed
from alphafair.code_version import code_digest
from alphafair.jit import cache_folder, using_mode
from alphafair.lab.plan import (
    ConstantRewards,
    Experiment,
    FromRatings,
    Generated,
    Plan,
    Rounds,
    Task,
    settings_by_policy,
    short_digest,
)
from alphafair.pages import atomic_write
from alphafair.tasks import n_workers, run_tasks
from alphafair.values import Adversary, Stream

Progress = Callable[[str, int], Callable[[int], None]]  # called with a title and a total, returns what counts
COMPUTING = (  # all code that a table depends on
    "extras.py",
    "tables.py",
    *(f"{name}/*.py" for name in ("algorithms", "data", "lab/rivals", "math", "metrics", "notions", "offline")),
    *(f"{name}/*.py" for name in ("policy", "streams", "values")),
    *(f"{name}.py" for name in ("errors", "groups", "jit", "machine_code", "memory_limit")),
    *(f"{name}.py" for name in ("preprocessing", "run", "lab/fairness", "lab/notions", "lab/plan")),
)
SLOW_TO_COMPILE = ("alpha-fair-adaptive", "fair-cb", "optimum")  # each gets a process of its own
TINY = Generated("impossibility", (("n_half", 1),))


def no_progress(title: str, total: int) -> Callable[[int], None]:
    """No progress output."""
    return lambda done: None


@dataclass(frozen=True)
class Run:
    """An experiment that was run: the rounds of its first seed, the digest of its results, and its tables by name."""

    experiment: Experiment
    stream: Stream
    digest: str
    tables: Mapping[str, pl.DataFrame]


def run_plan(
    plan: Plan,
    folder: Path,
    *,
    streams: Mapping[Rounds, Stream] | None = None,
    executor: Executor | None = None,
    progress: Progress = no_progress,
) -> Iterator[Run]:
    """Run the experiments of a plan one after another, reading the tables that the folder has already.

    Parameters
    ----------
    streams
        Rounds that are in memory already, by their source; `FromRatings` must be among them. Others are made.
    executor
        Runs the tasks, see `alphafair.executors`; by default a thread per core. Results do not depend on it. With a
        single worker, kernels are compiled in this process alone.
    progress
        Called with the title and the number of tasks of each experiment; the function that it returns is called with
        the number of tasks done.
    """
    compiled = False
    with _executor(executor) as pool:
        for experiment in plan:
            source = experiment.rounds
            first = (streams or {}).get(source)
            rounds = _make(source) if first is None else first
            stream = rounds.stream if isinstance(rounds, Adversary) else rounds
            settings, tasks = experiment.settings(stream), experiment.tasks(rounds)
            digest = short_digest([settings, code_digest(COMPUTING)])
            home = folder / f"{experiment.name}-{digest}"
            home.mkdir(parents=True, exist_ok=True)
            atomic_write(home / "experiment.json", json.dumps(settings, indent=2, sort_keys=True) + "\n")
            kept = {name: table for name in tasks if (table := _read(home / f"{name}.parquet")) is not None}
            missing = {name: task for name, task in tasks.items() if name not in kept}
            if missing and not compiled:
                compile_plan(plan, workers=n_workers(pool), progress=progress)
                compiled = True
            advance = progress(experiment.title, len(tasks))
            advance(len(kept))
            for name, table in run_tasks(missing, pool, shared=() if source.seeded else (rounds,)):
                content = BytesIO()
                table.write_parquet(content)
                atomic_write(home / f"{name}.parquet", content.getvalue())
                kept[name] = table
                advance(1)
            yield Run(experiment, stream, digest, {name: kept[name] for name in tasks})


@contextmanager
def _executor(given: Executor | None) -> Iterator[Executor]:
    if given is not None:
        yield given
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield pool


def _make(source: Rounds) -> Stream | Adversary:
    if isinstance(source, FromRatings):
        raise KeyError(f"streams lacks the rounds of {source}")
    return source.make(0)


def _read(path: Path) -> pl.DataFrame | None:
    """The table, or None where there is none that can be read."""
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None


# compiling before the first task, so that progress shows the tasks' own work


def compile_plan(plan: Plan, *, workers: int | None = None, progress: Progress = no_progress) -> None:
    """Compile every kernel that a plan uses.

    Numba compiles one kernel at a time in a process, so those that take longest are compiled in other processes into
    the disk cache and loaded from there. With everything in the cache this takes about a second.
    """
    parts = compile_tasks(plan)
    slow = [name for name in SLOW_TO_COMPILE if name in parts]
    names = [*sorted(parts.keys() - {*slow}), *slow]
    advance = progress("Compiling", len(names))
    helpers = {}
    if workers != 1 and cache_folder() is not None:
        helpers = {name: Child.start("plan", pickle.dumps(parts[name]), nice=0) for name in slow}
    try:
        for name in names:
            if name in helpers:
                with suppress(ChildFailed):
                    helpers[name].result()
            compile_here(parts[name])  # which raises the error if there was one
            advance(1)
    finally:
        for helper in helpers.values():
            helper.close()


def compile_tasks(plan: Plan) -> dict[str, list[Task]]:
    """Tiny tasks that together use every kernel of a plan, by policy, and those of the optimum."""
    found: dict[str, list[Task]] = {}
    seen = set()
    for experiment in plan:
        source = experiment.rounds
        tiny: Rounds = TINY
        if isinstance(source, Generated) and (source.maker == "adversary" or source.n_clusters is not None):
            tiny = source.smoke()
        tiny_experiment = replace(experiment, rounds=tiny, alphas=experiment.alphas[:1], n_seeds=1, n_records=1)
        tuned = [settings[0] for settings in settings_by_policy(experiment.tuned).values()]  # all have the same kernels
        for contender in (*experiment.contenders, *tuned):
            kernels = (contender.key, tiny, experiment.delay is None, experiment.k)
            if kernels not in seen:
                seen.add(kernels)
                alone = replace(tiny_experiment, contenders=(contender,), tuned=())
                found.setdefault(contender.policy, []).extend(_tasks(alone))
    curve = replace(
        plan.experiments[0], rounds=ConstantRewards((1.0, 0.5), 2), n_records=2, optimum=True, contenders=(), tuned=()
    )
    final = replace(curve, n_records=1)
    return found | {"optimum": [*_tasks(curve), *_tasks(final)]}


def _tasks(experiment: Experiment) -> Iterable[Task]:
    return experiment.tasks(_make(experiment.rounds)).values()


def compile_here(tasks: Iterable[Callable[[], Any]]) -> None:
    """Run tasks in machine code."""
    with using_mode("now"):
        for task in tasks:
            task()
