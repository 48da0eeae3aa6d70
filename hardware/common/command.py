"""The command line that all control planes share: the switch's address, logging, the main loop, one-line errors.

A program's ``control.py`` has a function with the program's own options in typer's style. It checks them and
returns what is to be done with the switch. The file ends with :func:`run`::

    def control(target_ms: Annotated[float, typer.Option(help="…")] = 5.0) -> Work:
        \"\"\"What ``--help`` says.\"\"\"

        def work(switch: Switch) -> None:
            main_loop(switch, lambda s: log.info("%s", s.read_register("drops")), period_s=1.0, set_up=tables)

        return work

    if __name__ == "__main__":
        run("codel", control)

So a wrong option is reported before the switch is asked, whether or not it answers.

Exit status: 0 on success, also after Ctrl-C or SIGTERM in the loop; 1 on an error, with one line on standard
error; 2 on wrong usage; 130 after Ctrl-C elsewhere.
"""

from __future__ import annotations

import functools
import inspect
import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from cctoolkit._support.arguments import number
from cctoolkit._support.csv import write_csv
from cctoolkit.errors import CCToolkitError, ParameterError

from .switch import Switch, SwitchGoneError

__all__ = ["SwitchArgs", "Work", "append_states", "connect", "main_loop", "run", "run_app"]

log = logging.getLogger(__name__)

#: What a command does with the switch.
Work = Callable[[Switch], object]

BMV2_PORT, BFRT_PORT = 9090, 50052
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_PANEL = "Switch"


@dataclass(frozen=True)
class SwitchArgs:
    """A switch's address, from the common options.

    Attributes
    ----------
    program : str
        The P4 program's name.
    bmv2, bfrt : str, optional
        HOST:PORT; exactly one of the two.
    pipe : int, optional
        The Tofino pipe whose registers are read. Default: that of the program's ports.
    notifications : str, optional
        Address where BMv2 publishes digests. Default: BMv2's own.
    netns : str, optional
        BMv2's network namespace: a name or a path.
    """

    program: str
    bmv2: str | None = None
    bfrt: str | None = None
    pipe: int | None = None
    notifications: str | None = None
    netns: str | None = None


