"""Plans: what a testbed must set up for a scenario, as data: hosts, links, delays, queues, traffic.

::

    senders S0, S1, … ── A ── R ══ bottleneck ══ B ── receivers D0, D1, …

Every box is a network namespace (or a host); ``S0:s0 - A:a0``, ``A:ar - R:ra``, ``R:rb - B:br``, ``B:b0 - D0:d0``
are the links. ``R:ra`` is the tap before the queue, ``R:rb`` the tap after it. Flows with the same path share a
pair of hosts; each has its own addresses, the same as in the simulator, by which the flows of a capture are
identified.

ECN: Prague sends ECT(1) and negotiates accurate ECN. A DCTCP flow with ``ecn="l4s"`` sends ECT(0), the only code point
of Linux's own senders; dualpi2 is configured to accept it for its low-latency queue.

Delays are those of the simulator: half of a round trip in each direction, of which ``access_ms`` before the
bottleneck. Jitter and loss are behind it, on the way to the receiver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._support.ethernet import ETHERNET_BYTES
from .._support.words import did_you_mean
from ..aqm import DualPi2, LinuxDualPi2
from ..cca import (
    Bbr,
    Bbr3,
    Cca,
    Cubic,
    Dctcp,
    Htcp,
    KernelModule,
    Prague,
    Reno,
    Vegas,
)
from ..errors import ParameterError
from ..scenario import Flow, Scenario
from ..scenario.endpoints import DESTINATION_PORT, RECEIVERS, SENDERS, address, source_port
from .qdisc import QdiscTree, htb_shape
from .traffic import Control, TrafficFlow, plan_text

__all__ = ["MACHINE_SYSCTLS", "Host", "Link", "ModuleParameter", "Plan", "TapSettings", "batch", "make_plan"]

#: Congestion controls of the package that Linux has under the same name, besides the ``linux_only`` ones; the last two
#: only in kernels built with them.
_SHARED_CCAS = (Reno, Cubic, Bbr, Htcp, Vegas, Dctcp, Prague, Bbr3)
_UNLIMITED_WINDOW = 1_000_000
#: Bytes of the headers of IPv4 and of TCP with timestamps.
_HEADER_BYTES = 52
#: How long a receiver waits for a further packet to merge (``gro_flush_timeout``), about as network cards do.
_GRO_NS = 100_000
#: Most packets that netem can hold; its default of 1000 would be another bottleneck.
_NETEM_LIMIT = 1_000_000
#: One hardware address for all: links have no ARP, so a frame goes to the address of its own sender.
_MAC = "02:00:00:00:00:01"

#: Negotiate accurate ECN; its counters in the flags only, so that packets carry as much as those of other flows.
_ACCURATE_ECN = {"net/ipv4/tcp_ecn": "3", "net/ipv4/tcp_ecn_option": "0"}

#: Settings of the whole machine, for machines of our own (new namespaces inherit those of ``net.ipv4``). TCP memory
#: is in pages; by default, a guest of 2 GB silently limits fast flows.
MACHINE_SYSCTLS = {
    "net/core/netdev_max_backlog": "1000000",
    "net/ipv4/tcp_mem": "4000000 4000000 4000000",
    "net/ipv4/tcp_rmem": "4096 131072 268435456",
    "net/ipv4/tcp_wmem": "4096 65536 268435456",
    "net/ipv4/ip_forward": "1",
}


@dataclass(frozen=True, kw_only=True)
class TapSettings:
    """What to record of a run.

    Parameters
    ----------
    sample_ns : int
        Sampling interval of the series in ns.
    snaplen : int
        Snap length of the captures in bytes.
    control_ns : int, optional
        Interval of a controller in ns.
    iperf3 : bool
        Use iperf3 for the flows (see :mod:`~.iperf3`) instead of the traffic program.
    """

    sample_ns: int = 100_000_000
    snaplen: int = 96
    control_ns: int | None = None
    iperf3: bool = False


@dataclass(frozen=True)
class Link:
    """A link between two devices: names of host and device at each end."""

    host: str
    device: str
    peer_host: str
    peer_device: str


@dataclass
class Host:
    """A box of the network: lines for ``ip -b``, ``tc -b`` and ``sh``, and settings under ``/proc/sys``."""

    ip: list[str] = field(default_factory=list)
    tc: list[str] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ModuleParameter:
    """A parameter of a kernel module, to be set before the queue discipline or the socket that reads it is made.

    Attributes
    ----------
    kind : str
        ``"sch"`` for a queue discipline, ``"tcp"`` for a congestion control.
    owner : str
        Its name in the kernel.
    name, value : str
        The parameter.
    needed : bool
        Whether it is an error if the module lacks it.
    """

    kind: str
    owner: str
    name: str
    value: str
    needed: bool = True


@dataclass(frozen=True)
class Plan:
    """What to set up and run.

    Attributes
    ----------
    scenario : Scenario
        The scenario.
    hosts : dict of str to Host
        Hosts by name, in order of creation. Write settings before addresses, and addresses before queues.
    links : list of Link
        Links, to be made before running the lines of the hosts.
    tree : QdiscTree
        The queues of the bottleneck on ``R:rb``; their lines are in ``hosts["R"].tc``.
    flows : list of TrafficFlow
        The traffic.
    changes : list of (int, list of str)
        The rate schedule: nanoseconds since the start, and lines for ``tc -b`` in R at that time.
    group_of : list of int
        Number of each flow's pair of hosts.
    mtu : int
        MTU of all links in bytes.
    prefix, directory : str
        As for :func:`make_plan`.
    switched : bool
        Whether the bottleneck is a switch, which `tree` does not describe.
    modules : list of ModuleParameter
        Parameters of kernel modules, which apply to the whole machine.
    offload, ack_limit
        As for :func:`make_plan`.
    """

    scenario: Scenario
    hosts: dict[str, Host]
    links: list[Link]
    tree: QdiscTree
    flows: list[TrafficFlow]
    changes: list[tuple[int, list[str]]]
    group_of: list[int]
    mtu: int
    prefix: str = ""
    directory: str = "/run/netns"
    switched: bool = False
    modules: list[ModuleParameter] = field(default_factory=list)
    offload: bool = False
    ack_limit: int | None = None

    def netns(self, host: str) -> str:
        """The file of a host's namespace."""
        return f"{self.directory}/{self.prefix}{host}"

    def with_switch(self, scenario: Scenario) -> Plan:
        """The same network with a switch as the bottleneck, between ``R:rb`` and ``B:br``.

        The switch is in a box of its own, W, with ports ``p0`` and ``p1``.
        """
        w = Host()
        for device in ("p0", "p1"):
            w.ip.append(f"link set dev {device} mtu {self.mtu} arp off{without_ipv6(self.mtu)} up")
        links = [x for x in self.links if x.device != "rb"]
        links += [Link("R", "rb", "W", "p0"), Link("W", "p1", "B", "br")]
        return dataclasses.replace(
            self, scenario=scenario, hosts={**self.hosts, "W": w}, links=links, switched=True
        )

    def link_lines(self) -> list[str]:
        """Lines for ``ip -b`` that make all namespaces and links."""
        prefix = self.prefix
        lines = [f"netns add {prefix}{name}" for name in self.hosts]
        return lines + [
            f"link add name {x.device} netns {prefix}{x.host} type veth peer name {x.peer_device} "
            f"netns {prefix}{x.peer_host}"
            for x in self.links
        ]

    def traffic_text(
        self, recording: TapSettings, control_directory: str, command: Sequence[str], *, spin: bool = True
    ) -> str:
        """Input of the traffic program; the last three arguments are those of :class:`~.traffic.Control`."""
        control = None
        if recording.control_ns is not None:
            control = Control(
                interval_ns=recording.control_ns, directory=control_directory, command=command, spin=spin
            )
        return plan_text(
            () if recording.iperf3 else self.flows,
            duration_ns=round(self.scenario.duration_s * 1e9),
            sample_ns=recording.sample_ns,
            queues=(self.netns("R"), "rb"),
            control=control,
        )


