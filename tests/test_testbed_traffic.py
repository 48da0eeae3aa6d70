"""The traffic program, in two namespaces of its own: what it says of itself beside what the kernel counts."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cctoolkit.errors import ParameterError, SchemaError, TestbedUnavailableError
from cctoolkit.testbed import traffic
from cctoolkit.testbed.traffic import (
    Control,
    TrafficFlow,
    plan_text,
    read_results,
    read_series,
)

SOURCE = Path(traffic.__file__).with_name("traffic.c")
S = 10**9


def flow(index: int = 0, **changes: object) -> TrafficFlow:
    base = TrafficFlow(
        index=index,
        source_netns="-",
        sink_netns="-",
        source_address="10.9.0.1",
        sink_address="10.9.0.2",
        source_port=5000 + index,
        sink_port=6000 + index,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


# ---- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_address": "10.9.0"}, "flow 0: source_address: '10.9.0' is not an address"),
        ({"sink_address": "fd00::1"}, "flow 0: source_address and sink_address must be of the same family"),
        ({"source_netns": "/run/netns/a b"}, "flow 0: source_netns: '/run/netns/a b' has characters"),
        ({"sink_netns": "x\nflow index=1"}, "flow 0: sink_netns: "),
        ({"cca": "reno; reboot"}, "flow 0: cca: 'reno; reboot' has characters"),
        ({"source_port": 0}, "flow 0: source_port: 0 is not a port"),
        ({"cca": "udp"}, "flow 0: rate_bps: required for UDP"),
        ({"on_ns": 1}, "flow 0: on_ns and off_ns: give both or neither"),
        ({"arrivals": "pareto"}, "flow 0: arrivals: 'pareto' must be one of cbr, poisson"),
        ({"packet_bytes": 141}, "flow 0: packet_bytes: 141 leaves 75 bytes of payload; TCP supports 76 to"),
        ({"packet_bytes": 42, "cca": "udp", "rate_bps": 1e6}, "flow 0: packet_bytes: 42 leaves 0 bytes"),
    ],
)
def test_a_flow_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        flow(**changes)
    assert str(caught.value).startswith(message)


def test_payload_is_what_headers_leave() -> None:
    assert flow().payload_bytes == 1448
    assert flow(source_address="fd00::1", sink_address="fd00::2").payload_bytes == 1428
    assert flow(cca="udp", rate_bps=1e6).payload_bytes == 1472


def test_plans_refuse_what_they_cannot_carry() -> None:
    with pytest.raises(ParameterError, match="duration_ns"):
        plan_text([flow()], duration_ns=0)
    with pytest.raises(ParameterError, match="queues: 'a b' has characters"):
        plan_text([flow()], duration_ns=1, queues=("a b", "rb"))
    with pytest.raises(ParameterError, match="control: '/run/x y' has characters"):
        plan_text(
            [flow()], duration_ns=1, control=Control(interval_ns=1, directory="/run/x y", command=["tc"])
        )
    with pytest.raises(ParameterError, match="interval_ns must be positive"):
        plan_text([flow()], duration_ns=1, control=Control(interval_ns=0, directory="/run/x", command=["tc"]))


# ---- the program -----------------------------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled so that it stops at undefined behaviour and memory errors where the compiler can."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc)")
    path = tmp_path_factory.mktemp("program") / "traffic"
    checks = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    for flags in (checks, ["-O1"]):
        done = subprocess.run(["cc", *flags, "-o", path, SOURCE], capture_output=True, check=False)
        if done.returncode == 0:
            return path
    raise AssertionError(done.stderr)


@needs_compiler
def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    flags = ["-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-std=gnu11"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "traffic", SOURCE], check=True)


@needs_compiler
def test_it_is_compiled_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path))
    path = traffic.binary()
    assert path.is_relative_to(tmp_path)
    made = path.stat()
    again = traffic.binary().stat()
    assert (made.st_ino, made.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedUnavailableError, match="no C compiler"):
        traffic.binary()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense\n", "not a plan of this version"),
        ("traffic 1\nfly index=1\n", "plan: not understood: fly index=1"),
        ("traffic 1\nrun duration_ns=x sample_ns=0\n", "plan: duration_ns=x is not a whole number"),
        ("traffic 1\nrun duration_ns=1\n", "plan: no sample_ns in: run"),
        ("traffic 1\nflow index=1 udp=0\n", "plan: no poisson in: flow"),
        ("traffic 1\n", "no duration"),
    ],
)
def test_a_broken_plan_is_refused_in_one_line(program: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan").write_text(text)
    done = subprocess.run(
        [program, tmp_path / "plan", tmp_path], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("traffic: ")


def test_what_is_not_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"flows\.csv: not a result of the traffic program"):
        read_results(tmp_path)
    (tmp_path / "series.bin").write_bytes(b"cctktcp1" + bytes(9))
    with pytest.raises(SchemaError, match="truncated"):
        read_series(tmp_path / "series.bin")


# ---- in namespaces ---------------------------------------------------------------------------------------------------


class Pair:
    """Two namespaces with one link of 100 Mbit/s between them."""

    def __init__(self, name: str) -> None:
        self.names = (f"{name}s", f"{name}d")
        self.source, self.sink = (f"/run/netns/{n}" for n in self.names)

    def flow(self, index: int = 0, v6: bool = False, **changes: object) -> TrafficFlow:
        ends = {"source_address": "fd00::1", "sink_address": "fd00::2"} if v6 else {}
        return flow(index, **{"source_netns": self.source, "sink_netns": self.sink, **ends, **changes})

    def counters(self, end: int) -> dict[str, int]:
        """What the kernel counted in a namespace, by name (``TcpRetransSegs``)."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[end], "cat", "/proc/net/snmp", "/proc/net/netstat"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = [line.split() for line in done.stdout.splitlines()]
        return {
            head[0].rstrip(":") + name: int(value)
            for head, values in itertools.pairwise(lines)
            if head[0] == values[0]
            for name, value in zip(head[1:], values[1:], strict=True)
            if value.lstrip("-").isdecimal() and not name.isdecimal()
        }


