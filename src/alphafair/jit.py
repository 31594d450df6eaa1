"""Kernels: plain Python functions on arrays and numbers that can also run as machine code.

`@kernel` does not change a function, so it can be read, tested and called like any other. `compiled` compiles it and
every kernel that it calls with Numba, which is imported only then. Both give the same bits: no kernel uses `fastmath`,
a NumPy reduction or a LAPACK call.

`Bundle` decides which of the two runs, by the environment variable ALPHAFAIR_JIT:

    auto    (default) interpreted at first; machine code once it saves more time than loading or compiling takes
    now     machine code from the first call
    off     always interpreted; the same as NUMBA_DISABLE_JIT=1

Machine code is cached on disk. Numba notices changes of a kernel's own file, but not of the files of kernels that it
calls, so the cache folder is named after a fingerprint of every file of this package with kernels. Installations of the
same version share it.

A kernel holds the GIL: a single step is shorter than releasing it. A `long_kernel`, such as a whole run or the optimum,
releases it, so that threads use all cores.

Kernels copy arrays in loops: assigning an array to a slice takes Numba several seconds longer to compile.
"""

from __future__ import annotations

import atexit
import dis
import hashlib
import importlib.metadata
import os
import platform
import stat
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from alphafair.child import Child

Function = Callable[..., Any]
Mode = Literal["auto", "now", "off"]

_PACKAGE = Path(__file__).parent
# files and folders with kernels
FOLDERS = (
    "math",
    "algorithms",
    "policy/loops",
    "policy/slate_loops",
    "policy/memory",
    "offline",
    "evaluation",
    "lab/rivals",
    "notions",
)
# files and folders on which the states of an engine depend
OF_STATES = (
    "math",
    "algorithms",
    "notions",
    "policy/loops",
    "policy/slate_loops",
    "policy/memory",
    "policy/arms",
    "policy/group_accounts",
)
OPTIONS: dict[str, Any] = {
    "error_model": "numpy",  # no kernel divides by zero, so none tests for it
    "forceinline": True,  # a call costs as much as ten arms, mostly for counting references to arrays
    "no_cfunc_wrapper": True,  # kernels are not called from C
}


def mode() -> Mode:
    """Return how kernels run: see the docstring of the module."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "off"
    chosen = os.environ.get("ALPHAFAIR_JIT", "auto").lower()
    if chosen not in ("auto", "now", "off"):
        raise ValueError(f"ALPHAFAIR_JIT must be auto, now or off; got {chosen!r}. Unset it for auto.")
    return chosen  # type: ignore[return-value]


@contextmanager
def using_mode(chosen: Mode) -> Iterator[None]:
    """Set the mode temporarily, in this process and its children."""
    before = os.environ.get("ALPHAFAIR_JIT")
    os.environ["ALPHAFAIR_JIT"] = chosen
    try:
        yield
    finally:
        del os.environ["ALPHAFAIR_JIT"]
        if before is not None:
            os.environ["ALPHAFAIR_JIT"] = before


# marking functions


def kernel(function: Function) -> Any:
    """Mark a function of arrays and numbers as one that can be compiled, and return it."""
    function.__kernel__ = {}  # type: ignore[attr-defined]
    return function


def is_kernel(value: Any) -> bool:
    return hasattr(value, "__kernel__")


def repeated(kernel: Any, n_calls: int) -> Any:
    """Return a kernel to be called `n_calls` times from Python: compiled if that is faster, else interpreted.

    Compiling takes about a second, an interpreted call about fifty microseconds.
    """
    chosen = mode()
    worth_it = chosen == "now" or (chosen == "auto" and n_calls > 20_000)
    return compiled(kernel) if worth_it else _interpreted(kernel)


def _interpreted(function: Function) -> Function:
    """Return a function that ignores the floating-point flags of its caller, as machine code does."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return call


