"""Statements about the RTT experiment's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..statements import OURS, Statement, every, inside, near
from .logs import logged_pairs
from .scenarios import LOGGED_PAIR
from .tables import paper

Tables = Mapping[str, pd.DataFrame]

#: Columns and schemes of the tables, as statements call them.
_FLOWS = {"cubic": "CUBIC", "bbr": "BBR", "cubic_and_bbr": "CUBIC and BBR"}
#: Gains of fairness that differ by no more percentage points agree with the paper's.
POINTS = 5.0
#: Changes of the mean completion time that differ by no more are the same.
_NEAR_FCT = 0.05
_QUEUES = {"RTT": "queues by RTT", "one queue": "one queue"}


def _paper(test: int, setting: str, quantity: str | None = None) -> float:
    numbers = paper(test)
    found = numbers[
        (numbers.setting == setting) & (True if quantity is None else numbers.quantity == quantity)
    ]
    text = found.paper.iloc[0]
    if "/" in text:
        top, bottom = text.split("/")
        return float(top) / float(bottom)
    return float(text)


def _places(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The table, or its rows for each place where they were run, with a prefix for claims."""
    if "where" not in table:
        yield "", table
        return
    for where, part in table.groupby("where", sort=False):
        yield f"{where}: ", part


def _cells(values: Any, between: str = ", ") -> str:
    """The values of a row, each with its column."""
    return between.join(f"{name} {value:.2f}" for name, value in values.items())


def _list(values: Any, digits: int = 2) -> str:
    """The items of a mapping or a series."""
    return "; ".join(
        f"{name}: {value if isinstance(value, str) else format(value, f'.{digits}f')}"
        for name, value in values.items()
    )


def test_1(tables: Tables) -> list[Statement]:
    """Fairness with and without separation."""
    statements = []
    for where, table in _places(tables["test1"]):
        jain = table.pivot_table(index="scheme", columns="flows", values="jain_index", sort=False)
        for flows in ("CUBIC", "BBR"):
            if flows not in jain:
                continue
            printed = _paper(1, f"four {flows} flows, with separation")
            statements.append(
                near(
                    "test 1", f"{where}four {flows} flows, separated: Jain's index", jain[flows]["RTT"], printed,
                    within=0.03, absolute=True, digits=3,
                )
            )  # fmt: skip
            statements.append(
                Statement(
                    "test 1",
                    f"{where}four {flows} flows: one queue is less fair than separation",
                    f"Jain's index {jain[flows]['one queue']:.2f} against {jain[flows]['RTT']:.2f}",
                    bool(jain[flows]["one queue"] < jain[flows]["RTT"]),
                )
            )
        whole = table.pivot_table(index="scheme", columns="flows", values="utilisation_whole", sort=False)
        if "RTT, hard limits" in whole.index:
            statements.append(
                Statement(
                    "test 1",
                    f"{OURS}{where}hard limits leave the link idle over the whole run (below 0.7 of it used), "
                    "guaranteed shares do not (above 0.95)",
                    f"hard limits {_cells(whole.loc['RTT, hard limits'])}; guaranteed "
                    f"shares {_cells(whole.loc['RTT'])}",
                    bool((whole.loc["RTT, hard limits"] < 0.7).all() and (whole.loc["RTT"] > 0.95).all()),
                )
            )
        if "CUBIC and BBR" in jain and "CCA" in jain.index:
            mixed = jain["CUBIC and BBR"]
            statements.append(
                Statement(
                    "test 1",
                    f"{OURS}{where}two CUBIC and two BBR flows: queues by congestion control are fairer than "
                    "queues by RTT",
                    f"Jain's index {mixed['CCA']:.2f} against {mixed['RTT']:.2f}",
                    bool(mixed["CCA"] > mixed["RTT"]),
                )
            )
    return statements


