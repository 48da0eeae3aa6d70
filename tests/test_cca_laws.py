"""Congestion controls against closed forms, one function or one state at a time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from cca_driver import MS, WIRE, Driver, Path
from hypothesis import given, settings, strategies as st

from cctoolkit.cca import bbr3
from cctoolkit.cca.bbr import Bbr, update_bottleneck_bandwidth
from cctoolkit.cca.bbr2 import Bbr2
from cctoolkit.cca.bbr3 import Bbr3
from cctoolkit.cca.cubic import Cubic
from cctoolkit.cca.dctcp import Dctcp
from cctoolkit.cca.htcp import Htcp, increase
from cctoolkit.cca.prague import Prague
from cctoolkit.cca.vegas import Vegas
from cctoolkit.errors import ParameterError

# ---- H-TCP -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta_s", "alpha"),
    [
        (0.0, 1.0),
        (1.0, 1.0),
        (1.5, 1 + 5 + 0.0625),
        (2.0, 1 + 10 + 0.25),
        (3.0, 1 + 20 + 1),
        (11.0, 1 + 100 + 25),
    ],
)
def test_htcp_increase_at_beta_one_half(delta_s, alpha):
    assert increase(delta_s, 0.5, 1.0, 100 * MS, True) == int(alpha)
    assert increase(delta_s, 0.8, 1.0, 100 * MS, True) == pytest.approx(0.4 * int(alpha))


@pytest.mark.parametrize(("rtt_ms", "factor"), [(1, 1), (40, 4), (100, 11), (150, 16), (400, 22)])
def test_htcp_increase_goes_by_the_rtt(rtt_ms, factor):
    """Two seconds after congestion f is 11: times RTT over 100 ms, between a tenth and twice, but at least 1."""
    assert increase(2.0, 0.5, 1.0, rtt_ms * MS, True) == factor
    assert increase(2.0, 0.5, 1.0, rtt_ms * MS, False) == 11


@pytest.mark.slow
@pytest.mark.parametrize(("queued_ms", "beta"), [(0.0, 0.8), (10.0, 40 / 50), (20.0, 40 / 60), (60.0, 0.5)])
def test_htcp_keeps_what_empties_the_queue(queued_ms, beta):
    """With the same throughput at three congestions: minimum over maximum RTT, between 0.5 and 0.8."""
    driver = Driver(Htcp(), rtt_ms=40.0)
    driver.flow.ssthresh = 10.0
    for congestion in range(3):
        for i in range(2000):
            driver.step(MS, round((40 + queued_ms * min(i, 1000) / 1000) * MS))
        before = int(driver.flow.cwnd)
        driver.step(MS, round((40 + queued_ms) * MS), lost=1)
        assert driver.flow.ssthresh == int(before * driver.state.beta)
        assert driver.state.max_rtt_ns == pytest.approx((40 + 0.95 * queued_ms) * MS, rel=1e-3)  # it fades
        assert driver.state.beta == (pytest.approx(beta, abs=0.001) if congestion == 2 else 0.5)


def test_htcp_does_not_believe_a_jump_of_the_rtt():
    driver = Driver(Htcp(), rtt_ms=40.0)
    driver.flow.ssthresh = 10.0
    for rtt_ms, seen_ms in ((40, 40), (55, 55), (80, 55), (75, 75), (95, 95)):
        driver.step(MS, rtt_ms * MS)
        assert driver.state.max_rtt_ns == seen_ms * MS


@pytest.mark.slow
def test_htcp_backs_off_by_half_when_throughput_moved():
    driver = Driver(Htcp(), rtt_ms=40.0)
    driver.flow.ssthresh = 100.0
    for gap_ns in (MS, MS // 2, MS, MS // 2):
        for _ in range(3000):
            driver.step(gap_ns, 41 * MS)
        driver.step(gap_ns, 41 * MS, lost=1)
        assert driver.state.beta == 0.5


# ---- DCTCP and Prague ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [0, 1, 2, 4])
def test_dctcp_alpha_is_a_moving_average(marked):
    """With a part F marked in every window alpha goes as F + (1 - F) (15/16)^n."""
    driver = Driver(Dctcp(), rtt_ms=20.0)
    driver.flow.ssthresh = 12.0  # out of slow start
    seen = [float(driver.state.alpha)]
    for _ in range(600):
        driver.flow.cwnd = 40.0  # so that each ACK is for four
        driver.send()
        driver.step(MS, 20 * MS, 4, 0, marked)
        if driver.state.alpha != seen[-1]:
            seen.append(float(driver.state.alpha))
    f, n = marked / 4, np.arange(len(seen))
    if marked == 4:
        assert seen == [1024]
    else:
        # the last ACK of a window may have fewer packets left to mark; it is a whole number, and below 16 it is 0
        np.testing.assert_allclose(seen, 1024 * (f + (1 - f) * (15 / 16) ** n), atol=32)
        assert len(seen) > 20


def test_prague_updates_alpha_every_25_ms_at_least():
    for rtt_ms, period_ms in ((5, 25), (20, 25), (50, 50)):
        driver = Driver(Prague(), rtt_ms=rtt_ms)
        for _ in range(100):
            driver.step(MS, rtt_ms * MS)
        assert driver.state.alpha == 1  # until the first mark
        driver.step(MS, rtt_ms * MS, 1, 0, 1)
        times, alpha = [], float(driver.state.alpha)
        for _ in range(1000):
            driver.step(MS, rtt_ms * MS)
            if driver.state.alpha != alpha:
                alpha = float(driver.state.alpha)
                times.append(driver.now_ns)
        assert set(np.diff(times)) == {period_ms * MS}


@pytest.mark.parametrize(("rtt_ms", "growth"), [(5, 0.04), (10, 0.16), (25, 1.0), (100, 1.0)])
def test_prague_grows_by_the_square_of_its_rtt(rtt_ms, growth):
    driver = Driver(Prague(), rtt_ms=rtt_ms, window=50)
    driver.flow.ssthresh = 10.0
    driver.flow.cwnd_limited = True
    for _ in range(50):
        driver.step(round(rtt_ms * MS / 50), rtt_ms * MS)
    window = driver.flow.cwnd - driver.state.gap
    assert window - 50 == pytest.approx(growth, rel=0.02)
    assert driver.flow.cwnd == 51  # whole packets
    pps = window / (rtt_ms / 1e3)
    assert driver.flow.pacing_bps == pytest.approx(pps * WIRE * 8 * 1500 / 1448)


@pytest.mark.parametrize(("rounds", "growth"), [(0, 0.16), (4, 1.0)])
def test_pragues_virtual_rtt_counts_some_round_trips_after_slow_start(rounds, growth):
    driver = Driver(Prague(transition_rounds=rounds), rtt_ms=10, window=50)
    driver.flow.ssthresh = 10.0
    driver.flow.cwnd_limited = True
    grown = []
    for _ in range(12):
        before = driver.flow.cwnd - driver.state.gap
        for _ in range(50):
            driver.step(round(10 * MS / 50), 10 * MS)
        grown.append(
            (driver.flow.cwnd - driver.state.gap - before) * before / 50
        )  # a window's, not 50 packets'
    before = max(rounds - 1, 0)  # the last of them ends inside one of these
    assert grown[:before] == pytest.approx([growth] * before, rel=0.05)
    assert grown[rounds + 1 :] == pytest.approx([0.16] * (11 - rounds), rel=0.05)


# ---- Vegas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queued", "change"), [(1.5, 1), (3.0, 0), (4.8, 0), (5.2, -1)])
@pytest.mark.parametrize("linux", [True, False])
def test_vegas_counts_its_packets_in_the_queue(queued, change, linux):
    """A window of 40 of which `queued` wait: one more below alpha, one less above beta, as it was between."""
    driver = Driver(Vegas(linux_diff=linux), rtt_ms=40.0, window=40)
    driver.flow.ssthresh = 10.0
    rtt = 40 * 40 / (40 - queued) if not linux else 40 * (40 + queued) / 40
    changes = []
    for i in range(200):
        before = float(driver.flow.cwnd)
        driver.step(MS, 40 * MS if i == 0 else round(rtt * MS))
        if driver.state.samples == 0:  # a round trip is over
            changes.append(float(driver.flow.cwnd) - before)
    assert changes[2] == change  # the first round trip had one sample, the second the least one of all


@pytest.mark.parametrize("gamma", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("double_every", [1, 2])
def test_vegas_ends_slow_start_with_gamma_packets_queued(gamma, double_every):
    """RTTs of 41 ms, and once the least, 40: the first window compared that has more than gamma of 40 ends it."""
    driver = Driver(Vegas(gamma=gamma, double_every=double_every), rtt_ms=40.0)
    for i in range(3000):
        before = float(driver.flow.cwnd)
        driver.step(MS, 40 * MS if i == 0 else 41 * MS)
        if driver.stats["slow_start_exits"][0]:
            break
        compared = driver.state.samples == 0 and driver.state.rounds % double_every == 0 and i > 40
        assert not compared or before // 40 <= gamma
    assert before // 40 > gamma
    assert driver.flow.ssthresh == driver.flow.cwnd == before * 40 // 41 + 1


def test_vegas_measures_the_path_anew_after_a_pause():
    """Linux's tcp_vegas_init at CA_EVENT_TX_START: 40 ms is a queue if it was once 20 ms, but not after a pause."""
    driver = Driver(Vegas(), rtt_ms=40.0, window=40)
    driver.flow.ssthresh = 10.0
    for i in range(200):
        driver.step(MS, 20 * MS if i == 0 else 40 * MS)
    assert driver.stats["diff"][0] > 4
    driver.call("on_restart")
    for _ in range(200):
        driver.step(MS, 40 * MS)
    assert driver.stats["diff"][0] == 0


