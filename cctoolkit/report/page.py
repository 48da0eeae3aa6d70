"""One self-contained HTML page about a capture, and a short form for a terminal."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.words import (
    few,
    flow_name,
    format_bytes,
    format_percent,
    format_rate,
    format_time_ns,
    format_utc,
    printable,
)
from ..analysis.flows import retransmitted_share
from ..capture.model import Capture
from ..capture.protocols import TCP, protocol_name
from ..identify.probabilities import format_cca
from ..plot.style import line_of
from .figures import as_json, figures, worth_a_curve
from .flow_panels import flow_panels
from .sketch import svg
from .summary import PACKETS_AGAIN, Summary, each, summarise

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["report", "summary_for_page", "terminal_summary"]

SERVICES_LISTED = 12
#: Rows of the table of flows; a browser filters and sorts this many without a pause.
FLOWS_LISTED = 200


def report(
    source: str | os.PathLike[str] | Capture | Summary,
    path: str | os.PathLike[str] = "report.html",
    *,
    egress: str | os.PathLike[str] | Capture | None = None,
    title: str | None = None,
    top: int = 12,
    model: str | os.PathLike[str] | None = "cca",
    compress: bool = True,
    **options: Any,
) -> Path:
    """Write one HTML page about a capture that needs no network and no other file.

    Parameters
    ----------
    source : path, Capture or Summary
        A capture file of any size is read part by part, in bounded memory.
    path : path
        File to write; it appears when it is complete.
    egress : path or Capture, optional
        The same traffic after the queue: adds queueing delay, loss and CBIQ.
    title : str, optional
        Heading of the page; by default the name of the capture file.
    top : int
        Number of flows to draw, largest first; each has a panel of its own.
    model : str or path, optional
        Model that names the flows' congestion controls, see :func:`cctoolkit.summarise`; None: no names. There are
        none either if the bundled model ``cca`` is missing, or if `source` is a Summary made without a model.
    compress : bool
        Compress the plotting library and the panels: 2 MB instead of 5 MB. A browser from before 2023 cannot unpack
        them; it shows text, tables and small charts only.
    **options
        As for :func:`cctoolkit.summarise`.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    CaptureFormatError
        `source` is not a capture.
    ParameterError
        An argument is invalid.

    See Also
    --------
    cctoolkit.summarise : the numbers of the page
    terminal_summary : the same in short for a terminal

    Examples
    --------
    >>> capture = cct.example("bufferbloat")
    >>> page = cct.report.report(capture.ingress, "page.html", egress=capture.egress)
    >>> page.stat().st_size < 3_000_000
    True
    """
    if isinstance(source, Summary):
        summary = source
    else:
        summary = summary_for_page(source, egress=egress, top=top, model=model, **options)
    page = _page(summary, title, compress)
    with replacing(path) as tmp:
        tmp.write_text(page, encoding="utf-8")
    return Path(path)


def summary_for_page(
    source: str | os.PathLike[str] | Capture, *, model: str | os.PathLike[str] | None = "cca", **options: Any
) -> Summary:
    """Summarise a capture with everything that the page shows; `options` are those of :func:`cctoolkit.summarise`.

    The default model is used only if it is bundled.
    """
    from ..identify.classify import DEFAULT_MODEL, default_model

    if model == DEFAULT_MODEL:
        model = default_model()
    return summarise(source, model=model, **({"keep_top_packets": True} | options))


def _page(summary: Summary, title: str | None, compress: bool) -> str:
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    from .._support.version import __version__

    name = printable(os.path.basename(summary.meta.path) or summary.meta.path)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cctoolkit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"printable": printable}
    drawn = {name: Markup(as_json(fig)) for name, fig in figures(summary).items()}
    panels = {flow_id: as_json(fig) for flow_id, fig in flow_panels(summary).items()}
    lead, *found = summary.findings()
    return environment.get_template("report.html.j2").render(
        title=printable(title) if title else f"Capture report: {name}",
        version=__version__,
        lead=lead,
        findings=[
            {
                "text": finding.text,
                "rule": finding.rule,
                "severity": finding.severity.name,
                "flow_id": finding.flow_id,
                "sketch": Markup(svg(finding.sketch)) if finding.sketch else "",
            }
            for finding in found
        ],
        facts=_facts(summary),
        numbers=_numbers(summary),
        protocols=_protocol_rows(summary),
        services=_service_rows(summary),
        ecn=_ecn_rows(summary),
        flows=_listed_flows(summary, set(panels)),
        losses=_loss_rows(summary),
        two_taps=_tap_rows(summary),
        flow_columns=_flow_columns(summary),
        ccas=_ccas_in_words(summary),
        loss_columns=LOSS_COLUMNS,
        tap_columns=TAP_COLUMNS,
        long_flow=format_bytes(summary.long_flow_bytes),
        jain_bin=format_time_ns(summary.jain_bin_ns),
        jain_what="the long ones"
        if summary.totals["long_flows"] >= 2
        else "those with 5 % or more of the bytes",
        summary=summary,
        flow_lines=Markup(json.dumps([line_of(rank) for rank in range(len(worth_a_curve(summary)))])),
        figures=drawn,
        compress=compress,
        panels={flow_id: Markup(_packed(text) if compress else text) for flow_id, text in panels.items()},
        plotly=Markup(_packed_library(get_plotlyjs()) if compress else _in_script(get_plotlyjs())),
    )


def _packed(text: str) -> str:
    """Text for the page to unpack: gzip, then base64. The same text always gives the same result."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