def test_2(tables: Tables) -> list[Statement]:
    """Unused shares go to others."""
    table = tables["test2"]
    last = table.to_s.max()
    scale = last / 540  # of the paper's times
    separated = table[table.scheme == "RTT"].assign(phase=(table.from_s / scale).round())
    by = separated.set_index("phase")
    # of the goodput that is fair to a flow alone, which is what fits
    held = 1000 * float(by.flow_1_mbps.loc[120]) / float(by.fair_1_mbps.loc[0])
    two, three = (
        by.loc[phase, ["flow_1_mbps", "flow_2_mbps", "flow_3_mbps"]].dropna() for phase in (60, 360)
    )
    third = three / three.sum()
    worst = table.groupby("scheme", sort=False).worst_over_fair.min()
    idle = table.groupby("scheme", sort=False).utilisation.min()
    return [
        near(
            "test 2", "flow 1's rate on the wire while flow 2 is held back to 250 Mbit/s", held,
            _paper(2, "flow 2 held back, 120 to 240 s"), within=0.05, unit=" Mbit/s", digits=0,
        ),
        near(
            "test 2", "two flows: the share of flow 1", two.to_numpy()[0] / two.to_numpy().sum(),
            _paper(2, "two flows, 60 to 120 s"), within=0.02, absolute=True,
        ),
        Statement(
            "test 2",
            f"three flows get a third each (within 0.02 of {_paper(2, 'three flows, 360 to 420 s'):.2f})",
            ", ".join(f"{share:.2f}" for share in third),
            bool((third - _paper(2, "three flows, 360 to 420 s")).abs().max() <= 0.02),
        ),
        Statement(
            "test 2",
            f"{OURS}separated, every flow gets its max-min share in every phase (at least 0.97 of it); in one "
            "queue, some do not",
            f"smallest part of the max-min share: {_cells(worst, '; ')}",
            bool(worst["RTT"] >= 0.97 > worst["one queue"]),
        ),
        Statement(
            "test 2",
            f"{OURS}hard limits leave the link idle (below 0.8 in some phase), guaranteed shares never (above 0.95)",
            f"lowest utilisation of a phase: {_cells(idle, '; ')}",
            bool(idle["RTT, hard limits"] < 0.8 and idle["RTT"] > 0.95),
        ),
    ]  # fmt: skip


def test_3(tables: Tables) -> list[Statement]:
    """Shares of two flows with RTTs further and further apart."""
    statements = []
    cubic = _paper(3, "CUBIC, one queue", "share_of_short_rtt")
    bbr = 1 - _paper(3, "BBR, one queue, 5 ms difference")
    fair_below = _paper(3, "CUBIC, separated", "fair_below_rtt_difference_ms")
    for where, table in _places(tables["test3"]):
        far = table[table.rtt_ms > 10]
        share = {
            (flows, scheme): part.set_index("rtt_ms").share_of_short_rtt
            for (flows, scheme), part in far.groupby(["flows", "scheme"], sort=False)
        }
        one = share["CUBIC", "one queue"]
        statements.append(
            Statement(
                "test 3",
                f"{where}CUBIC, one queue: the flow with the short RTT gets about {cubic:g} (within 0.1), whatever "
                "the RTT of the other",
                _list({f"{rtt:g} ms": value for rtt, value in one.items()}),
                bool((one - cubic).abs().max() <= 0.1),
            )
        )
        if 15 in share["BBR", "one queue"].index:
            value = share["BBR", "one queue"][15]
            statements.append(
                Statement(
                    "test 3",
                    f"{where}BBR, one queue: with RTTs 5 ms apart, the flow with the short RTT gets at most {bbr:g}",
                    f"{value:.2f}",
                    bool(value <= bbr),
                )
            )
        longest = share["BBR", "one queue"]
        statements.append(
            Statement(
                "test 3",
                f"{OURS}{where}BBR, one queue: beside an RTT of {longest.index[-1]:g} ms, too, the flow with the short "
                f"RTT gets at most {bbr:g}",
                f"{longest.iloc[-1]:.2f}",
                bool(longest.iloc[-1] <= bbr),
            )
        )
        near_by = share["CUBIC", "RTT"]
        near_by = near_by[near_by.index < 10 + fair_below]
        for flows, values, when in (
            ("CUBIC", near_by, f" with RTTs less than {fair_below:g} ms apart"),
            ("BBR", share["BBR", "RTT"], ""),
        ):
            off = (values - 0.5).abs().max()
            statements.append(
                Statement(
                    "test 3",
                    f"{where}{flows}, separated: both get half{when} (within 0.05)",
                    f"off by at most {off:.3f}",
                    bool(off <= 0.05),
                )
            )
    if "where" in tables["test3"]:
        statements += _both_sides(tables["test3"])
    return statements


