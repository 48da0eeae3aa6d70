"""``cct rtt`` and ``cct slots``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .._support.options import Fill, FillOption, SamplingOption, SlotMsOption, parse_sampling
from .._support.terminal import listing, show
from ..capture.options import (
    CaptureArgument,
    EgressArgument,
    FlowOption,
    IngressArgument,
    TrustTapsOption,
    Tunnel,
    TunnelOption,
    selecting,
)
from ..errors import ParameterError
from ..schema.output import Format, FormatOption, OutputFileOption, TableOutput, command_provenance

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.selection import Selection

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="markdown")


class RttMethod(StrEnum):
    seq_ack = "seq_ack"
    data_plane = "data_plane"
    handshake = "handshake"
    timestamps = "timestamps"


@app.command()
@selecting
def rtt(
    capture: CaptureArgument,
    selection: Selection,
    tunnel: str,
    method: Annotated[RttMethod, typer.Option(help="How to measure.")] = RttMethod.seq_ack,
    karn: Annotated[bool, typer.Option(help="Take no sample from retransmitted data (seq_ack).")] = True,
    samples: Annotated[bool, typer.Option("--samples", help="List every sample.")] = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Measure round-trip times by flow and direction.

    Examples: `cct rtt trace.pcap.gz --method handshake`, `cct rtt trace.pcap.gz --samples -o rtt.parquet`
    """
    import pandas as pd

    from ..capture.filtering import selected
    from ..capture.reader import iter_capture
    from .rtt import RttPairing, rtt_summary, samples_table

    if not samples and (format is Format.parquet or (output is not None and output.suffix == ".parquet")):
        raise ParameterError("format: Parquet holds samples (--samples); the summary is csv or jsonl")
    pairing = RttPairing(method.value, karn=karn)
    parts = selected(iter_capture(capture, tunnel=tunnel), selection)  # type: ignore[arg-type]
    found = (samples_table(pairing.update(part.columns, part.keys), method.value) for part in parts)
    with TableOutput(format, output, "rtt_samples", command_provenance(capture)) as out:
        if samples:
            for part in found:
                out.write(part)
        else:
            out.write(rtt_summary(pd.concat(found, ignore_index=True)))
        if out.format is Format.table:
            _show_rows(out.frame(), {"rtt_ns", "rtt_min_ns", "rtt_median_ns", "rtt_p95_ns", "rtt_max_ns"})


@app.command()
def slots(
    ingress: IngressArgument,
    egress: EgressArgument = None,
    slot_ms: SlotMsOption = 1.0,
    sampling: SamplingOption = "all",
    fill: FillOption = Fill.backward,
    seed: Annotated[int, typer.Option(help="Seed for random sampling.")] = 0,
    flow: FlowOption = None,
    tunnel: TunnelOption = Tunnel.outer,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Compute per-slot inputs of the Dragonfly classifier: CBIQ, throughput, gaps, drops, bytes in flight.

    Example: `cct slots in.pcap.gz out.pcap.gz --slot-ms 10 --flow 0 -o slots.parquet`
    """
    from ..capture.reader import read_capture
    from .slots import compute_slots

    with TableOutput(format, output, "slots", command_provenance(ingress)) as out:
        before = read_capture(ingress, tunnel=tunnel.value)
        after = None if egress is None else read_capture(egress, tunnel=tunnel.value)
        table = compute_slots(
            before,
            after,
            slot_ms,
            parse_sampling(sampling),
            fill.value,
            flow,
            seed,
            check_taps=not trust_taps,
        )
        out.write(table)
        if out.format is Format.table:
            _show_rows(out.frame(), {"max_arrival_gap_ns"})


def _show_rows(table: pd.DataFrame, times_ns: set[str]) -> None:
    show(listing(table, times_ns=times_ns, rows=100, more=" (-o FILE writes all)"))
