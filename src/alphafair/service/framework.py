"""The Litestar application: all routes, and the OpenAPI description that it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Server

import alphafair
from alphafair.service.routes import HANDLERS


def framework(
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]], state: State, *, root_path: str, most_bytes: int
) -> Litestar:
    """Errors pass through it to `app.Service`, which tells all of them in one form and knows which paths there are."""
    return Litestar(
        HANDLERS,
        state=state,
        lifespan=[lifespan],
        exception_handlers={Exception: _pass_on},
        request_max_body_size=most_bytes,
        openapi_config=OpenAPIConfig(
            title="alphafair",
            version=alphafair.__version__,
            description="Decisions that are fair over time.",
            use_handler_docstrings=True,
            render_plugins=[JsonRenderPlugin()],  # nobody gets there: pages.docs and pages.openapi show it
            servers=[Server(url=root_path or "/")],
            components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
            security=[{"key": []}, {}],
        ),
        logging_config=None,
    )


def _pass_on(request: Request[Any, Any, Any], problem: Exception) -> Response[Any]:
    raise problem
