"""Downloads of logs: few at a time, each written by a process of its own, streamed to its client.

The process reads the log page by page and writes into a pipe, which is forwarded as fast as the client reads. So an
export needs memory for a few pages, no disk space, and none of the interpreter's time. A client that does not read
loses its connection (see `connections`), which frees its place.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from alphafair.child import Child, ChildFailed
from alphafair.engine import Unavailable
from alphafair.engine.export import ExportJob
from alphafair.service.keys import Caller
from alphafair.service.shares import Places

MAX_EXPORTS = 2  # at a time, and one more that only an admin key without limits may begin
PER_CALLER = 1
STALLED = 60.0  # seconds without a byte from the process
LONGEST = 3600.0  # seconds for a whole export
NOT_STARTED = 10.0  # seconds until the first chunk is read, which never happens if the response failed
RETRY_AFTER = 5  # seconds
CHUNK = 1 << 18  # bytes


class Exports:
    """All exports of a service, and how many were rejected or aborted."""

    def __init__(self) -> None:
        self.running: set[Export] = set()
        self.n_refused = 0  # because too many were running
        self.n_cut = 0  # because they took too long
        self.places = Places(MAX_EXPORTS, PER_CALLER, for_admins=1)
        self._threads = ThreadPoolExecutor(MAX_EXPORTS + 1, thread_name_prefix="export")

    async def begin(self, caller: Caller, job: ExportJob) -> AsyncIterator[bytes]:
        """Start an export and wait for its first bytes; the chunks of the whole."""
        if not self.places.take(caller):
            self.n_refused += 1
            repair = "Try again later, or export from a backup."
            raise self.places.refusal(caller, "exports_busy", "Exports", repair=repair, retry_after=RETRY_AFTER)
        export = Export(self, self._threads, caller.id)
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
    """One export: a process and its reader."""

    def __init__(self, exports: Exports, threads: ThreadPoolExecutor, caller_id: str) -> None:
        self._exports, self._threads, self._caller_id = exports, threads, caller_id
        self._loop = asyncio.get_running_loop()
        self._process: Child | None = None
        self._longest = self._loop.call_later(LONGEST, self._cut)
        self._not_started: asyncio.TimerHandle | None = None

    async def start(self, job: ExportJob) -> bytes:
        """Start the process and wait for its first bytes: until then a failure can be answered with an error."""
        sent = json.dumps(job).encode()
        process = await self._loop.run_in_executor(self._threads, Child.start, "export", sent)
        self._process = process
        first = await self._read(process)
        self._not_started = self._loop.call_later(NOT_STARTED, self._cut)
        return first

    async def chunks(self, first: bytes) -> AsyncIterator[bytes]:
        """All chunks; each is read when the connection has accepted the one before."""
        if self._not_started is not None:
            self._not_started.cancel()
        try:
            chunk = first
            while chunk and self._process is not None:
                yield chunk
                chunk = await self._read(self._process)
        finally:
            self.end()

    async def _read(self, process: Child) -> bytes:
        if self not in self._exports.running:
            self._threads.submit(process.close)
            raise Unavailable("The export took too long.")
        stalled = self._loop.call_later(STALLED, self._cut)
        try:
            return await self._loop.run_in_executor(self._threads, process.read, CHUNK)
        except ChildFailed as problem:
            raise Unavailable(f"The export ended early: {problem}") from problem
        finally:
            stalled.cancel()

    def _cut(self) -> None:
        """Abort an export that takes too long; its reader gets an error."""
        self._exports.n_cut += self in self._exports.running
        self.end()

    def end(self) -> None:
        """Free the place of the export, however it ended."""
        self._longest.cancel()
        if self._not_started is not None:
            self._not_started.cancel()
        if self in self._exports.running:
            self._exports.running.remove(self)
            self._exports.places.release(self._caller_id)
            if self._process is not None:
                self._process.kill()  # a thread that reads from it gets its end
                self._threads.submit(self._process.close)
