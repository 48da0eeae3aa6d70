"""The loops behind :mod:`cctoolkit.analysis.rtt`: one pass over the packets for each method.

Outstanding segments (or timestamps) wait in FIFO lists, one per flow and direction, whose nodes all come from one
pool. Node 0 means "none", and freed nodes form a list of their own. A kernel that needs a node when none is left
returns the row it stopped at, before that row has changed anything; the caller makes the pool larger and calls again,
so nothing is ever lost.

Both directions of a flow sit in one cache line: a packet touches the list it may acknowledge and the list it may join.
All zero means "nothing seen yet".

Numbers are compared as on the wire, modulo 2**32, by the sign of their 32-bit difference.
"""

from __future__ import annotations

from collections import namedtuple
from typing import no_type_check

import numpy as np

from .._support.kernels import inlined, kernel
from ..capture._load import le32, le64, prefetch
from ..capture._store import put_le32, put_le64
from ..capture.protocols import ACK, RST, SYN
from .flow_kernels import OLD_COPY_NS
from .handshake import OPENING, is_syn, take_ack, take_answer, take_syn
from .sequence import UNSEEN

__all__ = [
    "CRC32C_TABLE",
    "CRC32_TABLE",
    "DATA_PLANE_COUNTS",
    "LIST_COUNTS",
    "NODE",
    "OPENING",
    "SENDER",
    "Geometry",
    "Handshakes",
    "Lists",
    "Samples",
    "Segments",
    "StampedSegments",
    "Stamps",
    "Tables",
    "data_plane",
    "fingerprints",
    "group_quantiles",
    "handshake",
    "number_fingerprints",
    "seq_ack",
    "timestamps",
]

#: Nothing in TCP is further apart: the largest window is 2**30 bytes (RFC 7323, section 2.3).
FAR = 1 << 30
BACK = FAR + UNSEEN
#: A SYN that starts this close below the highest byte sent is the old SYN again; any other opens a new connection.
SAME_SYN = 1 << 16

# ---- What kernels are given ------------------------------------------------------------------------------------------

#: Columns of the packets table (:data:`cctoolkit.schema.PACKETS` has their dtypes and units), all of one length.
Segments = namedtuple("Segments", "ts_ns flow_id direction seq ack tcp_flags payload_bytes")
#: The same for the method that pairs timestamps, and for that of handshakes.
Stamps = namedtuple("Stamps", "ts_ns flow_id direction tcp_flags tsval tsecr has_ts")
StampedSegments = namedtuple(
    "StampedSegments", "ts_ns flow_id direction seq ack tcp_flags payload_bytes tsval tsecr"
)
#: Where samples are written, one a packet at most: the row of the packet that completes one (int64), its time in ns
#: since the Unix epoch (int64), its flow (uint32), the direction of what it acknowledges (int8), the RTT in ns (int64).
Samples = namedtuple("Samples", "packet ts_ns flow_id direction rtt_ns")
#: What is outstanding: `initiators` and `responders` of :data:`SENDER`, by flow number, apart because many flows are
#: seen in one direction only; `pool` of :data:`NODE`; and `counts`, one record of :data:`LIST_COUNTS`.
Lists = namedtuple("Lists", "initiators responders pool counts")
#: Handshakes under way: `stage`, uint8, see :data:`SYN_OF`, and `openings` of :data:`OPENING`, both by flow number, and
#: `counts`, one record of :data:`LIST_COUNTS`.
Handshakes = namedtuple("Handshakes", "stage openings counts")
#: The tables of a switch: `entries`, uint64, two words an entry (signature with :data:`VOID`, time in ns), table after
#: table, the second direction's behind the first's; and `counts`, one record of :data:`DATA_PLANE_COUNTS`.
Tables = namedtuple("Tables", "entries counts")

#: One direction of a flow, as a sender.
SENDER = np.dtype(
    [
        ("head", "u4"),  # oldest node of its list
        ("tail", "u4"),  # newest
        ("nxt", "u4"),  # end of the highest byte sent (or the last TSval recorded)
        ("una", "u4"),  # highest acknowledgement (or echo); without one yet, the first byte sent
        # What ends above `low` and not above `high` is in doubt; if they are equal, nothing is.
        ("low", "u4"),  # the lowest byte that was sent again
        ("high", "u4"),  # `nxt` when something was last sent again
        ("bits", "u4"),  # SEEN, SENT, ACKED; above them, nodes listed while the other side was not seen
        ("unused", "u4"),
    ]
)
assert SENDER.itemsize == 32

