"""PI2 with one queue: De Schepper et al., "PI²: A linearized AQM for both classic and scalable TCP" (CoNEXT 2016).

Also its variants on the Tofino: Gombos et al., "Active queue management on the Tofino programmable switch: the
(Dual)PI2 case" (ICC 2022), as used by de Almeida et al., "Evaluating L4S framework performance with
programmable data plane hardware" (2024).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .base import (
    DROP_LATE,
    MARK,
    PASS,
    Aqm,
    delay_ns,
    random,
)

__all__ = ["IDENTIFIERS", "IntegerPi2", "Pi2", "TofinoPi2", "fixed_point", "pi_step"]

#: How to recognise scalable packets: by ECT(1) or CE (RFC 9331, section 5.1), by DSCP, or by any ECN codepoint.
IDENTIFIERS = ("ect1", "dscp", "any_ect")


def identification(name: str, identifier: str) -> dict[str, bool]:
    """Fields of the parameter record for :func:`is_scalable`."""
    if identifier not in IDENTIFIERS:
        raise ParameterError(f"{name}.identifier: {identifier!r} must be one of {', '.join(IDENTIFIERS)}")
    return {"by_dscp": identifier == "dscp", "by_any_ect": identifier == "any_ect"}


@part(error_model="numpy")
def pi_step(probability, delay, old_delay, target, alpha, beta):
    """The controller's new probability: adds alpha (delay - target) + beta (delay - old delay); delays in ns.

    Equation (2) of de Almeida et al. has both differences reversed, which would reduce the probability as the delay
    grows; these are the signs of the PI² paper and of RFC 9332.
    """
    step = alpha * (delay - target) + beta * (delay - old_delay)
    return min(max(probability + step * 1e-9, 0.0), 1.0)


@part(error_model="numpy")
def is_scalable(p, packet):
    """Whether a packet is scalable, according to the parameter `identifier`."""
    if p.by_dscp:
        return packet.aggregate > 0
    if p.by_any_ect:
        return packet.ecn > 0
    return packet.ecn % 2 == 1


@part(error_model="numpy")
def signal(p, probability, queue, packet):
    """Whether to signal: with `coupling` times the probability if scalable, else with its square (two draws)."""
    if is_scalable(p, packet):
        return random(queue) < p.coupling * probability
    return max(random(queue), random(queue)) < probability


class Pi2(Aqm):
    """PI2: a PI controller whose output is squared for classic traffic and multiplied for scalable traffic.

    It decides on arrival, based on the delay of the packet at the head when the controller last ran.

    Parameters
    ----------
    target_ms, update_ms : float
        Target delay and update interval of the controller, in ms.
    alpha, beta : float
        Gains of the controller in Hz.
    coupling : float
        Factor k for scalable packets.
    identifier : str
        How to recognise scalable packets, one of :data:`IDENTIFIERS`. ``"ect1"`` is that of RFC 9331; published Tofino
        programs look at the DSCP, or at any ECT. Packets of the simulator have no DSCP; a positive
        :attr:`~cctoolkit.Flow.aggregate` stands for the code point.

    Notes
    -----
    Target and gains are those of the PI² paper; the update interval of 15 ms is that of de Almeida et al. (32 ms in
    the paper). Probabilities go up to 1. The authors' Linux module (``sch_pi2.c``, 2015) stops when all scalable
    packets are marked, which is 25 percent for classic ones, and leaves the rest to tail drop; it does not signal
    while fewer than two packets wait, and computes the delay from the departure rate.

    See Also
    --------
    DualPi2 : with a queue for each kind of traffic
    TofinoPi2 : on a switch
    Pie : a PI controller for classic traffic

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.Pi2())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    15.6
    """

    name: ClassVar[str] = "pi2"

    target_ms: float = 20.0
    update_ms: float = 15.0
    alpha: float = 0.3125
    beta: float = 3.125
    coupling: float = 2.0
    identifier: str = "ect1"

    class State:
        probability = 0.0  # p', before squaring
        old_delay_ns = 0

    class Stats:
        classic = 0  # signals to classic packets
        scalable = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("Pi2.target_ms and Pi2.update_ms: must be positive")
        identification("Pi2", self.identifier)

    def derived(self) -> dict[str, Any]:
        """How to recognise scalable packets."""
        return identification("Pi2", self.identifier)

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if not signal(p, s.probability, queue, packet):
            return PASS
        if is_scalable(p, packet):
            stats.scalable += 1
        else:
            stats.classic += 1
        return MARK

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        delay = delay_ns(queue, now_ns)
        s.probability = pi_step(s.probability, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        queue.probability = s.probability
        return PASS


@part(error_model="numpy")
def send_update(p, s, now_ns):
    """Send the computed probability to the data plane."""
    if s.waiting == len(s.update_p):  # nothing has left for so long that the oldest update is superseded
        s.first = (s.first + 1) % len(s.update_p)
        s.waiting -= 1
    last = (s.first + s.waiting) % len(s.update_p)
    s.update_p[last] = s.computed
    s.update_at_ns[last] = now_ns + p.control_plane_ns
    s.waiting += 1


@part(error_model="numpy")
def receive_updates(s, now_ns):
    """Apply the newest probability that has arrived in the data plane."""
    while s.waiting > 0 and s.update_at_ns[s.first] <= now_ns:
        s.probability = s.update_p[s.first]
        s.first = (s.first + 1) % len(s.update_p)
        s.waiting -= 1


class TofinoPi2(Aqm):
    """PI2 on a Tofino: decides and drops at egress, with the controller in the control plane.

    The control plane reads the delay of the packet that left last; the new probability takes effect in the data plane
    `control_plane_ms` later.

    Parameters
    ----------
    target_ms, update_ms, alpha, beta, coupling, identifier
        As for :class:`Pi2`.
    control_plane_ms : float
        Time from reading the delay until the new probability takes effect, in ms. The papers give no number.

    Notes
    -----
    A packet dropped at egress has passed the shaper, so its time on the link is lost.

    See Also
    --------
    Pi2 : as in the PI² paper
    IntegerPi2 : with a data plane in integers

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.TofinoPi2(control_plane_ms=5))
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    17.7
    """

    name: ClassVar[str] = "pi2_tofino"

    target_ms: float = 20.0
    update_ms: float = 15.0
    alpha: float = 0.3125
    beta: float = 3.125
    coupling: float = 2.0
    identifier: str = "ect1"
    control_plane_ms: float = 1.0

    class State:
        computed = 0.0  # p' in the control plane
        old_delay_ns = 0
        probability = 0.0  # p' in the data plane
        waiting = 0  # updates on their way, the oldest at `first`
        first = 0

    class Stats:
        classic = 0  # signals to classic packets
        scalable = 0

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("TofinoPi2.target_ms and TofinoPi2.update_ms: must be positive")
        identification("TofinoPi2", self.identifier)

    def derived(self) -> dict[str, Any]:
        """How to recognise scalable packets."""
        return identification("TofinoPi2", self.identifier)

    def initial(self) -> dict[str, Any]:
        """Room for all updates that can be on their way at once."""
        room = int(self.control_plane_ms / self.update_ms) + 2
        return {"update_p": np.zeros(room), "update_at_ns": np.zeros(room, np.int64)}

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        receive_updates(s, now_ns)
        queue.probability = s.probability
        if not signal(p, s.probability, queue, packet):
            return PASS
        if is_scalable(p, packet):
            stats.scalable += 1
        else:
            stats.classic += 1
        return DROP_LATE if packet.ecn == 0 else MARK

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        delay = queue.last_delay_ns
        s.computed = pi_step(s.computed, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        send_update(p, s, now_ns)
        return PASS


# ---- in integers -----------------------------------------------------------------------------------------------------

ONE = 1 << 16  # probabilities of the data plane have 16 fractional bits


@part(error_model="numpy")
def fixed_point(probability, bits):
    """A probability (at most 1) as a fixed-point number with `bits` fractional bits, for the data plane."""
    return np.int64(min(probability, 1.0) * (1 << bits) + 0.5)


class IntegerPi2(TofinoPi2):
    """PI2 with a data plane in integers: packet for packet the P4 programs of ``hardware/programs/pi2``.

    The controller stays in floating point, since it runs in the control plane. Parameters are those of
    :class:`TofinoPi2`.

    Notes
    -----
    The data plane receives p' and k p' with 16 fractional bits. A random word of 32 bits makes two draws, which
    must both be below p' for a classic packet; a scalable packet uses the first, against k p'. Compared with
    :class:`TofinoPi2`, the probabilities are off by at most 2**-17 before squaring.

    The control plane reads the delay of the last packet even if that is dropped, since egress measures before it
    decides. And reading resets the delay, so a queue from which nothing has left until the next update counts as
    empty; otherwise p' would keep rising after traffic has ended.

    See Also
    --------
    TofinoPi2 : in floating point
    IntegerDualPi2 : with a queue for each kind of traffic

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.IntegerPi2())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    18.2
    """

    name: ClassVar[str] = "pi2_integer"

    class State(TofinoPi2.State):
        last_delay_ns = 0

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        receive_updates(s, now_ns)
        queue.probability = s.probability
        s.last_delay_ns = now_ns - packet.enqueued_ns

        draw = np.int64(random(queue) * (ONE * ONE))
        first, second = draw // ONE, draw % ONE
        if is_scalable(p, packet):
            if first >= fixed_point(p.coupling * s.probability, 16):
                return PASS
            stats.scalable += 1
        else:
            if max(first, second) >= fixed_point(s.probability, 16):
                return PASS
            stats.classic += 1
        return DROP_LATE if packet.ecn == 0 else MARK

    @staticmethod
    def on_update(p, s, stats, queue, packet, now_ns):
        delay = s.last_delay_ns
        s.last_delay_ns = 0
        s.computed = pi_step(s.computed, delay, s.old_delay_ns, p.target_ns, p.alpha, p.beta)
        s.old_delay_ns = delay
        send_update(p, s, now_ns)
        return PASS
