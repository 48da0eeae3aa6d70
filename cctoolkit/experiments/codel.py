"""The P4-CoDel paper's measurements on its three targets, and what it leaves out taken apart.

Kundel, Rizk, Blendin, Koldehofe, Hark and Steinmetz, "P4-CoDel: Experiences on Programmable Data Plane Hardware"
(2021), section IV. The paper's numbers are in ``data/papers/p4-codel.csv``.

What the paper leaves open, and what was chosen (as in ``hardware/launch/p4-codel/``): CUBIC; 1 ms of base RTT, for the
testbed's servers stand beside each other; 10 Gbit/s from server to switch; a buffer of 1000 packets, which is never
full. A run of 4 s is one sample of a random thing, so each is repeated with other seeds, which draw when each flow
starts (in the first 0.1 s) and its RTT (2 % around what was asked for).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ParameterError
from ._folder import Folder, OutputOption, markdown_table
from .papers import paper_numbers

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from ..aqm import Aqm
    from ..scenario import Scenario
    from ..scenario.run import Run

__all__ = ["KERNEL", "PARTS", "TARGETS", "Settings", "measured", "mixed_scenario", "packet_delays", "run", "scenario",
           "shapes", "spread", "target", "udp_scenario"]  # fmt: skip

RATE_MBPS = 100.0
DURATION_S = 4.0
RTT_MS = 1.0
_BUFFER_PACKETS = 1000
_ACCESS_MBPS = 10_000.0
_PACKET_BYTES = 1514
_CLOCK_WRAPS_MS = 2**32 / 1e6

#: What is measured, by the paper's names where it has them.
TARGETS = {
    "Linux": "the kernel's arithmetic (`codel_linux`)",
    "RFC 8289": "as the standard has it (`codel`); not in the paper",
    "P4-NPU": "before the queue, square root by tables (`codel_npu`)",
    "P4-ASIC": "Tofino's, without if_3, square root by the math unit (`codel_pisa`)",
    "P4-ASIC, published": "the same as the published program does it: 32-bit clock compared plainly, next drop "
    "counted from the last one's time, no look at the queue's length; each seed has another clock",
}
#: With ``--testbed``: real Linux's CoDel, as one target more.
KERNEL = "Linux kernel"


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Parameters
    ----------
    seeds : int
        Runs of each point; in the testbed half as many.
    full : bool
        Every Mbit/s of the UDP scan, 10 s each, and 60 s with different RTTs.
    testbed : Path, optional
        Run Linux's CoDel in the testbed too, and keep its runs in this folder.
    """

    seeds: int = 20
    full: bool = False
    testbed: Path | None = None

    @property
    def kernel_seeds(self) -> int:
        return max(self.seeds // 2, 2)

    @property
    def udp_rates_mbps(self) -> Sequence[float]:
        if self.full:
            return [10, 50, *range(80, 121)]
        return [80, 85, 90, 95, 97, 98, 99, 100, 101, 102, 103, 105, 110, 115, 120]

    @property
    def udp_s(self) -> float:
        return 10.0 if self.full else 4.0

    @property
    def long_s(self) -> float:
        return 60.0 if self.full else 15.0


# ---- scenarios -------------------------------------------------------------------------------------------------------


def target(name: str, clock_ms: float = 0.0) -> Aqm:
    """The queue discipline of a target.

    Parameters
    ----------
    name : str
        One of :data:`TARGETS`.
    clock_ms : float
        Of the published program: what its clock shows at the start.

    Raises
    ------
    ParameterError
        There is no such target.
    """
    from ..aqm import CoDel, LinuxCoDel, NpuCoDel, PisaCoDel

    if name not in TARGETS:
        raise ParameterError(f"target: {name!r} is none of {', '.join(TARGETS)}")
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
    buffer_packets: int = _BUFFER_PACKETS,
    **options: Any,
) -> Scenario:
    """CUBIC flows through 100 Mbit/s.

    Parameters
    ----------
    aqm : Aqm or str
        Or the name of one of :data:`TARGETS`.
    flows : int or sequence of float
        How many, or the base RTT of each in ms.
    seed : int
        Draws starts, RTTs, and the clock of the published program.
    rtt_ms : float
        Of all, where `flows` does not say.
    duration_s : float
    buffer_packets : int
    **options
        Of each flow (:class:`~cctoolkit.scenario.Flow`).
    """
    import numpy as np

    from ..scenario import Bottleneck, Flow, Scenario

    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    rtts = [rtt_ms] * flows if isinstance(flows, int) else list(flows)
    stretch = rng.uniform(0.98, 1.02, len(rtts))
    starts_s = rng.uniform(0, 0.1, len(rtts)).round(4)
    if isinstance(aqm, str):
        aqm = target(aqm, clock_ms=rng.uniform(0, _CLOCK_WRAPS_MS))
    given: dict[str, Any] = {"cca": "cubic", "access_mbps": _ACCESS_MBPS} | options
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
    """UDP at a constant rate, of whole frames, through 100 Mbit/s.

    Parameters
    ----------
    aqm : Aqm or str
        Or the name of one of :data:`TARGETS`.
    rate_mbps : float
    seed : int
    arrivals : str
        ``"cbr"`` or ``"poisson"``.
    duration_s : float
    """
    from ..scenario import Bottleneck, Flow, Scenario

    return Scenario(
        bottleneck=Bottleneck(
            rate_mbps=RATE_MBPS,
            buffer_packets=_BUFFER_PACKETS,
            aqm=target(aqm) if isinstance(aqm, str) else aqm,
        ),
        flows=(Flow("udp", rtt_ms=RTT_MS, rate_mbps=rate_mbps, arrivals=arrivals, access_mbps=_ACCESS_MBPS),),
        duration_s=duration_s,
        seed=seed,
    )