SEEN = 1  # a segment of this direction was seen
SENT = 2  # nxt holds
ACKED = 4  # una is an acknowledgement
LENGTH_SHIFT = 3
ONE_MORE = 1 << LENGTH_SHIFT

#: Something outstanding: when it passed, what acknowledges it, and the node of the next newer one.
NODE = np.dtype([("ts_ns", "i8"), ("number", "u4"), ("next", "u4")])
assert NODE.itemsize == 16
_NUMBER, _NEXT = 8, 12  # bytes from a node's address

#: What was counted; before it, where the pool stands: its first free node, and how many were ever used.
LIST_COUNTS = np.dtype(
    [
        ("free", "i8"),
        ("used", "i8"),
        ("segments", "i8"),
        ("samples", "i8"),
        ("retransmitted", "i8"),
        ("karn_suppressed", "i8"),
        ("one_way_dropped", "i8"),
        ("backwards", "i8"),
    ]
)

SENDER_BYTES, NODE_BYTES = SENDER.itemsize, NODE.itemsize

#: In place of an RTT.
NO_SAMPLE = -1

_1, _2 = np.uint64(1), np.uint64(2)  # unsigned indices spare numba the check for negative ones
_SENDER_AHEAD, _NODE_AHEAD = np.uint64(16), np.uint64(6)

# ---- Lists of what is outstanding ------------------------------------------------------------------------------------
# `pool` is the pool's address in what follows.


@inlined
@no_type_check  # numba types it
def _number_of(pool, node):
    return le32(pool + 16 * node + _NUMBER)


@inlined
@no_type_check
def _next_of(pool, node):
    return le32(pool + 16 * node + _NEXT)


@inlined
@no_type_check
def _set_next(pool, node, after):
    put_le32(pool + 16 * node + _NEXT, after)


@inlined
@no_type_check
def _release(pool, counts, head, tail):
    """Free the nodes from `head` to `tail`, a whole run at once."""
    _set_next(pool, tail, counts.free)
    counts.free = head


@inlined
@no_type_check
def _forget_list(pool, counts, own):
    """Free all nodes of a sender."""
    if own.head != 0:
        _release(pool, counts, np.int64(own.head), np.int64(own.tail))
        own.head = 0
        own.tail = 0


@inlined
@no_type_check
def _drop_covered(pool, counts, sender, number):
    """Drop a sender's nodes up to `number`.

    Returns
    -------
    covered : bool
        Whether there were any.
    newest : uint32
        Number of the newest of them.
    sent_ns : int64
        Its time.
    """
    head = np.int64(sender.head)
    last = np.int64(0)
    node = head
    newest = np.uint32(0)
    while node != 0:
        its = np.uint32(_number_of(pool, node))
        if np.int32(its - number) > 0:
            break
        last = node
        newest = its
        node = _next_of(pool, node)
    sent_ns = np.int64(0)
    if last != 0:
        sent_ns = le64(pool + 16 * last)
        _release(pool, counts, head, last)
        sender.head = node
        if node == 0:
            sender.tail = 0
    return last != 0, newest, sent_ns


@inlined
@no_type_check
def _insert(pool, own, before, node, ts_ns, number):
    """Insert a node into a sender's list, after node `before` (0: as its oldest)."""
    if before == 0:
        after = np.int64(own.head)
        own.head = node
    else:
        after = _next_of(pool, before)
        _set_next(pool, before, node)
    if after == 0:
        own.tail = node
    put_le64(pool + 16 * node, ts_ns)
    put_le32(pool + 16 * node + _NUMBER, np.int64(number))
    _set_next(pool, node, after)


@inlined
@no_type_check
def _wait_for(pool, counts, own, before, ts_ns, number, bits, alone, one_way_limit):
    """Await the acknowledgement of `number`, which passed at `ts_ns`; return the sender's new bits.

    While the other direction was not seen (`alone`), no more than `one_way_limit` nodes wait: the oldest is used again.
    The caller ensures that there is a free node.

    Parameters
    ----------
    pool : int
        Address of the pool of :data:`NODE`.
    counts : record of :data:`LIST_COUNTS`
        What is counted.
    own : record of :data:`SENDER`
        The sender.
    before : int
        The node to insert it after; 0: as the oldest.
    ts_ns : int64
        When it passed.
    number : uint32
        What acknowledges it.
    bits : int64
        The sender's bits.
    alone : bool
        Whether the other direction was not seen.
    one_way_limit : int
        Most nodes that wait while `alone`.
    """
    counts.segments += 1
    if alone and bits >> LENGTH_SHIFT >= one_way_limit:
        counts.one_way_dropped += 1
        node = np.int64(own.head)
        own.head = _next_of(pool, node)
        if before == node:
            before = np.int64(0)
    else:
        bits += ONE_MORE * alone
        node = counts.free
        if node != 0:
            counts.free = _next_of(pool, node)
        else:
            node = counts.used
            counts.used += 1
    _insert(pool, own, before, node, ts_ns, number)
    return bits


