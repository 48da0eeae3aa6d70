"""Many scenarios on all cores, into one table, resumable."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from .._support import parquet
from .._support.fingerprint import fingerprint
from .._support.locks import try_lock
from .._support.pool import in_processes
from .._support.threads import cores
from .._support.version import __version__
from .._support.waiting import progress_bar
from ..errors import CCToolkitError, ParameterError, SchemaError
from ..scenario import Scenario
from ..scenario.changes import cell, describe, warn_of_equal_seeds
from ..scenario.run import Run
from .simulation import simulate

__all__ = ["flow_rows", "run_sweep"]

#: A measure: what to keep of a run, as one or several rows.
Measure = Callable[[Run], "Mapping[str, Any] | list[dict[str, Any]] | pd.DataFrame"]
_SHA, _RUN = "scenario_sha256", "run"


def flow_rows(run: Run) -> pd.DataFrame:
    """A measure with one row per flow: ``run.flows``.

    See Also
    --------
    cctoolkit.run_sweep : takes it as `measure`

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...     flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=20)],
    ...     duration_s=2,
    ... )
    >>> variations = cct.sweep(scenario, {"seed": [1, 2]})
    >>> table = cct.run_sweep(variations, "flows.parquet", measure=flow_rows, workers=1)
    >>> table[["seed", "flow_id", "cca"]]
       seed  flow_id    cca
    0     1        0  cubic
    1     1        1   reno
    2     2        0  cubic
    3     2        1   reno
    """
    return run.flows


def run_sweep(
    scenarios: Iterable[tuple[Mapping[str, Any], Scenario]],
    output: str | os.PathLike[str],
    *,
    measure: Measure = Run.summary,
    record: bool = False,
    sample_s: float | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Simulate many scenarios on all cores and keep a few numbers of each.

    Parameters
    ----------
    scenarios : iterable of (dict, Scenario)
        From :func:`sweep` or :func:`cctoolkit.scenario.read_sweep`. The dict becomes columns.
    output : path
        A Parquet file, written at the end. Until then, results are in ``OUTPUT.part``, from which an interrupted
        sweep resumes, however it was interrupted. Scenarios in an earlier `output` are not run again, so a grid can
        grow, unless their algorithms or `measure` have changed: their code, functions and values of the same file
        or notebook that they use, defaults of parameters, and initial values of the state.
    measure : function of Run
        Returns what to keep: a dict (one row), or a list of dicts or a DataFrame (several rows).
        :meth:`cctoolkit.Run.summary`, :func:`flow_rows`, or your own, which may be defined in a notebook. Values are
        numbers, booleans, text or None.
    record, sample_s
        As for :func:`simulate`; required by measures that use captures or series.
    workers : int, optional
        Number of processes; by default one per core. 1 runs everything in this process.
    progress : bool
        Show a progress bar.

    Returns
    -------
    DataFrame
        ``run`` (number of the scenario), the changes, the measured values, and ``scenario_sha256``. The table does not
        depend on `workers` or on interruptions.

    Raises
    ------
    ParameterError, AlgorithmError
        A scenario fails; the text says which. Finished runs are kept.
    CCToolkitError
        A worker process was killed. Finished runs are kept.

    See Also
    --------
    sweep : variations of a scenario
    run_testbed_sweep : the same on real Linux

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...     flows=[cct.Flow("cubic", rtt_ms=20)],
    ...     duration_s=2,
    ... )
    >>> variations = cct.sweep(scenario, {"bottleneck.aqm": ["tail_drop", "codel", "pie"]})
    >>> table = cct.run_sweep(variations, "aqms.parquet", workers=1)
    >>> table[["bottleneck.aqm", "mean_delay_ms", "utilisation"]].round(2)
      bottleneck.aqm  mean_delay_ms  utilisation
    0      tail_drop          56.79         0.99
    1          codel           4.62         0.97
    2            pie          21.24         0.97
    """
    output = Path(output)
    if output.suffix != ".parquet":
        raise ParameterError(f"output: {output} must be a .parquet file")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ParameterError(f"workers: {workers!r} must be a whole number, at least 1")
    jobs = [(dict(changes), scenario) for changes, scenario in scenarios]
    how = _of_measure([measure, record, sample_s])
    code: dict[type, Any] = {}
    keys = [
        fingerprint([scenario.to_toml(), _algorithms(scenario, code), how, __version__])
        for _, scenario in jobs
    ]
    done = _finished(output)
    journal = output.with_name(output.name + ".part")

    output.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a", encoding="utf-8") as handle:
        if not try_lock(handle):
            raise ParameterError(f"output: another sweep is writing {output}")
        done |= _journalled(journal)
        order = {key: job for key, job in zip(keys, jobs, strict=True) if key not in done}
        total = len(set(keys))
        with (
            progress_bar(total=total, initial=total - len(order), unit="run", disable=not progress) as bar,
            contextlib.closing(_results(order, (measure, record, sample_s), workers or cores())) as results,
        ):
            for key, rows in results:
                done[key] = rows
                _append(handle, {_SHA: key, "rows": rows})
                bar.update()
        table = _table(jobs, keys, done)
        _write(table, output, jobs)
        journal.unlink()
    warn_of_equal_seeds(table, {name for changes, _ in jobs for name in changes}, (_RUN, _SHA))
    return table


