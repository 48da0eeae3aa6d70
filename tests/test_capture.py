"""Bytes to packets: the kernels beside their naive twin, every variant of the formats, damage, and bounds."""

from __future__ import annotations

import gzip
import io
import itertools
import lzma
import math
import os
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import made_captures as made
import naive_capture as naive
import numpy as np
import pandas as pd
import pytest
import tshark
import zstandard
from as_naive import assert_as_naive, read, read_bytes
from hypothesis import example, given, settings, strategies as st
from tools import examples, mostly_slow

import cctoolkit as cct
from cctoolkit import schema
from cctoolkit.capture import flow_ids, headers, reader, source as byte_source
from cctoolkit.capture.filtering import selected
from cctoolkit.capture.keys import AllKeys, FlowKeys
from cctoolkit.capture.model import Capture
from cctoolkit.errors import CaptureFormatError, ParameterError, TruncatedCaptureWarning
from cctoolkit.scenario.example import example_path

TESTS = Path(__file__).parent
SEEDS = st.integers(0, 2**32 - 1)


def assert_same(a: Capture, b: Capture) -> None:
    for name, column in a.columns.items():
        np.testing.assert_array_equal(column, b.columns[name], err_msg=name)
    for f in fields(FlowKeys):
        np.testing.assert_array_equal(getattr(a.keys, f.name), getattr(b.keys, f.name), err_msg=f.name)


def made_file(seed: int, n: int = 40) -> bytes:
    """A file of random frames, pcap or pcapng."""
    random = Random(seed)
    if random.random() < 0.5:
        return made.random_pcapng(random, made.random_frames(random, n))
    link_type = random.choice(made.LINK_TYPES)
    frames = [frame[:3] for frame in made.random_frames(random, n, link_type)]
    return made.random_pcap(random, frames, link_type)


# ---- The twin --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.sampled_from(["outer", "inner"]), st.sampled_from([None, 600.0, 1e-3]))
def test_the_kernels_are_their_naive_twin(seed: int, tunnel: str, timeout_s: float | None) -> None:
    assert_as_naive(made_file(seed), tunnel, timeout_s)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from(["outer", "inner"]), st.sampled_from([None, 600.0, 1e-3]))
def test_the_kernels_are_their_naive_twin_at_length(seed: int, tunnel: str, timeout_s: float | None) -> None:
    assert_as_naive(made_file(seed, 100), tunnel, timeout_s)


def test_the_made_frames_reach_every_count() -> None:
    """Else the comparisons above would say less than they seem to."""
    total: dict[str, int] = {}
    columns: dict[str, int] = {}
    for seed in range(60):
        cap, _ = read(io.BytesIO(made_file(seed)), tunnel="inner")
        for name, n in cap.meta.counts.items():
            total[name] = total.get(name, 0) + n
        for name, column in cap.columns.items():
            columns[name] = columns.get(name, 0) + int(np.count_nonzero(column))
    assert min(total.values()) > 10, total
    assert min(columns.values()) > 10, columns


_WORD = 2**64
_MULTIPLIERS = (0x165667B19E3779F9, 0x27D4EB2F165667C5, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


def _cancelling(i: int, first: int, second: int) -> tuple[int, int, int, int]:
    """Upper halves whose products with two multipliers cancel each other, whatever `i` is."""
    b_hi = (0x20010DB8 << 32) + i
    return pow(first, -1, _WORD) * ((b_hi * second ^ 0x1234567890ABCDEF) % _WORD) % _WORD, 1, b_hi, 2


@pytest.mark.parametrize(
    "addresses",
    [
        *(lambda i, m=pair: _cancelling(i, *m) for pair in itertools.permutations(_MULTIPLIERS, 2)),
        lambda i: (i, 1, 0, 2),
        lambda i: (i << 50, 1, i << 50 ^ i << 18, 2),
        lambda i: ((i & 127) << 57, 1, (i >> 7 & 127) << 57 ^ (i >> 7 & 127) << 25, 2),
        lambda i: ((i & 127) << 57, 1, 5, 2 ^ (i >> 7) << 57 ^ (i >> 7) << 25),
        lambda i: (0, i, 0, 2),
        lambda i: (0, 0x0A000000 | i, 0, 0x0A000000 | i * 257 & 0xFFFFFF),
    ],
)
def test_no_addresses_can_be_made_to_collide(addresses: Any) -> None:
    """With the right addresses, each flow would be looked for among all others: a second for 30 000 of them."""
    n = 1 << 14
    flows = np.array([addresses(i) for i in range(n)], np.uint64).view(np.int64).tolist()
    assert len(set(map(tuple, flows))) == n
    for seed in (0, 1, 0x0123456789ABCDEF, _WORD - 1):
        slots = {
            headers.flow_hash(*flow, 1000 << 32 | 53 << 16 | 0x1106, np.uint64(seed)) & 0xFFFFF
            for flow in flows
        }
        by_chance = 2**20 * (1 - (1 - 2**-20) ** n)
        assert len(slots) > 0.99 * by_chance


def test_it_works_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    data = made_file(1)
    with_thread = read_bytes(data)
    monkeypatch.setattr(reader, "_LEAST_SHARED", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert_same(with_thread, read_bytes(data))


class Dribble(io.BytesIO):
    """A file that gives a few bytes at a time, so that windows end everywhere."""

    def readinto1(self, window: Any) -> int:
        return super().readinto1(memoryview(window)[:97])


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.integers(1, 9), st.sampled_from([None, 1, 5, 64]))
def test_a_thread_that_decodes_changes_nothing(seed: int, block: int, packets: int | None) -> None:
    data = made_file(seed)
    decode = reader._Block.decode

    def uneven(self: reader._Block, *arguments: Any) -> None:
        time.sleep(2e-4 * (self.number % 3))  # blocks overtake each other
        decode(self, *arguments)

    def parts(cores: int) -> list[Capture]:
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncatedCaptureWarning)
            patch.setattr(reader, "_BLOCK_FRAMES", block)
            patch.setattr(reader, "_LEAST_SHARED", 1)
            patch.setattr(byte_source, "_WINDOW_BYTES", 256)
            patch.setattr(reader, "_FIRST_ROWS", 4)
            patch.setattr(reader._Block, "decode", uneven)
            patch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
            return list(cct.iter_capture(Dribble(data), packets or 10**6, frame_numbers=True))

    for one, two in zip(parts(1), parts(2), strict=True):
        assert_same(one, two)
        assert one.meta == two.meta
        assert one.sacks.equals(two.sacks)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


@pytest.mark.parametrize("seed", range(12))
def test_reading_ahead_changes_nothing(seed: int, tmp_path: Path, two_cores: None) -> None:
    path = tmp_path / "made"
    path.write_bytes(made_file(seed))
    found = []
    for ahead in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TruncatedCaptureWarning)
            parts = list(cct.iter_capture(path, 7, ahead=ahead))
        found.append((parts, [str(w.message) for w in caught]))
    (parts, notes), (parts_ahead, notes_ahead) = found
    assert notes == notes_ahead
    for one, two in zip(parts, parts_ahead, strict=True):
        assert_same(one, two)
        assert one.meta == two.meta