# ---- CUBIC -----------------------------------------------------------------------------------------------------------


def test_cubic_does_not_grow_for_a_pause():
    """RFC 9438, section 4.2, and Linux's cubictcp_cwnd_event_tx_start: the pause does not count in the epoch."""

    def window(pause_s: float, restart: bool) -> float:
        driver = Driver(Cubic(), rtt_ms=40.0, window=100)
        driver.flow.ssthresh = 50.0
        driver.state.w_max = 100.0
        for _ in range(500):
            driver.step(MS, 40 * MS)
        driver.now_ns += round(pause_s * 1e9)
        if restart:
            driver.call("on_restart")
        for _ in range(500):
            driver.step(MS, 40 * MS)
        return float(driver.flow.cwnd)

    assert window(0, True) == window(0, False)
    assert abs(window(30, True) - window(0, True)) <= 1
    assert window(30, False) > 2 * window(0, False)


# ---- BBR -------------------------------------------------------------------------------------------------------------


def settled(cca, seconds=1.5, **path):
    """On a path of one packet a millisecond and 40 ms, past its start."""
    driver = Path(cca, **path)
    for _ in driver.walk(seconds):
        pass
    return driver


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(1e3, 1e9)), min_size=1, max_size=60))
def test_bbr_bandwidth_is_about_the_maximum_of_ten_rounds(samples):
    """Fed with a sample after so many round trips. With three values it may miss one, but none is too old.

    The best is never less than what came in the last quarter of the time, nor more than the best of all of it.
    """
    p = Bbr().parameter_record().view(np.recarray)[0]
    s = Bbr().state_record().view(np.recarray)
    ack = Driver(Dctcp()).ack
    ack.sample_app_limited = False
    seen = []
    for rounds, bw in samples:
        s.round_count += rounds
        ack.delivery_bps = bw
        update_bottleneck_bandwidth(p, s[0], ack)
        now = int(s.round_count[0])
        seen.append((now, bw))
        assert s.bw_bps[0] <= max(b for r, b in seen if r >= now - 10)
        assert s.bw_bps[0] >= max(b for r, b in seen if r >= now - 2)