class LongKernel:
    """A kernel that Python calls for much work at once: it releases the GIL, and is compiled at its first call."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__kernel__: dict[str, Any] = {}
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Any:
        run = _interpreted(self.function) if mode() == "off" else compiled(self)
        return run(*arguments)

    def __reduce__(self) -> str:
        return self.__name__


def long_kernel(function: Function) -> Any:
    """Mark a kernel that does much work in one call."""
    return LongKernel(function)


# machine code


def fingerprint(parts: Sequence[str] = FOLDERS) -> str:
    """Return a digest of files with kernels, by default of all, and of those that compile them."""
    digest = hashlib.sha256()
    paths = [_PACKAGE / f"{name}.py" for name in ("jit", "machine_code", "values/arrays", *parts)]
    paths += [path for name in parts for path in sorted((_PACKAGE / name).glob("*.py"))]
    for path in paths:
        if path.exists():
            digest.update(path.relative_to(_PACKAGE).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Return the folder of the disk cache; None, and no cache, unless only this user can write to it."""
    import platformdirs

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
        message = f"Machine code is not cached: {problem}. Delete that folder, or set NUMBA_CACHE_DIR to another one."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    return folder if os.access(folder, os.W_OK) else None


def writable_by_others(folder: Path) -> str | None:
    """Return why another user could have written machine code to a folder; None if only this user and root can.

    Loading machine code runs it. So the folder, its content and its parents must belong to this user or root, and must
    not be writable by others. Parents with the sticky bit, such as /tmp, are accepted.
    """
    if not hasattr(os, "getuid"):  # Windows: folders of a user belong to that user
        return None
    trusted = {0, os.getuid()}

    def problem(path: Path | os.DirEntry[str], *, sticky: bool = False) -> str | None:
        found = path.stat() if sticky else os.stat(path, follow_symlinks=False)
        others = "group" if found.st_mode & stat.S_IWGRP else "everyone" if found.st_mode & stat.S_IWOTH else None
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
    if os.stat(folder).st_mode & 0o077 == 0:  # others cannot enter: modes of the content do not matter
        return None
    return next(filter(None, map(problem, _entries(folder))), None)


