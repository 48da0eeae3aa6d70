"""What the senders themselves know of a window: the inputs of the leaderboard's oracle.

Packets show a congestion window only indirectly. A classifier that is given the sender's own window, round-trip time
and deliveries in the same stretch of time, and nothing from before, shows how much that stretch holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..errors import ParameterError
from .dataset import Recording
from .windows import slot_arrays

__all__ = ["SENDER_INPUTS", "sender_arrays", "sender_summaries"]

#: Of the senders' states (``cctoolkit.identify.behaviour.STATES``). The slow-start threshold is not among them: it
#: tells of losses before the window.
SENDER_INPUTS = ("cwnd_packets", "srtt_ns", "delivered_packets")
#: Slots of 1 ms between the samples of a sender's states.
_STEP = 20
#: Pieces of a window whose growth is summarised.
_PIECES = 8


def sender_arrays(
    recording: Recording, inputs: Sequence[str] = SENDER_INPUTS
) -> Iterator[tuple[int, int, np.ndarray]]:
    """The senders' states as one array per flow, like :func:`~.windows.slot_arrays`.

    Yields
    ------
    flow_id, first slot, float64 array of slots x inputs
        In each slot the last sample by then.

    Raises
    ------
    ParameterError
        The recording has no states.
    """
    if recording.states is None:
        raise ParameterError(f"{recording.name}: the senders' windows are not known, as of captures")
    states = dict(iter(recording.states.groupby("flow_id", sort=False)))
    for flow, first, came in slot_arrays(recording.slots, ("in_bytes",)):
        if flow in states:
            slot = np.arange(first, first + len(came))
            last = np.searchsorted(states[flow]["slot"].to_numpy(), slot, side="right") - 1
            yield flow, first, states[flow][list(inputs)].to_numpy(np.float64)[np.maximum(last, 0)]


def sender_summaries(X: np.ndarray) -> np.ndarray:
    """Numbers that describe each window of the senders' states.

    Parameters
    ----------
    X : float array, windows x slots x :data:`SENDER_INPUTS`

    Returns
    -------
    float array, windows x numbers
        Of the window (in whole packets) and of the RTT, as logarithms: the first, last, lowest, highest, mean, standard
        deviation; of the window: its growth, in packets and by round trip; how often it grew, shrank and stayed, by how
        much at most, and by how much for a window's worth of deliveries (1 for Reno); its growth in eight parts, and
        how that changes; of the deliveries: their rate, its spread, and the packets of a round trip by the window.
    """
    at = np.unique(np.append(np.arange(0, X.shape[1], _STEP), X.shape[1] - 1))
    cwnd, rtt_ns, delivered = (X[:, at, i] for i in range(3))
    cwnd = np.floor(cwnd)
    rtt_ms = np.maximum(rtt_ns / 1e6, 0.01)
    span = float(at[-1] - at[0])
    grown, came = np.diff(cwnd, axis=1), np.diff(delivered, axis=1)
    mean = np.maximum(cwnd.mean(axis=1), 1)
    rate = (delivered[:, -1] - delivered[:, 0]) / span
    by_window = grown / np.maximum(came, 1) * cwnd[:, :-1]
    by_window[(came <= 0) | (grown < 0)] = np.nan
    known = ~np.isnan(by_window).all(axis=1)
    usual = np.full(len(X), np.nan)
    usual[known] = np.nanmedian(by_window[known], axis=1)
    pieces = np.diff(cwnd[:, np.rint(np.linspace(0, len(at) - 1, _PIECES + 1)).astype(int)], axis=1)
    columns = [
        *_described(np.log(np.maximum(cwnd, 1))),
        *_described(np.log(rtt_ms)),
        cwnd[:, -1] - cwnd[:, 0],
        (cwnd[:, -1] - cwnd[:, 0]) * np.median(rtt_ms, axis=1) / span,
        *((sign(grown, 0)).mean(axis=1) for sign in (np.greater, np.less, np.equal)),
        grown.max(axis=1),
        grown.min(axis=1),
        grown.min(axis=1) / mean,
        usual,
        *(pieces / mean[:, None]).T,
        *np.diff(pieces, axis=1).T,
        np.log(np.maximum(rate, 1e-3)),
        came.std(axis=1) / np.maximum(came.mean(axis=1), 1e-6),
        rate * np.median(rtt_ms, axis=1) / mean,
    ]
    return np.stack(columns, axis=1)


def _described(series: np.ndarray) -> list[np.ndarray]:
    return [
        series[:, 0], series[:, -1], series.min(axis=1), series.max(axis=1), series.mean(axis=1), series.std(axis=1),
    ]  # fmt: skip
