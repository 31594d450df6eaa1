"""Python clients of the service, one that blocks and one that is awaited, with the names of the engine.

A request whose answer got lost is sent again where that does no harm: decisions get their id before they are sent, and
a reward counts once. `client_calls` decides what is sent and when, `client_http` sends it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Self, TypeVar

from alphafair import validate
from alphafair.service import client_calls as calls
from alphafair.service.client_calls import Drawn as Drawn
from alphafair.service.client_calls import Failure, Pause, Plan, Reward, Terms
from alphafair.service.client_calls import ServiceError as ServiceError
from alphafair.service.client_http import AsyncPool, Endpoint, Lost, ThreadPool

Result = TypeVar("Result")


class _Settings:
    """What both clients are made with."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 5.0,
        retries: int = 8,
        max_connections: int = 100,
        unix_socket: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        high = calls.LONGEST_TIMEOUT
        self._timeout = validate.number("timeout", timeout, low=0.0, high=high, low_open=True)
        self._retries = validate.integer("retries", retries, low=0)
        endpoint = Endpoint(url, key=key, unix_socket=unix_socket, ssl_context=ssl_context)
        self._open(endpoint, validate.integer("max_connections", max_connections, low=1))

    def _open(self, endpoint: Endpoint, max_connections: int) -> None:
        raise NotImplementedError

    def _terms(self, timeout: float | None) -> Terms:
        return calls.terms(self._timeout if timeout is None else timeout, self._retries)


