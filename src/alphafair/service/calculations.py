"""Background work for the page: what another alpha would have earned, and what a decision was drawn from.

One process at a time runs, at a low priority, and its result is kept. Requests never wait for it: they are told that it
is being computed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final, Generic, Literal, TypeVar

from alphafair.engine.jobs import Job

LONGEST: Final = 600.0  # seconds
MOST_KEPT: Final = 200  # results
MOST_WAITING: Final = 20  # calculations that have not begun
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
    """All calculations of one service, by their jobs."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="calculate")
        self._kept: OrderedDict[Job, Calculation[Any]] = OrderedDict()
        self._running: set[asyncio.Future[None]] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def find(self, job: SomeJob) -> Calculation[SomeJob] | None:
        """The last calculation of a job that was begun."""
        return self._kept.get(job)

    def begin(self, job: SomeJob) -> Calculation[SomeJob]:
        """Start a calculation, unless it is being computed; the result of an earlier one is forgotten."""
        found = self._kept.get(job)
        if found is not None and found.status == "computing":
            return found
        calculation = Calculation(job)
        if len(self._running) >= MOST_WAITING or self._closed:
            calculation.status, calculation.problem = "failed", "Too many calculations are waiting: try again later."
            return calculation
        self._kept[job] = calculation
        self._kept.move_to_end(job)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._run, calculation)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return calculation

    def _run(self, calculation: Calculation[Any]) -> None:
        """Run a process to its end, in the one thread for that."""
        try:
            if self._closed:
                raise OSError("the service stops")
            sent = json.dumps([type(calculation.job).__name__, asdict(calculation.job)]).encode()
            paths = os.pathsep.join(path for path in sys.path if path)  # import the same modules as this process
            with subprocess.Popen(
                [sys.executable, "-P", "-m", "alphafair.service.calculate"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": paths, "POLARS_MAX_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
            ) as process:
                self._process = process
                try:
                    out, errors = process.communicate(sent, timeout=LONGEST)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise OSError(f"it took longer than {LONGEST:.0f} seconds") from None
            if process.returncode:
                lines = errors.decode(errors="replace").strip().splitlines()
                raise OSError(lines[-1] if lines else f"its process ended with code {process.returncode}")
            calculation.result = json.loads(out)
            calculation.status = "ready"
        except (OSError, ValueError) as problem:
            calculation.problem, calculation.status = str(problem), "failed"
        finally:
            self._process = None
            calculation.done_at = time.time()

    async def close(self) -> None:
        """End the process that runs, and start no other."""
        self._closed = True
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
