"""The rate of the bottleneck and the minimum size of its buffer, where a capture shows them.

A link with packets waiting sends at its own rate, so the traffic that passes while there is a queue shows that rate,
and it is the same in every window. Where it is not (a radio link, a changing shaper, traffic missing from the
capture), there is no estimate.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._support.ethernet import FULL_FRAME_BYTES
from .summary import QUEUE_INTERVAL_NS, QUEUE_SAMPLES, QUEUE_TARGET_NS, Summary, TwoTaps, each

__all__ = ["Bottleneck", "find_bottleneck"]

#: Rates are compared over windows of this length, all of them with packets waiting.
WINDOW_S = 0.5
#: With fewer windows nothing is said.
WINDOWS = 6
MOST_INTERVALS = 1 << 22  # more: months, or a clock that was set
#: The interquartile range of the windows' rates, as a share of their median, above which the rate is not one rate.
SPREAD = 0.05
#: With one tap, the queue is other traffic's if the rates at which packets leave, by the growth of the queue, spread
#: more than this, and twice as much as those at which they arrive: what arrives does not make it grow.
NOISE = 0.015
#: Traffic of other flows than those followed, as a share of theirs.
BESIDE = 0.05
#: With two taps: if this many bytes remain queued after a slot, the link was busy throughout it.
BACKLOG_BYTES = 2 * FULL_FRAME_BYTES


@dataclass(frozen=True)
class Bottleneck:
    """What a capture shows about the link that packets wait for.

    Attributes
    ----------
    rate : float
        Bytes per second on the wire.
    buffer_ns : int
        The longest wait seen: the buffer holds at least this much at that rate.
    flow_id : int
        The largest flow that waited.
    windows : int
        Windows of half a second over which the rate is the median.
    spread : float
        Their interquartile range as a share of their median.
    taps : int
        1: from round-trip times. 2: from packets seen on both sides of the queue.

    See Also
    --------
    find_bottleneck : estimates it

    Examples
    --------
    >>> from cctoolkit.report.bottleneck import Bottleneck
    >>> Bottleneck(rate=1e6, buffer_ns=50_000_000, flow_id=0, windows=20, spread=0.01, taps=1).buffer_bytes
    50000.0
    """

    rate: float
    buffer_ns: int
    flow_id: int
    windows: int
    spread: float
    taps: int

    @property
    def buffer_bytes(self) -> float:
        """The longest wait as bytes at the bottleneck's rate."""
        return self.rate * self.buffer_ns / 1e9


def find_bottleneck(summary: Summary) -> Bottleneck | None:
    """Estimate the rate of the bottleneck and the minimum size of its buffer.

    Parameters
    ----------
    summary : Summary
        If it has two taps, both are used.

    Returns
    -------
    Bottleneck or None
        None if the capture does not show them: too little time with packets waiting, a rate that varies, traffic
        missing from the capture, a tap after the queue, or (with one tap) waits that do not grow with what arrives, or
        a higher rate at other times without any.

    Notes
    -----
    With one tap, before the queue, a packet that arrives at time t leaves at t + d(t), where d is the RTT less the
    minimum RTT. So the bytes that arrive within a window leave within the window's length plus the growth of d. Bytes
    that the queue drops are counted too, so the rate is too high by the share dropped.

    See Also
    --------
    cctoolkit.summarise : makes the summary
    cctoolkit.report.findings.findings : says it in a sentence

    Examples
    --------
    >>> from cctoolkit.report.bottleneck import find_bottleneck
    >>> capture = cct.example("bufferbloat")  # 8 Mbit/s
    >>> found = find_bottleneck(cct.summarise(capture.ingress, egress=capture.egress))
    >>> f"{8e-6 * found.rate:.2f} Mbit/s, {found.buffer_ns / 1e6:.0f} ms"
    '7.99 Mbit/s, 454 ms'
    """
    if summary.two_taps is not None:
        return _from_two_taps(summary, summary.two_taps)
    return _from_one_tap(summary)


def _judge(rates: list[float], buffer_ns: int, flow_id: int, taps: int) -> Bottleneck | None:
    if len(rates) < WINDOWS:
        return None
    middle, spread = _middle(rates)
    return Bottleneck(middle, buffer_ns, flow_id, len(rates), spread, taps) if spread <= SPREAD else None


