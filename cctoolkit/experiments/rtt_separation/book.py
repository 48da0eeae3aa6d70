"""Views of the RTT experiment's kept tables for the book."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pandas as pd

from ..._support.markdown import markdown_table
from ..statements import bullets_of
from . import conclusions
from .tables import paper

__all__ = ["VIEWS"]

Tables = Mapping[str, pd.DataFrame]

#: Columns of the book's tables, and the schemes they show.
_SCHEMES = {
    "one queue": "one queue",
    "RTT": "by RTT",
    "RTT, hard limits": "hard limits",
    "CCA": "by congestion control",
    "buffer": "one resized buffer",
}


def _percent(change: float) -> str:
    return f"{round(100 * change):+d} %".replace("-", "−")


def _by(table: pd.DataFrame, column: str) -> dict[Any, dict[Hashable, Any]]:
    """The rows by the value of a column; of several with the same, the last."""
    return {row[column]: row for row in table.to_dict("records")}


def _jain(row: Mapping[Hashable, Any]) -> str:
    """Jain's index, the mean over the seeds, and the least of them where two decimals tell them apart."""
    mean, minimum = f"{row['jain_index']:.2f}", f"{row['jain_least']:.2f}"
    return mean if minimum == mean else f"{mean} ({minimum})"


def _share(row: Mapping[Hashable, Any]) -> str:
    """The short RTT's share, the mean over the seeds, and their range where two decimals tell them apart."""
    mean, minimum, most = (f"{row[name]:.2f}" for name in ("share_of_short_rtt", "least", "most"))
    return mean if minimum == most else f"{mean} ({minimum}–{most})"


def test_1(tables: Tables) -> str:
    """Jain's index / utilisation with all four flows there."""
    rows = []
    for flows, part in tables["test1"].groupby("flows", sort=False):
        by = _by(part, "scheme")
        cells = {
            name: f"{_jain(by[scheme])} / {by[scheme]['utilisation']:.2f}"
            for scheme, name in _SCHEMES.items()
        }
        label = "two CUBIC, two BBR (20, 60 ms)" if "and" in str(flows) else f"four {flows}"
        rows.append({"flows": label, **cells})
    return markdown_table(pd.DataFrame(rows), labels=1)


def test_3(tables: Tables) -> str:
    """Share of the near flow by the other's RTT."""
    numbers = paper(3).set_index(["setting", "quantity"]).paper
    cubic = f" (paper: about {float(numbers['CUBIC, one queue', 'share_of_short_rtt']):.2f})"
    bbr = 1 - float(numbers["BBR, one queue, 5 ms difference", "share_of_long_rtt"])
    notes = {
        ("CUBIC", "one queue"): cubic,
        ("BBR", "one queue"): f" (paper: at most {bbr:.2f} from 15 ms on)",
    }
    table = tables["test3"]
    shown = [rtt for rtt in (15, 20, 40, 60, 100, 140, 200) if rtt in set(table.rtt_ms)]
    rows = []
    for (flows, scheme), part in table.groupby(["flows", "scheme"], sort=False):
        by = _by(part, "rtt_ms")
        name = "one queue" if scheme == "one queue" else "by RTT"
        label = f"{flows}, {name}{notes.get((str(flows), str(scheme)), '')}"
        rows.append({"RTT of the other, ms": label} | {str(rtt): _share(by[rtt]) for rtt in shown})
    return markdown_table(pd.DataFrame(rows), labels=1)


def test_4(tables: Tables) -> str:
    """Mean completion times and their change."""
    table = tables["test4"]
    table = table[table.shares == "by flows"]
    rows = []
    for flows, part in table.groupby("flows", sort=False):
        by = part.set_index(["scheme", "queues"])
        columns = {
            "2 queues": ("RTT", 2), "4 queues": ("RTT", 4), "8 queues": ("RTT", 8),
            "by congestion control": ("CCA", 1), "one resized buffer": ("buffer", 1),
        }  # fmt: skip
        rows.append(
            {"flows": flows, "one queue": f"{by.mean_fct_s['one queue', 1]:.1f}"}
            | {
                name: f"{by.mean_fct_s[key]:.1f} ({_percent(-by.fct_reduction[key])}, "
                f"{_percent(-by.fct_reduction_high[key])} to {_percent(-by.fct_reduction_low[key])})"
                for name, key in columns.items()
                if key in by.index
            }
        )
    return markdown_table(pd.DataFrame(rows), labels=1)


