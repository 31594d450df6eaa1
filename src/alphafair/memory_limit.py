"""How much memory this process may have, and a reserve for the time when it has no more."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

GROUPS, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_limit(groups: Path = GROUPS, root: Path = ROOT) -> int:
    """Bytes that this process may have: the machine's memory, or less by its control groups or its own limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    files = [root / "memory.max", root / "memory" / "memory.limit_in_bytes"]
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            number, _, path = line.split(":", 2)
            own = root / path.lstrip("/")
            files += [folder / "memory.max" for folder in (own, *own.parents) if number == "0"]
    for file in files:
        with contextlib.suppress(OSError, ValueError):  # "max": as much as there is
            limits.append(int(file.read_text()))
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        own_limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if own_limit != resource.RLIM_INFINITY:
            limits.append(own_limit)
    return min(limits)


class Reserve:
    """Memory that a process holds back, to let it go when a large piece cannot be had.

    Small pieces, for answers and for threads, can then still be had until things are in order again.
    """

    def __init__(self) -> None:
        self.size = 0
        self._held: bytearray | None = None

    def hold(self, size: int | None = None) -> None:
        """Hold so much back from now on, or as much as before; without it, as far as memory goes."""
        self.size = self.size if size is None else size
        if self._held is None and self.size:
            with contextlib.suppress(MemoryError):
                self._held = bytearray(self.size)

    def release(self) -> None:
        """Let it go, until the next `hold`."""
        self._held = None


RESERVE = Reserve()  # of this process: nothing, unless a service holds some
