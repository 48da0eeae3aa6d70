"""The slow, obvious twins of cctoolkit.identify: the view of a window by its definition, DragonflyNet by loops."""

from __future__ import annotations

import itertools
import math

import numpy as np

BINS = 128


def bins_of(slots: int) -> list[range]:
    """Which slots each bin shows: equal shares, and at least one."""
    edges = [k * slots // BINS for k in range(BINS + 1)]
    return [range(a, max(b, a + 1)) for a, b in itertools.pairwise(edges)]


def view(window: np.ndarray) -> np.ndarray:
    """`cctoolkit.identify.inputs.scale_view`: bins x 20 channels of slots x 5 inputs."""
    w = np.asarray(window, np.float32).astype(float)
    arrived, cbiq, left, lost, flight = w.T
    slots = len(w)
    has_queue = not np.isnan(w[:, 1:4]).any()
    has_flight = not np.isnan(flight).any()
    out = np.zeros((BINS, 20))
    mean_arrived = arrived.sum() / slots
    before = None
    for k, which in enumerate(bins_of(slots)):
        bin_ = list(which)
        in_rate = arrived[bin_].mean()
        out[k, 0] = math.log(slots) / 4 - 1
        out[k, 1] = math.log1p(in_rate / 50)
        out[k, 2] = min(in_rate / (mean_arrived + 1e-9), 8)
        out[k, 3] = math.log1p(arrived[bin_].max() / 500)
        out[k, 4] = np.mean(arrived[bin_] > 0)
        if has_queue:
            mean_left = left.sum() / slots
            most = max(cbiq.max(), 0) + 1e-9
            out_rate, level = left[bin_].mean(), cbiq[bin_].mean()
            out[k, 5] = math.log1p(out_rate / 50)
            out[k, 6] = min(out_rate / (mean_left + 1e-9), 8)
            out[k, 7] = math.asinh(lost[bin_].sum())
            out[k, 8] = math.log1p(level / 500)
            out[k, 9] = level / most
            if before is not None:
                out[k, 10] = math.asinh((level - cbiq[before].mean()) / 1448)
            out[k, 11] = (cbiq[bin_].max() - cbiq[bin_].min()) / most
            out[k, 12] = math.log1p(level / (mean_left + 50)) / 2
            out[k, 13] = 1
        if has_flight:
            most = flight.max() + 1e-9
            level = flight[bin_].mean()
            out[k, 14] = math.log1p(level / 500)
            out[k, 15] = level / most
            if before is not None:
                out[k, 16] = math.asinh((level - flight[before].mean()) / 1448)
            out[k, 17] = (flight[bin_].max() - flight[bin_].min()) / most
            out[k, 18] = math.log1p(level / (mean_arrived + 50)) / 2
            out[k, 19] = 1
        before = bin_
    return out


def dragonfly(weights: dict[str, np.ndarray], window: np.ndarray, pool: int) -> np.ndarray:
    """DragonflyNet's scores of one window (inputs x slots), in evaluation, from its weights by their torch names."""
    x = window.T[None]  # channels x slots x width
    for i in range(5):
        name = f"modules_.{i}"
        y = convolved(x, weights[f"{name}.0.weight"], weights[f"{name}.0.bias"])
        mean, variance = weights[f"{name}.1.running_mean"], weights[f"{name}.1.running_var"]
        y = (y - mean[:, None, None]) / np.sqrt(variance[:, None, None] + 1e-5)
        y = y * weights[f"{name}.1.weight"][:, None, None] + weights[f"{name}.1.bias"][:, None, None]
        y = np.maximum(y, 0)
        x = np.stack([y[:, t * pool : (t + 1) * pool].max(axis=1) for t in range(y.shape[1] // pool)], axis=1)
    scores = convolved(x, weights["scores.weight"], weights["scores.bias"])
    return scores[:, :, 0].mean(axis=1)


def convolved(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Correlation over time with a slot of zeros at either end, over the whole width."""
    around = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    steps = [np.einsum("ctw,fctw->f", around[:, t : t + 3], kernel) + bias for t in range(x.shape[1])]
    return np.stack(steps, axis=1)[:, :, None]
