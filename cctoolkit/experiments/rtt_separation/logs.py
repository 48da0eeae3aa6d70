"""Measurements by the RTT paper's authors, from their public logs: tables in ``data/papers/logs/``.

github.com/gomezgaona/P4_RTT_Unfairness holds iperf3's reports of test 1 and of one pair of test 3. What the paper
calls a flow is a bundle of parallel streams there: 1 to 24, and not the same number with and without separation.

====================================== ============================================================
``rtt-flow-separation-bundles.csv``    test 1, with two, three and four bundles: :func:`bundles`
``rtt-flow-separation-pairs.csv``      two bundles with RTTs of 6 and 85 ms: :func:`pairs`
====================================== ============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.metrics import jain_index
from ..papers import author_log

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LINK_GBPS", "bundles", "logged_bundles", "logged_pairs", "pairs"]

#: The bottleneck (section 4).
LINK_GBPS = 10.0
_CCAS = {"cubic": "CUBIC", "bbr": "BBR"}
#: A bundle joins every minute; the first seconds of each phase are left out.
_JOIN_S, _SETTLING_S = 60, 10


def _together(runs: pd.DataFrame, goodput: pd.DataFrame) -> pd.DataFrame:
    """Goodput of runs that were measured together: rows by the time since the first one's start, a column for each."""
    both = goodput.merge(runs[["run", "start_unix_s"]], on="run")
    both["time_s"] = both.second + both.start_unix_s - runs.start_unix_s.min()
    return both.pivot_table(index="time_s", columns="run", values="goodput_mbps")[list(runs.run)]


def bundles(runs: pd.DataFrame, goodput: pd.DataFrame) -> pd.DataFrame:
    """Test 1 from the logs.

    Parameters
    ----------
    runs : DataFrame
        One row per bundle: ``run`` (``four_flows/cubic_test/w_separation/out1``), ``start_unix_s``, ``streams``.
    goodput : DataFrame
        ``run second goodput_mbps``, the second counted from the bundle's start.

    Returns
    -------
    DataFrame
        ``flows`` (CUBIC or BBR), ``queues`` ("one" or "by RTT"), ``bundles`` (2 to 4), their ``streams`` ("8+8"),
        ``jain_index`` of their mean goodput, and, as shares of the link's rate, the goodput of all
        (``share_of_link``), of the bundle with the least (``least_share``) and of the one with the most
        (``largest_share``).
    """
    import pandas as pd

    rows = []
    for flows in _CCAS:
        for queues, name in (("one", "wo_separation"), ("by RTT", "w_separation")):
            part = runs[runs.run.str.startswith(f"four_flows/{flows}_test/{name}/")].sort_values("run")
            rates = _together(part, goodput)
            for n in range(2, len(part) + 1):
                last = _JOIN_S * n if n < len(part) else rates.index.max()
                mean = rates.loc[_JOIN_S * (n - 1) + _SETTLING_S : last - 1].iloc[:, :n].mean() / (
                    1000 * LINK_GBPS
                )
                rows.append(
                    {
                        "flows": _CCAS[flows], "queues": queues, "bundles": n,
                        "streams": "+".join(map(str, part.streams[:n])), "jain_index": jain_index(mean),
                        "share_of_link": mean.sum(), "least_share": mean.min(), "largest_share": mean.max(),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def pairs(runs: pd.DataFrame, goodput: pd.DataFrame) -> pd.DataFrame:
    """Two bundles of ten streams with RTTs of 6 and 85 ms, while both are active.

    Returns
    -------
    DataFrame
        ``flows``, ``queues`` (as for :func:`bundles`) and ``share_of_short_rtt``.
    """
    import pandas as pd

    rows = []
    for name, queues in (("no_separation", "one"), ("w_separation", "by RTT")):
        for flows in _CCAS:
            part = runs[runs.run.str.startswith(f"jenks_tests/2flows/{flows}_{name}_")].sort_values("run")
            if len(part):
                short, long = _together(part, goodput).dropna().iloc[_SETTLING_S:].mean()
                rows.append(
                    {"flows": _CCAS[flows], "queues": queues, "share_of_short_rtt": short / (short + long)}
                )
    return pd.DataFrame(rows)


def logged_bundles() -> pd.DataFrame:
    """The result of :func:`bundles` for the authors' logs.

    Examples
    --------
    >>> logged_bundles().query("flows == 'CUBIC' and bundles == 4").share_of_link.tolist()
    [0.943, 0.752]
    """
    return author_log("rtt-flow-separation-bundles")


def logged_pairs() -> pd.DataFrame:
    """The result of :func:`pairs` for the authors' logs."""
    return author_log("rtt-flow-separation-pairs")
