"""The per-slot table of two taps (the Dragonfly paper: 140 s for 5 million packets in Python)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import cctoolkit as cct
from cctoolkit.schema import PACKETS

from .measure import line, measure

FLOWS = 4
LINE_RATE_BYTES_PER_NS = 1.25  # 10 Gbit/s


def two_taps(packets: int, queue_ns: int = 5_000_000) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Full-sized segments of a few flows in turn at 10 Gbit/s, seen before and after a queue."""
    ingress = {name: np.zeros(packets, dtype) for name, dtype in PACKETS.items()}
    row = np.arange(packets)
    ingress["ts_ns"][:] = 1_700_000_000_000_000_000 + row * round(1514 / LINE_RATE_BYTES_PER_NS)
    ingress["flow_id"][:] = row % FLOWS
    ingress["seq"][:] = (row // FLOWS) * 1448 % 2**32
    ingress["tcp_flags"][:] = 16
    ingress["payload_bytes"][:] = 1448
    ingress["wire_bytes"][:] = 1514
    ingress["has_ts"][:] = True
    ingress["tsval"][:] = row // 1000
    egress = {name: column.copy() for name, column in ingress.items()}
    egress["ts_ns"] += queue_ns
    return ingress, egress


def run(directory: Path, packets: int | None, repeat: int) -> None:
    packets = packets or 5_000_000
    ingress, egress = two_taps(packets // 2)
    cct.compute_slots(ingress, egress)
    for sampling in ("all", "first"):
        timing = measure(lambda s=sampling: cct.compute_slots(ingress, egress, sampling=s), repeat)  # type: ignore[misc]
        line(f"two taps, {FLOWS} flows, slots of 1 ms, sampling {sampling}", timing, packets, "packets")
    one = measure(lambda: cct.compute_slots(ingress), repeat)
    line("one tap", one, packets // 2, "packets")
