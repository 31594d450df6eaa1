"""Traces across services: OpenTelemetry, through its API alone and where that is installed; and trace ids for the log.

A request has a span, which continues the trace of its `traceparent`. A commit has a span with links to the requests
that it answers, because these belong to many traces.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import alphafair
from alphafair.service.http.exchange import Request

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(request: Request) -> str | None:
    """The trace id of a valid `traceparent`, of version 00 or a later one, which may have more fields.

    >>> request = Request("GET", b"/", {b"traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "")
    >>> trace_id(request)
    '0af7651916cd43dd8448eb211c80319c'
    """
    header = request.headers.get(b"traceparent", b"")
    found = _TRACEPARENT.match(header)
    if found is None or (header[:2] == b"00" and len(header) != 55) or header[55:56] not in (b"", b"-"):
        return None
    return found[1].decode()


@functools.cache
def _api() -> Any:
    """The modules `trace` and `propagate`; None where they are not installed."""
    try:
        return import_module("opentelemetry.trace"), import_module("opentelemetry.propagate")
    except ModuleNotFoundError:
        return None


def _tracer() -> Any:
    return _api()[0].get_tracer("alphafair", alphafair.__version__)


def open_span(request: Request) -> Any:
    """The span of a request whose head is complete, or None."""
    if (api := _api()) is None:
        return None
    trace, propagate = api
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    route = request.endpoint.path if request.endpoint is not None else "other"
    attributes = {"http.request.method": request.method, "http.route": route}
    if "name" in request.parameters:
        attributes["alphafair.experiment"] = request.parameters["name"]
    context = propagate.extract(carrier)
    kind = trace.SpanKind.SERVER
    return _tracer().start_span(f"{request.method} {route}", context=context, kind=kind, attributes=attributes)


def inside(span: Any) -> AbstractContextManager[Any]:
    """Let what follows belong to the span of a request; its errors are answers, not exceptions."""
    if span is None:
        return nullcontext()
    found: AbstractContextManager[Any] = _api()[0].use_span(
        span, end_on_exit=False, record_exception=False, set_status_on_exception=False
    )
    return found


def close_span(span: Any, status: int) -> None:
    """End the span of a request."""
    if span is None:
        return
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(_api()[0].StatusCode.ERROR)
    span.end()


def current() -> Any:
    """What the span of a commit links to: the current span, or None."""
    return None if _api() is None else _api()[0].get_current_span().get_span_context()


def commit(seconds: float, n_commands: int, requests: Iterable[Any]) -> None:
    """The span of a commit that has just ended; `requests` are what `current` returned."""
    if (api := _api()) is None:
        return
    ended = time.time_ns()
    links = [api[0].Link(each) for each in requests if each is not None and each.is_valid]
    attributes = {"alphafair.commands": n_commands}
    started = ended - round(seconds * 1e9)
    _tracer().start_span("alphafair commit", links=links, attributes=attributes, start_time=started).end(end_time=ended)
