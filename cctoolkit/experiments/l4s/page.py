"""The parts of the L4S experiment's summary that are not statements: conditions and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from ..seeds import Measured, text_by
from .cases import Settings
from .conclusions import FIXED, READING_NAMES, netem_drops, paper_words
from .logs import PHASE_S, logged_pings, logged_recirculation, logged_registers
from .scenarios import (
    AS_PUBLISHED,
    BESIDE_LOGS,
    CLOCK_S,
    CODEL_AS_PUBLISHED,
    CONFIGURATIONS,
    DROPS_MTUS,
    MEANT,
    NETEM_PACKETS,
    PAIRS,
    PI2_IN_UNITS,
    SYSTEMS,
    VARIANTS,
)
from .tables import by_configuration, scalable_shares, share_errors, with_pings

Tables = Mapping[str, pd.DataFrame]

#: Rows of tables.
_BY_SIZE = ["configuration", "mtu_bytes"]
_BY_SYSTEM = ["system", *_BY_SIZE]


def about(settings: Settings) -> str:
    """The load and the systems."""
    systems = "; ".join(f"**{name}**: {s.what}" for name, s in (SYSTEMS | VARIANTS).items())
    return (
        f"Cubic (classic) and Prague (scalable), {' / '.join(f'{a}-{b}' for a, b in PAIRS)} flows in phases of "
        f"{settings.phase_s:g} s, {settings.seeds} seed{'s' * (settings.seeds > 1)} (± is the standard "
        f"deviation over them). Systems: {systems}."
    )


def main(settings: Settings, tables: Tables) -> list[str]:
    """Table 3 in three readings, shares beside the paper's words, drop delays, all phases."""
    third, phases = tables["table3"], tables["phases"]
    keys = ["configuration", "system"]
    rates = text_by(
        phases, [*keys, "phase"],
        {"classic, Mbit/s": ("classic_mbps", 1, 1), "scalable, Mbit/s": ("scalable_mbps", 1, 1),
         "scalable share, %": ("scalable_share", 100, 1), "utilisation, %": ("utilisation", 100, 1),
         "classic p50, ms": ("classic_p50_ms", 1, 2), "classic p99": ("classic_p99_ms", 1, 2),
         "scalable p50": ("scalable_p50_ms", 1, 2), "scalable p99": ("scalable_p99_ms", 1, 2)},
    )  # fmt: skip
    return [
        "### Table 3: difference between the goodput of Prague and Cubic, %",
        "The paper prints one number for each and no formula. Three readings: the mean of the four phases' "
        "differences, the difference over the whole run (a phase in which one class leads offsets one in "
        "which the other does), and the mean of each second's difference.",
        markdown_table(table_3(third)),
        "### The same by queues, by phase",
        "A scheduler that serves two queues in turn gives each class half the link as long as both have "
        "something to send, whichever algorithm drops.",
        markdown_table(by_configuration(third).reset_index().rename_axis(columns=None)),
        "### Figures 5 and 6",
        "The paper gives no numbers for them. Prague's share of the goodput in the four phases, in percent, "
        "and the paper's words:",
        markdown_table(shares_and_words(phases)),
        "### Figure 7: how long a drop takes, ms",
        "The paper prints no numbers; its box of iRED is the recirculation time, which the authors' logs have. "
        "In the simulator that is a parameter. Measured is the time from the decision until the next classic "
        "packet arrives and is dropped, and until the gap that it leaves comes out of the queue, which is when "
        "a receiver can notice. PI2 and DualPI2 drop a packet as it leaves: it has waited, but the gap is "
        "there at once. Medians, and in brackets the 5th and 95th percentiles.",
        markdown_table(drop_times(tables["drop-delay"]), labels=1),
        "### All phases",
        markdown_table(rates),
    ]


