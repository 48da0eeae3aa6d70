"""The L4S paper's experiment: its load, what its watched queues note, the shapes the paper reports, and the command."""

from __future__ import annotations

import dataclasses
import math
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cctoolkit as cct
from cctoolkit.cli import app
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.experiments import experiment, l4s
from cctoolkit.experiments.l4s import cases, conclusions, figures, kernel, logs, page, scenarios, tables
from cctoolkit.experiments.l4s.queues import PublishedIRed
from cctoolkit.experiments.papers import paper_numbers
from cctoolkit.experiments.runners import Case, for_simulator
from cctoolkit.experiments.statements import OURS
from cctoolkit.scenario import read_sweep
from cctoolkit.sim.simulation import Simulation
from cctoolkit.testbed.kernel import Kernel
from cctoolkit.testbed.plan import make_plan

PUBLISHED = Path(__file__).parents[2] / "shared" / "published"
EVERY_SYSTEM = [*scenarios.SYSTEMS, *scenarios.VARIANTS]
LAUNCH = Path(__file__).parents[1] / "hardware" / "launch" / "l4s-ired-pi2"


@cache
def measured(system: str, pairs: tuple[tuple[int, int], ...] = l4s.PAIRS, **changes: float) -> l4s.Outcome:
    return l4s.Case("I", system, phase_s=15.0, pairs=pairs, aqm=changes).run()


# ---- what is run -----------------------------------------------------------------------------------------------------


def test_configurations_are_the_papers() -> None:
    table = paper_numbers("l4s-ired-pi2", "Table 1")
    for name, (rate_mbps, rtt_ms) in l4s.CONFIGURATIONS.items():
        part = table[table.setting == f"configuration {name}"].set_index("quantity").paper.astype(float)
        assert part.to_dict() == {"bandwidth_mbps": rate_mbps, "rtt_ms": rtt_ms, "mtu_bytes": 1500}
    load = paper_numbers("l4s-ired-pi2", "Table 2")
    for number, (classic, scalable) in enumerate(l4s.JOINING, 1):
        part = load[load.setting == f"phase {number}"].set_index("quantity").paper.astype(int)
        assert (part.cubic_flows, part.prague_flows) == (classic, scalable)


@pytest.mark.parametrize("configuration", l4s.CONFIGURATIONS)
@pytest.mark.parametrize("number", [0, 1])
def test_the_scenario_files_have_the_same(configuration: str, number: int) -> None:
    """``hardware/launch`` and the experiment say the same of PI2 and iRED; files have no second queue and no delay."""
    given = read_sweep(LAUNCH / f"{configuration}-sim.toml")[number][1]
    ours = l4s.Case(configuration, ("PI2", "iRED, one queue")[number], spread_s=0.0).scenario()
    mine, theirs = ours.bottleneck.aqm.parameters(), given.bottleneck.aqm.parameters()
    assert {name: mine[name] for name in theirs} == theirs
    assert (ours.duration_s, ours.bottleneck.rate_mbps, ours.bottleneck.buffer_bytes) == (
        given.duration_s,
        given.bottleneck.rate_mbps,
        given.bottleneck.buffer_bytes,
    )

    def load(scenario: cct.Scenario) -> list[cct.Flow]:
        flows = [dataclasses.replace(f, name="", aggregate=0) for f in scenario.flow_list()]
        return sorted(flows, key=lambda f: (f.start_s, f.cca_name))

    assert load(ours) == load(given)


def test_flows_join_in_phases() -> None:
    case = l4s.Case("I", "PI2", seed=3, phase_s=10.0)
    flows = pd.DataFrame([{"name": f.name, "start_s": f.start_s} for f in case.scenario().flow_list()])
    for phase, (classic, scalable) in enumerate(l4s.PAIRS):
        there = flows[flows.start_s < 10 * (phase + 1)].name.value_counts()
        assert (there.classic, there.scalable) == (classic, scalable)
        assert (flows.start_s % 10 < 0.5).all()
    assert case.scenario() != dataclasses.replace(case, seed=4).scenario()


def test_what_is_changed_one_at_a_time() -> None:
    cases = l4s.Settings(("I", "III"), seeds=1, causes=("I",)).changed()
    long = {c.configuration for c in cases if c.phase_s == 120}
    assert long == {"I", "III"}  # shorter phases are a change, too
    assert {c.configuration for c in cases if c.phase_s != 120} == {"I"}
    assert [c.about["changed"] for c in cases if c.configuration == "I"] == list(l4s.CAUSES)
    assert len(l4s.Settings(("I",), 120.0, 1, ("I",)).changed()) == len(l4s.CAUSES) - 1


def test_two_queues_by_what_flows_are_taken_for() -> None:
    for senders, identifier, queues in (
        ("Cubic; Prague", "ect1", {"classic": 1, "scalable": 0}),
        ("Cubic; DCTCP", "ect1", {"classic": 1, "scalable": 1}),
        ("Cubic; DCTCP", "dscp", {"classic": 1, "scalable": 0}),
        ("Cubic with ECN; Prague", "any_ect", {"classic": 0, "scalable": 0}),
        ("Cubic; Prague whose DSCP was cleared", "dscp", {"classic": 1, "scalable": 1}),
    ):
        classic, scalable = l4s.SENDERS[senders]
        case = l4s.Case("I", "iRED", classic=classic, scalable=scalable, aqm={"identifier": identifier})
        assert {f.name: f.queue for f in case.scenario().flows} == queues


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the authors' logs are not here")
def test_what_the_logs_say_comes_from_the_logs() -> None:
    goodput = pd.read_csv(PUBLISHED / "l4s-ired-goodput.csv.xz")
    joined = goodput.drop_duplicates("started_in_phase").set_index("started_in_phase").flows.sort_index()
    assert [(n, n) for n in joined] == list(l4s.JOINING)
    shares = logs.phase_shares(goodput).round({"scalable_share": 3, "goodput_mbps": 1})
    pd.testing.assert_frame_equal(shares, logs.logged_shares())
    pd.testing.assert_frame_equal(logs.reading_differences(goodput).round(2), logs.logged_differences())
    pd.testing.assert_frame_equal(logs.growth(goodput).round(2), logs.logged_growth())
    pd.testing.assert_frame_equal(logs.joined_shares(goodput).round(3), logs.logged_joined_shares())

    registers = logs.register_values(pd.read_csv(PUBLISHED / "l4s-ired-switch.csv"))
    found = registers.assign(drops_per_s=registers.pop("drops") / 480)
    kept = logs.logged_registers().drop(columns="marks_per_s")
    pd.testing.assert_frame_equal(found, kept, rtol=0, atol=6e-5)  # kept with 0.1 µs


def test_phases_and_readings_of_logs_by_hand() -> None:
    """Cubic has 30 of 40 in the first half and 10 of 40 in the second; the log lacks one of Cubic's seconds."""
    rows = [
        {"second": second, "cca": cca, "goodput_mbps": 30.0 if (cca == "cubic") == (second < 240) else 10.0}
        for second in range(480)
        for cca in ("cubic", "prague")
        if (second, cca) != (479, "cubic")
    ]
    about = {"system": "PI2", "rate_mbps": 120, "rtt_ms": 10, "mtu_bytes": 800, "started_in_phase": 1}
    goodput = pd.DataFrame(rows).assign(**about)
    assert logs.phase_shares(goodput).scalable_share.round(3).tolist() == [0.25, 0.25, 0.75, 0.752]
    found = logs.reading_differences(goodput).iloc[0]
    assert (found.configuration, found.system) == ("I", "PI2")
    assert found.by_phase == pytest.approx(50, abs=0.2)
    assert found.each_second == pytest.approx(50, abs=0.2)
    assert found.whole_run == pytest.approx(0, abs=0.1)


