"""Scenarios: a bottleneck, the flows through it, a duration and a seed, independent of what runs them.

A :class:`Scenario` is data: simulator and testbed read the same one, and it converts to TOML and back. Times count
from the start of the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._support.algorithm.kernel_module import PREFIX, KernelModule, built_in
from .._support.arguments import MANY, number, short_text, shown, whole
from .._support.words import did_you_mean
from ..aqm import Aqm, KernelModule as AqmModule, TailDrop
from ..cca import Cca, KernelModule as CcaModule
from ..errors import ParameterError

__all__ = ["Bottleneck", "Flow", "Queue", "Scenario", "scenario_of", "sweep"]

LINKS = ("wire", "shaper")
SCHEDULERS = ("fifo", "drr", "priority", "fq", "dual_wrr", "dual_ts")
ECN_MODES = ("off", "classic", "accurate", "l4s")
#: The value of Flow.cca for traffic without congestion control.
UDP = "udp"
#: In changes of a scenario: the number of the repetition.
REPETITION = "repetition"
#: Fields of a flow that may be None.
_OPTIONAL = ("access_mbps", "stop_s", "bytes", "rate_mbps", "on_s", "off_s", "queue")


#: The longest time in the unit of the field (31 years, or 11 days in ms), to keep nanoseconds far from 2**63.
LONG = 1e9
#: Range of rates in Mbit/s: from one bit to 10**15 bits per second.
RATE = {"above": 0.0, "low": 1e-6, "high": 1e9}
#: Most scenarios of a sweep: all are built before the first is run.
MOST_RUNS = 100_000
WEIGHT = {"above": 0.0, "low": 1e-3, "high": 1e6}


def _listed(where: str, value: Any, kind: str) -> tuple[Any, ...]:
    if not isinstance(value, str | bytes | Mapping):
        with contextlib.suppress(TypeError):
            return tuple(value)
    raise ParameterError(f"{where}: must be a list of {kind}")


def _one_of(where: str, value: Any, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"{where}: {shown(value)} must be one of {', '.join(choices)}")


def _algorithm(where: str, value: Any, base: type) -> Any:
    """An algorithm, given as an instance, a class, a name, or a mapping with name and parameters."""
    if isinstance(value, base):
        return value
    if isinstance(value, type) and issubclass(value, base):
        return value()
    parameters: dict[str, Any] = {}
    if isinstance(value, Mapping):
        parameters = dict(value)
        value = parameters.pop("name", None)
    known: dict[str, Any] = base.registry  # type: ignore[attr-defined]
    module = _kernel_module(value, base, known)
    if module is not None:
        return module(tuple(parameters.items()))
    if not isinstance(value, str) or value not in known:
        raise ParameterError(
            f"{where}: {shown(value)} is unknown; expected one of {', '.join(sorted(known))}"
            f"{did_you_mean(value, known)}"
        )
    cls = known[value]
    allowed = [f.name for f in dataclasses.fields(cls)]
    for name in parameters:
        if name not in allowed:
            raise ParameterError(
                f"{where}.{name}: {value} has no such parameter; its parameters are {', '.join(allowed) or 'none'}"
            )
    return cls(**parameters)


def _kernel_module(name: Any, base: type, known: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """The class for an algorithm of the user's own kernel: ``linux:NAME``, or a name found there."""
    if not isinstance(name, str) or name in known:
        return None
    cls, kind = (AqmModule, "qdiscs") if base is Aqm else (CcaModule, "ccas")
    if name.startswith(PREFIX) or name in built_in(kind):
        return functools.partial(cls, name.removeprefix(PREFIX))
    return None


