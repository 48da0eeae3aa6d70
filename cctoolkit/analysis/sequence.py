"""TCP sequence numbers, which are modulo 2**32 (RFC 9293, section 3.4)."""

from __future__ import annotations

import numba

__all__ = ["ahead"]


@numba.njit(inline="always")
def ahead(a, b):
    """How far sequence number `a` is ahead of `b` modulo 2**32, negative if behind; both int64."""
    return ((a - b + 0x80000000) & 0xFFFFFFFF) - 0x80000000
