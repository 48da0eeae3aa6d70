"""Views of the ABC paper's figure 6 on BMv2, which ``hardware/launch/abc_flood.py`` measures, for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..abc.scenarios import FITS_MBPS
from ..abc.tables import NEAR_MBPS, paper_flood_mbps
from ..statements import OURS, Statement, bullets

__all__ = ["STATEMENTS", "VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def goodputs(tables: Tables) -> str:
    """Goodputs on BMv2 and in the simulator by how fast the switch reads, and where packets were lost, in percent."""
    table = tables["bmv2"]
    means = table.groupby(["entries", "what"], sort=False).mean(numeric_only=True)

    def both(row: pd.Series) -> str:
        pairs = [
            " / ".join(f"{row[f'{side}client_{c}_mbps']:.1f}" for c in (0, 1)) for side in ("", "simulated_")
        ]
        return "; ".join(pairs)

    def lost(row: pd.Series, client: int) -> str:
        # packets on their way when the run ends are read without having been counted as sent
        counts = (max(row[f"{name}_{client}"], 0) for name in ("unread", "dropped", "overflowed"))
        return " / ".join(f"{100 * count / row[f'sent_{client}']:.2g}" for count in counts)

    rows = []
    for entries in dict.fromkeys(table.entries):
        flood, alone, ten = (means.loc[(entries, what)] for what in ("flood", "alone", "ten"))
        rows.append(
            {
                "entries": f"{entries:g}",
                "packets/s read": f"{flood.read_packets_per_s:.0f}",
                "flood / connection": both(flood),
                "connection's RTT, ms": f"{flood.rtt_ms:.0f}",
                "flood: unread / dropped / overflow": lost(flood, 0),
                "connection: unread / dropped / overflow": lost(flood, 1),
                "alone": f"{alone.client_1_mbps:.1f}; {alone.simulated_client_1_mbps:.1f}",
                "ten / one": both(ten),
            }
        )
    return markdown_table(pd.DataFrame(rows), labels=1)


def _goodput_by_reading(flood: pd.DataFrame) -> list[str]:
    """Of each row, what the flood gets and how fast the switch reads, in words."""
    return [
        f"{row.client_0_mbps:.1f} Mbit/s where it reads {row.read_packets_per_s:.0f} packets/s"
        for row in flood.itertuples()
    ]


def figure_6(tables: Tables) -> list[Statement]:
    """Whether a switch that reads too slowly explains figure 6, by counts of what it lost."""
    limit = paper_flood_mbps()
    means = tables["bmv2"].groupby(["what", "entries"], as_index=False).mean(numeric_only=True)
    flood, alone, ten = (means[means.what == what].set_index("entries") for what in ("flood", "alone", "ten"))
    near = (flood.client_0_mbps - limit).abs()
    rest = (alone.client_1_mbps > 0.9 * FITS_MBPS) & (ten.client_0_mbps < 0.6 * FITS_MBPS)
    reads = _goodput_by_reading(flood)
    nearest = int(near.to_numpy().argmin())
    fits = [
        words for words, close, holds in zip(reads, near <= NEAR_MBPS, rest, strict=True) if close and holds
    ]
    unread, dropped, overflowed = (
        flood[f"{name}_1"].iloc[nearest] for name in ("unread", "dropped", "overflowed")
    )
    rtts_ms = flood.rtt_ms
    goodputs = ("client_0_mbps", "client_1_mbps")
    apart = pd.concat([(means[name] - means[f"simulated_{name}"]).abs() for name in goodputs])
    worst = means.iloc[int(apart.to_numpy().argmax()) % len(means)]
    about = "BMv2, figure 6"
    return [
        Statement(
            about,
            f"with ABC, a flood at a very large rate (here 100 Mbit/s) gets {limit:g} Mbit/s",
            reads[0],
            bool(near.iloc[0] <= NEAR_MBPS),
        ),
        Statement(
            about,
            f"{OURS}with a switch that reads too slowly, a flood gets {limit:g} Mbit/s (within {NEAR_MBPS:g}), a "
            "single connection still fills the link, and ten connections get no more than 0.6 of it",
            "; ".join(fits) or f"nowhere; the nearest is {reads[nearest]}",
            bool(fits),
        ),
        Statement(
            about,
            f"{OURS}where the flood is nearest to {limit:g} Mbit/s, waiting to be read holds the connection back (its "
            "RTT is over twice that without entries), not losses there (less than half of its losses)",
            f"an RTT of {rtts_ms.iloc[nearest]:.0f} ms against {rtts_ms.iloc[0]:.0f} ms; {unread:.0f} packets were not "
            f"read, {dropped:.0f} dropped by ABC, {overflowed:.0f} lost in the full buffer",
            bool(rtts_ms.iloc[nearest] > 2 * rtts_ms.iloc[0] and unread < dropped + overflowed),
        ),
        Statement(
            about,
            f"{OURS}the simulator's switch that reads as slowly is within {NEAR_MBPS:g} Mbit/s of BMv2",
            f"off by {apart.mean():.1f}, at most {apart.max():.1f} Mbit/s ({worst.what}, {worst.entries:g} entries)",
            bool(apart.max() <= NEAR_MBPS),
        ),
    ]


def in_words(tables: Tables) -> str:
    """What the flood gets where the switch reads so fast."""
    flood = tables["bmv2"].query("what == 'flood'").groupby("entries").mean(numeric_only=True)
    return "; ".join(_goodput_by_reading(flood.sort_values("client_0_mbps")))


#: Statements by part, for lists of the paper's tables.
STATEMENTS = {"bmv2": figure_6}

VIEWS: dict[str, Callable[[Tables], str]] = {
    "goodputs": goodputs,
    "in-words": in_words,
    "statements": lambda tables: bullets(figure_6(tables)),
}
