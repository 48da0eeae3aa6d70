"""The parts of the P4-CoDel experiment's summary that are not statements: conditions, tables, explanations."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..._support.markdown import markdown_table
from .scenarios import CLOCK_WRAPS_MS, GUESSES, MINUTE_S, TARGETS, Settings
from .tables import npu_off_by, paper_table_1

Tables = Mapping[str, pd.DataFrame]

_TABLE_1 = [
    "flows", "target", "loss_percent", "loss_percent_std", "paper_loss_percent", "mean_delay_ms",
    "mean_delay_ms_std", "paper_delay_ms",
]  # fmt: skip


def about(kernel: str | None) -> str:
    """The targets."""
    text = "Targets: " + "; ".join(f"**{name}**: {what}" for name, what in TARGETS.items()) + "."
    return text if kernel is None else f"{text} **Linux kernel**: {kernel} in virtual time."


def figure_5(settings: Settings, tables: Tables) -> list[str]:
    """One run each."""
    return [
        "Mean and peaks of the queueing delay, one run each (seed 1).",
        markdown_table(tables["figure5"]),
    ]


def table_1(settings: Settings, tables: Tables) -> list[str]:
    """Table I beside the paper's."""
    return [
        f"Each mean is over {settings.seeds} runs of 4 s"
        + (f" ({settings.kernel_seeds} in the kernel)" if settings.testbed else "")
        + ". The standard deviation is that of single runs, because the paper's number is a single run.",
        markdown_table(
            tables["table1"][[*_TABLE_1, "later_delay_ms", "packets"]]
        ),
        "`later_delay_ms` leaves out the first second. How high the first burst goes depends on slow start, "
        "on the base RTT and on the senders' bursts, none of which the paper gives; the NPU's losses, below, "
        "show what they change.",
    ]  # fmt: skip


def minute(settings: Settings, tables: Tables) -> list[str]:
    """Loss and delay in runs of a minute."""
    return [
        f"Runs of {MINUTE_S:g} s instead of 4 s, {settings.fewer_seeds} seeds.",
        markdown_table(tables["table1_minute"][_TABLE_1]),
    ]


def figure_7(settings: Settings, tables: Tables) -> list[str]:
    """Delay by rate, a column for each target."""
    return [
        f"Mean delay in ms, {settings.udp_s:g} s a point. Rates count whole frames.",
        markdown_table(by_rate(tables["figure7"])),
        "UDP does not slow down. On the ASIC a dropped packet has already passed the shaper: its time on the "
        "link is lost, so a drop does not make the queue shorter; that CoDel works only with senders that "
        "slow down.",
        "The kernel's interrupts, which in the paper delay packets at low rates, exist neither in the "
        "simulator nor in the testbed's kernel. The kernel's delays are computed from the queue's length "
        "(Little's law).",
    ]


def by_rate(table: pd.DataFrame) -> pd.DataFrame:
    """Mean delays of the UDP scan: one row per rate, one column per target."""
    columns = table.target + table.arrivals.map({"cbr": "", "poisson": ", Poisson"})
    wide = table.assign(column=columns).pivot_table(
        index="rate_mbps", columns="column", values="mean_delay_ms", sort=False
    )
    return wide.reset_index().rename_axis(columns=None)


def different_rtts(settings: Settings, tables: Tables) -> list[str]:
    """Shares, nearest flow first."""
    return [
        f"{settings.long_s:g} s, {settings.fewer_seeds} seeds. Shares are of the goodput, nearest flow first. "
        "The paper draws such flows (figure 6) and shows no result.",
        markdown_table(
            tables["rtts"][
                [
                    "rtts_ms", "target", "loss_percent", "mean_delay_ms", "mean_delay_ms_std", "utilisation",
                    "jain_index", "share_1", "share_2", "share_3",
                ]
            ]
        ),
        "CoDel's drops hit whoever has packets in the queue, and the near flow recovers first.",
    ]  # fmt: skip


def flow_queueing(settings: Settings, tables: Tables) -> list[str]:
    """Delays and goodputs by flow."""
    return [
        "Three CUBIC flows with RTTs of 1, 10 and 40 ms and a thin one (0.1 Mbit/s, like a call's), "
        f"{settings.long_s:g} s, {settings.fewer_seeds} seeds. Jain's index covers the three CUBIC flows. "
        "Section III-A says that Tofino could have queues per flow.",
        markdown_table(
            tables["fq_codel"][
                [
                    "load", "queues", "target", "call delay_ms", "1 ms delay_ms", "10 ms delay_ms", "40 ms delay_ms",
                    "jain_index", "1 ms mbps", "10 ms mbps", "40 ms mbps", "flood mbps", "utilisation",
                ]
            ]
        ),
        "Each queue of fq_codel has a CoDel of its own, and a far flow on its own is slow to fill its queue.",
    ]  # fmt: skip


