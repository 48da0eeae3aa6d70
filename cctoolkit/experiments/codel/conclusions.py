"""Statements about the P4-CoDel experiment's tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..papers import paper_numbers
from ..seeds import Measured
from ..statements import OURS, Statement, all_near, near
from .scenarios import CLOCK_STEPS, KERNEL, KERNEL_TARGETS
from .tables import npu_off_by, paper_table_1

Tables = Mapping[str, pd.DataFrame]

#: Names of targets that take an article.
_THE = {KERNEL: f"the {KERNEL}"}

#: Tolerances, as fractions of the paper's numbers. Losses are a few dozen packets, so they get more.
DELAY_WITHIN, LOSS_WITHIN, NPU_WITHIN = 0.1, 0.2, 0.2


def _flows(n: int) -> str:
    return f"{n} flow{'s' if n > 1 else ''}"


def _percent(change: float) -> str:
    """A change with its sign; anything that rounds to zero is +0 %."""
    return f"{round(100 * change, 0) + 0.0:+.0f} %"


def _paper(item: str, setting: str) -> float:
    numbers = paper_numbers("p4-codel", item)
    return float(numbers.loc[numbers.setting == setting, "paper"].iloc[0])


def _pairs(table: pd.DataFrame, quantity: str, paper: str) -> dict[str, tuple[Measured, float]]:
    """By number of flows: mean and standard deviation over the seeds, and the paper's number."""
    return {
        _flows(int(row["flows"])): (Measured(row[quantity], row[f"{quantity}_std"]), row[paper])
        for row in table.sort_values("flows").to_dict("records")
    }


def figure_5(tables: Tables) -> list[Statement]:
    """One flow: the first burst, and delays below the target. Three: who is like whom, and the NPU's noise."""
    one = tables["figure5"].query("flows == 1 and target in ('Linux', 'P4-NPU', 'P4-ASIC')")
    burst_ms = _paper("Figure 5", "1 flow, all targets, initial burst")
    low, high = one.initial_peak_ms.min(), one.initial_peak_ms.max()
    share = one.share_below_target_after
    return [
        Statement(
            "Figure 5",
            f"1 flow: the first burst peaks slightly above {burst_ms:g} ms ({0.8 * burst_ms:g} to "
            f"{1.5 * burst_ms:g} ms)",
            f"{low:.1f} to {high:.1f} ms",
            bool(low > 0.8 * burst_ms and high < 1.5 * burst_ms),
        ),
        Statement(
            "Figure 5",
            "1 flow: the delay repeatedly falls below 5 ms (for over 10 % of the packets)",
            f"{100 * share.min():.0f} to {100 * share.max():.0f} % of the packets",
            bool(share.min() > 0.1),
        ),
        *_three_flows(tables["figure5"].query("flows == 3").set_index("target")),
    ]


def _three_flows(three: pd.DataFrame) -> list[Statement]:
    """Figure 5(b), from one run on each target."""
    mean_ms, peak_ms = three.mean_ms, three.peak_after_ms
    return [
        Statement(
            "Figure 5",
            "3 flows: the ASIC's latency is similar to Linux's (means within 10 %)",
            f"{mean_ms['P4-ASIC']:.2f} ms against {mean_ms['Linux']:.2f} ms",
            bool(abs(mean_ms["P4-ASIC"] - mean_ms["Linux"]) <= 0.1 * mean_ms["Linux"]),
        ),
        Statement(
            "Figure 5",
            "3 flows: the NPU's latency is noisier than the others' (peaks higher after the first half second)",
            ", ".join(f"{name} {peak_ms[name]:.1f} ms" for name in ("P4-NPU", "P4-ASIC", "Linux")),
            bool(peak_ms["P4-NPU"] > max(peak_ms["P4-ASIC"], peak_ms["Linux"])),
        ),
    ]


def _asic_over_linux_ms() -> float:
    """By how much the ASIC's mean latency with three flows is above Linux's in the paper."""
    three = paper_table_1().query("flows == 3").set_index("target").paper_delay_ms
    return float(three["P4-ASIC"] - three["Linux"])


