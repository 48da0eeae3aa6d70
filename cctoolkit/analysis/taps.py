"""Two taps, one before and one after a queue: matches the flows and packets of one with those of the other.

A *way* is one direction of one flow: ``2 * flow_id + direction`` in the ingress tap's numbering. Everything here
is carried from batch to batch, and nothing depends on how the packets were cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

from .. import schema
from .._support.arguments import floats
from .._support.kernels import kernel, part
from .._support.layout import same_layout
from .._support.state import grown
from ..capture.keys import FlowKeys
from ..capture.model import Capture, columns_of
from ..errors import ParameterError
from .tap_comparison import TapComparer
from .tap_identity import FlowNames, segment_identity, timestamps

__all__ = ["PacketMatcher", "TapPair", "wanted_flows"]

#: A packet that left after this many later ones of its flow had left is not recognised: it counts as lost.
REORDERING = 64
#: After this many doubtful departures of a way in a row, the next is taken for that of the oldest of the equal packets.
_MOST_DOUBTFUL = 1024
_NEVER_NS = np.iinfo(np.int64).max


def wanted_flows(flow_ids: Iterable[int] | int | None) -> np.ndarray:
    """By flow id, whether it is wanted; empty for all.

    Raises
    ------
    ParameterError
        A flow id is not a whole number from 0 to 2**32 - 1.
    """
    if flow_ids is None:
        return np.zeros(0, np.bool_)
    given = floats("flow_ids", flow_ids if np.isscalar(flow_ids) else list(flow_ids))  # type: ignore[arg-type]
    wrong = ~((given >= 0) & (given < 2**32) & (given % 1 == 0))
    if wrong.any():
        raise ParameterError(f"flow_ids: {given[wrong].flat[0]:g} is not a whole number from 0 to 2**32 - 1")
    ids = np.atleast_1d(given.astype(np.int64))
    wanted = np.zeros(int(ids.max()) + 1 if len(ids) else 1, np.bool_)
    wanted[ids] = True
    return wanted


@kernel
def _note_first(ts, flow_id, first):
    """The time (+ 1, so that 0 is "not yet") of each flow's first packet."""
    for i in range(len(ts)):
        f = np.uint64(flow_id[i])
        if first[f] == 0:
            first[f] = ts[i] + 1


