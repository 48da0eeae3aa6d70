"""``cct simulate``: a scenario's file in, what came of it to the terminal and to files."""

from __future__ import annotations

import sys
from pathlib import Path

from .._support.terminal import listing, show
from ..errors import ParameterError
from ..scenario import read_scenario, read_sweep
from ..scenario.terminal import show_run
from .simulation import simulate
from .sweep import run_sweep

__all__ = ["run_scenario"]


def run_scenario(
    path: Path,
    output: Path | None = None,
    *,
    record: bool = True,
    pcap: Path | None = None,
    sample_s: float = 0.1,
    workers: int | None = None,
) -> None:
    """Simulate what a TOML file says and print a summary.

    Parameters
    ----------
    path : Path
        With a ``[sweep]`` table all its scenarios are run, without taps or series.
    output : Path, optional
        Directory for :meth:`cctoolkit.Run.save`; of a sweep, the Parquet file (needed).
    record, sample_s
        As for :func:`cctoolkit.simulate`.
    pcap : Path, optional
        Directory for :meth:`cctoolkit.Run.to_pcap`.
    workers : int, optional
        As for :func:`cctoolkit.run_sweep`.

    Raises
    ------
    ParameterError, AlgorithmError
        What is wrong, and where.
    """
    scenario = read_scenario(path)
    jobs = read_sweep(path)
    shown = sys.stderr.isatty()
    if len(jobs) > 1 or jobs[0][0]:
        if pcap is not None:
            raise ParameterError("pcap: a sweep records no packets")
        if output is None:
            raise ParameterError(
                f"output: {path} has a [sweep]; name a .parquet file for its table (-o FILE)"
            )
        table = run_sweep(jobs, output, workers=workers, progress=shown)
        show(listing(table.drop(columns="scenario_sha256")))
        print(f"wrote {len(table)} rows to {output}")
        return
    if pcap is not None and not record:
        raise ParameterError("pcap: there are no taps without recording")
    if not scenario.name:
        scenario = scenario.replace({"name": path.stem})
    run = simulate(scenario, record=record, sample_s=sample_s, progress=shown)
    show_run(run)
    if output is not None:
        print(f"wrote {run.save(output)}")
    if pcap is not None:
        for written in run.to_pcap(pcap):
            print(f"wrote {written}")
