"""The endpoints of the page: addresses with the view that each shows, and the JSON that views are filled from."""

from __future__ import annotations

from typing import Final

from alphafair.service.page.messages import (
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
    WhatIfQuery,
)
from alphafair_client.api import Endpoint, Keys, WhatIfAnswer

# fmt: off
_PAGE, _HTML, _EVENTS = "the page", "text/html; charset=utf-8", "text/event-stream"

INDEX_PAGE = Endpoint("GET", "/", "read", _PAGE, "Show all experiments.", _HTML, view="home", in_api=False)
LIVE_PAGE = Endpoint("GET", "/experiments/{name}/live", "read", _PAGE,
    "Show one experiment: charts, shares, contexts, delays, changes.", _HTML, view="live", in_api=False)
WHAT_IF_PAGE = Endpoint("GET", "/experiments/{name}/what-if", "read", _PAGE,
    "Show what another alpha would have earned.", _HTML, view="what_if", in_api=False)
LOG_PAGE = Endpoint("GET", "/experiments/{name}/log", "log", _PAGE,
    "Show decisions, the newest first.", _HTML, view="log", in_api=False)
DECISION_PAGE = Endpoint("GET", "/experiments/{name}/decision", "log", _PAGE,
    "Show the story of one decision; its id is in the query.", _HTML, view="decision", in_api=False)
KEYS_PAGE = Endpoint("GET", "/keys", "admin", _PAGE, "Show the keys.", _HTML, view="keys", in_api=False)
SIGN_IN_PAGE = Endpoint("GET", "/sign-in", None, _PAGE, "Sign in with a key.", _HTML,
    view="sign_in", in_api=False)
STATIC = Endpoint("GET", "/static/{file...}", None, _PAGE,
    "Load a file of the page.", "application/octet-stream", in_api=False, busy=True)
SESSION = Endpoint("GET", "/session.json", None, _PAGE,
    "Show who the caller is and what it may do.", SessionAnswer, busy=True)
SIGN_IN = Endpoint("POST", "/session", None, _PAGE,
    "Sign in: a key in, a cookie out, which stands for the key for four hours.", SessionAnswer,
    SignIn, {"key": "af_12345678_..."}, status=201, repeatable=False)
SIGN_OUT = Endpoint("DELETE", "/session", None, _PAGE,
    "Sign out every browser that has signed in with the same key.", SessionAnswer)
KEYS_JSON = Endpoint("GET", "/keys.json", "admin", _PAGE,
    "List all keys without their secrets, as the page shows them.", Keys)
POLICIES = Endpoint("GET", "/policies.json", "read", _PAGE,
    "List the policies of new experiments: what each needs, and what it guarantees.", PoliciesAnswer)
INDEX = Endpoint("GET", "/index.json", "read", _PAGE,
    "Show all experiments at a glance, with what needs attention.", IndexAnswer, busy=True)
LIVE = Endpoint("GET", "/experiments/{name}/live.json", "read", _PAGE,
    "Show one experiment, and what happened over time.", LiveAnswer, busy=True)
CONTEXTS = Endpoint("GET", "/experiments/{name}/contexts.json", "log", _PAGE,
    "List contexts, the most frequent first, with the current probabilities of the arms.", ContextsAnswer,
    query=ContextsQuery, busy=True)
WHAT_IF = Endpoint("GET", "/experiments/{name}/what-if.json", "read", _PAGE,
    "Show the price of fairness, computed in the background from the experiment's own log.", WhatIfAnswer,
    query=WhatIfQuery, busy=True)
LOG_ROWS = Endpoint("GET", "/experiments/{name}/log.json", "log", _PAGE,
    "List decisions, the newest first, with filters; `next` is the `before` of the next page.", LogAnswer,
    query=LogPageQuery, busy=True)
DECISION = Endpoint("GET", "/experiments/{name}/decision.json", "log", _PAGE,
    "Tell the story of one decision.", DecisionAnswer, query=DecisionQuery, busy=True)
ALL_EVENTS = Endpoint("GET", "/events", "read", _PAGE,
    "Follow all experiments: server-sent events.", _EVENTS, in_api=False, busy=True)
EVENTS = Endpoint("GET", "/experiments/{name}/events", "read", _PAGE,
    "Follow one experiment: server-sent events.", _EVENTS, in_api=False, busy=True)
# fmt: on

ENDPOINTS: Final = tuple(each for each in list(vars().values()) if isinstance(each, Endpoint))  # in this order
UNCOUNTED: Final = frozenset((SIGN_IN_PAGE, STATIC, SESSION))  # by the limit of requests: a page asks for many files
