"""Experiments: the registry, the folder they leave, and the simulator beside real Linux."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
import tomllib
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit._support.markdown import markdown_table
from cctoolkit.cli import app
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.experiments import EXPERIMENTS, experiment, sim_vs_kernel
from cctoolkit.experiments.folder import Folder
from cctoolkit.experiments.sim_vs_kernel import (
    GRID,
    MODULES,
    QUANTITIES,
    Case,
    compare,
    for_simulator,
    measure,
)
from cctoolkit.experiments.sim_vs_kernel.command import BUILT_WITH
from cctoolkit.testbed.kernel import Kernel

TRACES = Path(__file__).parents[1] / "traces"


def bundled(name):
    return next(
        c for c in tomllib.loads((TRACES / "MANIFEST.toml").read_text())["capture"] if c["name"] == name
    )


# ---- registry and command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_function_with_an_output_and_options(name):
    parameters = list(inspect.signature(experiment(name)).parameters.values())
    assert parameters[0].name == "output"
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters[1:])


#: From what is run to the command; modules import only from those before them.
ORDER = [
    "limiter", "variants", "queues", "switch", "cases", "scenarios", "logs", "training", "baseline", "kernel",
    "sources", "shuffled", "tables", "figures", "conclusions", "page", "parts", "command", "book",
]  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_data_flows_one_way(name):
    """Within an experiment no module imports from one further down, not even inside a function."""
    folder = Path(importlib.import_module(experiment(name).__module__).__file__).parent
    # a case makes its scenario, is made of one (L4S), or is a measurement and its arguments (Dragonfly)
    order = sorted(ORDER, key=lambda m: (ORDER.index(m), m))
    after = {"l4s": "scenarios", "dragonfly": "tables"}.get(name)
    if after is not None:
        order.remove("cases")
        order.insert(order.index(after) + 1, "cases")
    if name == "rtt-separation":  # test 10 runs what the authors ran
        order.insert(order.index("scenarios"), order.pop(order.index("logs")))
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} <= set(ORDER)
    for path in folder.glob("[a-z]*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1]
        siblings = [node.module for node in found if node.module]
        siblings += [alias.name for node in found if node.module is None for alias in node.names]
        assert all(order.index(s) < order.index(path.stem) for s in siblings), (path.stem, siblings)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_part_has_a_title_and_every_title_a_part(name):
    package = importlib.import_module(experiment(name).__module__.rpartition(".")[0])
    assert set(package.PARTS) == set(package.TITLES)


def test_unknown_experiment_is_named_with_those_there_are():
    with pytest.raises(ParameterError, match=r"'nope' must be one of .*sim-vs-kernel"):
        experiment("nope")


def test_command_lists_experiments_and_shows_their_options():
    listed = CliRunner().invoke(app, ["experiment", "list"])
    assert listed.exit_code == 0 and all(name in listed.output for name in EXPERIMENTS)
    shown = CliRunner().invoke(app, ["experiment", "sim-vs-kernel", "--help"])
    assert shown.exit_code == 0 and "--kernel-seeds" in shown.output and "--output" in shown.output
    assert CliRunner().invoke(app, ["experiment", "nope"]).exit_code == 2
    assert CliRunner().invoke(app, ["experiment", "sim-vs-kernel", "--seeds", "0"]).exit_code == 2


def test_help_imports_nothing_heavy():
    code = "import sys; from cctoolkit.experiments import experiment; experiment('sim-vs-kernel')\n"
    code += "print([m for m in ('numba', 'pandas', 'plotly', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, words",
    [
        (["--only", "tahoe"], "only: no case has tahoe"),
        (["--only", "reno", "--duration", "5", "--warmup", "5"], "warmup: 5 s leave nothing of 5 s"),
    ],
)
def test_bad_options_are_one_line(options, words, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cctoolkit.cli",
            "experiment",
            "sim-vs-kernel",
            "-o",
            str(tmp_path / "x"),
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and words in done.stderr
    assert not (tmp_path / "x").exists()


# ---- the folder ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_folder_has_table_figure_summary_and_how_they_were_made(tmp_path):
    folder = Folder(tmp_path / "out", "some", {"seeds": 3})
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, None]})
    folder.table("numbers", frame)
    folder.figure("lines", go.Figure(go.Scatter(x=[1, 2], y=[3, 4])))
    text = folder.summary("A title", "Some words.").read_text()
    pd.testing.assert_frame_equal(pd.read_parquet(folder.path / "numbers.parquet"), frame)
    about = json.loads(pq.read_schema(folder.path / "numbers.parquet").metadata[b"cctoolkit.provenance"])
    assert about == {"experiment": "some", "version": cct.__version__, "options": {"seeds": 3}}
    assert json.loads((folder.path / "lines.json").read_text())["data"][0]["x"] == [1, 2]
    page = (folder.path / "lines.html").read_text()
    assert 'src="plotly.min.js"' in page and "https://cdn" not in page
    assert (folder.path / "plotly.min.js").stat().st_size > 1e6
    assert text.startswith("# A title\n\nSome words.\n") and "seeds 3" in text
    assert "[numbers.parquet](numbers.parquet)" in text and "[lines.html](lines.html)" in text
    assert not list(folder.path.glob("*.tmp"))


def test_folder_is_taken_again_only_by_the_same_experiment(tmp_path):
    Folder(tmp_path / "out", "some", {}).summary("First")
    Folder(tmp_path / "out", "some", {}).summary("Second")
    assert (tmp_path / "out" / "summary.md").read_text().startswith("# Second")
    with pytest.raises(ParameterError, match="already exists and is not a folder of other"):
        Folder(tmp_path / "out", "other", {})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(ParameterError, match="is not a folder of some"):
        Folder(tmp_path / "mine", "some", {})
    (tmp_path / "mine" / "experiment.json").write_text("[]")
    with pytest.raises(ParameterError, match="is not a folder of some"):
        Folder(tmp_path / "mine", "some", {})


def test_markdown_table():
    frame = pd.DataFrame({"name": ["a|b", None], "n": [7, 123456], "x": [0.123456, float("nan")]})
    assert markdown_table(frame).splitlines() == [
        "| name | n | x |",
        "| --- | ---: | ---: |",
        "| a\\|b | 7 | 0.123 |",
        "|  | 123456 |  |",
    ]


# ---- measuring -------------------------------------------------------------------------------------------------------


def values(rows):
    return {(r["quantity"], r["flow"]): r["value"] for r in rows}


def udp_run(*rates_mbps, buffer_packets=20, **bottleneck):
    return cct.simulate(
        cct.Scenario(
            bottleneck=cct.Bottleneck(
                rate_mbps=10, buffer_packets=buffer_packets, **{"link": "shaper"} | bottleneck
            ),
            flows=[cct.Flow("udp", rate_mbps=rate, packet_bytes=1250) for rate in rates_mbps],
            duration_s=6,
        ),
        record=True,
    )


def test_half_a_link_waits_for_nothing_but_the_packet_before():
    found = values(measure(udp_run(2.5, 2.5), warmup_s=1))  # always two at once; a packet takes 1 ms
    assert found["utilisation", -1] == pytest.approx(0.5, rel=1e-3)
    assert found["mean delay", -1] == pytest.approx(0.5, rel=1e-3)
    assert found["95 % delay", -1] == pytest.approx(1, rel=1e-6)
    assert found["loss", -1] == found["marks", -1] == 0
    assert found["share", 0] == pytest.approx(0.5, rel=1e-3)


def test_sending_time_counts_where_the_last_byte_is_stamped():
    found = values(measure(udp_run(5, link="wire"), warmup_s=1))
    assert found["mean delay", -1] == pytest.approx(1.0, rel=1e-6)
    assert ("share", 0) not in found


def tcp_run(aqm="tail_drop", **scenario):
    flows = scenario.pop(
        "flows", [cct.Flow("reno", rtt_ms=20, ecn=True), cct.Flow("cubic", rtt_ms=40, ecn=True)]
    )
    bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=30, aqm=aqm, link="shaper")
    return cct.simulate(
        cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=8, **scenario), record=True
    )


@pytest.mark.parametrize("aqm", ["tail_drop", "codel"])
def test_as_the_queue_itself_counted(aqm):
    run = tcp_run(aqm)
    found = values(measure(run, warmup_s=0))
    queue = run.queues.iloc[0]
    dropped = queue.dropped_full + queue.dropped_enqueue + queue.dropped_dequeue
    data = run.ingress.packets.query("direction == 0 and payload_bytes > 0")
    assert found["utilisation", -1] == pytest.approx(run.summary()["utilisation"], rel=2e-3)
    assert dropped == data.dropped.sum()
    # the captures tell nothing of what arrived after the last packet that left
    left = run.egress.packets.query("direction == 0 and payload_bytes > 0")
    lost = data.dropped.loc[: data.index[~data.dropped][len(left) - 1]].mean()
    assert found["loss", -1] == pytest.approx(lost, rel=0.02, abs=1e-9)
    assert found["marks", -1] == pytest.approx(queue.marked_packets / queue.sent_packets, rel=0.02, abs=1e-9)
    assert found["mean delay", -1] == pytest.approx(queue.mean_delay_ms, rel=0.01)
    assert found["share", 0] + found["share", 1] == pytest.approx(1)
    if aqm == "codel":
        assert found["marks", -1] > 0
    else:
        assert found["loss", -1] > 0


def test_warm_up_and_end_are_left_out():
    run = tcp_run(flows=[cct.Flow("udp", rate_mbps=5, packet_bytes=1250, stop_s=4)])
    assert values(measure(run, warmup_s=0))["utilisation", -1] == pytest.approx(0.25, rel=1e-2)
    assert values(measure(run, warmup_s=2))["utilisation", -1] == pytest.approx(1 / 6, rel=1e-2)
    nothing = values(measure(run, warmup_s=5))
    assert nothing["utilisation", -1] == 0 and np.isnan(nothing["mean delay", -1])


def naive_measure(run, rate_mbps, begin_ns, end_ns):
    """The same with plain loops: equal segments leave in the order in which they came."""
    delays, lost, came = [], 0, 0
    before, behind = run.ingress.packets, run.egress.packets

    def data(table):
        return [r for r in table.itertuples() if r.payload_bytes and r.direction == 0 and r.tcp_flags]

    out = defaultdict(deque)
    for row in data(behind):
        out[row.flow_id, row.seq, row.payload_bytes, row.tsval].append(row.ts_ns)
    for row in data(before):
        key = row.flow_id, row.seq, row.payload_bytes, row.tsval
        left_ns = out[key].popleft() if out[key] else None
        if begin_ns <= row.ts_ns <= end_ns:
            came += 1
            lost += left_ns is None
            if left_ns is not None:
                delays.append((left_ns - row.ts_ns) / 1e6)
    sent = [
        row
        for row in behind.query("payload_bytes > 0 and direction == 0").itertuples()
        if begin_ns <= row.ts_ns <= end_ns
    ]
    total = sum(row.wire_bytes for row in sent)
    shares = defaultdict(int)
    for row in sent:
        shares[row.flow_id] += row.wire_bytes / total
    return {
        ("utilisation", -1): total * 8e-6 / rate_mbps / ((end_ns - begin_ns) / 1e9),
        ("mean delay", -1): sum(delays) / len(delays),
        ("95 % delay", -1): float(np.percentile(delays, 95)),
        ("loss", -1): lost / came,
        ("marks", -1): sum(row.ecn == 3 for row in sent) / len(sent),
        **{("share", int(flow)): share for flow, share in shares.items()},
    }


@pytest.mark.parametrize("name", ["reno", "three-ccas-ipv6"])
def test_bundled_captures_of_linux_by_plain_loops_and_the_kernels_own_count(name):
    entry = bundled(name)
    run = cct.load_run(TRACES / name)
    rate_mbps = entry["rate_mbps"]
    end_s = 10
    run.scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=1), flows=[cct.Flow()], duration_s=end_s
    )
    found = values(measure(run, warmup_s=2))
    naive = naive_measure(run, rate_mbps, run.start_ns + 2 * 10**9, run.start_ns + end_s * 10**9)
    assert (("share", 1) in found) == (len(run.flows) > 1)
    for (quantity, flow), value in naive.items():
        if quantity != "share" or (
            len(run.flows) > 1 and flow < len(run.flows)
        ):  # others are not in the labels
            assert found[quantity, flow] == pytest.approx(value, rel=1e-9, abs=1e-12), quantity

    run.scenario = run.scenario.replace({"duration_s": 1000})
    data = run.ingress.packets.query("payload_bytes > 0 and direction == 0 and tcp_flags != 0")
    lost = values(measure(run, warmup_s=0))["loss", -1] * len(data)
    assert lost == pytest.approx(entry["queue_dropped"], abs=2)


# ---- comparing -------------------------------------------------------------------------------------------------------


def table(**by_quantity):
    rows = []
    for quantity, sides in by_quantity.items():
        for side, numbers in zip(("kernel", "simulator"), sides, strict=True):
            rows += [
                {
                    "case": "c",
                    "rate_mbps": 10.0,
                    "side": side,
                    "seed": k,
                    "quantity": quantity,
                    "flow": -1,
                    "value": x,
                }
                for k, x in enumerate(numbers)
            ]
    return pd.DataFrame(rows).replace({"quantity": {"delay": "mean delay"}})


def test_errors_are_relative_to_the_kernel_with_its_spread_and_the_noise():
    found = compare(table(utilisation=([0.8, 0.9, 1.0], [0.99, 0.99, 0.99]))).iloc[0]
    assert found.kernel == pytest.approx(0.9) and found.simulator == pytest.approx(0.99)
    assert found.error == pytest.approx(0.1)
    assert found.kernel_spread == pytest.approx(0.1 / 0.9)
    assert found.noise == pytest.approx(0.1 / np.sqrt(3) / 0.9)


def test_small_amounts_are_relative_to_the_least_that_counts():
    found = compare(table(loss=([0.0001], [0.0002]), delay=([0.1], [0.7]))).set_index("quantity")
    assert found.error["loss"] == pytest.approx(0.1)  # of one in a thousand
    assert found.error["mean delay"] == pytest.approx(0.6 / (1514 * 8e-3 / 10))  # of a packet's sending time
    assert np.isnan(found.kernel_spread["loss"])  # one run has none


def test_nothing_on_both_sides_is_no_agreement():
    assert len(compare(table(loss=([0, 0], [0, 0]), marks=([0], [0])))) == 0
    assert len(compare(table(loss=([0, 0], [0, 0.01]), utilisation=([0], [0])))) == 2


# ---- the grid --------------------------------------------------------------------------------------------------------


def test_grid_covers_what_is_to_be_compared():
    cases = list(GRID.cases())
    assert len({case.name for case in cases}) == len(cases)
    for cca in ("reno", "cubic", "bbr", "htcp", "vegas", "dctcp"):
        for aqm in ("tail_drop", "codel", "fq_codel", "pie", "red", "dualpi2"):
            if (cca, aqm) != ("dctcp", "tail_drop"):
                assert any(case.aqm == aqm and case.ccas == cca for case in cases), (cca, aqm)
    assert any(len(case.flows) == 2 for case in cases)


def test_scenarios_of_a_case():
    case = Case((("cubic", 20), ("dctcp", 80)), "red", buffer_bdp=2, ecn=True)
    scenario = case.scenario(3, 30)
    assert scenario.bottleneck.buffer_packets == round(2 * 0.08 * 10e6 / 8 / 1514)
    assert [f.ecn for f in scenario.flows] == ["classic", "accurate"]
    assert scenario.seed == 3 and scenario.duration_s == 30
    assert scenario == case.scenario(3, 30) != case.scenario(4, 30)
    for field in ("start_s", "rtt_ms"):
        mine, others = ([getattr(f, field) for f in x.flows] for x in (scenario, case.scenario(4, 30)))
        assert all(a != b for a, b in zip(mine, others, strict=True))
    assert [f.rtt_ms for f in scenario.flows] == pytest.approx([20, 80], rel=0.02)
    assert not scenario.bottleneck.aqm.gentle
    l4s = Case((("cubic", 20), ("dctcp", 20)), "dualpi2", ecn=True).scenario(1, 30)
    assert [f.ecn for f in l4s.flows] == ["off", "l4s"]


@pytest.mark.parametrize("name", ["codel", "pie", "dualpi2"])
def test_simulator_runs_linuxs_variants_with_the_same_parameters(name):
    scenario = Case((("reno", 20),), name).scenario(1, 30).replace({"bottleneck.aqm.target_ms": 7})
    ours = for_simulator(scenario).bottleneck.aqm
    assert ours.name == f"{name}_linux"
    theirs = scenario.bottleneck.aqm.parameters()
    assert {k: v for k, v in ours.parameters().items() if k in theirs}.items() <= theirs.items()
    assert ours.target_ms == 7


def test_sending_time_is_taken_off_the_simulators_rtts():
    scenario = Case((("reno", 20), ("bbr", 80)), rate_mbps=10).scenario(1, 30)
    # one full packet at a time: each takes a round trip and the sending times of both links, and nothing else
    scenario = scenario.replace({"flows.*.max_window": 1, "flows.*.bytes": 5 * 1448, "flows.*.start_s": 0})
    scenario = scenario.replace({"flows.1.start_s": 5})
    run = cct.simulate(for_simulator(scenario), record=True)
    samples = cct.rtt_samples(run.ingress)
    samples = samples[samples.direction == 0].groupby("flow_id").rtt_ns.median() / 1e6
    assert samples.to_numpy() == pytest.approx([f.rtt_ms for f in scenario.flows], abs=0.01)


def without_kernel(monkeypatch, cases, run):
    """The experiment with other cases, and with `run` in place of the kernel's runs."""
    monkeypatch.setattr(sim_vs_kernel.Grid, "cases", lambda grid: iter(cases))
    monkeypatch.setattr(sim_vs_kernel.Job, "on_linux", lambda job, scenario: run(job))
    kernel = Kernel(path=Path("kernel"), sha256="0" * 64, version="7.2")
    monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: kernel)


