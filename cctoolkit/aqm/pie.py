"""PIE (Proportional Integral controller Enhanced): RFC 8033."""

from __future__ import annotations

from typing import ClassVar

from .._support.kernels import part
from ..errors import ParameterError
from .base import DROP, MARK, PASS, Aqm, random

__all__ = ["Pie", "tuning"]


@part(error_model="numpy")
def tuning(probability):
    """Factor for changes of the probability (RFC 8033, section 4.2): small probabilities change in small steps."""
    if probability < 0.000001:
        return 1 / 2048
    if probability < 0.00001:
        return 1 / 512
    if probability < 0.0001:
        return 1 / 128
    if probability < 0.001:
        return 1 / 32
    if probability < 0.01:
        return 1 / 8
    if probability < 0.1:
        return 1 / 2
    return 1.0


@part(error_model="numpy")
def current_delay_ns(queue):
    """``current_qdelay`` of the RFC."""
    return queue.last_delay_ns if queue.packets > 0 else 0


@part(error_model="numpy")
def has_room(queue, packet):
    """Whether the buffer has room for this packet."""
    return queue.packets < queue.limit_packets and queue.bytes + packet.bytes <= queue.limit_bytes


class Pie(Aqm):
    """Drops arriving packets with a probability that a PI controller sets from the queue's delay (RFC 8033).

    It follows section 4 and appendix A of the RFC, with the options of sections 5.1 (ECN), 5.4 and 5.5, which
    appendix B adds.

    Parameters
    ----------
    target_ms : float
        Target delay in ms (QDELAY_REF).
    update_ms : float
        Update interval in ms (T_UPDATE).
    alpha, beta : float
        Gains in Hz (section 4.2).
    burst_ms : float
        Burst allowance in ms: after calm, nothing is dropped for this long (MAX_BURST, section 4.4).
    ecn_limit : float
        Probability from which packets with ECT are dropped too (MAX_ECNTH, section 5.1).
    derandomise : bool
        Avoid drops too close together or too far apart (section 5.4).
    mean_packet_bytes : int
        Packet size in bytes; never drops if the queue holds no more than two packets of this size (section 4.1).

    Notes
    -----
    The delay comes from timestamps (section 4.3): that of the packet that left last, as in appendix A, but 0 for an
    empty queue, where the appendix keeps the last value. Two options are left out: the estimate of the departure
    rate (5.2), and switching PIE on and off by the length of the queue (5.3). Where the two appendices differ, it
    follows appendix A: the probability decays after two delays of 0 (B: two below half the target), and the sum of
    section 5.4 is frozen during the burst allowance (B: it is not).

    See Also
    --------
    LinuxPie : the rules of the Linux kernel
    FqPie : PIE per flow, in the Linux kernel
    Pi2 : for classic and scalable traffic

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.Pie(target_ms=10))
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    17.6
    """

    name: ClassVar[str] = "pie"

    target_ms: float = 15.0
    update_ms: float = 15.0
    alpha: float = 0.125
    beta: float = 1.25
    burst_ms: float = 150.0
    ecn_limit: float = 0.1
    derandomise: bool = True
    mean_packet_bytes: int = 1514

    class State:
        probability = 0.0
        accumulated = 0.0  # sum of probabilities since the last drop
        old_delay_ns = 0
        burst_ns = 0  # time left in which nothing is dropped

    class Stats:
        signals = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("Pie.target_ms and Pie.update_ms: must be positive")

    def initial(self) -> dict[str, int]:
        """The burst allowance, available from the start (section 4.4)."""
        return {"burst_ns": round(self.burst_ms * 1e6)}

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if not has_room(queue, packet):  # the buffer will drop it, which counts as a drop (appendix B)
            s.accumulated = 0.0
            return PASS
        # Section 4.4
        calm = max(current_delay_ns(queue), s.old_delay_ns) < p.target_ns / 2
        if s.probability == 0 and calm:
            s.burst_ns = p.burst_ns
        if s.burst_ns > 0:
            return PASS
        # Section 4.1: no random drop while the queue is, or was, short
        if s.old_delay_ns < p.target_ns / 2 and s.probability < 0.2:
            return PASS
        if queue.bytes <= 2 * p.mean_packet_bytes:
            return PASS
        if p.derandomise:  # section 5.4
            if s.probability == 0:
                s.accumulated = 0.0
            s.accumulated += s.probability
            if s.accumulated < 0.85:
                return PASS
            if s.accumulated < 8.5 and random(queue) >= s.probability:
                return PASS
        elif random(queue) >= s.probability:
            return PASS
        s.accumulated = 0.0
        stats.signals += 1
        return MARK if s.probability < p.ecn_limit else DROP  # section 5.1

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        # Section 4.2
        delay = current_delay_ns(queue)
        step = p.alpha * (delay - p.target_ns) * 1e-9 + p.beta * (delay - s.old_delay_ns) * 1e-9
        step *= tuning(s.probability)
        if s.probability >= 0.1:
            step = min(step, 0.02)  # section 5.5
        s.probability += step
        if delay == 0 and s.old_delay_ns == 0:
            s.probability *= 0.98  # no congestion any more
        s.probability = min(max(s.probability, 0.0), 1.0)
        queue.probability = s.probability
        s.old_delay_ns = delay
        s.burst_ns = max(0, s.burst_ns - p.update_ns)  # section 4.4
        return PASS
