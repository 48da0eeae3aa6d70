"""The command line: parse, call, print.

Exit status: 0 done, 1 the input was bad (one line on standard error says what and where), 2 usage.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from . import __version__
from ._output import Format, TableOutput
from .capture.selection import Selection
from .errors import CCToolkitError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from .capture.model import Capture

app = typer.Typer(
    name="cct",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Packet captures, congestion control and queues.\n\nA capture is pcap or pcapng, plain or compressed with "
    "gzip, xz or zstd; `-` is standard input.",
)
fetch_app = typer.Typer(no_args_is_help=True, help="Download captures.")
synth_app = typer.Typer(no_args_is_help=True, help="Make synthetic captures.")
app.add_typer(fetch_app, name="fetch")
app.add_typer(synth_app, name="synth")


class _Experiments(typer.core.TyperGroup):
    """One command an experiment, with its own options; its module is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        from .experiments import EXPERIMENTS

        return [*super().list_commands(ctx), *EXPERIMENTS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from .experiments import EXPERIMENTS, experiment

        if cmd_name not in EXPERIMENTS:
            return super().get_command(ctx, cmd_name)
        run = experiment(cmd_name)

        @functools.wraps(run)
        def command(**options: Any) -> None:
            print(f"wrote {run(**options) / 'summary.md'}")

        one = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        one.command(cmd_name, help=EXPERIMENTS[cmd_name])(command)
        return typer.main.get_command(one)


experiment_app = typer.Typer(
    cls=_Experiments,
    no_args_is_help=True,
    help="Run an experiment; it writes a folder of tables and figures.",
)
app.add_typer(experiment_app, name="experiment")
testbed_app = typer.Typer(no_args_is_help=True, help="Run scenarios on real Linux TCP.")
app.add_typer(testbed_app, name="testbed")
dataset_app = typer.Typer(
    no_args_is_help=True, help="Slots of labelled flows, to train and test classifiers on."
)
app.add_typer(dataset_app, name="dataset")


class Tunnel(StrEnum):
    outer = "outer"
    inner = "inner"


class RttMethod(StrEnum):
    seq_ack = "seq_ack"
    data_plane = "data_plane"
    handshake = "handshake"
    timestamps = "timestamps"


class Fill(StrEnum):
    backward = "backward"
    interpolate = "interpolate"


class SortBy(StrEnum):
    bytes = "bytes"
    packets = "packets"
    retransmits = "retransmits"
    duration = "duration"
    start = "start"


_SELECT = "Which packets"
CapturePath = Annotated[
    str, typer.Argument(metavar="CAPTURE", help="A capture file, or - for standard input.")
]
TunnelOption = Annotated[
    Tunnel,
    typer.Option(
        "--tunnel",
        help="Of packets in UDP tunnels (VXLAN, GTP-U, …): the outer or the inner one.",
        rich_help_panel=_SELECT,
    ),
]
TrustTapsOption = Annotated[
    bool,
    typer.Option(
        "--trust-taps",
        help="Do not check two captures for swapped taps, different traffic and clocks that differ.",
    ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="Default: by the output's suffix, else a table for the terminal."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a .csv, .jsonl or .parquet file."),
]


def _select(
    flow: Annotated[
        list[int] | None,
        typer.Option("--flow", help="Flow number; may be given again.", rich_help_panel=_SELECT),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address or network of either end.", rich_help_panel=_SELECT)
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Port of either end.", rich_help_panel=_SELECT)
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="tcp, udp, icmp, … or a number.", rich_help_panel=_SELECT)
    ] = None,
    start: Annotated[
        float | None,
        typer.Option("--start", metavar="S", help="Seconds from the first packet.", rich_help_panel=_SELECT),
    ] = None,
    stop: Annotated[
        float | None,
        typer.Option("--stop", metavar="S", help="Seconds from the first packet.", rich_help_panel=_SELECT),
    ] = None,
    tunnel: TunnelOption = Tunnel.outer,
) -> dict[str, Any]:
    """The options of every command that selects packets, and what the command gets of them."""
    return {"selection": Selection(flow or None, host, port, protocol, start, stop), "tunnel": tunnel.value}


def _selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :func:`_select` in place of its parameters ``selection`` and ``tunnel``."""
    options = inspect.signature(_select, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters

    def wrapper(**given: Any) -> None:
        command(**_select(**{name: given.pop(name) for name in options}), **given)

    kept = [p for name, p in own.items() if name not in ("selection", "tunnel")]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*kept, *options.values())]
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _selected_parts(capture: str, selection: Selection, tunnel: str) -> Iterator[Capture]:
    """The capture part by part, only what is selected of it."""
    from .capture.reader import iter_capture

    origin_ns: int | None = None
    for part in iter_capture(capture, tunnel=tunnel):  # type: ignore[arg-type]
        if origin_ns is None:
            origin_ns = part.meta.first_ts_ns
        yield part.rows(selection.mask(part, origin_ns)) if selection else part


def _provenance(capture: str) -> dict[str, Any]:
    return {"command": ["cct", *sys.argv[1:]], "version": __version__, "capture": capture}


def _print(renderable: Any) -> None:
    from rich.console import Console

    # a pipe has no width: tables are not cut there
    Console(width=None if sys.stdout.isatty() else 200).print(renderable)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cctoolkit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
@_selecting
def info(
    capture: CapturePath,
    selection: Selection,
    tunnel: str,
    top: Annotated[int, typer.Option(help="How many flows to list.", min=1)] = 10,
) -> None:
    """What is in a capture: its kind, who sends how much, how far away they are, what looks wrong.

    Example: `cct info trace.pcap.gz --host 10.0.0.0/8`
    """
    from .report import terminal_summary
    from .summary import summarise

    _print(terminal_summary(summarise(capture, selection=selection, top=top, tunnel=tunnel)))


@app.command()
@_selecting
def flows(
    capture: CapturePath,
    selection: Selection,
    tunnel: str,
    sort: Annotated[SortBy, typer.Option(help="Largest first; `start`: earliest first.")] = SortBy.bytes,
    top: Annotated[
        int | None, typer.Option(help="Only the first so many [default: 30 on a terminal].", min=1)
    ] = None,
    cca: Annotated[
        bool, typer.Option("--cca", help="Name congestion controls, too: columns cca and probability.")
    ] = False,
    egress: Annotated[
        str | None, typer.Option(help="With --cca: the same traffic behind the queue, which tells more.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --cca: as for `cct classify` [default: cca].")
    ] = None,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """The flows: ends, packets, bytes, retransmissions, RTT; with --cca also congestion controls.

    Examples: `cct flows trace.pcap.gz --sort retransmits --top 5`, `cct flows day.pcap.gz -o flows.parquet`
    """
    from .summary import summarise

    for name, value in (("egress", egress), ("model", model)):
        if value is not None and not cca:
            raise ParameterError(f"{name}: is of use with --cca only")
    with TableOutput(format, output, "flows", _provenance(capture)) as out:
        source: Any = capture
        reading: dict[str, Any] = {"tunnel": tunnel}
        if cca:
            from .identify.command import name_flows, readable_twice

            source, reading = readable_twice(capture, **reading)
        everything = summarise(source, selection=selection, **reading).flows
        table = _sorted_flows(everything, sort).head(
            top or (30 if out.format is Format.table else len(everything))
        )
        by = ""
        if cca:
            table, by = name_flows(
                table, source, egress, model=model, selection=selection, check_taps=not trust_taps, **reading
            )
        if out.format is not Format.table:
            out.write(table)
            return
        _print(_flow_listing(table))
        if len(table) < len(everything):
            print(f"{len(table)} of {len(everything)} flows (--top N shows more, -o FILE writes all)")
        if cca:
            print(by)


def _sorted_flows(table: pd.DataFrame, sort: SortBy) -> pd.DataFrame:
    if sort is SortBy.start:
        return table.sort_values("first_ts_ns", kind="stable")
    if sort is SortBy.duration:
        key = table["last_ts_ns"] - table["first_ts_ns"]
    else:
        key = table[f"{sort.value}_fwd"] + table[f"{sort.value}_rev"]
    return table.loc[key.sort_values(ascending=False, kind="stable").index]


def _flow_listing(table: pd.DataFrame) -> Any:
    from rich.table import Table

    from .capture.protocols import protocol_name
    from .findings import format_bytes, format_cca, format_rate, format_time_ns

    listing = Table(box=None, pad_edge=False)
    for name, justify in (
        ("flow", "right"),
        ("initiator", "left"),
        ("responder", "left"),
        ("", "left"),
        ("packets", "right"),
        ("sent", "right"),
        ("received", "right"),
        ("seconds", "right"),
        ("rate", "right"),
        ("retransmits", "right"),
        ("RTT min", "right"),
        ("median", "right"),
    ):
        listing.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    if "cca" in table:
        listing.add_column("CCA", no_wrap=True)
    row: Any  # its columns are those of the flows table and of the summary
    for row in table.itertuples():
        seconds = (row.last_ts_ns - row.first_ts_ns) / 1e9
        size = row.bytes_fwd + row.bytes_rev
        way = "fwd" if row.payload_fwd >= row.payload_rev else "rev"
        listing.add_row(
            str(row.flow_id),
            f"{row.src} {row.sport}",
            f"{row.dst} {row.dport}",
            protocol_name(row.protocol),
            f"{row.packets_fwd + row.packets_rev:,}",
            format_bytes(row.bytes_fwd),
            format_bytes(row.bytes_rev),
            f"{seconds:.3f}",
            format_rate(size / seconds) if seconds > 0 else "",
            str(row.retransmits_fwd + row.retransmits_rev) if row.protocol == 6 else "",
            *(
                "" if _is_null(value) else format_time_ns(value)
                for value in (getattr(row, f"rtt_min_ns_{way}"), getattr(row, f"rtt_median_ns_{way}"))
            ),
            *([format_cca(row.cca, row.probability)] if "cca" in table else []),
        )
    return listing


def _is_null(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))


@app.command()
@_selecting
def rtt(
    capture: CapturePath,
    selection: Selection,
    tunnel: str,
    method: Annotated[RttMethod, typer.Option(help="How samples are paired.")] = RttMethod.seq_ack,
    karn: Annotated[bool, typer.Option(help="No sample from what was sent twice (seq_ack).")] = True,
    samples: Annotated[bool, typer.Option("--samples", help="Every sample, not a line a flow.")] = False,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Round-trip times of each flow and direction.

    Examples: `cct rtt trace.pcap.gz --method handshake`, `cct rtt trace.pcap.gz --samples -o rtt.parquet`
    """
    import pandas as pd

    from .rtt import RttPairing, rtt_summary, samples_table

    if not samples and (format is Format.parquet or (output is not None and output.suffix == ".parquet")):
        raise ParameterError("format: Parquet holds samples (--samples); a line a flow is csv or jsonl")
    pairing = RttPairing(method.value, karn=karn)
    parts = _selected_parts(capture, selection, tunnel)
    found = (samples_table(pairing.update(part.columns, part.keys), method.value) for part in parts)
    with TableOutput(format, output, "rtt_samples", _provenance(capture)) as out:
        if samples:
            for part in found:
                out.write(part)
        else:
            out.write(rtt_summary(pd.concat(found, ignore_index=True)))
        if out.format is Format.table:
            _print_frame(out.frame(), {"rtt_ns", "rtt_min_ns", "rtt_median_ns", "rtt_p95_ns", "rtt_max_ns"})


def _print_frame(table: pd.DataFrame, times_ns: set[str], most: int = 100) -> None:
    """A plain table on the terminal; columns of nanoseconds are shown in milliseconds."""
    from rich.table import Table

    listing = Table(box=None, pad_edge=False)
    for name in table.columns:
        words = str(name).removesuffix("_ns" if name in times_ns else "").split("_")
        # wraps between words where the terminal is narrow, never inside one
        header = " ".join([*words, "(ms)"] if name in times_ns else words)
        listing.add_column(header, justify="right", min_width=max(map(len, words)))
    for row in table.head(most).itertuples(index=False):
        cells = []
        for name, value in zip(table.columns, row, strict=True):
            if _is_null(value):
                cells.append("")
            else:
                cells.append(f"{value / 1e6:.3f}" if name in times_ns else str(value))
        listing.add_row(*cells)
    _print(listing)
    if len(table) > most:
        print(f"{most} of {len(table)} rows (-o FILE writes all)")


def _sampling(text: str) -> str | float:
    if text in ("all", "first"):
        return text
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"sampling: {text!r} is not 'all', 'first' or a probability") from None


