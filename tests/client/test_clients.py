"""The Python clients: against the real service, against one that misbehaves by a script, and through a bad network."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import email.utils
import gc
import inspect
import json
import math
import os
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from alphafair import AsyncClient, Client, InvalidArgument, ServiceError
from alphafair.engine import Outcome, Receipt
from alphafair.service.http.errors import failure
from alphafair.service.routes import HANDLERS
from alphafair.service.service import Limits
from alphafair_client import api, http
from alphafair_client import client as calls
from alphafair_client.api import ExperimentAnswer
from alphafair_client.http import Lost, Reply
from tests.misbehaving import (
    CERTIFICATE,
    DRAWN,
    Step,
    answer,
    close,
    cutting,
    drip,
    hang,
    head,
    raw,
    reset,
    scripted,
)
from tests.serving import ARMS, Running, running, wait_for
from tests.stores import both_stores

pytestmark = pytest.mark.compiled

NUMBERS = dict.fromkeys(
    ["contexts", "max_contexts", "decisions", "rewards", "defaulted", "expired", "lapsed", "rolled_back", "pending"], 0
)
EXPERIMENT: dict[str, Any] = {
    **dict.fromkeys(ExperimentAnswer.__struct_fields__),
    **{"name": "home", "policy": "uniform", "feedback": "bandit", "arms": ["ada"], "retired_arms": []},
    **{"masked_arms": [], "paused": False, "reward_range": [0.0, 1.0], "pulls": {}, "cumulative_rewards": {}},
    **{"accounts": {}, "carry": 0.5, "periods": [], "position": 0, **NUMBERS},
}
LONG = 20.0  # seconds, in which a call that heeds its own timeout has ended on any machine
Act = Callable[[Any], Any]


def blocking(url: str, *acts: Act, **settings: Any) -> list[Any]:
    """What each act on one client returns or raises, one after the other."""
    results = []
    with Client(url, **settings) as client:
        for act in acts:
            try:
                results.append(act(client))
            except Exception as problem:
                results.append(problem)
    return results


async def one_by_one(url: str, *acts: Act, **settings: Any) -> list[Any]:
    results = []
    async with AsyncClient(url, **settings) as client:
        for act in acts:
            try:
                found = act(client)
                results.append(await found if isinstance(found, Awaitable) else found)
            except Exception as problem:
                results.append(problem)
    return results


def awaited(url: str, *acts: Act, **settings: Any) -> list[Any]:
    return asyncio.run(one_by_one(url, *acts, **settings))


def awaited_in_uvloop(url: str, *acts: Act, **settings: Any) -> list[Any]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(one_by_one(url, *acts, **settings))


Run = Callable[..., list[Any]]
BOTH = pytest.mark.parametrize("run", [blocking, awaited])
ALL = pytest.mark.parametrize("run", [blocking, awaited, awaited_in_uvloop])


def decide(client: Any) -> Any:
    return client.decide("home", "v")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("client") / "shop.db") as found:
        yield found


# The real service


@both_stores
@pytest.mark.parametrize("alpha", [1.0, math.inf, np.float64(np.inf), "inf", np.float32(2)])
def test_alpha_is_any_number_up_to_inf(shop: Running, alpha: Any) -> None:
    name = f"any-{type(alpha).__name__}-{alpha}"
    with Client(shop.url, timeout=60.0) as client:
        shown = client.create(name, arms=ARMS, alpha=alpha).alpha
        assert shown == ("inf" if float(alpha) == math.inf else alpha)
        for k in range(10):
            drawn = client.decide(name, f"v{k % 2}")
            assert client.reward(drawn.id, 0.5, experiment=name) == Outcome("applied")
        for another in (0.9, 2.0, math.inf, 2, 0.9):
            shown = client.set_alpha(name, another).alpha
            assert shown == ("inf" if another == math.inf else another)
            client.decide(name, "v0")
        assert client.experiment(name).welfare is not None
        changes = [each.details["alpha"] for each in client.history(name)[1:]]
        assert changes == [0.9, 2.0, "inf", 2.0, 0.9]
        with pytest.raises(ServiceError, match="422 bad_request"):
            client.set_alpha(name, -math.inf)
    shop.service.engine.verify()


@both_stores
def test_an_experiment_has_periods(shop: Running) -> None:
    monday = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    with Client(shop.url, timeout=60.0) as client:
        made = client.create("weekly", arms=ARMS, alpha=1.0, period="7d", period_start=monday, carry=0.25)
        assert (made.period, made.carry, [each.number for each in made.periods]) == (7 * 86_400.0, 0.25, [0])
        assert made.period_ends is not None
        assert (made.period_ends - monday) % datetime.timedelta(days=7) == datetime.timedelta(0)
        drawn = client.decide("weekly", "v")
        client.reward(drawn.id, 1.0, experiment="weekly")
        closed, current = client.new_period("weekly").periods
        assert (closed.rewards[drawn.arm], current.rewards[drawn.arm]) == (1.0, 0.0)
        assert (closed.accounts[drawn.arm], current.entry_accounts[drawn.arm]) == (2.0, 1.25)
        assert client.history("weekly")[-1].kind == "new_period"
        with pytest.raises(ServiceError, match="422 bad_request") as caught:
            client.create("never", arms=ARMS, period="sometimes")
        assert caught.value.argument == "period"
        assert client.new_period("weekly", carry=1.0).periods[-1].entry_accounts == current.entry_accounts
        changed = client.set_period("weekly", "1d", period_start=monday, carry=0.75)
        assert (changed.period, changed.carry, changed.period_ends is not None) == (86_400.0, 0.75, True)
        assert client.set_period("weekly", 86_400, carry=0.5).period_ends == changed.period_ends
        assert client.history("weekly")[-1].details["period_start"] == "2024-01-01T00:00:00+00:00"
        ended = client.set_period("weekly", None)
        assert (ended.period, ended.period_ends, ended.carry, ended.periods[-1].number) == (None, None, 0.5, 2)
        assert client.history("weekly")[-1].kind == "set_period"
        for arguments in (
            {"period": "sometimes"},
            {"period": "7d", "carry": 2.0},
            {"period": "7d", "period_start": "?"},
        ):
            with pytest.raises(ServiceError, match="422 bad_request"):
                client.set_period("weekly", **arguments)
    refused: list[dict[str, Any]] = [
        {"new_period": False},
        {"new_period": True, "alpha": 1.0},
        {"new_period": True, "period_start": "2024-01-01"},
        {"new_period": True, "period": None},
        {"period_start": "2024-01-01"},
        {"carry": 0.5},
        {"add_arm": "another", "carry": 0.5},
        {"period": "7d", "group": "g"},
        {"period": "7d", "alpha": 1.0},
    ]
    for wrong in refused:
        assert shop.http.patch("/v1/experiments/weekly", json=wrong).status_code == 422
    shop.service.engine.verify()
    assert 'alphafair_period{experiment="weekly"} 2.0' in shop.http.get("/metrics").text


@both_stores
def test_every_call_of_the_client(shop: Running, tmp_path: Path) -> None:
    with Client(shop.url, timeout=60.0) as client:
        assert client.create("life", arms=ARMS, alpha=0.5).arms == ARMS
        assert "life" in client.experiments()
        drawn = client.decide("life", "visitor-7")
        assert client.decide("life", "visitor-7", id=drawn.id) == drawn
        assert client.reward(drawn.id, 0.8, experiment="life") == Outcome("applied")
        assert client.reward(drawn.id, 0.8, experiment="life") == Outcome("repeated")
        with pytest.raises(ServiceError, match="409 conflict_decision") as caught:
            client.reward(drawn.id, 0.1, experiment="life")
        assert (caught.value.status, caught.value.argument) == (409, "id")
        late = client.decide("life", "visitor-8", deferred=True, available=["ben"])
        assert (late.arm, late.propensity) == ("ben", 1.0)
        assert client.activate(late.id, experiment="life") == Outcome("activated")
        many = client.decide_many("life", ["a", "b", "c"])
        assert [each.context for each in many if isinstance(each, Receipt)] == ["a", "b", "c"]
        outcomes = client.reward_many([(many[0].id, 1.0), ("nobody", 1.0)], experiment="life")  # type: ignore[union-attr]
        assert outcomes[0] == Outcome("applied")
        assert isinstance(outcomes[1], ServiceError)
        assert client.add_arm("life", "dot").arms == [*ARMS, "dot"]
        assert client.experiment("life").decisions == 5
        client.export("life", tmp_path / "log.csv")
        assert len(pl.read_csv(tmp_path / "log.csv")) == 5
        for missing in (lambda: client.experiment("nowhere"), lambda: client.export("nowhere", tmp_path / "x", "csv")):
            with pytest.raises(ServiceError, match="404 unknown_experiment"):
                missing()
        assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


@both_stores
def test_every_call_of_the_async_client(shop: Running, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncClient(shop.url, timeout=60.0) as client:
            assert (await client.create("async", arms=ARMS)).arms == ARMS
            drawn = await asyncio.gather(*(client.decide("async", f"visitor-{k}") for k in range(20)))
            assert len({each.id for each in drawn}) == 20
            found = await asyncio.gather(*(client.reward(each.id, 1.0, experiment="async") for each in drawn))
            assert found == [Outcome("applied")] * 20
            deferred = await client.decide("async", "v", deferred=True)
            assert await client.activate(deferred.id, experiment="async") == Outcome("activated")
            (one,) = await client.decide_many("async", ["a"])
            assert await client.reward_many([(one.id, 1.0)], experiment="async") == [Outcome("applied")]  # type: ignore[union-attr]
            assert (await client.set_alpha("async", 0.3)).alpha == 0.3
            assert (await client.experiment("async")).rewards == 21
            assert "async" in await client.experiments()
            await client.export("async", tmp_path / "log.jsonl")
            with pytest.raises(ServiceError, match="404"):
                await client.export("nowhere", tmp_path / "x", "csv")
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


@both_stores
def test_numpy_values_are_accepted(shop: Running, tmp_path: Path) -> None:
    with Client(shop.url, timeout=60.0) as client:
        client.create("numpy", arms=np.array(ARMS), alpha=np.float32(0.5), reward_range=np.array([0, 2]))
        contexts, available = np.array(["a", "b", "c", "d"]), np.array(["ada", "cyd"])
        single = client.decide("numpy", contexts[0], available=available, deferred=np.bool_(False))  # type: ignore[arg-type]
        assert single.arm in ("ada", "cyd")
        drawn = client.decide_many("numpy", contexts, ids=np.array(["1", "2", "3", "4"]), available=available)
        assert [each[0] for each in drawn if isinstance(each, Receipt)] == ["1", "2", "3", "4"]
        assert {each.arm for each in drawn if isinstance(each, Receipt)} <= {"ada", "cyd"}
        rewards: list[Any] = [np.float32(0.5), np.float64(0.25), np.int64(1), np.array(2.0)]
        ids = np.array(["1", "2", "3", "4"])
        assert client.reward_many(zip(ids, rewards, strict=True), experiment="numpy") == [Outcome("applied")] * 4
        assert client.reward(single.id, np.float16(0.125), experiment="numpy") == Outcome("applied")
        client.export("numpy", tmp_path / "log.csv", format="csv")
        assert pl.read_csv(tmp_path / "log.csv")["reward"].to_list() == [0.125, 0.5, 0.25, 1.0, 2.0]
        for nothing in (np.nan, np.float32("inf"), None, "0.5", True, np.bool_(True), 1j, np.array([1.0, 2.0])):
            with pytest.raises(ServiceError, match="422 bad_reward"):
                client.reward(single.id, nothing, experiment="numpy")  # type: ignore[arg-type]


@both_stores
def test_rewards_for_every_arm(shop: Running) -> None:
    with Client(shop.url, timeout=60.0) as client:
        client.create("full", arms=ARMS, policy="alpha-fair", alpha=0.5)
        one, two = client.decide_many("full", ["a", "b"])
        assert isinstance(one, Receipt)
        assert isinstance(two, Receipt)
        values = dict(zip(np.array(ARMS), np.array([0.1, 0.2, 0.3], dtype=np.float32), strict=True))
        assert client.reward(one.id, values, experiment="full") == Outcome("applied")
        assert client.reward_many([(two.id, values)], experiment="full") == [Outcome("applied")]
        with pytest.raises(ServiceError, match="422 bad_reward"):
            client.reward(two.id, {**values, "ada": np.nan}, experiment="full")


@both_stores
@BOTH
def test_batches_of_any_size_keep_their_order(shop: Running, run: Run) -> None:
    name, n = f"batches-{run.__name__}", 2345
    contexts = [f"c{k % 50}" for k in range(n)]
    ids = [f"{name}-{k}" for k in range(n)]
    available = [[ARMS[k % 3]] if k % 2 else None for k in range(n)]
    drawn, empty, nothing, same, outcomes, found = run(
        shop.url,
        lambda client: client.create(name, arms=ARMS),
        lambda client: client.decide_many(name, contexts, ids=ids, available=available),
        lambda client: client.decide_many(name, []),
        lambda client: client.reward_many(iter([]), experiment=name),
        lambda client: client.decide_many(name, contexts, ids=ids, available=available, deferred=False),
        lambda client: client.reward_many(((id, 1.0) for id in ids), experiment=name),
        lambda client: client.experiment(name),
        timeout=60.0,
    )[1:]
    assert [each.id for each in drawn] == ids
    assert [each.context for each in drawn] == contexts
    assert all(each.arm == ARMS[k % 3] and each.propensity == 1.0 for k, each in enumerate(drawn) if k % 2)
    assert empty == nothing == []
    assert same == drawn
    assert outcomes == [Outcome("applied")] * n
    assert (found.decisions, found.rewards) == (n, n)


@both_stores
@BOTH
def test_a_list_of_rewards_is_rejected_with_a_repair(shop: Running, run: Run) -> None:
    (refused,) = run(shop.url, lambda client: client.reward("x", [0.1, 0.2], experiment="home"))
    assert (refused.status, refused.code) == (422, "bad_reward")
    assert refused.repair == 'Pass a float, or under full information one per arm: {"ada": 0.2, "ben": 1.0}.'


@both_stores
@BOTH
def test_an_item_fails_like_the_single_call(shop: Running, run: Run) -> None:
    name = f"alike-{run.__name__}"
    taken, waiting, undone = f"{name}-taken", f"{name}-waiting", f"{name}-undone"
    run(shop.url, lambda client: client.create(name, arms=ARMS), lambda client: client.decide(name, "v", id=taken))
    run(shop.url, lambda client: client.reward(taken, 1.0, experiment=name))
    position = shop.engine.experiment(name).position
    run(shop.url, lambda client: client.decide(name, "v", id=undone))
    shop.engine.rollback(name, position)
    run(shop.url, lambda client: client.decide(name, "v", id=waiting, deferred=True))
    rewards = [("nobody", 1.0), (taken, 0.5), (undone, 1.0), (waiting, 1.0), (taken, 7.0)]
    (outcomes,) = run(shop.url, lambda client: client.reward_many(rewards, experiment=name))
    assert [each.status for each in outcomes] == [404, 409, 410, 409, 422]
    single = run(shop.url, *[lambda client, each=each: client.reward(*each, experiment=name) for each in rewards])
    assert [each.args for each in outcomes] == [each.args for each in single]
    (drawn,) = run(
        shop.url, lambda client: client.decide_many(name, ["w", "v"], ids=[taken, "x"], available=[ARMS, ["no"]])
    )
    assert [(each.status, each.code) for each in drawn] == [(409, "id_taken"), (404, "unknown_arm")]


@both_stores
@BOTH
def test_a_bad_item_does_not_affect_the_others(shop: Running, run: Run) -> None:
    name = f"items-{run.__name__}"
    now, later = f"{name}-now", f"{name}-later"
    contexts = ["a", "b" * 201, "", 7, "\ud800", "c", "d\x00", "e"]
    _, drawn, deferred, activated, outcomes = run(
        shop.url,
        lambda client: client.create(name, arms=ARMS),
        lambda client: client.decide_many(name, contexts, available=["ada", "ben"]),
        lambda client: client.decide_many(name, ["a", "b"], ids=[now, later], deferred=[False, True]),
        lambda client: client.activate(later, experiment=name),
        lambda client: client.reward_many([(now, 1.0), (later, np.nan), (later,), "no", (later, 0.5)], experiment=name),
    )
    assert [type(each) for each in drawn] == [Receipt, *[ServiceError] * 4, Receipt, ServiceError, Receipt]
    assert [each.argument for each in drawn if isinstance(each, ServiceError)] == ["context"] * 5
    assert [each.arm in ("ada", "ben") for each in drawn if isinstance(each, Receipt)] == [True] * 3
    assert [each.id for each in deferred] == [now, later]
    assert activated == Outcome("activated")
    assert [each.outcome if isinstance(each, Outcome) else each.status for each in outcomes] == [
        "applied",
        422,
        422,
        422,
        "applied",
    ]


@both_stores
def test_columns_of_a_batch_must_have_equal_lengths(shop: Running) -> None:
    with Client(shop.url, timeout=60.0) as client:
        wrong: list[tuple[str, Any]] = [
            ("contexts", lambda: client.decide_many("home", "abc")),
            ("contexts", lambda: client.decide_many("home", 7)),  # type: ignore[arg-type]
            ("ids", lambda: client.decide_many("home", ["a", "b"], ids=["1"])),
            ("available", lambda: client.decide_many("home", ["a", "b"], available=[["ada"]])),
            ("available", lambda: client.decide("home", "a", available="ada")),
            ("deferred", lambda: client.decide_many("home", ["a", "b"], deferred=[True])),
            ("rewards", lambda: client.reward_many({"a": 1.0}, experiment="home")),  # type: ignore[dict-item]
            ("arms", lambda: client.create("home", arms="ada")),
            ("timeout", lambda: client.decide("home", "a", timeout=-1.0)),
            ("alpha", lambda: client.set_alpha("home", object())),
            ("alpha", lambda: client.set_alpha("home", float("nan"))),
        ]
        for argument, act in wrong:
            with pytest.raises(ServiceError, match="422 bad_request") as caught:
                act()
            assert caught.value.argument == argument
        for name in ("", ".", "..", "\ud800", None):
            with pytest.raises(ServiceError, match="404 unknown_experiment"):
                client.experiment(name)  # type: ignore[arg-type]


def test_requests_that_are_too_long_are_sent_in_parts(tmp_path: Path) -> None:
    with running(tmp_path / "small.db", limits=Limits(max_body=3000)) as small, Client(small.url) as client:
        client.create("home", arms=ARMS)
        contexts = [f"{k:0>150}" for k in range(60)]
        drawn = client.decide_many("home", contexts)
        assert [each.context for each in drawn if isinstance(each, Receipt)] == contexts
        assert client.experiment("home").decisions == 60
        available = [["a" * 150] * 30, None]  # the first does not fit, however it is sent
        first, second = client.decide_many("home", ["a", "b"], available=available)
        assert isinstance(first, ServiceError)
        assert first.status == 413
        assert isinstance(second, Receipt)


def test_long_items_are_sent_in_several_requests() -> None:
    items: list[bytes | ServiceError] = [
        b"x" * 300_000,
        b"y" * 300_000,
        ServiceError(422, "bad_request", "no"),
        b"z" * 600_000,
        b"z",
    ]
    assert [*calls._slices(items)] == [[0], [1], [3], [4]]
    assert [len(each) for each in calls._slices([b"x"] * 2001)] == [1000, 1000, 1]


@both_stores
@ALL
def test_a_thousand_calls_in_flight(shop: Running, run: Run) -> None:
    name = f"flight-{run.__name__}"

    def thousand(client: Any) -> Any:
        if run is blocking:
            with ThreadPoolExecutor(50) as threads:
                return [*threads.map(lambda k: client.decide(name, f"c{k % 9}", timeout=60.0), range(1000))]
        return asyncio.gather(*(client.decide(name, f"c{k % 9}", timeout=60.0) for k in range(1000)))

    _, drawn, found = run(
        shop.url,
        lambda client: client.create(name, arms=ARMS),
        thousand,
        lambda client: client.experiment(name),
    )
    assert [each.context for each in drawn] == [f"c{k % 9}" for k in range(1000)]
    assert len({each.id for each in drawn}) == found.decisions == 1000


def test_connections_are_kept_and_bounded() -> None:
    with scripted(*[answer()] * 400) as server:

        async def many() -> None:
            async with AsyncClient(server.url, max_connections=7) as client:
                await asyncio.gather(*(client.decide("home", "v", timeout=LONG) for _ in range(200)))

        asyncio.run(many())
        assert server.connections == server.most_open == 7
        with Client(server.url, max_connections=3) as client, ThreadPoolExecutor(10) as threads:
            list(threads.map(lambda _: client.decide("home", "v", timeout=LONG), range(200)))
        assert server.connections <= 10
        assert len(server.seen) == 400


@both_stores
def test_one_client_in_many_threads(shop: Running) -> None:
    """Every thread gets the answers to its own questions."""
    with Client(shop.url, timeout=60.0) as client:
        client.create("threads", arms=ARMS)

        def visit(thread: int) -> int:
            applied = 0
            for k in range(25):
                drawn = client.decide("threads", f"c{thread}", id=f"{thread}-{k}")
                assert (drawn.id, drawn.context) == (f"{thread}-{k}", f"c{thread}")
                applied += client.reward(drawn.id, 1.0, experiment="threads") == Outcome("applied")
                many = client.decide_many("threads", [f"c{thread}"] * 2, ids=[f"{thread}-{k}-{n}" for n in range(2)])
                assert [each.id for each in many if isinstance(each, Receipt)] == [
                    f"{thread}-{k}-{n}" for n in range(2)
                ]
            return applied

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(visit, range(16))) == [25] * 16
        found = client.experiment("threads")
        assert (found.decisions, found.rewards) == (16 * 75, 16 * 25)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_parent_and_child_have_connections_of_their_own() -> None:
    code = """
