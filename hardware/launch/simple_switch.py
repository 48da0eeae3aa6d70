"""BMv2's ``simple_switch`` in a network namespace: one of its own, or one that is there.

Its own has no name: it and its links are gone when the switch ends, and the switch ends with the process that started
it, however that ends. The control port can be reached from inside the namespace only.
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
_STARTS_S = 20
#: Ports are veth pairs: pN is the switch's end, hN the other. Without IPv6, or the kernel would send of itself.
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
#: Where a device may have larger packets than its MTU, libpcap's ring has room for 32, and the rest is lost.
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
    """A switch that runs.

    Attributes
    ----------
    pid : int
        Of the switch.
    namespace : str
        Path of its network namespace; link ``hN`` in it is the far end of port N.
    control : Bmv2Switch
    """

    pid: int
    namespace: str
    control: Bmv2Switch


def missing() -> str:
    """What is missing on this machine, in words; empty if nothing is."""
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
    """Start a compiled program, and end it.

    Parameters
    ----------
    program : path
        JSON made by ``p4c-bm2-ss``.
    ports : int
        How many, from 0.
    queues : int
        Priority queues of each port.
    namespace : str, optional
        A network namespace, as a file, in which links ``p0``, ``p1``, … are there already; otherwise one is made.
    log : path, optional
        For what the switch says; where it was compiled with logging, that is every packet.
    cpu : int, optional
        The only one it may use.

    Raises
    ------
    TestbedUnavailableError
        Something is missing on this machine.
    SwitchGoneError
        It did not start.
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
    # both ends of the socket are open: its name, which would stay behind if this process is killed, is not needed
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
    until = time.monotonic() + _STARTS_S
    while True:
        if process.poll() is not None:
            said = process.stdout.read().strip().splitlines() if process.stdout is not None else []
            raise SwitchGoneError(
                f"simple_switch: {said[-1] if said else f'ended with {process.returncode}'}"
            )
        # until the command is the switch, the namespace may still be this process's own
        name = Path(f"/proc/{process.pid}/comm").read_text().strip()
        if name == "simple_switch":
            try:
                return Bmv2Switch("127.0.0.1", THRIFT_PORT, notifications=notifications, namespace=namespace)
            except SwitchGoneError:
                pass
        if time.monotonic() > until:
            raise SwitchGoneError(f"simple_switch: does not answer after {_STARTS_S} s: {' '.join(command)}")
        time.sleep(0.05)
