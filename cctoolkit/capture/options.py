"""Arguments and options of commands that read captures: files, taps, and selection of packets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

from .._support.atomic import is_same_file
from .._support.ranges import MOST_PORT
from .._support.terminal import end_empty
from ..errors import ParameterError

__all__ = [
    "CaptureArgument",
    "EgressArgument",
    "FlowOption",
    "IngressArgument",
    "TrustTapsOption",
    "Tunnel",
    "TunnelOption",
    "end_without",
    "end_without_packets",
    "selecting",
]


class Tunnel(StrEnum):
    """Which header counts in a UDP tunnel."""

    outer = "outer"
    inner = "inner"


_PANEL = "Which packets"

CaptureArgument = Annotated[
    str, typer.Argument(metavar="CAPTURE", help="A capture file, or - for standard input.")
]
IngressArgument = Annotated[
    str, typer.Argument(metavar="INGRESS", help="Capture taken before the queue, or the only one.")
]
EgressArgument = Annotated[
    str | None, typer.Argument(metavar="EGRESS", help="Capture taken after the queue.")
]
FlowOption = Annotated[
    list[int] | None, typer.Option("--flow", help="Flow number (repeatable).", rich_help_panel=_PANEL)
]
TunnelOption = Annotated[
    Tunnel,
    typer.Option(
        "--tunnel",
        help="In UDP tunnels (VXLAN, GTP-U, …), use the outer or the inner headers.",
        rich_help_panel=_PANEL,
    ),
]

TrustTapsOption = Annotated[
    bool,
    typer.Option("--trust-taps", help="Do not check two captures for swapped taps or clocks that differ."),
]


def _selection(
    flow: FlowOption = None,
    host: Annotated[
        str | None, typer.Option(help="Address or network at either end.", rich_help_panel=_PANEL)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port at either end.", min=0, max=MOST_PORT, rich_help_panel=_PANEL)
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Protocol: tcp, udp, icmp, … or a number.", rich_help_panel=_PANEL)
    ] = None,
    start: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Start, in seconds from the first IP packet of the file.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    stop: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="End, in seconds from the first IP packet of the file.", rich_help_panel=_PANEL
        ),
    ] = None,
    tunnel: TunnelOption = Tunnel.outer,
) -> dict[str, Any]:
    """Convert the options that select packets for a command."""
    from .selection import Selection

    return {"selection": Selection(flow or None, host, port, protocol, start, stop), "tunnel": tunnel.value}


def end_without_packets(
    capture: str, selection: Any, hint: str = " (cct info says what it holds)"
) -> NoReturn:
    """End a command that found no packets: a line on standard error, and exit status 1."""
    end_empty(f"{capture}: {'no packet matches the selection' if selection else f'no IP packets{hint}'}")


def end_without(what: str, capture: str, tunnel: str) -> NoReturn:
    """End a command that found none of what it is for: a line on standard error, and exit status 1.

    It names the tunnels that were not looked into.
    """
    from .tunnels import has_udp_tunnels

    hidden = tunnel == Tunnel.outer.value and has_udp_tunnels(capture)
    end_empty(f"{capture}: {what}{'; the file has UDP tunnels: try --tunnel inner' if hidden else ''}")


def _check_output_is_no_input(*, output: Path | None = None, **given: Any) -> None:
    """Raise if a command would replace a file that it reads."""
    for value in given.values():
        if output is not None and isinstance(value, str | Path) and is_same_file(value, output):
            raise ParameterError(f"output: {output} is a file that this command reads")


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters ``selection`` and ``tunnel`` of a command by the options that select packets.

    Parameters
    ----------
    command : function
        Called with ``selection``, a :class:`~.selection.Selection`, and ``tunnel``, ``"outer"`` or ``"inner"``.

    Returns
    -------
    function
        For :meth:`typer.Typer.command`; the command's own options come first in its signature.
    """
    ours = inspect.signature(_selection, eval_str=True).parameters
    # a command's module imports Selection for type checkers only
    hints = get_type_hints(command, include_extras=True, localns={"Selection": Any})
    own = [
        p.replace(annotation=hints[name])
        for name, p in inspect.signature(command).parameters.items()
        if name not in ("selection", "tunnel")
    ]

    def wrapper(**given: Any) -> None:
        _check_output_is_no_input(**given)
        command(**_selection(**{name: given.pop(name) for name in ours}), **given)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *ours.values())]
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