def _both_sides(table: pd.DataFrame) -> list[Statement]:
    """Whether simulator and kernel agree."""
    wide = table.pivot_table(
        index=["flows", "scheme", "rtt_ms"], columns="where", values="share_of_short_rtt", sort=False
    )
    off = (wide["simulator"] - wide["Linux"]).abs().groupby(["scheme", "flows"], sort=False).max()
    return [
        Statement(
            "test 3",
            f"{OURS}{_QUEUES[scheme]}, {flows}: simulator and Linux agree on shares (within {within:g})",
            f"off by at most {off[scheme, flows]:.3f}",
            bool(off[scheme, flows] <= within),
        )
        for scheme, within in (("RTT", 0.02), ("one queue", 0.1))
        for flows in ("CUBIC", "BBR")
        if (scheme, flows) in off
    ]


def _between(row: pd.Series, least: float, most: float) -> bool | None:
    """Whether the reduction of the mean completion time, as far as its 95 % interval says, is in this range."""
    return inside(row.fct_reduction_low, row.fct_reduction_high, least, most)


def _change(row: pd.Series) -> str:
    """The change of the mean completion time, with its 95 % interval."""
    low, high = -100 * row.fct_reduction_high, -100 * row.fct_reduction_low
    return f"{-100 * row.fct_reduction:+.0f} % ({low:+.0f} to {high:+.0f} %)"


def test_4(tables: Tables) -> list[Statement]:
    """What separation does to completion times."""
    table = tables["test4"]
    separated = table[(table.scheme == "RTT") & (table.shares == "by flows")]
    wide = separated.pivot_table(index="flows", columns="queues", values="fct_reduction", sort=False)
    most = wide.columns.max() if 4 not in wide else 4
    printed = _paper(4, "large TCP flows, several queues")
    cubic = separated[(separated.flows == "CUBIC") & (separated.queues == most)].iloc[0]
    statements = [
        Statement(
            "test 4",
            f"CUBIC, {most} queues: the reduction of the mean completion time is {printed:g} (within {_NEAR_FCT:g})",
            f"{cubic.fct_reduction:.2f} ({cubic.fct_reduction_low:.2f} to {cubic.fct_reduction_high:.2f})",
            _between(cubic, printed - _NEAR_FCT, printed + _NEAR_FCT),
        )
    ]
    if {4, 8} <= set(wide):
        apart = (wide[8] - wide[4]).abs()
        statements.append(
            Statement(
                "test 4",
                f"no significant difference between 4 and 8 queues (at most {_NEAR_FCT:g} of the mean completion time)",
                _list(apart),
                bool((apart <= _NEAR_FCT).all()),
            )
        )
    for flows in ("BBR", "BBRv2"):
        if flows in wide.index:
            rows = [row for _, row in separated[separated.flows == flows].iterrows()]
            statements.append(
                Statement(
                    "test 4",
                    f"{flows}: more queues have little impact (at most {_NEAR_FCT:g} of the mean completion time)",
                    ", ".join(f"{row.queues} queues: {_change(row)}" for row in rows),
                    every(_between(row, -_NEAR_FCT, _NEAR_FCT) for row in rows),
                )
            )
    competitor = table[(table.scheme == "CCA") & (table.flows == "CUBIC")]
    if len(competitor):
        numbers = paper(0).set_index(["setting", "quantity"]).paper
        row = competitor.iloc[0]
        statements.append(
            Statement(
                "Table 1",
                f"P4air and P4CCI: {numbers['P4air and P4CCI', 'fct_reduction']} on the completion time (CUBIC, at "
                f"most {_NEAR_FCT:g} of its mean)",
                _change(row),
                _between(row, -_NEAR_FCT, _NEAR_FCT),
            )
        )
    intervals = separated[separated.queues == most].set_index("flows")
    signs = {flows: (-row.fct_reduction_high, -row.fct_reduction_low) for flows, row in intervals.iterrows()}
    statements.append(
        Statement(
            "test 4",
            f"{OURS}{most} queues: the 95 % interval of the change of the mean completion time excludes 0, with every "
            "congestion control",
            ", ".join(
                f"{flows} {100 * low:+.0f} to {100 * high:+.0f} %{'' if low * high > 0 else ' (includes 0)'}"
                for flows, (low, high) in signs.items()
            ),
            all(low * high > 0 for low, high in signs.values()),
        )
    )
    slow = table[table.shares == "by flows"].pivot_table(
        index="flows", columns=["scheme", "queues"], values="jain_of_slowdown", sort=False
    )
    before, after = slow["one queue", 1], slow["RTT", most]
    statements.append(
        Statement(
            "test 4",
            f"{OURS}separation makes the transfers' slowdowns more equal, with every congestion control",
            "Jain's index of slowdowns: "
            + ", ".join(f"{flows} {before[flows]:.2f} → {after[flows]:.2f}" for flows in slow.index),
            bool((after > before).all()),
        )
    )
    return statements


