"""physical.py on "hosts" that are network namespaces: it runs, measures, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

import cctoolkit as cct

LAUNCH = Path(__file__).parents[1] / "hardware" / "launch"
SCRIPT = LAUNCH / "physical.py"
EXAMPLE = LAUNCH / "hosts.example.toml"
#: A busy machine may take much longer than a run lasts.
PATIENCE_S = 180
TOOLS = ("ip", "tc", "ethtool", "sysctl", "tcpdump", "iperf3", "ss", "setsid", "timeout")

SCENARIO = """name = "small"
duration_s = 2
[bottleneck]
rate_mbps = 10
buffer_packets = 60
[[flows]]
cca = "reno"
[[flows]]
cca = "cubic"
start_s = 1
[[flows]]
cca = "udp"
rate_mbps = 1
packet_bytes = 514
"""


LONG = SCENARIO.replace("duration_s = 2", "duration_s = 60")

spec = importlib.util.spec_from_file_location("launch_physical", SCRIPT)
assert spec and spec.loader
physical = sys.modules["launch_physical"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(physical)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def script(capsys: pytest.CaptureFixture):
    """The command, without anything running on a host."""

    def run(*args: str | Path) -> Done:
        code = physical.main([str(a) for a in args])
        return Done(code, *capsys.readouterr())

    return run


def hosts_text(
    prefix: str, transport: str = '["ip", "netns", "exec", "{target}"]', directory: str = "/tmp"
) -> str:
    return f"""transport = {transport}
