"""Random samples of packets as the Dragonfly authors' published filter takes them: in random order.

github.com/DeanCarmel/Dragonfly, ``online_sim/online_filtering.py``, class ``ConnStat``: packets of each tap are put in
order, and pandas' ``sample`` draws some of them, which leaves these in random order. What follows takes them to be in
order. The first row of each slot is kept. Then retransmissions are removed: every row whose sequence number is below
that of the row before, or more than 250 000 above, again until no number falls. In random order, hardly a row is left.
CBIQ is only known in slots with a row from both taps, so it is 0 throughout. Bytes in a slot do not depend on order.

Here, slots are those of all packets; the program's table begins at the time of the first row, a random one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from ...capture.model import Capture

__all__ = ["left_in_order", "shuffled_slots"]

#: How far the sequence number of a row may be above that of the row before, and how often rows are removed.
_LONGEST_STEP = 250_000
_ROUNDS = 1000


def left_in_order(seq: np.ndarray) -> np.ndarray:
    """Rows that are left once those that look retransmitted are removed.

    Parameters
    ----------
    seq : array of int
        Sequence numbers, in the order of the rows.

    Returns
    -------
    array of int
        Numbers of rows.
    """
    rows = np.arange(len(seq))
    for _ in range(_ROUNDS):
        steps = np.diff(seq[rows], prepend=seq[rows[:1]])
        if not (steps < 0).any():
            break
        rows = rows[(steps >= 0) & (steps <= _LONGEST_STEP)]
    return rows


def shuffled_slots(
    slots: pd.DataFrame, ingress: Capture, egress: Capture, share: float, seed: int
) -> pd.DataFrame:
    """Slots of a sample of the packets.

    Parameters
    ----------
    slots : DataFrame
        The slots of all packets (:func:`cctoolkit.compute_slots`).
    ingress, egress : Capture
        The taps.
    share : float
        Of the packets at each tap.
    seed : int

    Returns
    -------
    DataFrame
        Rows and columns of `slots`. Where they are known, ``cbiq_bytes`` is the program's, and ``throughput_bytes``
        what the sample has arriving in a slot, over its share.
    """
    slot_ns, start_ns = round(slots.attrs["slot_ms"] * 1e6), slots.attrs["start_ns"]
    rng = np.random.default_rng(seed)
    parts = []
    for flow_id, flow in slots.groupby("flow_id", sort=False):
        first, length = int(flow["slot"].iloc[0]), len(flow)
        known = []
        for tap in (ingress.columns, egress.columns):
            mine = np.flatnonzero((tap["flow_id"] == flow_id) & (tap["payload_bytes"] > 0))
            drawn = rng.permutation(mine)[: round(share * len(mine))]
            slot = (np.asarray(tap["ts_ns"])[drawn] - start_ns) // slot_ns - first
            known.append(
                (
                    slot,
                    np.asarray(tap["seq"])[drawn].astype(np.int64),
                    np.asarray(tap["payload_bytes"])[drawn],
                )
            )
        arrived, _, size = known[0]
        throughput = np.bincount(arrived, weights=size, minlength=length)[:length] / share
        (entered, entering), (left, leaving) = (_by_slot(slot, seq, length) for slot, seq, _ in known)
        queue = np.where(entered & left, entering - leaving, np.nan)
        columns = {"cbiq_bytes": _interpolated(queue), "throughput_bytes": throughput}
        parts.append(
            flow.assign(
                **{name: np.where(flow[name].notna(), values, np.nan) for name, values in columns.items()}
            )
        )
    made = pd.concat(parts)
    made.attrs = dict(slots.attrs)
    return made


def _by_slot(slot: np.ndarray, seq: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Which slots have a sequence number in the end, and which one."""
    _, firsts = np.unique(slot, return_index=True)
    rows = np.sort(firsts)  # the first row of each slot, in the order of the sample
    rows = rows[left_in_order(seq[rows])]
    there, numbers = np.zeros(length, bool), np.zeros(length)
    there[slot[rows]], numbers[slot[rows]] = True, seq[rows]
    return there, numbers


def _interpolated(queue: np.ndarray) -> np.ndarray:
    """Bytes in the queue, also between slots where they are known; before the first there are none, later the last."""
    at = np.flatnonzero(~np.isnan(queue))
    if not len(at):
        return np.zeros(len(queue))
    return np.maximum(np.interp(np.arange(len(queue)), at, queue[at], left=0.0), 0).astype(np.int64)
