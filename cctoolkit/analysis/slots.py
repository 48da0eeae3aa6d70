"""Per-slot inputs of a flow at a queue, as in Carmel and Keslassy, "Dragonfly: In-Flight CCA Identification".

Packets become *cells*, one for each slot in which a flow and direction was active, in one pass and with constant
state per flow; cells become the table, one row for each slot from a flow's first to its last, at a constant cost per
slot. Slots have absolute boundaries (multiples of the slot time since the Unix epoch), as in the paper's collector,
which rounds the clock; the table counts them from the slot of the first packet at either tap.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from .._support.arguments import positive_ns
from .._support.kernels import inlined, kernel
from .._support.state import grown
from ..capture.model import columns_of
from ..errors import ParameterError
from ..schema import SLOTS
from .sequence import ahead, is_foreign
from .taps import LOST, PacketMatcher, TapPair, wanted_flows

__all__ = ["CELL", "SlotRows", "SlotTable", "compute_slots", "slot_columns"]

_STATE = np.dtype(
    [
        ("payload", np.int64),  # bytes so far; 0: no data yet
        ("slot", np.int64),  # of the open cell
        ("first_seq", np.int64),  # of the open cell + 1
        ("bytes", np.int64),
        ("packets", np.int64),
        ("source_gap", np.int64),
        ("arrival_gap", np.int64),
        ("last_ts", np.int64),
        ("last_tsval", np.int64),  # + 1
        ("end", np.int64),  # highest sequence number sent + 1, counted on beyond 2**32; 0: none
        ("acked", np.int64),  # highest acknowledgement number, on the same count; 0: none
        ("ce_packets", np.int64),
        ("ecn_echoes", np.int64),
        ("ecn_flags", np.int64),  # of the last acknowledgement, + 1; 0: none
        ("ecn_mask", np.int64),  # those that report marks; 0: not negotiated in sight, as in classic ECN
        ("open", np.int64),
    ]
)
#: What was seen of a way in a slot. A slot may have several, in order of time.
CELL = np.dtype(
    [
        ("way", np.int64),
        ("slot", np.int64),
        ("first_seq", np.int64),  # + 1; 0: no data
        ("bytes", np.int64),
        ("packets", np.int64),
        ("source_gap", np.int64),
        ("arrival_gap", np.int64),
        ("end", np.int64),
        ("acked", np.int64),
        ("ce_packets", np.int64),  # _NONE from a collector that does not look at ECN
        ("ecn_echoes", np.int64),
    ]
)
_NONE = -(2**63)
_WRAP = 2**32
_CE = 3  # congestion experienced (RFC 3168, section 5)
_SYN, _RST, _ACK = 2, 4, 16
#: Flags in which acknowledgements report marks: ECE (RFC 3168, RFC 8257), or the counter in AE, CWR and ECE of accurate
#: ECN (RFC 9768, section 3.2.2). By these three of the SYN/ACK: whether it is the latter (table 2).
_ECE, _ACE = 64, 64 | 128 | 256
_IS_ACCURATE = (0, 0, 1, 1, 1, 0, 1, 0)
_BATCH = 1 << 18  # packets per kernel call: bounds the room for new cells


#: Columns of the packets table (:data:`cctoolkit.schema.PACKETS` has their dtypes and units).
Packets = namedtuple("Packets", "ts_ns flow_id direction seq ack tcp_flags payload_bytes ecn tsval has_ts")
#: Which packets of a tap are taken in:
#:
#: - `wanted`, bool by flow: which flows; empty: all.
#: - `entries`, int64 by the tap's own flow number: 1 more than the way (``2 * flow + direction``) of the
#:   flow's forward direction, 0 for flows to skip; empty: flow numbers are common to both taps.
#: - `not_before`, int64 by flow: when the flow begins, in ns; read only if there are `entries`.
#: - `first_only`, bool: only the first of each slot of a flow and direction.
#: - `threshold`, uint64: a packet is sampled if its random number is not above; 0: all are.
#: - `salt`, uint64: seed of the random numbers.
Choice = namedtuple("Choice", "wanted entries not_before first_only threshold salt")
#: The collected data: `states` of ``_STATE`` by way; and for one call, `touched`, int64, ways first seen, and
#: `cells` of :data:`CELL`, those closed. With room for one way and two cells per packet.
Collected = namedtuple("Collected", "states touched cells")


@inlined
def _close(state, way, cell):
    cell.way = way
    cell.slot = state.slot
    cell.first_seq = state.first_seq
    cell.bytes = state.bytes
    cell.packets = state.packets
    cell.source_gap = state.source_gap
    cell.arrival_gap = state.arrival_gap
    cell.end = state.end
    cell.acked = state.acked
    cell.ce_packets = state.ce_packets
    cell.ecn_echoes = state.ecn_echoes


@inlined
def _open(state, slot):
    state.open = 1
    state.slot = slot
    state.first_seq = 0
    state.bytes = 0
    state.packets = 0
    state.source_gap = _NONE
    state.arrival_gap = _NONE
    state.ce_packets = 0
    state.ecn_echoes = 0


@inlined
def _move_to(state, slot, way, cell):
    """Open the cell of a slot; return how many cells were closed for it, into `cell`."""
    closed = state.open != 0 and state.slot != slot
    if closed:
        _close(state, way, cell)
    if closed or state.open == 0:
        _open(state, slot)
    return np.uint64(closed)


@inlined
def _random(row, salt):
    """Random 64 bits of the packet with that number: splitmix64 (Steele et al. 2014)."""
    x = row * np.uint64(0x9E3779B97F4A7C15) + salt
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def _take_data(state, t, seq, payload, flags, ecn):
    """Count a segment with payload in the open cell."""
    start = np.int64(seq) + ((flags >> 1) & 1)  # a SYN takes one number, its data begin after it
    if state.packets == 0:
        state.first_seq = (start & 0xFFFFFFFF) + 1
    state.packets += 1
    state.bytes += payload
    state.ce_packets += ecn == _CE
    if state.payload != 0 and t >= state.last_ts:  # a clock that was set back tells no gap
        state.arrival_gap = max(state.arrival_gap, t - state.last_ts)
    state.payload += payload
    state.last_ts = t
    return start + payload


@inlined
def _take_timestamp(state, tsval):
    tick = np.int64(tsval)
    if state.last_tsval != 0:
        state.source_gap = max(state.source_gap, ahead(tick, state.last_tsval - 1))
    state.last_tsval = tick + 1


@inlined
def _take_end(state, end):
    """Note that a segment up to sequence number `end` was sent."""
    if state.end != 0:
        state.end += max(ahead(end, state.end), 0)
    elif state.acked != 0:
        state.end = state.acked + ahead(end, state.acked)
    else:
        state.end = (end & 0xFFFFFFFF) + _WRAP


@inlined
def _acknowledged(state, ack, is_sampled):
    """The highest acknowledgement so far, including this one, counted as in ``_STATE``."""
    is_known = state.end != 0 and not is_sampled
    if is_known and (is_foreign(ack, state.end) or (state.payload == 0 and ahead(ack, state.end) < 0)):
        return state.acked
    if state.acked == 0:
        base = state.end if state.end != 0 else ack + _WRAP
        return base + ahead(ack, base)
    return state.acked + ahead(ack, state.acked)


@kernel
def _collect(at, stop, packets, choice, slot_ns, first_row, with_acks, collected):
    """Take in packets of one tap.

    Parameters
    ----------
    at, stop : int
        The first of them, and the one after the last.
    packets : Packets
        Those of a batch, in capture order.
    choice : Choice
        Which of them.
    slot_ns : int
        Length of a slot.
    first_row : int
        Packets of this tap before the batch.
    with_acks : bool
        Whether to follow what is sent and acknowledged.
    collected : Collected
        Changed in place.

    Returns
    -------
    n_cells, n_touched : uint64
        How many cells were closed, and how many ways were seen first.
    first_ts, last_ts : int64
        The earliest and the latest time of the packets, also of those that are not taken in.
    """
    ts, flow_id, direction, seq, ack, tcp_flags, payload, ecn, tsval, has_ts = packets
    wanted, entries, not_before, first_only, threshold, salt = choice
    states, touched, cells = collected
    n_cells = np.uint64(0)
    n_touched = np.uint64(0)
    n_wanted = np.uint64(len(wanted))
    n_entries = np.uint64(len(entries))
    first_ts = ts[at]
    last_ts = ts[at]
    is_sampled = first_only or threshold != 0  # then the highest number sent is not known
    slot = np.int64(0)
    slot_from = np.int64(1)  # an empty range of time: the first packet computes its slot
    slot_to = np.int64(0)
    for i in range(np.uint64(at), np.uint64(stop)):
        t = ts[i]
        first_ts = min(first_ts, t)
        last_ts = max(last_ts, t)
        flags = tcp_flags[i]
        if flags == 0:
            continue
        f = np.uint64(flow_id[i])
        way = f << np.uint64(1) | np.uint64(direction[i])
        if n_entries != 0:
            entry = entries[f]
            if entry == 0:
                continue
            way = np.uint64(entry - 1) ^ np.uint64(direction[i])
            f = way >> np.uint64(1)
            if t + 1 < not_before[f]:
                continue
        if n_wanted != 0 and (f >= n_wanted or not wanted[f]):
            continue
        if t < slot_from or t >= slot_to:
            slot = t // slot_ns
            slot_from = slot * slot_ns
            slot_to = slot_from + slot_ns
        p = np.int64(payload[i])
        if p != 0:
            if threshold != 0 and _random(np.uint64(first_row) + i, salt) > threshold:
                continue
            state = states[way]
            if state.payload == 0:
                touched[n_touched] = way
                n_touched += np.uint64(1)
            elif first_only and state.slot == slot:
                continue
            n_cells += _move_to(state, slot, way, cells[n_cells])
            end = _take_data(state, t, seq[i], p, flags, ecn[i])
            if has_ts[i]:
                _take_timestamp(state, tsval[i])
            if with_acks:
                _take_end(state, end)
        elif with_acks and flags & _SYN:
            state = states[way]
            if state.payload == 0:
                state.end = ((np.int64(seq[i]) + 1) & 0xFFFFFFFF) + _WRAP
        if with_acks and flags & (_ACK | _RST) == _ACK:
            state = states[way ^ np.uint64(1)]
            if flags & _SYN:
                mask = _ACE if _IS_ACCURATE[(flags & _ACE) >> 6] else _ECE
                state.ecn_mask = mask
                states[way].ecn_mask = mask
            elif state.payload != 0:  # those of the handshake negotiate
                ecn_flags = np.int64(flags) & (state.ecn_mask if state.ecn_mask != 0 else _ECE)
                ecn_flags += 1
                if ecn_flags != state.ecn_flags:
                    if state.ecn_flags != 0:
                        n_cells += _move_to(state, slot, way ^ np.uint64(1), cells[n_cells])
                        state.ecn_echoes += 1
                    state.ecn_flags = ecn_flags
            acked = _acknowledged(state, np.int64(ack[i]), is_sampled)
            if acked > state.acked:
                if state.payload != 0:
                    n_cells += _move_to(state, slot, way ^ np.uint64(1), cells[n_cells])
                state.acked = acked
    return n_cells, n_touched, first_ts, last_ts


@kernel
def _open_cells(states, touched, cells):
    for i in range(len(touched)):
        _close(states[touched[i]], touched[i], cells[i])


@kernel
def _span(cells, flow_of_way, first, last):
    """Widen each flow's range of slots by its cells."""
    for i in range(len(cells)):
        if cells[i].way < len(flow_of_way):
            flow = flow_of_way[cells[i].way] - 1
            if flow >= 0:
                first[flow] = min(first[flow], cells[i].slot)
                last[flow] = max(last[flow], cells[i].slot)


