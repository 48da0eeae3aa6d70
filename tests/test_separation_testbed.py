"""The RTT paper's controller beside real Linux TCP: the same object as in the simulator, and the same effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.separation.controller import RttSeparation
from cctoolkit.separation.meters import capture_metrics
from cctoolkit.testbed import run_testbed


@pytest.mark.uml
@pytest.mark.slow
@pytest.mark.parametrize(("cca", "ahead"), [("reno", 0), ("bbr", 1)])
def test_linux_is_fair_with_it_and_not_without(cca: str, ahead: int, tmp_path: Path) -> None:
    """10 and 60 ms through 20 Mbit/s: in one queue Reno's near flow wins, BBR's far one; separated, they share."""
    uml_kernel()
    flows = (cct.Flow(cca, rtt_ms=10), cct.Flow(cca, rtt_ms=60))
    bottleneck = cct.Bottleneck(rate_mbps=20, buffer_bytes=20 * 125 * 60)
    shared = cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=15)
    alone = run_testbed(shared, tmp_path / "alone")
    assert alone.flows.goodput_mbps[ahead] > 1.4 * alone.flows.goodput_mbps[1 - ahead]

    controller = RttSeparation(20, k=2, long_bytes=500_000)
    run = run_testbed(controller.scenario(shared), tmp_path / "separated", control=controller, control_s=0.2)
    assert cct.jain_index(run.flows.goodput_mbps) > 0.98
    assert run.summary()["utilisation"] > 0.95 * alone.summary()["utilisation"]
    assert controller.decision.flows.rtt_ms.to_numpy() == pytest.approx([10, 60], rel=0.1)
    assert [sum(entry[what] for entry in controller.log) for what in ("added", "moved", "removed")] == [
        2,
        0,
        0,
    ]
    # the senders' kernels knew no more than the tap
    tap = capture_metrics(run.ingress).set_index("flow_id").rtt_ms
    assert controller.decision.flows.rtt_ms.to_numpy() == pytest.approx(sorted(tap)[-2:], rel=0.05)
