"""The slow, obvious twins of cctoolkit.identify: the view of a window by its definition, DragonflyNet by loops."""

from __future__ import annotations

import functools
import math

import numpy as np

BINS = 100


def bins_of(slots: int, begin: float, width: float, n: int) -> list[list[int]]:
    """Which slots each of n bins from `begin` to the window's end shows: at least one."""
    edges = [int(begin + k * width) for k in range(n)] + [slots]
    firsts = [min(edge, slots - 1) for edge in edges[:-1]]
    return [list(range(a, min(max(b, a + 1), slots))) for a, b in zip(firsts, edges[1:], strict=True)]


def view(window: np.ndarray) -> np.ndarray:
    """`cctoolkit.identify.inputs.scale_view`: bins x (3 views x 23 channels) of slots x 5 inputs."""
    w = np.asarray(window, np.float32).astype(float)
    slots, arrived, flight = len(w), w[:, 0].sum(), w[:, 4].sum()
    out = np.zeros((BINS, 3, 23))
    out[:, 0] = channels(w, bins_of(slots, 0, slots / BINS, BINS), slots / BINS)
    if not np.isnan(flight) and arrived > 0:
        rtt = flight / arrived
        for i, width in ((1, max(rtt, 1)), (2, max(rtt / 8, 1))):
            n = min(int(slots / width), BINS)
            out[:n, i] = channels(w, bins_of(slots, slots - n * width, width, n), width)
    return out.reshape(BINS, 69)


def channels(w: np.ndarray, bins: list[list[int]], width: float) -> np.ndarray:
    """What each of some bins says."""
    arrived, cbiq, left, lost, flight = w.T
    has_queue = not np.isnan(w[:, 1:3]).any()
    has_drops = not np.isnan(lost).any()
    has_flight = not np.isnan(flight).any()
    mean_arrived, mean_left = arrived.mean(), left.mean()
    out = np.zeros((len(bins), 23))
    before = None
    for row, bin_ in zip(out, bins, strict=True):
        in_rate = arrived[bin_].mean()
        row[0] = 1
        row[1] = math.log(width) / 3
        row[2] = math.log1p(in_rate / 50)
        row[3] = min(in_rate / (mean_arrived + 1e-9), 8)
        row[4] = math.log1p(arrived[bin_].max() / 500)
        row[5] = np.mean(arrived[bin_] > 0)
        if has_queue:
            most = cbiq.max() + 1e-9
            out_rate, level = left[bin_].mean(), cbiq[bin_].mean()
            row[6] = math.log1p(out_rate / 50)
            row[7] = min(out_rate / (mean_left + 1e-9), 8)
            row[8] = math.asinh(lost[bin_].sum() if has_drops else -1)
            row[9] = math.log1p(level / 500)
            row[10] = level / most
            if before is not None:
                row[11] = math.asinh((level - cbiq[before].mean()) / 1448)
            row[12] = (cbiq[bin_].max() - cbiq[bin_].min()) / most
            row[13] = math.log1p(level / (mean_left + 50)) / 2
            row[14] = 1
        if has_flight:
            most = flight.max() + 1e-9
            level = flight[bin_].mean()
            row[15] = math.log1p(level / 500)
            row[16] = level / most
            if before is not None:
                row[17] = math.asinh((level - flight[before].mean()) / 1448)
            row[18] = (flight[bin_].max() - flight[bin_].min()) / most
            row[19] = math.log1p(flight[bin_].max() / 500)
            if before is not None:
                row[20] = math.asinh((flight[bin_].max() - flight[before].max()) / 1448)
            row[21] = math.log1p(level / (mean_arrived + 50)) / 2
            row[22] = 1
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


def warped(a: list[float], b: list[float], band: int) -> float:
    """`cctoolkit.identify.baselines.warped_distance`: the cheapest of all paths, by its definition."""

    @functools.cache
    def cost(i: int, j: int) -> float:
        if i < 0 and j < 0:
            return 0.0
        if i < 0 or j < 0 or abs(i - j) > band:
            return math.inf
        return (a[i] - b[j]) ** 2 + min(cost(i - 1, j), cost(i, j - 1), cost(i - 1, j - 1))

    return cost(len(a) - 1, len(b) - 1)
