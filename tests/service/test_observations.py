"""Decisions of others over HTTP, and through both clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from alphafair import AsyncClient, Client, Engine
from alphafair.service import keys
from alphafair_client.answers import Outcome, ServiceError
from tests.serving import running
from tests.stores import sqlite_only

pytestmark = sqlite_only("is the same on both stores: the engine's tests run on both")
SHOWN = {"context": "v", "arm": "ada", "reward": 0.5}


def test_every_item_has_its_answer(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as service:
        service.engine.create("home", arms=["ada", "ben"])
        items = [
            {**SHOWN, "id": "one", "propensity": 0.5, "unit": "u", "source": "ranker"},
            {**SHOWN, "id": "one", "source": "ranker"},
            {**SHOWN, "id": "one", "source": "ranker", "reward": 0.75},
            {**SHOWN, "id": "one"},
            {**SHOWN, "arm": "cyd"},
            SHOWN,
        ]
        answer = service.post("/home/observations", {"items": items})
        assert answer.status_code == 200
        first, again, conflict, taken, unknown, last = answer.json()["items"]
        assert (first, again) == ({"id": "one", "outcome": "recorded"}, {"id": "one", "outcome": "repeated"})
        assert (conflict["outcome"], conflict["error"]["code"]) == ("conflict", "conflict_decision")
        assert (taken["error"]["code"], taken["error"]["argument"]) == ("id_taken", "id")
        assert unknown["error"]["code"] == "unknown_arm"
        assert last["outcome"] == "recorded"
        assert service.post("/home/rewards", {"id": last["id"], "reward": 0.5}).json() == {"outcome": "repeated"}
        decided = service.post("/home/decisions", {"context": "v", "id": "one"}).json()
        assert decided == {"id": "one", "arm": "ada", "propensity": 0.5, "context": "v", "source": "ranker"}
        batch = service.post("/home/decisions/batch", {"items": [{"context": "v", "id": last["id"]}, {"context": "w"}]})
        told, drawn = batch.json()["items"]
        assert (told["propensity"], told["source"]) == (None, "incumbent")
        assert {*drawn} == {"id", "arm", "propensity", "context"}
        assert service.post("/nowhere/observations", {"items": [SHOWN]}).status_code == 404
        for wrong in ({**SHOWN, "propensity": 0}, {**SHOWN, "reward": {"ada": 1}}, {"arm": "ada"}, {**SHOWN, "a": 1}):
            refused = service.post("/home/observations", {"items": [wrong]})
            assert refused.status_code == 422
            assert refused.json()["error"]["code"] == "bad_request"
        for items in ([], [SHOWN] * 1001):
            assert service.post("/home/observations", {"items": items}).status_code == 422
        service.engine.verify()


def test_observing_needs_the_role_write(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        engine.create("home", arms=["ada", "ben"])
    made = {role: keys.create(path, role, role) for role in ("admin", "read", "write")}
    with running(path) as service:
        for role, status in (("read", 403), ("write", 200)):
            headers = {"Authorization": f"Bearer {made[role]}"}
            answer = service.post("/home/observations", {"items": [SHOWN]}, headers=headers)
            assert answer.status_code == status


def test_clients_observe(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as service:
        service.engine.create("home", arms=["ada", "ben"])
        with Client(service.url) as client:
            assert client.observe("home", "v", "ada", 0.5, "one", propensity=0.25) == Outcome("recorded")
            assert client.observe("home", "v", "ada", 0.5, "one") == Outcome("repeated")
            assert client.observe("home", "v", "ada") == Outcome("recorded")
            for told, code in (
                ({"arm": "cyd"}, "unknown_arm"),
                ({"reward": 0.75, "id": "one"}, "conflict_decision"),
                ({"propensity": float("nan")}, "bad_request"),
                ({"features": {"age": 1.0}}, "bad_features"),
                ({"reward": "much"}, "bad_reward"),
            ):
                with pytest.raises(ServiceError) as refused:
                    client.observe("home", **{"context": "v", "arm": "ada", **told})
                assert refused.value.code == code
            some = client.observe_many("home", [SHOWN, "v", {**SHOWN, "instead_of": "nobody", "id": "two"}])
            assert [type(each) for each in some] == [Outcome, ServiceError, Outcome]
            receipt = client.decide("home", "v", id="one")
            assert (receipt.source, receipt.propensity) == ("incumbent", 0.25)
            found = client.decide_many("home", ["v", "w"], ids=["two", None])
            assert [(each.source, each.propensity is None) for each in found] == [("incumbent", True), (None, False)]

        async def observe() -> Outcome:
            async with AsyncClient(service.url) as client:
                return await client.observe("home", "v", "ada", id="three", source="history")

        assert asyncio.run(observe()) == Outcome("recorded")
        assert service.engine.experiment("home").rewards == 0


def test_the_page_shows_who_decided(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as service:
        service.engine.create("home", arms=["ada", "ben"])
        service.engine.observe("home", "v", "ada", 0.5, "seen")
        service.engine.observe("home", "v", "ada", id="told", propensity=0.25, source="ranker")
        service.engine.decide("home", "v", id="own")
        rows = service.http.get("/experiments/home/log.json").json()["items"]
        assert [(each["decided_by"], each["propensity"]) for each in rows] == [
            (None, 0.5),
            ("ranker", 0.25),
            ("incumbent", None),
        ]
        story = service.http.get("/experiments/home/decision.json?id=seen").json()
        assert story["probabilities_sentence"] == "The policy did not draw it: another source has decided."
        assert [each["probability"] for each in story["arms"] if each["drawn"]] == [None]
