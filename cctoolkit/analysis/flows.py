"""Per-flow statistics: one pass over the packets table, one row per flow.

**What counts as a retransmission.** A segment takes sequence numbers if it carries payload, SYN or FIN. For each
direction the tap knows the *edge*, the highest number sent so far, and the *holes* below it, numbers that it has not
seen. Such a segment is

- **new** if it starts at the edge or beyond it; if beyond, it leaves a hole.
- **retransmitted** (``retransmits_*``) if the tap saw some of its numbers before; or if it fills a hole and was sent
  after the segment that skipped the hole: its timestamp (TSval, RFC 7323) is newer, or where timestamps are missing or
  equal, it comes at least a handshake RTT later (or, after a step of the clock, earlier). If that RTT is uncertain,
  the time from the last SYN to the first ACK counts; if the handshake was not seen, 3 ms, or 10 ms where timestamps
  are equal.
- **reordered** (``out_of_order_*``) if it fills a hole and was sent before the segment that skipped the hole.
- a **copy** (``copies_*``) if it was seen before but not sent again: its timestamp is older than that of the segment
  at the edge; or it repeats that segment within 1 ms with the same timestamp, acknowledgment and window; or one of the
  64 packets of the capture before it has the same TCP header and came less than half a round trip before, at most 10
  ms (0.2 ms without timestamps; 1 ms if the handshake was not seen). Mirror ports and captures of several interfaces
  make copies.
- a **keep-alive** if it is one byte just below the edge, without SYN or FIN, and the other side acknowledged that byte
  (or was not seen); a **window probe** if it is one byte at the edge while the other side's window is zero. Neither
  counts, and a probe does not move the edge.

``segments_*`` counts the new, retransmitted and reordered ones, ``retransmitted_bytes_*`` the payload below the edge
in retransmitted segments. :func:`retransmitted_share` is retransmitted segments over segments sent. A reset takes no
numbers. A host leaves cutting long segments to its network card, so a capture made on it holds segments of many
kilobytes: with more than 1460 bytes of payload they count as the segments they become on the wire, by the maximum
segment size in the SYNs (1460 bytes if no SYN was seen) less 12 bytes for timestamps.

**What a tap can know.** Before the loss it sees what the sender sees: the counts are those of the sender's kernel,
segment for segment (``tcpi_total_retrans`` and ``tcpi_bytes_retrans`` of Linux). Behind the loss

- a retransmission that is lost itself does not pass the tap;
- when the last segments before a pause are lost, nothing skips them, so their retransmissions look new to the tap; so
  does a SYN whose first copy was lost;
- without timestamps, only time distinguishes a retransmission from a late original. SACK blocks do not help: they
  report what the receiver lacks, lost or late.

A retransmission that newer data overtakes before the tap looks like a copy. Copies that come later, of segments whose
timestamp is still that of the edge, count as retransmitted: if ``copies_*`` is large, remove duplicates first
(``editcap -d``), or record one interface.

Memory is bounded: 16 holes per direction. With one more, the oldest is forgotten: what fills it later counts as
retransmitted. Numbers are modulo 2**32 and no window is larger than 2**30 bytes. A segment further than that from the
edge restarts its direction; so does a SYN, unless it starts up to 64 KiB below the edge and so repeats the old one.

**What tshark counts** is in columns of its own (Wireshark User's Guide, "TCP Analysis"; checked against tshark 4.0):

========================== ============================================================================
column                     tshark display filter
========================== ============================================================================
``tshark_retransmits_*``   ``tcp.analysis.retransmission`` (which includes fast and spurious ones)
``tshark_out_of_order_*``  ``tcp.analysis.out_of_order``
``duplicate_acks_*``       ``tcp.analysis.duplicate_ack``
``handshake_rtt_ns``       ``tcp.analysis.initial_rtt``
========================== ============================================================================

tshark remembers no ranges. A retransmission that follows newer data closely, as all do in a fast recovery, is "out of
order" to it. Its rules, for a captured segment that takes sequence numbers:

- **keep-alive**: at most one byte, starting one below the edge, no SYN, FIN or RST. Counted as nothing.
- **retransmission**: it ends at or below what the other side has acknowledged (spurious); or it starts below the
  edge and is not out of order. More than one byte starting exactly one below the edge is new data: it repeats the
  byte of a window probe.
- **out of order**: it starts below the edge, the edge is younger than the handshake RTT (3 ms if unknown), and it
  does not end at the edge. After two duplicate ACKs asking for exactly this segment, the last thing the other side
  sent and less than 20 ms ago, it is a (fast) retransmission instead.
- **duplicate ACK**: no data, no SYN, FIN or RST, sequence number at the edge, the same acknowledgment number and
  the same non-zero window as the segment before it in its direction, and not the answer to a keep-alive.
- **window probe**: one byte at the edge while the other side's window is zero. It does not move the edge.

Later tshark releases draw the line between out of order and retransmission elsewhere, and look at SACK blocks for
duplicate ACKs. Deliberate differences from tshark 4.0:

- An acknowledgment or sequence number of exactly 0 is a number here; tshark takes it for "not seen yet".
- Segments without the ACK flag do not acknowledge; tshark takes their acknowledgment field (mostly 0) as the last
  one, so that a RST hides what was acknowledged before it.
- An acknowledgment of data that was not captured changes nothing here; tshark 4.0 then takes the other side to have
  sent duplicate ACKs, so that its next segment below the edge may count as a fast retransmission.
- A reset does not move the edge, and a jump that no window allows restarts the direction; in tshark a reset may move
  it, and after a jump back every segment counts as retransmitted.
- A repeated SYN in the middle of a connection changes nothing here; tshark moves the edge back.
- Multipath TCP options are ignored; tshark uses them to excuse some duplicate ACKs.
- Segments with no flag at all (null scans) are not TCP segments in the packets table, and no statistics see them.
- The handshake RTT is that of :mod:`cctoolkit.analysis.handshake`, the same as
  ``cctoolkit.rtt_samples(capture, method="handshake")``: none where a SYN, a SYN/ACK or the ACK may have been
  retransmitted and nothing shows which copy was answered. tshark takes the time from the *most recent* SYN to the first
  ACK of *either* side, with or without data, at any sequence number: also the RST that refuses the connection, or a
  segment retransmitted seconds later. An RTT of 0, within one tick of the clock, is a value here; tshark goes on to the
  next ACK. Without a SYN, neither has a value. The ``tshark_*`` columns use the time from the most recent SYN to the
  initiator's first ACK. ``syn_rtt_ns`` is the half between SYN and SYN/ACK, so it says where the tap is: near the
  initiator, it is nearly all of the RTT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support import arguments
from .._support.memory import require
from .._support.state import grown
from ..capture.addresses import addresses_text
from ..capture.keys import check_keys
from ..capture.model import Capture, columns_of
from ..errors import ParameterError, SchemaError
from . import flow_kernels as kernels

if TYPE_CHECKING:
    from ..capture.keys import FlowKeys

__all__ = ["FlowStatistics", "check_flows", "flow_table", "retransmitted_share", "segment_kinds"]

#: Columns that the state of a direction, and of its faults, is copied to.
_COUNTED = ("packets", "bytes", "payload", "segments")
_FAULTS = (
    "retransmits",
    "retransmitted_bytes",
    "out_of_order",
    "copies",
    "duplicate_acks",
    "tshark_retransmits",
    "tshark_out_of_order",
)


_NO_KINDS = np.empty(0, np.int8)
#: Rows copied at once.
_BLOCK = 1 << 16
#: Memory that the table takes for each flow, and growing state while it is copied.
_BYTES_PER_FLOW = 400


class FlowStatistics:
    """Per-flow statistics for packets in batches.

    Parameters
    ----------
    long_flow_bytes : int
        A flow is long if one direction carries more than this many bytes on the wire (default 10 MB, as in the
        paper on separating flows by RTT). Exact; :func:`cctoolkit.long_flows` has the data plane's estimate.

    See Also
    --------
    flow_table : the same in one call
    iter_capture : a capture in batches

    Notes
    -----
    Needs 16 bytes of state per flow and 64 for each of its directions, touched only where packets occur, 72 more for a
    flow whose SYN was captured, 40 for a direction with faults, and 384 for one with holes. The result does not depend
    on the batches.

    Examples
    --------
    >>> cap = cct.example("cubic").ingress
    >>> statistics = cct.FlowStatistics()
    >>> for batch in cap.packets[:5000], cap.packets[5000:]:
    ...     statistics.update(batch, cap.keys)
    >>> statistics.result(cap.keys).retransmits_fwd.tolist()
    [8, 0]
    """

    def __init__(self, long_flow_bytes: int = 10_000_000) -> None:
        if not long_flow_bytes > 0:
            raise ParameterError(f"long_flow_bytes is {long_flow_bytes}, expected a positive number of bytes")
        self.long_flow_bytes = int(long_flow_bytes)
        self._initiators = np.zeros(0, kernels.DIRECTION)
        self._responders = np.zeros(0, kernels.DIRECTION)
        self._flows = np.zeros(0, kernels.FLOW)
        self._handshakes = np.zeros(0, kernels.HANDSHAKE)
        self._faults = np.zeros(64, kernels.FAULTS)
        self._holes = np.zeros(64 * kernels.HOLES, kernels.HOLE)
        self._used = np.zeros(2, np.int64)  # rows of the last two tables that are taken
        self._recent = np.zeros(kernels.LOOKBACK, kernels.RECENT)
        self._recent["flow_id"] = -1

    def _reserve(self, flows: int) -> None:
        """Make room for flow ids below `flows`."""
        self._initiators = grown(self._initiators, flows, moved=True)
        self._responders = grown(self._responders, flows, moved=True)
        self._flows = grown(self._flows, flows, moved=True)
        self._handshakes = grown(self._handshakes, flows, moved=True)

    def update(
        self, packets: Capture | pd.DataFrame | dict[str, np.ndarray], keys: FlowKeys | None = None
    ) -> None:
        """Take in the next packets.

        Parameters
        ----------
        packets : Capture, DataFrame or mapping of arrays
            A packets table (:data:`cctoolkit.schema.PACKETS`), in capture order.
        keys : FlowKeys, optional
            Keys of the flows so far; a Capture has its own. Without the maximum segment sizes in their SYNs, segments
            that a host captured before segmentation are assumed to be cut for Ethernet.
        """
        if keys is None and isinstance(packets, Capture):
            keys = packets.keys
        self._take_in(columns_of(packets), None if keys is None else check_keys(keys))

    def _take_in(
        self, c: dict[str, np.ndarray], keys: FlowKeys | None, kinds: np.ndarray = _NO_KINDS
    ) -> None:
        if len(c["flow_id"]) == 0:
            return
        self._reserve(int(c["flow_id"].max()) + 1)
        if keys is not None and c["payload_bytes"].max() > kernels.ETHERNET_MSS:
            self._learn_mss(keys)
        row = 0
        while True:
            row = kernels.update(
                row,
                c["ts_ns"],
                c["flow_id"],
                c["direction"],
                c["seq"],
                c["ack"],
                c["tcp_flags"],
                c["payload_bytes"],
                c["wire_bytes"],
                c["window"],
                c["tsval"],
                c["tsecr"],
                self._initiators,
                self._responders,
                self._flows,
                self._handshakes,
                self._faults,
                self._holes,
                self._used,
                self._recent,
                kinds,
            )
            if row == len(c["flow_id"]):
                break
            self._faults = grown(self._faults, int(self._used[0]) + 65, moved=True)
            self._holes = grown(self._holes, len(self._faults) * kernels.HOLES, moved=True)
        self._remember(c)

    def _remember(self, c: dict[str, np.ndarray]) -> None:
        """Keep the last packets for the next batch."""
        new = min(len(c["flow_id"]), kernels.LOOKBACK)
        self._recent[: -new or None] = self._recent[new:]
        for name in kernels.RECENT.names or ():
            self._recent[name][-new:] = c[name][-new:]

    def _learn_mss(self, keys: FlowKeys) -> None:
        """For each flow, the smaller of the maximum segment sizes announced: the one both sides use."""
        announced = (
            np.minimum(keys.mss[:, 0] - 1, keys.mss[:, 1] - 1) + 1
        )  # 0, not announced, becomes the largest
        known = announced != 0
        self._reserve(int(keys.flow_id.max()) + 1)
        self._handshakes["mss"][keys.flow_id[known]] = announced[known]

    def result(self, keys: FlowKeys) -> pd.DataFrame:
        """The flows table (:data:`cctoolkit.schema.FLOWS`) of everything taken in so far.

        Parameters
        ----------
        keys : FlowKeys
            Addresses, ports and SYN options, one row per flow. Flows of `keys` that had no packet in the updates are
            left out.
        """
        check_keys(keys)
        check_flows(len(keys))
        self._reserve(int(keys.flow_id.max()) + 1 if len(keys) else 0)
        sides = [_rows(states, keys.flow_id) for states in (self._initiators, self._responders)]
        seen = (sides[0]["packets"] > 0) | (sides[1]["packets"] > 0)
        if not seen.all():
            keys, sides = keys.take(seen), [side[seen] for side in sides]
        flow, handshake = (_rows(states, keys.flow_id) for states in (self._flows, self._handshakes))
        ends = [np.where(side["packets"] > 0, side["last_ts"], np.iinfo(np.int64).min) for side in sides]

        table: dict[str, Any] = {
            "flow_id": keys.flow_id,
            "src": addresses_text(keys.src, keys.ip_version),
            "dst": addresses_text(keys.dst, keys.ip_version),
            "sport": keys.sport,
            "dport": keys.dport,
            "protocol": keys.protocol,
            "first_ts_ns": flow["first_ts"].copy(),
            "last_ts_ns": np.maximum(*ends),
        }
        for name in _COUNTED:
            for way, side in zip(("fwd", "rev"), sides, strict=True):
                table[f"{name}_{way}"] = _counts(side[name])
        faulty = [np.flatnonzero(side["faults"]) for side in sides]
        faults = [self._faults[side["faults"][rows]] for side, rows in zip(sides, faulty, strict=True)]
        for name in _FAULTS:
            for way, rows, of in zip(("fwd", "rev"), faulty, faults, strict=True):
                table[f"{name}_{way}"] = counts = np.zeros(len(keys), np.int64)
                counts[rows] = of[name]
        unknown = (~sides[0]["state"] & (kernels.SYN_SENT | kernels.HANDSHAKE_DONE)) != 0
        table["handshake_rtt_ns"] = pd.arrays.IntegerArray(_counts(handshake["handshake_rtt"]), unknown)
        half_rtt = _counts(handshake["syn_rtt"])
        answered = half_rtt != 0
        half_rtt[answered] -= 1
        table["syn_rtt_ns"] = pd.arrays.IntegerArray(half_rtt, unknown | ~answered)
        for name, values, missing in (("mss", keys.mss, 0), ("window_scale", keys.window_scale, 255)):
            for column, way in enumerate(("fwd", "rev")):
                announced = values[:, column].copy()
                table[f"{name}_{way}"] = pd.arrays.IntegerArray(announced, announced == missing)
        table["sack_permitted"] = keys.sack_permitted.all(axis=1)
        table["is_long"] = np.maximum(table["bytes_fwd"], table["bytes_rev"]) > self.long_flow_bytes
        return pd.DataFrame(table, copy=False)


def check_flows(flows: int) -> None:
    """Raise if the table of so many flows does not fit into memory.

    Raises
    ------
    CCToolkitError
        It does not fit.
    """
    require(flows * _BYTES_PER_FLOW, f"a table of {flows:,} flows", "select fewer packets")


def _rows(states: np.ndarray, flow_id: np.ndarray) -> np.ndarray:
    """The states of flows: a view if these are all from 0 on, which saves the memory of a copy."""
    if np.array_equal(flow_id, np.arange(len(flow_id))):
        return states[: len(flow_id)]
    # as plain rows of words: numpy copies those several times faster than records
    words = states.view(np.int64).reshape(len(states), -1)
    return words[flow_id].view(states.dtype)[:, 0]


def _counts(values: np.ndarray) -> np.ndarray:
    """Values as int64; long stretches of zeros take no memory."""
    counts = np.zeros(len(values), np.int64)
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        if block.any():
            counts[start : start + _BLOCK] = block
    return counts


def flow_table(
    packets: Capture | pd.DataFrame | dict[str, np.ndarray],
    keys: FlowKeys,
    long_flow_bytes: int = 10_000_000,
) -> pd.DataFrame:
    """The flows table of a packets table: bytes, losses, retransmissions and handshake RTT of each flow.

    Parameters
    ----------
    packets : Capture, DataFrame or mapping of arrays
        A packets table (:data:`cctoolkit.schema.PACKETS`), in capture order.
    keys : FlowKeys
        ``capture.keys``.
    long_flow_bytes : int
        Above this many bytes on the wire in one direction, ``is_long`` is true.

    Returns
    -------
    DataFrame
        :data:`cctoolkit.schema.FLOWS`, one row per flow with packets, in the order of `keys`. How segments are
        classified, and where that differs from tshark, is in the module's description.

    See Also
    --------
    FlowStatistics : the same for batches of packets
    retransmitted_share : retransmissions as a share
    segment_kinds : which packets are retransmissions

    Examples
    --------
    >>> cap = cct.example("cubic").ingress
    >>> flows = cct.flow_table(cap, cap.keys)  # the same as cap.flows
    >>> flows[["packets_fwd", "retransmits_fwd", "out_of_order_fwd"]]
       packets_fwd  retransmits_fwd  out_of_order_fwd
    0         7955                8                 0
    1            2                0                 0
    """
    statistics = FlowStatistics(long_flow_bytes)
    statistics.update(packets, keys)
    return statistics.result(keys)


def retransmitted_share(flows: Any, way: str | None = None) -> Any:
    """Share of the segments sent that are retransmissions.

    Parameters
    ----------
    flows : DataFrame or Series
        A flows table, a row of it, or the sums of its columns.
    way : {"fwd", "rev"}, optional
        One direction, from the initiator or to it. By default, both together.

    Returns
    -------
    Series or float
        0 to 1; NaN where no segment was sent. A segment takes sequence numbers (payload, SYN or FIN): pure ACKs,
        which cannot be sent again, do not count.

    Raises
    ------
    ParameterError
        `way` is neither.

    See Also
    --------
    flow_table : the flows table
    queue_loss : losses between two taps

    Examples
    --------
    >>> cap = cct.example("cubic").ingress
    >>> round(float(cct.retransmitted_share(cap.flows, "fwd")[0]), 4)
    0.001
    """
    if way not in ("fwd", "rev", None):
        raise ParameterError(f"way is {way!r}, expected 'fwd' or 'rev'")
    ways = ("fwd", "rev") if way is None else (way,)
    columns = [f"{what}_{each}" for what in ("retransmits", "segments") for each in ways]
    if isinstance(flows, pd.DataFrame):
        flows = arguments.table("flows", flows, columns).set_axis(flows.index)
    elif not isinstance(flows, pd.Series | Mapping) or not all(name in flows for name in columns):
        raise SchemaError(f"flows: expected a flows table with {', '.join(columns)}")
    again = sum(flows[f"retransmits_{each}"] for each in ways)
    sent = sum(flows[f"segments_{each}"] for each in ways)
    return again / np.where(sent == 0, np.nan, sent)


def segment_kinds(
    packets: Capture | pd.DataFrame | dict[str, np.ndarray], keys: FlowKeys | None = None
) -> pd.Categorical:
    """The kind of each packet in its flow's statistics.

    Parameters
    ----------
    packets : Capture, DataFrame or mapping of arrays
        A packets table (:data:`cctoolkit.schema.PACKETS`), in capture order; flows from their first packet on.
    keys : FlowKeys, optional
        As for :meth:`FlowStatistics.update`.

    Returns
    -------
    Categorical, one entry per packet
        ``new``, ``retransmitted`` or ``reordered``, as the flows table counts them; ``other`` are packets without
        sequence numbers of their own (pure ACKs, resets, other protocols), keep-alives, window probes and copies.

    See Also
    --------
    flow_table : how many of each kind a flow has
    plot.time_sequence : a figure of one flow's segments

    Examples
    --------
    >>> cap = cct.example("cubic").ingress
    >>> cct.segment_kinds(cap).value_counts().to_dict()
    {'other': 4581, 'new': 7947, 'retransmitted': 8, 'reordered': 0}
    """
    columns = columns_of(packets)
    if keys is not None:
        check_keys(keys)
    kinds = np.zeros(len(columns["flow_id"]), np.int8)
    statistics = FlowStatistics()
    statistics._take_in(
        columns, packets.keys if keys is None and isinstance(packets, Capture) else keys, kinds
    )
    names: Any = pd.CategoricalDtype(list(kernels.KINDS))
    return pd.Categorical.from_codes(kinds, dtype=names)
