"""The ABC paper's experiments: shapes on measured runs, arithmetic on made ones, and the whole from the command."""

from __future__ import annotations

import dataclasses
import importlib.util
import ipaddress
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cctoolkit as cct
from cctoolkit.cli import app
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.experiments import abc, experiment
from cctoolkit.experiments.abc import switch
from cctoolkit.scenario import read_scenario
from cctoolkit.testbed.kernel import Kernel
from cctoolkit.testbed.plan import make_plan

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "hardware" / "launch" / "p4-abc"


def goodput(
    sharing: str, value: float, scheme: str = "ABC", duration_s: float = 20, seed: int = 1, change=None
):
    """Of both clients, Mbit/s."""
    made = abc.scenario(sharing, value, scheme, duration_s=duration_s, seed=seed)
    found = abc.clients(cct.simulate(change(made) if change else made, record=False, sample_s=None))
    return found["client_0_mbps"], found["client_1_mbps"]


# ---- the shapes of figures 4 to 6 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ABC", "ABC in integers"])
def test_figure_4_the_heavier_sender_falls_below_the_lighter(scheme: str) -> None:
    low, other = goodput("cbr", 20, scheme)
    assert low == pytest.approx(20 * 1448 / 1490, rel=0.02) and other > low
    for rate in (60, 90):
        mine, other = goodput("cbr", rate, scheme)
        assert mine < 0.5 * other
        mine, other = goodput("cbr", rate, "without ABC")
        assert mine / (mine + other) == pytest.approx(rate / (rate + 40), abs=0.08)


@pytest.mark.parametrize("scheme", ["ABC", "ABC in integers"])
def test_figure_5_two_users_get_half_each(scheme: str) -> None:
    for n in (1, 4, 10):
        assert goodput("tcp", n, scheme) == pytest.approx([24, 24], rel=0.12)
    assert goodput("tcp", 10, "without ABC")[1] < 8


def test_figure_6_a_flood_gets_no_more_than_32() -> None:
    for rate in (30, 60, 100):
        flood, connection = goodput("cbr-tcp", rate)
        assert flood < 32 and flood + connection > 43
    assert flood < 8  # the paper: 32
    assert goodput("cbr-tcp", 100, "without ABC")[1] < 0.5


def test_references() -> None:
    """Fair queueing gives halves to all who want them; CSFQ to constant rates, and less to TCP beside a flood."""
    for sharing, value in (("cbr", 90), ("tcp", 10), ("cbr-tcp", 90)):
        assert goodput(sharing, value, "fair queueing") == pytest.approx([24.2, 24.2], rel=0.12)
    assert goodput("cbr", 90, "CSFQ") == pytest.approx([23, 23], rel=0.08)
    assert goodput("cbr-tcp", 90, "CSFQ")[1] < 15


# ---- what is run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", abc.SHARINGS)
@pytest.mark.parametrize("scheme, suffix", [("without ABC", ""), ("ABC", "-sim")])
def test_scenarios_are_those_of_the_launch_folder(sharing: str, scheme: str, suffix: str) -> None:
    """But for names and the moments at which connections start."""
    path = LAUNCH / f"{sharing}{suffix}.toml"
    if not path.exists():
        pytest.skip("not a checkout")
    theirs = read_scenario(path)
    step = theirs.flows[0].rate_mbps if theirs.flows[0].is_udp else theirs.flows[0].count
    mine = abc.scenario(sharing, step, scheme, duration_s=theirs.duration_s, seed=theirs.seed)

    def plain(scenario: cct.Scenario) -> list[cct.Flow]:
        return [dataclasses.replace(f, start_s=0.0) for f in scenario.flow_list()]

    assert plain(mine) == plain(theirs)
    assert mine.bottleneck == theirs.bottleneck


def test_runs_of_tcp_differ_in_their_starts() -> None:
    one, two = (abc.scenario("tcp", 3, seed=seed) for seed in (1, 2))
    starts = [[f.start_s for f in s.flows] for s in (one, two)]
    drawn = {start for found in starts for start in found}
    assert len(drawn) == 8 and all(0 <= start < 1 for start in drawn)
    assert abc.scenario("tcp", 3, seed=1) == one


