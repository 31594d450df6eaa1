"""What one client may cost the others: bytes that never end, connections, time, lines of log. None needs a key."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from alphafair.engine.reports import LogExcerpt, LogFilter
from alphafair.service import keys, openapi, request_log, routes, shared
from alphafair.service.http.connections import MAX_REFUSED, Timeouts
from alphafair.service.routes import ENDPOINTS
from alphafair.service.service import LONG_BODY, Limits
from alphafair_client import api
from tests.serving import ARMS, Running, error, running, told, wait_for
from tests.stores import either_store

pytestmark = [either_store, pytest.mark.compiled]

DECISIONS = b"/v1/experiments/home/decisions"
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % DECISIONS
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b"y" * 65536
MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shop") / "shop.db", limits=Limits(max_body=MOST_BYTES)) as found:
        assert found.post("", {"name": "home", "arms": ARMS}).status_code == 201
        yield found


def connected(shop: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", shop.port), timeout=30.0)


def answer(connection: socket.socket, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer."""
    with connection.makefile("rb") as file:
        return next(answers(file, head_only=head_only))


def answers(file: io.BufferedReader, *, head_only: bool = False) -> Iterator[tuple[int, dict[str, str], bytes]]:
    while first := file.readline():
        lines = iter(lambda: file.readline().rstrip(b"\r\n").decode(), "")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = 0 if head_only else int(headers.get("content-length", 0))
        yield int(first.split()[1]), headers, file.read(length)


def refused(connection: socket.socket) -> tuple[int, str]:
    """Status and code of the last answer, behind which the connection is closed."""
    status, headers, body = answer(connection)
    assert headers["connection"] == "close"
    assert headers["x-request-id"]
    assert headers["x-content-type-options"] == "nosniff"
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    return status, json.loads(body)["error"]["code"]


# bytes that never end

ENDLESS = {
    "value of a header": (HEAD + b"x: ", PIECE),
    "name of a header": (HEAD, PIECE),
    "headers": (HEAD, b"x: y\r\n" * 10_000),
    "address": (b"GET /", PIECE),
    "method": (b"", b"\r\n" * 32768),
    "extension of a chunk": (CHUNKED + b"1;", PIECE),
    "extensions of chunks": (CHUNKED, b"1;%s\r\nx\r\n" % (b"y" * 1000) * 60),
    "value of a trailer": (CHUNKED + b"0\r\nx: ", PIECE),
    "name of a trailer": (CHUNKED + b"0\r\n", PIECE),
    "trailers": (CHUNKED + b"0\r\n", b"x: y\r\n" * 10_000),
}
TOO_LONG = {"a body": HEAD + b"Content-Length: 100000000\r\n\r\n", "a body in chunks": CHUNKED}


def pour(connection: socket.socket, piece: bytes, most: int = 100_000_000) -> int:
    """Send until nobody takes it any more: how much was sent."""
    n_sent = 0
    with contextlib.suppress(ConnectionError):
        while n_sent < most:
            n_sent += connection.send(piece)
    return n_sent


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_part_of_a_request_is_rejected(shop: Running, name: str) -> None:
    start, piece = ENDLESS[name]
    with connected(shop) as connection:
        connection.sendall(start)
        connection.sendall(piece)
        connection.sendall(piece)
        too_long = (414, "uri_too_long") if name == "address" else (431, "request_header_fields_too_large")
        assert refused(connection) == too_long
    with connected(shop) as connection:
        connection.sendall(start)
        assert pour(connection, piece) < 50_000_000


@pytest.mark.parametrize("route", [DECISIONS, b"/nope", b"/health", b"/v1/experiments/home/log"])
@pytest.mark.parametrize("name", TOO_LONG)
def test_a_body_above_the_limit_is_rejected_while_it_arrives(shop: Running, name: str, route: bytes) -> None:
    start = TOO_LONG[name].replace(DECISIONS, route)
    piece = b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if b"chunked" in start else PIECE
    with connected(shop) as connection:
        connection.sendall(start + piece)
        for _ in range(3):
            connection.sendall(piece)
        status, _, _ = answer(connection)
        assert status == 413 or (route != DECISIONS and status in (404, 405))
    with connected(shop) as connection:
        connection.sendall(start)
        assert pour(connection, piece) < 50_000_000


