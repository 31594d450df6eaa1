"""Run tasks on any executor, with the same results on each.

A task is a callable without arguments. Threads call it as it is. To a process or a machine it travels pickled, without
the large values that many tasks share: each of those travels once, to a file from which processes read it, or as a
value of a Dask cluster. Every worker checks before a task that it runs the same code. Results are used in an order that
the executor has no part in, so that they are the same to the last bit wherever tasks ran.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import platform
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import alphafair
from alphafair.code_version import code_digest
from alphafair.errors import InvalidArgument, WorkerFailed
from alphafair.executors import ProcessPool

Result = TypeVar("Result")
Task = Callable[[], Result]
Submit = Callable[[Task[Any]], "Future[Any]"]
AHEAD = 2  # tasks per worker that are submitted before the first of them is needed
LIBRARIES = ("numba", "numpy")  # whose versions may change the last bit of a result


def run_tasks(
    tasks: Mapping[str, Task[Result]], executor: Executor, shared: Sequence[Any] = ()
) -> Iterator[tuple[str, Result]]:
    """Submit all tasks, and yield the name and the result of each as it is done.

    After an error no other task is started; results of those that were running are still yielded before it is raised.
    `shared` are the large values that tasks refer to.
    """
    error: BaseException | None = None
    with submitting(executor, shared) as submit:
        futures = {submit(task): name for name, task in tasks.items()}
        try:
            for future in as_completed(futures):
                if future.cancelled():
                    continue
                if (problem := future.exception()) is None:
                    yield futures[future], future.result()
                    continue
                error = error or problem
                for other in futures:
                    other.cancel()
        finally:
            for future in futures:
                future.cancel()
    if error is not None:
        raise explained(error)


def in_order(tasks: Iterable[Task[Result]], executor: Executor | None, shared: Sequence[Any] = ()) -> Iterator[Result]:
    """Yield the results of tasks in their order, whenever each is done; without an executor they run here.

    Only a few tasks per worker are submitted ahead of the result that is due, so that few results are in memory.
    """
    if executor is None:
        for task in tasks:
            yield task()
        return
    todo, ahead = iter(tasks), AHEAD * n_workers(executor)
    with submitting(executor, shared) as submit:
        futures = deque(submit(task) for task in itertools.islice(todo, ahead))
        try:
            while futures:
                try:
                    found = futures.popleft().result()
                except Exception as problem:
                    raise explained(problem) from problem.__cause__
                futures.extend(submit(task) for task in itertools.islice(todo, 1))
                yield found
        finally:
            for future in futures:
                future.cancel()


def n_workers(executor: Executor | None) -> int:
    """The number of tasks that an executor runs at a time; that of cores where it does not say."""
    if executor is None:
        return 1
    client = _dask_client(executor)
    if client is not None:
        return max(1, sum(int(n) for n in client.nthreads().values()))
    stated = getattr(executor, "n_workers", None) or getattr(executor, "_max_workers", None)
    return int(stated or os.cpu_count() or 1)


@contextmanager
def submitting(executor: Executor, shared: Sequence[Any] = ()) -> Iterator[Submit]:
    """A function that submits a task to an executor, in the form in which it travels to its workers."""
    if not isinstance(executor, Executor):
        repair = "Pass a ThreadPoolExecutor, alphafair.executors.ProcessPool or client.get_executor() of Dask."
        raise InvalidArgument("executor", "a concurrent.futures.Executor", executor, repair)
    if isinstance(executor, ThreadPoolExecutor):
        yield executor.submit
        return
    client = _dask_client(executor)
    with ExitStack() as stack:
        if client is not None:
            import cloudpickle

            pickler: Any = cloudpickle.Pickler  # also policies that were defined in a notebook
            given = [_on_cluster(client, value) for value in shared]
        elif isinstance(executor, ProcessPool | ProcessPoolExecutor):
            pickler = pickle.Pickler
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alphafair-"))) if shared else Path()
            given = [Stored.write(folder / str(number), value) for number, value in enumerate(shared)]
        else:  # unknown: it may run tasks anywhere, so each has all that it needs
            yield lambda task: executor.submit(call, worker_code(), task)
            return

        def submit(task: Task[Any]) -> Future[Any]:
            packed = io.BytesIO()
            _pickler(pickler)(packed, shared).dump(task)
            options = {} if client is None else {"pure": False}
            return executor.submit(call_packed, worker_code(), packed.getvalue(), *given, **options)

        yield submit


def explained(problem: BaseException) -> BaseException:
    """An error of an executor as one that says what to do; other errors as they are."""
    if isinstance(problem, BrokenExecutor) and not isinstance(problem, WorkerFailed):
        repair = "Pass alphafair.executors.ProcessPool, which replaces such a worker and repeats its tasks."
        return WorkerFailed(f"A worker process was killed, and this executor does not start another. {repair}")
    if type(problem).__name__ == "KilledWorker":
        repair = "See their logs; more memory for each, or a greater distributed.scheduler.allowed-failures, may help."
        return WorkerFailed(f"Dask gave up a task whose workers died. {repair}")
    if isinstance(problem, ModuleNotFoundError) and problem.name == "alphafair":
        repair = f"Install alphafair {alphafair.__version__} on every worker, and restart them."
        return WorkerFailed(f"A worker does not have alphafair. {repair}")
    return problem


def _dask_client(executor: Executor) -> Any:
    """The client of an executor of Dask; None for other executors."""
    module = sys.modules.get("distributed.cfexecutor")
    return executor._client if module is not None and isinstance(executor, module.ClientExecutor) else None


# What travels


def worker_code() -> str:
    """What must be the same on every worker for the same bits: this package, Python and the libraries that compute."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    digest = f"alphafair {alphafair.__version__} (code {code_digest()})"
    return f"{digest}, Python {'.'.join(platform.python_version_tuple()[:2])}, {libraries}"