def mixed_scenario(aqm: Aqm, flood_mbps: float = 0.0, seed: int = 1, *, duration_s: float = 15.0) -> Scenario:
    """Three CUBIC flows with RTTs of 1, 10 and 40 ms, a thin stream as of a call, and perhaps a flood.

    Parameters
    ----------
    aqm : Aqm
    flood_mbps : float
        UDP that does not yield.
    seed : int
    duration_s : float
    """
    from ..scenario import Flow

    made = scenario(aqm, (1, 10, 40), seed, duration_s=duration_s)
    # over TCP, whose packets two taps can tell apart even where some are lost
    more = [Flow("cubic", rtt_ms=20, rate_mbps=0.1, packet_bytes=214, name="call")]
    if flood_mbps:
        more.append(Flow("udp", rtt_ms=20, rate_mbps=flood_mbps, access_mbps=_ACCESS_MBPS, name="flood"))
    return made.replace({"flows": (*made.flows, *more)})


def _for_kernel(made: Scenario) -> Scenario:
    """With the sending time of a packet in the RTT: the simulator's link takes it, Linux's shaper does not."""
    sending_ms = _PACKET_BYTES * 8e-3 / RATE_MBPS
    return made.replace(
        {f"flows.{i}.rtt_ms": round(flow.rtt_ms + sending_ms, 4) for i, flow in enumerate(made.flows)}
    )


# ---- measuring -------------------------------------------------------------------------------------------------------


def measured(run: Run) -> dict[str, float]:
    """A run in the paper's quantities: loss, and latency of the device (time in its queue), both of all packets.

    Returns
    -------
    dict
        ``packets`` that came, ``loss_percent`` of them, ``mean_delay_ms``, ``later_delay_ms`` (mean from 1 s on, so
        without the first burst), ``max_delay_ms``, ``utilisation`` and ``jain_index``.
    """
    found = run.summary()
    return {
        "packets": float(run.queues.arrived_packets.sum()),
        "loss_percent": 100 * found["drop_share"],
        "mean_delay_ms": found["mean_delay_ms"],
        "later_delay_ms": _later_delay_ms(run),
        **{name: found[name] for name in ("max_delay_ms", "utilisation", "jain_index")},
    }


def _later_delay_ms(run: Run, after_s: float = 1.0) -> float:
    """By the taps, or by the queues' counters where nothing was recorded."""
    if run.ingress is not None and run.egress is not None:
        delays = packet_delays(run)
        return float(delays[delays.time_s >= after_s].delay_ms.mean())
    if not len(run.queue_series):
        return float("nan")
    sums = run.queue_series.groupby("ts_ns")[["delay_sum_ns", "sent_packets"]].sum()
    later = sums[sums.index >= run.start_ns + after_s * 1e9]
    change = later.iloc[-1] - later.iloc[0]
    return float(change.delay_sum_ns / change.sent_packets / 1e6) if change.sent_packets > 0 else float("nan")


def standing(run: Run) -> dict[str, float]:
    """:func:`measured` of UDP on real Linux, with the mean delay from how much was queued (Little's law).

    Packets of UDP have no numbers, so two taps do not tell who waited how long once some are lost.
    """
    queued_ms = run.queue_series.bytes * 8e-3 / RATE_MBPS
    return measured(run) | {"mean_delay_ms": float(queued_ms.mean()), "max_delay_ms": float(queued_ms.max())}


def by_flow(run: Run) -> dict[str, float]:
    """:func:`measured`, and of each flow, by name: ``… delay_ms`` (mean in the queue) and ``… mbps`` (goodput).

    Jain's index is of the flows that send as much as they can.
    """
    from ..analysis.metrics import jain_index

    assert run.scenario is not None
    greedy = [flow.rate_mbps is None for flow in run.scenario.flow_list()]
    delays = packet_delays(run)
    mean_ms = delays.groupby("flow_id").delay_ms.mean()
    found = measured(run)
    for flow in run.flows.to_dict("records"):
        found[f"{flow['name']} delay_ms"] = float(mean_ms.get(flow["flow_id"], float("nan")))
        found[f"{flow['name']} mbps"] = flow["goodput_mbps"]
    return found | {"jain_index": jain_index(run.flows.goodput_mbps[greedy])}


def packet_delays(run: Run) -> pd.DataFrame:
    """How long each packet of the senders waited in the queue, from the two taps.

    Returns
    -------
    DataFrame
        ``flow_id``, ``time_s`` (at the ingress tap, since the start) and ``delay_ms``, without the packet's own sending
        time; lost packets are left out.
    """
    import numpy as np
    import pandas as pd

    from ..analysis.metrics import queue_delay

    if run.ingress is None or run.egress is None:
        raise ParameterError("run: its taps were not recorded (simulate(..., record=True))")
    delays = queue_delay(run.ingress, run.egress, check_taps=False)
    delays = delays[(delays.direction == 0) & (delays.payload_bytes > 0) & delays.delay_ns.notna()]
    waited_ms = delays.delay_ns.to_numpy(np.float64) / 1e6
    if run.events:  # the simulator's egress tap has the time of the last byte, Linux's that of the first
        waited_ms -= delays.wire_bytes.to_numpy(np.float64) * 8e-3 / RATE_MBPS
    return pd.DataFrame(
        {
            "flow_id": delays.flow_id.to_numpy(),
            "time_s": (delays.ts_ns.to_numpy() - run.start_ns) / 1e9,
            "delay_ms": waited_ms,
        }
    )


Case = tuple[dict[str, Any], "Scenario"]


