"""Queueing delay and loss between two taps, packet by packet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..._support.arguments import positive_ns
from ..._support.kernels import kernel
from ...capture.model import columns_of
from ...capture.protocols import FIN, SYN
from ..rtt import rtt_samples
from ..taps import FATE, LOST, UNKNOWN, PacketMatcher, TapPair

__all__ = ["QueueDelay", "queue_delay", "queue_loss", "rtt_split"]

#: A queue may hold packets for this long, though nothing says so.
_LIKELY_WAIT_NS = 250_000_000


@kernel
def _compare_order(came_in, went_out, start_ns, order, began):
    """Find out at which tap the packets (sorted by way) of each way come first.

    The first packet at one tap is compared with the first at the other, and so on, from `start_ns` on, when both taps
    record. Losses do not change the order: what follows them is even later at the second tap.

    Parameters
    ----------
    came_in, went_out : arrays of :data:`~cctoolkit.analysis.taps.FATE`
    start_ns : int
    order : int64 array
        By way: receives how many packets more are later at the egress than earlier.
    began : bool array
        By way: receives whether it clearly began after `start_ns`. The numbers of a stream that had begun before differ
        by what was on its way.
    """
    i = 0
    j = 0
    while i < len(came_in):
        way = came_in[i].way
        while j < len(went_out) and went_out[j].way < way:
            j += 1
        first = i
        first_ns = came_in[i].ts_ns
        if j < len(went_out) and went_out[j].way == way:
            first_ns = min(first_ns, went_out[j].ts_ns)
        while i < len(came_in) and came_in[i].way == way and came_in[i].ts_ns < start_ns:
            i += 1
        while j < len(went_out) and went_out[j].way == way and went_out[j].ts_ns < start_ns:
            j += 1
        while i < len(came_in) and came_in[i].way == way:
            if j < len(went_out) and went_out[j].way == way:
                order[way] += np.sign(went_out[j].ts_ns - came_in[i].ts_ns)
                j += 1
            i += 1
        gap_ns = (came_in[i - 1].ts_ns - came_in[first].ts_ns) // max(i - first - 1, 1)
        began[way] = first_ns - start_ns > max(2 * gap_ns, _LIKELY_WAIT_NS)


@kernel
def _match_by_order(came_in, went_out, max_delay_ns, crosses):
    """Match packets (sorted by way) of the ways whose packets all left, with the same sizes in the same order."""
    i = 0
    j = 0
    while i < len(came_in):
        way = came_in[i].way
        end = i
        while end < len(came_in) and came_in[end].way == way:
            end += 1
        while j < len(went_out) and went_out[j].way < way:
            j += 1
        k = 0
        while (
            i + k < end
            and j + k < len(went_out)
            and went_out[j + k].way == way
            and went_out[j + k].payload_bytes == came_in[i + k].payload_bytes
            and 0 <= went_out[j + k].ts_ns - came_in[i + k].ts_ns <= max_delay_ns
        ):
            k += 1
        if i + k == end and (j + k == len(went_out) or went_out[j + k].way != way):
            delayed = False
            for m in range(k):
                came_in[i + m].delay_ns = went_out[j + m].ts_ns - came_in[i + m].ts_ns
                delayed |= came_in[i + m].delay_ns > 0
            crosses[i:end] = delayed
        i = end


@kernel
def _mark(fates, crosses, place):
    for i in range(len(fates)):
        if crosses[fates[i].way]:
            place[fates[i].row] = 1


@kernel
def _number(place):
    n = 0
    for i in range(len(place)):
        marked = place[i]
        place[i] = n
        n += marked
    return n


@kernel
def _write_rows(fates, crosses, place, ts, flow_id, direction, payload, wire, delay):
    """Write packets that passed the queue to their rows of the result.

    Parameters
    ----------
    fates : array of :data:`~cctoolkit.analysis.taps.FATE`
        What became of packets.
    crosses : bool array
        Whether a direction passes the queue, by ``2 * flow_id + direction``.
    place : int64 array
        Row of the result for each packet.
    ts, flow_id, direction, payload, wire, delay : arrays
        Columns of the result: time in ns, flow, direction, bytes, bytes on the wire, delay in ns.
    """
    for i in range(len(fates)):
        fate = fates[i]
        if crosses[fate.way]:
            k = place[fate.row]
            ts[k] = fate.ts_ns
            flow_id[k] = fate.way >> 1
            direction[k] = fate.way & 1
            payload[k] = fate.payload_bytes
            wire[k] = fate.wire_bytes
            delay[k] = fate.delay_ns


def _without_fate(
    columns: Mapping[str, np.ndarray], rows: np.ndarray, way: np.ndarray, first_row: int
) -> np.ndarray:
    packets = np.empty(len(rows), FATE)
    packets["row"] = rows + first_row
    packets["way"] = way
    packets["delay_ns"] = UNKNOWN
    for name in "ts_ns", "payload_bytes", "wire_bytes":
        packets[name] = columns[name][rows]
    return packets


class QueueDelay:
    """:func:`~cctoolkit.queue_delay` and :func:`~cctoolkit.queue_loss` for packets in batches.

    Parameters
    ----------
    max_delay_s : float
    check_taps : bool
        As for :func:`~cctoolkit.queue_delay`.

    See Also
    --------
    cctoolkit.queue_delay : the delays in one call
    cctoolkit.queue_loss : the losses in one call
    cctoolkit.iter_capture : a capture in batches

    Notes
    -----
    The result does not depend on the batches, and those of the two taps need not end at the same time. Needs about 40
    bytes of memory per packet.

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> before, after = run.ingress.packets, run.egress.packets
    >>> delays = cct.metrics.QueueDelay()
    >>> delays.update(before[:5000], after[:4000])
    >>> delays.update(before[5000:], after[4000:])
    >>> delays.result().equals(cct.queue_delay(before, after))
    True
    """

    def __init__(self, max_delay_s: float = 10.0, check_taps: bool = True) -> None:
        self._max_delay_ns = positive_ns(max_delay_s, 1e9, "max_delay_s")
        self._pair = TapPair(check_taps)
        self._matcher = PacketMatcher(data_only=False, losses_only=False, max_delay_ns=self._max_delay_ns)
        self._rows = 0
        # packets other than TCP segments, which have no sequence number
        self._others_in: list[np.ndarray] = []
        self._others_out: list[np.ndarray] = []

    def update(self, ingress: Any, egress: Any) -> None:
        """Take the next packets of both taps (Captures, packets DataFrames or dicts of arrays)."""
        self._take(*self._pair.update(ingress, egress))

    def _take(self, came_in: Mapping[str, np.ndarray] | None, went_out: Mapping[str, np.ndarray]) -> None:
        self._matcher.update(came_in, went_out, self._pair, np.zeros(0, np.bool_))
        if came_in is not None:
            rows = np.flatnonzero(came_in["tcp_flags"] == 0)
            way = came_in["flow_id"][rows].astype(np.int64) * 2 + came_in["direction"][rows]
            self._others_in.append(_without_fate(came_in, rows, way, self._rows))
            self._rows += len(came_in["ts_ns"])
        rows = np.flatnonzero(went_out["tcp_flags"] == 0)
        way = went_out["flow_id"][rows].astype(np.int64) * 2 + went_out["direction"][rows]
        if self._pair.keyed:
            entry = self._pair.entries[went_out["flow_id"][rows]]
            rows, entry = rows[entry > 0], entry[entry > 0]
            way = (entry - 1) ^ went_out["direction"][rows]
        self._others_out.append(_without_fate(went_out, rows, way, 0))

    def _others(self) -> tuple[np.ndarray, np.ndarray]:
        """Packets other than TCP segments on ways that cross the queue: arrivals with their fates, and departures."""
        rest = self._pair.rest()
        if rest is not None:
            self._take(None, rest)
        nothing = np.empty(0, FATE)
        came_in, went_out = (np.concatenate([nothing, *p]) for p in (self._others_in, self._others_out))
        came_in = came_in[np.isin(came_in["way"], went_out["way"])]
        came_in, went_out = (side[np.argsort(side["way"], kind="stable")] for side in (came_in, went_out))
        pair = self._pair
        ways = (int(came_in["way"].max(initial=0)) | 1) + 1
        order, began = np.zeros(ways, np.int64), np.zeros(ways, np.bool_)
        _compare_order(came_in, went_out, max(pair.ingress_start_ns, pair.egress_start_ns), order, began)
        reverse = (order < 0) & (began | (order[np.arange(ways) ^ 1] > 0))
        came_in = came_in[~reverse[came_in["way"]]]
        if pair.keyed:  # of an earlier flow
            went_out = went_out[went_out["ts_ns"] + 1 >= pair.not_before[went_out["way"] >> 1]]
        crosses = np.ones(len(came_in), np.bool_)
        _match_by_order(came_in, went_out, self._max_delay_ns, crosses)
        return came_in[crosses], went_out

    def result(self) -> pd.DataFrame:
        """The delays so far; see :func:`~cctoolkit.queue_delay`.

        Packets of the egress tap that are still waiting for the ingress tap are processed now. If more updates follow,
        bring both taps up to the same time first.
        """
        self._pair.check()
        others, _ = self._others()
        parts = [(part, self._matcher.crosses) for part in self._matcher.fates()]
        parts.append((others, np.ones(int(others["way"].max(initial=0)) + 1, np.bool_)))
        place = np.zeros(self._rows, np.int64)
        for part, crosses in parts:
            _mark(part, crosses, place)
        n = _number(place)
        ts, delay = np.empty(n, np.int64), np.empty(n, np.int64)
        flow_id, payload, wire = (np.empty(n, np.uint32) for _ in range(3))
        direction = np.empty(n, np.int8)
        for part, crosses in parts:
            _write_rows(part, crosses, place, ts, flow_id, direction, payload, wire, delay)
        return pd.DataFrame(
            {
                "ts_ns": ts,
                "flow_id": flow_id,
                "direction": direction,
                "payload_bytes": payload,
                "wire_bytes": wire,
                "delay_ns": pd.arrays.IntegerArray(delay, delay < 0),
                "lost": pd.arrays.BooleanArray(delay == LOST, delay == UNKNOWN),
            },
            copy=False,
        )

    def loss(self) -> pd.DataFrame:
        """The losses so far; see :func:`~cctoolkit.queue_loss`. Processes waiting packets, as :meth:`result` does."""
        self._pair.check()
        others_in, others_out = self._others()
        crosses = self._matcher.crosses
        segments = [part[crosses[part["way"]]] for part in self._matcher.fates()]
        pair = self._pair
        # How long packets wait at most: datagrams are only counted, so what left must be what had come. Without
        # segments that tell, the captures begin or end at the same time, and what they differ by is the wait.
        wait_ns = max((int(part["delay_ns"].max(initial=0)) for part in segments), default=0)
        if not wait_ns:
            later = pair.egress_start_ns - pair.ingress_start_ns, pair.egress_end_ns - pair.ingress_end_ns
            likely = [ns for ns in later if 0 <= ns <= _LIKELY_WAIT_NS]
            wait_ns = max(likely) if likely else min([self._max_delay_ns, *(ns for ns in later if ns > 0)])
        if pair.egress_start_ns - pair.ingress_start_ns > max(wait_ns, _LIKELY_WAIT_NS):
            others_in = others_in[:0]
        others_in = others_in[others_in["ts_ns"] <= pair.egress_end_ns]
        others_out = others_out[others_out["ts_ns"] <= pair.ingress_end_ns + wait_ns]
        way = np.union1d(np.flatnonzero(crosses), others_in["way"])
        n = int(way[-1]) + 1 if len(way) else 0

        def count(packets: np.ndarray) -> np.ndarray:
            return np.bincount(packets["way"][packets["way"] < n], minlength=n)[way]

        came_in, lost = count(others_in), np.maximum(count(others_in) - count(others_out), 0)
        for part in segments:
            both = (part["ts_ns"] >= pair.egress_start_ns) & (part["ts_ns"] <= pair.egress_end_ns)
            came_in += count(part[both | (part["delay_ns"] != UNKNOWN)])
            lost += count(part[part["delay_ns"] == LOST])
        return pd.DataFrame(
            {
                "flow_id": (way >> 1).astype(np.uint32),
                "direction": (way & 1).astype(np.int8),
                "packets_in": came_in,
                "packets_lost": lost,
                "loss_ratio": lost / np.maximum(came_in, 1),
            }
        )


def queue_delay(
    ingress: Any, egress: Any, max_delay_s: float = 10.0, *, check_taps: bool = True
) -> pd.DataFrame:
    """Delay of each packet between a tap before a queue and a tap after it.

    Parameters
    ----------
    ingress, egress : Capture, packets DataFrame or dict of arrays
        Timestamped by the same clock. Two Captures are matched by 5-tuple, whatever their flow numbers; other tables
        must share flow numbers.
    max_delay_s : float
        Packets that take longer count as lost.
    check_taps : bool
        First check that these can be taps before and after one queue (:func:`cctoolkit.compare_taps`).

    Returns
    -------
    DataFrame
        One row per packet at the ingress, in order of arrival, of the flows and directions that cross the queue: at
        least half of their packets at the egress (up to the ingress capture's end) were seen at the ingress, and not
        all of them without delay (so ACKs in the other direction are left out):

        - ``ts_ns`` (at the ingress), ``flow_id`` (the ingress tap's), ``direction``, ``payload_bytes``, ``wire_bytes``,
        - ``delay_ns``: null if the packet did not leave,
        - ``lost``: null if unknown, as for packets in the queue when the capture ends, or that may have left before
          the egress capture began.

    Raises
    ------
    ParameterError
        The taps are swapped, have no packet in common, or their clocks differ too much.

    Warns
    -----
    TapClockWarning
        The clocks differ, or packets that both taps should have seen were seen by only one.

    See Also
    --------
    cctoolkit.queue_loss : losses only
    cctoolkit.analysis.metrics.rtt_split : what part of each RTT is the queue's
    cctoolkit.compare_taps : can these be two taps of one queue
    cctoolkit.plot.queue_delay : a figure

    Notes
    -----
    TCP segments are matched by their headers (:class:`cctoolkit.analysis.taps.PacketMatcher`), whatever their order.
    Other packets have no sequence number. They are matched by order, and only if every packet of the flow and
    direction left, with the same lengths in the same order; otherwise delay and ``lost`` are null, and only
    :func:`~cctoolkit.queue_loss` can say how many are missing. Packets of the other side are left out: most reach the
    egress tap first, while those of the opposite direction do not, or the stream began during the captures (a stream
    in one direction that had begun before counts as crossing the queue). Segments that segmentation offload cuts
    differently at the two taps are not matched: switch it off for such measurements.

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> delays = cct.queue_delay(run.ingress, run.egress)
    >>> (delays.groupby("flow_id").delay_ns.median() / 1e6).round(1).to_dict()
    {0: 47.5, 1: 51.2}
    """
    delays = QueueDelay(max_delay_s, check_taps)
    delays.update(ingress, egress)
    return delays.result()


def queue_loss(
    ingress: Any, egress: Any, max_delay_s: float = 10.0, *, check_taps: bool = True
) -> pd.DataFrame:
    """Packets of each flow lost between two taps.

    Parameters
    ----------
    ingress, egress, max_delay_s, check_taps
        As for :func:`~cctoolkit.queue_delay`.

    Returns
    -------
    DataFrame
        ``flow_id`` (the ingress tap's), ``direction``, ``packets_in``, ``packets_lost``, ``loss_ratio`` (lost over
        in), for the flows and directions that cross the queue, while both taps record. Packets other than TCP segments
        are counted, not matched: losses are those that came in minus those that left, including any still in the queue
        at the end; they are left out where the egress capture begins later than packets wait (and than a quarter of a
        second). How long they wait, TCP segments say; without any, the times by which the egress capture begins and
        ends later, if that is likely.

    See Also
    --------
    cctoolkit.queue_delay : every packet's delay and fate
    cctoolkit.retransmitted_share : what one tap shows of losses

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> cct.queue_loss(run.ingress, run.egress)[["flow_id", "packets_in", "packets_lost"]]
       flow_id  packets_in  packets_lost
    0        0        2618            57
    1        1        5554            97
    """
    delays = QueueDelay(max_delay_s, check_taps)
    delays.update(ingress, egress)
    return delays.loss()


def rtt_split(ingress: Any, egress: Any, *, check_taps: bool = True) -> pd.DataFrame:
    """Split each flow's round-trip times into the part between two taps and the rest.

    An RTT seen from the tap before the queue is the queueing delay plus the path to the receiver and back. Its excess
    over the flow's minimum RTT (its growth) is often taken for the queueing delay. That is right only if the queue was
    empty at least once when the flow sent; otherwise the minimum RTT itself contains queueing delay, and the growth is
    too small by that amount.

    Parameters
    ----------
    ingress, egress, check_taps
        As for :func:`~cctoolkit.queue_delay`.

    Returns
    -------
    DataFrame
        One row per flow and direction of the data, over RTT samples (:func:`cctoolkit.rtt_samples`, method
        ``seq_ack``) of segments matched at both taps:

        - ``flow_id``, ``direction``, ``samples``,
        - ``rtt_least_ns``: minimum RTT, and ``queue_at_least_ns``: its part between the taps,
        - ``rtt_median_ns``, ``growth_median_ns`` (RTT minus ``rtt_least_ns``), ``queue_median_ns`` (between the taps)
          and ``rest_median_ns`` (RTT minus the part between the taps: the rest of the path, and the receiver).

    Raises
    ------
    ParameterError
        As for :func:`~cctoolkit.queue_delay`.

    See Also
    --------
    cctoolkit.queue_delay : the time between the taps, packet by packet
    cctoolkit.rtt_samples : the round-trip times

    Notes
    -----
    All medians are over the same segments; :func:`~cctoolkit.queue_delay` covers all packets, including those whose ACK
    gives no sample.

    Examples
    --------
    >>> import cctoolkit as cct
    >>> flows = [cct.Flow("cubic", rtt_ms=30), cct.Flow("bbr", rtt_ms=30, start_s=3)]
    >>> link = cct.Bottleneck(rate_mbps=8, buffer_packets=40)
    >>> run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=8), record=True)
    >>> split = cct.metrics.rtt_split(run.ingress, run.egress)
    >>> (split.rest_median_ns / 1e6).tolist()  # the path without the queue
    [30.0, 30.0]
    >>> (split.queue_at_least_ns > 5e6).tolist()  # the second flow never saw an empty queue
    [False, True]
    """
    came_in = columns_of(ingress)
    rtts = rtt_samples(ingress)
    return split_rtts(came_in, rtts, queue_delay(ingress, egress, check_taps=check_taps))


def split_rtts(came_in: Mapping[str, np.ndarray], rtts: pd.DataFrame, delays: pd.DataFrame) -> pd.DataFrame:
    """:func:`rtt_split` from the ingress tap's packets, their RTT samples and their delays."""
    segment = came_in["tcp_flags"] != 0
    way = came_in["flow_id"].astype(np.int64) * 2 + came_in["direction"]
    numbered = (came_in["tcp_flags"] & (SYN | FIN)) != 0
    end = came_in["seq"].astype(np.int64) + came_in["payload_bytes"] + numbered
    packets = pd.DataFrame(
        {"way": way, "ts_ns": came_in["ts_ns"], "end": end % 2**32, "ack": came_in["ack"].astype(np.int64)}
    )
    # Delays have a row for each segment of their ways, in the order of the capture; of ways in which packets that are
    # no segments crossed the queue, also for those.
    of = delays.assign(way=delays["flow_id"].astype("int64") * 2 + delays["direction"])
    rows = of["way"].value_counts()
    with_others = rows.index[rows == pd.Series(way).value_counts().reindex(rows.index)]
    there = np.isin(way, rows.index) & (segment | np.isin(way, with_others))
    data = packets.assign(segment=segment)[there].sort_values("way", kind="stable")
    of = of[of["way"].isin(data["way"].unique())].sort_values("way", kind="stable")
    data = data.assign(
        queue_ns=of["delay_ns"].to_numpy("float64", na_value=np.nan), payload=of["payload_bytes"].to_numpy()
    )
    data = data[data["segment"] & (data["payload"] > 0) & data["queue_ns"].notna()].drop(
        columns=["ack", "segment"]
    )
    # The times of segment and ACK identify a sample; in a burst, the ACK's number says which segment it is.
    sample = pd.DataFrame(
        {
            "way": rtts["flow_id"].astype("int64") * 2 + rtts["direction"],
            "acked_ns": rtts["ts_ns"],
            "ts_ns": rtts["ts_ns"] - rtts["rtt_ns"],
            "rtt_ns": rtts["rtt_ns"],
        }
    )
    acks = packets[segment][["way", "ts_ns", "ack"]].rename(columns={"ts_ns": "acked_ns", "ack": "end"})
    acks["way"] ^= 1
    found = sample.merge(acks, on=["way", "acked_ns"]).merge(data, on=["way", "ts_ns", "end"])
    found = found.drop_duplicates(["way", "ts_ns", "end"])
    found["rest_ns"] = found["rtt_ns"] - found["queue_ns"]
    by_way = found.groupby("way")
    minimum = found.loc[by_way["rtt_ns"].idxmin()].set_index("way")
    median = by_way[["rtt_ns", "queue_ns", "rest_ns"]].median()
    ways = median.index.to_numpy()
    return pd.DataFrame(
        {
            "flow_id": (ways >> 1).astype(np.uint32),
            "direction": (ways & 1).astype(np.int8),
            "samples": by_way.size().to_numpy(),
            "rtt_least_ns": minimum["rtt_ns"].to_numpy("int64"),
            "queue_at_least_ns": minimum["queue_ns"].to_numpy("int64"),
            "rtt_median_ns": median["rtt_ns"].to_numpy("int64"),
            "growth_median_ns": (median["rtt_ns"] - minimum["rtt_ns"]).to_numpy("int64"),
            "queue_median_ns": median["queue_ns"].to_numpy("int64"),
            "rest_median_ns": median["rest_ns"].to_numpy("int64"),
        }
    )
