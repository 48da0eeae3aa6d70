"""FQ-CoDel: RFC 8290. A queue for each flow, deficit round robin with priority for new flows, CoDel in each."""

from __future__ import annotations

from typing import ClassVar

import numba

from .base import MARK, PASS
from .codel import CoDel

__all__ = ["FqCoDel"]

_codel = numba.njit(error_model="numpy")(CoDel.on_dequeue)


class FqCoDel(CoDel):
    """CoDel for the queues of the scheduler ``"fq"``, which this class brings with it (RFC 8290).

    What section 4 says of queues, quantum, lists of new and old flows, and the limit over all queues is the
    scheduler's: see ``quantum_bytes``, ``fq_queues`` and the buffer of
    :class:`~cctoolkit.scenario.Bottleneck`.

    Parameters
    ----------
    target_ms, interval_ms : float
        Sections 5.2.1 and 5.2.2.
    mtu_bytes : int
        With no more than this behind a packet in its own queue CoDel never drops. (Linux looks at the bytes of all
        queues together, so a flow with one packet at a time may have it dropped while others queue.)
    ce_threshold_ms : float
        Section 5.2.7: packets with ECT that have waited longer are all marked (for DCTCP); 0: none.

    Notes
    -----
    Each queue has RFC 8289's CoDel; Linux's fq_codel has the arithmetic of
    :class:`~cctoolkit.aqm.LinuxCoDel`, which may have ``scheduler="fq"`` too. Credits are charged for packets that
    leave, not for those that CoDel drops (section 4.2).
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
