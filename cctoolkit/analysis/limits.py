"""What limits a flow: the bottleneck in front of the tap, or something else, from its slots.

A congestion control is visible only while it limits the flow: at a sender that has more to send than its congestion
window allows, on a path that queues, drops or marks packets after the tap. Bytes in flight then rise from round trip
to round trip and fall after losses or marks, or the round-trip time grows with them. Elsewhere a capture shows the
application, the receiver's window, the access link, or the queue that the packets have already passed.

The causes are those of Zhang et al., "On the characteristics and origins of Internet flow rates" (T-RAT, SIGCOMM
2002), and of Siekkinen et al., "A root cause analysis toolkit for TCP" (Computer Networks 52, 2008), and apply to
the flow as a whole.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .._support.kernels import inlined, kernel
from ..errors import SchemaError
from .segments import USUAL_SEGMENT_BYTES, packet_lengths, segment_bytes
from .sequence import ahead
from .slot_rows import consecutive, observed

__all__ = ["LIMITS", "NAMEABLE", "SIGNS", "flow_limits", "limit_in_words"]

#: Possible answers, and their wording in tables and reports.
LIMITS: dict[str, str] = {
    "bottleneck": "limited by the bottleneck",
    "application": "not limited here: application",
    "elsewhere": "not limited here: application, access link or receiver's window",
    "behind": "tap seems to be behind the bottleneck",
    "short": "too few round trips to tell",
    "unknown": "unknown",
}

#: Answers with which the congestion control is worth naming.
NAMEABLE = ("bottleneck", "unknown")

#: Measurements of a flow: columns of :func:`flow_limits`, and the result of the kernel.
Signs = namedtuple(
    "Signs",
    "rounds rtt_slots idle_share rate_spread peak_share unforced_share growth queue_share own_queue loss_share "
    "mark_share resends resend_bytes resent_bytes ce_packets ecn_echoes",
)
SIGNS = Signs._fields

#: A round is a round trip, but at least this many slots, so that rounding to slots does not matter.
_LEAST_ROUND = 10
#: Without acknowledgements the round trip is unknown: a silence counts from Linux's minimum retransmission timeout
#: on (200 slots of 1 ms), and a round is half of that.
_SILENCE, _BLIND_ROUND = 200, 100
_LEAST_SILENCE = 5
#: With fewer round trips there is no answer.
_ROUNDS = 8
#: A correlation needs this many rounds.
_LEAST_KNOWN = 5
#: A sender that is never idle has nothing in flight for at most this share of the time.
IDLE = 0.05
#: Bytes in flight at their peak in this share of the round trips, and no growth or backoff: the window or the rate is
#: fixed.
FIXED_PEAK = 0.1
#: … 0.3 of them if it probes, because BBR's window hardly changes, or if it only grows, by this share of the peak, as
#: CUBIC does near the window at which it lost before.
FIXED_PEAK_PROBING = 0.3
GROWTH = 0.03
#: Standard deviation of the rate over its mean, by round trip, below which it is a steady stream. A sawtooth, a BBR
#: probing with gains of 1.25 and 0.75, or a flow that competes is above.
STEADY_RATE = 0.045
#: Share of the decreases (or, if it is more, the increases) of bytes in flight that no loss or mark precedes. After
#: these, most congestion controls back off; if bytes in flight vary without them, it is not their window.
UNFORCED = 0.6
#: … below which bytes in flight only grow: a congestion window that has not met a limit yet.
GROWS = 0.05
#: Share of the round trips with a queue in which a congestion control that backs off without losses is at work, …
QUEUE = 0.4
#: … and the minimum spread of its rate.
PROBING_RATE = 0.1
#: Where a queue comes and goes (in this share of the round trips), it is the flow's own if its rate makes it grow:
#: with this correlation, or a higher one where the rate varies less.
OWN_QUEUE, OWN_QUEUE_PROBING, QUEUE_AT_TIMES = 0.5, 0.2, 0.2
#: Retransmissions after which the tap may count as behind the bottleneck, if fewer bytes passed it twice than they
#: have, counting at most these for each: less than the default segment (RFC 9293, section 3.7.1), and than the flow's.
_RESENDS, _TWICE, _TWICE_SHARE = 2, 400.0, 0.75
#: A segment that fills a hole sooner is not a retransmission, for which the sender waits a round trip: the network has
#: changed the order. The share is of the mean RTT; without acknowledgements, it is a number of slots.
_REORDERED, _REORDERED_BLIND = 0.5, 5
#: A tap is near the receiver if the mean RTT behind it is less than this part of the whole path's, with hardly a queue
#: or a loss.
NEAR_RECEIVER = 0.2
#: Marked packets after which the tap may count as behind the bottleneck, if each explains the changes of ECN flags that
#: it can: with classic ECN, one where ECE begins and one where it ends.
_MARKS, _ECHOES = 2, 2
#: The minimum share of round trips with a queue, or with losses or marks, that is not a coincidence.
_SOME = 0.02
#: Peaks within this many segments are the same: one, and a little for retransmissions of other lengths.
_SAME_PEAK = 1600 / USUAL_SEGMENT_BYTES
#: A round has a queue if its RTT exceeds the minimum by this many slots and this share.
_QUEUE_SLOTS, _QUEUE_SHARE = 1.5, 0.05


@inlined
def _variation(values):
    """Standard deviation over mean."""
    mean = values.mean()
    return values.std() / mean if mean > 0 else 0.0


@inlined
def _lately(happened, i):
    """Whether it happened in round `i` or the two before."""
    return happened[i] or (i >= 1 and happened[i - 1]) or (i >= 2 and happened[i - 2])


@inlined
def _correlation(x, y):
    """Pearson's correlation; 0 if either does not vary."""
    x = x - x.mean()
    y = y - y.mean()
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    return (x * y).sum() / scale if scale > 0 else 0.0