def make_plan(
    scenario: Scenario,
    *,
    prefix: str = "",
    directory: str = "/run/netns",
    virtual: bool = True,
    offload: bool = False,
    ack_limit: int | None = None,
) -> Plan:
    """Make the plan of a scenario.

    Parameters
    ----------
    scenario : Scenario
        What to plan.
    prefix : str
        Prefix of the names of namespaces; names of hosts in the plan lack it.
    directory : str
        Directory of the files of namespaces.
    virtual : bool
        Virtual time, as for :class:`~.qdisc.QdiscTree`.
    offload, ack_limit
        As for :func:`~.testbed.run_testbed`.

    Raises
    ------
    ParameterError
        Linux does not support a value; the text names the field.
    """
    flows = scenario.flow_list()
    for i, flow in enumerate(flows):
        _check(flow, f"flows[{_entry(scenario, i)}]", scenario, virtual)
    frame = max(f.packet_bytes for f in flows)
    any_ect = any(f.ecn == "l4s" and isinstance(f.cca, Dctcp) for f in flows if not f.is_udp)
    tree = QdiscTree(scenario.bottleneck, "rb", frame, virtual, any_ect)
    groups: dict[tuple[object, ...], int] = {}
    group_of = [groups.setdefault(_path(f, i), len(groups)) for i, f in enumerate(flows)]
    first = {g: flows[group_of.index(g)] for g in range(len(groups))}

    hosts = {name: Host() for name in ("A", "R", "B")}
    links = [Link("A", "ar", "R", "ra"), Link("R", "rb", "B", "br")]
    for g in range(len(groups)):
        hosts |= {f"S{g}": Host(), f"D{g}": Host()}
        links += [Link(f"S{g}", "s0", "A", f"a{g}"), Link("B", f"b{g}", f"D{g}", "d0")]
    for name in ("A", "R", "B"):
        hosts[name].sysctls["net/ipv4/ip_forward"] = "1"
    mtu = frame - ETHERNET_BYTES
    segments = "" if offload else "gso_max_segs 1 "
    for link in links:
        for host, device in ((link.host, link.device), (link.peer_host, link.peer_device)):
            hosts[host].ip.append(
                f"link set dev {device} address {_MAC} mtu {mtu} {segments}arp off{without_ipv6(mtu)} up"
            )
    for name, device in (("A", "ar"), ("B", "br")):
        hosts[name].ip.append(f"route add default dev {device}")
    hosts["R"].ip += ["route add 10.1.0.0/16 dev ra", "route add 10.2.0.0/16 dev rb"]
    if ack_limit is not None:
        hosts["B"].tc.append(_shared_delay(flows, ack_limit))
    for g, flow in first.items():
        _access(hosts, g, flow, virtual)
        if ack_limit is None:
            _delays(hosts, g, flow)
        if _is_accurate(flow):
            for name in (f"S{g}", f"D{g}"):
                hosts[name].sysctls |= _ACCURATE_ECN
        if _merged(flow):
            _merge(hosts, g, flow)
    hosts["R"].tc += tree.setup() + tree.way_back("ra")
    if tree.module_parameters():
        hosts["R"].tc += _marks(flows)
    traffic = []
    for i, (flow, g) in enumerate(zip(flows, group_of, strict=True)):
        source, sink = address(SENDERS, i), address(RECEIVERS, i)
        _routes(hosts, g, flow, source, sink)
        hosts["R"].tc += tree.assign(i, source, flow.queue or 0)
        traffic.append(_traffic(i, flow, scenario, f"{directory}/{prefix}S{g}", f"{directory}/{prefix}D{g}"))
    changes = [(round(s * 1e9), tree.set_rate(mbps)) for s, mbps in scenario.bottleneck.rate_schedule]
    modules = _modules(scenario, tree)
    return Plan(
        scenario, hosts, links, tree, traffic, changes, group_of, mtu, prefix, directory, modules=modules,
        offload=offload, ack_limit=ack_limit,
    )  # fmt: skip


