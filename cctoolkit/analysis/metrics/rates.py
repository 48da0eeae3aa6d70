"""Throughput and goodput of each flow and direction in bins of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba
import numpy as np
import pandas as pd

from ..._support.arguments import positive_ns
from ..._support.kernels import kernel
from ..._support.state import grown
from ...capture.model import columns_of
from ...capture.protocols import ACK, FIN, RST, SYN
from ...errors import ParameterError
from ..flow_kernels import HOLE, HOLES
from ..sequence import ahead, is_foreign
from ..taps import wanted_flows
from .gaps import new_bytes

__all__ = ["RateTable", "goodput", "throughput"]

_STATE = np.dtype(
    [
        ("bin", np.int64),  # of the open cell
        ("packets", np.int64),
        ("wire", np.int64),
        ("unique", np.int64),  # payload not seen before
        ("acked", np.int64),  # payload newly acknowledged
        ("end", np.uint32),  # highest sequence number sent
        ("ack", np.uint32),  # highest acknowledged
        ("fin", np.uint32),  # sequence number of the FIN
        ("holes", np.uint32),  # row of the gaps below `end`
        ("missed", np.uint32),  # bytes of older gaps
        ("hole_count", np.uint16),
        ("seen", np.uint16),  # bits: HAS_CELL, HAS_END, HAS_ACK, ACKED, HAS_FIN, HAS_SYN, HAS_DATA
    ]
)
assert _STATE.itemsize == 64  # a cache line
_CELL = np.dtype([(name, np.int64) for name in ("way", "bin", "packets", "wire", "unique", "acked")])
_HAS_CELL, _HAS_END, _HAS_ACK, _ACKED, _HAS_FIN, _HAS_SYN, _HAS_DATA = (1 << i for i in range(7))
_BATCH = 1 << 18  # packets per kernel call: bounds the memory for new cells


@numba.njit(inline="always")
def _close(state, way, cell):
    cell.way = way
    cell.bin = state.bin
    cell.packets = state.packets
    cell.wire = state.wire
    cell.unique = state.unique
    cell.acked = state.acked


@numba.njit(inline="always")
def _open(state, at):
    state.seen |= _HAS_CELL
    state.bin = at
    state.packets = 0
    state.wire = 0
    state.unique = 0
    state.acked = 0


@kernel
def _collect(
    first, stop, ts, flow_id, direction, seq, ack, tcp_flags, payload, wire, wanted, start_ns, bin_ns,
    states, holes, used, touched, cells,
):  # fmt: skip
    """Count rows `first` to `stop` by flow, direction and time bin.

    Parameters
    ----------
    first, stop : int
        Range of rows.
    ts, flow_id, direction, seq, ack, tcp_flags, payload, wire : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`).
    wanted : bool array
        Whether a flow counts, by flow number; empty: all do.
    start_ns, bin_ns : int
        Start of the first bin and width of all.
    states : array of ``_STATE``
        By ``2 * flow_id + direction``; updated.
    holes, used : arrays
        Gaps of directions without ACKs, as for :func:`~.gaps.new_bytes`; updated.
    touched : uint64 array
        Receives the directions (as in `states`) seen for the first time.
    cells : array of ``_CELL``
        Receives the completed cells.

    Returns
    -------
    row, n_cells, n_touched : int
        The row reached (before `stop` if `holes` are full), how many cells were completed, and how many directions were
        seen for the first time.
    """
    n_cells = np.uint64(0)
    n_touched = np.uint64(0)
    n_wanted = np.uint64(len(wanted))
    last_holes = np.int64(len(holes) // HOLES) - 2  # with more rows taken, no other is free
    at = np.int64(0)
    bin_from = np.int64(1)  # an empty range of time: the first packet computes its bin
    bin_to = np.int64(0)
    for i in range(np.uint64(first), np.uint64(stop)):
        f = np.uint64(flow_id[i])
        if n_wanted != 0 and (f >= n_wanted or not wanted[f]):
            continue
        t = ts[i] - start_ns
        if t < bin_from or t >= bin_to:
            at = t // bin_ns
            bin_from = at * bin_ns
            bin_to = bin_from + bin_ns
        way = f << np.uint64(1) | np.uint64(direction[i])
        state = states[way]
        if not state.seen & _HAS_CELL:
            touched[n_touched] = way
            n_touched += np.uint64(1)
            _open(state, at)
        elif state.bin != at:
            _close(state, way, cells[n_cells])
            n_cells += np.uint64(1)
            _open(state, at)
        state.packets += 1
        state.wire += wire[i]
        p = np.int64(payload[i])
        flags = np.int64(tcp_flags[i])
        if flags == 0:
            state.unique += p
            continue
        begin = np.int64(seq[i]) + ((flags >> 1) & 1)  # a SYN takes one number; data begin after it
        end = begin + p
        if p != 0 or flags & SYN:
            if not state.seen & _HAS_END:
                state.seen |= _HAS_END
                state.end = end & 0xFFFFFFFF
                state.unique += p
            elif begin & 0xFFFFFFFF == np.int64(state.end):
                state.unique += p
                state.end = end & 0xFFFFFFFF
            else:
                highest = np.int64(state.end)
                beyond = ahead(end, highest)
                new = min(max(beyond, 0), p)
                has_gaps = state.hole_count != 0 or state.missed != 0 or ahead(begin, highest) > 0
                if has_gaps and not state.seen & _ACKED:  # with ACKs, only they count
                    if used[1] > last_holes:  # as if this packet had not come yet
                        state.packets -= 1
                        state.wire -= wire[i]
                        return np.int64(i), n_cells, n_touched
                    new += new_bytes(state, holes, used, begin, p - new)
                state.unique += new
                if beyond > 0:
                    state.end = end & 0xFFFFFFFF
            if not state.seen & _HAS_ACK:  # acknowledged bytes are counted from the first byte seen
                state.seen |= _HAS_ACK
                state.ack = begin & 0xFFFFFFFF
        if p != 0:
            state.seen |= _HAS_DATA
        if flags & SYN:
            state.seen |= _HAS_SYN
        if flags & FIN:
            state.seen |= _HAS_FIN
            state.fin = end & 0xFFFFFFFF
        if flags & (ACK | RST) == ACK:
            other = states[way ^ np.uint64(1)]
            a = np.int64(ack[i])
            # a capture without the data is believed from the answer to the SYN on
            is_checked = other.seen & _HAS_END and (other.seen & _HAS_DATA or not state.seen & _HAS_SYN)
            if is_checked and is_foreign(a, np.int64(other.end)):
                continue
            if not other.seen & _HAS_ACK:
                other.seen |= _HAS_ACK | _ACKED
                other.ack = a
            else:
                advance = ahead(a, np.int64(other.ack))
                if advance > 0x40000000 or (advance < 0 and not other.seen & (_ACKED | _HAS_SYN)):
                    # more than the largest window, or for data from before the first byte seen: count from here
                    other.seen |= _ACKED
                    other.ack = a
                elif advance >= 0:
                    other.seen |= _ACKED
                    other.ack = a
                    if other.seen & _HAS_FIN and ahead(a, np.int64(other.fin)) > 0:
                        other.seen &= ~_HAS_FIN
                        advance -= 1
                    elif (
                        advance == 1 and not other.seen & _HAS_END
                    ):  # a FIN in a direction that is not captured
                        advance = 0
                    if advance > 0:
                        if not other.seen & _HAS_CELL:
                            touched[n_touched] = way ^ np.uint64(1)
                            n_touched += np.uint64(1)
                            _open(other, at)
                        elif other.bin != at:
                            _close(other, way ^ np.uint64(1), cells[n_cells])
                            n_cells += np.uint64(1)
                            _open(other, at)
                        other.acked += advance
    return np.int64(stop), n_cells, n_touched


@kernel
def _open_cells(states, touched, cells):
    for i in range(len(touched)):
        _close(states[touched[i]], touched[i], cells[i])


@kernel
def _span(cells, row_of_way, first, last):
    for i in range(len(cells)):
        row = row_of_way[cells[i].way]
        first[row] = min(first[row], cells[i].bin)
        last[row] = max(last[row], cells[i].bin)


@kernel
def _scatter(cells, row_of_way, first, offset, packets, wire, unique, acked):
    """Add cells to the rows of the result.

    Parameters
    ----------
    cells : array of ``_CELL``
        What to add.
    row_of_way : int array
        Entry of `first` and `offset` for each ``2 * flow_id + direction``.
    first : int64 array
        First bin of each direction.
    offset : int64 array
        Its first row in the columns.
    packets, wire, unique, acked : int64 arrays
        Columns of the result: packets, bytes on the wire, new payload, newly acknowledged payload.
    """
    for i in range(len(cells)):
        of_way = row_of_way[cells[i].way]
        row = offset[of_way] + cells[i].bin - first[of_way]
        packets[row] += cells[i].packets
        wire[row] += cells[i].wire
        unique[row] += cells[i].unique
        acked[row] += cells[i].acked


class RateTable:
    """:func:`~cctoolkit.throughput` and :func:`~cctoolkit.goodput` for packets in batches.

    Parameters
    ----------
    bin_s : float
    flow_ids : int or iterable of int, optional
    max_rows : int
        As for :func:`~cctoolkit.throughput`.

    See Also
    --------
    cctoolkit.throughput : bytes on the wire in one call
    cctoolkit.goodput : delivered bytes in one call
    cctoolkit.iter_capture : a capture in batches

    Notes
    -----
    Memory grows with the number of bins in which flows were active, and by 384 bytes for each direction without ACKs of
    which the tap missed some data. The result does not depend on the batches.

    Examples
    --------
    >>> packets = cct.example("cubic-bbr").ingress.packets
    >>> rates = cct.metrics.RateTable(bin_s=0.5)
    >>> for batch in packets[:5000], packets[5000:]:
    ...     rates.update(batch)
    >>> bool(rates.result().wire_bytes.sum() == packets.wire_bytes.sum())
    True
    """

    def __init__(
        self, bin_s: float = 1.0, flow_ids: Iterable[int] | int | None = None, max_rows: int = 10_000_000
    ) -> None:
        self._bin_ns = positive_ns(bin_s, 1e9, "bin_s")
        self._wanted = wanted_flows(flow_ids)
        self._max_rows = max_rows
        self._start_ns: int | None = None
        self._states = np.zeros(0, _STATE)
        self._holes = np.zeros(0, HOLE)
        self._used = np.zeros(2, np.int64)
        self._touched: list[np.ndarray] = []
        self._cells: list[np.ndarray] = []
        self._n_cells = 0

    def update(self, packets: Any) -> None:
        """Take the next packets: a Capture, a packets DataFrame or a dict of arrays.

        Raises
        ------
        ParameterError
            The table would be larger than `max_rows`.
        """
        columns = columns_of(packets)
        ts, flow_id, direction, seq, ack, tcp_flags, payload, wire = (
            columns[name]
            for name in (
                "ts_ns", "flow_id", "direction", "seq", "ack", "tcp_flags", "payload_bytes", "wire_bytes"
            )
        )  # fmt: skip
        n = len(ts)
        if not n:
            return
        if self._start_ns is None:
            self._start_ns = int(ts[0])
        self._states = grown(self._states, 2 * (int(flow_id.max()) + 1))
        cells = np.empty(2 * min(_BATCH, n), _CELL)
        touched = np.empty(2 * min(_BATCH, n), np.int64)
        for first in range(0, n, _BATCH):
            row, stop = first, min(first + _BATCH, n)
            while row < stop:
                self._holes = grown(self._holes, (int(self._used[1]) + 64) * HOLES, moved=True)
                row, n_cells, n_touched = _collect(
                    row, stop, ts, flow_id, direction, seq, ack, tcp_flags, payload, wire, self._wanted,
                    self._start_ns, self._bin_ns, self._states, self._holes, self._used, touched, cells,
                )  # fmt: skip
                self._cells.append(cells[:n_cells].copy())
                self._touched.append(touched[:n_touched].copy())
                self._n_cells += int(n_cells)
            if self._n_cells > self._max_rows:  # before memory runs out; the exact check is in result()
                self._too_many(self._n_cells, "at least ")

    def _too_many(self, rows: int, about: str = "") -> None:
        raise ParameterError(
            f"bins of {self._bin_ns / 1e9:g} s for {sum(map(len, self._touched)):,} flows and directions make "
            f"{about}{rows:,} rows, more than max_rows = {self._max_rows:,}: choose flows with flow_ids, or wider bins"
        )

    def result(self) -> pd.DataFrame:
        """The table for all packets so far; columns of :func:`~cctoolkit.throughput` and :func:`~cctoolkit.goodput`.

        Raises
        ------
        ParameterError
            The table would be larger than `max_rows`.
        """
        touched = np.concatenate([np.empty(0, np.int64), *self._touched])
        still_open = np.empty(len(touched), _CELL)
        _open_cells(self._states, touched, still_open)
        cells = np.concatenate([*self._cells, still_open])
        ways = np.sort(touched)
        row_of_way = np.zeros(int(ways[-1]) + 1 if len(ways) else 0, np.int64)
        row_of_way[ways] = np.arange(len(ways))
        first = np.full(len(ways), np.iinfo(np.int64).max)
        last = np.full(len(ways), np.iinfo(np.int64).min)
        _span(cells, row_of_way, first, last)
        lengths = last - first + 1
        offset = np.concatenate([[0], np.cumsum(lengths)])
        n = int(offset[-1])
        if n > self._max_rows:
            self._too_many(n)
        packets, wire, unique, acked = (np.zeros(n, np.int64) for _ in range(4))
        _scatter(cells, row_of_way, first, offset, packets, wire, unique, acked)
        delivered = np.where(np.repeat((self._states["seen"][ways] & _ACKED) != 0, lengths), acked, unique)
        bins = np.arange(n) + np.repeat(first - offset[:-1], lengths)
        return pd.DataFrame(
            {
                "flow_id": np.repeat((ways >> 1).astype(np.uint32), lengths),
                "direction": np.repeat((ways & 1).astype(np.int8), lengths),
                "bin": bins,
                "start_s": bins * (self._bin_ns / 1e9),
                "packets": packets,
                "wire_bytes": wire,
                "goodput_bytes": delivered,
                "throughput_mbps": wire * (8e3 / self._bin_ns),
                "goodput_mbps": delivered * (8e3 / self._bin_ns),
            }
        )


def throughput(
    cap: Any, bin_s: float = 1.0, flow_ids: Iterable[int] | int | None = None, max_rows: int = 10_000_000
) -> pd.DataFrame:
    """Bytes on the wire of each flow and direction in each bin of time.

    Parameters
    ----------
    cap : Capture, packets DataFrame or dict of arrays
    bin_s : float
        Bin width. Bins are counted from the first packet, like those of ``tshark -z io,stat``.
    flow_ids : int or iterable of int, optional
        Flows to include; by default all.
    max_rows : int
        Maximum number of rows of the table.

    Returns
    -------
    DataFrame
        ``flow_id``, ``direction``, ``bin``, ``start_s`` (of the bin, since the first packet), ``packets``,
        ``wire_bytes``, ``throughput_mbps``: one row per bin, from the first packet of the flow and direction to its
        last; bins without packets in between are 0. All packets count: ACKs, retransmissions, any protocol. Rates are
        over the whole bin, even if the capture begins or ends in it.

    Raises
    ------
    ParameterError
        An argument is invalid, or the table would have more than `max_rows` rows.

    See Also
    --------
    cctoolkit.goodput : delivered bytes only
    cctoolkit.link_utilisation : all flows together, against the link's rate
    cctoolkit.analysis.metrics.RateTable : the same for batches of packets
    cctoolkit.plot.throughput : a figure

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").ingress
    >>> table = cct.throughput(cap, bin_s=1.0)
    >>> table.query("direction == 0").groupby("flow_id").throughput_mbps.mean().round(1).to_dict()
    {0: 2.4, 1: 5.6, 2: 0.0}
    """
    table = RateTable(bin_s, flow_ids, max_rows)
    table.update(cap)
    return table.result().drop(columns=["goodput_bytes", "goodput_mbps"])


def goodput(
    cap: Any, bin_s: float = 1.0, flow_ids: Iterable[int] | int | None = None, max_rows: int = 10_000_000
) -> pd.DataFrame:
    """Application bytes that each flow and direction delivered in each bin of time.

    Parameters
    ----------
    cap, bin_s, flow_ids, max_rows
        As for :func:`~cctoolkit.throughput`.

    Returns
    -------
    DataFrame
        ``flow_id``, ``direction``, ``bin``, ``start_s`` (of the bin, since the first packet), ``goodput_bytes``,
        ``goodput_mbps``: one row per bin from the first to the last packet or ACK, for directions that delivered
        anything.

    Raises
    ------
    ParameterError
        An argument is invalid, or the table would have more than `max_rows` rows.

    See Also
    --------
    cctoolkit.throughput : bytes on the wire
    cctoolkit.jain_over_time : how evenly goodput is shared
    cctoolkit.analysis.metrics.RateTable : the same for batches of packets
    cctoolkit.plot.goodput : a figure, from a simulated run

    Notes
    -----
    Each byte counts once, however often it was sent.

    - If ACKs of a TCP flow were captured, it counts in the bin of the ACK that first covers it: the advance of the
      cumulative acknowledgement number, minus one for a FIN. Bytes reported by SACK count once the cumulative number
      reaches them, so after a loss goodput rises in steps.
    - If none were (a tap that sees one direction only), it counts in the bin in which its payload first passed: bytes
      beyond the highest sequence number seen, and those that fill earlier gaps. Of the newest 15 gaps of a direction
      the bytes are known, of older ones only how many: there, that many repeats count as well.
    - For protocols without sequence numbers all payload counts.

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").ingress
    >>> table = cct.goodput(cap, bin_s=1.0)
    >>> table.groupby("flow_id").goodput_mbps.mean().round(1).to_dict()
    {0: 2.3, 1: 5.3, 2: 0.0}
    """
    table = RateTable(bin_s, flow_ids, max_rows)
    table.update(cap)
    rates = table.result()
    way = 2 * rates["flow_id"].to_numpy(np.int64) + rates["direction"].to_numpy()
    delivered = np.bincount(way, rates["goodput_bytes"]) > 0
    rates = rates[delivered[way]].reset_index(drop=True)
    return rates.drop(columns=["packets", "wire_bytes", "throughput_mbps"])
