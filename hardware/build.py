"""Compile the P4 programs, and report the chip resources they use.

::

    python -m hardware.build                                  all programs, for targets with a compiler here
    python -m hardware.build codel --target tofino2 -o DIR    one program; keep the output in DIR
    python -m hardware.build --write                          also update the programs' READMEs

Compilers must be on PATH: ``p4c-bm2-ss`` for BMv2; ``p4c-barefoot`` and ``bfas`` of the open p4c for a
Tofino. A program that the Tofino compiler accepts may still not fit, so the assembler always runs too.
Warnings are errors. So are two faults that the compiler does not report: a register placed in two stages (on
a Tofino 1 these would be two registers, each with a part of the state), and a parser that lost its selects.
The latter affects everything that the open p4c compiles between its #5063 (February 2026) and #5753
(September 2026).
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

from .programs import PROGRAMS

HERE = Path(__file__).parent
#: Architecture and generation of each chip.
TOFINOS = {"tofino": ("tna", 1), "tofino2": ("t2na", 2)}
TARGETS = ("bmv2", *TOFINOS)
#: Every warning is an error, except for unused names: no program needs all of the shared headers.
_FLAGS = ("--Wdisable=unused",)
#: A Tofino 2 can pass parts of a packet around the pipe (CLOTs), if at least three bytes lie between two of
#: them. The open p4c leaves two between a TCP port and an urgent pointer; the chip's model stops there.
_TOFINO_FLAGS = {"tofino2": ("--no-clot",)}
#: About a loop that the Tofino compiler itself adds, to parse as many bytes as the chip requires.
_IGNORED_WARNING = "warning: Parser state min_parse_depth_accept_loop"
#: What each target needs on PATH.
TOOLS = {"bmv2": ("p4c-bm2-ss",)} | dict.fromkeys(TOFINOS, ("p4c-barefoot", "bfas"))
_BEGIN, _END = "<!-- resources: python -m hardware.build --write -->", "<!-- resources end -->"


class BuildError(CCToolkitError):
    """The compiler or the assembler failed; the message is its output."""


@dataclass(frozen=True)
class Resources:
    """The resources of a Tofino's pipe that a program uses.

    Attributes
    ----------
    stages : int
        Length of the longest path through the pipe.
    srams, map_rams, tcams : int
        Memory blocks, summed over all stages.
    stateful_alus : int
    instructions : int
        Action instructions (VLIW).
    tables : int
        Logical tables.
    of : dict of str to int
        What the chip has of each, by the same names.
    registers : dict of str to list of int
        The stages in which each register is placed.
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
    output = [
        line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(_IGNORED_WARNING)
    ]
    if done.returncode or any("warning:" in line for line in output):
        text = "\n".join(output).strip()
        raise BuildError(f"{Path(command[0]).name}: {text or f'exit status {done.returncode}'}")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise TestbedUnavailableError(f"{name} is not on PATH")
    return path


def bmv2(program: str | Path, folder: Path, *flags: str) -> Path:
    """Compile a program for BMv2.

    Parameters
    ----------
    program : str or path
        A program's name, or any P4 source.
    folder : path
        Where the output goes.
    *flags : str
        More compiler options.

    Returns
    -------
    path
        The JSON file for ``simple_switch``.

    Raises
    ------
    BuildError
        The compiler failed or printed a warning.
    TestbedUnavailableError
        The compiler is not installed.
    """
    if isinstance(program, Path):
        source, name = program, program.stem
    else:
        source, name = HERE / "programs" / program / "bmv2.p4", program
    out = folder / f"{name}.json"
    _run(
        [
            _tool("p4c-bm2-ss"),
            "--std",
            "p4-16",
            *_FLAGS,
            "-I",
            str(HERE),
            *flags,
            "-o",
            str(out),
            str(source),
        ]
    )
    return out