def _entries(folder: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """Yield all entries of a folder, recursively."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry)


@cache
def _cache_folder() -> Path | None:
    """Return `cache_folder()`, evaluated once per process."""
    return cache_folder()


_compiled: dict[tuple[Any, ...], Any] = {}
_compiling = threading.RLock()


def compiled(kernel: Any, **flags: bool) -> Any:
    """Return the Numba dispatcher of a kernel; every kernel that it calls is compiled into it.

    `flags` replace global names in all of them: `compiled(draw, GROUPS=False)` omits every branch `if GROUPS ...`.
    """
    return _once(_entry, kernel, flags)


def _once(make: Function, kernel: Any, flags: Mapping[str, bool]) -> Any:
    key = (make, kernel, *sorted(flags.items()))
    with _compiling:
        if key not in _compiled:
            _compiled[key] = make(kernel, flags)
        return _compiled[key]


def _inner(kernel: Any, flags: Mapping[str, bool]) -> Any:
    """Compile a kernel for other kernels to call: it becomes a part of their machine code."""
    from alphafair.machine_code import inner

    if "instead" in kernel.__kernel__:  # a replacement that exists in machine code only
        return kernel.__kernel__["instead"]()
    return inner(_with_compiled_names(kernel, flags), **_options(kernel))


def _entry(kernel: Any, flags: Mapping[str, bool]) -> Any:
    """Compile a kernel for Python to call: it calls the inner kernel, which is then typed and lowered only once."""
    from alphafair.machine_code import entry

    options = _options(kernel)
    if isinstance(kernel, LongKernel):
        options["nogil"] = True
        own = _with_compiled_names(kernel, flags)
    else:
        own = _caller(kernel, _once(_inner, kernel, flags))
    own.__qualname__ += "".join(f"_{name}_{flag}" for name, flag in sorted(flags.items()))
    ours = kernel.__module__.startswith(f"{__package__}.")  # the fingerprint covers this package only
    return entry(own, _cache_folder() if ours else None, **options)


def _options(kernel: Any) -> dict[str, Any]:
    names = getattr(kernel, "function", kernel).__code__.co_names
    return {**OPTIONS, "_nrt": not {"np", "copy"}.isdisjoint(names)}  # without new arrays, no reference counting


def _with_compiled_names(kernel: Any, flags: Mapping[str, bool]) -> Any:
    """Return a copy of the function whose globals have these flags, and inner kernels in place of kernels."""
    function = getattr(kernel, "function", kernel)
    names = _global_names(function.__code__)
    globals_ = {**function.__globals__, **{name: flag for name, flag in flags.items() if name in names}}
    for name in names:
        if is_kernel(globals_.get(name)):
            globals_[name] = _once(_inner, globals_[name], flags)
    own = types.FunctionType(function.__code__, globals_, function.__name__, function.__defaults__)
    own.__qualname__, own.__module__ = function.__qualname__, function.__module__
    return own


def _caller(kernel: Any, inner: Any) -> Any:
    """Return a function that calls `inner`, with the file and line of the kernel, for the disk cache."""
    code = kernel.__code__
    parameters = ", ".join(code.co_varnames[: code.co_argcount])
    made: dict[str, Any] = {"inner": inner, "__name__": kernel.__module__}
    source = f"def {kernel.__name__}({parameters}): return inner({parameters})"
    exec(compile("\n" * (code.co_firstlineno - 1) + source, code.co_filename, "exec"), made)  # noqa: S102 - names from this package
    own = made[kernel.__name__]
    own.__qualname__ = kernel.__qualname__
    return own


def _global_names(code: types.CodeType) -> set[str]:
    """Return the global names that a function reads; `co_names` has attributes too."""
    return {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}


def entry_point(dispatcher: Any) -> Any:
    """Return the compiled function itself, to be called with arguments of exactly the compiled types.

    The dispatcher checks the type of every argument first, which takes longer than a short kernel.
    """
    if len(getattr(dispatcher, "overloads", ())) != 1:
        return dispatcher
    (version,) = dispatcher.overloads.values()
    return version.entry_point


def specialize(template: Function, name: str, **steps: Any) -> Any:
    """Make a long kernel from `template`, with `steps` in place of its global names.

    Numba can cache functions that call kernels by global names, but not kernels passed as arguments or captured in a
    closure. So the code of the template gets its own globals.
    """
    own = types.FunctionType(template.__code__, {**template.__globals__, **steps}, name)
    own.__qualname__ = name
    ours = all(step.__module__.startswith(f"{__package__}.") for step in steps.values())
    own.__module__ = template.__module__ if ours else "__main__"
    return LongKernel(own)


# when to switch

LOADING = 0.75  # seconds to import Numba and to load machine code from disk
MAKING = 8.0  # seconds to compile the kernels of a policy
HELPER_AFTER = 0.1  # seconds of interpreted work before a helper process starts to compile
POLL_EVERY = 0.1  # seconds between two checks of the disk cache
HELPER_LIMIT = 300.0  # seconds after which a helper is stopped
CALL_SECONDS = 0.02  # seconds of interpreted rounds in one call, before the next decision


class Kernels(NamedTuple):
    """The machine code that a policy runs on: of which policy and feedback, with which branches.

    >>> str(Kernels("alpha-fair-adaptive", "bandit", frozenset({"groups", "welfare"})))
    'alpha-fair-adaptive+bandit+groups-welfare'
    """

    policy: str
    feedback: str
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, policy: Any) -> Kernels:
        return cls.needed(policy.name, policy.feedback.value, policy.stepper.flags)

    @classmethod
    def needed(cls, policy: str, feedback: str, flags: Mapping[str, bool]) -> Kernels:
        """Return those with the branches of these flags."""
        return cls(policy, feedback, frozenset(name.lower() for name, needed in flags.items() if needed))

    def __str__(self) -> str:
        return "+".join(filter(None, [self.policy, self.feedback, "-".join(sorted(self.flags))]))


class Bundle:
    """Decides for all kernels of one kind of policy whether they run interpreted or as machine code.

    Interpreted time is counted. Once it exceeds the time of loading, machine code is loaded from disk; if it is not
    there, a helper process compiles it while this one continues. If so much work is announced that compiling is faster,
    or the helper cannot start or fails, this process compiles by itself. `kernels` are what the helper compiles; None
    for policies of other packages.
    """

    _all: dict[tuple[str, Kernels | None], Bundle] = {}  # noqa: RUF012 - one for the whole process

    def __init__(self, kernels: Kernels | None) -> None:
        self.kernels = kernels
        self.spent = 0.0
        self.rounds = 0.0
        self._use_machine_code = False
        self.forget_helper()

    def forget_helper(self) -> None:
        """Start without a helper: initially, and in a forked process, since the helper belongs to the parent."""
        self._helper: subprocess.Popen[bytes] | None = None
        self._tried = False
        self._next_poll = self._give_up = 0.0
        self._deciding = threading.Lock()

    @classmethod
    def of(cls, kind: str, kernels: Kernels | None) -> Bundle:
        """Return the bundle of this process."""
        return cls._all.setdefault((kind, kernels), cls(kernels))

    def spend(self, seconds: float, rounds: float) -> None:
        """Count interpreted time and rounds."""
        self.spent += seconds
        self.rounds += rounds

    def rounds_per_call(self, n_rounds: int) -> int:
        """Return how many of the next rounds to play in one call: few while interpreted."""
        if self.rounds == 0.0:
            return n_rounds if self.use_machine_code() else 1
        per_round = self.spent / self.rounds
        return n_rounds if self.use_machine_code(n_rounds * per_round) else max(1, int(CALL_SECONDS / per_round))

    def use_machine_code(self, more: float = 0.0) -> bool:
        """Decide whether to use machine code, with about `more` seconds of interpreted work ahead."""
        chosen = mode()
        if chosen == "off":
            return False
        if chosen == "now":
            self._use_machine_code = True  # permanently: it is loaded now
        if not self._use_machine_code and self._deciding.acquire(blocking=False):  # one thread decides for all
            try:
                self._use_machine_code = self._pays(more)
            finally:
                self._deciding.release()
        return self._use_machine_code

    def switch(self) -> None:
        """Use machine code immediately: for a server, which has time before its first request."""
        self._use_machine_code = mode() != "off"

    def _pays(self, more: float) -> bool:
        now = time.monotonic()
        if self.spent + more < HELPER_AFTER or now < self._next_poll:
            return False
        self._next_poll = now + POLL_EVERY
        if self.on_disk():
            return max(self.spent, more) > LOADING
        if max(self.spent, more) > MAKING and not self._helper_is_at_work(now):
            return True
        if more > 2.0 * MAKING:  # longer than the helper still needs
            return True
        if not self._tried:
            self._tried, self._give_up = True, now + HELPER_LIMIT
            self._helper = self._start_helper()
        return False

    def _helper_is_at_work(self, now: float) -> bool:
        if self._helper is None or self._helper.poll() is not None:
            return False
        if now > self._give_up:
            self._helper.kill()
            self._helper.wait()
            return False
        return True

    def on_disk(self) -> bool:
        """Whether a helper, or an earlier process, has compiled everything."""
        marker = self._marker()
        return marker is not None and marker.exists()

    def _marker(self) -> Path | None:
        folder = None if self.kernels is None else _cache_folder()
        return None if folder is None else folder / f"compiled-{self.kernels}-{_toolchain()}"

    def mark_on_disk(self) -> None:
        marker = self._marker()
        if marker is not None:
            marker.touch(mode=0o600)

    def _start_helper(self) -> subprocess.Popen[bytes] | None:
        """Start a process that compiles; return None without a cache, or if `sys.executable` is not Python."""
        is_python = "python" in Path(sys.executable or "").name.lower() and not getattr(sys, "frozen", False)
        if self._marker() is None or not is_python:
            return None
        try:
            return Child.start("compile", str(self.kernels).encode(), nice=0, detached=True).process
        except (OSError, ValueError):  # a decision must not fail because of a helper
            return None

    def leave_helper(self) -> None:
        """At exit: let the helper finish by itself, for the next process."""
        if self._helper is not None and self._helper.poll() is None:
            self._helper.returncode = 0  # prevents the warning about a running child


@cache
def _toolchain() -> str:
    """Return what machine code depends on besides its source: Python, machine and Numba."""
    return f"{sys.implementation.cache_tag}-{platform.machine()}-numba-{importlib.metadata.version('numba')}"


def _leave_helpers() -> None:
    for bundle in Bundle._all.values():
        bundle.leave_helper()


def _forget_helpers() -> None:
    """In a forked process: drop helpers and locks of the parent."""
    global _compiling
    _compiling = threading.RLock()
    for bundle in Bundle._all.values():
        if bundle._helper is not None:
            bundle._helper.returncode = 0
        bundle.forget_helper()


atexit.register(_leave_helpers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)
