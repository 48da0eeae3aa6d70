"""The P4-CoDel experiment: scenarios, what is measured, each isolation, the shapes the paper reports, the folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.aqm import CoDel, NpuCoDel, P4CoDel, PisaCoDel
from cctoolkit.cli import app
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.experiments import EXPERIMENTS, codel, experiment
from cctoolkit.experiments.codel.variants import (
    SQUARE_ROOTS,
    AlwaysAfreshCoDel,
    CountingCoDel,
    EgressCoDel,
    IngressCoDel,
    gap_ms,
)
from cctoolkit.experiments.part import Findings
from cctoolkit.testbed.kernel import Kernel

LAUNCH = Path(__file__).parents[1] / "hardware" / "launch" / "p4-codel"


def mean(aqm: Any, flows: int, quantity: str, seeds: int = 6, **options: Any) -> float:
    """Of runs of CUBIC flows through the paper's link."""
    runs = (
        cct.simulate(codel.scenario(aqm, flows, seed, **options), record=False, sample_s=None)
        for seed in range(1, seeds + 1)
    )
    return float(np.mean([codel.measured(run)[quantity] for run in runs]))


# ---- scenarios and measuring -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "flows"), [("one-flow", 1), ("three-flows", 3)])
def test_scenarios_are_those_of_the_launch_files(name: str, flows: int) -> None:
    """But for what the seed draws."""
    written = cct.read_scenario(LAUNCH / f"{name}.toml")
    made = codel.scenario("Linux", flows)
    assert made.bottleneck == written.bottleneck
    assert made.duration_s == written.duration_s
    assert len(made.flows) == len(written.flow_list()) == flows
    for mine, theirs in zip(made.flows, written.flow_list(), strict=True):
        assert mine.cca == theirs.cca
        assert mine.access_mbps == theirs.access_mbps
        assert mine.rtt_ms == pytest.approx(theirs.rtt_ms, rel=0.02)
        assert mine.start_s <= 0.1


def test_udp_scenarios_are_those_of_the_launch_file() -> None:
    written = cct.read_scenario(LAUNCH / "udp-scan-sim.toml")
    made = codel.udp_scenario("P4-ASIC", 101, duration_s=10)
    assert made.bottleneck == written.bottleneck
    assert made.flows == written.flows
    assert made.duration_s == codel.Settings(full=True).udp_s == written.duration_s


def test_a_seed_gives_the_same_scenario_and_another_another() -> None:
    assert codel.scenario("P4-ASIC, published", 3, 2) == codel.scenario("P4-ASIC, published", 3, 2)
    assert codel.scenario("Linux", 3, 2).flows != codel.scenario("Linux", 3, 3).flows
    clocks = {codel.scenario("P4-ASIC, published", 1, seed).bottleneck.aqm.clock_ms for seed in range(9)}
    assert len(clocks) == 9
    assert max(clocks) < 2**32 / 1e6


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(ParameterError, match="target: 'FPGA' must be one of Linux, "):
        codel.scenario("FPGA")


def test_delays_at_the_taps_are_those_of_the_queue() -> None:
    """Two ways to the same mean: what the queue counted, and what two taps saw."""
    run = cct.simulate(codel.scenario("P4-ASIC", 3), record=True)
    delays = codel.packet_delays(run)
    assert delays.delay_ms.mean() == pytest.approx(codel.measured(run)["mean_delay_ms"], rel=0.001)
    assert delays.delay_ms.min() >= 0
    later = delays[delays.time_s >= 1].delay_ms.mean()
    assert codel.measured(run)["later_delay_ms"] == pytest.approx(later, rel=0.01)
    assert codel.measured(run)["packets"] == pytest.approx(33_000, rel=0.02)  # the paper's number
    lost = len(run.drops) / codel.measured(run)["packets"]
    assert codel.measured(run)["loss_percent"] == pytest.approx(100 * lost)
    with pytest.raises(ParameterError, match="taps were not recorded"):
        codel.packet_delays(cct.simulate(codel.scenario("Linux"), record=False))


