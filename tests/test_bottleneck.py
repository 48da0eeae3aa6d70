"""The bottleneck's rate and buffer against what is known of it: the shaper's setting, and the second tap's waits."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import cctoolkit as cct
from cctoolkit.report.bottleneck import Bottleneck, _two_sides, find_bottleneck
from cctoolkit.report.summary import Summary, summarise

TRACES = Path(__file__).parents[1] / "traces"
PAIRS = sorted(str(p.relative_to(TRACES)).split(".ingress.")[0] for p in TRACES.rglob("*.ingress.pcap.gz"))


def rate_mbps(name: str) -> float:
    scenario = TRACES / f"{name}.scenario.toml"
    if scenario.exists():
        return tomllib.loads(scenario.read_text())["bottleneck"]["rate_mbps"]
    manifest = tomllib.loads((TRACES / "MANIFEST.toml").read_text())
    return next(capture["rate_mbps"] for capture in manifest["capture"] if capture["name"] == name)


def dropped_share(name: str) -> float:
    """Of what comes to the queue; 0 where it is not counted."""
    entries = tomllib.loads((TRACES / "testbed" / "MANIFEST.toml").read_text())["capture"]
    found = [e["queue_dropped"] / e["queue_sent"] for e in entries if name == f"testbed/{e['name']}"]
    return found[0] if found else 0.0


def path(name: str, tap: str) -> Path:
    return TRACES / f"{name}.{tap}.pcap.gz"


@cache
def both_taps(name: str) -> Summary:
    return summarise(path(name, "ingress"), egress=path(name, "egress"))


@cache
def found(name: str) -> tuple[Bottleneck | None, Bottleneck | None]:
    return find_bottleneck(summarise(path(name, "ingress"))), find_bottleneck(both_taps(name))


#: One of each kind: loss-based, model-based, delay-based, an AQM, two flows, a long path.
FEW = ["bufferbloat", "bbr", "testbed/nv", "testbed/aqm-red", "testbed/reno-cubic", "testbed/rtt-bbr"]
REST = [pytest.param(name, marks=pytest.mark.slow) for name in PAIRS if name not in FEW]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FEW, *REST])
def test_rate_and_buffer_of_real_queues(name):
    one, two = found(name)
    waited = both_taps(name).two_taps.queue_delay["delay_ns"].max()
    if one is not None:  # what is dropped counts, too
        assert 0.96 < one.rate * 8e-6 / rate_mbps(name) < 1 + max(0.04, dropped_share(name))
        assert one.buffer_ns <= 1.02 * waited
    if two is not None:
        assert two.rate * 8e-6 == pytest.approx(rate_mbps(name), rel=0.02)
        assert two.buffer_ns == waited


@pytest.mark.slow
def test_most_are_found_and_most_to_a_percent():
    one, two = zip(*(found(name) for name in PAIRS), strict=True)
    off = [
        abs(b.rate * 8e-6 / rate_mbps(name) - 1) for b, name in zip(one, PAIRS, strict=True) if b is not None
    ]
    assert len(off) >= 30
    assert np.quantile(off, 0.9) < 0.01
    assert sum(b is not None for b in two) >= 40


def test_behind_the_queue_nothing_is_known():
    for name in FEW:
        assert find_bottleneck(summarise(path(name, "egress"))) is None


def test_a_link_that_changes_has_no_rate():
    assert found("testbed/rate-change") == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize("cca", ["reno", "cubic", "bbr"])
@pytest.mark.parametrize("rate", [2, 20])
def test_simulated_links(cca, rate):
    link = cct.Bottleneck(rate_mbps=rate, buffer_packets=round(rate * 12))
    scenario = cct.Scenario(bottleneck=link, flows=[cct.Flow(cca, rtt_ms=30, count=2)], duration_s=10)
    run = cct.simulate(scenario, record=True)
    one = find_bottleneck(summarise(run.ingress))
    two = find_bottleneck(summarise(run.ingress, egress=run.egress))
    deepest_ns = 1e9 * 8 * link.buffer_packets * 1514 / (rate * 1e6)
    for b in (one, two):
        if b is not None:
            assert b.rate * 8e-6 == pytest.approx(rate, rel=0.04)
            assert b.buffer_ns <= 1.05 * deepest_ns
    assert two is not None


def test_a_queue_of_traffic_that_the_tap_does_not_see():
    """An application writes 5 Mbit/s through a link of 100 Mbit/s, which others fill: not a link of 5 Mbit/s."""
    others = [cct.Flow("cubic", rtt_ms=rtt, start_s=4, stop_s=20) for rtt in (15, 20, 31, 40)]
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=100, buffer_packets=500),
        flows=[cct.Flow("cubic", rtt_ms=20, rate_mbps=5), *others],
        duration_s=24,
    )
    seen = cct.simulate(scenario, record=True).ingress
    summary = summarise(seen.rows(seen.columns["flow_id"] == 0))
    assert len(summary.standing_queue) and not len(summary.idle)
    assert find_bottleneck(summary) is None


def test_a_path_that_becomes_longer_is_no_queue(tmp_path):
    """A window of 64 kB: after 5 s each round trip takes three times as long, and nothing waits anywhere."""
    link = cct.Bottleneck(rate_mbps=100, buffer_packets=500)
    flow = cct.Flow("cubic", rtt_ms=20, max_window=44, access_mbps=27)
    seen = cct.simulate(cct.Scenario(bottleneck=link, flows=[flow], duration_s=12), record=True).ingress
    ts_ns = seen.columns["ts_ns"]
    change_ns = ts_ns[0] + 5 * 10**9
    columns = {**seen.columns, "ts_ns": np.where(ts_ns < change_ns, ts_ns, 3 * ts_ns - 2 * change_ns)}
    cct.write_pcap(tmp_path / "longer.pcap", columns, seen.keys)
    summary = summarise(tmp_path / "longer.pcap")
    assert len(summary.standing_queue) and not len(summary.idle)
    assert find_bottleneck(summary) is None


def test_traffic_beside_keeps_it_silent():
    """A single flow out of two says nothing of the link that both use."""
    cap = cct.read_capture(path("reno", "ingress"))
    assert find_bottleneck(summarise(cap)) is not None
    both = cct.read_capture(path("testbed/reno-cubic", "ingress"))
    summary = summarise(both, top=1)
    assert find_bottleneck(summary) is None


def test_sides_of_a_tap():
    import pandas as pd

    flows = pd.DataFrame(
        {
            "flow_id": [0, 1, 2, 3],
            "src": ["10.0.1.1", "10.0.2.2", "10.0.1.9", "192.0.2.1"],
            "dst": ["10.0.2.1", "10.0.1.7", "10.0.3.1", "198.51.100.1"],
        }
    )
    sides = _two_sides(flows, (24, 64))
    assert sides is not None
    assert sides[0] == sides[2] and sides[0][0] == sides[1][0] and sides[0][1] != sides[1][1]
    assert sides[3][0] != sides[0][0]
    same = pd.DataFrame({"flow_id": [0], "src": ["10.0.1.1"], "dst": ["10.0.1.2"]})
    assert _two_sides(same, (24, 64)) is None and _two_sides(same, (32, 128)) is not None
    circle = pd.DataFrame({"flow_id": [0, 1, 2], "src": list("abc"), "dst": list("bca")}).replace(
        {"a": "10.0.0.1", "b": "10.1.0.1", "c": "10.2.0.1"}
    )
    assert _two_sides(circle, (24, 64)) is None
