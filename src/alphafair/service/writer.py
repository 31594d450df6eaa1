"""The writer: commands that arrive while a batch is being committed become the next batch.

All bookkeeping happens on the event loop, so nothing here needs a lock. Only `Engine.submit` runs in the writer's own
thread, once per batch, and answers are returned after its one transaction is on disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from alphafair.engine import Engine
from alphafair.service.errors import failure

Result = TypeVar("Result")


class Writer:
    """Gathers commands, passes them to the engine in batches, and rejects commands when too many wait."""

    def __init__(self, engine: Engine, *, max_waiting: int, observe: Callable[[int, float, list[float]], None]) -> None:
        self.engine, self.max_waiting = engine, max_waiting
        self.n_waiting = 0  # commands of the next batch
        self._observe = observe
        self._delays = engine.delays = list[float]()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._commands: list[Any] = []
        self._callers: list[tuple[asyncio.Future[list[Any]], int]] = []
        self._busy = False

    async def submit(self, commands: Sequence[Any]) -> list[Any]:
        """The engine's answers, after they are on disk."""
        self.n_waiting += len(commands)
        if self.n_waiting > self.max_waiting:
            self.n_waiting -= len(commands)
            message = f"{self.n_waiting:,} commands are already waiting."
            raise failure(503, "overloaded", message, repair="Send the request again later.", retry_after="1")
        loop = asyncio.get_running_loop()
        answers: asyncio.Future[list[Any]] = loop.create_future()
        self._commands.extend(commands)
        self._callers.append((answers, len(commands)))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._commit)  # after the commands that arrive in the same turn of the loop
        return await answers

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run other work that writes, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def drain(self) -> None:
        """Wait until all accepted commands are answered; nothing may be submitted afterwards."""
        while self._busy:
            await asyncio.sleep(0.001)
        self._thread.shutdown()

    def _commit(self) -> None:
        commands, callers = self._commands, self._callers
        self._commands, self._callers, self.n_waiting = [], [], 0
        done = asyncio.get_running_loop().run_in_executor(self._thread, self._write, commands)
        done.add_done_callback(lambda written: self._deliver(callers, written))

    def _write(self, commands: list[Any]) -> list[Any]:
        start = time.perf_counter()
        answers = self.engine.submit(commands)
        self._observe(len(commands), time.perf_counter() - start, self._delays)
        return answers

    def _deliver(
        self, callers: list[tuple[asyncio.Future[list[Any]], int]], written: asyncio.Future[list[Any]]
    ) -> None:
        problem = written.exception()
        answers = [] if problem else written.result()
        first = 0
        for caller, size in callers:
            if caller.cancelled():
                pass
            elif problem:
                caller.set_exception(problem)
            else:
                caller.set_result(answers[first : first + size])
            first += size
        self._busy = bool(self._callers)
        if self._busy:
            self._commit()
