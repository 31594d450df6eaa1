"""The writer: commands that arrive while a batch is being committed become the next batch.

All bookkeeping happens on the event loop, so nothing here needs a lock. Only `Engine.submit` runs in a thread of the
writer, once per batch, and answers are returned after its one transaction is on disk. In a file there is one batch at a
time; in a database one per experiment, since experiments are written side by side. Callers take turns in a batch and
between batches, and hold only a share of what waits and of what is being committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from alphafair.engine import Engine
from alphafair.service.http.errors import Failure
from alphafair.service.keys import Caller
from alphafair.service.shares import AGAIN, Places, Pool, Turns

Result = TypeVar("Result")
THREADS: Final = 8  # where experiments are written side by side
SHARE: Final = 4  # one caller has a quarter of the places for commands
LONGEST_BATCH: Final = 1_000  # commands; a batch of the engine is closed once it has as many
AT_ONCE: Final = 2 * LONGEST_BATCH  # commands of one caller that are being committed, beyond which others wait
CHANGES: Final = 100  # of experiments that wait, half of them of one key; admins without limits have 50 more
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
        self._changes = Pool(
            self._threads, Places(CHANGES, CHANGES // 2, CHANGES // 2), at_once=-(-n_threads // 2), per_caller=1
        )
        self._n_threads = n_threads
        self._lines: dict[str, Turns[Sent]] = {}  # what waits for the next batch, by experiment or all together
        self._due = Turns[str]()  # lines in which a caller waits for a batch to begin
        self._is_due: set[tuple[str, str]] = set()  # caller and line
        self._committing: set[str] = set()  # lines
        self._at_once = Counter[str]()  # commands that are being committed, by caller
        self._begins = False  # whether batches begin in this turn of the loop

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
        line.add(caller.id, (commands, answers))
        if name not in self._committing:
            self._wait(caller.id, name)
            if not self._begins:
                self._begins = True
                loop.call_soon(self._begin)  # after the commands that arrive in the same turn of the loop
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

    def _wait(self, caller_id: str, name: str) -> None:
        """Let a caller wait for its turn to have a batch of a line begun."""
        if (caller_id, name) not in self._is_due:
            self._is_due.add((caller_id, name))
            self._due.add(caller_id, name)

    def _may_commit(self, caller_id: str) -> bool:
        return self._at_once[caller_id] < AT_ONCE

    def _begin(self) -> None:
        """Begin batches, as many as there are threads, where none is being committed."""
        self._begins = False
        while len(self._committing) < self._n_threads and (found := self._due.next(self._may_commit)) is not None:
            self._is_due.discard(found)
            _, name = found
            if name in self._lines and name not in self._committing:
                self._commit(name, self._lines[name])

    def _commit(self, name: str, line: Turns[Sent]) -> None:
        commands, batch = list[Any](), list[tuple[str, Sent]]()
        while len(commands) < LONGEST_BATCH and (found := line.next(self._may_commit)) is not None:
            caller_id, (sent, _) = found
            commands += sent
            batch.append(found)
            self._at_once[caller_id] += len(sent)
        for caller_id, n in _sizes(batch).items():
            self.places.release(caller_id, n)
        self._committing.add(name)
        done = asyncio.get_running_loop().run_in_executor(self._threads, self._write, commands)
        done.add_done_callback(lambda written: self._deliver(name, line, batch, written))

    def _write(self, commands: list[Any]) -> list[Any]:
        start = time.perf_counter()
        answers = self.engine.submit(commands)
        self._observe(len(commands), time.perf_counter() - start, self._delays)
        return answers

    def _deliver(
        self, name: str, line: Turns[Sent], batch: list[tuple[str, Sent]], written: asyncio.Future[list[Any]]
    ) -> None:
        problem = written.exception()
        answers = [] if problem else written.result()
        first = 0
        for _, (sent, caller) in batch:
            size = len(sent)
            if caller.cancelled():
                pass
            elif problem:
                caller.set_exception(problem)
            else:
                caller.set_result(answers[first : first + size])
            first += size
        self._at_once -= _sizes(batch)  # which leaves out who has none
        self._committing.discard(name)
        if line:
            for caller_id in line:
                self._wait(caller_id, name)
        else:
            del self._lines[name]
        self._begin()


def _sizes(batch: list[tuple[str, Sent]]) -> Counter[str]:
    """How many commands of each caller a batch has."""
    found = Counter[str]()
    for caller_id, (sent, _) in batch:
        found[caller_id] += len(sent)
    return found
