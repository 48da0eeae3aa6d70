"""Compile the P4 programs: ``python -m hardware.build PROGRAM [--target bmv2|tofino|tofino2]``.

Compilers are looked for on PATH: ``p4c-bm2-ss`` for BMv2; for a Tofino ``p4c-barefoot`` and ``bfas`` of the open p4c. A
program that the Tofino compiler accepts may still not fit: the assembler says so, and it is always asked. Warnings are
errors.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cctoolkit.errors import CCToolkitError, TestbedUnavailableError

HERE = Path(__file__).parent
#: Every warning is an error, but for names that a program leaves unused: shared headers have more than each needs.
_STRICT = ("--Werror", "--Wdisable=unused")
PROGRAMS = ("abc", "cbiq", "codel", "dualpi2", "ired", "pi2", "rtt_monitor")


class BuildError(CCToolkitError):
    """The compiler or the assembler refused; the message is theirs."""


def _run(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    if done.returncode or "warning" in said:
        raise BuildError(f"{Path(command[0]).name}: {said or f'status {done.returncode}'}")
    return said


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
