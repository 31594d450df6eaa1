"""Background work for the page: what another alpha would have earned, and what a decision was drawn from.

One process at a time runs, at a low priority, and its result is kept. Requests never wait for it: they are told that it
is being computed.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final, Generic, Literal, TypeVar

from alphafair.child import Child, ChildFailed
from alphafair.engine.jobs import Job, ProbabilitiesJob, WhatIfJob
from alphafair.service.keys import Caller
from alphafair.service.shares import Places, Pool

LONGEST: Final = 600.0  # seconds
MOST_KEPT: Final = 200  # results
MOST_WAITING: Final = 20  # calculations that are not done, and one more for an admin key without limits
PER_CALLER: Final = 2
TRY_AGAIN: Final = 60.0  # seconds after which one that failed is begun again, once somebody asks for it
KINDS: Final = {WhatIfJob: "what_if", ProbabilitiesJob: "probabilities"}  # of `alphafair.jobs`
SomeJob = TypeVar("SomeJob", bound=Job)


class Calculation(Generic[SomeJob]):
    """One calculation: its job, and its result once there is one."""

    def __init__(self, job: SomeJob) -> None:
        self.job = job
        self.status: Literal["computing", "ready", "failed"] = "computing"
        self.result: dict[str, Any] = {}
        self.problem = ""
        self.done_at = 0.0  # seconds since 1970


class Calculations:
    """All calculations of one service, by their jobs; callers have turns."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        threads = ThreadPoolExecutor(1, thread_name_prefix="calculate")
        self._pool = Pool(threads, Places(MOST_WAITING, PER_CALLER, for_admins=1), at_once=1, per_caller=1)
        self._kept: OrderedDict[Job, Calculation[Any]] = OrderedDict()
        self._child: Child | None = None
        self._closed = False

    def find(self, job: SomeJob) -> Calculation[SomeJob] | None:
        """The last calculation of a job that was begun."""
        return self._kept.get(job)

    def get(
        self, caller: Caller, job: SomeJob, *, again: bool = False, when_older: float = math.inf
    ) -> Calculation[SomeJob] | None:
        """The calculation of a job, begun if there is none; None if it should begin, but too many wait: ask later.

        One that is done is begun again if that is asked for, if it is so many seconds old, or some seconds after it
        failed; its result is forgotten.
        """
        found = self._kept.get(job)
        if found is not None:
            age = self._clock() - found.done_at
            is_due = again or age >= when_older or (found.status == "failed" and age >= TRY_AGAIN)
            if found.status == "computing" or not is_due:
                return found
        calculation = Calculation(job)
        if self._closed or self._pool.submit(caller, lambda: self._run(calculation)) is None:
            return None
        self._kept[job] = calculation
        self._kept.move_to_end(job)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return calculation

    def _run(self, calculation: Calculation[Any]) -> None:
        """Run a process to its end, in the one thread for that; once more if something killed it."""
        try:
            try:
                out = self._output(calculation.job)
            except ChildFailed as problem:
                if not problem.killed:
                    raise
                out = self._output(calculation.job)
            calculation.result, calculation.done_at = json.loads(out), self._clock()
            calculation.status = "ready"  # last: the event loop looks at it
        except (OSError, ValueError) as problem:
            calculation.problem, calculation.done_at = str(problem), self._clock()
            calculation.status = "failed"

    def _output(self, job: Job) -> bytes:
        """What the process of a job writes."""
        if self._closed:
            raise OSError("the service stops")
        child = self._child = Child.start(KINDS[type(job)], json.dumps(asdict(job)).encode())
        try:
            return child.result(LONGEST)
        finally:
            self._child = None
            child.close()

    async def close(self) -> None:
        """End the process that runs, and start no other."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()
        await asyncio.to_thread(self._pool.close)
