"""From the ABC experiment's runs to tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ...scenario.run import Run
from .. import seeds
from ..papers import paper_numbers
from .scenarios import FITS_MBPS, PAYLOAD_BYTES, Settings

__all__ = ["clients", "integer_differences", "intervals", "verdicts"]

_AVERAGED = ["client_0_mbps", "client_1_mbps", "utilisation", "delay_ms"]
#: A goodput this near to the paper's agrees with it, in Mbit/s.
NEAR_MBPS = 4.0


def paper_flood_mbps() -> float:
    """Goodput of client 0 in figure 6 at very large rates, by the paper."""
    numbers = paper_numbers("p4-abc", "Figure 6").set_index("quantity").paper
    return float(numbers["goodput_mbps_of_client_0"])


def paper_half_mbps() -> float:
    """Goodput of each client in figure 5 with ABC, by the paper."""
    numbers = paper_numbers("p4-abc", "Figure 5").set_index("quantity").paper
    return float(numbers["goodput_mbps_of_each"])


def clients(run: Run) -> dict[str, Any]:
    """The measurements of a run: goodput of both clients as Iperf counts it, utilisation, and mean delay.

    Padding (:func:`.switch.through_switch`) is not goodput.
    """
    assert run.scenario is not None
    out: dict[str, Any] = {"client_0_mbps": 0.0, "client_1_mbps": 0.0}
    for flow, received in zip(run.scenario.flow_list(), run.flows.received_bytes, strict=True):
        payload = flow.packet_bytes - (42 if flow.is_udp else 66)
        out[f"client_{flow.aggregate}_mbps"] += (
            received * (PAYLOAD_BYTES / payload) * 8e-6 / run.scenario.duration_s
        )
    summary = run.summary()
    return out | {"utilisation": summary["utilisation"], "delay_ms": summary["mean_delay_ms"]}


def intervals(runs: pd.DataFrame, keys: Sequence[str], confidence: float = 0.95) -> pd.DataFrame:
    """Means over runs of what :func:`clients` measures, with half the width of their confidence intervals.

    See :func:`cctoolkit.experiments.seeds.intervals`.
    """
    return seeds.intervals(runs, keys, _AVERAGED, confidence)


def integer_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Goodput with ABC in integers minus that with ABC, a row for each sharing and client.

    Returns
    -------
    DataFrame
        ``sharing``, ``client``, ``mean_difference_mbps``, ``largest_mbps`` (the largest difference) and ``at`` which
        value, ``points``, and ``beyond_both``: the number of points whose confidence intervals do not overlap.
    """
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


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Which of the paper's statements hold with each cause.

    Parameters
    ----------
    table : DataFrame
        ``cause``, ``sharing``, ``value`` and means, as :func:`intervals` gives them.

    Returns
    -------
    DataFrame
        One row per cause: goodputs, and the statements as booleans: ``flood_near_32`` (at 100 Mbit/s, within 4),
        ``rest_is_used`` (both together have 90 % of what fits on the link), ``alone_fills`` (90 %), ``figure_5`` (both
        clients within a fifth of half with 10 connections), ``figure_4`` (at 60 and 100 Mbit/s the heavier one is
        below), ``never_falls`` (figure 6: a higher rate never gets less, by more than 2 Mbit/s), and
        ``all_but_shape`` (all of these but the last).
    """
    flood_mbps = paper_flood_mbps()
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
            "flood_near_32": abs(flood - flood_mbps) <= NEAR_MBPS,
            "rest_is_used": flood + connection >= 0.9 * FITS_MBPS,
            "alone_fills": at["cbr-tcp", 0][1] >= 0.9 * FITS_MBPS,
            "figure_5": all(abs(x - FITS_MBPS / 2) <= 0.2 * FITS_MBPS / 2 for x in at["tcp", 10]),
            "figure_4": all(at["cbr", x][0] < at["cbr", x][1] for x in (60, 100)),
            "never_falls": all(b >= a - 2 for a, b in itertools.pairwise(six)),
        }
        row["all_but_shape"] = all(
            row[k] for k in ("flood_near_32", "rest_is_used", "alone_fills", "figure_5", "figure_4")
        )
        rows.append(row)
    return pd.DataFrame(rows)


# ---- the parts -------------------------------------------------------------------------------------------------------


def sharing(settings: Settings, runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``clients`` (means and confidence intervals) and ``integers`` (:func:`integer_differences`)."""
    means = intervals(runs, ["sharing", "value", "scheme"])
    return {"clients": means, "integers": integer_differences(means)}


def why(settings: Settings, runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``why_clients`` (means and confidence intervals) and ``why`` (:func:`verdicts`)."""
    means = intervals(runs, ["cause", "sharing", "value"])
    return {"why_clients": means, "why": verdicts(means)}


def delay(settings: Settings, runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``delay``: means and confidence intervals with each RTT."""
    return {"delay": intervals(runs, ["rtt_ms", "what"])}


def linux(settings: Settings, found: Sequence[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """``linux``: means and confidence intervals on both sides."""
    return {"linux": intervals(pd.DataFrame(found), ["side", "sharing", "value", "scheme"])}
