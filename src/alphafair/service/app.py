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
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from litestar.datastructures import State

from alphafair.service import routes
from alphafair.service.connections import Connections
from alphafair.service.door import Door
from alphafair.service.errors import Failure, as_failure, failure, http_failure
from alphafair.service.logs import LimitedLines, log
from alphafair.service.metrics import Measures
from alphafair.service.routes import Methods, Route

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

PROBES = ("/health", "/ready", "/metrics")  # asked for all the time
OTHER = "other"  # in place of a route
SEE_DOCS = "See /docs for the paths and methods there are; a path does not end with a slash."
_PLAIN = re.compile(rb"/[A-Za-z0-9/._~-]*")  # a path without escapes, and no query
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_JSON = (b"content-type", b"application/json")
SECURITY_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
SECURITY_LINES = b"".join(b"%s: %s\r\n" % header for header in SECURITY_HEADERS.items())
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    """What goes back for a body, besides the security headers."""

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
        connections: Connections,
        *,
        most_bytes: int,
        root_path: str = "",
        log_all: bool = False,
    ) -> None:
        self.state, self.door, self.measures, self.framework = state, door, measures, framework
        self.most_bytes, self.connections, self.log_all = most_bytes, connections, log_all
        self._lines, self._fault_lines = LimitedLines(measures.left_out), LimitedLines(measures.left_out)
        self._root = routes.segments(root_path) if root_path else []
        self.find_with_body = lru_cache(1000)(self._find_with_body)
        self._ids = itertools.count(1)
        self._prefix = secrets.token_hex(4).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.framework(scope, receive, send)  # the beginning and the end
            return
        headers, path = dict(scope["headers"]), scope["raw_path"].decode("ascii")
        methods, named = self.find(path)
        route = methods.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if route is None or not route.takes_body:
            await self._through_framework(route, named, methods, path, scope, headers, receive, send)
        else:
            answer = await self.answer(route, named, path, scope, headers, lambda: self._body(receive, headers))
            sent = [*answer.headers, *SECURITY_HEADERS.items()]
            await send({"type": "http.response.start", "status": answer.status, "headers": sent})
            await send({"type": "http.response.body", "body": answer.body})

    def _find_with_body(self, method: bytes, address: bytes) -> tuple[Route, dict[str, str], str] | None:
        """The route of a request with a body, the name in its path, and that path; None for addresses in odd forms."""
        if not _PLAIN.fullmatch(address):
            return None
        path = address.decode()
        methods, named = self.find(path)
        route = methods.get(method.decode())
        return (route, named, path) if route is not None and route.takes_body else None

    def find(self, path: str) -> tuple[Methods, dict[str, str]]:
        """The routes of a path as it was sent, with or without the prefix that a proxy shows it under."""
        parts, root = routes.segments(path), self._root
        return routes.find(["", *parts[len(root) :]] if root and parts[: len(root)] == root else parts)

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
            self.door.admit(scope, headers, route.needed, named.get("name"))
            data = route.decode(await read())
            status, body = route.status, _encode(await route.handler(data=data, state=self.state, **named))
        except Exception as raised:
            problem, refusal = raised, as_failure(raised)
            status, body = refusal.status, _encode(refusal.answer)
            sent += _encoded(refusal)
        sent.append((b"content-length", b"%d" % len(body)))
        seconds = time.perf_counter() - start
        self.measures.answered(route.path, status, seconds)
        if problem or self.log_all:
            self._log(request_id, status, route.method, path, seconds, problem)
        return Answer(status, body, sent)

    async def _through_framework(
        self,
        route: Route | None,
        named: Mapping[str, str],
        methods: Methods,
        path: str,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
    ) -> None:
        """Routes without a body, and requests that no route is for."""
        start, request_id = time.perf_counter(), self._request_id(headers)
        method, status = scope["method"], 0
        problem: Exception | None = None

        async def pass_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {**SECURITY_HEADERS, b"x-request-id": request_id}
                message["headers"] = [*(own | dict(message["headers"])).items()]
            await send(message)

        try:
            needed = "metrics" if route is None else route.needed  # what every key may
            known = self.door.admit(scope, headers, needed, named.get("name"))
            if route is not None:  # for HEAD too: the server leaves out the body
                address = route.path.format(**named)
                inner = {**scope, "method": route.method, "path": address, "known": known}
                await self.framework(inner, receive, pass_on)
            elif methods and method == "OPTIONS":
                allow = (b"allow", _allowed(methods).encode())
                await pass_on({"type": "http.response.start", "status": 204, "headers": [allow]})
                await pass_on({"type": "http.response.body"})
            elif methods:
                raise http_failure(405, repair=SEE_DOCS, headers={"allow": _allowed(methods)})
            else:
                raise http_failure(404, repair=SEE_DOCS)
        except Exception as raised:
            problem = raised
            if not status:  # an answer that is half sent cannot be taken back
                refusal = as_failure(raised)
                body = _encode(refusal.answer)
                sent = [_JSON, (b"content-length", b"%d" % len(body)), *_encoded(refusal)]
                await pass_on({"type": "http.response.start", "status": refusal.status, "headers": sent})
                await pass_on({"type": "http.response.body", "body": body})
        label = OTHER if route is None else route.path
        seconds = time.perf_counter() - start
        self.measures.answered(label, status, seconds)
        if problem or self.log_all or label not in PROBES:
            self._log(request_id, status, method, path, seconds, problem)

    def refusal(self, problem: Failure, *, with_body: bool = True) -> bytes:
        """The whole answer to what did not become a request, after which the connection is closed."""
        request_id = self._request_id({})
        self.measures.answered(OTHER, problem.status, 0.0)
        self._log(request_id, problem.status, "", "", 0.0, problem)
        body = _encode(problem.answer)
        sent = [_JSON, (b"x-request-id", request_id), (b"content-length", b"%d" % len(body)), *_encoded(problem)]
        sent.append((b"connection", b"close"))
        lines = b"".join(b"%s: %s\r\n" % header for header in sent)
        first = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n".encode()
        return b"%s%s%s\r\n%s" % (first, lines, SECURITY_LINES, body if with_body else b"")

    def _request_id(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The caller's own, where it has a sound one."""
        asked = headers.get(b"x-request-id")
        return asked if asked and _REQUEST_ID.fullmatch(asked) else b"%s-%x" % (self._prefix, next(self._ids))

    async def _body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """All of it, if it is not too much."""
        if int(headers.get(b"content-length", b"0")) > self.most_bytes:
            raise http_failure(413)
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":  # what has come may look like a whole body: it is none
                raise failure(400, "incomplete_body", "The connection was closed before the body was complete.")
            body += message["body"]
            more = message["more_body"]
            if len(body) > self.most_bytes:
                raise http_failure(413)
        return body

    def _log(
        self, request_id: bytes, status: int, method: str, path: str, seconds: float, problem: Exception | None
    ) -> None:
        """Few lines per second, whatever is sent; those that were asked for by `log_all` besides."""
        limited = self._fault_lines if status == 500 else self._lines
        if not (self.log_all and problem is None) and not limited.take():
            return
        level = logging.ERROR if status == 500 else logging.WARNING if status > 500 else logging.INFO
        ours = problem if status == 500 else None  # a fault of ours: its traceback stays here
        fields = {"method": method, "path": path[:200], "status": status, "seconds": round(seconds, 6)}
        log(level, "request", exc_info=ours, request_id=request_id.decode(), **fields)


def _allowed(methods: Methods) -> str:
    return ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"])


def _encoded(refusal: Failure) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
