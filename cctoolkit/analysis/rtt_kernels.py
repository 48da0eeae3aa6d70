"""The loops behind :mod:`cctoolkit.analysis.rtt`: one pass over the packets for each method.

Outstanding segments (or timestamps) wait in first-in first-out lists, one a flow and direction, whose nodes all
come from one pool. A node is two words, ``[time, next << 32 | number]``; node 0 means "none", and freed nodes
form a list of their own. A kernel that needs a node when none is left returns the row it stopped at, before that
row has changed anything; the caller makes the pool larger and calls again, so nothing is ever lost.

The state of a flow is 16 words of 32 bits, 8 a direction, so that both directions of a flow sit in one cache line:
a packet touches the list it may acknowledge and the list it may join. All zero means "nothing seen yet".

Numbers are compared as on the wire, modulo 2**32, by the sign of their 32-bit difference.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from .._support.kernels import kernel
from ..capture._load import prefetch

__all__ = [
    "ACKED",
    "CRC32C_TABLE",
    "CRC32_TABLE",
    "STATE_WORDS",
    "data_plane",
    "fingerprints",
    "group_quantiles",
    "handshake",
    "number_fingerprints",
    "seq_ack",
    "timestamps",
]

FIN, SYN, RST, ACK = 1, 2, 4, 16

#: Nothing in TCP is further apart: the largest window is 2**30 bytes (RFC 7323, section 2.3).
FAR = 1 << 30
#: An ACK this far beyond the highest byte sent is believed (its data passes later, or was not captured), others not.
UNSEEN = 1 << 20
BACK = FAR + UNSEEN
#: A SYN that starts this close below the highest byte sent is the old SYN again; any other opens a new connection.
SAME_SYN = 1 << 16

# Words of a direction's state. Global numpy scalars keep index arithmetic unsigned, which spares numba the check
# for negative indices.
HEAD = np.uint64(0)  # oldest node of the list
TAIL = np.uint64(1)  # newest
NXT = np.uint64(2)  # end of the highest byte sent (or the last TSval recorded)
UNA = np.uint64(3)  # highest acknowledgement (or echo); without one yet, the first byte sent
LOW = np.uint64(4)  # what ends above LOW and not above HIGH is in doubt: LOW is the lowest byte that was sent
HIGH = np.uint64(5)  # again, HIGH was NXT when something was last sent again; equal: nothing is in doubt
BITS = np.uint64(
    6
)  # SEEN, SENT, ACKED, and from bit 3 on the length of the list while the other side was not seen
STATE_WORDS = 8  # one is spare

SEEN = 1  # a segment of this direction was seen
SENT = 2  # NXT holds
ACKED = 4  # UNA is an acknowledgement
COUNT_SHIFT = 3
ONE_MORE = 1 << COUNT_SHIFT

# Words of `control`: where the pool stands, and what was counted.
FREE, USED, SEGMENTS, SAMPLES, AGAIN, IN_DOUBT, ONE_WAY, BACKWARDS = range(8)

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_STATE_AHEAD, _NODE_AHEAD = np.uint64(16), np.uint64(6)


@kernel
@no_type_check  # numba types it
def seq_ack(
    start,
    ts_ns,
    flow_id,
    direction,
    seq,
    ack,
    tcp_flags,
    payload_bytes,
    karn,
    one_way_limit,
    state,
    pool,
    control,
    out_packet,
    out_ts,
    out_flow,
    out_direction,
    out_rtt,
    out_count,
):
    """Pair segments with the ACKs that end where they end; return (row reached, samples written)."""
    n = np.uint64(len(ts_ns))
    capacity = np.uint64(len(pool) // 2)
    free = np.uint64(control[FREE])
    used = np.uint64(control[USED])
    segments = control[SEGMENTS]
    again = control[AGAIN]
    in_doubt = control[IN_DOUBT]
    one_way = control[ONE_WAY]
    backwards = control[BACKWARDS]
    m = np.uint64(out_count)
    i = np.uint64(start)
    state_address = state.ctypes.data
    pool_address = pool.ctypes.data
    while i < n:
        if i + _STATE_AHEAD < n:
            # The state of a row to come, and of a nearer one the oldest node its ACK may cover: with many flows
            # each is a cache miss, and asked for early it costs a fifth less.
            prefetch(state_address + np.int64(flow_id[i + _STATE_AHEAD]) * 64)
            near = i + _NODE_AHEAD
            sender = np.uint64(flow_id[near]) * _16 + (np.uint64(direction[near] & 1) ^ _1) * _8
            prefetch(pool_address + np.int64(state[sender + HEAD]) * 16)
        flags = np.int64(tcp_flags[i])
        if flags == 0 or (karn and flags & RST != 0):
            i += _1
            continue
        if free == _0 and used >= capacity:  # this row may need a node
            break
        me = np.uint64(flow_id[i]) * _16 + np.uint64(direction[i] & 1) * _8
        other = me ^ _8
        bits = np.int64(state[me + BITS]) | SEEN
        theirs = np.int64(state[other + BITS])

        if flags & ACK != 0:
            a = ack[i]
            ahead = np.int32(a - state[other + NXT])
            if theirs & SENT == 0:
                # Data of the other direction was not seen yet; remember what is acknowledged all the same.
                if theirs & ACKED == 0 or np.int32(a - state[other + UNA]) > 0:
                    state[other + UNA] = a
                    theirs |= ACKED
                    state[other + BITS] = theirs
            elif -FAR <= ahead <= UNSEEN:
                head = np.uint64(state[other + HEAD])
                una = state[other + UNA]
                low = state[other + LOW]
                high = state[other + HIGH]
                if head != _0:
                    last = _0
                    node = head
                    end = np.uint32(0)
                    while node != _0:
                        word = pool[_2 * node + _1]
                        e = np.uint32(word & _LOW_WORD)
                        if np.int32(e - a) > 0:
                            break
                        last = node
                        end = e
                        node = word >> _32
                    if last != _0:
                        # the whole run of covered nodes becomes free at once
                        pool[_2 * last + _1] = free << _32
                        free = head
                        state[other + HEAD] = node
                        if node == _0:
                            state[other + TAIL] = 0
                        if end == a:
                            doubt = low != high and np.int32(a - low) > 0 and np.int32(a - high) <= 0
                            rtt = ts_ns[i] - np.int64(pool[_2 * last])
                            if doubt:
                                in_doubt += 1
                            elif rtt < 0:
                                backwards += 1
                            else:
                                out_packet[m] = i
                                out_ts[m] = ts_ns[i]
                                out_flow[m] = flow_id[i]
                                out_direction[m] = 1 - (direction[i] & 1)
                                out_rtt[m] = rtt
                                m += _1
                if theirs & ACKED == 0 or np.int32(a - una) > 0:
                    state[other + UNA] = a
                    theirs |= ACKED
                    state[other + BITS] = theirs
                    if low != high and np.int32(a - low) > 0:
                        state[other + LOW] = a if np.int32(a - high) < 0 else high

        length = np.uint32(payload_bytes[i] + np.uint32((flags >> 1) & 1) + np.uint32(flags & 1))
        if length != 0:
            s = seq[i]
            e = np.uint32(s + length)
            forget = False
            if bits & SENT != 0:
                nxt = state[me + NXT]
                gap = np.int32(s - nxt)
                if flags & SYN != 0:
                    forget = gap >= 0 or gap < -SAME_SYN
                else:
                    waited = np.uint32(e - state[me + UNA] + BACK)  # from -BACK on, which 0 stands for
                    forget = gap > FAR or gap <= -FAR or waited > BACK + FAR
            if bits & SENT == 0 or forget:
                # A first segment, a new connection, a jump no window allows, or no ACK for a gigabyte.
                head = np.uint64(state[me + HEAD])
                if head != _0:
                    tail = np.uint64(state[me + TAIL])
                    pool[_2 * tail + _1] = free << _32
                    free = head
                    state[me + HEAD] = 0
                    state[me + TAIL] = 0
                state[me + LOW] = 0
                state[me + HIGH] = 0
                behind = np.int32(e - state[me + UNA])
                if forget or bits & ACKED == 0 or behind > FAR or behind < -UNSEEN:
                    state[me + UNA] = s
                    bits &= ~ACKED
                bits = (bits & (SEEN | ACKED)) | SENT
                nxt = s
                gap = np.int32(0)
            beyond = np.int32(e - nxt) > 0
            record = not karn
            if karn:
                una = state[me + UNA]
                # What was acknowledged before it passed the tap is not waited for.
                record = beyond and (bits & ACKED == 0 or np.int32(e - una) > 0)
            if gap < 0:
                again += 1
                if karn and (bits & ACKED == 0 or np.int32((nxt if beyond else e) - una) > 0):
                    if state[me + LOW] == state[me + HIGH] or np.int32(s - state[me + LOW]) < 0:
                        state[me + LOW] = s
                    state[me + HIGH] = nxt
            if beyond:
                state[me + NXT] = e
            if record:
                tail = np.uint64(state[me + TAIL])
                before = tail  # the new node goes behind this one
                if not karn and tail != _0 and np.int32(e - np.uint32(pool[_2 * tail + _1] & _LOW_WORD)) <= 0:
                    before = _0
                    node = np.uint64(state[me + HEAD])
                    word = pool[_2 * node + _1]
                    while node != _0 and np.int32(np.uint32(word & _LOW_WORD) - e) < 0:
                        before = node
                        node = word >> _32
                        word = pool[_2 * node + _1]
                    # the first transmission keeps its place
                    record = node == _0 or np.uint32(word & _LOW_WORD) != e
            if record:
                segments += 1
                alone = theirs & SEEN == 0
                if alone and bits >> COUNT_SHIFT >= one_way_limit:
                    # Still no sign of the other direction: the newest are kept, the oldest node is used again.
                    one_way += 1
                    node = np.uint64(state[me + HEAD])
                    state[me + HEAD] = pool[_2 * node + _1] >> _32
                    if before == node:
                        before = _0
                else:
                    bits += ONE_MORE * alone
                    if free != _0:
                        node = free
                        free = pool[_2 * node + _1] >> _32
                    else:
                        node = used
                        used += _1
                if before == _0:
                    after = np.uint64(state[me + HEAD])
                    state[me + HEAD] = node
                else:
                    word = pool[_2 * before + _1]
                    after = word >> _32
                    pool[_2 * before + _1] = (node << _32) | (word & _LOW_WORD)
                if after == _0:
                    state[me + TAIL] = node
                pool[_2 * node] = np.uint64(ts_ns[i])
                pool[_2 * node + _1] = (after << _32) | np.uint64(e)
        state[me + BITS] = bits
        i += _1
    control[FREE] = free
    control[USED] = used
    control[SEGMENTS] = segments
    control[AGAIN] = again
    control[IN_DOUBT] = in_doubt
    control[ONE_WAY] = one_way
    control[BACKWARDS] = backwards
    return np.int64(i), np.int64(m)


@kernel
@no_type_check  # numba types it
def timestamps(
    start,
    ts_ns,
    flow_id,
    direction,
    tcp_flags,
    tsval,
    tsecr,
    has_ts,
    one_way_limit,
    state,
    pool,
    control,
    out_packet,
    out_ts,
    out_flow,
    out_direction,
    out_rtt,
    out_count,
):
    """Pair the first sight of a TSval with its first echo; return (row reached, samples written)."""
    n = np.uint64(len(ts_ns))
    capacity = np.uint64(len(pool) // 2)
    free = np.uint64(control[FREE])
    used = np.uint64(control[USED])
    segments = control[SEGMENTS]
    again = control[AGAIN]
    one_way = control[ONE_WAY]
    backwards = control[BACKWARDS]
    m = np.uint64(out_count)
    i = np.uint64(start)
    while i < n:
        flags = np.int64(tcp_flags[i])
        if flags == 0 or not has_ts[i]:
            i += _1
            continue
        if free == _0 and used >= capacity:
            break
        me = np.uint64(flow_id[i]) * _16 + np.uint64(direction[i] & 1) * _8
        other = me ^ _8
        bits = np.int64(state[me + BITS]) | SEEN
        theirs = np.int64(state[other + BITS])

        echo = tsecr[i]
        if flags & ACK != 0 and echo != 0 and theirs & SENT != 0:
            ahead = np.int32(echo - state[other + NXT])
            if -FAR <= ahead <= 0:
                head = np.uint64(state[other + HEAD])
                last = _0
                node = head
                value = np.uint32(0)
                while node != _0:
                    word = pool[_2 * node + _1]
                    v = np.uint32(word & _LOW_WORD)
                    if np.int32(v - echo) > 0:
                        break
                    last = node
                    value = v
                    node = word >> _32
                if last != _0:
                    pool[_2 * last + _1] = free << _32
                    free = head
                    state[other + HEAD] = node
                    if node == _0:
                        state[other + TAIL] = 0
                    if value == echo:
                        rtt = ts_ns[i] - np.int64(pool[_2 * last])
                        if rtt < 0:
                            backwards += 1
                        else:
                            out_packet[m] = i
                            out_ts[m] = ts_ns[i]
                            out_flow[m] = flow_id[i]
                            out_direction[m] = 1 - (direction[i] & 1)
                            out_rtt[m] = rtt
                            m += _1
                if np.int32(echo - state[other + UNA]) > 0:
                    state[other + UNA] = echo

        value = tsval[i]
        if value != 0:
            record = True
            if bits & SENT != 0:
                gap = np.int32(value - state[me + NXT])
                forget = (
                    gap > FAR
                    or gap < -FAR
                    or (gap < 0 and flags & SYN != 0)
                    or np.uint32(value - state[me + UNA] + BACK) > BACK + FAR
                )
                record = gap > 0 or forget
                if forget:
                    head = np.uint64(state[me + HEAD])
                    if head != _0:
                        tail = np.uint64(state[me + TAIL])
                        pool[_2 * tail + _1] = free << _32
                        free = head
                        state[me + HEAD] = 0
                        state[me + TAIL] = 0
                    state[me + UNA] = value
                    bits = SEEN | SENT
            else:
                state[me + UNA] = value
                bits |= SENT
            if record:
                segments += 1
                state[me + NXT] = value
                alone = theirs & SEEN == 0
                if alone and bits >> COUNT_SHIFT >= one_way_limit:
                    one_way += 1
                    node = np.uint64(state[me + HEAD])
                    head = pool[_2 * node + _1] >> _32
                    state[me + HEAD] = head
                    if head == _0:
                        state[me + TAIL] = 0
                else:
                    bits += ONE_MORE * alone
                    if free != _0:
                        node = free
                        free = pool[_2 * node + _1] >> _32
                    else:
                        node = used
                        used += _1
                tail = np.uint64(state[me + TAIL])
                if tail == _0:
                    state[me + HEAD] = node
                else:
                    pool[_2 * tail + _1] |= node << _32  # the newest node's "next" was 0
                state[me + TAIL] = node
                pool[_2 * node] = np.uint64(ts_ns[i])
                pool[_2 * node + _1] = np.uint64(value)
            else:
                again += 1
        state[me + BITS] = bits
        i += _1
    control[FREE] = free
    control[USED] = used
    control[SEGMENTS] = segments
    control[AGAIN] = again
    control[ONE_WAY] = one_way
    control[BACKWARDS] = backwards
    return np.int64(i), np.int64(m)


# What `stage` says of a flow's handshake: nothing, a SYN of direction 0 or 1 waits, done.
SYN_OF = 1
DONE = 3


@kernel
@no_type_check  # numba types it
def handshake(
    ts_ns,
    flow_id,
    direction,
    seq,
    tcp_flags,
    payload_bytes,
    stage,
    syn,
    control,
    out_packet,
    out_ts,
    out_flow,
    out_direction,
    out_rtt,
):
    """Pair each SYN with the first ACK of the same side; return the number of samples written.

    `stage` is one byte a flow, `syn` two words a flow: the SYN's time, and where data starts after it without
    and with the SYN's own payload.
    """
    segments = control[SEGMENTS]
    again = control[AGAIN]
    backwards = control[BACKWARDS]
    m = _0
    for i in range(np.uint64(len(ts_ns))):
        flags = np.int64(tcp_flags[i])
        if flags == 0:
            continue
        f = np.uint64(flow_id[i])
        where = np.int64(stage[f])
        d = np.int64(direction[i] & 1)
        if flags & (SYN | ACK | RST) == SYN:
            first = np.uint32(seq[i] + np.uint32(1))
            known = np.uint32(syn[_2 * f + _1] & _LOW_WORD)
            if where == DONE and first == known:
                continue  # a late copy of the SYN that was answered
            if where == SYN_OF + d and first == known:
                again += 1
            else:
                segments += 1
            stage[f] = SYN_OF + d
            syn[_2 * f] = np.uint64(ts_ns[i])
            syn[_2 * f + _1] = (np.uint64(np.uint32(first + payload_bytes[i])) << _32) | np.uint64(first)
        elif where == SYN_OF + d and flags & (SYN | ACK | RST) == ACK:
            word = syn[_2 * f + _1]
            if seq[i] == np.uint32(word & _LOW_WORD) or seq[i] == np.uint32(word >> _32):
                stage[f] = DONE
                rtt = ts_ns[i] - np.int64(syn[_2 * f])
                if rtt < 0:
                    backwards += 1
                else:
                    out_packet[m] = i
                    out_ts[m] = ts_ns[i]
                    out_flow[m] = flow_id[i]
                    out_direction[m] = d
                    out_rtt[m] = rtt
                    m += _1
    control[SEGMENTS] = segments
    control[AGAIN] = again
    control[BACKWARDS] = backwards
    return np.int64(m)


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


@kernel
@no_type_check  # numba types it
def fingerprints(flow_id, ip_version, protocol, sport, dport, src, dst, table, out):
    """CRC-32 of each flow's five-tuple, forward and backward, into ``out[2 * flow_id + direction]``."""
    for k in range(len(flow_id)):
        width = 4 if ip_version[k] == 4 else 16
        for d in range(2):
            crc = _FULL
            for side in range(2):
                for b in range(width):
                    byte = src[k, b] if side == d else dst[k, b]
                    crc = (crc >> np.uint32(8)) ^ table[(crc ^ np.uint32(byte)) & _BYTE]
            crc = (crc >> np.uint32(8)) ^ table[(crc ^ np.uint32(protocol[k])) & _BYTE]
            for side in range(2):
                port = np.uint32(sport[k] if side == d else dport[k])
                crc = (crc >> np.uint32(8)) ^ table[(crc ^ (port >> np.uint32(8))) & _BYTE]
                crc = (crc >> np.uint32(8)) ^ table[(crc ^ port) & _BYTE]
            out[2 * np.int64(flow_id[k]) + d] = crc ^ _FULL