def test_a_content_length_above_the_limit_is_rejected_before_the_body(shop: Running) -> None:
    for more in (b"", b"Expect: 100-continue\r\n"):
        with connected(shop) as connection:
            connection.sendall(HEAD + more + b"Content-Length: %d\r\n\r\n" % (MOST_BYTES + 1))
            assert refused(connection) == (413, "request_entity_too_large")


def test_headers_up_to_the_limit_and_tiny_chunks_are_accepted(shop: Running) -> None:
    text = json.dumps({"context": "v", "id": "tiny"}).encode() + b" " * 20_000
    body = b"".join(b"1\r\n%c\r\n" % each for each in text) + b"0\r\nx-check: 1\r\n\r\n"
    for sent in (CHUNKED + body, CHUNKED.replace(b"\r\n\r\n", b"\r\nx: %s\r\n\r\n" % (b"y" * 65_000)) + body):
        with connected(shop) as connection:
            connection.sendall(sent)
            assert answer(connection)[0] == 200


def test_endless_headers_do_not_slow_down_others(shop: Running) -> None:
    """With the parser that joins pieces of a header for as long as they come, this took seconds for each answer."""
    end = threading.Event()

    def attack() -> None:
        while not end.is_set():
            with contextlib.suppress(OSError), connected(shop) as connection:
                connection.sendall(HEAD + b"x: ")
                pour(connection, PIECE)

    threads = [threading.Thread(target=attack) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            assert shop.post("/home/decisions", {"context": "v"}).status_code == 200  # within the client's timeout
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_pipelined_requests_are_read_a_few_at_a_time(shop: Running) -> None:
    """However many are sent, few are held before the first is answered, and then all are answered in order."""
    n = 5000
    with connected(shop) as connection:
        sent = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * n
        sender = threading.Thread(target=connection.sendall, args=(sent + b"NONSENSE\r\n\r\n",))
        with shop.engine.writers.all()[0].lock:  # the disk is slow
            connection.sendall(HEAD + b"Content-Length: 16\r\n\r\n" + b'{"context": "v"}')
            sender.start()
            time.sleep(0.3)
        found = []
        most_held = 0
        with connection.makefile("rb") as file:
            for status, _, _ in answers(file):
                found.append(status)
                if len(found) % 100 == 1:
                    held = [len(each.requests) for each in list(shop.service.connections.open)]
                    most_held = max(most_held, *held)
        sender.join(30.0)
    assert found == [200] * (n + 1) + [400]
    assert most_held < 500


def test_a_paused_body_is_read_when_its_request_is_next(shop: Running) -> None:
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b'{"context": "v"}' + b" " * 6000
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for n_before in range(14, 20):
        with connected(shop) as connection, connection.makefile("rb") as file:
            connection.sendall((one + health * n_before) * 5 + one)
            connection.shutdown(socket.SHUT_WR)
            assert [status for status, _, _ in answers(file)] == [200] * (5 * (n_before + 1) + 1)


# what must be there once


@pytest.mark.parametrize(
    "headers",
    [
        [b"Host: localhost", b"Host: localhost"],
        [b"Host: localhost", b"Host: evil.example"],
        [b"Host: localhost", b"Authorization: Bearer a", b"Authorization: Bearer b"],
        [b"Host: localhost", b"Origin: http://localhost", b"Origin: http://evil.example"],
        [b"Host: localhost", b"Content-Length: 16", b"Content-Length: 16"],
        [b"Host: localhost", b"Content-Length: 16", b"Transfer-Encoding: chunked"],
        [b"Host: localhost", b"Transfer-Encoding: chunked", b"Content-Length: 16"],
        [b"Host: localhost", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"Host: localhost", b"Transfer-Encoding: gzip"],
    ],
)
@pytest.mark.parametrize("first", [b"POST %s HTTP/1.1" % DECISIONS, b"GET /health HTTP/1.1"])
def test_contradictory_headers_are_rejected(shop: Running, first: bytes, headers: list[bytes]) -> None:
    with connected(shop) as connection:
        connection.sendall(b"\r\n".join([first, *headers, b"", b'{"context": "v"}']))
        assert refused(connection) == (400, "bad_http")


def test_a_rejected_head_request_gets_no_body(shop: Running) -> None:
    found = shop.raw(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.endswith(b"\r\n\r\n")


def test_no_trailer_becomes_a_header(tmp_path: Path) -> None:
    text = b'{"context": "v", "id": "%s"}'
    with running(tmp_path / "shop.db") as shop:
        shop.post("", {"name": "home", "arms": ARMS})
        for k, trailer in enumerate((b"Host: evil.example", b"Origin: http://evil.example", b"X-Request-Id: mine")):
            body = text % b"%d" % k
            with connected(shop) as connection:
                connection.sendall(CHUNKED)
                time.sleep(0.05)
                connection.sendall(b"%x\r\n%s\r\n0\r\n%s\r\n\r\n" % (len(body), body, trailer))
                status, headers, _ = answer(connection)
            assert (status, headers["x-request-id"] == "mine") == (200, False), trailer
        foreign = CHUNKED.replace(b"localhost", b"evil.example")
        body = text % b"late"
        with connected(shop) as connection:
            connection.sendall(foreign + b"%x\r\n%s\r\n0\r\nHost: localhost\r\n\r\n" % (len(body), body))
            assert answer(connection)[0] == 403


# pages from elsewhere


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/health", "/v1/experiments", "/v1/experiments/home/log?format=csv", "/docs", "/no"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_without_keys_pages_of_other_origins_are_rejected(shop: Running, method: str, path: str, site: str) -> None:
    """A picture or a link of a page has no Origin."""
    found = shop.http.request(method, path, headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})
    assert found.status_code == 403
    if method == "GET":
        assert found.json()["error"]["code"] == "foreign_origin"
    for own in ("same-origin", "none"):
        found = shop.http.request(method, path, headers={"sec-fetch-site": own})
        assert found.status_code == (404 if path == "/no" else 200)


# security headers


def test_every_answer_has_security_headers(shop: Running) -> None:
    requests = [
        b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{%s}" % (method, path, b" " * 14)
        for method in (b"GET", b"HEAD", b"POST", b"OPTIONS", b"PUT", b"PATCH", b"DELETE")
        for path in (
            b"/health",
            b"/ready",
            b"/docs",
            b"/metrics",
            b"/openapi.json",
            b"/nope",
            DECISIONS,
            b"/v1/experiments",
            b"/v1/experiments/home",
            b"/v1/experiments/home/log?format=csv",
            b"/v1/keys",
        )
    ]
    requests += [
        b"NONSENSE\r\n\r\n",
        HEAD + b"Host: two\r\n\r\n",
        CHUNKED.replace(b"localhost", b"evil") + b"0\r\n\r\n",
    ]
    requests += [HEAD + b"x: " + b"y" * 70_000, HEAD + b"Content-Length: 999999\r\n\r\n"]
    for sent in requests:
        with connected(shop) as connection:
            connection.sendall(sent)
            _, headers, _ = answer(connection, head_only=True)
            assert headers["x-content-type-options"] == "nosniff", sent
            assert headers["content-security-policy"].startswith("default-src 'none'; "), sent
            assert headers["referrer-policy"] == "no-referrer", sent
            assert headers["cache-control"] == "no-store", sent
            assert headers["x-frame-options"] == "DENY", sent
            assert headers["x-request-id"], sent


def test_the_style_of_the_docs_page_is_allowed(shop: Running) -> None:
    page = shop.http.get("/docs")
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page.headers["content-security-policy"]


# time

QUICK = Timeouts(head=0.4, body=0.4, answer=0.4, idle=0.4, refused=0.4)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    """A service that waits for nobody."""
    with running(tmp_path_factory.mktemp("quick") / "shop.db", limits=Limits(timeouts=QUICK)) as found:
        found.engine.create("home", arms=ARMS)
        found.http.close()  # it would be closed from the other side whenever it is not used
        yield found


def drip(connection: socket.socket, data: bytes) -> None:
    """A byte now and then, for far longer than a time-out."""
    with contextlib.suppress(ConnectionError):
        for k in range(len(data)):
            connection.sendall(data[k : k + 1])
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("sent", "dripped", "reason"),
    [
        (b"GET /health HTTP/1.1\r\n", b"", "head"),
        (b"GET /health HTTP/1.1\r\n", b"x-long: " + b"y" * 100, "head"),
        (HEAD + b"Content-Length: 100\r\n\r\n", b" " * 99, "body"),
        (HEAD.replace(b" HTTP", b"? HTTP") + b"Content-Length: 100\r\n\r\n", b" " * 99, "body"),
        (CHUNKED, b"1\r\n \r\n" * 30, "body"),
        (CHUNKED + b"0\r\n", b"x-long: " + b"y" * 100, "body"),
    ],
    ids=["a head", "a slow head", "a body", "a body on the long way", "a body in chunks", "a trailer"],
)
def test_a_stalled_request_times_out(quick: Running, sent: bytes, dripped: bytes, reason: str) -> None:
    closed = quick.service.measures.closed
    before = closed[f"{reason}_timeout"]
    with connected(quick) as connection:
        connection.sendall(sent)
        drip(connection, dripped)
        assert refused(connection) == (408, "request_timeout")
    assert closed[f"{reason}_timeout"] == before + 1
    assert quick.engine.experiment("home").decisions == 0