sudo = false
directory = "{directory}"
[[senders]]
target = "{prefix}s"
address = "10.9.1.1"
interface = "s0"
[[senders]]
target = "{prefix}t"
address = "10.9.2.1"
interface = "t0"
[receiver]
target = "{prefix}d"
address = "10.9.3.1"
interface = "d0"
[bottleneck]
target = "{prefix}r"
interface = "r1"
[tap]
target = "{prefix}r"
ingress = "br0"
interface = "r1"
"""


# -- without any host


def test_dry_run_prints_a_script_for_each_host(script, tmp_path: Path) -> None:
    done = script(LAUNCH / "rtt-flow-separation" / "test6-separated.toml", EXAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    heads = re.findall(r"^# (\S+): (.*)$", done.stdout, re.M)
    assert {target for target, _ in heads} == {"sender1", "sender2", "receiver", "router"}
    assert dict(heads)["router"] == "bottleneck; tap" and dict(heads)["receiver"] == "receiver; delay"
    assert "netem limit 1000000 delay 20000us" in done.stdout
    # UDP first, then CUBIC; flows are dealt out in turn, rates are payload
    assert re.search(r"iperf3 -c 198.51.100.10 -p 5201 -B 192.0.2.11 .*-u", done.stdout)
    assert re.search(r"iperf3 -c 198.51.100.10 -p 5202 -B 192.0.2.12 .*-C cubic", done.stdout)
    assert f"-b {round(1e9 * 1472 / 1514)}" in done.stdout
    own = tmp_path / "h.toml"
    own.write_text(EXAMPLE.read_text().replace('target = "sender2"', 'target = "sender2"\nflows = [0, 3]'))
    heads = re.findall(
        r"^# (sender\d): (.*)$", script(LAUNCH / "rtt-flow-separation/test6-separated.toml", own).stdout, re.M
    )
    assert dict(heads) == {"sender1": "sender of flows 2", "sender2": "sender of flows 0, 1, 3"}
    for text in re.split(r"^# \S+: .*\n# ssh .*\n", done.stdout, flags=re.M)[1:]:
        assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.parametrize("paper", ["rtt-flow-separation", "p4-codel", "p4-abc", "dragonfly", "l4s-ired-pi2"])
def test_the_papers_files_can_be_launched(script, tmp_path: Path, paper: str) -> None:
    """But for what iperf3 or Linux cannot do, which is said by name. Of a sweep this is its first lines' scenario."""
    refused = {}
    for path in sorted((LAUNCH / paper).glob("*.toml")):
        if "[sweep]" in path.read_text():
            done = script(path, EXAMPLE)
            assert done.returncode == 1 and f"{path}: sweep: " in done.stderr
        one = tmp_path / path.name
        one.write_text(cct.read_scenario(path).to_toml())
        done = script(one, EXAMPLE)
        if done.returncode:
            notes = ("is ignored", "whole seconds")
            (refused[path.stem],) = [
                x for x in done.stderr.splitlines() if not any(note in x for note in notes)
            ]
    expected = {
        "rtt-flow-separation": {f"test4-{n}": "flows[0].bytes: " for n in (1, 2, 4, 8)},
        "l4s-ired-pi2": dict.fromkeys(
            ("I-sim", "II-sim", "III-sim", "IV-sim", "bmv2-pi2"), "Linux has no pi2"
        )
        | {"bmv2-ired": "Linux has no ired"},
        "p4-codel": dict.fromkeys(("table1-sim", "udp-scan-sim", "bmv2"), "Linux has no codel_pisa"),
        "p4-abc": dict.fromkeys(("cbr-sim", "tcp-sim", "cbr-tcp-sim", "bmv2"), "Linux has no abc"),
    }.get(paper, {})
    assert refused.keys() == expected.keys()
    assert all(part in refused[name] for name, part in expected.items())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('target = "xs"', 'target = "-oProxyCommand=touch x"', "senders[0].target: "),
        ('target = "xs"', 'target = "a b"', "senders[0].target: "),
        ('interface = "r1"', 'interface = "r1; reboot"', "bottleneck.interface: "),
        ('interface = "d0"', 'interface = "$(id)"', "receiver.interface: "),
        ('address = "10.9.1.1"', 'address = "10.9.1.1/24"', "senders[0].address: "),
        ('address = "10.9.3.1"', 'address = "fd00::1"', "receiver.address: must have"),
        ('directory = "/tmp"', 'directory = "/tmp/`id`"', "directory: "),
        ("sudo = false", 'sudo = "no"', "sudo: "),
        ('interface = "s0"', 'interface = "s0"\nflows = [9]', "flow 9 does not exist"),
        ("[receiver]", "[reciever]", "reciever: unknown field"),
        ('ingress = "br0"', "", "tap.ingress: is missing"),
        ('["ip", "netns", "exec", "{target}"]', '["ip"]', "transport: "),
        ("sudo = false", "sudo = ", "not TOML"),
    ],
)
def test_what_is_wrong_with_the_hosts_is_one_line(
    script, tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = hosts_text("x")
    assert old in text
    (tmp_path / "h.toml").write_text(text.replace(old, new, 1))
    (tmp_path / "s.toml").write_text(SCENARIO)
    done = script(tmp_path / "s.toml", tmp_path / "h.toml")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ('cca = "udp"\nrate_mbps = 1\nloss = 0.1', "flows[0].loss"),
        ('cca = "reno"\nbytes = 1000', "flows[0].bytes"),
        ('cca = "reno"\necn = "l4s"', "flows[0].ecn"),
        (
            'cca = "reno"\necn = "classic"\n[[flows]]\ncca = "reno"\n[[flows]]\ncca = "reno"',
            "must have the same ecn",
        ),
    ],
)
def test_what_iperf3_cannot_do_is_refused(script, tmp_path: Path, changes: str, message: str) -> None:
    (tmp_path / "h.toml").write_text(hosts_text("x"))
    (tmp_path / "s.toml").write_text(SCENARIO.split("[[flows]]")[0] + f"[[flows]]\n{changes}\n")
    done = script(tmp_path / "s.toml", tmp_path / "h.toml")
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1


def test_a_sweep_is_no_scenario(script, tmp_path: Path) -> None:
    (tmp_path / "h.toml").write_text(hosts_text("x"))
    (tmp_path / "s.toml").write_text(
        SCENARIO + '[sweep]\n"flows.0.cca" = ["reno", "bbr"]\nrepetition = [0, 1]\n'
    )
    done = script(tmp_path / "s.toml", tmp_path / "h.toml")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "s.toml: sweep: " in done.stderr and "flows.0.cca, repetition: choose one point" in done.stderr
    (tmp_path / "s.toml").write_text(SCENARIO + "[sweep]\n")
    assert script(tmp_path / "s.toml", tmp_path / "h.toml").returncode == 0


