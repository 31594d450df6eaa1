"""A service for tests: the real one on a free port of this machine, in a thread. And waiting for other threads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from alphafair.engine import Engine
from alphafair.service.server import Server, bound_to_port
from alphafair.service.service import Service

ARMS = ["ada", "ben", "cyd"]
Found = TypeVar("Found")


def wait_for(read: Callable[[], Found], done: Callable[[Found], object] = bool, seconds: float = 60.0) -> Found:
    """Read again and again until it is done; fails with what was read last."""
    until = time.monotonic() + seconds
    while not done(found := read()):
        assert time.monotonic() < until, f"still {found!r} after {seconds:g} s"
        time.sleep(0.02)
    return found


def wait_until_ready(http: httpx.Client) -> None:
    wait_for(lambda: http.get("/ready").status_code, lambda status: status != 503)


def listens(where: Path | tuple[str, int]) -> bool:
    """Whether a socket accepts connections; httpx leaves its own open where a Unix socket refuses."""
    with socket.socket(socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET) as probe:
        return probe.connect_ex(str(where) if isinstance(where, Path) else where) == 0


class Running:
    """A running service: its parts, its port, and an HTTP client for it."""

    def __init__(self, service: Service, port: int, server: Server, thread: threading.Thread) -> None:
        self.service, self.engine, self.port = service, service.engine, port
        self.server, self.thread = server, thread
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=30.0)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.post(f"/v1/experiments{path}", json=body, **options)

    def raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and return all that comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10.0) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return answer


@contextmanager
def running(
    path: Path, *, engine: Engine | None = None, ready: bool = True, port: int = 0, **settings: Any
) -> Iterator[Running]:
    service = Service(engine or Engine.open(path, seed=0), path, **settings)
    service.measures.kept_for = 0.0  # tests look at numbers as soon as they change
    sockets = bound_to_port("127.0.0.1", port)
    server = Server(service, sockets)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started.wait(0.1):
            assert thread.is_alive()
        with (found := Running(service, sockets[0].getsockname()[1], server, thread)).http as http:
            if ready:
                wait_until_ready(http)
            yield found
    finally:
        if thread.is_alive():
            server.stop()
        thread.join()
        for each in sockets:
            each.close()


def error(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, after checking its form."""
    body = answer.json()
    assert set(body) - {"outcome"} == {"error"}
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "argument", "repair"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    problem: dict[str, Any] = body["error"]
    return problem


def told(shop: Running) -> dict[str, float]:
    """The samples on /metrics, by name and labels."""
    lines = shop.http.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}