def _middle(rates: list[float]) -> tuple[float, float]:
    """The median, and the interquartile range as a share of it."""
    low, middle, high = np.percentile(rates, [25, 50, 75])
    return float(middle), float(high - low) / float(middle) if middle > 0 else np.inf


def _from_two_taps(s: Summary, taps: TwoTaps) -> Bottleneck | None:
    waited = taps.queue_delay["delay_ns"].dropna()
    if not len(waited) or taps.slots.empty:
        return None
    table = taps.slots[["slot", "cbiq_bytes"]].assign(
        left=taps.slots["out_bytes"] * _wire_per_payload(s, taps)
    )
    by_slot = table.groupby("slot").sum()
    if by_slot.index[-1] >= MOST_INTERVALS:
        return None
    by_slot = by_slot.reindex(np.arange(by_slot.index[-1] + 1)).fillna(0)
    busy = (by_slot["cbiq_bytes"] >= BACKLOG_BYTES).to_numpy()
    busy[1:] &= busy[:-1]  # also at its beginning
    left = by_slot["left"].to_numpy(float)
    if not left.sum() or _beside(s) > BESIDE * left.sum():
        return None
    slot_s = taps.slot_ns / 1e9
    rates = [
        left[window].sum() / (len(window) * slot_s)
        for window in _windows(busy, max(round(WINDOW_S / slot_s), 1))
    ]
    of = taps.queue_delay.dropna(subset="delay_ns")["flow_id"]
    largest = s.top["flow_id"][s.top["flow_id"].isin(of)]
    return _judge(rates, int(waited.max()), int(largest.iloc[0]), 2)


def _wire_per_payload(s: Summary, taps: TwoTaps) -> np.ndarray:
    """For each row of the slots table, which counts payload: its flow's ratio of bytes on the wire to payload."""
    forward = s.top["data_direction"] == 0
    size, payload = (
        s.top[f"{what}_fwd"].where(forward, s.top[f"{what}_rev"]) for what in ("bytes", "payload")
    )
    ratio = pd.Series((size / payload.where(payload > 0)).to_numpy(float), s.top["flow_id"])
    return ratio.reindex(taps.slots["flow_id"]).to_numpy()


def _beside(s: Summary) -> float:
    """Bytes of flows that are not followed, both directions."""
    of_top = (s.top["bytes_fwd"] + s.top["bytes_rev"]).to_numpy() * s.top["binned"].to_numpy()
    return s.totals["bytes"] - float(of_top.sum())


def _windows(busy: np.ndarray, length: int) -> list[np.ndarray]:
    """Stretches of `length` that are busy throughout, one after another."""
    found, run = [], 0
    for i, yes in enumerate(busy):
        run = run + 1 if yes else 0
        if run == length:
            found.append(np.arange(i + 1 - length, i + 1))
            run = 0
    return found


