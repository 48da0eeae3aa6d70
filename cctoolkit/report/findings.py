"""What a summary says in plain sentences, and the rule behind each: nothing is said that no rule says.

Thresholds are constants here and in :mod:`cctoolkit.report.summary`; every sentence carries its rule, which the report
shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._support.words import flow_name, format_bytes, format_percent, format_rate, format_time_ns
from ..analysis.flows import retransmitted_share
from .summary import QUEUE_BYTES, QUEUE_TARGET_NS, data_direction

if TYPE_CHECKING:
    from .summary import Summary

__all__ = ["Finding", "findings"]

FEW_FLOWS = 5
MOST_BYTES = 0.9
AVERAGE_PACKETS = 100
ENOUGH_SAMPLES = 20  # with fewer a percentile means nothing
RETRANSMISSIONS = 0.001
ONE_DIRECTION = 0.05
UNFAIR = 0.8
JAIN_BINS = 10  # said only with so many
COMPETITORS = 10  # more flows than this at a time hardly share one bottleneck


@dataclass(frozen=True)
class Finding:
    """A sentence, and the rule that made it."""

    text: str
    rule: str


def findings(summary: Summary) -> list[Finding]:
    """The summary's findings, the most general first; for an empty capture only that it is empty."""
    if not summary.totals["packets"]:
        if summary.meta.packets:
            return [
                Finding(
                    "No packet fits the selection.", "Packets in the packets table: some; selected: none."
                )
            ]
        return [
            Finding(
                "There is no packet with an IP header in this capture.", "Packets in the packets table: none."
            )
        ]
    rules: tuple[Callable[[Summary], Finding | None], ...] = (
        _volume,
        _concentration,
        _fairness,
        _rtt,
        _standing_queue,
        _two_taps,
        _rtt_and_queue,
        _retransmissions,
        _losses_sent_again,
        _congestion_marks,
        _one_direction,
    )
    return [finding for rule in rules if (finding := rule(summary)) is not None]


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
        "Sums over all flows; bytes on the wire as the capture records them, over first to last packet. The average is "
        f"said from {AVERAGE_PACKETS} packets on, if no gap is longer than half of the time.",
    )


def _mostly_silent(s: Summary) -> bool:
    """One gap is longer than the rest of the capture, or there is no time at all."""
    busy = np.flatnonzero(s.throughput["packets"].to_numpy())
    gap = int(np.diff(busy).max(initial=1)) - 1
    return s.duration_s <= 0 or 2 * gap * s.bin_ns / 1e9 > s.duration_s


def _concentration(s: Summary) -> Finding | None:
    size = np.sort((s.flows["bytes_fwd"] + s.flows["bytes_rev"]).to_numpy())[::-1]
    if len(size) < 2 or not size[0]:
        return None
    share = np.cumsum(size) / size.sum()
    few = int(np.searchsorted(share, MOST_BYTES)) + 1
    rule = (
        f"The fewest flows with {MOST_BYTES:.0%} of the bytes if they are at most {FEW_FLOWS} (and not all flows), "
        "else the share of the largest and of the ten largest."
    )
    if few <= FEW_FLOWS and few < len(size):
        verb = "One flow carries" if few == 1 else f"{_NUMBERS[few]} flows carry"
        return Finding(f"{verb} {format_percent(share[few - 1])} of the bytes.", rule)
    text = f"The largest flow carries {format_percent(share[0])} of the bytes"
    if len(size) > 10:
        text += f", the ten largest {format_percent(share[9])}"
    return Finding(f"{text}.", rule)


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
        f"Jain's index over the {which} is {index:.2f} while two or more of them are there "
        f"(typically {flows:.0f}; 1 is an even split, {1 / flows:.2f} is one taking all)"
    )
    poor = _wants_more(s) if index < UNFAIR and flows <= COMPETITORS else None
    if poor is not None:
        text += f": the split is uneven, and flow {poor} gets less than average with packets waiting"
    return Finding(
        f"{text}.",
        f"Median of Jain's index over the bins of {format_time_ns(s.jain_bin_ns)} (at least {JAIN_BINS}) in which two "
        f"or more of the {len(s.jain_flows)} compared flows were between their first and last packet; compared are "
        "flows that send in half of these bins or more. The split is called uneven "
        f"below {UNFAIR} if there are typically at most {COMPETITORS}, and a TCP flow that got less than the mean rate "
        "of all had packets of its own waiting in some interval (as for a standing queue): flows that ask for "
        "little get little. Flows that do not share a bottleneck are compared all the same: one capture cannot tell.",
    )


