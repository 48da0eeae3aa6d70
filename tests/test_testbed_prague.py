"""TCP Prague (hardware/linux/prague) in the testbed's kernel, if that was built with it."""

from __future__ import annotations

import numpy as np
import pytest
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.errors import TestbedUnavailableError
from cctoolkit.experiments.runners import for_simulator
from cctoolkit.testbed import run_testbed

pytestmark = pytest.mark.uml
AE, CWR, ECE, SYN = 0x100, 0x80, 0x40, 0x02


@pytest.fixture(autouse=True, scope="module")
def kernel():
    return uml_kernel()


def scenario(
    *flows: cct.Flow, duration_s: float = 4.0, aqm: str = "dualpi2", **bottleneck: object
) -> cct.Scenario:
    link = {"rate_mbps": 20, "buffer_packets": 400} | bottleneck
    return cct.Scenario(
        bottleneck=cct.Bottleneck(aqm=aqm, **link), flows=flows, duration_s=duration_s, seed=1
    )


def run(tmp_path, *flows: cct.Flow, **options: object):
    try:
        return run_testbed(scenario(*flows, **options), tmp_path / "run")
    except TestbedUnavailableError as err:
        pytest.skip(str(err))


def packets(capture, flow: int, direction: int = 0) -> dict[str, np.ndarray]:
    c = capture.columns
    rows = (c["flow_id"] == flow) & (c["direction"] == direction)
    return {name: values[rows] for name, values in c.items()}


def test_ect_1_accurate_ecn_and_marks_counted_by_the_sender(tmp_path):
    # the mark of the second flow's packets is classic ECN, that of the third none
    found = run(tmp_path, cct.Flow("prague"), cct.Flow("cubic", ecn=True), cct.Flow("cubic"))
    assert found.labels.cca.tolist() == ["prague", "cubic", "cubic"]  # not its fallback
    sent, left = packets(found.ingress, 0), packets(found.egress, 0)
    syn = sent["tcp_flags"][(sent["tcp_flags"] & SYN) > 0][0]
    assert syn & (AE | CWR | ECE) == AE | CWR | ECE  # RFC 9768, section 3.1.1
    data = sent["payload_bytes"] > 0
    assert set(sent["ecn"][data].tolist()) == {1}
    assert set(sent["payload_bytes"][data].tolist()) == {1448}  # no options of accurate ECN
    assert set(left["ecn"][left["payload_bytes"] > 0].tolist()) == {1, 3}
    for flow, ecn in ((1, 2), (2, 0)):
        other = packets(found.ingress, flow)
        assert set(other["ecn"][other["payload_bytes"] > 0].tolist()) <= {ecn, 0}  # retransmissions: none
    # what the sender counted from the echoes; the last ones are still on their way
    marked = int((left["ecn"] == 3).sum())
    series = found.flow_series[found.flow_series.flow_id == 0]
    counted = int(series.marked_packets.iloc[-1])
    since = left["ts_ns"][left["ecn"] == 3] > series.ts_ns.iloc[-1] - 60e6
    assert marked > 20 and marked - since.sum() <= counted <= marked
    assert found.flows.marked_packets[0] == marked
    # the echo: the receiver's counter modulo eight, from five on (RFC 9768, section 3.2)
    ack = packets(found.ingress, 0, 1)["tcp_flags"][-1]
    ace = 4 * bool(ack & AE) + 2 * bool(ack & CWR) + bool(ack & ECE)
    assert (ace - 5 - counted) % 8 <= since.sum() % 8


@pytest.mark.slow
def test_like_the_simulators(tmp_path):
    flows = (cct.Flow("prague", rtt_ms=20),)
    real = run(tmp_path, *flows, duration_s=10)
    simulated = cct.simulate(for_simulator(scenario(*flows, duration_s=10)), record=True)
    marks, goodput = (
        [values[name] for values in (real.summary(), simulated.summary())]
        for name in ("mark_share", "goodput_mbps")
    )
    assert marks[0] == pytest.approx(marks[1], rel=0.1)
    assert goodput[0] == pytest.approx(goodput[1], rel=0.02)


@pytest.mark.slow
def test_shares_the_link_with_cubic_and_with_dctcp(tmp_path):
    both = (
        cct.Flow("prague", rtt_ms=20),
        cct.Flow("dctcp", rtt_ms=20, ecn="l4s"),
        cct.Flow("cubic", rtt_ms=20),
    )
    found = run(tmp_path, *both, duration_s=10)
    share = found.flows.goodput_mbps / found.flows.goodput_mbps.sum()
    assert (share > 0.05).all()


@pytest.mark.slow
def test_a_loss_halves_the_window(tmp_path):
    found = run(tmp_path, cct.Flow("prague", rtt_ms=20), aqm="tail_drop", buffer_packets=30, duration_s=10)
    flow = found.flows.iloc[0]
    assert flow.retransmits > 0 and flow.timeouts == 0
    series = found.flow_series[found.flow_series.ts_ns > found.start_ns + 2e9]
    assert 1.6 < series.cwnd_packets.max() / series.cwnd_packets.min() < 2.5
    assert flow.goodput_mbps > 17
