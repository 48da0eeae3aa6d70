"""What is missing on a machine is said by name, with how to get it; what is there is not."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest
from rich.console import Console

import cctoolkit as cct
from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.testbed import doctor, kernel, kernel_build, traffic
from cctoolkit.testbed.doctor import BACKENDS, examine, require
from cctoolkit.testbed.plan import make_plan


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without anything: no programs, no kernel, no source, no compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    monkeypatch.delenv("CCTOOLKIT_UML_KERNEL", raising=False)
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, path=None: which(name, path=str(tmp_path)))
    monkeypatch.setattr(kernel_build, "_SOURCES", tmp_path)
    monkeypatch.setattr(doctor, "mininet_python", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return tmp_path


@pytest.mark.parametrize("backend", BACKENDS)
def test_on_a_bare_machine_everything_is_missing_and_says_how_to_get_it(bare: Path, backend: str) -> None:
    found = examine([backend])
    by_name = {f.what: f for f in found}
    assert {f.backend for f in found} == {backend}
    for tool in ("ip", "tc", "tcpdump"):
        assert not by_name[tool].good and by_name[tool].needed
    assert by_name["ip"].get == "apt-get install iproute2 | dnf install iproute"
    assert by_name["tc"].get == "apt-get install iproute2 | dnf install iproute-tc"
    assert all(
        bool(f.get) != f.good for f in found if f.what not in ("congestion controls", "queue disciplines")
    )
    with pytest.raises(TestbedUnavailableError) as caught:
        require(backend)
    text = str(caught.value)
    assert text.startswith(f"{backend}: ") and "\n" not in text
    assert "tcpdump: not found (apt-get install tcpdump | dnf install tcpdump)" in text
    if backend == "uml":
        assert by_name["kernel"].get == "cct testbed build"
        assert {*kernel_build.BUILD_TOOLS, "Linux source"} <= set(by_name)
        assert not any(
            by_name[tool].needed for tool in kernel_build.BUILD_TOOLS
        )  # they are a way to the kernel
        assert "root" not in by_name
    else:
        assert by_name["root"].detail == "user 1000" and "root: user 1000 (sudo)" in text


def test_what_is_put_there_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ip", "tc", "tcpdump", "mount"):
        (bare / name).write_text("#!/bin/sh\n")
        (bare / name).chmod(0o755)
    here = kernel.Kernel(bare / "linux", "ab" * 32, "6.12.1-cct")
    monkeypatch.setattr(kernel, "find_kernel", lambda: here)
    monkeypatch.setattr(kernel, "check_kernel", lambda found: None)
    monkeypatch.setattr(traffic, "binary", lambda: bare / "traffic")
    found = {f.what: f for f in examine(["uml"])}
    assert all(f.good and not f.get for f in found.values())
    assert found["tc"].detail == str(bare / "tc") and "6.12.1-cct" in found["kernel"].detail
    assert "make" not in found  # nothing has to be built
    require("uml")

    def refuse(found: kernel.Kernel) -> None:
        raise TestbedUnavailableError("linux: does not boot here: no ptrace")

    monkeypatch.setattr(kernel, "check_kernel", refuse)
    with pytest.raises(TestbedUnavailableError, match=r"^uml: kernel: linux: does not boot here: no ptrace"):
        require("uml")


def test_this_machines_answers_agree_with_its_programs() -> None:
    for finding in examine(["netns"]):
        if finding.what in ("ip", "tc", "tcpdump", "unshare") and finding.good:
            assert os.access(finding.detail, os.X_OK)
        if finding.what == "root":
            assert finding.good == (os.geteuid() == 0)


def test_the_table_has_every_finding_and_a_verdict(bare: Path) -> None:
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(doctor.table(examine()))
    text = console.export_text()
    for finding in examine():
        assert finding.what in text
    assert text.count("cannot run here") == len(BACKENDS)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ParameterError, match="backend: 'ns3' must be one of uml, netns, mininet"):
        examine(["ns3"])


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("qdisc add dev rb root handle 1: htb default 1", "htb"),
        ("qdisc add dev rb parent 1:1 handle 10: fq_codel limit 100", "fq_codel"),
        ("qdisc add dev s0 root netem limit 10 delay 5ms", "netem"),
        ("qdisc add dev a0 clsact", None),
        ("class add dev rb parent 1: classid 1:1 htb rate 1mbit", None),
        ("filter add dev rb parent 1: protocol ip u32", None),
    ],
)
def test_which_queue_discipline_a_line_adds(line: str, kind: str | None) -> None:
    assert doctor.added_qdisc(line) == kind


def test_a_plans_needs_are_compared_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "host_qdiscs", lambda more=(): {"htb", "codel"})
    monkeypatch.setattr(doctor, "host_ccas", lambda: {"reno"})
    loaded: list[str] = []
    monkeypatch.setattr(doctor, "_load_module", lambda name: loaded.append(name) or name == "tcp_htcp")

    def plan(cca: str, aqm: str):  # type: ignore[no-untyped-def]
        flows = [cct.Flow(cca, rtt_ms=10), cct.Flow("udp", rate_mbps=1, rtt_ms=10)]
        bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=50, aqm=aqm)
        return make_plan(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=1.0), virtual=False)

    doctor.require_kernel("netns", plan("reno", "codel"), spare=("netem",))
    doctor.require_kernel("netns", plan("htcp", "codel"), spare=("netem",))
    assert loaded == ["tcp_htcp"]
    with pytest.raises(TestbedUnavailableError, match="no queue discipline 'netem'; it has codel htb"):
        doctor.require_kernel("mininet", plan("reno", "codel"))
    with pytest.raises(TestbedUnavailableError, match="no queue discipline 'pie'"):
        doctor.require_kernel("netns", plan("reno", "pie"), spare=("netem",))
    with pytest.raises(TestbedUnavailableError, match="no congestion control 'vegas'; it has reno"):
        doctor.require_kernel("netns", plan("vegas", "codel"), spare=("netem",))


def test_modules_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thing in the way is named, one after the other."""
    for name in ("_PROC_MODULES", "_LIB_MODULES", "_MODULES_DISABLED"):
        monkeypatch.setattr(doctor, name, tmp_path / name)

    def found() -> doctor.Requirement:
        return doctor._own_modules("netns")

    assert "does not load modules" in found().detail and not found().good and not found().needed
    (tmp_path / "_PROC_MODULES").touch()
    assert "build does not exist" in found().detail and "linux-headers" in found().get
    (tmp_path / "_LIB_MODULES" / platform.release() / "build").mkdir(parents=True)
    assert found().good
    (tmp_path / "_MODULES_DISABLED").write_text("1\n")
    assert "disabled" in found().detail
