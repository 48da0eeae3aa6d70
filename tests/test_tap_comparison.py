"""Wrong taps do not pass: swapped ones, other traffic, clocks that differ; and right ones do, on every bundled pair."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog
from tools import examples, mostly_slow

import cctoolkit as cct
from cctoolkit import cli
from cctoolkit.analysis import tap_clocks, tap_comparison
from cctoolkit.analysis.tap_comparison import TapComparer, TapComparison, compare_taps
from cctoolkit.capture.model import Capture
from cctoolkit.errors import ParameterError, TapClockWarning
from cctoolkit.identify.dataset import record
from cctoolkit.identify.live.replay import CaptureCollector

TRACES = Path(__file__).parents[1] / "traces"
PAIRS = sorted(str(p.relative_to(TRACES)).split(".ingress.")[0] for p in TRACES.rglob("*.ingress.pcap.gz"))
#: A bottleneck on a real machine and some in virtual time, with an AQM, several flows, hardly a queue, hardly idle.
SOME = ["bbr", "bufferbloat-codel", "mixed", "testbed/cdg", "testbed/rate-change"]
MS = 1_000_000


@cache
def taps(name: str) -> tuple[Capture, Capture]:
    ingress = TRACES / f"{name}.ingress.pcap.gz"
    return cct.read_capture(ingress), cct.read_capture(str(ingress).replace(".ingress.", ".egress."))


def stamped(capture: Capture, offset_ns: int = 0, drift_ppm: float = 0.0, step_ns: int = 0) -> Capture:
    """As a clock would have stamped it that is ahead, gains, and is set in the middle."""
    ts = capture.columns["ts_ns"]
    since = ts - ts[0]
    late = np.where(since > since[-1] // 2, step_ns, 0)
    new = ts + offset_ns + np.rint(since * drift_ppm * 1e-6).astype(np.int64) + late
    return Capture(capture.columns | {"ts_ns": new}, capture.keys, capture.meta)


def one_way(capture: Capture) -> Capture:
    """Of each TCP flow only the direction with more payload."""
    columns = capture.columns
    way = columns["flow_id"].astype(np.int64) * 2 + columns["direction"]
    payload = np.bincount(way, columns["payload_bytes"], minlength=int(way.max()) + 2)
    return capture.rows((columns["tcp_flags"] != 0) & (payload[way] > payload[way ^ 1]))


def elsewhere(capture: Capture) -> Capture:
    """Behind address translation."""
    keys = dataclasses.replace(
        capture.keys, src=capture.keys.src + np.uint8(1), sport=capture.keys.sport + np.uint16(1000)
    )
    return Capture(capture.columns, keys, capture.meta)


def remedy_ns(problem: str) -> float:
    """What editcap should add to the egress tap's stamps."""
    return 1e9 * float(problem.split("editcap -t ")[1].split()[0])


# --- what is right passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mostly_slow(PAIRS, PAIRS[::7]))
def test_every_bundled_pair_passes_one_way_round_only(name):
    ingress, egress = taps(name)
    right = compare_taps(ingress, egress)
    assert right.problem is None and right.order_known and not right.remarks
    assert right.clocks_in_words()
    low, high = right.clocks.offset_ns
    assert (
        -2_500 < low <= high < 2_500
    )  # one machine, one clock, and what it takes from interface to interface
    assert right.forward.payload_bytes > right.backward.payload_bytes
    assert right.strays == 0
    wrong = compare_taps(egress, ingress)
    assert wrong.problem.startswith("these look swapped: ")
    assert wrong.backward.packets == right.forward.packets
    assert wrong.backward.missing == right.forward.missing


@pytest.mark.parametrize("name", SOME)
def test_what_is_missing_is_what_the_queue_lost(name):
    ingress, egress = taps(name)
    loss = cct.queue_loss(ingress, egress)
    tcp = ingress.keys.flow_id[ingress.keys.protocol == 6]
    lost = loss[loss.flow_id.isin(tcp)].packets_lost.sum()
    # Not counted: what is lost after the last packet of a flow that was seen at both taps.
    assert 0 <= lost - compare_taps(ingress, egress).forward.missing <= 3


