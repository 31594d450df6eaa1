"""Numba compilers for kernels: those that only other kernels call are linked into them, and optimized there.

Numba optimizes and emits every function by itself, and again inside each of its callers. A kernel that Python never
calls needs neither, and this is most of the time of compiling. So compiling such a kernel stops at LLVM IR; a kernel
that Python calls is linked with everything it needs, optimized once, and emitted. Imported on first use, with Numba.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_environments: dict[str, Any] = {}  # of inner kernels, by variable name


class _InnerCodegen:
    """The `codegen` of an inner library: stores environments until the entry library has a variable for them."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        _environments[name] = environment


class InnerLibrary(JITCodeLibrary):
    """Code to be linked into other code: neither optimized nor emitted."""

    codegen = _InnerCodegen()

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class EntryLibrary(JITCodeLibrary):
    """Machine code that Python calls."""

    def _finalize_final_module(self) -> None:
        super()._finalize_final_module()
        for variable in self._final_module.global_variables:
            if variable.name in _environments:
                self.codegen.set_env(variable.name, _environments[variable.name])


class InnerCompiler(Compiler):
    """Numba's compiler, with a library of another class."""

    library: type[JITCodeLibrary] = InnerLibrary

    def compile_extra(self, func: Any) -> Any:
        self.state.library = self.library(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class EntryCompiler(InnerCompiler):
    library = EntryLibrary


class _Locator(_CacheLocator):
    """Caches a kernel in a folder named after its module, whatever path that has.

    Nothing needs to be compared with the source: the folder above is named after the fingerprint of all kernels.
    """

    folder: Path  # set by `_cache_in`

    def __init__(self, function: Any) -> None:
        self._path, self._line = self.folder / function.__module__, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, _path: str) -> _Locator:
        return cls(function)

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return ""

    def get_disambiguator(self) -> str:
        return str(self._line)


def _cache_in(folder: Path, function: Any) -> FunctionCache:
    """Return the cache of a kernel in this folder."""
    locator = type("Locator", (_Locator,), {"folder": folder})
    results = type("Results", (CompileResultCacheImpl,), {"_locator_classes": [locator]})
    cache: type[FunctionCache] = type("Cache", (FunctionCache,), {"_impl_class": results})
    return cache(function)


def inner(function: Any, **options: Any) -> Any:
    """Return the dispatcher of a kernel that other kernels call."""
    unlisted: Any = {**options, "no_cpython_wrapper": True}  # options that Numba's type hints omit
    return numba.njit(pipeline_class=InnerCompiler, **unlisted)(function)


def entry(function: Any, folder: Path | None = None, **options: Any) -> Any:
    """Return the dispatcher of a kernel that Python calls, with machine code cached in `folder`."""
    dispatcher = numba.njit(pipeline_class=EntryCompiler, **options)(function)
    if folder is not None and hasattr(dispatcher, "overloads"):  # not with NUMBA_DISABLE_JIT
        dispatcher._cache = _cache_in(folder, function)
    return dispatcher
