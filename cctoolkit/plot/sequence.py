"""The time-sequence graph of a flow, and its bytes in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support.kernels import kernel
from ..analysis.flows import segment_kinds
from ..capture.model import Capture, columns_of
from ..capture.protocols import ACK, FIN, RST, SYN
from ..errors import ParameterError
from ..schema import PACKETS
from .source import Names, seconds_since, start_of
from .style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    POINTS,
    PURPLE,
    SKY,
    VERMILLION,
    figure,
    note,
    small,
)
from .thinning import thin_rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Sequence", "bytes_in_flight", "sequence_of", "time_sequence"]

#: Kinds of packets in :func:`_unwrap`.
OTHER, SEGMENT, PURE_ACK = 0, 1, 2


@kernel
def _unwrap(seq, ack, tcp_flags, payload_bytes, from_sender, kind, start, end, high, acked):
    """Sequence numbers of one direction without wrap-around, relative to the first one seen.

    Each number is read as the one nearest to the highest sent so far (less than 2**31 away), as in the receiver's
    window arithmetic. Resets carry no usable number and are left out. Returns the number that became 0.

    Parameters
    ----------
    seq, ack, tcp_flags, payload_bytes : arrays
        Columns of the packets table, of one flow.
    from_sender : bool array
        Whether the packet goes in the direction drawn.
    kind : int8 array
        Receives SEGMENT or PURE_ACK; unchanged for packets left out.
    start, end : int64 arrays
        Receive the first byte, and the first one after the segment; of an acknowledgement both are its number.
    high, acked : int64 arrays
        Receive the highest byte sent so far, and the highest acknowledgement; -1 before the first one.
    """
    base = np.int64(-1)
    top = np.int64(0)
    floor = np.int64(-1)
    for i in range(seq.size):
        flags = tcp_flags[i]
        if flags != 0 and not flags & RST:
            if from_sender[i]:
                if base < 0:
                    base = np.int64(seq[i])
                near = (np.int64(seq[i]) - base - top) & 0xFFFFFFFF
                kind[i] = SEGMENT
                start[i] = top + near - ((near >> 31) << 32)
                end[i] = start[i] + np.int64(payload_bytes[i]) + ((flags & SYN) >> 1) + (flags & FIN)
                top = max(top, end[i])
            elif flags & ACK:
                if base < 0:
                    base = np.int64(ack[i])
                near = (np.int64(ack[i]) - base - top) & 0xFFFFFFFF
                kind[i] = PURE_ACK
                end[i] = top + near - ((near >> 31) << 32)
                start[i] = end[i]
                floor = max(floor, end[i])
        high[i] = top
        acked[i] = floor
    return base


@dataclass(frozen=True)
class Sequence:
    """One direction of a TCP flow in sequence space; all arrays have one entry per TCP packet of the flow.

    Attributes
    ----------
    flow_id, direction : int
    base : int
        Sequence number on the wire that is 0 here.
    row : int64 array
        Row of the packets table.
    time_s : float64 array
        Seconds since the capture's start, ascending.
    segment, ack : bool arrays
        Whether the packet is a segment sent in this direction, or an acknowledgement from the other. Resets are
        neither.
    start, end : int64 arrays
        First byte of a segment and the byte after its last (SYN and FIN count as one byte each); for an
        acknowledgement, both are its number.
    high, acked : int64 arrays
        After the packet: the highest ``end`` sent, and the highest number acknowledged (-1 before any).
    edge : int64 array
        Right edge of the receive window an acknowledgement announces, else -1.
    scaled : bool
        Whether both SYNs with window scale were seen, so that ``edge`` is in bytes. Otherwise the window is as on the
        wire.
    syn, fin : bool arrays
    """

    flow_id: int
    direction: int
    base: int
    row: np.ndarray
    time_s: np.ndarray
    segment: np.ndarray
    ack: np.ndarray
    start: np.ndarray
    end: np.ndarray
    high: np.ndarray
    acked: np.ndarray
    edge: np.ndarray
    scaled: bool
    syn: np.ndarray
    fin: np.ndarray


def sequence_of(cap: Any, flow_id: int, direction: int | None = None) -> Sequence:
    """Unwrap one direction of a TCP flow.

    Parameters
    ----------
    cap : Capture or packets table
    flow_id : int
    direction : {0, 1}, optional
        Direction of the data. By default, the one that carried more payload.

    Returns
    -------
    Sequence

    Raises
    ------
    ParameterError
        There is no such flow, or it has no TCP packets.
    """
    columns = columns_of(cap)
    rows = np.flatnonzero(columns["flow_id"] == flow_id)
    if not rows.size:
        raise ParameterError(f"flow_id={flow_id}: there is no such flow")
    rows = rows[columns["tcp_flags"][rows] != 0]
    if not rows.size:
        raise ParameterError(
            f"flow_id={flow_id} is not TCP, or its TCP headers were cut off: there are no sequence numbers"
        )
    side = columns["direction"][rows]
    payload = columns["payload_bytes"][rows]
    if direction is None:
        direction = int(payload[side == 1].sum() > payload[side == 0].sum())
    if direction not in (0, 1):
        raise ParameterError(f"direction={direction!r}: 0 (from the initiator) or 1 (to it)")
    n = rows.size
    kind = np.zeros(n, np.uint8)
    start, end, high, acked = (np.zeros(n, np.int64) for _ in range(4))
    flags = columns["tcp_flags"][rows]
    base = _unwrap(
        columns["seq"][rows],
        columns["ack"][rows],
        flags,
        payload,
        side == direction,
        kind,
        start,
        end,
        high,
        acked,
    )
    ack = kind == PURE_ACK
    scale = _window_scale(cap, flow_id, direction)
    window = columns["window"][rows].astype(np.int64)
    if scale is not None:
        window = np.where(flags & SYN, window, window << scale)  # a SYN's own window is never scaled
    time_s = seconds_since(columns["ts_ns"][rows], start_of(cap, columns["ts_ns"]))
    order = np.argsort(time_s, kind="stable")  # several capture queues can hand packets over out of order
    return Sequence(
        flow_id=int(flow_id),
        direction=direction,
        base=max(int(base), 0),
        row=rows[order],
        time_s=time_s[order],
        segment=(kind == SEGMENT)[order],
        ack=ack[order],
        start=start[order],
        end=end[order],
        high=high[order],
        acked=acked[order],
        edge=np.where(ack, end + window, -1)[order],
        scaled=scale is not None,
        syn=((flags & SYN) != 0)[order],
        fin=((flags & FIN) != 0)[order],
    )


def _window_scale(cap: Any, flow_id: int, direction: int) -> int | None:
    """Shift of the windows that the receiver of `direction` announces; None if it was not seen.

    RFC 7323, section 2.2: scaling is on only when both SYNs carry the option.
    """
    if not isinstance(cap, Capture):
        return None
    scales = cap.keys.window_scale[np.searchsorted(cap.keys.flow_id, flow_id)]
    return None if 255 in scales else min(int(scales[1 - direction]), 14)


def _marks(cap: Any, seq: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Which packets of `seq` are retransmissions and which are out of order, as the flows table counts them."""
    columns = columns_of(cap)
    rows = np.sort(seq.row)
    one_flow = {name: columns[name][rows] for name in PACKETS}
    one_flow["flow_id"] = np.zeros_like(one_flow["flow_id"])
    kinds = segment_kinds(one_flow)[np.searchsorted(rows, seq.row)]
    return seq.segment & (kinds == "retransmitted"), seq.segment & (kinds == "reordered")


