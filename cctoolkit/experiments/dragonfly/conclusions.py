"""Statements about the Dragonfly experiment's tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..._support.ethernet import FULL_FRAME_BYTES
from .. import statements as shared
from ..papers import paper_numbers
from ..statements import OURS, Range, Statement, above, every, rising, statements_table
from .logs import INPUTS
from .scenarios import (
    ALL_PACKETS,
    BUNDLED,
    CLASSIFIERS,
    LEARNT_FROM,
    NETWORKS,
    OFFLOAD,
    ONCE,
    ONE_ANSWER_F1,
    OTHER_DATA,
    PRINTED_MS,
    PUBLISHED,
    REAL_LINUX,
    SECOND_LATE,
    SHUFFLED_SAMPLES,
    SIMULATOR,
    WINDOW_FIGURES,
    is_of,
    network_of,
)
from .tables import EPOCH_BACKGROUNDS, best_recalls, last_epochs

__all__ = ["statements"]

Tables = Mapping[str, pd.DataFrame]

#: Scores this near to a printed number agree with it.
NEAR = 0.05


def statements(tables: Tables) -> pd.DataFrame:
    """The paper's claims and our measurements.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Any of ``volatility``, ``inputs``, ``epochs``, ``windows``, ``background``, ``cloud``, ``sampling``, ``splits``,
        ``published``, ``recall``, ``learning-curve``, ``baseline``, ``linux``, and the session's.

    Returns
    -------
    DataFrame
        ``figure``, ``paper``, ``toolkit``, ``agrees``: within 0.05 of a printed score, or as the claim states.
    """
    parts = {
        "volatility": cbiq, "inputs": inputs, "epochs": epochs, "windows": windows, "background": background,
        "cloud": cloud, "sampling": sampling, "splits": splits, "published": published,
        "recall": recall, "learning-curve": learning_curve, "baseline": baseline, "linux": linux,
        "session-answers": session,
    }  # fmt: skip
    return statements_table(s for name, part in parts.items() if name in tables for s in part(tables))


def _paper(figure: int, setting: str) -> str:
    numbers = paper_numbers("dragonfly", f"Figure {figure}")
    return str(numbers.loc[numbers.setting == setting, "paper"].iloc[0])


def _near(figure: int, setting: str, what: str, found: float, where: str = "") -> Statement:
    return shared.near(
        str(figure),
        f"{where}{setting}: {what}",
        float(found),
        float(_paper(figure, setting)),
        within=NEAR,
        absolute=True,
    )


def _list(values: Mapping[Any, float], sign: bool = False) -> str:
    """The values by window length; with signs, a difference too small for two decimals keeps its sign and its size."""

    def text(value: float) -> str:
        if not sign:
            return f"{value:.2f}"
        return f"{value:+.2f}" if abs(value) >= 0.005 else f"{value:+.1g}"

    return ", ".join(f"{text(value)} at {ms:g} ms" for ms, value in values.items())


def _ranges(table: pd.DataFrame) -> pd.Series:
    """The 95 % intervals of scores; a score without one is exact."""
    low, high = (table.get(side, table["f1"]).fillna(table["f1"]) for side in ("low", "high"))
    return pd.Series(list(zip(low.astype(float), high.astype(float), strict=True)), index=table.index)


def _with(value: float, interval: Range) -> str:
    """A score with its interval."""
    low, high = interval
    return f"{value:.2f}" if low == high else f"{value:.2f} ({low:.2f} to {high:.2f})"


def cbiq(tables: Tables) -> list[Statement]:
    """Figure 1."""
    jumps = tables["volatility"].groupby("cca")[["cbiq", "throughput"]].mean()
    says = ", ".join(f"{cca} {row.cbiq:.2f} against {row.throughput:.2f}" for cca, row in jumps.iterrows())
    less = (jumps.cbiq < jumps.throughput).all()
    return [Statement("1", "CBIQ is less volatile than throughput", says, bool(less))]


#: The inputs of section III-A; what arrives is counted in bytes and packets, and by sequence numbers.
_RANKED = {
    "CBIQ": ["cbiq_bytes"],
    "ingress throughput": ["in_bytes", "in_packets", "throughput_bytes"],
    "egress throughput": ["out_bytes"],
    "drops": ["drops_estimate"],
    "source time gap": ["max_source_gap"],
    "arrival time gap": ["max_arrival_gap_ns"],
}


def inputs(tables: Tables) -> list[Statement]:
    """Figure 2, of the physical network."""
    if not is_of(tables["inputs"], "physical"):
        return []
    table = tables["inputs"].set_index("input")
    f1, ranges = table["f1"], _ranges(table)
    there = {what: f1[f1.index.isin(columns)] for what, columns in _RANKED.items()}
    best = {what: str(found.idxmax()) for what, found in there.items() if len(found)}
    says = ", ".join(
        f"{what} {_with(float(f1[best[what]]), ranges[best[what]])}"
        for what in sorted(best, key=lambda w: -f1[best[w]])
    )
    results = []
    if "CBIQ" in best:
        others = [ranges[column] for what, column in best.items() if what != "CBIQ"]
        first = every(above(ranges[best["CBIQ"]], other) for other in others)
        results.append(Statement("2", "CBIQ is the best single input", says, first))
    if {"ingress throughput", "egress throughput"} <= set(best):
        ingress, egress = (ranges[best[f"{side} throughput"]] for side in ("ingress", "egress"))
        others = [
            ranges[column] for what, column in best.items() if what != "CBIQ" and "throughput" not in what
        ]
        behind = every([above(ingress, egress), *(above(egress, other) for other in others)])
        claim = "ingress and egress throughput are second and third, behind CBIQ"
        results.append(Statement("2", claim, says, behind))
    if {"cbiq_bytes", CLASSIFIERS["Dragonfly"]} <= set(f1.index):
        more = float(f1[CLASSIFIERS["Dragonfly"]] - f1["cbiq_bytes"])
        results.append(
            Statement(
                "2",
                f"inputs besides CBIQ add little (within {NEAR:g})",
                f"{more:+.2f} with throughput",
                abs(more) <= NEAR + 1e-9,
            )
        )
    return results


def epochs(tables: Tables) -> list[Statement]:
    """Figure 5, of Mininet."""
    results: list[Statement] = []
    if not is_of(tables["epochs"], "mininet"):
        return results
    last = last_epochs(tables["epochs"])
    for background in EPOCH_BACKGROUNDS:
        setting = "no background" if background == "none" else f"{background} background"
        here = last[last.background == background].set_index("classifier")["mean"]
        if here.empty:
            continue
        for name, what in (("Dragonfly", "Dragonfly"), ("Dragonfly, CBIQ only", "Dragonfly with CBIQ only")):
            if name in here and (background == "none" or name == "Dragonfly"):
                results.append(_near(5, f"{setting}, {what}", "accuracy", here[name]))
        if set(PUBLISHED) <= set(here.index):
            best = str(here.idxmax())
            says = f"{best} is the most accurate, with {here[best]:.2f}"
            results.append(
                Statement("5", f"{setting}: Dragonfly is the most accurate", says, best == "Dragonfly")
            )
    swing = last.set_index(["background", "classifier"])
    if ("none", "DeePCCI") in swing.index:
        low, high = (float(swing[side]["none", "DeePCCI"]) for side in ("least", "most"))
        minimum, most = (float(n) for n in _paper(5, "no background, DeePCCI").split(" to "))
        results.append(
            Statement(
                "5",
                f"no background: DeePCCI varies between {minimum:g} and {most:g} (within {NEAR:g})",
                f"{low:.2f} to {high:.2f} in the last fifth of its epochs",
                abs(low - minimum) <= NEAR + 1e-9 and abs(high - most) <= NEAR + 1e-9,
            )
        )
    return results


def windows(tables: Tables) -> list[Statement]:
    """Figure 6 (Mininet), or figures 7 and 10 (physical network); of the cloud, what training there changes."""
    table = tables["windows"]
    if network_of(table) == NETWORKS["cloud"]:
        there = "trained in the cloud, "
        return _printed_for_the_cloud(table, OURS + there) + _ahead(table, there, OURS)
    mininet, physical = is_of(table, "mininet"), is_of(table, "physical")
    minute = PRINTED_MS["1 minute"]
    results = []
    for name in ("Dragonfly", "DeePCCI"):
        part = table[table.classifier == name].set_index("window_ms").sort_index()
        if mininet and minute in part.index:
            results.append(_near(6, f"1 minute, {name}", "F1", part.f1[minute]))
        if physical and len(part):
            results += _reached(name, part.f1, _ranges(part))
    results += _ahead(table)
    mine = table[table.classifier == "Dragonfly"].set_index("window_ms")
    if {"f1_reno", "f1_cubic", "f1_bbr"} <= set(mine) and len(mine):
        means = {cca: float(mine[f"f1_{cca}"].mean()) for cca in ("bbr", "cubic", "reno")}
        says = ", ".join(f"{cca} {value:.2f}" for cca, value in means.items())
        both = min(means["bbr"], means["cubic"]) > means["reno"]
        if physical:
            results.append(Statement("10", "BBR and CUBIC are identified better than Reno", says, both))
        ahead = mine.f1_bbr - mine[["f1_cubic", "f1_reno"]].max(axis=1)
        results.append(
            Statement(
                "10" if physical else "6",
                f"{OURS}Reno and CUBIC are mistaken for each other, BBR is not: its F1 is at least 0.2 above both with "
                "every window length",
                _list(dict(ahead.items()), sign=True),
                bool((ahead >= 0.2).all()),
            )
        )
        if len(mine) > 1:
            says = _list(dict(mine["f1"].items()))
            rises = rising(mine["f1"], _ranges(mine))
            results.append(
                Statement("10" if physical else "6", "F1 increases with the window length", says, rises)
            )
    return results


def _ahead(table: pd.DataFrame, where: str = "", whose: str = "") -> list[Statement]:
    """Whether Dragonfly is ahead of DeePCCI, and ours of Dragonfly, with every window length."""
    curves = table.pivot_table(index="window_ms", columns="classifier", values="f1")
    ranges = _ranges(table.set_index(["classifier", "window_ms"]))
    results = []
    for better, worse, about, prefix in (
        ("Dragonfly", "DeePCCI", _window_figure(table), whose),
        ("ours", "Dragonfly", "", OURS),
    ):
        if {better, worse} <= set(curves):
            ahead = (curves[better] - curves[worse]).dropna()
            if ahead.empty:
                continue
            claim = f"{prefix}{where}{better} scores higher than {worse} with every window length"
            higher = every(above(ranges[better, ms], ranges[worse, ms]) for ms in ahead.index)
            results.append(Statement(about, claim, _list(dict(ahead.items()), sign=True), higher))
    return results


def _window_figure(table: pd.DataFrame) -> str:
    """The figure that shows F1 against the window on a table's network."""
    network = network_of(table)
    return "6, 7" if network == OTHER_DATA else str(WINDOW_FIGURES[network])