#: The plotting library is the same on every page: compressed once a process.
_packed_library = functools.lru_cache(maxsize=1)(_packed)


def _in_script(code: str) -> str:
    """Code, escaped so that it cannot end its script element."""
    return code.replace("</script", r"<\/script")


# Tables: rows of cells; a cell that sorts otherwise than it reads is (text, key).

Cell = tuple[str, float] | tuple[str, float, float]  # the third member is the length of a bar behind it


def _bytes_cell(size: float) -> Cell:
    return format_bytes(size), float(size)


def _time_cell(ns: Any) -> Cell:
    return ("–", -1.0) if pd.isna(ns) else (format_time_ns(float(ns)), float(ns))


def _count_cell(n: float) -> Cell:
    return f"{int(n):,}", float(n)


def _share_cell(part: float, whole: float) -> Cell:
    if not whole:
        return "–", -1.0
    text = format_percent(part / whole).replace("less than ", "< ").replace("more than ", "> ")
    return text, part / whole, part / whole


def _numbers(s: Summary) -> list[tuple[str, str]]:
    """The tiles at the top: names and counts."""
    t = s.totals
    numbers = [
        ("duration", format_time_ns(s.duration_s * 1e9)),
        ("packets", f"{t['packets']:,}"),
        ("bytes on the wire", format_bytes(t["bytes"])),
        ("flows", f"{t['flows']:,}"),
        ("mean rate", format_rate(t["bytes"] / s.duration_s) if s.duration_s and not len(s.idle) else "–"),
    ]
    if t["rtt_samples"]:
        numbers.append(("median RTT", format_time_ns(s.rtt_quantile_ns(0.5))))
    if t["segments"]:
        numbers.append(("TCP retransmitted", format_percent(s.retransmitted_share)))
    return numbers


def _facts(s: Summary) -> list[tuple[str, str]]:
    """What the capture is; with a selection, which facts are those of the file."""
    m, t = s.meta, s.totals
    in_file, selected = (" in file", " selected") if s.is_selection else ("", "")
    compressed = "" if m.compression == "none" else f", compressed with {m.compression}"
    facts = [
        ("file", printable(m.path)),
        ("format", f"{m.format}{compressed}"),
        ("link types", few(m.link_types) or "none"),
        ("snap length", f"{m.snaplen:,} bytes" if m.snaplen else "no limit"),
        (f"frames{in_file}", f"{m.frames:,}, {m.packets:,} of them with an IP header"),
    ]
    if s.is_selection:
        facts.append(("packets selected", f"{t['packets']:,} with {format_bytes(t['bytes'])} on the wire"))
    if t["packets"]:
        facts += [
            (f"first{selected or ' packet'}", f"{format_utc(t['first_ts_ns'])} UTC"),
            (f"last{selected or ' packet'}", f"{format_utc(t['last_ts_ns'])} UTC"),
        ]
    if m.captured_bytes:
        size = f"{format_bytes(m.captured_bytes)} of {format_bytes(m.wire_bytes)} on the wire"
        facts.append((f"captured{in_file}", size))
    facts.append(
        (
            f"dropped{in_file}",
            "not reported" if m.dropped is None else f"{m.dropped:,} packets lost at capture",
        )
    )
    if m.truncated:
        facts.append(("end", "cut or damaged; all complete frames before it are included"))
    facts += [
        (name.replace("_", " ") + in_file, f"{n:,}")
        for name, n in m.counts.items()
        if n and name in ("vlan", "mpls", "pppoe", "tunnelled")
    ]
    return facts


