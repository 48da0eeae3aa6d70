"""From the L4S experiment's outcomes to tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from ...cca import Prague
from ..papers import paper_numbers
from .cases import PHASE_PERCENTS, Outcome, Settings
from .logs import (
    logged_differences,
    logged_growth,
    logged_joined_shares,
    logged_pings,
    logged_register_phases,
    logged_registers,
    logged_shares,
)
from .scenarios import (
    CONFIGURATIONS,
    JOINING,
    MEANT,
    PUBLISHED,
    SYSTEMS,
    logged_stalls,
    switch_system,
    system_named,
)

__all__ = [
    "drop_delays",
    "flow_goodputs",
    "identified_shares",
    "paper_differences",
    "register_phases",
    "table_3",
    "with_pings",
]

#: Headers of a TCP packet with timestamps.
HEADER_BYTES = 52
#: Readings of the paper's Table 3, :meth:`.cases.Outcome.differences`.
READINGS = ["by_phase", "whole_run", "each_second"]


def paper_differences() -> dict[tuple[str, str], float]:
    """The paper's Table 3: (configuration, system) to the difference in percent."""
    numbers = paper_numbers("l4s-ired-pi2", "Table 3")
    numbers = numbers[numbers.section == "Table 3"]
    parts = numbers.setting.str.extract(r"configuration (\w+), (.+)")
    return {
        (str(configuration), str(system)): float(paper)
        for configuration, system, paper in zip(parts[0], parts[1], numbers.paper, strict=True)
    }


def table_3(found: Iterable[Outcome]) -> pd.DataFrame:
    """The paper's Table 3, measured: one row per run.

    Returns
    -------
    DataFrame
        ``configuration system seed``, :meth:`.cases.Outcome.differences`, and ``paper`` (NaN for systems that the paper
        did not try).
    """
    published = paper_differences()
    return pd.DataFrame(
        [
            o.about
            | {"paper": published.get((o.case.configuration, MEANT.get(o.case.system, "")), math.nan)}
            | o.differences()
            for o in found
        ]
    )


def drop_delays(found: Iterable[Outcome]) -> pd.DataFrame:
    """Quantiles of the time a drop takes, in ms: the paper's Figure 7, and when the gap leaves the queue.

    Returns
    -------
    DataFrame
        ``configuration system measure drops p5_ms q1_ms median_ms q3_ms p95_ms``.
    """
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for o in found:
        groups.setdefault((o.case.configuration, o.case.system), []).append(o)
    rows = []
    for (configuration, system), some in groups.items():
        aqm = some[0].case.scenario().bottleneck.aqm
        for measure, values in (
            ("recirculation", np.array([aqm.parameters().get("recirculation_us", math.nan) / 1e3])),
            ("until the drop", np.concatenate([o.drop_ms for o in some])),
            ("until the gap leaves", np.concatenate([o.gap_ms for o in some])),
        ):
            if system_named(system).aqm != "ired" and measure != "until the drop":
                continue  # a packet dropped as it leaves is a gap at once, and nothing is recirculated
            low, q1, median, q3, high = np.percentile(values, [5, 25, 50, 75, 95])
            rows.append(
                {"configuration": configuration, "system": system, "measure": measure, "drops": len(values)}
                | {"p5_ms": low, "q1_ms": q1, "median_ms": median, "q3_ms": q3, "p95_ms": high}
            )
    return pd.DataFrame(rows)


def identified_shares(found: Iterable[Outcome]) -> pd.DataFrame:
    """The second sender's share of the goodput, the mean of the phases: one row per run."""
    return pd.DataFrame(
        [
            o.about | {"second_share": sum(row["scalable_share"] for row in o.phases) / len(o.phases)}
            for o in found
        ]
    )


def flow_goodputs(found: Iterable[Outcome]) -> pd.DataFrame:
    """The goodput of one flow of each class in the last phase: one row per run."""
    rows = []
    for o in found:
        classic, scalable = o.case.pairs[-1]
        last = o.phases[-1]
        each = {
            "classic_each_mbps": last["classic_mbps"] / classic,
            "scalable_each_mbps": last["scalable_mbps"] / scalable,
        }
        rows.append(
            o.about | each | {"scalable_over_classic": each["scalable_each_mbps"] / each["classic_each_mbps"]}
        )
    return pd.DataFrame(rows)


