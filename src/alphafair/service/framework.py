"""The Litestar application: all routes, and the OpenAPI description that it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.exceptions import NotFoundException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme, Server

import alphafair
from alphafair.service import decisions, experiments, pages
from alphafair.service.docs_page import DocsPage

WITH_BODY = (
    *(decisions.decide, decisions.reward, decisions.activate, decisions.decide_many, decisions.reward_many),
    *(experiments.create, experiments.change),
)
WITHOUT = (
    *(experiments.experiments, experiments.experiment, experiments.erase, experiments.download_log),
    *(pages.health, pages.ready, pages.prometheus, pages.openapi),
)


def framework(
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]], state: State, *, root_path: str, most_bytes: int
) -> Litestar:
    """Errors pass through it to `app.Service`, which tells all of them in one form."""
    return Litestar(
        [*WITH_BODY, *WITHOUT],
        state=state,
        lifespan=[lifespan],
        exception_handlers={Exception: _pass_on},
        request_max_body_size=most_bytes,
        openapi_config=OpenAPIConfig(
            title="alphafair",
            version=alphafair.__version__,
            description="Decisions that are fair over time.",
            use_handler_docstrings=True,
            openapi_router=Router("/docs", route_handlers=[], include_in_schema=False, after_request=_refuse_unknown),
            render_plugins=[DocsPage(path="/")],
            servers=[Server(url=root_path or "/")],
            components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
            security=[{"key": []}, {}],
        ),
        logging_config=None,
    )


def _pass_on(request: Request[Any, Any, Any], problem: Exception) -> Response[Any]:
    raise problem


def _refuse_unknown(response: Response[Any]) -> Response[Any]:
    """Litestar has a page of its own for what is not below /docs."""
    if response.status_code == 404:
        raise NotFoundException
    return response
