"""What to run: a bottleneck, the flows through it, for how long, with which seed. Nothing here says on what.

A :class:`Scenario` is data: the simulator and the testbed read the same one, and it goes to TOML and back.
Times are since the
start of the run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._support.arguments import MANY, number, whole
from ..aqm import Aqm, TailDrop
from ..cca import Cca
from ..errors import ParameterError

__all__ = ["Bottleneck", "Flow", "Queue", "Scenario", "read_scenario", "read_sweep", "sweep"]

LINKS = ("wire", "shaper")
SCHEDULERS = ("fifo", "drr", "priority", "fq", "dual_wrr", "dual_ts")
ECN_MODES = ("off", "classic", "accurate", "l4s")
#: Flow.cca of traffic without congestion control.
UDP = "udp"
#: Fields of a flow that may be None.
_OPTIONAL = ("access_mbps", "stop_s", "bytes", "rate_mbps", "on_s", "off_s", "queue")


#: The longest time, in the unit of the field (31 years, or 11 days in milliseconds): nanoseconds stay far from 2**63.
LONG = 1e9
#: Mbit/s: from one bit to 10**15 bits a second.
RATE = {"above": 0.0, "low": 1e-6, "high": 1e9}
WEIGHT = {"above": 0.0, "low": 1e-3, "high": 1e6}


def _text(where: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ParameterError(f"{where}: {value!r} is not text")


def _listed(where: str, value: Any, kind: str) -> tuple[Any, ...]:
    if not isinstance(value, str | bytes | Mapping):
        with contextlib.suppress(TypeError):
            return tuple(value)
    raise ParameterError(f"{where}: must be a list of {kind}")


def _one_of(where: str, value: Any, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"{where}: {value!r} is none of {', '.join(choices)}")


def _algorithm(where: str, value: Any, base: type) -> Any:
    """An algorithm from itself, its class, its name, or a mapping with its name and parameters."""
    if isinstance(value, base):
        return value
    if isinstance(value, type) and issubclass(value, base):
        return value()
    parameters: dict[str, Any] = {}
    if isinstance(value, Mapping):
        parameters = dict(value)
        value = parameters.pop("name", None)
    known: dict[str, Any] = base.registry  # type: ignore[attr-defined]
    if not isinstance(value, str) or value not in known:
        raise ParameterError(f"{where}: {value!r} is not known; there are {', '.join(sorted(known))}")
    cls = known[value]
    allowed = [f.name for f in dataclasses.fields(cls)]
    for name in parameters:
        if name not in allowed:
            raise ParameterError(
                f"{where}.{name}: {value} has no such parameter; it has {', '.join(allowed) or 'none'}"
            )
    return cls(**parameters)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """One queue of the bottleneck.

    Parameters
    ----------
    buffer_packets, buffer_bytes : int, optional
        Room for packets waiting; what is not given is the bottleneck's.
    aqm : Aqm, class, name or mapping, optional
        What is not given is the bottleneck's.
    weight : float
        Share of the rate under ``scheduler="drr"`` and the dual schedulers, relative to the others'.
    max_rate_mbps : float, optional
        Never send faster than this from this queue, even on an idle link (hard shaping, not work conserving).
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


