"""Terms over HTTP: one change, its sentences, and both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from alphafair import AsyncClient, Client, ServiceError
from tests.serving import Running, error, running

ARMS = ["ada", "ben", "cyd"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "shop.db") as shop:
        shop.engine.create("home", arms=ARMS, alpha=0.9)
        yield shop


def test_terms_are_one_change(shop: Running) -> None:
    terms = {"groups": {"ada": "a", "ben": "b", "cyd": "a"}, "entitlements": {"a": 2.0}, "reward_wait": 60}
    answer = shop.http.patch("/v1/experiments/home", json={"terms": terms})
    assert answer.status_code == 200
    assert answer.json()["groups"]["labels"] == terms["groups"]
    assert answer.json()["position"] == 2
    with Client(shop.url) as client:
        assert client.set_terms("home", reward_wait=None).reward_wait is None
        assert client.history("home")[-1].details == {"set": {"reward_wait": None}}
        answer = client.set_terms("home", context_weight=0.25, context_share=0.5)
        assert (answer.context_weight, answer.context_share, answer.context_share_bound) == (0.25, 0.5, None)
        assert answer.largest_context_debt == 0.0
        with pytest.raises(ServiceError, match="unknown_group"):
            client.set_terms("home", entitlements={"c": 1.0})

    async def change() -> float | None:
        async with AsyncClient(shop.url) as other:
            return (await other.set_terms("home", reward_wait=5.0, default_reward=0.0)).reward_wait

    assert asyncio.run(change()) == 5.0
    shop.engine.verify()


@pytest.mark.parametrize(
    ("terms", "status", "code"),
    [
        ({}, 422, "bad_request"),
        ({"alpha": 1.0}, 422, "bad_request"),
        ({"groups": {"bem": "a"}}, 404, "unknown_arm"),
        ({"groups": dict.fromkeys(ARMS, "a"), "pull_floor": {"b": 0.1}}, 404, "unknown_group"),
        ({"pull_floor": 0.5}, 422, "bad_request"),
        ({"context_weight": 1.0}, 422, "bad_request"),
        ({"default_reward": 1.0}, 422, "bad_request"),
    ],
)
def test_refused_terms_change_nothing(shop: Running, terms: dict[str, object], status: int, code: str) -> None:
    answer = shop.http.patch("/v1/experiments/home", json={"terms": terms})
    assert (answer.status_code, error(answer)["code"]) == (status, code)
    assert shop.engine.experiment("home").position == 1
