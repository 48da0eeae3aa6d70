"""``cct live``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..._support.options import (
    CommandGroup,
    Fill,
    FillOption,
    ModelOption,
    SamplingOption,
    SlotMsOption,
    parse_sampling,
)
from ..._support.ranges import LEAST_MBPS, LEAST_MS, LEAST_S, LEAST_SPEED, MOST_MBPS, MOST_SPEED
from ...capture.options import TrustTapsOption
from ...errors import ParameterError
from ...schema.output import Format, command_provenance

if TYPE_CHECKING:
    from .collector import Collector

__all__ = ["app"]

app = CommandGroup()


@app.command()
def live(
    ingress: Annotated[
        list[str] | None,
        typer.Option("--ingress", metavar="IF", help="Interface that packets enter through (repeatable)."),
    ] = None,
    egress: Annotated[
        list[str] | None,
        typer.Option(
            "--egress", metavar="IF", help="Interface that they leave through, after the queue (repeatable)."
        ),
    ] = None,
    from_capture: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CAPTURE",
            help="Dry run without root: a capture taken before the queue; a second one: after it.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            help="Replay a capture at this multiple of its original speed.",
            show_default="as fast as possible",
            min=LEAST_SPEED,
            max=MOST_SPEED,
        ),
    ] = None,
    flow: Annotated[
        list[str] | None,
        typer.Option("--flow", metavar="SRC:PORT-DST:PORT", help="Always monitor this flow (repeatable)."),
    ] = None,
    heavy: Annotated[
        int, typer.Option(help="Also monitor this many of the heaviest flows.", min=0, max=1_000_000)
    ] = 16,
    heavy_mbps: Annotated[
        float,
        typer.Option(metavar="MBPS", help="Rate that makes a flow heavy.", min=LEAST_MBPS, max=MOST_MBPS),
    ] = 1.0,
    slot_ms: SlotMsOption = 1.0,
    sampling: SamplingOption = "all",
    fill: FillOption = Fill.backward,
    every: Annotated[
        float, typer.Option(metavar="MS", help="Interval at which slots are built.", min=LEAST_MS)
    ] = 100.0,
    report_every: Annotated[
        float, typer.Option(metavar="S", help="Interval at which flows are reported.", min=LEAST_S)
    ] = 1.0,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", metavar="S", help="Stop after this time.", show_default="until Ctrl-C", min=LEAST_S
        ),
    ] = None,
    hook: Annotated[
        str,
        typer.Option(help="Where the egress tap is: queue (after the queue), or tc (the tc hook before it)."),
    ] = "queue",
    classify: Annotated[bool, typer.Option(help="Name the flows' congestion controls.")] = True,
    model: ModelOption = None,
    trust_taps: TrustTapsOption = False,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="table (updated in place) or jsonl (one line per flow and report).",
            show_default="table",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write slots to a .csv, .jsonl or .parquet file."
        ),
    ] = None,
) -> None:
    """Watch the flows of a router while they run, with the Dragonfly collector (eBPF; needs root, clang and libbpf).

    Examples: `cct live --ingress eth0 --egress eth1`, `cct live --from-capture in.pcap.gz --from-capture out.pcap.gz`
    """
    from .collector import KernelCollector
    from .naming import load_classifier
    from .replay import CaptureCollector
    from .screen import follow

    captures = from_capture or []
    if bool(captures) == bool(ingress):
        raise ParameterError("give --ingress (and --egress), or --from-capture")
    chosen = parse_sampling(sampling)

    def collector() -> Collector:
        if captures:
            return CaptureCollector(
                *captures[:2], slot_ms=slot_ms, sampling=chosen, speed=speed, check_taps=not trust_taps
            )
        return KernelCollector(
            ingress or [],
            egress or [],
            slot_ms=slot_ms,
            sampling=chosen,
            max_flows=max(heavy + len(flow or []), 1),
            egress_hook=hook,
        )

    follow(
        collector,
        flow or [],
        format,
        output,
        load_classifier(model) if classify else None,
        command_provenance(" ".join(captures or ingress or [])),
        heavy=heavy,
        heavy_mbps=heavy_mbps,
        period_ms=every,
        report_s=report_every,
        fill=fill.value,
        duration_s=duration,
    )