@pytest.mark.parametrize(("asked", "folder"), [("prague", "hardware/linux/prague"), ("bbr3", "bbr3")])
def test_a_congestion_control_that_was_asked_for_is_not_left_out(tmp_path, monkeypatch, asked, folder):
    kernel = Kernel(path=Path("kernel"), sha256="0" * 64, version="7.2")
    monkeypatch.setattr("cctoolkit.testbed.kernel.find_kernel", lambda: kernel)
    for options in ({"only": [asked]}, {"only": [asked, "20"]}, {"modules": True}):
        with pytest.raises(TestbedUnavailableError, match=rf"has no .*{asked}.*--with {folder}"):
            sim_vs_kernel.run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    assert set(BUILT_WITH) == set(MODULES)


@pytest.mark.slow
def test_cases_that_the_kernel_lacks_are_left_out_and_listed(tmp_path, monkeypatch):
    cases = [Case((("reno", 20),)), Case((("reno", 20),), "dualpi2")]

    def run(job):
        if job.case.aqm == "dualpi2":
            raise TestbedUnavailableError("kernel 6.12 has no qdisc 'dualpi2'")
        return cct.simulate(job.case.scenario(job.seed, job.duration_s), record=True)

    without_kernel(monkeypatch, cases, run)
    options = {"kernel_seeds": 1, "seeds": 1, "duration": 4, "warmup": 1, "workers": 1}
    folder = sim_vs_kernel.run(tmp_path / "out", **options)
    assert set(pd.read_parquet(folder / "errors.parquet").case) == {cases[0].name}
    assert "Left out: 1 cases (kernel 6.12 has no qdisc 'dualpi2')." in (folder / "summary.md").read_text()
    without_kernel(monkeypatch, cases[1:], run)
    with pytest.raises(TestbedUnavailableError, match="no qdisc"):
        sim_vs_kernel.run(tmp_path / "none", **options)