class TapPair:
    """Brings two taps together: flows by 5-tuple, and the egress tap held back to the ingress tap's time.

    Flows are matched by 5-tuple where both taps give Captures (their numbers may then differ), else `flow_id` is
    common to both. Where a 5-tuple was reused, an egress flow is matched with the latest ingress flow that began no
    later, or else the first one; its packets from before that flow's first packet at the ingress are left out. The
    taps need not agree on the initiator.

    Parameters
    ----------
    check_taps : bool
        Compare the taps while reading, for :meth:`check`.

    Attributes
    ----------
    keyed : bool
        Flows are matched by 5-tuple.
    entries : int64 array
        By egress flow id: ``2 * ingress flow + (the directions are swapped) + 1``, or 0: not (yet) found.
        Empty when flow ids are common.
    not_before : int64 array
        By ingress flow id: time of its first packet + 1. Empty when flow ids are common.
    ingress_start_ns, ingress_end_ns, egress_start_ns, egress_end_ns : int
        Times of each tap's first packet, and of its latest so far.

    See Also
    --------
    PacketMatcher : recognises packets in what it returns

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> pair = TapPair(check_taps=False)
    >>> came_in, went_out = pair.update(run.ingress, run.egress)
    >>> pair.keyed, len(came_in["ts_ns"]), len(went_out["ts_ns"])
    (True, 12536, 12526)
    """

    def __init__(self, check_taps: bool = True) -> None:
        self.keyed: bool | None = None
        self.entries = np.zeros(0, np.int64)
        self.not_before = np.zeros(0, np.int64)
        self._comparer = TapComparer() if check_taps else None
        numbers: dict[bytes, int] = {}
        self._names = FlowNames(numbers), FlowNames(numbers)  # of the ingress tap and of the egress tap
        self._ingress_flows: dict[
            int, list[tuple[int, bool]]
        ] = {}  # by number: flow, the initiator is the upper end
        self._egress_first = np.zeros(0, np.int64)
        self._sought: dict[int, tuple[int, bool]] = {}  # egress flows that are not found yet
        self._waiting: dict[str, np.ndarray] = {}
        self.ingress_end_ns = self.egress_end_ns = np.iinfo(np.int64).min
        self.ingress_start_ns = self.egress_start_ns = _NEVER_NS

    def update(self, ingress: Any, egress: Any) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
        """The next batches of both taps; gives the ingress packets and those egress packets that are ready."""
        came_in, went_out = columns_of(ingress), columns_of(egress)
        keyed = isinstance(ingress, Capture) and isinstance(egress, Capture)
        if self.keyed is None:
            self.keyed = keyed
        elif self.keyed != keyed:
            raise ParameterError("ingress and egress: give Captures each time or tables each time")
        if keyed:
            self._learn(came_in, ingress.keys, went_out, egress.keys)
        if self._comparer is not None:
            self._comparer.take(came_in, went_out, self._names if keyed else None)
        if len(came_in["ts_ns"]):
            if self.ingress_start_ns == _NEVER_NS:
                self.ingress_start_ns = int(came_in["ts_ns"][0])
            self.ingress_end_ns = max(self.ingress_end_ns, int(came_in["ts_ns"].max()))
        if len(went_out["ts_ns"]):
            if self.egress_start_ns == _NEVER_NS:
                self.egress_start_ns = int(went_out["ts_ns"][0])
            self.egress_end_ns = max(self.egress_end_ns, int(went_out["ts_ns"].max()))
        if self._waiting:
            went_out = {
                name: np.concatenate([self._waiting[name], went_out[name]]) for name in schema.PACKETS
            }
        late = went_out["ts_ns"] >= self.ingress_end_ns
        ready = int(late.argmax()) if late.any() else len(late)
        self._waiting = (
            {name: went_out[name][ready:].copy() for name in schema.PACKETS} if ready < len(late) else {}
        )
        self._find()
        return came_in, same_layout({name: went_out[name][:ready] for name in schema.PACKETS})

    def rest(self) -> Mapping[str, np.ndarray] | None:
        """The egress packets held back, once the ingress tap has no more; None if there are none."""
        waiting, self._waiting = self._waiting, {}
        return same_layout(waiting) if waiting else None

    def check(self) -> None:
        """Raise what :func:`cctoolkit.compare_taps` finds wrong with the packets so far, and warn of oddities.

        Raises
        ------
        ParameterError
        """
        if self._comparer is not None:
            self._comparer.result().check(stacklevel=4)

    def _learn(
        self,
        came_in: Mapping[str, np.ndarray],
        in_keys: FlowKeys,
        went_out: Mapping[str, np.ndarray],
        out_keys: FlowKeys,
    ) -> None:
        if len(in_keys):
            self.not_before = grown(self.not_before, int(in_keys.flow_id[-1]) + 1)
            _note_first(came_in["ts_ns"], came_in["flow_id"], self.not_before)
            for flow, number, upper in self._names[0].learn(in_keys):
                self._ingress_flows.setdefault(number, []).append((flow, upper))
        if len(out_keys):
            self._egress_first = grown(self._egress_first, int(out_keys.flow_id[-1]) + 1)
            self.entries = grown(self.entries, len(self._egress_first))
            _note_first(went_out["ts_ns"], went_out["flow_id"], self._egress_first)
            for flow, number, upper in self._names[1].learn(out_keys):
                self._sought[flow] = number, upper

    def _find(self) -> None:
        for flow, (number, upper) in list(self._sought.items()):
            flows = self._ingress_flows.get(number)
            if flows:
                first = self._egress_first[flow]
                earlier = [one for one in flows if self.not_before[one[0]] <= first]
                found, its_upper = earlier[-1] if earlier else flows[0]
                self.entries[flow] = 2 * found + (upper != its_upper) + 1
                del self._sought[flow]


