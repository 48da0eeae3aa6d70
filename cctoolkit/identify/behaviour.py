"""What a congestion control does in a window, from its sender's own state: what Reno would do, what CUBIC would do.

A name says what a sender runs, and packets show what it does. BIC with a small window, Westwood without losses and
DCTCP without marks grow as Reno does; and CUBIC and Reno do the same where a window has no loss and too few round
trips to grow apart. No classifier can tell such windows apart, and none should be scored as if it could.

So the sender's window is replayed: from where it stood, with its round trips and its losses, what would Reno's have
been at the next sample, and CUBIC's (RFC 5681; RFC 9438 as in Linux)? If the sum of the differences stays within a
segment and a half (or 2 % of the window), and each reduction is by their factor, then the sender did the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._support import arguments
from ..errors import SchemaError

__all__ = ["AS", "PACED", "STATES", "Behaviour", "behaviours", "right", "sender_states"]

#: Columns of a sender's states, one row per sample; ``slot`` is a number of slots, with a fraction.
STATES = (
    "flow_id", "slot", "cwnd_packets", "ssthresh_packets", "srtt_ns", "delivered_packets", "in_recovery",
)  # fmt: skip
#: Columns that say whether a sender did what Reno or CUBIC would do, and the names that are then right.
AS = {"as_reno": "reno", "as_cubic": "cubic"}
#: They pace by a rate of their own: packets show that even where their window moves as Reno's.
PACED = ("bbr", "bbr2", "bbr3", "prague")

#: Windows this close are the same: segments, or a share of the window.
_SEGMENTS, _SHARE = 1.5, 0.02
_C, _BETA, _FIRST_GROWTH = 0.4, 0.7, 0.05  # CUBIC's
_FACTORS = {"reno": (0.5,), "cubic": (_BETA, 1.0)}  # 1: HyStart ends slow start without a loss
#: Two windows of samples may differ by this many packets where they are the same.
_UNSURE = 2
#: In slow start the window grows by what was delivered; samples fall between deliveries, and may be this far off.
_SLOWEST, _FASTEST = 0.4, 1.6


def sender_states(series: pd.DataFrame, flow_ids: Any, start_ns: int, slot_ms: float) -> pd.DataFrame | None:
    """The :data:`STATES` of some flows from the series of a run, in slots from `start_ns` on; None without them."""
    if "ca_state" in series:  # of Linux
        series = series.assign(in_recovery=series["ca_state"].isin(["cwr", "recovery", "loss"]))
    if not {"ts_ns", *STATES} - {"slot"} <= set(series):
        return None
    numbers = set(STATES) - {"slot", "in_recovery"}
    series = arguments.table(
        "flow_series", series, [*sorted(numbers), "ts_ns"], whole=["flow_id", "ts_ns"], error=SchemaError
    )
    kept = series[series["flow_id"].isin(flow_ids)]
    slot = (kept["ts_ns"].to_numpy(np.int64) - start_ns) / (slot_ms * 1e6)
    table = kept.assign(slot=slot)[list(STATES)]
    table = table.sort_values(["flow_id", "slot"], kind="stable", ignore_index=True)
    return table.astype({"flow_id": np.int64, "cwnd_packets": np.float32, "ssthresh_packets": np.float32})


class Behaviour:
    """One sender's window beside Reno's and CUBIC's.

    Parameters
    ----------
    states : DataFrame
        :data:`STATES` of one flow, in order.
    slot_ms : float
    """

    def __init__(self, states: pd.DataFrame, slot_ms: float) -> None:
        self._slot = states["slot"].to_numpy(float)
        self._cwnd = states["cwnd_packets"].to_numpy(float)
        seconds = self._slot * slot_ms / 1e3
        ssthresh, srtt = states["ssthresh_packets"].to_numpy(float), states["srtt_ns"].to_numpy(float) / 1e9
        delivered = np.diff(states["delivered_packets"].to_numpy(float), prepend=0)
        recovers = states["in_recovery"].to_numpy(bool)
        self._replayed = _replayed(seconds, self._cwnd, ssthresh, srtt, delivered, recovers)

    def same_as(self, name: str, first_slot: int, slots: int) -> bool:
        """Whether the sender did what ``"reno"`` or ``"cubic"`` would; False if its states do not cover the window."""
        begin = int(np.searchsorted(self._slot, first_slot, side="right")) - 1
        end = int(np.searchsorted(self._slot, first_slot + slots, side="left"))
        if begin < 0 or end >= len(self._slot):
            return False
        part = slice(begin, end + 1)
        ahead, unlike = self._replayed[name].ahead, self._replayed[name].unlike
        stage = self._replayed[name].stage[part]
        apart = np.where(stage == stage[0], ahead[part] - ahead[begin], ahead[part])
        allowed = np.maximum(_SEGMENTS, _SHARE * self._cwnd[part])
        return not unlike[begin + 1 : end + 1].any() and bool((np.abs(apart) <= allowed).all())

    def alike(self, cca: str, first_slot: int, slots: int) -> dict[str, bool]:
        """The columns :data:`AS` of a window of a flow with this congestion control."""
        paced = cca in PACED
        return {
            column: name == cca or (not paced and self.same_as(name, first_slot, slots))
            for column, name in AS.items()
        }


class _Replay(NamedTuple):
    """A sender beside the replay of a congestion control, by sample."""

    ahead: (
        np.ndarray
    )  # how far the sender's window is above the replayed one, which starts anew with each stage
    stage: (
        np.ndarray
    )  # number of the stage: from the end of a recovery, or of slow start, to the next reduction
    unlike: np.ndarray  # reductions and slow starts unlike its own


def _replayed(
    t: np.ndarray,
    cwnd: np.ndarray,
    ssthresh: np.ndarray,
    srtt: np.ndarray,
    delivered: np.ndarray,
    recovers: np.ndarray,
) -> dict[str, _Replay]:
    """By name.

    Parameters
    ----------
    t, cwnd, ssthresh, srtt, delivered : float arrays, shape (samples,)
        Seconds, packets, packets, seconds, and packets since the sample before.
    recovers : bool array, shape (samples,)
        The sender repairs losses, which brings the window down to ``ssthresh``: congestion controls leave that to it.

    Notes
    -----
    A recovery that begins is a reduction, and so is a changed ``ssthresh``, for a recovery may be shorter than a step.
    """
    n = len(t)
    stage = np.zeros(n, np.int64)
    found = {name: _Replay(np.zeros(n), stage, np.zeros(n, bool)) for name in _FACTORS}
    cubic = _Cubic()
    replayed: dict[str, _Reno | _Cubic] = {"reno": _Reno(), "cubic": cubic}
    shortest = math.inf
    for k in range(1, n):
        before, now, limit = cwnd[k - 1], cwnd[k], ssthresh[k]
        if srtt[k] > 0:
            shortest = min(shortest, srtt[k])
        grows = before < ssthresh[k - 1]
        stage[k] = stage[k - 1] + 1
        if limit != ssthresh[k - 1] or (recovers[k] and not recovers[k - 1]):
            most = before + (delivered[k] if grows else delivered[k] / max(before, 1))
            for name, factors in _FACTORS.items():
                found[name].unlike[k] = not any(
                    math.floor(factor * before) - 1 <= limit <= factor * most + 1 for factor in factors
                )
            if recovers[k] or recovers[k - 1] or limit < before - 1:  # HyStart reduces nothing
                cubic.reduce(before)
        elif recovers[k] or recovers[k - 1]:
            continue
        elif grows:
            most = min(before + delivered[k], limit)
            alike = before + _SLOWEST * (most - before) - 2 <= now <= before + _FASTEST * (most - before) + 2
            for replay in found.values():
                replay.unlike[k] = not alike
        else:
            stage[k] = stage[k - 1]
            for name, window in replayed.items():
                if stage[k - 1] != stage[k - 2] or k == 1:
                    window.start(t[k - 1], before)
                window.grow(t[k], delivered[k], shortest)
                found[name].ahead[k] = min((now - packets for packets in window.windows), key=abs)
    return found


class _Reno:
    """Reno's window, as in :class:`cctoolkit.cca.Reno`."""

    windows = (0.0,)

    def start(self, now_s: float, packets: float) -> None:
        self.windows = (packets,)

    def grow(self, now_s: float, delivered: float, shortest_s: float) -> None:
        (packets,) = self.windows
        self.windows = (packets + delivered / max(math.floor(packets), 1),)