def test_every_step_scheme_and_seed_is_run_once() -> None:
    made = list(abc.jobs(["cbr", "tcp"], ["ABC", "CSFQ"], 5, 3))
    assert len(made) == len({tuple(about.values()) for about, _ in made}) == 2 * 10 * 2 * 3
    assert {s.duration_s for _, s in made} == {5}


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="sharing: 'udp' must be one of cbr"):
        abc.scenario("udp", 1)
    with pytest.raises(ParameterError, match="scheme: 'red' must be one of without ABC"):
        abc.scenario("cbr", 1, "red")
    with pytest.raises(ParameterError, match="only: 'fig4' must be one of cbr, tcp, cbr-tcp, why"):
        experiment("abc")(tmp_path / "x", only=["fig4"])
    assert not (tmp_path / "x").exists()


# ---- what is made of it ----------------------------------------------------------------------------------------------


def test_goodput_is_payload_over_the_whole_run() -> None:
    mine, other = goodput("cbr", 4, duration_s=10)
    assert (mine, other) == pytest.approx((4 * 1448 / 1490, 40 * 1448 / 1490), rel=0.02)


def test_intervals_are_students() -> None:
    runs = pd.DataFrame({"value": [1, 1, 1, 2], "client_0_mbps": [1.0, 2.0, 3.0, 7.0]})
    for name in ("client_1_mbps", "utilisation", "delay_ms"):
        runs[name] = 1.0
    found = abc.intervals(runs, ["value"])
    assert found.runs.tolist() == [3, 1]
    assert found.client_0_mbps.tolist() == [2, 7]
    assert found.client_0_mbps_ci[0] == pytest.approx(4.302653 * 1 / math.sqrt(3), rel=1e-6)  # t(0.975, 2)
    assert math.isnan(found.client_0_mbps_ci[1])


def made_means(cell) -> pd.DataFrame:
    """A table of means, without running: `cell` gives both clients for (sharing, value, scheme)."""
    rows = [
        {"sharing": s, "value": v, "scheme": scheme, "client_0_mbps": a, "client_1_mbps": b}
        | {"client_0_mbps_ci": 0.5, "client_1_mbps_ci": 0.5}
        for s, sharing in abc.SHARINGS.items()
        for v in sharing.steps
        for scheme in abc.SCHEMES
        for a, b in [cell(s, v, scheme)]
    ]
    return pd.DataFrame(rows)


def as_the_paper_says(sharing: str, value: float, scheme: str) -> tuple[float, float]:
    if scheme == "without ABC":
        if sharing == "tcp":
            return 48 * value / (value + 1), 48 / (value + 1)
        if sharing == "cbr":
            sent = value + 40
            return 48 * value / max(sent, 50), 48 * 40 / max(sent, 50)
        return min(value, 48), max(48 - value, 0)
    if sharing == "tcp":
        return 24.5, 23.5
    if sharing == "cbr":
        return (value, 48 - value) if value < 40 else (12, 36)
    return min(value, 32), max(48 - value, 16)


def test_statements_agree_with_the_paper_where_the_numbers_do() -> None:
    statements = abc.statements(made_means(as_the_paper_says))
    assert len(statements) == 10 and set(statements.agrees) == {"yes"}


def test_statements_disagree_where_the_numbers_do() -> None:
    statements = abc.statements(made_means(lambda s, v, scheme: as_the_paper_says(s, v, "without ABC")))
    assert statements[statements.agrees == "no"].figure.tolist() == [4, 5, 6, 6]
    assert "48.0 Mbit/s" in statements[statements.paper.str.contains("no more than 32")].toolkit.iloc[0]


def test_one_rate_is_no_rise() -> None:
    """A quick run's single rate below 40 Mbit/s neither rises nor falls, whatever it is."""
    means = made_means(as_the_paper_says)
    few = means[(means.sharing != "cbr") | means.value.isin([20, 60, 100])]
    left_out = set(abc.statements(means).paper) - set(abc.statements(few).paper)
    assert [claim for claim in left_out if "below 40 Mbit/s" in claim] == list(left_out) and len(
        left_out
    ) == 1


@pytest.mark.parametrize(("lost_mbps", "agrees"), [(1.9, "yes"), (2.1, "no")])
def test_a_flood_falls_from_its_highest_goodput(lost_mbps: float, agrees: str) -> None:
    """Also in two steps of half as much."""

    def falling(sharing: str, value: float, scheme: str) -> tuple[float, float]:
        first, second = as_the_paper_says(sharing, value, scheme)
        steps = {90: 0.5, 100: 1.0}.get(value, 0.0) if (sharing, scheme) == ("cbr-tcp", "ABC") else 0.0
        return first - steps * lost_mbps, second

    claims = abc.statements(made_means(falling)).set_index("paper").agrees
    assert claims[claims.index.str.contains("does not fall")].tolist() == [agrees]


