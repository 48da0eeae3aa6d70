"""Scenarios of the ABC experiment: three ways to share a link, and possible causes of the paper's figure 6.

Scenarios with the same parameters are in ``hardware/launch/p4-abc/``; a test compares them. Not specified in the paper
and chosen here: CUBIC; Poisson arrivals of UDP (two perfectly regular streams lock into a pattern in which one of them
loses everything); rates of whole frames; connections start within the first second, at times drawn for each run,
because that is how the paper's ten runs of TCP differ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from ..runners import Case, for_simulator
from .limiter import PACKETS_PER_S

if TYPE_CHECKING:
    from ...scenario import Scenario

__all__ = ["CAUSES", "DELAY", "LINUX", "LINUX_SCHEMES", "SCHEMES", "SHARINGS", "TITLES", "WHY", "Cause", "Settings",
           "Sharing", "jobs", "scenario", "why_jobs"]  # fmt: skip

#: What controls the queue in front of the link.
SCHEMES = {
    "without ABC": "a buffer of 24 packets and nothing else",
    "ABC": "the paper's algorithm with its parameters",
    "ABC in integers": "the same with tables instead of exponentials, logarithms and divisions",
    "CSFQ": "core-stateless fair queueing (Stoica et al. 1998)",
    "fair queueing": "a queue of 24 packets for each client, served in turn (deficit round robin)",
}
RATE_MBPS, BUFFER_PACKETS = 50, 24
#: Bytes of UDP's and TCP's frames, each with a payload of PAYLOAD_BYTES.
UDP_BYTES, TCP_BYTES, PAYLOAD_BYTES = 1490, 1514, 1448
#: Goodput of TCP on a full link.
FITS_MBPS = RATE_MBPS * PAYLOAD_BYTES / TCP_BYTES
WHY = "why"
DELAY = "delay"
LINUX = "linux"
#: The parts of the experiment and their titles.
TITLES = {"sharing": "Sharing a link", WHY: "What could produce the paper's figure 6",
          DELAY: "An input queue that delays", LINUX: "Real Linux"}  # fmt: skip
#: Schemes that real Linux has: ABC is ``sch_abc`` of ``hardware/linux``.
LINUX_SCHEMES = ("without ABC", "ABC")
#: Most runs of a data point on real Linux (the simulator shows the spread), and their longest duration in s.
LINUX_RUNS, LINUX_S = 1, 20.0


@dataclass(frozen=True)
class Sharing:
    """One of the paper's experiments: its figure, what client 0 varies, and what client 1 does."""

    figure: int
    title: str
    axis: str
    steps: tuple[int, ...]
    client_0: Mapping[str, Any]
    client_1: Mapping[str, Any]


