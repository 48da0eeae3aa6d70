"""5-tuple -> flow_id: a hash table in a kernel, carried from batch to batch.

A flow is both directions of one 5-tuple, numbered in order of first packet. Its initiator is who sent the SYN
(the receiver of a SYN-ACK when that is what comes first), else who sent the first packet. A 5-tuple starts
a new flow when

* nothing was seen of it for longer than the timeout,
* a SYN comes after a FIN,
* a SYN with another initial sequence number comes (after a RST, or because the end was not captured), or
* a SYN comes where the flow had been picked up in the middle.

A SYN with the same initial sequence number is a retransmission, also after a RST: some systems retry a refused
connection that way. Later fragments have no ports and so are flows of their own, with ports 0.
"""

from __future__ import annotations

import os

import numba
import numpy as np

from .headers import FlowKeyColumns, PacketColumns
from .model import FlowKeys

__all__ = ["FlowIds"]

# A flow's record is one cache line of eight words: the 5-tuple in canonical order (the smaller end first) …
_A_HI, _A_LO, _B_HI, _B_LO, _PORTS = range(5)
_LAST_TS = 5
_ID_STATE = 6  # flow_id << 32 | state bits
_ISN_PART = 7  # the initiator's initial sequence number << 32 | part in which the flow was last seen
_WORDS = 8

# … and these are its state bits.
_INITIATOR_IS_A = 1
_FIN = 2
_RST = 4
_SYN = 8  # the initiator's SYN was seen
_SYN_ACK = 16

_FIN_FLAG, _SYN_FLAG, _RST_FLAG, _ACK_FLAG = 1, 2, 4, 16

#: Retire idle flows only when there are this many records: a smaller table is not worth the scan.
_RETIRE_RECORDS = 1 << 20

