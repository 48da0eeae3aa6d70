"""Settings unlike those of training, in families: where classifiers are tested, never trained.

Each family changes one aspect and leaves the others alone, so a score shows what a classifier cannot handle. The
values come from networks, hosts and captures in use, not from any dataset of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from .._support.ethernet import FULL_FRAME_BYTES
from ..errors import ParameterError
from ..scenario import Bottleneck, Flow
from .draws import (
    PAPER_CCAS,
    Pairs,
    aqm_of,
    between,
    buffer_packets,
    drawn,
    run_rng,
    staggered,
)

__all__ = ["FAMILIES", "LIMITED_BY", "elsewhere"]

#: What limits the flows of a run of the family ``limited``.
LIMITED_BY = ("application", "pauses", "window", "access")
#: RFC 9293's default segment, PPPoE with a tunnel, Ethernet, and jumbo frames: bytes on the wire.
_FRAMES = (602, 1374, 1506, 4054, 9014)
#: Queue disciplines of the simulator and of Linux.
_AQMS = ("pie", "fq_codel", "codel", "red")


def _path(rng: np.random.Generator, link: dict[str, Any], flows: list[dict[str, Any]]) -> dict[str, Any]:
    """5 to 500 Mbit/s, 3 to 250 ms, 0.2 to 6 BDP; random loss to 2 %, jitter, and links whose rate varies."""
    kind = str(rng.choice(["plain", "loss", "jitter", "variable"]))
    for flow in flows:
        flow["rtt_ms"] = between(rng, 3, 250)
    if kind == "loss":
        flows[0]["loss"] = flows[-1]["loss"] = between(rng, 1e-4, 0.02)
    elif kind == "jitter":
        for flow in flows:
            flow["jitter_ms"] = round(float(rng.uniform(0.02, 0.2)) * flow["rtt_ms"], 3)
    elif kind == "variable":
        at, schedule = 0.0, []
        while at < 40:
            at += float(rng.uniform(0.3, 2))
            schedule.append((round(at, 3), round(link["rate_mbps"] * float(rng.uniform(0.4, 1.6)), 3)))
        link["rate_schedule"] = tuple(schedule)
    return {"path": kind}


def _aqm(rng: np.random.Generator, link: dict[str, Any], flows: list[dict[str, Any]]) -> dict[str, Any]:
    """Queue disciplines with targets of 2 to 30 ms; training has CoDel's default and RED only."""
    name = str(rng.choice(_AQMS))
    if name == "red":
        link["aqm"] = aqm_of(name, link["buffer_packets"])
        return {"aqm": name}
    target = between(rng, 2, 30)
    link["aqm"] = {"name": name, "target_ms": target}
    return {"aqm": name, "target_ms": target}


def _application(
    rng: np.random.Generator, link: dict[str, Any], flows: list[dict[str, Any]]
) -> dict[str, Any]:
    """Cross traffic that comes and goes: flows that pause, flows that end, UDP with 5 to 40 % of the link."""
    rate = link["rate_mbps"]
    for _ in range(int(rng.integers(1, 6))):
        kind = str(rng.choice(["pauses", "short", "udp"]))
        other: dict[str, Any] = {
            "rtt_ms": between(rng, 5, 100),
            "start_s": round(float(rng.uniform(0, 10)), 3),
        }
        if kind == "udp":
            other |= {
                "cca": "udp",
                "rate_mbps": round(rate * between(rng, 0.05, 0.4), 3),
                "arrivals": "poisson",
            }
        else:
            other["cca"] = str(rng.choice(PAPER_CCAS))
            if kind == "pauses":
                other |= {
                    "on_s": between(rng, 0.1, 3),
                    "off_s": between(rng, 0.1, 3),
                    "on_off": "exponential",
                }
            else:
                other["bytes"] = round(rate * 125_000 * between(rng, 0.05, 2))
        flows.append(other)
    return {"others": len(flows)}


def _capture(rng: np.random.Generator, link: dict[str, Any], flows: list[dict[str, Any]]) -> dict[str, Any]:
    """Segments of 536 to 8948 bytes."""
    frame = int(rng.choice(_FRAMES))
    for flow in flows:
        flow["packet_bytes"] = frame
    link["buffer_packets"] = max(round(link["buffer_packets"] * FULL_FRAME_BYTES / frame), 10)
    link["quantum_bytes"] = frame
    return {"packet_bytes": frame}


