"""What callers share: places, turns and threads. One caller cannot use up what the others need.

A caller is a key, or an address of this machine while there are no keys. All of this runs on the event loop, so nothing
needs a lock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from alphafair.engine.tickets import Turns
from alphafair.service.errors import Failure, failure
from alphafair.service.keys import Caller

PAUSE: Final = 0.5  # seconds until a caller hears that there is no place
AGAIN: Final = "Send the request again later."
Result = TypeVar("Result")


class Places:
    """A number of places, of which each caller holds only some; `for_admins` more are for unlimited admin keys."""

    def __init__(self, limit: int, per_caller: int, for_admins: int = 0) -> None:
        self.limit, self.per_caller, self.for_admins = limit, per_caller, for_admins
        self.held: dict[str, int] = {}  # by caller
        self.n_held = 0

    def has(self, caller: Caller, n: int = 1) -> bool:
        """Whether a caller may take n places now; one that holds none may take more than its share at once."""
        held = self.held.get(caller.id, 0)
        if held and held + n > self.per_caller:
            return False
        free = self.limit - self.n_held - n
        return free >= 0 or (caller.is_operator and free + self.for_admins >= 0)

    def take(self, caller: Caller, n: int = 1) -> bool:
        """Take n places, if the caller may."""
        if not self.has(caller, n):
            return False
        self.held[caller.id] = self.held.get(caller.id, 0) + n
        self.n_held += n
        return True

    def release(self, caller_id: str, n: int = 1) -> None:
        """Give n places back."""
        self.n_held -= n
        held = self.held.pop(caller_id) - n
        if held:
            self.held[caller_id] = held

    def refusal(self, caller: Caller, code: str, what: str, *, repair: str, retry_after: int = 1) -> Failure:
        """The failure of a caller for which there is no place."""
        message = (
            f"{what}: {self.held.get(caller.id, 0):,} of this key, {self.n_held:,} in all. There is no place for more."
        )
        found = failure(503, code, message, repair=repair, retry_after=str(retry_after))
        found.pause = PAUSE
        return found


class Pool:
    """Threads for the work of callers: `at_once` in all and `per_caller` of each run, the others wait for a turn."""

    def __init__(self, threads: ThreadPoolExecutor, places: Places, *, at_once: int, per_caller: int) -> None:
        self._threads, self.places, self._at_once, self._per_caller = threads, places, at_once, per_caller
        self._turns = Turns[tuple[asyncio.Future[Any], Callable[[], Any]]]()
        self._running: Counter[str] = Counter()  # by caller
        self._n_running = 0

    async def run(self, caller: Caller, work: Callable[[], Result]) -> Result:
        """The result of `work`, run in a thread; 503 if too much work of the caller, or of all, is waiting."""
        done = self.submit(caller, work)
        if done is None:
            raise self.places.refusal(caller, "busy", "Requests that wait", repair=AGAIN)
        return await done

    def submit(self, caller: Caller, work: Callable[[], Result]) -> asyncio.Future[Result] | None:
        """Run `work` when it is its turn; None if no place is left for it."""
        if not self.places.take(caller):
            return None
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._turns.add(caller.id, (done, work))
        self._begin()
        return done

    def close(self) -> None:
        """Wait for the work that runs; what has not begun never will."""
        self._at_once = 0
        self._threads.shutdown()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._n_running < self._at_once:
            found = self._turns.next(lambda caller_id: self._running[caller_id] < self._per_caller)
            if found is None:
                return
            caller_id, (done, work) = found
            if done.cancelled():
                self.places.release(caller_id)
                continue
            self._running[caller_id] += 1
            self._n_running += 1
            task = loop.run_in_executor(self._threads, work)
            task.add_done_callback(partial(self._end, caller_id, done))

    def _end(self, caller_id: str, done: asyncio.Future[Any], task: asyncio.Future[Any]) -> None:
        self._n_running -= 1
        self._running[caller_id] -= 1
        if not self._running[caller_id]:
            del self._running[caller_id]
        self.places.release(caller_id)
        if task.cancelled():
            done.cancel()
        elif not done.done():  # else nobody waits for it any more
            problem = task.exception()
            if problem is None:
                done.set_result(task.result())
            else:
                done.set_exception(problem)
        self._begin()
