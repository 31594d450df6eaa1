"""Decisions of several arms over HTTP, with both clients, and on the page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphafair import AsyncClient, Client, ServiceError
from alphafair_client.answers import Receipt, SlateReceipt
from tests.serving import ARMS, Running, error, running, wait_for
from tests.stores import both_stores

pytestmark = both_stores


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("slates") / "shop.db") as found:
        found.engine.create("home", arms=ARMS, alpha=0.5)
        yield found


def test_messages(shop: Running) -> None:
    answer = shop.post("/home/decisions", {"context": "v", "id": "first", "k": 2})
    made = answer.json()
    assert (answer.status_code, list(made)) == (200, ["id", "arms", "propensities", "context"])
    assert shop.post("/home/decisions", {"context": "v", "id": "first", "k": 2}).content == answer.content
    taken = shop.post("/home/decisions", {"context": "v", "id": "first"})
    assert (taken.status_code, error(taken)["code"]) == (409, "id_taken")
    alone = shop.post("/home/decisions", {"context": "v", "id": "alone"})
    assert list(alone.json()) == ["id", "arm", "propensity", "context"]
    one, two = made["arms"]
    for reward, outcome in (({two: 1}, "applied"), ({two: 1}, "repeated"), ({one: 0, two: 1}, "applied")):
        assert shop.post("/home/rewards", {"id": "first", "reward": reward}).json() == {"outcome": outcome}
    conflict = shop.post("/home/rewards", {"id": "first", "reward": {one: 1}})
    assert (conflict.status_code, conflict.json()["outcome"]) == (409, "conflict")
    items = shop.post("/home/decisions/batch", {"items": [{"context": "v", "k": 2}, {"context": "v"}]}).json()["items"]
    assert [sorted(each) for each in items] == [
        ["arms", "context", "id", "propensities"],
        ["arm", "context", "id", "propensity"],
    ]


def test_refusals(shop: Running) -> None:
    position = shop.engine.position
    for k in (0, -1, 1001, 2.5, True, "2", [2]):
        problem = error(answer := shop.post("/home/decisions", {"context": "v", "k": k}))
        assert (answer.status_code, problem["code"]) == (422, "bad_request"), k
    assert shop.engine.position == position
    made = shop.post("/home/decisions", {"context": "v", "k": 2}).json()
    position = shop.engine.position
    answer = shop.post("/home/rewards", {"id": made["id"], "reward": 0.8})
    assert (answer.status_code, error(answer)) == (
        422,
        {
            "code": "bad_request",
            "message": "reward must be an object with rewards of shown arms; got 0.8. "
            f'Send {{"{made["arms"][0]}": 0.8}}.',
            "argument": "reward",
            "repair": f'Send {{"{made["arms"][0]}": 0.8}}.',
        },
    )
    (other,) = {*ARMS} - {*made["arms"]}
    for reward, sentence in (
        ({}, "reward must be an object with rewards of shown arms; got {}."),
        ({other: 1.0}, f"reward must be of shown arms, {', '.join(map(repr, made['arms']))}; got '{other}'."),
        ({made["arms"][0]: 2.0}, "reward must be a number in [0, 1]; got 2.0."),
    ):
        answer = shop.post("/home/rewards", {"id": made["id"], "reward": reward})
        assert answer.status_code == 422
        assert error(answer)["message"].startswith(sentence)
    assert shop.engine.position == position


def test_experiments_that_show_one_arm(shop: Running) -> None:
    groups = {"labels": ["x", "x", "y"], "pull_floor": {"x": 0.1, "y": 0.1}}
    for name, options, sentence in (
        (
            "fair-cb",
            {"policy": "fair-cb"},
            "k must be left out: fair-cb shows one arm per decision; got 2. "
            "Use AlphaFairAdaptive, AlphaFair, AlphaFairBandit or Uniform.",
        ),
        (
            "floors",
            {"groups": groups},
            "k must be 1 with a pull_floor by group; got 2. Pass one pull_floor for all arms.",
        ),
    ):
        created = shop.post("", {"name": name, "arms": ARMS, **options})
        assert created.status_code == 201, created.text
        position = shop.engine.position
        problem = error(answer := shop.post(f"/{name}/decisions", {"context": "v", "k": 2}))
        assert (answer.status_code, problem["code"], problem["message"]) == (422, "bad_request", sentence)
        assert shop.engine.position == position
        assert shop.engine.experiment(name).contexts == 0
        assert shop.post(f"/{name}/decisions", {"context": "v"}).status_code == 200


def test_clients(shop: Running, tmp_path: Path) -> None:
    with Client(shop.url) as client:
        receipt = client.decide("home", "w", "mine", k=2)
        assert isinstance(receipt, SlateReceipt)
        assert client.decide("home", "w", "mine", k=2) == receipt == shop.engine.decide("home", "w", "mine", k=2)
        assert client.reward("mine", {receipt.arms[0]: 1.0}, experiment="home").outcome == "applied"
        kinds = [type(each) for each in client.decide_many("home", ["a", "b", "c"], k=[2, None, 1])]
        assert kinds == [SlateReceipt, Receipt, SlateReceipt]
        assert [type(each) for each in client.decide_many("home", ["a"], k=2)] == [SlateReceipt]
        with pytest.raises(ServiceError, match="k must be an integer from 1 to 1,000; got 0"):
            client.decide("home", "w", k=0)
        client.export("home", tmp_path / "home.csv")
        assert (tmp_path / "home.csv").read_text().startswith("seq,id,context,arm,propensity,slot,k,reward,")

    async def ask() -> SlateReceipt:
        async with AsyncClient(shop.url) as client:
            return await client.decide("home", "w", "mine", k=2)

    assert asyncio.run(ask()) == receipt


def test_descriptions(shop: Running) -> None:
    described = shop.http.get("/openapi.json").json()
    answers = described["paths"]["/v1/experiments/{name}/decisions"]["post"]["responses"]["200"]
    refs = [each["$ref"].rpartition("/")[2] for each in answers["content"]["application/json"]["schema"]["anyOf"]]
    assert refs == ["Receipt", "SlateReceipt"]
    assert {*refs} <= {*described["components"]["schemas"]}
    assert "SlateReceipt" in shop.http.get("/docs").text


def test_the_page_shows_slates(shop: Running) -> None:
    receipt = shop.engine.decide("home", "page", "seen", k=2)
    shop.engine.reward("seen", {receipt.arms[1]: 0.5})
    shown = [
        {"arm": arm, "propensity": p, "reward": reward}
        for arm, p, reward in zip(receipt.arms, receipt.propensities, [None, 0.5], strict=True)
    ]
    log = shop.http.get("/experiments/home/log.json", params={"context": "page"}).json()["items"]
    assert [(row["id"], row["slate"], row["state"]) for row in log] == [("seen", shown, "pending")]
    by_arm = shop.http.get("/experiments/home/log.json", params={"context": "page", "arm": receipt.arms[1]}).json()
    assert by_arm["items"] == log
    story = wait_for(
        lambda: shop.http.get("/experiments/home/decision.json", params={"id": "seen"}).json(),
        lambda story: story["probabilities_status"] != "computing",
    )
    assert (story["probabilities_status"], story["row"]["slate"]) == ("recomputed", shown)
    found = {each["arm"]: each for each in story["arms"]}
    assert {arm for arm, each in found.items() if each["drawn"]} == {*receipt.arms}
    assert [found[arm]["probability"] for arm in receipt.arms] == [*receipt.propensities]
    assert [found[arm]["reward"] for arm in receipt.arms] == [None, 0.5]
