"""`cct report` on a MAWI-like capture: time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .inputs import mawi_like
from .measure import Timing, line


def run(directory: Path, packets: int | None, repeat: int) -> None:
    packets = packets or 20_000_000
    path = mawi_like(directory, packets, ".pcap.gz")
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # decompression has a thread of its own
    code = (
        "import resource, sys, time; from cctoolkit.report.page import report;"
        " t, c = time.perf_counter(), time.process_time(); report(sys.argv[1], sys.argv[2]);"
        " print(time.perf_counter() - t, time.process_time() - c,"
        " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    for _ in range(2):  # the first run may compile
        command = [sys.executable, "-c", code, str(path), str(directory / "report.html")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall_s, cpu_s, memory_mb = map(float, done.stdout.split())
    line(
        "cct report of a pcap.gz, all cores",
        Timing([wall_s], [cpu_s]),
        packets,
        "packets",
        memory_mb=memory_mb,
    )
