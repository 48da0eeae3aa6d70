"""Statements about the ABC experiment's tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..._support.words import plural
from ..statements import OURS, Statement, statements_table
from .scenarios import CAUSES, FITS_MBPS, RATE_MBPS
from .tables import NEAR_MBPS, paper_flood_mbps, paper_half_mbps

__all__ = ["delay", "linux", "sharing", "statements", "why"]

Tables = Mapping[str, pd.DataFrame]


#: A goodput that is this much lower has fallen.
FALLS_MBPS = 2.0


def statements(table: pd.DataFrame, why: pd.DataFrame | None = None) -> pd.DataFrame:
    """The paper's claims and our measurements.

    Parameters
    ----------
    table : DataFrame
        Of :func:`.tables.intervals`, by ``sharing``, ``value`` and ``scheme``; sharings that are not in it are left
        out.
    why : DataFrame, optional
        Of :func:`.tables.intervals`, by ``cause``, ``sharing`` and ``value``.

    Returns
    -------
    DataFrame
        ``figure``, ``paper``, ``toolkit``, ``agrees``.
    """
    found = sharing({"clients": table})
    if why is not None:
        found += alone({"why_clients": why})
    return statements_table(sorted(found, key=lambda s: s.about))


def _span(rates: pd.Series) -> str:
    return f"{rates.min():.1f} to {rates.max():.1f} Mbit/s"


def _ends(rates: pd.Series) -> str:
    return f"{rates.iloc[0]:.1f} → {rates.iloc[-1]:.1f} Mbit/s"


def sharing(tables: Tables) -> list[Statement]:
    """The paper's claims about figures 4 to 6."""
    table = tables["clients"]

    def of(sharing: str, scheme: str) -> tuple[pd.Series, pd.Series]:
        part = table[(table.sharing == sharing) & (table.scheme == scheme)].set_index("value")
        return part.client_0_mbps, part.client_1_mbps

    there = set(table.sharing)
    found: list[Statement] = []

    def say(figure: int, paper: str, toolkit: str, agrees: Any) -> None:
        found.append(Statement(figure, paper, toolkit, bool(agrees)))

    if "cbr" in there:
        mine, other = of("cbr", "without ABC")
        off = (mine / (mine + other) - mine.index / (mine.index + 40.0)).abs()
        says = f"client 0's share is off by at most {off.max():.2f} (at {off.idxmax()} Mbit/s)"
        say(4, "without ABC, goodput is proportional to the sending rate", says, off.max() < 0.08)
        mine, other = of("cbr", "ABC")
        low, high = mine.index < 40, mine.index > 40
        if low.sum() > 1:  # a single rate, as in quick runs, shows no change
            rising = (mine[low].diff().dropna() > 0).all() and (other[low].diff().dropna() < 0).all()
            says = f"client 0: {_ends(mine[low])}, client 1: {_ends(other[low])}"
            say(
                4,
                "with ABC, below 40 Mbit/s, client 0 gets more the more it sends, and client 1 less",
                says,
                rising,
            )
        says = f"client 0: {_span(mine[high])}, client 1: {_span(other[high])}"
        less = (mine[high] < 0.7 * other[high]).all()
        say(4, "with ABC, above 40 Mbit/s client 0 gets clearly less than client 1", says, less)
    if "tcp" in there:
        _, other = of("tcp", "without ABC")
        first, last = (
            f"{other.iloc[n]:.1f} Mbit/s against {plural(other.index[n], 'connection')}" for n in (0, -1)
        )
        says = f"{first}, {last}"
        less = other.iloc[-1] < 0.5 * other.iloc[0]
        say(5, "without ABC, client 1 gets significantly less the more connections client 0 has", says, less)
        half = paper_half_mbps()
        both = pd.concat(of("tcp", "ABC"))
        close = both.between(half - NEAR_MBPS, half + NEAR_MBPS).all()
        say(5, f"with ABC, each gets about {half:g} Mbit/s", _span(both), close)
    if "cbr-tcp" in there:
        limit = paper_flood_mbps()
        _, other = of("cbr-tcp", "without ABC")
        beside = other[other.index > RATE_MBPS]
        say(6, "without ABC, client 1 gets hardly anything next to a flood", _span(beside), beside.max() < 1)
        mine, other = of("cbr-tcp", "ABC")
        says = f"at most {mine.max():.1f} Mbit/s (at a rate of {mine.idxmax()} Mbit/s)"
        say(6, f"with ABC, a flood gets no more than {limit:g} Mbit/s", says, mine.max() <= limit)
        if len(mine) > 1:
            falls = (mine.cummax() - mine).max()
            says = (
                ", ".join(f"{rate:.1f}" for rate in mine) + f" Mbit/s at {mine.index[0]} to {mine.index[-1]}"
            )
            claim = (
                f"with ABC, a flood's goodput does not fall (by over {FALLS_MBPS:g} Mbit/s) as its rate rises"
            )
            say(6, claim, says, falls <= FALLS_MBPS)
        flood, rest = mine.iloc[-1], other.iloc[-1]
        close = abs(flood - limit) <= NEAR_MBPS
        says = f"{flood:.1f} Mbit/s, {flood / limit:.2f} times as much"
        very = f"a very large rate (here {mine.index[-1]} Mbit/s)"
        say(6, f"with ABC, a flood at {very} gets {limit:g} Mbit/s", says, close)
        says = f"{rest:.1f} Mbit/s; {flood + rest:.1f} Mbit/s together"
        say(6, "with ABC, client 1 uses the rest", says, flood + rest > 0.9 * FITS_MBPS)
    return found


