"""Score a saved model on datasets: its predictions for windows of their runs, and F1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..errors import ParameterError
from .bundle import Model
from .datasets import Datasets
from .evaluation import evaluate
from .probabilities import grouped
from .windows import Windows, crossover_bands, window_slots

__all__ = ["CROSSOVER", "score"]

#: A column of windows, not flows, that scores can be shown by.
CROSSOVER = "crossover"
#: Long windows are large.
_RUNS_AT_ONCE = 10


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
) -> tuple[pd.DataFrame, dict[float, Windows]]:
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
        By length, the windows (without their values) of all classes. Their table also has ``said``, the prediction,
        and ``probability``, that of the most probable name.

    Raises
    ------
    ParameterError
        No flow has a class that the model knows, or none is long enough.
    """
    tables, windows_by_ms = [], {}
    for ms in windows_ms:
        windows = _predictions(model, data, runs, ms, per_flow, seed, ccas, bands=by == CROSSOVER)
        windows_by_ms[ms] = windows
        known = windows.take(np.isin(windows.y, model.classes_))
        if len(known):
            table = evaluate(known.table["said"].to_numpy(object), known, by=by)
            tables.append(table.assign(window_ms=ms)[["window_ms", *table.columns]])
    if not tables:
        raise ParameterError(f"datasets: no flow uses any of {', '.join(model.classes_)}")
    return pd.concat(tables, ignore_index=True), windows_by_ms


def _predictions(
    model: Model, data: Datasets, runs: Sequence[str], ms: float, per_flow: int, seed: int,
    ccas: Sequence[str] | None, *, bands: bool,
) -> Windows:  # fmt: skip
    """Windows without their values, with predictions, a few runs at a time."""
    slots = window_slots(ms, data.slot_ms)
    tables = []
    for at in range(0, len(runs), _RUNS_AT_ONCE):
        some = runs[at : at + _RUNS_AT_ONCE]
        try:
            part = data.cut(some, ms, model.inputs, per_flow=per_flow, seed=seed, ccas=ccas)
        except ParameterError:
            continue  # no flow of these runs is long enough
        said, probability = model.answer(part)
        answers = {"said": said, "probability": probability}
        tables.append(part.table.assign(**answers, **({CROSSOVER: crossover_bands(part)} if bands else {})))
    if not tables:
        raise ParameterError(
            f"window_ms: no flow has {slots:,} slots in which {', '.join(model.inputs)} are known"
        )
    table = pd.concat(tables, ignore_index=True)
    nothing = np.zeros((len(table), 0, len(model.inputs)), np.float32)
    labels = grouped(table["cca"].to_numpy(object), model.alike)
    return Windows(nothing, labels, table, model.inputs, data.slot_ms)
