"""CoDel (Controlled Delay): RFC 8289."""

from __future__ import annotations

import math
from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import MARK, PASS, Aqm

__all__ = ["CoDel"]


@part(error_model="numpy")
def control_law(interval_ns, t_ns, count):
    """RFC 8289, section 5.6: the time of the next drop."""
    return t_ns + int(interval_ns / math.sqrt(count))


class CoDel(Aqm):
    """Drops at the head once packets have waited longer than a target for a whole interval (RFC 8289).

    The functions are those of section 5 of the RFC, turned inside out: there, ``dequeue()`` fetches packets until
    one may leave; here, each packet at the head is one call, and ``s.after_drop`` holds what the RFC keeps in the
    program counter between two packets. Drop times are the same.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET (section 4.3) and INTERVAL (section 4.2), in ms.
    mtu_bytes : int
        CoDel never drops if the queue behind the packet holds no more than this (``maxpacket``, section 5.6, which
        should be the MTU of the interface).

    Notes
    -----
    A packet with ECT is marked instead and leaves, so the next packet is not fetched (as in Linux; the pseudocode
    of the RFC has no ECN).

    See Also
    --------
    LinuxCoDel : the arithmetic of the Linux kernel
    FqCoDel : CoDel in a queue per flow
    P4CoDel : CoDel on switches

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.CoDel(target_ms=5))
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    4.6
    """

    name: ClassVar[str] = "codel"

    target_ms: float = 5.0
    interval_ms: float = 100.0
    mtu_bytes: int = 1514

    class State:
        first_above_ns = 0  # when the delay will have exceeded the target for an interval; 0: it is below
        drop_next_ns = 0
        count = 0  # drops since the dropping state was entered
        last_count = 0
        dropping = False
        after_drop = 0  # 1: the last packet was dropped in the dropping state, 2: on entering it

    class Stats:
        entered = 0  # entries into the dropping state
        signals = 0  # packets dropped or marked

    def check(self) -> None:
        if self.target_ms <= 0:
            raise ParameterError("CoDel.target_ms: must be positive")
        if self.interval_ms <= self.target_ms:
            raise ParameterError("CoDel.interval_ms: must be greater than target_ms")

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        # dodequeue() of section 5.6: may this packet be dropped?
        ok_to_drop = False
        if now_ns - packet.enqueued_ns < p.target_ns or queue.bytes <= p.mtu_bytes:
            s.first_above_ns = 0
        elif s.first_above_ns == 0:
            s.first_above_ns = now_ns + p.interval_ns
        elif now_ns >= s.first_above_ns:
            ok_to_drop = True

        # dequeue() of section 5.5
        after_drop = s.after_drop
        s.after_drop = 0
        if after_drop == 2:  # the packet after the drop on entering leaves, whatever its delay
            return PASS
        if s.dropping:
            if not ok_to_drop:
                s.dropping = False
                return PASS
            if after_drop == 1:
                s.drop_next_ns = control_law(p.interval_ns, s.drop_next_ns, s.count)
            if now_ns >= s.drop_next_ns:
                s.count += 1
                stats.signals += 1
                if packet.ecn == 0:
                    s.after_drop = 1
                else:
                    s.drop_next_ns = control_law(p.interval_ns, s.drop_next_ns, s.count)
                return MARK
            return PASS
        if ok_to_drop:
            s.dropping = True
            # Section 5.5: resume the last drop rate if it is recent, else start anew.
            delta = s.count - s.last_count
            s.count = delta if delta > 1 and now_ns - s.drop_next_ns < 16 * p.interval_ns else 1
            s.drop_next_ns = control_law(p.interval_ns, now_ns, s.count)
            s.last_count = s.count
            s.after_drop = 2 if packet.ecn == 0 else 0
            stats.entered += 1
            stats.signals += 1
            return MARK
        return PASS
