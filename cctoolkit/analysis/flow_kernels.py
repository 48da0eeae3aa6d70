"""The loop behind :mod:`cctoolkit.analysis.flows`: one pass over the packets, and tables of state.

Every direction has a cache line of its own (:data:`DIRECTION`), and that is all that a segment in order touches: with
a million flows cache misses are the cost. The directions of initiators and of responders are apart, as are the
handshakes (:data:`HANDSHAKE`): a flow of which one direction was captured, from its middle, takes no memory for the
rest. Faults of a direction are counted in a row of a further table (:data:`FAULTS`), allocated at the first fault; the
ranges of sequence numbers it skipped are in another (:data:`HOLE`), allocated when it first skips some. All zero means
"nothing seen", so fresh memory needs no initialisation, and row 0 of these two tables stays empty: directions without
faults share it.

A kernel that may need a row when none is left returns the packet it stopped at, before that packet has changed
anything; the caller makes the tables larger and calls again.

Numbers are compared as on the wire, modulo 2**32, by the sign of their 32-bit difference.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from .._support.kernels import kernel
from ..capture._load import prefetch
from .handshake import OPENING, is_syn, syn_rtt, take_ack, take_answer, take_syn

__all__ = ["DIRECTION", "FAULTS", "FLOW", "HANDSHAKE", "HOLE", "HOLES", "KINDS", "update"]

FAST_RETRANSMIT_NS = 20_000_000
REORDERING_NS = 3_000_000
#: What has the same timestamp was sent within a tick of the sender's clock, which is 1 to 10 ms on most systems.
TICK_NS = 10_000_000
#: A segment recorded twice, not sent twice: no host sends its newest segment again so soon (Linux waits 2 ms or more).
COPY_NS = 1_000_000
#: How many packets of the capture may lie between a segment and its copy.
LOOKBACK = 64
#: Without timestamps, an older segment recorded twice. Hosts do repeat one within half a millisecond, after SACKs.
OLD_COPY_NS = 200_000
#: Nothing in TCP is further apart: the largest window is 2**30 bytes (RFC 7323, section 2.3).
FAR = 1 << 30
#: A SYN that starts this close below the edge is the old SYN again; any other opens a new connection.
SAME_SYN = 1 << 16
#: Payload of a full Ethernet frame without TCP options. Larger segments may be several, not cut yet.
ETHERNET_MSS = 1460
TIMESTAMP_BYTES = 12
#: So many holes are kept of a direction. One more, and the oldest counts as filled.
HOLES = 16

#: What a packet is, as :func:`update` writes it: no segment that counts; new data; sent again; overtaken on the way.
OTHER, NEW, RETRANSMITTED, REORDERED = range(4)
KINDS = ("other", "new", "retransmitted", "reordered")
#: Within the kernel: all its numbers were seen before, and its timestamp does not tell whether they were sent again.
_SEEN = 4

_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16

# Bits of `DIRECTION.state`.
HAS_EDGE = 1
HAS_ACK = 2
LAST_WAS_KEEP_ALIVE = 4
SYN_SENT = 8
HANDSHAKE_DONE = 16

DIRECTION = np.dtype(
    [
        ("packets", "i8"),
        ("bytes", "i8"),
        ("payload", "i8"),
        ("last_ts", "i8"),
        ("edge_ts", "i8"),  # of the segment that reached the edge
        ("edge", "u4"),
        ("edge_tsval", "u4"),  # 0: it had no timestamp
        ("last_ack", "u4"),
        ("segments", "u4"),
        ("faults", "u4"),  # row of FAULTS
        ("window", "u2"),
        ("state", "u1"),
        ("duplicate_run", "u1"),  # duplicate ACKs in a row, up to 255
    ]
)
assert DIRECTION.itemsize == 64

#: What is touched once or twice in a flow's life.
FLOW = np.dtype(
    [
        ("first_ts", "i8"),
        ("floor_fwd", "u4"),  # the lowest sequence number seen
        ("floor_rev", "u4"),
    ]
)
assert FLOW.itemsize == 16

#: A flow's handshake, touched if its SYN was captured or a side announced its MSS.
HANDSHAKE = np.dtype(
    [
        *((name, OPENING[name]) for name in OPENING.names or ()),
        ("syn_ts", "i8"),  # of the newest SYN
        ("initial_rtt", "i8"),  # from there to what ends the handshake, whatever was lost; tshark's
        ("handshake_rtt", "i8"),  # 0: none
        ("syn_rtt", "u4"),  # the part of handshake_rtt until the SYN/ACK, plus 1; 0: none
        ("mss", "u4"),  # the smaller of those announced; 0: none was seen
    ]
)
assert HANDSHAKE.itemsize == 72

FAULTS = np.dtype(
    [
        ("retransmitted_bytes", "i8"),
        ("retransmits", "u4"),
        ("out_of_order", "u4"),
        ("duplicate_acks", "u4"),
        ("tshark_retransmits", "u4"),
        ("tshark_out_of_order", "u4"),
        ("copies", "u4"),
        ("holes", "u4"),  # row of the holes: HOLES of HOLE
        ("hole_count", "u4"),
    ]
)
assert FAULTS.itemsize == 40

#: Sequence numbers that were skipped, and the segment that skipped them. The oldest hole of a direction stands first.
HOLE = np.dtype([("ts", "i8"), ("left", "u4"), ("right", "u4"), ("tsval", "u4"), ("unused", "u4")])
assert HOLE.itemsize == 24

#: Packets of the batches before, for which copies are looked up.
RECENT = np.dtype(
    [
        ("ts_ns", "i8"),
        ("flow_id", "i8"),  # -1: no packet
        ("seq", "u4"),
        ("ack", "u4"),
        ("tsval", "u4"),
        ("tsecr", "u4"),
        ("payload_bytes", "u4"),
        ("window", "u2"),
        ("tcp_flags", "u2"),
        ("direction", "u1"),
    ]
)

DIRECTION_BYTES, FLOW_BYTES, HANDSHAKE_BYTES = DIRECTION.itemsize, FLOW.itemsize, HANDSHAKE.itemsize
_HOLES = np.uint64(HOLES)
_AHEAD = np.uint64(16)


@kernel
@no_type_check  # numba types it
def _faults_of(own, faults, used):
    """Where the direction's faults are counted; a fresh row if it has none yet."""
    if own.faults == 0:
        used[0] += 1
        own.faults = used[0]
    return own.faults  # not the row itself: numba would return a copy of it