def cloud(tables: Tables) -> list[Statement]:
    """Figure 11."""
    return _printed_for_the_cloud(tables["cloud"]) + _ahead(tables["cloud"])


def _printed_for_the_cloud(table: pd.DataFrame, where: str = "") -> list[Statement]:
    """The scores that figure 11 prints."""
    curves = table.pivot_table(index="window_ms", columns="classifier", values="f1")
    return [
        _near(11, f"{setting}, {name}", "F1 in the cloud", curves[name][ms], where)
        for name in ("Dragonfly", "DeePCCI")
        if name in curves
        for setting, ms in PRINTED_MS.items()
        if ms in curves[name].dropna().index
    ]


def _first_reaching(f1: pd.Series) -> float:
    """The shortest window, in ms, with an F1 of 0.7; infinity if there is none."""
    return float(min(f1.index[f1 >= 0.7], default=math.inf))


def _reached(name: str, f1: pd.Series, ranges: pd.Series) -> list[Statement]:
    """Figure 7: the window length with an F1 of 0.7; nothing if the lengths at hand cannot tell."""
    printed = float(_paper(7, f"F1 of 0.7, {name}"))
    low, high = printed / 2, 2 * printed
    reached, shortest, longest = _first_reaching(f1), min(f1.index), max(f1.index)
    if longest < high if math.isinf(reached) else reached == shortest > high:
        return []  # longer windows, or shorter ones, may reach it, too
    says = f"not by {longest:g} ms" if math.isinf(reached) else f"{reached:g} ms"
    if printed in f1.index:
        says += f"; {_with(f1[printed], ranges[printed])} at {printed:g} ms"
    soonest, latest = _first_reaching(ranges.str[1]), _first_reaching(ranges.str[0])
    apart = soonest > high or latest < low
    fits = True if low <= soonest and latest <= high else False if apart else None
    claim = f"{name} reaches an F1 of 0.7 at {printed:g} ms (within a factor of 2)"
    return [Statement("7", claim, says, fits)]


