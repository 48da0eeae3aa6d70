"""From windows as counted to what networks are fed; nothing here needs torch.

A window is an array of slots x inputs; windows are an array of windows x slots x inputs, NaN where not observed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._support.kernels import kernel
from ..errors import ParameterError

__all__ = [
    "ANY_LENGTH",
    "PREPARATIONS",
    "SEGMENT_BYTES",
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

#: Inputs of :func:`scale_view`, in this order. What was not observed (no second tap, no acknowledgements) is NaN.
VIEW_INPUTS = ("in_bytes", "cbiq_bytes", "out_bytes", "drops_estimate", "bytes_in_flight")
#: Bins of a view.
BINS = 100
#: What each bin says: where it is; what arrived; what the queue held (two taps); what was in flight (both ways).
BIN_CHANNELS = (
    "there", "log_slots", "in_rate", "in_relative", "in_burst", "busy_slots",
    "out_rate", "out_relative", "drops", "cbiq", "cbiq_relative", "cbiq_step", "cbiq_range", "own_delay", "has_queue",
    "flight", "flight_relative", "flight_step", "flight_range", "flight_peak", "flight_peak_step", "rtt", "has_flight",
)  # fmt: skip
_QUEUE, _FLIGHT = slice(6, 15), slice(15, 23)
#: The views of a window: all of it, its last 100 round trips, its last 12.5 round trips.
VIEWS = ("window", "round_trips", "eighths")
VIEW_CHANNELS = tuple(f"{view}.{channel}" for view in VIEWS for channel in BIN_CHANNELS)
#: Bytes of payload in a full segment, whose packet has 1500 with timestamps.
SEGMENT_BYTES = 1448.0
#: What stands for the drops of a queue whose drops were not observed, for none were is another thing.
_UNSEEN = -1.0


def as_counted(X: np.ndarray) -> np.ndarray:
    """Windows with 0 for what was not observed: windows x inputs x slots."""
    return np.ascontiguousarray(np.nan_to_num(X, nan=0.0).transpose(0, 2, 1), np.float32)


def by_maximum(X: np.ndarray) -> np.ndarray:
    """Each input divided by its maximum in the window (Dragonfly, section III-E): windows x inputs x slots in [0, 1].

    The paper divides "by its maximum value in the dataframe"; here that is the maximum of the same input, for
    bytes in the queue and bytes in a slot differ by orders of magnitude. An input that is 0 throughout stays 0.
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
    """Bins of `width` slots (at least 1) from slot `begin`, one of BIN_CHANNELS a row of `out`, which is zeroed.

    Logarithms are taken afterwards, of many at a time (:func:`_compress`).
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
        least_cbiq = np.inf
        most_cbiq = 0.0
        least_flight = np.inf
        most_flight = 0.0
        for t in range(first, stop):
            came += window[t, 0]
            burst = max(burst, window[t, 0])
            busy += window[t, 0] > 0
            if queue:
                cbiq += window[t, 1]
                least_cbiq = min(least_cbiq, window[t, 1])
                most_cbiq = max(most_cbiq, window[t, 1])
                left += window[t, 2]
                if losses:
                    lost += window[t, 3]
            if flies:
                flight += window[t, 4]
                least_flight = min(least_flight, window[t, 4])
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
                out[11, k] = (cbiq - cbiq_before) / SEGMENT_BYTES
            out[12, k] = (most_cbiq - least_cbiq) / (most_cbiq_ever + 1e-9)
            out[13, k] = cbiq / (mean_out + 50)  # Little's law: ms in the queue
            out[14, k] = 1.0
            cbiq_before = cbiq
        if flies:
            flight /= n
            out[15, k] = flight / 500
            out[16, k] = flight / (most_flight_ever + 1e-9)
            if flight_before >= 0:
                out[17, k] = (flight - flight_before) / SEGMENT_BYTES
            out[18, k] = (most_flight - least_flight) / (most_flight_ever + 1e-9)
            out[19, k] = most_flight / 500
            if flight_before >= 0:
                out[20, k] = (most_flight - peak_before) / SEGMENT_BYTES
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
    """A window of any length at three scales of time, each as so many bins.

    Parameters
    ----------
    window : array, slots x 5
        :data:`VIEW_INPUTS`. A group that has a NaN anywhere counts as not observed; drops may be unknown (NaN)
        while the queue is observed, as they are live.

    Returns
    -------
    float32 array, bins x channels
        :data:`BINS` x :data:`VIEW_CHANNELS`.

    Notes
    -----
    The first view is the whole window. The others go by the flow's own clock, its round trip as Little's law gives it
    from bytes in flight and arrivals: a bin a round trip, and eight; congestion controls are defined by what they
    do in one. They need the flight, count from the window's end, and are 0 where there is no more (``there``).
    Rates, queue and flight are logarithms of what was counted (shares and delays of a flow tell BBR at a glance),
    and again relative to the window's own maximum or mean (curves of growth); steps from bin to bin are in segments:
    Reno's is one a round trip.
    """
    return scale_views(np.asarray(window)[None])[0].T


#: Channels whose logarithm (of 1 + x), half of it, or inverse hyperbolic sine a network is fed.
_LOGS, _HALF_LOGS, _STEPS = (2, 4, 6, 9, 15, 19), (13, 21), (8, 11, 17, 20)


def _compress(view: np.ndarray) -> None:
    """Rates and steps span orders of magnitude."""
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
    """Slots of each window's round trip by Little's law, bytes in flight over arrivals.

    Parameters
    ----------
    X : array, windows x slots x :data:`VIEW_INPUTS`

    Returns
    -------
    array, windows
        Not finite where the flight was not observed, or nothing arrived.
    """
    came, flying = (X[:, :, i].sum(axis=1, dtype=float) for i in (0, 4))
    with np.errstate(divide="ignore", invalid="ignore"):
        return flying / came


def cut_views(X: np.ndarray) -> list[np.ndarray]:
    """The views of windows (:data:`VIEW_CHANNELS`), each cut off behind the last bin that one of the windows has.

    Parameters
    ----------
    X : array, windows x slots x :data:`VIEW_INPUTS`

    Returns
    -------
    list of float32 array, windows x channels x bins
        Of windows with like round trips few bins of the second and the third are there.
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
    """Whether windows are views already made, not slots as counted."""
    return X.shape[1:] == (BINS, len(VIEW_CHANNELS))


