"""A request and its response, as connections pass them to the service and back."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from alphafair_client.api import Endpoint

if TYPE_CHECKING:
    from alphafair.service.keys import Caller


class Request:
    """A request, from the end of its head on; the body is added while it arrives."""

    __slots__ = (
        "address",
        "body",
        "caller",
        "chunked",
        "complete",
        "endpoint",
        "expects_continue",
        "failure",
        "headers",
        "id",
        "keep_alive",
        "method",
        "parameters",
        "path",
        "problem",
        "query",
        "span",
        "started",
        "target",
    )

    def __init__(self, method: str, target: bytes, headers: Mapping[bytes, bytes], address: str) -> None:
        self.method, self.target, self.headers, self.address = method, target, headers, address
        self.started = time.perf_counter()
        self.body = bytearray()
        self.complete = self.expects_continue = False
        self.keep_alive = self.chunked = True  # chunked: whether the client understands a chunked answer
        self.path = self.query = ""
        self.id = b""
        self.endpoint: Endpoint | None = None
        self.parameters: Mapping[str, str] = {}
        self.caller: Caller | None = None
        self.failure: Exception | None = None  # known before the handler runs
        self.problem: Exception | None = None  # for the log
        self.span: Any = None  # of OpenTelemetry


@dataclass(slots=True)
class Response:
    """A response; `stream`, if there is one, is sent after the body. Security headers are added unless given here."""

    status: int
    body: bytes = b""
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    content_type: bytes = b"application/json"
    stream: AsyncIterator[bytes] | None = None
