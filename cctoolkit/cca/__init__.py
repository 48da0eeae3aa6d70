"""Congestion control, one file per algorithm.

How to write one
----------------
A class with parameters, ``State`` and reactions is all it takes, here or in a notebook::

    from cctoolkit.cca import Cca

    class Aimd(Cca):
        '''Adds `increase` packets per round trip, keeps the share `keep` of the window at a loss.'''

        increase: float = 1.0                    # parameters: annotated, with default
        keep: float = 0.5

        class State:                             # what it remembers, with initial values (optional)
            losses = 0

        @staticmethod
        def on_ack(p, s, stats, flow, ack, now_ns):
            if flow.may_grow:
                flow.cwnd += p.increase * ack.acked / flow.cwnd

        @staticmethod
        def on_loss(p, s, stats, flow, ack, now_ns):
            s.losses += 1
            flow.ssthresh = max(p.keep * flow.cwnd, 2)

    cct.Flow(Aimd(increase=4), rtt_ms=20)

It is compiled once at the start of a run (a fraction of a second) and then runs at full speed. A mistake raises
:class:`~cctoolkit.AlgorithmError` with the line, also while it runs: an index outside an array, a loop that takes more
than 100 million iterations at one event, a window or rate that is negative or not a number. To add it to the package,
put it into a file of its own here, import it below, and cite section by section what it implements and where it
deviates.

Functions (all optional, all with the same arguments; they return nothing):

``on_start``
    The handshake is complete; ``flow.cwnd`` is the initial window, ``flow.srtt_ns`` the RTT of the handshake.
``on_ack``
    An acknowledgement arrived. Called for each, after losses have been detected and after ``on_loss``, ``on_ecn`` or
    ``on_recovered``.
``on_loss``
    Losses were detected outside recovery: set ``flow.ssthresh``. The sender then brings the window down to it by
    proportional rate reduction (RFC 6937) and overrides ``flow.cwnd`` until ``in_recovery`` ends, unless
    ``owns_recovery``. Also called before ``on_rto``, unless the window has already been reduced in this flight.
    Without this function, ``ssthresh`` becomes half the window.
``on_ecn``
    The receiver echoed a classic mark (RFC 3168); called at most once per round trip, and not in recovery. Set
    ``flow.ssthresh`` as in ``on_loss``, which is called instead if this function is missing. Not called with accurate
    feedback (unless ``reduces_by_marks``), where ``ack.marked`` in ``on_ack`` is the number of marked packets.
``on_recovered``
    Everything sent before the reduction (or timeout) has been acknowledged; after recovery (not after a timeout),
    ``flow.cwnd`` is ``flow.ssthresh`` again, unless ``owns_recovery``.
``on_rto``
    The retransmission timer expired (RFC 6298): everything not sent within the last round trip is deemed lost.
    ``on_loss`` has set ``flow.ssthresh``; afterwards ``flow.cwnd`` is one more than the packets in flight, unless
    ``owns_recovery``, and slow-starts from there through ``on_ack``. If the timeout turns out to be spurious, the
    sender restores window and ``ssthresh``.
``on_send``
    A packet was sent (and already counted in ``flow.inflight``). Rarely needed; costs a call per packet.
``on_restart``
    Packet ``flow.una`` is about to be sent while nothing is in flight: at the start, and after a pause that began at
    ``flow.last_sent_ns``. By then, the window has been halved for each timeout of the pause (RFC 2861).

Arguments:

``p``
    Parameters. A parameter ``…_ms`` is also available as ``…_ns`` (int64). ``derived()`` may add constants and tables.
``s``, ``stats``
    State and statistics of this flow. Fields are integers (int64), floats, booleans or arrays (``np.zeros(10)``).
``flow``
    The sender (:data:`~.base.FLOW`). Set ``cwnd``, ``ssthresh``, ``pacing_bps``; read RTTs, packets in flight,
    delivered and lost, and rounds. ``random(flow)`` gives a number in [0, 1).
``ack``
    What this acknowledgement says (:data:`~.base.ACK`): packets delivered, lost and marked, RTT, delivery-rate sample.
``now_ns``
    Current time in ns, int64.

Windows are in packets (floats), rates in bit/s on the wire. Helper functions need ``@numba.njit`` and live in the same
file.
"""

from __future__ import annotations

from ..errors import AlgorithmError
from .base import ACK, FLOW, Cca, random
from .bbr import Bbr
from .bbr2 import Bbr2
from .bbr3 import Bbr3
from .cubic import Cubic
from .dctcp import Dctcp
from .htcp import Htcp
from .linux_only import (
    Bic,
    Cdg,
    HighSpeed,
    Hybla,
    Illinois,
    KernelModule,
    LowPriority,
    NewVegas,
    Scalable,
    Veno,
    Westwood,
    Yeah,
)
from .prague import Prague
from .reno import Reno
from .vegas import Vegas

__all__ = [
    "ACK",
    "FLOW",
    "AlgorithmError",
    "Bbr",
    "Bbr2",
    "Bbr3",
    "Bic",
    "Cca",
    "Cdg",
    "Cubic",
    "Dctcp",
    "HighSpeed",
    "Htcp",
    "Hybla",
    "Illinois",
    "KernelModule",
    "LowPriority",
    "NewVegas",
    "Prague",
    "Reno",
    "Scalable",
    "Vegas",
    "Veno",
    "Westwood",
    "Yeah",
    "random",
]
