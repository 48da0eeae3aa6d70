"""The bottleneck as Linux traffic control: a shaper, classes for the queues, and a queue discipline for each AQM.

Nothing is run here: the lines are for ``tc -b`` in the namespace of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._support.ethernet import FULL_FRAME_BYTES
from ..aqm import (
    Aqm,
    Cake,
    Choke,
    CoDel,
    DualPi2,
    Fq,
    FqCoDel,
    FqPie,
    KernelModule,
    LinuxCoDel,
    LinuxDualPi2,
    LinuxPie,
    Opportunity,
    Pie,
    Red,
    Sfb,
    Sfq,
    TailDrop,
)
from ..errors import ParameterError
from ..scenario import Bottleneck, Queue
from .paper_qdiscs import MODULES, module_parameters

__all__ = ["QdiscTree", "htb_shape", "kernel_module", "qdisc_arguments"]

#: Frame size for which the defaults of the algorithms are made.
#: Nominal speed of a veth device in kbit/s, which cbs refers to.
_VETH_KBPS = 10_000_000


@dataclass(frozen=True)
class QdiscTree:
    """The queues of a bottleneck on a device, as lines for ``tc -b``.

    Below a shaper ``1:`` (htb with one class ``1:1``) there is either the only queue ``10:`` or, with several
    queues, the scheduler ``2:`` (drr, prio), whose class ``2:i+1`` holds queue ``i`` as ``1i:`` (in hexadecimal:
    ``10:`` and up). Queues with their own rate are classes of the shaper, since the schedulers cannot wait.

    A single queue with RED or CHOKe is below cbs instead of htb: htb never dequeues from an empty queue, so they
    would not notice an idle link, and their average would not decay (measured: a flow of 20 Mbit/s then gets 8).
    The rate of cbs is off by up to 0.05 %, since it counts whole bytes; that of htb is exact.

    Parameters
    ----------
    bottleneck : Bottleneck
        The bottleneck.
    device : str
        Name of the device.
    frame_bytes : int
        Size of the largest frame in bytes.
    virtual : bool
        Timers are exact, so the burst of the shaper is only 5 µs, and packets after idle time leave as from a link. If
        false, the burst is a frame, which compensates for late timers.
    any_ect : bool
        Dualpi2 also sends ECT(0) to its low-latency queue, not only ECT(1).

    Raises
    ------
    ParameterError
        Linux lacks such a queue discipline or scheduler; the text names the field.
    """

    bottleneck: Bottleneck
    device: str = "rb"
    frame_bytes: int = FULL_FRAME_BYTES
    virtual: bool = True
    any_ect: bool = False

    def __post_init__(self) -> None:
        self.setup()  # reports at once what Linux lacks

    @property
    def _queues(self) -> tuple[Queue, ...]:
        return self.bottleneck.queue_list()

    @property
    def single(self) -> bool:
        """Whether one queue discipline (which may have its own queues) takes all packets."""
        return self.bottleneck.scheduler in ("fifo", "fq", "dual_wrr", "dual_ts") or len(self._queues) == 1

    @property
    def _by_htb(self) -> bool:
        """Whether queues are classes of the shaper, because they have rates of their own."""
        return any(q.max_rate_mbps is not None for q in self._queues)

    @property
    def _by_cbs(self) -> bool:
        return self.single and isinstance(self._queues[0].aqm, Red | Choke)

    def handle(self, queue: int) -> str:
        """Handle of the queue discipline of a queue, as in ``tc qdisc show``."""
        return f"{0x10 + queue:x}:"

    def setup(self) -> list[str]:
        """Lines that make everything."""
        b = self.bottleneck
        self._check_schedule()
        lines = [] if self._by_cbs else [f"qdisc add dev {self.device} root handle 1: htb default 1"]
        lines.append(self._link("add", b.rate_mbps))
        if self.single:
            queue = self._queues[0]
            if queue.max_rate_mbps is not None:
                raise ParameterError(
                    "bottleneck.queues: with a single queue, set rate_mbps instead of max_rate_mbps"
                )
            return lines + self._leaf(0, "1:1")
        if b.scheduler == "priority" and not self._by_htb:
            if len(self._queues) > 16:
                raise ParameterError(
                    f"bottleneck.queues: {len(self._queues)}, but prio in Linux supports at most 16"
                )
            bands = len(self._queues)
            lines.append(
                f"qdisc add dev {self.device} parent 1:1 handle 2: prio bands {bands} priomap {' '.join('0' * 16)}"
            )
        elif not self._by_htb:
            lines.append(f"qdisc add dev {self.device} parent 1:1 handle 2: drr")
        weights = [q.weight for q in self._queues]
        for i in range(len(weights)):
            if self._by_htb or b.scheduler != "priority":
                lines.append(self._queue_class("add", i, weights, b.rate_mbps))
            lines += self._leaf(i, self._class_of(i))
        return lines

    def way_back(self, device: str) -> list[str]:
        """Lines for the device at the other end, where a link that delivers in bursts does so in both directions."""
        if not any(isinstance(q.aqm, Opportunity) and q.aqm.both_ways for q in self._queues):
            return []
        return [f"qdisc add dev {device} root {Opportunity.name}"]

    def _check_schedule(self) -> None:
        b = self.bottleneck
        if b.scheduler in ("dual_wrr", "dual_ts") and not all(
            isinstance(q.aqm, DualPi2 | LinuxDualPi2) for q in self._queues
        ):
            raise ParameterError(f"bottleneck.scheduler: Linux supports {b.scheduler} only for dualpi2")
        if b.scheduler == "dual_ts":
            raise ParameterError("bottleneck.scheduler: dualpi2 in Linux supports dual_wrr, not dual_ts")
        if len(self._queues) > 0xFFE0:
            raise ParameterError(f"bottleneck.queues: {len(self._queues)}, but Linux supports at most 65504")

    def module_parameters(self) -> list[tuple[str, dict[str, Any], int | None]]:
        """Kernel name, module parameters and buffer in packets of each queue discipline that ``tc`` does not know."""
        queues = self._queues[:1] if self.single else self._queues
        return [(*module, q.buffer_packets) for q in queues if (module := kernel_module(q)) is not None]

    # -- changes at run time
    # -------------------------------------------------------------------------------------------

    def set_rate(self, rate_mbps: float, weights: Sequence[float] | None = None) -> list[str]:
        """Lines that change the rate of the link; `weights` are the current ones of the queues."""
        lines = [self._link("change", rate_mbps)]
        if self._by_htb and not self.single:
            weights = weights or [q.weight for q in self._queues]
            lines += [self._queue_class("change", i, weights, rate_mbps) for i in range(len(weights))]
        return lines

    def set_weight(self, queue: int, weights: Sequence[float], rate_mbps: float) -> list[str]:
        """Lines that apply the new weight of `queue`; `weights` are those of all queues."""
        if self.single or self.bottleneck.scheduler != "drr":
            raise ParameterError(f"weight: scheduler {self.bottleneck.scheduler} does not support changes")
        changed = range(len(weights)) if self._by_htb else (queue,)  # rates of htb are shares of the sum
        return [self._queue_class("change", i, weights, rate_mbps) for i in changed]

    def set_buffer(self, queue: int, packets: int | None, octets: int | None) -> list[str]:
        """Lines that change the size of a queue."""
        old = self._queues[queue]
        if packets is None and octets is None:
            return []
        if isinstance(old.aqm, DualPi2 | LinuxDualPi2) or kernel_module(old) is not None:
            assert old.aqm is not None
            raise ParameterError(f"buffer: cannot be changed for {old.aqm.name}")
        new = Queue(buffer_packets=packets, buffer_bytes=octets, aqm=old.aqm)
        words = qdisc_arguments(new, self.bottleneck, self.frame_bytes)
        parent = "1:1" if self.single else self._class_of(queue)
        if isinstance(old.aqm, Red):  # its child has the buffer
            return [self._red_child("change", queue, packets, octets)]
        if words[0] in ("pfifo", "bfifo") and bool(old.buffer_bytes) != bool(octets):
            raise ParameterError("buffer: cannot change between packets and bytes")
        return [
            f"qdisc change dev {self.device} parent {parent} handle {self.handle(queue)} {' '.join(words)}"
        ]

    def assign(self, flow: int, source: str, queue: int) -> list[str]:
        """Lines that assign packets from address `source` (those of flow `flow`) to a queue."""
        if self.single:
            return []
        parent = "1:" if self._by_htb else "2:"
        return [
            f"filter replace dev {self.device} parent {parent} protocol ip prio 1 handle {flow + 1:#x} flower "
            f"src_ip {source}/32 classid {self._class_of(queue)}"
        ]

    # -- parts
    # ---------------------------------------------------------------------------------------------------------

    def _class_of(self, queue: int) -> str:
        return f"1:{0x10 + queue:x}" if self._by_htb else f"2:{queue + 1:x}"

    def _link(self, verb: str, rate_mbps: float) -> str:
        if self._by_cbs:
            rate_kbps = round(rate_mbps * 1e3)
            if rate_kbps >= _VETH_KBPS:
                raise ParameterError(
                    f"bottleneck.rate_mbps: {rate_mbps:g}, but cbs supports only rates below 10000"
                )
            credit = 2 * self.frame_bytes
            return (
                f"qdisc {verb} dev {self.device} root handle 1: cbs locredit -{credit} hicredit {credit} "
                f"sendslope {rate_kbps - _VETH_KBPS} idleslope {rate_kbps}"
            )
        shape = htb_shape(rate_mbps, rate_mbps, self.frame_bytes, self.virtual)
        return f"class {verb} dev {self.device} parent 1: classid 1:1 {shape} quantum {self.frame_bytes}"

    def _queue_class(self, verb: str, queue: int, weights: Sequence[float], rate_mbps: float) -> str:
        quantum = max(round(weights[queue] * self.bottleneck.quantum_bytes), 1)
        if not self._by_htb:
            return f"class {verb} dev {self.device} parent 2: classid 2:{queue + 1:x} drr quantum {quantum}"
        spec = self._queues[queue]
        ceil = min(rate_mbps, spec.max_rate_mbps or rate_mbps)
        share = rate_mbps * weights[queue] / sum(weights)
        prio = ""
        if self.bottleneck.scheduler == "priority":
            if queue > 7:
                raise ParameterError("bottleneck.queues: htb in Linux supports only 8 priorities")
            share, prio = 1e-3 * rate_mbps, f" prio {queue}"
        shape = htb_shape(min(share, ceil), ceil, self.frame_bytes, self.virtual)
        classid = self._class_of(queue)
        return f"class {verb} dev {self.device} parent 1:1 classid {classid} {shape} quantum {quantum}{prio}"

    def _leaf(self, queue: int, parent: str) -> list[str]:
        spec = self._queues[queue]
        words = qdisc_arguments(spec, self.bottleneck, self.frame_bytes)
        if words[0] == "dualpi2" and self.any_ect:
            words.append("any_ect")
        handle = self.handle(queue)
        lines = [f"qdisc add dev {self.device} parent {parent} handle {handle} {' '.join(words)}"]
        if isinstance(spec.aqm, Red):
            lines.append(self._red_child("add", queue, spec.buffer_packets, spec.buffer_bytes))
        return lines

    def _red_child(self, verb: str, queue: int, packets: int | None, octets: int | None) -> str:
        words = " ".join(_fifo(packets, octets, f"bottleneck.queues[{queue}]"))
        return (
            f"qdisc {verb} dev {self.device} parent {self.handle(queue)}1 handle {0x8010 + queue:x}: {words}"
        )


def htb_shape(rate_mbps: float, ceil_mbps: float, frame_bytes: int, virtual: bool) -> str:
    """Rates and burst of an htb class (see ``virtual`` of :class:`QdiscTree`)."""

    def burst(mbps: float) -> int:
        return max(round(mbps * 0.625), 1) if virtual else frame_bytes + 2

    return (
        f"htb rate {round(rate_mbps * 1e6)}bit ceil {round(ceil_mbps * 1e6)}bit burst {burst(rate_mbps)} "
        f"cburst {burst(ceil_mbps)}"
    )


def _microseconds(ms: float) -> str:
    return f"{round(ms * 1e3)}us"


def _fifo(packets: int | None, octets: int | None, where: str) -> list[str]:
    if packets is not None and octets is not None:
        raise ParameterError(f"{where}: a buffer in Linux is limited in packets or in bytes, not in both")
    return ["bfifo", "limit", str(octets)] if packets is None else ["pfifo", "limit", str(packets)]


def qdisc_arguments(queue: Queue, bottleneck: Bottleneck, frame_bytes: int = FULL_FRAME_BYTES) -> list[str]:
    """Arguments of ``tc qdisc add … handle H:`` for a queue: kind and parameters.

    Raises
    ------
    ParameterError
        Linux lacks the algorithm, or does not support a parameter.
    """
    aqm = queue.aqm
    assert aqm is not None
    if bottleneck.scheduler == "fq":
        return _flow_queueing(aqm, queue, bottleneck, frame_bytes)
    module = kernel_module(queue)
    if module is not None:
        _packets(queue, aqm)
        return [module[0]]
    found = _KINDS.get(type(aqm))
    if found is None:
        known = ", ".join(sorted(cls.name for cls in (*_KINDS, *MODULES)))
        raise ParameterError(f"bottleneck.aqm: Linux has no {aqm.name}; it has {known}")
    return found(aqm, queue, bottleneck, frame_bytes)


def kernel_module(queue: Queue) -> tuple[str, dict[str, Any]] | None:
    """Kernel name and module parameters of a queue discipline that ``tc`` does not know; None for others."""
    aqm = queue.aqm
    assert aqm is not None
    if isinstance(aqm, KernelModule):
        return aqm.module, aqm.parameters()
    return module_parameters(aqm)


def _packets(queue: Queue, aqm: Aqm) -> list[str]:
    if queue.buffer_packets is None or queue.buffer_bytes is not None:
        raise ParameterError(
            f"bottleneck.buffer_packets: {aqm.name} in Linux is limited in packets, not in bytes"
        )
    return ["limit", str(queue.buffer_packets)]


def _fixed(aqm: Aqm, **values: object) -> None:
    """Check parameters that have a fixed value in Linux (or one of several)."""
    for name, allowed in values.items():
        given = getattr(aqm, name)
        choices = allowed if isinstance(allowed, tuple) else (allowed,)
        if given not in choices:
            raise ParameterError(
                f"bottleneck.aqm.{name}: {given!r}, but {aqm.name} in Linux has {choices[-1]!r}"
            )


def _tail_drop(aqm: TailDrop, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    return _fifo(queue.buffer_packets, queue.buffer_bytes, "bottleneck")


def _codel(aqm: CoDel | LinuxCoDel | FqCoDel, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    _fixed(aqm, mtu_bytes=(FULL_FRAME_BYTES, frame_bytes))
    words = [
        "codel",
        *_packets(queue, aqm),
        "target",
        _microseconds(aqm.target_ms),
        "interval",
        _microseconds(aqm.interval_ms),
    ]
    return [*words, "ecn", *_ce_threshold(aqm)]


def _ce_threshold(aqm: Aqm) -> list[str]:
    threshold_ms = getattr(aqm, "ce_threshold_ms", 0.0)
    return ["ce_threshold", _microseconds(threshold_ms)] if threshold_ms else []


def _flow_queueing(aqm: Aqm, queue: Queue, b: Bottleneck, frame_bytes: int) -> list[str]:
    numbers = ["flows", str(b.fq_queues), "quantum", str(b.quantum_bytes)]
    if type(aqm) in (CoDel, LinuxCoDel, FqCoDel):
        assert isinstance(aqm, CoDel | LinuxCoDel)
        # the limit is in packets; Linux's additional limit of memory is set too high to matter
        codel = _codel(aqm, queue, b, frame_bytes)[1:]
        return ["fq_codel", *codel, *numbers, "memory_limit", "1gb"]
    if type(aqm) in (Pie, LinuxPie):
        assert isinstance(aqm, Pie | LinuxPie)
        return ["fq_pie", *_pie(aqm, queue, b, frame_bytes)[1:], *numbers, "memory_limit", "1gb"]
    raise ParameterError(
        f"bottleneck.scheduler: Linux supports fq with codel, codel_linux, fq_codel, pie or pie_linux, not {aqm.name}"
    )


def _pie(aqm: Pie | LinuxPie, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    sizes = (FULL_FRAME_BYTES, frame_bytes)
    if isinstance(aqm, Pie):
        _fixed(aqm, burst_ms=150.0, ecn_limit=0.1, derandomise=True, mean_packet_bytes=sizes)
    else:
        _fixed(aqm, burst_ms=150.0, mtu_bytes=sizes)
    gains = []
    for name in ("alpha", "beta"):
        sixteenths = getattr(aqm, name) * 16
        if sixteenths != round(sixteenths) or not 0 <= sixteenths <= 32:
            raise ParameterError(
                f"bottleneck.aqm.{name}: {getattr(aqm, name)!r}, but pie in Linux supports multiples of 1/16 up to 2"
            )
        gains += [name, str(round(sixteenths))]
    return [
        "pie",
        *_packets(queue, aqm),
        "target",
        _microseconds(aqm.target_ms),
        "tupdate",
        _microseconds(aqm.update_ms),
        *gains,
        "ecn",
    ]


def _red(aqm: Red, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    if aqm.gentle:
        raise ParameterError(
            "bottleneck.aqm.gentle: true, but red in Linux is not gentle: set gentle = false"
        )
    _fifo(queue.buffer_packets, queue.buffer_bytes, "bottleneck")  # for its child, which has the buffer
    mean = aqm.mean_packet_bytes
    low, high = round(aqm.min_packets * mean), round(aqm.max_packets * mean)
    words = ["red", "limit", str(2 * high), "min", str(low), "max", str(high), "avpkt", str(mean)]
    words += ["burst", str(_red_burst(aqm, low, mean)), "bandwidth", f"{round(link.rate_mbps * 1e6)}bit"]
    words += ["probability", f"{aqm.max_probability:.9f}", "ecn"]
    return [*words, "harddrop"] if aqm.hard_drop else words


def _red_burst(aqm: Red, low: int, mean: int) -> int:
    """The ``burst`` for which ``tc`` chooses the desired weight.

    ``tc`` chooses the first of 1/2, 1/4, … for which an average that starts at zero is still below the lower threshold
    after `burst` packets (Floyd and Jacobson 1993, equation 3).
    """
    weight = aqm.weight

    def chosen(burst: int) -> float:
        above = burst + 1 - low / mean
        w = 0.5
        while w > 2**-31 and above > (1 - (1 - w) ** burst) / w:
            w /= 2
        return w if above >= 1 else 1.0

    burst = max(-(-low // mean), 1)
    while chosen(burst) > weight * 2**0.5:  # rounded to the nearest power
        burst += 1
    if chosen(burst) < weight / 2**0.5:
        raise ParameterError(
            f"bottleneck.aqm.weight: {weight!r} cannot be expressed in tc with min_packets {aqm.min_packets:g}"
        )
    return burst


def _dualpi2(aqm: DualPi2 | LinuxDualPi2, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    if isinstance(aqm, DualPi2):
        _fixed(aqm, range_ms=0.0)
    else:
        _fixed(aqm, mtu_bytes=(FULL_FRAME_BYTES, frame_bytes))
    # the limit is in packets; Linux's additional limit of memory is set too high to matter
    words = ["dualpi2", *_packets(queue, aqm), "memlimit", "1073741824"]
    words += ["target", _microseconds(aqm.target_ms), "tupdate", _microseconds(aqm.update_ms)]
    words += [
        "alpha",
        f"{aqm.alpha:.6f}",
        "beta",
        f"{aqm.beta:.6f}",
        "step_thresh",
        _microseconds(aqm.step_ms),
    ]
    if aqm.coupling != round(aqm.coupling):
        raise ParameterError(
            f"bottleneck.aqm.coupling: {aqm.coupling!r}, but dualpi2 in Linux supports only whole numbers"
        )
    words += ["coupling_factor", str(round(aqm.coupling)), "min_qlen_step", str(aqm.min_backlog_packets)]
    return words if getattr(aqm, "drop_overload", True) else [*words, "overflow"]


def _sfb(aqm: Sfb, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    return ["sfb", *_packets(queue, aqm), "target", str(aqm.target_packets), "max", str(aqm.max_packets)]


def _choke(aqm: Choke, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    thresholds = ["min", str(aqm.min_packets), "max", str(aqm.max_packets)]
    return ["choke", *_packets(queue, aqm), "bandwidth", "1gbit", *thresholds, "probability",
            f"{aqm.max_probability:.9f}", "ecn"]  # fmt: skip


def _cake(aqm: Cake, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    if queue.buffer_bytes is None or queue.buffer_packets is not None:
        raise ParameterError("bottleneck.buffer_bytes: cake in Linux is limited in bytes, not in packets")
    return ["cake", "unlimited", "rtt", _microseconds(aqm.rtt_ms), "memlimit", str(queue.buffer_bytes)]


def _fq_pie(aqm: FqPie, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    words = [
        "fq_pie",
        *_packets(queue, aqm),
        "flows",
        str(aqm.queues),
        "target",
        _microseconds(aqm.target_ms),
    ]
    return [*words, "tupdate", _microseconds(aqm.update_ms), "memory_limit", "1gb", "ecn"]


def _fq(aqm: Fq, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    return ["fq", *_packets(queue, aqm), "flow_limit", str(queue.buffer_packets)]


def _sfq(aqm: Sfq, queue: Queue, link: Bottleneck, frame_bytes: int) -> list[str]:
    return ["sfq", *_packets(queue, aqm), "perturb", str(aqm.perturb_s)]


_KINDS: dict[type[Aqm], Callable[..., list[str]]] = {
    TailDrop: _tail_drop,
    CoDel: _codel,
    LinuxCoDel: _codel,
    FqCoDel: _codel,
    Pie: _pie,
    LinuxPie: _pie,
    Red: _red,
    DualPi2: _dualpi2,
    LinuxDualPi2: _dualpi2,
    Fq: _fq,
    Sfq: _sfq,
    Cake: _cake,
    Sfb: _sfb,
    FqPie: _fq_pie,
    Choke: _choke,
}