def background(tables: Tables) -> list[Statement]:
    """Figure 8, of the physical network and windows of 10 s."""
    table, results = tables["background"], []
    if not is_of(table, "physical") or table.window_ms.iloc[0] != 10_000:
        return []
    for name in ("Dragonfly", "DeePCCI"):
        curve = table[table.classifier == name].set_index("background")
        f1 = curve["f1"]
        results += [
            _near(8, f"{flows} background flows, {name}", "F1 with windows of 10 s", f1[flows])
            for flows in (0, 75)
            if flows in f1
        ]
        if not {0, 75} <= set(f1.index):
            continue
        says = ", ".join(f"{value:.2f} with {flows:g} flows" for flows, value in f1.items())
        falls = rising(f1[::-1], _ranges(curve)[::-1])
        claim = f"{name}: F1 with windows of 10 s falls with the number of background flows"
        results.append(Statement("8", claim, says, falls))
    return results


def windows_and_background(tables: Tables) -> list[Statement]:
    """Figures 6, 7, 8, 10 and 11."""
    more = {"background": background, "cloud": cloud}
    return windows(tables) + [s for name, part in more.items() if name in tables for s in part(tables)]


def sampling(tables: Tables) -> list[Statement]:
    """Figure 9, of the physical network."""
    if not is_of(tables["sampling"], "physical"):
        return []
    f1 = tables["sampling"].set_index(["classifier", "learnt_from", "dropped_percent"])["f1"].sort_index()
    if ("Dragonfly", ALL_PACKETS, 99.0) not in f1.index:
        return []
    printed = float(_paper(9, "99 % of the packets dropped, Dragonfly"))
    at_first = float(f1["Dragonfly", ALL_PACKETS, 0.0])
    results = []
    for learnt_from in LEARNT_FROM:
        last = float(f1["Dragonfly", learnt_from, 99.0])
        where = "" if learnt_from == ALL_PACKETS else f"{OURS}with networks that learn from {learnt_from}, "
        results.append(
            Statement(
                "9",
                f"{where}with 99 % of the packets dropped, F1 falls by about {printed:g} (within {NEAR:g})",
                f"from {at_first:.2f} to {last:.2f}",
                abs(at_first - last - printed) <= NEAR + 1e-9,
            )
        )
    table = tables["sampling"]
    queue = table[table.learnt_from == SHUFFLED_SAMPLES].set_index("dropped_percent")["share_with_queue"]
    says = ", ".join(
        f"{100 * share:.2g} % of the slots with {dropped:g} % dropped" for dropped, share in queue.items()
    )
    results.append(
        Statement(
            "9",
            f"{OURS}in samples as published there is hardly any CBIQ (in at most a hundredth of the slots)",
            says,
            bool((queue <= 0.01).all()),
        )
    )
    return results


