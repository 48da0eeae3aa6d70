"""The table ``cca``: what a classifier says of the long flows, from their slots alone.

It is made of files that are there, so another model costs no second reading of the captures. This is the place where
``cctoolkit.identify`` comes in, by :class:`SavedModel`; anything else like :class:`SlotClassifier` will do.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pandas as pd

from .._support.version import __version__
from .dataset import Dataset
from .tables import TABLES, TableWriter

if TYPE_CHECKING:
    from ..identify import Model

__all__ = ["SavedModel", "SlotClassifier", "classify"]

_ROWS = 1 << 19  # of slots, at a time


class SlotClassifier(Protocol):
    """What names congestion controls by slots. It is sent to the workers, so it has to be picklable.

    Attributes
    ----------
    name : str
        Of the model, with its version: predictions of one name are never made twice.
    slot_ms : float
        What it wants slots to be.
    """

    name: str
    slot_ms: float

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        """A row a flow, with the columns of table ``cca`` as ``cctoolkit.identify.Model.predict_slots`` has them.

        `slots` is :data:`cctoolkit.schema.SLOTS` of one tap, ``attrs["slot_ms"]`` the length of a slot; all slots of a
        flow come in one call.
        """
        ...


class SavedModel:
    """A model of ``cctoolkit.identify``, opened by each worker for itself.

    Parameters
    ----------
    model : str or path
        As for ``cctoolkit.identify.load``; a folder has to be there for all workers.

    Raises
    ------
    ParameterError, SchemaError
        There is no such model, or it is damaged.
    """

    def __init__(self, model: str | os.PathLike[str]) -> None:
        folder = Path(model).expanduser()
        self._model = str(folder.resolve()) if folder.is_dir() else str(model)
        opened = _opened(self._model)
        self.slot_ms = opened.slot_ms
        # model.json has the hashes of all the other files
        about = json.dumps(opened.about, sort_keys=True)
        self.name = f"{opened.name}-{hashlib.sha256(about.encode()).hexdigest()[:8]}"

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        """As ``cctoolkit.identify.Model.predict_slots``."""
        return _opened(self._model).predict_slots(slots)


@functools.lru_cache(maxsize=4)
def _opened(model: str) -> Model:
    from ..identify import load

    return load(model)


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
                writer.write(classifier.predict_slots(slots)[list(TABLES["cca"])])
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