def test_4_retransmits(tables: Tables) -> str:
    """The cost of small buffers."""
    table = tables["test4"]
    by = table[table.shares == "by flows"].set_index(["flows", "scheme", "queues"]).retransmits
    more = ", ".join(
        f"{flows} {by[flows, 'RTT', 4] / by[flows, 'one queue', 1]:.1f} times"
        for flows in dict.fromkeys(table.flows)
    )
    return f"Retransmissions with four queues, relative to one queue: {more}."


def test_8(tables: Tables) -> str:
    """The mean completion time under other conditions."""
    names = {
        "load 0.6": "load 0.6 instead of 0.9",
        "one queue of 4 BDP": "one queue of 4 BDP (of the largest RTT) instead of 1",
    }
    rows = [
        {
            "condition": names.get(row["condition"], row["condition"]),
            "one queue, s": f"{row['one_queue_fct_s']:.1f}",
            "separated, s": f"{row['separated_fct_s']:.1f}",
            "change": _percent(-row["fct_reduction"]),
            "of the samples": f"{_percent(-row['most'])} to {_percent(-row['least'])}",
            "Jain's index of slowdowns": f"{row['one_queue_jain_of_slowdown']:.2f} → "
            f"{row['separated_jain_of_slowdown']:.2f}",
        }
        for row in tables["test8"].to_dict("records")
    ]
    return markdown_table(pd.DataFrame(rows), labels=1)


def test_9(tables: Tables) -> str:
    """Jain's index / retransmissions, under each scheme."""
    rows = []
    for traffic, part in tables["test9"].groupby("traffic", sort=False):
        by = _by(part, "scheme")
        rows.append(
            {"traffic": traffic}
            | {
                name: f"{_jain(by[scheme])} / {by[scheme]['retransmits_percent']:.2f} / {by[scheme]['queue_ms']:.0f}"
                for scheme, name in (
                    ("one queue", "one queue"), ("RTT", "the paper's rules"), ("RTT and guard", "with the guard"),
                )
            }
        )  # fmt: skip
    return markdown_table(pd.DataFrame(rows), labels=1)


def test_10(tables: Tables) -> str:
    """Jain's index / goodput of bundles, in the logs and here."""
    rows = []
    for (flows, n), part in tables["test10"].groupby(["flows", "bundles"], sort=False):
        row = {"bundles": f"{n} {flows}"}
        own = part[(part.streams_with == "one") == (part.scheme == "one queue")]
        cells = {
            name: _by(own, "scheme")[scheme]
            for scheme, name in (("one queue", "one queue"), ("RTT, limits in tenths", "limits"))
        }
        for name, cell in cells.items():
            row[f"{name}, logs"] = f"{cell['logged_jain_index']:.2f} / {cell['logged_share_of_link']:.2f}"
        for name, cell in (cells | {"guarantees": _by(part, "scheme")["RTT"]}).items():
            row[f"{name}, here"] = f"{_jain(cell)} / {cell['share_of_link']:.2f}"
        rows.append(row)
    return markdown_table(pd.DataFrame(rows), labels=1)


def test_11(tables: Tables) -> str:
    """The short RTT's share by buffer."""
    rows = []
    for (flows, rtts, streams), part in tables["test11"].groupby(["flows", "rtts", "streams"], sort=False):
        label = f"{flows}, {rtts}, {'one stream' if streams == 1 else f'{streams} streams'}"
        rows.append(
            {"buffer, ms": label} | {f"{row['buffer_ms']:g}": _share(row) for row in part.to_dict("records")}
        )
    return markdown_table(pd.DataFrame(rows), labels=1)


def scaling(tables: Tables) -> str:
    """CPU times of a decision."""
    table = tables["scaling"]
    return markdown_table(
        pd.DataFrame(
            {
                "flows": [f"{n:,}".replace(",", " ") for n in table.flows],
                "exact classes, ms": [f"{ms:.1f}" for ms in table.jenks_ms],
                "Algorithm 1, ms": [f"{ms:.1f}" for ms in table.algorithm_1_ms],
                "decision, all flows new, ms": [f"{ms:.1f}" for ms in table.decide_ms],
                "decision, all RTTs changed, ms": [f"{ms:.1f}" for ms in table.again_ms],
            }
        ),
        labels=1,
    )


