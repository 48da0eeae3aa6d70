"""The command-line option that experiments share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["OutputOption"]

OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for tables, figures and summary.md.")
]
