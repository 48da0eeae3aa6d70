"""The Linux forms decide as the kernel's own C code did, packet by packet.

``kernel_aqm.json`` holds what that code did with the packets of :func:`workload`: it was compiled in user space, with a
clock of nanoseconds and SplitMix64 for random numbers, from Linux 6.12 (``codel_impl.h``, ``sch_pie.c``, ``red.h``) and
6.17's ``sch_dualpi2.c`` (low latency queue served first). One queue of 100 Mbit/s, room for 400 packets.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from one_queue import Compiled, Link, packet

from cctoolkit.aqm import CoDel, LinuxCoDel, LinuxDualPi2, LinuxPie, Pie, Red

KERNEL = json.loads((Path(__file__).parent / "kernel_aqm.json").read_text())
LIMIT = 400


def workload(codepoints, count=18_000):
    """Bursts of packets at 60 to 250 percent of 100 Mbit/s in turns; the same for ever."""
    at, packets = [], []
    now, x = 10**9, 12345
    for percent in (120, 105, 60, 250, 95, 130):
        for _ in range(count // 6):
            x = (1103515245 * x + 12345) % 2**31
            size = 1514 if x >> 16 & 3 else 590
            now += 1 + (size * 80 * 100 // percent * 4 if x >> 20 & 3 == 0 else 0)
            at.append(now)
            packets.append(packet(size=size, ecn=codepoints[(x >> 24) % len(codepoints)], flow=len(packets)))
    return np.array(at), packets


class Fates(Link):
    """Remembers what became of each packet."""

    def __init__(self, compiled, **options):
        super().__init__(compiled, None, limit=LIMIT, **options)
        self.fates = {"drop": [], "mark": []}

    def _fate(self, verdict, pk):
        before = pk["ecn"][0]
        fate = super()._fate(verdict, pk)
        if fate == "drop" or (fate == "mark" and before != 3):
            self.fates[fate].append(int(pk["flow"][0]))
        return fate


class OneStream(Compiled):
    """All queues draw from one stream of random numbers, as in the kernel."""

    def call(self, event, q, packet, now_ns):
        verdict = super().call(event, q, packet, now_ns)
        self.queues["rng"] = self.queues["rng"][q]
        return verdict


def fates(aqm, want, queues=1, **options):
    link = Fates(OneStream(aqm, queues=queues, seed=1), **options)
    link.run(*workload(want["codepoints"], want["packets"]))
    return {fate: sorted(numbers) for fate, numbers in link.fates.items()}


def test_the_workload_is_the_kernels():
    at, packets = workload((0,))
    assert [len(at), int(at[-1]), sum(int(p["bytes"][0]) for p in packets)] == KERNEL["workload"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["codel", "codel fast ecn"])
def test_codel(case):
    want = KERNEL[case]
    aqm = LinuxCoDel(target_ms=want["target_ms"], interval_ms=want["interval_ms"])
    assert fates(aqm, want) == want["fates"]
    assert len(want["fates"]["drop"]) > 10
    rfc = CoDel(target_ms=want["target_ms"], interval_ms=want["interval_ms"])
    assert fates(rfc, want) != want["fates"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pie", "pie fast ecn"])
def test_pie(case):
    want = KERNEL[case]
    times = {"target_ms": want["target_ms"], "update_ms": want["update_ms"]}
    assert fates(LinuxPie(**times), want) == want["fates"]
    assert len(want["fates"]["drop"]) > 10
    assert fates(Pie(**times), want) != want["fates"]


@pytest.mark.parametrize("case", ["dualpi2", "dualpi2 overflow"])
def test_dualpi2(case):
    want = KERNEL[case]
    aqm = LinuxDualPi2(
        target_ms=want["target_ms"], update_ms=want["update_ms"], alpha=want["alpha"], beta=want["beta"],
        drop_overload=want["drop_overload"], min_backlog_packets=want["min_qlen_step"],
    )  # fmt: skip
    choose = lambda pk: 0 if pk["ecn"][0] % 2 else 1  # noqa: E731
    assert fates(aqm, want, queues=2, choose=choose) == want["fates"]
    assert len(want["fates"]["mark"]) > 1000


def test_red_average():
    """While the queue is never empty the average is Linux's (bytes, binary fractions), if packets are equal."""
    want = KERNEL["red"]
    red = Compiled(Red(weight=2.0**-9, gentle=False, min_packets=5, max_packets=15))
    red.queues["packets"] = 1
    got = []
    for queue in want["queue_packets"]:
        red.queues["packets"] = queue
        red.call("on_enqueue", 0, packet(ecn=2), 0)
        got.append(red.state("average"))
    assert np.array(got) == pytest.approx(np.array(want["average_packets"]), abs=0.01)


def test_red_gaps_are_one_shorter_than_linux():
    """At an average of 10 with thresholds of 5 and 15: p = 0.05."""
    want = KERNEL["red"]
    red = Compiled(Red(weight=1.0))
    red.queues["packets"] = 10
    marks = np.flatnonzero([red.call("on_enqueue", 0, packet(ecn=2), t) for t in range(20_000)])
    gaps = np.diff(marks)
    assert [want["gap_min"], want["gap_max"]] == [1, 20]
    assert [gaps.min(), gaps.max()] == [1, 19]
    assert gaps.mean() == pytest.approx(want["gap_mean"] - 0.5, abs=0.3)
