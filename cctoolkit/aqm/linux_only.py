"""Queue disciplines that only the Linux kernel has: names for scenarios that the testbed runs.

The simulator refuses them. Parameters are those of ``tc`` that shape the behaviour; sizes come from the queue's
``buffer_packets``, marking is on where there is an option for it. Sources are Linux's ``net/sched/sch_*.c``.
"""

from __future__ import annotations

from typing import ClassVar

from ..errors import ParameterError
from .base import Aqm

__all__ = ["Cake", "Choke", "Fq", "FqPie", "Sfb", "Sfq"]


class Fq(Aqm):
    """Fair queueing by flow with pacing (``tc-fq``), without active queue management."""

    name: ClassVar[str] = "fq"
    linux_only: ClassVar[bool] = True


class Sfq(Aqm):
    """Stochastic fair queueing (McKenney 1990; ``tc-sfq``).

    Parameters
    ----------
    perturb_s : int
        The hash is changed every so many seconds; 0: never.
    """

    name: ClassVar[str] = "sfq"
    linux_only: ClassVar[bool] = True

    perturb_s: int = 0


class Cake(Aqm):
    """CAKE without its shaper (Høiland-Jørgensen, Täht and Morton 2018; ``tc-cake``): the link's rate is the testbed's.

    Parameters
    ----------
    rtt_ms : float
        Round-trip time it is tuned for.

    Notes
    -----
    Its room is in bytes of memory (``memlimit``), so the queue needs ``buffer_bytes``.
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
        Of a bucket: what it should hold, and what it may hold.
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
        Of PIE (RFC 8033).
    queues : int
        Flows are hashed to so many.
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
            raise ParameterError("FqPie.queues: must be from 1 to 65536")


class Choke(Aqm):
    """CHOKe: an arriving packet is compared with one from the queue (Pan, Prabhakar and Psounis 2000; ``tc-choke``).

    Parameters
    ----------
    min_packets, max_packets : int
        Thresholds of the average queue, as RED's.
    max_probability : float
        Reached at `max_packets`.
    """

    name: ClassVar[str] = "choke"
    linux_only: ClassVar[bool] = True

    min_packets: int = 30
    max_packets: int = 90
    max_probability: float = 0.02

    def check(self) -> None:
        if not 0 < self.min_packets < self.max_packets:
            raise ParameterError("Choke.min_packets: must be positive and below max_packets")
        if not 0 < self.max_probability <= 1:
            raise ParameterError("Choke.max_probability: must be positive and at most 1")
