from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from cctoolkit.capture import download as _download
from cctoolkit.capture.mawi import fetch_mawi, find_trace, mawi_path, real_traces
from cctoolkit.capture.reader import read_capture
from cctoolkit.errors import DatasetUnavailableError, ParameterError

DAY = "2024-02-15"
NAME = "202402151400.pcap.gz"
BODY = gzip.compress(np.random.default_rng(1).bytes(3_000_000), 1)
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """What it does wrong is set by the tests."""

    daemon_threads = True
    body = BODY
    ranges = True
    etag: str | None = '"one"'
    length = True
    break_after: int | None = None  # bytes of each answer
    status = 200
    wrong_start = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None, int]] = []  # path, Range, status

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/mawi"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        body, status, start = server.body, server.status, 0
        if self.path != f"/mawi/2024/{NAME}":
            status = 404
        if status == 200 and wanted and server.ranges and self.headers.get("If-Range") in (None, server.etag):
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted).group(1)) + server.wrong_start
            status = 206 if start < len(body) else 416
        server.requests.append((self.path, wanted, status))
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{len(body)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        body = body[start:] if status in (200, 206) else b""
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.break_after])
        self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(_download, "_WAIT_S", 0.01)
    monkeypatch.setattr(_download, "_CHUNK_BYTES", 10_000)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def files(cache):
    return sorted(p.name for p in cache.rglob("*") if p.is_file())


def test_whole_download(server, tmp_path):
    assert mawi_path(DAY, tmp_path) is None
    path = fetch_mawi(DAY, tmp_path, server.url, progress=False)
    assert path == tmp_path / "mawi" / "samplepoint-F" / NAME
    assert path.read_bytes() == BODY
    assert mawi_path(dt.date(2024, 2, 15), tmp_path) == path
    assert files(tmp_path) == [NAME, f"{NAME}.sha256"]
    assert path.with_name(f"{NAME}.sha256").read_text() == f"{SHA256}  {NAME}\n"
    assert server.requests == [(f"/mawi/2024/{NAME}", None, 200)]
    assert fetch_mawi("20240215", tmp_path, server.url + "/", sha256=SHA256.upper()) == path
    assert len(server.requests) == 1


def test_an_empty_answer_is_no_day(server, tmp_path):
    server.body = b""
    with pytest.raises(DatasetUnavailableError, match="the answer is empty"):
        fetch_mawi(DAY, tmp_path, server.url)
    assert files(tmp_path) == []


def test_goes_on_in_the_same_call(server, tmp_path):
    server.break_after = len(BODY) // 3 + 1
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY
    starts = [int(wanted.removeprefix("bytes=")[:-1]) for _, wanted, _ in server.requests[1:]]
    assert [status for *_, status in server.requests] == [200] + [206] * len(starts)
    steps = np.diff([0, *starts])
    assert ((steps > server.break_after - _download._CHUNK_BYTES) & (steps <= server.break_after)).all()
    assert files(tmp_path) == [NAME, f"{NAME}.sha256"]


def test_interrupted_goes_on_in_the_next_call(server, tmp_path, monkeypatch):
    from tqdm.auto import tqdm

    def interrupt(self, n=1):
        if n:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tqdm, "update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch_mawi(DAY, tmp_path, server.url)
    assert files(tmp_path) == [f"{NAME}.part", f"{NAME}.part.version"]
    assert mawi_path(DAY, tmp_path) is None
    have = (tmp_path / "mawi" / "samplepoint-F" / f"{NAME}.part").stat().st_size
    assert 0 < have < len(BODY)
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY
    assert server.requests[1:] == [(f"/mawi/2024/{NAME}", f"bytes={have}-", 206)]
    assert files(tmp_path) == [NAME, f"{NAME}.sha256"]


def start_with(cache, data, version=None):
    part = cache / "mawi" / "samplepoint-F" / f"{NAME}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(data)
    if version:
        part.with_name(part.name + ".version").write_text(version)


def test_all_there_but_not_renamed(server, tmp_path):
    start_with(tmp_path, BODY, '"one"')
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY
    assert [status for *_, status in server.requests] == [416]


@pytest.mark.parametrize("fault", ["no ranges", "another version", "too much", "wrong start"])
def test_starts_over_where_it_cannot_go_on(server, tmp_path, fault):
    start_with(tmp_path, b"x" * (len(BODY) + 5 if fault == "too much" else 1000), '"one"')
    if fault == "no ranges":
        server.ranges = False
    elif fault == "another version":
        server.etag = '"two"'
    elif fault == "wrong start":
        server.wrong_start = True
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY
    assert server.requests[-1][2] == 200


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_goes_on_without_a_version(server, tmp_path, etag):
    server.etag = etag
    start_with(tmp_path, BODY[:1000])
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY
    assert [status for *_, status in server.requests] == [206]


def test_server_that_says_no_length(server, tmp_path):
    server.length = False
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY


def test_server_that_never_gets_through(server, tmp_path):
    server.break_after, server.ranges = 50_000, False
    with pytest.raises(DatasetUnavailableError, match=r"50,000 bytes are kept") as caught:
        fetch_mawi(DAY, tmp_path, server.url)
    assert "\n" not in str(caught.value)
    assert len(server.requests) == 1 + _download._TRIES
    assert files(tmp_path) == [f"{NAME}.part", f"{NAME}.part.version"]


def test_no_such_day(server, tmp_path):
    with pytest.raises(
        DatasetUnavailableError, match=r"202402161400\.pcap\.gz: not found \(HTTP status 404\)"
    ):
        fetch_mawi("2024-02-16", tmp_path, server.url)
    assert files(tmp_path) == []


