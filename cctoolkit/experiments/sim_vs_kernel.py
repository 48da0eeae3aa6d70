"""The simulator beside real Linux: the same scenarios on both, measured by the same code, and the error."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.pool import cores, in_processes
from ..errors import ParameterError, TestbedUnavailableError
from ._folder import Folder, OutputOption, WorkersOption, markdown_table

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from ..scenario import Scenario
    from ..scenario.run import Run

__all__ = ["GRID", "QUANTITIES", "Case", "Grid", "compare", "measure", "run"]

_PACKET_BYTES = 1514
#: User Mode Linux counts time in hundredths of a second, and Linux's PIE its updates in these.
_TICK_MS = 10.0
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
        are 10 and 30 packets (DCTCP alone: a step at 10, as RFC 8257 wants it).
    buffer_bdp : float
        Room in the queue, in bandwidth-delay products of the longest RTT. Under queue management it is more than is
        ever used.
    ecn : bool
        Flows negotiate ECN. DCTCP always does; under DualPI2 it is in the queue for low latency, and others beside it
        go without.
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
        """Words that tell it from the others."""
        ecn = " ecn" if self.ecn else ""
        return f"{self.ccas} {self.rtts} ms {self.aqm}{ecn} {self.buffer_bdp:g} BDP {self.rate_mbps:g} Mbit/s"

    def scenario(self, seed: int, duration_s: float) -> Scenario:
        """What both sides run.

        The seed also draws when each flow starts (within the first half second) and its RTT (2 % around what the case
        says), so that two seeds differ in more than what the kernel leaves to chance: whether a full buffer costs one
        packet or two often hangs on one packet more in flight. Senders' own links have ten times the bottleneck's rate.
        """
        import numpy as np

        from ..scenario import Bottleneck, Flow, Scenario

        rng = np.random.Generator(np.random.PCG64([seed, 7]))
        starts_s = rng.uniform(0, 0.5, len(self.flows)).round(3).tolist()
        stretch = rng.uniform(0.98, 1.02, len(self.flows)).tolist()
        longest = max(rtt for _, rtt in self.flows)
        room = self.buffer_bdp * longest * 1e-3 * self.rate_mbps * 1e6 / 8 / _PACKET_BYTES
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
        if self.aqm == "dualpi2" and scalable:  # in the L queue; whoever else sends ECT would come there, too
            return "l4s" if cca == "dctcp" else "off"
        return "classic" if self.ecn and cca != "dctcp" else None

    def _aqm(self) -> Any:
        from .. import aqm

        if self.aqm == "red":  # as Linux has it: no gentle slope, weights are powers of two
            if self.ccas == "dctcp":
                return aqm.Red(min_packets=10, max_packets=11, max_probability=1, weight=0.5, gentle=False)
            return aqm.Red(min_packets=10, max_packets=30, max_probability=0.1, weight=1 / 64, gentle=False)
        if self.aqm == "pie":
            return aqm.Pie(update_ms=_TICK_MS * 2)
        return self.aqm


def for_simulator(scenario: Scenario) -> Scenario:
    """The same scenario as the simulator has to run it to stand beside Linux.

    Linux's shaper holds packets back, but those that pass take no time to be sent; so does the simulator's link then.
    And of the queue disciplines it is Linux's own variants, where the simulator has them.
    """
    from ..aqm import Aqm

    bottleneck = scenario.bottleneck
    changes: dict[str, Any] = {"bottleneck.link": "shaper"}
    variant = Aqm.registry.get(f"{bottleneck.aqm.name}_linux")
    if variant is not None:
        known = variant().parameters()
        given = {name: value for name, value in bottleneck.aqm.parameters().items() if name in known}
        changes["bottleneck.aqm"] = variant(**given)
    return scenario.replace(changes)


@dataclass(frozen=True)
class Grid:
    """Combinations: single flows in buffers and under queue management, and pairs in both.

    Parameters
    ----------
    ccas, rtts_ms, buffers_bdp, aqms
        Single flows: each congestion control and RTT with each buffer (tail drop), and with each `aqms`; those that
        take classic ECN also with it.
    pairs : sequence of two (cca, rtt_ms)
        Under tail drop with `pair_buffers_bdp` and each of `aqms`.
    """

    ccas: Sequence[str]
    rtts_ms: Sequence[float]
    buffers_bdp: Sequence[float]
    aqms: Sequence[str]
    pairs: Sequence[tuple[tuple[str, float], ...]]
    pair_buffers_bdp: Sequence[float]

    def cases(self) -> Iterator[Case]:
        """All of them."""
        for cca, rtt in itertools.product(self.ccas, self.rtts_ms):
            one = ((cca, rtt),)
            if cca != "dctcp":  # without marks it is Reno
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


#: Of buffers under queue management.
_AMPLE_BDP = 8.0

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

#: Cases with the largest errors whose first runs are drawn.
_DRAWN = 6

#: What is compared: name, what it is, and the least amount errors are relative to (None: see :func:`compare`).
QUANTITIES = {
    "utilisation": ("share of the link's rate used", 0.05),
    "mean delay": ("in the queue, of packets that left, ms", None),
    "95 % delay": ("95th percentile of the same, ms", None),
    "loss": ("share of packets lost in the queue", 1e-3),
    "marks": ("share of packets that left with CE", 1e-3),
    "share": ("of the bytes that left, of each flow of several", 0.02),
}


# ---- measuring -------------------------------------------------------------------------------------------------------


def measure(run: Run, *, warmup_s: float) -> list[dict[str, Any]]:
    """What is compared, from the two taps only.

    Parameters
    ----------
    run : Run
        With both taps and a scenario, of a link that shapes: a packet at the egress tap has the time of its first byte.
        Counted is what the flows' initiators send with payload, between `warmup_s` after the run's begin and the
        scenario's end.
    warmup_s : float
        What is left out at the beginning, s.

    Returns
    -------
    list of dict
        ``quantity`` (of :data:`QUANTITIES`), ``flow`` (number, of shares; else -1) and ``value``. Without packets a
        value is NaN.

    Raises
    ------
    ParameterError
        The run has no taps or no scenario.
    """
    import numpy as np

    from ..analysis.metrics import queue_delay

    if run.ingress is None or run.egress is None or run.scenario is None:
        raise ParameterError("run: a measurement needs both taps and the scenario")
    rate_mbps = run.scenario.bottleneck.rate_mbps
    begin_ns, end_ns = (run.start_ns + round(s * 1e9) for s in (warmup_s, run.scenario.duration_s))

    came = queue_delay(run.ingress, run.egress, check_taps=False)
    came = came[(came.payload_bytes > 0) & (came.direction == 0) & came.ts_ns.between(begin_ns, end_ns)]
    left = came[came.delay_ns.notna()]
    delay_ms = left.delay_ns.to_numpy(np.float64) / 1e6

    sent = run.egress.packets
    sent = sent[(sent.payload_bytes > 0) & (sent.direction == 0) & sent.ts_ns.between(begin_ns, end_ns)]
    total = int(sent.wire_bytes.sum())
    found = {
        "utilisation": total * 8e-6 / rate_mbps / ((end_ns - begin_ns) / 1e9),
        "mean delay": float(delay_ms.mean()) if len(delay_ms) else np.nan,
        "95 % delay": float(np.percentile(delay_ms, 95)) if len(delay_ms) else np.nan,
        "loss": float(came.lost.dropna().astype(float).mean()),
        "marks": float((sent.ecn == 3).mean()),
    }
    rows = [{"quantity": name, "flow": -1, "value": value} for name, value in found.items()]
    flows = sorted(run.flows.flow_id) if len(run.flows) > 1 else []
    by_flow = sent.groupby("flow_id").wire_bytes.sum()
    return rows + [
        {"quantity": "share", "flow": i, "value": by_flow.get(flow, 0) / total if total else np.nan}
        for i, flow in enumerate(flows)
    ]


def compare(measured: pd.DataFrame) -> pd.DataFrame:
    """The error of each quantity in each case.

    Parameters
    ----------
    measured : DataFrame
        ``case``, ``side`` (``kernel`` or ``simulator``), ``seed``, ``quantity``, ``flow``, ``value`` and the columns of
        a case, such as ``rate_mbps``.

    Returns
    -------
    DataFrame
        One row a case and quantity: the case, ``kernel`` and ``simulator`` (means over the seeds), and, relative to
        the kernel's mean or the quantity's least amount (:data:`QUANTITIES`; of delays one packet's sending time),
        whichever is larger: ``error`` (the simulator's mean less the kernel's), ``kernel_spread`` (standard deviation
        over the kernel's seeds) and ``noise`` (standard error of the difference of both means). Losses and marks that
        neither side has are left out.
    """
    import numpy as np
    import pandas as pd

    about = [c for c in measured.columns if c not in ("side", "seed", "value")]

    def side(name: str) -> pd.DataFrame:
        groups = measured[measured.side == name].groupby(about, sort=False).value
        return pd.DataFrame(
            {name: groups.mean(), f"{name}_std": groups.std(ddof=1), f"{name}_n": groups.count()}
        )

    table = side("kernel").join(side("simulator")).reset_index()
    packet_ms = _PACKET_BYTES * 8e-3 / table.rate_mbps.astype(float)
    least = table.quantity.map({name: floor for name, (_, floor) in QUANTITIES.items()}).astype(float)
    scale = np.maximum(table.kernel.abs(), least.fillna(packet_ms))
    table["error"] = (table.simulator - table.kernel) / scale
    table["kernel_spread"] = table.kernel_std / scale
    variance = table.kernel_std**2 / table.kernel_n + table.simulator_std**2 / table.simulator_n
    table["noise"] = np.sqrt(variance) / scale
    nothing = table.quantity.isin(["loss", "marks"]) & (table.kernel == 0) & (table.simulator == 0)
    columns = [*about, "kernel", "simulator", "error", "kernel_spread", "noise"]
    return table.loc[~nothing, columns].reset_index(drop=True)


# ---- running ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """One run of one case on one side."""

    case: Case
    side: str
    seed: int
    duration_s: float
    warmup_s: float
    folder: Path  # of the kernel's runs
    kernel: str  # what tells one kernel from another

    @property
    def directory(self) -> Path:
        """Where the kernel's run is kept, by all that it depends on."""
        from ..testbed.testbed import planned

        text = f"{planned(self.case.scenario(self.seed, self.duration_s), 'uml')!r} {self.kernel}"
        words = self.case.name.replace(" ", "-").replace("/", "")
        return self.folder / f"{words}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def run(self) -> Run:
        """Run it, or open what was run before."""
        from ..scenario.run import load_run
        from ..sim.simulation import simulate
        from ..testbed import run_testbed

        scenario = self.case.scenario(self.seed, self.duration_s)
        if self.side == "simulator":
            return simulate(for_simulator(scenario), record=True)
        return load_run(self.directory) if self.directory.is_dir() else run_testbed(scenario, self.directory)

    def rows(self) -> list[dict[str, Any]]:
        """What was measured."""
        about = {
            "case": self.case.name,
            "ccas": self.case.ccas,
            "rtts_ms": self.case.rtts,
            "aqm": self.case.aqm,
            "ecn": self.case.ecn or "dctcp" in self.case.ccas,
            "buffer_bdp": self.case.buffer_bdp,
            "rate_mbps": self.case.rate_mbps,
            "side": self.side,
            "seed": self.seed,
        }
        found = measure(self.run(), warmup_s=self.warmup_s)
        return [about | row for row in found]


def _rows(job: _Job) -> list[dict[str, Any]] | TestbedUnavailableError:
    try:
        return job.rows()
    except TestbedUnavailableError as err:
        return err


def _results(jobs: Sequence[_Job], workers: int) -> Generator[tuple[_Job, Any], None, None]:
    if workers == 1:
        yield from ((job, _rows(job)) for job in jobs)
        return
    with contextlib.closing(in_processes(_rows, ((job,) for job in jobs), workers)) as done:
        yield from ((jobs[number], future.result()) for number, future in done)


def _all_rows(
    jobs: Sequence[_Job], workers: int, progress: bool
) -> tuple[list[dict[str, Any]], dict[Case, TestbedUnavailableError]]:
    """What was measured, and the cases that the kernel does not have."""
    from tqdm.auto import tqdm

    rows: list[dict[str, Any]] = []
    missing: dict[Case, TestbedUnavailableError] = {}
    with (
        tqdm(total=len(jobs), unit="run", disable=not progress) as bar,
        contextlib.closing(_results(jobs, workers)) as results,
    ):
        for job, found in results:
            if isinstance(found, TestbedUnavailableError):
                missing[job.case] = found
            else:
                rows += found
            bar.update()
    return [row for row in rows if row["case"] not in {case.name for case in missing}], missing


def run(
    output: OutputOption = Path("sim-vs-kernel"),
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only cases whose name has this word, as bbr or tail_drop; all, if given again."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Of the simulator, for each case.", min=1)] = 5,
    kernel_seeds: Annotated[int, typer.Option(help="Of the kernel, for each case.", min=1)] = 2,
    duration: Annotated[float, typer.Option(metavar="S", help="Of each run, s.", min=1)] = 35.0,
    warmup: Annotated[float, typer.Option(metavar="S", help="Left out of each run, s.", min=0)] = 5.0,
    workers: WorkersOption = None,
) -> Path:
    """Run a grid of scenarios in the simulator and on real Linux, and write how far they are apart.

    Parameters
    ----------
    output : Path
        Folder; what the kernel ran is kept in ``kernel/`` and not run again.
    only : list of str, optional
        Cases whose names have all these words.
    seeds, kernel_seeds : int
        Runs of each case on each side; the error is between their means.
    duration, warmup : float
        Seconds of each run, and of these what is not measured.
    workers : int, optional
        Processes; all cores without it.

    Returns
    -------
    Path
        The folder, with ``errors.parquet`` (see :func:`compare`), ``runs.parquet`` (every measurement), figures, and
        ``summary.md``.

    Raises
    ------
    TestbedUnavailableError
        There is no kernel to run, or it has none of the cases; those it lacks are left out, which the summary says.
    ParameterError
        No case has these words, or nothing is left after the warm-up.
    """
    import pandas as pd

    cases = [case for case in GRID.cases() if set(only or ()) <= set(re.split("[ +]", case.name))]
    if not cases:
        raise ParameterError(f"only: no case has {' and '.join(only or ())} in its name")
    if warmup >= duration:
        raise ParameterError(f"warmup: {warmup:g} s leave nothing of {duration:g} s")

    from ..testbed.kernel import find_kernel

    kernel = find_kernel()
    options = {"only": only, "seeds": seeds, "kernel_seeds": kernel_seeds, "duration": duration, "warmup": warmup,
               "kernel": f"Linux {kernel.version}"}  # fmt: skip
    folder = Folder(output, "sim-vs-kernel", {k: v for k, v in options.items() if v})
    jobs = [
        _Job(case, side, seed, duration, warmup, folder.path / "kernel", kernel.sha256)
        for side, n in (("kernel", kernel_seeds), ("simulator", seeds))
        for case in cases
        for seed in range(1, n + 1)
    ]
    rows, missing = _all_rows(jobs, workers or cores(), sys.stderr.isatty())
    if not rows:
        raise next(iter(missing.values()))
    measured = pd.DataFrame(rows).sort_values(
        ["case", "side", "seed", "flow", "quantity"], kind="stable", ignore_index=True
    )
    folder.table("runs", measured)
    table = compare(measured)
    if table.empty:
        raise ParameterError("only: there is nothing to compare in these cases")
    worst = table.assign(size=table.error.abs()).nlargest(len(table), "size").case.unique()[:_DRAWN]
    first = {(job.case.name, job.side): job for job in jobs if job.seed == 1}
    for rank, name in enumerate(worst, 1):
        folder.figure(
            f"worst-{rank}", _beside(name, first[name, "kernel"].run(), first[name, "simulator"].run())
        )
    _report(folder, table, missing, warmup_s=warmup, duration_s=duration)
    return folder.path


