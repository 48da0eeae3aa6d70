"""The table ``cca``: a classifier's predictions for the long flows, from their slots alone.

It is computed from existing files, so another model does not need to read the captures again. :class:`SavedModel` uses
``cctoolkit.identify``; any other :class:`BatchClassifier` works too.
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

from .._support.parquet import readable
from .._support.version import __version__
from ..analysis.sender_view import seen_by_sender
from .dataset import Dataset
from .tables import TABLES, TableWriter

if TYPE_CHECKING:
    from ..identify import Model

__all__ = ["BatchClassifier", "SavedModel", "classify"]

_ROWS = 1 << 19  # slots at a time
#: What shows how far a flow's sender is from the tap.
_OF_FLOWS = ["flow_id", "handshake_rtt_ns", "syn_rtt_ns", "payload_fwd", "payload_rev"]


class BatchClassifier(Protocol):
    """Identifies congestion controls from slots. It is sent to the workers, so it must be picklable.

    Attributes
    ----------
    name : str
        Name of the model including its version; predictions under a name are never repeated.
    slot_ms : float
        Slot length that it requires, in ms.

    See Also
    --------
    SavedModel : a classifier that was saved

    Examples
    --------
    >>> class Constant:
    ...     name, slot_ms = "constant-1", 100.0
    ...     def predict_slots(self, slots):
    ...         return slots[["flow_id"]].drop_duplicates().assign(cca="cubic", probability=1.0)
    >>> classifier: BatchClassifier = Constant()
    """

    name: str
    slot_ms: float

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        """Predict one row per flow, with the columns of table ``cca`` as in ``cctoolkit.identify.Model.predict_slots``.

        ``limited_by`` may be missing. `slots` is :data:`cctoolkit.schema.SLOTS` of one tap, with the slot length in
        ``attrs["slot_ms"]``; all slots of a flow come in the same call.
        """
        ...


class SavedModel:
    """A model of ``cctoolkit.identify``, opened by each worker.

    Parameters
    ----------
    model : str or path
        As for ``cctoolkit.identify.load``; all workers must be able to read a folder.

    Raises
    ------
    ParameterError, SchemaError
        The model does not exist, or is damaged.

    See Also
    --------
    cctoolkit.identify.bundle.load : opens a model
    BatchClassifier : what the batch needs of a classifier

    Examples
    --------
    >>> SavedModel("cca").slot_ms
    1.0
    """

    def __init__(self, model: str | os.PathLike[str]) -> None:
        folder = Path(model).expanduser()
        self._model = str(folder.resolve()) if folder.is_dir() else str(model)
        opened = _opened(self._model)
        self.slot_ms = opened.slot_ms
        # model.json has the hashes of all other files
        about = json.dumps(opened.about, sort_keys=True)
        self.name = f"{opened.name}-{hashlib.sha256(about.encode()).hexdigest()[:8]}"

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        """See ``cctoolkit.identify.Model.predict_slots``."""
        return _opened(self._model).predict_slots(slots)


@functools.lru_cache(maxsize=4)
def _opened(model: str) -> Model:
    from ..identify import load

    return load(model)


def classify(dataset: Dataset, capture: str, classifier: BatchClassifier) -> int:
    """Predict all long flows of a finished capture, unless already done; return the number of rows written."""
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
        flows = pd.read_parquet(readable(dataset.block_path("flows", capture, block)), columns=_OF_FLOWS)
        with TableWriter(dataset.cca_path(classifier.name, capture, block), "cca", provenance) as writer:
            for slots in _whole_flows(dataset.block_path("slots", capture, block)):
                slots.attrs["slot_ms"] = dataset.settings.slot_ms
                table = classifier.predict_slots(seen_by_sender(slots, flows))
                if "limited_by" not in table:  # a classifier that does not ask
                    table = table.assign(limited_by="unknown")
                writer.write(table[list(TABLES["cca"])])
        rows += writer.rows
    dataset.write_classified(classifier.name, capture, rows)
    return rows


def _whole_flows(path: Path) -> Iterator[pd.DataFrame]:
    """Yield a file of slots in pieces of complete flows."""
    import pyarrow.parquet as pq

    rest: pd.DataFrame | None = None
    with pq.ParquetFile(readable(path)) as file:
        for batch in file.iter_batches(_ROWS):
            # unlike a single batch, a table knows the pandas types in the file's metadata
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
