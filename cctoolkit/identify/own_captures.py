"""Add labelled captures to a dataset: one run, or a folder of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from .._support.arguments import shown
from .._support.terminal import note
from .._support.waiting import progress_bar
from .._support.words import did_you_mean, plural, printable
from ..analysis.sender_view import seen_by_sender
from ..capture.model import Capture
from ..capture.reader import read_capture
from ..errors import CCToolkitError, ParameterError, SchemaError
from .dataset import Recording, SlotDataset, index_dataset, record, save_recording
from .readers import label_flows, labels_from_names, read_iperf3, read_labels, read_tshark_fields
from .readers.labels import KNOWN, LEAST_PAYLOAD_BYTES, stem

__all__ = ["add_captures", "add_folder"]

#: Suffixes of ``tshark -T fields`` exports, before that of a compression.
_EXPORTS = (".csv", ".tsv", ".txt", ".fields")
#: Files named in a message; the others are counted.
_NAMED = 3
#: Bytes of a run's name: its files have it, a suffix, and while they are written more.
_LONGEST_NAME = 200


def add_captures(
    folder: Path,
    ingress: str,
    egress: str | None = None,
    labels: Path | None = None,
    *,
    name: str | None = None,
    slot_ms: float | None = None,
    tunnel: str = "outer",
    check_taps: bool = True,
) -> tuple[Recording, int]:
    """Add captures to a dataset, which is created if it does not exist.

    Parameters
    ----------
    folder : Path
        The dataset.
    ingress, egress : str
        One or two taps: captures, or exports of ``tshark -T fields`` (``.csv``, ``.tsv``, ``.txt`` or ``.fields``,
        compressed or not).
    labels : Path, optional
        A table for :func:`~.readers.read_labels`, or the ``.json`` of the iperf3 tests that made the traffic. By
        default, the congestion control and settings come from the first capture's name
        (:func:`~.readers.labels_from_names`).
    name : str, optional
        Name of the run; by default, the capture's.
    slot_ms : float, optional
        Slot length of a new dataset, 1 ms by default. An existing dataset keeps its own.
    tunnel : str
        As for :func:`cctoolkit.read_capture`.
    check_taps : bool
        As for :func:`cctoolkit.compute_slots`.

    Returns
    -------
    Recording
    int
        Number of rows of `labels` that match no flow.

    Raises
    ------
    ParameterError
        The dataset has another slot length or a run of that name, its columns are numbers where the labels are text,
        there are no labels, or the captures cannot be taps of one queue.
    SchemaError
        The labels or the dataset cannot be read.
    CaptureFormatError
        A file is not a capture.
    """
    before = _dataset(folder, slot_ms)
    name = name or printable(_stem(ingress))
    if Path(name).name != name or not name.isprintable():
        raise ParameterError(f"name: {name!r} must be a word")
    if _is_long(name):
        raise ParameterError(f"name: {shown(name)} is longer than {_LONGEST_NAME} bytes")
    if before is not None and name in before.runs:
        raise ParameterError(f"name: {folder} has a run {name}; choose another --name")
    recording, unused = _record(
        ingress, egress, _labels(ingress, labels), before,
        name=name, slot_ms=slot_ms, tunnel=tunnel, check_taps=check_taps,
    )  # fmt: skip
    _note_new(recording.flows["cca"])
    captures = [capture for capture in (ingress, egress) if capture]
    save_recording(folder, recording, {"made_by": "captures", "captures": captures})
    index_dataset(folder, {} if before is None else before.made_with, recording.slot_ms)
    return recording, unused


def add_folder(
    folder: Path,
    source: Path,
    labels: Path | None = None,
    *,
    slot_ms: float | None = None,
    tunnel: str = "outer",
    progress: bool = True,
) -> pd.DataFrame:
    """Add every capture and field export in a folder to a dataset, each as a run seen by one tap.

    Runs are named after the folder and the files' paths in it. Runs already in the dataset are left out, so that
    an interrupted call can be repeated. Files without a label and files that cannot be read are left out, with a line
    on standard error.

    Parameters
    ----------
    folder : Path
        The dataset.
    source : Path
        Folder with the files, which is searched recursively.
    labels : Path, optional
        A table for :func:`~.readers.read_labels` with a column ``file``. By default, labels come from the names of
        files and folders (:func:`~.readers.labels_from_names`).
    slot_ms, tunnel
        As for :func:`add_captures`.
    progress : bool

    Returns
    -------
    DataFrame
        The flows added, as in :attr:`~.dataset.SlotDataset.flows`.

    Raises
    ------
    ParameterError
        Nothing could be added, two files have the same name, or the dataset has another slot length.
    SchemaError
        The labels or the dataset cannot be read, or the labels have no column ``file``.
    """
    before = _dataset(folder, slot_ms)
    table = None if labels is None else read_labels(labels)
    if table is not None and "file" not in table:
        raise SchemaError(
            f"{labels}: labels: a folder needs a column 'file': the capture that each row is about"
        )
    known = labels_from_names(source)
    files = [Path(file) for file in known["file"]]
    if not files:
        raise ParameterError(f"{source}: no captures or field exports in this folder")
    names = [printable("-".join((source.resolve().name, *_parts(file, source)))) for file in files]
    for name, times in pd.Series(names).value_counts().items():
        if times > 1:
            twice = [str(file) for file, own in zip(files, names, strict=True) if own == name]
            raise ParameterError(f"{source}: {' and '.join(twice)} would be one run, {name}; rename one")
    wanted = [
        (file, name, row)
        for file, name, row in zip(files, names, range(len(files)), strict=True)
        if _is_long(name) or not (folder / "slots" / f"{name}.json").is_file()
    ]
    added, unlabelled, left_out = [], [], []
    with progress_bar(
        total=len(files), initial=len(files) - len(wanted), unit="run", disable=not progress
    ) as bar:
        for file, name, row in wanted:
            bar.update()
            if table is None and known["cca"].isna()[row]:
                unlabelled.append(file)
                continue
            if _is_long(name):
                left_out.append(f"{file}: names of run and folders have more than {_LONGEST_NAME} bytes")
                continue
            own = known.iloc[[row]].dropna(axis=1) if table is None else table
            try:
                recording, _ = _record(
                    str(file), None, own, before, name=name, slot_ms=slot_ms, tunnel=tunnel
                )
            except (CCToolkitError, OSError) as err:
                left_out.append(str(err) if str(file) in str(err) else f"{file}: {err}")
                continue
            save_recording(folder, recording, {"made_by": "captures", "captures": [str(file)]})
            added.append(recording.flows.assign(run=name))
    if unlabelled:
        note(f"left out {_some(unlabelled)}: no congestion control in the name; give --labels FILE")
    for reason in left_out[:_NAMED]:
        note(f"left out {reason}")
    if len(left_out) > _NAMED:
        note(f"left out {plural(len(left_out) - _NAMED, 'more file')}")
    if not added:
        had = f"{len(files) - len(wanted)} of its " if len(wanted) < len(files) else ""
        raise ParameterError(f"{source}: nothing to add from {had}{plural(len(files), 'file')}")
    flows = pd.concat(added, ignore_index=True)
    _note_new(flows["cca"])
    length = before.slot_ms if before is not None else slot_ms or 1.0
    index_dataset(folder, {} if before is None else before.made_with, length)
    return flows


def _is_long(name: str) -> bool:
    """Whether files cannot have this name."""
    return len(os.fsencode(name)) > _LONGEST_NAME


def _dataset(folder: Path, slot_ms: float | None) -> SlotDataset | None:
    """The dataset in the folder, if there is one."""
    before = SlotDataset(folder) if (folder / "dataset.json").is_file() else None
    if before is not None and slot_ms not in (None, before.slot_ms):
        raise ParameterError(f"slot_ms: must be {before.slot_ms:g}, as in {folder}")
    return before


def _labels(ingress: str, labels: Path | None) -> pd.DataFrame:
    """Labels from a table, iperf3's JSON, or the capture's name."""
    if labels is not None:
        return read_iperf3(labels).streams if labels.suffix == ".json" else read_labels(labels)
    if ingress == "-":
        raise ParameterError("labels: a capture from standard input needs a table (--labels FILE)")
    known = labels_from_names(ingress)
    if known["cca"].isna().all():
        raise ParameterError(
            f"labels: neither {ingress} nor its folder is named after one congestion control; give a table "
            "(--labels FILE)"
        )
    return known.dropna(axis=1)


def _record(
    ingress: str, egress: str | None, labels: pd.DataFrame, before: SlotDataset | None, *,
    name: str, slot_ms: float | None, tunnel: str, check_taps: bool = True,
) -> tuple[Recording, int]:  # fmt: skip
    """The labelled flows of captures, and the number of rows of the labels that match none."""
    before_queue = _packets(ingress, tunnel)
    known = label_flows(before_queue, labels, least_payload_bytes=_min_payload_bytes(before_queue))
    unused: int = known.attrs["unused"]
    known = _with_numbers(
        known.dropna(subset="cca").drop(columns=["protocol", "line"], errors="ignore"), before
    )
    recording = record(
        before_queue,
        None if egress is None else _packets(egress, tunnel),
        known,
        name=name,
        slot_ms=before.slot_ms if before is not None else slot_ms or 1.0,
        check_taps=check_taps,
    )
    slots = seen_by_sender(recording.slots, before_queue)
    return replace(recording, slots=slots), unused


def _min_payload_bytes(capture: Capture) -> int:
    """Minimum data of a flow that counts: more than a control connection has; if no flow has that much, the maximum."""
    columns = capture.columns
    way = 2 * columns["flow_id"].astype(np.int64) + columns["direction"]
    return min(LEAST_PAYLOAD_BYTES, max(int(np.bincount(way, columns["payload_bytes"]).max(initial=0)), 1))


def _note_new(ccas: pd.Series) -> None:
    """Print congestion controls that the toolkit does not know."""
    for cca in sorted(set(ccas) - KNOWN):
        note(f"labels: {cca!r} is a new congestion control{did_you_mean(cca, KNOWN)}")


def _packets(path: str, tunnel: str) -> Capture:
    """Read a capture, or tshark's export of one."""
    if set(_EXPORTS) & set(Path(path).suffixes):
        return read_tshark_fields(path)
    return read_capture(path, tunnel=tunnel)  # type: ignore[arg-type]


def _stem(capture: str) -> str:
    """A capture's name without its suffixes."""
    name = Path(capture).name.partition(".")[0]
    if not name or name == "-":
        raise ParameterError("name: a capture from standard input needs a name (--name)")
    return name


def _parts(file: Path, source: Path) -> Iterator[str]:
    """The words of a file's path in the folder, without suffixes."""
    *folders, name = file.relative_to(source).parts
    yield from folders
    yield stem(name)


def _some(files: Iterable[Path]) -> str:
    """The first files, and how many more there are."""
    names = [str(file) for file in files]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _with_numbers(flows: pd.DataFrame, before: SlotDataset | None) -> pd.DataFrame:
    """Convert columns of numbers; the dataset's columns keep their types."""
    flows = flows.copy()
    for column in flows.columns.difference(["flow_id", "cca", "src", "dst", "sport", "dport"]):
        values = pd.to_numeric(flows[column], errors="coerce")
        if values.notna().sum() == flows[column].notna().sum():
            flows[column] = values
        elif (
            before is not None
            and column in before.flows
            and pd.api.types.is_numeric_dtype(before.flows[column])
        ):
            raise ParameterError(f"labels: column {column!r} is text, but numbers in the dataset")
    return flows
