"""The RTT paper's tests as an experiment: what is measured, on cases small enough to know the answer, and the whole."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.errors import CaptureFormatError, ParameterError
from cctoolkit.experiments import experiment, rtt_separation as rtt
from cctoolkit.experiments.rtt_separation import logs
from cctoolkit.experiments.rtt_separation.cases import LIMITS

PUBLISHED = Path(__file__).parents[2] / "shared" / "published"
FAST = rtt.Settings(fast=True, seeds=1, scale=0.002)
TESTBED = rtt.Settings(testbed=True, seeds=1)


def outcome(
    flows: list[cct.Flow], scheme: str = "one queue", duration_s: float = 6, **options: object
) -> rtt.Outcome:
    bottleneck = cct.Bottleneck(rate_mbps=50, buffer_bytes=200_000)
    scenario = cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=duration_s)
    return rtt.Case({"scheme": scheme}, scenario, k=2, options=options).run()


def test_rates_and_utilisation_are_what_udp_sends() -> None:
    """Two UDP flows of 10 and 5 Mbit/s through 50: known rates, a known part of the link, no queue."""
    o = outcome([cct.Flow("udp", rate_mbps=10, name="a"), cct.Flow("udp", rate_mbps=5, start_s=3, name="b")])
    payload = (1514 - 42) / 1514
    assert o.mean_mbps(1, 3).to_numpy() == pytest.approx([10 * payload, 0], rel=0.01)
    assert o.mean_mbps(4, 6, "name").to_dict() == pytest.approx(
        {"a": 10 * payload, "b": 5 * payload}, rel=0.01
    )
    assert o.utilisation(1, 3) == pytest.approx(0.2, rel=0.01)
    assert o.utilisation(4, 6) == pytest.approx(0.3, rel=0.01)
    assert o.queue_ms(1, 3) < 0.3
    assert o.changes() == 0


def test_hard_limits_leave_the_link_idle() -> None:
    flows = [cct.Flow("cubic", rtt_ms=10), cct.Flow("cubic", rtt_ms=40, stop_s=4)]
    shared = outcome(flows, "RTT", 12, long_bytes=100_000)
    limited = outcome(flows, "RTT, hard limits", 12, long_bytes=100_000)
    assert shared.utilisation(8, 12) > 0.98
    assert limited.utilisation(8, 12) == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("scheme", rtt.SCHEMES)
def test_every_scheme_has_its_controller(scheme: str) -> None:
    case = rtt.Case({"scheme": scheme}, rtt.PARTS[5].scenarios(FAST)[0].scenario)
    assert (case.controller() is None) == (scheme == "one queue")


@pytest.mark.parametrize(
    ("test", "options"),
    [*((t, FAST) for t in rtt.TITLES if t != rtt.SCALING), *((t, TESTBED) for t in rtt.TESTBED_TESTS)],
)
def test_all_schemes_get_the_same_traffic(test: int, options: rtt.Settings) -> None:
    """A comparison is one only on the same scenario: within a test, cases differ in what their columns say."""
    cases = rtt.PARTS[test].scenarios(options)
    varied = {"scheme", "queues", "shares", "where"}
    by_traffic: dict[str, set[str]] = {}
    for case in cases:
        key = json.dumps({k: v for k, v in case.about.items() if k not in varied})
        by_traffic.setdefault(key, set()).add(case.scenario.to_toml())
    assert all(len(scenarios) == 1 for scenarios in by_traffic.values())
    assert len({json.dumps(case.about) for case in cases}) == len(cases)


def test_sample_transfers_are_what_they_say() -> None:
    scenario = rtt.sample_transfers(rtt.Settings(), n=2000)
    sizes = np.array([f.bytes for f in scenario.flows])
    rtts = np.array([f.rtt_ms for f in scenario.flows])
    assert sizes.min() >= 150e6 and sizes.max() <= 2e9
    assert rtts.min() >= 1 and rtts.max() <= 224
    # the bounded Pareto's median, by its distribution function
    median = 150e6 * (1 - 0.5 * (1 - (150e6 / 2e9) ** 1.1)) ** (-1 / 1.1)
    assert np.median(sizes) == pytest.approx(median, rel=0.05)
    assert np.median(rtts) == pytest.approx(40, rel=0.1)
    last = max(f.start_s for f in scenario.flows)
    assert sizes.sum() * 8e-6 * 1514 / 1448 / 1000 / last == pytest.approx(0.9, rel=0.01)


def test_transfers_of_a_capture(tmp_path: Path) -> None:
    """Test 4 takes starts, volumes and RTTs from a capture."""
    flows = [cct.Flow("cubic", rtt_ms=r, bytes=400_000, start_s=s) for r, s in ((10, 0), (30, 0.5), (50, 1))]
    bottleneck = cct.Bottleneck(rate_mbps=50, buffer_packets=300)
    made = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=4))
    made.egress.to_pcap(tmp_path / "day.pcap.gz")
    settings = rtt.Settings(fast=True, scale=1.0, capture=tmp_path / "day.pcap.gz", min_bytes=300_000)
    scenario = rtt.PARTS[4].scenarios(settings)[0].scenario
    assert [f.bytes for f in scenario.flows] == [400_000] * 3
    assert [f.rtt_ms for f in scenario.flows] == pytest.approx([10, 30, 50], abs=0.5)


def test_the_papers_day_is_taken_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    day = tmp_path / "mawi" / "samplepoint-F" / "202402151400.pcap.gz"
    day.parent.mkdir(parents=True)
    day.write_bytes(b"no capture")
    with pytest.raises(CaptureFormatError, match=day.name):
        experiment("rtt-separation")(tmp_path / "out", test=[4])


def test_what_test_4_depends_on() -> None:
    """Made-up completion times: each condition is compared with its own one queue, where it has one, by sample."""
    settings = rtt.Settings(fast=True, seeds=2)
    found = []
    for case in rtt.PARTS[8].scenarios(settings):
        one, other = case.about["scheme"] == "one queue", case.about["condition"] == "load 3"
        seconds = {True: 10.0, False: {1: 9.0, 2: 6.0}[case.about["seed"]]}[one] * (2 if other and one else 1)
        flows = pd.DataFrame({"completion_s": [seconds] * 4, "received_bytes": [1e6, 1e6, 1e6, 2e6]})
        found.append(rtt.Outcome(case, flows, pd.DataFrame(), pd.DataFrame(), []))
    table = rtt.PARTS[8].tables(settings, found)["test8"].set_index("condition")
    plain, late = table.loc["shares by RTT"], table.loc["load 3"]
    assert (plain.fct_reduction, plain.least, plain.most) == pytest.approx((0.25, 0.1, 0.4))
    assert (late.fct_reduction, late.least, late.most) == pytest.approx((0.625, 0.55, 0.7))
    assert (plain.one_queue_fct_s, plain.separated_fct_s) == pytest.approx((10, 7.5))
    assert plain.one_queue_jain_of_slowdown == pytest.approx(3.5**2 / (4 * 3.25))


def test_conditions_change_one_thing() -> None:
    cases = {
        c.about["condition"]: c
        for c in rtt.PARTS[8].scenarios(rtt.Settings(seeds=1))
        if c.about["scheme"] == "RTT"
    }
    usual = cases["as in test 4"].scenario
    for name, parts in (("load 3", 0.3), ("load 0.6", 1.5)):
        flows = cases[name].scenario.flows
        assert [f.bytes for f in flows] == [f.bytes for f in usual.flows]
        assert flows[-1].start_s == pytest.approx(parts * usual.flows[-1].start_s, rel=1e-3)
    for name, bdps in (("one queue of 4 BDP", 4), ("one queue of BDP / 4", 0.25)):
        room = cases[name].scenario.bottleneck.buffer_bytes
        assert room == pytest.approx(bdps * usual.bottleneck.buffer_bytes, abs=1)
        assert cases[name].scenario.flows == usual.flows
    assert cases["shares by RTT"].controller().shares == "rtt"
    assert cases["one class, beginners apart"].controller().k == 1


def test_traffic_of_test_9_is_what_it_says() -> None:
    cases = rtt.PARTS[9].scenarios(rtt.Settings(seeds=2))
    by = {(c.about["traffic"], c.about["seed"], c.about["scheme"]): c for c in cases}
    flood = by["4 CUBIC beside 300 spoofed UDP flows", 1, "RTT"].scenario
    assert [f.cca == "udp" for f in flood.flows] == [False] * 4 + [True] * 300
    assert sum(f.rate_mbps or 0 for f in flood.flows) == pytest.approx(3 * flood.bottleneck.rate_mbps)
    drawn = [[f.rtt_ms for f in by["20 CUBIC, random RTTs", seed, "RTT"].scenario.flows] for seed in (1, 2)]
    assert drawn[0] != drawn[1] and all(5 <= rtt <= 200 for rtts in drawn for rtt in rtts)
    jitter = {name: {f.jitter_ms for f in c.scenario.flows} for (name, _, _), c in by.items()}
    assert all(jitter[name] == ({0.5} if name.endswith("jitter") else {0.0}) for name in jitter)
    for case in cases:
        longest = max(f.rtt_ms for f in case.scenario.flows)
        link = case.scenario.bottleneck
        assert link.buffer_bytes == max(math.ceil(link.rate_mbps * 125 * longest), 15_140)
        guarded = case.about["scheme"] == "RTT and guard"
        assert getattr(case.controller(), "guard", False) == guarded


def test_what_test_9_measures() -> None:
    """Two TCP flows of 30 and 10 Mbit/s, and UDP, over nine seconds: only TCP counts, from the third second on."""
    case = next(c for c in rtt.PARTS[9].scenarios(FAST) if c.about["scheme"] == "one queue")
    case = dataclasses.replace(case, scenario=case.scenario.replace({"duration_s": 9}))
    flows = pd.DataFrame(
        {
            "flow_id": [0, 1, 2], "name": list("abc"), "cca": ["cubic", "cubic", "udp"],
            "retransmits": [3, 1, 7], "sent_packets": [150, 50, 1000],
        }
    )  # fmt: skip
    ts_ns = np.arange(1, 10) * 1_000_000_000
    rates = ([0] * 3 + [30] * 6, [40] * 3 + [10] * 6, [50] * 9)
    series = pd.concat(
        pd.DataFrame({"ts_ns": ts_ns, "flow_id": i, "received_bytes": np.cumsum(r) * 125_000})
        for i, r in enumerate(rates)
    )
    sent = np.cumsum([90] * 9) * 125_000
    queue = pd.DataFrame(
        {"ts_ns": ts_ns, "sent_bytes": sent, "sent_packets": sent // 1500, "delay_sum_ns": sent // 1500 * 4e6}
    )
    found = rtt.PARTS[9].tables(FAST, [rtt.Outcome(case, flows, series, queue, [])])["test9"].iloc[0]
    assert found.jain_index == pytest.approx(40**2 / (2 * 1000))
    assert (found.tcp_mbps, found.utilisation) == pytest.approx((40, 0.9))
    assert (found.retransmits_percent, found.queue_ms) == pytest.approx((2, 4))


def test_conclusions_of_test_9_come_out_either_way() -> None:
    def table(guard: float) -> pd.DataFrame:
        rows = []
        for name in rtt.scenarios.TRAFFIC:
            for scheme, jain in (("one queue", 0.9), ("RTT", 0.8), ("RTT and guard", guard)):
                harmless = scheme == "RTT" and ("jitter" in name or (guard > 0.85 and "0.1 MB" in name))
                rows.append(
                    {
                        "traffic": name, "scheme": scheme, "jain_index": 0.9 if harmless else jain,
                        "jain_least": 1.0 if guard > 0.85 else 0.9,
                        "retransmits_percent": {"one queue": 1.0, "RTT": 3.0}.get(scheme, 5 - 4 * guard**4),
                        "queue_ms": {"one queue": 10.0, "RTT": 2.0}.get(scheme, 9.0),
                        "utilisation": 0.98 if scheme == "RTT and guard" and guard < 0.85 else 1.0,
                        "tcp_mbps": 1.0 if scheme == "one queue" else 1.0 + guard,
                    }
                )  # fmt: skip
        return pd.DataFrame(rows)

    good, bad = (rtt.PARTS[9].statements({"test9": table(guard)}) for guard in (1.0, 0.7))
    assert [s.holds for s in good] == [False, True, True, True, True, True, True, True, True, True]
    assert [s.holds for s in bad] == [False, False, False, False, False, False, False, False, False, True]
    assert "1000 CUBIC, random RTTs, 1 Gbit/s: 0.90 → 0.80" in good[0].measured


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the authors' logs are not here")
def test_bundles_and_pairs_come_from_the_logs() -> None:
    runs = pd.read_csv(PUBLISHED / "rtt-unfairness-runs.csv")
    goodput = pd.read_csv(PUBLISHED / "rtt-unfairness-goodput.csv.xz")
    for made, kept in ((logs.bundles, logs.logged_bundles), (logs.pairs, logs.logged_pairs)):
        pd.testing.assert_frame_equal(made(runs, goodput).round(3), kept())


def test_bundles_are_measured_while_all_of_them_are_there() -> None:
    """Two bundles a minute apart: 8 Gbit/s alone, then 6 and 2. The first ten seconds together do not count."""
    name = "four_flows/cubic_test/wo_separation/out"
    runs = pd.DataFrame({"run": [f"{name}1", f"{name}2"], "start_unix_s": [1000, 1060], "streams": [10, 4]})
    first = pd.DataFrame(
        {"run": f"{name}1", "second": range(120), "goodput_mbps": [8000.0] * 70 + [6000.0] * 50}
    )
    second = pd.DataFrame(
        {"run": f"{name}2", "second": range(60), "goodput_mbps": [9000.0] * 10 + [2000.0] * 50}
    )
    (row,) = logs.bundles(runs, pd.concat([first, second])).to_dict("records")
    assert (row["flows"], row["queues"], row["bundles"], row["streams"]) == ("CUBIC", "one", 2, "10+4")
    assert row["jain_index"] == pytest.approx(8**2 / (2 * 40))
    assert [row[name] for name in ("share_of_link", "least_share", "largest_share")] == pytest.approx(
        [0.8, 0.2, 0.6]
    )


def test_limits_in_tenths() -> None:
    """Three queues of three tenths each: a tenth of the link stays idle, whoever sends."""
    flows = [cct.Flow("cubic", rtt_ms=rtt) for rtt in (10, 20, 40)]
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=50, buffer_bytes=200_000), flows=flows, duration_s=12
    )
    o = rtt.Case({"scheme": "RTT, limits in tenths"}, scenario, k=3, options={"long_bytes": 100_000}).run()
    assert o.utilisation(8, 12) == pytest.approx(0.9, rel=0.02)
    assert [limit(4) for limit in LIMITS.values()] == [0.25, 0.2]


def test_bundles_of_test_10_are_the_logs() -> None:
    cases = rtt.PARTS[10].scenarios(rtt.Settings(seeds=1))
    for case in cases:
        streams = [f.count for f in case.scenario.flows]
        assert "+".join(map(str, streams)) == case.about["streams"]
        assert case.k == len(streams) == case.about["bundles"]
    assert {c.about["scheme"] for c in cases if c.about["streams"] == "8+8+3+16"} == {
        "one queue", "RTT", "RTT, limits in tenths",
    }  # fmt: skip


def test_conclusions_of_test_10_come_out_either_way() -> None:
    """With the logs' own numbers as if they were measured, and with ones that are off."""

    def table(off: float) -> pd.DataFrame:
        logged = logs.logged_bundles().rename(columns={"queues": "streams_with"})
        logged["scheme"] = logged.streams_with.map(rtt.scenarios.LOGGED_SCHEMES)
        kept = logged[logged.streams_with == "by RTT"].assign(
            scheme="RTT", jain_index=1 - off, share_of_link=0.95 - off
        )
        logged["share_of_link"] += off
        logged["jain_index"] -= off
        numbers = logs.logged_bundles()[["jain_index", "share_of_link", "largest_share"]]
        logged = logged.assign(**{f"logged_{name}": numbers[name] for name in numbers})
        both = pd.concat([logged, kept], ignore_index=True)
        return both.assign(jain_least=both.jain_index)

    good, bad = (rtt.PARTS[10].statements({"test10": table(off)}) for off in (0.0, 0.2))
    assert [s.holds for s in good] == [True] * 6
    assert [s.holds for s in bad] == [True] * 3 + [False] * 3
    half = table(0.0)
    half.loc[half.scheme == "RTT, limits in tenths", ["logged_share_of_link"]] = 0.5
    half.loc[half.scheme == "RTT, limits in tenths", ["logged_largest_share"]] = 0.25
    assert [s.holds for s in rtt.PARTS[10].statements({"test10": half})][:3] == [False] * 3


