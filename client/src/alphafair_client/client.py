"""Python clients of the service, blocking and asynchronous, with the names and return types of the engine.

Every call is written once, in `_Calls`, as a generator: it yields what to send and how long to pause, receives the
replies, and returns the result; see `sending`. `Client` runs these generators with blocking sockets, `AsyncClient` with
asyncio; see `http`. Paths, methods, answer types and what may be sent twice come from the table of endpoints in `api`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import numbers
import os
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Concatenate,
    ParamSpec,
    Self,
    SupportsFloat,
    TypeVar,
    Unpack,
    overload,
)
from urllib.parse import quote

from alphafair_client import api, checks, sending, tracing
from alphafair_client.answers import InvalidArgument, NewTerms, Outcome, Receipt, ServiceError, SlateReceipt
from alphafair_client.api import (
    ChangeItem,
    ExperimentAnswer,
    GroupsOfArms,
    NewExperiment,
    ObservationItem,
    WhatIfAnswer,
)
from alphafair_client.fallback import ACTIVATION, EVERY, REWARD, Choose, Fallback
from alphafair_client.http import AsyncPool, Destination, HttpRequest, Lost, ThreadPool
from alphafair_client.sending import Call, Pause, Terms, invalid

LONGEST_TIMEOUT = 1e6  # seconds
EXPORT_TIMEOUT = 600.0  # seconds
LAST_FLUSH = 1.0  # seconds, when a client is closed

P = ParamSpec("P")
Result = TypeVar("Result")
Reward = SupportsFloat | Mapping[str, SupportsFloat]


class _Settings:
    """What both clients are created with."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 5.0,
        decide_timeout: float | None = None,
        retries: int = 8,
        max_connections: int = 100,
        unix_socket: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        fallback: str | Choose | None = None,
        queue: str | os.PathLike[str] | None = None,
    ) -> None:
        self._timeout = checks.number("timeout", timeout, low=0.0, high=LONGEST_TIMEOUT, low_open=True)
        longest = self._timeout if decide_timeout is None else decide_timeout
        self._decide_timeout = checks.number("decide_timeout", longest, low=0.0, high=LONGEST_TIMEOUT, low_open=True)
        self._retries = checks.integer("retries", retries, low=0)
        destination = Destination(url, key=key, unix_socket=unix_socket, ssl_context=ssl_context)
        most = checks.integer("max_connections", max_connections, low=1)
        self._fallback = Fallback(fallback, queue, self._wake)
        self._open(destination, most)

    @property
    def queued(self) -> int:
        """How many decisions that were shown, rewards and activations wait until the service answers."""
        return len(self._fallback.queue)

    @property
    def dropped(self) -> int:
        """How many of them will not be in the log: refused by the service, or too many for the queue."""
        return self._fallback.dropped

    def _wake(self, now: bool) -> None:
        """Let what is queued be sent in the background: now, or in a second."""
        raise NotImplementedError

    def _delivery(self) -> Call[None]:
        return self._fallback.deliver(self._terms(None)._replace(retries=0))

    def _open(self, destination: Destination, max_connections: int) -> None:
        raise NotImplementedError

    def _terms(self, timeout: float | None) -> Terms:
        try:
            seconds = self._timeout if timeout is None else timeout
            seconds = checks.number("timeout", seconds, low=0.0, high=LONGEST_TIMEOUT, low_open=True)
        except InvalidArgument as problem:
            raise ServiceError(422, "bad_request", str(problem), problem.argument, problem.repair) from None
        return Terms(seconds, time.monotonic() + seconds, self._retries)

    def _change(self, name: str, timeout: float | None, **change: Any) -> Call[ExperimentAnswer]:
        return sending.call(self._terms(timeout), api.CHANGE, change, name=name)


