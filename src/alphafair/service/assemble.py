"""From a file to an application: every part made once and handed to those that need it."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from litestar.datastructures import State

from alphafair.engine import Engine
from alphafair.service.app import Service
from alphafair.service.connections import MOST_CONNECTIONS, Connections, Timeouts
from alphafair.service.door import Door
from alphafair.service.exports import Exports
from alphafair.service.framework import framework
from alphafair.service.keys import Keyring
from alphafair.service.logs import log
from alphafair.service.messages import Readiness
from alphafair.service.metrics import Measures
from alphafair.service.warm import kinds_in_use, warm
from alphafair.service.writer import Writer

TICK = 1.0  # seconds between two looks at keys, the file and waiting times
BREATH = 0.02  # seconds between two pieces of work that can wait
READY, NOT_READY = (logging.INFO, "ready again"), (logging.ERROR, "not ready")


class Limits(NamedTuple):
    """How much is taken on."""

    most_bytes: int = 1 << 20
    most_waiting: int = 10_000  # commands
    rate: float | None = None  # requests per second and caller
    most_connections: int | None = None  # as many as open files allow, up to a thousand
    timeouts: Timeouts = Timeouts()


DEFAULT_LIMITS = Limits()


def service(
    engine: Engine, path: Path, *, limits: Limits = DEFAULT_LIMITS, root_path: str = "", log_all: bool = False
) -> Service:
    """The application over an engine, which it closes at its end."""
    measures = Measures()
    writer = Writer(engine, most_waiting=limits.most_waiting, observe=measures.committed)
    keyring, exports = Keyring(path), Exports()
    compiled = asyncio.Event()

    def readiness() -> Readiness:
        """What is known, without trying anything: the tick below does that once per second."""
        health = engine.health(probe=False)
        behind = health["clock_behind_seconds"]
        if not compiled.is_set():
            return Readiness(False, "compiling: a matter of seconds", behind)
        return Readiness(health["ready"], health["reason"], behind, health["unhealthy"])

    connections = Connections(limits.most_connections or MOST_CONNECTIONS, limits.timeouts, measures.connection_closed)
    measures.watch(engine, lambda: writer.n_waiting, readiness, lambda: len(connections.open), exports)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async def tick() -> None:
            for kind in await asyncio.to_thread(kinds_in_use, engine):
                try:
                    await asyncio.to_thread(warm, [kind])
                except Exception as problem:
                    said = f"compiling {kind.policy} failed; its first decision will tell"
                    log(logging.ERROR, said, exc_info=problem)
            compiled.set()
            was_ready = True
            gc.freeze()  # what is loaded by now stays: looking through it for garbage would hold up answers
            while True:
                try:
                    health = await writer.run(engine.health)
                    if health["ready"] != was_ready:
                        was_ready = health["ready"]
                        log(*(READY if was_ready else NOT_READY), reason=health["reason"])
                    until = time.perf_counter() + TICK
                    while was_ready and await writer.run(engine.maintain):
                        await asyncio.sleep(BREATH)  # requests go in between, and do some of it themselves
                        if time.perf_counter() > until:
                            break
                    else:
                        await asyncio.sleep(TICK)
                except Exception as problem:  # whatever it is, look again in a moment
                    log(logging.WARNING, "the file is not available", reason=str(problem))
                    await asyncio.sleep(TICK)

        ticking = asyncio.create_task(tick())
        yield
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await writer.drain()
        exports.close()
        keyring.close()
        engine.close()

    parts = {"engine": engine, "writer": writer, "measures": measures, "readiness": readiness, "exports": exports}
    state = State({**parts, "keyring": keyring, "path": path})
    routes = framework(lifespan, state, root_path=root_path, most_bytes=limits.most_bytes)
    door = Door(keyring, rate=limits.rate)
    return Service(
        state,
        door,
        measures,
        routes,
        connections,
        most_bytes=limits.most_bytes,
        root_path=root_path,
        log_all=log_all,
    )
