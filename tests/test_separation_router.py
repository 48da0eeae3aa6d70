"""Rules for routers: complete, only what changed, never a line nobody wrote; and Linux takes them and obeys."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from cctoolkit.errors import ParameterError
from cctoolkit.separation.controller import RttSeparation
from cctoolkit.separation.meters import METRICS
from cctoolkit.separation.router import FlowRule, Router, flow_rules

JUNOS = {"interface": "xe-0/0/1", "ingress": "xe-0/0/0"}
LINUX = {"interface": "veth0"}


def metrics(rows: dict[int, float]) -> pd.DataFrame:
    table = [(i, 6, rtt, rtt, 10.0, 10.0, True) for i, rtt in rows.items()]
    return pd.DataFrame(table, columns=list(METRICS))


def flow(i: int, **changed: object) -> dict[str, object]:
    ends = {"src": f"10.0.0.{i}", "dst": "10.0.9.9", "sport": 40000 + i, "dport": 443, "protocol": 6}
    if i % 2:
        ends |= {"src": f"2001:db8::{i:x}", "dst": "2001:db8:9::9"}
    return {"flow_id": i, **ends, **changed}


FLOWS = pd.DataFrame([flow(i) for i in range(20)])

# ---- a model of each router: what it has after some lines


class Junos:
    def __init__(self) -> None:
        self.lines: list[list[str]] = []

    def load(self, text: str) -> None:
        for line in text.splitlines():
            verb, *path = line.split()
            if verb == "delete":
                assert any(known[: len(path)] == path for known in self.lines), f"nothing to delete: {line}"
                self.lines = [known for known in self.lines if known[: len(path)] != path]
                continue
            assert verb == "set"
            single = {"forwarding-class": "then", "transmit-rate": None, "temporal": None, "priority": None}
            for word, under in single.items():  # one value at a time: a new one replaces the old
                if word in path and (under is None or under in path):
                    cut = path.index(word) + 1
                    self.lines = [known for known in self.lines if known[:cut] != path[:cut]]
            if path not in self.lines:
                self.lines.append(path)

    def flows(self) -> dict[tuple[str, ...], str]:
        terms: dict[tuple[str, str], dict[str, str]] = {}
        for path in self.lines:
            if (
                path[:2] == ["firewall", "family"]
                and path[4:6] == ["cct-flows", "term"]
                and path[6] != "none"
            ):
                terms.setdefault((path[2], path[6]), {})[path[8]] = path[-1]
        found = {}
        for (family, _), term in terms.items():
            bits, header = ("32", "protocol") if family == "inet" else ("128", "payload-protocol")
            src, dst = (term[f"{end}-address"].split("/") for end in ("source", "destination"))
            assert src[1] == dst[1] == bits and "accept" in term
            key = (src[0], dst[0], term[header], term["source-port"], term["destination-port"])
            found[key] = term["forwarding-class"]
        return found


class Linux:
    def __init__(self) -> None:
        self.classes: dict[str, str] = {}
        self.rooms: dict[str, str] = {}
        self.filters: dict[tuple[str, str], str] = {}

    def load(self, text: str) -> None:
        for line in text.splitlines():
            kind, verb, rest = line.split(" ", 2)
            if kind == "filter":
                key = tuple(re.search(r"protocol (\S+) prio (\d+)", rest).groups())
                if verb == "del":
                    del self.filters[key]
                else:
                    assert verb == "add" and key not in self.filters
                    self.filters[key] = rest.split(" u32 ")[1]
            else:
                held = self.classes if kind == "class" else self.rooms
                name = re.search(r"(?:classid|parent) (1:\w+) (?:htb|handle)|root", rest).group(1) or "root"
                assert (verb == "change") == (name in held), line
                held[name] = rest

    def flows(self) -> dict[tuple[str, ...], str]:
        found = {}
        for (family, prio), match in self.filters.items():
            if int(prio) >= 65000:
                continue
            ip, bits = ("ip", "32") if family == "ip" else ("ip6", "128")
            pattern = (
                rf"match {ip} src (\S+)/{bits} match {ip} dst (\S+)/{bits} match {ip} protocol 6 0xff "
                rf"match {ip} sport (\d+) 0xffff match {ip} dport (\d+) 0xffff classid 1:(\w+)"
            )
            src, dst, sport, dport, queue = re.fullmatch(pattern, match).groups()
            found[src, dst, "tcp", sport, dport] = f"cct-{int(queue, 16) - 16}"
        return found


def expected(rules: list[FlowRule]) -> dict[tuple[str, ...], str]:
    return {(str(r.src), str(r.dst), "tcp", str(r.sport), str(r.dport)): f"cct-{r.queue}" for r in rules}


intervals = st.lists(
    st.dictionaries(st.integers(0, 19), st.floats(1, 300), max_size=8), min_size=1, max_size=6
)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "names", "model"), [("junos", JUNOS, Junos), ("linux", LINUX, Linux)])
@settings(deadline=None, max_examples=25)
@given(tables=intervals)
def test_what_changed_adds_up_to_what_is(
    kind: str, names: dict[str, str], model: type, tables: list[dict]
) -> None:
    """A router told only what changed has, after each interval, just the flows of the decision in their queues."""
    controller, router, has = RttSeparation(100, 3), Router(kind, 100, **names), model()
    for now, rows in enumerate(tables):
        decision = controller.decide(metrics(rows), now)
        has.load(router.update(decision, FLOWS))
        assert has.flows() == expected(flow_rules(decision, FLOWS))
        assert router.update(decision, FLOWS) == ""


def test_the_first_time_everything() -> None:
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0, 4: 80.0}), 0)
    text = Router("junos", 100, **JUNOS, udp_limit_mbps=10).update(decision, FLOWS)
    lines = text.splitlines()
    for q in range(4):
        assert f"set class-of-service forwarding-classes class cct-{q} queue-num {q}" in lines
    assert "set class-of-service schedulers cct-1 transmit-rate 25000000" in lines  # a quarter each
    # a quarter of 100 Mbit/s for 80 ms is 250 kB: 20 ms at the interface's speed
    buffer = decision.queues.buffer_bytes[2]
    assert f"set class-of-service schedulers cct-2 buffer-size temporal {-(-buffer * 8 // 100)}" in lines
    assert "set class-of-service interfaces xe-0/0/1 scheduler-map cct-separation" in lines
    chain = [line for line in lines if "family inet filter input-list" in line]
    assert [line.split()[-1] for line in chain] == ["cct-flows", "cct-others"]  # in this order
    assert "set firewall policer cct-udp if-exceeding bandwidth-limit 10000000" in lines
    # the last filter ends with a term that takes everything, or the implicit discard would
    others = [line for line in lines if "family inet filter cct-others" in line]
    assert others[-2:] == [
        "set firewall family inet filter cct-others term rest then forwarding-class cct-0",
        "set firewall family inet filter cct-others term rest then accept",
    ]
    assert not any("  " in line or line != line.strip() for line in lines)


@pytest.mark.skipif(shutil.which("junoser") is None, reason="junoser is not installed")
def test_junos_has_such_words_in_such_places(tmp_path: Path) -> None:
    """Every line, new, moved and deleted, in a grammar made from Juniper's own schema; which refuses others."""
    controller, router = RttSeparation(100, 2), Router("junos", 100, **JUNOS, udp_limit_mbps=10)
    text = ""
    for now, rows in enumerate(({2: 10.0, 3: 80.0, 4: 81.0}, {2: 10.0, 3: 80.0, 4: 11.0}, {5: 1.0})):
        text += router.update(controller.decide(metrics(rows), now), FLOWS)
    assert "\ndelete " in text
    for lines, status in (
        (text.replace("\ndelete ", "\nset "), 0),
        (text.replace("source-port", "port-of"), 1),
    ):
        (tmp_path / "rules.set").write_text(lines)
        done = subprocess.run(
            ["junoser", "-c", tmp_path / "rules.set"], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr


def test_one_flow_moves() -> None:
    """One line for Junos; the classes stay as they are."""
    controller, router = RttSeparation(100, 2), Router("junos", 100, **JUNOS)
    router.update(controller.decide(metrics({2: 10.0, 4: 80.0, 6: 81.0}), 0), FLOWS)
    text = router.update(controller.decide(metrics({2: 10.0, 4: 80.0, 6: 11.0}), 1), FLOWS)
    rules = [line for line in text.splitlines() if "cct-flows" in line]
    assert rules == ["set firewall family inet filter cct-flows term flow-102 then forwarding-class cct-1"]


def test_data_of_the_responder() -> None:
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0}).assign(direction=1), 0)
    rule = flow_rules(decision, FLOWS)[0]
    assert (str(rule.src), rule.sport, str(rule.dst), rule.dport) == ("10.0.9.9", 443, "10.0.0.2", 40002)