def _protocol_rows(s: Summary) -> list[list[Cell | str]]:
    return [
        [
            f"IPv{row.ip_version} {row.name}",
            _count_cell(row.flows),
            _count_cell(row.packets),
            _bytes_cell(row.bytes),
            _share_cell(row.bytes, s.totals["bytes"]),
        ]
        for row in each(s.protocols)
    ]


def _service_rows(s: Summary) -> list[list[Cell | str]]:
    return [
        [
            f"{protocol_name(row.protocol)} {row.port}" + (f" ({row.name})" if row.name else ""),
            _count_cell(row.flows),
            _count_cell(row.packets),
            _bytes_cell(row.bytes),
            _share_cell(row.bytes, s.totals["bytes"]),
        ]
        for row in each(s.services.head(SERVICES_LISTED))
    ]


def _ecn_rows(s: Summary) -> list[list[Cell | str]]:
    return [
        [name, _count_cell(n), _share_cell(n, s.totals["packets"])] for name, n in s.ecn_packets.items() if n
    ]


LOSS_COLUMNS = (
    ("flow", "number, initiator → responder"),
    ("retransmitted →", "segments from the initiator"),
    ("retransmitted ←", "segments to the initiator"),
    ("share", "of the segments sent, both directions"),
    ("out of order →", "overtaken on the way to the tap"),
    ("out of order ←", ""),
    ("dup. ACKs →", "sent by the initiator"),
    ("dup. ACKs ←", "sent to the initiator"),
)
LOSSES_LISTED = 12


def _loss_rows(s: Summary) -> list[list[Cell | str]]:
    """The flows with the most retransmissions."""
    again = (s.flows["retransmits_fwd"] + s.flows["retransmits_rev"]).to_numpy()
    order = np.argsort(-again, kind="stable")[:LOSSES_LISTED]
    flows = s.flows.iloc[order[again[order] > 0]]
    shares = retransmitted_share(flows)
    return [
        [
            (f"{flow.flow_id}: {flow_name(flow._asdict())}", float(flow.flow_id)),
            _count_cell(flow.retransmits_fwd),
            _count_cell(flow.retransmits_rev),
            (format_percent(share), share),
            _count_cell(flow.out_of_order_fwd),
            _count_cell(flow.out_of_order_rev),
            _count_cell(flow.duplicate_acks_fwd),
            _count_cell(flow.duplicate_acks_rev),
        ]
        for flow, share in zip(each(flows), shares, strict=True)
    ]


FLOW_COLUMNS = (
    ("flow", "number, initiator → responder"),
    ("protocol", ""),
    ("start", "since the first packet"),
    ("duration", "first to last packet"),
    ("bytes →", "on the wire, from the initiator"),
    ("bytes ←", "on the wire, to the initiator"),
    ("rate", "mean, in the direction with more data"),
    ("handshake", "RTT: SYN to the initiator's first ACK"),
    ("RTT min", "in the direction with more data"),
    ("RTT median", ""),
    ("RTT p95", ""),
    ("retransmitted", "segments, and share of the segments sent; both directions"),
    ("out of order", "segments overtaken on the way to the tap, both directions"),
    ("dup. ACKs", "both directions"),
)


CCA_COLUMN = ("CCA", "congestion control according to a model, and its probability")


def _flow_columns(s: Summary) -> list[tuple[str, str]]:
    columns = list(FLOW_COLUMNS)
    if s.ccas is not None and len(s.ccas):
        columns.insert(2, CCA_COLUMN)
    return columns


