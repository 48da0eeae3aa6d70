"""How far the clocks of two taps differ, and how the difference drifts.

The one-way delay of a packet between two taps, computed from their timestamps, is its real delay *plus* the offset of
the clocks; for a packet in the other direction it is the offset *minus* the real delay. So the offset lies between the
largest delay of returning packets and the smallest of forward ones; where both are small, it is known well (NTP takes
the middle: RFC 5905, section 8). With packets in one direction only, it cannot be distinguished from propagation
delay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._support.kernels import kernel

__all__ = ["Clocks", "fit_clocks"]

_ENOUGH = 32  # packets of one direction, to tell how the least delay changes
#: An operating system corrects a clock's rate by so much at most (Linux; NTP's limit, RFC 5905, section 11.3).
LARGEST_DRIFT_PPM = 500.0
RESOLUTION_NS = 1_000  # of time stamps in most captures


@dataclass(frozen=True)
class Clocks:
    """What is known of two clocks: the egress tap's relative to the ingress tap's.

    Attributes
    ----------
    offset_ns : (float, float), optional
        Bounds of how far it is ahead, in the middle of the time covered by both taps. None if packets go in one
        direction only.
    drift_ppm : float, optional
        How fast it gains, from the direction that is closest to a line because it waits least. With one direction
        only, how the minimum delay changes: that is the drift if the queue was empty now and then.
    drift_bounds_ppm : (float, float), optional
        Bounds of how fast it gains, if steadily. None with one direction only.
    noise_ns : float
        How far packets contradict steady clocks: coarse or late timestamps, or a clock that was set.
    start_ns, length_ns : int
        The time covered by both taps, by the ingress tap's clock.

    See Also
    --------
    fit_clocks : makes it
    cctoolkit.compare_taps : of two captures

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> cct.compare_taps(run.ingress, run.egress).clocks.offset_ns  # they agree to within 2 µs
    (-1862.0, 1362.0)
    """

    offset_ns: tuple[float, float] | None = None
    drift_ppm: float | None = None
    drift_bounds_ppm: tuple[float, float] | None = None
    noise_ns: float = 0.0
    start_ns: int = 0
    length_ns: int = 0

    def line_ns(self, ts_ns: np.ndarray) -> np.ndarray:
        """The best estimate of the offset at these times; 0 where it is unknown."""
        if self.offset_ns is None:
            return np.zeros(len(ts_ns))
        since_middle = ts_ns - self.start_ns - self.length_ns / 2
        return sum(self.offset_ns) / 2 + (self.drift_ppm or 0.0) * 1e-6 * since_middle

    @property
    def certain_offset_ns(self) -> float:
        """How far the clocks differ at least, at the worst time; 0 where they may agree."""
        if self.offset_ns is None:
            return 0.0
        slack = self.noise_ns + RESOLUTION_NS
        gained = (self.drift_ppm or 0.0) * 1e-6 * self.length_ns / 2
        return max(
            (
                max(low - slack, 0.0) + min(high + slack, 0.0)
                for low, high in (
                    (self.offset_ns[0] + g, self.offset_ns[1] + g) for g in (0.0, gained, -gained)
                )
            ),
            key=abs,
        )


def fit_clocks(ts_ns: np.ndarray, delay_ns: np.ndarray, forward: np.ndarray) -> Clocks:
    """The clocks of two taps, from packets that both saw.

    Parameters
    ----------
    ts_ns : int64 array
        At the ingress tap.
    delay_ns : int64 array
        Egress timestamp minus ingress timestamp.
    forward : bool array
        The packet went from the ingress tap to the egress tap, not back.

    Notes
    -----
    The clocks' difference is assumed to be a straight line below all forward delays and above all backward ones. Its
    slope is that of the direction that is closer to a line, within what the other direction allows; where no line
    fits, it is the one contradicted least. Slopes are those of Moon, Skelly and Towsley, "Estimation and Removal of
    Clock Skew from Network Delay Measurements", INFOCOM 1999. A drift below the noise of the timestamps counts as
    none.

    See Also
    --------
    cctoolkit.compare_taps : finds the packets that both captures have

    Examples
    --------
    An egress clock that is 0.3 ms ahead, and 0.1 ms on the way in each direction:

    >>> ts_ns = 10_000_000 * np.arange(1000)
    >>> forward = np.arange(1000) % 2 == 0
    >>> fit_clocks(ts_ns, 300_000 + np.where(forward, 100_000, -100_000), forward).offset_ns
    (200000.0, 400000.0)
    """
    if not len(ts_ns):
        return Clocks()
    start, length = int(ts_ns.min()), max(int(ts_ns.max() - ts_ns.min()), 1)
    t, x = (ts_ns - start) / length - 0.5, delay_ns.astype(np.float64)
    per_ppm = 1e-6 * length
    if forward.all():
        drift_ppm = _nearest(t, x, _floor(t, x))[0] / per_ppm if len(t) >= _ENOUGH else None
        return Clocks(drift_ppm=drift_ppm, start_ns=start, length_ns=length)
    if not forward.any():
        return Clocks(start_ns=start, length_ns=length)
    there, back = (t[forward], x[forward]), (t[~forward], -x[~forward])
    floor, ceiling = _floor(*there), _floor(*back)
    noise, bounds = _room(floor, ceiling, LARGEST_DRIFT_PPM * per_ppm)
    (up, far), (down, farther) = _nearest(*there, floor), _nearest(*back, ceiling)
    slope = float(np.clip(up if far < farther else -down, *bounds))
    if (
        abs(slope) <= 2 * noise + RESOLUTION_NS
        and -_overlap(floor, ceiling, 0.0) >= -2 * noise - RESOLUTION_NS
    ):
        slope = 0.0
    noise = max(noise, _overlap(floor, ceiling, slope) / 2)
    low = float((-ceiling[:, 1] - slope * ceiling[:, 0]).max())
    high = float((floor[:, 1] - slope * floor[:, 0]).min())
    return Clocks(
        offset_ns=(low, high) if low <= high else ((low + high) / 2,) * 2,
        drift_ppm=slope / per_ppm,
        drift_bounds_ppm=(bounds[0] / per_ppm, bounds[1] / per_ppm),
        noise_ns=noise,
        start_ns=start,
        length_ns=length,
    )


@kernel
def _lower_hull(t, x):
    """Which points, in order of t, are corners of the lower convex hull: Andrew's monotone chain."""
    hull = np.empty(len(t), np.int64)
    n = 0
    for i in range(len(t)):
        if n and t[hull[n - 1]] == t[i]:
            continue  # the lowest of its time comes first
        while n > 1:
            one, other = hull[n - 2], hull[n - 1]
            if (x[other] - x[one]) * (t[i] - t[one]) < (x[i] - x[one]) * (t[other] - t[one]):
                break
            n -= 1
        hull[n] = i
        n += 1
    return hull[:n]


