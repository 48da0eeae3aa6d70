"""Settings for training runs: drawn at random, each run from its own number.

Each function yields ``(changes, scenario)`` pairs as :func:`cctoolkit.sweep` does, for sweeps in the simulator or on
the testbed. Run ``i`` of a seed is the same whatever the number of runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._support.algorithm.kernel_module import PREFIX, built_in
from .._support.words import did_you_mean
from ..aqm import Opportunity
from ..errors import ParameterError
from ..scenario import Bottleneck, Flow, Scenario, read_sweep
from ..testbed.doctor import BACKENDS
from .draws import PAPER_CCAS, Pairs, aqm_of, between, buffer_packets, drawn, run_rng, staggered
from .elsewhere import FAMILIES, elsewhere
from .own_ccas import own_ccas

__all__ = [
    "BUILT_CCAS",
    "KERNEL_CCAS",
    "NEBBY_PACKET_BYTES",
    "PAPER_CCAS",
    "SETTINGS",
    "SIMULATOR_CCAS",
    "bursts",
    "cloud",
    "every_cca",
    "hard",
    "jobs",
    "paper",
    "physical",
    "world",
]

#: All congestion controls of the testbed's kernel.
KERNEL_CCAS = (
    "reno", "cubic", "bbr", "htcp", "vegas", "dctcp", "bic", "cdg", "highspeed", "hybla", "illinois", "lp", "nv",
    "scalable", "veno", "westwood", "yeah",
)  # fmt: skip
#: Congestion controls of kernels that were built with them (``cct testbed build --with``): only if named.
BUILT_CCAS = ("bbr3", "prague")
#: All congestion controls of the simulator.
SIMULATOR_CCAS = ("reno", "cubic", "bbr", "bbr2", "bbr3", "htcp", "vegas", "dctcp", "prague")
#: The paper's numbers of background flows, 3n (section IV-A).
BACKGROUND = (0, 15, 30, 60, 75)
#: Queue disciplines of the hard settings; the last two are never trained on.
TRAINED_AQMS = ("tail_drop", "tail_drop", "tail_drop", "codel", "red")
HELD_OUT_AQMS = ("pie", "fq_codel")


def _flows(
    rng: np.random.Generator, ccas: Sequence[str], max_start_s: float, paths: Sequence[dict[str, Any]]
) -> tuple[Flow, ...]:
    """Flows of these congestion controls, each on one of the paths and starting some time before `max_start_s`."""
    starts = rng.uniform(0, max_start_s, len(ccas)).round(3)
    chosen = rng.integers(len(paths), size=len(ccas))
    return tuple(
        Flow(cca, start_s=float(start), **paths[path])
        for cca, start, path in zip(ccas, starts, chosen, strict=True)
    )


def paper(
    runs: int = 1500,
    seed: int = 1,
    *,
    ccas: Sequence[str] = PAPER_CCAS,
    background: Sequence[int] = BACKGROUND,
) -> Pairs:
    """Section IV-A: one flow of each congestion control and 3n background flows through 100 Mbit/s, 500 packets.

    Parameters
    ----------
    runs, seed : int
    ccas : sequence of str
        Congestion controls. The first ``len(ccas)`` flows are the foreground flows, one of each.
    background : sequence of int
        Numbers of background flows, used in turn; in the paper, multiples of ``len(ccas)``.

    Yields
    ------
    dict, Scenario
        ``background``. A run lasts x + 60 s, with x uniform in 0 to 10 s; flows start uniformly before x.

    Notes
    -----
    The base RTT is 70 ms (10 and 25 ms of propagation one way) plus twice the delay of the source's own link. The
    paper gives these 100 Mbit/s to 1 Gbit/s "with propagation time"; here a run has up to five kinds of source, each
    with its own rate and 0 to 5 ms. The last link (100 Mbit/s or more, one user) never queues and is left out.
    """
    for run in range(runs):
        rng = run_rng(seed, 1, run)
        n = background[run % len(background)]
        x = rng.uniform(0, 10)
        paths = []
        for _ in range(min(len(ccas) + n, 5)):
            access_ms = round(float(rng.uniform(0, 5)), 1)
            paths.append(
                {
                    "rtt_ms": 70 + 2 * access_ms,
                    "access_ms": access_ms,
                    "access_mbps": float(rng.integers(10, 101) * 10),
                }
            )
        behind = [ccas[i % len(ccas)] for i in range(n)]
        yield (
            {"background": n},
            drawn(
                "paper", seed, run, Bottleneck(rate_mbps=100, buffer_packets=500),
                _flows(rng, [*ccas, *behind], x, paths), x + 60,
            ),
        )  # fmt: skip


def physical(
    runs: int = 500, seed: int = 1, *, ccas: Sequence[str] = PAPER_CCAS, background: Sequence[int] = BACKGROUND,
    measured_s: float = 10.0,
) -> Pairs:  # fmt: skip
    """Section IV-B: the same flows through 1 Gbit/s, RTTs under 1 ms, buffers of 2000 to 16 000 packets.

    Parameters
    ----------
    runs, seed, ccas, background
        As :func:`paper`.
    measured_s : float
        After all flows have started (the paper's Figure 10 has runs of 10 s, the others a minute).

    Yields
    ------
    dict, Scenario
        ``background``, ``buffer_packets``.
    """
    for run in range(runs):
        rng = run_rng(seed, 2, run)
        n = background[run % len(background)]
        x = rng.uniform(0, measured_s / 6)
        buffer = int(rng.choice([2000, 4000, 8000, 16000]))
        paths = [{"rtt_ms": round(float(rng.uniform(0.2, 1.0)), 2), "access_mbps": 1000.0} for _ in range(2)]
        behind = [ccas[i % len(ccas)] for i in range(n)]
        yield (
            {"background": n, "buffer_packets": buffer},
            drawn(
                "physical", seed, run, Bottleneck(rate_mbps=1000, buffer_packets=buffer),
                _flows(rng, [*ccas, *behind], x, paths), x + measured_s,
            ),
        )  # fmt: skip


#: Round-trip times of the cloud's destinations, in ms, and sizes of the router's buffer (section IV-C).
_CLOUD_RTTS_MS = (300.0, 300.0, 40.0)
_CLOUD_BUFFERS = (1000, 2000, 3000, 4000, 5000, 6000)


def cloud(
    runs: int = 162, seed: int = 1, *, ccas: Sequence[str] = PAPER_CCAS, measured_s: float = 60.0
) -> Pairs:
    """Section IV-C: three flows to destinations 300, 300 and 40 ms away, through 1 Gbit/s and 1000 to 6000 packets.

    Parameters
    ----------
    runs, seed, ccas
        As :func:`paper`. Each flow has any congestion control: 162 runs are every combination of three with every
        buffer, in random order.
    measured_s : float
        After all flows have started.

    Yields
    ------
    dict, Scenario
        ``buffer_packets``.

    Notes
    -----
    The Internet behind the router, with its background flows, is not there, nor is a limit on what a destination takes
    (the authors measure 750 and 850 Mbit/s). So these flows queue at the router; those of the one session that the
    authors published hardly do (docs/dragonfly.md).
    """
    combinations = list(itertools.product(_CLOUD_BUFFERS, itertools.product(ccas, repeat=3)))
    for run in range(runs):
        round_number, place = divmod(run, len(combinations))
        order = run_rng(seed, 9, round_number).permutation(len(combinations))
        buffer, names = combinations[order[place]]
        rng = run_rng(seed, 8, run)
        x = rng.uniform(0, measured_s / 6)
        starts = rng.uniform(0, x, len(names)).round(3)
        rtts = rng.permutation(_CLOUD_RTTS_MS)
        flows = [
            Flow(name, start_s=float(start), rtt_ms=float(rtt), access_mbps=10_000)
            for name, start, rtt in zip(names, starts, rtts, strict=True)
        ]
        link = Bottleneck(rate_mbps=1000, buffer_packets=buffer)
        yield {"buffer_packets": buffer}, drawn("cloud", seed, run, link, flows, x + measured_s)


def hard(
    runs: int = 400, seed: int = 1, *, ccas: Sequence[str] = PAPER_CCAS, part: str = "train",
    measured_s: float = 20.0,
) -> Pairs:  # fmt: skip
    """20 to 1000 Mbit/s, 5 to 100 ms, buffers of a tenth to four BDP, 3 to 75 flows, tail drop and AQMs.

    Parameters
    ----------
    runs, seed, ccas
        As :func:`paper`.
    part : "train" or "test"
        The two parts are drawn independently. Half of the test runs use a queue discipline in :data:`HELD_OUT_AQMS`,
        which training runs never use.
    measured_s : float
        After all flows have started.

    Yields
    ------
    dict, Scenario
        ``rate_mbps``, ``rtt_ms``, ``buffer_bdp``, ``flows``, ``aqm``.

    Notes
    -----
    In half of the runs all flows have one base RTT, in the others there are up to four. There is one flow of each
    congestion control; those of the other flows are drawn at random.
    """
    if part not in ("train", "test"):
        raise ParameterError(f"part: {part!r} is neither 'train' nor 'test'")
    for run in range(runs):
        rng = run_rng(seed, 3 if part == "train" else 4, run)
        rate = between(rng, 20, 1000)
        rtt = between(rng, 5, 100)
        bdp = between(rng, 0.1, 4)
        n = min(int(between(rng, len(ccas), 75.99)), 75)  # three digits of 75.96 are 76.0
        held_out = part == "test" and run % 2
        aqm = str(rng.choice(HELD_OUT_AQMS if held_out else TRAINED_AQMS))
        x = rng.uniform(0, measured_s / 4)
        rtts = [rtt] if rng.random() < 0.5 else [rtt, *(between(rng, 5, 100) for _ in range(3))]
        paths = [{"rtt_ms": r, "access_mbps": 10 * rate} for r in rtts]
        names = [*ccas, *rng.choice(ccas, n - len(ccas))]
        packets = buffer_packets(bdp, rate, rtt)
        yield (
            {"rate_mbps": rate, "rtt_ms": rtt, "buffer_bdp": bdp, "flows": n, "aqm": aqm},
            drawn(
                f"hard-{part}", seed, run,
                Bottleneck(rate_mbps=rate, buffer_packets=packets, aqm=aqm_of(aqm, packets)),
                _flows(rng, [str(c) for c in names], x, paths), x + measured_s,
            ),
        )  # fmt: skip


def every_cca(
    runs: int = 300, seed: int = 1, *, ccas: Sequence[str] = KERNEL_CCAS, measured_s: float = 30.0
) -> Pairs:
    """One to six flows, each of any congestion control, through 10 to 200 Mbit/s, 10 to 150 ms, 0.3 to 3 BDP.

    Parameters
    ----------
    runs, seed, ccas, measured_s
        As :func:`hard`.

    Yields
    ------
    dict, Scenario
        ``rate_mbps``, ``rtt_ms``, ``buffer_bdp``, ``flows``, ``aqm``; a quarter of the runs have CoDel or RED, which
        then mark the flows that use ECN (DCTCP, Prague).

    Notes
    -----
    The first flows of successive runs go through `ccas` in turn, so each congestion control has about the same number
    of runs.
    """
    for run in range(runs):
        rng = run_rng(seed, 5, run)
        rate = between(rng, 10, 200)
        rtt = between(rng, 10, 150)
        bdp = between(rng, 0.3, 3)
        n = int(rng.integers(1, 7))
        aqm = str(rng.choice(["tail_drop"] * 6 + ["codel", "red"]))
        x = rng.uniform(0, 3)
        names = [ccas[run % len(ccas)], *(str(c) for c in rng.choice(ccas, n - 1))]
        packets = buffer_packets(bdp, rate, rtt)
        yield (
            {"rate_mbps": rate, "rtt_ms": rtt, "buffer_bdp": bdp, "flows": n, "aqm": aqm},
            drawn(
                "every-cca", seed, run,
                Bottleneck(rate_mbps=rate, buffer_packets=packets, aqm=aqm_of(aqm, packets)),
                _flows(rng, names, x, [{"rtt_ms": rtt, "access_mbps": 10 * rate}]), x + measured_s,
            ),
        )  # fmt: skip


#: What :func:`world` mixes, and the share of its runs that each changes; cross traffic comes last, as it is.
_MIXED = ("path", "aqm", "capture", "stack", "application")
_CHANGED = 0.4


def world(
    runs: int = 400, seed: int = 1, *, ccas: Sequence[str] = PAPER_CCAS, measured_s: float = 20.0
) -> Pairs:
    """One to six flows through 5 to 300 Mbit/s, 5 to 200 ms, 0.1 to 6 BDP, with changes from the families of elsewhere.

    Parameters
    ----------
    runs, seed, ccas, measured_s
        As :func:`hard`.

    Yields
    ------
    dict, Scenario
        ``rate_mbps``, ``rtt_ms``, ``buffer_bdp``, ``flows``, ``aqm``, and the values that the families draw.

    Notes
    -----
    Each family of ``cctoolkit.identify.elsewhere.FAMILIES`` except ``limited``, whose flows show no congestion
    control, independently changes four runs in ten. The first flows of successive runs go through `ccas` in turn.
    """
    for run in range(runs):
        rng = run_rng(seed, 6, run)
        rate, rtt, bdp = between(rng, 5, 300), between(rng, 5, 200), between(rng, 0.1, 6)
        names = [ccas[run % len(ccas)], *(str(c) for c in rng.choice(ccas, int(rng.integers(0, 6))))]
        x = float(rng.uniform(0, 4))
        link: dict[str, Any] = {"rate_mbps": rate, "buffer_packets": buffer_packets(bdp, rate, rtt)}
        flows = staggered(rng, names, x, rate, rtt)
        changes: dict[str, Any] = {}
        for kind, (name, chosen) in enumerate(zip(_MIXED, rng.random(len(_MIXED)) < _CHANGED, strict=True)):
            if chosen:
                changes |= FAMILIES[name](np.random.default_rng([seed, 6, run, kind]), link, flows)
        scenario = drawn(
            "world", seed, run, Bottleneck(**link), (Flow(**flow) for flow in flows), x + measured_s
        )
        changes["aqm"] = scenario.bottleneck.aqm.name  # of two families that change it, the last one decides
        yield {"rate_mbps": rate, "rtt_ms": rtt, "buffer_bdp": bdp, "flows": len(names)} | changes, scenario


#: One of Nebby's packets, 100 bytes, with Mahimahi's header; and how many of them ``mm-link`` delivers at once.
NEBBY_PACKET_BYTES = 104
_BURST_PACKETS = 1504 / NEBBY_PACKET_BYTES
#: Bytes on the wire of the smallest packets that Linux sends with a limit on the segment (88 with options).
_SMALL_PACKET_BYTES = 142


def bursts(
    runs: int = 680, seed: int = 1, *, ccas: Sequence[str] = KERNEL_CCAS, measured_s: float = 30.0
) -> Pairs:
    """One flow through 45 to 500 kbit/s, 30 to 250 ms, 0.7 to 2 BDP, on a link that delivers in bursts.

    Settings like those of Nebby (Mishra et al., SIGCOMM 2024): Mahimahi's ``mm-link`` in both directions, small
    segments, and a receiver that merges those of a burst (GRO), so that one acknowledgement is for up to ten.

    Parameters
    ----------
    runs, seed, ccas, measured_s
        As :func:`hard`.

    Yields
    ------
    dict, Scenario
        ``rate_mbps``, ``rtt_ms``, ``buffer_bdp``, ``delayed_ack``.

    Notes
    -----
    The runs have the congestion controls of `ccas` in turn. They need real Linux with
    :class:`~cctoolkit.aqm.Opportunity`.
    """
    for run in range(runs):
        rng = run_rng(seed, 7, run)
        rate, rtt = between(rng, 0.045, 0.5), between(rng, 30, 250)
        bdp = float(rng.choice([0.7, 1, 1, 1, 1.5, 2]))
        merged = int(rng.integers(2, 11))
        x = float(rng.uniform(0, 1))
        opportunities_per_s = max(int(rate * 1000) // 12, 1)  # as its scripts write traces
        link = Opportunity(
            bytes=round(_BURST_PACKETS * _SMALL_PACKET_BYTES),
            interval_ms=round(1000 / opportunities_per_s, 3),
            both_ways=True,
        )
        flow = Flow(
            ccas[run % len(ccas)], rtt_ms=rtt, access_ms=5, packet_bytes=_SMALL_PACKET_BYTES,
            delayed_ack=merged, start_s=round(x, 3),
        )  # fmt: skip
        packets = max(round(bdp * rate * rtt * 125) // NEBBY_PACKET_BYTES, 1)
        yield (
            {"rate_mbps": rate, "rtt_ms": rtt, "buffer_bdp": bdp, "delayed_ack": merged},
            drawn(
                "bursts", seed, run, Bottleneck(rate_mbps=1000, buffer_packets=packets, aqm=link), [flow],
                x + measured_s,
            ),
        )  # fmt: skip


#: By name, for the command line.
SETTINGS: dict[str, Callable[..., Pairs]] = {
    "paper": paper,
    "physical": physical,
    "cloud": cloud,
    "hard": hard,
    "every-cca": every_cca,
    "world": world,
    "bursts": bursts,
    "elsewhere": elsewhere,
}
_WITH_PARTS = ("hard", "elsewhere")
#: Those whose runs have the congestion controls in turn, by default all of them.
_IN_TURN = ("every-cca", "bursts")


def jobs(
    settings: str,
    *,
    on: str = "simulator",
    runs: int | None = None,
    seed: int | None = None,
    part: str | None = None,
    ccas: Sequence[str] | None = None,
) -> tuple[list[tuple[dict[str, Any], Scenario]], int]:
    """The runs of named settings or of a settings file.

    Parameters
    ----------
    settings : str
        A name in :data:`SETTINGS`, or a TOML file with a scenario and usually a ``[sweep]``.
    on : str
        ``"simulator"`` or a testbed backend. It decides which congestion controls are available.
    runs, seed, ccas
        For named settings only; a file specifies them itself. By default `ccas` are those of the paper, and for
        ``every-cca`` and ``bursts`` all that `on` has, except :data:`BUILT_CCAS`.
    part : str, optional
        Of ``hard``, ``"train"`` or ``"test"``; of ``elsewhere``, a family.

    Returns
    -------
    list of (dict, Scenario)
        As :func:`cctoolkit.sweep` gives them; each scenario has a name.
    int
        Number of foreground flows, which are always kept: one of each congestion control; with a file, all.

    Raises
    ------
    ParameterError
        There are no such settings, or an argument does not apply to them.
    """
    if on not in ("simulator", *BACKENDS):
        raise ParameterError(f"on: {on!r} must be one of simulator, {', '.join(BACKENDS)}")
    if settings in SETTINGS:
        return _drawn(settings, on, runs, seed, part, ccas)
    if Path(settings).suffix != ".toml":
        raise ParameterError(
            f"settings: {settings!r} is neither a .toml file nor one of {', '.join(SETTINGS)}"
        )
    for name, value in (("runs", runs), ("seed", seed), ("ccas", ccas)):
        if value is not None:
            raise ParameterError(f"{name}: {settings} specifies that itself (a [sweep] may list seeds)")
    named = [
        (changes, scenario.replace({"name": f"{scenario.name or Path(settings).stem}-{i}"}))
        for i, (changes, scenario) in enumerate(read_sweep(Path(settings)))
    ]
    return named, max(sum(flow.count for flow in scenario.flows) for _, scenario in named)


def _drawn(
    settings: str, on: str, runs: int | None, seed: int | None, part: str | None, ccas: Sequence[str] | None
) -> tuple[list[tuple[dict[str, Any], Scenario]], int]:
    """As :func:`jobs`, of named settings."""
    there = SIMULATOR_CCAS if on == "simulator" else KERNEL_CCAS
    chosen = tuple(ccas or (there if settings in _IN_TURN else PAPER_CCAS))
    added = own_ccas() if on == "simulator" else (*BUILT_CCAS, *built_in("ccas"))
    available = tuple(dict.fromkeys((*there, *added)))
    for cca in chosen:
        if cca not in available and (on == "simulator" or not cca.startswith(PREFIX)):
            what = "the simulator" if on == "simulator" else "the testbed's kernel"
            raise ParameterError(
                f"ccas: {cca!r} must be one that {what} has: {', '.join(available)}{did_you_mean(cca, available)}"
            )
    options: dict[str, Any] = {"ccas": chosen}
    options |= {name: value for name, value in (("runs", runs), ("seed", seed)) if value is not None}
    if part is not None and settings not in _WITH_PARTS:
        raise ParameterError(f"part: only {' and '.join(_WITH_PARTS)} have parts, not {settings}")
    options |= {} if part is None else {"part": part}
    return list(SETTINGS[settings](**options)), 1 if settings in _IN_TURN else len(chosen)