@inlined
@no_type_check
def _numbers_taken(payload_bytes, flags):
    """Sequence numbers that a segment takes: its payload, and one each for SYN and FIN."""
    return np.uint32(payload_bytes + np.uint32((flags >> 1) & 1) + np.uint32(flags & 1))


# ---- Segments and their ACKs -----------------------------------------------------------------------------------------


@inlined
@no_type_check
def _acknowledge(pool, counts, sender, bits, a, now):
    """Take in acknowledgement `a` of a sender with these bits; return the RTT."""
    rtt = np.int64(NO_SAMPLE)
    ahead = np.int32(a - sender.nxt)
    una = sender.una
    if bits & SENT == 0:
        # Nothing of the sender was seen yet; remember what is acknowledged all the same.
        if bits & ACKED == 0 or np.int32(a - una) > 0:
            sender.una = a
            sender.bits = bits | ACKED
    elif -FAR <= ahead <= UNSEEN:
        low, high = sender.low, sender.high
        covered, end, sent_ns = _drop_covered(pool, counts, sender, a)
        if covered and end == a:
            if low != high and np.int32(a - low) > 0 and np.int32(a - high) <= 0:
                counts.karn_suppressed += 1
            elif now - sent_ns < 0:
                counts.backwards += 1
            else:
                rtt = now - sent_ns
        if bits & ACKED == 0 or np.int32(a - una) > 0:
            sender.una = a
            sender.bits = bits | ACKED
            if low != high and np.int32(a - low) > 0:
                sender.low = a if np.int32(a - high) < 0 else high
    return rtt


@inlined
@no_type_check
def _starts_anew(own, s, e, flags):
    """Whether a segment from `s` to `e` cannot belong to what its sender has sent before.

    It opens a new connection, jumps further than any window allows, or nothing was acknowledged for a gigabyte.
    """
    gap = np.int32(s - own.nxt)
    if flags & SYN != 0:
        return gap >= 0 or gap < -SAME_SYN
    waited = np.uint32(e - own.una + BACK)  # from -BACK on, which 0 stands for
    return gap > FAR or gap <= -FAR or waited > BACK + FAR


@inlined
@no_type_check
def _start(pool, counts, own, s, e, bits, anew):
    """Start a sender, perhaps anew, with a segment from `s` to `e`; return the sender's new bits.

    Parameters
    ----------
    pool : int
        Address of the pool of :data:`NODE`.
    counts : record of :data:`LIST_COUNTS`
        What is counted.
    own : record of :data:`SENDER`
        The sender.
    s, e : uint32
        First sequence number, and the first one after the segment.
    bits : int64
        The sender's bits.
    anew : bool
        Whether the sender was known, and starts again elsewhere.
    """
    _forget_list(pool, counts, own)
    own.low = 0
    own.high = 0
    behind = np.int32(e - own.una)
    if anew or bits & ACKED == 0 or behind > FAR or behind < -UNSEEN:
        own.una = s
        bits &= ~ACKED
    return (bits & (SEEN | ACKED)) | SENT


@inlined
@no_type_check
def _place_by_end(pool, own, e):
    """Without Karn's rule: where a segment that ends at `e` belongs in the list, which is ordered by ends.

    Returns
    -------
    before : int64
        The node to insert it after; 0 for none.
    known : bool
        A segment with this end is waiting already: the first transmission keeps its place.
    """
    before = np.int64(own.tail)
    known = False
    if before != 0 and np.int32(e - np.uint32(_number_of(pool, before))) <= 0:
        before = np.int64(0)
        node = np.int64(own.head)
        while node != 0 and np.int32(np.uint32(_number_of(pool, node)) - e) < 0:
            before = node
            node = _next_of(pool, node)
        known = node != 0 and np.uint32(_number_of(pool, node)) == e
    return before, known