def simulated(
    cases: Iterable[Case],
    measure: Callable[[Run], Mapping[str, Any]] = measured,
    *,
    record: bool = False,
) -> pd.DataFrame:
    """Run cases one after the other: what tells them apart, and what was measured."""
    import pandas as pd
    from tqdm.auto import tqdm

    from ..sim.simulation import simulate

    bar = tqdm(list(cases), unit="run", leave=False, disable=not sys.stderr.isatty())
    return pd.DataFrame(
        [about | dict(measure(simulate(made, record=record, sample_s=1.0))) for about, made in bar]
    )


def in_kernel(
    settings: Settings, cases: Iterable[Case], measure: Callable[[Run], Mapping[str, Any]] = measured
) -> pd.DataFrame:
    """The same cases on real Linux, and in which directory each was kept; nothing without a testbed."""
    import pandas as pd

    if settings.testbed is None:
        return pd.DataFrame()
    from ..testbed.sweep import run_testbed_sweep

    cases = list(cases)
    listed = [({"case": i}, _for_kernel(made)) for i, (_, made) in enumerate(cases)]
    table = run_testbed_sweep(listed, settings.testbed, measure=measure, progress=sys.stderr.isatty())
    found = table.drop(columns="run").to_dict("records")
    return pd.DataFrame([cases[row.pop("case")][0] | {"target": KERNEL} | row for row in found])