#: Of the dual schedulers when nobody says otherwise: low latency and classic, weights of RFC 9332.
_DUAL_QUEUES = (Queue(weight=9.0), Queue(weight=1.0))


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """The link all flows share, and what waits before it.

    Parameters
    ----------
    rate_mbps : float
        Of all bytes of a frame (Ethernet header included), 10**6 bit/s.
    buffer_packets, buffer_bytes : int, optional
        Room for packets waiting, in each queue; both may be given. At least one is needed for each queue (under
        "fq" it is
        the room of all queues together).
    aqm : Aqm, class, name or mapping
        Of each queue that names no other.
    scheduler : str, optional
        ``"fifo"`` (one queue), ``"drr"`` (deficit round robin by weight, work conserving), ``"priority"``
        (queue 0 first), ``"fq"``
        (flow queueing as in RFC 8290), ``"dual_wrr"`` and ``"dual_ts"`` (two queues, 0 for low latency and 1
        for classic: weighted
        round robin or time-shifted FIFO, RFC 9332). Without it: what the AQM comes with, else ``"drr"`` with
        several queues, ``"fifo"`` with one.
    queues : sequence of Queue
        Without them there is one (two under the dual schedulers).
    quantum_bytes : int
        What a queue of weight 1 may send in a turn of ``"drr"`` and ``"fq"``.
    time_shift_ms : float
        Head start of queue 0 under ``"dual_ts"``.
    fq_queues : int
        Number of queues of ``"fq"``; flows go to them by number modulo this, so they collide only when there
        are more flows.
    rate_schedule : sequence of (time_s, rate_mbps)
        The rate changes at these times.
    link : str
        ``"wire"``: a packet has left when its last byte has. ``"shaper"``: as a rate limiter does it (Linux's htb, a
        testbed), a packet leaves at once and the next is held back until the rate allows it; the senders' own links
        (`Flow.access_mbps`) are then limited likewise. A testbed has only the latter, whatever is said here.
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
        if self.scheduler == "fq" and n:
            raise ParameterError("bottleneck.queues: scheduler fq makes its own (fq_queues)")
        for i, queue in enumerate(self.queues or (Queue(),)):
            if all(
                x is None
                for x in (queue.buffer_packets, queue.buffer_bytes, self.buffer_packets, self.buffer_bytes)
            ):
                raise ParameterError(
                    f"bottleneck.buffer_packets: queue {i} has no size (buffer_packets or buffer_bytes)"
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
                raise ParameterError(f"{where}: {entry!r} is not (time_s, rate_mbps)")
            at_s = number(f"{where}.time_s", entry[0], high=LONG)
            rate = number(f"{where}.rate_mbps", entry[1], **RATE)
            if schedule and at_s < schedule[-1][0]:
                raise ParameterError(f"{where}.time_s: {at_s!r} is before the one above")
            schedule.append((at_s, rate))
        put(self, "rate_schedule", tuple(schedule))

    def queue_list(self) -> tuple[Queue, ...]:
        """The queues with everything filled in that they leave to the bottleneck."""
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
    """One flow, or `count` equal ones; the initiator sends the data.

    Parameters
    ----------
    cca : Cca, class, name or mapping
        Congestion control; ``"udp"`` for traffic without one (then `rate_mbps` is needed).
    rtt_ms : float
        Base round-trip time: all delays but queueing and the time packets take to be sent.
    start_s, stop_s : float
        When it begins, and when the application stops writing (what was written is still delivered).
    bytes : int, optional
        Payload to send; without it, no end.
    ecn : str, optional
        ``"off"``, ``"classic"``, ``"accurate"`` or ``"l4s"`` (see :class:`cctoolkit.cca.Cca`); without it, what
        the congestion control wants.
        True and False are classic and off.
    access_ms : float
        The part of the one-way delay before the bottleneck, both ways; the rest is after it.
    access_mbps : float, optional
        Rate of the sender's own link to the bottleneck, of all bytes of a frame; without it, it never limits.
    rate_mbps : float, optional
        What the application writes, in bytes on the wire; without it, as much as can be sent. Needed for UDP.
    arrivals : str
        ``"cbr"`` or ``"poisson"``: how packets of UDP are spaced.
    on_s, off_s : float, optional
        The application writes for `on_s`, pauses for `off_s`, and so on; both or neither.
    on_off : str
        ``"fixed"``, or ``"exponential"``: these are means.
    queue : int, optional
        Number of the bottleneck's queue; without it queue 0, under the dual schedulers by ECN codepoint, under
        "fq" by flow.
    aggregate : int
        Group it belongs to, for AQMs that share among groups.
    packet_bytes : int
        Of a full packet on the wire: 14 Ethernet, 20 IPv4, 32 TCP with timestamps (8 UDP), rest payload.
    loss : float
        Probability with which a packet that has left the bottleneck is lost on the way to the receiver.
    jitter_ms : float
        Up to this much (uniform) is added to the delay after the bottleneck; packets stay in order.
    initial_window : int
        Packets (RFC 6928).
    max_window : int
        Packets the receiver's window has room for.
    delayed_ack : int
        Packets in order that one acknowledgement answers (RFC 5681: 2), or 40 ms after the first.
    quick_acks : int
        The connection's first so many packets are acknowledged one by one (Linux: up to 16, and more where the
        application wrote in pieces).
    min_rto_ms : float
        200 ms as in Linux (RFC 6298 says 1 s).
    count : int
        So many flows like this one.
    name : str
        For tables and plots; without it, the congestion control's.
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
        _text("flow.name", self.name)

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
                f"flow.access_ms: {self.access_ms!r} both ways is more than rtt_ms {self.rtt_ms!r}"
            )
        set_number("access_mbps", **RATE)
        set_number("start_s")
        set_number("stop_s", above=self.start_s)
        set_whole("bytes", low=1, high=2**60)
        set_number("rate_mbps", **RATE)
        if self.is_udp and self.rate_mbps is None:
            raise ParameterError("flow.rate_mbps: UDP needs one")
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
        """Without congestion control."""
        return isinstance(self.cca, str)

    @property
    def cca_name(self) -> str:
        """``"udp"``, or the congestion control's name."""
        return UDP if self.is_udp else self.cca.name

    @property
    def label(self) -> str:
        """The name, or the congestion control's."""
        return self.name or self.cca_name


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What to run.

    Parameters
    ----------
    bottleneck : Bottleneck
    flows : sequence of Flow
    duration_s : float
        To the nanosecond.
    seed : int
        Of everything random. The same scenario with the same seed and version gives the same packets in the simulator.
    name : str
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
            raise ParameterError("flows: there are none")
        n = len(self.bottleneck.queue_list())
        for i, flow in enumerate(self.flows):
            if not isinstance(flow, Flow):
                raise ParameterError(f"flows[{i}]: {flow!r} is not a Flow")
            if flow.queue is not None and flow.queue >= n:
                raise ParameterError(
                    f"flows[{i}].queue: {flow.queue} is not there; the bottleneck has {n}, from 0"
                )
        number("duration_s", self.duration_s, above=0, low=1e-9, high=LONG)
        # to the nanosecond, so that a clock of whole nanoseconds gets there
        put(self, "duration_s", round(self.duration_s * 1e9) / 1e9)
        put(self, "seed", whole("seed", self.seed, high=2**63 - 1))
        _text("name", self.name)

    def flow_list(self) -> list[Flow]:
        """One entry a flow: `count` written out."""
        return [dataclasses.replace(f, count=1) for f in self.flows for _ in range(f.count)]

    def replace(self, changes: Mapping[str, Any]) -> Scenario:
        """A scenario with some fields changed, named by paths.

        Parameters
        ----------
        changes : mapping
            Such as ``{"bottleneck.aqm.target_ms": 10, "flows.0.rtt_ms": 40, "flows.*.cca": "reno", "seed": 3}``.

        Raises
        ------
        ParameterError
            No such field.
        """
        out: Any = self
        for path, value in changes.items():
            out = _replaced(out, path.split("."), value, path)
        return out

    def to_dict(self) -> dict[str, Any]:
        """As nested dicts, lists and plain values, without what has its default."""
        return plain(self)

    def to_toml(self) -> str:
        """As TOML text that :func:`read_scenario` reads."""
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
    names = [f.name for f in dataclasses.fields(obj)] if dataclasses.is_dataclass(obj) else []
    if key not in names:
        raise ParameterError(f"{whole}: there is no {key!r}; there are {', '.join(names) or 'no fields'}")
    changed = {key: _replaced(getattr(obj, key), rest, value, whole)}
    if isinstance(obj, Bottleneck) and key == "aqm" and not rest:
        changed |= _scheduler_left_to_aqm(obj)
    return dataclasses.replace(obj, **changed)