def table_1(tables: Tables) -> list[Statement]:
    """Loss and latency beside the paper's, and the paper's claims about them."""
    table, runs = tables["table1"], tables["table1_runs"]
    paper_ms = table.paper_delay_ms.dropna()
    lowest_ms, most_ms = math.floor(paper_ms.min()), math.ceil(paper_ms.max())
    papers = set(paper_table_1().target)
    statements = []
    for name, mine in table.groupby("target", sort=False):
        ours = "" if KERNEL_TARGETS.get(str(name), name) in papers else OURS
        delay, loss = mine.mean_delay_ms.tolist(), mine.loss_percent.tolist()
        statements.append(
            Statement(
                "Table I",
                f"{OURS}{name}: mean latency is between {lowest_ms} and {most_ms} ms",
                ", ".join(f"{ms:.2f}" for ms in delay) + " ms",
                min(delay) >= lowest_ms and max(delay) <= most_ms,
            )
        )
        statements.append(
            Statement(
                "Table I",
                f"{ours}{name}: loss rises with the number of flows",
                ", ".join(f"{percent:.2f}" for percent in loss) + " %",
                loss == sorted(loss) and loss[0] < loss[-1],
            )
        )
        if mine.paper_delay_ms.notna().all():
            latency = _pairs(mine, "mean_delay_ms", "paper_delay_ms")
            statements.append(
                all_near("Table I", f"{ours}{name}: mean latency", latency, within=DELAY_WITHIN, unit=" ms")
            )
            losses = _pairs(mine, "loss_percent", "paper_loss_percent")
            statements.append(
                all_near("Table I", f"{ours}{name}: loss", losses, within=LOSS_WITHIN, unit=" %", digits=3)
            )
    return [
        *statements,
        *_linux_loses_least("Table I", table),
        *_published("Table I", table),
        *_asic_above(runs),
        *_first_second(table),
    ]


def minute(tables: Tables) -> list[Statement]:
    """What remains of table I when slow start no longer counts."""
    about, table = "Table I over a minute", tables["table1_minute"]
    return [*_linux_loses_least(about, table), *_published(about, table)]


def _linux_loses_least(about: str, table: pd.DataFrame) -> list[Statement]:
    """Whether both P4 targets lose more than Linux."""
    names = ["P4-NPU", "P4-ASIC"]
    if not {"Linux", *names} <= set(table.target):
        return []
    wide = table.pivot_table(index="flows", columns="target", values="loss_percent")
    p4 = wide[names]
    says = "; ".join(
        f"{_flows(int(n))}: Linux {wide['Linux'][n]:.3f}, "
        + ", ".join(f"{name} {percent:.3f}" for name, percent in p4.loc[n].items())
        for n in wide.index
    )
    return [
        Statement(
            about,
            "Linux loses least, with 1, 2 and 3 flows",
            f"{says} %",
            bool((wide["Linux"] < p4.min(axis=1)).all()),
        )
    ]


def _published(about: str, table: pd.DataFrame) -> list[Statement]:
    """Whether the ASIC's losses are those of Listing 2 or of the published program."""
    by = table.set_index(["target", "flows"])
    names = ("P4-ASIC", "P4-ASIC, published")
    if not set(names) <= set(table.target):
        return []
    ratios = [(by.loc[name].loss_percent / by.loc[name].paper_loss_percent).to_numpy(float) for name in names]
    with np.errstate(divide="ignore"):  # without losses it is infinitely far off
        listing, published = (float(np.exp(np.abs(np.log(ratio)).mean())) for ratio in ratios)
    return [
        Statement(
            about,
            f"{OURS}the published program's losses are closer to the ASIC's in the paper than Listing 2's",
            f"Listing 2 is off by a factor of {listing:.2f}, the published program by {published:.2f} "
            "(geometric mean)",
            published < listing,
        )
    ]


