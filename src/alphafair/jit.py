"""Kernels: plain Python functions on arrays and numbers that can also run as machine code.

`@kernel` leaves a function as it is, so that it can be read, tested and called like any other. `compiled` turns it and
every kernel that it calls into machine code with Numba, which is imported only then. Both give the same bits: no kernel
uses `fastmath`, a NumPy reduction or a LAPACK call.

Which of the two runs is decided by `Bundle`, from the environment variable ALPHAFAIR_JIT:

    auto    (default) interpreted at first; machine code once it saves more time than it takes to load or to make
    now     machine code from the first call on
    off     interpreted always; NUMBA_DISABLE_JIT=1 says the same

Machine code is kept on disk. Numba notices when a kernel's own file changes, but not when a kernel that it calls does,
so the cache lives in a folder named after a fingerprint of every file of this package that holds kernels.

A kernel keeps the GIL: a single step takes less time than giving it up and getting it back. A `long_kernel`, such as a
whole run or the optimum, releases it, so that threads use all cores.

Kernels copy arrays in loops: for one array assigned to a slice of another Numba compiles several seconds longer.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

Function = Callable[..., Any]
Mode = Literal["auto", "now", "off"]

_PACKAGE = Path(__file__).parent
# where kernels are: files and folders
FOLDERS = ("math", "algorithms", "policy/loops", "offline", "evaluation", "lab/rival", "lab/published")
OPTIONS: dict[str, Any] = {
    "error_model": "numpy",  # no kernel divides by zero, so none need ask before dividing
    "forceinline": True,  # a call costs as much as ten arms, most of it for counting references to its arrays
    "no_cfunc_wrapper": True,  # nobody calls kernels from C
}


def mode() -> Mode:
    """How kernels run: see the module's docstring."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "off"
    chosen = os.environ.get("ALPHAFAIR_JIT", "auto").lower()
    if chosen not in ("auto", "now", "off"):
        raise ValueError(f"ALPHAFAIR_JIT must be auto, now or off; got {chosen!r}. Unset it for auto.")
    return chosen  # type: ignore[return-value]


@contextmanager
def using_mode(chosen: Mode) -> Iterator[None]:
    """Another mode for a while, in this process and those that it starts."""
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
    """Mark a function of arrays and numbers as one that can be compiled; the function itself is returned."""
    function.__kernel__ = {}  # type: ignore[attr-defined]
    return function


def is_kernel(value: Any) -> bool:
    return hasattr(value, "__kernel__")


def repeated(kernel: Any, n_calls: int) -> Any:
    """A kernel to be called so many times from Python: the function itself, or machine code where that is sooner done.

    Compiling takes about a second, an interpreted call some fifty microseconds.
    """
    chosen = mode()
    worth_it = chosen == "now" or (chosen == "auto" and n_calls > 20_000)
    return compiled(kernel) if worth_it else kernel