_NO_SYN_OPTIONS = 0xFF00  # no MSS, no window scale, no SACK permitted, as headers.py packs them


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _hash(a_hi, a_lo, b_hi, b_lo, ports, seed):
    """Multiply and fold. The seed differs in every process, so that no capture can be made to collide."""
    h = np.uint64(a_lo) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(b_lo) * np.uint64(0xC2B2AE3D27D4EB4F)
    h ^= np.uint64(a_hi) * np.uint64(0x165667B19E3779F9) ^ np.uint64(b_hi) * np.uint64(0x27D4EB2F165667C5)
    h = (h ^ h >> np.uint64(32) ^ seed) * np.uint64(0xD6E8FEB86659FD93)
    h = (h ^ h >> np.uint64(32) ^ np.uint64(ports)) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ h >> np.uint64(29)) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ h >> np.uint64(32)


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _assign(keys, n, out, row0, seed, timeout_ns, part, index, records, syn_options, touched, state):
    """Give `n` rows their flow and direction.

    `index` maps a hash to a record as ``upper 32 bits of the hash << 32 | record + 1`` (0 = free), probed
    linearly. `state` is [records, next flow_id, flows touched in this part].
    """
    k_src_hi, k_src_lo, k_dst_hi, k_dst_lo = keys.src_hi, keys.src_lo, keys.dst_hi, keys.dst_lo
    k_ports, k_syn = keys.ports_protocol, keys.syn_options
    ts_ns, seq, tcp_flags, flow_id, direction = out.ts_ns, out.seq, out.tcp_flags, out.flow_id, out.direction
    mask = np.uint64(index.size - 1)
    low = np.uint64(0xFFFFFFFF)
    free = np.uint64(0)
    n_records, next_id, n_touched = state[0], state[1], state[2]
    for i in range(n):
        row = np.uint64(row0 + i)
        s_hi, s_lo, d_hi, d_lo, ports = k_src_hi[i], k_src_lo[i], k_dst_hi[i], k_dst_lo[i], k_ports[i]
        sport = ports >> 32
        dport = ports >> 16 & 0xFFFF
        if s_lo != d_lo:
            source_is_a = s_lo < d_lo
        elif s_hi != d_hi:
            source_is_a = s_hi < d_hi
        else:
            source_is_a = sport <= dport
        if source_is_a:
            a_hi, a_lo, b_hi, b_lo = s_hi, s_lo, d_hi, d_lo
        else:
            a_hi, a_lo, b_hi, b_lo = d_hi, d_lo, s_hi, s_lo
            ports = dport << 32 | sport << 16 | ports & 0xFFFF

        h = _hash(a_hi, a_lo, b_hi, b_lo, ports, seed)
        tag = h & ~low
        slot = h & mask
        r = np.int64(-1)
        while index[slot] != free:
            if index[slot] & ~low == tag:
                candidate = np.int64(index[slot] & low) - 1
                if (
                    records[candidate, _A_LO] == a_lo
                    and records[candidate, _B_LO] == b_lo
                    and records[candidate, _PORTS] == ports
                    and records[candidate, _A_HI] == a_hi
                    and records[candidate, _B_HI] == b_hi
                ):
                    r = candidate
                    break
            slot = slot + np.uint64(1) & mask

        now = ts_ns[row]
        flags = np.int64(tcp_flags[row])
        is_syn = flags & (_SYN_FLAG | _ACK_FLAG | _RST_FLAG) == _SYN_FLAG
        is_syn_ack = flags & (_SYN_FLAG | _ACK_FLAG | _RST_FLAG) == _SYN_FLAG | _ACK_FLAG
        bits = np.int64(0)
        new = r < 0
        if not new:
            bits = records[r, _ID_STATE] & 0xFFFFFFFF
            if now - records[r, _LAST_TS] > timeout_ns:
                new = True
            elif is_syn:
                if bits & _FIN:
                    new = True
                elif bits & _SYN:
                    if source_is_a == (bits & _INITIATOR_IS_A != 0):
                        new = records[r, _ISN_PART] >> 32 & 0xFFFFFFFF != np.int64(seq[row])
                    else:  # a simultaneous open (RFC 9293, 3.5), unless this flow is over
                        new = bits & _RST != 0
                else:
                    new = bits & _SYN_ACK == 0  # a SYN right behind its SYN-ACK was captured out of order

        if new:
            # a 5-tuple used again gets a record of its own; the index forgets the old one, the part's keys do not
            r = n_records
            n_records += 1
            index[slot] = tag | np.uint64(r + 1)
            records[r, _A_HI] = a_hi
            records[r, _A_LO] = a_lo
            records[r, _B_HI] = b_hi
            records[r, _B_LO] = b_lo
            records[r, _PORTS] = ports
            records[r, _LAST_TS] = now
            records[r, _ISN_PART] = 0
            syn_options[r, 0] = _NO_SYN_OPTIONS
            syn_options[r, 1] = _NO_SYN_OPTIONS
            bits = np.int64(_INITIATOR_IS_A if source_is_a != is_syn_ack else 0)
            this_id = next_id
            next_id += 1
        else:
            this_id = records[r, _ID_STATE] >> 32 & 0xFFFFFFFF
            if now > records[r, _LAST_TS]:
                records[r, _LAST_TS] = now

        way = 0 if source_is_a == (bits & _INITIATOR_IS_A != 0) else 1
        if flags & _SYN_FLAG:
            syn_options[r, way] = k_syn[i]
            if is_syn and way == 0:
                records[r, _ISN_PART] = np.int64(seq[row]) << 32 | records[r, _ISN_PART] & 0xFFFFFFFF
                bits |= _SYN
            elif is_syn_ack:
                bits |= _SYN_ACK
        if flags & _FIN_FLAG:
            bits |= _FIN
        if flags & _RST_FLAG:
            bits |= _RST
        records[r, _ID_STATE] = this_id << 32 | bits
        if records[r, _ISN_PART] & 0xFFFFFFFF != part:
            records[r, _ISN_PART] = records[r, _ISN_PART] & ~0xFFFFFFFF | part
            touched[n_touched] = r
            n_touched += 1
        flow_id[row] = this_id
        direction[row] = way
    state[0], state[1], state[2] = n_records, next_id, n_touched


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _fill_index(index, records, live, seed):
    """Enter the records numbered `live` into an empty index."""
    mask = np.uint64(index.size - 1)
    for i in range(live.size):
        r = live[i]
        h = _hash(
            records[r, _A_HI],
            records[r, _A_LO],
            records[r, _B_HI],
            records[r, _B_LO],
            records[r, _PORTS],
            seed,
        )
        slot = h & mask
        while index[slot] != np.uint64(0):
            slot = slot + np.uint64(1) & mask
        index[slot] = h & ~np.uint64(0xFFFFFFFF) | np.uint64(r + 1)