def _asic_above(runs: pd.DataFrame) -> list[Statement]:
    """With three flows the ASIC's latency is above Linux's, seed by seed."""
    statements = []
    wide = runs.query("flows == 3").pivot_table(
        index="seed", columns="target", values=["mean_delay_ms", "later_delay_ms"]
    )
    for quantity, when, ours in (
        ("mean_delay_ms", "", ""),
        ("later_delay_ms", ", after the first second", OURS),
    ):
        for asic, name, where in (
            ("P4-ASIC", "Linux", ""),
            ("P4-ASIC", KERNEL, ""),
            (f"{KERNEL}, P4-ASIC", KERNEL, "both in the kernel, "),
        ):
            if not {asic, name} <= set(wide[quantity]):
                continue
            more = (wide[quantity][asic] - wide[quantity][name]).dropna()
            error = more.std(ddof=1) / len(more) ** 0.5
            statements.append(
                Statement(
                    "Table I",
                    f"{ours}3 flows{when}: {where}the ASIC's mean latency is above that of {_THE.get(name, name)}",
                    f"{more.mean():+.2f} ± {error:.2f} ms (mean and standard error over {len(more)} seeds)",
                    bool(more.mean() > 2 * error),
                )
            )
            if (quantity, asic, name) == ("mean_delay_ms", "P4-ASIC", "Linux"):
                statements.append(
                    near(
                        "Table I", "3 flows: the difference of the ASIC's and Linux's mean latencies",
                        float(more.mean()), round(_asic_over_linux_ms(), 2), within=DELAY_WITHIN, unit=" ms",
                    )
                )  # fmt: skip
    return statements


def _first_second(table: pd.DataFrame) -> list[Statement]:
    """How much of the mean latency of three flows is the first burst."""
    three = table[table.flows == 3]
    less = 1 - three.later_delay_ms / three.mean_delay_ms
    return [
        Statement(
            "Table I",
            f"{OURS}3 flows: without the first second the mean latency is at least 5 % lower on every target",
            "; ".join(f"{name}: {100 * part:.0f} %" for name, part in zip(three.target, less, strict=True)),
            bool((less >= 0.05).all()),
        )
    ]


def figure_7(tables: Tables) -> list[Statement]:
    """Where UDP's delay rises, and how far."""
    table = tables["figure7"]
    rise = _paper("Figure 7", "all targets")
    regular = table.query("arrivals == 'cbr'")
    statements = []
    for name, mine in regular.groupby("target", sort=False):
        below = mine[mine.rate_mbps <= 0.95 * rise].mean_delay_ms
        above = mine[mine.rate_mbps > rise].mean_delay_ms
        statements.append(
            Statement(
                "Figure 7",
                f"{name}: UDP's delay rises at {rise:g} Mbit/s (below 1 ms up to {0.95 * rise:g} Mbit/s, above 5 "
                f"ms beyond {rise:g} Mbit/s)",
                f"at most {below.max():.2f} ms up to {0.95 * rise:g} Mbit/s, at least {above.min():.1f} ms "
                f"beyond {rise:g} Mbit/s",
                bool(below.max() < 1 and above.min() > 5),
            )
        )
    linux = regular[regular.target == "Linux"].set_index("rate_mbps").mean_delay_ms
    slow, fast = linux.index.min(), linux.index[linux.index <= 0.95 * rise].max()
    statements.append(
        Statement(
            "Figure 7",
            f"Linux: the latency is increased at small rates (at {slow:g} Mbit/s, above that at {fast:g} Mbit/s)",
            f"{linux[slow]:.2f} ms against {linux[fast]:.2f} ms",
            bool(linux[slow] > linux[fast]),
        )
    )
    npu = _paper("Figure 7", "P4-NPU")
    early = regular[(regular.target == "P4-NPU") & (regular.rate_mbps >= npu) & (regular.rate_mbps < rise)]
    statements.append(
        Statement(
            "Figure 7",
            f"P4-NPU: the delay rises as early as {npu:g} Mbit/s (above 1 ms from there on)",
            ", ".join(f"{r.mean_delay_ms:.2f} ms at {r.rate_mbps:g} Mbit/s" for r in early.itertuples()),
            bool((early.mean_delay_ms > 1).all()),
        )
    )
    around = table[(table.target == "Linux") & (table.rate_mbps >= npu) & (table.rate_mbps < rise)]
    by = around.pivot_table(index="rate_mbps", columns="arrivals", values="mean_delay_ms")
    statements.append(
        Statement(
            "Figure 7",
            f"{OURS}below the shaping rate, a queue forms only if packets are spaced unevenly (from {npu:g} "
            "Mbit/s on, above 0.5 ms with Poisson arrivals and below 0.1 ms with constant spacing)",
            "; ".join(
                f"{row['poisson']:.2f} and {row['cbr']:.2f} ms at {rate:g} Mbit/s"
                for rate, row in by.iterrows()
            ),
            bool((by.poisson > 0.5).all() and (by.cbr < 0.1).all()),
        )
    )
    first = regular[regular.rate_mbps > rise].rate_mbps.min()
    there = regular[regular.rate_mbps == first].set_index("target").mean_delay_ms
    others = there.drop("P4-ASIC")
    statements.append(
        Statement(
            "Figure 7",
            f"{OURS}just above the shaping rate, the ASIC lets the queue grow and the others keep it short (at "
            f"{first:g} Mbit/s, more than 1.5 times their delay)",
            f"P4-ASIC {there['P4-ASIC']:.1f} ms; "
            + ", ".join(f"{name} {ms:.1f} ms" for name, ms in others.items()),
            bool(there["P4-ASIC"] > 1.5 * others.max()),
        )
    )
    return statements


