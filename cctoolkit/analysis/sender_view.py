"""Slots as a flow's sender sees them, from a tap that is somewhere on the path.

Congestion windows are filled at the sender. A tap on the way sees data later and acknowledgements earlier than the
sender, by the RTT between the two, so it sees fewer bytes in flight, and they follow the window only near the sender:
in the middle of a path, Reno and CUBIC look like BBR. Acknowledgements that count so much later make up for the
difference.

Two things show how far away both ends are: the halves of a handshake, SYN to SYN/ACK and SYN/ACK to ACK
(:mod:`cctoolkit.analysis.handshake`), and the shortest time until an end echoes a TCP timestamp, also in the middle of
a connection. Neither can be too short, so the shorter one counts. A sender that pauses echoes late, so an echo in data
counts only if other data passed while it was awaited, or if it came at once. The RTT is a constant: a queue between the
sender and the tap varies it, but then the tap is behind a bottleneck. Fractions of a slot are rounded.
"""

from __future__ import annotations

import itertools
from typing import no_type_check

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._support import arguments
from .._support.arguments import positive_ns
from .._support.kernels import kernel
from ..capture.model import Capture
from ..errors import SchemaError
from .rtt import RttPairing
from .sequence import ahead
from .slot_rows import consecutive, observed

__all__ = ["AT_ONCE_NS", "LEAST_ECHOES", "TapRtts", "seen_by_sender"]

#: What the table gets, what is needed for it, and what changes.
_NOTED = ("path_rtt_ns", "sender_rtt_ns")
_ARRIVALS = ("in_bytes", "in_seq")
_ACKNOWLEDGED = ("bytes_in_flight", "ecn_echoes")
#: Echoes of timestamps after which the shortest is hardly a wait for something else.
LEAST_ECHOES = 8
#: An echo within this time is no wait for the application that would matter.
AT_ONCE_NS = 2_000_000


@kernel
@no_type_check  # numba types it
def _delay_acknowledgements(came, seq, later, flight, echoes):
    """Count a flow's acknowledgements later; twin: tests/naive_sender_view.py.

    Parameters
    ----------
    came : float64 array, shape (n,)
        Payload bytes of each slot; NaN: not known.
    seq : int64 array, shape (n,)
        First sequence number of the slot; negative for none.
    later : int
        By how many slots.
    flight, echoes : float64 arrays, shape (n,)
        Bytes in flight at the end of each slot, and changes of the acknowledgements' ECN flags; NaN: not known. They
        are replaced where they are known.
    """
    n = len(came)
    sent = np.zeros(n)  # the highest sequence number sent, counted from the first one
    begins = np.full(n, np.nan)  # where data start that come after all earlier starts
    last = np.int64(-1)
    at = 0.0
    newest = -1.0
    high = 0.0
    for t in range(n):
        if came[t] > 0 and seq[t] >= 0:
            if last >= 0:
                at += ahead(seq[t], last)
            last = seq[t]
            if at > newest:
                begins[t] = newest = at
            high = max(high, at + came[t])
        sent[t] = high
    # A slot may hold retransmissions besides newer data, so that it ends earlier: where the next one begins.
    limit = np.inf
    for t in range(n - 1, -1, -1):
        sent[t] = min(sent[t], limit)
        if not np.isnan(begins[t]):
            limit = begins[t]
    acked = np.zeros(n)  # the highest number acknowledged, at the tap
    known = False
    for t in range(n):
        acked[t] = acked[t - 1] if t > 0 else 0.0
        if not np.isnan(flight[t]):
            acked[t] = max(acked[t], sent[t] - flight[t]) if known else sent[t] - flight[t]
            if not known:  # what was acknowledged before that is not known
                acked[:t] = acked[t]
                known = True
    for t in range(n - 1, -1, -1):
        before = t - later
        if not np.isnan(flight[t]):
            flight[t] = max(sent[t] - acked[max(before, 0)], 0.0)
        if not np.isnan(echoes[t]):
            echoes[t] = echoes[before] if before >= 0 and not np.isnan(echoes[before]) else 0.0