def spread(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over the seeds, and beside each the standard deviation as ``…_std``.

    Parameters
    ----------
    table : DataFrame
        A row a run.
    by : sequence of str
        Columns that tell points apart; ``seed`` is what they are averaged over.
    """
    import pandas as pd

    groups = table.drop(columns="seed", errors="ignore").groupby(list(by), sort=False)
    mean = groups.mean(numeric_only=True)
    std = groups.std(ddof=1, numeric_only=True).add_suffix("_std")
    columns = [name for column in mean for name in (column, f"{column}_std")]
    return pd.concat([mean, std], axis=1)[columns].reset_index()


# ---- what the paper shows --------------------------------------------------------------------------------------------


@dataclass
class Part:
    """What a part of the experiment found: tables and figures by name, and Markdown for the summary."""

    tables: dict[str, pd.DataFrame]
    figures: dict[str, go.Figure]
    text: list[str]


def figure_5(settings: Settings) -> Part:
    """Latency over time, packet by packet, of one and three flows."""
    import pandas as pd

    from ..scenario.run import load_run
    from ..sim.simulation import simulate
    from ._codel_figures import latency_over_time

    parts, rows = [], []

    def add(name: str, flows: int, made: Run) -> None:
        delays = packet_delays(made)
        parts.append(delays.assign(target=name, flows=flows))
        later = delays[delays.time_s >= 0.5].delay_ms
        rows.append(
            {
                "flows": flows,
                "target": name,
                "initial_peak_ms": delays[delays.time_s < 0.5].delay_ms.max(),
                "peak_after_ms": later.max(),
                "share_below_target_after": (later < 5).mean(),
                "mean_ms": delays.delay_ms.mean(),
            }
        )

    cases = [({"flows": flows}, scenario("Linux", flows, duration_s=DURATION_S)) for flows in (1, 3)]
    for flows in (1, 3):
        for name in TARGETS:
            if name != "RFC 8289":
                add(name, flows, simulate(scenario(name, flows), record=True, sample_s=None))
    for row in in_kernel(settings, cases).to_dict("records"):
        assert settings.testbed is not None
        add(KERNEL, row["flows"], load_run(settings.testbed / row["directory"]))
    packets, table = pd.concat(parts, ignore_index=True), pd.DataFrame(rows)
    text = [
        "Mean and peaks of the queueing delay of one run each (seed 1). The paper has a burst to slightly "
        "above 10 ms at the start with one flow, and a delay that falls below 5 ms again and again.",
        markdown_table(table),
    ]
    return Part({"figure5": table, "figure5_packets": packets}, {"figure5": latency_over_time(packets)}, text)


def paper_table_1() -> pd.DataFrame:
    """Table I: ``flows``, ``target``, ``paper_loss_percent``, ``paper_delay_ms``."""
    import pandas as pd

    numbers = paper_numbers("p4-codel", "Table I")
    parts = numbers.setting.str.extract(r"(?P<flows>\d) flows?, (?P<target>.+)")
    table = pd.DataFrame(
        {
            "flows": parts.flows.astype(int),
            "target": parts.target,
            "quantity": numbers.quantity,
            "paper": numbers.paper.astype(float),
        }
    )
    wide = table.pivot_table(index=["flows", "target"], columns="quantity", values="paper").reset_index()
    return wide.rename(
        columns={"loss_percent": "paper_loss_percent", "mean_latency_ms": "paper_delay_ms"}
    ).rename_axis(columns=None)


def table_1(settings: Settings) -> Part:
    """Loss and mean latency of one to three flows on each target."""
    import pandas as pd

    from ._codel_figures import loss_and_latency

    seeds = range(1, settings.seeds + 1)
    runs = simulated(
        ({"flows": flows, "target": name, "seed": seed}, scenario(name, flows, seed))
        for flows in (1, 2, 3)
        for name in TARGETS
        for seed in seeds
    )
    kernel = in_kernel(
        settings,
        [
            ({"flows": flows, "seed": seed}, scenario("Linux", flows, seed))
            for flows in (1, 2, 3)
            for seed in range(1, settings.kernel_seeds + 1)
        ],
    )
    runs = pd.concat([runs, kernel], ignore_index=True)
    # what ran under another name is compared with the same column of the paper
    runs["paper_target"] = runs.target.replace({KERNEL: "Linux", "P4-ASIC, published": "P4-ASIC"})
    means = spread(runs, ["flows", "target", "paper_target"])
    paper = paper_table_1().rename(columns={"target": "paper_target"})
    means = means.merge(paper, on=["flows", "paper_target"], how="left").drop(columns="paper_target")
    means = means.sort_values("flows", kind="stable", ignore_index=True)
    shown = means[
        [
            "flows", "target", "packets", "loss_percent", "loss_percent_std", "paper_loss_percent", "mean_delay_ms",
            "mean_delay_ms_std", "later_delay_ms", "paper_delay_ms",
        ]
    ]  # fmt: skip
    text = [
        f"Each mean is of {settings.seeds} runs of 4 s"
        + (f" ({settings.kernel_seeds} in the kernel)" if settings.testbed else "")
        + "; beside it the standard deviation of single runs, for the paper's number is a single run.",
        markdown_table(shown),
        "Latencies of Linux and of the ASIC, and losses of Linux, are met within a tenth and a fifth. "
        "With one flow the paper's latency is a tenth above what simulator and kernel have, on every "
        "target: it depends on the base RTT and on bursts of the senders, which the paper does not give "
        "(see the NPU's losses for what these do). The ASIC's losses are not those of Listing 2 but of "
        "the program the authors published, whose clock wraps (see there). The NPU's are not met; what "
        "was tried stands under that heading.",
        "`later_delay_ms` leaves the first second out. Of 4 s with three flows it is a large part: the "
        "first burst goes to 20 ms and its drops take half a second. How high it goes depends on slow "
        "start, where real Linux (`--testbed`) has a tenth more than the simulator; that is more than "
        "lies between Linux and the ASIC over the whole run.",
    ]
    return Part({"table1": means, "table1_runs": runs}, {"table1": loss_and_latency(means)}, text)


def figure_7(settings: Settings) -> Part:
    """Mean latency of UDP at a constant rate, scanned across the shaped one."""
    import pandas as pd

    from ._codel_figures import udp_scan

    def cases(names: Iterable[str], arrivals: str) -> list[Case]:
        return [
            (
                {"rate_mbps": float(rate), "target": name, "arrivals": arrivals},
                udp_scenario(name, rate, arrivals=arrivals, duration_s=settings.udp_s),
            )
            for name in names
            for rate in settings.udp_rates_mbps
        ]

    names = ("Linux", "P4-NPU", "P4-ASIC")
    table = pd.concat(
        [
            simulated([*cases(names, "cbr"), *cases(("Linux",), "poisson")]),
            in_kernel(settings, cases(("Linux",), "cbr"), standing),
        ],
        ignore_index=True,
    )
    table = table.drop(columns=["jain_index", "directory"], errors="ignore")
    wide = table.assign(column=table.target + table.arrivals.map({"cbr": "", "poisson": ", Poisson"}))
    wide = wide.pivot_table(
        index="rate_mbps", columns="column", values="mean_delay_ms", sort=False
    ).reset_index()
    text = [
        f"Mean delay in ms, {settings.udp_s:g} s a point. Rates are of whole frames.",
        markdown_table(wide.rename_axis(columns=None)),
        "At constant spacing nothing waits until the shaping rate is reached. Above it the queue grows until "
        "CoDel drops as much as comes too much, because UDP does not answer. On the ASIC it grows on: what is "
        "dropped there has passed the shaper, so its time on the link is lost and no drop makes the queue "
        "shorter, until the buffer is full. Only senders that slow down make that CoDel work.",
        "The paper's NPU rises from 97 Mbit/s on. In the simulator a delay below the shaping rate comes with "
        "packets that are not evenly spaced (the column with Poisson arrivals). The kernel's interrupts, which "
        "in the paper delay packets at low rates, are in neither the simulator nor the testbed's kernel; the "
        "kernel's delays are from how much was queued (Little's law).",
    ]
    return Part({"figure7": table}, {"figure7": udp_scan(table)}, text)


# ---- what it leaves out ----------------------------------------------------------------------------------------------

_RTTS_MS = {"1, 1, 1": (1, 1, 1), "1, 5, 20": (1, 5, 20), "1, 20, 80": (1, 20, 80)}


def different_rtts(settings: Settings) -> Part:
    """Three flows that are not equally far away: figure 6 has them, no result is shown."""
    from ..aqm import FqCoDel
    from ._codel_figures import rtt_shares

    seeds = range(1, max(settings.seeds // 4, 2) + 1)

    def shares(made: Run) -> dict[str, float]:
        total = made.flows.goodput_mbps.sum()
        parts = {f"share_{i + 1}": mbps / total for i, mbps in enumerate(made.flows.goodput_mbps)}
        return measured(made) | parts

    runs = simulated(
        (
            (
                {"rtts_ms": rtts, "target": name, "seed": seed},
                scenario(FqCoDel() if name == "fq_codel" else name, each, seed, duration_s=settings.long_s),
            )
            for rtts, each in _RTTS_MS.items()
            for name in ("Linux", "P4-NPU", "P4-ASIC", "fq_codel")
            for seed in seeds
        ),
        shares,
    )
    table = spread(runs, ["rtts_ms", "target"])
    shown = table[
        [
            "rtts_ms", "target", "loss_percent", "mean_delay_ms", "mean_delay_ms_std", "utilisation", "jain_index",
            "share_1", "share_2", "share_3",
        ]
    ]  # fmt: skip
    text = [
        f"{settings.long_s:g} s, {len(seeds)} seeds. Shares are of the goodput, nearest flow first.",
        markdown_table(shown),
        "The three targets treat far flows alike: CoDel's drops hit whoever has packets in the queue, and "
        "the near flow recovers first. Only queues by flow (fq_codel) change the shares.",
    ]
    return Part({"rtts": table}, {"rtts": rtt_shares(table)}, text)


def flow_queueing(settings: Settings) -> Part:
    """fq_codel, which section III-A says Tofino could have, against CoDel."""
    import pandas as pd

    from ..aqm import FqCoDel, LinuxCoDel
    from ._codel_figures import queueing

    seeds = range(1, max(settings.seeds // 4, 2) + 1)
    aqms = {"CoDel": LinuxCoDel(), "fq_codel": FqCoDel()}

    def cases(seeds: Iterable[int]) -> list[Case]:
        return [
            (
                {
                    "load": "no flood" if not flood else f"flood of {flood} Mbit/s",
                    "queues": name,
                    "seed": seed,
                },
                mixed_scenario(aqm, flood, seed, duration_s=settings.long_s),
            )
            for flood in (0, 60)
            for name, aqm in aqms.items()
            for seed in seeds
        ]

    runs = simulated(cases(seeds), by_flow, record=True).assign(target="simulator")
    kernel = in_kernel(settings, cases([1]), by_flow)
    runs = pd.concat([runs, kernel], ignore_index=True)
    table = spread(runs, ["load", "queues", "target"])
    shown = table[
        [
            "load", "queues", "target", "call delay_ms", "1 ms delay_ms", "10 ms delay_ms", "40 ms delay_ms",
            "jain_index", "1 ms mbps", "10 ms mbps", "40 ms mbps", "flood mbps", "utilisation",
        ]
    ]  # fmt: skip
    text = [
        "Three CUBIC flows with RTTs of 1, 10 and 40 ms and a thin one (0.1 Mbit/s, as of a call), "
        f"{settings.long_s:g} s, {len(seeds)} seeds. Jain's index is of the three CUBIC flows.",
        markdown_table(shown),
        "CoDel bounds how long all wait; only queues by flow keep the call from waiting behind others, "
        "share by flow instead of by RTT, and leave a flood its part instead of the link.",
        "Each queue of fq_codel has a CoDel of its own, so a flow that is far away waits less: alone it "
        "cannot fill its queue.",
    ]
    return Part({"fq_codel": table}, {"fq_codel": queueing(table)}, text)


#: What the algorithms of :func:`if_3` count.
ENTRIES = ("entered", "resumed")


def if_3(settings: Settings) -> Part:
    """What the rule that the ASIC leaves out does, everything else equal."""
    from ._codel_figures import reentry
    from ._codel_variants import AlwaysAfreshCoDel, CountingCoDel, EgressCoDel

    aqms = {
        ("RFC 8289", "with"): CountingCoDel(),
        ("RFC 8289", "without"): AlwaysAfreshCoDel(),
        ("Listing 1", "with"): EgressCoDel(),
        ("Listing 1", "without"): EgressCoDel(if_3=False),
    }

    def with_entries(made: Run) -> dict[str, float]:
        return measured(made) | {
            name: float(made.aqm_stats[name].sum()) for name in made.aqm_stats if name in ENTRIES
        }

    runs = simulated(
        (
            (
                {"flows": flows, "form": form, "if_3": rule, "seed": seed},
                scenario(aqm, flows, seed, duration_s=DURATION_S if flows <= 3 else settings.long_s),
            )
            for flows in (1, 2, 3, 5, 10)
            for (form, rule), aqm in aqms.items()
            for seed in range(1, max(settings.seeds // (1 if flows <= 3 else 4), 2) + 1)
        ),
        with_entries,
    )
    table = spread(runs, ["flows", "form", "if_3"])
    shown = table[
        [
            "flows", "form", "if_3", "loss_percent", "loss_percent_std", "mean_delay_ms", "mean_delay_ms_std",
            "entered", "resumed",
        ]
    ]  # fmt: skip
    text = [
        "The same scenario, the same place, an exact square root; only the rule is taken out. From 5 flows on "
        f"{settings.long_s:g} s.",
        markdown_table(shown),
        "`entered`: how often the dropping state began; `resumed`: how often of these the rule applied.",
        "In RFC 8289 the rule is what makes CoDel follow more flows: without it every dropping state "
        "starts at one drop an interval, fewer packets are lost, and the delay rises with the flows. That "
        "is what the paper says of its ASIC. But in the paper's own Listing 1 taking the rule out changes "
        "next to nothing: there a dropping state begins with every packet that crosses the target, not "
        "after an interval above it, so there are many, the rule applies to few of them, and what it sets "
        "is soon set anew. Beside Linux the ASIC lacks the rule; beside Listing 1 it lacks nothing. That "
        "its delay is not as large as that of RFC 8289 without the rule is due to the rest of Listing 1: "
        "its second drop follows the first after 71 ms, the RFC's after 100.",
    ]
    return Part({"if_3": table}, {"if_3": reentry(table)}, text)


def square_roots(settings: Settings) -> Part:
    """The ways to find interval / sqrt(count), everything else equal."""
    import pandas as pd

    from ..aqm import CoDel, LinuxCoDel
    from ._codel_figures import gaps, root_effect
    from ._codel_variants import SQUARE_ROOTS, EgressCoDel, gap_ms

    counts = range(1, 1025)
    errors = pd.DataFrame(
        {"count": count, "square_root": name, "error": gap_ms(name, count) / gap_ms("exact", count) - 1}
        for name in SQUARE_ROOTS
        for count in counts
    )
    aqms: dict[str, Aqm] = {name: EgressCoDel(square_root=name) for name in SQUARE_ROOTS}
    aqms |= {"exact (RFC 8289)": CoDel(), "Newton step (Linux)": LinuxCoDel()}

    def load(kind: str, aqm: Aqm, seed: int) -> Scenario:
        if kind == "UDP at 101 Mbit/s":
            return udp_scenario(aqm, 101, seed, duration_s=30)
        flows = int(kind.split()[0])
        return scenario(aqm, flows, seed, duration_s=DURATION_S if flows <= 3 else settings.long_s)

    def with_count(made: Run) -> dict[str, float]:
        stats = made.aqm_stats
        found = {"largest_count": float(stats.largest_count.max())} if "largest_count" in stats else {}
        return measured(made) | found

    runs = simulated(
        (
            ({"load": kind, "square_root": name, "seed": seed}, load(kind, aqm, seed))
            for kind in ("1 flow", "3 flows", "50 flows", "UDP at 101 Mbit/s")
            for name, aqm in aqms.items()
            for seed in range(1, (1 if kind.startswith("UDP") else max(settings.seeds // 2, 2)) + 1)
        ),
        with_count,
    )
    table = spread(runs, ["load", "square_root"])
    worst = errors.groupby("square_root", sort=False).error.agg(["min", "max"]).mul(100).reset_index()
    worst.columns = pd.Index(["square_root", "least error, %", "largest error, %"])
    shown = table[
        [
            "load", "square_root", "loss_percent", "loss_percent_std", "mean_delay_ms", "mean_delay_ms_std",
            "largest_count",
        ]
    ]  # fmt: skip
    text = [
        "The time to the next drop against the exact one, for counts up to 1024:",
        markdown_table(worst),
        "What that does: Listing 1 with each of them, and RFC 8289 beside Linux, which but for the square "
        "root are the same.",
        markdown_table(shown),
        "With one to three flows `count` hardly gets past 16, up to which the NPU's table is exact, and the math "
        "unit is off by a few percent: no difference can be told from chance. Beyond 16 the table makes gaps up "
        "to sqrt(2) too long. With 50 flows, and with UDP that does not answer, the count gets there, and the "
        "queue is a tenth or more longer; the few percent of the math unit hardly show. Linux's Newton step "
        "follows the root closely as the count goes up one by one.",
    ]
    figures = {"square_root_error": gaps(errors), "square_root_effect": root_effect(table)}
    return Part({"square_root": table, "square_root_error": errors}, figures, text)


#: Of :func:`clock_wrap`: runs that are drawn, with when the clock wraps (s), the seed, and whether signed differences
#: are compared.
WRAPS = {
    "signed differences, wrap after 2 s": (2.0, 1, True),
    "plain comparison, wrap after 2 s": (2.0, 1, False),
    "plain comparison, wrap after 0.308 s": (0.308, 19, False),
}


def clock_wrap(settings: Settings) -> Part:
    """From the ASIC's algorithm as the paper has it to the published program, step by step, and its clock alone."""
    import pandas as pd

    from ..aqm import PisaCoDel
    from ..sim.simulation import simulate
    from ._codel_figures import losses_by_clock, through_the_wrap

    steps: dict[str, dict[str, Any]] = {
        "as the paper has it": {},
        "queue's length not looked at": {"mtu_bytes": 0},
        "and next drop from the last one's time": {"mtu_bytes": 0, "from_now": False},
        "and 32 bits, signed differences": {"mtu_bytes": 0, "from_now": False, "wrap": True},
        "and 32 bits, plain comparison": {"mtu_bytes": 0, "from_now": False, "wrap": True, "signed": False},
    }
    clocks_ms = [round((i + 0.5) * _CLOCK_WRAPS_MS / settings.seeds, 3) for i in range(settings.seeds)]
    runs = simulated(
        (
            {"flows": flows, "step": step, "seed": seed, "clock_ms": clock_ms},
            scenario(PisaCoDel(clock_ms=clock_ms if "wrap" in given else 0.0, **given), flows, seed),
        )
        for flows in (1, 2, 3)
        for step, given in steps.items()
        for seed, clock_ms in enumerate(clocks_ms, 1)
    )
    table = spread(runs.drop(columns="clock_ms"), ["flows", "step"])
    paper = paper_table_1().query("target == 'P4-ASIC'").drop(columns="target")
    shown = table.merge(paper, on="flows")[
        [
            "flows", "step", "loss_percent", "loss_percent_std", "paper_loss_percent", "mean_delay_ms",
            "mean_delay_ms_std", "paper_delay_ms",
        ]
    ]  # fmt: skip

    near = []
    for case, (wraps_at_s, seed, signed) in WRAPS.items():
        aqm = PisaCoDel(
            mtu_bytes=0, from_now=False, wrap=True, signed=signed, clock_ms=_CLOCK_WRAPS_MS - 1e3 * wraps_at_s
        )
        made = simulate(scenario(aqm, 3, seed), record=True, sample_s=None)
        assert made.drops is not None
        near.append(packet_delays(made).assign(case=case, lost=False))
        lost = made.drops.ts_ns.to_numpy() / 1e9
        near.append(pd.DataFrame({"time_s": lost, "delay_ms": 0.0, "case": case, "lost": True}))
    text = [
        "Listing 2 beside the program the authors published, one difference after the other; the paper's "
        f"column is its ASIC's. The clock's start goes over its whole range ({_CLOCK_WRAPS_MS:.0f} ms) in "
        f"{settings.seeds} steps.",
        markdown_table(shown),
        "Only the comparison matters. A next drop that lies behind the wrap is, plainly compared, smaller "
        "than every time before it: all packets are dropped until the delay is below the target. And as "
        "each of these drops moves the next one on, that can lie a second ahead when the clock has "
        "wrapped; until then nothing is dropped, whatever the delay (the figure's last panel: a wrap in "
        "the first burst). Nearly every run of 4 s has a wrap in it. Signed differences cost nothing and "
        "have neither.",
    ]
    figures = {
        "clock_losses": losses_by_clock(runs, paper),
        "clock_wrap": through_the_wrap(
            pd.concat(near, ignore_index=True), {case: at_s for case, (at_s, _, _) in WRAPS.items()}
        ),
    }
    return Part({"clock": table, "clock_runs": runs}, figures, text)


#: Of :func:`npu_losses`: what each is, and what it changes of :class:`~._codel_variants.IngressCoDel` and of the
#: scenario.
GUESSES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "as modelled": ("`codel_npu`", {}, {}),
    "delay from packets": (
        "the queue's delay is its packets' sending time, not its head's waiting time",
        {"by_packets": True},
        {},
    ),
    "RTT of 0.1 ms": ("servers closer together than 1 ms", {}, {"rtt_ms": 0.1}),
    "bursts of 8": (
        "senders let out 8 packets at once, as with segmentation offload",
        {},
        {"delayed_ack": 8},
    ),
    "race": (
        "who comes within 10 µs after a dropped packet sees the same state and is dropped, too",
        {"race_us": 10},
        {},
    ),
    "race, bursts of 4": ("the same, with bursts of 4", {"race_us": 10}, {"delayed_ack": 4}),
    "32-bit clock": (
        "nanoseconds in 32 bits, compared plainly, as in the authors' program for Tofino",
        {"wrap": True},
        {},
    ),
    "no HyStart": (
        "slow start goes on until packets are lost, in a queue of 128 packets",
        {},
        {"cca": {"name": "cubic", "hystart": False}, "buffer_packets": 128},
    ),
    "64 packets": ("room for so many in the queue", {}, {"buffer_packets": 64}),
    "64 packets, RTT of 0.1 ms": ("both", {}, {"buffer_packets": 64, "rtt_ms": 0.1}),
    "race, 64 packets": ("both", {"race_us": 10}, {"buffer_packets": 64}),
}