def tofino(program: str, target: str, folder: Path, *flags: str) -> Resources:
    """Compile and assemble a program for a Tofino.

    Parameters
    ----------
    program : str
    target : {"tofino", "tofino2"}
    folder : path
        Gets the files that the switch loads.
    *flags : str
        More compiler options.

    Raises
    ------
    BuildError
        The compiler or the assembler failed or printed a warning, a register is placed in two stages, or a
        parser lost its selects.
    TestbedUnavailableError
        The compiler or the assembler is not installed.
    """
    arch, number = TOFINOS[target]
    # the compiler and the assembler name their output after the source file
    source = folder / f"{program}.p4"
    source.write_text(f'#include "programs/{program}/tofino.p4"\n', encoding="utf-8")
    compiler, assembler = _tool("p4c-barefoot"), _tool("bfas")
    command = [
        compiler,
        "--std",
        "p4-16",
        "--target",
        target,
        "--arch",
        arch,
        *_FLAGS,
        "-g",
        *_TOFINO_FLAGS.get(target, ()),
        "-I",
        str(HERE),
    ]
    command += [f"-D__TARGET_TOFINO__={number}", *flags, "--bf-rt-schema", str(folder / "bfrt.json")]
    _run([*command, "-o", str(folder), str(source)])
    pipe = folder / "pipe"
    state = state_without_select((pipe / f"{program}.bfa").read_text())
    if state is not None:
        raise BuildError(
            f"{program}, {target}: parser state {state} always takes its first branch: "
            "this p4c-barefoot loses selects (p4c #5063)"
        )
    # --no-warn as in the SDE: the assembler's warnings are about the compiler's output, not the program
    _run([assembler, "--target", target, "--no-warn", "-o", str(pipe), str(pipe / f"{program}.bfa")])
    resources = _resources(json.loads((pipe / "logs" / "resources.json").read_text()))
    for name, stages in resources.registers.items():
        if len(stages) > 1:
            raise BuildError(
                f"{program}, {target}: register {name} is in stages {stages}: these would be separate copies"
            )
    return resources


def state_without_select(assembly: str) -> str | None:
    """The first parser state, in the compiler's output, with two default branches."""
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

    def available(kind: str, *factors: str) -> int:
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
            "srams": available("rams", "nRows", "nColumns"),
            "map_rams": available("map_rams", "nRows", "nUnits"),
            "tcams": available("tcams", "nRows", "nColumns"),
            "stateful_alus": available("meter_alus", "nAlus"),
            "instructions": available("vliw", "size"),
            "tables": available("logical_tables", "size"),
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
    """A Markdown table of the resources a program uses on each chip."""
    lines = ["| | " + " | ".join(f"Tofino {TOFINOS[target][1]}" for target in of_target) + " |"]
    lines.append("| --- |" + " --- |" * len(of_target))
    for name, words in _ROWS.items():
        cells = [f"{getattr(r, name)} of {r.of[name]}" for r in of_target.values()]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_readme(program: str, table: str) -> None:
    """Put the table between the markers in a program's README."""
    path = HERE / "programs" / program / "README.md"
    text = path.read_text(encoding="utf-8")
    new, n = re.subn(
        f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", f"{_BEGIN}\n{table}\n{_END}", text, flags=re.DOTALL
    )
    if n != 1:
        raise BuildError(f"{path}: must have one place for the table, between {_BEGIN} and {_END}")
    with replacing(path) as tmp:
        tmp.write_text(new, encoding="utf-8")


def _with_tools() -> list[str]:
    """The targets whose compilers are on PATH; says which are not."""
    targets = []
    for target, tools in TOOLS.items():
        missing = [tool for tool in tools if shutil.which(tool) is None]
        if missing:
            print(f"{target}: left out, because {missing[0]} is not on PATH", file=sys.stderr)
        else:
            targets.append(target)
    return targets


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hardware.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"any of {', '.join(PROGRAMS)}; default: all"
    )
    parser.add_argument(
        "--target",
        choices=TARGETS,
        action="append",
        help="may be repeated; default: all whose compilers are on PATH",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="keep the output, in DIR/TARGET/PROGRAM"
    )
    parser.add_argument("--write", action="store_true", help="update the programs' READMEs")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.programs) - set(PROGRAMS))
    if unknown:
        parser.error(f"{unknown[0]}: must be one of {', '.join(PROGRAMS)}")
    targets = args.target or _with_tools()
    if not targets:
        return 1
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
