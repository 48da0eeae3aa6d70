"""From windows as counted to what networks are fed; nothing here needs torch.

A window is an array of slots x inputs; windows are an array of windows x slots x inputs, NaN where not observed.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from ..errors import ParameterError

__all__ = [
    "PREPARATIONS",
    "VIEW_CHANNELS",
    "VIEW_INPUTS",
    "as_counted",
    "by_maximum",
    "scale_view",
    "scale_views",
]

#: Inputs of :func:`scale_view`, in this order. What was not observed (no second tap, no acknowledgements) is NaN.
VIEW_INPUTS = ("in_bytes", "cbiq_bytes", "out_bytes", "drops_estimate", "bytes_in_flight")
#: Bins that a window of any length becomes.
BINS = 128
#: What each bin says; the three groups are of what arrived, of the queue (two taps), of the flight (both ways).
VIEW_CHANNELS = (
    "log_slots", "in_rate", "in_relative", "in_burst", "busy_slots",
    "out_rate", "out_relative", "drops", "cbiq", "cbiq_relative", "cbiq_step", "cbiq_range", "own_delay", "has_queue",
    "flight", "flight_relative", "flight_step", "flight_range", "rtt", "has_flight",
)  # fmt: skip
#: Channels of the queue and of the flight: 0 where not observed.
QUEUE_CHANNELS = slice(5, 14)
FLIGHT_CHANNELS = slice(14, 20)
_SEGMENT = 1448.0


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


@numba.njit(cache=True, nogil=True)
def _view(window, out):
    """See VIEW_CHANNELS; `out` (channels x bins) is zeroed. Twin: tests/naive_identify.py."""
    slots = window.shape[0]
    bins = out.shape[1]
    with_queue = True
    with_flight = True
    sums = np.zeros(5)
    most = np.zeros(5)
    for t in range(slots):
        for j in range(5):
            value = window[t, j]
            if value == value:
                sums[j] += value
                most[j] = max(most[j], value)
            elif j == 4:
                with_flight = False
            elif j > 0:
                with_queue = False
    mean_in = sums[0] / slots
    mean_out = sums[2] / slots
    before_cbiq = -1.0
    before_flight = -1.0
    for k in range(bins):
        first = k * slots // bins
        stop = max(
            (k + 1) * slots // bins, first + 1
        )  # a window shorter than the bins shows slots more than once
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
            if with_queue:
                cbiq += window[t, 1]
                least_cbiq = min(least_cbiq, window[t, 1])
                most_cbiq = max(most_cbiq, window[t, 1])
                left += window[t, 2]
                lost += window[t, 3]
            if with_flight:
                flight += window[t, 4]
                least_flight = min(least_flight, window[t, 4])
                most_flight = max(most_flight, window[t, 4])
        came /= n
        out[0, k] = np.log(slots) / 4 - 1
        out[1, k] = np.log1p(came / 50)
        out[2, k] = min(came / (mean_in + 1e-9), 8.0)
        out[3, k] = np.log1p(burst / 500)
        out[4, k] = busy / n
        if with_queue:
            left /= n
            cbiq /= n
            out[5, k] = np.log1p(left / 50)
            out[6, k] = min(left / (mean_out + 1e-9), 8.0)
            out[7, k] = np.arcsinh(lost)
            out[8, k] = np.log1p(cbiq / 500)
            out[9, k] = cbiq / (most[1] + 1e-9)
            if before_cbiq >= 0:
                out[10, k] = np.arcsinh((cbiq - before_cbiq) / _SEGMENT)
            out[11, k] = (most_cbiq - least_cbiq) / (most[1] + 1e-9)
            out[12, k] = np.log1p(cbiq / (mean_out + 50)) / 2  # Little's law: ms in the queue
            out[13, k] = 1.0
            before_cbiq = cbiq
        if with_flight:
            flight /= n
            out[14, k] = np.log1p(flight / 500)
            out[15, k] = flight / (most[4] + 1e-9)
            if before_flight >= 0:
                out[16, k] = np.arcsinh((flight - before_flight) / _SEGMENT)
            out[17, k] = (most_flight - least_flight) / (most[4] + 1e-9)
            out[18, k] = np.log1p(flight / (mean_in + 50)) / 2  # Little's law: ms of round trip
            out[19, k] = 1.0
            before_flight = flight


def scale_view(window: np.ndarray) -> np.ndarray:
    """A window of any length as so many bins, with magnitudes and shapes side by side.

    Parameters
    ----------
    window : array, slots x 5
        :data:`VIEW_INPUTS`. A group that has a NaN anywhere counts as not observed.

    Returns
    -------
    float32 array, bins x channels
        :data:`BINS` x :data:`VIEW_CHANNELS`.

    Notes
    -----
    Rates, queue and flight are logarithms of what was counted (shares and delays of a flow tell BBR at a glance), and
    again relative to the window's own maximum or mean (curves of growth); steps from bin to bin are in segments,
    because one segment a round trip is what tells Reno. A window's length is a channel of its own.
    """
    return scale_views(np.asarray(window)[None])[0].T


@numba.njit(cache=True, nogil=True)
def _views(X, out):
    for i in range(len(X)):
        _view(X[i], out[i])


def scale_views(X: np.ndarray) -> np.ndarray:
    """:func:`scale_view` of each of windows x slots x 5, or views already made: windows x channels x bins."""
    if X.ndim == 3 and X.shape[1:] == (BINS, len(VIEW_CHANNELS)):
        return np.ascontiguousarray(X.transpose(0, 2, 1))
    if X.ndim != 3 or X.shape[1] < 1 or X.shape[2] != len(VIEW_INPUTS):
        raise ParameterError(
            f"X: shape {X.shape} is not windows x slots x {len(VIEW_INPUTS)}: {', '.join(VIEW_INPUTS)}"
        )
    out = np.zeros((len(X), len(VIEW_CHANNELS), BINS), np.float32)
    _views(np.ascontiguousarray(X, np.float32), out)
    return out


#: By the name that a saved model has of it.
PREPARATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as_counted": as_counted,
    "by_maximum": by_maximum,
    "scale_view": scale_views,
}
