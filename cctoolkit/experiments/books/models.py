"""Views of the bundled classifiers' scores for the book."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from ..._support.markdown import markdown_table
from ...identify.settings import NEBBY_PACKET_BYTES
from ..papers import paper_numbers

__all__ = ["LENGTHS", "VIEWS"]

Tables = Mapping[str, pd.DataFrame]

#: The bundled model without its way out to say "unknown".
OURS = "cca, one of three"
_SETS = {"paper": "paper", "hard-test": "hard"}
#: Window lengths in ms, as pages call them.
LENGTHS = {100: "100 ms", 1000: "1 s", 10_000: "10 s"}


def _whole(table: pd.DataFrame, model: str) -> pd.DataFrame:
    """Scores of all windows of a set, by set and length."""
    return table[(table.model == model) & table.by.isna()].set_index(["set", "window_ms"])


def _score(row: pd.Series) -> str:
    text = f"{row.f1:.2f}"
    wide = f"{row.low:.2f}" != text or f"{row.high:.2f}" != text
    return f"{text} ({row.low:.2f}–{row.high:.2f})" if wide else text


def results(tables: Tables) -> str:
    """Macro F1 of ours, Dragonfly and DeePCCI by set and length, beside published scores."""
    ours = tables["cca"]
    models = {"ours": (ours, OURS), **{n: (tables["dragonfly"], m) for n, m in _names(tables).items()}}
    cloud = paper_numbers("dragonfly", "Figure 11").set_index("setting").paper
    minute = paper_numbers("dragonfly", "Figure 6").set_index("setting").paper
    eight = paper_numbers("dragonfly", "Figure 8").set_index("setting").paper
    published = {
        ("paper", 100, ""): f"{cloud['100 ms, Dragonfly']} (cloud)",
        ("paper", 1000, ""): f"{cloud['6 s, Dragonfly']} at 6 s (cloud)",
        ("paper", 10_000, "75"): eight["75 background flows, Dragonfly"],
        ("paper", 60_000, ""): minute["1 minute, Dragonfly"],
    }
    wanted = [("paper", ms, "") for ms in (10, 100, 1000, 10_000)]
    wanted += [("paper", 10_000, "75"), ("paper", 60_000, "")]
    wanted += [("hard-test", ms, "") for ms in (10, 100, 1000, 10_000)]
    rows, before = [], ""
    for name, ms, background in wanted:
        length = f"{ms} ms" if ms < 1000 else f"{ms // 1000} s"
        label = f"{length}, {background} background flows" if background else length
        row = {"set": "" if name == before else _SETS[name], "window": label}
        before = name
        for column, (table, model) in models.items():
            here = table[(table.model == model) & (table.set == name) & (table.window_ms == ms)]
            if background:
                here = here[(here.by == "background") & (here.value.astype(str) == background)]
            else:
                here = here[here.by.isna()]
            row[column] = _score(here.iloc[0]) if len(here) else ""
        rows.append(row | {"published": published.get((name, ms, background), "")})
    return markdown_table(pd.DataFrame(rows), labels=1)


def _names(tables: Tables) -> dict[str, str]:
    """Names of the published networks, by their names in the book."""
    there = set(tables["dragonfly"].model)
    return {
        name: model for name, model in (("Dragonfly", "dragonfly"), ("DeePCCI", "deepcci")) if model in there
    }


def seeds_apart(tables: Tables) -> str:
    """How far two trainings of ours are apart from 100 ms on."""
    table = tables["seeds"]
    scores = table[(table.model == OURS) & table.f1.notna() & (table.window_ms >= 100)]
    apart = scores.groupby(["set", "window_ms"]).f1.agg(lambda f1: f1.max() - f1.min()).max()
    return f"{apart:.2f}"


def _three(table: pd.DataFrame, model: str, name: str) -> str:
    by = _whole(table, model)
    return ", ".join(f"{by.f1[name, ms]:.2f}" for ms in LENGTHS)


def simulated(tables: Tables) -> str:
    """Trained on simulations only, tested on real Linux."""
    model = tables["simulated"].model.iloc[0]
    parts, lost = [], []
    for name, label in _SETS.items():
        parts.append(f"{_three(tables['simulated'], model, name)} (`{label}`)")
        mine, real = _whole(tables["simulated"], model).f1, _whole(tables["cca"], OURS).f1
        off = [real[name, ms] - mine[name, ms] for ms in LENGTHS]
        lost.append(f"{min(off):.2f} to {max(off):.2f} (`{label}`)".replace("-", "−"))
    return (
        f"ours scores {' and '.join(parts)} at 100 ms, 1 s, 10 s; real runs in training add "
        f"{' and '.join(lost)}"
    )


def observed(tables: Tables) -> str:
    """F1 of windows of 10 s by observed inputs."""
    table = tables["feature-sets"].query("window_ms == 10000")
    labels = {
        "two taps, both ways": "two taps, both directions",
        "two taps, both ways, no drops": "two taps, both directions, drops unknown (`cct live`)",
        "one tap, both ways": "one tap, both directions (a capture at the sender's side)",
        "two taps, one way": "two taps, one direction (as in the paper: no acknowledgements)",
        "two taps, one way, no drops": "two taps, one direction, drops unknown",
        "one tap, one way": "one tap, one direction",
    }
    wide = table.pivot_table(index="observed", columns="set", values="f1")
    rows = [
        {"10 s windows": label} | {shown: f"{wide[name][what]:.2f}" for name, shown in _SETS.items()}
        for what, label in labels.items()
    ]
    return markdown_table(pd.DataFrame(rows), labels=1)


def round_trips(tables: Tables) -> str:
    """Macro F1 of Reno and CUBIC alone, by whole round trips in the window."""
    table = tables["cca"]
    table = table[(table.model == OURS) & (table.by == "round_trips") & (table.windows >= 20)]
    table = table.assign(two=(table.f1_cubic + table.f1_reno) / 2)
    columns = {"0": "none", "1-2": "1–2", "3-9": "3–9", "10-": "10 and more"}
    rows = []
    for name, label in _SETS.items():
        for ms in (100, 1000):
            part = table[(table.set == name) & (table.window_ms == ms)].set_index("value")
            cells = {
                shown: f"{part.two[value]:.2f} ({part.windows[value]})" if value in part.index else ""
                for value, shown in columns.items()
            }
            rows.append({"(windows)": f"{label}, {LENGTHS[ms]}"} | cells)
    return markdown_table(pd.DataFrame(rows), labels=1)


def crossover(tables: Tables) -> str:
    """F1 at 1 s by the flow's window over CUBIC's crossover."""
    table = tables["cca"]
    part = table[(table.model == OURS) & (table.by == "crossover") & (table.window_ms == 1000)]
    span = part.groupby("value").f1.agg(["min", "max"])

    def text(value: str) -> str:
        return f"{span['min'][value]:.2f} to {span['max'][value]:.2f}"

    return (
        f"F1 at 1 s is {text('below a tenth')} below 0.1, {text('a tenth to one')} from 0.1 to 1, and "
        f"{text('above one')} above 1"
    )


def bbr(tables: Tables) -> str:
    """F1 of BBR."""
    by = _whole(tables["cca"], OURS).f1_bbr
    low, high = (f(by[name, 100] for name in _SETS) for f in (min, max))
    second = min(by[name, 1000] for name in _SETS)
    first = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    return f"F1 {first} at 100 ms, at least {second:.2f} at 1 s"


def unknown(tables: Tables) -> str:
    """How many windows of 10 s are called unknown."""
    by: Any = tables["others"].query("set == 'every'").set_index("window_ms")
    long: Any = by.loc[10_000]

    def percent(value: float) -> str:
        return f"{100 * value:.0f} %"

    unlike = [
        c
        for c in by
        if c not in ("set", "f1_of_three", "dctcp", "lp") and not c.startswith(("known", "rejected"))
    ]
    fewest, most = long[unlike].astype(float).idxmin(), long[unlike].astype(float).idxmax()
    return (
        f"At 10 s, this loses {percent(long.known_lost_paper)} of the known windows in `paper`, "
        f"{percent(long['known_lost_hard-test'])} in `hard`, and {percent(long.known_lost)} among the kernel's "
        f"other congestion controls. Of the windows of those others, {percent(long.rejected)} are called unknown. "
        f"DCTCP without marks ({percent(long.dctcp)}) and TCP-LP ({percent(long.lp)}) behave like Reno here, and the "
        f"model is not trained to distinguish them from it; without these two, the share is "
        f"{percent(long.rejected_unlike_reno)}, from {percent(long[fewest])} ({fewest}) to {percent(long[most])} "
        f"({most}). Shorter windows reject less: {percent(by.rejected[1000])} of the others are unknown at 1 s, "
        f"{percent(by.rejected[100])} at 100 ms."
    )


def unknown_in_the_world(tables: Tables) -> str:
    """The same with settings unlike those of the paper, by length of the window."""
    by: Any = tables["others"].query("set == 'world'").set_index("window_ms")

    def percent(column: str) -> list[str]:
        return [f"{100 * by[column][ms]:.0f} %" for ms in LENGTHS]

    return markdown_table(
        pd.DataFrame(
            {
                "window": [*LENGTHS.values()],
                "unknown": percent("rejected_unlike_reno"),
                "unknown, or named after what they do": percent("rejected_or_right"),
                "act as Reno or CUBIC would": percent("known_by_behaviour"),
                "known ones lost": percent("known_lost"),
            }
        ),
        labels=1,
    )


def left_out(tables: Tables) -> str:
    """How many windows of congestion controls that training never saw are unknown."""
    long: Any = tables["rejection"].set_index("window_ms").loc[10_000]
    ccas = [c for c in long.index if not c.startswith(("known", "rejected"))]
    each = ", ".join(f"{cca} {100 * long[cca]:.0f} %" for cca in ccas)
    return (
        f"{100 * long.rejected:.0f} % of their windows of 10 s are unknown ({each}), and "
        f"{100 * long.known_lost:.0f} % of the known ones"
    )


def every(tables: Tables) -> str:
    """The bundled model of all congestion controls."""
    by: Any = tables["every-cca"].set_index(["set", "classes", "window_ms"])
    rows = []
    for ms, length in LENGTHS.items():
        row = {"window": length}
        for name, shown in (("home", "ideal"), ("world", "world")):  # the benchmark's `home` is another
            one = by.loc[(name, 13, ms)]
            row[f"`{shown}`"] = _score(one)
            row[f"`{shown}`, by behaviour"] = f"{one.f1_by_behaviour:.2f}"
        row["`world`, with BBRv2, BBRv3 and Prague"] = _score(by.loc[("world", 16, ms)])
        rows.append(row)
    home, world = (by.loc[(name, 13, 10_000)] for name in ("home", "world"))
    return (
        f"{markdown_table(pd.DataFrame(rows), labels=1)}\n\n"
        f"At 10 s, `ideal` has {home.windows:.0f} windows of {home.runs:.0f} runs and `world` {world.windows:.0f} of "
        f"{world.runs:.0f}. The lowest scores of the thirteen are {_lowest(home)} (`ideal`) and {_lowest(world)} "
        f"(`world`). Of these windows, {100 * home.unknown:.0f} % and {100 * world.unknown:.0f} % are called unknown, "
        f"and {100 * home.wrong_by_behaviour:.0f} % and {100 * world.wrong_by_behaviour:.0f} % get a name that is "
        f"wrong by behaviour, too. BBR is called BBRv2 or BBRv3 in {100 * home.bbr_as_later:.0f} % and "
        f"{100 * world.bbr_as_later:.0f} % of its windows. With a "
        f"name for each of the seventeen, macro F1 is {by.f1['home', 17, 10_000]:.2f} and "
        f"{by.f1['world', 17, 10_000]:.2f}."
    )


def _lowest(row: pd.Series, count: int = 3) -> str:
    """The congestion controls with the lowest F1."""
    scores = {
        c.removeprefix("f1_"): row[c] for c in row.index if c.startswith("f1_") and c != "f1_by_behaviour"
    }
    known = {cca: float(score) for cca, score in scores.items() if score == score}
    return ", ".join(f"{cca} {known[cca]:.2f}" for cca in sorted(known, key=lambda cca: known[cca])[:count])


def families(tables: Tables) -> str:
    """F1 on families of settings, of models trained without them and with them."""
    table = tables["families"].query("taps == 2")
    rows = []
    for part, here in table.groupby("part", sort=False):
        by = here.set_index(["model", "window_ms"])
        row: dict[str, str] = {"family": f"`{part}`"}
        for model in ("without it", "with it"):
            row |= {f"{model}, {name}": f"{by.score[model, ms]:.2f}" for ms, name in LENGTHS.items()}
        rows.append(row)
    return markdown_table(pd.DataFrame(rows), labels=1)


def without_families(tables: Tables) -> str:
    """Means over the families of :func:`families`."""
    table = tables["families"].query("taps == 2")
    mean = table.groupby(["model", "window_ms"]).score.mean()
    return ", ".join(
        f"{mean['without it', ms]:.2f} without and {mean['with it', ms]:.2f} with the family at {name}"
        for ms, name in LENGTHS.items()
    )


#: Classifiers of Nebby's traces, as the page calls them.
_OF_NEBBY = {
    "ours": "`every-cca`, trained on",
    "ours, with runs alike": "with our own runs alike",
    "boosting": "boosting",
    "boosting, with runs alike": "boosting, with our own runs alike",
}
#: The settings of Nebby's traces.
_NEBBY_SETTINGS = [(mbps, rtt_ms) for mbps in (0.05, 0.1, 0.2, 0.4) for rtt_ms in (40, 60, 80, 100, 200)]


def nebby(tables: Tables) -> str:
    """Macro F1 in Nebby's traces of settings that were not learnt from."""
    spread = tables["nebby"].groupby(["model", "share"]).f1.agg(low="min", high="max", f1="mean")
    cells = spread.apply(_score, axis=1).reset_index(name="cell")
    scores = cells.pivot_table(index="model", columns="share", values="cell", aggfunc="first")
    scores = scores.rename(columns=lambda share: f"{100 * share:g} %").reindex(list(_OF_NEBBY)).fillna("")
    return markdown_table(scores.rename(_OF_NEBBY).rename_axis("classifier").reset_index(), labels=1)


