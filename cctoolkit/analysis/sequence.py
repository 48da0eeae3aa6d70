"""TCP sequence numbers, which are modulo 2**32 (RFC 9293, section 3.4)."""

from __future__ import annotations

import numba

__all__ = ["UNSEEN", "ahead", "is_foreign"]

#: An ACK this far beyond the highest byte sent is believed (its data passes later, or was not captured), others not.
UNSEEN = 1 << 20


@numba.njit(inline="always")
def ahead(a, b):
    """How far sequence number `a` is ahead of `b` modulo 2**32, negative if behind; both int64."""
    return ((a - b + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@numba.njit(inline="always")
def is_foreign(ack, end):
    """Whether an acknowledgement is for another connection: far beyond `end`, the number after the last byte sent.

    A host that still knows an earlier connection of the same ports answers a SYN with an ACK of that one (RFC 9293,
    section 3.5.1; RFC 5961, section 4).
    """
    return ahead(ack, end) > UNSEEN
