"""Run the service: addresses, keys, uvicorn, an end that loses nothing."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from alphafair.engine import Engine
from alphafair.errors import InvalidArgument
from alphafair.service import keys
from alphafair.service.app import Service
from alphafair.service.assemble import DEFAULT_LIMITS, Limits, service
from alphafair.service.connections import room_for
from alphafair.service.logs import log, write_to_standard_error
from alphafair.service.protocol import Protocol

PATIENCE = 30  # seconds in which requests on their way may still be answered
SWITCH = 5e-4  # seconds after which the thread that writes gets its turn beside the one that answers


def serve(
    path: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    unix_socket: Path | None = None,
    root_path: str = "",
    limits: Limits = DEFAULT_LIMITS,
    log_all: bool = False,
    must_exist: bool = False,
    max_contexts: int | None = None,
) -> None:
    """Serve a file until told to stop (SIGTERM, SIGINT); what was accepted by then is answered first.

    A file that is not there, or empty, is made, and the log says so; with `must_exist` it is refused.
    """
    if unix_socket is not None and not unix_socket.absolute().parent.is_dir():
        raise InvalidArgument("--unix-socket", "in a folder that is there", str(unix_socket), "Make the folder first.")
    root_path = f"/{root_path.strip('/')}".rstrip("/")
    limits = limits._replace(most_connections=room_for(limits.most_connections))
    engine = Engine.open(path, create=not must_exist, max_contexts=max_contexts)
    try:
        if unix_socket is None and not is_loopback(host) and not keys.any_valid(path):
            repair = f"Make one first: alphafair keys create --db {path} --role admin --name you"
            raise InvalidArgument("--host", "127.0.0.1, ::1 or localhost as long as there are no keys", host, repair)
        application = service(engine, path, limits=limits, root_path=root_path, log_all=log_all)
    except BaseException:
        engine.close()
        raise
    write_to_standard_error()
    log_file(engine, path)
    sys.setswitchinterval(SWITCH)
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: None)  # uvicorn ends in good order, then raises it again: that is no failure
    server = uvicorn.Server(configured(application, host=host, port=port))
    if unix_socket is None:
        server.run()
    else:
        with bound(unix_socket) as listening:
            server.run(sockets=[listening])


@contextlib.contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    """A socket under a path, for its owner and group from the first moment; the path is free again at the end."""
    if path.is_socket():
        with contextlib.suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            raise InvalidArgument("--unix-socket", "one that nobody listens on", str(path), "Stop the other service.")
        path.unlink()  # a process that was killed has left it
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o117)
        try:
            listening.bind(str(path))
        except OSError as problem:
            allowed = f"a path to bind to ({problem.strerror or problem})"
            repair = "Choose a path that is free and short."
            raise InvalidArgument("--unix-socket", allowed, str(path), repair) from None
        finally:
            os.umask(before)
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


def log_file(engine: Engine, path: Path) -> None:
    """Which file is served, and a warning where it was only just made: a mistyped name would do that."""
    held: dict[str, Any] = {"path": str(path.resolve()), "events": engine.position}
    held["experiments"] = len(engine.experiments())
    if engine.was_empty:
        warning = "the file was not there, or empty: a new one was made (--must-exist refuses that)"
        log(logging.WARNING, warning, **held)
    else:
        log(logging.INFO, "serving a file", **held)
    if engine.readable_by_others:
        log(logging.WARNING, "other users of this machine can read the file: chmod go= it", path=held["path"])


def configured(application: Service, **settings: Any) -> uvicorn.Config:
    """uvicorn with its fast parts, our protocol and our logs."""
    return uvicorn.Config(
        application,
        http=Protocol,
        ws="none",
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody asks where a request came from first: callers are told apart by their keys
        date_header=False,
        timeout_graceful_shutdown=PATIENCE,
        **settings,
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