@kernel
@no_type_check  # numba types it
def number_fingerprints(flow_id, table, out):
    """In place of five-tuples: CRC-32 of the flow's number and the direction, where `out` has nothing yet."""
    for i in range(np.uint64(len(flow_id))):
        at = _2 * np.uint64(flow_id[i])
        if out[at] != 0:
            continue
        crc = _FULL
        for b in range(4):
            crc = (crc >> np.uint32(8)) ^ table[(crc ^ (flow_id[i] >> np.uint32(24 - 8 * b))) & _BYTE]
        for d in range(2):
            out[at + np.uint64(d)] = (crc >> np.uint32(8)) ^ table[(crc ^ np.uint32(d)) & _BYTE] ^ _FULL


# Words of `control` for the data plane.
D_SEGMENTS, D_INSERTED, D_EXPIRED, D_COLLISIONS, D_VOIDED, D_ACKS, D_MATCHED, D_VOID_HITS, D_LATE, D_BACK = (
    range(10)
)

_VOID = np.uint64(1 << 32)


@kernel
@no_type_check  # numba types it
def data_plane(
    ts_ns,
    flow_id,
    direction,
    seq,
    ack,
    tcp_flags,
    payload_bytes,
    fids,
    crc32,
    crc32c,
    stages,
    table_size,
    timeout_ns,
    signature_bits,
    per_direction,
    tick_bits,
    tables,
    control,
    out_packet,
    out_ts,
    out_flow,
    out_direction,
    out_rtt,
):
    """Pair segments and ACKs through `stages` tables of two words an entry: signature (and the void bit), time.

    With `per_direction` there are two sets of them, the second behind the first.
    """
    mask = np.uint64(table_size - 1)
    size = np.uint64(table_size)
    shift = np.uint32(32 - signature_bits)
    m = _0
    for i in range(np.uint64(len(ts_ns))):
        flags = np.int64(tcp_flags[i])
        if flags == 0 or flags & RST != 0:
            continue
        now = ts_ns[i]
        me = np.uint64(flow_id[i]) * _2 + np.uint64(direction[i] & 1)
        length = np.uint32(payload_bytes[i] + np.uint32((flags >> 1) & 1) + np.uint32(flags & 1))
        ack_set = _0
        data_set = _0
        if per_direction:
            data_set = np.uint64(np.uint32(fids[me] - fids[me ^ _1]) >> np.uint32(31))
            ack_set = _1 - data_set
        for role in range(2):  # 0: the ACK it carries looks up, 1: the segment it is goes in
            if role == 0:
                if flags & ACK == 0:
                    continue
                control[D_ACKS] += 1
                fid = fids[me ^ _1]
                number = ack[i]
                first = ack_set * np.uint64(stages)
            else:
                if length == 0:
                    continue
                control[D_SEGMENTS] += 1
                fid = fids[me]
                number = np.uint32(seq[i] + length)
                first = data_set * np.uint64(stages)
            one = _FULL
            two = _FULL
            for b in range(4):
                byte = (fid >> np.uint32(24 - 8 * b)) & _BYTE
                one = (one >> np.uint32(8)) ^ crc32[(one ^ byte) & _BYTE]
                two = (two >> np.uint32(8)) ^ crc32c[(two ^ byte) & _BYTE]
            for b in range(4):
                byte = (number >> np.uint32(24 - 8 * b)) & _BYTE
                one = (one >> np.uint32(8)) ^ crc32[(one ^ byte) & _BYTE]
                two = (two >> np.uint32(8)) ^ crc32c[(two ^ byte) & _BYTE]
            one ^= _FULL
            two ^= _FULL
            signature = np.uint64(two >> shift)
            if signature == _0:
                signature = _1  # 0 is an empty entry
            done = False
            for k in range(stages):
                stage = np.uint64(k)
                slot = _2 * ((first + stage) * size + ((np.uint64(one) + stage * np.uint64(two)) & mask))
                word = tables[slot]
                age = (now >> tick_bits) - (np.int64(tables[slot + _1]) >> tick_bits)
                alive = word != _0 and age <= timeout_ns >> tick_bits
                same = word & _LOW_WORD == signature
                if role == 0:
                    if same and not done:
                        done = True
                        tables[slot] = _0
                        rtt = now - np.int64(tables[slot + _1])
                        if not alive:
                            control[D_LATE] += 1
                        elif word & _VOID != _0:
                            control[D_VOID_HITS] += 1
                        elif rtt < 0:
                            control[D_BACK] += 1
                        else:
                            control[D_MATCHED] += 1
                            out_packet[m] = i
                            out_ts[m] = now
                            out_flow[m] = flow_id[i]
                            out_direction[m] = 1 - (direction[i] & 1)
                            out_rtt[m] = rtt
                            m += _1
                elif alive and same:
                    if word & _VOID == _0:
                        tables[slot] = signature | _VOID
                        control[D_VOIDED] += 1
                    done = True
                elif not alive and not done:
                    done = True
                    tables[slot] = signature
                    tables[slot + _1] = np.uint64(now)
                    control[D_INSERTED] += 1
                    if word != _0:
                        control[D_EXPIRED] += 1
            if role == 1 and not done:
                control[D_COLLISIONS] += 1
    return np.int64(m)


@kernel
@no_type_check  # numba types it
def group_quantiles(values, ends, out_median, out_high, high):
    """Sort each group in place; write its median and its `high` quantile (linear between ranks, rounded down)."""
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
