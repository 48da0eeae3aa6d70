"""Naming flows: slots in, congestion controls out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ...analysis.sender_view import seen_by_sender

__all__ = ["Naming", "SlotClassifier", "load_classifier"]


class SlotClassifier(Protocol):
    """The interface of a classifier for live flows.

    See Also
    --------
    watch : calls it
    cctoolkit.identify.Model : the usual one

    Examples
    --------
    >>> class ByRate:
    ...     def predict_slots(self, slots):
    ...         rate = slots.groupby("flow_id").in_bytes.mean()
    ...         names = np.where(rate > 1000, "fast", "slow")
    ...         return pd.DataFrame({"flow_id": rate.index, "cca": names, "probability": 1.0})
    >>> slots = cct.compute_slots(cct.example("cubic").ingress, slot_ms=10)
    >>> ByRate().predict_slots(slots).cca.tolist()
    ['fast']
    """

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        """One row per flow of a slots table: ``flow_id``, ``cca``, ``probability``."""


def load_classifier(name: str | None = None) -> SlotClassifier | None:
    """A model of :mod:`cctoolkit.identify`; by default the bundled one, or None if there is none.

    Raises
    ------
    ParameterError, SchemaError
        There is no such model, or it is damaged.
    """
    from ..bundle import load
    from ..classify import default_model

    name = name or default_model()
    return None if name is None else load(name)


class Naming:
    """Keeps the latest slots and names their flows on request.

    Parameters
    ----------
    classifier : SlotClassifier or None
        With None, nothing is named.
    slot_ns : int
    history_s : float
        Duration of each flow that the classifier sees.
    """

    def __init__(self, classifier: SlotClassifier | None, slot_ns: int, history_s: float = 10.0) -> None:
        self._classifier = classifier
        self._slots = round(history_s * 1e9 / slot_ns)
        self._parts: list[pd.DataFrame] = []

    def keep(self, slots: pd.DataFrame) -> None:
        """Take new rows."""
        if self._classifier is not None and len(slots):
            self._parts.append(slots)

    def names(
        self, now_slot: int, rtts: Mapping[int, tuple[float, float]] | None = None
    ) -> dict[int, dict[str, Any]]:
        """The classifier's result by flow number: at least ``cca`` and ``probability``.

        `rtts` are those from the tap to the receiver and to the sender, as from :meth:`Collector.rtts`. Flows that have
        some are named as their senders see them (:func:`cctoolkit.seen_by_sender`).
        """
        if self._classifier is None or not self._parts:
            return {}
        slots = pd.concat(self._parts, ignore_index=True)
        # Rows become known late: a full history ends with each flow's last row, not now.
        last = slots.groupby("flow_id")["slot"].transform("max")
        slots = slots[(slots["slot"] > last - self._slots) & (last >= now_slot - self._slots)]
        slots = slots.sort_values(["flow_id", "slot"], kind="stable", ignore_index=True)
        slots.attrs["slot_ms"] = self._parts[-1].attrs["slot_ms"]
        self._parts = [slots]
        if not len(slots):
            return {}
        seen = seen_by_sender(_since_gaps(slots), _flows(rtts or {}))
        table = self._classifier.predict_slots(seen)
        return {int(row["flow_id"]): {str(k): v for k, v in row.items()} for row in table.to_dict("records")}


def _since_gaps(slots: pd.DataFrame) -> pd.DataFrame:
    """Each flow's rows since the last one that lacks its predecessor: what a collector missed is not known."""
    begins = (slots["slot"].diff() != 1) | (slots["flow_id"].diff() != 0)
    stretch = begins.cumsum()
    whole = slots[stretch == stretch.groupby(slots["flow_id"]).transform("max")].reset_index(drop=True)
    whole.attrs = slots.attrs
    return whole


def _flows(rtts: Mapping[int, tuple[float, float]]) -> pd.DataFrame:
    """Columns of a flows table, whose initiators are the senders."""
    receiver, sender = np.array(list(rtts.values()), np.float64).reshape(-1, 2).T
    return pd.DataFrame(
        {
            "flow_id": list(rtts), "handshake_rtt_ns": receiver + sender, "syn_rtt_ns": receiver,
            "payload_fwd": 1, "payload_rev": 0,
        }
    )  # fmt: skip
