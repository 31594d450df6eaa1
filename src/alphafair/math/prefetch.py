"""Asking for memory before it is needed.

With many contexts the rows of one are in no cache when its round comes, and waiting for them takes longer than the
round itself. A run knows the contexts of the rounds to come, so it asks a few rounds ahead. Results are the same.
"""

from typing import Any

from alphafair.jit import kernel

LINE, MOST_BYTES = 64, 1024  # what a cache loads at once; past so many bytes it sees the pattern itself


def _hint() -> Any:  # pragma: no cover - machine code alone
    """LLVM's prefetch of the cache line that is `offset` bytes into array[row], to be written, kept in all caches."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def hint(typing_context: Any, array: Any, row: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            header = context.make_array(signature.args[0])(context, builder, arguments[0])
            stride = builder.extract_value(header.strides, 0)
            place = builder.add(builder.mul(arguments[1], stride), arguments[2])
            address = builder.gep(builder.bitcast(header.data, ir.IntType(8).as_pointer()), [place])
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
            builder.call(prefetch, [address, number(1), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp), codegen

    return hint


@kernel
def hint(array, row, offset):
    """What remains of the hint in plain Python: nothing."""


hint.__kernel__["instead"] = _hint


@kernel
def prefetch(array, row):
    """Ask for the first bytes of array[row]."""
    for offset in range(0, min(array.strides[0], MOST_BYTES), LINE):
        hint(array, row, offset)