def test_delays_in_the_switchs_registers_by_hand() -> None:
    """Half of the readings are of packets that did not wait; drops stop for the first of every four seconds."""
    waits = np.tile([330, 5_000_000], 240)
    waits[360:] *= 4
    drops = np.tile([0, 20_001_000, 25_000_000, 30_000_000], 120)
    about = {"system": "P4-CoDel", "rate_mbps": 1000, "rtt_ms": 10, "mtu_bytes": 800}
    readings = pd.concat(
        pd.DataFrame({"value": values, "reading": range(480), "register": register, **about})
        for register, values in (("qdelay", waits), ("wasted_time", drops))
    )
    found = logs.register_phases(readings.sample(frac=1, random_state=1))
    assert found.phase.tolist() == [1, 2, 3, 4] and set(found.configuration) == {"III"}
    assert found.waited.tolist() == [0.5] * 4 and found.dropping.tolist() == [0.75] * 4
    assert found.qdelay_p50_ms.tolist() == [5.0, 5.0, 5.0, 20.0]
    assert found.drop_p50_ms.tolist() == [25.0] * 4
    assert found.drop_period_s.to_numpy() == pytest.approx(np.full(4, 4.0), abs=0.02)
    without = logs.register_phases(readings[readings.register == "qdelay"])
    assert without[["dropping", "drop_p50_ms", "drop_period_s"]].isna().all(axis=None)


def test_what_drops_say_about_a_phase() -> None:
    always, never = np.full(100, 30.0), np.full(100, np.nan)
    assert np.isnan(cases.drops_in_phase(always)["drop_period_s"])
    assert cases.drops_in_phase(never)["dropping"] == 0
    assert np.isnan(cases.drops_in_phase(np.tile([30.0, 20.0], 20))["drop_period_s"])  # less than a minute
    # with the clock's 4.29 s, read once a second, and with a third of the readings at random
    rng = np.random.default_rng(1)
    second = np.arange(120)
    clock = np.where(second % scenarios.CLOCK_S < 1, 20.0, 24.0)
    noisy = np.where(rng.random(120) < 1 / 3, rng.choice([20.0, 24.0], 120), clock)
    assert cases.drops_in_phase(noisy)["drop_period_s"] == pytest.approx(scenarios.CLOCK_S, rel=0.02)


def test_p4_codel_as_published_is_the_program_with_the_defect() -> None:
    case = l4s.Case("I", scenarios.CODEL_AS_PUBLISHED)
    found = case.scenario().bottleneck.aqm.parameters()
    assert (found["wrap"], found["signed"], found["from_now"], found["count_first"]) == (
        True,
        False,
        False,
        False,
    )
    assert found["target_ms"] == scenarios.TARGET_MS and found["interval_ms"] == 100


def test_logs_stand_beside_the_runs_they_belong_to() -> None:
    settings = l4s.Settings(("IV",), 2.0, 1)
    logged = {(c.system, c.mtu_bytes): c for c in settings.logged()}
    assert len(logged) == len(settings.logged()) == sum(map(len, scenarios.LOGGED.values()))
    case = dataclasses.replace(logged["iRED, coupled", 800], pairs=l4s.PAIRS[:1])
    pi2 = dataclasses.replace(logged["PI2", 1500], pairs=l4s.PAIRS[:1])
    assert {f.packet_bytes for f in case.scenario().flows} == {814}
    found = tables.beside_logs(settings, [case.run(), pi2.run()])
    shares, registers, readings = found["logs"], found["registers"], found["readings"]
    assert shares.system.tolist() == ["iRED, coupled"]  # no goodput was published for PI2 with 1500 bytes
    assert shares.logged_share[0] == 0.163
    assert 0 <= shares.scalable_share[0] <= 1 and shares.goodput_mbps[0] < 1000
    assert registers.logged_drop_p50_ms[1] == 20.8096 and np.isnan(registers.logged_drop_p50_ms[0])
    assert registers.logged_marks_per_s[0] == pytest.approx(434244 / 480)
    assert set(readings.source) == {"logs"}  # neither is a case of Table 3 that there are logs of
    assert readings.set_index(["system", "mtu_bytes"]).whole_run["iRED", 800] == 13.52
    assert readings.set_index(["system", "mtu_bytes"]).paper["iRED", 800] == 6.47


def test_drop_times_have_the_switchs_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 7: the logs' rows in ms, and statements about them that other logs turn around."""
    times = {"p5_ms": 1e-3, "q1_ms": 1e-3, "median_ms": 1e-3, "q3_ms": 1e-3, "p95_ms": 1e-3}
    drops = pd.DataFrame([{"configuration": "II", "system": "iRED", "measure": "recirculation", **times}])
    shown = page.drop_times(drops).set_index("ms")
    assert list(shown) == ["II"] and shown.II["iRED: recirculation, given"] == "0.001"
    assert shown.II["iRED, switch, 800 bytes: recirculation"] == "0.000834 (0.00075 to 0.00228)"
    assert shown.II["PI2, switch, 1500 bytes: until the drop"] == "0.15 (0.001 to 17.6)"

    def holds(given_us: float, *configurations: str) -> list[bool]:
        made = [drops.assign(configuration=name, median_ms=given_us / 1000) for name in configurations]
        return [s.holds for s in conclusions.figure_7_in_logs({"drop-delay": pd.concat(made)})]

    assert holds(1.0, "I", "II") == [True, True]
    assert holds(2.0, "I") == [True, False]
    slow = logs.logged_recirculation().assign(recirculation_median_us=500.0)  # PI2's shortest: 150 us, in II
    monkeypatch.setattr(conclusions, "logged_recirculation", lambda: slow)
    assert holds(400.0, "I") == [True, True]
    assert holds(400.0, "I", "II") == [False, True]


@pytest.mark.parametrize(("coupled", "holds"), [(4.0, True), (1.0, False)])
def test_coupling_is_judged_by_all_readings_and_has_the_papers_numbers(coupled: float, holds: bool) -> None:
    """With 5 % in the paper and 2 % for iRED; the paper's number counts once, for iRED itself."""
    third = pd.DataFrame(
        {
            "configuration": configuration, "system": system, "seed": 1,
            "paper": 5.0 if system in scenarios.MEANT else math.nan,
            **dict.fromkeys(tables.READINGS, coupled if system == "iRED, coupled" else 2.0),
        }
        for configuration in ("I", "II")
        for system in l4s.SYSTEMS
    )  # fmt: skip
    statements = conclusions.table_3({"table3": third})
    (judged,) = (s for s in statements if "coupling iRED's two queues" in s.claim)
    assert judged.holds is holds and f"iRED 3.0, iRED, coupled {abs(coupled - 5):.1f}" in judged.measured
    own = [s.claim.startswith(OURS) for s in statements if "iRED, coupled: the difference" in s.claim]
    assert own == [True, True]
    without = conclusions.table_3({"table3": third[third.system != "iRED, coupled"]})
    assert not any("coupl" in s.claim for s in without) and len(without) == len(statements) - 3


def test_changes_of_what_the_paper_fixes_are_changes_of_pi2() -> None:
    assert {scenarios.CAUSES[name][0] for name in conclusions.FIXED} == {"PI2"}


def test_errors_of_readings_are_means_over_configurations() -> None:
    rows = [
        {"source": "logs", "configuration": c, "system": "PI2", "mtu_bytes": 800, "seed": s, "paper": 10.0}
        | {"by_phase": 10.0 + x, "whole_run": 10.0 - 2 * x, "each_second": 10.0}
        for c, x in (("I", 1), ("II", -3))
        for s in (1, 2)
    ]
    errors = tables.reading_errors(pd.DataFrame(rows)).loc["logs", 800]
    assert errors.to_dict() == {"by_phase": 2.0, "whole_run": 4.0, "each_second": 0.0}