def test_a_standing_queue_by_littles_law() -> None:
    """UDP at 101 Mbit/s: from what is queued, nearly the same delay as packet by packet."""
    run = cct.simulate(codel.udp_scenario("Linux", 101), record=False)
    assert codel.standing(run)["mean_delay_ms"] == pytest.approx(
        codel.measured(run)["mean_delay_ms"], rel=0.1
    )


def test_spread_is_over_seeds() -> None:
    table = pd.DataFrame({"a": [1, 1, 2, 2], "seed": [1, 2, 1, 2], "x": [1.0, 3.0, 5.0, 5.0]})
    found = codel.spread(table, ["a"])
    assert found.x.tolist() == [2, 5]
    assert found.x_std.tolist() == [pytest.approx(math.sqrt(2)), 0]
    assert "seed" not in found


def test_the_papers_table_is_read() -> None:
    table = codel.paper_table_1().set_index(["target", "flows"])
    assert len(table) == 9
    assert table.paper_delay_ms["P4-ASIC", 3] == 8.17
    assert table.paper_loss_percent["Linux", 1] == 0.05
    numbers = cct.paper_numbers("p4-codel")
    assert {"Table I", "Figure 5", "Figure 7", "setup", "algorithm"} == set(numbers["item"])
    assert (numbers.section != "").all()


# ---- the variants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "model"),
    [
        (EgressCoDel(), P4CoDel()),
        (IngressCoDel(), NpuCoDel()),
        (CountingCoDel(), CoDel()),
        (EgressCoDel(if_3=False, square_root="math unit"), PisaCoDel()),
    ],
    ids=lambda aqm: type(aqm).__name__,
)
def test_with_nothing_changed_a_variant_decides_as_its_model(changed: Any, model: Any) -> None:
    """Packet by packet; the ASIC's drops cost link time besides, so there only up to the first."""
    mine, theirs = (cct.simulate(codel.scenario(aqm, 3), record=True) for aqm in (changed, model))
    if isinstance(model, PisaCoDel):
        assert mine.drops.ts_ns.min() == theirs.drops.ts_ns.min()
    else:
        assert mine.egress.packets.equals(theirs.egress.packets)
        assert len(mine.drops) > 50


def test_variants_say_what_cannot_be() -> None:
    with pytest.raises(
        ParameterError, match=r"square_root: 'guess' must be one of exact, NPU table, math unit"
    ):
        EgressCoDel(square_root="guess")
    with pytest.raises(ParameterError, match="target_ms: must be positive"):
        IngressCoDel(target_ms=0)


def test_square_roots_are_as_far_off_as_the_paper_and_the_program_let_them_be() -> None:
    counts = range(1, 2000)
    error = {
        name: np.array([gap_ms(name, count) * math.sqrt(count) / 100 - 1 for count in counts])
        for name in SQUARE_ROOTS
    }
    assert np.abs(error["exact"]).max() < 1e-12
    assert np.abs(error["NPU table"][:16]).max() < 1e-6  # exact for count = 1..16
    assert error["NPU table"].max() == pytest.approx(math.sqrt(2) - 1, abs=0.01)
    assert error["math unit"].min() > -0.01 and 0.1 < error["math unit"].max() < 0.125


# ---- what the paper leaves out, isolated -----------------------------------------------------------------------------


def test_the_rule_matters_in_the_rfc_and_not_in_listing_1() -> None:
    with_rule, without = (mean(aqm, 3, "mean_delay_ms") for aqm in (CountingCoDel(), AlwaysAfreshCoDel()))
    assert without > 1.05 * with_rule
    fewer, more = (mean(aqm, 3, "loss_percent") for aqm in (AlwaysAfreshCoDel(), CountingCoDel()))
    assert fewer < 0.92 * more
    listing, taken_out = (mean(EgressCoDel(if_3=rule), 3, "mean_delay_ms") for rule in (True, False))
    assert taken_out == pytest.approx(listing, rel=0.02)
    made = cct.simulate(codel.scenario(AlwaysAfreshCoDel(), 3), record=False)
    assert made.aqm_stats.resumed.sum() == 0 < made.aqm_stats.entered.sum()