@kernel
@no_type_check  # numba types it
def _data_before(ts_ns, flow, direction, payload_bytes, last_ns, before_ns):
    """When the last data before each packet passed in its direction; for packets without data, now.

    Parameters
    ----------
    ts_ns, flow, direction, payload_bytes : int arrays, shape (n,)
    last_ns : int64 array, shape (flows, 2)
        When data passed last; updated.
    before_ns : int64 array, shape (n,)
        Written.
    """
    for i in range(len(ts_ns)):
        before_ns[i] = ts_ns[i]
        if payload_bytes[i] > 0:
            before_ns[i] = last_ns[flow[i], direction[i]]
            last_ns[flow[i], direction[i]] = ts_ns[i]


class TapRtts:
    """The shortest RTTs from the tap to both ends of some flows, by their TCP timestamps, part by part.

    Parameters
    ----------
    flow_ids : array-like of int
    """

    def __init__(self, flow_ids: npt.ArrayLike) -> None:
        self._flow_ids = np.unique(np.asarray(flow_ids, np.int64))
        self._pairing = RttPairing("timestamps")
        self._shortest_ns = np.full((len(self._flow_ids), 2), np.iinfo(np.int64).max)
        self._samples = np.zeros((len(self._flow_ids), 2), np.int64)
        self._last_data_ns = np.full((len(self._flow_ids), 2), np.iinfo(np.int64).min)
        self._packets = 0

    def update(self, columns: dict[str, np.ndarray]) -> None:
        """Take the next packets: columns of the packets table."""
        wanted = np.isin(columns["flow_id"], self._flow_ids)
        if not wanted.all():
            columns = {name: column[wanted] for name, column in columns.items()}
        found = self._pairing.update(columns)
        flow = np.searchsorted(self._flow_ids, columns["flow_id"])
        before_ns = np.empty(len(flow), np.int64)
        _data_before(
            columns["ts_ns"],
            flow,
            columns["direction"],
            columns["payload_bytes"],
            self._last_data_ns,
            before_ns,
        )
        before_ns = before_ns[found["packet"] - self._packets]
        self._packets += len(flow)
        rtt_ns = found["rtt_ns"]
        certain = (before_ns > found["ts_ns"] - rtt_ns) | (rtt_ns <= AT_ONCE_NS)
        at = np.searchsorted(self._flow_ids, found["flow_id"][certain]), found["direction"][certain]
        np.minimum.at(self._shortest_ns, at, rtt_ns[certain])
        np.add.at(self._samples, at, 1)

    def rtts_ns(self, flow_ids: npt.ArrayLike) -> np.ndarray:
        """For each flow the RTTs to its responder and to its initiator in ns; NaN if they are not known."""
        wanted = np.asarray(flow_ids, np.int64)
        at = np.searchsorted(self._flow_ids, wanted)
        at[at == len(self._flow_ids)] = 0
        found = np.full((len(wanted), 2), np.nan)
        if len(self._flow_ids):
            known = (self._flow_ids[at] == wanted)[:, None] & (self._samples[at] >= LEAST_ECHOES)
            found[known] = self._shortest_ns[at][known]
        return found

    def shorten(self, flows: pd.DataFrame) -> pd.DataFrame:
        """A flows table whose ``handshake_rtt_ns`` and ``syn_rtt_ns`` are by whatever is shorter, or known."""
        echoed = self.rtts_ns(flows["flow_id"])
        path, beyond = (
            observed(flows[name]) if name in flows else np.full(len(flows), np.nan)
            for name in ("handshake_rtt_ns", "syn_rtt_ns")
        )
        beyond, before = np.fmin(beyond, echoed[:, 0]), np.fmin(path - beyond, echoed[:, 1])
        return flows.assign(handshake_rtt_ns=beyond + before, syn_rtt_ns=beyond)


