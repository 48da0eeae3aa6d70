"""A capture to the packets table with flow numbers, against a C loop over libpcap, dpkt and tshark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import cctoolkit as cct

from .dpkt_loop import dpkt_loop
from .inputs import mawi_like
from .measure import Timing, line, measure, two_cores

SMALL = 100_000  # what the slow ones are measured on


def libpcap(path: Path, repeat: int, directory: Path) -> Timing | None:
    """The C loop's times, or None where it cannot be built."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("  libpcap: no C compiler")
        return None
    program = directory / "libpcap_loop"
    source = Path(__file__).with_name("libpcap_loop.c")
    built = subprocess.run(
        [compiler, "-O2", "-o", program, source, "-lpcap"], capture_output=True, text=True, check=False
    )
    if built.returncode:
        print("  libpcap: its headers are missing (Debian: libpcap-dev)")
        return None
    # the first pass brings the file into the page cache
    done = subprocess.run([program, path, str(repeat + 1)], capture_output=True, text=True, check=True)
    passes = [tuple(map(float, row.split())) for row in done.stdout.splitlines()][1:]
    return Timing([wall for wall, _ in passes], [cpu for _, cpu in passes])


def tshark_command(path: Path) -> list[str]:
    """The command that prints the same fields with tshark."""
    fields = "frame.time_epoch ip.src ip.dst tcp.stream tcp.seq_raw tcp.ack_raw tcp.flags tcp.len tcp.window_size_value"
    command = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    for field in fields.split():
        command += ["-e", field]
    return command


def tshark(path: Path) -> None:
    subprocess.run(tshark_command(path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def run(directory: Path, packets: int | None, repeat: int) -> None:
    packets = packets or 2_000_000
    path = mawi_like(directory, packets)
    small = mawi_like(directory, SMALL)

    code = f"import cctoolkit as cct; cct.read_capture({str(small)!r}); cct.read_capture({str(path)!r})"
    cold = measure(lambda: subprocess.run([sys.executable, "-c", code], check=True), repeat)
    cct.read_capture(path)  # warm
    reference = libpcap(path, repeat, directory)
    if reference is not None:
        line("C loop over libpcap (no flows, no columns)", reference, packets, "packets", reference)
    line("read_capture, warm", measure(lambda: cct.read_capture(path), repeat), packets, "packets", reference)
    if (os.cpu_count() or 1) > 1:
        with two_cores():
            shared = measure(lambda: cct.read_capture(path), repeat)
        line("read_capture, warm, two cores", shared, packets, "packets", reference)
    line("read_capture, a new process, imports included", cold, packets, "packets", reference)
    warm_parts = measure(lambda: sum(len(part) for part in cct.iter_capture(path, 250_000)), repeat)
    line("iter_capture, parts of 250 000", warm_parts, packets, "packets", reference)

    for suffix in (".pcap.gz", ".pcap.zst"):
        packed = mawi_like(directory, packets, suffix)
        timing = measure(lambda packed=packed: cct.read_capture(packed), max(repeat // 2, 1))  # type: ignore[misc]
        line(f"read_capture, {suffix}", timing, packets, "packets", reference)

    print(f"  on {SMALL} packets:")
    ours = line("read_capture, warm", measure(lambda: cct.read_capture(small), repeat), SMALL, "packets")
    line("dpkt", measure(lambda: dpkt_loop(small), 3), SMALL, "packets", ours)
    if shutil.which("tshark"):
        line("tshark -T fields", measure(lambda: tshark(small), 2), SMALL, "packets", ours)
