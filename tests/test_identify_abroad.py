"""Names in networks that no model was trained on: policers, clocks that differ, acknowledgements for many segments."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Aqm

pytestmark = pytest.mark.slow
CCAS = ("reno", "cubic", "bbr")


class Policer(Aqm):
    """A token bucket without a queue: what it has no tokens for is dropped."""

    name: ClassVar[str] = "policer"

    rate_mbps: float = 20.0
    burst_bytes: float = 50_000.0

    class State:
        tokens = -1.0
        last_ns = 0

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if s.tokens < 0.0:
            s.tokens = p.burst_bytes
        s.tokens = min(p.burst_bytes, s.tokens + (now_ns - s.last_ns) * p.rate_mbps / 8e3)
        s.last_ns = now_ns
        if s.tokens < packet.bytes:
            return DROP
        s.tokens -= packet.bytes
        return PASS


def simulated(cca: str, rtt_ms: float, delayed_ack: int = 2, **link: object) -> cct.Run:
    flows = [cct.Flow(cca, rtt_ms=rtt_ms, start_s=0.3 * i, delayed_ack=delayed_ack) for i in range(3)]
    bottleneck = cct.Bottleneck(**({"rate_mbps": 50, "buffer_packets": 200} | link))
    return cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=20), record=True)


def named(cca: str, *taps: cct.Capture) -> tuple[int, int]:
    """How many of three flows are named right, and wrongly."""
    answers = cct.identify.classify_flows(*taps).cca
    return int((answers == cca).sum()), int((~answers.isin([cca, "unknown"])).sum())


@pytest.mark.parametrize("cca", CCAS)
@pytest.mark.parametrize("burst_s", [0.02, 0.1])
def test_through_a_policer(burst_s, cca):
    right = wrong = 0
    for rtt_ms in (10, 40, 100):
        policer = Policer(rate_mbps=20, burst_bytes=burst_s * 2.5e6)
        run = simulated(cca, rtt_ms, rate_mbps=1000, buffer_packets=1000, aqm=policer)
        found = named(cca, run.ingress)
        right, wrong = right + found[0], wrong + found[1]
    assert right >= 7 and wrong <= 1


@pytest.mark.parametrize("cca", CCAS)
@pytest.mark.parametrize("merged", [8, 32])
def test_acknowledgements_for_many_segments(merged, cca):
    """Network cards merge segments before the receiver's TCP sees them (GRO), and Wi-Fi thins acknowledgements out."""
    for rtt_ms in (20, 80):
        run = simulated(cca, rtt_ms, delayed_ack=merged)
        right, wrong = named(cca, run.ingress, run.egress)
        assert right >= 2 and wrong == 0


@pytest.mark.parametrize("cca", CCAS)
@pytest.mark.parametrize(("later_ms", "ppm"), [(1.0, 0), (0.0, 50)])
def test_taps_whose_clocks_differ(later_ms, ppm, cca):
    run = simulated(cca, 80)
    columns = {name: column.copy() for name, column in run.egress.columns.items()}
    ts = columns["ts_ns"]
    columns["ts_ns"] = ts + round(later_ms * 1e6) + (ts - ts[0]) * ppm // 10**6
    assert (np.diff(columns["ts_ns"]) >= 0).all()
    behind = cct.Capture(columns, run.egress.keys, run.egress.meta)
    right, wrong = named(cca, run.ingress, behind)
    assert right >= 2 and wrong == 0
