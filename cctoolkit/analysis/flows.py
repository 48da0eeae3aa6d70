"""Per-flow statistics: one pass over the packets table, one row a flow.

The classification of segments follows tshark's TCP analysis (Wireshark User's Guide, "TCP Analysis"; checked
against tshark 4.0), so that a number in the flows table is the number an analyst gets from a tshark filter:

===================== ============================================================================
column                tshark display filter
===================== ============================================================================
``retransmits_*``     ``tcp.analysis.retransmission`` (which includes fast and spurious ones)
``out_of_order_*``    ``tcp.analysis.out_of_order``
``duplicate_acks_*``  ``tcp.analysis.duplicate_ack``
``handshake_rtt_ns``  ``tcp.analysis.initial_rtt``
===================== ============================================================================

The rules, for a segment that carries data, SYN or FIN (the *edge* is the highest sequence number its direction
has reached):

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
duplicate ACKs. Where the answer differs from tshark 4.0's, on purpose:

- An acknowledgment or sequence number of exactly 0 is a number here; tshark takes it for "not seen yet".
- Segments without the ACK flag do not acknowledge; tshark takes their acknowledgment field (mostly 0) as the last
  one, so that a RST hides what was acknowledged before it.
- An acknowledgment of data that was not captured changes nothing here; tshark 4.0 then takes the other side to have
  sent duplicate ACKs, so that its next segment below the edge may count as a fast retransmission.
- A repeated SYN in the middle of a connection changes nothing here; tshark moves the edge back.
- Multipath TCP options are not looked at; tshark uses them to excuse some duplicate ACKs.
- Segments with no flag at all (null scans) are not TCP segments in the packets table, and no statistics see them.
- The handshake RTT is the time from the *most recent* SYN of the initiator (as in tshark: a retransmitted SYN starts
  the clock again) to the initiator's first segment that has ACK, neither SYN nor RST, and starts where data starts
  after the SYN; the same as ``cctoolkit.rtt_samples(capture, method="handshake")``. tshark takes the first ACK of
  *either* side, so that a refused connection (RST+ACK) gets half a round trip; here it gets none. An RTT of 0, within
  one tick of the clock, is a value here; tshark goes on to the next ACK. No SYN, no value, in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pandas as pd

from .._support.state import grown
from ..capture.addresses import addresses_text
from ..capture.model import columns_of
from ..errors import ParameterError

if TYPE_CHECKING:
    from ..capture.keys import FlowKeys
    from ..capture.model import Capture

__all__ = ["FlowStatistics", "flow_table"]

FAST_RETRANSMIT_NS = 20_000_000
OUT_OF_ORDER_DEFAULT_NS = 3_000_000

_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16

# Bits of `_DIRECTION.state`.
_HAS_EDGE = 1
_HAS_ACK = 2
_LAST_WAS_KEEP_ALIVE = 4
_SYN_SENT = 8
_HANDSHAKE_DONE = 16

#: What is kept of one direction of a flow: one cache line, because with a million flows cache misses are the cost.
#: All zero means "nothing seen", so fresh memory needs no initialisation.
_DIRECTION = np.dtype(
    [
        ("packets", "i8"),
        ("bytes", "i8"),
        ("payload", "i8"),
        ("last_ts", "i8"),
        ("edge_ts", "i8"),
        ("edge", "u4"),
        ("last_ack", "u4"),
        ("retransmits", "u4"),
        ("out_of_order", "u4"),
        ("duplicate_acks", "u4"),
        ("window", "u2"),
        ("state", "u1"),
        ("duplicate_run", "u1"),  # duplicate ACKs in a row, up to 255
    ]
)
assert _DIRECTION.itemsize == 64

#: What is touched once or twice in a flow's life.
_FLOW = np.dtype(
    [
        ("first_ts", "i8"),
        ("syn_ts", "i8"),
        ("handshake_rtt", "i8"),
        ("after_syn", "u4"),  # the first sequence number after the SYN
        ("after_syn_data", "u4"),  # and after what the SYN carried (TCP Fast Open)
    ]
)


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _update(
    ts_ns, flow_id, direction, seq, ack, tcp_flags, payload_bytes, wire_bytes, window, directions, flows
):
    for i in range(np.uint64(len(ts_ns))):
        ts = ts_ns[i]
        payload = np.int64(payload_bytes[i])
        flags = np.int64(tcp_flags[i])
        flow = np.uint64(flow_id[i])
        backward = np.uint64(direction[i] & 1)
        at = flow * np.uint64(2) + backward
        own = directions[at]
        other = directions[at ^ np.uint64(1)]

        if own.packets == 0:
            own.last_ts = ts
            if other.packets == 0 or ts < flows[flow].first_ts:
                flows[flow].first_ts = ts
        elif ts >= own.last_ts:
            own.last_ts = ts
        elif ts < flows[flow].first_ts:  # the capture's clock stepped back
            flows[flow].first_ts = ts
        own.packets += 1
        own.bytes += wire_bytes[i]
        own.payload += payload
        if flags == 0:
            continue

        # 64-bit throughout; a difference cut to int32 is the signed distance modulo 2**32.
        begin = np.int64(seq[i])
        end = begin + payload + np.int64((flags & (_SYN | _FIN)) != 0)  # SYN and FIN take a sequence number
        control = flags & (_FIN | _SYN | _RST)
        acknowledges = flags & _ACK != 0
        state = np.int64(own.state)
        has_edge = state & _HAS_EDGE != 0
        offset = np.int32(begin - np.int64(own.edge))
        reach = np.int32(end - np.int64(own.edge))
        repeats_ack = acknowledges and state & _HAS_ACK != 0 and ack[i] == own.last_ack

        probe = (
            has_edge and payload == 1 and offset == 0 and other.state & _HAS_EDGE != 0 and other.window == 0
        )
        keep_alive = has_edge and payload <= 1 and offset == -1 and control == 0
        if (
            repeats_ack
            and has_edge
            and payload == 0
            and offset == 0
            and control == 0
            and window[i] == own.window
            and own.window != 0
            and other.state & _LAST_WAS_KEEP_ALIVE == 0
        ):
            own.duplicate_acks += 1
            if own.duplicate_run < 255:
                own.duplicate_run += 1

        if end != begin and not keep_alive:
            if (
                payload > 0
                and other.state & _HAS_ACK != 0
                and np.int32(begin + payload - other.last_ack) <= 0
            ):
                own.retransmits += 1
            elif has_edge and offset < 0 and not (offset == -1 and payload > 1):
                if (
                    other.duplicate_run >= 2
                    and other.last_ack == begin
                    and 0 <= ts - other.last_ts < FAST_RETRANSMIT_NS
                ):
                    own.retransmits += 1
                else:
                    patience = flows[flow].handshake_rtt
                    if patience == 0:
                        patience = OUT_OF_ORDER_DEFAULT_NS
                    if 0 <= ts - own.edge_ts < patience and reach != 0:
                        own.out_of_order += 1
                    else:
                        own.retransmits += 1

        if not has_edge or (reach > 0 and not probe):
            own.edge = np.uint32(end)
            own.edge_ts = ts
            state |= _HAS_EDGE

        if acknowledges and not repeats_ack:
            own.duplicate_run = 0
            own.last_ack = ack[i]
            state |= _HAS_ACK
        own.window = window[i]
        if keep_alive:
            state |= _LAST_WAS_KEEP_ALIVE
        else:
            state &= ~_LAST_WAS_KEEP_ALIVE

        if backward == 0 and state & _HANDSHAKE_DONE == 0:
            handshake = flags & (_SYN | _RST | _ACK)
            if handshake == _SYN:
                flows[flow].syn_ts = ts
                flows[flow].after_syn = np.uint32(begin + 1)
                flows[flow].after_syn_data = np.uint32(end)
                state |= _SYN_SENT
            elif (
                handshake == _ACK
                and state & _SYN_SENT != 0
                and (seq[i] == flows[flow].after_syn or seq[i] == flows[flow].after_syn_data)
            ):
                state |= _HANDSHAKE_DONE
                if ts >= flows[flow].syn_ts:
                    flows[flow].handshake_rtt = ts - flows[flow].syn_ts
                else:  # the capture's clock stepped back: no value
                    state &= ~_SYN_SENT
        own.state = state


class FlowStatistics:
    """Per-flow statistics, batch after batch.

    Parameters
    ----------
    long_flow_bytes : int
        A flow is long if one direction carries more than this many bytes on the wire (default 10 MB, as in the
        paper on separating flows by RTT). Exact; :func:`cctoolkit.long_flows` has the data plane's estimate.

    Notes
    -----
    160 bytes of state a flow id, touched only for ids that occur. The result does not depend on how the packets were
    cut into batches.
    """

    def __init__(self, long_flow_bytes: int = 10_000_000) -> None:
        if not long_flow_bytes > 0:
            raise ParameterError(f"long_flow_bytes is {long_flow_bytes}, expected a positive number of bytes")
        self.long_flow_bytes = int(long_flow_bytes)
        self._directions = np.zeros(0, _DIRECTION)
        self._flows = np.zeros(0, _FLOW)

    def _reserve(self, flows: int) -> None:
        """Have state for flow ids below `flows`."""
        self._directions = grown(self._directions, 2 * flows)
        self._flows = grown(self._flows, flows)

    def update(self, packets: Capture | pd.DataFrame | dict[str, np.ndarray]) -> None:
        """Take in the next packets (a Capture, a packets DataFrame, or its columns as arrays), in capture order."""
        c = columns_of(packets)
        if len(c["flow_id"]) == 0:
            return
        self._reserve(int(c["flow_id"].max()) + 1)
        _update(
            c["ts_ns"],
            c["flow_id"],
            c["direction"],
            c["seq"],
            c["ack"],
            c["tcp_flags"],
            c["payload_bytes"],
            c["wire_bytes"],
            c["window"],
            self._directions,
            self._flows,
        )

    def result(self, keys: FlowKeys) -> pd.DataFrame:
        """The flows table (:data:`cctoolkit.schema.FLOWS`) of everything taken in so far.

        Parameters
        ----------
        keys : FlowKeys
            Addresses, ports and what the SYNs announced, one row a flow. Flows of `keys` that had no packet in the
            updates are left out.
        """
        self._reserve(int(keys.flow_id.max()) + 1 if len(keys) else 0)
        # As plain rows of 16 words a flow: numpy copies those several times faster than records.
        both = self._directions.view(np.int64).reshape(-1, 16)[keys.flow_id].view(_DIRECTION)
        seen = (both["packets"][:, 0] > 0) | (both["packets"][:, 1] > 0)
        if not seen.all():
            keys, both = keys.take(seen), both[seen]
        flow = self._flows[keys.flow_id]
        sides = both[:, 0], both[:, 1]
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
        for name in ("packets", "bytes", "payload", "retransmits", "out_of_order", "duplicate_acks"):
            for way, side in zip(("fwd", "rev"), sides, strict=True):
                table[f"{name}_{way}"] = side[name].astype(np.int64)
        unknown = (~sides[0]["state"] & (_SYN_SENT | _HANDSHAKE_DONE)) != 0
        table["handshake_rtt_ns"] = pd.arrays.IntegerArray(flow["handshake_rtt"].copy(), unknown)
        for name, values, missing in (("mss", keys.mss, 0), ("window_scale", keys.window_scale, 255)):
            for column, way in enumerate(("fwd", "rev")):
                announced = values[:, column].copy()
                table[f"{name}_{way}"] = pd.arrays.IntegerArray(announced, announced == missing)
        table["sack_permitted"] = keys.sack_permitted.all(axis=1)
        table["is_long"] = np.maximum(table["bytes_fwd"], table["bytes_rev"]) > self.long_flow_bytes
        return pd.DataFrame(table, copy=False)


def flow_table(
    packets: Capture | pd.DataFrame | dict[str, np.ndarray],
    keys: FlowKeys,
    long_flow_bytes: int = 10_000_000,
) -> pd.DataFrame:
    """The flows table of a packets table: what each flow carried, lost, repeated and took to connect.

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
        :data:`cctoolkit.schema.FLOWS`, one row a flow with packets, in the order of `keys`. How segments are
        classified, and where that differs from tshark, is in the module's description.
    """
    statistics = FlowStatistics(long_flow_bytes)
    statistics.update(packets)
    return statistics.result(keys)
