"""Batch, without a cluster: sources, files, what one task computes and how it is split."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tshark
from hypothesis import given, settings, strategies as st

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit._support.atomic import SUFFIX
from cctoolkit.batch.cca import classify
from cctoolkit.batch.command import parse_bytes
from cctoolkit.batch.dataset import Dataset
from cctoolkit.batch.memory import Memory
from cctoolkit.batch.piece import Outcome, compute_piece
from cctoolkit.batch.round_trips import RttByFlow, RttBySecond
from cctoolkit.batch.run import write_manifest
from cctoolkit.batch.settings import BatchSettings
from cctoolkit.batch.sources import Source, find_sources
from cctoolkit.batch.tables import TABLES, TableWriter
from cctoolkit.errors import CCToolkitError, ParameterError

ROOT = Path(__file__).parents[1]
MIXED = ROOT / "traces" / "mixed.ingress.pcap.gz"
SETTINGS = BatchSettings(long_flow_bytes=50_000, slot_ms=20)
AMPLE = Memory(1 << 40)


class Tight(Memory):
    """Room for one block and the slots of one long flow at a time, whatever the process takes."""

    def blocks(self, block_flows: int) -> int:
        return 1

    def slot_rows(self) -> int:
        return 850

    def check(self, flows: int) -> None:
        pass


def compute(path: Path, root: Path, memory: Memory = AMPLE, settings: BatchSettings = SETTINGS) -> Dataset:
    """A dataset of one capture, its pieces one after the other as a driver would have them computed."""
    dataset = Dataset.open(root, settings)
    source = Source(str(path))
    found = compute_piece(source, dataset, memory)
    while found.missing:
        found = compute_piece(source, dataset, memory, found.missing[-1])
    if dataset.manifest(found.capture) is None:
        write_manifest(dataset, found.capture)
        dataset.drop_blocks(found.capture)
    dataset.note_source(source, capture=found.capture)
    return dataset


def read(dataset: Dataset, table: str) -> pd.DataFrame:
    paths = sorted((dataset.root / table).rglob("*.parquet"))
    return pd.concat([pd.read_parquet(path, partitioning=None) for path in paths], ignore_index=True)


def contents(root: Path) -> dict[str, str]:
    """What a dataset is: all files but those about one computation, by name."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.name != ".lock"
        and path.relative_to(root).parts[0] not in ("journal", "sources")
    }


# --- sources


def urls(*captures: str | Path) -> list[str]:
    found, without = find_sources(captures)
    assert not without
    return [source.url for source in found]


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("b.pcap", "a.pcapng.gz", "notes.txt", "deep/c.PCAP.zst"):
        (tmp_path / "in" / name).touch()
    inside = [str(tmp_path / "in" / name) for name in ("a.pcapng.gz", "b.pcap", "deep/c.PCAP.zst")]
    monkeypatch.chdir(tmp_path)
    assert urls("in") == inside
    assert urls("in/*.pcap*") == inside[:2]
    assert urls("in/**/*.zst") == inside[2:]
    assert urls("in/b.pcap", tmp_path / "in" / "b.pcap", "in") == [inside[1], inside[0], inside[2]]
    assert urls("in/not there.pcap") == [str(tmp_path / "in" / "not there.pcap")]
    (tmp_path / "in" / "x[1].pcap").touch()
    assert urls("in/x[1].pcap") == [str(tmp_path / "in" / "x[1].pcap")]  # a file of that name is no glob
    assert urls("2024-02-15", "2024-02-28..2024-03-01") == [
        f"mawi:2024-{day}" for day in ("02-15", "02-28", "02-29", "03-01")
    ]
    assert Source("mawi:2024-02-15").stem == "202402151400"
    assert Source("https://x.org/days/20240215.pcap.gz?key=a/b").name == "20240215.pcap.gz"
    assert Source("/a/strange na/me: 1=2.pcap").stem == "me__1_2"


