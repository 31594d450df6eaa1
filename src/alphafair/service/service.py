"""The service: every request is opened when its head is complete, answered when its body is, and finished once.

`Service.open` finds the endpoint and checks the caller, `Service.respond` runs the handler and turns exceptions into
errors, `Service.finish` counts and logs. `connections` calls them; it knows HTTP and nothing of endpoints.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from http import HTTPMethod
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from alphafair.engine import Engine, Mismatch, Unavailable, Uncertain
from alphafair.engine.addresses import Address
from alphafair.engine.jobs import WhatIfJob
from alphafair.engine.reports import Reports
from alphafair.jit import Kernels
from alphafair.precompile import compile_kernels
from alphafair.service import routes, tracing
from alphafair.service.access import Access
from alphafair.service.api.descriptions import Descriptions
from alphafair.service.api.exports import Exports
from alphafair.service.command_queue import CommandQueue
from alphafair.service.http.connections import MAX_CONNECTIONS, Connections, Timeouts, is_host
from alphafair.service.http.errors import as_failure, failure, http_failure, unknown_method
from alphafair.service.http.exchange import Request, Response
from alphafair.service.keys import Keyring
from alphafair.service.logs import log
from alphafair.service.metrics import Measures
from alphafair.service.openapi import Documents
from alphafair.service.page import handlers as page_handlers
from alphafair.service.page.calculations import Calculations
from alphafair.service.page.endpoints import UNCOUNTED
from alphafair.service.page.files import PageFiles
from alphafair.service.page.watchers import Watchers
from alphafair.service.request_log import NOT_ADMITTED, RequestLog
from alphafair.service.routes import HANDLERS, Methods
from alphafair.service.sessions import SAFE_METHODS
from alphafair.service.shared import SharedAnswers
from alphafair.service.shares import Places, Pool
from alphafair_client.api import JSON_FORMS, Endpoint, Readiness, Role

OTHER = "other"  # the path of requests to no endpoint, in metrics
SEE_DOCS = "See /docs for the paths and their methods. A path does not end with a slash."
TICK = 1.0  # seconds between two checks of the file, and between two rounds of maintenance
SILENT = 5.0  # seconds without a check after which a database counts as away
MAINTENANCE_PAUSE = 0.02  # seconds between two steps of maintenance, in which requests are answered
READY, NOT_READY = (logging.INFO, "ready again"), (logging.ERROR, "not ready")
MAX_CACHED_TARGET = 200  # bytes
LONG_BODY = 1 << 14  # bytes, above which bodies are decoded one after the other
READERS, SCANNERS = 6, 3  # threads for requests that read, and for those whose work grows with the log
READS_WAITING = 500  # requests for each kind of work that wait, half of them of one key
_PLAIN_TARGET = re.compile(rb"/[A-Za-z0-9/._~-]*")  # without escapes and query
_ANY_TARGET = re.compile(rb"(?:(?i:https?)://(?P<host>[^/?#]+))?(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Limits(NamedTuple):
    """How much the service accepts."""

    max_body: int = 1 << 20  # bytes
    max_waiting: int = 20_000  # commands that wait for the disk; a quarter of them of one key
    rate: float | None = None  # requests, and items of batches, per second and caller
    max_connections: int | None = None  # None: as many as open files allow, up to a thousand
    timeouts: Timeouts = Timeouts()


DEFAULT_LIMITS = Limits()


class _Target(NamedTuple):
    """What the method and the target of a request lead to."""

    path: str
    query: str
    endpoint: Endpoint | None
    methods: Methods
    parameters: Mapping[str, str]
    role: Role | None  # that the caller needs
    host: bytes | None = None  # in the target; it counts instead of the header


class Service:
    """An engine over HTTP. `running` starts its background work and closes the engine at the end."""

    def __init__(
        self,
        engine: Engine,
        address: Address,
        *,
        limits: Limits = DEFAULT_LIMITS,
        root_path: str = "",
        log_all: bool = False,
    ) -> None:
        self.engine, self.address, self.limits = engine, address, limits
        self.reports = Reports(engine.writers)
        self.measures = Measures(self)
        self.commands = CommandQueue(engine.writers, max_waiting=limits.max_waiting, observe=self.measures.committed)
        self.keyring, self.exports = Keyring(address), Exports()
        self.access = Access(self.keyring, rate=limits.rate)
        closed = self.measures.connection_closed
        self.connections = Connections(limits.max_connections or MAX_CONNECTIONS, limits.timeouts, closed)
        self.documents, self.files, self.root_path = Documents(root_path), PageFiles(root_path), root_path
        self.watchers, self.calculations = Watchers(self), Calculations()
        self.shared_contexts, self.shared_metrics = SharedAnswers(), SharedAnswers()
        self.descriptions = Descriptions()
        self.reads, self.scans = _pool("read", READERS), _pool("scan", SCANNERS)
        self.decoding = _pool("decode", 1)  # of long bodies
        self.curves: dict[WhatIfJob, dict[str, Any]] = {}  # the last price of fairness of each experiment
        self.encode = msgspec.json.Encoder().encode
        self.request_log = RequestLog(self.measures.left_out, log_all=log_all)
        self._root = routes.segments(root_path) if root_path else []
        self._cached_target = lru_cache(1000)(self._target)
        self._ids = itertools.count(1)
        self._id_prefix = secrets.token_hex(4).encode()
        self.compiled, self._looked = False, 0.0  # when the engine was last asked for its health

    # a request

    def open(self, request: Request) -> None:
        """Find the endpoint of a request and check its caller, when its head is complete.

        If that fails, `request.failure` is set: the body need not be kept.
        """
        asked = request.headers.get(b"x-request-id")
        request.id = asked if asked and _REQUEST_ID.fullmatch(asked) else b"%s-%x" % (self._id_prefix, next(self._ids))
        if request.failure is not None:
            return
        try:
            find = self._cached_target if len(request.target) <= MAX_CACHED_TARGET else self._target
            found = find(request.method, request.target)
            request.path, request.query, endpoint, methods, request.parameters, role, host = found
            request.endpoint = endpoint
            if host is not None:
                request.headers = {**request.headers, b"host": host}
            name = request.parameters.get("name")
            counted = endpoint not in UNCOUNTED
            request.caller = self.access.admit(
                request.headers, request.address, role, name, request.method, counted=counted
            )
            if endpoint is None:
                _check_method(request.method, methods)
            elif endpoint.body is not None and b"content-encoding" in request.headers:
                _check_coding(request.headers[b"content-encoding"])
            if role == "write" and request.caller is not None and self.commands.is_full(request.caller):
                raise self.commands.overload(request.caller)  # before its body is kept
        except Exception as problem:
            request.failure = problem
        finally:
            request.span = tracing.open_span(request)

    def _target(self, method: str, target: bytes) -> _Target:
        query, host = "", None
        if _PLAIN_TARGET.fullmatch(target):
            path = target.decode()
        elif target == b"*" and method == "OPTIONS":
            return _Target("*", query, None, routes.METHODS, {}, None)
        else:
            parsed = _ANY_TARGET.fullmatch(target)
            host = parsed and parsed["host"]
            if parsed is None or not (is_host(host) if host else parsed["path"]):
                message = "The target of the request must be a path with or without a query, or an http address."
                raise failure(400, "bad_http", message)
            path, query = (parsed["path"] or b"/").decode("latin-1"), (parsed["query"] or b"").decode("latin-1")
        parts, root = routes.segments(path), self._root
        if root and parts[: len(root)] == root:  # a reverse proxy may remove the prefix or not
            parts = ["", *parts[len(root) :]]
        methods, parameters = routes.find(parts)
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            role = endpoint.role
        else:  # of a path that is open to everybody, everybody may ask for the methods; every key includes "metrics"
            is_open = method == "OPTIONS" and any(each.role is None for each in methods.values())
            role = None if is_open else "metrics"
        return _Target(path, query, endpoint, methods, parameters, role, host)

    async def respond(self, request: Request) -> Response:
        """The response to a complete request. It does not raise: an exception becomes an error."""
        try:
            if request.failure is not None:
                raise request.failure
            endpoint = request.endpoint
            if endpoint is None:  # OPTIONS
                return Response(
                    204, headers={b"allow": _allowed(self._target("OPTIONS", request.target).methods).encode()}
                )
            arguments: dict[str, Any] = {**request.parameters}
            if endpoint.body is not None:
                arguments["body"] = await self._body(request, endpoint.body)
            if endpoint.query is not None:
                arguments["query"] = routes.read_query(endpoint.query, request.query)
            with tracing.inside(request.span):
                answer = await HANDLERS[endpoint](self, request, **arguments)
            if isinstance(answer, Response):
                return answer
            form = JSON_FORMS.get(type(answer))
            return Response(endpoint.status, self._encoded(endpoint, answer if form is None else form(*answer)))
        except Exception as problem:
            request.problem = problem
            failed = as_failure(problem, repeatable=request.endpoint is None or request.endpoint.repeatable)
            is_page = request.endpoint is not None and request.endpoint.view is not None
            if failed.pause:
                await asyncio.sleep(failed.pause)
            if failed.status == 401 and is_page:
                request.problem = None
                return self._to_sign_in(request)
            if failed.answer.error.code == "forbidden" and is_page:
                return page_handlers.shell(self, request, failed.status)  # the page says which role is needed
            headers = {name.encode(): value.encode() for name, value in failed.headers.items()}
            return Response(failed.status, self.encode(failed.answer), headers)

    async def _body(self, request: Request, kind: Any) -> Any:
        """The body of a request. A long one takes milliseconds: others are answered in between, and keys take turns."""
        read = routes.reader(kind)
        if len(request.body) <= LONG_BODY:
            return read(request.body)
        return await self.decoding.run(request.caller or NOT_ADMITTED, partial(read, request.body))

    def _encoded(self, endpoint: Endpoint, answer: Any) -> bytes:
        try:
            return self.encode(answer)
        except Exception as problem:
            if endpoint.method in SAFE_METHODS:
                raise
            log(logging.ERROR, "an answer cannot be encoded", exc_info=problem, route=endpoint.path)
            raise Uncertain(f"The request was carried out, but its answer cannot be written: {problem}") from problem

    def _to_sign_in(self, request: Request) -> Response:
        """Send a stranger to the page where a key can be entered, and from there back."""
        path = request.path.removeprefix(self.root_path)
        here = f"{path}?{request.query}" if request.query else path
        target = f"{self.root_path}/sign-in?{urlencode({'next': here})}"
        return Response(303, headers={b"location": target.encode("ascii")}, content_type=b"text/plain; charset=utf-8")

    def finish(self, request: Request, status: int) -> None:
        """Count a request whose response was sent, and log it."""
        seconds = time.perf_counter() - request.started
        self.measures.answered(OTHER if request.endpoint is None else request.endpoint.path, status, seconds)
        tracing.close_span(request.span, status)
        self.request_log.write(request, status, seconds)

    # the service

    def readiness(self) -> Readiness:
        """What is known from the last tick, without trying anything."""
        health = self.engine.health(probe=False)
        behind = health["clock_behind_seconds"]
        if not self.compiled:
            return Readiness(False, "compiling policies, which takes some seconds", behind)
        reason = health["reason"]
        if reason is None and not self.keyring.up_to_date:
            reason = "Keys cannot be read."
        silent = time.monotonic() - self._looked
        if reason is None and self.engine.writers.is_shared and silent > SILENT:
            reason = f"The database has not answered for {silent:.0f} seconds."
        unhealthy = self.descriptions.problems | health["unhealthy"]
        return Readiness(reason is None, reason, behind, unhealthy)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Compile policies, keep the file in order once per second, and close everything at the end."""
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            await self.commands.drain()
            self.exports.close()
            for pool in (self.reads, self.scans, self.decoding):
                pool.close()
            await self.calculations.close()
            self.keyring.close()
            self.engine.close()

    async def _tick(self) -> None:
        for kernels in await asyncio.to_thread(_kernels_in_use, self.engine, self.reports):
            try:
                await asyncio.to_thread(compile_kernels, kernels)
            except Exception as problem:
                log(logging.ERROR, f"compiling {kernels} failed; its first decision may fail", exc_info=problem)
        self.compiled, self._looked = True, time.monotonic()
        was_ready = True
        gc.freeze()  # what is loaded now stays: the garbage collector need not look through it
        while True:
            try:
                health = await self.commands.run(self.engine.health)
                self._looked = time.monotonic()
                if health["ready"] != was_ready:
                    was_ready = health["ready"]
                    log(*(READY if was_ready else NOT_READY), reason=health["reason"])
                until = time.perf_counter() + TICK
                while was_ready and await self.commands.run(self.engine.maintain):
                    await asyncio.sleep(MAINTENANCE_PAUSE)
                    if time.perf_counter() > until:
                        break
                else:
                    await asyncio.sleep(TICK)
            except Exception as problem:  # try again in a second
                log(logging.WARNING, "the file is not available", reason=str(problem))
                await asyncio.sleep(TICK)