def test_connections_without_requests_are_closed(quick: Running) -> None:
    with connected(quick) as silent, connected(quick) as kept, connected(quick) as blank:
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer(kept)[0] == 200
        blank.sendall(b"\r\n" * 10)
        for connection in (silent, kept, blank):
            assert connection.recv(1) == b""
    assert quick.service.measures.closed["idle_timeout"] >= 1
    assert quick.service.measures.closed["head_timeout"] >= 2


def test_a_connection_in_use_stays_open(quick: Running) -> None:
    until = time.monotonic() + 3 * QUICK.idle
    with connected(quick) as connection, connection.makefile("rb") as file:
        while time.monotonic() < until:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert next(answers(file))[0] == 200
            time.sleep(QUICK.idle / 4)


def test_a_client_that_reads_no_answers_is_disconnected(quick: Running) -> None:
    closed = quick.service.measures.closed
    before = closed["answer_timeout"]
    with connected(quick) as connection:
        pour(connection, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        wait_for(lambda: closed["answer_timeout"] == before + 1)


def test_a_client_that_reads_slowly_gets_every_answer(quick: Running) -> None:
    """As long as it reads on; the whole takes longer than a time-out."""
    n = 200
    with connected(quick) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * n)
        with connection.makefile("rb") as file:
            found = answers(file)
            for _ in range(n):
                assert next(found)[0] == 200
                time.sleep(0.01)


