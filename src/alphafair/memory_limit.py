"""How much memory this process may have."""

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
