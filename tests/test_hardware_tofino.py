"""The Tofino versions as the compiler and the assembler take them, each built once for each chip.

It takes minutes: some programs fill a Tofino 1, and the compiler tries long.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fake_bfrt
import pytest
from fake_bfrt import Device

from cctoolkit.aqm.codel_p4 import math_unit
from cctoolkit.errors import TestbedUnavailableError
from hardware import build
from hardware.common.command import run
from hardware.constants import Constant
from hardware.programs.codel import constants as codel

pytestmark = [pytest.mark.p4, pytest.mark.slow]
ROOT = Path(__file__).parents[1]


class Built(NamedTuple):
    program: str
    target: str
    folder: Path
    resources: build.Resources


@pytest.fixture(
    scope="module",
    params=[(p, t) for p in build.PROGRAMS for t in build.TOFINOS],
    ids="-".join,
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    program, target = request.param
    folder = tmp_path_factory.mktemp(f"{program}-{target}")
    try:
        yield Built(program, target, folder, build.tofino(program, target, folder))
    except TestbedUnavailableError as err:
        pytest.skip(str(err))


def test_it_fits_and_the_readme_says_how(built: Built) -> None:
    """Compiled and assembled without a warning, each register in one stage."""
    found = built.resources
    assert 0 < found.stages <= found.of["stages"]
    assert found.registers and all(len(stages) == 1 for stages in found.registers.values())
    readme = (ROOT / "hardware" / "programs" / built.program / "README.md").read_text(encoding="utf-8")
    column = list(build.TOFINOS).index(built.target) + 1
    for line in build.resource_table({built.target: found}).splitlines()[2:]:
        name, value = (x.strip() for x in line.strip("|").split("|"))
        (row,) = [x for x in readme.splitlines() if x.startswith(f"| {name} |")]
        assert [x.strip() for x in row.split("|")][1 + column] == value, name


WIRE = ["--wire", "0:1", "--wire", "1:0"]
QUEUE = ["--rate-mbps", "100", "--buffer-packets", "100"]
CONTROL = {
    "abc": [*WIRE, "--link", "1:100:100", "--aggregate", "10.0.0.0/24=5000", "--domain", "1"],
    "cbiq": [*WIRE, *QUEUE, "--flow", "10.0.0.1:5001-10.0.1.1:40000", "--flow", "[fd00::1]:1-[fd00::2]:2"],
    "codel": [*WIRE, *QUEUE, "--queues", "8"],
    "dualpi2": [*WIRE, *QUEUE],
    "ired": [*WIRE, *QUEUE, "--queues", "2"],
    "pi2": [*WIRE, *QUEUE],
    "rtt_monitor": ["--before", "0", "--behind", "1", "--rate-mbps", "100", *WIRE],
}


def test_its_control_plane_knows_its_names(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs for two seconds on what the compiler says that the program has."""
    schema = json.loads((built.folder / "bfrt.json").read_text())
    family = {"tofino": "tf1", "tofino2": "tf2"}[built.target]
    device = Device(built.program, schema["tables"], schema.get("learn_filters", []), family=family, pipes=4)
    module = importlib.import_module(f"hardware.programs.{built.program}.control")
    with fake_bfrt.serving(device) as server, pytest.raises(SystemExit) as status:
        where = ["--bfrt", f"127.0.0.1:{server.port}", "--duration-s", "2"]
        run(built.program, module.control, args=[*where, *CONTROL[built.program]])
    assert not status.value.code, capsys.readouterr().err
    (wire_table,) = [name for name in device.entries if name.endswith(".wire")]
    assert len(device.entries[wire_table]) >= 2
    assert {"insert", "read"} <= {what for what, _ in device.log}


@pytest.mark.parametrize("built", [("codel", t) for t in build.TOFINOS], indirect=True, ids="-".join)
def test_codels_law_is_one_stateful_alu(built: Built) -> None:
    """Figure 4's second ALU: pair, math unit, comparison; and why the next drop is not at now + gap."""
    (interval,) = (c.value for c in codel.CONSTANTS if c.name == "INTERVAL_NS" and isinstance(c, Constant))
    assert sorted(name.rsplit(".", 1)[-1] for name in built.resources.registers) == [
        "drop_next",
        "dropping",
        "signals",
    ]
    assert built.resources.stateful_alus == 3  # one each
    assembly = (built.folder / "pipe" / "codel.bfa").read_text()
    (alu,) = re.findall(r"  stateful \S+drop_next:\n(?:    .*\n)+", assembly)
    for line in (
        "format: { lo: 32, hi:32 }",
        f"add lo, phv_lo, {interval}",
        "alu_a hi, 2",
        "phv_lo, -lo",
        f"scale: {math_unit(interval)[1]}",
        f"data: [ {str(math_unit(interval)[0].tolist())[1:-1]} ]",
    ):
        assert line in alu, line
    # unsigned operands, a result with a sign: the wrap is not seen
    assert re.findall(r"- (geq\S*) ", alu) == ["geq.uus"]
    # the root is of the count as it was read
    ((where, gap),) = re.findall(r"- add (\S+), lo, (.*math_table.*)", alu)
    assert gap == "lo, math_table(hi)"
    # and with the time of the packet in the sum there is no such instruction
    other = built.folder / "now.bfa"
    other.write_text(assembly.replace(f"add {where}, lo, {gap}", f"add {where}, lo, phv_lo, math_table(hi)"))
    command = ["bfas", "--target", built.target, "--no-warn", "-o", str(built.folder / "now"), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode and "Can't reference math table in first operand" in done.stderr + done.stdout