class _Calls(_Settings):
    """The calls of both clients, as generators. Both take them over one by one."""

    # decisions and rewards

    def decide(
        self,
        experiment: str,
        context: str,
        id: str | None = None,
        available: Iterable[str] | None = None,
        deferred: bool = False,
        *,
        k: int | None = None,
        features: Mapping[str, Any] | None = None,
        incumbent: str | None = None,
        incumbent_propensity: SupportsFloat | None = None,
        unit: str | None = None,
        timeout: float | None = None,
    ) -> Call[Receipt | SlateReceipt]:
        """Draw an arm for a context. Without an `id`, a new one is sent, so that repeated attempts are one decision.

        With `k` draw a slate of k different arms, or of all that can be played if they are fewer: a `SlateReceipt`.
        `features` are values by name, as the experiment declares them.

        `incumbent` is the arm that you would show without the experiment: modes "watch" and "share" return it, and so
        does the client where nobody answers. `unit` is whom the decision is for, by default the context.
        """
        body = _decision(context, id, available, deferred, k, features, incumbent, incumbent_propensity, unit)
        terms = self._terms(self._decide_timeout if timeout is None else timeout)
        return self._fallback.decide(experiment, body, sending.call(terms, api.DECIDE, body, name=experiment))

    def reward(self, id: str, reward: Reward, *, experiment: str, timeout: float | None = None) -> Call[Outcome]:
        """Report the reward of a decision: "applied" or "repeated"; any other outcome raises `ServiceError`.

        Of a slate pass the rewards of some or all of its arms, by label; the others may follow in any order.
        """
        body = _reward(id, reward)
        call = sending.call(self._terms(timeout), api.REWARD, body, name=experiment)
        return self._fallback.report(REWARD, experiment, body, call)

    def activate(self, id: str, *, experiment: str, timeout: float | None = None) -> Call[Outcome]:
        """Report that a deferred decision was carried out: "activated" or "repeated"."""
        body = {"id": _label("id", id)}
        call = sending.call(self._terms(timeout), api.ACTIVATE, body, name=experiment)
        return self._fallback.report(ACTIVATION, experiment, body, call)

    def decide_many(
        self,
        experiment: str,
        contexts: Iterable[str],
        ids: Iterable[str | None] | None = None,
        available: Iterable[str] | Iterable[Iterable[str] | None] | None = None,
        deferred: bool | Iterable[bool] = False,
        *,
        k: int | Iterable[int | None] | None = None,
        features: Iterable[Mapping[str, Any] | None] | None = None,
        incumbent: Iterable[str | None] | None = None,
        incumbent_propensity: Iterable[SupportsFloat | None] | None = None,
        unit: Iterable[str | None] | None = None,
        timeout: float | None = None,
    ) -> Call[list[Receipt | SlateReceipt | ServiceError | ConnectionError]]:
        """Draw an arm for each context, in order; an item that fails has the exception that `decide` would raise.

        `ids` has one entry per context. `available` is one list of arms for all contexts, or one list or None per
        context. `deferred` and `k`, how many arms to show, are one value for all contexts, or one per context.
        `features`, `incumbent`, `incumbent_propensity` and `unit` have those of each context.

        More than 1,000 contexts are sent in several requests, one after the other. If the first request fails, its
        exception is raised; if a later one fails, its exception is the result of its contexts and of all after them.
        """
        labels = _list("contexts", contexts)
        arms: Any = None if available is None else _list("available", available)
        if arms is None or all(isinstance(arm, str) for arm in arms):
            arms = [arms] * len(labels)
        one = checks.is_bool(deferred)
        columns = {
            "ids": [None] * len(labels) if ids is None else _list("ids", ids),
            "available": arms,
            "deferred": [deferred] * len(labels) if one else _list("deferred", deferred),
            "k": _list("k", k) if isinstance(k, Iterable) else [k] * len(labels),
        }
        told = {"incumbent": incumbent, "incumbent_propensity": incumbent_propensity, "unit": unit}
        for name, values in {"features": features, **told}.items():
            columns[name] = [None] * len(labels) if values is None else _list(name, values)
        for name, column in columns.items():
            if len(column) != len(labels):
                repair = f"There are {len(labels)} contexts."
                raise invalid(name, "as many as contexts", f"{len(column)} of them", repair)
        items = [sending.item(_decision, *row) for row in zip(labels, *columns.values(), strict=True)]
        terms = self._terms(self._decide_timeout if timeout is None else timeout)
        call = sending.batch(terms, api.DECIDE_MANY, experiment, items, Receipt | SlateReceipt)
        return self._fallback.decide_many(experiment, items, call)

    def reward_many(
        self, rewards: Iterable[tuple[str, Reward]], *, experiment: str, timeout: float | None = None
    ) -> Call[list[Outcome | ServiceError | ConnectionError]]:
        """Report pairs of id and reward; an item that fails has the exception that `reward` would raise."""
        items = [sending.item(_reward, *_pair(pair)) for pair in _list("rewards", rewards)]
        terms = self._terms(timeout)
        send = functools.partial(sending.batch, terms, api.REWARD_MANY, experiment, kind=Outcome)
        return self._fallback.reward_many(experiment, items, send)

    def flush(self, timeout: float | None = None) -> Call[bool]:
        """Send what is queued, for at most `timeout` seconds; return whether nothing is left."""
        return self._fallback.flush(self._terms(timeout))

    def observe(
        self,
        experiment: str,
        context: str,
        arm: str,
        reward: SupportsFloat | None = None,
        id: str | None = None,
        *,
        propensity: SupportsFloat | None = None,
        source: str = "incumbent",
        features: Mapping[str, Any] | None = None,
        unit: str | None = None,
        instead_of: str | None = None,
        timeout: float | None = None,
    ) -> Call[Outcome]:
        """Record a decision that somebody else made: "recorded" or "repeated"; other outcomes raise `ServiceError`.

        The arguments are those of `Engine.observe`. Without an `id`, a new one is sent, so that repeated attempts are
        one decision.
        """
        told = {"propensity": propensity, "source": source, "features": features, "unit": unit}
        item = {"context": context, "arm": arm, "reward": reward, "id": id, "instead_of": instead_of, **told}
        (result,) = yield from _observe(self._terms(timeout), experiment, [item])
        if isinstance(result, Outcome):
            return result
        raise result

    def observe_many(
        self, experiment: str, items: Iterable[Mapping[str, Any]], *, timeout: float | None = None
    ) -> Call[list[Outcome | ServiceError | ConnectionError]]:
        """Record decisions of others: mappings with the arguments of `observe` by name; see `decide_many`."""
        return _observe(self._terms(timeout), experiment, items)

    # experiments

    def create(
        self, /, name: str, *, arms: Iterable[str], timeout: float | None = None, **settings: Any
    ) -> Call[ExperimentAnswer]:
        """Create an experiment, with the arguments of `Engine.create`; settings of the policy are arguments too."""
        body: dict[str, Any] = {"name": _label("name", name), "arms": _list("arms", arms)}
        of_policy = {key: value for key, value in settings.items() if key not in NewExperiment.__struct_fields__}
        body |= {key: value for key, value in settings.items() if key not in of_policy}
        if of_policy:
            body["settings"] = of_policy
        groups = body.get("groups")
        if all(hasattr(groups, field) for field in GroupsOfArms.__struct_fields__):  # an `alphafair.Groups`
            body["groups"] = {field: getattr(groups, field) for field in GroupsOfArms.__struct_fields__}
        if "alpha" in body:
            body["alpha"] = _alpha(body["alpha"])
        if isinstance(body.get("period_start"), datetime):
            body["period_start"] = body["period_start"].isoformat()
        return sending.call(self._terms(timeout), api.CREATE, body)

    def experiments(self, *, timeout: float | None = None) -> Call[list[str]]:
        """The names of the experiments that the key may see."""
        found: Any = yield from sending.call(self._terms(timeout), api.LIST)
        return list(found.experiments)

    def experiment(self, name: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """The current state of an experiment: the fields of `Engine.experiment`, and two more measures of fairness."""
        return sending.call(self._terms(timeout), api.SHOW, name=name)

    def history(self, name: str, *, timeout: float | None = None) -> Call[list[ChangeItem]]:
        """Every change of an experiment: position, time, kind, author and details."""
        found: Any = yield from sending.call(self._terms(timeout), api.HISTORY, name=name)
        return list(found.items)

    def evaluate(self, name: str, source: str | None = None, *, timeout: float | None = None) -> Call[WhatIfAnswer]:
        """Estimate from the log what fair policies would have earned: of the policy's decisions, or of a source's.

        It is computed in the background: ask again while `status` is "computing".
        """
        query = "" if source is None else f"?source={quote(_label('source', source), safe='')}"
        return sending.call(self._terms(timeout), api.EVALUATE, query=query, name=name)

    def add_arm(
        self,
        name: str,
        arm: str,
        *,
        group: str | None = None,
        entitlement: float | None = None,
        features: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Call[ExperimentAnswer]:
        """Add an arm, with its `group` where arms have groups, and its `features` where they have features.

        A new group may have an `entitlement`.
        """
        described = None if features is None else _features(features)
        options: dict[str, Any] = {"group": group, "entitlement": entitlement, "features": described}
        given = {key: value for key, value in options.items() if value is not None}
        return self._change(name, timeout, add_arm=arm, **given)

    def retire_arm(self, name: str, arm: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Never draw an arm again; late rewards for it are still accepted."""
        return self._change(name, timeout, retire_arm=arm)

    def mask_arm(self, name: str, arm: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Do not draw an arm until it is unmasked."""
        return self._change(name, timeout, mask_arm=arm)

    def unmask_arm(self, name: str, arm: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Draw a masked arm again."""
        return self._change(name, timeout, unmask_arm=arm)

    def set_alpha(self, name: str, alpha: float, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Use another alpha from now on: a number from 0 to inf."""
        return self._change(name, timeout, alpha=_alpha(alpha))

    def new_period(
        self, name: str, *, carry: float | None = None, timeout: float | None = None
    ) -> Call[ExperimentAnswer]:
        """Start a period now: of what arms have earned, the part `carry` counts from here on."""
        return self._change(name, timeout, new_period=True, **({} if carry is None else {"carry": carry}))

    def set_period(
        self,
        name: str,
        period: str | float | None,
        *,
        period_start: str | datetime | None = None,
        carry: float | None = None,
        timeout: float | None = None,
    ) -> Call[ExperimentAnswer]:
        """Let periods end by another calendar from now on; None: by `new_period` alone. What is left out stays."""
        start = period_start.isoformat() if isinstance(period_start, datetime) else period_start
        options = {"period_start": start, "carry": carry}
        given = {key: value for key, value in options.items() if value is not None}
        return self._change(name, timeout, period=period, **given)

    def set_terms(
        self, name: str, *, timeout: float | None = None, **terms: Unpack[NewTerms]
    ) -> Call[ExperimentAnswer]:
        """Change terms while it runs, all at once, such as `groups` or `reward_wait`; None returns to the default."""
        return self._change(name, timeout, terms=terms)

    def pause(self, name: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Reject decisions until `resume`; rewards are still accepted."""
        return self._change(name, timeout, paused=True)

    def resume(self, name: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Accept decisions again."""
        return self._change(name, timeout, paused=False)

    def rollback(self, name: str, position: int, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Forget what was learned after a position of the event log; decisions made since are closed."""
        return self._change(name, timeout, rollback=position)

    def erase(self, name: str, context: str, *, timeout: float | None = None) -> Call[ExperimentAnswer]:
        """Erase a context's label and the ids of its decisions permanently; the numbers stay."""
        query = f"?label={quote(_label('context', context), safe='')}"
        return sending.call(self._terms(timeout), api.ERASE, query=query, name=name)

    def export(
        self, name: str, path: str | os.PathLike[str], format: str | None = None, *, timeout: float = EXPORT_TIMEOUT
    ) -> Call[None]:
        """Download the log into a file as "parquet", "csv" or "jsonl", by default what the path ends with.

        An existing file is replaced when the download is complete, and stays if it fails.
        """
        target = Path(os.path.realpath(path))
        form = target.suffix.removeprefix(".") if format is None else str(format)
        terms, address = (
            self._terms(timeout),
            sending.path_to(api.LOG, {"name": name}) + f"?format={quote(form, safe='')}",
        )
        with _replaced_at_the_end(target) as file:
            request = HttpRequest(api.LOG.method, address, save_to=file)
            reply = yield from sending.reply_to(request, terms)
            if not 200 <= reply.status < 300:
                raise sending.error_of(reply)
            if reply.headers.get("content-type", "").startswith("text/html"):
                message = f"The answer to GET {address} is a web page, not a log."
                raise ServiceError(reply.status, "bad_answer", message, repair=sending.CHECK_URL)


def _signature(call: Callable[..., Any]) -> inspect.Signature:
    """The signature of a call for users: it returns the result, not a generator."""
    signature = inspect.signature(call)
    result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    return signature.replace(return_annotation=result)


def _blocking(call: Callable[Concatenate[Any, P], Call[Result]]) -> Callable[Concatenate[Client, P], Result]:
    """A call of `Client`."""

    @functools.wraps(call)
    def run(self: Client, /, *arguments: P.args, **options: P.kwargs) -> Result:
        with tracing.span(call.__name__):
            return self._run(call(self, *arguments, **options))

    run.__signature__ = _signature(call)  # type: ignore[attr-defined]
    return run


def _awaited(
    call: Callable[Concatenate[Any, P], Call[Result]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, Result]]:
    """A call of `AsyncClient`."""

    @functools.wraps(call)
    async def run(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> Result:
        with tracing.span(call.__name__):
            return await self._run(call(self, *arguments, **options))

    run.__signature__ = _signature(call)  # type: ignore[attr-defined]
    return run


class Client(_Settings):
    """A blocking client of the service.

    A call returns or raises within `timeout` seconds, including all attempts; each method takes its own `timeout` too.
    It raises `ServiceError` if the service rejects it, and `ConnectionError` if there is no answer. Within this time a
    request is sent again, at most `retries` times, after randomized pauses that double:

    - decisions, rewards, activations and requests that only read: after a lost connection, and after 408, 429, 502,
      503 and 504 from the service or a proxy;
    - `create` and changes: if nothing was sent, or after a 429 or 503 from the service itself, which then has done
      nothing. Otherwise the failure is raised at once: whether the request was carried out is unknown.

    With a `fallback`, an arm or a function of (experiment, context, available), a decision without an answer by
    `decide_timeout` shows that arm. It is recorded later, from memory or from the file `queue`; see `fallback`.

    A client can be used from many threads, and after a fork. It keeps up to `max_connections` connections open;
    further calls wait for one of them. `ssl_context` replaces the system's defaults for https.
    """

    if TYPE_CHECKING:  # what it returns depends on k

        @overload
        def decide(
            self,
            experiment: str,
            context: str,
            id: str | None = None,
            available: Iterable[str] | None = None,
            deferred: bool = False,
            *,
            k: None = None,
            features: Mapping[str, Any] | None = None,
            incumbent: str | None = None,
            incumbent_propensity: SupportsFloat | None = None,
            unit: str | None = None,
            timeout: float | None = None,
        ) -> Receipt: ...
        @overload
        def decide(
            self,
            experiment: str,
            context: str,
            id: str | None = None,
            available: Iterable[str] | None = None,
            deferred: bool = False,
            *,
            k: int,
            features: Mapping[str, Any] | None = None,
            unit: str | None = None,
            timeout: float | None = None,
        ) -> SlateReceipt: ...
        def decide(self, *arguments: Any, **options: Any) -> Any: ...
    else:
        decide = _blocking(_Calls.decide)
    reward = _blocking(_Calls.reward)
    activate = _blocking(_Calls.activate)
    decide_many = _blocking(_Calls.decide_many)
    reward_many = _blocking(_Calls.reward_many)
    flush = _blocking(_Calls.flush)
    observe = _blocking(_Calls.observe)
    observe_many = _blocking(_Calls.observe_many)
    create = _blocking(_Calls.create)
    experiments = _blocking(_Calls.experiments)
    experiment = _blocking(_Calls.experiment)
    history = _blocking(_Calls.history)
    evaluate = _blocking(_Calls.evaluate)
    add_arm = _blocking(_Calls.add_arm)
    retire_arm = _blocking(_Calls.retire_arm)
    mask_arm = _blocking(_Calls.mask_arm)
    unmask_arm = _blocking(_Calls.unmask_arm)
    set_alpha = _blocking(_Calls.set_alpha)
    set_terms = _blocking(_Calls.set_terms)
    new_period = _blocking(_Calls.new_period)
    set_period = _blocking(_Calls.set_period)
    pause = _blocking(_Calls.pause)
    resume = _blocking(_Calls.resume)
    rollback = _blocking(_Calls.rollback)
    erase = _blocking(_Calls.erase)
    export = _blocking(_Calls.export)

    def close(self) -> None:
        """Send what is queued for up to a second, and close the connections; later calls raise `ConnectionError`."""
        if self.queued and not self._fallback.closed:
            self.flush(LAST_FLUSH)
        self._fallback.close()
        self._wake(True)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _open(self, destination: Destination, max_connections: int) -> None:
        self._pool = ThreadPool(destination, max_connections)
        self._sender: tuple[int, threading.Thread, threading.Event] | None = None  # of which process
        if self.queued:  # from before
            self._wake(True)

    def _wake(self, now: bool) -> None:
        with self._fallback.queue.lock():
            if self._sender is not None and self._sender[0] == os.getpid():
                if now:
                    self._sender[2].set()
            elif not self._fallback.closed:
                event = threading.Event()
                thread = threading.Thread(target=self._send, args=(event, now), name="alphafair-queue", daemon=True)
                self._sender = os.getpid(), thread, event
                thread.start()

    def _send(self, event: threading.Event, now: bool) -> None:
        """Send what is queued in a thread of its own, which ends when nothing is left."""
        while True:
            if not now:
                event.wait(EVERY)
            event.clear()
            now = False
            with self._fallback.queue.lock():
                if self._fallback.closed or not self.queued:
                    self._sender = None
                    return
            self._run(self._delivery())

    def _run(self, call: Call[Result]) -> Result:
        with closing(call):
            try:
                step = next(call)
                while True:
                    if isinstance(step, Pause):
                        time.sleep(step.seconds)
                        step = next(call)
                        continue
                    try:
                        reply = self._pool.exchange(*step)
                    except Lost as lost:
                        step = call.throw(lost)
                    else:
                        step = call.send(reply)
            except StopIteration as end:
                result: Result = end.value
                return result


class AsyncClient(_Settings):
    """An asynchronous client: every method of `Client` as a coroutine. A cancelled call stays cancelled.

    Any number of calls can be in flight; `max_connections` of them have a connection, the others wait for one.
    Connections belong to the event loop in which they were opened; in another loop the client opens new ones.
    """

    if TYPE_CHECKING:  # what it returns depends on k

        @overload
        async def decide(
            self,
            experiment: str,
            context: str,
            id: str | None = None,
            available: Iterable[str] | None = None,
            deferred: bool = False,
            *,
            k: None = None,
            features: Mapping[str, Any] | None = None,
            incumbent: str | None = None,
            incumbent_propensity: SupportsFloat | None = None,
            unit: str | None = None,
            timeout: float | None = None,
        ) -> Receipt: ...
        @overload
        async def decide(
            self,
            experiment: str,
            context: str,
            id: str | None = None,
            available: Iterable[str] | None = None,
            deferred: bool = False,
            *,
            k: int,
            features: Mapping[str, Any] | None = None,
            unit: str | None = None,
            timeout: float | None = None,
        ) -> SlateReceipt: ...
        async def decide(self, *arguments: Any, **options: Any) -> Any: ...
    else:
        decide = _awaited(_Calls.decide)
    reward = _awaited(_Calls.reward)
    activate = _awaited(_Calls.activate)
    decide_many = _awaited(_Calls.decide_many)
    reward_many = _awaited(_Calls.reward_many)
    flush = _awaited(_Calls.flush)
    observe = _awaited(_Calls.observe)
    observe_many = _awaited(_Calls.observe_many)
    create = _awaited(_Calls.create)
    experiments = _awaited(_Calls.experiments)
    experiment = _awaited(_Calls.experiment)
    history = _awaited(_Calls.history)
    evaluate = _awaited(_Calls.evaluate)
    add_arm = _awaited(_Calls.add_arm)
    retire_arm = _awaited(_Calls.retire_arm)
    mask_arm = _awaited(_Calls.mask_arm)
    unmask_arm = _awaited(_Calls.unmask_arm)
    set_alpha = _awaited(_Calls.set_alpha)
    set_terms = _awaited(_Calls.set_terms)
    new_period = _awaited(_Calls.new_period)
    set_period = _awaited(_Calls.set_period)
    pause = _awaited(_Calls.pause)
    resume = _awaited(_Calls.resume)
    rollback = _awaited(_Calls.rollback)
    erase = _awaited(_Calls.erase)
    export = _awaited(_Calls.export)

    async def close(self) -> None:
        """Send what is queued for up to a second, and close the connections; later calls raise `ConnectionError`."""
        if self.queued and not self._fallback.closed:
            await self.flush(LAST_FLUSH)
        self._fallback.close()
        if self._sender is not None:
            self._sender.cancel()
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    def _open(self, destination: Destination, max_connections: int) -> None:
        self._pool = AsyncPool(destination, max_connections)
        self._sender: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    def _wake(self, now: bool) -> None:
        loop = asyncio.get_running_loop()
        if self._sender is None or self._sender.done() or self._sender.get_loop() is not loop:
            self._answered = asyncio.Event()
            self._sender = loop.create_task(self._send())
        if now:
            self._answered.set()

    async def _send(self) -> None:
        """Send what is queued in a task of its own, which ends when nothing is left."""
        while self.queued and not self._fallback.closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._answered.wait()
            self._answered.clear()
            await self._run(self._delivery())

    async def _run(self, call: Call[Result]) -> Result:
        with closing(call):
            try:
                step = next(call)
                while True:
                    if isinstance(step, Pause):
                        await asyncio.sleep(step.seconds)
                        step = next(call)
                        continue
                    try:
                        reply = await self._pool.exchange(*step)
                    except Lost as lost:
                        step = call.throw(lost)
                    else:
                        step = call.send(reply)
            except StopIteration as end:
                result: Result = end.value
                return result


# arguments


def _label(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise invalid(argument, "a non-empty string", value, "Pass a short name, such as str(value).")
    return value


def _list(argument: str, values: Any) -> list[Any]:
    try:
        if isinstance(values, str | bytes | Mapping):
            raise TypeError
        return list(values)
    except TypeError:
        raise invalid(argument, "a list", values, f"Pass {argument} as a list, even if it has one item.") from None


def _number(argument: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes) or checks.is_bool(value) else float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        repair = 'Pass a float, or under full information one per arm: {"ada": 0.2, "ben": 1.0}.'
        raise invalid(argument, "a finite number", value, repair, "bad_reward")
    return number


def _alpha(value: Any) -> Any:
    """Return alpha as JSON has it, where infinity is a string; the service checks everything else."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return value
    return "inf" if value == math.inf else float(value)


def _decision(
    context: Any,
    id: Any,
    available: Any,
    deferred: Any,
    k: Any,
    features: Any,
    incumbent: Any,
    incumbent_propensity: Any,
    unit: Any,
) -> dict[str, Any]:
    options: dict[str, Any] = {} if k is None else {"k": _shown(k)}
    if features is not None:
        options["features"] = _features(features)
    for name, label in (("incumbent", incumbent), ("unit", unit)):
        if label is not None:
            options[name] = _label(name, label)
    if incumbent_propensity is not None:
        options["incumbent_propensity"] = _number("incumbent_propensity", incumbent_propensity)
    return {
        "context": _label("context", context),
        "id": sending.new_id() if id is None else _label("id", id),
        "available": None if available is None else [_label("available", arm) for arm in _list("available", available)],
        "deferred": deferred,
        **options,
    }


def _features(values: Any) -> dict[str, Any]:
    """Features as JSON has them; the service checks what is declared."""
    if not isinstance(values, Mapping):
        raise invalid("features", "a mapping from name to value", values, "Pass values by name.", "bad_features")
    return {_label("features", name): _feature(name, value) for name, value in values.items()}


def _feature(name: str, value: Any) -> float | bool | str | None:
    if value is None or isinstance(value, str):
        return value
    if checks.is_bool(value):
        return bool(value)
    try:
        number = math.nan if isinstance(value, bytes) else float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        allowed, repair = "a finite number, a boolean, a label or None", "Leave it out where it is missing."
        raise invalid(f"features.{name}", allowed, value, repair, "bad_features")
    return number


def _shown(k: Any) -> int:
    try:
        return checks.integer("k", k, low=1, high=api.MOST_SHOWN)
    except InvalidArgument:
        raise invalid("k", f"an integer from 1 to {api.MOST_SHOWN:,}", k, "Leave it out to show one arm.") from None


def _observe(terms: Terms, experiment: str, items: Any) -> Call[list[Outcome | ServiceError | ConnectionError]]:
    sent = [sending.item(_observation, item) for item in _list("items", items)]
    found = yield from sending.batch(terms, api.OBSERVE_MANY, experiment, sent, ObservationItem)
    return [Outcome(each.outcome or "") if isinstance(each, ObservationItem) else each for each in found]


def _observation(item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise invalid("items", "mappings with context and arm", item, "Pass a mapping per decision.")
    told = {name: value for name, value in item.items() if value is not None}
    body = {"id": sending.new_id(), **told}
    for name in ("context", "arm", "id"):
        body[name] = _label(name, body.get(name))
    if "reward" in told:
        body["reward"] = _number("reward", told["reward"])
    if "features" in told:
        body["features"] = _features(told["features"])
    return body


def _reward(id: Any, reward: Any) -> dict[str, Any]:
    if isinstance(reward, Mapping):
        return {"id": _label("id", id), "reward": {arm: _number("reward", value) for arm, value in reward.items()}}
    return {"id": _label("id", id), "reward": _number("reward", reward)}


def _pair(pair: Any) -> tuple[Any, Any]:
    """An id and a reward; anything else is rejected as a reward."""
    try:
        id, reward = [pair] if isinstance(pair, str | bytes) else pair
    except (TypeError, ValueError):
        return "?", pair
    return id, reward


@contextmanager
def _replaced_at_the_end(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that replaces it if nothing fails."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
