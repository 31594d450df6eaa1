"""Python clients of the service, one that waits and one to be awaited, with the names of the engine.

A request whose answer got lost is sent again where that does no harm: decisions are named by the client before they are
sent, and a reward counts once.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

try:
    import httpx
except ModuleNotFoundError:
    raise ImportError('The client needs httpx. Run: pip install "alphafair[service]"') from None

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds
NOT_BEGUN = (429, 503)  # statuses that say so

Reward = float | Mapping[str, float]


class ServiceError(Exception):
    """The service said no: its status, and the parts of its error."""

    def __init__(self, status: int, code: str, message: str, argument: str | None = None, repair: str | None = None):
        super().__init__(status, code, message, argument, repair)
        self.status, self.code, self.message, self.argument, self.repair = status, code, message, argument, repair

    def __str__(self) -> str:
        where = f" ({self.argument})" if self.argument else ""
        return f"{self.status} {self.code}{where}: {self.message} {self.repair or ''}".rstrip()


class Drawn(NamedTuple):
    """A decision: show this arm, and send its reward under this id."""

    id: str
    arm: str
    propensity: float
    context: str


class Call(NamedTuple):
    """A request; repeatable, if sending it twice is as good as once."""

    method: str
    path: str
    body: Any = None
    repeatable: bool = True


class Client:
    """Talk to a service, waiting for every answer. One client may serve many threads; connections are kept alive.

    `timeout` is in seconds, for each attempt. A request is sent again up to `retries` times, after pauses that double
    and are shortened at random, so that many clients do not come back at the same moment. An answer that says no is
    raised as `ServiceError`; if there is none, `ConnectionError`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 5.0,
        retries: int = 4,
        unix_socket: str | os.PathLike[str] | None = None,
    ) -> None:
        transport = httpx.HTTPTransport(uds=None if unix_socket is None else os.fspath(unix_socket))
        self._http = httpx.Client(base_url=url, headers=_headers(key), timeout=timeout, transport=transport)
        self._retries = retries

    def create(self, name: str, arms: Sequence[str], **settings: Any) -> dict[str, Any]:
        """Begin an experiment: the arguments of `Engine.create`, those of the policy as `settings={...}`."""
        return _dictionary(self._send(_create(name, arms, settings)))

    def experiments(self) -> list[str]:
        """The names of all experiments."""
        return list(self._send(Call("GET", "/v1/experiments"))["experiments"])

    def experiment(self, name: str) -> dict[str, Any]:
        """One experiment as it stands."""
        return _dictionary(self._send(Call("GET", _path(name))))

    def change(self, name: str, **change: Any) -> dict[str, Any]:
        """One change: `alpha=0.5`, `add_arm="cyd"`, `retire_arm="ben"`, `paused=True`."""
        return _dictionary(self._send(Call("PATCH", _path(name), change, repeatable=False)))

    def decide(
        self,
        experiment: str,
        context: str,
        *,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
    ) -> Drawn:
        """An arm for a context."""
        return Drawn(**self._send(_decide(experiment, context, id, available, deferred)))

    def reward(self, experiment: str, id: str, reward: Reward) -> str:
        """Say what came of a decision: "applied" or "repeated"."""
        return str(self._send(_reward(experiment, id, reward))["outcome"])

    def activate(self, experiment: str, id: str) -> str:
        """Say that a deferred decision was shown: "activated" or "repeated"."""
        return str(self._send(Call("POST", _path(experiment, "/activations"), {"id": id}))["outcome"])

    def decide_many(self, experiment: str, contexts: Iterable[str]) -> list[Drawn | ServiceError]:
        """An arm for each context, in order, or what is wrong with it."""
        return _drawn(self._send(_decide_many(experiment, contexts)))

    def reward_many(self, experiment: str, rewards: Iterable[tuple[str, Reward]]) -> list[str | ServiceError]:
        """The outcome of each pair of id and reward, in order, or what is wrong with it."""
        return _outcomes(self._send(_reward_many(experiment, rewards)))

    def download_log(self, experiment: str, path: str | os.PathLike[str], *, format: str = "parquet") -> None:
        """The exploration log, into a file."""
        with self._http.stream("GET", _path(experiment, "/log"), params={"format": format}) as answer:
            if answer.is_error:
                answer.read()
                _understood(answer)
            with Path(path).open("wb") as file:
                for chunk in answer.iter_bytes():
                    file.write(chunk)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _send(self, call: Call) -> Any:
        attempts = _Attempts(call, self._retries)
        while True:
            try:
                answer = self._http.request(call.method, call.path, json=call.body)
            except httpx.TransportError as problem:
                pause = attempts.pause_after_loss(problem)
            else:
                if not attempts.again_after(answer):
                    return _understood(answer)
                pause = attempts.pause(answer)
            time.sleep(pause)


