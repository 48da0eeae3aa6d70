"""Scenarios of the P4-CoDel experiment: the paper's targets and load, and the cases of each part.

Not specified in the paper and chosen here, as in ``hardware/launch/p4-codel/``: CUBIC; a base RTT of 1 ms, because the
testbed's servers are next to each other; 10 Gbit/s from server to switch; a buffer of 1000 packets, which never fills.
A run of 4 s is one sample of a random process, so each is repeated with other seeds. The seed draws when each flow
starts (in the first 0.1 s) and its RTT (within 2 % of the nominal one).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from ..runners import Case

if TYPE_CHECKING:
    from ...aqm import Aqm
    from ...scenario import Scenario

__all__ = [
    "GUESSES",
    "KERNEL",
    "KERNEL_TARGETS",
    "TARGETS",
    "TITLES",
    "WRAPS",
    "Settings",
    "mixed_scenario",
    "scenario",
    "target",
    "udp_scenario",
]

RATE_MBPS = 100.0
DURATION_S = 4.0
RTT_MS = 1.0
PACKET_BYTES = 1514
BUFFER_PACKETS = 1000
ACCESS_MBPS = 10_000.0
CLOCK_WRAPS_MS = 2**32 / 1e6
#: Duration of runs in which slow start no longer counts.
MINUTE_S = 60.0

#: The parts of the experiment and their titles.
TITLES = {
    "figure-5": "Latency over time (figure 5)",
    "table-1": "Loss and mean latency (table I)",
    "minute": "Table I over a minute",
    "figure-7": "UDP at a constant rate (figure 7)",
    "rtts": "Flows with different RTTs",
    "fq-codel": "Flow queueing (fq_codel)",
    "if-3": "The rule that the ASIC leaves out (if_3)",
    "square-root": "Square roots",
    "clock": "A 32-bit clock",
    "npu": "The NPU's losses",
}
#: What is measured, under the paper's names where it has them.
TARGETS = {
    "Linux": "the kernel's arithmetic (`codel_linux`)",
    "RFC 8289": "the standard's algorithm (`codel`); not in the paper",
    "P4-NPU": "before the queue, square roots from tables (`codel_npu`)",
    "P4-ASIC": "Tofino's, without if_3, square roots from the math unit (`codel_pisa`)",
    "P4-ASIC, published": "the same as in the published program: a 32-bit clock compared as unsigned numbers, the next "
    "drop counted from the previous one's time, the queue's length ignored; each seed has another clock",
}
#: Name of real Linux's CoDel, which ``--testbed`` adds to the targets.
KERNEL = "Linux kernel"
#: Targets in a Linux kernel, and which of :data:`TARGETS` each is. All but the first are ``sch_codel_pisa`` of
#: ``hardware/linux``, which the kernel has if it was built with it.
KERNEL_TARGETS = {
    KERNEL: "Linux",
    f"{KERNEL}, P4-ASIC": "P4-ASIC",
    f"{KERNEL}, P4-ASIC, published": "P4-ASIC, published",
}
#: Base RTTs in ms of three flows.
RTTS_MS = {"1, 1, 1": (1, 1, 1), "1, 5, 20": (1, 5, 20), "1, 20, 80": (1, 20, 80)}
#: Runs drawn around a wrap of the clock: when it wraps (s), the seed, and whether signed differences are compared.
WRAPS = {
    "signed differences, wrap after 2 s": (2.0, 1, True),
    "plain comparison, wrap after 2 s": (2.0, 1, False),
    "plain comparison, wrap after 0.308 s": (0.308, 19, False),
}
#: From the ASIC's algorithm as printed to the published program, one change after the other.
CLOCK_STEPS: dict[str, dict[str, Any]] = {
    "as printed": {},
    "queue length ignored": {"mtu_bytes": 0},
    "+ next drop timed from the last": {"mtu_bytes": 0, "from_now": False},
    "+ 32-bit clock, signed differences": {"mtu_bytes": 0, "from_now": False, "wrap": True},
    "+ 32-bit clock, plain comparison": {"mtu_bytes": 0, "from_now": False, "wrap": True, "signed": False},
}
#: Guesses about the NPU: what each is, and what it changes of :class:`.variants.IngressCoDel` and of the scenario.
GUESSES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "as modelled": ("`codel_npu`", {}, {}),
    "delay from packets": (
        "the queue's delay is its packets' sending time, not how long its head has waited",
        {"by_packets": True},
        {},
    ),
    "RTT of 0.1 ms": ("servers closer together than 1 ms", {}, {"rtt_ms": 0.1}),
    "bursts of 8": (
        "senders send 8 packets at once, as with segmentation offload",
        {},
        {"delayed_ack": 8},
    ),
    "race": (
        "packets that arrive within 10 µs of a dropped one see the same state and are dropped, too",
        {"race_us": 10},
        {},
    ),
    "race, bursts of 4": ("the same, with bursts of 4", {"race_us": 10}, {"delayed_ack": 4}),
    "32-bit clock": (
        "nanoseconds in 32 bits, compared as unsigned numbers, as in the authors' program for Tofino",
        {"wrap": True},
        {},
    ),
    "no HyStart": (
        "slow start lasts until packets are lost, in a queue of 128 packets",
        {},
        {"cca": {"name": "cubic", "hystart": False}, "buffer_packets": 128},
    ),
    "64 packets": ("room for 64 packets in the queue", {}, {"buffer_packets": 64}),
    "64 packets, RTT of 0.1 ms": ("both", {}, {"buffer_packets": 64, "rtt_ms": 0.1}),
    "race, 64 packets": ("both", {"race_us": 10}, {"buffer_packets": 64}),
}


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Parameters
    ----------
    seeds : int
        Runs of each point; half as many on real Linux.
    full : bool
        Every Mbit/s of the UDP scan with 10 s each, and 60 s for flows with different RTTs.
    testbed : Path, optional
        Run Linux's CoDel in the testbed, too, and keep its runs in this folder.
    """

    seeds: int = 20
    full: bool = False
    testbed: Path | None = None

    @property
    def kernel_seeds(self) -> int:
        """Runs of each point on real Linux."""
        return max(self.seeds // 2, 2)

    @property
    def fewer_seeds(self) -> int:
        """Runs of each point where runs are long."""
        return max(self.seeds // 4, 2)

    @property
    def udp_rates_mbps(self) -> Sequence[float]:
        """Rates of the UDP scan."""
        if self.full:
            return [10, 50, *range(80, 121)]
        return [80, 85, 90, 95, 97, 98, 99, 100, 101, 102, 103, 105, 110, 115, 120]

    @property
    def udp_s(self) -> float:
        """Duration of a run of the UDP scan."""
        return 10.0 if self.full else 4.0

    @property
    def long_s(self) -> float:
        """Duration of runs with different RTTs or many flows."""
        return 60.0 if self.full else 15.0


# ---- scenarios -------------------------------------------------------------------------------------------------------


def target(name: str, clock_ms: float = 0.0) -> Aqm:
    """The queue discipline of a target.

    Parameters
    ----------
    name : str
        One of :data:`TARGETS`.
    clock_ms : float
        Clock of the published program at the start of the run.

    Raises
    ------
    ParameterError
        There is no such target.

    Examples
    --------
    >>> target("P4-NPU").name
    'codel_npu'
    """
    from ...aqm import CoDel, LinuxCoDel, NpuCoDel, PisaCoDel

    if name not in TARGETS:
        raise ParameterError(f"target: {name!r} must be one of {', '.join(TARGETS)}")
    if name == "P4-ASIC, published":
        return PisaCoDel(mtu_bytes=0, from_now=False, wrap=True, signed=False, clock_ms=clock_ms)
    return {"Linux": LinuxCoDel, "RFC 8289": CoDel, "P4-NPU": NpuCoDel, "P4-ASIC": PisaCoDel}[name]()


def scenario(
    aqm: Aqm | str,
    flows: int | Sequence[float] = 1,
    seed: int = 1,
    *,
    rtt_ms: float = RTT_MS,
    duration_s: float = DURATION_S,
    buffer_packets: int = BUFFER_PACKETS,
    **options: Any,
) -> Scenario:
    """CUBIC flows through 100 Mbit/s.

    Parameters
    ----------
    aqm : Aqm or str
        A queue discipline, or the name of one of :data:`TARGETS`.
    flows : int or sequence of float
        The number of flows, or the base RTT of each in ms.
    seed : int
        Draws starts, RTTs, and the clock of the published program.
    rtt_ms : float
        Base RTT of all flows if `flows` is a number.
    duration_s : float
    buffer_packets : int
    **options
        Fields of each :class:`~cctoolkit.scenario.Flow`.

    Examples
    --------
    >>> scenario("Linux", 3).bottleneck.rate_mbps
    100.0
    """
    import numpy as np

    from ...scenario import Bottleneck, Flow, Scenario

    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    rtts = [rtt_ms] * flows if isinstance(flows, int) else list(flows)
    stretch = rng.uniform(0.98, 1.02, len(rtts))
    starts_s = rng.uniform(0, 0.1, len(rtts)).round(4)
    if isinstance(aqm, str):
        aqm = target(aqm, clock_ms=rng.uniform(0, CLOCK_WRAPS_MS))
    given: dict[str, Any] = {"cca": "cubic", "access_mbps": ACCESS_MBPS} | options
    return Scenario(
        bottleneck=Bottleneck(rate_mbps=RATE_MBPS, buffer_packets=buffer_packets, aqm=aqm),
        flows=tuple(
            Flow(rtt_ms=round(rtt * more, 4), start_s=start_s, name=f"{rtt:g} ms", **given)
            for rtt, more, start_s in zip(rtts, stretch.tolist(), starts_s.tolist(), strict=True)
        ),
        duration_s=duration_s,
        seed=seed,
    )


def udp_scenario(
    aqm: Aqm | str, rate_mbps: float, seed: int = 1, *, arrivals: str = "cbr", duration_s: float = DURATION_S
) -> Scenario:
    """UDP at a constant rate through 100 Mbit/s.

    Parameters
    ----------
    aqm : Aqm or str
        A queue discipline, or the name of one of :data:`TARGETS`.
    rate_mbps : float
        Rate of whole frames.
    seed : int
    arrivals : str
        ``"cbr"`` or ``"poisson"``.
    duration_s : float
    """
    from ...scenario import Bottleneck, Flow, Scenario

    return Scenario(
        bottleneck=Bottleneck(
            rate_mbps=RATE_MBPS,
            buffer_packets=BUFFER_PACKETS,
            aqm=target(aqm) if isinstance(aqm, str) else aqm,
        ),
        flows=(Flow("udp", rtt_ms=RTT_MS, rate_mbps=rate_mbps, arrivals=arrivals, access_mbps=ACCESS_MBPS),),
        duration_s=duration_s,
        seed=seed,
    )


def mixed_scenario(aqm: Aqm, flood_mbps: float = 0.0, seed: int = 1, *, duration_s: float = 15.0) -> Scenario:
    """Three CUBIC flows with RTTs of 1, 10 and 40 ms, a thin stream like a call's, and optionally a flood.

    Parameters
    ----------
    aqm : Aqm
    flood_mbps : float
        Rate of a UDP stream that does not slow down; 0 for none.
    seed : int
    duration_s : float
    """
    from ...scenario import Flow

    made = scenario(aqm, (1, 10, 40), seed, duration_s=duration_s)
    # over TCP, whose packets two taps can tell apart even where some are lost
    more = [Flow("cubic", rtt_ms=20, rate_mbps=0.1, packet_bytes=214, name="call")]
    if flood_mbps:
        more.append(Flow("udp", rtt_ms=20, rate_mbps=flood_mbps, access_mbps=ACCESS_MBPS, name="flood"))
    return made.replace({"flows": (*made.flows, *more)})


def for_kernel(made: Scenario) -> Scenario:
    """The scenario with a packet's sending time in the RTT: the simulator's link takes it, Linux's shaper does not.

    The clock of the published program starts at a whole microsecond, as the kernel's parameter requires.
    """
    sending_ms = PACKET_BYTES * 8e-3 / RATE_MBPS
    changes: dict[str, Any] = {
        f"flows.{i}.rtt_ms": round(flow.rtt_ms + sending_ms, 4) for i, flow in enumerate(made.flows)
    }
    clock_ms = made.bottleneck.aqm.parameters().get("clock_ms")
    if clock_ms is not None:
        changes["bottleneck.aqm.clock_ms"] = round(clock_ms, 3)
    return made.replace(changes)


def kernel_targets() -> list[str]:
    """Those of :data:`KERNEL_TARGETS` that the testbed's kernel has."""
    from ...testbed.kernel import find_kernel

    has_pisa = "codel_pisa" in find_kernel().modules
    return [name for name in KERNEL_TARGETS if name == KERNEL or has_pisa]


def on_linux(settings: Settings, cases: Iterable[Case], target: str = KERNEL) -> list[Case]:
    """The same cases on real Linux; none without a testbed."""
    if settings.testbed is None:
        return []
    return [
        Case(dict(c.about) | {"target": target}, for_kernel(c.scenario), kernel=settings.testbed)
        for c in cases
    ]


# ---- the cases of each part ------------------------------------------------------------------------------------------


def figure_5(settings: Settings) -> list[Case]:
    """One and three flows on each target, recorded."""
    flows = (1, 3)
    return [
        Case({"flows": n, "target": name}, scenario(name, n), record=True, sample_s=None)
        for n in flows
        for name in TARGETS
        if name != "RFC 8289"
    ] + on_linux(settings, [Case({"flows": n}, scenario("Linux", n)) for n in flows])


def table_1(settings: Settings) -> list[Case]:
    """One to three flows on each target, with each seed."""
    flows = (1, 2, 3)
    return [
        Case({"flows": n, "target": name, "seed": seed}, scenario(name, n, seed))
        for n in flows
        for name in TARGETS
        for seed in range(1, settings.seeds + 1)
    ] + [
        case
        for name in (kernel_targets() if settings.testbed is not None else ())
        for case in on_linux(
            settings,
            [
                Case({"flows": n, "seed": seed}, scenario(KERNEL_TARGETS[name], n, seed))
                for n in flows
                for seed in range(1, settings.kernel_seeds + 1)
            ],
            name,
        )
    ]


def minute(settings: Settings) -> list[Case]:
    """Table I's runs, a minute long."""
    return [
        Case({"flows": n, "target": name, "seed": seed}, scenario(name, n, seed, duration_s=MINUTE_S))
        for n in (1, 2, 3)
        for name in TARGETS
        for seed in range(1, settings.fewer_seeds + 1)
    ]


def figure_7(settings: Settings) -> list[Case]:
    """UDP at rates around the shaped one: constant spacing on each target, Poisson arrivals on Linux's CoDel."""

    def scan(names: Iterable[str], arrivals: str) -> list[Case]:
        return [
            Case(
                {"rate_mbps": float(rate), "target": name, "arrivals": arrivals},
                udp_scenario(name, rate, arrivals=arrivals, duration_s=settings.udp_s),
            )
            for name in names
            for rate in settings.udp_rates_mbps
        ]

    simulated = [*scan(("Linux", "P4-NPU", "P4-ASIC"), "cbr"), *scan(("Linux",), "poisson")]
    return simulated + on_linux(settings, scan(("Linux",), "cbr"))


def different_rtts(settings: Settings) -> list[Case]:
    """Three flows with different RTTs, through each target and through fq_codel."""
    from ...aqm import FqCoDel

    return [
        Case(
            {"rtts_ms": rtts, "target": name, "seed": seed},
            scenario(FqCoDel() if name == "fq_codel" else name, each, seed, duration_s=settings.long_s),
        )
        for rtts, each in RTTS_MS.items()
        for name in ("Linux", "P4-NPU", "P4-ASIC", "fq_codel")
        for seed in range(1, settings.fewer_seeds + 1)
    ]


def flow_queueing(settings: Settings) -> list[Case]:
    """A mixed load through CoDel and fq_codel, recorded; one run of each on real Linux."""
    from ...aqm import FqCoDel, LinuxCoDel

    def mixed(seeds: Iterable[int]) -> list[Case]:
        return [
            Case(
                {
                    "load": "no flood" if not flood else f"flood of {flood} Mbit/s",
                    "queues": name,
                    "seed": seed,
                    "target": "simulator",
                },
                mixed_scenario(aqm, flood, seed, duration_s=settings.long_s),
                record=True,
            )
            for flood in (0, 60)
            for name, aqm in {"CoDel": LinuxCoDel(), "fq_codel": FqCoDel()}.items()
            for seed in seeds
        ]

    return mixed(range(1, settings.fewer_seeds + 1)) + on_linux(settings, mixed([1]))


def if_3(settings: Settings) -> list[Case]:
    """RFC 8289 and Listing 1 with and without the rule, one to ten flows."""
    from .variants import AlwaysAfreshCoDel, CountingCoDel, EgressCoDel

    aqms = {
        ("RFC 8289", "with"): CountingCoDel(),
        ("RFC 8289", "without"): AlwaysAfreshCoDel(),
        ("Listing 1", "with"): EgressCoDel(),
        ("Listing 1", "without"): EgressCoDel(if_3=False),
    }
    return [
        Case(
            {"flows": flows, "form": form, "if_3": rule, "seed": seed},
            scenario(aqm, flows, seed, duration_s=DURATION_S if flows <= 3 else settings.long_s),
        )
        for flows in (1, 2, 3, 5, 10)
        for (form, rule), aqm in aqms.items()
        for seed in range(1, (settings.seeds if flows <= 3 else settings.fewer_seeds) + 1)
    ]


def square_roots(settings: Settings) -> list[Case]:
    """Listing 1 with each square root, and RFC 8289 beside Linux, under four loads."""
    from ...aqm import CoDel, LinuxCoDel
    from .variants import SQUARE_ROOTS, EgressCoDel

    aqms: dict[str, Aqm] = {name: EgressCoDel(square_root=name) for name in SQUARE_ROOTS}
    aqms |= {"exact (RFC 8289)": CoDel(), "Newton step (Linux)": LinuxCoDel()}

    def load(kind: str, aqm: Aqm, seed: int) -> Scenario:
        if kind == "UDP at 101 Mbit/s":
            return udp_scenario(aqm, 101, seed, duration_s=30)
        flows = int(kind.split()[0])
        return scenario(aqm, flows, seed, duration_s=DURATION_S if flows <= 3 else settings.long_s)

    return [
        Case({"load": kind, "square_root": name, "seed": seed}, load(kind, aqm, seed))
        for kind in ("1 flow", "3 flows", "50 flows", "UDP at 101 Mbit/s")
        for name, aqm in aqms.items()
        for seed in range(1, (1 if kind.startswith("UDP") else max(settings.seeds // 2, 2)) + 1)
    ]


def clock_wrap(settings: Settings) -> list[Case]:
    """Each step from the printed algorithm to the published program, the clock's start over its whole range; and the
    runs of :data:`WRAPS`, recorded."""
    from ...aqm import PisaCoDel

    clocks_ms = [round((i + 0.5) * CLOCK_WRAPS_MS / settings.seeds, 3) for i in range(settings.seeds)]
    steps = [
        Case(
            {"flows": flows, "step": step, "seed": seed, "clock_ms": clock_ms},
            scenario(PisaCoDel(clock_ms=clock_ms if "wrap" in given else 0.0, **given), flows, seed),
        )
        for flows in (1, 2, 3)
        for step, given in CLOCK_STEPS.items()
        for seed, clock_ms in enumerate(clocks_ms, 1)
    ]

    def wrapping(wraps_at_s: float, signed: bool) -> Aqm:
        clock_ms = CLOCK_WRAPS_MS - 1e3 * wraps_at_s
        return PisaCoDel(mtu_bytes=0, from_now=False, wrap=True, signed=signed, clock_ms=clock_ms)

    drawn = [
        Case({"case": case}, scenario(wrapping(at_s, signed), 3, seed), record=True, sample_s=None)
        for case, (at_s, seed, signed) in WRAPS.items()
    ]
    return steps + drawn


def npu_losses(settings: Settings) -> list[Case]:
    """Each guess about the NPU with one to three flows, recorded."""
    from .variants import IngressCoDel

    def guessed(what: str, flows: int, seed: int) -> Scenario:
        _, changed, options = GUESSES[what]
        if "wrap" in changed:
            changed = changed | {"clock_ms": round(CLOCK_WRAPS_MS * (seed - 0.5) / settings.seeds, 3)}
        return scenario(IngressCoDel(**changed), flows, seed, **options)

    return [
        Case({"guess": what, "flows": flows, "seed": seed}, guessed(what, flows, seed), record=True)
        for what in GUESSES
        for flows in (1, 2, 3)
        for seed in range(1, settings.seeds + 1)
    ]