def _stack(rng: np.random.Generator, link: dict[str, Any], flows: list[dict[str, Any]]) -> dict[str, Any]:
    """Receivers that acknowledge every segment, and ECN with a queue that marks."""
    kind = str(rng.choice(["every segment", "ecn", "both"]))
    if kind != "ecn":
        for flow in flows:
            flow["delayed_ack"] = 1
    if kind != "every segment":
        link["aqm"] = aqm_of(str(rng.choice(["codel", "pie", "fq_codel"])), link["buffer_packets"])
        for flow in flows:
            if Flow(flow["cca"], rtt_ms=1).ecn == "off":  # others have an ECN of their own
                flow["ecn"] = "classic"
    return {"stack": kind}


def _limited(rng: np.random.Generator, link: dict[str, Any], flows: list[dict[str, Any]]) -> dict[str, Any]:
    """Flows that the bottleneck does not limit, alone or beside others that fill it."""
    limit = str(rng.choice(LIMITED_BY))
    others = int(rng.integers(0, 3))
    share = link["rate_mbps"] / (len(flows) + others)
    for flow in flows:
        rate = share * float(rng.uniform(0.08, 0.3))
        if limit == "window":
            flow["max_window"] = max(round(rate * flow["rtt_ms"] * 125 / FULL_FRAME_BYTES), 2)
        elif limit == "access":
            flow["access_mbps"] = round(rate, 3)
        else:
            flow["rate_mbps"] = round(rate, 3)
            if limit == "pauses":
                flow |= {"on_s": between(rng, 0.05, 1), "off_s": between(rng, 0.3, 2)}
    flows += [
        {"cca": str(rng.choice(PAPER_CCAS)), "rtt_ms": between(rng, 5, 100)} for _ in range(others)
    ]  # fmt: skip
    return {"limit": limit, "others": others}


_Change = Callable[[np.random.Generator, dict[str, Any], list[dict[str, Any]]], dict[str, Any]]
#: What each family changes, by its name. The last one has no flow whose congestion control shows.
FAMILIES: Mapping[str, _Change] = MappingProxyType(
    {
        "path": _path, "aqm": _aqm, "application": _application, "capture": _capture, "stack": _stack,
        "limited": _limited,
    }
)  # fmt: skip


def elsewhere(
    runs: int = 24, seed: int = 1, *, ccas: Sequence[str] = PAPER_CCAS, part: str = "path", measured_s: float = 20.0
) -> Pairs:  # fmt: skip
    """Settings unlike those of training: one flow of each congestion control through 10 to 200 Mbit/s, plus a change.

    Parameters
    ----------
    runs, seed, ccas
        As :func:`~.settings.paper`.
    part : str
        A family in :data:`FAMILIES`: the aspect that is unlike training. The family ``path`` has 5 to 500 Mbit/s.
    measured_s : float
        After all flows have started.

    Yields
    ------
    dict, Scenario
        ``family``, ``rate_mbps``, ``rtt_ms``, ``buffer_bdp`` (0.2 to 6), and what the family draws.

    Raises
    ------
    ParameterError
        There is no such family.
    """
    if part not in FAMILIES:
        raise ParameterError(f"part: {part!r} must be one of {', '.join(FAMILIES)}")
    for run in range(runs):
        rng = run_rng(seed, 10 + list(FAMILIES).index(part), run)
        rate = between(rng, 5, 500) if part == "path" else between(rng, 10, 200)
        rtt = between(rng, 10, 100)
        bdp = between(rng, 0.2, 6)
        x = float(rng.uniform(0, 3))
        link: dict[str, Any] = {"rate_mbps": rate, "buffer_packets": buffer_packets(bdp, rate, rtt)}
        flows = staggered(rng, ccas, x, rate, rtt)
        changes = FAMILIES[part](rng, link, flows)
        yield (
            {"family": part, "rate_mbps": rate, "rtt_ms": rtt, "buffer_bdp": bdp} | changes,
            drawn(
                f"elsewhere-{part}", seed, run, Bottleneck(**link), (Flow(**flow) for flow in flows), x + measured_s,
            ),
        )  # fmt: skip