def alone(tables: Tables) -> list[Statement]:
    """Whether one connection fills the link."""
    means = tables["why_clients"]
    mbps = (
        means.set_index(["cause", "sharing", "value"])
        .sort_index()
        .client_1_mbps["as described", "cbr-tcp", 0]
    )
    says = f"{mbps:.1f} of {FITS_MBPS:.1f} Mbit/s"
    return [
        Statement(5, "with ABC, one connection alone can fill the link", says, bool(mbps > 0.9 * FITS_MBPS))
    ]


def why(tables: Tables) -> list[Statement]:
    """What each cause explains."""
    found = alone(tables)
    limit = paper_flood_mbps()
    for row in tables["why"].to_dict("records"):
        cause = row["cause"]
        if cause == "as described":
            continue
        misses = [
            text
            for key, text in (
                ("flood_near_32", f"the flood gets {row['flood_at_100']:.1f} Mbit/s at 100 Mbit/s"),
                (
                    "rest_is_used",
                    f"together they get {row['flood_at_100'] + row['connection_at_100']:.1f} Mbit/s",
                ),
                ("alone_fills", f"a single connection gets {row['alone']:.1f} Mbit/s"),
                (
                    "figure_5",
                    f"ten connections get {row['ten_connections']:.1f} and the one {row['against_ten']:.1f} Mbit/s",
                ),
                (
                    "figure_4",
                    f"the higher of two constant rates gets {row['heavier_at_60']:.1f} Mbit/s at 60 Mbit/s",
                ),
            )
            if not row[key]
        ]
        shape = "never falls" if row["never_falls"] else "falls at some rates"
        says = "; ".join(misses) or f"all hold, and the flood gets {row['flood_at_100']:.1f} Mbit/s"
        says += f"; the flood's goodput {shape} as its rate rises"
        found.append(
            Statement(
                6,
                f"{OURS}with '{cause}' ({CAUSES[cause].about}; {CAUSES[cause].where}), all that the paper says "
                f"about goodput holds except perhaps the shape of figure 6, with {limit:g} Mbit/s for the flood",
                says,
                bool(row["all_but_shape"]),
            )
        )
    return found


def delay(tables: Tables) -> list[Statement]:
    """Whether a longer way of the connection's packets explains figure 6."""
    limit = paper_flood_mbps()
    at: dict[str, dict[float, tuple[float, float]]] = {}
    for row in tables["delay"].to_dict("records"):
        at.setdefault(row["what"], {})[row["rtt_ms"]] = row["client_0_mbps"], row["client_1_mbps"]
    flood = {rtt: both[0] for rtt, both in at["flood"].items()}
    minute = {rtt: both[1] for rtt, both in at["alone for a minute"].items()}
    shortest, nearest = min(minute), min(flood, key=lambda rtt: abs(flood[rtt] - limit))
    fits = [rtt for rtt in flood if abs(flood[rtt] - limit) <= NEAR_MBPS and minute[rtt] >= 0.9 * FITS_MBPS]
    return [
        Statement(
            5,
            "a single connection fills the link (in a minute, over 0.9 of it)",
            f"{minute[shortest]:.1f} of {FITS_MBPS:.1f} Mbit/s with an RTT of {shortest:g} ms",
            minute[shortest] > 0.9 * FITS_MBPS,
        ),
        Statement(
            6,
            f"{OURS}with some delay in an input queue, a flood gets {limit:g} Mbit/s (within {NEAR_MBPS:g}), and a "
            "single connection still fills the link in a minute",
            ", ".join(f"{rtt:g} ms" for rtt in fits)
            or f"none: the nearest is {nearest:g} ms, where the flood gets {flood[nearest]:.1f} and a connection alone "
            f"{minute[nearest]:.1f} Mbit/s",
            bool(fits),
        ),
    ]


#: How far simulator and kernel may be apart on average, in Mbit/s.
LINUX_WITHIN_MBPS = 1.0


def linux(tables: Tables) -> list[Statement]:
    """Whether the simulator agrees with the kernel, and whether the paper's claims hold in the kernel."""
    table = tables["linux"]
    wide = table.pivot_table(
        index=["scheme", "sharing", "value"],
        columns="side",
        values=["client_0_mbps", "client_1_mbps"],
        sort=False,
    )
    results = []
    for scheme, part in wide.groupby(level="scheme", sort=False):
        off = pd.concat(
            [(part[c].simulator - part[c].kernel).abs() for c in ("client_0_mbps", "client_1_mbps")]
        )
        _, sharing_name, value = off.idxmax()
        results.append(
            Statement(
                "Linux",
                f"{OURS}{scheme}: the simulator's goodputs are within {LINUX_WITHIN_MBPS:g} Mbit/s of the kernel's on "
                "average",
                f"off by {off.mean():.2f}, at most {off.max():.1f} Mbit/s ({sharing_name}, {value:g})",
                bool(off.mean() <= LINUX_WITHIN_MBPS),
            )
        )
    papers = sharing({"clients": table[table.side == "kernel"]})
    return results + [dataclasses.replace(one, about=f"Linux, figure {one.about}") for one in papers]