#: A packet between the taps, or a doubtful departure: one of a packet that had an equal one behind it. There, `row` is
#: the node of the oldest packet that may have left (in no bucket meanwhile), `next` the doubtful departure of its way
#: before this one, and `ordinal` how many there are.
_NODE = np.dtype(
    [
        ("identity", np.uint64),
        ("timestamps", np.uint64),
        ("ts_ns", np.int64),
        ("row", np.int64),
        ("ordinal", np.int64),  # of its way, from 1
        ("way", np.uint32),
        ("payload_bytes", np.uint32),
        ("wire_bytes", np.uint32),
        ("next", np.int32),
    ]
)
_WAY = np.dtype(
    [
        ("arrived", np.int64),  # packets at the ingress
        ("left", np.int64),  # packets at the egress before the ingress tap's end
        ("matched", np.int64),
        ("delayed", np.int64),  # matched, and later at the egress
        ("passed", np.int64),  # the highest ordinal that left, at least
        ("first", np.int64),  # the ordinal that left first, or 0
        ("doubtful", np.int64),  # node of the latest doubtful departure + 1, or 0
    ]
)
#: What became of a packet seen at the ingress.
FATE = np.dtype(
    [
        ("row", np.int64),  # running number of the packet at the ingress tap
        ("ts_ns", np.int64),
        ("delay_ns", np.int64),  # or LOST or UNKNOWN
        ("way", np.uint32),
        ("payload_bytes", np.uint32),
        ("wire_bytes", np.uint32),
    ]
)
LOST, UNKNOWN = -1, -2
_ROOM = 1 << 14  # packets between the taps to begin with; a power of two
_DONE, _FULL = 0, 1


class _Segments(NamedTuple):
    ts_ns: np.ndarray
    flow_id: np.ndarray
    direction: np.ndarray
    seq: np.ndarray
    ack: np.ndarray
    tcp_flags: np.ndarray
    payload_bytes: np.ndarray
    wire_bytes: np.ndarray
    window: np.ndarray
    tsval: np.ndarray
    tsecr: np.ndarray


class _Pool(NamedTuple):
    buckets: np.ndarray  # by low bits of the identity: first node or -1, last node
    nodes: np.ndarray
    #: Nodes ever used, head of the free list or -1, latest egress time, departures in doubt.
    used: np.ndarray


@numba.njit(inline="always")
def _may_be(node, identity, stamps, ts_ns, max_delay_ns):
    """Whether a segment that left at `ts_ns` may be the packet of `node`."""
    return (
        node.identity == identity
        and (node.timestamps == stamps or node.timestamps == 0 or stamps == 0)
        and node.ts_ns <= ts_ns
        and ts_ns - node.ts_ns <= max_delay_ns
    )


@part
def _remove(buckets, nodes, at, before):
    """Remove a packet from its bucket, in which it follows node `before` (-1: is the first)."""
    node = nodes[np.uint64(at)]
    bucket = node.identity & np.uint64(len(buckets) - 1)
    if before < 0:
        buckets[bucket, 0] = node.next
    else:
        nodes[np.uint64(before)].next = node.next
    if node.next < 0:
        buckets[bucket, 1] = before


@part
def _insert(buckets, nodes, at, before):
    """Insert a packet into its bucket behind node `before` (-1: as the first)."""
    node = nodes[np.uint64(at)]
    bucket = node.identity & np.uint64(len(buckets) - 1)
    if before < 0:
        node.next = buckets[bucket, 0]
        buckets[bucket, 0] = at
    else:
        node.next = nodes[np.uint64(before)].next
        nodes[np.uint64(before)].next = at
    if node.next < 0:
        buckets[bucket, 1] = at