def nebby_runs(tables: Tables) -> str:
    """Our own runs of settings like Nebby's, by how many packets the buffer has room for."""
    runs = tables["nebby-runs"]
    theirs = pd.DataFrame(_NEBBY_SETTINGS, columns=["rate_mbps", "rtt_ms"]).assign(buffer_bdp=1)
    names = ["below 5", "5 to 15", "15 to 50", "more"]
    ours_in, theirs_in = (
        pd.cut(
            table.rate_mbps * table.rtt_ms * table.buffer_bdp * 125 / NEBBY_PACKET_BYTES,
            [0, 5, 15, 50, float("inf")], labels=names, right=False,
        )
        for table in (runs, theirs)
    )  # fmt: skip
    settings = theirs_in.value_counts()
    parts = {name: runs[ours_in == name] for name in names}
    f1 = {name: _f1(part) for name, part in parts.items()}
    rows: list[dict[str, Any]] = [
        {
            "packets in the buffer": name,
            "runs": len(part),
            "macro F1": f"{f1[name]:.2f}",
            "of Nebby's settings": int(settings[name]),
        }
        for name, part in parts.items()
    ]
    mixed = sum(f1[name] * settings[name] for name in names) / len(theirs)
    return (
        f"{markdown_table(pd.DataFrame(rows), labels=1)}\n\n"
        f"All together, macro F1 is {_f1(runs):.2f}, and {mixed:.2f} with each row's share of Nebby's settings."
    )


def _f1(answers: pd.DataFrame) -> float:
    """Macro F1 over the names that are there."""
    from sklearn.metrics import f1_score

    return float(f1_score(answers.cca, answers.said, labels=answers.cca.unique(), average="macro"))


VIEWS: dict[str, Callable[[Tables], str]] = {
    "results": results,
    "seeds-apart": seeds_apart,
    "simulated": simulated,
    "observed": observed,
    "round-trips": round_trips,
    "crossover": crossover,
    "bbr": bbr,
    "unknown": unknown,
    "unknown-in-the-world": unknown_in_the_world,
    "left-out": left_out,
    "every": every,
    "families": families,
    "nebby": nebby,
    "nebby-runs": nebby_runs,
    "without-families": without_families,
}