@kernel
@no_type_check
def _was_recorded(pool, own, s, e, ts_ns):
    """Whether a segment from `s` to `e` is outstanding that passed so shortly before that it was not sent again.

    One that begins before the last byte that was acknowledged, or waits, ahead of it is not the same segment.
    """
    ahead = own.una
    node = np.int64(own.head)
    while node != 0 and np.int32(np.uint32(_number_of(pool, node)) - e) < 0:
        ahead = np.uint32(_number_of(pool, node))
        node = _next_of(pool, node)
    return (
        node != 0
        and np.int32(s - ahead) >= 0
        and np.uint32(_number_of(pool, node)) == e
        and 0 <= ts_ns - le64(pool + 16 * node) < OLD_COPY_NS
    )


@inlined
@no_type_check
def _send(pool, counts, own, s, e, flags, ts_ns, bits, alone, karn, one_way_limit):
    """Take in a segment from `s` to `e`; return the sender's new bits.

    Parameters
    ----------
    pool : int
        Address of the pool of :data:`NODE`.
    counts : record of :data:`LIST_COUNTS`
        What is counted.
    own : record of :data:`SENDER`
        The sender.
    s, e : uint32
        First sequence number, and the first one after the segment.
    flags : int
        TCP flags.
    ts_ns : int64
        Time of the segment.
    bits : int64
        The sender's bits.
    alone : bool
        Whether the other direction was not seen.
    karn : bool
        Whether retransmitted segments give no samples.
    one_way_limit : int
        Most nodes that wait while `alone`.
    """
    nxt = own.nxt
    anew = bits & SENT != 0 and _starts_anew(own, s, e, flags)
    if bits & SENT == 0 or anew:
        bits = _start(pool, counts, own, s, e, bits, anew)
        nxt = s
    beyond = np.int32(e - nxt) > 0
    una = own.una
    if np.int32(s - nxt) < 0:
        if karn and _was_recorded(pool, own, s, e, ts_ns):
            return bits
        counts.retransmitted += 1
        if karn and (bits & ACKED == 0 or np.int32((nxt if beyond else e) - una) > 0):
            if own.low == own.high or np.int32(s - own.low) < 0:
                own.low = s
            own.high = nxt
    if beyond:
        own.nxt = e
    before = np.int64(own.tail)
    if karn:
        # What was acknowledged before it passed the tap is not waited for.
        awaited = beyond and (bits & ACKED == 0 or np.int32(e - una) > 0)
    else:
        before, known = _place_by_end(pool, own, e)
        awaited = not known
    if awaited:
        bits = _wait_for(pool, counts, own, before, ts_ns, e, bits, alone, one_way_limit)
    return bits


@kernel
@no_type_check
def seq_ack(start, segments, karn, one_way_limit, lists, samples, found):
    """Pair segments with the ACKs that end where they end.

    Parameters
    ----------
    start : int
        Row to begin with.
    segments : Segments
        Packets in capture order.
    karn : bool
        Whether Karn's rule holds.
    one_way_limit : int
        How many segments of a direction wait until the other is seen.
    lists : Lists
        What is outstanding, of all flows; changed in place.
    samples : Samples
        Written from row `found` on.
    found : int
        Samples there are.

    Returns
    -------
    row : int
        The row reached. If packets remain, the pool has no free node left.
    found : int
        Samples there are now.
    """
    ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes = segments
    out_packet, out_ts, out_flow, out_direction, out_rtt = samples
    initiators, responders = lists.initiators, lists.responders
    pool = np.int64(lists.pool.ctypes.data)
    counts = lists.counts[0]
    capacity = len(lists.pool)
    n = np.uint64(len(ts_ns))
    m = np.uint64(found)
    i = np.uint64(start)
    initiator_address, responder_address = initiators.ctypes.data, responders.ctypes.data
    while i < n:
        if i + _SENDER_AHEAD < n:
            # The senders of a row to come, and of a nearer one the oldest node its ACK may cover: with many flows
            # each is a cache miss, and asked for early it costs a fifth less.
            ahead = np.int64(flow_id[i + _SENDER_AHEAD]) * SENDER_BYTES
            prefetch(initiator_address + ahead)
            prefetch(responder_address + ahead)
            near = i + _NODE_AHEAD
            if direction[near] & 1 != 0:
                oldest = initiators[flow_id[near]].head
            else:
                oldest = responders[flow_id[near]].head
            prefetch(pool + np.int64(oldest) * NODE_BYTES)
        flags = np.int64(tcp_flags[i])
        if flags == 0 or (karn and flags & RST != 0):
            i += _1
            continue
        if counts.free == 0 and counts.used >= capacity:  # this row may need a node
            break
        if direction[i] & 1 != 0:
            own, other = responders[flow_id[i]], initiators[flow_id[i]]
        else:
            own, other = initiators[flow_id[i]], responders[flow_id[i]]
        bits = np.int64(own.bits) | SEEN
        theirs = np.int64(other.bits)
        if flags & ACK != 0:
            rtt = _acknowledge(pool, counts, other, theirs, ack[i], ts_ns[i])
            if rtt != NO_SAMPLE:
                out_packet[m] = i
                out_ts[m] = ts_ns[i]
                out_flow[m] = flow_id[i]
                out_direction[m] = 1 - (direction[i] & 1)
                out_rtt[m] = rtt
                m += _1
        length = _numbers_taken(payload_bytes[i], flags)
        if length != 0:
            s = seq[i]
            e = np.uint32(s + length)
            alone = theirs & SEEN == 0
            bits = _send(pool, counts, own, s, e, flags, ts_ns[i], bits, alone, karn, one_way_limit)
        own.bits = bits
        i += _1
    return np.int64(i), np.int64(m)


