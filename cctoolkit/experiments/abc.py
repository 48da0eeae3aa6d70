"""The three sharing experiments of the ABC paper, with references, in integers, and why one differs.

Menth, Mostafaei, Merling and Häberle, "Implementation and Evaluation of Activity-Based Congestion Management Using P4
(P4-ABC)", Future Internet 11(7), 2019, section 6. The paper's numbers are in ``data/papers/p4-abc.csv``; scenarios with
the same parameters are in ``hardware/launch/p4-abc/``, and a test says that they are the same.

What the paper leaves open, and what was chosen: CUBIC; Poisson arrivals of UDP (two perfectly regular streams lock into
a pattern in which one of them loses everything); rates are of whole frames; connections start in the first second, at
times drawn anew for each run, for that is what ten runs of TCP differ in.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ParameterError
from ._folder import Folder, OutputOption, WorkersOption, markdown_table
from .papers import paper_numbers

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.model import Capture
    from ..scenario import Scenario
    from ..scenario.run import Run

__all__ = [
    "CAUSES",
    "SCHEMES",
    "SHARINGS",
    "Cause",
    "by_source",
    "clients",
    "intervals",
    "run",
    "scenario",
    "source_prefixes",
    "statements",
]

#: What stands before the link.
SCHEMES = {
    "without ABC": "a buffer of 24 packets and nothing else",
    "ABC": "the paper's, with its parameters",
    "ABC in integers": "the same with tables instead of exponentials, logarithms and divisions",
    "CSFQ": "core-stateless fair queueing (Stoica et al. 1998)",
    "fair queueing": "a queue of 24 packets for each client, served in turn (deficit round robin)",
}
_RATE_MBPS, _BUFFER = 50, 24
_UDP_BYTES, _TCP_BYTES, _PAYLOAD = 1490, 1514, 1448  # frames with 1448 bytes of payload
_FITS_MBPS = _RATE_MBPS * _PAYLOAD / _TCP_BYTES  # goodput of TCP on a full link
_AVERAGE = ["client_0_mbps", "client_1_mbps", "utilisation", "delay_ms"]


@dataclass(frozen=True)
class Sharing:
    """One of the paper's experiments: its figure, what client 0 does more and more of, and what client 1 does."""

    figure: int
    title: str
    axis: str
    steps: tuple[int, ...]
    client_0: Mapping[str, Any]
    client_1: Mapping[str, Any]


_UDP = {"cca": "udp", "arrivals": "poisson", "packet_bytes": _UDP_BYTES}
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
WHY = "why"


def scenario(
    sharing: str, value: float, scheme: str = "ABC", *, duration_s: float = 30, seed: int = 1
) -> Scenario:
    """A run of the paper.

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
        Of the arrivals of UDP, the starts of TCP, and what draws lots.

    Raises
    ------
    ParameterError
        There is no such experiment or scheme.
    """
    import numpy as np

    from ..aqm import Abc, Csfq, IntegerAbc, TailDrop
    from ..scenario import Bottleneck, Flow, Queue, Scenario

    if sharing not in SHARINGS:
        raise ParameterError(f"sharing: {sharing!r} is none of {', '.join(SHARINGS)}")
    if scheme not in SCHEMES:
        raise ParameterError(f"scheme: {scheme!r} is none of {', '.join(SCHEMES)}")
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
        rate_mbps=_RATE_MBPS, buffer_packets=_BUFFER, aqm=aqm, queues=(Queue(), Queue()) if fair else ()
    )
    return Scenario(bottleneck=bottleneck, flows=tuple(flows), duration_s=duration_s, seed=seed)