@part
def _free(nodes, used, at):
    nodes[np.uint64(at)].next = used[1]
    used[1] = at


@part
def _doubt(nodes, used, way, oldest, stamps, ts_ns):
    """Note a departure of node `oldest`, or of an equal packet behind it. There must be a free node."""
    at = used[1]
    if at >= 0:
        used[1] = nodes[np.uint64(at)].next
    else:
        at = used[0]
        used[0] += 1
    departure = nodes[np.uint64(at)]
    departure.identity = nodes[np.uint64(oldest)].identity
    departure.timestamps = stamps
    departure.ts_ns = ts_ns
    departure.row = oldest
    departure.next = way.doubtful - 1
    departure.ordinal = 1 + (nodes[np.uint64(departure.next)].ordinal if way.doubtful else 0)
    way.doubtful = at + 1
    used[3] += 1


@part
def _settle(buckets, nodes, used, ways, way, limit, max_delay_ns, fates, n_fates):
    """Give the doubtful departures of a way their packets: from the last one back, the newest that keeps the order.

    In a queue that keeps the order of a flow, the delays are between those that the oldest possible packets would have
    and those of the newest. These differ only if a packet is missing. Had the oldest one left instead, it would have
    waited until its equal came in, which for a retransmission takes a timeout.

    Parameters
    ----------
    buckets, nodes, used
        The pool; updated.
    ways
        As for :func:`_match`; updated.
    way : int
    limit : int
        Ordinal of the packet that left next.
    max_delay_ns, fates
        As for :func:`_match`.
    n_fates : int
        How many of `fates` are written already.

    Returns
    -------
    n_fates : int
    """
    state = ways[np.uint64(way)]
    while state.doubtful:
        departure_at = state.doubtful - 1
        departure = nodes[np.uint64(departure_at)]
        chosen = departure.row
        oldest = nodes[np.uint64(chosen)]
        before = before_chosen = place = np.int64(-1)
        at = np.int64(buckets[departure.identity & np.uint64(len(buckets) - 1), 0])
        while at >= 0:
            node = nodes[np.uint64(at)]
            if node.ordinal > oldest.ordinal and _may_be(
                node, departure.identity, departure.timestamps, departure.ts_ns, max_delay_ns
            ):
                if node.ordinal >= limit:
                    break
                if chosen == departure.row:
                    place = before
                chosen, before_chosen = at, before
            before, at = at, np.int64(node.next)
        if chosen != departure.row:
            _remove(buckets, nodes, chosen, before_chosen)
            _insert(buckets, nodes, departure.row, place)
        node = nodes[np.uint64(chosen)]
        limit = node.ordinal
        state.passed = max(state.passed, limit)
        state.delayed += departure.ts_ns > node.ts_ns
        if len(fates):
            _record(node, departure.ts_ns - node.ts_ns, fates, n_fates)
            n_fates += 1
        state.doubtful = departure.next + 1
        used[3] -= 1
        _free(nodes, used, chosen)
        _free(nodes, used, departure_at)
    if state.first == 0:
        state.first = limit
    return n_fates


