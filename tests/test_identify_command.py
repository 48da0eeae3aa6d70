"""``cct dataset``, ``cct train``, ``cct evaluate``, ``cct classify``, and the report's congestion controls."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tshark import ask

import cctoolkit as cct
from cctoolkit import cli, schema
from cctoolkit.errors import ParameterError
from cctoolkit.identify import Model, SlotDataset, classify, classify_flows, record
from cctoolkit.identify.bundle import FORMAT
from cctoolkit.identify.command import groups
from cctoolkit.identify.dataset import index_dataset, save_recording
from cctoolkit.identify.inputs import BIN_CHANNELS, BINS, VIEW_INPUTS, VIEWS

TRACES = Path(__file__).parents[1] / "traces"
MIXED = TRACES / "mixed.ingress.pcap.gz"
THREE = TRACES / "three-ccas-ipv6.ingress.pcap.gz"
THREE_EGRESS = TRACES / "three-ccas-ipv6.egress.pcap.gz"
TOML = """
duration_s = 3

[bottleneck]
rate_mbps = 10
buffer_packets = 40

[[flows]]
cca = "cubic"

[[flows]]
cca = "bbr"

[[flows]]
cca = "reno"

[sweep]
"bottleneck.rate_mbps" = [5, 10]
seed = [1, 2]
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Call ``cct`` in this process: (exit status, standard output, standard error)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cct", *map(str, arguments)])
        status = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = capfd.readouterr()
        return status, out, err

    return call


@pytest.fixture(scope="session")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model made by hand that says what it sees of a flow: its queue, its flight, or neither."""
    onnx = pytest.importorskip("onnx", reason="the extra `train` is not installed")
    weights = np.zeros((len(BIN_CHANNELS), 3), np.float32)
    for column, (name, weight) in enumerate([("has_queue", 20), ("has_flight", 10)]):
        weights[BIN_CHANNELS.index(name), column] = weight
    tensor, node = onnx.numpy_helper.from_array, onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            node("ReduceMean", [VIEWS[0]], ["mean"], axes=[2], keepdims=0),
            node("MatMul", ["mean", "weights"], ["seen"]),
            node("Add", ["seen", "bias"], ["scores"]),
        ],
        "seer",
        [
            onnx.helper.make_tensor_value_info(
                view, 1, ["windows", len(BIN_CHANNELS), BINS if view == VIEWS[0] else f"{view}_bins"]
            )
            for view in VIEWS
        ],
        [onnx.helper.make_tensor_value_info("scores", 1, ["windows", 3])],
        [tensor(weights, "weights"), tensor(np.array([0, 0, 5], np.float32), "bias")],
    )
    network = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    folder = tmp_path_factory.mktemp("models") / "seer"
    folder.mkdir()
    content = network.SerializeToString()
    (folder / "network.onnx").write_bytes(content)
    about = {
        "format": FORMAT, "classes": ["queue", "flight", "neither"], "inputs": list(VIEW_INPUTS), "slot_ms": 1.0,
        "preparation": "scale_view", "windows_ms": [100, 1000], "temperature": 1.0, "least": [], "other": "other",
        "networks": [{"slots": None, "file": "network.onnx", "sha256": hashlib.sha256(content).hexdigest()}],
    }  # fmt: skip
    (folder / "model.json").write_text(json.dumps(about))
    return folder


def read_csv(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])


# ---- classify --------------------------------------------------------------------------------------------------------


def test_classify_reports_findings_about_the_taps(run, seer: Path) -> None:
    status, out, err = run("classify", THREE, "--model", seer, "-f", "csv")
    assert (status, err) == (0, "")
    one = read_csv(out)
    assert set(one["cca"]) == {"flight"}
    assert set(one["feature_set"]) == {"bytes_in_flight+throughput"}
    two = read_csv(run("classify", THREE, THREE_EGRESS, "--model", seer, "-f", "csv")[1])
    assert set(two["cca"]) == {"queue"}
    assert set(two["feature_set"]) == {"cbiq+bytes_in_flight+throughput"}
    flows = cct.read_capture(THREE).flows.set_index("flow_id")
    assert list(one["payload_bytes"]) == sorted(one["payload_bytes"], reverse=True)
    for row in one.itertuples():
        flow = flows.loc[row.flow_id]
        assert (row.src, row.sport, row.dst, row.dport) == (flow.src, flow.sport, flow.dst, flow.dport)
        assert row.payload_bytes == max(flow.payload_fwd, flow.payload_rev) >= 1_000_000
    wanted = flows[(flows.protocol == 6) & (flows[["payload_fwd", "payload_rev"]].max(axis=1) >= 1_000_000)]
    assert set(one["flow_id"]) == set(wanted.index)


def test_classify_on_a_terminal_and_in_parquet(run, seer: Path, tmp_path: Path) -> None:
    status, out, _ = run("classify", THREE, "--model", seer)
    assert status == 0
    assert "by the model seer, from bytes_in_flight+throughput (3 flows)" in out
    assert "fd00:1::a" in out and "flight" in out
    assert run("classify", THREE, "--model", seer, "-o", tmp_path / "ccas.parquet")[0] == 0
    table, provenance = schema.read_parquet(tmp_path / "ccas.parquet", "ccas")
    assert len(table) == 3 and provenance["command"][1] == "classify"
    status, out, err = run("classify", THREE, "--model", seer, "--min-bytes", 10**9)
    assert (status, out) == (1, "") and "no TCP flow has 1,000,000,000 bytes" in err


def naive(model: Model, path: Path, egress: Path | None, table: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Each flow by itself, from the slots table of the whole capture."""
    behind = None if egress is None else cct.read_capture(egress)
    slots = cct.compute_slots(cct.read_capture(path), behind, 1.0, flow_ids=table["flow_id"])
    rows = []
    for flow_id in table["flow_id"]:
        of = slots[slots["flow_id"] == flow_id]
        of = of[of["slot"] < of["slot"].iloc[0] + round(1000 * seconds)]
        of.attrs["slot_ms"] = 1.0
        rows.append(model.predict_slots(of))
    return pd.concat(rows, ignore_index=True).astype({"cca": "str", "feature_set": "str"})


