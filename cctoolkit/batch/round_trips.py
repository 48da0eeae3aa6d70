"""RTT samples summarised by flow, and by flow and second, as counts.

Sums of counts do not depend on their order: neither on how packets are divided into batches, nor on which worker has
which flows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .._support.state import grown

__all__ = ["RttByFlow", "RttBySecond"]

#: Number of bins per factor of two, so a quantile is off by at most half a bin: 0.8 %.
SUBBINS = 64
_SHIFT = 52 - SUBBINS.bit_length() + 1
_BINS = 64 * SUBBINS


class _Counts:
    """Counts of keys; sorted, and merged whenever the amount has doubled."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._merged = 0
        self._more = 0

    def add(self, keys: np.ndarray) -> None:
        part = np.unique(keys, return_counts=True)
        self._parts.append(part)
        self._more += len(part[0])
        if self._more > max(self._merged, 1 << 16):
            self.all()

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys in ascending order, and their counts."""
        if not self._parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if len(self._parts) > 1:
            keys = np.concatenate([part[0] for part in self._parts])
            counts = np.concatenate([part[1] for part in self._parts])
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            starts = np.flatnonzero(np.diff(keys, prepend=-1))
            self._parts = [(keys[starts], np.add.reduceat(counts[order], starts))]
        self._merged, self._more = len(self._parts[0][0]), 0
        return self._parts[0]


class RttByFlow:
    """By flow and direction of data: samples, exact minimum and maximum, median and 95th percentile from bins.

    Notes
    -----
    It takes 16 bytes per nonempty bin of each flow and direction; there are 64 bins per factor of two, so a flow
    with a million samples costs no more than one with a few hundred. A quantile is the midpoint of the bin of its
    rank (the lower of two), limited to minimum and maximum: exact for one sample, else within 0.8 %.
    """

    def __init__(self) -> None:
        self._counts = _Counts()
        self._min_ns = np.zeros(0, np.int64)
        self._most = np.zeros(0, np.int64)

    def update(self, samples: dict[str, np.ndarray]) -> None:
        """Add the samples of :meth:`cctoolkit.RttPairing.update`."""
        rtt = samples["rtt_ns"]
        if not len(rtt):
            return
        way = 2 * samples["flow_id"].astype(np.int64) + samples["direction"]
        self._counts.add(way * _BINS + _bin(rtt))
        ways = int(way.max()) + 1
        known = len(self._min_ns)
        self._min_ns, self._most = grown(self._min_ns, ways), grown(self._most, ways)
        self._min_ns[known:], self._most[known:] = np.iinfo(np.int64).max, -1
        np.minimum.at(self._min_ns, way, rtt)
        np.maximum.at(self._most, way, rtt)

    def result(self) -> pd.DataFrame:
        """Table ``rtt`` of a dataset: one row per flow and direction with samples, in that order."""
        keys, counts = self._counts.all()
        way = keys // _BINS
        starts = np.flatnonzero(np.diff(way, prepend=-1))
        ways = way[starts]
        total = np.add.reduceat(counts, starts) if len(starts) else counts
        upto = np.cumsum(counts)
        before = np.concatenate([[0], np.cumsum(total)])[: len(ways)]
        minimum, most = self._min_ns[ways], self._most[ways]
        table = {
            "flow_id": (ways // 2).astype(np.uint32),
            "direction": (ways % 2).astype(np.int8),
            "samples": total,
            "rtt_min_ns": minimum,
        }
        for name, percent in (("median", 50), ("p95", 95)):
            rank = before + (total - 1) * percent // 100
            middle = (
                _middle(keys[np.searchsorted(upto, rank, side="right")] % _BINS) if len(ways) else minimum
            )
            table[f"rtt_{name}_ns"] = np.clip(middle, minimum, most)
        return pd.DataFrame({**table, "rtt_max_ns": most})


def _bin(rtt_ns: np.ndarray) -> np.ndarray:
    """Number of a bin: exponent and leading bits of the mantissa; 0 ns counts as 1."""
    return (np.maximum(rtt_ns, 1).astype(np.float64).view(np.int64) >> _SHIFT) - 1023 * SUBBINS


def _middle(at: np.ndarray) -> np.ndarray:
    return np.rint(np.ldexp(1 + (at % SUBBINS + 0.5) / SUBBINS, at // SUBBINS)).astype(np.int64)


class RttBySecond:
    """By flow, direction of data and second: samples, minimum, mean.

    Parameters
    ----------
    origin_ns : int
        Start of second 0 in ns.
    """

    def __init__(self, origin_ns: int) -> None:
        self._origin_ns = origin_ns
        self._parts: list[pd.DataFrame] = []

    def update(self, samples: dict[str, np.ndarray]) -> None:
        """Add the samples of :meth:`cctoolkit.RttPairing.update`."""
        frame = pd.DataFrame(
            {
                "flow_id": samples["flow_id"],
                "direction": samples["direction"],
                "second": (samples["ts_ns"] - self._origin_ns) // 1_000_000_000,
                "rtt_samples": 1,
                "rtt_min_ns": samples["rtt_ns"],
                "rtt_sum_ns": samples["rtt_ns"],
            }
        )
        self._parts.append(_by_second(frame))

    def result(self) -> pd.DataFrame:
        """Rows with samples: ``flow_id direction second rtt_samples rtt_min_ns rtt_mean_ns`` (rounded down)."""
        found = _by_second(pd.concat(self._parts, ignore_index=True)) if self._parts else pd.DataFrame()
        if found.empty:
            columns = ("flow_id", "direction", "second", "rtt_samples", "rtt_min_ns", "rtt_mean_ns")
            return pd.DataFrame({name: pd.Series(dtype="int64") for name in columns})
        found["rtt_mean_ns"] = found.pop("rtt_sum_ns") // found["rtt_samples"]
        return found


def _by_second(frame: pd.DataFrame) -> pd.DataFrame:
    groups = frame.groupby(["flow_id", "direction", "second"], as_index=False)
    return groups.agg({"rtt_samples": "sum", "rtt_min_ns": "min", "rtt_sum_ns": "sum"})
