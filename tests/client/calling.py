"""Acts on a client, of either kind, for several files of tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from alphafair import AsyncClient, Client
from alphafair.engine import Receipt
from alphafair_client.api import ExperimentAnswer
from tests.misbehaving import Step, answer

NUMBERS = dict.fromkeys(
    ["contexts", "max_contexts", "decisions", "rewards", "defaulted", "expired", "lapsed", "rolled_back", "pending"], 0
) | {"context_weight": 0.0, "context_share": 0.0}
EXPERIMENT: dict[str, Any] = {
    **dict.fromkeys(ExperimentAnswer.__struct_fields__),
    **{"name": "home", "policy": "uniform", "feedback": "bandit", "arms": ["ada"], "retired_arms": []},
    **{"masked_arms": [], "paused": False, "reward_range": [0.0, 1.0], "pulls": {}, "cumulative_rewards": {}},
    **{"accounts": {}, "carry": 0.5, "periods": [], "position": 0, "mode": "live", **NUMBERS},
}
LONG = 20.0  # seconds, in which a call that heeds its own timeout has ended on any machine
DRAWN_ = Receipt("x", "ada", 0.5, "v")  # what `answer()` says
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


def busy(**headers: str) -> Step:
    return answer({"error": {"code": "overloaded", "message": "Busy."}}, 503, **headers)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
