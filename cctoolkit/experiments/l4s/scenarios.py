"""Scenarios of the L4S experiment: the paper's configurations and load, systems, and changes to them.

Phases add 1, 2, 10 and 25 flows of each kind: that is how many connections start in each phase of the authors' logs,
while the paper's Table 2 can also be read as totals. Not specified in the paper and chosen here: the flows of a phase
start within half a second; 250 ms of buffer (RFC 9332); iRED's two queues ("the corresponding output queue", section
4.1) are served in turn with equal weights; PI2 has a single queue, and its control plane takes 1 ms; a notification is
recirculated in 1 µs; classic packets get the square of iRED's probability (section 3.2).
``hardware/launch/l4s-ired-pi2/`` has the same as scenario files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from ..papers import author_log

if TYPE_CHECKING:
    import pandas as pd

    from ...aqm import Aqm
    from ...scenario import Flow, Scenario

__all__ = ["AS_PUBLISHED", "AS_PUBLISHED_MTU", "BESIDE_LOGS", "CAUSES", "CLOCK_MTUS", "CLOCK_S",
           "CODEL", "CODEL_AS_PUBLISHED", "CONFIGURATIONS", "CONNECTIONS", "DELAYS", "DROPS",
           "DROPS_MTUS", "JOINING", "LATE", "LATE_MTUS", "LOGGED", "LOGGED_SEEDS", "MEANT", "NETEM",
           "NETEM_PACKETS", "ON_LINUX", "PAIRS", "PI2_IN_UNITS", "PUBLISHED", "SENDERS", "SLOW_STARTS",
           "STALLED", "SYSTEMS", "TARGET_MS", "TITLES", "UNEVEN", "UNIT_TARGET_MS", "VARIANTS",
           "System", "logged_stalls", "sending_pairs", "switch_system", "system_named", "through"]  # fmt: skip

#: The parts of the experiment and their titles.
TITLES = {
    "table-3": "Cubic and Prague in four phases (table 3, figures 5 to 7)",
    "logs": "Compared with the authors' logs",
    "published": "iRED as its published program means it",
    "clock": "P4-CoDel and its 32-bit clock",
    "drops": "What the number of drops depends on",
    "delays": "Queueing delays, phase by phase",
    "slow-start": "How Prague leaves slow start",
    "stalled": "Connections that stalled",
    "late": "A PI2 controller that sees the queue late",
    "causes": "What changes the split: one thing changed at a time",
    "uneven": "Queues by class and flows per class",
    "identification": "How scalable flows are identified",
    "kernel": "Real Linux",
    "netem": "Real Linux with netem at the receiver",
}
#: The parts that need a Linux kernel to run.
ON_LINUX = ("kernel", "netem")
#: Table 1: rate (Mbit/s) and RTT (ms).
CONFIGURATIONS = {"I": (120.0, 10.0), "II": (120.0, 50.0), "III": (1000.0, 10.0), "IV": (1000.0, 50.0)}
#: Table 2: classic and scalable flows that join in each phase.
JOINING = ((1, 1), (2, 2), (10, 10), (25, 25))
#: Classic and scalable flows there are in each phase.
PAIRS = tuple(
    (sum(c for c, _ in JOINING[:n]), sum(s for _, s in JOINING[:n])) for n in range(1, len(JOINING) + 1)
)
#: Every system's target (section 5).
TARGET_MS = 20.0
BUFFER_MS = 250
SPREAD_S = 0.5
SAMPLE_S = 0.1


@dataclass(frozen=True)
class System:
    """A queue discipline, and whether scalable and classic packets have queues of their own, served in turn.

    `options` are parameters of the queue discipline.
    """

    what: str
    aqm: str
    apart: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


SYSTEMS = {
    "iRED": System(
        "the paper's: two queues served in turn, each with its own probability", "ired", apart=True
    ),
    "iRED, coupled": System(
        "a scalable packet is marked with the classic queue's probability if that is higher (RFC 9332)",
        "ired",
        apart=True,
        options={"coupled": True},
    ),
    "PI2": System("the paper's: one queue, the controller in the control plane", "pi2"),
    "DualPI2": System("RFC 9332: two coupled queues; the paper did not try it", "dualpi2"),
    "iRED, one queue": System("with PI2's single queue, to tell the algorithm from the queues", "ired"),
    "PI2, two queues": System("with iRED's queues, to tell the algorithm from the queues", "pi2", apart=True),
}
#: The paper's controller: gains in Hz, and the interval between updates.
UPDATE_MS, ALPHA, BETA = 15.0, 0.3125, 3.125


def _gains(factor: float) -> dict[str, float]:
    return {"alpha": factor * ALPHA, "beta": factor * BETA}


#: P4-CoDel as in its paper, and as in its published program.
CODEL, CODEL_AS_PUBLISHED = "P4-CoDel", "P4-CoDel, as published"
#: PI2 with a target of 20 000 units of 1024 ns, the time that is left of a timestamp in ns without its last ten bits.
PI2_IN_UNITS, UNIT_TARGET_MS = "PI2, 20.48 ms", 20_000 * 1024 / 1e6
#: How often a clock of 32 bits that counts ns wraps.
CLOCK_S = 2**32 / 1e9
#: Further systems, only beside the authors' logs.
VARIANTS = {
    "iRED, as published": System(
        "two queues with one probability and one drop flag for the port, as in the published program",
        "ired_published",
        apart=True,
    ),
    "PI2, beta times 16": System(
        "a controller that answers changes of the delay 16 times as strongly",
        "pi2",
        options={"beta": 16 * BETA},
    ),
    PI2_IN_UNITS: System("a target of 20 000 units of 1024 ns", "pi2", options={"target_ms": UNIT_TARGET_MS}),
    "PI2, late": System("its controller reads a register that follows the delay slowly", "pi2_late"),
    CODEL: System("one queue; it drops scalable packets, too", "codel"),
    CODEL_AS_PUBLISHED: System(
        "the published program for Tofino, whose clock of 32 bits wraps",
        "codel",
        options={"mtu_bytes": 0, "from_now": False, "count_first": False, "wrap": True, "signed": False},
    ),
}
#: The paper's two.
PUBLISHED = ("iRED", "PI2")
#: Systems that may be the paper's, and which of its two each is. The paper couples iRED's queues (section 4.1), without
#: a formula.
MEANT = {"iRED": "iRED", "iRED, coupled": "iRED", "PI2": "PI2"}
#: What is held against the authors' logs, and the lengths of packets (MTU).
LOGGED: dict[str, tuple[int, ...]] = {
    "iRED": (800, 400),
    "iRED, coupled": (800,),
    "iRED, one queue": (800,),
    "PI2": (1500, 800, 400),
    "PI2, beta times 16": (1500, 800),
    CODEL: (800,),
}
#: The variant that the part "published" holds beside iRED, with packets of this length (MTU).
AS_PUBLISHED, AS_PUBLISHED_MTU = "iRED, as published", 800
#: Lengths of packets (MTU) that both kinds of P4-CoDel are run with.
CLOCK_MTUS = (1500, 800)
#: What the number of drops may depend on: the system, parameters of its queue discipline, and fields of all flows.
DROPS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    AS_PUBLISHED: (AS_PUBLISHED, {}, {}),
    f"{AS_PUBLISHED}, one ACK for 16 packets": (AS_PUBLISHED, {}, {"delayed_ack": 16}),
    CODEL_AS_PUBLISHED: (CODEL_AS_PUBLISHED, {}, {}),
    f"{CODEL_AS_PUBLISHED}, one ACK for 16 packets": (CODEL_AS_PUBLISHED, {}, {"delayed_ack": 16}),
    f"{CODEL_AS_PUBLISHED}, drops take no time": (CODEL_AS_PUBLISHED, {"late": False}, {}),
}
#: Lengths of packets (MTU) that they are run with.
DROPS_MTUS = {AS_PUBLISHED: (AS_PUBLISHED_MTU,), CODEL_AS_PUBLISHED: CLOCK_MTUS}
#: Systems whose queueing delays are held against the switch's phase by phase, and the lengths of packets (MTU).
DELAYS: dict[str, tuple[int, ...]] = {
    "iRED": (800,),
    AS_PUBLISHED: (800,),
    "PI2": (1500, 800),
    PI2_IN_UNITS: (1500, 800),
    "PI2, beta times 16": (1500, 800),
}
#: Ways in which Prague leaves slow start: parameters of :class:`~.variants.RestartingPrague`; none: Prague itself.
SLOW_STARTS: dict[str, dict[str, float]] = {
    "Prague": {},
    "2 packets left after slow start": {"left_packets": 2.0},
    "and 500 round trips until the virtual RTT": {"left_packets": 2.0, "transition_rounds": 500.0},
}
#: netem at the receiver: its room in packets (1000 if nobody gives it another, tc-netem(8)), and fields of all flows.
NETEM: dict[str, tuple[int, dict[str, Any]]] = {
    "default": (1000, {}),
    "default, receivers merge": (1000, {"delayed_ack": 16}),
    "room for all": (1_000_000, {}),
}
NETEM_PACKETS = NETEM["default"][0]
#: What is run with the connections of the logs that sent, and the lengths of packets (MTU).
STALLED: dict[str, tuple[int, ...]] = {
    AS_PUBLISHED: (800, 400),
    "PI2": (800, 400),
    CODEL_AS_PUBLISHED: (1500, 800),
}
#: Whether the connections that stalled are left out, and fields of all flows.
CONNECTIONS: dict[str, tuple[bool, dict[str, Any]]] = {
    "all connections": (False, {}),
    "those that sent": (True, {}),
    "those that sent, one ACK for 16 packets": (True, {"delayed_ack": 16}),
}
#: Ways in which PI2's controller may see the queue late: the system, and parameters of its queue discipline.
LATE: dict[str, tuple[str, dict[str, float]]] = {
    "PI2 as above": ("PI2", {}),
    "control plane in 200 ms": ("PI2", {"control_plane_ms": 200.0}),
    "average over 4096 packets": ("PI2, late", {"rise_packets": 4096.0, "fall_packets": 4096.0}),
    "longest delay, forgotten over 12288 packets": ("PI2, late", {"fall_packets": 12288.0}),
}
#: Lengths of packets (MTU) that they are run with.
LATE_MTUS = (800, 400)
#: Everything that stands beside the logs somewhere, in the order of tables.
BESIDE_LOGS = (*LOGGED, AS_PUBLISHED, PI2_IN_UNITS, CODEL_AS_PUBLISHED)
#: Most seeds of variants, and of packets of 400 bytes, which take twice as long as those of 800.
LOGGED_SEEDS = 2


def switch_system(name: str) -> str:
    """Which of the switch's systems one is held against: what a variant's name begins with."""
    return name.split(",")[0]


def logged_stalls() -> pd.DataFrame:
    """How many connections stalled in the authors' logs: the results of :func:`.logs.stalled_connections`.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes cca phase`` (in which they started), ``connections stalled``.

    Examples
    --------
    >>> stalls = logged_stalls().query("configuration == 'IV' and system == 'iRED' and mtu_bytes == 800")
    >>> stalls.query("cca == 'prague'").stalled.tolist()
    [0, 0, 5, 24]
    """
    return author_log("l4s-ired-pi2-stalls")


def sending_pairs(configuration: str, system: str, mtu_bytes: int) -> tuple[tuple[int, int], ...]:
    """Classic and scalable flows in each phase of the authors' logs, without those that stalled.

    Examples
    --------
    >>> sending_pairs("IV", "iRED", 800)
    ((1, 1), (3, 3), (13, 8), (31, 9))
    """
    of = {"configuration": configuration, "system": switch_system(system), "mtu_bytes": mtu_bytes}
    stalls = logged_stalls()
    for name, value in of.items():
        stalls = stalls[stalls[name] == value]
    sent = (stalls.connections - stalls.stalled).groupby([stalls.cca, stalls.phase]).sum()
    return tuple(zip(sent["cubic"].cumsum(), sent["prague"].cumsum(), strict=True))


def system_named(name: str) -> System:
    """One of :data:`SYSTEMS` or :data:`VARIANTS`.

    Raises
    ------
    ParameterError
        There is no such system.
    """
    known = SYSTEMS | VARIANTS
    if name not in known:
        raise ParameterError(f"system: {name!r} must be one of {', '.join(known)}")
    return known[name]


def _aqm(system: System, options: Mapping[str, Any], watched: bool) -> Aqm:
    """A queue discipline with the paper's parameters, except for `options`."""
    from ...aqm import DualPi2, IRed, TofinoPi2
    from .queues import (
        DroppingCoDel,
        LatePi2,
        PublishedIRed,
        WatchedCoDel,
        WatchedDualPi2,
        WatchedIRed,
        WatchedPi2,
        WatchedPublishedIRed,
    )

    papers: dict[str, dict[str, Any]] = {
        "ired": {"min_ms": TARGET_MS, "max_ms": 40, "weight": 0.5},
        "ired_published": {"min_ms": TARGET_MS, "max_ms": 40, "weight": 0.5},
        "pi2": {"target_ms": TARGET_MS, "update_ms": UPDATE_MS, "alpha": ALPHA, "beta": BETA},
        "pi2_late": {"target_ms": TARGET_MS, "update_ms": UPDATE_MS, "alpha": ALPHA, "beta": BETA},
        "dualpi2": {"target_ms": TARGET_MS},
        "codel": {"target_ms": TARGET_MS},
    }
    classes: dict[str, tuple[type[Aqm], type[Aqm]]] = {
        "ired": (IRed, WatchedIRed),
        "ired_published": (PublishedIRed, WatchedPublishedIRed),
        "pi2": (TofinoPi2, WatchedPi2),
        "pi2_late": (LatePi2, LatePi2),
        "dualpi2": (DualPi2, WatchedDualPi2),
        "codel": (DroppingCoDel, WatchedCoDel),
    }
    return classes[system.aqm][watched](**(papers[system.aqm] | dict(system.options) | dict(options)))


