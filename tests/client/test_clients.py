"""The Python clients: every call, with the real service, and the client itself."""

from __future__ import annotations

import asyncio
import datetime
import gc
import inspect
import math
import os
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import uvloop

from alphafair import AsyncClient, Client, InvalidArgument, ServiceError
from alphafair.engine import Outcome, Receipt
from alphafair.service.service import Limits
from alphafair_client import sending
from tests.client.calling import (
    ALL,
    BOTH,
    DRAWN_,
    LONG,
    Run,
    blocking,
    busy,
    decide,
    free_port,
)
from tests.misbehaving import (
    answer,
    hang,
    raw,
    reset,
    scripted,
)
from tests.serving import ARMS, Running, running, wait_for
from tests.stores import both_stores

pytestmark = pytest.mark.compiled


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
    assert [*sending.slices(items)] == [[0], [1], [3], [4]]
    assert [len(each) for each in sending.slices([b"x"] * 2001)] == [1000, 1000, 1]


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
