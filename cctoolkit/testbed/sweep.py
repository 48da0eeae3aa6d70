"""Many scenarios on a testbed, several at once, into a directory and a table, resumable."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.pool import in_processes
from .._support.threads import cores
from .._support.version import __version__
from .._support.waiting import progress_bar
from ..errors import CCToolkitError, ParameterError
from ..scenario.changes import cell, describe, warn_of_equal_seeds
from ..scenario.run import Run, load_run
from ..scenario.scenario import Scenario
from .testbed import planned, run_testbed

__all__ = ["run_testbed_sweep"]


def run_testbed_sweep(
    scenarios: Iterable[tuple[Mapping[str, Any], Scenario]],
    directory: str | os.PathLike[str],
    *,
    backend: str = "uml",
    measure: Callable[[Run], Mapping[str, Any]] = Run.summary,
    sample_s: float = 0.1,
    snaplen: int = 96,
    offload: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run many scenarios on real Linux and keep all runs.

    Parameters
    ----------
    scenarios : iterable of (dict, Scenario)
        From :func:`sweep` or :func:`cctoolkit.scenario.read_sweep`. The dict becomes columns.
    directory : path
        Receives a directory for each run (``run-…``, named by its content, so a grid can grow), and
        ``summary.parquet``. Finished runs are not run again; interrupted ones are.
    backend, sample_s, snaplen, offload
        As for :func:`run_testbed`.
    measure : function of Run
        Returns the row of the table for a run. Computed again for runs that already exist.
    workers : int, optional
        Number of runs at once; by default one per core, but a single one on backends in real time.
    progress : bool
        Show a progress bar.

    Returns
    -------
    DataFrame
        ``run`` (number), the changes, the measured values, ``directory`` (name of the run in `directory`). The
        table does not depend on `workers` or on interruptions.

    Raises
    ------
    ParameterError
        The testbed cannot run a scenario; the text says which. Raised before any run.
    TestbedUnavailableError, TestbedError
        As for :func:`run_testbed`. Finished runs are kept.

    See Also
    --------
    run_testbed : a single run
    run_sweep : the same in the simulator

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...     flows=[cct.Flow("cubic", rtt_ms=20)],
    ...     duration_s=10,
    ... )
    >>> variations = cct.sweep(scenario, {"bottleneck.aqm": ["tail_drop", "codel_linux"]})
    >>> table = cct.run_testbed_sweep(variations, "aqms")  # doctest: +SKIP
    >>> table[["bottleneck.aqm", "mean_delay_ms"]]  # doctest: +SKIP
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ParameterError(f"workers: {workers!r} must be a whole number, at least 1")
    folder = Path(directory)
    jobs = [(dict(changes), scenario) for changes, scenario in scenarios]
    names = []
    for changes, scenario in jobs:
        try:
            planned(scenario, backend)
        except ParameterError as err:
            raise ParameterError(f"{describe(changes)}: {err}") from None
        names.append(_name(scenario, backend, sample_s, snaplen, offload))
    order = dict(reversed([(name, i) for i, name in reversed(list(enumerate(names)))]))
    settings = {"backend": backend, "sample_s": sample_s, "snaplen": snaplen, "offload": offload}
    rows: dict[str, dict[str, Any]] = {}

    folder.mkdir(parents=True, exist_ok=True)
    arguments = [(jobs[i][1], folder / name, settings, measure) for name, i in order.items()]
    n = min(workers or (cores() if backend == "uml" else 1), max(len(arguments), 1))
    with progress_bar(total=len(arguments), unit="run", disable=not progress) as bar:
        done = in_processes(_one, arguments, n)
        try:
            for number, future in done:
                name = list(order)[number]
                try:
                    rows[name] = future.result()
                except CCToolkitError as err:
                    raise err.within(describe(jobs[order[name]][0])) from None
                bar.update()
        finally:
            done.close()
    table = pd.DataFrame(
        {"run": i, **{k: cell(v) for k, v in changes.items()}, **rows[name], "directory": name}
        for i, ((changes, _), name) in enumerate(zip(jobs, names, strict=True))
    )
    with replacing(folder / "summary.parquet") as tmp, tmp.open("wb") as file:
        table.to_parquet(file, index=False)
    warn_of_equal_seeds(table, {name for changes, _ in jobs for name in changes}, ("run", "directory"))
    return table


def _one(
    scenario: Scenario, directory: Path, settings: dict[str, Any], measure: Callable[[Run], Mapping[str, Any]]
) -> dict[str, Any]:
    there = (directory / "provenance.json").is_file()
    run = load_run(directory) if there else run_testbed(scenario, directory, **settings)
    return {str(k): v.item() if isinstance(v, np.generic) else v for k, v in measure(run).items()}


def _name(scenario: Scenario, backend: str, sample_s: float, snaplen: int, offload: bool) -> str:
    """Directory of a run, named by everything that affects the result."""
    kernel = os.uname().release
    if backend == "uml":
        from .kernel import find_kernel

        kernel = find_kernel().sha256
    parts = [scenario.to_toml(), backend, kernel, float(sample_s), snaplen, __version__]
    parts += ["offload"] if offload else []
    return f"run-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