def if_3(settings: Settings, tables: Tables) -> list[str]:
    """With and without the rule."""
    return [
        "The same scenario, the same place, an exact square root; only the rule is taken out. From 5 flows "
        f"on, runs last {settings.long_s:g} s.",
        markdown_table(
            tables["if_3"][
                [
                    "flows", "form", "if_3", "loss_percent", "loss_percent_std", "mean_delay_ms", "mean_delay_ms_std",
                    "entered", "resumed",
                ]
            ]
        ),
        "`entered`: how often a dropping state began; `resumed`: how often the rule then applied.",
        "The rule lets a dropping state resume at the last drop rate, which is how CoDel follows more flows. "
        "In RFC 8289 a dropping state begins after an interval above the target, in Listing 1 with every "
        "packet that crosses it: there are many dropping states, the rule applies to few of them, and its "
        "count is soon replaced. The second drop follows the first after 71 ms in Listing 1 and after 100 ms "
        "in the RFC.",
    ]  # fmt: skip


def square_roots(settings: Settings, tables: Tables) -> list[str]:
    """Errors of the square roots, and what they change."""
    errors = tables["square_root_error"].groupby("square_root", sort=False).error
    worst = errors.agg(["min", "max"]).mul(100).reset_index()
    worst.columns = pd.Index(["square_root", "minimum error, %", "largest error, %"])
    return [
        "The time to the next drop against the exact one, for counts up to 1024:",
        markdown_table(worst),
        "The effect: Listing 1 with each of them, and RFC 8289 and Linux, which differ in nothing but the "
        "square root.",
        markdown_table(
            tables["square_root"][
                [
                    "load", "square_root", "loss_percent", "loss_percent_std", "mean_delay_ms", "mean_delay_ms_std",
                    "largest_count",
                ]
            ]
        ),
        "An approximation can matter only where `count` gets beyond the range in which it is exact; Linux's "
        "Newton step follows the root as the count rises one by one.",
    ]  # fmt: skip


def clock_wrap(settings: Settings, tables: Tables) -> list[str]:
    """Step by step from the printed algorithm to the published program."""
    return [
        "Listing 2 and the program that the authors published, one difference after the other; the paper's "
        f"column is its ASIC's. The clock at the start covers its whole range ({CLOCK_WRAPS_MS:.0f} ms) in "
        f"{settings.seeds} steps.",
        markdown_table(clock_steps(tables["clock"])),
        "A next drop that lies behind the wrap is, compared as an unsigned number, smaller than every time "
        "before the wrap: all packets are dropped until the delay is below the target. Each of these drops "
        "moves the next one on, which may end up a second ahead of the wrapped clock; until then nothing is "
        "dropped, whatever the delay (last panel of the figure: a wrap in the first burst). "
        f"{100 * 4e3 / CLOCK_WRAPS_MS:.0f} % of runs of 4 s contain a wrap. Signed differences cost nothing "
        "and have neither fault.",
    ]


def clock_steps(table: pd.DataFrame) -> pd.DataFrame:
    """From Listing 2 to the published program, beside the paper's ASIC."""
    paper = paper_table_1().query("target == 'P4-ASIC'").drop(columns="target")
    columns = ["step" if name == "target" else name for name in _TABLE_1]
    return table.merge(paper, on="flows")[columns]


def npu_losses(settings: Settings, tables: Tables) -> list[str]:
    """Every guess beside the paper's six numbers."""
    return [
        "The NPU's program was not published, and the paper leaves open why it loses more than Linux and "
        "still has less delay with three flows. Each guess changes one thing of the model; none was fitted. "
        "Loss in percent and delay in ms with one, two and three flows; how many flows lose a packet in the "
        "same 10 ms, because the paper suspects that the NPU synchronises its flows; and the root mean square "
        "of all six logarithms of measured over published.",
        markdown_table(npu_guesses(tables["npu"])),
        "Guesses: " + "; ".join(f"**{what}**: {why}" for what, (why, _, _) in GUESSES.items()) + ".",
        "Figure 5 of the paper shows more than 64 packets (7.8 ms) in the queue at the start, which rules out "
        "a queue of 64 packets. The model `codel_npu` stays as the text describes the NPU.",
    ]


def npu_guesses(table: pd.DataFrame) -> pd.DataFrame:
    """Every guess about the NPU, and the paper's six numbers."""
    off = npu_off_by(table)
    rows = []
    for what, mine in table.groupby("guess", sort=False):
        mine = mine.set_index("flows")
        numbers = {
            f"{short} {n}": f"{mine[quantity][n]:.2f} ± {mine[f'{quantity}_std'][n]:.2f}"
            for short, quantity in (("loss", "loss_percent"), ("ms", "mean_delay_ms"))
            for n in (1, 2, 3)
        }
        rows.append(
            {"guess": what, **numbers, "flows hit at once (of 3)": mine.flows_hit_at_once[3]}
            | {"off by": f"{off[what]:.0%}"}
        )
    given = table.drop_duplicates("flows").set_index("flows")
    paper = {
        f"{short} {n}": f"{given[quantity][n]:g}"
        for short, quantity in (("loss", "paper_loss_percent"), ("ms", "paper_delay_ms"))
        for n in (1, 2, 3)
    }
    return pd.DataFrame([*rows, {"guess": "**the paper**", **paper}])
