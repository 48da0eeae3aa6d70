"""Congestion controls against their naive twins, ACK by ACK, on sequences nobody chose."""

from __future__ import annotations

import naive_cca
import pytest
from cca_driver import MS, Driver
from hypothesis import given, settings, strategies as st
from tools import examples

from cctoolkit.cca.bbr import Bbr
from cctoolkit.cca.bbr2 import Bbr2
from cctoolkit.cca.bbr3 import Bbr3
from cctoolkit.cca.dctcp import Dctcp
from cctoolkit.cca.htcp import Htcp
from cctoolkit.cca.prague import Prague
from cctoolkit.cca.vegas import Vegas

#: One ACK: time since the last one, RTT, packets delivered, found lost, marked; a stretch of equal ones at once.
STEP = st.tuples(
    st.sampled_from([0.1, 0.5, 1.0, 3.0, 40.0, 300.0]),
    st.one_of(st.sampled_from([20.0, 60.0, 150.0]), st.floats(20.0, 26.0)),
    st.integers(1, 4),
    st.sampled_from([0] * 9 + [1, 3, 30]),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.integers(1, 40),
)
STEPS = st.lists(st.one_of(STEP, st.just(None)), min_size=1, max_size=25)


def play(driver: Driver, steps) -> None:
    for step in steps:
        if step is None:
            driver.time_out(250 * MS)
            continue
        gap, rtt, acked, lost, marked, times = step
        for i in range(times):
            driver.step(round(gap * MS), round(rtt * MS), acked, lost if i == 0 else 0, marked)


@pytest.mark.parametrize(
    ("cca", "twin"),
    [(Dctcp, naive_cca.Dctcp), (Prague, naive_cca.Prague), (Vegas, naive_cca.Vegas), (Htcp, naive_cca.Htcp)],
)
@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_like_its_twin(cca, twin, steps):
    driver = Driver(cca(), rtt_ms=20.0)
    driver.twin = twin()
    driver.twin.on_start(driver.plain(driver.flow), None, driver.now_ns)
    play(driver, steps)


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS)
def test_bbr_like_its_twin(steps):
    driver = Driver(Bbr(), rtt_ms=20.0)
    driver.twin = naive_cca.Bbr(lambda: int(driver.state.phase))
    driver.twin.on_start(driver.plain(driver.flow), None, driver.now_ns)
    play(driver, steps)
    assert driver.state.mode == ["startup", "drain", "probe_bw", "probe_rtt"].index(driver.twin.mode)


@pytest.mark.parametrize("cca", [Bbr2, Bbr3])
@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_bbr_keeps_its_bounds(cca, steps):
    """Whatever comes: the window stays within its bounds, the filter is the maximum of two cycles, rates are finite."""
    driver = Driver(cca(), rtt_ms=20.0)
    s, f = driver.state, driver.flow
    for step in steps:
        play(driver, [step])
        if step is None:
            continue
        assert s.max_bw_bps == max(s.cycle_bw_bps, s.previous_cycle_bw_bps)
        assert s.bw_bps == min(s.max_bw_bps, s.bw_lo_bps)
        assert f.cwnd <= max(s.inflight_lo, 4) and (s.state < 2 or f.cwnd <= max(s.inflight_hi, 4))
        assert f.cwnd >= 4
        if s.state == 3:  # cruising leaves headroom
            assert f.cwnd <= max(0.85 * s.inflight_hi, 4) + 1e-9
        assert 0 < f.pacing_bps < 1e12
