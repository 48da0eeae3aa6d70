"""Router configuration for a decision: queues, their shares and buffers, and the assignment of flows.

There is a template (in ``hardware/router/``) for each kind of router: Junos (``load set``), Linux (``tc -batch``),
or your own. A :class:`Router` remembers its last configuration and writes only the changes.

Templates only get numbers, addresses parsed and formatted by :mod:`ipaddress`, and interface names of letters,
digits and ``/ . _ : -``: nothing from a capture can become a line of configuration. They run in Jinja's sandbox: a
template can read its variables, compute and write text, and has no way to files, modules or other Python.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support import arguments
from .._support.documents import read_file
from .._support.ethernet import FULL_FRAME_BYTES
from .._support.ranges import MOST_MBPS
from ..errors import CCToolkitError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from .controller import Decision

__all__ = ["KINDS", "FlowRule", "QueueRule", "Router", "flow_rules", "queue_rules"]

#: Kinds of router with a template: the template, most queues, and the pattern of interface names.
KINDS = {
    "junos": ("junos.set.j2", 8, re.compile(r"[a-z]{2,4}-\d{1,3}/\d{1,3}/\d{1,3}(:\d{1,2})?|ae\d{1,4}")),
    "linux": ("linux.tc.j2", 64, re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")),
}
_OTHER = ("", 64, re.compile(r"[A-Za-z0-9_][A-Za-z0-9/._:-]{0,63}"))
_PROTOCOLS = {6: "tcp", 17: "udp"}
_MOST_TEMPLATE_BYTES = 1 << 20
#: Range of rule numbers; Linux has 16 bits for the priority of a filter, and two are used for UDP.
_FIRST, _LAST = 100, 64_999


@dataclass(frozen=True)
class QueueRule:
    """A queue of a router.

    Attributes
    ----------
    number : int
        Number of the queue.
    rate_bps : int
        Guaranteed rate in bit/s; the guarantees sum up to the link rate.
    ceil_bps : int
        Upper limit of the rate in bit/s: that of the link, or a limit of the queue.
    buffer_bytes : int
        Buffer in bytes; 0: the default of the router.
    buffer_us : int
        Buffer in µs at the link rate, for Junos.
    quantum_bytes : int
        Quantum in bytes for sharing unused rates.

    See Also
    --------
    queue_rules : the queues of a decision
    FlowRule : a flow of a router

    Examples
    --------
    >>> from cctoolkit.separation.router import QueueRule
    >>> rule = QueueRule(1, 5_000_000, ceil_bps=10_000_000, buffer_bytes=15140, buffer_us=12112, quantum_bytes=1514)
    >>> rule.rate_bps / rule.ceil_bps
    0.5
    """

    number: int
    rate_bps: int
    ceil_bps: int
    buffer_bytes: int
    buffer_us: int
    quantum_bytes: int


@dataclass(frozen=True)
class FlowRule:
    """A flow, by the 5-tuple of its data, and its queue.

    Attributes
    ----------
    flow_id : int
        Number of the flow.
    queue : int
        Number of the queue.
    src, dst : IPv4Address or IPv6Address
        Addresses of sender and receiver of the data.
    protocol : int
        IP protocol number.
    sport, dport : int or None
        Ports; None for protocols without ports.
    number : int
        Number of the rule, assigned by a :class:`Router`; 0 before.
    moved : bool
        Whether the router already has the rule, for another queue.

    See Also
    --------
    flow_rules : the flows of a decision
    QueueRule : a queue of a router

    Examples
    --------
    >>> import ipaddress
    >>> from cctoolkit.separation.router import FlowRule
    >>> source, destination = ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("10.0.0.2")
    >>> FlowRule(0, queue=1, src=source, dst=destination, protocol=6, sport=40000, dport=443).version
    4
    """

    flow_id: int
    queue: int
    src: ipaddress.IPv4Address | ipaddress.IPv6Address
    dst: ipaddress.IPv4Address | ipaddress.IPv6Address
    protocol: int
    sport: int | None
    dport: int | None
    number: int = 0
    moved: bool = False

    @property
    def version(self) -> int:
        return self.src.version

    @property
    def protocol_name(self) -> str:
        return _PROTOCOLS.get(self.protocol, str(self.protocol))


@dataclass
class _Numbers:
    """Numbers of rules: those that are free again, and the next one that was never used."""

    free: list[int]
    next: int

    def take(self) -> int:
        if self.free:
            return self.free.pop()
        self.next += 1
        return self.next - 1


def _address(where: str, value: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        if not isinstance(value, str):
            raise ValueError
        found = ipaddress.ip_address(value)
    except ValueError:
        raise ParameterError(f"{where}: {value!r} is not an IP address") from None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        raise ParameterError(f"{where}: {value!r} must not have a zone")
    return found


def flow_rules(decision: Decision, flows: pd.DataFrame) -> list[FlowRule]:
    """The rules for flows of a decision.

    Parameters
    ----------
    decision : Decision
        The decision. Flows in a queue for UDP need no rules, since there is a single rule for the protocol. If the
        responder sends the data of a flow (``direction`` 1), the rule is for that direction.
    flows : DataFrame
        ``flow_id``, ``src``, ``dst``, ``sport``, ``dport``, ``protocol``, as in the flows table of a capture or the
        labels of a run.

    Returns
    -------
    list of FlowRule
        The rules.

    Raises
    ------
    ParameterError
        A flow is unknown, or an address, port or protocol is invalid.

    See Also
    --------
    queue_rules : the queues of a decision
    Router : writes rules as configuration

    Examples
    --------
    >>> from cctoolkit.separation.controller import RttSeparation
    >>> from cctoolkit.separation.meters import capture_metrics
    >>> from cctoolkit.separation.router import flow_rules
    >>> capture = cct.example("rtt-unfairness").ingress
    >>> decision = RttSeparation(rate_mbps=10, k=2).decide(capture_metrics(capture, long_bytes=100_000), now_s=0)
    >>> [(str(rule.src), rule.queue) for rule in flow_rules(decision, capture.flows)]
    [('10.1.0.11', 2), ('10.1.0.10', 1)]
    """
    return [_rule(flow_id, row) for flow_id, row in _rows(decision, flows).items()]


def _rows(decision: Decision, flows: pd.DataFrame) -> dict[int, tuple[Any, ...]]:
    """Queue, whether the responder sends, and 5-tuple of each flow that needs a rule; not yet checked."""
    chosen = decision.flows[decision.flows.role != "udp"]
    ids = chosen.flow_id.to_numpy(np.int64)
    table = flows.drop_duplicates("flow_id").set_index("flow_id")
    unknown = ids[~np.isin(ids, table.index)]
    if len(unknown):
        raise ParameterError(f"flow {unknown[0]}: is not in the table of flows")
    table = table.loc[ids]
    back = (chosen.direction == 1).tolist() if "direction" in chosen else [False] * len(ids)
    columns = (table[name].tolist() for name in ("src", "dst", "sport", "dport", "protocol"))
    return dict(zip(ids.tolist(), zip(chosen.queue.tolist(), back, *columns, strict=True), strict=True))


def _rule(flow_id: int, row: tuple[Any, ...]) -> FlowRule:
    queue, turned, src, dst, sport, dport, number = row
    where = f"flow {flow_id}"
    protocol = arguments.whole(f"{where}: protocol", number, high=255)
    ports = protocol in _PROTOCOLS
    one = (
        _address(f"{where}: src", src),
        arguments.whole(f"{where}: sport", sport, high=65535) if ports else None,
    )
    other = (
        _address(f"{where}: dst", dst),
        arguments.whole(f"{where}: dport", dport, high=65535) if ports else None,
    )
    if one[0].version != other[0].version:
        raise ParameterError(f"{where}: {one[0]} and {other[0]} have different IP versions")
    (a, p), (b, q) = (other, one) if turned else (one, other)
    return FlowRule(flow_id, queue, a, b, protocol, p, q)


def queue_rules(decision: Decision, rate_mbps: float, udp_limit_mbps: float | None = None) -> list[QueueRule]:
    """The queues of a decision.

    Parameters
    ----------
    decision : Decision
        The decision.
    rate_mbps : float
        Rate of the link in Mbit/s. It is guaranteed to the queues by weight; unused shares go to the others.
    udp_limit_mbps : float, optional
        Upper limit of the rate of the UDP queue in Mbit/s.

    Returns
    -------
    list of QueueRule
        The queues.

    See Also
    --------
    flow_rules : the flows of a decision
    Router : writes rules as configuration

    Examples
    --------
    >>> from cctoolkit.separation.controller import RttSeparation
    >>> from cctoolkit.separation.meters import capture_metrics
    >>> from cctoolkit.separation.router import queue_rules
    >>> metrics = capture_metrics(cct.example("rtt-unfairness").ingress, long_bytes=100_000)
    >>> decision = RttSeparation(rate_mbps=10, k=2).decide(metrics, now_s=0)
    >>> [rule.rate_bps for rule in queue_rules(decision, rate_mbps=10)]
    [2500000, 2500000, 2500000, 2500000]
    """
    rate_bps = round(rate_mbps * 1e6)
    table = decision.queues
    weight = table.weight.to_numpy(float)
    rules = []
    for number, role, w, room in zip(
        table.queue.tolist(), table.role.tolist(), weight, table.buffer_bytes.tolist(), strict=True
    ):
        ceil = rate_bps if role != "udp" or udp_limit_mbps is None else round(udp_limit_mbps * 1e6)
        guaranteed = max(min(math.floor(rate_bps * w / weight.sum()), ceil), 8)
        rules.append(
            QueueRule(
                int(number), guaranteed, ceil, int(room), max(math.ceil(room * 8e6 / rate_bps), 1),
                min(max(round(FULL_FRAME_BYTES * w / weight.min()), FULL_FRAME_BYTES), 200_000),
            )
        )  # fmt: skip
    return rules


def _templates() -> Path:
    """Folder of the templates: beside this file in a wheel, ``hardware/router`` in a checkout."""
    here = Path(__file__).parent / "router_templates"
    return here if here.is_dir() else Path(__file__).parents[2] / "hardware" / "router"


class Router:
    """Writes decisions of a controller as router configuration: first complete, then only changes.

    Parameters
    ----------
    kind : {"junos", "linux"}, or path
        The template: one of ours, or your own file. Its variables are ``whole`` (true the first time),
        ``interface``, ``ingress``, ``rate_bps``, ``burst_bytes``, ``queues`` (:class:`QueueRule`: all, or those
        that changed), ``flows`` (:class:`FlowRule`: new ones, and those with ``moved``), ``gone`` (rules to
        delete), ``udp_queue``, ``udp_limit_bps``, ``udp_burst_bytes``.
    rate_mbps : float
        Rate of the bottleneck in Mbit/s.
    interface : str
        Interface with the queues of the bottleneck.
    ingress : str, optional
        Interface on which the flows arrive (where Junos classifies them).
    udp_limit_mbps : float, optional
        Upper limit of the rate of all UDP in Mbit/s.

    Attributes
    ----------
    rules : dict of int to FlowRule
        Current rules of the router by flow.

    Raises
    ------
    ParameterError
        Unknown kind, or invalid name of an interface; or the template has a mistake, or does what Jinja's sandbox does
        not allow. The text names the line.

    See Also
    --------
    cctoolkit.separation.controller.RttSeparation : makes decisions
    flow_rules, queue_rules : the content of the configuration

    Notes
    -----
    Junos (``load set``, then ``commit``): filters in an input list (the flows, then UDP and the rest, which the
    implicit discard at the end of a filter would drop), forwarding classes, schedulers whose transmit rate is a
    guarantee, and buffers as time at the speed of the interface, which is how the documentation defines
    ``temporal``; the range depends on the platform. The lines were checked with the grammar of ``junoser``, not by
    a router.

    Linux (``tc -batch FILE``): htb classes that borrow, each with a byte FIFO, and a u32 filter per flow. Like u32,
    it expects IPv4 headers without options. When a flow moves, there is a moment between the end of the old filter
    and the start of the new one.

    Examples
    --------
    >>> from cctoolkit.separation.controller import RttSeparation
    >>> from cctoolkit.separation.meters import capture_metrics
    >>> from cctoolkit.separation.router import Router
    >>> capture = cct.example("rtt-unfairness").ingress
    >>> decision = RttSeparation(rate_mbps=10, k=2).decide(capture_metrics(capture, long_bytes=100_000), now_s=0)
    >>> router = Router("linux", rate_mbps=10, interface="eth0")
    >>> print(router.update(decision, capture.flows).splitlines()[0])
    qdisc add dev eth0 root handle 1: htb default 0x10
    >>> router.update(decision, capture.flows)  # nothing new
    ''
    """

    def __init__(
        self,
        kind: str | Path,
        rate_mbps: float,
        interface: str,
        *,
        ingress: str | None = None,
        udp_limit_mbps: float | None = None,
    ) -> None:
        import jinja2
        import jinja2.sandbox

        for name, value in (("rate_mbps", rate_mbps), ("udp_limit_mbps", udp_limit_mbps)):
            if value is not None:
                arguments.number(name, value, above=0.0, high=MOST_MBPS)
        file, self.most_queues, names = KINDS[kind] if isinstance(kind, str) and kind in KINDS else _OTHER
        path = _templates() / file if file else Path(kind)
        if not path.is_file():
            raise ParameterError(f"kind: {str(kind)!r} must be one of {', '.join(KINDS)}, or a template")
        if kind == "junos" and ingress is None:
            raise ParameterError("ingress: required for Junos, which classifies flows where they arrive")
        for where, name in (("interface", interface), ("ingress", ingress or interface)):
            if not isinstance(name, str) or not names.fullmatch(name):
                raise ParameterError(f"{where}: {name!r} is not a valid interface name")
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
        )
        self._name = str(path)
        with self._explained():
            text = read_file(path, _MOST_TEMPLATE_BYTES).decode("utf-8")
            self._template = environment.from_string(text)
        self.rate_mbps, self.udp_limit_mbps = float(rate_mbps), udp_limit_mbps
        self.interface, self.ingress = interface, ingress or interface
        self.rules: dict[int, FlowRule] = {}
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._queues: dict[int, QueueRule] = {}
        self._numbers = _Numbers([], _FIRST)
        self._udp_queue: int | None = None

    def check_queues(self, n: int) -> None:
        """Raise a ParameterError if the router does not have this many queues."""
        if n > self.most_queues:
            raise ParameterError(f"queues: {n}, but this router has only {self.most_queues}")

    def update(self, decision: Decision, flows: pd.DataFrame) -> str:
        """Write the configuration for a decision.

        Parameters
        ----------
        decision : Decision
            The decision.
        flows : DataFrame
            As for :func:`flow_rules`.

        Returns
        -------
        str
            Lines of configuration; empty if nothing changed.

        Raises
        ------
        ParameterError
            The router does not support this many queues or flows, a flow cannot be a rule, or the template fails.
            Nothing is changed: the next update writes what this one would have written, too.
        """
        rows = _rows(decision, flows)
        # few of thousands of flows change: only these are checked and become rules
        wanted = {flow: _rule(flow, row) for flow, row in rows.items() if self._rows.get(flow) != row}
        queues = queue_rules(decision, self.rate_mbps, self.udp_limit_mbps)
        self.check_queues(len(queues))
        if len(rows) > _LAST - _FIRST + 1:
            raise ParameterError(f"flows: {len(rows)} rules, but at most {_LAST - _FIRST + 1} are supported")
        whole = not self._queues
        udp_queue = self._udp_queue
        if whole:
            roles = decision.queues.role.tolist()
            udp_queue = roles.index("udp") if "udp" in roles else None
        rules, numbers = dict(self.rules), replace(self._numbers, free=[*self._numbers.free])
        gone = [
            rule
            for flow, rule in self.rules.items()
            if flow not in rows or (flow in wanted and _key(rule) != _key(wanted[flow]))
        ]
        for rule in gone:
            del rules[rule.flow_id]
            numbers.free.append(rule.number)
        fresh: list[FlowRule] = []
        for flow, rule in sorted(wanted.items()):
            old = rules.get(flow)
            if old is not None and old.queue == rule.queue:
                continue
            now = replace(rule, number=numbers.take() if old is None else old.number)
            rules[flow] = now
            fresh.append(replace(now, moved=old is not None))
        changed = [q for q in queues if self._queues.get(q.number) != q]
        text = ""
        if whole or changed or fresh or gone:
            text = self._text(whole, changed, fresh, gone, udp_queue)
        self.rules, self._rows, self._numbers, self._udp_queue = rules, rows, numbers, udp_queue
        self._queues = {q.number: q for q in queues}
        return text

    def _text(
        self,
        whole: bool,
        queues: list[QueueRule],
        flows: list[FlowRule],
        gone: list[FlowRule],
        udp_queue: int | None,
    ) -> str:
        """What the template makes of this."""
        limit = None if self.udp_limit_mbps is None else round(self.udp_limit_mbps * 1e6)
        rate_bps = round(self.rate_mbps * 1e6)
        facts = {
            "whole": whole,
            "interface": self.interface,
            "ingress": self.ingress,
            "rate_bps": rate_bps,
            "burst_bytes": max(2 * FULL_FRAME_BYTES, rate_bps // 8 // 4000),  # sent in two ticks of a timer
            "queues": queues,
            "flows": flows,
            "gone": gone,
            "udp_queue": udp_queue,
            "udp_limit_bps": limit,
            "udp_burst_bytes": None if limit is None else max(10 * FULL_FRAME_BYTES, limit // 8 // 100),
        }
        with self._explained():
            return self._template.render(facts)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """A template is a program: whatever it raises is reported as an error in the template, with its line."""
        try:
            yield
        except CCToolkitError:
            raise
        except Exception as err:
            lines = [
                at
                for frame, at in traceback.walk_tb(err.__traceback__)
                if frame.f_code.co_filename == "<template>"
            ]
            line = getattr(err, "lineno", None) or (lines[-1] if lines else None)
            where = f"{self._name}: line {line}" if line else self._name
            raise ParameterError(f"{where}: {' '.join(str(err).split()) or type(err).__name__}") from None


def _key(rule: FlowRule) -> tuple[Any, ...]:
    """The packets that a rule matches; a flow number may later mean another flow."""
    return (rule.src, rule.dst, rule.protocol, rule.sport, rule.dport)