class FlowIds:
    """The table of flows, carried from part to part.

    Parameters
    ----------
    timeout_s : float or None
        A 5-tuple silent for longer starts a new flow; None: never.
    retire : bool
        Forget flows that have timed out, so that memory is bounded by the flows alive at a time. They still
        appear in :meth:`keys` of every part in which they were seen. Without it, one part holds all.
    """

    def __init__(self, timeout_s: float | None, retire: bool = False) -> None:
        self._timeout_ns = np.iinfo(np.int64).max if timeout_s is None else round(timeout_s * 1e9)
        self._retire = retire and timeout_s is not None
        self._seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        self._records = np.empty((1 << 12, _WORDS), np.int64)
        self._syn_options = np.empty((1 << 12, 2), np.uint32)
        self._touched = np.empty(1 << 12, np.int64)
        self._index = np.zeros(1 << 13, np.uint64)
        self._state = np.zeros(3, np.int64)
        self._part = 1

    def __len__(self) -> int:
        """Flows numbered so far."""
        return int(self._state[1])

    def assign(self, keys: FlowKeyColumns, n: int, out: PacketColumns, row0: int) -> None:
        """Write ``flow_id`` and ``direction`` of rows `row0` … of `out`, whose keys are the first `n` of `keys`."""
        self._reserve(n)
        _assign(
            keys,
            n,
            out,
            row0,
            self._seed,
            self._timeout_ns,
            self._part,
            self._index,
            self._records,
            self._syn_options,
            self._touched,
            self._state,
        )

    def _reserve(self, n: int) -> None:
        """Room for `n` more flows; the index stays at most half full."""
        used = int(self._state[0])
        if used + n > len(self._records):
            capacity = max(2 * len(self._records), used + n)
            for name in ("_records", "_syn_options", "_touched"):
                old = getattr(self, name)
                fresh = np.empty((capacity, *old.shape[1:]), old.dtype)
                fresh[:used] = old[:used]
                setattr(self, name, fresh)
        if 2 * (used + n) > len(self._index):
            self._rebuild_index(self._live(), 2 * len(self._index))

    def _live(self) -> np.ndarray:
        """Numbers of the records the index knows, ascending."""
        entries = self._index[self._index != 0]
        return np.sort((entries & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1)

    def _rebuild_index(self, live: np.ndarray, size: int) -> None:
        self._index = np.zeros(size, np.uint64)
        _fill_index(self._index, self._records, live, self._seed)

    def keys(self) -> FlowKeys:
        """The flows seen in this part, in order of flow_id."""
        touched = self._touched[: self._state[2]]
        records = self._records[touched]
        flow_id = records[:, _ID_STATE] >> 32 & 0xFFFFFFFF
        order = np.argsort(flow_id, kind="stable")
        records = records[order]
        bits = records[:, _ID_STATE]
        initiator_is_a = (bits & _INITIATOR_IS_A) != 0
        ports = records[:, _PORTS]
        version = (ports & 0xFF).astype(np.uint8)
        ends = [
            _address_bytes(records[:, hi], records[:, lo], version)
            for hi, lo in ((_A_HI, _A_LO), (_B_HI, _B_LO))
        ]
        a_port = (ports >> 32 & 0xFFFF).astype(np.uint16)
        b_port = (ports >> 16 & 0xFFFF).astype(np.uint16)
        syn_options = self._syn_options[touched][order]
        return FlowKeys(
            flow_id=flow_id[order].astype(np.uint32),
            ip_version=version,
            protocol=(ports >> 8 & 0xFF).astype(np.uint8),
            sport=np.where(initiator_is_a, a_port, b_port),
            dport=np.where(initiator_is_a, b_port, a_port),
            src=np.where(initiator_is_a[:, None], ends[0], ends[1]),
            dst=np.where(initiator_is_a[:, None], ends[1], ends[0]),
            saw_syn=(bits & _SYN) != 0,
            mss=(syn_options >> 16).astype(np.uint16),
            window_scale=(syn_options >> 8 & 0xFF).astype(np.uint8),
            sack_permitted=(syn_options & 1) != 0,
        )

    def next_part(self) -> None:
        """Start a new part: :meth:`keys` begins anew."""
        if self._retire and self._state[0] >= _RETIRE_RECORDS:
            live = self._live()
            last = self._records[live, _LAST_TS]
            live = live[last >= last.max() - self._timeout_ns]
            self._records[: len(live)] = self._records[live]
            self._syn_options[: len(live)] = self._syn_options[live]
            self._state[0] = len(live)
            self._rebuild_index(np.arange(len(live)), len(self._index))
        self._state[2] = 0
        self._part += 1


def _address_bytes(hi: np.ndarray, lo: np.ndarray, version: np.ndarray) -> np.ndarray:
    """Addresses as rows of 16 bytes in network order; an IPv4 address is the first 4."""
    out = np.empty((len(hi), 16), np.uint8)
    out[:, :8] = np.ascontiguousarray(hi).astype(">i8").view(np.uint8).reshape(-1, 8)
    out[:, 8:] = np.ascontiguousarray(lo).astype(">i8").view(np.uint8).reshape(-1, 8)
    v4 = version == 4
    out[v4, :4] = out[v4, 12:]
    out[v4, 4:] = 0
    return out
