"""5-tuple -> flow_id: a hash table in a kernel, carried from part to part.

A flow is both directions of one 5-tuple; flows are numbered in order of their first packets. The initiator is the
host that sent the SYN (or received the SYN-ACK, if that comes first), else the host that sent the first packet. A
5-tuple starts a new flow when

* it has been silent for longer than the timeout,
* a SYN follows a FIN,
* a SYN, or a SYN-ACK of the initiator, has another initial sequence number (after a RST, or because the end was not
  captured),
* a SYN arrives in a flow whose start was not captured,
* a SYN-ACK answers another SYN than the flow's first SYN-ACK did, and no SYN was captured, or
* a SYN-ACK follows a FIN, and answers no SYN of the flow.

The last two rules separate the flows of a capture of the responder's direction only, which are one stream to tshark.

A SYN with the same initial sequence number is a retransmission, even after a RST: some systems retry a refused
connection that way. So is a SYN-ACK that answers the same number, even after a FIN. A SYN-ACK may be captured before
its SYN, or after the first data. Later fragments have no ports, so they form flows of their own, with ports 0.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import no_type_check

import numpy as np

from .._support.kernels import kernel
from .._support.state import aligned_zeros, grown
from ._load import prefetch
from .headers import (
    KEY_A_HI,
    KEY_A_LO,
    KEY_B_HI,
    KEY_B_LO,
    KEY_HASH,
    KEY_PORTS,
    KEY_SYN_OPTIONS,
    KEY_WORDS,
    NO_SYN_OPTIONS,
    SWAPPED_BIT,
    PacketColumns,
    flow_hash,
)
from .keys import FlowKeys

__all__ = ["FlowIds"]

# A flow's record is half a cache line, four words. Of the 5-tuple, in canonical order (smaller endpoint first), there
# are the IPv4 addresses as a << 32 | b; those of IPv6 are in a second record, just behind the first …
_WORDS = 4
_KEY = np.uint64(KEY_WORDS)
_RECORD = np.uint64(_WORDS)  # indices are unsigned, which saves numba the check for negative ones
_ADDRESSES, _LAST_TS = np.uint64(0), np.uint64(2)
_ID_ISN = np.uint64(3)  # flow_id << 32 | initial sequence number
# … and, in one word, 48 bits of IP version, protocol and ports, …
_PORTS_STATE = np.uint64(1)
_PORTS = (1 << SWAPPED_BIT) - 1
# … state bits, …
_INITIATOR_IS_B = 1 << 48
_FIN = 1 << 49
_RST = 1 << 50
_SYN = 1 << 51  # the initiator's SYN was seen: its initial sequence number is the SYN's, …
_SYN_ACK = 1 << 52  # … else the one that the first SYN-ACK acknowledged
# … and the last part with the flow, modulo 1023, plus 1; the sign stays 0.
_PART_BIT = 53
_PARTS = 1023
_BEFORE_PART = (1 << _PART_BIT) - 1

# A second record, of IPv6:
_A_HI, _A_LO, _B_HI, _B_LO = np.arange(_WORDS, 2 * _WORDS, dtype=np.uint64)

_FIN_FLAG, _SYN_FLAG, _RST_FLAG, _ACK_FLAG = 1, 2, 4, 16

_SYN_BYTES = 1 << 16  # more than a SYN can carry (RFC 7413)

#: Retire idle flows only above this many records (and twice those left last time): below, the scan does not pay.
_RETIRE_RECORDS = 1 << 20

_GROUP = 64  # rows whose cache lines are prefetched together
_NEVER_NS = 2**64 - 1  # longer than between any two times


@kernel
@no_type_check
def _goes_on(opening, seq, ack, payload_bytes, from_initiator, state, isn):
    """Whether a SYN or SYN-ACK belongs to the flow that its 5-tuple has, by the rules at the top.

    Parameters
    ----------
    opening, seq, ack, payload_bytes : int64
        Of the segment: its SYN, ACK and RST flags, and its columns.
    from_initiator : bool
        The flow's initiator sent it.
    state, isn : int64
        From the flow's record.
    """
    if opening == _SYN_FLAG:
        if state & _FIN:
            return False
        if state & _SYN:
            # from the other side: a simultaneous open (RFC 9293, 3.5), unless this flow has ended
            return seq == isn if from_initiator else state & _RST == 0
        # captured behind its SYN-ACK, which acknowledged its data too
        return state & _SYN_ACK != 0 and isn - seq & 0xFFFFFFFF <= payload_bytes
    answered = ack - 1 & 0xFFFFFFFF  # the number of the other side's SYN
    if state & _SYN:
        if from_initiator:  # a simultaneous open
            return seq == isn
        return state & _FIN == 0 or answered - isn & 0xFFFFFFFF < _SYN_BYTES
    if state & _SYN_ACK:
        return answered == isn or seq == isn
    return state & _FIN == 0  # captured late, unless the flow has ended


@kernel
@no_type_check
def _assign(keys, n, out, row0, timeout_ns, part, index, words, syn_options, touched, state):
    """Assign flow and direction to `n` rows.

    Parameters
    ----------
    keys : int64 array
        Keys of the rows, as :mod:`headers` packs them.
    n : int
        Number of rows.
    out : PacketColumns
        Holds the rows; flow and direction are written there.
    row0 : int
        The first of the rows in `out`.
    timeout_ns : int
        A flow that was silent for longer has ended.
    part : int
        Number of the part being read, as in a record.
    index : uint64 array
        Maps a hash to a record as ``upper 32 bits of the hash << 32 | record + 1`` (0 = free), probed linearly.
    words : int64 array
        The records, one after the other.
    syn_options : uint32 array, shape (records, 2)
        Options of the SYN of each direction, packed; 0 without any, so that flows without a SYN take no memory.
    touched : int64 array
        Indices of the records seen in this part.
    state : int64 array
        Number of records, next flow_id, length of `touched`, number of second records.

    Notes
    -----
    The table does not fit into the cache, so the two cache lines that a row needs are prefetched well before the
    lookup: each group of rows passes three times, for the index, for the records, and for the assignment.
    """
    ts_ns, seq, tcp_flags, flow_id, direction = out.ts_ns, out.seq, out.tcp_flags, out.flow_id, out.direction
    ack, payload_bytes = out.ack, out.payload_bytes
    index_address = np.int64(index.ctypes.data)
    words_address = np.int64(words.ctypes.data)
    mask = np.uint64(index.size - 1)
    low = np.uint64(0xFFFFFFFF)
    free = np.uint64(0)
    one = np.uint64(1)
    n_records, next_id, n_touched, n_second = state[0], state[1], state[2], state[3]
    this_part = np.int64(part) << _PART_BIT
    for start in range(0, n, _GROUP):
        group = np.uint64(start)
        group_end = np.uint64(min(start + _GROUP, n))
        for i in range(group, group_end):
            slot = np.uint64(keys[i * _KEY + KEY_HASH]) & mask
            prefetch(index_address + np.int64(slot << np.uint64(3)))
        for i in range(group, group_end):
            slot = np.uint64(keys[i * _KEY + KEY_HASH]) & mask
            prefetch(words_address + (np.int64(index[slot] & low) - 1) * (8 * _WORDS))

        for i in range(group, group_end):
            row = np.uint64(row0) + i
            k = i * _KEY
            swapped = keys[k + KEY_PORTS] >> SWAPPED_BIT
            ports = keys[k + KEY_PORTS] & _PORTS
            h = np.uint64(keys[k + KEY_HASH])
            tag = h & ~low
            slot = h & mask
            at = free  # offset of the record, in words; 0 unless `known`
            known = False
            while index[slot] != free:
                if index[slot] & ~low == tag:
                    at = ((index[slot] & low) - one) * _RECORD
                    if words[at + _PORTS_STATE] & _PORTS == ports:  # both are IPv4, or both IPv6
                        if ports & 0xFF == 4:
                            known = words[at + _ADDRESSES] == keys[k + KEY_A_LO] << 32 | keys[k + KEY_B_LO]
                        else:
                            known = (
                                words[at + _A_LO] == keys[k + KEY_A_LO]
                                and words[at + _B_LO] == keys[k + KEY_B_LO]
                                and words[at + _A_HI] == keys[k + KEY_A_HI]
                                and words[at + _B_HI] == keys[k + KEY_B_HI]
                            )
                        if known:
                            break
                slot = slot + one & mask

            now = ts_ns[row]
            flags = np.int64(tcp_flags[row])
            opening = flags & (_SYN_FLAG | _ACK_FLAG | _RST_FLAG)
            flow = np.int64(0)  # the record's word of ports and state
            if known:
                flow = words[at + _PORTS_STATE]
                last = words[at + _LAST_TS]
                if (
                    np.uint64(now - last) > timeout_ns and now > last
                ):  # unsigned: times can be 584 years apart
                    known = False
                elif opening & ~_ACK_FLAG == _SYN_FLAG:
                    known = _goes_on(
                        opening,
                        np.int64(seq[row]),
                        np.int64(ack[row]),
                        np.int64(payload_bytes[row]),
                        (swapped != 0) == (flow & _INITIATOR_IS_B != 0),
                        flow,
                        words[at + _ID_ISN] & 0xFFFFFFFF,
                    )

            if known:
                if now > words[at + _LAST_TS]:
                    words[at + _LAST_TS] = now
            else:
                # a reused 5-tuple gets a new record; the index forgets the old one, the keys of the part do not
                at = np.uint64(n_records) * _RECORD
                n_records += 1
                index[slot] = tag | np.uint64(n_records)
                if ports & 0xFF == 4:
                    words[at + _ADDRESSES] = keys[k + KEY_A_LO] << 32 | keys[k + KEY_B_LO]
                else:
                    words[at + _A_HI] = keys[k + KEY_A_HI]
                    words[at + _A_LO] = keys[k + KEY_A_LO]
                    words[at + _B_HI] = keys[k + KEY_B_HI]
                    words[at + _B_LO] = keys[k + KEY_B_LO]
                    n_records += 1
                    n_second += 1
                words[at + _LAST_TS] = now
                words[at + _ID_ISN] = next_id << 32
                next_id += 1
                initiator_is_b = swapped != (opening == _SYN_FLAG | _ACK_FLAG)
                flow = ports | _INITIATOR_IS_B if initiator_is_b else ports

            way = np.int64((swapped != 0) != (flow & _INITIATOR_IS_B != 0))
            if flags & (_SYN_FLAG | _FIN_FLAG | _RST_FLAG):
                if flags & _SYN_FLAG:
                    options = keys[k + KEY_SYN_OPTIONS] ^ NO_SYN_OPTIONS
                    if options or syn_options[at // _RECORD, np.uint64(way)]:
                        syn_options[at // _RECORD, np.uint64(way)] = options
                    if opening == _SYN_FLAG and way == 0:
                        words[at + _ID_ISN] = words[at + _ID_ISN] & ~0xFFFFFFFF | np.int64(seq[row])
                        flow |= _SYN
                    elif opening == _SYN_FLAG | _ACK_FLAG:
                        if flow & (_SYN | _SYN_ACK) == 0:
                            words[at + _ID_ISN] = (
                                words[at + _ID_ISN] & ~0xFFFFFFFF | np.int64(ack[row]) - 1 & 0xFFFFFFFF
                            )
                        flow |= _SYN_ACK
                if flags & _FIN_FLAG:
                    flow |= _FIN
                if flags & _RST_FLAG:
                    flow |= _RST
            if flow & ~_BEFORE_PART != this_part:
                flow = flow & _BEFORE_PART | this_part
                touched[n_touched] = at // _RECORD
                n_touched += 1
            words[at + _PORTS_STATE] = flow
            flow_id[row] = words[at + _ID_ISN] >> 32
            direction[row] = way
    state[0], state[1], state[2], state[3] = n_records, next_id, n_touched, n_second


@kernel
@no_type_check
def _addresses_of(words, at):
    """The upper and lower halves of the addresses of the record there; those of IPv4 are in the lower ones."""
    if words[at + _PORTS_STATE] & 0xFF == 4:
        both = words[at + _ADDRESSES]
        return np.int64(0), both >> 32 & 0xFFFFFFFF, np.int64(0), both & 0xFFFFFFFF
    return words[at + _A_HI], words[at + _A_LO], words[at + _B_HI], words[at + _B_LO]


@kernel
@no_type_check
def _gather_keys(
    words,
    numbers,
    flow_id,
    ip_version,
    protocol,
    sport,
    dport,
    src,
    dst,
    saw_syn,
    syn_options,
    mss,
    scale,
    sack_ok,
):
    """Copy the keys of records into the arrays of a :class:`FlowKeys`.

    Parameters
    ----------
    words : int64 array
        All records, one after the other.
    numbers : int64 array
        Which of them to copy.
    flow_id, ip_version, protocol, sport, dport, src, dst, saw_syn : arrays
        Receive the columns of :class:`FlowKeys`; addresses as two 64-bit halves.
    syn_options : uint32 array, shape (records, 2)
        Options of the SYN of each direction, packed.
    mss, scale, sack_ok : arrays, shape (numbers, 2)
        Receive the options, by direction.
    """
    for i in range(numbers.size):
        r = np.uint64(numbers[i])
        at = r * _RECORD
        flow_id[i] = words[at + _ID_ISN] >> 32 & 0xFFFFFFFF
        flow = words[at + _PORTS_STATE]
        saw_syn[i] = flow & _SYN != 0
        ports = flow & _PORTS
        ip_version[i] = ports & 0xFF
        protocol[i] = ports >> 8 & 0xFF
        b_first = flow & _INITIATOR_IS_B != 0
        sport[i] = ports >> 16 & 0xFFFF if b_first else ports >> 32
        dport[i] = ports >> 32 if b_first else ports >> 16 & 0xFFFF
        a_hi, a_lo, b_hi, b_lo = _addresses_of(words, at)
        if ports & 0xFF == 4:
            a_hi, a_lo, b_hi, b_lo = a_lo << 32, np.int64(0), b_lo << 32, np.int64(0)
        src[i, 0], src[i, 1] = (b_hi, b_lo) if b_first else (a_hi, a_lo)
        dst[i, 0], dst[i, 1] = (a_hi, a_lo) if b_first else (b_hi, b_lo)
        for way in range(2):
            options = syn_options[r, way] ^ NO_SYN_OPTIONS
            mss[i, way] = options >> 16
            scale[i, way] = options >> 8 & 0xFF
            sack_ok[i, way] = options & 1 != 0


@kernel
@no_type_check
def _fill_index(index, words, live, seed):
    """Enter the records `live` (their indices) into an empty index."""
    mask = np.uint64(index.size - 1)
    for i in range(live.size):
        r = np.uint64(live[i])
        at = r * _RECORD
        a_hi, a_lo, b_hi, b_lo = _addresses_of(words, at)
        h = flow_hash(a_hi, a_lo, b_hi, b_lo, words[at + _PORTS_STATE] & _PORTS, seed)
        slot = h & mask
        while index[slot] != np.uint64(0):
            slot = slot + np.uint64(1) & mask
        index[slot] = h & ~np.uint64(0xFFFFFFFF) | r + np.uint64(1)


class FlowIds:
    """The flow table, carried from part to part.

    Parameters
    ----------
    timeout_s : float or None
        A 5-tuple that is silent for longer starts a new flow. None: flows never time out.
    retire : bool
        Forget flows that have timed out, which bounds memory by the flows alive at a time. They still appear in
        :meth:`keys` of every part in which they were seen. If false, there must be a single part. Flow numbers do
        not depend on this, unless time goes back by more than the timeout between parts.
    """

    def __init__(self, timeout_s: float | None, retire: bool = False) -> None:
        never = timeout_s is None or timeout_s * 1e9 >= _NEVER_NS  # first, since infinity cannot be rounded
        self._timeout_ns = _NEVER_NS if timeout_s is None or never else round(timeout_s * 1e9)
        self._retire = retire and not never
        self._retire_at = _RETIRE_RECORDS
        self.seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        self._records = aligned_zeros((1 << 16, _WORDS), np.int64)  # no memory until used
        self._syn_options = aligned_zeros((1 << 12, 2), np.uint32)
        self._touched = np.empty(1 << 12, np.int64)
        self._index = np.zeros(1 << 13, np.uint64)
        self._state = np.zeros(4, np.int64)
        self._part = 1

    def __len__(self) -> int:
        """Number of flows so far."""
        return int(self._state[1])

    def assign(self, keys: np.ndarray, n: int, out: PacketColumns, row0: int) -> None:
        """Fill in ``flow_id`` and ``direction`` of `n` rows of `out` from `row0` on, given their keys."""
        self._reserve(n)
        _assign(
            keys,
            n,
            out,
            row0,
            np.uint64(self._timeout_ns),
            self._part,
            self._index,
            self._records.reshape(-1),
            self._syn_options,
            self._touched,
            self._state,
        )

    def _reserve(self, n: int) -> None:
        """Make room for `n` more flows; the index stays between an eighth and half full."""
        used = int(self._state[0])
        flows = used - int(self._state[3])
        self._records = grown(self._records, used + 2 * n, moved=True)
        self._syn_options = grown(self._syn_options, used + 2 * n, moved=True)
        self._touched = grown(self._touched, flows + n, moved=True)
        if 2 * (flows + n) > len(self._index):
            self._rebuild_index(self._live(), 4 * len(self._index))

    def _live(self) -> np.ndarray:
        """Indices of the records in the index."""
        entries = self._index[self._index != 0]
        return (entries & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1

    def _rebuild_index(self, live: np.ndarray, size: int) -> None:
        self._index = np.zeros(size, np.uint64)
        _fill_index(self._index, self._records.reshape(-1), live, self.seed)

    def keys(self) -> FlowKeys:
        """The flows seen in this part, ordered by flow_id."""
        numbers = self._touched[: self._state[2]]
        ids = self._records[numbers, _ID_ISN].view(np.uint64) >> np.uint64(32)
        if (ids[1:] < ids[:-1]).any():  # unordered only if a flow of an earlier part was seen again
            numbers = numbers[np.argsort(ids)]
        n = len(numbers)
        keys = FlowKeys(
            flow_id=np.empty(n, np.uint32),
            ip_version=np.empty(n, np.uint8),
            protocol=np.empty(n, np.uint8),
            sport=np.empty(n, np.uint16),
            dport=np.empty(n, np.uint16),
            src=np.empty((n, 2), np.int64),
            dst=np.empty((n, 2), np.int64),
            saw_syn=np.empty(n, bool),
            mss=np.empty((n, 2), np.uint16),
            window_scale=np.empty((n, 2), np.uint8),
            sack_permitted=np.empty((n, 2), bool),
        )
        _gather_keys(
            self._records.reshape(-1),
            numbers,
            keys.flow_id,
            keys.ip_version,
            keys.protocol,
            keys.sport,
            keys.dport,
            keys.src,
            keys.dst,
            keys.saw_syn,
            self._syn_options,
            keys.mss,
            keys.window_scale,
            keys.sack_permitted,
        )
        # addresses are words here: convert them to bytes in network order
        addresses = {
            name: getattr(keys, name).astype(">i8", copy=False).view(np.uint8) for name in ("src", "dst")
        }
        return replace(keys, **addresses)

    def next_part(self) -> None:
        """Start a new part: :meth:`keys` starts empty.

        "Now" is the 75th percentile of the flows' last times, so a few packets with a time far in the future do not
        end all other flows. Flows are retired one timeout late, because time may go back a little.
        """
        if self._retire and self._state[0] >= self._retire_at:
            live = self._live()
            last = self._records[live, _LAST_TS]
            now = int(np.partition(last, len(live) * 3 // 4)[len(live) * 3 // 4])
            live = live[last >= now - 2 * self._timeout_ns]
            if len(live) < self._state[0] - self._state[3]:
                self._keep(live)
            self._retire_at = max(_RETIRE_RECORDS, 2 * int(self._state[0]))  # scan only when it pays
        self._state[2] = 0
        self._part += 1
        if self._part > _PARTS:  # what is left of earlier parts must not look like this one
            self._records[self._live(), _PORTS_STATE] &= _BEFORE_PART
            self._part = 1

    def _keep(self, live: np.ndarray) -> None:
        """Keep only these records (their indices)."""
        before = int(self._state[0])
        records = 1 + (self._records[live, _PORTS_STATE] & 0xFF != 4)  # of each flow
        first = np.cumsum(records) - records
        kept = np.repeat(live, records)
        kept[first[records == 2] + 1] += 1
        n = len(kept)
        self._records[:n] = self._records[kept]
        self._syn_options[:n] = self._syn_options[kept]
        self._syn_options[n:before] = 0  # as new records expect it
        self._state[0], self._state[3] = n, n - len(live)
        self._rebuild_index(first, len(self._index))
