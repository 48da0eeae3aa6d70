"""``cct separate``."""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import pytest
from fault_injection import call

from cctoolkit import iter_capture

TRACES = Path(__file__).parents[1] / "traces"
MIXED = str(TRACES / "mixed.ingress.pcap.gz")


def cct(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(arguments, *call("separate", *arguments))


def test_on_the_terminal() -> None:
    done = cct(MIXED, "--long", "100000", "--rate", "10", "-k", "3", "--router", "junos", "--interface", "xe-0/0/1",
               "--ingress", "xe-0/0/0")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "53 flows, 3 of them long TCP" in done.stdout
    assert "3 classes: GVF 1.0000 exact, 1.0000 by Algorithm 1" in done.stdout
    for rtt in ("20.11", "40.11", "60.11"):  # base RTTs of 20, 40 and 60 ms
        assert rtt in done.stdout
    assert "set class-of-service schedulers cct-3 buffer-size temporal" in done.stdout


def test_as_a_table_and_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.tc"
    done = cct(MIXED, "--long", "100000", "--format", "csv", "--router", "linux", "--interface", "eth1",
               "--rules", str(rules), "-o", str(tmp_path / "flows.csv"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO((tmp_path / "flows.csv").read_text())))
    tcp = [row for row in rows if row["role"] == "class"]
    assert [row["protocol"] for row in tcp] == ["6"] * 3
    lines = rules.read_text().splitlines()
    assert lines[0] == "qdisc add dev eth1 root handle 1: htb default 0x10"
    for row in tcp:
        address = f"src {row['src']}/{128 if ':' in row['src'] else 32} "
        assert any(address in line and f"sport {row['sport']} " in line for line in lines)


def test_guard_keeps_classes_whose_rtts_are_far_apart() -> None:
    """20, 40 and 60 ms stay apart at 10 Mbit/s; at 1 Mbit/s, a fair share is less than four packets a round trip."""
    for rate, classes in (("10", 3), ("1", 0)):
        done = cct(MIXED, "--long", "100000", "--rate", rate, "-k", "3", "--guard", "--format", "csv")
        assert done.returncode == 0, done.stderr
        assert sum(row["role"] == "class" for row in csv.DictReader(io.StringIO(done.stdout))) == classes


def test_the_rate_of_a_capture_shorter_than_a_second() -> None:
    """Its bits over its length, not over a second."""
    part = next(iter(iter_capture(MIXED)))
    since_ns = part.columns["ts_ns"] - part.columns["ts_ns"][0]
    chosen = part.rows((since_ns >= 2 * 10**9) & (since_ns < 22 * 10**8))
    ts_ns, to, wire = (chosen.columns[name] for name in ("ts_ns", "direction", "wire_bytes"))
    mbps = max(int(wire[to == way].sum()) for way in (0, 1)) * 8e3 / int(ts_ns.max() - ts_ns.min())
    done = cct(MIXED, "--start", "2", "--stop", "2.2")
    assert done.returncode == 0, done.stderr
    assert f"link: {mbps:.4g} Mbit/s" in done.stdout and mbps > 5


def test_interval_after_interval() -> None:
    done = cct(MIXED, "--long", "100000", "--rate", "10", "--interval", "1")
    assert done.returncode == 0, done.stderr
    assert "rules written, 0 changed" in done.stdout


def test_rules_interval_after_interval() -> None:
    """Every decision's own lines: all of it once, then only what is new; a moved or deleted rule was there before."""
    done = cct(MIXED, "--long", "100000", "--rate", "10", "--interval", "0.5", "-k", "2", "--router", "linux",
               "--interface", "eth1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("qdisc add dev eth1 root") == 1
    priorities: set[str] = set()
    for line in done.stdout.splitlines():
        words = line.split()
        if words[:2] == ["filter", "add"]:
            assert words[words.index("prio") + 1] not in priorities
            priorities.add(words[words.index("prio") + 1])
        elif words[:2] == ["filter", "del"]:
            priorities.remove(words[words.index("prio") + 1])
    assert len(priorities) >= 3  # two are for UDP


def test_interval_after_interval_as_a_table() -> None:
    done = cct(MIXED, "--long", "100000", "--rate", "10", "--interval", "1", "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [float(row["now_s"]) for row in rows] == [1.0 + i for i in range(len(rows))] and len(rows) > 5
    assert sum(int(row["added"]) for row in rows) >= 3


def test_nothing_long() -> None:
    done = cct(str(TRACES / "reno.ingress.pcap.gz"), "--long", "1000000000")
    assert done.returncode == 0
    assert "nothing to separate (--long lowers the threshold)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--router", "cisco", "--interface", "eth0"), "kind: 'cisco'"),
        (("--router", "linux"), "interface"),
        (("--rules", "x"), "rules"),
        (("--interval", "1"), "rate"),
        (("--router", "linux", "--interface", "eth0; reboot"), "interface: 'eth0; reboot'"),
        (("--rate", "-1"), "--rate"),
        (("--router", "junos", "--interface", "xe-0/0/1", "--ingress", "ge", "--long", "1"), "ingress: 'ge'"),
        (
            ("-k", "8", "--router", "junos", "--interface", "ae0", "--ingress", "ae1"),
            "queues: 10, but this router",
        ),
        (
            ("--router", "linux", "--interface", "eth0", "--format", "csv"),
            "rules: the table goes to standard output",
        ),
        (
            ("--rate", "9", "--interval", "1", "--router", "linux", "--interface", "eth0", "--rules", "x"),
            "rules",
        ),
        (("--rate", "9", "--interval", "0"), "--interval"),
        (("--latency-threshold", "-3"), "--latency-threshold"),
        (("--rate", "1e308"), "--rate"),
        (("--router", "linux", "--interface", "eth0", "--udp-limit", "1e308"), "--udp-limit"),
    ],
)
def test_one_line_of_what_is_wrong(arguments: tuple[str, ...], what: str) -> None:
    done = cct(MIXED, *arguments)
    assert done.returncode == (2 if what.startswith("--") else 1)
    assert what in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stdout == ""  # and said before anything else
