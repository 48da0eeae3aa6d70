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


def naive_rates(at_ms: list[int], step_ms: int) -> list[tuple[int, int, float]]:
    """From, to (ms) and packets in between: step by step, a packet behind an empty step taking its time."""
    end = max(at_ms)
    found: list[tuple[int, int, float]] = []
    empty_from: int | None = None
    for start in range(0, end, step_ms):
        stop = min(start + step_ms, end)
        packets = sum(start <= ms < stop or ms == stop == end for ms in at_ms)
        if empty_from is not None and packets:
            packets -= 1
            until = end if packets == 0 and stop == end else start
            found.append((empty_from, until, max(1.0, (until - empty_from) / 1000)))
            empty_from = None
            if until == end:
                break
        if packets:
            found.append((start, stop, packets))
        elif empty_from is None:
            empty_from = start
    return found


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=200).filter(any), st.sampled_from([1, 10, 100, 370])
)
@settings(deadline=None)
def test_every_opportunity_counts_once(at_ms: list[int], step_ms: int) -> None:
    path = written(Path("link.down"), sorted(at_ms))
    rates = cct.read_link_trace(path, step_s=step_ms / 1000)
    at = [t for t, _ in rates]
    assert at[0] == 0
    assert at == sorted(set(at))
    expected = naive_rates(at_ms, step_ms)
    for start, stop, packets in expected:
        mbps = next(mbps for t, mbps in reversed(rates) if round(t * 1000) <= start)
        assert mbps == pytest.approx(packets / (stop - start) * MBPS)
    carried = carried_bytes(rates, max(at_ms) / 1000) / 1514
    assert carried == pytest.approx(sum(packets for *_, packets in expected))
    assert len(at_ms) - 1e-6 <= carried <= len(at_ms) + max(at_ms) / 1000
    if np.diff([0, *sorted(at_ms)]).max() + 2 * step_ms < 1000:
        assert carried == pytest.approx(len(at_ms))


def test_slow_links_are_as_slow(tmp_path: Path) -> None:
    """A packet each 240 ms (50 kbit/s) in steps of 100 ms."""
    rates = cct.read_link_trace(written(tmp_path / "slow.down", list(range(240, 24_001, 240))))
    assert carried_bytes(rates, 24.0) == pytest.approx(100 * 1514)
    assert max(mbps for _, mbps in rates) <= 1514 * 8e-6 / 0.2 + 1e-9


def test_an_outage_lasts(tmp_path: Path) -> None:
    """Four packets at once after five seconds: they do not leave before, but for one a second."""
    path = written(tmp_path / "outage.down", [*range(100), 5000, 5000, 5000, 5000, 5100])
    assert cct.read_link_trace(path) == (
        (0.0, pytest.approx(MBPS)),
        (0.1, pytest.approx(MBPS / 1000)),
        (5.0, pytest.approx(4 * MBPS / 100)),
    )


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
    least = 1514 * 8e-6  # a packet a second
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
    path = written(Path("long"), list(range(1, 1001)))
    with pytest.raises(ParameterError, match="more than 1,000,000 steps"):
        cct.read_link_trace(path, duration_s=1e6, step_s=0.001)
    with pytest.raises(ParameterError, match="step_s"):
        cct.read_link_trace(path, step_s=0)
    with pytest.raises(ParameterError, match="duration_s"):
        cct.read_link_trace(path, duration_s=-1)