class Client(_Settings):
    """Talk to a service, waiting for every answer.

    A call returns or raises within `timeout` seconds, all its attempts included; methods take another `timeout` for one
    call. It raises `ServiceError` if it was refused, and `ConnectionError` if there was no answer. Within this time a
    request is sent again, at most `retries` times, after pauses that double and are shortened at random:

    - decisions, rewards, activations and whatever only reads: if the connection is lost, and after 408, 429, 502, 503
      and 504, from whomever. A decision without an id gets one first, so that every attempt asks for the same decision;
    - `create` and `change`: if nothing was sent, or after a 429 or 503 of the service itself, which then has done
      nothing. Otherwise the failure is raised at once: whether they were carried out is not known.

    One client may serve many threads, and may be used after a fork. It keeps up to `max_connections` connections open;
    further calls wait for one of them. `ssl_context` is for https, in place of the system's defaults.
    """

    def create(
        self, name: str, arms: Iterable[str], *, timeout: float | None = None, **settings: Any
    ) -> dict[str, Any]:
        """Begin an experiment: the arguments of `Engine.create`, those of the policy as `settings={...}`."""
        return self._run(calls.create(self._terms(timeout), name, arms, settings))

    def experiments(self, *, timeout: float | None = None) -> list[str]:
        """The names of all experiments."""
        return self._run(calls.experiments(self._terms(timeout)))

    def experiment(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        """One experiment as it stands."""
        return self._run(calls.experiment(self._terms(timeout), name))

    def change(self, name: str, *, timeout: float | None = None, **change: Any) -> dict[str, Any]:
        """One change: `alpha=0.5`, `add_arm="cyd"`, `retire_arm="ben"`, `paused=True`."""
        return self._run(calls.change(self._terms(timeout), name, change))

    def decide(
        self,
        experiment: str,
        context: str,
        *,
        id: str | None = None,
        available: Iterable[str] | None = None,
        deferred: bool = False,
        timeout: float | None = None,
    ) -> Drawn:
        """An arm for a context."""
        return self._run(calls.decide(self._terms(timeout), experiment, context, id, available, deferred))

    def reward(self, experiment: str, id: str, reward: Reward, *, timeout: float | None = None) -> str:
        """Report what came of a decision: "applied" or "repeated"."""
        return self._run(calls.reward(self._terms(timeout), experiment, id, reward))

    def activate(self, experiment: str, id: str, *, timeout: float | None = None) -> str:
        """Report that a deferred decision was shown: "activated" or "repeated"."""
        return self._run(calls.activate(self._terms(timeout), experiment, id))

    def decide_many(
        self,
        experiment: str,
        contexts: Iterable[str],
        *,
        ids: Iterable[str | None] | None = None,
        available: Iterable[str] | Iterable[Iterable[str] | None] | None = None,
        deferred: bool | Iterable[bool] = False,
        timeout: float | None = None,
    ) -> list[Drawn | Failure]:
        """An arm for each of any number of contexts, in order, or the exception that `decide` would raise for it.

        `ids` has one entry per context; `available` is a list of arms for all of them, or one list or None per context;
        `deferred` is for all of them, or one per context. More than 1,000 contexts are sent in several requests, one
        after the other. If the first fails, its exception is raised; if a later one does, that exception is the answer
        to its contexts and to all after them.
        """
        terms = self._terms(timeout)
        return self._run(calls.decide_many(terms, experiment, contexts, ids, available, deferred))

    def reward_many(
        self, experiment: str, rewards: Iterable[tuple[str, Reward]], *, timeout: float | None = None
    ) -> list[str | Failure]:
        """The outcome of each pair of id and reward, in order, or what `reward` would raise; as `decide_many`."""
        return self._run(calls.reward_many(self._terms(timeout), experiment, rewards))

    def download_log(
        self, experiment: str, path: str | os.PathLike[str], *, format: str = "parquet", timeout: float = 600.0
    ) -> None:
        """The exploration log, into a file: "parquet", "csv" or "jsonl". Until it is complete, an older file stays."""
        self._run(calls.download_log(self._terms(timeout), experiment, path, format))

    def close(self) -> None:
        """Close the connections; calls from now on raise `ConnectionError`."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _open(self, endpoint: Endpoint, max_connections: int) -> None:
        self._pool = ThreadPool(endpoint, max_connections)

    def _run(self, plan: Plan[Result]) -> Result:
        with closing(plan):
            try:
                step = next(plan)
                while True:
                    if isinstance(step, Pause):
                        time.sleep(step.seconds)
                        step = next(plan)
                        continue
                    try:
                        reply = self._pool.exchange(*step)
                    except Lost as lost:
                        step = plan.throw(lost)
                    else:
                        step = plan.send(reply)
            except StopIteration as end:
                result: Result = end.value
                return result


class AsyncClient(_Settings):
    """The same to be awaited: every method of `Client`, as a coroutine. A cancelled call stays cancelled.

    Any number of calls may be in flight; `max_connections` of them have a connection, the others wait for one.
    Connections belong to the event loop that they were opened in; in another one the client opens new ones.
    """

    async def create(
        self, name: str, arms: Iterable[str], *, timeout: float | None = None, **settings: Any
    ) -> dict[str, Any]:
        return await self._run(calls.create(self._terms(timeout), name, arms, settings))

    async def experiments(self, *, timeout: float | None = None) -> list[str]:
        return await self._run(calls.experiments(self._terms(timeout)))

    async def experiment(self, name: str, *, timeout: float | None = None) -> dict[str, Any]:
        return await self._run(calls.experiment(self._terms(timeout), name))

    async def change(self, name: str, *, timeout: float | None = None, **change: Any) -> dict[str, Any]:
        return await self._run(calls.change(self._terms(timeout), name, change))

    async def decide(
        self,
        experiment: str,
        context: str,
        *,
        id: str | None = None,
        available: Iterable[str] | None = None,
        deferred: bool = False,
        timeout: float | None = None,
    ) -> Drawn:
        return await self._run(calls.decide(self._terms(timeout), experiment, context, id, available, deferred))

    async def reward(self, experiment: str, id: str, reward: Reward, *, timeout: float | None = None) -> str:
        return await self._run(calls.reward(self._terms(timeout), experiment, id, reward))

    async def activate(self, experiment: str, id: str, *, timeout: float | None = None) -> str:
        return await self._run(calls.activate(self._terms(timeout), experiment, id))

    async def decide_many(
        self,
        experiment: str,
        contexts: Iterable[str],
        *,
        ids: Iterable[str | None] | None = None,
        available: Iterable[str] | Iterable[Iterable[str] | None] | None = None,
        deferred: bool | Iterable[bool] = False,
        timeout: float | None = None,
    ) -> list[Drawn | Failure]:
        terms = self._terms(timeout)
        return await self._run(calls.decide_many(terms, experiment, contexts, ids, available, deferred))

    async def reward_many(
        self, experiment: str, rewards: Iterable[tuple[str, Reward]], *, timeout: float | None = None
    ) -> list[str | Failure]:
        return await self._run(calls.reward_many(self._terms(timeout), experiment, rewards))

    async def download_log(
        self, experiment: str, path: str | os.PathLike[str], *, format: str = "parquet", timeout: float = 600.0
    ) -> None:
        await self._run(calls.download_log(self._terms(timeout), experiment, path, format))

    async def close(self) -> None:
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    def _open(self, endpoint: Endpoint, max_connections: int) -> None:
        self._pool = AsyncPool(endpoint, max_connections)

    async def _run(self, plan: Plan[Result]) -> Result:
        with closing(plan):
            try:
                step = next(plan)
                while True:
                    if isinstance(step, Pause):
                        await asyncio.sleep(step.seconds)
                        step = next(plan)
                        continue
                    try:
                        reply = await self._pool.exchange(*step)
                    except Lost as lost:
                        step = plan.throw(lost)
                    else:
                        step = plan.send(reply)
            except StopIteration as end:
                result: Result = end.value
                return result