# connections


def test_connections_above_the_limit_are_rejected(tmp_path: Path) -> None:
    """Those that are being answered stay; others are told to come again, or closed."""
    limits = Limits(max_connections=10)
    with running(tmp_path / "shop.db", limits=limits) as shop, contextlib.ExitStack() as stack:
        shop.post("", {"name": "home", "arms": ARMS})
        shop.http.close()
        wait_for(lambda: not shop.service.connections.open)
        with shop.engine.writers.all()[0].lock:  # the disk is slow
            busy = [stack.enter_context(connected(shop)) for _ in range(10)]
            for connection in busy:
                connection.sendall(HEAD + b'Content-Length: 16\r\n\r\n{"context": "v"}')
            wait_for(lambda: sum(len(each.requests) for each in list(shop.service.connections.open)) == 10)
            more = [stack.enter_context(connected(shop)) for _ in range(60)]
            wait_for(lambda: len(shop.service.connections.open) <= 10 + 32)
            for connection in more[:20]:
                status, headers, body = answer(connection)
                assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
                assert json.loads(body)["error"]["code"] == "too_many_connections"
        for connection in busy:
            assert answer(connection)[0] == 200
        wait_for(lambda: shop.service.measures.closed["too_many"] == 60)


def test_clients_that_stay_after_they_were_rejected_do_not_pile_up(tmp_path: Path) -> None:
    """Some are read from for a while, so that they get their answer; the others are closed at once."""
    with running(tmp_path / "shop.db", limits=Limits(max_connections=10)) as shop, contextlib.ExitStack() as stack:
        shop.http.close()
        most = 0
        for _ in range(200):
            connection = stack.enter_context(connected(shop))
            connection.sendall(b"NONSENSE\r\n\r\n")
            assert connection.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 503")
            most = max(most, len(shop.service.connections.open))
        assert MAX_REFUSED <= most <= MAX_REFUSED + 10