def different_rtts(tables: Tables) -> list[Statement]:
    """Who gets how much when RTTs differ."""
    table = tables["rtts"]
    wide: Any = table.pivot_table(
        index="rtts_ms", columns="target", values=["share_1", "jain_index"], sort=False
    )
    targets = [name for name in wide["share_1"] if name != "fq_codel"]
    apart = wide["share_1"][targets].max(axis=1) - wide["share_1"][targets].min(axis=1)
    fair, others = wide["jain_index"]["fq_codel"].iloc[-1], wide["jain_index"][targets].iloc[-1]
    return [
        Statement(
            "RTTs",
            f"{OURS}the three targets treat far flows alike (the nearest flow's share differs by less than 0.1)",
            "; ".join(f"{value:.2f} with RTTs of {rtts} ms" for rtts, value in apart.items()),
            bool((apart < 0.1).all()),
        ),
        Statement(
            "RTTs",
            f"{OURS}only a queue per flow makes shares equal (RTTs of {wide.index[-1]} ms: Jain's index above "
            "0.95 with it, below 0.9 without)",
            f"fq_codel {fair:.2f}; " + ", ".join(f"{name} {index:.2f}" for name, index in others.items()),
            bool(fair > 0.95 and others.max() < 0.9),
        ),
    ]


def flow_queueing(tables: Tables) -> list[Statement]:
    """What a queue per flow changes for a call, for shares, for a flood and for a far flow."""
    statements = []
    for target, part in tables["fq_codel"].groupby("target", sort=False):
        where = "" if target == "simulator" else f"{target}: "
        by = part.set_index(["load", "queues"])
        loads = list(dict.fromkeys(part.load))
        call = {
            load: (by["call delay_ms"][load, "fq_codel"], by["call delay_ms"][load, "CoDel"])
            for load in loads
        }
        jain = {load: (by.jain_index[load, "fq_codel"], by.jain_index[load, "CoDel"]) for load in loads}
        far = {
            load: (by["40 ms delay_ms"][load, "fq_codel"], by["1 ms delay_ms"][load, "fq_codel"])
            for load in loads
        }
        statements += [
            Statement(
                "fq_codel",
                f"{OURS}{where}with a queue per flow, a call waits less than a tenth as long as with CoDel",
                "; ".join(
                    f"{load}: {mine:.2f} ms against {other:.1f} ms" for load, (mine, other) in call.items()
                ),
                all(mine < 0.1 * other for mine, other in call.values()),
            ),
            Statement(
                "fq_codel",
                f"{OURS}{where}a queue per flow gives flows equal shares (Jain's index above 0.95; lower with CoDel)",
                "; ".join(f"{load}: {mine:.2f} against {other:.2f}" for load, (mine, other) in jain.items()),
                all(mine > 0.95 and mine > other for mine, other in jain.values()),
            ),
            Statement(
                "fq_codel",
                f"{OURS}{where}with a queue per flow, the far flow waits less than the near one",
                "; ".join(
                    f"{load}: {mine:.1f} ms against {other:.1f} ms" for load, (mine, other) in far.items()
                ),
                all(mine < other for mine, other in far.values()),
            ),
        ]
        for load in loads:
            if load.startswith("flood"):
                mine, other = (by["flood mbps"][load, queues] for queues in ("fq_codel", "CoDel"))
                statements.append(
                    Statement(
                        "fq_codel",
                        f"{OURS}{where}with a queue per flow, a {load} gets less than half as much as with CoDel",
                        f"{mine:.1f} Mbit/s against {other:.1f} Mbit/s",
                        bool(mine < 0.5 * other),
                    )
                )
    return statements


