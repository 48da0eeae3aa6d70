"""Scenarios of the RTT experiment: the paper's six tests, its scaling test, and variations of test 4.

Not specified in the paper and chosen here: 1 Gbit/s; half of the base RTT after the bottleneck and half on the way
back; senders and receivers with buffers of 200 MB (section 4); flows that join and leave 30 s apart in test 1; tests
2, 5 and 6 as in ``hardware/launch/rtt-flow-separation/``; BBR version 1 unless stated otherwise; a controller that
acts twice a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support.ethernet import FULL_FRAME_BYTES, FULL_SEGMENT_BYTES
from .cases import Case

if TYPE_CHECKING:
    import numpy as np

    from ...scenario import Flow, Scenario

__all__ = ["MAWI_DAY", "SCALING", "SCHEMES", "TESTBED_TESTS", "TITLES", "Settings", "sample_transfers"]

SCALING = 7
#: The parts of the experiment and their titles; those from 8 on are ours.
TITLES = {
    1: "Test 1. Four flows that come and go (section 4.1, figure 5)",
    2: "Test 2. What one flow does not use, others get (section 4.2, figure 6)",
    3: "Test 3. Two flows with RTTs further and further apart (section 4.3, figure 7)",
    4: "Test 4. Completion times of large transfers (section 4.4, figure 8)",
    5: "Test 5. A quiet flow and a loud one (section 4.5, figure 9)",
    6: "Test 6. UDP that does not slow down (section 4.6, figure 10)",
    SCALING: "Many flows (section 4.5)",
    8: "Test 8. What the result of test 4 depends on (not in the paper)",
    9: "Test 9. Traffic that separation makes less fair, and a guard (not in the paper)",
    10: "Test 10. Test 1 with the authors' bundles of streams, compared with their logs",
    11: "Test 11. Test 3 with other buffers and more streams (not in the paper)",
}
#: Tests that real Linux can run, too.
TESTBED_TESTS = (1, 3)
#: What is done about unfairness.
SCHEMES = {
    "one queue": "nothing: one queue for all, with the BDP of the largest RTT",
    "RTT": "the paper's: queues by RTT with BDP/sqrt(N) each; shares are guaranteed, and unused ones go to others",
    "RTT, hard limits": "the same with every queue limited to its share, whatever the others leave unused",
    "RTT, limits in tenths": "hard limits of whole tenths of the link, as in the authors' logs",
    "CCA": "queues by congestion control, as P4air and P4CCI, with a classifier that never errs",
    "buffer": "one queue whose buffer follows the number of flows and their RTT, as P4BS",
    "RTT and guard": "queues by RTT only where they can help: `RttSeparation(guard=True)`",
    "RTT and threshold": "queues by RTT, and flows that make others wait for more than 4 ms are isolated",
}
#: The day of the paper's trace. If it is in the cache, test 4 takes its transfers from it.
MAWI_DAY = "2024-02-15"
WINDOW_PACKETS = 138_121  # packets of 1448 bytes in 200 MB


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Parameters
    ----------
    fast : bool
        A tenth of the rate, and shorter: for a first look, not for citing.
    seeds : int
        Runs of tests 1, 3 and 9 to 11, with starts moved by up to half a second; samples of transfers in test 8.
    scale : float
        Test 4: fraction of its 6000 transfers.
    capture : path, optional
        Test 4: take the transfers from this capture; by default :func:`sample_transfers`.
    min_bytes : int
        Test 4: smallest payload of a transfer taken from a capture.
    testbed : bool
        Run :data:`TESTBED_TESTS` in a small form (a twentieth of the rate, a third of the time), in the simulator and
        on real Linux.
    """

    fast: bool = False
    seeds: int = 3
    scale: float = 0.02
    capture: Path | None = None
    min_bytes: int = 10_000_000
    testbed: bool = False

    @property
    def rate_mbps(self) -> float:
        """Rate of the link."""
        return 50.0 if self.testbed else 100.0 if self.fast else 1000.0

    def time_s(self, seconds: float) -> float:
        """A time of the full experiment, scaled to this one."""
        return seconds / 3 if self.testbed else seconds / 4 if self.fast else seconds


