"""Find the endpoint of a request, and read its body and its query.

Paths are compared segment by segment after their escapes are decoded, and are not normalized: a path with another
slash, dot or capital is another path. So an endpoint needs the same role however its address is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from alphafair.service.api import handlers
from alphafair.service.http.errors import Failure
from alphafair.service.page import endpoints as page_endpoints
from alphafair.service.page import handlers as page_handlers
from alphafair_client import api
from alphafair_client.api import Endpoint, Problem

ENDPOINTS: Final = (*api.ENDPOINTS, *page_endpoints.ENDPOINTS)  # in the order of their description
HANDLERS: Final = {**handlers.HANDLERS, **page_handlers.HANDLERS}


@cache
def reader(body: type[Struct]) -> Callable[[bytes | bytearray], Any]:
    """What reads a body; it raises `msgspec.DecodeError` if it is not one."""
    return msgspec.json.Decoder(body).decode


def read_query(kind: type[Struct], query: str) -> Struct:
    """Read the query of an address; a parameter that the endpoint does not have is an error."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    fields = msgspec.structs.fields(kind)
    for name in given.keys() - {each.name for each in fields}:
        message = f"The query has no parameter {name!r}; it has {', '.join(each.name for each in fields)}."
        raise Failure(422, Problem("bad_request", message, name, "See /docs for the expected format."))
    for each in fields:
        if each.required and each.name not in given:
            message = f"The query must have the parameter {each.name!r}."
            raise Failure(400, Problem("bad_request", message, each.name, "See /docs for the expected format."))
    filled = {name: value for name, value in given.items() if value}  # an empty parameter has its default
    filled |= {each.name: given[each.name] for each in fields if each.required}
    return msgspec.convert(filled, kind, strict=False)  # numbers arrive as strings


Methods = Mapping[str, Endpoint]
METHODS: Methods = {endpoint.method: endpoint for endpoint in ENDPOINTS}  # of any path, each with one of its endpoints


class _Node:
    """Endpoints below a common beginning of their paths."""

    def __init__(self) -> None:
        self.methods: dict[str, Endpoint] = {}
        self.fixed: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.rest: tuple[str, _Node] | None = None  # a parameter for all further parts


def _tree(endpoints: Sequence[Endpoint]) -> _Node:
    root = _Node()
    for endpoint in endpoints:
        node = root
        for part in endpoint.path.split("/"):
            if part.endswith("...}"):
                node.rest = part.strip("{}."), _Node()
                node = node.rest[1]
            elif part.startswith("{"):
                node.parameter = node.parameter or (part[1:-1], _Node())
                node = node.parameter[1]
            else:
                node = node.fixed.setdefault(part, _Node())
        node.methods[endpoint.method] = endpoint
    return root


_ROOT = _tree(ENDPOINTS)


def segments(path: str) -> list[str]:
    """The decoded parts of a path between its slashes; the first one is empty."""
    parts = path.split("/")
    return [unquote(part) for part in parts] if "%" in path else parts


def find(parts: Sequence[str]) -> tuple[Methods, dict[str, str]]:
    """The endpoints of a path by method, empty if there are none, and the parameters in the path."""
    node, parameters = _ROOT, dict[str, str]()
    for k, part in enumerate(parts):
        if node.rest is not None:
            return node.rest[1].methods, {**parameters, node.rest[0]: "/".join(parts[k:])}
        if part in node.fixed:
            node = node.fixed[part]
        elif node.parameter is not None and part and "/" not in part:
            parameters[node.parameter[0]] = part
            node = node.parameter[1]
        else:
            return {}, {}
    return node.methods, parameters
