"""Hostile tables for every public function that takes one.

A case is a function and a number: the number seeds the damage, so a case can be run again by its name. What may come
back is an answer of the shape that is documented, or one of the package's own errors in one line.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd

import cctoolkit as cct
from cctoolkit import identify, plot, schema
from cctoolkit.analysis import metrics
from cctoolkit.capture.keys import FlowKeys
from cctoolkit.errors import CCToolkitError
from cctoolkit.identify import live, readers as identify_readers
from cctoolkit.report import page

from .readers import one_line
from .watched import Slot

# ---- damage ----------------------------------------------------------------------------------------------------------

_EXTREME_IDS = (-1, 2, 77, -128, 127, 2**25 - 1, 2**25, 2**27, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1)
_NOT_TABLES: tuple[Any, ...] = (
    None, 7, 1.5, "table", b"bytes", [1, 2], (), {}, {"ts_ns": [1, 2]}, np.zeros((3, 3)), np.float64(3), object(),
    pd.Series([1.0, 2.0]), {"ts_ns": np.zeros(3, np.int64), "flow_id": np.zeros(2, np.uint32)}, True,
)  # fmt: skip
_DTYPES = (
    "float64", "float32", "object", "str", "category", "bool", "int64", "uint64", "int8", "uint32", "Int64", "UInt8",
    "Float64", "boolean", "string", "datetime64[ns]", "timedelta64[ns]", "complex128", "int64[pyarrow]",
    "double[pyarrow]", "string[pyarrow]", "Sparse[float64]",
)  # fmt: skip


class Damage:
    """Damages tables and arrays, as a seed says."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def table(self, df: pd.DataFrame, most: int = 3) -> Any:
        """A data frame, damaged or not; rarely something else altogether."""
        if self.random.random() < 0.02:
            return self.random.choice(_NOT_TABLES)
        df = df.copy()
        for _ in range(self.random.randrange(most + 1)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    df = self.random.choice(_DAMAGES)(self, df)
            except Exception:
                continue  # pandas itself cannot make that table
        return df

    def column(self, df: pd.DataFrame) -> Any:
        return self.random.choice(list(df.columns))

    def rows(self, df: pd.DataFrame) -> np.ndarray:
        """One row, a few, or all."""
        n = len(df)
        some = self.random.choice([1, 1, 3, n])
        return np.array(sorted({self.random.randrange(n) for _ in range(some)}) if n else [], int)

    # -- kinds of damage; each takes a data frame and returns another

    def without_column(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.drop(columns=self.column(df))

    def other_dtype(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.astype({self.column(df): self.random.choice(_DTYPES)})

    def other_dtypes(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.convert_dtypes(dtype_backend=self.random.choice(["numpy_nullable", "pyarrow"]))

    def no_rows(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.iloc[:0]

    def one_row(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.iloc[[self.random.randrange(len(df))]]

    def extremes(self, df: pd.DataFrame) -> pd.DataFrame:
        name = self.column(df)
        values = df[name].to_numpy().copy()
        if values.dtype.kind in "iu":
            info = np.iinfo(values.dtype)
            values[self.rows(df)] = self.random.choice([info.min, info.max, 0, 1, info.max - 1])
        elif values.dtype.kind == "f":
            values[self.rows(df)] = self.random.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, 5e-324])
        elif values.dtype.kind == "b":
            values[:] = self.random.random() < 0.5
        else:
            values = values.astype(object)
            values[self.rows(df)] = self.random.choice(
                [None, "", "\x1b[31m\n", "x" * 5000, 5, np.nan, pd.NA, [1]]
            )
        return df.assign(**{name: values})

    def extreme_ids(self, df: pd.DataFrame) -> pd.DataFrame:
        name = self.random.choice([c for c in df.columns if c in _INDICES])
        values = df[name].to_numpy().copy()
        values[self.rows(df)] = np.array(self.random.choice(_EXTREME_IDS)).astype(values.dtype)
        return df.assign(**{name: values})

    def far_times(self, df: pd.DataFrame) -> pd.DataFrame:
        name = self.random.choice([c for c in df.columns if c in _TIMES])
        values = df[name].to_numpy().astype(np.int64)
        values[self.rows(df)] = self.random.choice([0, -1, 10**18, -(2**63), 2**63 - 1, 10**12])
        return df.assign(**{name: values})

    def missing(self, df: pd.DataFrame) -> pd.DataFrame:
        name = self.column(df)
        values = df[name].astype(object).to_numpy().copy()
        values[self.rows(df)] = self.random.choice([None, np.nan, pd.NA, pd.NaT])
        return df.assign(**{name: values})

    def shuffled(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.sample(frac=1, random_state=self.random.randrange(1000))

    def backwards(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.iloc[::-1]

    def twice(self, df: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([df, df])

    def other_index(self, df: pd.DataFrame) -> pd.DataFrame:
        n = len(df)
        index = self.random.choice(
            [np.zeros(n, int), np.arange(n) - 5, [f"row {i}" for i in range(n)], np.arange(n) * 0.5,
             pd.MultiIndex.from_arrays([np.arange(n), np.arange(n)]), pd.date_range("2020", periods=n)]
        )  # fmt: skip
        return df.set_axis(index)

    def index_of_columns(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.set_index(self.column(df))

    def column_twice(self, df: pd.DataFrame) -> pd.DataFrame:
        name = self.column(df)
        return pd.concat([df, df[[name]]], axis=1)

    def other_name(self, df: pd.DataFrame) -> pd.DataFrame:
        return df.rename(
            columns={self.column(df): self.random.choice(["", 0, None, "\x1b]0;x\a", ("a", "b")])}
        )

    def strided(self, df: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            dict(zip(df.columns, (df[c].to_numpy()[::2] for c in df.columns), strict=True)), copy=False
        )

    # -- arrays, keys, captures

    def array(self, values: Any) -> Any:
        """An array, damaged or not."""
        r = self.random
        values = np.array(values)
        kind = r.randrange(12)
        if kind == 0:
            return r.choice(_NOT_TABLES)
        if kind == 1:
            return values[:0]
        if kind == 2 and values.dtype.kind in "iuf":
            return values.astype(r.choice(["float64", "object", "int64", "U8", "complex128", "bool"]))
        if kind == 3 and values.dtype.kind == "f" and values.size:
            values.flat[r.randrange(values.size)] = r.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308])
        if kind == 4 and values.dtype.kind in "iu" and values.size:
            values.flat[r.randrange(values.size)] = r.choice(
                [np.iinfo(values.dtype).min, np.iinfo(values.dtype).max]
            )
        if kind == 5:
            return values.reshape(-1, 1)
        if kind == 6:
            return values[: len(values) // 2]
        if kind == 7 and values.dtype.names is None:
            return pd.Series(values.ravel(), index=np.arange(values.size) * 2)
        if kind == 8:
            return values.tolist()
        if kind == 9:
            return values.astype(object)
        return values

    def keys(self, keys: FlowKeys) -> Any:
        """Keys of flows, damaged or not."""
        r = self.random
        kind = r.randrange(10)
        if kind == 0:
            return r.choice((None, 5, {}, [1]))
        if kind > 5:
            return keys
        name = r.choice([f.name for f in dataclasses.fields(FlowKeys)])
        values = getattr(keys, name)
        changed = {
            1: values[:0],
            2: values[: len(values) - 1],
            3: values.astype(r.choice(["float64", "object", "int64", "uint8"])),
            4: values[::-1],
            5: np.full_like(values, np.iinfo(values.dtype).max if values.dtype.kind in "iu" else True),
        }[kind]
        if r.random() < 0.2:
            return keys.take(np.arange(len(keys)) < len(keys) - 1)
        return dataclasses.replace(keys, **{name: changed})

    def capture(self, capture: cct.Capture) -> Any:
        """Packets as one can give them: a capture, a data frame, a dictionary of columns."""
        r = self.random
        table = self.table(capture.packets)
        if not isinstance(table, pd.DataFrame) or r.random() < 0.4:
            return table
        columns = {str(name): table.iloc[:, i].to_numpy() for i, name in enumerate(table.columns)}
        if r.random() < 0.1 and columns:
            name = r.choice(list(columns))
            columns[name] = columns[name][: len(columns[name]) // 2]
        if r.random() < 0.5:
            return columns
        sacks = self.array(capture._sacks) if r.random() < 0.3 else capture._sacks
        return cct.Capture(columns, self.keys(capture.keys), capture.meta, sacks)

    def run(self, run: cct.Run) -> Any:
        """A run in which a few tables are damaged."""
        if self.random.random() < 0.03:
            return self.random.choice(_NOT_TABLES)
        changed: dict[str, Any] = {}
        for _ in range(1 + self.random.randrange(2)):
            field = self.random.choice([f.name for f in dataclasses.fields(run)])
            value = getattr(run, field)
            if isinstance(value, pd.DataFrame):
                changed[field] = self.table(value)
            elif isinstance(value, cct.Capture):
                changed[field] = self.capture(value)
        return dataclasses.replace(run, **changed)


_DAMAGES: list[Callable[[Damage, pd.DataFrame], pd.DataFrame]] = [
    Damage.without_column, Damage.other_dtype, Damage.other_dtype, Damage.other_dtypes, Damage.no_rows,
    Damage.one_row, Damage.extremes, Damage.extremes, Damage.extremes, Damage.extreme_ids, Damage.extreme_ids,
    Damage.far_times, Damage.far_times, Damage.missing, Damage.shuffled, Damage.backwards, Damage.twice,
    Damage.other_index, Damage.index_of_columns, Damage.column_twice, Damage.other_name, Damage.strided,
]  # fmt: skip
_INDICES = (
    "flow_id", "direction", "ecn", "dscp", "packet", "queue", "slot", "test", "stream", "sport", "dport",
)  # fmt: skip
_TIMES = ("ts_ns", "first_ts_ns", "last_ts_ns", "start_ns", "rtt_ns", "slot", "delay_ns", "t_s", "start_s")

# ---- good tables to damage -------------------------------------------------------------------------------------------


class Good:
    """Tables of a small run, each made at first use."""

    @functools.cached_property
    def run(self) -> cct.Run:
        scenario = cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=4, buffer_packets=10),
            flows=[cct.Flow("cubic", rtt_ms=20), cct.Flow("reno", rtt_ms=30, bytes=20_000)],
            duration_s=0.6,
        )
        return cct.simulate(scenario)

    @functools.cached_property
    def ingress(self) -> cct.Capture:
        assert self.run.ingress is not None
        return self.run.ingress

    @functools.cached_property
    def egress(self) -> cct.Capture:
        assert self.run.egress is not None
        return self.run.egress

    @functools.cached_property
    def samples(self) -> pd.DataFrame:
        return cct.rtt_samples(self.ingress)

    @functools.cached_property
    def slots(self) -> pd.DataFrame:
        return cct.compute_slots(self.ingress, self.egress, slot_ms=1.0)

    @functools.cached_property
    def completion(self) -> pd.DataFrame:
        return cct.flow_completion_times(self.ingress)

    @functools.cached_property
    def delays(self) -> pd.DataFrame:
        return cct.queue_delay(self.ingress, self.egress)

    @functools.cached_property
    def labels(self) -> pd.DataFrame:
        return self.run.labels

    @functools.cached_property
    def league(self) -> pd.DataFrame:
        races = {"race": cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=4, buffer_packets=10),
                                      flows=[cct.Flow("reno", rtt_ms=20)], duration_s=0.5)}  # fmt: skip
        return cct.league(["tail_drop", "codel"], races, seeds=1)

    @functools.cached_property
    def recording(self) -> identify.Recording:
        return identify.record(self.run)

    @functools.cached_property
    def model(self) -> identify.Model:
        return identify.load("cca")

    @functools.cached_property
    def windows(self) -> identify.Windows:
        return identify.cut_windows([self.recording], 100, "views")

    @functools.cached_property
    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        table = cct.SlotTable(10.0)
        table.update(self.ingress, self.egress)
        return table.take_cells()


GOOD = Good()

# ---- functions -------------------------------------------------------------------------------------------------------

Case = Callable[[Damage], Any]
CASES: dict[str, Case] = {}


def _case(*names: str) -> Callable[[Case], Case]:
    def add(case: Case) -> Case:
        for name in names:
            CASES[name] = case
        return case

    return add


def _table(found: Any, columns: Iterable[str] = ()) -> None:
    assert isinstance(found, pd.DataFrame), type(found)
    assert set(columns) <= set(found.columns), found.columns


def _of_packets(name: str, call: Callable[..., Any], check: Callable[[Any], None] = _table) -> None:
    """A function of packets alone."""
    CASES[name] = lambda d: check(call(d.capture(GOOD.ingress)))


def _of_taps(name: str, call: Callable[..., Any], check: Callable[[Any], None] = _table) -> None:
    """A function of two taps, either of which is damaged."""

    def case(d: Damage) -> None:
        taps = [GOOD.ingress, GOOD.egress]
        which = d.random.randrange(3)
        if which != 1:
            taps[0] = d.capture(taps[0])
        if which != 0:
            taps[1] = d.capture(taps[1])
        check(
            call(*taps, check_taps=False)
            if name != "compare_taps" and d.random.random() < 0.7
            else call(*taps)
        )

    CASES[name] = case


def _schema(table: str) -> Callable[[Any], None]:
    return lambda found: _table(schema.check(found, table)) if isinstance(found, pd.DataFrame) else None


def _figure(found: Any) -> None:
    assert type(found).__name__ == "Figure"
    found.to_json()


_of_packets("rtt_samples", cct.rtt_samples, _schema("rtt_samples"))
_of_packets("goodput", cct.goodput)
_of_packets("throughput", cct.throughput)
_of_packets("flow_completion_times", cct.flow_completion_times)
_of_packets("jain_over_time", cct.jain_over_time)
_of_packets("link_utilisation", lambda cap: cct.link_utilisation(cap, 4.0))
_of_packets("long_flows", lambda cap: cct.long_flows(cap, 1000))
_of_packets("plot.throughput", plot.throughput, _figure)
_of_packets("plot.Names", lambda cap: plot.Names(cap).short(0), lambda name: None)
_of_packets("plot.bytes_in_flight", lambda cap: plot.bytes_in_flight(cap, 0), _figure)
_of_packets("plot.time_sequence", lambda cap: plot.time_sequence(cap, 0), _figure)
_of_taps("compute_slots", cct.compute_slots, _schema("slots"))
_of_taps("queue_delay", cct.queue_delay)
_of_taps("queue_loss", cct.queue_loss)
_of_taps("metrics.rtt_split", metrics.rtt_split)
_of_taps("compare_taps", cct.compare_taps, lambda found: None)
_of_taps("identify.live.CaptureCollector", lambda *taps, **options: live.CaptureCollector(*taps, **options).close(),
         lambda found: None)  # fmt: skip


def _stream(name: str, make: Callable[[], Any], two: bool = False) -> None:
    """A class that takes packets part by part."""

    def case(d: Damage) -> None:
        stream = make()
        for _ in range(1 + d.random.randrange(2)):
            stream.update(*(d.capture(tap) for tap in (GOOD.ingress, GOOD.egress)[: 1 + two]))
        if hasattr(stream, "result"):
            _table(stream.result())

    CASES[f"{name}.update"] = case


_stream("RttPairing", cct.RttPairing)
_stream("LongFlows", cct.LongFlows)
_stream("metrics.FlowCompletion", metrics.FlowCompletion)
_stream("metrics.RateTable", metrics.RateTable)
_stream("metrics.LinkUtilisation", lambda: metrics.LinkUtilisation(4.0))
_stream("metrics.QueueDelay", lambda: metrics.QueueDelay(check_taps=False), two=True)
_stream("SlotTable", lambda: cct.SlotTable(10.0, check_taps=False), two=True)


@_case("FlowStatistics.update", "FlowStatistics.result")
def _(d: Damage) -> None:
    stream = cct.FlowStatistics()
    for _ in range(1 + d.random.randrange(2)):
        stream.update(d.capture(GOOD.ingress), d.keys(GOOD.ingress.keys) if d.random.random() < 0.5 else None)
    schema.check(stream.result(d.keys(GOOD.ingress.keys)), "flows")


@_case("flow_table")
def _(d: Damage) -> None:
    schema.check(cct.flow_table(d.capture(GOOD.ingress), d.keys(GOOD.ingress.keys)), "flows")


@_case("segment_kinds")
def _(d: Damage) -> None:
    packets = d.capture(GOOD.ingress)
    keys = d.keys(GOOD.ingress.keys) if d.random.random() < 0.5 else None
    assert isinstance(cct.segment_kinds(packets, keys), pd.Categorical)


@_case("Capture", "Capture.rows")
def _(d: Damage) -> None:
    capture = d.capture(GOOD.ingress)
    if isinstance(capture, cct.Capture):
        schema.check(capture.flows, "flows")
        schema.check(capture.sacks, "sacks")
        repr(capture.rows(d.array(np.arange(len(GOOD.ingress)) % 2 == 0)))
        repr(capture.select(flow_id=0))
        capture._repr_html_()


@_case("write_pcap")
def _(d: Damage) -> None:
    keys = d.keys(GOOD.ingress.keys)
    sacks = d.table(GOOD.ingress.sacks) if d.random.random() < 0.5 else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pcap"
        cct.write_pcap(path, d.capture(GOOD.ingress), keys, sacks=sacks)
        cct.read_capture(path)


@_case("PcapWriter.write", "PcapWriter.write_frames")
def _(d: Damage) -> None:
    with tempfile.TemporaryDirectory() as folder, cct.PcapWriter(Path(folder) / "x.pcap") as writer:
        if d.random.random() < 0.7:
            writer.write(
                d.table(GOOD.ingress.packets), d.keys(GOOD.ingress.keys), d.table(GOOD.ingress.sacks)
            )
        else:
            frames = d.random.choice([[b"a" * 60] * 3, [b""] * 3, [1, 2, 3], ["x"] * 3, [bytes(300_000)] * 3])
            writer.write_frames(d.array(np.arange(3) * 10**9), frames, d.array(np.full(3, 60)))


@_case("CountMinSketch.update", "CountMinSketch.query")
def _(d: Damage) -> None:
    sketch = cct.CountMinSketch(64, 3, conservative=d.random.random() < 0.5)
    keys, amounts = np.arange(20, dtype=np.uint64), np.arange(20)
    sketch.update(d.array(keys), d.array(amounts) if d.random.random() < 0.5 else None)
    assert isinstance(sketch.query(d.array(keys)), np.ndarray)


CASES["cdf"] = lambda d: _table(cct.cdf(d.array(np.linspace(1, 9, 20))))
CASES["jain_index"] = lambda d: cct.jain_index(d.array(np.linspace(1, 9, 20)))
CASES["jenks_classes"] = lambda d: cct.jenks_classes(
    d.array(np.linspace(1, 9, 20)), d.random.choice([1, 2, 3, 30])
)
CASES["plot.rtt_classes"] = lambda d: plot.rtt_classes(
    d.array(np.linspace(1, 9, 20)), cct.jenks_classes(np.linspace(1, 9, 20), 3)
)
CASES["share_difference"] = lambda d: cct.share_difference(d.array([1.0]), d.array([2.0]))
CASES["rtt_unfairness"] = lambda d: _table(
    cct.rtt_unfairness(d.array([1.0, 2.0, 3.0]), d.array([10.0, 20.0, 30.0]), d.array([1, 2, 3]))
)
CASES["retransmitted_share"] = lambda d: cct.retransmitted_share(
    d.table(GOOD.ingress.flows), d.random.choice([None, "fwd", "rev"])
)
CASES["rtt_summary"] = lambda d: _table(cct.rtt_summary(d.table(GOOD.samples)))
CASES["standings"] = lambda d: _table(cct.standings(d.table(GOOD.league)))


def _of_table(name: str, call: Callable[..., Any], good: str, *, with_capture: bool = True) -> None:
    """A figure of a table, with or without the capture that it is of."""

    def case(d: Damage) -> None:
        more = [GOOD.ingress] if with_capture and d.random.random() < 0.5 else []
        _figure(call(d.table(getattr(GOOD, good)), *more))

    CASES[name] = case


_of_table("plot.trade_off", plot.trade_off, "league", with_capture=False)
_of_table("plot.cbiq", plot.cbiq, "slots")
CASES["flow_limits"] = lambda d: _table(cct.flow_limits(d.table(GOOD.slots)), ["flow_id", "limited_by"])
CASES["seen_by_sender"] = lambda d: _table(
    cct.seen_by_sender(d.table(GOOD.slots), d.table(GOOD.ingress.flows)), ["flow_id", "slot"]
)
_of_table("plot.rtt", plot.rtt, "samples")
_of_table("plot.rtt_cdf", plot.rtt_cdf, "samples")
_of_table("plot.queue_delay", plot.queue_delay, "delays")
_of_table("plot.completion_cdf", plot.completion_cdf, "completion", with_capture=False)
for _name in ("goodput", "queue", "window"):
    CASES[f"plot.{_name}"] = lambda d, name=_name: _figure(getattr(plot, name)(d.run(GOOD.run)))  # type: ignore[misc]


@_case("plot.thin", "plot.thin_rows")
def _(d: Damage) -> None:
    x, y = np.arange(100.0), np.arange(100.0) % 7
    if d.random.random() < 0.5:
        plot.thin(d.array(x), d.array(y), 20)
    else:
        rows = plot.thin_rows(d.array(x), d.array(y), points=20)
        assert rows.ndim == 1


@_case("Run")
def _(d: Damage) -> None:
    run = d.run(GOOD.run)
    if isinstance(run, cct.Run):
        if d.random.random() < 0.5:
            run.summary()
        else:
            repr(run)
            run._repr_html_() if hasattr(run, "_repr_html_") else None
        if d.random.random() < 0.3:
            with tempfile.TemporaryDirectory() as folder:
                cct.load_run(run.save(Path(folder) / "run"))


@_case("summarise", "report.terminal_summary")
def _(d: Damage) -> None:
    capture = d.capture(GOOD.ingress)
    if isinstance(capture, cct.Capture):
        summary = cct.summarise(capture, egress=d.capture(GOOD.egress) if d.random.random() < 0.3 else None)
        page.terminal_summary(summary)


@_case("report.report")
def _(d: Damage) -> None:
    capture = d.capture(GOOD.ingress)
    if isinstance(capture, cct.Capture):
        with tempfile.TemporaryDirectory() as folder:
            page.report(capture, Path(folder) / "report.html", model=None)


CASES["scenario_from_capture"] = lambda d: cct.scenario_from_capture(
    d.capture(GOOD.ingress), 4.0, min_bytes=1000, default_rtt_ms=20
)
CASES["schema.check"] = lambda d: schema.check(
    d.table(GOOD.slots), d.random.choice(["slots", "slots", "flows", "x"])
)
CASES["schema.arrays"] = lambda d: schema.arrays(d.table(GOOD.ingress.packets), "packets")
CASES["schema.check_columns"] = lambda d: schema.check_columns(_dict(d.capture(GOOD.ingress)), "packets")


def _dict(source: Any) -> Any:
    return source.columns if isinstance(source, cct.Capture) else source


@_case("schema.write_parquet")
def _(d: Damage) -> None:
    name = d.random.choice(["flows", "packets", "slots"])
    good = {"flows": GOOD.ingress.flows, "packets": GOOD.ingress.packets, "slots": GOOD.slots}[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        schema.write_parquet(d.table(good), path, name)
        schema.check(schema.read_parquet(path, name)[0], name)


# -- identification


def _named(found: Any) -> None:
    _table(found, ["flow_id", "cca", "probability"])


CASES["identify.Model.predict_slots"] = lambda d: _named(GOOD.model.predict_slots(d.table(GOOD.slots)))
CASES["identify.Model.predict"] = lambda d: GOOD.model.predict(
    d.random.choice([d.table(GOOD.slots), _windows(d), d.array(GOOD.windows.X)])
)
CASES["identify.Model.answer"] = lambda d: GOOD.model.answer(
    d.random.choice([_windows(d), d.array(GOOD.windows.X)])
)
CASES["identify.Model.predict_proba"] = lambda d: GOOD.model.predict_proba(
    d.random.choice([_windows(d), d.array(GOOD.windows.X), d.array(np.zeros((2, 100, 5), np.float32))])
)


def _windows(d: Damage) -> Any:
    changed: dict[str, Any] = {}
    for name in ("X", "y"):
        if d.random.random() < 0.4:
            changed[name] = d.array(getattr(GOOD.windows, name))
    if d.random.random() < 0.3:
        changed["table"] = d.table(GOOD.windows.table)
    return dataclasses.replace(GOOD.windows, **changed)


@_case("identify.Windows", "identify.Windows.take")
def _(d: Damage) -> None:
    windows = _windows(d)
    windows.take(d.array(np.arange(len(GOOD.windows.y)) % 2 == 0))
    with tempfile.TemporaryDirectory() as folder:
        windows.save(Path(folder) / "x.parquet")
        identify.Windows.load(Path(folder) / "x.parquet")


@_case("identify.Recording", "identify.cut_windows")
def _(d: Damage) -> None:
    good = GOOD.recording
    recording = identify.Recording("a", d.table(good.slots), d.table(good.flows))
    identify.cut_windows([recording], 100, d.random.choice(["views", "cbiq+throughput"]))


@_case("identify.record")
def _(d: Damage) -> None:
    if d.random.random() < 0.5:
        identify.record(d.run(GOOD.run))
    else:
        identify.record(
            d.capture(GOOD.ingress), d.capture(GOOD.egress), d.table(GOOD.labels), check_taps=False
        )


@_case("identify.classify_flows")
def _(d: Damage) -> None:
    source = d.capture(GOOD.ingress)
    flows = d.table(GOOD.ingress.flows) if d.random.random() < 0.5 else None
    if isinstance(source, cct.Capture):
        _named(identify.classify_flows(source, model=GOOD.model, flows=flows, min_bytes=1000))


@_case("identify.readers.label_flows")
def _(d: Damage) -> None:
    capture = d.capture(GOOD.ingress)
    if isinstance(capture, cct.Capture) and d.random.random() < 0.5:
        identify_readers.label_flows(capture, GOOD.labels)
    else:
        identify_readers.label_flows(GOOD.ingress, d.table(GOOD.labels))


@_case("identify.live.SlotStream.update")
def _(d: Damage) -> None:
    stream = live.SlotStream(0, 10**7, has_egress=True, sampled=False)
    stream.begin(0, 0)
    into, out = GOOD.cells
    for _ in range(2):
        stream.update(d.array(into), d.array(out), d.random.choice([5, 100, -1, 2**40]))


#: What Python says when something else is given where a path is expected: documented enough.
_NO_PATH = "expected str, bytes or os.PathLike object, not"

#: Public functions whose annotations leave room for a table, and why none of these cases is theirs.
EXEMPT: dict[str, str] = {
    "aqm.*": "callbacks: the simulator compiles them and calls them with records of its own",
    "cca.*": "callbacks: the simulator compiles them and calls them with records of its own",
    "Flow": "takes a congestion control's name, class or parameters",
    "league": "takes queue disciplines",
    "run_sweep": "takes scenarios",
    "run_testbed_sweep": "takes scenarios",
    "sweep": "takes values to try in a scenario, which test_scenario.py tries",
    "identify.build_dataset": "takes scenarios",
    "identify.save_models": "writes the table of scores beside models that the same program has trained",
    "identify.CCAClassifier.*": "trains on windows that the same program has cut",
    "identify.SummaryClassifier.*": "trains on windows that the same program has cut",
    "identify.live.Collector": "a protocol",
    "identify.live.SlotClassifier": "a protocol",
    "identify.live.SlotClassifier.predict_slots": "a protocol",
    "identify.live.Reading": "a record that a collector fills in",
    "identify.live.Update": "a record that watch() fills in",
    "identify.readers.Iperf3": "a record that read_iperf3() fills in",
}


def exempt(name: str) -> bool:
    """Whether a function has a reason not to be among the cases."""
    return any(exempt_by(rule, name) for rule in EXEMPT)


def exempt_by(rule: str, name: str) -> bool:
    """Whether a rule is about a function."""
    return name == rule or (rule.endswith(".*") and name.startswith(rule[:-1]))


# ---- running ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fault:
    """What a case did that it must not.

    Attributes
    ----------
    name : str
        The function.
    seed : int
    what : str
        The exception, or what the watcher saw.
    where : str
        The innermost place in the package.
    """

    name: str
    seed: int
    what: str
    where: str


def try_one(name: str, seed: int) -> Fault | None:
    """Run one case; None if all is well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            CASES[name](Damage(Random(f"{name}/{seed}")))
        except CCToolkitError as error:
            try:
                one_line(error)
            except AssertionError as wrong:
                return Fault(name, seed, str(wrong)[:300], _where(error))
        except BaseException as error:
            if isinstance(error, FileNotFoundError) or str(error).startswith(_NO_PATH):
                return None  # text, or something else, where a path may stand
            text = f"{type(error).__name__}: {str(error)[:200]}"
            return Fault(name, seed, text, _where(error))
    return None


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/cctoolkit/" in f.filename] or frames
    return f"{ours[-1].filename.split('/cctoolkit/')[-1]}:{ours[-1].lineno} {ours[-1].name}"


def fuzz(names: list[str], first: int, cases: int, slot: Slot, faults: Path) -> None:
    """Run cases `first` to `cases`, the functions in turn; write faults, one JSON a line, a place once."""
    for name in names:
        try_one(name, -1)  # loads and compiles
    seen: set[tuple[str, str]] = set()
    with faults.open("a", encoding="utf-8") as file:
        for number in range(first, cases):
            name, seed = names[number % len(names)], number // len(names)
            slot.begin(json.dumps([name, seed, number]).encode())
            found = try_one(name, seed)
            if found is not None and (found.name, found.where) not in seen:
                seen.add((found.name, found.where))
                file.write(json.dumps(dataclasses.asdict(found)) + "\n")
                file.flush()
            if number % 500 == 0:
                gc.collect()
