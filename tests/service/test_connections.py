"""What clients and proxies do to a connection: requests in pieces, behind each other, cut, half closed, and the end.

Every answer is that of the same request sent whole on a connection of its own, in the order of the requests; a request
that never became complete does nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from alphafair.engine import Engine
from tests.serving import ARMS, Running, running, wait_for
from tests.stores import either_store, rows_of

pytestmark = [either_store, pytest.mark.compiled]

DECISIONS = "/v1/experiments/home/decisions"
REWARDS = "/v1/experiments/home/rewards"
JAVA = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shop") / "shop.db") as found:
        assert found.post("", {"name": "home", "arms": ARMS}).status_code == 201
        yield found


def request(method: str, path: str, body: Any = None, *headers: str) -> bytes:
    text = b"" if body is None else json.dumps(body).encode()
    sized = [f"Content-Length: {len(text)}"] if body is not None else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *sized, *headers, "", ""]).encode() + text


def chunked(path: str, body: Any, *trailers: str, size: int = 5) -> bytes:
    text = json.dumps(body).encode()
    pieces = [text[k : k + size] for k in range(0, len(text), size)]
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    end = "".join(["0\r\n", *(f"{trailer}\r\n" for trailer in trailers), "\r\n"]).encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


def decide(id: str, *headers: str) -> bytes:
    return request("POST", DECISIONS, {"context": "v", "id": id}, *headers)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30.0)


def all_of(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    found = b""
    while more := connection.recv(65536):
        found += more
    return found


class _Stream:
    """Bytes as a socket, for the parser of the standard library: it shares nothing with the service."""

    def __init__(self, data: bytes) -> None:
        self.file = io.BytesIO(data)

    def makefile(self, mode: str) -> io.BytesIO:
        return self.file


def answers(data: bytes, methods: list[str]) -> list[tuple[int, bytes]]:
    """Status and body of each answer; there is nothing else."""
    stream, found = _Stream(data), list[tuple[int, bytes]]()
    file = stream.file
    file.close = lambda: None  # type: ignore[method-assign]  # a closed answer must not close it for the next one
    for method in methods:
        answer = http.client.HTTPResponse(stream, method=method)  # type: ignore[arg-type]
        answer.begin()
        found.append((answer.status, answer.read()))
    assert file.read() == b""
    return found


def decided(shop: Running, id: str) -> bool:
    return bool(rows_of(shop.engine, "select count(*) from decision where id = ?", (id,))[0][0])


# in pieces, behind each other


def mixed(seed: int) -> tuple[list[bytes], list[str]]:
    """Requests of every kind, and their methods."""
    draw = random.Random(seed)
    kinds: list[Callable[[str], tuple[bytes, str]]] = [
        lambda id: (decide(id), "POST"),
        lambda id: (chunked(DECISIONS, {"context": "v", "id": id}), "POST"),
        lambda id: (chunked(DECISIONS, {"context": "v", "id": id}, "x-more: of it", size=1), "POST"),
        lambda id: (decide(id, *JAVA), "POST"),
        lambda id: (request("GET", "/health", None, *JAVA), "GET"),
        lambda id: (request("POST", DECISIONS + "?x", {"context": "é" * 50, "id": id}), "POST"),
        lambda id: (request("POST", REWARDS, {"id": "nobody", "reward": 1}), "POST"),
        lambda id: (request("POST", DECISIONS, {"context": ""}), "POST"),
        lambda id: (request("POST", "/nope", {"id": id}), "POST"),
        lambda id: (request("GET", "/v1/experiments"), "GET"),
        lambda id: (request("GET", "/health", {"a body": id}), "GET"),
        lambda id: (request("HEAD", "/health"), "HEAD"),
        lambda id: (request("OPTIONS", "/health"), "OPTIONS"),
        lambda id: (request("PUT", "/health", {}), "PUT"),
    ]
    drawn = [draw.choice(kinds)(f"{seed}-{k}") for k in range(40)]
    return [each for each, _ in drawn], [method for _, method in drawn]


@pytest.mark.parametrize("seed", range(6))
def test_any_pieces_on_one_connection_are_answered_like_single_requests(shop: Running, seed: int) -> None:
    requests, methods = mixed(seed)
    draw = random.Random(seed)
    together = b"".join(requests)
    with connected(shop.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        at = 0
        while at < len(together):
            size = draw.choice((1, 2, 7, 50, 400, 3000))
            connection.sendall(together[at : at + size])
            at += size
            if draw.random() < 0.1:
                time.sleep(0.002)
        connection.shutdown(socket.SHUT_WR)
        found = answers(all_of(connection), methods)
    for (status, body), sent, method in zip(found, requests, methods, strict=True):
        with connected(shop.port) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert answers(all_of(connection), [method]) == [(status, body)], sent


@pytest.mark.parametrize(
    "sent", [decide("bytes-1"), chunked(DECISIONS, {"context": "v", "id": "bytes-1"}), request("GET", "/health")]
)
def test_a_request_may_arrive_byte_by_byte(shop: Running, sent: bytes) -> None:
    with connected(shop.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for k in range(len(sent)):
            connection.sendall(sent[k : k + 1])
            time.sleep(0.0005)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200


def test_an_offered_upgrade_is_ignored(shop: Running) -> None:
    """Java's own client offers HTTP/2 with its first request, whatever that is; its body must not get lost."""
    with connected(shop.port) as connection:
        connection.sendall(decide("java-1", *JAVA))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["id"]) == (200, "java-1")
        connection.sendall(decide("java-2"))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert json.loads(answer.read())["id"] == "java-2"