@pytest.mark.parametrize("packets", [0, -1, 1000.5, math.nan, "9", True])
def test_a_part_has_a_whole_number_of_packets(packets: Any) -> None:
    with pytest.raises(ParameterError, match="packets"):
        next(cct.iter_capture(io.BytesIO(made_file(1)), packets))


def test_a_file_in_text_mode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_bytes(b"\xa1\xb2\xc3\xd4" + bytes(100))
    with open(path, encoding="utf-8") as file, pytest.raises(ParameterError, match="text mode"):
        cct.read_capture(file)  # type: ignore[arg-type]


def test_a_loop_that_ends_early_ends_its_threads(tmp_path: Path, two_cores: None) -> None:
    path = cct.synth_mawi(tmp_path / "long.pcap", 50_000, seed=1)
    before = threading.active_count()
    parts = cct.iter_capture(path, 2_000, ahead=True)
    assert len(next(parts)) == 2_000
    assert threading.active_count() > before
    parts.close()  # type: ignore[attr-defined]  # as leaving the loop does
    assert threading.active_count() == before


def test_an_error_in_the_thread_that_decodes_is_raised(
    tmp_path: Path, two_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cct.synth_mawi(tmp_path / "long.pcap", 50_000, seed=1)
    decode = reader._Block.decode

    def failing(self: reader._Block, *arguments: Any) -> None:
        if self.seen > 30_000:
            raise RuntimeError("broken")
        decode(self, *arguments)

    monkeypatch.setattr(reader._Block, "decode", failing)
    with pytest.raises(RuntimeError, match="broken"):
        cct.read_capture(path)


def test_columns_of_short_frames_grow_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice would take twice the memory."""
    frame = made.ethernet(0x0800, made.ipv4(6, made.tcp()))
    path = tmp_path / "short.pcap"
    path.write_bytes(made.pcap_header() + 300_000 * made.pcap_record(frame, 0, len(frame)))
    grown, grow = [], reader._Rows.grow
    monkeypatch.setattr(reader._Rows, "grow", lambda self, *room: grown.append(room) or grow(self, *room))
    assert len(cct.read_capture(path)) == 300_000
    assert len(grown) == 1


def test_reading_ahead_reports_what_is_no_capture(tmp_path: Path, two_cores: None) -> None:
    path = tmp_path / "text.pcap"
    path.write_text("this is no capture at all")
    with pytest.raises(CaptureFormatError, match="expected a pcap or pcapng header"):
        list(cct.iter_capture(path, ahead=True))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 50))
def test_parts_are_the_whole(seed: int, packets: int) -> None:
    data = made_file(seed)
    cap, notes = read(io.BytesIO(data))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TruncatedCaptureWarning)
        parts = list(cct.iter_capture(io.BytesIO(data), packets, frame_numbers=True))
    assert [str(w.message) for w in caught] == notes
    assert all(len(part) == packets for part in parts[:-1])
    for name, column in cap.columns.items():
        np.testing.assert_array_equal(column, np.concatenate([part.columns[name] for part in parts]), name)
    sacks = [(row, *edges) for row, *edges in cap.sacks.itertuples(index=False)]
    first = 0
    joined = []
    for part in parts:
        joined += [(row + first, *edges) for row, *edges in part.sacks.itertuples(index=False)]
        first += len(part)
        np.testing.assert_array_equal(part.keys.flow_id, np.unique(part.columns["flow_id"]))
    assert joined == sacks


# ---- pcap ------------------------------------------------------------------------------------------------------------

SEGMENT = made.ethernet(0x0800, made.ipv4(6, made.tcp(seq=7, payload=b"x" * 30)))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    ("nanoseconds", "modified"), [(False, False), (True, False), (False, True)], ids=["us", "ns", "modified"]
)
@pytest.mark.parametrize("version", [(2, 4), (2, 3), (2, 2), (2, 0)], ids=str)
def test_pcap_variants(order: str, nanoseconds: bool, version: tuple[int, int], modified: bool) -> None:
    times = [1_700_000_000_123_456_789, 0, 4_294_967_295_999_999_000]
    data = made.pcap(
        [(ts, SEGMENT[:60], len(SEGMENT)) for ts in times],
        order,
        nanoseconds,
        version,
        modified,
        link_type=1 | 0x14000000,  # the upper bits say how long a frame check sequence is
        snaplen=60,
    )
    cap = read_bytes(data)
    unit = 1 if nanoseconds else 1000
    assert cap.columns["ts_ns"].tolist() == [ts // unit * unit for ts in times]
    assert cap.columns["wire_bytes"].tolist() == [len(SEGMENT)] * 3
    assert cap.columns["seq"].tolist() == [7] * 3
    assert cap.columns["payload_bytes"].tolist() == [30] * 3
    meta = cap.meta
    assert (meta.format, meta.compression, meta.link_types, meta.snaplen) == ("pcap", "none", ["EN10MB"], 60)
    assert (meta.captured_bytes, meta.truncated, meta.notes, meta.dropped) == (180, False, [], None)


def test_version_2_3_may_swap_the_lengths() -> None:
    head = made.pcap_header(version=(2, 3))
    right = made.pcap_record(SEGMENT[:50], 0, len(SEGMENT))
    swapped = struct.pack("<IIII", 0, 1, len(SEGMENT), 50) + SEGMENT[:50]
    cap = read_bytes(head + right + swapped + right)
    assert cap.columns["wire_bytes"].tolist() == [len(SEGMENT)] * 3
    assert cap.meta.captured_bytes == 150


# ---- pcapng ----------------------------------------------------------------------------------------------------------


def one_time(tsresol: int, ticks: int, order: str, offset_s: int | None = None) -> int:
    pairs = [(9, bytes([tsresol]))]
    if offset_s is not None:
        pairs.append((14, struct.pack(f"{order}q", offset_s)))
    data = (
        made.section(order)
        + made.interface(order, 1, 0, *pairs)
        + made.enhanced(order, 0, ticks, SEGMENT, len(SEGMENT))
    )
    return int(read_bytes(data).columns["ts_ns"][0])


@pytest.mark.slow
@pytest.mark.parametrize("ticks", [0, 1, 10**15 + 1, 2**63 - 1, 2**63, 2**64 - 1, 1_700_000_000_123_456_789])
def test_every_resolution_is_exact(ticks: int) -> None:
    """Against fractions; beyond what int64 nanoseconds hold, the time stays at the limit."""
    for tsresol in range(256):
        tick_s = Fraction(1, (2 if tsresol & 0x80 else 10) ** (tsresol & 0x7F))
        signed = ticks - 2**64 if ticks >= 2**63 and tick_s >= Fraction(1, 10**9) else ticks
        exact_ns = signed * tick_s * 10**9 // 1
        found = one_time(tsresol, ticks, "<")
        if -9_223_372_036 * 10**9 <= exact_ns < 9_223_372_036 * 10**9:
            assert found == exact_ns, f"if_tsresol {tsresol}"
        else:
            assert abs(found) >= 9_223_372_035 * 10**9, f"if_tsresol {tsresol}"
            assert (found > 0) == (exact_ns > 0), f"if_tsresol {tsresol}"


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 255), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.sampled_from("<>")
)
@example(0, 2**63 - 1, -(2**63) + 5, "<")
@example(0, 2**63, 2**63 - 1, "<")
@example(6, 1_700_000_000_123_456, -1_600_000_000, ">")
def test_resolution_and_offset(tsresol: int, ticks: int, offset_s: int, order: str) -> None:
    tick_s = Fraction(1, (2 if tsresol & 0x80 else 10) ** (tsresol & 0x7F))
    expected = naive.Interface(1, 0, tick_s, offset_s).ns(ticks)
    assert one_time(tsresol, ticks, order, offset_s) == expected


@pytest.mark.parametrize("size", [len(SEGMENT) // 4 * 4 - 4, len(SEGMENT) // 4 * 4])
def test_a_captured_length_beyond_its_block_is_damage(size: int) -> None:
    """Not even by the four bytes of the block's second length."""
    frame = SEGMENT[:size]
    for make in (made.enhanced, made.obsolete):
        for more, kept in ((0, 2), (1, 1), (4, 1)):
            lying = bytearray(make("<", 0, 0, frame, 84))
            lying[20:24] = struct.pack("<I", size + more)
            good = make("<", 0, 0, frame, 84)
            cap, notes = read(io.BytesIO(made.section() + made.interface() + good + bytes(lying)))
            assert (cap.meta.frames, bool(notes)) == (kept, kept == 1)


def test_defaults_of_an_interface() -> None:
    """Microseconds; an empty or short option says nothing."""
    for pairs in ((), ((9, b""),), ((14, b"\1\0"),)):
        data = made.section() + made.interface("<", 1, 0, *pairs) + made.enhanced("<", 0, 5, SEGMENT, 84)
        assert read_bytes(data).columns["ts_ns"].tolist() == [5000]


def test_sections_and_interfaces_of_their_own() -> None:
    """Interfaces count anew in each section, and each section has its byte order."""
    ip = SEGMENT[14:]
    data = (
        made.section("<")
        + made.interface("<", 1, 96)
        + made.interface("<", 101, 128, (9, b"\x09"))
        + made.enhanced("<", 1, 7, ip, len(ip))
        + made.enhanced("<", 0, 7, SEGMENT, 200, (1, b"a comment"))
        + made.section(">", 1, (4, b"an application"))
        + made.interface(">", 113, 0, (9, b"\x83"))
        + made.obsolete(">", 0, 8, bytes(14) + b"\x08\0" + ip, 100)
    )
    cap = read_bytes(data)
    assert cap.columns["ts_ns"].tolist() == [7, 7000, 10**9]
    assert cap.columns["wire_bytes"].tolist() == [len(ip), 200, 100]
    assert cap.columns["seq"].tolist() == [7] * 3
    assert (cap.meta.format, cap.meta.link_types) == ("pcapng", ["EN10MB", "RAW", "LINUX_SLL"])
    assert cap.meta.snaplen == 0, "one interface has no limit"
    assert len(cap.keys) == 1


def test_simple_packets_take_the_time_of_the_one_before() -> None:
    data = (
        made.section()
        + made.interface("<", 1, 70)
        + made.simple("<", SEGMENT, len(SEGMENT))
        + made.enhanced("<", 0, 5, SEGMENT, len(SEGMENT))
        + made.simple("<", SEGMENT[:70], len(SEGMENT))
    )
    cap = read_bytes(data)
    assert cap.columns["ts_ns"].tolist() == [0, 5000, 5000]
    assert cap.meta.captured_bytes == 70 + len(SEGMENT) + 70, "the snap length, where the block has more"
    assert [note for note in cap.meta.notes if "2 packets without a time" in note]


def test_blocks_without_packets_are_skipped_and_losses_added_up() -> None:
    data = made.section() + made.interface()
    for kind in (4, 9, 10, 0xBAD, 0x40000BAD, 0xFFFFFFFF):
        data += made.block("<", kind, b"anything at all")
    data += made.interface() + made.statistics("<", 0, 5) + made.statistics("<", 1, 2)
    data += made.enhanced("<", 1, 0, SEGMENT, len(SEGMENT)) + made.statistics("<", 0, 9)
    cap = read_bytes(data)
    assert len(cap) == 1
    assert cap.meta.dropped == 11, "9 on one interface, 2 on the other: each block has the total so far"


def test_a_section_of_another_version() -> None:
    good = made.section() + made.interface() + made.enhanced("<", 0, 1, SEGMENT, len(SEGMENT))
    cap, notes = read(io.BytesIO(good + made.section("<", 2) + good))
    assert len(cap) == 1
    assert "version 2" in notes[0]
    with pytest.raises(CaptureFormatError, match="version 2"):
        cct.read_capture(io.BytesIO(made.section("<", 2) + good))


def test_many_interfaces_are_no_hang() -> None:
    """A second for a megabyte of them; it would be minutes if every interface copied the table."""
    data = made.section() + b"".join(made.interface("<", i % 65536) for i in range(50_000))
    data += b"".join(made.statistics("<", i, 1) for i in range(20_000))
    cap = read_bytes(data)
    assert len(cap.meta.link_types) > 40_000
    assert cap.meta.dropped == 20_000


# ---- How bytes arrive ------------------------------------------------------------------------------------------------

COMPRESS = {
    "gz": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: zstandard.ZstdCompressor(1).compress(data),
}


@pytest.fixture(scope="module")
def plain() -> bytes:
    """A few thousand frames, more than a block of the reader."""
    random = Random(3)
    return made.pcap([f[:3] for f in made.random_frames(random, 5000, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("name", ["trace.pcap", "trace.gz", "trace.xz", "trace"])
def test_compression_is_recognised_by_content(
    tmp_path: Path, plain: bytes, compression: str, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(COMPRESS[compression](plain))
    cap, _ = read(path)
    assert cap.meta.compression == compression
    assert_same(cap, read_bytes(plain))


@pytest.mark.parametrize("compression", COMPRESS)
def test_members_behind_each_other_are_one_stream(plain: bytes, compression: str) -> None:
    compress = COMPRESS[compression]
    cuts = [0, 1, 1, 25, 1000, 300_000, len(plain)]
    members = [compress(plain[a:b]) for a, b in itertools.pairwise(cuts)]
    expected = read_bytes(plain)
    assert_same(expected, read_bytes(b"".join(members)))
    assert_same(expected, read_bytes(b"".join(members) + bytes(1000)))  # padding, as from a tape


def test_skippable_zstd_frames(plain: bytes) -> None:
    skippable = struct.pack("<II", 0x184D2A5F, 3) + b"abc"
    data = skippable + COMPRESS["zstd"](plain[:100]) + skippable + COMPRESS["zstd"](plain[100:]) + skippable
    assert_same(read_bytes(plain), read_bytes(data))


def test_file_objects(tmp_path: Path, plain: bytes) -> None:
    path = tmp_path / "trace"
    path.write_bytes(plain)
    zipped = tmp_path / "trace.gz"
    zipped.write_bytes(gzip.compress(plain))
    behind = tmp_path / "behind"
    behind.write_bytes(b"garbage" + plain)
    expected, _ = read(path)
    with open(path, "rb") as file, gzip.open(zipped) as unzipped, open(behind, "rb") as later:
        later.seek(7)
        for source in (file, unzipped, later):
            assert_same(expected, read(source)[0])
            assert not source.closed
    with open(path, encoding="latin-1") as text, pytest.raises(ParameterError, match="text mode"):
        cct.read_capture(text)  # type: ignore[arg-type]


def test_a_pipe_by_name(tmp_path: Path, plain: bytes) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(plain,), daemon=True).start()
    assert_same(read_bytes(plain), read(path)[0])


# ---- No packets, no capture ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [made.pcap([]), made.section(), made.section() + made.interface()],
    ids=["pcap", "section", "interface"],
)
def test_a_capture_without_packets(data: bytes) -> None:
    cap = read_bytes(data)
    assert len(cap) == cap.meta.frames == len(cap.keys) == len(cap.sacks) == len(cap.flows) == 0
    schema.check(cct.read_capture(io.BytesIO(data)).packets, "packets")
    schema.check(cap.flows, "flows")
    schema.check(cap.sacks, "sacks")
    assert "0 packets" in repr(cap)
    assert "no packets" in cap._repr_html_()
    (part,) = cct.iter_capture(io.BytesIO(data), 10)
    assert len(part) == 0


def test_frames_without_ip() -> None:
    arp = made.ethernet(0x0806, bytes(28))
    cap = read_bytes(made.pcap([(0, arp, len(arp))] * 3))
    assert (len(cap), cap.meta.frames, cap.meta.counts["not_ip"]) == (0, 3, 3)
    cap = read_bytes(made.pcap([(0, arp, len(arp))] * 3, link_type=147))
    assert (len(cap), cap.meta.frames, cap.meta.counts["other_link_type"]) == (0, 3, 3)
    assert [note for note in cap.meta.notes if "link type 147" in note]
    parts = list(cct.iter_capture(io.BytesIO(made.pcap([(0, arp, len(arp))] * 5000)), 10))
    assert sum(part.meta.frames for part in parts) == 5000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\n\r\r\n",
        b"not a capture at all, just text",
        bytes(100),
        made.pcap([])[:23],
        made.section()[:27],
        b"\n\r\r\n" + bytes(24),
        b"\n\r\r\n" + struct.pack("<II", 28, 0x1A2B3C4D) + bytes(16),  # the two lengths differ
        made.section("<", 0),
        gzip.compress(b""),
        gzip.compress(b"not a capture"),
        gzip.compress(made.pcap([]))[:12],
        b"\x1f\x8b",
        b"\x1f\x8bnothing that gzip would write",
        b"\xfd7zXZ\x00and so on",
        b"\x28\xb5\x2f\xfd\xff\xff\xff\xff",
        b"\x28\xb5\x2f\xfd",
    ],
    ids=range(18),
)
def test_what_is_no_capture_gives_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    for source, name in ((io.BytesIO(data), "<stream>"), (path, str(path))):
        with pytest.raises(CaptureFormatError) as caught:
            cct.read_capture(source)
        assert str(caught.value).startswith(f"{name}: byte 0: ")
        assert "\n" not in str(caught.value)


def test_what_cannot_be_read_gives_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", "a\0b", ""):
        with pytest.raises(CaptureFormatError, match="cannot be read") as caught:
            cct.read_capture(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"tunnel": "both"},
        {"flow_timeout_s": 0},
        {"flow_timeout_s": -1.0},
        {"flow_timeout_s": float("nan")},
        {"packets": 0},
    ],
)
def test_bad_parameters(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ParameterError, match=name):
        list(cct.iter_capture(io.BytesIO(made.pcap([])), **options))