def _scheduler_left_to_aqm(bottleneck: Bottleneck) -> dict[str, Any]:
    """For another AQM: forget the scheduler that came with the present one, but not one that was asked for."""
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
            raise ParameterError(f"{where}.{key}: no such field; there are {', '.join(names)}")
    try:
        return cls(**table)
    except TypeError as err:  # a field without default is missing
        raise ParameterError(f"{where}: {str(err).split('__init__() ')[-1]}") from None
    except ParameterError as err:
        if cls is Scenario:  # its fields are the whole path
            raise
        kind = cls.__name__.lower()
        text = str(err)
        raise ParameterError(
            where + text.removeprefix(kind) if text.startswith(f"{kind}.") else f"{where}: {text}"
        ) from None


def scenario_of(table: Mapping[str, Any]) -> Scenario:
    """A scenario from nested mappings, as TOML gives them.

    Raises
    ------
    ParameterError
        Names the field.
    """
    bottleneck = table.get("bottleneck", {})
    if isinstance(bottleneck, Mapping) and "queues" in bottleneck:
        listed = _listed("bottleneck.queues", bottleneck["queues"], "tables")
        queues = tuple(_built(Queue, q, f"bottleneck.queues[{i}]") for i, q in enumerate(listed))
        bottleneck = {**bottleneck, "queues": queues}
    if "flows" not in table:
        raise ParameterError("flows: there are none")
    listed = _listed("flows", table["flows"], "tables")
    flows = tuple(_built(Flow, f, f"flows[{i}]") for i, f in enumerate(listed))
    return _built(
        Scenario,
        {**table, "bottleneck": _built(Bottleneck, bottleneck, "bottleneck"), "flows": flows},
        "scenario",
    )