@pytest.mark.slow
def test_bbr_gain_cycle():
    """In PROBE_BW: 1.25, 0.75, then six times 1, each about a min_rtt long; pacing is gain times bandwidth less 1 %."""
    driver = settled(Bbr())
    changes, last = [], driver.state.phase
    for s in driver.walk(4.0):
        assert s.mode == 2
        assert driver.flow.pacing_bps == pytest.approx(s.pacing_gain * s.bw_bps * 0.99)
        if s.phase != last:
            changes.append((driver.now_ns, int(s.phase), float(s.pacing_gain)))
            last = s.phase
    phases = [p for _, p, _ in changes]
    assert all(b == (a + 1) % 8 for a, b in itertools.pairwise(phases))
    assert {p: g for _, p, g in changes} == {0: 1.25, 1: 0.75, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1}
    lengths = [(b[0] - a[0]) / MS for a, b in itertools.pairwise(changes) if a[1] not in (0, 1)]
    assert min(lengths) > 40
    assert max(lengths) < 44
    assert driver.state.bw_bps == pytest.approx(WIRE * 8e3, rel=0.01)  # a packet a millisecond
    assert driver.state.min_rtt_ns == pytest.approx(41 * MS, rel=0.03)


@pytest.mark.parametrize("cca", [Bbr, Bbr2, Bbr3])
def test_bbr_startup_doubles_and_drains(cca):
    """From 10 packets to a path of 101 takes a few round trips, and then the queue goes again."""
    driver = Path(cca(), rtt_ms=100)
    most = 0
    for s in driver.walk(3.0):
        most = max(most, int(driver.flow.inflight))
        if s[s.dtype.names[0]] >= 2:
            break
    else:
        pytest.fail("never got out of DRAIN")
    assert driver.now_ns - 1000 * MS < 2_000 * MS
    assert 1.8 * 101 < most < 3.1 * 101 + 20
    assert driver.flow.inflight <= 1.1 * 101 + 6