@pytest.mark.uml
@pytest.mark.slow
def test_a_small_grid_from_end_to_end(tmp_path, monkeypatch):
    uml_kernel()
    small = (
        Case((("reno", 20),)),
        Case((("cubic", 20), ("cubic", 40)), "pie", buffer_bdp=4),
    )
    monkeypatch.setattr(sim_vs_kernel.Grid, "cases", lambda grid: iter(small))
    options = {"kernel_seeds": 2, "seeds": 2, "duration": 8, "warmup": 2, "workers": 2}
    folder = sim_vs_kernel.run(tmp_path / "out", **options)
    errors = pd.read_parquet(folder / "errors.parquet")
    assert set(errors.case) == {case.name for case in small}
    assert set(errors.quantity) == set(QUANTITIES) - {"marks"}
    by = errors.groupby("quantity").error.apply(lambda e: e.abs().max())
    assert by["utilisation"] < 0.05 and by["mean delay"] < 0.5
    assert errors[errors.quantity == "share"].groupby("case").kernel.sum().to_numpy() == pytest.approx(1)
    text = (folder / "summary.md").read_text()
    assert "| reno | 1 |" in text and "| pie | 1 |" in text
    there = {p.name for p in folder.iterdir()}
    assert {"scatter.html", "distribution.html", "worst-1.html", "runs.parquet", "experiment.json"} <= there

    kept = {path: path.stat().st_mtime_ns for path in (folder / "kernel").rglob("*")}
    assert len(list((folder / "kernel").iterdir())) == 4
    for one in (folder / "kernel").iterdir():
        assert cct.load_run(one).scenario.duration_s == 8
    sim_vs_kernel.run(folder, **options)
    assert {path: path.stat().st_mtime_ns for path in (folder / "kernel").rglob("*")} == kept
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "errors.parquet"), errors)