@kernel
@no_type_check  # numba types it
def _move(holes, source, target):
    holes[target].ts = holes[source].ts
    holes[target].left = holes[source].left
    holes[target].right = holes[source].right
    holes[target].tsval = holes[source].tsval


@kernel
@no_type_check  # numba types it
def insert_hole(fault, holes, used, place, left, right, ts, tsval):
    """Insert a hole before the `place`-th one; if there are too many, the oldest is dropped. Return its position.

    Parameters
    ----------
    fault : record of :data:`FAULTS`
        The direction's faults.
    holes : array of :data:`HOLE`
        All holes.
    used : int64 array, shape (2,)
        How many rows of faults, and of holes, are taken.
    place : int
        Position among the direction's holes, 0 for the oldest.
    left, right : uint32
        First number skipped, and the first one after the hole.
    ts : int64
        Time in ns of the segment that skipped them.
    tsval : uint32
        Its timestamp; 0: none.
    """
    if fault.holes == 0:
        used[1] += 1
        fault.holes = used[1]
    first = np.uint64(fault.holes) * _HOLES
    count = np.int64(fault.hole_count)
    if count == HOLES:
        if place == 0:  # itself the oldest
            return place
        place -= 1
        for k in range(place):
            _move(holes, first + np.uint64(k + 1), first + np.uint64(k))
    else:
        for k in range(count, place, -1):
            _move(holes, first + np.uint64(k - 1), first + np.uint64(k))
        fault.hole_count = count + 1
    hole = holes[first + np.uint64(place)]
    hole.left = left
    hole.right = right
    hole.ts = ts
    hole.tsval = tsval
    return place


