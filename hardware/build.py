"""Compile the P4 programs, and say what they need of the chip.

::

    python -m hardware.build                              all programs, for all their targets
    python -m hardware.build codel --target tofino2 -o DIR    one, and what is made stays in DIR
    python -m hardware.build --write                      and put the numbers into the programs' READMEs

Compilers are looked for on PATH: ``p4c-bm2-ss`` for BMv2; for a Tofino ``p4c-barefoot`` and ``bfas`` of the open p4c. A
program that the Tofino compiler accepts may still not fit: the assembler says so, and it is always asked. Warnings are
errors. So are two things of which the compiler says nothing: a register that came to lie in two stages (on a Tofino 1
these would be two registers, each with a part of the truth), and a parser that lost its selects, as all do that the
open p4c compiles between its #5063 (February 2026) and the mending of `bind_use` in allocate_parser_match_register.cpp.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cctoolkit._support.atomic import replacing
from cctoolkit.errors import CCToolkitError, TestbedUnavailableError

HERE = Path(__file__).parent
PROGRAMS = ("abc", "cbiq", "codel", "dualpi2", "ired", "pi2", "rtt_monitor")
#: Names of architecture and chip.
TOFINOS = {"tofino": ("tna", 1), "tofino2": ("t2na", 2)}
TARGETS = ("bmv2", *TOFINOS)
#: Every warning is an error, but for names that a program leaves unused: shared headers have more than each needs.
_STRICT = ("--Wdisable=unused",)
#: Of a loop that the Tofino compiler itself adds, to read as much of a packet as the chip wants.
_OWN_WARNING = "warning: Parser state min_parse_depth_accept_loop"
_BEGIN, _END = "<!-- resources: python -m hardware.build --write -->", "<!-- resources end -->"


class BuildError(CCToolkitError):
    """The compiler or the assembler refused; the message is theirs."""


@dataclass(frozen=True)
class Resources:
    """What a program takes of a Tofino's pipe.

    Attributes
    ----------
    stages : int
        The longest way through the pipe.
    srams, map_rams, tcams : int
        Blocks, of all stages together.
    stateful_alus : int
    instructions : int
        Of the action units (VLIW).
    tables : int
        Logical tables.
    of : dict of str to int
        How many there are of each, by the same names.
    registers : dict of str to list of int
        The stages each register lies in.
    """

    stages: int
    srams: int
    map_rams: int
    tcams: int
    stateful_alus: int
    instructions: int
    tables: int
    of: dict[str, int]
    registers: dict[str, list[int]]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(_OWN_WARNING)]
    if done.returncode or any("warning:" in line for line in said):
        text = "\n".join(said).strip()
        raise BuildError(f"{Path(command[0]).name}: {text or f'status {done.returncode}'}")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise TestbedUnavailableError(f"{name} is not on PATH")
    return path


def bmv2(program: str | Path, folder: Path, *flags: str) -> Path:
    """Compile a program, or another P4 source, for BMv2; returns the JSON.

    Raises
    ------
    BuildError
        With the compiler's words; also for a warning.
    TestbedUnavailableError
        There is no compiler.
    """
    source = program if isinstance(program, Path) else HERE / "bmv2" / program / f"{program}.p4"
    out = folder / f"{source.stem}.json"
    _run(
        [
            _tool("p4c-bm2-ss"),
            "--std",
            "p4-16",
            *_STRICT,
            "-I",
            str(HERE),
            *flags,
            "-o",
            str(out),
            str(source),
        ]
    )
    return out


def tofino(program: str, target: str, folder: Path) -> Resources:
    """Compile and assemble a program for a Tofino; the folder then has what its switch loads.

    Parameters
    ----------
    program : str
    target : {"tofino", "tofino2"}
    folder : path

    Raises
    ------
    BuildError
        With the words of the compiler or the assembler; also for a warning, and for a register in two stages.
    TestbedUnavailableError
        There is no compiler or no assembler.
    """
    arch, number = TOFINOS[target]
    source = HERE / "tofino" / program / f"{program}.p4"
    compiler, assembler = _tool("p4c-barefoot"), _tool("bfas")
    command = [
        compiler,
        "--std",
        "p4-16",
        "--target",
        target,
        "--arch",
        arch,
        *_STRICT,
        "-g",
        "-I",
        str(HERE),
    ]
    command += [f"-D__TARGET_TOFINO__={number}", "--bf-rt-schema", str(folder / "bfrt.json")]
    _run([*command, "-o", str(folder), str(source)])
    pipe = folder / "pipe"
    state = lost_select((pipe / f"{program}.bfa").read_text())
    if state is not None:
        raise BuildError(
            f"{program}, {target}: parser state {state} takes its first branch always: "
            "this p4c-barefoot loses selects (p4c #5063)"
        )
    # as the SDE does it: what the assembler warns of is the compiler's text, not the program's
    _run([assembler, "--target", target, "--no-warn", "-o", str(pipe), str(pipe / f"{program}.bfa")])
    resources = _resources(json.loads((pipe / "logs" / "resources.json").read_text()))
    for name, stages in resources.registers.items():
        if len(stages) > 1:
            raise BuildError(
                f"{program}, {target}: register {name} lies in stages {stages}: these would be copies"
            )
    return resources


def lost_select(assembly: str) -> str | None:
    """The first state of a parser, in the compiler's output, with two branches for everything."""
    state, default = None, False
    in_parser = False
    for line in assembly.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 0 and line:
            in_parser = line.startswith("parser ")
        elif in_parser and indent == 4:
            state, default = line.strip().rstrip(":"), False
        elif in_parser and indent == 6 and line.strip() == "*:":
            if default:
                return state
            default = True
    return None