_own_code = cache(worker_code)


def call(code: str, task: Task[Result]) -> Result:
    """Call a task in a worker that runs this code."""
    if _own_code() != code:
        repair = "Install the same versions on every worker, and restart them."
        raise WorkerFailed(f"Workers must run {code}; got {_own_code()}. {repair}")
    return task()


def call_packed(code: str, packed: bytes, *given: Any) -> Any:
    """Unpickle a task, with the values that it shares with others, and call it."""
    os.environ.setdefault("ALPHAFAIR_JIT", "now")  # a worker has so many tasks that machine code pays
    values = [value.read() if isinstance(value, Stored) else value for value in given]
    return call(code, _Unpickler(io.BytesIO(packed), values).load)()


@cache
def _pickler(base: Any) -> Any:
    """A pickler that writes the number of a shared value in its place."""

    class Pickler(base):  # type: ignore[misc]
        def __init__(self, file: io.BytesIO, shared: Sequence[Any]) -> None:
            super().__init__(file)
            self._numbers = {id(value): number for number, value in enumerate(shared)}

        def persistent_id(self, value: Any) -> int | None:
            return self._numbers.get(id(value))

    return Pickler


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, values: Sequence[Any]) -> None:
        super().__init__(file)
        self._values = values

    def persistent_load(self, number: int) -> Any:
        return self._values[number]


class Stored(NamedTuple):
    """A value in a file, which a process reads once."""

    path: Path

    @classmethod
    def write(cls, path: Path, value: Any) -> Stored:
        with path.open("wb") as file:
            pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
        return cls(path)

    def read(self) -> Any:
        with _reading:
            for other in [path for path in _read if path.parent != self.path.parent]:
                del _read[other]  # of earlier tasks
            if self.path not in _read:
                with self.path.open("rb") as file:
                    _read[self.path] = pickle.load(file)  # noqa: S301 - written by the process that started this one
            return _read[self.path]


_read: dict[Path, Any] = {}
_reading = threading.Lock()


def _same(value: Result) -> Result:
    return value


def _on_cluster(client: Any, value: Any) -> Any:
    """A value of the cluster: a task, not scattered data, so that it outlives the worker that holds it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # it is sent once
        return client.submit(_same, value, pure=False)