@kernel
@no_type_check  # numba types it
def fill_holes(fault, holes, used, begin, length):
    """Fill what is missing of the `length` numbers from `begin` on.

    Return how many were missing and, if the first one was, when it was skipped and the timestamp of the segment that
    skipped it.
    """
    missing = np.int64(0)
    ts = np.int64(0)
    tsval = np.uint32(0)
    first = np.uint64(fault.holes) * _HOLES
    k = 0
    while k < np.int64(fault.hole_count):
        hole = holes[first + np.uint64(k)]
        left = np.int64(np.int32(np.int64(hole.left) - begin))
        right = np.int64(np.int32(np.int64(hole.right) - begin))
        low, high = max(left, 0), min(right, length)
        if low < high:
            if left <= 0:
                ts, tsval = hole.ts, hole.tsval
            missing += high - low
            if left < low and high < right:
                rest = np.uint32(begin + high)
                end = hole.right
                hole.right = np.uint32(begin + low)
                k = insert_hole(fault, holes, used, k + 1, rest, end, hole.ts, hole.tsval)
            elif left < low:
                hole.right = np.uint32(begin + low)
            elif high < right:
                hole.left = np.uint32(begin + high)
            else:
                fault.hole_count -= 1
                for j in range(k, np.int64(fault.hole_count)):
                    _move(holes, first + np.uint64(j + 1), first + np.uint64(j))
                continue
        k += 1
    return missing, ts, tsval


@kernel
@no_type_check  # numba types it
def _segments(payload, tsval, handshake):
    """Number of segments on the wire for a captured one: a host's network card cuts what is longer than the MSS."""
    if payload <= ETHERNET_MSS:
        return np.int64(1)
    mss = np.int64(handshake.mss) if handshake.mss != 0 else np.int64(ETHERNET_MSS)
    if tsval != 0:
        mss = max(mss - TIMESTAMP_BYTES, np.int64(1))
    return (payload + mss - 1) // mss


@kernel
@no_type_check  # numba types it
def _round_trip(handshake, unknown):
    """The round-trip time from the handshake, only roughly if a SYN or SYN/ACK was lost."""
    if handshake.handshake_rtt != 0:
        return handshake.handshake_rtt
    return handshake.initial_rtt if handshake.initial_rtt != 0 else np.int64(unknown)


@kernel
@no_type_check  # numba types it
def _below_edge(
    own, flow, handshake, backward, faults, holes, used, ts, begin, span, payload, flags, tsval, unchanged
):
    """Decide whether a segment below the edge was retransmitted, reordered or only recorded twice, and count it.

    Parameters
    ----------
    own : record of :data:`DIRECTION`
        The sender's state.
    flow : record of :data:`FLOW`
        The flow's state.
    handshake : record of :data:`HANDSHAKE`
        The flow's handshake.
    backward : bool
        Whether the responder sends.
    faults : array of :data:`FAULTS`
        One row for each direction with a fault.
    holes : array of :data:`HOLE`
        :data:`HOLES` rows for each of `faults`.
    used : int64 array, shape (2,)
        How many rows of `faults`, and of holes, are taken.
    ts : int64
        Time in ns.
    begin, span : int64
        First sequence number, and how many the segment takes, SYN and FIN included.
    payload : int64
        Bytes of data.
    flags : int
        TCP flags.
    tsval : uint32
        Timestamp; 0: none.
    unchanged : bool
        Whether window and acknowledgement are those of the segment before.

    Returns
    -------
    int
        :data:`OTHER`, :data:`RETRANSMITTED`, :data:`REORDERED` or :data:`_SEEN`, which is not counted yet.
    """
    fault = faults[_faults_of(own, faults, used)]
    below = min(span, np.int64(np.int32(np.int64(own.edge) - begin)))
    missing, skipped_ts, skipped_tsval = fill_holes(fault, holes, used, begin, below)
    if own.payload < FAR:  # else the floor is so far away that its number may mean another byte
        floor = flow.floor_rev if backward else flow.floor_fwd
        unknown = np.int64(np.int32(np.int64(floor) - begin))
        if unknown > 0:
            skipped_ts, skipped_tsval = own.edge_ts, own.edge_tsval
            missing += min(unknown, below)
            if below < unknown:
                insert_hole(
                    fault, holes, used, 0, np.uint32(begin + below), floor, own.edge_ts, own.edge_tsval
                )
            if backward:
                flow.floor_rev = np.uint32(begin)
            else:
                flow.floor_fwd = np.uint32(begin)

    if missing >= below:
        newer = np.int32(np.int64(tsval) - np.int64(skipped_tsval))
        stamped = tsval != 0 and skipped_tsval != 0
        if stamped and newer != 0:
            overtaken = newer < 0
        else:
            patience = _round_trip(handshake, TICK_NS if stamped else REORDERING_NS)
            overtaken = -patience < ts - skipped_ts < patience  # stamps may be a little out of order
        if overtaken:
            fault.out_of_order += _segments(payload, tsval, handshake)
            return REORDERED
    elif missing == 0 and below == span:
        since_edge = np.int32(np.int64(tsval) - np.int64(own.edge_tsval))
        if tsval != 0 and own.edge_tsval != 0 and since_edge < 0:
            copy = True  # sent before the newest segment
        else:
            newest = np.uint32(begin + span) == own.edge
            copy = newest and unchanged and tsval == own.edge_tsval and 0 <= ts - own.edge_ts < COPY_NS
        if copy:
            fault.copies += 1
            return OTHER
        return _SEEN
    # a SYN's number comes before its data, a FIN's after
    again = min(below, payload) if flags & _SYN == 0 else below - 1
    fault.retransmits += _segments(again, tsval, handshake)
    fault.retransmitted_bytes += again
    return RETRANSMITTED