def test_integer_differences() -> None:
    table = made_means(lambda s, v, scheme: (20.0 + (scheme == "ABC in integers") * (v == 3) * 2, 20.0))
    found = abc.integer_differences(table).set_index(["sharing", "client"])
    assert found.loc[("tcp", 0), ["largest_mbps", "at", "beyond_both"]].tolist() == [2, 3, 1]
    assert found.mean_difference_mbps["tcp", 0] == pytest.approx(0.2)
    assert found.beyond_both.sum() == 1


# ---- why figure 6 comes out otherwise --------------------------------------------------------------------------------


def test_a_switch_without_limits_is_abc() -> None:
    """The same decisions, on 4170 packets a second instead of the 4195 that 50 Mbit/s are."""
    plain = goodput("cbr", 60, duration_s=10)
    switched = goodput("cbr", 60, duration_s=10, change=switch.through_switch)
    assert switched == pytest.approx(plain, abs=0.4)
    assert sum(switched) == pytest.approx(4170 * 1448 * 8e-6, rel=0.002)


def simulated(cause: str, sharing: str, value: float, duration_s: float = 20) -> cct.Run:
    made = abc.scenario(sharing, value, duration_s=duration_s)
    return cct.simulate(abc.CAUSES[cause].apply(made), record=False, sample_s=None)


def test_the_link_behind_is_overloaded_by_tcp_only() -> None:
    """4170 frames of 1490 bytes fit into 50 Mbit/s, of 1514 bytes they do not."""
    assert simulated("link behind", "cbr", 100).aqm_stats.lost_behind[0] == 0
    run = simulated("link behind", "cbr-tcp", 100, 40)
    assert run.aqm_stats.lost_behind[0] > 0
    flood, connection = (abc.clients(run)[f"client_{c}_mbps"] for c in (0, 1))
    fits = (50e6 / 8 / 4170 - 1514) / (
        1490 - 1514
    )  # the part of UDP's packets at which the link is just full
    assert flood / (flood + connection) == pytest.approx(fits, abs=0.05)
    assert flood == pytest.approx(4170 * fits * 1448 * 8e-6, abs=2.5)
    run = simulated("link behind", "tcp", 10)
    assert abc.clients(run)["client_0_mbps"] > 2 * abc.clients(run)["client_1_mbps"]


def test_slow_reading_lets_no_more_in_than_it_reads() -> None:
    run = simulated("slow reading", "cbr", 100)
    stats = run.aqm_stats.iloc[0]
    read = stats.accepted + stats.dropped
    assert read / 20 == pytest.approx(9700, rel=0.02) and stats.not_read > 0
    assert simulated("slow reading", "cbr", 40).aqm_stats.not_read[0] == 0


def test_slow_reading_keeps_figure_5_and_makes_32() -> None:
    flood, connection = (
        abc.clients(simulated("slow reading", "cbr-tcp", 100, 40))[f"client_{c}_mbps"] for c in (0, 1)
    )
    assert flood == pytest.approx(32, abs=4) and flood + connection > 43
    both = abc.clients(simulated("slow reading", "tcp", 10))
    assert [both["client_0_mbps"], both["client_1_mbps"]] == pytest.approx([24, 24], rel=0.12)


@pytest.mark.parametrize("name", abc.CAUSES)
def test_a_cause_changes_what_it_says_and_nothing_else(name: str) -> None:
    cause, plain = abc.CAUSES[name], abc.scenario("cbr-tcp", 60)
    found = cause.apply(plain)
    assert found.flows[0].cca == "udp" and found.duration_s == plain.duration_s
    for key, value in cause.connections.items():
        assert getattr(found.flows[1], key) == (value if key != "cca" else found.flows[1].cca)
        assert getattr(found.flows[0], key) == getattr(plain.flows[0], key)
    for key, value in (dict(cause.aqm) | dict(cause.switch)).items():
        assert getattr(found.bottleneck.aqm, key) == value
    assert (found == plain) == (name == "as described")
    assert isinstance(found.bottleneck.aqm, switch.SwitchAbc) == bool(cause.switch)


def test_without_a_rate_the_connection_is_alone() -> None:
    made = [s for about, s in abc.why_jobs(["as described"], 5, 1) if about["value"] == 0]
    assert [[f.cca_name for f in s.flows] for s in made] == [["cubic"]]