def if_3(tables: Tables) -> list[Statement]:
    """What the rule changes in RFC 8289 and in Listing 1."""
    by = tables["if_3"].set_index(["form", "if_3", "flows"]).sort_index()

    def change(form: str, quantity: str) -> pd.Series:
        return by[quantity][form, "without"] / by[quantity][form, "with"] - 1

    def text(changes: pd.Series) -> str:
        return ", ".join(f"{_flows(int(str(n)))} {_percent(value)}" for n, value in changes.items())

    added_ms = {
        form: by.mean_delay_ms[form, "without", 3] - by.mean_delay_ms[form, "with", 3]
        for form in ("Listing 1", "RFC 8289")
    }
    paper_ms = _asic_over_linux_ms()
    several = {q: change("RFC 8289", q).loc[3:] for q in ("mean_delay_ms", "loss_percent")}
    listing = change("Listing 1", "mean_delay_ms")
    return [
        Statement(
            "if_3",
            f"{OURS}from 3 flows on, RFC 8289 without the rule has a longer delay (by at least 5 %)",
            text(several["mean_delay_ms"]),
            bool((several["mean_delay_ms"] >= 0.05).all()),
        ),
        Statement(
            "if_3",
            f"{OURS}from 3 flows on, RFC 8289 without the rule drops less",
            text(several["loss_percent"]),
            bool((several["loss_percent"] < 0).all()),
        ),
        Statement(
            "if_3",
            f"{OURS}in Listing 1 the rule hardly matters (it changes the delay by less than 3 %)",
            text(listing),
            bool((listing.abs() < 0.03).all()),
        ),
        Statement(
            "Table I",
            "3 flows: the missing rule explains the ASIC's longer latency (without it, Listing 1 adds at least half of "
            f"the paper's {paper_ms:.2f} ms)",
            ", ".join(f"{form} {ms:+.2f} ms" for form, ms in added_ms.items()),
            bool(added_ms["Listing 1"] >= 0.5 * paper_ms),
        ),
    ]


def square_roots(tables: Tables) -> list[Statement]:
    """Where the approximations are exact, and what they do to the delay."""
    errors = tables["square_root_error"]
    by = tables["square_root"].set_index(["square_root", "load"])
    upper = int(_paper_counts().rsplit(" ", 1)[1])
    table = errors[errors.square_root == "NPU table"].set_index("count").error.abs()

    def change(name: str, base: str) -> pd.Series:
        return by.mean_delay_ms[name] / by.mean_delay_ms[base] - 1

    def text(changes: pd.Series) -> str:
        return ", ".join(f"{load} {100 * value:+.1f} %" for load, value in changes.items())

    npu, unit = change("NPU table", "exact"), change("math unit", "exact")
    newton = change("Newton step (Linux)", "exact (RFC 8289)")
    many = ["50 flows", "UDP at 101 Mbit/s"]
    few = pd.concat([npu.drop(many), unit.drop(many)])
    noise = pd.concat([(by.mean_delay_ms_std["exact"] / by.mean_delay_ms["exact"]).drop(many)] * 2)
    return [
        Statement(
            "Square roots",
            f"the NPU's square root is exact for counts of {_paper_counts()}",
            f"largest error {100 * table.loc[:upper].max():.2g} %, beyond that "
            f"{100 * table.loc[upper + 1 :].max():.0f} %",
            bool(table.loc[:upper].max() < 1e-6),
        ),
        Statement(
            "Square roots",
            f"{OURS}with 1 and 3 flows, no square root changes the delay by more than runs vary",
            ", ".join(f"{100 * value:+.1f} %" for value in few)
            + f"; runs vary by at least {100 * noise.min():.1f} %",
            bool((few.abs().to_numpy() <= noise.to_numpy()).all()),
        ),
        Statement(
            "Square roots",
            f"{OURS}with 50 flows and with UDP, the NPU's table raises the delay by about a tenth or more",
            text(npu[many]),
            bool((npu[many] >= 0.095).all()),
        ),
        Statement(
            "Square roots",
            f"{OURS}the math unit changes the delay by less than 5 % under every load",
            text(unit),
            bool((unit.abs() < 0.05).all()),
        ),
        Statement(
            "Square roots",
            f"{OURS}Linux's Newton step changes the delay by less than 5 % under every load",
            text(newton),
            bool((newton.abs() < 0.05).all()),
        ),
    ]