@app.command()
def slots(
    ingress: Annotated[
        str, typer.Argument(metavar="INGRESS", help="The tap before the queue, or the only one.")
    ],
    egress: Annotated[
        str | None, typer.Argument(metavar="[EGRESS]", help="The tap behind the queue.")
    ] = None,
    slot_ms: Annotated[float, typer.Option(help="Length of a slot, ms.")] = 1.0,
    sampling: Annotated[str, typer.Option(help="all, first (of each slot), or a probability.")] = "all",
    fill: Annotated[Fill, typer.Option(help="For slots without packets.")] = Fill.backward,
    seed: Annotated[int, typer.Option(help="Of random sampling.")] = 0,
    flow: Annotated[list[int] | None, typer.Option("--flow", help="Flow number; may be given again.")] = None,
    trust_taps: TrustTapsOption = False,
    tunnel: TunnelOption = Tunnel.outer,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Per-slot inputs of the Dragonfly classifier: CBIQ, throughput, gaps, drops, bytes in flight.

    Example: `cct slots in.pcap.gz out.pcap.gz --slot-ms 10 --flow 0 -o slots.parquet`
    """
    from .capture.reader import read_capture
    from .slots import compute_slots

    with TableOutput(format, output, "slots", _provenance(ingress)) as out:
        before = read_capture(ingress, tunnel=tunnel.value)
        after = None if egress is None else read_capture(egress, tunnel=tunnel.value)
        table = compute_slots(
            before, after, slot_ms, _sampling(sampling), fill.value, flow, seed, check_taps=not trust_taps
        )
        out.write(table)
        if out.format is Format.table:
            _print_frame(out.frame(), {"max_arrival_gap_ns"})


@app.command()
@_selecting
def report(
    capture: CapturePath,
    selection: Selection,
    tunnel: str,
    egress: Annotated[
        str | None, typer.Option(help="The same traffic behind the queue: adds queue delay, loss and CBIQ.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    top: Annotated[int, typer.Option(help="How many of the largest flows to draw.", min=1)] = 12,
    model: Annotated[
        str, typer.Option(help="Names the flows' congestion controls, if it is there; `none`: no names.")
    ] = "cca",
    trust_taps: TrustTapsOption = False,
) -> None:
    """One self-contained HTML page about a capture; it works offline.

    Example: `cct report day.pcap.gz -o day.html`
    """
    from .report import report as write_report

    path = write_report(
        capture, output, egress=egress, title=title, top=top, model=None if model == "none" else model,
        selection=selection, tunnel=tunnel, check_taps=not trust_taps,
    )  # fmt: skip
    print(f"wrote {path}")


class Classes(StrEnum):
    exact = "exact"
    paper = "paper"


@app.command()
@_selecting
def separate(
    capture: CapturePath,
    selection: Selection,
    tunnel: str,
    k: Annotated[
        int | None, typer.Option("-k", help="Classes of RTT [default: as many as pay].", min=1, max=64)
    ] = None,
    method: Annotated[
        Classes, typer.Option(help="Best classes, or the paper's Algorithm 1.")
    ] = Classes.exact,
    rate: Annotated[
        float | None,
        typer.Option(metavar="MBPS", help="Of the link [default: the capture's busiest second]."),
    ] = None,
    long: Annotated[
        int, typer.Option(metavar="BYTES", help="What a flow must carry to be separated.", min=1)
    ] = 10_000_000,
    interval: Annotated[
        float | None,
        typer.Option(metavar="S", help="Decide every so many seconds, and tell what would have changed."),
    ] = None,
    latency_threshold: Annotated[
        float | None, typer.Option(metavar="MS", help="Isolate who makes others wait longer.")
    ] = None,
    router: Annotated[
        str | None, typer.Option(help="Print rules for: junos, linux, or a template file.")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="The router's, where the queues are.")] = None,
    ingress: Annotated[str | None, typer.Option(help="The router's, where flows come in (junos).")] = None,
    udp_limit: Annotated[float | None, typer.Option(metavar="MBPS", help="Hard limit of all UDP.")] = None,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rules there.")] = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Queues for flows by RTT, as the RTT paper's controller would have it: classes, buffers, shares, rules.

    Examples: `cct separate trace.pcap.gz -k 4 --rate 1000`, `cct separate day.pcap.gz -k 4 --router linux
    --interface eth1 --rules rules.tc`
    """
    from .separation.command import separate as run

    run(
        _selected_parts(capture, selection, tunnel),
        k,
        method=method.value,
        rate_mbps=rate,
        long_bytes=long,
        interval_s=interval,
        latency_threshold_ms=latency_threshold,
        router=router,
        interface=interface,
        ingress=ingress,
        udp_limit_mbps=udp_limit,
        rules=rules,
        format=format,
        output=output,
        provenance=_provenance(capture),
        show=_print,
    )


@app.command()
def simulate(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="A .toml file; one with a [sweep] table runs them all.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Directory for the run; of a sweep, the .parquet file."
        ),
    ] = None,
    record: Annotated[bool, typer.Option(help="Record both taps.")] = True,
    pcap: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write both taps as captures, with labels.")
    ] = None,
    sample: Annotated[float, typer.Option(metavar="S", help="Interval of the series.")] = 0.1,
    workers: Annotated[
        int | None, typer.Option(help="Processes of a sweep [default: all cores].", min=1)
    ] = None,
) -> None:
    """Simulate flows through a bottleneck.

    Examples: `cct simulate shared.toml -o run`, `cct simulate grid.toml -o grid.parquet`
    """
    from .sim.command import run_scenario

    run_scenario(scenario, output, record=record, pcap=pcap, sample_s=sample, workers=workers)


