"""The ``netns`` backend: network namespaces on the host's own kernel, in real time. Needs root.

All boxes of a plan are namespaces whose names start with the plan's prefix. A small watchdog process removes them when
the run ends, or this process, however it ends.

A busy machine affects the result: packets leave late while the CPU has other work. All processes of a run share one
CPU, so that no packet overtakes another.

Kernels without netem (see ``cct testbed doctor``) cannot delay packets. There, TUN devices on the way back delay
packets by the whole round trip: RTTs are right, but queues see data as soon as it is sent, whatever ``access_ms``
is, UDP is not delayed at all, and there is no ``loss`` and no ``jitter_ms``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from .._support.children import ending_with_parent
from ..errors import TestbedUnavailableError
from . import doctor, traffic
from .errors import TestbedError
from .modules import set_module_parameters
from .netlink import needs_netlink, qdisc_messages
from .plan import MACHINE_SYSCTLS, Plan, TapSettings, batch, without_ipv6

__all__ = ["Switch", "run"]

#: Starts a switch on the devices ``p0`` (senders) and ``p1`` (receivers) of a namespace, given as a file; yields its
#: provenance, and stops the switch when the block ends.
Switch = Callable[[str], contextlib.AbstractContextManager[dict[str, Any]]]

_GUEST = Path(__file__).with_name("guest")
#: Time between setup and start of the run, and from its end until the taps have seen every packet.
_LEAD_NS = 300_000_000
_DRAIN_S = 1.5
_LINKS_S = 10
#: Removes all namespaces whose names start with $1, and what runs in them, when its standard input closes.
_KEEPER = """
trap '' INT TERM HUP
read -r _
ip netns list | while read -r name _; do
    case $name in "$1"*)
        ip netns pids "$name" | xargs -r kill -9
        ip netns del "$name" ;;
    esac
done
"""


def run(
    plan: Plan,
    directory: Path,
    recording: TapSettings,
    *,
    poll: Callable[[], None] | None = None,
    progress: Callable[[float], None] | None = None,
    switch: Switch | None = None,
) -> dict[str, Any]:
    """Run a plan in namespaces.

    Parameters
    ----------
    plan : Plan
        What to run, with a prefix that no other namespace has.
    directory : Path
        An empty directory for ``ingress.pcap``, ``egress.pcap``, the results of the traffic program and
        ``qdisc.json``.
    recording : TapSettings
        What to record.
    poll : function, optional
        Called repeatedly during the run, to answer a controller's requests.
    progress : function, optional
        Called with the time so far in s.
    switch : function, optional
        Starts the switch between ``R:rb`` and ``B:br`` of a plan :meth:`~.plan.Plan.with_switch`.

    Returns
    -------
    dict
        Provenance of the run.

    Raises
    ------
    TestbedUnavailableError
        This machine lacks something that the plan needs.
    TestbedError
        The run failed, or a tap lost packets.
    """
    doctor.require("netns")
    doctor.require_kernel("netns", plan, spare=("netem",))
    held = _held(plan)
    (directory / "control").mkdir()
    with _namespaces(plan), contextlib.ExitStack() as stack:
        _set_up(plan, directory, held, stack)
        about: dict[str, Any] = {}
        if switch is not None:
            # it gets raw frames, whose checksums nobody fills in later
            for name, device in (("R", "rb"), ("B", "br")):
                _tool(["ip", "netns", "exec", plan.prefix + name, "ethtool", "-K", device, "tx", "off"])
            about = stack.enter_context(switch(plan.netns("W")))
        taps = [
            _tap(plan, directory, host, device, name, recording, stack)
            for host, device, name in (
                ("R", "ra", "ingress"),
                (*(("R", "rb") if switch is None else ("B", "br")), "egress"),
            )
        ]
        _traffic(plan, directory, recording, poll, progress, stack)
        text = _tool(["tc", "-s", "-j", "-netns", plan.prefix + "R", "qdisc", "show", "dev", "rb"])
        (directory / "qdisc.json").write_text(text, encoding="utf-8")
        time.sleep(_DRAIN_S)
        for process, name in zip(taps, ("ingress", "egress"), strict=True):
            _stop_tap(process, name)
    return {
        "backend": "netns",
        "kernel": platform.release(),
        "delays": "netem"
        if held is None
        else "the whole round trip on the way back, by TUN devices (no netem)",
        **about,
    }


def _held(plan: Plan) -> dict[str, int] | None:
    """Delay of packets from each receiver in ns if there is no netem; None if there is.

    Raises
    ------
    TestbedUnavailableError
        A flow needs other features of netem.
    """
    if "netem" in doctor.host_qdiscs():
        return None
    held = {}
    for spec, group in zip(plan.scenario.flow_list(), plan.group_of, strict=True):
        for field, value in (("loss", spec.loss), ("jitter_ms", spec.jitter_ms)):
            if value:
                raise TestbedUnavailableError(
                    f"netns: kernel {platform.release()} has no netem, which flow.{field} needs"
                )
        if spec.rtt_ms:
            held[f"D{group}"] = round(spec.rtt_ms * 1e6)
    if held and not Path("/dev/net/tun").exists():
        raise TestbedUnavailableError(
            f"netns: kernel {platform.release()} has neither netem nor /dev/net/tun to delay packets with"
        )
    return held


# ---- namespaces and processes ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _namespaces(plan: Plan) -> Iterator[None]:
    """Have a watchdog process remove the namespaces of the plan when the block ends."""
    if not plan.prefix:
        raise ValueError("the plan has no prefix: its namespaces could clash with others")
    keeper = subprocess.Popen(
        ["sh", "-c", _KEEPER, "sh", plan.prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert keeper.stdin is not None
    try:
        yield
    finally:
        keeper.stdin.close()
        keeper.wait()


def _start(
    command: Sequence[str], stack: contextlib.ExitStack, *, one_cpu: bool = True, **streams: Any
) -> subprocess.Popen[str]:
    pin = functools.partial(os.sched_setaffinity, 0, {max(os.sched_getaffinity(0))})
    process = subprocess.Popen(
        command,
        text=True,
        start_new_session=True,  # a Ctrl-C reaches only this process, which then cleans up
        preexec_fn=ending_with_parent(pin if one_cpu else None),  # noqa: PLW1509
        **streams,
    )

    def end() -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    stack.callback(end)
    return process


def _tool(command: list[str], text: str | None = None) -> str:
    """Run a tool and return its output; raise its error message as a TestbedError."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        output = [
            x.strip() for x in done.stderr.splitlines() if x.strip() and not x.startswith("Command failed")
        ]
        at = re.search(r"Command failed -:(\d+)", done.stderr)
        line = f" (in: {text.splitlines()[int(at[1]) - 1]})" if at and text else ""
        raise TestbedError(
            f"netns: {' '.join(command)}: {' '.join(output) or f'status {done.returncode}'}{line}"
        )
    return done.stdout


