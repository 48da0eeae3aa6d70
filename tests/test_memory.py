"""Memory: bounded by flow, and a line before it runs out. Each runs in a process of its own, whose peak counts."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cctoolkit as cct
from cctoolkit._support import memory
from cctoolkit.errors import CCToolkitError

linux = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc"
)

PEAK = """if True:
    import resource, sys
    import cctoolkit as cct
    import cctoolkit.errors
    from cctoolkit.report.summary import summarise

    def status(name):
        return next(int(row.split()[1]) * 1024 for row in open("/proc/self/status") if row.startswith(name))

    def scenario(flows):
        return cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=1000, buffer_packets=100),
            flows=[cct.Flow("cubic", count=flows)], duration_s=0.01,
        )

    def simulated(flows):
        return len(cct.simulate(scenario(int(flows)), record=False, sample_s=None).flows)

    def info(path):
        return len(summarise(path).flows)

    def flows(path):
        return len(cct.read_capture(path).flows)

    run = globals()[sys.argv[1]]
    run(sys.argv[2])  # whatever is compiled and imported is now there
    if sys.argv[4:]:
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + int(sys.argv[4]),) * 2)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew: compiling may have taken more than what is measured
    before = status("VmRSS")
    try:
        print(run(sys.argv[3]), status("VmHWM") - before)
    except cct.errors.CCToolkitError as err:
        print(err)
"""


def capture_of(path: Path, flows: int) -> Path:
    """A capture with this many flows of one UDP packet."""
    i = np.arange(flows)
    frames = np.zeros((flows, 16 + 42), np.uint8)
    frames[:, :16] = np.stack([i // 10**6, i % 10**6, i * 0 + 42, i * 0 + 42], 1).astype("<u4").view(np.uint8)
    frames[:, 28] = 8  # Ethernet with IPv4
    ip = frames[:, 30:]
    ip[:, [0, 3, 8, 9, 12]] = 0x45, 28, 64, 17, 10
    ip[:, 13:16] = np.stack([i >> 16, i >> 8, i], 1) & 255
    ip[:, [16, 17, 20, 23, 25]] = 192, 168, 4, 53, 8
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    path.write_bytes(header + frames.tobytes())
    return path


def measured(what: str, warm: object, real: object, *limit: int) -> str:
    words = [str(x) for x in (what, warm, real, *limit)]
    done = subprocess.run([sys.executable, "-c", PEAK, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@linux
@pytest.mark.slow
@pytest.mark.parametrize("what", ["info", "flows"])
def test_bytes_of_a_flow_of_a_capture(what, tmp_path):
    """Reader, statistics and table together, and a capture that is read whole has its packets besides."""
    flows = 1_000_000
    small, large = (capture_of(tmp_path / f"{n}.pcap", n) for n in (1000, flows))
    found, peak = map(int, measured(what, small, large).split())
    assert found == flows
    assert peak / flows < 560


@linux
@pytest.mark.slow
def test_bytes_of_a_flow_of_a_simulation():
    found, peak = map(int, measured("simulated", 100, 50_000).split())
    assert found == 50_000
    assert peak / found < 3500


@linux
@pytest.mark.slow
def test_what_does_not_fit_is_refused_before(tmp_path):
    small, large = (capture_of(tmp_path / f"{n}.pcap", n) for n in (1000, 1_000_000))
    messages = [
        measured("simulated", 100, 1_000_000, 1 << 30),
        measured(
            "info", small, large, 720 << 20
        ),  # of addresses: a thread reserves a hundred megabytes of them
    ]
    for text, what in zip(messages, ("a simulation of 1,000,000 flows", "a table of "), strict=True):
        assert text.startswith(f"not enough memory: {what}") and "are available" in text and "\n" not in text


def test_a_series_that_does_not_fit_is_refused_before():
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=1, buffer_packets=5), flows=[cct.Flow(count=1000)], duration_s=1e6
    )
    with pytest.raises(CCToolkitError, match="a series of 1,000,000,000,000 samples of 1,000 flows"):
        cct.simulate(scenario, sample_s=1e-6)


def test_the_smallest_limit_counts(monkeypatch):
    monkeypatch.setattr(memory, "_left_in_group", lambda: 1 << 30)
    monkeypatch.setattr(memory, "_left_of_limit", lambda: 1 << 27)
    assert memory.available_bytes() <= 1 << 27
    memory.require(1 << 26, "this", "do less")
    with pytest.raises(CCToolkitError, match=r"this needs about 268 MB, 134 MB are available; do less"):
        memory.require(1 << 28, "this", "do less")
