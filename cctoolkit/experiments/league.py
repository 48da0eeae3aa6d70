"""A league of queue disciplines on the same scenarios and seeds.

The score combines delay, utilisation and fairness, because each alone is easy to achieve.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support import arguments
from .._support.arguments import shown, whole
from ..errors import ParameterError
from ..scenario import Bottleneck, Flow, Scenario

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RACES", "league", "standings"]


def _flows(cca: str, rtt_ms: float, count: int = 1) -> Flow:
    """Flows with jitter: real paths are never steady, and the jitter is what makes seeds differ."""
    return Flow(cca, rtt_ms=rtt_ms, jitter_ms=1, count=count)


#: Three situations: one sender, many, and a link whose rate changes.
RACES: dict[str, Scenario] = {
    "one upload": Scenario(
        bottleneck=Bottleneck(rate_mbps=10, buffer_packets=250),
        flows=(_flows("cubic", 30), Flow("udp", rate_mbps=0.1, packet_bytes=200, name="call")),
        duration_s=20,
    ),
    "rush hour": Scenario(
        bottleneck=Bottleneck(rate_mbps=50, buffer_packets=1000),
        flows=tuple(_flows(cca, rtt_ms, 3) for cca in ("cubic", "reno") for rtt_ms in (20, 80)),
        duration_s=20,
    ),
    "changing link": Scenario(
        bottleneck=Bottleneck(rate_mbps=40, buffer_packets=500, rate_schedule=((10, 8), (20, 40))),
        flows=(_flows("cubic", 40, 4),),
        duration_s=30,
    ),
}


def league(
    aqms: Mapping[str, Any] | Iterable[Any],
    races: Mapping[str, Scenario] | None = None,
    *,
    seeds: int | Iterable[int] = 3,
) -> pd.DataFrame:
    """Run every AQM on every scenario with every seed, and score the runs.

    Parameters
    ----------
    aqms : mapping of names to AQMs, or iterable of AQMs
        Anything that a bottleneck accepts as its ``aqm``: objects, classes, names, mappings. One with its own
        scheduler (fq_codel, DualPI2) keeps it.
    races : mapping of names to Scenarios
        Scenarios, whose AQM is replaced; by default :data:`RACES`. At least one flow must have a congestion control.
    seeds : int or iterable of int
        The scenarios' seeds; a number n means 1 to n.

    Returns
    -------
    DataFrame
        One row per scenario, AQM and seed:

        - ``scenario``, ``aqm``, ``seed``,
        - ``mean_delay_ms``: queueing delay of the packets that were sent,
        - ``delay_p99_ms``: its 99th percentile, including the packets' own transmission time,
        - ``utilisation``: bytes sent over the link's capacity,
        - ``jain_index``: of the goodputs of the flows with congestion control,
        - ``drop_share``, ``mark_share``: shares of the arriving packets,
        - ``score``: from 0 to 1, see below.

        Delays are NaN where no packet was sent.

    Raises
    ------
    ParameterError
        There is nothing to compare, or a name occurs twice.
    AlgorithmError
        An AQM's code does not compile or fails; names the line.

    See Also
    --------
    standings : ranks
    plot.trade_off : a figure
    run_sweep : any scenarios, any measures

    Notes
    -----
    The score is utilisation times Jain's index times R / (R + mean delay), where R is the mean base RTT of the flows
    with congestion control. The first and the last are Kleinrock's power (throughput over delay, "Power and
    deterministic rules of thumb for probabilistic problems in computer communications", ICC 1979) both relative to the
    best possible: 1 is a full link without a queue. Fairness is a factor because giving one flow everything also keeps
    a queue short. The score has no parameters, but it is only one choice: to rank for calls only, or for bulk
    transfers only, use the columns. An AQM that lets no data of these flows through scores 0, with a warning.

    Examples
    --------
    >>> races = {
    ...     "two flows": cct.Scenario(
    ...         bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100),
    ...         flows=[cct.Flow("cubic", rtt_ms=20, count=2)],
    ...         duration_s=3,
    ...     )
    ... }
    >>> results = cct.league(["tail_drop", "codel"], races, seeds=1)
    >>> delay = results.set_index("aqm").mean_delay_ms
    >>> bool(delay["codel"] < delay["tail_drop"])
    True
    """
    import pandas as pd

    named = _named(aqms)
    races = RACES if races is None else races
    if isinstance(seeds, str | bytes) or not isinstance(seeds, int | Iterable):
        raise ParameterError(f"seeds: {shown(seeds)} is neither a number nor a list of seeds")
    numbers = (
        list(range(1, seeds + 1)) if isinstance(seeds, int) else [whole("seeds", seed) for seed in seeds]
    )
    if not named or not races or not numbers:
        raise ParameterError("league: needs at least one AQM, one scenario and one seed")
    rows = []
    # no comprehension: before Python 3.12 it has a frame of its own, and warnings count frames
    for race, (name, aqm), seed in itertools.product(races, named.items(), numbers):
        scenario = races[race].replace({"bottleneck.aqm": aqm, "seed": seed})
        rows.append({"scenario": race, "aqm": name, "seed": seed} | _result(scenario, race, name))
    return pd.DataFrame(rows)


def _named(aqms: Mapping[str, Any] | Iterable[Any]) -> dict[str, Any]:
    if isinstance(aqms, Mapping):
        return dict(aqms)
    named: dict[str, Any] = {}
    for aqm in [aqms] if isinstance(aqms, str) else aqms:
        name = aqm.get("name") if isinstance(aqm, Mapping) else getattr(aqm, "name", aqm)
        if not isinstance(name, str):
            raise ParameterError(f"league: {shown(aqm)} is not an AQM")
        if name in named:
            raise ParameterError(f"league: there are two called {name!r}; give a mapping with names")
        named[name] = aqm
    return named


def _result(scenario: Scenario, race: str, name: str) -> dict[str, float]:
    from ..analysis.metrics import queue_delay
    from ..sim.simulation import simulate

    rtts = [flow.rtt_ms for flow in scenario.flow_list() if not flow.is_udp]
    if not rtts:
        raise ParameterError(f"league: {race}: no flow has a congestion control, so there is no fairness")
    run = simulate(scenario, record=True, sample_s=None)
    found = run.summary()
    base_rtt_ms = sum(rtts) / len(rtts)
    delays_ms = queue_delay(run.ingress, run.egress, check_taps=False).delay_ns.dropna().to_numpy(float) / 1e6
    power = found["utilisation"] * base_rtt_ms / (base_rtt_ms + found["mean_delay_ms"])
    starved = math.isnan(found["jain_index"])
    if starved:
        warnings.warn(
            f"league: {name!r} scores 0 in {race!r}: no flow with congestion control got any data through the "
            f"queue ({found['drop_share']:.0%} of the packets were dropped)",
            stacklevel=3,
        )
    return {
        "mean_delay_ms": found["mean_delay_ms"] if delays_ms.size else math.nan,
        "delay_p99_ms": float(np.quantile(delays_ms, 0.99)) if delays_ms.size else math.nan,
        "utilisation": found["utilisation"],
        "jain_index": found["jain_index"],
        "drop_share": found["drop_share"],
        "mark_share": found["mark_share"],
        "score": 0.0 if starved else power * found["jain_index"],
    }


def standings(results: pd.DataFrame, by: str = "score") -> pd.DataFrame:
    """The league table: ranks over all scenarios, with ties where chance could have decided.

    Parameters
    ----------
    results : DataFrame
        From :func:`league`.
    by : str
        Column to rank by, more being better; add a column for a score of your own.

    Returns
    -------
    DataFrame
        One row per AQM, by name, best first: ``rank``; the mean of `by` over scenarios, equally weighted; ``low`` and
        ``high``, the same with the worst and best seed; then the means by scenario.

    Raises
    ------
    ParameterError
        There is no such column.

    See Also
    --------
    league : run the scenarios

    Notes
    -----
    An AQM's rank is one more than the number of AQMs that beat it with *every* seed, so AQMs that beat each other in
    turn share a rank. Of two equally good AQMs, one wins with all n seeds in 1 of 2**(n - 1) leagues: use more than
    three seeds to separate close ones.

    Examples
    --------
    >>> results = pd.DataFrame(
    ...     {"scenario": "office", "aqm": ["codel", "pie"], "seed": 1, "score": [0.9, 0.8]}
    ... )
    >>> cct.standings(results)[["rank", "score"]]
           rank  score
    aqm
    codel     1    0.9
    pie       2    0.8
    """
    import pandas as pd

    results = arguments.table("results", results, [by], ("aqm", "scenario", "seed"))
    results = results.assign(**{by: results[by].fillna(-np.inf)})  # what was not measured is last
    by_race = results.pivot_table(index="aqm", columns="scenario", values=by, sort=False)
    by_seed = results.pivot_table(index="aqm", columns="seed", values=by, sort=False)  # scenarios count alike
    ahead = {name: (by_seed > by_seed.loc[name]).all(axis=1).sum() for name in by_seed.index}
    table = pd.DataFrame(
        {
            "rank": 1 + pd.Series(ahead),
            by: by_seed.mean(axis=1),
            "low": by_seed.min(axis=1),
            "high": by_seed.max(axis=1),
        }
    )
    table = table.join(by_race).sort_values(["rank", by], ascending=[True, False]).rename_axis("aqm")
    return table.replace(-np.inf, np.nan)
