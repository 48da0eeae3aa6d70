"""What the commands of all packages share: how their options are read, and options of several of them.

Options that select packets are in :mod:`cctoolkit.capture.options`, those for output tables in
:mod:`cctoolkit.schema.output`.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ..errors import ParameterError
from .ranges import LEAST_MS, LEAST_SAMPLED

__all__ = [
    "CommandGroup",
    "Fill",
    "FillOption",
    "ModelArgument",
    "ModelOption",
    "OffloadOption",
    "SampleOption",
    "SamplingOption",
    "SlotMsOption",
    "WorkersOption",
    "parse_sampling",
]


class _Command(TyperCommand):
    """A command that refuses what typer accepts: one value given twice (the last would count), NaN and infinity."""

    def make_parser(self, ctx: Any) -> Any:
        """Make typer's parser, and refuse what is given twice."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            values, rest, order = parse(args)
            param: Any
            for param in order:
                takes_one = param.param_type_name == "option" and not (param.multiple or param.is_flag)
                if takes_one and order.count(param) > 1 and not ctx.resilient_parsing:
                    raise _bad("given more than once, but it takes one value", ctx, param)
            return values, rest, order

        parser.parse_args = parse_once
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as typer does, and refuse numbers that are not finite."""
        rest = super().parse_args(ctx, args)
        for param in self.params:
            given = ctx.params.get(param.name)
            for value in given if isinstance(given, list | tuple) else [given]:
                if isinstance(value, float) and not math.isfinite(value):
                    raise _bad(f"{value} is not a finite number", ctx, param)
        return rest


def _bad(what: str, ctx: Any, param: Any) -> Exception:
    return typer.BadParameter(what, ctx=ctx, param=param)


class CommandGroup(typer.Typer):
    """The commands of a package, or a group of them; options are those of :class:`typer.Typer`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"rich_markup_mode": "markdown"} | options)

    def command(self, name: str | None = None, **options: Any) -> Any:
        """As :meth:`typer.Typer.command`, with stricter options."""
        return super().command(name, **{"cls": _Command} | options)


class Fill(StrEnum):
    """How to fill slots without packets."""

    backward = "backward"
    interpolate = "interpolate"


FillOption = Annotated[Fill, typer.Option(help="How to fill slots without packets.")]
OffloadOption = Annotated[
    bool,
    typer.Option(
        "--offload",
        help="Real Linux only: leave segmentation offload on, so that taps and queues see packets of up to 64 kB.",
    ),
]
SampleOption = Annotated[
    float, typer.Option(metavar="S", help="Sampling interval of the time series, in seconds.", min=1e-6)
]
SamplingOption = Annotated[
    str, typer.Option(help="Packets to use: all, first (of each slot), or a probability.")
]
_MODEL = "Name of a bundled model, or a folder made by `cct train`."
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
ModelOption = Annotated[str | None, typer.Option(help=_MODEL, show_default="cca")]
SlotMsOption = Annotated[float, typer.Option(help="Slot length in ms.", min=LEAST_MS)]
WorkersOption = Annotated[
    int | None, typer.Option(help="Number of processes.", show_default="one per core", min=1)
]


def parse_sampling(text: str) -> str | float:
    """Convert a value of :data:`SamplingOption` for :func:`cctoolkit.compute_slots`.

    Raises
    ------
    ParameterError
        The text is neither a known word nor a probability.
    """
    if text in ("all", "first"):
        return text
    try:
        probability = float(text)
    except ValueError:
        probability = math.nan
    if not LEAST_SAMPLED <= probability <= 1:
        raise ParameterError(
            f"sampling: {text!r} must be 'all', 'first' or a probability from {LEAST_SAMPLED:g} to 1"
        )
    return probability
