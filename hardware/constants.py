"""Constants and tables of the P4 programs, written once: here, from the toolkit's own models.

Each program has a module with ``CONSTANTS``, a list of :class:`Constant` and :class:`Macro`; ``python -m
hardware.constants`` renders them into ``constants.p4`` beside it, which the Tofino version and the BMv2 version
both include. A test renders them again and compares, so that neither is edited by hand. What is too much for a
file (tables of a thousand entries) is put into the switch by the program's control plane, from the same module.

Names end in their unit. A time in nanoseconds has at least 32 bits: in 16 there is room for 65 microseconds, and
a published program compares 20 ms with what is left of it, 11.5 µs.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .programs import PROGRAMS

__all__ = ["Constant", "Macro", "generated", "render", "write"]

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
        In capitals, its last word the unit, one of :data:`UNITS` (``Q16``: 16 bits after the point).
    value : int
    bits : int
        Width in P4.
    why : str
        Where it comes from: paper section, RFC, or the reason for it.

    Raises
    ------
    ValueError
        The value does not fit into so many bits, a time has fewer than 32, or the name has no unit.
    """

    name: str
    value: int
    bits: int
    why: str

    def __post_init__(self) -> None:
        unit = self.name.rsplit("_", 1)[-1]
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.name) or unit not in UNITS:
            raise ValueError(f"{self.name}: the last word is no unit; there are {', '.join(UNITS)}")
        if not 0 <= self.value < 1 << self.bits:
            raise ValueError(f"{self.name}: {self.value} does not fit into {self.bits} bits")
        if unit in _TIMES and self.bits < 32:
            raise ValueError(f"{self.name}: {self.bits} bits are too few for a time")

    def p4(self) -> str:
        return f"const bit<{self.bits}> {self.name} = {self.value}; /* {self.why} */"


@dataclass(frozen=True)
class Macro:
    """Text for the preprocessor: entries of a table, a math unit's table.

    Parameters
    ----------
    name : str
    lines : sequence of str
    why : str
    """

    name: str
    lines: Sequence[str]
    why: str

    def p4(self) -> str:
        return f"/* {self.why} */\n#define {self.name} \\\n" + " \\\n".join(f"    {x}" for x in self.lines)


def render(program: str) -> str:
    """The generated file's text."""
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
    """Where :func:`write` puts it."""
    return Path(__file__).parent / "programs" / program / "constants.p4"


def write() -> None:
    """Write all programs' ``constants.p4``."""
    for program in PROGRAMS:
        generated(program).write_text(render(program), encoding="utf-8")


if __name__ == "__main__":
    write()