def test_a_flow_number_that_means_another_flow() -> None:
    controller, router, has = RttSeparation(100, 2), Router("linux", 100, **LINUX), Linux()
    decision = controller.decide(metrics({2: 10.0}), 0)
    has.load(router.update(decision, FLOWS))
    other = pd.DataFrame([flow(2, sport=5)])
    has.load(router.update(decision, other))
    assert has.flows() == expected(flow_rules(decision, other))


# ---- nothing gets in

EVIL = [
    "10.0.0.2\nset system root-authentication plain-text-password",
    "10.0.0.2/32 then accept; }",
    "10.0.0.2 ",
    " 10.0.0.2",
    "10.0.0.2\x00",
    "010.0.0.2",
    "10.0.0",
    "fe80::1%eth0",
    "fe80::1%eth0\nset x",
    "{{ 7 * 7 }}",
    "",
    None,
    167772162,
    float("nan"),
]


@pytest.mark.parametrize("bad", EVIL)
@pytest.mark.parametrize("field", ["src", "dst"])
def test_addresses_that_are_none(field: str, bad: object) -> None:
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0}), 0)
    router = Router("linux", 100, **LINUX)
    with pytest.raises(
        ParameterError, match=f"flow 2: {field}: .* is not an IP address|must not have a zone"
    ) as caught:
        router.update(decision, pd.DataFrame([flow(2, **{field: bad})]))
    assert len(str(caught.value).splitlines()) == 1
    assert router.rules == {}


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.text() | st.ip_addresses().map(str))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0}), 0)
    peer = "2001:db8::1" if ":" in text else "10.0.9.9"
    for kind, names, has in (("junos", JUNOS, Junos()), ("linux", LINUX, Linux())):
        table = pd.DataFrame([flow(2, src=text, dst=peer)])
        try:
            lines = Router(kind, 100, **names).update(decision, table)
        except ParameterError:
            continue
        ip_address(text)
        has.load(lines)
        assert [key[0] for key in has.flows()] == [str(ip_address(text))]


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("sport", 65536),
        ("sport", -1),
        ("dport", "443 accept"),
        ("dport", 1.5),
        ("protocol", 256),
        ("protocol", "tcp"),
    ],
)
def test_numbers_that_are_none(field: str, bad: object) -> None:
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0}), 0)
    with pytest.raises(ParameterError, match=f"flow 2: {field}"):
        flow_rules(decision, pd.DataFrame([flow(2, **{field: bad})]))