# ---- Flows -----------------------------------------------------------------------------------------------------------

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
S = 10**9
Packet = tuple[Any, ...]


def one_pair(packets: Iterable[Packet]) -> bytes:
    """Packets (time in ns, "a>b" or "b>a", flags, then seq, ack, payload bytes if not 0) of one pair of ports."""
    ends = {"a": (b"\x0a\0\0\1", 1000), "b": (b"\x0a\0\0\2", 80)}
    records = []
    for ts_ns, way, flags, *numbers in packets:
        (src, sport), (dst, dport) = (ends[end] for end in way.split(">"))
        seq, ack, size = (*numbers, 0, 0, 0)[:3]
        segment = made.tcp(sport, dport, seq % 2**32, ack % 2**32, flags, payload=bytes(size))
        data = made.ethernet(0x0800, made.ipv4(6, segment, src, dst))
        records.append((ts_ns, data, len(data)))
    return made.pcap(records, nanoseconds=True)


def flows_of(*packets: Packet, timeout_s: float | None = 600.0) -> list[tuple[int, int]]:
    """Flow and direction of packets as :func:`one_pair` takes them."""
    data = one_pair(packets)
    cap = read_bytes(data, flow_timeout_s=timeout_s)
    assert_as_naive(data, timeout_s=timeout_s)
    return list(zip(cap.columns["flow_id"].tolist(), cap.columns["direction"].tolist(), strict=True))


