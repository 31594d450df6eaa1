"""What each endpoint of the API does; `alphafair_client.api` has its path, its role and its messages.

A handler gets the service, the request, the parameters of its path by name, and `body` or `query` as the types of its
endpoint. It returns the answer, or a `Response` where the answer is not JSON.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import UNSET, UnsetType, structs

import alphafair
from alphafair import metrics
from alphafair.engine import (
    Activate,
    Decide,
    Engine,
    Observe,
    Outcome,
    Receipt,
    RequestError,
    Reward,
    SlateReceipt,
    Status,
    Uncertain,
)
from alphafair.engine.dates import date_of
from alphafair.errors import InvalidArgument
from alphafair.formatting import json_alpha
from alphafair.groups import Groups
from alphafair.service import keys
from alphafair.service.access import check_unlimited
from alphafair.service.http.errors import Failure, as_failure, outcome_failure
from alphafair.service.http.exchange import Request, Response
from alphafair.service.keys import Caller, Key
from alphafair_client import api
from alphafair_client.api import (
    ActivationRequest,
    ChangeItem,
    ChangeRequest,
    ContextQuery,
    CreatedKey,
    DecisionAnswers,
    DecisionBatch,
    DecisionItem,
    DecisionRequest,
    ExperimentAnswer,
    Experiments,
    GroupsOfArms,
    Health,
    History,
    KeyAnswer,
    Keys,
    LogQuery,
    NewExperiment,
    NewKey,
    ObservationAnswers,
    ObservationBatch,
    ObservationItem,
    Problem,
    Readiness,
    RewardAnswers,
    RewardBatch,
    RewardItem,
    RewardRequest,
    Rotation,
)

if TYPE_CHECKING:
    from alphafair.service.service import Service

Handler = Callable[..., Awaitable[Any]]
MAX_FULL_ERRORS = 10  # of a batch; the others are short, so that the answer is not much longer than the request
CHANGE_OPTIONS = {  # fields of `ChangeRequest` that are no change of their own, and the changes that they go with
    "group": ("add_arm",),
    "entitlement": ("add_arm",),
    "features": ("add_arm",),
    "period_start": ("period",),
    "carry": ("period", "new_period"),
}
CREATE_ARGUMENTS = {*inspect.signature(Engine.create).parameters, *NewExperiment.__struct_fields__}


# decisions, rewards, activations


async def decide(service: Service, request: Request, name: str, body: DecisionRequest) -> Receipt | SlateReceipt:
    command = _decision(name, body)
    receipt: Receipt | SlateReceipt = await _submit(service, request, command)
    return receipt


async def reward(service: Service, request: Request, name: str, body: RewardRequest) -> Outcome:
    return _successful(await _submit(service, request, Reward(body.id, body.reward, name)))


async def activate(service: Service, request: Request, name: str, body: ActivationRequest) -> Outcome:
    return _successful(await _submit(service, request, Activate(body.id, name)))


async def decide_many(service: Service, request: Request, name: str, body: DecisionBatch) -> DecisionAnswers:
    commands = [_decision(name, each) for each in body.items]
    answers = await _submit_many(service, request, commands)
    errors = _errors({k: as_failure(each) for k, each in enumerate(answers) if isinstance(each, RequestError)})
    return DecisionAnswers(
        [DecisionItem(error=errors[k]) if k in errors else _item_of(each) for k, each in enumerate(answers)]
    )


def _decision(name: str, body: DecisionRequest) -> Decide:
    asked = (body.available, body.deferred, body.k, body.features)
    return Decide(name, body.context, body.id, *asked, body.incumbent, body.incumbent_propensity, body.unit)


def _item_of(receipt: Receipt | SlateReceipt) -> DecisionItem:
    if isinstance(receipt, Receipt):
        return DecisionItem(**receipt._asdict())
    return DecisionItem(**{**receipt._asdict(), "arms": [*receipt.arms], "propensities": [*receipt.propensities]})


async def reward_many(service: Service, request: Request, name: str, body: RewardBatch) -> RewardAnswers:
    answers = await _submit_many(service, request, [Reward(each.id, each.reward, name) for each in body.items])
    errors = _errors(_failures(answers))
    return RewardAnswers([RewardItem(getattr(each, "outcome", None), errors.get(k)) for k, each in enumerate(answers)])


async def observe_many(service: Service, request: Request, name: str, body: ObservationBatch) -> ObservationAnswers:
    ids = [service.engine.writers.ids.next() if each.id is None else each.id for each in body.items]
    told = [{**structs.asdict(each), "id": id} for each, id in zip(body.items, ids, strict=True)]
    answers = await _submit_many(service, request, [Observe(name, **each) for each in told])
    items = []
    errors = _errors(_failures(answers))
    for k, (id, each) in enumerate(zip(ids, answers, strict=True)):
        outcome = getattr(each, "outcome", None)
        items.append(ObservationItem(None if outcome is None else id, outcome, errors.get(k)))
    return ObservationAnswers(items)


def _failures(answers: Iterable[Outcome | RequestError]) -> dict[int, Failure]:
    """The items that have failed, by an exception or by their outcome."""
    found = {
        k: as_failure(each) if isinstance(each, RequestError) else outcome_failure(each.outcome)
        for k, each in enumerate(answers)
    }
    return {k: failure for k, failure in found.items() if failure is not None}


async def _submit(service: Service, request: Request, command: Any) -> Any:
    (answer,) = await service.commands.submit(caller_of(request), (command,))
    if isinstance(answer, RequestError):
        raise answer
    return answer


async def _submit_many(service: Service, request: Request, commands: list[Any]) -> list[Any]:
    caller = caller_of(request)
    service.access.count(caller.id, len(commands), already=1)
    answers = await service.commands.submit(caller, commands)
    if isinstance(answers[0], RequestError) and answers[0].code == "unknown_experiment":
        raise answers[0]  # the path is wrong, not an item
    return answers


def _successful(outcome: Outcome) -> Outcome:
    if failure := outcome_failure(outcome.outcome):
        raise failure
    return outcome


def _errors(failures: Mapping[int, Failure]) -> dict[int, Problem]:
    """The errors of a batch by item: the first few and the first of each kind in full, the others refer to those."""
    first: dict[tuple[str, str | None], int] = {}
    errors: dict[int, Problem] = {}
    for k, failure in failures.items():
        error = failure.answer.error
        kind = error.code, error.argument
        if kind in first and len(errors) >= MAX_FULL_ERRORS:
            message = f"Same error as item {first[kind]}; {len(failures)} items have errors."
            error = Problem(error.code, message, error.argument)
        first.setdefault(kind, k)
        errors[k] = error
    return errors


# experiments


async def create(service: Service, request: Request, body: NewExperiment) -> ExperimentAnswer:
    arguments = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    settings = arguments.pop("settings")
    if isinstance(body.groups, GroupsOfArms):
        arguments["groups"] = structs.asdict(body.groups)
    for name in settings.keys() & CREATE_ARGUMENTS:
        repair = f"Send it as {name!r}." if name in body.__struct_fields__ else "Leave it out."
        raise InvalidArgument(f"settings.{name}", "a setting of the policy", settings[name], repair)
    check_unlimited(caller_of(request), "create experiments")  # a new one takes memory from the others
    return await _change(service, request, body.name, lambda: service.engine.create(**arguments, **settings))


async def experiments(service: Service, request: Request) -> Experiments:
    caller = caller_of(request)
    names = await service.reads.run(caller, service.engine.experiments)
    return Experiments([name for name in names if caller.sees(name)])


async def experiment(service: Service, request: Request, name: str) -> ExperimentAnswer:
    return await service.reads.run(caller_of(request), lambda: _described(service, name))


async def change(service: Service, request: Request, name: str, body: ChangeRequest) -> ExperimentAnswer:
    given = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    options = {name: given.pop(name) for name in CHANGE_OPTIONS if name in given}
    kind, value = next(iter(given.items()), ("", None))
    if len(given) != 1 or any(kind not in CHANGE_OPTIONS[option] for option in options):
        got = sorted({*given, *options})
        raise InvalidArgument("the body", "an object with exactly one change", got, "Send one change at a time.")
    engine = service.engine
    if kind == "paused":
        return await _change(service, request, name, lambda: (engine.pause if value else engine.resume)(name))
    if kind == "new_period":
        if not value:
            raise InvalidArgument("new_period", "true", value, "Leave it out, or send true to start a period now.")
        return await _change(service, request, name, lambda: engine.new_period(name, **options))
    if not isinstance(body.terms, UnsetType):
        terms: Any = {term: new for term, new in structs.asdict(body.terms).items() if new is not UNSET}
        return await _change(service, request, name, lambda: engine.set_terms(name, **terms))
    method = getattr(engine, f"set_{kind}" if kind in ("alpha", "period") else kind)
    return await _change(service, request, name, lambda: method(name, value, **options))


async def erase(service: Service, request: Request, name: str, query: ContextQuery) -> ExperimentAnswer:
    return await _change(service, request, name, lambda: service.engine.erase(name, query.label))


async def history(service: Service, request: Request, name: str) -> History:
    find = partial(service.descriptions.of, name, "history", service.engine.history)
    found = await service.scans.run(caller_of(request), find)
    return History([ChangeItem(*each) for each in found])


async def log(service: Service, request: Request, name: str, query: LogQuery) -> Response:
    caller = caller_of(request)
    job = await service.reads.run(caller, lambda: service.reports.export_job(name, query.format))
    stream = await service.exports.begin(caller, job)
    headers = {b"content-disposition": _attachment(name, query.format).encode("ascii")}
    return Response(200, headers=headers, content_type=b"application/octet-stream", stream=stream)


async def _change(service: Service, request: Request, name: str, act: Callable[[], None]) -> ExperimentAnswer:
    """Change an experiment between two commits, in the caller's name, and describe it."""
    caller = caller_of(request)

    def work() -> ExperimentAnswer:
        with service.engine.acting_as(caller.recorded_as):
            act()
        try:
            return _described(service, name)
        except Exception as problem:
            raise Uncertain(f"The change was made, but its result cannot be read: {problem}") from problem

    return await service.commands.change(caller, work)