def _is_scalable(flow: Flow, identifier: str) -> bool:
    """Whether a switch that identifies flows this way considers this one scalable."""
    return {"ect1": flow.ecn == "l4s", "dscp": flow.aggregate > 0, "any_ect": flow.ecn != "off"}[identifier]


def through(
    scenario: Scenario, system: str, *, watched: bool = False, options: Mapping[str, Any] | None = None
) -> Scenario:
    """A scenario's flows through a system instead of their own queue, at the same rate and buffer.

    Parameters
    ----------
    scenario : Scenario
    system : str
        One of :data:`SYSTEMS` or :data:`VARIANTS`.
    watched : bool
        Use queue disciplines that log delays and drops (:mod:`.queues`); they decide alike.
    options : mapping, optional
        Parameters of the queue discipline that replace the paper's.

    Raises
    ------
    ParameterError
        There is no such system.
    """
    from ...scenario import Bottleneck, Queue

    chosen, old = system_named(system), scenario.bottleneck
    aqm = _aqm(chosen, options or {}, watched)
    bottleneck = Bottleneck(
        rate_mbps=old.rate_mbps,
        buffer_packets=old.buffer_packets,
        buffer_bytes=old.buffer_bytes,
        aqm=aqm,
        queues=(Queue(), Queue()) if chosen.apart else (),
    )
    identifier = aqm.parameters().get("identifier", "ect1")
    queues = [None if not chosen.apart else int(not _is_scalable(f, identifier)) for f in scenario.flows]
    flows = tuple(dataclasses.replace(f, queue=q) for f, q in zip(scenario.flows, queues, strict=True))
    return dataclasses.replace(scenario, bottleneck=bottleneck, flows=flows)