import os, sys
from alphafair import Client
client = Client(sys.argv[1])
client.experiments()
if (child := os.fork()) == 0:
    client.experiments()
    client.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
client.experiments()
client.close()
"""
    with scripted(*[answer({"experiments": []})] * 3) as server:
        subprocess.run([sys.executable, "-c", code, server.url], check=True, timeout=60.0)
        assert [each.connection for each in server.seen] == [1, 2, 1]


# A bad network between the client and the real service


def together(url: str, acts: list[Act], **settings: Any) -> list[Any]:
    with Client(url, **settings) as client, ThreadPoolExecutor(8) as threads:
        return [*threads.map(lambda act: act(client), acts)]


def together_in_asyncio(url: str, acts: list[Act], **settings: Any) -> list[Any]:
    async def run() -> list[Any]:
        async with AsyncClient(url, max_connections=8, **settings) as client:
            return await asyncio.gather(*(act(client) for act in acts))

    return asyncio.run(run())


@both_stores
@pytest.mark.parametrize("run", [together, together_in_asyncio])
@pytest.mark.parametrize("seed", [0, 1])
def test_exactly_once_through_a_proxy_that_cuts_and_delays(
    shop: Running, run: Run, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection is cut within its first few requests or answers, anywhere in them."""
    monkeypatch.setattr(calls, "LONGEST_PAUSE", 0.02)
    name = f"proxy-{run.__name__}-{seed}"
    settings = {"timeout": 60.0, "retries": 1000}
    with (
        Client(shop.url, timeout=60.0) as direct,
        cutting(shop.port, seed, cut=1.0, most_bytes=2500, most_delay=0.002) as proxy,
    ):
        url = f"http://127.0.0.1:{proxy.port}"
        direct.create(name, arms=ARMS)
        decisions: list[Act] = [lambda client, k=k: client.decide(name, f"c{k % 5}") for k in range(100)]  # type: ignore[misc]
        batches: list[Act] = [lambda client, k=k: client.decide_many(name, [f"c{k}"] * 3) for k in range(20)]  # type: ignore[misc]
        decided = run(url, decisions + batches, **settings)
        drawn = [*decided[:100], *(each for many in decided[100:] for each in many)]
        assert drawn == direct.decide_many(name, [each.context for each in drawn], ids=[each.id for each in drawn])
        rewards: list[Act] = [lambda client, each=each: client.reward(each.id, 0.5, experiment=name) for each in drawn]  # type: ignore[misc]
        assert set(run(url, rewards, **settings)) <= {Outcome("applied"), Outcome("repeated")}
        found = direct.experiment(name)
        assert (found.decisions, found.rewards) == (len(drawn), len(drawn)) == (160, 160)
        assert proxy.n_cut > 50