# ---- Timestamps and their echoes -------------------------------------------------------------------------------------


@inlined
@no_type_check
def _echo(pool, counts, sender, echo, now):
    """Take in the echo of a sender's TSval; return the RTT."""
    rtt = np.int64(NO_SAMPLE)
    if -FAR <= np.int32(echo - sender.nxt) <= 0:
        covered, value, sent_ns = _drop_covered(pool, counts, sender, echo)
        if covered and value == echo:
            if now - sent_ns < 0:
                counts.backwards += 1
            else:
                rtt = now - sent_ns
        if np.int32(echo - sender.una) > 0:
            sender.una = echo
    return rtt


@inlined
@no_type_check
def _stamp(pool, counts, own, value, flags, ts_ns, bits, alone, one_way_limit):
    """Take in a sender's TSval; return the sender's new bits.

    Parameters
    ----------
    pool : int
        Address of the pool of :data:`NODE`.
    counts : record of :data:`LIST_COUNTS`
        What is counted.
    own : record of :data:`SENDER`
        The sender.
    value : uint32
        The segment's TSval.
    flags : int
        TCP flags.
    ts_ns : int64
        Time of the segment.
    bits : int64
        The sender's bits.
    alone : bool
        Whether the other direction was not seen.
    one_way_limit : int
        Most nodes that wait while `alone`.
    """
    is_new = True
    if bits & SENT != 0:
        gap = np.int32(value - own.nxt)
        anew = (
            gap > FAR
            or gap < -FAR
            or (gap < 0 and flags & SYN != 0)
            or np.uint32(value - own.una + BACK) > BACK + FAR
        )
        is_new = gap > 0 or anew
        if anew:
            _forget_list(pool, counts, own)
            own.una = value
            bits = SEEN | SENT
    else:
        own.una = value
        bits |= SENT
    if is_new:
        own.nxt = value
        bits = _wait_for(pool, counts, own, np.int64(own.tail), ts_ns, value, bits, alone, one_way_limit)
    else:
        counts.retransmitted += 1
    return bits