@pytest.mark.parametrize(
    "name", ["", "xe-0/0/1;", "xe-0/0/1 unit", "xe-0/0/1\n", "-rf", "eth0\nset", "ae", "a" * 70, None]
)
def test_interfaces_that_are_none(name: str) -> None:
    with pytest.raises(ParameterError, match=r"interface|ingress"):
        Router("junos", 100, name, ingress="xe-0/0/0")
    if name not in ("ae",):
        with pytest.raises(ParameterError, match="interface"):
            Router("linux", 100, name)


def test_routers_refuse(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="kind: 'cisco' must be one of junos, linux"):
        Router("cisco", 100, "eth0")
    with pytest.raises(ParameterError, match="rate_mbps"):
        Router("linux", 0, "eth0")
    with pytest.raises(ParameterError, match="ingress"):
        Router("junos", 100, "xe-0/0/0")
    with pytest.raises(ParameterError, match="queues: 10, but this router has only 8"):
        Router("junos", 100, **JUNOS).update(RttSeparation(100, 8).decide(metrics({2: 1.0}), 0), FLOWS)
    with pytest.raises(ParameterError, match="not in the table"):
        Router("linux", 100, "eth0").update(RttSeparation(100).decide(metrics({99: 1.0}), 0), FLOWS)
    mixed = pd.DataFrame([flow(2, src="::1")])
    with pytest.raises(ParameterError, match="different IP versions"):
        Router("linux", 100, "eth0").update(RttSeparation(100).decide(metrics({2: 1.0}), 0), mixed)


