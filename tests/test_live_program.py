"""What the collector needs of a machine, said before it is used."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cctoolkit.identify.live import CollectorUnavailableError, KernelCollector, program

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")


@linux
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program.platform, "release", lambda: "5.10.0-28-amd64")
    monkeypatch.setattr(program, "_has", lambda capability: False)
    text = "; ".join(program.missing())
    assert "Linux 6.6 or newer, for tcx (this is 5.10.0-28-amd64)" in text
    assert "root, or CAP_NET_ADMIN and CAP_NET_RAW and CAP_PERFMON and CAP_BPF" in text
    assert "clang (apt-get install" in text
    with pytest.raises(CollectorUnavailableError, match=r"live: this machine lacks Linux 6\.6"):
        KernelCollector("lo")


@linux
def test_older_rights_stand_for_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_has", lambda capability: capability in (12, 13, 21))
    assert not any("root" in one for one in program.missing())


@pytest.mark.slow
@linux
def test_without_rights_one_line_says_so() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give it up")
    libc = ctypes.CDLL(None)

    def drop() -> None:
        for capability in (12, 21, 38, 39):
            libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    command = [sys.executable, "-m", "cctoolkit.cli", "live", "--ingress", "lo", "--no-classify"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=drop, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("cct: live: this machine lacks ")
    assert "root, or CAP_NET_ADMIN and CAP_PERFMON and CAP_BPF (sudo cct live" in done.stderr
    assert done.stderr.count("\n") == 1


@linux
def test_what_does_not_compile_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "clang"
    compiler.write_text(
        "#!/bin/sh\necho 'collector.bpf.c:1:10: fatal error: bpf/x.h not found' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(
        CollectorUnavailableError, match=r"clang does not compile collector\.bpf\.c: .*fatal error"
    ):
        program.programs()
    assert not list(tmp_path.glob("live/*"))