@kernel
@no_type_check  # numba types it
def _tshark(own, other, handshake, faults, used, ts, begin, span, payload):
    """Count the segment by tshark's rules.

    Parameters
    ----------
    own : record of :data:`DIRECTION`
        The sender's state.
    other : record of :data:`DIRECTION`
        The receiver's state.
    handshake : record of :data:`HANDSHAKE`
        The flow's handshake.
    faults : array of :data:`FAULTS`
        One row for each direction with a fault.
    used : int64 array, shape (2,)
        How many rows of `faults`, and of holes, are taken.
    ts : int64
        Time in ns.
    begin, span : int64
        First sequence number, and how many the segment takes, SYN and FIN included.
    payload : int64
        Bytes of data.
    """
    offset = np.int64(np.int32(begin - np.int64(own.edge)))
    if payload > 0 and _is_acked(other, begin + payload):
        again = True
    elif own.state & HAS_EDGE == 0 or offset >= 0 or (offset == -1 and payload > 1):
        return
    elif (
        other.duplicate_run >= 2
        and np.int64(other.last_ack) == begin
        and 0 <= ts - other.last_ts < FAST_RETRANSMIT_NS
    ):
        again = True
    else:
        patience = handshake.initial_rtt if handshake.initial_rtt != 0 else REORDERING_NS
        again = not 0 <= ts - own.edge_ts < patience or offset + span == 0
    fault = faults[_faults_of(own, faults, used)]
    if again:
        fault.tshark_retransmits += 1
    else:
        fault.tshark_out_of_order += 1


@kernel
@no_type_check  # numba types it
def _is_acked(other, end):
    """Whether the other side has acknowledged all numbers before `end`."""
    return other.state & HAS_ACK != 0 and np.int32(end - np.int64(other.last_ack)) <= 0


@kernel
@no_type_check  # numba types it
def _probes(other, payload):
    """Whether a segment at the edge probes a closed window."""
    return payload == 1 and other.window == 0 and other.state & HAS_EDGE != 0


@kernel
@no_type_check  # numba types it
def _move_edge(own, ts, end, tsval):
    own.edge = np.uint32(end)
    own.edge_ts = ts
    own.edge_tsval = tsval
    own.state |= HAS_EDGE


