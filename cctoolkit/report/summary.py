"""One pass over a capture for what readers want to know first: who sent how much, when, and how far away they are.

:func:`summarise` reads a capture of any size in bounded memory and returns a :class:`Summary`; the report, the
terminal and the notebooks show it. :attr:`Summary.notes` lists what a capture cannot show; nothing is guessed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.ethernet import FULL_FRAME_BYTES
from .._support.state import grown
from .._support.words import format_percent, format_time_ns, plural
from ..analysis.flows import FlowStatistics, check_flows, retransmitted_share
from ..analysis.limits import NEAR_RECEIVER
from ..analysis.metrics.delay import QueueDelay, split_rtts
from ..analysis.rtt import RttPairing, rtt_samples
from ..analysis.slots import compute_slots
from ..analysis.tap_comparison import TapComparison, check_egress, compare_taps
from ..capture.filtering import masks, selected
from ..capture.keys import AllKeys, CaptureMeta, FlowKeys, add_meta
from ..capture.model import Capture
from ..capture.protocols import ACK, RST, SYN, TCP, UDP, protocol_name
from ..capture.reader import iter_capture, read_capture
from ..capture.selection import Selection
from ..capture.source import reads_twice
from ..capture.tunnels import is_udp_tunnel
from ..errors import ParameterError
from .idle import Idle, Silences
from .timeline import Timeline, histogram_edges_ns, wider_bins

if TYPE_CHECKING:
    from .findings import Finding

__all__ = ["Summary", "TwoTaps", "summarise"]

#: The usual service of a port: a name for the port number, not a statement about the content of packets.
SERVICE_NAMES = {
    20: "FTP data",
    21: "FTP",
    22: "SSH",
    23: "Telnet",
    25: "SMTP",
    53: "DNS",
    67: "DHCP",
    68: "DHCP",
    80: "HTTP",
    88: "Kerberos",
    110: "POP3",
    123: "NTP",
    143: "IMAP",
    161: "SNMP",
    179: "BGP",
    389: "LDAP",
    443: "HTTPS / QUIC",
    445: "SMB",
    465: "SMTPS",
    500: "IKE",
    502: "Modbus",
    514: "syslog",
    554: "RTSP",
    587: "mail submission",
    853: "DNS over TLS",
    873: "rsync",
    993: "IMAPS",
    995: "POP3S",
    1194: "OpenVPN",
    1883: "MQTT",
    1935: "RTMP",
    3306: "MySQL",
    3389: "RDP",
    3478: "STUN",
    4500: "IPsec NAT",
    5060: "SIP",
    5201: "iperf3",
    5353: "mDNS",
    5432: "PostgreSQL",
    6881: "BitTorrent",
    8080: "HTTP alternate",
    8443: "HTTPS alternate",
    51820: "WireGuard",
}  # fmt: skip

#: When fewer than two flows are long, those with this share of all bytes are compared instead. Not less: flows
#: that have little to send get little, and that is no unfairness.
BIG_SHARE = 0.05
#: Flows compete while they send: one that was silent in more of its bins than this has little to send.
STEADY_SHARE = 0.5
#: Jain's index over shorter times compares bursts, not flows.
JAIN_BIN_NS = 100_000_000
#: A standing queue, as CoDel sees it (RFC 8289, section 3): the delay's minimum over an interval of 100 ms stays above
#: a target of 5 ms, or of 5 % of the RTT where that is more (section 4.3). Here: the minimum RTT of each such interval,
#: above the flow's minimum RTT.
QUEUE_INTERVAL_NS = 100_000_000
QUEUE_TARGET_NS = 5_000_000
QUEUE_TARGET_SHARE = 0.05
QUEUE_SAMPLES = 5  # with fewer, each may have been delayed by its receiver
QUEUE_INTERVALS = 10  # with fewer intervals there is no finding
#: And more than one packet must wait, or it is not a queue (section 4.4), besides the one packet that a receiver may
#: leave unacknowledged (RFC 9293, section 3.8.6.3). By Little's law, the bytes waiting are the flow's rate times its
#: extra RTT.
QUEUE_BYTES = 2 * FULL_FRAME_BYTES

#: This share of the packets outside the second capture's time is reported.
BESIDE = 0.01
#: Captures near the receiver of the data are reported if such flows carry this share of TCP's payload.
NEAR_PAYLOAD = 0.5
#: This share of segments recorded twice is reported.
COPIES = 0.01
#: This share of the TCP packets as later IP fragments is reported.
FRAGMENTS = 0.01
#: This share of the packets as datagrams of tunnels is reported.
TUNNELS = 0.01
#: Jumbo Ethernet with VLAN tags; anything larger was put together by a host.
LARGEST_FRAME_BYTES = 9_100
#: Packets of a file to read again for the congestion controls of its flows: some seconds.
PACKETS_AGAIN = 20_000_000
#: Packets of the top flows that are kept for a closer look, a second reading apart: a minute of a fast flow.
PACKETS_KEPT = 1_000_000
#: Maximum number of long flows listed.
LONG_FLOWS_LISTED = 50
#: A gap this long that is most of the capture is reported.
LONG_GAP_NS = 10_000_000_000
ECN_NAMES = ("not ECT", "ECT(1)", "ECT(0)", "CE")

_EMPTY_FLOW_THROUGHPUT = pd.DataFrame(
    {
        "flow_id": pd.Series(dtype="uint32"),
        "direction": pd.Series(dtype="int8"),
        "time_s": pd.Series(dtype="float64"),
        "bytes": pd.Series(dtype="int64"),
    }
)
_EMPTY_RTT_OVER_TIME = pd.DataFrame(
    {
        "flow_id": pd.Series(dtype="uint32"),
        "direction": pd.Series(dtype="int8"),
        "time_s": pd.Series(dtype="float64"),
        "samples": pd.Series(dtype="int64"),
        "min_ns": pd.Series(dtype="float64"),
        "mean_ns": pd.Series(dtype="float64"),
        "max_ns": pd.Series(dtype="float64"),
    }
)


#: Rows of the flows table that are summed up at once.
_BLOCK = 1 << 20
_VOLUME = ["packets_fwd", "packets_rev", "bytes_fwd", "bytes_rev"]


@dataclass
class TwoTaps:
    """What a second tap, after the queue, adds for the top flows.

    Attributes
    ----------
    queue_delay, queue_loss : DataFrame
        Results of :func:`cctoolkit.queue_delay` and :func:`cctoolkit.analysis.metrics.queue_loss`.
    comparison : TapComparison
        How the two captures and their clocks compare.
    rtt_split : DataFrame
        Result of :func:`cctoolkit.metrics.rtt_split`: how much of the RTT passes between the taps.
    slots : DataFrame
        :data:`cctoolkit.schema.SLOTS`, with CBIQ.
    slot_ns : int
        Length of a slot.
    first_slot_ns : int
        When slot 0 begins.
    beside : float
        Share of the ingress packets from before the second capture began or after it ended.
    """

    queue_delay: pd.DataFrame
    queue_loss: pd.DataFrame
    comparison: TapComparison
    rtt_split: pd.DataFrame
    slots: pd.DataFrame
    slot_ns: int
    first_slot_ns: int
    beside: float


@dataclass
class Summary:
    """Everything that :func:`summarise` found; tables are DataFrames, ``_ns`` times are integers since the Unix epoch.

    Attributes
    ----------
    meta : CaptureMeta
    flows : DataFrame
        :data:`cctoolkit.schema.FLOWS`, all flows, plus for each direction (of the data) ``rtt_samples_*``,
        ``rtt_min_ns_*``, ``rtt_median_ns_*``, ``rtt_p95_ns_*`` (null without a sample). Above 1024 samples the median
        and the 95th percentile are of 1024 drawn at random.
    protocols : DataFrame
        ``ip_version protocol name flows packets bytes``, largest first.
    services : DataFrame
        ``protocol port name flows packets bytes``: TCP and UDP by the responder's port (the lower port if neither SYN
        nor SYN/ACK shows which that is), largest first. The name is that of the usual service.
    ecn_packets : dict
        Packets by ECN codepoint.
    bin_ns : int
        Width of the bins of `throughput`, `flow_throughput` and `rtt_over_time`.
    idle : Idle
        Long silences that the bins leave out.
    throughput : DataFrame
        ``time_s`` (start of the bin, from the first packet), ``tcp_bytes udp_bytes other_bytes``, ``packets``.
    top : DataFrame
        Rows of `flows`, the largest first; ``binned`` is the share of the flow's bytes that are in
        `flow_throughput` (1 unless the capture has more flows than can be followed at once), and ``data_direction``
        the direction that carried more payload.
    flow_throughput : DataFrame
        ``flow_id direction time_s bytes`` of the top flows.
    rtt_over_time : DataFrame
        ``flow_id direction time_s samples min_ns mean_ns max_ns`` of the top flows, bins with samples only.
    rtt_histogram : DataFrame
        ``low_ns high_ns samples``: all samples, bins of 1/32 of a factor of two; 0 counts as 1 ns.
    jain : DataFrame
        ``time_s flows jain``: over the flows `jain_flows` between their first and last packet, in bins of
        `jain_bin_ns`; null while fewer than two are active.
    jain_flows : list of int
        The long flows; when fewer than two flows are long, those with 5 % or more of all bytes. Of these, the ones
        that sent in at least half of the bins between their first and last packet.
    totals : dict
        Sums over all flows: see the keys.
    one_direction : dict
        TCP flows with only one direction seen: ``flows``, ``packets``, ``bytes``, and the totals (``of_flows`` …),
        without those of later fragments, which have no ports.
    standing_queue : DataFrame
        ``flow_id direction base_ns intervals above loaded waiting_bytes``: of top flows, in the direction with more
        data, with at least ten intervals of 100 ms (or of one bin if that is longer) that have five RTT samples or
        more: in how many of them even the minimum RTT was `above` the flow's minimum RTT by more than 5 ms and 5 %; in
        how many of these the flow sent enough for two full packets of its own to wait (`loaded`); and the median of
        the bytes waiting in those above, the flow's rate times the excess of the minimum RTT.
    two_taps : TwoTaps or None
    top_packets : Capture or None
        Packets of the top flows, if asked for: all, or the first million.
    ccas : DataFrame or None
        :data:`cctoolkit.schema.CCAS`: a model's answers about the congestion controls of the TCP flows in `top` and
        `long_flows` with at least a megabyte of data, from their first minute; null for flows that begin late in a
        capture of more than 20 million packets.
    notes : list of str
        What could not be computed, or only in part, and why.
    """

    meta: CaptureMeta
    flows: pd.DataFrame
    protocols: pd.DataFrame
    services: pd.DataFrame
    ecn_packets: dict[str, int]
    bin_ns: int
    throughput: pd.DataFrame
    top: pd.DataFrame
    flow_throughput: pd.DataFrame
    rtt_over_time: pd.DataFrame
    rtt_histogram: pd.DataFrame
    jain: pd.DataFrame
    jain_bin_ns: int
    jain_flows: list[int]
    totals: dict[str, int]
    one_direction: dict[str, int]
    standing_queue: pd.DataFrame
    long_flow_bytes: int
    idle: Idle = field(default_factory=Idle)
    two_taps: TwoTaps | None = None
    top_packets: Capture | None = None
    ccas: pd.DataFrame | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        """From the first to the last packet."""
        return (self.totals["last_ts_ns"] - self.totals["first_ts_ns"]) / 1e9

    @property
    def long_flows(self) -> pd.DataFrame:
        """Rows of `flows`: the largest of the long ones, at most 50."""
        return _long_flows(self.flows)

    @property
    def retransmitted_share(self) -> float:
        """Share of all TCP segments sent; see :func:`cctoolkit.retransmitted_share`. NaN without segments."""
        return float(retransmitted_share(self.flows.filter(regex="^(retransmits|segments)_").sum()))

    def rtt_quantile_ns(self, q: float) -> float:
        """Quantile `q` of all RTT samples, from the histogram: within 2 %; 0 for RTTs of 0. NaN without samples."""
        samples = self.rtt_histogram["samples"].to_numpy()
        if not len(samples):
            return float("nan")
        at = int(np.searchsorted(np.cumsum(samples), q * samples.sum()))
        row = self.rtt_histogram.iloc[min(at, len(samples) - 1)]
        return float((row["low_ns"] + row["high_ns"]) / 2) if row["low_ns"] > 1 else 0.0

    @property
    def is_selection(self) -> bool:
        """Whether there are fewer packets than in the file, which `meta` describes."""
        return self.totals["packets"] < self.meta.packets

    def findings(self) -> list[Finding]:
        """The capture in a few plain sentences, each with the rule that made it."""
        from .findings import findings

        return findings(self)


def _parts(
    source: str | os.PathLike[str] | Capture,
    packets: int,
    selection: Selection | None,
    reading: dict[str, Any],
) -> Iterator[tuple[Capture, CaptureMeta]]:
    """The selected packets, part by part, and the metadata of the whole part."""
    for part, mask in masks(_whole_parts(source, packets, reading), selection):
        yield part if mask is None else part.rows(mask), part.meta


def _whole_parts(
    source: str | os.PathLike[str] | Capture, packets: int, reading: dict[str, Any]
) -> Iterator[Capture]:
    if isinstance(source, Capture):
        if reading:
            raise ParameterError(f"{next(iter(reading))}: cannot be used with a capture that is already read")
        return iter([source])
    return iter_capture(source, packets, ahead=True, **reading)


def summarise(
    source: str | os.PathLike[str] | Capture,
    *,
    egress: str | os.PathLike[str] | Capture | None = None,
    selection: Selection | None = None,
    top: int = 12,
    slot_ms: float = 10.0,
    long_flow_bytes: int = 10_000_000,
    packets: int = 1_000_000,
    model: str | os.PathLike[str] | None = None,
    keep_top_packets: bool = False,
    check_taps: bool = True,
    **reading: Any,
) -> Summary:
    """Compute everything the report shows, in one pass.

    Parameters
    ----------
    source : path or Capture
        A capture file is read in parts of `packets` packets; memory grows with the number of flows, not of packets.
    egress : path or Capture, optional
        The same traffic after the queue, on the same clock. Adds queueing delay, loss and CBIQ of the top flows; for
        these, both captures are read into memory as a whole.
    selection : Selection, optional
        Use only these packets. `Summary.meta` remains that of the whole file.
    top : int
        Number of flows to follow over time, largest first (by bytes on the wire, both directions).
    slot_ms : float
        Slot length of the CBIQ series, in ms.
    long_flow_bytes : int
        A flow is long if one direction carries more than this.
    packets : int
        Packets per part; the result does not depend on it.
    model : str or path, optional
        Model that names the congestion controls of the largest flows (:func:`cctoolkit.identify.bundle.load`). For
        this, the first 20 million packets of a file are read again; a pipe cannot be.
    keep_top_packets : bool
        Keep the packets of the top flows, at most a million. A file is read again for them; a pipe cannot be.
    check_taps : bool
        Refuse two captures that cannot be taps before and after a queue (:func:`cctoolkit.compare_taps`).
    **reading
        As for :func:`cctoolkit.read_capture` (``tunnel=``, ``flow_timeout_s=``).

    Returns
    -------
    Summary

    Raises
    ------
    CaptureFormatError
        The file is not a capture.
    ParameterError
        `top` is less than 1, there is no such model, or the taps are swapped, have no packet in common, or their
        clocks differ too much.

    See Also
    --------
    cctoolkit.report.page.report : the summary as a page
    FlowStatistics : only the flows table, of a capture of any size
    compare_taps : how two taps compare

    Examples
    --------
    >>> summary = cct.summarise(cct.example("cubic-bbr").ingress)
    >>> summary.totals["flows"], f"{summary.rtt_quantile_ns(0.5) / 1e6:.0f} ms"
    (3, '81 ms')
    >>> summary.top[["flow_id", "packets_fwd", "retransmits_fwd"]]
       flow_id  packets_fwd  retransmits_fwd
    0        1         5554               97
    1        0         2618               57
    2        2            2                0
    """
    if top < 1:
        raise ParameterError(f"top must be at least 1, not {top}")
    if model is not None:
        from ..identify.bundle import load

        load(model)  # before the long work
    options = reading
    comparison: TapComparison | None = None
    if egress is not None:
        if not isinstance(source, Capture):
            source, reading = read_capture(source, **reading), {}
        if not isinstance(egress, Capture):
            egress = read_capture(egress, **options)
        comparison = compare_taps(source, check_egress(egress))
        if check_taps:
            comparison.check()
    statistics = FlowStatistics(long_flow_bytes)
    pairing = RttPairing()
    timeline = Timeline()
    silences = Silences()
    keys = AllKeys()
    servers = np.zeros(0, np.bool_)
    meta: CaptureMeta | None = None
    for part, part_meta in _parts(source, packets, selection, reading):
        columns = part.columns
        statistics.update(columns, part.keys)
        timeline.update(columns, part.keys, pairing.update(columns))
        silences.update(columns["ts_ns"])
        servers = _mark_servers(servers, columns)
        keys.add(part.keys)
        check_flows(len(keys))
        meta = add_meta(meta, part_meta)
    assert meta is not None  # there is always one part
    del (
        part,
        columns,
        pairing,
    )  # with millions of flows each is a hundred megabytes, and the tables need as much
    idle = silences.idle()
    silence_ns = timeline.longest_gap_ns
    if len(idle) and reads_twice(source):
        timeline = _timeline_without(idle, _parts(source, packets, selection, reading))
    else:
        idle = Idle()
    everything = keys.all()
    flows = statistics.result(everything)
    seen = everything  # but for flows that had no packet
    if len(flows) < len(everything):
        seen = everything.take(np.searchsorted(everything.flow_id, flows["flow_id"].to_numpy()))
    del statistics
    _add_rtt(flows, timeline)
    largest = _largest(flows, timeline, top)
    jain, jain_bin_ns, jain_flows = _jain_by_bin(flows, timeline, idle)
    flow_throughput = _flow_throughput(timeline, largest)
    rtt_over_time = _rtt_over_time(timeline, largest)
    standing = _judge_standing_queue(rtt_over_time, flow_throughput, timeline.width_ns, largest)
    summary = Summary(
        meta=meta,
        flows=flows,
        protocols=_protocols(flows, seen.ip_version),
        services=_services(flows, seen.saw_syn, servers),
        ecn_packets=dict(zip(ECN_NAMES, timeline.ecn_packets.tolist(), strict=True)),
        bin_ns=timeline.width_ns,
        throughput=_throughput(timeline),
        top=largest,
        flow_throughput=flow_throughput,
        rtt_over_time=rtt_over_time,
        rtt_histogram=_rtt_histogram(timeline),
        jain=jain,
        jain_bin_ns=jain_bin_ns,
        jain_flows=jain_flows,
        totals=_totals(flows),
        one_direction=_count_one_direction(flows),
        standing_queue=standing,
        long_flow_bytes=long_flow_bytes,
        idle=idle,
    )
    _to_real_time(summary, timeline.start_ns)
    if comparison is not None and len(largest):
        assert isinstance(source, Capture) and isinstance(egress, Capture)
        summary.two_taps = _measure_two_taps(source, egress, comparison, selection, largest, slot_ms)
    summary.notes = _notes(summary, timeline, silence_ns, reading.get("tunnel") == "inner")
    del timeline, keys, everything, seen  # here too: the file is read again
    if model is not None:
        _add_ccas(summary, source, egress, selection, model, options)
    if keep_top_packets and len(largest) and reads_twice(source):
        summary.top_packets = _top_packets(source, packets, selection, reading, largest)
    return summary


def _timeline_without(idle: Idle, parts: Iterator[tuple[Capture, CaptureMeta]]) -> Timeline:
    """The time bins on a clock that stands still in the long silences."""
    timeline, pairing = Timeline(), RttPairing()
    for part, _ in parts:
        rtt = pairing.update(part.columns)
        timeline.update(part.columns | {"ts_ns": idle.to_busy(part.columns["ts_ns"])}, part.keys, rtt)
    return timeline


def _to_real_time(summary: Summary, start_ns: int) -> None:
    """Give the bins their real start times."""
    if not len(summary.idle):
        return
    for table in (summary.throughput, summary.flow_throughput, summary.rtt_over_time, summary.jain):
        busy_ns = start_ns + np.rint(table["time_s"].to_numpy() * 1e9).astype(np.int64)
        table["time_s"] = (summary.idle.to_real(busy_ns) - start_ns) / 1e9


def _top_packets(
    source: str | os.PathLike[str] | Capture,
    packets: int,
    selection: Selection | None,
    reading: dict[str, Any],
    largest: pd.DataFrame,
) -> Capture:
    """The packets of the top flows, or the first million of them."""
    wanted = largest["flow_id"].to_numpy()
    parts: list[Capture] = []
    kept = seen = 0
    for part, _ in _parts(source, packets, selection, reading):
        part = part.rows(np.isin(part.columns["flow_id"], wanted))
        parts.append(part)
        kept += len(part)
        seen += packets
        if kept >= PACKETS_KEPT or seen >= PACKETS_AGAIN:
            break
    return _joined(parts)


def _joined(parts: list[Capture]) -> Capture:
    """Consecutive parts of one capture as one."""
    meta: CaptureMeta | None = None
    sacks, rows = [], 0
    for part in parts:
        meta = add_meta(meta, part.meta)
        blocks = part.sacks.to_numpy(np.int64)
        blocks[:, 0] += rows
        sacks.append(blocks)
        rows += len(part)
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    assert meta is not None
    # Of each flow the last part that has it: that knows most. Not AllKeys, which has room for every flow number.
    keys = {f.name: np.concatenate([getattr(part.keys, f.name) for part in parts]) for f in fields(FlowKeys)}
    last = len(keys["flow_id"]) - 1 - np.unique(keys["flow_id"][::-1], return_index=True)[1]
    return Capture(columns, FlowKeys(**keys).take(last), meta, np.concatenate(sacks))


def _add_ccas(
    summary: Summary,
    source: str | os.PathLike[str] | Capture,
    egress: str | os.PathLike[str] | Capture | None,
    selection: Selection | None,
    model: str | os.PathLike[str],
    reading: dict[str, Any],
) -> None:
    """Add the model's answers about the flows listed; add a note where it cannot be used."""
    from ..identify.classify import classify_flows

    if not reads_twice(source):
        summary.notes.append(
            "A pipe cannot be read twice: congestion controls are not named (cct classify can name them)."
        )
        return
    shown = pd.concat([summary.top[summary.flows.columns], summary.long_flows]).drop_duplicates("flow_id")
    try:
        summary.ccas = classify_flows(
            source, egress, model=model, flows=shown, selection=selection, packets=PACKETS_AGAIN,
            check_taps=False, **reading,
        )  # fmt: skip
    except ParameterError as err:
        summary.notes.append(f"Congestion controls are not named: {err}.")


