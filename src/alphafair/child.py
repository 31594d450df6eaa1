"""Work in a process of its own: `Child.start` runs one kind of `alphafair.jobs`, with the job on standard input.

Every user of a machine can see the arguments of a process, so a job, which may have the password of a database, is not
one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final, Self

PIPE_BYTES: Final = 1 << 18


class ChildFailed(OSError):
    """A process ended before its work was done; the message is the last line that it wrote to standard error."""

    def __init__(self, message: str, *, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed  # from outside, so that another attempt may succeed


class Child:
    """A process that does one job; all methods but `kill` may block, and one thread at a time reads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._reading = threading.Lock()  # held while closing, too

    @classmethod
    def start(cls, kind: str, job: bytes, *, nice: int = 10, threads: int = 1, detached: bool = False) -> Self:
        """Start a process with the modules of this one, `nice` to others, with so many threads in libraries.

        One that is `detached` goes on when this process ends or is interrupted, and what it writes is lost.
        """
        modules = os.pathsep.join(entry for entry in sys.path if isinstance(entry, str) and entry)
        limits = {"POLARS_MAX_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
        output = subprocess.DEVNULL if detached else subprocess.PIPE
        process = subprocess.Popen(  # noqa: S603 - this Python, and a module of this package
            [sys.executable, "-P", "-m", "alphafair.jobs", kind, str(nice)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=os.environ | {"PYTHONPATH": modules} | limits,
            pipesize=PIPE_BYTES,
            start_new_session=detached,
        )
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin as sent:  # if it has ended, the reader is told why
                sent.write(job)
            process.stdin = None
        return cls(process)

    def read(self, n: int) -> bytes:
        """At most n of the next bytes; none at the end of a complete result."""
        with self._reading:
            out, errors = self.process.stdout, self.process.stderr
            if out is None or errors is None or out.closed:
                raise ChildFailed("it was ended")
            chunk = os.read(out.fileno(), n)
            if not chunk:
                self._check(errors.read())
            return chunk

    def result(self, limit: float | None = None) -> bytes:
        """All that it writes, if it ends within `limit` seconds."""
        with self._reading:
            try:
                out, errors = self.process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
                raise ChildFailed(f"it took longer than {limit:.0f} seconds") from None
            self._check(errors)
            return out

    def _check(self, errors: bytes) -> None:
        """Raise unless the process has ended well."""
        code = self.process.wait()
        if code < 0:
            raise ChildFailed(f"its process was killed by signal {-code}, perhaps for lack of memory", killed=True)
        if code:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise ChildFailed(lines[-1] if lines else f"its process ended with code {code}")

    def kill(self) -> None:
        """End the process; whoever reads from it gets an error."""
        if self.process.poll() is None:
            self.process.kill()

    def close(self) -> None:
        """End the process, and free what it holds."""
        self.kill()
        with self._reading:
            for pipe in (self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()
            self.process.wait()
