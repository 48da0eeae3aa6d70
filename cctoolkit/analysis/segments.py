"""How long a flow's full segments are, from its slots: congestion controls count in segments, not in bytes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from .._support.ethernet import FULL_SEGMENT_BYTES

__all__ = ["LENGTHS", "USUAL_SEGMENT_BYTES", "packet_lengths", "segment_bytes"]

#: Columns of slots that tell the length of packets.
LENGTHS = ("in_bytes", "in_packets")
#: What a flow's full segments are taken to carry where its packets do not show it.
USUAL_SEGMENT_BYTES = float(FULL_SEGMENT_BYTES)
#: Full segments have more payload than the first (RFC 9293's default is 536 with options), or at least the second if
#: the flow has none that are longer (the smallest MTU of RFC 791, less headers), and less than the third, which no
#: packet on Ethernet has.
_SHORT, _SHORTEST, _OFFLOADED = 500, 28, 9_216
#: The most payload of a segment in an ordinary Ethernet frame, and the least of one in a jumbo frame (clouds have MTUs
#: from 8896 bytes). A length in between is that of several segments, if they can be equal.
_ETHERNET, _JUMBO = 1_460, 8_800


def packet_lengths(slots: pd.DataFrame) -> np.ndarray:
    """The mean payload of each slot's packets, rounded; NaN in slots without data, or if the table cannot tell."""
    there = slots.loc[:, slots.columns.isin(LENGTHS)].select_dtypes("number")
    if sorted(map(str, there)) != sorted(LENGTHS):
        return np.full(len(slots), np.nan)
    came, packets = (there[name].to_numpy(np.float64, na_value=0) for name in LENGTHS)
    sent = (packets > 0) & (came > 0) & np.isfinite(packets)
    lengths = np.full(len(slots), np.nan)
    with np.errstate(over="ignore"):
        lengths[sent] = np.minimum(came[sent] / packets[sent], _OFFLOADED).round()
    return lengths


def segment_bytes(lengths: np.ndarray) -> float:
    """Payload of a flow's full segments; NaN if its packets do not show it.

    Parameters
    ----------
    lengths : array, slots
        From :func:`packet_lengths`.

    Notes
    -----
    A flow's full segments are as long as its packets are on average in most slots. Shorter packets come from an
    application that writes little, unless the flow has no longer ones (a path with a small MTU, as Nebby's). Longer
    ones come from segmentation or receive offload: of up to six segments, the length of one follows, if all are equal.
    """
    lengths = lengths[~np.isnan(lengths)]
    if not len(lengths):
        return np.nan
    usual = int(np.bincount(lengths.astype(int)).argmax())
    full = usual > _SHORT or _SHORTEST <= usual == lengths.max()
    if not full or usual >= _OFFLOADED:
        return np.nan
    if _ETHERNET < usual < _JUMBO:
        segments = math.ceil(usual / _ETHERNET)
        if usual % segments == 0:
            return usual / segments
        if lengths.max() > usual:
            return np.nan
    return float(usual)