_Scenario = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A .toml file.")]
_Backend = Annotated[
    str,
    typer.Option(
        help="`uml`: virtual time, no root. `netns`: this machine's kernel, real time, root. `mininet`."
    ),
]
_TestbedOutput = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR", help="Default: a directory named as the file, here."),
]
_SampleOption = Annotated[float, typer.Option(metavar="S", help="Interval of the series.", min=1e-6)]
_Snaplen = Annotated[int, typer.Option(help="Bytes of each packet in the captures.")]


@testbed_app.command("run")
def testbed_run(
    scenario: _Scenario,
    output: _TestbedOutput = None,
    backend: _Backend = "uml",
    sample: _SampleOption = 0.1,
    snaplen: _Snaplen = 96,
    iperf3: Annotated[
        bool, typer.Option(help="Traffic from iperf3, not from the testbed's program.")
    ] = False,
) -> None:
    """Run a scenario: captures, labels, TCP_INFO series and queue statistics in a directory.

    Example: `cct testbed run shared.toml -o shared`
    """
    from .testbed.command import run

    run(scenario, output, backend=backend, sample_s=sample, snaplen=snaplen, iperf3=iperf3)


@testbed_app.command("sweep")
def testbed_sweep(
    scenario: _Scenario,
    output: _TestbedOutput = None,
    backend: _Backend = "uml",
    sample: _SampleOption = 0.1,
    snaplen: _Snaplen = 96,
    workers: Annotated[
        int | None, typer.Option(help="Runs at once; default: one a core, in real time one.", min=1)
    ] = None,
) -> None:
    """Run all scenarios of a file with a [sweep] table: a directory each, and one table.

    Started again it goes on where it stopped.

    Example: `cct testbed sweep grid.toml -o grid`
    """
    from .testbed.command import sweep

    sweep(scenario, output, backend=backend, sample_s=sample, snaplen=snaplen, workers=workers)


