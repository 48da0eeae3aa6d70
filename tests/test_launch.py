"""The papers' experiments as scenario files carry the papers' parameters."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cctoolkit as cct
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import read_sweep
from cctoolkit.testbed.plan import make_plan

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "hardware" / "launch"
PAPERS = ("rtt-flow-separation", "p4-codel", "l4s-ired-pi2", "p4-abc", "dragonfly")
FILES = sorted(f for paper in PAPERS for f in (LAUNCH / paper).glob("*.toml"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")


@cache
def scenarios(name: str) -> list[tuple[dict[str, Any], cct.Scenario]]:
    return read_sweep(LAUNCH / f"{name}.toml")


def swept(text: str) -> list[tuple[dict[str, Any], cct.Scenario]]:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        return read_sweep(file.name)


def base(name: str) -> cct.Scenario:
    return cct.read_scenario(LAUNCH / f"{name}.toml")


@each_file
def test_every_file_is_a_scenario(path: Path) -> None:
    assert cct.read_scenario(path).name == path.stem
    runs = read_sweep(path)
    assert len({(s.to_toml(), str(given)) for given, s in runs}) == len(runs)
    head = path.read_text().splitlines()[0]
    assert head.startswith("#") and ("section" in head or "table" in head or "figure" in head)


def test_every_paper_has_its_files() -> None:
    assert {p.name for p in LAUNCH.iterdir() if p.is_dir()} >= set(PAPERS)
    stems = {paper: {f.stem for f in FILES if f.parent.name == paper} for paper in PAPERS}
    assert {s.split("-")[0] for s in stems["rtt-flow-separation"]} == {f"test{i}" for i in range(1, 7)} | {
        "bmv2"
    }
    assert stems["p4-codel"] == {
        "bmv2",
        "one-flow",
        "three-flows",
        "table1",
        "table1-sim",
        "udp-scan",
        "udp-scan-sim",
    }
    assert stems["l4s-ired-pi2"] == {c + k for c in ("I", "II", "III", "IV") for k in ("", "-sim")} | {
        "bmv2-ired",
        "bmv2-pi2",
    }
    assert stems["p4-abc"] == {c + k for c in ("cbr", "tcp", "cbr-tcp") for k in ("", "-sim")} | {"bmv2"}
    assert len(stems["dragonfly"]) == 13


@each_file
def test_linux_can_run_what_is_not_for_the_simulator_alone(path: Path) -> None:
    for _, scenario in read_sweep(path)[:2]:
        in_switch = path.stem.startswith("bmv2") and path.parent.name != "rtt-flow-separation"
        if path.stem.endswith("-sim") or in_switch:
            try:
                assert make_plan(scenario).modules  # ours, which no distribution has
            except ParameterError as err:
                assert "in Linux" in str(err) or "Linux has no" in str(err)
        else:
            assert len(make_plan(scenario).flows) == len(scenario.flow_list())


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_one_command_runs_a_paper_on_the_testbed(paper: str, tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "cct"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\nmkdir -p "$5"; echo "$@"\n')
    stub.chmod(0o755)
    command = [str(LAUNCH / "testbed.sh"), paper, str(tmp_path / "out"), "--backend", "netns"]
    env = os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    commands = [line.split() for line in done.stdout.splitlines()]
    assert {Path(x[2]).name for x in commands} == {
        f.name
        for f in FILES
        if f.parent.name == paper and "-sim" not in f.name and not f.name.startswith("bmv2")
    }
    for command_, how, file, o, out, *options in commands:
        has_sweep = len(read_sweep(file)) > 1
        assert (command_, how, o, options) == (
            "testbed",
            "sweep" if has_sweep else "run",
            "-o",
            ["--backend", "netns"],
        )
        assert Path(out) == tmp_path / "out" / Path(file).stem
    again = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert all(line.split()[1] == "sweep" for line in again.splitlines()), "a run that is there is left"
    assert subprocess.run([command[0], "nothing", "x"], capture_output=True, check=False).returncode == 2


# -- RTT flow separation (sections 4.1 to 4.6)


@pytest.mark.parametrize("name", ["test1-one-queue", "test1-separated"])
@pytest.mark.parametrize(("suffix", "rate_mbps"), [("", 10_000), ("-1g", 1_000)])
def test_rtt_test_1(name: str, suffix: str, rate_mbps: int) -> None:
    runs = scenarios(f"rtt-flow-separation/{name}{suffix}")
    assert [s.flows[0].cca_name for _, s in runs] == ["cubic", "bbr"]
    for _, s in runs:
        assert [f.rtt_ms for f in s.flows] == [2, 20, 40, 60]
        assert s.bottleneck.rate_mbps == rate_mbps
        bdp = [rate_mbps * 1e6 / 8 * f.rtt_ms / 1e3 for f in s.flows]
        rooms = [q.buffer_bytes for q in s.bottleneck.queue_list()]
        assert rooms == (bdp if "separated" in name else [max(bdp)])
        assert len({f.queue for f in s.flows}) == len(rooms)
        # 200 MB of socket buffer hold this many segments
        assert all(200e6 / 1448 - 1 < f.max_window <= 200e6 / 1448 for f in s.flows)


def test_rtt_test_2_the_flows_are_held_back_when_the_paper_says() -> None:
    s = base("rtt-flow-separation/test2-separated")
    assert s.bottleneck.rate_mbps == 1000
    of_flow = {q: [f for f in s.flows if f.queue == q] for q in range(3)}
    for flow in of_flow.values():  # the parts of a flow follow one on another
        assert [f.stop_s for f in flow[:-1]] == [f.start_s for f in flow[1:]]
        assert len({f.rtt_ms for f in flow}) == 1
    begin = {q: flow[0].start_s for q, flow in of_flow.items()}
    slow = {q: [(f.start_s, f.stop_s) for f in flow if f.rate_mbps] for q, flow in of_flow.items()}
    assert begin == {0: 0, 1: 60, 2: 360}
    assert slow == {0: [(240, 360)], 1: [(120, 240)], 2: [(420, 480)]}
    assert [f.rate_mbps for q in (0, 1) for f in of_flow[q] if f.rate_mbps] == [250, 250]


@pytest.mark.parametrize("kind", ["one-queue", "separated"])
def test_rtt_test_3(kind: str) -> None:
    runs = scenarios(f"rtt-flow-separation/test3-{kind}")
    assert {s.flows[0].rtt_ms for _, s in runs} == {10}
    second = [s.flows[1].rtt_ms for _, s in runs]
    assert (min(second), max(second)) == (10, 200) and 15 in second
    assert {s.flows[0].cca_name for _, s in runs} == {"cubic", "bbr"}
    assert {len(s.bottleneck.queue_list()) for _, s in runs} == {2 if kind == "separated" else 1}


@pytest.mark.slow
@pytest.mark.parametrize("queues", [1, 2, 4, 8])
def test_rtt_test_4(queues: int) -> None:
    script = module("rtt-flow-separation/test4.py")
    path = LAUNCH / f"rtt-flow-separation/test4-{queues}.toml"
    assert read_sweep(path) == swept(script.text(queues)), "the script writes another file"
    s = cct.read_scenario(path)
    assert s.bottleneck.rate_mbps == 1000 and len(s.bottleneck.queue_list()) == queues
    assert all(1 <= f.rtt_ms <= 224 and 150e6 <= f.bytes <= 2e9 for f in s.flows)
    by_queue = [[f.rtt_ms for f in s.flows if (f.queue or 0) == q] for q in range(queues)]
    assert all(by_queue) and sum(map(len, by_queue)) == 60
    assert all(max(a) < min(b) for a, b in itertools.pairwise(by_queue))
    assert [q.weight for q in s.bottleneck.queue_list()] == (
        [1] if queues == 1 else [len(x) for x in by_queue]
    )
    for queue, rtts in zip(s.bottleneck.queue_list(), by_queue, strict=True):
        mean = max(rtts) if queues == 1 else sum(rtts) / len(rtts)
        n = 1 if queues == 1 else len(rtts)
        assert queue.buffer_bytes == pytest.approx(1e9 / 8 * mean / 1e3 / n**0.5, abs=1)
    assert len(script.scenario(2, flows=6000).flows) == 6000


@pytest.mark.parametrize("kind", ["one-queue", "separated"])
def test_rtt_tests_5_and_6(kind: str) -> None:
    five, six = (base(f"rtt-flow-separation/test{n}-{kind}") for n in (5, 6))
    assert [f.cca_name for f in five.flows] == ["cubic", "cubic"]
    assert five.flows[0].start_s < five.flows[1].start_s
    assert [f.cca_name for f in six.flows] == ["udp"] + ["cubic"] * 3
    assert [f.start_s for f in six.flows][:2] == [0, 60]
    assert six.flows[0].rate_mbps >= six.bottleneck.rate_mbps
    for s in (five, six):
        n = len(s.flows) if kind == "separated" else 1
        assert len(s.bottleneck.queue_list()) == n
        assert all(s.flows[i].queue == (i if n > 1 else None) for i in range(n))


# -- P4-CoDel (sections III and IV)


@pytest.mark.parametrize(
    ("name", "flows"),
    [("one-flow", {1}), ("three-flows", {3}), ("table1", {1, 2, 3}), ("table1-sim", {1, 2, 3})],
)
def test_codel(name: str, flows: set[int]) -> None:
    runs = scenarios(f"p4-codel/{name}")
    assert {len(s.flow_list()) for _, s in runs} == flows
    targets = {"codel_npu", "codel_pisa"} if name.endswith("-sim") else {"codel_linux"}
    assert {s.bottleneck.aqm.name for _, s in runs} == targets
    for _, s in runs:
        assert (s.bottleneck.rate_mbps, s.duration_s) == (100, 4)
        assert (s.bottleneck.aqm.target_ms, s.bottleneck.aqm.interval_ms) == (5, 100)


@pytest.mark.parametrize(
    ("name", "aqms"), [("udp-scan", {"codel_linux"}), ("udp-scan-sim", {"codel_npu", "codel_pisa"})]
)
def test_codel_udp_scan(name: str, aqms: set[str]) -> None:
    runs = scenarios(f"p4-codel/{name}")
    rates = sorted({s.flows[0].rate_mbps for _, s in runs})
    assert {s.bottleneck.rate_mbps for _, s in runs} == {100} and 97 in rates
    assert rates[0] < 90 < 110 <= rates[-1]
    assert {s.bottleneck.aqm.name for _, s in runs} == aqms
    assert all(s.flows[0].is_udp and s.flows[0].arrivals == "cbr" for _, s in runs)
    assert all((s.bottleneck.aqm.target_ms, s.bottleneck.aqm.interval_ms) == (5, 100) for _, s in runs)


# -- L4S (section 5, tables 1 and 2)


@pytest.mark.parametrize(
    ("configuration", "rate_mbps", "rtt_ms"), [("I", 120, 10), ("II", 120, 50), ("III", 1000, 10), ("IV", 1000, 50)]
)  # fmt: skip
@pytest.mark.parametrize("kind", ["-sim", ""])
def test_l4s(configuration: str, rate_mbps: int, rtt_ms: int, kind: str) -> None:
    runs = scenarios(f"l4s-ired-pi2/{configuration}{kind}")
    scalable = "prague" if kind else "dctcp"
    for _, s in runs:
        assert s.bottleneck.rate_mbps == rate_mbps and s.duration_s == 4 * 120
        flows = s.flow_list()
        assert {(f.rtt_ms, f.packet_bytes - 14) for f in flows} == {(rtt_ms, 1500)}
        assert {(f.cca_name, f.ecn) for f in flows} == {("cubic", "off"), (scalable, "l4s")}
        for cca in ("cubic", scalable):
            started = [sum(f.start_s <= t for f in flows if f.cca_name == cca) for t in (0, 120, 240, 360)]
            assert started == [1, 3, 13, 38]
    aqms = {s.bottleneck.aqm.name: s.bottleneck.aqm for _, s in runs}
    if not kind:
        assert aqms["dualpi2"].target_ms == 20 and len(aqms) == 1
        return
    assert set(aqms) == {"pi2", "ired"}
    pi2, ired = aqms["pi2"], aqms["ired"]
    assert (pi2.target_ms, pi2.update_ms, pi2.alpha, pi2.beta) == (20, 15, 0.3125, 3.125)
    assert (ired.min_ms, ired.max_ms, ired.weight) == (20, 40, 0.5)


# -- ABC (section 6)


@pytest.mark.parametrize("name", ["cbr", "tcp", "cbr-tcp"])
@pytest.mark.parametrize("kind", ["-sim", ""])
def test_abc(name: str, kind: str) -> None:
    runs = scenarios(f"p4-abc/{name}{kind}")
    assert {changes["repetition"] for changes, _ in runs} == set(range(10)), "ten runs for each point"
    for _, s in runs:
        assert (s.bottleneck.rate_mbps, s.bottleneck.buffer_packets, s.duration_s) == (50, 24, 300)
        for f in s.flows:
            path = (f.access_mbps, f.access_ms, f.rtt_ms)
            assert path == (pytest.approx(100), pytest.approx(5, rel=0.02), pytest.approx(20, rel=0.02))
        assert sorted({f.aggregate for f in s.flows}) == [0, 1]
        assert all(f.packet_bytes == 1448 + 42 for f in s.flows if f.is_udp)
        aqm = s.bottleneck.aqm
        assert aqm.name == ("abc" if kind else "tail_drop")
        if kind:
            assert (aqm.meter_memory_s, aqm.average_memory_s, aqm.reference_kbps) == (3, 0.3, 10)
            assert (aqm.min_packets, aqm.base_packets, aqm.gamma_packets) == (6, 20, 16)
    kinds = [f.is_udp for f in runs[0][1].flows]
    assert kinds == {"cbr": [True, True], "tcp": [False, False], "cbr-tcp": [True, False]}[name]
    if name == "cbr":
        assert {s.flows[1].rate_mbps for _, s in runs} == {40}
    if name == "tcp":
        assert {s.flows[1].count for _, s in runs} == {1}
        assert {s.flows[0].count for _, s in runs} == set(range(1, 11))
    else:
        assert {s.flows[0].rate_mbps for _, s in runs} == set(range(10, 101, 10))


# -- Dragonfly (section IV)


def module(path: str) -> ModuleType:
    """A script of the folder."""
    name = "launch_" + Path(path).stem
    spec = importlib.util.spec_from_file_location(name, LAUNCH / path)
    assert spec and spec.loader
    out = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(out)
    return out


@pytest.mark.parametrize("background", [0, 15, 30, 60, 75])
@pytest.mark.parametrize("section", ["iv-a", "iv-b"])
def test_dragonfly(section: str, background: int) -> None:
    kind = f"{section}-{background}"
    draw = module("dragonfly/draw.py")
    assert (LAUNCH / f"dragonfly/{kind}.toml").read_text() == draw.text(kind), (
        "the script writes another file"
    )
    n = background // 3
    for seed in range(1, 9):
        s = draw.scenario(kind, seed=seed)
        three = ["reno", "cubic", "bbr"]
        assert [f.cca_name for f in s.flows] == three + [c for c in three for _ in range(n)]
        assert 60 <= s.duration_s <= 70
        assert all(0 <= f.start_s <= s.duration_s - 60 + 1e-3 for f in s.flows)
        if section == "iv-a":
            assert (s.bottleneck.rate_mbps, s.bottleneck.buffer_packets) == (100, 500)
            assert all(f.rtt_ms == 2 * (10 + 25) and 100 <= f.access_mbps <= 1000 for f in s.flows)
        else:
            assert s.bottleneck.rate_mbps == 1000 and all(f.rtt_ms < 2 for f in s.flows)
    assert draw.scenario(kind, seed=1) != draw.scenario(kind, seed=2)
    rooms = {s.bottleneck.buffer_packets for _, s in scenarios(f"dragonfly/{kind}")}
    assert rooms == ({500} if section == "iv-a" else {2000, 4000, 8000, 16000})


def test_dragonfly_other_backgrounds() -> None:
    draw = module("dragonfly/draw.py")
    for kind in ("iv-a-udp", "iv-a-vegas"):
        assert scenarios(f"dragonfly/{kind}") == swept(draw.text(kind))
    udp = base("dragonfly/iv-a-udp").flows[3:]
    assert len(udp) == 1 and udp[0].packet_bytes - 42 == 1400
    assert udp[0].rate_mbps * 1e6 / 8 / udp[0].packet_bytes == pytest.approx(1000)
    assert [f.cca_name for f in base("dragonfly/iv-a-vegas").flows[3:]] == ["vegas"] * 10


def test_dragonfly_cloud() -> None:
    runs = scenarios("dragonfly/iv-c")
    assert len(runs) == 162
    assert {s.bottleneck.buffer_packets for _, s in runs} == set(range(1000, 6001, 1000))
    assert {(s.bottleneck.rate_mbps, *(f.rtt_ms for f in s.flows)) for _, s in runs} == {(1000, 300, 300, 40)}
    assert {f.access_mbps for f in base("dragonfly/iv-c").flows} == {10_000}


# -- what the files do


def shortened(name: str, seconds: float, **changes: Any) -> cct.Scenario:
    """The scenario in less time: what happens at a time happens earlier by the same factor."""
    s = base(name).replace(changes)
    factor = seconds / s.duration_s
    times = {
        f"flows.{i}.{key}": value * factor
        for i, f in enumerate(s.flows)
        for key in ("start_s", "stop_s")
        if (value := getattr(f, key)) is not None
    }
    return s.replace({"duration_s": seconds, **times})


@pytest.mark.slow
def test_separation_makes_the_rtt_tests_fair() -> None:
    """Tests 1, 5 and 6 in the simulator: what the paper's figures say, in a few seconds of each."""
    jain = {}
    for kind in ("one-queue", "separated"):
        for cca in ("cubic", "bbr"):
            s = shortened(f"rtt-flow-separation/test1-{kind}-1g", 42, **{"flows.*.cca": cca})
            run = cct.simulate(s, record=False, sample_s=1)
            series = run.flow_series
            together = (
                series[(series.ts_ns > 19e9) & (series.ts_ns <= 24e9)].groupby("flow_id").received_bytes
            )
            jain[kind, cca] = cct.jain_index((together.max() - together.min()).to_numpy(float))
    assert min(jain["separated", c] for c in ("cubic", "bbr")) > 0.95
    assert max(jain["one-queue", c] for c in ("cubic", "bbr")) < 0.85
    rtt_ms = {}
    for kind in ("one-queue", "separated"):
        run = cct.simulate(shortened(f"rtt-flow-separation/test5-{kind}", 12), record=False, sample_s=None)
        rtt_ms[kind] = run.flows.mean_rtt_ms[0]
    assert rtt_ms["separated"] < 25 and rtt_ms["one-queue"] > 60
    tcp = {}
    for kind in ("one-queue", "separated"):
        run = cct.simulate(shortened(f"rtt-flow-separation/test6-{kind}", 12), record=False, sample_s=None)
        tcp[kind] = run.flows.goodput_mbps[1:].sum()
    assert tcp["one-queue"] < 50 and tcp["separated"] > 400


