"""Unaligned loads in either byte order from memory addresses, and prefetches, for the decoding kernels.

A kernel takes the address of its buffer once and then reads ``be16(p + 12)``, as a protocol description would put
it. Passing the array to a helper would leave reference counting in the loop (measured: four times slower). Nothing
here checks bounds: the caller has compared ``p`` with the end of the captured bytes. Everything is int64, because
the sum of a signed and an unsigned number would be a float.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["be16", "be32", "be64", "le16", "le32", "le64", "prefetch", "u8"]


def _loader(bits: int, big_endian: bool) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            if big_endian:
                value = builder.bswap(value)
            return builder.zext(value, ir.IntType(64)) if bits < 64 else value

        return types.int64(types.int64), codegen

    return load


u8 = _loader(8, False)
be16 = _loader(16, True)
be32 = _loader(32, True)
be64 = _loader(64, True)
le16 = _loader(16, False)
le32 = _loader(32, False)
le64 = _loader(64, False)


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Prefetch the cache line at an address, which need not be valid."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        i32 = ir.IntType(32)
        pointer = builder.inttoptr(args[0], byte_pointer)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte_pointer], ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
        )
        builder.call(
            function, [pointer, i32(0), i32(3), i32(1)]
        )  # for reading, keep in all caches, data cache
        return context.get_dummy_value()

    return types.void(types.int64), codegen