@kernel
@no_type_check
def timestamps(start, stamps, one_way_limit, lists, samples, found):
    """Pair the first occurrence of a TSval with its first echo.

    Parameters
    ----------
    start : int
        Row to begin with.
    stamps : Stamps
        Packets in capture order.
    one_way_limit : int
        How many TSvals of a direction wait until the other is seen.
    lists : Lists
        What is outstanding, of all flows; changed in place.
    samples : Samples
        Written from row `found` on.
    found : int
        Samples there are.

    Returns
    -------
    row, found : int
        As :func:`seq_ack`.
    """
    ts_ns, flow_id, direction, tcp_flags, tsval, tsecr, has_ts = stamps
    out_packet, out_ts, out_flow, out_direction, out_rtt = samples
    initiators, responders = lists.initiators, lists.responders
    pool = np.int64(lists.pool.ctypes.data)
    counts = lists.counts[0]
    capacity = len(lists.pool)
    n = np.uint64(len(ts_ns))
    m = np.uint64(found)
    i = np.uint64(start)
    while i < n:
        flags = np.int64(tcp_flags[i])
        if flags == 0 or not has_ts[i]:
            i += _1
            continue
        if counts.free == 0 and counts.used >= capacity:  # this row may need a node
            break
        if direction[i] & 1 != 0:
            own, other = responders[flow_id[i]], initiators[flow_id[i]]
        else:
            own, other = initiators[flow_id[i]], responders[flow_id[i]]
        bits = np.int64(own.bits) | SEEN
        theirs = np.int64(other.bits)
        if flags & ACK != 0 and tsecr[i] != 0 and theirs & SENT != 0:
            rtt = _echo(pool, counts, other, tsecr[i], ts_ns[i])
            if rtt != NO_SAMPLE:
                out_packet[m] = i
                out_ts[m] = ts_ns[i]
                out_flow[m] = flow_id[i]
                out_direction[m] = 1 - (direction[i] & 1)
                out_rtt[m] = rtt
                m += _1
        if tsval[i] != 0:
            alone = theirs & SEEN == 0
            bits = _stamp(pool, counts, own, tsval[i], flags, ts_ns[i], bits, alone, one_way_limit)
        own.bits = bits
        i += _1
    return np.int64(i), np.int64(m)


# ---- Handshakes ------------------------------------------------------------------------------------------------------

# What `stage` says of a flow: 0, nothing; its handshake is over; the SYN of direction 0 or 1 waits.
DONE = 1
SYN_OF = 2


@kernel
@no_type_check
def handshake(segments, handshakes, samples):
    """Pair each SYN with the ACK that ends its handshake.

    Parameters
    ----------
    segments : StampedSegments
        Packets in capture order.
    handshakes : Handshakes
        Those under way, for all flows; changed in place.
    samples : Samples
        Written from row 0 on.

    Returns
    -------
    found : int
        Number of samples.
    """
    ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes, tsval, tsecr = segments
    out_packet, out_ts, out_flow, out_direction, out_rtt = samples
    stage, openings = handshakes.stage, handshakes.openings
    counts = handshakes.counts[0]
    m = np.uint64(0)
    for i in range(np.uint64(len(ts_ns))):
        flags = np.int64(tcp_flags[i])
        if flags == 0:
            continue
        flow = np.uint64(flow_id[i])
        where = np.int64(stage[flow])
        if where < SYN_OF and not is_syn(flags):
            continue
        side = np.int64(direction[i] & 1)
        opening = openings[flow]
        if is_syn(flags):
            same = np.uint32(seq[i] + np.uint32(1)) == opening.first
            if where == DONE and same:
                continue  # a late copy of the SYN that was answered
            if where == SYN_OF + side and same:
                counts.retransmitted += 1
            else:
                counts.segments += 1
                opening.bits = 0
            take_syn(opening, ts_ns[i], seq[i], payload_bytes[i], tsval[i])
            stage[flow] = SYN_OF + side
        elif where != SYN_OF + side:
            take_answer(opening, ts_ns[i], seq[i], ack[i], flags, tsval[i], tsecr[i])
        else:
            done, certain, rtt = take_ack(
                opening, ts_ns[i], seq[i], ack[i], flags, payload_bytes[i], tsecr[i]
            )
            if not done:
                continue
            stage[flow] = DONE
            if not certain:
                counts.karn_suppressed += 1
            elif rtt < 0:
                counts.backwards += 1
            else:
                out_packet[m] = i
                out_ts[m] = ts_ns[i]
                out_flow[m] = flow_id[i]
                out_direction[m] = side
                out_rtt[m] = rtt
                m += _1
    return np.int64(m)


# ---- The data plane --------------------------------------------------------------------------------------------------


def _crc_table(reflected_polynomial: int) -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(reflected_polynomial), table >> 1)
    return table.astype(np.uint32)


#: CRC-32 (IEEE 802.3, polynomial 0x04C11DB7) and CRC-32C (Castagnoli, 0x1EDC6F41), both reflected, both starting
#: from and finally XORed with 0xFFFFFFFF.
CRC32_TABLE = _crc_table(0xEDB88320)
CRC32C_TABLE = _crc_table(0x82F63B78)

_FULL = np.uint32(0xFFFFFFFF)
_BYTE = np.uint32(0xFF)


@inlined
@no_type_check
def _crc_byte(crc, byte, table):
    """`crc` extended by one byte."""
    return (crc >> np.uint32(8)) ^ table[(crc ^ byte) & _BYTE]