def test_what_test_11_measures() -> None:
    """Two bundles of two streams: 30 and 10 Mbit/s, from a third of the run on."""
    settings = rtt.Settings(fast=True, seeds=1)
    case = next(c for c in rtt.PARTS[11].scenarios(settings) if c.about["streams"] == 10)
    assert [f.count for f in case.scenario.flows] == [10, 10]
    names = [f"{f.rtt_ms:g} ms" for f in case.scenario.flows]
    flows = pd.DataFrame({"flow_id": range(4), "name": [names[0]] * 2 + [names[1]] * 2})
    ts_ns = np.arange(1, 16) * 1_000_000_000
    series = pd.concat(
        pd.DataFrame(
            {"ts_ns": ts_ns, "flow_id": i, "received_bytes": np.cumsum([40] * 5 + [rate] * 10) * 125_000}
        )
        for i, rate in enumerate((20, 10, 4, 6))
    )
    found = rtt.PARTS[11].tables(settings, [rtt.Outcome(case, flows, series, pd.DataFrame(), [])])["test11"]
    assert found[["share_of_short_rtt", "least", "most"]].iloc[0].tolist() == pytest.approx([0.75] * 3)


def test_conclusions_of_test_11_come_out_either_way() -> None:
    def table(share: Callable[[str, str, int, float], float]) -> dict[str, pd.DataFrame]:
        rows = [
            {"flows": cca, "rtts": rtts, "streams": streams, "buffer_ms": buffer,
             "share_of_short_rtt": share(cca, rtts, streams, buffer)}
            for cca in ("CUBIC", "BBR")
            for rtts in rtt.scenarios.PAIRS_11
            for streams in rtt.scenarios.STREAMS_11
            for buffer in rtt.scenarios.BUFFERS_11_MS
        ]  # fmt: skip
        return {"test11": pd.DataFrame(rows)}

    half = rtt.PARTS[11].statements(table(lambda *_: 0.5))
    assert [s.holds for s in half] == [False, True, False]  # half is within 0.1 of the paper's 0.6
    like_the_papers = rtt.PARTS[11].statements(
        table(lambda cca, rtts, streams, buffer: 0.75 + buffer / 800 if cca == "CUBIC" else 5 / buffer)
    )
    assert [s.holds for s in like_the_papers] == [True, False, True]
    assert "the closest: one stream, 15 ms" in like_the_papers[1].measured


