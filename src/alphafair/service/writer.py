"""The writer: commands that arrive while a batch is being committed become the next batch.

All bookkeeping happens on the event loop, so nothing here needs a lock. Only `Engine.submit` runs in a thread of the
writer, once per batch, and answers are returned after its one transaction is on disk. In a file there is one batch at a
time; in a database one per experiment, since experiments are written side by side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from alphafair.engine import Engine
from alphafair.service.errors import failure

Result = TypeVar("Result")
Caller = tuple["asyncio.Future[list[Any]]", int]  # and how many commands it has sent
THREADS: Final = 8  # where experiments are written side by side


class Line:
    """The commands of the next batch, while another one is being committed."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.callers: list[Caller] = []


class Writer:
    """Gathers commands, passes them to the engine in batches, and rejects commands when too many wait.

    With `side_by_side`, every experiment has batches of its own.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_waiting: int,
        observe: Callable[[int, float, list[float]], None],
        side_by_side: bool = False,
    ) -> None:
        self.engine, self.max_waiting = engine, max_waiting
        self.n_waiting = 0  # commands of the next batches
        self._observe = observe
        self._delays = engine.delays = list[float]()
        self._side_by_side = side_by_side
        self._threads = ThreadPoolExecutor(THREADS if side_by_side else 1, thread_name_prefix="writer")
        self._lines: dict[str, Line] = {}  # those that are busy

    async def submit(self, commands: Sequence[Any]) -> list[Any]:
        """The engine's answers, after they are on disk."""
        self.n_waiting += len(commands)
        if self.n_waiting > self.max_waiting:
            self.n_waiting -= len(commands)
            message = f"{self.n_waiting:,} commands are already waiting."
            raise failure(503, "overloaded", message, repair="Send the request again later.", retry_after="1")
        loop = asyncio.get_running_loop()
        answers: asyncio.Future[list[Any]] = loop.create_future()
        name = commands[0].experiment if self._side_by_side and commands else ""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line()
            loop.call_soon(self._commit, name, line)  # after the commands that arrive in the same turn of the loop
        line.commands.extend(commands)
        line.callers.append((answers, len(commands)))
        return await answers

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run other work that writes, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def drain(self) -> None:
        """Wait until all accepted commands are answered; nothing may be submitted afterwards."""
        while self._lines:
            await asyncio.sleep(0.001)
        self._threads.shutdown()

    def _commit(self, name: str, line: Line) -> None:
        commands, callers = line.commands, line.callers
        line.commands, line.callers = [], []
        self.n_waiting -= len(commands)
        done = asyncio.get_running_loop().run_in_executor(self._threads, self._write, commands)
        done.add_done_callback(lambda written: self._deliver(name, line, callers, written))

    def _write(self, commands: list[Any]) -> list[Any]:
        start = time.perf_counter()
        answers = self.engine.submit(commands)
        self._observe(len(commands), time.perf_counter() - start, self._delays)
        return answers

    def _deliver(self, name: str, line: Line, callers: list[Caller], written: asyncio.Future[list[Any]]) -> None:
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
        if line.callers:
            self._commit(name, line)
        else:
            del self._lines[name]