def _cca_cells(s: Summary) -> dict[int, Cell]:
    """By flow, the model's answer; also what it was based on, if that differs from most flows."""
    if s.ccas is None:
        return {}
    named = s.ccas[s.ccas["cca"].notna()]
    usual = _usual_feature_set(s.ccas)
    return {
        row.flow_id: (
            printable(format_cca(row.cca, row.probability, row.limited_by))
            + (f" ({row.feature_set})" if row.feature_set != usual else ""),
            row.probability,
        )
        for row in each(named)
    }


def _usual_feature_set(ccas: pd.DataFrame) -> str:
    sets = ccas["feature_set"][ccas["cca"].notna()].value_counts()
    return str(sets.index[0]) if len(sets) else ""


_SEEN = {"cbiq": "bytes in the queue", "bytes_in_flight": "bytes in flight", "throughput": "throughput"}


def _ccas_in_words(s: Summary) -> str:
    """Which model named the congestion controls, and from which data."""
    if s.ccas is None or not len(s.ccas):
        return ""
    model = printable(s.ccas["model"].iloc[0])
    parts = [_SEEN.get(name, name) for name in _usual_feature_set(s.ccas).split("+") if name]
    seen = " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    inputs = f" from {seen} ({'two taps' if s.two_taps is not None else 'one tap'})" if seen else ""
    return (
        f"CCA: the most probable congestion control according to the model {model}{inputs}, in each flow's first "
        "minute; unknown if none is probable enough. Flows that the bottleneck does not limit show none. Only TCP "
        "flows with at least a megabyte of data are classified"
        + (
            f", in the first {PACKETS_AGAIN:,} packets of the file."
            if s.meta.packets > PACKETS_AGAIN
            else "."
        )
    )


def _listed_flows(s: Summary, with_panel: set[int]) -> list[dict[str, Any]]:
    """The largest flows: their cells, and the words by which a filter finds them."""
    size = (s.flows["bytes_fwd"] + s.flows["bytes_rev"]).to_numpy()
    flows = s.flows.iloc[np.argsort(-size, kind="stable")[: max(FLOWS_LISTED, len(s.top))]]
    ccas = {} if s.ccas is None else dict(zip(s.ccas["flow_id"], s.ccas["cca"], strict=True))
    return [
        {
            "flow_id": flow.flow_id,
            "panel": flow.flow_id in with_panel,
            "words": printable(
                f"{flow.flow_id} {flow.src} {flow.sport} {flow.dst} {flow.dport} {protocol_name(flow.protocol)} "
                f"{ccas.get(flow.flow_id) or ''}{' long' if flow.is_long else ''}"
            ).lower(),
            "cells": cells,
        }
        for flow, cells in zip(each(flows), _flow_rows(s, flows), strict=True)
    ]


def _flow_rows(s: Summary, flows: pd.DataFrame) -> list[list[Cell | str]]:
    rows: list[list[Cell | str]] = []
    ccas = _cca_cells(s)
    with_ccas = CCA_COLUMN in _flow_columns(s)
    for flow, share in zip(each(flows), retransmitted_share(flows), strict=True):
        more_rev = flow.payload_rev > flow.payload_fwd
        way = "rev" if more_rev else "fwd"
        lasted_ns = flow.last_ts_ns - flow.first_ts_ns
        size = flow.bytes_rev if more_rev else flow.bytes_fwd
        rate = size / (lasted_ns / 1e9) if lasted_ns else None
        tcp = flow.protocol == TCP
        again = flow.retransmits_fwd + flow.retransmits_rev

        def if_tcp(cell: Cell, tcp: bool = tcp) -> Cell:
            return cell if tcp else ("–", -1.0)

        rows.append(
            [
                (f"{flow.flow_id}: {flow_name(flow._asdict())}", float(flow.flow_id)),
                protocol_name(flow.protocol),
                *([ccas.get(flow.flow_id, ("–", -1.0))] if with_ccas else []),
                _time_cell(flow.first_ts_ns - s.totals["first_ts_ns"]),
                _time_cell(lasted_ns),
                _bytes_cell(flow.bytes_fwd),
                _bytes_cell(flow.bytes_rev),
                (format_rate(rate), rate) if rate is not None else ("–", -1.0),
                _time_cell(flow.handshake_rtt_ns),
                *(_time_cell(getattr(flow, f"rtt_{name}_ns_{way}")) for name in ("min", "median", "p95")),
                if_tcp((f"{again:,} ({format_percent(share)})" if again else "0", float(again))),
                if_tcp(_count_cell(flow.out_of_order_fwd + flow.out_of_order_rev)),
                if_tcp(_count_cell(flow.duplicate_acks_fwd + flow.duplicate_acks_rev)),
            ]
        )
    return rows


