"""What a terminal shows: tables that fit it, what is said to whom waits, how an empty result ends."""

from __future__ import annotations

import ast
import io
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from tools import examples

import cctoolkit as cct
from cctoolkit import cli, schema
from cctoolkit._support.terminal import Listing, listing, show

TRACES = Path(__file__).parents[1] / "traces"
MIXED = TRACES / "mixed.ingress.pcap.gz"
MIXED_EGRESS = TRACES / "mixed.egress.pcap.gz"
CCT = [sys.executable, "-m", "cctoolkit.cli"]


def printed(table: Listing, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False, markup=False).print(table)
    return out.getvalue().splitlines()


def on_terminal(
    columns: int, *arguments: object, environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """Exit status and screen of a command on a terminal of this width, without colours."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*CCT, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm"} | (environment or {}),
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the command has ended
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return process.wait(60), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Call ``cct`` in this process: (exit status, standard output, standard error)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cct", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capfd.readouterr()

    return call


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=5, max_size=5), min_size=1, max_size=4),
    st.integers(20, 120),
)
def test_numbers_are_whole_or_their_column_is_gone(numbers: list[list[int]], width: int) -> None:
    header = ["flow", "bytes sent", "RTT min", "packets", "retransmitted segments"]
    rows = [[f"{n:,}" for n in row] for row in numbers]
    table = Listing(header, rows, keep=("RTT min", "bytes sent"))
    lines = printed(table, width)
    assert all(cell_len(line) <= width for line in lines)
    text = " ".join(" ".join(lines).split())
    gone = re.search(r"shows \d+ more columns?: (.*)$", text)
    hidden = gone[1].split(", ") if gone else []
    assert "flow" not in hidden
    # what leaves first: what is not to be kept, from the right; then the least important that is
    assert hidden == [name for name in header if name in hidden]
    order = ["retransmitted segments", "packets", "bytes sent", "RTT min"]
    assert set(hidden) == set(order[: len(hidden)])
    for row in rows:
        shown = [cell for name, cell in zip(header, row, strict=True) if name not in hidden]
        assert any(line.split() == shown for line in lines)


def test_a_column_without_a_value_leaves_first() -> None:
    table = pd.DataFrame({"flow": [1], "nothing": pd.array([None], "Int64"), "payload_bytes": [123456789]})
    assert printed(listing(table), 30)[-1].split() == ["1", "123456789"]
    lines = printed(listing(table), 15)
    assert lines[-1].endswith("nothing") or "nothing" in " ".join(lines)
    assert "123456789" in " ".join(lines)


def test_texts_wrap_between_words() -> None:
    table = Listing(["flow", "bytes"], [["10.0.0.1:1 → 10.0.0.2:2", "1,234"]], left=("flow",), wrap=("flow",))
    assert [line.split() for line in printed(table, 22)[1:]] == [["10.0.0.1:1", "→", "1,234"], ["10.0.0.2:2"]]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_every_table_fits_the_terminal(run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    cap = cct.read_capture(MIXED)
    largest = cap.flows.assign(size=lambda f: f.bytes_fwd + f.bytes_rev).nlargest(1, "size").iloc[0]
    packets = f"{largest.packets_fwd + largest.packets_rev:,}"
    end = f"[{largest.src}]:{largest.sport}"
    for arguments, message in {
        ("info", MIXED): end,
        ("flows", MIXED): packets if columns > 120 else largest.src,
        ("rtt", MIXED, "--port", 5001): f"{end} → ",
        ("rtt", MIXED, "--stop", 0.1, "--samples"): " ← ",
        ("slots", MIXED, MIXED_EGRESS, "--flow", 0, "--stop", 0.1): "cbiq",
        ("separate", MIXED, "-k", 2, "--long", 100_000): "buffer",
    }.items():
        status, shown, _ = run(*arguments)
        assert status == 0, (arguments, shown)
        assert message in shown, (arguments, shown)
        assert "…" not in shown.replace("Wi-Fi, …)", "").replace("egress=…", ""), arguments
        for line in shown.splitlines():
            assert cell_len(line) <= columns, (arguments, line)


@pytest.mark.slow
def test_a_real_terminal_has_its_width() -> None:
    status, shown = on_terminal(80, "flows", MIXED, "--top", 3)
    assert status == 0 and "more column" in shown
    assert all(cell_len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("sort", "column"), [("retransmits",) * 2, ("packets",) * 2, ("duration", "seconds")]
)
def test_the_column_that_a_table_is_sorted_by_is_there(
    run, monkeypatch: pytest.MonkeyPatch, sort: str, column: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, shown, _ = run("flows", MIXED, "--top", 3, "--sort", sort)
    assert "more column" in shown
    assert column in shown.splitlines()[0].split()


def test_a_flow_has_the_same_rate_everywhere(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the direction with more data."""
    monkeypatch.setenv("COLUMNS", "200")

    def rates(command: str) -> list[str]:
        shown = run(command, MIXED, "--top", 10)[1]
        return re.findall(r"[\d.]+ [kM]?bit/s(?! on average)", shown)

    assert len(rates("flows")) == 10 and rates("flows") == rates("info")


@pytest.mark.slow
def test_a_pipe_gets_all_columns() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [*CCT, "slots", MIXED, MIXED_EGRESS, "--flow", "0", "--stop", "0.1"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "more column" not in done.stdout
    assert len(done.stdout.splitlines()[-1].split()) > 10


@pytest.mark.slow
def test_compiling_is_announced_once_and_only_on_a_terminal(tmp_path: Path) -> None:
    kernels, fewer = tmp_path / "kernels", tmp_path / "fewer"
    cold = {"NUMBA_CACHE_DIR": str(kernels)}
    capture = tmp_path / "first.pcap"
    cct.filter_capture(MIXED, capture, cct.Selection(stop_s=0.1))
    status, shown = on_terminal(80, "rtt", capture, environment=cold)
    assert status == 0 and shown.count("compiling kernels") == 1
    assert "compiling" not in on_terminal(80, "rtt", capture, environment=cold)[1]
    shutil.copytree(kernels, fewer, ignore=shutil.ignore_patterns("cctoolkit.analysis.rtt*"))
    made = {path.name for path in kernels.iterdir()}
    assert made > {path.name for path in fewer.iterdir()}
    done = subprocess.run(
        [*CCT, "rtt", capture],
        env=os.environ | {"NUMBA_CACHE_DIR": str(fewer)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert made == {path.name for path in fewer.iterdir()}


@pytest.mark.parametrize(
    "command", ["info", "flows", "rtt", "slots", "classify", "report", "separate", "filter"]
)
def test_nothing_found_is_one_line_and_status_1(run, tmp_path: Path, command: str) -> None:
    new = {"filter": [tmp_path / "out.pcap"], "report": ["-o", tmp_path / "page.html"]}.get(command, [])
    status, out, err = run(command, MIXED, *new, "--host", "192.0.2.1")
    assert (status, out) == (1, "")
    assert err.startswith(f"cct: {MIXED}: no ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_filter_that_finds_nothing_keeps_the_file_that_is_there(run, tmp_path: Path) -> None:
    there = tmp_path / "there.pcap"
    there.write_text("kept")
    assert run("filter", MIXED, there, "--port", 9)[0] == 1
    assert there.read_text() == "kept"


def test_empty_files_are_valid(run, tmp_path: Path) -> None:
    for command, table in (("flows", "flows"), ("slots", "slots"), ("classify", "ccas")):
        for suffix in ("csv", "jsonl", "parquet"):
            path = tmp_path / f"{command}.{suffix}"
            status, out, err = run(command, MIXED, "--port", 9, "-o", path)
            assert (status, out, err.count("\n")) == (1, "", 1)
        assert len(schema.read_parquet(path, table)[0]) == 0
        assert list(pd.read_csv(tmp_path / f"{command}.csv")) == list(schema.read_parquet(path, table)[0])
        assert (tmp_path / f"{command}.jsonl").read_text() == ""


def test_slots_of_a_selection(run) -> None:
    cap = cct.read_capture(MIXED)
    status, out, _ = run("slots", MIXED, "--slot-ms", 100, "--protocol", "tcp", "--port", 5001, "--start", 1,
                         "--stop", 2, "-f", "csv")  # fmt: skip
    table = pd.read_csv(io.StringIO(out))
    wanted = cap.flows[(cap.flows.protocol == 6) & (cap.flows[["sport", "dport"]] == 5001).any(axis=1)]
    expected = cct.compute_slots(cap, slot_ms=100, flow_ids=wanted.flow_id)
    begins_ns = expected.slot * 100_000_000 + expected.attrs["start_ns"] - cap.columns["ts_ns"][0]
    expected = expected[begins_ns.between(10**9, 2 * 10**9, inclusive="left")]
    assert status == 0 and len(expected) > 10
    for name in ("flow_id", "slot", "in_bytes", "bytes_in_flight"):
        assert list(table[name]) == list(expected[name])


def test_rtt_names_ends_and_way(run) -> None:
    status, out, _ = run("rtt", MIXED, "--protocol", "tcp")
    assert status == 0
    flows = cct.read_capture(MIXED).flows.set_index("flow_id")
    ways = re.findall(r"^ *(\d+)  (\S+) ([→←]) (\S+) ", out, re.M)
    expected = cct.rtt_summary(cct.rtt_samples(cct.read_capture(MIXED))).head(100)
    assert [(int(flow), "→←".index(arrow)) for flow, _, arrow, _ in ways] == [
        (row.flow_id, row.direction) for row in expected.itertuples()
    ]
    for flow, src, _, dst in ways:
        of = flows.loc[int(flow)]
        for text, host, port in ((src, of.src, of.sport), (dst, of.dst, of.dport)):
            assert text in (f"{host}:{port}", f"[{host}]:{port}")


#: Scripts of maintainers and of other machines, which have no command line of ours.
NOT_THE_PACKAGE = {"in_mininet.py"}


@pytest.mark.slow
def test_there_is_one_door() -> None:
    """Nothing prints but the functions that escape control characters."""
    doors = {"terminal.py", "waiting.py"}
    found = []
    for path in (Path(cct.__file__).parent).rglob("*.py"):
        if path.name in NOT_THE_PACKAGE or (path.name in doors and path.parent.name == "_support"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "print", "typer.echo", "click.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write", "tqdm",
                "tqdm.write", "tqdm.tqdm", "tqdm.tqdm.write", "Console", "Live",
            ):  # fmt: skip
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node.func)}")
    assert found == []


@pytest.mark.parametrize("tty", [False, True])
def test_a_table_with_hostile_cells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tty: bool
) -> None:
    """What was not escaped before is escaped on its way out; on a terminal our own colours are the only sequences."""
    hostile = "a\x1b]0;title\x07b\x1b[2J\u202ec\x9b"
    monkeypatch.setenv("FORCE_COLOR", "1") if tty else monkeypatch.setenv("NO_COLOR", "1")
    table = Table(hostile)
    table.add_row(Text(hostile, style="bold"))
    for what in (hostile, Text(hostile), table, Panel(hostile)):
        show(what)
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(line.isprintable() for line in out.split("\n")), ascii(out)
    assert "x1b]0;title" in out
