"""A decision in a router's words: queues, their shares and buffers, and which flow goes where.

The words are in templates (``hardware/router/``), one a kind of router: Junos (``load set``), Linux (``tc
-batch``), or a user's own. A :class:`Router` remembers what it said last and then says only what is new.

Everything a template gets is a number, an address that :mod:`ipaddress` read and wrote, or an interface name of
letters, digits and ``/ . _ : -``: nothing from a capture can become a line of configuration.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from .controller import Decision

__all__ = ["KINDS", "FlowRule", "QueueRule", "Router", "flow_rules", "queue_rules"]

#: Kinds of router with a template here: the template, most queues, and what an interface may be called.
KINDS = {
    "junos": ("junos.set.j2", 8, re.compile(r"[a-z]{2,4}-\d{1,3}/\d{1,3}/\d{1,3}(:\d{1,2})?|ae\d{1,4}")),
    "linux": ("linux.tc.j2", 64, re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")),
}
_OTHER = ("", 64, re.compile(r"[A-Za-z0-9_][A-Za-z0-9/._:-]{0,63}"))
_PROTOCOLS = {6: "tcp", 17: "udp"}
_FULL_PACKET = 1514
#: Numbers of rules; Linux has 16 bits for a filter's priority, and two are used for UDP.
_FIRST, _LAST = 100, 64_999


@dataclass(frozen=True)
class QueueRule:
    """One queue.

    Attributes
    ----------
    number : int
    rate_bps : int
        Guaranteed; all guarantees together are the link.
    ceil_bps : int
        Never more than this: the link, or a limit of its own.
    buffer_bytes : int
        0: as the router has it.
    buffer_us : int
        The same as time at the link's rate, which is how Junos wants it.
    quantum_bytes : int
        By what the queue takes part in sharing what others leave unused.
    """

    number: int
    rate_bps: int
    ceil_bps: int
    buffer_bytes: int
    buffer_us: int
    quantum_bytes: int


@dataclass(frozen=True)
class FlowRule:
    """One flow, by the five-tuple of its data, and its queue.

    Attributes
    ----------
    flow_id : int
    queue : int
    src, dst : IPv4Address or IPv6Address
    protocol : int
    sport, dport : int or None
        None where the protocol has none.
    number : int
        The rule's; 0 until a :class:`Router` gave it one.
    moved : bool
        The router has the rule already, for another queue.
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


