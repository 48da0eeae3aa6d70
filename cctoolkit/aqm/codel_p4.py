"""CoDel on programmable packet processors: Kundel et al., "P4-CoDel: Experiences on programmable data plane
hardware" (2021).

Three variants: the paper's Listing 1, its version for pipelines (PISA, Intel Tofino; Listing 2 and Figure 4), and the
one for network processors (NPU, section III-B).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from .._support.kernels import part
from ..errors import ParameterError
from .base import DROP_LATE, MARK, PASS, Aqm, delay_ns

__all__ = ["NpuCoDel", "P4CoDel", "PisaCoDel", "math_unit"]

_EXACT = 16  # counts with their own entry in the NPU's table
_MASK = 0xFFFFFFFF


@part(error_model="numpy")
def bit_length(x):
    """Position of the leading one, from 1; 0 for 0 (in P4: a longest-prefix match)."""
    n = 0
    while x > 0:
        x >>= 1
        n += 1
    return n


@part(error_model="numpy")
def drop_gap(p, count):
    """interval / sqrt(count), exactly or by the NPU's tables."""
    if not p.by_table:
        return int(p.interval_ns / math.sqrt(count))
    if count <= _EXACT:
        return p.exact_ns[count]
    return p.class_ns[bit_length(count)]


@part(error_model="numpy")
def listing_1(p, s, stats, violated, now_ns):
    """Listing 1 of the paper, from "if_1" to "if_4"; `violated` if the delay is not below the target."""
    if not violated:  # if_1
        s.dropping = False
        return PASS
    if not s.dropping:  # if_2
        s.dropping = True
        before = s.count
        if s.count - s.last_count > 1 and now_ns - s.drop_next_ns < 16 * p.interval_ns:  # if_3
            s.count -= s.last_count
        else:
            s.count = 1
        s.drop_next_ns = now_ns + drop_gap(p, s.count)
        s.last_count = before
        stats.entered += 1
        return PASS
    if s.drop_next_ns <= now_ns:  # if_4
        s.count += 1
        s.drop_next_ns = now_ns + drop_gap(p, s.count)
        stats.signals += 1
        return MARK
    return PASS


class P4CoDel(Aqm):
    """P4-CoDel, Listing 1 of the paper, applied to the delay of the packet that leaves.

    It differs from RFC 8289 (:class:`~cctoolkit.aqm.CoDel`): the dropping state starts an interval before the first
    drop, not with it, so the second drop follows after interval / sqrt(2) instead of a whole interval; the next
    drop is due at *now* + interval / sqrt(count), so delays of drops accumulate; and ``last_count`` is the count
    before the entry, not after it.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET and INTERVAL, in ms.
    mtu_bytes : int
        Never drops if the queue holds fewer bytes than this (IFACE_MTU).

    Notes
    -----
    A packet with ECT is marked instead; the paper only drops.

    See Also
    --------
    CoDel : as in RFC 8289
    PisaCoDel : for pipelines such as the Tofino
    NpuCoDel : for network processors

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.P4CoDel())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    4.6
    """

    name: ClassVar[str] = "codel_p4"

    target_ms: float = 5.0
    interval_ms: float = 100.0
    mtu_bytes: int = 1514

    class State:
        dropping = False
        count = 0
        last_count = 0
        drop_next_ns = 0

    class Stats:
        entered = 0  # entries into the dropping state
        signals = 0  # packets dropped or marked

    def check(self) -> None:
        name = type(self).__name__
        if self.target_ms <= 0:
            raise ParameterError(f"{name}.target_ms: must be positive")
        if self.interval_ms <= self.target_ms:
            raise ParameterError(f"{name}.interval_ms: must be greater than target_ms")

    def derived(self) -> dict[str, Any]:
        """The tables of the NPU, and whether they are used."""
        interval = self.interval_ms * 1e6
        exact = [0] + [int(interval / math.sqrt(n)) for n in range(1, _EXACT + 1)]
        # indexed by the position of the leading one
        classes = [0] + [int(interval / math.sqrt(2.0**n)) for n in range(63)]
        return {"by_table": False, "exact_ns": np.array(exact), "class_ns": np.array(classes)}

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        violated = now_ns - packet.enqueued_ns >= p.target_ns and queue.bytes >= p.mtu_bytes
        return listing_1(p, s, stats, violated, now_ns)