def clients(run: Run) -> dict[str, Any]:
    """What is kept of a run: goodput of both clients as Iperf counts it, utilisation, delay.

    Padding (``_abc_switch.through_switch``) is no goodput.
    """
    assert run.scenario is not None
    out: dict[str, Any] = {"client_0_mbps": 0.0, "client_1_mbps": 0.0}
    for flow, received in zip(run.scenario.flow_list(), run.flows.received_bytes, strict=True):
        payload = flow.packet_bytes - (42 if flow.is_udp else 66)
        out[f"client_{flow.aggregate}_mbps"] += (
            received * (_PAYLOAD / payload) * 8e-6 / run.scenario.duration_s
        )
    summary = run.summary()
    return out | {"utilisation": summary["utilisation"], "delay_ms": summary["mean_delay_ms"]}


def intervals(runs: pd.DataFrame, keys: Sequence[str], confidence: float = 0.95) -> pd.DataFrame:
    """Means over runs, with half the width of their confidence intervals.

    Parameters
    ----------
    runs : DataFrame
        A row a run: `keys`, and what :func:`clients` gives.
    keys : sequence of str
        What makes runs the same but for their seed.
    confidence : float

    Returns
    -------
    DataFrame
        `keys`, ``runs``, each quantity, and ``…_ci``: Student's t (NaN with one run).
    """
    import pandas as pd
    from scipy import stats

    rows = []
    for key, part in runs.groupby(list(keys), sort=False):
        row: dict[str, Any] = dict(zip(keys, key if isinstance(key, tuple) else (key,), strict=True)) | {
            "runs": len(part)
        }
        t = stats.t.ppf((1 + confidence) / 2, len(part) - 1) if len(part) > 1 else math.nan
        for name in _AVERAGE:
            row[name] = part[name].mean()
            row[f"{name}_ci"] = t * stats.sem(part[name]) if len(part) > 1 else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


