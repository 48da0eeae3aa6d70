"""From the L4S experiment's outcomes to tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..papers import paper_numbers
from ..seeds import Measured
from .cases import Outcome, Settings
from .logs import logged_shares
from .scenarios import SYSTEMS

__all__ = ["drop_delays", "flow_goodputs", "identified_shares", "paper_differences", "table_3"]


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
    """The paper's Table 3, measured: a row a run.

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
            | {"paper": published.get((o.case.configuration, o.case.system), math.nan)}
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
            if SYSTEMS[system].aqm != "ired" and measure != "until the drop":
                continue  # a packet dropped as it leaves is a gap at once, and nothing is recirculated
            low, q1, median, q3, high = np.percentile(values, [5, 25, 50, 75, 95])
            rows.append(
                {"configuration": configuration, "system": system, "measure": measure, "drops": len(values)}
                | {"p5_ms": low, "q1_ms": q1, "median_ms": median, "q3_ms": q3, "p95_ms": high}
            )
    return pd.DataFrame(rows)


def identified_shares(found: Iterable[Outcome]) -> pd.DataFrame:
    """The second sender's share of the goodput, the mean of the phases: a row a run."""
    return pd.DataFrame(
        [
            o.about | {"second_share": sum(row["scalable_share"] for row in o.phases) / len(o.phases)}
            for o in found
        ]
    )


def flow_goodputs(found: Iterable[Outcome]) -> pd.DataFrame:
    """What one flow of each class gets in the last phase: a row a run."""
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
    """Table 3 by phase, means over the seeds: a row a configuration, a column a system."""
    wide = third.pivot_table(index="configuration", columns="system", values="by_phase", sort=False)
    return wide[[name for name in SYSTEMS if name in wide]]


def differences(third: pd.DataFrame) -> dict[tuple[str, str], Measured]:
    """Table 3 by phase: (configuration, system) to mean and spread over the seeds."""
    groups = third.groupby(["configuration", "system"], sort=False).by_phase
    return {(str(c), str(s)): Measured.over(values) for (c, s), values in groups}


def scalable_shares(phases: pd.DataFrame) -> pd.Series:
    """Share of the scalable class by configuration, system and phase, means over the seeds."""
    return phases.groupby(["configuration", "system", "phase"], sort=False).scalable_share.mean()


# ---- the parts -------------------------------------------------------------------------------------------------------


def main(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``goodput`` (each second), ``phases`` (a row a run and phase), ``table3`` and ``drop-delay``."""
    goodput = pd.concat([o.rates.reset_index().assign(**o.about) for o in found], ignore_index=True)
    phases = pd.DataFrame([row for o in found for row in o.phases])
    return {"goodput": goodput, "phases": phases, "table3": table_3(found), "drop-delay": drop_delays(found)}


def beside_logs(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``logs``: a row a run and phase, with the authors' share and goodput (``logged_share``, ``logged_mbps``).

    iRED's variants stand beside the logs of iRED.
    """
    logs = logged_shares().rename(columns={"scalable_share": "logged_share", "goodput_mbps": "logged_mbps"})
    keep = ["configuration", "system", "mtu_bytes", "seed", "phase", "pairs", "scalable_share"]
    rows = pd.DataFrame([row for o in found for row in o.phases])
    rows = rows.assign(
        goodput_mbps=rows.classic_mbps + rows.scalable_mbps, logged_system=_logged(rows.system)
    )
    keys = ["configuration", "mtu_bytes", "phase"]
    table = rows[[*keep, "goodput_mbps", "logged_system"]].merge(
        logs.rename(columns={"system": "logged_system"}), on=[*keys, "logged_system"], how="left"
    )
    return {"logs": table.drop(columns="logged_system")}


def _logged(systems: pd.Series) -> pd.Series:
    """The system in the logs that each of ours is held against."""
    return systems.str.split(",").str[0]


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
    """``causes``: a row a run."""
    rows: list[dict[str, Any]] = [
        o.about
        | o.differences()
        | {f"phase_{row['phase']}_share": row["scalable_share"] for row in o.phases}
        | {"probability_swing": o.phases[0]["probability_swing"]}
        for o in found
    ]
    return {"causes": pd.DataFrame(rows)}


def identification(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``identification``: a row a run."""
    return {"identification": identified_shares(found)}


def uneven(settings: Settings, found: Sequence[Outcome]) -> dict[str, pd.DataFrame]:
    """``uneven``: a row a run."""
    return {"uneven": flow_goodputs(found)}


def kernel(settings: Settings, found: Sequence[list[dict[str, Any]]]) -> dict[str, pd.DataFrame]:
    """``kernel``: a row a configuration, side, phase and quantity."""
    return {"kernel": pd.DataFrame([row for rows in found for row in rows])}