def test_a_template_of_ones_own(tmp_path: Path) -> None:
    template = tmp_path / "mine.j2"
    template.write_text(
        "{% for f in flows %}\n{{ f.src }} > {{ f.queue }} on {{ interface }}\n{% endfor %}\n"
    )
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0, 4: 80.0}), 0)
    text = Router(template, 100, "Ethernet1/1").update(decision, FLOWS)
    assert text == "10.0.0.2 > 1 on Ethernet1/1\n10.0.0.4 > 2 on Ethernet1/1\n"


def test_a_template_that_fails_changes_nothing(tmp_path: Path) -> None:
    """What a router was not told is told with the next update."""
    template = tmp_path / "mine.j2"
    template.write_text(
        "{% for f in gone %}\n- {{ f.number }}\n{% endfor %}\n"
        "{% for f in flows %}\n{{ f.number }} {{ f.src }} {{ 1 // (f.queue - 3) }}\n{% endfor %}\n"
    )
    tables = [{2: 10.0, 4: 11.0}, {4: 11.0, 6: 80.0, 8: 300.0}, {4: 11.0, 6: 80.0}]
    one, other = (Router(template, 100, "eth0") for _ in range(2))
    made = [RttSeparation(100, k).decide(metrics(rows), 0) for k, rows in zip((2, 3, 3), tables, strict=True)]
    assert one.update(made[0], FLOWS) == other.update(made[0], FLOWS)
    before = one.rules
    with pytest.raises(ParameterError, match="division"):
        one.update(made[1], FLOWS)
    assert one.rules == before
    assert one.update(made[2], FLOWS) == other.update(made[2], FLOWS)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", 1, "unsafe"),
        ("a\n{{ cycler.__init__.__globals__.os.system('true') }}", 2, "unsafe"),
        ("{{ flows[0].__class__ }}", 1, "unsafe"),
        ("{{ '{0.__class__}'.format(1) }}", 1, "unsafe"),
        ("\n\n{{ flows.append(1) }}", 3, "unsafe"),
        ("{% include '/etc/hostname' %}", 1, "loader"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", 1, "too big"),
        ("a\n{{ nothing }}", 2, "undefined"),
        ("\n{{ 1 / 0 }}", 2, "division by zero"),
        ("{% if %}", 1, "Expected an expression"),
    ],
)
def test_what_a_template_may_not_do(tmp_path: Path, text: str, line: int, why: str) -> None:
    template = tmp_path / "mine.j2"
    template.write_text(text)
    decision = RttSeparation(100, 2).decide(metrics({2: 10.0, 4: 80.0}), 0)
    with pytest.raises(ParameterError, match=rf"mine\.j2: line {line}: .*{why}") as failure:
        Router(template, 100, "eth0").update(decision, FLOWS)
    assert "\n" not in str(failure.value)