_names = (f"cctt{os.getpid()}x{i}" for i in itertools.count())


@pytest.fixture
def pair() -> Iterator[Pair]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("no ip and tc (iproute2)")
    made = Pair(next(_names))
    if subprocess.run(["ip", "netns", "add", made.names[0]], capture_output=True, check=False).returncode:
        pytest.skip("this machine makes no network namespaces")
    try:
        subprocess.run(["ip", "netns", "add", made.names[1]], check=True)
        text = f"link add s0 netns {made.names[0]} type veth peer name d0 netns {made.names[1]}\n"
        subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True)
        for name, device, number in ((made.names[0], "s0", 1), (made.names[1], "d0", 2)):
            lines = (
                f"link set dev lo up\nlink set dev {device} address 02:00:00:00:00:01 arp off addrgenmode none "
                f"gso_max_segs 1 up\naddress add 10.9.0.{number}/24 dev {device}\n"
                f"address add fd00::{number}/64 dev {device} nodad\n"
            )
            subprocess.run(["ip", "-netns", name, "-batch", "-"], input=lines, text=True, check=True)
        rate = "qdisc add dev s0 root handle 1: tbf rate 100mbit burst 3k limit 150k"
        subprocess.run(["tc", "-netns", made.names[0], *rate.split()], check=True)
        yield made
    finally:
        for name in made.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def run(
    program: Path, folder: Path, flows: list[TrafficFlow], *options: str, **plan: object
) -> tuple[int, str, traffic.TrafficResults | None]:
    """A run to its end; results and what it said."""
    (folder / "plan").write_text(plan_text(flows, **plan))  # type: ignore[arg-type]
    done = subprocess.run(
        [program, folder / "plan", folder, *options], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stderr, read_results(folder) if done.returncode == 0 else None


def splitmix(seed: int) -> Iterator[float]:
    """Numbers in [0, 1), written from the paper with Python's integers."""
    mask = 2**64 - 1
    while True:
        seed = seed + 0x9E3779B97F4A7C15 & mask
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield ((z ^ z >> 31) >> 11) / 2**53


def von_neumann(numbers: Iterator[float]) -> float:
    whole = 0
    while True:
        chain = [next(numbers)]
        while True:
            chain.append(next(numbers))
            if chain[-1] >= chain[-2]:
                break
        if len(chain) % 2 == 0:  # an odd number of falling ones, and the one that is not
            return whole + chain[0]
        whole += 1


def test_von_neumanns_numbers_are_exponential() -> None:
    numbers = splitmix(1)
    drawn = np.array([von_neumann(numbers) for _ in range(20_000)])
    for at in (0.1, 0.5, 1, 2, 4):
        share = np.exp(-at)
        assert np.mean(drawn > at) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 20_000))


