"""The one session that the Dragonfly paper's authors published: three flows, slot by slot.

github.com/DeanCarmel/Dragonfly has a table for each flow in ``learning/data/NumBG_0_rbc_Algo_Queue_1000``; here they
are one table with the column ``cca``. Their network gets every column but the gap and the packets, so also the time and
both sequence numbers, each divided by its maximum in the window. The one that they call "CBIQ" gets the time alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import SchemaError
from ...identify.windows import Windows, window_slots

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["INPUTS", "read_session", "session_windows"]

#: Columns of the published tables, our names, and what to multiply by.
_COLUMNS = {
    "CBIQ": ("cbiq_bytes", 1.0),
    "In Throughput": ("throughput_bytes", 125.0),  # kilobits
    "Out Throughput": ("out_bytes", 125.0),
    "timestamp": ("time_s", 1.0),
    "in_seq_num": ("in_seq", 1.0),
    "out_seq_num": ("out_seq", 1.0),
    "deepcci": ("in_packets", 1.0),
}
#: What networks get: the paper's two inputs, and what the published code gives to "Dragonfly" and to "CBIQ".
INPUTS = {
    "CBIQ and throughput, as in the paper": ("cbiq_bytes", "throughput_bytes"),
    "the published Dragonfly: also time and sequence numbers": (
        "cbiq_bytes", "throughput_bytes", "out_bytes", "time_s", "in_seq", "out_seq",
    ),
    "the published CBIQ: time alone": ("time_s",),
}  # fmt: skip
#: Windows of such a part of the session count as a run, of which intervals draw.
_STRETCH_S = 5.0


def read_session(path: Path) -> pd.DataFrame:
    """Read the session.

    Parameters
    ----------
    path : Path
        CSV with a row for each flow and slot of 1 ms: ``cca`` and the published columns.

    Returns
    -------
    DataFrame
        ``cca``, ``cbiq_bytes``, ``throughput_bytes``, ``out_bytes``, ``time_s``, ``in_seq``, ``out_seq`` (0: none was
        recorded), ``in_packets``.

    Raises
    ------
    SchemaError
        It is no such table.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path)
        missing = [name for name in ("cca", *_COLUMNS) if name not in table]
        if missing:
            raise SchemaError(f"{path}: there is no column {', '.join(missing)}")
        columns = {new: table[old].astype(float) * factor for old, (new, factor) in _COLUMNS.items()}
    except (OSError, ValueError, pd.errors.ParserError) as err:
        raise SchemaError(f"{path}: expected the published session as CSV ({err})") from None
    return pd.DataFrame({"cca": table.cca.astype(str)} | columns)


def session_windows(session: pd.DataFrame, window_ms: float) -> Windows:
    """The session's consecutive windows in which packets arrived, with all columns as inputs.

    Parameters
    ----------
    session : DataFrame
        From :func:`read_session`.
    window_ms : float

    Returns
    -------
    Windows
        The table has ``run`` (a stretch of 5 s), ``number`` (of the window) and ``from_s``.

    Raises
    ------
    SchemaError
        No packet arrives in any window.
    """
    import pandas as pd

    inputs = tuple(name for name, _ in _COLUMNS.values())
    length = window_slots(window_ms)
    windows: list[np.ndarray] = []
    rows: list[dict[str, Any]] = []
    for flow_id, (cca, flow) in enumerate(session.groupby("cca", sort=False)):
        values = flow[list(inputs)].to_numpy(np.float32)
        whole = values[: len(values) // length * length].reshape(-1, length, len(inputs))
        for place, window in enumerate(whole):
            if window[:, inputs.index("throughput_bytes")].any():
                from_s = place * window_ms / 1000
                windows.append(window)
                rows.append({"run": f"stretch {int(from_s // _STRETCH_S)}", "flow_id": flow_id, "cca": str(cca),
                             "window_ms": window_ms, "from_s": from_s, "number": len(rows)})  # fmt: skip
    if not windows:
        raise SchemaError(f"session: no packet arrives in any window of {window_ms:g} ms")
    table = pd.DataFrame(rows)
    return Windows(np.array(windows), table.cca.to_numpy(object), table, inputs)