@pytest.mark.parametrize("name", SOME)
def test_captures_that_begin_and_end_at_other_times(name):
    ingress, egress = taps(name)
    for one, other in (
        (ingress, egress.select(start_s=4)),
        (ingress.select(start_s=4), egress),
        (ingress.select(stop_s=7), egress.select(start_s=4)),
    ):
        assert compare_taps(one, other).problem is None
        assert compare_taps(other, one).problem.startswith("these look swapped")


SCENARIOS = {
    "full": [cct.Flow("cubic", rtt_ms=20), cct.Flow("bbr", rtt_ms=40)],
    "lossy": [cct.Flow("reno", rtt_ms=20, loss=0.02, jitter_ms=3)],
    "thin": [cct.Flow("cubic", rtt_ms=5, rate_mbps=0.1)],
    "short": [cct.Flow("cubic", rtt_ms=1, bytes=100)],
    "datagrams": [cct.Flow("udp", rate_mbps=12)],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_simulated_taps_pass(name):
    bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=40)
    run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=SCENARIOS[name], duration_s=3), record=True)
    assert compare_taps(run.ingress, run.egress).problem is None


# --- clocks ---------------------------------------------------------------------------------------------------

OFFSETS_MS = [0.1, 1, 10, 100, 1000, 3_600_000]


@pytest.mark.parametrize("name", mostly_slow(SOME, ["bbr"]))
@pytest.mark.parametrize("offset_ms", [*OFFSETS_MS, *(-ms for ms in OFFSETS_MS)])
def test_an_offset_is_reported_and_not_taken_for_a_swap(name, offset_ms):
    ingress, egress = taps(name)
    offset_ns = round(offset_ms * MS)
    found = compare_taps(ingress, stamped(egress, offset_ns))
    low, high = found.clocks.offset_ns
    assert low - 2_500 <= offset_ns <= high + 2_500 and high - low < 5_000
    waits_ns = np.quantile(cct.queue_delay(ingress, egress).delay_ns.dropna(), 0.99)
    if abs(offset_ns) > waits_ns or -offset_ns > waits_ns / 2:
        assert found.problem.startswith("the clocks differ too much")
        assert remedy_ns(found.problem) == pytest.approx(-offset_ns, abs=2_500)
    message = found.problem or "".join(found.remarks)
    assert ("ahead of" if offset_ms > 0 else "behind") in message and "swapped" not in message
    assert compare_taps(egress, stamped(ingress, offset_ns)).problem.startswith("these look swapped: ")


def test_apparent_losses_from_a_slow_clock_are_reported() -> None:
    ingress, egress = taps("bufferbloat")
    slow = stamped(egress, -5 * MS)
    with pytest.warns(TapClockWarning) as caught:
        lost = cct.queue_delay(ingress, slow)["lost"].sum()
    assert lost > cct.queue_delay(ingress, egress)["lost"].sum()
    early = compare_taps(ingress, slow).early
    assert (
        f"the {100 * early:.3g} % of the packets that seem to leave before they arrive count as lost"
        in str(caught[0].message)
    )
    assert not any("count as lost" in one for one in compare_taps(ingress, stamped(egress, 5 * MS)).remarks)


@pytest.mark.parametrize("name", mostly_slow(PAIRS, PAIRS[::7]))
@pytest.mark.parametrize("drift_ppm", [50, -50])
def test_a_drift_is_found(name, drift_ppm):
    ingress, egress = taps(name)
    found = compare_taps(ingress, stamped(egress, drift_ppm=drift_ppm))
    assert found.clocks.drift_ppm == pytest.approx(drift_ppm, abs=0.2)
    low, high = found.clocks.drift_bounds_ppm
    # A packet that waited was stamped when the clock had drifted on, which bends the line by the drift of the wait.
    bent = abs(drift_ppm) * found.forward.most_ns / found.clocks.length_ns
    assert low - bent <= drift_ppm <= high + bent
    assert "ppm" in (found.problem or found.remarks[0])


