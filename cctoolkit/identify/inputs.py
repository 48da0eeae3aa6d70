"""From raw windows to the inputs of networks; nothing here needs torch.

A window is an array of slots x inputs, windows an array of windows x slots x inputs; NaN if not observed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._support.kernels import kernel
from ..analysis.segments import USUAL_SEGMENT_BYTES
from ..errors import ParameterError

__all__ = [
    "ANY_LENGTH",
    "PREPARATIONS",
    "VIEW_CHANNELS",
    "VIEW_INPUTS",
    "are_views",
    "as_counted",
    "by_maximum",
    "by_view",
    "cut_views",
    "round_trip_slots",
    "scale_view",
    "scale_views",
    "slots_of",
    "summaries",
]

#: Inputs of :func:`scale_view`, in this order. NaN if not observed (no second tap, no acknowledgements).
VIEW_INPUTS = ("in_bytes", "cbiq_bytes", "out_bytes", "drops_estimate", "bytes_in_flight")
#: Number of bins of a view.
BINS = 100
#: Channels of a bin: position; arrivals; the queue (two taps); bytes in flight (both directions).
BIN_CHANNELS = (
    "there", "log_slots", "in_rate", "in_relative", "in_burst", "busy_slots",
    "out_rate", "out_relative", "drops", "cbiq", "cbiq_relative", "cbiq_step", "cbiq_range", "own_delay", "has_queue",
    "flight", "flight_relative", "flight_step", "flight_range", "flight_peak", "flight_peak_step", "rtt", "has_flight",
)  # fmt: skip
_QUEUE, _FLIGHT = slice(6, 15), slice(15, 23)
#: The views of a window: all of it, its last 100 round trips, its last 12.5 round trips.
VIEWS = ("window", "round_trips", "eighths")
VIEW_CHANNELS = tuple(f"{view}.{channel}" for view in VIEWS for channel in BIN_CHANNELS)
#: Marks drops that were not observed, as opposed to no drops.
_UNSEEN = -1.0


def as_counted(X: np.ndarray) -> np.ndarray:
    """Windows with 0 for unobserved values: windows x inputs x slots."""
    return np.ascontiguousarray(np.nan_to_num(X, nan=0.0).transpose(0, 2, 1), np.float32)


def by_maximum(X: np.ndarray) -> np.ndarray:
    """Divide each input by its maximum in the window (Dragonfly, section III-E): windows x inputs x slots in [0, 1].

    The paper divides "by its maximum value in the dataframe"; here that is the maximum of each input, because bytes in
    the queue and bytes in a slot differ by orders of magnitude. An input that is 0 throughout stays 0.
    """
    values = as_counted(X)
    most = values.max(axis=2, keepdims=True)
    return values / np.where(most > 0, most, 1)


@kernel
def _bins(
    window,
    begin,
    width,
    n_bins,
    mean_in,
    mean_out,
    most_cbiq_ever,
    most_flight_ever,
    queue,
    losses,
    flies,
    out,
):
    """Average a window over bins of `width` slots.

    Parameters
    ----------
    window : float array, shape (slots, channels)
        Ingress bytes, CBIQ, egress bytes, losses and bytes in flight of each slot.
    begin, width : float
        First slot, and slots in a bin (at least 1).
    n_bins : int
        Number of bins.
    mean_in, mean_out : float
        Mean bytes per slot at the two taps.
    most_cbiq_ever, most_flight_ever : float
        Largest CBIQ and bytes in flight of the window.
    queue, losses, flies : bool
        Whether CBIQ and egress, losses, and bytes in flight are known.
    out : float array, shape (BIN_CHANNELS, n_bins)
        Receives the bins; zeros before.

    Notes
    -----
    Logarithms are taken later, for many at once (:func:`_compress`).
    """
    slots = window.shape[0]
    log_slots = np.log(width) / 3
    cbiq_before = -1.0
    flight_before = -1.0
    peak_before = -1.0
    for k in range(n_bins):
        first = min(int(begin + k * width), slots - 1)
        stop = min(max(int(begin + (k + 1) * width), first + 1), slots)
        if k == n_bins - 1:
            stop = slots  # rounding of the width must not lose the last slot
        n = stop - first
        came = 0.0
        left = 0.0
        lost = 0.0
        burst = 0.0
        busy = 0
        cbiq = 0.0
        flight = 0.0
        min_cbiq = np.inf
        most_cbiq = 0.0
        min_flight = np.inf
        most_flight = 0.0
        for t in range(first, stop):
            came += window[t, 0]
            burst = max(burst, window[t, 0])
            busy += window[t, 0] > 0
            if queue:
                cbiq += window[t, 1]
                min_cbiq = min(min_cbiq, window[t, 1])
                most_cbiq = max(most_cbiq, window[t, 1])
                left += window[t, 2]
                if losses:
                    lost += window[t, 3]
            if flies:
                flight += window[t, 4]
                min_flight = min(min_flight, window[t, 4])
                most_flight = max(most_flight, window[t, 4])
        came /= n
        out[0, k] = 1.0
        out[1, k] = log_slots
        out[2, k] = came / 50
        out[3, k] = min(came / (mean_in + 1e-9), 8.0)
        out[4, k] = burst / 500
        out[5, k] = busy / n
        if queue:
            left /= n
            cbiq /= n
            out[6, k] = left / 50
            out[7, k] = min(left / (mean_out + 1e-9), 8.0)
            out[8, k] = lost if losses else _UNSEEN
            out[9, k] = cbiq / 500
            out[10, k] = cbiq / (most_cbiq_ever + 1e-9)
            if cbiq_before >= 0:
                out[11, k] = (cbiq - cbiq_before) / USUAL_SEGMENT_BYTES
            out[12, k] = (most_cbiq - min_cbiq) / (most_cbiq_ever + 1e-9)
            out[13, k] = cbiq / (mean_out + 50)  # Little's law: ms in the queue
            out[14, k] = 1.0
            cbiq_before = cbiq
        if flies:
            flight /= n
            out[15, k] = flight / 500
            out[16, k] = flight / (most_flight_ever + 1e-9)
            if flight_before >= 0:
                out[17, k] = (flight - flight_before) / USUAL_SEGMENT_BYTES
            out[18, k] = (most_flight - min_flight) / (most_flight_ever + 1e-9)
            out[19, k] = most_flight / 500
            if flight_before >= 0:
                out[20, k] = (most_flight - peak_before) / USUAL_SEGMENT_BYTES
            out[21, k] = flight / (mean_in + 50)  # Little's law: ms of round trip
            out[22, k] = 1.0
            flight_before = flight
            peak_before = most_flight


@kernel
def _view(window, rtt, whole, trips, eighths):
    """See VIEW_CHANNELS; the last three (channels x bins) are zeroed. Twin: tests/naive_identify.py."""
    slots = window.shape[0]
    queue = True
    losses = True
    flies = True
    sums = np.zeros(5)
    most = np.zeros(5)
    for t in range(slots):
        for j in range(5):
            value = window[t, j]
            if value == value:
                sums[j] += value
                most[j] = max(most[j], value)
            elif j == 4:
                flies = False
            elif j == 3:
                losses = False
            elif j > 0:
                queue = False
    mean_in = sums[0] / slots
    mean_out = sums[2] / slots
    _bins(window, 0.0, slots / BINS, BINS, mean_in, mean_out, most[1], most[4], queue, losses, flies, whole)
    if np.isfinite(rtt):
        for bins_each, out in ((1.0, trips), (8.0, eighths)):
            width = max(rtt / bins_each, 1.0)
            there = min(int(slots / width), BINS)
            begin = slots - there * width
            _bins(window, begin, width, there, mean_in, mean_out, most[1], most[4], queue, losses, flies, out)


def scale_view(window: np.ndarray) -> np.ndarray:
    """View a window of any length at three time scales, with a fixed number of bins each.

    Parameters
    ----------
    window : array, slots x 5
        The :data:`VIEW_INPUTS`. A group of channels with a NaN anywhere counts as not observed; drops may be unknown
        (NaN) while the queue is observed, as in live use.

    Returns
    -------
    float32 array, bins x channels
        :data:`BINS` x :data:`VIEW_CHANNELS`.

    Notes
    -----
    The first view is the whole window. The others follow the flow's own clock, its RTT by Little's law (bytes in
    flight over the arrival rate): one bin per RTT, and eight, because congestion controls are defined by what they do
    in an RTT. They need bytes in flight, count from the window's end, and are 0 beyond its start (``there``). Rates,
    queue and bytes in flight appear as logarithms of the counts (a flow's share and delay reveal BBR) and relative to
    the window's own maximum or mean (growth curves); steps from bin to bin are in segments: Reno's is one per RTT.
    """
    return scale_views(np.asarray(window)[None])[0].T


#: Channels that networks get as the logarithm of 1 + x, half of it, or the inverse hyperbolic sine.
_LOGS, _HALF_LOGS, _STEPS = (2, 4, 6, 9, 15, 19), (13, 21), (8, 11, 17, 20)


def _compress(view: np.ndarray) -> None:
    """Compress rates and steps, which span orders of magnitude."""
    for channel in (*_LOGS, *_HALF_LOGS):
        np.log1p(view[:, channel], out=view[:, channel])
    for channel in _HALF_LOGS:
        view[:, channel] /= 2
    for channel in _STEPS:
        np.arcsinh(view[:, channel], out=view[:, channel])


@kernel
def _views(X, rtt, whole, trips, eighths):
    for i in range(len(X)):
        _view(X[i], rtt[i], whole[i], trips[i], eighths[i])


def round_trip_slots(X: np.ndarray) -> np.ndarray:
    """Each window's RTT in slots by Little's law: bytes in flight over the arrival rate.

    Parameters
    ----------
    X : array, windows x slots x :data:`VIEW_INPUTS`

    Returns
    -------
    array, windows
        Not finite if bytes in flight were not observed or nothing arrived.
    """
    came, flying = (X[:, :, i].sum(axis=1, dtype=float) for i in (0, 4))
    with np.errstate(divide="ignore", invalid="ignore"):
        return flying / came


def cut_views(X: np.ndarray) -> list[np.ndarray]:
    """The views of windows (:data:`VIEW_CHANNELS`), each cut off after the last bin that any window has.

    Parameters
    ----------
    X : array, windows x slots x :data:`VIEW_INPUTS`

    Returns
    -------
    list of float32 array, windows x channels x bins
        With similar RTTs, the second and third view have few bins.
    """
    if X.ndim != 3 or X.shape[1] < 1 or X.shape[2] != len(VIEW_INPUTS):
        raise ParameterError(
            f"X: shape {X.shape} is not windows x slots x {len(VIEW_INPUTS)}: {', '.join(VIEW_INPUTS)}"
        )
    rtt = round_trip_slots(X)
    shortest = np.min(rtt, initial=np.inf, where=np.isfinite(rtt))
    slots = X.shape[1]
    bins = [BINS, *(int(min(max(slots / max(shortest / n, 1.0), 1), BINS)) for n in (1, 8))]
    parts = [np.zeros((len(X), len(BIN_CHANNELS), n), np.float32) for n in bins]
    _views(np.ascontiguousarray(X, np.float32), rtt, *parts)
    for part in parts:
        _compress(part)
    return parts


def are_views(X: np.ndarray) -> bool:
    """Whether windows are already views, not raw slots."""
    return X.shape[1:] == (BINS, len(VIEW_CHANNELS))


def scale_views(X: np.ndarray) -> np.ndarray:
    """:func:`scale_view` of windows x slots x 5, unless they are views already: windows x channels x bins."""
    if X.ndim == 3 and are_views(X):
        return np.ascontiguousarray(X.transpose(0, 2, 1))
    out = np.zeros((len(X), len(VIEW_CHANNELS), BINS), np.float32)
    for i, part in enumerate(cut_views(X)):
        out[:, i * len(BIN_CHANNELS) : (i + 1) * len(BIN_CHANNELS), : part.shape[2]] = part
    return out


def hidden(views: Any, queue: Any, flight: Any, drops: Any) -> None:
    """Hide the queue, bytes in flight or drops of windows, in place, as if not observed.

    Parameters
    ----------
    views : array or tensor, windows x channels x bins
    queue, flight, drops : boolean array or tensor
        Windows in which to hide each.
    """
    n = len(BIN_CHANNELS)
    for view in range(len(VIEWS)):
        views[drops, view * n + 8] = float(np.arcsinh(_UNSEEN)) * views[drops, view * n]  # bins that exist
        views[queue, view * n + _QUEUE.start : view * n + _QUEUE.stop] = 0
    views[flight, _FLIGHT] = 0
    views[flight, n:] = 0  # without bytes in flight there is no RTT


def by_view(views: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """The views of some windows, each cut off after the last bin that any of them has (windows x channels x bins)."""
    n = len(BIN_CHANNELS)
    parts = []
    for begin in range(0, views.shape[1], n):
        bins = max(int(views[rows, begin].sum(axis=1).max()), 1)
        parts.append(np.ascontiguousarray(views[rows, begin : begin + n, :bins]))
    return parts


def slots_of(X: np.ndarray) -> int | np.ndarray:
    """Number of slots of windows, or of those that views were made from (to three digits)."""
    if not are_views(X):
        return X.shape[1]
    slots = BINS * np.exp(3 * X[:, 0, VIEW_CHANNELS.index("window.log_slots")].astype(float))
    digits = 10.0 ** (np.floor(np.log10(slots)) - 2)
    return np.round(slots / digits) * digits


def summaries(X: np.ndarray) -> np.ndarray:
    """Summaries of windows: windows x numbers."""
    views = scale_views(X)
    steps = np.diff(views, axis=2)
    parts = [
        views.mean(2), views.std(2), views.min(2), views.max(2), *np.quantile(views, [0.1, 0.5, 0.9], axis=2),
        steps.std(2), steps.min(2), steps.max(2), (steps > 0).mean(2), views[:, :, -1] - views[:, :, 0],
    ]  # fmt: skip
    return np.concatenate(parts, axis=1).astype(np.float32)


#: Preparations, by their names in saved models.
PREPARATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as_counted": as_counted,
    "by_maximum": by_maximum,
    "scale_view": scale_views,
    "summaries": summaries,
}
#: Those that take windows of any length, of VIEW_INPUTS or as views already made.
ANY_LENGTH = ("scale_view", "summaries")
