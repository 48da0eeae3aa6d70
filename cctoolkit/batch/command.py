"""``cct batch``: captures in, a dataset out; a line for each that fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from .._support.options import CommandGroup
from .._support.ranges import LEAST_MS
from .._support.terminal import note, say
from ..capture.options import Tunnel, TunnelOption
from ..errors import ParameterError

__all__ = ["app", "parse_bytes"]

app = CommandGroup()

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@app.command()
def batch(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="CAPTURE",
            help="Files, folders, globs, MAWI days (2024-02-15 or 2024-02-01..2024-02-29), URLs (s3://…, https://…).",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the dataset.")],
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of local worker processes.",
            show_default="none: one capture at a time in this process",
            min=1,
        ),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use the workers of this Dask scheduler.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory of one worker, such as 4GB.", show_default="an equal share"
        ),
    ] = None,
    slot_ms: Annotated[
        float | None,
        typer.Option(
            help="Slot length for long flows, in ms.", show_default="100, or the model's", min=LEAST_MS
        ),
    ] = None,
    long: Annotated[
        int,
        typer.Option(metavar="BYTES", help="A flow with more than this in one direction is long.", min=1),
    ] = 10_000_000,
    tunnel: TunnelOption = Tunnel.outer,
    model: Annotated[
        str | None, typer.Option(help="Name the congestion controls of long flows with this model.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the MAWI days that it downloads.")] = True,
) -> None:
    """Turn many captures into one dataset of Parquet files: flows, RTTs, counts per second, slots of long flows.

    An interrupted run resumes, and later runs read only what is new. A capture that cannot be read gets a line on
    standard error; the others are processed, and the exit status is 1.

    Examples: `cct batch traces/*.pcap.gz -o archive`, `cct batch 2024-02-01..2024-02-29 -o february --workers 8`
    """
    from .cca import SavedModel
    from .run import run_batch
    from .settings import BatchSettings

    if "-" in captures:
        raise ParameterError("captures: a batch reads files, not standard input (-)")
    classifier = None if model is None else SavedModel(model)
    if slot_ms is None:
        slot_ms = BatchSettings.slot_ms if classifier is None else classifier.slot_ms
    done = run_batch(
        captures,
        output,
        BatchSettings(slot_ms=slot_ms, long_flow_bytes=long, tunnel=tunnel.value),
        workers=workers,
        scheduler=scheduler,
        memory_bytes=None if memory is None else parse_bytes(memory),
        classifier=classifier,
        keep=keep,
        say=note,
    )
    counts = {"computed": done.computed, "there before": done.present, "failed": done.failed}
    say(f"{done.output}: {', '.join(f'{len(some)} {what}' for what, some in counts.items() if some)}")
    if done.failed:
        raise typer.Exit(1)


def parse_bytes(text: str) -> int:
    """``4GB``, ``500 MB``, ``1.5g`` or a number of bytes.

    Raises
    ------
    ParameterError
        None of these.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", text, re.IGNORECASE)
    if not found or not float(found[1]):
        raise ParameterError(f"memory: {text!r} is not a size such as 4GB")
    return int(float(found[1]) * _UNITS[found[2].lower()])
