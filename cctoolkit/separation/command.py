"""``cct separate``: what the controller would do about a capture, on the terminal, as a table and as rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from ..capture.model import Capture
from ..errors import ParameterError
from ..schema.output import Format, TableOutput
from .controller import Decision, RttSeparation
from .jenks import choose_k, jenks_classes
from .meters import LONG_BYTES, CaptureMeter
from .replay import replay
from .router import Router
from .workload import BusiestSecond

__all__ = ["flow_table", "separate"]

_SHOWN = 30


class _Watching:
    """Passes a capture's parts on, and remembers who the flows are and how much there was."""

    def __init__(self, parts: Iterable[Capture]) -> None:
        self._parts = parts
        self._seen = np.zeros(0, np.bool_)
        self._frames: list[pd.DataFrame] = []
        self.busiest = BusiestSecond()
        self.first_ns: int | None = None
        self.last_ns = 0

    def __iter__(self) -> Iterator[Capture]:
        for part in self._parts:
            if len(part):
                ts, keys = part.columns["ts_ns"], part.keys
                self.first_ns = int(ts.min()) if self.first_ns is None else self.first_ns
                self.last_ns = max(self.last_ns, int(ts.max()))
                self.busiest.update(part)
                n = int(keys.flow_id.max()) + 1
                if n > len(self._seen):
                    self._seen = np.concatenate([self._seen, np.zeros(2 * n - len(self._seen), np.bool_)])
                fresh = keys.take(~self._seen[keys.flow_id])
                self._seen[keys.flow_id] = True
                self._frames.append(
                    pd.DataFrame(
                        {
                            "flow_id": fresh.flow_id,
                            "src": fresh.src_text(),
                            "sport": fresh.sport,
                            "dst": fresh.dst_text(),
                            "dport": fresh.dport,
                            "protocol": fresh.protocol,
                        }
                    )
                )
            yield part

    def flows_of(self, decision: Decision) -> pd.DataFrame:
        """Who the flows of a decision are."""
        if len(self._frames) > 1:
            self._frames = [pd.concat(self._frames, ignore_index=True)]
        flows = self._frames[0]
        return flows[flows.flow_id.isin(decision.flows.flow_id)]

    @property
    def seconds(self) -> float:
        return max((self.last_ns - (self.first_ns or 0)) / 1e9, 1e-9)


def flow_table(decision: Decision, metrics: pd.DataFrame, flows: pd.DataFrame) -> pd.DataFrame:
    """Each flow with a queue of its own choice: its data's five-tuple, RTT, bytes, role and queue; by queue and RTT."""
    table = decision.flows.merge(metrics[["flow_id", "bytes"]], on="flow_id").merge(flows, on="flow_id")
    back = (table.direction == 1).to_numpy()
    for a, b in (("src", "dst"), ("sport", "dport")):
        table[a], table[b] = np.where(back, table[b], table[a]), np.where(back, table[a], table[b])
    columns = ["queue", "role", "flow_id", "src", "sport", "dst", "dport", "protocol", "rtt_ms", "bytes"]
    return table.sort_values(["queue", "rtt_ms", "flow_id"], ignore_index=True)[columns]


def separate(
    parts: Iterable[Capture],
    k: int | None,
    *,
    method: str = "exact",
    rate_mbps: float | None = None,
    long_bytes: int = LONG_BYTES,
    interval_s: float | None = None,
    latency_threshold_ms: float | None = None,
    router: str | None = None,
    interface: str | None = None,
    ingress: str | None = None,
    udp_limit_mbps: float | None = None,
    rules: Path | None = None,
    format: Format | None = None,
    output: Path | None = None,
    provenance: dict[str, Any] | None = None,
    show: Any = print,
) -> None:
    """Everything ``cct separate`` does; its options are described there.

    Parameters
    ----------
    parts : iterable of Capture
    show : function
        Prints a text or a rich renderable.

    Raises
    ------
    ParameterError
        An option that cannot be.
    """
    if rules is not None and router is None:
        raise ParameterError("rules: say for which --router")
    if rules is not None and interval_s is not None:
        raise ParameterError("rules: one file has one moment's rules; leave out --interval")
    if router is not None and interface is None:
        raise ParameterError("interface: rules need the name of the bottleneck's (--interface)")
    if interval_s is not None and rate_mbps is None:
        raise ParameterError("rate: what happens interval after interval depends on it (--rate)")

    def controller_of(k: int, rate_mbps: float) -> RttSeparation:
        return RttSeparation(rate_mbps, k, method=method, latency_threshold_ms=latency_threshold_ms)

    def router_of(controller: RttSeparation) -> Router | None:
        if router is None or interface is None:
            return None
        made = Router(router, controller.rate_mbps, interface, ingress=ingress, udp_limit_mbps=udp_limit_mbps)
        made.check_queues(controller.n_queues)
        return made

    # what cannot be is said before a day of packets is read, with any k and rate where the packets decide
    router_of(controller_of(k or 1, 1.0 if rate_mbps is None else rate_mbps))
    watched = _Watching(parts)
    with TableOutput(format, output, "separation", provenance) as out:
        if out.format is Format.parquet:
            raise ParameterError("format: Parquet holds captures' tables; this one is csv or jsonl")
        if out.format is not Format.table and router is not None and rules is None:
            raise ParameterError(
                "rules: say where to write them (--rules FILE), for the table goes to the output"
            )
        if interval_s is not None and rate_mbps is not None:
            controller = controller_of(k or 4, rate_mbps)
            told = router_of(controller)
            texts = []
            for decision in replay(watched, controller, interval_s, long_bytes):
                texts.append("" if told is None else told.update(decision, watched.flows_of(decision)))
            if not controller.log:
                raise ParameterError("capture: there is no packet in it")
            log = pd.DataFrame(controller.log)
            if out.format is Format.table:
                _tell_log(log, texts, interval_s, show)
            else:
                out.write(log)
            return
        meter = CaptureMeter(long_bytes, idle_s=1e9)
        for part in watched:
            meter.update(part.columns, part.keys)
        if watched.first_ns is None:
            raise ParameterError("capture: there is no packet in it")
        metrics = meter.metrics(watched.seconds)
        long = metrics[metrics.is_long & (metrics.protocol == 6)]
        known = long.rtt_ms.dropna().to_numpy()
        k = k or (choose_k(known) if len(known) else 1)
        rate = watched.busiest.mbps if rate_mbps is None else rate_mbps
        controller = controller_of(k, rate)
        decision = controller.decide(metrics, watched.seconds)
        table = flow_table(decision, metrics, watched.flows_of(decision))
        if out.format is Format.table:
            _tell(decision, table, metrics, long, known, k, rate, rate_mbps is None, long_bytes, show)
        else:
            out.write(table)
        told = router_of(controller)
        if told is not None:
            text = told.update(decision, watched.flows_of(decision))
            if rules is not None:
                with replacing(rules) as tmp:
                    tmp.write_text(text, encoding="utf-8")
                show(f"wrote {len(text.splitlines())} lines to {rules}")
            elif out.format is Format.table:
                show(f"\nRules ({router})")
                print(text, end="")


