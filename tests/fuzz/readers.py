"""What each reader of files must do with any bytes: return what it documents, or say in one line what is wrong."""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import io
import json
import lzma
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import made_captures as made
import naive_capture as naive
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from as_naive import assert_as_naive

import cctoolkit as cct
from cctoolkit import identify, schema
from cctoolkit.errors import CaptureFormatError, CCToolkitError
from cctoolkit.identify.readers import label_flows, read_iperf3, read_labels, read_tshark_fields
from cctoolkit.scenario import read_sweep

TRACES = Path(__file__).parents[2] / "traces"


@dataclass(frozen=True)
class Reader:
    """A reader, and what a fuzzer needs to know of it.

    Attributes
    ----------
    check : function of bytes
        Reads them; raises what no reader may raise.
    seeds : function
        Inputs to begin with.
    guides : tuple of str
        Modules whose Python code is watched for coverage. Machine code cannot be, so what a capture makes of the
        kernels is seen in their naive twin, which is held against them.
    words : tuple of str
        What such files are made of.
    largest : int
        Bytes of a case.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    guides: tuple[str, ...]
    words: tuple[str, ...] = ()
    largest: int = 4096


def one_line(error: Exception) -> None:
    """Errors are one line, fit for a terminal."""
    text = str(error)
    assert text and len(text.splitlines()) == 1, f"{type(error).__name__} is not one line: {text!r}"


def _reading(read: Callable[[], Any]) -> Any:
    """The result, or None after an error that is documented."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            return read()
        except CCToolkitError as error:
            one_line(error)
            return None


@functools.cache
def _scratch() -> Path:
    memory = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(prefix="cct-fuzz-", dir=memory if memory.is_dir() else None)
    _kept.append(folder)  # until the process ends
    return Path(folder.name)


_kept: list[Any] = []


def _from_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    def check(data: bytes) -> Any:
        path = _scratch() / name
        path.write_bytes(data)
        return _reading(lambda: read(path))

    return check


# ---- captures --------------------------------------------------------------------------------------------------------


def _check_tables(capture: cct.Capture) -> None:
    """What is computed of any capture, whatever is in it."""
    schema.check(capture.packets, "packets")
    schema.check(capture.sacks, "sacks")
    schema.check(capture.flows, "flows")
    schema.check(cct.rtt_samples(capture), "rtt_samples")
    assert len(capture.flows) == len(capture.keys)
    assert (capture.columns["flow_id"].size == 0) == (len(capture.keys) == 0)
    repr(capture)
    capture._repr_html_()


def _check_capture(data: bytes) -> None:
    capture = _reading(lambda: cct.read_capture(io.BytesIO(data)))
    if capture is not None:
        _check_tables(capture)
    plain = data[:4] not in (b"\xfd7zX", b"\x28\xb5\x2f\xfd") and data[:2] != b"\x1f\x8b"
    if plain and not b"\x50\x2a\x4d\x18" <= data[:4] <= b"\x5f\x2a\x4d\x18":
        for tunnel in ("outer", "inner"):
            try:
                assert_as_naive(data, tunnel)
            except (CaptureFormatError, naive.NotACapture):
                assert capture is None or not len(capture)


def _check_compressed(data: bytes) -> None:
    capture = _reading(lambda: cct.read_capture(io.BytesIO(data)))
    if capture is not None:
        _check_tables(capture)


def _pcaps() -> Iterable[bytes]:
    for link_type in made.LINK_TYPES:
        random = Random(link_type)
        yield made.random_pcap(random, [f[:3] for f in made.random_frames(random, 8, link_type)], link_type)


def _pcapngs() -> Iterable[bytes]:
    for seed in range(12):
        random = Random(seed)
        yield made.random_pcapng(random, made.random_frames(random, 6))


def _compressed() -> Iterable[bytes]:
    data = made.pcap([f[:3] for f in made.random_frames(Random(5), 12, 1)])
    zstd = zstandard.ZstdCompressor(3, write_checksum=True).compress(data)
    yield from (gzip.compress(data), lzma.compress(data), zstd, bz2.compress(data))
    yield gzip.compress(data[:200]) + gzip.compress(data[200:])
    yield struct.pack("<II", 0x184D2A50, 4) + b"skip" + zstd


# ---- text ------------------------------------------------------------------------------------------------------------


def _check_export(data: bytes) -> None:
    capture = _from_file("export.tsv", read_tshark_fields)(data)
    if capture is not None:
        _check_tables(capture)