def test_a_new_connection_replaces_a_stalled_one(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db", limits=Limits(max_connections=10)) as shop, contextlib.ExitStack() as stack:
        shop.post("", {"name": "home", "arms": ARMS})
        shop.http.close()
        held = [stack.enter_context(connected(shop)) for _ in range(10)]
        for connection in held[:5]:
            connection.sendall(HEAD)
        wait_for(lambda: len(shop.service.connections._stalled) == 10)
        for _ in range(10):
            connection = stack.enter_context(connected(shop))
            connection.sendall(HEAD + b'Content-Length: 16\r\n\r\n{"context": "v"}')
            assert answer(connection)[0] == 200
        assert shop.service.measures.closed["replaced"] >= 10


def test_one_key_has_half_of_the_connections(tmp_path: Path) -> None:
    """Whatever it does on them; the others are for other keys. A connection is one of the last key that used it."""
    path = tmp_path / "shop.db"
    tokens = {name: keys.create(path, "read", name) for name in ("one", "other")}
    with running(path, limits=Limits(max_connections=10)) as shop, contextlib.ExitStack() as stack:
        shop.http.close()
        wait_for(lambda: not shop.service.connections.open)

        def asked(connection: socket.socket, name: str) -> int:
            token = tokens[name].encode()
            connection.sendall(b"GET /docs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % token)
            status, headers, body = answer(connection)
            if status == 503:
                assert (headers["retry-after"], headers["connection"]) == ("1", "close")
                assert json.loads(body)["error"]["code"] == "too_many_connections"
                assert connection.recv(1) == b""
            return status

        def new() -> socket.socket:
            return stack.enter_context(connected(shop))

        own = [new() for _ in range(5)]
        assert [asked(each, "one") for each in own * 2] == [200] * 10
        assert [asked(new(), "one") for _ in range(20)] == [503] * 20
        others = [new() for _ in range(4)]
        assert [asked(each, "other") for each in others] == [200] * 4
        assert asked(others.pop(), "one") == 503  # a proxy may send requests of several keys
        own[0].close()
        wait_for(lambda: shop.service.connections.places.n_held == 7)
        assert asked(others[0], "one") == 200
        assert shop.service.connections.places.held == {
            tokens[name].split("_")[1]: n for name, n in (("one", 5), ("other", 2))
        }
        assert shop.service.measures.closed["too_many"] == 21
        stack.close()
        wait_for(lambda: not shop.service.connections.places.n_held)


def test_descriptions_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a tenth of a second, during which the event loop answers no other request."""
    calls: list[str] = []

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            calls.append(function.__name__)
            return function(*arguments)

        return call

    for function in (openapi.openapi, openapi.docs_page):
        monkeypatch.setattr(openapi, function.__name__, counted(function))
    with running(tmp_path / "shop.db") as shop:
        for path, made in (("/openapi.json", ["openapi"]), ("/docs", ["openapi", "docs_page"])):
            calls.clear()
            first = shop.http.get(path).content
            assert first
            assert all(shop.http.get(path).content == first for _ in range(5))
            assert calls == made


# lines of log


def test_rejected_requests_are_logged_at_a_limited_rate(shop: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="alphafair.service")
    wait_for(lambda: not shop.service.request_log.n_left_out)  # of what was sent before
    caplog.clear()
    before = told(shop)
    n = 2000
    for sent in (
        b"GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST %s HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}" % DECISIONS,
    ):
        with connected(shop) as connection:
            sender = threading.Thread(target=connection.sendall, args=(sent * n,))
            sender.start()
            with connection.makefile("rb") as file:
                found = answers(file)
                assert {next(found)[0] for _ in range(n)} <= {403, 404}
            sender.join()
    for _ in range(200):
        assert shop.raw(b"NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    wait_for(lambda: not shop.service.request_log.n_left_out)
    lines = [record for record in caplog.records if record.name == "alphafair.service"]
    fields = [getattr(record, "fields", {}) for record in lines]
    n_logged = sum(each.get("status", 0) >= 400 for each in fields)
    n_left_out = sum(each.get("count", 0) for each in fields)
    assert 0 < n_logged < 1000
    after = told(shop)
    assert n_logged + n_left_out == 2 * n + 200
    name = "alphafair_unlogged_requests_total"
    assert after[name] - before.get(name, 0.0) == n_left_out
    name = 'alphafair_requests_total{route="other",status="404"}'
    assert after[name] - before.get(name, 0.0) == n


def test_strangers_push_no_line_of_a_key_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While somebody without a key, and a key that reads, ask for what is not there, every change has its line."""
    caplog.set_level(logging.INFO, logger="alphafair.service")
    path = tmp_path / "shop.db"
    admin, reader = (keys.create(path, role, role) for role in ("admin", "read"))
    n = 500
    with running(path) as shop:
        headers = {"authorization": f"Bearer {admin}"}

        def flood(*lines: str) -> None:
            request = "\r\n".join(["GET /v1/experiments/nope HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()
            with connected(shop) as connection, connection.makefile("rb") as file:
                sender = threading.Thread(target=connection.sendall, args=(request * n,))
                sender.start()
                found = answers(file)
                assert {next(found)[0] for _ in range(n)} <= {401, 404}
                sender.join()

        for lines in ((), (f"Authorization: Bearer {reader}",)):
            flood(*lines)
            for k in range(40):
                body = {"role": "metrics", "name": f"scraper {k}"}
                assert shop.http.post("/v1/keys", json=body, headers=headers).status_code == 201
        shop.engine.create("home", arms=ARMS)
        assert shop.http.get("/v1/experiments/home/log?format=csv", headers=headers).status_code == 200
        wait_for(lambda: sum(record.getMessage().startswith("too many lines") for record in caplog.records) >= 2)
    lines = [vars(record).get("fields", {}) for record in caplog.records if record.name == "alphafair.service"]
    author = f"admin ({admin.split('_')[1]})"
    made = [each["key"] for each in lines if each.get("path") == "/v1/keys"]
    assert made == [author] * 80
    assert [each["key"] for each in lines if each.get("path", "").endswith("/log")] == [author]
    counts = [each["statuses"] for each in lines if "statuses" in each]
    n_lines = {status: sum(each.get("status") == status for each in lines) for status in (401, 404)}
    for status in (401, 404):
        assert n_lines[status] + sum(each.get(str(status), 0) for each in counts) == n
        assert 0 < n_lines[status] <= 200


def test_a_change_that_may_have_been_made_has_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no line is left for requests that failed."""
    caplog.set_level(logging.INFO, logger="alphafair.service")
    monkeypatch.setattr(request_log, "LINES_PER_SECOND", 0)
    with running(tmp_path / "shop.db") as shop:
        shop.engine.create("home", arms=ARMS)

        def broken(name: str) -> object:
            raise RuntimeError("a bug")

        monkeypatch.setattr(shop.engine, "experiment", broken)
        assert shop.http.patch("/v1/experiments/home", json={"alpha": 0.5}).status_code == 504
        assert shop.http.patch("/v1/experiments/nope", json={"alpha": 0.5}).status_code == 404
        wait_for(lambda: shop.service.measures.unlogged)
    lines = [vars(record).get("fields", {}) for record in caplog.records]
    assert [each["status"] for each in lines if each.get("method") == "PATCH"] == [504]


def test_changes_and_downloads_have_lines_however_many_there_are() -> None:
    changes = {api.CREATE, api.CHANGE, api.ERASE, api.CREATE_KEY, api.ROTATE_KEY, api.REVOKE_KEY}
    assert {endpoint for endpoint in ENDPOINTS if request_log.has_line(endpoint)} == changes | {api.LOG}


# requests whose work grows with the log


def test_searches_of_one_key_leave_threads_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that never end keep nobody from reading, and another key's search gets a thread."""
    path = tmp_path / "shop.db"
    tokens = {name: keys.create(path, "log", name) for name in ("one", "other")}
    ended, begun = threading.Event(), list[str]()
    with running(path) as shop, contextlib.ExitStack() as stack:
        shop.engine.create("home", arms=ARMS)
        find = shop.service.reports.log_excerpt

        def slow(name: str, wanted: LogFilter, limit: int) -> LogExcerpt:
            begun.append(name)
            if wanted.context == "slow":
                assert ended.wait(30.0)
            return find(name, wanted, limit)

        monkeypatch.setattr(shop.service.reports, "log_excerpt", slow)
        stack.callback(ended.set)
        head = f"Host: localhost\r\nAuthorization: Bearer {tokens['one']}\r\n\r\n"
        for _ in range(40):
            connection = stack.enter_context(connected(shop))
            connection.sendall(f"GET /experiments/home/log.json?context=slow HTTP/1.1\r\n{head}".encode())
        wait_for(lambda: shop.service.scans.places.n_held == 40)
        assert len(begun) == 2
        own, others = ({"authorization": f"Bearer {tokens[name]}"} for name in ("one", "other"))
        for headers in (own, others):
            assert shop.http.get("/metrics", headers=headers).status_code == 200
            assert shop.http.get("/v1/experiments/home", headers=headers).status_code == 200
            assert shop.http.get("/index.json", headers=headers).status_code == 200
        assert shop.http.get("/experiments/home/log.json", headers=others).status_code == 200
        assert shop.http.get("/v1/experiments/home/history", headers=others).status_code == 200
        monkeypatch.setattr(shop.service.scans.places, "per_caller", 40)
        refused = shop.http.get("/v1/experiments/home/history", headers=own)
        assert (refused.status_code, refused.headers["retry-after"], error(refused)["code"]) == (503, "1", "busy")
        ended.set()
        wait_for(lambda: shop.service.scans.places.n_held == 0)


def test_metrics_are_computed_once_a_second_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.db"
    tokens = [keys.create(path, "metrics", f"scraper {k}") for k in range(3)]
    tokens.append(keys.create(path, "metrics", "limited", experiments=["home"]))
    with running(path) as shop:
        shop.service.measures.kept_for = 60.0
        page, calls = shop.service.measures.page, list[str]()

        def counted(caller: keys.Caller) -> bytes:
            calls.append(caller.name)
            return page(caller)

        monkeypatch.setattr(shop.service.measures, "page", counted)
        for _ in range(3):
            for token in tokens:
                assert shop.http.get("/metrics", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert calls == ["scraper 0", "limited"]  # a key that sees other experiments gets a page of its own


def test_a_key_whose_commands_wait_is_rejected_before_its_body(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    token = keys.create(path, "write", "one")
    with running(path) as shop:
        shop.engine.create("home", arms=ARMS)
        caller = shop.service.keyring.find(token)
        assert caller is not None
        places = shop.service.commands.places
        assert places.take(caller, places.per_caller)
        with connected(shop) as connection:
            key = b"Authorization: Bearer %s\r\n" % token.encode()
            connection.sendall(HEAD + key + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
            assert refused(connection) == (503, "overloaded")
        places.release(caller.id, places.per_caller)
        headers = {"authorization": f"Bearer {token}"}
        assert shop.post("/home/decisions", {"context": "v"}, headers=headers).status_code == 200


def test_long_bodies_are_decoded_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While those of one key wait, others are answered, and another key's long body waits for two of them."""
    path = tmp_path / "shop.db"
    tokens = {name: keys.create(path, "write", name) for name in ("one", "other")}
    gate, begun, reader = threading.Event(), list[str](), routes.reader
    long = {name: json.dumps({"items": [{"context": name}] * 1000}).encode() for name in tokens}
    assert all(len(body) > LONG_BODY for body in long.values())

    def slow(body: bytes) -> object:
        found = reader(api.DECIDE_MANY.body)(body)
        begun.append(found.items[0].context)
        assert gate.wait(30.0)
        return found

    monkeypatch.setattr(routes, "reader", lambda kind: slow if kind is api.DECIDE_MANY.body else reader(kind))
    with running(path) as shop, contextlib.ExitStack() as stack:
        shop.engine.create("home", arms=ARMS)
        stack.callback(gate.set)
        sent = [*["one"] * 5, "other"]
        waiting = []
        for n, name in enumerate(sent, 1):
            connection = stack.enter_context(connected(shop))
            head = f"POST /v1/experiments/home/decisions/batch HTTP/1.1\r\nAuthorization: Bearer {tokens[name]}"
            connection.sendall(
                f"{head}\r\nHost: localhost\r\nContent-Length: {len(long[name])}\r\n\r\n".encode() + long[name]
            )
            wait_for(lambda n=n: shop.service.decoding.places.n_held == n)  # type: ignore[misc]
            waiting.append(connection)
        headers = {"authorization": f"Bearer {tokens['one']}"}
        assert shop.post("/home/decisions", {"context": "v"}, headers=headers).status_code == 200
        gate.set()
        assert [answer(connection)[0] for connection in waiting] == [200] * 6
    assert begun == ["one", "one", "other", *["one"] * 3]


def test_searches_do_not_push_the_page_of_metrics_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST", 3)
    with running(tmp_path / "shop.db") as shop:
        shop.engine.create("home", arms=ARMS)
        shop.service.measures.kept_for = 60.0
        page, calls = shop.service.measures.page, list[str]()

        def counted(caller: keys.Caller) -> bytes:
            calls.append(caller.name)
            return page(caller)

        monkeypatch.setattr(shop.service.measures, "page", counted)
        for k in range(6):
            assert shop.http.get(f"/experiments/home/contexts.json?offset={k}").status_code == 200
        for _ in range(3):
            assert shop.http.get("/metrics").status_code == 200
    assert len(calls) == 1


def test_no_key_has_more_than_half_of_anything(tmp_path: Path) -> None:
    """A place is kept for admins, except of connections, which have no key before their first request."""
    with running(tmp_path / "shop.db", ready=False) as shop:
        service = shop.service
        pools = service.reads, service.scans, service.decoding, service.commands._changes, service.calculations._pool
        kept = [
            *(pool.places for pool in pools),
            service.commands.places,
            service.watchers.places,
            service.exports.places,
        ]
        for places in [*kept, service.connections.places]:
            assert 0 < places.per_caller <= places.limit / 2
        assert all(places.for_admins > 0 for places in kept)