def _bars(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertical bars as one line that is lifted (NaN) after each."""
    gap = np.full(x.size, np.nan)
    return np.column_stack([x, x, gap]).ravel(), np.column_stack([low, high, gap]).ravel()


def _shown(name: str, drawn: int, total: int) -> str:
    return f"{name} ({total:,})" if drawn == total else f"{name} ({drawn:,} of {total:,})"


def _between(seq: Sequence, between_s: tuple[float, float] | None) -> slice:
    """The packets in the interval, and one on either side so that lines reach the frame."""
    if between_s is None:
        return slice(None)
    left, right = np.searchsorted(seq.time_s, between_s, side="left")
    return slice(max(int(left) - 1, 0), int(right) + 1)


def time_sequence(
    cap: Any,
    flow_id: int,
    direction: int | None = None,
    *,
    between_s: tuple[float, float] | None = None,
    points: int = POINTS,
) -> go.Figure:
    """The time-sequence graph of one TCP flow, as tcptrace draws it.

    Each segment is a bar from its first to its last byte. The staircase below shows what has been acknowledged, the
    one above the right edge of the receive window. Retransmitted and out-of-order segments (by the rules of
    :mod:`cctoolkit.analysis.flows`) and SACK blocks have their own colours. Sequence numbers are relative to the first
    one seen and do not wrap.

    Parameters
    ----------
    cap : Capture or packets table
        A packets table alone has no SACK blocks and no window scale; the figure says so.
    flow_id : int
    direction : {0, 1}, optional
        Direction of the data. By default, the one that carried more payload.
    between_s : (float, float), optional
        Draw only this interval, in seconds, in full detail. Retransmissions are still detected on the whole flow.
    points : int
        Maximum number of bars of a kind, and of points per line; extremes are kept (:func:`thin_rows`).

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        There is no such flow, or it is not TCP.

    See Also
    --------
    bytes_in_flight : what is sent and not yet acknowledged
    cctoolkit.segment_kinds : which segments are retransmissions

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.time_sequence(run.ingress, flow_id=0)
    >>> [trace.name for trace in fig.data if trace.showlegend]
    ['receive window', 'acknowledged', 'SACK blocks (654)', 'segments (2,559)', 'retransmissions (57)']
    """
    import plotly.graph_objects as go

    names = Names(cap)
    seq = sequence_of(cap, flow_id, direction)
    view = _between(seq, between_s)
    retransmit, out_of_order = _marks(cap, seq)
    arrow = "from" if seq.direction == 0 else "to"
    fig = figure(
        f"Time-sequence graph, data {arrow} the initiator" + small(names.long(flow_id)),
        height=560,
        xaxis_title_text="time since the capture's start (s)",
        yaxis_title_text="sequence number, relative (bytes)",
    )

    def draw(name: str, x: np.ndarray, y: np.ndarray, hover: str = "", **look: Any) -> None:
        look = {"showlegend": bool(x.size)} | look  # kinds that do not occur still get a trace: see Explorer
        hover = f"%{{x:.6f}} s<br>{name.split(' (')[0]} %{{y:,}}{hover}<extra></extra>"
        fig.add_trace(go.Scatter(x=x, y=y, name=name, hovertemplate=hover, **look))

    def line(name: str, kept: np.ndarray, y: np.ndarray, **style: Any) -> None:
        x, y = time_s[kept[view]], y[view][kept[view]]
        rows = thin_rows(x, y, points=points)
        draw(name, x[rows], y[rows], mode="lines", line={"shape": "hv", "width": 1.3} | style)

    def bars(
        name: str, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, tick: float, width: float
    ) -> None:
        rows = thin_rows(x, low, high, points=points)
        stroke = {"color": colour, "width": width}
        draw(
            _shown(name, rows.size, x.size),
            *_bars(x[rows], low[rows], high[rows]),
            hover="<br>%{customdata:,} bytes",
            customdata=np.repeat((high - low)[rows], 3),
            mode="lines+markers",
            line=stroke,
            marker={"symbol": "line-ew-open", "size": tick, "color": colour, "line": stroke},
        )

    time_s = seq.time_s[view]
    line(
        "receive window" if seq.scaled else "receive window (scale unknown)",
        seq.edge >= 0,
        seq.edge,
        color=SKY,
        dash="solid" if seq.scaled else "dot",
    )
    line("acknowledged", seq.ack, np.maximum(seq.acked, 0), color=GREEN)
    bars("SACK blocks", *_sack_blocks(cap, seq, view), PURPLE, 4, 1.6)
    marked = retransmit | out_of_order
    for name, which, colour, tick, width in (
        ("segments", seq.segment & (seq.end > seq.start) & ~marked, BLUE, 4, 1),
        ("out of order", out_of_order, ORANGE, 8, 2.2),
        ("retransmissions", retransmit, VERMILLION, 8, 2.2),
    ):
        rows = np.flatnonzero(which[view])
        bars(name, time_s[rows], seq.start[view][rows], seq.end[view][rows], colour, tick, width)
    for name, which, symbol in (("SYN", seq.syn, "triangle-up"), ("FIN", seq.fin, "square")):
        rows = np.flatnonzero((which & seq.segment)[view])
        rows = rows[thin_rows(time_s[rows], seq.start[view][rows], points=points)]
        marker = {"symbol": symbol, "size": 8, "color": INK}
        draw(name, time_s[rows], seq.start[view][rows], showlegend=False, mode="markers", marker=marker)
    if between_s is not None:
        fig.update_xaxes(range=between_s)
    low, high = _drawn_range(seq, view)
    fig.update_yaxes(
        range=[low, high]
    )  # a wide open window would press the segments flat; zoom out to see it
    if not seq.segment.any():
        note(fig, "no segments were seen in this direction, only its acknowledgements")
    return fig


def _drawn_range(seq: Sequence, view: slice) -> tuple[float, float]:
    """Sequence range of the segments and acknowledgements in view, with a margin."""
    used = (seq.segment | seq.ack)[view]
    if not used.any():
        return 0.0, 1.0
    low, high = int(seq.start[view][used].min()), int(seq.end[view][used].max())
    air = 0.05 * max(high - low, 20)
    return low - air, high + air


def _sack_blocks(cap: Any, seq: Sequence, view: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, left and right edges of the SACK blocks that acknowledge this direction."""
    if not isinstance(cap, Capture):
        return np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64)
    by_row = np.argsort(seq.row)
    packet = cap.sacks["packet"].to_numpy()
    at = np.minimum(np.searchsorted(seq.row, packet, sorter=by_row), seq.row.size - 1)
    place = by_row[at]
    inside = np.zeros(seq.row.size, np.bool_)
    inside[view] = True
    mine = (seq.row[place] == packet) & seq.ack[place] & inside[place]
    place = place[mine]
    near = seq.high[place]
    left, right = (
        near
        + (((cap.sacks[side].to_numpy()[mine].astype(np.int64) - seq.base - near) + 2**31) % 2**32 - 2**31)
        for side in ("left", "right")
    )
    return seq.time_s[place], left, right