def by_configuration(third: pd.DataFrame) -> pd.DataFrame:
    """Table 3 by phase, means over the seeds: one row per configuration, one column per system."""
    wide = third.pivot_table(index="configuration", columns="system", values="by_phase", sort=False)
    return wide[[name for name in SYSTEMS if name in wide]]


def scalable_shares(phases: pd.DataFrame) -> pd.Series:
    """Share of the scalable class by configuration, system and phase, means over the seeds."""
    return phases.groupby(["configuration", "system", "phase"], sort=False).scalable_share.mean()


# ---- the parts -------------------------------------------------------------------------------------------------------


def main(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``goodput`` (each second), ``phases`` (one row per run and phase), ``table3`` and ``drop-delay``."""
    goodput = pd.concat([o.rates.reset_index().assign(**o.about) for o in found], ignore_index=True)
    phases = pd.DataFrame([row for o in found for row in o.phases])
    return {"goodput": goodput, "phases": phases, "table3": table_3(found), "drop-delay": drop_delays(found)}


def beside_logs(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """Runs with the logs' packet sizes beside the logs; variants of a system are compared with that system's logs.

    Returns
    -------
    dict of DataFrame
        ``logs``: one row per run and phase, with the share and the goodput in the logs (``logged_share``,
        ``logged_mbps``). ``registers``: one row per run, :meth:`.cases.Outcome.registers` and the same from the switch
        (``logged_drops``, …; NaN where it has none). ``readings``: Table 3 in each reading, one row per run and per log
        (`source` ``simulator`` or ``logs``).
    """
    return {"logs": _phases(found), "registers": _registers(found), "readings": _readings(found)}


def published(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``published-logs`` and ``published-registers``: as ``logs`` and ``registers`` of :func:`beside_logs`."""
    return {"published-logs": _phases(found), "published-registers": _registers(found)}


def clock(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``clock-logs`` and ``clock-registers`` as in :func:`beside_logs`; ``clock-phases``.

    The last is :func:`register_phases`.
    """
    return {
        "clock-logs": _phases(found),
        "clock-registers": _registers(found),
        "clock-phases": register_phases(found),
    }


def drops(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``drops`` and ``drops-phases``: as :func:`clock`'s registers and phases, with a column ``changed``."""
    return {"drops": _registers(found), "drops-phases": register_phases(found)}


def delays(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``delay-registers`` and ``delay-phases``: as ``clock-registers`` and ``clock-phases`` of :func:`clock`."""
    return {"delay-registers": _registers(found), "delay-phases": register_phases(found)}


def slow_start(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``slow-start`` (as ``logs``, with a column ``slow_start``) and ``growth`` (:func:`growth_beside_laws`)."""
    return {"slow-start": _phases(found, "slow_start"), "growth": growth_beside_laws()}


def stalled(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``stalls`` (:func:`stalls_by_path`); ``stalled`` and ``stalled-registers``.

    The last two are as ``logs`` and ``registers`` of :func:`beside_logs`, with a column ``connections``; they are
    absent if no connection stalled in any of the settings' configurations.
    """
    beside = (
        {"stalled": _phases(found, "connections"), "stalled-registers": _registers(found)} if found else {}
    )
    return {"stalls": stalls_by_path(), **beside}


def stalls_by_path() -> pd.DataFrame:
    """How many connections stalled in the authors' logs, and how many packets are on their way.

    Returns
    -------
    DataFrame
        ``configuration system mtu_bytes cca``, ``connections stalled`` (of all phases), and ``path_packets``: how many
        packets the link carries in a round trip.
    """
    keys = ["configuration", "system", "mtu_bytes", "cca"]
    table = logged_stalls().groupby(keys, sort=False)[["connections", "stalled"]].sum().reset_index()
    bits = table.configuration.map({name: 1e3 * rate * rtt for name, (rate, rtt) in CONFIGURATIONS.items()})
    return table.assign(path_packets=(bits / 8 / table.mtu_bytes).round().astype(int))


def late(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``late`` and ``late-registers`` (as ``logs`` and ``registers``, with a column ``late``); ``joining``.

    The last is from the authors' logs (:func:`.logs.joined_shares`): ``by_number`` is what the flows that joined in the
    phase are among all of Prague's.
    """
    joining = logged_joined_shares()
    flows = [scalable for _, scalable in JOINING]
    parts = {phase: flows[phase - 1] / sum(flows[:phase]) for phase in joining.phase.unique()}
    return {
        "late": _phases(found, "late"),
        "late-registers": _registers(found),
        "joining": joining.assign(by_number=joining.phase.map(parts)),
    }


def growth_beside_laws() -> pd.DataFrame:
    """How fast Prague grew after slow start in the authors' logs of iRED, whose scalable queue was then empty.

    Returns
    -------
    DataFrame
        :func:`.logs.logged_growth`; ``rtt_law``: a packet in each round trip, and ``virtual_law``: the same as if the
        RTT were at least Prague's virtual RTT, both in Mbit/s per second.
    """
    table = logged_growth()
    table = table[table.system == "iRED"].reset_index(drop=True)
    rtt_s = table.configuration.map({name: rtt_ms / 1e3 for name, (_, rtt_ms) in CONFIGURATIONS.items()})
    virtual_s = rtt_s.clip(lower=Prague.virtual_rtt_ms / 1e3)
    packet_mbit = (table.mtu_bytes - HEADER_BYTES) * 8e-6
    return table.assign(rtt_law=packet_mbit / rtt_s**2, virtual_law=packet_mbit / virtual_s**2)


def _phases(found: Iterable[Outcome], *about: str) -> pd.DataFrame:
    """Shares and goodput beside the logs, one row per run and phase; `about`: columns of :attr:`.cases.Case.about`."""
    rows = pd.DataFrame([row for o in found for row in o.phases])
    rows["goodput_mbps"] = rows.classic_mbps + rows.scalable_mbps
    columns = [
        *about, "configuration", "system", "mtu_bytes", "seed", "phase", "pairs", "scalable_share", "goodput_mbps",
    ]  # fmt: skip
    shares = logged_shares().rename(columns={"scalable_share": "share", "goodput_mbps": "mbps"})
    return _beside(rows[columns], shares, ["phase"], how="inner")


def _registers(found: Iterable[Outcome]) -> pd.DataFrame:
    """Registers beside the switch's, one row per run."""
    registers = pd.DataFrame([o.about | o.registers() for o in found])
    return _beside(registers, logged_registers(), [], how="left")


def register_phases(found: Iterable[Outcome]) -> pd.DataFrame:
    """Registers by phase beside the switch's.

    Parameters
    ----------
    found : iterable of Outcome
        Runs whose :attr:`.cases.Case.about` has ``mtu_bytes``.

    Returns
    -------
    DataFrame
        One row per run and phase: :meth:`.cases.Outcome.register_phases`, and the same from the switch as ``logged_…``
        (NaN where it has none).
    """
    phases = pd.DataFrame([o.about | row for o in found for row in o.register_phases()])
    return _beside(phases, logged_register_phases(), ["phase"], how="left")


def with_pings(phases: pd.DataFrame) -> pd.DataFrame:
    """:func:`register_phases`, with the queueing delays of the authors' pings as ``pinged_…`` (NaN without any)."""
    quantiles = [f"qdelay_p{percent}_ms" for percent in PHASE_PERCENTS]
    names = {"system": "pinged"} | {name: f"pinged_{name}" for name in quantiles}
    pings = logged_pings().rename(columns=names)
    rows = phases.assign(pinged=phases.system.map(switch_system))
    return rows.merge(pings, on=["configuration", "mtu_bytes", "phase", "pinged"], how="left").drop(
        columns="pinged"
    )


def _beside(
    rows: pd.DataFrame, logs: pd.DataFrame, keys: list[str], how: Literal["inner", "left"]
) -> pd.DataFrame:
    """Rows with the columns of the logs, as ``logged_…``, of the same configuration, packet size and `keys`."""
    same = ["configuration", "mtu_bytes", *keys, "logged_system"]
    logs = logs.rename(columns={"system": "logged_system"})
    logs = logs.rename(columns={name: f"logged_{name}" for name in logs if name not in same})
    rows = rows.assign(logged_system=rows.system.map(switch_system))
    return rows.merge(logs, on=same, how=how).drop(columns="logged_system")


def _readings(found: Iterable[Outcome]) -> pd.DataFrame:
    printed = paper_differences()
    logs = logged_differences()
    sizes = set(logs[logs.system.isin(PUBLISHED)].mtu_bytes)
    configurations = {o.case.configuration for o in found}
    logs = logs[logs.system.isin(PUBLISHED) & logs.configuration.isin(configurations)]
    ours = pd.DataFrame(
        [o.about | o.differences() for o in found if o.case.system in PUBLISHED and o.case.mtu_bytes in sizes]
    )
    table = pd.concat(
        [logs.assign(source="logs", seed=0), ours.assign(source="simulator")], ignore_index=True
    )
    paper = [printed[key] for key in zip(table.configuration, table.system, strict=True)]
    return table.assign(paper=paper)[
        ["source", "configuration", "system", "mtu_bytes", "seed", *READINGS, "paper"]
    ]


def reading_errors(readings: pd.DataFrame) -> pd.DataFrame:
    """How far each reading is from the paper's Table 3: mean over configurations and systems, percentage points.

    Returns
    -------
    DataFrame
        A row a `source` and `mtu_bytes`, one column per reading.
    """
    keys = ["source", "mtu_bytes", "configuration", "system"]
    mean = readings.groupby(keys, sort=False)[[*READINGS, "paper"]].mean()
    errors = mean[READINGS].sub(mean.paper, axis=0).abs()
    return errors.groupby(["source", "mtu_bytes"], sort=False).mean()


def register_means(registers: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds: one row per configuration, system and packet size, and phase if there are any."""
    keys = ["configuration", "system", "mtu_bytes", *({"phase"} & set(registers))]
    return registers.drop(columns="seed").groupby(keys, sort=False).mean().reset_index()


def share_errors(logs: pd.DataFrame) -> pd.DataFrame:
    """How far Prague's share is from the logs': means over the seeds.

    Returns
    -------
    DataFrame
        ``system configuration mtu_bytes phase scalable_share logged_share error``, the last in absolute value.
    """
    keys = ["system", "configuration", "mtu_bytes", "phase"]
    mean = logs.groupby(keys, sort=False)[["scalable_share", "logged_share"]].mean().reset_index()
    return mean.assign(error=(mean.scalable_share - mean.logged_share).abs())


def causes(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``causes``: one row per run."""
    rows: list[dict[str, Any]] = [
        o.about
        | o.differences()
        | {f"phase_{row['phase']}_share": row["scalable_share"] for row in o.phases}
        | {"probability_swing": o.phases[0]["probability_swing"], "drop_ms": o.registers()["drop_p50_ms"]}
        for o in found
    ]
    return {"causes": pd.DataFrame(rows)}


def identification(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``identification``: one row per run."""
    return {"identification": identified_shares(found)}


def uneven(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``uneven``: one row per run."""
    return {"uneven": flow_goodputs(found)}


def kernel(settings: Settings, found: Sequence[list[dict[str, Any]]]) -> dict[str, pd.DataFrame]:
    """``kernel``: one row per configuration, side, phase and quantity."""
    return {"kernel": pd.DataFrame([row for rows in found for row in rows])}


def netem(settings: Settings, found: Sequence[list[dict[str, Any]]]) -> dict[str, pd.DataFrame]:
    """``netem``: one row per configuration, system, netem and phase, as :func:`.kernel.netem_rows` has them.

    What the authors' logs have is beside it: ``logged_share``, ``logged_classic_stalled``, ``logged_scalable_stalled``.
    """
    table = pd.DataFrame([row for rows in found for row in rows])
    keys = ["configuration", "system", "mtu_bytes", "phase"]
    shares = logged_shares().rename(columns={"scalable_share": "logged_share"})[[*keys, "logged_share"]]
    kinds = {"cubic": "logged_classic_stalled", "prague": "logged_scalable_stalled"}
    stalls = logged_stalls().pivot_table(index=keys, columns="cca", values="stalled").rename(columns=kinds)
    return {
        "netem": table.merge(shares, on=keys, how="left").merge(stalls.reset_index(), on=keys, how="left")
    }