def test_8(tables: Tables) -> list[Statement]:
    """What the result of test 4 depends on."""
    by = tables["test8"].set_index("condition")
    change = by.fct_reduction
    usual, printed = change["as in test 4"], _paper(4, "large TCP flows, several queues")
    nearest = str((change - printed).abs().idxmin())
    alone = change["one class, beginners apart"]
    buffers = change[["one queue of 4 BDP", "one queue of BDP / 4"]]
    others = change.drop([*buffers.index, "as in test 4"])
    jain = by[["one_queue_jain_of_slowdown", "separated_jain_of_slowdown"]]
    return [
        Statement(
            "test 8",
            f"{OURS}under one of the conditions the reduction is the paper's {100 * printed:g} % (within 5 points)",
            f"the closest is '{nearest}' with {100 * change[nearest]:.1f} %",
            bool(abs(change[nearest] - printed) <= 0.05),
        ),
        Statement(
            "test 8",
            f"{OURS}a queue for new flows alone, without classes, gives more than half of the reduction",
            f"{100 * alone:.0f} % against {100 * usual:.0f} %",
            bool(alone > usual / 2),
        ),
        Statement(
            "test 8",
            f"{OURS}the buffer of the one queue matters more than all other conditions",
            f"reductions of {100 * buffers.min():.0f} to {100 * buffers.max():.0f} % with other buffers, of "
            f"{100 * others.min():.0f} to {100 * others.max():.0f} % under the other conditions",
            bool(buffers.max() - buffers.min() > others.max() - others.min()),
        ),
        Statement(
            "test 8",
            f"{OURS}under every condition, separation makes the transfers' slowdowns more equal",
            "Jain's index of slowdowns rises by at least "
            f"{(jain.separated_jain_of_slowdown - jain.one_queue_jain_of_slowdown).min():.2f}",
            bool((jain.separated_jain_of_slowdown > jain.one_queue_jain_of_slowdown).all()),
        ),
    ]


#: Differences of Jain's index up to this are no difference in test 9.
SAME = 0.03