@pytest.mark.slow
@pytest.mark.netns
def test_flows_do_what_the_plan_says(program: Path, pair: Pair, tmp_path: Path) -> None:
    flows = [
        pair.flow(0),
        pair.flow(1, cca="reno", v6=True, start_ns=S // 2, stop_ns=3 * S // 2),
        pair.flow(2, bytes=1_000_001, packet_bytes=600),
        pair.flow(3, cca="udp", rate_bps=4e6, tos=0xB9),
        pair.flow(4, cca="udp", rate_bps=4e6, arrivals="poisson", seed=77, v6=True),
        pair.flow(5, rate_bps=2e6, packet_bytes=1000),
        pair.flow(6, cca="reno", rate_bps=2e6, packet_bytes=1000, on_ns=S // 4, off_ns=S // 4),
        pair.flow(7, cca="udp", rate_bps=1e6, bytes=100_000, packet_bytes=1042, stop_ns=2 * S),
    ]
    code, errors, results = run(
        program, tmp_path, flows, duration_ns=2 * S, sample_ns=S // 10, queues=(pair.source, "s0")
    )
    assert (code, errors) == (0, "")
    assert results is not None
    table, series = results.flows.set_index("index"), results.series
    assert 2 * S <= results.end_ns - results.start_ns < 2.5 * S
    assert table.error.eq("").all()
    assert table.cca.tolist() == ["cubic", "reno", "cubic", "udp", "udp", "cubic", "reno", "udp"]
    assert (table.start_ns - results.start_ns).tolist() == [0, S // 2, 0, 0, 0, 0, 0, 0]

    # What ended did so in order and whole.
    for i in (1, 2):
        row = table.loc[i]
        assert row.written_bytes == row.acked_bytes == row.received_bytes
        assert row.start_ns < row.established_ns < row.finished_ns < results.end_ns
    assert table.acked_bytes[2] == 1_000_001
    assert table.finished_ns[1] >= results.start_ns + 3 * S // 2
    assert table.finished_ns[[0, 5, 6]].isna().all()
    assert table.received_bytes[0] >= table.acked_bytes[0] > 0

    # Full packets have the size that was asked for.
    size = series.groupby("index").mss_bytes.last()
    assert size.to_dict() == {0: 1448, 1: 1428, 2: 534, 5: 934, 6: 934}

    # Constant rates: one packet a gap; on and off: half of it. A late host may owe some.
    assert table.sent_packets[3] == pytest.approx(2 * S / (1514 * 8 / 4e6 * 1e9) + 1, abs=5)
    assert table.written_bytes[5] / 934 == pytest.approx(2 * 2e6 / 8000, abs=5)
    assert table.written_bytes[6] / 934 == pytest.approx(2e6 / 8000, abs=5)
    assert (table.written_bytes[7], table.sent_packets[7]) == (100_000, 100)

    # Poisson arrivals: those of the seed, written anew here.
    numbers, at_ns, count = splitmix(77), 0.0, 0
    while at_ns < 2 * S:
        count += 1
        at_ns += von_neumann(numbers) * 1514 * 8 / 4e6 * 1e9
    assert table.sent_packets[4] == pytest.approx(count, abs=5)

    # The kernel's own counters, which go on until the sockets are closed.
    source, sink = pair.counters(0), pair.counters(1)
    udp = table.loc[[3, 4, 7]]
    assert 0 <= sink["UdpInErrors"] + v6_errors(pair) - udp.received_packets.sum() <= 5
    assert 0 <= source["TcpRetransSegs"] - table.retransmits.sum() <= 5
    assert table.timeouts.sum() >= source["TcpExtTCPTimeouts"]
    assert (udp.received_packets <= udp.sent_packets).all()
    assert sink["TcpPassiveOpens"] == source["TcpActiveOpens"] == 5

    # Samples at every tenth of a second, of connections that were there, and of the queue.
    first = series[series["index"] == 0]
    assert len(first) == 20
    assert np.diff(first.ts_ns).min() > S // 20
    assert first.bytes_acked.is_monotonic_increasing
    assert set(series.ca_state) <= {"open", "disorder", "cwr", "recovery", "loss"}
    assert (series.min_rtt_us.dropna() < 1_000_000).all()
    queue = results.queues
    assert set(queue.kind) == {"tbf"} and set(queue.handle) == {"1:"} and set(queue.parent) == {"root"}
    assert (queue.backlog_bytes <= 150 * 1024).all() and queue.backlog_bytes.max() > 10_000
    assert queue.bytes.iloc[-1] * 8 <= 100e6 * (queue.ts_ns.iloc[-1] - results.start_ns) / S + 3 * 8192
    assert (np.diff(queue.packets) > 0).all()


def v6_errors(pair: Pair) -> int:
    done = subprocess.run(
        ["ip", "netns", "exec", pair.names[1], "cat", "/proc/net/snmp6"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("Udp6InErrors")))


@pytest.mark.slow
@pytest.mark.netns
def test_windows_limit_only_when_asked_to(program: Path, pair: Pair, tmp_path: Path) -> None:
    flows = [
        pair.flow(0, max_window_bytes=10 * 1448),
        pair.flow(1, v6=True),
        pair.flow(2, max_window_bytes=10**6),
    ]
    code, errors, results = run(program, tmp_path, flows, duration_ns=2 * S, sample_ns=S // 50)
    assert (code, errors) == (0, "")
    assert results is not None
    windows = {i: t.window_bytes.iloc[5:] for i, t in results.series.groupby("index")}
    assert windows[0].max() <= 10 * 1448
    assert 10**6 - 20_000 < windows[2].max() <= 10**6
    free = results.series[results.series["index"] == 1]
    assert (free.unacked_packets * free.mss_bytes < free.window_bytes).mean() > 0.95
    assert windows[1].max() > 5 * windows[0].max()
    assert (results.flows.received_bytes > 10**5).all()


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cca": "nosuch"}, "flow 3: congestion control nosuch: this kernel does not have it"),
        ({"source_address": "10.9.0.77"}, "flow 3: cannot use source address 10.9.0.77: Cannot assign"),
        (
            {"sink_netns": "/run/netns/nosuch"},
            "flow 3: namespace /run/netns/nosuch: No such file or directory",
        ),
        ({"sink_netns": "/etc/passwd"}, "flow 3: cannot enter namespace /etc/passwd: Invalid argument"),
    ],
)
def test_a_flow_that_cannot_be_set_up_is_named(
    program: Path, pair: Pair, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    code, errors, _ = run(program, tmp_path, [pair.flow(0), pair.flow(3, **changes)], duration_ns=S)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"traffic: {message}")
    assert not (tmp_path / "flows.csv").exists()


@pytest.mark.netns
def test_a_connection_that_fails_leaves_the_others(program: Path, pair: Pair, tmp_path: Path) -> None:
    subprocess.run(["ip", "-netns", pair.names[1], "address", "add", "10.9.9.2/32", "dev", "d0"], check=True)
    flows = [pair.flow(0), pair.flow(1, sink_address="10.9.9.2", start_ns=S // 10)]
    code, errors, results = run(program, tmp_path, flows, duration_ns=S // 2)
    assert code == 0
    assert errors.startswith("traffic: flow 1: at 0.1") and errors.endswith(": Network is unreachable\n")
    assert results.flows.error.tolist() == ["", "Network is unreachable"]
    assert results.flows.established_ns.notna().tolist() == [True, False]
    assert results.flows.acked_bytes[0] > 1_000_000


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_its_results(
    program: Path, pair: Pair, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "plan").write_text(plan_text([pair.flow(0)], duration_ns=60 * S, sample_ns=S // 10))
    process = subprocess.Popen([program, tmp_path / "plan", tmp_path])
    try:
        time.sleep(0.7)
        process.send_signal(number)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    results = read_results(tmp_path)
    assert results.end_ns - results.start_ns < 30 * S
    assert results.flows.acked_bytes[0] > 0
    assert len(results.series) >= 3


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.parametrize("spin", [False, True])
def test_a_controller_is_called_and_obeyed(program: Path, pair: Pair, tmp_path: Path, spin: bool) -> None:
    """At every interval it sees the connections of the moment; what it answers is run before the next."""
    (tmp_path / "control").mkdir()
    seen: list[tuple[int, pd.DataFrame]] = []

    def controller() -> None:
        for k in itertools.count(1):
            status, answer = (tmp_path / "control" / f"{name}.{k}" for name in ("status", "answer"))
            while not status.exists():
                if (tmp_path / "control" / "end").exists():
                    return
                time.sleep(0.002)
            time_ns = struct.unpack("<8sq", status.read_bytes()[:16])[1]  # CLOCK_REALTIME
            seen.append((time_ns, read_series(status)))
            text = (
                ""
                if k == 3
                else f"qdisc change dev s0 root handle 1: tbf rate {k}0mbit burst 3k limit 150k\n"
            )
            (tmp_path / "answer").write_text(text)
            (tmp_path / "answer").rename(answer)

    thread = threading.Thread(target=controller, daemon=True)
    thread.start()
    flows = [pair.flow(0), pair.flow(1, start_ns=S // 2)]
    control = Control(
        interval_ns=S // 4, directory=str(tmp_path / "control"), spin=spin,
        command=("tc", "-netns", pair.names[0], "-batch"),
    )  # fmt: skip
    code, errors, results = run(program, tmp_path, flows, duration_ns=S + S // 10, control=control)
    thread.join(120)
    assert (code, errors) == (0, "")
    assert [(t - results.start_ns) * 4 // S for t, _ in seen] == [1, 2, 3, 4]
    assert [sorted(table["index"]) for _, table in seen] == [[0], [0], [0, 1], [0, 1]]
    assert all((table.ts_ns == t).all() for t, table in seen)
    acked = [table.bytes_acked[0] for _, table in seen]
    assert acked == sorted(acked) and acked[0] > 0
    shown = subprocess.run(
        ["tc", "-netns", pair.names[0], "qdisc", "show", "dev", "s0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rate 40Mbit" in shown.stdout
    assert [p.name for p in (tmp_path / "control").iterdir()] == ["end"]


@pytest.mark.netns
def test_an_answer_that_is_no_command_ends_the_run(program: Path, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "answer.1").write_text(
        "qdisc change dev nosuch root tbf rate 1mbit burst 3k limit 10k\n"
    )
    control = Control(
        interval_ns=S // 10,
        directory=str(tmp_path / "control"),
        command=("tc", "-netns", pair.names[0], "-batch"),
    )
    code, errors, _ = run(program, tmp_path, [pair.flow(0)], duration_ns=5 * S, control=control)
    assert code == 1
    assert "control: at 0.1" in errors and "tc did not accept the answer (status 1)" in errors


@pytest.mark.slow
@pytest.mark.netns
def test_two_processes_on_two_hosts_make_the_same_run(program: Path, pair: Pair, tmp_path: Path) -> None:
    """As on physical machines: each opens its own ends where it was started, at one time."""
    flows = [
        pair.flow(0, source_netns="left", sink_netns="right", bytes=500_000),
        pair.flow(1, source_netns="right", sink_netns="left", source_address="10.9.0.2", sink_address="10.9.0.1",
                  cca="udp", rate_bps=1e6),
    ]  # fmt: skip
    (tmp_path / "plan").write_text(plan_text(flows, duration_ns=S, sample_ns=S // 4))
    epoch_ns = time.time_ns() + S // 2
    processes = []
    for name, netns in zip(("left", "right"), pair.names, strict=True):
        (tmp_path / name).mkdir()
        processes.append(
            subprocess.Popen(
                ["ip", "netns", "exec", netns, program, tmp_path / "plan", tmp_path / name, "--host", name,
                 "--epoch", str(epoch_ns)]
            )
        )  # fmt: skip
    try:
        assert [p.wait(120) for p in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    left, right = (read_results(tmp_path / name) for name in ("left", "right"))
    assert left.start_ns == right.start_ns == epoch_ns
    assert left.flows.acked_bytes[0] == right.flows.received_bytes[0] == 500_000
    assert left.flows.received_bytes.isna()[0] and right.flows.acked_bytes.isna()[0]
    assert left.flows.received_packets[1] == pytest.approx(S * 1e6 / 8e9 / 1514, abs=3)


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_it_makes_few_system_calls(pair: Pair, tmp_path: Path) -> None:
    """Less than one for three packets of a flow that sends all it can, both its ends together."""
    (tmp_path / "plan").write_text(plan_text([pair.flow(0, cca="reno")], duration_ns=2 * S))
    command = ["strace", "-c", "-o", tmp_path / "calls", traffic.binary(), tmp_path / "plan", tmp_path]
    subprocess.run(command, check=True, timeout=30)
    total = next(
        line.split() for line in (tmp_path / "calls").read_text().splitlines() if line.endswith("total")
    )
    packets = read_results(tmp_path).flows.sent_packets[0]
    assert packets > 5000
    assert int(total[2 if total[2].isdecimal() else 3]) < packets / 3