@kernel
def _match(
    i,
    j,
    first_row,
    came_in,
    went_out,
    wanted,
    entries,
    not_before,
    ingress_end_ns,
    data_only,
    max_delay_ns,
    pool,
    ways,
    fates,
):
    """Match both taps' packets in order of time, from rows `i` and `j` on.

    Parameters
    ----------
    i, j : int
        Rows of the ingress and egress to begin with.
    first_row : int
        Running number of the ingress's first row.
    came_in, went_out : _Segments
        Packets of ingress and egress.
    wanted : bool array
        Whether a flow counts, by its number at the ingress; empty: all do.
    entries : int64 array
        For each flow at the egress, ``2 * flow at the ingress + 1``, plus one if its directions are swapped there; 0:
        not found. Empty: both taps number flows alike.
    not_before : int64 array
        By ingress flow, time of its first packet in ns, plus one; an earlier packet at the egress is another flow's.
    ingress_end_ns : int
        Time of the ingress tap's last packet; what leaves later need not have been seen there.
    data_only : bool
        Leave out packets without payload.
    max_delay_ns : int
        Longest delay between the taps.
    pool : _Pool
        Packets between the taps; updated.
    ways : array of ``_WAY``
        Counts by ``2 * flow_id + direction``; updated.
    fates : array of :data:`FATE`
        Receives the matched packets; empty: they are only counted.

    Returns
    -------
    i, j : int
        Rows reached.
    n_fates : int
        How many of `fates` were written.
    why : int
        ``_DONE``, or ``_FULL`` if the pool has to grow.
    """
    (
        in_ts,
        in_flow,
        in_direction,
        in_seq,
        in_ack,
        in_flags,
        in_payload,
        in_wire,
        in_window,
        in_tsval,
        in_tsecr,
    ) = came_in
    (
        out_ts,
        out_flow,
        out_direction,
        out_seq,
        out_ack,
        out_flags,
        out_payload,
        _,
        out_window,
        out_tsval,
        out_tsecr,
    ) = went_out
    buckets, nodes, used = pool
    n_in = len(in_ts)
    n_out = len(out_ts)
    mask = np.uint64(len(buckets) - 1)
    n_wanted = np.uint64(len(wanted))
    n_entries = np.uint64(len(entries))
    minimum = 1 if data_only else 0
    n_fates = 0
    while True:
        if i < n_in and (j >= n_out or in_ts[i] <= out_ts[j]):
            r = np.uint64(i)
            f = np.uint64(in_flow[r])
            if (
                in_flags[r] != 0
                and in_payload[r] >= minimum
                and (n_wanted == 0 or (f < n_wanted and wanted[f]))
            ):
                way = f << np.uint64(1) | np.uint64(in_direction[r])
                if used[1] >= 0:
                    free = np.uint64(used[1])
                    used[1] = nodes[free].next
                elif used[0] < len(nodes):
                    free = np.uint64(used[0])
                    used[0] += 1
                else:
                    return i, j, n_fates, _FULL
                identity = segment_identity(
                    way,
                    in_seq[r],
                    in_ack[r],
                    in_flags[r],
                    in_payload[r],
                    in_window[r],
                )
                ways[way].arrived += 1
                node = nodes[free]
                node.identity = identity
                node.timestamps = timestamps(in_tsval[r], in_tsecr[r])
                node.ts_ns = in_ts[r]
                node.row = first_row + i
                node.ordinal = ways[way].arrived
                node.way = way
                node.payload_bytes = in_payload[r]
                node.wire_bytes = in_wire[r]
                node.next = -1
                bucket = identity & mask
                if buckets[bucket, 0] < 0:
                    buckets[bucket, 0] = free
                else:
                    nodes[np.uint64(buckets[bucket, 1])].next = free
                buckets[bucket, 1] = free
            i += 1
        elif j < n_out:
            r = np.uint64(j)
            f = np.uint64(out_flow[r])
            t = out_ts[r]
            j += 1
            used[2] = max(used[2], t)
            if out_flags[r] == 0 or out_payload[r] < minimum:
                continue
            way = f << np.uint64(1) | np.uint64(out_direction[r])
            if n_entries != 0:
                entry = entries[f]
                if entry == 0:
                    continue
                way = np.uint64(entry - 1) ^ np.uint64(out_direction[r])
                if t + 1 < not_before[way >> np.uint64(1)]:
                    continue
            if n_wanted != 0 and (way >> np.uint64(1) >= n_wanted or not wanted[way >> np.uint64(1)]):
                continue
            identity = segment_identity(
                way,
                out_seq[r],
                out_ack[r],
                out_flags[r],
                out_payload[r],
                out_window[r],
            )
            stamps = timestamps(out_tsval[r], out_tsecr[r])
            passed = ways[way].passed
            bucket = identity & mask
            before = np.int64(-1)
            late = np.int64(-1)
            before_late = np.int64(-1)
            at = np.int64(buckets[bucket, 0])
            # The first of this identity that nothing of its way has overtaken; failing that, the last overtaken.
            while at >= 0:
                node = nodes[np.uint64(at)]
                if _may_be(node, identity, stamps, t, max_delay_ns):
                    if node.ordinal > passed:
                        break
                    if passed - node.ordinal <= REORDERING:
                        late, before_late = at, before
                before, at = at, np.int64(node.next)
            in_order = at >= 0
            doubtful = False
            if in_order:
                newer = np.int64(nodes[np.uint64(at)].next)
                while newer >= 0 and not _may_be(nodes[np.uint64(newer)], identity, stamps, t, max_delay_ns):
                    newer = np.int64(nodes[np.uint64(newer)].next)
                if newer >= 0:
                    latest = ways[way].doubtful - 1
                    doubtful = latest < 0 or nodes[np.uint64(latest)].ordinal < _MOST_DOUBTFUL
                    if doubtful and used[1] < 0 and used[0] == len(nodes):
                        return i, j - 1, n_fates, _FULL
            else:
                at, before = late, before_late
            ways[way].left += t < ingress_end_ns  # what leaves later may have come in later
            if at >= 0:
                node = nodes[np.uint64(at)]
                ordinal = node.ordinal
                ways[way].matched += 1
                ways[way].passed = max(passed, ordinal)
                # as _remove, and below _free: calling them here makes matching 1.4 to 1.7 times as slow
                if before < 0:
                    buckets[bucket, 0] = node.next
                else:
                    nodes[np.uint64(before)].next = node.next
                if node.next < 0:
                    buckets[bucket, 1] = before
                if doubtful:
                    _doubt(nodes, used, ways[way], at, stamps, t)
                    continue
                ways[way].delayed += t > node.ts_ns
                if len(fates):
                    fate = fates[np.uint64(n_fates)]
                    fate.row = node.row
                    fate.ts_ns = node.ts_ns
                    fate.delay_ns = t - node.ts_ns
                    fate.way = node.way
                    fate.payload_bytes = node.payload_bytes
                    fate.wire_bytes = node.wire_bytes
                    n_fates += 1
                node.next = used[1]
                used[1] = at
                if not in_order:
                    continue
                if ways[way].doubtful:
                    n_fates = _settle(buckets, nodes, used, ways, way, ordinal, max_delay_ns, fates, n_fates)
                elif ways[way].first == 0:
                    ways[way].first = ordinal
        else:
            return i, j, n_fates, _DONE


