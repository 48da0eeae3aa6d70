"""Count-min sketch, and the long flows of a capture found with it or exactly.

A switch has no memory for one counter per flow. The paper on separating flows by RTT counts in a count-min sketch and
calls a flow long above 10 MB; here the same sketch runs beside exact counting, which shows what it costs.

Source of the sketch and of its guarantee: G. Cormode, S. Muthukrishnan, "An improved data stream summary: the
count-min sketch and its applications", Journal of Algorithms 55 (2005). Conservative update: C. Estan,
G. Varghese, "New directions in traffic measurement and accounting", SIGCOMM 2002.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .._support.kernels import kernel
from .._support.layout import for_kernels
from ..capture.keys import check_keys
from ..capture.model import Capture, columns_of
from ..errors import ParameterError
from .rtt import five_tuple_hashes
from .rtt_kernels import CRC32_TABLE, CRC32C_TABLE

if TYPE_CHECKING:
    from ..capture.keys import FlowKeys

__all__ = ["CountMinSketch", "LongFlows", "long_flows"]

_CHUNK = 1 << 16  # packets at a time: their keys and estimates stay in the cache
HASHES = ("multiply_shift", "crc")


@kernel
def _count(table, multipliers, shift, conservative, keys, amounts, estimates):
    """Add each amount to its key, and write the key's new estimate.

    Parameters
    ----------
    table : int64 array, shape (depth, width)
        The counters; updated.
    multipliers : uint64 array, shape (depth, 3)
        Coefficients of each row's hash.
    shift : uint64
        64 - log2(width).
    conservative : bool
        Raise counters no further than the new estimate needs.
    keys : uint64 array
        Key of each update.
    amounts : int64 array
        What to add.
    estimates : int64 array
        Receives the key's estimate after each update.
    """
    depth = np.uint64(table.shape[0])
    low_half = np.uint64(0xFFFFFFFF)
    at = np.empty(depth, np.uint64)
    for i in range(np.uint64(len(keys))):
        low, high = keys[i] & low_half, keys[i] >> np.uint64(32)
        smallest = np.int64(0x7FFFFFFFFFFFFFFF)
        for row in range(depth):
            hashed = multipliers[row, 0] * low + multipliers[row, 1] * high + multipliers[row, 2]
            at[row] = hashed >> shift
            smallest = min(smallest, table[row, at[row]])
        smallest += amounts[i]
        estimates[i] = smallest
        if conservative:
            for row in range(depth):
                table[row, at[row]] = max(table[row, at[row]], smallest)
        else:
            for row in range(depth):
                table[row, at[row]] += amounts[i]


@kernel
def _count_at(table, places, conservative, amounts, estimates):
    """As :func:`_count`, with each key's counters given."""
    depth = np.uint64(table.shape[0])
    for i in range(np.uint64(len(amounts))):
        smallest = np.int64(0x7FFFFFFFFFFFFFFF)
        for row in range(depth):
            smallest = min(smallest, table[row, places[row, i]])
        smallest += amounts[i]
        estimates[i] = smallest
        for row in range(depth):
            at = places[row, i]
            if conservative:
                table[row, at] = max(table[row, at], smallest)
            else:
                table[row, at] += amounts[i]


@kernel
def _count_exactly(totals, keys, amounts, estimates):
    for i in range(np.uint64(len(keys))):
        totals[keys[i]] += amounts[i]
        estimates[i] = totals[keys[i]]


@kernel
def _first_crossings(keys, estimates, ts_ns, threshold, crossed, found, found_ts):
    """Find the keys whose estimate exceeds the threshold for the first time.

    Parameters
    ----------
    keys : uint64 array
        Key of each update.
    estimates : int64 array
        Estimate of the key after it.
    ts_ns : int64 array
        Time of the update.
    threshold : int
        An estimate above it makes the key a heavy one.
    crossed : bool array
        Whether a key is known to be heavy; updated.
    found, found_ts : arrays
        Receive the new heavy keys, and when they crossed the threshold.

    Returns
    -------
    int
        Number of new heavy keys.
    """
    n = np.uint64(0)
    for i in range(np.uint64(len(keys))):
        if estimates[i] > threshold and not crossed[keys[i]]:
            crossed[keys[i]] = True
            found[n] = keys[i]
            found_ts[n] = ts_ns[i]
            n += np.uint64(1)
    return n