@inlined
@no_type_check
def _crc_word(crc, word, table):
    """`crc` extended by the four bytes of a word, the highest first."""
    for b in range(4):
        crc = _crc_byte(crc, (word >> np.uint32(24 - 8 * b)) & _BYTE, table)
    return crc


@kernel
@no_type_check
def fingerprints(flow_id, ip_version, protocol, sport, dport, src, dst, out):
    """CRC-32 of each flow's five-tuple, forward and backward.

    Parameters
    ----------
    flow_id : uint32 array, shape (k,)
        Flow numbers.
    ip_version, protocol : uint8 arrays, shape (k,)
        4 or 6, and the IP protocol number.
    sport, dport : uint16 arrays, shape (k,)
        Ports.
    src, dst : uint8 arrays, shape (k, 16)
        Addresses; of IPv4 the first four bytes count.
    out : uint32 array
        Written at ``2 * flow_id + direction``.
    """
    for k in range(len(flow_id)):
        width = 4 if ip_version[k] == 4 else 16
        for d in range(2):
            crc = _FULL
            for side in range(2):
                for b in range(width):
                    byte = src[k, b] if side == d else dst[k, b]
                    crc = _crc_byte(crc, np.uint32(byte), CRC32_TABLE)
            crc = _crc_byte(crc, np.uint32(protocol[k]), CRC32_TABLE)
            for side in range(2):
                port = np.uint32(sport[k] if side == d else dport[k])
                crc = _crc_byte(crc, port >> np.uint32(8), CRC32_TABLE)
                crc = _crc_byte(crc, port, CRC32_TABLE)
            out[2 * np.int64(flow_id[k]) + d] = crc ^ _FULL


@kernel
@no_type_check
def number_fingerprints(flow_id, out):
    """Without five-tuples: CRC-32 of the flow's number and the direction.

    Parameters
    ----------
    flow_id : uint32 array, shape (n,)
        Of packets.
    out : uint32 array
        Written at ``2 * flow_id + direction`` where it holds 0.
    """
    for i in range(np.uint64(len(flow_id))):
        at = _2 * np.uint64(flow_id[i])
        if out[at] != 0:
            continue
        crc = _crc_word(_FULL, flow_id[i], CRC32_TABLE)
        for d in range(2):
            out[at + np.uint64(d)] = _crc_byte(crc, np.uint32(d), CRC32_TABLE) ^ _FULL


#: Parameters of :class:`~cctoolkit.analysis.rtt.DataPlaneTables`, with the timeout in ns.
Geometry = namedtuple("Geometry", "stages table_size timeout_ns signature_bits per_direction tick_bits")

DATA_PLANE_COUNTS = np.dtype(
    [
        ("segments", "i8"),
        ("inserted", "i8"),
        ("expired", "i8"),
        ("not_inserted", "i8"),
        ("voided", "i8"),
        ("acks", "i8"),
        ("matched", "i8"),
        ("matched_void", "i8"),
        ("matched_late", "i8"),
        ("backwards", "i8"),
    ]
)

#: Of an entry's first word, above the signature: its segment was sent again.
VOID = 1 << 32
_SIGNATURE = VOID - 1


@inlined
@no_type_check
def _hashes(fid, number):
    """CRC-32 and CRC-32C of a flow's fingerprint and a sequence number."""
    one = _crc_word(_crc_word(_FULL, fid, CRC32_TABLE), number, CRC32_TABLE) ^ _FULL
    two = _crc_word(_crc_word(_FULL, fid, CRC32C_TABLE), number, CRC32C_TABLE) ^ _FULL
    return np.int64(one), np.int64(two)


@inlined
@no_type_check
def _signature(two, geometry):
    """The upper bits of CRC-32C `two`; 1 instead of 0, which marks an empty entry."""
    return max(two >> (32 - geometry.signature_bits), 1)


@inlined
@no_type_check
def _entry(tables, k, one, two, geometry):
    """Address of a key's entry in the k-th of the tables at an address."""
    return tables + 16 * (k * geometry.table_size + ((one + k * two) & (geometry.table_size - 1)))


@inlined
@no_type_check
def _is_alive(word, put_in_ns, now, geometry):
    """Whether an entry holds something that has not expired."""
    age = (now >> geometry.tick_bits) - (put_in_ns >> geometry.tick_bits)
    return word != 0 and age <= geometry.timeout_ns >> geometry.tick_bits


