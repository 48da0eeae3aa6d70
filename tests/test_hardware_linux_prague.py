"""TCP Prague of hardware/linux: its integers beside real numbers, and beside the simulator's Prague ACK by ACK."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
from cca_driver import Driver
from hypothesis import given, settings, strategies as st

from cctoolkit.cca.prague import Prague

HERE = Path(__file__).parent
MODULE = HERE.parent / "hardware" / "linux" / "prague"
MS = 1_000_000
ALPHA, PACKET = 2**20, 2**32

WINDOWS = st.floats(2, 1e6).map(lambda packets: int(packets * PACKET))
ALPHAS = st.integers(0, ALPHA)


@pytest.fixture(scope="module")
def prague(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("cc is not on PATH")
    path = tmp_path_factory.mktemp("prague") / "prague.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{MODULE}", "-o", path]
    subprocess.run([*command, HERE / "linux_prague.c"], check=True)
    library = ctypes.CDLL(str(path))
    u32, u64 = ctypes.c_uint32, ctypes.c_uint64
    for name, result, *arguments in (
        ("alpha", u32, u32, u32, u32, u32),
        ("reduced", u64, u64, u32),
        ("increase", u64, u64, u32, u32, u32),
        ("rate", u64, u64, u32, u32),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@given(
    old=ALPHAS, marked=st.integers(0, 2**32 - 1), acked=st.integers(0, 2**32 - 1), shift=st.integers(0, 10)
)
def test_alpha(prague, old, marked, acked, shift):
    new = prague.alpha(old, marked, acked, shift)
    if acked == 0:
        assert new == old
        return
    share = min(marked / acked, 1) * ALPHA
    assert 0 <= new <= ALPHA
    assert new == pytest.approx(old + (share - old) / 2**shift, abs=1 + 2**-shift)


@given(window=WINDOWS, alpha=ALPHAS)
def test_reduction(prague, window, alpha):
    # within a thousandth of a packet, and never below two
    expected = max(window * (1 - alpha / ALPHA / 2), 2 * PACKET)
    assert prague.reduced(window, alpha) == pytest.approx(expected, abs=PACKET / 1000)


@given(
    window=WINDOWS,
    unmarked=st.integers(0, 1000),
    rtt_us=st.integers(1, 10**6),
    virtual_rtt_us=st.integers(0, 10**6),
)
def test_increase(prague, window, unmarked, rtt_us, virtual_rtt_us):
    ratio = min(rtt_us / virtual_rtt_us, 1) if virtual_rtt_us else 1
    packets = unmarked / (window / PACKET) * ratio**2
    # the ratio has 16 bits, the increase by one packet 32; the window loses less than a 10,000th
    increase = prague.increase(window, unmarked, rtt_us, virtual_rtt_us) / PACKET
    assert abs(increase - packets) <= packets * (2.1 * 2**-16 / ratio + 1e-4) + unmarked / PACKET


@given(window=WINDOWS, packet_bytes=st.integers(500, 9000), srtt_us=st.integers(8, 8 * 10**7))
def test_rate(prague, window, packet_bytes, srtt_us):
    expected = window / PACKET * packet_bytes / (srtt_us / 8e6)
    assert abs(prague.rate(window, packet_bytes, srtt_us) - expected) <= expected * 2**-15 + 1


@settings(deadline=None, max_examples=30)
@given(
    rtt_ms=st.sampled_from([2, 10, 20, 25, 40]),
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=30, max_size=200),
)
def test_ack_by_ack_like_the_simulators(prague, rtt_ms, steps):
    """The same ACKs: the module's functions in the order of its cong_control, and the simulator's class."""
    driver = Driver(Prague(), rtt_ms=rtt_ms, window=40)
    driver.flow.ssthresh = 10.0  # out of slow start
    driver.flow.cwnd_limited = True
    window, alpha = 40 * PACKET, ALPHA
    acked_in_round = marked_in_round = 0
    saw_mark, updated_ns, reduced_ns = False, driver.now_ns, None
    for acked, marked in steps:
        driver.send()
        before = int(driver.flow.delivered)
        driver.step(3 * MS, rtt_ms * MS, acked, 0, min(marked, acked))
        acked = int(driver.flow.delivered) - before
        marked = int(driver.ack.marked)
        if acked == 0:
            continue
        period_ns = max(rtt_ms, 25) * MS
        acked_in_round, marked_in_round = acked_in_round + acked, marked_in_round + marked
        saw_mark = saw_mark or marked > 0
        if driver.now_ns - updated_ns >= period_ns:
            if saw_mark:
                alpha = prague.alpha(alpha, marked_in_round, acked_in_round, 4)
            acked_in_round = marked_in_round = 0
            updated_ns = driver.now_ns
        window += prague.increase(window, acked - marked, 1000 * rtt_ms, 25_000)
        if marked and (reduced_ns is None or driver.now_ns - reduced_ns >= period_ns):
            reduced_ns = driver.now_ns
            window = prague.reduced(window, alpha)
        assert alpha / ALPHA == pytest.approx(driver.state.alpha, abs=1e-4)
        assert window / PACKET == pytest.approx(driver.flow.cwnd - driver.state.gap, rel=1e-3)
