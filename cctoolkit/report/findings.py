"""A summary in plain sentences, each with the rule behind it.

The thresholds are constants here and in :mod:`cctoolkit.report.summary`. Every sentence carries its rule, which the
report shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from .._support.words import flow_name, format_bytes, format_percent, format_rate, format_time_ns
from ..analysis.flows import retransmitted_share, segment_kinds
from ..capture.protocols import TCP
from . import bottleneck
from .sketch import Sketch, bars_over_time
from .summary import BESIDE, QUEUE_BYTES, QUEUE_TARGET_NS, data_direction

if TYPE_CHECKING:
    from .summary import Summary

__all__ = ["Finding", "Severity", "findings"]

FEW_FLOWS = 5
MOST_BYTES = 0.9
AVERAGE_PACKETS = 100
ENOUGH_SAMPLES = 20  # with fewer a percentile means nothing
RETRANSMISSIONS = 0.001
MUCH_LOST = 0.01  # of the segments or packets: TCP's throughput suffers well before
FEW_LOST = 10  # fewer say little of a rate
_MOST_KNOWN = 0.9  # share of the packets whose fate is known, for a statement about all
A_RATE = 100  # segments; of fewer no percentage is given
ONE_DIRECTION = 0.05
UNFAIR = 0.8
JAIN_BINS = 10  # said only with so many
COMPETITORS = 10  # more flows than this at a time hardly share one bottleneck


class Severity(IntEnum):
    """How much a finding should worry its reader; the report sorts by it.

    Attributes
    ----------
    problem, notice, fact : Severity
        Something to fix, something to know, and a number.

    See Also
    --------
    Finding : has one

    Examples
    --------
    >>> from cctoolkit.report.findings import Severity
    >>> Severity.problem < Severity.notice < Severity.fact
    True
    """

    problem = 0
    notice = 1
    fact = 2


@dataclass(frozen=True)
class Finding:
    """A sentence and the rule that made it.

    Attributes
    ----------
    text, rule : str
    severity : Severity
    flow_id : int or None
        The flow that the sentence is about, or the one that shows it best.
    sketch : Sketch or None
        A small chart to go with the sentence.

    See Also
    --------
    findings : the sentences of a summary

    Examples
    --------
    >>> from cctoolkit.report.findings import Finding, Severity
    >>> Finding("Two flows carry 95 % of the bytes.", "Sums over all flows.").severity
    <Severity.fact: 2>
    """

    text: str
    rule: str
    severity: Severity = Severity.fact
    flow_id: int | None = None
    sketch: Sketch | None = None


def findings(summary: Summary) -> list[Finding]:
    """Put a summary into sentences: how much there is, then what matters, worst first.

    Parameters
    ----------
    summary : Summary

    Returns
    -------
    list of Finding
        For an empty capture, one that says so.

    See Also
    --------
    cctoolkit.summarise : makes the summary
    cctoolkit.report.page.report : shows the sentences with their charts

    Examples
    --------
    >>> from cctoolkit.report.findings import findings
    >>> summary = cct.summarise(cct.example("bufferbloat").ingress)
    >>> for finding in findings(summary)[:2]:
    ...     print(finding.text)
    7 TCP flows and 2 others carry 10.8 MB in 12.4 s, 6.95 Mbit/s on average.
    The RTT of flow 3 (10.1.0.10:40000 → 10.3.0.10:5001) has a minimum of 20.1 ms and a median of 284 ms, and stays high
    while about 224 kB of the flow's own data wait: the signature of a standing queue.
    """
    if not summary.totals["packets"]:
        if summary.meta.packets:
            return [
                Finding(
                    "No packet matches the selection.", "The capture has packets, the selection has none."
                )
            ]
        return [
            Finding("There is no packet with an IP header in this capture.", "The packets table is empty.")
        ]
    rules: tuple[Callable[[Summary], Finding | None], ...] = (
        _standing_queue,
        _two_taps,
        _retransmissions,
        _fairness,
        _bottleneck,
        _losses_and_retransmissions,
        _rtt_and_queue,
        _congestion_marks,
        _one_direction,
        _rtt,
        _concentration,
    )
    found = [finding for rule in rules if (finding := rule(summary)) is not None]
    return [_volume(summary), *sorted(found, key=lambda finding: finding.severity)]


def _over_time(
    s: Summary, time_s: pd.Series, values: np.ndarray, how: Literal["max", "mean", "sum"]
) -> tuple[float, ...]:
    """A sketch's line of values at times since the first packet."""
    first_ns, last_ns = s.totals["first_ts_ns"], s.totals["last_ts_ns"]
    at_ns = s.idle.to_busy(first_ns + np.rint(np.asarray(time_s, float) * 1e9).astype(np.int64)) - first_ns
    span_ns = int(s.idle.to_busy(np.array([last_ns]))[0]) - first_ns
    width_ns = max(s.bin_ns, span_ns // 1000 + 1)
    return bars_over_time(np.maximum(at_ns, 0) // width_ns, values, span_ns // width_ns + 1, how)


def _rtt_sketch(s: Summary, flow_id: int, direction: int) -> Sketch:
    of = s.rtt_over_time
    of = of[(of["flow_id"] == flow_id) & (of["direction"] == direction)]
    values = _over_time(s, of["time_s"], of["mean_ns"].to_numpy(), "mean")
    return Sketch(f"Mean RTT of flow {flow_id} over time", values)


def _volume(s: Summary) -> Finding:
    t = s.totals
    if t["tcp_flows"] == t["flows"]:
        kinds = _count(t["flows"], "TCP flow")
    elif t["tcp_flows"]:
        kinds = f"{_count(t['tcp_flows'], 'TCP flow')} and {_count(t['flows'] - t['tcp_flows'], 'other')}"
    else:
        kinds = f"{_count(t['flows'], 'flow')} without TCP"
    carry = "carries" if t["flows"] == 1 else "carry"
    text = f"{kinds} {carry} {format_bytes(t['bytes'])} in {format_time_ns(s.duration_s * 1e9)}"
    if t["packets"] >= AVERAGE_PACKETS and not _mostly_silent(s):
        text += f", {format_rate(t['bytes'] / s.duration_s)} on average"
    return Finding(
        f"{text}.",
        "Sums over all flows; bytes on the wire as the capture records them, from the first packet to the last. The "
        f"average is given for {AVERAGE_PACKETS} packets or more, unless silence makes up half of the time.",
    )


def _mostly_silent(s: Summary) -> bool:
    """Silence is longer than the rest of the capture, or there is no time at all."""
    if len(s.idle):
        return True
    busy = np.flatnonzero(s.throughput["packets"].to_numpy())
    gap = int(np.diff(busy).max(initial=1)) - 1
    return s.duration_s <= 0 or 2 * gap * s.bin_ns / 1e9 > s.duration_s


def _concentration(s: Summary) -> Finding | None:
    size = np.sort((s.flows["bytes_fwd"] + s.flows["bytes_rev"]).to_numpy())[::-1]
    if len(size) < 2 or not size[0]:
        return None
    largest = int(s.top["flow_id"].iloc[0])
    sketch = Sketch(
        "Shares of the five largest flows and of the rest",
        (*size[:5].astype(float).tolist(), float(size[5:].sum())),
        "parts",
    )
    share = np.cumsum(size) / size.sum()
    few = int(np.searchsorted(share, MOST_BYTES)) + 1
    rule = (
        f"The smallest number of flows with {MOST_BYTES:.0%} of the bytes, if that is at most {FEW_FLOWS} and not all "
        "of them; otherwise the shares of the largest flow and of the ten largest."
    )
    if few <= FEW_FLOWS and few < len(size):
        verb = "One flow carries" if few == 1 else f"{_NUMBERS[few]} flows carry"
        text = f"{verb} {format_percent(share[few - 1])} of the bytes."
        return Finding(text, rule, flow_id=largest, sketch=sketch)
    text = f"The largest flow carries {format_percent(share[0])} of the bytes"
    if len(size) > 10:
        text += f", the ten largest {format_percent(share[9])}"
    return Finding(f"{text}.", rule, flow_id=largest, sketch=sketch)


def _fairness(s: Summary) -> Finding | None:
    there = s.jain.dropna(subset="jain")
    if len(there) < JAIN_BINS:
        return None
    index, flows = there["jain"].median(), there["flows"].median()
    which = (
        "long flows"
        if bool(s.flows.set_index("flow_id").loc[s.jain_flows, "is_long"].all())
        else "largest flows"
    )
    text = (
        f"Jain's index over the {which} is {index:.2f} while two or more of them are active "
        f"(typically {flows:.0f}; 1 is an even split, {1 / flows:.2f} is one flow taking all)"
    )
    poor = _wants_more(s) if index < UNFAIR and flows <= COMPETITORS else None
    if poor is not None:
        text += f": the split is uneven, and flow {poor} gets less than average although its packets wait"
    values = _over_time(s, s.jain["time_s"], s.jain["jain"].to_numpy(float), "mean")
    return Finding(
        f"{text}.",
        f"Median of Jain's index over the bins of {format_time_ns(s.jain_bin_ns)} (at least {JAIN_BINS}) in which two "
        f"or more of the {len(s.jain_flows)} compared flows were between their first packet and their last. Flows that "
        "send in at least half of these bins are compared, even if they do not share a bottleneck, which one capture "
        f"cannot show. The split is called uneven below {UNFAIR} if there are typically at most {COMPETITORS} flows "
        "and a TCP flow that got less than the mean rate had packets of its own waiting in some interval (as for a "
        "standing queue): a flow that asks for little gets little.",
        Severity.fact if poor is None else Severity.problem,
        poor,
        Sketch("Jain's index over time", values),
    )


def _wants_more(s: Summary) -> int | None:
    """A compared flow that got less than the mean rate although it had packets waiting."""
    flows = s.flows.set_index("flow_id").loc[s.jain_flows]
    size = np.where(data_direction(flows), flows["bytes_rev"], flows["bytes_fwd"])
    rate = size / np.maximum((flows["last_ts_ns"] - flows["first_ts_ns"]).to_numpy(), 1)
    waits = flows.index.isin(s.standing_queue.loc[s.standing_queue["loaded"] > 0, "flow_id"])
    poor = flows.index[(rate < rate.mean()) & waits]
    return int(poor[0]) if len(poor) else None


def _rtt(s: Summary) -> Finding | None:
    n = s.totals["rtt_samples"]
    if not n:
        return None
    rule = (
        f"Of {n:,} samples, each from a segment to the ACK of exactly its end (both directions of data, without "
        "retransmitted segments), so flows with more samples count for more. Measured from the tap to the receiver of "
        "the data and back, so a tap near the sender sees most of the path and one near the receiver little of it; a "
        "receiver that delays its ACKs (up to 500 ms by RFC 9293, 40 to 200 ms in practice) adds to it."
    )
    histogram = s.rtt_histogram
    place = np.log2(np.maximum(histogram["low_ns"].to_numpy(float), 1)) * 8
    place -= place.min()
    counts = bars_over_time(place, histogram["samples"].to_numpy(), int(place.max()) + 1, "sum")
    sketch = Sketch("Distribution of the round-trip times, on a logarithmic axis", counts)
    low_ns, middle_ns, high_ns = map(
        s.rtt_quantile_ns, (0.05, 0.5, 0.95) if n >= ENOUGH_SAMPLES else (0, 0.5, 1)
    )
    low, middle, high = map(format_time_ns, (low_ns, middle_ns, high_ns))
    too_short = "too short for the capture's clock"
    if not high_ns:
        spread = too_short
    elif not low_ns:
        spread = f"at most {high}"
    else:
        spread = f"between {low} and {high}" if low != high else low
    if n < ENOUGH_SAMPLES:
        return Finding(f"{_count(n, 'round-trip time')} seen from the tap: {spread}.", rule, sketch=sketch)
    if high_ns:
        typical = f"have a median of {middle}" if middle_ns else f"are mostly {too_short}"
        most = "nine in ten" if low_ns else "nineteen in twenty"
        text = f"Round-trip times seen from the tap {typical}; {most} are {spread}."
    else:
        text = f"Nineteen in twenty of the round-trip times seen from the tap are {spread}."
    return Finding(text, f"5th, 50th and 95th percentile. {rule}", sketch=sketch)


def _standing_queue(s: Summary) -> Finding | None:
    judged = s.standing_queue
    standing = judged[judged["loaded"] * 2 >= judged["intervals"]]
    up = judged[(judged["above"] * 2 >= judged["intervals"]) & (judged["waiting_bytes"] < QUEUE_BYTES)]
    if up.empty and standing.empty:
        return None
    # The flow that sends most: top is sorted by bytes, and the table keeps that order.
    worst = (up if standing.empty else standing).iloc[0]
    flow = s.flows.set_index("flow_id").loc[worst["flow_id"]]
    median = flow["rtt_median_ns_fwd" if worst["direction"] == 0 else "rtt_median_ns_rev"]
    text = (
        f"The RTT of flow {worst['flow_id']:.0f} ({flow_name(flow)}) has a minimum of "
        f"{format_time_ns(worst['base_ns'])} and a median of {format_time_ns(median)}, and stays high"
    )
    waiting = format_bytes(worst["waiting_bytes"])
    if standing.empty:
        text += (
            f", but fewer than two packets of its own can be waiting ({waiting} at its rate): delayed ACKs, the "
            "application, or a queue filled by others"
        )
    else:
        text += f" while about {waiting} of the flow's own data wait: the signature of a standing queue"
        flows, of_flows = len(standing), len(judged)
        if flows > 1:
            which = "All" if flows == of_flows else f"{flows} of {of_flows}"
            text += f". {which} of the largest flows with enough RTT samples show it"
    return Finding(
        f"{text}.",
        "Even the minimum RTT of an interval of 100 ms (or of one bin, if longer) exceeds the flow's minimum RTT by "
        "more than 5 ms and 5 %, in at least half of ten or more intervals with five samples or more, in the direction "
        "with more data: CoDel's notion of a bad queue (RFC 8289, section 3), applied to RTTs. It is called a queue if "
        "at least two full packets of the flow wait in these intervals: its rate times the excess of the RTT over the "
        "minimum (Little's law). A path that became longer looks the same, and so does a link that holds packets back.",
        Severity.notice if standing.empty else Severity.problem,
        int(worst["flow_id"]),
        _rtt_sketch(s, int(worst["flow_id"]), int(worst["direction"])),
    )


def _bottleneck(s: Summary) -> Finding | None:
    b = bottleneck.find_bottleneck(s)
    if b is None:
        return None
    at_once = s.throughput[["tcp_bytes", "udp_bytes", "other_bytes"]].sum(axis=1).to_numpy()
    windows = (
        f"Median over {b.windows} windows of {bottleneck.WINDOW_S:g} s in which packets wait throughout; given for "
        f"{bottleneck.WINDOWS} windows or more if their interquartile range (here {format_percent(b.spread)} of the "
        f"median) is at most {bottleneck.SPREAD:.0%}, and if at most {bottleneck.BESIDE:.0%} of the bytes belong to "
        "flows that are not followed or whose direction across the tap is unknown. "
    )
    if b.taps == 2:
        how = (
            "The rate is that of the bytes that pass the second tap; the buffer is the longest queueing delay between "
            "the taps."
        )
    else:
        how = (
            "The rate is that of the bytes that pass the tap in the direction of the queue, corrected for the growth "
            "of the queue, and includes packets that the queue drops. The buffer is the greatest minimum RTT of any "
            "interval of 100 ms, less the flow's minimum RTT: the queue may hold more."
        )
    return Finding(
        f"Bottleneck about {format_rate(b.rate)}, buffer at least {format_time_ns(b.buffer_ns)} "
        f"({format_bytes(b.buffer_bytes)}).",
        windows + how,
        Severity.notice,
        b.flow_id,
        Sketch("Throughput of all packets over time", _over_time(s, s.throughput["time_s"], at_once, "sum")),
    )


def _two_taps(s: Summary) -> Finding | None:
    if s.two_taps is None or s.two_taps.queue_delay.empty:
        return None
    took = s.two_taps.queue_delay["delay_ns"].dropna()
    fate = s.two_taps.queue_delay["lost"]
    lost, known = int(fate.sum()), int(fate.count())
    if not known:
        return None
    delays = s.two_taps.queue_delay.dropna(subset="delay_ns")
    since_s = (delays["ts_ns"] - s.totals["first_ts_ns"]) / 1e9
    values = _over_time(s, since_s, delays["delay_ns"].to_numpy(float), "max")
    severity = _severity_of_loss(lost, known)
    packets = "the top flows' packets"
    if known < _MOST_KNOWN * len(fate):
        packets = f"the {known:,} of {len(fate):,} packets of the top flows whose fate is known"
    text = f"{format_percent(lost / known)} of {packets} never reach the second tap"
    if len(took):
        middle, high = (format_time_ns(float(took.quantile(q))) for q in (0.5, 0.95))
        text += f"; the others take {middle} from tap to tap (median; 95th percentile {high})"
    return Finding(
        f"{text}.",
        "Packets of the top flows that cross the queue, matched one by one between the two captures, except those "
        "whose fate the captures do not show. The queue dropped what never arrives, unless the second capture is "
        f"incomplete. A problem from {MUCH_LOST:.0%} and {FEW_LOST} packets on.",
        severity,
        sketch=Sketch("Longest wait between the taps over time", values),
    )


def _rtt_and_queue(s: Summary) -> Finding | None:
    """Why the growth of an RTT and the wait between the taps differ."""
    if s.two_taps is None:
        return None
    split = s.two_taps.rtt_split
    split = split[split["samples"] >= ENOUGH_SAMPLES]
    if split.empty:
        return None
    # The flow that the growth misleads most about; without any, the largest.
    hidden = split["queue_at_least_ns"] > np.maximum(0.1 * split["queue_median_ns"], QUEUE_TARGET_NS)
    of = split[hidden].sort_values("queue_at_least_ns").iloc[-1] if hidden.any() else split.iloc[0]
    flow = s.flows.set_index("flow_id").loc[of["flow_id"]]
    rtt, queue, rest = (format_time_ns(of[f"{part}_median_ns"]) for part in ("rtt", "queue", "rest"))
    text = (
        f"The RTT of flow {of['flow_id']:.0f} ({flow_name(flow)}) from the first tap has a median of {rtt}: {queue} "
        f"between the taps, {rest} on the rest of the path and back"
    )
    if hidden.any():
        text += (
            f". The flow never saw the queue empty: even its minimum RTT, {format_time_ns(of['rtt_least_ns'])}, "
            f"includes {format_time_ns(of['queue_at_least_ns'])} of queueing delay, so the RTT's growth "
            f"({format_time_ns(of['growth_median_ns'])}, median) understates the wait"
        )
    return Finding(
        f"{text}.",
        "Medians over RTT samples whose segment was recognised at both taps; the rest is the RTT less the time between "
        "the taps, sample by sample. With one tap you can only subtract the minimum RTT, which is the path's own only "
        "if the queue was ever empty. Given for the flow whose minimum RTT includes the most queueing delay (more than "
        f"{format_time_ns(QUEUE_TARGET_NS)} and a tenth of the median wait), otherwise for the largest.",
        Severity.notice if hidden.any() else Severity.fact,
        int(of["flow_id"]),
        Sketch(
            "The RTT's parts: between the taps, and the rest",
            (float(of["queue_median_ns"]), float(of["rest_median_ns"])),
            "parts",
        ),
    )


def _retransmissions(s: Summary) -> Finding | None:
    t = s.totals
    if t["retransmits"] < max(RETRANSMISSIONS * t["segments"], 1):
        return None
    text = _count(t["retransmits"], "retransmission")
    text += (
        f": {format_percent(s.retransmitted_share)} of the"
        if t["segments"] >= A_RATE
        else f" among the {t['segments']}"
    )
    text += " TCP segments sent"
    top = s.top[s.top["protocol"] == TCP].set_index("flow_id")
    again = top["retransmits_fwd"] + top["retransmits_rev"]
    worst = None
    if again.sum():
        worst = int(again.index[int(again.to_numpy().argmax())])
        if len(again) > 1 and (again == again.max()).sum() == 1:
            share = format_percent(retransmitted_share(top.loc[worst]))
            text += f"; of the largest flows, flow {worst} has the most: {again.max():,}, {share} of its own segments"
    return Finding(
        f"{text}.",
        "Retransmitted segments over segments sent, those with payload, SYN or FIN, in both directions; given from "
        f"{RETRANSMISSIONS:.1%} on, as a percentage of {A_RATE} segments or more, and as a problem from "
        f"{MUCH_LOST:.0%} and {FEW_LOST} retransmissions on. A segment is a retransmission if it repeats sequence "
        "numbers that this tap saw before, or fills a gap too late to have been overtaken on the way. A retransmission "
        "lost before the tap is not seen.",
        _severity_of_loss(t["retransmits"], t["segments"]),
        worst,
        _retransmissions_sketch(s),
    )


def _severity_of_loss(lost: int, of: int) -> Severity:
    if lost >= max(MUCH_LOST * of, FEW_LOST):
        return Severity.problem
    return Severity.notice if lost else Severity.fact


def _retransmissions_sketch(s: Summary) -> Sketch | None:
    if s.top_packets is None:
        return None
    columns = s.top_packets.columns
    few = np.unique(columns["flow_id"], return_inverse=True)[1].astype(np.uint32)  # state is by flow number
    again = np.asarray(segment_kinds(columns | {"flow_id": few}) == "retransmitted")
    since_s = pd.Series((columns["ts_ns"] - s.totals["first_ts_ns"]) / 1e9)
    values = _over_time(s, since_s, again.astype(float), "sum")
    return Sketch("Retransmissions of the largest flows over time", values)


def _losses_and_retransmissions(s: Summary) -> Finding | None:
    """With two taps, the queue's losses beside the retransmissions of the same flows."""
    if s.two_taps is None or s.two_taps.beside >= BESIDE:
        return None
    top = s.top[s.top["protocol"] == TCP].set_index("flow_id")
    loss = s.two_taps.queue_loss
    loss = loss[loss["flow_id"].isin(top.index)]
    lost, again = int(loss["packets_lost"].sum()), 0
    for direction, way in enumerate(("fwd", "rev")):
        across = loss["flow_id"][loss["direction"] == direction]
        again += int(top.loc[across, f"retransmits_{way}"].sum())
    if not lost and not again:
        return None
    text = (
        f"The queue lost {_count(lost, 'TCP packet')} of the largest flows, which retransmitted "
        f"{_count(again, 'segment')}: "
    )
    if again == lost:
        text += "one for each loss"
    elif again > lost:
        text += f"{again - lost:,} more, lost elsewhere or retransmitted needlessly"
    else:
        text += f"{lost - again:,} fewer, because the capture ended first or the losses were pure ACKs"
    gone = s.two_taps.queue_delay
    since_s = (gone["ts_ns"] - s.totals["first_ts_ns"]) / 1e9
    values = _over_time(s, since_s, gone["lost"].fillna(False).to_numpy(float), "sum")
    return Finding(
        f"{text}.",
        "Packets of the largest TCP flows that reached the first tap but not the second, and the retransmitted "
        f"segments of the same flows and directions at the first tap, if both captures cover the same time but for "
        f"{BESIDE:.0%} of the packets. The shares in other sentences differ a little: "
        "the queue's is of all packets of the largest flows, that of retransmissions is of the segments sent by all "
        "TCP flows.",
        sketch=Sketch("Packets lost between the taps over time", values),
    )


def _congestion_marks(s: Summary) -> Finding | None:
    marked = s.ecn_packets["CE"]
    capable = s.ecn_packets["ECT(0)"] + s.ecn_packets["ECT(1)"]
    if not marked or not capable:
        return None
    return Finding(
        f"{_count(marked, 'packet')} ({format_percent(marked / (marked + capable))} of the ECN-capable) "
        f"{'carries' if marked == 1 else 'carry'} a congestion mark, set before the tap.",
        "Packets with the ECN codepoint CE over packets with ECT(0), ECT(1) or CE; given if some have ECT, without "
        "which the two bits have another use or the header is broken. A sender that sets CE itself looks the same.",
        Severity.notice,
        sketch=Sketch(
            "Packets that carry a mark, that are ECN-capable without one, and the others",
            (float(marked), float(capable), float(s.ecn_packets["not ECT"])),
            "parts",
        ),
    )


def _one_direction(s: Summary) -> Finding | None:
    one = s.one_direction
    if not one["of_flows"] or one["flows"] < ONE_DIRECTION * one["of_flows"]:
        return None
    share = format_percent(one["bytes"] / max(one["of_bytes"], 1))
    return Finding(
        f"{one['flows']:,} of {_count(one['of_flows'], 'TCP flow')} ({share} of the TCP bytes) "
        f"{'shows' if one['flows'] == 1 else 'show'} one direction only: no "
        "round-trip times there.",
        f"TCP flows without a packet in one direction, given from {ONE_DIRECTION:.0%} of the flows on. Reasons are "
        "asymmetric routing, unanswered SYNs, or a capture filter.",
        Severity.notice,
        sketch=Sketch(
            "TCP flows with one direction only, and the others",
            (float(one["flows"]), float(one["of_flows"] - one["flows"])),
            "parts",
        ),
    )


_NUMBERS = ("", "One", "Two", "Three", "Four", "Five")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