def _tell(
    decision: Decision,
    table: pd.DataFrame,
    metrics: pd.DataFrame,
    long: pd.DataFrame,
    known: np.ndarray,
    k: int,
    rate: float,
    guessed: bool,
    long_bytes: int,
    show: Any,
) -> None:
    from rich.table import Table

    from .._support.words import format_bytes

    source = "the capture's busiest second; --rate says better" if guessed else "given"
    show(f"{len(metrics)} flows, {len(long)} of them long TCP (over {format_bytes(long_bytes)})")
    show(f"link: {rate:.4g} Mbit/s ({source})")
    if len(known) < len(long):
        show(f"{len(long) - len(known)} long flows without an RTT (one direction only): left in queue 0")
    if not len(known):
        show("no long flow with an RTT: nothing to separate (--long lowers the threshold)")
    else:
        gvf = {name: jenks_classes(known, k, name).gvf for name in ("exact", "paper")}
        used = table.queue[table.role == "class"].nunique()
        show(
            f"{k} classes{f', {used} of them used' if used < k else ''}: GVF {gvf['exact']:.4f} exact, "
            f"{gvf['paper']:.4f} by Algorithm 1 of the paper"
        )
    listing = Table(box=None, pad_edge=False)
    for name in ("queue", "role", "flows", "RTT from (ms)", "to (ms)", "weight", "share (Mbit/s)", "buffer"):
        listing.add_column(name, justify="left" if name == "role" else "right")
    q: Any
    for q in decision.queues.itertuples():
        mine = table.rtt_ms[table.queue == q.queue]
        ends = ("", "") if not mine.notna().any() else (f"{mine.min():.2f}", f"{mine.max():.2f}")
        row = (
            q.queue,
            q.role,
            q.flows,
            *ends,
            f"{q.weight:.3g}",
            f"{q.share_mbps:.4g}",
            format_bytes(q.buffer_bytes),
        )
        listing.add_row(*map(str, row))
    show(listing)
    flows = table[table.role != "udp"]
    listing = Table(box=None, pad_edge=False)
    for name in ("queue", "flow", "from", "to", "RTT (ms)", "bytes"):
        listing.add_column(name, justify="left" if name in ("from", "to") else "right", no_wrap=True)
    f: Any
    for f in flows.head(_SHOWN).itertuples():
        ends = (f"{f.src} {f.sport}", f"{f.dst} {f.dport}")
        listing.add_row(str(f.queue), str(f.flow_id), *ends, f"{f.rtt_ms:.2f}", format_bytes(f.bytes))
    if len(flows):
        show(listing)
    if len(flows) > _SHOWN:
        show(f"{_SHOWN} of {len(flows)} flows (--format csv writes all)")


def _tell_log(log: pd.DataFrame, texts: list[str], interval_s: float, show: Any) -> None:
    """What each decision changed and, with a router, the lines it would have been told."""
    show(
        f"{len(log)} decisions, one every {interval_s:g} s: {log.added.sum()} rules written, "
        f"{log.moved.sum()} changed, {log.removed.sum()} deleted; {log.settings.sum()} settings of queues changed"
    )
    busy = log[log[["added", "moved", "removed", "settings"]].sum(axis=1) > 0]
    row: Any
    for row in busy.head(_SHOWN).itertuples():
        show(
            f"  at {row.now_s:8.2f} s: {row.flows} flows with a rule; {row.added} new, {row.moved} moved, "
            f"{row.removed} gone, {row.settings} settings"
        )
        print(texts[row.Index], end="")
    if len(busy) > _SHOWN:
        show(f"  {_SHOWN} of {len(busy)} decisions that changed something (--format csv writes all)")