@pytest.mark.slow
@pytest.mark.parametrize("two_taps", [False, True])
@pytest.mark.parametrize("seconds", [60.0, 2.0])
def test_in_parts_as_at_once(
    seer: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, two_taps: bool
) -> None:
    egress = TRACES / "mixed.egress.pcap.gz" if two_taps else None
    model = cct.identify.load(seer)
    monkeypatch.setattr(classify, "_PACKETS", 1500)
    monkeypatch.setattr(classify, "_ROWS", 3000)  # many tables
    table = classify_flows(MIXED, egress, model=model, min_bytes=20_000, seconds=seconds)
    assert len(table) > 10
    expected = naive(model, MIXED, egress, table, seconds)
    pd.testing.assert_frame_equal(
        table[["flow_id", "cca", "windows", "window_ms", "feature_set"]],
        expected[["flow_id", "cca", "windows", "window_ms", "feature_set"]],
        check_dtype=False,
    )
    assert table.loc[table["window_ms"] == 1000, "windows"].max() == (2 if seconds == 2 else 16)


def test_captures_and_pipes_and_selections(seer: Path, tmp_path: Path) -> None:
    table = classify_flows(MIXED, model=seer)
    pd.testing.assert_frame_equal(classify_flows(cct.read_capture(MIXED), model=seer), table)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(MIXED.read_bytes()))
    writer.start()
    pd.testing.assert_frame_equal(classify_flows(pipe, model=seer), table)
    writer.join()
    some = classify_flows(MIXED, model=seer, selection=cct.Selection(host="10.1.0.10"))
    pd.testing.assert_frame_equal(some, table[table["src"] == "10.1.0.10"].reset_index(drop=True))
    assert classify_flows(MIXED, model=seer, selection=cct.Selection(protocol="udp")).empty


def test_flows_that_begin_after_the_last_packet_read_are_named_by_nothing(
    seer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classify, "_PACKETS", 2000)
    table = classify_flows(MIXED, model=seer, min_bytes=1000, packets=4000)
    assert table["cca"].isna().any() and table["cca"].notna().any()
    assert (table.loc[table["cca"].isna(), "windows"] == 0).all()


