"""BBR, version 2: draft-cardwell-iccrg-bbr-congestion-control-02, as a set of differences from version 3.

Compared with Google's Linux, v2alpha (google/bbr, net/ipv4/tcp_bbr2.c).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from .bbr3 import Bbr3

__all__ = ["Bbr2"]


class Bbr2(Bbr3):
    """BBRv2: version 3 with the gains and probes of version 2 (draft-cardwell-iccrg-bbr-02; Linux's v2alpha).

    The differences:

    - Startup and Drain pace with the gains of version 1, 2.885 and its inverse, and the window in Startup has a
      gain of 2.885 too (v3: 2.77, 0.5, 2). Eight ACKs that report losses end Startup (v3: six). The bound is then
      the bandwidth-delay product (v3: at least what was delivered in the last round trip). The largest bandwidth
      decides whether the pipe is full (v3: the latest).
    - ProbeBW_DOWN paces at 0.75 (v3: 0.9).
    - ProbeBW_UP keeps a window gain of 2 (v3: 2.25), and ends after a min_rtt once 1.25 bandwidth-delay products
      are in flight (v3: once the bandwidth stops growing).

    The 30 % by which version 2 reduces its bounds after losses are the factor `beta` of 0.7 here. Parameters and notes
    are those of :class:`~cctoolkit.cca.Bbr3`. In v2alpha, marks, if answered at all, bound the bandwidth as well; here
    they bound the packets in flight, as in version 3.

    See Also
    --------
    Bbr : version 1
    Bbr3 : version 3

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
    >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow(cct.cca.Bbr2(), rtt_ms=20)], duration_s=2)
    >>> round(cct.simulate(scenario).summary()["mean_delay_ms"], 1)
    5.0
    """

    name: ClassVar[str] = "bbr2"
    in_linux: ClassVar[Mapping[str, float]] = {}
    plateau: ClassVar[bool] = False

    startup_gain: float = 2.885
    drain_gain: float = 1 / 2.885
    down_gain: float = 0.75
    startup_cwnd_gain: float = 2.885
    up_cwnd_gain: float = 2.0
    startup_losses: int = 8
