"""HTTP below the framework: a short way for bodies, and what becomes of a connection that is cut, closed or misused.

What uvicorn and ASGI do around a request costs more than the request itself. So where nothing special is asked for, a
body is handed over as it is and the answer written in one piece; anything else goes uvicorn's own way.

The parser joins the pieces of a header for as long as they come. So it is fed small pieces, and all that belongs to no
body is counted while it comes. Trailers are read and dropped.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from alphafair.service.app import SECURITY_LINES, Service
from alphafair.service.connections import Stage
from alphafair.service.errors import Failure, failure, http_failure, no_memory
from alphafair.service.routes import Route

MOST_HEADER_BYTES = 1 << 16
CHUNK_OVERHEAD = 8  # bytes per byte of a body; in chunks of one byte there are six
PIECE = 1 << 12  # bytes that the parser is fed at a time
MOST_PIPELINED = 16  # requests without an answer behind which no more are read, but those of the same piece
MOST_DROPPED = 1 << 22  # bytes of what follows a refused request, read so that its sender can read the answer
LONGEST_ADDRESS = 200  # on the short way
BODY_STEP = 16  # bits: a body makes progress in steps of 64 KB
ONCE = (
    b"host",
    b"authorization",
    b"origin",
    b"sec-fetch-site",
    b"content-length",
    b"transfer-encoding",
    b"content-type",
)


class Visit:
    """A request on the short way: what uvicorn looks at while a request is on its way, and what will answer it."""

    message_event = asyncio.Event()  # nobody waits for it
    response_started = False

    def __init__(self, route: Route, named: dict[str, str], path: str, headers: dict[bytes, bytes]) -> None:
        self.route, self.named, self.path, self.headers = route, named, path, headers
        self.body, self.more_body = bytearray(), True
        self.response_complete = self.disconnected = False
        self.keep_alive = True

    async def read(self) -> bytes:
        return bytes(self.body)


class Flow(FlowControl):
    """uvicorn's own, which goes on reading whenever a body is asked for; not so while what was read still waits."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """uvicorn's own with bounds on all that is sent, errors in JSON, the short way, every complete request answered."""

    app: Service
    flow: Flow
    watched: tuple[object, float] = (None, 0.0)  # by `Connections`
    _unread = b""  # what follows many requests without answers
    _ends = False  # whether nothing comes after that
    _last = False  # whether no more requests are taken: those that are complete are answered, then it is closed
    _refused = False  # whether that is because of what was sent
    _last_words = b""  # what is written before that
    _failure: Failure | None = None  # why the parser was stopped
    _lingers = False  # whether it is closed for writing, and read until the other side has noticed
    _n_dropped = 0  # bytes, meanwhile
    _in_head = False
    _n_other = 0  # bytes since the last end of a head or a message
    _n_body = 0  # bytes of the body, among them
    _n_heads = _n_drained = 0  # for `progress`
    _running: Any = None  # the request that uvicorn answers, or the last that it has answered

    # connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        found = self.app.connections.add(self)
        if found == "dropped":
            self.transport.abort()
        elif found == "refused":
            message = "There are too many connections."
            self._refuse(failure(503, "too_many_connections", message, repair="Try again later.", retry_after="1"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.app.connections.discard(self, refused=self._lingers)
        self._unread, self._last = b"", True
        if self._running is not None:
            self._running.disconnected = True
        super().connection_lost(exc)

    def progress(self) -> tuple[Stage | None, int, int, int]:
        """What the client is waited for, None if the service works, and numbers that change when it goes on."""
        return self._stage(), self._n_heads, self._n_drained, self._n_body >> BODY_STEP

    def _stage(self) -> Stage | None:
        if self._lingers:
            return "refused"
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return "answer"
        if self.flow.read_paused:
            return None
        if self.cycle is None:
            return "head"
        if self.cycle.more_body:
            return "body"
        if not self.cycle.response_complete:
            return None
        return "head" if self._in_head else "idle"

    def time_out(self, stage: Stage) -> None:
        if stage in ("answer", "refused"):
            self.transport.abort()
        elif stage == "body" or self._in_head:
            self._refuse(http_failure(408, repair="Send a request as a whole."))
        else:
            self.transport.close()

    def make_place(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def resume_writing(self) -> None:
        self._n_drained += 1
        super().resume_writing()

    # requests

    def data_received(self, data: bytes) -> None:
        if self._last:
            self._n_dropped += len(data)
            if self._n_dropped > MOST_DROPPED:
                self.transport.abort()
        elif self._unread:
            self._unread += data
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        """Have the parser read, until there are many requests without answers: what follows them has to wait."""
        if len(data) <= PIECE and len(self.pipeline) < MOST_PIPELINED:
            self._parse(data)
            return
        at = 0
        while at < len(data) and not self._last:
            if len(self.pipeline) >= MOST_PIPELINED:
                self._unread, self.flow.held = data[at:], True
                self.flow.pause_reading()
                return
            self._parse(data[at : at + PIECE])
            at += PIECE

    def _read_on(self) -> None:
        """No request that was read waits for another one any more."""
        data, self._unread, self.flow.held = self._unread, b"", False
        self._read(data)
        if not self._unread and self._ends and not self._last:
            self._take_no_more()

    def _parse(self, piece: bytes) -> None:
        try:
            self._feed(piece)
        except httptools.HttpParserError as problem:
            short_of_memory = isinstance(problem.__context__, MemoryError)  # in one of the parser's calls
            otherwise = no_memory() if short_of_memory else failure(400, "bad_http", "This is not HTTP.")
            self._refuse(self._failure or otherwise)
            return
        self._n_other = self._n_other + len(piece) if self._n_other >= 0 else 0
        if self._n_other > MOST_HEADER_BYTES + CHUNK_OVERHEAD * self._n_body:
            self._refuse(http_failure(431))

    def _feed(self, data: bytes) -> None:
        """Have the parser read on. It would leave out the body of a request that offers another protocol."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def _head_without_upgrade(self) -> bytes:
        first = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        return b"\r\n".join([first, *(b"%s: %s" % each for each in self.headers if each[0] != b"upgrade"), b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._header_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # and what is between them
        if self._in_head:  # else it is a trailer
            super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MOST_HEADER_BYTES:
            self._stop(http_failure(431))

    def _stop(self, problem: Failure) -> None:
        """Within the parser, which tells `_parse` about any exception."""
        self._failure = problem
        raise problem

    def on_headers_complete(self) -> None:
        self._in_head, self._n_other, self._n_body = False, -1, 0
        self._n_heads += 1
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("this is no proxy")
            return  # it is read again without the offer
        headers = dict(self.headers)
        self._check(headers)
        visit = self._visit(headers)
        if visit is None:
            super().on_headers_complete()
        else:
            self.cycle = visit

    def _check(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a head that others on the way may understand in another way, and a body that will be too long."""
        if len(headers) != len(self.headers):
            names = [name for name, _ in self.headers]
            for name in ONCE:
                if names.count(name) > 1:
                    self._stop(failure(400, "bad_http", f"There is more than one {name.decode()}."))
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._stop(failure(400, "bad_http", "This is neither HTTP/1.1 nor HTTP/1.0."))
        if b"transfer-encoding" in headers:
            if version == "1.0" or headers[b"transfer-encoding"].lower() != b"chunked":
                self._stop(failure(400, "bad_http", "A body has a length, or is chunked, and nothing else."))
        elif int(headers.get(b"content-length", 0)) > self.app.most_bytes:
            self._stop(http_failure(413))

    def _visit(self, headers: dict[bytes, bytes]) -> Any:
        """The request, if it can take the short way: a small body of known length, nothing before it unanswered."""
        service, parser = self.app, self.parser
        if not (self.cycle is None or self.cycle.response_complete):
            return None
        length = headers.get(b"content-length")
        if length is None or int(length) > HIGH_WATER_LIMIT:
            return None
        special = self.expect_100_continue or parser.get_http_version() != "1.1"
        if special or len(self.url) > LONGEST_ADDRESS:
            return None
        found = service.find_with_body(parser.get_method(), self.url)
        if found is None:
            return None
        visit = Visit(*found, headers)
        visit.keep_alive = parser.should_keep_alive()
        return visit

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        self._n_body += len(body)
        if self._n_body > self.app.most_bytes:
            self._stop(http_failure(413))
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._n_other, self._n_body = -1, 0
        if self.parser.should_upgrade():
            return
        cycle = self.cycle
        cycle.more_body = False
        cycle.message_event.set()
        if isinstance(cycle, Visit):
            task = self.loop.create_task(self._answer(cycle))
            task.add_done_callback(self.tasks.discard)  # the tasks that the end of the service waits for
            self.tasks.add(task)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    # answers

    async def _answer(self, visit: Visit) -> None:
        scope: Any = self.scope
        answer = await self.app.answer(visit.route, visit.named, visit.path, scope, visit.headers, visit.read)
        if self.flow.write_paused:
            await self.flow.drain()
        if self.transport.is_closing():
            return
        close = b"" if visit.keep_alive else b"connection: close\r\n"
        headers = b"".join([b"%s: %s\r\n" % header for header in answer.headers])
        head = b"%s%s%s%s\r\n" % (STATUS_LINE[answer.status], headers, SECURITY_LINES, close)
        self.transport.write(head + answer.body)
        visit.response_complete = True
        if not visit.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self._last and not (self.pipeline and _is_complete(self.pipeline[-1][0])):
            self._close()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._unread and not self.pipeline:  # which may begin with the body of the request that was just started
            self._read_on()
        if not self.pipeline:
            self.flow.resume_reading()

    def _refuse(self, problem: Failure) -> None:
        """Take no more, and answer the request that is being read, unless it has an answer already."""
        self._refused = True
        begun = self.cycle is not None and self.cycle.more_body and not self._in_head
        if not (begun and (self.cycle.response_started or self.cycle.response_complete)):
            for_head = self._n_heads > 0 and not self._in_head and self.parser.get_method() == b"HEAD"
            self._last_words = self.app.refusal(problem, with_body=not for_head)
        self._take_no_more()

    # the end of a connection

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to stay open
        """The client has closed its side. It may still read."""
        return not self._lingers and self._end()

    def shutdown(self) -> None:
        """The service stops."""
        if self._lingers:
            self.transport.close()
        else:
            self._end()

    def _end(self) -> bool:
        """Read nothing but what has come; whether anything is left to do."""
        self._ends = True
        return bool(self._unread) or self._take_no_more()

    def _take_no_more(self) -> bool:
        """Close the connection once every complete request is answered, or at once; whether there is one."""
        self._last = True
        waits = bool(self.pipeline) or (self.cycle is not None and _is_complete(self.cycle))
        if not waits:
            self._close()
        elif _is_complete(self.cycle) and not self._refused:
            self.cycle.keep_alive = False
        return waits

    def _close(self) -> None:
        """With the last words. A sender that is still busy sending would not read them: it is read a little longer."""
        if self._lingers or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:  # nobody can be told its answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not self._refused:
            self.transport.close()
            return
        self.app.connections.n_refused += 1
        self._lingers, self.flow.held = True, False
        self.transport.write(self._last_words)
        self.transport.write_eof()
        self.flow.resume_reading()


def _is_complete(cycle: Any) -> bool:
    """Whether a request has come as a whole and has no answer yet."""
    return not cycle.more_body and not cycle.response_complete
