"""The mininet backend: what is taken to Mininet is the plan, and where Mininet is, it runs."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tools import need

import cctoolkit as cct
from cctoolkit.errors import TestbedUnavailableError
from cctoolkit.testbed import TestbedError, doctor, mininet, run_testbed
from cctoolkit.testbed.plan import TapSettings, make_plan


def scenario(*flows: cct.Flow, **changes: object) -> cct.Scenario:
    bottleneck = {"rate_mbps": 10, "buffer_packets": 50} | changes.pop("bottleneck", {})  # type: ignore[operator]
    flows = flows or (cct.Flow("reno", rtt_ms=0),)
    return cct.Scenario(
        bottleneck=cct.Bottleneck(**bottleneck), flows=flows, **{"duration_s": 2.0, **changes}
    )


@pytest.fixture
def machine() -> None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("needs root on Linux")
    try:
        doctor.require("mininet")
    except TestbedUnavailableError as err:
        pytest.skip(str(err))


def processes(folder: Path) -> list[str]:
    """Processes that work in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(path / "cwd")).is_relative_to(folder) and int(path.name) != os.getpid():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_what_is_written_is_the_plan_and_can_be_taken_away(tmp_path: Path) -> None:
    need("cc")
    given = scenario(
        cct.Flow("cubic", rtt_ms=20, access_ms=2),
        cct.Flow("reno", rtt_ms=40),
        bottleneck={"aqm": "codel", "rate_schedule": ((1.0, 5.0),)},
    )
    plan = make_plan(given, prefix="cct123456", virtual=False)
    mininet.write(plan, tmp_path, TapSettings(control_ns=10**8))
    table = json.loads((tmp_path / "plan.json").read_text())
    assert list(table["hosts"]) == list(plan.hosts)
    assert [tuple(x) for x in table["links"]] == [
        (x.host, x.device, x.peer_host, x.peer_device) for x in plan.links
    ]
    for name, host in plan.hosts.items():
        assert table["hosts"][name]["ip"] == host.ip
        assert table["hosts"][name]["tc"] == host.tc
    assert table["changes"] == [[10**9, plan.changes[0][1]]]
    text = (tmp_path / "traffic.plan").read_text()
    assert "source=ns/S0 sink=ns/D0" in text and "source=ns/S1 sink=ns/D1" in text
    assert "queues netns=ns/R device=rb" in text and "command nsenter --net=ns/R tc -batch" in text
    assert "cct123456" not in text + (tmp_path / "plan.json").read_text()
    assert str(tmp_path) not in text
    assert os.access(tmp_path / "traffic", os.X_OK)
    # Mininet's own machine is an Ubuntu 20.04 with Python 3.8.
    ast.parse((tmp_path / "in_mininet.py").read_text(), feature_version=(3, 8))


def test_dualpi2_goes_as_a_message(tmp_path: Path) -> None:
    need("cc")
    given = scenario(bottleneck={"aqm": "dualpi2"})
    mininet.write(make_plan(given, virtual=False), tmp_path, TapSettings())
    assert not any(
        "dualpi2" in line for line in json.loads((tmp_path / "plan.json").read_text())["hosts"]["R"]["tc"]
    )
    assert b"dualpi2\0" in (tmp_path / "netlink.messages").read_bytes()
    assert os.access(tmp_path / "netlink", os.X_OK)


def test_delays_need_netem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "require", lambda backend: None)
    monkeypatch.setattr(doctor, "host_qdiscs", lambda more=(): {"htb", "pfifo"})
    with pytest.raises(TestbedUnavailableError, match=r"^mininet: kernel .* has no queue discipline 'netem'"):
        run_testbed(scenario(cct.Flow("reno", rtt_ms=10)), tmp_path / "out", backend="mininet")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.netns
def test_it_runs_with_mininet(machine: None, tmp_path: Path) -> None:
    rtt_ms = 20 if "netem" in doctor.host_qdiscs() else 0
    flows = (
        cct.Flow("reno", rtt_ms=rtt_ms),
        cct.Flow("cubic", rtt_ms=rtt_ms, bytes=50_000),
        cct.Flow("udp", rate_mbps=1, rtt_ms=rtt_ms),
    )
    given = scenario(*flows, duration_s=3.0, bottleneck={"rate_schedule": ((1.5, 5.0),)})
    times = []

    def control(run) -> None:  # type: ignore[no-untyped-def]
        times.append(run.now_s)
        if len(times) == 2:
            run.set_rate(2.0)

    run = run_testbed(given, tmp_path / "a run", backend="mininet", control=control, control_s=1.0)
    assert times == [1.0, 2.0]
    assert not processes(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a run"]
    assert run.flows.cca.tolist() == ["reno", "cubic", "udp"]
    assert run.flows.received_bytes[1] == 50_000
    assert run.flows.min_rtt_ms[0] >= rtt_ms
    data = run.egress.packets[run.egress.packets.direction == 0]
    since_s = (data.ts_ns.to_numpy() - run.start_ns) / 1e9
    for start_s, end_s, mbps in ((0.3, 1.5, 10), (1.6, 2.0, 5), (2.1, 3.0, 2)):
        inside = (since_s >= start_s) & (since_s < end_s)
        bits = data.wire_bytes.to_numpy()[inside].sum() * 8
        assert 0.8 * mbps * 1e6 * (end_s - start_s) <= bits <= mbps * 1e6 * (end_s - start_s) + 8 * 1514 * 8
    provenance = json.loads((tmp_path / "a run" / "provenance.json").read_text())
    assert provenance["backend"] == "mininet" and provenance["mininet"][0].isdecimal()
    assert np.isfinite(run.queues.mean_delay_ms).all()


@pytest.mark.slow
@pytest.mark.netns
def test_failures_inside_give_one_line(
    machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "require_kernel", lambda backend, plan: None)
    with pytest.raises(
        TestbedError, match=r"^mininet: flow 0: congestion control yeah: this kernel does not have it$"
    ):
        run_testbed(scenario(cct.Flow("yeah", rtt_ms=0)), tmp_path / "out", backend="mininet")
    assert not list(tmp_path.iterdir())


_CHILD = """
import sys
import cctoolkit as cct
from cctoolkit.testbed import run_testbed
flows = [cct.Flow("reno", rtt_ms=0)]
run_testbed(cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=50), flows=flows, duration_s=60.0),
            sys.argv[1], backend="mininet")
"""


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_when_it_is_stopped(machine: None, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", _CHILD, tmp_path / "out"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):  # until traffic flows
            if any("--epoch" in text for text in processes(tmp_path)):
                break
            assert process.poll() is None
            time.sleep(0.05)
        assert any("mininet:R" in text for text in processes(tmp_path))
        time.sleep(0.5)
        process.send_signal(number)
        process.wait(120)
        for _ in range(200):
            if not processes(tmp_path):
                break
            time.sleep(0.05)
        assert not processes(tmp_path)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "out").exists()
