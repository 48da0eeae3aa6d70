"""Options that control planes share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["BufferPackets", "Duration", "FrameBytes", "Period", "PollLog", "Rate", "StepLog", "Wire"]

Wire = Annotated[list[str], typer.Option(metavar="IN:OUT", help="Forward packets from port IN to port OUT.")]
Rate = Annotated[float | None, typer.Option(help="Shape the egress ports to this rate.")]
FrameBytes = Annotated[int, typer.Option(help="Frame size, for switches that count packets.")]
BufferPackets = Annotated[int | None, typer.Option(help="Buffer of each queue.")]
Period = Annotated[float, typer.Option(help="Time between polls.")]
Duration = Annotated[float | None, typer.Option(help="Stop after this time; default: run until Ctrl-C.")]
PollLog = Annotated[Path | None, typer.Option("--output", "-o", help="Append each poll to this CSV file.")]
StepLog = Annotated[Path | None, typer.Option("--output", "-o", help="Write each step to this CSV file.")]