def scale_views(X: np.ndarray) -> np.ndarray:
    """:func:`scale_view` of each of windows x slots x 5, or views already made: windows x channels x bins."""
    if X.ndim == 3 and are_views(X):
        return np.ascontiguousarray(X.transpose(0, 2, 1))
    out = np.zeros((len(X), len(VIEW_CHANNELS), BINS), np.float32)
    for i, part in enumerate(cut_views(X)):
        out[:, i * len(BIN_CHANNELS) : (i + 1) * len(BIN_CHANNELS), : part.shape[2]] = part
    return out


def hidden(views: Any, queue: Any, flight: Any, drops: Any) -> None:
    """Make windows look, in place, as if their queue, their flight or the queue's drops had not been observed.

    Parameters
    ----------
    views : array or tensor, windows x channels x bins
    queue, flight, drops : boolean array or tensor
        Which windows.
    """
    n = len(BIN_CHANNELS)
    for view in range(len(VIEWS)):
        views[drops, view * n + 8] = (
            float(np.arcsinh(_UNSEEN)) * views[drops, view * n]
        )  # where bins are there
        views[queue, view * n + _QUEUE.start : view * n + _QUEUE.stop] = 0
    views[flight, _FLIGHT] = 0
    views[flight, n:] = 0  # without the flight there is no round trip


def by_view(views: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """The views of some windows, each cut off behind the last bin that one of them has (windows x channels x bins)."""
    n = len(BIN_CHANNELS)
    parts = []
    for begin in range(0, views.shape[1], n):
        bins = max(int(views[rows, begin].sum(axis=1).max()), 1)
        parts.append(np.ascontiguousarray(views[rows, begin : begin + n, :bins]))
    return parts


def slots_of(X: np.ndarray) -> int | np.ndarray:
    """How many slots windows have (windows x slots x inputs), or had that were made views of (to three digits)."""
    if not are_views(X):
        return X.shape[1]
    slots = BINS * np.exp(3 * X[:, 0, VIEW_CHANNELS.index("window.log_slots")].astype(float))
    digits = 10.0 ** (np.floor(np.log10(slots)) - 2)
    return np.round(slots / digits) * digits


def summaries(X: np.ndarray) -> np.ndarray:
    """Numbers that summarise windows: windows x numbers."""
    views = scale_views(X)
    steps = np.diff(views, axis=2)
    parts = [
        views.mean(2), views.std(2), views.min(2), views.max(2), *np.quantile(views, [0.1, 0.5, 0.9], axis=2),
        steps.std(2), steps.min(2), steps.max(2), (steps > 0).mean(2), views[:, :, -1] - views[:, :, 0],
    ]  # fmt: skip
    return np.concatenate(parts, axis=1).astype(np.float32)


#: By the name that a saved model has of it.
PREPARATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as_counted": as_counted,
    "by_maximum": by_maximum,
    "scale_view": scale_views,
    "summaries": summaries,
}
#: Those that take windows of any length, of VIEW_INPUTS or as views already made.
ANY_LENGTH = ("scale_view", "summaries")
