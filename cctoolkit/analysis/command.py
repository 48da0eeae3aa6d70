"""``cct rtt`` and ``cct slots``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .._support.options import CommandGroup, Fill, FillOption, SamplingOption, SlotMsOption, parse_sampling
from .._support.terminal import listing, show
from .._support.words import endpoint
from ..capture.options import (
    CaptureArgument,
    EgressArgument,
    IngressArgument,
    TrustTapsOption,
    end_without,
    selecting,
)
from ..errors import ParameterError
from ..schema.output import Format, FormatOption, OutputFileOption, TableOutput, command_provenance

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.keys import FlowKeys
    from ..capture.selection import Selection

__all__ = ["app"]

app = CommandGroup()


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

    Times of samples count from the first IP packet of the file, as --start and --stop do.

    Examples: `cct rtt trace.pcap.gz --method handshake`, `cct rtt trace.pcap.gz --samples -o rtt.parquet`
    """
    import pandas as pd

    from ..capture.filtering import masks
    from ..capture.reader import iter_capture
    from ..capture.selection import origin_of
    from .rtt import RttPairing, rtt_summary, samples_table

    if not samples and (format is Format.parquet or (output is not None and output.suffix == ".parquet")):
        raise ParameterError("format: Parquet holds samples (--samples); the summary is csv or jsonl")
    if not karn and method is not RttMethod.seq_ack:
        raise ParameterError(f"karn: --no-karn is for the method {RttMethod.seq_ack.value}")
    pairing = RttPairing(method.value, karn=karn)
    ways: dict[tuple[int, int], str] = {}  # for the table on a terminal, as is the next
    origin_ns: int | None = None
    with TableOutput(format, output, "rtt_samples", command_provenance(capture)) as out:

        def found() -> Iterator[pd.DataFrame]:
            nonlocal origin_ns
            read = iter_capture(capture, tunnel=tunnel, ahead=True)  # type: ignore[arg-type]
            for whole, mask in masks(read, selection):
                origin_ns = origin_of(whole) if origin_ns is None else origin_ns
                part = whole if mask is None else whole.rows(mask)
                table = samples_table(pairing.update(part.columns, part.keys), method.value)
                if out.format is Format.table:
                    ways.update(_ways(part.keys, table))
                yield table

        if samples:
            for part in found():
                out.write(part)
        else:
            out.write(rtt_summary(pd.concat(found(), ignore_index=True)))
        if out.format is Format.table and out.rows:
            table = out.frame()
            way = [ways[way] for way in zip(table["flow_id"], table["direction"], strict=True)]
            rest = table.drop(columns=["flow_id", "direction", "method"])
            if samples:
                rest.insert(
                    0, "time (s)", ((rest.pop("ts_ns") - (origin_ns or 0)) / 1e9).map("{:.6f}".format)
                )
            table = pd.concat([table["flow_id"].rename("flow"), pd.Series(way, name="data"), rest], axis=1)
            _show_rows(
                table,
                {str(name) for name in table if str(name).endswith("_ns")},
                left=["data"],
                keep=_RTT_KEEP,
            )
    if not out.rows:
        where = " in the selected packets" if selection else ""
        end_without(f"no RTT samples by {method.value}{where}", capture, tunnel)


@app.command()
@selecting
def slots(
    ingress: IngressArgument,
    selection: Selection,
    tunnel: str,
    egress: EgressArgument = None,
    slot_ms: SlotMsOption = 1.0,
    sampling: SamplingOption = "all",
    fill: FillOption = Fill.backward,
    seed: Annotated[int, typer.Option(help="Seed for random sampling.", min=0)] = 0,
    trust_taps: TrustTapsOption = False,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Compute per-slot inputs of the Dragonfly classifier: CBIQ, throughput, gaps, drops, bytes in flight.

    --start and --stop choose slots by when they begin; the slot of the first packet counts from that packet.

    Example: `cct slots in.pcap.gz out.pcap.gz --slot-ms 10 --flow 0 -o slots.parquet`
    """
    from ..capture.reader import read_capture
    from ..capture.selection import origin_of
    from .slots import compute_slots
    from .tap_comparison import check_egress

    with TableOutput(format, output, "slots", command_provenance(ingress)) as out:
        before = read_capture(ingress, tunnel=tunnel)  # type: ignore[arg-type]
        after = None if egress is None else check_egress(read_capture(egress, tunnel=tunnel))  # type: ignore[arg-type]
        table = compute_slots(
            before,
            after,
            slot_ms,
            parse_sampling(sampling),
            fill.value,
            selection.flows_of(before),
            seed,
            check_taps=not trust_taps,
        )
        # times choose slots, not packets: what is in the queue depends on packets before
        slot_ns = round(slot_ms * 1e6)
        since_ns = table["slot"] * slot_ns + (table.attrs["start_ns"] - (origin_of(before) or 0))
        begin_s = since_ns.where((since_ns <= -slot_ns) | (since_ns > 0), 0) / 1e9
        start_s = -math.inf if selection.start_s is None else selection.start_s
        stop_s = math.inf if selection.stop_s is None else selection.stop_s
        table = table[(begin_s >= start_s) & (begin_s < stop_s)].reset_index(drop=True)
        out.write(table)
        if out.format is Format.table and out.rows:
            table = out.frame().rename(columns={"flow_id": "flow"})
            _show_rows(table, {"max_arrival_gap_ns"}, keep=_SLOTS_KEEP)
    if not out.rows:
        where = " in the selected packets" if selection else ""
        end_without(f"no TCP data{where}, so no slots", ingress, tunnel)


#: What a narrow terminal shows longest.
_RTT_KEEP = ("data", "samples", "time (s)", "rtt_ns", "rtt_min_ns", "rtt_median_ns", "rtt_p95_ns")
_SLOTS_KEEP = (
    "slot",
    "in_bytes",
    "cbiq_bytes",
    "throughput_bytes",
    "bytes_in_flight",
    "drops_estimate",
    "out_bytes",
)


def _ways(keys: FlowKeys, samples: pd.DataFrame) -> dict[tuple[int, int], str]:
    """``10.0.0.1:5001 → 10.0.0.2:80`` for each flow and direction with samples: the way that the sampled data went."""
    import numpy as np

    of = keys.take(np.isin(keys.flow_id, samples["flow_id"].unique()))
    found: dict[tuple[int, int], str] = {}
    for flow, *ends in zip(of.flow_id, of.src_text(), of.sport, of.dst_text(), of.dport, strict=True):
        src, dst = endpoint(*ends[:2]), endpoint(*ends[2:])
        found |= {(flow, 0): f"{src} → {dst}", (flow, 1): f"{src} ← {dst}"}
    return found


def _show_rows(
    table: pd.DataFrame, times_ns: set[str], *, left: Collection[str] = (), keep: Sequence[str] = ()
) -> None:
    show(listing(table, times_ns=times_ns, left=left, keep=keep, rows=100, more="-o FILE"))