def _scenario(
    settings: Settings, flows: Iterable[Flow], buffer_ms: float, duration_s: float, seed: int = 1
) -> Scenario:
    from ...scenario import Bottleneck, Scenario

    room = max(math.ceil(settings.rate_mbps * 125 * buffer_ms), 10 * FULL_FRAME_BYTES)
    bottleneck = Bottleneck(rate_mbps=settings.rate_mbps, buffer_bytes=room)
    return Scenario(bottleneck=bottleneck, flows=tuple(flows), duration_s=round(duration_s, 3), seed=seed)


def _flow(cca: str, rtt_ms: float, **options: Any) -> Flow:
    from ...scenario import Flow

    return Flow(cca, rtt_ms=rtt_ms, max_window=WINDOW_PACKETS, **options)


def _moved(seed: int, n: int) -> np.ndarray:
    """Starts of n flows within the first half second, so that seeds differ."""
    import numpy as np

    return np.random.default_rng(seed).uniform(0, 0.5, n).round(3)


def places(settings: Settings) -> list[dict[str, str]]:
    """Where each case runs, as a column; no column if that is the simulator alone."""
    return [{"where": "simulator"}, {"where": "Linux"}] if settings.testbed else [{}]


# ---- test 1: four flows that come and go -----------------------------------------------------------------------------

RTTS_1 = (2.0, 20.0, 40.0, 60.0)
SCHEMES_1 = ("one queue", "RTT", "RTT, hard limits", "CCA", "buffer")
CCAS_1 = {
    "CUBIC": ("cubic",) * 4,
    "BBR": ("bbr",) * 4,
    "CUBIC and BBR": ("cubic", "bbr", "cubic", "bbr"),
}


def test_1(settings: Settings) -> list[Case]:
    """Four flows of one congestion control, or of two, under each scheme, with each seed."""
    step = settings.time_s(30)
    cases = []
    for ccas, names in CCAS_1.items():
        if settings.testbed and len(set(names)) > 1:
            continue
        rtts = RTTS_1 if ccas != "CUBIC and BBR" else (20.0, 20.0, 60.0, 60.0)
        for seed in range(1, settings.seeds + 1):
            flows = [
                _flow(
                    cca, rtt, start_s=i * step + float(late), stop_s=(4 + i) * step, name=f"{rtt:g} ms {cca}"
                )
                for i, (cca, rtt, late) in enumerate(zip(names, rtts, _moved(seed, 4), strict=True))
            ]
            scenario = _scenario(settings, flows, max(rtts), 7 * step, seed)
            for scheme in SCHEMES_1[: 2 if settings.testbed else None]:
                for where in places(settings):
                    cases.append(Case({"flows": ccas, "scheme": scheme, "seed": seed} | where, scenario))
    return cases


# ---- test 2: what one flow does not use, others get ------------------------------------------------------------------

#: Flow, start, stop, and the rate that it is held back to (Mbit/s of 1 Gbit/s).
PARTS_2 = (
    (1, 0, 240, None), (1, 240, 360, 250), (1, 360, 540, None),
    (2, 60, 120, None), (2, 120, 240, 250), (2, 240, 540, None),
    (3, 360, 420, None), (3, 420, 480, 100),
)  # fmt: skip
PHASES_2 = ((0, 60), (60, 120), (120, 240), (240, 360), (360, 420), (420, 480), (480, 540))


def test_2(settings: Settings) -> list[Case]:
    """Three flows that join, leave and are held back elsewhere."""
    flows = []
    for flow, start, stop, held in PARTS_2:
        rate = {} if held is None else {"rate_mbps": held * settings.rate_mbps / 1000}
        flows.append(
            _flow(
                "cubic",
                20.0 * flow,
                start_s=settings.time_s(start),
                stop_s=settings.time_s(stop),
                name=f"flow {flow}",
                **rate,
            )
        )
    scenario = _scenario(settings, flows, 60, settings.time_s(540))
    return [
        Case({"scheme": scheme}, scenario, k=3, sample_s=1.0)
        for scheme in ("one queue", "RTT", "RTT, hard limits")
    ]


