"""Constants and tables of the P4 programs, computed from the toolkit's own models and rendered for P4.

Each program's ``constants.py`` has a list ``CONSTANTS`` of :class:`Constant` and :class:`Macro`. ``python -m
hardware.constants`` renders it into ``constants.p4`` beside it, which the Tofino version and the BMv2 version
both include. A test renders the lists again and compares, so nobody edits the result by hand. What is too
large for a file (tables with a thousand entries) is written into the switch by the program's control plane,
from the same module.

A name ends in its unit. A time in nanoseconds has at least 32 bits: 16 bits hold only 65 microseconds. A
published program compares 20 ms with what is left of it in 16 bits, 11.5 µs.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cctoolkit._support.atomic import replacing

from .programs import PROGRAMS

__all__ = ["Constant", "Macro", "generated", "main", "render", "write"]

#: A name ends in one of these.
UNITS = (
    "NS",
    "US",
    "BYTES",
    "BITS",
    "PACKETS",
    "CELLS",
    "ENTRIES",
    "STEPS",
    "SHIFT",
    "Q16",
    "Q20",
    "Q30",
    "COUNT",
    "ID",
)
_TIMES = ("NS", "US")


@dataclass(frozen=True)
class Constant:
    """A number with a width.

    Parameters
    ----------
    name : str
        In capitals; its last word is the unit, one of :data:`UNITS` (``Q16``: 16 fractional bits).
    value : int
    bits : int
        Width in P4.
    why : str
        Where it comes from: paper section, RFC, or the reason for it.

    Raises
    ------
    ValueError
        The value does not fit into the width, a time has fewer than 32 bits, or the name has no unit.

    Examples
    --------
    >>> from hardware.constants import Constant
    >>> Constant("TARGET_NS", 5_000_000, 32, "RFC 8289, section 4.2").p4()
    'const bit<32> TARGET_NS = 5000000; /* RFC 8289, section 4.2 */'
    """

    name: str
    value: int
    bits: int
    why: str

    def __post_init__(self) -> None:
        unit = self.name.rsplit("_", 1)[-1]
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.name) or unit not in UNITS:
            raise ValueError(f"{self.name}: must be in capitals and end in a unit: {', '.join(UNITS)}")
        if not 0 <= self.value < 1 << self.bits:
            raise ValueError(f"{self.name}: {self.value} does not fit into {self.bits} bits")
        if unit in _TIMES and self.bits < 32:
            raise ValueError(f"{self.name}: {self.bits} bits are too few for a time")

    def p4(self) -> str:
        """As P4 source."""
        return f"const bit<{self.bits}> {self.name} = {self.value}; /* {self.why} */"


@dataclass(frozen=True)
class Macro:
    """Text for the preprocessor, such as a table's entries.

    Parameters
    ----------
    name : str
    lines : sequence of str
    why : str
        What it is.
    """

    name: str
    lines: Sequence[str]
    why: str

    def p4(self) -> str:
        """As P4 source."""
        return f"/* {self.why} */\n#define {self.name} \\\n" + " \\\n".join(f"    {x}" for x in self.lines)


def render(program: str) -> str:
    """The text of a program's ``constants.p4``."""
    module = importlib.import_module(f"hardware.programs.{program}.constants")
    guard = f"{program.upper()}_CONSTANTS_P4"
    lines = [
        "/* Generated from constants.py by `python -m hardware.constants`: do not edit. */",
        "",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *(constant.p4() for constant in module.CONSTANTS),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def generated(program: str) -> Path:
    """The path of a program's ``constants.p4``."""
    return Path(__file__).parent / "programs" / program / "constants.p4"


def write() -> None:
    """Write all programs' ``constants.p4``."""
    for program in PROGRAMS:
        with replacing(generated(program)) as path:
            path.write_text(render(program), encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Write all programs' ``constants.p4``, from the command line."""
    argparse.ArgumentParser(
        prog="python -m hardware.constants", description="Write all P4 programs' constants.p4."
    ).parse_args(argv)
    write()


if __name__ == "__main__":
    main()
