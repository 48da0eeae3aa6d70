"""Many scenarios over all cores, into one table; what is done stays done."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from .. import __version__
from .._atomic import replacing
from ..algorithm import Algorithm
from ..errors import CCToolkitError, ParameterError
from ..run import Run
from ..scenario import Scenario
from .simulation import simulate

__all__ = ["flow_rows", "run_summary", "run_sweep"]

#: A measure: what is kept of a run, as one row or several.
Measure = Callable[[Run], "Mapping[str, Any] | list[dict[str, Any]] | pd.DataFrame"]
_SHA, _RUN = "scenario_sha256", "run"


def run_summary(run: Run) -> dict[str, Any]:
    """The default measure, one row a run: :meth:`cctoolkit.Run.summary`."""
    return run.summary()


def flow_rows(run: Run) -> pd.DataFrame:
    """A measure with one row a flow: ``run.flows``."""
    return run.flows


def run_sweep(
    scenarios: Iterable[tuple[Mapping[str, Any], Scenario]],
    output: str | os.PathLike[str],
    *,
    measure: Measure = run_summary,
    record: bool = False,
    sample_s: float | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Simulate many scenarios and keep a few numbers of each.

    Parameters
    ----------
    scenarios : iterable of (dict, Scenario)
        What :func:`cctoolkit.sweep` or :func:`cctoolkit.scenario.read_sweep` gives. The dict becomes columns.
    output : path
        A Parquet file; appears when all is done. Until then what is done is in ``OUTPUT.part``, and a sweep that was
        interrupted, however hard, goes on from there. A scenario found in an earlier `output` is not run again
        either, so a grid may grow; one whose algorithms' code or whose `measure` changed is.
    measure : function of Run
        Gives what to keep: a dict (one row), or a list of dicts or a DataFrame (several). :func:`run_summary`,
        :func:`flow_rows`, or your own, also from a notebook cell. Values are numbers, booleans, text or None.
    record, sample_s
        As for :func:`cctoolkit.simulate`; a measure that looks at captures or series needs them.
    workers : int, optional
        Processes; all cores without it. With 1 nothing leaves this process.
    progress : bool
        Show a bar.

    Returns
    -------
    DataFrame
        ``run`` (number of the scenario), what was changed, what was measured, ``scenario_sha256``; the same table
        whatever `workers` and however often it was interrupted.

    Raises
    ------
    ParameterError, AlgorithmError
        A scenario does not run; the text says which. What was done stays done.

    Notes
    -----
    Worker processes start afresh, so a script (not a notebook) has to call this under
    ``if __name__ == "__main__":``.
    """
    output = Path(output)
    if output.suffix != ".parquet":
        raise ParameterError(f"output: {output} has to be a .parquet file")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ParameterError(f"workers: {workers!r} is not a whole number of at least 1")
    jobs = [(dict(changes), scenario) for changes, scenario in scenarios]
    how = _fingerprint([measure, record, sample_s])
    keys = [
        _fingerprint([scenario.to_toml(), _algorithms(scenario), how, __version__]) for _, scenario in jobs
    ]
    journal = output.with_name(output.name + ".part")
    done = _finished(output) | _journalled(journal)
    todo = {key: i for i, key in reversed(list(enumerate(keys))) if key not in done}

    from tqdm.auto import tqdm

    output.parent.mkdir(parents=True, exist_ok=True)
    with (
        tqdm(
            total=len(set(keys)), initial=len(set(keys)) - len(todo), unit="run", disable=not progress
        ) as bar,
        journal.open("a", encoding="utf-8") as handle,
    ):
        settings = (measure, record, sample_s)
        order = {key: jobs[i] for key, i in sorted(todo.items(), key=lambda entry: entry[1])}
        for key, rows in _results(order, settings, workers or _cores()):
            done[key] = rows
            _append(handle, {_SHA: key, "rows": rows})
            bar.update()
    table = _table(jobs, keys, done)
    _write(table, output, jobs)
    journal.unlink()
    return table


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- running ---------------------------------------------------------------------------------------------------------


