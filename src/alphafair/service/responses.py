"""What the OpenAPI page adds to a route: an example of its body, and the errors beside its answer."""

from __future__ import annotations

from typing import Any

from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import Body

from alphafair.service.messages import ErrorAnswer


def example(**body: Any) -> Any:
    return Body(examples=[Example(value=body)])


def with_statuses(*statuses: int, body: Any = ErrorAnswer) -> dict[int, ResponseSpec]:
    return {status: ResponseSpec(body, generate_examples=False, description="An error.") for status in statuses}


ERRORS = with_statuses(400, 401, 403, 429, 500, 503)
ERRORS_OF_NAMES = ERRORS | with_statuses(404, 422)
ERRORS_OF_POSTS = ERRORS_OF_NAMES | with_statuses(409, 413)
ERRORS_OF_OUTCOMES = ERRORS_OF_POSTS | with_statuses(410)
