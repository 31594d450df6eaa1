"""Connections: HTTP/1.1 from bytes to requests and from responses to bytes, within limits of size, number and time.

Requests of a connection are answered one after the other, each when it is complete. The parser joins the pieces of a
header for as long as they come, so it is fed small pieces, and all bytes outside bodies are counted. Trailers are
read and dropped. Bodies wait in memory, at most `Limits.max_body` of a request whose caller was admitted.

No request sets a timer: all connections are checked several times within the shortest time-out, and one that made no
progress for its time-out is closed. If there are too many connections, a new one replaces the one that has made no
progress for longest, or is rejected if there is none. One key holds at most half of them: a request on a further
connection is rejected, and the connection closed.
"""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from email.utils import formatdate
from functools import lru_cache
from http import HTTPMethod, HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import httptools

from alphafair.errors import InvalidArgument
from alphafair.service.http.errors import failure, http_failure, out_of_memory, unknown_method
from alphafair.service.http.exchange import Request, Response
from alphafair.service.keys import LOCAL, Caller
from alphafair.service.shares import AGAIN, Places

if TYPE_CHECKING:
    from alphafair.service.service import Service

Stage = Literal["head", "body", "answer", "idle", "refused"]

MAX_CONNECTIONS = 1000
MAX_REFUSED = 32  # connections that are being told why they are closed, besides those that are accepted
OTHER_FILES = 64  # that the process has open: the database, listening sockets, exports
CHECK_EVERY = 1.0  # seconds, at most
STALLED = 1.0  # seconds without progress after which a connection can be replaced