def recall(tables: Tables) -> list[Statement]:
    """Figure 10 as the published program draws it."""
    table = tables["recall"]
    if not is_of(table, "physical"):
        return []
    means = best_recalls(table).groupby("cca").best.mean()
    exchanged = {"bbr": means["bbr"], "cubic": means["reno"], "reno": means["cubic"]}
    results = []
    for drawn, how in ((means, ""), (exchanged, ", with CUBIC's and Reno's exchanged")):
        results.append(
            Statement(
                "10",
                f"{OURS}recall at its best epoch{how}, as the published program has it, is higher for BBR and CUBIC "
                "than for Reno",
                ", ".join(f"{cca} {drawn[cca]:.2f}" for cca in ("bbr", "cubic", "reno")),
                bool(min(drawn["bbr"], drawn["cubic"]) > drawn["reno"]),
            )
        )
    return results


def learning_curve(tables: Tables) -> list[Statement]:
    """How much more runs help, and whether figure 7's score is reached with all of them."""
    table = tables["learning-curve"]
    least, most = min(table.learnt_share), max(table.learnt_share)
    few, many = (table[table.learnt_share == share].set_index("window_ms") for share in (least, most))
    gains = _list((many.f1 - few.f1).to_dict(), sign=True)
    higher = every(above(*ranges) for ranges in zip(_ranges(many), _ranges(few), strict=True))
    about = f"{max(many.learnt_runs)} runs instead of {max(few.learnt_runs)}"
    results = [
        Statement(_window_figure(table), f"{OURS}learnt from {about}, Dragonfly scores higher", gains, higher)
    ]
    return (_reached("Dragonfly", many.f1, _ranges(many)) if is_of(table, "physical") else []) + results


