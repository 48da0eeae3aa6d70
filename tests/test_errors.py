"""Errors are one line in Jupyter, and ordinary exceptions everywhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cctoolkit.errors import CaptureFormatError, ParameterError

FAILING = """
import cctoolkit as cct
from cctoolkit.aqm import Aqm, PASS

class Mistaken(Aqm):
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return PASS if packet.enqueue_ns else PASS
"""
#: A wrong argument, and a mistake in code of one's own, which is found by the compiler.
MISTAKES = {
    "ParameterError": "cct.Bottleneck(rate_mbps=-1)",
    "AlgorithmError": "cct.simulate(cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=9, "
    "aqm=Mistaken()), flows=[cct.Flow('reno', rtt_ms=9)], duration_s=1))",
}


@pytest.mark.slow
def test_a_notebook_shows_one_red_line_and_the_rest_on_request() -> None:
    pytest.importorskip("IPython", reason="the extra `notebooks` is not installed")
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.colors = "nocolor"
assert shell.run_cell({FAILING!r}).success
for mistake in {list(MISTAKES.values())!r}:
    assert not shell.run_cell(mistake).success
    print("=== %tb")
    shell.run_line_magic("tb", "")
    print("=== next")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    *shown, rest = done.stdout.split("=== next\n")
    assert rest == ""
    for name, text in zip(MISTAKES, shown, strict=True):
        short, whole = text.split("=== %tb\n")
        assert short.count("\n") == 1
        assert short.startswith(f"\x1b[31m{name}: ")
        assert "Traceback (most recent call last)" in whole
        assert short.strip().removeprefix("\x1b[31m").removesuffix("\x1b[0m") in whole


def test_an_error_may_say_where_it_happened() -> None:
    one = ParameterError("k: must be positive").within("run 3")
    assert (type(one), str(one)) == (ParameterError, "run 3: k: must be positive")
    other = CaptureFormatError("a.pcap", 24, "expected a record").within("run 3")
    assert str(other) == "run 3: a.pcap: byte 24: expected a record"
    assert (other.offset, other.expected) == (24, "expected a record")


def test_python_shows_the_traceback() -> None:
    code = f"import cctoolkit as cct\n{MISTAKES['ParameterError']}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert "ParameterError: " in done.stderr
