"""What happens in a shop, and what its page answers, for several files of tests."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from alphafair.engine import Engine
from alphafair.service.routes import ENDPOINTS
from tests.serving import Running

PAGES = [endpoint.path.replace("{name}", "home") for endpoint in ENDPOINTS if endpoint.view is not None]


def play(engine: Engine, name: str, n: int, *, seed: int = 1, contexts: int = 7) -> list[str]:
    """Decisions, nine of ten with a reward; the ids of all."""
    rng, ids = random.Random(seed), []
    for k in range(n):
        receipt = engine.decide(name, f"visitor {k % contexts}")
        ids.append(receipt.id)
        if k % 10:
            engine.reward(receipt.id, rng.random())
    return ids


def get(shop: Running, path: str, **options: Any) -> Any:
    answer = shop.http.get(path, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def watching(shop: Running, path: str, last: str = "", **headers: str) -> Any:
    sent = {**headers, **({"last-event-id": last} if last else {})}
    return shop.http.stream("GET", path, headers=sent, timeout=60.0)


class Events:
    """Server-sent events of a stream, one by one."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.headers["content-type"] == "text/event-stream"
        self._lines = answer.iter_lines()

    def next(self, *, comments: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if not line and found.get("data"):
                return {**found, "data": json.loads(found["data"])}
            if line.startswith(":") and comments:
                return {"comment": value}
            if line:
                found[name] = value
        raise EOFError


def applied(state: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """What a browser has after an update, as the messages describe it."""
    series, first = dict(state["series"]), update["series"]["first"]
    for name, values in update["series"].items():
        if name.startswith("arm_"):
            series[name] = [[*old[:first], *new] for old, new in zip(series[name], values, strict=True)]
        elif isinstance(values, list) and name != "arms":
            series[name] = [*series[name][:first], *values]
    changes = [*state["changes"], *update["changes"]]
    return {**update, "series": series, "changes": changes}


@contextmanager
def signed_in(shop: Running, token: str) -> Iterator[tuple[httpx.Client, dict[str, Any]]]:
    with httpx.Client(base_url=shop.url, timeout=30.0) as client:
        answer = client.post("/session", json={"key": token}, headers={"origin": shop.url})
        assert answer.status_code == 201, answer.text
        yield client, answer.json()
