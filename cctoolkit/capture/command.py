"""``cct filter``, ``cct fetch`` and ``cct synth``: captures copied, downloaded and made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._support.options import CommandGroup
from .._support.ranges import MOST_FRAME_BYTES
from .._support.terminal import say, say_beside
from .._support.words import plural
from .options import CaptureArgument, end_without_packets, selecting

if TYPE_CHECKING:
    from .selection import Selection

__all__ = ["app"]

app = CommandGroup()
fetch = CommandGroup(no_args_is_help=True, help="Download captures.")
synth = CommandGroup(no_args_is_help=True, help="Make synthetic captures.")
app.add_typer(fetch, name="fetch")
app.add_typer(synth, name="synth")

_NewCapture = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUT",
        help="The new file: .pcap or .pcapng, compressed with .gz, .zst or .xz; - is standard output (pcap).",
    ),
]


@app.command("filter")
@selecting
def filter_command(
    capture: CaptureArgument,
    selection: Selection,
    tunnel: str,
    output: _NewCapture,
    snaplen: Annotated[
        int | None, typer.Option(help="Cut packets to this many bytes.", min=1, max=MOST_FRAME_BYTES)
    ] = None,
) -> None:
    """Copy the selected packets, byte for byte, into a new capture.

    Without a selection it copies all IP packets.

    Example: `cct filter day.pcap.gz dns.pcap.zst --port 53 --stop 60`
    """
    from .filtering import filter_capture

    n = filter_capture(capture, output, selection, snaplen=snaplen, tunnel=tunnel)
    if not n:
        end_without_packets(capture, selection)
    say_beside(output)(f"wrote {plural(n, 'packet')} to {output}")


@fetch.command("mawi")
def fetch_mawi_command(
    date: Annotated[str, typer.Argument(metavar="DATE", help="A day, for example 2024-02-15.")],
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder to keep it in.", show_default="$CCTOOLKIT_CACHE, else the user's cache"),
    ] = None,
) -> None:
    """Download one day of the MAWI archive into the cache (samplepoint F, 15 minutes, about 10⁸ packets).

    An interrupted download resumes.

    Example: `cct fetch mawi 2024-02-15`
    """
    from .mawi import fetch_mawi

    say(fetch_mawi(date, cache))


@synth.command("mawi")
def synth_mawi_command(
    output: _NewCapture,
    packets: Annotated[int, typer.Option("--packets", "-n", help="Number of packets.", min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same bytes.", min=0)] = 0,
) -> None:
    """Make a synthetic capture that resembles a day of MAWI, for benchmarks or when no real one is at hand.

    Example: `cct synth mawi synthetic.pcap.gz -n 5000000`
    """
    from .synth.mawi import synth_mawi

    say_beside(output)(f"wrote {synth_mawi(output, packets, seed=seed)}")