# ---- why figure 6 comes out otherwise --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """Something that may hold the connection of figure 6 back.

    Attributes
    ----------
    about : str
    where : str
        Where it comes from: what the paper says, or a value that was chosen.
    connections : mapping
        What it changes of every TCP flow.
    aqm : mapping
        What it changes of ABC's parameters.
    switch : mapping
        What ``_abc_switch.through_switch`` is given; empty: no such switch.
    """

    about: str
    where: str
    connections: Mapping[str, Any] = field(default_factory=dict)
    aqm: Mapping[str, Any] = field(default_factory=dict)
    switch: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, scenario: Scenario) -> Scenario:
        """A scenario with ABC, changed."""
        from ..aqm import Abc
        from ._abc_switch import through_switch

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
    "jitter 5 ms": Cause("an uneven switch: up to 5 ms more", "chosen", {"jitter_ms": 5}),
    "bursts": Cause(
        "one acknowledgement for 16 packets, as merging receivers send", "chosen", {"delayed_ack": 16}
    ),
    "M_AM 0.3 s": Cause("a shorter memory of the meter", "chosen", aqm={"meter_memory_s": 0.3}),
    "M_AM 30 s": Cause("a longer memory of the meter", "chosen", aqm={"meter_memory_s": 30.0}),
    "M_AA 3 s": Cause("a longer memory of the average activity", "chosen", aqm={"average_memory_s": 3.0}),
    "Q_min 12": Cause("the earlier simulations' Q_min", "section 6.1.3, of [6]", aqm={"min_packets": 12.0}),
    "gamma 1": Cause("a sixteenth of gamma", "fitted", aqm={"gamma_packets": 1.0}),
    "random loss": Cause("a packet in a thousand is lost anywhere", "fitted", {"loss": 0.001}),
    "slow reading": Cause(
        "the switch reads 9700 packets/s", "section 6.1.3 names it; the rate is fitted", switch=_READ
    ),
    "link behind": Cause(
        "4170 packets/s into a link of 50 Mbit/s", "section 5.1, nothing fitted", switch=_LINK
    ),
    "both": Cause("slow reading and the link behind", "as these", switch=_READ | _LINK),
}
#: Where causes are looked at: all of figure 6's shape, the connection alone, and whether figures 4 and 5 still stand.
_LOOKED_AT: tuple[tuple[str, float], ...] = (
    *(("cbr-tcp", x) for x in (0, 20, 40, 60, 80, 100)),
    *(("tcp", x) for x in (1, 2, 4, 10)),
    *(("cbr", x) for x in (20, 60, 100)),
)


def _why_scenario(cause: Cause, sharing: str, value: float, duration_s: float, seed: int) -> Scenario:
    """A run with a cause; of figure 6 with rate 0, the connection alone."""
    made = scenario(sharing, value or 1, duration_s=duration_s, seed=seed)
    if not value:
        made = dataclasses.replace(made, flows=tuple(f for f in made.flows if not f.is_udp))
    return cause.apply(made)


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """What each cause makes of the paper's statements.

    Parameters
    ----------
    table : DataFrame
        ``cause``, ``sharing``, ``value`` and means, as :func:`intervals` gives them.

    Returns
    -------
    DataFrame
        A row a cause: goodputs, and the statements as booleans: ``flood_near_32`` (at 100 Mbit/s, within 4),
        ``rest_is_used`` (both together 90 % of what the link can carry), ``alone_fills`` (90 %), ``figure_5`` (both
        clients within a fifth of half with 10 connections), ``figure_4`` (at 60 and 100 Mbit/s the heavier one below),
        ``never_falls`` (of figure 6: a higher rate never gets less, by more than 2 Mbit/s), and ``all_but_shape``.
    """
    import pandas as pd

    rows = []
    for name, part in table.groupby("cause", sort=False):
        at = {
            (s, v): (a, b)
            for s, v, a, b in part[["sharing", "value", "client_0_mbps", "client_1_mbps"]].itertuples(
                index=False
            )
        }
        six = [at["cbr-tcp", x][0] for x in (20, 40, 60, 80, 100)]
        flood, connection = at["cbr-tcp", 100]
        row = {
            "cause": name,
            **{f"flood_at_{x}": y for x, y in zip((20, 40, 60, 80, 100), six, strict=True)},
            "connection_at_100": connection,
            "alone": at["cbr-tcp", 0][1],
            "ten_connections": at["tcp", 10][0],
            "against_ten": at["tcp", 10][1],
            "heavier_at_60": at["cbr", 60][0],
            "flood_near_32": abs(flood - 32) <= 4,
            "rest_is_used": flood + connection >= 0.9 * _FITS_MBPS,
            "alone_fills": at["cbr-tcp", 0][1] >= 0.9 * _FITS_MBPS,
            "figure_5": all(abs(x - _FITS_MBPS / 2) <= 0.2 * _FITS_MBPS / 2 for x in at["tcp", 10]),
            "figure_4": all(at["cbr", x][0] < at["cbr", x][1] for x in (60, 100)),
            "never_falls": all(b >= a - 2 for a, b in itertools.pairwise(six)),
        }
        row["all_but_shape"] = all(
            row[k] for k in ("flood_near_32", "rest_is_used", "alone_fills", "figure_5", "figure_4")
        )
        rows.append(row)
    return pd.DataFrame(rows)


# ---- a capture's traffic ---------------------------------------------------------------------------------------------


def source_prefixes(capture: Capture, ipv4_bits: int = 24, ipv6_bits: int = 48) -> pd.DataFrame:
    """The networks that a capture's packets come from, as aggregates.

    Parameters
    ----------
    capture : Capture
    ipv4_bits, ipv6_bits : int
        Lengths of the prefixes.

    Returns
    -------
    DataFrame
        ``flow_id``, ``direction``, ``prefix`` (text) and ``number`` (from 0): who sends in each direction of a flow.

    Raises
    ------
    ParameterError
        A length that cannot be.
    """
    import ipaddress

    import numpy as np
    import pandas as pd

    if not (0 <= ipv4_bits <= 32 and 0 <= ipv6_bits <= 128):
        raise ParameterError(f"source_prefixes: no prefixes have {ipv4_bits} and {ipv6_bits} bits")
    keys = capture.keys
    version = np.concatenate([keys.ip_version, keys.ip_version])
    address = np.concatenate([keys.src, keys.dst])
    bits = np.where(version == 4, ipv4_bits, ipv6_bits)
    mask = np.packbits(np.arange(128) < bits[:, None], axis=1)
    network = np.column_stack([version, address & mask])
    found, aggregate = np.unique(network, axis=0, return_inverse=True)
    names = np.array(
        [
            f"{ipaddress.ip_address(row[1:5].tobytes() if row[0] == 4 else row[1:].tobytes())}"
            f"/{ipv4_bits if row[0] == 4 else ipv6_bits}"
            for row in found
        ]
    )
    n = len(keys.flow_id)
    return pd.DataFrame(
        {
            "flow_id": np.concatenate([keys.flow_id, keys.flow_id]),
            "direction": np.repeat([0, 1], n),
            "prefix": names[aggregate.ravel()] if len(found) else np.array([], str),
            "number": aggregate.ravel(),
        }
    )


def by_source(scenario: Scenario, sources: pd.DataFrame) -> Scenario:
    """A capture's transfers with the networks they come from as aggregates.

    Parameters
    ----------
    scenario : Scenario
        Of :func:`cctoolkit.scenario_from_capture`, whose flows' names say which they were in the capture.
    sources : DataFrame
        Of :func:`source_prefixes`, from the same capture. Aggregates are numbered anew, from 0, and named after their
        prefix.
    """
    prefix = sources.set_index(["flow_id", "direction"]).prefix
    number: dict[str, int] = {}
    flows = []
    for flow in scenario.flows:
        _, flow_id, *back = flow.name.split()
        name = str(prefix.loc[int(flow_id), int(bool(back))])
        flows.append(dataclasses.replace(flow, aggregate=number.setdefault(name, len(number)), name=name))
    return dataclasses.replace(scenario, flows=tuple(flows))


# ---- all of it -------------------------------------------------------------------------------------------------------


def jobs(
    sharings: Sequence[str], schemes: Sequence[str], duration_s: float, runs: int
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """The paper's runs, for :func:`cctoolkit.run_sweep`: ``sharing``, ``value``, ``scheme`` and ``seed`` of each."""
    for sharing in sharings:
        for value in SHARINGS[sharing].steps:
            for scheme in schemes:
                for seed in range(1, runs + 1):
                    about = {"sharing": sharing, "value": value, "scheme": scheme, "seed": seed}
                    yield about, scenario(sharing, value, scheme, duration_s=duration_s, seed=seed)


