"""``cct simulate``."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

import cctoolkit as cct
from cctoolkit.cli import app
from cctoolkit.errors import ParameterError

TOML = """
duration_s = 1

[bottleneck]
rate_mbps = 10
buffer_packets = 30
aqm = "codel"

[[flows]]
cca = "cubic"
name = "[bold]loud"

[[flows]]
cca = "reno"
rtt_ms = 50
bytes = 100_000
"""


def cct_simulate(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "pair.toml"
    path.write_text(TOML)
    return path


def test_prints_a_summary_and_saves(toml, tmp_path):
    done = cct_simulate(toml, "-o", tmp_path / "run", "--pcap", tmp_path / "pcap")
    assert done.exit_code == 0, done.output
    run = cct.simulate(cct.read_scenario(toml))
    for piece in ("10 Mbit/s", "codel; 30 packets", "[bold]loud", f"{run.summary()['utilisation']:.4g}"):
        assert piece in done.output
    saved = cct.load_run(tmp_path / "run")
    pd.testing.assert_frame_equal(saved.flows, run.flows)
    assert saved.name == "pair" and len(saved.ingress) == len(run.ingress)
    assert len(cct.load_run(tmp_path / "pcap").egress) == len(run.egress)


def test_without_recording(toml, tmp_path):
    assert cct_simulate(toml, "--no-record", "-o", tmp_path / "run").exit_code == 0
    saved = cct.load_run(tmp_path / "run")
    assert saved.ingress is None and len(saved.flow_series)
    again = cct_simulate(toml, "--no-record", "--pcap", tmp_path / "p")
    assert isinstance(again.exception, ParameterError)


def test_sweep(toml, tmp_path):
    toml.write_text(TOML + '[sweep]\nseed = [1, 2]\n"bottleneck.aqm" = ["codel", "tail_drop"]\n')
    done = cct_simulate(toml, "-o", tmp_path / "out.parquet", "--workers", 1)
    assert done.exit_code == 0, done.output
    assert "wrote 4 rows" in done.output
    table = pd.read_parquet(tmp_path / "out.parquet")
    assert table["bottleneck.aqm"].to_list() == ["codel", "tail_drop"] * 2
    assert isinstance(cct_simulate(toml).exception, ParameterError)  # where to?


@pytest.mark.slow
def test_bad_scenario_is_one_line(toml):
    toml.write_text(TOML.replace('"cubic"', '"qubic"'))
    done = subprocess.run(
        [sys.executable, "-m", "cctoolkit.cli", "simulate", str(toml)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"cct: {toml}: flows[0].cca: 'qubic' is unknown; expected one of ")
    assert done.stderr.count("\n") == 1
