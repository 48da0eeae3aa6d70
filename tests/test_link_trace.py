"""Recorded links: rates from Mahimahi's traces and from times and rates, checked by what a link then carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import cctoolkit as cct
from cctoolkit.errors import ParameterError

MBPS = 1514 * 8e-3  # one packet a millisecond


def written(path: Path, lines: list[object]) -> Path:
    path.write_text("\n".join(map(str, lines)) + "\n")
    return path


def carried_bytes(rates: tuple[tuple[float, float], ...], end_s: float) -> float:
    at_s, mbps = (np.array(column) for column in zip(*rates, strict=True))
    return float((np.diff(np.append(at_s, end_s)) * mbps).sum() * 1e6 / 8)


def test_a_packet_each_millisecond_is_12_mbps(tmp_path: Path) -> None:
    """Mahimahi's own example of a constant rate: a file with just "1", repeated."""
    rates = cct.read_link_trace(written(tmp_path / "constant", [1]), duration_s=1, step_s=0.001)
    assert rates == ((0.0, pytest.approx(MBPS)),)


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=200).filter(any), st.sampled_from([0.01, 0.1, 0.37])
)
@settings(deadline=None)
def test_every_opportunity_counts_once(at_ms: list[int], step_s: float) -> None:
    """The naive twin counts packets step by step."""
    path = written(Path("link.down"), sorted(at_ms))
    rates = cct.read_link_trace(path, step_s=step_s)
    assert rates[0][0] == 0
    at = [t for t, _ in rates]
    assert at == sorted(set(at))
    edge_ns, empty = 0, 0.0
    period_ns, step_ns = max(at_ms) * 10**6, round(step_s * 1e9)
    while edge_ns < period_ns:
        end_ns = min(edge_ns + step_ns, period_ns)
        last = end_ns == period_ns
        packets = sum(edge_ns <= ms * 10**6 < end_ns or (last and ms * 10**6 == end_ns) for ms in at_ms)
        seconds = (end_ns - edge_ns) / 1e9
        mbps = next(mbps for t, mbps in reversed(rates) if round(t * 1e9) <= edge_ns)
        assert mbps == pytest.approx(max(packets / seconds, 1 / step_s) * 1514 * 8e-6)
        empty += max(seconds / step_s - packets, 0)
        edge_ns = end_ns
    # where the link stands still, it has at most a packet a step more
    packets_there = carried_bytes(rates, max(at_ms) / 1000) / 1514
    assert len(at_ms) - 1e-6 <= packets_there <= len(at_ms) + empty + 1e-6


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_trace_is_repeated_and_cut() -> None:
    path = written(Path("link.down"), [*range(100), *range(100, 200, 10), 200])
    once = cct.read_link_trace(path)
    assert once == ((0.0, pytest.approx(MBPS)), (0.1, pytest.approx(11 / 100 * MBPS)))
    rates = cct.read_link_trace(path, duration_s=0.5)
    assert [t for t, _ in rates] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert cct.read_link_trace(path, duration_s=0.05) == once[:1]


@pytest.mark.parametrize("separator", [" ", "\t", ", "])
def test_times_and_rates(separator: str) -> None:
    path = written(
        Path("cooked"), ["# time, rate", *(f"{t}{separator}{r}" for t, r in [(5, 4.5), (6, 0), (8, 2)])]
    )
    least = 1514 * 8e-6 / 0.1
    assert cct.read_link_trace(path) == ((0.0, 4.5), (1.0, pytest.approx(least)), (3.0, 2.0))
    assert cct.read_link_trace(path, duration_s=6)[3:] == ((4.5, 4.5), (5.5, pytest.approx(least)))


