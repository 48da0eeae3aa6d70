"""Turn a stream of cells into rows of the slots table as soon as they are known."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from ..._support.state import grown
from ...analysis.slots import CELL, SlotRows, slot_columns
from ...errors import ParameterError
from ...schema import SLOTS

__all__ = ["SlotStream"]

_FLOW = np.dtype(
    [
        ("next", np.int64),  # first slot whose row has not been returned
        ("begun", np.bool_),  # whether rows have been returned
        ("seen_in", np.bool_),
        ("seen_out", np.bool_),
    ]
)


class SlotStream:
    """The rows of :func:`cctoolkit.compute_slots`, computed incrementally.

    CBIQ and throughput of slot t need the next slot with packets at both taps. A row waits for it or, if only one tap
    has continued, for at most `patience_ms`; unknown values are then null. Bytes in flight are known at once. Apart
    from rows that timed out, the pieces together are the table of the whole.

    Parameters
    ----------
    first_slot : int
        First slot of the taps (since the Unix epoch); slots are counted from here.
    slot_ns : int
    has_egress : bool
    sampled : bool
        As ``cctoolkit.analysis.slots.slot_columns``.
    fill : "backward" or "interpolate"
    patience_ms : float

    Attributes
    ----------
    late_cells : int
        Cells that arrived after their slot's row had been returned.

    See Also
    --------
    watch : feeds one
    cctoolkit.compute_slots : the same for a whole capture

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> collector = cct.live.CaptureCollector(run.ingress, run.egress, slot_ms=10)
    >>> more = collector.wait(collector.now_ns + 1_000_000_000)
    >>> (key, payload_bytes), *rest = collector.heavy(least_bytes=10_000)
    >>> collector.add(0, key)
    >>> first_slot = collector.now_ns // collector.slot_ns
    >>> stream = cct.live.SlotStream(first_slot, collector.slot_ns, has_egress=True, sampled=False)
    >>> stream.begin(0, first_slot)
    >>> more = collector.wait(collector.now_ns + 1_000_000_000)
    >>> reading = collector.read()
    >>> slots = stream.update(reading.in_cells, reading.out_cells, reading.until_slot)
    >>> slots.flow_id.unique().tolist()
    [0]
    """

    def __init__(
        self,
        first_slot: int,
        slot_ns: int,
        *,
        has_egress: bool,
        sampled: bool,
        fill: str = "backward",
        patience_ms: float = 1000,
    ) -> None:
        self._first_slot = first_slot
        self._slot_ns = slot_ns
        self._has_egress = has_egress
        self._sampled = sampled
        self._interpolate = fill == "interpolate"
        self._patience = max(round(patience_ms * 1e6 / slot_ns), 1)
        self._flows = np.zeros(0, _FLOW)
        self._in = np.empty(0, CELL)
        self._out = np.empty(0, CELL)
        self.late_cells = 0

    def begin(self, flow: int, slot: int) -> None:
        """Start a flow at this slot (since the Unix epoch); earlier cells are ignored."""
        self._flows = grown(self._flows, flow + 1)
        self._flows[flow] = (slot, False, False, False)

    def update(
        self, in_cells: np.ndarray, out_cells: np.ndarray, until_slot: int, ended: Iterable[int] = ()
    ) -> pd.DataFrame:
        """Take cells, and return the rows that are known by now.

        Parameters
        ----------
        in_cells, out_cells : arrays of ``cctoolkit.analysis.slots.CELL``
            New cells, with slots since the Unix epoch; ways are twice the flow's number.
        until_slot : int
            Cells of earlier slots are complete.
        ended : flow numbers
            Flows that have ended: all their rows are returned.

        Returns
        -------
        DataFrame
            :data:`cctoolkit.schema.SLOTS`, with the next rows of each flow.
        """
        in_cells, self._in = _split(np.concatenate([self._in, self._timely(in_cells)]), until_slot)
        out_cells, self._out = _split(np.concatenate([self._out, self._timely(out_cells)]), until_slot)
        ways = np.union1d(in_cells["way"], out_cells["way"])
        flow = ways >> 1
        known = self._flows[flow]
        first = np.where(known["begun"], known["next"], np.iinfo(np.int64).max)
        rows = SlotRows(ways, in_cells, out_cells, first)
        known["seen_in"] |= rows.last_in >= 0
        known["seen_out"] |= rows.last_out >= 0
        covered = (self._first_slot, until_slot - 1)
        table = slot_columns(
            rows, in_cells, out_cells, covered, covered if self._has_egress else None,
            interpolate=self._interpolate, sampled=self._sampled, seen=(known["seen_in"], known["seen_out"]),
        )  # fmt: skip

        over = np.isin(flow, np.fromiter(ended, np.int64))
        last_in = _last_data(ways, in_cells)
        both = np.minimum(last_in, rows.last_out) if self._has_egress else last_in
        end = np.maximum(both, until_slot - self._patience)  # the first slot that must wait
        end[over] = np.iinfo(np.int64).max
        wanted = (rows.slot < np.repeat(end, rows.lengths)) & (
            rows.slot >= np.repeat(known["next"], rows.lengths)
        )
        last = rows.slot[rows.offset[1:] - 1]
        moved = end > known["next"]
        known["next"] = np.maximum(known["next"], np.minimum(end, last + 1))
        known["begun"] |= moved
        self._flows[flow] = known

        goes_on = np.ones(len(self._flows), np.bool_)
        goes_on[flow[over]] = False
        in_cells, out_cells = (cells[goes_on[cells["way"] >> 1]] for cells in (in_cells, out_cells))
        self._in = np.concatenate([self._kept(in_cells, with_acks=True), self._in])
        self._out = np.concatenate([self._kept(out_cells, with_acks=False), self._out])
        table["slot"] = rows.slot - self._first_slot
        frame = pd.DataFrame({name: table[name][wanted] for name in SLOTS}, copy=False)
        frame.attrs["slot_ms"] = self._slot_ns / 1e6
        return frame

    def _timely(self, cells: np.ndarray) -> np.ndarray:
        """Drop cells of unknown flows, and those that are too late."""
        if not isinstance(cells, np.ndarray) or cells.dtype != CELL or cells.ndim != 1:
            raise ParameterError("cells: expected an array of cctoolkit.analysis.slots.CELL")
        cells = cells[cells["way"] >> 1 < len(self._flows)]
        state = self._flows[cells["way"] >> 1]
        late = cells["slot"] < state["next"]
        self.late_cells += int((late & state["begun"]).sum())
        return cells[~late]

    def _kept(self, cells: np.ndarray, with_acks: bool) -> np.ndarray:
        """Cells that later rows need.

        Besides the rows' own cells, these are each flow's last one before them, if cells record what was sent and
        acknowledged by then, and its last one with packets, if values are interpolated.
        """
        flow = cells["way"] >> 1
        pending = cells["slot"] >= self._flows["next"][flow]
        kept = pending.copy()
        for wanted, which in ((with_acks, ~pending), (self._interpolate, ~pending & (cells["packets"] != 0))):
            if wanted:
                last = np.full(len(self._flows), -1)
                np.maximum.at(last, flow[which], cells["slot"][which])
                kept |= which & (cells["slot"] == last[flow])
        return cells[kept]


def _last_data(ways: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Slot of the last cell with packets for each way, in order; negative without any."""
    last = np.full(len(ways), np.iinfo(np.int64).min)
    cells = cells[cells["packets"] != 0]
    np.maximum.at(last, np.searchsorted(ways, cells["way"]), cells["slot"])
    return last


def _split(cells: np.ndarray, until_slot: int) -> tuple[np.ndarray, np.ndarray]:
    """Split cells into complete ones and the rest."""
    complete = cells["slot"] < until_slot
    return cells[complete], cells[~complete]
