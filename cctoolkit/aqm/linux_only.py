"""Queue disciplines that exist only in the Linux kernel: the testbed runs them, the simulator refuses them.

Parameters are those of ``tc`` that affect the behaviour. The size comes from the queue's ``buffer_packets``; ECN
marking is on wherever there is an option for it. Sources: ``net/sched/sch_*.c`` of Linux.
"""

from __future__ import annotations

from typing import ClassVar

from .._support.algorithm import kernel_module
from ..errors import ParameterError
from .base import Aqm

__all__ = ["Cake", "Choke", "Fq", "FqPie", "KernelModule", "Opportunity", "Sfb", "Sfq"]


class Fq(Aqm):
    """Fair queueing by flow with pacing (``tc-fq``), without active queue management.

    See Also
    --------
    FqCoDel : fair queueing with CoDel
    Sfq : stochastic fair queueing

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=100, buffer_packets=1000, aqm="fq").aqm
    Fq()
    """

    name: ClassVar[str] = "fq"
    linux_only: ClassVar[bool] = True


class Sfq(Aqm):
    """Stochastic fair queueing (McKenney 1990; ``tc-sfq``).

    Parameters
    ----------
    perturb_s : int
        Change the hash at this interval, in s; 0: never.

    See Also
    --------
    Fq : fair queueing with pacing
    FqCoDel : fair queueing with CoDel

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=100, buffer_packets=1000, aqm=cct.aqm.Sfq(perturb_s=10)).aqm
    Sfq(perturb_s=10)
    """

    name: ClassVar[str] = "sfq"
    linux_only: ClassVar[bool] = True

    perturb_s: int = 0


class Cake(Aqm):
    """CAKE without its shaper (Høiland-Jørgensen, Täht and Morton 2018; ``tc-cake``); the testbed sets the link rate.

    Parameters
    ----------
    rtt_ms : float
        Round-trip time that it is tuned for, in ms.

    Notes
    -----
    Its limit is in bytes of memory (``memlimit``), so the queue needs ``buffer_bytes``.

    See Also
    --------
    FqCoDel : fair queueing with CoDel
    Fq : fair queueing with pacing

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=100, buffer_bytes=1_000_000, aqm=cct.aqm.Cake(rtt_ms=50)).aqm
    Cake(rtt_ms=50.0)
    """

    name: ClassVar[str] = "cake"
    linux_only: ClassVar[bool] = True

    rtt_ms: float = 100.0

    def check(self) -> None:
        if self.rtt_ms <= 0:
            raise ParameterError("Cake.rtt_ms: must be positive")


class Sfb(Aqm):
    """Stochastic fair blue (Feng, Kandlur, Saha and Shin 2001; ``tc-sfb``).

    Parameters
    ----------
    target_packets, max_packets : int
        Packets that a bucket should hold, and the most that it may hold.

    See Also
    --------
    Red : random early detection
    Choke : penalises flows that occupy the queue

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=100, buffer_packets=1000, aqm=cct.aqm.Sfb(target_packets=20)).aqm
    Sfb(target_packets=20, max_packets=25)
    """

    name: ClassVar[str] = "sfb"
    linux_only: ClassVar[bool] = True

    target_packets: int = 20
    max_packets: int = 25

    def check(self) -> None:
        if not 0 < self.target_packets <= self.max_packets:
            raise ParameterError("Sfb.target_packets: must be positive and at most max_packets")


class FqPie(Aqm):
    """Flow queueing with PIE in each queue (``tc-fq_pie``).

    Parameters
    ----------
    target_ms, update_ms : float
        Target delay and update interval of PIE (RFC 8033), in ms.
    queues : int
        Number of queues that flows are hashed to.

    See Also
    --------
    Pie : the same in a single queue
    FqCoDel : CoDel per flow

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=100, buffer_packets=1000, aqm=cct.aqm.FqPie(target_ms=10)).aqm
    FqPie(target_ms=10.0, update_ms=15.0, queues=1024)
    """

    name: ClassVar[str] = "fq_pie"
    linux_only: ClassVar[bool] = True

    target_ms: float = 15.0
    update_ms: float = 15.0
    queues: int = 1024

    def check(self) -> None:
        if self.target_ms <= 0 or self.update_ms <= 0:
            raise ParameterError("FqPie.target_ms and FqPie.update_ms: must be positive")
        if not 1 <= self.queues <= 65536:
            raise ParameterError("FqPie.queues: must be between 1 and 65536")


