"""Disks that are nearly full, for tests: a small file system of its own, or a limit on the pages of a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from alphafair.engine import Engine

PAGE = 4096
WAYS = ("a small file system", "a limit on pages")


class Disk:
    """A folder for one engine's file, in which room can be taken away and given back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "shop.db"

    def leave(self, engine: Engine, n_bytes: int) -> None:
        """From now on there is room for so many bytes more."""
        raise NotImplementedError

    def make_room(self, engine: Engine) -> None:
        raise NotImplementedError


class PageLimit(Disk):
    """SQLite itself refuses to grow the file; needs no rights, and works while the engine is idle."""

    def leave(self, engine: Engine, n_bytes: int) -> None:
        connection = engine._store.connection
        ((pages,),) = connection.execute("pragma page_count").fetchall()
        connection.execute(f"pragma max_page_count = {pages + n_bytes // PAGE}").fetchall()

    def make_room(self, engine: Engine) -> None:
        engine._store.connection.execute("pragma max_page_count = 1000000").fetchall()


class SmallFileSystem(Disk):
    """A real one, filled up by a file of zeros beside the engine's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ballast = folder / "ballast"

    def leave(self, engine: Engine, n_bytes: int) -> None:
        found = os.statvfs(self.folder)
        self._ballast.write_bytes(bytes(max(0, found.f_bavail * found.f_frsize - n_bytes)))

    def make_room(self, engine: Engine) -> None:
        self._ballast.unlink()


@contextmanager
def small_disk(way: str, folder: Path, size: str = "32m") -> Iterator[Disk]:
    """One of `WAYS`; the test is skipped where a file system may not be mounted."""
    if way == "a limit on pages":
        yield PageLimit(folder)
        return
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield SmallFileSystem(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
