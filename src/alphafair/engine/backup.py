"""Copies of a database: complete when they have their name, and nothing at all where one has failed.

A database in SQLite is more than one file: SQLite reads `-wal` or `-journal` beside a name into whatever file has that
name. So a copy is made under another name, is renamed only where nothing of an older database is left and never over
another file, and is then opened and checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from alphafair.engine.store.files import COMPANIONS, PRIVATE, lock_of, open_lock, take_lock
from alphafair.engine.store.sqlite import copy_pages, make_one_file, n_events_of
from alphafair.errors import InvalidArgument, Mismatch, Unavailable

NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)


def copy_database(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    prepare: Callable[[Path], None] = lambda part: None,
) -> int:
    """Copy a database that may be in use to a new file; return its number of events.

    `prepare` is called with the copy before it gets its name.
    """
    if not Path(source).exists():
        raise InvalidArgument("path", "an existing file", str(source), "Check the path for a typo.")
    return new_database(path, lambda part: copy_pages(Path(source), part), prepare, source)


def new_database(
    path: str | os.PathLike[str],
    fill: Callable[[Path], None],
    prepare: Callable[[Path], None],
    source: object,
) -> int:
    """Make a new file: `fill` an empty one, `prepare` it, and only then give it its name; return its number of events.

    `source` is where it comes from, for messages.
    """
    target = Path(path)
    _check_new(target)
    try:
        with _part(target, of=source) as part:
            fill(part)
            prepare(part)
            make_one_file(part)
            _sync(part)
            _check_new(target)
            _rename(part, target)
            try:
                n_events = n_events_of(target)
                _sync(target.absolute().parent)
            except BaseException:
                target.unlink()
                raise
        return n_events
    except sqlite3.OperationalError as problem:
        raise Unavailable(f"{path} cannot be written: {problem}") from problem
    except sqlite3.DatabaseError as problem:
        raise Mismatch(f"{source} is damaged: {problem}.") from problem
    except OSError as problem:
        if isinstance(problem, Unavailable):
            raise
        raise Unavailable(f"{path} cannot be written: {problem.strerror}") from problem


def _check_new(target: Path) -> None:
    """Refuse a name that exists, that files of SQLite are left of, or that a process has locked."""
    if os.path.lexists(target):
        raise InvalidArgument("path", "a new file", str(target), "Move it away first: files are never overwritten.")
    left = [target.name + ending for ending in COMPANIONS if os.path.lexists(f"{target}{ending}")]
    if left:
        repair = f"Move {' and '.join(left)} away, too: SQLite would read their content into the new file."
        raise InvalidArgument("path", "a name without files of an older database beside it", left, repair)
    if lock_of(target).exists():
        handle = open_lock(target)
        try:
            take_lock(handle, target)
        finally:
            os.close(handle)


@contextlib.contextmanager
def temporary_copy(source: Path) -> Iterator[Path]:
    """Copy a database that may be in use to a file beside it, which is removed at the end."""
    try:
        with _part(source.with_name(f"{source.name}.verify"), of=source, to=source) as part:
            copy_pages(source, part)
            yield part
    except sqlite3.Error as problem:
        raise Unavailable(f"{source} cannot be copied: {problem}") from problem
    except OSError as problem:
        if isinstance(problem, Unavailable):
            raise
        raise Unavailable(f"{source} cannot be copied: {problem.strerror}") from problem


@contextlib.contextmanager
def _part(target: Path, *, of: object, to: Path | None = None) -> Iterator[Path]:
    """Yield an empty file beside the target, for one copy at a time; remove it at the end, with SQLite's own files.

    Errors name the files that the caller knows: those about its content `of`, those of writing it `to` (the target).
    """
    part = target.with_name(target.name + ".part")
    handle = _create_locked(part, target)
    try:
        _remove_companions(part)
        yield part
    except (Mismatch, Unavailable) as problem:
        known = str(of if isinstance(problem, Mismatch) else to or target)
        text = str(problem).replace(str(part), known).replace(part.name, os.path.basename(known))
        if text == str(problem):
            raise
        raise type(problem)(text) from problem
    finally:
        part.unlink(missing_ok=True)
        _remove_companions(part)
        os.close(handle)


def _create_locked(part: Path, target: Path) -> int:
    """Create and lock a file; one that a killed process has left is removed first."""
    import fcntl

    try:
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                left = os.open(part, os.O_RDWR)
                try:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    part.unlink()
                finally:
                    os.close(left)
            with contextlib.suppress(FileExistsError):
                handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
    except BlockingIOError:
        pass
    raise Unavailable(f"{target}: another copy is being made under this name. Wait until it ends.")


def _rename(part: Path, target: Path) -> None:
    """Give the copy its name, never over another file."""
    try:
        os.link(part, target)
    except FileExistsError:
        _check_new(target)
        raise
    except OSError as problem:
        if problem.errno not in NO_LINKS:
            raise
        _check_new(target)
        part.rename(target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_companions(part: Path) -> None:
    for each in (*(Path(f"{part}{ending}") for ending in COMPANIONS), lock_of(part)):
        each.unlink(missing_ok=True)