def test_server_error(server, tmp_path):
    server.status = 503
    with pytest.raises(DatasetUnavailableError, match="HTTP status 503 Service Unavailable"):
        fetch_mawi(DAY, tmp_path, server.url)
    assert files(tmp_path) == []


def test_wrong_checksum(server, tmp_path):
    with pytest.raises(DatasetUnavailableError, match=f"sha256 is {SHA256}, expected {'0' * 64}"):
        fetch_mawi(DAY, tmp_path, server.url, sha256="0" * 64)
    assert files(tmp_path) == []


def test_recorded_checksum_holds(server, tmp_path):
    path = fetch_mawi(DAY, tmp_path, server.url)
    path.write_bytes(BODY[:-1] + b"x")
    with pytest.raises(DatasetUnavailableError, match="delete the file to download it again"):
        fetch_mawi(DAY, tmp_path, server.url)
    path.unlink()
    server.body = gzip.compress(b"something else")
    with pytest.raises(DatasetUnavailableError, match=f"expected {SHA256}"):
        fetch_mawi(DAY, tmp_path, server.url)
    server.body = BODY
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY


def test_a_page_is_no_trace(server, tmp_path):
    server.body = b"<html>please log in</html>"
    with pytest.raises(DatasetUnavailableError, match="not a gzip file but b'<html>please log'"):
        fetch_mawi(DAY, tmp_path, server.url)
    assert files(tmp_path) == []


def test_nobody_there(server, tmp_path):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DatasetUnavailableError, match="Connection refused") as caught:
        fetch_mawi(DAY, tmp_path, url)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == []


def test_one_download_at_a_time(server, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    start_with(tmp_path, BODY[:1000])
    with open(tmp_path / "mawi" / "samplepoint-F" / f"{NAME}.part", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DatasetUnavailableError, match="another process is downloading"):
            fetch_mawi(DAY, tmp_path, server.url)
    assert fetch_mawi(DAY, tmp_path, server.url).read_bytes() == BODY


@pytest.mark.parametrize(
    "date", ["2024-02-30", "15.2.2024", "", "2024-2-15", "2006-06-30", "9999-01-01", 20240]
)
def test_bad_dates(date, tmp_path):
    with pytest.raises(ParameterError, match="date: "):
        fetch_mawi(date, tmp_path, "http://127.0.0.1:9")
    with pytest.raises(ParameterError, match="date: "):
        mawi_path(date, tmp_path)


def test_bad_checksum_argument(tmp_path):
    with pytest.raises(ParameterError, match="64 hexadecimal digits"):
        fetch_mawi(DAY, tmp_path, "http://127.0.0.1:9", sha256="abc")


def test_find_trace(monkeypatch, tmp_path):
    monkeypatch.delenv("TRACE", raising=False)
    path, description = find_trace(5_000, tmp_path)
    assert description.startswith("SYNTHETIC")
    assert "synthetic" in path.name
    assert len(read_capture(path)) == 5_000
    made = path.stat()
    assert find_trace(5_000, tmp_path)[0].stat().st_mtime_ns == made.st_mtime_ns  # not made again

    day = tmp_path / "mawi" / "samplepoint-F" / NAME
    day.parent.mkdir(parents=True)
    for name in (NAME, "202001011400.pcap.gz", "202403011400.pcap.gz.part"):
        day.with_name(name).write_bytes(BODY)
    assert find_trace(5_000, tmp_path) == (day, "MAWI samplepoint F of 2024-02-15, 14:00 in Japan")

    monkeypatch.setenv("TRACE", str(path))
    assert find_trace(5_000, tmp_path) == (path, f"{path.name} (TRACE)")
    monkeypatch.setenv("TRACE", str(tmp_path / "gone.pcap"))
    with pytest.raises(ParameterError, match=r"TRACE: no file .*gone\.pcap"):
        find_trace(5_000, tmp_path)


def test_real_traces(monkeypatch, tmp_path):
    monkeypatch.delenv("TRACE", raising=False)
    monkeypatch.delenv("CCTOOLKIT_MAWI", raising=False)
    find_trace(1_000, tmp_path)  # a synthetic one is none
    assert real_traces(tmp_path) == []

    folder = tmp_path / "excerpts"
    folder.mkdir()
    names = ["mawi_samplepoint-B_200601051400_first10000.pcap", "201705021400.pcapng.gz"]
    for name in (*names, "README.md", "12345678901400.pcap", "201705021400.txt"):
        (folder / name).write_bytes(BODY)
    monkeypatch.setenv("CCTOOLKIT_MAWI", str(folder))
    found = real_traces(tmp_path)
    assert [path.name for path, _ in found] == names[::-1]
    assert (
        found[0][1] == "MAWI samplepoint F of 2017-05-02, 14:00 in Japan (an excerpt, 201705021400.pcapng.gz)"
    )
    assert found[1][1].startswith("MAWI samplepoint B of 2006-01-05, 14:00 in Japan (an excerpt, ")
    assert real_traces(tmp_path, excerpts=False) == []
    assert find_trace(1_000, tmp_path)[1].startswith("SYNTHETIC")
    assert find_trace(1_000, tmp_path, excerpt=True) == found[0]

    day = tmp_path / "mawi" / "samplepoint-F" / NAME
    day.parent.mkdir(parents=True)
    day.write_bytes(BODY)
    assert [path for path, _ in real_traces(tmp_path)] == [day, *(path for path, _ in found)]
    monkeypatch.setenv("CCTOOLKIT_MAWI", str(folder / "gone"))
    with pytest.raises(ParameterError, match=r"CCTOOLKIT_MAWI: no folder .*gone"):
        real_traces(tmp_path)