def splits(tables: Tables) -> list[Statement]:
    """What leaks when a split keeps flows apart, not runs."""
    results = []
    for name, part in tables["splits"].groupby("classifier", sort=False):
        part = part.set_index("split")
        f1, ranges = part["f1"], _ranges(part)
        says = ", ".join(
            f"{split} {_with(*found)}" for split, *found in zip(part.index, f1, ranges, strict=True)
        )
        leaks = above(ranges["by flow"], ranges["by run"])
        results.append(
            Statement(
                "all",
                f"{OURS}{name}: a split by flow gives higher scores than a split by run",
                says,
                leaks,
            )
        )
    return results


def published(tables: Tables) -> list[Statement]:
    """What the published code gives to its network, and the paper does not name."""
    table = tables["published"].set_index("inputs")
    f1, ranges = table["f1"], _ranges(table)
    paper, code, _ = INPUTS
    return [
        Statement(
            "all",
            f"{OURS}time and sequence numbers, which the published code adds to the paper's inputs, raise F1 in runs "
            "that were not trained on",
            f"{_with(f1[paper], ranges[paper])} without, {_with(f1[code], ranges[code])} with them",
            above(ranges[code], ranges[paper]),
        )
    ]


def splits_and_published(tables: Tables) -> list[Statement]:
    """What leaks, and what the published inputs add."""
    return splits(tables) + (published(tables) if "published" in tables else [])


