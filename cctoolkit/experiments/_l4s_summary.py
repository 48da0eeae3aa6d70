"""The L4S experiment's summary: what was measured beside what the paper says, in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from ._folder import markdown_table
from .l4s import PAIRS, PUBLISHED, SYSTEMS
from .papers import paper_numbers

if TYPE_CHECKING:
    from .l4s import Settings

__all__ = ["blocks", "kernel_blocks"]


def _spread(values: pd.Series, digits: int = 1) -> str:
    """Mean and, of several, standard deviation."""
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else mean


def _by(table: pd.DataFrame, keys: list[str], columns: Mapping[str, tuple[str, float, int]]) -> pd.DataFrame:
    """Means and deviations over seeds as text: new name, then column, factor and digits."""
    groups = table.groupby(keys, sort=False)
    return pd.DataFrame(
        dict(zip(keys, key, strict=True))
        | {new: _spread(part[old] * factor, digits) for new, (old, factor, digits) in columns.items()}
        for key, part in groups
    )


def _wide(third: pd.DataFrame) -> pd.DataFrame:
    """Table 3 by phase, the seeds' mean: a row a configuration, a column a system."""
    return third.pivot_table(index="configuration", columns="system", values="by_phase", sort=False)[
        list(SYSTEMS)
    ]


def _shapes(phases: pd.DataFrame, third: pd.DataFrame, drops: pd.DataFrame) -> str:
    """What the paper reports and RFC 9332 promises, held against what was measured."""
    both = _wide(third)
    closer = both.index[both["iRED"] < both["PI2"]]
    median = drops.pivot_table(
        index="configuration", columns=["system", "measure"], values="median_ms", sort=False
    )
    faster = median.index[median["iRED", "until the drop"] < median["PI2", "until the drop"]]
    late = median["iRED", "until the gap leaves"].max()
    worst = phases[phases.system == "DualPI2"].scalable_p99_ms.max()
    most = phases[phases.phase == phases.phase.max()]
    used = most.pivot_table(index="configuration", columns="system", values="utilisation", sort=False)
    lines = (
        ("iRED is closer to an even split than PI2 in one queue", len(closer) == len(both),
         f"configurations {', '.join(closer) or 'none'} of {', '.join(both.index)}"),
        ("iRED takes less time to drop than PI2", len(faster) == len(median),
         f"configurations {', '.join(faster) or 'none'}; but the gap leaves the queue {late:.0f} ms later, median"),
        ("PI2's drops cost link time, iRED's do not", bool((used["iRED"] > used["PI2"]).all()),
         f"last phase: PI2 uses {100 * used['PI2'].mean():.1f} %, iRED {100 * used['iRED'].mean():.1f} % of the link"),
        ("under DualPI2 99 % of the L4S packets wait less than 2 ms", worst < 2,
         f"at most {worst:.2f} ms in any phase, configuration and seed"),
    )  # fmt: skip
    return "\n".join(f"- {'**yes**' if there else '**no**'}: {what} ({how})." for what, there, how in lines)


