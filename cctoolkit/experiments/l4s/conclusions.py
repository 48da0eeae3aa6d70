"""Statements about the L4S experiment's tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from ..papers import paper_numbers
from ..seeds import Measured
from ..statements import OURS, Statement, all_near
from .logs import (
    PHASE_S,
    PHASES,
    logged_pings,
    logged_recirculation,
    logged_register_phases,
    logged_registers,
    logged_shares,
)
from .scenarios import (
    AS_PUBLISHED,
    BESIDE_LOGS,
    CLOCK_S,
    CODEL,
    CODEL_AS_PUBLISHED,
    CONFIGURATIONS,
    CONNECTIONS,
    DROPS,
    MEANT,
    NETEM,
    NETEM_PACKETS,
    PI2_IN_UNITS,
    PUBLISHED,
    UNIT_TARGET_MS,
    logged_stalls,
)
from .tables import (
    HEADER_BYTES,
    by_configuration,
    paper_differences,
    reading_errors,
    register_means,
    scalable_shares,
    share_errors,
    with_pings,
)

Tables = Mapping[str, pd.DataFrame]

#: A difference within this many percentage points of the paper's agrees with it.
POINTS = 5.0
#: A reading of Table 3 that is this many percentage points nearer to it, on average, is nearer.
NEARER = 0.5
#: A scalable class with a share this near to one half is even with the other.
EVEN = 0.05
#: Shares that differ by no more than this agree with the logs. Between packets of 400 and of 800 bytes the authors' own
#: differ by 0.07 on average.
LIKE_THE_LOGS = 0.1
#: Drop delays, and 95th percentiles of queueing delays, that differ by no more agree with the switch's.
DELAY_MS, QDELAY_MS = 2.0, 5.0
#: Counters whose ratio is no more agree with the switch's.
FACTOR = 2.0
#: A period that differs by no more than this part of the clock's is the clock's. One drawn from those searched for
#: would be so in one case of 25.
LIKE_THE_CLOCK = 0.03
#: Readings of Table 3 (:data:`.tables.READINGS`) in words.
READING_NAMES = {
    "by_phase": "mean of the phases",
    "whole_run": "whole run",
    "each_second": "mean of the seconds",
}


def main(tables: Tables) -> list[Statement]:
    """Table 3, the words about figures 5 to 7, and RFC 9332's promise."""
    return [*table_3(tables), *figures_5_and_6(tables), *figure_7(tables), *low_latency(tables)]


def table_3(tables: Tables) -> list[Statement]:
    """The difference between the classes, beside the paper's, and whether it is the queues."""
    third = tables["table3"]
    return [*_differences(third), *_coupling(third), *_queues(third)]


#: Changes (:data:`.scenarios.CAUSES`) of what the paper fixes: gains and interval (section 5), squared and doubled
#: probability (section 4.2), Cubic and Prague. It leaves the others open.
FIXED = (
    "gains a tenth",
    "gains times 10",
    "beta times 16",
    "update every 100 ms",
    "coupling 1 instead of 2",
    "Reno instead of Cubic",
    "DCTCP instead of Prague",
)


def _differences(third: pd.DataFrame) -> list[Statement]:
    paper, wide = paper_differences(), by_configuration(third)
    keys = ["configuration", "system"]
    closer = wide.index[wide["iRED"] < wide["PI2"]]
    statements = [
        Statement(
            "Table 3",
            "iRED is closer to an even split than PI2 in every configuration",
            ", ".join(f"{c}: {wide['iRED'][c]:.1f} % against {wide['PI2'][c]:.1f} %" for c in wide.index),
            len(closer) == len(wide),
        )
    ]
    for reading in ("by_phase", "whole_run"):
        groups = third.groupby(keys, sort=False)[reading]
        measured = {key: Measured.over(values) for key, values in groups}
        for system, meant in MEANT.items():
            if system not in wide:
                continue
            pairs = {c: (measured[c, system], paper[c, meant]) for c in wide.index if (c, system) in measured}
            ours = "" if system in PUBLISHED else OURS  # the paper's number counts once
            statements.append(
                all_near(
                    "Table 3", f"{ours}{system}: the difference between the classes ({READING_NAMES[reading]})",
                    pairs, within=POINTS, absolute=True, unit=" %", digits=1,
                )
            )  # fmt: skip
    return statements


def _coupling(third: pd.DataFrame) -> list[Statement]:
    """Whether coupling brings iRED nearer to the paper's Table 3."""
    if not {"iRED", "iRED, coupled"} <= set(third.system):
        return []
    rows = third[third.system.isin(["iRED", "iRED, coupled"])]
    mean = rows.groupby(["system", "configuration"])[[*READING_NAMES, "paper"]].mean()
    off = mean[list(READING_NAMES)].sub(mean.paper, axis=0).abs().groupby(level="system").mean()
    return [
        Statement(
            "Table 3",
            f"{OURS}coupling iRED's two queues brings its differences nearer to the paper's, in all three readings",
            "points off on average: "
            + "; ".join(
                f"{words}: iRED {off[reading]['iRED']:.1f}, iRED, coupled {off[reading]['iRED, coupled']:.1f}"
                for reading, words in READING_NAMES.items()
            ),
            bool((off.loc["iRED, coupled"] < 0.95 * off.loc["iRED"]).all()),  # less is noise
        )
    ]


def _queues(third: pd.DataFrame) -> list[Statement]:
    wide = by_configuration(third)
    apart = wide[[name for name in ("iRED", "iRED, coupled", "PI2, two queues") if name in wide]].max().max()
    together = wide[["iRED, one queue", "PI2"]].min().min()
    return [
        Statement(
            "Table 3",
            f"{OURS}the queues make the difference, not the algorithm: two queues served in turn split the link "
            "more evenly than one queue, whichever algorithm they use",
            f"two queues at most {apart:.1f} %, one queue at least {together:.1f} %",
            bool(apart < together),
        )
    ]


def _even(shares: list[float], phases: tuple[int, ...]) -> bool:
    return all(abs(shares[n - 1] - 0.5) <= EVEN for n in phases)


def _later(shares: list[float]) -> bool:
    off = [abs(share - 0.5) for share in shares]
    return max(off[2:]) < min(off[:2])


def _behind(shares: list[float]) -> bool:
    return shares[0] < 0.5 - EVEN and all(abs(share - 0.5) < 0.5 - shares[0] for share in shares[1:])