# ---- running ---------------------------------------------------------------------------------------------------------


def _results(
    order: dict[str, tuple[dict[str, Any], Scenario]], settings: tuple[Any, ...], workers: int
) -> Generator[tuple[str, list[dict[str, Any]]], None, None]:
    if workers == 1 or len(order) <= 1:
        for key, (changes, scenario) in order.items():
            try:
                yield key, _one(scenario, *settings)
            except CCToolkitError as err:
                raise err.within(describe(changes)) from None
        return
    jobs = ((scenario, *settings) for _, scenario in order.values())
    keys = list(order)
    with contextlib.closing(in_processes(_one, jobs, min(workers, len(order)))) as done:
        for number, future in done:
            key = keys[number]
            try:
                yield key, future.result()
            except CCToolkitError as err:
                raise err.within(describe(order[key][0])) from None


def _one(scenario: Scenario, measure: Measure, record: bool, sample_s: float | None) -> list[dict[str, Any]]:
    found: Any = measure(simulate(scenario, record=record, sample_s=sample_s))
    if isinstance(found, pd.DataFrame):
        found = found.astype(object).where(found.notna(), None).to_dict("records")
    rows = [found] if isinstance(found, Mapping) else found
    return [{str(name): _scalar(name, value) for name, value in row.items()} for row in rows]


def _scalar(name: Any, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if value is pd.NA or value is pd.NaT:
        return None
    raise ParameterError(f"measure: {name}: {type(value).__name__} is not a number, boolean or text")


# ---- identity of a scenario ------------------------------------------------------------------------------------------


def _written_here(module: str) -> bool:
    """Whether a module may change between two sweeps; installed ones, and this package, have versions."""
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return module.partition(".")[0] != "cctoolkit" and not (
        file and any(Path(file).is_relative_to(folder) for folder in installed)
    )


def _name_of(value: Any) -> str:
    """The representation of an object in the fingerprint of a measure."""
    if callable(value) and isinstance(type(value).__call__, types.FunctionType):
        return _of_measure([type(value).__call__, vars(value)])
    plain = isinstance(value, type) or type(value).__repr__ is object.__repr__
    return (value if isinstance(value, type) else type(value)).__qualname__ if plain else repr(value)


def _of_measure(value: Any) -> str:
    return fingerprint(value, lines=False, follow=_written_here, name_of=_name_of)


def _algorithms(scenario: Scenario, code: dict[type, Any]) -> list[Any]:
    """Describe all algorithms of a scenario: code, cached in `code`, and initial values."""
    used: dict[Any, None] = dict.fromkeys(f.cca for f in scenario.flows if not f.is_udp)
    used |= dict.fromkeys(q.aqm for q in scenario.bottleneck.queue_list())
    for cls in {type(algorithm) for algorithm in used} - code.keys():
        events = [getattr(cls, event, None) for event in cls.events]
        code[cls] = [cls.__qualname__, fingerprint(events, lines=False, name_of=_name_of)]
    return [[code[type(a)], a.parameter_record(), a.state_record()] for a in used]


# ---- files -----------------------------------------------------------------------------------------------------------


def _append(handle: IO[str], entry: dict[str, Any]) -> None:
    handle.write(json.dumps(entry) + "\n")
    handle.flush()
    os.fsync(handle.fileno())


def _journalled(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Results of an interrupted sweep; removes an incomplete last line."""
    if not path.is_file():
        return {}
    lines = path.read_bytes().splitlines(keepends=True)
    done: dict[str, list[dict[str, Any]]] = {}
    good = 0
    for line in lines:
        try:
            entry = json.loads(line)
            done[entry[_SHA]] = entry["rows"]
        except (ValueError, KeyError, TypeError):
            break
        if not line.endswith(b"\n"):
            break
        good += len(line)
    os.truncate(path, good)
    return done


_KEY = b"cctoolkit.sweep"


def _finished(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Results in an earlier output, by scenario."""
    if not path.is_file():
        return {}
    try:
        found = parquet.read(path)
        changed = (parquet.about(found.schema.metadata, _KEY) or {})["changed"]
    except (SchemaError, KeyError):
        raise ParameterError(f"output: {path} exists and is not a sweep") from None
    done: dict[str, list[dict[str, Any]]] = {}
    first_run: dict[str, int] = {}
    for row in found.to_pylist():
        key, run = row.pop(_SHA), row.pop(_RUN)
        if first_run.setdefault(key, run) == run:  # a scenario may occur more than once
            done.setdefault(key, []).append({k: v for k, v in row.items() if k not in changed})
    return done


def _table(
    jobs: list[tuple[dict[str, Any], Scenario]], keys: list[str], done: dict[str, list[dict[str, Any]]]
) -> pd.DataFrame:
    rows = []
    for i, ((changes, _), key) in enumerate(zip(jobs, keys, strict=True)):
        shown = {name: cell(value) for name, value in changes.items()}
        rows += [{_RUN: i, **shown, **row, _SHA: key} for row in done[key]]
    return pd.DataFrame(rows)


def _write(table: pd.DataFrame, path: Path, jobs: list[tuple[dict[str, Any], Scenario]]) -> None:
    about = json.dumps({"version": __version__, "changed": sorted({name for c, _ in jobs for name in c})})
    parquet.write(table, path, metadata={_KEY: about.encode()})