def _wants_more(s: Summary) -> int | None:
    """A compared flow that got less than the mean rate while it had packets waiting."""
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
        f"Of {n:,} samples, each from a segment to the ACK of exactly its end (both directions of data, retransmitted "
        "segments left out), so flows with more samples count for more. From the tap to the receiver of the data and "
        "back, so a tap near the sender sees most of the path and one near the receiver little; a receiver that "
        "delays its ACK (up to 500 ms by RFC 9293, 40 to 200 ms in practice) adds to it."
    )
    if n < ENOUGH_SAMPLES:
        low, high = (format_time_ns(s.rtt_quantile_ns(q)) for q in (0, 1))
        between = f"between {low} and {high}" if n > 1 and low != high else low
        return Finding(f"{_count(n, 'round-trip time')} seen from the tap: {between}.", rule)
    low, middle, high = (format_time_ns(s.rtt_quantile_ns(q)) for q in (0.05, 0.5, 0.95))
    return Finding(
        f"Round-trip times seen from the tap have a median of {middle}; nine in ten are between {low} and {high}.",
        f"5th, 50th and 95th percentile. {rule}",
    )


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
        f"The RTT of flow {worst['flow_id']:.0f} ({flow_name(flow)}) is {format_time_ns(worst['base_ns'])} at the "
        f"least, {format_time_ns(median)} in the median, and stays up"
    )
    waiting = format_bytes(worst["waiting_bytes"])
    if standing.empty:
        text += (
            f", but less than two packets of its own can be waiting ({waiting} at its rate): delayed ACKs, the "
            "application, or a queue that others fill"
        )
    else:
        text += f" while some {waiting} of its own wait: the signature of a standing queue"
        flows, of_flows = len(standing), len(judged)
        if flows > 1:
            which = "All" if flows == of_flows else f"{flows} of {of_flows}"
            text += f". {which} of the largest flows with enough RTT samples show it"
    return Finding(
        f"{text}.",
        "Even the least RTT of an interval of 100 ms (or of one bin, if longer) is more than 5 ms and 5 % above the "
        "flow's least RTT, in at least half of ten or more intervals with five samples or more, in the direction with "
        "more data: CoDel's notion of a bad queue (RFC 8289, section 3), applied to RTTs. For a queue, two full "
        "packets of the flow or more must wait in these intervals: its rate times what the RTT is above the least "
        "(Little's law). A path that became longer looks the same, and so does a link that holds packets back.",
    )


def _two_taps(s: Summary) -> Finding | None:
    if s.two_taps is None or s.two_taps.queue_delay.empty:
        return None
    took = s.two_taps.queue_delay["delay_ns"].dropna()
    lost, known = s.two_taps.queue_delay["lost"].sum(), s.two_taps.queue_delay["lost"].notna().sum()
    if not known:
        return None
    text = f"{format_percent(lost / known)} of the top flows' packets never reach the second tap"
    if len(took):
        middle, high = (format_time_ns(float(took.quantile(q))) for q in (0.5, 0.95))
        text += f"; the others take {middle} from tap to tap (median; 95th percentile {high})"
    return Finding(
        f"{text}.",
        "Packets of the top flows that cross the queue, matched one by one between the two captures; those whose fate "
        "the captures do not tell are left out. What never arrives was dropped by the queue, unless the second capture "
        "is not complete.",
    )


def _rtt_and_queue(s: Summary) -> Finding | None:
    """Why the growth of an RTT and the wait between the taps are two numbers."""
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
        f"The RTT of flow {of['flow_id']:.0f} ({flow_name(flow)}) from the first tap is {rtt} in the median: {queue} "
        f"between the taps, {rest} on the rest of the path and back"
    )
    if hidden.any():
        text += (
            f". It never saw the queue empty: even its least RTT, {format_time_ns(of['rtt_least_ns'])}, holds "
            f"{format_time_ns(of['queue_at_least_ns'])} of queue, so that what it grows by "
            f"({format_time_ns(of['growth_median_ns'])}, median) says too little"
        )
    return Finding(
        f"{text}.",
        "Medians over RTT samples whose segment was recognised at both taps; the rest is RTT less time between the "
        "taps, sample by sample. One tap can only subtract the least RTT, which is the path only if the queue was "
        "empty once. Told of the flow whose least RTT holds most queue (more than "
        f"{format_time_ns(QUEUE_TARGET_NS)} and a tenth of the median wait), else of the largest.",
    )


