"""Memory of a simulation without recording: for the packets in flight, not for those that were sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc"
)

CODE = """if True:
    import sys, cctoolkit as cct

    def peak():  # KiB; not ru_maxrss: that starts at the size of the process that started this one
        return next(int(row.split()[1]) for row in open("/proc/self/status") if row.startswith("VmHWM"))

    def simulated(duration_s, initial_window, rtt_ms):
        scenario = cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=1000, buffer_packets=10**6),
            flows=[cct.Flow("reno", rtt_ms=rtt_ms, initial_window=initial_window, max_window=initial_window)],
            duration_s=duration_s,
        )
        return int(cct.simulate(scenario, record=False, sample_s=None).queues.sent_packets[0])

    simulated(1, 200, 2)  # whatever is compiled and imported is now there
    before = peak()
    sent = simulated(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:]))
    print(sent, peak() - before)
"""


def grown_kib(duration_s: float, window: int, rtt_ms: int) -> tuple[int, int]:
    """Packets sent, and the peak of memory above that of a small run."""
    arguments = [str(x) for x in (duration_s, window, rtt_ms)]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True
    )
    sent, kib = map(int, done.stdout.split())
    return sent, kib


@pytest.mark.slow
def test_packets_that_were_sent_leave_nothing_behind():
    """Ten million packets of which 200 are in flight: half a byte for each would be noticed."""
    sent, kib = grown_kib(120, 200, 2)
    assert sent > 9_000_000
    assert kib < 4096


@pytest.mark.slow
def test_packets_in_flight_are_what_memory_is_for():
    """All at once: four times the packets, four times the memory; pools double, so within a factor of two."""
    small, large = (grown_kib(3, window, 1000)[1] for window in (100_000, 400_000))
    assert 2 < large / small < 8
    assert 50 < large * 1024 / 400_000 < 800
