"""The simulator beside ns-3, where that is installed: one dumbbell, what comes out and how fast (aim: 300 times)."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd

import cctoolkit as cct
from cctoolkit.sim.simulation import Simulation

from .measure import Timing, line, measure

FLOWS, RTT_MS, BUFFER_PACKETS = 4, 20, 5000
_MODULES = ["ns3-internet", "ns3-point-to-point", "ns3-applications", "ns3-traffic-control"]


def scenario(rate_mbps: float, duration_s: float) -> cct.Scenario:
    """4 CUBIC flows through CoDel; ns3_dumbbell.cc says the same."""
    return cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=BUFFER_PACKETS, aqm="codel"),
        flows=[cct.Flow("cubic", rtt_ms=RTT_MS, count=FLOWS)],
        duration_s=duration_s,
    )


def built(directory: Path) -> Path | str:
    """The compiled program, or why there is none."""
    compiler = shutil.which("c++")
    if compiler is None or shutil.which("pkg-config") is None:
        return "no C++ compiler or no pkg-config"
    flags = []
    for what in ("--cflags", "--libs"):
        found = subprocess.run(["pkg-config", what, *_MODULES], capture_output=True, text=True, check=False)
        if found.returncode:
            return "not installed (Debian: libns3-dev)"
        flags.append(shlex.split(found.stdout))
    # Debian names libraries that ns-3 was linked with by path, and does not depend on their packages
    libraries = [flag for flag in flags[1] if flag.startswith("-")]
    program = directory / "ns3_dumbbell"
    source = Path(__file__).with_name("ns3_dumbbell.cc")
    done = subprocess.run(
        [compiler, "-O2", "-std=c++17", *flags[0], "-o", program, source, *libraries],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"does not compile: {done.stderr.splitlines()[0]}" if done.returncode else program


def run(directory: Path, packets: int | None, repeat: int) -> dict[str, pd.DataFrame]:
    program = built(directory)
    if isinstance(program, str):
        print(f"  ns-3: {program}")
        return {}
    packets = packets or 200_000
    rows: list[dict[str, Any]] = []
    for rate_mbps, wanted in ((1000, packets), (100, packets // 2)):
        spec = scenario(rate_mbps, round(wanted * 1514 * 8e-6 / rate_mbps, 3))
        rows += _side_by_side(program, spec, repeat)
    return {"ns3": pd.DataFrame(rows)}


def _side_by_side(program: Path, spec: cct.Scenario, repeat: int) -> list[dict[str, Any]]:
    """Time both; what came out of each."""
    rate_mbps, duration_s = spec.bottleneck.rate_mbps, spec.duration_s
    command = [program, rate_mbps, RTT_MS, BUFFER_PACKETS, FLOWS, duration_s]
    wall, cpu, theirs = [], [], []
    for _ in range(repeat):
        done = subprocess.run([str(x) for x in command], capture_output=True, text=True, check=True)
        theirs = [float(x) for x in done.stdout.split()]
        cpu.append(theirs[1])
        wall.append(theirs[2])
    ours = cct.simulate(spec, record=False, sample_s=None)
    (queue,) = ours.queues.itertuples()
    made = [Simulation(spec, sample_s=None) for _ in range(repeat)]
    timing = measure(lambda: made.pop().run(), repeat)
    whole = measure(lambda: cct.simulate(spec, record=False, sample_s=None), repeat)
    reference = Timing(wall, cpu)
    name, sent = f"{rate_mbps:g} Mbit/s, {duration_s:g} s", int(theirs[0])
    line(f"{name}: ns-3", reference, sent, "packets")
    for what, ours_timed in (("neither's set-up counted", timing), ("with set-up and result", whole)):
        what = f"{name}: the simulator, {what}"
        line(what, ours_timed, queue.sent_packets, "packets", reference, reference_count=sent)
    dropped = queue.dropped_full + queue.dropped_dequeue
    goodput = ours.flows.received_bytes.sum() * 8e-6 / duration_s
    rows = []
    for who, sent_packets, mbps, ms, drops in (
        ("ns-3", theirs[0], theirs[3], theirs[4], theirs[5]),
        ("the simulator", queue.sent_packets, goodput, queue.mean_delay_ms, dropped),
    ):
        print(
            f"    {who}: {sent_packets:.0f} packets, goodput {mbps:.1f} Mbit/s, queueing {ms:.2f} ms, "
            f"{drops:.0f} dropped"
        )
        rows.append(
            {
                "rate_mbps": rate_mbps,
                "duration_s": duration_s,
                "simulator": who,
                "packets": int(sent_packets),
                "goodput_mbps": mbps,
                "mean_delay_ms": ms,
                "dropped": int(drops),
            }
        )
    return rows
