"""``cct``: mounts the commands of each package, and reports an error in one line.

Exit status: 0 done; 1 bad input, one line on standard error says what and where (no line if the reader of standard
output has gone); 2 wrong usage, found before anything is read (a value that ``--help`` rules out); 130 interrupted.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ._support import waiting
from ._support.terminal import abandon_output, note, printing, say
from ._support.version import __version__
from ._support.words import printable_lines
from .errors import CCToolkitError

__all__ = ["PACKAGES", "app", "main"]

#: Every command, in the order of ``cct --help``, and the package whose ``command.py`` has it.
PACKAGES = {
    "demo": "report",
    "warm": "report",
    "info": "report",
    "flows": "report",
    "rtt": "analysis",
    "slots": "analysis",
    "report": "report",
    "separate": "separation",
    "simulate": "sim",
    "train": "identify",
    "evaluate": "identify",
    "add-cca": "identify",
    "benchmark": "identify",
    "classify": "identify",
    "batch": "batch",
    "filter": "capture",
    "live": "identify.live",
    "fetch": "capture",
    "synth": "capture",
    "experiment": "experiments",
    "testbed": "testbed",
    "dataset": "identify",
}

#: Imports make 200 000 objects, which all stay: with the default, 700, this takes a tenth of the time of ``cct info``.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000

#: What typer raises for an option that cannot be; newer versions have their own copy of click, older ones use click.
_UsageError: Any = typer.BadParameter.__mro__[1]


@functools.cache
def _commands_of(package: str) -> Mapping[str, Any]:
    """A package's commands; help asks for each of them twice, and typer takes milliseconds to build them."""
    area = importlib.import_module(f".{package}.command", __package__)
    return typer.main.get_group(area.app).commands


class _Commands(Mapping[str, Any]):
    """All commands by name; a package is imported when one of its commands is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _commands_of(PACKAGES[name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PACKAGES)

    def __len__(self) -> int:
        return len(PACKAGES)


class _Cct(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]  # it is only read


app = typer.Typer(
    cls=_Cct,
    name="cct",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Packet captures, congestion control and queues.\n\nA capture is pcap or pcapng, plain or compressed with "
    "gzip, xz or zstd; `-` is standard input.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"cctoolkit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options before the command."""


_shown_warnings: set[str] = set()


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    text = str(message)
    if text not in _shown_warnings:  # a file that is read twice is damaged once
        _shown_warnings.add(text)
        note(f"warning: {text}")


class _Notes(logging.Handler):
    """Shows what libraries log, unless logging is configured elsewhere."""

    def emit(self, record: logging.LogRecord) -> None:
        note(f"{record.name}: {record.getMessage()}")


def _again_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """Interrupt again: Ctrl-C came while a finalizer ran, where Python reports it instead of raising it."""
    if unraisable.exc_type is KeyboardInterrupt:
        # not from in here, where it would be lost as well
        later = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        later.daemon = True
        later.start()
    else:
        sys.__unraisablehook__(unraisable)


def _leave_nothing_to_collect() -> None:
    """Python ends with a collection of all that libraries made, which takes a quarter of the time of `cct info`.

    With triton, which torch's optimisers import, it stays: what is not collected, triton's bindings report as leaks.
    """
    if "triton" not in sys.modules:
        gc.freeze()


def main() -> None:
    """Entry point of ``cct``."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(_leave_nothing_to_collect)
    _shown_warnings.clear()
    warnings.showwarning = _show_warning
    sys.unraisablehook = _again_if_interrupted
    logging.lastResort = _Notes(logging.WARNING)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # an encoding may lack what we print
            stream.reconfigure(errors="backslashreplace")
    waiting.enable()
    try:
        status = app(prog_name="cct", standalone_mode=False)
        with printing():
            sys.stdout.flush()
        sys.exit(status)
    except _UsageError as err:
        text = " ".join(err.format_message().split())
        if text:  # without a command the help was printed, and that is all
            command = err.ctx.command_path if err.ctx else "cct"
            note(f"{text.removesuffix('.')} (see {command} --help)")
        sys.exit(err.exit_code)
    except typer.Abort:
        sys.exit(130)
    except CCToolkitError as err:
        note(err)
    except BrokenPipeError:
        abandon_output()
        sys.exit(1)
    except MemoryError:
        note("out of memory")
    except OSError as err:
        note(f"{err.filename}: {err.strerror}" if err.filename else err.strerror or err)
    except Exception:  # a mistake of ours: where it is, is what we have to know
        waiting.above_bars(printable_lines(traceback.format_exc().rstrip()))
    try:
        sys.stdout.flush()
    except OSError:
        abandon_output()
    sys.exit(1)


if __name__ == "__main__":
    main()
