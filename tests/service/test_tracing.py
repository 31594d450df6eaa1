"""Traces: with a stand-in for the API of OpenTelemetry, and in a process of its own with its SDK."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alphafair import Client, ServiceError
from alphafair.service import tracing
from alphafair.service.http.exchange import Request
from alphafair_client import tracing as client_tracing
from tests import ROOT
from tests.serving import Running, running, wait_for

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WITH_SDK = """
import json, sys, tempfile
from pathlib import Path

sys.path += sys.argv[1:]  # at the end: of what both have, this environment's
try:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ModuleNotFoundError:
    sys.exit("missing")
from alphafair import Client
from tests.serving import running

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with running(Path(tempfile.mkdtemp()) / "shop.db", ready=False) as shop:
    shop.engine.create("home", arms=["ada"], policy="uniform")
    with Client(shop.url, timeout=60.0) as client:
        client.decide("home", "v")
spans = {span.name: span for span in exporter.get_finished_spans()}
call, commit = spans["alphafair decide"], spans["alphafair commit"]
request = spans["POST /v1/experiments/{name}/decisions"]
assert request.parent.span_id == call.context.span_id and request.context.trace_id == call.context.trace_id
assert [link.context.span_id for link in commit.links] == [request.context.span_id]
assert request.attributes["alphafair.experiment"] == "home" and request.attributes["http.response.status_code"] == 200
assert 0 <= commit.end_time - commit.start_time < 60 * 10**9
"""


class Spans:
    """A stand-in for the modules `trace` and `propagate`: spans are what was passed, and what they continue."""

    def __init__(self) -> None:
        self.ended: list[SimpleNamespace] = []
        self.stack: list[SimpleNamespace] = []
        self.numbers = count(1)
        self.SpanKind = SimpleNamespace(CLIENT="client", SERVER="server")
        self.StatusCode = SimpleNamespace(ERROR="error")

    def get_tracer(self, name: str, version: str) -> Spans:
        return self

    def start_span(self, name: str, **options: Any) -> Any:
        span = SimpleNamespace(name=name, status=None, number=next(self.numbers), **options)
        span.attributes = dict(options.get("attributes") or {})
        span.set_attribute = span.attributes.__setitem__
        span.set_status = lambda status: setattr(span, "status", status)
        span.get_span_context = lambda: SimpleNamespace(is_valid=True, number=span.number)
        span.end = lambda end_time=None: self.ended.append(span)
        return span

    @contextmanager
    def start_as_current_span(self, name: str, **options: Any) -> Any:
        span = self.start_span(name, **options)
        try:
            with self.use_span(span):
                yield span
        finally:
            span.end()

    @contextmanager
    def use_span(self, span: Any, **_: Any) -> Any:
        self.stack.append(span)
        try:
            yield
        finally:
            self.stack.remove(span)

    def get_current_span(self) -> Any:
        outside = SimpleNamespace(get_span_context=lambda: SimpleNamespace(is_valid=False))
        return self.stack[-1] if self.stack else outside

    def Link(self, context: Any) -> Any:
        return context.number

    def inject(self, carrier: dict[str, str]) -> None:
        if self.stack:
            carrier["traceparent"] = f"00-{self.stack[-1].number:032x}-{1:016x}-01"

    def extract(self, carrier: dict[str, str]) -> Any:
        return carrier.get("traceparent")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    found = Spans()
    for module in (tracing, client_tracing):
        monkeypatch.setattr(module, "_api", lambda: (found, found))
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with running(tmp_path / "shop.db", ready=False) as found:
        found.engine.create("home", arms=["ada", "ben"], policy="uniform")
        yield found


def test_a_call_a_request_and_a_commit_have_spans(spans: Spans, shop: Running) -> None:
    with Client(shop.url, timeout=60.0) as client:
        client.decide("home", "v")
        with pytest.raises(ServiceError):
            client.experiment("nowhere")
        client.experiments()
    assert shop.http.get("/nowhere").status_code == 404
    wait_for(lambda: [each.name for each in spans.ended], lambda names: len(names) >= 8)
    named = {span.name: span for span in spans.ended}
    call, request = named["alphafair decide"], named["POST /v1/experiments/{name}/decisions"]
    assert (call.kind, request.kind, request.status) == ("client", "server", None)
    assert request.context == f"00-{call.number:032x}-{1:016x}-01"
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/experiments/{name}/decisions",
        "alphafair.experiment": "home",
        "http.response.status_code": 200,
    }
    commit = named["alphafair commit"]
    assert (commit.links, commit.attributes) == ([request.number], {"alphafair.commands": 1})
    assert named["GET /v1/experiments/{name}"].attributes["http.response.status_code"] == 404
    assert "alphafair.experiment" not in named["GET /v1/experiments"].attributes
    assert named["GET other"].context is None


def test_a_failure_of_the_service_is_an_error_of_its_span(spans: Spans) -> None:
    request = Request("GET", b"/", {}, "")
    for status in (404, 503):
        tracing.close_span(tracing.open_span(request), status)
    assert [span.status for span in spans.ended] == [None, "error"]


def test_commits_of_nobody_have_no_links(spans: Spans) -> None:
    tracing.commit(0.5, 2, [None, tracing.current()])
    (commit,) = spans.ended
    assert commit.links == []
    assert commit.start_time > 0


def test_without_opentelemetry_there_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tracing, client_tracing):
        monkeypatch.setattr(module, "_api", lambda: None)
    tracing.commit(0.5, 1, [tracing.current()])
    with tracing.inside(tracing.open_span(Request("GET", b"/", {}, ""))), client_tracing.span("decide"):
        assert client_tracing.headers() == []


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (PARENT, TRACE),
        (f"cc{PARENT[2:]}-what-comes-later", TRACE),
        (f"{PARENT}-more", None),
        (f"cc{PARENT[2:]}more", None),
        (f"ff{PARENT[2:]}", None),
        (PARENT.upper(), None),
        (PARENT.replace(TRACE, "0" * 32), None),
        (PARENT.replace("b7ad6b7169203331", "0" * 16), None),
        (PARENT[:-1], None),
        ("", None),
    ],
)
def test_the_log_has_the_trace_id_of_a_valid_traceparent(
    header: str, expected: str | None, shop: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "alphafair.service"):
        shop.http.get("/v1/experiments/nowhere", headers={"traceparent": header})
        wait_for(lambda: [each for each in caplog.records if each.message == "request"])
    (record,) = (each for each in caplog.records if each.message == "request")
    assert record.fields.get("trace_id") == expected  # type: ignore[attr-defined]


def test_it_works_with_the_sdk_of_opentelemetry() -> None:
    """It is installed beside the generators of clients, apart: `make .venv/installed-generators`."""
    folders = [str(path) for path in Path(sys.prefix, "generators").glob("lib/python*/site-packages")]
    done = subprocess.run(
        [sys.executable, "-c", WITH_SDK, *folders], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    if done.stderr.strip() == "missing" and not os.environ.get("CI"):
        pytest.skip("make .venv/installed-generators")
    assert done.returncode == 0, done.stderr