TAP_COLUMNS = (
    ("flow", "number, initiator → responder, which is the direction unless noted"),
    ("packets", "at the first tap"),
    ("lost", "arrived but did not leave"),
    ("share", "lost, of those that arrived"),
    ("delay median", "from tap to tap"),
    ("delay p95", ""),
    ("delay max", ""),
)


def _tap_rows(s: Summary) -> list[list[Cell | str]]:
    if s.two_taps is None:
        return []
    names = s.top.set_index("flow_id")
    delays = dict(list(s.two_taps.queue_delay.groupby(["flow_id", "direction"])["delay_ns"]))
    rows: list[list[Cell | str]] = []
    for way in each(s.two_taps.queue_loss):
        against = " (to the initiator)" if way.direction else ""
        waited = delays[way.flow_id, way.direction].dropna().astype(float)
        rows.append(
            [
                (f"{way.flow_id}: {flow_name(names.loc[way.flow_id])}{against}", float(way.flow_id)),
                _count_cell(way.packets_in),
                _count_cell(way.packets_lost),
                _share_cell(way.packets_lost, way.packets_in)[:2],
                *(_time_cell(waited.quantile(q)) for q in (0.5, 0.95, 1)),
            ]
        )
    return rows


def terminal_summary(summary: Summary) -> RenderableType:
    """Show a summary on a terminal: findings, facts about the capture, the largest flows, and what is missing.

    Parameters
    ----------
    summary : Summary

    Returns
    -------
    rich renderable
        For a rich console to print.

    See Also
    --------
    report : the same as a page with figures
    cctoolkit.summarise : makes the summary

    Examples
    --------
    >>> from rich.console import Console
    >>> summary = cct.summarise(cct.example("bufferbloat").ingress)
    >>> Console(width=200).print(cct.report.terminal_summary(summary))  # doctest: +ELLIPSIS
    bufferbloat.ingress.pcap.gz
    • 7 TCP flows and 2 others carry 10.8 MB in 12.4 s, 6.95 Mbit/s on average.
    ...
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from .._support.terminal import Listing

    def bullets(texts: list[str]) -> Table:
        grid = Table.grid(padding=(0, 1))
        for text in texts:
            grid.add_row("•", Text(printable(text)))
        return grid

    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(summary):
        facts.add_row(Text(name, style="dim"), Text(value))
    parts: list[RenderableType] = [
        Text(printable(os.path.basename(summary.meta.path)), style="bold"),
        bullets([finding.text for finding in summary.findings()]),
        Text(),
        facts,
    ]
    if len(summary.top):
        shown = (
            "flow",
            "protocol",
            *(["CCA"] if CCA_COLUMN in _flow_columns(summary) else []),
            "duration",
            "bytes →",
            "bytes ←",
            "rate",
            "RTT min",
            "RTT median",
            "retransmitted",
        )
        there = [name for name, _ in _flow_columns(summary)]
        columns = [there.index(name) for name in shown]
        rows = [
            [cell if isinstance(cell, str) else cell[0] for cell in (row[i] for i in columns)]
            for row in _flow_rows(summary, summary.top)
        ]
        keep = ("bytes →", "RTT median", "retransmitted", "CCA", "rate", "RTT min", "bytes ←", "duration")
        table = Listing(
            shown, rows, left=("flow", "protocol"), wrap=("flow",), keep=keep, more="cct flows -o FILE"
        )
        parts += [Text(), table]
    if summary.notes:
        parts += [Text(), Text("What is missing, and why", style="bold"), bullets(summary.notes)]
    return Group(*parts)
