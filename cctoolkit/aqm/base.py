"""The interface of an AQM: its arguments and return values."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .._support.algorithm.base import Algorithm
from .._support.algorithm.checks import share
from .._support.algorithm.random import random
from .._support.kernels import part

__all__ = ["DROP", "DROP_LATE", "MARK", "PACKET", "PASS", "QUEUE", "Aqm", "delay_ns", "peer", "random"]

PASS = 0
#: Signal congestion: mark CE on a packet with ECT, drop any other.
MARK = 1
DROP = 2
#: Only on dequeue: drop after the shaper, as the egress of a switch does; the packet still takes its time on the link.
DROP_LATE = 3

#: A queue, as functions see it. It does not count the packet that arrives (on_enqueue) or leaves (on_dequeue).
QUEUE = np.dtype(
    [
        ("index", np.int64),  # of this queue, from 0
        ("queues", np.int64),  # number of queues of the port
        ("packets", np.int64),
        ("bytes", np.int64),  # on the wire
        ("head_enqueued_ns", np.int64),  # arrival time of the packet at the head; -1: empty
        ("last_delay_ns", np.int64),  # queueing delay of the packet that left last
        ("last_departure_ns", np.int64),
        ("idle_since_ns", np.int64),  # since when it has been empty; -1: it is not
        ("rate_bps", np.float64),  # current rate of the port
        ("limit_packets", np.int64),  # size of the buffer; 2**62: no limit
        ("limit_bytes", np.int64),
        ("probability", np.float64),  # set by the AQM, shown by series and plots
        ("rng", np.uint64),  # for random()
    ],
    align=True,
)

#: A packet, as functions see it.
PACKET = np.dtype(
    [
        ("enqueued_ns", np.int64),  # arrival time in the queue
        ("label", np.float64),  # initially 0; written by on_enqueue for on_dequeue
        ("flow", np.int32),
        ("aggregate", np.int32),  # its group of flows (Flow.aggregate)
        ("bytes", np.int32),  # on the wire
        ("ecn", np.uint8),  # 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE
    ],
    align=True,
)

share(QUEUE, "queue", writable=("probability",))
share(PACKET, "packet", writable=("label",))


class Aqm(Algorithm):
    """Base class of AQMs; :mod:`cctoolkit.aqm` explains how to write one.

    Attributes
    ----------
    shared : bool
        One state for all queues of the port (for the coupling of DualPI2) instead of one each.
    scheduler : str or None
        The scheduler that the AQM requires (``"fq"``, ``"dual_wrr"``); None: any.

    See Also
    --------
    CoDel, Red, Pie : to start from
    cctoolkit.Bottleneck : where an AQM works
    cctoolkit.cca.Cca : the same for congestion controls

    Examples
    --------
    Subclasses register under their name, which scenarios may use:

    >>> {"codel", "pie", "red"} <= set(cct.aqm.Aqm.registry)
    True
    >>> cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm="codel").aqm
    CoDel(target_ms=5.0, interval_ms=100.0, mtu_bytes=1514)
    """

    registry: ClassVar[dict[str, type[Algorithm]]] = {}
    events: ClassVar[tuple[str, ...]] = ("on_enqueue", "on_dequeue", "on_update")
    arguments: ClassVar[tuple[str, ...]] = ("p", "s", "stats", "queue", "packet", "now_ns")
    shared: ClassVar[bool] = False
    scheduler: ClassVar[str | None] = None

    def addresses(self) -> dict[str, int]:
        """Addresses of the compiled functions, each ``int64(p, s, stats, queue, packet, now_ns)``; 0: not defined."""
        return self.compiled(types.int64, QUEUE, PACKET)

    def update_period_ns(self) -> int:
        """Time between calls of ``on_update`` in ns: the parameter ``update_ms``."""
        return round(getattr(self, "update_ms", 0.0) * 1e6)


@intrinsic
def peer(typingctx: Any, queue: Any, index: Any) -> Any:
    """Another queue of the same port, for use in a function of an AQM.

    Parameters
    ----------
    queue : record of :data:`QUEUE`
        Any queue of the port.
    index : int
        Number of the queue, from 0.

    Returns
    -------
    record of :data:`QUEUE`

    Raises
    ------
    IndexError
        There is no such queue.

    See Also
    --------
    delay_ns : the delay of a queue
    Aqm : the functions of an AQM

    Examples
    --------
    Drop packets of queue 1 while queue 0 waits:

    >>> from cctoolkit.aqm import DROP, PASS, Aqm, peer
    >>> class YieldToFirst(Aqm):
    ...     @staticmethod
    ...     def on_enqueue(p, s, stats, queue, packet, now_ns):
    ...         return DROP if queue.index == 1 and peer(queue, 0).packets > 5 else PASS
    >>> queues = [cct.Queue(), cct.Queue()]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50, aqm=YieldToFirst(), queues=queues)
    >>> flows = [cct.Flow("reno", rtt_ms=20, queue=0), cct.Flow("reno", rtt_ms=20, queue=1)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> (run.queues.dropped_enqueue > 0).tolist()
    [False, True]
    """
    signature = queue(queue, types.int64)

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        here = builder.ptrtoint(args[0], word)
        fields = builder.bitcast(args[0], word.as_pointer())  # the first are `index` and `queues`
        mine, queues = (builder.load(builder.gep(fields, [word(i)])) for i in range(2))
        with builder.if_then(builder.icmp_unsigned(">=", args[1], queues), likely=False):
            text = "peer(queue, index): there is no queue with this index; the first is 0, the last queue.queues - 1"
            context.call_conv.return_user_exc(builder, IndexError, (text,))
        step = builder.mul(builder.sub(args[1], mine), ir.Constant(word, QUEUE.itemsize))
        return builder.inttoptr(builder.add(here, step), context.get_value_type(queue))

    return signature, code


@part(error_model="numpy")
def delay_ns(queue, now_ns):
    """How long the packet at the head has waited, for use in a function of an AQM.

    Parameters
    ----------
    queue : record of :data:`QUEUE`
        The queue.
    now_ns : int
        Current time in ns.

    Returns
    -------
    int
        Delay in ns; 0 for an empty queue.

    See Also
    --------
    peer : another queue of the same port
    Aqm : the functions of an AQM

    Examples
    --------
    >>> from cctoolkit.aqm import DROP, PASS, Aqm, delay_ns
    >>> class DelayLimit(Aqm):
    ...     limit_ms: float = 20.0
    ...
    ...     @staticmethod
    ...     def on_enqueue(p, s, stats, queue, packet, now_ns):
    ...         return DROP if delay_ns(queue, now_ns) > p.limit_ns else PASS
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=500, aqm=DelayLimit())
    >>> flows = [cct.Flow("cubic", rtt_ms=20)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.queues.max_delay_ms.round().tolist()
    [22.0]
    """
    return now_ns - queue.head_enqueued_ns if queue.packets > 0 else 0