#: What the paper says in words: figure, configuration, system, claim, and whether shares by phase fit it.
_WORDS: tuple[tuple[str, str, str, str, Callable[[list[float]], bool]], ...] = (
    ("Figure 5", "I", "iRED", "equitable in all phases", lambda s: _even(s, (1, 2, 3, 4))),
    ("Figure 5", "I", "PI2", "fair only in phases 3 and 4", _later),
    ("Figure 5", "III", "iRED", "equitable in all phases", lambda s: _even(s, (1, 2, 3, 4))),
    (
        "Figure 5",
        "III",
        "PI2",
        "fair in phase 1, not in phase 2",
        lambda s: _even(s, (1,)) and not _even(s, (2,)),
    ),
    (
        "Figure 6",
        "II",
        "iRED",
        "equitable in all phases, as configuration I",
        lambda s: _even(s, (1, 2, 3, 4)),
    ),
    ("Figure 6", "II", "PI2", "fair only in the later phases", _later),
    ("Figure 6", "IV", "iRED", "Prague falls behind in phase 1 and comes closer to half afterwards", _behind),
    ("Figure 6", "IV", "PI2", "Prague falls behind in phase 1 and comes closer to half afterwards", _behind),
)


def figures_5_and_6(tables: Tables) -> list[Statement]:
    """The paper's words about Prague's share by phase."""
    phases = tables["phases"]
    share = scalable_shares(phases)
    statements = []
    measured = set(zip(phases.configuration, phases.system, strict=True))
    for figure, configuration, meant, claim, fits in _WORDS:
        for system in (name for name, one in MEANT.items() if one == meant):
            if (configuration, system) not in measured:
                continue
            ours = "" if system in PUBLISHED else OURS  # the paper's words count once
            shares = [float(x) for x in share[configuration, system]]
            statements.append(
                Statement(
                    figure,
                    f"{ours}configuration {configuration}, {system}: {claim}",
                    "Prague's share " + ", ".join(f"{100 * x:.0f}" for x in shares) + " %",
                    len(shares) == 4 and fits(shares),
                )
            )
    return statements


def figure_7_in_logs(tables: Tables) -> list[Statement]:
    """Figure 7 in the authors' logs, and the simulator's recirculation beside theirs."""
    drops = tables["drop-delay"]
    given_us = 1000 * float(drops[drops.measure == "recirculation"].median_ms.iloc[0])
    recirculation = logged_recirculation()
    notified = recirculation.groupby("configuration").recirculation_median_us.max()
    waited = logged_registers().query("system == 'PI2'").groupby("configuration").drop_p50_ms.min()
    names = [
        name
        for name in dict.fromkeys(drops.configuration)
        if {name} <= set(notified.index) & set(waited.index)
    ]
    minimum, most = recirculation.recirculation_median_us.agg(["min", "max"])
    return [
        Statement(
            "Figure 7",
            "in the authors' logs iRED takes less time to drop than PI2 in every configuration, whatever the packets' "
            "length",
            "longest and shortest of the medians: "
            + ", ".join(f"{c} {notified[c]:.2f} µs against {waited[c]:.2f} ms" for c in names),
            all(notified[c] < 1000 * waited[c] for c in names),
        ),
        Statement(
            "Figure 7",
            f"{OURS}iRED's recirculation in the logs is what the simulator is given (within a factor of 1.5)",
            f"medians of {minimum:.2f} to {most:.2f} µs, given {given_us:.2g} µs",
            bool(most / 1.5 <= given_us <= 1.5 * minimum),
        ),
    ]


def figure_7(tables: Tables) -> list[Statement]:
    """How long a drop takes, and what it costs."""
    phases, drops = tables["phases"], tables["drop-delay"]
    median = drops.pivot_table(
        index="configuration", columns=["system", "measure"], values="median_ms", sort=False
    )
    ired, pi2 = median["iRED", "until the drop"], median["PI2", "until the drop"]
    late = median["iRED", "until the gap leaves"]
    most = phases[phases.phase == phases.phase.max()]
    used = most.pivot_table(index="configuration", columns="system", values="utilisation", sort=False)
    return [
        Statement(
            "Figure 7",
            "iRED takes less time to drop than PI2 in every configuration",
            "medians: " + ", ".join(f"{c} {ired[c]:.3g} ms against {pi2[c]:.3g} ms" for c in median.index),
            bool((ired < pi2).all()),
        ),
        Statement(
            "Figure 7",
            f"{OURS}a receiver notices an iRED drop no sooner: the gap leaves the queue later than PI2's",
            "medians: " + ", ".join(f"{c} {late[c]:.3g} ms against {pi2[c]:.3g} ms" for c in median.index),
            bool((late > pi2).all()),
        ),
        Statement(
            "section 5",
            f"{OURS}PI2's drops cost link time, iRED's do not: in the last phase iRED uses more of the link",
            f"PI2 {100 * used['PI2'].mean():.1f} %, iRED {100 * used['iRED'].mean():.1f} %",
            bool((used["iRED"] > used["PI2"]).all()),
        ),
    ]


def low_latency(tables: Tables) -> list[Statement]:
    """RFC 9332's promise."""
    phases = tables["phases"]
    worst = phases[phases.system == "DualPI2"].scalable_p99_ms.max()
    return [
        Statement(
            "RFC 9332",
            f"{OURS}under DualPI2, 99 % of the L4S packets wait less than 2 ms",
            f"at most {worst:.2f} ms in any phase, configuration and seed",
            bool(worst < 2),
        )
    ]


def logs(tables: Tables) -> list[Statement]:
    """Shares, registers and the readings of Table 3 beside the authors' logs."""
    return [*shares(tables), *registers(tables), *readings(tables)]


def published(tables: Tables) -> list[Statement]:
    """iRED as its published program means it, beside the authors' logs and beside the usual iRED."""
    registers_ = register_means(tables["published-registers"])
    return [
        *(
            s
            for s in shares({"logs": tables["published-logs"]})
            if AS_PUBLISHED in s.claim or _ONE_FOR_ALL in s.claim
        ),
        *(s for s in registers({"registers": tables["published-registers"]}) if AS_PUBLISHED in s.claim),
        *_nearer(
            "registers",
            _off(registers_, "marks_per_s"),
            _PUBLISHED_IRED,
            "the marks nearer to the switch's",
            "a second",
        ),
    ]


def _off(table: pd.DataFrame, column: str, factor: float = 1.0, beside: str = "logged_") -> pd.DataFrame:
    """The table with an ``error``: how far a column is from the switch's, or from the pings' (``"pinged_"``)."""
    return table.assign(error=factor * (table[column] - table[f"{beside}{column}"]).abs())