# ---- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("system", EVERY_SYSTEM)
def test_watching_changes_nothing(system: str) -> None:
    case = l4s.Case("I", system, phase_s=2.0)
    plain = cct.simulate(case.scenario(), record=False)
    watched = cct.simulate(case.scenario(watched=True), record=False)
    pd.testing.assert_frame_equal(plain.flows, watched.flows)
    pd.testing.assert_frame_equal(plain.queues, watched.queues)


@pytest.mark.slow
@pytest.mark.parametrize("system", EVERY_SYSTEM)
def test_logs_agree_with_the_taps(system: str) -> None:
    """Delays and drops as the queues note them, and as two captures around the link show them."""
    case = l4s.Case("I", system, phase_s=2.0, pairs=((3, 3),))
    sim = Simulation(case.scenario(watched=True), record=True)
    sim.run()
    run, states = sim.result(), cases._states(sim)
    delays = sum(s["delays"] for s in states)
    packets = cct.queue_delay(run.ingress, run.egress)
    key = ["ts_ns", "flow_id", "direction"]  # links of 25 Gbit/s: no two packets of a flow at once
    sent = run.ingress.packets
    sent = sent[sent.direction == 0][[*key, "ecn"]]
    packets = packets[packets.direction == 0].merge(sent, on=key, validate="1:1")
    sending_ms = packets.wire_bytes.astype(float) * 8e-3 / 120
    delay_ms = packets.delay_ns.astype("Float64") / 1e6 - sending_ms
    for row, is_scalable in ((0, True), (1, False)):
        seen = delay_ms[(packets.ecn % 2 == 1) == is_scalable].dropna().to_numpy(float)
        assert abs(int(delays[row].sum()) - len(seen)) <= 1  # one may be on the link at the end
        noted_ms = float((delays[row] * (np.arange(delays.shape[1]) + 0.5)).sum() / delays[row].sum() * 0.01)
        assert noted_ms == pytest.approx(seen.mean(), abs=0.006)
    drops = run.drops[run.drops.why != "full"]
    assert sum(int(s["noted"]) for s in states) == len(drops)
    # all others drop packets as they leave: noted is how long these had waited
    if not scenarios.system_named(system).aqm.startswith("ired"):
        waited_ns = np.sort(np.concatenate([s["drop_ns"][: int(s["noted"])] for s in states]))
        came_ns = run.ingress.packets.ts_ns.to_numpy()[drops.packet]
        assert waited_ns == pytest.approx(np.sort(drops.ts_ns.to_numpy() - came_ns), abs=130_000)
    else:  # the flag waits for the next classic packet, at least as long as the notification takes
        assert min(s["drop_ns"][: int(s["noted"])].min() for s in states if s["noted"]) >= 1000


def test_rates_are_what_arrived() -> None:
    o = measured("PI2")
    assert o.rates.index.to_numpy() == pytest.approx(np.arange(1, 61))
    flows = cct.simulate(o.case.scenario(), record=False).flows.groupby("name").received_bytes.sum()
    assert o.rates.sum().to_dict() == pytest.approx((flows * 8e-6).to_dict())
    assert [row["pairs"] for row in o.phases] == ["1-1", "3-3", "13-13", "38-38"]
    mean = o.rates[(o.rates.index > 15) & (o.rates.index <= 30)].mean()
    assert o.phases[1]["scalable_mbps"] == pytest.approx(mean.scalable)


def test_registers_are_read_once_a_second() -> None:
    """Of the drops, the last in each second counts; in phases, delays of the packets that waited."""
    delays = np.zeros((4, 2, 30_000), np.int64)
    delays[0, 0, 99], delays[0, 1, 1999] = 10, 90  # 1 ms, 20 ms
    o = dataclasses.replace(
        measured("PI2"),
        drop_ms=np.array([5.0, 7.0, 9.0, 30.0]),
        drop_at_s=np.array([0.2, 2.1, 0.9, 0.95]),
        delays=delays,
        counts={"drops": 4, "marks": 120},
    )
    found = o.registers()
    assert (found["drop_p50_ms"], found["drops_per_s"], found["marks_per_s"]) == (18.5, 4 / 60, 2.0)
    assert (found["qdelay_p5_ms"], found["qdelay_p50_ms"]) == pytest.approx((1.0, 20.0))
    delays[0, 0, 0] = 300  # did not wait
    first, second, *_ = o.register_phases()
    assert (first["phase"], first["waited"], first["dropping"]) == (1, 0.25, 2 / 15)
    assert (first["qdelay_p50_ms"], first["qdelay_p95_ms"], first["drop_p50_ms"]) == pytest.approx(
        (20, 20, 18.5)
    )
    assert second["dropping"] == 0 and np.isnan([second["waited"], second["drop_p50_ms"]]).all()
    none = dataclasses.replace(o, drop_ms=np.array([]), drop_at_s=np.array([]))
    assert np.isnan(none.registers()["drop_p95_ms"])


def test_counts_are_those_of_the_run() -> None:
    o = measured("PI2")
    sim = Simulation(o.case.scenario(watched=True))
    sim.run()
    queue, flows = sim.result().queues.iloc[0], sim.result().flows
    assert o.counts["drops"] == queue.dropped_enqueue + queue.dropped_dequeue > 0
    assert o.counts["marks"] == flows.marked_packets.sum() > 0
    assert len(o.drop_at_s) == len(o.drop_ms) == o.counts["drops"]
    assert (np.diff(o.drop_at_s) >= 0).all() and o.drop_at_s.max() <= 60


def test_p4_codel_drops_scalable_packets_and_marks_none() -> None:
    o = measured("P4-CoDel")
    assert o.counts["marks"] == 0 < o.counts["drops"]
    assert o.drop_ms.min() >= 20


def test_published_ired_has_one_probability_that_strives_for_one_half() -> None:
    """UDP of both kinds at 120 % of the link: without a way to slow down, delays are above the lower threshold."""
    flows = [
        cct.Flow("udp", rtt_ms=10, rate_mbps=6, ecn=ecn, queue=queue, arrivals="poisson")
        for queue, ecn in ((0, "l4s"), (1, "off"))
    ]

    def found(aqm: cct.aqm.Aqm) -> tuple[Simulation, pd.DataFrame]:
        link = cct.Bottleneck(rate_mbps=10, buffer_bytes=400_000, aqm=aqm, queues=(cct.Queue(), cct.Queue()))
        sim = Simulation(cct.Scenario(bottleneck=link, flows=flows, duration_s=30), sample_s=0.1)
        sim.run(30)
        return sim, sim.result().aqm_stats

    sim, stats = found(PublishedIRed(min_ms=1, max_ms=1000))
    assert len(stats) == 1  # of the port
    chance = sim.aqm_state(0)["chance"] / 65536
    classic = stats.notifications[0] / (30 * 6e6 / 8 / 1514)
    assert 0.05 < chance < 0.5  # it has risen by one a packet, and two kinds meet it
    assert stats.marks[0] == pytest.approx(2 * stats.notifications[0], rel=0.35)
    assert 0 < stats.drops[0] < stats.notifications[0]  # scalable packets clear the flag, too
    assert classic < 0.5
    above, _ = found(PublishedIRed(min_ms=0.1, max_ms=0.2))
    assert above.aqm_state(0)["chance"] < sim.aqm_state(0)["chance"]  # above the upper threshold it rests