def test_both_directions_are_one_flow() -> None:
    assert flows_of((0, "a>b", ACK), (1, "b>a", ACK), (2, "a>b", ACK)) == [(0, 0), (0, 1), (0, 0)]


def test_the_sender_of_the_first_packet_is_the_initiator() -> None:
    assert flows_of((0, "b>a", PSH | ACK), (1, "a>b", ACK)) == [(0, 0), (0, 1)]


def test_the_receiver_of_a_syn_ack_is_the_initiator() -> None:
    assert flows_of((0, "b>a", SYN | ACK), (1, "a>b", ACK)) == [(0, 1), (0, 0)]


def test_silence_beyond_the_timeout_ends_a_flow() -> None:
    packets = [(0, "a>b", ACK), (10 * S, "b>a", ACK), (20 * S + 1, "b>a", ACK)]
    assert [flow for flow, _ in flows_of(*packets, timeout_s=10.0)] == [0, 0, 1]
    for never in (None, float("inf"), 1e30):
        assert [flow for flow, _ in flows_of(*packets, timeout_s=never)] == [0, 0, 0]


def test_a_new_flow_has_its_own_initiator() -> None:
    assert flows_of((0, "a>b", ACK), (700 * S, "b>a", ACK)) == [(0, 0), (1, 0)]


def test_time_that_goes_back_ends_nothing() -> None:
    packets = [(5000 * S, "a>b", ACK), (0, "a>b", ACK), (5001 * S, "a>b", ACK)]
    assert [flow for flow, _ in flows_of(*packets)] == [0, 0, 0]


def test_a_syn_after_a_fin_starts_a_flow() -> None:
    packets = [(0, "a>b", SYN, 7), (1, "a>b", FIN | ACK, 8), (2, "b>a", ACK), (3, "a>b", SYN, 7)]
    assert flows_of(*packets) == [(0, 0), (0, 0), (0, 1), (1, 0)]


def test_a_syn_with_the_same_number_is_a_retransmission() -> None:
    assert flows_of((0, "a>b", SYN, 7), (1, "a>b", SYN, 7)) == [(0, 0), (0, 0)]
    assert flows_of((0, "a>b", SYN, 7), (1, "b>a", RST | ACK), (2, "a>b", SYN, 7)) == [(0, 0), (0, 1), (0, 0)]


def test_a_syn_with_another_number_starts_a_flow() -> None:
    assert flows_of((0, "a>b", SYN, 7), (1, "a>b", SYN, 8)) == [(0, 0), (1, 0)]
    assert flows_of((0, "a>b", SYN, 7), (1, "b>a", RST | ACK), (2, "a>b", SYN, 8)) == [(0, 0), (0, 1), (1, 0)]


