"""Measurements by the L4S paper's authors, from their public logs: tables in ``data/papers/logs/``.

github.com/dcomp-leris/iRED_TNSM holds the goodput of every second (iperf) and a switch's registers (Tofino2) for iRED,
PI2 and P4-CoDel; for the goodput of iRED and PI2 with the 1500 bytes of the paper's Table 1 there are none.

=============================== ==================================================================================
``l4s-ired-pi2.csv``            Prague's share in each phase: :func:`phase_shares` of the goodput
``l4s-ired-pi2-table-3.csv``    the paper's Table 3 in three readings: :func:`reading_differences` of the goodput
``l4s-ired-pi2-registers.csv``  counters and quantiles of delays: :func:`register_values` of the registers
``…-register-phases.csv``       delays and drops in each phase: :func:`register_phases` of the registers' readings
``l4s-ired-pi2-growth.csv``     Prague after slow start: :func:`growth` of the goodput
``l4s-ired-pi2-joining.csv``    Prague's flows that joined last: :func:`joined_shares` of the goodput
``l4s-ired-pi2-stalls.csv``     connections that stalled: :func:`stalled_connections` of each of iperf's reports
``l4s-ired-pi2-pings.csv``      pings answered, and their delays: :func:`ping_phases` of ``iperf/*/log_ping-*.txt``
``l4s-ired-pi2-marks.csv``      packets marked by iRED, as in ``TF2/iRED/*/mark_*.txt``
``…-recirculation.csv``         how long iRED's notifications took, as in ``TF2/iRED/*/recircTime_*MTU.txt``: a reading
                                a second, of which those that are not 0 count
=============================== ==================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..papers import author_log
from .cases import PHASE_PERCENTS, REGISTER_PERCENTS, drops_in_phase
from .scenarios import CONFIGURATIONS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

__all__ = [
    "SENDING",
    "growth",
    "joined_shares",
    "logged_differences",
    "logged_growth",
    "logged_joined_shares",
    "logged_pings",
    "logged_recirculation",
    "logged_register_phases",
    "logged_registers",
    "logged_shares",
    "phase_shares",
    "ping_phases",
    "reading_differences",
    "register_phases",
    "register_readings",
    "register_values",
    "stalled_connections",
]

PHASES, PHASE_S = 4, 120
#: Packets of 68 bytes carry 16 bytes of payload; the hosts did not fill the link with them.
MTU_BYTES = (1500, 800, 400)
_SETTING = ["system", "rate_mbps", "rtt_ms", "mtu_bytes"]
_KEYS = ["configuration", "system", "mtu_bytes"]


def _settings(table: pd.DataFrame) -> pd.DataFrame:
    """The logs of :data:`MTU_BYTES` with the paper's names of the configurations."""
    names = {setting: name for name, setting in CONFIGURATIONS.items()}
    part = table[table.mtu_bytes.isin(MTU_BYTES)]
    settings = zip(part.rate_mbps.astype(float), part.rtt_ms.astype(float), strict=True)
    return part.assign(configuration=[names[setting] for setting in settings])


def _rates(goodput: pd.DataFrame) -> pd.DataFrame:
    """Goodput of both kinds, ``cubic`` and ``prague``, in each second that the log has."""
    rates = _settings(goodput).pivot_table(
        index=[*_KEYS, "second"], columns="cca", values="goodput_mbps", aggfunc="sum", fill_value=0.0
    )
    return _with_phases(rates.reset_index().rename_axis(columns=None))


