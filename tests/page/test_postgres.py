"""The page over a database that several processes write to: the same numbers, whichever of them is asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import Activate, Decide
from alphafair.engine.state.replay import Replay
from alphafair.engine.state.summary import Summary
from alphafair.service import keys
from tests.engine.test_summary import assert_same
from tests.page.visiting import Events, applied, get, signed_in, watching
from tests.postgres import Server
from tests.serving import ARMS, Running, running, wait_for
from tests.stores import live_state, writer_of


@pytest.fixture
def address(postgres_server: Server) -> str:
    return postgres_server.url()


@pytest.fixture
def shop(address: str) -> Iterator[Running]:
    with running(address, engine=Engine.open(address, seed=0)) as shop:  # type: ignore[arg-type]
        shop.engine.create("home", arms=ARMS, reward_wait=3600.0)
        yield shop


def play(engine: Engine, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for k in range(n):
        answers: Any = engine.submit(
            [Decide("home", f"v{rng.integers(5)}", f"{seed}-{k}"), Decide("home", "late", f"{seed}-{k}-d", None, True)]
        )
        if k % 3:
            engine.submit([Activate(answers[1].id, "home")])
            engine.reward(answers[1].id, float(rng.random()), "home")
        if k % 5:
            engine.reward(answers[0].id, float(rng.random()), "home")


def summary_of(engine: Engine) -> Summary:
    engine.experiment("home")  # takes in what others have written
    return live_state(engine, "home").experiments["home"].summary.copy()


def test_every_process_has_the_same_summary(address: str) -> None:
    with Engine.open(address, seed=1) as one, Engine.open(address, seed=2) as other:
        one.create("home", arms=ARMS)
        for k in range(4):
            play(one, 10, 2 * k)
            play(other, 10, 2 * k + 1)
            if k == 1:
                one.add_arm("home", "dan")
            if k == 2:
                other.rollback("home", one.experiment("home").position - 5)
        found = summary_of(one)
        assert found.arm_decisions.sum() == 160
        assert_same(found, summary_of(other))
        with writer_of(one, "home").store.reader() as store:
            until = {head.key: head.position for head in store.heads()}
            (again,) = Replay(store, until).run().values()
        assert_same(found, again.summary)
        one.verify()
    with Engine.open(address, read_only=True) as reader:
        assert_same(found, summary_of(reader))


def test_the_json_has_the_numbers_of_the_ledger(shop: Running) -> None:
    play(shop.engine, 20, 1)
    shop.engine.create("second", arms=ARMS)
    live = get(shop, "/experiments/home/live.json")
    status = shop.engine.experiment("home")
    assert sum(live["series"]["decisions"]) == status.decisions == 40
    assert (live["position"], live["experiment"]) == (status.position, get(shop, "/v1/experiments/home"))
    assert [item["name"] for item in get(shop, "/index.json")["items"]] == ["home", "second"]
    assert get(shop, "/experiments/home/contexts.json")["items"][0]["label"] == "late"
    rows = get(shop, "/experiments/home/log.json?limit=500")["items"]
    assert len(rows) == 40
    assert [row["position"] for row in rows] == sorted((row["position"] for row in rows), reverse=True)
    for query, keep in {
        "context=v3": lambda row: row["context"] == "v3",
        "arm=ada": lambda row: row["arm"] == "ada",
        "state=pending": lambda row: row["state"] == "pending",
        "state=deferred": lambda row: row["state"] == "deferred",
        "state=rewarded&context=late": lambda row: row["state"] == "rewarded" and row["context"] == "late",
        f"since={rows[20]['at']}": lambda row: row["at"] >= rows[20]["at"],
        f"until={rows[20]['at']}": lambda row: row["at"] < rows[20]["at"],
    }.items():
        found = get(shop, f"/experiments/home/log.json?limit=500&{query}")["items"]
        assert [row["id"] for row in found] == [row["id"] for row in rows if keep(row)], query
    story = get(shop, f"/experiments/home/decision.json?id={rows[0]['id']}")
    assert story["row"] == rows[0]


def test_a_watcher_sees_what_another_process_writes(shop: Running, address: str) -> None:
    play(shop.engine, 5, 1)
    with Engine.open(address, seed=3) as other, watching(shop, "/experiments/home/events") as answer:
        events = Events(answer)
        state = events.next()["data"]
        play(other, 5, 2)
        last = other.experiment("home").position
        while state["position"] < last:
            event = events.next()
            state = event["data"] if event["event"] == "state" else applied(state, event["data"])
        now = get(shop, "/experiments/home/live.json")
        for name in ("position", "experiment", "series", "shares", "delays"):
            assert state[name] == now[name], name


# a database that is away


def status(shop: Running, expected: int) -> dict[str, Any]:
    """The answer of /ready once it has this status."""
    answer = wait_for(lambda: shop.http.get("/ready"), lambda answer: answer.status_code == expected)
    found: dict[str, Any] = answer.json()
    return found


def test_a_node_is_not_ready_while_its_database_is_away(shop: Running, postgres_server: Server) -> None:
    status(shop, 200)
    postgres_server.stop()
    try:
        assert "postgresql://" in status(shop, 503)["reason"]
        refused = shop.http.post("/v1/experiments/home/decisions", json={"context": "v"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    finally:
        postgres_server.start()
    assert status(shop, 200)["ready"]
    with postgres_server.frozen():  # connections stay: only the silence shows
        reason = status(shop, 503)["reason"]
        assert "has not answered for" in reason or "Keys cannot be read" in reason
    assert status(shop, 200)["ready"]
    assert shop.http.post("/v1/experiments/home/decisions", json={"context": "v"}).status_code == 200


def test_any_process_takes_the_session_of_another(address: str, shop: Running) -> None:
    """Until it is signed out or its key is revoked: then no process does, once it has read the keys again."""
    token = keys.create(address, "admin", "me")

    def status(of: httpx.Client) -> int:
        return of.get("/index.json").status_code

    def cookie_of(client: httpx.Client) -> str:
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())

    other: Any
    with (
        running(address, engine=Engine.open(address, seed=1)) as other,  # type: ignore[arg-type]
        httpx.Client(base_url=other.url) as there,
    ):
        wait_for(lambda: shop.service.keyring.any_created)
        with signed_in(shop, token) as (client, session):
            there.headers["cookie"] = cookie_of(client)
            assert there.get("/session.json").json() == session
            assert there.patch("/v1/experiments/home", json={"alpha": 0.5}).status_code == 403
            csrf = {"x-alphafair-csrf": session["csrf"]}
            assert there.patch("/v1/experiments/home", json={"alpha": 0.5}, headers=csrf).status_code == 200
            assert there.get("/v1/experiments/home/log?format=csv").status_code == 200
            assert client.delete("/session", headers=csrf).status_code == 200
            wait_for(lambda: status(there), lambda found: found == 401)
        other.service.keyring._closed.set()  # reads no keys from now on
        other.service.keyring._thread.join()
        other.service.keyring._read_at = math.inf  # and nobody minds
        for epoch in (1, 2):
            with signed_in(shop, token) as (client, session):
                there.headers["cookie"] = cookie_of(client)
                assert f".{epoch}." in there.headers["cookie"]
                assert status(there) == 200  # although the other process has not read this epoch
                client.delete("/session", headers={"x-alphafair-csrf": session["csrf"]})
        other.service.keyring.refresh()
        assert status(there) == 401
        with signed_in(shop, token) as (client, _):
            there.headers["cookie"] = cookie_of(client)
            assert (status(client), status(there)) == (200, 200)
            keys.revoke(address, token.split("_")[1])
            wait_for(lambda: status(client), lambda found: found == 401)
            other.service.keyring.refresh()
            assert status(there) == 401


def test_the_page_of_an_experiment_that_another_process_has_just_created(address: str, shop: Running) -> None:
    with Engine.open(address, seed=1) as other:
        for name in ("new", "newer"):
            other.create(name, arms=ARMS)
            assert shop.http.get(f"/experiments/{name}/live").status_code == 200
        other.create("newest", arms=ARMS)
        with watching(shop, "/experiments/newest/events") as answer:
            assert Events(answer).next()["event"] == "state"
