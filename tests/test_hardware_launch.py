"""One command an experiment: real TCP through BMv2, and what comes of it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hardware_l4s import FakeSwitch
from switch_bench import skip_without_bmv2
from test_testbed_netns import namespaces, why_not

import cctoolkit as cct
from cctoolkit.errors import ParameterError
from cctoolkit.scenario.endpoints import source_port
from hardware.launch import switch
from hardware.programs.abc.experiment import client_prefixes

LAUNCH = Path(__file__).parents[1] / "hardware" / "launch"
#: The program's variant, as in p4-codel/bmv2.toml.
CODEL = {"name": "codel_pisa", "from_now": False, "wrap": True}


@pytest.fixture
def machine() -> None:
    skip_without_bmv2()
    if reason := why_not():
        pytest.skip(reason)


def short(path: str, seconds: float, folder: Path) -> Path:
    """A launch scenario, cut to a few seconds."""
    text = (LAUNCH / path).read_text()
    (line,) = [x for x in text.splitlines() if x.startswith("duration_s")]
    out = folder / Path(path).name
    out.write_text(text.replace(line, f"duration_s = {seconds}"))
    return out


@pytest.mark.p4
@pytest.mark.netns
@pytest.mark.slow
def test_codel_between_namespaces(machine: None, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """What the taps miss is what the program says it dropped."""
    before = namespaces()
    scenario = short("p4-codel/bmv2.toml", 8, tmp_path)
    assert switch.main(["codel", str(scenario), "-o", str(tmp_path / "run"), "--beside-simulator"]) == 0
    output = capsys.readouterr().out
    assert "switch" in output and "simulator" in output and output.endswith(f"{tmp_path / 'run'}\n")
    run = cct.load_run(tmp_path / "run")
    queues = pd.read_parquet(tmp_path / "run" / "switch" / "queues.parquet")
    dropped = int(queues.dropped.sum())
    assert dropped > 0 and queues.marked.sum() == 0
    # the queue still serves what came before the end
    assert 0 <= dropped - run.flows.dropped_packets.sum() <= 3
    assert 6 < run.flows.goodput_mbps.sum() < 10
    assert namespaces() == before


@pytest.mark.p4
@pytest.mark.netns
@pytest.mark.slow
def test_abc_between_namespaces(machine: None, tmp_path: Path) -> None:
    """Four connections against one: with ABC neither client has much more than its half."""
    scenario = short("p4-abc/bmv2.toml", 15, tmp_path)
    assert switch.main(["abc", str(scenario), "-o", str(tmp_path / "run")]) == 0
    run = cct.load_run(tmp_path / "run")
    aggregates = pd.read_parquet(tmp_path / "run" / "switch" / "aggregates.parquet")
    assert len(aggregates) == 3 and (aggregates.accepted[:2] > 500).all()
    # one connection of five would have a fifth
    assert run.flows.goodput_mbps[4] / run.flows.goodput_mbps.sum() > 0.3


@pytest.mark.p4
@pytest.mark.netns
@pytest.mark.slow
def test_rtts_between_namespaces(machine: None, tmp_path: Path) -> None:
    """What the switch measures is what the capture before it says, and its controller tells the flows apart.

    BMv2 stamps a packet when it takes it from the port, and the capture sees it when it gets there: a segment earlier
    and, as BMv2 has yet to forward it, its ACK later. So an RTT of the capture is longer by twice the time that BMv2
    takes, which is much on a busy machine. ACKs show how much: they wait in no queue between the two captures.
    """
    scenario = short("rtt-flow-separation/bmv2.toml", 20, tmp_path)
    assert switch.main(["rtt_monitor", str(scenario), "-o", str(tmp_path / "run")]) == 0
    run = cct.load_run(tmp_path / "run")
    found = {
        t: pd.read_parquet(tmp_path / "run" / "switch" / f"{t}.parquet")
        for t in ("flows", "rtt_samples", "rules")
    }
    # numbers of flows are the switch's own
    names = found["flows"].set_index("flow_id").sport - source_port(0)
    samples = found["rtt_samples"].assign(flow=lambda t: t.flow_id.map(names))
    captured = cct.rtt_samples(run.ingress, method="data_plane").query("direction == 0")
    acks = cct.queue_delay(run.egress, run.ingress, check_taps=False).query("direction == 1")
    taken_ns = acks.delay_ns.quantile(0.9)
    for flow, base_ms in enumerate((20, 60, 120)):
        mine = samples.rtt_ns[(samples.flow == flow) & (samples.direction == 0)]
        there = captured.rtt_ns[captured.flow_id == flow]
        assert len(mine) > 0.95 * len(there) > 100
        longer_ns = there.median() - mine.median()
        assert -0.03 * there.median() < longer_ns < 0.03 * there.median() + 2 * taken_ns
        # the delay is behind the switch, so no RTT is shorter, however busy the machine
        assert 0.99 * base_ms * 1e6 < mine.min() < 1.1 * there.min()
    assert any("htb" in lines for lines in found["rules"].lines)


# -- without a switch


@pytest.mark.parametrize(
    ("program", "aqm", "message"),
    [
        ("codel", "codel", r"aqm: must be codel_pisa for this program, not codel$"),
        ("abc", "tail_drop", r"aqm: must be abc or .* not tail_drop$"),
        ("pi2", "pi2", r"aqm: must be pi2_tofino or pi2_integer"),
        ("rtt_monitor", "codel", r"aqm: must be tail_drop for this program, not codel$"),
        ("cbiq", "fq_codel", r"queues: must be at most 1 for this program, not 1024$"),
        ("cbiq", "red", r"aqm: must be tail_drop for this program, not red$"),
        # constants of the program
        ("codel", CODEL | {"target_ms": 50}, r"aqm\.target_ms: must be 5\.0, as built .* not 50\.0$"),
        ("codel", CODEL | {"interval_ms": 20}, r"aqm\.interval_ms: must be 100"),
        ("codel", CODEL | {"from_now": True}, r"aqm\.from_now: must be false, .* not true$"),
        ("codel", CODEL | {"signed": False}, r"aqm\.signed: must be true"),
        ("pi2", {"name": "pi2_integer", "identifier": "dscp"}, r'aqm\.identifier: must be "ect1"'),
        ("ired", {"name": "ired", "weight": 0.25}, r"aqm\.weight: must be 0\.5"),
        ("ired", {"name": "ired", "measure": "depth"}, r'aqm\.measure: must be "delay"'),
        ("dualpi2", {"name": "dualpi2", "step_ms": 5}, r"aqm\.step_ms: must be 1\.0"),
        ("abc", {"name": "abc_integer", "meter_memory_s": 1}, r"aqm\.meter_memory_s: must be 3\.0"),
        ("abc", {"name": "abc_tofino", "largest_mbps": 50}, r"aqm\.largest_mbps: must be 500\.0"),
    ],
)
def test_the_aqm_has_to_be_the_programs(program: str, aqm: str | dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        switch.experiment(program, one_flow(aqm=aqm), (0, 1))


def one_flow(**bottleneck: Any) -> cct.Scenario:
    return cct.Scenario(
        bottleneck=cct.Bottleneck(**{"rate_mbps": 10, "buffer_packets": 50} | bottleneck),
        flows=[cct.Flow("reno")],
        duration_s=1,
    )


def test_the_queues_have_to_be_the_programs() -> None:
    for program, queues, message in (
        ("rtt_monitor", [{}, {}], "queues: must be at most 1"),
        ("ired", [{}, {}, {}], "queues: must be at most 2"),
        ("ired", [{}, {"aqm": {"name": "ired", "min_ms": 5}}], "queues: must all have the same AQM"),
    ):
        aqm = "ired" if program == "ired" else "tail_drop"
        with pytest.raises(ParameterError, match=message):
            switch.experiment(program, one_flow(aqm=aqm, queues=[cct.Queue(**q) for q in queues]), (0, 1))
    with pytest.raises(ParameterError, match="rate_schedule"):
        switch.experiment("cbiq", one_flow(rate_schedule=[(0.5, 5)]), (0, 1))


@pytest.mark.parametrize("path", sorted(LAUNCH.glob("*/bmv2*.toml")), ids=lambda path: path.parent.name)
def test_scenarios_for_a_switch_are_accepted(path: Path) -> None:
    """By the program that their own first lines name."""
    (program,) = set(re.findall(r"hardware\.launch\.switch (\w+) ", path.read_text()))
    assert switch.experiment(program, cct.read_scenario(path), (0, 1)).set_up is not None


@pytest.mark.parametrize(
    ("program", "aqm", "of_model"),
    [
        ("pi2", {"name": "pi2_tofino", "target_ms": 7, "alpha": 1.5, "coupling": 3}, cct.aqm.IntegerPi2),
        ("dualpi2", {"name": "dualpi2", "target_ms": 7, "beta": 1.5, "coupling": 3}, cct.aqm.IntegerDualPi2),
        (
            "ired",
            {"name": "ired", "min_ms": 7, "max_ms": 9, "coupling": 3, "square": False},
            cct.aqm.IntegerIRed,
        ),
    ],
)
def test_the_other_parameters_are_obeyed(
    program: str, aqm: dict[str, Any], of_model: type[cct.aqm.Aqm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They reach the control plane: its tables are those of a model with the same parameters."""
    control = importlib.import_module(f"hardware.programs.{program}.control")
    seen: list[cct.aqm.Aqm] = []
    if program == "ired":
        monkeypatch.setattr(control, "set_probabilities", lambda switch, model: seen.append(model))
        fake = FakeSwitch(
            registers=[(n, 8, ()) for n in ("packets", "delay_sum", "last_sum", "average_delay")]
        )
        fake.registers |= FakeSwitch(
            registers=[("drop_flag", 8, ()), ("drops", 8, ()), ("signals", 8, ("marked", "notified"))]
        ).registers
        switch.experiment(program, one_flow(aqm=aqm), (0, 1)).set_up(fake)
    else:
        made = control.Controller
        monkeypatch.setattr(
            control, "Controller", lambda ports, model: (seen.append(model), made(ports, model))[1]
        )
        switch.experiment(program, one_flow(aqm=aqm), (0, 1))
    assert seen == [of_model(**{k: v for k, v in aqm.items() if k != "name"})]


