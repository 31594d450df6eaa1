"""Run tasks on any `concurrent.futures.Executor`: threads, processes of this machine, or the workers of a Dask cluster.

A task is a callable without arguments. Threads call it as it is. To a process or a machine it travels pickled, without
the large values that many tasks share: each of those travels once, to a file from which processes read it, or as a
value of the cluster. Every worker checks before its first task that it runs the same code. Results are used in an order
that the executor has no part in, so that they are the same to the last bit wherever tasks ran.

    ThreadPoolExecutor(2)                 threads of this process; machine code releases the GIL
    ProcessPool(2)                        processes of this machine; one that is killed is replaced
    connect("tls://scheduler:8786")       a Dask cluster; `distributed.Client(...).get_executor()` is accepted as well
"""

from __future__ import annotations

import io
import ipaddress
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
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import alphafair
from alphafair.code_version import code_digest
from alphafair.errors import InvalidArgument, WorkerFailed
from alphafair.extras import needed_by

__all__ = ["ProcessPool", "connect"]

Result = TypeVar("Result")
Task = Callable[[], Result]
Submit = Callable[[Task[Any]], "Future[Any]"]
AHEAD = 2  # tasks per worker that are submitted before the first of them is needed
MOST_KILLS = 3  # of workers in a row, without a task that was done in between
ONE_THREAD = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # in each process
LIBRARIES = ("numba", "numpy")  # whose versions may change the last bit of a result


# Running tasks


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


# Processes of this machine


class ProcessPool(Executor):
    """Processes of this machine, one thread each. One that is killed is replaced, and unfinished tasks are repeated.

    After four kills in a row without a finished task, tasks fail with `WorkerFailed`: one of them takes its worker
    down. As with every pool that starts processes anew, a script that makes one needs `if __name__ == "__main__":`.

    >>> with ProcessPool(2) as pool:  # doctest: +SKIP
    ...     evaluation.evaluate(evaluation.LogFile("logs/"), policy, executor=pool)
    """

    def __init__(self, n_workers: int | None = None) -> None:
        self.n_workers = n_workers or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._kills, self._given_up, self._closed = 0, False, False
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.n_workers, mp_context=get_context("spawn"), initializer=_prepare)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Schedule a call."""
        future: Future[Result] = Future()
        with self._lock:
            if self._given_up:
                self._pool, self._kills, self._given_up = self._new(), 0, False
        self._submit(partial(fn, *args, **kwargs), future)
        return future

    def _submit(self, work: Callable[[], Any], future: Future[Any]) -> None:
        with self._lock:
            pool = self._pool
            try:
                inner = pool.submit(work)
            except BrokenProcessPool:  # it broke a moment ago
                inner = Future()
                inner.set_exception(BrokenProcessPool())
        inner.add_done_callback(partial(self._finish, pool, work, future))
        future.add_done_callback(lambda done: done.cancelled() and inner.cancel())

    def _finish(
        self, pool: ProcessPoolExecutor, work: Callable[[], Any], future: Future[Any], inner: Future[Any]
    ) -> None:
        if inner.cancelled():
            future.cancel()
        problem = None if inner.cancelled() else inner.exception()
        if isinstance(problem, BrokenProcessPool) and not future.cancelled():
            if self._replaced(pool):
                self._submit(work, future)
                return
            sentence = f"Worker processes were killed {MOST_KILLS + 1} times in a row: too little memory for a task?"
            problem = WorkerFailed(f"{sentence} Use fewer workers, or see the system's log.")
        else:
            self._kills = 0
        if not future.set_running_or_notify_cancel():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(inner.result())

    def _replaced(self, broken: ProcessPoolExecutor) -> bool:
        """Whether there is another pool than the one that broke; it is made by the first task that asks."""
        with self._lock:
            if self._pool is broken:
                self._given_up = self._kills >= MOST_KILLS
                if self._closed or self._given_up:
                    return False
                self._kills += 1
                self._pool = self._new()
            return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes."""
        with self._lock:
            self._closed = True
            pool = self._pool
        pool.shutdown(wait, cancel_futures=cancel_futures)


def _prepare() -> None:
    """Use one thread in a worker, since there is a worker for every core; and end it with the process that made it."""
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")

    def follow() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


# Dask


def connect(
    address: str,
    *,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> Executor:
    """An executor of a Dask cluster, by the address of its scheduler; leave its context to disconnect.

    Whoever reaches a scheduler can run any code on its workers, and whoever listens can read what travels. So a plain
    tcp:// address must be one of this machine, unless `insecure`. A tls:// address needs the certificates of the
    cluster: the files `ca`, `cert` and `key`, or Dask's own configuration (distributed.comm.tls).

    >>> with connect("tcp://127.0.0.1:8786") as executor:  # doctest: +SKIP
    ...     evaluation.frontier(log, executor=executor)
    """
    tls = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
    _check_address(address, any(value is not None for value in tls.values()), insecure)
    with needed_by("A Dask cluster", "dask"):
        from distributed import Client
        from distributed.security import Security
    security = None
    if urlsplit(address).scheme == "tls":
        files = {name: os.fspath(value) for name, value in tls.items() if value is not None}
        for name, path in files.items():
            if not Path(path).is_file():
                option = {"tls_ca_file": "ca", "tls_client_cert": "cert", "tls_client_key": "key"}[name]
                raise InvalidArgument(f"--dask-{option}", "a file that exists", path, "Correct the path.")
        security = Security(**files, require_encryption=True)
        if security.tls_ca_file is None or security.tls_client_cert is None:
            repair = "Pass the files with --dask-ca, --dask-cert and --dask-key, or set distributed.comm.tls in Dask."
            raise InvalidArgument("dask", "given with certificates for tls://", address, repair)
    try:
        client = Client(address, security=security, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as problem:
        reason = str(problem).partition("\n")[0].rstrip(".") or type(problem).__name__
        repair = f"Start one with `dask scheduler`, or correct the address ({reason})."
        raise InvalidArgument("dask", "the address of a Dask scheduler", address, repair) from problem
    return _executor_of(client)


def _check_address(address: str, with_files: bool, insecure: bool) -> None:
    """Refuse an address without encryption that is not of this machine."""
    try:
        parts = urlsplit(address)
        scheme, host = parts.scheme, parts.hostname
        complete = scheme in ("tcp", "tls") and bool(host) and parts.port is not None
    except ValueError:
        complete = False
    if not complete:
        repair = "Write it as the scheduler prints it."
        raise InvalidArgument("dask", "an address such as tcp://127.0.0.1:8786 or tls://host:8786", address, repair)
    if scheme == "tls":
        return
    if with_files:
        raise InvalidArgument("dask", "a tls:// address if certificates are given", address, "Write tls:// before it.")
    if not (insecure or is_loopback(str(host))):
        allowed = "a tls:// address, or one of this machine"
        repair = "Pass tls:// with --dask-ca, --dask-cert and --dask-key, or --insecure on a network that you trust."
        raise InvalidArgument("dask", allowed, address, repair)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _dask_client(executor: Executor) -> Any:
    """The client of an executor of Dask; None for other executors."""
    module = sys.modules.get("distributed.cfexecutor")
    return executor._client if module is not None and isinstance(executor, module.ClientExecutor) else None


def _executor_of(client: Any) -> Executor:
    """An executor that closes its client when it is left."""
    from distributed.cfexecutor import ClientExecutor

    class Connected(ClientExecutor):  # type: ignore[misc]
        def shutdown(self, wait: bool = True, **options: Any) -> None:
            super().shutdown(wait)
            client.close()

    executor: Executor = Connected(client)
    return executor
