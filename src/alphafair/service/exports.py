"""Exports beside the requests: few at a time, each written by a process of its own straight to its client.

A process reads the log page by page and writes into a pipe; the pipe is passed on as fast as the client reads. So an
export needs the memory of some pages, no room on a disk, and none of the turns of Python that requests need. A client
that does not read loses its connection (see `connections`), and its place is for the next one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from alphafair.engine import Unavailable
from alphafair.engine.export import ExportJob
from alphafair.service.errors import failure

MOST = 2  # at a time
STALLED = 60.0  # seconds in which the process writes nothing
LONGEST = 3600.0  # seconds
UNASKED = 10.0  # seconds in which nobody asks for what is there, as the answer has failed before
RETRY_AFTER = 5  # seconds
CHUNK = 1 << 18  # bytes


class Exports:
    """Those that are being written, and how many were not."""

    def __init__(self) -> None:
        self.running: set[Export] = set()
        self.n_refused = 0  # as too many were running
        self.n_cut = 0  # as they took too long
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="export")

    async def begin(self, job: ExportJob) -> AsyncIterator[bytes]:
        """The bytes of an export, once the first of them are there."""
        if len(self.running) >= MOST:
            self.n_refused += 1
            message = f"{MOST} exports are being written, which is the most at a time."
            repair = "Ask again later, or export from a backup."
            raise failure(503, "exports_busy", message, repair=repair, retry_after=str(RETRY_AFTER))
        export = Export(self, self._threads)
        self.running.add(export)
        try:
            first = await export.start(job)
        except BaseException:
            export.end()
            raise
        return export.chunks(first)

    def close(self) -> None:
        for export in list(self.running):
            export.end()
        self._threads.shutdown()


class Export:
    """One process and its client."""

    def __init__(self, exports: Exports, threads: ThreadPoolExecutor) -> None:
        self._exports, self._threads = exports, threads
        self._loop = asyncio.get_running_loop()
        self._process: Process | None = None
        self._longest = self._loop.call_later(LONGEST, self._cut)
        self._unasked: asyncio.TimerHandle | None = None

    async def start(self, job: ExportJob) -> bytes:
        """Begin, and wait for the first bytes: what fails before them can still be answered with an error."""
        process = await self._loop.run_in_executor(self._threads, Process, job)
        self._process = process
        first = await self._read(process)
        self._unasked = self._loop.call_later(UNASKED, self._cut)
        return first

    async def chunks(self, first: bytes) -> AsyncIterator[bytes]:
        """All of it; each is asked for when the connection has taken the one before."""
        if self._unasked is not None:
            self._unasked.cancel()
        try:
            chunk = first
            while chunk and self._process is not None:
                yield chunk
                chunk = await self._read(self._process)
        finally:
            self.end()

    async def _read(self, process: Process) -> bytes:
        if self not in self._exports.running:
            self._threads.submit(process.close)
            raise Unavailable("The export took too long.")
        stalled = self._loop.call_later(STALLED, self._cut)
        try:
            return await self._loop.run_in_executor(self._threads, process.read)
        finally:
            stalled.cancel()

    def _cut(self) -> None:
        """It takes too long; whoever reads on finds out that it has ended early."""
        self._exports.n_cut += self in self._exports.running
        self.end()

    def end(self) -> None:
        """Whatever has become of it: its place is free."""
        self._longest.cancel()
        if self._unasked is not None:
            self._unasked.cancel()
        if self in self._exports.running:
            self._exports.running.remove(self)
            if self._process is not None:
                self._process.kill()  # whoever reads in a thread gets an end
                self._threads.submit(self._process.close)


class Process:
    """The process that writes an export; all but `kill` may wait for it."""

    def __init__(self, job: ExportJob) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)  # the modules of this process, and no others
        self._lock = threading.Lock()  # nobody reads what is being closed
        self._popen = subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
            [sys.executable, "-P", "-m", "alphafair.engine.export", json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths, "POLARS_MAX_THREADS": "1"},
            pipesize=CHUNK,
        )

    def read(self) -> bytes:
        """The next bytes; none at its end, if it is the right one."""
        with self._lock:
            out, errors = self._popen.stdout, self._popen.stderr
            if out is None or errors is None or out.closed:
                raise Unavailable("The export was ended.")
            chunk = os.read(out.fileno(), CHUNK)
            if not chunk:
                said, code = errors.read().decode(errors="replace").strip(), self._popen.wait()
                if code:
                    raise Unavailable(f"The export ended early: {said.splitlines()[-1] if said else f'code {code}'}")
            return chunk

    def kill(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()

    def close(self) -> None:
        self.kill()
        with self._lock:
            for pipe in (self._popen.stdout, self._popen.stderr):
                if pipe is not None:
                    pipe.close()
            self._popen.wait()
