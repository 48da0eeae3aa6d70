"""`cct report` on a MAWI-like capture: time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .inputs import mawi_like


def run(directory: Path, packets: int | None, repeat: int) -> None:
    packets = packets or 20_000_000
    path = mawi_like(directory, packets, ".pcap.gz")
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # decompression has a thread of its own
    code = (
        "import resource, sys, time; from cctoolkit.report.page import report; t = time.perf_counter();"
        " report(sys.argv[1], sys.argv[2]); s = time.perf_counter() - t;"
        " print(s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    for _ in range(2):  # the first run may compile
        command = [sys.executable, "-c", code, str(path), str(directory / "report.html")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split())
    print(
        f"  {packets} packets as pcap.gz: {seconds:.1f} s "
        f"({packets / seconds / 1e6:.2f} M packets/s), {megabytes:.0f} MB of memory"
    )