def _floor(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The corners of the lower convex hull, in order of time: rows (t, x).

    A line that is below these is below all points.
    """
    order = np.lexsort((x, t))
    t, x = t[order], x[order]
    corners = _lower_hull(t, x)
    return np.column_stack([t[corners], x[corners]])


def _nearest(t: np.ndarray, x: np.ndarray, floor: np.ndarray) -> tuple[float, float]:
    """The slope of the line below all points that is nearest to them on the whole, and how far they are on average.

    It is the edge of the hull at the mean of the times.
    """
    if len(floor) < 2:
        return 0.0, float((x - x.min()).mean())
    right = min(max(int(np.searchsorted(floor[:, 0], t.mean())), 1), len(floor) - 1)
    (t0, x0), (t1, x1) = floor[right - 1], floor[right]
    slope = float((x1 - x0) / (t1 - t0))
    return slope, float((x - x0 - slope * (t - t0)).mean())


def _overlap(floor: np.ndarray, ceiling: np.ndarray, slope: float) -> float:
    """By how much a line of this slope does not fit between `floor` and `ceiling`; negative if there is room. Convex in
    the slope.

    `ceiling` is upside down, as everywhere in this module.
    """
    (t, x), (s, y) = floor.T, ceiling.T
    return float((-y - slope * s).max() - (x - slope * t).min())


def _room(floor: np.ndarray, ceiling: np.ndarray, steepest: float) -> tuple[float, tuple[float, float]]:
    """The smallest noise with which a line fits between `floor` and `ceiling`, and the range of such lines' slopes."""
    low, high = -steepest, steepest
    for _ in range(100):  # thirds of what is left: 2e-18 of it in the end
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if _overlap(floor, ceiling, one) < _overlap(floor, ceiling, other):
            high = other
        else:
            low = one
    best = 0.0 if _overlap(floor, ceiling, 0.0) <= 0 else (low + high) / 2
    noise = max(_overlap(floor, ceiling, best) / 2, 0.0)
    # Each point of the ceiling bounds the slope with each of the floor: from below if it is later. Stamps are rounded.
    (t, x), (s, y) = floor.T, ceiling.T
    apart = s[:, None] - t
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = (-y[:, None] - x - 2 * noise - RESOLUTION_NS) / apart
    minimum = bound[apart > 0].max(initial=-steepest)
    most = bound[apart < 0].min(initial=steepest)
    return noise, (float(min(minimum, best)), float(max(most, best)))
