"""The files of a database: the main file, those that SQLite keeps beside it, and the lock of its writer."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from alphafair.errors import InvalidArgument, Unavailable

PRIVATE = 0o600  # for databases, copies and locks: they contain labels of people and hashes of keys
LOG, INDEX, JOURNAL = COMPANIONS = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file
RESTORE = "Stop the process, put the file back or restore a backup, and start again."


class DatabaseFiles:
    """The files behind a path, and a check that they are still the ones that were opened.

    `name` is the path as it was passed, `path` the file that it resolves to: SQLite puts its own files beside that one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = Path(os.path.abspath(path))
        self.path = self.name.resolve()
        self._opened: dict[str, tuple[int, int]] = {}  # device and inode, the main file's first
        self._n_bytes: int | None = None  # size of the main file; None: it may shrink

    @property
    def is_empty(self) -> bool:
        """Whether the file does not exist, or has no bytes."""
        return not self.path.exists() or self.path.stat().st_size == 0

    def check_before_opening(self, *, for_writing: bool) -> None:
        """Refuse files that SQLite would open and damage."""
        log = Path(f"{self.path}{LOG}")
        if self.is_empty and log.exists() and log.stat().st_size:
            allowed = f"the file that {log.name} beside it ({log.stat().st_size:,} bytes) belongs to"
            repair = f"Put the file back, or move {log.name} away to start a new database: opening would delete it."
            raise InvalidArgument(
                "path", allowed, "no such file" if not self.path.exists() else "an empty file", repair
            )
        if for_writing and self.path.exists() and (n_names := self.path.stat().st_nlink) > 1:
            repair = "Remove the other hard links, or copy the file: SQLite finds its write-ahead log by name."
            raise InvalidArgument("path", "a file with one hard link", f"{self.name} with {n_names}", repair)

    def make_private(self) -> None:
        """Create a missing file that only its owner can read; SQLite gives its own files the same mode."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))

    @property
    def readable_by_others(self) -> bool:
        return bool(self.path.stat().st_mode & 0o077)

    def remember(self, *, only_grows: bool) -> None:
        """Remember which files are open now; `only_grows`: the main one will not shrink."""
        files = (self.name, Path(f"{self.path}{LOG}"), Path(f"{self.path}{INDEX}"))
        found = {str(file): os.stat(file) for file in files if file.exists()}
        self._opened = {file: (each.st_dev, each.st_ino) for file, each in found.items()}
        self._n_bytes = found[str(self.name)].st_size if only_grows else None

    def check(self) -> None:
        """Raise `Unavailable` if a file was deleted, moved, replaced or truncated since it was opened."""
        n_bytes = None
        for file, opened in self._opened.items():
            try:
                found = os.stat(file)
            except FileNotFoundError:
                raise _lost(file, "deleted or moved") from None
            except OSError as problem:
                raise Unavailable(f"{file} cannot be found: {problem.strerror}") from problem
            if (found.st_dev, found.st_ino) != opened:
                raise _lost(file, "replaced")
            if n_bytes is None:
                n_bytes = found.st_size
        if self._n_bytes is not None and n_bytes is not None:
            if n_bytes < self._n_bytes:
                raise Unavailable(f"{self.name} was truncated while it was in use. {RESTORE}")
            self._n_bytes = n_bytes


def _lost(file: str, happened: str) -> Unavailable:
    return Unavailable(f"{file} was {happened} while it was in use: what is written now would be lost. {RESTORE}")


def lock_of(path: Path) -> Path:
    """Return the file that the writer of a database locks; it lies beside the database itself."""
    found = path.resolve()
    return found.with_name(found.name + ".lock")


def take_lock(handle: int, path: Path) -> None:
    """Lock an open lock file, or raise `Unavailable` with the process that holds it."""
    try:
        import fcntl
    except ImportError as problem:  # pragma: no cover - Windows
        raise Unavailable("The engine needs a system with file locks, such as Linux or macOS.") from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = _read(handle)[0] or "unknown"
        raise Unavailable(
            f"{path} has a writer already: process {holder}. Stop it first, or open the file with read_only=True."
        ) from None


def _read(handle: int) -> tuple[str, str]:
    """Return what a lock file contains: the process that holds it or was the last to do so, and its record."""
    lines = os.pread(handle, 200, 0).decode(errors="replace").splitlines()
    return (lines[0].strip() if lines else ""), (lines[1].strip() if len(lines) > 1 else "")


def open_lock(path: Path) -> int:
    """Open the lock file, and create a missing one. Symbolic links are not followed: their target would be written."""
    lock = lock_of(path)
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, PRIVATE)
        try:
            _check_lock(handle, lock, path)
        except BaseException:
            os.close(handle)
            raise
        return handle
    except Unavailable:
        raise
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise Unavailable(f"{lock} must be a regular file; it is a symbolic link. Remove it.") from None
        raise Unavailable(f"{path} cannot be opened for writing: {problem.strerror}") from problem


def _check_lock(handle: int, lock: Path, path: Path) -> None:
    """Refuse a lock file that another user owns and could hold forever, or that has a second name."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise Unavailable(f"{lock} must be a regular file with one hard link. Remove it.")
    owners = {0, os.getuid()}
    with contextlib.suppress(FileNotFoundError):
        owners.add(path.stat().st_uid)  # root may open the database of another user
    if found.st_uid not in owners:
        raise Unavailable(f"{lock} belongs to user {found.st_uid}, who could block every writer. Remove it.")
    if found.st_mode & 0o077 and found.st_uid == os.getuid():
        os.fchmod(handle, PRIVATE)  # made by an older version: any user who can read it could lock it


class WriterLock:
    """One writer per file across processes; the system releases the lock of a process that dies.

    The file has the number of the process, and a `record` for the next one.
    """

    def __init__(self, path: Path) -> None:
        self._handle = open_lock(path)
        try:
            take_lock(self._handle, path)
        except BaseException:
            os.close(self._handle)
            raise
        self.record = _read(self._handle)[1]
        self.write(self.record)

    def write(self, record: str) -> None:
        if self._handle < 0:  # released: the number of the handle may be that of another file
            return
        self.record, content = record, f"{os.getpid()}\n{record}\n".encode()
        with contextlib.suppress(OSError):  # a full disk: others then see the content of before
            os.pwrite(self._handle, content, 0)  # over what is there, which is never gone in between
            os.ftruncate(self._handle, len(content))

    def release(self) -> None:
        os.close(self._handle)
        self._handle = -1
