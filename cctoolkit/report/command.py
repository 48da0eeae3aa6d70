"""``cct info``, ``cct flows`` and ``cct report``: what a capture holds, on the terminal, as a table, as a page."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.atomic import check_target
from .._support.options import CommandGroup
from .._support.terminal import listing, say, say_beside, show
from .._support.words import format_bytes, format_rate, format_time_ns
from ..capture.options import CaptureArgument, TrustTapsOption, end_without_packets, selecting
from ..capture.protocols import TCP
from ..errors import ParameterError
from ..schema.output import Format, FormatOption, OutputFileOption, TableOutput, command_provenance

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.selection import Selection

__all__ = ["app"]

app = CommandGroup()

#: Number of flows that a terminal shows by default.
_SHOWN = 30
_LISTED = "Number of flows to list."

_PageOption = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write the page; - is standard output."),
]


class SortBy(StrEnum):
    bytes = "bytes"
    packets = "packets"
    retransmits = "retransmits"
    duration = "duration"
    start = "start"


@app.command()
def demo(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Bundled capture; an unknown name lists them all.")
    ] = "bufferbloat",
    output: _PageOption = Path("demo.html"),
) -> None:
    """Write the report of a capture that comes with the package: real Linux TCP, tapped before and after a queue.

    Example: `cct demo`, then open demo.html in a browser
    """
    from ..scenario.example import example_path
    from .page import report, summary_for_page

    check_target(output, or_standard_output=True)
    ingress, egress = (example_path(name, tap) for tap in ("ingress", "egress"))
    summary = summary_for_page(ingress, egress=egress)
    path = report(summary, output, title=f"cct demo: {name}")
    say_so = say_beside(output)
    for finding in summary.findings():
        say_so(f"• {finding.text}")
    say_so(f"wrote {path}: open it in a browser")
    say_so(f"On the terminal:      cct info {shlex.quote(str(ingress))}")
    say_so("With your own:        cct report CAPTURE")


@app.command()
def warm() -> None:
    """Compile what the other commands need, once after an installation or update, so that none of them waits.

    Example: `cct warm`
    """
    from .warm import warm as compile_all

    for what, seconds in compile_all():
        say(f"{what}: {seconds:.1f} s")


@app.command()
@selecting
def info(
    capture: CaptureArgument,
    selection: Selection,
    tunnel: str,
    top: Annotated[int, typer.Option(help=_LISTED, min=1)] = 10,
) -> None:
    """Summarise a capture: what it is, who sends how much, how far away they are, what looks wrong.

    Example: `cct info trace.pcap.gz --host 10.0.0.0/8`
    """
    from .page import terminal_summary
    from .summary import summarise

    summary = summarise(capture, selection=selection, top=top, tunnel=tunnel)
    if summary.totals["packets"] or not selection:  # frames without IP are worth a word
        show(terminal_summary(summary))
    if not summary.totals["packets"]:
        end_without_packets(capture, selection, hint="")  # the report has said it


@app.command()
@selecting
def flows(
    capture: CaptureArgument,
    selection: Selection,
    tunnel: str,
    sort: Annotated[
        SortBy, typer.Option(help="Sort order, largest first; `start`: earliest first.")
    ] = SortBy.bytes,
    top: Annotated[
        int | None,
        typer.Option(help=_LISTED, show_default=f"{_SHOWN} in a table, all in files and csv or jsonl", min=1),
    ] = None,
    cca: Annotated[
        bool,
        typer.Option("--cca", help="Name congestion controls, in columns cca, probability and limited_by."),
    ] = False,
    egress: Annotated[
        str | None,
        typer.Option(help="With --cca: capture of the same traffic after the queue, for more certainty."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --cca: the model (see `cct classify`).", show_default="cca")
    ] = None,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """List flows: endpoints, packets, bytes, retransmissions, RTT; with --cca also congestion controls.

    Examples: `cct flows trace.pcap.gz --sort retransmits --top 5`, `cct flows day.pcap.gz -o flows.parquet`
    """
    from .summary import summarise

    for name, value in (("egress", egress), ("model", model)):
        if value is not None and not cca:
            raise ParameterError(f"{name}: needs --cca")
    with TableOutput(format, output, "flows", command_provenance(capture)) as out:
        source: Any = capture
        reading: dict[str, Any] = {"tunnel": tunnel}
        if cca:
            from ..identify.classify import name_flows, readable_twice

            source, reading = readable_twice(capture, **reading)
        everything = summarise(source, selection=selection, **reading).flows
        table = _sorted(everything, sort).head(
            top or (_SHOWN if out.format is Format.table else len(everything))
        )
        by = ""
        if cca:
            table, by = name_flows(
                table, source, egress, model=model, selection=selection, check_taps=not trust_taps, **reading
            )
        if out.format is not Format.table:
            out.write(table)
        elif len(table):
            show(_flow_listing(table, sort))
            if len(table) < len(everything):
                say(f"{len(table)} of {len(everything):,} flows (--top N shows more, -o FILE writes all)")
            if cca:
                say(by)
    if not len(everything):
        end_without_packets(capture, selection)


def _sorted(table: pd.DataFrame, sort: SortBy) -> pd.DataFrame:
    if sort is SortBy.start:
        return table.sort_values("first_ts_ns", kind="stable")
    if sort is SortBy.duration:
        key = table["last_ts_ns"] - table["first_ts_ns"]
    else:
        key = table[f"{sort.value}_fwd"] + table[f"{sort.value}_rev"]
    return table.loc[key.sort_values(ascending=False, kind="stable").index]


#: What a narrow terminal must show of each order.
_SORTED_BY = {SortBy.packets: "packets", SortBy.retransmits: "retransmits", SortBy.duration: "seconds"}


def _flow_listing(table: pd.DataFrame, sort: SortBy) -> Any:
    """Flows for a terminal; rates and RTTs are of the direction with more data, as on the page."""
    import pandas as pd

    from ..capture.protocols import protocol_name
    from ..identify.probabilities import format_cca
    from .summary import data_direction

    seconds = (table["last_ts_ns"] - table["first_ts_ns"]) / 1e9
    retransmits = table["retransmits_fwd"] + table["retransmits_rev"]
    forward = data_direction(table) == 0
    size = table["bytes_fwd"].where(forward, table["bytes_rev"])

    def rtt(which: str) -> pd.Series:
        ns = table[f"rtt_{which}_ns_fwd"].where(forward, table[f"rtt_{which}_ns_rev"])
        return ns.map(format_time_ns, na_action="ignore")

    shown = pd.DataFrame(
        {
            "flow": table["flow_id"],
            "initiator": table["src"] + " " + table["sport"].astype(str),
            "responder": table["dst"] + " " + table["dport"].astype(str),
            "protocol": table["protocol"].map(protocol_name),
            "packets": (table["packets_fwd"] + table["packets_rev"]).map("{:,}".format),
            "sent": table["bytes_fwd"].map(format_bytes),
            "received": table["bytes_rev"].map(format_bytes),
            "seconds": seconds.map("{:.3f}".format),
            "rate": (size / seconds.where(seconds > 0)).map(format_rate, na_action="ignore"),
            "retransmits": retransmits.astype("Int64").where(table["protocol"] == TCP),
            "RTT min": rtt("min"),
            "median": rtt("median"),
        }
    )
    if "cca" in table:
        named = (table[column] for column in ("cca", "probability", "limited_by"))
        shown["CCA"] = [format_cca(*of) for of in zip(*named, strict=True)]
    return listing(
        shown,
        left=("initiator", "responder", "protocol", "CCA"),
        keep=(
            "initiator",
            "responder",
            "CCA",  # asked for, where it is there
            _SORTED_BY.get(sort, "sent"),
            "sent",
            "rate",
            "RTT min",
            "median",
            "retransmits",
            "received",
        ),
        rows=len(shown),
        more="-o FILE",
    )


@app.command("report")
@selecting
def report_command(
    capture: CaptureArgument,
    selection: Selection,
    tunnel: str,
    egress: Annotated[
        str | None,
        typer.Option(help="Capture of the same traffic after the queue: adds queueing delay, loss and CBIQ."),
    ] = None,
    output: _PageOption = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    top: Annotated[int, typer.Option(help="Number of flows to draw, largest first.", min=1)] = 12,
    model: Annotated[str, typer.Option(help="Model that names congestion controls, or `none`.")] = "cca",
    trust_taps: TrustTapsOption = False,
) -> None:
    """Write one self-contained HTML page about a capture; it works offline.

    Example: `cct report day.pcap.gz -o day.html`
    """
    from .page import report, summary_for_page

    check_target(output, or_standard_output=True)
    summary = summary_for_page(
        capture, egress=egress, top=top, model=None if model == "none" else model,
        selection=selection, tunnel=tunnel, check_taps=not trust_taps,
    )  # fmt: skip
    if not summary.totals["packets"]:
        end_without_packets(capture, selection)
    say_beside(output)(f"wrote {report(summary, output, title=title)}")