def test_a_syn_in_the_middle_starts_a_flow() -> None:
    assert flows_of((0, "b>a", ACK), (1, "a>b", SYN, 7)) == [(0, 0), (1, 0)]


def test_a_syn_behind_its_syn_ack_starts_none() -> None:
    syn_ack = (0, "b>a", SYN | ACK, 90, 8)
    assert flows_of(syn_ack, (1, "a>b", SYN, 7), (2, "a>b", ACK)) == [(0, 1), (0, 0), (0, 0)]
    assert flows_of(syn_ack, (1, "a>b", SYN, 9), (2, "a>b", ACK)) == [(0, 1), (1, 0), (1, 0)]
    with_data = (1, "a>b", SYN, 2, 0, 5)  # RFC 7413
    assert flows_of(syn_ack, with_data, (2, "a>b", ACK)) == [(0, 1), (0, 0), (0, 0)]


def test_a_simultaneous_open_is_one_flow() -> None:
    packets = [(0, "a>b", SYN, 7), (1, "b>a", SYN, 9), (2, "a>b", SYN | ACK, 7), (3, "b>a", SYN | ACK, 9)]
    assert flows_of(*packets) == [(0, 0), (0, 1), (0, 0), (0, 1)]


def test_a_syn_from_the_other_side_after_a_reset_starts_a_flow() -> None:
    assert flows_of((0, "a>b", SYN, 7), (1, "b>a", RST | ACK), (2, "b>a", SYN, 9)) == [(0, 0), (0, 1), (1, 0)]


def one_way(*packets: tuple[int, ...]) -> list[int]:
    """Flows of packets (flags, seq, ack) of the responder."""
    return [flow for flow, _ in flows_of(*((i, "b>a", *packet) for i, packet in enumerate(packets)))]


@pytest.mark.parametrize("end", [(FIN | ACK, 91, 8), (RST, 91), (PSH | ACK, 91, 8)])
def test_a_syn_ack_that_answers_another_syn_starts_a_flow(end: tuple[int, ...]) -> None:
    """Where the SYNs were not captured."""
    packets = [(SYN | ACK, 90, 8), (ACK, 91, 8), end, (SYN | ACK, 500, 71), (ACK, 501, 71)]
    assert one_way(*packets) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("seq", [90, 500])
def test_a_syn_ack_that_answers_the_same_syn_is_a_retransmission(seq: int) -> None:
    """Even with another number of its own, as when two servers behind one address answer, or after the end."""
    again = (SYN | ACK, seq, 8)
    assert one_way((SYN | ACK, 90, 8), again, (FIN | ACK, 91, 8), again) == [0] * 4


def test_a_syn_ack_that_is_captured_late_starts_none() -> None:
    assert one_way((ACK, 91, 8), (SYN | ACK, 90, 8), (ACK, 101, 8)) == [0, 0, 0]


def test_a_syn_ack_after_the_end_of_a_flow_picked_up_in_the_middle_starts_one() -> None:
    assert one_way((ACK, 91, 8), (FIN | ACK, 101, 8), (SYN | ACK, 90, 71), (ACK, 91, 71)) == [0, 0, 1, 1]
    # the initiator of the first is not known, so its direction is not either
    packets = [(ACK, 91, 8), (SYN | ACK, 90, 71), (ACK, 91, 71), (SYN | ACK, 300, 500)]
    assert one_way(*packets) == [0, 0, 0, 1]


def test_a_syn_ack_that_does_not_answer_the_syn_of_a_flow() -> None:
    """It may be late, for a SYN of before; after a FIN it is for a SYN that was not captured, or captured after it."""
    packets = [(0, "a>b", SYN, 7), (1, "b>a", SYN | ACK, 90, 8)]
    other = (3, "b>a", SYN | ACK, 90, 700_001)
    assert flows_of(*packets, other) == [(0, 0), (0, 1), (0, 1)]
    packets.append((2, "b>a", FIN | ACK, 91, 8))
    assert flows_of(*packets, other, (4, "b>a", ACK, 91, 700_001))[3:] == [(1, 1), (1, 1)]
    assert flows_of(*packets, other, (4, "a>b", SYN, 700_000))[3:] == [(1, 1), (1, 0)]
    with_data = (3, "b>a", SYN | ACK, 90, 1008)  # acknowledges data in the SYN (RFC 7413)
    assert flows_of(*packets, with_data)[3:] == [(0, 1)]


def test_a_simultaneous_open_is_one_flow_without_its_syns() -> None:
    for packets in itertools.permutations([("a>b", SYN | ACK, 7, 10), ("b>a", SYN | ACK, 9, 8)]):
        for end in [ACK, FIN | ACK]:
            sent = [(0, *packets[0]), (1, "a>b", end, 8, 10), (2, *packets[1])]
            assert [flow for flow, _ in flows_of(*sent)] == [0, 0, 0]


NEAR = st.sampled_from([0, 1, 2, 3, 2**16, 2**31, 2**32 - 2, 2**32 - 1])


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.just(0),
            st.sampled_from(["a>b", "b>a"]),
            st.sampled_from([SYN, SYN | ACK, SYN | ACK, ACK, FIN | ACK, SYN | FIN, RST, RST | SYN | ACK]),
            NEAR,
            NEAR,
            st.sampled_from([0, 0, 1, 3]),
        ),
        max_size=12,
    )
)
def test_flows_of_one_pair_of_ports_are_those_of_the_naive_twin(packets: list[Packet]) -> None:
    flows_of(*packets)


def connections(random: Random, n: int) -> list[Packet]:
    """Consecutive connections of one pair of ports: with retransmissions, open at once, ended in any way or not."""
    packets: list[tuple[Any, ...]] = []
    for _ in range(n):
        isn, other = random.randrange(2**32), random.randrange(2**32)
        syn = ("a>b", SYN, isn)
        syn_ack = ("b>a", SYN | ACK, other, isn + 1)
        start = random.choice([[syn, syn_ack], [syn, syn, syn_ack], [syn, syn_ack, syn, syn_ack]])
        if random.random() < 0.2:
            start = [syn, ("b>a", SYN, other), ("a>b", SYN | ACK, isn, other + 1), syn_ack]
        data = [("b>a", PSH | ACK, other + 1, isn + 1, 10)] * random.randrange(3)
        fins = [("a>b", FIN | ACK, isn + 1, other + 1), ("b>a", FIN | ACK, other + 11, isn + 1)]
        end = random.choice([[], fins, fins[::-1], fins[:1], [("b>a", RST | ACK, other + 1, isn + 1)]])
        packets += [*start, ("a>b", ACK, isn + 1, other + 1), *data, *end]
    return [(i, *packet) for i, packet in enumerate(packets)]


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS, st.integers(1, 5), st.sampled_from(["a>b", "b>a"]))
def test_one_direction_has_the_flows_of_both(seed: int, n: int, way: str) -> None:
    packets = connections(Random(seed), n)
    both = [flow for flow, _ in flows_of(*packets)]
    assert max(both) == n - 1
    seen = [flow for flow, packet in zip(both, packets, strict=True) if packet[1] == way]
    assert [flow for flow, _ in flows_of(*(p for p in packets if p[1] == way))] == seen