def test_tables_cost_delay_only_where_the_count_is_large() -> None:
    few = [mean(EgressCoDel(square_root=root), 3, "mean_delay_ms") for root in SQUARE_ROOTS]
    assert few == pytest.approx([few[0]] * 3, rel=0.03)
    exact, table, unit = (
        codel.measured(cct.simulate(codel.udp_scenario(EgressCoDel(square_root=root), 101, duration_s=30)))
        for root in SQUARE_ROOTS
    )
    assert table["mean_delay_ms"] > 1.08 * exact["mean_delay_ms"]
    assert 1 < unit["mean_delay_ms"] / exact["mean_delay_ms"] < 1.04


def test_drops_behind_the_shaper_do_not_shorten_the_queue_of_who_does_not_answer() -> None:
    """The ASIC and the same law before the link, with UDP at 101 Mbit/s: one grows with time, one is held."""
    law = EgressCoDel(if_3=False, square_root="math unit")
    held, grows = (
        [
            codel.measured(cct.simulate(codel.udp_scenario(aqm, 101, duration_s=s)))["max_delay_ms"]
            for s in (4, 8)
        ]
        for aqm in (law, PisaCoDel())
    )
    assert grows[1] == pytest.approx(2 * grows[0], rel=0.05) and grows[1] > 75
    assert held[1] < 1.1 * held[0] < 20


def test_only_the_plain_comparison_of_a_wrapping_clock_loses() -> None:
    clocks_ms = range(100, 4290, 420)

    def loss(**given: Any) -> float:
        wraps = "wrap" in given
        return float(
            np.mean(
                [
                    mean(PisaCoDel(clock_ms=clock_ms if wraps else 0, **given), 1, "loss_percent", seeds=1)
                    for clock_ms in clocks_ms
                ]
            )
        )

    published: dict[str, Any] = {"mtu_bytes": 0, "from_now": False}
    right = loss()
    assert loss(**published) == pytest.approx(right, rel=0.05)
    assert loss(**published, wrap=True) == pytest.approx(right, rel=0.05)
    assert loss(**published, wrap=True, signed=False) > 2 * right


def test_after_the_wrap_nothing_is_dropped_for_long() -> None:
    """The drawn case: a wrap in the first burst, then more than a second without a drop."""
    wraps_at_s, seed, signed = codel.WRAPS["plain comparison, wrap after 0.308 s"]
    pauses = []
    for compared in (signed, True):
        aqm = PisaCoDel(
            mtu_bytes=0, from_now=False, wrap=True, signed=compared, clock_ms=2**32 / 1e6 - 1e3 * wraps_at_s
        )
        run = cct.simulate(codel.scenario(aqm, 3, seed), record=True, sample_s=None)
        pauses.append(np.diff(np.sort(run.drops.ts_ns)).max() / 1e9)
    assert pauses[0] > 1 > 5 * pauses[1]


@pytest.mark.slow
def test_assumptions_about_the_npu_have_the_described_effect() -> None:
    plain, race = (mean(aqm, 2, "loss_percent") for aqm in (NpuCoDel(), IngressCoDel(race_us=10)))
    assert race == pytest.approx(2 * plain, rel=0.1)
    assert mean(IngressCoDel(race_us=10), 3, "mean_delay_ms") == pytest.approx(
        mean(NpuCoDel(), 3, "mean_delay_ms"), rel=0.03
    )
    assert mean(IngressCoDel(by_packets=True), 3, "loss_percent") == pytest.approx(
        mean(NpuCoDel(), 3, "loss_percent"), rel=0.1
    )
    for flows, loss, delay_ms in ((2, 0.24, 6.25), (3, 0.45, 6.42)):  # Table I
        short = {"buffer_packets": 64, "rtt_ms": 0.1, "seeds": 12}
        assert mean(NpuCoDel(), flows, "loss_percent", **short) == pytest.approx(loss, rel=0.2)
        assert mean(NpuCoDel(), flows, "mean_delay_ms", **short) == pytest.approx(delay_ms, rel=0.03)