def blocks(
    settings: Settings,
    phases: pd.DataFrame,
    third: pd.DataFrame,
    drops: pd.DataFrame,
    why: pd.DataFrame,
    identified: pd.DataFrame,
    uneven: pd.DataFrame,
) -> list[str]:
    """The summary, in Markdown."""
    by_phase = {
        "by phase": ("by_phase", 1, 2),
        "whole run": ("whole_run", 1, 2),
        "each second": ("each_second", 1, 2),
    }
    shown = _by(third, ["configuration", "system"], by_phase)
    paper = third.groupby(["configuration", "system"], sort=False).paper.first()
    shown.insert(2, "paper", [paper[c, s] for c, s in zip(shown.configuration, shown.system, strict=True)])
    rates = _by(
        phases,
        ["configuration", "system", "phase"],
        {"classic, Mbit/s": ("classic_mbps", 1, 1), "scalable, Mbit/s": ("scalable_mbps", 1, 1),
         "scalable share, %": ("scalable_share", 100, 1), "utilisation, %": ("utilisation", 100, 1),
         "classic p50, ms": ("classic_p50_ms", 1, 2), "classic p99": ("classic_p99_ms", 1, 2),
         "scalable p50": ("scalable_p50_ms", 1, 2), "scalable p99": ("scalable_p99_ms", 1, 2)},
    )  # fmt: skip
    reasons = _by(
        why.sort_values("configuration", kind="stable"),
        ["configuration", "changed"],
        {"by phase, %": ("by_phase", 1, 1), "whole run": ("whole_run", 1, 1), "each second": ("each_second", 1, 1)}
        | {f"share in phase {n}, %": (f"phase_{n}_share", 100, 0) for n in range(1, len(PAIRS) + 1)}
        | {"swing, phase 1": ("probability_swing", 1, 1)},
    )  # fmt: skip
    told = _by(identified, ["system", "senders", "identifier"], {"share": ("second_share", 100, 0)})
    told = told.pivot_table(
        index=["system", "senders"], columns="identifier", values="share", aggfunc="first", sort=False
    )
    told = told.rename(
        columns={"ect1": "ECT(1), %", "dscp": "DSCP, %", "any_ect": "any ECT, %"}
    ).reset_index()
    unequal = _by(
        uneven,
        ["flows", "system"],
        {"a classic flow": ("classic_each_mbps", 1, 1), "a scalable flow": ("scalable_each_mbps", 1, 1),
         "scalable over classic": ("scalable_over_classic", 1, 2)},
    )  # fmt: skip
    queues = _wide(third)
    apart = queues[["iRED", "PI2, two queues"]].max().max()
    together = queues[["iRED, one queue", "PI2"]].min().min()
    systems = "; ".join(f"**{name}**: {s.what}" for name, s in SYSTEMS.items())
    return [
        f"Cubic (classic) and Prague (scalable), {' / '.join(f'{a}-{b}' for a, b in PAIRS)} flows in phases of "
        f"{settings.phase_s:g} s, {settings.seeds} seed{'s' * (settings.seeds > 1)} "
        f"(± is the standard deviation over them). Systems: {systems}.",
        "## Shapes that have to appear",
        _shapes(phases, third, drops),
        "## Table 3: difference of the bandwidth of Prague and Cubic, %",
        "The paper prints one number for each and no formula. Three readings: the mean of the four phases' "
        "differences, the difference over the whole run (phases in which one leads make up for those in which the "
        "other does), the mean of each second's difference.",
        markdown_table(shown),
        "### What makes the difference: the queues",
        f"With two queues served in turn the two classes are at most {apart:.1f} % apart (by phase), whichever "
        f"algorithm decides; in one queue at least {together:.1f} %, iRED as well as PI2. So it is the second queue "
        "that makes iRED fair here, not its way of dropping: a scheduler that serves both in turn gives both half the "
        "link as long as both have something to send.",
        markdown_table(queues.reset_index()),
        "Half the link for a class is fair to flows only while both classes have as many. What one flow gets in "
        f"configuration {uneven.configuration[0]} with more of one kind (classic-scalable), Mbit/s:",
        markdown_table(unequal),
        "### What else: one thing changed at a time",
        "*Swing* is the mean of the squared probability over the square of its mean, 1 for one that stands still. "
        "Classic packets are dropped with the square, so a probability that swings costs classic flows more than "
        "scalable ones; with few flows it swings most. *Share* is the scalable class's.",
        markdown_table(reasons),
        "### Where the paper has other numbers",
        "What the paper does not say (how long the control plane takes, what the hosts' network cards put together, "
        "the formula of the table) moves PI2's numbers more than the seeds do:",
        _differences(third, phases, why),
        "## Figures 5 and 6 in words",
        "The paper has no numbers for them. Beside its words: Prague's share of the goodput in the four phases, %.",
        markdown_table(_in_words(phases)),
        "## Figure 7: how long a drop takes, ms",
        "The paper prints no numbers. iRED's recirculation is a parameter here, not a measurement; what is measured "
        "is the time from the decision until the next classic packet comes and is dropped, and until the gap it leaves "
        "comes out of the queue, which is when a receiver can notice. PI2 and DualPI2 drop a packet as it leaves: it "
        "has waited, but the gap is there at once.",
        markdown_table(drops),
        f"## Who is taken for scalable: share of the second sender, %, configuration {identified.configuration[0]}",
        "ECT(1) is RFC 9331's identifier; published programs look at a bit of the DSCP or at any ECN codepoint.",
        markdown_table(told),
        "## All phases",
        markdown_table(rates),
    ]


