"""The traffic program in virtual time, where every packet has the time that theory says."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from test_testbed_traffic import splitmix, von_neumann
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.testbed import run_testbed
from cctoolkit.testbed.plan import make_plan

pytestmark = pytest.mark.uml


def run(
    folder: Path, *flows: cct.Flow, rate_mbps: float = 100, duration_s: float = 2.0, **bottleneck: object
) -> cct.Run:
    uml_kernel()
    link = cct.Bottleneck(**{"rate_mbps": rate_mbps, "buffer_packets": 10_000, **bottleneck})  # type: ignore[arg-type]
    return run_testbed(
        cct.Scenario(bottleneck=link, flows=flows, duration_s=duration_s, seed=5), folder / "run"
    )


def sent(done: cct.Run, flow: int) -> tuple[np.ndarray, np.ndarray]:
    """When a flow's data came to the queue (nanoseconds since the start), and its payload."""
    c = done.ingress.columns
    rows = (c["flow_id"] == flow) & (c["direction"] == 0) & (c["payload_bytes"] > 0)
    return c["ts_ns"][rows] - done.start_ns, c["payload_bytes"][rows]


@pytest.mark.slow
def test_datagrams_leave_when_they_are_due(tmp_path: Path) -> None:
    """Constant gaps, exponential gaps of the seed, and only while the application is on."""
    flows = (
        cct.Flow("udp", rate_mbps=10, rtt_ms=0, start_s=0.1),
        cct.Flow("udp", rate_mbps=10, rtt_ms=0, arrivals="poisson"),
        cct.Flow("udp", rate_mbps=10, rtt_ms=0, on_s=0.1, off_s=0.15, packet_bytes=542),
        cct.Flow("udp", rate_mbps=10, rtt_ms=0, on_s=0.05, off_s=0.05, on_off="exponential"),
        cct.Flow("udp", rate_mbps=10, rtt_ms=0, start_s=0.2, stop_s=0.7),
    )
    done = run(tmp_path, *flows)
    gap_ns = 1514 * 8 / 10e6 * 1e9

    at, size = sent(done, 0)
    assert set(size) == {1472}
    assert len(at) == int(1.9e9 / gap_ns) + 1
    assert np.abs(at - (1e8 + np.arange(len(at)) * gap_ns)).max() < 2000

    at, _ = sent(done, 1)
    numbers = splitmix(make_plan(done.scenario).flows[1].seed)
    due = np.cumsum([0.0] + [von_neumann(numbers) * gap_ns for _ in range(len(at))])
    assert len(at) == np.count_nonzero(due < 2e9)
    assert np.abs(at - due[: len(at)]).max() < 2000

    at, size = sent(done, 2)
    gap_ns = 542 * 8 / 10e6 * 1e9
    assert set(size) == {500}
    into = at % 250_000_000
    assert into.max() < 100_000_000 + 2000
    assert np.bincount(at // 250_000_000).tolist() == [int(np.ceil(1e8 / gap_ns))] * 8

    at, _ = sent(done, 3)
    numbers = splitmix(make_plan(done.scenario).flows[3].seed)
    ends = np.cumsum([von_neumann(numbers) * 5e7 for _ in range(200)])
    phases = [np.searchsorted(ends, at - late_ns, side="right") % 2 for late_ns in (0, 2000)]
    assert (np.min(phases, axis=0) == 0).all()  # even: on
    assert len(at) > 300

    at, _ = sent(done, 4)
    assert (
        at.min() >= 2e8
        and at.max() <= 7e8 + 2000
        and len(at) == int(np.ceil(0.5e9 / (1514 * 8 / 10e6 * 1e9)))
    )
    assert done.flows.received_packets.tolist() == done.flows.sent_packets.tolist()


@pytest.mark.slow
def test_tcp_that_writes_at_a_rate_sends_whole_packets_evenly(tmp_path: Path) -> None:
    flows = (
        cct.Flow("cubic", rate_mbps=5, rtt_ms=20),
        cct.Flow("reno", rate_mbps=5, rtt_ms=20, on_s=0.5, off_s=0.5, packet_bytes=800),
        cct.Flow("reno", rtt_ms=20, bytes=100_001, packet_bytes=800, start_s=0.5),
    )
    done = run(tmp_path, *flows, rate_mbps=50)
    at, size = sent(done, 0)
    gap_ns = 1514 * 8 / 5e6 * 1e9
    assert set(size) == {1448}
    assert np.abs(np.diff(at) - gap_ns).max() < 300_000  # the others are in its way for a packet or two
    assert len(at) == pytest.approx((2e9 - 20e6) / gap_ns, abs=2)

    at, size = sent(done, 1)
    assert set(size) == {734}
    assert (at % 10**9 < 5e8 + 25e6).all()  # it writes from when it is connected on
    assert len(at) == pytest.approx((0.48 + 0.5) * 5e6 / 8 / 800, abs=4)

    at, size = sent(done, 2)
    assert size.sum() == 100_001 and set(size) == {734, 100_001 % 734}
    assert done.flows.completion_s[2] > 0.02 * 4  # three windows of slow start, and the connection


def test_every_second_packet_is_acknowledged_and_none_waits(tmp_path: Path) -> None:
    """How often a sink is woken does not show: once slow start is over, one acknowledgement for two packets."""
    done = run(tmp_path, cct.Flow("reno", rtt_ms=20), rate_mbps=20, buffer_packets=40)
    c = done.egress.columns
    late = c["ts_ns"] - done.start_ns > 10**9
    data = np.count_nonzero(late & (c["direction"] == 0))
    acks = np.count_nonzero(late & (c["direction"] == 1))
    assert 0.48 < acks / data < 0.62
    assert done.flows.timeouts[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("window", [10, 40])
def test_a_receivers_window_is_the_requested_limit(tmp_path: Path, window: int) -> None:
    done = run(tmp_path, cct.Flow("cubic", rtt_ms=40, max_window=window), duration_s=3.0)
    series = done.flow_series[done.flow_series.ts_ns > done.start_ns + 10**9]
    assert series.inflight_packets.max() <= window
    at, size = sent(done, 0)
    late = at > 1e9
    assert size[late].sum() == pytest.approx(2 * window * 1448 / 0.0405, rel=0.05)


@pytest.mark.slow
def test_no_buffer_limits_by_default(tmp_path: Path) -> None:
    """A product of bandwidth and delay of 3 300 packets is filled by one flow."""
    done = run(tmp_path, cct.Flow("cubic", rtt_ms=200), rate_mbps=200, buffer_packets=3300, duration_s=8.0)
    bits = (
        done.egress.columns["wire_bytes"][done.egress.columns["ts_ns"] - done.start_ns > 6 * 10**9].sum() * 8
    )
    assert bits > 0.9 * 200e6 * 2


@pytest.mark.slow
def test_the_series_has_a_row_at_every_sample(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        cct.Flow("reno", rtt_ms=20),
        cct.Flow("cubic", rtt_ms=20, start_s=0.55),
        rate_mbps=10,
        buffer_packets=20,
    )
    for flow, first in ((0, 1), (1, 6)):
        times = done.flow_series.ts_ns[done.flow_series.flow_id == flow].to_numpy() - done.start_ns
        assert np.abs(times - np.arange(first, 21) * 10**8).max() < 2000
    for a, b in itertools.pairwise(done.flow_series[done.flow_series.flow_id == 0].itertuples()):
        assert b.acked_bytes >= a.acked_bytes and b.retransmits >= a.retransmits