@pytest.mark.parametrize(
    ("times", "seconds", "note"),
    [
        ("start_s = 0.5\nstop_s = 3.5", 3, ""),
        ("start_s = 0.2\nstop_s = 3.2", 3, ""),  # whose difference is a little more
        ("start_s = 1", 9, ""),
        ("start_s = 0.7", 10, "duration_s: some flows go on for up to 0.7 s more"),
        ("start_s = 9.6", 1, "duration_s: some flows go on for up to 0.6 s more"),
        ("start_s = 0.5\nstop_s = 3.2", None, "flows[0].stop_s: 3.2: iperf3 sends for whole seconds"),
        ("start_s = 3\nstop_s = 3.2", None, "flows[0].stop_s: 3.2: iperf3 sends for whole seconds"),
    ],
)
def test_iperf3_sends_for_whole_seconds(
    script, tmp_path: Path, times: str, seconds: int | None, note: str
) -> None:
    """A flow that is to stop at another time is refused; one that lasts as long as the run goes on till then."""
    (tmp_path / "h.toml").write_text(hosts_text("x"))
    text = SCENARIO.split("[[flows]]")[0].replace("duration_s = 2", "duration_s = 10")
    (tmp_path / "s.toml").write_text(f'{text}[[flows]]\ncca = "reno"\n{times}\n')
    done = script(tmp_path / "s.toml", tmp_path / "h.toml")
    assert done.stderr.count("\n") == bool(note) and note in done.stderr
    assert re.findall(r" -t (\d+) ", done.stdout) == ([] if seconds is None else [str(seconds)])


def test_both_ends_get_room_for_the_windows(script, tmp_path: Path) -> None:
    """iperf3 fails if a socket's buffer is not as large as it asks for."""
    hosts = tmp_path / "h.toml"
    hosts.write_text(hosts_text("x").replace('interface = "t0"', 'interface = "t0"\nflows = [1]'))
    text = SCENARIO.split("[[flows]]")[0]
    flows = ['cca = "reno"\nmax_window = 1000', 'cca = "reno"\nmax_window = 2000', 'cca = "reno"']
    (tmp_path / "s.toml").write_text(text + "".join(f"[[flows]]\n{flow}\n" for flow in flows))
    scenario = cct.read_scenario(tmp_path / "s.toml")
    plan = physical.parts(scenario, physical.read_hosts(hosts))

    def raised(target: str) -> list[str]:
        return [x for x in plan[target].setup if x.startswith("raise_sysctl")]

    def room(size: int) -> list[str]:
        return [f"raise_sysctl net.core.{name} {size}" for name in ("rmem_max", "wmem_max")]

    assert (raised("xs"), raised("xt")) == (room(1000 * 1448), room(2000 * 1448))
    assert raised("xd") == room(2000 * 1448)
    assert f"-w {1000 * 1448}" in plan["xs"].go[0] and "-w" not in plan["xs"].go[1]
    (tmp_path / "s.toml").write_text(SCENARIO)
    assert "raise_sysctl net" not in script(tmp_path / "s.toml", hosts).stdout


SYSCTL = """#!/bin/sh
# Settings are files beside this script
here=$(dirname "$0")
case $1 in
  -n) cat "$here/$2" ;;
  -qw) echo "${2#*=}" >"$here/${2%%=*}" ;;
esac
"""


def test_a_limit_is_raised_and_restored(tmp_path: Path) -> None:
    (tmp_path / "sysctl").write_text(SYSCTL)
    (tmp_path / "sysctl").chmod(0o755)
    settings = {"net.core.rmem_max": "212992", "net.core.wmem_max": "900000"}
    for name, value in settings.items():
        (tmp_path / name).write_text(f"{value}\n")
    text = f"directory={tmp_path} snaplen=96\n" + physical.FUNCTIONS.read_text()
    text += "".join(f"raise_sysctl net.core.{x} 500000\n" for x in ("rmem_max", "wmem_max", "none"))
    text += f"cat {tmp_path}/net.core.*\n"
    done = subprocess.run(
        ["sh"], input=text, text=True, capture_output=True, check=False,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "500000\n900000\n"), done.stderr
    assert {name: (tmp_path / name).read_text().strip() for name in settings} == settings


