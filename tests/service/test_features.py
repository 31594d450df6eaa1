"""Features of decisions over HTTP, with both clients, and on the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import AsyncClient, Client, Log, ServiceError
from tests.serving import ARMS, Running, error, running, wait_for
from tests.stores import both_stores

pytestmark = both_stores
DECLARED = {"age": "number", "visits": "number?", "segment": ["new", "loyal", "*"]}
GOOD = {"age": 31, "segment": "new"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("features") / "shop.db") as found:
        created = found.post("", {"name": "home", "arms": ARMS, "features": DECLARED})
        assert (created.status_code, created.json()["features"]) == (201, DECLARED), created.text
        plain = found.post("", {"name": "plain", "arms": ARMS})
        assert (plain.status_code, plain.json()["features"]) == (201, None)
        yield found


def test_messages(shop: Running) -> None:
    answer = shop.post("/home/decisions", {"context": "v", "id": "first", "features": GOOD})
    assert answer.status_code == 200, answer.text
    again = shop.post("/home/decisions", {"context": "v", "id": "first"})
    assert again.content == answer.content  # whatever features come with it
    assert shop.post("/home/rewards", {"id": "first", "reward": 1.0}).json() == {"outcome": "applied"}
    items = [{"context": "v", "features": GOOD}, {"context": "v", "features": {"age": None}}, {"context": "v"}]
    found = shop.post("/home/decisions/batch", {"items": items}).json()["items"]
    assert [each.get("error", {}).get("code") for each in found] == [None, "bad_features", "bad_features"]
    assert found[1]["error"]["argument"] == "features.age"
    slate = shop.post("/home/decisions", {"context": "v", "k": 2, "features": GOOD}).json()
    assert len(slate["arms"]) == 2


@pytest.mark.parametrize(
    ("name", "features", "argument"),
    [
        ("home", {"age": "31"}, "features.age"),
        ("home", {"age": []}, "features.age"),
        ("home", {"age": 1e60}, "features.age"),
        ("home", {"age": 10**40}, None),
        ("home", {}, "features.age"),
        ("home", None, "features.age"),
        ("home", {**GOOD, "unknown": 1}, "features.unknown"),
        ("plain", {"age": 1}, "features"),
    ],
)
def test_refusals(shop: Running, name: str, features: Any, argument: str | None) -> None:
    position = shop.engine.position
    answer = shop.post(f"/{name}/decisions", {"context": "other", "features": features})
    if argument is None:  # a number that JSON may have and that fits
        assert answer.status_code == 200
        return
    assert (answer.status_code, error(answer)["code"], error(answer)["argument"]) == (422, "bad_features", argument)
    assert shop.engine.position == position


def test_features_that_are_no_object(shop: Running) -> None:
    for features in ([1], "age", 3):
        answer = shop.post("/home/decisions", {"context": "v", "features": features})
        assert (answer.status_code, error(answer)["code"]) == (422, "bad_request")
    for declared in ({"age": "text"}, {"age": ["one"]}, {}, ["age"], {"age": 3}):
        answer = shop.post("", {"name": "odd", "arms": ARMS, "features": declared})
        assert (answer.status_code, error(answer)["code"]) == (422, "bad_request"), declared
        assert error(answer)["argument"].startswith("features")


def test_clients(shop: Running, tmp_path: Path) -> None:
    given = {"age": np.float64(31.5), "visits": np.int64(4), "segment": "vip"}
    with Client(shop.url) as client:
        made = client.create("client", arms=ARMS, features=DECLARED)
        assert made.features == DECLARED == client.experiment("client").features
        receipt = client.decide("client", "w", "mine", features=given)
        client.reward(receipt.id, 1.0, experiment="client")
        assert client.decide("client", "w", "mine") == receipt
        shown: list[Any] = [{"age": True, "visits": None}, {"age": "x"}, None, {"age": np.nan}, [3], {1: 2}]
        answers = client.decide_many("client", ["a"] * 6, features=shown)
        assert [getattr(each, "code", None) for each in answers] == [None, *["bad_features"] * 4, "bad_request"]
        for features in ({"age": b"1"}, {"age": 10**400}, {"age": [1]}, [1]):
            with pytest.raises(ServiceError) as refused:
                client.decide("client", "w", features=features)  # type: ignore[arg-type]
            assert refused.value.code == "bad_features"
        with pytest.raises(ServiceError, match="features must be as many as contexts"):
            client.decide_many("client", ["a"], features=[])
        client.export("client", tmp_path / "log.parquet")
    found = Log.from_table(tmp_path / "log.parquet", features=DECLARED).features
    assert found is not None
    assert found.tolist() == [[31.5, 4.0, 0.0, 0.0, 0.0, 1.0]]

    async def ask() -> None:
        async with AsyncClient(shop.url) as client:
            receipt = await client.decide("client", "w", features=GOOD)
            assert receipt.arm in ARMS
            with pytest.raises(ServiceError, match=r"features\.age"):
                await client.decide("client", "w", features={"age": "x"})

    asyncio.run(ask())


def test_the_story_of_a_decision(shop: Running) -> None:
    shop.post("/home/decisions", {"context": "v", "id": "told", "features": {**GOOD, "segment": "vip"}})
    path = "/experiments/home/decision.json?id=told"
    story = wait_for(
        lambda: shop.http.get(path).json(), lambda found: found["probabilities_status"] != "computing", 120.0
    )
    assert story["features"] == {"age": 31.0, "visits": None, "segment": "*"}
    assert story["probabilities_status"] == "recomputed", story["probabilities_sentence"]
    drawn = next(arm for arm in story["arms"] if arm["drawn"])
    assert drawn["probability"] == story["row"]["propensity"]
    receipt = shop.post("/plain/decisions", {"context": "v", "id": "told"})
    assert receipt.status_code == 200
    assert shop.http.get("/experiments/plain/decision.json?id=told").json()["features"] is None
    live = shop.http.get("/experiments/home/live.json").json()
    assert live["experiment"]["features"] == DECLARED


def test_features_of_arms(shop: Running) -> None:
    body = {"name": "ads", "arms": ARMS, "arm_features": {"price": "number", "new": "number?"}}
    made = shop.post("", body)
    assert (made.status_code, made.json()["arm_features"]) == (201, body["arm_features"])
    refused = shop.post("/ads/decisions", {"context": "v"})
    assert (refused.status_code, error(refused)["code"], error(refused)["argument"]) == (
        *(422, "bad_features", "arm_features"),
    )
    values = {arm: {"price": k} for k, arm in enumerate(ARMS)}
    assert shop.http.patch("/v1/experiments/ads", json={"terms": {"arm_features": values}}).status_code == 200
    assert shop.post("/ads/decisions", {"context": "v", "id": "of arms"}).status_code == 200
    story = shop.http.get("/experiments/ads/decision.json?id=of%20arms").json()
    assert story["features"] is None
    story = wait_for(
        lambda: shop.http.get("/experiments/ads/decision.json?id=of%20arms").json(),
        lambda found: found["probabilities_status"] != "computing",
        120.0,
    )
    assert story["probabilities_status"] == "recomputed", story["probabilities_sentence"]
    with Client(shop.url) as client:
        with pytest.raises(ServiceError, match=r"arm_features\.price"):
            client.add_arm("ads", "new")
        answer = client.add_arm("ads", "new", features={"price": np.float64(3.5)})
        assert answer.features_by_arm is not None
        assert answer.features_by_arm["new"] == {"price": 3.5, "new": None}
        answer = client.set_terms("ads", arm_features={"new": {"price": 4, "new": True}})
        assert answer.features_by_arm is not None
        assert answer.features_by_arm["new"] == {"price": 4.0, "new": 1.0}
        client.decide("ads", "v")


def test_it_is_described(shop: Running) -> None:
    schemas = shop.http.get("/openapi.json").json()["components"]["schemas"]
    assert "features" in schemas["DecisionRequest"]["properties"]
    assert "number?" in json.dumps(schemas["NewExperiment"]["properties"]["features"])
    assert shop.engine.verify() == shop.engine.position
