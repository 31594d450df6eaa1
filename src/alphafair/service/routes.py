"""The table of routes. Routing, roles, OpenAPI, /docs, the table in docs/service.md and the clients follow from it.

Paths are compared segment by segment after their escapes are decoded, and are not normalised: a path with another
slash, dot or capital is another path. So a route needs the same role however its address is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from alphafair.engine.requests import Outcome, Receipt
from alphafair.service import handlers
from alphafair.service import page_handlers as pages
from alphafair.service.errors import Failure
from alphafair.service.keys import Role
from alphafair.service.messages import (
    ActivationRequest,
    Change,
    ContextQuery,
    CreatedKey,
    DecisionAnswers,
    DecisionBatch,
    DecisionRequest,
    ErrorAnswer,
    ExperimentAnswer,
    Experiments,
    Health,
    History,
    KeyAnswer,
    Keys,
    LogQuery,
    NewExperiment,
    NewKey,
    Problem,
    Readiness,
    RewardAnswers,
    RewardBatch,
    RewardRequest,
    Rotation,
)
from alphafair.service.page_messages import (
    ContextsAnswer,
    ContextsQuery,
    DecisionAnswer,
    DecisionQuery,
    IndexAnswer,
    LiveAnswer,
    LogAnswer,
    LogPageQuery,
    PoliciesAnswer,
    SessionAnswer,
    SignIn,
    WhatIfAnswer,
    WhatIfQuery,
)

PARAMETERS = {"name": "The name of an experiment.", "id": "The id of a key: the part after af_.", "file": "A path."}


@dataclass(frozen=True, eq=False)
class Route:
    """One row: a method and a path, who may use it, its messages, and what it does."""

    method: str
    path: str
    role: Role | None  # None: open to everybody
    handler: Callable[..., Awaitable[Any]]
    group: str  # the heading on /docs
    summary: str
    answer: type | str  # a message, or a media type
    body: type[Struct] | None = None
    example: Mapping[str, Any] | None = None  # of the body
    query: type[Struct] | None = None
    status: int = 200
    other_answers: Mapping[int, type] = field(default_factory=dict)  # besides those in `errors`
    busy: bool = False  # logged only with --log-requests, unless it fails
    always_logged: bool = False  # if it succeeded, however many lines there are: changes and downloads
    repeatable: bool = True  # whether sending it twice has the effect of sending it once
    is_page: bool = False  # HTML of the page: strangers are sent to where they can sign in
    in_api: bool = True  # whether programs may want it: described by OpenAPI
    uncounted: bool = False  # by the limit of requests per second: a page asks for many files at once

    @cached_property
    def decode(self) -> Callable[[bytes | bytearray], Any]:
        """Read a body; raises `msgspec.DecodeError` if it is not one."""
        return msgspec.json.Decoder(self.body).decode

    def decode_query(self, query: str) -> Struct:
        """Read the query of an address; a parameter that the route does not have is an error."""
        assert self.query is not None  # noqa: S101 - for mypy
        given = dict(parse_qsl(query, keep_blank_values=True))
        fields = msgspec.structs.fields(self.query)
        for name in given.keys() - {each.name for each in fields}:
            message = f"The query has no parameter {name!r}; it has {', '.join(each.name for each in fields)}."
            raise Failure(422, Problem("bad_request", message, name, "See /docs for the expected format."))
        for each in fields:
            if each.required and each.name not in given:
                message = f"The query must have the parameter {each.name!r}."
                raise Failure(400, Problem("bad_request", message, each.name, "See /docs for the expected format."))
        filled = {name: value for name, value in given.items() if value}  # an empty parameter has its default
        filled |= {each.name: given[each.name] for each in fields if each.required}
        return msgspec.convert(filled, self.query, strict=False)  # numbers arrive as strings

    @property
    def parameters(self) -> list[str]:
        """The names in braces in the path."""
        return [part.strip("{}.") for part in self.path.split("/") if part.startswith("{")]

    @property
    def errors(self) -> list[int]:
        """The statuses of `ErrorAnswer`."""
        named = [404, 422] if self.parameters or self.body else []
        written = [] if self.repeatable else [504]
        return sorted([400, 401, 403, 429, 500, 503, *named, *written, *([409, 413, 415] if self.body else [])])


# fmt: off
_EXPERIMENTS, _DECISIONS, _KEYS, _SERVICE = "experiments", "decisions and rewards", "keys", "the service"
_PAGE, _HTML, _EVENTS = "the page", "text/html; charset=utf-8", "text/event-stream"
_SHELL: dict[str, Any] = {"is_page": True, "in_api": False}

LIST = Route("GET", "/v1/experiments", "read", handlers.experiments, _EXPERIMENTS,
    "List the names of the experiments that the key may see.", Experiments)
CREATE = Route("POST", "/v1/experiments", "admin", handlers.create, _EXPERIMENTS,
    "Create an experiment; the key must not be limited.", ExperimentAnswer,
    NewExperiment, {"name": "home", "arms": ["ada", "ben"], "alpha": 0.9}, status=201, repeatable=False,
    always_logged=True)
SHOW = Route("GET", "/v1/experiments/{name}", "read", handlers.experiment, _EXPERIMENTS,
    "Show the current state of an experiment.", ExperimentAnswer)
CHANGE = Route("PATCH", "/v1/experiments/{name}", "admin", handlers.change, _EXPERIMENTS,
    "Change a running experiment: exactly one change per request.", ExperimentAnswer,
    Change, {"alpha": 0.5}, repeatable=False, always_logged=True)
ERASE = Route("DELETE", "/v1/experiments/{name}/contexts", "admin", handlers.erase, _EXPERIMENTS,
    "Erase a context's label and the ids of its decisions permanently; the numbers stay.", ExperimentAnswer,
    query=ContextQuery, repeatable=False, always_logged=True)
HISTORY = Route("GET", "/v1/experiments/{name}/history", "read", handlers.history, _EXPERIMENTS,
    "List every change of an experiment: when, what, and by which key.", History)
LOG = Route("GET", "/v1/experiments/{name}/log", "log", handlers.log, _EXPERIMENTS,
    "Download the log: context, arm, propensity and reward of every decision. One download per key, two in all.",
    "application/octet-stream", query=LogQuery, always_logged=True)

DECIDE = Route("POST", "/v1/experiments/{name}/decisions", "write", handlers.decide, _DECISIONS,
    "Draw an arm for a context. The same id again returns the same decision.", Receipt,
    DecisionRequest, {"context": "visitor-7"}, busy=True)
REWARD = Route("POST", "/v1/experiments/{name}/rewards", "write", handlers.reward, _DECISIONS,
    "Report the reward of a decision. The same reward again has no effect; another one is a conflict.", Outcome,
    RewardRequest, {"id": "order-1", "reward": 0.8}, other_answers={410: ErrorAnswer}, busy=True)
ACTIVATE = Route("POST", "/v1/experiments/{name}/activations", "write", handlers.activate, _DECISIONS,
    "Report that a deferred decision was carried out: from then on it counts.", Outcome,
    ActivationRequest, {"id": "order-1"}, other_answers={410: ErrorAnswer}, busy=True)
DECIDE_MANY = Route("POST", "/v1/experiments/{name}/decisions/batch", "write", handlers.decide_many, _DECISIONS,
    "Make up to 1,000 decisions: one answer per item, in order. An item with an error does not affect the others.",
    DecisionAnswers, DecisionBatch, {"items": [{"context": "visitor-7"}, {"context": "visitor-8"}]}, busy=True)
REWARD_MANY = Route("POST", "/v1/experiments/{name}/rewards/batch", "write", handlers.reward_many, _DECISIONS,
    "Report up to 1,000 rewards: one answer per item, in order.", RewardAnswers,
    RewardBatch, {"items": [{"id": "order-1", "reward": 0.8}]}, busy=True)

CREATE_KEY = Route("POST", "/v1/keys", "admin", handlers.create_key, _KEYS,
    "Create a key. Only this answer shows it. The first one must be an admin key without limits.", CreatedKey,
    NewKey, {"role": "write", "name": "the shop"}, status=201, repeatable=False, always_logged=True)
LIST_KEYS = Route("GET", "/v1/keys", "admin", handlers.list_keys, _KEYS,
    "List all keys without their secrets.", Keys)
ROTATE_KEY = Route("POST", "/v1/keys/{id}/rotations", "admin", handlers.rotate_key, _KEYS,
    "Replace a key by a new one of the same name, role and limits; the old one expires after `grace` seconds.",
    CreatedKey, Rotation, {"grace": 3600.0}, status=201, repeatable=False, always_logged=True)
REVOKE_KEY = Route("DELETE", "/v1/keys/{id}", "admin", handlers.revoke_key, _KEYS,
    "Revoke a key.", KeyAnswer, always_logged=True)

HEALTH = Route("GET", "/health", None, handlers.health, _SERVICE,
    "Report that the process is running.", Health, busy=True)
READY = Route("GET", "/ready", None, handlers.ready, _SERVICE,
    "Report whether decisions are made now; with a key, also why not.", Readiness,
    other_answers={503: Readiness}, busy=True)
METRICS = Route("GET", "/metrics", "metrics", handlers.prometheus, _SERVICE,
    "Show counts and times for Prometheus.", "text/plain; charset=utf-8", busy=True)
OPENAPI = Route("GET", "/openapi.json", "read", handlers.openapi, _SERVICE,
    "Describe the routes for programs.", dict)
DOCS = Route("GET", "/docs", "read", handlers.docs, _SERVICE,
    "Describe the routes for people.", "text/html; charset=utf-8", in_api=False)

INDEX_PAGE = Route("GET", "/", "read", pages.page, _PAGE, "Show all experiments.", _HTML, **_SHELL)
LIVE_PAGE = Route("GET", "/experiments/{name}/live", "read", pages.experiment_page, _PAGE,
    "Show one experiment: charts, shares, contexts, delays, changes.", _HTML, **_SHELL)
WHAT_IF_PAGE = Route("GET", "/experiments/{name}/what-if", "read", pages.experiment_page, _PAGE,
    "Show what another alpha would have earned.", _HTML, **_SHELL)
LOG_PAGE = Route("GET", "/experiments/{name}/log", "log", pages.experiment_page, _PAGE,
    "Show decisions, the newest first.", _HTML, **_SHELL)
DECISION_PAGE = Route("GET", "/experiments/{name}/decision", "log", pages.experiment_page, _PAGE,
    "Show the story of one decision; its id is in the query.", _HTML, **_SHELL)
KEYS_PAGE = Route("GET", "/keys", "admin", pages.page, _PAGE, "Show the keys.", _HTML, **_SHELL)
SIGN_IN_PAGE = Route("GET", "/sign-in", None, pages.page, _PAGE, "Sign in with a key.", _HTML,
    **_SHELL, uncounted=True)
STATIC = Route("GET", "/static/{file...}", None, pages.static_file, _PAGE,
    "Load a file of the page.", "application/octet-stream", in_api=False, busy=True, uncounted=True)
SESSION = Route("GET", "/session.json", None, pages.session, _PAGE,
    "Show who the caller is and what it may do.", SessionAnswer, busy=True, uncounted=True)
SIGN_IN = Route("POST", "/session", None, pages.sign_in, _PAGE,
    "Sign in: a key in, a cookie out, which stands for the key for four hours.", SessionAnswer,
    SignIn, {"key": "af_12345678_..."}, status=201, repeatable=False)
SIGN_OUT = Route("DELETE", "/session", None, pages.sign_out, _PAGE,
    "Sign out every browser that has signed in with the same key.", SessionAnswer)
KEYS_JSON = Route("GET", "/keys.json", "admin", pages.keys, _PAGE,
    "List all keys without their secrets, as the page shows them.", Keys)
POLICIES = Route("GET", "/policies.json", "read", pages.policies, _PAGE,
    "List the policies of new experiments: what each needs, and what it guarantees.", PoliciesAnswer)
INDEX = Route("GET", "/index.json", "read", pages.index, _PAGE,
    "Show all experiments at a glance, with what needs attention.", IndexAnswer, busy=True)
LIVE = Route("GET", "/experiments/{name}/live.json", "read", pages.live, _PAGE,
    "Show one experiment, and what happened over time.", LiveAnswer, busy=True)
CONTEXTS = Route("GET", "/experiments/{name}/contexts.json", "log", pages.contexts, _PAGE,
    "List contexts, the most frequent first, with the current probabilities of the arms.", ContextsAnswer,
    query=ContextsQuery, busy=True)
WHAT_IF = Route("GET", "/experiments/{name}/what-if.json", "read", pages.what_if, _PAGE,
    "Show the price of fairness, computed in the background from the experiment's own log.", WhatIfAnswer,
    query=WhatIfQuery, busy=True)
LOG_ROWS = Route("GET", "/experiments/{name}/log.json", "log", pages.log_page, _PAGE,
    "List decisions, the newest first, with filters; `next` is the `before` of the next page.", LogAnswer,
    query=LogPageQuery, busy=True)
DECISION = Route("GET", "/experiments/{name}/decision.json", "log", pages.decision, _PAGE,
    "Tell the story of one decision.", DecisionAnswer, query=DecisionQuery, busy=True)
ALL_EVENTS = Route("GET", "/events", "read", pages.all_events, _PAGE,
    "Follow all experiments: server-sent events.", _EVENTS, in_api=False, busy=True)
EVENTS = Route("GET", "/experiments/{name}/events", "read", pages.events, _PAGE,
    "Follow one experiment: server-sent events.", _EVENTS, in_api=False, busy=True)
# fmt: on

ROUTES = tuple(each for each in list(vars().values()) if isinstance(each, Route))  # in this order

Methods = Mapping[str, Route]
METHODS: Methods = {route.method: route for route in ROUTES}  # of any path, each with one of its routes


class _Node:
    """Routes below a common beginning of their paths."""

    def __init__(self) -> None:
        self.methods: dict[str, Route] = {}
        self.fixed: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.rest: tuple[str, _Node] | None = None  # a parameter for all further parts


def _tree(routes: Sequence[Route]) -> _Node:
    root = _Node()
    for route in routes:
        node = root
        for part in route.path.split("/"):
            if part.endswith("...}"):
                node.rest = part.strip("{}."), _Node()
                node = node.rest[1]
            elif part.startswith("{"):
                node.parameter = node.parameter or (part[1:-1], _Node())
                node = node.parameter[1]
            else:
                node = node.fixed.setdefault(part, _Node())
        node.methods[route.method] = route
    return root


_ROOT = _tree(ROUTES)


def segments(path: str) -> list[str]:
    """The decoded parts of a path between its slashes; the first one is empty."""
    parts = path.split("/")
    return [unquote(part) for part in parts] if "%" in path else parts


def find(parts: Sequence[str]) -> tuple[Methods, dict[str, str]]:
    """The routes of a path by method, empty if there are none, and the parameters in the path."""
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
