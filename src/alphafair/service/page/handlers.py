"""What the endpoints of the page do: the shell, its files, signing in, its numbers as JSON, and streams of events."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

import alphafair
from alphafair.engine.jobs import WhatIfJob
from alphafair.engine.reports import ContextProbabilities, LogFilter
from alphafair.engine.state.summary import SECOND
from alphafair.errors import RequestError
from alphafair.service.api.handlers import Handler, caller_of, list_keys
from alphafair.service.http.errors import failure, http_failure
from alphafair.service.http.exchange import Request, Response
from alphafair.service.keys import LOCAL, ROLES, end_sessions, roles_with
from alphafair.service.page import endpoints, views
from alphafair.service.page.files import PAGE_POLICY, File, Shown
from alphafair.service.page.messages import (
    ContextRow,
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
from alphafair.service.page.sentences import evaluated
from alphafair.service.page.watchers import ALL, index_answer, visible
from alphafair.service.sessions import Session, cookie, is_own_page, is_secure, token_of
from alphafair_client.api import EVALUATE, Curve, Endpoint, EvaluationQuery, Keys, PresentPoint, WhatIfAnswer

if TYPE_CHECKING:
    from alphafair.service.keys import Caller
    from alphafair.service.service import Service

LEAST_REWARDS: Final = 100  # rewarded decisions for a curve
MOST_ROUNDS: Final = 50_000  # of them that are used: the latest
GROWN, GROWN_SECONDS = 1.1, 60.0  # a curve is computed again once the log is so many times as long, and so much older
UNESCAPED: Final = "-_.!~*'()"  # by encodeURIComponent, besides letters and digits
ETAGS: Final = re.compile(rb'"[^"]*"')  # in a list; weak ones are compared like strong ones
REVALIDATED: Final = b"no-cache"  # keep it, and ask every time whether it has changed


# the shell and its files


def shell(service: Service, request: Request, status: int = 200) -> Response:
    """The HTML of the view at an address; the browser asks for its first numbers at once, if it may have them."""
    if request.endpoint is None or request.endpoint.view is None:
        raise TypeError("the endpoint has no view")
    role, name = request.endpoint.role, request.parameters.get("name")
    page = Shown(request.endpoint.view, name, role, [] if role is None else roles_with(role))
    data = ["/session.json"]
    if status == 200 and page.view == "home":
        data.append("/index.json")
    elif status == 200 and page.view == "live":
        data.append(f"/experiments/{quote(name or '', safe=UNESCAPED)}/live.json")
    return _sent(request, service.files.shell(page, data), status)


async def page(service: Service, request: Request) -> Response:
    return shell(service, request)


async def experiment_page(service: Service, request: Request, name: str) -> Response:
    return shell(service, request, 200 if await _exists(service, request, name) else 404)


async def _exists(service: Service, request: Request, name: str) -> bool:
    """Whether there is an experiment with a name; another process may have created it a moment ago."""
    if service.reports.has(name):
        return True
    return name in await service.reads.run(caller_of(request), service.engine.experiments)


async def static_file(service: Service, request: Request, file: str) -> Response:
    found = service.files.static.get(file)
    if found is None or file.endswith(".html"):
        raise http_failure(404, repair="Load the page again: its files may have changed.")
    return _sent(request, found)


def _sent(request: Request, file: File, status: int = 200) -> Response:
    headers = {
        b"cache-control": REVALIDATED,
        b"content-security-policy": PAGE_POLICY,
        b"etag": file.etag,
        b"referrer-policy": b"same-origin",
    }
    known = request.headers.get(b"if-none-match", b"").strip()
    if status == 200 and (known == b"*" or file.etag in ETAGS.findall(known)):
        return Response(304, headers=headers)
    return Response(status, file.body, headers, file.content_type)


# signing in


async def session(service: Service, request: Request) -> SessionAnswer:
    return _session(service, request.caller, service.access.sessions.find(token_of(request.headers)))


async def sign_in(service: Service, request: Request, body: SignIn) -> Response:
    if not service.access.keyring.any_created:
        raise failure(409, "no_keys", "No keys exist: everybody on this machine may use the page.")
    if not is_own_page(request.headers):
        raise failure(403, "cross_site", "Only the page of this service can sign in.")
    caller = service.access.keyring.find(body.key.strip())
    service.access.count(request.address if caller is None else caller.id)
    if caller is None:
        message = "The key is unknown, expired or revoked."
        repair = "Check that the whole key was pasted."
        raise failure(401, "unauthorized", message, repair=repair, www_authenticate="Bearer")
    sessions = service.access.sessions
    token = sessions.begin(caller.id)
    return _with_cookie(service, request, token, _session(service, caller, sessions.find(token)), 201)


async def sign_out(service: Service, request: Request) -> Response:
    sessions, token = service.access.sessions, token_of(request.headers)

    def end() -> None:
        found = sessions.find(token)
        if found is not None:  # another request with this cookie may have been first
            end_sessions(service.address, found.key_id, found.epoch)

    if sessions.find(token) is not None:
        if request.caller is None:
            raise failure(403, "cross_site", "Only the page of this service can sign out.")
        await service.access.keyring.change(end)
    return _with_cookie(service, request, "", _session(service, None, None), 200)


def _with_cookie(service: Service, request: Request, token: str, answer: SessionAnswer, status: int) -> Response:
    lifetime = {} if token else {"lifetime": 0.0}
    value = cookie(token, service.root_path, secure=is_secure(request.headers), **lifetime)
    return Response(status, service.encode(answer), {b"set-cookie": value})


def _session(service: Service, caller: Caller | None, found: Session | None) -> SessionAnswer:
    with_session = caller is not None and found is not None and caller.id == found.key_id
    return SessionAnswer(
        signed_in=caller is not None,
        needs_key=service.access.keyring.any_created,
        name=None if caller is None else caller.name,
        key_id=None if caller is None or caller.name == LOCAL else caller.id,
        role=None if caller is None else caller.role,  # type: ignore[arg-type]
        roles=[] if caller is None else [role for role in ROLES if role in ROLES[caller.role].includes],
        experiments=None if caller is None or caller.experiments is None else sorted(caller.experiments),
        csrf=found.csrf if found is not None and with_session else None,
        expires_at=found.expires_at if found is not None and with_session else None,
        version=alphafair.__version__,
    )


# experiments


async def index(service: Service, request: Request) -> IndexAnswer:
    caller = caller_of(request)
    found = await service.reads.run(caller, partial(index_answer, service))
    return visible(found, caller.experiments)


async def keys(service: Service, request: Request) -> Keys:
    return await list_keys(service, request)


async def policies(service: Service, request: Request) -> PoliciesAnswer:
    return PoliciesAnswer(await service.reads.run(caller_of(request), views.policy_items))


async def live(service: Service, request: Request, name: str) -> LiveAnswer:
    def describe(name: str) -> LiveAnswer:
        return views.live_answer(service.reports.overview(name))

    return await service.reads.run(caller_of(request), partial(service.descriptions.of, name, "live", describe))


async def contexts(service: Service, request: Request, name: str, query: ContextsQuery) -> ContextsAnswer:
    async def compute() -> tuple[list[str], int, list[ContextProbabilities]]:
        find = partial(service.reports.contexts, name, query.search, query.limit, query.offset)
        return await service.scans.run(caller_of(request), find)

    if query.search:
        arms, total, found = await compute()
    else:  # what every page asks for again and again; a change of the experiment, such as an erasure, shows at once
        key = caller_of(request).id, name, service.reports.version(name), query.limit, query.offset
        arms, total, found = await service.shared_contexts.get(key, compute)
    unknown: list[float | None] = [None] * len(arms)
    rows = [ContextRow(each.label, each.decisions, [*(each.probabilities or unknown)]) for each in found]
    return ContextsAnswer(arms, total, rows)


async def all_events(service: Service, request: Request) -> Response:
    return _stream(service, request, ALL)


async def events(service: Service, request: Request, name: str) -> Response:
    if not await _exists(service, request, name):
        repair = "Check the name of the experiment."
        raise RequestError("unknown_experiment", "experiment", "the name of an experiment", name, repair)
    return _stream(service, request, name)


def _stream(service: Service, request: Request, name: str) -> Response:
    def check() -> object:
        return service.access.admit(request.headers, request.address, "read", name or None, counted=False)

    last_id = request.headers.get(b"last-event-id", b"").decode("latin-1")
    stream = service.watchers.watch(name, caller_of(request), last_id, check)
    headers = {b"x-accel-buffering": b"no"}  # nginx forwards events as they come
    return Response(200, headers=headers, content_type=b"text/event-stream", stream=stream)


# what if


async def what_if(service: Service, request: Request, name: str, query: WhatIfQuery) -> WhatIfAnswer:
    return await _evaluated(service, request, name, query.source or None, renew=query.renew)


async def evaluate(service: Service, request: Request, name: str, query: EvaluationQuery) -> WhatIfAnswer:
    return await _evaluated(service, request, name, query.source or None, renew=False)


async def _evaluated(service: Service, request: Request, name: str, source: str | None, *, renew: bool) -> WhatIfAnswer:
    """The price of fairness from the decisions of the policy, or of another source."""
    caller = caller_of(request)
    find_job = partial(service.reports.what_if_job, name, MOST_ROUNDS, source)
    job = await (service.reads if source is None else service.scans).run(caller, find_job)
    n_rewards = job.rewards
    last = service.calculations.find(job)
    before = service.curves.get(job)

    def answer(status: Any, sentence: str, found: Mapping[str, Any] | None) -> WhatIfAnswer:
        curve = None if found is None or found["curve"] is None else _curve(found["curve"])
        present = _present(job, {} if found is None else found["present"])
        return WhatIfAnswer(status, sentence, n_rewards, present, curve, source)

    if n_rewards < LEAST_REWARDS:
        sentence = f"There are {n_rewards:,} rewarded decisions. The curve needs at least {LEAST_REWARDS:,}."
        return answer("too few", sentence, None)
    if last is not None and last.status == "ready":
        before = service.curves[job] = last.result
    grown = last is not None and n_rewards >= GROWN * last.job.rewards
    last = service.calculations.get(caller, job, again=renew, when_older=GROWN_SECONDS if grown else math.inf)
    if last is None and renew:
        message = "Too many calculations are waiting."
        raise failure(503, "busy", message, repair="Compute the curve again later.", retry_after="5")
    if last is None or last.status == "computing":
        return answer("computing", "The curve is being computed from the log, in the background.", before)
    if last.status == "failed":
        return answer("failed", f"The curve could not be computed: {last.problem}", before)
    if last.result["curve"] is None:
        return answer("no propensities", evaluated(last.result, last.job), last.result)
    return answer("ready", evaluated(last.result, last.job), last.result)


def _curve(found: Mapping[str, Any]) -> Curve:
    return msgspec.convert(found, Curve)


def _present(job: WhatIfJob, found: Mapping[str, float]) -> PresentPoint:
    alpha = views.shown_alpha(job.alpha)
    return PresentPoint(alpha, found.get("average_reward"), found.get("jain_index"), found.get("least_share"))


# the log


async def log_page(service: Service, request: Request, name: str, query: LogPageQuery) -> LogAnswer:
    wanted = LogFilter(
        query.context or None,
        query.arm or None,
        query.state or None,
        None if query.since is None else int(query.since * SECOND),
        None if query.until is None else int(query.until * SECOND),
        query.before,
    )
    find = partial(service.reports.log_excerpt, name, wanted, query.limit)
    return views.log_answer(await service.scans.run(caller_of(request), find))


async def decision(service: Service, request: Request, name: str, query: DecisionQuery) -> DecisionAnswer:
    caller = caller_of(request)
    story = await service.scans.run(caller, partial(service.reports.story, name, query.id))
    if story.probabilities is not None:
        sentence = "The distribution is stored with the decision."
        return views.decision_answer(story, "stored", sentence, story.probabilities.tolist())
    if story.row.decided_by is not None:
        sentence = "The policy did not draw it: another source has decided."
        return views.decision_answer(story, "unavailable", sentence, None)
    found = service.calculations.get(caller, service.reports.probabilities_job(story))
    if found is None or found.status == "computing":
        sentence = "The distribution is being recomputed from the log before the decision, in the background."
        return views.decision_answer(story, "computing", sentence, None)
    if found.status == "failed":
        sentence = f"The distribution could not be recomputed: {found.problem}"
        return views.decision_answer(story, "unavailable", sentence, None)
    values = found.result["probabilities"]
    slate = story.row.slate
    arms, logged = ([story.row.arm], [story.row.propensity]) if slate is None else (slate.arms, [*slate.propensities])
    if [values[arm] for arm in arms] != logged:
        sentence = "This version of the policy draws with other probabilities than the one that made the decision."
        return views.decision_answer(story, "unavailable", sentence, None)
    sentence = "Recomputed from the log before the decision; the logged propensity is the same to the last bit."
    return views.decision_answer(story, "recomputed", sentence, values)


# which of them answers which endpoint

HANDLERS: Final[dict[Endpoint, Handler]] = {
    endpoints.INDEX_PAGE: page,
    endpoints.LIVE_PAGE: experiment_page,
    endpoints.WHAT_IF_PAGE: experiment_page,
    endpoints.LOG_PAGE: experiment_page,
    endpoints.DECISION_PAGE: experiment_page,
    endpoints.KEYS_PAGE: page,
    endpoints.SIGN_IN_PAGE: page,
    endpoints.STATIC: static_file,
    endpoints.SESSION: session,
    endpoints.SIGN_IN: sign_in,
    endpoints.SIGN_OUT: sign_out,
    endpoints.KEYS_JSON: keys,
    endpoints.POLICIES: policies,
    endpoints.INDEX: index,
    endpoints.LIVE: live,
    endpoints.CONTEXTS: contexts,
    endpoints.WHAT_IF: what_if,
    EVALUATE: evaluate,
    endpoints.LOG_ROWS: log_page,
    endpoints.DECISION: decision,
    endpoints.ALL_EVENTS: all_events,
    endpoints.EVENTS: events,
}
