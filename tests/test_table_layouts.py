"""Packets tables look different in memory, by where they come from; no kernel is compiled again for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numba.core.dispatcher import Dispatcher

import cctoolkit as cct
from cctoolkit.analysis import metrics
from cctoolkit.capture.model import Capture, columns_of

RUN = Path(__file__).parents[1] / "traces" / "fq-codel-ecn"


def layouts(capture: Capture, folder: Path) -> Iterator[Any]:
    """The same table: read-only, strided, unaligned, from a file, selected, and with columns of several kinds."""
    packets = capture.packets
    yield packets
    yield packets.iloc[::2].reset_index(drop=True)
    yield packets[packets.flow_id == 0]
    yield dict(capture.columns)
    yield {name: np.repeat(column, 2)[::2] for name, column in capture.columns.items()}
    unaligned = {}
    for name, column in capture.columns.items():
        memory = np.empty(column.nbytes + 1, np.uint8)[1:].view(column.dtype)
        memory[:] = column
        unaligned[name] = memory
    yield unaligned
    packets.to_parquet(folder / "packets.parquet")
    yield pd.read_parquet(folder / "packets.parquet")
    yield packets.assign(window=packets.window.to_numpy()[::-1][::-1])


def analyse(ingress: Any, egress: Any, keys: Any, folder: Path) -> None:
    cct.flow_table(ingress, keys)
    cct.segment_kinds(ingress)
    cct.rtt_samples(ingress)
    cct.compute_slots(ingress, check_taps=False)
    cct.compute_slots(ingress, egress, check_taps=False)
    cct.long_flows(ingress, 1000, "count_min")
    metrics.queue_delay(ingress, egress)
    metrics.queue_loss(ingress, egress)
    metrics.throughput(ingress)
    packets = ingress.columns if isinstance(ingress, Capture) else ingress
    cct.CountMinSketch(64, 2).update(packets["flow_id"], packets["wire_bytes"])
    with cct.PcapWriter(folder / "written.pcap") as writer:
        writer.write(packets, keys)


def compiled() -> set[tuple[str, str, str]]:
    """Each kernel of ours and each type of arguments that it is compiled for."""
    return {
        (name, kernel.py_func.__name__, str(signature))
        for name, module in list(sys.modules.items())
        if name.startswith("cctoolkit.")
        for kernel in vars(module).values()
        if isinstance(kernel, Dispatcher)
        for signature in kernel.overloads
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cctoolkit.errors.TapClockWarning")
def test_each_kernel_is_compiled_once(tmp_path: Path) -> None:
    run = cct.load_run(RUN)
    analyse(run.ingress, run.egress, run.ingress.keys, tmp_path)
    before = compiled()
    assert len(before) > 20
    for ingress, egress in zip(layouts(run.ingress, tmp_path), layouts(run.egress, tmp_path), strict=True):
        analyse(ingress, egress, run.ingress.keys, tmp_path)
        assert compiled() == before


def test_kernels_cannot_write_to_a_table(tmp_path: Path) -> None:
    capture = cct.load_run(RUN).ingress
    for table in layouts(capture, tmp_path):
        for column in columns_of(table).values():
            assert column.flags.c_contiguous and column.flags.aligned and not column.flags.writeable
    assert all(
        np.shares_memory(column, capture.columns[name]) for name, column in columns_of(capture).items()
    )
    assert capture.columns["ts_ns"].flags.writeable  # the table itself is as it was
