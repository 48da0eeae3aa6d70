"""``cct simulate``: a scenario's file in, what came of it to the terminal and to files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import ParameterError
from ..run import FLOW_OVERVIEW, QUEUE_OVERVIEW, Run, overview, scenario_facts
from ..scenario import read_scenario, read_sweep
from .simulation import simulate
from .sweep import run_sweep

__all__ = ["run_scenario"]

_SHOWN = 40


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
        _print(_listing(table.drop(columns="scenario_sha256")))
        print(f"wrote {len(table)} rows to {output}")
        return
    if pcap is not None and not record:
        raise ParameterError("pcap: there are no taps without recording")
    if not scenario.name:
        scenario = scenario.replace({"name": path.stem})
    run = simulate(scenario, record=record, sample_s=sample_s, progress=shown)
    for part in _summary(run):
        _print(part)
    if output is not None:
        print(f"wrote {run.save(output)}")
    if pcap is not None:
        for written in run.to_pcap(pcap):
            print(f"wrote {written}")


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(renderable)


def _summary(run: Run) -> list[Any]:
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    rows: list[tuple[str, Any]] = [*scenario_facts(run.scenario)] if run.scenario is not None else []
    rows += [(name.replace("_", " "), value) for name, value in run.summary().items()]
    for name, value in rows:
        facts.add_row(name, _text(value))
    parts: list[Any] = [facts]
    for table in (overview(run.flows, FLOW_OVERVIEW), overview(run.queues, QUEUE_OVERVIEW)):
        parts += ["", _listing(table)]
    return parts


def _listing(table: pd.DataFrame) -> Any:
    from rich.table import Table

    listing = Table(box=None, pad_edge=False)
    for name in table.columns:
        words = str(name).replace(".", " .").split("_")
        listing.add_column(" ".join(words), justify="right", min_width=max(map(len, words)))
    for row in table.head(_SHOWN).itertuples(index=False):
        listing.add_row(*(_text(value) for value in row))
    if len(table) > _SHOWN:
        listing.caption = f"{_SHOWN} of {len(table):,}"
    return listing


def _text(value: Any) -> Any:
    from rich.text import Text

    return Text(_cell(value))  # names are a user's: brackets in them are no markup


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return "" if pd.isna(value) else str(value)
    return "" if pd.isna(value) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
