"""By how much do the clocks of two taps differ, and how does the difference drift?

The one-way delay of a packet between two taps, taken from their time stamps, is what the packet takes *plus* the offset
of the clocks; of a packet that comes back it is the offset *less* what the packet takes. So the offset lies between the
largest delay of what comes back and the least of what goes forward, and where both are small it is known well (NTP
takes the middle: RFC 5905, section 8). With packets in one direction only it cannot be told from propagation delay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Clocks", "fit_clocks"]

_BINS = 128  # of the time: the least delay of each is what counts
_ENOUGH_BINS = 32
#: An operating system corrects a clock's rate by so much at most (Linux; NTP's limit, RFC 5905, section 11.3).
LARGEST_DRIFT_PPM = 500.0
RESOLUTION_NS = 1_000  # of time stamps in most captures


@dataclass(frozen=True)
class Clocks:
    """What is known of two clocks, all as the egress tap's against the ingress tap's.

    Attributes
    ----------
    offset_ns : (float, float), optional
        Between which bounds it is ahead, in the middle of the time that both taps saw packets. None where they go in
        one direction only.
    drift_ppm : float, optional
        How fast it gains: of the direction that keeps nearest to a line, because it waits least. With one direction
        only, how the least delay changes: drift, if the queue was empty now and then.
    drift_bounds_ppm : (float, float), optional
        Between which bounds it gains, if steadily. None with one direction only.
    noise_ns : float
        By how much packets contradict clocks that run steadily: coarse or late time stamps, or a clock that was set.
    start_ns, length_ns : int
        The time that both taps saw packets, by the ingress tap.
    """

    offset_ns: tuple[float, float] | None = None
    drift_ppm: float | None = None
    drift_bounds_ppm: tuple[float, float] | None = None
    noise_ns: float = 0.0
    start_ns: int = 0
    length_ns: int = 0

    def line_ns(self, ts_ns: np.ndarray) -> np.ndarray:
        """The best guess of the offset at these times; 0 where it is not known."""
        if self.offset_ns is None:
            return np.zeros(len(ts_ns))
        since_middle = ts_ns - self.start_ns - self.length_ns / 2
        return sum(self.offset_ns) / 2 + (self.drift_ppm or 0.0) * 1e-6 * since_middle

    @property
    def certain_offset_ns(self) -> float:
        """By how much the clocks differ at least at the worst time; 0 where they may agree."""
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
        Egress stamp less ingress stamp.
    forward : bool array
        The packet went from the ingress tap to the egress tap, not back.

    Notes
    -----
    The clocks' difference is taken for a straight line below all forward delays and above all backward ones. Its slope
    is that of the direction that keeps nearer to a line, within what the other direction allows; where no line fits,
    the one that is contradicted least. Slopes are those of Moon, Skelly and Towsley, "Estimation and Removal of Clock
    Skew from Network Delay Measurements", INFOCOM 1999. A drift of less than the time stamps' noise is none.
    """
    if not len(ts_ns):
        return Clocks()
    start, length = int(ts_ns.min()), max(int(ts_ns.max() - ts_ns.min()), 1)
    t, x = (ts_ns - start) / length - 0.5, delay_ns.astype(np.float64)
    per_ppm = 1e-6 * length
    floor, ceiling = _floor(t[forward], x[forward]), _floor(t[~forward], -x[~forward])
    if not len(ceiling):
        known = len(floor) >= _ENOUGH_BINS
        return Clocks(
            drift_ppm=_slope(floor)[0] / per_ppm if known else None, start_ns=start, length_ns=length
        )
    if not len(floor):
        return Clocks(start_ns=start, length_ns=length)
    noise, bounds = _room(floor, ceiling, LARGEST_DRIFT_PPM * per_ppm)
    (up, far), (down, farther) = _slope(floor), _slope(ceiling)
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


def _floor(t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The least of each bin of time, and when it was: rows (t, x) in order of time, t from -1/2 to 1/2."""
    bin_of = np.minimum(((t + 0.5) * _BINS).astype(np.int64), _BINS - 1)
    order = np.lexsort((x, bin_of))
    first = order[np.flatnonzero(np.diff(bin_of[order], prepend=-1))]
    return np.column_stack([t[first], x[first]])


def _slope(floor: np.ndarray) -> tuple[float, float]:
    """Of the line below all points that is nearest to them on the whole, and how near it is on average.

    It is the edge of the lower convex hull at the mean of the times.
    """
    t, x = floor.T
    hull: list[int] = []
    for i in range(len(t)):
        while len(hull) > 1:
            one, other = hull[-2:]
            if (x[other] - x[one]) * (t[i] - t[one]) < (x[i] - x[one]) * (t[other] - t[one]):
                break
            hull.pop()
        hull.append(i)
    if len(hull) < 2:
        return 0.0, 0.0
    right = min(max(int(np.searchsorted(t[hull], t.mean())), 1), len(hull) - 1)
    one, other = hull[right - 1], hull[right]
    slope = (x[other] - x[one]) / (t[other] - t[one])
    return float(slope), float((x - x[one] - slope * (t - t[one])).mean())


def _overlap(floor: np.ndarray, ceiling: np.ndarray, slope: float) -> float:
    """By how much the lines of this slope miss to fit between; negative: there is room. A convex function of the slope.

    `ceiling` is upside down, as it is everywhere here.
    """
    (t, x), (s, y) = floor.T, ceiling.T
    return float((-y - slope * s).max() - (x - slope * t).min())


def _room(floor: np.ndarray, ceiling: np.ndarray, steepest: float) -> tuple[float, tuple[float, float]]:
    """The least noise with which a line fits between `floor` and `ceiling`, and the range of such lines' slopes."""
    low, high = -steepest, steepest
    for _ in range(100):  # thirds of what is left: 2e-18 of it in the end
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if _overlap(floor, ceiling, one) < _overlap(floor, ceiling, other):
            high = other
        else:
            low = one
    best = 0.0 if _overlap(floor, ceiling, 0.0) <= 0 else (low + high) / 2
    noise = max(_overlap(floor, ceiling, best) / 2, 0.0)
    # Each point of the ceiling bounds the slope with each of the floor: from below if it comes later.
    (t, x), (s, y) = floor.T, ceiling.T
    apart = s[:, None] - t
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = (-y[:, None] - x - 2 * noise) / apart
    least = bound[apart > 0].max(initial=-steepest)
    most = bound[apart < 0].min(initial=steepest)
    return noise, (float(min(least, best)), float(max(most, best)))
