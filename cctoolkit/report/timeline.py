"""What happened when, in one pass and bounded memory: bytes and RTTs in time bins, overall and of the large flows.

Neither the length of a stream nor its largest flows are known before its end. Both are handled without a
second pass:

* **Bins** start at 10 µs, or as wide as the first packets need, and are merged whenever the stream outgrows them: in
  steps of two and five in turn, so their width does not depend on when. At the end there are between ``bins / 5`` and
  `bins` of them, and their width is 1, 2 or 10 times a power of ten.
* **Flows** get bins of their own while fewer than `tracked` have them, so small captures are exact. One flow more takes
  them from flows less than half its size (by bytes so far, at most ``tracked / 2`` flows at once), and if there are
  none, it has to grow first. Flows of about the same size therefore do not displace each other, and all that are more
  than twice as large as the ``tracked / 2``-th largest have bins. What a flow sent before it got them is missing;
  comparing :attr:`Timeline.flow_bytes` with its total shows how much.
* **RTT samples** of each flow and direction are all kept up to 1024; beyond that they are a uniform random sample
  of 1024 (reservoir sampling, Vitter's algorithm R, with a counter-based generator: the same capture gives the
  same sample). A quantile q read from them is off by about sqrt(q (1 - q) / 1024) in rank: 1.6 % for the median.

Nothing depends on how the stream is divided into batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._support.kernels import kernel
from .._support.layout import same_layout
from .._support.state import grown
from ..capture.protocols import TCP, UDP

if TYPE_CHECKING:
    from ..capture.keys import FlowKeys

__all__ = ["Timeline", "histogram_edges_ns", "wider_bins"]

FIRST_WIDTH_NS = 10_000
RESERVOIR = 1024
_BLOCKS = (4, 16, 64, 256, RESERVOIR)  # how many samples a block of the pool has room for
_AT_ONCE = 1 << 22  # samples sorted at once
#: The RTT histogram has this many equal bins in every factor of two.
HISTOGRAM_SUBBINS = 32

_OTHER, _TCP, _UDP = 0, 1, 2
_KIND_OF_PROTOCOL = np.zeros(256, np.uint8)
_KIND_OF_PROTOCOL[TCP] = _TCP
_KIND_OF_PROTOCOL[UDP] = _UDP

# Why the kernel stopped before the end of a batch: something rare that Python does better.
_DONE, _OUT_OF_BINS, _OUT_OF_SLOTS, _OUT_OF_ROOM = 0, 1, 2, 3

_FLOW = np.dtype(
    [("bytes", np.uint64), ("slot", np.uint32), ("kind", np.uint32)]
)  # slot 0: no bins of its own
(
    _CLOCK_T0,
    _CLOCK_WIDTH,
    _CLOCK_BIN,
    _CLOCK_LAST,
    _CLOCK_BACKWARD,
    _CLOCK_LARGEST,
    _CLOCK_GAP,
    _CLOCK_GAP_AT,
    _CLOCK_STARTED,
) = range(9)


class _Bins(NamedTuple):
    """Everything that is per time bin; the slot is the last but one axis so that one bin's rows lie together."""

    kind_bytes: np.ndarray  # (bins, 3) u64
    kind_packets: np.ndarray  # (bins, 3) u64
    flow_bytes: np.ndarray  # (bins, tracked, 2) u64, by direction
    rtt_count: np.ndarray  # (bins, tracked, 2) u32, by direction of the data
    rtt_sum: np.ndarray  # (bins, tracked, 2) f64, ns
    rtt_min: np.ndarray  # (bins, tracked, 2) f32, ns, meaningless where the count is 0
    rtt_max: np.ndarray  # (bins, tracked, 2) f32, ns