@kernel
def _sweep(pool, ways, egress_start_ns, max_delay_ns, fates):
    """Remove the packets that can no longer be recognised; give their fates."""
    buckets, nodes, used = pool
    n_fates = 0
    for bucket in range(len(buckets)):
        before = np.int64(-1)
        at = np.int64(buckets[bucket, 0])
        while at >= 0:
            node = nodes[at]
            after = np.int64(node.next)
            way = ways[node.way]
            # A second more than the limit: a clock that stepped back a little must not change what is recognised.
            if way.doubtful == 0 and (
                way.passed - node.ordinal > REORDERING or used[2] - node.ts_ns > max_delay_ns + 1_000_000_000
            ):
                _record(node, _fate_of_gone(node, ways, egress_start_ns), fates, n_fates)
                n_fates += 1
                _remove(buckets, nodes, at, before)
                _free(nodes, used, at)
            else:
                before = at
            at = after
    return n_fates


@kernel
def _distribute(old, buckets, nodes):
    """Put the packets in the `old` buckets into empty `buckets`."""
    mask = np.uint64(len(buckets) - 1)
    for bucket in range(len(old)):
        at = old[bucket, 0]
        while at >= 0:
            after = nodes[at].next
            _insert(buckets, nodes, at, buckets[nodes[at].identity & mask, 1])
            at = after