def _attachment(name: str, format: str) -> str:
    """The header that names the saved file; names of experiments created in Python need not be ASCII."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    exact = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}.{format}"
    return f'attachment; filename="{plain}.{format}"{exact}'


def _described(service: Service, name: str) -> ExperimentAnswer:
    return service.descriptions.of(name, "state", lambda name: described(service.engine.experiment(name)))


def described(status: Status) -> ExperimentAnswer:
    """The current state of an experiment as a message."""
    known = {**vars(status), **fairness(status)}
    if status.alpha is not None:
        known["alpha"] = json_alpha(status.alpha)
    return ExperimentAnswer(**{name: known[name] for name in ExperimentAnswer.__struct_fields__})


def fairness(status: Status) -> dict[str, float | None]:
    """Jain's index, alpha-performance and welfare of the accounts; None where not finite.

    Without accounts only Jain's index is known: that of the sums of rewards.
    """
    if not status.accounts or status.alpha is None:
        jain = jain_index(status, by_group(status, status.cumulative_rewards, status.arms))
        return {"jain_index": jain, "alpha_performance": None, "welfare": None}
    accounts, groups = [*status.accounts.values()], None
    if status.groups is not None and status.groups.entitlements is not None:
        entitlements = status.groups.entitlements
        groups = Groups(entitlements=[entitlements[label] for label in status.accounts])
    performance = math.inf
    if status.alpha < math.inf:
        performance = float(metrics.alpha_performance(accounts, status.alpha, groups=groups))
    return {
        "jain_index": float(metrics.jain_index(accounts, groups=groups)),
        "alpha_performance": performance if math.isfinite(performance) else None,
        "welfare": status.welfare,
    }


def jain_index(status: Status, values: Mapping[str, float]) -> float | None:
    """Jain's index of accounts or sums of rewards, by group or arm; None where some are negative, or all are 0."""
    entitlements = (status.groups.entitlements if status.groups is not None else None) or {}
    relative = [value / entitlements.get(label, 1.0) for label, value in values.items()]
    most = max(relative, default=0.0)
    if min(relative, default=0.0) < 0.0 or not 0.0 < most < math.inf:
        return None
    scaled = [value / most for value in relative]
    return sum(scaled) ** 2 / (len(scaled) * sum(value**2 for value in scaled))


