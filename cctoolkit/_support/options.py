"""Options shared by commands of several packages, each declared once.

Options that select packets are in :mod:`cctoolkit.capture.options`, those for output tables in
:mod:`cctoolkit.schema.output`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ..errors import ParameterError

__all__ = [
    "Fill",
    "FillOption",
    "ModelArgument",
    "ModelOption",
    "SampleOption",
    "SamplingOption",
    "SlotMsOption",
    "WorkersOption",
    "parse_sampling",
]


class Fill(StrEnum):
    """How to fill slots without packets."""

    backward = "backward"
    interpolate = "interpolate"


FillOption = Annotated[Fill, typer.Option(help="How to fill slots without packets.")]
SampleOption = Annotated[
    float, typer.Option(metavar="S", help="Sampling interval of the time series, in seconds.", min=1e-6)
]
SamplingOption = Annotated[
    str, typer.Option(help="Packets to use: all, first (of each slot), or a probability.")
]
_MODEL = "Name of a bundled model, or a folder made by `cct train`."
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
ModelOption = Annotated[str | None, typer.Option(help=_MODEL, show_default="cca")]
SlotMsOption = Annotated[float, typer.Option(help="Slot length in ms.")]
WorkersOption = Annotated[
    int | None, typer.Option(help="Number of processes.", show_default="one per core", min=1)
]


def parse_sampling(text: str) -> str | float:
    """Convert a value of :data:`SamplingOption` for :func:`cctoolkit.compute_slots`.

    Raises
    ------
    ParameterError
        The text is neither a known word nor a number.
    """
    if text in ("all", "first"):
        return text
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"sampling: {text!r} must be 'all', 'first' or a probability") from None