def baseline(tables: Tables) -> list[Statement]:
    """What the authors published as DeePCCI, and the paper's scores of DeePCCI."""
    table = tables["baseline"].assign(interval=_ranges).set_index("window_ms")
    all_of = {how: table[(table.answers == how) & (table.scored == "all")] for how in (ONCE, SECOND_LATE)}
    late = all_of[SECOND_LATE]
    short, long = late[late.index <= 1000], late[late.index > 1000]
    results = []
    if len(short):
        printed = float(_paper(11, "100 ms, DeePCCI"))
        results.append(
            Statement(
                "11",
                f"{OURS}what the authors published as DeePCCI does not look at windows of up to a second: it gives one "
                f"answer for all (F1 of {ONE_ANSWER_F1:.2f} with as many flows of each congestion control), and the "
                f"paper's {printed:g} in the cloud with 100 ms is that (both within {NEAR:g})",
                _list(short.f1.to_dict()),
                bool((abs(short.f1 - ONE_ANSWER_F1) <= NEAR).all() and abs(printed - ONE_ANSWER_F1) <= NEAR),
            )
        )
    once = all_of[ONCE].reindex(long.index)
    if len(long) and once.f1.notna().all():
        gains = _list((once.f1 - long.f1).to_dict(), sign=True)
        results.append(
            Statement(
                "6",
                f"{OURS}with longer windows, DeePCCI scores higher than what the authors published, which answers for "
                "each second from the second before",
                gains,
                every(above(*ranges) for ranges in zip(once.interval, long.interval, strict=True)),
            )
        )
    if "background" in table and is_of(table, "physical") and 10_000 in long.index:
        flows = int(table.background.iloc[0])
        if flows in (0, 75):
            what = "F1 of what the authors published as DeePCCI, with windows of 10 s,"
            results.append(_near(8, f"{flows} background flows, DeePCCI", what, long.f1[10_000]))
    return results


#: Which scores may be the same, and where each of two was trained and tested.
_SAME = {
    "each classifier scores the same in the simulator as on real Linux": (
        (SIMULATOR, SIMULATOR), (REAL_LINUX, REAL_LINUX),
    ),
    "on real Linux, each classifier scores the same whether it was trained there or in the simulator": (
        (SIMULATOR, REAL_LINUX), (REAL_LINUX, REAL_LINUX),
    ),
    "each classifier scores the same with segmentation offload as without": (
        (OFFLOAD, OFFLOAD), (REAL_LINUX, REAL_LINUX),
    ),
    "with segmentation offload, each classifier scores the same whether it was trained with or without": (
        (REAL_LINUX, OFFLOAD), (OFFLOAD, OFFLOAD),
    ),
    "the bundled model `cca` scores the same with segmentation offload as without": (
        (BUNDLED, OFFLOAD), (BUNDLED, REAL_LINUX),
    ),
}  # fmt: skip


def linux(tables: Tables) -> list[Statement]:
    """Figure 6 or 7 on real Linux, and whether scores are the same elsewhere."""
    table = tables["linux"]
    results = []
    for place in (REAL_LINUX, OFFLOAD):
        results += _ahead(table[(table.trained_on == place) & (table.tested_on == place)], f"on {place}, ")
    for claim, places in _SAME.items():
        one, other = (
            table[(table.trained_on == trained) & (table.tested_on == tested)].set_index(
                ["classifier", "window_ms"]
            )
            for trained, tested in places
        )
        more = one["f1"] - other["f1"]
        says = "; ".join(
            f"{name} {_list(part.droplevel('classifier').to_dict(), sign=True)}"
            for name, part in more.groupby("classifier", sort=False)
        )
        if says:
            results.append(
                Statement("", f"{OURS}{claim} (within {NEAR:g})", says, every(_the_same(one, other)))
            )
    return results


def _the_same(one: pd.DataFrame, other: pd.DataFrame) -> list[bool | None]:
    """Whether scores differ by at most 0.05; undecided if they differ by more, but their intervals overlap."""
    return [
        True if abs(difference) <= NEAR + 1e-9 else None if above(this, that) is None else False
        for difference, this, that in zip(one["f1"] - other["f1"], _ranges(one), _ranges(other), strict=True)
    ]