def linux_test_1(tables: Tables) -> str:
    """Jain's index / utilisation, simulator and kernel."""
    rows = []
    for (flows, scheme), part in tables["test1"].groupby(["flows", "scheme"], sort=False):
        by = part.set_index("where")
        rows.append(
            {"flows": f"four {flows}", "queues": "one" if scheme == "one queue" else "by RTT"}
            | {
                name: f"{by.jain_index[where]:.2f} / {by.utilisation[where]:.2f}"
                for where, name in (("simulator", "simulated"), ("Linux", "Linux"))
            }
        )
    return markdown_table(pd.DataFrame(rows), labels=2)


def linux_test_3(tables: Tables) -> str:
    """Share of the near flow, simulator / kernel."""
    table = tables["test3"]
    rows = []
    for (flows, scheme), part in table.groupby(["flows", "scheme"], sort=False):
        wide = part.pivot_table(index="rtt_ms", columns="where", values="share_of_short_rtt")
        name = "one queue" if scheme == "one queue" else "by RTT"
        cells = {f"{rtt:g}": f"{row['simulator']:.2f} / {row['Linux']:.2f}" for rtt, row in wide.iterrows()}
        rows.append({"RTT of the other, ms": f"{flows}, {name}"} | cells)
    return markdown_table(pd.DataFrame(rows), labels=1)


def linux_apart(tables: Tables) -> str:
    """The differences of delays and utilisations."""
    wide = tables["test3"].pivot_table(
        index=["flows", "scheme", "rtt_ms"], columns="where", values=["queue_ms", "utilisation"]
    )
    delay = (wide["queue_ms"]["simulator"] / wide["queue_ms"]["Linux"] - 1).abs().max()
    used = (wide["utilisation"]["simulator"] - wide["utilisation"]["Linux"]).abs().max()
    return (
        f"In test 3, mean queueing delays of simulator and Linux differ by at most {100 * delay:.0f} %, "
        f"utilisations by at most {used:.3f}."
    )


def share_at(flows: str, rtt_ms: int, of_far: bool = False) -> Callable[[Tables], str]:
    """A view of one share in one queue, in percent."""

    def one(tables: Tables) -> str:
        part = tables["test3"]
        part = part[(part.flows == flows) & (part.scheme == "one queue") & (part.rtt_ms == rtt_ms)]
        share = float(part.share_of_short_rtt.iloc[0])
        return f"{100 * (1 - share if of_far else share):.0f} %"

    return one


def test_4_size(tables: Tables) -> str:
    """The number of transfers."""
    return f"{tables['test4'].of.iloc[0]:g}"


VIEWS: dict[str, Callable[[Tables], str]] = {
    "test-1": test_1,
    "test-3": test_3,
    "test-4": test_4,
    "test-4-retransmits": test_4_retransmits,
    "test-4-size": test_4_size,
    "test-8": test_8,
    "test-9": test_9,
    "test-10": test_10,
    "test-11": test_11,
    "scaling": scaling,
    "linux-test-1": linux_test_1,
    "linux-test-3": linux_test_3,
    "linux-apart": linux_apart,
    "cubic-beside-15": share_at("CUBIC", 15),
    "cubic-beside-40": share_at("CUBIC", 40),
    "cubic-beside-100": share_at("CUBIC", 100),
    "bbr-far-15": share_at("BBR", 15, of_far=True),
    **{
        f"{name}-statements": bullets_of(part)
        for name, part in {
            "test-1": conclusions.test_1,
            "test-2": conclusions.test_2,
            "test-3": conclusions.test_3,
            "test-4": conclusions.test_4,
            "test-5": conclusions.test_5,
            "test-6": conclusions.test_6,
            "test-8": conclusions.test_8,
            "test-9": conclusions.test_9,
            "test-10": conclusions.test_10,
            "test-11": conclusions.test_11,
            "scaling": conclusions.scaling,
            "table-1": conclusions.table_1,
        }.items()
    },
}
