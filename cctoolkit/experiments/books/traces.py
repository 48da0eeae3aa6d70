"""Views of the simulator beside the bundled captures for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]


def table(tables: Tables) -> str:
    """Every quantity of every capture."""
    found = tables["traces"]
    name = found.capture.where(found.capture != found.capture.shift(), "")
    return markdown_table(
        pd.DataFrame(
            {
                "capture": [f"`{capture}`" if capture else "" for capture in name],
                "quantity": found.quantity,
                "Linux": [f"{value:.3g}" for value in found.real],
                "simulated": [f"{value:.3g}" for value in found.simulated],
                "ratio": [f"{value:.2f}" for value in found.ratio],
            }
        ),
        labels=2,
    )


def in_words(tables: Tables) -> str:
    """How far the quantities are off."""
    found = tables["traces"].assign(off=(tables["traces"].ratio - 1).abs())
    used = found[found.quantity == "utilisation"].off.max()
    delay = found[found.quantity == "queue delay, ms"].off.max()
    share = found[found.quantity.str.startswith("share")]
    far = share[share.off > 0.15]
    return (
        f"Utilisation is off by at most {100 * used:.0f} %, queueing delay by at most {100 * delay:.0f} %, and "
        f"{len(share) - len(far)} of {len(share)} shares by at most 15 %."
    )


def value(capture: str, quantity: str, digits: int = 2) -> Callable[[Tables], str]:
    """A view of one quantity: simulated against measured."""

    def one(tables: Tables) -> str:
        found = tables["traces"]
        row = found[(found.capture == capture) & (found.quantity == quantity)].iloc[0]
        return f"{row.simulated:.{digits}f} against {row.real:.{digits}f}"

    return one


VIEWS: dict[str, Callable[[Tables], str]] = {
    "table": table,
    "in-words": in_words,
    "cubic-bbr-losses": value("cubic-bbr", "losses", 0),
    "cubic-bbr-share": value("cubic-bbr", "share of cubic, 30 ms"),
    "far-reno": value("rtt-unfairness", "share of reno, 80 ms"),
    "bufferbloat-losses": value("bufferbloat", "losses", 0),
}