def _set_up(plan: Plan, directory: Path, held: dict[str, int] | None, stack: contextlib.ExitStack) -> None:
    set_module_parameters(plan.modules)
    _tool(["ip", "-batch", "-"], batch(plan.link_lines()))
    for name, host in plan.hosts.items():
        # A new namespace has the kernel's defaults, and no access to settings of the machine.
        own = {
            path: value
            for path, value in MACHINE_SYSCTLS.items()
            if path.startswith("net/ipv4/") and "tcp_mem" not in path
        }
        settings = own | {"net/ipv4/tcp_no_metrics_save": "1", "net/ipv4/conf/all/rp_filter": "0"}
        settings |= {"net/ipv4/conf/default/rp_filter": "0"} | host.sysctls
        script = 'while read -r path value; do echo "$value" >"/proc/sys/$path" || exit; done'
        text = batch(f"{path} {value}" for path, value in settings.items())
        _tool(["ip", "netns", "exec", plan.prefix + name, "sh", "-c", script], text)
    if held:
        _hold(plan, held, stack)
    for name, host in plan.hosts.items():
        addresses, queues = host.ip, host.tc
        if held is not None:
            addresses, queues = _without_netem(name in held, host.ip, host.tc)
        for tool, lines in (("ip", addresses), ("tc", [x for x in queues if not needs_netlink(x)])):
            if lines:
                _tool([tool, "-netns", plan.prefix + name, "-batch", "-"], batch(lines))
    messages = qdisc_messages(filter(needs_netlink, plan.hosts["R"].tc))
    if messages:
        (directory / "netlink").write_bytes(messages)
        program = str(traffic.binary(_GUEST / "netlink.c"))
        _tool(["ip", "netns", "exec", plan.prefix + "R", program, "rb", str(directory / "netlink")])
    _wait_for_links(plan)


def _wait_for_links(plan: Plan) -> None:
    """Wait until all links are up: the kernel checks once a second, and packets sent before that are lost."""
    end = time.monotonic() + _LINKS_S
    for name in plan.hosts:
        while True:
            text = _tool(["ip", "-json", "-netns", plan.prefix + name, "link", "show", "up"])
            links = filter(None, json.loads(text))  # entries of links that are not up are empty
            down = [x["ifname"] for x in links if x["operstate"] not in ("UP", "UNKNOWN")]
            if not down:
                break
            if time.monotonic() > end:
                raise TestbedError(f"netns: {name}: {', '.join(down)} did not come up in {_LINKS_S} s")
            time.sleep(0.05)


