"""Command-line options that experiments share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ModulesOption", "OutputOption", "TestbedOption"]

OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for tables, figures and summary.md.")
]
TestbedOption = Annotated[
    bool, typer.Option(help="Add real Linux; `cct testbed doctor` lists what that needs.")
]
ModulesOption = Annotated[
    bool,
    typer.Option(
        help="With --testbed, insist on a kernel with the project's modules. --no-modules runs what the kernel has."
    ),
]