def _resources(report: dict[str, Any]) -> Resources:
    mau = report["resources"]["mau"]
    stages = mau["mau_stages"]

    def used(kind: str, items: str) -> int:
        return sum(len(stage[kind][items]) for stage in stages)

    def there(kind: str, *factors: str) -> int:
        product = 1
        for factor in factors:
            product *= stages[0][kind][factor]
        return product * mau["nStages"]

    registers: dict[str, set[int]] = {}
    for stage in stages:
        for alu in stage["meter_alus"]["meters"]:
            for usage in alu["usages"]:
                registers.setdefault(usage["used_by"], set()).add(stage["stage_number"])
    busy = [stage["stage_number"] for stage in stages if stage["logical_tables"]["ids"]]
    return Resources(
        stages=max(busy, default=-1) + 1,
        srams=used("rams", "srams"),
        map_rams=used("map_rams", "maprams"),
        tcams=used("tcams", "tcams"),
        stateful_alus=used("meter_alus", "meters"),
        instructions=used("vliw", "instructions"),
        tables=used("logical_tables", "ids"),
        of={
            "stages": mau["nStages"],
            "srams": there("rams", "nRows", "nColumns"),
            "map_rams": there("map_rams", "nRows", "nUnits"),
            "tcams": there("tcams", "nRows", "nColumns"),
            "stateful_alus": there("meter_alus", "nAlus"),
            "instructions": there("vliw", "size"),
            "tables": there("logical_tables", "size"),
        },
        registers={name: sorted(found) for name, found in sorted(registers.items())},
    )


_ROWS = {
    "stages": "stages",
    "tables": "logical tables",
    "srams": "SRAM blocks",
    "map_rams": "map RAMs",
    "tcams": "TCAM blocks",
    "stateful_alus": "stateful ALUs",
    "instructions": "action instructions",
}


def resource_table(of_target: dict[str, Resources]) -> str:
    """Markdown: what a program takes of each chip."""
    lines = ["| | " + " | ".join(f"Tofino {TOFINOS[target][1]}" for target in of_target) + " |"]
    lines.append("| --- |" + " --- |" * len(of_target))
    for name, words in _ROWS.items():
        cells = [f"{getattr(r, name)} of {r.of[name]}" for r in of_target.values()]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_readme(program: str, table: str) -> None:
    """Put the table between the marks in a program's README."""
    path = HERE / "tofino" / program / "README.md"
    text = path.read_text(encoding="utf-8")
    new, n = re.subn(
        f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", f"{_BEGIN}\n{table}\n{_END}", text, flags=re.DOTALL
    )
    if n != 1:
        raise BuildError(f"{path}: has no place for the table, {_BEGIN} and {_END}")
    with replacing(path) as tmp:
        tmp.write_text(new, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hardware.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}; all if none is named"
    )
    parser.add_argument("--target", choices=TARGETS, action="append", help="all if none is named")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="keep what is made, in DIR/TARGET/PROGRAM"
    )
    parser.add_argument("--write", action="store_true", help="write the programs' READMEs")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.programs) - set(PROGRAMS))
    if unknown:
        parser.error(f"{unknown[0]}: is none of {', '.join(PROGRAMS)}")
    targets = args.target or TARGETS
    if args.write and not set(TOFINOS) <= set(targets):
        parser.error("--write needs all targets")
    failed = 0
    for program in args.programs or PROGRAMS:
        found = {}
        for target in targets:
            try:
                with tempfile.TemporaryDirectory() as temporary:
                    folder = args.output / target / program if args.output else Path(temporary)
                    folder.mkdir(parents=True, exist_ok=True)
                    if target == "bmv2":
                        bmv2(program, folder)
                    else:
                        found[target] = tofino(program, target, folder)
                print(f"{program} {target}: built")
            except CCToolkitError as err:
                print(f"{program} {target}: {err}", file=sys.stderr)
                failed = 1
        if found:
            print(resource_table(found))
        if args.write and set(found) == set(TOFINOS):
            write_readme(program, resource_table(found))
    return failed


if __name__ == "__main__":
    sys.exit(main())
