"""Numba compilers for kernels: those that only other kernels call are linked into them, and optimised there.

Numba optimises and emits every function by itself, and again inside each of its callers. A kernel that Python never
calls needs neither, and this is most of the time of compiling. So compiling such a kernel stops at LLVM IR; a kernel
that Python calls is linked with everything it needs, optimised once, and emitted. Imported on first use, with Numba.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_environments: dict[str, Any] = {}  # of inner kernels, by variable name


class _InnerCodegen:
    """The `codegen` of an inner library: stores environments until the entry library has a variable for them."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        _environments[name] = environment


class InnerLibrary(JITCodeLibrary):
    """Code to be linked into other code: neither optimised nor emitted."""

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


def inner(function: Any, **options: Any) -> Any:
    """Return the dispatcher of a kernel that other kernels call."""
    unlisted: Any = {**options, "no_cpython_wrapper": True}  # options that Numba's type hints omit
    return numba.njit(pipeline_class=InnerCompiler, **unlisted)(function)


def entry(function: Any, **options: Any) -> Any:
    """Return the dispatcher of a kernel that Python calls."""
    return numba.njit(pipeline_class=EntryCompiler, **options)(function)