class _Samples(NamedTuple):
    """RTT samples of every flow and direction that has any."""

    entry: np.ndarray  # (2 * flows,) u32: row of the three arrays below; 0 is none
    counts: np.ndarray  # i64
    minimum: np.ndarray  # i64, ns
    start: np.ndarray  # i64, where its block of the pool begins
    pool: np.ndarray  # f32, ns
    histogram: np.ndarray  # (2048,) i64
    used: np.ndarray  # (2,) i64: entries, pool


@kernel
def _consume(at, rtt_at, ts, flow_id, direction, wire, ecn, rtt_row, rtt_direction, rtt_ns,
             clock, threshold, flows, free, owner, bins, samples, ecn_packets):  # fmt: skip
    """Take in packets from row `at` on.

    Parameters
    ----------
    at, rtt_at : int
        First row of the packets, and of the RTT samples.
    ts, flow_id, direction, wire, ecn : arrays
        Columns of the packets table: time in ns, flow, direction, bytes on the wire, ECN field.
    rtt_row : int64 array
        Packet that completes each RTT sample, ascending.
    rtt_direction : int8 array
        Direction of the data that was acknowledged.
    rtt_ns : int64 array
        The RTT.
    clock : int64 array, shape (9,)
        Times in ns and counts, by the ``_CLOCK_…`` constants; updated.
    threshold : int
        Number of bytes above which a flow gets time bins of its own.
    flows : array of ``_FLOW``
        State by flow number; updated.
    free : array
        Number of free slots, then the slots; updated.
    owner : array
        Flow number by slot; updated.
    bins : _Bins
        Sums by time bin; updated.
    samples : _Samples
        RTT samples by flow and direction; updated.
    ecn_packets : int64 array, shape (4,)
        Packets by ECN field; updated.

    Returns
    -------
    row, rtt_row : int
        Where to resume.
    why : int
        ``_DONE``, or what must be enlarged first.
    """
    n = np.uint64(len(ts))
    n_rtt = np.uint64(len(rtt_row))
    n_bins = len(bins.kind_bytes)
    kind_bytes = bins.kind_bytes
    kind_packets = bins.kind_packets
    flow_bytes = bins.flow_bytes
    count = samples.counts
    start = samples.start
    pool = samples.pool
    t0 = clock[_CLOCK_T0]
    width = clock[_CLOCK_WIDTH]
    now = clock[_CLOCK_BIN]
    last = clock[_CLOCK_LAST]
    backward = clock[_CLOCK_BACKWARD]
    largest = np.uint64(clock[_CLOCK_LARGEST])
    gap = clock[_CLOCK_GAP]
    bin_from = t0 + now * width
    why = _DONE
    i = np.uint64(at)
    j = np.uint64(rtt_at)
    while i < n:
        t = ts[i]
        if t < bin_from or t - bin_from >= width:
            now = max((t - t0) // width, 0)  # a packet stamped before the first one counts in the first bin
            if now >= n_bins:
                why = _OUT_OF_BINS
                break
            bin_from = t0 + now * width
        f = np.uint64(flow_id[i])
        d = np.uint64(direction[i])
        b = np.uint64(now)
        flow = flows[f]
        size = np.uint64(wire[i])
        slot = np.uint64(flow.slot)
        if slot == 0 and flow.bytes + size > threshold:
            if free[0] == 0:
                why = _OUT_OF_SLOTS
                break
            slot = np.uint64(free[free[0]])
            free[0] -= 1
            flow.slot = slot
            owner[slot] = f
        if j < n_rtt and rtt_row[j] == i:
            sample = rtt_ns[j]
            data = np.uint64(rtt_direction[j])
            used = samples.used
            e = np.int64(samples.entry[2 * f + data])
            if used[0] + 1 >= len(count) or used[1] + RESERVOIR > len(pool):
                why = _OUT_OF_ROOM
                break
            if e == 0:
                used[0] += 1
                e = used[0]
                samples.entry[2 * f + data] = e
                samples.minimum[e] = sample
                start[e] = used[1]
                used[1] += 4
            k = count[e]
            block = start[e]
            if k < RESERVOIR:
                if (
                    k == 4 or k == 16 or k == 64 or k == 256
                ):  # its block is full: move to one four times the size
                    to = used[1]
                    for m in range(k):
                        pool[to + m] = pool[block + m]
                    used[1] += 4 * k
                    start[e] = to
                    block = to
                pool[block + k] = sample
            else:
                x = np.uint64(k) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(e)  # splitmix64
                x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                x = x ^ (x >> np.uint64(31))
                place = x % np.uint64(k + 1)
                if place < np.uint64(RESERVOIR):
                    pool[block + np.int64(place)] = sample
            count[e] = k + 1
            if sample < samples.minimum[e]:
                samples.minimum[e] = sample
            # Exponent and leading mantissa bits of the float are the bin: equal steps within a factor of two.
            bits = np.float64(max(sample, 1)).view(np.int64)
            samples.histogram[(bits >> 47) - (1023 << 5)] += 1
            if slot != 0:
                s = slot - np.uint64(1)
                seen = bins.rtt_count[b, s, data]
                if seen == 0 or sample < bins.rtt_min[b, s, data]:
                    bins.rtt_min[b, s, data] = sample
                if seen == 0 or sample > bins.rtt_max[b, s, data]:
                    bins.rtt_max[b, s, data] = sample
                bins.rtt_sum[b, s, data] += sample
                bins.rtt_count[b, s, data] = seen + 1
            j += np.uint64(1)
        flow.bytes += size
        if slot != 0:
            flow_bytes[b, slot - np.uint64(1), d] += size
        kind = np.uint64(flow.kind)
        kind_bytes[b, kind] += size
        kind_packets[b, kind] += np.uint64(1)
        ecn_packets[ecn[i]] += 1
        backward += t < last
        if t - last > gap:
            gap = t - last
            clock[_CLOCK_GAP_AT] = last
        largest = max(largest, size)
        last = t
        i += np.uint64(1)
    clock[_CLOCK_BIN] = now if now < n_bins else 0
    clock[_CLOCK_LAST] = last
    clock[_CLOCK_BACKWARD] = backward
    clock[_CLOCK_LARGEST] = largest
    clock[_CLOCK_GAP] = gap
    return i, j, why


@kernel
def _merge_bins(bins, used, slots, factor):
    """Merge every `factor` neighbouring bins, in place; `used` bins and the first `slots` slots are in use."""
    for old in range(used):
        new = old // factor
        fresh = old % factor == 0
        if old == 0:
            continue
        for kind in range(3):
            if fresh:
                bins.kind_bytes[new, kind] = 0
                bins.kind_packets[new, kind] = 0
            bins.kind_bytes[new, kind] += bins.kind_bytes[old, kind]
            bins.kind_packets[new, kind] += bins.kind_packets[old, kind]
        for slot in range(slots):
            for d in range(2):
                if fresh:
                    bins.flow_bytes[new, slot, d] = 0
                    bins.rtt_count[new, slot, d] = 0
                    bins.rtt_sum[new, slot, d] = 0
                bins.flow_bytes[new, slot, d] += bins.flow_bytes[old, slot, d]
                k = bins.rtt_count[old, slot, d]
                if k != 0:
                    low, high = bins.rtt_min[old, slot, d], bins.rtt_max[old, slot, d]
                    if bins.rtt_count[new, slot, d] != 0:
                        low = min(low, bins.rtt_min[new, slot, d])
                        high = max(high, bins.rtt_max[new, slot, d])
                    bins.rtt_min[new, slot, d] = low
                    bins.rtt_max[new, slot, d] = high
                    bins.rtt_sum[new, slot, d] += bins.rtt_sum[old, slot, d]
                    bins.rtt_count[new, slot, d] += k
    for old in range((used + factor - 1) // factor, used):
        bins.kind_bytes[old] = 0
        bins.kind_packets[old] = 0
        bins.flow_bytes[old, :slots] = 0
        bins.rtt_count[old, :slots] = 0
        bins.rtt_sum[old, :slots] = 0


def _quantiles(count: np.ndarray, start: np.ndarray, pool: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Linearly interpolated quantiles `q` of every block of the pool: (blocks, len(q))."""
    out = np.empty((len(count), len(q)))
    count = np.minimum(count, RESERVOIR)
    least = 0
    for most in _BLOCKS:  # blocks of about one size together, as rows of a matrix
        of_size = np.flatnonzero((count > least) & (count <= most))
        least = most
        for rows in np.array_split(of_size, 1 + len(of_size) * most // _AT_ONCE):
            n = count[rows, np.newaxis]
            place = np.arange(most)
            samples = pool[start[rows, np.newaxis] + np.minimum(place, n - 1)]
            samples[place >= n] = np.inf
            samples.sort(axis=1)
            rank = q * (n - 1)
            low = rank.astype(np.int64)
            below, above = (
                np.take_along_axis(samples, at, 1).astype(float) for at in (low, np.minimum(low + 1, n - 1))
            )
            out[rows] = below + (rank - low) * (above - below)
    return out


def histogram_edges_ns(first: int, last: int) -> np.ndarray:
    """Edges, in ns, of the RTT histogram's bins `first` to `last` - 1: a float array of ``last - first + 1``."""
    index = np.arange(first, last + 1)
    return np.ldexp(1 + (index % HISTOGRAM_SUBBINS) / HISTOGRAM_SUBBINS, index // HISTOGRAM_SUBBINS)


def wider_bins(width_ns: int, bins: int, most: int, min_ns: int = 0) -> int:
    """How many bins of `width_ns` to merge, for at most `most` readable bins of at least `min_ns`.

    The new width is 1, 2 or 5 times a power of ten when `width_ns` is such a number.
    """
    decade = 1
    while True:
        for step in (1, 2, 5):
            wide = step * decade
            if wide % width_ns == 0 and wide >= min_ns and -(-bins * width_ns // wide) <= most:
                return wide // width_ns
        decade *= 10


class Timeline:
    """Time bins of a stream of packets and its RTT samples; see the module's text.

    Parameters
    ----------
    tracked : int
        Most flows with time bins of their own at once.
    bins : int
        Most time bins; a multiple of ten.
    """

    def __init__(self, tracked: int = 512, bins: int = 2000) -> None:
        if bins % 10 or bins < 10 or tracked < 2:
            raise ValueError("bins must be a multiple of ten, and tracked two or more")
        self._flows = np.zeros(1024, _FLOW)
        self._free = np.zeros(tracked + 1, np.uint32)  # [0]: how many; a stack, its top at that index
        self._free[0] = tracked
        self._free[1:] = np.arange(tracked, 0, -1)
        self._owner = np.zeros(tracked + 1, np.uint32)  # flow of a slot, where it is not free
        self._clock = np.zeros(9, np.int64)
        self._clock[_CLOCK_WIDTH] = FIRST_WIDTH_NS
        self._packets = 0
        self._threshold = np.uint64(0)
        self._factor = 2
        per_slot = (bins, tracked, 2)
        self._bins = _Bins(
            np.zeros((bins, 3), np.uint64),
            np.zeros((bins, 3), np.uint64),
            np.zeros(per_slot, np.uint64),
            np.zeros(per_slot, np.uint32),
            np.zeros(per_slot, np.float64),
            np.zeros(per_slot, np.float32),
            np.zeros(per_slot, np.float32),
        )
        self._samples = _Samples(
            np.zeros(2048, np.uint32),
            np.zeros(1024, np.int64),
            np.zeros(1024, np.int64),
            np.zeros(1024, np.int64),
            np.zeros(16 * RESERVOIR, np.float32),
            np.zeros(64 * HISTOGRAM_SUBBINS, np.int64),
            np.zeros(2, np.int64),
        )
        self.ecn_packets = np.zeros(4, np.int64)

    def update(self, columns: dict[str, np.ndarray], keys: FlowKeys, rtt: dict[str, np.ndarray]) -> None:
        """Take the next packets, the keys of their flows, and the RTT samples they complete.

        `rtt` is the result of :meth:`cctoolkit.analysis.rtt.RttPairing.update` for the same packets.
        """
        columns, rtt = same_layout(columns), same_layout(rtt)
        ts = columns["ts_ns"]
        if not len(ts):
            return
        if not self._clock[_CLOCK_STARTED]:
            self._clock[[_CLOCK_T0, _CLOCK_LAST]] = ts[0]
            self._clock[_CLOCK_STARTED] = 1
            self._widen(ts)  # now, while there is nothing to merge
        top = int(keys.flow_id[-1]) + 1
        self._flows = grown(self._flows, top, moved=True)
        self._samples = self._samples._replace(entry=grown(self._samples.entry, 2 * top, moved=True))
        self._flows["kind"][keys.flow_id] = _KIND_OF_PROTOCOL[keys.protocol]
        rtt_row = (rtt["packet"] - self._packets).astype(np.uint64)
        self._packets += len(ts)
        at, rtt_at = 0, 0
        while True:
            at, rtt_at, why = _consume(
                at,
                rtt_at,
                ts,
                columns["flow_id"],
                columns["direction"],
                columns["wire_bytes"],
                columns["ecn"],
                rtt_row,
                rtt["direction"],
                rtt["rtt_ns"],
                self._clock,
                self._threshold,
                self._flows,
                self._free,
                self._owner,
                self._bins,
                self._samples,
                self.ecn_packets,
            )
            if why == _OUT_OF_BINS:
                self._widen(ts[at:])
            elif why == _OUT_OF_SLOTS:
                flow = self._flows[columns["flow_id"][at]]
                self._make_way(int(flow["bytes"]) + int(columns["wire_bytes"][at]))
            elif why == _OUT_OF_ROOM:
                self._grow()
            else:
                break

    def _widen(self, ts: np.ndarray) -> None:
        """Make the bins two, ten, twenty … times as wide, if packets at these times need it.

        They are merged at once and not step by step, since every step goes through all bins of all flows.
        """
        last = int((ts - self._clock[_CLOCK_T0]).max())
        merged = 1
        while last // (self.width_ns * merged) >= len(self._bins.kind_bytes):
            merged *= self._factor
            self._factor = 7 - self._factor
        _merge_bins(self._bins, self.bins, self._slots(), merged)
        self._clock[_CLOCK_WIDTH] *= merged
        self._clock[_CLOCK_BIN] = 0

    def _make_way(self, size: int) -> None:
        """Take the bins away from flows less than half of `size`, or make larger what a flow needs to get any."""
        flow_id = self._owner[1:]
        have = self._flows["bytes"][flow_id]
        order = np.lexsort((flow_id, have))
        smaller = order[: len(order) // 2]
        smaller = smaller[2 * have[smaller] < size]
        if not len(smaller):
            self._threshold = 2 * have[order[0]]
            return
        self._threshold = have[smaller[-1]]
        self._flows["slot"][flow_id[smaller]] = 0
        used = self.bins  # the rest was never written, and should not cost memory now
        for array in (self._bins.flow_bytes, self._bins.rtt_count, self._bins.rtt_sum):
            array[:used, smaller] = 0
        self._free[1 : len(smaller) + 1] = smaller + 1
        self._free[0] = len(smaller)

    def _slots(self) -> int:
        """The highest slot in use; slots are assigned from 1 up."""
        if self._threshold:
            return len(self._owner) - 1
        return len(self._owner) - 1 - int(self._free[0])

    def _grow(self) -> None:
        s = self._samples
        entries, pool = 2 * len(s.counts), 2 * len(s.pool)
        self._samples = s._replace(
            counts=grown(s.counts, entries, moved=True),
            minimum=grown(s.minimum, entries, moved=True),
            start=grown(s.start, entries, moved=True),
            pool=grown(s.pool, pool, moved=True),
        )

    @property
    def start_ns(self) -> int:
        """Time of the first packet, where bin 0 starts."""
        return int(self._clock[_CLOCK_T0])

    @property
    def width_ns(self) -> int:
        """Width of a bin."""
        return int(self._clock[_CLOCK_WIDTH])

    @property
    def bins(self) -> int:
        """Bins up to the last that holds a packet."""
        used = np.flatnonzero(self._bins.kind_packets.any(axis=1))
        return int(used[-1]) + 1 if len(used) else 0

    @property
    def backward(self) -> int:
        """Packets stamped earlier than the packet before them."""
        return int(self._clock[_CLOCK_BACKWARD])

    @property
    def longest_gap_ns(self) -> tuple[int, int]:
        """Longest time without a packet: when it began, and how long it was."""
        return int(self._clock[_CLOCK_GAP_AT]), int(self._clock[_CLOCK_GAP])

    @property
    def largest_bytes(self) -> int:
        """Size of the largest packet on the wire."""
        return int(self._clock[_CLOCK_LARGEST])

    @property
    def kind_bytes(self) -> np.ndarray:
        """Bytes on the wire, (bins, 3): other, TCP, UDP."""
        return self._bins.kind_bytes[: self.bins].astype(np.int64)

    @property
    def kind_packets(self) -> np.ndarray:
        """Packets, (bins, 3): other, TCP, UDP."""
        return self._bins.kind_packets[: self.bins].astype(np.int64)

    @property
    def histogram(self) -> np.ndarray:
        """RTT samples by :func:`histogram_edges_ns`."""
        return self._samples.histogram

    def has_bins(self, flow_id: int) -> bool:
        """Whether the flow has time bins of its own."""
        return bool(self._flows["slot"][flow_id])

    def flow_bytes(self, flow_id: int) -> np.ndarray:
        """Bytes on the wire of a flow that has bins, (bins, 2) by direction."""
        return self._of(self._bins.flow_bytes, flow_id).astype(np.int64)

    def flow_rtt(self, flow_id: int, direction: int) -> dict[str, np.ndarray]:
        """RTT samples of data in one direction of a flow that has bins.

        Returns
        -------
        dict
            ``count``, and in ns ``minimum``, ``mean``, ``maximum``, each (bins,); NaN where the count is 0.
        """
        count = self._of(self._bins.rtt_count, flow_id)[:, direction].astype(np.int64)
        none = count == 0
        mean = self._of(self._bins.rtt_sum, flow_id)[:, direction] / np.maximum(count, 1)
        low = self._of(self._bins.rtt_min, flow_id)[:, direction].astype(float)
        high = self._of(self._bins.rtt_max, flow_id)[:, direction].astype(float)
        mean[none] = low[none] = high[none] = np.nan
        return {"count": count, "minimum": low, "mean": mean, "maximum": high}

    def _of(self, array: np.ndarray, flow_id: int) -> np.ndarray:
        slot = int(self._flows["slot"][flow_id])
        if slot == 0:
            raise KeyError(flow_id)
        return array[: self.bins, slot - 1]

    def rtt_by_flow(self, q: tuple[float, ...]) -> dict[str, np.ndarray]:
        """RTT statistics of every flow and direction with samples, by flow id and direction.

        Returns
        -------
        dict
            ``flow_id``, ``direction`` (of the data), ``count`` and ``minimum`` (exact; ns), each (rows,), and
            ``quantiles`` (rows, len(q)) in ns.
        """
        where = np.flatnonzero(self._samples.entry)
        row = self._samples.entry[where]
        count = self._samples.counts[row]
        quantiles = _quantiles(count, self._samples.start[row], self._samples.pool, np.array(q, float))
        return {
            "flow_id": (where // 2).astype(np.uint32),
            "direction": (where % 2).astype(np.int8),
            "count": count,
            "minimum": self._samples.minimum[row],
            "quantiles": quantiles,
        }
