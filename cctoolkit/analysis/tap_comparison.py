"""Whether two captures are taps before and after one queue.

Segments are recognised at both taps independently of the clocks, from a sample: both taps pick the same segments by
their hash (hash-based selection, RFC 5475, section 6.2; trajectory sampling, Duffield and Grossglauser, IEEE/ACM ToN
2001).

In a flow seen in both directions, the egress tap stamps packets of one direction later, relative to those of the
other, by the delays of both. That shows the order of the taps whatever the clocks say. With packets in one direction
only, swapped taps look like a wrong clock; then packets missing at one of the taps decide, and without any, both
explanations are given.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._support.kernels import kernel
from .._support.words import format_percent, format_time_ns, plural
from ..capture.model import Capture, columns_of
from ..errors import ParameterError, TapClockWarning
from .tap_clocks import LARGEST_DRIFT_PPM, Clocks, fit_clocks
from .tap_identity import FlowNames, segment_identity, timestamps

__all__ = ["OneWayDelay", "TapComparer", "TapComparison", "check_egress", "compare_taps"]

_ROOM = 1 << 15  # segments of each tap that are kept for the comparison
_MAJORITY = 0.6  # by this majority, a flow's neighbours in both directions must agree on the order
#: This many times as much is clearly more; and this many packets are clearly some.
_CLEARLY = 10
#: Smaller offsets and delays are reported, but cause no warning.
_SMALL_NS = 1_000_000
#: Packets that seem to leave before they arrive are not matched; a larger share of them makes results wrong.
_FEW = 0.01
#: Share of the packets that both taps should have seen: with less, it is not the same traffic.
_RECOGNISED = 0.1
#: Packets that take longer are counted as lost, everywhere.
_LONGEST_NS = 10_000_000_000

_SIGHTING = np.dtype(
    [
        ("identity", np.uint64),  # of the segment, without its addresses, ports and timestamps
        ("key", np.uint64),  # of the segment with its addresses and ports
        ("timestamps", np.uint64),
        ("way", np.int64),  # 2 * number of the 5-tuple + direction between its lower and its upper end
        ("ts_ns", np.int64),
        ("payload_bytes", np.uint32),
    ]
)


@kernel
def _select(
    at, ts, flow_id, direction, seq, ack, tcp_flags, payload, window, tsval, tsecr, codes, largest, kept, n
):
    """Keep the segments from row `at` on whose hash is small enough.

    Parameters
    ----------
    at : int
        Row to begin with.
    ts, flow_id, direction, seq, ack, tcp_flags, payload, window, tsval, tsecr : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`).
    codes : int64 array
        By flow, ``2 * number of the 5-tuple + 1``, plus one if its initiator is the upper end. Empty: flow numbers are
        used instead.
    largest : uint64
        Largest hash to keep.
    kept : array of ``_SIGHTING``
        Receives the segments.
    n : int
        How many it holds already.

    Returns
    -------
    row, n, came : int
        The row reached, how many segments are kept now, and how many were looked at.
    """
    came = 0
    for i in range(np.uint64(at), np.uint64(len(ts))):
        flags = tcp_flags[i]
        if flags == 0:
            continue
        if n == len(kept):
            return i, n, came
        came += 1
        identity = segment_identity(np.uint64(0), seq[i], ack[i], flags, payload[i], window[i])
        if identity <= largest:
            flow = np.int64(flow_id[i])
            one = kept[np.uint64(n)]
            one.identity = identity
            way = ((codes[np.uint64(flow)] - 1) if len(codes) else 2 * flow) ^ np.int64(direction[i])
            one.way = way
            one.key = (identity ^ np.uint64(way) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(
                0xD6E8FEB86659FD93
            )
            one.timestamps = timestamps(tsval[i], tsecr[i])
            one.ts_ns = ts[i]
            one.payload_bytes = payload[i]
            n += 1
    return len(ts), n, came


class _Sample:
    """The segments of one tap whose hash is below a limit, which is halved when they become too many."""

    def __init__(self) -> None:
        self.largest = 2**64 - 1
        self.packets = 0  # of any kind
        self.segments = 0
        self.first_ns: int | None = None
        self.last_ns = 0
        self._kept = np.empty(0, _SIGHTING)
        self._n = 0

    def take(self, columns: Mapping[str, np.ndarray], codes: np.ndarray) -> None:
        ts = columns["ts_ns"]
        if not len(ts):
            return
        self.packets += len(ts)
        first, last = int(ts.min()), int(ts.max())
        if self.first_ns is None:
            self.first_ns, self.last_ns = first, last
        self.first_ns, self.last_ns = min(self.first_ns, first), max(self.last_ns, last)
        names = (
            "ts_ns", "flow_id", "direction", "seq", "ack", "tcp_flags", "payload_bytes", "window", "tsval", "tsecr",
        )  # fmt: skip
        arrays = [columns[name] for name in names]
        at = 0
        while True:
            room = min(self._n + len(ts) - at, _ROOM)
            if room > len(self._kept):
                self._kept = np.concatenate(
                    [self._kept[: self._n], np.empty(max(room, min(2 * self._n, _ROOM)) - self._n, _SIGHTING)]
                )
            limit = np.uint64(self.largest)
            at, self._n, came = _select(at, *arrays, codes, limit, self._kept, self._n)
            self.segments += came
            if at == len(ts):
                return
            while self._n == _ROOM:
                self.limit(self.largest >> 1)

    def limit(self, largest: int) -> None:
        """Keep no more than those whose hash is at most `largest`."""
        self.largest = largest
        kept = self._kept[: self._n]
        kept = kept[kept["identity"] <= np.uint64(largest)]
        self._kept[: len(kept)] = kept
        self._n = len(kept)

    def below(self, largest: int) -> np.ndarray:
        """The segments whose hash is at most `largest`, as captured."""
        kept = self._kept[: self._n]
        return kept[kept["identity"] <= np.uint64(largest)]


@dataclass(frozen=True)
class OneWayDelay:
    """Traffic in one direction between the taps, as far as it is in the sample.

    Attributes
    ----------
    packets : int
        TCP segments that both taps saw.
    payload_bytes : int
        Of these.
    missing : int
        Segments seen only by the tap that this direction reaches first, of flows seen at both.
    least_ns, median_ns, most_ns : int
        Egress timestamp minus ingress timestamp. `least_ns` is that of the fastest packet, which is the largest number
        where packets reach the egress tap first; `most_ns` is that of the slowest.
    spread_ns : int
        Between the 5th and the 95th percentile, corrected for the known drift of the clocks.

    See Also
    --------
    TapComparison : has one for each direction

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> forward = cct.compare_taps(run.ingress, run.egress).forward
    >>> forward.packets, round(forward.median_ns / 1e6, 1)
    (7947, 47.7)
    """

    packets: int = 0
    payload_bytes: int = 0
    missing: int = 0
    least_ns: int = 0
    median_ns: int = 0
    most_ns: int = 0
    spread_ns: int = 0

    @property
    def missing_share(self) -> float:
        """Share of the segments seen by the first tap."""
        return self.missing / max(self.packets + self.missing, 1)


@dataclass(frozen=True)
class TapComparison:
    """The result of :func:`compare_taps`.

    Attributes
    ----------
    sampled : float
        Share of the TCP segments that was compared: all (1.0) for captures of up to 32,768 segments.
    common : int
        Segments that both taps saw, of those compared.
    recognised : float
        Their share of what was seen by the tap that saw less of the common flows, while both taps were recording.
    forward, backward : OneWayDelay
        From the ingress tap to the egress tap, and from the egress tap to the ingress tap.
    strays : int
        Segments of flows in `forward` that only the egress tap saw.
    order_known : bool
        Whether the directions are known from flows seen in both; otherwise they follow from the sign of the delays, as
        if the clocks agreed.
    clocks : Clocks
        What is known of their difference.
    early : float
        Share of the forward packets that seem to leave before they arrive.
    problem : str, optional
        Why these cannot be taps before and after a queue, or why their clocks make results meaningless.

    See Also
    --------
    cctoolkit.compare_taps : makes it

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> found = cct.compare_taps(run.ingress, run.egress)
    >>> found.common, found.forward.missing, found.problem
    (12526, 8, None)
    """

    sampled: float = 1.0
    common: int = 0
    recognised: float = 0.0
    forward: OneWayDelay = field(default_factory=OneWayDelay)
    backward: OneWayDelay = field(default_factory=OneWayDelay)
    strays: int = 0
    order_known: bool = False
    clocks: Clocks = field(default_factory=Clocks)
    early: float = 0.0
    problem: str | None = None

    def clocks_in_words(self) -> str:
        """What is known of the two clocks, in a sentence or two; empty if no segment was seen at both taps."""
        if not self.common:
            return ""
        return _one_direction_in_words(self) if self.clocks.offset_ns is None else _both_in_words(self)

    @property
    def remarks(self) -> list[str]:
        """Oddities short of a :attr:`problem` that users of the results should know."""
        return [] if self.problem or not self.common else list(_remarks(self))

    def notes(self) -> list[str]:
        """All remarks, for a page about the captures."""
        if self.problem:
            return [f"The two captures were accepted, but {self.problem.rstrip('.')}."]
        words = self.clocks_in_words()
        return ([words] if words and not any(words in one for one in self.remarks) else []) + self.remarks

    def check(self, stacklevel: int = 2) -> None:
        """Raise the :attr:`problem`, and warn of the :attr:`remarks`.

        Raises
        ------
        ParameterError
        """
        if self.problem is not None:
            raise ParameterError(f"ingress, egress: {self.problem.rstrip('.')} ({_ANYWAY})")
        for remark in self.remarks:
            warnings.warn(f"ingress, egress: {remark}", TapClockWarning, stacklevel=stacklevel + 1)


class TapComparer:
    """:func:`compare_taps` for packets that come in batches, in constant memory.

    The result does not depend on how the packets were cut into batches.

    See Also
    --------
    cctoolkit.compare_taps : for whole captures

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> comparer = TapComparer()
    >>> taps = (cct.iter_capture(tap.meta.path, packets=3000) for tap in (run.ingress, run.egress))
    >>> for before, after in zip(*taps):
    ...     comparer.update(before, after)
    >>> comparer.result() == cct.compare_taps(run.ingress, run.egress)
    True
    """

    def __init__(self) -> None:
        self._samples = _Sample(), _Sample()
        self._names: tuple[FlowNames, FlowNames] | None = None

    def update(self, ingress: Any, egress: Any) -> None:
        """Take the next packets of both taps (Captures, packets DataFrames or dicts of arrays)."""
        if isinstance(ingress, Capture) and isinstance(egress, Capture):
            if self._names is None:
                numbers: dict[bytes, int] = {}
                self._names = FlowNames(numbers), FlowNames(numbers)
            for names, tap in zip(self._names, (ingress, egress), strict=True):
                names.learn(tap.keys)
        self.take(columns_of(ingress), columns_of(egress), self._names)

    def take(
        self,
        came_in: Mapping[str, np.ndarray],
        went_out: Mapping[str, np.ndarray],
        names: tuple[FlowNames, FlowNames] | None,
    ) -> None:
        """As :meth:`update`, with flows already named; without names, flow ids are common."""
        self._names = names
        for sample, columns, which in zip(self._samples, (came_in, went_out), (0, 1), strict=True):
            sample.take(columns, np.zeros(0, np.int64) if names is None else names[which].codes)

    def result(self) -> TapComparison:
        """The comparison of all packets so far, see :func:`compare_taps`."""
        ingress, egress = self._samples
        if not ingress.packets or not egress.packets:
            return TapComparison()
        largest = min(ingress.largest, egress.largest)
        return _compare(ingress, egress, largest, self._shared_flows())

    def _shared_flows(self) -> int | None:
        """Number of 5-tuples seen by both taps; None if flow ids are common."""
        if self._names is None:
            return None
        ingress, egress = (names.codes[names.codes > 0] - 1 >> 1 for names in self._names)
        return len(np.intersect1d(ingress, egress))


def compare_taps(ingress: Any, egress: Any) -> TapComparison:
    """Check whether two captures can be taps before and after one queue, and compare their clocks.

    Every function that takes two taps does this first, raises the ``problem`` and warns about the ``remarks``, unless
    ``check_taps=False``.

    Parameters
    ----------
    ingress, egress : Capture, packets DataFrame or dict of arrays
        Two Captures are matched by 5-tuple; anything else must share flow numbers.

    Returns
    -------
    TapComparison
        ``problem`` says why they cannot be such taps, if so; ``remarks`` lists other oddities.

    See Also
    --------
    queue_delay : delays between two taps
    compute_slots : slots between two taps

    Notes
    -----
    Taps count as swapped if the direction that reaches the egress tap first carries more payload than the other, has
    at least as much loss and delay, and exceeds it tenfold in one of the three.

    Only TCP segments are compared; other packets have no sequence number.

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> cct.compare_taps(run.ingress, run.egress).problem is None
    True
    >>> cct.compare_taps(run.egress, run.ingress).problem.partition(":")[0]
    'these look swapped'
    """
    comparer = TapComparer()
    comparer.update(ingress, egress)
    return comparer.result()


def check_egress(egress: Capture) -> Capture:
    """Return the egress capture, or its first part.

    Raises
    ------
    ParameterError
        It has no packets: everything would seem lost, or unknown.
    """
    if not len(egress):
        raise ParameterError(f"egress: {egress.meta.path} has no IP packets")
    return egress


# ---- the comparison --------------------------------------------------------------------------------------------------


@dataclass
class _Common:
    """Segments seen at both taps, and those seen at only one although their flow was seen at both."""

    way: np.ndarray
    ts_ns: np.ndarray  # at the ingress
    delay_ns: np.ndarray
    payload_bytes: np.ndarray
    only_ingress: np.ndarray  # ways
    only_egress: np.ndarray
    recognised: float  # share, as in :class:`TapComparison`


def _compare(ingress: _Sample, egress: _Sample, largest: int, shared_flows: int | None) -> TapComparison:
    before, behind = ingress.below(largest), egress.below(largest)
    sampled = (largest + 1) / 2**64
    if shared_flows == 0:
        return TapComparison(sampled, problem=_nothing_shared(before, behind))
    if not len(before) or not len(behind):
        return TapComparison(sampled)  # nothing that could be recognised
    common = _common(before, behind, ingress, egress)
    n = len(common.way)
    if not n:
        return TapComparison(sampled, problem=_no_packet(ingress, egress, shared_flows))
    sign, order_known = _orientation(common)
    forward = sign[common.way] > 0
    # Without a known order, forward and backward are only the sign of the delays, which says nothing of the clocks.
    clocks = fit_clocks(common.ts_ns, common.delay_ns, forward if order_known else np.ones(n, np.bool_))
    steady = common.delay_ns - clocks.line_ns(common.ts_ns)
    there = sign[common.only_ingress] > 0, sign[common.only_egress] > 0
    found = TapComparison(
        sampled=sampled,
        common=n,
        recognised=common.recognised,
        forward=_one_way(common, forward, steady, int(there[0].sum()), 1),
        backward=_one_way(common, ~forward, steady, int((~there[1]).sum()), -1),
        strays=int(there[1].sum()),
        order_known=order_known,
        clocks=clocks,
        early=float((common.delay_ns[forward] < 0).mean()) if forward.any() else 0.0,
    )
    return replace(found, problem=_problem(found, len(common.only_ingress), len(common.only_egress)))


def _with_timestamps(numbers: np.ndarray, stamps: np.ndarray) -> np.ndarray:
    return numbers ^ stamps * np.uint64(0x9E3779B97F4A7C15)


def _sorted(before: np.ndarray, behind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both samples by key, equal ones as captured; keys include timestamps, unless a tap captured none of that key."""
    names, group = np.unique(np.concatenate([before["key"], behind["key"]]), return_inverse=True)
    both = (before, group[: len(before)]), (behind, group[len(before) :])
    compared = np.ones(len(names), np.bool_)
    for sample, own in both:
        stamped = np.bincount(own, sample["timestamps"] != 0, len(names)) > 0
        compared &= stamped | (np.bincount(own, minlength=len(names)) == 0)
    done = []
    for sample, own in both:
        key = np.where(compared[own], _with_timestamps(sample["key"], sample["timestamps"]), sample["key"])
        order = np.argsort(key, kind="stable")
        done.append(sample[order])
        done[-1]["key"] = key[order]
    return done[0], done[1]


def _common(before: np.ndarray, behind: np.ndarray, ingress: _Sample, egress: _Sample) -> _Common:
    """Pair the samples: among equal segments the k-th with the k-th, if none is missing."""
    before, behind = _sorted(before, behind)
    names, group = np.unique(np.concatenate([before["key"], behind["key"]]), return_inverse=True)
    own = group[: len(before)], group[len(before) :]
    count = [np.bincount(g, minlength=len(names)) for g in own]
    equal = count[0] == count[1]
    one, other = before[equal[own[0]]], behind[equal[own[1]]]
    way, delay = one["way"], other["ts_ns"] - one["ts_ns"]
    only_ingress, only_egress = (
        _within(sample[_rank(groups) >= count[1 - k][groups]], paired)
        for k, (sample, groups, paired) in enumerate(((before, own[0], one), (behind, own[1], other)))
    )
    # Both taps were there, and know the flow: how much of it should both have seen?
    shift = int(np.median(delay)) if len(delay) else 0
    begin = max(ingress.first_ns or 0, (egress.first_ns or 0) - shift)
    end = min(ingress.last_ns, egress.last_ns - shift)
    flows = np.intersect1d(before["way"] >> 1, behind["way"] >> 1)
    there = [
        int(
            (
                np.isin(sample["way"] >> 1, flows)
                & (sample["ts_ns"] - late >= begin)
                & (sample["ts_ns"] - late <= end)
            ).sum()
        )
        for sample, late in ((before, 0), (behind, shift))
    ]
    recognised = float(np.minimum(*count).sum() / max(min(there), 1))
    return _Common(
        way, one["ts_ns"], delay, one["payload_bytes"], only_ingress, only_egress, min(recognised, 1.0)
    )


def _rank(groups: np.ndarray) -> np.ndarray:
    """The position of each element among its equals; equal ones are adjacent."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def _within(alone: np.ndarray, paired: np.ndarray) -> np.ndarray:
    """Ways of the segments between the first and the last paired one of their way."""
    ways = int(max(alone["way"].max(initial=0), paired["way"].max(initial=0))) + 1
    first, last = np.full(ways, np.iinfo(np.int64).max), np.full(ways, np.iinfo(np.int64).min)
    np.minimum.at(first, paired["way"], paired["ts_ns"])
    np.maximum.at(last, paired["way"], paired["ts_ns"])
    way, ts = alone["way"], alone["ts_ns"]
    return way[(ts > first[way]) & (ts < last[way])]


def _orientation(common: _Common) -> tuple[np.ndarray, bool]:
    """By way, 1 if it goes from the ingress to the egress and -1 if it comes back; and whether that is known.

    In flows seen in both directions, packets of one direction are compared with their neighbours in the other, so that
    neither offset nor drift of the clocks matters. Other flows are decided by these: delays above the bounds of the
    clocks' offset are forward, delays below them are not, and where either is possible, most initiators are on one
    side. Without any such flow, the clocks are assumed to agree.
    """
    flows = (
        int(max(common.way.max(), common.only_ingress.max(initial=0), common.only_egress.max(initial=0))) // 2
        + 1
    )
    order = np.lexsort((common.ts_ns, common.way >> 1))
    way, delay = common.way[order], common.delay_ns[order]
    turns = np.flatnonzero((way[1:] ^ way[:-1]) == 1)
    longer = np.sign(delay[turns] - delay[turns + 1]) * np.where(way[turns] & 1, -1, 1)  # is direction 0
    of = np.bincount(way[turns] >> 1, longer != 0, minlength=flows)
    votes = np.bincount(way[turns] >> 1, longer, minlength=flows)
    majority = (np.sign(votes) * (np.abs(votes) >= _MAJORITY * of)).astype(np.int64)
    sign = np.column_stack([majority, -majority]).ravel()
    known = sign[common.way] != 0
    clocks = Clocks()
    if known.any():
        forward = sign[common.way] > 0
        clocks = fit_clocks(common.ts_ns[known], common.delay_ns[known], forward[known])
    rows = np.flatnonzero(~known)
    if len(rows):
        above = common.delay_ns[rows] - clocks.line_ns(common.ts_ns[rows])
        low, high = clocks.offset_ns or (0.0, 0.0)
        usual = majority.sum() * np.where(common.way[rows] & 1, -1, 1)
        later = np.where((np.abs(above) < (high - low) / 2) & (usual != 0), usual > 0, above >= 0)
        of = np.bincount(common.way[rows], minlength=2 * flows)
        share = np.bincount(common.way[rows], later, minlength=2 * flows) / np.maximum(of, 1)
        sign[of > 0] = np.where(share >= 0.5, 1, -1)[of > 0]
    return sign, bool(known.any())


def _one_way(
    common: _Common, rows: np.ndarray, steady_ns: np.ndarray, missing: int, sign: int
) -> OneWayDelay:
    if not rows.any():
        return OneWayDelay(missing=missing)
    delay = common.delay_ns[rows]
    low, high = np.quantile(steady_ns[rows], [0.05, 0.95])
    ends = int(delay.min()), int(delay.max())
    return OneWayDelay(
        packets=len(delay),
        payload_bytes=int(common.payload_bytes[rows].sum(dtype=np.int64)),
        missing=missing,
        least_ns=ends[sign < 0],
        median_ns=int(np.median(delay)),
        most_ns=ends[sign > 0],
        spread_ns=int(high - low),
    )


# ---- what it means ---------------------------------------------------------------------------------------------------


def _problem(found: TapComparison, only_ingress: int, only_egress: int) -> str | None:
    there, back, clocks = found.forward, found.backward, found.clocks
    if found.recognised < _RECOGNISED:
        return (
            f"only {format_percent(found.recognised)} of the segments that both should have seen are in common: "
            f"captures of different traffic, or {_OFFLOAD}"
        )
    if not there.packets:
        return _first_at_the_egress(found, only_ingress, only_egress)
    if back.packets and _is_the_queue(back, there):
        never = (
            f"; {_packets(back.missing, found.sampled)} never reached the ingress tap" if back.missing else ""
        )
        return (
            f"these look swapped: {_share(back.payload_bytes, there.payload_bytes)} of the payload reaches the egress "
            f"tap first (by {format_time_ns(abs(back.median_ns))}, median{never}); {_EXCHANGE}"
        )
    if found.early > _FEW or there.least_ns > _LONGEST_NS or _is_mostly_clock(found):
        offset = clocks.offset_ns or (there.least_ns, there.least_ns)
        early = ""
        if found.early > _FEW:
            early = f" {format_percent(found.early)} of the packets seem to leave before they arrive."
        return f"the clocks differ too much. {found.clocks_in_words()}{early} {_remedy(offset)}"
    return None


def _is_the_queue(one: OneWayDelay, other: OneWayDelay) -> bool:
    """Whether it carries more, loses and waits at least as much, and clearly exceeds the other in one of the three."""
    return (
        one.payload_bytes > other.payload_bytes
        and one.missing_share >= other.missing_share
        and one.spread_ns >= other.spread_ns
        and (
            one.payload_bytes >= _CLEARLY * other.payload_bytes
            or one.missing >= max(_CLEARLY, _CLEARLY * other.missing)
            or one.spread_ns >= max(_CLEARLY * other.spread_ns, _SMALL_NS)
        )
    )


def _is_mostly_clock(found: TapComparison) -> bool:
    return abs(found.clocks.certain_offset_ns) > max(found.forward.spread_ns, _SMALL_NS)


def _first_at_the_egress(found: TapComparison, only_ingress: int, only_egress: int) -> str:
    """The egress tap stamps everything that both taps saw earlier."""
    back = found.backward
    early = format_time_ns(abs(back.median_ns))
    by = f"all packets in common are stamped earlier by the egress tap (by {early}, median)"
    behind = _remedy((back.most_ns, back.most_ns))
    if only_ingress >= max(_CLEARLY, _CLEARLY * only_egress):
        return (
            f"the clocks differ too much: {by}, although {_packets(only_ingress, found.sampled)} of the same flows "
            f"never reached it. {behind}"
        )
    if only_egress >= max(_CLEARLY, _CLEARLY * only_ingress):
        return (
            f"these look swapped: {by}, and {_packets(only_egress, found.sampled)} of the same flows never reached the "
            f"ingress tap; {_EXCHANGE}"
        )
    return (
        f"these look swapped, or the egress tap's clock is behind: {by}. With packets in one direction only the two "
        f"look the same: {_EXCHANGE}, or set the clock right. {behind}"
    )


def _nothing_shared(before: np.ndarray, behind: np.ndarray) -> str:
    one, other = (
        np.unique(_with_timestamps(sample["identity"], sample["timestamps"])) for sample in (before, behind)
    )
    same = len(np.intersect1d(one, other, assume_unique=True))
    if same >= max(_CLEARLY, _RECOGNISED * min(len(one), len(other))):
        return (
            f"no packet in common, but {same:,} segments differ in addresses or ports only: address translation, or a "
            "tunnel, between the taps"
        )
    return "no packet in common, not even a flow: captures of different traffic"


def _no_packet(ingress: _Sample, egress: _Sample, shared_flows: int | None) -> str:
    first = ingress.first_ns or 0, egress.first_ns or 0
    apart = max(first) - (ingress.last_ns if first[0] < first[1] else egress.last_ns)
    flows = f", only the addresses and ports of {plural(shared_flows, 'flow')}" if shared_flows else ""
    why = (
        f"one capture begins {format_time_ns(apart)} after the other ends"
        if apart > 0
        else f"different traffic, or {_OFFLOAD}"
    )
    return f"no packet in common{flows}: {why}"


def _both_in_words(found: TapComparison) -> str:
    clocks = found.clocks
    assert clocks.offset_ns is not None
    low, high = clocks.offset_ns
    if clocks.noise_ns > _SMALL_NS:
        return (
            "The taps' clocks do not differ by a constant offset and drift: packets contradict any such model by "
            f"up to {format_time_ns(2 * clocks.noise_ns)}, as happens when a clock is set during the capture."
        )
    if clocks.certain_offset_ns:
        ahead = "ahead of" if sum(clocks.offset_ns) > 0 else "behind"
        text = f"The egress tap's clock is {ahead} the ingress tap's by {_range(abs(low), abs(high))}"
    elif max(abs(low), abs(high)) <= _SMALL_NS:
        text = f"The taps' clocks agree to within {format_time_ns(max(abs(low), abs(high), clocks.noise_ns, 1_000))}"
    else:
        text = (
            f"The taps' clocks may agree: the egress tap's is between {format_time_ns(abs(low))} behind and "
            f"{format_time_ns(abs(high))} ahead"
        )
    return f"{text}{_drift_in_words(clocks)} (from the minimum one-way delays in both directions)."


def _drift_in_words(clocks: Clocks) -> str:
    if clocks.drift_ppm is None or clocks.drift_bounds_ppm is None:
        return ""
    low, high = clocks.drift_bounds_ppm
    gained_ns = abs(clocks.drift_ppm) * 1e-6 * clocks.length_ns
    if high - low < LARGEST_DRIFT_PPM / 5:
        return f"; drift {(low + high) / 2 + 0.0:.1f} ± {max(high - low, 0) / 2:.1f} ppm"
    return f"; drift about {clocks.drift_ppm:.1f} ppm" if gained_ns > clocks.noise_ns + 1_000 else ""


def _one_direction_in_words(found: TapComparison) -> str:
    delay = found.forward if found.forward.packets else found.backward
    minimum = min(delay.least_ns, delay.most_ns)
    if minimum < 0:
        early = format_time_ns(-minimum)
        text = f"The egress tap stamps packets up to {early} before the ingress tap: its clock is behind"
    else:
        text = f"Packets take at least {format_time_ns(minimum)} between the taps, by their clocks"
    text += ". With packets in one direction only, the clocks' offset cannot be told from propagation delay"
    drift = found.clocks.drift_ppm
    if (
        drift is not None
        and abs(drift) * 1e-6 * found.clocks.length_ns > 1_000
        and abs(drift) <= LARGEST_DRIFT_PPM
    ):
        text += f"; the minimum delay changes by {drift:.1f} ppm: drift of the clocks, or a queue that never empties"
    return f"{text}."


def _remarks(found: TapComparison) -> Iterator[str]:
    clocks, there = found.clocks, found.forward
    if clocks.offset_ns is not None:
        if clocks.noise_ns > _SMALL_NS:
            yield f"{found.clocks_in_words()} Delays are wrong by the same amount."
        elif clocks.certain_offset_ns:
            wrong = "long" if sum(clocks.offset_ns) > 0 else "short"
            delays = f"Delays are too {wrong} by that amount"
            if found.early:
                delays += (
                    f", and the {format_percent(found.early)} of the packets that seem to leave before they "
                    "arrive count as lost"
                )
            yield f"{found.clocks_in_words()} {delays}. {_remedy(clocks.offset_ns)}"
    elif there.least_ns < 0 or there.least_ns > max(there.spread_ns, _CLEARLY * _SMALL_NS):
        yield found.clocks_in_words()
    if found.strays >= max(_CLEARLY, _CLEARLY * there.missing):
        swapped = "" if found.order_known else ", or the taps are swapped and a clock is wrong"
        yield (
            f"{_packets(found.strays, found.sampled)} of the same flows reached the egress tap but were not seen by "
            f"the ingress tap: the ingress capture is incomplete{swapped}."
        )
    if found.recognised < 0.5:
        yield (
            f"Only {format_percent(found.recognised)} of the segments that both taps should have seen are in common: "
            f"{_OFFLOAD}, or incomplete captures."
        )
    if found.common > _CLEARLY and there.packets == found.common and there.most_ns == there.least_ns == 0:
        yield "Every segment has the same timestamp at both taps: one capture, given twice?"


_ANYWAY = "--trust-taps, check_taps=False: do not check"
_EXCHANGE = "give the capture from before the queue first"
_OFFLOAD = (
    "segmentation offload that cuts segments differently at the two taps "
    "(turn GRO, LRO and TSO off before capturing)"
)


def _remedy(offset_ns: tuple[float, float]) -> str:
    return f"`editcap -t {-sum(offset_ns) / 2e9:.9f} EGRESS NEW` corrects it."


def _share(one: int, other: int) -> str:
    return format_percent(one / max(one + other, 1))


def _packets(n: int, sampled: float) -> str:
    """The number of packets that `n` in the sample stand for, in words."""
    return plural(n, "packet") if sampled == 1 else f"about {plural(round(n / sampled), 'packet')}"


def _range(one: float, other: float) -> str:
    low, high = format_time_ns(min(one, other)), format_time_ns(max(one, other))
    return low if low == high else f"{low} to {high}"