def _address(where: str, value: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        if not isinstance(value, str):
            raise ValueError
        found = ipaddress.ip_address(value)
    except ValueError:
        raise ParameterError(f"{where}: {value!r} is not an IP address") from None
    if isinstance(found, ipaddress.IPv6Address) and found.scope_id is not None:
        raise ParameterError(f"{where}: {value!r} has a zone, which no router knows")
    return found


def _integer(where: str, value: Any, low: int, high: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = low - 1
    if isinstance(value, str | bytes | bool) or number != value or not low <= number <= high:
        raise ParameterError(f"{where}: {value!r} is not a whole number from {low} to {high}")
    return number


def flow_rules(decision: Decision, flows: pd.DataFrame) -> list[FlowRule]:
    """The flows of a decision that need a rule of their own.

    Parameters
    ----------
    decision : Decision
        Its flows in a queue for UDP need none: that is one rule, by protocol. Where it says that the responder
        sends a flow's data (``direction`` 1), the rule is for that direction.
    flows : DataFrame
        Who they are: ``flow_id``, ``src``, ``dst``, ``sport``, ``dport``, ``protocol``, as the flows table of a
        capture or the labels of a run have them.

    Raises
    ------
    ParameterError
        A flow that nobody knows, or an address, port or protocol that is none.
    """
    return [_rule(flow_id, row) for flow_id, row in _rows(decision, flows).items()]


def _rows(decision: Decision, flows: pd.DataFrame) -> dict[int, tuple[Any, ...]]:
    """Queue, whether the responder sends, and five-tuple of each flow that needs a rule; not checked yet."""
    chosen = decision.flows[decision.flows.role != "udp"]
    ids = chosen.flow_id.to_numpy(np.int64)
    table = flows.drop_duplicates("flow_id").set_index("flow_id")
    unknown = ids[~np.isin(ids, table.index)]
    if len(unknown):
        raise ParameterError(f"flow {unknown[0]}: there is no such flow in the table")
    table = table.loc[ids]
    back = (chosen.direction == 1).tolist() if "direction" in chosen else [False] * len(ids)
    columns = (table[name].tolist() for name in ("src", "dst", "sport", "dport", "protocol"))
    return dict(zip(ids.tolist(), zip(chosen.queue.tolist(), back, *columns, strict=True), strict=True))


def _rule(flow_id: int, row: tuple[Any, ...]) -> FlowRule:
    queue, turned, src, dst, sport, dport, number = row
    where = f"flow {flow_id}"
    protocol = _integer(f"{where}: protocol", number, 0, 255)
    ports = protocol in _PROTOCOLS
    one = (_address(f"{where}: src", src), _integer(f"{where}: sport", sport, 0, 65535) if ports else None)
    other = (_address(f"{where}: dst", dst), _integer(f"{where}: dport", dport, 0, 65535) if ports else None)
    if one[0].version != other[0].version:
        raise ParameterError(f"{where}: {one[0]} and {other[0]} are of different IP versions")
    (a, p), (b, q) = (other, one) if turned else (one, other)
    return FlowRule(flow_id, queue, a, b, protocol, p, q)


def queue_rules(decision: Decision, rate_mbps: float, udp_limit_mbps: float | None = None) -> list[QueueRule]:
    """The queues of a decision.

    Parameters
    ----------
    decision : Decision
    rate_mbps : float
        Of the link. It is guaranteed to the queues by weight; what one does not use goes to the others.
    udp_limit_mbps : float, optional
        A hard limit for the queue for UDP.
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
                min(max(round(_FULL_PACKET * w / weight.min()), _FULL_PACKET), 200_000),
            )
        )  # fmt: skip
    return rules


def _templates() -> Path:
    """Beside this file in an installed package, in ``hardware/router`` in a checkout."""
    here = Path(__file__).parent / "router_templates"
    return here if here.is_dir() else Path(__file__).parents[2] / "hardware" / "router"


class Router:
    """Says in a router's words what a controller decides: all of it first, then what changes.

    Parameters
    ----------
    kind : {"junos", "linux"}, or path
        The template: one of those here, or a file of one's own. It is given ``whole`` (the first time),
        ``interface``,
        ``ingress``, ``rate_bps``, ``burst_bytes``, ``queues`` (:class:`QueueRule`: all, or those that changed),
        ``flows`` (:class:`FlowRule`: new ones, and those with ``moved``), ``gone`` (rules to delete), ``udp_queue``,
        ``udp_limit_bps``, ``udp_burst_bytes``.
    rate_mbps : float
        Of the bottleneck.
    interface : str
        Where the bottleneck's queues are.
    ingress : str, optional
        Where the flows come in (Junos classifies there).
    udp_limit_mbps : float, optional
        A hard limit for all UDP.

    Attributes
    ----------
    rules : dict of int to FlowRule
        What the router has, by flow.

    Raises
    ------
    ParameterError
        An unknown kind, or a name that no interface has.

    Notes
    -----
    Junos (``load set``, then ``commit``): filters in an input list (the flows, then UDP and the rest, which the
    implicit discard at a filter's end would drop), forwarding classes, schedulers whose transmit rate is a
    guarantee, and buffers as time at the interface's speed, which is how its documentation defines ``temporal``;
    the range depends on the platform. The lines were checked with the grammar of ``junoser``, not by a router.

    Linux (``tc -batch FILE``): htb classes that borrow, a byte FIFO in each, one u32 filter a flow. It expects
    IPv4 headers without options, as u32 does. Where a flow moves, there is a moment between the old filter's end
    and the new one.
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

        for name, value in (("rate_mbps", rate_mbps), ("udp_limit_mbps", udp_limit_mbps)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ParameterError(f"{name}: {value!r} is not above 0")
        file, self.most_queues, names = KINDS[kind] if isinstance(kind, str) and kind in KINDS else _OTHER
        path = _templates() / file if file else Path(kind)
        if not path.is_file():
            raise ParameterError(f"kind: {str(kind)!r} is none of {', '.join(KINDS)} and no template")
        if kind == "junos" and ingress is None:
            raise ParameterError("ingress: Junos classifies where flows come in; name that interface too")
        for where, name in (("interface", interface), ("ingress", ingress or interface)):
            if not isinstance(name, str) or not names.fullmatch(name):
                raise ParameterError(f"{where}: {name!r} is no interface's name")
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
        )
        self._template = environment.from_string(path.read_text(encoding="utf-8"))
        self.rate_mbps, self.udp_limit_mbps = float(rate_mbps), udp_limit_mbps
        self.interface, self.ingress = interface, ingress or interface
        self.rules: dict[int, FlowRule] = {}
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._queues: dict[int, QueueRule] = {}
        self._free: list[int] = []
        self._next = _FIRST
        self._udp_queue: int | None = None

    def check_queues(self, n: int) -> None:
        """Raise a ParameterError where the router has not so many queues."""
        if n > self.most_queues:
            raise ParameterError(f"queues: {n}, but this router has {self.most_queues}")

    def update(self, decision: Decision, flows: pd.DataFrame) -> str:
        """What to tell the router.

        Parameters
        ----------
        decision : Decision
        flows : DataFrame
            See :func:`flow_rules`.

        Returns
        -------
        str
            Lines; empty where nothing changed.

        Raises
        ------
        ParameterError
            More queues or flows than the router has room for, or a flow that cannot be a rule. Nothing is changed
            then.
        """
        rows = _rows(decision, flows)
        # of thousands of flows few change: only these are checked and become rules
        wanted = {flow: _rule(flow, row) for flow, row in rows.items() if self._rows.get(flow) != row}
        queues = queue_rules(decision, self.rate_mbps, self.udp_limit_mbps)
        self.check_queues(len(queues))
        if len(rows) > _LAST - _FIRST + 1:
            raise ParameterError(f"flows: {len(rows)} rules, but there is room for {_LAST - _FIRST + 1}")
        whole = not self._queues
        if whole:
            roles = decision.queues.role.tolist()
            self._udp_queue = roles.index("udp") if "udp" in roles else None
        gone = [
            rule
            for flow, rule in self.rules.items()
            if flow not in rows or (flow in wanted and _key(rule) != _key(wanted[flow]))
        ]
        for rule in gone:
            del self.rules[rule.flow_id]
            self._free.append(rule.number)
        fresh: list[FlowRule] = []
        for flow, rule in sorted(wanted.items()):
            old = self.rules.get(flow)
            if old is not None and old.queue == rule.queue:
                continue
            now = replace(rule, number=self._number() if old is None else old.number)
            self.rules[flow] = now
            fresh.append(replace(now, moved=old is not None))
        self._rows = rows
        changed = [q for q in queues if self._queues.get(q.number) != q]
        self._queues = {q.number: q for q in queues}
        if not (whole or changed or fresh or gone):
            return ""
        limit = None if self.udp_limit_mbps is None else round(self.udp_limit_mbps * 1e6)
        rate_bps = round(self.rate_mbps * 1e6)
        return self._template.render(
            whole=whole,
            interface=self.interface,
            ingress=self.ingress,
            rate_bps=rate_bps,
            burst_bytes=max(2 * _FULL_PACKET, rate_bps // 8 // 4000),  # what passes in two ticks of a timer
            queues=changed,
            flows=fresh,
            gone=gone,
            udp_queue=self._udp_queue,
            udp_limit_bps=limit,
            udp_burst_bytes=None if limit is None else max(10 * _FULL_PACKET, limit // 8 // 100),
        )

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1


def _key(rule: FlowRule) -> tuple[Any, ...]:
    """Of which packets it is; a flow number may come to mean another flow."""
    return (rule.src, rule.dst, rule.protocol, rule.sport, rule.dport)