def test_conclusions_about_the_published_ired_come_out_either_way() -> None:
    names = {"iRED": 0, scenarios.AS_PUBLISHED: 1}
    keys = {"configuration": "I", "mtu_bytes": 800, "seed": 1}

    def holds(share: float, marks: float, drops: float) -> list[bool]:
        shares = [
            keys | {"system": s, "phase": 1, "scalable_share": share if new else 0.4, "logged_share": 0.5}
            for s, new in names.items()
        ]
        registers = [
            keys | {
                "system": s, "marks_per_s": marks if new else 500.0, "logged_marks_per_s": 1000.0,
                "logged_drop_p50_ms": np.nan, "drop_p50_ms": 0.1, "drops_per_s": drops if new else 60.0,
                "logged_drops_per_s": 50.0,
            }
            for s, new in names.items()
        ]  # fmt: skip
        made = {"published-logs": pd.DataFrame(shares), "published-registers": pd.DataFrame(registers)}
        return [s.holds for s in conclusions.published(made)]

    assert holds(0.49, 900.0, 60.0) == [True] * 5
    assert holds(0.80, 100.0, 200.0) == [False] * 5


def test_conclusions_about_the_clock_come_out_either_way() -> None:
    """Runs that do as the switch did, and runs that do not; the logs' own statement is about the logs."""
    switch = logs.logged_register_phases().query("system == 'P4-CoDel' and mtu_bytes == 800")
    log = switch[switch.configuration.isin(["I", "II"])].drop(columns="system")
    usual, new = scenarios.CODEL, scenarios.CODEL_AS_PUBLISHED

    def statements(recurs: str, others: float, dropping: float, drops: float) -> dict[str, bool]:
        """Which system recurs; how far the other quantities are off; and in the published program, the drops."""
        phases, registers, shares = [], [], []
        for system in (usual, new):
            mine = log.assign(
                drop_period_s=scenarios.CLOCK_S if recurs == system else 3.0,
                waited=1.0,
                dropping=log.dropping + (dropping if system == new else 0.2),
            )
            mine[["qdelay_p50_ms", "qdelay_p95_ms"]] += others
            keys = ["configuration", "mtu_bytes", "phase"]
            logged = log.rename(columns={name: f"logged_{name}" for name in log if name not in keys})
            phases.append(mine.merge(logged, on=keys).assign(system=system, seed=1))
            for configuration in ("I", "II"):
                about = {"configuration": configuration, "mtu_bytes": 800, "seed": 1, "system": system}
                registers.append(
                    about | {"drop_p50_ms": 21 + others, "logged_drop_p50_ms": 21.0, "drops_per_s": drops,
                             "logged_drops_per_s": 50.0, "marks_per_s": 0.0, "logged_marks_per_s": np.nan}
                )  # fmt: skip
                shares.append(
                    about
                    | {
                        "phase": 1,
                        "logged_share": 0.5,
                        "scalable_share": 0.5 + (others / 20 if system == new else 0.3),
                    }
                )
        registers[0]["drops_per_s"] = registers[1]["drops_per_s"] = 10.0
        made = {"phases": pd.concat(phases), "registers": pd.DataFrame(registers),
                "logs": pd.DataFrame(shares)}  # fmt: skip
        found = conclusions.clock({f"clock-{name}": table for name, table in made.items()})
        return {s.claim.removeprefix(OURS): s.holds for s in found}

    good, bad = statements(new, 0.5, 0.01, 60.0), statements(usual, 9.0, 0.5, 500.0)
    assert list(good) == list(bad)
    always = [c for c in good if c.startswith(("on the switch", "the switch's delay register"))]
    assert len(always) == 2 and all(good[c] and bad[c] for c in always)  # the switch's alone, or nearly
    published = [c for c in good if "ublished program" in c or c.startswith(new)]
    assert len(published) == 9 and all(good[c] and not bad[c] for c in published)


def test_conclusions_about_delays_come_out_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each system as far from the switch as said: usual ones, and their variants."""
    switch = logs.logged_register_phases().query("mtu_bytes == 800")
    keys = ["configuration", "mtu_bytes", "phase"]
    columns = [*keys, "qdelay_p50_ms", "qdelay_p95_ms"]

    def statements(usual_ms: float, variant_ms: float, drops: float) -> dict[str, bool]:
        phases, registers = [], []
        for system in scenarios.DELAYS:
            logged = switch[switch.system == system.split(",")[0]][columns]
            mine = logged.assign(system=system, seed=1)
            mine[columns[3:]] += usual_ms if system in scenarios.PUBLISHED else variant_ms
            logged = logged.rename(columns={name: f"logged_{name}" for name in columns[3:]})
            phases.append(mine.merge(logged, on=keys))
            registers += [
                {"configuration": c, "mtu_bytes": 800, "seed": 1, "system": system,
                 "drops_per_s": drops, "logged_drops_per_s": 5.0}
                for c in ("I", "III")
            ]  # fmt: skip
        made = {"delay-phases": pd.concat(phases), "delay-registers": pd.DataFrame(registers)}
        return {s.claim.removeprefix(OURS): s.holds for s in conclusions.delays(made)}

    near, far = statements(1.5, 0.5, 6.0), statements(6.0, 9.0, 60.0)
    on_the_switch, pings, *others = near
    assert on_the_switch.startswith("on the switch, PI2 keeps its queue at 20.48 ms") and near[on_the_switch]
    assert "pings" in pings and near[pings]
    assert len(others) == 2 * len(scenarios.DELAYS) + 2 * 3 + 2
    assert all(near[claim] and not far[claim] for claim in others)

    table = logs.logged_register_phases()
    monkeypatch.setattr(conclusions, "logged_register_phases", lambda: table.assign(qdelay_p50_ms=20.0))
    assert not statements(1.5, 0.5, 6.0)[on_the_switch]


def test_delays_are_drawn_beside_the_switch() -> None:
    """A panel for each of the switch's systems, packet sizes and configurations; means over seeds; one legend."""
    keys = {"configuration": "I", "mtu_bytes": 800}
    phases = pd.DataFrame(
        [
            keys | {"system": system, "seed": seed, "phase": phase, "qdelay_p50_ms": 10.0 * phase + seed,
                    "logged_qdelay_p50_ms": 19.0}
            for system in ("iRED", scenarios.AS_PUBLISHED, "PI2")
            for seed in (1, 2)
            for phase in (1, 2)
        ]
    )  # fmt: skip
    fig = figures.queue_delays_figure(phases)
    assert [t.text for t in fig.layout.annotations[:2]] == [
        f"{s}, 800 bytes, configuration I" for s in ("iRED", "PI2")
    ]
    assert [trace.name for trace in fig.data] == [
        "iRED", scenarios.AS_PUBLISHED, "the authors' switch", "PI2", "the authors' switch",
    ]  # fmt: skip
    assert [list(fig.data[i].y) for i in (0, 2)] == [[11.5, 21.5], [19.0, 19.0]]
    assert [trace.name for trace in fig.data if trace.showlegend] == [trace.name for trace in fig.data[:4]]


def test_growth_of_a_log_by_hand() -> None:
    """Prague falls to 3 in second 2 and gains 2 in each second; other flows, phases and seconds do not count."""
    rates = [500.0, 90.0, *(3.0 + 2 * second for second in range(118)), 0.0]
    same = {"system": "iRED", "rate_mbps": 1000, "rtt_ms": 50, "mtu_bytes": 800}
    prague = [
        same | {"started_in_phase": 1, "cca": "prague", "second": s, "goodput_mbps": r}
        for s, r in enumerate(rates)
    ]
    others = [
        row | {"goodput_mbps": 0.0, **other}
        for row in prague
        for other in ({"cca": "cubic"}, {"started_in_phase": 2})
    ]
    (found,) = logs.growth(pd.DataFrame(prague + others)).to_dict("records")
    assert (found["configuration"], found["lowest_mbps"], found["lowest_s"]) == ("IV", 3.0, 2)
    assert found["first_growth"] == pytest.approx(2) and found["later_growth"] == pytest.approx(2)


