"""The service as one ASGI application: the door, and behind it the routes.

A framework costs more per request than the engine does. So routes that take a body are called right here: the body is
decoded by msgspec into the type that the handler asks for, and the handler is the one that the framework has, too.
Everything else goes through the framework.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from alphafair.service import decisions
from alphafair.service.door import ADMIN, READ, WRITE, Door
from alphafair.service.errors import Failure, as_failure, from_framework
from alphafair.service.framework import WITH_BODY
from alphafair.service.logs import log
from alphafair.service.metrics import Measures

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

PROBES = ("/health", "/ready", "/metrics")  # asked for all the time
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_encode = msgspec.json.Encoder().encode


class Route(NamedTuple):
    """A route that takes a body."""

    method: str
    label: str
    needed: int  # rank of the role
    status: int
    decode: Callable[[bytes], Any]
    handler: Callable[..., Awaitable[Any]]


def _route(handler: HTTPRouteHandler) -> Route:
    ((method,), (path,)) = handler.http_methods, handler.paths
    body = handler.parsed_fn_signature.parameters["data"].annotation
    needed = WRITE if handler.fn.__module__ == decisions.__name__ else ADMIN
    label = path.replace("{name:str}", "{name}")
    return Route(str(method), label, needed, handler.status_code, msgspec.json.Decoder(body).decode, handler.fn)


EXPERIMENTS = "/v1/experiments"
ROUTES = {(route.method, route.label): route for route in map(_route, WITH_BODY)}


def find(method: str, path: str) -> tuple[Route | None, dict[str, str]]:
    """The route with a body that a request is for, and the name in its path."""
    if method in ("GET", "HEAD") or not path.startswith(EXPERIMENTS):
        return None, {}
    _, _, rest = path.partition(EXPERIMENTS + "/")
    if not rest:
        return ROUTES.get((method, path)), {}
    name, slash, tail = rest.partition("/")
    return ROUTES.get((method, f"{EXPERIMENTS}/{{name}}{slash}{tail}")), {"name": name}


class Service:
    """Every request passes here once: it gets an id, is let in or not, answered, counted, and logged if need be."""

    def __init__(
        self,
        state: State,
        door: Door,
        measures: Measures,
        framework: App,
        *,
        most_bytes: int,
        root_path: str = "",
        log_all: bool = False,
    ) -> None:
        self.state, self.door, self.measures, self.framework = state, door, measures, framework
        self.most_bytes, self.root_path, self.log_all = most_bytes, root_path, log_all
        self._ids = itertools.count(1)
        self._prefix = secrets.token_hex(4).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.framework(scope, receive, send)  # the beginning and the end
            return
        start = time.perf_counter()
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")
        if not (request_id and _REQUEST_ID.fullmatch(request_id)):
            request_id = b"%s-%x" % (self._prefix, next(self._ids))
        method, path = scope["method"], scope["path"]
        if self.root_path and path.startswith(self.root_path + "/"):
            path = scope["path"] = path[len(self.root_path) :]
        route, named = find(method, path)
        reply = _Reply(send, request_id)
        problem: Exception | None = None
        try:
            needed = route.needed if route else READ if method in ("GET", "HEAD", "OPTIONS") else ADMIN
            known = self.door.admit(scope, headers, path, needed)
            if route:
                data = route.decode(await self._body(receive, headers))
                answer = await route.handler(data=data, state=self.state, **named)
                await reply.whole(route.status, _encode(answer))
            else:
                scope["known"] = known
                await self.framework(scope, receive, reply.passing_on)
        except Exception as raised:
            problem = raised
            await self._fail(reply, as_failure(raised))
        label = route.label if route else scope.get("path_template", "other")
        self.measures.requests[label, reply.status] += 1
        if problem or self.log_all or not (route or path in PROBES):
            self._log(reply, method, path, time.perf_counter() - start, problem)

    async def _body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """All of it, if it is not too much."""
        if int(headers.get(b"content-length", b"0")) > self.most_bytes:
            raise from_framework(413)
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.most_bytes:
                raise from_framework(413)
        return body

    async def _fail(self, reply: _Reply, failure: Failure) -> None:
        if not reply.status:  # an answer that is half sent cannot be taken back
            await reply.whole(failure.status, _encode(failure.answer), failure.headers)

    def _log(self, reply: _Reply, method: str, path: str, seconds: float, problem: Exception | None) -> None:
        level = logging.ERROR if reply.status == 500 else logging.WARNING if reply.status > 500 else logging.INFO
        ours = problem if reply.status == 500 else None  # a fault of ours: its traceback stays here
        fields = {"method": method, "path": path[:200], "status": reply.status, "seconds": round(seconds, 6)}
        log(level, "request", exc_info=ours, request_id=reply.request_id.decode(), **fields)


class _Reply:
    """Sends an answer under its request id, and remembers the status."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send, self.request_id, self.status = send, request_id, 0

    async def whole(self, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self.status = status
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self.request_id),
        ]
        if more:
            headers += [(name.encode(), value.encode()) for name, value in more.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def passing_on(self, message: Message) -> None:
        """What the framework sends."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id)]
        await self._send(message)