def test_prague_says_ect_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that sees Prague everywhere: packets without ECT(1) are of something else."""
    flows = [
        cct.Flow("cubic", rtt_ms=20),
        cct.Flow("prague", ecn="l4s", rtt_ms=20),
        cct.Flow("dctcp", ecn="accurate"),
    ]
    link = cct.Bottleneck(rate_mbps=30, buffer_packets=200, aqm="dualpi2")
    seen = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=3)).ingress
    real = Model.predict_slots
    monkeypatch.setattr(
        Model, "predict_slots", lambda *arguments: real(*arguments).assign(cca="prague", probability=0.9)
    )
    table = classify_flows(seen, model="every-cca", min_bytes=100_000).set_index("flow_id")
    ecn = pd.Series(seen.columns["ecn"]).groupby(seen.columns["flow_id"]).agg(set)
    assert [{1, 3} & codepoints != set() for codepoints in ecn[[0, 1, 2]]] == [False, True, False]
    assert table.cca[[0, 1, 2]].tolist() == ["unknown", "prague", "unknown"]


def test_too_many_flows_at_once_are_refused_with_what_to_do(run, seer: Path, monkeypatch) -> None:
    monkeypatch.setattr(classify, "_MAX_CELLS", 1000)
    status, _, err = run("classify", MIXED, "--model", seer)
    assert status == 1
    assert "--min-bytes" in err and "--seconds" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("nowhere.pcap",), "nowhere.pcap"),
        ((MIXED, "--window-ms", "50"), "the shortest seer was trained on are 100 ms"),
        ((MIXED, "--window-ms", "0.3"), "window_ms: 0.3"),
        ((MIXED, "-o", "ccas.txt"), "must end in"),
    ],
)
def test_classify_refuses(run, seer: Path, arguments: tuple[object, ...], message: str) -> None:
    status, _, err = run("classify", *arguments, "--model", seer)
    assert status == 1
    assert message in err and err.startswith("cct: ") and err.count("\n") == 1


def test_output_lists_what_else_a_name_covers(run, seer: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(seer, tmp_path / "seer"))
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(
        json.dumps(about | {"alike": {"flow": ["flight", "neither"], "line": ["queue"]}})
    )
    message = "; flow also covers flight, neither"
    for command in (("classify", THREE), ("flows", THREE, "--cca")):
        _, out, _ = run(*command, "--model", folder)
        assert message in " ".join(out.split()) and "line also covers" not in out


def test_classes_of_several() -> None:
    assert groups(["Reno = lp, YeAH", "a=b"]) == {"reno": ("lp", "yeah"), "a": ("b",)} and groups([]) == {}
    for texts, message in [
        (["reno"], "alike: 'reno' is not NAME=CCA,CCA"),
        (["reno="], "is not NAME=CCA,CCA"),
        (["=lp"], "is not NAME=CCA,CCA"),
        (["a=b", "a=c"], "alike: a is given twice"),
        (["a=b", "c=b"], "ccas: b is given twice"),
    ]:
        with pytest.raises(ParameterError, match=message):
            groups(texts)


def test_a_model_that_is_not_there(run, monkeypatch: pytest.MonkeyPatch) -> None:
    status, _, err = run("classify", MIXED, "--model", "nothing")
    assert status == 1 and "nothing is neither a folder" in err
    monkeypatch.setattr("cctoolkit.identify.bundle.bundled_models", dict)
    monkeypatch.setattr("cctoolkit.identify.classify.bundled_models", dict)
    status, _, err = run("classify", MIXED)
    assert status == 1 and "--model" in err


@pytest.mark.slow
def test_naming_needs_no_torch(seer: Path) -> None:
    code = (
        "import sys, cctoolkit as cct; cct.identify.load; before = 'pandas' in sys.modules\n"
        f"cct.report.report({str(THREE)!r}, sys.argv[1], model={str(seer)!r})\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(seer.parent / "page.html")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"


# ---- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_has_a_column(run, seer: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("report", THREE, "--egress", THREE_EGRESS, "--model", seer, "-o", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert 'button type="button">CCA</button>' in text
    assert text.count("queue 100 %") == 3
    assert "according to the model seer" in text
    assert "from bytes in the queue, bytes in flight and throughput (two taps)" in text
    summary = cct.summarise(MIXED, model=seer, top=3)
    assert list(summary.ccas["cca"]) == ["flight"] * 3
    cct.report.report(summary, page)
    assert "from bytes in flight and throughput (one tap)" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_without_a_model_there_is_no_column(
    run, seer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    assert run("report", THREE, "--model", "none", "-o", page)[0] == 0
    assert ">CCA<" not in page.read_text(encoding="utf-8")
    monkeypatch.setattr("cctoolkit.identify.bundle.bundled_models", dict)
    monkeypatch.setattr("cctoolkit.identify.classify.bundled_models", dict)
    assert run("report", THREE, "-o", page)[0] == 0
    assert ">CCA<" not in page.read_text(encoding="utf-8")
    status, _, err = run("report", THREE, "--model", "nothing", "-o", tmp_path / "other.html")
    assert status == 1 and "nothing" in err and not (tmp_path / "other.html").exists()


def test_the_report_of_a_pipe_says_why_it_names_nothing(seer: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(THREE.read_bytes()))
    writer.start()
    summary = cct.summarise(pipe, model=seer)
    writer.join()
    assert summary.ccas is None
    assert any("cannot be read twice" in note for note in summary.notes)


# ---- datasets --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH")
def test_exports_of_tshark_with_labels_of_iperf3_become_a_dataset(run, tmp_path: Path) -> None:
    """What others have instead of captures and tables: the same slots as from the capture itself."""
    fields = ["frame.time_epoch", "frame.len", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport",
              "tcp.dstport", "tcp.seq_raw", "tcp.ack_raw", "tcp.len", "tcp.flags", "tcp.window_size_value",
              "tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr", "ip.dsfield", "ip.ttl"]  # fmt: skip
    export = tmp_path / "three.tsv"
    options = [word for field in fields for word in ("-e", field)]
    export.write_text(ask(THREE, "-T", "fields", "-E", "header=y", *options))
    known = pd.read_csv(TRACES / "three-ccas-ipv6.labels.csv")
    tests = [
        {
            "start": {
                "connected": [{"socket": 5, "local_host": flow.src, "local_port": flow.sport,
                               "remote_host": flow.dst, "remote_port": flow.dport}],
                "test_start": {"protocol": "TCP", "reverse": 0},
                "timestamp": {"timesecs": 1_700_000_000},
            },
            "intervals": [{"streams": [{"socket": 5, "end": 1.0, "seconds": 1.0, "bytes": 1}]}],
            "end": {"sender_tcp_congestion": flow.cca},
        }
        for flow in known.itertuples()
    ]  # fmt: skip
    labels = tmp_path / "iperf3.json"
    labels.write_text("\n".join(json.dumps(test) for test in tests))
    status, out, err = run("dataset", "add", tmp_path / "mine", export, "--labels", labels)
    assert (status, err) == (0, "")
    assert "3 flows (1 reno, 1 cubic, 1 bbr)" in out
    (recording,) = SlotDataset(tmp_path / "mine").where("cca == cca")
    assert dict(zip(recording.flows["src"], recording.flows["cca"], strict=True)) == dict(
        zip(known["src"], known["cca"], strict=True)
    )
    expected = cct.compute_slots(cct.read_capture(THREE), flow_ids=recording.flows["flow_id"])
    for name in ("in_bytes", "bytes_in_flight"):
        pd.testing.assert_series_equal(
            recording.slots[name].astype("Int64"), expected[name], check_names=False
        )


def test_own_captures_become_a_dataset(run, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    labels = TRACES / "three-ccas-ipv6.labels.csv"
    status, out, err = run("dataset", "add", mine, THREE, THREE_EGRESS, "--labels", labels)
    assert (status, err) == (0, "")
    assert "3 flows (1 reno, 1 cubic, 1 bbr)" in out
    assert (
        run("dataset", "add", mine, MIXED, "--labels", TRACES / "mixed.labels.csv", "--name", "other")[0] == 0
    )
    dataset = SlotDataset(mine)
    assert dataset.runs == ["other", "three-ccas-ipv6"]
    recording = next(iter(dataset.where("run == 'three-ccas-ipv6'")))
    known = pd.read_csv(labels).set_index("src")["cca"]
    assert {row.src: row.cca for row in recording.flows.itertuples()} == known.to_dict()
    expected = cct.compute_slots(
        cct.read_capture(THREE), cct.read_capture(THREE_EGRESS), flow_ids=recording.flows["flow_id"]
    )
    pd.testing.assert_series_equal(
        recording.slots["cbiq_bytes"].astype("Int64"), expected["cbiq_bytes"], check_names=False
    )
    status, out, _ = run("dataset", "info", mine)
    assert status == 0
    assert (
        f"{len(dataset.flows)} ({', '.join(f'{n} {c}' for c, n in dataset.flows['cca'].value_counts().items())})"
        in out
    )
    assert "base rtt ms" in out.replace("_", " ")


def nebby_trace(path: Path, *, packets: int = 300) -> Path:
    """A file as Nebby's run_test.sh writes it: a download in segments of 48 bytes, a round trip of 100 ms."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = "_ws.col.Time,frame.time_relative,ip.src,tcp.srcport,ip.dst,tcp.dstport,tcp.len,tcp.seq,tcp.ack"
    server, client = "192.168.1.1,8081,10.0.0.2,40138", "10.0.0.2,40138,192.168.1.1,8081"
    rows = [(0.0, f"{client},0,0,0"), (0.001, f"{server},0,0,1")]
    for i in range(packets):
        rows.append((0.2 + 0.01 * i, f"{server},48,{1 + 48 * i},1"))
        rows.append((0.3 + 0.01 * i, f"{client},0,1,{49 + 48 * i}"))
    lines = [
        ",".join(f'"{cell}"' for cell in f"05:22:{t:09.6f},{t:.9f},{rest}".split(",")) + "\n"
        for t, rest in sorted(rows)
    ]
    lines.insert(1, '"05:22:00.000001","0.000001000",,,,,,,\n')  # no TCP
    path.write_text(fields + "\n" + "".join(lines))
    return path


