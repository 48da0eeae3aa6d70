"""``cct separate``: what the controller would do about a capture, on the terminal, as a table and as rules."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .._support.options import CommandGroup
from .._support.ranges import LEAST_MBPS, LEAST_MS, LEAST_S, MOST_MBPS
from .._support.terminal import listing, note, say, show, write
from .._support.words import format_bytes, plural
from ..capture.options import CaptureArgument, end_without_packets, selecting
from ..capture.protocols import TCP
from ..errors import ParameterError
from ..schema.output import Format, FormatOption, OutputFileOption, TableOutput

if TYPE_CHECKING:
    import pandas as pd

    from ..capture.selection import Selection
    from .controller import Decision, RttSeparation
    from .router import Router

__all__ = ["app"]

app = CommandGroup()

_SHOWN = 30
#: A longer capture than this, two weeks, may be one with a wrong timestamp.
_LONG_S = 14 * 86_400


class Classes(StrEnum):
    exact = "exact"
    paper = "paper"


@app.command()
@selecting
def separate(
    capture: CaptureArgument,
    selection: Selection,
    tunnel: str,
    k: Annotated[
        int | None,
        typer.Option("-k", help="Number of RTT classes.", show_default="chosen automatically", min=1, max=64),
    ] = None,
    method: Annotated[
        Classes, typer.Option(help="Optimal classes, or those of the paper's Algorithm 1.")
    ] = Classes.exact,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="MBPS",
            help="Rate of the link.",
            show_default="the busiest second of a direction",
            min=LEAST_MBPS,
            max=MOST_MBPS,
        ),
    ] = None,
    long: Annotated[
        int, typer.Option(metavar="BYTES", help="Separate only flows with more than this.", min=1)
    ] = 10_000_000,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Repeat the decision at this interval; show what changes.", min=LEAST_S
        ),
    ] = None,
    latency_threshold: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Isolate flows that delay others by more than this.", min=LEAST_MS),
    ] = None,
    guard: Annotated[
        bool, typer.Option("--guard", help="Separate only where it can help (not in the paper).")
    ] = False,
    router: Annotated[
        str | None, typer.Option(help="Print rules for this router: junos, linux, or a template file.")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="Router interface with the queues.")] = None,
    ingress: Annotated[str | None, typer.Option(help="Router interface where flows enter (junos).")] = None,
    udp_limit: Annotated[
        float | None,
        typer.Option(metavar="MBPS", help="Hard limit for all UDP together.", min=LEAST_MBPS, max=MOST_MBPS),
    ] = None,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rules to this file.")] = None,
    format: FormatOption = None,
    output: OutputFileOption = None,
) -> None:
    """Separate flows into queues by RTT, as the RTT paper's controller does: classes, buffers, shares, rules.

    Examples: `cct separate trace.pcap.gz -k 4 --rate 1000`, `cct separate day.pcap.gz -k 4 --router linux
    --interface eth1 --rules rules.tc`
    """
    import pandas as pd

    from .._support.atomic import check_target, replacing
    from ..capture.filtering import selected
    from ..capture.reader import iter_capture
    from .controller import RttSeparation
    from .jenks import choose_k
    from .meters import NEVER_IDLE_S, CaptureMeter
    from .replay import replay
    from .router import Router
    from .watched import WatchedCapture

    if rules is not None and router is None:
        raise ParameterError("rules: needs --router")
    if rules is not None and interval is not None:
        raise ParameterError("rules: a file holds the rules of one moment; leave out --interval")
    if router is not None and interface is None:
        raise ParameterError("interface: rules need the bottleneck's interface (--interface)")
    if interval is not None and rate is None:
        raise ParameterError("rate: --interval needs the rate of the link (--rate)")

    check_target(rules)

    def controller_of(k: int, rate_mbps: float) -> RttSeparation:
        return RttSeparation(
            rate_mbps, k, method=method.value, latency_threshold_ms=latency_threshold, guard=guard
        )

    def router_of(controller: RttSeparation) -> Router | None:
        if router is None or interface is None:
            return None
        made = Router(router, controller.rate_mbps, interface, ingress=ingress, udp_limit_mbps=udp_limit)
        made.check_queues(controller.n_queues)
        return made

    # what cannot be is said before a day of packets is read, with any k and rate where the packets decide
    router_of(controller_of(k or 1, 1.0 if rate is None else rate))
    watched = WatchedCapture(selected(iter_capture(capture, tunnel=tunnel), selection))  # type: ignore[arg-type]
    with TableOutput(format, output, "separation") as out:
        if out.format is Format.parquet:
            raise ParameterError("format: this table is csv or jsonl, not Parquet")
        if out.format is not Format.table and router is not None and rules is None:
            raise ParameterError(
                "rules: the table goes to standard output; give a file for the rules (--rules FILE)"
            )
        if interval is not None and rate is not None:
            controller = controller_of(k or 4, rate)
            chosen = router_of(controller)
            texts = []
            for decision in replay(watched, controller, interval, long):
                texts.append("" if chosen is None else chosen.update(decision, watched.flows_of(decision)))
            if not controller.log:
                end_without_packets(capture, selection)
            log = pd.DataFrame(controller.log)
            if out.format is Format.table:
                _show_log(log, texts, interval)
            else:
                out.write(log)
            return
        meter = CaptureMeter(long, idle_s=NEVER_IDLE_S)
        for part in watched:
            meter.update(part.columns, part.keys)
        if watched.first_ns is None:
            end_without_packets(capture, selection)
        if watched.seconds > _LONG_S:
            note(
                f"{capture}: its packets span {watched.seconds / 86400:,.0f} days, over which rates are averaged; is a "
                "timestamp wrong? (--start and --stop choose packets)"
            )
        metrics = meter.metrics(watched.seconds)
        long_flows = metrics[metrics.is_long & (metrics.protocol == TCP)]
        known = long_flows.rtt_ms.dropna()
        k = k or (choose_k(known.to_numpy()) if len(known) else 1)
        controller = controller_of(k, watched.link_mbps if rate is None else rate)
        decision = controller.decide(metrics, watched.seconds)
        table = watched.assignments(decision, metrics)
        if out.format is Format.table:
            say(
                f"{plural(len(metrics), 'flow')}, {len(long_flows):,} of them long TCP (over {format_bytes(long)})"
            )
            source = "the busiest second of a direction; set it with --rate" if rate is None else "given"
            say(f"link: {controller.rate_mbps:.4g} Mbit/s ({source})")
            if len(known) < len(long_flows):
                unknown = plural(len(long_flows) - len(known), "long flow")
                say(f"{unknown} without an RTT (one direction only): left in queue 0")
            _show_decision(decision, table, known, k)
        else:
            out.write(table)
        chosen = router_of(controller)
        if chosen is not None:
            text = chosen.update(decision, watched.flows_of(decision))
            if rules is not None:
                with replacing(rules) as tmp:
                    tmp.write_text(text, encoding="utf-8")
                say(f"wrote {plural(len(text.splitlines()), 'line')} to {rules}")
            elif out.format is Format.table:
                show(f"\nRules ({router})")
                write(text)


def _show_decision(decision: Decision, table: pd.DataFrame, known: pd.Series, k: int) -> None:
    """Classes of the known RTTs, the queues, and which flow is in which."""
    import pandas as pd

    from .jenks import jenks_classes

    if not len(known):
        say("no long flow with an RTT: nothing to separate (--long lowers the threshold)")
    else:
        gvf = {name: jenks_classes(known.to_numpy(), k, name).gvf for name in ("exact", "paper")}
        used = table.queue[table.role == "class"].nunique()
        classes = f"{k} class{'es' if k != 1 else ''}{f', {used} of them used' if used < k else ''}"
        say(f"{classes}: GVF {gvf['exact']:.4f} exact, {gvf['paper']:.4f} by Algorithm 1 of the paper")
    queues = decision.queues
    rtts = table.groupby("queue")["rtt_ms"].agg(["min", "max"]).reindex(queues["queue"])
    shown = pd.DataFrame(
        {
            "queue": queues["queue"],
            "role": queues["role"],
            "flows": queues["flows"],
            "RTT from (ms)": rtts["min"].map("{:.2f}".format, na_action="ignore").to_numpy(),
            "to (ms)": rtts["max"].map("{:.2f}".format, na_action="ignore").to_numpy(),
            "weight": queues["weight"].map("{:.3g}".format),
            "share (Mbit/s)": queues["share_mbps"],
            "buffer": queues["buffer_bytes"].map(format_bytes),
        }
    )
    show(listing(shown, left=["role"], rows=len(shown)))
    flows = table[table.role != "udp"]
    shown = pd.DataFrame(
        {
            "queue": flows["queue"],
            "flow": flows["flow_id"],
            "from": flows["src"] + " " + flows["sport"].astype(str),
            "to": flows["dst"] + " " + flows["dport"].astype(str),
            "RTT (ms)": flows["rtt_ms"].map("{:.2f}".format),
            "bytes": flows["bytes"].map(format_bytes),
        }
    )
    if len(shown):
        show(listing(shown, left=["from", "to"], rows=_SHOWN, more="--format csv"))


def _show_log(log: pd.DataFrame, texts: list[str], interval_s: float) -> None:
    """What each decision changed and, with a router, the lines it would have been sent."""
    say(
        f"{plural(len(log), 'decision')}, one every {interval_s:g} s: {log.added.sum()} rules written, "
        f"{log.moved.sum()} changed, {log.removed.sum()} deleted; {log.settings.sum()} queue settings changed"
    )
    busy = log[log[["added", "moved", "removed", "settings"]].sum(axis=1) > 0]
    for at, row in zip(busy.index, busy.head(_SHOWN).itertuples(), strict=False):
        say(
            f"  at {row.now_s:8.2f} s: {row.flows} flows with a rule; {row.added} new, {row.moved} moved, "
            f"{row.removed} gone, {row.settings} settings"
        )
        write(texts[at])
    if len(busy) > _SHOWN:
        say(f"  {_SHOWN} of {len(busy)} decisions that changed something (--format csv lists all)")