def test_joined_shares_of_a_log_by_hand() -> None:
    """Prague's flow of phase 1 has 30 in each second; those that join in phase 3 have 10 there and 90 in phase 4."""
    same = {"system": "PI2", "rate_mbps": 1000, "rtt_ms": 50, "mtu_bytes": 800}
    rows = [
        same | {"started_in_phase": started, "cca": cca, "second": s, "goodput_mbps": rate}
        for s in range(480)
        for started, cca, rate in (
            (1, "prague", 30.0),
            (3, "prague", 90.0 if s >= 360 else 10.0),
            (3, "cubic", 50.0),
        )
        if s >= 120 * (started - 1)
    ]
    found = logs.joined_shares(pd.DataFrame(rows)).set_index(["configuration", "phase"]).joined_share
    assert found.to_dict() == {("IV", 2): 0.0, ("IV", 3): 0.25, ("IV", 4): 0.0}


def test_stalled_connections_of_a_report_by_hand() -> None:
    """One that sends in a quarter of the seconds after its first does not stall; sums and totals do not count."""

    def line(port: int, connection: int, seconds: str, sent_bytes: int) -> str:
        return f"20230517120352,10.0.0.50,{port},10.0.0.7,65008,{connection},{seconds},{sent_bytes},{8 * sent_bytes}"

    lines = []
    for second in range(9):
        seconds = f"{second}.0-{second + 1}.0"
        for port, sends in ((1, True), (2, second == 0), (3, second in (4, 8)), (4, second in (0, 8))):
            lines.append(line(port, 3, seconds, 748 if sends else 0))
        lines.append(line(0, -1, seconds, 0))
    lines += [line(port, 3, "0.0-9.2", 748) for port in (1, 2, 3, 4)]
    assert logs.stalled_connections("\n".join(lines)) == (4, 2)
    assert logs.stalled_connections("") == (0, 0)


def test_pings_of_a_report_by_hand() -> None:
    """The answers of a phase wait for 1, 2, 3, … ms. In phase 2 every other ping is lost, in phase 4 all are."""
    lines = [
        f"10.0.0.7,{number},{50 + (number - 1) % 120 + 1}"
        for number in range(1, 361)
        if not 120 < number <= 240 or number % 2
    ]
    first, second, third, fourth = logs.ping_phases("\n".join([*lines, ""]), 50)
    assert [row["answered"] for row in (first, second, third, fourth)] == [120, 60, 120, 0]
    assert first["qdelay_p50_ms"] == third["qdelay_p50_ms"] == pytest.approx(60.5)
    assert second["qdelay_p50_ms"] == pytest.approx(60)
    assert first["qdelay_p95_ms"] == pytest.approx(114.05)
    assert math.isnan(fourth["qdelay_p50_ms"])


def test_conclusions_about_pings_come_out_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    known = logs.logged_pings()

    def holds(pings: pd.DataFrame) -> list[bool]:
        monkeypatch.setattr(conclusions, "logged_pings", lambda: pings)
        found = [*conclusions._lost_pings(), *conclusions._pinged(), *conclusions._pinged_otherwise()]
        return [s.holds for s in found]

    assert holds(known) == [True] * 4
    assert holds(known.assign(answered=120)) == [False, True, True, True]
    assert holds(known.assign(answered=60)) == [False, True, True, True]
    assert holds(known.assign(qdelay_p50_ms=known.qdelay_p50_ms + 20 * (known.configuration == "IV"))) == [
        True, False, True, True,
    ]  # fmt: skip
    assert holds(known.assign(qdelay_p50_ms=known.qdelay_p50_ms + 7)) == [True, True, False, False]


def test_pings_stand_beside_the_systems_they_belong_to() -> None:
    keys = {"configuration": "I", "seed": 1, "qdelay_p50_ms": 1.0, "qdelay_p95_ms": 2.0}
    keys |= {"logged_qdelay_p50_ms": 3.0, "logged_qdelay_p95_ms": 4.0}
    phases = pd.DataFrame(
        [
            keys | {"system": system, "mtu_bytes": size, "phase": phase}
            for system, size in ((scenarios.AS_PUBLISHED, 800), ("PI2", 1500))
            for phase in (1, 2, 3, 4)
        ]
    )
    (long, ired) = page.delays_beside_switch(phases).to_dict("records")
    known = logs.logged_pings().query("configuration == 'I' and system == 'iRED' and mtu_bytes == 800")
    assert ired["median, ms: pings"] == " / ".join(
        f"{ms:.1f}" for ms in known.sort_values("phase").qdelay_p50_ms
    )
    assert (ired["median, ms: simulator"], ired["95 %, ms: switch"]) == (
        "1.0 / 1.0 / 1.0 / 1.0",
        "4.0 / 4.0 / 4.0 / 4.0",
    )
    assert long["system"] == "PI2" and long["median, ms: pings"] == "–"  # there are none with 1500 bytes
    lost = page.stalls_by_system(tables.stalls_by_path()).set_index(["configuration", "MTU"])
    assert lost.loc[("IV", 800), "iRED: pings lost, %"] == "1 / 16 / 66 / 78"
    assert lost.loc[("IV", 800), "iRED: stalled"] == "7 and 29"


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the authors' logs are not here")
def test_connections_that_may_stall_are_those_of_the_logs() -> None:
    keys = ["rate_mbps", "rtt_ms", "system", "mtu_bytes", "cca", "started_in_phase"]
    goodput = pd.read_csv(PUBLISHED / "l4s-ired-goodput.csv.xz").query("mtu_bytes >= 400")
    flows = goodput.groupby(keys).flows.max()
    stalls = scenarios.logged_stalls()
    settings = [scenarios.CONFIGURATIONS[name] for name in stalls.configuration]
    stalls = stalls.assign(rate_mbps=[rate for rate, _ in settings], rtt_ms=[rtt for _, rtt in settings])
    found = stalls.rename(columns={"phase": "started_in_phase"}).set_index(keys).connections
    assert found.sort_index().to_dict() == flows.to_dict()


def test_the_load_is_run_without_connections_that_stalled() -> None:
    """All configurations are asked for; connections stalled in one. There, each phase has as many as sent."""
    made = l4s.Settings(phase_s=120.0, seeds=1).stalled()
    assert {case.configuration for case in made} == {"IV"}
    of = {(case.system, case.mtu_bytes, case.about["connections"]): case for case in made}
    assert len(of) == len(made) == 3 * sum(map(len, scenarios.STALLED.values()))
    everything, sent, trains = (of["PI2", 800, name] for name in scenarios.CONNECTIONS)
    assert everything.pairs == l4s.PAIRS and sent.pairs == ((1, 1), (3, 3), (12, 8), (35, 9)) == trains.pairs
    assert {flow.delayed_ack for flow in trains.scenario().flows} == {16}
    assert (
        {flow.delayed_ack for flow in sent.scenario().flows}
        == {flow.delayed_ack for flow in everything.scenario().flows}
        != {16}
    )
    names = [flow.name for flow in sent.scenario().flows]
    assert (names.count("classic"), names.count("scalable")) == sent.pairs[-1]
    assert l4s.Settings(["I", "III"]).stalled() == []