def _marks(flows: Sequence[Flow]) -> list[str]:
    """Lines that give packets the aggregate of their flow as mark, where the modules' queue disciplines look for it."""
    marked = [(i, flow.aggregate) for i, flow in enumerate(flows) if flow.aggregate]
    return ["qdisc add dev ra clsact"] * bool(marked) + [
        f"filter add dev ra ingress protocol ip prio 1 handle {i + 1:#x} flower src_ip {address(SENDERS, i)}/32 "
        f"action skbedit mark {aggregate}"
        for i, aggregate in marked
    ]


def _modules(scenario: Scenario, tree: QdiscTree) -> list[ModuleParameter]:
    """Parameters of the modules that the scenario names; a module has one value for the whole machine."""
    used: list[tuple[str, str, str, dict[str, Any], int | None]] = [
        ("bottleneck.queues", "sch", *one) for one in tree.module_parameters()
    ]
    for flow in scenario.flows:
        if not flow.is_udp and isinstance(flow.cca, KernelModule):
            used.append(("flows", "tcp", flow.cca.module, flow.cca.parameters(), None))
    out: dict[tuple[str, str], list[ModuleParameter]] = {}
    for where, kind, owner, values, limit in used:
        parameters = [ModuleParameter(kind, owner, name, str(value)) for name, value in values.items()]
        if limit is not None and "limit" not in values:
            parameters.append(ModuleParameter(kind, owner, "limit", str(limit), needed=False))
        if out.setdefault((kind, owner), parameters) != parameters:
            raise ParameterError(f"{where}: parameters of the kernel's {owner} must be the same everywhere")
    return [parameter for parameters in out.values() for parameter in parameters]