@kernel
def _retransmissions(came, seq, width, soon, twice, lossy, ends):
    """Follow sequence numbers: what is retransmitted, and which bytes pass the tap twice.

    Parameters
    ----------
    came : float64 array, shape (n,)
        Payload bytes of each slot.
    seq : int64 array, shape (n,)
        First sequence number of the slot; negative for none.
    width : int
        Slots of a round.
    soon : float
        What comes within so many slots after a later segment is out of order, not retransmitted.
    twice : float
        Bytes that count at most for a slot in `resend_bytes`.
    lossy : bool array, by round
        Set where a hole opens or something is retransmitted.
    ends : float64 array, shape (n,)
        Written: the highest sequence number sent, counted from the first one.

    Returns
    -------
    resends : int
        Slots that begin with a retransmission.
    resend_bytes : float
        Bytes that these slots retransmit.
    resent : float
        Bytes that passed, less the sequence numbers that they covered: a retransmission of data lost after the tap
        adds to it, one of data lost before the tap does not.

    Notes
    -----
    The flow may have begun earlier, and be repairing a loss: the first two rounds only show how far it had come, and
    anything below is left out. So are keep-alives (RFC 9293, section 3.8.4) and probes of a closed window (3.8.6.1): a
    single byte, sent again and again.
    """
    last = np.int64(-1)
    at = 0.0  # first sequence number of the slot, counted on
    high = 0.0
    origin = 0.0
    resends = 0
    resend_bytes = 0.0
    passed = 0.0
    for t in range(len(came)):
        if came[t] > 0 and seq[t] >= 0:
            if last >= 0:
                at += ahead(seq[t], last)
            last = seq[t]
            is_probe = came[t] <= 1 and at < high
            if at != high and not is_probe:
                lossy[t // width] = True
            if t < 2 * width:
                origin = max(high, at + came[t])
            elif at >= origin and not is_probe:
                passed += came[t]
                # since the slot in which that number passed, or one after it
                if at < high and t - np.searchsorted(ends[:t], at, side="right") > soon:
                    resends += 1
                    resend_bytes += min(came[t], high - at, twice)
            high = max(high, at + came[t])
        ends[t] = high
    return resends, resend_bytes, passed - (high - origin)


@kernel
def _signs(came, flight, seq, ce, echoes, segment):
    """The signs of one flow; twin: tests/naive_limits.py.

    Parameters
    ----------
    came, flight : float64 arrays, shape (n,)
        Payload bytes that arrived in each slot, from the first with data to the last; bytes in flight at its end, all
        NaN if not known.
    seq : int64 array, shape (n,)
        First sequence number of the slot; negative for none.
    ce, echoes : float64 arrays, shape (n,)
        Packets with CE, and changes of the acknowledgements' ECN flags; 0 if not known.
    segment : float
        Payload of a full segment.

    Returns
    -------
    Signs
        NaN for what cannot be known.
    """
    n = len(came)
    flies = not np.isnan(flight[0])
    rtt = flight.sum() / came.sum() if flies else np.nan  # Little's law
    width = max(int(rtt), _LEAST_ROUND) if flies else _BLIND_ROUND
    threshold = min(max(rtt, _LEAST_SILENCE), _SILENCE) if flies else _SILENCE

    idle = 0
    silent = 0
    for t in range(n):
        if came[t] == 0 and not (flies and flight[t] > 0):
            silent += 1
        else:
            if silent >= threshold:
                idle += silent
            silent = 0

    lossy = np.zeros(n // width + 1, np.bool_)
    ends = np.empty(n)
    soon = _REORDERED * rtt if flies else np.float64(_REORDERED_BLIND)
    twice = min(_TWICE, _TWICE_SHARE * segment)
    resends, resend_bytes, resent = _retransmissions(came, seq, width, soon, twice, lossy, ends)

    # One round trip after another; those without data tell nothing.
    whole = n // width
    rate = np.zeros(whole)
    mean = np.zeros(whole)
    peak = np.zeros(whole)
    loss = np.zeros(whole, np.bool_)
    mark = np.zeros(whole, np.bool_)
    rounds = 0
    for i in range(whole):
        part = slice(i * width, (i + 1) * width)
        total = came[part].sum()
        if total > 0:
            rate[rounds] = total / width
            mean[rounds] = flight[part].mean()
            peak[rounds] = flight[part].max()
            loss[rounds] = lossy[i]
            mark[rounds] = echoes[part].sum() > 0
            rounds += 1
    marked = ce.sum()
    echoed = echoes.sum()
    if rounds == 0:
        return Signs(
            0.0, rtt, idle / n, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, float(resends),
            resend_bytes, resent, marked, echoed,
        )  # fmt: skip
    first = rounds // 8  # slow start is over
    spread = _variation(rate[first:rounds])
    lost = loss[:rounds].mean()
    if not flies:
        return Signs(
            float(rounds), rtt, idle / n, spread, np.nan, np.nan, np.nan, np.nan, np.nan, lost, np.nan, float(resends),
            resend_bytes, resent, marked, echoed,
        )  # fmt: skip
    signalled = loss | mark

    highest = peak[first:rounds].max()  # slow start overshoots whatever limits the flow afterwards
    at_peak = (peak[first:rounds] >= highest - _SAME_PEAK * segment).mean()
    risen = 0.0
    fallen = 0.0
    unforced = 0.0
    for i in range(max(first, 1), rounds):
        step = mean[i] - mean[i - 1]
        if step > 0:
            risen += step
        else:
            fallen -= step
            if not _lately(signalled, i):
                unforced -= step
    moved = max(risen, fallen)
    share = unforced / moved if moved > 0 else 1.0
    quarter = max((rounds - first) // 4, 1)
    grown = mean[rounds - quarter : rounds].mean() - mean[first : first + quarter].mean()
    growth = grown / highest if highest > 0 else 0.0

    # The RTT when an acknowledgement comes: how long ago was the number sent that it is the first to cover?
    delay = np.zeros(whole + 1)
    samples = np.zeros(whole + 1)
    shortest = np.full(whole + 1, np.inf)
    met = np.zeros(whole + 1)  # the delays that what was sent in a round met, and …
    sendings = np.zeros(whole + 1)  # … of how much of it they are known
    sent = 0
    acked = ends[0]
    for t in range(n):
        reached = ends[t] - flight[t]
        if reached > acked:
            while sent < t and ends[sent] < reached:
                sent += 1
            acked = reached
            i = t // width
            delay[i] += t - sent
            samples[i] += 1
            shortest[i] = min(shortest[i], t - sent)
            met[sent // width] += t - sent
            sendings[sent // width] += 1
    base = np.inf
    for i in range(whole):
        if samples[i] > 0 and not _lately(lossy, i):
            base = min(base, shortest[i])
    queued = 0
    seen = 0
    for i in range(whole):
        if samples[i] > 0 and not _lately(lossy, i):
            seen += 1
            queued += delay[i] / samples[i] > base + max(_QUEUE_SLOTS, _QUEUE_SHARE * base)
    queue = queued / seen if seen > 0 else np.nan

    # Does the queue grow in rounds in which this flow sends more?
    sends = np.zeros(whole)
    queue_growth = np.zeros(whole)
    known = 0
    for i in range(1, whole - 1):
        is_known = True
        for j in range(i - 1, i + 2):
            is_known &= sendings[j] > 0 and not _lately(lossy, j)
        if is_known:
            sends[known] = came[i * width : (i + 1) * width].sum()
            queue_growth[known] = met[i + 1] / sendings[i + 1] - met[i - 1] / sendings[i - 1]
            known += 1
    own = _correlation(sends[:known], queue_growth[:known]) if known >= _LEAST_KNOWN else np.nan
    return Signs(
        float(rounds), rtt, idle / n, spread, at_peak, share, growth, queue, own, lost, mark[:rounds].mean(),
        float(resends), resend_bytes, resent, marked, echoed,
    )  # fmt: skip


@kernel
def _signs_of_flows(came, flight, seq, ce, echoes, segments, bounds, out):
    """:func:`_signs` of each flow, from the first to the last slot with data whose bytes in flight are known.

    Parameters
    ----------
    came, flight, seq, ce, echoes : arrays, by slot
        As for :func:`_signs`, of all flows.
    segments : float64 array, by flow
        Payload of a full segment.
    bounds : int64 array, shape (flows + 1,)
        First slot of each flow, and the one after the last.
    out : float64 array, shape (flows, signs)
        Written; NaN for a flow without data.
    """
    for flow in range(len(bounds) - 1):
        begin, stop = bounds[flow], bounds[flow + 1]
        while begin < stop and not came[begin] > 0:
            begin += 1
        while stop > begin and not came[stop - 1] > 0:
            stop -= 1
        start = begin  # bytes in flight are known once both directions have been seen
        while start < stop and np.isnan(flight[start]):
            start += 1
        if start < stop:
            while begin < start or (begin < stop and not came[begin] > 0):
                begin += 1
            for t in range(begin, stop):
                if np.isnan(flight[t]):
                    stop = t
                    break
        out[flow] = np.nan
        if begin < stop:
            part = slice(begin, stop)
            signs = _signs(came[part], flight[part], seq[part], ce[part], echoes[part], segments[flow])
            for i in range(len(signs)):
                out[flow, i] = signs[i]


def limit_in_words(limited_by: Any) -> str:
    """What tables and reports show instead of a name; empty if the flow can be named, or null.

    Examples
    --------
    >>> from cctoolkit.analysis.limits import limit_in_words
    >>> limit_in_words("application"), limit_in_words("bottleneck")
    ('not limited here: application', '')
    """
    return "" if limited_by in NAMEABLE else LIMITS.get(limited_by, "")


def flow_limits(slots: pd.DataFrame) -> pd.DataFrame:
    """What limits each flow.

    Parameters
    ----------
    slots : DataFrame
        From :func:`cctoolkit.compute_slots`, of one tap or two; slots of about 1 ms. Only the first tap's columns
        ``in_bytes``, ``in_seq`` and ``bytes_in_flight`` are used, and ``in_packets``, ``in_ce_packets`` and
        ``ecn_echoes`` if they are there. From :func:`cctoolkit.seen_by_sender`, they are right also far from the
        sender, and a tap near the receiver is recognised.

    Returns
    -------
    DataFrame
        One row per flow, in order of their first rows: ``flow_id``, ``limited_by`` (a name in
        ``cctoolkit.analysis.limits.LIMITS``), and what was measured:

        - ``rounds``: round trips with data, of at least ten slots.
        - ``rtt_slots``: mean RTT from the tap to the receiver, in slots, by Little's law.
        - ``idle_share``: share of the time spent in silences of at least a round trip with nothing in flight.
        - ``rate_spread``: standard deviation of the arrival rate over its mean, by round trip.
        - ``peak_share``: share of the round trips after slow start whose peak of bytes in flight is the highest of
          them, to within a segment.
        - ``unforced_share``: share of the decreases of bytes in flight without a loss or a mark in the two round trips
          before.
        - ``growth``: growth of bytes in flight from the first quarter of the round trips after slow start to the last,
          as a share of their peak.
        - ``queue_share``: share of the round trips whose RTT exceeds the minimum (by 1.5 slots and 5 %).
        - ``own_queue``: correlation of the bytes sent in a round trip with the growth of the RTT from the round trip
          before to the one after.
        - ``loss_share``: share of the round trips with retransmissions or holes.
        - ``mark_share``: share of the round trips in which acknowledgements report marks (ECN).
        - ``resends``: slots that begin with a retransmission (not with a segment that is late by less than half the
          RTT, nor with a keep-alive or a window probe).
        - ``resend_bytes``: bytes that these slots retransmit, at most 400 of each (or 0.75 of the flow's segment).
        - ``resent_bytes``: bytes that passed more than once.
        - ``ce_packets``, ``ecn_echoes``: packets that were already marked at the tap, and changes of the
          acknowledgements' ECN flags, which come in pairs with classic ECN (RFC 3168).
        - ``segment_bytes``: payload of the flow's full segments; 1448 if `slots` lacks ``in_packets`` or they do not
          show it.
        - ``path_rtt_slots``, ``sender_rtt_slots``: RTT of the whole path, and its part between tap and sender, as
          :func:`cctoolkit.seen_by_sender` noted them, in slots; NaN if they are not known.

    Raises
    ------
    SchemaError
        The table lacks a column, a flow lacks a slot between others, or ``attrs["path_rtt_ns"]`` or
        ``attrs["sender_rtt_ns"]`` is no mapping of flow numbers to times.

    See Also
    --------
    cctoolkit.compute_slots : makes the slots
    cctoolkit.seen_by_sender : for taps far from the sender
    cctoolkit.identify.classify_flows : names only flows limited by the bottleneck

    Notes
    -----
    In this order:

    - *behind*: there are retransmissions, but most of their bytes pass only once, so the losses happened before the
      tap; or most of the marks that acknowledgements report were set before the tap; or the flow would be limited by
      its *application* or *elsewhere*, but the RTT behind the tap is less than a fifth of the whole path's, with hardly
      a queue or a loss there. Near the receiver, few bytes are in flight, whatever limits the flow, and the sender's
      pauses cannot be told from round trips.
    - *application*: the sender is idle, with nothing in flight.
    - *elsewhere*: the rate is steady, or bytes in flight stay at their peak, without losses or marks that explain it.
      An application that writes at a fixed rate, an access link and a receiver's window look alike from here, and so
      does a congestion control in equilibrium: Vegas alone on a link, or BBR with its minimum window of four segments.
    - *bottleneck*: bytes in flight fall after losses or marks, which may be anywhere after the tap; or the rate varies
      while there is a queue, or makes it grow (BBR, which backs off without losses).
    - *unknown*: bytes in flight only grow.
    - *short*: fewer than eight round trips.
    - *elsewhere*: all other flows.

    Without acknowledgements, a flow is *behind*, *application* or *unknown*: its round trips are unknown, and a
    congestion control alone on a link has a steady rate, too.

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> cct.flow_limits(cct.compute_slots(run.ingress)).limited_by.tolist()
    ['bottleneck']
    >>> cct.flow_limits(cct.compute_slots(run.egress)).limited_by.tolist()
    ['behind']
    """
    slots = consecutive(slots, ("in_bytes", "in_seq", "bytes_in_flight"))
    came, flight = (observed(slots[name]) for name in ("in_bytes", "bytes_in_flight"))
    seq = np.nan_to_num(observed(slots["in_seq"], 2.0**32), nan=-1.0).astype(np.int64)
    flow = slots["flow_id"].to_numpy()
    starts = (
        np.flatnonzero(np.concatenate([[True], flow[1:] != flow[:-1]])) if len(flow) else np.zeros(0, int)
    )
    bounds = np.append(starts, len(flow))
    lengths = packet_lengths(slots)
    segments = np.array([segment_bytes(lengths[a:b]) for a, b in itertools.pairwise(bounds)])
    segments[np.isnan(segments)] = USUAL_SEGMENT_BYTES
    ce, echoes = (
        np.nan_to_num(observed(slots[name])) if name in slots else np.zeros(len(slots))
        for name in ("in_ce_packets", "ecn_echoes")
    )
    signs = np.empty((len(starts), len(SIGNS)))
    _signs_of_flows(came, flight, seq, ce, echoes, segments, bounds, signs)
    table = pd.DataFrame(signs, columns=list(SIGNS)).assign(segment_bytes=segments)
    table.insert(0, "flow_id", flow[starts])
    table["path_rtt_slots"] = _noted_slots("path_rtt_ns", flow[starts], slots.attrs)
    table["sender_rtt_slots"] = _noted_slots("sender_rtt_ns", flow[starts], slots.attrs)
    table["rtt_slots"] -= table["sender_rtt_slots"].fillna(0.0)
    table.insert(1, "limited_by", _judged(table))
    return table


def _noted_slots(what: str, flow_ids: np.ndarray, attrs: Mapping[Any, Any]) -> np.ndarray:
    """A time of each flow, in slots, as :func:`cctoolkit.seen_by_sender` notes them."""
    noted, slot_ms = attrs.get(what, {}), attrs.get("slot_ms", np.nan)
    try:
        rtt_ns = np.array([noted.get(flow, np.nan) for flow in flow_ids.tolist()], np.float64)
        return rtt_ns / (float(slot_ms) * 1e6)
    except (AttributeError, TypeError, ValueError, ZeroDivisionError):
        raise SchemaError(f"slots: attrs[{what!r}] must map flow numbers to times in ns") from None


def _judged(s: pd.DataFrame) -> np.ndarray:
    """The answer for each row of signs."""
    both = s["peak_share"].notna()
    known = s["rounds"] >= _ROUNDS
    twice = np.minimum(_TWICE, _TWICE_SHARE * s["segment_bytes"])
    marked = s["mark_share"] > _SOME
    feedback = (s["resent_bytes"] >= twice) | (s["queue_share"] > _SOME) | marked
    backs_off = (s["unforced_share"] < UNFORCED) & feedback
    queue, own = s["queue_share"], s["own_queue"]
    its_own = (queue > _SOME) & (own > OWN_QUEUE)
    at_times = (queue > QUEUE) | ((queue > QUEUE_AT_TIMES) & (own > OWN_QUEUE_PROBING))
    probes = its_own | ((s["rate_spread"] > PROBING_RATE) & at_times)
    signals_move_it = backs_off & ((s["loss_share"] >= _SOME) | marked)
    grows = s["unforced_share"] < GROWS
    rises = grows & (s["growth"] > GROWTH)
    fixed = (s["peak_share"] >= np.where(probes | rises, FIXED_PEAK_PROBING, FIXED_PEAK)) & ~signals_move_it
    steady = (s["rate_spread"] < STEADY_RATE) & ~grows & ~signals_move_it
    lost_before = (s["resends"] >= _RESENDS) & (s["resent_bytes"] < s["resend_bytes"])
    marked_before = (s["ce_packets"] >= _MARKS) & (_ECHOES * s["ce_packets"] >= s["ecn_echoes"])
    answers = np.select(
        [
            lost_before | (marked_before & (s["mark_share"] >= s["loss_share"])),
            known & (s["idle_share"] >= IDLE),
            known & both & (steady | fixed),
            known & both & (backs_off | probes),
            known & both & ~grows,
            ~known & both,
        ],
        ["behind", "application", "elsewhere", "bottleneck", "elsewhere", "short"],
        "unknown",
    )
    near_receiver = (s["rtt_slots"] < NEAR_RECEIVER * s["path_rtt_slots"]) & (queue <= QUEUE_AT_TIMES)
    near_receiver &= known & (s["loss_share"] < _SOME)
    return np.where(near_receiver & np.isin(answers, ["application", "elsewhere"]), "behind", answers)