def drop_times(drops: pd.DataFrame) -> pd.DataFrame:
    """Figure 7: how long a drop takes in the simulator and on the authors' switch, in ms; a column a configuration."""
    simulated = drops.assign(
        what=[
            f"{system}: {'recirculation, given' if measure == 'recirculation' else measure}"
            for system, measure in zip(drops.system, drops.measure, strict=True)
        ]
    )
    notified = logged_recirculation()
    notified = notified.assign(
        what=[f"iRED, switch, {mtu} bytes: recirculation" for mtu in notified.mtu_bytes],
        **{f"{name}_ms": notified[f"recirculation_{name}_us"] / 1000 for name in ("p5", "median", "p95")},
    )
    register = logged_registers().query("system == 'PI2'")
    register = register.assign(
        what=[f"PI2, switch, {mtu} bytes: until the drop" for mtu in register.mtu_bytes],
        p5_ms=register.drop_p5_ms, median_ms=register.drop_p50_ms, p95_ms=register.drop_p95_ms,
    )  # fmt: skip
    rows: dict[str, dict[str, str]] = {}
    for table in (notified.sort_values("mtu_bytes"), register.sort_values("mtu_bytes"), simulated):
        for row in table.to_dict("records"):
            cell = f"{row['median_ms']:.3g} ({row['p5_ms']:.3g} to {row['p95_ms']:.3g})"
            if row["p5_ms"] == row["p95_ms"]:
                cell = f"{row['median_ms']:.3g}"
            rows.setdefault(row["what"], {"ms": row["what"]})[row["configuration"]] = cell
    names = [name for name in CONFIGURATIONS if name in set(drops.configuration)]
    return pd.DataFrame(rows.values())[["ms", *names]]


def table_3(third: pd.DataFrame) -> pd.DataFrame:
    """The differences in each reading beside the paper's, one row per configuration and system."""
    keys = ["configuration", "system"]
    shown = text_by(third, keys, {words: (reading, 1, 1) for reading, words in READING_NAMES.items()})
    paper = third.groupby(keys, sort=False).paper.first()
    shown.insert(2, "paper", [paper[c, s] for c, s in zip(shown.configuration, shown.system, strict=True)])
    return shown


def shares_and_words(phases: pd.DataFrame) -> pd.DataFrame:
    """Prague's share in each phase in percent, and the paper's words about it."""
    words, share, measured = paper_words(), 100 * scalable_shares(phases), set(phases.system)
    rows = []
    for configuration in dict.fromkeys(phases.configuration):
        for system in (name for name in (*MEANT, "iRED, one queue", "DualPI2") if name in measured):
            claim = ""
            if system in MEANT:
                both = words.get(f"configuration {configuration}, both", "")
                claim = words.get(f"configuration {configuration}, {MEANT[system]}", both)
            shares = {f"phase {n}": float(share[configuration, system, n]) for n in range(1, len(PAIRS) + 1)}
            rows.append(
                {"configuration": configuration, "system": system, **shares}
                | {"the paper": claim.removeprefix("no number; ")}
            )
    return pd.DataFrame(rows)


def logs(settings: Settings, tables: Tables) -> list[str]:
    """Prague's share by phase, registers and readings of Table 3, ours and the authors'."""
    return [
        "The authors published the goodput of each second, for packets of 400 and 800 bytes. Prague's share of the "
        "goodput in the four phases, in percent: the mean of the seeds, and of the logs.",
        markdown_table(shares_beside_logs(tables["logs"])),
        "### Registers of the switch",
        "In each pair the first number is the simulator's, the second the switch's. The drop delay is the median over "
        "the last packet dropped in each second; the authors publish none of iRED's, where a dropped packet does not "
        "wait.",
        markdown_table(registers_beside_switch(tables["registers"])),
        "### Table 3 in three readings",
        "Difference between both kinds in percent of the goodput: first the authors' logs, then the simulator.",
        markdown_table(readings_beside_paper(tables["readings"])),
    ]


