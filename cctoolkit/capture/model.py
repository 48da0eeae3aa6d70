"""The result of reading a capture: packets table, keys of the flows, metadata of the file."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support.layout import same_layout
from .._support.words import few, format_utc
from ..errors import ParameterError, SchemaError
from ..schema import SACKS, arrays, check_columns, write_parquet
from .keys import CaptureMeta, FlowKeys, check_keys
from .selection import Selection, origin_of

if TYPE_CHECKING:  # at run time inside functions: whoever only reads need not wait for it
    import pandas as pd

__all__ = ["Capture", "columns_of", "same_layout"]


class Capture:
    """Packets from any source, or a part of them.

    Parameters
    ----------
    columns : dict of str to array
        The packets table as arrays (:data:`cctoolkit.schema.PACKETS`); extra columns are kept.
    keys : FlowKeys
        Addresses, ports and SYN options of the flows.
    meta : CaptureMeta
        What the file says besides its packets.
    sacks : int64 array, shape (n, 3)
        SACK blocks: row of the packets table, left edge, right edge.

    Raises
    ------
    SchemaError
        A column, a key or a SACK block has the wrong type or length, or refers to something that does not exist.

    See Also
    --------
    read_capture : read a whole capture
    iter_capture : read a capture of any size in parts
    flow_table : how the flows table is computed
    write_pcap : write a capture

    Examples
    --------
    >>> cap = cct.example("mixed").ingress
    >>> cap
    <Capture ...mixed.ingress.pcap.gz: 27657 packets, 53 flows, 16.168 s, 26.2 MB on the wire>
    >>> len(cap.select(port=443)) < len(cap)
    True
    """

    def __init__(
        self,
        columns: dict[str, np.ndarray],
        keys: FlowKeys,
        meta: CaptureMeta,
        sacks: np.ndarray | None = None,
    ) -> None:
        check_columns(columns, "packets", numbered=True)  # check_keys looks at the flows
        rows = len(columns["ts_ns"])
        for name, column in columns.items():
            if np.shape(column) != (rows,):
                raise SchemaError(
                    f"packets table: column {name!r} has the shape {np.shape(column)}, expected ({rows},)"
                )
        self.columns = columns
        self.keys = check_keys(keys, columns["flow_id"])
        self.meta = meta
        self._sacks = np.empty((0, 3), np.int64) if sacks is None else _checked_sacks(sacks, rows)

    @cached_property
    def packets(self) -> pd.DataFrame:
        """The packets table (:data:`cctoolkit.schema.PACKETS`); shares memory with ``columns``."""
        import pandas as pd

        return pd.DataFrame(self.columns, copy=False)

    @cached_property
    def flows(self) -> pd.DataFrame:
        """The flows table (:data:`cctoolkit.schema.FLOWS`), computed on first use."""
        from ..analysis.flows import flow_table

        return flow_table(self.columns, self.keys)

    @cached_property
    def sacks(self) -> pd.DataFrame:
        """SACK blocks (:data:`cctoolkit.schema.SACKS`)."""
        import pandas as pd

        return pd.DataFrame(
            {name: self._sacks[:, i].astype(dtype) for i, (name, dtype) in enumerate(SACKS.items())}
        )

    def __len__(self) -> int:
        return len(self.columns["ts_ns"])

    @property
    def duration_s(self) -> float:
        """From the first packet to the last."""
        return self.meta.duration_s

    def select(
        self,
        *,
        flow_id: int | Iterable[int] | None = None,
        host: str | None = None,
        port: int | None = None,
        protocol: str | int | None = None,
        start_s: float | None = None,
        stop_s: float | None = None,
    ) -> Capture:
        """The packets that match all criteria (those of :class:`Selection`); flow numbers stay as they are.

        Raises
        ------
        ParameterError
            An impossible value, or a flow that the capture lacks.
        """
        selection = Selection(flow_id, host, port, protocol, start_s, stop_s)
        if selection.flow_id is not None:
            missing = np.setdiff1d(np.asarray(selection.flow_id), self.keys.flow_id)
            if len(missing):
                raise ParameterError(f"flow_id: no flow {missing[0]} in {self.meta.path}")
        return self.rows(selection.mask(self, origin_of(self)))

    def rows(self, keep: np.ndarray) -> Capture:
        """The packets where the boolean array `keep` is true; flow numbers stay as they are.

        Raises
        ------
        ParameterError
            `keep` is not a boolean array with one entry per packet.
        """
        keep = np.asarray(keep)
        if keep.dtype != bool or keep.shape != (len(self),):
            raise ParameterError(f"keep: {keep.dtype} {keep.shape}, expected bool {(len(self),)}")
        columns = {name: column[keep] for name, column in self.columns.items()}
        new_row = np.cumsum(keep) - 1
        sacks = self._sacks[keep[self._sacks[:, 0]]].copy()
        sacks[:, 0] = new_row[sacks[:, 0]]
        present = np.unique(columns["flow_id"])
        keys = self.keys.take(np.searchsorted(self.keys.flow_id, present))
        ts = columns["ts_ns"]
        # a selection has no frames of its own: notes and counts remain those of the whole file
        meta = CaptureMeta(
            path=self.meta.path,
            format=self.meta.format,
            compression=self.meta.compression,
            link_types=list(self.meta.link_types),
            snaplen=self.meta.snaplen,
            frames=len(ts),
            packets=len(ts),
            first_ts_ns=int(ts.min()) if len(ts) else 0,
            last_ts_ns=int(ts.max()) if len(ts) else 0,
            wire_bytes=int(columns["wire_bytes"].sum(dtype=np.int64)),
            truncated=self.meta.truncated,
            notes=[*self.meta.notes, f"a selection: {len(ts)} of {len(self)} packets"],
        )
        return Capture(columns, keys, meta, sacks)

    def to_pcap(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the packets as a capture with zeros for payload; takes the options of :func:`write_pcap`."""
        from .writer import write_pcap

        write_pcap(path, self, **options)

    def to_parquet(self, directory: str | os.PathLike[str], provenance: dict[str, Any] | None = None) -> None:
        """Write ``packets.parquet``, ``flows.parquet`` and ``sacks.parquet`` into a directory."""
        from pathlib import Path

        info = {"capture": self.meta.path, **(provenance or {})}
        for table in ("packets", "flows", "sacks"):
            write_parquet(getattr(self, table), Path(directory) / f"{table}.parquet", table, info)

    def explore(self) -> Any:
        """Pick flows in a notebook and plot them; see :func:`cctoolkit.report.explore.explore`."""
        from ..report.explore import explore

        return explore(self)

    def __repr__(self) -> str:
        m = self.meta
        return (
            f"<Capture {m.path}: {len(self)} packets, {len(self.keys)} flows, "
            f"{self.duration_s:.3f} s, {m.wire_bytes / 1e6:.1f} MB on the wire>"
        )

    def _repr_html_(self) -> str:
        m = self.meta
        rows = [
            ("file", m.path),
            (
                "format",
                f"{m.format}, {few(m.link_types) or 'no interface'}, compression {m.compression}",
            ),
            ("snap length", f"{m.snaplen or 'none'}"),
            ("start (UTC)", format_utc(m.first_ts_ns) if len(self) else "no packets"),
            ("duration", f"{self.duration_s:.3f} s"),
            ("packets", f"{len(self):,} with an IP header, of {m.frames:,} frames"),
            ("bytes on the wire", f"{m.wire_bytes:,}"),
            ("flows", f"{len(self.keys):,}"),
            ("counts", ", ".join(f"{k} {v:,}" for k, v in m.counts.items() if v)),
            *(("note", note) for note in m.notes),
        ]
        body = "".join(
            f"<tr><th style='text-align:left'>{html.escape(k)}</th>"
            f"<td style='text-align:left'>{html.escape(str(v))}</td></tr>"
            for k, v in rows
        )
        return f"<table>{body}</table>"