def _kernels_in_use(engine: Engine, reports: Reports) -> set[Kernels]:
    """Return the kernels of the default policy and those of the experiments, if the file can be read."""
    found = {Kernels("alpha-fair-adaptive", "bandit")}
    with suppress(Mismatch, Unavailable):
        found.update(*(reports.kernels(name) for name in engine.experiments()))
    return found


def _check_method(method: str, methods: Methods) -> None:
    """Reject a method that a path does not have, or a path that has none."""
    if method not in HTTPMethod.__members__:
        raise unknown_method()
    if not methods:
        raise http_failure(404, repair=SEE_DOCS)
    if method != "OPTIONS":
        raise http_failure(405, repair=SEE_DOCS, headers={"allow": _allowed(methods)})


def _check_coding(coding: bytes) -> None:
    if coding.strip().lower() != b"identity":
        message = f"A body must not be compressed; got the Content-Encoding {coding.decode('latin-1')!r}."
        repair = "Send the JSON as it is."
        raise failure(415, "unsupported_media_type", message, repair=repair, accept_encoding="identity")


def _pool(name: str, n_threads: int) -> Pool:
    """Threads for the work of keys; where there are several, one key has two thirds."""
    threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
    places = Places(READS_WAITING, READS_WAITING // 2, for_admins=1)
    return Pool(threads, places, at_once=n_threads, per_caller=max(1, n_threads * 2 // 3))


def _allowed(methods: Methods) -> str:
    return ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"])
