"""The L4S paper's authors' own measurements: Prague's share of the goodput in each phase of their public logs.

github.com/dcomp-leris/iRED_TNSM holds the goodput of every second (iperf, on the Tofino2) for packets of 68, 400 and
800 bytes; for 1500 bytes, the paper's Table 1, there are none. ``data/papers/logs/l4s-ired-pi2.csv`` has the means over
the phases of 120 s; :func:`phase_shares` made it from the logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..papers import papers_folder
from .scenarios import CONFIGURATIONS, LOGGED_MTU_BYTES, PUBLISHED

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FILE", "logged_shares", "phase_shares"]

FILE = "logs/l4s-ired-pi2.csv"
PHASE_S = 120
_KEYS = ["configuration", "system", "mtu_bytes", "phase"]


def phase_shares(goodput: pd.DataFrame) -> pd.DataFrame:
    """Means over the phases of the logs.

    Parameters
    ----------
    goodput : DataFrame
        Goodput (``goodput_mbps``) of the flows that started in a phase, in each second (``second``, from the start of
        the run): also ``system rate_mbps rtt_ms mtu_bytes started_in_phase cca``, the last ``cubic`` or ``prague``.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes phase``, ``scalable_share`` (of the goodput, 0 to 1) and ``goodput_mbps`` (of
        both kinds).
    """
    names = {setting: name for name, setting in CONFIGURATIONS.items()}
    part = goodput[goodput.system.isin(PUBLISHED) & goodput.mtu_bytes.isin(LOGGED_MTU_BYTES)]
    settings = zip(part.rate_mbps.astype(float), part.rtt_ms.astype(float), strict=True)
    part = part.assign(
        configuration=[names[setting] for setting in settings],
        phase=(part.second // PHASE_S).clip(upper=3) + 1,
    )
    rates = part.pivot_table(index=_KEYS, columns="cca", values="goodput_mbps", aggfunc="sum") / PHASE_S
    whole = rates.prague + rates.cubic
    shares = {"scalable_share": rates.prague / whole, "goodput_mbps": whole}
    return rates.assign(**shares)[list(shares)].reset_index().rename_axis(columns=None)


def logged_shares() -> pd.DataFrame:
    """What :func:`phase_shares` found in the authors' logs.

    Examples
    --------
    >>> logged_shares().query("configuration == 'I' and system == 'iRED' and mtu_bytes == 800").scalable_share.tolist()
    [0.561, 0.529, 0.473, 0.413]
    """
    import pandas as pd

    return pd.read_csv(papers_folder() / FILE)
