"""Stores to memory addresses for kernels, the mirror image of :mod:`._load`.

Nothing here checks bounds: the caller has made sure that the buffer is long enough. The address must be int64; the
value is truncated to the width of the store.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["put_be16", "put_be32", "put_be64", "put_le32", "put_le64"]


def _storer(bits: int, big_endian: bool) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = builder.trunc(args[1], ir.IntType(bits)) if bits < 64 else args[1]
            if big_endian:
                word = builder.bswap(word)
            builder.store(word, builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


put_be16 = _storer(16, True)
put_be32 = _storer(32, True)
put_be64 = _storer(64, True)
put_le32 = _storer(32, False)
put_le64 = _storer(64, False)
