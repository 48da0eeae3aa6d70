"""Traffic by iperf3 instead of the traffic program's own sources and sinks.

The traffic program runs as well, without flows: it samples the queues and asks the controller. A flow is an
iperf3 connection with the addresses and ports of the flow, plus the control connection of iperf3 from another port;
data starts a few round trips after the start of the flow. A transfer ends when its last byte is written, not when
it has arrived, so there is no completion time. The series has what iperf3 reports (window, RTT, bytes,
retransmissions); the rest is null or 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.documents import read_json
from ..errors import ParameterError, SchemaError
from .errors import TestbedError
from .plan import Plan
from .traffic import TrafficFlow, TrafficResults

__all__ = ["iperf3_lines", "iperf3_results"]


def iperf3_lines(plan: Plan, sample_ns: int) -> list[str]:
    """One line per flow for the guest: number, start, hosts, address and port of the server, arguments of the client.

    Raises
    ------
    ParameterError
        iperf3 does not support a flow.
    """
    if sample_ns < 100_000_000:
        raise ParameterError(f"sample_s: {sample_ns / 1e9:g}, but iperf3 needs at least 0.1")
    lines = []
    for flow, group in zip(plan.flows, plan.group_of, strict=True):
        arguments = " ".join(_arguments(flow, plan, sample_ns))
        lines.append(
            f"{flow.index} {flow.start_ns} {plan.prefix}S{group} {plan.prefix}D{group} {flow.sink_address} "
            f"{flow.sink_port} {arguments}"
        )
    return lines


def _arguments(flow: TrafficFlow, plan: Plan, sample_ns: int) -> list[str]:
    where = f"flow {flow.index}: iperf3"
    if flow.on_ns is not None or flow.arrivals != "cbr":
        raise ParameterError(f"{where} supports no pauses and no Poisson arrivals")
    if flow.cca == "dctcp":
        raise ParameterError(f"{where} cannot set dctcp on a listening server")
    if flow.max_window_bytes is not None:
        raise ParameterError(f"{where} cannot limit the receive window: omit max_window")
    out = ["-B", flow.source_address, "--cport", str(flow.source_port), "-i", f"{sample_ns / 1e9:g}"]
    if flow.is_udp:
        out += ["-u", "-l", str(flow.payload_bytes), "-S", str(flow.tos)]
    else:
        out += ["-C", flow.cca, "-M", str(flow.payload_bytes + 12)]
    if flow.rate_bps is not None:
        out += ["-b", str(round(flow.rate_bps * flow.payload_bytes / flow.packet_bytes))]
    if flow.bytes is not None:
        return [*out, "-n", str(flow.bytes)]
    end_ns = round(plan.scenario.duration_s * 1e9) if flow.stop_ns is None else flow.stop_ns
    seconds = (end_ns - flow.start_ns) / 1e9
    if seconds != round(seconds) or seconds < 1:
        raise ParameterError(f"{where} needs a duration in whole seconds, not {seconds:g} s")
    return [*out, "-t", str(round(seconds))]


def iperf3_results(raw: Path, plan: Plan, results: TrafficResults) -> TrafficResults:
    """Results of the traffic program, with flows and series from the reports of iperf3.

    Raises
    ------
    TestbedError
        iperf3 failed, or a report of it is missing or damaged.
    """
    flows, series = [], []
    for flow in plan.flows:
        try:
            report = read_json(raw / f"iperf3.{flow.index}")
        except SchemaError:
            raise TestbedError(f"flow {flow.index}: iperf3 left no report") from None
        if report.get("error"):
            raise TestbedError(f"flow {flow.index}: iperf3: {report['error']}")
        try:
            flows.append(_flow(flow, report, results.start_ns))
            series += _rows(flow, report, results)
        except (AttributeError, IndexError, KeyError, TypeError):
            raise TestbedError(f"flow {flow.index}: iperf3's report is damaged") from None
    table = pd.DataFrame(flows)
    numbers = [name for name in table if name not in ("index", "cca", "error")]
    sampled = results.series.iloc[:0]  # iperf3 says nothing of the state of UDP
    if series:
        sampled = pd.DataFrame(series, columns=sampled.columns)
        sampled = sampled.sort_values(["ts_ns", "index"], ignore_index=True)
    return results._replace(flows=table.astype(dict.fromkeys(numbers, "Int64")), series=sampled)


def _flow(flow: TrafficFlow, report: dict[str, Any], start_ns: int) -> dict[str, Any]:
    stream = report["end"]["streams"][0]
    began = start_ns + flow.start_ns
    row: dict[str, Any] = dict.fromkeys(
        ("established_ns", "finished_ns", "acked_bytes", "sent_packets", "received_packets", "retransmits", "timeouts",
         "min_rtt_us", "rtt_us", "delivered_ce")
    )  # fmt: skip
    row |= {"index": flow.index, "cca": "udp", "start_ns": began, "error": ""}
    if flow.is_udp:
        udp = stream["udp"]
        arrived = udp["packets"] - udp["lost_packets"]
        row |= {"written_bytes": udp["bytes"], "received_bytes": arrived * flow.payload_bytes}
        return row | {"sent_packets": udp["packets"], "received_packets": arrived}
    sender, arrived = stream["sender"], stream["receiver"]["bytes"]
    row |= {"cca": report["end"].get("sender_tcp_congestion", flow.cca), "written_bytes": sender["bytes"]}
    row |= {"acked_bytes": arrived, "received_bytes": arrived, "retransmits": sender["retransmits"]}
    return row | {"min_rtt_us": sender["min_rtt"], "rtt_us": sender["mean_rtt"]}


def _rows(flow: TrafficFlow, report: dict[str, Any], results: TrafficResults) -> list[dict[str, Any]]:
    if flow.is_udp:
        return []
    rows: list[dict[str, Any]] = []
    sent = retransmits = 0
    for interval in report["intervals"]:
        s = interval["streams"][0]
        sent += s["bytes"]
        retransmits += s["retransmits"]
        rows.append(
            dict.fromkeys(results.series.columns, 0)
            | {
                "ts_ns": results.start_ns + flow.start_ns + round(s["end"] * 1e9),
                "index": flow.index,
                "cwnd_packets": s["snd_cwnd"] // flow.payload_bytes,
                "ssthresh_packets": np.nan,
                "pacing_bps": np.nan,
                "delivery_bps": s["bits_per_second"],
                "rtt_us": s["rtt"],
                "rttvar_us": s["rttvar"],
                "min_rtt_us": None,
                "bytes_acked": np.nan,
                "bytes_sent": sent,
                "retransmits": retransmits,
                "mss_bytes": flow.payload_bytes,
                "ca_state": None,
            }
        )
    return rows