@pytest.mark.slow
def test_bbr_probe_rtt():
    """After ten seconds without a smaller RTT: 200 ms with four packets, then the window is as before."""
    driver = settled(Bbr(), seconds=5.0)
    assert driver.until(9.0, lambda s: s.mode == 3)
    began_ns, before = driver.now_ns, float(driver.state.prior_cwnd)
    least = min(int(driver.flow.inflight) for s in driver.walk(0.15))
    assert driver.until(1.0, lambda s: s.mode == 2)
    assert 200 <= (driver.now_ns - began_ns) / MS < 350
    assert least <= 4
    assert driver.flow.cwnd == pytest.approx(before, abs=2)
    assert before > 80
    for _ in driver.walk(0.5):
        pass
    assert driver.state.bw_bps == pytest.approx(WIRE * 8e3, rel=0.01)  # the pause is no sample of bandwidth


def test_bbr_restarts_from_idle_at_its_bandwidth():
    driver = settled(Bbr())
    assert driver.until(2.0, lambda s: s.phase == 0)
    f = driver.flow
    f.una = f.next_seq - 1  # all acknowledged, one packet sent after a pause
    f.app_limited = True
    driver.call("on_send")
    assert f.pacing_bps == pytest.approx(driver.state.bw_bps * 0.99)
    assert driver.state.idle_restart


def test_bbr_conserves_packets_for_one_round_after_a_loss():
    driver = settled(Bbr())
    f = driver.flow
    before = float(f.cwnd)
    driver.lose(3)
    assert f.in_recovery
    assert f.cwnd == f.inflight + 1  # one arrived, one may leave
    assert driver.until(1.0, lambda s: not f.in_recovery)
    assert f.cwnd == pytest.approx(before, abs=2)


# ---- BBR, versions 2 and 3 -------------------------------------------------------------------------------------------


@given(
    inflight=st.integers(1, 5000),
    lost_before=st.integers(0, 100),
    lost=st.integers(1, 200),
    threshold=st.floats(0.005, 0.2),
)
def test_bbr3_inflight_at_loss_is_where_losses_cross_the_threshold(inflight, lost_before, lost, threshold):
    """Packet by packet, as the draft has it: of those lost together, the first that is too much counts."""
    too_many = [n for n in range(lost_before + 1, lost_before + lost + 1) if n > threshold * inflight]
    if not too_many:
        return
    p = SimpleNamespace(loss_threshold=threshold)
    flow = SimpleNamespace(lost_inflight=inflight, lost_since=lost_before + lost)
    at = bbr3.inflight_at_loss.py_func(p, flow, lost)
    before, prefix = too_many[0] - 1, at - (inflight - 1)
    assert 0 <= prefix <= 1
    if prefix > 0:
        assert (before + prefix) / at == pytest.approx(threshold)
    else:
        assert before >= threshold * (inflight - 1)