def why_jobs(
    causes: Sequence[str], duration_s: float, runs: int
) -> Iterator[tuple[dict[str, Any], Scenario]]:
    """The runs that tell the causes apart: ``cause``, ``sharing``, ``value`` (0: the connection alone), ``seed``."""
    for name in causes:
        for sharing, value in _LOOKED_AT:
            for seed in range(1, runs + 1):
                about = {"cause": name, "sharing": sharing, "value": value, "seed": seed}
                yield about, _why_scenario(CAUSES[name], sharing, value, duration_s, seed)


def statements(table: pd.DataFrame, why: pd.DataFrame | None = None) -> pd.DataFrame:
    """What the paper says, and what came out.

    Parameters
    ----------
    table : DataFrame
        Of :func:`intervals`, by ``sharing``, ``value`` and ``scheme``; experiments that are not in it are left out.
    why : DataFrame, optional
        Of :func:`intervals`, by ``cause``, ``sharing`` and ``value``.

    Returns
    -------
    DataFrame
        ``figure``, ``paper``, ``toolkit``, ``agrees``.
    """
    import pandas as pd

    def of(sharing: str, scheme: str) -> tuple[pd.Series, pd.Series]:
        part = table[(table.sharing == sharing) & (table.scheme == scheme)].set_index("value")
        return part.client_0_mbps, part.client_1_mbps

    def span(rates: pd.Series) -> str:
        return f"{rates.min():.1f} to {rates.max():.1f} Mbit/s"

    rows: list[tuple[int, str, str, bool]] = []

    def tell(figure: int, paper: str, toolkit: str, agrees: Any) -> None:
        rows.append((figure, paper, toolkit, bool(agrees)))

    there = set(table.sharing)
    if "cbr" in there:
        mine, other = of("cbr", "without ABC")
        off = (mine / (mine + other) - mine.index / (mine.index + 40.0)).abs()
        says = f"client 0's share is off by at most {off.max():.2f} (client 0 at {off.idxmax()} Mbit/s)"
        tell(4, "without ABC, goodput is proportional to what is sent", says, off.max() < 0.08)
        mine, other = of("cbr", "ABC")
        low, high = mine.index < 40, mine.index > 40
        rising = (mine[low].diff().dropna() > 0).all() and (other[low].diff().dropna() < 0).all()
        says = f"{span(mine[low])}, client 1 from {other[low].iloc[0]:.1f} down to {other[low].iloc[-1]:.1f}"
        tell(4, "with ABC, below 40 Mbit/s client 0 gets more the more it sends, client 1 less", says, rising)
        says = f"{span(mine[high])}, client 1 {span(other[high])}"
        less = (mine[high] < 0.7 * other[high]).all()
        tell(4, "with ABC, above 40 Mbit/s client 0 gets clearly less than client 1", says, less)
    if "tcp" in there:
        _, other = of("tcp", "without ABC")
        says = (
            f"{other.iloc[0]:.1f} Mbit/s beside one connection, {other.iloc[-1]:.1f} beside {other.index[-1]}"
        )
        less = other.iloc[-1] < 0.5 * other.iloc[0]
        tell(5, "without ABC, client 1 gets significantly less the more connections client 0 has", says, less)
        mine, other = of("tcp", "ABC")
        both = pd.concat([mine, other])
        tell(5, "with ABC, both get in the order of 25 Mbit/s", span(both), both.between(21, 29).all())
    if why is not None:
        alone = why.set_index(["cause", "sharing", "value"]).client_1_mbps["as described", "cbr-tcp", 0]
        says = f"{alone:.1f} Mbit/s of {_FITS_MBPS:.1f} that fit"
        tell(5, "with ABC, one connection alone can fill the link", says, alone > 0.9 * _FITS_MBPS)
    if "cbr-tcp" in there:
        _, other = of("cbr-tcp", "without ABC")
        beside = other[other.index > _RATE_MBPS]
        tell(6, "without ABC, client 1 gets hardly anything beside a flood", span(beside), beside.max() < 1)
        mine, other = of("cbr-tcp", "ABC")
        says = f"at most {mine.max():.1f} Mbit/s (client 0 at {mine.idxmax()} Mbit/s)"
        tell(6, "with ABC, a flood gets no more than 32 Mbit/s", says, mine.max() <= 32)
        flood, rest = mine.iloc[-1], other.iloc[-1]
        very = f"(here {mine.index[-1]} Mbit/s)"
        tell(
            6, f"with ABC, it gets 32 at very large rates {very}", f"{flood:.1f} Mbit/s", abs(flood - 32) <= 4
        )
        says = f"{rest:.1f} Mbit/s, together {flood + rest:.1f}"
        tell(6, "with ABC, client 1 uses the rest", says, flood + rest > 0.9 * _FITS_MBPS)
    found = pd.DataFrame(rows, columns=["figure", "paper", "toolkit", "agrees"])
    return found.assign(agrees=found.agrees.map({True: "yes", False: "no"}))


