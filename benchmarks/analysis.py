"""The whole analysis of a capture: decode, flows, RTTs, statistics, slots; page faults and all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import cctoolkit as cct
from cctoolkit.capture.keys import AllKeys

from .inputs import mawi_like
from .measure import line, measure, two_cores

SMALL = 100_000


def analyse(path: Path) -> tuple[int, int, int]:
    """Flows, RTT samples and slots of the ten largest TCP flows."""
    cap = cct.read_capture(path)
    flows = cap.flows
    rtt = cct.rtt_samples(cap)
    tcp = flows[flows["protocol"] == 6]
    largest = tcp.nlargest(10, "payload_fwd")["flow_id"]
    slots = cct.compute_slots(cap, slot_ms=100, flow_ids=largest)
    return len(flows), len(rtt), len(slots)


def analyse_parts(path: Path) -> int:
    """Flows and RTT samples, part by part; with a second core, the next part is read meanwhile."""
    statistics, pairing, keys = cct.FlowStatistics(), cct.RttPairing(), AllKeys()
    samples = 0
    for part in cct.iter_capture(path, 250_000, ahead=True):
        statistics.update(part)
        samples += len(pairing.update(part.columns)["ts_ns"])
        keys.add(part.keys)
    return samples + len(statistics.result(keys.all()))


def tshark(path: Path) -> None:
    fields = "frame.time_epoch ip.src ip.dst tcp.stream tcp.seq_raw tcp.ack_raw tcp.flags tcp.len"
    fields += " tcp.analysis.ack_rtt tcp.analysis.retransmission tcp.analysis.out_of_order tcp.analysis.bytes_in_flight"
    command = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    for field in fields.split():
        command += ["-e", field]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _steps(cap: cct.Capture, runs: int) -> None:
    line("flow_table", measure(lambda: cct.flow_table(cap.columns, cap.keys), runs), len(cap), "packets")
    line("rtt_samples", measure(lambda: cct.rtt_samples(cap), runs), len(cap), "packets")


def run(directory: Path, packets: int | None, repeat: int) -> None:
    packets = packets or 10_000_000
    small = mawi_like(directory, SMALL)
    analyse(small)
    path = mawi_like(directory, packets)
    runs = max(repeat // 2, 3)
    line("read_capture", measure(lambda: cct.read_capture(path), runs), packets, "packets")
    _steps(cct.read_capture(path), runs)
    whole = line("all of it, and slots", measure(lambda: analyse(path), runs), packets, "packets")
    if (os.cpu_count() or 1) > 1:
        with two_cores():
            parts = measure(lambda: analyse_parts(path), runs)
        line("flows and RTTs, part by part, two cores", parts, packets, "packets")
    if shutil.which("tshark"):
        slow = measure(lambda: tshark(small), 2)
        line("tshark, the same fields", slow, SMALL, "packets", whole, reference_count=packets)