def _differences(third: pd.DataFrame, phases: pd.DataFrame, why: pd.DataFrame) -> str:
    """Where the paper has other numbers, and which of the changes that were tried comes nearest to them."""
    lines = []
    for (configuration, system), part in third[third.paper.notna()].groupby(
        ["configuration", "system"], sort=False
    ):
        paper = float(part.paper.iloc[0])
        line = f"- Configuration {configuration}, {system}: {_spread(part.by_phase)} by phase, the paper {paper:g}."
        tried = why[
            (why.configuration == configuration)
            & (why.system == system)
            & (why.changed != f"{system} as above")
        ]
        means = tried.groupby("changed").by_phase.mean()
        if len(means) > 1:
            nearest = str((means - paper).abs().idxmin())
            line += (
                f" One change moves it to between {means.min():.1f} ({means.idxmin()}) and {means.max():.1f} "
                f"({means.idxmax()}); nearest to the paper is {means[nearest]:.1f} ({nearest})."
            )
        elif len(means):
            line += f" With one change ({means.index[0]}) it is {means.iloc[0]:.1f}."
        lines.append(line)
    first = 100 * phases[phases.phase == 1].groupby(["configuration", "system"]).scalable_share.mean()
    if ("IV", "iRED") in first:
        lines.append(
            "- Configuration IV, phase 1: the paper sees Prague fall back under both systems. Here its share is "
            f"{first['IV', 'PI2']:.0f} % under PI2 and {first['IV', 'iRED, one queue']:.0f} % under iRED in one queue, "
            f"where Cubic's slow start fills what Prague waits in, but {first['IV', 'iRED']:.0f} % under iRED with a "
            "queue of its own for Prague: two queues served in turn would not show what the paper reports."
        )
    return "\n".join(lines)


def _in_words(phases: pd.DataFrame) -> pd.DataFrame:
    """What the paper says of its figures 5 and 6 beside the shares of Prague in the four phases."""
    numbers = paper_numbers("l4s-ired-pi2")
    words = numbers[numbers["item"].isin(["Figure 5", "Figure 6"])].set_index("setting").note
    share = 100 * phases.groupby(["configuration", "system", "phase"]).scalable_share.mean()
    rows = []
    for configuration in dict.fromkeys(phases.configuration):
        for system in (*PUBLISHED, "iRED, one queue", "DualPI2"):
            said = words.get(f"configuration {configuration}, {system}", "")
            if system in PUBLISHED and not said:
                said = words[f"configuration {configuration}, both"]
            shares = {f"phase {n}": float(share[configuration, system, n]) for n in range(1, len(PAIRS) + 1)}
            rows.append(
                {"configuration": configuration, "system": system} | shares
                | {"the paper": said.removeprefix("no number; ")}
            )  # fmt: skip
    return pd.DataFrame(rows)


def kernel_blocks(compared: pd.DataFrame) -> list[str]:
    shown = compared.pivot_table(
        index=["configuration", "phase", "quantity"], columns="side", values="value", sort=False
    )[["kernel", "simulator"]]
    return [
        "## DualPI2 in the Linux kernel",
        "The kernel's own `dualpi2` with CUBIC and DCTCP (which is what Linux has; it is told to take DCTCP's ECT(0) "
        "for the low-latency queue), and the simulator's model of it, measured by the same code from both taps: "
        f"Linux {compared.kernel[0]}, phases of {compared.phase_s[0]:g} s, one run on each side.",
        markdown_table(shown.reset_index().rename_axis(columns=None)),
    ]
