"""Congestion control: one file an algorithm.

How to write one
----------------
A class with parameters, ``State``, and reactions; nothing else, here or in a notebook::

    from cctoolkit.cca import Cca

    class Aimd(Cca):
        '''Adds `increase` packets a round trip, keeps `keep` of the window at a loss.'''

        increase: float = 1.0                    # parameters: annotated, with default
        keep: float = 0.5

        class State:                             # what it remembers, with first values (optional)
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

It is compiled at the start of a run (a fraction of a second, once) and called at full speed. A mistake raises
:class:`~cctoolkit.AlgorithmError` with the line. To add it to the package, put it into a file of its
own here,
import it below, and cite section by section what it implements and where it deviates.

Functions (all optional, all with the same arguments, none returns anything):

``on_start``
    The handshake is done; ``flow.cwnd`` is the initial window, ``flow.srtt_ns`` the handshake's RTT.
``on_ack``
    An acknowledgement came. Called for every one, last of all: after losses were detected and ``on_loss``,
    ``on_ecn`` or
    ``on_recovered`` were called.
``on_loss``
    Losses were detected outside recovery: set ``flow.ssthresh``. The sender then brings the window down to it by
    proportional rate reduction (RFC 6937) and overrides ``flow.cwnd`` until ``in_recovery`` ends, unless
    ``owns_recovery``.
    Called before ``on_rto`` too, if the window was not reduced in this flight already.
    Without this function ``ssthresh`` is half the window.
``on_ecn``
    The receiver echoed a classic mark (RFC 3168); at most once a round trip and not in recovery. Set
    ``flow.ssthresh`` as in
    ``on_loss``, which is called instead if this function is missing. With accurate feedback there is no such call
    (unless ``reduces_by_marks``): ``ack.marked`` in ``on_ack`` says how many packets were marked.
``on_recovered``
    All that had been sent when the reduction (or timeout) began is acknowledged; ``flow.cwnd`` is
    ``flow.ssthresh`` again
    after recovery (not after a timeout), unless ``owns_recovery``.
``on_rto``
    The retransmission timer expired (RFC 6298): everything is deemed lost but what was sent less than a round trip
    ago. ``on_loss`` has set ``flow.ssthresh``; afterwards ``flow.cwnd`` is one more than what is in flight, unless
    ``owns_recovery``. It slow-starts from there through ``on_ack``. If it turns out that the timer was too early, the
    sender sets window and ``ssthresh`` back.
``on_send``
    A packet was sent (already counted in ``flow.inflight``). Rarely needed; costs a call a packet.

Arguments:

``p``
    Parameters. What is named ``…_ms`` is there also as ``…_ns`` (int64). ``derived()`` may add constants and tables.
``s``, ``stats``
    This flow's state and statistics. Fields are integers (int64), floats, booleans or arrays (``np.zeros(10)``).
``flow``
    The sender (:data:`~.base.FLOW`). Set ``cwnd``, ``ssthresh``, ``pacing_bps``; read RTTs, what is in flight,
    delivered, lost, rounds.
    ``random(flow)`` gives a number in [0, 1).
``ack``
    What this acknowledgement told (:data:`~.base.ACK`): packets delivered, lost, marked, the RTT, the
    delivery-rate sample.
``now_ns``
    Time, int64.

Windows are in packets (floats), rates in bit/s on the wire. Helpers are functions with ``@numba.njit`` in the
same file.
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