def integer_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Goodput with ABC in integers less that with ABC, a row an experiment: the mean and the largest difference.

    ``beyond_both`` counts the points at which the confidence intervals of the two do not touch.
    """
    import pandas as pd

    rows = []
    for sharing, part in table.groupby("sharing", sort=False):
        real, whole = (part[part.scheme == s].set_index("value") for s in ("ABC", "ABC in integers"))
        for client in (0, 1):
            name = f"client_{client}_mbps"
            apart = whole[name] - real[name]
            rows.append(
                {
                    "sharing": sharing,
                    "client": client,
                    "mean_difference_mbps": apart.mean(),
                    "largest_mbps": apart.iloc[int(apart.abs().argmax())],
                    "at": apart.index[int(apart.abs().argmax())],
                    "points": len(apart),
                    "beyond_both": int((apart.abs() > whole[f"{name}_ci"] + real[f"{name}_ci"]).sum()),
                }
            )
    return pd.DataFrame(rows)


_WHY_TEXT = """\
With the parameters of section 6.1.3 a flood of 100 Mbit/s gets a fifth to a tenth of what the paper reports (the
less the longer the run). ABC's own equation says why: the flood's threshold is Q_min = 6 packets, the connection's
lies above the buffer of 24, so nothing of the connection is dropped before the buffer is full, and the flood has
what the connection leaves over. At the paper's 32 and 18 Mbit/s it is the same: thresholds of 6.6 and 44 packets.
So in the testbed something that is not ABC held the connection back to 18 Mbit/s *in the presence of the flood*.
Each row below changes one thing, and is then held against all that the paper says, figures 4 and 5 too.