def test_9(tables: Tables) -> list[Statement]:
    """When separation pays, with and without the guard."""
    table = tables["test9"]
    jain, minimum, lost, delay, used, tcp = (
        table.pivot_table(index="traffic", columns="scheme", values=column, sort=False)
        for column in (
            "jain_index",
            "jain_least",
            "retransmits_percent",
            "queue_ms",
            "utilisation",
            "tcp_mbps",
        )
    )
    one, plain, guard = jain["one queue"], jain["RTT"], jain["RTT and guard"]

    def worse(scheme: pd.Series, than: pd.Series) -> tuple[str, bool]:
        those = scheme < than - SAME
        text = _list({name: f"{than[name]:.2f} → {scheme[name]:.2f}" for name in scheme.index[those]})
        return f"less fair: {those.sum()} of {len(those)}" + (f" ({text})" if text else ""), not those.any()

    text, never = worse(plain, one)
    statements = [
        Statement(
            "test 9", f"{OURS}the paper's rules never lower Jain's index by more than {SAME:g}", text, never
        )
    ]
    text, never = worse(guard, one)
    statements.append(
        Statement(
            "test 9", f"{OURS}with the guard, separation never lowers it by more than {SAME:g}", text, never
        )
    )
    noisy = [name for name in jain.index if "jitter" in name]
    text, never = worse(guard[noisy], one[noisy])
    statements.append(
        Statement(
            "test 9",
            f"{OURS}with the guard and half a millisecond of jitter, separation never lowers it by more than {SAME:g}",
            text,
            never,
        )
    )
    text, never = worse(guard, plain)
    statements.append(
        Statement(
            "test 9",
            f"{OURS}the guard is nowhere less fair than the paper's rules (by more than {SAME:g})",
            text,
            never,
        )
    )
    four = minimum.loc[[name for name in jain.index if "test 1" in name], "RTT and guard"]
    statements.append(
        Statement(
            "test 9",
            f"{OURS}the guard leaves test 1 at 1.00",
            f"minimum of the seeds: {_list(four)}",
            bool((four >= 0.995).all()),
        )
    )
    idle = used["one queue"] - used["RTT and guard"]
    statements.append(
        Statement(
            "test 9",
            f"{OURS}the guard costs at most 0.01 of the link",
            f"{idle.max():.3f} ({idle.idxmax()})",
            bool(idle.max() <= 0.01),
        )
    )
    times = {s: float(np.exp(np.log(lost[s] / lost["one queue"]).mean())) for s in ("RTT", "RTT and guard")}
    statements.append(
        Statement(
            "test 9",
            f"{OURS}the guard costs fewer retransmissions than the paper's rules, and its queues are longer",
            f"relative to one queue (geometric mean over the traffic): retransmissions {times['RTT']:.1f} times with "
            f"the paper's rules, {times['RTT and guard']:.1f} times with the guard; mean queueing delay "
            + ", ".join(
                f"{np.exp(np.log(delay[s] / delay['one queue']).mean()):.2f} times"
                for s in ("RTT", "RTT and guard")
            ),
            bool(
                times["RTT and guard"] < times["RTT"]
                and (delay["RTT and guard"] >= delay["RTT"]).mean() > 0.5
            ),
        )
    )
    flood = next(name for name in jain.index if "spoofed" in name)
    statements.append(
        Statement(
            "test 9",
            f"{OURS}next to a flood of spoofed UDP, TCP gets at least twice as much if separated, guard or not",
            f"Mbit/s: {_list(tcp.loc[flood])}",
            bool((tcp.loc[flood, ["RTT", "RTT and guard"]] >= 2 * tcp.loc[flood, "one queue"]).all()),
        )
    )
    many = sorted((name for name in jain.index if name.startswith("1000 ")), key=len)
    if len(many) == 2:  # not in quick runs
        late, early = (one[name] - plain[name] for name in many)
        statements.append(
            Statement(
                "test 9",
                f"{OURS}among 1000 flows the harm comes from what counts as long: from 0.1 MB on instead of 10 MB, the "
                "paper's rules lower Jain's index by less than a fifth as much",
                f"Jain's index changes by {-late:+.2f} with 10 MB, by {-early:+.2f} with 0.1 MB",
                bool(early < late / 5),
            )
        )
    near, jittered = (
        next(name for name in jain.index if "10 to 12" in name and ("jitter" in name) == jitter)
        for jitter in (False, True)
    )
    loss = {name: one[name] - plain[name] for name in (near, jittered)}
    statements.append(
        Statement(
            "test 9",
            f"{OURS}half a millisecond of jitter removes most of the harm among near RTTs",
            f"Jain's index falls by {loss[near]:.2f} without jitter, by {loss[jittered]:.2f} with it",
            bool(loss[jittered] < loss[near] / 2),
        )
    )
    return statements