@testbed_app.command("build")
def testbed_build(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="A Linux tree of 6.12 or newer, or an archive of one [default: /usr/src/linux-source-*].",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Compilers at once; default: one a core.", min=1)] = None,
) -> None:
    """Make the kernel of the `uml` backend, once: some minutes."""
    from .testbed.command import build

    build(source, jobs)


@testbed_app.command("doctor")
def testbed_doctor() -> None:
    """What each backend needs on this machine, what is missing, and how to get it.

    Exit status 1 if none can run.
    """
    from .testbed.command import doctor

    if not doctor():
        raise typer.Exit(1)


_DatasetFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The dataset.")]
_Ccas = Annotated[
    str | None, typer.Option(metavar="CCA,CCA,…", help="Congestion controls, with commas between.")
]
_WindowMs = Annotated[
    list[float] | None,
    typer.Option("--window-ms", metavar="MS", help="Length of windows; may be given again."),
]


@dataset_app.command("build")
def dataset_build(
    settings: Annotated[
        str,
        typer.Argument(
            metavar="SETTINGS",
            help="paper, physical, hard or every-cca; or a .toml file with a scenario and a [sweep].",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The dataset; it may grow.")],
    runs: Annotated[int | None, typer.Option(help="How many [default: the settings' own].", min=1)] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the settings that are drawn [default: 1].", min=0)
    ] = None,
    on: Annotated[
        str, typer.Option(help="simulator; or, on real Linux, uml (virtual time), netns or mininet.")
    ] = "simulator",
    part: Annotated[
        str, typer.Option(help="Of `hard`: train, or test (settings never trained on).")
    ] = "train",
    ccas: _Ccas = None,
    special: Annotated[
        int | None,
        typer.Option(
            help="The first so many flows of a run are kept, of the others nine [default: one a CCA].", min=0
        ),
    ] = None,
    slot_ms: Annotated[float, typer.Option(help="Length of a slot, ms.")] = 1.0,
    workers: Annotated[int | None, typer.Option(help="Runs at once [default: all cores].", min=1)] = None,
    captures: Annotated[bool, typer.Option("--captures", help="Keep the captures, too.")] = False,
) -> None:
    """Run settings, and keep the slots of their flows with what the flows ran.

    Started again it goes on where it stopped.

    Examples: `cct dataset build paper -o paper --runs 300`, `cct dataset build hard --part test -o hard-test --on uml`
    """
    from .identify.command import build, names

    build(
        settings, output, runs=runs, seed=seed, on=on, part=part, ccas=names(ccas), special=special, slot_ms=slot_ms,
        workers=workers, keep_captures=captures,
    )  # fmt: skip


@dataset_app.command("add")
def dataset_add(
    dataset: _DatasetFolder,
    ingress: Annotated[
        str, typer.Argument(metavar="INGRESS", help="The tap before the queue, or the only one.")
    ],
    egress: Annotated[
        str | None, typer.Argument(metavar="[EGRESS]", help="The tap behind the queue.")
    ] = None,
    labels: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV: cca, and src, sport, dst, dport (some of them), flow_id or file."
        ),
    ] = ...,  # type: ignore[assignment]  # typer's word for required
    name: Annotated[str | None, typer.Option(help="Of the run [default: the capture's].")] = None,
    slot_ms: Annotated[
        float | None, typer.Option(help="Length of a slot, of a new dataset [default: 1].")
    ] = None,
    trust_taps: TrustTapsOption = False,
    tunnel: TunnelOption = Tunnel.outer,
) -> None:
    """Add captures of your own, with a table of what their flows ran.

    Example: `cct dataset add mine in.pcap.gz out.pcap.gz --labels labels.csv`
    """
    from .identify.command import add

    add(
        dataset, ingress, egress, labels, name=name, slot_ms=slot_ms, tunnel=tunnel.value,
        check_taps=not trust_taps,
    )  # fmt: skip


