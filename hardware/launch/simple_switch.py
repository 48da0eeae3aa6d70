"""Run BMv2's ``simple_switch`` in a network namespace: a new one, or an existing one.

A new namespace has no name: it disappears with its links when the switch ends, and the switch ends with the
process that started it, however that ends. The control port is only reachable from inside the namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cctoolkit.errors import TestbedUnavailableError

from ..common.bmv2 import Bmv2Switch
from ..common.switch import SwitchGoneError

__all__ = ["Running", "missing", "running"]

THRIFT_PORT = 9090
_START_TIMEOUT_S = 20
#: Ports are veth pairs: pN is the switch's end, hN the other. IPv6 is off, or the kernel would send packets
#: itself.
_LINKS = """
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
n=0
while [ $n -lt $1 ]; do
    ip link add p$n mtu 2000 type veth peer name h$n mtu 2000
    ip link set p$n up
    ip link set h$n up
    n=$((n + 1))
done
"""
#: With offloads, packets may exceed the MTU; libpcap's ring then has room for 32 packets, and loses the
#: others.
_START = """
ip link set lo up
n=0
while [ $n -lt $1 ]; do
    ethtool -K p$n tso off gso off gro off
    n=$((n + 1))
done
shift
exec "$@"
"""


@dataclass
class Running:
    """A running switch.

    Attributes
    ----------
    pid : int
        The switch's process.
    namespace : str
        Path of its network namespace, in which link ``hN`` is the far end of port N.
    control : Bmv2Switch
    """

    pid: int
    namespace: str
    control: Bmv2Switch


def missing() -> str:
    """What is missing on this machine; empty if nothing is."""
    for tool in ("simple_switch", "ip", "ethtool", "unshare", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            return f"{tool} is not on PATH"
    return "" if os.geteuid() == 0 else "network namespaces need root"


@contextlib.contextmanager
def running(
    program: Path,
    *,
    ports: int = 2,
    queues: int = 1,
    namespace: str | None = None,
    log: Path | None = None,
    cpu: int | None = None,
) -> Iterator[Running]:
    """Run a compiled program until the block ends.

    Parameters
    ----------
    program : path
        The JSON file from ``p4c-bm2-ss``.
    ports : int
        Number of ports, counted from 0.
    queues : int
        Number of priority queues per port.
    namespace : str, optional
        Path of a network namespace that already has links ``p0``, ``p1``, …. Default: make a new one.
    log : path, optional
        Log file of the switch. If compiled with logging, the switch logs every packet.
    cpu : int, optional
        The only CPU that the switch may use.

    Raises
    ------
    TestbedUnavailableError
        Something is missing on this machine.
    SwitchGoneError
        The switch did not start.
    """
    if lack := missing():
        raise TestbedUnavailableError(f"BMv2: {lack}")
    command = ["setpriv", "--pdeathsig", "KILL", *([] if cpu is None else ["taskset", "-c", str(cpu)])]
    if namespace is None:
        command += ["unshare", "--net", "sh", "-ec", _LINKS + _START]
    else:
        command += ["nsenter", f"--net={namespace}", "sh", "-ec", _START]
    command += ["sh", str(ports), "simple_switch"]
    for port in range(ports):
        command += ["-i", f"{port}@p{port}"]
    with tempfile.TemporaryDirectory(prefix="cctoolkit-bmv2-") as folder:
        notifications = f"ipc://{folder}/notifications"
        command += ["--thrift-port", str(THRIFT_PORT), "--notifications-addr", notifications]
        command += ["--log-file", str(log)] if log else []
        command += [str(program), "--", "--priority-queues", str(queues)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        inside = f"/proc/{process.pid}/ns/net"
        try:
            control = _connected(process, command, inside, notifications)
        except BaseException:
            _end(process)
            raise
    # both ends of the socket are open now, so its file can go: it would remain if this process were killed
    try:
        with control:
            yield Running(process.pid, inside, control)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _connected(
    process: subprocess.Popen[str], command: Sequence[str], namespace: str, notifications: str
) -> Bmv2Switch:
    until = time.monotonic() + _START_TIMEOUT_S
    while True:
        if process.poll() is not None:
            output = process.stdout.read().strip().splitlines() if process.stdout is not None else []
            raise SwitchGoneError(
                f"simple_switch: {output[-1] if output else f'exit status {process.returncode}'}"
            )
        # until the process is simple_switch, it may still be in this process's namespace
        name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        if name == "simple_switch":
            try:
                return Bmv2Switch("127.0.0.1", THRIFT_PORT, notifications=notifications, namespace=namespace)
            except SwitchGoneError:
                pass
        if time.monotonic() > until:
            raise SwitchGoneError(
                f"simple_switch: did not answer within {_START_TIMEOUT_S} s: {' '.join(command)}"
            )
        time.sleep(0.05)
