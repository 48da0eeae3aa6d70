"""What a summary says in plain sentences, and the rule behind each: nothing is said that no rule says.

Thresholds are constants here and in :mod:`cctoolkit.report.summary`; every sentence carries its rule, which the report
shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support.words import flow_name, format_bytes, format_percent, format_rate, format_time_ns
from ..analysis.flows import retransmitted_share

if TYPE_CHECKING:
    from .summary import Summary

__all__ = ["Finding", "findings"]

FEW_FLOWS = 5
MOST_BYTES = 0.9
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
        _retransmissions,
        _losses_sent_again,
        _congestion_marks,
        _one_direction,
    )
    return [finding for rule in rules if (finding := rule(summary)) is not None]


def _volume(s: Summary) -> Finding:
    t = s.totals
    kinds = _count(t["tcp_flows"], "TCP flow")
    if t["flows"] > t["tcp_flows"]:
        kinds += f" and {_count(t['flows'] - t['tcp_flows'], 'other')}"
    carry = "carries" if t["flows"] == 1 else "carry"
    text = f"{kinds} {carry} {format_bytes(t['bytes'])} in {format_time_ns(s.duration_s * 1e9)}"
    if s.duration_s > 0:
        text += f", {format_rate(t['bytes'] / s.duration_s)} on average"
    return Finding(
        f"{text}.",
        "Sums over all flows; bytes on the wire as the capture records them, over first to last packet.",
    )


def _concentration(s: Summary) -> Finding | None:
    size = np.sort((s.flows["bytes_fwd"] + s.flows["bytes_rev"]).to_numpy())[::-1]
    if len(size) < 2:
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
    return Finding(
        text + (": the split is uneven." if index < UNFAIR and flows <= COMPETITORS else "."),
        f"Median of Jain's index over the bins of {format_time_ns(s.jain_bin_ns)} (at least {JAIN_BINS}) in which two "
        f"or more of the {len(s.jain_flows)} compared flows were between their first and last packet; called uneven "
        f"below {UNFAIR} if there are typically at most {COMPETITORS}. Flows that do not share a bottleneck are "
        "compared all the same: one capture cannot tell.",
    )


def _rtt(s: Summary) -> Finding | None:
    if not s.totals["rtt_samples"]:
        return None
    low, middle, high = (format_time_ns(s.rtt_quantile_ns(q)) for q in (0.05, 0.5, 0.95))
    return Finding(
        f"Round-trip times seen from the tap have a median of {middle}; nine in ten are between {low} and {high}.",
        f"5th, 50th and 95th percentile of {s.totals['rtt_samples']:,} samples: from a segment to the ACK of exactly "
        "its end (both directions of data, retransmitted segments left out). From the tap to the receiver of the data "
        "and back, so a tap near the sender sees most of the path and one near the receiver little.",
    )


def _standing_queue(s: Summary) -> Finding | None:
    judged = s.standing_queue
    standing = judged[judged["above"] * 2 >= judged["intervals"]]
    if standing.empty:
        return None
    # The flow that sends most: top is sorted by bytes, and the table keeps that order.
    worst = standing.iloc[0]
    flow = s.flows.set_index("flow_id").loc[worst["flow_id"]]
    median = flow["rtt_median_ns_fwd" if worst["direction"] == 0 else "rtt_median_ns_rev"]
    flows, of_flows = standing["flow_id"].nunique(), judged["flow_id"].nunique()
    text = (
        f"The RTT of flow {worst['flow_id']} ({flow_name(flow)}) grows from {format_time_ns(worst['base_ns'])} at the "
        f"least to a median of {format_time_ns(median)} and stays up: the signature of a standing queue"
    )
    if flows > 1:
        which = "All" if flows == of_flows else f"{flows} of {of_flows}"
        text += f". {which} of the largest flows with enough RTT samples show it"
    return Finding(
        f"{text}.",
        "Even the least RTT of an interval of 100 ms (or of one bin, if longer) is more than 5 ms above the flow's "
        "least RTT, in at least half of ten or more intervals with five samples or more, in the direction with more "
        "data: CoDel's notion of a bad queue (RFC 8289, section 3), applied to RTTs. A path that became longer looks "
        "the same.",
    )


def _two_taps(s: Summary) -> Finding | None:
    if s.two_taps is None or s.two_taps.queue_delay.empty:
        return None
    waited = s.two_taps.queue_delay["delay_ns"].dropna()
    lost, known = s.two_taps.queue_delay["lost"].sum(), s.two_taps.queue_delay["lost"].notna().sum()
    text = f"{format_percent(lost / max(known, 1))} of the top flows' packets do not leave the queue"
    if len(waited):
        middle, high = (format_time_ns(float(waited.quantile(q))) for q in (0.5, 0.95))
        text += f"; the others wait {middle} (median; 95th percentile {high})"
    return Finding(
        f"{text}.",
        "Packets of the top flows that cross the queue, matched one by one between the two captures; those whose fate "
        "the captures do not tell are left out.",
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
    lost = again = 0
    retransmitted: Any = top[["retransmits_fwd", "retransmits_rev"]].to_dict("index")
    way: Any  # a row of queue_loss
    for way in s.two_taps.queue_loss.itertuples():
        if way.flow_id in top.index:
            lost += int(way.packets_lost)
            again += retransmitted[way.flow_id]["retransmits_rev" if way.direction else "retransmits_fwd"]
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
    capable = marked + s.ecn_packets["ECT(0)"] + s.ecn_packets["ECT(1)"]
    if not marked:
        return None
    return Finding(
        f"{_count(marked, 'packet')} ({format_percent(marked / capable)} of the ECN-capable) "
        f"{'carries' if marked == 1 else 'carry'} a congestion mark.",
        "Packets with the ECN codepoint CE over packets with ECT(0), ECT(1) or CE.",
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