def _load(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as err:
        raise ParameterError(f"{os.fspath(path)}: {err.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ParameterError(f"{os.fspath(path)}: not TOML: {err}") from None


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """A scenario from a TOML file; a ``[sweep]`` in it is left out.

    Raises
    ------
    ParameterError
        Names the file and the field.
    """
    table = _load(path)
    table.pop("sweep", None)
    try:
        return scenario_of(table)
    except ParameterError as err:
        raise ParameterError(f"{os.fspath(path)}: {err}") from None


def sweep(scenario: Scenario, grid: Mapping[str, Iterable[Any]]) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """All combinations of changes to a scenario.

    Parameters
    ----------
    scenario : Scenario
    grid : mapping
        Values by path, as :meth:`Scenario.replace` takes them; the last one varies fastest.

    Yields
    ------
    (dict, Scenario)
        What was changed, and the scenario.
    """
    values = {
        path: list(v) if isinstance(v, Iterable) and not isinstance(v, str | Mapping) else [v]
        for path, v in grid.items()
    }
    values = {path: [x.item() if isinstance(x, np.generic) else x for x in v] for path, v in values.items()}
    for combination in itertools.product(*values.values()):
        changes = dict(zip(values, combination, strict=True))
        yield changes, scenario.replace(changes)


def read_sweep(path: str | os.PathLike[str]) -> list[tuple[dict[str, Any], Scenario]]:
    """The scenarios of a TOML file with a ``[sweep]`` table (paths in quotes, lists of values); without one, one.

    Raises
    ------
    ParameterError
        Names the file and the field.
    """
    grid = _load(path).get("sweep", {})
    if not isinstance(grid, Mapping):
        raise ParameterError(f"{os.fspath(path)}: sweep: must be a table of lists by path")
    return list(sweep(read_scenario(path), grid))