# ---- test 3: two flows with RTTs further and further apart -----------------------------------------------------------

RTTS_3 = (10, 15, 20, 30, 40, 60, 80, 100, 120, 140, 160, 180, 200)
RTTS_3_TESTBED = (15, 40, 100)


def test_3(settings: Settings) -> list[Case]:
    """A flow with 10 ms beside one with a longer RTT, for each longer RTT, with each seed."""
    duration = settings.time_s(120)
    rtts = RTTS_3_TESTBED if settings.testbed else RTTS_3[1::4] if settings.fast else RTTS_3
    return [
        Case(
            {"flows": name, "scheme": scheme, "rtt_ms": rtt, "seed": seed} | where,
            _scenario(
                settings,
                [
                    _flow(cca, r, start_s=float(late))
                    for r, late in zip((10.0, float(rtt)), _moved(seed, 2), strict=True)
                ],
                rtt,
                duration,
                seed,
            ),
            k=2,
        )
        for name, cca in (("CUBIC", "cubic"), ("BBR", "bbr"))
        for rtt in rtts
        for seed in range(1, settings.seeds + 1)
        for scheme in ("one queue", "RTT")
        for where in places(settings)
    ]


# ---- test 4: completion times of large transfers ---------------------------------------------------------------------

CCAS_4 = {"CUBIC": "cubic", "HTCP": "htcp", "BBR": "bbr", "BBRv2": "bbr2"}
QUEUES_4 = (2, 4, 8)


def sample_transfers(settings: Settings, n: int | None = None, load: float = 0.9, seed: int = 1) -> Scenario:
    """Transfers like those of test 4, for use without a MAWI day.

    Parameters
    ----------
    settings : Settings
        6000 transfers times its scale; with `fast`, a hundredth of the bytes.
    n : int, optional
        Number of transfers instead.
    load : float
        Load of the link while transfers start.
    seed : int
        Draws sizes, RTTs and starts.

    Returns
    -------
    Scenario
        Sizes follow a Pareto distribution of shape 1.1 between 150 MB and 2 GB, RTTs a lognormal one with median 40 ms
        and sigma 1 between 1 and 224 ms; starts are uniform over the time that gives the load. The limits are the
        paper's (section 4.4); shapes, median and load are chosen. One queue with the BDP of the largest RTT.
    """
    import numpy as np

    n = max(round(6000 * settings.scale), 4) if n is None else n
    rng = np.random.default_rng([seed, 4])
    low, high, shape = 150e6, 2e9, 1.1
    u = rng.uniform(size=n)
    sizes = low * (1 - u * (1 - (low / high) ** shape)) ** (-1 / shape)
    if settings.fast:
        sizes /= 100
    rtts = np.exp(rng.normal(math.log(40), 1, 20 * n))
    rtts = rtts[(rtts >= 1) & (rtts <= 224)][:n].round(3)
    seconds = sizes.sum() * 8e-6 * FULL_FRAME_BYTES / FULL_SEGMENT_BYTES / settings.rate_mbps / load
    starts = np.sort(rng.uniform(0, seconds, n)).round(3)
    flows = [
        _flow("cubic", float(r), bytes=int(b), start_s=float(s))
        for r, b, s in zip(rtts, sizes, starts, strict=True)
    ]
    return _scenario(settings, flows, float(rtts.max()), 1.5 * seconds * max(load, 1.0) + 60)


def _workload_4(settings: Settings) -> Scenario:
    if settings.capture is None:
        return sample_transfers(settings)
    from ...capture.reader import iter_capture
    from ...separation.workload import scenario_from_capture

    found = scenario_from_capture(
        iter_capture(settings.capture),
        settings.rate_mbps,
        min_bytes=settings.min_bytes,
        every=max(round(1 / settings.scale), 1),
    )
    return found.replace({"flows.*.max_window": WINDOW_PACKETS})