def test_conclusions_about_stalls_come_out_either_way() -> None:
    def holds(share: float, drops: float, marks: float, least: int, cubic: int) -> list[bool]:
        keys = {"configuration": "IV", "mtu_bytes": 800, "seed": 1}
        rows = [
            keys
            | {"system": system, "connections": name, "marked": marked, "ours": name != "all connections"}
            for system, marked in (("iRED, as published", True), ("PI2", False))
            for name in scenarios.CONNECTIONS
        ]
        frame = pd.DataFrame(rows)
        shares = frame.assign(
            phase=4, logged_share=0.3, scalable_share=frame.ours.map({True: share, False: 0.5})
        )
        registers = frame.assign(
            logged_drops_per_s=10.0, drops_per_s=frame.ours.map({True: drops, False: 30.0}),
            logged_marks_per_s=frame.marked.map({True: 900.0, False: np.nan}),
            marks_per_s=frame.ours.map({True: marks, False: 2700.0}),
        )  # fmt: skip
        stalls = pd.DataFrame(
            [
                {"cca": cca, "path_packets": path, "connections": 38, "stalled": stalled}
                for path, prague, other in ((least, 2, cubic), (3000, 0, 0), (9000, 5, 0))
                for cca, stalled in (("prague", prague), ("cubic", other))
            ]
        )
        made = {"stalls": stalls, "stalled": shares, "stalled-registers": registers}
        return [s.holds for s in conclusions.stalled(made)]

    # of the logs where, whose, five about pings; of iRED shares, drops and marks with each choice, marks with each
    # of three; of PI2 shares and drops with each choice
    assert holds(0.31, 11.0, 1000.0, 4000, 1) == [*[True] * 13, False, *[True] * 6]
    assert holds(0.70, 31.0, 2800.0, 2000, 9) == [False, False, *[True] * 5, *[False] * 13]
    only_logs = conclusions.stalled({"stalls": tables.stalls_by_path()})
    assert [s.holds for s in only_logs] == [True] * 7


def test_netem_drops_what_it_has_no_room_for() -> None:
    assert conclusions.netem_drops(pd.Series([100, 2000, 4000, 20_000])).tolist() == [0.0, 0.0, 0.5, 0.9]


def test_conclusions_about_pings_and_netem_come_out_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pings = logs.logged_pings()
    for answered, holds in ((0, [False] * 3), (120, [False, False, True])):  # lost everywhere, and nowhere
        monkeypatch.setattr(conclusions, "logged_pings", lambda n=answered: pings.assign(answered=n))
        assert [s.holds for s in conclusions._lost_in_netem()] == holds


def test_a_late_controller_reads_what_its_register_has() -> None:
    """Following every packet it is PI2's; an average of so many packets comes too late, and the queue swings."""

    def run(system: str, **aqm: float) -> pd.DataFrame:
        case = l4s.Case("I", system, phase_s=10.0, pairs=((3, 3),), aqm=aqm)
        return pd.DataFrame(case.run().phases)

    usual, same = run("PI2"), run("PI2, late")
    assert same.scalable_share[0] == pytest.approx(usual.scalable_share[0], abs=0.05)
    assert same.classic_p50_ms[0] == pytest.approx(usual.classic_p50_ms[0], abs=2)
    averaged = run("PI2, late", rise_packets=4096, fall_packets=4096)
    longest = run("PI2, late", fall_packets=16384)
    assert averaged.classic_p99_ms[0] > usual.classic_p99_ms[0] + 5
    assert (
        longest.classic_p50_ms[0] < usual.classic_p50_ms[0] - 2
    )  # the longest delay is at the target, not the usual


def test_conclusions_about_late_controllers_come_out_either_way() -> None:
    keys = {"configuration": "I", "system": "PI2", "mtu_bytes": 800, "seed": 1}

    def holds(share: float, drop_ms: float, drops: float, joined: float) -> list[bool]:
        found = {"usual": (0.5, 20.0, 50.0), "late": (share, drop_ms, drops)}
        shares = [
            keys | {"late": name, "phase": 1, "scalable_share": ours, "logged_share": 0.7}
            for name, (ours, _, _) in found.items()
        ]
        registers = [
            keys | {"late": name, "drop_p50_ms": delay, "logged_drop_p50_ms": 12.0, "drops_per_s": count,
                    "logged_drops_per_s": 90.0}
            for name, (_, delay, count) in found.items()
        ]  # fmt: skip
        joining = [
            {"configuration": c, "system": "iRED", "phase": 4, "joined_share": part, "by_number": 0.6}
            for c, part in (("III", 0.6), ("IV", joined))
        ]
        made = {"late": shares, "late-registers": registers, "joining": joining}
        return [s.holds for s in conclusions.late({k: pd.DataFrame(v) for k, v in made.items()})]

    assert holds(0.68, 13.0, 80.0, 0.1) == [False, True, True, True, True, True]
    assert holds(0.40, 21.0, 20.0, 0.6) == [False, False, False, True, False, False]


def test_drops_that_take_no_time_drain_a_queue_sooner() -> None:
    """When the clock wraps, the published program drops until the queue has fallen to the target: with the link's time
    for each, it falls only as the senders slow down."""

    def outcome(late: bool) -> dict[str, float]:
        aqm = {"late": late, "clock_ms": 2**32 / 1e6 - 3000}  # wraps after 3 s
        case = l4s.Case("III", scenarios.CODEL_AS_PUBLISHED, phase_s=6.0, pairs=((3, 3),), aqm=aqm)
        run = case.run()
        return {"drops": run.counts["drops"], "used": run.phases[0]["utilisation"]}

    behind, before = outcome(late=True), outcome(late=False)
    assert before["drops"] < 0.8 * behind["drops"]
    assert before["used"] > behind["used"]


def test_conclusions_about_drops_come_out_either_way() -> None:
    pings = logs.logged_pings().query("configuration == 'I' and mtu_bytes == 800")

    def statements(base: float, changed: float) -> list[bool]:
        factors = {
            name: base if name == system else changed for name, (system, _, _) in scenarios.DROPS.items()
        }
        rows = [
            {
                "configuration": "I", "system": system, "mtu_bytes": 800, "seed": 1, "changed": name,
                "drops_per_s": 10 * factors[name], "logged_drops_per_s": 10.0,
                "marks_per_s": 20 * base, "logged_marks_per_s": 20.0 if "iRED" in system else np.nan,
            }
            for name, (system, _, _) in scenarios.DROPS.items()
        ]  # fmt: skip
        phases = [
            pings[pings.system == scenarios.switch_system(system)].assign(
                system=system,
                changed=name,
                seed=1,
                qdelay_p50_ms=lambda t, f=factors[name]: t.qdelay_p50_ms + f,
            )
            for name, (system, _, _) in scenarios.DROPS.items()
        ]
        made = {"drops": pd.DataFrame(rows), "drops-phases": pd.concat(phases)}
        return [s.holds for s in conclusions.drops(made)]

    # of iRED drops, marks, pings, then with the change these and what comes nearer; of P4-CoDel drops, pings, then
    # with each change these and what comes nearer
    assert statements(1.5, 1.1) == [True] * 18
    assert statements(3.0, 5.0) == [False] * 18
    assert statements(3.0, 1.0) == [*[False] * 3, True, False, *[True] * 3, False, False, *[True] * 8]


def test_after_slow_start_a_restarting_prague_has_few_packets() -> None:
    from cctoolkit.experiments.l4s.variants import RestartingPrague

    def shares(cca: object) -> tuple[float, float]:
        case = l4s.Case("IV", "iRED", phase_s=6.0, pairs=((1, 1),), scalable={"cca": cca}, mtu_bytes=800)
        rates = case.run().rates.scalable
        return rates.max(), rates.iloc[-1]

    most, last = shares(RestartingPrague())
    assert most > 50 and last < 20  # in 4 s it grows by a packet per round trip, 2.4 Mbit/s per second
    assert shares("prague")[1] > 100


