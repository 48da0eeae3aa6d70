"""The command line as typed: what it prints, writes and returns."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dpkt
import pandas as pd
import pytest
from made_captures import ethernet, ipv4, pcap, udp
from tshark import ask

import cctoolkit as cct
from cctoolkit import cli, schema

TRACES = Path(__file__).parents[1] / "traces"
MIXED = TRACES / "mixed.ingress.pcap.gz"
MIXED_EGRESS = TRACES / "mixed.egress.pcap.gz"
RENO = TRACES / "reno.ingress.pcap.gz"


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


@pytest.fixture(scope="module")
def mixed() -> cct.Capture:
    return cct.read_capture(MIXED)


def test_leaving_takes_no_time() -> None:
    """Nothing is left for the collection with which Python ends, which would look at all that libraries made."""
    code = (
        "import atexit, gc, sys; atexit.register(lambda: print(len(gc.get_objects()), gc.get_freeze_count()))\n"
        "from cctoolkit.cli import main; sys.argv = ['cct', '--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left, frozen = map(int, done.stdout.splitlines()[-1].split())
    assert left < 1000 < frozen


@pytest.mark.slow
def test_leaving_after_training_says_nothing() -> None:
    """What torch's optimisers import would call everything a leak that is not collected at the end."""
    pytest.importorskip("triton", reason="torch comes without triton")
    code = (
        "import sys, torch._dynamo\nfrom cctoolkit.cli import main; sys.argv = ['cct', '--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_help_has_an_example_for_every_command(run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for command in ("info", "flows", "rtt", "slots", "report", "filter"):
        assert command in out
        status, text, _ = run(command, "--help")
        assert status == 0
        assert f"cct {command}" in text.split("Example", 1)[1].replace("\n", " ")
    for command in (("fetch", "mawi"), ("synth", "mawi")):
        status, text, _ = run(*command, "--help")
        assert status == 0
        assert "Example" in text
    assert run("--version")[1] == f"cctoolkit {cct.__version__}\n"


def test_the_package_can_be_run() -> None:
    command = [sys.executable, "-m", "cctoolkit", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"cctoolkit {cct.__version__}\n"


def test_info_says_what_is_there(run, mixed: cct.Capture) -> None:
    status, out, err = run("info", MIXED)
    assert (status, err) == (0, "")
    assert f"{len(mixed):,}" in out
    largest = mixed.flows.assign(size=lambda f: f.bytes_fwd + f.bytes_rev).nlargest(1, "size").iloc[0]
    assert f"{largest.src}" in out


def test_flows_as_table_csv_jsonl_and_parquet(run, mixed: cct.Capture, tmp_path: Path) -> None:
    status, out, _ = run("flows", MIXED, "--top", 3)
    assert status == 0
    assert f"3 of {len(mixed.flows)} flows" in out

    status, out, _ = run("flows", MIXED, "--format", "csv", "--sort", "start")
    table = pd.read_csv(io.StringIO(out))
    assert list(table["flow_id"]) == list(mixed.flows["flow_id"])
    assert list(table["bytes_fwd"]) == list(mixed.flows["bytes_fwd"])
    assert table["first_ts_ns"].is_monotonic_increasing

    status, out, _ = run("flows", MIXED, "-f", "jsonl", "--top", 2)
    rows = [json.loads(line) for line in out.splitlines()]
    size = mixed.flows["bytes_fwd"] + mixed.flows["bytes_rev"]
    assert [row["flow_id"] for row in rows] == list(mixed.flows.loc[size.nlargest(2).index, "flow_id"])

    path = tmp_path / "flows.parquet"
    assert run("flows", MIXED, "-o", path, "--sort", "start")[0] == 0
    table, provenance = schema.read_parquet(path, "flows")
    pd.testing.assert_frame_equal(
        table[list(schema.FLOWS)].reset_index(drop=True),
        mixed.flows,
        check_dtype=False,
        check_categorical=False,
    )
    assert provenance["version"] == cct.__version__


def test_selections_work_everywhere(run, mixed: cct.Capture, tmp_path: Path) -> None:
    expected = mixed.select(protocol="udp")
    assert 0 < len(expected) < len(mixed)
    _, out, _ = run("flows", MIXED, "--protocol", "udp", "-f", "csv")
    table = pd.read_csv(io.StringIO(out))
    assert set(table["protocol"]) == {17}
    assert table[["packets_fwd", "packets_rev"]].to_numpy().sum() == len(expected)

    host = mixed.flows["src"].iloc[0]
    out_file = tmp_path / "one.pcapng.zst"
    status, out, err = run("filter", MIXED, out_file, "--host", host, "--start", 1, "--stop", 4)
    assert (status, err) == (0, "")
    again = cct.read_capture(out_file)
    selected = mixed.select(host=host, start_s=1, stop_s=4)
    assert f"wrote {len(selected):,} packets" in out
    for name in ("ts_ns", "seq", "ack", "payload_bytes", "wire_bytes", "tsval", "ttl"):
        assert (again.columns[name] == selected.columns[name]).all(), name

    flow = int(mixed.flows["flow_id"].iloc[2])
    _, out, _ = run("rtt", MIXED, "--flow", flow, "--samples", "-f", "csv")
    samples = pd.read_csv(io.StringIO(out))
    whole = cct.rtt_samples(mixed)
    assert list(samples["rtt_ns"]) == list(whole.loc[whole["flow_id"] == flow, "rtt_ns"])


def test_rtt_methods(run, mixed: cct.Capture, tmp_path: Path) -> None:
    for method in ("seq_ack", "data_plane", "handshake", "timestamps"):
        status, out, _ = run("rtt", MIXED, "--method", method, "-f", "csv")
        assert status == 0
        table = pd.read_csv(io.StringIO(out))
        assert list(table["samples"]) == list(cct.rtt_summary(cct.rtt_samples(mixed, method))["samples"])
    path = tmp_path / "rtt.parquet"
    assert run("rtt", MIXED, "--samples", "-o", path)[0] == 0
    assert len(schema.read_parquet(path, "rtt_samples")[0]) == len(cct.rtt_samples(mixed))
    status, _, err = run("rtt", MIXED, "-o", path)
    assert status == 1
    assert "--samples" in err


def test_slots_of_two_taps(run, mixed: cct.Capture, tmp_path: Path) -> None:
    path = tmp_path / "slots.parquet"
    status, _, err = run("slots", MIXED, MIXED_EGRESS, "--slot-ms", 10, "--flow", 0, "-o", path)
    assert (status, err) == (0, "")
    table, _ = schema.read_parquet(path, "slots")
    expected = cct.compute_slots(mixed, cct.read_capture(MIXED_EGRESS), slot_ms=10, flow_ids=0)
    pd.testing.assert_frame_equal(table, expected)
    assert run("slots", MIXED, "--sampling", "sometimes")[0] == 1


@pytest.mark.parametrize("command", [("rtt",), ("slots",), ("classify", "--min-bytes", 10_000)])
def test_what_finds_nothing_names_tunnels(run, tmp_path: Path, command: tuple[object, ...]) -> None:
    """Flows in VXLAN: nothing outside, and what to type for what is inside."""
    vxlan = bytes([8]) + bytes(7)
    with gzip.open(RENO) as file:
        frames = [
            (round(float(ts) * 1e9), ethernet(0x0800, ipv4(17, udp(50_000, 4789, vxlan + frame))))
            for ts, frame in itertools.islice(dpkt.pcap.Reader(file), 2000)
        ]
    path = tmp_path / "vxlan.pcap"
    path.write_bytes(pcap((ts_ns, frame, len(frame)) for ts_ns, frame in frames))
    name, *options = command
    status, out, err = run(name, path, *options)
    assert (status, out) == (1, "")
    assert err.endswith("try --tunnel inner\n") and err.count("\n") == 1
    assert run(name, path, *options, "--tunnel", "inner")[0] == 0
    assert "tunnel" not in run(name, RENO, *options, "--host", "192.0.2.1")[2]  # there is none


def test_report_is_written(run, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    status, out, err = run("report", RENO, "-o", path)
    assert (status, err) == (0, "")
    assert out == f"wrote {path}\n"
    assert path.stat().st_size > 1_000_000  # plotly is inside


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"this is a text file, not a capture at all", "expected a pcap or pcapng header"),
        (b"\x1f\x8b\x08\x00broken", "gz data is damaged"),
    ],
)
@pytest.mark.parametrize("command", ["info", "flows", "rtt", "slots", "report", "filter"])
def test_what_is_no_capture_gives_one_line(
    run, tmp_path: Path, command: str, content: bytes, message: str
) -> None:
    path = tmp_path / "bad.pcap"
    path.write_bytes(content)
    rest = (
        [tmp_path / "out.pcap"]
        if command == "filter"
        else ["-o", tmp_path / "out.html"]
        if command == "report"
        else []
    )
    status, out, err = run(command, path, *rest)
    assert status == 1
    assert out == ""
    assert err.startswith(f"cct: {path}: byte 0: ")
    assert message in err
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.pcap"]


