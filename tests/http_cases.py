"""HTTP as RFC 9110 and 9112 have it, as a table: bytes to send, and the answers, from the service and behind nginx.

Behind every case comes a request for /health on the same connection, so its answer shows whether the connection was
kept, and that no byte of the case was taken for another request.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import httpx

from alphafair.service import keys
from tests.serving import ARMS, Running, running

FRONT = Callable[[Running], AbstractContextManager[int]]  # a port that leads to a service

ALIVE, CLOSED = (200,), ()  # the answer to the request behind a case
BAD = (400, *CLOSED)
DECISIONS, ROUTE = "/v1/experiments/home/decisions", "/v1/experiments/home"
BODY = b'{"context": "v", "id": "case"}'
DATE = r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d GMT"
PAGE = "/static/main.js"
NO_HEADERS: Mapping[str, str | None] = {}
PLAIN, KEYED = "without keys", "with keys"


class Case(NamedTuple):
    """Bytes, and the statuses of all answers to them and to the request behind them."""

    name: str
    sent: bytes
    statuses: tuple[int, ...]
    headers: Mapping[str, str | None] = NO_HEADERS  # of the last answer to the case; None: absent
    service: str = PLAIN


class Answer(NamedTuple):
    """An answer as it came; a header in several lines is joined."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(
    first: str = "GET /health HTTP/1.1", *lines: str, host: str | None = "Host: localhost", body: bytes = b""
) -> bytes:
    head = [first, *([] if host is None else [host]), *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def post(*lines: str, body: bytes = BODY, version: str = "1.1", path: str = DECISIONS) -> bytes:
    """A decision, without a length."""
    return request(f"POST {path} HTTP/{version}", *lines, body=body)


def sized(*lines: str, version: str = "1.1") -> bytes:
    return post(f"Content-Length: {len(BODY)}", *lines, version=version)


def chunked(body: bytes, *lines: str) -> bytes:
    return post("Transfer-Encoding: chunked", *lines, body=body)


def chunks(size: str = f"{len(BODY):x}", *, end: str = "\r\n", trailers: str = "", data: bytes = BODY) -> bytes:
    """A body in one chunk."""
    return f"{size}{end}".encode("latin-1") + data + end.encode() + f"0\r\n{trailers}\r\n".encode()


def exchange(port: int, sent: bytes) -> list[Answer]:
    """All answers to some bytes and to a request behind them."""
    last = request("GET /health HTTP/1.1", "Connection: close")
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as connection:
        connection.sendall(sent + last)
        found = b""
        while more := connection.recv(65536):
            found += more
    return answers(found, without_body=sent.startswith(b"HEAD"))


def answers(data: bytes, *, without_body: bool = False) -> list[Answer]:
    """Answers from bytes; with `without_body` the first one is to a HEAD."""
    found = list[Answer]()
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for name, _, value in (line.partition(": ") for line in lines):
            headers[name.lower()] = f"{headers[name.lower()]}, {value}" if name.lower() in headers else value
        status, body = int(first.split()[1]), b""
        if not (status < 200 or status in (204, 304) or (without_body and not found)):
            if headers.get("transfer-encoding") == "chunked":
                while size := int(data.partition(b"\r\n")[0], 16):
                    body, data = body + data.partition(b"\r\n")[2][:size], data.partition(b"\r\n")[2][size + 2 :]
                data = data.partition(b"\r\n\r\n")[2]
            elif "content-length" in headers:
                size = int(headers["content-length"])
                body, data = data[:size], data[size:]
            else:
                body, data = data, b""
        found.append(Answer(status, headers, body))
    return found


class Sites:
    """Two services, without keys and with some, and what leads to them."""

    def __init__(self, ports: dict[str, int], words: dict[bytes, bytes]) -> None:
        self._ports, self._words = ports, words

    def exchange(self, case: Case) -> list[Answer]:
        sent = case.sent
        for word, value in self._words.items():
            sent = sent.replace(word, value)
        return exchange(self._ports[case.service], sent)


@contextmanager
def sites(folder: Path, front: FRONT = lambda shop: nullcontext(shop.port)) -> Iterator[Sites]:
    ports = dict[str, int]()
    with ExitStack() as stack:
        token = keys.create(folder / "keyed.db", "admin", "me")
        for name, path in ((PLAIN, folder / "plain.db"), (KEYED, folder / "keyed.db")):
            shop = stack.enter_context(running(path))
            shop.engine.create("home", arms=ARMS)
            ports[name] = stack.enter_context(front(shop))
        etag = httpx.get(f"http://127.0.0.1:{ports[PLAIN]}{PAGE}").headers["etag"].removeprefix("W/")
        signed_in = httpx.post(f"http://127.0.0.1:{ports[KEYED]}/session", json={"key": token})
        words = {"KEY": token, "TOKEN": signed_in.cookies["alphafair_session"], "ETAG": etag}
        yield Sites(ports, {word.encode(): value.encode() for word, value in words.items()})


def check(case: Case, found: Sequence[Answer], *, nginx: bool) -> None:
    """Fail if these are not the answers of a case."""
    statuses = tuple(answer.status for answer in found)
    assert statuses == case.statuses or (nginx and statuses in _behind_nginx(case)), found
    final = [answer for answer in found if answer.status >= 200]
    for answer in final:
        assert re.fullmatch(DATE, answer.headers["date"])
    if statuses == case.statuses:
        last = final[-1 - (statuses[-1:] == ALIVE and len(final) > 1)]
        for name, value in case.headers.items():
            assert last.headers.get(name) == value, (name, last)


def _behind_nginx(case: Case) -> list[tuple[int, ...]]:
    """What else nginx may make of a case; its versions differ."""
    found = [BEHIND_NGINX[case.name]] if case.name in BEHIND_NGINX else []
    status = case.statuses[0]
    if status >= 400:  # nginx keeps the connection when the service refuses, or refuses first
        found += [(status, *ALIVE), (status, *CLOSED), *((each, *CLOSED) for each in (400, 501, 505))]
    return found


def _get(path: str, *lines: str, version: str = "1.1") -> bytes:
    return request(f"GET {path} HTTP/{version}", *lines)


def _host(value: str) -> bytes:
    return request(host=f"Host: {value}")


def _by(method: str, path: str = "/health") -> bytes:
    return request(f"{method} {path} HTTP/1.1")


def _coded(coding: str) -> bytes:
    return post(f"Transfer-Encoding: {coding}", body=chunks())


def _all(
    name: str,
    make: Callable[[str], bytes],
    statuses: tuple[int, ...],
    *values: str,
    headers: Mapping[str, str | None] = NO_HEADERS,
    service: str = PLAIN,
) -> list[Case]:
    """One case for each value."""
    return [Case(f"{name} {value[:30]!r}", make(value), statuses, headers, service) for value in values]


OK, NOT_MODIFIED, ALLOWED = (200, *ALIVE), (304, *ALIVE), (204, *ALIVE)
HTML = {"content-type": "text/html; charset=utf-8"}
CASES = [
    # dates and content
    Case("a date", _get("/health"), OK),
    Case("HEAD", _by("HEAD"), OK, {"content-type": "application/json"}),
    Case("204 has no length", _by("OPTIONS"), ALLOWED, {"content-length": None}),
    Case("304 has no length", _get(PAGE, "If-None-Match: ETAG"), NOT_MODIFIED, {"content-length": None}),
    *_all("If-None-Match", lambda value: _get(PAGE, f"If-None-Match: {value}"), NOT_MODIFIED,
        "*", "W/ETAG", '"a", ETAG,"b"', 'ETAG\r\nIf-None-Match: "b"', '"b"\r\nIf-None-Match: ETAG'),
    *_all("If-None-Match", lambda value: _get(PAGE, f"If-None-Match: {value}"), OK, '"b"', '"xETAG"', "b*"),
    *_all("ignored", lambda line: _get(PAGE, line), OK, "Range: bytes=0-1", 'If-Match: "x"', "Accept: x/y"),
    # hosts
    Case("no Host", request(host=None), BAD),
    Case("no Host in 1.0", request("GET /health HTTP/1.0", host=None), (403,)),
    Case("no Host in 1.0, with keys", request("GET /health HTTP/1.0", host=None), (200,), service=KEYED),
    Case("Host in 1.0", _get("/health", version="1.0"), (200,)),
    Case("two Hosts", request("GET /health HTTP/1.1", "Host: localhost"), BAD),
    *_all("Host", _host, BAD, "a b", "a/b@c", "me@localhost", "localhost:x", "[::1", "\xe9", "%zz", "a\\b"),
    *_all("Host", _host, OK, "localhost:1", "[::1]:80"),
    *_all("Host", _host, (403, *ALIVE), "", "a,b", "%61", "[::2]", "127.0.0.1:"),
    # targets
    *_all("target", _get, OK, "http://localhost/health", "HTTPS://localhost:80/health?", "/health?a?b"),
    *_all("target", _get, (403, *ALIVE), "http://evil.example/health"),
    *_all("target, with keys", _get, OK, "http://evil.example/health", service=KEYED),
    Case("the host of the target counts", request("GET http://localhost/health HTTP/1.1", host="Host: evil"), OK),
    *_all("target", _get, OK, "http://localhost", "http://localhost?a=b"),
    *_all("target", _get, (400, *ALIVE), "ftp://localhost/health", "http://me@localhost/health", "http://localhost:x/"),
    *_all("target", _get, (400, *ALIVE), "*", "*x", "/health#a", "/health?a#", "http:///health"),
    *_all("target", _get, BAD, "localhost:80", "health", "?a", "/\xe9", "/a\x7f", "", "http://localhost#a"),
    *_all("target", _get, (404, *ALIVE), "/ready/", "//ready", "/./ready", "/static//api.js", "/static%2Fapi.js"),
    *_all("target", _get, (404, *ALIVE), "/ready%00", "/%"),
    Case("a long target", _get("/" + 70_000 * "a"), (414, *CLOSED)),
    Case("a long header", _get("/health", "X: " + 70_000 * "a"), (431, *CLOSED)),
    *_all("view", _get, OK, "/experiments/home/live", "/experiments/home/l%69ve", headers=HTML),
    *_all("view", _get, (404, *ALIVE), "/experiments/%ff/live", "/experiments/%/live", headers=HTML),
    # methods and versions
    Case("OPTIONS *", _by("OPTIONS", "*"), ALLOWED, {"allow": "GET, POST, PATCH, DELETE, HEAD, OPTIONS"}),
    Case("OPTIONS * of a stranger", _by("OPTIONS", "*"), ALLOWED, service=KEYED),
    *_all("OPTIONS of a stranger", lambda path: _by("OPTIONS", path), ALLOWED, "/health", "/static/x", "/sign-in",
        headers={"allow": "GET, HEAD, OPTIONS"}, service=KEYED),
    *_all("OPTIONS of a stranger", lambda path: _by("OPTIONS", path), (401, *ALIVE), ROUTE, "/nope",
        headers={"www-authenticate": "Bearer"}, service=KEYED),
    *_all("OPTIONS with a key", lambda path: request(f"OPTIONS {path} HTTP/1.1", "Authorization: Bearer KEY"), ALLOWED,
        ROUTE, headers={"allow": "GET, PATCH, HEAD, OPTIONS"}, service=KEYED),
    *_all("method", _by, (405, *ALIVE), "DELETE", "PUT", "TRACE", headers={"allow": "GET, HEAD, OPTIONS"}),
    *_all("method", _by, (501, *ALIVE), "PURGE", "PROPFIND"),
    *_all("method", _by, (501, *CLOSED), "BREW", "get", "GETS", "SETUP"),
    *_all("first line", request, BAD, "NONSENSE", " GET /health HTTP/1.1", "G\0T /health HTTP/1.1", "G@T / HTTP/1.1"),
    *_all("version", lambda version: _get("/health", version=version), (505, *CLOSED), "0.9", "1.2", "2.0", "3.0"),
    *_all("version", lambda version: _get("/health", version=version), BAD, "1", "x.1", "11.1", "1.10"),
    Case("HTTP/2 at once", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (505, *CLOSED)),
    # headers in several lines
    *_all("Cookie", lambda value: _get(ROUTE, f"Cookie: {value}"), OK,
        "alphafair_session=TOKEN", "alphafair_session=TOKEN\r\nCookie: a=b", "a=b\r\nCookie: alphafair_session=TOKEN",
        service=KEYED),
    *_all("two", lambda name: _get("/health", f"{name}: a", f"{name}: a"), BAD,
        "Authorization", "Origin", "Sec-Fetch-Site", "Content-Type"),
    # a client that waits before it sends a body
    *_all("Expect", lambda value: sized(f"Expect: {value}"), (100, *OK), "100-continue", "x\r\nExpect: 100-Continue"),
    *_all("Expect", lambda value: sized(f"Expect: {value}"), OK, "x", ""),
    Case("Expect in 1.0", sized("Expect: 100-continue", version="1.0"), (200,)),
    Case("Expect without a body", _get("/health", "Expect: 100-continue"), OK),
    Case("Expect with an empty body", _get("/health", "Content-Length: 0", "Expect: 100-continue"), OK),
    Case("Expect of a stranger", sized("Expect: 100-continue"), (401, *CLOSED), service=KEYED),
    Case("Expect of a stranger in 1.0", sized("Expect: 100-continue", version="1.0"), (401,), service=KEYED),
    # codings
    *_all("Content-Encoding", lambda value: sized(f"Content-Encoding: {value}"), (415, *ALIVE),
        "gzip", "identity, gzip", "identity\r\nContent-Encoding: br", headers={"accept-encoding": "identity"}),
    Case("Content-Encoding: identity", sized("Content-Encoding: Identity"), OK),
    Case("Content-Encoding without a body", _get("/health", "Content-Encoding: gzip"), OK),
    *_all("Content-Type", lambda kind: sized(f"Content-Type: {kind}"), OK, "text/plain", "a/b; charset=utf-16"),
    *_all("Transfer-Encoding", _coded, OK, "chunked", "CHUNKED"),
    *_all("Transfer-Encoding", _coded, (501, *CLOSED), "gzip, chunked", "GZIP ,Chunked", "x,y,chunked"),
    *_all("Transfer-Encoding", _coded, BAD, "identity", "xchunked", "\x0bchunked", "chunked, chunked", "chunked, gzip"),
    *_all("Transfer-Encoding", _coded, BAD, "gzip", "", "a b, chunked", ", chunked"),
    Case("two Transfer-Encodings", _coded("chunked\r\nTransfer-Encoding: chunked"), BAD),
    Case("Transfer-Encoding in 1.0", post("Transfer-Encoding: chunked", body=chunks(), version="1.0"), BAD),
    # lengths
    Case("chunks and a length", chunked(chunks(), f"Content-Length: {len(BODY)}"), BAD),
    Case("a length and chunks", sized("Transfer-Encoding: chunked"), BAD),
    *_all("two lengths", lambda length: sized(f"Content-Length: {length}"), BAD, "3", str(len(BODY))),
    *_all("length", lambda length: post(f"Content-Length: {length}"), BAD,
        f"{len(BODY)}, {len(BODY)}", f"+{len(BODY)}", f"0x{len(BODY):x}", "-1", "9" * 30, "", "3 0", "1e1"),
    Case("a length that begins with 0", post(f"Content-Length: 0{len(BODY)}"), OK),
    # lines
    *_all("line", lambda line: _get("/health", line), BAD,
        "X: a\r\n b", "X: a\rb", "X: a\0b", "X: a\nY: b", "X : a", " X: a", "X", ": a", "X(a): b"),
    # chunks
    *_all("size of a chunk", lambda size: chunked(chunks(size)), OK, f"{len(BODY):x};a=b", f"000{len(BODY):X}"),
    *_all("size of a chunk", lambda size: chunked(chunks(size)), BAD,
        f"{len(BODY):x} ", f"0x{len(BODY):x}", "-1", "f" * 17, f"{len(BODY) - 1:x}"),
    *_all("trailer", lambda line: chunked(chunks(trailers=line + "\r\n")), OK, "X: a", "Host: evil.example"),
    *_all("trailer", lambda line: chunked(chunks(trailers=line + "\r\n")), BAD, "Content-Length: 3"),
    Case("chunks with bare LF", chunked(chunks(end="\n")), BAD),
    # one behind the other
    Case("pipelining", sized() + _get("/nope") + _get("/health"), (200, 404, *OK)),
    Case("close in the middle", sized() + _get("/health", "Connection: close") + _get("/nope"), (200, 200)),
]  # fmt: skip
BEHIND_NGINX = {  # besides refusals of what the service refuses as well
    **dict.fromkeys(["OPTIONS *", "OPTIONS * of a stranger", "no Host in 1.0, with keys"], BAD),
    **{case.name: BAD for case in CASES if case.sent.count(b"If-None-Match") > 1 or case.sent.count(b"Expect") > 1},
    **dict.fromkeys(
        ["target 'http://evil.example/health'", "target 'ftp://localhost/health'"], OK
    ),  # the header counts
    "the host of the target counts": (403, *ALIVE),
    **dict.fromkeys(["version '1.2'", "version '1.10'"], OK),
    **dict.fromkeys(["Expect without a body", "Expect with an empty body"], (100, *OK)),
    "Expect of a stranger": (100, 401, *ALIVE),
    **dict.fromkeys(["line 'X: a\\nY: b'", "line 'X'", "line 'X(a): b'"], OK),  # mended, or not passed on
    **dict.fromkeys(["size of a chunk '1e '", "chunks with bare LF", "trailer 'Content-Length: 3'"], OK),
}
