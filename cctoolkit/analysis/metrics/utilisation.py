"""Link utilisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..._support.arguments import positive_ns
from ..._support.kernels import kernel
from ..._support.state import grown
from ...capture.model import columns_of
from ...errors import ParameterError

__all__ = ["LinkUtilisation", "link_utilisation"]


@kernel
def _sum(ts, wire, direction, only, start_ns, bin_ns, overhead, sums):
    """Add the bytes of packets to their bins.

    Parameters
    ----------
    ts, wire, direction : arrays
        Columns of the packets table (:data:`cctoolkit.schema.PACKETS`).
    only : int
        Direction that counts; -1: both do.
    start_ns, bin_ns : int
        Start of the first bin and width of all.
    overhead : int
        Bytes to add to each packet.
    sums : int64 array, shape (bins,)
        Updated.
    """
    at = 0
    bin_from = np.int64(1)  # an empty range of time: the first packet computes its bin
    bin_to = np.int64(0)
    for i in range(len(ts)):
        if only >= 0 and direction[i] != only:
            continue
        # a packet stamped before the first one counts in the first bin; 292 years before, the difference would wrap
        t = max(ts[i], start_ns) - start_ns
        if t < bin_from or t >= bin_to:
            at = max(t // bin_ns, 0)
            bin_from = at * bin_ns
            bin_to = bin_from + bin_ns
        sums[at] += wire[i] + overhead


class LinkUtilisation:
    """:func:`~cctoolkit.link_utilisation` for packets in batches; the result does not depend on the batches.

    Parameters
    ----------
    rate_mbps, bin_s, direction, overhead_bytes, max_rows
        As for :func:`~cctoolkit.link_utilisation`.

    See Also
    --------
    cctoolkit.link_utilisation : the same in one call
    cctoolkit.iter_capture : a capture in batches

    Examples
    --------
    >>> packets = cct.example("cubic-bbr").egress.packets
    >>> utilisation = cct.metrics.LinkUtilisation(rate_mbps=8, direction=0)
    >>> for batch in packets[:5000], packets[5000:]:
    ...     utilisation.update(batch)
    >>> utilisation.result().equals(cct.link_utilisation(packets, rate_mbps=8, direction=0))
    True
    """

    def __init__(
        self,
        rate_mbps: float,
        bin_s: float = 1.0,
        direction: int | None = None,
        overhead_bytes: int = 0,
        max_rows: int = 10_000_000,
    ) -> None:
        if not 0 < rate_mbps < float("inf"):
            raise ParameterError(f"rate_mbps: {rate_mbps!r} must be positive and finite")
        if direction not in (None, 0, 1):
            raise ParameterError(f"direction: {direction!r} must be 0, 1 or None")
        self._rate_mbps = rate_mbps
        self._bin_ns = positive_ns(bin_s, 1e9, "bin_s")
        self._direction = -1 if direction is None else direction
        self._overhead = overhead_bytes
        self._max_rows = max_rows
        self._start_ns: int | None = None
        self._last_ns = 0
        self._sums = np.zeros(0, np.int64)

    def update(self, packets: Any) -> None:
        """Take the next packets: a Capture, a packets DataFrame or a dict of arrays."""
        columns = columns_of(packets)
        ts = columns["ts_ns"]
        if not len(ts):
            return
        if self._start_ns is None:
            self._start_ns = self._last_ns = int(ts[0])
        self._last_ns = max(self._last_ns, int(ts.max()))
        bins = (self._last_ns - self._start_ns) // self._bin_ns + 1
        if bins > self._max_rows:
            raise ParameterError(
                f"bins of {self._bin_ns / 1e9:g} s make {bins:,} rows, more than max_rows = {self._max_rows:,}: "
                "choose wider bins"
            )
        self._sums = grown(self._sums, bins)
        wire, direction = columns["wire_bytes"], columns["direction"]
        _sum(ts, wire, direction, self._direction, self._start_ns, self._bin_ns, self._overhead, self._sums)

    def result(self) -> pd.DataFrame:
        """The table for all packets so far; see :func:`~cctoolkit.link_utilisation`."""
        bins = 0 if self._start_ns is None else (self._last_ns - self._start_ns) // self._bin_ns + 1
        sums = self._sums[:bins].copy()
        mbps = sums * (8e3 / self._bin_ns)
        return pd.DataFrame(
            {
                "bin": np.arange(bins),
                "start_s": np.arange(bins) * (self._bin_ns / 1e9),
                "bytes": sums,
                "throughput_mbps": mbps,
                "utilisation": mbps / self._rate_mbps,
            }
        )


def link_utilisation(
    cap: Any,
    rate_mbps: float,
    bin_s: float = 1.0,
    direction: int | None = None,
    overhead_bytes: int = 0,
    max_rows: int = 10_000_000,
) -> pd.DataFrame:
    """The share of a link's rate that a capture used, in each bin of time.

    Parameters
    ----------
    cap : Capture, packets DataFrame or dict of arrays
    rate_mbps : float
        Rate of the link, in one direction.
    bin_s : float
        Bin width. Bins are counted from the first packet.
    direction : int, optional
        Only packets from (0) or to (1) the initiators of their flows. By default all packets of the capture, which is
        right for a tap that sees one direction of the link.
    overhead_bytes : int
        Bytes per packet that a capture does not show: 24 for the preamble, checksum and inter-packet gap of Ethernet.
    max_rows : int
        Maximum number of rows of the table.

    Returns
    -------
    DataFrame
        ``bin``, ``start_s`` (of the bin, since the first packet), ``bytes``, ``throughput_mbps``, ``utilisation`` (1
        is the full rate). The last bin counts as a full one, although the capture may end in it.

    Raises
    ------
    ParameterError
        An argument is invalid, or there are more bins than `max_rows`.

    See Also
    --------
    cctoolkit.throughput : flow by flow
    cctoolkit.jain_index : fairness, to report beside it
    cctoolkit.analysis.metrics.LinkUtilisation : the same for batches of packets

    Notes
    -----
    A packet counts in the bin of its timestamp, although the link may have sent a part of it in the bin before. So a
    full link exceeds 1 in some bins, by one packet at most if the timestamps are exact: choose bins that hold many
    packets.

    Report it together with fairness: rate caps for each flow make sharing fair but leave the link idle.

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").egress
    >>> table = cct.link_utilisation(cap, rate_mbps=8, direction=0)
    >>> float(table.utilisation[1:-1].mean().round(2))
    1.0
    """
    utilisation = LinkUtilisation(rate_mbps, bin_s, direction, overhead_bytes, max_rows)
    utilisation.update(cap)
    return utilisation.result()