def test_verdicts() -> None:
    at = {("cbr-tcp", 0): (0, 46), ("cbr-tcp", 20): (19, 25), ("cbr-tcp", 40): (25, 20), ("cbr-tcp", 60): (28, 20),
          ("cbr-tcp", 80): (30, 18), ("cbr-tcp", 100): (32, 16), ("tcp", 1): (24, 24), ("tcp", 2): (24, 24),
          ("tcp", 4): (24, 24), ("tcp", 10): (24, 24), ("cbr", 20): (19, 29), ("cbr", 60): (10, 38),
          ("cbr", 100): (10, 38)}  # fmt: skip

    def table(changed: dict[tuple[str, int], tuple[float, float]]) -> pd.DataFrame:
        rows = [("x", s, v, a, b) for (s, v), (a, b) in (at | changed).items()]
        return pd.DataFrame(rows, columns=["cause", "sharing", "value", "client_0_mbps", "client_1_mbps"])

    good = abc.verdicts(table({})).iloc[0]
    flags = [
        "flood_near_32",
        "rest_is_used",
        "alone_fills",
        "figure_5",
        "figure_4",
        "never_falls",
        "all_but_shape",
    ]
    assert good[flags].all() and good.alone == 46 and good.flood_at_40 == 25
    for changed, flag in (
        ({("cbr-tcp", 100): (10, 36)}, "flood_near_32"),
        ({("cbr-tcp", 100): (32, 2)}, "rest_is_used"),
        ({("cbr-tcp", 0): (0, 22)}, "alone_fills"),
        ({("tcp", 10): (38, 10)}, "figure_5"),
        ({("cbr", 60): (38, 10)}, "figure_4"),
    ):
        bad = abc.verdicts(table(changed)).iloc[0]
        assert not bad[flag] and not bad.all_but_shape
    dip = abc.verdicts(table({("cbr-tcp", 60): (6, 42)})).iloc[0]
    assert not dip.never_falls and dip.all_but_shape


def test_delays_are_of_connections_and_of_nothing_else() -> None:
    cases = abc.PARTS["delay"].scenarios(abc.Settings((), 90.0, 2))
    assert {c.scenario.duration_s for c in cases} == {60.0, 90.0}
    for case in cases:
        assert {f.rtt_ms for f in case.scenario.flows if not f.is_udp} == {case.about["rtt_ms"]}
        assert any(f.is_udp for f in case.scenario.flows) == (case.about["what"] == "flood")
        assert case.scenario.bottleneck.aqm == abc.scenario("tcp", 1).bottleneck.aqm


def test_conclusions_about_delay_come_out_either_way() -> None:
    def holds(flood: float, minute: float, least: float) -> list[bool]:
        rows = [
            {"rtt_ms": rtt, "what": what, "client_0_mbps": flood if rtt > 20 else 3.0, "client_1_mbps": alone}
            for rtt, alone in ((20, least), (200, minute))
            for what in ("flood", "alone for a minute")
        ]
        return [s.holds for s in abc.PARTS["delay"].statements({"delay": pd.DataFrame(rows)})]

    assert holds(31, 46, 46) == [True, True]
    assert holds(9, 46, 46) == [True, False]
    assert holds(31, 30, 40) == [False, False]


# ---- a capture's traffic ---------------------------------------------------------------------------------------------


def test_source_prefixes_are_those_of_ipaddress() -> None:
    cap = cct.read_capture(ROOT / "traces" / "three-ccas-ipv6.ingress.pcap.gz")
    for bits4, bits6 in ((24, 48), (0, 0), (32, 128), (9, 61)):
        found = abc.source_prefixes(cap, bits4, bits6)
        ends = cap.flows.set_index("flow_id")
        for row in found.to_dict("records"):
            sender = ends.src[row["flow_id"]] if row["direction"] == 0 else ends.dst[row["flow_id"]]
            bits = bits6 if ":" in sender else bits4
            assert row["prefix"] == str(ipaddress.ip_network(f"{sender}/{bits}", strict=False))
        assert found.groupby("prefix")["number"].nunique().eq(1).all()
        assert found["number"].nunique() == found.prefix.nunique()
    with pytest.raises(ParameterError, match="no prefixes have 33 and 48 bits"):
        abc.source_prefixes(cap, 33)


def test_by_source_makes_networks_aggregates() -> None:
    """Two flows from one network and one from another, the last with its data on the way back."""
    flows = [cct.Flow("cubic", rtt_ms=10, bytes=300_000, start_s=s) for s in (0, 0.1, 0.2)]
    made = cct.simulate(
        cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=50, buffer_packets=99), flows=flows, duration_s=2)
    )
    again = cct.scenario_from_capture(made.egress, min_bytes=200_000)
    assert [f.name for f in again.flows] == ["flow 0", "flow 1", "flow 2"]
    sources = pd.DataFrame(
        {"flow_id": [0, 1, 2, 2], "direction": [0, 0, 0, 1], "prefix": ["a/24", "a/24", "c/24", "b/24"]}
    )
    assert [f.aggregate for f in abc.by_source(again, sources).flows] == [0, 0, 1]
    back = dataclasses.replace(
        again, flows=(*again.flows[:2], dataclasses.replace(again.flows[2], name="flow 2 back"))
    )
    assert [f.name for f in abc.by_source(back, sources).flows] == ["a/24", "a/24", "b/24"]