def _from_one_tap(s: Summary) -> Bottleneck | None:
    judged = s.standing_queue
    standing = judged[judged["loaded"] * 2 >= judged["intervals"]]
    if standing.empty or len(s.idle):
        return None
    worst = standing.iloc[0]
    ways = _ways(s.top, int(worst["flow_id"]), int(worst["direction"]))
    width_s = max(QUEUE_INTERVAL_NS, s.bin_ns) / 1e9
    intervals = int(s.duration_s / width_s + 1e-6) + 1
    if intervals > MOST_INTERVALS:
        return None
    along, beside = np.zeros(intervals), np.zeros(intervals)
    place = (s.flow_throughput["time_s"] / width_s + 1e-6).astype(int).to_numpy()
    by_way: dict[Any, Any] = s.flow_throughput.groupby(["flow_id", "direction"]).indices
    for (flow_id, direction), rows in by_way.items():
        size = np.bincount(place[rows], s.flow_throughput["bytes"].to_numpy()[rows], intervals)
        way = ways[int(flow_id)]
        if way is None:
            beside += size
        elif way == direction:
            along += size
    if beside.sum() + _beside(s) > BESIDE * along.sum():
        return None
    waits = [
        _wait(s, flow.flow_id, flow.direction, flow.base_ns, width_s)
        for flow in each(standing)
        if ways[flow.flow_id] == flow.direction
    ]
    mean = pd.concat([wait["mean_s"] for wait in waits], axis=1).mean(axis=1)
    minimum = pd.concat([wait["least_s"] for wait in waits], axis=1).max(axis=1)
    arrived = pd.concat([wait["arrived_s"] for wait in waits], axis=1).mean(axis=1).to_numpy()
    border = np.arange(intervals + 1) * width_s
    wait_s, minimum_s = (np.interp(border, arrived, of.to_numpy()) for of in (mean, minimum))
    busy = (minimum_s > QUEUE_TARGET_NS / 1e9) & (border >= arrived[0]) & (border <= arrived[-1])
    length = max(round(WINDOW_S / width_s), 1)

    def of_windows(which: np.ndarray) -> tuple[list[float], list[float]]:
        """Rates at which packets arrive, and at which they leave."""
        arrive, leave = [], []
        for window in _windows(which, length):
            first, after = window[0], window[-1] + 1
            grows_s = wait_s[after] - wait_s[first]
            if grows_s > -length * width_s:
                arrive.append(along[window].sum() / (length * width_s))
                leave.append(along[window].sum() / (length * width_s + grows_s))
        return arrive, leave

    arrive, rates = of_windows(busy[:-1] & busy[1:])
    found = _judge(rates, round(float(minimum.max()) * 1e9), int(worst["flow_id"]), 1)
    if found is None or found.spread > max(NOISE, 2 * _middle(arrive)[1]):
        return None
    known = (border >= arrived[0]) & (border <= arrived[-1])
    _, without = of_windows(~busy[:-1] & ~busy[1:] & known[:-1] & known[1:])
    return found if max(without, default=0) <= (1 + SPREAD) * found.rate else None


def _wait(s: Summary, flow_id: int, direction: int, base_ns: float, width_s: float) -> pd.DataFrame:
    """By interval: mean and minimum of the RTT less the minimum RTT, and when those packets arrived."""
    of = s.rtt_over_time
    of = of[(of["flow_id"] == flow_id) & (of["direction"] == direction)]
    interval = (of["time_s"] / width_s + 1e-6).astype(int)
    samples = of["samples"].groupby(interval).sum()
    mean = (of["mean_ns"] * of["samples"]).groupby(interval).sum() / samples
    table = pd.DataFrame(
        {
            "mean_s": (mean - base_ns) / 1e9,
            "least_s": (of["min_ns"].groupby(interval).min() - base_ns) / 1e9,
            "arrived_s": (samples.index + 0.5) * width_s - mean / 1e9,
        }
    )
    return table[samples >= QUEUE_SAMPLES]


def _ways(flows: pd.DataFrame, flow_id: int, direction: int) -> dict[int, int | None]:
    """For each flow, the direction that crosses the tap as `direction` of `flow_id` does; None if unknown.

    A tap on a link has each network on one side of it. Who talks to whom across the tap shows which networks share a
    side; where networks contradict that, single addresses count.
    """
    for bits in ((24, 64), (32, 128)):
        sides = _two_sides(flows, bits)
        if sides is not None:
            break
    else:
        return {int(f): direction if f == flow_id else None for f in flows["flow_id"]}
    group, side = sides[flow_id]
    return {
        of: (direction if own_side == side else 1 - direction) if own_group == group else None
        for of, (own_group, own_side) in sides.items()
    }


def _two_sides(flows: pd.DataFrame, bits: tuple[int, int]) -> dict[int, tuple[str, int]] | None:
    """Group and side of each flow's initiator; None if both ends of a flow, or of a cycle of flows, share a side."""
    parent: dict[str, tuple[str, int]] = {}

    def root(node: str) -> tuple[str, int]:
        flipped = 0
        while (up := parent.setdefault(node, (node, 0)))[0] != node:
            node, flipped = up[0], flipped ^ up[1]
        return node, flipped

    def network(address: str) -> str:
        ip = ipaddress.ip_address(address)
        return str(ipaddress.ip_network((ip, bits[ip.version == 6]), strict=False))

    ends = [(network(src), network(dst)) for src, dst in zip(flows["src"], flows["dst"], strict=True)]
    for src, dst in ends:
        (a, a_side), (b, b_side) = root(src), root(dst)
        if a == b and a_side == b_side:
            return None
        if a != b:
            parent[a] = (b, a_side ^ b_side ^ 1)
    return {int(flow_id): root(src) for flow_id, (src, _) in zip(flows["flow_id"], ends, strict=True)}