@kernel
@no_type_check  # numba types it
def _take_irregular(
    own,
    other,
    flow,
    handshake,
    backward,
    faults,
    holes,
    used,
    ts,
    begin,
    span,
    payload,
    flags,
    tsval,
    ack,
    window,
):
    """Take in a segment that is not simply the next one: it does not start at the edge, or has SYN, FIN or RST.

    Parameters
    ----------
    own : record of :data:`DIRECTION`
        The sender's state.
    other : record of :data:`DIRECTION`
        The receiver's state.
    flow : record of :data:`FLOW`
        The flow's state.
    handshake : record of :data:`HANDSHAKE`
        The flow's handshake.
    backward : bool
        Whether the responder sends.
    faults : array of :data:`FAULTS`
        One row for each direction with a fault.
    holes : array of :data:`HOLE`
        :data:`HOLES` rows for each of `faults`.
    used : int64 array, shape (2,)
        How many rows of `faults`, and of holes, are taken.
    ts : int64
        Time in ns.
    begin, span : int64
        First sequence number, and how many the segment takes, SYN and FIN included.
    payload : int64
        Bytes of data.
    flags : int
        TCP flags.
    tsval : uint32
        Timestamp; 0: none.
    ack : uint32
        Acknowledgement number.
    window : uint16
        Window field.

    Returns
    -------
    int
        :data:`OTHER`, :data:`NEW`, :data:`RETRANSMITTED`, :data:`REORDERED` or :data:`_SEEN`, which is not counted yet.
    """
    if flags & _RST != 0:  # its number may be anything, and what it carries is no data
        if span != 0:
            _tshark(own, other, handshake, faults, used, ts, begin, span, payload)
        return OTHER
    offset = np.int64(np.int32(begin - np.int64(own.edge)))
    if offset > FAR or offset < -FAR or (flags & _SYN != 0 and not -SAME_SYN <= offset < 0):
        own.state &= ~HAS_EDGE  # a jump that no window allows, or another connection's SYN: all starts anew
        faults[own.faults].hole_count = 0
    has_edge = own.state & HAS_EDGE != 0
    if has_edge and payload <= 1 and offset == -1 and span == payload:
        own.state |= LAST_WAS_KEEP_ALIVE
        if payload == 0 or other.state & HAS_ACK == 0 or _is_acked(other, begin + 1):
            return OTHER  # a keep-alive, and not its last byte sent again
    elif span != 0:
        _tshark(own, other, handshake, faults, used, ts, begin, span, payload)

    end = begin + span
    kind = OTHER if span == 0 else NEW
    if not has_edge:
        if backward:
            flow.floor_rev = np.uint32(begin)
        else:
            flow.floor_fwd = np.uint32(begin)
        _move_edge(own, ts, end, tsval)
    elif offset >= 0:
        if offset == 0 and _probes(other, payload):
            return OTHER
        if offset > 0:
            fault = faults[_faults_of(own, faults, used)]
            insert_hole(fault, holes, used, np.int64(fault.hole_count), own.edge, np.uint32(begin), ts, tsval)
        if offset + span > 0:
            _move_edge(own, ts, end, tsval)
    elif span != 0:
        same_ack = own.state & HAS_ACK != 0 and ack == own.last_ack
        unchanged = window == own.window and (same_ack or flags & _ACK == 0)
        kind = _below_edge(
            own,
            flow,
            handshake,
            backward,
            faults,
            holes,
            used,
            ts,
            begin,
            span,
            payload,
            flags,
            tsval,
            unchanged,
        )
        if offset + span > 0:
            _move_edge(own, ts, end, tsval)
    if kind != OTHER and kind != _SEEN:
        own.segments += _segments(payload, tsval, handshake)
    return kind


@kernel
@no_type_check  # numba types it
def _was_recorded(
    i,
    ts_ns,
    flow_id,
    direction,
    seq,
    ack,
    tcp_flags,
    payload_bytes,
    window,
    tsvals,
    tsecrs,
    recent,
    within_ns,
):
    """Whether one of the :data:`LOOKBACK` packets before is the same, and so close that it was not sent again.

    Parameters
    ----------
    i : int
        Row of the packet.
    ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes, window, tsvals, tsecrs : arrays
        As for :func:`update`.
    recent : array of :data:`RECENT`, shape (:data:`LOOKBACK`,)
        The packets before row 0, the newest last.
    within_ns : int64
        How close.
    """
    row = np.int64(i)
    for j in range(max(row - LOOKBACK, 0), row):
        if (
            flow_id[j] == flow_id[i]
            and seq[j] == seq[i]
            and direction[j] == direction[i]
            and payload_bytes[j] == payload_bytes[i]
            and tcp_flags[j] == tcp_flags[i]
            and ack[j] == ack[i]
            and window[j] == window[i]
            and tsvals[j] == tsvals[i]
            and tsecrs[j] == tsecrs[i]
            and 0 <= ts_ns[i] - ts_ns[j] < within_ns
        ):
            return True
    for j in range(min(row, LOOKBACK), LOOKBACK):
        before = recent[j]
        if (
            before.flow_id == flow_id[i]
            and before.seq == seq[i]
            and before.direction == direction[i]
            and before.payload_bytes == payload_bytes[i]
            and before.tcp_flags == tcp_flags[i]
            and before.ack == ack[i]
            and before.window == window[i]
            and before.tsval == tsvals[i]
            and before.tsecr == tsecrs[i]
            and 0 <= ts_ns[i] - before.ts_ns < within_ns
        ):
            return True
    return False