def seen_by_sender(slots: pd.DataFrame, flows: pd.DataFrame | Capture) -> pd.DataFrame:
    """Slots as the senders of their flows see them, as far as it is known how far away these are.

    Parameters
    ----------
    slots : DataFrame
        From :func:`cctoolkit.compute_slots`, with ``attrs["slot_ms"]``.
    flows : Capture or DataFrame
        The first tap, or its flows table (:data:`cctoolkit.schema.FLOWS`): ``flow_id``, ``handshake_rtt_ns``,
        ``syn_rtt_ns``, ``payload_fwd``, ``payload_rev``. A capture also shows TCP timestamps, a table only handshakes.
        The side with more payload is the sender.

    Returns
    -------
    DataFrame
        The same, with ``bytes_in_flight`` and ``ecn_echoes`` as if every acknowledgement had passed the tap later, by
        the RTT between it and the sender; flows of which this is not known are left as they are. ``attrs`` get
        ``"path_rtt_ns"`` and ``"sender_rtt_ns"``: the RTT of the whole path, and its part between tap and sender, by
        ``flow_id``. A table that has these already is returned unchanged.

    Raises
    ------
    ParameterError
        The slot length is not known.
    SchemaError
        A table lacks a column, or a flow lacks a slot between others.

    See Also
    --------
    cctoolkit.flow_limits : what limits each flow
    cctoolkit.identify.classify_flows : does this for captures

    Notes
    -----
    Slots do not say how much of them is retransmitted. Where one begins with a retransmission, newer data do not count
    until the next slot.

    Examples
    --------
    >>> run = cct.example("cubic")
    >>> slots = cct.seen_by_sender(cct.compute_slots(run.ingress), run.ingress)
    >>> slots.attrs["path_rtt_ns"], slots.attrs["sender_rtt_ns"]
    ({0: 40149656}, {0: 9023})
    """
    numbers = (*_ARRIVALS, *_ACKNOWLEDGED)
    given = slots
    slots = consecutive(given, [name for name in numbers if name in getattr(given, "columns", ())])
    slots = slots.astype({name: given[name].dtype for name in ("flow_id", "slot")})
    if set(_NOTED) <= set(slots.attrs):
        return slots
    slot_ns = positive_ns(slots.attrs.get("slot_ms", np.nan), 1e6, "slots: attrs['slot_ms']")
    if isinstance(flows, Capture):
        echoes = TapRtts(slots["flow_id"].unique())
        echoes.update(flows.columns)
        flows = echoes.shorten(flows.flows)
    halves = ("handshake_rtt_ns", "syn_rtt_ns", "payload_fwd", "payload_rev")
    flows = arguments.table("flows", flows, ("flow_id", *halves), whole=("flow_id",), error=SchemaError)
    path, beyond, forward, reverse = (observed(flows[name]) for name in halves)
    known = flows["flow_id"].isin(slots["flow_id"].unique()).to_numpy() & (beyond <= path)
    ids = flows["flow_id"].to_numpy()[known].tolist()
    sender = np.where(reverse > forward, beyond, path - beyond)
    slots.attrs = given.attrs | {
        name: dict(zip(ids, rtt_ns[known].astype(np.int64).tolist(), strict=True))
        for name, rtt_ns in zip(_NOTED, (path, sender), strict=True)
    }
    if {*_ARRIVALS, "bytes_in_flight"} <= set(slots):
        _delay(slots, slot_ns)
    return slots


def _delay(slots: pd.DataFrame, slot_ns: int) -> None:
    """Count acknowledgements later, in place."""
    flow = slots["flow_id"].to_numpy()
    bounds = np.flatnonzero(np.diff(flow, prepend=flow[:1] - 1, append=flow[-1:] + 1))
    came, seq = (observed(slots[name]) for name in _ARRIVALS)
    seq = np.nan_to_num(seq, nan=-1.0).astype(np.int64)
    known = [name for name in _ACKNOWLEDGED if name in slots]
    flight, echoes = (
        observed(slots[name]) if name in known else np.full(len(slots), np.nan) for name in _ACKNOWLEDGED
    )
    moved = False
    for begin, end in itertools.pairwise(bounds):
        rtt_ns = slots.attrs["sender_rtt_ns"].get(int(flow[begin]), 0)
        later = (rtt_ns + slot_ns // 2) // slot_ns
        if later > 0:
            part = slice(begin, end)
            _delay_acknowledgements(came[part], seq[part], later, flight[part], echoes[part])
            moved = True
    for name, values in zip(_ACKNOWLEDGED, (flight, echoes), strict=True):
        if moved and name in known:
            unknown = np.isnan(values)
            slots[name] = pd.arrays.IntegerArray(np.where(unknown, 0, values).astype(np.int64), unknown)