def without_ipv6(mtu: int) -> str:
    """Keep neighbour discovery out of the captures; with an MTU below 1280, a device has no IPv6 setting."""
    return " addrgenmode none" if mtu >= 1280 else ""


def _entry(scenario: Scenario, index: int) -> int:
    """Number of the entry in the scenario that flow `index` belongs to."""
    for entry, flow in enumerate(scenario.flows):
        index -= flow.count
        if index < 0:
            return entry
    raise IndexError(index)


def _path(flow: Flow, index: int) -> tuple[object, ...]:
    """Flows with equal paths share hosts; a sender with an access rate has its own link."""
    own_link = None if flow.access_mbps is None else index
    return (
        flow.rtt_ms,
        flow.access_ms,
        flow.jitter_ms,
        flow.loss,
        _is_accurate(flow),
        _merged(flow),
        own_link,
    )


def _is_accurate(flow: Flow) -> bool:
    """Whether the flow negotiates accurate ECN (RFC 9768), which is a setting of its hosts."""
    return isinstance(flow.cca, Prague) or (flow.ecn == "accurate" and not isinstance(flow.cca, Dctcp))


def _merged(flow: Flow) -> int:
    """Bytes of payload that the receiver merges before TCP sees them; 0 if it does not merge."""
    few = flow.is_udp or flow.delayed_ack <= 2
    return 0 if few else flow.delayed_ack * (flow.packet_bytes - ETHERNET_BYTES - _HEADER_BYTES)


def _merge(hosts: dict[str, Host], group: int, flow: Flow) -> None:
    """Generic receive offload: packets that arrive one after the other become one, with one acknowledgement."""
    receiver = hosts[f"D{group}"]
    receiver.ip.append(f"link set dev d0 gro_max_size {_HEADER_BYTES + _merged(flow) + 1}")
    receiver.commands += ["ethtool -K d0 gro on", f"echo {_GRO_NS} >/sys/class/net/d0/gro_flush_timeout"]
    hosts["B"].commands.append(
        f"ethtool -K b{group} tso off"
    )  # a veth device does not merge what TSO could have sent