def shares_beside_logs(logs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and packet size: the shares in the four phases, in percent."""
    errors = share_errors(logs)
    rows = []
    for (configuration, mtu_bytes), part in errors.groupby(["configuration", "mtu_bytes"], sort=False):
        row: dict[str, object] = {"configuration": configuration, "MTU": mtu_bytes}
        for system in (name for name in BESIDE_LOGS if name in set(part.system)):
            one = part[part.system == system].sort_values("phase")
            if "," not in system:
                row[f"{system}, logs"] = _percents(one.logged_share)
            row[f"{system}, simulator"] = _percents(one.scalable_share)
        rows.append(row)
    return pd.DataFrame(rows)


def published(settings: Settings, tables: Tables) -> list[str]:
    """Shares and registers of iRED as published, beside the authors'."""
    return [
        f"**{AS_PUBLISHED}**: {VARIANTS[AS_PUBLISHED].what}. Its probability is a counter that strives for one half "
        "above the lower threshold. Packets of 800 bytes; Prague's share of the goodput in the four phases, in "
        "percent.",
        markdown_table(shares_beside_logs(tables["published-logs"])),
        "The switch's registers; in each pair the first number is the simulator's.",
        markdown_table(registers_beside_switch(tables["published-registers"])),
    ]


def clock(settings: Settings, tables: Tables) -> list[str]:
    """Shares, registers and drops in the phases of P4-CoDel, beside the authors'."""
    return [
        f"**{CODEL_AS_PUBLISHED}**: {VARIANTS[CODEL_AS_PUBLISHED].what} every {CLOCK_S:.2f} s. Prague's share of the "
        "goodput in the four phases, in percent:",
        markdown_table(shares_beside_logs(tables["clock-logs"])),
        "The switch's registers; in each pair the first number is the simulator's.",
        markdown_table(registers_beside_switch(tables["clock-registers"])),
        "The seconds in which a packet was dropped, in percent, and the median delay of their last one, in the four "
        "phases:",
        markdown_table(drops_beside_switch(tables["clock-phases"])),
        "The queueing delay of packets that waited, in the four phases: median and 95th percentile. (The switch's "
        "register also has packets that did not pass the bottleneck.)",
        markdown_table(delays_beside_switch(tables["clock-phases"])),
    ]


def drops(settings: Settings, tables: Tables) -> list[str]:
    """Drops and marks of the published programs beside the switch's, with each change."""
    texts = ["Drops a second (and marks, where the switch counts them):"]
    for system in DROPS_MTUS:
        texts += [f"**{system}**:", markdown_table(drops_by_change(tables["drops"], system))]
        texts += ["Queueing delays in the four phases, medians in ms:"]
        texts += [markdown_table(delays_by_change(tables["drops-phases"], system))]
    return texts


def drops_by_change(drops: pd.DataFrame, system: str) -> pd.DataFrame:
    """One row per configuration and packet size: drops a second, and marks where the switch counts them."""
    wide = _by_change(drops[drops.system == system], _BY_SIZE, "changed", _counts, _SWITCH)
    return wide.rename(columns=lambda name: name.removeprefix(f"{system}, "))


def delays_by_change(phases: pd.DataFrame, system: str) -> pd.DataFrame:
    """One row per configuration and packet size: the median queueing delay in the four phases."""

    def medians(runs: pd.DataFrame, prefix: str) -> str:
        return _in_phases(runs.groupby("phase")[f"{prefix}qdelay_p50_ms"].mean(), 1)

    part = with_pings(phases[phases.system == system])
    wide = _by_change(part, _BY_SIZE, "changed", medians, _SWITCH | _PINGS)
    return wide.rename(columns=lambda name: name.removeprefix(f"{system}, "))


def _counts(runs: pd.DataFrame, prefix: str) -> str:
    """Drops a second, and marks where the switch counts them."""
    counted = [kind for kind in ("drops", "marks") if runs[f"logged_{kind}_per_s"].notna().all()]
    return "; ".join(f"{runs[f'{prefix}{kind}_per_s'].mean():.0f}" for kind in counted)


def delays(settings: Settings, tables: Tables) -> list[str]:
    """Queueing delays of iRED and PI2, beside the switch's."""
    return [
        "The queueing delay of packets that waited, in the four phases: median and 95th percentile. "
        f"**{PI2_IN_UNITS}**: {VARIANTS[PI2_IN_UNITS].what}.",
        markdown_table(delays_beside_switch(tables["delay-phases"])),
    ]


def delays_beside_switch(phases: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, packet size and system: queueing delays in the four phases, those of pings, too."""
    return _phases_beside_switch(
        with_pings(phases),
        {"median, ms": ("qdelay_p50_ms", 1, 1), "95 %, ms": ("qdelay_p95_ms", 1, 1)},
        _BESIDE | _PINGS,
    )


def drops_beside_switch(phases: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, packet size and system: when packets were dropped in the four phases."""
    return _phases_beside_switch(
        phases, {"seconds with drops, %": ("dropping", 100, 0), "drop delay, ms": ("drop_p50_ms", 1, 1)}
    )


#: Where a quantity is from, and what the name of its column begins with.
_SWITCH = {"switch": "logged_"}
_BESIDE = {"simulator": "", **_SWITCH}
_PINGS = {"pings": "pinged_"}


def _phases_beside_switch(
    phases: pd.DataFrame,
    columns: Mapping[str, tuple[str, float, int]],
    sources: Mapping[str, str] = _BESIDE,
) -> pd.DataFrame:
    """Means over the seeds in the four phases, by source; a quantity is a column, a factor, digits."""
    rows = []
    for key, part in phases.groupby(["configuration", "mtu_bytes", "system"], sort=False):
        row: dict[str, object] = dict(zip(("configuration", "MTU", "system"), key, strict=True))
        mean = part.groupby("phase").mean(numeric_only=True)
        for quantity, (column, factor, digits) in columns.items():
            for source, prefix in sources.items():
                row[f"{quantity}: {source}"] = _in_phases(factor * mean[f"{prefix}{column}"], digits)
        rows.append(row)
    return _in_order(pd.DataFrame(rows))


def _in_order(table: pd.DataFrame) -> pd.DataFrame:
    """By configuration, system and packet size, the longest first."""
    order = {name: rank for rank, name in enumerate(BESIDE_LOGS)}
    table = table.sort_values(["configuration", "MTU"], ascending=[True, False], kind="stable")
    return table.sort_values(
        ["configuration", "system"], key=lambda x: x.map(order) if x.name == "system" else x, kind="stable"
    )


def slow_start(settings: Settings, tables: Tables) -> list[str]:
    """Prague's growth in the logs beside two laws, and its shares beside the logs."""
    return [
        "Prague after slow start in the authors' logs of iRED, beside one packet in each round trip, and in each of at "
        "least 25 ms:",
        markdown_table(growth_beside_laws(tables["growth"])),
        "Prague's share of the goodput in phase 1, in percent, for different ends of slow start:",
        markdown_table(shares_by_slow_start(tables["slow-start"])),
    ]


def growth_beside_laws(growth: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and packet size."""
    return pd.DataFrame(
        {
            "configuration": growth.configuration,
            "MTU": growth.mtu_bytes,
            "least, Mbit/s": growth.lowest_mbps.map("{:.1f}".format),
            "after, s": growth.lowest_s,
            "growth in the next 5 s, Mbit/s per s": growth.first_growth.map("{:.1f}".format),
            "10 to 40 s later": growth.later_growth.map("{:.1f}".format),
            "a packet per round trip": growth.rtt_law.map("{:.1f}".format),
            "per virtual round trip": growth.virtual_law.map("{:.1f}".format),
        }
    )


def shares_by_slow_start(shares: pd.DataFrame) -> pd.DataFrame:
    """One row per system and configuration: the logs' share, and the simulator's for each end of slow start."""
    return _shares_by(shares, ["system", "configuration"], "slow_start")


def _shares_by(shares: pd.DataFrame, rows: list[str], columns: str) -> pd.DataFrame:
    """The logs' shares in the phases, and the simulator's in one column for each value of a column."""

    def in_phases(runs: pd.DataFrame, prefix: str) -> str:
        return _percents(runs.groupby("phase")[f"{prefix}share"].mean())

    shares = shares.rename(columns={"scalable_share": "share"})
    return _by_change(shares, rows, columns, in_phases, {"logs": "logged_"})


def _by_change(
    table: pd.DataFrame,
    rows: list[str],
    columns: str,
    text: Callable[[pd.DataFrame, str], str],
    sources: Mapping[str, str],
) -> pd.DataFrame:
    """What others measured, by source, and the simulator's in one column for each value of a column.

    `text` gets the runs of one row and value, and what the names of the source's columns begin with.
    """
    found = []
    for key, part in table.groupby(rows, sort=False):
        row: dict[str, object] = dict(zip(rows, key, strict=True))
        for name, runs in part.groupby(columns, sort=False):
            for source, prefix in sources.items():
                row.setdefault(source, text(runs, prefix))
            row[str(name)] = text(runs, "")
        found.append(row)
    return pd.DataFrame(found).rename(columns={"mtu_bytes": "MTU"})


def stalled(settings: Settings, tables: Tables) -> list[str]:
    """Connections that stalled in the authors' logs, and what the simulator has without them."""
    texts = [
        "Connections of Cubic and of Prague that stalled in the authors' logs, that is, sent in less than a quarter of "
        "the seconds, and the pings that were lost in the four phases; and what netem, which delays the receiver's "
        f"ACKs, would drop of them if it held {NETEM_PACKETS} packets, its default, with an ACK for every two "
        "packets:",
        markdown_table(stalls_by_system(tables["stalls"])),
    ]
    if "stalled" in tables:
        texts += [
            "Prague's share of the goodput in the four phases, in percent:",
            markdown_table(shares_by_connections(tables["stalled"])),
            "Drops a second (and marks, where the switch counts them):",
            markdown_table(counts_by_connections(tables["stalled-registers"])),
        ]
    return texts


def stalls_by_system(stalls: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and packet size, the fewest packets on the path first."""
    pings = logged_pings().set_index(_BY_SYSTEM)
    rows = []
    for (packets, configuration, mtu_bytes), part in stalls.groupby(
        ["path_packets", "configuration", "mtu_bytes"]
    ):
        dropped = netem_drops(pd.Series([packets]))[0]
        row: dict[str, object] = {
            "packets in a round trip": packets, "netem would drop, %": f"{100 * dropped:.0f}",
            "configuration": configuration, "MTU": mtu_bytes,
        }  # fmt: skip
        for system, one in part.groupby("system"):
            stalled_ = one.set_index("cca").stalled
            lost = 1 - pings.loc[[(system, configuration, mtu_bytes)]].sort_values("phase").answered / PHASE_S
            row[f"{system}: stalled"] = f"{stalled_['cubic']} and {stalled_['prague']}"
            row[f"{system}: pings lost, %"] = _percents(lost)
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def shares_by_connections(shares: pd.DataFrame) -> pd.DataFrame:
    """One row per system, configuration and packet size."""
    return _shares_by(shares, _BY_SYSTEM, "connections")


def counts_by_connections(registers: pd.DataFrame) -> pd.DataFrame:
    """One row per system, configuration and packet size: drops a second, and marks where the switch counts them."""
    return _by_change(registers, _BY_SYSTEM, "connections", _counts, _SWITCH)


def late(settings: Settings, tables: Tables) -> list[str]:
    """Shares and registers beside the authors', with each way in which PI2's controller may be late."""
    return [
        "Prague's share of the goodput in the four phases, in percent: in the authors' logs of PI2, and in the "
        "simulator if the controller sees the queue late.",
        markdown_table(shares_by_lateness(tables["late"])),
        "The switch's registers, and the simulator's: median drop delay in ms, and drops a second.",
        markdown_table(registers_by_lateness(tables["late-registers"])),
    ]


def shares_by_lateness(late: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and packet size."""
    return _shares_by(late, _BY_SIZE, "late")


def registers_by_lateness(registers: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and packet size: drop delay in ms; drops a second."""

    def delay_and_drops(runs: pd.DataFrame, prefix: str) -> str:
        mean = runs.mean(numeric_only=True)
        return f"{mean[f'{prefix}drop_p50_ms']:.1f}; {mean[f'{prefix}drops_per_s']:.0f}"

    return _by_change(registers, _BY_SIZE, "late", delay_and_drops, _SWITCH)


#: Columns of the registers: quantity, column, digits.
_REGISTERS = (
    ("drop delay, ms", "drop_p50_ms", 1),
    ("drops a second", "drops_per_s", 0),
    ("marks a second", "marks_per_s", 0),
)


def registers_beside_switch(registers: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, packet size and system: the simulator's number and the switch's."""
    keys = ["configuration", "mtu_bytes", "system"]
    rows = []
    for (configuration, mtu_bytes, system), part in registers.groupby(keys, sort=False):
        row: dict[str, object] = {"configuration": configuration, "MTU": mtu_bytes, "system": system}
        for quantity, column, digits in _REGISTERS:
            switch = part[f"logged_{column}"].iloc[0]
            ours = Measured.over(part[column]).text(digits)
            row[quantity] = f"{ours} / " + ("–" if pd.isna(switch) else f"{switch:.{digits}f}")
        rows.append(row)
    return _in_order(pd.DataFrame(rows))


def readings_beside_paper(readings: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, system and packet size: each reading in the logs and in the simulator."""
    rows = []
    for (configuration, system, mtu_bytes), part in readings.groupby(
        ["configuration", "system", "mtu_bytes"]
    ):
        logs, ours = part[part.source == "logs"], part[part.source == "simulator"]
        row: dict[str, object] = {
            "configuration": configuration, "system": system, "MTU": mtu_bytes, "paper": part.paper.iloc[0]
        }  # fmt: skip
        for reading, words in READING_NAMES.items():
            row[words] = f"{logs[reading].mean():.1f} / {Measured.over(ours[reading]).text(1)}"
        rows.append(row)
    return pd.DataFrame(rows)


def _percents(shares: pd.Series) -> str:
    return _in_phases(100 * shares, 0)


def _in_phases(values: pd.Series, digits: int) -> str:
    if values.isna().all():
        return "–"
    return " / ".join("–" if pd.isna(value) else f"{value:.{digits}f}" for value in values)


def causes(settings: Settings, tables: Tables) -> list[str]:
    """Differences and shares with each change."""
    return [
        "The paper does not say how long the control plane takes, what the hosts' network cards merge, or the "
        "formula of its table. *Swing* is the mean of the squared probability over the square of its mean, 1 "
        "for a constant one. Classic packets are dropped with the squared probability, so a probability that "
        "swings costs classic flows more than scalable ones. *Share* is the scalable class's.",
        markdown_table(changes(tables["causes"])),
    ]


def changes(why: pd.DataFrame) -> pd.DataFrame:
    """Differences, shares and drop delays, one row per configuration and change."""
    given = why.changed.map(lambda name: "fixes it" if name in FIXED else "leaves it open")
    given = given.where((why.changed != "PI2 as above") & (why.system == "PI2"), "")
    return text_by(
        why.assign(**{"the paper": given}).sort_values("configuration", kind="stable"),
        ["configuration", "changed", "the paper"],
        {f"{words}, %": (reading, 1, 1) for reading, words in READING_NAMES.items()}
        | {f"share in phase {n}, %": (f"phase_{n}_share", 100, 0) for n in range(1, len(PAIRS) + 1)}
        | {"swing, phase 1": ("probability_swing", 1, 1), "drop delay, ms": ("drop_ms", 1, 1)},
    )  # fmt: skip


def identification(settings: Settings, tables: Tables) -> list[str]:
    """Shares by sender and identifier."""
    identified = tables["identification"]
    shares = text_by(identified, ["system", "senders", "identifier"], {"share": ("second_share", 100, 0)})
    wide = shares.pivot_table(
        index=["system", "senders"], columns="identifier", values="share", aggfunc="first", sort=False
    )
    wide = wide.rename(
        columns={"ect1": "ECT(1), %", "dscp": "DSCP, %", "any_ect": "any ECT, %"}
    ).reset_index()
    return [
        f"Share of the second sender in percent, configuration {identified.configuration[0]}. ECT(1) is RFC "
        "9331's identifier; published programs look at a bit of the DSCP or at any ECN codepoint.",
        markdown_table(wide.rename_axis(columns=None)),
    ]


def uneven(settings: Settings, tables: Tables) -> list[str]:
    """Goodput of one flow of each kind."""
    table = tables["uneven"]
    shown = text_by(
        table, ["flows", "system"],
        {"a classic flow": ("classic_each_mbps", 1, 1), "a scalable flow": ("scalable_each_mbps", 1, 1),
         "scalable over classic": ("scalable_over_classic", 1, 2)},
    )  # fmt: skip
    return [
        "Half the link for each class is fair to flows only while both classes have equally many. Goodput of "
        f"one flow in configuration {table.configuration[0]} with more flows of one kind (classic-scalable), "
        "Mbit/s:",
        markdown_table(shown),
    ]


def kernel_beside_simulator(table: pd.DataFrame) -> pd.DataFrame:
    """Prague's share (or DCTCP's) of the bytes by phase, and delays over all phases: kernel / simulator."""
    import pandas as pd

    def beside(part: pd.DataFrame, digits: int, factor: float = 1.0) -> str:
        by = part.groupby("side").value.mean() * factor
        return f"{by.kernel:.{digits}f} / {by.simulator:.{digits}f}"

    rows = []
    for (configuration, system), part in table.groupby(["configuration", "system"], sort=False):
        of = dict(tuple(part.groupby("quantity")))
        row = {"configuration": configuration, "system": system}
        for phase, one in of["scalable share"].groupby("phase"):
            row[f"phase {phase}, %"] = beside(one, 0, 100)
        row["utilisation, %"] = beside(of["utilisation"], 1, 100)
        for kind in ("scalable", "classic"):
            row[f"{kind} p50, ms"] = beside(of[f"{kind} p50, ms"], 1)
            row[f"{kind} p99, ms"] = beside(of[f"{kind} p99, ms"], 1)
        row["classic lost, %"] = beside(of["classic lost, %"], 2)
        rows.append(row)
    return pd.DataFrame(rows)


def kernel(settings: Settings, tables: Tables) -> list[str]:
    """Kernel and simulator side by side."""
    compared = tables["kernel"]
    of = compared.iloc[0]
    phases = ", ".join(f"{p:g}" for p in sorted(compared.phase_s.unique()))
    return [
        f"The same in Linux {of.kernel} with {of.senders} as the scalable congestion control, next to the simulator, "
        f"measured by the same code from both taps: phases of {phases} s, {compared.seed.nunique()} seed(s). Share of "
        "the scalable flows in each phase, kernel / simulator:",
        markdown_table(kernel_beside_simulator(compared)),
    ]


def netem(settings: Settings, tables: Tables) -> list[str]:
    """Real Linux with netem at the receiver, beside the authors' logs."""
    table = tables["netem"]
    return [
        f"The load of the logs in Linux {table.kernel.iloc[0]}, in shorter phases. One netem at the receiver delays "
        f"all ACKs, as in the paper, with its default room of {NETEM_PACKETS} packets or room for all:",
        markdown_table(netem_beside_logs(table)),
    ]


def netem_beside_logs(table: pd.DataFrame) -> pd.DataFrame:
    """Connections that stalled: the logs, and each netem."""
    rows = []
    for key, part in table.groupby(_BY_SYSTEM, sort=False):
        row: dict[str, object] = dict(zip(_BY_SYSTEM, key, strict=True))
        by_netem = {str(name): one for name, one in part.groupby("netem", sort=False)}
        sources = {"logs": ("logged_", by_netem["default"])} | {
            name: ("", one) for name, one in by_netem.items()
        }
        for name, (prefix, one) in sources.items():
            cubic, prague = (int(one[f"{prefix}{kind}_stalled"].sum()) for kind in ("classic", "scalable"))
            row[f"stalled: {name}"] = f"{cubic} and {prague}"
        rows.append(row)
    return pd.DataFrame(rows).rename(columns={"mtu_bytes": "MTU"})
