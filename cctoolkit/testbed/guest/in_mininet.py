#!/usr/bin/env python3
"""Run a plan with Mininet: Mininet makes hosts and links, plan.json has their settings.

    sudo python3 in_mininet.py

in a directory with plan.json, the plan of the traffic program `traffic.plan`, and the program itself, `traffic`. It
does not need cctoolkit, so the directory can be copied to a machine with Mininet. Captures and results appear in
it. Exits with status 0, or 1 with one line on standard error.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from mininet.net import Mininet  # type: ignore[import-not-found]

#: Time between setup and start of the run, and from its end until the taps have seen every packet.
LEAD_S, DRAIN_S = 0.3, 1.5
LINKS_S = 10
WRITE_SETTINGS = 'while read -r path value; do echo "$value" >"/proc/sys/$path" || exit; done'


class Problem(Exception):
    """A one-line message for the user."""


def tool(node, command, text=""):
    """Run a program on a host and return its output."""
    process = node.popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(text.encode(), timeout=60)
    if process.returncode:
        output = " ".join(err.decode(errors="replace").split()) or f"status {process.returncode}"
        raise Problem(f"{node.name}: {' '.join(command)}: {output}")
    return out.decode()


def build(plan):
    """Make and configure hosts and links; link their namespaces in the directory `ns`."""
    net = Mininet(controller=None)
    for name in plan["hosts"]:
        net.addHost(name, ip=None)
    for host, device, peer_host, peer_device in plan["links"]:
        net.addLink(net.get(host), net.get(peer_host), intfName1=device, intfName2=peer_device)
    net.start()
    os.mkdir("ns")
    for name, host in plan["hosts"].items():
        node = net.get(name)
        os.symlink(f"/proc/{node.pid}/ns/net", "ns/" + name)
        settings = "".join(f"{path} {value}\n" for path, value in host["sysctls"].items())
        tool(node, ["sh", "-c", WRITE_SETTINGS], settings)
        for program in ("ip", "tc"):
            if host[program]:
                tool(node, [program, "-batch", "-"], "".join(line + "\n" for line in host[program]))
    if os.path.exists("netlink.messages"):
        tool(net.get("R"), ["./netlink", "rb", "netlink.messages"])
    for name in plan["hosts"]:
        wait_for_links(net.get(name))
    return net


def wait_for_links(node):
    """Wait until all links are up: the kernel checks once a second, and packets sent before that are lost."""
    end = time.monotonic() + LINKS_S
    while True:
        links = filter(None, json.loads(tool(node, ["ip", "-json", "link", "show", "up"])))
        down = [x["ifname"] for x in links if x["operstate"] not in ("UP", "UNKNOWN")]
        if not down:
            return
        if time.monotonic() > end:
            raise Problem(f"{node.name}: {', '.join(down)} did not come up in {LINKS_S} s")
        time.sleep(0.05)


def tap(node, device, name, snaplen):
    """Start tcpdump on a device and wait until it listens."""
    command = ["tcpdump", "-i", device, "-s", str(snaplen), "-B", "32768", "--time-stamp-precision=nano"]
    with open(name + ".pcap", "wb") as out:
        process = node.popen([*command, "-Z", "root", "-w", "-"], stdout=out, stderr=subprocess.PIPE)
    output = ""
    for line in process.stderr:
        output = line.decode(errors="replace").strip()
        if "listening on" in output:
            return process
    raise Problem(f"tcpdump on {device}: {output or 'did not start'}")


def stop_tap(process, name):
    process.send_signal(signal.SIGINT)
    output = process.stderr.read().decode(errors="replace")
    process.wait()
    dropped = re.search(r"(\d+) packets? dropped by kernel", output)
    if dropped is None or int(dropped.group(1)):
        raise Problem(
            f"the {name} capture is incomplete: {' '.join(output.split()) or 'tcpdump printed nothing'}"
        )


def run(plan, net):
    router = net.get("R")
    taps = [
        (tap(router, device, name, plan["snaplen"]), name)
        for device, name in (("ra", "ingress"), ("rb", "egress"))
    ]
    epoch_s = time.time() + LEAD_S
    command = ["./traffic", "traffic.plan", ".", "--epoch", str(int(epoch_s * 1e9))]
    traffic = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    changes = list(plan["changes"])
    while traffic.poll() is None:
        since_s = time.time() - epoch_s
        while changes and changes[0][0] <= since_s * 1e9:
            tool(router, ["tc", "-batch", "-"], "".join(line + "\n" for line in changes.pop(0)[1]))
        wait_s = min(0.05, max(changes[0][0] / 1e9 - since_s, 0)) if changes else 0.05
        with contextlib.suppress(subprocess.TimeoutExpired):
            traffic.wait(wait_s)
    if traffic.returncode and traffic.stderr is not None:
        output = traffic.stderr.read().decode(errors="replace").strip().splitlines()
        raise Problem(output[-1].split("traffic: ", 1)[-1] if output else "the traffic program failed")
    with open("qdisc.json", "w") as out:
        out.write(tool(router, ["tc", "-s", "-j", "qdisc", "show", "dev", "rb"]))
    time.sleep(DRAIN_S)
    for process, name in taps:
        stop_tap(process, name)


def main():
    with open("plan.json") as file:
        plan = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    net = None
    try:
        net = build(plan)
        run(plan, net)
    except Problem as problem:
        print(f"mininet: {problem}", file=sys.stderr)
        return 1
    finally:
        if net is not None:
            net.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