def _options(
    program: str,
    bmv2: Annotated[
        str | None,
        typer.Option("--bmv2", metavar="HOST:PORT", help="Thrift server of a BMv2.", rich_help_panel=_PANEL),
    ] = None,
    bfrt: Annotated[
        str | None,
        typer.Option(
            "--bfrt", metavar="HOST:PORT", help="Barefoot Runtime of a Tofino.", rich_help_panel=_PANEL
        ),
    ] = None,
    pipe: Annotated[
        int | None,
        typer.Option(
            help="Tofino: pipe whose registers are read; default: that of the ports.",
            min=0,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    notifications: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="BMv2: address where it publishes digests, its --notifications-addr; default: BMv2's own.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    netns: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="BMv2: network namespace.", rich_help_panel=_PANEL),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> SwitchArgs:
    if (bmv2 is None) == (bfrt is None):
        raise typer.BadParameter("name the switch: either --bmv2 HOST:PORT or --bfrt HOST:PORT")
    for option, value, needs, named in (
        ("--netns", netns, "--bmv2", bmv2),
        ("--notifications", notifications, "--bmv2", bmv2),
        ("--pipe", pipe, "--bfrt", bfrt),
    ):
        if value is not None and named is None:
            raise typer.BadParameter(f"{option} can only be used with {needs}")
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    for name in ("hardware", "__main__"):  # not the loggers of libraries
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)
    return SwitchArgs(program, bmv2, bfrt, pipe, notifications, netns)


def _address(option: str, text: str, port: int) -> tuple[str, int]:
    """HOST, HOST:PORT or [IPv6]:PORT."""
    host, colon, digits = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, digits = text, str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (digits.isascii() and digits.isdigit()) or not 0 < int(digits) < 1 << 16:
        raise ParameterError(f"{option}: {text!r} must be HOST:PORT")
    return host, int(digits)


def connect(args: SwitchArgs) -> Switch:
    """Connect to a switch.

    Raises
    ------
    ParameterError
        The address is not HOST:PORT.
    SwitchError
        The switch does not answer, or the package to talk to it is not installed.
    """
    if args.bmv2 is not None:
        from .bmv2 import Bmv2Switch

        host, port = _address("--bmv2", args.bmv2, BMV2_PORT)
        space = args.netns if args.netns is None or "/" in args.netns else Path("/run/netns") / args.netns
        return Bmv2Switch(host, port, notifications=args.notifications, namespace=space)
    if args.bfrt is not None:
        from .bfrt import BfrtSwitch

        host, port = _address("--bfrt", args.bfrt, BFRT_PORT)
        return BfrtSwitch(host, port, program=args.program, pipe=args.pipe)
    raise ParameterError("switch: needs --bmv2 or --bfrt")


def main_loop(
    switch: Switch,
    step: Callable[[Switch], object],
    period_s: float,
    *,
    set_up: Callable[[Switch], object] | None = None,
    duration_s: float | None = None,
) -> None:
    """Set up, then call `step` every `period_s` seconds until Ctrl-C, SIGTERM (under :func:`run`) or `duration_s`.

    Parameters
    ----------
    switch : Switch
    step : function
        Called with the switch. If it takes longer than a period, the missed calls are skipped.
    period_s : float
    set_up : function, optional
        Called with the switch before the first step, and again each time the connection was lost: the switch
        may have restarted with empty tables.
    duration_s : float, optional

    Notes
    -----
    The loop survives a lost switch. It logs one line, reconnects with growing pauses (up to half a minute),
    and logs one line when the switch is back. Any other error ends the loop.
    """
    number("period_s", period_s, above=0)
    end = float("inf") if duration_s is None else time.monotonic() + duration_s
    ready, wait_s = False, 0.0
    due = time.monotonic()
    try:
        while time.monotonic() < end:
            try:
                if wait_s:
                    switch.reconnect(timeout_s=0.0)
                    ready = False
                if not ready:
                    if set_up is not None:
                        set_up(switch)
                    ready, due = True, time.monotonic()
                if wait_s:
                    log.info("the switch is back")
                    wait_s = 0.0
                step(switch)
                due += period_s * max((time.monotonic() - due) // period_s + 1, 1)
                pause_s = due - time.monotonic()
            except SwitchGoneError as err:
                report = log.debug if wait_s else log.warning
                pause_s = wait_s = min(2 * wait_s, _LONGEST_WAIT_S) or _FIRST_WAIT_S
                report("%s; retrying in %g s", err, wait_s)
            time.sleep(max(min(pause_s, end - time.monotonic()), 0.0))
    except KeyboardInterrupt:
        log.info("stopped")


def append_states(states: pd.DataFrame, output: Path | None) -> None:
    """Append states to a CSV file, if there is one, with the time in a column ``time_s``."""
    if output is not None:
        states = states.assign(time_s=round(time.time(), 3))
        first = ["time_s", *(name for name in states if name != "time_s")]
        write_csv(states[first], output, mode="a", header=not output.exists())


def run(program: str, *commands: Callable[..., Work], args: list[str] | None = None) -> None:
    """Run a control plane from the command line. Does not return.

    Parameters
    ----------
    program : str
        The P4 program's name. On a Tofino it must be loaded.
    *commands : functions
        Each checks its options, which are its parameters, and returns what to do with the switch. Several
        become subcommands.
    args : list of str, optional
        Default: the process's arguments.
    """
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in commands:
        app.command(no_args_is_help=True)(_with_switch(program, command))
    run_app(app, program, f"hardware.programs.{program}.control", args)


def run_app(app: typer.Typer, name: str, module: str, args: list[str] | None = None) -> None:
    """Run a typer app. SIGTERM acts like Ctrl-C, and an error is one line on standard error. Does not return."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(args=args, prog_name=f"python -m {module}", standalone_mode=True)
    except CCToolkitError as err:
        print(f"{name}: {err}", file=sys.stderr)
        sys.exit(1)
    except OSError as err:
        where = f"{err.filename}: " if err.filename else ""
        print(f"{name}: {where}{err.strerror or err}", file=sys.stderr)
        sys.exit(1)


def _with_switch(program: str, command: Callable[..., Work]) -> Callable[..., object]:
    """Add the common options to a command, and let it work on the switch that they name."""
    common = list(inspect.signature(_options, eval_str=True).parameters.values())[1:]
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    loaded = inspect.Parameter(
        "program",
        inspect.Parameter.KEYWORD_ONLY,
        default=program,
        annotation=Annotated[
            str, typer.Option(help="Tofino: name of the loaded program.", rich_help_panel=_PANEL)
        ],
    )

    @functools.wraps(command)
    def wrapper(**given: Any) -> object:
        args = _options(**{name: given.pop(name) for name in ("program", *(p.name for p in common))})
        work = command(**given)
        with connect(args) as switch:
            return work(switch)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, loaded, *common)]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    return wrapper