class NpuCoDel(Aqm):
    """P4-CoDel for network processors: before the queue, with a table for the square root (section III-B).

    Nothing can be programmed after the queue there, so the arriving packet is dropped, based on the current delay
    of the queue (how long its head has waited) instead of its own. The length of the queue is known only in
    packets. The square root comes from a table for `count` 1 to 16, and beyond that from the number of leading
    zeros; a class of counts uses the root of the smallest, as in the published tables, so gaps are up to sqrt(2)
    times too long.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET and INTERVAL, in ms.

    Notes
    -----
    Not modelled: processors of the NPU that change the state at the same time (section III-B). If both packets of a
    pair released by one acknowledgement see the same state, both are dropped and losses double; the paper's
    measurements (table I) lie between the two cases, except with one flow. A packet with ECT is marked instead; the
    paper only drops.

    See Also
    --------
    P4CoDel : Listing 1 of the paper
    PisaCoDel : for pipelines such as the Tofino

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.NpuCoDel())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    5.4
    """

    name: ClassVar[str] = "codel_npu"

    target_ms: float = 5.0
    interval_ms: float = 100.0

    class State(P4CoDel.State):
        pass

    class Stats(P4CoDel.Stats):
        pass

    def check(self) -> None:
        P4CoDel.check(self)  # type: ignore[arg-type]  # same parameters

    def derived(self) -> dict[str, Any]:
        """The tables of :meth:`P4CoDel.derived`, switched on."""
        return P4CoDel.derived(self) | {"by_table": True}  # type: ignore[arg-type]  # same parameters

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        violated = queue.packets > 0 and delay_ns(queue, now_ns) >= p.target_ns
        return listing_1(p, s, stats, violated, now_ns)


def math_unit(interval_ns: int) -> tuple[np.ndarray, int]:
    """Table and scale with which Tofino's math unit computes interval / sqrt(count).

    The math unit finds m (4 to 15) and k with count = m/8 · 4**k, truncating the bits below m, and returns
    ``table[m] * 2**scale / 2**k``; entries have 8 bits, and those below m = 4 are never used.
    """
    scale = max(0, math.ceil(math.log2(interval_ns * math.sqrt(2) / 255.5)))
    return np.array([0] * 4 + [round(interval_ns / math.sqrt(m / 8) / 2**scale) for m in range(4, 16)]), scale


@part(error_model="numpy")
def math_unit_gap(p, count):
    """interval / sqrt(count) by the math unit, off by -0.7 % to +12.5 %."""
    m, k = count << 3, 0
    while m > 15:
        m >>= 2
        k += 1
    return (p.table[m] << p.scale) >> k


@part(error_model="numpy")
def due(p, now_ns, drop_next_ns):
    """Whether drop_next <= now, in the timestamps of the chip."""
    if not p.wrap:
        return drop_next_ns <= now_ns
    if p.signed:
        return ((now_ns - drop_next_ns) & _MASK) < 0x80000000
    return drop_next_ns <= (now_ns & _MASK)