def _paper_counts() -> str:
    numbers = paper_numbers("p4-codel", "algorithm")
    return str(numbers.loc[numbers.setting == "NPU, exact square roots", "paper"].iloc[0])


def clock_wrap(tables: Tables) -> list[Statement]:
    """Which step towards the published program changes the losses."""
    paper = paper_table_1().query("target == 'P4-ASIC'").drop(columns="target")
    table = tables["clock"].merge(paper, on="flows", how="left")
    by = table.set_index(["step", "flows"]).loss_percent
    first, *between, last = CLOCK_STEPS
    changes = {step: by[step] / by[first] - 1 for step in (*between, last)}
    most = {step: changes[step].abs().max() for step in between}
    plain = table[table.step == last]
    return [
        Statement(
            "Clock",
            f"{OURS}no step except the plain comparison changes the losses by more than 10 %",
            "; ".join(f"'{step}' by at most {100 * value:.0f} %" for step, value in most.items()),
            max(most.values()) <= 0.1,
        ),
        Statement(
            "Clock",
            f"{OURS}the plain comparison of 32 bits raises the losses by at least half",
            ", ".join(f"{value + 1:.1f} times with {_flows(int(n))}" for n, value in changes[last].items()),
            bool((changes[last] >= 0.5).all()),
        ),
        all_near(
            "Clock",
            "with the published program's plain comparison, the ASIC's loss",
            _pairs(plain, "loss_percent", "paper_loss_percent"),
            within=LOSS_WITHIN,
            unit=" %",
            digits=3,
        ),
    ]


def npu_losses(tables: Tables) -> list[Statement]:
    """Whether a guess explains the NPU's numbers."""
    table = tables["npu"]
    off = npu_off_by(table)
    nearest = str(off.idxmin())
    ratio = {
        what: table.assign(value=table[quantity] / table[paper]).set_index(["guess", "flows"]).value
        for what, quantity, paper in (
            ("loss", "loss_percent", "paper_loss_percent"),
            ("latency", "mean_delay_ms", "paper_delay_ms"),
        )
    }

    def met(guess: str, flows: list[int]) -> bool:
        return all(abs(r[guess, n] - 1) <= NPU_WITHIN for r in ratio.values() for n in flows)

    def text(guess: str, flows: list[int]) -> str:
        return "; ".join(
            f"{what} " + ", ".join(f"{_flows(n)} {_percent(r[guess, n] - 1)}" for n in flows)
            for what, r in ratio.items()
        )

    every = [1, 2, 3]
    guessed = list(off.index)
    by = table.set_index(["guess", "flows"])
    statements = [
        Statement(
            "NPU",
            f"{OURS}one of the guesses gives all six of the NPU's numbers (within {100 * NPU_WITHIN:g} %)",
            f"the closest is '{nearest}': {text(nearest, every)}",
            any(met(guess, every) for guess in guessed),
        )
    ]
    if "64 packets" in guessed:
        statements.append(
            Statement(
                "NPU",
                f"{OURS}a buffer of 64 packets gives the numbers for 2 and 3 flows (within {100 * NPU_WITHIN:g} %)",
                text("64 packets", [2, 3]),
                met("64 packets", [2, 3]),
            )
        )
    if "as modelled" in guessed:
        hit = by.flows_hit_at_once["as modelled", 3]
        statements.append(
            Statement(
                "Figure 5",
                "3 flows, P4-NPU: the flows synchronise (over 1.5 of them lose packets at once)",
                f"{hit:.2f} of 3",
                bool(hit > 1.5),
            )
        )
    if {"race", "as modelled"} <= set(guessed):
        more = by.loss_percent["race"] / by.loss_percent["as modelled"]
        later = by.mean_delay_ms["race"] / by.mean_delay_ms["as modelled"] - 1
        statements.append(
            Statement(
                "NPU",
                f"{OURS}races double every loss (1.5 to 2.5 times) and leave the delay unchanged (within 5 %)",
                ", ".join(f"{value:.1f} times with {_flows(int(n))}" for n, value in more.items())
                + "; delay "
                + ", ".join(_percent(value) for value in later),
                bool(more.between(1.5, 2.5).all() and (later.abs() <= 0.05).all()),
            )
        )
    return statements