def test_running_needs_a_place_for_the_result() -> None:
    with pytest.raises(SystemExit) as stop:
        physical.main(["s.toml", str(EXAMPLE), "--run"])
    assert stop.value.code == 2


REPORT = {
    "start": {
        "connected": [{"socket": 5}], "version": "iperf 3.12", "system_info": "Linux", "tcp_mss_default": 1448,
    },
    "intervals": [
        {"streams": [{"end": 0.1, "bytes": 2896, "snd_cwnd": 14480, "rtt": 20000, "rttvar": 500, "retransmits": 1}]},
        {"streams": [{"end": 0.2, "bytes": 1448, "snd_cwnd": 28960, "rtt": 21000, "rttvar": 400}]},
    ],
    "end": {"sum_received": {"bytes": 4000}, "sum_sent": {"retransmits": 1}, "sender_tcp_congestion": "reno"},
}  # fmt: skip


@pytest.fixture
def sending(tmp_path: Path):
    (tmp_path / "h.toml").write_text(hosts_text("x"))
    (tmp_path / "s.toml").write_text(SCENARIO)
    return physical.sendings(
        cct.read_scenario(tmp_path / "s.toml"), physical.read_hosts(tmp_path / "h.toml")
    )[0]


def test_a_report_of_iperf3(sending, tmp_path: Path) -> None:
    (tmp_path / "flow0.out").write_text(json.dumps(REPORT))
    assert physical._report(tmp_path, sending) == (
        "iperf 3.12", "Linux", "reno", 4000, 1,
        [(0.1, 10, 20_000_000, 500_000, 2896, 1), (0.2, 20, 21_000_000, 400_000, 4344, 1)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "iperf3 wrote no report"),
        ("", "iperf3 wrote no report"),
        (json.dumps(REPORT)[:200], "iperf3 wrote no report"),
        ("[1]", "iperf3's report is damaged"),
        ("{}", "iperf3 did not connect"),
        ('{"start": {"connected": []}, "error": "unable to connect"}', "unable to connect"),
        ('{"start": {"connected": [1]}}', "iperf3's report is damaged"),
        (json.dumps(REPORT | {"intervals": [{"streams": []}]}), "iperf3's report is damaged"),
        (json.dumps(REPORT | {"intervals": [{"streams": [{"end": 1}]}]}), "iperf3's report is damaged"),
        (json.dumps(REPORT | {"end": "soon"}), "iperf3's report is damaged"),
    ],
)
def test_a_report_of_iperf3_that_is_missing_or_damaged(
    sending, tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "flow0.out").write_text(text)
    with pytest.raises(physical.Failed, match=f"xs: flow 0: {message}"):
        physical._report(tmp_path, sending)


#: Of a UDP flow whose first datagram was lost, by iperf3 3.12.
LOST_DATAGRAM = {
    "start": {"connected": [], "version": "iperf 3.12", "system_info": "Linux", "cookie": "z6scdoivtuoiymxw"},
    "intervals": [], "end": {}, "error": "interrupt - the client has terminated",
}  # fmt: skip