# ---- telling ---------------------------------------------------------------------------------------------------------


def _report(
    folder: Folder,
    table: pd.DataFrame,
    missing: Mapping[Case, Exception],
    *,
    warmup_s: float,
    duration_s: float,
) -> None:
    import pandas as pd

    folder.table("errors", table)
    folder.figure("scatter", _scatter(table))
    folder.figure("distribution", _distribution(table))
    size = table.error.abs()
    by_cca = pd.concat(
        [table.assign(cca=cca)[[cca in c.split("+") for c in table.ccas]] for cca in _names(table.ccas)]
    )
    worst = table.assign(size=size)[size > 2 * table.noise.fillna(0)].nlargest(20, "size")
    shown = worst[
        ["case", "quantity", "flow", "kernel", "simulator", "error", "kernel_spread", "noise"]
    ].assign(flow=worst.flow.where(worst.flow >= 0))
    cases = table.case.nunique()
    reasons = dict.fromkeys(map(str, missing.values()))
    folder.summary(
        "The simulator beside real Linux",
        f"{cases} cases, {duration_s:g} s each, of which the first {warmup_s:g} s are not counted. The error is the "
        "simulator's mean over its seeds less the kernel's, relative to the kernel's mean or to the least amount of "
        "the table of quantities, whichever is larger. The standard deviation over the kernel's seeds stands "
        "beside it: an error below that is noise.",
        *(f"Left out: {sum(str(e) == why for e in missing.values())} cases ({why})." for why in reasons),
        f"Median of all absolute errors: **{size.median():.1%}**; "
        f"{(size <= 0.1).mean():.0%} are within 10 %; median kernel spread {table.kernel_spread.median():.1%}.",
        "## Median absolute error by congestion control, %",
        "Pairs count for both of theirs.",
        _medians(by_cca, "cca"),
        "## Median absolute error by queue management, %",
        _medians(table, "aqm"),
        "## By quantity",
        markdown_table(_by_quantity(table)),
        "## Largest errors",
        "Those beyond twice the noise (the standard error of the difference of the means).",
        markdown_table(shown, 2),
    )