@kernel
def _settle_all(pool, ways, max_delay_ns, fates):
    """Decide the departures that are still doubtful; gives the number of fates written."""
    buckets, nodes, used = pool
    n_fates = 0
    for way in range(len(ways)):
        if ways[way].doubtful:
            n_fates = _settle(buckets, nodes, used, ways, way, _NEVER_NS, max_delay_ns, fates, n_fates)
    return n_fates


@kernel
def _remaining(pool, ways, egress_start_ns, max_delay_ns, fates):
    """Fates of the packets that were not seen to leave (yet)."""
    buckets, nodes, used = pool
    n_fates = 0
    for bucket in range(len(buckets)):
        at = buckets[bucket, 0]
        while at >= 0:
            node = nodes[at]
            gone = node.ordinal < ways[node.way].passed or used[2] - node.ts_ns > max_delay_ns
            _record(node, _fate_of_gone(node, ways, egress_start_ns) if gone else UNKNOWN, fates, n_fates)
            n_fates += 1
            at = node.next
    return n_fates


@numba.njit(inline="always")
def _fate_of_gone(node, ways, egress_start_ns):
    """Before the egress tap began a packet may have left unseen, unless one in front of it in the queue was seen."""
    first = ways[node.way].first
    return LOST if node.ts_ns >= egress_start_ns or 0 < first < node.ordinal else UNKNOWN


@numba.njit(inline="always")
def _record(node, delay, fates, n):
    fates[n].row = node.row
    fates[n].ts_ns = node.ts_ns
    fates[n].delay_ns = delay
    fates[n].way = node.way
    fates[n].payload_bytes = node.payload_bytes
    fates[n].wire_bytes = node.wire_bytes


