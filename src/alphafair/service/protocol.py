"""HTTP below the framework: a short way for bodies, and what becomes of a connection that is cut, closed or misused.

What uvicorn and ASGI do around a request costs more than the request itself. So where nothing special is asked for, a
body is handed over as it is and the answer written in one piece; anything else goes uvicorn's own way.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from alphafair.service.app import Service
from alphafair.service.routes import Route

MOST_HEADER_BYTES = 1 << 16
LONGEST_ADDRESS = 200  # on the short way


class Visit:
    """A request on the short way: what uvicorn looks at while a request is on its way, and what will answer it."""

    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, route: Route, named: dict[str, str], path: str, headers: dict[bytes, bytes]) -> None:
        self.route, self.named, self.path, self.headers = route, named, path, headers
        self.body, self.more_body = bytearray(), True
        self.response_complete = self.disconnected = False
        self.keep_alive = True

    async def read(self) -> bytes:
        return bytes(self.body)


class Protocol(HttpToolsProtocol):
    """uvicorn's own, with a bound on headers, errors in JSON, the short way, and every complete request answered."""

    _last = False  # whether no more requests are taken: those that are complete are answered, then it is closed
    _last_words = b""  # what is written before that

    # requests

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._last:
            return
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("")

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
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # and what is between them
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MOST_HEADER_BYTES:
            raise ValueError("too many headers")  # the parser tells `data_received`, which answers with 400

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("this is no proxy")
            return  # it is read again without the offer
        visit = self._visit()
        if visit is None:
            super().on_headers_complete()
        else:
            self.cycle = visit

    def _visit(self) -> Any:
        """The request, if it can take the short way: a small body of known length, nothing before it unanswered."""
        service, parser = self.app, self.parser
        if not isinstance(service, Service) or not (self.cycle is None or self.cycle.response_complete):
            return None
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"")
        if not (length.isdigit() and len(length) < 9 and int(length) <= min(service.most_bytes, HIGH_WATER_LIMIT)):
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

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        if isinstance(self.cycle, Visit):
            task = self.loop.create_task(self._answer(self.cycle))
            task.add_done_callback(self.tasks.discard)  # the tasks that the end of the service waits for
            self.tasks.add(task)

    # answers

    async def _answer(self, visit: Visit) -> None:
        answer = await self.app.answer(visit.route, visit.named, visit.path, self.scope, visit.headers, visit.read)
        if self.flow.write_paused:
            await self.flow.drain()
        if self.transport.is_closing():
            return
        close = b"" if visit.keep_alive else b"connection: close\r\n"
        headers = b"".join([b"%s: %s\r\n" % header for header in answer.headers])
        self.transport.write(b"%s%s%s\r\n%s" % (STATUS_LINE[answer.status], headers, close, answer.body))
        visit.response_complete = True
        if not visit.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        if self._last and not (self.pipeline and _is_complete(self.pipeline[-1][0])):
            self._close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        body = self.app.unreadable()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self._last_words = STATUS_LINE[400] + head + body
        self._take_no_more()

    # the end of a connection

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to stay open
        """The client has closed its side. It may still read."""
        return self._take_no_more()

    def shutdown(self) -> None:
        """The service stops."""
        self._take_no_more()

    def _take_no_more(self) -> bool:
        """Close the connection once every complete request is answered, or at once; whether there is one."""
        self._last = True
        waits = bool(self.pipeline) or (self.cycle is not None and _is_complete(self.cycle))
        if not waits:
            self._close()
        elif _is_complete(self.cycle) and not self._last_words:
            self.cycle.keep_alive = False
        return waits

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self._last_words)
            self.transport.close()


def _is_complete(cycle: Any) -> bool:
    """Whether a request has come as a whole and has no answer yet."""
    return not cycle.more_body and not cycle.response_complete