def _retransmissions(s: Summary) -> Finding | None:
    t = s.totals
    if t["retransmits"] < max(RETRANSMISSIONS * t["segments"], 1):
        return None
    text = (
        f"{_count(t['retransmits'], 'retransmission')}: {format_percent(s.retransmitted_share)} of the TCP "
        "segments sent"
    )
    top = s.top[s.top["protocol"] == 6]
    share = retransmitted_share(top).fillna(0)
    if len(share) > 1 and share.max() > 0:
        flow = top.iloc[int(share.to_numpy().argmax())]
        text += f", most among the largest flows in flow {flow['flow_id']} ({format_percent(share.max())})"
    return Finding(
        f"{text}.",
        "Retransmitted segments over segments sent, those with payload, SYN or FIN, in both directions; said from "
        f"{RETRANSMISSIONS:.1%} on. Retransmitted is what repeats sequence numbers this tap saw before, or fills a "
        "gap too late to have been overtaken on the way. A retransmission lost in front of the tap is not seen.",
    )


def _losses_sent_again(s: Summary) -> Finding | None:
    """With two taps, the queue's losses beside the retransmissions of the same flows."""
    if s.two_taps is None:
        return None
    top = s.top[s.top["protocol"] == 6].set_index("flow_id")
    loss = s.two_taps.queue_loss
    loss = loss[loss["flow_id"].isin(top.index)]
    lost, again = int(loss["packets_lost"].sum()), 0
    for direction, way in enumerate(("fwd", "rev")):
        across = loss["flow_id"][loss["direction"] == direction]
        again += int(top.loc[across, f"retransmits_{way}"].sum())
    if not lost and not again:
        return None
    text = f"The queue lost {_count(lost, 'TCP packet')} of these flows, which sent {_count(again, 'segment')} again: "
    if again == lost:
        text += "one for each loss"
    elif again > lost:
        text += f"{again - lost:,} more, lost elsewhere or repeated needlessly"
    else:
        text += f"{lost - again:,} fewer, because the capture ended first or they were pure ACKs"
    return Finding(
        f"{text}.",
        "Packets of the largest TCP flows that came to the first tap and not to the second, beside the retransmitted "
        "segments of the same flows and directions at the first tap. The shares above differ a little: the queue's is "
        "of all packets of the largest flows, that of retransmissions is of the segments sent by all TCP flows.",
    )


def _congestion_marks(s: Summary) -> Finding | None:
    marked = s.ecn_packets["CE"]
    capable = s.ecn_packets["ECT(0)"] + s.ecn_packets["ECT(1)"]
    if not marked or not capable:
        return None
    return Finding(
        f"{_count(marked, 'packet')} ({format_percent(marked / (marked + capable))} of the ECN-capable) "
        f"{'carries' if marked == 1 else 'carry'} a congestion mark, set before the tap.",
        "Packets with the ECN codepoint CE over packets with ECT(0), ECT(1) or CE; said if some have ECT, without "
        "which the two bits are of another use or of a broken header. A sender that sets CE itself looks the same.",
    )


def _one_direction(s: Summary) -> Finding | None:
    one = s.one_direction
    if not one["of_flows"] or one["flows"] < ONE_DIRECTION * one["of_flows"]:
        return None
    share = format_percent(one["bytes"] / max(one["of_bytes"], 1))
    return Finding(
        f"{one['flows']:,} of {one['of_flows']:,} TCP flows ({share} of the TCP bytes) show one direction only: no "
        "round-trip times there.",
        f"TCP flows without a packet in one direction, said from {ONE_DIRECTION:.0%} of the flows on: asymmetric "
        "routing, unanswered SYNs, or a capture filter.",
    )


_NUMBERS = ("", "One", "Two", "Three", "Four", "Five")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