def test_10(tables: Tables) -> list[Statement]:
    """What fairness costs with limits, in the authors' logs and here, and with guarantees."""
    table = tables["test10"]
    one = table[(table.scheme == "one queue") & (table.streams_with == "one")]
    limited = table[table.scheme == "RTT, limits in tenths"]
    statements = []
    for flows in dict.fromkeys(table.flows):
        before, after = (part[(part.flows == flows) & (part.bundles == 4)].iloc[0] for part in (one, limited))
        whole = before.logged_share_of_link
        cost = 1 - after.logged_share_of_link / whole if whole else math.nan
        statements.append(
            Statement(
                "test 10",
                f"{OURS}authors' logs, four {flows} bundles: separation costs a fifth of the goodput (0.15 to 0.25)",
                f"{cost:.2f}, for a Jain's index of {before.logged_jain_index:.2f} → {after.logged_jain_index:.2f}",
                bool(0.15 <= cost <= 0.25),
            )
        )
    tenths = {
        f"{r['bundles']} {r['flows']}": r["logged_largest_share"] / (10 // r["bundles"] / 10)
        for r in limited.to_dict("records")
    }
    off = (limited.share_of_link - limited.logged_share_of_link).abs().max()
    kept = table[table.scheme == "RTT"]
    apart = (one.jain_index - one.logged_jain_index).abs().max()
    beside = {
        f"{r['bundles']} {r['flows']}": f"{r['jain_index']:.2f} ({r['logged_jain_index']:.2f})"
        for r in one.to_dict("records")
    }
    return [
        *statements,
        Statement(
            "test 10",
            f"{OURS}authors' logs: a bundle gets a whole number of tenths of the link, less headers (0.90 to 0.96 of "
            "0.5, 0.3 and 0.2)",
            _list(tenths),
            all(0.9 <= value <= 0.96 for value in tenths.values()),
        ),
        Statement(
            "test 10",
            f"{OURS}the same limits leave as much of the link idle here (within 0.03)",
            f"off by at most {off:.3f}",
            bool(off <= 0.03),
        ),
        Statement(
            "test 10",
            f"{OURS}guarantees are as fair (Jain's index at least 0.98) and leave nothing idle (goodput at least 0.92 "
            "of the link)",
            f"least Jain's index {kept.jain_least.min():.3f}, least goodput {kept.share_of_link.min():.3f}",
            bool(kept.jain_least.min() >= 0.98 and kept.share_of_link.min() >= 0.92),
        ),
        Statement(
            "test 10",
            f"{OURS}one queue is as unfair here as in the authors' logs (Jain's index within 0.15)",
            f"here (logs): {_list(beside)}",
            bool(apart <= 0.15),
        ),
    ]


def test_11(tables: Tables) -> list[Statement]:
    """What explains the paper's shares in one queue."""
    table = tables["test11"]
    share = table.set_index(["flows", "rtts", "streams", "buffer_ms"]).share_of_short_rtt.sort_index()
    printed = 1 - _paper(3, "BBR, one queue, 5 ms difference")
    bbr = share["BBR", "10 and 15 ms", 1]
    smallest, most = bbr.index.min(), bbr.index.max()
    statements = [
        Statement(
            "test 11",
            f"{OURS}BBR, RTTs 5 ms apart, one stream each: the flow with the short RTT gets the paper's {printed:g} or "
            f"less with a buffer of {most:g} ms, but not with one of {smallest:g} ms",
            _list({f"{buffer:g} ms": value for buffer, value in bbr.items()}),
            bool(bbr[most] <= printed < bbr[smallest]),
        )
    ]
    cubic = _paper(3, "CUBIC, one queue", "share_of_short_rtt")
    wide = table[table.flows == "CUBIC"].pivot_table(
        index=["streams", "buffer_ms"], columns="rtts", values="share_of_short_rtt", sort=False
    )
    far = (wide - cubic).abs().max(axis=1)
    closest = far.to_numpy().argmin()
    streams, buffer = wide.reset_index().loc[closest, ["streams", "buffer_ms"]]
    each = "one stream" if streams == 1 else f"{streams:g} streams"
    statements.append(
        Statement(
            "test 11",
            f"{OURS}CUBIC: with some buffer and number of streams, the short RTT gets the paper's {cubic:g} (within "
            "0.1), whatever the RTT of the other",
            f"the closest: {each}, {buffer:g} ms of buffer ({_list(wide.iloc[closest])})",
            bool(far.min() <= 0.1),
        )
    )
    logged = logged_pairs().query("queues == 'one'").set_index("flows").share_of_short_rtt
    both = table[(table.rtts == LOGGED_PAIR) & (table.streams == 10)].pivot_table(
        index="buffer_ms", columns="flows", values="share_of_short_rtt"
    )[list(logged.index)]
    off = (both - logged).abs().max(axis=1)
    best = both.reset_index().loc[off.to_numpy().argmin()]
    beside = {str(flows): f"{best[str(flows)]:.2f} (logs: {share:.2f})" for flows, share in logged.items()}
    statements.append(
        Statement(
            "test 11",
            f"{OURS}{LOGGED_PAIR}, ten streams each: one buffer gives the shares in the authors' logs, with CUBIC and "
            "with BBR (within 0.1)",
            f"the closest: {best.buffer_ms:g} ms ({_list(beside)})",
            bool(off.min() <= 0.1),
        )
    )
    return statements


def test_5(tables: Tables) -> list[Statement]:
    """The quiet flow's RTT once the loud one has joined."""
    over = tables["test5"].set_index("scheme").p95_over_base
    return [
        Statement(
            "test 5",
            "with prevention, the quiet flow's RTT stays low (95th percentile at most 1.2 times the base RTT)",
            f"{over['RTT and threshold']:.2f} times the base RTT",
            bool(over["RTT and threshold"] <= 1.2),
        ),
        Statement(
            "test 5",
            f"{OURS}without prevention the RTT rises, but less if queues are separated by RTT than in one queue",
            f"{over['RTT']:.2f} times the base RTT if separated, {over['one queue']:.1f} times in one queue",
            bool(1.2 < over["RTT"] < over["one queue"]),
        ),
    ]


def test_6(tables: Tables) -> list[Statement]:
    """UDP beside TCP."""
    table = tables["test6"].set_index(["scheme", "tcp_flows"])
    statements = []
    for n, words in ((1, "one TCP flow"), (2, "two TCP flows"), (3, "three TCP flows")):
        statements.append(
            near(
                "test 6", f"UDP and {words}, one queue: Jain's index", table.jain_index["one queue", n],
                _paper(6, f"UDP and {words}, one queue"), within=0.01, absolute=True, digits=3,
            )
        )  # fmt: skip
    index = table.jain_index["RTT"].loc[1:]
    statements.append(
        Statement(
            "test 6",
            "separated, UDP and TCP share fairly (Jain's index at least 0.95)",
            ", ".join(f"{value:.3f}" for value in index),
            bool((index >= 0.95).all()),
        )
    )
    starved = table.tcp_over_fair_share["one queue"].loc[1:]
    fair = table.tcp_over_fair_share["RTT"].loc[1:]
    statements.append(
        Statement(
            "test 6",
            f"{OURS}TCP gets next to nothing in one queue (below 0.05 of its fair share) and its share when "
            "separated (over 0.9)",
            f"at most {starved.max():.2f} in one queue, at least {fair.min():.2f} separated",
            bool(starved.max() < 0.05 and fair.min() > 0.9),
        )
    )
    return statements


def scaling(tables: Tables) -> list[Statement]:
    """Time and accuracy with many flows."""
    table = tables["scaling"]
    first, last = table.iloc[0], table.iloc[-1]
    more = last.flows / first.flows
    steps = {"all flows new": "decide_ms", "all RTTs changed": "again_ms"}
    return [
        Statement(
            "scaling",
            f"{OURS}a decision takes time that grows more slowly than the number of flows (the paper says so of its "
            "switch)",
            f"{last.flows:g} flows instead of {first.flows:g}: "
            + ", ".join(f"{step}: {first[name]:.1f} to {last[name]:.1f} ms" for step, name in steps.items()),
            all(last[name] < more * first[name] for name in steps.values()),
        ),
        Statement(
            "scaling",
            f"{OURS}nearly all flows have a sample and are put into their class (at least 0.99 of them)",
            f"at least {table.accuracy.min():.3f}",
            bool(table.accuracy.min() >= 0.99),
        ),
    ]


def table_1(tables: Tables) -> list[Statement]:
    """The paper's Table 1: gains over one queue, and sections 1 and 7: over existing systems."""
    by = tables["table1"].set_index("scheme")
    gains = {
        name: by[f"fairness_gain_{name}_percent"] for name in _FLOWS if f"fairness_gain_{name}_percent" in by
    }
    if not gains:
        return []
    numbers = paper(0).set_index(["setting", "quantity"]).paper
    alone, mixed = [name for name in gains if "and" not in name], [name for name in gains if "and" in name]
    statements = []
    for scheme, settings, flows, where in (
        ("CCA", ("P4air", "P4CCI"), mixed, "with both congestion controls, "),
        ("buffer", ("P4BS",), list(gains), ""),
        ("RTT", ("RTT separation",), list(gains), ""),
    ):
        printed = [numbers[name, "fairness_improvement_percent"] for name in settings]
        bounds = [float(n) for text in printed for n in str(text).split(" to ")]
        found = {name: gains[name][scheme] for name in flows}
        if found:
            statements.append(
                Statement(
                    "Table 1",
                    f"{' and '.join(settings)}: {where}fairness improves by {' and '.join(printed)} % over one queue "
                    f"(within {POINTS:g} points)",
                    _changes(found),
                    all(min(bounds) - POINTS <= gain <= max(bounds) + POINTS for gain in found.values()),
                )
            )
    if alone:
        statements.append(
            Statement(
                "section 5.2",
                "P4air and P4CCI: unfairness among flows of one congestion control remains (separation by RTT improves "
                "fairness more)",
                "; ".join(
                    f"{_FLOWS[name]}: {gains[name]['CCA']:+.0f} against {gains[name]['RTT']:+.0f} %"
                    for name in alone
                ),
                all(gains[name]["CCA"] < gains[name]["RTT"] for name in alone),
            )
        )
    wanted = float(paper(9).set_index("setting").paper["RTT separation, over existing systems"])
    over = {
        words: {
            name: 100 * ((100 + gain["RTT"]) / max(100 + gain[scheme], 1e-9) - 1)
            for name, gain in gains.items()
        }
        for scheme, words in (("CCA", "queues by congestion control"), ("buffer", "one resized buffer"))
    }
    statements.append(
        Statement(
            "sections 1 and 7",
            f"RTT separation: fairness improves by {wanted:g} % over existing systems (within {POINTS:g} points)",
            "; ".join(f"over {words}: {_changes(found)}" for words, found in over.items()),
            all(abs(gain - wanted) <= POINTS for found in over.values() for gain in found.values()),
        )
    )
    return statements


def _changes(gains: Mapping[str, float]) -> str:
    """Changes of Jain's index in percent, by flows."""
    return ", ".join(f"{_FLOWS[name]}: {gain:+.0f} %" for name, gain in gains.items())