@pytest.mark.parametrize(
    ("capture", "reason"),
    [
        ("nothing/*.pcap", "no file matches"),
        ("2024-02-30", "not a date"),
        ("1999-01-01", "samplepoint F has no trace of"),
        ("2024-02-15..2024-02-14", "ends before it starts"),
        ("nostore://bucket/x.pcap", "nostore"),
    ],
)
def test_paths_that_are_no_captures_are_reported_and_others_found(capture: str, reason: str) -> None:
    pytest.importorskip("fsspec")
    found, without = find_sources([capture, MIXED])
    assert [source.url for source in found] == [str(MIXED)]
    assert list(without) == [capture]
    assert reason in without[capture]


def test_urls_of_a_store(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("a", "b"):
        memory.pipe(f"/days/{name}.pcap.gz", MIXED.read_bytes())
    assert urls("memory://days/*.gz") == ["memory:///days/a.pcap.gz", "memory:///days/b.pcap.gz"]
    assert urls(f"file://{MIXED}") == [str(MIXED)]
    here = contents(compute(MIXED, tmp_path / "here").root)
    there = Dataset.open(tmp_path / "there", SETTINGS)
    source = Source("memory://days/a.pcap.gz")
    first = compute_piece(source, there, AMPLE)
    assert first.computed == [0]
    flows = {name: sha for name, sha in here.items() if name.startswith("rtt/")}
    assert len(flows) == 1
    assert len(read(there, "flows")) == len(cct.read_capture(MIXED).flows)
    assert not compute_piece(source, there, AMPLE).computed
    version = source.version()
    memory.pipe("/days/a.pcap.gz", MIXED.read_bytes()[:-100])
    assert source.version() != version
    with pytest.raises(CCToolkitError, match=r"^memory://days/c\.pcap: not found$"):
        compute_piece(Source("memory://days/c.pcap"), there, AMPLE)


def test_a_day_of_mawi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the cache it is taken; fetched it is removed again, if that is asked for."""
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "mawi" / "samplepoint-F"
    folder.mkdir(parents=True)
    shutil.copy(MIXED, folder / "202402151400.pcap.gz")
    dataset = Dataset.open(tmp_path / "out", SETTINGS)
    (source,) = find_sources(["2024-02-15"])[0]
    found = compute_piece(source, dataset, AMPLE, keep=False)
    assert found.capture.startswith("202402151400-")
    assert (folder / "202402151400.pcap.gz").exists()

    def fetch(day: str, progress: bool) -> Path:
        target = folder / f"{day.replace('-', '')}1400.pcap.gz"
        shutil.copy(MIXED, target)
        target.with_name(target.name + ".sha256").touch()
        return target

    monkeypatch.setattr("cctoolkit.batch.sources.fetch_mawi", fetch)
    for day, keep in (("2024-02-16", False), ("2024-02-17", True)):
        (source,) = find_sources([day])[0]
        assert compute_piece(source, dataset, AMPLE, keep=keep).computed == [0]
        assert len(list(folder.glob(f"{day.replace('-', '')}*"))) == 2 * keep
        assert not compute_piece(source, dataset, AMPLE).computed  # and is not fetched again


# --- addresses and settings


def test_results_are_addressed_by_bytes_and_settings() -> None:
    address = SETTINGS.capture_id("day", "aa")
    assert address.startswith("day-")
    assert address == BatchSettings(long_flow_bytes=50_000, slot_ms=20).capture_id("day", "aa")
    others = [
        SETTINGS.capture_id("day", "ab"),
        *(
            replace(SETTINGS, **change).capture_id("day", "aa")
            for change in (
                {"slot_ms": 21.0},
                {"long_flow_bytes": 1},
                {"tunnel": "inner"},
                {"flow_timeout_s": None},
                {"block_flows": 7},
            )
        ),
    ]
    assert len({address, *others}) == 7


@pytest.mark.parametrize(
    "change",
    [
        {"slot_ms": 0},
        {"long_flow_bytes": 0},
        {"tunnel": "both"},
        {"flow_timeout_s": -1.0},
        {"block_flows": 1.5},
    ],
)
def test_settings_that_cannot_be(change: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=next(iter(change))):
        BatchSettings(**change)  # type: ignore[arg-type]


def test_one_dataset_has_one_of_them(tmp_path: Path) -> None:
    Dataset.open(tmp_path / "a", SETTINGS)
    Dataset.open(tmp_path / "a", SETTINGS)
    with pytest.raises(ParameterError, match=r"made with slot_ms = 20, not 10"):
        Dataset.open(tmp_path / "a", replace(SETTINGS, slot_ms=10))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(ParameterError, match="is not a dataset"):
        Dataset.open(tmp_path / "b", SETTINGS)
    with pytest.raises(ParameterError, match="is not a dataset"):
        Dataset.open(tmp_path / "b" / "thesis.tex", SETTINGS)


def test_one_driver_at_a_time_and_it_clears_up(tmp_path: Path) -> None:
    dataset = Dataset.open(tmp_path / "a", SETTINGS)
    half = dataset.root / "flows" / f".block-00000.parquet.x{SUFFIX}" / "block-00000.parquet"
    half.parent.mkdir(parents=True)
    half.touch()
    with dataset.reserved():
        assert not half.parent.exists()
        with (
            pytest.raises(ParameterError, match="another batch"),
            Dataset.open(tmp_path / "a", SETTINGS).reserved(),
        ):
            pass


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4e9), ("1.5g", 1.5e9), ("500 MB", 5e8), ("123", 123), ("2tb", 2e12)]
)
def test_sizes(text: str, size: float) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "4 gigs", "0"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ParameterError, match="memory"):
        parse_bytes(text)


# --- files


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, 1000), max_size=6))
def test_how_rows_were_handed_over_leaves_no_trace(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    n = 1000
    rows = pd.DataFrame(
        {
            "flow_id": np.arange(n),
            "cca": [f"c{i % 3}" if i % 7 else None for i in range(n)],
            "probability": np.arange(n) / n,
            "limited_by": "bottleneck",
            "windows": 1,
            "window_ms": 0.5,
            "feature_set": "",
        }
    )
    edges = [0, *sorted(cuts), n]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cctoolkit.batch.tables._GROUP_ROWS", 256)
        for name, pieces in (("whole", [0, n]), ("cut", edges)):
            with TableWriter(folder / name, "cca", {"a": 1}) as writer:
                for low, high in itertools.pairwise(pieces):
                    writer.write(rows.iloc[low:high])
            assert writer.rows == n
    assert (folder / "whole").read_bytes() == (folder / "cut").read_bytes()
    found = pd.read_parquet(folder / "cut")
    assert found.dtypes.astype(str).to_dict() == TABLES["cca"]
    pd.testing.assert_frame_equal(found, rows.astype(TABLES["cca"]))


ROW = pd.DataFrame(
    {
        "flow_id": [1],
        "cca": ["bbr"],
        "probability": [0.5],
        "limited_by": ["bottleneck"],
        "windows": [1],
        "window_ms": [0.5],
        "feature_set": ["throughput"],
    }
)


def test_a_table_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TableWriter(tmp_path / "t.parquet", "cca", {}) as writer:
        writer.write(ROW)
        raise RuntimeError
    with pytest.raises(ValueError), TableWriter(tmp_path / "t.parquet", "cca", {}) as writer:
        writer.write(ROW.assign(flow_id="one"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", TABLES)
def test_a_table_without_rows_has_its_columns(table: str, tmp_path: Path) -> None:
    with TableWriter(tmp_path / "t.parquet", table, {}):
        pass
    found = pd.read_parquet(tmp_path / "t.parquet")
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == TABLES[table]


# --- sums of round-trip times

samples = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 10**11), st.integers(0, 5 * 10**9)),
    max_size=60,
)


def as_samples(rows: list[tuple[int, int, int, int]]) -> dict[str, np.ndarray]:
    flow, direction, rtt, ts = (
        (np.array(column) for column in zip(*rows, strict=True)) if rows else [np.zeros(0)] * 4
    )
    return {
        "flow_id": flow.astype(np.uint32),
        "direction": direction.astype(np.int8),
        "rtt_ns": rtt.astype(np.int64),
        "ts_ns": ts.astype(np.int64),
    }


@settings(max_examples=30, deadline=None)
@given(rows=samples, cut=st.integers(0, 60))
def test_round_trips_by_flow(rows: list[tuple[int, int, int, int]], cut: int) -> None:
    by_flow = RttByFlow()
    by_flow.update(as_samples(rows[:cut]))
    by_flow.update(as_samples(rows[cut:]))
    found = by_flow.result()
    assert list(found) == list(TABLES["rtt"])
    expected: dict[tuple[int, int], list[int]] = {}
    for flow, direction, rtt, _ in rows:
        expected.setdefault((flow, direction), []).append(rtt)
    assert list(zip(found.flow_id, found.direction, strict=True)) == sorted(expected)
    for row in found.itertuples():
        values = np.sort(expected[row.flow_id, row.direction])
        assert (row.samples, row.rtt_min_ns, row.rtt_max_ns) == (len(values), values[0], values[-1])
        for estimate, q in ((row.rtt_median_ns, 0.5), (row.rtt_p95_ns, 0.95)):
            exact = np.quantile(values, q, method="lower")
            assert abs(estimate - exact) <= 0.0079 * exact + 1


def test_round_trips_by_flow_merge_their_counts() -> None:
    """More different keys than are kept apart at a time."""
    rng = np.random.default_rng(4)
    by_flow, batches = RttByFlow(), []
    for _ in range(6):
        n = 40_000
        batch = {
            "flow_id": rng.integers(0, 5000, n).astype(np.uint32),
            "direction": rng.integers(0, 2, n).astype(np.int8),
            "rtt_ns": rng.integers(1, 10**9, n),
        }
        by_flow.update(batch)
        batches.append(pd.DataFrame(batch))
    exact = pd.concat(batches).groupby(["flow_id", "direction"]).rtt_ns
    found = by_flow.result().set_index(["flow_id", "direction"])
    assert (found.samples == exact.size()).all()
    assert (found.rtt_min_ns == exact.min()).all()
    median = exact.quantile(0.5, interpolation="lower")
    assert ((found.rtt_median_ns - median).abs() <= 0.0079 * median + 1).all()


@settings(max_examples=30, deadline=None)
@given(rows=samples, cut=st.integers(0, 60))
def test_round_trips_by_second(rows: list[tuple[int, int, int, int]], cut: int) -> None:
    by_second = RttBySecond(origin_ns=10**9)
    by_second.update(as_samples(rows[:cut]))
    by_second.update(as_samples(rows[cut:]))
    expected: dict[tuple[int, int, int], list[int]] = {}
    for flow, direction, rtt, ts in rows:
        expected.setdefault((flow, direction, (ts - 10**9) // 10**9), []).append(rtt)
    found = by_second.result()
    assert [tuple(row) for row in found.to_numpy().tolist()] == [
        (*key, len(v), min(v), sum(v) // len(v)) for key, v in sorted(expected.items())
    ]


# --- what a task computes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return compute(MIXED, tmp_path_factory.mktemp("whole") / "out")


@pytest.mark.slow
def test_the_tables_are_those_of_the_plain_functions(whole: Dataset) -> None:
    cap = cct.read_capture(MIXED)
    flows = cct.flow_table(cap, cap.keys, SETTINGS.long_flow_bytes)
    long = flows.flow_id[flows.is_long]
    assert 2 <= len(long) < len(flows)
    pd.testing.assert_frame_equal(read(whole, "flows"), flows)

    expected = cct.compute_slots(cap, slot_ms=20, flow_ids=long)
    pd.testing.assert_frame_equal(read(whole, "slots"), expected)

    rates = read(whole, "rates")
    by = ["flow_id", "direction", "second"]
    plain = cct.throughput(cap, 1.0, flow_ids=long).rename(columns={"bin": "second", "wire_bytes": "bytes"})
    both = plain.merge(rates, on=by, how="outer", suffixes=("", "_found"))
    assert (both.packets.fillna(0) == both.packets_found).all()
    assert (both.bytes.fillna(0) == both.bytes_found).all()
    good = cct.goodput(cap, 1.0, flow_ids=long)
    assert rates.goodput_bytes.sum() == good.goodput_bytes.sum()

    samples = cct.rtt_samples(cap)
    rtt = read(whole, "rtt")
    exact = cct.rtt_summary(samples)
    pd.testing.assert_frame_equal(
        rtt.drop(columns=["rtt_median_ns", "rtt_p95_ns"]),
        exact.drop(columns=["rtt_median_ns", "rtt_p95_ns", "method"]),
    )
    # of an even number of samples the lower middle one is meant, so only long lists compare
    many = exact.samples > 200
    assert (rtt.rtt_median_ns[many] / exact.rtt_median_ns[many]).sub(1).abs().max() < 0.01
    assert rates.rtt_samples.sum() == samples.flow_id.isin(long).sum()
    assert rates.rtt_min_ns.min() == samples.rtt_ns[samples.flow_id.isin(long)].min()

    seconds = read(whole, "seconds")
    packets = cap.packets
    at = (packets.ts_ns - packets.ts_ns.iloc[0]) // 10**9
    protocol = packets.flow_id.map(flows.set_index("flow_id").protocol)
    assert (seconds.packets == np.bincount(at)).all()
    assert (seconds.bytes == np.bincount(at, packets.wire_bytes)).all()
    assert (seconds.payload_bytes == np.bincount(at, packets.payload_bytes)).all()
    for kind, number in (("tcp", 6), ("udp", 17)):
        of = protocol == number
        assert (seconds[f"{kind}_packets"] == np.bincount(at, of)).all()
        assert (seconds[f"{kind}_bytes"] == np.bincount(at, of * packets.wire_bytes)).all()
    tcp = protocol == 6
    assert (seconds.syns == np.bincount(at, tcp & (packets.tcp_flags & 18 == 2))).all()
    assert (seconds.resets == np.bincount(at, tcp & (packets.tcp_flags & 4 != 0))).all()
    assert (seconds.ect_packets == np.bincount(at, packets.ecn != 0)).all()
    assert (seconds.ce_packets == np.bincount(at, packets.ecn == 3)).all()
    assert seconds.new_flows.sum() == len(flows)
    assert seconds.udp_packets.sum() > 0

    (row,) = read(whole, "captures").itertuples()
    assert (row.name, row.packets, row.flows, row.long_flows) == (MIXED.name, len(cap), len(flows), len(long))
    assert (row.first_ts_ns, row.last_ts_ns) == (cap.meta.first_ts_ns, cap.meta.last_ts_ns)
    assert row.sha256 == hashlib.sha256(MIXED.read_bytes()).hexdigest()


def test_the_files_are_tables_of_the_schema(whole: Dataset) -> None:
    for table in ("flows", "slots"):
        (path,) = (whole.root / table).rglob("*.parquet")
        _, provenance = schema.read_parquet(path, table)
        assert provenance["sha256"] == hashlib.sha256(MIXED.read_bytes()).hexdigest()
        assert provenance["settings"]["slot_ms"] == 20


@pytest.mark.parametrize("part_packets", [500_000, pytest.param(997, marks=pytest.mark.slow)])
def test_splits_are_not_to_be_seen(
    part_packets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task with all blocks, or one a block in any order, slots in one reading or many: the same bytes."""
    monkeypatch.setattr("cctoolkit.batch.piece.PART_PACKETS", part_packets)
    monkeypatch.setattr("cctoolkit.batch.piece._RESULT_FLOWS", 4)
    blocks = replace(SETTINGS, block_flows=15)
    one = compute(MIXED, tmp_path / "one", AMPLE, blocks)
    many = compute(MIXED, tmp_path / "many", Tight(1), blocks)
    assert contents(one.root) == contents(many.root)
    journal = [json.loads(path.read_text()) for path in sorted((many.root / "journal").iterdir())]
    assert [entry["blocks"] for entry in journal] == [[block] for block in range(len(journal))]
    assert len(journal) > 2
    assert max(entry["passes"] for entry in journal) > 2  # slots did not fit in one
    assert not (many.root / "blocks").exists()
    # and blocks are the whole, cut
    plain = compute(MIXED, tmp_path / "plain")
    for table in ("flows", "rtt", "rates", "slots", "seconds"):
        pd.testing.assert_frame_equal(read(plain, table), read(many, table))


def test_what_is_there_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = replace(SETTINGS, block_flows=15)
    dataset = Dataset.open(tmp_path / "out", blocks)
    source = Source(str(MIXED))
    first = compute_piece(source, dataset, Tight(1))
    assert first.computed == [0]
    assert first.missing == list(range(1, len(first.missing) + 1))
    assert compute_piece(source, dataset, Tight(1), 2).computed == [2]  # another worker was faster
    monkeypatch.setattr("cctoolkit.batch.piece._Piece.run", None)  # nobody may read the capture now
    again = compute_piece(source, dataset, Tight(1))
    assert again == Outcome(first.capture, [], [b for b in first.missing if b != 2], [])
    assert compute_piece(source, dataset, Tight(1), 2).computed == []


def test_a_piece_ends_where_something_is_there(tmp_path: Path) -> None:
    """A batch that goes on with more memory than it began with."""
    dataset = Dataset.open(tmp_path / "out", replace(SETTINGS, block_flows=8))
    source = Source(str(MIXED))
    compute_piece(source, dataset, Tight(1))
    compute_piece(source, dataset, Tight(1), 3)
    assert compute_piece(source, dataset, AMPLE, 1).computed == [1, 2]
    last = compute_piece(source, dataset, AMPLE, 4)
    assert last.computed == [4, 5, 6]
    assert last.missing == []


def test_a_file_is_known_again_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pcap.gz"
    shutil.copy(MIXED, path)
    dataset = compute(path, tmp_path / "out")
    (capture,) = dataset.captures()
    path.write_bytes(gzip.compress(gzip.decompress(MIXED.read_bytes()), 1))
    other = compute_piece(Source(str(path)), dataset, AMPLE)
    assert other.computed == [0]
    assert other.capture != capture
    assert dataset.forget_replaced() == []  # not before the new results are whole
    write_manifest(dataset, other.capture)
    dataset.note_source(Source(str(path)), capture=other.capture)
    shutil.copytree(dataset.root, tmp_path / "copy", ignore=shutil.ignore_patterns("sources"))
    assert (
        Dataset.open(tmp_path / "copy", SETTINGS).forget_replaced() == []
    )  # nothing says that it was replaced
    assert dataset.forget_replaced() == [capture]
    assert {p.name for p in dataset.root.rglob("capture=*")} == {f"capture={other.capture}"}
    assert dataset.captures() == [other.capture]
    monkeypatch.setattr("cctoolkit.batch.piece._Piece.run", None)
    path.touch()
    assert compute_piece(Source(str(path)), dataset, AMPLE) == Outcome(other.capture, [], [], [])


def test_a_capture_that_is_cut_gives_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(gzip.decompress(MIXED.read_bytes())[:-17])
    dataset = Dataset.open(tmp_path / "out", SETTINGS)
    found = compute_piece(Source(str(path)), dataset, AMPLE)
    (note,) = found.notes
    assert "truncated or damaged" in note
    write_manifest(dataset, found.capture)
    (row,) = read(dataset, "captures").itertuples()
    assert row.truncated
    assert row.packets == len(cct.read_capture(MIXED)) - 1
    assert note in row.notes


def test_a_capture_without_packets(tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(gzip.decompress(MIXED.read_bytes())[:24])
    dataset = compute(path, tmp_path / "out")
    assert read(dataset, "captures").packets.tolist() == [0]
    for table in ("flows", "rtt", "seconds", "rates", "slots"):
        found = read(dataset, table)
        assert len(found) == 0
        assert {name: str(dtype) for name, dtype in found.dtypes.items()} == TABLES[table]


def test_bad_captures(tmp_path: Path) -> None:
    dataset = Dataset.open(tmp_path / "out", SETTINGS)
    (tmp_path / "bad.pcap").write_bytes(b"garbage")
    with pytest.raises(CCToolkitError, match=r"bad\.pcap: byte 0: expected a pcap"):
        compute_piece(Source(str(tmp_path / "bad.pcap")), dataset, AMPLE)
    with pytest.raises(CCToolkitError, match=r"none\.pcap: cannot be read"):
        compute_piece(Source(str(tmp_path / "none.pcap")), dataset, AMPLE)
    assert not list(dataset.root.rglob("*.parquet")) and not list(dataset.root.rglob("*.tmp"))


def test_the_limit_is_kept(tmp_path: Path) -> None:
    dataset = Dataset.open(tmp_path / "out", SETTINGS)
    with pytest.raises(
        CCToolkitError, match=r"needs more memory than a worker may use: \d.*the limit is 0\.01 GB"
    ):
        compute_piece(Source(str(MIXED)), dataset, Memory(10_000_000))

    class NoSlots(Tight):
        def slot_rows(self) -> int:
            return 100

    with pytest.raises(CCToolkitError, match=r"flow \d+ has [\d,]+ slots, but only"):
        compute_piece(Source(str(MIXED)), dataset, NoSlots(1))
    assert not list(dataset.root.rglob("*.tmp"))


def test_limits_decide_about_pieces() -> None:
    small, large = Memory(1_000_000_000), Memory(8_000_000_000)
    assert small.blocks(1 << 20) == 1
    assert large.blocks(1 << 20) > 5
    assert large.slot_rows() > 5 * small.slot_rows()


# --- congestion controls


class ByRate:
    """Says of a flow what its slots say alone, and notes which flows it was asked about."""

    name = "by-rate-1"
    slot_ms = SETTINGS.slot_ms

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
        schema.check(slots, "slots")
        assert slots.attrs["slot_ms"] == SETTINGS.slot_ms
        self.calls.append(slots.flow_id.unique().tolist())
        found = slots.groupby("flow_id").in_bytes.agg(["mean", "size"]).reset_index()
        names = np.where(found["mean"] > found["mean"].median(), "bbr", "reno").astype(object)
        names[found["size"] < 50] = None
        return pd.DataFrame(
            {
                "flow_id": found.flow_id,
                "cca": names,
                "probability": 0.75,
                "windows": 1,
                "window_ms": 1000.0,
                "feature_set": "throughput",
                "model": "not kept",
            }
        )


def test_predictions_are_made_of_the_slots_that_are_there(
    whole: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole.root, tmp_path / "out")
    dataset = Dataset.open(tmp_path / "out", SETTINGS)
    (capture,) = dataset.captures()
    monkeypatch.setattr("cctoolkit.batch.cca._ROWS", 400)
    model = ByRate()
    rows = classify(dataset, capture, model)
    flows = [flow for call in model.calls for flow in call]
    long = read(dataset, "slots").flow_id.unique()
    assert flows == long.tolist()  # each once, although the file was read in pieces
    assert len(model.calls) > 1
    found = read(dataset, "cca")
    assert list(found) == list(TABLES["cca"])
    assert len(found) == rows == len(long)
    assert set(found.cca.dropna()) == {"bbr", "reno"}
    assert found.cca.isna().any()  # and no word that stands for it
    assert classify(dataset, capture, model) == 0
    assert [flow for call in model.calls for flow in call] == flows

    other = ByRate()
    other.name = "by-rate-2"
    assert classify(dataset, capture, other) == rows
    models = {path.name for path in (dataset.root / "cca").iterdir()}
    assert models == {"model=by-rate-1", "model=by-rate-2"}


@pytest.mark.slow
@pytest.mark.tshark
def test_seconds_are_those_of_tshark(whole: Dataset) -> None:
    """Frames with an IP header, counted by the second of tshark's own clock reading."""
    if not tshark.have_tshark():
        pytest.skip("needs tshark on PATH")
    fields = ["frame.time_epoch", "frame.len", "ip.proto", "ipv6.nxt", "tcp.flags", "tcp.len"]
    frames = pd.DataFrame(tshark.run_tshark(MIXED, fields, display_filter="ip || ipv6").columns)
    ns = [int(seconds) * 10**9 + int(rest) for seconds, rest in frames["frame.time_epoch"].str.split(".")]
    second = (np.array(ns) - ns[0]) // 10**9
    size = frames["frame.len"].astype(int)
    tcp = (frames["ip.proto"] == "6") | (frames["ipv6.nxt"] == "6")
    flags = np.array([int(text, 16) if text else 0 for text in frames["tcp.flags"]])
    found = read(whole, "seconds")
    assert (found.packets == np.bincount(second)).all()
    assert (found.bytes == np.bincount(second, size)).all()
    assert (found.tcp_packets == np.bincount(second, tcp)).all()
    assert (found.tcp_bytes == np.bincount(second, tcp * size)).all()
    assert (found.syns == np.bincount(second, flags & 18 == 2)).all()
    assert (found.resets == np.bincount(second, flags & 4 != 0)).all()
    assert found.syns.sum() > 10
