"""``cct simulate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .._support.atomic import check_target
from .._support.options import CommandGroup, SampleOption, WorkersOption
from .._support.terminal import listing, say, show
from .._support.words import plural
from ..errors import ParameterError

__all__ = ["app"]

app = CommandGroup()


@app.command("simulate")
def simulate_command(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="A .toml file; with a [sweep] table, all its runs.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Folder for the run; for a sweep, a .parquet file."
        ),
    ] = None,
    record: Annotated[bool, typer.Option(help="Record both taps.")] = True,
    pcap: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write both taps as captures, with labels.")
    ] = None,
    sample: SampleOption = 0.1,
    workers: WorkersOption = None,
) -> None:
    """Simulate flows through a bottleneck.

    A sweep runs on several processes and records neither taps nor series.

    Examples: `cct simulate shared.toml -o run`, `cct simulate grid.toml -o grid.parquet`
    """
    from ..scenario import read_sweep
    from ..scenario.run import check_run_target
    from ..scenario.terminal import show_run
    from .simulation import simulate
    from .sweep import run_sweep

    jobs = read_sweep(scenario)
    progress = sys.stderr.isatty()
    if len(jobs) > 1 or jobs[0][0]:
        if pcap is not None:
            raise ParameterError("pcap: a sweep records no packets")
        if output is None:
            raise ParameterError(
                f"output: {scenario} has a [sweep]; give a .parquet file for its table (-o FILE)"
            )
        check_target(output)
        table = run_sweep(jobs, output, workers=workers, progress=progress)
        show(listing(table.drop(columns="scenario_sha256")))
        say(f"wrote {plural(len(table), 'row')} to {output}")
        return
    if pcap is not None and not record:
        raise ParameterError("pcap: cannot be combined with --no-record, which records no taps")
    ((_, single),) = jobs
    if not single.name:
        single = single.replace({"name": scenario.stem})
    if output is not None:
        check_run_target(output)
    check_target(pcap, folder=True)
    run = simulate(single, record=record, sample_s=sample, progress=progress)
    show_run(run)
    if output is not None:
        say(f"wrote {run.save(output)}")
    if pcap is not None:
        for written in run.to_pcap(pcap):
            say(f"wrote {written}")