class CountMinSketch:
    """Count-min sketch: sums by key in fixed memory, never too small, rarely much too large.

    Parameters
    ----------
    width : int
        Counters per row, a power of two (a switch uses the top bits of a hash as the index).
    depth : int
        Rows, each with its own hash function.
    conservative : bool
        Raise a counter no further than the new estimate needs. Estimates get smaller and stay at least the truth, but
        the result depends on the order of updates, and merged sketches are no longer the sketch of everything.
    seed : int
        Seed for the hash functions. Only sketches with the same seed and shape can be merged.
    hash : {"multiply_shift", "crc"}
        ``crc`` is what a switch can compute, for keys of 32 bits, a width of at most 2**16 and a depth of at most 4.

    See Also
    --------
    LongFlows : long flows found with a sketch
    long_flows : the same in one call

    Notes
    -----
    With N the sum of all amounts, an estimate is never below the true sum of its key, and, with probability at
    least 1 - exp(-depth) over the choice of hash functions, above it by at most e N / width
    (Cormode & Muthukrishnan, theorem 1).

    The hash of row j is ``(a_j * low + b_j * high + c_j mod 2**64) >> (64 - log2 width)`` with the two halves of a
    64-bit key and random 64-bit a, b, c: multiply-shift on vectors, which is pairwise independent
    (M. Thorup, "High speed hashing for integers and strings", 2015, section 3), as the theorem asks for. Switches
    without a multiplier use CRC units with different polynomials instead; those are linear, so that the theorem
    does not cover them.

    With ``hash="crc"`` rows 0 and 1 take the lower and the upper 16 bits of the CRC-32 of the key (4 bytes in network
    order), rows 2 and 3 those of its CRC-32C, and of these as many of the lowest bits as `width` needs. A 32-bit CRC
    of 32 bits is one-to-one, so with the full width two keys may share a counter in row 0 or 1, but never in both; the
    same holds for rows 2 and 3.

    Counters have 64 bits and do not overflow; a switch's usually have 32.

    Examples
    --------
    >>> sketch = cct.CountMinSketch(width=1024, depth=3)
    >>> estimates = sketch.update(np.array([7, 7, 9]), np.array([1500, 1500, 40]))
    >>> sketch.query(np.array([7, 9, 11])).tolist()
    [3000, 40, 0]
    """

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        conservative: bool = False,
        seed: int = 0,
        hash: str = "multiply_shift",
    ) -> None:
        if width < 2 or width & (width - 1):
            raise ParameterError(f"width is {width}, expected a power of two of at least 2")
        if depth < 1:
            raise ParameterError(f"depth is {depth}, expected at least 1")
        if hash not in HASHES:
            raise ParameterError(f"hash is {hash!r}, expected one of {', '.join(HASHES)}")
        if hash == "crc" and width > 1 << 16:
            raise ParameterError(f"width is {width}, expected at most 65536 with hash 'crc'")
        if hash == "crc" and depth > 4:
            raise ParameterError(f"depth is {depth}, expected at most 4 with hash 'crc'")
        self.hash = hash
        self.width, self.depth = int(width), int(depth)
        self.conservative = bool(conservative)
        self.seed = seed
        self.total = 0
        self._table = np.zeros((self.depth, self.width), np.int64)
        random = np.random.default_rng(seed)
        self._multipliers = random.integers(0, 2**64, (self.depth, 3), np.uint64)
        self._shift = np.uint64(65 - self.width.bit_length())

    @classmethod
    def for_error(
        cls, epsilon: float, delta: float, *, conservative: bool = False, seed: int = 0
    ) -> CountMinSketch:
        """The smallest sketch that is off by more than ``epsilon * total`` with probability at most `delta`.

        ``width = e / epsilon``, rounded up to a power of two, and ``depth = ln(1 / delta)``, rounded up.
        """
        if not 0 < epsilon < 1:
            raise ParameterError(f"epsilon is {epsilon}, expected a number between 0 and 1")
        if not 0 < delta < 1:
            raise ParameterError(f"delta is {delta}, expected a number between 0 and 1")
        width = 1 << max(1, math.ceil(math.log2(math.e / epsilon)))
        return cls(width, math.ceil(math.log(1 / delta)), conservative=conservative, seed=seed)

    @property
    def error_bound(self) -> float:
        """``e * total / width``: an estimate is further off with probability at most ``exp(-depth)``."""
        return math.e * self.total / self.width

    def update(self, keys: np.ndarray, amounts: np.ndarray | None = None) -> np.ndarray:
        """Add amounts to keys, in order.

        Parameters
        ----------
        keys : array of unsigned or non-negative integers, shape (n,)
            Below 2**32 with ``hash="crc"``.
        amounts : array of non-negative integers, shape (n,), optional
            By default, 1 each.

        Returns
        -------
        int64 array, shape (n,)
            The estimate for each key right after its update, as a switch reads it while the packet passes.
        """
        keys = self._keys(keys)
        amounts = np.ones(len(keys), np.int64) if amounts is None else _whole("amounts", amounts)
        amounts = for_kernels(amounts, np.int64)
        if len(amounts) != len(keys):
            raise ParameterError(f"amounts has {len(amounts)} values, expected one per key: {len(keys)}")
        estimates = np.empty(len(keys), np.int64)
        if self.hash == "crc":
            _count_at(self._table, self._crc_places(keys), self.conservative, amounts, estimates)
        else:
            _count(self._table, self._multipliers, self._shift, self.conservative, keys, amounts, estimates)
        self.total += int(amounts.sum())
        return estimates

    def query(self, keys: np.ndarray) -> np.ndarray:
        """The estimates for these keys, int64, shape (n,)."""
        keys = self._keys(keys)
        if self.hash == "crc":
            return np.take_along_axis(self._table, self._crc_places(keys).astype(np.intp), axis=1).min(axis=0)
        low, high = keys & np.uint64(0xFFFFFFFF), keys >> np.uint64(32)
        estimates = np.full(len(keys), np.iinfo(np.int64).max)
        for counters, (a, b, c) in zip(self._table, self._multipliers, strict=True):
            np.minimum(estimates, counters[(a * low + b * high + c) >> self._shift], out=estimates)
        return estimates

    @property
    def counters(self) -> np.ndarray:
        """All counters as they are now, int64, shape (depth, width)."""
        return self._table.copy()

    def _keys(self, keys: np.ndarray) -> np.ndarray:
        keys = for_kernels(_whole("keys", keys), np.uint64)
        if self.hash == "crc" and len(keys) and keys.max() >= 1 << 32:
            raise ParameterError("keys: expected at most 32 bits with hash 'crc'")
        return keys

    def _crc_places(self, keys: np.ndarray) -> np.ndarray:
        """Each row's counter of each key, shape (depth, n)."""
        places = np.empty((self.depth, len(keys)), np.uint64)
        for first, table in ((0, CRC32_TABLE), (2, CRC32C_TABLE)):
            crc = np.full(len(keys), 0xFFFFFFFF, np.uint32)
            for byte in (24, 16, 8, 0):
                crc = (crc >> np.uint32(8)) ^ table[
                    (crc ^ (keys >> np.uint64(byte)).astype(np.uint32)) & 0xFF
                ]
            crc ^= np.uint32(0xFFFFFFFF)
            for row in range(first, min(first + 2, self.depth)):
                places[row] = (crc >> np.uint32(16 * (row - first))) & np.uint32(self.width - 1)
        return places

    def merge(self, other: CountMinSketch) -> CountMinSketch:
        """The sketch of both streams: without `conservative`, exactly that of their concatenation.

        Raises
        ------
        ParameterError
            The two differ in width, depth, seed, or kind of update.
        """
        for name in ("width", "depth", "seed", "conservative", "hash"):
            if getattr(self, name) != getattr(other, name):
                raise ParameterError(
                    f"merge: {name} differs: {getattr(self, name)} and {getattr(other, name)}"
                )
        merged = CountMinSketch(
            self.width, self.depth, conservative=self.conservative, seed=self.seed, hash=self.hash
        )
        np.add(self._table, other._table, out=merged._table)
        merged.total = self.total + other.total
        return merged

    def __repr__(self) -> str:
        kind = ", conservative" if self.conservative else ""
        return f"<CountMinSketch {self.depth} x {self.width}{kind}, total {self.total}>"