def test_abc_protects_the_light_user() -> None:
    share = {}
    for name in ("tcp", "tcp-sim"):
        run = cct.simulate(
            shortened(f"p4-abc/{name}", 20, **{"flows.0.count": 8}), record=False, sample_s=None
        )
        bytes_of = run.flows.groupby("name").received_bytes.sum()
        share[name] = bytes_of["client 1"] / bytes_of.sum()
    assert share["tcp"] < 0.2 and 0.4 < share["tcp-sim"] < 0.6


def test_codel_has_the_drops_of_table_1() -> None:
    """Linux's column; the paper prints 0.05, 0.17 and 0.33 % and 5.7, 6.5 and 7.2 ms."""
    for n, loss, delay_ms in ((1, 0.0005, 5.7), (2, 0.0017, 6.5), (3, 0.0033, 7.2)):
        run = cct.simulate(base("p4-codel/table1").replace({"flows.0.count": n}), record=False, sample_s=None)
        found = run.summary()
        assert found["drop_share"] == pytest.approx(loss, rel=0.5)
        assert found["mean_delay_ms"] == pytest.approx(delay_ms, rel=0.25)


@pytest.mark.slow
def test_dragonfly_queue_delays() -> None:
    """Section IV-B: buffers of 2K to 16K packets cause 25 to 200 ms."""
    for packets, full_ms in ((2000, 25), (16000, 200)):
        s = shortened("dragonfly/iv-b-75", 15, **{"bottleneck.buffer_packets": packets})
        run = cct.simulate(s, record=False, sample_s=None)
        assert run.summary()["max_delay_ms"] == pytest.approx(full_ms, rel=0.05)