def by_group(status: Status, values: Mapping[str, float], arms: Iterable[str]) -> dict[str, float]:
    """Sums over the arms of each group; by arm where arms are on their own."""
    labels = (status.groups.labels if status.groups is not None else None) or {}
    found: dict[str, float] = {}
    for arm in arms:
        label = labels.get(arm, arm)
        found[label] = found.get(label, 0.0) + values.get(arm, 0.0)
    return found


# keys: none of these waits for the writer, so that a leaked key can be revoked while it is busy


async def create_key(service: Service, request: Request, body: NewKey) -> CreatedKey:
    author = _key_manager(request)

    def work() -> str:
        is_first = not service.keyring.any_created
        if is_first and (body.role != "admin" or body.experiments is not None):
            name, got = ("role", body.role) if body.role != "admin" else ("experiments", body.experiments)
            allowed = "'admin' for the first key" if name == "role" else "left out for the first key"
            repair = "Create an admin key first: from then on only such a key can create others over HTTP."
            raise RequestError("bad_request", name, allowed, got, repair)
        limits: dict[str, Any] = {"experiments": body.experiments, "expires_in": body.expires_in}
        return keys.create(service.address, body.role, body.name, **limits, by=author)

    return _created(await service.keyring.change(work))


async def list_keys(service: Service, request: Request) -> Keys:
    _key_manager(request)
    return Keys([_shown(key) for key in await service.keyring.change(lambda: keys.all_of(service.address))])