def test_invalid_bytes_after_a_request_do_not_affect_its_answer(shop: Running) -> None:
    with connected(shop.port) as connection:
        connection.sendall(decide("before") + request("GET", "/health") + b"NONSENSE\r\n\r\n")
        first, second, third = answers(all_of(connection), ["POST", "GET", "GET"])
    assert (first[0], json.loads(first[1])["id"]) == (200, "before")
    assert second[0] == 200
    assert (third[0], json.loads(third[1])["error"]["code"]) == (400, "bad_http")


# half closed and cut


def test_a_half_closed_connection_is_answered(shop: Running) -> None:
    for sent, methods in (
        ([decide("half-1")], ["POST"]),
        ([chunked(DECISIONS, {"context": "v", "id": "half-2"})], ["POST"]),
        ([request("GET", "/health")], ["GET"]),
        ([request("GET", "/v1/experiments/home/log?format=csv")], ["GET"]),
        ([request("POST", "/v1/experiments", {"name": "half", "arms": ARMS})], ["POST"]),
        ([decide("half-3"), request("GET", "/health"), decide("half-4")], ["POST", "GET", "POST"]),
        ([decide("half-5"), decide("half-lost")[:-1]], ["POST"]),
        ([decide("half-6"), b"POST " + DECISIONS.encode()], ["POST"]),
    ):
        with connected(shop.port) as connection:
            connection.sendall(b"".join(sent))
            connection.shutdown(socket.SHUT_WR)
            found = answers(all_of(connection), methods)
        assert [status for status, _ in found] == [201 if b'"arms"' in sent[0] else 200] * len(methods)
    assert not decided(shop, "half-lost")


@pytest.mark.parametrize("closing", [lambda line: line.shutdown(socket.SHUT_WR), lambda line: line.close()])
def test_incomplete_requests_have_no_effect(shop: Running, closing: Callable[[socket.socket], None]) -> None:
    """A body that ends early can look like a whole one: JSON does not say how long it is."""
    padded = json.dumps({"context": "v", "id": "cut"}).encode() + b" " * 100_000
    long = f"POST {DECISIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(padded)}\r\n\r\n".encode() + padded
    for sent in (
        decide("cut")[:-1],
        chunked(DECISIONS, {"context": "v", "id": "cut"})[:-5],
        chunked(DECISIONS, {"context": "v", "id": "cut"}, size=1000)[:-2],
        long[:-1],
        long[: -len(padded) + 100],
    ):
        connection = connected(shop.port)
        connection.sendall(sent)
        time.sleep(0.02)
        closing(connection)
        if connection.fileno() >= 0:
            assert all_of(connection) == b""
            connection.close()
    for _ in range(3):  # whatever was begun is done by now
        assert shop.post("/home/decisions", {"context": "v"}).status_code == 200
    assert not decided(shop, "cut")


# the end


def stop(shop: Running) -> None:
    """Tell it to stop and wait for that: far less than the time that requests on their way are given."""
    shop.server.stop()
    shop.thread.join(15.0)
    assert not shop.thread.is_alive()


HALVES = [
    b"POST",
    decide("late")[:-1],
    decide("late", "Expect: 100-continue")[: -len('{"context": "v", "id": "late"}')],
    chunked(DECISIONS, {"context": "v", "id": "late"})[:-1],
    request("POST", DECISIONS + "?", {"context": "v", "id": "late"})[:-1],
]


