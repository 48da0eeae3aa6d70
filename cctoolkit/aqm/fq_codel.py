"""FQ-CoDel: RFC 8290. One queue per flow with CoDel, and deficit round robin that favours new flows."""

from __future__ import annotations

from typing import ClassVar

from .._support.kernels import part
from .base import MARK, PASS
from .codel import CoDel

__all__ = ["FqCoDel"]

_codel = part(error_model="numpy")(CoDel.on_dequeue)


class FqCoDel(CoDel):
    """FQ-CoDel (RFC 8290): CoDel in each queue of the scheduler ``"fq"``, which this class selects.

    Queues, quantum, lists of new and old flows, and the limit over all queues (section 4) belong to the scheduler: see
    ``quantum_bytes``, ``fq_queues`` and the buffer of :class:`~cctoolkit.Bottleneck`.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET and INTERVAL (sections 5.2.2 and 5.2.1), in ms.
    mtu_bytes : int
        CoDel never drops if the packet's own queue holds no more than this behind it. (Linux counts the bytes of
        all queues together, so it may drop the only packet of a flow while others queue.)
    ce_threshold_ms : float
        Mark all packets with ECT that have waited longer than this (section 5.2.7, for DCTCP), in ms; 0: off.

    Notes
    -----
    Each queue runs CoDel as in RFC 8289; Linux's fq_codel has the arithmetic of :class:`~cctoolkit.aqm.LinuxCoDel`,
    which can be combined with ``scheduler="fq"`` too. Credits are charged for packets that leave, not for those
    that CoDel drops (section 4.2).

    See Also
    --------
    CoDel : the same in a single queue
    FqPie : another discipline per flow, in the Linux kernel
    Csfq : fair queueing without a queue per flow

    Examples
    --------
    >>> flows = [cct.Flow("cubic", rtt_ms=20), cct.Flow("udp", rate_mbps=8, rtt_ms=20)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.FqCoDel())
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.flows["goodput_mbps"].round(1).tolist()
    [4.6, 5.0]
    """

    name: ClassVar[str] = "fq_codel"
    scheduler: ClassVar[str | None] = "fq"

    ce_threshold_ms: float = 0.0

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _codel(p, s, stats, queue, packet, now_ns)
        if verdict == PASS and packet.ecn != 0 and now_ns - packet.enqueued_ns > p.ce_threshold_ns > 0:
            return MARK
        return verdict