# ---- a real kernel


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with a veth pair, and nothing left of it."""
    if os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("ip"):
        pytest.skip("needs root, ip and tc")
    name = f"cct-{os.getpid()}-router"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        # the kernel's own IPv6 packets (neighbour discovery) would be counted with ours
        quiet = "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done"
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c", quiet], check=False, capture_output=True)
        for command in (
            "link add veth0 type veth peer name veth1",
            "link set veth0 up",
            "link set veth1 up",
        ):
            subprocess.run(["ip", "-n", name, *command.split()], check=True, capture_output=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def tc(namespace: str, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, "tc", *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if "TC classifier not found" in done.stderr or "qdisc kind is unknown" in done.stderr:
        pytest.skip(f"this kernel lacks a part: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def frame(src: str, dst: str, sport: int, dport: int, protocol: int) -> bytes:
    a, b = ip_address(src), ip_address(dst)
    payload = struct.pack(">HHIIBBHHH", sport, dport, 1, 0, 5 << 4, 2, 1000, 0, 0) if protocol == 6 else (
        struct.pack(">HHHH", sport, dport, 8, 0)
    )  # fmt: skip
    if a.version == 4:
        head = (
            struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0) + a.packed + b.packed
        )
    else:
        head = struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + a.packed + b.packed
    ether = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01" + struct.pack(">H", 0x0800 if a.version == 4 else 0x86DD)
    return ether + head + payload


def sent(namespace: str) -> dict[str, int]:
    text = tc(namespace, "-s", "class", "show", "dev", "veth0")
    leaves = re.findall(r"class htb (1:1\w) parent 1:1 .*\n Sent \d+ bytes (\d+) pkt", text)
    return {name: int(packets) for name, packets in leaves}


SENDER = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("veth0", 0))
for line in sys.stdin:
    s.send(bytes.fromhex(line))
"""


@pytest.mark.slow
@pytest.mark.netns
def test_linux_takes_the_rules_and_obeys(namespace: str) -> None:
    """Each packet comes out of the class its flow was assigned to, first, after a move, and after an end."""
    controller, router = RttSeparation(100, 2), Router("linux", 100, "veth0", udp_limit_mbps=10)
    table = FLOWS.set_index("flow_id", drop=False)

    def goes_to(flow_id: int, protocol: int = 6) -> str:
        before = sent(namespace)
        row = table.loc[flow_id]
        data = frame(row.src, row.dst, row.sport, row.dport, protocol).hex()
        subprocess.run(
            ["ip", "netns", "exec", namespace, shutil.which("python3"), "-c", SENDER],
            input=f"{data}\n" * 3, text=True, check=True,
        )  # fmt: skip
        gained = {name: n - before[name] for name, n in sent(namespace).items() if n > before[name]}
        assert list(gained.values()) == [3], gained
        return next(iter(gained))

    decision = controller.decide(metrics({2: 10.0, 3: 11.0, 4: 80.0, 5: 82.0}), 0)
    tc(namespace, "-batch", "-", text=router.update(decision, FLOWS))
    assert [goes_to(i) for i in (2, 3, 4, 5)] == ["1:11", "1:11", "1:12", "1:12"]
    assert [goes_to(6), goes_to(7)] == ["1:10", "1:10"]
    assert [goes_to(2, 17), goes_to(3, 17)] == ["1:13", "1:13"]
    shown = json.loads(tc(namespace, "-j", "qdisc", "show", "dev", "veth0"))
    rooms = {q["parent"]: q["options"]["limit"] for q in shown if q["kind"] == "bfifo"}
    assert rooms == {f"1:{16 + q:x}": b for q, b in enumerate(decision.queues.buffer_bytes)}

    decision = controller.decide(metrics({2: 10.0, 3: 81.0, 4: 80.0, 7: 12.0}), 1)
    tc(namespace, "-batch", "-", text=router.update(decision, FLOWS))
    assert [goes_to(i) for i in (2, 3, 4, 7)] == ["1:11", "1:12", "1:12", "1:11"]
    assert goes_to(5) == "1:10"


def test_raw_frames_are_what_they_should_be() -> None:
    """The test above depends on them: read back by the toolkit's own reader elsewhere, here by hand."""
    data = frame("10.0.0.2", "10.0.9.9", 40002, 443, 6)
    assert socket.inet_ntoa(data[26:30]) == "10.0.0.2" and struct.unpack(">HH", data[34:38]) == (40002, 443)