def _exports() -> Iterable[bytes]:
    head = ["frame.time_epoch", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport", "tcp.seq", "tcp.ack", "tcp.len",
            "tcp.flags"]  # fmt: skip
    row = ["1.5", "10.0.0.1", "10.0.0.2", "1000", "80", "1", "1", "100", "0x018"]
    for separator in "\t,;|":
        yield "\n".join(map(separator.join, [head, row, row, row, ""])).encode()
    yield b'"frame.time","ipv6.src","ipv6.dst","ip.proto","udp.srcport","udp.dstport","udp.length"\n' \
          b'"Nov 14, 2023 22:13:20.123456789 UTC","::1","::2","17","53","53","30"\n'  # fmt: skip
    names = "frame.time_relative,ip.src,ip.dst,tcp.srcport,tcp.dstport,tcp.seq,tcp.ack,ip.len,ip.hdr_len,tcp.hdr_len"
    stamps = "tcp.options.timestamp.tsval,tcp.options.timestamp.tsecr"
    yield f"{names},{stamps}\n0.1,1.1.1.1,2.2.2.2,1,2,3,4,60,20,20,7,8\n".encode()


def _check_iperf3(data: bytes) -> None:
    test = _from_file("iperf3.json", read_iperf3)(data)
    if test is not None:
        assert len(test.intervals)


def _iperf3() -> Iterable[bytes]:
    ends = {"socket": 5, "local_host": "10.0.0.1", "local_port": 4000, "remote_host": "::ffff:10.0.0.2",
            "remote_port": 5201}  # fmt: skip
    start = {"connected": [ends], "cookie": "c", "timestamp": {"timesecs": 1.7e9},
             "test_start": {"protocol": "TCP", "reverse": 0}}  # fmt: skip
    stream = {"socket": 5, "start": 0, "end": 1.0, "bytes": 1000, "bits_per_second": 8000.0, "retransmits": 0,
              "snd_cwnd": 14000, "rtt": 20000, "rttvar": 10, "omitted": False, "sender": True}  # fmt: skip
    document = {
        "start": start,
        "intervals": [{"streams": [stream]}],
        "end": {"sender_tcp_congestion": "cubic"},
    }
    yield json.dumps(document).encode()
    yield json.dumps(document).encode() * 2
    events = [("start", start), ("interval", {"streams": [stream]}), ("end", document["end"])]
    yield b"\n".join(json.dumps({"event": event, "data": data}).encode() for event, data in events)
    yield json.dumps({"start": {}, "error": "unable to connect"}).encode()


@functools.cache
def _small_capture() -> cct.Capture:
    return cct.read_capture(io.BytesIO(made.random_pcap(Random(3), [
        (i * 10**6, made.ethernet(0x0800, made.ipv4(6, made.tcp(4000 + i % 3, 80, i, i, payload=bytes(9)))), 1000)
        for i in range(30)
    ], 1)))  # fmt: skip


def _check_labels(data: bytes) -> None:
    labels = _from_file("labels.csv", read_labels)(data)
    if labels is not None:
        found = _reading(lambda: label_flows(_small_capture(), labels))
        assert found is None or set(found.columns) >= {"flow_id", "cca"}


def _labels() -> Iterable[bytes]:
    yield b"src,sport,dst,dport,protocol,cca\n10.0.0.1,4000,10.0.0.2,80,tcp,cubic\n"
    yield b"flow_id;cca\n0;bbr\n1;reno\n"
    yield b"file,cca,start_ns\na.pcap,Linux BBRv1,5\n"
    yield b"dport\tcongestion control\n80\tCUBIC\n"


def _check_scenario(data: bytes) -> None:
    path = _scratch() / "scenario.toml"
    path.write_bytes(data)
    scenario = _reading(lambda: cct.read_scenario(path))
    if scenario is not None:
        again = _scratch() / "again.toml"
        again.write_text(scenario.to_toml(), encoding="utf-8")
        assert cct.read_scenario(again) == scenario
    if b"sweep" in data:
        _reading(lambda: read_sweep(path))


def _scenarios() -> Iterable[bytes]:
    for aqm, cca in (("codel", "cubic"), ("red", "bbr"), ("dualpi2", "prague"), ("fq_codel", "reno")):
        yield cct.Scenario(
            bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50, aqm=aqm),
            flows=[cct.Flow(cca, rtt_ms=20, start_s=0.5), cct.Flow("udp", rate_mbps=1, stop_s=2)],
            duration_s=3,
        ).to_toml().encode()  # fmt: skip
    yield b"""duration_s = 1
[bottleneck]
rate_mbps = 10
buffer_bytes = 100000
rate_schedule = [[0.5, 5]]
scheduler = "drr"
queues = [{weight = 1.0}, {buffer_packets = 9, aqm = {type = "codel", target_ms = 5}}]
[[flows]]
cca = {type = "bbr"}
rtt_ms = 20
[sweep]
"bottleneck.rate_mbps" = [1, 10]
"flows.0.rtt_ms" = {from = 10, to = 100, steps = 3}
"""


# ---- tables and models -----------------------------------------------------------------------------------------------


def _check_parquet(data: bytes) -> None:
    for table in ("sacks", "packets"):
        read = _from_file("table.parquet", lambda path: schema.read_parquet(path, table))  # noqa: B023
        found = read(data)
        if found is not None:
            schema.check(found[0], table)


def _parquets() -> Iterable[bytes]:
    for n in (0, 3):
        rows = schema.empty("sacks").reindex(range(n)).fillna(0).astype(dict(schema.SACKS))
        path = _scratch() / "seed.parquet"
        schema.write_parquet(rows, path, "sacks", {"seed": 1})
        yield path.read_bytes()
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    yield sink.getvalue()


