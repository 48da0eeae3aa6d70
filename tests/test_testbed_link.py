"""The link of hardware/linux/link in a kernel: each packet leaves at the opportunity that a naive model gives it.

Needs a kernel built with ``cct testbed build --with hardware/linux/link``.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from replay_aqm import seen
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.errors import TestbedUnavailableError
from cctoolkit.testbed import TestbedError, run_testbed

pytestmark = [pytest.mark.uml, pytest.mark.slow]
#: Time of a burst behind the link, at 1 Gbit/s.
BURST_NS = 100_000


def run_or_skip(spec, folder):
    """The run, or the test is skipped: the kernel lacks the module."""
    uml_kernel()
    try:
        return run_testbed(spec, folder)
    except TestbedUnavailableError as err:
        pytest.skip(str(err))


def run_of(folder, *flows, packets, octets, interval_us):
    aqm = cct.aqm.Opportunity(bytes=octets, interval_ms=interval_us / 1000)
    link = cct.Bottleneck(rate_mbps=1000, buffer_packets=packets, aqm=aqm)
    spec = cct.Scenario(bottleneck=link, flows=flows, duration_s=10, seed=1)
    run_or_skip(spec, folder)
    return seen(folder / "ingress.pcap.gz"), seen(folder / "egress.pcap.gz")


def delivered(arrivals, phase_ns, *, packets, octets, interval_us):
    """Packets and the times of their opportunities, as Mahimahi's mm-link would deliver them."""
    arriving, queue, out = deque(arrivals), deque(), []
    transit, rest = None, 0  # a packet that is partly sent, and its bytes that are not
    now = arrivals[0].ts_ns // (interval_us * 1000) * interval_us * 1000 + phase_ns
    while arriving or queue or transit:
        while arriving and arriving[0].ts_ns < now:
            packet = arriving.popleft()
            if len(queue) < packets:
                queue.append(packet)
        left = octets
        while left and (transit or queue):
            if transit is None:
                transit = queue.popleft()
                rest = transit.bytes
            sent = min(left, rest)
            left, rest = left - sent, rest - sent
            if rest == 0:
                out.append((now, transit.key))
                transit = None
        now += interval_us * 1000
    return out


@pytest.mark.parametrize(
    "link",
    [
        {"packets": 7, "octets": 1500, "interval_us": 7_000},  # two packets and a half at a time
        {"packets": 30, "octets": 400, "interval_us": 2_000},  # a packet takes more than one
        {"packets": 2, "octets": 100_000, "interval_us": 50_000},  # whatever waits
    ],
    ids=["some", "one in parts", "all"],
)
def test_each_packet_leaves_at_its_opportunity(link, tmp_path):
    flows = [
        cct.Flow("cubic", rtt_ms=50, packet_bytes=600),
        cct.Flow("reno", rtt_ms=31, packet_bytes=600),
        cct.Flow("udp", rate_mbps=0.4, rtt_ms=20, packet_bytes=300, arrivals="poisson"),
    ]
    arrivals, departures = run_of(tmp_path / "run", *flows, **link)
    interval_ns = link["interval_us"] * 1000
    phase_ns = departures[0].ts_ns % interval_ns
    expected = delivered(arrivals, phase_ns, **link)[: len(departures)]
    assert len(departures) > 300
    assert [p.key for p in departures] == [key for _, key in expected]
    late = [p.ts_ns - at for p, (at, _) in zip(departures, expected, strict=True)]
    assert min(late) > -2_000 and max(late) < BURST_NS  # the first, which gives the phase, may be late itself


def test_acknowledgements_wait_too(tmp_path):
    """With a link of the same kind on the way back, they pass the tap at its opportunities, in the same phase."""
    aqm = cct.aqm.Opportunity(bytes=3000, interval_ms=20, both_ways=True)
    link = cct.Bottleneck(rate_mbps=1000, buffer_packets=20, aqm=aqm)
    spec = cct.Scenario(bottleneck=link, flows=[cct.Flow("reno", rtt_ms=33)], duration_s=3, seed=1)
    run = run_or_skip(spec, tmp_path / "run")
    there, back = run.egress.columns, run.ingress.columns
    data = there["ts_ns"][there["direction"] == 0] % 20_000_000
    acks = back["ts_ns"][back["direction"] == 1] % 20_000_000
    assert len(acks) > 100
    assert np.ptp(data) < BURST_NS and np.ptp(acks) < BURST_NS
    assert abs(int(data.min()) - int(acks.min())) < 1_000_000


def test_the_kernel_refuses_values_out_of_range(tmp_path):
    aqm = {"name": "linux:opportunity", "bytes": 0, "interval_us": 1000}
    link = cct.Bottleneck(rate_mbps=1000, buffer_packets=5, aqm=aqm)
    spec = cct.Scenario(bottleneck=link, flows=[cct.Flow()], duration_s=1)
    with pytest.raises(TestbedError, match="bytes and interval_us must be positive"):
        run_or_skip(spec, tmp_path / "run")