def test_a_clock_that_is_set_is_reported():
    ingress, egress = taps("cubic-bbr")
    (remark,) = compare_taps(ingress, stamped(egress, step_ns=50 * MS)).remarks
    assert "do not differ by a constant offset and drift" in remark
    assert compare_taps(ingress, stamped(egress, step_ns=-50 * MS)).problem.startswith("the clocks differ")


@st.composite
def delays(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Times, delays, which are forward, and by how much the clocks drift apart."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(2, 400))
    forward = rng.random(n) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    forward[:2] = True, False
    takes = rng.exponential(draw(st.sampled_from([1e3, 1e6, 1e8])), n) * (rng.random(n) < 0.8)
    takes[~forward] *= draw(st.sampled_from([0.0, 1e-3, 1.0]))
    ts = np.sort(rng.integers(0, draw(st.sampled_from([10**9, 10**11, 10**13])) + 1, n)) + 10**18
    drift_ppm = draw(st.sampled_from([0.0, 0.0, 40.0, -400.0]))
    offset = draw(st.sampled_from([0, -(10**6), 10**9])) + drift_ppm * 1e-6 * (ts - ts[0])
    return ts, offset + np.where(forward, takes, -takes), forward, drift_ppm


@settings(max_examples=examples(300), deadline=None)
@given(delays())
def test_the_true_drift_is_within_bounds_and_the_line_between_the_packets(case):
    ts, delay, forward, drift_ppm = case
    clocks = tap_clocks.fit_clocks(ts, delay, forward)
    low, high = clocks.drift_bounds_ppm
    assert low - 1e-3 <= drift_ppm <= high + 1e-3
    assert clocks.noise_ns <= 1_001  # what is less than the resolution of time stamps is no drift
    line = clocks.line_ns(ts)
    low, high = clocks.offset_ns
    slack = clocks.noise_ns + (high - low) / 2 + 1
    assert (delay[forward] >= line[forward] - slack).all()
    assert (delay[~forward] <= line[~forward] + slack).all()


@settings(max_examples=examples(200), deadline=None)
@given(delays())
def test_lines_are_those_of_linear_programmes(case):
    """Moon, Skelly and Towsley's programme for one direction; the one with least noise for both."""
    ts, delay, forward, _ = case
    t = (ts - ts.min()) / max(ts.max() - ts.min(), 1) - 0.5
    x = (delay - np.median(delay)).astype(float) / max(np.ptp(delay), 1)
    floors = []
    for s, y in (t[forward], x[forward]), (t[~forward], -x[~forward]):
        floors.append(tap_clocks._floor(s, y))
        if len(floors[-1]) > 1:
            best = linprog([-1, -s.mean()], np.column_stack([np.ones_like(s), s]), y, bounds=(None, None))
            slope, gap = tap_clocks._nearest(s, y, floors[-1])
            assert gap == pytest.approx(y.mean() + best.fun, abs=1e-6)
            offset = (y - slope * s).min()
            assert offset + slope * s.mean() == pytest.approx(-best.fun, abs=1e-6)
    noise, _ = tap_clocks._room(*floors, 5.0)
    sign = np.where(forward, 1.0, -1.0)
    left = np.column_stack([sign, sign * t, -np.ones(len(t))])
    best = linprog([0, 0, 1], left, sign * x, bounds=[(None, None), (-5, 5), (0, None)])
    assert noise == pytest.approx(best.fun, abs=1e-6)


# --- one direction only ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
def test_one_direction_only(name):
    ingress, egress = (one_way(tap) for tap in taps(name))
    lost = compare_taps(ingress, egress).forward.missing
    right = compare_taps(ingress, egress)
    assert right.problem is None and not right.order_known and right.clocks.offset_ns is None
    assert "propagation delay" in right.clocks_in_words()
    swapped = compare_taps(egress, ingress)
    assert ("never reached the ingress tap" in swapped.problem) == (lost >= 10)
    assert swapped.problem.startswith(
        "these look swapped" if lost >= 10 else "these look swapped, or the egress tap's clock is behind"
    )
    behind = compare_taps(ingress, stamped(egress, -1000 * MS))
    if lost >= 10:
        assert behind.problem.startswith("the clocks differ too much") and "swapped" not in behind.problem
    else:
        assert "swapped, or" in behind.problem
    assert remedy_ns(behind.problem) == pytest.approx(1000 * MS, abs=5_000)
    (remark,) = compare_taps(ingress, stamped(egress, 9_000 * MS)).remarks
    assert "cannot be told from propagation delay" in remark
    strays = compare_taps(egress, stamped(ingress, 5_000 * MS)).remarks
    assert any("not seen by the ingress tap" in remark for remark in strays) == (lost >= 10)


@pytest.mark.parametrize("tap", [0, 1])
def test_a_snap_length_that_cuts_the_timestamps_of_one_tap_changes_nothing(tap: int, tmp_path: Path) -> None:
    whole = taps("cubic")
    short = tmp_path / "short.pcap"
    cct.filter_capture(whole[tap].meta.path, short, cct.Selection(), snaplen=60)
    cut = list(whole)
    cut[tap] = cct.read_capture(short)
    assert not cut[tap].columns["has_ts"].any()
    found, expected = compare_taps(*cut), compare_taps(*whole)
    assert (found.problem, found.recognised, found.remarks) == (None, 1.0, expected.remarks)
    assert found.forward.missing == expected.forward.missing
    pd.testing.assert_frame_equal(cct.queue_delay(*cut), cct.queue_delay(*whole))


# --- other traffic --------------------------------------------------------------------------------------------


def test_other_traffic_has_nothing_in_common():
    names = ["mixed", "three-ccas-ipv6", "fq-codel-ecn", "testbed/bbr", "testbed/rtt-reno"]
    for one in names:
        for other in names:
            if one != other:
                problem = compare_taps(taps(one)[0], taps(other)[1]).problem
                assert "in common" in problem, (one, other)


def test_other_traffic_that_begins_alike():
    """In virtual time two runs with one seed are one, until their congestion controls part."""
    problem = compare_taps(taps("testbed/bbr")[0], taps("testbed/cubic")[1]).problem
    assert problem.startswith("only ") and "different traffic" in problem


def test_nothing_in_common_says_why():
    ingress, egress = taps("cubic")
    apart = compare_taps(ingress.select(stop_s=4), egress.select(start_s=6)).problem
    assert "no packet in common" in apart and "begins 2 s after the other ends" in apart
    assert "address translation" in compare_taps(ingress, elsewhere(egress)).problem
    other = Capture(egress.columns | {"seq": egress.columns["seq"] + np.uint32(7)}, egress.keys, egress.meta)
    assert "offload" in compare_taps(ingress, other).problem


def test_an_empty_tap_and_datagrams_alone_prove_nothing():
    ingress, egress = taps("cubic")
    nothing = egress.select(start_s=1e6)
    for one, other in ((ingress, nothing), (nothing, egress), (nothing, nothing)):
        assert compare_taps(one, other) == TapComparison()
    datagrams = [tap.rows(tap.columns["tcp_flags"] == 0) for tap in taps("mixed")]
    assert compare_taps(*datagrams).problem is None
    assert compare_taps(datagrams[0], taps("testbed/udp-abuse")[1].select(protocol="udp")).problem


def test_the_same_capture_twice_is_reported():
    (remark,) = compare_taps(taps("reno")[0], taps("reno")[0]).remarks
    assert "given twice" in remark


def test_half_of_the_packets_unrecognised_is_reported():
    ingress, egress = taps("cubic")
    data = egress.columns["payload_bytes"] > 0
    cut = Capture(
        egress.columns | {"payload_bytes": egress.columns["payload_bytes"] - data.astype(np.uint32)},
        egress.keys,
        egress.meta,
    )
    found = compare_taps(ingress, cut)
    assert found.problem is None
    assert found.recognised == pytest.approx((~data).mean(), abs=0.02)
    assert any("offload" in remark for remark in found.remarks)


# --- how it is computed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOME)
def test_not_a_matter_of_batches_nor_of_flow_numbers(name):
    ingress, egress = taps(name)
    whole = compare_taps(ingress, egress)
    comparer = TapComparer()
    edges = np.linspace(0, 1, 6)
    for a, b in itertools.pairwise(edges):
        parts = []
        for tap in (ingress, egress):
            rows = np.zeros(len(tap), np.bool_)
            rows[int(a * len(tap)) : int(b * len(tap))] = True
            parts.append(tap.rows(rows))
        comparer.update(*parts)
    assert comparer.result() == whole
    assert comparer.result() == whole  # asking changes nothing
    run = cct.load_run(TRACES / name)  # flows have common numbers
    tables = dict(vars(compare_taps(run.ingress.packets, run.egress.packets)))
    assert tables.pop("forward").packets == whole.forward.packets
    assert tables["clocks"] == whole.clocks


@pytest.mark.parametrize("room", [64, 1000, 5000])
@pytest.mark.parametrize("name", SOME)
def test_a_sample_says_the_same(name, room, monkeypatch):
    monkeypatch.setattr(tap_comparison, "_ROOM", room)
    ingress, egress = taps(name)
    some = compare_taps(ingress, egress)
    assert some.problem is None and some.sampled < 1 and room / 5 < some.common < room
    assert compare_taps(egress, ingress).problem.startswith("these look swapped")
    assert compare_taps(ingress, stamped(egress, 3_600_000 * MS)).problem.startswith("the clocks differ")
    low, _ = some.clocks.offset_ns
    assert -30_000 < low - some.clocks.noise_ns <= low < 30_000  # the fewer packets, the less they tell


def test_the_sample_is_the_same_at_both_taps(monkeypatch):
    """Trajectory sampling: of what both taps saw, what one keeps the other keeps."""
    monkeypatch.setattr(tap_comparison, "_ROOM", 1000)
    ingress, egress = taps("bbr")
    samples = []
    for tap in (ingress, egress, ingress.select(start_s=3)):
        sample = tap_comparison._Sample()
        sample.take(tap.columns, np.zeros(0, np.int64))
        samples.append(sample)
    largest = min(sample.largest for sample in samples)
    kept = [set(sample.below(largest)["identity"].tolist()) for sample in samples]
    assert kept[1] <= kept[0] and kept[2] <= kept[0]
    assert len(kept[1]) > 0.9 * len(kept[0])


# --- whoever takes two taps -----------------------------------------------------------------------------------


def slots(before: Any, behind: Any, **more: Any) -> Any:
    return cct.compute_slots(before, behind, 100, **more)


def summary(before: Any, behind: Any, **more: Any) -> Any:
    return cct.summarise(before, egress=behind, **more)


def recording(before: Any, behind: Any, **more: Any) -> Any:
    labels = before.flows[["flow_id"]].assign(cca="reno")
    return record(before, behind, labels, slot_ms=100, **more)


def live(before: Any, behind: Any, **more: Any) -> Any:
    return CaptureCollector(before, behind, **more)


def named(before: Any, behind: Any, **more: Any) -> Any:
    return cct.identify.classify_flows(before, behind, seconds=3, **more)


USERS = [slots, cct.queue_delay, cct.queue_loss, summary, recording, live, named]


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS, ids=lambda user: user.__name__)
def test_functions_of_two_taps_refuse_swapped_ones_and_other_traffic(user: Callable[..., Any]):
    ingress, egress = taps("reno")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        user(ingress, egress)
    with pytest.raises(ParameterError, match="these look swapped"):
        user(egress, ingress)
    with pytest.raises(ParameterError, match="in common"):
        user(ingress, taps("testbed/bbr")[1])
    user(egress, ingress, check_taps=False)
    with pytest.warns(TapClockWarning, match="ahead of"):
        user(ingress, stamped(egress, 5 * MS))


