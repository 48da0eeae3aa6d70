"""The parts of the ABC experiment's summary that are not statements: conditions, tables, explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..._support.markdown import markdown_table
from ..papers import paper_numbers
from .limiter import PACKETS_PER_S
from .scenarios import CAUSES, LINUX_SCHEMES, RATE_MBPS, SCHEMES, SHARINGS, TCP_BYTES, UDP_BYTES, Settings

Tables = Mapping[str, pd.DataFrame]


def about() -> str:
    """The schemes."""
    return (
        "Means of runs with 95 % confidence intervals (Student's t). "
        + "; ".join(f"**{name}**: {what}" for name, what in SCHEMES.items())
        + "."
    )


def sharing(settings: Settings, tables: Tables) -> list[str]:
    """Goodputs of each sharing, ABC in integers, and the paper's numbers."""
    table = tables["clients"]
    blocks = []
    for name in settings.sharings:
        blocks += [f"### {SHARINGS[name].title}", goodputs(table, name)]
    printed = paper_numbers("p4-abc")
    return [
        *blocks,
        "### In integers: goodput minus that with floating point",
        markdown_table(tables["integers"]),
        "### What the paper prints",
        markdown_table(printed[~printed["item"].isin(["testbed"])].drop(columns="section")),
    ]


def goodputs(table: pd.DataFrame, sharing: str) -> str:
    """Goodput of client 0 / client 1 by scheme, with half the width of the confidence intervals."""
    part = table[table.sharing == sharing]
    rows = []
    for value, here in part.groupby("value", sort=False):
        row: dict[str, Any] = {SHARINGS[sharing].axis: value}
        for r in here.to_dict("records"):
            cells = [f"{r[f'client_{c}_mbps']:.1f} ± {r[f'client_{c}_mbps_ci']:.1f}" for c in (0, 1)]
            row[str(r["scheme"])] = " / ".join(cells).replace(" ± nan", "")
        rows.append(row)
    return markdown_table(pd.DataFrame(rows))


def why(settings: Settings, tables: Tables) -> list[str]:
    """Every cause beside all of the paper's claims."""
    found = tables["why"]
    shown = pd.DataFrame(
        {
            "": found.cause,
            "what": [CAUSES[c].about for c in found.cause],
            "from": [CAUSES[c].where for c in found.cause],
            **{f"flood at {x}": found[f"flood_at_{x}"].map("{:.1f}".format) for x in (20, 40, 60, 80, 100)},
            "connection at 100": found.connection_at_100.map("{:.1f}".format),
            "alone": found.alone.map("{:.1f}".format),
            "10 connections / 1": [
                f"{a:.1f} / {b:.1f}" for a, b in zip(found.ten_connections, found.against_ten, strict=True)
            ],
        }
    )
    flags = ("flood_near_32", "rest_is_used", "alone_fills", "figure_5", "figure_4", "never_falls")
    for name in flags:
        shown[name.replace("_", " ")] = found[name].map({True: "yes", False: "no"})
    fits = found[found.all_but_shape].cause.tolist()
    without = found[found.all_but_shape & found.never_falls].cause.tolist()
    udp_mbps, tcp_mbps = (PACKETS_PER_S * size * 8e-6 for size in (UDP_BYTES, TCP_BYTES))
    enough = (RATE_MBPS * 1e6 / 8 / PACKETS_PER_S - TCP_BYTES) / (UDP_BYTES - TCP_BYTES)
    return [
        "By ABC's own equation the flood's threshold in figure 6 is Q_min = 6 packets, while the connection's "
        "lies above the buffer of 24: nothing of the connection is dropped before the buffer is full, and the "
        "flood gets what the connection leaves over. At the paper's 32 and 18 Mbit/s it is the same, with "
        "thresholds of 6.6 and 44 packets. A goodput of 32 Mbit/s for the flood therefore takes something "
        "other than ABC that holds the connection back *while the flood is there*. Each row below changes one "
        "thing; the columns check all that the paper says, figures 4 and 5 included.",
        "**Slow reading** is what the paper itself reports of BMv2 at higher rates: the switch cannot read "
        "everything that arrives, and what it does not read is lost before ABC sees it. Its rate is fitted to "
        "the paper's 32 Mbit/s. Where the flood's goodput first falls and rises only once the switch is "
        "overloaded, the paper's text "
        'neither says nor excludes it ("only up to 32 Mb/s by increasing its transmission rate to very large values").',
        f"**Link behind** needs no fitting. The limiter sends {PACKETS_PER_S} packets/s: {udp_mbps:.1f} Mbit/s "
        f"in UDP's frames ({UDP_BYTES} bytes), {tcp_mbps:.1f} in TCP's ({TCP_BYTES} bytes), onto a link of "
        f"{RATE_MBPS}. With less than {100 * enough:.0f} % UDP packets that link is overloaded, and it loses "
        "packets regardless of activity. With many connections against one (figure 5) it would decide, too.",
        "**gamma 1** and **random loss** are fitted, and no sentence of the paper supports either. "
        "`python -m hardware.launch.abc_flood` counts on BMv2 what it does not read, what ABC drops, and what is lost "
        "behind it.",
        markdown_table(shown),
        f"All printed statements hold with: {', '.join(fits) or 'none of them'}. Of these, client 0 never gets "
        f"less by sending more with: {', '.join(without) or 'none'}.",
    ]