@dataclass(frozen=True, kw_only=True)
class Queue:
    """One queue of the bottleneck.

    Parameters
    ----------
    buffer_packets, buffer_bytes : int, optional
        Size of the buffer; by default that of the bottleneck.
    aqm : Aqm, class, name or mapping, optional
        Queue management; by default that of the bottleneck.
    weight : float
        Relative share of the rate with ``scheduler="drr"`` and the dual schedulers.
    max_rate_mbps : float, optional
        Upper limit of the queue's rate in Mbit/s, even on an idle link (shaping, not work conserving).

    See Also
    --------
    Bottleneck : which the queue belongs to
    cctoolkit.aqm : the AQMs

    Examples
    --------
    Three quarters of the link for queue 0:

    >>> queues = [cct.Queue(weight=3), cct.Queue(weight=1)]
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50, queues=queues)
    >>> flows = [cct.Flow("cubic", rtt_ms=20, queue=0), cct.Flow("cubic", rtt_ms=20, queue=1)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=2))
    >>> run.flows["goodput_mbps"].round(1).tolist()
    [7.1, 2.4]
    """

    buffer_packets: int | None = None
    buffer_bytes: int | None = None
    aqm: Aqm | None = None
    weight: float = 1.0
    max_rate_mbps: float | None = None

    def __post_init__(self) -> None:
        _check_buffer(self, "queue")
        put = object.__setattr__
        put(self, "weight", number("queue.weight", self.weight, **WEIGHT))
        if self.max_rate_mbps is not None:
            put(self, "max_rate_mbps", number("queue.max_rate_mbps", self.max_rate_mbps, **RATE))
        if self.aqm is not None:
            object.__setattr__(self, "aqm", _algorithm("queue.aqm", self.aqm, Aqm))


def _check_buffer(owner: Any, where: str) -> None:
    for name in ("buffer_packets", "buffer_bytes"):
        if getattr(owner, name) is not None:
            object.__setattr__(owner, name, whole(f"{where}.{name}", getattr(owner, name), low=1))