def _checked_sacks(sacks: np.ndarray, rows: int) -> np.ndarray:
    if not isinstance(sacks, np.ndarray) or sacks.dtype != np.int64 or sacks.shape != (len(sacks), 3):
        found = f"{sacks.dtype} {sacks.shape}" if isinstance(sacks, np.ndarray) else type(sacks).__name__
        raise SchemaError(f"sacks: {found}, expected int64 (n, 3)")
    if len(sacks) and not (sacks[:, 0].min() >= 0 and sacks[:, 0].max() < rows):
        raise SchemaError(f"sacks: a block belongs to a packet outside the {rows} of the table")
    return sacks


def columns_of(source: Capture | pd.DataFrame | dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The packets table as arrays for kernels: contiguous, aligned, and not to be written to.

    Kernels are compiled for each layout of each array, so that all tables must look the same.

    Raises
    ------
    SchemaError
        The packets table is not valid (:func:`cctoolkit.schema.check`).
    """
    if isinstance(source, Capture):
        check_columns(source.columns, "packets", numbered=True)  # again: anyone can change them in place
        return same_layout(source.columns)
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return same_layout(arrays(source, "packets"))
    if not isinstance(source, Mapping):
        raise SchemaError(
            f"packets: expected a capture, a packets table or its columns, found {type(source).__name__}"
            + (" (its captures are .ingress and .egress)" if hasattr(source, "ingress") else "")
        )
    check_columns(source, "packets")
    return same_layout(source)