class Choke(Aqm):
    """CHOKe: compares an arriving packet with one from the queue (Pan, Prabhakar and Psounis 2000; ``tc-choke``).

    Parameters
    ----------
    min_packets, max_packets : int
        Thresholds of the average queue in packets, as for RED.
    max_probability : float
        Probability at `max_packets`.

    See Also
    --------
    Red : random early detection
    Sfb : stochastic fair blue

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=100, buffer_packets=1000, aqm=cct.aqm.Choke()).aqm
    Choke(min_packets=30, max_packets=90, max_probability=0.02)
    """

    name: ClassVar[str] = "choke"
    linux_only: ClassVar[bool] = True

    min_packets: int = 30
    max_packets: int = 90
    max_probability: float = 0.02

    def check(self) -> None:
        if not 0 < self.min_packets < self.max_packets:
            raise ParameterError("Choke.min_packets: must be positive and less than max_packets")
        if not 0 < self.max_probability <= 1:
            raise ParameterError("Choke.max_probability: must be positive and at most 1")


class Opportunity(Aqm):
    """A link that delivers in bursts, without active queue management, as Mahimahi's ``mm-link`` does.

    At each interval, the link sends what waits, up to a number of bytes; what is not used is lost. A packet that does
    not fit continues at the next interval. Cellular links and links with time slots work like this.

    Parameters
    ----------
    bytes : int
        Bytes of a burst, counting whole frames. ``mm-link`` has 1504, counting from the IP header.
    interval_ms : float
        Time from one burst to the next in ms.
    both_ways : bool
        Acknowledgements wait for a link of the same kind, as in ``mm-link`` with one trace for both directions.

    Notes
    -----
    The queue discipline is the project's own, so the kernel must be built with it: ``cct testbed build --with
    hardware/linux/link``. The bottleneck's ``rate_mbps`` is the rate within a burst, and its ``buffer_packets`` apply
    to each direction.

    See Also
    --------
    TailDrop : a link with a steady rate
    cctoolkit.read_link_trace : a recorded link as changes of its rate

    Examples
    --------
    200 kbit/s:

    >>> aqm = cct.aqm.Opportunity(bytes=1500, interval_ms=60)
    >>> cct.Bottleneck(rate_mbps=1000, buffer_packets=20, aqm=aqm).aqm
    Opportunity(bytes=1500, interval_ms=60.0, both_ways=False)
    """

    name: ClassVar[str] = "opportunity"
    linux_only: ClassVar[bool] = True

    bytes: int = 1500
    interval_ms: float = 12.0
    both_ways: bool = False

    def check(self) -> None:
        if not 1 <= self.bytes <= 10**9:
            raise ParameterError(f"Opportunity.bytes: {self.bytes!r} must be between 1 and 10**9")
        if not 1e-3 <= self.interval_ms <= 1e6:
            raise ParameterError(
                f"Opportunity.interval_ms: {self.interval_ms!r} must be between 0.001 and 10**6"
            )


class KernelModule(kernel_module.KernelModule, Aqm):
    """A queue discipline in a kernel of your own, built with ``cct testbed build --with``.

    Parameters
    ----------
    module : str
        Its name in the kernel (``.id`` of its ``struct Qdisc_ops``), as for ``tc``.
    settings : mapping
        Its module parameters: whole numbers or words by name. They apply to the whole kernel. A parameter ``limit``
        that is not given here is set to the queue's ``buffer_packets``.

    Notes
    -----
    Scenarios may write ``aqm = "linux:NAME"``, with parameters ``aqm = { name = "linux:NAME", target_us = 5000 }``.

    See Also
    --------
    Aqm : an AQM in Python, for the simulator
    cctoolkit.cca.KernelModule : the same for congestion controls

    Examples
    --------
    >>> cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm={"name": "linux:lazy", "target_us": 5000}).aqm
    KernelModule(module='lazy', settings=(('target_us', 5000),))
    """

    name: ClassVar[str] = "linux"
    linux_only: ClassVar[bool] = True

    module: str = ""
    settings: tuple[tuple[str, int | str], ...] = ()


del Aqm.registry[KernelModule.name]  # scenarios name the module: linux:NAME