#: Default queues of the dual schedulers: low latency and classic, with the weights of RFC 9332.
_DUAL_QUEUES = (Queue(weight=9.0), Queue(weight=1.0))


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """The link that all flows share, and its queues.

    Parameters
    ----------
    rate_mbps : float
        Rate of the link in 10**6 bit/s, counting all bytes of a frame including the Ethernet header.
    buffer_packets, buffer_bytes : int, optional
        Size of the buffer of each queue, or of all queues together with scheduler ``"fq"``. At least one of the two is
        required; with both, both apply.
    aqm : Aqm, class, name or mapping
        Queue management of each queue that does not set its own.
    scheduler : str, optional
        ``"fifo"`` (one queue), ``"drr"`` (deficit round robin by weight, work conserving), ``"priority"`` (queue 0
        first), ``"fq"`` (flow queueing as in RFC 8290), ``"dual_wrr"`` or ``"dual_ts"`` (queue 0 for low latency
        and queue 1 for classic traffic, by weighted round robin or time-shifted FIFO, RFC 9332). Default: the
        scheduler of the AQM if it has one, else ``"drr"`` with several queues and ``"fifo"`` with one.
    queues : sequence of Queue
        By default a single queue (two with the dual schedulers).
    quantum_bytes : int
        Bytes that a queue of weight 1 may send per turn of ``"drr"`` and ``"fq"``.
    time_shift_ms : float
        Head start of queue 0 with ``"dual_ts"``, in ms.
    fq_queues : int
        Number of queues of ``"fq"``. Flows are assigned by number modulo this, so they collide only if there are more
        flows than queues.
    rate_schedule : sequence of (time_s, rate_mbps)
        Changes of the rate; :func:`cctoolkit.read_link_trace` has those of a recorded link.
    link : str
        ``"wire"``: a packet leaves once its last byte is sent. ``"shaper"``: as in a rate limiter (Linux's htb, a
        testbed), a packet leaves at once and the next is held back until the rate allows it; links of senders
        (`Flow.access_mbps`) then work likewise. A testbed always behaves like a shaper.

    See Also
    --------
    Scenario : a bottleneck and its flows
    Queue : a queue with its own buffer, AQM or weight
    cctoolkit.aqm : the AQMs

    Examples
    --------
    >>> bottleneck = cct.Bottleneck(rate_mbps=100, buffer_packets=1000, aqm="fq_codel")
    >>> bottleneck.scheduler
    'fq'
    """

    rate_mbps: float
    buffer_packets: int | None = None
    buffer_bytes: int | None = None
    aqm: Aqm = field(default_factory=TailDrop)
    scheduler: str | None = None
    queues: tuple[Queue, ...] = ()
    quantum_bytes: int = 1514
    time_shift_ms: float = 50.0
    fq_queues: int = 1024
    rate_schedule: tuple[tuple[float, float], ...] = ()
    link: str = "wire"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "rate_mbps", number("bottleneck.rate_mbps", self.rate_mbps, **RATE))
        _check_buffer(self, "bottleneck")
        put(self, "aqm", _algorithm("bottleneck.aqm", self.aqm, Aqm))
        put(self, "queues", _listed("bottleneck.queues", self.queues, "Queue"))
        if not all(isinstance(q, Queue) for q in self.queues):
            raise ParameterError("bottleneck.queues: must be a list of Queue")
        if self.scheduler is None:
            put(self, "scheduler", self.aqm.scheduler or ("drr" if len(self.queues) > 1 else "fifo"))
        _one_of("bottleneck.scheduler", self.scheduler, SCHEDULERS)
        _one_of("bottleneck.link", self.link, LINKS)
        dual = self.scheduler in ("dual_wrr", "dual_ts")
        if dual and not self.queues:
            put(self, "queues", _DUAL_QUEUES)
        n = len(self.queues)
        if self.scheduler == "fifo" and n > 1:
            raise ParameterError(f"bottleneck.queues: {n} queues, but scheduler fifo has one")
        if dual and n != 2:
            raise ParameterError(f"bottleneck.queues: {n} queues, but scheduler {self.scheduler} has two")
        for aqm in (self.aqm, *(queue.aqm for queue in self.queues if queue.aqm is not None)):
            if (aqm.scheduler or "").startswith("dual") and n != 2:
                there = "its own queues" if self.scheduler == "fq" else f"{max(n, 1)}"
                raise ParameterError(
                    f"bottleneck.aqm: {aqm.name} couples two queues, but scheduler {self.scheduler} has {there}"
                )
        if self.scheduler == "fq" and n:
            raise ParameterError("bottleneck.queues: scheduler fq makes its own queues (fq_queues)")
        for i, queue in enumerate(self.queues or (Queue(),)):
            if all(
                x is None
                for x in (queue.buffer_packets, queue.buffer_bytes, self.buffer_packets, self.buffer_bytes)
            ):
                raise ParameterError(
                    f"bottleneck.buffer_packets: queue {i} needs a size (buffer_packets or buffer_bytes)"
                )
        quantum = whole("bottleneck.quantum_bytes", self.quantum_bytes, low=64)
        put(self, "quantum_bytes", quantum)
        put(self, "fq_queues", whole("bottleneck.fq_queues", self.fq_queues, low=1, high=65536))
        put(self, "time_shift_ms", number("bottleneck.time_shift_ms", self.time_shift_ms, high=LONG))
        schedule: list[tuple[float, float]] = []
        for i, entry in enumerate(
            _listed("bottleneck.rate_schedule", self.rate_schedule, "[time_s, rate_mbps]")
        ):
            where = f"bottleneck.rate_schedule[{i}]"
            if isinstance(entry, str | bytes) or not isinstance(entry, Sequence) or len(entry) != 2:
                raise ParameterError(f"{where}: {shown(entry)} must be (time_s, rate_mbps)")
            at_s = number(f"{where}.time_s", entry[0], high=LONG)
            rate = number(f"{where}.rate_mbps", entry[1], **RATE)
            if schedule and at_s < schedule[-1][0]:
                raise ParameterError(f"{where}.time_s: {at_s!r} is before the previous one")
            schedule.append((at_s, rate))
        put(self, "rate_schedule", tuple(schedule))

    def queue_list(self) -> tuple[Queue, ...]:
        """The queues, with defaults of the bottleneck filled in."""
        n = self.fq_queues if self.scheduler == "fq" else 1
        return tuple(
            Queue(
                buffer_packets=q.buffer_packets or (None if q.buffer_bytes else self.buffer_packets),
                buffer_bytes=q.buffer_bytes or (None if q.buffer_packets else self.buffer_bytes),
                aqm=q.aqm if q.aqm is not None else self.aqm,
                weight=q.weight,
                max_rate_mbps=q.max_rate_mbps,
            )
            for q in self.queues or (Queue(),) * n
        )