@kernel
@no_type_check  # numba types it
def _follow_handshake(state, handshake, ts, seq, ack, flags, payload, tsval, tsecr):
    """Take in what the initiator sends until the handshake is over; return the new state.

    Parameters
    ----------
    state : int
        State bits of the initiator's direction.
    handshake : record of :data:`HANDSHAKE`
        The flow's handshake.
    ts : int64
        Time in ns.
    seq, ack, flags, payload, tsval, tsecr : int
        The segment's fields; timestamps are 0 where there are none.
    """
    if is_syn(flags):
        handshake.syn_ts = ts
        take_syn(handshake, ts, seq, np.uint32(payload), tsval)
        return state | SYN_SENT
    done, certain, rtt = take_ack(handshake, ts, seq, ack, flags, payload, tsecr)
    if done:
        handshake.initial_rtt = max(ts - handshake.syn_ts, 0)
        state |= HANDSHAKE_DONE
        if certain and rtt >= 0:
            handshake.handshake_rtt = rtt
            handshake.syn_rtt = syn_rtt(handshake) + 1
        else:  # or the capture's clock stepped back: no value
            state &= ~SYN_SENT
    return state


@kernel
@no_type_check  # numba types it
def update(
    start,
    ts_ns,
    flow_id,
    direction,
    seq,
    ack,
    tcp_flags,
    payload_bytes,
    wire_bytes,
    window,
    tsvals,
    tsecrs,
    initiators,
    responders,
    flows,
    handshakes,
    faults,
    holes,
    used,
    recent,
    kinds,
):
    """Take in packets.

    Parameters
    ----------
    start : int
        Row to begin with.
    ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes, wire_bytes, window, tsvals, tsecrs : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`), in capture order.
    initiators, responders : array of :data:`DIRECTION`
        What each side of a flow sends, by flow id; changed in place, as are all that follow.
    flows : array of :data:`FLOW`
        By flow id.
    handshakes : array of :data:`HANDSHAKE`
        By flow id.
    faults : array of :data:`FAULTS`
        Row 0 stays empty.
    holes : array of :data:`HOLE`
        :data:`HOLES` rows for each of `faults`.
    used : int64 array, shape (2,)
        How many rows of `faults`, and of holes, are taken. Both have room for the same number.
    recent : array of :data:`RECENT`, shape (:data:`LOOKBACK`,)
        The packets before row 0, the newest last; not changed.
    kinds : int8 array
        Receives what each packet is, unless it has length 0.

    Returns
    -------
    row : int
        The row reached. If packets remain, `faults` or `holes` are full.
    """
    n = np.uint64(len(ts_ns))
    last = np.int64(len(faults)) - 2
    initiator_address = initiators.ctypes.data
    responder_address = responders.ctypes.data
    flow_address = flows.ctypes.data
    handshake_address = handshakes.ctypes.data
    wanted = kinds.size != 0
    for i in range(np.uint64(start), n):
        if i + _AHEAD < n:  # with many flows each packet is a cache miss
            ahead = np.int64(flow_id[i + _AHEAD])
            prefetch(initiator_address + ahead * DIRECTION_BYTES)
            prefetch(responder_address + ahead * DIRECTION_BYTES)
            if tcp_flags[i + _AHEAD] & _SYN != 0:
                prefetch(flow_address + ahead * FLOW_BYTES)
                prefetch(handshake_address + ahead * HANDSHAKE_BYTES)
        if used[0] > last:
            return np.int64(i)
        ts = ts_ns[i]
        payload = np.int64(payload_bytes[i])
        flags = np.int64(tcp_flags[i])
        flow = np.uint64(flow_id[i])
        backward = direction[i] & 1 != 0
        if backward:
            own, other = responders[flow], initiators[flow]
        else:
            own, other = initiators[flow], responders[flow]

        if own.packets == 0:
            own.last_ts = ts
            if other.packets == 0 or ts < flows[flow].first_ts:
                flows[flow].first_ts = ts
        elif ts >= own.last_ts:
            own.last_ts = ts
        elif ts < flows[flow].first_ts:  # the capture's clock stepped back
            flows[flow].first_ts = ts
        own.packets += 1
        own.bytes += wire_bytes[i]
        own.payload += payload
        if flags == 0:
            if wanted:
                kinds[i] = OTHER
            continue

        # 64-bit throughout; a difference cut to int32 is the signed distance modulo 2**32.
        begin = np.int64(seq[i])
        span = payload + np.int64(flags & (_SYN | _FIN) != 0)  # SYN and FIN take a number
        acknowledges = flags & _ACK != 0
        state = np.int64(own.state)
        repeats_ack = acknowledges and state & HAS_ACK != 0 and ack[i] == own.last_ack
        kind = OTHER
        if flags & _RST != 0 or (state & HAS_EDGE != 0 and seq[i] != own.edge):
            own.state = state & ~LAST_WAS_KEEP_ALIVE
            kind = _take_irregular(
                own,
                other,
                flows[flow],
                handshakes[flow],
                backward,
                faults,
                holes,
                used,
                ts,
                begin,
                span,
                payload,
                flags,
                tsvals[i],
                ack[i],
                window[i],
            )
            if kind == _SEEN:
                # nobody knows within half a round trip that a segment is lost
                most = TICK_NS if tsvals[i] != 0 else OLD_COPY_NS
                within = min(_round_trip(handshakes[flow], 2 * COPY_NS) // 2, most)
                fault = faults[own.faults]
                if _was_recorded(
                    i,
                    ts_ns,
                    flow_id,
                    direction,
                    seq,
                    ack,
                    tcp_flags,
                    payload_bytes,
                    window,
                    tsvals,
                    tsecrs,
                    recent,
                    within,
                ):
                    fault.copies += 1
                    kind = OTHER
                else:
                    segments = _segments(payload, tsvals[i], handshakes[flow])
                    own.segments += np.uint32(segments)
                    fault.retransmits += np.uint32(segments)
                    fault.retransmitted_bytes += payload
                    kind = RETRANSMITTED
            state = np.int64(own.state)
        else:
            if state & HAS_EDGE == 0:
                if backward:
                    flows[flow].floor_rev = seq[i]
                else:
                    flows[flow].floor_fwd = seq[i]
                own.edge = seq[i]
                own.edge_ts = ts
                own.edge_tsval = tsvals[i]
            if span != 0:
                if payload > 0 and _is_acked(other, begin + payload):
                    faults[_faults_of(own, faults, used)].tshark_retransmits += 1
                if state & HAS_EDGE == 0 or not _probes(other, payload):
                    kind = NEW
                    if payload <= ETHERNET_MSS:
                        own.segments += np.uint32(1)
                    else:
                        own.segments += np.uint32(_segments(payload, tsvals[i], handshakes[flow]))
                    own.edge = np.uint32(begin + span)
                    own.edge_ts = ts
                    own.edge_tsval = tsvals[i]
            elif (
                repeats_ack
                and window[i] == own.window
                and own.window != 0
                and state & HAS_EDGE != 0
                and other.state & LAST_WAS_KEEP_ALIVE == 0
            ):
                faults[_faults_of(own, faults, used)].duplicate_acks += 1
                if own.duplicate_run < 255:
                    own.duplicate_run += 1
            state = (state | HAS_EDGE) & ~LAST_WAS_KEEP_ALIVE
        if wanted:
            kinds[i] = kind

        if acknowledges and not repeats_ack:
            own.duplicate_run = 0
            own.last_ack = ack[i]
            state |= HAS_ACK
        own.window = window[i]

        if backward:
            if other.state & (SYN_SENT | HANDSHAKE_DONE) == SYN_SENT:
                take_answer(handshakes[flow], ts, seq[i], ack[i], flags, tsvals[i], tsecrs[i])
        elif state & HANDSHAKE_DONE == 0 and (state & SYN_SENT != 0 or is_syn(flags)):
            state = _follow_handshake(
                state, handshakes[flow], ts, seq[i], ack[i], flags, payload, tsvals[i], tsecrs[i]
            )
        own.state = state
    return np.int64(n)
