"""Leakage: runs, and settings of runs, that a model has seen in training; ``split.csv`` beside a model lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from .._support.csv import read_csv, write_csv
from .._support.terminal import note
from .._support.words import plural
from ..errors import ParameterError, SchemaError
from .bundle import Model
from .datasets import Datasets
from .flow_settings import settings_of_runs

__all__ = [
    "SPLIT",
    "note_settings",
    "note_trained_before",
    "seen_runs",
    "trained_runs",
    "trained_settings",
    "unseen_runs",
    "write_split",
]

#: File beside a model with its runs: whether they were for training or testing, keys of their settings and contents.
SPLIT = "split.csv"

_COLUMNS = ["run", "part", "setting", "content"]


def write_split(
    folder: Path,
    flows: pd.DataFrame,
    training: Sequence[str],
    testing: Sequence[str] = (),
    *,
    contents: Mapping[str, str] | None = None,
    before: Model | None = None,
) -> None:
    """Record beside a model which runs it was trained on, and which ones are for testing.

    Parameters
    ----------
    folder : Path
        Folder of the model.
    flows : DataFrame
        Flows of the datasets, or at least a column ``run``.
    training, testing : sequence of str
        Names of runs.
    contents : mapping of str to str, optional
        By run, what was recorded (:attr:`~.datasets.Datasets.contents`): it identifies a run wherever it is, whatever
        its name. Without it, the name does.
    before : Model, optional
        The model that training continued from; its runs count for this one, too.
    """
    settings = settings_of_runs(flows)
    rows = [
        (run, part, settings.get(run, ""), (contents or {}).get(run, ""))
        for part, runs in (("train", training), ("test", testing))
        for run in runs
    ]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    older = None if before is None else _listed(before)
    if older is not None:
        both = pd.concat([older, table])
        table = both.sort_values("part", key=lambda part: part != "train", kind="stable")
        table = table.drop_duplicates(["run", "content"])
    write_csv(table, folder / SPLIT)


def _trained(model: Model) -> pd.DataFrame | None:
    """Training runs of a model; None if its folder does not list them."""
    listed = _listed(model)
    return None if listed is None else listed[listed["part"] == "train"]


def _listed(model: Model) -> pd.DataFrame | None:
    """Runs of a model, as :func:`write_split` wrote them; None if its folder does not list them."""
    path = model.folder / SPLIT
    if not path.is_file():
        return None
    try:
        table = read_csv(path, dtype=str, keep_default_na=False)
        known = {"run", "part"} <= set(table)
    except ValueError:  # it is not CSV
        known = False
    if not known:
        raise SchemaError(f"{path}: not a table of run and part, as cct train writes it")
    return table.reindex(columns=_COLUMNS, fill_value="")


def trained_runs(model: Model) -> set[str] | None:
    """Runs that a model was trained on, according to its folder; None if that does not list them.

    Raises
    ------
    SchemaError
        The model's list of runs cannot be read.
    """
    trained = _trained(model)
    return None if trained is None else set(trained["run"])


def trained_settings(model: Model) -> set[str]:
    """Keys of the settings of its training runs, from :func:`~.flow_settings.settings_of_runs`.

    Raises
    ------
    SchemaError
        The model's list of runs cannot be read.
    """
    trained = _trained(model)
    return set() if trained is None else set(trained["setting"]) - {""}


def seen_runs(model: Model, data: Datasets) -> list[str] | None:
    """Runs of datasets that a model was trained on; None if its folder does not list its training runs.

    Raises
    ------
    SchemaError
        The model's list of runs cannot be read.
    """
    trained = _trained(model)
    if trained is None:
        return None
    contents, names = set(trained["content"]), set(trained["run"][trained["content"] == ""])
    # without the name of the dataset, which tells runs of one name apart
    return [run for run in data.runs if data.contents[run] in contents or run.rpartition("/")[2] in names]


def unseen_runs(model: Model, data: Datasets) -> list[str]:
    """Runs that a model was not trained on, according to its folder. Prints on standard error how many are left out.

    Raises
    ------
    ParameterError
        The model was trained on all of them.
    SchemaError
        The model's list of runs cannot be read.
    """
    seen = seen_runs(model, data)
    if seen is None:
        note(f"{model.name} does not list its training runs (no {SPLIT}); scores on those would be too high")
        return data.runs
    runs = sorted(set(data.runs) - set(seen))
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


def note_settings(data: Datasets, testing: Sequence[str], trained: set[str], advice: str = "") -> int:
    """Print on standard error how many test runs have the same settings as training runs; return their number.

    Parameters
    ----------
    data : Datasets
    testing : sequence of str
        Names of runs.
    trained : set of str
        Settings of the training runs, from :func:`~.flow_settings.settings_of_runs`.
    advice : str
        What to do about it.
    """
    settings = settings_of_runs(data.flows)
    known = sum(settings.get(run, "") in trained - {""} for run in testing)
    if known:
        have = "has settings" if len(testing) == 1 else "have settings"
        note(
            f"{known:,} of {plural(len(testing), 'test run')} {have} seen in training: scores say nothing about "
            f"other settings{advice}"
        )
    return known


def note_trained_before(model: Model, data: Datasets, testing: Sequence[str]) -> int:
    """Print on standard error how many test runs the pretrained model was trained on; return their number."""
    known = len(set(seen_runs(model, data) or ()) & set(testing))
    if known:
        note(
            f"{model.name} was trained on {known:,} of {plural(len(testing), 'test run')}: scores are too high"
        )
    return known
