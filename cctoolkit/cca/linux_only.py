"""Congestion controls that exist only in the Linux kernel: the testbed runs them, the simulator refuses them.

Sources: ``net/ipv4/tcp_*.c`` of Linux, which cite the papers named here.
"""

from __future__ import annotations

from typing import ClassVar

from .._support.algorithm import kernel_module
from .base import Cca

__all__ = [
    "Bic",
    "Cdg",
    "HighSpeed",
    "Hybla",
    "Illinois",
    "KernelModule",
    "LowPriority",
    "NewVegas",
    "Scalable",
    "Veno",
    "Westwood",
    "Yeah",
]


class Bic(Cca):
    """BIC: binary search for the window (Xu, Harfoush and Rhee, INFOCOM 2004).

    See Also
    --------
    Cubic : its successor
    Htcp : another control for fast, long paths

    Examples
    --------
    >>> cct.Flow("bic", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "bic"
    linux_only: ClassVar[bool] = True


class Cdg(Cca):
    """CDG: delay gradients (Hayes and Armitage, Networking 2011).

    See Also
    --------
    Vegas : by delay instead of its gradient

    Examples
    --------
    >>> cct.Flow("cdg", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "cdg"
    linux_only: ClassVar[bool] = True


class HighSpeed(Cca):
    """HighSpeed TCP (RFC 3649).

    See Also
    --------
    Scalable : a simpler one
    Htcp : another control for fast, long paths

    Examples
    --------
    >>> cct.Flow("highspeed", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "highspeed"
    linux_only: ClassVar[bool] = True


class Hybla(Cca):
    """Hybla: windows of long paths grow as fast as those of short ones (Caini and Firrincieli 2004).

    See Also
    --------
    Reno : whose growth depends on the RTT
    Prague : also less dependent on the RTT

    Examples
    --------
    >>> cct.Flow("hybla", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "hybla"
    linux_only: ClassVar[bool] = True


class Illinois(Cca):
    """Illinois: increase and decrease by delay (Liu, Başar and Srikant 2008).

    See Also
    --------
    Veno : also combines loss and delay
    Vegas : by delay alone

    Examples
    --------
    >>> cct.Flow("illinois", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "illinois"
    linux_only: ClassVar[bool] = True


class LowPriority(Cca):
    """TCP-LP: low priority, uses only what others leave (Kuzmanovic and Knightly 2003).

    See Also
    --------
    Vegas : which also yields to loss-based flows

    Examples
    --------
    >>> cct.Flow("lp", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "lp"
    linux_only: ClassVar[bool] = True


class NewVegas(Cca):
    """NV (New Vegas): Vegas for data centres (Brakmo, Linux 4.8).

    See Also
    --------
    Vegas : the original
    Dctcp : by marks, for data centres

    Examples
    --------
    >>> cct.Flow("nv", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "nv"
    linux_only: ClassVar[bool] = True


class Scalable(Cca):
    """Scalable TCP (Kelly 2003).

    See Also
    --------
    HighSpeed : closer to Reno at small windows
    Yeah : Scalable TCP with delay

    Examples
    --------
    >>> cct.Flow("scalable", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "scalable"
    linux_only: ClassVar[bool] = True


class Veno(Cca):
    """Veno: distinguishes random loss from congestion (Fu and Liew 2003).

    See Also
    --------
    Vegas : whose estimate it uses
    Westwood : another control for wireless links

    Examples
    --------
    >>> cct.Flow("veno", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "veno"
    linux_only: ClassVar[bool] = True


class Westwood(Cca):
    """Westwood+: sets the window after a loss by the estimated bandwidth (Grieco and Mascolo 2004).

    See Also
    --------
    Bbr : also models the bandwidth
    Veno : another control for wireless links

    Examples
    --------
    >>> cct.Flow("westwood", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "westwood"
    linux_only: ClassVar[bool] = True


class Yeah(Cca):
    """YeAH: Scalable TCP while the queue is short, Reno when it is not (Baiocchi, Castellani and Vacirca 2007).

    See Also
    --------
    Scalable : its fast mode
    Reno : its slow mode

    Examples
    --------
    >>> cct.Flow("yeah", rtt_ms=20).cca.linux_only
    True
    """

    name: ClassVar[str] = "yeah"
    linux_only: ClassVar[bool] = True


class KernelModule(kernel_module.KernelModule, Cca):
    """A congestion control in a kernel of your own, built with ``cct testbed build --with``.

    Parameters
    ----------
    module : str
        Its name in the kernel (``.name`` of its ``struct tcp_congestion_ops``).
    settings : mapping
        Its module parameters: whole numbers or words by name. They apply to the whole kernel.

    Notes
    -----
    Scenarios may write ``cca = "linux:NAME"``, with parameters ``cca = { name = "linux:NAME", gain = 3 }``.

    See Also
    --------
    Cca : a congestion control in Python, for the simulator
    cctoolkit.aqm.KernelModule : the same for queue disciplines

    Examples
    --------
    >>> cct.Flow("linux:mine", rtt_ms=20).cca
    KernelModule(module='mine', settings=())
    """

    name: ClassVar[str] = "linux"
    linux_only: ClassVar[bool] = True

    module: str = ""
    settings: tuple[tuple[str, int | str], ...] = ()


del Cca.registry[KernelModule.name]  # scenarios name the module: linux:NAME