def npu_losses(settings: Settings) -> Part:
    """What might make the NPU lose as much as it did: guesses, one at a time, against all six of its numbers."""
    import numpy as np
    import pandas as pd

    from ._codel_figures import guesses
    from ._codel_variants import IngressCoDel

    def guessed(what: str, flows: int, seed: int) -> Scenario:
        _, changed, options = GUESSES[what]
        if "wrap" in changed:
            changed = changed | {"clock_ms": round(_CLOCK_WRAPS_MS * (seed - 0.5) / settings.seeds, 3)}
        return scenario(IngressCoDel(**changed), flows, seed, **options)

    def with_episodes(made: Run) -> dict[str, float]:
        assert made.drops is not None
        drops = made.drops.sort_values("ts_ns")
        episode = (drops.ts_ns.diff() > 10_000_000).cumsum()
        hit = drops.groupby(episode).flow_id.nunique().mean() if len(drops) else np.nan
        return measured(made) | {"flows_hit_at_once": float(hit)}

    seeds = range(1, settings.seeds + 1)
    runs = simulated(
        (
            ({"guess": what, "flows": flows, "seed": seed}, guessed(what, flows, seed))
            for what in GUESSES
            for flows in (1, 2, 3)
            for seed in seeds
        ),
        with_episodes,
        record=True,
    )
    table = spread(runs, ["guess", "flows"])
    paper = paper_table_1().query("target == 'P4-NPU'").drop(columns="target")
    table = table.merge(paper, on="flows")
    rows = []
    for what, mine in table.groupby("guess", sort=False):
        mine = mine.set_index("flows")
        off = [
            np.log(mine[f"{q}"] / mine[f"paper_{p}"])
            for q, p in (("loss_percent", "loss_percent"), ("mean_delay_ms", "delay_ms"))
        ]
        rows.append(
            {
                "guess": what,
                **{
                    f"loss {n}": f"{mine.loss_percent[n]:.2f} ± {mine.loss_percent_std[n]:.2f}"
                    for n in (1, 2, 3)
                },
                **{
                    f"ms {n}": f"{mine.mean_delay_ms[n]:.2f} ± {mine.mean_delay_ms_std[n]:.2f}"
                    for n in (1, 2, 3)
                },
                "flows hit at once (of 3)": mine.flows_hit_at_once[3],
                "off by": f"{np.expm1(np.sqrt(np.mean(np.concatenate(off) ** 2))):.0%}",
            }
        )
    given = paper.set_index("flows")
    rows.append(
        {
            "guess": "**the paper**",
            **{f"loss {n}": f"{given.paper_loss_percent[n]:g}" for n in (1, 2, 3)},
            **{f"ms {n}": f"{given.paper_delay_ms[n]:g}" for n in (1, 2, 3)},
        }
    )
    text = [
        "The NPU's program was not published, and what the paper says of it leaves open why it loses more "
        "than Linux and still has less delay with three flows. Each guess changes one thing of the model; "
        "none was fitted. Loss in percent and delay in ms with one, two and three flows; how many flows "
        "lose a packet in the same 10 ms, for the paper suspects that the NPU synchronises its flows; and "
        "the root mean square of all six logarithms against the paper.",
        markdown_table(pd.DataFrame(rows)),
        "Guesses: " + "; ".join(f"**{what}**: {why}" for what, (why, _, _) in GUESSES.items()) + ".",
        "A queue of 64 packets has the paper's numbers with two and three flows, and better still with a "
        "shorter RTT: less delay, more loss, and flows that lose at the same time, because the queue is "
        "full sometimes. It does not explain the loss with one flow, and figure 5 has more than 64 "
        "packets (7.8 ms) at the start. Races double every loss and leave the delay; a clock that wraps "
        "brings losses up but not the delay of three flows down. No guess gives all six numbers, so the "
        "model stays as the text describes the NPU.",
    ]
    return Part({"npu": table}, {"npu": guesses(table, paper)}, text)


