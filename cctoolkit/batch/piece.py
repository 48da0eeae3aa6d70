"""A task: a capture, or a range of flow numbers in one with very many flows.

A capture is read twice: once for all flows, once for the long ones, which are not known before. Flow numbers follow
the order of first packets and are the same in each reading, so ranges of them need no merging: each piece reads the
whole capture, keeps the packets of its range and writes its own files. Decompression and numbering are repeated,
which is two thirds of the work; but the state of flows, which takes the memory, exists only for the range.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.version import __version__
from ..analysis.flows import FlowStatistics
from ..analysis.metrics.rates import RateTable
from ..analysis.rtt import RttPairing
from ..analysis.slots import SlotTable
from ..capture.keys import AllKeys, CaptureMeta, FlowKeys, add_meta
from ..capture.model import Capture
from ..capture.protocols import TCP
from ..capture.reader import DAMAGE_NOTE, iter_capture
from ..errors import CaptureFormatError, CCToolkitError, TruncatedCaptureWarning
from ..schema import FLOWS
from .dataset import Dataset
from .memory import PART_PACKETS, Memory, peak_bytes
from .round_trips import RttByFlow, RttBySecond
from .seconds import Seconds
from .sources import Source, local_file, sha256_of
from .tables import TableWriter

__all__ = ["Outcome", "compute_piece"]

_RESULT_FLOWS = 1 << 17  # flows converted to a table at a time: addresses as text are larger than their state
_NO_LIMIT = 2**62  # rows are limited here, by memory
_NO_LONG_FLOWS = pd.DataFrame(
    {name: pd.Series(dtype=FLOWS[name]) for name in ("flow_id", "protocol", "first_ts_ns", "last_ts_ns")}
)


@dataclass(frozen=True)
class Outcome:
    """The result of a task.

    Attributes
    ----------
    capture : str
        Name of the results.
    computed : list of int
        Newly computed blocks.
    missing : list of int
        Blocks of the capture that are still missing.
    notes : list of str
        Remarks that a reader of the results should see, once per capture.
    """

    capture: str
    computed: list[int]
    missing: list[int]
    notes: list[str]


def compute_piece(
    source: Source, dataset: Dataset, memory: Memory, first_block: int = 0, keep: bool = True
) -> Outcome:
    """Compute the missing blocks of a range; safe to repeat, even while another call is running.

    Parameters
    ----------
    source : Source
        The capture.
    dataset : Dataset
        Where to write.
    memory : Memory
        Determines the number of blocks in the range.
    first_block : int
        Start of the range.
    keep : bool
        Keep a MAWI day that was downloaded for this.

    Raises
    ------
    CCToolkitError, OSError
        The capture cannot be downloaded or read, or there is too little memory.
    """
    version = source.version()
    known = dataset.source(source)
    sha256 = known.get("sha256") if known.get("version") == version else None
    if sha256 is not None:
        done = _what_is_there(dataset, source, sha256, first_block)
        if done is not None:
            return done
    with local_file(source, keep) as path:
        if sha256 is None:
            sha256 = sha256_of(path)
            dataset.note_source(source, version=version, sha256=sha256)
            done = _what_is_there(dataset, source, sha256, first_block)
            if done is not None:
                return done
        capture = dataset.settings.capture_id(source.stem, sha256)
        try:
            return _Piece(path, source.name, sha256, capture, dataset, memory, first_block).run()
        except CaptureFormatError as err:  # the path may be that of a copy
            raise CaptureFormatError(source.url, err.offset, err.expected) from None


def _what_is_there(dataset: Dataset, source: Source, sha256: str, first_block: int) -> Outcome | None:
    """The outcome if the first block of the range is already complete, else None."""
    capture = dataset.settings.capture_id(source.stem, sha256)
    if dataset.manifest(capture) is not None:
        return Outcome(capture, [], [], [])
    if dataset.head(capture) is None or dataset.block(capture, first_block) is None:
        return None
    return Outcome(capture, [], dataset.missing_blocks(capture), [])


class _Piece:
    """The work of a task on a file."""

    def __init__(
        self,
        path: Path,
        name: str,
        sha256: str,
        capture: str,
        dataset: Dataset,
        memory: Memory,
        first_block: int,
    ) -> None:
        self.path, self.name, self.sha256, self.capture = path, name, sha256, capture
        self.dataset, self.memory, self.first_block = dataset, memory, first_block
        settings = dataset.settings
        self.low = first_block * settings.block_flows
        there = [block for block in dataset.done_blocks(capture) if block > first_block]
        self.high = min([first_block + memory.blocks(settings.block_flows), *there]) * settings.block_flows
        self.flows = 0  # in the whole capture
        self.first_ns = 0  # the smallest time in the whole capture
        self.origin_ns = 0  # time of its first packet
        self.passes = 0
        self.long = _NO_LONG_FLOWS  # flow_id, protocol, first_ts_ns, last_ts_ns
        self.rows: dict[int, dict[str, int]] = defaultdict(dict)  # by block and table

    def run(self) -> Outcome:
        started, cpu = time.time(), time.process_time()
        meta = self._all_flows()
        self._long_flows()
        if self.first_block == 0:
            head = {
                "meta": {**asdict(meta), "path": self.name},
                "flows": self.flows,
                "start_ns": self.origin_ns,
                "name": self.name,
                "sha256": self.sha256,
            }
            self.dataset.write_head(self.capture, head)
        blocks_of_long = self._block(self.long["flow_id"].to_numpy())
        for block, rows in self.rows.items():
            self.dataset.write_block(self.capture, block, rows, int((blocks_of_long == block).sum()))
        entry = {
            "blocks": sorted(self.rows),
            "started": started,
            "wall_s": round(time.time() - started, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "process_peak_bytes": peak_bytes(),
            "passes": self.passes,
            "packets": meta.packets,
            "file_bytes": self.path.stat().st_size,
            "worker": f"{platform.node()}:{os.getpid()}",
        }
        self.dataset.journal(self.capture, self.first_block, entry)
        notes = [note for note in meta.notes if note.startswith(DAMAGE_NOTE)] if self.first_block == 0 else []
        return Outcome(self.capture, sorted(self.rows), self.dataset.missing_blocks(self.capture), notes)

    # --- reading

    def _parts(self) -> Iterator[Capture]:
        settings = self.dataset.settings
        self.passes += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncatedCaptureWarning)  # the notes of the capture report it
            for part in iter_capture(
                self.path, PART_PACKETS, tunnel=settings.tunnel, flow_timeout_s=settings.flow_timeout_s
            ):
                yield part
                self.memory.check(self.flows)

    def _block(self, flow_id: Any) -> Any:
        return flow_id // self.dataset.settings.block_flows

    # --- writing

    def _writer(self, table: str, block: int) -> TableWriter:
        provenance = {
            "capture": self.name,
            "sha256": self.sha256,
            "settings": self.dataset.settings.as_dict(),
            "version": __version__,
        }
        return TableWriter(self.dataset.block_path(table, self.capture, block), table, provenance)

    def _write(self, table: str, block: int, frame: pd.DataFrame) -> None:
        with self._writer(table, block) as writer:
            writer.write(frame)
        self.rows[block][table] = writer.rows

    # --- first reading: all flows

    def _all_flows(self) -> CaptureMeta:
        statistics = FlowStatistics(self.dataset.settings.long_flow_bytes)
        pairing, round_trips, keys, seconds = RttPairing(), RttByFlow(), AllKeys(), Seconds()
        meta: CaptureMeta | None = None
        for part in self._parts():
            if meta is None and len(part):
                self.origin_ns = int(part.columns["ts_ns"][0])
            meta = add_meta(meta, part.meta)
            if not len(part):
                continue
            self.flows = max(self.flows, int(part.keys.flow_id[-1]) + 1)
            if self.first_block == 0:
                seconds.update(part.columns, part.keys)
            columns, of_part = self._in_range(part)
            statistics.update(columns, of_part)
            round_trips.update(pairing.update(columns))
            keys.add(of_part)
        assert meta is not None  # there is at least one part
        self.first_ns = meta.first_ts_ns
        del pairing

        self._write_rtt(round_trips.result())
        del round_trips
        self._write_flows(statistics, keys.all() if self.flows > self.low else None)
        if self.first_block == 0:
            self._write("seconds", 0, seconds.result())
        return meta

    def _first_flows(self) -> range:
        """First flow numbers of the blocks; there is at least one block, even without flows."""
        return range(
            self.low, max(min(self.high, self.flows), self.low + 1), self.dataset.settings.block_flows
        )

    def _write_rtt(self, rtt: pd.DataFrame) -> None:
        rtt["flow_id"] += self.low
        for begin in self._first_flows():
            block = self._block(begin)
            self._write("rtt", block, rtt[self._block(rtt["flow_id"]) == block])

    def _write_flows(self, statistics: FlowStatistics, keys: FlowKeys | None) -> None:
        """Write flows by block, a part at a time; remember which are long."""
        block_flows = self.dataset.settings.block_flows
        long = [_NO_LONG_FLOWS]
        for begin in self._first_flows():
            with self._writer("flows", self._block(begin)) as writer:
                for first in range(begin, min(begin + block_flows, self.flows), _RESULT_FLOWS):
                    assert keys is not None
                    last = min(first + _RESULT_FLOWS, begin + block_flows)
                    rows = np.searchsorted(keys.flow_id, [first - self.low, last - self.low])
                    table = statistics.result(keys.take(np.arange(*rows)))
                    table["flow_id"] += self.low
                    writer.write(table)
                    long.append(table.loc[table["is_long"], list(_NO_LONG_FLOWS)])
            self.rows[self._block(begin)]["flows"] = writer.rows
        self.long = pd.concat(long, ignore_index=True)

    def _in_range(self, part: Capture) -> tuple[dict[str, np.ndarray], FlowKeys]:
        """Packets and keys of the flows of this piece, numbered from 0."""
        ids = part.keys.flow_id
        if self.low == 0 and int(ids[-1]) < self.high:
            return part.columns, part.keys
        flow_id = part.columns["flow_id"]
        mine = (flow_id >= self.low) & (flow_id < self.high)
        columns = {name: column[mine] for name, column in part.columns.items()}
        columns["flow_id"] -= np.uint32(self.low)
        keys = part.keys.take((ids >= self.low) & (ids < self.high))
        return columns, replace(keys, flow_id=keys.flow_id - np.uint32(self.low))

    # --- second reading: the long flows among them

    def _long_flows(self) -> None:
        """Write slots and rates, in as many readings as their rows require."""
        with ExitStack() as stack:
            writers = {
                (table, block): stack.enter_context(self._writer(table, block))
                for block in self.rows
                for table in ("rates", "slots")
            }
            for group in self._groups():
                for table, frame in zip(("rates", "slots"), self._read_long(group), strict=True):
                    block_of_row = self._block(frame["flow_id"].to_numpy())
                    for block in np.unique(block_of_row):
                        writers[table, int(block)].write(frame[block_of_row == block])
        for (table, block), writer in writers.items():
            self.rows[block][table] = writer.rows

    def _groups(self) -> Iterator[np.ndarray]:
        """Yield flow numbers to read together, whose slots fit into memory."""
        if self.long.empty:
            return
        slot_ns = round(self.dataset.settings.slot_ms * 1e6)
        most = self.memory.slot_rows()
        slots = (self.long["last_ts_ns"] - self.long["first_ts_ns"]).to_numpy() // slot_ns + 2
        rows = np.where(self.long["protocol"] == TCP, slots, 0) + slots * slot_ns // 1_000_000_000 + 2
        if rows.max() > most:
            raise CCToolkitError(
                f"flow {self.long['flow_id'][int(rows.argmax())]} has {rows.max():,} slots, but only {most:,} "
                "fit into memory: use longer slots (--slot-ms) or more memory (--memory)"
            )
        begin, held = 0, 0
        for at, n in enumerate(rows):
            if held + n > most:
                yield self.long["flow_id"].to_numpy()[begin:at]
                begin, held = at, 0
            held += n
        yield self.long["flow_id"].to_numpy()[begin:]

    def _read_long(self, flow_ids: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rates and slots of these flows.

        They are renumbered from 0, so that state exists only for them; number n stands for the first packet of the
        capture, which is kept because rates count from it.
        """
        n = len(flow_ids)
        number = np.full(self.flows, -1, np.int32)
        number[flow_ids] = np.arange(n)
        slots = SlotTable(self.dataset.settings.slot_ms, flow_ids=range(n), max_rows=_NO_LIMIT)
        rates = RateTable(1.0, flow_ids=range(n), max_rows=_NO_LIMIT)
        pairing, round_trips = RttPairing(), RttBySecond(self.origin_ns)
        first_kept_ns: int | None = None
        begun = False
        for part in self._parts():
            if not len(part):
                continue
            renumbered = number[part.columns["flow_id"]]
            if not begun and renumbered[0] < 0:
                renumbered[0] = n
            begun = True
            wanted = renumbered >= 0
            columns = {name: column[wanted] for name, column in part.columns.items()}
            columns["flow_id"] = renumbered[wanted].astype(np.uint32)
            if not len(columns["ts_ns"]):
                continue
            minimum = int(columns["ts_ns"].min())
            first_kept_ns = minimum if first_kept_ns is None else min(first_kept_ns, minimum)
            slots.update(columns)
            rates.update(columns)
            round_trips.update(pairing.update(columns))
        assert first_kept_ns is not None  # the first packet
        slot_table = slots.result()
        slot_ns = round(self.dataset.settings.slot_ms * 1e6)
        slot_table["slot"] += first_kept_ns // slot_ns - self.first_ns // slot_ns
        slot_table["flow_id"] = flow_ids[slot_table["flow_id"]].astype(np.uint32)
        rate_table = rates.result().rename(columns={"bin": "second", "wire_bytes": "bytes"})
        # an ACK may arrive in a second without other packets of its flow
        rate_table = rate_table.merge(
            round_trips.result(), on=["flow_id", "direction", "second"], how="outer", sort=True
        )
        counts = ["packets", "bytes", "goodput_bytes", "rtt_samples"]
        rate_table[counts] = rate_table[counts].fillna(0)
        rate_table["flow_id"] = flow_ids[rate_table["flow_id"]].astype(np.uint32)
        return rate_table, slot_table
