"""Asking for memory before it is needed.

With many contexts a learner's row is in no cache when its round comes, and waiting for it takes longer than the round
itself. A run knows the contexts of the rounds to come, so it asks a few rounds ahead. Results do not depend on it.
"""

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from alphafair.jit import kernel

LINE, MOST_BYTES = 64, 1024  # what a cache loads at once; past so many bytes it sees the pattern itself


def _no_hint(array: Any, row: int, offset: int) -> None:
    """What remains of the hint in plain Python."""


@intrinsic
def _hint(typing_context: Any, array: Any, row: Any, offset: Any) -> Any:
    """LLVM's prefetch of the cache line that is `offset` bytes into array[row], to be written, kept in all caches."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # pragma: no cover
        header = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(header.strides, 0)
        place = builder.add(builder.mul(arguments[1], stride), arguments[2])
        address = builder.gep(builder.bitcast(header.data, ir.IntType(8).as_pointer()), [place])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(prefetch, [address, number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), codegen  # pragma: no cover


settings: Any = numba.config
hint: Any = _no_hint if settings.DISABLE_JIT else _hint


@kernel
def prefetch(array, row):
    """Ask for the first bytes of array[row]."""
    for offset in range(0, min(array.strides[0], MOST_BYTES), LINE):
        hint(array, row, offset)