def test_a_folder_of_somebody_elses_traces_becomes_a_dataset(run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    nebby_trace(Path("theirs/reno1-0-50-200-2-tcp.csv"))
    nebby_trace(Path("theirs/45-ms-400-kbps/cubic.csv"))
    nebby_trace(Path("theirs/www.example.com-tcp.csv"))  # whose congestion control nobody knows
    Path("theirs/reno2-0-50-200-2-tcp.csv").write_text("frame.number,frame.len\n1,60\n")
    Path("theirs/README.md").write_text("bbr")
    status, out, err = run("dataset", "add", "mine", "theirs")
    assert (status, out) == (0, "added 2 runs to mine: 2 flows (1 cubic, 1 reno)\n")
    unnamed, unread = err.splitlines()
    assert "theirs/www.example.com-tcp.csv: no congestion control in the name" in unnamed
    assert "theirs/reno2-0-50-200-2-tcp.csv: " in unread and "is missing" in unread
    flows = SlotDataset("mine").flows.set_index("run")
    assert flows.loc["theirs-reno1-0-50-200-2-tcp", ["cca", "rate_mbps", "rtt_ms"]].tolist() == [
        "reno",
        0.2,
        100,
    ]
    assert flows.loc["theirs-45-ms-400-kbps-cubic", ["cca", "rate_mbps", "rtt_ms"]].tolist() == [
        "cubic",
        0.4,
        100,
    ]
    (recording,) = SlotDataset("mine").where("cca == 'reno'")
    slots = recording.slots
    assert slots["in_bytes"].sum() == 300 * 48 and slots["bytes_in_flight"].max() == pytest.approx(
        480, abs=48
    )
    assert slots["cbiq_bytes"].isna().all()  # one tap

    status, out, err = run("dataset", "add", "mine", "theirs")  # again: what is there stays
    assert status == 1 and out == "" and err.splitlines()[-1].startswith("cct: theirs: nothing to add")
    Path("table.csv").write_text("file,cca\nwww.example.com-tcp.csv,bbr\n")
    status, out, err = run("dataset", "add", "mine", "theirs", "--labels", "table.csv")
    assert status == 0 and "added 1 run to mine: 1 flow (1 bbr)" in out
    assert set(SlotDataset("mine").flows["cca"]) == {"bbr", "cubic", "reno"}


def test_a_path_too_long_for_a_name_keeps_no_other_file_out(run, tmp_path: Path) -> None:
    source = tmp_path / "theirs"
    nebby_trace(source / "vegas-5-45-200-2-tcp.csv")
    nebby_trace(source / ("é" * 60) / ("é" * 60) / "reno-5-45-200-2-tcp.csv")
    status, out, err = run("dataset", "add", tmp_path / "mine", source)
    assert status == 0 and "added 1 run" in out and "1 vegas" in out
    assert err.count("\n") == 1 and "more than 200 bytes" in err
    status, _, err = run("dataset", "add", "mine", source / "vegas-5-45-200-2-tcp.csv", "--name", "x" * 300)
    assert status == 1 and err.startswith("cct: name: ") and "longer than 200 bytes" in err


def test_a_captures_own_name_is_its_label(run, tmp_path: Path) -> None:
    path = nebby_trace(tmp_path / "x" / "vegas-5-45-200-2-tcp.csv")
    status, out, _ = run("dataset", "add", tmp_path / "mine", path)
    assert (status, out.rpartition(": ")[2]) == (0, "1 flow (1 vegas)\n")
    assert SlotDataset(tmp_path / "mine").flows["buffer_bdp"].tolist() == [2]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "empty"),
        ("No.,Time,Source\n1,0.1,::1\n", "has no field names"),
        ("frame.time_relative,tcp.srcport,tcp.dstport,tcp.seq,tcp.len\nnan,1,2,1,100\n", "is not a time"),
        (
            "frame.time_relative,tcp.srcport,tcp.dstport,tcp.seq,tcp.len\n0.1,1,2,1,1e99\n",
            "is not a whole number",
        ),
        ("frame.time_relative,tcp.srcport,tcp.dstport,tcp.seq,tcp.len\n0.1,1,2,1\n0.2,1,2,1,9\n", "4 cells"),
        ("frame.time_relative,tcp.srcport,tcp.dstport,tcp.seq,tcp.len\n0.1,1,2,1,0\n", "none of 1 rows"),
    ],
    ids=["empty", "summary lines", "nan", "huge", "cells", "no data"],
)
def test_a_folder_with_nothing_to_read_is_refused(run, tmp_path: Path, text: str, message: str) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "reno-0-50-200-2-tcp.csv").write_text(text)
    status, out, err = run("dataset", "add", tmp_path / "mine", folder)
    assert (status, out) == (1, "") and not (tmp_path / "mine").exists()
    why, end = err.splitlines()
    assert "reno-0-50-200-2-tcp.csv" in why and message in why
    assert end.startswith("cct: ") and "nothing to add from 1 file" in end


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, message",
    [
        (("add", "DIR", THREE, "--name", "b"), "nor its folder is named after"),
        (("add", "DIR", TRACES, THREE_EGRESS), "egress: needs a single capture"),
        (("add", "DIR", TRACES, "--name", "b"), "name: needs a single capture"),
        (("add", "DIR", TRACES, "--labels", "iperf3.json"), "labels: a folder needs a table"),
        (("add", "DIR", "twice", "--labels", "ports.csv"), "labels: a folder needs a column 'file'"),
        (("add", "DIR", "empty"), "empty: no captures or field exports"),
        (("add", "DIR", "twice"), "would be one run, twice-reno"),
        (
            ("add", "DIR", THREE, "--labels", TRACES / "three-ccas-ipv6.labels.csv"),
            "has a run three-ccas-ipv6",
        ),
        (("add", "DIR", THREE, "--labels", TRACES / "reno.labels.csv", "--name", "b"), "fits one of its"),
        (("add", "DIR", THREE, "--labels", "nowhere.csv", "--name", "b"), "nowhere.csv"),
        (("add", "DIR", "nowhere.pcap", "--labels", TRACES / "reno.labels.csv"), "nowhere.pcap"),
        (
            ("add", "DIR", THREE, "--labels", TRACES / "reno.labels.csv", "--name", "../b"),
            "name: '../b'",
        ),
        (("add", "DIR", THREE, "--labels", TRACES / "reno.labels.csv", "--slot-ms", "2"), "slot_ms: "),
        (("info", "nowhere"), "holds no dataset"),
        (("build", "nothing", "-o", "DIR"), "neither a .toml file nor one of paper"),
        (("build", "paper", "-o", "DIR", "--ccas", "bic"), "ccas: 'bic'"),
        (("build", "paper", "-o", "DIR", "--ccas", "reno,reno"), "reno is given twice"),
        (("build", "paper", "-o", "DIR", "--part", "test"), "only hard and elsewhere have parts"),
        (("build", "hard", "-o", "DIR", "--part", "third"), "neither 'train' nor 'test'"),
        (("build", "grid.toml", "-o", "DIR", "--runs", "3"), "runs: grid.toml"),
        (("build", "nowhere.toml", "-o", "DIR"), "nowhere.toml"),
        (("build", "paper", "-o", "new", "--runs", "1", "--on", "nothing"), "nothing"),
    ],
)
def test_dataset_refuses(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(TOML)
    (tmp_path / "ports.csv").write_text("sport,cca\n8081,bbr\n")
    (tmp_path / "empty").mkdir()
    nebby_trace(tmp_path / "twice" / "reno.csv", packets=1)
    nebby_trace(tmp_path / "twice" / "reno.txt", packets=1)
    if arguments[0] == "add":
        assert run("dataset", "add", "DIR", THREE, "--labels", TRACES / "three-ccas-ipv6.labels.csv")[0] == 0
    status, _, err = run("dataset", *arguments)
    assert status == 1, err
    assert message in err and err.startswith("cct: ") and err.count("\n") == 1


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    """A dataset of one run whose flows are, as the seer has it, of the congestion control "queue"."""
    recording = record(cct.load_run(TRACES / "three-ccas-ipv6"))
    recording.flows["cca"] = "queue"
    save_recording(tmp_path / "queues", recording, {})
    index_dataset(tmp_path / "queues", {}, 1.0)
    return tmp_path / "queues"


def test_evaluate_says_what_it_cannot_know(run, seer: Path, queues: Path, tmp_path: Path) -> None:
    evaluated = "evaluate", seer, queues, "--window-ms", 1000, "-f", "csv"
    status, out, err = run(*evaluated)
    assert status == 0 and read_csv(out)["f1_queue"].tolist() == [1]
    [message] = err.splitlines()
    assert message.startswith("cct: seer ") and "split.csv" in message
    assert run(*evaluated, "--all")[2] == ""
    mine = shutil.copytree(seer, tmp_path / "mine")
    for content, status, message in [
        ("run,part\nthree-ccas-ipv6,test\n", 0, ""),
        ("run,part\nthree-ccas-ipv6,train\n", 1, "mine was trained on all of these runs"),
        ("name\nthree-ccas-ipv6\n", 1, "split.csv: not a table of run and part"),
        ("", 1, "split.csv: not a table of run and part"),
    ]:
        (mine / "split.csv").write_text(content)
        found, _, err = run("evaluate", mine, queues, "--window-ms", 1000)
        assert found == status and message in err and err.count("\n") == status


def test_evaluate_by_the_crossover(run, seer: Path, queues: Path) -> None:
    status, out, _ = run(
        "evaluate", seer, queues, "--window-ms", 1000, "--by", "crossover", "--per-flow", 9, "-f", "csv"
    )
    scores = read_csv(out)
    assert status == 0 and scores["windows"].sum() == 27
    assert set(scores["crossover"]) <= {"below a tenth", "a tenth to one", "above one"} and len(scores) > 1
    status, _, err = run("evaluate", seer, queues, "--by", "crossing")
    assert status == 1 and "by: 'crossing' must be one of run, flow_id, cca" in err and "crossover" in err


@pytest.mark.slow
def test_flows_with_their_congestion_controls(run, seer: Path, tmp_path: Path) -> None:
    _, plain, _ = run("flows", THREE, "-f", "csv")
    status, out, err = run("flows", THREE, "--cca", "--model", seer, "-f", "csv")
    assert (status, err) == (0, "")
    table = read_csv(out)
    pd.testing.assert_frame_equal(table.drop(columns=["cca", "probability", "limited_by"]), read_csv(plain))
    classified = read_csv(run("classify", THREE, "--model", seer, "-f", "csv")[1]).set_index("flow_id")
    named = table.set_index("flow_id")["cca"].dropna()
    assert len(named) == 3 and named.to_dict() == classified["cca"].to_dict() == dict.fromkeys(
        named.index, "flight"
    )
    assert table["probability"].notna().sum() == 3

    status, out, _ = run("flows", THREE, "--cca", "--egress", THREE_EGRESS, "--model", seer, "--top", 2)
    assert status == 0 and out.count("queue 100 %") == 2
    assert "CCA: by the model seer, from cbiq+bytes_in_flight+throughput (2 flows)" in out
    status, out, _ = run("flows", THREE, "--cca", "--model", seer, "--protocol", "icmpv6")
    assert status == 0 and "none of these flows is TCP with at least 1,000,000 bytes" in out
    parquet = tmp_path / "flows.parquet"
    assert run("flows", THREE, "--cca", "--model", seer, "-o", parquet)[0] == 0
    assert list(schema.read_parquet(parquet, "flows")[0]["cca"].dropna()) == ["flight"] * 3

    piped = subprocess.run(
        [sys.executable, "-m", "cctoolkit.cli", "flows", "-", "--cca", "--model", seer, "-f", "csv"],
        input=THREE.read_bytes(), capture_output=True, check=True,
    )  # fmt: skip
    pd.testing.assert_frame_equal(read_csv(piped.stdout.decode()), table)
    for option in ("--egress", "--model"):
        status, _, err = run("flows", THREE, option, THREE_EGRESS)
        assert status == 1 and err == f"cct: {option[2:]}: needs --cca\n"
    status, _, err = run("flows", THREE, "--cca", "--model", "nobody")
    assert status == 1 and "model: nobody is neither" in err and err.count("\n") == 1


@pytest.mark.slow
def test_flows_without_cca_load_no_classifier() -> None:
    code = (
        "import sys; sys.argv = ['cct', 'flows', sys.argv[1], '-f', 'csv']; from cctoolkit import cli; cli.main(); "
        "assert not [m for m in sys.modules if m.startswith('cctoolkit.identify') or m == 'onnxruntime']"
    )
    subprocess.run([sys.executable, "-c", code, str(THREE)], stdout=subprocess.DEVNULL, check=True)


# ---- the whole way ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of four simulated runs, made by the command."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "grid.toml").write_text(TOML)
    command = [sys.executable, "-m", "cctoolkit.cli", "dataset", "build", "grid.toml", "-o", "grid"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "wrote 4 runs, 12 flows (4 cubic, 4 bbr, 4 reno), to grid" in done.stdout
    return folder


@pytest.mark.slow
def test_a_dataset_is_built_once(run, grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(grid)
    before = {path: path.stat().st_mtime_ns for path in (grid / "grid" / "slots").iterdir()}
    assert run("dataset", "build", "grid.toml", "-o", "grid")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in (grid / "grid" / "slots").iterdir()} == before
    dataset = SlotDataset("grid")
    assert dataset.runs == [f"grid-{i}" for i in range(4)]
    assert set(dataset.flows["bottleneck.rate_mbps"]) == {5, 10}
    (grid / "other").mkdir()
    (grid / "other" / "grid.toml").write_text(TOML.replace("= 40", "= 41"))
    status, _, err = run("dataset", "build", "other/grid.toml", "-o", "grid")
    assert status == 1 and "a run grid-0 of another scenario" in err
    status, _, err = run("dataset", "build", "grid.toml", "-o", "grid", "--special", 1)
    assert status == 1 and "built with special 3, not 1" in err


@pytest.mark.slow
def test_train_evaluate_classify(run, grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    monkeypatch.chdir(grid)
    status, out, err = run("train", "grid", "-o", "model", "--epochs", 4, "--test-share", 0.5)
    assert status == 0, err
    assert "wrote model: bbr, cubic, reno in windows of 100, 1000 ms" in out  # none of 10 s: runs have 3 s
    split = pd.read_csv("model/split.csv").set_index("run")["part"]
    assert sorted(split) == ["test", "test", "train", "train"]
    card = Path("model/README.md").read_text(encoding="utf-8")
    assert "2 other runs were held out" in card and "rate_mbps" in card and "| f1_bbr |" in card
    model = cct.identify.load("model")
    assert model.windows_ms == (100, 1000)

    status, out, err = run("evaluate", "model", "grid", "--window-ms", 300, "-f", "csv", "--per-flow", 5)
    assert status == 0 and "left out 2 of 4 runs, which model was trained on" in err
    scores = read_csv(out)
    held_out = SlotDataset("grid").where([name for name in split.index if split[name] == "test"])
    windows = cct.identify.cut_windows(held_out, 300, VIEW_INPUTS, per_flow=5)
    from sklearn.metrics import f1_score

    expected = f1_score(windows.y, model.predict(windows), average=None, labels=["bbr", "cubic", "reno"])
    np.testing.assert_allclose(scores[["f1_bbr", "f1_cubic", "f1_reno"]].iloc[0], expected)
    assert scores["runs"].iloc[0] == 2 and scores["windows"].iloc[0] == len(windows) == 30
    assert scores["low"].iloc[0] <= scores["f1"].iloc[0] + 1e-9 <= scores["high"].iloc[0] + 2e-9

    status, out, _ = run("evaluate", "model", "grid", "--all", "--by", "bottleneck.rate_mbps", "-f", "csv")
    assert list(read_csv(out)["bottleneck.rate_mbps"]) == [5, 10] * 2
    status, out, _ = run("evaluate", "model", "grid")
    assert status == 0 and "macro F1" in out and "windows by true class" in out
    status, out, _ = run("classify", MIXED, "--model", "model", "-f", "csv")
    assert status == 0 and set(read_csv(out)["cca"]) <= {"bbr", "cubic", "reno", "unknown"}

    status, out, err = run("train", "grid", "-o", "further", "--from", "model", "--epochs", 1)
    assert status == 0, err
    assert "Training continued from model." in Path("further/README.md").read_text(encoding="utf-8")

    status, _, err = run("train", "grid", "-o", "model")
    assert status == 1 and "model exists already" in err


@pytest.mark.slow
def test_the_papers_classifier_and_what_is_not_trained_on(
    run, grid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    monkeypatch.chdir(grid)
    options = ("--epochs", 1, "--ccas", "cubic,bbr")
    status, _, err = run(
        "train",
        "grid",
        "-o",
        "dragonfly",
        "--classifier",
        "dragonfly",
        "--window-ms",
        100,
        "--window-ms",
        200,
        *options,
    )
    assert status == 0, err
    assert {p.name for p in Path("dragonfly").glob("*.onnx")} == {"network-100ms.onnx", "network-200ms.onnx"}
    status, out, _ = run("evaluate", "dragonfly", "grid", "--window-ms", 200)
    assert status == 0 and "0 % of them called unknown" in out  # it has no word for that
    status, _, err = run("evaluate", "dragonfly", "grid", "--window-ms", 300)
    assert status == 1 and "has networks for 100, 200 ms" in err
    status, out, err = run("train", "grid", "-o", "others", "--others", "--window-ms", 200, *options)
    assert status == 0, err
    assert list(cct.identify.load("others").classes_) == ["bbr", "cubic", "other"]
    some = ("--alike", "loss=reno,cubic", "--window-ms", 200, "--epochs", 1)
    status, out, err = run("train", "grid", "-o", "two", *some)
    assert status == 0 and "wrote two: bbr, loss in windows" in out, err
    status, out, _ = run("evaluate", "two", "grid", "-f", "csv")
    assert status == 0 and {"f1_bbr", "f1_loss"} < set(read_csv(out)) and "f1_reno" not in read_csv(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, message",
    [
        (("--classifier", "nothing"), "one of scales, dragonfly, deepcci, summary"),
        (("--classifier", "dragonfy"), "did you mean 'dragonfly'"),
        (("--ccas", "vegas"), "no flow uses 'vegas'"),
        (("--ccas", "cubik,bbr"), "did you mean 'cubic'"),
        (("--compare", "--others", "--ccas", "bbr"), "leave out --compare"),
        (("--compare", "--inputs", "views"), "leave out --compare"),
        (("--compare", "--test-share", "0"), "needs runs to test on"),
        (("--window-ms", "10000"), "none of .* flows has 10000 ms"),
        (("--window-ms", "0.5"), "multiple of the slot length"),
        (("--inputs", "cbiq"), "scales uses all inputs"),
        (("--classifier", "dragonfly", "--inputs", "views"), "views are for scales"),
        (("--classifier", "dragonfly", "--inputs", "nothing"), "neither a feature set"),
        (("--others",), "and --ccas"),
        (("--others", "--ccas", "bbr,cubic,reno"), "others: all flows use bbr, cubic, reno"),
        (("--alike", "reno"), "is not NAME=CCA,CCA"),
        (("--alike", "reno=vegas"), "alike: 'vegas' is not among"),
        (("--alike", "reno=cubic", "--ccas", "reno,bbr"), "alike: 'cubic' is not among"),
        (("--alike", "reno=cubic", "--classifier", "dragonfly"), "alike: only scales"),
        (("--from", "nothing"), "model: nothing is neither"),
        (("--from", "dragonfly"), "dragonfly: is a DragonflyClassifier; training can continue"),
        (("--from", "cca", "--classifier", "deepcci"), "from: only scales"),
        (("--from", "cca", "--compare"), "leave out --compare"),
        (("--device", "nothing"), "device: nothing"),
    ],
)
def test_train_refuses(
    run, grid: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    import re

    monkeypatch.chdir(grid)
    status, _, err = run("train", "grid", "-o", "never", *options)
    assert status == 1
    assert re.search(message, err) and err.startswith("cct: ") and err.count("\n") == 1
    assert not Path("never").exists()


@pytest.mark.slow
def test_classifiers_beside_each_other(run, grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are trained and tested on the same runs, and each is a model like any other."""
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    monkeypatch.chdir(grid)
    options = ("--window-ms", 200, "--epochs", 2, "--test-share", 0.5)
    status, out, err = run("train", "grid", "-o", "several", "--compare", *options)
    assert status == 0 and err.count("\n") == 1 and "2 of 2 test runs have settings seen in training" in err
    table = pd.read_csv("several/comparison.csv")
    assert list(table["classifier"]) == ["scales", "dragonfly", "deepcci", "summary"]
    assert set(table["runs"]) == {2} and len(set(table["windows"])) == 1
    assert (table["low"] <= table["f1"] + 1e-9).all() and (table["f1"] <= table["high"] + 1e-9).all()
    splits = {Path(f"several/{name}/split.csv").read_text() for name in table["classifier"]}
    assert len(splits) == 1
    for row in table.itertuples():
        status, again, _ = run("evaluate", f"several/{row.classifier}", "grid", "-f", "csv")
        assert status == 0 and read_csv(again)["f1"].iloc[0] == pytest.approx(row.f1)
        assert row.classifier in out
        status, message, err = run("classify", MIXED, "--model", f"several/{row.classifier}", "-f", "csv")
        seen = row.classifier != "dragonfly"  # which needs the queue, so a second tap
        assert status == 0 and (read_csv(message)["cca"].notna() == seen).all(), err
    assert '"summary"' in Path("several/comparison.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_tap_can_be_compared(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    monkeypatch.chdir(tmp_path)
    some = ("--window-ms", 200, "--epochs", 1, "--ccas", "cubic,bbr")
    for n, name in enumerate(("cubic-bbr", "three-ccas-ipv6", "mixed")):
        if n == 2:  # two runs: one to train on, one to test on
            status, _, err = run("train", "mine", "-o", "several", "--compare", *some)
            assert status == 1 and "at least two runs" in err and not Path("several").exists()
        labels = TRACES / f"{name}.labels.csv"
        assert run("dataset", "add", "mine", TRACES / f"{name}.ingress.pcap.gz", "--labels", labels)[0] == 0
    status, _, err = run("train", "mine", "-o", "several", "--compare", *some)
    assert status == 0 and err.count("\n") == 1 and "1 of 1 test run has settings seen in training" in err
    table = pd.read_csv("several/comparison.csv").set_index("classifier")
    assert table["inputs"]["dragonfly"] == "bytes_in_flight+throughput"
    assert table["runs"].eq(1).all() and table["low"].isna().all()  # one run says nothing about others


def test_an_unknown_label_asks(run, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("dport,cca\n5001,cubik\n")
    status, out, err = run("dataset", "add", tmp_path / "mine", THREE, "--labels", labels)
    assert status == 0 and "cubik" in out
    assert err == "cct: labels: 'cubik' is a new congestion control; did you mean 'cubic'?\n"


def test_missing_training_packages_are_reported_first(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, _, err = run("train", "nowhere", "-o", tmp_path / "model")
    assert status == 1 and "pip install 'cctoolkit[train]'" in err


def test_a_pipe_cannot_give_slots_of_flows_that_are_known(seer: Path) -> None:
    with pytest.raises(ParameterError, match="cannot be read a second time"):
        classify_flows("-", model=seer, flows=cct.read_capture(THREE).flows)
