"""Add labelled captures to a dataset as a run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from .._support.terminal import note
from .._support.words import did_you_mean, printable
from ..capture.model import Capture
from ..capture.reader import read_capture
from ..errors import ParameterError
from .dataset import Recording, SlotDataset, index_dataset, record, save_recording
from .readers import label_flows, read_iperf3, read_tshark_fields
from .readers.labels import KNOWN

__all__ = ["add_captures"]

#: Suffixes of ``tshark -T fields`` exports, before that of a compression.
_EXPORTS = (".csv", ".tsv", ".txt", ".fields")


def add_captures(
    folder: Path,
    ingress: str,
    egress: str | None,
    labels: Path,
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
    labels : Path
        A table for :func:`~.readers.read_labels`, or the ``.json`` of the iperf3 tests that made the traffic.
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
        The dataset has another slot length or a run of that name, its columns have numbers and the labels text, or the
        captures cannot be taps of one queue.
    SchemaError
        The labels or the dataset cannot be read.
    CaptureFormatError
        A file is not a capture.
    """
    before = SlotDataset(folder) if (folder / "dataset.json").is_file() else None
    if before is not None and slot_ms not in (None, before.slot_ms):
        raise ParameterError(f"slot_ms: must be {before.slot_ms:g}, as in {folder}")
    name = name or printable(_stem(ingress))
    if Path(name).name != name or not name.isprintable():
        raise ParameterError(f"name: {name!r} must be a word")
    if before is not None and name in before.runs:
        raise ParameterError(f"name: {folder} has a run {name}; choose another --name")
    before_queue = _packets(ingress, tunnel)
    known = label_flows(before_queue, read_iperf3(labels).streams if labels.suffix == ".json" else labels)
    unused: int = known.attrs["unused"]
    known = _with_numbers(
        known.dropna(subset="cca").drop(columns=["protocol", "line"], errors="ignore"), before
    )
    for cca in sorted({cca for cca in known["cca"] if cca not in KNOWN}):
        note(f"labels: {cca!r} is a new congestion control{did_you_mean(cca, KNOWN)}")
    recording = record(
        before_queue,
        None if egress is None else _packets(egress, tunnel),
        known,
        name=name,
        slot_ms=before.slot_ms if before is not None else slot_ms or 1.0,
        check_taps=check_taps,
    )
    captures = [capture for capture in (ingress, egress) if capture]
    save_recording(folder, recording, {"made_by": "captures", "captures": captures})
    index_dataset(folder, {} if before is None else before.made_with, recording.slot_ms)
    return recording, unused


def _packets(path: str, tunnel: str) -> Capture:
    """Read a capture, or tshark's export of one."""
    if set(_EXPORTS) & set(Path(path).suffixes):
        return read_tshark_fields(path)
    return read_capture(path, tunnel=tunnel)  # type: ignore[arg-type]


def _stem(capture: str) -> str:
    """A capture's name without its suffixes."""
    stem = Path(capture).name.partition(".")[0]
    if not stem or stem == "-":
        raise ParameterError("name: a capture from standard input needs a name (--name)")
    return stem


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
            raise ParameterError(f"labels: column {column!r} is text, the dataset's is of numbers")
    return flows