def test_a_flow_gets_what_the_trace_gives() -> None:
    """Datagrams faster than the link: it carries what the trace has, second by second."""
    dice = np.random.default_rng(3)
    at_ms = np.sort(dice.choice(np.repeat(np.arange(4000), 2), 3000, replace=False))
    path = written(Path("lte.down"), at_ms.tolist())
    rates = cct.read_link_trace(path, duration_s=8)
    link = cct.Bottleneck(rate_mbps=rates[0][1], rate_schedule=rates, buffer_packets=50)
    flood = cct.Flow("udp", rate_mbps=50, rtt_ms=10)
    run = cct.simulate(cct.Scenario(bottleneck=link, flows=[flood], duration_s=8))
    left_s = run.egress.columns["ts_ns"] / 1e9
    per_second = np.histogram(left_s, np.arange(0, 9))[0]
    given = np.histogram(at_ms / 1e3, np.arange(0, 5))[0]
    np.testing.assert_allclose(per_second, np.tile(given, 2), atol=6)
    assert run.summary()["utilisation"] > 0.98


def test_a_scenario_file_names_a_trace(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    path = written(tmp_path / "links" / "lte.down", [*range(1, 101), 300])
    text = (
        'duration_s = 1\n[bottleneck]\nlink_trace = "lte.down"\nbuffer_packets = 9\n[[flows]]\ncca = "reno"\n'
    )
    file = tmp_path / "links" / "lte.toml"
    file.write_text(text)
    scenario = cct.read_scenario(file)
    expected = cct.read_link_trace(path, duration_s=1)
    assert ((0.0, scenario.bottleneck.rate_mbps), *scenario.bottleneck.rate_schedule) == expected
    again = tmp_path / "again.toml"
    again.write_text(scenario.to_toml())  # complete without the trace
    assert cct.read_scenario(again) == scenario
    file.write_text(text.replace("buffer", "rate_mbps = 5\nbuffer"))
    with pytest.raises(
        ParameterError, match=r"lte\.toml: bottleneck\.rate_mbps: the rates are those of bottle"
    ):
        cct.read_scenario(file)
    file.write_text(text.replace("lte.down", "none.down"))
    with pytest.raises(ParameterError, match=r"lte\.toml: .*none\.down: No such file"):
        cct.read_scenario(file)
    file.write_text(text.replace("duration_s = 1\n", ""))
    with pytest.raises(ParameterError, match="duration_s"):
        cct.read_scenario(file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line has a time"),
        ("0\n0\n", "all times are 0"),
        ("5\n3\n", r"line 2: 3 is before the previous time"),
        ("5\nx\n", r"line 2: 'x' is not a time in ms"),
        ("5\n6 7\n", r"line 2: '6 7' is not a time in ms"),
        ("1.5\n", r"line 1: 1.5 is not a whole number of ms"),
        ("-1\n", r"line 1: '-1' is not a time in ms"),
        ("nan\n", r"line 1: 'nan' is not a time in ms"),
        ("1 2\n3\n", r"line 2: '3' is not a time in s and a rate in Mbit/s"),
        ("1 2 3\n", "line 1: '1 2 3' is not a time in s and a rate"),
        ("1 2\n", "expected at least two times"),
        ("1 2\n1 3\n", "expected at least two times"),
        ("1 2\n2 -3\n", r"line 2: '2 -3' is not"),
    ],
)
def test_what_is_no_trace_gets_one_line(text: str, says: str) -> None:
    Path("bad").write_text(text)
    with pytest.raises(ParameterError, match=rf"^bad: {says}"):
        cct.read_link_trace("bad")


def test_other_faults() -> None:
    Path("bad").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ParameterError, match=r"^bad: expected lines of numbers"):
        cct.read_link_trace("bad")
    with pytest.raises(ParameterError, match="Is a directory"):
        cct.read_link_trace(".")
    path = written(Path("long"), [1000])
    with pytest.raises(ParameterError, match="more than 1,000,000 steps"):
        cct.read_link_trace(path, duration_s=1e6)
    with pytest.raises(ParameterError, match="step_s"):
        cct.read_link_trace(path, step_s=0)
    with pytest.raises(ParameterError, match="duration_s"):
        cct.read_link_trace(path, duration_s=-1)
