"""The table of routes: which handler answers what, and the role that it needs.

A path is compared segment by segment, with its escapes decoded, and never tidied up: one with another slash, dot or
capital is another path. So a route needs the same role however its address is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from litestar.handlers import HTTPRouteHandler

from alphafair.service import decisions, experiments, key_routes, pages
from alphafair.service.keys import Permission

NEEDED: dict[Permission | None, tuple[HTTPRouteHandler, ...]] = {
    None: (pages.health, pages.ready),  # anybody
    "metrics": (pages.prometheus,),
    "read": (
        *(experiments.experiments, experiments.experiment, experiments.history),
        *(pages.openapi, pages.docs),
    ),
    "write": (decisions.decide, decisions.decide_many, decisions.reward, decisions.reward_many, decisions.activate),
    "log": (experiments.download_log,),
    "admin": (
        *(experiments.create, experiments.change, experiments.erase),
        *(key_routes.create, key_routes.keys, key_routes.rotate, key_routes.revoke),
    ),
}
HANDLERS = [handler for handlers in NEEDED.values() for handler in handlers]


class Route(NamedTuple):
    """A method and a path, such as `/v1/experiments/{name}/log`, and what answers them."""

    method: str
    path: str
    needed: Permission | None  # None: no key at all
    status: int
    takes_body: bool
    decode: Callable[[bytes], Any]  # of that body
    handler: Callable[..., Awaitable[Any]]


def segments(path: str) -> list[str]:
    """The parts of a path between its slashes, decoded; a path that begins with a slash begins with an empty one."""
    parts = path.split("/")
    return [unquote(part) for part in parts] if "%" in path else parts


def _route(handler: HTTPRouteHandler, needed: Permission | None) -> Route:
    ((method,), (path,)) = handler.http_methods, handler.paths
    body = handler.parsed_fn_signature.parameters.get("data")
    decode = msgspec.json.Decoder(body.annotation if body else None).decode
    path = path.replace(":str}", "}")
    return Route(str(method), path, needed, handler.status_code, body is not None, decode, handler.fn)


Methods = Mapping[str, Route]
ROUTES = [_route(handler, needed) for needed, handlers in NEEDED.items() for handler in handlers]
_NAME = len(segments("/v1/experiments"))  # which segment is the name of an experiment or the id of a key, if one is
_BY_SEGMENTS: dict[tuple[str | None, ...], dict[str, Route]] = {}  # None in place of that
_PARAMETER = {"experiments": "name", "keys": "id"}
for _each in ROUTES:
    _key = tuple(None if part.startswith("{") else part for part in segments(_each.path))
    _BY_SEGMENTS.setdefault(_key, {})[_each.method] = _each


def find(parts: Sequence[str]) -> tuple[Methods, dict[str, str]]:
    """The routes of a path by their methods, none if it has none, and the name in it."""
    if len(parts) > _NAME and parts[_NAME] and "/" not in parts[_NAME]:
        named = _BY_SEGMENTS.get((*parts[:_NAME], None, *parts[_NAME + 1 :]))
        if named is not None:
            return named, {_PARAMETER[parts[_NAME - 1]]: parts[_NAME]}
    return _BY_SEGMENTS.get(tuple(parts), {}), {}