def delays(table: pd.DataFrame) -> pd.DataFrame:
    """Goodputs in Mbit/s by RTT: of flood and connection, of a connection alone, of ten and the one beside them."""
    rows: dict[float, dict[str, Any]] = {}
    for r in table.to_dict("records"):
        cells = [
            f"{r[f'client_{c}_mbps']:.1f} ± {r[f'client_{c}_mbps_ci']:.1f}".replace(" ± nan", "")
            for c in (0, 1)
        ]
        row = rows.setdefault(r["rtt_ms"], {"RTT, ms": f"{r['rtt_ms']:g}"})
        row[_DELAYED[r["what"]]] = cells[1] if r["what"].startswith("alone") else " / ".join(cells)
    return pd.DataFrame(rows.values())


#: Headings of what is run with each RTT.
_DELAYED = {
    "flood": "a flood of 100 Mbit/s / the connection",
    "alone": "the connection alone",
    "alone for a minute": "alone, its first minute",
    "ten": "ten connections / one",
}


def delay(settings: Settings, tables: Tables) -> list[str]:
    """Goodputs by RTT."""
    return [
        "BMv2 keeps up to 1024 packets that it has not read yet. Packets of the connection that wait there while a "
        "flood fills that queue have a longer RTT. Here the connections' RTT is longer in all runs, so that the runs "
        "without a flood show what it would cost if the queue were full all the time.",
        markdown_table(delays(tables["delay"]), labels=1),
    ]


def linux_goodputs(table: pd.DataFrame) -> str:
    """Goodput of client 0 / client 1 on both sides, with and without ABC."""
    rows = []
    for (name, value), part in table.groupby(["sharing", "value"], sort=False):
        row: dict[str, Any] = {"figure": SHARINGS[str(name)].figure, "client 0": f"{value:g}"}
        for r in part.to_dict("records"):
            row[f"{r['scheme']}, {r['side']}"] = f"{r['client_0_mbps']:.1f} / {r['client_1_mbps']:.1f}"
        rows.append(row)
    columns = [f"{scheme}, {side}" for scheme in LINUX_SCHEMES for side in ("kernel", "simulator")]
    return markdown_table(pd.DataFrame(rows)[["figure", "client 0", *columns]], labels=2)


def linux(settings: Settings, tables: Tables) -> list[str]:
    """Kernel and simulator side by side."""
    table = tables["linux"]
    return [
        "The same in a Linux kernel with `sch_abc`, and in the simulator.",
        linux_goodputs(table),
    ]
