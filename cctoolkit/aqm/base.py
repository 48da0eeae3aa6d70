"""What an AQM is given and what it may answer."""

from __future__ import annotations

from typing import Any, ClassVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .._support.algorithm.base import Algorithm
from .._support.algorithm.random import random

__all__ = ["DROP", "DROP_LATE", "MARK", "PACKET", "PASS", "QUEUE", "Aqm", "delay_ns", "peer", "random"]

PASS = 0
#: Signal congestion: a packet with ECT gets CE, any other is dropped.
MARK = 1
DROP = 2
#: Only on dequeue: drop behind the shaper, as a switch's egress does; the packet takes its time on the link.
DROP_LATE = 3

#: A queue, as functions see it. On enqueue the packet is not yet counted, on dequeue not any more.
QUEUE = np.dtype(
    [
        ("index", np.int64),  # of this queue, from 0
        ("queues", np.int64),  # how many the port has
        ("packets", np.int64),
        ("bytes", np.int64),  # on the wire
        ("head_enqueued_ns", np.int64),  # when the packet at the head came in; -1: empty
        ("last_delay_ns", np.int64),  # of the packet that left last
        ("last_departure_ns", np.int64),
        ("idle_since_ns", np.int64),  # when it became empty; -1: it is not
        ("rate_bps", np.float64),  # of the port, now
        ("limit_packets", np.int64),  # the buffer; 2**62: no limit
        ("limit_bytes", np.int64),
        ("probability", np.float64),  # the AQM may write here what series and plots show
        ("rng", np.uint64),  # for random()
    ],
    align=True,
)

#: A packet, as functions see it.
PACKET = np.dtype(
    [
        ("enqueued_ns", np.int64),  # when it came to the queue
        ("label", np.float64),  # starts as 0; what on_enqueue writes, on_dequeue reads
        ("flow", np.int32),
        ("aggregate", np.int32),  # group of flows it belongs to (Flow.aggregate)
        ("bytes", np.int32),  # on the wire
        ("ecn", np.uint8),  # 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE
    ],
    align=True,
)


class Aqm(Algorithm):
    """Base of queue disciplines; :mod:`cctoolkit.aqm` says how to write one.

    Attributes
    ----------
    shared : bool
        One state for all queues of the port (DualPI2's coupling) instead of one each.
    scheduler : str or None
        The scheduler it comes with (``"fq"``, ``"dual"``); None: whatever the bottleneck says.
    """

    registry: ClassVar[dict[str, type[Algorithm]]] = {}
    events: ClassVar[tuple[str, ...]] = ("on_enqueue", "on_dequeue", "on_update")
    arguments: ClassVar[tuple[str, ...]] = ("p", "s", "stats", "queue", "packet", "now_ns")
    shared: ClassVar[bool] = False
    scheduler: ClassVar[str | None] = None

    def addresses(self) -> dict[str, int]:
        """Addresses of the compiled functions, all ``int64(p, s, stats, queue, packet, now_ns)``; 0: not defined."""
        return self.compiled(types.int64, QUEUE, PACKET)

    def update_period_ns(self) -> int:
        """Time between calls of ``on_update``: the parameter ``update_ms``."""
        return round(getattr(self, "update_ms", 0.0) * 1e6)


@intrinsic
def peer(typingctx: Any, queue: Any, index: Any) -> Any:
    """Queue number `index` of the port that `queue` belongs to."""
    signature = queue(queue, types.int64)

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        here = builder.ptrtoint(args[0], word)
        mine = builder.load(builder.bitcast(args[0], word.as_pointer()))  # `index` is the first field
        step = builder.mul(builder.sub(args[1], mine), ir.Constant(word, QUEUE.itemsize))
        return builder.inttoptr(builder.add(here, step), context.get_value_type(queue))

    return signature, code


@numba.njit(error_model="numpy")
def delay_ns(queue, now_ns):
    """How long the packet at the head has waited; 0 for an empty queue."""
    return now_ns - queue.head_enqueued_ns if queue.packets > 0 else 0
