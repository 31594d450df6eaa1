"""The service's share of writing: how many commands each caller may have waiting, and whose turn it is to be written.

Commands wait in the engine, one queue per file or per experiment of a database (`alphafair.engine.writer`). The service
provides the threads that serve them, and gets the answers of each commit in one call. All bookkeeping happens on the
event loop, so nothing here needs a lock. In a file there is one commit at a time; in a database one per experiment,
since experiments are written side by side. Callers take turns in a commit and between commits, and hold only a share of
what waits and of what is being committed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from alphafair.engine.tickets import Ticket, Turns
from alphafair.engine.writer import MOST_REQUESTS, Writer
from alphafair.engine.writers import AllWriters
from alphafair.service import tracing
from alphafair.service.http.errors import Failure
from alphafair.service.keys import Caller
from alphafair.service.shares import AGAIN, Places, Pool

Result = TypeVar("Result")
THREADS: Final = 8  # where experiments are written side by side
SHARE: Final = 4  # one caller has a quarter of the places for commands
AT_ONCE: Final = 2 * MOST_REQUESTS  # commands of one caller in commits of its turns, beyond which others have theirs
CHANGES: Final = 100  # of experiments that wait, half of them of one key; admins without limits have 50 more


class Sent(Ticket):
    """The commands of one request, and who waits for their answers."""

    __slots__ = ("answered", "span")

    def __init__(
        self, commands: Sequence[Any], line: Line, caller_id: str, answered: asyncio.Future[list[Any]]
    ) -> None:
        super().__init__(commands, line, caller_id)
        self.answered, self.span = answered, tracing.current()


class Line:
    """The commands of the service that wait for one writer of the engine."""

    def __init__(self, service: CommandQueue, writer: Writer) -> None:
        self._service, self.writer = service, writer
        self.waiting = Counter[str]()  # commands without an answer, by caller
        self.is_owed = False  # whether the service must provide a leader, and has not yet

    # called by other threads

    def lead(self) -> None:
        self._service.loop.call_soon_threadsafe(self._service.owe, self)

    def deliver(self, tickets: Sequence[Ticket], seconds: float) -> None:
        self._service.loop.call_soon_threadsafe(self._service.deliver, self, tickets)


class CommandQueue:
    """Passes commands to the engine, and rejects commands when too many wait."""

    loop: asyncio.AbstractEventLoop

    def __init__(
        self, writers: AllWriters, *, max_waiting: int, observe: Callable[[int, float, list[float]], None]
    ) -> None:
        self.writers = writers
        self.places = Places(max_waiting, -(-max_waiting // SHARE), MOST_REQUESTS)  # of commands without an answer
        self._observe = observe
        self._delays = writers.delays = list[float]()
        self._n_threads = THREADS if writers.is_shared else 1
        self._threads = ThreadPoolExecutor(self._n_threads, thread_name_prefix="writer")
        at_once = -(-self._n_threads // 2)
        places = Places(CHANGES, CHANGES // 2, CHANGES // 2)
        self._changes = Pool(self._threads, places, at_once=at_once, per_caller=1)
        self._lines: dict[Writer, Line] = {}
        self._searches: dict[tuple[str, str], asyncio.Future[Writer | None]] = {}  # by caller and experiment
        self._due = Turns[Line]()  # lines that wait for a thread, by caller
        self._is_due: set[tuple[str, Line]] = set()
        self._n_serving = 0  # threads
        self._at_once = Counter[str]()  # commands in commits of their caller's turn
        self._begins = False  # whether threads begin in this turn of the loop

    def is_full(self, caller: Caller) -> bool:
        """Whether there is no place for commands of a caller."""
        return self.places.n_held >= self.places.per_caller and not self.places.has(caller)

    def overload(self, caller: Caller) -> Failure:
        """The failure of a caller that has no place for its commands."""
        return self.places.refusal(caller, "overloaded", "Commands that wait", repair=AGAIN)

    async def submit(self, caller: Caller, commands: Sequence[Any]) -> list[Any]:
        """The engine's answers, after they are on disk."""
        name = commands[0].experiment
        writer = self.writers.known(name) or await self._search(caller, name)
        if writer is None:
            return await self.change(caller, partial(self.writers.submit, commands))  # the engine says what is missing
        if not self.places.take(caller, len(commands)):
            raise self.overload(caller)
        self.loop = asyncio.get_running_loop()
        line = self._lines.get(writer)
        if line is None:
            line = self._lines[writer] = Line(self, writer)
        line.waiting[caller.id] += len(commands)
        ticket = Sent(commands, line, caller.id, self.loop.create_future())
        if writer.put([ticket]):
            line.is_owed = True
        if line.is_owed:
            self._wait(caller.id, line)
            if not self._begins:
                self._begins = True
                self.loop.call_soon(self._begin)  # after the commands that arrive in the same turn of the loop
        return await ticket.answered

    async def _search(self, caller: Caller, name: str) -> Writer | None:
        """Look for an experiment that another process may have created: once for all commands of a caller that wait."""
        key = caller.id, name
        search = self._searches.get(key)
        if search is None:
            work = self.change(caller, partial(self.writers.search, name))
            search = self._searches[key] = asyncio.ensure_future(work)
            search.add_done_callback(partial(self._searched, key))
        return await asyncio.shield(search)

    def _searched(self, key: tuple[str, str], search: asyncio.Future[Writer | None]) -> None:
        del self._searches[key]
        if not search.cancelled():
            search.exception()  # seen, also where all who waited have gone

    async def change(self, caller: Caller, work: Callable[[], Result]) -> Result:
        """Run other work of a caller that writes, between two commits."""
        return await self._changes.run(caller, work)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run work of the service itself, between two commits."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def drain(self) -> None:
        """Wait until all accepted commands are answered; nothing may be submitted afterwards."""
        while self.places.n_held or self._n_serving or self._changes.places.n_held:
            await asyncio.sleep(0.001)
        self._threads.shutdown()

    # turns

    def owe(self, line: Line) -> None:
        """Provide a leader for a line, in the turn of any caller that waits in it."""
        line.is_owed = True
        for caller_id in line.waiting or [""]:
            self._wait(caller_id, line)
        self._begin()

    def _wait(self, caller_id: str, line: Line) -> None:
        if (caller_id, line) not in self._is_due:
            self._is_due.add((caller_id, line))
            self._due.add(caller_id, line)

    def _may_begin(self, caller_id: str) -> bool:
        return self._at_once[caller_id] < AT_ONCE

    def _begin(self) -> None:
        """Begin commits, as many as there are threads."""
        self._begins = False
        while self._n_serving < self._n_threads and (found := self._due.next(self._may_begin)) is not None:
            self._is_due.discard(found)
            caller_id, line = found
            if line.is_owed:
                line.is_owed = False
                size = min(line.waiting[caller_id], MOST_REQUESTS)
                self._n_serving += 1
                self._at_once[caller_id] += size
                self._threads.submit(self._serve, line, caller_id, size)

    def _serve(self, line: Line, caller_id: str, size: int) -> None:
        """Lead one commit: in a thread."""
        began, tickets, must_lead = time.perf_counter(), list[Ticket](), False
        try:
            tickets, must_lead = line.writer.serve(line)
            if tickets:
                n_commands = sum(len(each.requests) for each in tickets)
                seconds = time.perf_counter() - began
                self._observe(n_commands, seconds, self._delays)
                tracing.commit(seconds, n_commands, (getattr(each, "span", None) for each in tickets))
        finally:
            self.loop.call_soon_threadsafe(self._served, line, caller_id, size, tickets, must_lead)

    def _served(self, line: Line, caller_id: str, size: int, tickets: Sequence[Ticket], must_lead: bool) -> None:
        self._n_serving -= 1
        self._at_once -= Counter({caller_id: size})  # which leaves out who has none
        self.deliver(line, tickets)
        if must_lead:
            self.owe(line)
        else:
            self._begin()

    def deliver(self, line: Line, tickets: Sequence[Any]) -> None:
        """Answer those who wait for tickets that were served."""
        for ticket in tickets:
            size = len(ticket.requests)
            self.places.release(ticket.caller_id, size)
            line.waiting[ticket.caller_id] -= size
            if not line.waiting[ticket.caller_id]:
                del line.waiting[ticket.caller_id]
            if ticket.answered.cancelled():
                continue
            if ticket.problem is not None:
                ticket.answered.set_exception(ticket.problem)
            else:
                ticket.answered.set_result(ticket.answers)
