"""The live collector: the Dragonfly paper's Table II, and how often flows under way are named right.

Needs root and iperf3. A sender, a router and a receiver in namespaces. For Table II (packets per second, what is lost,
what it costs, time to build) the router forwards as fast as it can; for names there is a bottleneck.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from live_network import Network, network, why_not

from cctoolkit.identify.live import KernelCollector, Update, watch
from cctoolkit.identify.live.naming import load_classifier

FLOWS = 4
SEGMENT_S = 1.5
SAMPLINGS = ("all", "first", 0.1)
#: A bottleneck at which CUBIC is beyond its crossover, and so grows otherwise than Reno.
RATE_MBPS, RTT_MS, BUFFER_BDP = 50, 50, 3
CCAS = ("reno", "cubic", "bbr")
#: So long after it is seen a flow's name is looked at.
AGES_S = (2, 4, 10)


def run(directory: Path, packets: int | None, repeat: int) -> dict[str, pd.DataFrame]:
    if why_not("iperf3", "chrt", "ss"):
        print(f"  cannot run here: {why_not('iperf3', 'chrt', 'ss')}")
        return {}
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # hosts and the router are not one machine
    named, rates = _names(repeat), _table_2(repeat)
    cost = rates.groupby("offload", sort=False)
    costs = pd.DataFrame(
        {
            "median_least": cost.cost_percent.min(),
            "median_most": cost.cost_percent.max(),
            "least": cost.cost_least.min(),
            "most": cost.cost_most.max(),
        }
    )
    return {"names": named, "rates": rates, "costs": costs.reset_index()}


def _table_2(repeat: int) -> pd.DataFrame:
    rows = []
    with network() as net:
        server = net.start("D", "iperf3", "-s", stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        for offload in (False, True):
            net.offload(offload)
            seconds = 2 + (SEGMENT_S + 1) * len(SAMPLINGS) * (2 * repeat + 2)
            address = ["-c", "10.9.2.1", "-P", str(FLOWS), "-t", str(round(seconds) + 20)]
            client = net.start("S", "iperf3", *address, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1)
            for sampling in SAMPLINGS:
                rows.append(_compare(net, offload, sampling, repeat))
            client.kill()
            client.wait()
            time.sleep(1)
        server.kill()
    return pd.DataFrame(rows)


def _names(repeat: int) -> pd.DataFrame:
    """Three flows side by side, or each alone, seen some seconds after they began."""
    model: Any = load_classifier()
    if model is None:
        print("  no model is bundled: nothing is named")
        return pd.DataFrame()
    table = []
    print(f"  names: {RATE_MBPS} Mbit/s, {RTT_MS} ms, tail drop after {BUFFER_BDP} bandwidth-delay products")
    rng = np.random.default_rng(1)
    for what, groups in (("side by side", [CCAS]), ("alone", [(cca,) for cca in CCAS])):
        right: dict[str, list[list[bool]]] = {cca: [] for cca in CCAS}
        for _ in range(repeat):
            for group in groups:
                for cca, (names, likely) in _watched(group, model, lead_s=rng.uniform(4, 12)).items():
                    right[cca].append([name == cca for name in (*names, *likely)])
                    answers = [f"{n or '-'} ({m})" for n, m in zip(names, likely, strict=True)]
                    print(f"    {what}, {cca}: {', '.join(answers)}", flush=True)
        for cca, rows in right.items():
            counts = np.sum(rows, axis=0)
            shares = [f"{n} at {age_s} s" for n, age_s in zip(counts, AGES_S, strict=False)]
            among = [f"{n} at {age_s} s" for n, age_s in zip(counts[len(AGES_S) :], AGES_S, strict=True)]
            print(
                f"  {what}, {cca}: of {len(rows)} named right {', '.join(shares)}; were it known that it is one of"
            )
            print(f"    {', '.join(CCAS)}: {', '.join(among)}", flush=True)
            ages = {f"right_{age_s}s": n for n, age_s in zip(counts, AGES_S, strict=False)}
            table.append({"flows": what, "cca": cca, "runs": len(rows)} | ages)
    return pd.DataFrame(table)


def _watched(group: tuple[str, ...], model: Any, lead_s: float) -> dict[str, tuple[list[str], list[str]]]:
    """By congestion control, its flow's names at AGES_S, and which of CCAS is the most probable then."""
    ports = {5201 + i: cca for i, cca in enumerate(group)}
    parts, reports = [], []
    with network() as net:
        net.bottleneck(RATE_MBPS, RTT_MS, BUFFER_BDP)
        for port in ports:
            net.iperf3(ports[port], port, 120)
            time.sleep(1)
        time.sleep(lead_s)
        with net.inside("R"), KernelCollector("in0", "out0") as tap:
            for update in watch(tap, heavy=len(group), classifier=model, duration_s=AGES_S[-1] + 2):
                parts.append(update.slots)
                if update.flows is not None:
                    reports.append(update.flows)
    slots = pd.concat(parts).sort_values(["flow_id", "slot"], ignore_index=True)
    named = pd.concat(reports)
    found: dict[str, tuple[list[str], list[str]]] = {}
    for port, cca in ports.items():
        flow = named[named.dport == port]
        names = [str(x) if x else "" for x in (_last(flow.cca[flow.age_s <= age_s]) for age_s in AGES_S)]
        values = slots.loc[slots.flow_id == _last(flow.flow_id), list(model.inputs)]
        array = values.to_numpy(dtype=float, na_value=np.nan)
        found[cca] = names, [_most_probable(model, array[: age_s * 1000]) for age_s in AGES_S]
    return found