@pytest.mark.tshark
@pytest.mark.skipif(not tshark.have_tshark(), reason="tshark is not on PATH")
def test_one_direction_has_the_streams_that_tshark_sees_in_both(tmp_path: Path) -> None:
    packets = connections(Random(1), 40)
    path = tmp_path / "both.pcap"
    path.write_bytes(one_pair(packets))
    streams = list(map(int, tshark.run_tshark(path, ["tcp.stream"]).columns["tcp.stream"]))
    assert [flow for flow, _ in flows_of(*packets)] == streams
    for way in ("a>b", "b>a"):
        seen = [stream for stream, packet in zip(streams, packets, strict=True) if packet[1] == way]
        assert [flow for flow, _ in flows_of(*(p for p in packets if p[1] == way))] == seen


def test_later_fragments_are_flows_of_their_own() -> None:
    first = made.ethernet(0x0800, made.ipv4(17, made.udp(1, 2, b"x" * 64), fragment=0x2000))
    later = made.ethernet(0x0800, made.ipv4(17, bytes(64), fragment=9))
    cap = read_bytes(made.pcap([(0, frame, len(frame)) for frame in (first, later, later)]))
    assert cap.columns["flow_id"].tolist() == [0, 1, 1]
    assert (cap.keys.sport.tolist(), cap.keys.dport.tolist()) == ([1, 0], [2, 0])


def test_what_distinguishes_flows() -> None:
    """Address, port, protocol and IP version, each alone; IPv4 and IPv6 addresses of the same bits do not meet."""
    zeros = made.ipv6(17, made.udp(1, 2), src=bytes(12) + b"\x0a\0\0\1", dst=bytes(12) + b"\x0a\0\0\2")
    packets = [
        made.ipv4(17, made.udp(1, 2)),
        made.ipv4(17, made.udp(1, 3)),
        made.ipv4(17, made.udp(2, 2)),
        made.ipv4(136, made.udp(1, 2)),
        made.ipv4(17, made.udp(1, 2), src=b"\x0a\0\0\3"),
        made.ipv4(17, made.udp(1, 2), dst=b"\x0a\0\0\3"),
        made.ipv4(
            17, made.udp(2, 1)
        ),  # the ends are not those of the first: the ports are swapped, the addresses not
        zeros,
    ]
    cap = read_bytes(made.pcap([(0, packet, len(packet)) for packet in packets * 2], link_type=101))
    assert cap.columns["flow_id"].tolist() == list(range(8)) * 2
    assert (cap.columns["direction"] == 0).all()


def test_what_a_syn_announces_is_kept_by_direction() -> None:
    syn = made.tcp(5, 6, flags=SYN, tcp_options=b"\2\4\x05\xb4\3\3\7\4\2")
    syn_ack = made.tcp(6, 5, flags=SYN | ACK, tcp_options=b"\2\4\x02\x18")
    later = made.tcp(5, 6, flags=ACK, tcp_options=b"\2\4\0\1")
    a, b = b"\x0a\0\0\1", b"\x0a\0\0\2"
    packets = [made.ipv4(6, syn, a, b), made.ipv4(6, syn_ack, b, a), made.ipv4(6, later, a, b)]
    keys = read_bytes(made.pcap([(0, p, len(p)) for p in packets], link_type=228)).keys
    assert keys.saw_syn.tolist() == [True]
    assert keys.mss.tolist() == [[1460, 536]]
    assert keys.window_scale.tolist() == [[7, 255]]
    assert keys.sack_permitted.tolist() == [[True, False]]