def test_table_1_is_gains_over_one_queue() -> None:
    first = pd.DataFrame(
        {
            "flows": ["CUBIC"] * 2,
            "scheme": ["one queue", "RTT"],
            "jain_index": [0.8, 0.92],
            "utilisation": [1.0, 0.99],
        }
    )
    fourth = pd.DataFrame(
        {
            "flows": ["CUBIC"] * 3,
            "queues": [1, 4, 8],
            "shares": ["by flows"] * 3,
            "scheme": ["one queue", "RTT", "RTT"],
            "fct_reduction": [0.0, 0.2, 0.3],
        }
    )
    row = rtt.table_1(first, fourth).set_index("scheme").loc["RTT"]
    assert row.fairness_gain_cubic_percent == pytest.approx(15)
    assert row.utilisation_cubic == pytest.approx(0.99)
    assert row.fct_reduction_cubic == pytest.approx(0.2)


def test_the_papers_numbers_are_there() -> None:
    for test in (0, *rtt.TITLES):
        assert len(rtt.paper(test)) > 0
    assert rtt.paper(1).paper[0] == "0.98"


def test_unknown_tests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="test: 99 must be one of"):
        experiment("rtt-separation")(tmp_path / "x", test=[99])
    with pytest.raises(ParameterError, match="test: 5 must be one of 1, 3"):
        experiment("rtt-separation")(tmp_path / "x", test=[5], testbed=True)