class AsyncClient:
    """The same to be awaited: every method of `Client`, as a coroutine."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout: float = 5.0,
        retries: int = 4,
        unix_socket: str | os.PathLike[str] | None = None,
    ) -> None:
        transport = httpx.AsyncHTTPTransport(uds=None if unix_socket is None else os.fspath(unix_socket))
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(key), timeout=timeout, transport=transport)
        self._retries = retries

    async def create(self, name: str, arms: Sequence[str], **settings: Any) -> dict[str, Any]:
        return _dictionary(await self._send(_create(name, arms, settings)))

    async def experiments(self) -> list[str]:
        return list((await self._send(Call("GET", "/v1/experiments")))["experiments"])

    async def experiment(self, name: str) -> dict[str, Any]:
        return _dictionary(await self._send(Call("GET", _path(name))))

    async def change(self, name: str, **change: Any) -> dict[str, Any]:
        return _dictionary(await self._send(Call("PATCH", _path(name), change, repeatable=False)))

    async def decide(
        self,
        experiment: str,
        context: str,
        *,
        id: str | None = None,
        available: Sequence[str] | None = None,
        deferred: bool = False,
    ) -> Drawn:
        return Drawn(**await self._send(_decide(experiment, context, id, available, deferred)))

    async def reward(self, experiment: str, id: str, reward: Reward) -> str:
        return str((await self._send(_reward(experiment, id, reward)))["outcome"])

    async def activate(self, experiment: str, id: str) -> str:
        return str((await self._send(Call("POST", _path(experiment, "/activations"), {"id": id})))["outcome"])

    async def decide_many(self, experiment: str, contexts: Iterable[str]) -> list[Drawn | ServiceError]:
        return _drawn(await self._send(_decide_many(experiment, contexts)))

    async def reward_many(self, experiment: str, rewards: Iterable[tuple[str, Reward]]) -> list[str | ServiceError]:
        return _outcomes(await self._send(_reward_many(experiment, rewards)))

    async def download_log(self, experiment: str, path: str | os.PathLike[str], *, format: str = "parquet") -> None:
        async with self._http.stream("GET", _path(experiment, "/log"), params={"format": format}) as answer:
            if answer.is_error:
                await answer.aread()
                _understood(answer)
            with Path(path).open("wb") as file:
                async for chunk in answer.aiter_bytes():
                    file.write(chunk)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    async def _send(self, call: Call) -> Any:
        attempts = _Attempts(call, self._retries)
        while True:
            try:
                answer = await self._http.request(call.method, call.path, json=call.body)
            except httpx.TransportError as problem:
                pause = attempts.pause_after_loss(problem)
            else:
                if not attempts.again_after(answer):
                    return _understood(answer)
                pause = attempts.pause(answer)
            await asyncio.sleep(pause)


class _Attempts:
    """When to send again, and after what pause."""

    def __init__(self, call: Call, retries: int) -> None:
        self.call, self.left, self.longest = call, retries, FIRST_PAUSE

    def again_after(self, answer: httpx.Response) -> bool:
        return answer.status_code in NOT_BEGUN and self.left > 0

    def pause_after_loss(self, problem: httpx.TransportError) -> float:
        """Nobody knows whether the request arrived, unless there was no connection at all."""
        never_sent = isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout)
        if self.left == 0 or not (self.call.repeatable or never_sent):
            raise ConnectionError(f"No answer to {self.call.method} {self.call.path}: {problem!r}") from problem
        return self.pause()

    def pause(self, answer: httpx.Response | None = None) -> float:
        """At random up to a bound that doubles, and not before the service asks for it."""
        asked = 0.0 if answer is None else float(answer.headers.get("retry-after", 0))
        drawn = random.uniform(0.5, 1.0) * self.longest
        self.left, self.longest = self.left - 1, min(2.0 * self.longest, LONGEST_PAUSE)
        return max(asked, drawn)


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def _path(experiment: str, tail: str = "") -> str:
    return f"/v1/experiments/{quote(experiment, safe='')}{tail}"


def _create(name: str, arms: Sequence[str], settings: Mapping[str, Any]) -> Call:
    return Call("POST", "/v1/experiments", {"name": name, "arms": list(arms), **settings}, repeatable=False)


def _decide(experiment: str, context: str, id: str | None, available: Sequence[str] | None, deferred: bool) -> Call:
    body = {"context": context, "id": id or uuid.uuid4().hex, "available": available and list(available)}
    return Call("POST", _path(experiment, "/decisions"), {**body, "deferred": deferred})


def _reward(experiment: str, id: str, reward: Reward) -> Call:
    return Call("POST", _path(experiment, "/rewards"), {"id": id, "reward": reward})


def _decide_many(experiment: str, contexts: Iterable[str]) -> Call:
    items = [{"context": context, "id": uuid.uuid4().hex} for context in contexts]
    return Call("POST", _path(experiment, "/decisions/batch"), {"items": items})


def _reward_many(experiment: str, rewards: Iterable[tuple[str, Reward]]) -> Call:
    items = [{"id": id, "reward": reward} for id, reward in rewards]
    return Call("POST", _path(experiment, "/rewards/batch"), {"items": items})


def _understood(answer: httpx.Response) -> Any:
    """The body of a success; everything else is raised."""
    try:
        body = answer.json()
    except ValueError:
        body = {"error": {"code": "not_json", "message": "Something else than the service has answered."}}
    if answer.is_success and "error" not in body:
        return body
    raise ServiceError(answer.status_code, **body["error"])


def _dictionary(body: Any) -> dict[str, Any]:
    return dict(body)


def _drawn(body: Any) -> list[Drawn | ServiceError]:
    return [ServiceError(200, **item["error"]) if "error" in item else Drawn(**item) for item in body["items"]]


def _outcomes(body: Any) -> list[str | ServiceError]:
    return [ServiceError(200, **item["error"]) if "error" in item else item["outcome"] for item in body["items"]]