@dataset_app.command("info")
def dataset_info(dataset: _DatasetFolder) -> None:
    """What is in a dataset: runs, flows, settings, length, and how it was made.

    Example: `cct dataset info mine`
    """
    from .identify.command import info

    info(dataset)


_Datasets = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Datasets.")]
_PerFlow = Annotated[int, typer.Option(help="Windows of each flow and length.", min=1)]


@app.command()
def train(
    datasets: _Datasets,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The model: a new folder.")],
    classifier: Annotated[
        str,
        typer.Option(help="scales (ours, any length), dragonfly or deepcci (the papers', one length each)."),
    ] = "scales",
    window_ms: _WindowMs = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FEATURE_SET",
            help="Of dragonfly and deepcci: cbiq+throughput, cbiq, throughput, bytes_in_flight+throughput.",
        ),
    ] = None,
    ccas: _Ccas = None,
    others: Annotated[
        bool,
        typer.Option("--others", help="Flows that are none of --ccas teach what to call unknown (scales)."),
    ] = False,
    alike: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CCA,CCA", help="These are one answer, by this name (scales). May be repeated."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="[default: the classifier's own].", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the windows and the training.", min=0)] = 0,
    per_flow: _PerFlow = 4,
    test_share: Annotated[float, typer.Option(help="Of the runs, kept out to test on.")] = 0.3,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where an interrupted training goes on.")
    ] = None,
) -> None:
    """Train a classifier on datasets and test it on runs that it was not trained on.

    Windows are of 100 ms, 1 s and 10 s, as far as flows are long enough.

    Examples: `cct train mine -o my-model`, `cct train paper --classifier dragonfly --window-ms 1000 -o dragonfly`
    """
    from .identify.command import groups, names
    from .identify.command import train as run

    run(
        datasets, output, classifier=classifier, windows_ms=window_ms, inputs=inputs, ccas=names(ccas), others=others,
        alike=groups(alike or ()), epochs=epochs, seed=seed, per_flow=per_flow, test_share=test_share, device=device,
        checkpoint=checkpoint,
    )  # fmt: skip


