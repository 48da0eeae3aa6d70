"""Congestion controls that only the Linux kernel has: names for scenarios that the testbed runs.

The simulator refuses them. Sources are Linux's ``net/ipv4/tcp_*.c``, which cite the papers named here.
"""

from __future__ import annotations

from typing import ClassVar

from .base import Cca

__all__ = [
    "Bic",
    "Cdg",
    "HighSpeed",
    "Hybla",
    "Illinois",
    "LowPriority",
    "NewVegas",
    "Scalable",
    "Veno",
    "Westwood",
    "Yeah",
]


class Bic(Cca):
    """BIC: binary search for the window (Xu, Harfoush and Rhee, INFOCOM 2004)."""

    name: ClassVar[str] = "bic"
    linux_only: ClassVar[bool] = True


class Cdg(Cca):
    """CDG: delay gradients (Hayes and Armitage, Networking 2011)."""

    name: ClassVar[str] = "cdg"
    linux_only: ClassVar[bool] = True


class HighSpeed(Cca):
    """HighSpeed TCP (RFC 3649)."""

    name: ClassVar[str] = "highspeed"
    linux_only: ClassVar[bool] = True


class Hybla(Cca):
    """Hybla: windows of long paths grow as those of short ones (Caini and Firrincieli 2004)."""

    name: ClassVar[str] = "hybla"
    linux_only: ClassVar[bool] = True


class Illinois(Cca):
    """Illinois: increase and decrease by delay (Liu, Başar and Srikant 2008)."""

    name: ClassVar[str] = "illinois"
    linux_only: ClassVar[bool] = True


class LowPriority(Cca):
    """TCP-LP: uses what others leave (Kuzmanovic and Knightly 2003)."""

    name: ClassVar[str] = "lp"
    linux_only: ClassVar[bool] = True


class NewVegas(Cca):
    """NV: Vegas for data centres (Brakmo, Linux 4.8)."""

    name: ClassVar[str] = "nv"
    linux_only: ClassVar[bool] = True


class Scalable(Cca):
    """Scalable TCP (Kelly 2003)."""

    name: ClassVar[str] = "scalable"
    linux_only: ClassVar[bool] = True


class Veno(Cca):
    """Veno: tells random loss from congestion (Fu and Liew 2003)."""

    name: ClassVar[str] = "veno"
    linux_only: ClassVar[bool] = True


class Westwood(Cca):
    """Westwood+: the window after a loss by estimated bandwidth (Grieco and Mascolo 2004)."""

    name: ClassVar[str] = "westwood"
    linux_only: ClassVar[bool] = True


class Yeah(Cca):
    """YeAH: Scalable TCP while the queue is short, Reno when it is not (Baiocchi, Castellani and Vacirca 2007)."""

    name: ClassVar[str] = "yeah"
    linux_only: ClassVar[bool] = True