async def rotate_key(service: Service, request: Request, id: str, body: Rotation) -> CreatedKey:
    author = _key_manager(request)
    return _created(await service.keyring.change(lambda: keys.rotate(service.address, id, grace=body.grace, by=author)))


async def revoke_key(service: Service, request: Request, id: str) -> KeyAnswer:
    author = _key_manager(request)

    def work() -> Key:
        keys.revoke(service.address, id, by=author)
        return next(key for key in keys.all_of(service.address) if key.id == id)

    return _shown(await service.keyring.change(work))


def _key_manager(request: Request) -> str:
    """The caller as the author of a change of keys; rejected if its own key is limited."""
    caller = caller_of(request)
    check_unlimited(caller, "manage keys")
    return caller.recorded_as


def _created(token: str) -> CreatedKey:
    return CreatedKey(token.split("_")[1], token)


def _shown(key: Key) -> KeyAnswer:
    expires, revoked = (None if at is None else date_of(at) for at in (key.expires_at, key.revoked_at))
    return KeyAnswer(
        id=key.id,
        name=key.name,
        role=key.role,  # type: ignore[arg-type]
        experiments=None if key.experiments is None else list(key.experiments),
        valid=key.valid_at(time.time_ns() // 1000),
        created_at=date_of(key.created_at),
        created_by=key.created_by,
        expires_at=expires,
        revoked_at=revoked,
        revoked_by=key.revoked_by,
    )


# the service itself


async def health(service: Service, request: Request) -> Health:
    return Health("ok", alphafair.__version__)


async def ready(service: Service, request: Request) -> Response:
    found, caller = service.readiness(), request.caller
    shown = Readiness(found.ready)
    if caller is not None:
        unhealthy = {name: reason for name, reason in found.unhealthy.items() if caller.sees(name)}
        shown = structs.replace(found, unhealthy=unhealthy)
    return Response(200 if found.ready else 503, service.encode(shown))


async def prometheus(service: Service, request: Request) -> Response:
    caller, measures = caller_of(request), service.measures
    made = partial(asyncio.to_thread, measures.page, caller)
    page = await service.shared_metrics.get(("metrics", caller.experiments), made, seconds=measures.kept_for)
    return Response(200, page, content_type=b"text/plain; charset=utf-8")


async def openapi(service: Service, request: Request) -> Response:
    return Response(200, service.documents.openapi)


async def docs(service: Service, request: Request) -> Response:
    policy = {b"content-security-policy": service.documents.page_policy}
    return Response(200, service.documents.page, policy, b"text/html; charset=utf-8")


def caller_of(request: Request) -> Caller:
    """The caller of a route that needs a role."""
    if request.caller is None:
        raise TypeError("a route that is open to everybody has no caller")
    return request.caller


# which of them answers which endpoint

HANDLERS: Final[dict[api.Endpoint, Handler]] = {
    api.LIST: experiments,
    api.CREATE: create,
    api.SHOW: experiment,
    api.CHANGE: change,
    api.ERASE: erase,
    api.HISTORY: history,
    api.LOG: log,
    api.DECIDE: decide,
    api.REWARD: reward,
    api.ACTIVATE: activate,
    api.DECIDE_MANY: decide_many,
    api.REWARD_MANY: reward_many,
    api.OBSERVE_MANY: observe_many,
    api.CREATE_KEY: create_key,
    api.LIST_KEYS: list_keys,
    api.ROTATE_KEY: rotate_key,
    api.REVOKE_KEY: revoke_key,
    api.HEALTH: health,
    api.READY: ready,
    api.METRICS: prometheus,
    api.OPENAPI: openapi,
    api.DOCS: docs,
}