class PisaCoDel(Aqm):
    """P4-CoDel for pipelines (Listing 2, Figure 4): one stateful ALU per stage, one access per packet, no way back.

    The rule ``if_3`` (resume the last drop rate) does not fit and is left out, and 1/sqrt comes from the math unit
    (:func:`math_unit`), off by -0.7 to +12.5 percent. The rest is Listing 1.

    Parameters
    ----------
    target_ms, interval_ms : float
        TARGET and INTERVAL, in ms.
    mtu_bytes : int
        Never drops if the queue holds fewer bytes than this; 0 for the published Tofino program, which does not check.
    from_now : bool
        The next drop is due at *now* + interval / sqrt(count), as in the paper; if false, that long after the last
        due time, as in the published Tofino program and in ``hardware/programs/codel``: Tofino's stateful ALU can
        do nothing else, because *now* and the math unit's result would be the same operand.
    count_first : bool
        Increment the count before taking its root, as in the paper; if false, after. The latter is what the published
        Tofino program does, since the math unit reads the register before the update, whatever the order of lines.
        (``hardware/programs/codel`` stores the count of the next drop instead.)
    wrap : bool
        Timestamps have 32 bits, as in a stateful ALU, and wrap every 4.29 s.
    signed : bool
        With `wrap`: compare signed differences. This is correct while packets that violate the target are less than
        2.1 s apart and, without `from_now`, drops are less than 2.1 s late. If false, compare unsigned, as the
        published Tofino program does: if the next drop is due after the wrap, all packets before it are dropped
        until the target is met.
    clock_ms : float
        With `wrap`: initial clock of the chip in ms.

    Notes
    -----
    A packet with ECT is marked instead; the paper only drops. On the chip the second ALU runs for every packet,
    here only while the target is violated; the difference is invisible, since a new violation resets it. A packet
    dropped here has passed the shaper, so its time on the link is lost.

    Table I of the paper: 0.16, 0.36 and 0.44 percent of the packets of 1, 2 and 3 flows were lost in 4 s. TCP needs
    fewer losses at such delays (1.5 / W² is 0.07 percent for one flow), and the variant described in the paper
    loses fewer here: 0.07, 0.18 and 0.29 (base RTT 0.3 ms). The published program (``mtu_bytes=0, from_now=False,
    wrap=True, signed=False``) loses 0.19, 0.35 and 0.47 (mean over all `clock_ms`), and with ``count_first=False``
    too, 0.17, 0.35 and 0.42: its clock wraps once in almost every run of 4 s, and the packets waiting at that time
    are lost.

    See Also
    --------
    P4CoDel : Listing 1 of the paper
    NpuCoDel : for network processors
    CoDel : as in RFC 8289

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=cct.aqm.PisaCoDel())
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("cubic", rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    4.7
    """

    name: ClassVar[str] = "codel_pisa"

    target_ms: float = 5.0
    interval_ms: float = 100.0
    mtu_bytes: int = 1514
    from_now: bool = True
    count_first: bool = True
    wrap: bool = False
    signed: bool = True
    clock_ms: float = 0.0

    class State:
        dropping = False  # first stateful ALU
        count = 0  # second
        drop_next_ns = 0

    class Stats:
        entered = 0  # entries into the dropping state
        signals = 0  # packets dropped or marked

    def check(self) -> None:
        if self.target_ms <= 0:
            raise ParameterError("PisaCoDel.target_ms: must be positive")
        if not self.target_ms < self.interval_ms < 2000:
            raise ParameterError("PisaCoDel.interval_ms: must be greater than target_ms and less than 2000")

    def derived(self) -> dict[str, Any]:
        """Table and scale of the math unit."""
        table, scale = math_unit(round(self.interval_ms * 1e6))
        return {"table": table, "scale": scale}

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        # f_1
        violated = now_ns - packet.enqueued_ns >= p.target_ns and queue.bytes >= p.mtu_bytes
        # first stateful ALU
        first = violated and not s.dropping
        s.dropping = violated
        if not violated:
            return PASS
        # second stateful ALU
        clock_ns = now_ns + p.clock_ns
        if first:
            s.count = 1
            s.drop_next_ns = clock_ns + p.interval_ns
            stats.entered += 1
            drop = False
        else:
            drop = due(p, clock_ns, s.drop_next_ns)
            if drop:
                s.count += 1
                gap_ns = math_unit_gap(p, s.count if p.count_first else s.count - 1)
                s.drop_next_ns = (clock_ns if p.from_now else s.drop_next_ns) + gap_ns
        if p.wrap:
            s.drop_next_ns &= _MASK
        if drop:
            stats.signals += 1
            return DROP_LATE if packet.ecn == 0 else MARK
        return PASS