# ---- the whole -------------------------------------------------------------------------------------------------------

#: Parts of the experiment: title and function of :class:`Settings`.
PARTS: dict[str, tuple[str, Callable[[Settings], Part]]] = {
    "figure-5": ("Latency over time (figure 5)", figure_5),
    "table-1": ("Loss and mean latency (table I)", table_1),
    "figure-7": ("UDP at a constant rate (figure 7)", figure_7),
    "rtts": ("Flows that are not equally far away", different_rtts),
    "fq-codel": ("Queues by flow", flow_queueing),
    "if-3": ("The rule the ASIC leaves out (if_3)", if_3),
    "square-root": ("Square roots", square_roots),
    "clock": ("A clock of 32 bits", clock_wrap),
    "npu": ("The NPU's losses", npu_losses),
}


def shapes(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Whether what the paper reports shows, by the tables of the parts that were run.

    Returns
    -------
    DataFrame
        ``shape``, ``measured`` (text), ``holds``.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []

    def add(shape: str, found: str, holds: Any) -> None:
        rows.append({"shape": shape, "measured": found, "holds": "yes" if holds else "**no**"})

    if "figure5" in tables:
        one = tables["figure5"].query("flows == 1 and target in ('Linux', 'P4-NPU', 'P4-ASIC')")
        low, high = one.initial_peak_ms.min(), one.initial_peak_ms.max()
        add("one flow: a first burst to about 10 ms", f"{low:.1f} to {high:.1f} ms", low > 8 and high < 15)
        share = one.share_below_target_after
        add(
            "one flow: below 5 ms again and again",
            f"{share.min():.0%} to {share.max():.0%} of the packets",
            share.min() > 0.1,
        )
    if "table1" in tables:
        table = tables["table1"]
        for name, mine in table.groupby("target", sort=False):
            delay, loss = mine.mean_delay_ms.tolist(), mine.loss_percent.tolist()
            add(
                f"{name}: mean latency between 5 and 9 ms",
                ", ".join(f"{ms:.2f}" for ms in delay) + " ms",
                min(delay) >= 5 and max(delay) <= 9,
            )
            add(
                f"{name}: loss rises with the flows",
                ", ".join(f"{percent:.2f}" for percent in loss) + " %",
                loss == sorted(loss) and loss[0] < loss[-1],
            )
        runs = tables["table1_runs"].query("flows == 3").pivot_table(
            index="seed", columns="target", values=["mean_delay_ms", "later_delay_ms"]
        )  # fmt: skip
        for quantity, when in (("mean_delay_ms", ""), ("later_delay_ms", " after the first second")):
            for name in ("Linux", KERNEL):
                if name not in runs[quantity]:
                    continue
                more = (runs[quantity]["P4-ASIC"] - runs[quantity][name]).dropna()
                error = more.std(ddof=1) / len(more) ** 0.5
                add(
                    f"3 flows: ASIC above {name}{when}",
                    f"{more.mean():+.2f} ± {error:.2f} ms (mean and standard error over {len(more)} seeds)",
                    more.mean() > 2 * error,
                )
    if "figure7" in tables:
        table = tables["figure7"].query("arrivals == 'cbr'")
        for name, mine in table.groupby("target", sort=False):
            below, above = mine[mine.rate_mbps <= 95].mean_delay_ms, mine[mine.rate_mbps > 100].mean_delay_ms
            add(
                f"{name}: UDP's delay rises at the shaping rate",
                f"at most {below.max():.2f} ms up to 95 Mbit/s, at least {above.min():.1f} ms above 100",
                below.max() < 1 and above.min() > 5,
            )
    return pd.DataFrame(rows)


def run(
    output: OutputOption = Path("codel"),
    *,
    part: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this: {', '.join(PARTS)}; may be given again."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each point [default: 20, with --full 50].", min=2)
    ] = None,
    full: Annotated[
        bool, typer.Option(help="More seeds, longer runs, every Mbit/s of the UDP scan.")
    ] = False,
    testbed: Annotated[
        bool, typer.Option(help="Real Linux beside the simulator (cct testbed doctor says what it needs).")
    ] = False,
) -> Path:
    """Run the paper's measurements and what takes them apart; write tables, figures and a summary.

    Parameters
    ----------
    output : Path
        Folder; runs of real Linux are kept in ``kernel/`` and not run again.
    part : list of str, optional
        Some of :data:`PARTS`; without it, all.
    seeds : int, optional
        Runs of each point.
    full : bool
        The longer form (:class:`Settings`).
    testbed : bool
        Real Linux's CoDel as a further target, and its fq_codel.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ParameterError
        There is no such part.
    TestbedUnavailableError
        With `testbed`: this machine has no kernel to run.
    """
    for name in part or ():
        if name not in PARTS:
            raise ParameterError(f"part: {name!r} is none of {', '.join(PARTS)}")
    chosen = [name for name in PARTS if name in (part or PARTS)]
    seeds = seeds or (50 if full else 20)
    options: dict[str, Any] = {"part": ", ".join(part) if part else "all", "seeds": seeds, "full": full}
    if testbed:
        from ..testbed.kernel import find_kernel

        options["testbed"] = f"Linux {find_kernel().version}"
    folder = Folder(output, "codel", options)
    settings = Settings(seeds, full, folder.path / "kernel" if testbed else None)
    tables: dict[str, pd.DataFrame] = {}
    blocks: list[str] = []
    for name in chosen:
        title, function = PARTS[name]
        found = function(settings)
        for table_name, table in found.tables.items():
            folder.table(table_name, table)
        for figure_name, figure in found.figures.items():
            folder.figure(figure_name, figure)
        tables |= found.tables
        blocks += [f"## {title}", *found.text]
    held = shapes(tables)
    if len(held):
        folder.table("shapes", held)
        blocks = ["## What has to show", markdown_table(held), *blocks]
    about = "Targets: " + "; ".join(f"**{name}**: {what}" for name, what in TARGETS.items()) + "."
    if testbed:
        about += f" **{KERNEL}**: {options['testbed']} in virtual time."
    folder.summary("P4-CoDel: CoDel on three targets", about, *blocks)
    return folder.path
