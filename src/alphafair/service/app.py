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
_JSON = (b"content-type", b"application/json")
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


class Answer(NamedTuple):
    """What goes back for a body."""

    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]


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
        headers, path = dict(scope["headers"]), self.below_root(scope["path"])
        route, named = find(scope["method"], path)
        if route is None:
            scope["path"] = path
            await self._through_framework(scope, headers, receive, send)
        else:
            answer = await self.answer(route, named, path, scope, headers, lambda: self._body(receive, headers))
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            await send({"type": "http.response.body", "body": answer.body})

    def below_root(self, path: str) -> str:
        """A path without the prefix that a proxy shows it under."""
        return path[len(self.root_path) :] if self.root_path and path.startswith(self.root_path + "/") else path

    async def answer(
        self,
        route: Route,
        named: Mapping[str, str],
        path: str,
        scope: Scope,
        headers: dict[bytes, bytes],
        read: Callable[[], Awaitable[bytes]],
    ) -> Answer:
        """The answer of a route that takes a body, which is read once the caller was let in; never an exception."""
        start, request_id = time.perf_counter(), self._request_id(headers)
        sent = [_JSON, (b"x-request-id", request_id)]
        problem: Exception | None = None
        try:
            self.door.admit(scope, headers, path, route.needed)
            data = route.decode(await read())
            status, body = route.status, _encode(await route.handler(data=data, state=self.state, **named))
        except Exception as raised:
            problem, failure = raised, as_failure(raised)
            status, body = failure.status, _encode(failure.answer)
            sent += _encoded(failure)
        sent.append((b"content-length", b"%d" % len(body)))
        self.measures.requests[route.label, status] += 1
        if problem or self.log_all:
            self._log(request_id, status, route.method, path, time.perf_counter() - start, problem)
        return Answer(status, body, sent)

    async def _through_framework(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        start, request_id = time.perf_counter(), self._request_id(headers)
        method, path, status = scope["method"], scope["path"], 0
        problem: Exception | None = None

        async def pass_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            needed = READ if method in ("GET", "HEAD", "OPTIONS") else ADMIN
            scope["known"] = self.door.admit(scope, headers, path, needed)
            await self.framework(scope, receive, pass_on)
        except Exception as raised:
            problem = raised
            if not status:  # an answer that is half sent cannot be taken back
                failure = as_failure(raised)
                body = _encode(failure.answer)
                sent = [_JSON, (b"content-length", b"%d" % len(body)), *_encoded(failure)]
                await pass_on({"type": "http.response.start", "status": failure.status, "headers": sent})
                await pass_on({"type": "http.response.body", "body": body})
        self.measures.requests[scope.get("path_template", "other"), status] += 1
        if problem or self.log_all or path not in PROBES:
            self._log(request_id, status, method, path, time.perf_counter() - start, problem)

    def _request_id(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The caller's own, where it has a sound one."""
        asked = headers.get(b"x-request-id")
        return asked if asked and _REQUEST_ID.fullmatch(asked) else b"%s-%x" % (self._prefix, next(self._ids))

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

    @staticmethod
    def _log(request_id: bytes, status: int, method: str, path: str, seconds: float, problem: Exception | None) -> None:
        level = logging.ERROR if status == 500 else logging.WARNING if status > 500 else logging.INFO
        ours = problem if status == 500 else None  # a fault of ours: its traceback stays here
        fields = {"method": method, "path": path[:200], "status": status, "seconds": round(seconds, 6)}
        log(level, "request", exc_info=ours, request_id=request_id.decode(), **fields)


def _encoded(failure: Failure) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in failure.headers.items()]