def _whole(name: str, values: np.ndarray) -> np.ndarray:
    """`values` as a contiguous array of non-negative integers."""
    values = np.ascontiguousarray(values)
    if values.ndim != 1:
        raise ParameterError(f"{name}: shape {values.shape}, expected (n,)")
    if not len(values):
        return np.zeros(0, np.int64)
    if values.dtype.kind not in "iu" or (values.dtype.kind == "i" and values.min() < 0):
        raise ParameterError(f"{name}: expected non-negative integers")
    return values


class LongFlows:
    """:func:`long_flows` for packets in batches.

    Parameters are those of :func:`long_flows`.

    See Also
    --------
    long_flows : the same in one call
    CountMinSketch : the sketch itself

    Examples
    --------
    >>> packets = cct.example("cubic-bbr").ingress.packets
    >>> detector = cct.LongFlows(threshold_bytes=1_000_000)
    >>> for batch in packets[:5000], packets[5000:]:
    ...     detector.update(batch)
    >>> detector.result().flow_id.tolist()
    [0, 1]
    """

    def __init__(
        self,
        threshold_bytes: int = 10_000_000,
        method: str = "exact",
        *,
        width: int = 1 << 16,
        depth: int = 4,
        conservative: bool = False,
        seed: int = 0,
        hash: str = "multiply_shift",
    ) -> None:
        if not threshold_bytes > 0:
            raise ParameterError(f"threshold_bytes is {threshold_bytes}, expected a positive number of bytes")
        if method not in ("exact", "count_min"):
            raise ParameterError(f"method is {method!r}, expected 'exact' or 'count_min'")
        self.threshold_bytes = int(threshold_bytes)
        self.sketch: CountMinSketch | None = None
        if method == "count_min":
            self.sketch = CountMinSketch(width, depth, conservative=conservative, seed=seed, hash=hash)
        self._by_hash = self.sketch is not None and hash == "crc"
        self._hashes = np.zeros(0, np.uint32)
        self._totals = np.zeros(0, np.int64)
        self._crossed = np.zeros(0, np.bool_)
        self._found: list[np.ndarray] = [np.empty(0, np.int64)]
        self._found_ts: list[np.ndarray] = [np.empty(0, np.int64)]

    def _reserve(self, keys: int) -> None:
        have = len(self._crossed)
        if keys <= have:
            return
        room = max(keys, 2 * have)
        crossed = np.zeros(room, np.bool_)
        crossed[:have] = self._crossed
        self._crossed = crossed
        if self.sketch is None:
            totals = np.zeros(room, np.int64)
            totals[:have] = self._totals
            self._totals = totals

    def update(
        self, packets: Capture | pd.DataFrame | dict[str, np.ndarray], keys: FlowKeys | None = None
    ) -> None:
        """Take in the next packets (a Capture, a packets DataFrame, or its columns as arrays), in capture order.

        With ``hash="crc"`` a flow's key is the CRC-32 of its five-tuple as in :class:`~cctoolkit.DataPlaneTables`:
        of `keys`, or of a Capture's own.
        """
        columns = columns_of(packets)
        if len(columns["flow_id"]) == 0:
            return
        if self._by_hash:
            keys = packets.keys if keys is None and isinstance(packets, Capture) else keys
            if keys is not None:
                check_keys(keys)
            self._hashes = five_tuple_hashes(self._hashes, columns["flow_id"], keys)
        self._reserve(2 * int(columns["flow_id"].max()) + 2)
        found, found_ts = np.empty(_CHUNK, np.int64), np.empty(_CHUNK, np.int64)
        for start in range(0, len(columns["flow_id"]), _CHUNK):
            rows = slice(start, start + _CHUNK)
            ways = columns["flow_id"][rows].astype(np.uint64) * np.uint64(2)
            ways += columns["direction"][rows].astype(np.uint64)
            amounts = columns["wire_bytes"][rows].astype(np.int64)
            if self.sketch is None:
                estimates = np.empty(len(ways), np.int64)
                _count_exactly(self._totals, ways, amounts, estimates)
            else:
                estimates = self.sketch.update(self._hashes[ways] if self._by_hash else ways, amounts)
            ts_ns = columns["ts_ns"][rows]
            n = _first_crossings(ways, estimates, ts_ns, self.threshold_bytes, self._crossed, found, found_ts)
            self._found.append(found[:n].copy())
            self._found_ts.append(found_ts[:n].copy())

    def result(self) -> pd.DataFrame:
        """The long flows so far; see :func:`long_flows`."""
        keys = np.concatenate(self._found)
        if self.sketch is None:
            carried = self._totals[keys]
        else:
            carried = self.sketch.query(self._hashes[keys] if self._by_hash else keys)
        return pd.DataFrame(
            {
                "flow_id": (keys // 2).astype(np.uint32),
                "direction": (keys % 2).astype(np.int8),
                "bytes": carried,
                "crossed_ts_ns": np.concatenate(self._found_ts),
            }
        )


def long_flows(
    packets: Capture | pd.DataFrame | dict[str, np.ndarray],
    threshold_bytes: int = 10_000_000,
    method: str = "exact",
    *,
    width: int = 1 << 16,
    depth: int = 4,
    conservative: bool = False,
    seed: int = 0,
    hash: str = "multiply_shift",
) -> pd.DataFrame:
    """Flows that carry more than `threshold_bytes` on the wire in one direction, and when they exceeded it.

    Parameters
    ----------
    packets : Capture, DataFrame or mapping of arrays
        A packets table, in capture order.
    threshold_bytes : int
        10 MB, as in the paper on separating flows by RTT.
    method : {"exact", "count_min"}
        One counter per flow and direction, or a count-min sketch as on a switch, which misses no long flow, detects
        each no later than it becomes long, and may take short flows for long.
    width, depth, conservative, seed, hash
        Parameters of the sketch; see :class:`CountMinSketch`. The default needs 2 MB and is off by more than 42 ppm of
        all bytes with a probability of at most 2 %.

    Returns
    -------
    DataFrame
        In order of detection: ``flow_id``, ``direction``, ``bytes`` (at the end; the sketch's estimate with
        ``"count_min"``), ``crossed_ts_ns`` (time of the packet that exceeded the threshold).

    See Also
    --------
    LongFlows : the same for batches of packets
    flow_table : exact byte counts, and is_long

    Notes
    -----
    The paper says that its sketch counts packets and compares with a size of 10 MB; here it counts bytes on the wire,
    the unit of the threshold. Each direction is a flow of its own, as for a switch. Which flows were reported is
    remembered exactly (a switch would use a register or leave it to the control plane).

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").ingress
    >>> cct.long_flows(cap, threshold_bytes=1_000_000)[["flow_id", "direction", "bytes"]]
       flow_id  direction    bytes
    0        0          0  3958116
    1        1          0  8404116
    """
    detector = LongFlows(
        threshold_bytes, method, width=width, depth=depth, conservative=conservative, seed=seed, hash=hash
    )
    detector.update(packets)
    return detector.result()
