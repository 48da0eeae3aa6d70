"""Scenarios of captures: what was sent comes back out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.errors import ParameterError
from cctoolkit.scenario.scenario import scenario_of
from cctoolkit.separation.workload import BusiestSecond, transfers

TRACES = Path(__file__).parents[1] / "traces"


@pytest.fixture(scope="module")
def made() -> cct.Run:
    """Three transfers, one with an access delay, and noise that is none."""
    flows = [
        cct.Flow("cubic", rtt_ms=20, bytes=2_000_000, start_s=0.5),
        cct.Flow("reno", rtt_ms=60, bytes=1_000_000, start_s=1.25, access_ms=10),
        cct.Flow("cubic", rtt_ms=30, bytes=3_000),
        cct.Flow("udp", rate_mbps=5),
        cct.Flow("bbr", rtt_ms=35, bytes=1_500_000, start_s=2),
    ]
    bottleneck = cct.Bottleneck(rate_mbps=50, buffer_packets=400)
    return cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=5))


def test_a_simulation_comes_back(made: cct.Run) -> None:
    """From its capture alone: volumes to the byte (plus what was sent twice), RTTs, starts one round trip later."""
    scenario = cct.scenario_from_capture(made.egress, 50, min_bytes=500_000)
    assert [f.name for f in scenario.flows] == ["flow 0", "flow 1", "flow 4"]
    assert [f.bytes for f in scenario.flows] == [2_000_000, 1_000_000, 1_500_000]
    assert [f.rtt_ms for f in scenario.flows] == pytest.approx([20, 60, 35], abs=0.5)
    assert [f.start_s for f in scenario.flows] == pytest.approx([0, 0.75 + 0.04, 1.5 + 0.015], abs=0.02)
    assert scenario.bottleneck.rate_mbps == 50
    assert scenario.bottleneck.buffer_bytes == pytest.approx(50 * 60 * 125, rel=0.01)
    again = cct.simulate(scenario, record=False).flows
    assert again.completion_s.notna().all()
    assert again.received_bytes.tolist() == [2_000_000, 1_000_000, 1_500_000]
    assert scenario_of(scenario.to_dict()) == scenario  # it goes to a file and back


def test_parts_are_the_whole(tmp_path: Path) -> None:
    path = TRACES / "mixed.ingress.pcap.gz"
    whole, rate = transfers(cct.read_capture(path), 100_000)
    parts, same = transfers(cct.iter_capture(path, packets=999), 100_000)
    pd.testing.assert_frame_equal(parts, whole)
    assert rate == same
    assert len(whole) >= 3


def test_both_directions_are_two_transfers() -> None:
    """A made-up capture's two directions: the labels say who sent; here every flow with 1 byte."""
    cap = cct.read_capture(TRACES / "mixed.ingress.pcap.gz")
    table, _ = transfers(cap, 1)
    flows = cap.flows.set_index("flow_id")
    payload = np.where(
        table.direction == 0, flows.payload_fwd[table.flow_id], flows.payload_rev[table.flow_id]
    )
    assert table.bytes.tolist() == payload.tolist()
    both = table[table.duplicated("flow_id", keep=False)]
    assert len(both) > 0
    assert both.groupby("flow_id").share.sum().to_numpy() == pytest.approx(1)
    assert (table.end_s >= table.start_s).all() and table.start_s.is_monotonic_increasing


def test_scales(made: cct.Run) -> None:
    full = cct.scenario_from_capture(made.egress, 50, min_bytes=500_000)
    small = cct.scenario_from_capture(
        made.egress, 50, min_bytes=500_000, scale_bytes=0.1, scale_time=2, every=2
    )
    assert [f.name for f in small.flows] == ["flow 0", "flow 4"]
    assert [f.bytes for f in small.flows] == [200_000, 150_000]
    assert small.flows[1].start_s == pytest.approx(2 * full.flows[2].start_s)
    assert (
        cct.scenario_from_capture(made.egress, 50, min_bytes=500_000, cca="bbr", seed=9).flows[0].cca.name
        == "bbr"
    )


def test_the_rate_is_the_busiest_seconds(made: cct.Run) -> None:
    """Of one direction: ACKs go the other way, through another queue."""
    busiest = BusiestSecond()
    busiest.update(made.egress)
    ts = made.egress.columns["ts_ns"]
    second = (ts - ts[0]) // 10**9
    wire = made.egress.columns["wire_bytes"]
    direction = made.egress.columns["direction"]
    most = max(int(wire[(second == s) & (direction == d)].sum()) for s in np.unique(second) for d in (0, 1))
    assert most < max(int(wire[second == s].sum()) for s in np.unique(second))
    assert busiest.mbps == pytest.approx(most * 8 / 1e6)
    assert cct.scenario_from_capture(made.egress, min_bytes=500_000).bottleneck.rate_mbps == pytest.approx(
        busiest.mbps
    )


@pytest.mark.parametrize("row", [0, 5000])
@pytest.mark.parametrize("wrong_ns", [0, 4 * 10**18])
def test_a_wrong_timestamp_does_not_decide_the_rate(made: cct.Run, row: int, wrong_ns: int) -> None:
    expected, found = BusiestSecond(), BusiestSecond()
    expected.update(made.egress)
    ts = made.egress.columns["ts_ns"].copy()
    ts[row] = wrong_ns
    found.update(cct.Capture(made.egress.columns | {"ts_ns": ts}, made.egress.keys, made.egress.meta))
    assert found.mbps == pytest.approx(expected.mbps, rel=0.05)  # seconds begin elsewhere, or lack a packet


def test_one_direction_only(made: cct.Run) -> None:
    """No RTT, no flow, unless one is given."""
    cap = made.egress.rows(made.egress.columns["direction"] == 0)
    with pytest.raises(ParameterError, match="none has a known RTT"):
        cct.scenario_from_capture(cap, 50, min_bytes=500_000)
    scenario = cct.scenario_from_capture(cap, 50, min_bytes=500_000, default_rtt_ms=80)
    assert {f.rtt_ms for f in scenario.flows} == {80}


def test_refused(made: cct.Run) -> None:
    with pytest.raises(ParameterError, match="no TCP flow has 10000000 bytes"):
        cct.scenario_from_capture(made.egress)
    with pytest.raises(ParameterError, match="min_bytes"):
        cct.scenario_from_capture(made.egress, min_bytes=0)
    with pytest.raises(ParameterError, match="scale_bytes"):
        cct.scenario_from_capture(made.egress, scale_bytes=0)
    with pytest.raises(ParameterError, match="rate_mbps"):
        cct.scenario_from_capture(made.egress, -5, min_bytes=500_000)