def _last(values: pd.Series) -> Any:
    return values.iloc[-1] if len(values) else None


def _most_probable(model: Any, slots: np.ndarray) -> str:
    """One of CCAS, by windows of up to 3 s."""
    length = round(max(ms for ms in model.windows_ms if ms <= min(len(slots), 3000)))
    whole = len(slots) // length * length
    likely = np.log(model.predict_proba(slots[:whole].reshape(-1, length, slots.shape[1]))).mean(axis=0)
    return max(CCAS, key=lambda cca: likely[list(model.classes_).index(cca)])


def _compare(net: Network, offload: bool, sampling: str | float, repeat: int) -> dict[str, Any]:
    """With the collector and without, in turn, while the same flows run."""
    name = "offload" if offload else "no offload"
    settings: dict[str, Any] = {"heavy": FLOWS, "report_s": 0.5, "duration_s": SEGMENT_S}
    with net.inside("R"), KernelCollector("in0", "out0", sampling=sampling) as tap, _kernel_times():
        warm = list(watch(tap, **settings))  # code is compiled, memory is there
        kernel_ns, came = _kernel_ns(tap.helper), warm[-1].counts["ingress"]["packets"]
    user_s = 0.0
    updates: list[Update] = []
    last: list[Update] = []

    idle = [_rate(net, lambda: time.sleep(SEGMENT_S))]
    busy = []
    for _ in range(repeat):
        with net.inside("R"), KernelCollector("in0", "out0", sampling=sampling) as tap:
            before = Path(f"/proc/{tap.helper}/stat").read_text(encoding="ascii").split()[13:15]
            user_s -= time.process_time() + sum(map(int, before)) / 100
            busy.append(_rate(net, lambda: updates.extend(watch(tap, **settings))))
            after = Path(f"/proc/{tap.helper}/stat").read_text(encoding="ascii").split()[13:15]
            user_s += time.process_time() + sum(map(int, after)) / 100
        last.append(updates[-1])
        idle.append(_rate(net, lambda: time.sleep(SEGMENT_S)))
    off, on = np.array(idle), np.array(busy)
    cost = 100 * (1 - on / ((off[1:] + off[:-1]) / 2))  # beside the mean of before and after
    sides = [one.counts[side] for one in last for side in ("ingress", "egress", "acks")]
    lost, looked_at = (sum(side[key] for side in sides) for key in ("lost_packets", "sampled"))
    print(
        f"  {name}, sampling {sampling:<5}  off {np.median(off) / 1e3:6.1f}, on {np.median(on) / 1e3:6.1f} k packets/s"
        f" (cost {np.median(cost):5.1f} %, {cost.min():.1f} to {cost.max():.1f});"
        f" {kernel_ns / came:4.0f} ns a packet in all, {100 * kernel_ns / (SEGMENT_S * 1e9):.1f} % of a core,"
        f" user space {100 * user_s / (repeat * SEGMENT_S):.1f} %;"
        f" captured {100 * (1 - lost / max(looked_at + lost, 1)):.3f} % of"
        f" {sum(side['monitored'] for side in sides):,}, {sum(side['cells'] for side in sides):,} cells,"
        f" {sum(one.counts['late_cells'] for one in last)} late;"
        f" {sum(len(one.slots) for one in updates):,} rows built"
        f" {repeat * SEGMENT_S / sum(one.build_s for one in updates):.0f} × faster than real time",
        flush=True,
    )
    return {
        "offload": offload,
        "sampling": str(sampling),
        "without_packets_per_s": float(np.median(off)),
        "with_packets_per_s": float(np.median(on)),
        "cost_percent": float(np.median(cost)),
        "cost_least": float(cost.min()),
        "cost_most": float(cost.max()),
        "captured_percent": 100 * (1 - lost / max(looked_at + lost, 1)),
        "monitored_packets": sum(side["monitored"] for side in sides),
        "cells": sum(side["cells"] for side in sides),
        "kernel_ns_per_packet": kernel_ns / came,
        "kernel_core_percent": 100 * kernel_ns / (SEGMENT_S * 1e9),
        "user_core_percent": 100 * user_s / (repeat * SEGMENT_S),
        "build_speed": repeat * SEGMENT_S / sum(one.build_s for one in updates),
    }


def _rate(net: Network, during: Callable[[], None]) -> float:
    """Packets a second that came to the router meanwhile."""
    before, began = _forwarded(net), time.monotonic()
    during()
    return (_forwarded(net) - before) / (time.monotonic() - began)


def _forwarded(net: Network) -> int:
    text = net.command("R", "cat", "/proc/net/dev").stdout
    found = re.search(r"in0:\s*\d+\s+(\d+)", text)
    assert found
    return int(found[1])


@contextmanager
def _kernel_times() -> Iterator[None]:
    path = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = path.read_text(encoding="ascii")
    path.write_text("1", encoding="ascii")
    try:
        yield
    finally:
        path.write_text(before, encoding="ascii")


def _kernel_ns(helper: int) -> int:
    """Time that the programs of this process took so far, at all hooks."""
    about = [path.read_text(encoding="ascii") for path in Path(f"/proc/{helper}/fdinfo").iterdir()]
    return sum(int(ns) for text in about for ns in re.findall(r"^run_time_ns:\s*(\d+)", text, re.M))
