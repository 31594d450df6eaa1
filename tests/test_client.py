"""The Python clients: against the real service, and against one that loses answers."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import polars as pl
import pytest

import alphafair
from alphafair import AsyncClient, Client, ServiceError
from alphafair.service import client as room
from tests.serving import ARMS, Running, running

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("client") / "shop.db") as found:
        yield found


def test_a_whole_life(shop: Running, tmp_path: Path) -> None:
    with Client(shop.url) as client:
        assert client.create("life", ARMS, alpha=0.5)["arms"] == ARMS
        assert "life" in client.experiments()
        drawn = client.decide("life", "visitor-7")
        assert client.decide("life", "visitor-7", id=drawn.id) == drawn
        assert client.reward("life", drawn.id, 0.8) == "applied"
        assert client.reward("life", drawn.id, 0.8) == "repeated"
        with pytest.raises(ServiceError, match="409 conflict_decision") as caught:
            client.reward("life", drawn.id, 0.1)
        assert (caught.value.status, caught.value.argument) == (409, "id")
        late = client.decide("life", "visitor-8", deferred=True, available=["ben"])
        assert (late.arm, late.propensity) == ("ben", 1.0)
        assert client.activate("life", late.id) == "activated"
        many = client.decide_many("life", ["a", "b", "c"])
        assert [each.context for each in many if isinstance(each, room.Drawn)] == ["a", "b", "c"]
        outcomes = client.reward_many("life", [(many[0].id, 1.0), ("nobody", 1.0)])  # type: ignore[union-attr]
        assert outcomes[0] == "applied"
        assert isinstance(outcomes[1], ServiceError)
        assert client.change("life", add_arm="dot")["arms"] == [*ARMS, "dot"]
        assert client.experiment("life")["decisions"] == 5
        client.download_log("life", tmp_path / "log.csv", format="csv")
        assert len(pl.read_csv(tmp_path / "log.csv")) == 5
        for missing in (lambda: client.experiment("nowhere"), lambda: client.download_log("nowhere", tmp_path / "x")):
            with pytest.raises(ServiceError, match="404 unknown_experiment"):
                missing()


def test_the_same_to_be_awaited(shop: Running, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncClient(shop.url) as client:
            assert (await client.create("async", ARMS))["arms"] == ARMS
            drawn = await asyncio.gather(*(client.decide("async", f"visitor-{k}") for k in range(20)))
            assert len({each.id for each in drawn}) == 20
            found = await asyncio.gather(*(client.reward("async", each.id, 1.0) for each in drawn))
            assert found == ["applied"] * 20
            deferred = await client.decide("async", "v", deferred=True)
            assert await client.activate("async", deferred.id) == "activated"
            (one,) = await client.decide_many("async", ["a"])
            assert await client.reward_many("async", [(one.id, 1.0)]) == ["applied"]  # type: ignore[union-attr]
            assert (await client.change("async", alpha=0.3))["alpha"] == 0.3
            assert (await client.experiment("async"))["rewards"] == 21
            assert "async" in await client.experiments()
            await client.download_log("async", tmp_path / "log.jsonl", format="jsonl")
            with pytest.raises(ServiceError, match="404"):
                await client.download_log("nowhere", tmp_path / "x")
        assert len(pl.read_ndjson(tmp_path / "log.jsonl")) == 22

    asyncio.run(run())


def test_both_clients_have_the_same_names() -> None:
    def methods(kind: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(method))
            for name, method in vars(kind).items()
            if not name.startswith("_") and callable(method)
        }

    assert methods(Client) == methods(AsyncClient)
    assert str(inspect.signature(Client)) == str(inspect.signature(AsyncClient))


class Unreliable:
    """A transport in front of a service that follows a script: what to do with each request in turn."""

    def __init__(self, *script: Any) -> None:
        self.script, self.seen = list(script), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, httpx.Response)
        return answer


Ask = Callable[[httpx.MockTransport, Callable[[Any], Any], int], Any]


def ask(transport: httpx.MockTransport, call: Callable[[Any], Any], retries: int) -> Any:
    client = Client(retries=retries)
    client._http = httpx.Client(base_url="http://test", transport=transport)
    return call(client)


def ask_async(transport: httpx.MockTransport, call: Callable[[Any], Any], retries: int) -> Any:
    async def run() -> Any:
        client = AsyncClient(retries=retries)
        client._http = httpx.AsyncClient(base_url="http://test", transport=transport)
        return await call(client)

    return asyncio.run(run())


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def note(pause: float) -> None:
        found.append(pause)

    monkeypatch.setattr(room, "time", SimpleNamespace(sleep=found.append))
    monkeypatch.setattr(room, "asyncio", SimpleNamespace(sleep=note))
    return found


DRAWN = {"id": "x", "arm": "ada", "propensity": 0.5, "context": "v"}
LOST = httpx.ReadError("lost")
NO_CONNECTION = httpx.ConnectError("refused")


def busy(wait: str = "0") -> httpx.Response:
    return httpx.Response(
        503, json={"error": {"code": "overloaded", "message": "Busy."}}, headers={"retry-after": wait}
    )


@pytest.mark.parametrize("asked", [ask, ask_async])
def test_a_lost_answer_is_asked_for_again_under_the_same_id(asked: Ask, pauses: list[float]) -> None:
    service = Unreliable(LOST, httpx.ReadTimeout("slow"), NO_CONNECTION, busy(), httpx.Response(200, json=DRAWN))
    drawn = asked(httpx.MockTransport(service), lambda client: client.decide("home", "v"), 4)
    assert drawn.arm == "ada"
    assert len({request.content for request in service.seen}) == 1
    assert b'"id":"' in service.seen[0].content
    assert len(pauses) == 4
    for pause, longest in zip(pauses, (0.05, 0.1, 0.2, 0.4), strict=True):
        assert 0.5 * longest <= pause <= longest


@pytest.mark.parametrize("asked", [ask, ask_async])
def test_what_is_not_safe_is_not_repeated(asked: Ask, pauses: list[float]) -> None:
    for call in (lambda client: client.create("home", ["a"]), lambda client: client.change("home", add_arm="b")):
        service = Unreliable(LOST)
        with pytest.raises(ConnectionError, match="No answer to"):
            asked(httpx.MockTransport(service), call, 4)
        service = Unreliable(NO_CONNECTION, busy(), httpx.Response(200, json={}))  # none of them has begun
        assert asked(httpx.MockTransport(service), call, 4) == {}


@pytest.mark.parametrize("asked", [ask, ask_async])
def test_it_gives_up(asked: Ask, pauses: list[float]) -> None:
    with pytest.raises(ConnectionError):
        asked(httpx.MockTransport(Unreliable(LOST, LOST, LOST)), lambda client: client.decide("home", "v"), 2)
    with pytest.raises(ServiceError, match="503 overloaded"):
        asked(httpx.MockTransport(Unreliable(busy(), busy(), busy())), lambda client: client.experiments(), 2)
    page = httpx.Response(502, text="<html>a proxy</html>")
    with pytest.raises(ServiceError, match="502 not_json"):
        asked(httpx.MockTransport(Unreliable(page)), lambda client: client.experiments(), 2)


def test_it_waits_as_long_as_it_is_asked_to(pauses: list[float]) -> None:
    service = Unreliable(busy("7"), httpx.Response(200, json={"experiments": []}))
    assert ask(httpx.MockTransport(service), lambda client: client.experiments(), 1) == []
    assert pauses == [7.0]


def test_a_key_travels_in_its_header_and_is_not_shown() -> None:
    client = Client("http://test", key="af_1_secret")
    assert client._http.headers["authorization"] == "Bearer af_1_secret"
    assert "secret" not in repr(client) + str(vars(client))
    client.close()


def test_without_the_extra_the_rest_works_and_the_client_says_what_to_install() -> None:
    code = """
import sys
sys.modules["httpx"] = None
from alphafair import *
import alphafair
try:
    alphafair.Client
except ImportError as problem:
    print(problem)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == 'The client needs httpx. Run: pip install "alphafair[service]"'
    assert alphafair.Client is Client