def bytes_in_flight(
    cap: Any,
    flow_id: int,
    direction: int | None = None,
    *,
    between_s: tuple[float, float] | None = None,
    points: int = POINTS,
) -> go.Figure:
    """Bytes sent and not yet acknowledged after each packet, and the receive window that bounds them.

    Bytes in flight are the highest sequence number sent minus the highest acknowledged, as seen at the tap: near the
    sender, what the sender has outstanding; near the receiver, next to nothing. SACKed bytes count as in flight.

    Parameters
    ----------
    cap, flow_id, direction, between_s, points
        As in :func:`time_sequence`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ParameterError
        There is no such flow, or it is not TCP.

    See Also
    --------
    time_sequence : the segments and ACKs behind it
    cctoolkit.compute_slots : bytes in flight per slot

    Examples
    --------
    >>> run = cct.example("cubic-bbr")
    >>> fig = cct.plot.bytes_in_flight(run.ingress, flow_id=0)
    >>> [trace.name for trace in fig.data]
    ['receive window', 'in flight']
    """
    import plotly.graph_objects as go

    seq = sequence_of(cap, flow_id, direction)
    view = _between(seq, between_s)
    fig = figure(
        "Bytes in flight" + small(Names(cap).long(flow_id)),
        xaxis_title_text="time since the capture's start (s)",
        yaxis_title_text="in flight (bytes)",
    )
    if not seq.segment.any() or not seq.ack.any():
        return note(fig, "only one direction of this flow was seen, so bytes in flight are unknown")
    known = seq.acked >= 0
    flight = np.where(known, np.maximum(seq.high - seq.acked, 0), seq.high)
    room = seq.edge - np.maximum(seq.acked, 0)
    for name, kept, y, colour in (
        ("receive window" if seq.scaled else "receive window (scale unknown)", seq.edge >= 0, room, SKY),
        ("in flight", seq.segment | seq.ack, flight, BLUE),
    ):
        x, y = seq.time_s[view][kept[view]], y[view][kept[view]]
        rows = thin_rows(x, y, points=points)
        fig.add_trace(
            go.Scatter(
                x=x[rows],
                y=y[rows],
                name=name,
                mode="lines",
                line={"shape": "hv", "width": 1.5, "color": colour},
                hovertemplate=f"%{{x:.6f}} s<br>{name} %{{y:,}} bytes<extra></extra>",
            )
        )
    if between_s is not None:
        fig.update_xaxes(range=between_s)
    top = float(flight[view].max()) if flight[view].size else 1.0
    return fig.update_yaxes(range=[-0.03 * max(top, 20), 1.1 * max(top, 20)])