def test_4(settings: Settings) -> list[Case]:
    """The same transfers with each congestion control in one, two, four and eight queues, and with competitors."""
    work = _workload_4(settings)
    rtts = [f.rtt_ms for f in work.flows]
    long = {"long_bytes": min(10_000_000, min(f.bytes or 0 for f in work.flows) // 4 + 1)}
    cases = []
    for name, cca in CCAS_4.items():
        if settings.fast and name not in ("CUBIC", "BBR"):
            continue
        scenario = work.replace({"flows.*.cca": cca})
        about = {"flows": name, "queues": 1, "scheme": "one queue"}
        cases.append(Case(about, scenario, sample_s=None))
        for k in QUEUES_4 if not settings.fast else (4,):
            about = {"flows": name, "queues": k, "scheme": "RTT"}
            cases.append(Case(about, scenario, k=min(k, len(set(rtts))), options=long, sample_s=None))
        for scheme in ("CCA", "buffer"):
            cases.append(
                Case({"flows": name, "queues": 1, "scheme": scheme}, scenario, options=long, sample_s=None)
            )
    by_rtt = {"flows": "CUBIC", "queues": 4, "scheme": "RTT", "shares": "by RTT"}
    cubic = work.replace({"flows.*.cca": "cubic"})
    cases.append(Case(by_rtt, cubic, k=4, options=long | {"shares": "rtt"}, sample_s=None))
    return cases


# ---- test 8: what the result of test 4 depends on --------------------------------------------------------------------

#: Test 4 with one thing changed each: load, room in the one queue (in BDPs of the largest RTT), classes, shares.
CONDITIONS = {
    "as in test 4": (0.9, 1.0, 4, "flows"),
    "one class, beginners apart": (0.9, 1.0, 1, "flows"),
    "shares by RTT": (0.9, 1.0, 4, "rtt"),
    "load 0.6": (0.6, 1.0, 4, "flows"),
    "load 3": (3.0, 1.0, 4, "flows"),
    "one queue of 4 BDP": (0.9, 4.0, 4, "flows"),
    "one queue of BDP / 4": (0.9, 0.25, 4, "flows"),
}
TRANSFERS = 60


def test_8(settings: Settings) -> list[Case]:
    """Test 4 with one thing changed at a time, for CUBIC, with each sample of transfers."""
    n = 12 if settings.fast else TRANSFERS
    options = {"long_bytes": 100_000 if settings.fast else 10_000_000}
    cases = []
    for seed in range(1, settings.seeds + 1):
        for condition, (load, bdps, k, shares) in CONDITIONS.items():
            work = sample_transfers(settings, n, load, seed)
            room = work.bottleneck.buffer_bytes
            assert room is not None  # as sample_transfers makes it
            work = work.replace({"bottleneck.buffer_bytes": round(bdps * room)})
            about = {"condition": condition, "seed": seed}
            if (load, bdps) != (0.9, 1.0) or condition == "as in test 4":
                cases.append(Case(about | {"scheme": "one queue"}, work, sample_s=None))
            more = options | {"shares": shares}
            cases.append(Case(about | {"scheme": "RTT"}, work, k=k, options=more, sample_s=None))
    return cases


# ---- test 9: traffic that separation makes less fair -----------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """Long flows through one link, with the BDP of the longest RTT as its buffer.

    Parameters
    ----------
    rtts_ms : tuple of float, or int
        Their RTTs, or the number of random ones between 5 and 200 ms, drawn for each seed.
    cca : str
    rate_mbps : float
    seconds : float
        Duration.
    jitter_ms : float
        Largest random delay of each packet after the bottleneck.
    long_bytes : int, optional
        Threshold for long flows, instead of :class:`Case`'s.
    spoofed : int
        Number of additional UDP flows, each with a hundredth of the link's rate.
    """

    rtts_ms: tuple[float, ...] | int
    cca: str = "cubic"
    rate_mbps: float = 100.0
    seconds: float = 60.0
    jitter_ms: float = 0.0
    long_bytes: int | None = None
    spoofed: int = 0

    def flows(self, seed: int) -> list[Flow]:
        """The flows, which start within the first half second."""
        import numpy as np

        rtts: Iterable[float] = (
            np.random.default_rng([seed, 9]).uniform(5, 200, self.rtts_ms).round(3)
            if isinstance(self.rtts_ms, int)
            else self.rtts_ms
        )
        tcp = [(float(rtt), {"jitter_ms": self.jitter_ms, "name": "TCP"}) for rtt in rtts]
        udp = [(20.0, {"rate_mbps": self.rate_mbps / 100, "name": "UDP"})] * self.spoofed
        late = _moved(seed, len(tcp) + len(udp))
        return [
            _flow("udp" if more["name"] == "UDP" else self.cca, rtt, start_s=float(start), **more)
            for (rtt, more), start in zip(tcp + udp, late, strict=True)
        ]


GRADIENT = tuple(round(10 + 2 * i / 7, 3) for i in range(8))
TRAFFIC = {
    "8 CUBIC, 10 to 12 ms": Traffic(GRADIENT),
    "8 CUBIC, 10 to 12 ms, jitter": Traffic(GRADIENT, jitter_ms=0.5),
    "20 CUBIC, random RTTs": Traffic(20),
    "20 CUBIC, random RTTs, jitter": Traffic(20, jitter_ms=0.5),
    "20 BBR, random RTTs": Traffic(20, "bbr"),
    "50 CUBIC, random RTTs": Traffic(50),
    "50 CUBIC, random RTTs, jitter": Traffic(50, jitter_ms=0.5),
    "50 CUBIC, random RTTs, long from 10 MB": Traffic(50, seconds=30.0, long_bytes=10_000_000),
    "1000 CUBIC, random RTTs, 1 Gbit/s": Traffic(1000, rate_mbps=1000.0, seconds=20.0),
    "1000 CUBIC, random RTTs, 1 Gbit/s, long from 0.1 MB": Traffic(
        1000, rate_mbps=1000.0, seconds=20.0, long_bytes=100_000
    ),
    "5 CUBIC, 20 to 100 ms, 2 Mbit/s": Traffic((20.0, 40.0, 60.0, 80.0, 100.0), rate_mbps=2.0),
    "4 CUBIC beside 300 spoofed UDP flows": Traffic((20.0, 40.0, 60.0, 80.0), spoofed=300),
    "4 CUBIC with the RTTs of test 1": Traffic(RTTS_1),
    "4 BBR with the RTTs of test 1": Traffic(RTTS_1, "bbr"),
    "2 CUBIC, 10 and 40 ms": Traffic((10.0, 40.0)),
    "2 BBR, 10 and 40 ms": Traffic((10.0, 40.0), "bbr"),
}
SCHEMES_9 = ("one queue", "RTT", "RTT and guard")


def test_9(settings: Settings) -> list[Case]:
    """Each traffic in one queue, separated, and separated with the guard, with each seed."""
    from ...scenario import Bottleneck, Scenario

    cases = []
    for name, traffic in TRAFFIC.items():
        if settings.fast and isinstance(traffic.rtts_ms, int) and traffic.rtts_ms > 100:
            continue
        options = {} if traffic.long_bytes is None else {"long_bytes": traffic.long_bytes}
        for seed in range(1, settings.seeds + 1):
            flows = traffic.flows(seed)
            longest = max(flow.rtt_ms for flow in flows)
            room = max(math.ceil(traffic.rate_mbps * 125 * longest), 10 * FULL_FRAME_BYTES)
            scenario = Scenario(
                bottleneck=Bottleneck(rate_mbps=traffic.rate_mbps, buffer_bytes=room),
                flows=tuple(flows),
                duration_s=settings.time_s(traffic.seconds),
                seed=seed,
            )
            for scheme in SCHEMES_9:
                about = {"traffic": name, "scheme": scheme, "seed": seed}
                cases.append(Case(about, scenario, options=options))
    return cases


# ---- test 10: test 1 with the authors' bundles -----------------------------------------------------------------------

#: The schemes of the authors' logs, by their queues.
LOGGED_SCHEMES = {"one": "one queue", "by RTT": "RTT, limits in tenths"}


def test_10(settings: Settings) -> list[Case]:
    """Two, three and four bundles with as many streams as in the logs, in one queue and with limits and guarantees."""
    from .logs import logged_bundles

    cases = []
    for row in logged_bundles().to_dict("records"):
        n = row["bundles"]
        about = {name: row[name] for name in ("flows", "bundles", "streams")} | {
            "streams_with": row["queues"]
        }
        schemes = ["one queue"] if row["queues"] == "one" else ["one queue", "RTT, limits in tenths", "RTT"]
        for seed in range(1, settings.seeds + 1):
            flows = [
                _flow(row["flows"].lower(), rtt, count=int(streams), start_s=float(late), name=f"{rtt:g} ms")
                for rtt, streams, late in zip(
                    RTTS_1, row["streams"].split("+"), _moved(seed, n), strict=False
                )
            ]
            scenario = _scenario(settings, flows, RTTS_1[-1], settings.time_s(40), seed)
            for scheme in schemes:
                cases.append(
                    Case(about | {"scheme": scheme, "seed": seed}, scenario, n, {"shares": "queues"})
                )
    return cases


# ---- test 11: test 3 with other buffers and more streams -------------------------------------------------------------

#: The pair of which the authors' logs exist.
LOGGED_PAIR = "6 and 85 ms"
PAIRS_11 = {"10 and 15 ms": (10.0, 15.0), "10 and 40 ms": (10.0, 40.0), LOGGED_PAIR: (6.0, 85.0)}
BUFFERS_11_MS = (15, 30, 60, 120)
STREAMS_11 = (1, 10)


def test_11(settings: Settings) -> list[Case]:
    """Two flows, or bundles of streams, with different RTTs in one queue, with each buffer and seed."""
    return [
        Case(
            {
                "flows": name, "rtts": rtts, "streams": streams, "buffer_ms": buffer_ms, "scheme": "one queue",
                "seed": seed,
            },
            _scenario(
                settings,
                [
                    _flow(name.lower(), rtt, count=streams, start_s=float(late), name=f"{rtt:g} ms")
                    for rtt, late in zip(PAIRS_11[rtts], _moved(seed, 2), strict=True)
                ],
                buffer_ms,
                settings.time_s(60),
                seed,
            ),
        )
        for name in ("CUBIC", "BBR")
        for rtts in PAIRS_11
        for streams in STREAMS_11
        for buffer_ms in (BUFFERS_11_MS[::3] if settings.fast else BUFFERS_11_MS)
        for seed in range(1, settings.seeds + 1)
    ]  # fmt: skip


# ---- test 5: a quiet flow and a loud one -----------------------------------------------------------------------------


def test_5(settings: Settings) -> list[Case]:
    """A flow that sends three tenths of the rate, and after a while one that sends all it can."""
    flows = [
        _flow("cubic", 20.0, rate_mbps=0.3 * settings.rate_mbps, name="flow 1"),
        _flow("cubic", 20.0, start_s=settings.time_s(60), name="flow 2"),
    ]
    scenario = _scenario(settings, flows, 200, settings.time_s(120))
    return [
        Case({"scheme": scheme}, scenario, sample_s=0.1)
        for scheme in ("one queue", "RTT", "RTT and threshold", "CCA", "buffer")
    ]


# ---- test 6: UDP that does not slow down -----------------------------------------------------------------------------


def test_6(settings: Settings) -> list[Case]:
    """UDP at the link's rate; one TCP flow after the other joins."""
    flows = [_flow("udp", 20.0, rate_mbps=settings.rate_mbps, name="UDP")] + [
        _flow("cubic", 20.0, start_s=settings.time_s(60 * i), name=f"TCP {i}") for i in (1, 2, 3)
    ]
    scenario = _scenario(settings, flows, 20, settings.time_s(240))
    return [Case({"scheme": s}, scenario) for s in ("one queue", "RTT", "RTT, hard limits", "CCA", "buffer")]


# ---- the scaling test ------------------------------------------------------------------------------------------------

SCALING_FLOWS = (100, 300, 1000, 3000, 10_000)
SCALING_RTTS_MS = (10.0, 40.0, 90.0, 180.0)