KILLED = """
import sys
from cctoolkit.experiments import rtt_separation as rtt

def main():
    cases = rtt.PARTS[1].scenarios(rtt.Settings(seeds=9))  # hours
    rtt.outcomes(cases, workers=2)

if __name__ == "__main__":
    print("here", flush=True)
    main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    marked = os.environ | {"CCT_TEST_MARK": str(tmp_path)}

    def alive() -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if str(tmp_path).encode() in (process / "environ").read_bytes() and state != "Z":
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    parent = subprocess.Popen([sys.executable, str(script)], env=marked, stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while len(alive()) < 3 and time.monotonic() < deadline:  # it, two workers (and a tracker)
            time.sleep(0.5)
        time.sleep(5)  # so that they are at work
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 60
    while alive() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert alive() == []


@pytest.mark.uml
@pytest.mark.slow
def test_a_case_on_real_linux_is_measured_as_in_the_simulator() -> None:
    uml_kernel()
    flows = [cct.Flow("cubic", rtt_ms=10, name="near"), cct.Flow("cubic", rtt_ms=40, start_s=2, name="far")]
    bottleneck = cct.Bottleneck(rate_mbps=10, buffer_bytes=50_000)
    scenario = cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=12)
    for scheme in ("one queue", "RTT"):
        simulated, linux = (
            rtt.Case({"scheme": scheme, "where": where}, scenario, k=2).run()
            for where in ("simulator", "Linux")
        )
        assert linux.utilisation(6, 12) == pytest.approx(simulated.utilisation(6, 12), abs=0.02)
        assert linux.rates_mbps().index.to_numpy() == pytest.approx(
            simulated.rates_mbps().index.to_numpy(), abs=0.01
        )
        assert linux.mean_mbps(0, 2)[1] == 0
        assert linux.mean_mbps(6, 12).sum() == pytest.approx(10 * 1448 / 1514, rel=0.03)
    assert linux.mean_mbps(6, 12).to_numpy() == pytest.approx([4.8, 4.8], rel=0.1)


@pytest.mark.slow
def test_as_a_whole(tmp_path: Path) -> None:
    """The quick form of tests 5 and 6 and of the scaling test: tables, figures, a summary, and what they show."""
    folder = experiment("rtt-separation")(tmp_path / "out", test=[5, 6, 7], fast=True, workers=1)
    fifth = pq.read_table(folder / "test5.parquet").to_pandas().set_index("scheme")
    assert fifth.p95_over_base["one queue"] > 3
    assert fifth.p95_over_base["RTT and threshold"] < 1.2
    sixth = pq.read_table(folder / "test6.parquet").to_pandas().set_index(["scheme", "tcp_flows"])
    assert sixth.jain_index["one queue"].to_numpy() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], abs=0.01)
    assert (sixth.tcp_over_fair_share["RTT"].dropna() > 0.9).all()
    scaled = pq.read_table(folder / "scaling.parquet").to_pandas()
    assert (scaled.accuracy_measured > 0.9).all()
    text = (folder / "summary.md").read_text()
    assert "The paper:" in text and "one queue" in text
    assert {p.name for p in folder.iterdir()} >= {"test5-rtt.html", "test6-throughput.html", "scaling.html"}
