"""Many scenarios on a testbed, several at once, into one directory and one table; what is done stays done."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.pool import cores, in_processes
from .._support.version import __version__
from ..errors import CCToolkitError, ParameterError
from ..scenario.run import Run, load_run
from ..scenario.scenario import Scenario, plain
from .testbed import planned, run_testbed

__all__ = ["run_summary", "run_testbed_sweep"]


def run_summary(run: Run) -> dict[str, Any]:
    """The default measure: :meth:`cctoolkit.Run.summary`."""
    return run.summary()


def run_testbed_sweep(
    scenarios: Iterable[tuple[Mapping[str, Any], Scenario]],
    directory: str | os.PathLike[str],
    *,
    backend: str = "uml",
    measure: Callable[[Run], Mapping[str, Any]] = run_summary,
    sample_s: float = 0.1,
    snaplen: int = 96,
    workers: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run many scenarios on a testbed and keep all of them.

    Parameters
    ----------
    scenarios : iterable of (dict, Scenario)
        What :func:`cctoolkit.sweep` or :func:`cctoolkit.scenario.read_sweep` gives. The dict becomes columns.
    directory : path
        Gets a directory for each run (``run-…``, named by what was run, so a grid may grow), and ``summary.parquet``.
        A run that is there already is not run again; one that was interrupted, however hard, is.
    backend, sample_s, snaplen
        As for :func:`~cctoolkit.testbed.run_testbed`.
    measure : function of Run
        What the table says of a run. Computed again for runs that are there already.
    workers : int, optional
        Runs at once; without it one a core, and one on backends in real time.
    progress : bool
        Show a bar.

    Returns
    -------
    DataFrame
        ``run`` (number), what was changed, what was measured, ``directory`` (the run's name in `directory`); the same
        whatever `workers` and however often it was interrupted.

    Raises
    ------
    ParameterError
        A scenario that a testbed cannot run (before any is run); the text says which.
    TestbedUnavailableError, TestbedError
        As for :func:`~cctoolkit.testbed.run_testbed`. What was done stays done.

    Notes
    -----
    Worker processes start afresh, so a script (not a notebook) has to call this under
    ``if __name__ == "__main__":``.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ParameterError(f"workers: {workers!r} is not a whole number of at least 1")
    folder = Path(directory)
    jobs = [(dict(changes), scenario) for changes, scenario in scenarios]
    names = []
    for changes, scenario in jobs:
        try:
            planned(scenario, backend)
        except ParameterError as err:
            raise ParameterError(f"{_told(changes)}: {err}") from None
        names.append(_name(scenario, backend, sample_s, snaplen))
    order = dict(reversed([(name, i) for i, name in reversed(list(enumerate(names)))]))
    settings = {"backend": backend, "sample_s": sample_s, "snaplen": snaplen}
    rows: dict[str, dict[str, Any]] = {}

    from tqdm.auto import tqdm

    folder.mkdir(parents=True, exist_ok=True)
    arguments = [(jobs[i][1], folder / name, settings, measure) for name, i in order.items()]
    n = min(workers or (cores() if backend == "uml" else 1), max(len(arguments), 1))
    with tqdm(total=len(arguments), unit="run", disable=not progress) as bar:
        done = in_processes(_one, arguments, n)
        try:
            for number, future in done:
                name = list(order)[number]
                try:
                    rows[name] = future.result()
                except CCToolkitError as err:
                    raise type(err)(f"{_told(jobs[order[name]][0])}: {err}") from None
                bar.update()
        finally:
            done.close()
    table = pd.DataFrame(
        {"run": i, **{k: _shown(v) for k, v in changes.items()}, **rows[name], "directory": name}
        for i, ((changes, _), name) in enumerate(zip(jobs, names, strict=True))
    )
    with replacing(folder / "summary.parquet") as tmp:
        table.to_parquet(tmp, index=False)
    return table


def _one(
    scenario: Scenario, directory: Path, settings: dict[str, Any], measure: Callable[[Run], Mapping[str, Any]]
) -> dict[str, Any]:
    there = (directory / "provenance.json").is_file()
    run = load_run(directory) if there else run_testbed(scenario, directory, **settings)
    return {str(k): v.item() if isinstance(v, np.generic) else v for k, v in measure(run).items()}


def _name(scenario: Scenario, backend: str, sample_s: float, snaplen: int) -> str:
    """A run's directory: by all that decides what comes out."""
    kernel = os.uname().release
    if backend == "uml":
        from .kernel import find_kernel

        kernel = find_kernel().sha256
    parts = [scenario.to_toml(), backend, kernel, float(sample_s), snaplen, __version__]
    return f"run-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _told(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} = {_shown(v)}" for k, v in changes.items()) or "the scenario"


def _shown(value: Any) -> Any:
    """What was changed, as a value of a table."""
    value = plain(value)
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)
