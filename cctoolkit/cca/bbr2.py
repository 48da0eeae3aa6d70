"""BBR, version 2: draft-cardwell-iccrg-bbr-congestion-control-02, as a set of differences from version 3.

Held against Google's Linux, v2alpha (google/bbr, net/ipv4/tcp_bbr2.c).
"""

from __future__ import annotations

from typing import ClassVar

from .bbr3 import Bbr3

__all__ = ["Bbr2"]


class Bbr2(Bbr3):
    """Version 3 with version 2's gains and its way to end a probe (draft-cardwell-iccrg-bbr-02; Linux's v2alpha).

    What differs:

    - Startup and Drain pace with the gains of version 1, 2.885 and its inverse, Startup's window has 2.885 too (v3:
      2.77, 0.5, 2), and losses found by eight ACKs end it (v3: six). Its bound is then the bandwidth-delay product (v3:
      at least what was delivered in the last round trip). The pipe is full by the largest bandwidth (v3: the latest).
    - ProbeBW_DOWN paces at 0.75 (v3: 0.9).
    - ProbeBW_UP keeps the window's gain of 2 (v3: 2.25), and ends when it has lasted a min_rtt and 1.25
      bandwidth-delay products are in flight (v3: when the bandwidth does not grow any more). What is in flight is
      counted for the time at which pacing lets the next packets go, with these.

    The 30 % that version 2 takes from its bounds after losses are the factor `beta` of 0.7 here. Parameters and notes
    are those of :class:`~cctoolkit.cca.bbr3.Bbr3`. In v2alpha marks, if answered at all, bound the bandwidth as well;
    here they bound what is in flight, as in version 3.
    """

    name: ClassVar[str] = "bbr2"
    plateau: ClassVar[bool] = False

    startup_gain: float = 2.885
    drain_gain: float = 1 / 2.885
    down_gain: float = 0.75
    startup_cwnd_gain: float = 2.885
    up_cwnd_gain: float = 2.0
    startup_losses: int = 8