def test_other_bad_input(run, tmp_path: Path) -> None:
    for arguments, text in (
        (("info", tmp_path / "nowhere.pcap"), "No such file"),
        (("info", tmp_path), "directory"),
        (("flows", RENO, "--host", "not-an-address"), "not an IP address"),
        (("flows", RENO, "--protocol", "quic"), "protocol"),
        (("flows", RENO, "-o", tmp_path / "flows.xlsx"), ".parquet"),
        (("flows", RENO, "-f", "parquet"), "needs a file"),
        (("fetch", "mawi", "yesterday"), "yesterday"),
        (("filter", RENO, RENO), "is a file that this command reads"),
        (("flows", RENO, "-f", "csv", "-o", RENO), "is a file that this command reads"),
    ):
        status, out, err = run(*arguments)
        assert status == 1, arguments
        assert text in err
        assert err.startswith("cct: ")
        assert err.count("\n") == 1
        assert out == ""
    for arguments in (
        ("flows",),
        ("flows", RENO, "--top", 0),
        ("nothing",),
        ("rtt", RENO, "--method", "guess"),
    ):
        assert run(*arguments)[0] == 2, arguments


def test_a_dash_is_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """For every command that writes one file, also if a file with this name is there."""
    monkeypatch.chdir(tmp_path)
    Path("-").write_bytes(b"mine")

    def written(*arguments: object) -> bytes:
        monkeypatch.setattr(sys, "argv", ["cct", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capfdbinary.readouterr()
        assert not stop.value.code, err
        return out

    assert written("flows", RENO, "-o", "-", "-f", "csv") == written("flows", RENO, "-f", "csv")
    assert written("flows", RENO, "-o", "-") == written("flows", RENO)
    parquet = written("flows", RENO, "-o", "-", "-f", "parquet")
    assert len(pd.read_parquet(io.BytesIO(parquet))) == len(cct.read_capture(RENO).flows)
    assert written("report", RENO, "--model", "none", "-o", "-").startswith(b"<!DOCTYPE html>")
    capture = written("filter", RENO, "-", "--stop", 1)
    written("filter", RENO, "file.pcap", "--stop", 1)
    assert capture == Path("file.pcap").read_bytes()
    assert Path("-").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ("batch", RENO, "-o", "-"),
        ("live", "--from-capture", RENO, "-o", "-"),
        ("train", ".", "-o", "-"),
        ("add-cca", "mine.py", "-o", "-"),
        ("dataset", "add", "-", RENO),
        ("dataset", "build", "paper", "-o", "-"),
        ("benchmark", "cca", "-o", "-"),
        ("experiment", "codel", "-o", "-"),
        ("separate", RENO, "--router", "linux", "--interface", "eth0", "--rules", "-"),
        ("simulate", "run.toml", "-o", "-"),
        ("simulate", "run.toml", "--pcap", "-"),
        ("testbed", "run", "run.toml", "-o", "-"),
        ("testbed", "sweep", "run.toml", "-o", "-"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_no_folder_is_called_dash(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50),
        flows=[cct.Flow("reno", rtt_ms=20)],
        duration_s=1,
    )
    Path("run.toml").write_text(scenario.to_toml(), encoding="utf-8")
    status, out, err = run(*arguments)
    assert (status, out) == (1, "") and "standard output" in err and err.count("\n") == 1
    assert not Path("-").exists()


@pytest.mark.slow
def test_a_truncated_capture_warns_once_and_goes_on(tmp_path: Path) -> None:
    plain = tmp_path / "cut.pcap"
    cct.filter_capture(RENO, plain, cct.Selection(stop_s=1))
    plain.write_bytes(plain.read_bytes()[:-7])
    # in a process of its own: pytest turns warnings into something else
    done = subprocess.run(
        [sys.executable, "-m", "cctoolkit.cli", "flows", str(plain), "-f", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "flow_id" in done.stdout
    assert done.stderr.startswith(f"cct: warning: {plain}: byte ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_standard_input_and_a_closed_pipe() -> None:
    cct_command = [sys.executable, "-m", "cctoolkit.cli"]
    with RENO.open("rb") as file:
        done = subprocess.run(
            [*cct_command, "flows", "-", "-f", "csv"],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("flow_id,")
    process = subprocess.Popen(
        [*cct_command, "rtt", str(RENO), "--samples", "-f", "csv"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(60)
    assert process.stderr is not None
    assert process.stderr.read() == b""  # the reader has seen enough: nothing to complain about
    process.stderr.close()


@pytest.mark.slow
def test_filter_reads_a_pipe(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "cctoolkit.cli",
        "filter",
        "-",
        str(tmp_path / "piped.pcap"),
        "--stop",
        "1",
    ]
    done = subprocess.run(command, input=RENO.read_bytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    there = cct.filter_capture(RENO, tmp_path / "file.pcap", cct.Selection(stop_s=1))
    assert there > 0
    assert (tmp_path / "piped.pcap").read_bytes() == (tmp_path / "file.pcap").read_bytes()


@pytest.mark.slow
def test_closed_streams_are_no_mistake_of_ours() -> None:
    command = f"exec {sys.executable} -m cctoolkit.cli"
    done = subprocess.run(["sh", "-c", f"{command} info - <&-"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "cct: <stdin>: standard input is closed")
    done = subprocess.run(
        ["sh", "-c", f"{command} flows {RENO} >&-"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "big.pcap.gz"
    command = [sys.executable, "-m", "cctoolkit.cli", "synth", "mawi", str(target), "-n", "50000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not any(p.stat().st_size > 0 for p in tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT) and err == b""
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_in_a_finalizer_is_not_lost() -> None:
    program = """
import signal, sys, time
from cctoolkit import cli

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def app(**_):
    Finalized()
    time.sleep(30)

cli.app = app
try:
    cli.main()
except KeyboardInterrupt:
    sys.exit(130)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_filtered_packets_are_the_originals_byte_for_byte(run, tmp_path: Path) -> None:
    out = tmp_path / "filtered.pcap"
    assert run("filter", MIXED, out, "--protocol", "icmp")[0] == 0

    def hexdump(path: Path, *options: str) -> str:
        fields = ("frame.time_epoch", "frame.len", "icmp.checksum", "icmp.seq", "ip.id")
        return ask(path, "-T", "fields", *(word for field in fields for word in ("-e", field)), *options)

    assert hexdump(out) == hexdump(MIXED, "-Y", "icmp")
    assert hexdump(out).count("\n") > 3


def test_times_count_from_the_first_packet_of_the_file(run, mixed: cct.Capture, tmp_path: Path) -> None:
    """Not from the first selected one, nor from where its slot begins, which may be nearly a slot earlier."""
    origin_ns = int(mixed.columns["ts_ns"][0])
    _, out, _ = run("rtt", MIXED, "--samples", "--start", 5, "--flow", 15)
    assert re.search(r"\b5\.\d{6}\b", out) and not re.search(r"\b0\.0\d{5}\b", out)

    slot_ns, wanted = 10**9, tmp_path / "wanted.parquet"
    assert origin_ns % slot_ns > 10**6
    whole = cct.compute_slots(mixed, slot_ms=1000)
    begin_s = (whole["slot"] * slot_ns + whole.attrs["start_ns"] - origin_ns) / 1e9
    for start, stop, expected in (
        (0, 100, whole),
        (0, 1, whole[begin_s < 1]),
        (2, 4, whole[(begin_s >= 2) & (begin_s < 4)]),
    ):
        assert run("slots", MIXED, "--slot-ms", 1000, "--start", start, "--stop", stop, "-o", wanted)[0] == 0
        table, _ = schema.read_parquet(wanted, "slots")
        pd.testing.assert_frame_equal(table, expected.reset_index(drop=True), check_dtype=False)