class PacketMatcher:
    """Recognises TCP segments of the ingress tap at the egress tap, batch by batch.

    A segment is recognised by flow, direction, sequence and acknowledgement number, flags, length, window, and, if
    both taps captured them, timestamps: a small snap length cuts them off. Equal ones (a retransmission without
    timestamps, duplicate ACKs) are told apart by the order, which queues keep within a flow. Where fewer left than came
    in and the order leaves a choice, the later ones left: a retransmission rather than the segment that it replaces. So
    no delay is overstated; it is understated where the original waited for longer than the sender's timeout and the
    retransmission was lost. A segment overtaken by up to 64 others is still recognised. One is lost when a later one of
    its flow and direction has left and it has not, or when the egress tap has continued for `max_delay_ns` without it;
    before that its fate is unknown. So is that of a segment from before the egress tap's first packet, which may
    have left unseen, unless one in front of it was seen to leave.

    Parameters
    ----------
    data_only : bool
        Segments with payload only.
    losses_only : bool
        Do not keep the fates of segments that left.
    max_delay_ns : int

    See Also
    --------
    TapPair : brings the taps together first
    cctoolkit.queue_delay : delays and losses by packet

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> pair, matcher = TapPair(check_taps=False), PacketMatcher(True, losses_only=True, max_delay_ns=10**10)
    >>> matcher.update(*pair.update(run.ingress, run.egress), pair, np.zeros(0, np.int64))
    >>> sum(len(fates) for fates in matcher.fates())  # lost segments with payload
    8
    """

    def __init__(self, data_only: bool, losses_only: bool, max_delay_ns: int) -> None:
        self._data_only = data_only
        self._losses_only = losses_only
        self._max_delay_ns = max_delay_ns
        self._ways = np.zeros(0, _WAY)
        self._rows = 0
        self._fates: list[np.ndarray] = []
        self._egress_start_ns = 0
        self._pool = _Pool(
            _empty_buckets(_ROOM),
            np.empty(_ROOM, _NODE),
            np.array([0, -1, np.iinfo(np.int64).min // 2, 0], np.int64),
        )

    def update(
        self,
        came_in: Mapping[str, np.ndarray] | None,
        went_out: Mapping[str, np.ndarray],
        pair: TapPair,
        wanted: np.ndarray,
    ) -> None:
        """Take the result of :meth:`TapPair.update`; `wanted`: which flows count, by ingress flow id (empty: all)."""
        arriving = _segments(came_in if came_in is not None else {n: c[:0] for n, c in went_out.items()})
        leaving = _segments(went_out)
        highest = max(int(s.flow_id.max()) if len(s.flow_id) else 0 for s in (arriving, leaving))
        self._ways = grown(self._ways, 2 * max(highest + 1, len(pair.not_before)))
        self._egress_start_ns = pair.egress_start_ns
        fates = self._room_for(len(leaving.ts_ns))
        i = j = n = 0
        while True:
            i, j, found, why = _match(
                i, j, self._rows, arriving, leaving, wanted, pair.entries, pair.not_before, pair.ingress_end_ns,
                self._data_only, self._max_delay_ns, self._pool, self._ways, fates[n:] if len(fates) > n else fates[:0],
            )  # fmt: skip
            n += found
            if why == _DONE:
                break
            self._make_room()
        self._rows += len(arriving.ts_ns)
        if n:
            self._fates.append(fates[:n].copy() if 2 * n < len(fates) else fates[:n])

    def _room_for(self, departures: int) -> np.ndarray:
        """An array for the fates of `departures` and of the doubtful ones before them."""
        return np.empty(0 if self._losses_only else departures + int(self._pool.used[3]), FATE)

    def _make_room(self) -> None:
        buckets, nodes, used = self._pool
        size = len(nodes)
        gone = np.empty(size, FATE)
        found = _sweep(self._pool, self._ways, self._egress_start_ns, self._max_delay_ns, gone)
        if found:
            self._fates.append(gone[:found].copy())
        if 2 * found < size:
            self._pool = _Pool(_empty_buckets(2 * size), np.concatenate([nodes, np.empty(size, _NODE)]), used)
            _distribute(buckets, self._pool.buckets, self._pool.nodes)

    @property
    def crosses(self) -> np.ndarray:
        """By way, whether it goes through the queue.

        It does if at least half of its packets at the egress, up to the ingress tap's end, were seen at the ingress;
        but not if all were and none was delayed or lost, as for ACKs in the other direction where the clock is too
        coarse to show which tap was first.
        """
        ways = self._ways
        enough = (ways["matched"] > 0) & (2 * ways["matched"] >= ways["left"])
        return enough & ((ways["delayed"] > 0) | (ways["matched"] < ways["arrived"]))

    def fates(self) -> list[np.ndarray]:
        """Fates (:data:`FATE`) of all packets so far, unordered; meaningless for ways not in :attr:`crosses`."""
        pool, ways = self._pool, self._ways
        settled = self._room_for(0)
        if pool.used[3]:  # more may follow
            nodes = pool.nodes[: pool.used[0]]
            pool, ways = _Pool(pool.buckets.copy(), nodes.copy(), pool.used.copy()), ways.copy()
            _settle_all(pool, ways, self._max_delay_ns, settled)
        rest = np.empty(int(pool.used[0]), FATE)
        n = _remaining(pool, ways, self._egress_start_ns, self._max_delay_ns, rest)
        return [*self._fates, settled, rest[:n]]


def _segments(columns: Mapping[str, np.ndarray]) -> _Segments:
    return _Segments(*(columns[name] for name in _Segments._fields))


def _empty_buckets(nodes: int) -> np.ndarray:
    """Twice as many as nodes, so that few packets share one."""
    return np.full((2 * nodes, 2), -1, np.int32)