MAX_HEADER_BYTES = 1 << 16
MAX_TARGET_BYTES = 1 << 15  # of them, for the target: a path and a query, or an address
CHUNK_OVERHEAD = 8  # bytes outside a body per byte of it; six in chunks of one byte
PIECE = 1 << 12  # bytes that the parser is fed at a time
MAX_PIPELINED = 16  # requests that wait behind another one before reading is paused
MAX_HELD = 1 << 16  # bytes of a body behind unanswered requests before reading is paused
MAX_DROPPED = 1 << 22  # bytes behind a rejected request that are read so that its sender can read the answer
BODY_STEP = 16  # bits: a body makes progress in steps of 64 KB
SINGLE_HEADERS = (
    b"host",
    b"authorization",
    b"origin",
    b"sec-fetch-site",
    b"content-length",
    b"transfer-encoding",
    b"content-type",
)
SECURITY_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WITHOUT_CONTENT = (204, 304)
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.]+\]|(?:[\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?")
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_METHOD = re.compile(rb"^(" + _TOKEN + rb")(?: [^ \r\n]+ HTTP/[0-9]\.[0-9]\r?$|\Z)", re.M)  # of a first line, or cut
_OTHER_CODINGS = re.compile(rb"(?:" + _TOKEN + rb"[ \t]*,[ \t]*)+chunked")


class Timeouts(NamedTuple):
    """Seconds that a client may take."""

    head: float = 10.0  # to send all headers, from their first byte, or from the start of the connection
    body: float = 30.0  # to send a body, or 64 KB of it
    answer: float = 30.0  # to read an answer, or 48 KB of it
    idle: float = 5.0  # between an answer and the next request
    refused: float = 2.0  # to read why the connection is closed


@lru_cache(32)  # few, because a value can be as long as a header
def is_host(value: bytes) -> bool:
    """Whether a value is a host, perhaps with a port, as RFC 3986 writes them."""
    return _HOST.fullmatch(value) is not None


REASONS = ("too_many", "replaced", *(f"{stage}_timeout" for stage in Timeouts._fields))  # to close a connection


def _lines(headers: dict[bytes, bytes]) -> bytes:
    return b"".join([b"%s: %s\r\n" % header for header in headers.items()])


SECURITY_LINES = _lines(SECURITY_HEADERS)


class Connection(asyncio.Protocol):
    """One connection: its requests in order, and their answers."""

    transport: asyncio.Transport

    def __init__(self, service: Service) -> None:
        self._service, self._connections = service, service.connections
        self._parser = self._new_parser()
        self.requests: deque[Request] = deque()  # without a complete answer; the first is being answered if complete
        self._incoming: Request | None = None  # the last of them, while its body is read
        self._answering = False
        self._address = ""
        self.held_by = ""  # the key of the last request that had one
        self.checked: tuple[object, float] = (None, 0.0)  # by `Connections`: progress at the last check, and its time
        # reading
        self._unread = b""  # received, but not parsed yet: too many requests wait
        self._at_end = False  # whether nothing comes after that
        self._reads = True  # whether requests are still read
        self._read_paused = False
        self._in_head = False
        self._n_outside = 0  # bytes since the end of the last head or message; -1: that end is in this piece
        self._n_body = self._n_header = 0  # bytes of the body, or of the head
        self._n_heads = self._n_drained = 0  # for `progress`
        self._failure: Exception | None = None  # why the parser was stopped
        # closing
        self._rejected = False  # whether the connection is closed because of what was sent
        self._lingers = False  # closed for writing, and read until the client has noticed
        self._n_dropped = 0  # bytes, meanwhile
        self._counted_as_refused = False
        self._writable = asyncio.Event()
        self._writable.set()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # requests may follow the last one
        return parser

    # calls of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's transports are not derived from asyncio's
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        added = self._connections.add(self)
        if added == "dropped":
            self.transport.abort()
        elif added == "refused":
            self._count_as_refused()
            message = "There are too many connections."
            self._reject(failure(503, "too_many_connections", message, repair="Try again later.", retry_after="1"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self, refused=self._counted_as_refused)
        self._unread, self._reads = b"", False
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if not self._reads:
            self._n_dropped += len(data)
            if self._n_dropped > MAX_DROPPED:
                self.transport.abort()
        elif self._unread:
            self._unread += data
        else:
            self._read(data)

    def eof_received(self) -> bool:
        """The client has closed its side. It may still read: the return value says whether to stay open."""
        return not self._lingers and self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._n_drained += 1
        self._writable.set()

    # calls of `Connections` and the server

    def progress(self) -> tuple[Stage | None, int, int, int]:
        """What the client is waited for, None if it waits for the service, and numbers that change with progress."""
        return self._stage(), self._n_heads, self._n_drained, self._n_body >> BODY_STEP

    def _stage(self) -> Stage | None:
        if self._lingers:
            return "refused"
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return "answer"
        if self._read_paused:
            return None
        if self._incoming is not None:
            return "body"
        if self.requests:
            return None
        return "head" if self._in_head or not self._n_heads else "idle"

    def time_out(self, stage: Stage) -> None:
        if stage in ("answer", "refused"):
            self.transport.abort()
        elif stage == "body" or self._in_head:
            self._reject(http_failure(408, repair="Send the whole request at once."))
        else:
            self.transport.close()

    def make_place(self) -> None:
        """Close for the sake of a new connection."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Close after the complete requests are answered: the service stops."""
        if self._lingers:
            self.transport.close()
        else:
            self._end()

    # reading: bytes to requests

    def _read(self, data: bytes) -> None:
        """Parse data until too much of it would wait; keep the rest."""
        if len(data) <= PIECE and not self._is_full():
            self._parse(data)
            return
        at = 0
        while at < len(data) and self._reads:
            if self._is_full():
                self._unread = data[at:]
                self._pause_reading()
                return
            self._parse(data[at : at + PIECE])
            at += PIECE

    def _is_full(self) -> bool:
        n = len(self.requests)
        return n > 1 and (n > MAX_PIPELINED or (self._incoming is not None and len(self._incoming.body) > MAX_HELD))

    def _read_on(self) -> None:
        """An answer was sent: parse what was kept, then receive more."""
        if self._unread and not self._is_full():
            data, self._unread = self._unread, b""
            self._read(data)
            if self._at_end and not self._unread and self._reads:
                self._stop_reading()
        if not self._unread and not self.transport.is_closing():
            self._resume_reading()

    def _parse(self, piece: bytes) -> None:
        try:
            self._feed(piece)
        except httptools.HttpParserError as problem:
            short_of_memory = isinstance(problem.__context__, MemoryError)  # in one of the callbacks below
            self._reject(self._failure or (out_of_memory() if short_of_memory else _syntax_failure(problem, piece)))
            return
        self._n_outside = self._n_outside + len(piece) if self._n_outside >= 0 else 0
        if self._n_outside > MAX_HEADER_BYTES + CHUNK_OVERHEAD * self._n_body:
            self._reject(http_failure(431))

    def _feed(self, data: bytes) -> None:
        """Feed the parser. A request that offers another protocol is read again without the offer."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._parser = self._new_parser()

    def _head_without_upgrade(self) -> bytes:
        parser = self._parser
        first = b"%s %s HTTP/%s" % (parser.get_method(), self._target, parser.get_http_version().encode())
        return b"\r\n".join([first, *(b"%s: %s" % each for each in self._headers if each[0] != b"upgrade"), b"", b""])

    # calls of the parser

    def on_message_begin(self) -> None:
        self._target, self._headers = b"", list[tuple[bytes, bytes]]()
        self._in_head, self._n_header = True, 0

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        self._target += url
        if len(self._target) > MAX_TARGET_BYTES:
            self._stop_parser(http_failure(414))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + 4)  # with ": " and the line's end
        if self._in_head:  # else it is a trailer
            self._headers.append((name.lower(), value))

    def _count_header(self, size: int) -> None:
        self._n_header += size
        if self._n_header > MAX_HEADER_BYTES:
            self._stop_parser(http_failure(431))

    def _stop_parser(self, problem: Exception) -> None:
        """Within a callback of the parser, which raises its own error for any exception."""
        self._failure = problem
        raise problem

    def on_headers_complete(self) -> None:
        self._in_head, self._n_outside, self._n_body = False, -1, 0
        self._n_heads += 1
        parser = self._parser
        if parser.should_upgrade():
            if parser.get_method() == b"CONNECT":
                raise ValueError("not a proxy")
            return  # it is read again without the offer
        headers = dict(self._headers)
        request = Request(parser.get_method().decode("ascii"), self._target, headers, self._address)
        self.requests.append(request)
        self._incoming = request
        if len(headers) != len(self._headers):
            self._join_lines(headers)
        self._check_head(request)
        request.keep_alive = request.chunked and parser.should_keep_alive()
        self._service.open(request)
        if request.caller is not None and not self._connections.hold(self, request.caller):
            request.failure, request.keep_alive = self._connections.refusal(request.caller), False
        if b"expect" in headers and self._expects_continue(request):
            if request.failure is not None:
                self._stop_parser(request.failure)  # the body may never come
            request.expects_continue = True
            self._answer_next()

    def _join_lines(self, headers: dict[bytes, bytes]) -> None:
        """Join the lines of each header to one list; reject a header that must not be one."""
        lines: dict[bytes, list[bytes]] = {}
        for name, value in self._headers:
            lines.setdefault(name, []).append(value)
        for name, values in lines.items():
            if len(values) > 1 and name in SINGLE_HEADERS:
                self._stop_parser(failure(400, "bad_http", f"The header {name.decode()} occurs more than once."))
            headers[name] = (b"; " if name == b"cookie" else b", ").join(values)

    def _check_head(self, request: Request) -> None:
        """Reject a head that other programs may understand differently, and a body that will be too long."""
        headers = request.headers
        version = self._parser.get_http_version()
        request.chunked = version == "1.1"
        if version not in ("1.1", "1.0"):
            self._stop_parser(_other_version())
        if b"host" not in headers:
            if version == "1.1":
                self._stop_parser(failure(400, "bad_http", "A request in HTTP/1.1 must have the header Host."))
        elif not is_host(headers[b"host"]):
            self._stop_parser(failure(400, "bad_http", "The header Host must be a host, or a host and a port."))
        if b"transfer-encoding" in headers:
            coding = headers[b"transfer-encoding"].lower()
            if version == "1.0" or coding != b"chunked":
                unknown = version == "1.1" and _OTHER_CODINGS.fullmatch(coding)
                message = "A body must have a Content-Length, or the Transfer-Encoding 'chunked'."
                self._stop_parser(failure(*((501, "not_implemented") if unknown else (400, "bad_http")), message))
        elif int(headers.get(b"content-length", 0)) > self._service.limits.max_body:
            self._stop_parser(http_failure(413))

    def _expects_continue(self, request: Request) -> bool:
        """Whether a client waits for leave to send a body; HTTP/1.0 has no such answer."""
        headers = request.headers
        has_body = b"transfer-encoding" in headers or int(headers.get(b"content-length", 0)) > 0
        expected = [each.strip() for each in headers[b"expect"].lower().split(b",")]
        return request.chunked and has_body and b"100-continue" in expected

    def on_body(self, body: bytes) -> None:
        self._n_body += len(body)
        if self._n_body > self._service.limits.max_body:
            self._stop_parser(http_failure(413))
        if self._incoming is not None and self._incoming.failure is None:
            self._incoming.body += body

    def on_message_complete(self) -> None:
        self._n_outside, self._n_body = -1, 0
        if self._incoming is not None:  # else an upgrade is offered
            self._incoming.complete, self._incoming = True, None
            self._answer_next()

    # answering: responses to bytes

    def _answer_next(self) -> None:
        """Start to answer the first request, if it is complete and no other one is being answered."""
        if self._answering or not self.requests or self.transport.is_closing():
            return
        request = self.requests[0]
        if request.complete:
            self._answering = True
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self._connections.tasks.add(task)
            task.add_done_callback(self._connections.tasks.discard)
        elif request.expects_continue:
            request.expects_continue = False
            self.transport.write(CONTINUE)

    async def _answer(self, request: Request) -> None:
        try:
            await self._send_answer(request)
        except BaseException:
            self.transport.abort()
            raise
        self.requests.popleft()
        self._answering = False
        if self.transport.is_closing():
            return
        if not request.keep_alive:
            self._close()
            return
        self._answer_next()
        if self._read_paused:
            self._read_on()

    async def _send_answer(self, request: Request) -> None:
        response = await self._service.respond(request)
        if not self._writable.is_set():
            await self._writable.wait()
        if not self.transport.is_closing():
            self.transport.write(self._head(request, response) + (b"" if request.method == "HEAD" else response.body))
        if response.stream is not None:
            await self._send_stream(request, response)
        self._service.finish(request, response.status)

    def _head(self, request: Request, response: Response) -> bytes:
        own = SECURITY_LINES if not response.headers else _lines({**SECURITY_HEADERS, **response.headers})
        if response.status in WITHOUT_CONTENT:
            content = b""
        elif response.stream is None:
            content = b"content-type: %s\r\ncontent-length: %d\r\n" % (response.content_type, len(response.body))
        else:
            content = b"content-type: %s\r\n" % response.content_type
            if request.chunked and request.method != "HEAD":
                content += b"transfer-encoding: chunked\r\n"
            else:
                request.keep_alive = request.keep_alive and request.method == "HEAD"
        close = b"" if request.keep_alive else b"connection: close\r\n"
        line, date = STATUS_LINES[response.status], self._connections.date_line()
        return b"%s%s%sx-request-id: %s\r\n%s%s\r\n" % (line, date, content, request.id, own, close)

    async def _send_stream(self, request: Request, response: Response) -> None:
        """Send a stream as fast as the client reads; abort the connection if it fails, so that the client notices."""
        assert response.stream is not None  # noqa: S101 - for mypy
        form = b"%x\r\n%s\r\n" if request.chunked else b""
        try:
            async with aclosing(response.stream) as stream:  # type: ignore[type-var]
                async for chunk in stream:
                    if self.transport.is_closing() or request.method == "HEAD":
                        return
                    self.transport.write(form % (len(chunk), chunk) if form else chunk)
                    await self._writable.wait()
            if form:
                self.transport.write(b"0\r\n\r\n")
        except Exception as problem:
            request.problem = problem
            self.transport.abort()

    # the end of a connection

    def _reject(self, problem: Exception) -> None:
        """Read no more requests. Answer the one that is being read with an error, after those before it."""
        request = self._incoming
        if request is None:
            request = Request("", b"", {}, self._address)
            self.requests.append(request)
        request.failure = problem
        if not request.id:
            self._service.open(request)
        request.complete, request.keep_alive, self._incoming = True, False, None
        self._rejected, self._reads, self._unread = True, False, b""
        self._answer_next()

    def _end(self) -> bool:
        """Receive nothing more; return whether anything is left to do."""
        self._at_end = True
        return bool(self._unread) or self._stop_reading()

    def _stop_reading(self) -> bool:
        """Close when all complete requests are answered, or now; return whether there are any."""
        if self._reads and self._incoming is not None:  # it will never be complete
            self.requests.pop()
            self._incoming = None
        self._reads = False
        if not self.requests:
            self._close()
            return False
        self.requests[-1].keep_alive = False
        return True

    def _close(self) -> None:
        """Close. Some clients that are still sending are read from for a while: else they would not read the answer."""
        if self._lingers or self.transport.is_closing():
            return
        has_place = self._counted_as_refused or self._connections.n_refused < MAX_REFUSED
        if not (self._rejected and has_place):
            self.transport.close()
            return
        self._count_as_refused()
        self._lingers = True
        self.transport.write_eof()
        self._resume_reading()

    def _count_as_refused(self) -> None:
        if not self._counted_as_refused:
            self._counted_as_refused = True
            self._connections.n_refused += 1

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()


class Connections:
    """All connections of one service, on its event loop."""

    def __init__(self, limit: int, timeouts: Timeouts, closed: Callable[[str], None]) -> None:
        self.limit, self.timeouts, self._closed = limit, timeouts, closed
        self.places = Places(limit, -(-limit // 2))  # by the key of the last request
        self.open: set[Connection] = set()
        self.tasks: set[asyncio.Task[Any]] = set()  # answers in progress
        self.n_refused = 0  # of the open ones, those that are told why they are closed
        self._stalled: list[Connection] = []  # found by the last check, the longest last
        self._check_every = min(CHECK_EVERY, min(timeouts) / 4)
        self._checking = False
        self._date_line, self._second = b"", 0

    def date_line(self) -> bytes:
        """The header Date, which is written once per second."""
        second = int(time.time())
        if second != self._second:
            self._second, self._date_line = second, b"date: %s\r\n" % formatdate(second, usegmt=True).encode()
        return self._date_line

    def add(self, connection: Connection) -> Literal["accepted", "refused", "dropped"]:
        """Accept a connection if there is a place for it, or one can be made."""
        self.open.add(connection)
        if not self._checking:
            self._checking = True
            asyncio.get_running_loop().call_later(self._check_every, self._check)
        if len(self.open) - self.n_refused <= self.limit or self._make_place():
            return "accepted"
        self._closed("too_many")
        return "refused" if self.n_refused < MAX_REFUSED else "dropped"

    def discard(self, connection: Connection, *, refused: bool) -> None:
        """Forget a connection that is closed."""
        self.open.discard(connection)
        self.n_refused -= refused
        if connection.held_by:
            self.places.release(connection.held_by)
            connection.held_by = ""

    def hold(self, connection: Connection, caller: Caller) -> bool:
        """Count a connection as one of a key; False if the key has too many. Without keys nobody is counted."""
        if connection.held_by == caller.id or caller.name == LOCAL:
            return True
        if connection not in self.open or not self.places.take(caller):
            return False
        if connection.held_by:  # by another key: a proxy sends requests of many
            self.places.release(connection.held_by)
        connection.held_by = caller.id
        return True

    def refusal(self, caller: Caller) -> Exception:
        """The failure of a request on a connection that its key cannot have."""
        self._closed("too_many")
        found = self.places.refusal(caller, "too_many_connections", "Connections", repair=AGAIN)
        found.pause = 0.0  # it would hold the connection
        return found

    def _make_place(self) -> bool:
        while self._stalled:
            connection = self._stalled.pop()
            if connection in self.open and connection.progress() == connection.checked[0]:
                self._closed("replaced")
                connection.make_place()
                return True
        return False

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now, stalled = loop.time(), list[tuple[float, Connection]]()
        for connection in list(self.open):
            progress, (before, since) = connection.progress(), connection.checked
            stage = progress[0]
            if progress != before:
                connection.checked = (progress, now)
            elif stage is not None and now - since >= getattr(self.timeouts, stage):
                self._closed(f"{stage}_timeout")
                connection.time_out(stage)
            elif stage is not None and stage != "refused" and now - since >= STALLED:
                stalled.append((since, connection))
        stalled.sort(key=lambda each: -each[0])
        self._stalled = [connection for _, connection in stalled]
        self._checking = bool(self.open)
        if self._checking:
            loop.call_later(self._check_every, self._check)


def _syntax_failure(problem: httptools.HttpParserError, piece: bytes) -> Exception:
    """The failure for bytes that the parser does not take for a request, by its reason and these bytes."""
    if str(problem) in ("Invalid HTTP version", "Pause on PRI/Upgrade"):
        return _other_version()
    unknown = isinstance(problem, httptools.HttpParserInvalidMethodError) and any(
        found[1].decode() not in HTTPMethod.__members__ for found in _METHOD.finditer(piece)
    )
    if unknown or str(problem) == "Invalid method for HTTP/x.x request":
        return unknown_method()
    return failure(400, "bad_http", "This is not valid HTTP.")


def _other_version() -> Exception:
    return failure(505, "http_version_not_supported", "The protocol must be HTTP/1.1 or HTTP/1.0.")


def possible_connections(wanted: int | None) -> int:
    """How many connections the limit on open files leaves room for; the limit is raised if that is allowed.

    With more connections, the database could not be opened. So a number that was asked for is rejected if it is too
    large; otherwise there are as many as possible, up to `MAX_CONNECTIONS`.
    """
    other = MAX_REFUSED + OTHER_FILES
    n = wanted or MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return n
    if soft < n + other:
        soft = n + other if hard == resource.RLIM_INFINITY else min(n + other, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    n = min(n, soft - other)
    if n < (wanted or 1):
        allowed = f"at most {n}: {soft} files may be open, and {other} are needed for other purposes"
        raise InvalidArgument("max_connections", allowed, wanted, "Raise the limit (ulimit -n), or use fewer.")
    return n