def _check(flow: Flow, where: str, scenario: Scenario, virtual: bool) -> None:
    if not flow.is_udp:
        _check_cca(flow.cca, where)
        dctcp = isinstance(flow.cca, Dctcp)
        if dctcp and flow.ecn not in ("accurate", "l4s"):
            raise ParameterError(f"{where}.ecn: {flow.ecn!r}, but dctcp in Linux supports only 'accurate'")
        if isinstance(flow.cca, Prague):
            if flow.ecn != "l4s":
                raise ParameterError(f"{where}.ecn: {flow.ecn!r}, but prague in Linux supports only 'l4s'")
        elif flow.ecn == "l4s":
            _check_l4s(scenario, where, dctcp)
        if flow.delayed_ack > 2 and not virtual:
            raise ParameterError(
                f"{where}.delayed_ack: {flow.delayed_ack}, but only backend uml supports more than 2"
            )
        if flow.quick_acks != 16:
            raise ParameterError(f"{where}.quick_acks: {flow.quick_acks}, but Linux supports at most 16")
    if flow.queue is not None and scenario.bottleneck.scheduler in ("fq", "dual_wrr", "dual_ts"):
        raise ParameterError(
            f"{where}.queue: {flow.queue}, but {scenario.bottleneck.scheduler} in Linux classifies packets itself"
        )


def _check_l4s(scenario: Scenario, where: str, dctcp: bool) -> None:
    """Besides Prague, nothing in Linux sends ECT(1); DCTCP with ECT(0) replaces it where that is unambiguous."""
    if not dctcp or not isinstance(scenario.bottleneck.queue_list()[0].aqm, DualPi2 | LinuxDualPi2):
        raise ParameterError(
            f"{where}.ecn: 'l4s', but the testbed supports it only for prague, and for dctcp with dualpi2"
        )
    if any(f.ecn in ("classic", "accurate") for f in scenario.flows):
        raise ParameterError(
            f"{where}.ecn: 'l4s', but Linux cannot tell it from flows with other ECN, since its dctcp sends ECT(0)"
        )


def _check_cca(cca: Cca, where: str) -> None:
    if isinstance(cca, KernelModule):
        return
    if type(cca) not in _SHARED_CCAS and not cca.linux_only:
        known = {c.name for c in _SHARED_CCAS} | {n for n, c in Cca.registry.items() if c.linux_only}
        raise ParameterError(
            f"{where}.cca: Linux has no {cca.name!r}; it has {', '.join(sorted(known))}{did_you_mean(cca.name, known)}"
        )
    default = type(cca)().parameters()
    linux = {**default, **cca.in_linux}
    for name, value in cca.parameters().items():
        if value not in (default[name], linux[name]):
            raise ParameterError(
                f"{where}.cca.{name}: {value!r}, but {cca.name} in Linux has {linux[name]!r}"
            )


def _access(hosts: dict[str, Host], group: int, flow: Flow, virtual: bool) -> None:
    """The link of a sender that has one."""
    if flow.access_mbps is not None:
        shape = htb_shape(flow.access_mbps, flow.access_mbps, flow.packet_bytes, virtual)
        hosts[f"S{group}"].tc += [
            "qdisc add dev s0 root handle 1: htb default 1",
            f"class add dev s0 parent 1: classid 1:1 {shape} quantum {flow.packet_bytes}",
            f"qdisc add dev s0 parent 1:1 handle 10: pfifo limit {_NETEM_LIMIT}",
        ]


