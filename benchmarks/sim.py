"""The simulator: packets through the bottleneck a second (aims: 4 M CoDel, 5 M both taps, 1 M with 10 000 flows)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cctoolkit as cct

from .measure import Timing, line, measure


def _fill(
    flows: list[cct.Flow], rate_mbps: float, buffer_packets: int, duration_s: float, aqm: object
) -> cct.Scenario:
    bottleneck = cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=buffer_packets, aqm=aqm)
    return cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=duration_s)


def _codel(packets: int) -> cct.Scenario:
    """4 CUBIC flows through CoDel at 1 Gbit/s, long enough for so many packets."""
    return _fill([cct.Flow("cubic", rtt_ms=20, count=4)], 1000, 5000, packets * 1514 * 8 / 1e9, "codel")


def _many(packets: int, share: float) -> cct.Scenario:
    """6000 finite flows at 10 Gbit/s that start one after another, `share` of the link's rate offered."""
    flows, size = 6000, max(packets // 6000, 1) * 1448
    apart_s = size * 1514 / 1448 * 8 / (share * 10e9)
    each = [cct.Flow("cubic", rtt_ms=20, bytes=size, start_s=i * apart_s) for i in range(flows)]
    return _fill(each, 10_000, 20_000, flows * apart_s * max(share, 1) + 2, "tail_drop")


def _long(packets: int) -> cct.Scenario:
    """10 000 flows at 10 Gbit/s that all send to the end."""
    flows, duration_s = 10_000, packets * 1514 * 8 / 10e9
    each = [cct.Flow("cubic", rtt_ms=20, start_s=i * duration_s / 3 / flows) for i in range(flows)]
    return _fill(each, 10_000, 20_000, duration_s, "tail_drop")


def _sent(run: cct.Run) -> int:
    return int(run.queues.sent_packets.sum())


def run(directory: Path, packets: int | None, repeat: int) -> None:
    _start(directory)
    packets = packets or 4_000_000
    for name, scenario, options in (
        ("4 CUBIC through CoDel, 1 Gbit/s, 20 ms", _codel(packets), {"record": False}),
        ("4 CUBIC through CoDel, both taps recorded", _codel(packets // 4), {"record": True}),
        ("6000 finite CUBIC, 10 Gbit/s, 20 ms, load 0.9", _many(packets, 0.9), {"record": False}),
        ("6000 finite CUBIC, thousands at a time", _many(packets, 10), {"record": False}),
        ("10 000 CUBIC at a time, 10 Gbit/s, 20 ms", _long(packets // 2), {"record": False}),
    ):
        sent = _sent(cct.simulate(scenario, sample_s=None, **options))
        timing = measure(lambda s=scenario, o=options: cct.simulate(s, sample_s=None, **o), repeat)  # type: ignore[misc]
        line(name, timing, sent, "packets")


_NEW = """
import math
from cctoolkit.aqm import MARK, PASS, Aqm

class New(Aqm):
    target_ms: float = 5.0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return MARK if math.sqrt(now_ns - packet.enqueued_ns) < p.target_ns else PASS
"""


def _start(directory: Path) -> None:
    """What is compiled when: the engine at first use, a user's algorithm each time it is new."""
    code = (
        "import cctoolkit as cct; from time import perf_counter as wall, process_time as cpu;"
        " s = cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=1, buffer_packets=9, aqm='codel'),"
        " flows=[cct.Flow('cubic')], duration_s=0.1);"
        " t, c = wall(), cpu(); cct.simulate(s); print(wall() - t, cpu() - c)"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(directory / "numba")}
    for name in ("first simulation, nothing compiled before", "first simulation of a process, cached"):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        wall, cpu = map(float, done.stdout.split())
        line(name, Timing([wall], [cpu]), 1, "")

    scope: dict[str, Any] = {}
    exec(_NEW, scope)  # in no file, so in no cache
    line("compiling a new AQM", measure(lambda: scope["New"]().addresses(), 1), 1, "")