@app.command()
def evaluate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A bundled model's name, or a folder of `cct train`.")
    ],
    datasets: _Datasets,
    window_ms: _WindowMs = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A line for each value: a setting, as `cct dataset info` lists."),
    ] = None,
    per_flow: _PerFlow = 4,
    seed: Annotated[int, typer.Option(help="Of where windows are cut.", min=0)] = 0,
    ccas: _Ccas = None,
    all_runs: Annotated[bool, typer.Option("--all", help="Runs that it was trained on, too.")] = False,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """F1 of a model on datasets, with 95 % intervals over runs, and what it takes for what.

    Runs that the model was trained on are left out.

    Examples: `cct evaluate my-model mine`, `cct evaluate cca hard-test --window-ms 1000 --by aqm`
    """
    from .identify.command import evaluate as run
    from .identify.command import names

    run(
        model, datasets, windows_ms=window_ms, by=by, per_flow=per_flow, seed=seed, ccas=names(ccas),
        all_runs=all_runs, format=format, output=output,
    )  # fmt: skip


@app.command()
@_selecting
def classify(
    ingress: Annotated[
        str, typer.Argument(metavar="INGRESS", help="The tap before the queue, or the only one.")
    ],
    selection: Selection,
    tunnel: str,
    egress: Annotated[
        str | None, typer.Argument(metavar="[EGRESS]", help="The tap behind the queue.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A bundled model's name, or a folder of `cct train` [default: cca].")
    ] = None,
    window_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="Length of windows [default: the longest that fits].")
    ] = None,
    min_bytes: Annotated[
        int,
        typer.Option(metavar="BYTES", help="Leave out flows with less payload in both directions.", min=1),
    ] = 1_000_000,
    seconds: Annotated[float, typer.Option(metavar="S", help="Look at so much of each flow.")] = 60.0,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Which congestion control each flow uses, with a probability, or "unknown".

    One tap tells bytes in flight and throughput; with the tap behind the queue there are bytes in the queue, too.

    Examples: `cct classify trace.pcap.gz`, `cct classify in.pcap.gz out.pcap.gz -o ccas.csv`
    """
    from .identify.command import classify as run

    run(
        ingress, egress, model=model, window_ms=window_ms, min_bytes=min_bytes, seconds=seconds,
        selection=selection, tunnel=tunnel, format=format, output=output, provenance=_provenance(ingress),
        check_taps=not trust_taps,
    )  # fmt: skip


@app.command()
def batch(
    captures: Annotated[
        list[str],
        typer.Argument(
            metavar="CAPTURE",
            help="Files, folders, globs, days of MAWI (2024-02-15 or 2024-02-01..2024-02-29), URLs (s3://…, https://…).",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The dataset.")],
    workers: Annotated[
        int | None, typer.Option(help="Processes [default: this one, a capture at a time].", min=1)
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler, instead.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What one worker may use, as 4GB [default: its share].")
    ] = None,
    slot_ms: Annotated[
        float | None,
        typer.Option(help="Length of a slot of long flows, ms [default: 100, or what the model wants]."),
    ] = None,
    long: Annotated[
        int, typer.Option(metavar="BYTES", help="More in one direction makes a flow long.", min=1)
    ] = 10_000_000,
    tunnel: TunnelOption = Tunnel.outer,
    model: Annotated[
        str | None, typer.Option(help="Name the congestion controls of long flows with this model.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep days of MAWI that were fetched for this.")] = True,
) -> None:
    """Many captures into one dataset of Parquet files: flows, RTTs, counts by second, slots of long flows.

    Started again it goes on where it stopped, and reads only what is new. A capture that cannot be read is a line
    on standard error and exit status 1; the others are done all the same.

    Examples: `cct batch traces/*.pcap.gz -o archive`, `cct batch 2024-02-01..2024-02-29 -o february --workers 8`
    """
    from .batch.command import batch as run

    if not run(
        captures,
        output,
        slot_ms=slot_ms,
        long_flow_bytes=long,
        tunnel=tunnel.value,
        workers=workers,
        scheduler=scheduler,
        memory=memory,
        model=model,
        keep=keep,
    ):
        raise typer.Exit(1)


@app.command("filter")
@_selecting
def filter_(
    capture: CapturePath,
    selection: Selection,
    tunnel: str,
    output: Annotated[
        Path,
        typer.Argument(metavar="OUTPUT", help="A new .pcap or .pcapng file, .gz, .zst or .xz behind it."),
    ],
    snaplen: Annotated[int | None, typer.Option(help="Cut packets to this many bytes.", min=1)] = None,
) -> None:
    """Copy the selected packets, byte for byte, into a new capture. Without a selection, all IP packets.

    Example: `cct filter day.pcap.gz dns.pcap.zst --port 53 --stop 60`
    """
    from .capture.filtering import filter_capture

    n = filter_capture(capture, output, selection, snaplen=snaplen, tunnel=tunnel)
    print(f"wrote {n} packets to {output}")


@app.command()
def live(
    ingress: Annotated[
        list[str] | None,
        typer.Option(
            "--ingress", metavar="IF", help="Interface by which packets come in; may be given again."
        ),
    ] = None,
    egress: Annotated[
        list[str] | None,
        typer.Option("--egress", metavar="IF", help="Interface by which they leave, behind the queue; also."),
    ] = None,
    from_capture: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CAPTURE", help="A dry run without root: a capture before the queue; again: behind it."
        ),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Of a capture, times real time [default: as fast as can be].")
    ] = None,
    flow: Annotated[
        list[str] | None,
        typer.Option("--flow", metavar="SRC:PORT-DST:PORT", help="Monitor it always; may be given again."),
    ] = None,
    heavy: Annotated[int, typer.Option(help="Monitor so many of the heaviest flows too.", min=0)] = 16,
    heavy_mbps: Annotated[
        float, typer.Option(metavar="MBPS", help="What a heavy flow sends at least.")
    ] = 1.0,
    slot_ms: Annotated[float, typer.Option(help="Length of a slot, ms.")] = 1.0,
    sampling: Annotated[str, typer.Option(help="all, first (of each slot), or a probability.")] = "all",
    fill: Annotated[Fill, typer.Option(help="For slots without packets.")] = Fill.backward,
    every: Annotated[float, typer.Option(metavar="MS", help="How often slots are built.")] = 100.0,
    report_every: Annotated[float, typer.Option(metavar="S", help="How often flows are reported.")] = 1.0,
    duration: Annotated[
        float | None, typer.Option("--duration", metavar="S", help="Default: until Ctrl-C.")
    ] = None,
    hook: Annotated[
        str, typer.Option(help="The egress tap: behind the `queue`, or at `tc`'s hook, before it.")
    ] = "queue",
    classify: Annotated[bool, typer.Option(help="Name flows' congestion controls.")] = True,
    model: Annotated[
        str | None, typer.Option(help="Name or folder of the classifier [default: the bundled one].")
    ] = None,
    trust_taps: TrustTapsOption = False,
    format: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="table (it changes), or jsonl: a line a flow and report."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Slots to a .csv, .jsonl or .parquet file."),
    ] = None,
) -> None:
    """Watch flows of a router while they run: the Dragonfly collector (eBPF; root, clang and libbpf).

    Examples: `cct live --ingress eth0 --egress eth1`, `cct live --from-capture in.pcap.gz --from-capture out.pcap.gz`
    """
    from .live.command import live as run
    from .live.naming import load_classifier

    run(
        ingress=ingress or [],
        egress=egress or [],
        captures=from_capture or [],
        speed=speed,
        flows=flow or [],
        slot_ms=slot_ms,
        sampling=_sampling(sampling),
        egress_hook=hook,
        format=format,
        output=output,
        classifier=load_classifier(model) if classify else None,
        provenance=_provenance(" ".join(from_capture or ingress or [])),
        check_taps=not trust_taps,
        heavy=heavy,
        heavy_mbps=heavy_mbps,
        period_ms=every,
        report_s=report_every,
        fill=fill.value,
        duration_s=duration,
    )


@fetch_app.command("mawi")
def fetch_mawi_command(
    date: Annotated[str, typer.Argument(metavar="DATE", help="A day, as 2024-02-15.")],
    cache: Annotated[Path | None, typer.Option(help="Where to keep it.")] = None,
) -> None:
    """Download a day of the MAWI archive (samplepoint F, 15 minutes, about 10⁸ packets) into the cache.

    An interrupted download goes on where it stopped. Example: `cct fetch mawi 2024-02-15`
    """
    from .capture.mawi import fetch_mawi

    print(fetch_mawi(date, cache))


@experiment_app.command("list")
def experiment_list_command() -> None:
    """The experiments there are."""
    from .experiments import EXPERIMENTS

    for name, what in EXPERIMENTS.items():
        print(f"{name:16} {what}")


@synth_app.command("mawi")
def synth_mawi_command(
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="A new .pcap or .pcapng file, .gz or .zst behind it.")
    ],
    packets: Annotated[int, typer.Option("--packets", "-n", help="How many.", min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
) -> None:
    """Make a synthetic capture that resembles a MAWI day: for benchmarks, and where no real day is at hand.

    Example: `cct synth mawi synthetic.pcap.gz -n 5000000`
    """
    from .synth import synth_mawi

    print(f"wrote {synth_mawi(output, packets, seed=seed)}")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    print(f"cct: warning: {message}", file=sys.stderr)


def main() -> None:
    """Entry point of ``cct``."""
    warnings.showwarning = _show_warning
    try:
        app()
    except CCToolkitError as err:
        print(f"cct: {err}", file=sys.stderr)
        sys.exit(1)
    except OSError as err:
        where = f"{err.filename}: " if err.filename else ""
        print(f"cct: {where}{err.strerror or err}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
