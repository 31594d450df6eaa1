"""The routes of the service itself: is it there, is it ready, what does Prometheus want to know, what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from litestar import MediaType, Request, Response, get
from litestar.datastructures import State
from msgspec import structs

import alphafair
from alphafair.service.docs_page import content_security_policy, docs_page, with_exact_types
from alphafair.service.door import current_caller
from alphafair.service.messages import Health, Readiness
from alphafair.service.responses import ERRORS, with_statuses

Made = TypeVar("Made")
TAGS = ["the service"]


@get("/health", tags=TAGS, responses=ERRORS, sync_to_thread=False)
def health() -> Health:
    """The process is there."""
    return Health("ok", alphafair.__version__)


@get("/ready", tags=TAGS, responses=ERRORS | with_statuses(503, body=Readiness), sync_to_thread=False)
def ready(request: Request[Any, Any, Any], state: State) -> Response[Readiness]:
    """Whether decisions are made now, and if not, why (for those who have a key)."""
    found: Readiness = state.readiness()
    shown = Readiness(found.ready)
    if request.scope.get("known"):
        caller = current_caller.get()
        unhealthy = {name: reason for name, reason in found.unhealthy.items() if caller.sees(name)}
        shown = structs.replace(found, unhealthy=unhealthy)
    return Response(shown, status_code=200 if found.ready else 503)


@get("/metrics", tags=TAGS, responses=ERRORS, media_type=MediaType.TEXT, sync_to_thread=True)
def prometheus(state: State) -> bytes:
    """Counts and times, for Prometheus."""
    page: bytes = state.measures.page()
    return page


@get("/openapi.json", tags=TAGS, responses=ERRORS, sync_to_thread=False)
def openapi(request: Request[Any, Any, Any], state: State) -> dict[str, Any]:
    """What there is, for programs."""
    return _once(state, "description", lambda: with_exact_types(request.app.openapi_schema.to_schema()))


@get("/docs", media_type=MediaType.HTML, include_in_schema=False, sync_to_thread=False)
def docs(request: Request[Any, Any, Any], state: State) -> Response[bytes]:
    """What there is, for people."""
    page = _once(state, "page", lambda: docs_page(with_exact_types(request.app.openapi_schema.to_schema())))
    return Response(page, headers={"content-security-policy": content_security_policy(page)})


def _once(state: State, name: str, make: Callable[[], Made]) -> Made:
    """What takes a tenth of a second to make, in which nobody else is answered, and never changes."""
    if name not in state:
        state[name] = make()
    made: Made = state[name]
    return made