def test_incomplete_requests_do_not_delay_the_shutdown(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with running(path) as shop:
        shop.post("", {"name": "home", "arms": ARMS})
        silent, *lines = (connected(shop.port) for _ in range(1 + 2 * len(HALVES)))
        for line, half in zip(lines, HALVES + HALVES, strict=True):
            line.sendall(half)
        ended, left = lines[: len(HALVES)], [silent, *lines[len(HALVES) :]]
        for line in ended:
            line.shutdown(socket.SHUT_WR)
        found = [all_of(line) for line in ended]
        wait_for(lambda: len(shop.service.connections.open) >= len(left))
        stop(shop)
        found += [all_of(line) for line in left]
        for line in (silent, *lines):
            line.close()
        assert {*found} <= {b"", b"HTTP/1.1 100 Continue\r\n\r\n"}
    with Engine.open(path) as engine:
        assert engine.experiment("home").decisions == 0


def complete(shop: Running) -> list[int]:
    """How many requests wait on each connection; two, if there is half a request behind them."""
    waiting = (min(2, len(each.requests)) for each in list(shop.service.connections.open))
    return sorted(filter(None, waiting), reverse=True)


@pytest.mark.parametrize("half", HALVES)
def test_complete_requests_are_answered_before_the_shutdown(tmp_path: Path, half: bytes) -> None:
    """They wait for the disk when the service is told to stop; what is half sent behind them is dropped."""
    path = tmp_path / "shop.db"
    with running(path) as shop:
        shop.post("", {"name": "home", "arms": ARMS})
        lines = [connected(shop.port) for _ in range(3)]
        with shop.engine.writers.all()[0].lock:  # the disk is slow
            lines[0].sendall(decide("one"))
            lines[1].sendall(decide("two") + request("GET", "/health") + half)
            lines[2].sendall(chunked(DECISIONS, {"context": "v", "id": "three"}) + decide("four") + half)
            wait_for(lambda: complete(shop) == [2, 2, 1])
            shop.server.stop()
            time.sleep(0.5)
        stop(shop)
        for line, methods in zip(lines, (["POST"], ["POST", "GET"], ["POST", "POST"]), strict=True):
            found = answers(all_of(line).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), methods)
            assert {status for status, _ in found} == {200}
            line.close()
    with Engine.open(path) as engine:
        assert engine.experiment("home").decisions == 4


# a proxy in between


class Proxy:
    """Forwards bytes both ways in pieces of its own, late, gathered, and now and then cut off; seeded."""

    def __init__(self, port: int, seed: int, *, cut: float) -> None:
        self.port_behind, self.draw, self.cut = port, random.Random(seed), cut
        self.n_cut = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.sockets = [self.listener]
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                front, _ = self.listener.accept()
                back = connected(self.port_behind)
                self.sockets += [front, back]
                for source, target in ((front, back), (back, front)):
                    draw = random.Random(self.draw.random())
                    self.threads.append(threading.Thread(target=self._forward, args=(source, target, draw)))
                    self.threads[-1].start()

    def _forward(self, source: socket.socket, target: socket.socket, draw: random.Random) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(draw.choice((10, 100, 10_000))):
                if draw.random() < 0.05:
                    time.sleep(0.005 * draw.random())  # what comes meanwhile is read as one piece
                if draw.random() < self.cut:
                    self.n_cut += 1
                    target.sendall(data[: len(data) // 2])
                    target.shutdown(socket.SHUT_RDWR)
                    source.shutdown(socket.SHUT_RDWR)
                    return
                size = draw.choice((7, 50, 10_000))
                for k in range(0, len(data), size):
                    target.sendall(data[k : k + size])
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(30.0)
            assert not thread.is_alive()
        for each in self.sockets:
            each.close()


def insist(http: httpx.Client, path: str, body: Any) -> httpx.Response:
    """Send it until it is answered."""
    for _ in range(100):
        with contextlib.suppress(httpx.TransportError):
            return http.post(path, json=body)
    raise AssertionError(path)


@pytest.mark.parametrize("seed", range(2))
def test_behind_a_proxy_that_cuts_and_delays_everything_counts_once(tmp_path: Path, seed: int) -> None:
    n_threads, n_each = 4, 25
    kept: dict[str, Any] = {}
    with running(tmp_path / "shop.db") as shop:
        shop.post("", {"name": "home", "arms": ARMS})
        proxy = Proxy(shop.port, seed, cut=0.02)

        def visit(k: int) -> None:
            with httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", timeout=30.0) as http:
                for n in range(n_each):
                    body = {"context": f"visitor-{k}", "id": f"{k}-{n}"}
                    kept[body["id"]] = insist(http, DECISIONS, body).json()
                    outcome = insist(http, REWARDS, {"id": body["id"], "reward": 0.5}).json()["outcome"]
                    assert outcome in ("applied", "repeated")

        threads = [threading.Thread(target=visit, args=(k,)) for k in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive()
        proxy.close()
        assert len(kept) == n_threads * n_each
        assert proxy.n_cut > 0
        status = shop.engine.experiment("home")
        assert (status.decisions, status.rewards, status.pending) == (len(kept), len(kept), 0)
        for id, answer in kept.items():
            assert shop.post("/home/decisions", {"context": answer["context"], "id": id}).json() == answer
        shop.engine.verify()