def _of_the_cloud(flows: pd.DataFrame, hardly_a_queue: bool) -> list[Statement]:
    """Which of the paper's networks the session is of, and whether its link is full."""
    numbers = paper_numbers("dragonfly", "testbed, cloud").set_index(["setting", "quantity"]).paper
    nearest_ms = float(numbers["third destination", "rtt_ms"])
    link_mbps = 1000 * float(numbers["to the Internet", "rate_gbps"])
    clocked = flows[flows.cca != "bbr"].set_index("cca")  # BBR paces its packets
    rates = flows.packets * flows.bytes_per_packet * 8 / flows.slots / 1000
    by_cca = ", ".join(f"{cca} {rate:.0f}" for cca, rate in zip(flows.cca, rates, strict=True))
    return [
        Statement(
            "session",
            f"{OURS}the session is of the paper's cloud: with hardly ever a queue, bursts repeat after "
            f"{nearest_ms:g} ms (its nearest destination) or more; on the physical network, round trips without a "
            "queue are below 1 ms",
            ", ".join(f"{cca} after {ms:.0f} ms" for cca, ms in clocked.burst_period_ms.items()),
            bool(hardly_a_queue and (clocked.burst_period_ms >= nearest_ms).all()),
        ),
        Statement(
            "session",
            f"{OURS}the session's flows do not fill the router's link of {link_mbps:g} Mbit/s (at most half of it), so "
            "something else limits them",
            f"{rates.sum():.0f} Mbit/s ({by_cca})",
            bool(rates.sum() <= link_mbps / 2),
        ),
    ]


def session(tables: Tables) -> list[Statement]:
    """What the bundled models say of the authors' session, why, and what a network trained on it shows."""
    flows, answers, learnt = (tables[name] for name in ("session", "session-answers", "session-learnt"))
    results: list[Statement] = []
    for model, part in answers.groupby("model", sort=False):
        right = part.right.sum() / part.windows.sum()
        most = part.groupby("cca", sort=False)[["right", "windows"]].sum()
        says = ", ".join(f"{cca} {row.right:.0f} of {row.windows:.0f}" for cca, row in most.iterrows())
        results.append(
            Statement(
                "session",
                f"{OURS}the bundled model `{model}` names more than half of the session's windows right",
                says,
                bool(right > 0.5),
            )
        )
    queue = flows.set_index("cca").share_with_queue
    hardly_a_queue = bool((queue <= 0.1).all())
    results.append(
        Statement(
            "session",
            f"{OURS}in the session there is hardly ever a queue, which is what both models look at (in at most a "
            "tenth of the slots of each flow)",
            ", ".join(f"{cca} {100 * share:.1f} %" for cca, share in queue.items()),
            hardly_a_queue,
        )
    )
    results += _of_the_cloud(flows, hardly_a_queue)
    large = flows.set_index("cca").bytes_per_packet
    results.append(
        Statement(
            "session",
            f"{OURS}the session's taps saw segmentation offload: a packet has more bytes than an Ethernet frame "
            f"({FULL_FRAME_BYTES})",
            ", ".join(f"{cca} {size:.0f} bytes" for cca, size in large.items())
            + f"; at most {flows.most_packets.max()} packets in a slot",
            bool((large > FULL_FRAME_BYTES).all()),
        )
    )
    f1 = learnt.set_index(["inputs", "tested_on"]).f1
    paper, published, time = INPUTS
    random, end = "windows at random", "the end of the session"
    results += [
        Statement(
            "session",
            f"{OURS}a network trained on windows of these three flows names other windows of the same flows (F1 of at "
            "least 0.9): it needs to know flows, not congestion controls",
            f"{f1[paper, random]:.2f} with the paper's inputs, {f1[published, random]:.2f} with the published ones",
            bool(min(f1[paper, random], f1[published, random]) >= 0.9),
        ),
        Statement(
            "session",
            f"{OURS}time and sequence numbers, which the published code adds to the paper's inputs, raise F1 by at "
            "least 0.05, at random and at the end of the session: they tell these flows apart",
            f"random {f1[paper, random]:.2f} → {f1[published, random]:.2f}, end {f1[paper, end]:.2f} → "
            f"{f1[published, end]:.2f}",
            bool(all(f1[published, split] >= f1[paper, split] + NEAR for split in (random, end))),
        ),
        Statement(
            "session",
            f"{OURS}what the published code calls CBIQ, the time alone, tells nothing (F1 of at most 0.4)",
            f"{f1[time, random]:.2f}",
            bool(f1[time, random] <= 0.4),
        ),
    ]
    return results