@kernel
def _rows(way, slot, flow_of_way, first, offset):
    """Row of the table for each way and slot; -1 for ways that are not in it."""
    rows = np.full(len(way), -1, np.int64)
    for i in range(len(way)):
        if way[i] < len(flow_of_way):
            flow = flow_of_way[way[i]] - 1
            if flow >= 0:
                rows[i] = offset[flow] + slot[i] - first[flow]
    return rows


@kernel
def _scatter_counts(cells, rows, n_bytes, n_packets, n_ce, first_seq):
    """Merge the cells of each row: there are several where timestamps went backward."""
    for i in range(len(cells)):
        row = rows[i]
        if row >= 0 and cells[i].packets != 0:
            n_bytes[row] += cells[i].bytes
            n_packets[row] += cells[i].packets
            n_ce[row] += cells[i].ce_packets
            if first_seq[row] < 0:
                first_seq[row] = cells[i].first_seq - 1


@kernel
def _scatter_marks(cells, rows, source_gap, arrival_gap, end, acked, echoes):
    """Merge what the cells of each row say besides counts of data.

    Parameters
    ----------
    cells : array of :data:`CELL`
    rows : int64 array, by cell
        Row of the table; negative for none.
    source_gap, arrival_gap, end, acked : int64 arrays, by row
        Raised to the largest value of the row's cells.
    echoes : int64 array, by row
        The changes of ECN flags are added.
    """
    for i in range(len(cells)):
        row = rows[i]
        if row >= 0:
            source_gap[row] = max(source_gap[row], cells[i].source_gap)
            arrival_gap[row] = max(arrival_gap[row], cells[i].arrival_gap)
            end[row] = max(end[row], cells[i].end)
            acked[row] = max(acked[row], cells[i].acked)
            echoes[row] += cells[i].ecn_echoes