class _Cubic:
    """CUBIC's, as in :class:`cctoolkit.cca.Cubic`.

    Samples tell the window before a reduction to a few packets, so it may be open whether fast convergence has lowered
    the plateau: then there are two windows.
    """

    windows: tuple[float, ...] = (0.0,)
    plateaus: tuple[float, ...] = (0.0,)  # 0: not known
    first = since_s = w_est = 0.0

    def reduce(self, packets: float) -> None:
        full, lowered = packets, packets * (1 + _BETA) / 2
        found = {full for w_max in self.plateaus if packets >= w_max - _UNSURE}
        found |= {lowered for w_max in self.plateaus if packets < w_max + _UNSURE and w_max}
        self.plateaus = tuple(sorted(found))

    def start(self, now_s: float, packets: float) -> None:
        self.since_s = now_s
        self.first = self.w_est = packets
        self.windows = (packets,) * len(self.plateaus)

    def grow(self, now_s: float, delivered: float, shortest_s: float) -> None:
        self.w_est += 3 * (1 - _BETA) / (1 + _BETA) * delivered / max(self.windows[0], 1)
        ahead_s = now_s - self.since_s + shortest_s
        self.windows = tuple(
            self._grown(packets, w_max, ahead_s, delivered)
            for packets, w_max in zip(self.windows, self.plateaus, strict=True)
        )

    def _grown(self, packets: float, w_max: float, ahead_s: float, delivered: float) -> float:
        origin = max(w_max, self.first)
        target = _C * (ahead_s - ((origin - self.first) / _C) ** (1 / 3)) ** 3 + origin
        growth = max(target - packets, math.floor(self.w_est) - packets, 0.01)
        if w_max == 0:
            growth = max(growth, _FIRST_GROWTH * packets)
        return packets + min(growth, packets / 2) * delivered / max(packets, 1)


def behaviours(states: pd.DataFrame, slot_ms: float) -> dict[int, Behaviour]:
    """By flow.

    Raises
    ------
    SchemaError
        A column of :data:`STATES` is missing.
    """
    if missing := [name for name in STATES if name not in states]:
        raise SchemaError(f"states: column {missing[0]!r} is missing")
    flows = states.groupby("flow_id", sort=False)
    return {int(part["flow_id"].iloc[0]): Behaviour(part, slot_ms) for _, part in flows}


def right(said: Any, table: pd.DataFrame) -> np.ndarray:
    """Whether names are right by behaviour: the sender's, or one whose window would have moved as the sender's did.

    Parameters
    ----------
    said : array of str, windows
    table : DataFrame
        ``cca`` and the columns of :data:`AS`, where they are known.

    Examples
    --------
    >>> table = pd.DataFrame({"cca": ["bic", "bic"], "as_reno": [True, False], "as_cubic": False})
    >>> right(["reno", "reno"], table).tolist()
    [True, False]
    """
    said = np.asarray(said, object)
    good = said == table["cca"].to_numpy(object)
    for column, name in AS.items():
        if column in table:
            good = good | ((said == name) & (table[column] == True).to_numpy(bool))  # noqa: E712  (may be null)
    return good