def _add_rtt(flows: pd.DataFrame, timeline: Timeline) -> None:
    """Columns ``rtt_*``: statistics of each direction's round-trip times."""
    rtt = timeline.rtt_by_flow((0.5, 0.95))
    row = np.searchsorted(flows["flow_id"].to_numpy(), rtt["flow_id"])
    for side, way in enumerate(("fwd", "rev")):
        of = rtt["direction"] == side
        samples = np.zeros(len(flows), np.int64)
        samples[row[of]] = rtt["count"][of]
        flows[f"rtt_samples_{way}"] = samples
        found = {
            "min": rtt["minimum"][of],
            "median": rtt["quantiles"][of, 0],
            "p95": rtt["quantiles"][of, 1],
        }
        for name, values in found.items():
            column = np.zeros(len(flows), np.int64)
            column[row[of]] = np.rint(values)
            flows[f"rtt_{name}_ns_{way}"] = pd.arrays.IntegerArray(column, samples == 0)


def each(table: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, its columns as attributes."""
    return iter(table.itertuples())


def _largest(flows: pd.DataFrame, timeline: Timeline, top: int) -> pd.DataFrame:
    """The flows with the most bytes, and how much of each is in its time bins."""
    size = (flows["bytes_fwd"] + flows["bytes_rev"]).to_numpy()
    rows = np.argsort(-size, kind="stable")[:top]
    largest = flows.iloc[rows].reset_index(drop=True)
    binned = [timeline.flow_bytes(f).sum() if timeline.has_bins(f) else 0 for f in largest["flow_id"]]
    largest["binned"] = np.array(binned) / size[rows]
    largest["data_direction"] = data_direction(largest)
    return largest


def _long_flows(flows: pd.DataFrame) -> pd.DataFrame:
    long = flows[flows["is_long"]]
    order = np.argsort(-(long["bytes_fwd"] + long["bytes_rev"]).to_numpy(), kind="stable")
    return long.iloc[order[:LONG_FLOWS_LISTED]]


def data_direction(flows: pd.DataFrame) -> np.ndarray:
    """0 where the initiator sent more (payload, else bytes), 1 where the responder did."""
    payload = (flows["payload_rev"] - flows["payload_fwd"]).to_numpy()
    size = (flows["bytes_rev"] - flows["bytes_fwd"]).to_numpy()
    return (np.where(payload != 0, payload, size) > 0).astype(np.int8)


def _throughput(timeline: Timeline) -> pd.DataFrame:
    size = timeline.kind_bytes
    return pd.DataFrame(
        {
            "time_s": _bin_starts_s(timeline),
            "tcp_bytes": size[:, 1],
            "udp_bytes": size[:, 2],
            "other_bytes": size[:, 0],
            "packets": timeline.kind_packets.sum(axis=1),
        }
    )


def _bin_starts_s(timeline: Timeline) -> np.ndarray:
    return np.arange(timeline.bins) * timeline.width_ns / 1e9


def _flow_throughput(timeline: Timeline, largest: pd.DataFrame) -> pd.DataFrame:
    parts = []
    time_s = _bin_starts_s(timeline)
    for flow in largest["flow_id"]:
        if timeline.has_bins(flow):
            size = timeline.flow_bytes(flow)
            parts += [
                {"flow_id": flow, "direction": direction, "time_s": time_s, "bytes": size[:, direction]}
                for direction in (0, 1)
                if size[:, direction].any()
            ]
    return _stacked(parts, _EMPTY_FLOW_THROUGHPUT)


def _rtt_over_time(timeline: Timeline, largest: pd.DataFrame) -> pd.DataFrame:
    parts = []
    time_s = _bin_starts_s(timeline)
    for flow in largest["flow_id"]:
        if not timeline.has_bins(flow):
            continue
        for direction in (0, 1):
            rtt = timeline.flow_rtt(flow, direction)
            some = rtt["count"] > 0
            if some.any():
                parts.append(
                    {
                        "flow_id": flow,
                        "direction": direction,
                        "time_s": time_s[some],
                        "samples": rtt["count"][some],
                        "min_ns": rtt["minimum"][some],
                        "mean_ns": rtt["mean"][some],
                        "max_ns": rtt["maximum"][some],
                    }
                )
    return _stacked(parts, _EMPTY_RTT_OVER_TIME)


def _stacked(parts: list[dict[str, Any]], empty: pd.DataFrame) -> pd.DataFrame:
    """The parts below each other, in the columns of `empty`; a part has arrays, and single values for all its rows."""
    if not parts:
        return empty.copy()
    return pd.DataFrame(
        {
            name: np.concatenate([np.broadcast_to(part[name], part["time_s"].shape) for part in parts])
            for name in map(str, empty)
        }
    ).astype(empty.dtypes)


def _rtt_histogram(timeline: Timeline) -> pd.DataFrame:
    samples = timeline.histogram
    some = np.flatnonzero(samples)
    first, last = (int(some[0]), int(some[-1]) + 1) if len(some) else (0, 0)
    edges = histogram_edges_ns(first, last)
    return pd.DataFrame({"low_ns": edges[:-1], "high_ns": edges[1:], "samples": samples[first:last]})


def _compared(flows: pd.DataFrame) -> pd.DataFrame:
    """The flows whose fairness is compared: see :attr:`Summary.jain_flows`."""
    long = flows[flows["is_long"]]
    if len(long) >= 2:
        return long
    size = flows["bytes_fwd"] + flows["bytes_rev"]
    return flows[size >= max(BIG_SHARE * size.sum(), 1)]


def _jain_by_bin(flows: pd.DataFrame, timeline: Timeline, idle: Idle) -> tuple[pd.DataFrame, int, list[int]]:
    compared = _compared(flows)
    compared = compared[np.array([timeline.has_bins(f) for f in compared["flow_id"]], bool)]
    factor = wider_bins(timeline.width_ns, timeline.bins, 300, JAIN_BIN_NS)
    width = factor * timeline.width_ns
    bins = -(-timeline.bins // factor)
    total, squares, present = np.zeros(bins), np.zeros(bins), np.zeros(bins, np.int64)
    starts = np.arange(0, timeline.bins, factor)
    steady: list[int] = []
    for flow, direction, first, last in zip(
        compared["flow_id"],
        data_direction(compared),
        *(
            np.maximum(idle.to_busy(compared[f"{end}_ts_ns"].to_numpy()) - timeline.start_ns, 0) // width
            for end in ("first", "last")
        ),
        strict=True,
    ):
        size = np.add.reduceat(timeline.flow_bytes(flow)[:, direction], starts).astype(float)
        if (size[first : last + 1] > 0).mean() < STEADY_SHARE:
            continue
        steady.append(int(flow))
        total += size
        squares += size**2
        present[first : last + 1] += 1
    with np.errstate(invalid="ignore", divide="ignore"):
        index = np.where((present >= 2) & (squares > 0), total**2 / (present * squares), np.nan)
    table = pd.DataFrame({"time_s": np.arange(bins) * width / 1e9, "flows": present, "jain": index})
    return table, width, steady


def _totals(flows: pd.DataFrame) -> dict[str, int]:
    def both(name: str, rows: Any = slice(None)) -> int:
        return int(flows[f"{name}_fwd"][rows].sum() + flows[f"{name}_rev"][rows].sum())

    tcp = flows["protocol"] == TCP
    return {
        "flows": len(flows),
        "tcp_flows": int(tcp.sum()),
        "long_flows": int(flows["is_long"].sum()),
        "packets": both("packets"),
        "bytes": both("bytes"),
        "payload_bytes": both("payload"),
        "tcp_packets": both("packets", tcp),
        "tcp_bytes": both("bytes", tcp),
        "segments": both("segments"),
        "retransmits": both("retransmits"),
        "retransmitted_bytes": both("retransmitted_bytes"),
        "out_of_order": both("out_of_order"),
        "copies": both("copies"),
        "duplicate_acks": both("duplicate_acks"),
        "handshakes": int(flows["handshake_rtt_ns"].notna().sum()),
        "rtt_samples": both("rtt_samples"),
        "first_ts_ns": int(flows["first_ts_ns"].min()) if len(flows) else 0,
        "last_ts_ns": int(flows["last_ts_ns"].max()) if len(flows) else 0,
    }


def _count_one_direction(flows: pd.DataFrame) -> dict[str, int]:
    tcp = flows[_VOLUME][(flows["protocol"] == TCP) & ~_is_portless_tcp(flows)]
    packets, size = tcp["packets_fwd"] + tcp["packets_rev"], tcp["bytes_fwd"] + tcp["bytes_rev"]
    one = (tcp["packets_fwd"] == 0) | (tcp["packets_rev"] == 0)
    return {
        "flows": int(one.sum()),
        "packets": int(packets[one].sum()),
        "bytes": int(size[one].sum()),
        "of_flows": len(tcp),
        "of_packets": int(packets.sum()),
        "of_bytes": int(size.sum()),
    }


def _count_packets(flows: pd.DataFrame) -> int:
    return int(flows["packets_fwd"].sum() + flows["packets_rev"].sum())


def _is_portless_tcp(flows: pd.DataFrame) -> pd.Series:
    """TCP without ports: later IP fragments, and headers that are cut short. They are part of other flows."""
    return (flows["protocol"] == TCP) & (flows["sport"] == 0) & (flows["dport"] == 0)


def _near_receiver(flows: pd.DataFrame) -> pd.DataFrame:
    """Flows captured near the receiver of their data: ``payload`` bytes, and RTTs, ``behind_ns`` the tap (median) and
    ``path_ns``.
    """
    backward = flows["payload_rev"] > flows["payload_fwd"]
    found = pd.DataFrame(
        {
            "payload": flows["payload_fwd"] + flows["payload_rev"],
            "behind_ns": flows["rtt_median_ns_fwd"].where(~backward, flows["rtt_median_ns_rev"]),
            "path_ns": flows["handshake_rtt_ns"],
        }
    ).dropna()
    return found[found["behind_ns"] < NEAR_RECEIVER * found["path_ns"]]


def _judge_standing_queue(
    rtt: pd.DataFrame, sent: pd.DataFrame, bin_ns: int, largest: pd.DataFrame
) -> pd.DataFrame:
    width_s = max(QUEUE_INTERVAL_NS, bin_ns) / 1e9
    of_rtt, of_sent = (table.groupby(["flow_id", "direction"]).indices for table in (rtt, sent))
    rtt_interval, sent_interval = (
        (table["time_s"].to_numpy() / width_s + 1e-6).astype(int) for table in (rtt, sent)
    )
    samples, min_ns, sent_bytes = (
        rtt["samples"].to_numpy(),
        rtt["min_ns"].to_numpy(),
        sent["bytes"].to_numpy(),
    )
    rows = []
    for flow in each(largest):
        side = flow.data_direction
        at = of_rtt.get((flow.flow_id, side), np.empty(0, int))
        begins = np.flatnonzero(np.diff(rtt_interval[at], prepend=-1))  # rows are in order of time
        if not len(begins):
            continue
        enough = np.add.reduceat(samples[at], begins) >= QUEUE_SAMPLES
        minimum = np.minimum.reduceat(min_ns[at], begins)[enough]
        if len(minimum) >= QUEUE_INTERVALS:
            interval = rtt_interval[at][begins][enough]
            base = (flow.rtt_min_ns_fwd, flow.rtt_min_ns_rev)[side]
            its = of_sent.get((flow.flow_id, side), np.empty(0, int))
            size = np.bincount(sent_interval[its], sent_bytes[its], minlength=interval[-1] + 1)[interval]
            extra = minimum - base
            waiting = size / width_s * extra / 1e9
            above = extra > max(QUEUE_TARGET_NS, QUEUE_TARGET_SHARE * base)
            loaded = above & (waiting >= QUEUE_BYTES)
            typical = float(np.median(waiting[above])) if above.any() else 0.0
            rows.append(
                (flow.flow_id, side, base, len(minimum), int(above.sum()), int(loaded.sum()), typical)
            )
    return pd.DataFrame(
        rows, columns=["flow_id", "direction", "base_ns", "intervals", "above", "loaded", "waiting_bytes"]
    )


def _protocols(flows: pd.DataFrame, ip_version: np.ndarray) -> pd.DataFrame:
    mix = _sums(flows, lambda rows, of: {"ip_version": ip_version[rows], "protocol": of["protocol"]})
    mix.insert(2, "name", [protocol_name(p) for p in mix["protocol"]])
    return mix.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)


def _sums(flows: pd.DataFrame, keys_of: Callable[[slice, pd.DataFrame], dict[str, Any]]) -> pd.DataFrame:
    """Flows, packets and bytes by the keys that `keys_of` returns for a block of rows, sorted by them."""

    def of_block(start: int) -> pd.DataFrame:
        rows = slice(start, start + _BLOCK)
        of = flows.iloc[rows]
        keys = keys_of(rows, of)
        counts = {
            "flows": 1,
            "packets": of["packets_fwd"] + of["packets_rev"],
            "bytes": of["bytes_fwd"] + of["bytes_rev"],
        }
        return pd.DataFrame(keys | counts).groupby(list(keys), as_index=False).sum()

    if len(flows) <= _BLOCK:
        return of_block(0)
    # all rows at once would take as much memory as the flows themselves
    every = pd.concat(of_block(start) for start in range(0, len(flows), _BLOCK))
    return every.groupby(list(every.columns[:-3]), as_index=False).sum()


def _mark_servers(servers: np.ndarray, columns: dict[str, np.ndarray]) -> np.ndarray:
    """Mark who sent a SYN/ACK, by ``2 * flow_id + direction``: the passive opener (RFC 9293, section 3.5)."""
    rows = np.flatnonzero((columns["tcp_flags"] & (SYN | ACK | RST)) == SYN | ACK)
    if len(rows):
        sides = 2 * columns["flow_id"][rows].astype(np.int64) + columns["direction"][rows]
        servers = grown(servers, int(sides.max()) + 1)
        servers[sides] = True
    return servers


def _services(flows: pd.DataFrame, saw_syn: np.ndarray, servers: np.ndarray) -> pd.DataFrame:
    servers = grown(servers, 2 * (int(flows["flow_id"].max()) + 1 if len(flows) else 0))

    def keys_of(rows: slice, of: pd.DataFrame) -> dict[str, Any]:
        side = 2 * of["flow_id"].to_numpy(np.int64)
        port = np.select(
            [saw_syn[rows] | servers[side + 1], servers[side]],
            [of["dport"], of["sport"]],
            np.minimum(of["sport"], of["dport"]),
        )
        return {"protocol": of["protocol"], "port": port}

    services = _sums(flows, keys_of)
    services = services[services["protocol"].isin([TCP, UDP])]
    services = services.sort_values("bytes", ascending=False, kind="stable", ignore_index=True)
    services.insert(2, "name", [SERVICE_NAMES.get(p, "") for p in services["port"]])
    return services


def _measure_two_taps(
    ingress: Capture,
    egress: Capture,
    comparison: TapComparison,
    selection: Selection | None,
    largest: pd.DataFrame,
    slot_ms: float,
) -> TwoTaps:
    if selection:
        (ingress,) = selected([ingress], selection)
    ingress = ingress.select(flow_id=largest["flow_id"].tolist())
    delays = QueueDelay(check_taps=False)
    delays.update(ingress, egress)
    slots = compute_slots(ingress, egress, slot_ms, check_taps=False)
    slot_ns = round(slot_ms * 1e6)
    table = delays.result()
    ts_ns, out_ns = ingress.columns["ts_ns"], egress.columns["ts_ns"]
    during = (
        (ts_ns >= out_ns.min()) & (ts_ns <= out_ns.max()) if len(out_ns) else np.zeros(len(ts_ns), np.bool_)
    )
    return TwoTaps(
        queue_delay=table,
        queue_loss=delays.loss(),
        comparison=comparison,
        rtt_split=split_rtts(ingress.columns, rtt_samples(ingress), table),
        slots=slots,
        slot_ns=slot_ns,
        first_slot_ns=slots.attrs["start_ns"],
        beside=1 - float(during.mean()) if len(ts_ns) else 0.0,
    )


def _notes(
    summary: Summary, timeline: Timeline, longest_silence_ns: tuple[int, int], inner: bool
) -> list[str]:
    """What could not be computed, or only in part, and why."""
    meta, totals, one = summary.meta, summary.totals, summary.one_direction
    counts = meta.counts
    notes = list(meta.notes)

    def say(condition: object, text: str) -> None:
        if condition:
            notes.append(text)

    in_file = " in the whole file" if summary.is_selection else ""  # what meta counts
    say(not meta.packets, f"None of the {plural(meta.frames, 'frame')} has an IP header: nothing to analyse.")
    say(
        summary.is_selection,
        f"A selection: {totals['packets']:,} of the capture's {meta.packets:,} packets.",
    )
    say(
        meta.dropped,
        f"The capturing machine reports {plural(meta.dropped or 0, 'packet')}{in_file} lost before they were written: "
        "their retransmissions look like first transmissions, and samples are missing.",
    )
    say(
        totals["copies"] > COPIES * totals["segments"],
        f"{totals['copies']:,} TCP segments were recorded twice (on two interfaces, or by a mirror port): packets and "
        "bytes count both copies, and late copies pass for retransmissions and hide RTTs. Record one interface, or "
        "remove duplicates first (editcap -d).",
    )
    say(
        counts.get("truncated_headers"),
        f"The headers of {plural(counts.get('truncated_headers', 0), 'packet')}{in_file} are cut short (by the snap "
        "length or by damage). Without TCP options, timestamps and SACK blocks are missing; without ports or flags, "
        "only the bytes count.",
    )
    say(
        counts.get("fragments"),
        f"{plural(counts.get('fragments', 0), 'later IP fragment')}{in_file} without ports: counted as flows of their "
        "own, with ports 0.",
    )
    # the packets without ports may include some that are only cut short
    portless = _count_packets(summary.flows[_is_portless_tcp(summary.flows)])
    fragments, of = min(portless, counts.get("fragments", 0)), totals["tcp_packets"]
    say(
        fragments > 0 and fragments >= FRAGMENTS * of,
        f"{fragments:,} of {plural(of, 'TCP packet')} ({format_percent(fragments / max(of, 1))}) are later IP "
        "fragments, without a TCP header. Of a segment in fragments only the first is known: no ACK is for exactly its "
        "end, so round-trip times are missing, and payload is too low, as is goodput where no ACKs were captured. The "
        "others pass for TCP flows of one direction, without a handshake. Capture where segments are whole (at the "
        "sender), lower the MSS so that they fit the path, or measure RTTs with TCP timestamps (cct rtt --method "
        "timestamps).",
    )
    tunnelled = 0 if inner else _count_packets(summary.flows[is_udp_tunnel(summary.flows)])
    say(
        tunnelled > 0 and tunnelled >= TUNNELS * totals["packets"],
        f"{tunnelled:,} of {plural(totals['packets'], 'packet')} "
        f"({format_percent(tunnelled / max(totals['packets'], 1))}) are UDP datagrams on ports of tunnels (VXLAN, "
        "Geneve, GTP-U, Teredo, L2TP, GRE or MPLS). What is inside counts as their payload; to analyse it: --tunnel "
        'inner (in Python: tunnel="inner").',
    )
    say(
        counts.get("not_ip"),
        f"{plural(counts.get('not_ip', 0), 'frame')}{in_file} without an IP packet (ARP, spanning tree, encrypted "
        "Wi-Fi, …): not counted in any table.",
    )
    say(
        timeline.backward,
        f"{plural(timeline.backward, 'packet')} with a timestamp before that of the previous one (several capture "
        "queues, or a clock set back): times around them are uncertain.",
    )
    began_ns, gap_ns = longest_silence_ns
    for began, removed in zip(summary.idle.began_ns, summary.idle.removed_ns, strict=True):
        notes.append(
            f"No packet for {format_time_ns(removed + summary.idle.remainder_ns)}, starting "
            f"{format_time_ns(began - timeline.start_ns)} after the first one: time axes are cut there, and "
            "averages over time mean little."
        )
    say(
        not len(summary.idle)
        and gap_ns > LONG_GAP_NS
        and 2 * gap_ns > totals["last_ts_ns"] - totals["first_ts_ns"],
        f"No packet for {format_time_ns(gap_ns)}, starting {format_time_ns(began_ns - timeline.start_ns)} after the "
        "first one: most of every time axis is empty, and averages over time mean little. Analyse each side of the gap "
        "on its own (start and stop of a selection).",
    )
    say(
        timeline.largest_bytes > LARGEST_FRAME_BYTES,
        f"The largest packet has {timeline.largest_bytes:,} bytes, more than a link carries: it was captured on a host "
        "that leaves segmentation to its network card, or on its loopback interface. Packet counts and bursts are the "
        "host's, not the link's.",
    )
    if totals["packets"] and not totals["tcp_flows"]:
        notes.append("No TCP: no round-trip times, no retransmissions, no handshakes.")
    say(
        one["flows"],
        f"{one['flows']:,} of {plural(one['of_flows'], 'TCP flow')} "
        f"({format_percent(one['bytes'] / max(one['of_bytes'], 1))} of the TCP bytes) "
        f"{'shows' if one['flows'] == 1 else 'show'} one direction only: no round-trip times there, and "
        "retransmissions and duplicate ACKs of one side only.",
    )
    say(
        totals["tcp_flows"] > one["flows"] and not totals["rtt_samples"],
        "No segment was followed by an ACK of exactly its end: no round-trip times.",
    )
    near = _near_receiver(summary.flows)
    payload = (
        summary.flows.loc[summary.flows["protocol"] == TCP, ["payload_fwd", "payload_rev"]].to_numpy().sum()
    )
    share = near["payload"].sum() / max(payload, 1)
    say(
        share > NEAR_PAYLOAD,
        f"{plural(len(near), 'TCP flow')} with {format_percent(share)} of the payload "
        f"{'was' if len(near) == 1 else 'were'} captured near the receiver of the data: round-trip times there "
        f"(typically {format_time_ns(near['behind_ns'].median())}) are those of the short way behind the tap, not of "
        f"the path ({format_time_ns(near['path_ns'].median())} by the handshakes). Where there are TCP timestamps, cct "
        "rtt --method timestamps shows the way to the sender, too.",
    )
    missing = totals["tcp_flows"] - totals["handshakes"]
    say(
        missing,
        f"The handshake of {missing:,} of {plural(totals['tcp_flows'], 'TCP flow')} was not captured in full (the flow "
        "began earlier, went unanswered, or shows one direction only) or had to repeat a segment: no handshake "
        "RTT and perhaps no window scale for them.",
    )
    late = summary.top[summary.top["binned"] < 0.999]
    say(
        len(late),
        f"There are more flows than can be followed at once: the curves of {len(late)} of the top flows begin late (at "
        f"worst, {format_percent(1 - late['binned'].min())} of a flow's bytes are missing). Tables are exact.",
    )
    say(
        totals["packets"] and len(summary.jain_flows) < 2,
        "Fewer than two flows are large and send steadily: no fairness index.",
    )
    say(
        summary.two_taps is None and totals["packets"],
        "One tap: queueing delay, loss at the queue and CBIQ need a second capture, from after the queue "
        "(egress=…; on the command line, cct report --egress).",
    )
    if summary.two_taps is not None:
        notes += summary.two_taps.comparison.notes()
        beside = summary.two_taps.beside
        say(
            beside >= BESIDE,
            f"{format_percent(beside)} of the top flows' packets passed the first tap before the second capture began "
            "or after it ended: their fate is not known.",
        )
    say(
        summary.two_taps is not None and summary.two_taps.queue_delay.empty,
        "No packet of the top flows was recognised at both taps: different traffic, clocks that differ, or "
        "segmentation offload that cuts segments differently.",
    )
    say(
        timeline.histogram[0],
        f"{plural(int(timeline.histogram[0]), 'round-trip time')} of 0: the capture's clock is too coarse for them.",
    )
    return notes