@functools.cache
def _model() -> tuple[dict[str, Any], bytes]:
    folder = identify.bundled_models()["cca"]
    return json.loads((folder / "model.json").read_text()), (folder / "network.onnx").read_bytes()


@functools.cache
def _slots() -> pd.DataFrame:
    run = cct.example("cubic-bbr")
    slots = cct.compute_slots(run.ingress, run.egress, slot_ms=1.0)
    kept = slots[slots.slot < slots.slot.min() + 320]
    kept.attrs.update(slots.attrs)
    return kept


def _ask(folder: Path) -> None:
    model = identify.load(folder)
    named = model.predict_slots(_slots())
    known = {*map(str, model.classes_), "unknown"}
    assert set(named.cca.dropna()) <= known, named.cca
    least, most = named.probability.min(), named.probability.max()
    assert np.isnan(least) or -1e-6 <= least <= most <= 1 + 1e-6, (least, most)


def _check_model(data: bytes) -> None:
    folder = _scratch() / "model"
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_bytes(data)
    (folder / "network.onnx").write_bytes(_model()[1])
    _reading(lambda: _ask(folder))


def _models() -> Iterable[bytes]:
    about = {key: value for key, value in _model()[0].items() if key not in ("results", "provenance")}
    yield json.dumps(about).encode()
    yield json.dumps(about | {"alike": {"loss-based": ["cubic", "reno"]}}).encode()


def _check_network(data: bytes) -> None:
    folder = _scratch() / "network"
    folder.mkdir(exist_ok=True)
    about = dict(_model()[0])
    about["networks"] = [{**about["networks"][0], "sha256": hashlib.sha256(data).hexdigest()}]
    (folder / "model.json").write_text(json.dumps(about))
    (folder / "network.onnx").write_bytes(data)
    _reading(lambda: _ask(folder))


_FIELDS = ("frame.time_epoch", "frame.time", "frame.time_relative", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
           "ip.proto", "tcp.srcport", "tcp.dstport", "tcp.seq", "tcp.seq_raw", "tcp.ack", "tcp.len", "tcp.flags",
           "tcp.flags.syn", "udp.length", "ip.len", "ip.hdr_len", "tcp.hdr_len", "0x02", "True")  # fmt: skip
_SCENARIO = ("bottleneck", "rate_mbps", "buffer_packets", "buffer_bytes", "aqm", "scheduler", "queues", "flows",
             "cca", "rtt_ms", "start_s", "stop_s", "bytes", "ecn", "duration_s", "seed", "sweep", "rate_schedule",
             "type", "count", "inf", "nan", "-1", "1e999", "[[", "]]", "'''", '\"\"\"', "2026-01-01")  # fmt: skip

TARGETS: dict[str, Reader] = {
    "pcap": Reader(_check_capture, _pcaps, ("naive_capture", "cctoolkit.capture.reader", "cctoolkit.capture.source")),
    "pcapng": Reader(
        _check_capture, _pcapngs,
        ("naive_capture", "cctoolkit.capture.pcapng", "cctoolkit.capture.reader", "cctoolkit.capture.source"),
    ),
    "compressed": Reader(_check_compressed, _compressed, ("cctoolkit.capture.source", "cctoolkit.capture.reader")),
    "tshark-fields": Reader(
        _check_export, _exports, ("cctoolkit.identify.readers.tshark_fields", "ipaddress"), _FIELDS
    ),
    "iperf3": Reader(
        _check_iperf3, _iperf3, ("cctoolkit.identify.readers.iperf3", "cctoolkit.identify.readers.labels"),
        ("connected", "streams", "socket", "timestamp", "test_start", "event", "data", "null", "1e999", "-1", "[]"),
    ),
    "labels": Reader(
        _check_labels, _labels, ("cctoolkit.identify.readers.labels", "csv"),
        ("flow_id", "src", "sport", "dst", "dport", "protocol", "cca", "file", "cubic", "bbr", "start_ns"),
    ),
    "scenario": Reader(
        _check_scenario, _scenarios,
        ("tomllib._parser", "tomllib._re", "cctoolkit.scenario.scenario", "cctoolkit.scenario.changes",
         "cctoolkit._support.algorithm.base", "cctoolkit._support.algorithm.checks", "cctoolkit._support.arguments"),
        _SCENARIO,
    ),
    "parquet": Reader(
        _check_parquet, _parquets, ("cctoolkit.schema", "cctoolkit._support.parquet"), ("PAR1",), 1 << 14
    ),
    "model": Reader(
        _check_model, _models, ("cctoolkit.identify.bundle", "cctoolkit.identify.probabilities"),
        ("classes", "inputs", "networks", "temperature", "least", "slots", "null", "NaN", "-1", "[]"), 1 << 14,
    ),
    "network": Reader(_check_network, lambda: [_model()[1]], ("cctoolkit.identify.bundle",), (), 1 << 20),
}  # fmt: skip