@inlined
def _on_line(left, rise, step, run):
    """Sequence number `step` of `run` rows along a line that rises by `rise` from `left` on; rounded."""
    return (left + (2 * rise * step + run) // (2 * run)) & 0xFFFFFFFF


@kernel
def _fill_gaps(seq, offset, interpolate, filled):
    """Fill gaps as in the paper, from the last slot to the first: the next non-empty slot's value, or the line to it.

    Parameters
    ----------
    seq : int64 array, shape (n,)
        First sequence number of each row; negative for none.
    offset : int64 array, shape (flows + 1,)
        First row of each flow, and the row after the last.
    interpolate : bool
        Whether to draw lines.
    filled : int64 array, shape (n,)
        Written; -1 where no later slot has a value.
    """
    for flow in range(len(offset) - 1):
        after = -1  # row of the next non-empty slot
        for row in range(offset[flow + 1] - 1, offset[flow] - 1, -1):
            if seq[row] < 0:
                filled[row] = seq[after] if after >= 0 else -1
                continue
            filled[row] = seq[row]
            if interpolate and after >= 0:
                rise = ahead(seq[after], seq[row])
                for k in range(1, after - row):
                    filled[row + k] = _on_line(seq[row], rise, k, after - row)
            after = row


@kernel
def _cbiq_and_throughput(in_seq, out_seq, offset, cbiq, throughput):
    """CBIQ(t) = max(InSeq(t+1) - OutSeq(t+1), 0) and InThr(t) = max(InSeq(t+1) - InSeq(t), 0).

    Parameters
    ----------
    in_seq, out_seq : int64 arrays, shape (n,)
        Filled sequence numbers at the two taps; negative for none.
    offset : int64 array, shape (flows + 1,)
        As for :func:`_fill_gaps`.
    cbiq, throughput : int64 arrays, shape (n,)
        Written, in bytes; -1: not known.
    """
    for flow in range(len(offset) - 1):
        for row in range(offset[flow], offset[flow + 1]):
            cbiq[row] = throughput[row] = -1
            if row + 1 < offset[flow + 1] and in_seq[row + 1] >= 0:
                throughput[row] = max(ahead(in_seq[row + 1], in_seq[row]), 0)
                if out_seq[row + 1] >= 0:
                    cbiq[row] = max(ahead(in_seq[row + 1], out_seq[row + 1]), 0)


@kernel
def _in_flight(end, acked, offset, in_flight):
    """Bytes in flight at the end of each slot.

    Parameters
    ----------
    end, acked : int64 arrays, shape (n,)
        Highest sequence number sent and acknowledged in each row, counted as in ``_STATE``; 0: none.
    offset : int64 array, shape (flows + 1,)
        As for :func:`_fill_gaps`.
    in_flight : int64 array, shape (n,)
        Written; -1: not known.
    """
    for flow in range(len(offset) - 1):
        highest_end = np.int64(0)
        highest_ack = np.int64(0)
        for row in range(offset[flow], offset[flow + 1]):
            highest_end = max(highest_end, end[row])
            highest_ack = max(highest_ack, acked[row])
            known = highest_end != 0 and highest_ack != 0
            in_flight[row] = max(highest_end - highest_ack, 0) if known else -1


class _Tap:
    """What was collected at one tap."""

    def __init__(self, with_acks: bool) -> None:
        self.with_acks = with_acks
        self.states = np.zeros(0, _STATE)
        self.touched = np.zeros(0, np.int64)
        self.cells: list[np.ndarray] = []
        self.n_cells = 0
        self.rows = 0
        self.first_ts: int | None = None
        self.last_ts = 0

    def all_cells(self) -> np.ndarray:
        """Closed cells in order of time, then those still open."""
        ways = self.touched[self.states["open"][self.touched] != 0]
        still_open = np.empty(len(ways), CELL)
        _open_cells(self.states, ways, still_open)
        return np.concatenate([*self.cells, still_open])

    def take_cells(self) -> np.ndarray:
        """All cells, which are then forgotten. A slot that continues gets another cell."""
        cells = self.all_cells()
        self.states["open"][self.touched] = 0
        self.cells = []
        self.n_cells = 0
        return cells


class SlotTable:
    """:func:`compute_slots` for packets in batches.

    Parameters
    ----------
    slot_ms, sampling, fill, flow_ids, seed, max_rows, check_taps
        As :func:`compute_slots`.

    See Also
    --------
    compute_slots : the same in one call
    iter_capture : a capture in batches
    identify.live.SlotStream : rows as soon as they are known

    Notes
    -----
    Memory grows with the number of slots in which flows were active, not with packets, and with the number of flows
    (only those in `flow_ids`, if given). The result does not depend on the batches, and those of the two taps need not
    end at the same time: packets of the egress tap wait until the ingress tap has caught up.

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> before, after = run.ingress.packets, run.egress.packets
    >>> table = cct.SlotTable(slot_ms=10)
    >>> table.update(before[:5000], after[:4000])
    >>> table.update(before[5000:], after[4000:])
    >>> table.result().equals(cct.compute_slots(before, after, slot_ms=10))
    True
    """

    def __init__(
        self,
        slot_ms: float = 1.0,
        sampling: str | float = "all",
        fill: str = "backward",
        flow_ids: Iterable[int] | int | None = None,
        seed: int = 0,
        max_rows: int = 10_000_000,
        check_taps: bool = True,
    ) -> None:
        self._slot_ns = positive_ns(slot_ms, 1e6, "slot_ms")
        self._first_only = sampling == "first"
        self._threshold = 0
        if sampling not in ("all", "first"):
            if isinstance(sampling, str) or not 0 < sampling <= 1:
                raise ParameterError(
                    f"sampling: {sampling!r} must be 'all', 'first' or a probability above 0, at most 1"
                )
            self._threshold = round(float(sampling) * 2**64) - 1 if sampling < 1 else 0
        self._sampled = self._first_only or self._threshold > 0
        if fill not in ("backward", "interpolate"):
            raise ParameterError(f"fill: {fill!r} is neither 'backward' nor 'interpolate'")
        self._interpolate = fill == "interpolate"
        self._wanted = wanted_flows(flow_ids)
        self._ways: np.ndarray | None = None  # of the flows wanted; None: of all
        if len(self._wanted):
            self._ways = (2 * np.flatnonzero(self._wanted)[:, None] + [0, 1]).ravel()
        self._seed = seed
        self._max_rows = max_rows
        self._ingress = _Tap(with_acks=not self._sampled)
        self._egress: _Tap | None = None
        self._pair = TapPair(check_taps)
        self._matcher = PacketMatcher(data_only=True, losses_only=True, max_delay_ns=10_000_000_000)

    def update(self, ingress: Any, egress: Any = None) -> None:
        """Take the next packets of the ingress tap, and of the egress tap if there is one.

        Parameters
        ----------
        ingress, egress : Capture, packets DataFrame or dict of arrays
            For a tap without packets this time, give an empty table.

        Raises
        ------
        ParameterError
            An egress tap comes or goes in the middle, or the table would be larger than `max_rows`.
        """
        if self._ingress.rows and (egress is None) != (self._egress is None):
            raise ParameterError("egress: give it with every batch or with none")
        if egress is None:
            self._take(self._ingress, columns_of(ingress))
            return
        if self._egress is None:
            self._egress = _Tap(with_acks=False)
        came_in, went_out = self._pair.update(ingress, egress)
        self._take(self._ingress, came_in)
        self._take(self._egress, went_out)
        if not self._sampled:
            self._matcher.update(came_in, went_out, self._pair, self._wanted)

    def take_cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Cells of both taps so far, which are then forgotten, for tables made piece by piece.

        Returns
        -------
        arrays of ``cctoolkit.analysis.slots.CELL``
            Of the ingress tap and of the egress tap; slots are counted since the Unix epoch.
        """
        egress = np.empty(0, CELL) if self._egress is None else self._egress.take_cells()
        return self._ingress.take_cells(), egress

    def _take(self, tap: _Tap, columns: Any) -> None:
        ts = columns["ts_ns"]
        if not len(ts):
            return
        is_egress = tap is self._egress
        entries = self._pair.entries if is_egress else np.zeros(0, np.int64)
        highest = max(int(columns["flow_id"].max()) + 1, len(self._pair.not_before))
        tap.states = grown(tap.states, 2 * highest, self._ways)
        packets = Packets(*(columns[name] for name in Packets._fields))
        choice = Choice(
            wanted=self._wanted,
            entries=entries,
            not_before=self._pair.not_before,
            first_only=self._first_only,
            threshold=np.uint64(self._threshold),
            salt=np.uint64((2 * self._seed + is_egress) * 0xA24BAED4963EE407 % 2**64),
        )
        new_cells = np.empty(2 * min(_BATCH, len(ts)), CELL)
        new_ways = np.empty(min(_BATCH, len(ts)), np.int64)
        collected = Collected(tap.states, new_ways, new_cells)
        for at in range(0, len(ts), _BATCH):
            stop = min(at + _BATCH, len(ts))
            n_cells, n_ways, first_ts, last_ts = _collect(
                at, stop, packets, choice, self._slot_ns, tap.rows, tap.with_acks, collected
            )
            tap.cells.append(new_cells[:n_cells].copy())
            tap.touched = np.concatenate([tap.touched, new_ways[:n_ways]])
            tap.n_cells += int(n_cells)
            if tap.first_ts is None:
                tap.first_ts, tap.last_ts = first_ts, last_ts
            tap.first_ts, tap.last_ts = min(tap.first_ts, first_ts), max(tap.last_ts, last_ts)
            if tap.n_cells > 2 * self._max_rows:  # before memory runs out; the exact check is in result()
                self._too_many(tap.n_cells, len(np.unique(tap.touched >> 1)), "at least ")
        tap.rows += len(ts)

    def _too_many(self, rows: int, flows: int, about: str = "") -> None:
        # flows that are too long one by one
        doubt = " (is a timestamp wrong?)" if rows > flows * self._max_rows else ""
        raise ParameterError(
            f"slots of {self._slot_ns / 1e6:g} ms for {flows:,} flows make {about}{rows:,} rows "
            f"({rows * 160 / 1e9:.1f} GB), more than max_rows = {self._max_rows:,}: "
            f"choose flows with flow_ids, or longer slots{doubt}"
        )

    def result(self) -> pd.DataFrame:
        """The table of all packets so far, see :func:`compute_slots`.

        Packets of the egress tap that are still waiting for the ingress tap are processed now. If more updates follow,
        bring both taps up to the same time first.

        Raises
        ------
        ParameterError
            The table would be larger than `max_rows`, or the taps cannot be those of a queue.
        """
        if self._egress is not None:
            self._pair.check()
            rest = self._pair.rest()
            if rest is not None:
                self._take(self._egress, rest)
                if not self._sampled:
                    self._matcher.update(None, rest, self._pair, self._wanted)
        ways = self._data_ways()
        in_cells = self._ingress.all_cells()
        out_cells = np.empty(0, CELL) if self._egress is None else self._egress.all_cells()
        rows = SlotRows(ways, in_cells, out_cells)
        if rows.n > self._max_rows:
            self._too_many(rows.n, len(ways))
        in_slots, out_slots = self._slots(self._ingress), self._slots(self._egress)
        starts = [slots[0] for slots in (in_slots, out_slots) if slots is not None]
        table = slot_columns(
            rows,
            in_cells,
            out_cells,
            in_slots,
            out_slots,
            interpolate=self._interpolate,
            sampled=self._sampled,
        )
        table["slot"] = rows.slot - min(starts, default=0)
        if self._egress is not None and not self._sampled:
            table["drops_estimate"] = self._drops(rows, in_slots)
        frame = pd.DataFrame({name: table[name] for name in SLOTS}, copy=False)
        frame.attrs["slot_ms"] = self._slot_ns / 1e6
        frame.attrs["start_ns"] = min(starts, default=0) * self._slot_ns
        return frame

    def _drops(self, rows: SlotRows, in_slots: tuple[int, int] | None) -> pd.arrays.IntegerArray:
        fates = np.concatenate(self._matcher.fates())
        unknown = ~(np.repeat(self._matcher.crosses[rows.ways], rows.lengths) & _covered(rows.slot, in_slots))
        at = rows.of(fates["way"], fates["ts_ns"] // self._slot_ns)
        fates, at = fates[at >= 0], at[at >= 0]
        drops = np.bincount(at[fates["delay_ns"] == LOST], minlength=rows.n)
        unknown[at[fates["delay_ns"] != LOST]] = True
        return _nullable(drops, unknown)

    def _data_ways(self) -> np.ndarray:
        """For each flow with data at the ingress, the direction with more of it."""
        flows = np.unique(self._ingress.touched >> 1)
        payload = self._ingress.states["payload"]
        return 2 * flows + (payload[2 * flows + 1] > payload[2 * flows])

    def _slots(self, tap: _Tap | None) -> tuple[int, int] | None:
        """Slots of the tap's first and last packet, of any flow."""
        if tap is None or tap.first_ts is None:
            return None
        return int(tap.first_ts) // self._slot_ns, int(tap.last_ts) // self._slot_ns


class SlotRows:
    """Which slot is in which row: for each way, all slots from its first cell to its last at either tap.

    Parameters
    ----------
    ways : int64 array
        ``2 * flow + direction``, in the order wanted.
    in_cells, out_cells : array of :data:`CELL`
        Cells of other ways are ignored.
    first : int64 array, optional
        By way, the latest slot at which its rows may begin.

    Attributes
    ----------
    n : int
        Rows in all.
    slot : int64 array, shape (n,)
    lengths, offset : int64 array
        For each way: number of rows, and the first one; `offset` has one more entry for the end.
    last_in, last_out : int64 array
        For each way: slot of its last cell at that tap; negative if there is none.
    """

    def __init__(
        self,
        ways: np.ndarray,
        in_cells: np.ndarray,
        out_cells: np.ndarray,
        first: np.ndarray | None = None,
    ) -> None:
        self.ways = ways
        self._of_way = np.zeros(int(ways.max()) + 1 if len(ways) else 0, np.int64)
        self._of_way[ways] = np.arange(1, len(ways) + 1)
        self._first = np.full(len(ways), np.iinfo(np.int64).max) if first is None else first.copy()
        self.last_in, self.last_out = np.full((2, len(ways)), _NONE)
        _span(in_cells, self._of_way, self._first, self.last_in)
        _span(out_cells, self._of_way, self._first, self.last_out)
        self.lengths = np.maximum(self.last_in, self.last_out) - self._first + 1
        self.offset = np.concatenate([[0], np.cumsum(self.lengths)])
        self.n = int(self.offset[-1])

    @cached_property
    def slot(self) -> np.ndarray:
        return np.arange(self.n) + np.repeat(self._first - self.offset[:-1], self.lengths)

    def of(self, way: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """Row of each way and slot; -1 for ways that are not in the table."""
        way, slot = (np.ascontiguousarray(numbers, np.int64) for numbers in (way, slot))
        return _rows(way, slot, self._of_way, self._first, self.offset)


def slot_columns(
    rows: SlotRows,
    in_cells: np.ndarray,
    out_cells: np.ndarray,
    in_slots: tuple[int, int] | None,
    out_slots: tuple[int, int] | None,
    *,
    interpolate: bool,
    sampled: bool,
    seen: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """The columns of :data:`cctoolkit.schema.SLOTS` that cells determine; the others are null.

    Parameters
    ----------
    rows : SlotRows
        Of these cells.
    in_cells, out_cells : array of :data:`CELL`
    in_slots, out_slots : (int, int), optional
        First and last slot covered by the tap; outside, values are unknown. None: no such tap.
    interpolate : bool
        How empty slots are filled.
    sampled : bool
        Cells come from sampled packets, so they are not counts.
    seen : (bool array, bool array), optional
        By way, whether it was ever seen at the ingress and at the egress; by default, whether it is in these cells.

    Returns
    -------
    dict
        Slots are numbered as the cells' are.
    """
    n, offset = rows.n, rows.offset
    table: dict[str, Any] = {
        "flow_id": np.repeat((rows.ways >> 1).astype(np.uint32), rows.lengths),
        "slot": rows.slot,
    }
    in_rows = rows.of(in_cells["way"], in_cells["slot"])
    out_rows = rows.of(out_cells["way"], out_cells["slot"])
    in_covered, out_covered = _covered(rows.slot, in_slots), _covered(rows.slot, out_slots)
    filled = {}
    if seen is None:
        seen = rows.last_in != _NONE, rows.last_out != _NONE
    for side, cells, at, covered, there in (
        ("in", in_cells, in_rows, in_covered, seen[0]),
        ("out", out_cells, out_rows, out_covered, seen[1]),
    ):
        n_bytes, n_packets, n_ce = np.zeros((3, n), np.int64)
        seq = np.full(n, -1, np.int64)
        _scatter_counts(cells, at, n_bytes, n_packets, n_ce, seq)
        filled[side] = np.empty(n, np.int64)
        _fill_gaps(seq, offset, interpolate, filled[side])
        # A flow that never left may not belong to that link at all; a sample is no count.
        unknown = ~(covered & np.repeat(there, rows.lengths)) | sampled
        table[f"{side}_bytes"] = _nullable(n_bytes, unknown)
        table[f"{side}_packets"] = _nullable(n_packets, unknown)
        table[f"{side}_ce_packets"] = _nullable(n_ce, _unless_ecn(cells, unknown))
        table[f"{side}_seq"] = _nullable(seq, seq < 0)

    cbiq, throughput = np.empty(n, np.int64), np.empty(n, np.int64)
    _cbiq_and_throughput(filled["in"], filled["out"], offset, cbiq, throughput)
    table["cbiq_bytes"] = _nullable(cbiq, cbiq < 0)
    table["throughput_bytes"] = _nullable(throughput, throughput < 0)
    table["drops_estimate"] = _nullable(np.zeros(n, np.int64), np.ones(n, np.bool_))

    source_gap, arrival_gap = np.full(n, _NONE), np.full(n, _NONE)
    end, acked, echoes = np.zeros((3, n), np.int64)
    in_flight = np.empty(n, np.int64)
    _scatter_marks(in_cells, in_rows, source_gap, arrival_gap, end, acked, echoes)
    _in_flight(end, acked, offset, in_flight)
    table["max_source_gap"] = _nullable(source_gap, source_gap == _NONE)
    table["max_arrival_gap_ns"] = _nullable(arrival_gap, arrival_gap == _NONE)
    unknown = (in_flight < 0) | ~in_covered
    table["bytes_in_flight"] = _nullable(in_flight, unknown)
    table["ecn_echoes"] = _nullable(echoes, _unless_ecn(in_cells, unknown))
    return table


def _unless_ecn(cells: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """`unknown`, or all of it if these cells are of a collector that does not look at ECN."""
    lacks = len(cells) and cells["ce_packets"].min() == _NONE
    return np.ones_like(unknown) if lacks else unknown


def _covered(slot: np.ndarray, slots: tuple[int, int] | None) -> np.ndarray:
    return np.zeros(len(slot), np.bool_) if slots is None else (slot >= slots[0]) & (slot <= slots[1])


def _nullable(values: np.ndarray, null: np.ndarray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values, null)


def compute_slots(
    ingress: Any,
    egress: Any = None,
    slot_ms: float = 1.0,
    sampling: str | float = "all",
    fill: str = "backward",
    flow_ids: Iterable[int] | int | None = None,
    seed: int = 0,
    max_rows: int = 10_000_000,
    *,
    check_taps: bool = True,
) -> pd.DataFrame:
    """Per-slot inputs of the Dragonfly classifier, from a tap before and a tap after a queue.

    Parameters
    ----------
    ingress : Capture, packets DataFrame or dict of arrays
        The tap before the queue, or the only tap.
    egress : the same, optional
        The tap after the queue, timestamped by the same clock. Two Captures are matched by 5-tuple, whatever their
        flow numbers; other tables must share flow numbers.
    slot_ms : float
        Length of a slot. Slot boundaries are multiples of it since the Unix epoch.
    sampling : "all", "first" or float
        Data packets to use: all, the first of each slot of each flow at each tap, or each with this probability
        (independently at the two taps, from `seed`), as in the paper's sections III-C and III-D.
    fill : "backward" or "interpolate"
        First sequence number of a slot without packets: that of the next slot with packets, or linear interpolation
        between the previous and the next (rounded; without a previous one, the next).
    flow_ids : int or iterable of int, optional
        Flows to include (the ingress tap's numbers); by default all TCP flows with data.
    seed : int
        Seed for random sampling.
    max_rows : int
        Maximum number of rows of the table.
    check_taps : bool
        First check that the captures can be taps before and after one queue (:func:`cctoolkit.compare_taps`).

    Returns
    -------
    DataFrame
        :data:`cctoolkit.schema.SLOTS`: one row per slot of each flow, from its first to its last packet at either tap,
        ordered by flow and slot. Slot 0 has the first packet of both taps. If a flow has data in both directions, the
        direction with more data at the ingress is described. All columns cover its TCP segments with payload:

        - ``in_bytes``, ``out_bytes`` (payload), ``in_packets``, ``out_packets``, and of these ``in_ce_packets``,
          ``out_ce_packets`` with the ECN codepoint CE; null in slots outside the tap's first and last packet, for a
          flow never seen at the egress, and with sampling.
        - ``in_seq``, ``out_seq``: first sequence number in the slot, as captured, not filled.
        - ``cbiq_bytes``: bytes in the queue at the end of slot t, ``max(InSeq(t+1) - OutSeq(t+1), 0)`` with filled
          values; null without a later packet.
        - ``throughput_bytes``: arrived in slot t, ``max(InSeq(t+1) - InSeq(t), 0)`` with filled values.
        - ``drops_estimate``: packets that arrived in the slot and did not leave, although a later one of the flow did
          (or none for 10 s). The paper gives no formula; packets are matched by sequence number, length and timestamps
          (:class:`~cctoolkit.analysis.taps.PacketMatcher`). Null with one tap, with sampling, if fewer than half of
          the flow's packets at the egress (up to the ingress capture's end) are matched (segmentation offload cuts
          them differently), and in slots with packets whose fate is unknown.
        - ``max_source_gap``: largest TSval difference from the flow's previous packet, in ticks of the sender's clock;
          may be negative if packets were reordered.
        - ``max_arrival_gap_ns``: largest time at the ingress since the flow's previous packet; null if the clock
          always went backward.
        - ``bytes_in_flight``: highest sequence number sent minus highest acknowledged at the end of the slot, from the
          ingress tap; null before both directions have been seen there, and with sampling. SACKed bytes count as in
          flight.
        - ``ecn_echoes``: how often the flags in which acknowledgements report marks changed: where ECE begins and ends
          with classic ECN (RFC 3168); each time the counter of marks in AE, CWR and ECE moved, if the SYN/ACK shows
          accurate ECN (RFC 9768). Null where ``bytes_in_flight`` is.

    Raises
    ------
    ParameterError
        An argument is invalid, the table would have more than `max_rows` rows (a day of a backbone link in slots of 1
        ms is feasible for selected flows only), the taps are swapped, they have no packet in common, or their clocks
        differ too much.
    SchemaError
        A packets table lacks a column.

    Warns
    -----
    TapClockWarning
        The taps' clocks differ, or packets that both taps should have seen were seen by only one.

    See Also
    --------
    SlotTable : the same for batches of packets
    compare_taps : can these be two taps of one queue
    plot.cbiq : a figure
    identify.classify_flows : congestion controls from slots

    Notes
    -----
    Carmel and Keslassy, section III. Sequence numbers are compared modulo 2**32. Losses and retransmissions are
    neglected in CBIQ and throughput, as in the paper: where a retransmission is the first packet of a slot, CBIQ may
    exceed what the queue holds. Printed Table I agrees with these formulas except that its throughput columns stand
    one slot early. ``attrs["slot_ms"]`` of the table is `slot_ms`, ``attrs["start_ns"]`` when slot 0 begins.

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> slots = cct.compute_slots(run.ingress, run.egress, slot_ms=100)
    >>> slots[["in_packets", "out_packets", "drops_estimate"]].sum().to_dict()
    {'in_packets': 7952, 'out_packets': 7944, 'drops_estimate': 8}
    """
    table = SlotTable(slot_ms, sampling, fill, flow_ids, seed, max_rows, check_taps)
    table.update(ingress, egress)
    return table.result()