def test_a_page_says_what_is_known_of_the_clocks():
    ingress, egress = taps("reno")
    assert any("clocks agree to within" in note for note in cct.summarise(ingress, egress=egress).notes)
    with pytest.warns(TapClockWarning):
        notes = cct.summarise(ingress, egress=stamped(egress, 5 * MS)).notes
    assert sum("ahead of the ingress tap's by 5 ms" in note for note in notes) == 1
    notes = cct.summarise(egress, egress=ingress, check_taps=False).notes
    assert any("accepted, but these look swapped" in note for note in notes)


def test_a_run_from_a_swapped_pair_is_refused(tmp_path: Path):
    ingress, egress = (TRACES / f"reno.{tap}.pcap.gz" for tap in ("ingress", "egress"))
    (tmp_path / "x.ingress.pcap.gz").symlink_to(egress)
    (tmp_path / "x.egress.pcap.gz").symlink_to(ingress)
    with pytest.raises(ParameterError, match="these look swapped"):
        cct.load_run(tmp_path)
    assert len(cct.load_run(tmp_path, check_taps=False).egress) == len(cct.read_capture(ingress))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "slots {0} {1} --slot-ms 100 -o {2}/slots.csv",
        "report {0} --egress {1} --model none -o {2}/page.html",
        "classify {0} {1} --seconds 3",
        "flows {0} --cca --egress {1}",
        "live --from-capture {0} --from-capture {1} --no-classify -f jsonl",
        "dataset add {2}/set {0} {1} --labels {3} --name it",
    ],
    ids=lambda command: command.split()[0],
)
def test_commands_end_with_one_line_and_status_1(command, tmp_path, monkeypatch, capfd):
    ingress, egress = (TRACES / f"reno.{tap}.pcap.gz" for tap in ("ingress", "egress"))
    labels = tmp_path / "labels.csv"
    labels.write_text("src,cca\n10.1.0.10,reno\n")

    def status(*captures: Path, more: str = "") -> int:
        words = (command + more).format(*captures, tmp_path, labels).split()
        monkeypatch.setattr(sys, "argv", ["cct", *words])
        try:
            cli.main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    for pair in ((egress, ingress), (ingress, TRACES / "testbed" / "bbr.egress.pcap.gz")):
        assert status(*pair) == 1
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1 and err.startswith("cct: ingress, egress: "), err
    assert {p.name for p in tmp_path.iterdir()} == {"labels.csv"}  # nothing half done
    assert status(egress, ingress, more=" --trust-taps") == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("command", ["slots", "report", "classify"])
