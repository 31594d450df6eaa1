"""Executors for everything that takes `executor=`; any other `concurrent.futures.Executor` is accepted as well.

    ThreadPoolExecutor(2)                 threads of this process; machine code releases the GIL
    ProcessPool(2)                        processes of this machine; one that is killed is replaced
    connect("tls://scheduler:8786")       a Dask cluster; the same as `distributed.Client(...).get_executor()`

`alphafair.tasks` brings work to their workers.
"""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar
from urllib.parse import urlsplit

from alphafair.errors import InvalidArgument, WorkerFailed
from alphafair.extras import needed_by

Result = TypeVar("Result")
MOST_KILLS = 3  # of workers in a row, without a task that was done in between
ONE_THREAD = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # in each process


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

CERTIFICATES = "Name them in Dask's configuration, distributed.comm.tls: ca-file, client.cert and client.key."


def connect(address: str, *, insecure: bool = False) -> Executor:
    """An executor of a Dask cluster, by the address of its scheduler; leave its context to disconnect.

    Whoever reaches a scheduler can run any code on its workers, and whoever listens can read what travels. So a plain
    tcp:// address must be one of this machine, unless `insecure`. A tls:// address needs the certificates of the
    cluster in Dask's own configuration (distributed.comm.tls).

    >>> with connect("tcp://127.0.0.1:8786") as executor:  # doctest: +SKIP
    ...     evaluation.frontier(log, executor=executor)
    """
    _check_address(address, insecure)
    with needed_by("A Dask cluster", "dask"):
        from distributed import Client
        from distributed.security import Security
    security = None
    if urlsplit(address).scheme == "tls":
        security = Security(require_encryption=True)
        if security.tls_ca_file is None or security.tls_client_cert is None:
            raise InvalidArgument("address", "given with certificates for tls://", address, CERTIFICATES)
    try:
        client = Client(address, security=security, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as problem:
        reason = str(problem).partition("\n")[0].rstrip(".") or type(problem).__name__
        repair = f"Start one with `dask scheduler`, or correct the address ({reason})."
        raise InvalidArgument("address", "the address of a Dask scheduler", address, repair) from problem
    return _executor_of(client)


def _check_address(address: str, insecure: bool) -> None:
    """Refuse an address without encryption that is not of this machine."""
    try:
        parts = urlsplit(address)
        scheme, host = parts.scheme, parts.hostname
        complete = scheme in ("tcp", "tls") and bool(host) and parts.port is not None
    except ValueError:
        complete = False
    if not complete:
        repair = "Write it as the scheduler prints it."
        raise InvalidArgument("address", "an address such as tcp://127.0.0.1:8786 or tls://host:8786", address, repair)
    if scheme == "tls":
        return
    if not (insecure or _is_loopback(str(host))):
        allowed = "a tls:// address, or one of this machine"
        repair = "Pass tls:// with certificates; or, on a network that you trust, insecurely (insecure=)."
        raise InvalidArgument("address", allowed, address, repair)


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine.

    >>> _is_loopback("127.0.0.1"), _is_loopback("::1"), _is_loopback("localhost"), _is_loopback("10.0.0.1")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _executor_of(client: Any) -> Executor:
    """An executor that closes its client when it is left."""
    from distributed.cfexecutor import ClientExecutor

    class Connected(ClientExecutor):  # type: ignore[misc]
        def shutdown(self, wait: bool = True, **options: Any) -> None:
            super().shutdown(wait)
            client.close()

    executor: Executor = Connected(client)
    return executor
