"""Decisions in flight at once, from a process of its own: `python -m benchmarks.in_flight PORT CLIENT CALLS`.

All calls are begun together, from one event loop and with no connection open yet; the seconds until the last answer is
read are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import uuid

from benchmarks.jobs import N_CONTEXTS


async def ours(url: str, calls: int) -> float:
    from alphafair import AsyncClient

    async with AsyncClient(url, timeout=60.0) as client:
        start = time.perf_counter()
        drawn = await asyncio.gather(*(client.decide("bench", f"c{k % N_CONTEXTS}") for k in range(calls)))
        seconds = time.perf_counter() - start
    assert len({each.id for each in drawn}) == calls
    return seconds


async def aiohttp(url: str, calls: int) -> float:
    """As its documents show it; it opens up to 100 connections, as many as ours."""
    import aiohttp

    async def decide(session: aiohttp.ClientSession, context: str) -> str:
        body = {"context": context, "id": uuid.uuid4().hex}
        async with session.post(f"{url}/v1/experiments/bench/decisions", json=body) as answer:
            answer.raise_for_status()
            id: str = (await answer.json())["id"]
            return id

    async with aiohttp.ClientSession() as session:
        start = time.perf_counter()
        drawn = await asyncio.gather(*(decide(session, f"c{k % N_CONTEXTS}") for k in range(calls)))
        seconds = time.perf_counter() - start
    assert len(set(drawn)) == calls
    return seconds


CLIENTS = {"ours": ours, "aiohttp": aiohttp}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_flight", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("calls", type=int)
    options = parser.parse_args()
    print(asyncio.run(CLIENTS[options.client](f"http://127.0.0.1:{options.port}", options.calls)))


if __name__ == "__main__":
    main()
