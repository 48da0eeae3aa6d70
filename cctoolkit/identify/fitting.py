"""From datasets to a saved and tested model; several kinds of classifier compared."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.atomic import check_target, replacing, replacing_folder
from .._support.csv import write_csv
from .._support.terminal import note
from .._support.version import __version__
from .._support.words import plural
from ..errors import ParameterError
from .bundle import Model, load
from .card import limits, write_card
from .datasets import Datasets
from .leakage import write_split
from .saving import save_models
from .scoring import score
from .windows import VIEW_CHANNELS, Windows

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["CLASSIFIERS", "Kind", "Order", "compare", "comparison_figure", "train", "trained_on"]


@dataclass(frozen=True)
class Kind:
    """A classifier that ``cct train`` knows.

    Attributes
    ----------
    name : str
        Class in :mod:`cctoolkit.identify.classifiers`.
    inputs : str
        Default feature set.
    one_tap : str
        Default feature set if the queue was not observed.
    """

    name: str
    inputs: str
    one_tap: str


#: By the name that the command line has.
CLASSIFIERS = {
    "scales": Kind("CCAClassifier", "views", "views"),
    "dragonfly": Kind("DragonflyClassifier", "cbiq+throughput", "bytes_in_flight+throughput"),
    "deepcci": Kind("DeepcciClassifier", "throughput", "throughput"),
    "summary": Kind("SummaryClassifier", "views", "views"),
}


@dataclass(frozen=True)
class Order:
    """What to train and to test on; the same for all classifiers of a comparison.

    Attributes
    ----------
    data : Datasets
    training, testing : list of str
        Names of runs.
    windows_ms : sequence of float, optional
        Lengths; by default those of :data:`~.datasets.WINDOWS_MS` that flows fill.
    per_flow, seed : int
        As for :func:`~.windows.cut_windows`.
    ccas : sequence of str, optional
        Congestion controls to learn; by default all.
    split_by : sequence of str, optional
        Settings by which training and test runs differ, as for :meth:`~.datasets.Datasets.split`.
    """

    data: Datasets
    training: list[str]
    testing: list[str]
    windows_ms: Sequence[float] | None = None
    per_flow: int = 4
    seed: int = 0
    ccas: Sequence[str] | None = None
    split_by: Sequence[str] | None = None


def train(
    order: Order,
    classifier: str,
    output: Path,
    *,
    inputs: str | None = None,
    others: bool = False,
    alike: Mapping[str, Sequence[str]] | None = None,
    pretrained: str | None = None,
    epochs: int | None = None,
    device: str = "auto",
    progress: bool = False,
    checkpoint: Path | None = None,
) -> tuple[Model, pd.DataFrame | None]:
    """Train one classifier, save it, and test it on the runs held out.

    Parameters
    ----------
    order : Order
    classifier : str
        A name in :data:`CLASSIFIERS`.
    output : Path
        Folder for the model, new or empty; it appears only when complete.
    inputs : str, optional
        Feature set; by default the classifier's own.
    others : bool
        Use flows with other congestion controls than ``order.ccas`` as examples of unknown ones.
    alike, pretrained : optional
        As for :class:`~.classifiers.CCAClassifier`.
    epochs : int, optional
        For trees, the number per class.
    device, progress, checkpoint
        As for :class:`~.classifiers.DragonflyClassifier`.

    Returns
    -------
    Model
    DataFrame or None
        Scores, as from :func:`~.scoring.score`; None if no runs are held out.

    Raises
    ------
    ParameterError
        Flows are too short, their inputs were not observed, the classifier rejects the windows, or the folder is not
        empty.
    """
    from . import classifiers

    check_target(output, folder=True)
    if output.is_dir() and any(output.iterdir()):
        raise ParameterError(f"output: {output} exists already")

    kind, trees = CLASSIFIERS[classifier], classifier == "summary"
    if classifier == "scales" and len(order.training) < 2:
        raise ParameterError(
            "datasets: scales needs at least two runs to train on, one of them to validate: add captures "
            "(`cct dataset add`) or simulated runs (`cct dataset build`)"
        )
    ccas = None if others else order.ccas
    cut: dict[str, Any] = {"per_flow": order.per_flow, "seed": order.seed, "ccas": ccas}
    data = order.data
    lengths, windows = data.windows(order.training, order.windows_ms, inputs or kind.inputs, **cut)
    _check_observed(windows, kind, given=inputs)
    learnt = {cca for part in windows for cca in part.y}
    if order.testing and learnt.isdisjoint(data.flows["cca"][data.flows["run"].isin(order.testing)]):
        raise ParameterError(
            f"datasets: no test run uses any of {', '.join(sorted(learnt))}: try more runs, another --seed, or "
            "--test-share 0"
        )
    if others:
        for part in windows:
            part.y[~np.isin(part.y, list(order.ccas or ()))] = "other"
    settings: dict[str, Any] = {"seed": order.seed}
    if not trees:
        settings |= {"device": device, "progress": progress}
    if epochs is not None:
        settings["iterations" if trees else "epochs"] = epochs
    if alike:
        settings["alike"] = dict(alike)
    if pretrained is not None:
        settings["pretrained"] = pretrained
    fitted = []
    for part in windows:
        if checkpoint is not None and not trees:
            several = f"{checkpoint.stem}-{part.window_ms:g}ms{checkpoint.suffix}"
            settings["checkpoint"] = checkpoint if len(windows) == 1 else checkpoint.with_name(several)
        fitted.append(getattr(classifiers, kind.name)(**settings).fit(part))
    # The exporter's warnings are about packages that are not needed.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    training = sorted({run for part in windows for run in part.groups})
    flows = data.flows[data.flows["run"].isin(training)]
    split = "run" if order.split_by is None else ", ".join(order.split_by) or "settings"
    was = "was" if len(order.testing) == 1 else "were"
    before = None if pretrained is None else load(pretrained)
    scores = None
    with replacing_folder(output) as folder:
        save_models(
            fitted, folder, windows_ms=lengths, limits=limits(flows, fitted[0]),
            data=f"{sum(map(len, windows)):,} windows of {plural(len(training), 'run')} of "
            f"{', '.join(data.parts)}; {plural(len(order.testing), 'other run')} {was} held out to "
            f"test on (split by {split}, seed {order.seed})."
            + ("" if before is None else f" Training continued from {before.name}."),
            provenance={"command": shlex.join(["cct", *sys.argv[1:]]), "version": __version__}
            | trained_on(data, order.seed),
        )  # fmt: skip
        write_split(folder, data.flows, training, order.testing, contents=data.contents, before=before)
        if order.testing:
            model = load(folder)
            scores, _ = score(model, data, order.testing, lengths, **cut)
            write_card(folder, model.about, scores)
    return load(output), scores


def _check_observed(windows: Sequence[Windows], kind: Kind, given: str | None) -> None:
    """Raise ParameterError if no flow has values of an input (views can do without)."""
    for part in windows:
        unseen = np.isnan(part.X).all(axis=(0, 1)) if part.inputs != VIEW_CHANNELS else np.zeros(0, bool)
        if unseen.any():
            names = ", ".join(name for name, missing in zip(part.inputs, unseen, strict=True) if missing)
            other = f"; captures of one tap need --inputs {kind.one_tap}" if given != kind.one_tap else ""
            raise ParameterError(f"inputs: {names} was not observed in any of these flows{other}")


def trained_on(data: Datasets, seed: int) -> dict[str, Any]:
    """What the provenance of a saved model says about the data and the seed."""
    return {"seed": seed} | {f"sha256 of {name}": digest for name, digest in data.digests().items()}


def compare(order: Order, output: Path, *, progress: bool = False, **options: Any) -> pd.DataFrame:
    """Train every kind of classifier on the same runs, and test all on the same others.

    Parameters
    ----------
    order : Order
    output : Path
        Receives a model folder for each kind, ``comparison.csv`` and ``comparison.html``.
    progress : bool
    **options
        ``epochs`` and ``device``, as for :func:`train`.

    Returns
    -------
    DataFrame
        One row per window length and classifier: ``window_ms``, ``classifier``, ``inputs``, and the scores.

    Raises
    ------
    ParameterError
        No runs are held out, or flows are too short.
    """
    if not order.testing:
        raise ParameterError("test_share: a comparison needs runs to test on, so at least two runs in all")
    tables = []
    for name, kind in CLASSIFIERS.items():
        inputs = kind.inputs
        if kind.one_tap != inputs:
            _, windows = order.data.windows(order.training, order.windows_ms, inputs, per_flow=1)
            if any(np.isnan(part.X).all(axis=(0, 1)).any() for part in windows):
                inputs = kind.one_tap
        if progress:
            note(f"{name} …")
        _, scores = train(order, name, output / name, inputs=inputs, progress=progress, **options)
        assert scores is not None  # there are runs to test on
        scores.insert(1, "classifier", name)
        scores.insert(2, "inputs", inputs)
        tables.append(scores)
    table = pd.concat(tables, ignore_index=True).sort_values("window_ms", kind="stable", ignore_index=True)
    with replacing(output / "comparison.csv") as tmp:
        write_csv(table, tmp)
    with replacing(output / "comparison.html") as tmp:
        comparison_figure(table).write_html(tmp, include_plotlyjs=True)
    return table


def comparison_figure(table: pd.DataFrame) -> go.Figure:
    """Macro F1 with its interval, by window length and classifier.

    Parameters
    ----------
    table : DataFrame
        From :func:`compare`.

    Returns
    -------
    plotly.graph_objects.Figure
    """
    from ..plot.style import COLOURS, error_bars, figure, small

    runs = int(table["runs"].max())
    fig = figure(
        "Classifiers compared"
        + small(f"on {runs} run{'s' if runs != 1 else ''} held out; lines are 95 % intervals over runs"),
        xaxis_title="window length",
        yaxis_title="macro F1",
        yaxis_range=[0, 1.03],
        scattermode="group",
    )
    for (name, rows), colour in zip(table.groupby("classifier", sort=False), COLOURS, strict=False):
        fig.add_scatter(
            x=[f"{ms:g} ms" for ms in rows["window_ms"]],
            y=rows["f1"],
            error_y=error_bars(rows["f1"], rows["low"], rows["high"]),
            mode="markers",
            marker={"color": colour, "size": 9},
            name=str(name),
        )  # fmt: skip
    return fig