@dataclass(frozen=True)
class Flow:
    """One flow, or `count` equal flows; the initiator sends the data.

    Parameters
    ----------
    cca : Cca, class, name or mapping
        Congestion control, or ``"udp"`` for traffic without one (which requires `rate_mbps`).
    rtt_ms : float
        Base RTT in ms: all delays except queueing and transmission.
    start_s, stop_s : float
        Start of the flow, and when the application stops writing (what is written will still be delivered), in s.
    bytes : int, optional
        Payload to send in bytes; unlimited by default.
    ecn : str, optional
        ``"off"``, ``"classic"``, ``"accurate"`` or ``"l4s"`` (see :class:`cctoolkit.cca.Cca`), by default what the
        congestion control prefers. True and False mean classic and off.
    access_ms : float
        One-way delay between sender and bottleneck in ms, in both directions; the rest of the path is behind the
        bottleneck.
    access_mbps : float, optional
        Rate of the sender's link to the bottleneck in Mbit/s, counting all bytes of a frame; unlimited by default.
    rate_mbps : float, optional
        Rate at which the application writes, in Mbit/s on the wire; unlimited by default. Required for UDP.
    arrivals : str
        Spacing of UDP packets: ``"cbr"`` or ``"poisson"``.
    on_s, off_s : float, optional
        The application writes for `on_s`, pauses for `off_s`, and so on, in s; give both or neither.
    on_off : str
        ``"fixed"``, or ``"exponential"`` with these means.
    queue : int, optional
        Queue of the bottleneck; by default queue 0, with the dual schedulers by ECN codepoint, with ``"fq"`` by flow.
    aggregate : int
        Group of the flow, for AQMs that share the link among groups.
    packet_bytes : int
        Size of a full packet on the wire: 14 Ethernet, 20 IPv4, 32 TCP with timestamps (8 UDP), rest payload.
    loss : float
        Probability that a packet is lost between bottleneck and receiver.
    jitter_ms : float
        Largest additional delay behind the bottleneck in ms (uniform); packets stay in order.
    initial_window : int
        Initial window in packets (RFC 6928).
    max_window : int
        Receive window in packets.
    delayed_ack : int
        Packets in order per acknowledgement (RFC 5681: 2), unless 40 ms pass after the first. On real Linux (backend
        ``uml`` only), more than 2 is the most that the receiver merges (GRO) of packets less than 0.1 ms apart.
    quick_acks : int
        Number of packets at the start that are acknowledged one by one (Linux: up to 16, and more if the application
        writes in pieces).
    min_rto_ms : float
        Minimum retransmission timeout in ms: 200 as in Linux (RFC 6298: 1 s).
    count : int
        Number of such flows.
    name : str
        Name in tables and plots; by default that of the congestion control.

    See Also
    --------
    Scenario : a bottleneck and its flows
    cctoolkit.cca : the congestion controls

    Examples
    --------
    >>> flow = cct.Flow("bbr", rtt_ms=40, bytes=1_000_000)
    >>> flow.cca_name, flow.is_udp
    ('bbr', False)
    >>> cct.Flow("udp", rate_mbps=5).label
    'udp'
    """

    cca: Any = "cubic"
    _: dataclasses.KW_ONLY
    rtt_ms: float = 20.0
    start_s: float = 0.0
    stop_s: float | None = None
    bytes: int | None = None
    ecn: str | bool | None = None
    access_ms: float = 0.0
    access_mbps: float | None = None
    rate_mbps: float | None = None
    arrivals: str = "cbr"
    on_s: float | None = None
    off_s: float | None = None
    on_off: str = "fixed"
    queue: int | None = None
    aggregate: int = 0
    packet_bytes: int = 1514
    loss: float = 0.0
    jitter_ms: float = 0.0
    initial_window: int = 10
    max_window: int = 1_000_000
    delayed_ack: int = 2
    quick_acks: int = 16
    min_rto_ms: float = 200.0
    count: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not (isinstance(self.cca, str) and self.cca == UDP):
            put(self, "cca", _algorithm("flow.cca", self.cca, Cca))
        if isinstance(self.ecn, bool):
            put(self, "ecn", "classic" if self.ecn else "off")
        if self.ecn is None:
            put(self, "ecn", "off" if self.is_udp else self.cca.ecn)
        _one_of("flow.ecn", self.ecn, ECN_MODES)
        _one_of("flow.arrivals", self.arrivals, ("cbr", "poisson"))
        _one_of("flow.on_off", self.on_off, ("fixed", "exponential"))
        short_text("flow.name", self.name)

        def set_number(name: str, **limits: Any) -> None:
            if getattr(self, name) is not None or name not in _OPTIONAL:
                put(self, name, number(f"flow.{name}", getattr(self, name), **{"high": LONG} | limits))

        def set_whole(name: str, low: int = 0, high: float = MANY) -> None:
            if getattr(self, name) is not None or name not in _OPTIONAL:
                put(self, name, whole(f"flow.{name}", getattr(self, name), low=low, high=high))

        set_number("rtt_ms")
        set_number("access_ms")
        if 2 * self.access_ms > self.rtt_ms:
            raise ParameterError(
                f"flow.access_ms: {self.access_ms!r} in both directions exceeds rtt_ms = {self.rtt_ms!r}"
            )
        set_number("access_mbps", **RATE)
        set_number("start_s")
        set_number("stop_s", above=self.start_s)
        set_whole("bytes", low=1, high=2**60)
        set_number("rate_mbps", **RATE)
        if self.is_udp and self.rate_mbps is None:
            raise ParameterError("flow.rate_mbps: required for UDP")
        if (self.on_s is None) != (self.off_s is None):
            raise ParameterError("flow.on_s and flow.off_s: give both or neither")
        set_number("on_s", above=0)
        set_number("off_s")
        set_whole("queue")
        set_whole("aggregate", high=2**31 - 1)
        set_whole("packet_bytes", low=128, high=65535)
        set_number("loss", high=1)
        set_number("jitter_ms")
        set_whole("initial_window", low=1, high=10_000_000)
        set_whole("max_window", low=1, high=10_000_000)
        set_whole("delayed_ack", low=1)
        set_whole("quick_acks")
        set_number("min_rto_ms", above=0)
        set_whole("count", low=1, high=1_000_000)

    @property
    def is_udp(self) -> bool:
        """Whether the flow has no congestion control."""
        return isinstance(self.cca, str)

    @property
    def cca_name(self) -> str:
        """Name of the congestion control, or ``"udp"``."""
        return UDP if self.is_udp else self.cca.name

    @property
    def label(self) -> str:
        """Name of the flow, by default that of the congestion control."""
        return self.name or self.cca_name


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What to run: flows through a bottleneck.

    Parameters
    ----------
    bottleneck : Bottleneck
        The shared link.
    flows : sequence of Flow
        The flows through it.
    duration_s : float
        Duration in s, rounded to the nanosecond.
    seed : int
        Random seed. In the simulator, the same scenario, seed and version give the same packets.
    name : str
        Name of the scenario, for files and plots.

    See Also
    --------
    simulate : run a scenario in the simulator
    run_testbed : run a scenario on real Linux
    read_scenario : read a scenario from TOML
    sweep : variations of a scenario

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50, aqm="codel"),
    ...     flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("bbr", rtt_ms=20)],
    ...     duration_s=2,
    ... )
    >>> scenario.to_toml().splitlines()[2:6]
    ['[bottleneck]', 'rate_mbps = 10', 'buffer_packets = 50', 'aqm = "codel"']
    >>> scenario.replace({"flows.*.rtt_ms": 40}).flows[1].rtt_ms
    40
    """

    bottleneck: Bottleneck
    flows: tuple[Flow, ...]
    duration_s: float
    seed: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.bottleneck, Bottleneck):
            raise ParameterError("bottleneck: must be a Bottleneck")
        if isinstance(self.flows, Flow):
            object.__setattr__(self, "flows", (self.flows,))
        put = object.__setattr__
        put(self, "flows", _listed("flows", self.flows, "Flow"))
        if not self.flows:
            raise ParameterError("flows: at least one is required")
        n = len(self.bottleneck.queue_list())
        for i, flow in enumerate(self.flows):
            if not isinstance(flow, Flow):
                raise ParameterError(f"flows[{i}]: {shown(flow)} must be a Flow")
            if flow.queue is not None and flow.queue >= n:
                raise ParameterError(
                    f"flows[{i}].queue: {flow.queue} does not exist; the bottleneck has {n}, from 0"
                )
        number("duration_s", self.duration_s, above=0, low=1e-9, high=LONG)
        # to the nanosecond, so that a clock in whole nanoseconds can reach it
        put(self, "duration_s", round(self.duration_s * 1e9) / 1e9)
        put(self, "seed", whole("seed", self.seed, high=2**63 - 1))
        short_text("name", self.name)

    def flow_list(self) -> list[Flow]:
        """One entry per flow, with `count` expanded."""
        each = (f if f.count == 1 else dataclasses.replace(f, count=1) for f in self.flows)
        return [one for f, many in zip(each, self.flows, strict=True) for one in [f] * many.count]

    def replace(self, changes: Mapping[str, Any]) -> Scenario:
        """A copy with some fields changed.

        Parameters
        ----------
        changes : mapping
            Values by path, such as ``{"bottleneck.aqm.target_ms": 10, "flows.0.rtt_ms": 40, "flows.*.cca": "reno",
            "seed": 3}``; ``"repetition"`` applies :meth:`repeated` after all others.

        Raises
        ------
        ParameterError
            There is no such field.
        """
        out: Any = self
        for path, value in changes.items():
            if path != REPETITION:
                out = _replaced(out, path.split("."), value, path)
        return out.repeated(changes[REPETITION]) if REPETITION in changes else out

    def repeated(self, number: int) -> Scenario:
        """The same experiment on another day: flows start up to an RTT later, and RTTs differ by up to 2 %.

        Seeds alone do not give repetitions: where nothing draws random numbers, every seed gives the same packets.

        Parameters
        ----------
        number : int
            Number of the repetition; 0 is the scenario itself. It also changes the seed.

        Examples
        --------
        >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50)
        >>> scenario = cct.Scenario(bottleneck=bottleneck, flows=[cct.Flow("reno", rtt_ms=20)], duration_s=2)
        >>> [round(cct.simulate(scenario.repeated(n)).summary()["mean_delay_ms"], 2) for n in range(3)]
        [38.81, 38.68, 38.81]
        """
        number = whole("repetition", number, high=2**31)
        if number == 0:
            return self
        draw = np.random.default_rng([self.seed, number])
        flows = []
        for flow in self.flow_list():
            late_s, factor = draw.uniform(0, flow.rtt_ms / 1e3), draw.uniform(0.98, 1.02)
            stop_s = None if flow.stop_s is None else flow.stop_s + late_s
            moved = dataclasses.replace(flow, start_s=flow.start_s + late_s, stop_s=stop_s)
            other = dataclasses.replace(moved, rtt_ms=flow.rtt_ms * factor, access_ms=flow.access_ms * factor)
            flows.append(other)
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        return dataclasses.replace(self, flows=tuple(flows), seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Convert to nested dicts, lists and plain values, without fields that have their default."""
        return plain(self)

    def to_toml(self) -> str:
        """Convert to TOML for :func:`read_scenario`."""
        return _toml(self.to_dict())