**Slow reading** is what the paper itself reports of BMv2 at higher rates: the switch cannot read all that comes,
and what it does not read is lost before ABC sees it. With the rate fitted to give 32 Mbit/s at 100 Mbit/s the
printed statements hold. But the flood's goodput first falls, and rises only when the switch is overloaded, which
the text neither says nor excludes ("only up to 32 Mb/s by increasing its transmission rate to very large values").

**Link behind** needs no fitting. The limiter sends 4170 packets/s. Of UDP's frames (1490 bytes) these are 49.7
Mbit/s, of TCP's (1514 bytes) 50.5, and the link carries 50.0: it is overloaded, and loses packets without looking
at activities, until 63 percent of the packets are UDP's. That is 30.6 Mbit/s of payload for the flood and 17.7 for
the connection, and it is so from 40 Mbit/s on. But then many connections against one (figure 5) are decided by that
link too, where ABC has no say, and that figure would not have come out as printed. (An ABC hop at that link itself
is the first row.)

**gamma 1** and **random loss** come near 32 as well, but no sentence of the paper is about either, and the one
leaves figure 5 uneven, the other holds back the connection that is alone. Memories, round-trip time, jitter,
bursts, Q_min and Reno do not explain it. To decide between the first two takes counters of a real switch: packets
lost before its ingress pipeline, and at the link behind it."""


def _why_blocks(folder: Folder, why: pd.DataFrame) -> list[str]:
    import pandas as pd

    found = verdicts(why)
    folder.table("why", found)
    told = pd.DataFrame(
        {
            "": found.cause,
            "what": [CAUSES[c].about for c in found.cause],
            "from": [CAUSES[c].where for c in found.cause],
            "flood of 20, 40, 60, 80, 100 gets": [
                ", ".join(f"{x:.0f}" for x in row)
                for row in found[[f"flood_at_{x}" for x in (20, 40, 60, 80, 100)]].to_numpy()
            ],
            "connection at 100": found.connection_at_100.round(1),
            "connection alone": found.alone.round(1),
            "10 connections : 1": [
                f"{a:.0f} : {b:.0f}" for a, b in zip(found.ten_connections, found.against_ten, strict=True)
            ],
        }
    )
    for name in ("flood_near_32", "rest_is_used", "alone_fills", "figure_5", "figure_4", "never_falls"):
        told[name.replace("_", " ")] = found[name].map({True: "yes", False: "no"})
    fits = found[found.all_but_shape].cause.tolist()
    without = found[found.all_but_shape & found.never_falls].cause.tolist()
    conclusion = (
        f"All printed statements hold with: {', '.join(fits) or 'none of them'}. Of these, client 0 never loses by "
        f"sending more with: {', '.join(without) or 'none'}."
    )
    return ["## Why figure 6 comes out otherwise", _WHY_TEXT, markdown_table(told), conclusion]


def run(
    output: OutputOption = Path("abc"),
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(SHARINGS)} or {WHY}; may be given again. Default: all."),
    ] = None,
    full: Annotated[bool, typer.Option(help="The paper's 300 s a run instead of 30.")] = False,
    runs: Annotated[int, typer.Option(help="Of each data point (the paper: 10).", min=1)] = 10,
    duration: Annotated[
        float | None, typer.Option(help="Seconds of a run, instead of either.", min=2.0)
    ] = None,
    workers: WorkersOption = None,
) -> Path:
    """Run the sharing experiments and write tables, figures and a summary.

    Runs that an earlier call with the same duration has left in the folder are not run again.

    Returns
    -------
    Path
        The folder: ``runs.parquet`` and ``why_runs.parquet`` (every run), ``clients.parquet`` (means and confidence
        intervals), ``statements.parquet``, ``integers.parquet``, ``why.parquet``, figures, ``summary.md``.

    Raises
    ------
    ParameterError
        An option that cannot be.
    """
    import sys

    from ..sim.sweep import run_sweep
    from ._abc_figures import references_figure, sharing_figure, why_figure

    chosen = list(dict.fromkeys(only or (*SHARINGS, WHY)))
    for name in chosen:
        if name not in (*SHARINGS, WHY):
            raise ParameterError(f"only: {name!r} is none of {', '.join((*SHARINGS, WHY))}")
    seconds = duration if duration is not None else 300.0 if full else 30.0
    folder = Folder(output, "abc", {"only": chosen, "duration_s": seconds, "runs": runs})
    bar = sys.stderr.isatty()
    sharings = [s for s in SHARINGS if s in chosen]
    blocks: list[str] = []
    table = why = None

    def kept(name: str, all_jobs: Iterator[tuple[dict[str, Any], Scenario]]) -> pd.DataFrame:
        return run_sweep(
            all_jobs, folder.path / f"{name}.parquet", measure=clients, workers=workers, progress=bar
        )

    if sharings:
        table = intervals(
            kept("runs", jobs(sharings, list(SCHEMES), seconds, runs)), ["sharing", "value", "scheme"]
        )
        folder.table("clients", table)
    if WHY in chosen:
        made = kept("why_runs", why_jobs(list(CAUSES), seconds, min(runs, 3)))
        why = intervals(made, ["cause", "sharing", "value"])
    if table is not None:
        told = statements(table, why)
        folder.table("statements", told)
        blocks += ["## The paper's statements", markdown_table(told)]
        for sharing in sharings:
            folder.figure(f"figure{SHARINGS[sharing].figure}", sharing_figure(sharing, table))
            blocks += [f"## {SHARINGS[sharing].title}", _sharing_table(table, sharing)]
        folder.figure("references", references_figure(table))
        apart = integer_differences(table)
        folder.table("integers", apart)
        blocks += ["## In integers: goodput less that with floating point", markdown_table(apart)]
    if why is not None:
        blocks += _why_blocks(folder, why)
        folder.figure("why", why_figure(why))
    said = paper_numbers("p4-abc")
    numbers = said[~said["item"].isin(["testbed"])].drop(columns="section")
    blocks += ["## What the paper prints", markdown_table(numbers)]
    about = "Means of runs with 95 % confidence intervals (Student's t). " + "; ".join(
        f"**{name}**: {what}" for name, what in SCHEMES.items()
    )
    folder.summary("Sharing a link by activity (P4-ABC)", about + ".", *blocks)
    return folder.path


def _sharing_table(table: pd.DataFrame, sharing: str) -> str:
    """Goodput of client 0 / client 1 by scheme, with the half widths."""
    import pandas as pd

    part = table[table.sharing == sharing]
    rows = []
    for value, here in part.groupby("value", sort=False):
        row: dict[str, Any] = {SHARINGS[sharing].axis: value}
        for r in here.to_dict("records"):
            cells = [f"{r[f'client_{c}_mbps']:.1f} ± {r[f'client_{c}_mbps_ci']:.1f}" for c in (0, 1)]
            row[str(r["scheme"])] = " / ".join(cells).replace(" ± nan", "")
        rows.append(row)
    return markdown_table(pd.DataFrame(rows))