def test_conclusions_about_slow_start_come_out_either_way() -> None:
    keys = ["configuration", "mtu_bytes", "lowest_mbps", "lowest_s", "first_growth", "rtt_law", "virtual_law"]

    def holds(lowest: float, near: float, far: float, share: float) -> list[bool]:
        growth = [("III", 800, lowest, 2, near, 59.8, 9.6), ("IV", 800, lowest, 2, far, 2.4, 2.4)]
        shares = [
            {
                "slow_start": name, "configuration": "IV", "system": "iRED", "mtu_bytes": 800, "phase": 1,
                "scalable_share": found, "logged_share": 0.16,
            }
            for name, found in (("Prague", 0.5), ("few", share))
        ]  # fmt: skip
        tables = {"growth": pd.DataFrame(growth, columns=keys), "slow-start": pd.DataFrame(shares)}
        return [s.holds for s in conclusions.slow_start(tables)]

    assert holds(5, 50, 2.2, 0.2) == [True] * 5
    assert holds(60, 10, 9, 0.9) == [False] * 5


def test_three_readings_of_table_3() -> None:
    """Cubic has 3 of 4 in one phase and 1 of 4 in the other: even on the whole, 50 % apart by phase."""
    o = measured("PI2")
    rates = pd.DataFrame({"classic": [30.0, 30.0, 10.0, 10.0], "scalable": [10.0, 10.0, 30.0, 30.0]})
    rows = [{"classic_mbps": 30.0, "scalable_mbps": 10.0}, {"classic_mbps": 10.0, "scalable_mbps": 30.0}]
    made = dataclasses.replace(o, rates=rates, phases=rows)
    assert made.differences() == pytest.approx({"by_phase": 50.0, "whole_run": 0.0, "each_second": 50.0})
    table = l4s.table_3([o, measured("DualPI2")])
    assert table.paper[0] == 17.06 and np.isnan(table.paper[1])


# ---- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ired_is_more_even_than_pi2_and_it_is_the_queues() -> None:
    apart = {name: measured(name).differences()["by_phase"] for name in l4s.SYSTEMS}
    assert apart["iRED"] < 2 and apart["PI2, two queues"] < 2
    assert apart["PI2"] > 3 * apart["iRED"]
    assert apart["iRED, one queue"] > 3 * apart["iRED"]
    share = [row["scalable_share"] for row in measured("PI2").phases]
    assert share[1] > 0.53 and abs(share[2] - 0.5) < 0.06  # uneven with two pairs, better with ten


@pytest.mark.slow
def test_queues_in_turn_are_fair_to_classes_coupling_to_flows() -> None:
    def each(system: str) -> float:
        last = measured(system, ((1, 9),)).phases[-1]
        return float(last["scalable_mbps"] / 9 / last["classic_mbps"])

    assert each("iRED") == pytest.approx(1 / 9, rel=0.1)
    assert 0.4 < each("PI2") < 2.5
    assert 0.4 < each("DualPI2") < 2.5


@pytest.mark.slow
def test_dualpi2_keeps_l4s_packets_under_two_milliseconds() -> None:
    assert max(row["scalable_p99_ms"] for row in measured("DualPI2").phases) < 2
    assert min(row["scalable_p50_ms"] for row in measured("PI2").phases[1:]) > 10


@pytest.mark.slow
def test_drop_delay_is_shorter_under_ired_but_not_what_a_receiver_sees() -> None:
    table = l4s.drop_delays([measured("iRED"), measured("PI2")])
    median = table.set_index(["system", "measure"]).median_ms
    assert median["iRED", "recirculation"] == pytest.approx(0.001)
    assert median["iRED", "until the drop"] < 1
    assert median["PI2", "until the drop"] == pytest.approx(20, abs=3)
    assert median["iRED", "until the gap leaves"] > median["PI2", "until the drop"]


@pytest.mark.slow
def test_a_steady_probability_is_fairer() -> None:
    """The cause of PI2's unevenness with few flows: gains of a tenth swing less, and Prague's lead shrinks."""
    steady = measured("PI2", alpha=0.03125, beta=0.3125).phases[1]
    swinging = measured("PI2").phases[1]
    assert steady["probability_swing"] < swinging["probability_swing"]
    assert steady["scalable_share"] < swinging["scalable_share"]


@pytest.mark.slow
def test_a_wrong_identifier_starves() -> None:
    def share(senders: str, identifier: str) -> float:
        classic, scalable = l4s.SENDERS[senders]
        case = l4s.Case("I", "PI2", phase_s=15.0, pairs=((2, 2),), classic=classic, scalable=scalable,
                        aqm={"identifier": identifier})  # fmt: skip
        return float(case.run().phases[0]["scalable_share"])

    right = share("Cubic; Prague", "dscp")
    assert share("Cubic; Prague whose DSCP was cleared", "dscp") > 0.7 > right
    assert share("Cubic with ECN; Prague", "any_ect") > 0.7
    assert share("Cubic; DCTCP", "ect1") > 0.7


# ---- the whole, and errors -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything the command writes, with phases so short that only the plumbing can be told from it."""
    monkeypatch.setitem(sys.modules, "kaleido", None)  # no images: a browser for each takes long
    assert l4s.PARTS  # imported before its Settings are replaced
    whole = l4s.Settings
    monkeypatch.setattr(cases, "Settings", lambda *given: dataclasses.replace(whole(*given), phase_s=2.0))
    causes = {name: l4s.CAUSES[name] for name in ("PI2 as above", "iRED, one queue")}
    monkeypatch.setattr(cases, "CAUSES", causes)
    monkeypatch.setattr(cases, "SENDERS", {"Cubic; Prague": l4s.SENDERS["Cubic; Prague"]})
    monkeypatch.setattr(cases, "UNEVEN", ((1, 9),))
    folder = experiment("l4s")(tmp_path / "out", configuration=["I"], seeds=2, workers=1)
    third = pq.read_table(folder / "table3.parquet").to_pandas()
    assert sorted(third.system.unique()) == sorted(l4s.SYSTEMS) and len(third) == 2 * len(l4s.SYSTEMS)
    goodput = pq.read_table(folder / "goodput.parquet").to_pandas()
    assert goodput.groupby(["system", "seed"]).size().eq(8).all()
    assert set(pq.read_table(folder / "causes.parquet").to_pandas().changed) == set(causes)
    assert len(pq.read_table(folder / "identification.parquet").to_pandas()) == 2 * 3 * 2
    assert len(pq.read_table(folder / "uneven.parquet").to_pandas()) == 6 * 2
    assert (folder / "stalls.parquet").exists() and not (folder / "stalled.parquet").exists()
    assert {p.name for p in folder.iterdir()} >= {
        "figure5.html",
        "figure7.html",
        "table3.html",
        "causes.html",
    }
    text = (folder / "summary.md").read_text()
    assert "| I | PI2 | 17.1 |" in text and "99 % of the L4S packets" in text
    assert "Real Linux" not in text


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="configuration: 'V' must be one of I, II, III, IV"):
        experiment("l4s")(tmp_path / "x", configuration=["V"])
    with pytest.raises(
        ParameterError, match=r"system: 'RED' must be one of iRED, iRED, coupled, PI2, .*P4-CoDel"
    ):
        l4s.Case("I", "RED").scenario()
    with pytest.raises(ParameterError, match=r"phase_s: 0\.5 must be a whole number"):
        l4s.Settings(phase_s=0.5)


def test_testbed_without_a_kernel_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCTOOLKIT_UML_KERNEL", str(tmp_path / "none"))
    with pytest.raises(TestbedUnavailableError):
        experiment("l4s")(tmp_path / "x", testbed=True)
    assert not (tmp_path / "x").exists()