def test_a_udp_flow_that_never_starts_is_tried_three_times(
    script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def run(scenario: cct.Scenario, hosts: object, folder: Path, **options: object) -> None:
        runs.append(sorted(folder.iterdir()))
        for i, report in enumerate((REPORT, REPORT, LOST_DATAGRAM)):
            (folder / f"flow{i}.out").write_text(json.dumps(report))

    monkeypatch.setattr(physical, "run", run)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    (tmp_path / "h.toml").write_text(hosts_text("x"))
    (tmp_path / "s.toml").write_text(SCENARIO)
    done = script(tmp_path / "s.toml", tmp_path / "h.toml", "-o", tmp_path / "out", "--run")
    message = "physical.py: xs: flow 2: its first datagram, which iperf3 sends only once, was lost"
    again = f"{message}: running it again"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [again, again, message]
    assert runs == [[], [], []]
    assert {p.name for p in tmp_path.iterdir()} == {"h.toml", "s.toml"}


def test_other_errors_of_a_udp_flow_are_not_a_lost_datagram(sending, tmp_path: Path) -> None:
    udp = physical.dataclasses.replace(sending, flow=cct.Flow("udp", rate_mbps=1))
    for report, message in (
        (LOST_DATAGRAM | {"error": "unable to set socket buffer size"}, "unable to set socket buffer size"),
        ({"start": {"connected": []}, "error": "unable to connect to server"}, "unable to connect"),
        ({}, "iperf3 did not connect"),
    ):
        (tmp_path / "flow0.out").write_text(json.dumps(report))
        with pytest.raises(physical.Failed, match=f"xs: flow 0: {message}") as raised:
            physical._report(tmp_path, udp)
        assert not isinstance(raised.value, physical.FirstDatagramLost)


@pytest.mark.parametrize("text", [None, "", "[]", "[{}]"])
def test_counters_of_the_router_that_are_missing(sending, tmp_path: Path, text: str | None) -> None:
    nothing = cct.read_capture(io.BytesIO(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")))
    if text is not None:
        (tmp_path / "qdisc.json").write_text(text)
    with pytest.raises(physical.Failed, match="tc wrote no counters"):
        physical._queues(cct.read_scenario(tmp_path / "s.toml"), tmp_path, nothing, nothing)


# -- with hosts that are namespaces


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Rack:
    """Two senders, a router with its senders on one bridge, a receiver; and what is to be the same afterwards."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.mark = f"CCTK_TEST={uuid.uuid4()}"
        s, t, r, d = (prefix + x for x in "strd")
        self.names = (s, t, r, d)
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for host, device, peer in ((s, "s0", "r0"), (t, "t0", "r2"), (d, "d0", "r1")):
            ip("link", "add", device, "netns", host, "type", "veth", "peer", "name", peer, "netns", r)
        ip("-n", r, "link", "add", "br0", "type", "bridge")
        for device in ("r0", "r2"):
            ip("-n", r, "link", "set", device, "master", "br0")
        for host, address, device in (
            (s, "10.9.1.1/16", "s0"),
            (t, "10.9.2.1/16", "t0"),
            (r, "10.9.0.254/16", "br0"),
            (r, "10.8.3.2/24", "r1"),
            (d, "10.8.3.1/24", "d0"),
        ):
            ip("-n", host, "address", "add", address, "dev", device)
        for host, device in ((s, "s0"), (t, "t0"), (d, "d0"), *((r, x) for x in ("r0", "r1", "r2", "br0"))):
            ip("-n", host, "link", "set", device, "up")
        for host in (s, t):
            ip("-n", host, "route", "add", "10.8.3.0/24", "via", "10.9.0.254")
        ip("-n", d, "route", "add", "default", "via", "10.8.3.2")
        self.inside(r, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.wait_for_links()
        self.before = self.state()

    def wait_for_links(self) -> None:
        """As links between hosts are: up. The kernel looks once a second, and what is sent before that is lost."""
        for _ in range(1200):
            links = [x for name in self.names for x in json.loads(self.inside(name, "ip", "-j", "link"))]
            if all(x["operstate"] == "UP" for x in links if x["ifname"] != "lo"):
                return
            time.sleep(0.05)
        raise AssertionError(f"links are not up: {links}")

    def inside(self, name: str, *words: str) -> str:
        command = ["ip", "netns", "exec", name, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def state(self) -> list[str]:
        """Queues, offloads and settings of all hosts."""
        out = []
        for name in self.names:
            devices = [x["ifname"] for x in json.loads(self.inside(name, "ip", "-j", "link"))]
            out.append(self.inside(name, "tc", "qdisc", "show"))
            out += [self.inside(name, "ethtool", "-k", x) for x in devices if x not in ("lo", "br0")]
            out.append(self.inside(name, "sysctl", "net.ipv4.tcp_ecn", "net.ipv4.tcp_no_metrics_save"))
        return out

    def processes(self) -> list[str]:
        """Command lines of everything alive that was started under our mark."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes().split(
                    b"\0"
                ):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def start(
        self, folder: Path, scenario: str = SCENARIO, more: str = "", **options: str
    ) -> subprocess.Popen[str]:
        """In a folder with scenario, hosts, and a place for what the hosts keep for themselves."""
        (folder / "hosts").mkdir()
        text = hosts_text(self.prefix, directory=str(folder / "hosts"), **options).replace(
            "10.9.3.1", "10.8.3.1"
        )
        (folder / "h.toml").write_text(text + more)
        (folder / "s.toml").write_text(scenario)
        command = [sys.executable, str(SCRIPT), "s.toml", "h.toml", "-o", "out", "--run"]
        key, _, value = self.mark.partition("=")
        path = f"{folder}:{os.environ['PATH']}"
        return subprocess.Popen(
            command, cwd=folder, env=os.environ | {key: value, "PATH": path}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for(self, word: str) -> None:
        for _ in range(2400):
            if any(line.startswith(word) for line in self.processes()):
                return
            time.sleep(0.05)
        raise AssertionError(f"{word} never ran")

    def nothing_left(self, folder: Path) -> None:
        for _ in range(1200):  # hosts notice by themselves that a killed program is gone
            if not self.processes():
                break
            time.sleep(0.05)
        assert self.processes() == []
        assert self.state() == self.before
        assert list((folder / "hosts").iterdir()) == []


@pytest.fixture
def rack():
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("needs root on Linux")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    prefix = f"ccth{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", prefix], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespaces")
    ip("netns", "del", prefix)
    try:
        yield Rack(prefix)
    finally:
        for x in "strd":
            subprocess.run(["ip", "netns", "del", prefix + x], capture_output=True, check=False)


#: The queue may drop what announces the UDP flow.
LOST = "flow 2: its first datagram, which iperf3 sends only once, was lost: running it again"

SSH = """#!/bin/sh
# As sshd does it: the last word is for a shell on the host named before it
for word in "$@"; do before=$last; last=$word; done
exec ip netns exec "$before" sh -c "$last"
"""


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("transport", ["words", "ssh"])
def test_a_run_is_measured_and_loaded(rack: Rack, tmp_path: Path, transport: str) -> None:
    options = {}
    if transport == "ssh":
        (tmp_path / "ssh").write_text(SSH)
        (tmp_path / "ssh").chmod(0o755)
        options = {"transport": '"ssh"'}
    process = rack.start(tmp_path, **options)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (0, "out\n"), stderr
    assert all(LOST in line for line in stderr.splitlines())
    rack.nothing_left(tmp_path)

    run = cct.load_run(tmp_path / "out")
    assert run.ingress is not None and run.egress is not None and run.scenario is not None
    assert run.name == "small" and list(run.labels.cca) == ["reno", "cubic", ""]
    assert list(run.labels.src) == ["10.9.1.1", "10.9.2.1", "10.9.1.1"]
    assert 0.5 < run.flows.start_s[1] - run.flows.start_s[0] < 1.9
    # What the router counted as dropped came in and did not go out
    (queue,) = run.queues.to_dict("records")
    lost = len(run.ingress) - len(run.egress)
    others = (
        queue["dropped_full"] - lost
    )  # the router's own packets (ARP, neighbour discovery) are not of the flows
    assert lost > 0 and 0 <= others <= 10
    # The kernel's limit: no more than the rate leaves, and nothing waits longer than a full queue. Where other
    # programs run, senders may pause, and the timer that lets packets go may be late for some.
    out = run.egress.packets.query("direction == 0 and flow_id <= 2")
    seconds = (out.ts_ns.max() - out.ts_ns.min()) / 1e9
    assert 5 < out.wire_bytes.sum() * 8e-6 / seconds < 10.3
    full_ms = 60 * 1514 * 8 / 10e3
    delay_ms = cct.queue_delay(run.ingress, run.egress).query("direction == 0").delay_ns.dropna() / 1e6
    assert 20 < queue["max_delay_ms"] < 1.5 * full_ms
    assert delay_ms.quantile(0.9) < 1.1 * full_ms
    assert queue["sent_bytes"] >= out.wire_bytes.sum()
    series = run.flow_series[run.flow_series.flow_id == 0]
    assert len(series) >= 10 and series.cwnd_packets.max() > 10 and (series.srtt_ns > 0).any()
    udp = run.ingress.packets.query("flow_id == 2 and direction == 0 and wire_bytes > 100")
    assert set(udp.wire_bytes) == {514}
    assert 0.6 < len(udp) * 514 * 8e-6 / 2 < 1.2
    labelled = run.ingress.packets.query("flow_id == 0")
    assert int(run.labels.bytes_acked[0]) <= labelled.payload_bytes.sum()


@pytest.mark.slow
@pytest.mark.netns
def test_a_lost_first_datagram_makes_the_run_again(rack: Rack, tmp_path: Path) -> None:
    """iperf3's first UDP client ends as if its datagram had been dropped; the others run."""
    (tmp_path / "lost.json").write_text(json.dumps(LOST_DATAGRAM))
    tool = tmp_path / "iperf3"
    tool.write_text(
        f"""#!/bin/sh
case " $* " in
  *" -u "*) mkdir {tmp_path}/lost 2>/dev/null && {{ cat {tmp_path}/lost.json; exit 1; }} ;;
esac
exec {shutil.which("iperf3")} "$@"
"""
    )
    tool.chmod(0o755)
    process = rack.start(tmp_path)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (0, "out\n"), stderr
    assert stderr and all(LOST in line for line in stderr.splitlines())
    rack.nothing_left(tmp_path)
    run = cct.load_run(tmp_path / "out")
    assert run.ingress is not None and set(run.ingress.packets.query("flow_id == 2").wire_bytes) >= {514}


@pytest.mark.slow
@pytest.mark.netns
def test_several_queues_a_schedule_and_ecn(rack: Rack, tmp_path: Path) -> None:
    """Two queues with hard shares (this kernel may have no drr): each flow gets its own; then the rate is halved.

    Bounds of shares before and after do not overlap.
    """
    scenario = """name = "shares"
duration_s = 3
[bottleneck]
rate_mbps = 12
buffer_packets = 50
scheduler = "drr"
rate_schedule = [[1.5, 6]]
[[bottleneck.queues]]
weight = 2
max_rate_mbps = 8
[[bottleneck.queues]]
weight = 1
max_rate_mbps = 4
[[flows]]
cca = "cubic"
queue = 0
[[flows]]
cca = "cubic"
queue = 1
ecn = "classic"
"""
    process = rack.start(tmp_path, scenario)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stderr) == (0, "")
    rack.nothing_left(tmp_path)
    run = cct.load_run(tmp_path / "out")
    assert run.egress is not None and len(run.queues) == 2
    packets = run.egress.packets.query("direction == 0 and flow_id <= 1")
    after_s = (packets.ts_ns - run.start_ns) / 1e9
    for begin_s, end_s, shares in ((0.4, 1.4, (8, 4)), (1.9, 2.9, (4, 2))):
        part = packets[(after_s > begin_s) & (after_s < end_s)]
        mbps = part.groupby("flow_id").wire_bytes.sum() * 8e-6 / (end_s - begin_s)
        for flow, share in enumerate(
            shares
        ):  # the hard limit; a sender that has to wait for a processor sends less
            assert 0.6 * share < mbps[flow] < 1.15 * share
    ecn = (
        packets[packets.payload_bytes > 500].groupby("flow_id").ecn.median()
    )  # what is sent again has no ECT
    assert (ecn[0], ecn[1]) == (0, 2), "ECN is asked for by its sender only"


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize(
    ("number", "when"),
    [
        (signal.SIGINT, "iperf3 -c"),
        (signal.SIGTERM, "tcpdump"),
        (signal.SIGHUP, "iperf3 -c"),
        (signal.SIGKILL, "tcpdump"),
        (signal.SIGKILL, "iperf3 -c"),
    ],
)
def test_nothing_is_left_after_a_signal(
    rack: Rack, tmp_path: Path, number: signal.Signals, when: str
) -> None:
    process = rack.start(tmp_path, LONG)
    rack.wait_for(when)
    assert rack.state() != rack.before
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    if number == signal.SIGKILL:
        assert process.returncode == -9
    else:
        assert (process.returncode, stderr) == (128 + number, f"physical.py: stopped by {number.name}\n")
        assert {p.name for p in tmp_path.iterdir()} == {"hosts", "h.toml", "s.toml"}
    rack.nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("deaf", [False, True])
def test_a_sender_that_hangs_is_ended_too(rack: Rack, tmp_path: Path, deaf: bool) -> None:
    """As a client of iperf3's does that waits for a server which was ended before it, and one that hears no signal."""
    tool = tmp_path / "iperf3"
    ignore = "trap '' TERM INT;" if deaf else ""
    tool.write_text(
        f"""#!/bin/sh
[ "$1" = -c ] || exec {shutil.which("iperf3")} "$@"
{ignore} exec sleep 1000
"""
    )
    tool.chmod(0o755)
    process = rack.start(tmp_path, LONG)
    rack.wait_for("sleep 1000")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    rack.nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.netns
def test_a_host_that_fails_says_why_and_nothing_is_left(rack: Rack, tmp_path: Path) -> None:
    there = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    absent = [c for c in ("vegas", "htcp", "dctcp") if c not in there and shutil.which("modprobe") is None]
    cases = [("tcpdump", "#!/bin/sh\necho no tap today >&2\nexit 3\n", "no tap today")]
    cases.append(("iperf3", "#!/bin/sh\nexit 1\n", "iperf3 does not listen on port 5201"))
    for i, (tool, text, message) in enumerate(cases):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / tool).write_text(text)
        (folder / tool).chmod(0o755)
        process = rack.start(folder)
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and message in stderr and stderr.count("\n") == 1
        assert not (folder / "out").exists()
        rack.nothing_left(folder)
    for i, cca in enumerate(absent[:1]):
        folder = tmp_path / f"cca{i}"
        folder.mkdir()
        process = rack.start(folder, SCENARIO.replace("cubic", cca))
        _, stderr = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, stderr) == (
            1,
            f"physical.py: {rack.prefix}t: the kernel has no congestion control {cca}\n",
        )
        rack.nothing_left(folder)


