"""The handshake RTT of a TCP connection: from its SYN to the ACK that ends the handshake.

It is a whole round trip wherever the tap is: SYN to SYN/ACK is the part beyond the tap, SYN/ACK to ACK the part before
it. The initiator's first segment that has ACK, neither SYN nor RST, and starts where data starts after the SYN ends
the handshake. It gives an RTT only if it is certain which transmission was answered (Karn's algorithm, RFC 6298
section 3), even if lost copies never passed the tap:

- **The SYN** passed once before its SYN/ACK; or more than once, and the SYN/ACK echoes the timestamp of the newest
  (TSecr, RFC 7323 section 3), which no earlier one had. An echo of an *older* SYN proves nothing: Linux echoes the
  first SYN also when it answers the second.
- **The SYN/ACK** passed once; or more than once, and the ACK echoes the timestamp of the newest, which no earlier one
  had. The time from the first SYN/ACK to the last then belongs to neither half and is left out.
- **The ACK** carries no data, and acknowledges the SYN/ACK and nothing beyond. Data waits for the application, and if
  no ACK came before it, the ACK was lost, perhaps with the first copy of the data.
- **Each half** took no longer than ``LONGEST_HALF_NS``. A later answer may be to a copy that the retransmission timer
  sent after the first was lost before the tap.
- **Where both sides use timestamps,** every echo matches the segment answered.
- **If no SYN/ACK passed the tap** (routes are often asymmetric), the SYN passed once, the whole handshake took no
  longer than ``LONGEST_HALF_NS``, and the tap saw nothing else from the other side. One error remains possible: the
  ACK is lost before the tap, and within that time another one follows that acknowledges data the tap cannot see.

A SYN or SYN/ACK that passes again within ``COPY_NS`` with the same timestamp is a copy made by a mirror port or a
second interface; the first counts.

The functions are inlined into kernels. `opening` is a record with the fields of ``OPENING``.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from .._support.kernels import inlined
from ..capture.protocols import ACK, FIN, RST, SYN

__all__ = [
    "COPY_NS",
    "LONGEST_HALF_NS",
    "OPENING",
    "is_syn",
    "syn_rtt",
    "take_ack",
    "take_answer",
    "take_syn",
]

#: Below the time after which a SYN or SYN/ACK is retransmitted: 1 s (RFC 6298 section 2.1; 3 s before 2011), less up
#: to a tick with coarse timers (0.99 s is common). Echoed timestamps do not help: both copies of a SYN/ACK echo the
#: same SYN.
LONGEST_HALF_NS = 900_000_000
#: A segment that passes again within this time was recorded twice, not sent twice.
COPY_NS = 1_000_000

#: A handshake under way. All zero means "nothing seen yet".
OPENING = np.dtype(
    [
        ("syn_ns", "i8"),  # when the newest SYN passed, plus the time from the first SYN/ACK to the last
        ("answer_ns", "i8"),  # when the newest SYN/ACK passed
        ("first", "u4"),  # where data starts after the SYN
        ("first_data", "u4"),  # and after the SYN's own payload (TCP Fast Open)
        ("answer", "u4"),  # what acknowledges the SYN/ACK
        ("syn_tsval", "u4"),  # of the newest; 0: it had none
        ("answer_tsval", "u4"),
        ("bits", "u4"),
    ]
)
assert OPENING.itemsize == 40

# Bits of `OPENING.bits`.
_UNDER_WAY = 1
_SYN_AGAIN = 2  # the SYN passed more than once before its SYN/ACK
_SYN_ALIKE = 4  # the newest SYN cannot be told from an earlier one
_ANSWERED = 8
_ANSWER_AGAIN = 16
_ANSWER_ALIKE = 32
_UNCERTAIN = 64  # which SYN the SYN/ACK answers
_BACKWARDS = 128  # the clock was set back between SYN and SYN/ACK
_OTHER_DATA = 256  # the other side sent something before, or without, its SYN/ACK


@inlined
@no_type_check  # numba types it
def is_syn(flags):
    """Whether a segment opens a connection."""
    return flags & (SYN | ACK | RST) == SYN


@inlined
@no_type_check
def _is_newer(tsval, known):
    """Whether a timestamp distinguishes a segment from an earlier one."""
    return tsval != 0 and known != 0 and np.int32(tsval - known) > 0


@inlined
@no_type_check
def _echoes(tsecr, tsval, again):
    """Whether a segment can answer the newest one, with `tsval`; if that passed `again`, only an echo proves it."""
    if tsecr != 0 and tsval != 0:
        return tsecr == tsval
    return not again


@inlined
@no_type_check
def take_syn(opening, now, seq, payload_bytes, tsval):
    """Take in a SYN of the initiator."""
    first = np.uint32(seq + np.uint32(1))
    bits = np.int64(opening.bits)
    if bits & _UNDER_WAY == 0 or first != opening.first:
        opening.syn_ns = now
        opening.first = first
        opening.first_data = np.uint32(first + payload_bytes)
        opening.syn_tsval = tsval
        opening.bits = _UNDER_WAY
    elif bits & _ANSWERED == 0 and not (tsval == opening.syn_tsval and 0 <= now - opening.syn_ns < COPY_NS):
        if _is_newer(tsval, opening.syn_tsval):
            opening.syn_ns = now
            opening.syn_tsval = tsval
            opening.bits = (bits | _SYN_AGAIN) & ~_SYN_ALIKE
        else:
            opening.bits = bits | _SYN_AGAIN | _SYN_ALIKE
            if tsval == 0:
                opening.syn_tsval = 0  # no later one can be told from this


@inlined
@no_type_check
def take_answer(opening, now, seq, ack, flags, tsval, tsecr):
    """Take in what the other side sends after a SYN.

    Parameters
    ----------
    opening : record of :data:`OPENING`
        The handshake's state; updated.
    now : int64
        Time in ns.
    seq, ack, flags, tsval, tsecr : int
        The segment's fields; timestamps are 0 where there are none.
    """
    bits = np.int64(opening.bits)
    if flags & (SYN | ACK | RST) != SYN | ACK or (ack != opening.first and ack != opening.first_data):
        if bits & _ANSWERED == 0:
            opening.bits = bits | _OTHER_DATA
        return
    answer = np.uint32(seq + np.uint32(1))
    if bits & _ANSWERED == 0:
        took = now - opening.syn_ns
        is_clear = bits & _SYN_ALIKE == 0 and _echoes(tsecr, opening.syn_tsval, bits & _SYN_AGAIN != 0)
        bits |= _ANSWERED
        if took < 0:
            bits |= _BACKWARDS
        if not is_clear or took > LONGEST_HALF_NS:
            bits |= _UNCERTAIN
        opening.answer_tsval = tsval
    else:
        since = now - opening.answer_ns
        if tsval == opening.answer_tsval and answer == opening.answer and 0 <= since < COPY_NS:
            return
        opening.syn_ns += since
        bits |= _ANSWER_AGAIN
        if _is_newer(tsval, opening.answer_tsval):
            bits &= ~_ANSWER_ALIKE
            opening.answer_tsval = tsval
        else:
            bits |= _ANSWER_ALIKE
            if tsval == 0:
                opening.answer_tsval = 0
    opening.answer_ns = now
    opening.answer = answer
    opening.bits = bits


@inlined
@no_type_check
def syn_rtt(opening):
    """The half beyond the tap, from the SYN to the SYN/ACK, of a handshake that gives an RTT.

    Returns
    -------
    rtt_ns : int64
        At most :data:`LONGEST_HALF_NS`; -1 if no SYN/ACK passed the tap.
    """
    if np.int64(opening.bits) & _ANSWERED == 0:
        return np.int64(-1)
    return opening.answer_ns - opening.syn_ns


@inlined
@no_type_check
def take_ack(opening, now, seq, ack, flags, payload_bytes, tsecr):
    """Take in another segment of the initiator.

    Parameters
    ----------
    opening : record of :data:`OPENING`
        The handshake's state; updated.
    now : int64
        Time in ns.
    seq, ack, flags, payload_bytes, tsecr : int
        The segment's fields; the echoed timestamp is 0 where there is none.

    Returns
    -------
    done : bool
        The handshake is over.
    certain : bool
        It gives an RTT.
    rtt_ns : int64
        Negative if the clock was set back.
    """
    bits = np.int64(opening.bits)
    rtt_ns = now - opening.syn_ns
    done = flags & (SYN | ACK | RST) == ACK and (seq == opening.first or seq == opening.first_data)
    certain = done and flags & FIN == 0 and payload_bytes == 0
    if bits & _ANSWERED != 0:
        took = now - opening.answer_ns
        if took < 0 or bits & _BACKWARDS != 0:
            rtt_ns = np.int64(-1)
        certain &= ack == opening.answer and bits & (_UNCERTAIN | _ANSWER_ALIKE) == 0
        certain &= took <= LONGEST_HALF_NS and _echoes(tsecr, opening.answer_tsval, bits & _ANSWER_AGAIN != 0)
    else:
        certain &= bits & (_SYN_AGAIN | _OTHER_DATA) == 0 and rtt_ns <= LONGEST_HALF_NS
    return done, certain, rtt_ns
