"""A benchmark for identifying congestion controls: fixed settings, windows to name, and a score for each part.

The parts are ``home``, settings like those that the bundled models learned from; the families of
:mod:`~.elsewhere`; ``offload``, the runs of ``home`` with segmentation offload, which only real hosts have; and
``others``, congestion controls that a model for Reno, CUBIC and BBR does not know. The same number of runs and seed
gives the same scenarios; in the simulator and in virtual time, also the same packets.

Data flows one way: :func:`build` makes the datasets, :func:`questions` lists the windows, :func:`answers` gets a
model's names for them (:func:`read_answers` reads those of other classifiers), and :mod:`~.leaderboard` scores them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .._support import arguments
from .._support.csv import read_csv
from ..analysis.limits import NAMEABLE, flow_limits
from ..errors import ParameterError, SchemaError
from .behaviour import AS
from .dataset import Recording, SlotDataset, build_dataset
from .draws import PAPER_CCAS
from .elsewhere import FAMILIES
from .inputs import VIEW_INPUTS
from .oracle import SENDER_INPUTS, sender_arrays
from .probabilities import UNKNOWN
from .readers.labels import cca_name
from .settings import KERNEL_CCAS, SIMULATOR_CCAS, jobs
from .windows import cut_windows, slot_arrays, window_slots, windows_at

if TYPE_CHECKING:
    from .baselines import Baseline
    from .bundle import Model

__all__ = ["PARTS", "TRUTH", "WINDOWS_MS", "answers", "build", "questions", "read_answers"]

#: Parts of the benchmark, in the order of its tables.
PARTS = ("home", *FAMILIES, "offload", "others")
#: Those that the simulator lacks: its packets are segments.
_REAL = ("offload",)
WINDOWS_MS = (100.0, 1000.0, 10_000.0)
#: Added to the seed of ``others``: models are trained on the first runs of the same kind of settings.
_OTHERS_SEED = 7000

#: What makes a window: the columns by which an answer belongs to a question.
_KEY = ["part", "run", "flow_id", "window_ms", "first_slot", "taps"]
#: What is true of a window: not for those who answer.
TRUTH = ("cca", *AS, "limited_by")
#: Columns of answers that are text, even if it looks like numbers.
_TEXTS = ["part", "run", "said"]
#: What only the tap after the queue tells.
_BEHIND = ["out_bytes", "out_packets", "out_ce_packets", "out_seq", "cbiq_bytes", "drops_estimate"]


def build(
    directory: str | os.PathLike[str],
    *,
    parts: Sequence[str] | None = None,
    runs: int = 24,
    seed: int = 1,
    on: str = "simulator",
    workers: int | None = None,
    progress: bool = True,
) -> dict[str, SlotDataset]:
    """Make the datasets, ``directory/PART``; existing runs are kept.

    Parameters
    ----------
    directory : path
    parts : sequence of str, optional
        Some of :data:`PARTS`; by default all that `on` has. The simulator has no ``offload``.
    runs : int
        Runs of each part.
    seed : int
        Seed for drawing the settings.
    on, workers, progress
        As for :func:`~.dataset.build_dataset`.

    Returns
    -------
    dict of str to SlotDataset

    Raises
    ------
    ParameterError
        There is no such part, or a folder has runs of other settings.
    """
    there = tuple(part for part in PARTS if on != "simulator" or part not in _REAL)
    found = {}
    for part in there if parts is None else parts:
        if part not in there:
            raise ParameterError(f"part: {part!r} must be one of {', '.join(there)}")
        ccas: tuple[str, ...] = PAPER_CCAS
        if part == "others":
            known = SIMULATOR_CCAS if on == "simulator" else KERNEL_CCAS
            ccas = tuple(cca for cca in known if cca not in PAPER_CCAS)
            scenarios, special = jobs("every-cca", on=on, runs=runs, seed=_OTHERS_SEED + seed, ccas=ccas)
        elif part in ("home", "offload"):
            scenarios, special = jobs("hard", on=on, runs=runs, seed=seed, part="test")
        else:
            scenarios, special = jobs("elsewhere", on=on, runs=runs, seed=seed, part=part)
        found[part] = build_dataset(
            scenarios, Path(directory) / part, on=on, special=special, background=0, offload=part == "offload",
            workers=workers, progress=progress,
        )  # fmt: skip
    return found


def questions(
    datasets: Mapping[str, SlotDataset],
    windows_ms: Sequence[float] = WINDOWS_MS,
    *,
    per_flow: int = 2,
    seed: int = 0,
) -> pd.DataFrame:
    """The windows to name: each with two taps, and with the first one alone.

    Parameters
    ----------
    datasets : mapping of str to SlotDataset
        From :func:`build`.
    windows_ms, per_flow, seed
        As for :func:`~.windows.cut_windows`.

    Returns
    -------
    DataFrame
        ``part``, ``run``, ``flow_id``, ``window_ms``, ``first_slot``, ``taps`` (2 or 1), and :data:`TRUTH`: ``cca``
        (the sender's), ``as_reno`` and ``as_cubic`` (whether Reno's and CUBIC's windows would have moved as the
        sender's did, :mod:`~.behaviour`), ``limited_by`` (:func:`cctoolkit.flow_limits` of the whole flow).
    """
    rows = []
    for part, dataset in datasets.items():
        for recording in dataset:
            if part == "limited":
                recording = _without_losses(recording)
            limits = flow_limits(recording.slots).set_index("flow_id")["limited_by"]
            for ms in windows_ms:
                window_slots(ms, recording.slot_ms)
                try:
                    cut = cut_windows([recording], ms, VIEW_INPUTS, per_flow=per_flow, seed=seed)
                except ParameterError:
                    continue  # no flow is long enough
                table = cut.table.reindex(columns=["run", "flow_id", "cca", "window_ms", "first_slot", *AS])
                table = table.assign(part=part, limited_by=table["flow_id"].map(limits))
                rows += [table.assign(taps=taps) for taps in (2, 1)]
    if not rows:
        raise ParameterError("benchmark: no flow is long enough for a window")
    return pd.concat(rows, ignore_index=True)[[*_KEY, *TRUTH]]


def _without_losses(recording: Recording) -> Recording:
    """A recording without the flows that the bottleneck slowed down after all, by losses."""
    flows = recording.flows[recording.flows["retransmits"] == 0]
    return dataclasses.replace(recording, flows=flows.reset_index(drop=True))


def answers(
    model: Model | Baseline, datasets: Mapping[str, SlotDataset], asked: pd.DataFrame
) -> pd.DataFrame:
    """A model's names for the windows, as :meth:`Model.predict_slots` would give them: none for flows not limited here.

    Parameters
    ----------
    model : Model or Baseline
    datasets : mapping of str to SlotDataset
        From :func:`build`.
    asked : DataFrame
        From :func:`questions`.

    Returns
    -------
    DataFrame
        `asked`, with ``said`` and ``probability`` (of the most probable name; null without one). Windows without the
        model's inputs are left out: those of one tap, if it needs two.
    """
    rows = []
    for (part, run), some in asked.groupby(["part", "run"], sort=False):
        (recording,) = datasets[str(part)].where([str(run)])
        for taps, windows in some.groupby("taps", sort=False):
            if model.inputs == SENDER_INPUTS:
                arrays = sender_arrays(recording)
            else:
                slots = recording.slots if taps == 2 else _first_tap(recording.slots)
                arrays = slot_arrays(slots, model.inputs)
            known = list(arrays)
            for ms, same in windows.groupby("window_ms", sort=False):
                length = window_slots(float(str(ms)), recording.slot_ms)
                X = windows_at(known, same, length)
                if not model.any_length and np.isnan(X).any():
                    continue
                rows.append(same.assign(**_answer_columns(model, X, same["limited_by"])))
    if not rows:
        raise ParameterError(f"benchmark: {model.name} lacks all inputs that it needs here")
    return pd.concat(rows, ignore_index=True)


def _answer_columns(model: Model | Baseline, X: np.ndarray, limited_by: pd.Series) -> dict[str, np.ndarray]:
    names, likely = model.answer(X)
    quiet = ~limited_by.isin(NAMEABLE).to_numpy()
    return {"said": np.where(quiet, UNKNOWN, names), "probability": np.where(quiet, np.nan, likely)}


def _first_tap(slots: pd.DataFrame) -> pd.DataFrame:
    return slots.assign(**{name: np.nan for name in _BEHIND if name in slots})


def _cca(said: str) -> str:
    return UNKNOWN if said.strip().lower() == UNKNOWN else cca_name(said)


def read_answers(path: str | os.PathLike[str], asked: pd.DataFrame) -> pd.DataFrame:
    """Answers of another classifier, from CSV.

    Parameters
    ----------
    path : path
        Columns of the key (``part``, ``run``, ``flow_id``, ``window_ms``, ``first_slot``, ``taps``), ``said``, and
        optionally ``probability``. Missing windows count as unknown.
    asked : DataFrame
        From :func:`questions`.

    Returns
    -------
    DataFrame
        As from :func:`answers`. Other spellings of a congestion control count as its name
        (:func:`~.readers.labels.cca_name`).

    Raises
    ------
    SchemaError
        The file is not such a table, or answers a window that is not in `asked`.
    """
    try:
        given = read_csv(path, dtype=dict.fromkeys(_TEXTS, "str"))
    except ValueError:
        raise SchemaError(f"{os.fspath(path)}: not a CSV table") from None
    probability = ["probability"] if "probability" in given else []
    given = arguments.table(
        os.fspath(path), given, [*_KEY[2:], *probability], _TEXTS, whole=["flow_id", "first_slot", "taps"],
        error=SchemaError,
    )  # fmt: skip
    if given.duplicated(_KEY).any():
        raise SchemaError(f"{os.fspath(path)}: answers a window twice")
    if probability and not given["probability"].dropna().between(0, 1).all():
        raise SchemaError(f"{os.fspath(path)}: column 'probability' has values that are not between 0 and 1")
    columns = [*_KEY, "said", *probability]
    both = asked.merge(given[columns], on=_KEY, how="outer", indicator=True)
    strange = both[both["_merge"] == "right_only"]
    if len(strange):
        first = strange.iloc[0]
        raise SchemaError(
            f"{os.fspath(path)}: {len(strange):,} windows are not in questions.csv, such as slot {first['first_slot']} "
            f"of flow {first['flow_id']} in {arguments.shown(first['run'])}"
        )
    if "probability" not in both:
        both["probability"] = np.nan
    both["said"] = both["said"].fillna(UNKNOWN).map(_cca)
    return both[[*asked.columns, "said", "probability"]]