@pytest.mark.slow
@pytest.mark.netns
def test_a_queue_of_somebody_is_not_touched(rack: Rack, tmp_path: Path) -> None:
    router = rack.prefix + "r"
    rack.inside(router, "tc", "qdisc", "add", "dev", "r1", "root", "bfifo", "limit", "5000")
    rack.before = rack.state()
    process = rack.start(tmp_path)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "r1 has a queue discipline of its own" in stderr
    rack.nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.netns
def test_base_rtts_by_held_acks(rack: Rack, tmp_path: Path) -> None:
    router = rack.prefix + "r"
    command = [
        "ip",
        "netns",
        "exec",
        router,
        "tc",
        "qdisc",
        "add",
        "dev",
        "r1",
        "root",
        "netem",
        "delay",
        "1ms",
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this kernel has no netem")
    rack.inside(router, "tc", "qdisc", "del", "dev", "r1", "root")
    scenario = SCENARIO.replace('cca = "reno"', 'cca = "reno"\nrtt_ms = 40').replace(
        'cca = "cubic"', 'cca = "cubic"\nrtt_ms = 80'
    )
    process = rack.start(tmp_path, scenario, more=f'[delay]\ntarget = "{rack.prefix}d"\ninterface = "d0"\n')
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stderr) == (0, "")
    rack.nothing_left(tmp_path)
    run = cct.load_run(tmp_path / "out")
    samples = cct.rtt_samples(run.egress).query("direction == 0")
    least = samples.groupby("flow_id").rtt_ns.min() / 1e6
    assert least[0] == pytest.approx(40, abs=3) and least[1] == pytest.approx(80, abs=3)
    assert list(run.labels.base_rtt_ms[:2]) == [40, 80]
