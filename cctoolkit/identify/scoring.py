"""Score a saved model on datasets: runs it has not seen, its predictions for their windows, F1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from .._support.csv import read_csv
from .._support.terminal import note
from ..errors import ParameterError, SchemaError
from .bundle import Model
from .datasets import Datasets
from .evaluation import evaluate
from .probabilities import grouped
from .windows import Windows, crossover_bands, window_slots

__all__ = ["CROSSOVER", "SPLIT", "score", "unseen_runs"]

#: A column of windows, not flows, that scores can be shown by.
CROSSOVER = "crossover"
#: File beside a model with its runs, and whether they were for training or testing.
SPLIT = "split.csv"
#: Long windows are large.
_RUNS_AT_ONCE = 10


def unseen_runs(model: Model, data: Datasets) -> list[str]:
    """Runs that a model was not trained on, according to its folder. Prints on standard error how many are left out.

    Raises
    ------
    ParameterError
        The model was trained on all of them.
    SchemaError
        The model's list of runs cannot be read.
    """
    path = model.folder / SPLIT
    if not path.is_file():
        note(f"{model.name} does not list its training runs (no {SPLIT}); scores on those would be too high")
        return data.runs
    try:
        split = read_csv(path, dtype=str, usecols=["run", "part"])
    except ValueError:  # also if it is not CSV
        raise SchemaError(f"{path}: not a table of run and part, as cct train writes it") from None
    trained = set(split["run"][split["part"] == "train"])
    runs = [run for run in data.runs if run not in trained]
    if not runs:
        raise ParameterError(
            f"datasets: {model.name} was trained on all of these runs (use --all to evaluate on them anyway)"
        )
    if len(runs) < len(data.runs):
        n = len(data.runs) - len(runs)
        note(
            f"left out {n:,} of {len(data.runs):,} runs, which {model.name} was trained on (use --all to include them)"
        )
    return runs


def score(
    model: Model,
    data: Datasets,
    runs: Sequence[str],
    windows_ms: Sequence[float],
    *,
    by: str | None = None,
    per_flow: int = 4,
    seed: int = 0,
    ccas: Sequence[str] | None = None,
) -> tuple[pd.DataFrame, dict[float, tuple[Windows, np.ndarray]]]:
    """F1 of a model on the classes it knows, and its predictions.

    Parameters
    ----------
    model : Model
    data : Datasets
    runs : sequence of str
    windows_ms : sequence of float
    by : str, optional
        A column of the datasets' flows, or :data:`CROSSOVER`: one row for each of its values.
    per_flow, seed, ccas
        As for :func:`~.windows.cut_windows`.

    Returns
    -------
    DataFrame
        As :func:`~.evaluation.evaluate`, with ``window_ms`` first.
    dict
        By length, the windows (without their values) of all classes, and the prediction for each.

    Raises
    ------
    ParameterError
        No flow has a class that the model knows, or none is long enough.
    """
    tables, said = [], {}
    for ms in windows_ms:
        windows, predicted = _predictions(model, data, runs, ms, per_flow, seed, ccas, bands=by == CROSSOVER)
        said[ms] = windows, predicted
        known = np.isin(windows.y, model.classes_)
        if known.any():
            table = evaluate(predicted[known], windows.take(known), by=by)
            tables.append(table.assign(window_ms=ms)[["window_ms", *table.columns]])
    if not tables:
        raise ParameterError(f"datasets: no flow uses any of {', '.join(model.classes_)}")
    return pd.concat(tables, ignore_index=True), said


def _predictions(
    model: Model, data: Datasets, runs: Sequence[str], ms: float, per_flow: int, seed: int,
    ccas: Sequence[str] | None, *, bands: bool,
) -> tuple[Windows, np.ndarray]:  # fmt: skip
    """Windows without their values, and predictions, a few runs at a time."""
    slots = window_slots(ms, data.slot_ms)
    tables, predicted = [], []
    for at in range(0, len(runs), _RUNS_AT_ONCE):
        some = runs[at : at + _RUNS_AT_ONCE]
        try:
            part = data.cut(some, ms, model.inputs, per_flow=per_flow, seed=seed, ccas=ccas)
        except ParameterError:
            continue  # no flow of these runs is long enough
        tables.append(part.table.assign(**({CROSSOVER: crossover_bands(part)} if bands else {})))
        predicted.append(np.asarray(model.predict(part), object))
    if not tables:
        raise ParameterError(
            f"window_ms: no flow has {slots:,} slots in which {', '.join(model.inputs)} are known"
        )
    table = pd.concat(tables, ignore_index=True)
    nothing = np.zeros((len(table), 0, len(model.inputs)), np.float32)
    labels = grouped(table["cca"].to_numpy(object), model.alike)
    return Windows(nothing, labels, table, model.inputs, data.slot_ms), np.concatenate(predicted)
