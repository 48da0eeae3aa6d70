"""The ``mininet`` backend: the same plan on Mininet's hosts and links, in real time. Needs root and Mininet.

The Mininet package belongs to the system's Python, so a separate program runs there (``guest/in_mininet.py``) and
reads the plan from its directory. It runs in process and network namespaces, which end with it, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._support.children import ending_with_parent
from . import doctor, traffic
from .errors import TestbedError
from .modules import set_module_parameters
from .netlink import needs_netlink, qdisc_messages
from .plan import Plan, TapSettings, make_plan

__all__ = ["run", "write"]

_GUEST = Path(__file__).with_name("guest")
#: Settings of a new host: buffers that do not limit, and no metrics cached between flows.
_SYSCTLS = {
    "net/ipv4/tcp_rmem": "4096 131072 268435456",
    "net/ipv4/tcp_wmem": "4096 65536 268435456",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/conf/all/rp_filter": "0",
}


def write(plan: Plan, directory: Path, recording: TapSettings) -> None:
    """Write everything that ``in_mininet.py`` needs into a directory, which can be run on another machine.

    Parameters
    ----------
    plan : Plan
        The plan; only its scenario counts, since names of namespaces change.
    directory : Path
        Where to write.
    recording : TapSettings
        What to record.
    """
    plan = make_plan(plan.scenario, directory="ns", virtual=False, offload=plan.offload)
    hosts = {
        name: {
            "sysctls": _SYSCTLS | host.sysctls,
            "ip": host.ip,
            "tc": [line for line in host.tc if not needs_netlink(line)],
        }
        for name, host in plan.hosts.items()
    }
    links = [(x.host, x.device, x.peer_host, x.peer_device) for x in plan.links]
    table = {"hosts": hosts, "links": links, "changes": plan.changes, "snaplen": recording.snaplen}
    (directory / "plan.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    command = ("nsenter", "--net=ns/R", "tc", "-batch")
    text = plan.traffic_text(recording, "control", command, spin=False)
    (directory / "traffic.plan").write_text(text, encoding="utf-8")
    (directory / "control").mkdir()
    programs = {"in_mininet.py": _GUEST / "in_mininet.py", "traffic": traffic.binary()}
    messages = qdisc_messages(filter(needs_netlink, plan.hosts["R"].tc))
    if messages:
        (directory / "netlink.messages").write_bytes(messages)
        programs["netlink"] = traffic.binary(_GUEST / "netlink.c")
    for name, source in programs.items():
        shutil.copyfile(source, directory / name)
        (directory / name).chmod(0o755)


def run(
    plan: Plan,
    directory: Path,
    recording: TapSettings,
    *,
    poll: Callable[[], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Run a plan with Mininet.

    Parameters
    ----------
    plan : Plan
        What to run.
    directory : Path
        An empty directory for the output of :func:`write`, ``ingress.pcap``, ``egress.pcap``, the results of the
        traffic program and ``qdisc.json``.
    recording : TapSettings
        What to record.
    poll : function, optional
        Called repeatedly during the run, to answer a controller's requests.
    progress : function, optional
        Called with the time in s since hosts were set up.

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
    doctor.require("mininet")
    doctor.require_kernel("mininet", plan)
    set_module_parameters(plan.modules)
    python = doctor.mininet_python()
    assert python is not None
    write(plan, directory, recording)
    # When this process dies, so does unshare, then the first process of the namespace, then all others.
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (directory / "output").open("w+b") as output:
        process = subprocess.Popen(
            [*apart, python, "in_mininet.py"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ending_with_parent(),  # noqa: PLW1509
        )
        try:
            while process.poll() is None:
                if poll is not None:
                    poll()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05 if poll is None else 0.002)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            output.seek(0)
            lines = [x.decode(errors="replace").strip() for x in output if x.strip()]
            raise TestbedError(
                next(
                    (x for x in lines if x.startswith("mininet: ")),
                    f"mininet: {lines[-1] if lines else 'failed'}",
                )
            )
    done = subprocess.run(
        [python, "-c", "import mininet.net; print(mininet.net.VERSION)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "backend": "mininet",
        "kernel": platform.release(),
        "mininet": done.stdout.strip(),
        "delays": "netem",
    }