def many_flows(random: Random, n: int) -> bytes:
    """Half the segments of thirty pairs of ports, half of ever new ones; time goes back a little now and then.

    A third is IPv6, with a few pairs of addresses.
    """
    records = []
    now = 0
    for _ in range(n):
        now += random.choice([0, S // 10, S, 20 * S])
        flags = random.choice([SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST])
        port = random.choice([random.randrange(30), random.randrange(30, 65536)])
        segment = made.tcp(port, 80, random.randrange(2), random.randrange(2), flags)
        if random.randrange(3):
            data = made.ipv4(6, segment)
        else:
            low, high = bytes(15) + bytes([random.randrange(1, 3)]), random.randbytes(1) + bytes(15)
            src, dst = random.sample([low, high], 2)
            data = made.ipv6(6, segment, src, dst)
        records.append((max(now - random.choice([0, 0, S, 3 * S]), 0), data, len(data)))
    for i in (n // 4, n // 2):  # a clock gone wrong
        records[i] = (4_000_000_000 * S, *records[i][1:])
    return made.pcap(records, link_type=228)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(20, 700))
def test_retiring_flows_does_not_change_their_numbers(seed: int, packets: int) -> None:
    data = many_flows(Random(seed), 2000)
    whole = read_bytes(data, flow_timeout_s=60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_ids, "_RETIRE_RECORDS", 50)
        patch.setattr(flow_ids, "_PARTS", 3)  # numbers of parts come again
        table_sizes = []
        next_part = flow_ids.FlowIds.next_part

        def noting(self: flow_ids.FlowIds) -> None:
            before = int(self._state[0])
            next_part(self)
            table_sizes.append((before, int(self._state[0])))

        patch.setattr(flow_ids.FlowIds, "next_part", noting)
        parts = list(cct.iter_capture(io.BytesIO(data), packets, flow_timeout_s=60.0))
    for name in ("flow_id", "direction"):
        joined = np.concatenate([part.columns[name] for part in parts])
        np.testing.assert_array_equal(whole.columns[name], joined, err_msg=name)
    assert set(whole.keys.ip_version) == {4, 6}
    for part in parts:  # its keys are of the flows in it, and of no others
        seen = np.unique(part.columns["flow_id"])
        np.testing.assert_array_equal(part.keys.flow_id, seen)
        for name in ("ip_version", "protocol", "sport", "dport", "src", "dst"):
            np.testing.assert_array_equal(
                getattr(part.keys, name), getattr(whole.keys, name)[seen], err_msg=name
            )
    assert any(after < before for before, after in table_sizes), "nothing was retired: the test shows nothing"


def test_a_packet_with_a_wrong_time_does_not_move_a_selection() -> None:
    cap = read_bytes(
        made.pcap([(n * S, made.ipv4(17, bytes(8)), 28) for n in range(1000, 1100)], link_type=228)
    )
    ts_ns = cap.columns["ts_ns"].copy()
    ts_ns[20] = 0
    wrong = Capture(cap.columns | {"ts_ns": ts_ns}, cap.keys, cap.meta)
    assert len(cap.select(start_s=10, stop_s=60)) == 50
    assert len(wrong.select(start_s=10, stop_s=60)) == 49
    for size in (7, 30):
        parts = [wrong.rows(np.arange(100) // size == n) for n in range(100 // size + 1)]
        assert sum(map(len, selected(parts, cct.Selection(start_s=10, stop_s=60)))) == 49


# ---- Selecting -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def selectable() -> Capture:
    random = Random(5)
    return read_bytes(made.pcap([f[:3] for f in made.random_frames(random, 2000, 101)], link_type=101))


def rows_where(cap: Capture, keep: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[keep] for name, column in cap.columns.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "selection",
    [
        {"flow_id": 3},
        {"flow_id": [3, 5, 3]},
        {"host": "10.0.0.1"},
        {"host": "10.0.0.0/31"},
        {"host": "2001::1"},
        {"port": 1},
        {"protocol": "tcp"},
        {"protocol": 17},
        {"start_s": 5.0},
        {"stop_s": 5.0},
        {"start_s": 1.0, "stop_s": 1e5, "protocol": "udp", "port": 53},
        {},
    ],
    ids=str,
)
def test_select(selectable: Capture, selection: dict[str, Any]) -> None:
    import ipaddress

    cap, keys = selectable, selectable.keys
    of = {flow_id: i for i, flow_id in enumerate(keys.flow_id.tolist())}
    src, dst = keys.src_text(), keys.dst_text()
    keep = []
    protocol = {"tcp": 6, "udp": 17}.get(selection.get("protocol", ""), 17)
    for flow_id, ts_ns in zip(cap.columns["flow_id"].tolist(), cap.columns["ts_ns"].tolist(), strict=True):
        i = of[flow_id]
        network = ipaddress.ip_network(selection.get("host", "::/0"))
        ends = {ipaddress.ip_address(src[i]), ipaddress.ip_address(dst[i])}
        at_s = Fraction(ts_ns - int(cap.columns["ts_ns"][0]), S)
        keep.append(
            ("flow_id" not in selection or flow_id in np.atleast_1d(selection["flow_id"]))
            and ("host" not in selection or any(end in network for end in ends))
            and ("port" not in selection or selection["port"] in (keys.sport[i], keys.dport[i]))
            and ("protocol" not in selection or keys.protocol[i] == protocol)
            and selection.get("start_s", -1) <= at_s < selection.get("stop_s", 1e12)
        )
    mask = np.array(keep)
    assert mask.any(), "a selection of nothing shows nothing"
    part = cap.select(**selection)
    for name, column in rows_where(cap, mask).items():
        np.testing.assert_array_equal(part.columns[name], column, err_msg=name)
    np.testing.assert_array_equal(part.keys.flow_id, np.unique(part.columns["flow_id"]))
    rows = np.flatnonzero(mask)
    selected = part.sacks.assign(packet=rows[part.sacks.packet.to_numpy()])
    expected = cap.sacks[np.isin(cap.sacks.packet, rows)].reset_index(drop=True)
    pd.testing.assert_frame_equal(selected, expected, check_dtype=False)
    # what is left can be selected from again
    assert len(part.select(**selection)) <= len(part)


@pytest.mark.parametrize(
    "selection",
    [
        {"flow_id": 10**6},
        {"host": "nowhere"},
        {"host": "10.0.0.1/99"},
        {"port": 70000},
        {"protocol": "tpc"},
        {"protocol": 300},
        {"start_s": 2.0, "stop_s": 1.0},
        {"stop_s": math.inf},
        {"start_s": math.nan},
    ],
    ids=str,
)
def test_what_cannot_be_selected(selectable: Capture, selection: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=f"{list(selection)[-1]}: "):
        selectable.select(**selection)


# ---- Damage ----------------------------------------------------------------------------------------------------------


def survives(data: bytes, at_least: int = 0) -> Capture | None:
    """Read damaged bytes: an error of one line, or what could be read, with a warning where it was not all."""
    try:
        cap, notes = read(io.BytesIO(data), tunnel="inner")
    except CaptureFormatError as err:
        assert "\n" not in str(err)
        assert not at_least
        return None
    assert all("\n" not in text for text in notes)
    assert cap.meta.frames >= at_least
    repr(cap)
    cap._repr_html_()
    return cap


def record_ends(data: bytes) -> list[int]:
    """Where each frame of a file of few frames ends, by how many are read from what is cut there."""
    frames = naive.read_file(data).frames
    ends: list[int] = []
    for end in range(len(data) + 1):
        try:
            n = len(naive.read_file(data[:end]).frames)
        except naive.NotACapture:
            continue
        if n > len(ends):
            ends.append(end)
    assert len(ends) == len(frames)
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_cut_anywhere(seed: int) -> None:
    data = made_file(seed, 6)
    ends = record_ends(data)
    whole = naive.read_file(data)
    for end in range(len(data)):
        n = sum(e <= end for e in ends)
        cap = survives(data[:end], n)
        if cap is not None:
            assert cap.meta.frames == n, f"cut at {end}"
            assert cap.meta.captured_bytes == sum(len(frame.data) for frame in whole.frames[:n])
            assert cap.meta.truncated == naive.read_file(data[:end]).damaged


@settings(max_examples=examples(150), deadline=None)
@given(SEEDS, st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 255)), min_size=1, max_size=5))
def test_flip_any_bytes(seed: int, flips: list[tuple[int, int]]) -> None:
    """Still as the naive twin reads it: what is before the damage is there, and what is behind it is not made up."""
    data = bytearray(made_file(seed, 12))
    for at, mask in flips:
        data[at % len(data)] ^= mask
    try:
        naive.read_file(bytes(data))
    except naive.NotACapture:
        assert survives(bytes(data)) is None
    else:
        assert_as_naive(bytes(data), "inner")


LIES = [0, 13, 0x40001, 0xFFFFFFFF]
MORE_LIES = [1, 3, 11, 12, 0x7FFF, 0xFFFF, 0x40000, 0x7FFFFFFF]


@pytest.mark.slow
@pytest.mark.parametrize("value", mostly_slow([*LIES, *MORE_LIES], LIES))
@pytest.mark.parametrize("seed", mostly_slow(range(4), [0]))
def test_a_lie_in_every_word(seed: int, value: int) -> None:
    """Every 32-bit word of a small file replaced; lengths, counts and offsets are among them."""
    data = made_file(seed, 5)
    for at in range(0, min(len(data), 600) - 4, 4):
        for order in ("little", "big"):
            lying = data[:at] + value.to_bytes(4, order) + data[at + 4 :]
            try:
                naive.read_file(lying)
            except naive.NotACapture:
                assert survives(lying) is None
            else:
                assert_as_naive(lying)


def test_bad_lengths_end_the_file_with_a_warning(plain: bytes) -> None:
    lying = plain + struct.pack("<IIII", 0, 0, 262_145, 60) + bytes(100)
    cap, notes = read(io.BytesIO(lying))
    assert cap.meta.frames == 5000
    assert f"byte {len(plain)}" in notes[0]
    assert "262144" in notes[0]
    assert "5,000 complete frames before that are kept" in notes[0]
    assert cap.meta.notes


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESS)
def test_cut_compressed_streams(plain: bytes, compression: str) -> None:
    """A prefix of the frames; nearly all of those whose bytes were there."""
    expected = read_bytes(plain, tunnel="inner")
    packed = COMPRESS[compression](plain)
    fractions = []
    for end in [*range(0, 40), *range(40, len(packed), len(packed) // 25), len(packed) - 1]:
        cap = survives(packed[:end])
        if cap is None:
            continue
        n = len(cap)
        fractions.append((cap.meta.frames / 5000, end / len(packed)))
        assert cap.meta.truncated or cap.meta.frames == 5000
        for name, column in cap.columns.items():
            np.testing.assert_array_equal(column, expected.columns[name][:n])
    assert len(fractions) > 10
    slack = 0.1 if compression == "gz" else 0.5  # xz and zstd work block by block
    assert all(frames > there - slack for frames, there in fractions)


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESS)
def test_flips_in_compressed_streams(plain: bytes, compression: str) -> None:
    packed = COMPRESS[compression](plain)
    random = Random(1)
    kept = 0
    for at in [
        *range(30),
        *(random.randrange(len(packed)) for _ in range(60)),
        *range(len(packed) - 20, len(packed)),
    ]:
        flipped = bytearray(packed)
        flipped[at] ^= 1 << random.randrange(8)
        cap = survives(bytes(flipped))
        if cap is not None and cap.meta.truncated:
            kept += cap.meta.frames
    assert kept > 0, "nothing was kept of any damaged stream"


def test_a_wrong_checksum_keeps_nearly_everything(plain: bytes) -> None:
    packed = bytearray(gzip.compress(plain))
    packed[-5] ^= 1
    cap, notes = read(io.BytesIO(bytes(packed)))
    assert cap.meta.frames > 0.85 * 5000
    assert "checksum" in notes[0]


@pytest.mark.parametrize("garbage", [b"x", b"garbage", b"\0\0garbage", bytes(range(100, 200)) * 10_000])
@pytest.mark.parametrize("compression", ["gz", "xz", "zstd"])
def test_garbage_behind_a_member(plain: bytes, compression: str, garbage: bytes) -> None:
    cap, notes = read(io.BytesIO(COMPRESS[compression](plain) + garbage))
    assert cap.meta.frames == 5000
    assert f"trailing garbage behind the {compression} data is ignored" in notes[0]


def test_a_member_that_is_cut_is_no_garbage(plain: bytes) -> None:
    packed = gzip.compress(plain)
    for n in (1, 2, 9):
        cap, notes = read(io.BytesIO(packed + packed[:n]))
        assert cap.meta.frames >= 5000 and "ends before its end marker" in notes[0]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_warning_names_the_line_that_reads(plain: bytes, tmp_path: Path, ahead: bool) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(plain[:-7])
    with pytest.warns(TruncatedCaptureWarning) as warned:
        for _ in cct.iter_capture(path, 1000, ahead=ahead):
            pass
        cct.read_capture(path)
    assert [w.filename for w in warned] == [__file__] * 2


# ---- Bounds ----------------------------------------------------------------------------------------------------------


def run_script(name: str, *args: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TESTS / name), *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_the_guard_catches_a_read_past_the_end() -> None:
    assert run_script("guarded.py", "control").returncode == -11


@pytest.mark.parametrize(
    ("seed", "frames", "files"), [(0, 100, 40), pytest.param(1, 1000, 400, marks=pytest.mark.slow)]
)
def test_nothing_is_read_outside_the_bytes(seed: int, frames: int, files: int) -> None:
    """Frames and files at the very end (and start) of memory whose neighbouring pages cannot be read."""
    done = run_script("guarded.py", "frames", str(seed), str(frames))
    assert done.returncode == 0, done.stderr[-2000:]
    done = run_script("guarded.py", "files", str(seed), str(files))
    assert done.returncode == 0, done.stderr[-2000:]


def test_extreme_times() -> None:
    """As far apart as int64 nanoseconds go: nothing overflows on the way to a table or a text."""
    data = made.section() + made.interface("<", 1, 0, (9, b"\0"))
    for ticks in (0, 1, 2**63 - 1, 2**63, 2**64 - 1, 9_223_372_035, 2**32):
        data += made.enhanced("<", 0, ticks, SEGMENT, len(SEGMENT))
    cap = read_bytes(data)
    limit = 9_223_372_035 * S
    assert cap.columns["ts_ns"].tolist() == [0, S, limit, -limit - S, -S, limit, 2**32 * S]
    assert (cap.meta.first_ts_ns, cap.meta.last_ts_ns) == (-limit - S, limit)
    assert cap.duration_s == pytest.approx(1.8446744e10)
    assert len(cap.flows) == len(cap.keys)
    repr(cap)
    assert "1677-09-21" in cap._repr_html_()
    assert len(cap.select(start_s=0.5)) == 4  # since the first in the file, not since the earliest
    assert len(cap.select(start_s=-(2.0**33))) == 6
    assert len(cap.select(start_s=2.0**33)) == 2
    assert_as_naive(data)


def memory_mb(path: Path, packets: int, timeout_s: float) -> float:
    """Peak memory of going through a file in parts, above that of a process that has read a small one."""
    code = """if True:
        import sys, cctoolkit as cct
        def peak():  # KiB; not ru_maxrss: that starts at the size of the process that started this one
            return next(int(row.split()[1]) for row in open("/proc/self/status") if row.startswith("VmHWM"))
        for part in cct.iter_capture(sys.argv[1], 1000):
            break
        before = peak()
        n = flows = 0
        for part in cct.iter_capture(sys.argv[1], int(sys.argv[2]), flow_timeout_s=float(sys.argv[3])):
            n += len(part)
            flows = max(flows, int(part.keys.flow_id.max()) + 1)
        print(n, flows, peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(packets), str(timeout_s)],
        capture_output=True,
        text=True,
        check=True,
    )
    n, flows, kilobytes = map(int, done.stdout.split())
    assert n == flows, "every packet is a flow"
    return kilobytes / 1024


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_memory_is_bounded_by_the_part_and_the_flows_alive(tmp_path: Path, packed: bool) -> None:
    """Two and eight million packets, each a flow of its own, take the same; all at once would be 600 MB."""
    frame = made.ethernet(0x0800, made.ipv4(6, made.tcp()))
    record = np.frombuffer(made.pcap_record(frame, 0, len(frame)), np.uint8)
    peaks = []
    for millions in (2, 8):
        path = tmp_path / f"{millions}.pcap"
        with gzip.open(path, "wb", 1) if packed else open(path, "wb") as file:
            file.write(made.pcap_header())
            for million in range(millions):
                rows = np.tile(record, (10**6, 1))
                number = np.arange(million * 10**6, (million + 1) * 10**6, dtype="<u4")
                rows[:, 0:4] = (
                    (number // 1000).view(np.uint8).reshape(-1, 4)
                )  # seconds: a thousand packets each
                rows[:, 16 + 26 : 16 + 30] = (
                    number.astype(">u4").view(np.uint8).reshape(-1, 4)
                )  # source address
                file.write(rows.tobytes())
        peaks.append(memory_mb(path, 100_000, 100.0))
        path.unlink()
    assert peaks[1] < peaks[0] + 60, peaks
    assert peaks[1] < 400, peaks


@pytest.mark.parametrize("packets", mostly_slow([1, 3, 50, 10**6], {50, 10**6}))
@pytest.mark.parametrize("every", [1, 2])
def test_collected_keys_are_those_of_one_reading(packets: int, every: int, tmp_path: Path) -> None:
    """Of IPv4 and IPv6, part by part, also where flows are missing."""
    path = tmp_path / "some.pcap"
    cct.filter_capture(example_path("mixed", "ingress"), path, cct.Selection(stop_s=3))
    whole, collected = cct.read_capture(path).keys, AllKeys()
    assert set(whole.ip_version) == {4, 6}
    for part in cct.iter_capture(path, packets):
        collected.add(part.keys.take(part.keys.flow_id % every == 0))
    found, wanted = collected.all(), whole.take(whole.flow_id % every == 0)
    for field in fields(wanted):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(wanted, field.name), field.name)
