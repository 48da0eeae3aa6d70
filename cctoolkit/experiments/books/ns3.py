"""Views of the simulator beside ns-3 for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from .benchmarks import timings

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def results(tables: Tables) -> str:
    """The results of each."""
    found = tables["ns3"]
    return markdown_table(
        pd.DataFrame(
            {
                "": [
                    f"{rate:g} Mbit/s, {seconds:g} s: {who}"
                    for rate, seconds, who in zip(
                        found.rate_mbps, found.duration_s, found.simulator, strict=True
                    )
                ],
                "packets": [f"{n:,.0f}".replace(",", " ") for n in found.packets],
                "goodput, Mbit/s": [f"{mbps:.1f}" for mbps in found.goodput_mbps],
                "mean queueing delay, ms": [f"{ms:.1f}" for ms in found.mean_delay_ms],
                "dropped": [f"{n:.0f}" for n in found.dropped],
            }
        ),
        labels=1,
    )


VIEWS: dict[str, Callable[[Tables], str]] = {"timings": timings("ns3"), "results": results}
