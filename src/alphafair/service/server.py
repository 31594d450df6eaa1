"""Run a service: listen, answer until it is told to stop, and end without losing anything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from alphafair.engine import Engine
from alphafair.engine.addresses import Address, is_url, shown
from alphafair.errors import InvalidArgument
from alphafair.service import keys
from alphafair.service.http.connections import Connection, possible_connections
from alphafair.service.http.connections import Timeouts as Timeouts
from alphafair.service.logs import log, write_to_standard_error
from alphafair.service.service import DEFAULT_LIMITS, Limits, Service

GRACE = 30.0  # seconds in which requests in progress are answered after the service is told to stop
BACKLOG = 2048  # connections that the system accepts ahead of the service
SWITCH_INTERVAL = 5e-4  # seconds after which the thread that writes gets its turn beside the one that answers


class Server:
    """A service on some sockets, until `stop` or, in the main thread, SIGTERM or SIGINT."""

    def __init__(self, service: Service, sockets: list[socket.socket]) -> None:
        self.service, self.sockets = service, sockets
        self.started = threading.Event()
        self._signals = 0

    def run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        """Stop after the requests in progress are answered; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    def _on_signal(self) -> None:
        """Stop; at the second signal without waiting for requests in progress."""
        self._signals += 1
        self._stopped.set()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._on_signal)
        async with self.service.running():
            listening = [
                await self._loop.create_server(lambda: Connection(self.service), sock=each, backlog=BACKLOG)
                for each in self.sockets
            ]
            log(logging.INFO, "listening", addresses=[_socket_address(each.getsockname()) for each in self.sockets])
            self.started.set()
            await self._stopped.wait()
            log(logging.INFO, "stopping")
            for each in listening:
                each.close()
            await self.service.watchers.close()
            await self._answer_the_rest()

    async def _answer_the_rest(self) -> None:
        """Close all connections after their complete requests are answered."""
        connections = self.service.connections
        for connection in list(connections.open):
            connection.shutdown()
        until = self._loop.time() + GRACE
        while (connections.open or connections.tasks) and self._signals < 2:
            if self._loop.time() > until:
                log(logging.ERROR, "requests were not answered in time", count=len(connections.tasks))
                break
            await asyncio.sleep(0.02)
        for task in list(connections.tasks):
            task.cancel()


def serve(
    address: Address,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    unix_socket: Path | None = None,
    root_path: str = "",
    limits: Limits = DEFAULT_LIMITS,
    log_all: bool = False,
    must_exist: bool = False,
    max_contexts: int | None = None,
    accept_clock: bool = False,
) -> None:
    """Serve a file or a database until SIGTERM or SIGINT; requests that were accepted by then are answered.

    One that does not exist or is empty is created, and the log has a warning; with `must_exist` it is rejected. With
    `accept_clock` the clock is taken for right, although it has jumped ahead since another process used the file.
    """
    if unix_socket is not None and not unix_socket.absolute().parent.is_dir():
        repair = "Create the directory first."
        raise InvalidArgument("unix_socket", "a path in an existing directory", str(unix_socket), repair)
    root_path = f"/{root_path.strip('/')}".rstrip("/")
    limits = limits._replace(max_connections=possible_connections(limits.max_connections))
    engine = Engine.open(address, create=not must_exist, max_contexts=max_contexts)
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)  # nothing is left to do if the service has closed it
        if accept_clock:
            engine.accept_clock()
        if unix_socket is None and not is_loopback(host) and not keys.any_valid(address):
            repair = f"Create a key first: alphafair keys create --db {shown(address)} --role admin --name you"
            raise InvalidArgument("host", "127.0.0.1, ::1 or localhost while there are no keys", host, repair)
        sockets = bound_to_port(host, port) if unix_socket is None else [stack.enter_context(bound(unix_socket))]
        for each in sockets:
            stack.callback(each.close)
        service = Service(engine, address, limits=limits, root_path=root_path, log_all=log_all)
        write_to_standard_error()
        log_store(engine, address)
        sys.setswitchinterval(SWITCH_INTERVAL)
        Server(service, sockets).run()


def bound_to_port(host: str, port: int) -> list[socket.socket]:
    """Sockets for the addresses of a host; one that this machine does not have, such as ::1, is left out."""
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as unknown:
        found, problem = [], unknown
    for family, address in {(family, address) for family, _, _, _, address in found}:
        try:
            sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
        except OSError as taken:
            if taken.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or problem is None:
                problem = taken
    if problem is None or (sockets and problem.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)):
        return sockets
    for each in sockets:
        each.close()
    reason = (problem.strerror or str(problem)).lower()
    allowed = f"a free address of this machine ({reason})"
    repair = "Choose another host or port, or stop the program that uses it."
    raise InvalidArgument("host and port", allowed, f"{host}:{port}", repair)


@contextlib.contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    """A Unix socket at a path, accessible to its owner and group only; the path is removed at the end."""
    if path.is_socket():
        with contextlib.suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            repair = "Stop the other service."
            raise InvalidArgument("unix_socket", "a socket that no other process listens on", str(path), repair)
        path.unlink()  # a process that was killed has left it
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o117)
        try:
            listening.bind(str(path))
        except OSError as problem:
            allowed = f"a path to bind to ({problem.strerror or problem})"
            repair = "Choose a path that is free and short."
            raise InvalidArgument("unix_socket", allowed, str(path), repair) from None
        finally:
            os.umask(before)
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


def log_store(engine: Engine, address: Address) -> None:
    """Log what is served, with a warning if it was just created: the path may be mistyped."""
    what = "database" if is_url(address) else "file"
    path = shown(address) if is_url(address) else str(Path(address).resolve())
    fields: dict[str, Any] = {"path": path, "events": engine.position}
    fields["experiments"] = len(engine.experiments())
    opened = engine.writers.store.opened
    if opened.was_empty:
        log(
            logging.WARNING,
            f"the {what} did not exist or was empty: created (`alphafair serve --must-exist` rejects that)",
            **fields,
        )
    else:
        log(logging.INFO, f"serving a {what}", **fields)
    if opened.readable_by_others:
        message = "other users of this machine can read the file: run chmod go= on it"
        log(logging.WARNING, message, path=fields["path"])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _socket_address(address: Any) -> str:
    """A socket's address as a URL or a path."""
    if not isinstance(address, tuple):
        return str(address)
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
