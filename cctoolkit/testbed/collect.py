"""From the output of a backend to the directory of a run: captures, labels, tables and provenance.

::

    ingress.pcap.gz  egress.pcap.gz  labels.csv  scenario.toml  provenance.json  qdisc.json
    flows.parquet  flow_series.parquet  queues.parquet  queue_series.parquet

Columns with the same meaning have the same names as in a simulation. Flows and their series come from the kernel's
TCP_INFO, queues from the statistics of its queue disciplines, and queueing delays from the taps. Differences from a
simulation: ``mean_rtt_ms`` is the mean of the smoothed RTT over the samples; ``lost_packets`` in the flow series
are those deemed lost at that moment; ``ssthresh_packets`` is infinite until it is set; rates (``pacing_bps``,
``delivery_bps``) count full frames as in the simulator, but are the kernel's values even if it does not pace; a
queue with flow queueing inside has a single row.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._support import parquet
from .._support.atomic import replacing
from .._support.csv import write_csv
from .._support.version import __version__
from ..analysis.metrics.delay import queue_delay
from ..capture.model import Capture
from ..capture.pcap import HEADER_BYTES, frame_pcap, parse_pcap_header
from ..capture.protocols import TCP, UDP
from ..capture.reader import read_capture
from ..scenario.run import LABELS, renumbered
from .errors import TestbedError
from .iperf3 import iperf3_results
from .plan import Plan, TapSettings
from .traffic import TrafficResults, read_results

__all__ = ["Assignments", "collect", "queue_numbers", "queue_statistics"]

#: Assignments of flows to queues: (nanoseconds since the start, flow, queue).
Assignments = list[tuple[int, int, int]]


def collect(
    plan: Plan,
    raw: Path,
    folder: Path,
    recording: TapSettings,
    about: dict[str, Any],
    assignments: Assignments | None = None,
) -> None:
    """Write the directory of a run.

    Parameters
    ----------
    plan : Plan
        The plan that was run.
    raw : Path
        Output of the backend: ``ingress.pcap``, ``egress.pcap``, results of the traffic program, ``qdisc.json``.
    folder : Path
        Where to write; must be empty.
    recording : TapSettings
        What was recorded.
    about : dict
        Provenance from the backend.
    assignments : list of (int, int, int), optional
        Assignments by a controller: nanoseconds since the start, flow, queue.

    Raises
    ------
    TestbedError
        Output of the backend is missing.
    """
    results = read_results(raw)
    if recording.iperf3:
        results = iperf3_results(raw, plan, results)
    labels = _labels(plan, results)
    taps = []
    for tap in ("ingress", "egress"):
        path = folder / f"{tap}.pcap.gz"
        _compress(raw / f"{tap}.pcap", path, results.end_ns)
        taps.append(read_capture(path))
    ingress, egress = renumbered(labels, *taps)
    history = [(0, i, f.queue or 0) for i, f in enumerate(plan.scenario.flow_list())] + (assignments or [])
    packets = _packets(ingress, egress, history, results.start_ns)
    departures = _departures(egress, history, results.start_ns)
    marks = _marks(plan, departures)
    about = {
        "made_by": f"cctoolkit {__version__} testbed, {about['backend']}, Linux {about['kernel']}",
        "version": __version__,
        "name": plan.scenario.name or "run",
        "seed": plan.scenario.seed,
        "start_ns": results.start_ns,
        "end_ns": results.end_ns,
        **about,
        **({"offload": True} if plan.offload else {}),
        **({} if plan.ack_limit is None else {"ack_limit": plan.ack_limit}),
        "assignments": assignments or [],
        "qdisc_commands": plan.tree.setup(),
    }
    tables = {
        "flows": _flows(plan, results, ingress, egress, packets),
        "flow_series": _flow_series(plan, results),
        "queues": _queues(plan, results, packets, departures, marks),
        "queue_series": _queue_series(plan, results, packets, marks),
    }
    for name, table in tables.items():
        parquet.write(table, folder / f"{name}.parquet", {"made_by": about["made_by"]})
    write_csv(labels[list(LABELS)], folder / "labels.csv")
    (folder / "qdisc.json").write_bytes((raw / "qdisc.json").read_bytes())
    (folder / "scenario.toml").write_text(plan.scenario.to_toml(), encoding="utf-8")
    (folder / "provenance.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _compress(path: Path, out: Path, end_ns: int) -> None:
    """Copy the packets before the end of the run, without those that close the connections afterwards."""
    from isal import igzip

    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    header = parse_pcap_header(bytes(data[:HEADER_BYTES]))
    if header is None:
        raise TestbedError(f"{path.name}: the tap wrote no capture")
    room = len(data) // header.record_header_bytes
    offset, ts_ns, caplen, wirelen = np.empty((4, room), np.int64)
    n, position, _ = frame_pcap(
        data, HEADER_BYTES, header.big_endian, header.record_header_bytes, header.ns_per_tick, 0, room, offset, caplen,
        wirelen, ts_ns,
    )  # fmt: skip
    late = np.flatnonzero(ts_ns[:n] >= end_ns)
    end = int(offset[late[0]]) - header.record_header_bytes if len(late) else position
    with replacing(out) as tmp, tmp.open("wb") as raw, igzip.IGzipFile("", "wb", 2, raw, 0) as file:
        for start in range(0, end, 1 << 22):
            file.write(data[start : min(start + (1 << 22), end)].tobytes())


def _labels(plan: Plan, results: TrafficResults) -> pd.DataFrame:
    flows = results.flows
    specs = plan.scenario.flow_list()
    tcp = np.array([not f.is_udp for f in specs])
    known: dict[str, Any] = {
        name: flows[column].where(tcp).astype("Float64")
        for name, column in (("bytes_acked", "acked_bytes"), ("retransmits",) * 2, ("min_rtt_us",) * 2)
    }
    return pd.DataFrame(
        {
            "src": [f.source_address for f in plan.flows],
            "dst": [f.sink_address for f in plan.flows],
            "sport": np.array([f.source_port for f in plan.flows], np.uint16),
            "dport": np.array([f.sink_port for f in plan.flows], np.uint16),
            "protocol": np.where(tcp, TCP, UDP).astype(np.uint8),
            "kind": ["udp" if f.is_udp else "bulk" if f.bytes is None else "transfer" for f in specs],
            "data_from": "src",
            "cca": flows.cca.where(tcp, ""),
            "base_rtt_ms": pd.array([f.rtt_ms for f in specs], "Float64"),
            "start_ns": flows.start_ns,
            "stop_ns": flows.finished_ns.fillna(results.end_ns),
            **known,
        }
    )


def _queue_of(flow: np.ndarray, since_ns: np.ndarray, history: Assignments) -> np.ndarray:
    """Queues of packets of these flows at these times."""
    queue = np.zeros(len(flow), np.int64)
    for at_ns, which, to in history:
        if to or at_ns:
            queue[(flow == which) & (since_ns >= at_ns)] = to
    return queue


def _packets(ingress: Capture, egress: Capture, history: Assignments, start_ns: int) -> pd.DataFrame:
    """Data packets that arrived at the queue: flow, time, size, delay (null: lost or still queued), queue."""
    table = queue_delay(ingress, egress, check_taps=False)
    table = table[table.direction == 0].reset_index(drop=True)
    table["queue"] = _queue_of(table.flow_id.to_numpy(), table.ts_ns.to_numpy() - start_ns, history)
    return table


def _departures(egress: Capture, history: Assignments, start_ns: int) -> pd.DataFrame:
    """Data packets that left the queue: time, size, whether CE-marked, queue."""
    c = egress.columns
    rows = c["direction"] == 0
    table = pd.DataFrame({name: c[name][rows] for name in ("flow_id", "ts_ns", "wire_bytes")})
    table["marked"] = c["ecn"][rows] == 3
    table["queue"] = _queue_of(table.flow_id.to_numpy(), table.ts_ns.to_numpy() - start_ns, history)
    return table


def _marks(plan: Plan, departures: pd.DataFrame) -> dict[int, np.ndarray]:
    """Departure times of CE-marked packets by queue; nothing marks packets before it."""
    marked = departures[departures.marked]
    return {i: marked.ts_ns.to_numpy()[marked.queue == i] for i in queue_numbers(plan)}


def _flows(
    plan: Plan, results: TrafficResults, ingress: Capture, egress: Capture, packets: pd.DataFrame
) -> pd.DataFrame:
    specs = plan.scenario.flow_list()
    n = len(specs)
    flows, series = results.flows, results.series
    start_ns = flows.start_ns.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    end_ns = flows.finished_ns.astype("Float64").to_numpy(np.float64, na_value=np.nan)
    seconds = np.maximum((np.where(np.isnan(end_ns), results.end_ns, end_ns) - start_ns) / 1e9, 1e-9)
    data = egress.columns["direction"] == 0
    marked = np.bincount(egress.columns["flow_id"][data & (egress.columns["ecn"] == 3)], minlength=n)[:n]
    received = flows.received_bytes.fillna(0).to_numpy(np.int64)
    return pd.DataFrame(
        {
            "flow_id": np.arange(n, dtype=np.uint32),
            "name": [f.label for f in specs],
            "cca": flows.cca,
            "base_rtt_ms": [f.rtt_ms for f in specs],
            "start_s": (start_ns - results.start_ns) / 1e9,
            "end_s": (end_ns - results.start_ns) / 1e9,
            "completion_s": np.where([f.bytes is not None for f in specs], (end_ns - start_ns) / 1e9, np.nan),
            "queue": [-1 if f.queue is None else f.queue for f in specs],
            "acked_bytes": flows.acked_bytes.fillna(0).astype(np.int64),
            "received_bytes": received,
            "goodput_mbps": received * 8e-6 / seconds,
            "sent_packets": flows.sent_packets,
            "received_packets": flows.received_packets,
            "retransmits": flows.retransmits.fillna(0).astype(np.int64),
            "timeouts": flows.timeouts,
            "dropped_packets": _dropped(plan, results, ingress, egress, packets),
            "marked_packets": marked,
            "min_rtt_ms": flows.min_rtt_us.astype("Float64").to_numpy(np.float64, na_value=np.nan) / 1e3,
            "mean_rtt_ms": (series.groupby("index").rtt_us.mean() / 1e3).reindex(range(n)).to_numpy(),
            "error": flows.error,
        }
    )


def _dropped(
    plan: Plan, results: TrafficResults, ingress: Capture, egress: Capture, packets: pd.DataFrame
) -> np.ndarray:
    """Data packets that were lost at the queue.

    Segments are matched between the taps. Datagrams are counted: those that did not leave, except for the last ones to
    arrive, as many as the queues still hold.
    """
    n = len(plan.flows)
    lost = packets.flow_id[packets.lost.fillna(False).to_numpy(np.bool_)]
    out = np.bincount(lost, minlength=n)[:n]
    last = results.queues[results.queues.ts_ns == results.queues.ts_ns.max()]
    waiting = last.backlog_packets[last.handle.isin([plan.tree.handle(i) for i in queue_numbers(plan)])].sum()
    for tap, sign in ((ingress, 1), (egress, -1)):
        c = tap.columns
        rows = np.flatnonzero(c["direction"] == 0)
        if tap is ingress and waiting:
            rows = rows[: -int(waiting)]
        out += sign * np.bincount(c["flow_id"][rows[c["tcp_flags"][rows] == 0]], minlength=n)[:n]
    return np.maximum(out, 0)


def _flow_series(plan: Plan, results: TrafficResults) -> pd.DataFrame:
    s = results.series
    frames = np.array([f.packet_bytes / f.payload_bytes for f in plan.flows])[s["index"].to_numpy()]
    return pd.DataFrame(
        {
            "ts_ns": s.ts_ns,
            "flow_id": s["index"].to_numpy(np.uint32),
            "cwnd_packets": s.cwnd_packets.astype(np.float64),
            "ssthresh_packets": s.ssthresh_packets,
            "pacing_bps": s.pacing_bps * frames,
            "delivery_bps": s.delivery_bps * frames,
            "srtt_ns": s.rtt_us.astype(np.int64) * 1000,
            "rttvar_ns": s.rttvar_us.astype(np.int64) * 1000,
            "min_rtt_ns": s.min_rtt_us * 1000,
            "inflight_packets": s.unacked_packets,
            "delivered_packets": s.delivered_packets,
            "lost_packets": s.lost_packets,
            "marked_packets": s.delivered_ce_packets,
            "retransmits": s.retransmits,
            "acked_bytes": s.bytes_acked,
            "sent_bytes": s.bytes_sent,
            "ca_state": s.ca_state,
        }
    )


# ---- queues ----------------------------------------------------------------------------------------------------------


class _Own(NamedTuple):
    """Where a queue discipline has further statistics of its own (uapi/linux/pkt_sched.h)."""

    format: str
    full: tuple[int, ...]  # fields that count drops by a full buffer
    otherwise: str  # where it drops other packets
    probability: tuple[int, float] | None = None  # its field and unit
    enqueue: int | None = None  # field that counts drops on arrival, if there are others, too


#: struct aqm_xstats of hardware/linux/aqm
_PAPERS = _Own("<IIIIIII", (1,), "dequeue", (0, 2.0**-32), enqueue=2)
_OWN = {
    "codel": _Own("<IIIIiIIII", (5,), "dequeue"),
    "fq_codel": _Own("<IIII", (2,), "dequeue"),
    "pie": _Own("<QIIIIIIII", (6,), "enqueue", (0, 2.0**-64)),
    "fq_pie": _Own("<IIIII", (2, 3), "enqueue"),
    "red": _Own("<IIII", (1,), "enqueue"),
    "choke": _Own("<IIIII", (1,), "enqueue"),
    "sfb": _Own("<IIIII", (3, 4), "enqueue"),
    "dualpi2": _Own("<I", (), "dequeue", (0, 2.0**-32)),
    "cake": _Own("<", (), "dequeue"),
    "pi2": _PAPERS,
    "ired": _PAPERS,
    "abc": _PAPERS._replace(probability=None),
    "codel_pisa": _PAPERS._replace(probability=None),
}


def queue_statistics(plan: Plan, table: pd.DataFrame, queue: int) -> pd.DataFrame:
    """The rows of a queue in a table of qdisc counters, with drops by kind and the probability."""
    table = table[table.handle == plan.tree.handle(queue)].reset_index(drop=True)
    own = _OWN.get(str(table.kind.iloc[0])) if len(table) else None
    if own is not None and own.enqueue is not None:  # others may have a module of this name, too
        own = own if {len(x) for x in table.xstats} == {struct.calcsize(own.format)} else None
    drops = table.drops.to_numpy(np.int64)
    full, probability = drops, np.full(len(table), np.nan)
    if own is not None:
        size = struct.calcsize(own.format)
        rows = [struct.unpack_from(own.format, x.ljust(size, b"\0")) for x in table.xstats]
        full = np.array([sum(row[i] for i in own.full) for row in rows], np.int64)
        if own.probability is not None:
            field, unit = own.probability
            probability = np.array([row[field] * unit for row in rows])
    table["dropped_full"], table["dropped_enqueue"], table["dropped_dequeue"] = full, 0, 0
    if own is not None:
        early = np.array([0 if own.enqueue is None else row[own.enqueue] for row in rows], np.int64)
        table["dropped_enqueue"] = early
        table[f"dropped_{own.otherwise}"] = drops - full - early
    table["probability"] = probability
    return table


def _queues(
    plan: Plan,
    results: TrafficResults,
    packets: pd.DataFrame,
    departures: pd.DataFrame,
    marks: dict[int, np.ndarray],
) -> pd.DataFrame:
    rows = []
    for queue in queue_numbers(plan):
        last = queue_statistics(plan, results.queues, queue).iloc[-1]
        here = packets[packets.queue == queue]
        delay_ms = here.delay_ns.dropna().to_numpy(np.float64) / 1e6
        none = 0.0 if here.empty else np.nan  # for UDP with losses, the taps cannot match packets
        rows.append(
            {
                "queue": queue,
                "packets": int(last.backlog_packets),
                "bytes": int(last.backlog_bytes),
                "arrived_packets": int(last.packets) + int(last.backlog_packets) + int(last.drops),
                "arrived_bytes": int(here.wire_bytes.sum()),
                "sent_packets": int(last.packets),
                "sent_bytes": int(last.bytes),
                "dropped_full": int(last.dropped_full),
                "dropped_enqueue": int(last.dropped_enqueue),
                "dropped_dequeue": int(last.dropped_dequeue),
                "marked_packets": len(marks[queue]),
                "mean_delay_ms": float(delay_ms.mean()) if len(delay_ms) else none,
                "max_delay_ms": float(delay_ms.max()) if len(delay_ms) else none,
                "probability": float(last.probability),
            }
        )
        if plan.switched:  # it has no counters, so the taps count
            left = departures[departures.queue == queue]
            # Datagrams of which some are lost cannot be matched, but counted. A segment without a fate is still inside.
            datagrams = [i for i, flow in enumerate(plan.scenario.flow_list()) if flow.is_udp]
            unmatched = here.flow_id[here.lost.isna() & here.flow_id.isin(datagrams)]
            lost = int(here.lost.sum()) + len(unmatched) - int(left.flow_id.isin(unmatched.unique()).sum())
            rows[-1] |= {
                "packets": len(here) - len(left) - lost,
                "arrived_packets": len(here),
                "sent_packets": len(left),
                "sent_bytes": int(left.wire_bytes.sum()),
                "dropped_dequeue": lost,
            }
    return pd.DataFrame(rows)


def queue_numbers(plan: Plan) -> range:
    """The queues with a queue discipline of their own."""
    return range(1 if plan.tree.single else len(plan.scenario.bottleneck.queue_list()))


def _queue_series(
    plan: Plan, results: TrafficResults, packets: pd.DataFrame, marks: dict[int, np.ndarray]
) -> pd.DataFrame:
    parts = []
    for queue in queue_numbers(plan):
        table = queue_statistics(plan, results.queues, queue)
        here = packets[(packets.queue == queue) & packets.delay_ns.notna()]
        delay = here.delay_ns.to_numpy(np.int64)
        left = here.ts_ns.to_numpy() + delay
        order = np.argsort(left, kind="stable")
        gone = np.searchsorted(left[order], table.ts_ns.to_numpy(), side="right")
        sums = np.concatenate([[0], np.cumsum(delay[order])])
        last = np.concatenate([[0], delay[order]])
        parts.append(
            pd.DataFrame(
                {
                    "ts_ns": table.ts_ns,
                    "queue": queue,
                    "packets": table.backlog_packets.astype(np.int64),
                    "bytes": table.backlog_bytes.astype(np.int64),
                    "delay_ns": last[gone],
                    "probability": table.probability,
                    "sent_packets": table.packets.astype(np.int64),
                    "sent_bytes": table.bytes.astype(np.int64),
                    "dropped_packets": table.drops.astype(np.int64),
                    "marked_packets": np.searchsorted(marks[queue], table.ts_ns.to_numpy(), side="right"),
                    "delay_sum_ns": sums[gone],
                }
            )
        )
    return pd.concat(parts).sort_values(["ts_ns", "queue"], ignore_index=True)
