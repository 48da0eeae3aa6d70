"""Flow completion times and their distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..._support.arguments import floats
from ..._support.kernels import kernel
from ..._support.state import grown
from ...capture.model import columns_of
from ...capture.protocols import ACK, FIN, RST, SYN
from ..sequence import ahead, is_foreign

__all__ = ["FlowCompletion", "cdf", "flow_completion_times"]

_STATE = np.dtype(
    [
        ("first_ts", np.int64),  # + 1; 0: no packet yet
        ("end_ts", np.int64),  # when the last new byte was sent, then when it was acknowledged
        ("bytes", np.int64),  # from the first byte (as the SYN says, or as seen) to the highest
        ("end", np.uint32),  # highest sequence number of data
        ("ack", np.uint32),  # highest acknowledgement of them
        ("seen", np.uint32),
    ]
)
_SYN, _BASE, _ACK, _DONE, _FIN = 1, 2, 4, 8, 16


@kernel
def _follow(ts, flow_id, direction, seq, ack, tcp_flags, payload, states):
    """Follow the data of each direction to its last byte.

    Parameters
    ----------
    ts, flow_id, direction, seq, ack, tcp_flags, payload : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`).
    states : array of ``_STATE``
        By ``2 * flow_id + direction``; updated.
    """
    for i in range(np.uint64(len(ts))):
        flags = np.int64(tcp_flags[i])
        if flags == 0:
            continue
        way = np.uint64(flow_id[i]) << np.uint64(1) | np.uint64(direction[i])
        state = states[way]
        if state.first_ts == 0:
            state.first_ts = ts[i] + 1
        if flags & (SYN | ACK) == SYN:
            state.seen |= _SYN
        p = np.int64(payload[i])
        begin = np.int64(seq[i]) + ((flags >> 1) & 1)
        end = begin + p
        if (p != 0 or flags & SYN) and not state.seen & _BASE:
            state.seen |= _BASE
            state.end = begin & 0xFFFFFFFF
        if p != 0:
            grew = ahead(end, np.int64(state.end))
            if grew > 0:
                state.bytes += grew
                state.end = end & 0xFFFFFFFF
                state.end_ts = ts[i]
                state.seen &= ~_DONE
                if state.seen & _ACK and ahead(np.int64(state.ack), end) >= 0:
                    state.seen |= _DONE  # captured after its ACK
        if flags & FIN and (not state.seen & _BASE or ahead(end, np.int64(state.end)) >= 0):
            state.seen |= _FIN
        if flags & (ACK | RST) == ACK:
            other = states[way ^ np.uint64(1)]
            a = np.int64(ack[i])
            if other.seen & _BASE and is_foreign(a, np.int64(other.end)):
                continue
            if not other.seen & _ACK or ahead(a, np.int64(other.ack)) > 0:
                other.seen |= _ACK
                other.ack = a
                if other.bytes != 0 and not other.seen & _DONE and ahead(a, np.int64(other.end)) >= 0:
                    other.seen |= _DONE
                    other.end_ts = ts[i]


class FlowCompletion:
    """:func:`~cctoolkit.flow_completion_times` for packets in batches; the result does not depend on the batches.

    See Also
    --------
    cctoolkit.flow_completion_times : the same in one call
    cctoolkit.iter_capture : a capture in batches

    Examples
    --------
    >>> packets = cct.example("cubic-bbr").ingress.packets
    >>> completion = cct.metrics.FlowCompletion()
    >>> for batch in packets[:5000], packets[5000:]:
    ...     completion.update(batch)
    >>> completion.result().equals(cct.flow_completion_times(packets))
    True
    """

    def __init__(self) -> None:
        self._states = np.zeros(0, _STATE)

    def update(self, packets: Any) -> None:
        """Take the next packets: a Capture, a packets DataFrame or a dict of arrays."""
        columns = columns_of(packets)
        ts, flow_id, direction, seq, ack, tcp_flags, payload = (
            columns[name]
            for name in ("ts_ns", "flow_id", "direction", "seq", "ack", "tcp_flags", "payload_bytes")
        )
        if len(ts):
            self._states = grown(self._states, 2 * (int(flow_id.max()) + 1))
            _follow(ts, flow_id, direction, seq, ack, tcp_flags, payload, self._states)

    def result(self) -> pd.DataFrame:
        """The table for all packets so far; see :func:`~cctoolkit.flow_completion_times`."""
        both = self._states.reshape(-1, 2)
        flows = np.flatnonzero((both["bytes"] > 0).any(axis=1))
        both = both[flows]
        direction = (both["bytes"][:, 1] > both["bytes"][:, 0]).astype(np.int8)
        rows = np.arange(len(flows))
        data, other = both[rows, direction], both[rows, 1 - direction]
        first = np.where(both["first_ts"] == 0, np.iinfo(np.int64).max, both["first_ts"] - 1).min(axis=1)
        acknowledged = (data["seen"] & _DONE) != 0
        seen_back = other["first_ts"] != 0
        started = ((data["seen"] | other["seen"]) & _SYN) != 0
        complete = started & ((data["seen"] & _FIN) != 0) & (acknowledged | ~seen_back)
        return pd.DataFrame(
            {
                "flow_id": flows.astype(np.uint32),
                "direction": direction,
                "start_ns": first,
                "end_ns": data["end_ts"],
                "transfer_bytes": data["bytes"],
                "complete": complete,
                "fct_s": np.where(
                    complete & (data["end_ts"] >= first), (data["end_ts"] - first) / 1e9, np.nan
                ),
            }
        )


def flow_completion_times(cap: Any) -> pd.DataFrame:
    """Time from each TCP flow's first packet until the last byte of its data was acknowledged.

    Parameters
    ----------
    cap : Capture, packets DataFrame or dict of arrays

    Returns
    -------
    DataFrame
        One row per TCP flow with data, in order of flow number:

        - ``flow_id``, ``direction``: the direction with more data, which is the one described,
        - ``start_ns``: time of the flow's first packet,
        - ``end_ns``: time of the ACK of the last byte; if no ACK covers it, the time it was first sent,
        - ``transfer_bytes``: from the first byte (after the SYN; without a SYN, the first seen) to the last, by
          sequence numbers, so retransmissions do not count and gaps do,
        - ``complete``: the initiator's SYN and the sender's FIN were captured, and all data were acknowledged (not
          required if the capture shows one direction only),
        - ``fct_s``: ``end_ns - start_ns`` in seconds; NaN unless complete, or if the clock was set back to before the
          start.

    See Also
    --------
    cctoolkit.analysis.metrics.FlowCompletion : the same for batches of packets
    cctoolkit.cdf : the distribution of the times
    cctoolkit.plot.completion_cdf : a figure of it

    Notes
    -----
    A transfer ends with its last byte, not with the connection: an idle wait before the FIN does not count. A
    connection that ends with a RST is not complete. Transfers of 4 GiB and more are counted correctly.

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").ingress
    >>> table = cct.flow_completion_times(cap)
    >>> table[["flow_id", "transfer_bytes", "complete", "fct_s"]]
       flow_id  transfer_bytes  complete      fct_s
    0        0         3702784      True  12.283402
    1        1         7897088      True  10.150615
    """
    completion = FlowCompletion()
    completion.update(cap)
    return completion.result()


def cdf(values: Any) -> pd.DataFrame:
    """Empirical cumulative distribution.

    Parameters
    ----------
    values : array-like of numbers
        Missing values (NaN, null) are left out.

    Returns
    -------
    DataFrame
        ``value``: the distinct values, ascending; ``share``: the share of all values that are at most that, in (0, 1].

    See Also
    --------
    cctoolkit.flow_completion_times : times to look at
    cctoolkit.plot.completion_cdf : a figure

    Examples
    --------
    >>> cct.cdf([3, 1, 1, 2])
       value  share
    0      1   0.50
    1      2   0.75
    2      3   1.00
    """
    series = pd.Series(np.asarray(values).ravel() if not isinstance(values, pd.Series) else values)
    if not pd.api.types.is_numeric_dtype(series.dtype):
        series = pd.Series(floats("values", series.to_numpy()))
    x, counts = np.unique(series.dropna().to_numpy(), return_counts=True)
    return pd.DataFrame({"value": x, "share": np.cumsum(counts) / max(counts.sum(), 1)})
