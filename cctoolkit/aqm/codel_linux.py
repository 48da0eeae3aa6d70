"""CoDel as in Linux (include/net/codel_impl.h, since 3.5; as of 6.12): RFC 8289 with a square root by one step of
Newton's method."""

from __future__ import annotations

from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import MARK, PASS, Aqm

__all__ = ["LinuxCoDel"]

#: 1/sqrt(1) in 16 bits.
_ONE = 65535


@part(error_model="numpy")
def newton_step(inverse_root, count):
    """A better 1/sqrt(count) from an approximate one, in units of 2**-16: x (3 - count x²) / 2."""
    return ((((3 << 32) - count * inverse_root * inverse_root) >> 2) * inverse_root) >> 31


@part(error_model="numpy")
def control_law(interval_ns, t_ns, inverse_root):
    """The time of the next drop."""
    return t_ns + ((interval_ns * inverse_root) >> 16)


class LinuxCoDel(Aqm):
    """CoDel with the arithmetic of the Linux kernel.

    It differs from RFC 8289 (:class:`~cctoolkit.aqm.CoDel`) in three ways. The reciprocal square root has 16 bits
    and is refined by one step of Newton's method each time `count` changes: counting up, it follows closely (but is
    0.5 instead of 0.707 at the second drop); after a jump down on re-entry it is far too small for several drops,
    which then come faster than the control law says. The first drop needs a delay above target for more than an
    interval, not for at least one. And the interval for a `count` of 1 is short by 1/65536.

    Parameters
    ----------
    target_ms, interval_ms : float
        ``target`` and ``interval`` of ``tc codel``, in ms.
    mtu_bytes : int
        Never drops if the queue holds no more than this.

    Notes
    -----
    Time is in nanoseconds, while Linux counts units of 1024 ns. With a clock in nanoseconds, the kernel's C code
    makes the same decision for every packet (1.7 million packets, 27 000 signals); with its own clock, the number
    of signals differs by 0.3 percent. Not modelled: ``ce_threshold`` (see :class:`~cctoolkit.aqm.FqCoDel`).

    See Also
    --------
    CoDel : as in RFC 8289
    LinuxPie : another discipline of the kernel

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.LinuxCoDel())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    4.6
    """

    name: ClassVar[str] = "codel_linux"

    target_ms: float = 5.0
    interval_ms: float = 100.0
    mtu_bytes: int = 1514

    class State:
        first_above_ns = 0  # when the delay will have exceeded the target for an interval; 0: it is below
        drop_next_ns = 0
        count = 0  # drops since the dropping state was entered
        last_count = 0  # count at the last entry
        inverse_root = 0  # 65536 / sqrt(count), nearly
        dropping = False
        after_drop = 0  # 1: the last packet was dropped in the dropping state, 2: on entering it

    class Stats:
        entered = 0  # entries into the dropping state
        signals = 0  # packets dropped or marked

    def check(self) -> None:
        if self.target_ms <= 0:
            raise ParameterError("LinuxCoDel.target_ms: must be positive")
        if self.interval_ms <= self.target_ms:
            raise ParameterError("LinuxCoDel.interval_ms: must be greater than target_ms")

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        # Should this packet be dropped?
        above = False
        if now_ns - packet.enqueued_ns < p.target_ns or queue.bytes <= p.mtu_bytes:
            s.first_above_ns = 0
        elif s.first_above_ns == 0:
            s.first_above_ns = now_ns + p.interval_ns
        elif now_ns > s.first_above_ns:
            above = True

        after_drop = s.after_drop
        s.after_drop = 0
        if after_drop == 2:  # the packet after the drop on entering leaves, whatever its delay
            return PASS
        if s.dropping:
            if not above:
                s.dropping = False
                return PASS
            if after_drop == 1:
                s.drop_next_ns = control_law(p.interval_ns, s.drop_next_ns, s.inverse_root)
            if now_ns < s.drop_next_ns:
                return PASS
            s.count += 1
            s.inverse_root = newton_step(s.inverse_root, s.count)
            stats.signals += 1
            if packet.ecn == 0:
                s.after_drop = 1
            else:  # marked, so it leaves and no other packet is fetched
                s.drop_next_ns = control_law(p.interval_ns, s.drop_next_ns, s.inverse_root)
            return MARK
        if not above:
            return PASS
        s.dropping = True
        delta = s.count - s.last_count
        if delta > 1 and now_ns - s.drop_next_ns < 16 * p.interval_ns:
            s.count = delta
            s.inverse_root = newton_step(s.inverse_root, s.count)  # one step, from a much larger count
        else:
            s.count = 1
            s.inverse_root = _ONE
        s.last_count = s.count
        s.drop_next_ns = control_law(p.interval_ns, now_ns, s.inverse_root)
        s.after_drop = 2 if packet.ecn == 0 else 0
        stats.entered += 1
        stats.signals += 1
        return MARK
