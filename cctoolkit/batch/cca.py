"""The table ``cca``: what a classifier says of the long flows, from their slots alone.

It is made of files that are there, so another model costs no second reading of the captures. This is the place where
:mod:`cctoolkit.identify` comes in: anything with the two names of :class:`SlotClassifier` will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from .. import __version__
from ..errors import ParameterError
from .dataset import Dataset
from .tables import TableWriter

__all__ = ["SlotClassifier", "classify", "load_classifier"]

_ROWS = 1 << 19  # of slots, at a time


class SlotClassifier(Protocol):
    """What names congestion controls by slots. It is sent to the workers, so it has to be picklable."""

    #: Of the model, with its version: predictions of one name are never made twice.
    name: str

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        """One row a flow that can be told: ``flow_id``, ``cca``, ``probability`` (others are not kept).

        `slots` is :data:`cctoolkit.schema.SLOTS` of one tap, ``attrs["slot_ms"]`` the length of a slot; all slots of a
        flow come in one call.
        """
        ...


def load_classifier(model: str) -> SlotClassifier:
    """A classifier by what `cct batch --model` was given.

    Raises
    ------
    ParameterError
        There is none of that name.
    """
    from .. import identify

    load: Any = getattr(identify, "load", None)
    if load is None:
        raise ParameterError(f"model: {model!r} cannot be had: this version has no models")
    classifier = load(model)
    if not hasattr(classifier, "predict_slots"):
        raise ParameterError(f"model: {model!r} does not classify slots of one tap")
    return classifier


def classify(dataset: Dataset, capture: str, classifier: SlotClassifier) -> int:
    """Predict all long flows of a capture that is done, unless that was done; gives how many rows were written."""
    if dataset.classified(classifier.name, capture):
        return 0
    manifest = dataset.manifest(capture)
    assert manifest is not None
    rows = 0
    for block in range(manifest["blocks"]):
        provenance = {
            "capture": manifest["name"],
            "sha256": manifest["sha256"],
            "settings": dataset.settings.as_dict(),
            "model": classifier.name,
            "version": __version__,
        }
        with TableWriter(dataset.cca_path(classifier.name, capture, block), "cca", provenance) as writer:
            for slots in _whole_flows(dataset.block_path("slots", capture, block)):
                slots.attrs["slot_ms"] = dataset.settings.slot_ms
                writer.write(classifier.predict_slots(slots)[["flow_id", "cca", "probability"]])
        rows += writer.rows
    dataset.write_classified(classifier.name, capture, rows)
    return rows


def _whole_flows(path: Path) -> Iterator[pd.DataFrame]:
    """A file of slots in pieces, cut between flows."""
    import pyarrow.parquet as pq

    rest: pd.DataFrame | None = None
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS):
            # one batch at a time does not know of the pandas types in the file's metadata: a table does
            import pyarrow as pa

            frame = pa.Table.from_batches([batch], file.schema_arrow).to_pandas()
            if rest is not None:
                frame = pd.concat([rest, frame], ignore_index=True)
            last = frame["flow_id"] == frame["flow_id"].iloc[-1]
            rest = frame[last]
            if not last.all():
                yield frame[~last].reset_index(drop=True)
    if rest is not None:
        yield rest.reset_index(drop=True)
