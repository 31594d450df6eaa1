"""The writer: commands that arrive while a batch is being committed become the next batch.

All bookkeeping happens on the event loop, so nothing here needs a lock. Only `Engine.submit` runs in a thread of the
writer, once per batch, and answers are returned after its one transaction is on disk. In a file there is one batch at a
time; in a database one per experiment, since experiments are written side by side. Callers take turns in a batch, and
hold only a share of what waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from alphafair.engine import Engine
from alphafair.service.errors import Failure
from alphafair.service.keys import Caller
from alphafair.service.shares import AGAIN, Places, Pool, Turns

Result = TypeVar("Result")
THREADS: Final = 8  # where experiments are written side by side
SHARE: Final = 4  # one caller has a quarter of the places for commands
LONGEST_BATCH: Final = 1_000  # commands; a batch of the engine is closed once it has as many
CHANGES: Final = 100  # of experiments that wait
Sent = tuple[Sequence[Any], "asyncio.Future[list[Any]]"]  # commands of one request, and who waits for their answers


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
        self.engine = engine
        self.places = Places(max_waiting, -(-max_waiting // SHARE), LONGEST_BATCH)  # of commands of the next batches
        self._observe = observe
        self._delays = engine.delays = list[float]()
        self._side_by_side = side_by_side
        n_threads = THREADS if side_by_side else 1
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix="writer")
        self._changes = Pool(self._threads, Places(CHANGES, CHANGES // 2), at_once=-(-n_threads // 2), per_caller=1)
        self._lines: dict[str, Turns[Sent]] = {}  # what waits for the next batch, where one is being committed

    def is_full(self, caller: Caller) -> bool:
        """Whether there is no place for commands of a caller."""
        return self.places.n_held >= self.places.per_caller and not self.places.has(caller)

    def overload(self, caller: Caller) -> Failure:
        """The failure of a caller that has no place for its commands."""
        return self.places.refusal(caller, "overloaded", "Commands that wait", repair=AGAIN)

    async def submit(self, caller: Caller, commands: Sequence[Any]) -> list[Any]:
        """The engine's answers, after they are on disk."""
        if not self.places.take(caller, len(commands)):
            raise self.overload(caller)
        loop = asyncio.get_running_loop()
        answers: asyncio.Future[list[Any]] = loop.create_future()
        name = commands[0].experiment if self._side_by_side and commands else ""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Turns[Sent]()
            loop.call_soon(self._commit, name, line)  # after the commands that arrive in the same turn of the loop
        line.add(caller.id, (commands, answers))
        return await answers

    async def change(self, caller: Caller, work: Callable[[], Result]) -> Result:
        """Run other work of a caller that writes, between two batches."""
        return await self._changes.run(caller, work)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run work of the service itself, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def drain(self) -> None:
        """Wait until all accepted commands are answered; nothing may be submitted afterwards."""
        while self._lines or self._changes.places.n_held:
            await asyncio.sleep(0.001)
        self._threads.shutdown()

    def _commit(self, name: str, line: Turns[Sent]) -> None:
        commands, batch, counts = list[Any](), list[Sent](), dict[str, int]()
        while len(commands) < LONGEST_BATCH and (found := line.next()) is not None:
            caller_id, sent = found
            commands += sent[0]
            batch.append(sent)
            counts[caller_id] = counts.get(caller_id, 0) + len(sent[0])
        for caller_id, n in counts.items():
            self.places.release(caller_id, n)
        done = asyncio.get_running_loop().run_in_executor(self._threads, self._write, commands)
        done.add_done_callback(lambda written: self._deliver(name, line, batch, written))

    def _write(self, commands: list[Any]) -> list[Any]:
        start = time.perf_counter()
        answers = self.engine.submit(commands)
        self._observe(len(commands), time.perf_counter() - start, self._delays)
        return answers

    def _deliver(self, name: str, line: Turns[Sent], batch: list[Sent], written: asyncio.Future[list[Any]]) -> None:
        problem = written.exception()
        answers = [] if problem else written.result()
        first = 0
        for sent, caller in batch:
            size = len(sent)
            if caller.cancelled():
                pass
            elif problem:
                caller.set_exception(problem)
            else:
                caller.set_result(answers[first : first + size])
            first += size
        if line:
            self._commit(name, line)
        else:
            del self._lines[name]