# ---- the whole -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One experiment at three of its steps and two causes, each of two seconds."""
    monkeypatch.setitem(abc.SHARINGS, "cbr", dataclasses.replace(abc.SHARINGS["cbr"], steps=(20, 60, 100)))
    for name in set(abc.CAUSES) - {"as described", "slow reading"}:
        monkeypatch.delitem(abc.CAUSES, name)
    found = importlib.util.find_spec  # PNGs take a browser and most of the time
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *more: None if n == "kaleido" else found(n, *more)
    )
    out = tmp_path / "out"
    command = ["experiment", "abc", "-o", str(out), "--workers", "1", "--duration", "2", "--runs", "2"]
    done = CliRunner().invoke(app, [*command, "--only", "cbr", "--only", "why"])
    assert done.exit_code == 0, done.output
    names = {p.name for p in out.iterdir()}
    tables = {"runs", "why_runs", "clients", "why_clients", "statements", "integers", "why"}
    assert names >= {f"{name}.parquet" for name in tables} | {"summary.md"}
    assert {n for n in names if n.endswith(".html")} == {"figure4.html", "references.html", "why.html"}
    runs, means = (pq.read_table(out / f"{n}.parquet").to_pandas() for n in ("runs", "clients"))
    assert len(runs) == 3 * len(abc.SCHEMES) * 2 and len(means) == len(runs) / 2
    one = runs[(runs.value == 60) & (runs.scheme == "ABC")]
    mean = means[(means.value == 60) & (means.scheme == "ABC")].client_0_mbps
    assert mean.tolist() == [one.client_0_mbps.mean()]
    text = (out / "summary.md").read_text()
    assert "All printed statements hold with" in text and "| slow reading |" in text and "±" in text
    again = CliRunner().invoke(app, ["experiment", "abc", "-o", str(out), "--only", "nope"])
    assert again.exit_code == 1 and "only: 'nope' must be one of" in str(again.exception)


def test_help_names_the_options() -> None:
    shown = CliRunner().invoke(app, ["experiment", "abc", "--help"])
    assert shown.exit_code == 0
    assert all(option in shown.output for option in ("--full", "--runs", "--duration", "--only", "--workers"))


def test_the_papers_numbers_are_what_the_experiment_uses() -> None:
    printed = (
        cct.paper_numbers("p4-abc", "parameters").drop_duplicates("quantity").set_index("quantity").paper
    )
    aqm = abc.scenario("cbr", 60).bottleneck.aqm
    for name in (
        "meter_memory_s",
        "reference_kbps",
        "average_memory_s",
        "min_packets",
        "base_packets",
        "gamma_packets",
    ):
        assert getattr(aqm, name) == float(printed[name])
    assert (
        float(cct.paper_numbers("p4-abc", "Figure 6").set_index("quantity").paper["goodput_mbps_of_client_0"])
        == 32
    )
    assert np.isclose(switch.LIMITER_MBPS, 4170 * 1514 * 8 / 1e6)


def test_what_a_kernel_has_is_run_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = abc.scenarios.linux_cases(abc.Settings(["tcp"], 300.0, 10, tmp_path))
    assert {(c.about["side"], c.about["scheme"]) for c in cases} == {
        (side, scheme) for side in ("kernel", "simulator") for scheme in ("without ABC", "ABC")
    }
    assert {c.scenario.duration_s for c in cases} == {20} and {c.about["seed"] for c in cases} == {1}
    for case in cases[:4]:
        if case.kernel is None:
            cct.Simulation(case.scenario)
        elif case.about["scheme"] == "ABC":
            assert {one.owner for one in make_plan(case.scenario).modules} == {"abc"}
    with pytest.raises(ParameterError, match="only: linux needs --testbed"):
        experiment("abc")(tmp_path / "x", only=["linux"])
    plain = Kernel(tmp_path / "linux", "ab" * 32, "7.2.1")
    monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: plain)
    with pytest.raises(TestbedUnavailableError, match=r"has no abc .*--with hardware/linux/aqm`$"):
        experiment("abc")(tmp_path / "x", testbed=True)
    assert not (tmp_path / "x").exists()