# ---- the parts, and the whole ----------------------------------------------------------------------------------------

SETTINGS = codel.Settings(seeds=8)


@pytest.fixture(scope="module")
def found() -> dict[str, Findings[codel.Settings]]:
    """The parts of what the paper shows."""
    return {name: codel.PARTS[name].run(SETTINGS) for name in ("figure-5", "table-1", "figure-7")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "claim", "times"),
    [
        ("figure-5", "the first burst peaks", 1),
        ("figure-5", "repeatedly falls below 5 ms", 1),
        ("table-1", "mean latency is between", len(codel.TARGETS)),
        ("table-1", "loss rises with the number of flows", len(codel.TARGETS)),
        ("table-1", "the ASIC's mean latency is above that of Linux", 2),
        ("figure-7", "UDP's delay rises at", 3),
    ],
)
def test_the_papers_shapes_show(
    found: dict[str, Findings[codel.Settings]], part: str, claim: str, times: int
) -> None:
    statements = [s for s in found[part].statements if claim in s.claim]
    assert len(statements) == times
    assert all(s.holds for s in statements), statements


@pytest.mark.slow
def test_numbers_of_the_paper_are_met(found: dict[str, Findings[codel.Settings]]) -> None:
    tables = found["table-1"].tables
    table = tables["table1"]
    near = table[table.target.isin(["Linux", "P4-ASIC"])]
    assert near.mean_delay_ms.to_numpy() == pytest.approx(near.paper_delay_ms.to_numpy(), rel=0.11)
    linux = table[table.target == "Linux"]
    assert linux.loss_percent.to_numpy() == pytest.approx(linux.paper_loss_percent.to_numpy(), rel=0.2)
    published = table[table.target == "P4-ASIC, published"]
    assert published.loss_percent.to_numpy() == pytest.approx(
        published.paper_loss_percent.to_numpy(), rel=0.3
    )
    assert len(tables["table1_runs"]) == 3 * len(codel.TARGETS) * SETTINGS.seeds


def test_missing_shapes_are_reported() -> None:
    flat = pd.DataFrame(
        {"flows": [1, 2, 3], "target": "Linux", "mean_delay_ms": [4.0, 6, 7], "loss_percent": [0.3, 0.2, 0.1]}
    )
    runs = pd.DataFrame(
        [
            {"flows": 3, "target": name, "seed": seed, "mean_delay_ms": 7 + seed / 10, "later_delay_ms": 6.0}
            for name in ("Linux", "P4-ASIC")
            for seed in (1, 2, 3)
        ]
    )
    columns = ("mean_delay_ms", "loss_percent")
    flat = flat.assign(**{f"{name}_std": 0.1 for name in columns}, later_delay_ms=flat.mean_delay_ms)
    flat = flat.assign(paper_delay_ms=[5.7, 6.5, 7.2], paper_loss_percent=[0.05, 0.17, 0.33])
    statements = codel.conclusions.table_1({"table1": flat, "table1_runs": runs})
    assert len(statements) == 8 and not any(s.holds for s in statements)