def _with_phases(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(phase=(table.second // PHASE_S).clip(upper=PHASES - 1) + 1)


def _by_setting(table: pd.DataFrame, measure: Callable[[pd.DataFrame], dict[str, float]]) -> pd.DataFrame:
    """A row per configuration, system and packet size: what `measure` returns for its part of the table."""
    import pandas as pd

    return pd.DataFrame(
        [dict(zip(_KEYS, key, strict=True)) | measure(part) for key, part in table.groupby(_KEYS)]
    )


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
    sums = _rates(goodput).groupby([*_KEYS, "phase"])[["cubic", "prague"]].sum()
    whole = sums.prague + sums.cubic
    shares = {"scalable_share": sums.prague / whole, "goodput_mbps": whole / PHASE_S}
    return sums.assign(**shares)[list(shares)].reset_index()


def reading_differences(goodput: pd.DataFrame) -> pd.DataFrame:
    """The paper's Table 3 from the logs, in the readings of :meth:`.cases.Outcome.differences`.

    Parameters
    ----------
    goodput : DataFrame
        As for :func:`phase_shares`.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes``, ``by_phase``, ``whole_run`` and ``each_second`` (percent).
    """
    from .cases import readings

    def measure(rates: pd.DataFrame) -> dict[str, float]:
        phases = rates.groupby("phase")[["cubic", "prague"]].mean()
        return readings(list(phases.cubic), list(phases.prague), rates.cubic, rates.prague)

    return _by_setting(_rates(goodput), measure)


#: Seconds from the start in which slow start ends, and in which the growth after it is measured.
_ENDS_BY_S, _FIRST_S, _LATER_S = 10, 5, (10, 40)


def growth(goodput: pd.DataFrame) -> pd.DataFrame:
    """How the goodput of phase 1's Prague flow falls after slow start, and grows again.

    Parameters
    ----------
    goodput : DataFrame
        As for :func:`phase_shares`.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes``; ``lowest_mbps``, the least in a second of the first 10, and ``lowest_s``,
        the first such second; growth in Mbit/s per second, by least squares: ``first_growth`` in the 5 s from there,
        ``later_growth`` from 10 to 40 s after it.
    """
    import numpy as np

    def measure(flow: pd.DataFrame) -> dict[str, float]:
        rates = flow.sort_values("second").goodput_mbps.to_numpy()
        lowest = 1 + int(np.argmin(rates[1:_ENDS_BY_S]))
        slopes = [
            float(np.polyfit(np.arange(begin, end), rates[lowest + begin : lowest + end], 1)[0])
            for begin, end in ((0, _FIRST_S), _LATER_S)
        ]
        measured = {"lowest_mbps": rates[lowest], "lowest_s": lowest}
        return measured | dict(zip(("first_growth", "later_growth"), slopes, strict=True))

    part = _settings(goodput)
    return _by_setting(
        part[(part.started_in_phase == 1) & (part.cca == "prague") & (part.second < PHASE_S)], measure
    )


def joined_shares(goodput: pd.DataFrame) -> pd.DataFrame:
    """How much of Prague's goodput in each phase but the first is that of the flows that joined in it.

    Parameters
    ----------
    goodput : DataFrame
        As for :func:`phase_shares`.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes phase``, ``joined_share`` (0 to 1).
    """
    flows = _with_phases(_settings(goodput)).query("cca == 'prague' and phase > 1")
    joined = flows.goodput_mbps.where(flows.started_in_phase == flows.phase, 0.0)
    sums = flows.assign(joined=joined).groupby([*_KEYS, "phase"])[["joined", "goodput_mbps"]].sum()
    return (sums.joined / sums.goodput_mbps).rename("joined_share").reset_index()


#: A connection stalled if it sent in a smaller part of its seconds after the first.
SENDING = 0.25


def stalled_connections(report: str) -> tuple[int, int]:
    """How many connections an iperf client reports, and how many of them stalled.

    One that stalled sent, after its first second, in less than a quarter of the seconds.

    Parameters
    ----------
    report : str
        Lines of ``iperf -y C -i 1``: time, address and port of both ends, connection (-1 for the sum of all), seconds
        (``3.0-4.0``), bytes, bit/s.

    Returns
    -------
    connections, stalled : int

    Examples
    --------
    >>> lines = [f"20230517120352,10.0.0.50,{port},10.0.0.7,65008,3,{s}.0-{s + 1}.0,{sent * 748},0"
    ...          for port, sent in ((34238, 0), (34380, 90)) for s in range(5)]
    >>> stalled_connections("\\n".join(lines))
    (2, 1)
    """
    sending: dict[str, list[bool]] = {}
    for line in report.splitlines():
        _, _, port, _, _, connection, seconds, sent_bytes, _ = line.split(",")
        begin, end = map(float, seconds.split("-"))
        if connection != "-1" and end - begin < 1.5:  # else the whole connection
            seen = sending.setdefault(port, [])
            if begin > 0:
                seen.append(int(sent_bytes) > 0)
    return len(sending), sum(sum(seen) < SENDING * len(seen) for seen in sending.values())


def ping_phases(report: str, rtt_ms: float) -> list[dict[str, float]]:
    """How many pings were answered in each phase, and how long they waited in the queue.

    Parameters
    ----------
    report : str
        A line for each answer: address, number (a ping a second, from 1), RTT in ms.
    rtt_ms : float
        The RTT without a queue.

    Returns
    -------
    list of dict
        Of each phase ``phase`` (from 1), ``answered`` (of :data:`PHASE_S`), and quantiles of the queueing delay
        (``qdelay_p50_ms``, ``qdelay_p95_ms``; NaN without an answer).

    Examples
    --------
    >>> ping_phases("10.0.0.7,1,61\\n10.0.0.7,3,50.5\\n10.0.0.7,480,70.2", 50)[0]
    {'phase': 1, 'answered': 2, 'qdelay_p50_ms': 5.75, 'qdelay_p95_ms': 10.47}
    """
    import numpy as np

    waited: list[list[float]] = [[] for _ in range(PHASES)]
    for line in filter(None, report.splitlines()):
        _, number, answered_ms = line.split(",")
        waited[min((int(number) - 1) // PHASE_S, PHASES - 1)].append(float(answered_ms) - rtt_ms)
    return [
        {"phase": number, "answered": len(delays_ms)}
        | {
            f"qdelay_p{percent}_ms": round(float(np.percentile(delays_ms, percent)), 2)
            if delays_ms
            else np.nan
            for percent in PHASE_PERCENTS
        }
        for number, delays_ms in enumerate(waited, 1)
    ]


def register_values(registers: pd.DataFrame) -> pd.DataFrame:
    """Counters and delays in the switch's registers.

    Parameters
    ----------
    registers : DataFrame
        Quantiles of a register's readings, one per second (``register p5 p50 p95 max``, with ``system rate_mbps rtt_ms
        mtu_bytes``): ``qdelay`` and ``wasted_time`` in ns, the latter the delay of the last packet dropped; ``drops``
        is a counter, its reading the maximum.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes``, ``drops``, and in ms ``qdelay_p5_ms``, …, ``drop_p95_ms`` (NaN for iRED,
        whose drops do not wait).
    """
    import pandas as pd

    part = _settings(registers)
    wide = part.pivot_table(index=_KEYS, columns="register", values=["p5", "p50", "p95", "max"])
    columns = {"drops": wide["max", "drops"]}
    for name, register in (("qdelay", "qdelay"), ("drop", "wasted_time")):
        for percent in REGISTER_PERCENTS:
            columns[f"{name}_p{percent}_ms"] = wide[f"p{percent}", register] / 1e6
    return pd.DataFrame(columns).reset_index()


def register_readings(dump: str) -> np.ndarray:
    """The readings in a dump of a register, as in ``TF2/*/*/qdelay_10ms_800MTU.txt``.

    Parameters
    ----------
    dump : str
        One line for each reading with a value for each of the chip's four pipes, ``0x00000000  [0, 0, 20031877, 0]``.

    Returns
    -------
    array of int64, shape (readings,)
        The largest value of each reading: the bottleneck's packets pass one pipe, and the others keep 0.

    Examples
    --------
    >>> register_readings("0x00000000  [0, 0, 20031877, 0]\\n\\n0x00000000  [0, 0, 0, 0]").tolist()
    [20031877, 0]
    """
    import numpy as np

    values = [line.split(",") for line in re.findall(r"\[([\d, ]+)\]", dump)]
    return np.array(values, np.int64).reshape(len(values), -1).max(axis=1, initial=0)


#: A packet that waited no longer may not have passed the bottleneck at all, such as an acknowledgement: the switch's
#: register is written by all of them, mostly with 0.33 µs.
_WAITED_NS = 10_000


def register_phases(readings: pd.DataFrame) -> pd.DataFrame:
    """What the switch's registers say about the delays in each phase.

    Parameters
    ----------
    readings : DataFrame
        :func:`register_readings`: ``value`` (ns) and ``reading`` (from 0, one a second), with ``register`` (``qdelay``,
        the delay of the last packet that left, or ``wasted_time``, that of the last packet dropped since the reading
        before, 0 without one) and ``system rate_mbps rtt_ms mtu_bytes``.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes phase``; ``waited``, the share of the readings of a packet that waited (more
        than 10 µs), and quantiles of these in ms (``qdelay_p50_ms``, ``qdelay_p95_ms``); of the drops as in
        :func:`.cases.drops_in_phase`, NaN where nothing was published (iRED, whose drops do not wait).
    """
    import numpy as np
    import pandas as pd

    each = readings.groupby([*_SETTING, "register"]).reading.transform("size")
    phase = (readings.reading * PHASES // each).rename("phase") + 1
    rows = []
    for key, part in _settings(readings.assign(phase=phase)).groupby([*_KEYS, "phase"]):
        row = dict(zip([*_KEYS, "phase"], key, strict=True))
        delay = part.value[part.register == "qdelay"]
        waited = delay[delay > _WAITED_NS] / 1e6
        row["waited"] = len(waited) / len(delay)
        for percent in PHASE_PERCENTS:
            row[f"qdelay_p{percent}_ms"] = np.percentile(waited, percent) if len(waited) else np.nan
        drops = part.sort_values("reading").query("register == 'wasted_time'").value
        rows.append(row | drops_in_phase(drops.where(drops > 0).to_numpy() / 1e6))
    return pd.DataFrame(rows)


def logged_shares() -> pd.DataFrame:
    """The result of :func:`phase_shares` for the authors' logs.

    Examples
    --------
    >>> logged_shares().query("configuration == 'I' and system == 'iRED' and mtu_bytes == 800").scalable_share.tolist()
    [0.561, 0.529, 0.473, 0.413]
    """
    return author_log("l4s-ired-pi2")


def logged_growth() -> pd.DataFrame:
    """The result of :func:`growth` for the authors' logs.

    Examples
    --------
    >>> logged_growth().query("configuration == 'IV' and system == 'iRED'").later_growth.tolist()
    [1.05, 1.99]
    """
    return author_log("l4s-ired-pi2-growth")


def logged_joined_shares() -> pd.DataFrame:
    """The result of :func:`joined_shares` for the authors' logs.

    Examples
    --------
    >>> logged_joined_shares().query("configuration == 'IV' and phase == 4 and mtu_bytes == 800").joined_share.tolist()
    [0.574, 0.059, 0.016]
    """
    return author_log("l4s-ired-pi2-joining")


def logged_differences() -> pd.DataFrame:
    """The result of :func:`reading_differences` for the authors' logs."""
    return author_log("l4s-ired-pi2-table-3")


def logged_registers() -> pd.DataFrame:
    """The result of :func:`register_values` for the authors' logs, and iRED's marks; counters as ``…_per_s``.

    Examples
    --------
    >>> logged_registers().query("configuration == 'I' and mtu_bytes == 1500").drop_p50_ms.round(1).tolist()
    [22.7, 11.1]
    """
    table = author_log("l4s-ired-pi2-registers").merge(author_log("l4s-ired-pi2-marks"), how="left")
    for name in ("drops", "marks"):
        table[f"{name}_per_s"] = table.pop(name) / (PHASES * PHASE_S)
    return table


def logged_register_phases() -> pd.DataFrame:
    """The result of :func:`register_phases` for the authors' logs.

    Examples
    --------
    >>> logged_register_phases().query("system == 'PI2' and configuration == 'III'").qdelay_p50_ms.max()
    20.523
    """
    return author_log("l4s-ired-pi2-register-phases")


def logged_pings() -> pd.DataFrame:
    """The result of :func:`ping_phases` for the authors' logs, with ``configuration system mtu_bytes``.

    Examples
    --------
    >>> pings = logged_pings().query("system == 'iRED' and mtu_bytes == 800").set_index("configuration")
    >>> pings.loc["III"].answered.tolist(), pings.loc["IV"].answered.tolist()
    ([120, 120, 120, 120], [119, 101, 41, 27])
    """
    return author_log("l4s-ired-pi2-pings")


def logged_recirculation() -> pd.DataFrame:
    """How long iRED's notifications took from the egress to the ingress, in the authors' logs: the paper's figure 7.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes``, ``readings`` (seconds with a notification), and quantiles in µs
        (``recirculation_p5_us``, ``…_q1_us``, ``…_median_us``, ``…_q3_us``, ``…_p95_us``).

    Examples
    --------
    >>> logged_recirculation().recirculation_median_us.agg(["min", "max"]).tolist()
    [0.767, 0.834]
    """
    return author_log("l4s-ired-pi2-recirculation")
