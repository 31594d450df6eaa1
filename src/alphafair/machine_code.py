"""How kernels become machine code: those that only other kernels call are linked into them, and optimised there.

Numba optimises every function on its own and emits it as machine code, then does so again inside each of its callers. A
kernel that Python never calls needs neither, and that is most of the time that compiling takes. So such a kernel stops
at LLVM's own language; a kernel that Python calls is linked with all that it needs, optimised once, and emitted.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_environments: dict[str, Any] = {}  # of inner kernels, by the names of the variables that hold them


class _InnerCodegen:
    """What Numba asks an inner library's `codegen` for: to remember an environment until there is a variable for it."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        _environments[name] = environment


class InnerLibrary(JITCodeLibrary):
    """Code to be linked into that of others: neither optimised nor emitted."""

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
    """Numba's own, into a library of our kind."""

    library: type[JITCodeLibrary] = InnerLibrary

    def compile_extra(self, func: Any) -> Any:
        self.state.library = self.library(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class EntryCompiler(InnerCompiler):
    library = EntryLibrary


def inner(function: Any, **options: Any) -> Any:
    """The dispatcher of a kernel that other kernels call."""
    unlisted: Any = {**options, "no_cpython_wrapper": True}  # options that Numba takes, and its types leave out
    return numba.njit(pipeline_class=InnerCompiler, **unlisted)(function)


def entry(function: Any, **options: Any) -> Any:
    """The dispatcher of a kernel that Python calls."""
    return numba.njit(pipeline_class=EntryCompiler, **options)(function)