def _names(joined: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for names in joined for name in names.split("+")))


def _medians(table: pd.DataFrame, by: str) -> str:
    """Rows by `by`, columns by quantity, and over all quantities with the cases counted."""
    error = table.assign(error=100 * table.error.abs())
    wide = error.pivot_table(index=by, columns="quantity", values="error", aggfunc="median", sort=False)
    wide = wide[[q for q in QUANTITIES if q in wide]]
    groups = error.groupby(by, sort=False)
    wide["all"] = groups.error.median()
    wide["kernel spread"] = 100 * groups.kernel_spread.median()
    wide.insert(0, "cases", groups.case.nunique())
    return markdown_table(wide.reset_index().rename_axis(columns=None), 3)


def _by_quantity(table: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for name, (meaning, least) in QUANTITIES.items():
        mine = table[table.quantity == name]
        size = mine.error.abs()
        rows.append(
            {
                "quantity": name,
                "what": meaning,
                "least": "one packet's sending time" if least is None else f"{least:g}",
                "compared": len(mine),
                "median error, %": 100 * size.median(),
                "90 %": 100 * size.quantile(0.9),
                "mean (sign)": 100 * mine.error.mean(),
                "kernel spread, %": 100 * mine.kernel_spread.median(),
            }
        )
    return pd.DataFrame(rows)


def _scatter(table: pd.DataFrame) -> go.Figure:
    """The kernel's value against the simulator's, a panel a quantity."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from ..plot.style import COLOURS, GREY, escape, figure

    there = [q for q in QUANTITIES if (table.quantity == q).any()]
    rows = -(-len(there) // 3)
    panels = make_subplots(rows, 3, subplot_titles=there, horizontal_spacing=0.07, vertical_spacing=0.16)
    fig = figure("Simulator against Linux; the line is where both agree", 80 + 330 * rows)
    fig = go.Figure(panels).update_layout(fig.layout, annotations=panels.layout.annotations)
    groups = _names(table.aqm)
    for k, quantity in enumerate(there):
        at = {"row": k // 3 + 1, "col": k % 3 + 1}
        mine = table[table.quantity == quantity]
        ends = [0, float(mine[["kernel", "simulator"]].max().max())]
        fig.add_scatter(x=ends, y=ends, mode="lines", line={"color": GREY, "width": 1}, showlegend=False,
                        hoverinfo="skip", **at)  # fmt: skip
        for colour, aqm in zip(COLOURS, groups, strict=False):
            some = mine[mine.aqm == aqm]
            fig.add_scatter(
                x=some.kernel, y=some.simulator, mode="markers", name=escape(aqm), legendgroup=aqm, showlegend=k == 0,
                marker={"color": colour, "size": 6, "opacity": 0.75}, customdata=[escape(c) for c in some.case],
                hovertemplate="%{customdata}<br>Linux %{x:.4g}, simulator %{y:.4g}<extra></extra>", **at,
            )  # fmt: skip
        fig.update_xaxes(title_text="Linux", **at).update_yaxes(title_text="simulator", **at)
    return fig


def _distribution(table: pd.DataFrame) -> go.Figure:
    """How many of the errors are below a size, a line a quantity."""
    import numpy as np

    from ..plot.style import GREY, figure, line_of

    fig = figure("Size of the errors", 420, xaxis_title_text="absolute error, % (at least 0.1)", xaxis_type="log",
                 yaxis_title_text="share of cases, %", yaxis_range=[0, 100])  # fmt: skip
    for rank, quantity in enumerate(q for q in QUANTITIES if (table.quantity == q).any()):
        size = np.sort(100 * table.error[table.quantity == quantity].abs().to_numpy())
        share = 100 * np.arange(1, len(size) + 1) / len(size)
        fig.add_scatter(x=np.maximum(size, 0.1), y=share, mode="lines", name=quantity, line=line_of(rank),
                        line_shape="hv", hovertemplate="%{y:.0f} % are within %{x:.3g} %")  # fmt: skip
    return fig.add_vline(x=10, line={"color": GREY, "dash": "dot", "width": 1})


def _beside(name: str, kernel: Run, simulated: Run) -> go.Figure:
    """Windows and queueing delay over time, the kernel's solid and the simulator's dotted."""
    import numpy as np

    from ..analysis.metrics import queue_delay
    from ..plot.style import COLOURS, GREY, escape, figure

    fig = figure(
        escape(name),
        560,
        xaxis_title_text="time (s)",
        xaxis_anchor="y2",
        yaxis_domain=[0.46, 1],
        yaxis_title_text="window (packets)",
        yaxis_rangemode="tozero",
        yaxis2={"domain": [0, 0.38], "title": {"text": "queueing delay (ms)"}, "rangemode": "tozero"},
    )
    for side, run, dash in (("Linux", kernel, "solid"), ("simulator", simulated, "dot")):
        assert run.ingress is not None and run.egress is not None
        series = run.flow_series
        for i, flow in enumerate(sorted(series.flow_id.unique())):
            mine = series[(series.flow_id == flow) & (series.cwnd_packets < 1e6)]
            fig.add_scatter(
                x=(mine.ts_ns - run.start_ns) / 1e9, y=mine.cwnd_packets, mode="lines",
                name=f"{escape(run.flows.name[i])}, {side}", line={"color": COLOURS[i], "dash": dash, "width": 1.6},
            )  # fmt: skip
        delays = queue_delay(run.ingress, run.egress, check_taps=False)
        delays = delays[(delays.payload_bytes > 0) & delays.delay_ns.notna()]
        tenth = ((delays.ts_ns - run.start_ns) // 10**8).to_numpy()
        mean = delays.delay_ns.astype(np.float64).groupby(tenth).mean() / 1e6
        fig.add_scatter(x=mean.index / 10, y=mean, mode="lines", name=f"delay, {side}", yaxis="y2",
                        line={"color": GREY, "dash": dash, "width": 1.6})  # fmt: skip
    return fig