@inlined
@no_type_check
def _look_up(tables, counts, one, two, now, geometry):
    """Empty the first entry that an ACK finds in the tables at an address; return the RTT."""
    counts.acks += 1
    signature = _signature(two, geometry)
    for k in range(geometry.stages):
        entry = _entry(tables, k, one, two, geometry)
        word, put_in_ns = le64(entry), le64(entry + 8)
        if word & _SIGNATURE == signature:
            put_le64(entry, 0)
            if not _is_alive(word, put_in_ns, now, geometry):
                counts.matched_late += 1
            elif word & VOID:
                counts.matched_void += 1
            elif now - put_in_ns < 0:
                counts.backwards += 1
            else:
                counts.matched += 1
                return now - put_in_ns
            break
    return np.int64(NO_SAMPLE)


@inlined
@no_type_check
def _put_in(tables, counts, one, two, now, geometry):
    """Insert a segment into the first free entry; an entry that has it already is voided instead."""
    counts.segments += 1
    signature = _signature(two, geometry)
    done = False
    for k in range(geometry.stages):
        entry = _entry(tables, k, one, two, geometry)
        word = le64(entry)
        if _is_alive(word, le64(entry + 8), now, geometry):
            if word & _SIGNATURE == signature:
                done = True
                if word & VOID == 0:
                    put_le64(entry, signature | VOID)
                    counts.voided += 1
        elif not done:
            done = True
            put_le64(entry, signature)
            put_le64(entry + 8, now)
            counts.inserted += 1
            counts.expired += word != 0
    if not done:
        counts.not_inserted += 1


@kernel
@no_type_check
def data_plane(segments, fids, geometry, tables, samples):
    """Pair segments and ACKs through the tables of a switch.

    Parameters
    ----------
    segments : Segments
        Packets in capture order.
    fids : uint32 array
        CRC-32 of the five-tuple, by ``2 * flow_id + direction``.
    geometry : Geometry
        How many tables, and of what kind.
    tables : Tables
        Changed in place.
    samples : Samples
        Written from row 0 on.

    Returns
    -------
    found : int
        Number of samples.
    """
    ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes = segments
    out_packet, out_ts, out_flow, out_direction, out_rtt = samples
    entries = np.int64(tables.entries.ctypes.data)
    counts = tables.counts[0]
    second_set = 16 * geometry.stages * geometry.table_size
    m = np.uint64(0)
    for i in range(np.uint64(len(ts_ns))):
        flags = np.int64(tcp_flags[i])
        if flags == 0 or flags & RST != 0:
            continue
        me = np.uint64(flow_id[i]) * _2 + np.uint64(direction[i] & 1)
        for_acks = for_data = entries
        if geometry.per_direction:
            if np.int32(fids[me] - fids[me ^ _1]) < 0:
                for_data += second_set
            else:
                for_acks += second_set
        if flags & ACK != 0:
            one, two = _hashes(fids[me ^ _1], ack[i])
            rtt = _look_up(for_acks, counts, one, two, ts_ns[i], geometry)
            if rtt != NO_SAMPLE:
                out_packet[m] = i
                out_ts[m] = ts_ns[i]
                out_flow[m] = flow_id[i]
                out_direction[m] = 1 - (direction[i] & 1)
                out_rtt[m] = rtt
                m += _1
        length = _numbers_taken(payload_bytes[i], flags)
        if length != 0:
            one, two = _hashes(fids[me], np.uint32(seq[i] + length))
            _put_in(for_data, counts, one, two, ts_ns[i], geometry)
    return np.int64(m)


# ---- Statistics of samples -------------------------------------------------------------------------------------------


@kernel
@no_type_check
def group_quantiles(values, ends, out_median, out_high, high):
    """Sort each group; write its median and another quantile (linear between ranks, rounded down).

    Parameters
    ----------
    values : int64 array, shape (n,)
        Group after group; sorted in place, each by itself.
    ends : int64 array, shape (k,)
        Row behind each group.
    out_median, out_high : int64 arrays, shape (k,)
        Written.
    high : float
        The quantile for `out_high`, 0 to 1.
    """
    begin = 0
    for g in range(len(ends)):
        end = ends[g]
        part = values[begin:end]
        part.sort()
        last = end - begin - 1
        for which in range(2):
            at = last * (0.5 if which == 0 else high)
            low = int(at)
            value = part[low]
            if low < last:
                value += int((at - low) * (part[low + 1] - value))
            if which == 0:
                out_median[g] = value
            else:
                out_high[g] = value
        begin = end