def _replaced(obj: Any, path: list[str], value: Any, whole: str) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(obj, tuple):
        if key != "*" and not (key.isdecimal() and int(key) < len(obj)):
            raise ParameterError(f"{whole}: {key!r} is not one of {len(obj)} entries (from 0, or *)")
        chosen = range(len(obj)) if key == "*" else (int(key),)
        return tuple(_replaced(x, rest, value, whole) if i in chosen else x for i, x in enumerate(obj))
    if isinstance(obj, KernelModule):
        return obj.with_parameter(key, value)
    names = [f.name for f in dataclasses.fields(obj)] if dataclasses.is_dataclass(obj) else []
    if key not in names:
        there = f"the fields are {', '.join(names)}" if names else "there are none"
        raise ParameterError(f"{whole}: no field {key!r}; {there}")
    changed = {key: _replaced(getattr(obj, key), rest, value, whole)}
    if isinstance(obj, Bottleneck) and key == "aqm" and not rest:
        changed |= _scheduler_left_to_aqm(obj)
    return dataclasses.replace(obj, **changed)


def _scheduler_left_to_aqm(bottleneck: Bottleneck) -> dict[str, Any]:
    """For another AQM: drop the scheduler if it came with the present AQM, but not if it was set explicitly."""
    if bottleneck.scheduler != (bottleneck.aqm.scheduler or "fifo"):
        return {}
    return {"scheduler": None} | ({"queues": ()} if bottleneck.queues == _DUAL_QUEUES else {})