def test_clients_have_prefixes_of_their_own() -> None:
    found = client_prefixes([0, 0, 0, 0, 1])
    assert {k: str(v) for k, v in found.items()} == {0: "10.1.0.0/29", 1: "10.1.0.5/32"}
    with pytest.raises(ParameterError, match="flow 4 of client 1 has an address in another client's prefix"):
        client_prefixes([0, 0, 0, 0, 1, 1, 1, 1])


def test_impossible_settings_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "s.toml"
    path.write_text("name = 1\n[")
    assert switch.main(["codel", str(path), "-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("switch: ")
    hosts = LAUNCH / "hosts.example.toml"
    scenario = str(LAUNCH / "p4-codel" / "bmv2.toml")
    more = ["-o", str(tmp_path / "out"), "--bfrt", "127.0.0.1:1", "--hosts", str(hosts)]
    for ports, says in (
        ("1", "'1' must be IN,OUT"),
        ("5,5", "'5,5' must be two different ports from 0 to 511"),
        ("5,512", "'5,512' must be two different ports from 0 to 511"),
        ("-1,5", "'-1,5' must be two different ports from 0 to 511"),
        ("5,132", "5 and 132 are in different pipes"),
    ):
        assert switch.main(["codel", scenario, *more, f"--ports={ports}"]) == 1
        assert f"--ports: {says}" in capsys.readouterr().err
    swept = str(LAUNCH / "p4-codel" / "udp-scan.toml")
    assert switch.main(["codel", swept, "-o", str(tmp_path / "out")]) == 1
    assert "sweep: this runs one scenario, not a sweep over flows.0.rate_mbps" in capsys.readouterr().err
    assert switch.main(["codel", scenario, *more]) == 1
    assert "bottleneck: remove this table" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        switch.main(["codel", scenario, "-o", str(tmp_path), "--bfrt", "127.0.0.1:1"])
    assert "--bfrt and --hosts must be used together" in capsys.readouterr().err