_UDP = {"cca": "udp", "arrivals": "poisson", "packet_bytes": UDP_BYTES}
_TCP = {"cca": "cubic"}
SHARINGS = {
    "cbr": Sharing(
        4, "Two constant rates (figure 4)", "rate of client 0, Mbit/s (client 1: 40)", tuple(range(10, 101, 10)),
        _UDP, _UDP | {"rate_mbps": 40},
    ),
    "tcp": Sharing(
        5, "TCP against TCP (figure 5)", "connections of client 0 (client 1: one)", tuple(range(1, 11)),
        _TCP, _TCP,
    ),
    "cbr-tcp": Sharing(
        6, "A constant rate against TCP (figure 6)", "rate of client 0, Mbit/s (client 1: one connection)",
        tuple(range(10, 101, 10)), _UDP, _TCP,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Parameters
    ----------
    sharings : sequence of str
        Some of :data:`SHARINGS`.
    duration_s : float
        Duration of each run; the paper's is 300 s.
    runs : int
        Runs of each data point; the paper has 10. Causes get at most three.
    kernel : Path, optional
        Folder for runs on real Linux.
    """

    sharings: Sequence[str] = tuple(SHARINGS)
    duration_s: float = 30.0
    runs: int = 10
    kernel: Path | None = None


def scenario(
    sharing: str, value: float, scheme: str = "ABC", *, duration_s: float = 30, seed: int = 1
) -> Scenario:
    """A scenario of the paper.

    Parameters
    ----------
    sharing : str
        ``"cbr"``, ``"tcp"`` or ``"cbr-tcp"``: figures 4, 5 and 6.
    value : float
        Client 0's rate (Mbit/s of frames) or number of connections.
    scheme : str
        One of :data:`SCHEMES`.
    duration_s : float
    seed : int
        Draws UDP's arrivals, TCP's starts and the queue discipline's random numbers.

    Raises
    ------
    ParameterError
        There is no such sharing or scheme.

    Examples
    --------
    >>> len(scenario("tcp", 3).flows)
    4
    """
    import numpy as np

    from ...aqm import Abc, Csfq, IntegerAbc, TailDrop
    from ...scenario import Bottleneck, Flow, Queue, Scenario

    if sharing not in SHARINGS:
        raise ParameterError(f"sharing: {sharing!r} must be one of {', '.join(SHARINGS)}")
    if scheme not in SCHEMES:
        raise ParameterError(f"scheme: {scheme!r} must be one of {', '.join(SCHEMES)}")
    what = SHARINGS[sharing]
    fair = scheme == "fair queueing"
    aqm = {"ABC": Abc, "ABC in integers": IntegerAbc, "CSFQ": Csfq}.get(scheme, TailDrop)()
    starts = np.random.default_rng([seed, 6]).uniform(0, 1, 1000).round(6).tolist()
    flows = []
    for client, given in enumerate((what.client_0, what.client_1)):
        options: dict[str, Any] = dict(given) | {
            "rtt_ms": 20, "access_ms": 5, "access_mbps": 100, "aggregate": client, "name": f"client {client}",
            "queue": client if fair else None,
        }  # fmt: skip
        if options["cca"] == "udp":
            flows.append(Flow(**({"rate_mbps": value} | options)))
        else:
            for _ in range(int(value) if sharing == "tcp" and client == 0 else 1):
                flows.append(Flow(**options, start_s=starts.pop()))
    bottleneck = Bottleneck(
        rate_mbps=RATE_MBPS, buffer_packets=BUFFER_PACKETS, aqm=aqm, queues=(Queue(), Queue()) if fair else ()
    )
    return Scenario(bottleneck=bottleneck, flows=tuple(flows), duration_s=duration_s, seed=seed)


@dataclass(frozen=True)
class Cause:
    """Something that may hold back the connection in figure 6.

    Attributes
    ----------
    about : str
    where : str
        Where it comes from: the paper's section, or how its value was chosen.
    connections : mapping
        Fields of every TCP flow that it changes.
    aqm : mapping
        Parameters of ABC that it changes.
    switch : mapping
        Arguments of :func:`.switch.through_switch`; empty for no such switch.
    """

    about: str
    where: str
    connections: Mapping[str, Any] = field(default_factory=dict)
    aqm: Mapping[str, Any] = field(default_factory=dict)
    switch: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, scenario: Scenario) -> Scenario:
        """A scenario with ABC and this cause."""
        from ...aqm import Abc
        from .switch import through_switch

        flows = tuple(f if f.is_udp else dataclasses.replace(f, **self.connections) for f in scenario.flows)
        scenario = dataclasses.replace(scenario, flows=flows)
        if self.aqm:
            scenario = scenario.replace({"bottleneck.aqm": Abc(**self.aqm)})
        return through_switch(scenario, **self.switch) if self.switch else scenario


_LINK = {"link_mbps": 50.0, "link_packets": 24.0}
_READ = {"read_packets_per_s": 9700.0}
CAUSES = {
    "as described": Cause("nothing changed", "section 6.1.3"),
    "Reno": Cause("another congestion control", "chosen", {"cca": "reno"}),
    "RTT 40 ms": Cause("a slow switch: twice the delay", "chosen", {"rtt_ms": 40}),
    "full input queue": Cause(
        "the connection waits behind 1024 packets that the switch reads at the limiter's rate: 245 ms more",
        "BMv2's queue length",
        {"rtt_ms": 20 + round(1024 / PACKETS_PER_S * 1000)},
    ),
    "jitter 5 ms": Cause("an uneven switch: up to 5 ms more", "chosen", {"jitter_ms": 5}),
    "bursts": Cause(
        "one acknowledgement for 16 packets, as receivers with receive offload send",
        "chosen",
        {"delayed_ack": 16},
    ),
    "M_AM 0.3 s": Cause("a shorter memory of the meter", "chosen", aqm={"meter_memory_s": 0.3}),
    "M_AM 30 s": Cause("a longer memory of the meter", "chosen", aqm={"meter_memory_s": 30.0}),
    "M_AA 3 s": Cause("a longer memory of the average activity", "chosen", aqm={"average_memory_s": 3.0}),
    "Q_min 12": Cause("the earlier simulations' Q_min", "section 6.1.3, from [6]", aqm={"min_packets": 12.0}),
    "gamma 1": Cause("a sixteenth of gamma", "fitted", aqm={"gamma_packets": 1.0}),
    "random loss": Cause("a packet in a thousand is lost anywhere", "fitted", {"loss": 0.001}),
    "slow reading": Cause(
        "the switch reads 9700 packets/s", "section 6.1.3 names it; the rate is fitted", switch=_READ
    ),
    "link behind": Cause(
        "4170 packets/s into a link of 50 Mbit/s", "section 5.1, nothing fitted", switch=_LINK
    ),
    "both": Cause("slow reading and the link behind", "fitted, as slow reading", switch=_READ | _LINK),
}
#: RTTs of the connections, ms: the paper's, and more of it in the switch's input queue. A full one of 1024 packets
#: (BMv2's length) takes 105 ms if the switch reads as fast as "slow reading" does, and 245 ms at the limiter's rate.
DELAYED_RTTS_MS = (20, 50, 100, 125, 150, 200, 265, 300)
#: What is run with each: name, sharing, value, and the longest duration in s.
DELAYED = (
    ("flood", "cbr-tcp", 100, math.inf), ("alone", "cbr-tcp", 0, math.inf),
    ("alone for a minute", "cbr-tcp", 0, 60.0), ("ten", "tcp", 10, math.inf),
)  # fmt: skip
DELAYED_RUNS = 5
#: Where causes are tested: figure 6's shape, the connection alone, and whether figures 4 and 5 still come out.
_LOOKED_AT: tuple[tuple[str, float], ...] = (
    *(("cbr-tcp", x) for x in (0, 20, 40, 60, 80, 100)),
    *(("tcp", x) for x in (1, 2, 4, 10)),
    *(("cbr", x) for x in (20, 60, 100)),
)


def _why_scenario(cause: Cause, sharing: str, value: float, duration_s: float, seed: int) -> Scenario:
    """A scenario with a cause; in figure 6 a rate of 0 is the connection alone."""
    made = scenario(sharing, value or 1, duration_s=duration_s, seed=seed)
    if not value:
        made = dataclasses.replace(made, flows=tuple(f for f in made.flows if not f.is_udp))
    return cause.apply(made)


def jobs(
    sharings: Sequence[str], schemes: Sequence[str], duration_s: float, runs: int
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """The paper's runs, for :func:`cctoolkit.run_sweep`: ``sharing``, ``value``, ``scheme``, ``seed``; a scenario."""
    for sharing in sharings:
        for value in SHARINGS[sharing].steps:
            for scheme in schemes:
                for seed in range(1, runs + 1):
                    about = {"sharing": sharing, "value": value, "scheme": scheme, "seed": seed}
                    yield about, scenario(sharing, value, scheme, duration_s=duration_s, seed=seed)


def why_jobs(
    causes: Sequence[str], duration_s: float, runs: int
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """The runs that distinguish causes: ``cause``, ``sharing``, ``value`` (0: the connection alone) and ``seed``, and a
    scenario."""
    for name in causes:
        for sharing, value in _LOOKED_AT:
            for seed in range(1, runs + 1):
                about = {"cause": name, "sharing": sharing, "value": value, "seed": seed}
                yield about, _why_scenario(CAUSES[name], sharing, value, duration_s, seed)


# ---- the cases of each part ------------------------------------------------------------------------------------------


def sharing_cases(settings: Settings) -> list[Case]:
    """Every step of the sharings under every scheme, with each seed."""
    made = jobs(settings.sharings, list(SCHEMES), settings.duration_s, settings.runs)
    return [Case(about, scenario) for about, scenario in made]


def why_cases(settings: Settings) -> list[Case]:
    """Every cause at the points of figures 4 to 6 that distinguish causes."""
    made = why_jobs(list(CAUSES), settings.duration_s, min(settings.runs, 3))
    return [Case(about, scenario) for about, scenario in made]


def delay_cases(settings: Settings) -> list[Case]:
    """A connection beside a flood and alone, and ten beside one, with each RTT."""
    cases = []
    for rtt_ms in DELAYED_RTTS_MS:
        cause = Cause("more delay", "BMv2's queue length", {"rtt_ms": rtt_ms})
        for what, sharing, value, longest_s in DELAYED:
            for seed in range(1, min(settings.runs, DELAYED_RUNS) + 1):
                about = {"rtt_ms": rtt_ms, "what": what, "seed": seed}
                seconds = min(settings.duration_s, longest_s)
                cases.append(Case(about, _why_scenario(cause, sharing, value, seconds, seed)))
    return cases


def linux_cases(settings: Settings) -> list[Case]:
    """The sharings with and without ABC in a Linux kernel and in the simulator, shorter and fewer."""
    if settings.kernel is None:
        return []
    duration_s, runs = min(settings.duration_s, LINUX_S), min(settings.runs, LINUX_RUNS)
    cases = []
    for about, made in jobs(settings.sharings, LINUX_SCHEMES, duration_s, runs):
        cases.append(Case(about | {"side": "kernel"}, made, kernel=settings.kernel))
        cases.append(Case(about | {"side": "simulator"}, for_simulator(made)))
    return cases