# Answers that are asked for again


def busy(**headers: str) -> Step:
    return answer({"error": {"code": "overloaded", "message": "Busy."}}, 503, **headers)


GATEWAY = answer(b"<html><h1>502 Bad Gateway</h1></html>", 502, content_type="text/html")
PASSING: dict[str, Step] = {
    "a gateway's 502": GATEWAY,
    "504, HTML": answer(b"<html>504", 504),
    "504, nothing": answer(b"", 504),
    "503 of a gateway": answer(b"no upstream", 503),
    "503 of the service": busy(retry_after="0"),
    "429": answer({"error": {"code": "too_many_requests", "message": "Slower."}}, 429, retry_after="0.01"),
    "408": answer(b"", 408, connection="close"),
    "Retry-After in the past": busy(retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "Retry-After as a date": busy(retry_after=email.utils.formatdate(time.time() - 1.0, usegmt=True)),
    "Retry-After by another clock": busy(
        retry_after="Wed, 21 Oct 2099 07:28:00 GMT", date="Wed, 21 Oct 2099 07:28:00 GMT"
    ),
    "Retry-After nonsense": busy(retry_after="soon"),
    "Retry-After negative": busy(retry_after="-5"),
    "Retry-After not a number": busy(retry_after="nan"),
    "Retry-After not a date": busy(retry_after="Wed, 99 Foo 20155 07:28:00 GMT"),
    "a body that is too short": raw(head(content_length=500) + b'{"id": "x"', then=close),
    "a chunk that is too short": raw(head(transfer_encoding="chunked") + b'fff\r\n{"id"', then=close),
    "headers that end too soon": raw(b"HTTP/1.1 200 OK\r\ncontent-le", then=close),
    "no answer": close,
    "a reset connection": reset,
    "a reset within the body": raw(head(content_length=500), then=reset),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.2p1\r\n", then=close),
    "headers without an end": raw(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000, then=close),
}


@BOTH
@pytest.mark.parametrize("fault", PASSING)
def test_temporary_failures_are_retried_with_the_same_id(run: Run, fault: str) -> None:
    with scripted(PASSING[fault], PASSING[fault], answer()) as server:
        assert run(server.url, decide, timeout=LONG) == [DRAWN_]
    assert len(server.seen) == 3
    assert len({each.body for each in server.seen}) == 1
    assert json.loads(server.seen[0].body)["id"]


DRAWN_ = Receipt("x", "ada", 0.5, "v")


@BOTH
def test_after_the_last_attempt_the_failure_is_raised(run: Run) -> None:
    for fault, error, text in (
        (
            GATEWAY,
            ServiceError,
            "502 bad_gateway: This answer is not from the service; it begins with '<html>",
        ),
        (busy(), ServiceError, "503 overloaded: Busy."),
        (reset, ConnectionError, "No answer to POST /v1/experiments/home/decisions after 3 attempts within 20 s: the "),
    ):
        with scripted(*[fault] * 3) as server:
            (problem,) = run(server.url, decide, retries=2, timeout=LONG)
            assert type(problem) is error
            assert str(problem).startswith(text)
            assert len(server.seen) == 3


@BOTH
@pytest.mark.parametrize("asked", ["3600", "9" * 400, "Fri, 31 Dec 2199 23:59:59 GMT"])
def test_a_pause_beyond_the_deadline_is_not_started(run: Run, asked: str) -> None:
    with scripted(busy(retry_after=asked), answer()) as server:
        (problem,) = run(server.url, decide)
        assert isinstance(problem, ServiceError)
        assert problem.status == 503
        assert len(server.seen) == 1


def test_a_date_in_retry_after_is_read_by_the_clock_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The `Date` of the service's own answers, whose clock is years ahead here, says what "now" is."""
    ahead = int(time.time()) + 10**9
    monkeypatch.setattr("alphafair.service.http.connections.time", SimpleNamespace(time=lambda: ahead + 0.9))

    async def busy_until(service: Any, request: Any, **_: Any) -> None:
        raise failure(503, "overloaded", "Busy.", retry_after=email.utils.formatdate(ahead + 7, usegmt=True))

    monkeypatch.setitem(HANDLERS, api.HEALTH, busy_until)
    with running(tmp_path / "shop.db", ready=False) as shop:
        found = shop.http.get("/health")
    reply = Reply(found.status_code, found.headers, found.content)
    assert (reply.status, calls._retry_after(reply)) == (503, 7.0)


# Time


HANGING: dict[str, Step] = {
    "before the headers": hang,
    "within the headers": raw(b"HTTP/1.1 200 OK\r\n", then=hang),
    "within the body": raw(head(content_length=500) + b'{"id": ', then=hang),
    "slow headers": drip(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000, 0.02),
    "a slow body": raw(head(content_length=9999), then=drip(b" " * 9999, 0.02)),
}


@BOTH
@pytest.mark.parametrize("fault", HANGING)
def test_a_call_ends_by_its_deadline(run: Run, fault: str) -> None:
    with scripted(*[HANGING[fault]] * 9) as server:
        start = time.monotonic()
        (problem,) = run(server.url, decide, timeout=0.4)
        assert time.monotonic() - start < LONG
        assert type(problem) is ConnectionError
        assert "in time" in str(problem)
        assert len(server.seen) <= 2  # the second attempt gets what the first has left


@BOTH
@pytest.mark.parametrize("fault", ["before the headers", "a slow body"])
def test_a_silent_connection_leaves_time_for_another_attempt(run: Run, fault: str) -> None:
    with scripted(answer(), HANGING[fault], answer(), answer()) as server:
        assert run(server.url, *[decide] * 3, timeout=2.0) == [DRAWN_] * 3
        assert [each.connection for each in server.seen] == [1, 1, 2, 2]


@pytest.mark.parametrize("secure", [False, True])
def test_the_scripted_server_closes_accepted_connections(secure: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secure else None
    for _ in range(20):
        with scripted(hang, context=context) as server:
            connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
        for connection in connections:
            connection.close()
    gc.collect()  # a socket that was left open is a warning, which is an error


def test_a_deadline_between_connecting_and_the_handshake_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    def slowly(family: int, address: Any, seconds: float) -> socket.socket:
        opened.append(connect(family, address, seconds))
        time.sleep(seconds)
        return opened[-1]

    connect = http._opened
    monkeypatch.setattr(http, "_opened", slowly)
    with scripted(hang) as server:
        (problem,) = blocking(server.url.replace("http:", "https:"), decide, timeout=0.2)
    assert "no connection in time" in str(problem)
    assert opened
    assert {each.fileno() for each in opened} == {-1}


@BOTH
def test_a_connection_that_is_not_accepted_times_out(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        problems = run(url, decide, decide, timeout=0.3)
        assert [type(problem) for problem in problems] == [ConnectionError] * 2


def test_waiting_for_a_connection_ends_in_time() -> None:
    async def run(url: str) -> list[Any]:
        async with AsyncClient(url, max_connections=1) as client:
            acts = [client.decide("home", "v", timeout=1.0), client.decide("home", "v", timeout=0.2)]
            return await asyncio.gather(*acts, return_exceptions=True)

    with scripted(hang, hang) as server:
        one, other = asyncio.run(run(server.url))
        assert "the answer did not arrive in time" in str(one)
        assert "all 1 connections are in use" in str(other)
    with (
        scripted(hang, hang) as server,
        Client(server.url, max_connections=1) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        first = thread.submit(client.decide, "home", "v", timeout=1.0)
        wait_for(lambda: server.seen)
        with pytest.raises(ConnectionError, match="all 1 connections are in use"):
            client.decide("home", "v", timeout=0.2)
        assert isinstance(first.exception(), ConnectionError)


@BOTH
def test_names_are_resolved_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, over = socket.getaddrinfo, threading.Event()

    def unknown(host: Any, *rest: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            return resolve(host, *rest, **options)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def slow(host: Any, *rest: Any, **options: Any) -> Any:
        if not options.get("flags", 0) & socket.AI_NUMERICHOST:
            over.wait(LONG)
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    (problem,) = run("http://nowhere.invalid", decide, retries=1)
    assert type(problem) is ConnectionError
    assert "Name or service not known" in str(problem)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    start = time.monotonic()

    def hurried(client: Any) -> Any:
        if run is blocking:
            return client.decide("home", "v", timeout=0.2)

        async def ask() -> Any:
            try:
                return await client.decide("home", "v", timeout=0.2)
            finally:
                over.set()  # the event loop waits for its threads

        return ask()

    (problem,) = run("http://nowhere.invalid", hurried)
    over.set()
    assert type(problem) is ConnectionError
    assert time.monotonic() - start < LONG


@BOTH
def test_the_next_address_is_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def two(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host == "shop.invalid" and not options.get("flags", 0) & socket.AI_NUMERICHOST:
            return [*resolve("127.0.0.1", free_port(), **options), *resolve("127.0.0.1", port, **options)]
        return resolve(host, port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with scripted(answer()) as server:
        assert run(f"http://shop.invalid:{server.port}", decide, retries=0) == [DRAWN_]
        assert server.seen[0].headers["host"] == f"shop.invalid:{server.port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Answers of every kind


@ALL
def test_unknown_fields_are_ignored(run: Run) -> None:
    more: dict[str, Any] = {"new": [1, {"a": None}]}
    items = [DRAWN | more, {"error": {"code": "paused", "message": "Not now.", **more}, **more}]
    error = {"code": "id_taken", "message": "Taken.", "argument": "id", "repair": "Take another.", **more}
    with scripted(
        answer(DRAWN | more),
        answer({"items": items, **more}),
        answer({"outcome": "applied", **more}),
        answer({"error": error, **more}, 409),
        answer({"experiments": ["home"], **more}),
        answer({"error": {"code": "odd", "message": 7, "argument": ["id"], "repair": None}}, 418),
    ) as server:
        one, many, outcome, refused, names, odd = run(
            server.url,
            decide,
            lambda client: client.decide_many("home", ["v", "w"]),
            lambda client: client.reward("x", 1.0, experiment="home"),
            decide,
            lambda client: client.experiments(),
            decide,
        )
    assert one == many[0] == DRAWN_
    assert (many[1].code, many[1].message) == ("paused", "Not now.")
    assert outcome == Outcome("applied")
    assert (refused.status, refused.code, refused.argument, refused.repair) == (409, "id_taken", "id", "Take another.")
    assert str(refused) == "409 id_taken (id): Taken. Take another."
    assert str(pickle.loads(pickle.dumps(refused))) == str(refused)
    assert names == ["home"]
    assert (odd.status, odd.code, odd.argument) == (418, "odd", None)


FOREIGN = {
    "HTML": b"<html><body>Something went wrong</body></html>",
    "nothing": b"",
    "other JSON": b'{"message": "Something went wrong", "code": 13}',
    "an error that is a string": b'{"error": "Something went wrong"}',
    "an error of another form": b'{"error": {"code": 13, "message": "Something went wrong"}}',
    "null": b"null",
    "a list": b'["error"]',
    "a number": b"13",
    "a part of JSON": b'{"error": {"code": "over',
    "no UTF-8": b"\xff\xfe\xfa",
    "brackets": b"[" * 100_000,
    "digits": b"1" * 10_000,
}


@BOTH
@pytest.mark.parametrize("body", FOREIGN)
def test_answers_from_elsewhere_are_service_errors(run: Run, body: str) -> None:
    acts: list[Act] = [
        decide,
        lambda client: client.reward("x", 1.0, experiment="home"),
        lambda client: client.activate("x", experiment="home"),
        lambda client: client.decide_many("home", ["v"]),
        lambda client: client.reward_many([("x", 1.0)], experiment="home"),
        lambda client: client.experiments(),
        lambda client: client.experiment("home"),
        lambda client: client.create("home", arms=ARMS),
        lambda client: client.set_alpha("home", 0.5),
    ]
    for status, code in ((200, None), (302, "found"), (403, "forbidden"), (500, "internal_server_error"), (599, None)):
        with scripted(*[answer(FOREIGN[body], status)] * len(acts)) as server:
            for problem in run(server.url, *acts):
                assert type(problem) is ServiceError
                assert problem.status == status
                assert problem.code == (code or {200: "bad_answer", 599: "unknown_status"}[status])
            assert len(server.seen) == len(acts)


MISSING: dict[str, Any] = {
    "arm": {"id": "x", "propensity": 0.5, "context": "v"},
    "id": DRAWN | {"id": None},
    "context": DRAWN | {"context": 7},
    "propensity": DRAWN | {"propensity": "0.5"},
    "propensity, zero": DRAWN | {"propensity": 0.0},
    "propensity, true": DRAWN | {"propensity": True},
}


@BOTH
@pytest.mark.parametrize("fault", MISSING)
def test_a_missing_field_of_an_answer_is_named(run: Run, fault: str) -> None:
    with scripted(answer(MISSING[fault]), answer({"items": [DRAWN, MISSING[fault]]})) as server:
        one, (fine, other) = run(server.url, decide, lambda client: client.decide_many("home", ["v", "w"]))
    assert fine == DRAWN_
    for problem in (one, other):
        assert type(problem) is ServiceError
        assert (problem.status, problem.code) == (200, "bad_answer")
        assert f"{fault.partition(',')[0]}`" in problem.message


@BOTH
@pytest.mark.parametrize("items", [None, [], [DRAWN], [DRAWN] * 3, "ab"])
def test_a_batch_has_one_answer_per_item(run: Run, items: Any) -> None:
    with scripted(answer({"items": items})) as server:
        (problem,) = run(server.url, lambda client: client.decide_many("home", ["v", "w"]))
        assert type(problem) is ServiceError
        assert problem.code == "bad_answer"


@BOTH
def test_a_batch_that_fails_midway_keeps_the_earlier_answers(run: Run) -> None:
    names = [f"c{k}" for k in range(2500)]
    done = answer({"items": [DRAWN] * 1000})
    for fault, error in ((reset, ConnectionError), (answer(b"", 401), ServiceError)):
        with scripted(done, *[fault] * 3, done) as server:
            (found,) = run(server.url, lambda client: client.decide_many("home", names), retries=2, timeout=LONG)
        assert found[:1000] == [DRAWN_] * 1000
        assert [type(each) for each in found[1000:]] == [error] * 1500
        with scripted(*[fault] * 3, done) as server:
            (found,) = run(server.url, lambda client: client.decide_many("home", names), retries=2, timeout=LONG)
        assert type(found) is error


@ALL
def test_every_form_of_http_is_read(run: Run) -> None:
    data = json.dumps(DRAWN).encode()
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:7], data[7:])) + b"0\r\n\r\n"
    with scripted(
        raw(b"HTTP/1.1 100 Continue\r\n\r\n" + head(content_length=len(data)) + data),
        raw(head(transfer_encoding="chunked") + chunked),
        drip(head(content_length=len(data)) + data, 0.0),
        raw(head() + data, then=close),
        raw(head(connection="close", content_length=len(data)) + data, then=close),
        raw(b"HTTP/1.0 200 OK\r\n\r\n" + data, then=close),
    ) as server:
        assert run(server.url, *[decide] * 6, retries=0) == [DRAWN_] * 6
        assert [each.connection for each in server.seen] == [1, 1, 1, 1, 2, 3]


@ALL
def test_unexpected_bytes_are_not_an_answer(run: Run) -> None:
    data = json.dumps(DRAWN).encode()
    other = json.dumps(DRAWN | {"arm": "eve"}).encode()
    one, more = (head(content_length=len(each)) + each for each in (data, other))

    def wait(client: Any) -> Any:
        time.sleep(0.05)
        return None if run is blocking else asyncio.sleep(0.05)

    with scripted(raw(one + more), answer()) as server:  # in one piece with the answer
        assert run(server.url, decide, wait, decide, retries=0) == [DRAWN_, None, DRAWN_]
        assert [each.connection for each in server.seen] == [1, 2]
    with scripted(drip(one, 0.0), answer()) as server:
        first, *_ = run(server.url, decide, retries=0)
        assert first == DRAWN_
    for then in (close, reset, raw(more)):  # while the connection is idle
        with scripted(raw(one, then=then), answer()) as server:
            assert run(server.url, decide, wait, decide, retries=0) == [DRAWN_, None, DRAWN_]
            assert [each.connection for each in server.seen] == [1, 2]


@BOTH
def test_redirects_are_errors(run: Run) -> None:
    with scripted(*[answer(b"", 307, location="https://elsewhere.example/v1")] * 2) as server:
        one, many = run(server.url, decide, lambda client: client.decide_many("home", ["v"]))
        assert len(server.seen) == 2
    for problem in (one, many):
        assert (problem.status, problem.code) == (307, "temporary_redirect")
        assert "https://elsewhere.example/v1" in problem.message


@BOTH
def test_an_endless_answer_is_aborted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair_client.http.MAX_REPLY_BYTES", 100_000)
    with scripted(answer(b" " * 100_001), answer()) as server:
        (problem,) = run(server.url, decide)
        assert type(problem) is ConnectionError
        assert len(server.seen) == 1


# What must not be sent twice


ONCE: list[Act] = [lambda client: client.create("home", arms=ARMS), lambda client: client.add_arm("home", "dot")]


@BOTH
@pytest.mark.parametrize("act", ONCE, ids=["create", "change"])
def test_unsafe_requests_are_not_repeated(run: Run, act: Act) -> None:
    uncertain = {k: v for k, v in PASSING.items() if not k.startswith(("Retry-After", "503 of the service", "429"))}
    for fault in uncertain.values():
        with scripted(fault, answer({})) as server:
            (problem,) = run(server.url, act)
            assert type(problem) in (ServiceError, ConnectionError)
            assert isinstance(problem, ServiceError) or "Whether it was carried out is unknown" in str(problem)
            assert len(server.seen) == 1
    with scripted(busy(), PASSING["429"], answer(EXPERIMENT)) as server:  # the service has not begun
        assert [each.name for each in run(server.url, act)] == ["home"]
        assert len(server.seen) == 3
    with scripted(answer(), answer(EXPERIMENT), answer()) as server:  # idle connections can break
        run(server.url, decide, act, decide)
        assert [each.connection for each in server.seen] == [1, 2, 2]


@BOTH
@pytest.mark.parametrize("act", ONCE, ids=["create", "change"])
def test_unsent_requests_are_retried(run: Run, act: Act) -> None:
    """Somebody listens only after the first attempts were refused."""
    with socket.socket() as server, ThreadPoolExecutor(1) as thread:
        server.bind(("127.0.0.1", 0))

        body = json.dumps(EXPERIMENT).encode()

        def listen() -> None:
            time.sleep(0.15)
            server.listen()
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head(content_length=len(body)) + body)

        done = thread.submit(listen)
        assert run(f"http://127.0.0.1:{server.getsockname()[1]}", act, timeout=LONG) == [
            msgspec.convert(EXPERIMENT, ExperimentAnswer)
        ]
        done.result()


# Downloads


@BOTH
def test_an_export_replaces_the_file_only_when_complete(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("before")

    def download(client: Any) -> Any:
        return client.export("home", path)

    text = b"seq,id\n" * 50_000
    broken = raw(head(content_length=len(text) + 5) + text, then=close)
    for fault, error in (
        (answer(b"no", 404), ServiceError),
        (answer(b"<html>Log in</html>", content_type="text/html; charset=utf-8"), ServiceError),
        (broken, ConnectionError),
    ):
        with scripted(fault, fault) as server:
            (problem,) = run(server.url, download, retries=1)
            assert type(problem) is error
            assert path.read_text() == "before"
    with scripted(broken, GATEWAY, answer(text)) as server:
        assert run(server.url, download) == [None]
        assert server.seen[0].path == "/v1/experiments/home/log?format=csv"
    assert path.read_bytes() == text
    assert [each.name for each in tmp_path.iterdir()] == ["log.csv"]
    with scripted(hang, hang) as server:
        missing, late = run(
            server.url,
            lambda client: client.export("home", tmp_path / "nowhere" / "log.csv"),
            lambda client: client.export("home", path, timeout=0.2),
        )
        assert isinstance(missing, FileNotFoundError)  # a fault of this machine, and told as one
        assert type(late) is ConnectionError
    assert path.read_bytes() == text


# TLS


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@ALL
def test_tls(run: Run) -> None:
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    with scripted(answer(), answer(), reset, answer(), context=server_context()) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert run(url, decide, decide, decide, ssl_context=trusting) == [DRAWN_] * 3
        assert [each.connection for each in server.seen][:2] == [1, 1]
        seen = len(server.seen)
        (problem,) = run(url, decide)
        assert type(problem) is ConnectionError
        assert "the certificate is not trusted" in str(problem)
        assert "after one attempt" in str(problem)
        assert len(server.seen) == seen
        (problem,) = run(server.url, decide, retries=0)  # http where https is spoken
        assert type(problem) is ConnectionError
    with scripted(answer(), answer()) as server:  # https where http is spoken
        (problem,) = run(f"https://127.0.0.1:{server.port}", decide, timeout=0.3)
        assert type(problem) is ConnectionError
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a handshake that never ends
        (problem,) = run(f"https://127.0.0.1:{silent.getsockname()[1]}", decide, timeout=0.3)
        assert type(problem) is ConnectionError


# The client itself


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_settings_are_checked_when_a_client_is_made(kind: Any) -> None:
    urls: list[Any] = [
        *("", "127.0.0.1:8000", "localhost", "ftp://localhost", "http://", "http:///v1", "http://a b", "http://a..b"),
        *("http://localhost:99999", "http://localhost:port", "http://[::1", "http://localhost/?a=1", "http://a/#b"),
        *("http://user:secret@localhost", "http://" + "x" * 80 + ".example", "http://\ud800", None, b"http://a", 7),
        *("http://localhost/\ud800", "http://ex%ample"),
    ]
    for url in urls:
        with pytest.raises(InvalidArgument) as caught:
            kind(url)
        assert caught.value.argument == "url"
        assert "secret" not in str(caught.value)
    for key in ("", "af_1\r\nx: y", "a b", "schlüssel", 7):
        with pytest.raises(InvalidArgument, match="key must be") as caught:
            kind(key=key)
        assert "af_1" not in str(caught.value)
    bad: list[dict[str, Any]] = [
        *({"unix_socket": 7}, {"ssl_context": ssl.create_default_context()}, {"url": "https://a", "ssl_context": True}),
        *({"timeout": value} for value in (0, -1, np.nan, np.inf, None, "5")),
        *({"retries": value} for value in (-1, 1.5, None)),
        *({"max_connections": value} for value in (0, 2.5)),
    ]
    for settings in bad:
        with pytest.raises(InvalidArgument, match=f"{[*settings][-1]} must be"):
            kind(**settings)


@BOTH
def test_urls_of_every_kind(run: Run) -> None:
    with scripted(*[answer()] * 5) as server:
        for base, path in (("", ""), ("/", ""), ("/a/b/", "/a/b"), ("/ü", "/%C3%BC"), ("/a%20b", "/a%20b")):
            assert run(f"http://127.0.0.1:{server.port}{base}", decide) == [DRAWN_]
            assert server.seen[-1].path == f"{path}/v1/experiments/home/decisions"
            assert server.seen[-1].headers["host"] == f"127.0.0.1:{server.port}"


@BOTH
def test_a_refused_connection_is_a_connection_error(run: Run) -> None:
    (problem,) = run(f"http://127.0.0.1:{free_port()}", decide, retries=2)
    assert type(problem) is ConnectionError
    assert "after 3 attempts" in str(problem)
    (problem,) = run("http://localhost", decide, retries=0, unix_socket="/nowhere/at/all")
    assert type(problem) is ConnectionError


def test_a_closed_client_raises_connection_error() -> None:
    with scripted(answer()) as server:
        client = Client(server.url)
        client.decide("home", "v")
        client.close()
        client.close()
        with pytest.raises(ConnectionError, match="This client is closed"):
            client.decide("home", "v")

        async def run() -> None:
            client = AsyncClient(server.url)
            await client.close()
            await client.close()
            with pytest.raises(ConnectionError, match="This client is closed"):
                await client.decide("home", "v")

        asyncio.run(run())


def test_a_call_in_progress_completes_after_close() -> None:
    with scripted(raw(b"", then=answer())) as server:
        client = Client(server.url)
        with ThreadPoolExecutor(1) as thread:
            call = thread.submit(client.decide, "home", "v", timeout=LONG)
            wait_for(lambda: server.seen)
            client.close()
            assert call.result() == DRAWN_


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_cancelled_call_stays_cancelled(factory: Any) -> None:
    async def run() -> None:
        async with AsyncClient(server.url, max_connections=1, timeout=LONG) as client:
            task = asyncio.create_task(client.decide("home", "v"))
            waiting = asyncio.create_task(client.decide("home", "v"))
            while not server.seen:
                await asyncio.sleep(0.001)
            for each in (waiting, task):
                each.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await each
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.decide("home", "v")
            pausing = asyncio.create_task(client.decide("home", "v"))
            while len(server.seen) < 3:
                await asyncio.sleep(0.001)
            pausing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pausing
            assert await client.decide("home", "v") == DRAWN_
            assert (await client.decide("home", "v")).arm == "ada"

    with scripted(hang, hang, busy(retry_after="5"), answer(), answer()) as server:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(run())
        assert len(server.seen) == 5
        assert server.seen[4].connection == server.seen[3].connection not in (1, 2)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # connections of a loop that has ended cannot be closed
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_client_in_several_event_loops() -> None:
    with scripted(*[answer()] * 3) as server:
        client = AsyncClient(server.url)
        for _ in range(3):
            assert asyncio.run(client.decide("home", "v")) == DRAWN_
        asyncio.run(client.close())
        gc.collect()


def test_a_key_is_sent_in_its_header_and_never_shown() -> None:
    with scripted(answer(), reset) as server, Client(server.url, key="af_1_secret", retries=0) as client:
        client.decide("home", "v")
        assert server.seen[0].headers["authorization"] == "bearer af_1_secret"  # in small letters, as all headers here
        assert "secret" not in repr(client) + str(vars(client))
        with pytest.raises(ConnectionError) as caught:
            client.decide("home", "v")
        assert "secret" not in repr(caught.value)


# The rules of sending again, by a clock of their own


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


def own(status: int) -> Reply:
    return Reply(status, {"retry-after": "1"}, b'{"error": {"code": "overloaded", "message": "Busy."}}')


OUTCOMES: dict[str, Reply | Lost] = {
    "done": Reply(200, {}, json.dumps(DRAWN).encode()),
    "refused": Reply(409, {}, b'{"error": {"code": "paused", "message": "Not now."}}'),
    "gateway": Reply(502, {}, b"<html>"),
    "gateway's busy": Reply(503, {"retry-after": "0"}, b"<html>"),
    "busy": own(503),
    "too many": own(429),
    "lost": Lost("lost", sent=True),
    "refused connection": Lost("no connection", sent=False),
    "untrusted": Lost("no trust", sent=False, temporary=False),
}
HARMLESS = {"busy", "too many", "refused connection"}


@given(
    repeatable=st.booleans(),
    retries=st.integers(0, 6),
    timeout=st.floats(0.01, 10.0),
    network=st.lists(st.tuples(st.sampled_from(sorted(OUTCOMES)), st.floats(0.0, 8.0)), min_size=7, max_size=7),
)
def test_a_call_ends_by_its_deadline_and_repeats_only_safe_requests(
    repeatable: bool, retries: int, timeout: float, network: list[tuple[str, float]]
) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "time", clock)
        terms = calls.Terms(timeout, clock.now + timeout, retries)
        endpoint = dataclasses.replace(api.DECIDE, repeatable=repeatable)
        drawn = calls._call(terms, endpoint, {"id": "1"}, name="home")
        used, bodies, result = list[str](), list[bytes | None](), None
        try:
            step = next(drawn)
            while True:
                if isinstance(step, calls.Pause):
                    assert step.seconds >= 0.0
                    clock.now += step.seconds
                    step = next(drawn)
                    continue
                assert clock.now < timeout
                limit = min(step.deadline - clock.now, step.longest)
                assert limit <= timeout / (2 if repeatable else 1)
                kind, seconds = network[len(used)]
                used.append(kind)
                bodies.append(step.request.body)
                clock.now += min(seconds, limit)
                if seconds >= limit:
                    used[-1] = "lost"
                found = OUTCOMES[used[-1]]
                step = drawn.throw(found) if isinstance(found, Lost) else drawn.send(found)
        except StopIteration as end:
            result = end.value
        except (ServiceError, ConnectionError) as problem:
            result = problem
    assert clock.now <= timeout + 1e-9
    assert len(used) <= retries + 1
    assert len(set(bodies)) == 1
    assert isinstance(result, Receipt) == (used[-1] == "done")
    for kind in used[:-1]:
        assert kind not in ("done", "refused", "untrusted")
        assert repeatable or kind in HARMLESS


def test_pauses_double_up_to_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(calls, "time", clock)
    monkeypatch.setattr(calls, "random", SimpleNamespace(uniform=lambda low, high: high))
    plan = calls._call(calls.Terms(60.0, 60.0, 9), api.SHOW, name="home")
    step, pauses = next(plan), []
    for _ in range(9):
        pause = plan.throw(Lost("lost", sent=True)) if isinstance(step, calls.Attempt) else None
        assert isinstance(pause, calls.Pause)
        pauses.append(pause.seconds)
        step = next(plan)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    with pytest.raises(ConnectionError, match="after 10 attempts"):
        plan.throw(Lost("lost", sent=True))