def test_commands_refuse_an_egress_capture_without_packets(command, tmp_path, monkeypatch, capfd):
    empty = tmp_path / "empty.pcap"
    cct.write_pcap(empty, taps("reno")[0].select(start_s=1e6))
    ends = {"slots": [], "report": ["--egress"], "classify": []}[command]
    output = ["-o", str(tmp_path / "page.html")] if command == "report" else []
    monkeypatch.setattr(sys, "argv", ["cct", command, *output, taps("reno")[0].meta.path, *ends, str(empty)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(empty) in line


def test_a_flow_with_a_single_common_packet_says_nothing_of_the_clocks():
    """Behind a standing queue, the clocks' bounds are wide: a lone SYN within them goes the way of the others."""
    udp, bulk = cct.Flow("udp", rate_mbps=14, rtt_ms=20), cct.Flow("cubic", rtt_ms=20, start_s=0.3, count=4)
    lone = cct.Flow("cubic", rtt_ms=20, loss=1)
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100), flows=[lone, udp, bulk], duration_s=0.99
    )
    run = cct.simulate(scenario)
    found = cct.compare_taps(run.ingress, run.egress)
    assert found.problem is None and found.clocks.certain_offset_ns == 0
    assert found.clocks.offset_ns[0] <= 0 <= found.clocks.offset_ns[1]