def _delays(hosts: dict[str, Host], group: int, flow: Flow) -> None:
    """The delays of a path, each with room for all packets."""
    access_ns = round(flow.access_ms * 1e6)
    there_ns = round(flow.rtt_ms * 1e6 / 2)
    back_ns = round(flow.rtt_ms * 1e6) - there_ns
    a, b = hosts["A"].tc, hosts["B"].tc
    if access_ns:
        if flow.access_mbps is None:
            hosts[f"S{group}"].tc.append(_netem("s0", access_ns))
        else:  # behind the link; on s0, netem would hide packets that wait for the link from the sender's TCP
            hosts["A"].ip.append(f"link add name i{group} type ifb")
            hosts["A"].ip.append(f"link set dev i{group} up")
            a += [
                _netem(f"i{group}", access_ns),
                f"qdisc add dev a{group} clsact",
                f"filter add dev a{group} ingress matchall action mirred egress redirect dev i{group}",
            ]
        a.append(_netem(f"a{group}", access_ns))
    jitter_ns = round(flow.jitter_ms * 1e6)
    extra = []
    if jitter_ns:
        # netem adds between -jitter and +jitter; with a rate (here 12 ns per packet), it keeps packets in order
        extra = [_time(jitter_ns // 2), "rate", "1000gbit"]
    if flow.loss:
        extra += ["loss", "random", f"{flow.loss * 100:.7f}%"]
    if there_ns - access_ns or extra:
        b.append(_netem(f"b{group}", there_ns - access_ns + jitter_ns // 2, *extra))
    if back_ns - access_ns:
        hosts[f"D{group}"].tc.append(_netem("d0", back_ns - access_ns))


def _shared_delay(flows: Sequence[Flow], limit: int) -> str:
    """One netem on the way back of all paths, which delays by the whole round trip."""
    rtt_ms = flows[0].rtt_ms
    if any((f.rtt_ms, f.access_ms, f.jitter_ms, f.loss) != (rtt_ms, 0, 0, 0) for f in flows):
        raise ParameterError(
            "ack_limit: requires flows with the same rtt_ms, without access_ms, jitter_ms and loss"
        )
    return _netem("br", round(rtt_ms * 1e6), limit=limit)


def _netem(device: str, delay_ns: int, *more: str, limit: int = _NETEM_LIMIT) -> str:
    return " ".join((f"qdisc add dev {device} root netem limit {limit} delay {_time(delay_ns)}", *more))


def _time(ns: int) -> str:
    return f"{ns / 1e3:.3f}us"


def _routes(hosts: dict[str, Host], group: int, flow: Flow, source: str, sink: str) -> None:
    hosts["A"].ip.append(f"route add {source}/32 dev a{group}")
    hosts["B"].ip.append(f"route add {sink}/32 dev b{group}")
    there = [f"route add {sink}/32 dev s0 src {source}"]
    back = [f"route add {source}/32 dev d0 src {sink}"]
    if flow.initial_window != 10:
        there.append(f"initcwnd {flow.initial_window}")
        back.append(f"initrwnd {max(flow.initial_window, 10)}")
    if flow.min_rto_ms != 200:
        there.append(f"rto_min {round(flow.min_rto_ms)}ms")
    if flow.ecn == "classic" and not flow.is_udp:
        there.append("features ecn")
    if flow.delayed_ack == 1:
        back.append("quickack 1")
    hosts[f"S{group}"].ip += [f"address add {source}/32 dev s0", " ".join(there)]
    hosts[f"D{group}"].ip += [f"address add {sink}/32 dev d0", " ".join(back)]


def _traffic(index: int, flow: Flow, scenario: Scenario, source_netns: str, sink_netns: str) -> TrafficFlow:
    def ns(seconds: float | None) -> int | None:
        return None if seconds is None else round(seconds * 1e9)

    spec = TrafficFlow(
        index=index,
        source_netns=source_netns,
        sink_netns=sink_netns,
        source_address=address(SENDERS, index),
        sink_address=address(RECEIVERS, index),
        source_port=source_port(index),
        sink_port=DESTINATION_PORT,
        cca=flow.cca.module if isinstance(flow.cca, KernelModule) else flow.cca_name,
        start_ns=round(flow.start_s * 1e9),
        stop_ns=ns(flow.stop_s),
        bytes=flow.bytes,
        rate_bps=None if flow.rate_mbps is None else flow.rate_mbps * 1e6,
        arrivals=flow.arrivals,
        on_ns=ns(flow.on_s),
        off_ns=ns(flow.off_s),
        on_off=flow.on_off,
        packet_bytes=flow.packet_bytes,
        tos={"classic": 2, "accurate": 2, "l4s": 1}.get(str(flow.ecn), 0) if flow.is_udp else 0,
        seed=(scenario.seed * 1_000_003 + index) & (2**63 - 1),
    )
    if flow.is_udp or flow.max_window >= _UNLIMITED_WINDOW:
        return spec
    return dataclasses.replace(spec, max_window_bytes=flow.max_window * spec.payload_bytes)


def batch(lines: Iterable[str]) -> str:
    """Join lines into text for ``ip -b`` or ``tc -b``."""
    return "".join(f"{line}\n" for line in lines)