class LongKernel:
    """A kernel that Python calls for a large piece of work: it releases the GIL, and is compiled at its first call."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__kernel__: dict[str, Any] = {}
        self.__wrapped__ = function

    def __call__(self, *arguments: Any) -> Any:
        run = self.function if mode() == "off" else compiled(self)
        return run(*arguments)

    def __reduce__(self) -> str:
        return self.__name__


def long_kernel(function: Function) -> Any:
    """Mark a kernel that does a large piece of work in one call."""
    return LongKernel(function)


# machine code


def fingerprint() -> str:
    """Digest of all files with kernels, and of those that compile them: no machine code is older than its source."""
    digest = hashlib.sha256()
    paths = [_PACKAGE / f"{name}.py" for name in ("jit", "machine_code", *FOLDERS)]
    paths += [path for name in FOLDERS for path in sorted((_PACKAGE / name).glob("*.py"))]
    for path in paths:
        if path.exists():
            digest.update(path.relative_to(_PACKAGE).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path | None:
    """Where machine code is kept; None if there is no such folder that only we can write, and then nothing is kept."""
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
        message = (
            f"Machine code is not kept or loaded: {problem}. Delete that folder, or name your own in NUMBA_CACHE_DIR."
        )
        warnings.warn(message, RuntimeWarning, stacklevel=2)
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


@cache
def _cache_folder() -> Path | None:
    """The same, decided once per process."""
    return cache_folder()


_compiled: dict[tuple[Any, ...], Any] = {}
_compiling = threading.RLock()


def compiled(kernel: Any, **flags: bool) -> Any:
    """The Numba dispatcher of a kernel, to be called from Python; every kernel that it calls is compiled into it.

    `flags` replace global names in all of them: `compiled(draw, GROUPS=False)` leaves out every branch `if GROUPS ...`.
    """
    return _once(_entry, kernel, flags)


def _once(make: Function, kernel: Any, flags: Mapping[str, bool]) -> Any:
    key = (make, kernel, *sorted(flags.items()))
    with _compiling:
        if key not in _compiled:
            _compiled[key] = make(kernel, flags)
        return _compiled[key]


def _inner(kernel: Any, flags: Mapping[str, bool]) -> Any:
    """A kernel for other kernels to call: not machine code of its own, but a part of theirs."""
    from alphafair.machine_code import inner

    if "instead" in kernel.__kernel__:  # something that only machine code can do
        return kernel.__kernel__["instead"]()
    return inner(_with_compiled_names(kernel, flags), **_options(kernel))


def _entry(kernel: Any, flags: Mapping[str, bool]) -> Any:
    """A kernel for Python to call: one that calls the inner one, so that this is typed and translated once for all."""
    import numba

    from alphafair.machine_code import entry

    options = _options(kernel)
    if isinstance(kernel, LongKernel):
        options["nogil"] = True
        own = _with_compiled_names(kernel, flags)
    else:
        own = _caller(kernel, _once(_inner, kernel, flags))
    own.__qualname__ += "".join(f"_{name}_{flag}" for name, flag in sorted(flags.items()))
    folder = _cache_folder() if kernel.__module__.startswith(f"{__package__}.") else None
    if folder is None:  # the fingerprint speaks for no code but our own
        return entry(own, **options)
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        return entry(own, cache=True, **options)
    finally:
        settings.CACHE_DIR = before


def _options(kernel: Any) -> dict[str, Any]:
    names = getattr(kernel, "function", kernel).__code__.co_names
    return {**OPTIONS, "_nrt": not {"np", "copy"}.isdisjoint(names)}  # no array made, no references to count


def _with_compiled_names(kernel: Any, flags: Mapping[str, bool]) -> Any:
    """The same function, with flags as they are and inner kernels in place of those that it names."""
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
    """A function that calls `inner` with its own arguments, and stands where the kernel does, for the disk cache."""
    code = kernel.__code__
    parameters = ", ".join(code.co_varnames[: code.co_argcount])
    made: dict[str, Any] = {"inner": inner, "__name__": kernel.__module__}
    source = f"def {kernel.__name__}({parameters}): return inner({parameters})"
    exec(compile("\n" * (code.co_firstlineno - 1) + source, code.co_filename, "exec"), made)  # noqa: S102 - our own names
    own = made[kernel.__name__]
    own.__qualname__ = kernel.__qualname__
    return own


def _global_names(code: types.CodeType) -> set[str]:
    """The global names that a function reads; `co_names` has those of attributes as well."""
    return {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}


def machine_code(dispatcher: Any) -> Any:
    """What a kernel compiled to, to be called from Python with arguments of just the types it was compiled for.

    Numba's own entrance looks at the type of every argument first, which takes longer than a short kernel does.
    """
    if len(getattr(dispatcher, "overloads", ())) != 1:
        return dispatcher
    (version,) = dispatcher.overloads.values()
    return version.entry_point


def specialise(template: Function, name: str, **steps: Any) -> Any:
    """A kernel made of `template`, a whole run, with the kernels that its free names stand for.

    Numba resolves global names when it compiles and can keep the result on disk, which it cannot do for kernels that
    arrive as arguments or sit in a closure; so the template's code is given globals of its own.
    """
    own = types.FunctionType(template.__code__, {**template.__globals__, **steps}, name)
    own.__qualname__ = name
    ours = all(step.__module__.startswith(f"{__package__}.") for step in steps.values())
    own.__module__ = template.__module__ if ours else "__main__"
    return LongKernel(own)


# when to switch

LOADING = 0.75  # seconds to import Numba and to load machine code from disk
MAKING = 8.0  # seconds to compile the kernels of a policy
HELPER_AFTER = 0.1  # seconds of interpreted work after which a helper process begins to compile
LOOK_EVERY = 0.1  # seconds between two looks for what the helper has made
HELPER_LIMIT = 300.0  # seconds after which a helper gives up, and is given up
A_CALL = 0.02  # seconds of interpreted rounds in one call, between two decisions whether to go on so


class Bundle:
    """The kernels of one kind of policy, as one decision: interpreted still, or machine code from now on.

    Interpreted work is counted. Once it has taken as long as loading would, machine code is loaded if it is on disk; if
    it is not, a helper process makes it while this one goes on. Where so much work is to come that compiling is sooner
    done, or there is no helper or it has failed, this process compiles what it needs itself. `name` says what the
    helper is to compile: an argument of `python -m alphafair.compile`; None for policies of other packages.
    """

    _all: dict[tuple[str, str | None], Bundle] = {}  # noqa: RUF012 - one for the whole process

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.spent = 0.0
        self.rounds = 0.0
        self._use_machine_code = False
        self.forget_helper()

    def forget_helper(self) -> None:
        """None has been started: at first, and in a forked process, whose parent it belongs to."""
        self._helper: subprocess.Popen[bytes] | None = None
        self._tried = False
        self._next_look = self._give_up = 0.0
        self._looking = threading.Lock()

    @classmethod
    def of(cls, kind: str, name: str | None) -> Bundle:
        """The one of this process."""
        return cls._all.setdefault((kind, name), cls(name))

    def spend(self, seconds: float, rounds: float) -> None:
        """So much more interpreted work has been done, for so many rounds."""
        self.spent += seconds
        self.rounds += rounds

    def rounds_per_call(self, n_rounds: int) -> int:
        """How many of so many rounds to come should be played in one call: few while they are interpreted."""
        if self.rounds == 0.0:
            return n_rounds if self.use_machine_code() else 1
        per_round = self.spent / self.rounds
        return n_rounds if self.use_machine_code(n_rounds * per_round) else max(1, int(A_CALL / per_round))

    def use_machine_code(self, more: float = 0.0) -> bool:
        """Whether to use machine code from now on, where about `more` seconds of interpreted work are to come."""
        chosen = mode()
        if chosen == "off":
            return False
        if chosen == "now":
            self._use_machine_code = True  # and so it stays: what is loaded need not be loaded again
        if not self._use_machine_code and self._looking.acquire(blocking=False):  # one thread decides for all
            try:
                self._use_machine_code = self._pays(more)
            finally:
                self._looking.release()
        return self._use_machine_code

    def switch(self) -> None:
        """Use machine code from now on, before it pays: for a server, which has time before its first request."""
        self._use_machine_code = mode() != "off"

    def _pays(self, more: float) -> bool:
        now = time.monotonic()
        if self.spent + more < HELPER_AFTER or now < self._next_look:
            return False
        self._next_look = now + LOOK_EVERY
        if self.on_disk():
            return max(self.spent, more) > LOADING
        if max(self.spent, more) > MAKING and not self._helper_is_at_work(now):
            return True
        if more > 2.0 * MAKING:  # longer than the rest of what the helper has to do
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
        """Whether a helper, or an earlier process, has made all of it."""
        marker = self._marker()
        return marker is not None and marker.exists()

    def _marker(self) -> Path | None:
        folder = None if self.name is None else _cache_folder()
        return None if folder is None else folder / f"compiled-{self.name}-{_made_by()}"

    def mark_on_disk(self) -> None:
        marker = self._marker()
        if marker is not None:
            marker.touch(mode=0o600)

    def _start_helper(self) -> subprocess.Popen[bytes] | None:
        """A process that compiles; none where nothing is kept, or where `sys.executable` is not Python."""
        is_python = "python" in Path(sys.executable or "").name.lower() and not getattr(sys, "frozen", False)
        if self._marker() is None or not is_python:
            return None
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-P", "-m", "alphafair.compile", str(self.name)]
        try:
            return subprocess.Popen(  # noqa: S603 - this Python, our own names
                command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, env=_helper_environment()
            )
        except (OSError, ValueError):  # a helper must not fail a decision
            return None

    def leave_helper(self) -> None:
        """This process ends; a helper ends by itself, and what it makes serves the next process."""
        if self._helper is not None and self._helper.poll() is None:
            self._helper.returncode = 0  # nobody is warned of a process that is left alone on purpose


@cache
def _made_by() -> str:
    """What machine code depends on beside its source: markers of another Python, Numba or machine do not count."""
    return f"{sys.implementation.cache_tag}-{platform.machine()}-numba-{importlib.metadata.version('numba')}"


def _helper_environment() -> dict[str, str]:
    """This process's, with the same search path, and kernels compiled at once."""
    path = os.pathsep.join(entry for entry in sys.path if isinstance(entry, str) and entry)
    return {**os.environ, "ALPHAFAIR_JIT": "now", "PYTHONPATH": path}


def _leave_helpers() -> None:
    for bundle in Bundle._all.values():
        bundle.leave_helper()


def _forget_helpers() -> None:
    """In a forked process: no helper is its own, and no lock is held by a thread that it does not have."""
    global _compiling
    _compiling = threading.RLock()
    for bundle in Bundle._all.values():
        if bundle._helper is not None:
            bundle._helper.returncode = 0
        bundle.forget_helper()


atexit.register(_leave_helpers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)