def _without_netem(held: bool, addresses: list[str], queues: list[str]) -> tuple[list[str], list[str]]:
    """Lines of a host without delays, and with the way back through its TUN device if packets are held there."""
    ifb = re.compile(r" (dev|name) i\d+\b")  # devices needed only for netem
    addresses = [x for x in addresses if not ifb.search(x)]
    if held:
        addresses = [re.sub(r"^(route add \S+) dev d0 ", r"\1 dev hold ", x) for x in addresses]
    return addresses, [
        x for x in queues if doctor.added_qdisc(x) != "netem" and not ifb.search(x) and " clsact" not in x
    ]


def _hold(plan: Plan, held: dict[str, int], stack: contextlib.ExitStack) -> None:
    """Give receivers and B TUN devices, and move packets from the former to the latter with each receiver's delay."""
    sides = [word for name, delay_ns in held.items() for word in (plan.netns(name), str(delay_ns))]
    command = [str(traffic.binary(_GUEST / "hold.c")), plan.netns("B"), *sides]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = _start(command, stack, **pipes)
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline() != "ready\n":
        raise TestbedError(f"netns: {process.stderr.read().strip() or 'hold did not start'}")
    for name in ("B", *held):
        line = f"link set dev hold mtu {plan.mtu} txqueuelen 100000{without_ipv6(plan.mtu)} up\n"
        _tool(["ip", "-netns", plan.prefix + name, "-batch", "-"], line)


# ---- the run ---------------------------------------------------------------------------------------------------------


def _tap(
    plan: Plan,
    directory: Path,
    host: str,
    device: str,
    name: str,
    recording: TapSettings,
    stack: contextlib.ExitStack,
) -> subprocess.Popen[str]:
    """Start tcpdump on a device and wait until it listens."""
    command = [
        "ip",
        "netns",
        "exec",
        plan.prefix + host,
        "tcpdump",
        "-i",
        device,
        "-s",
        str(recording.snaplen),
    ]
    # It stays root, because a process that changes its user no longer dies with its parent.
    command += ["-B", "32768", "--time-stamp-precision=nano", "-Z", "root", "-w", "-"]
    with (directory / f"{name}.pcap").open("wb") as out:
        process = _start(command, stack, one_cpu=False, stdout=out, stderr=subprocess.PIPE)
    output: list[str] = []
    for line in _stderr(process):
        if "listening on" in line:
            return process
        output.append(line.strip())
    raise TestbedError(f"netns: tcpdump on {device}: {output[-1] if output else 'did not start'}")


def _stderr(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stderr is not None
    return process.stderr


def _stop_tap(process: subprocess.Popen[str], name: str) -> None:
    process.send_signal(signal.SIGINT)
    output = _stderr(process).read()
    process.wait()
    dropped = re.search(r"(\d+) packets? dropped by kernel", output)
    if dropped is None or int(dropped[1]):
        raise TestbedError(
            f"netns: the {name} capture is incomplete: {' '.join(output.split()) or 'tcpdump printed nothing'}"
        )


def _traffic(
    plan: Plan,
    directory: Path,
    recording: TapSettings,
    poll: Callable[[], None] | None,
    progress: Callable[[float], None] | None,
    stack: contextlib.ExitStack,
) -> None:
    command = ("tc", "-netns", plan.prefix + "R", "-batch")
    # The program works in the run's directory, so a controller's files can have any path.
    (directory / "traffic").write_text(
        plan.traffic_text(recording, "control", command, spin=False), encoding="utf-8"
    )
    epoch_ns = time.time_ns() + _LEAD_NS
    paths = (traffic.binary(), directory / "traffic", directory)
    program = [*map(str, paths), "--epoch", str(epoch_ns)]
    process = _start(program, stack, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    changes = list(plan.changes)
    while process.poll() is None:
        if poll is not None:
            poll()
        now_ns = time.time_ns() - epoch_ns
        while changes and changes[0][0] <= now_ns:
            _tool(["tc", "-netns", plan.prefix + "R", "-batch", "-"], batch(changes.pop(0)[1]))
        if progress is not None:
            progress(max(now_ns, 0) / 1e9)
        wait_s = 0.002 if poll is not None else 0.05
        if changes:
            wait_s = min(wait_s, max((changes[0][0] - now_ns) / 1e9, 0))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
    if process.returncode:
        output = _stderr(process).read().strip().splitlines()
        what = output[-1].removeprefix("traffic: ") if output else "the traffic program failed"
        raise TestbedError(f"netns: {what}")