@pytest.mark.slow
def test_command_writes_a_folder(tmp_path: Path) -> None:
    """All parts with few seeds; what one leaves is what its figure and summary show."""
    folder = tmp_path / "codel"
    parts = [
        word for name in codel.PARTS if name not in ("figure-5", "figure-7") for word in ("--part", name)
    ]
    ran = CliRunner().invoke(app, ["experiment", "codel", "-o", str(folder), "--seeds", "2", *parts])
    assert ran.exit_code == 0, ran.output
    assert "summary.md" in ran.output
    text = (folder / "summary.md").read_text()
    for name in codel.PARTS:
        assert (f"## {codel.TITLES[name]}" in text) == (name not in ("figure-5", "figure-7"))
    assert "seeds 2" in text and "| **the paper** | 0.17 | 0.24 | 0.45 | 5.51 | 6.25 | 6.42 |" in text
    for name in ("table1", "rtts", "fq_codel", "if_3", "square_root", "clock", "npu", "statements"):
        table = pq.read_table(folder / f"{name}.parquet")
        assert table.num_rows > 0
        about = json.loads(table.schema.metadata[b"cctoolkit.provenance"])
        assert about["options"]["seeds"] == 2
    for name in ("table1", "rtts", "fq_codel", "if_3", "square_root_error", "clock_wrap", "npu"):
        drawn = json.loads((folder / f"{name}.json").read_text())
        assert len(drawn["data"]) >= 2

    queues = pd.read_parquet(folder / "fq_codel.parquet").set_index(["load", "queues"])
    for load in ("no flood", "flood of 60 Mbit/s"):
        assert queues["call delay_ms"][load, "fq_codel"] < 0.5 < 5 < queues["call delay_ms"][load, "CoDel"]
        assert queues.jain_index[load, "fq_codel"] > 0.98 > 0.9 > queues.jain_index[load, "CoDel"]
    assert queues["flood mbps"]["flood of 60 Mbit/s", "CoDel"] > 55
    assert queues["flood mbps"]["flood of 60 Mbit/s", "fq_codel"] < 30
    rtts = pd.read_parquet(folder / "rtts.parquet").set_index(["rtts_ms", "target"])
    for target in ("Linux", "P4-NPU", "P4-ASIC"):
        assert rtts.share_3["1, 20, 80", target] < 0.2 < 0.6 < rtts.share_1["1, 20, 80", target]
    assert rtts.jain_index["1, 20, 80", "fq_codel"] > 0.95


def test_errors_are_one_line(tmp_path: Path) -> None:
    assert "codel" in EXPERIMENTS
    with pytest.raises(ParameterError, match="part: 'fpga' must be one of figure-5, table-1"):
        experiment("codel")(tmp_path / "x", part=["fpga"])
    assert not (tmp_path / "x").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ParameterError, match="already exists and is not a folder of codel"):
        experiment("codel")(tmp_path / "mine", part=["figure-7"])


def test_testbed_with_a_kernel_without_the_module_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Kernel(tmp_path / "linux", "ab" * 32, "7.2.1")
    monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: plain)
    with pytest.raises(TestbedUnavailableError, match=r"has no codel_pisa .*--with hardware/linux/aqm`$"):
        experiment("codel")(tmp_path / "x", part=["table-1"], testbed=True)
    assert not (tmp_path / "x").exists()

    def run(*_: object, **__: object) -> None:
        raise AssertionError("it runs")

    monkeypatch.setattr("cctoolkit.experiments.part.Part.run", run)
    for part, modules in (("table-1", False), ("fq-codel", True)):  # the kernel's own queues need none
        with pytest.raises(AssertionError, match="it runs"):
            experiment("codel")(tmp_path / part, part=[part], testbed=True, modules=modules)


@pytest.mark.slow
@pytest.mark.uml
def test_real_linux_stands_beside_the_simulator(tmp_path: Path) -> None:
    """Table I's Linux column and the UDP scan on the kernel's own CoDel."""
    uml_kernel()
    settings = codel.Settings(seeds=2, testbed=tmp_path / "kernel")
    table = codel.table_1(settings).tables["table1"].set_index(["target", "flows"])
    for flows in (1, 2, 3):
        kernel, simulated = table.loc[(codel.KERNEL, flows)], table.loc[("Linux", flows)]
        assert simulated.mean_delay_ms == pytest.approx(kernel.mean_delay_ms, rel=0.12)
        assert simulated.loss_percent == pytest.approx(kernel.loss_percent, rel=0.2)
    assert table.paper_delay_ms[codel.KERNEL, 3] == 7.2
