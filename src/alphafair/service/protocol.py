"""HTTP below the framework: what cannot be parsed is told in the same form as every other error, and headers end."""

from __future__ import annotations

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from alphafair.service.errors import failure

MOST_HEADER_BYTES = 1 << 16


class Protocol(HttpToolsProtocol):
    """uvicorn's own, with a bound on headers and an answer in JSON."""

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

    def send_400_response(self, msg: str) -> None:
        body = msgspec.json.encode(failure(400, "bad_http", "This is not HTTP, or its headers are too long.").answer)
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()