def test_testbed_with_a_kernel_without_the_modules_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DualPI2 with DCTCP is another experiment, which only --no-modules asks for."""
    plain = Kernel(tmp_path / "linux", "ab" * 32, "7.2.1", modules={"pi2": "sch_pi2"})
    monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: plain)
    lacks = (
        r"linux: Linux 7\.2\.1 has no ired, prague \(according to linux\.json, .* "
        "--with hardware/linux/aqm --with hardware/linux/prague`$"
    )
    with pytest.raises(TestbedUnavailableError, match=lacks):
        experiment("l4s")(tmp_path / "x", part=["kernel"], testbed=True)
    assert not (tmp_path / "x").exists()

    def run(*_: object, **__: object) -> None:
        raise AssertionError("it runs")

    monkeypatch.setattr("cctoolkit.experiments.part.Part.run", run)
    with pytest.raises(AssertionError, match="it runs"):
        experiment("l4s")(tmp_path / "x", part=["kernel"], testbed=True, modules=False)
    with pytest.raises(AssertionError, match="it runs"):  # which needs no kernel
        experiment("l4s")(tmp_path / "y", part=["uneven"], testbed=True)
    with pytest.raises(ParameterError, match="part: netem needs modules"):
        experiment("l4s")(tmp_path / "z", part=["netem"], testbed=True, modules=False)


def test_on_the_command_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["experiment", "l4s", "--help"])
    assert result.exit_code == 0 and "--full" in result.output and "--testbed" in result.output
    result = CliRunner().invoke(
        app, ["experiment", "l4s", "-o", str(tmp_path / "x"), "--configuration", "VI"]
    )
    assert result.exit_code == 1
    assert "Traceback" not in result.output and not (tmp_path / "x").exists()


def test_taps_of_both_sides_are_measured_alike() -> None:
    """The kernel's and the simulator's captures go through one function: here those of the simulator."""
    scenario = dataclasses.replace(kernel.linux_scenario("I", "DualPI2", 1, 2.0, "DCTCP"), duration_s=4.0)
    found = pd.DataFrame(kernel.measure(cct.simulate(for_simulator(scenario)), 2.0))
    assert sorted(found.phase.unique()) == [1, 2]
    second = found[found.phase == 2].set_index("quantity").value
    assert second.utilisation == pytest.approx(1, abs=0.05)
    assert 0 < second["scalable p50, ms"] < second["scalable p99, ms"] < 2 < second["classic p50, ms"]
    assert 0 < second["scalable share"] < 1


def test_what_a_kernel_has_is_run_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without our modules DualPI2 with DCTCP; with them the papers' systems and Prague, as Linux understands them."""
    plain = Kernel(tmp_path / "linux", "ab" * 32, "7.2.1")
    own = dataclasses.replace(plain, modules={"ired": "sch_ired", "pi2": "sch_pi2", "prague": "tcp_prague"})
    settings = l4s.Settings(("I", "III"), 30.0, 3, kernel=tmp_path)

    def made(kernel_found: Kernel) -> list[dict[str, object]]:
        monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: kernel_found)
        for case in kernel.cases(settings):
            make_plan(case.scenario) if case.kernel else cct.Simulation(case.scenario)
        return [case.about for case in kernel.cases(settings)]

    few, all_of_it = made(plain), made(own)
    assert {(row["system"], row["senders"]) for row in few} == {("DualPI2", "DCTCP")}
    assert {row["system"] for row in all_of_it} == {"iRED", "PI2", "DualPI2"}
    assert {row["senders"] for row in all_of_it} == {"Prague"}
    assert len(all_of_it) == 3 * 2 * (2 + 1)  # systems, sides, seeds of both configurations
    assert {row["phase_s"] for row in all_of_it} == {10.0}


def test_netem_at_the_receiver_has_each_room_with_the_same_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Kernel(tmp_path / "linux", "ab" * 32, "7.2.1", modules={"ired": "", "pi2": "", "prague": ""})
    monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: own)
    assert kernel.netem_cases(l4s.Settings(("I", "IV"))) == []
    made = kernel.netem_cases(l4s.Settings(("I", "IV"), 120.0, kernel=tmp_path))
    assert [(c.about["configuration"], c.about["system"], c.about["netem"]) for c in made] == [
        (configuration, system, netem)
        for configuration in ("I", "IV")
        for system in ("iRED", "PI2")
        for netem in scenarios.NETEM
    ]
    default, merging, ample = made[-3:]
    assert (
        default.scenario == ample.scenario
        and default.scenario.duration_s == 4 * default.about["phase_s"] == 20.0
    )
    assert (
        {f.delayed_ack for f in merging.scenario.flows}
        == {16}
        != {f.delayed_ack for f in ample.scenario.flows}
    )
    plans = [
        make_plan(case.scenario, ack_limit=case.ack_limit).hosts["B"] for case in (default, merging, ample)
    ]
    assert [plan.tc for plan in plans] == [
        [f"qdisc add dev br root netem limit {limit} delay 50000.000us"] for limit in (1000, 1000, 1_000_000)
    ]


def test_connections_that_stall_on_linux_by_hand() -> None:
    """In phase 1 one flow sends all the time and one stalls; in phase 2 one has no sample, and one sends."""
    flows = pd.DataFrame(
        {
            "flow_id": [0, 1, 2, 3],
            "name": ["classic", "scalable", "classic", "scalable"],
            "start_s": [0.1, 0.2, 10.1, 10.2],
        }
    )
    seconds = np.arange(21)
    acked = {0: 1000 * seconds, 1: np.minimum(seconds, 3) * 500, 3: np.maximum(seconds - 11, 0) * 3000}
    series = pd.concat(
        pd.DataFrame({"ts_ns": seconds * 10**9 + 7, "flow_id": flow, "acked_bytes": octets})
        for flow, octets in acked.items()
    )
    about = {"configuration": "IV", "system": "PI2", "mtu_bytes": 800, "netem": "default", "phase_s": 10.0}
    run = SimpleNamespace(flows=flows, flow_series=series, start_ns=7)
    first, second = kernel.netem_rows(Case(about, None), run)  # type: ignore[arg-type]
    assert first == about | {
        "phase": 1, "scalable_share": 1500 / 11500, "goodput_mbps": 11500 * 8e-7,
        "classic_connections": 1, "classic_stalled": 0, "scalable_connections": 1, "scalable_stalled": 1,
    }  # fmt: skip
    assert second["scalable_share"] == 27_000 / 37_000
    assert (second["classic_stalled"], second["scalable_stalled"]) == (1, 0)


def test_netem_on_linux_beside_the_logs() -> None:
    rows = [
        {"configuration": configuration, "system": "iRED", "mtu_bytes": 800, "netem": netem, "kernel": "7.2",
         "phase": phase, "scalable_share": 0.16 if packets == 1000 else 0.5, "classic_stalled": 0,
         "scalable_stalled": 2 * (packets == 1000 and configuration == "IV")}
        for configuration in ("I", "IV")
        for netem, (packets, _) in scenarios.NETEM.items()
        for phase in (1, 2, 3, 4)
    ]  # fmt: skip
    made = tables.netem(l4s.Settings(), [rows])
    shown = page.netem_beside_logs(made["netem"]).set_index("configuration")
    assert shown.loc["IV", "stalled: logs"] == "7 and 29" and shown.loc["IV", "stalled: default"] == "0 and 8"
    assert shown.loc["IV", "stalled: room for all"] == shown.loc["I", "stalled: default"] == "0 and 0"

    def holds(**changed: object) -> list[bool | None]:
        table = made["netem"].assign(**changed)
        return [s.holds for s in conclusions.netem({"netem": table})]

    assert holds() == [True, True, True]
    assert holds(scalable_stalled=0) == [False, False, True]
    assert holds(classic_stalled=1) == [False, False, False]
    assert holds(configuration="I") == [True]  # nothing about where they stall


def test_a_part_alone(tmp_path: Path) -> None:
    for name in ("kernel", "netem"):
        with pytest.raises(ParameterError, match=f"part: {name} needs --testbed"):
            experiment("l4s")(tmp_path / "x", part=[name])
    with pytest.raises(ParameterError, match="part: 'kernels' must be one of"):
        experiment("l4s")(tmp_path / "x", part=["kernels"])
    assert not (tmp_path / "x").exists()
