"""The one way a function of `kernels/` becomes machine code.

`kernel` compiles on first call and keeps the machine code on disk. Numba notices when a kernel's own file
changes but not when a kernel that it calls, in another file, does; so the disk cache lives in a folder named
by a fingerprint of every file in `kernels/`, and no stale code can be loaded.

A kernel keeps the GIL: a single step takes less time than giving it up and getting it back. A `long_kernel`,
such as a whole run or the optimum, gives it up, so that threads use all cores.

Set `NUMBA_DISABLE_JIT=1` before Python starts and every kernel runs as the plain Python it is written in,
with the same results to the last bit: no kernel uses `fastmath`, a NumPy reduction or a LAPACK call.

Kernels copy arrays in loops: for one array assigned to a slice of another Numba compiles several seconds longer.
"""

import hashlib
import os
import stat
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import platformdirs

_KERNELS = Path(__file__).parent / "kernels"
OPTIONS: dict[str, Any] = {
    "error_model": "numpy",  # no kernel divides by zero, so none need ask before dividing
    "forceinline": True,  # a call costs as much as ten arms, most of it for counting references to its arrays
}
Function = Callable[..., Any]


def fingerprint() -> str:
    """Digest of every kernel's source and of this file, so that no machine code is older than what it came from."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(_KERNELS.glob("*.py"))):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Where machine code is kept; None if there is no such folder that only we can write, and then nothing is kept."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(chosen) if chosen else platformdirs.user_cache_path("alphafair", appauthor=False)
    folder = base / f"kernels-{fingerprint()}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        problem = writable_by_others(folder)
    except OSError:
        return None
    if problem is not None:
        said = (
            f"Machine code is not kept or loaded: {problem}. Delete that folder, or name your own in NUMBA_CACHE_DIR."
        )
        warnings.warn(said, RuntimeWarning, stacklevel=2)
        return None
    return folder if os.access(folder, os.W_OK) else None


def writable_by_others(folder: Path) -> str | None:
    """Who but root and ourselves could have put machine code into a folder; None if nobody could.

    To load machine code is to run it. So the folder and all that is in it must be ours or root's, and writable by
    nobody else; and so must be the folders that lead to it, unless they are like /tmp, where nobody can replace what
    belongs to somebody else.
    """
    if not hasattr(os, "getuid"):  # Windows: folders of a user are that user's
        return None
    trusted = {0, os.getuid()}

    def problem(path: Path | os.DirEntry[str], *, sticky: bool = False) -> str | None:
        found = path.stat() if sticky else os.stat(path, follow_symlinks=False)
        others = "group" if found.st_mode & stat.S_IWGRP else "everybody" if found.st_mode & stat.S_IWOTH else None
        if found.st_uid not in trusted:
            return f"{os.fspath(path)!r} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            return f"{os.fspath(path)!r} is a symbolic link"
        if others is not None and not (sticky and found.st_mode & stat.S_ISVTX):
            return f"{os.fspath(path)!r} can be written by {'its ' * (others == 'group')}{others}"
        return None

    above = [problem(parent, sticky=True) for parent in folder.resolve().parents]
    itself = problem(folder)
    if any(above) or itself:
        return next(filter(None, [itself, *above]))
    if os.stat(folder).st_mode & 0o077 == 0:  # nobody else comes in: the modes of what is inside do not matter
        return None
    return next(filter(None, map(problem, _entries(folder))), None)


def _entries(folder: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """All that is in a folder and the folders inside it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry)


_FOLDER = cache_folder()


def kernel(function: Function, *, nogil: bool = False) -> Any:
    """Compile a function of arrays and scalars; see the module's docstring for what that entails."""
    ours = Path(function.__code__.co_filename).is_relative_to(_KERNELS)
    allocates = not {"np", "copy"}.isdisjoint(function.__code__.co_names)
    options: dict[str, Any] = {**OPTIONS, "nogil": nogil}
    if _FOLDER is None or not ours:  # the fingerprint speaks for no code but our own
        return numba.njit(**options)(function)
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(_FOLDER)
    options |= {"_nrt": allocates, "cache": True}  # who makes no array need not count references either
    try:
        return numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = before


def long_kernel(function: Function) -> Any:
    """A kernel that gives up the GIL while it runs."""
    return kernel(function, nogil=True)


def machine_code(compiled: Any) -> Any:
    """What a kernel compiled to, to be called from Python with arguments of just the types it was compiled for.

    Numba's own entrance looks at the type of every argument first, which takes longer than a short kernel does.
    """
    if len(getattr(compiled, "overloads", ())) != 1:
        return compiled
    (version,) = compiled.overloads.values()
    return version.entry_point


def specialise(template: Function, name: str, **steps: Function) -> Any:
    """Compile `template`, a whole run, with the kernels that its free names stand for.

    Numba resolves global names at compile time and can keep the result on disk, which it cannot do for
    kernels that arrive as arguments or sit in a closure; so the template's code is given globals of its own.
    """
    own = types.FunctionType(template.__code__, {**template.__globals__, **steps}, name)
    own.__qualname__, own.__module__ = name, template.__module__
    ours = all(step.__module__.startswith("alphafair.kernels.") for step in steps.values())
    return long_kernel(own) if ours else numba.njit(**OPTIONS, nogil=True)(own)
