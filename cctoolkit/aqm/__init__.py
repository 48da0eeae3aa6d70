"""Active queue management, one file per algorithm.

How to write one
----------------
A class with parameters, ``State`` and a decision is all it takes, here or in a notebook::

    from cctoolkit.aqm import Aqm, DROP, MARK, PASS, random

    class Patience(Aqm):
        '''Signals with a probability that grows with the delay above a target.'''

        target_ms: float = 5.0               # parameters: annotated, with unit and default

        class State:                         # what it remembers, with initial values
            smooth_ns = 0.0

        class Stats:                         # what it counts (optional)
            signals = 0

        @staticmethod
        def on_dequeue(p, s, stats, queue, packet, now_ns):
            s.smooth_ns += (now_ns - packet.enqueued_ns - s.smooth_ns) / 8
            if random(queue) < (s.smooth_ns - p.target_ns) / (10 * p.target_ns):
                stats.signals += 1
                return MARK
            return PASS

    cct.Bottleneck(rate_mbps=100, buffer_packets=500, aqm=Patience(target_ms=2))

It is compiled once at the start of a run (a fraction of a second) and then runs at full speed. A mistake raises
:class:`~cctoolkit.AlgorithmError` with the line, also while it runs: an index outside an array, a ``peer`` that does
not exist, a loop that takes more than 100 million iterations at one event, a return value that is not a verdict. To
add it to the package, put it into a file of its own here, import it below, and cite section by section what it
implements and where it deviates.

Functions (all optional, all with the same arguments; they return ``PASS``, ``MARK`` or ``DROP``, and ``on_dequeue``
also ``DROP_LATE``):

``on_enqueue``
    A packet arrives; ``queue`` does not count it yet. A full buffer drops it afterwards in any case.
``on_dequeue``
    A packet leaves the head; ``queue`` no longer counts it. After ``DROP``, or ``MARK`` without ECT, the scheduler
    takes the next packet at the same time.
``on_update``
    Every ``update_ms`` (a parameter of that name), for each queue, or only for queue 0 if the state is shared.
    ``packet`` is meaningless and the return value is ignored.

Arguments:

``p``
    Parameters. A parameter ``…_ms`` is also available as ``…_ns`` (int64). ``derived()`` may add constants and tables.
``s``, ``stats``
    State and statistics of this queue, or of the port with ``shared = True`` (``queue.index`` then says which queue).
    Fields are integers (int64), floats, booleans or arrays (``np.zeros(16)``); ``initial()`` may derive them from
    parameters.
``queue``, ``packet``
    See :data:`~.base.QUEUE` and :data:`~.base.PACKET`. ``peer(queue, i)`` is another queue of the port,
    ``delay_ns(queue, now_ns)`` the wait of the packet at the head, ``random(queue)`` a number in [0, 1), and
    ``packet.label`` a number that travels with the packet.
``now_ns``
    Current time in ns, int64.

Helper functions need ``@numba.njit`` and live in the same file. Division by zero gives infinity, as in numpy.
"""

from __future__ import annotations

from ..errors import AlgorithmError
from .abc import Abc, IntegerAbc
from .abc_tofino import TofinoAbc
from .base import (
    DROP,
    DROP_LATE,
    MARK,
    PACKET,
    PASS,
    QUEUE,
    Aqm,
    delay_ns,
    peer,
    random,
)
from .codel import CoDel
from .codel_linux import LinuxCoDel
from .codel_p4 import NpuCoDel, P4CoDel, PisaCoDel
from .csfq import Csfq
from .dualpi2 import DualPi2, IntegerDualPi2
from .dualpi2_linux import LinuxDualPi2
from .fq_codel import FqCoDel
from .ired import IntegerIRed, IRed
from .linux_only import (
    Cake,
    Choke,
    Fq,
    FqPie,
    KernelModule,
    Opportunity,
    Sfb,
    Sfq,
)
from .pi2 import IntegerPi2, Pi2, TofinoPi2
from .pie import Pie
from .pie_linux import LinuxPie
from .red import Red
from .tail_drop import TailDrop

__all__ = [
    "DROP",
    "DROP_LATE",
    "MARK",
    "PACKET",
    "PASS",
    "QUEUE",
    "Abc",
    "AlgorithmError",
    "Aqm",
    "Cake",
    "Choke",
    "CoDel",
    "Csfq",
    "DualPi2",
    "Fq",
    "FqCoDel",
    "FqPie",
    "IRed",
    "IntegerAbc",
    "IntegerDualPi2",
    "IntegerIRed",
    "IntegerPi2",
    "KernelModule",
    "LinuxCoDel",
    "LinuxDualPi2",
    "LinuxPie",
    "NpuCoDel",
    "Opportunity",
    "P4CoDel",
    "Pi2",
    "Pie",
    "PisaCoDel",
    "Red",
    "Sfb",
    "Sfq",
    "TailDrop",
    "TofinoAbc",
    "TofinoPi2",
    "delay_ns",
    "peer",
    "random",
]