#: Changes, one at a time: the system, and fields of :class:`.cases.Case`.
CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "PI2 as above": ("PI2", {}),
    "phases of 120 s, as in the paper": ("PI2", {"phase_s": 120.0}),
    "gains a tenth": ("PI2", {"aqm": _gains(0.1)}),
    "gains times 10": ("PI2", {"aqm": _gains(10)}),
    "beta times 16": ("PI2", {"aqm": {"beta": 16 * BETA}}),
    "gains divided by the update interval": ("PI2", {"aqm": _gains(1000 / UPDATE_MS)}),
    "control plane in no time": ("PI2", {"aqm": {"control_plane_ms": 0}}),
    "control plane in 60 ms": ("PI2", {"aqm": {"control_plane_ms": 60}}),
    "control plane in 500 ms": ("PI2", {"aqm": {"control_plane_ms": 500}}),
    "update every 100 ms": ("PI2", {"aqm": {"update_ms": 100}}),
    "coupling 1 instead of 2": ("PI2", {"aqm": {"coupling": 1}}),
    "Reno instead of Cubic": ("PI2", {"classic": {"cca": "reno"}}),
    "DCTCP instead of Prague": ("PI2", {"scalable": {"cca": "dctcp", "ecn": "l4s"}}),
    "Prague with its own RTT below 25 ms": (
        "PI2",
        {"scalable": {"cca": {"name": "prague", "virtual_rtt_ms": 0}}},
    ),
    "one ACK for 16 packets (receive offload)": (
        "PI2",
        {"classic": {"delayed_ack": 16}, "scalable": {"delayed_ack": 16}},
    ),
    "iRED, one queue": ("iRED, one queue", {}),
    "iRED, one queue, probability not squared": ("iRED, one queue", {"aqm": {"square": False}}),
    "iRED, probability not squared": ("iRED", {"aqm": {"square": False}}),
}

#: Classic and scalable flows in loads that tell fairness to classes from fairness to flows.
UNEVEN = ((1, 9), (9, 1))

#: Senders that tell identifiers apart: fields of classic and of scalable flows.
SENDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Cubic; Prague": ({}, {}),
    "Cubic; Prague whose DSCP was cleared": ({}, {"aggregate": 0}),
    "Cubic with Prague's DSCP; Prague": ({"aggregate": 1}, {}),
    "Cubic with ECN; Prague": ({"ecn": "classic"}, {}),
    "Cubic; DCTCP": ({}, {"cca": "dctcp"}),
}