def plain(obj: Any) -> Any:
    if isinstance(obj, Aqm | Cca):
        given = {k: plain(v) for k, v in obj.parameters().items() if v != getattr(type(obj), k, None)}
        return {"name": obj.name, **given} if given else obj.name
    if dataclasses.is_dataclass(obj):
        out = {}
        for f in dataclasses.fields(obj):
            value = getattr(obj, f.name)
            default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            if value is not None and value != default:
                out[f.name] = plain(value)
        return out
    if isinstance(obj, tuple | list):
        return [plain(x) for x in obj]
    return obj


def _toml(tables: Mapping[str, Any], prefix: str = "") -> str:
    def inline(value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\u{ord(c[0]):04x}", escaped) + '"'
        if isinstance(value, Mapping):
            return "{ " + ", ".join(f"{k} = {inline(v)}" for k, v in value.items()) + " }"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(inline(v) for v in value) + "]"
        return repr(value)

    def is_table(key: str, value: Any) -> bool:
        return key == "bottleneck" and isinstance(value, Mapping)

    def is_tables(key: str, value: Any) -> bool:
        return key in ("flows", "queues") and isinstance(value, list)

    lines = [f"{k} = {inline(v)}" for k, v in tables.items() if not is_table(k, v) and not is_tables(k, v)]
    for key, value in tables.items():
        if is_table(key, value):
            lines += ["", f"[{prefix}{key}]", _toml(value, f"{prefix}{key}.").rstrip("\n")]
        elif is_tables(key, value):
            for entry in value:
                lines += ["", f"[[{prefix}{key}]]", _toml(entry).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _built(cls: type, table: Any, where: str) -> Any:
    if not isinstance(table, Mapping):
        raise ParameterError(f"{where}: must be a table")
    names = [f.name for f in dataclasses.fields(cls)]
    for key in table:
        if key not in names:
            raise ParameterError(f"{where}.{key}: no such field; the fields are {', '.join(names)}")
    try:
        return cls(**table)
    except TypeError as err:  # a required field is missing
        raise ParameterError(f"{where}: {str(err).split('__init__() ')[-1]}") from None
    except ParameterError as err:
        if cls is Scenario:  # its fields are complete paths
            raise
        kind = cls.__name__.lower()
        text = str(err)
        raise ParameterError(
            where + text.removeprefix(kind) if text.startswith(f"{kind}.") else f"{where}: {text}"
        ) from None


def scenario_of(table: Mapping[str, Any]) -> Scenario:
    """A scenario from nested mappings, as in TOML.

    Raises
    ------
    ParameterError
        A field is invalid; the text names it.
    """
    bottleneck = table.get("bottleneck", {})
    if isinstance(bottleneck, Mapping) and "queues" in bottleneck:
        listed = _listed("bottleneck.queues", bottleneck["queues"], "tables")
        queues = tuple(_built(Queue, q, f"bottleneck.queues[{i}]") for i, q in enumerate(listed))
        bottleneck = {**bottleneck, "queues": queues}
    if "flows" not in table:
        raise ParameterError("flows: at least one is required")
    listed = _listed("flows", table["flows"], "tables")
    flows = tuple(_built(Flow, f, f"flows[{i}]") for i, f in enumerate(listed))
    return _built(
        Scenario,
        {**table, "bottleneck": _built(Bottleneck, bottleneck, "bottleneck"), "flows": flows},
        "scenario",
    )


def sweep(scenario: Scenario, grid: Mapping[str, Iterable[Any]]) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """Yield all combinations of changes to a scenario.

    Parameters
    ----------
    scenario : Scenario
        What to vary.
    grid : mapping
        Lists of values by path, as in :meth:`Scenario.replace`; the last one varies fastest. ``"repetition"`` repeats
        each combination with other starts and slightly other RTTs.

    Yields
    ------
    (dict, Scenario)
        The changes, and the changed scenario.

    Raises
    ------
    ParameterError
        A list is empty, or there are more than 100,000 combinations.

    See Also
    --------
    run_sweep : simulate the combinations on all cores
    run_testbed_sweep : run them on real Linux

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50), flows=[cct.Flow("reno")], duration_s=2
    ... )
    >>> for changes, _ in cct.sweep(scenario, {"bottleneck.aqm": ["tail_drop", "codel"], "flows.*.rtt_ms": [10, 40]}):
    ...     print(changes)
    {'bottleneck.aqm': 'tail_drop', 'flows.*.rtt_ms': 10}
    {'bottleneck.aqm': 'tail_drop', 'flows.*.rtt_ms': 40}
    {'bottleneck.aqm': 'codel', 'flows.*.rtt_ms': 10}
    {'bottleneck.aqm': 'codel', 'flows.*.rtt_ms': 40}
    """
    values: dict[str, list[Any]] = {}
    for path, v in grid.items():
        listed = v if isinstance(v, Iterable) and not isinstance(v, str | Mapping) else [v]
        first = itertools.islice(listed, MOST_RUNS + 1)
        values[path] = [x.item() if isinstance(x, np.generic) else x for x in first]
        if not values[path]:
            raise ParameterError(f"sweep: {path}: the list is empty; give at least one value")
    runs = math.prod(map(len, values.values()))
    if runs > MOST_RUNS:
        raise ParameterError(f"sweep: {runs:,} combinations or more; at most {MOST_RUNS:,} can be run")
    return _combinations(scenario, values)


def _combinations(
    scenario: Scenario, values: Mapping[str, list[Any]]
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    for combination in itertools.product(*values.values()):
        changes = dict(zip(values, combination, strict=True))
        yield changes, scenario.replace(changes)
