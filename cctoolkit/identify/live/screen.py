"""Show watched flows on the terminal or as JSON lines, and write slots to a file."""

from __future__ import annotations

import ipaddress
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from ..._support.atomic import check_target
from ..._support.terminal import Listing, live, note, say, show
from ..._support.words import format_bytes
from ...errors import ParameterError
from ...schema.output import Format, TableOutput
from ..probabilities import format_cca
from .collector import Collector, FlowKey
from .errors import CollectorError
from .naming import SlotClassifier
from .watch import Update, watch

__all__ = ["flow_key", "follow"]

#: A model with these inputs names nothing without them.
_COUNTS = {"in_bytes", "in_packets"}


def follow(
    make: Callable[[], Collector],
    flows: Sequence[str],
    format: Format | None,
    output: Path | None,
    classifier: SlotClassifier | None,
    provenance: dict[str, Any],
    **settings: Any,
) -> None:
    """Watch until the time is up, a capture ends, or Ctrl-C is pressed.

    Parameters
    ----------
    make : function
        Makes the collector, once everything else has been checked. It is closed at the end.
    flows : sequence of str
        ``SRC:PORT-DST:PORT``, IPv6 addresses in brackets.
    format : Format, optional
        Format of standard output: a table updated in place, or one JSON line per flow and report.
    output : Path, optional
        File for the slots.
    classifier : SlotClassifier, optional
        Names the flows.
    provenance : dict
        Stored with the slots.
    settings
        Of :func:`cctoolkit.identify.live.watch`.

    Raises
    ------
    ParameterError
        The format or a flow is invalid.
    CollectorError
        The collector fails. Slots until then are in the file.
    """
    if format not in (None, Format.table, Format.jsonl):
        raise ParameterError(f"format: {format.value} must be table or jsonl (slots go to -o FILE)")
    check_target(output)  # standard output shows the flows
    keys = [flow_key(text) for text in flows]
    failed: CollectorError | None = None
    with ExitStack() as stack:
        stack.enter_context(_terminable())
        # an interrupted run is not a failure: its slots are written
        slots = (
            None if output is None else stack.enter_context(TableOutput(None, output, "slots", provenance))
        )
        collector = make()
        stack.callback(collector.close)
        if collector.sampled and _COUNTS & set(getattr(classifier, "inputs", ())):
            note(
                "live: samples have no byte counts, so nothing will be named (use --sampling all or --no-classify)"
            )
        updates = watch(collector, flows=keys, classifier=classifier, **settings)
        try:
            for update in _shown(updates, format is Format.jsonl):
                if slots is not None:
                    slots.write(update.slots)
        except KeyboardInterrupt:
            pass
        except CollectorError as err:
            failed = err
    if failed is not None:
        raise failed


def _shown(updates: Iterator[Update], as_lines: bool) -> Iterator[Update]:
    """Yield the updates, and show each report."""
    began: int | None = None
    last: Update | None = None
    with ExitStack() as stack:
        screen = None
        if not as_lines and sys.stdout.isatty():
            screen = stack.enter_context(live())
        for update in updates:
            began = update.time_ns if began is None else began
            if update.flows is not None:
                last = update
                if as_lines:
                    for line in _lines(update):
                        say(line)
                    sys.stdout.flush()
                elif screen is not None:
                    screen.update(_screen(update, (update.time_ns - began) / 1e9), refresh=True)
            yield update
    if last is not None and began is not None and not as_lines and screen is None:
        show(_screen(last, (last.time_ns - began) / 1e9))


def _lines(update: Update) -> list[str]:
    assert update.flows is not None
    table = update.flows.copy()
    table.insert(0, "time_ns", update.time_ns)
    return table.to_json(orient="records", lines=True).splitlines() if len(table) else []


def _screen(update: Update, seconds: float) -> Any:
    from rich.console import Group
    from rich.text import Text

    assert update.flows is not None
    rows: Any = update.flows.itertuples()
    table = Listing(
        ("flow", "from", "to", "s", "Mbit/s in", "out", "in queue", "in flight", "CCA"),
        [
            (
                str(row.flow_id),
                f"{row.src} {row.sport}",
                f"{row.dst} {row.dport}",
                f"{row.age_s:.0f}",
                _number(row.in_mbps),
                _number(row.out_mbps),
                "" if pd.isna(row.cbiq_bytes) else format_bytes(round(row.cbiq_bytes)),
                "" if pd.isna(row.bytes_in_flight) else format_bytes(round(row.bytes_in_flight)),
                format_cca(row.cca, row.probability, row.limited_by),
            )
            for row in rows
        ],
        left=("from", "to", "CCA"),
        keep=("from", "to", "CCA", "Mbit/s in", "out", "in queue", "in flight"),
        more="--format jsonl",
    )
    lost = sum(side.get("lost_packets", 0) for side in (update.counts["ingress"], update.counts["egress"]))
    came, left = (update.counts[tap]["packets"] for tap in ("ingress", "egress"))
    facts = f"{seconds:.0f} s, {came:,} packets in, {left:,} out"
    if lost or update.counts["late_cells"]:
        facts += (
            f"; {lost:,} packets lost because the buffer was full, {update.counts['late_cells']} cells late"
        )
    return Group(table, Text(facts, style="dim"))


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2f}"


def flow_key(text: str) -> FlowKey:
    """A flow written as ``SRC:PORT-DST:PORT``.

    Raises
    ------
    ParameterError
        It is not written so.

    Examples
    --------
    >>> from cctoolkit.identify.live.screen import flow_key
    >>> flow_key("10.0.0.1:40000-[fd00::1]:443").dport
    443
    """
    ends = text.split("-")
    if len(ends) == 2:
        parts = [end.rpartition(":") for end in ends]
        try:
            (src, sport), (dst, dport) = (
                (str(ipaddress.ip_address(a.strip("[]"))), int(p)) for a, _, p in parts
            )
            if max(sport, dport) < 65536 and min(sport, dport) >= 0:
                return FlowKey(src, sport, dst, dport)
        except ValueError:
            pass
    raise ParameterError(
        f"flow: {text!r} is not SRC:PORT-DST:PORT, such as 10.0.0.1:40000-10.0.1.1:443 or [fd00::1]:40000-[fd01::1]:443"
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the run like Ctrl-C."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
