"""How time and memory grow with packets, flows and cores, beside tshark and dpkt.

Each measurement is a process of its own, imports included, since that is what a user waits for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import cctoolkit as cct

from .decode import tshark_command
from .inputs import many_flows, mawi_like
from .measure import Timing, line

#: What would take longer than this is not run: the other tools with the largest inputs.
LIMIT_S = 60
RUNS = 3
ROOT = Path(__file__).parents[1]

#: Starts a command and reports its wall time, CPU time and peak memory. The peak of a process starts at the size of the
#: one that started it, so that must be a small one.
_LAUNCHER = """
import os, sys, time
began = time.perf_counter()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(child, 0)
wall = time.perf_counter() - began
print(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def simulated(packets: int, flows: int) -> None:
    """Simulate CUBIC flows through 10 Gbit/s for so many packets."""
    duration_s = packets * 1514 * 8 / 10e9
    cct.simulate(
        cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=10_000, buffer_packets=20_000),
            flows=[cct.Flow("cubic", rtt_ms=20, start_s=i * duration_s / 10 / flows) for i in range(flows)],
            duration_s=duration_s,
        ),
        record=False,
        sample_s=None,
    )


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _tools() -> dict[str, Callable[[Path], list[str]]]:
    """Commands that read a capture, by name; those that are installed."""
    tools = {
        "cct info": lambda path: [sys.executable, "-m", "cctoolkit.cli", "info", str(path)],
        "read_capture": lambda path: _python(f"import cctoolkit; cctoolkit.read_capture({str(path)!r})"),
        "dpkt": lambda path: [sys.executable, "benchmarks/dpkt_loop.py", str(path)],
    }
    if shutil.which("tshark"):
        tools["tshark"] = tshark_command
    return tools


class _Table:
    """Collects measurements."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.rows: list[dict[str, Any]] = []

    def add(
        self, axis: str, what: str, command: list[str], packets: int, flows: int | None, cores: int
    ) -> float:
        """Measure a command; return its median wall time in s."""
        found: list[tuple[float, ...]] = []
        for _ in range(self.runs):
            done = subprocess.run(
                [sys.executable, "-S", "-c", _LAUNCHER, *command],
                cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            found.append(tuple(map(float, done.stderr.splitlines()[-1].split())))
        wall, cpu, memory = map(list, zip(*found, strict=True))
        given = {"packets": packets, "flows": flows, "cores": cores}
        # the axis says what was varied, so that each name is one measurement
        name = f"{what} by {axis}" + ("" if axis == "packets" else f": {given[axis]:,}")
        timing = Timing(wall, cpu)
        line(name, timing, packets, "packets", memory_mb=max(memory))
        self.rows.append(
            {
                "axis": axis,
                "what": what,
                **given,
                "runs": self.runs,
                "wall_s": statistics.median(wall),
                "cpu_s": statistics.median(cpu),
                "memory_mb": max(memory),
            }
        )
        return timing.median_s


@contextlib.contextmanager
def _cores(n: int) -> Iterator[None]:
    """Let what is started meanwhile use `n` cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(n))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _powers(most: int, smallest: int) -> list[int]:
    """Powers of ten from `smallest` to `most`."""
    sizes = [smallest]
    while sizes[-1] * 10 <= most:
        sizes.append(sizes[-1] * 10)
    return sizes


def run(directory: Path, packets: int | None, repeat: int) -> dict[str, pd.DataFrame]:
    most = packets or 10_000_000
    table = _Table(min(repeat, RUNS))
    tools = _tools()
    smallest = mawi_like(directory, 10_000)
    for command in tools.values():  # whatever is compiled is compiled now
        subprocess.run(
            command(smallest), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
        )
    simulated(10_000, 10)

    sizes = _powers(most, 10_000)
    for what, command in tools.items():
        for size in sizes:
            took = table.add("packets", what, command(mawi_like(directory, size)), size, None, 1)
            if 10 * took > LIMIT_S:
                break
    for size in sizes:
        table.add("packets", "simulate", _simulate(size, 10), size, 10, 1)

    ours = {"cct info": tools["cct info"], "read_capture": tools["read_capture"]}
    for flows in _powers(most, 10):
        path = many_flows(directory, most, flows)
        for what, command in ours.items():
            table.add("flows", what, command(path), most, flows, 1)
        path.unlink()  # gigabytes in all
    fixed = most // 10
    for flows in _powers(min(fixed, 10_000), 10):
        table.add("flows", "simulate", _simulate(fixed, flows), fixed, flows, 1)

    for cores in range(1, (os.cpu_count() or 1) + 1):
        with _cores(cores):
            for what, command in ours.items():
                table.add("cores", what, command(mawi_like(directory, most)), most, None, cores)
    return {"growth": pd.DataFrame(table.rows).astype({"flows": "Int64"})}


def _simulate(packets: int, flows: int) -> list[str]:
    return _python(f"from benchmarks.growth import simulated; simulated({packets}, {flows})")