def _named_by(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """The table with the values of a column, which tells variants apart, as its systems."""
    return table.drop(columns="system").rename(columns={column: "system"})


def clock(tables: Tables) -> list[Statement]:
    """P4-CoDel as in its paper and as its published program, beside the authors' logs and the switch's registers."""
    mean, phases = (register_means(tables[f"clock-{name}"]) for name in ("registers", "phases"))
    statements = [*_recurring(tables["clock-phases"]), *shares({"logs": tables["clock-logs"]})]
    statements += [*_drop_delays(mean), *_phase_delays(phases), *_counters(mean)]
    for what, table, unit, keys in (
        ("the seconds with drops", _off(phases, "dropping", 100), "points", ["phase"]),
        ("the drops", mean.assign(error=_ratio(mean.drops_per_s, mean.logged_drops_per_s)), "times", []),
    ):
        statements += _nearer(
            "registers", table, _PUBLISHED_CODEL, f"{what} nearer to the switch's", unit, keys
        )
    return [*statements, *_bypassing(phases), *_taken_for_another(phases), *_pinged_otherwise()]


def drops(tables: Tables) -> list[Statement]:
    """What brings the drops of the published programs nearer to the switch's, and their queues to the pings'."""
    mean = register_means(_named_by(tables["drops"], "changed"))
    ratios = mean.assign(error=_ratio(mean.drops_per_s, mean.logged_drops_per_s))
    phases = _named_by(with_pings(tables["drops-phases"]), "changed")
    delays_ = register_means(phases[phases.configuration.isin(_WITH_JOINERS)])
    delays_ = _off(delays_, "qdelay_p50_ms", beside="pinged_")
    statements = []
    for name, (system, _, _) in DROPS.items():
        part = mean[mean.system == name]
        if part.empty:
            continue
        statements.append(_counted("drops", name, part))
        if part.logged_marks_per_s.notna().all():
            statements.append(_counted("marks", name, part))
        statements += _near_pings(name, delays_[delays_.system == name])
        if name != system:
            variant = (system, name, f"{system}: {name.removeprefix(f'{system}, ')!r}")
            statements += _nearer("registers", ratios, variant, "the drops nearer to the switch's", "times")
            statements += _nearer(
                "logs", delays_, variant, "the median queueing delay nearer to the pings'", "ms", ["phase"]
            )
    return statements


def _near_pings(name: str, part: pd.DataFrame) -> list[Statement]:
    """Whether a queue is as long as the authors' pings found it."""
    if part.empty:
        return []
    return [
        _in_most(
            "logs",
            f"{name}: the median queueing delay is within {DELAY_MS:g} ms of the pings' in at least nine phases of "
            "ten, where no connection stalls",
            part.error <= DELAY_MS,
            f"{part.error.mean():.1f} ms off on average, at most {part.error.max():.0f}",
        )
    ]


def _in_most(about: str, claim: str, near: pd.Series, off: str) -> Statement:
    """Whether something is near in at least nine phases of ten, and how far off it is."""
    text = f"{near.sum()} of {len(near)} phases; {off}"
    return Statement(about, f"{OURS}{claim}", text, bool(10 * near.sum() >= 9 * len(near)))


#: A median delay that differs by no more from a target is kept at it.
KEPT_MS = 0.1


def delays(tables: Tables) -> list[Statement]:
    """The queueing delays of iRED and PI2 in each phase, beside the switch's registers."""
    phases = register_means(tables["delay-phases"])
    statements = [*_in_units(), *_pinged(), *_phase_delays(phases)]
    for where, part in _by_rate(phases):
        for variant in (_PUBLISHED_IRED, _PI2_UNITS, _PI2_STRONG):
            statements += _nearer(
                "registers", _off(part, "qdelay_p50_ms"), variant,
                f"the median queueing delay of the phases nearer to the switch's {where}", "ms", ["phase"],
            )  # fmt: skip
    registers_ = register_means(tables["delay-registers"])
    fast = registers_[_rates_mbps(registers_) == 1000]
    if len(fast):
        statements += [
            _counted("drops", f"{name}, at 1 Gbit/s", fast[fast.system == name])
            for name in ("PI2", PI2_IN_UNITS)
        ]
    return statements


def _rates_mbps(table: pd.DataFrame) -> pd.Series:
    return table.configuration.map({name: rate_mbps for name, (rate_mbps, _) in CONFIGURATIONS.items()})


def _by_rate(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The parts of a table with the same rate, and words for it."""
    rates = _rates_mbps(table)
    words = {rate: f"at {rate:g} Mbit/s" if rate < 1000 else f"at {rate / 1000:g} Gbit/s" for rate in rates}
    return [(words[rate], part) for rate, part in table.groupby(rates, sort=False)]


def _pings_and_registers() -> pd.DataFrame:
    """Queueing delays of the authors' pings and, as ``logged_…``, of their registers, where no connection stalls."""
    keys = ["configuration", "system", "mtu_bytes", "phase"]
    registers_ = logged_register_phases()[[*keys, "qdelay_p50_ms"]]
    both = logged_pings().merge(registers_.rename(columns={"qdelay_p50_ms": "logged_qdelay_p50_ms"}), on=keys)
    return _off(both[both.configuration.isin(_WITH_JOINERS)], "qdelay_p50_ms")


def _pinged() -> list[Statement]:
    """Whether pings through the queues wait as long as the switch's registers say."""
    both = _pings_and_registers().query("system in ['iRED', 'PI2']")
    return [
        _in_most(
            "logs",
            "in configurations I to III, the authors' pings through the queues of iRED and PI2 confirm the switch's "
            f"registers: the median delay is within {DELAY_MS:g} ms in at least nine phases of ten",
            both.error <= DELAY_MS,
            _farthest(both, "qdelay_p50_ms"),
        )
    ]


def _pinged_otherwise() -> list[Statement]:
    """Whether the authors' pings contradict the registers that may belong to another run."""
    both = _pings_and_registers().query("system == @CODEL and configuration == 'I'")
    off = both.groupby("mtu_bytes").error.mean()
    return [
        Statement(
            "logs",
            f"{OURS}the authors' pings through P4-CoDel's queue in configuration I contradict the registers published "
            f"for 800 bytes, and only these: the median delay is more than {QDELAY_MS:g} ms off on average",
            "; ".join(f"{size} bytes: {error:.1f} ms" for size, error in off.items()),
            list(off[off > QDELAY_MS].index) == [800],
        )
    ]


def _in_units() -> list[Statement]:
    """Whether the switch's PI2 counts its target in units of 1024 ns."""
    steady = logged_register_phases().query("system == 'PI2' and configuration == 'III' and phase >= 3")
    median = steady.qdelay_p50_ms
    return [
        Statement(
            "registers",
            f"{OURS}on the switch, PI2 keeps its queue at {UNIT_TARGET_MS:g} ms, 20 000 units of 1024 ns, rather than "
            f"at 20 ms: in phases 3 and 4 of configuration III, the median delay is within {KEPT_MS:g} ms of that with "
            "each packet size",
            f"{median.min():.2f} to {median.max():.2f} ms",
            bool(((median - UNIT_TARGET_MS).abs() <= KEPT_MS).all()),
        )
    ]


def _recurring(runs: pd.DataFrame) -> list[Statement]:
    """Whether P4-CoDel's drops recur with its clock: on the switch, and in runs of the published program only."""

    def recurs(part: pd.DataFrame) -> pd.Series:
        return ((part.drop_period_s / CLOCK_S - 1).abs() <= LIKE_THE_CLOCK)[part.phase >= 3]

    switch = recurs(logged_register_phases().query("system == @CODEL"))
    paper, published_ = (recurs(runs[runs.system == name]) for name in (CODEL, CODEL_AS_PUBLISHED))
    return [
        Statement(
            "registers",
            f"{OURS}on the switch, P4-CoDel's drops recur with the period of a clock of 32 bits, {CLOCK_S:.2f} s, in "
            "at least three quarters of the loads of phases 3 and 4",
            f"{switch.sum()} of {len(switch)}",
            bool(4 * switch.sum() >= 3 * len(switch)),
        ),
        Statement(
            "registers",
            f"{OURS}in the simulator they do so with the published program, in at least a third of the loads and "
            "seeds, and not with the paper's, in at most a tenth",
            f"published {published_.sum()}, paper's {paper.sum()} of {len(published_)}",
            bool(3 * published_.sum() >= len(published_) and 10 * paper.sum() <= len(paper)),
        ),
    ]


def _bypassing(phases: pd.DataFrame) -> list[Statement]:
    """Whether the switch's delay register has packets that did not pass the bottleneck."""
    part = phases[(phases.configuration == "I") & (phases.phase >= 2)]
    if part.empty:
        return []
    here, there = part.waited.min(), part.logged_waited.max()
    return [
        Statement(
            "registers",
            f"{OURS}the switch's delay register also has packets that did not pass the bottleneck: in phases 2 to 4 of "
            "configuration I nearly all packets wait in P4-CoDel's single queue, and most readings are of packets "
            "that did not",
            f"packets that waited: at least {100 * here:.1f} % in the simulator; readings: at most "
            f"{100 * there:.0f} %",
            bool(here > 0.9 and there < 0.6),
        )
    ]


def _taken_for_another(phases: pd.DataFrame) -> list[Statement]:
    """Whether registers that the authors published for configuration I are rather those of II."""
    ours = phases[phases.system == CODEL_AS_PUBLISHED]
    if not {"I", "II"} <= set(ours.configuration):
        return []
    found, logged = (
        100 * ours.pivot_table(index=["configuration", "mtu_bytes"], columns="phase", values=column)
        for column in ("dropping", "logged_dropping")
    )
    off = {
        size: {name: (found.loc[name, size] - logged.loc["I", size]).abs().mean() for name in ("I", "II")}
        for size in sorted(set(ours.mtu_bytes))
    }
    nearer = [size for size, of in off.items() if of["II"] < of["I"]]
    return [
        Statement(
            "registers",
            f"{OURS}the registers published for configuration I with 800 bytes, and only these, have drops in about as "
            "many seconds as the simulator in configuration II: one of the files may belong to another run",
            "; ".join(
                f"{size} bytes: {of['I']:.0f} points from the simulator's I, {of['II']:.0f} from its II"
                for size, of in off.items()
            ),
            nearer == [800],
        )
    ]


#: A growth whose ratio to a law is no more follows it.
LAW = 1.35
#: After slow start a window is nearly empty with less than this part of the link.
NEARLY_EMPTY = 0.05


def slow_start(tables: Tables) -> list[Statement]:
    """How Prague leaves slow start in the authors' logs, and what the simulator's shares are if it does the same."""
    growth = tables["growth"].set_index(["configuration", "mtu_bytes"])
    fast = growth.loc[["III", "IV"]]
    far, near = growth.loc[["IV"]], growth.loc[["III"]]
    statements = [
        Statement(
            "logs",
            f"{OURS}in iRED's logs at 1 Gbit/s, Prague falls below {100 * NEARLY_EMPTY:g} % of the link within 5 s "
            "of its start, after slow start has reached more",
            _by_size(fast, lambda row: f"{row.lowest_mbps:.0f} Mbit/s after {row.lowest_s:g} s"),
            bool((fast.lowest_mbps < 1000 * NEARLY_EMPTY).all() and (fast.lowest_s <= 5).all()),
        ),
        Statement(
            "logs",
            f"{OURS}from there it grows by one packet in each round trip of 50 ms (within a factor of {LAW:g})",
            _by_size(far, lambda row: f"{row.first_growth:.2f} Mbit/s per second, law {row.rtt_law:.2f}"),
            bool((_ratio(far.first_growth, far.rtt_law) <= LAW).all()),
        ),
        Statement(
            "logs",
            f"{OURS}with an RTT of 10 ms, the virtual RTT of 25 ms does not count in the first 5 s: a packet in each "
            f"round trip (within a factor of {LAW:g}), not in each virtual one",
            _by_size(
                near,
                lambda row: (
                    f"{row.first_growth:.1f} Mbit/s per second, laws {row.rtt_law:.1f} and "
                    f"{row.virtual_law:.1f}"
                ),
            ),
            bool(
                (_ratio(near.first_growth, near.rtt_law) <= LAW).all()
                and (_ratio(near.first_growth, near.virtual_law) > LAW).all()
            ),
        ),
    ]
    shares_ = tables["slow-start"]
    keys = ["slow_start", "system", "configuration", "mtu_bytes", "phase"]
    mean = shares_.groupby(keys, sort=False)[["scalable_share", "logged_share"]].mean().reset_index()
    mean["error"] = (mean.scalable_share - mean.logged_share).abs()
    for system in dict.fromkeys(mean.system):
        part = mean[mean.system == system]
        errors = part.groupby("slow_start", sort=False).error.mean()
        usual, *changed = errors.index
        statements.append(
            Statement(
                "logs",
                f"{OURS}{system}: Prague's share in phase 1 is nearer to the logs if slow start ends with a nearly "
                "empty window",
                ", ".join(f"{name}: {100 * errors[name]:.1f} points off" for name in errors.index),
                bool((errors[changed] < errors[usual]).all()),
            )
        )
    first = mean[(mean.phase == 1) & (mean.configuration == "IV") & (mean.system == "iRED")]
    if len(first):
        usual, *changed = first.to_dict("records")
        statements.append(
            Statement(
                "logs",
                f"{OURS}iRED, configuration IV, phase 1: ending slow start with a nearly empty window explains the "
                f"logs' share (within {100 * LIKE_THE_LOGS:g} points with it, not without)",
                f"logs {100 * usual['logged_share']:.0f} %, "
                + ", ".join(
                    f"{row['slow_start']}: {100 * row['scalable_share']:.0f} %" for row in (usual, *changed)
                ),
                usual["error"] > LIKE_THE_LOGS and all(row["error"] <= LIKE_THE_LOGS for row in changed),
            )
        )
    return statements


def stalled(tables: Tables) -> list[Statement]:
    """Where connections stalled in the authors' logs, and what the others bring nearer to them."""
    statements = [*_on_long_paths(tables["stalls"]), *_lost_pings(), *_lost_in_netem()]
    if "stalled" not in tables:
        return statements
    shares_, registers_ = tables["stalled"], tables["stalled-registers"]
    for system in dict.fromkeys(shares_.system):
        mine = (table[table.system == system] for table in (shares_, registers_))
        statements += _without_stalls(system, *(_named_by(table, "connections") for table in mine))
    return statements


def _without_stalls(system: str, shares_: pd.DataFrame, registers_: pd.DataFrame) -> list[Statement]:
    """What each choice of connections, here called system, brings nearer to the logs and the switch."""
    errors, mean = share_errors(shares_), register_means(registers_)
    points = errors.assign(error=100 * errors.error)
    counted = {
        what: mean.assign(error=_ratio(mean[f"{what}_per_s"], mean[f"logged_{what}_per_s"]))
        for what in ("drops", "marks")
        if mean[f"logged_{what}_per_s"].notna().all()
    }
    usual, *changed = CONNECTIONS
    statements = []
    for name in changed:
        variant = (usual, name, f"{system}: {name!r}")
        statements += _nearer(
            "logs", points, variant, "Prague's share nearer to the logs", "points", ["phase"]
        )
        for what, ratios in counted.items():
            statements += _nearer("registers", ratios, variant, f"the {what} nearer to the switch's", "times")
    if "marks" in counted:
        statements += [
            _counted("marks", f"{system}, {name}", part) for name, part in mean.groupby("system", sort=False)
        ]
    return statements


def _on_long_paths(stalls: pd.DataFrame) -> list[Statement]:
    """Whether it is the number of packets on the path that tells where connections stalled."""
    by_path = stalls.groupby("path_packets").stalled.sum()
    stalling, others = by_path[by_path > 0].index, by_path[by_path == 0].index
    prague, cubic = (stalls[stalls.cca == cca].stalled.sum() for cca in ("prague", "cubic"))
    return [
        Statement(
            "logs",
            f"{OURS}in the authors' logs connections stall only with the most packets on the path, whatever the system",
            f"with {stalling.min():,} and more, not with {others.max():,} and fewer",
            bool(stalling.min() > others.max()),
        ),
        Statement(
            "logs",
            f"{OURS}more of Prague's connections stall than of Cubic's",
            f"{prague} and {cubic} of {stalls[stalls.cca == 'cubic'].connections.sum()} each",
            bool(prague > cubic),
        ),
    ]


#: Pings are lost if at least this part of a run's is, and hardly lost if no more than that.
LOST, HARDLY_LOST = 0.2, 0.1
#: A queue discipline that drops a smaller part of all packets does not explain them.
HARDLY_DROPPED = 0.01


def _lost_pings() -> list[Statement]:
    """Whether the authors' pings are lost where connections stall, and whether the queue may be why."""
    keys = ["configuration", "system", "mtu_bytes"]
    pings = logged_pings()
    lost = 1 - pings.groupby(keys).answered.sum() / (PHASES * PHASE_S)
    stalls = logged_stalls().groupby(keys).stalled.sum().reindex(lost.index) > 0
    mbps = logged_shares().groupby(keys).goodput_mbps.mean()
    packets = _packets_per_s(mbps, mbps.index.get_level_values("mtu_bytes"))
    dropped = (logged_registers().set_index(keys).drops_per_s / packets)[stalls[stalls].index]
    far, near = (pings[pings.configuration == name].qdelay_p50_ms.max() for name in ("IV", "III"))
    return [
        Statement(
            "logs",
            f"{OURS}pings through the same queues are lost where connections stall, at least {100 * LOST:g} %, and "
            f"hardly elsewhere, at most {100 * HARDLY_LOST:g} %",
            f"{100 * lost[stalls].min():.0f} to {100 * lost[stalls].max():.0f} %, elsewhere up to "
            f"{100 * lost[~stalls].max():.0f} %",
            bool((lost[stalls] >= LOST).all() and (lost[~stalls] <= HARDLY_LOST).all()),
        ),
        Statement(
            "registers",
            f"{OURS}the queue disciplines do not drop them: where connections stall, they drop at most "
            f"{100 * HARDLY_DROPPED:g} % of the packets, and pings that are answered wait no longer than in "
            "configuration III, where connections do not stall",
            f"{100 * dropped.min():.3f} to {100 * dropped.max():.3f} % of the packets; median delays in the phases up "
            f"to {far:.0f} ms, in III {near:.0f} ms",
            bool((dropped <= HARDLY_DROPPED).all() and far <= near),
        ),
    ]


def _packets_per_s(goodput_mbps: pd.Series, mtu_bytes: pd.Series | pd.Index) -> pd.Series:
    """How many packets carry a goodput."""
    return goodput_mbps * 1e6 / 8 / (mtu_bytes - HEADER_BYTES)


#: How close what netem would drop has to be to the pings that are lost, as a factor.
LIKE_NETEM = 1.5


def netem_drops(packets: pd.Series) -> pd.Series:
    """The share of ACKs that netem drops at a receiver whose ACKs it delays by a round trip (0 to 1).

    Parameters
    ----------
    packets : Series
        Packets that arrive in a round trip. Each two have an ACK (RFC 5681, section 4.2), as a receiver sends them that
        does not merge packets; one that does sends fewer.
    """
    return (1 - NETEM_PACKETS / (packets / 2)).clip(lower=0)


def _lost_in_netem() -> list[Statement]:
    """Whether the authors' pings are lost where netem, which delays the receiver's packets, would drop ACKs."""
    keys = ["configuration", "system", "mtu_bytes", "phase"]
    runs = logged_pings().merge(logged_shares(), on=keys)
    lost = 1 - runs.answered / PHASE_S
    rtt_s = runs.configuration.map({name: rtt_ms / 1e3 for name, (_, rtt_ms) in CONFIGURATIONS.items()})
    dropped = netem_drops(_packets_per_s(runs.goodput_mbps, runs.mtu_bytes) * rtt_s)
    last, full = runs.phase == PHASES, dropped > 0
    there, elsewhere = lost[last & full], lost[last & ~full]
    stalling = last & (runs.configuration == "IV")
    ratio = lost[stalling] / dropped[stalling]
    beyond = lost - dropped
    return [
        Statement(
            "logs",
            f"{OURS}in phase {PHASES}, pings are lost (over {100 * HARDLY_LOST:g} %) wherever netem's default room of "
            f"{NETEM_PACKETS} packets is too small for an ACK for every two packets of a round trip, and "
            "nowhere else",
            f"{100 * there.min():.0f} to {100 * there.max():.0f} %, elsewhere up to {100 * elsewhere.max():.0f} %",
            bool((there > HARDLY_LOST).all() and (elsewhere <= HARDLY_LOST).all()),
        ),
        Statement(
            "logs",
            f"{OURS}in configuration IV, as many are lost in phase {PHASES} as netem would drop (within a factor of "
            f"{LIKE_NETEM:g})",
            f"{ratio.min():.2f} to {ratio.max():.2f} times as many",
            bool(ratio.between(1 / LIKE_NETEM, LIKE_NETEM).all()),
        ),
        Statement(
            "logs",
            f"{OURS}in no phase are more lost than netem would drop (by over {100 * HARDLY_LOST:g} points)",
            f"at most {100 * beyond.max():.0f} points more",
            bool((beyond <= HARDLY_LOST).all()),
        ),
    ]


#: Prague's flows that join have their part if it is at least this much of what their number says.
THEIR_PART = 0.9
#: Configurations in which they have.
_WITH_JOINERS = ["I", "II", "III"]


def late(tables: Tables) -> list[Statement]:
    """PI2's controller with a late view of the queue, beside the logs and the switch's registers."""
    shares_, registers_ = (_named_by(tables[name], "late") for name in ("late", "late-registers"))
    errors = share_errors(shares_[shares_.configuration.isin(_WITH_JOINERS)])
    where = "configurations " + ", ".join(dict.fromkeys(errors.configuration))
    mean = register_means(registers_)
    delays = _off(mean, "drop_p50_ms")
    usual, *changed = dict.fromkeys(mean.system)
    statements = [
        _mostly_near("logs", f"{name}, {where}", part) for name, part in errors.groupby("system", sort=False)
    ]
    for name in changed:
        statements += _nearer(
            "registers",
            delays,
            (usual, name, f"{name!r}"),
            "the median drop delay nearer to the switch's",
            "ms",
        )
    statements += [_counted("drops", str(name), part) for name, part in mean.groupby("system", sort=False)]
    return [*statements, *_joiners(tables["joining"])]


def _joiners(joining: pd.DataFrame) -> list[Statement]:
    """Whether Prague's flows that join late get their part in the authors' logs."""
    part = joining.query("phase >= 3 and system in ['iRED', 'PI2']")
    of_number = part.joined_share / part.by_number
    usual = part.configuration.isin(_WITH_JOINERS)
    return [
        Statement(
            "logs",
            f"{OURS}in the authors' logs of configuration IV, Prague's flows that join in phases 3 and 4 do not get "
            "their part, neither under PI2 nor under iRED, where Cubic has a queue of its own; in the other "
            f"configurations they do (at least {100 * THEIR_PART:g} % of what their number says)",
            f"IV: {100 * of_number[~usual].min():.0f} to {100 * of_number[~usual].max():.0f} %, others: "
            f"{100 * of_number[usual].min():.0f} to {100 * of_number[usual].max():.0f} %",
            bool((of_number[~usual] < THEIR_PART).all() and (of_number[usual] >= THEIR_PART).all()),
        )
    ]


def _by_size(growth: pd.DataFrame, text: Callable[[pd.Series], str]) -> str:
    """A text for each configuration and packet size."""
    rows = growth.reset_index()
    return "; ".join(f"{row.configuration}, {row.mtu_bytes} bytes: {text(row)}" for _, row in rows.iterrows())


def _ratio(one: pd.Series, other: pd.Series) -> pd.Series:
    return pd.concat([one / other, other / one], axis=1).max(axis=1)


def shares(tables: Tables) -> list[Statement]:
    """Prague's share beside the authors' logs, phase by phase."""
    errors = share_errors(tables["logs"])
    logged = errors[errors.system == "iRED"]
    statements = []
    if len(logged):
        uneven = int((abs(logged.logged_share - 0.5) > EVEN).sum())
        statements.append(
            Statement(
                "logs",
                f"{OURS}in the authors' logs iRED's two queues do not give each class half the link: Prague's share is "
                f"more than {100 * EVEN:g} points off in at least a third of the phases",
                f"{uneven} of {len(logged)} phases, from {100 * logged.logged_share.min():.0f} to "
                f"{100 * logged.logged_share.max():.0f} %",
                3 * uneven >= len(logged),
            )
        )
    for system in BESIDE_LOGS:
        part = errors[errors.system == system]
        if len(part):
            statements.append(_mostly_near("logs", system, part))
    points = errors.assign(error=100 * errors.error)
    for variant in _VARIANTS:
        statements += _nearer(
            "logs", points, variant, "Prague's share nearer to the logs", "points", ["phase"]
        )
    return statements


def _mostly_near(about: str, what: str, errors: pd.DataFrame) -> Statement:
    """Whether Prague's share is near to the logs' in most phases."""
    return _in_most(
        about,
        f"{what}: Prague's share is within {100 * LIKE_THE_LOGS:g} points of the logs in at least nine phases of ten",
        errors.error <= LIKE_THE_LOGS,
        f"{100 * errors.error.mean():.1f} points off on average, at most {100 * errors.error.max():.0f}",
    )


_ONE_FOR_ALL = "one probability and one drop flag for both of iRED's queues"
_PUBLISHED_IRED = ("iRED", AS_PUBLISHED, _ONE_FOR_ALL)
_PUBLISHED_CODEL = (CODEL, CODEL_AS_PUBLISHED, "P4-CoDel's published program")
_PI2_UNITS = ("PI2", PI2_IN_UNITS, f"a target of {UNIT_TARGET_MS:g} ms for PI2")
_PI2_STRONG = ("PI2", "PI2, beta times 16", "a beta 16 times as high for PI2")
#: A system, a variant of it, and what makes it one.
_VARIANTS = (
    ("iRED", "iRED, coupled", "coupling iRED's two queues"),
    ("iRED", "iRED, one queue", "a single queue for iRED"),
    _PUBLISHED_IRED,
    _PUBLISHED_CODEL,
    _PI2_STRONG,
)


def _nearer(
    about: str,
    table: pd.DataFrame,
    variant_of: tuple[str, str, str],
    brings: str,
    unit: str,
    keys: Sequence[str] = (),
) -> list[Statement]:
    """Whether a variant has a smaller mean ``error`` than the usual system, where both were run."""
    usual, variant, what = variant_of
    part = table[table.system.isin([usual, variant])]
    wide = part.pivot_table(index=["configuration", "mtu_bytes", *keys], columns="system", values="error")
    both = wide.dropna()
    if not {usual, variant} <= set(wide) or both.empty:
        return []
    off = both.mean()
    return [
        Statement(
            about,
            f"{OURS}{what} brings {brings}",
            f"{usual} {off[usual]:.1f} {unit} off, {variant} {off[variant]:.1f}",
            bool(off[variant] < 0.95 * off[usual]),  # less is noise
        )
    ]


def registers(tables: Tables) -> list[Statement]:
    """Delays, drops and marks beside the switch's registers."""
    mean = register_means(tables["registers"])
    return [
        *_drop_delays(mean),
        *_counters(mean),
    ]


def _drop_delays(mean: pd.DataFrame) -> list[Statement]:
    known = mean.dropna(subset=["logged_drop_p50_ms"])
    known = _off(known, "drop_p50_ms")
    statements = []
    for system in ("PI2", "PI2, beta times 16", CODEL, CODEL_AS_PUBLISHED):
        part = known[known.system == system]
        if len(part):
            statements.append(
                Statement(
                    "registers",
                    f"{OURS}{system}: the median drop delay is within {DELAY_MS:g} ms of the switch's in every "
                    "configuration",
                    _farthest(part, "drop_p50_ms"),
                    bool((part.error <= DELAY_MS).all()),
                )
            )
    for where, part in (("in configuration I", known[known.configuration == "I"]), *_by_rate(known)):
        statements += _nearer(
            "registers", part, _PI2_STRONG, f"the drop delay nearer to the switch's {where}", "ms"
        )
    return statements


def _phase_delays(phases: pd.DataFrame) -> list[Statement]:
    statements = []
    for system in dict.fromkeys(phases.system):
        for what, column, limit_ms in (
            ("median", "qdelay_p50_ms", DELAY_MS), ("95th percentile", "qdelay_p95_ms", QDELAY_MS)
        ):  # fmt: skip
            part = phases[phases.system == system].dropna(subset=[column, f"logged_{column}"])
            if len(part):
                statements.append(
                    _in_most(
                        "registers",
                        f"{system}: the {what} of the queueing delay of packets that waited is within {limit_ms:g} ms "
                        "of the switch's in at least nine phases of ten",
                        _off(part, column).error <= limit_ms,
                        _farthest(part, column),
                    )
                )
    return statements


def _counters(mean: pd.DataFrame) -> list[Statement]:
    statements = []
    for what, systems in (
        ("marks", ("iRED", AS_PUBLISHED)),
        ("drops", ("iRED", AS_PUBLISHED, "PI2", "PI2, beta times 16", CODEL, CODEL_AS_PUBLISHED)),
    ):
        for system in systems:
            part = mean[mean.system == system].dropna(subset=[f"logged_{what}_per_s"])
            if len(part):
                statements.append(_counted(what, system, part))
    return statements


def _counted(what: str, system: str, part: pd.DataFrame) -> Statement:
    """Whether a counter is near to the switch's."""
    ratio = part[f"{what}_per_s"] / part[f"logged_{what}_per_s"]
    return Statement(
        "registers",
        f"{OURS}{system}: {what} are within a factor of {FACTOR:g} of the switch's in every configuration",
        f"{ratio.min():.2g} to {ratio.max():.2g} times the switch's",
        bool(ratio.between(1 / FACTOR, FACTOR).all()),
    )


def _farthest(part: pd.DataFrame, column: str) -> str:
    """How far ours are from the switch's, and where most."""
    off = _off(part, column)
    most = off.nlargest(1, "error").iloc[0]
    phase = f", phase {most.phase:g}" if "phase" in part else ""
    return (
        f"{off.error.mean():.1f} ms off on average, most in {most.configuration} with {most.mtu_bytes:g} bytes{phase}: "
        f"{most[column]:.1f} ms, switch {most[f'logged_{column}']:.1f} ms"
    )


def readings(tables: Tables) -> list[Statement]:
    """Which reading of Table 3 is the paper's; with ``table3``, also with the paper's own packets of 1500 bytes."""
    measured = tables["readings"]
    if "table3" in tables:
        third = tables["table3"]
        third = third[third.system.isin(PUBLISHED)].assign(source="simulator", mtu_bytes=1500)
        measured = pd.concat([third, measured], ignore_index=True)
    errors = reading_errors(measured)
    statements = []
    for source, words in (("logs", "the authors' logs"), ("simulator", "the simulator")):
        part = errors[errors.index.get_level_values("source") == source].droplevel("source")
        if part.empty:
            continue
        statements.append(
            Statement(
                "Table 3",
                f"{OURS}of the three readings of Table 3 in {words}, the difference over the whole run is nearest to "
                f"what the paper prints, by at least {NEARER:g} points",
                "points off on average: "
                + "; ".join(
                    f"{size:g} bytes: "
                    + ", ".join(f"{READING_NAMES[name]} {row[name]:.1f}" for name in READING_NAMES)
                    for size, row in part.iterrows()
                ),
                bool((part.drop(columns="whole_run").min(axis=1) - part.whole_run >= NEARER).all()),
            )
        )
    logged = tables["readings"][tables["readings"].source == "logs"]
    best = logged[logged.mtu_bytes == logged.mtu_bytes.max()]
    pairs = {
        f"{c}, {s}": (value, paper)
        for c, s, value, paper in zip(
            best.configuration, best.system, best.whole_run, best.paper, strict=True
        )
    }
    if pairs:
        statements.append(
            all_near(
                "Table 3", f"{OURS}the difference over the whole run in the authors' logs", pairs, within=POINTS,
                absolute=True, unit=" %", digits=1,
            )
        )  # fmt: skip
    return statements


def causes(tables: Tables) -> list[Statement]:
    """Which change affects PI2's numbers, and which comes closest to the paper's."""
    table, paper = tables["causes"], paper_differences()
    statements = []
    for configuration, part in table[table.system == "PI2"].groupby("configuration", sort=False):
        base = part[part.changed == "PI2 as above"].by_phase
        tried = part[part.changed != "PI2 as above"].groupby("changed", sort=False).by_phase.mean()
        if base.empty or len(tried) < 2:
            continue
        usual, given = Measured.over(base), paper[str(configuration), "PI2"]
        known = not math.isnan(usual.std)  # a single seed tells nothing about the spread
        fixed = tried.index.isin(FIXED)
        for what, some in (
            ("what the paper leaves open", tried[~fixed]),
            ("what the paper fixes", tried[fixed]),
        ):
            if some.empty:
                continue
            far, near = str((some - usual.mean).abs().idxmax()), str((some - given).abs().idxmin())
            moved = abs(float(some[far]) - usual.mean)
            statements.append(
                Statement(
                    "Table 3",
                    f"{OURS}configuration {configuration}: a change of {what} moves PI2's number by more than twice "
                    "the standard deviation over seeds",
                    f"from {usual.text(1)} to {some[far]:.1f} % with '{far}'; closest to the paper's {given:g} % is "
                    f"{some[near]:.1f} %, with '{near}'"
                    + ("" if known else "; a single seed has no standard deviation"),
                    known and moved > 2 * usual.std,
                )
            )
        statements += _drop_delay_of_causes(str(configuration), part)
    return statements


def _drop_delay_of_causes(configuration: str, part: pd.DataFrame) -> list[Statement]:
    """Whether a change of PI2's brings its drop delay to the switch's, with packets of 1500 bytes."""
    logged = logged_registers().query(
        "system == 'PI2' and mtu_bytes == 1500 and configuration == @configuration"
    )
    delays = part.groupby("changed", sort=False).drop_ms.mean()
    switch = float(logged.drop_p50_ms.iloc[0])
    nearest = str((delays - switch).abs().idxmin())
    return [
        Statement(
            "registers",
            f"{OURS}configuration {configuration}: one of the changes brings PI2's drop delay within {DELAY_MS:g} ms "
            "of the switch's",
            f"switch {switch:.1f} ms, '{part.changed.iloc[0]}' {delays.iloc[0]:.1f} ms, '{nearest}' "
            f"{delays[nearest]:.1f} ms",
            bool(abs(delays[nearest] - switch) <= DELAY_MS),
        )
    ]


def identification(tables: Tables) -> list[Statement]:
    """Whether a wrong identifier lets one sender take most of the link."""
    table = tables["identification"]
    share = table.groupby(["system", "senders", "identifier"]).second_share.mean()
    wrong = (
        ("Cubic; Prague whose DSCP was cleared", "dscp"),
        ("Cubic with ECN; Prague", "any_ect"),
        ("Cubic; DCTCP", "ect1"),
    )
    statements = []
    for senders, identifier in wrong:
        here = {s: share[s, senders, identifier] for s in PUBLISHED if (s, senders, identifier) in share}
        if here:
            statements.append(
                Statement(
                    "identification",
                    f"{OURS}'{senders}', identified by {_NAMES[identifier]}: the second sender takes over 70 % "
                    "under PI2",
                    ", ".join(f"{system} {100 * value:.0f} %" for system, value in here.items()),
                    bool(here["PI2"] > 0.7),
                )
            )
    return statements


_NAMES = {"ect1": "ECT(1)", "dscp": "DSCP", "any_ect": "any ECT"}


def uneven(tables: Tables) -> list[Statement]:
    """Queues by class are fair to classes, coupled queues and one queue to flows."""
    table = tables["uneven"]
    ratio = table.groupby(["flows", "system"], sort=False).scalable_over_classic.mean()
    statements = []
    for flows in dict.fromkeys(table.flows):
        classic, scalable = (int(n) for n in str(flows).split("-"))
        by_class = {s: ratio[flows, s] for s in ("iRED", "PI2, two queues") if (flows, s) in ratio}
        by_flow = {s: ratio[flows, s] for s in ("PI2", "DualPI2") if (flows, s) in ratio}
        if by_class:
            statements.append(
                Statement(
                    "uneven load",
                    f"{OURS}{flows} flows: with two queues served in turn, the flows of a class share its half "
                    f"of the link (scalable over classic {classic / scalable:.2g}, within 20 %)",
                    "; ".join(f"{s}: {value:.2g}" for s, value in by_class.items()),
                    all(abs(value * scalable / classic - 1) <= 0.2 for value in by_class.values()),
                )
            )
        if by_flow:
            statements.append(
                Statement(
                    "uneven load",
                    f"{OURS}{flows} flows: in one queue and in coupled queues, flows of both kinds get similar "
                    "shares (within a factor of 2.5)",
                    "; ".join(f"{s}: {value:.2g}" for s, value in by_flow.items()),
                    all(0.4 <= value <= 2.5 for value in by_flow.values()),
                )
            )
    return statements


#: How far simulator and kernel may be apart, in the quantity's unit.
_KERNEL_WITHIN = (("utilisation", 0.02), ("scalable share", 0.05), ("classic p50, ms", 2.0))


def kernel(tables: Tables) -> list[Statement]:
    """Whether simulator and kernel agree, and whether the paper's claims hold in the kernel."""
    table = tables["kernel"]
    keys = ["system", "configuration", "phase", "quantity"]
    wide = table.pivot_table(index=keys, columns="side", values="value", sort=False)
    statements = []
    for quantity, within in _KERNEL_WITHIN:
        part = wide.xs(quantity, level="quantity")
        off = (part.simulator - part.kernel).abs().groupby(level="system", sort=False)
        mean, most = off.mean(), off.max()
        statements.append(
            Statement(
                "kernel",
                f"{OURS}the simulator's {quantity} is within {within:g} of the kernel's on average, under every system",
                "; ".join(f"{s}: off by {mean[s]:.3f}, at most {most[s]:.3f}" for s in mean.index),
                bool((mean <= within).all()),
            )
        )
    uneven = (wide.xs("scalable share", level="quantity").kernel - 0.5).abs()
    uneven = 200 * uneven.groupby(level=["system", "configuration"], sort=False).mean()
    if {"iRED", "PI2"} <= set(uneven.index.get_level_values("system")):
        ired, pi2 = uneven.loc["iRED"], uneven.loc["PI2"]
        statements.append(
            Statement(
                "kernel",
                "in real Linux, too, iRED is closer to an even split than PI2 in every configuration",
                ", ".join(f"{c}: {ired[c]:.1f} % against {pi2[c]:.1f} %" for c in ired.index),
                bool((ired < pi2).all()),
            )
        )
    return statements


def netem(tables: Tables) -> list[Statement]:
    """Whether connections stall on real Linux, too, if netem at the receiver has its default room."""
    table = tables["netem"]
    stalls = table.assign(stalled=table.classic_stalled + table.scalable_stalled)
    statements = []
    for name, (packets, _) in NETEM.items():
        mine = stalls[stalls.netem == name]
        there = mine[mine.configuration == "IV"].groupby("system").stalled.sum()
        if packets == NETEM_PACKETS:
            if there.empty:  # nothing about where they stall
                continue
            claim = "connections stall on real Linux, too, in configuration IV and nowhere else"
            holds = (there > 0).all() and there.sum() == mine.stalled.sum()
        else:
            claim, holds = "no connection stalls on real Linux", not mine.stalled.any()
        room = name.replace("default", f"its default room of {NETEM_PACKETS} packets")
        statements.append(Statement("netem", f"{OURS}netem with {room}: {claim}", _stalls(mine), bool(holds)))
    return statements


def _stalls(table: pd.DataFrame) -> str:
    by = table.groupby(["configuration", "system"], sort=False).stalled.sum().reset_index()
    return ", ".join(f"{row.configuration}, {row.system}: {row.stalled}" for row in by.itertuples())


def paper_words() -> pd.Series:
    """The paper's words about figures 5 and 6, by setting."""
    numbers = paper_numbers("l4s-ired-pi2")
    return numbers[numbers["item"].isin(["Figure 5", "Figure 6"])].set_index("setting").note