def _results(
    order: dict[str, tuple[dict[str, Any], Scenario]], settings: tuple[Any, ...], workers: int
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    if workers == 1 or len(order) <= 1:
        for key, (changes, scenario) in order.items():
            try:
                yield key, _one(scenario, *settings)
            except CCToolkitError as err:
                raise type(err)(f"{_told(changes)}: {err}") from None
        return
    from numba import cloudpickle  # also carries classes and functions of a notebook's cells

    with ProcessPoolExecutor(min(workers, len(order)), mp_context=get_context("spawn")) as pool:
        futures: dict[Future[Any], str] = {}
        waiting = iter(order)
        try:
            while True:
                for key in itertools.islice(waiting, 2 * workers - len(futures)):
                    payload = cloudpickle.dumps((order[key][1], *settings))
                    futures[pool.submit(_unpacked, payload)] = key
                if not futures:
                    return
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    key = futures.pop(future)
                    try:
                        yield key, future.result()
                    except BrokenProcessPool:
                        raise CCToolkitError(
                            "a worker process died (out of memory?); what was done is kept, so run it again"
                        ) from None
                    except CCToolkitError as err:
                        raise type(err)(f"{_told(order[key][0])}: {err}") from None
        finally:
            pool.shutdown(cancel_futures=True)


def _unpacked(payload: bytes) -> list[dict[str, Any]]:
    return _one(*pickle.loads(payload))


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
    raise ParameterError(f"measure: {name}: {type(value).__name__} is no number, boolean or text")


def _told(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} = {_shown(v)}" for k, v in changes.items()) or "the scenario"


def _shown(value: Any) -> Any:
    """What was changed, as a value of a table."""
    from ..scenario import plain

    if isinstance(value, type) and issubclass(value, Algorithm):
        return value.name
    value = plain(value)
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


# ---- what a scenario is known by -------------------------------------------------------------------------------------


def _fingerprint(parts: list[Any]) -> str:
    return hashlib.sha256(repr([_stable(part) for part in parts]).encode()).hexdigest()


def _stable(value: Any) -> Any:
    """Code by what it does, not by where it lies."""
    if isinstance(value, types.FunctionType):
        return [value.__qualname__, _stable(value.__code__), _stable(value.__defaults__ or ())]
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, [_stable(c) for c in value.co_consts]]
    if isinstance(value, tuple | list):
        return [_stable(v) for v in value]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return value


def _algorithms(scenario: Scenario) -> list[Any]:
    """The code of all algorithms in a scenario."""
    used: set[type] = {type(f.cca) for f in scenario.flows if not f.is_udp}
    used |= {type(q.aqm) for q in scenario.bottleneck.queue_list()}
    return [
        [cls.__qualname__, *(_stable(getattr(cls, event, None)) for event in cls.events)]  # type: ignore[attr-defined]
        for cls in sorted(used, key=lambda cls: cls.__qualname__)
    ]


# ---- files -----------------------------------------------------------------------------------------------------------


def _append(handle: IO[str], entry: dict[str, Any]) -> None:
    handle.write(json.dumps(entry) + "\n")
    handle.flush()
    os.fsync(handle.fileno())


def _journalled(path: Path) -> dict[str, list[dict[str, Any]]]:
    """What an interrupted sweep got done; a last line that was cut short is taken off."""
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
    """What an earlier output has, by scenario."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return {}
    try:
        found = pq.read_table(path)
        changed = json.loads(found.schema.metadata[_KEY])["changed"]
    except (pa.ArrowInvalid, KeyError, TypeError):
        raise ParameterError(f"output: {path} is there already and is no sweep's") from None
    done: dict[str, list[dict[str, Any]]] = {}
    first_run: dict[str, int] = {}
    for row in found.to_pylist():
        key, run = row.pop(_SHA), row.pop(_RUN)
        if first_run.setdefault(key, run) == run:  # a scenario may be in the table more than once
            done.setdefault(key, []).append({k: v for k, v in row.items() if k not in changed})
    return done


def _table(
    jobs: list[tuple[dict[str, Any], Scenario]], keys: list[str], done: dict[str, list[dict[str, Any]]]
) -> pd.DataFrame:
    rows = []
    for i, ((changes, _), key) in enumerate(zip(jobs, keys, strict=True)):
        shown = {name: _shown(value) for name, value in changes.items()}
        rows += [{_RUN: i, **shown, **row, _SHA: key} for row in done[key]]
    return pd.DataFrame(rows)


def _write(table: pd.DataFrame, path: Path, jobs: list[tuple[dict[str, Any], Scenario]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(table, preserve_index=False)
    about = json.dumps({"version": __version__, "changed": sorted({name for c, _ in jobs for name in c})})
    meta = dict(arrow.schema.metadata or {}) | {_KEY: about.encode()}
    with replacing(path) as tmp:
        pq.write_table(arrow.replace_schema_metadata(meta), tmp, compression="zstd")
