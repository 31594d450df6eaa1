"""OpenTelemetry, through its API alone and where that is installed: a span per call, and headers that continue it."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from alphafair_client import __version__


@functools.cache
def _api() -> Any:
    """The modules `trace` and `propagate`, imported at the first call; None where they are not installed."""
    try:
        return import_module("opentelemetry.trace"), import_module("opentelemetry.propagate")
    except ModuleNotFoundError:
        return None


def span(call: str) -> AbstractContextManager[Any]:
    """The span of a call of a client, with all its attempts."""
    if (api := _api()) is None:
        return nullcontext()
    trace, _ = api
    tracer = trace.get_tracer("alphafair_client", __version__)
    found: AbstractContextManager[Any] = tracer.start_as_current_span(f"alphafair {call}", kind=trace.SpanKind.CLIENT)
    return found


def headers() -> list[tuple[bytes, bytes]]:
    """The headers of a request inside the current span, such as `traceparent`."""
    if (api := _api()) is None:
        return []
    carrier = dict[str, str]()
    api[1].inject(carrier)
    return [(name.encode(), value.encode()) for name, value in carrier.items()]
