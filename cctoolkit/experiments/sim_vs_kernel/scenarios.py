"""Scenarios of the comparison of simulator and kernel: a grid, run on both sides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support.ethernet import FULL_FRAME_BYTES
from ...errors import TestbedUnavailableError
from ..runners import for_simulator, kernel_run

if TYPE_CHECKING:
    from ...scenario import Scenario
    from ...scenario.run import Run

__all__ = ["GRID", "MODULES", "TITLES", "Case", "Grid", "Job", "Settings"]

#: The parts of the experiment and their titles.
TITLES = {"grid": "Errors of the simulator"}
#: User Mode Linux counts time in hundredths of a second, and so does Linux's PIE for its updates.
_TICK_MS = 10.0
#: Buffers under queue management, in BDP.
_AMPLE_BDP = 8.0
_CCAS = ("reno", "cubic", "bbr", "htcp", "vegas", "dctcp")
_AQMS = ("codel", "fq_codel", "pie", "red", "dualpi2")


@dataclass(frozen=True)
class Case:
    """One point of the grid.

    Parameters
    ----------
    flows : tuple of (str, float)
        Congestion control and base RTT (ms) of each.
    aqm : str
        ``tail_drop``, ``codel``, ``fq_codel``, ``pie``, ``red`` or ``dualpi2``, with Linux's defaults; RED's thresholds
        are 10 and 30 packets (DCTCP alone: a step at 10, as RFC 8257 requires).
    buffer_bdp : float
        Buffer of the queue, in bandwidth-delay products of the longest RTT; under queue management, more than is ever
        used.
    ecn : bool
        Flows negotiate ECN. DCTCP and Prague always do; under DualPI2 they are in the low-latency queue, and flows
        beside DCTCP go without.
    rate_mbps : float
    """

    flows: tuple[tuple[str, float], ...]
    aqm: str = "tail_drop"
    buffer_bdp: float = 1.0
    ecn: bool = False
    rate_mbps: float = 10.0

    @property
    def ccas(self) -> str:
        """Names of the congestion controls, joined by +."""
        return "+".join(cca for cca, _ in self.flows)

    @property
    def rtts(self) -> str:
        """Base RTTs in ms, joined by +; one if they are equal."""
        return "+".join(dict.fromkeys(f"{rtt:g}" for _, rtt in self.flows))

    @property
    def name(self) -> str:
        """Words that distinguish the case from others."""
        ecn = " ecn" if self.ecn else ""
        return f"{self.ccas} {self.rtts} ms {self.aqm}{ecn} {self.buffer_bdp:g} BDP {self.rate_mbps:g} Mbit/s"

    def scenario(self, seed: int, duration_s: float) -> Scenario:
        """The scenario that both sides run.

        The seed also draws when each flow starts (within the first half second) and its RTT (within 2 % of the case's),
        so that seeds differ in more than what the kernel leaves to chance: whether a full buffer costs one packet or
        two often depends on a single packet in flight. Senders' own links have ten times the bottleneck's rate.
        """
        import numpy as np

        from ...scenario import Bottleneck, Flow, Scenario

        rng = np.random.Generator(np.random.PCG64([seed, 7]))
        starts_s = rng.uniform(0, 0.5, len(self.flows)).round(3).tolist()
        stretch = rng.uniform(0.98, 1.02, len(self.flows)).tolist()
        longest = max(rtt for _, rtt in self.flows)
        room = self.buffer_bdp * longest * 1e-3 * self.rate_mbps * 1e6 / 8 / FULL_FRAME_BYTES
        return Scenario(
            bottleneck=Bottleneck(
                rate_mbps=self.rate_mbps, buffer_packets=max(round(room), 4), aqm=self._aqm()
            ),
            flows=tuple(
                Flow(
                    cca,
                    rtt_ms=round(rtt * more, 3),
                    start_s=start_s,
                    ecn=self._ecn(cca),
                    access_mbps=10 * self.rate_mbps,
                )
                for (cca, rtt), start_s, more in zip(self.flows, starts_s, stretch, strict=True)
            ),
            duration_s=duration_s,
            seed=seed,
            name=self.name,
        )

    def _ecn(self, cca: str) -> str | None:
        scalable = "dctcp" in self.ccas
        if cca == "prague":
            return None  # its own
        if self.aqm == "dualpi2" and scalable:  # in the L queue, where every other ECT packet would go, too
            return "l4s" if cca == "dctcp" else "off"
        return "classic" if self.ecn and cca != "dctcp" else None

    def _aqm(self) -> Any:
        from ... import aqm

        if self.aqm == "red":  # as in Linux: no gentle slope, weights are powers of two
            if self.ccas == "dctcp":
                return aqm.Red(min_packets=10, max_packets=11, max_probability=1, weight=0.5, gentle=False)
            return aqm.Red(min_packets=10, max_packets=30, max_probability=0.1, weight=1 / 64, gentle=False)
        if self.aqm == "pie":
            return aqm.Pie(update_ms=_TICK_MS * 2)
        return self.aqm


@dataclass(frozen=True)
class Grid:
    """Combinations: single flows in buffers and under queue management, and pairs in both.

    Parameters
    ----------
    ccas, rtts_ms, buffers_bdp, aqms
        Single flows: each congestion control and RTT with each buffer (tail drop) and with each of `aqms`; Reno and
        CUBIC also with classic ECN.
    pairs : sequence of two (cca, rtt_ms)
        Under tail drop with `pair_buffers_bdp` and each of `aqms`.
    rates_mbps : sequence of float
        All of this at each rate.
    """

    ccas: Sequence[str]
    rtts_ms: Sequence[float]
    buffers_bdp: Sequence[float]
    aqms: Sequence[str]
    pairs: Sequence[tuple[tuple[str, float], ...]]
    pair_buffers_bdp: Sequence[float]
    rates_mbps: Sequence[float] = (10.0,)

    def cases(self) -> Iterator[Case]:
        """All cases of the grid."""
        for rate in self.rates_mbps:
            yield from (replace(case, rate_mbps=rate) for case in self._at_one_rate())

    def _at_one_rate(self) -> Iterator[Case]:
        for cca, rtt in itertools.product(self.ccas, self.rtts_ms):
            one = ((cca, rtt),)
            if cca != "dctcp":  # DCTCP without marks is Reno
                yield from (Case(one, buffer_bdp=bdp) for bdp in self.buffers_bdp)
            for aqm in self.aqms:
                yield Case(one, aqm, _AMPLE_BDP, ecn=cca == "dctcp")
                if cca in ("reno", "cubic"):
                    yield Case(one, aqm, _AMPLE_BDP, ecn=True)
        for pair in self.pairs:
            scalable = any(cca == "dctcp" for cca, _ in pair)
            if not scalable:
                yield from (Case(pair, buffer_bdp=bdp) for bdp in self.pair_buffers_bdp)
            yield from (Case(pair, aqm, _AMPLE_BDP, ecn=scalable) for aqm in self.aqms)


#: What ``cct experiment sim-vs-kernel`` runs.
GRID = Grid(
    ccas=_CCAS,
    rtts_ms=(20, 80),
    buffers_bdp=(0.5, 1, 4),
    aqms=_AQMS,
    pairs=(
        (("reno", 40), ("cubic", 40)),
        (("cubic", 40), ("bbr", 40)),
        (("reno", 40), ("bbr", 40)),
        (("cubic", 40), ("vegas", 40)),
        (("cubic", 40), ("htcp", 40)),
        (("cubic", 40), ("dctcp", 40)),
        *(((cca, 20), (cca, 80)) for cca in _CCAS),
    ),
    pair_buffers_bdp=(1, 4),
)
#: Congestion controls that a kernel has if it was built with them, and what runs then.
MODULES = {
    "bbr3": Grid(
        ccas=("bbr3",),
        rtts_ms=(20, 80),
        buffers_bdp=(0.5, 1, 4),
        aqms=_AQMS,
        pairs=((("cubic", 40), ("bbr3", 40)), (("reno", 40), ("bbr3", 40)), (("bbr3", 20), ("bbr3", 80))),
        pair_buffers_bdp=(1, 4),
    ),
    "prague": Grid(
        ccas=("prague",),
        rtts_ms=(5, 20, 80),
        buffers_bdp=(),
        aqms=("dualpi2",),
        pairs=(
            (("cubic", 20), ("prague", 20)),
            (("cubic", 40), ("prague", 40)),
            (("dctcp", 20), ("prague", 20)),
            (("prague", 10), ("prague", 50)),
            (("prague", 20), ("prague", 80)),
        ),
        pair_buffers_bdp=(),
        rates_mbps=(10, 50),
    ),
}


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Parameters
    ----------
    cases : sequence of Case
    seeds, kernel_seeds : int
        Runs of each case in the simulator and on Linux.
    duration_s, warmup_s : float
        Duration of each run, and how much of its start is not measured.
    folder : Path
        Linux's runs are kept here.
    kernel : str
        Identifies the kernel.
    """

    cases: Sequence[Case]
    seeds: int
    kernel_seeds: int
    duration_s: float
    warmup_s: float
    folder: Path
    kernel: str

    def jobs(self) -> list[Job]:
        """Every case on both sides, with each seed; Linux first."""
        return [
            Job(case, side, seed, self.duration_s, self.warmup_s, self.folder, self.kernel)
            for side, n in (("kernel", self.kernel_seeds), ("simulator", self.seeds))
            for case in self.cases
            for seed in range(1, n + 1)
        ]


@dataclass(frozen=True)
class Job:
    """One run of one case on one side.

    Parameters
    ----------
    case : Case
    side : str
        ``"kernel"`` or ``"simulator"``.
    seed : int
    duration_s, warmup_s : float
    folder : Path
        Linux's runs are kept here.
    kernel : str
        Identifies the kernel.
    """

    case: Case
    side: str
    seed: int
    duration_s: float
    warmup_s: float
    folder: Path
    kernel: str

    @property
    def about(self) -> dict[str, Any]:
        """Columns that distinguish the job from others."""
        case = self.case
        return {
            "case": case.name,
            "ccas": case.ccas,
            "rtts_ms": case.rtts,
            "aqm": case.aqm,
            "ecn": case.ecn or "dctcp" in case.ccas or "prague" in case.ccas,
            "buffer_bdp": case.buffer_bdp,
            "rate_mbps": case.rate_mbps,
            "side": self.side,
            "seed": self.seed,
        }

    def run(self) -> Run | TestbedUnavailableError:
        """Run it, or open the run that is kept; the error where the kernel lacks something it needs."""
        scenario = self.case.scenario(self.seed, self.duration_s)
        if self.side == "simulator":
            from ...sim.simulation import simulate

            return simulate(for_simulator(scenario), record=True)
        try:
            return self.on_linux(scenario)
        except TestbedUnavailableError as err:
            return err

    def on_linux(self, scenario: Scenario) -> Run:
        """Run on real Linux, or open the run that is kept."""
        words = self.case.name.replace(" ", "-").replace("/", "")
        return kernel_run(scenario, self.folder, f"{words}-seed{self.seed}", self.kernel)
