"""Modes over HTTP: both clients, batches, the answers, and the metrics of sides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphafair import AsyncClient, Client, ServiceError
from alphafair.engine.state.sides import place_of
from tests.serving import Running, error, running

UNITS = [f"visitor-{k}" for k in range(400)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "shop.db") as shop:
        yield shop


def test_the_program_stays_the_same_in_every_mode(shop: Running) -> None:
    with Client(shop.url) as client:
        client.create("home", arms=["ada", "ben"], mode="watch")
        with pytest.raises(ServiceError) as refused:
            client.decide("home", "front")
        assert (refused.value.status, refused.value.code) == (422, "incumbent_required")
        watched = client.decide("home", "front", incumbent="ben", incumbent_propensity=0.5, unit="visitor-7")
        assert watched[1:] == ("ben", 0.5, "front", "incumbent")
        assert client.decide("home", "front", incumbent="ben").propensity is None
        assert client.set_terms("home", mode="share", share=0.5).share == 0.5
        columns = {"incumbent": ["ben"] * len(UNITS), "unit": UNITS}
        receipts = client.decide_many("home", ["front"] * len(UNITS), **columns)
        ours = {unit for unit, each in zip(UNITS, receipts, strict=True) if each.source is None}  # type: ignore[union-attr]
        assert ours == {unit for unit in UNITS if place_of(unit, "home").u < 0.5}
        client.reward_many([(each.id, 0.5) for each in receipts], experiment="home")  # type: ignore[union-attr]
        answer = client.experiment("home")
        assert answer.sides is not None
        assert [side.source for side in answer.sides] == ["policy", "incumbent"]
        assert answer.sides[1].against_policy is not None
        assert answer.share_seen is not None
        assert client.set_terms("home", mode="live").mode == "live"

    async def live() -> str | None:
        async with AsyncClient(shop.url) as other:
            return (await other.decide("home", "front", incumbent="ada", unit="visitor-8")).source

    assert asyncio.run(live()) is None
    shop.engine.verify()


def test_answers_and_refusals_are_json(shop: Running) -> None:
    body = {"name": "home", "arms": ["ada", "ben"], "mode": "share", "share": 0.5, "salt": "s"}
    assert shop.post("", body).status_code == 201
    asked = {"context": "front", "incumbent": "ada", "unit": next(u for u in UNITS if place_of(u, "s").u >= 0.5)}
    answer = shop.post("/home/decisions", asked).json()
    assert (answer["arm"], answer["propensity"], answer["source"]) == ("ada", None, "incumbent")
    unknown = shop.post("/home/decisions", asked | {"incumbent": "bem"})
    assert (unknown.status_code, error(unknown)["argument"]) == (404, "incumbent")
    for changed in ({"share": 1.5}, {"mode": "shadow"}, {"mode": "live", "share": 0.1}):
        refused = shop.http.patch("/v1/experiments/home", json={"terms": changed})
        assert refused.status_code == 422
    assert shop.engine.experiment("home").share == 0.5


def test_sides_are_among_the_metrics(shop: Running) -> None:
    shop.engine.create("home", arms=["ada", "ben"], mode="share", share=0.5)
    shop.engine.create("plain", arms=["ada", "ben"])
    for k, unit in enumerate(UNITS):
        receipt = shop.engine.decide("home", "front", incumbent="ada", unit=unit)
        shop.engine.reward(receipt.id, float(k % 3 == 0))
    text = shop.http.get("/metrics").text
    ours = sum(place_of(unit, "home").u < 0.5 for unit in UNITS)
    assert f'alphafair_side_decisions{{experiment="home",source="policy"}} {float(ours)}' in text
    for bound in ("value", "low", "high"):
        labels = f'bound="{bound}",experiment="home",measure="welfare_ratio",source="incumbent"'
        assert f"alphafair_side_difference{{{labels}}}" in text
    assert 'alphafair_side_decisions{experiment="plain"' not in text