@pytest.mark.slow
def test_bbr3_cycle():
    """DOWN, CRUISE, REFILL, UP with their gains; probes as far apart as the window has packets, at most 63."""
    driver = settled(Bbr3())
    changes, last = [], driver.state.state
    for s in driver.walk(20.0):
        assert driver.flow.pacing_bps == pytest.approx(s.pacing_gain * s.bw_bps * 0.99)
        if s.state != last:
            changes.append((int(s.state), float(s.pacing_gain), int(s.round_count)))
            last = s.state
    following = {(a[0], b[0]) for a, b in itertools.pairwise(changes) if 6 not in (a[0], b[0])}
    assert following == {(2, 3), (3, 4), (4, 5), (5, 2)}
    assert {c[0]: c[1] for c in changes} == {2: 0.9, 3: 1.0, 4: 1.0, 5: 1.25, 6: 1.0}
    waits = [
        b[2] - a[2]
        for a, b in itertools.pairwise(c for c in changes if c[0] in (2, 5, 6))
        if (a[0], b[0]) == (2, 5)
    ]
    assert len(waits) >= 3
    assert 38 <= min(waits) <= max(waits) <= 45  # a bandwidth-delay product is 41 packets
    assert driver.stats["probe_rtts"][0] >= 3  # every five seconds


@pytest.mark.slow
@pytest.mark.parametrize(("cca", "gain"), [(Bbr2, 0.75), (Bbr3, 0.9)])
def test_bbr_versions_differ_in_down(cca, gain):
    driver = settled(cca())
    assert {float(s.pacing_gain) for s in driver.walk(4.0) if s.state == 2} == {gain}


def test_bbr3_remembers_what_was_too_much():
    """More than 2 % lost while it probes: inflight_hi is set, the probe ends, and cruising leaves 15 % of it."""
    driver = settled(Bbr3())
    assert driver.until(10.0, lambda s: s.state == 5 and driver.ack.sample_inflight > 50)
    s = driver.state
    assert s.is_probe_sample
    assert s.inflight_hi == bbr3.INFINITE
    driver.lose(5)
    inflight = int(driver.ack.sample_inflight)
    assert s.state == 2
    assert s.probe_too_high
    assert inflight - 5 <= s.inflight_hi <= inflight
    assert driver.until(3.0, lambda s: s.state == 3)
    assert driver.flow.cwnd <= 0.85 * s.inflight_hi + 1e-9


def test_bbr3_comes_down_to_what_is_delivered():
    """Losses while cruising: bw_lo and inflight_lo lose at most 30 % a round trip, and REFILL forgets them."""
    driver = settled(Bbr3())
    assert driver.until(3.0, lambda s: s.state == 3)
    s = driver.state
    bw, cwnd = float(s.max_bw_bps), float(driver.flow.cwnd)
    driver.lose(10)
    assert driver.until(1.0, lambda s: s.bw_lo_bps < bbr3.INFINITE)
    assert 0.7 * bw <= s.bw_lo_bps <= bw
    assert 0.7 * cwnd <= s.inflight_lo < cwnd
    assert s.bw_bps == s.bw_lo_bps
    assert driver.until(4.0, lambda s: s.state == 4)
    assert s.bw_lo_bps == bbr3.INFINITE
    assert s.inflight_lo == bbr3.INFINITE


@pytest.mark.slow
def test_bbr3_answers_marks_on_short_paths_only():
    for rtt_ms, answers in ((4, True), (40, False)):
        driver = settled(Bbr3(), 0.8, rtt_ms=rtt_ms, slot_ms=0.1)
        assert driver.until(3.0, lambda s: s.state == 3)
        for _ in driver.walk(rtt_ms * 4e-3, marked=1):
            pass
        assert (driver.state.inflight_lo < bbr3.INFINITE) == answers


# ---- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cca", "bad"),
    [
        (Bbr, {"bw_rounds": 0}),
        (Bbr, {"high_gain": 1.0}),
        (Bbr, {"pacing_margin": 1.0}),
        (Bbr3, {"loss_threshold": 0.0}),
        (Bbr2, {"beta": 1.5}),
        (Bbr3, {"min_cwnd": 0}),
        (Htcp, {"threshold_s": 0.0}),
        (Vegas, {"alpha": 5.0}),
        (Vegas, {"double_every": 0}),
        (Dctcp, {"g": 0.0}),
        (Prague, {"initial_alpha": 2.0}),
    ],
)
def test_bad_parameters_are_named(cca, bad):
    with pytest.raises(ParameterError, match=f"{cca.__name__}.{next(iter(bad))}"):
        cca(**bad)
