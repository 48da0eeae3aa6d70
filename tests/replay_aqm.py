"""Packets that two taps of a real queue saw, and an AQM's Python model asked about each of them at the same times."""

from __future__ import annotations

import gzip
import ipaddress
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from one_queue import Compiled, packet

from cctoolkit.aqm import DROP, DROP_LATE, MARK
from cctoolkit.scenario.endpoints import SENDERS, address

#: Resolution of the guest's clock in ns (TIMER_MULTIPLIER of User Mode Linux).
TICK_NS = 256


class Seen(NamedTuple):
    """A packet at a tap; `key` is what stays the same between the taps, and differs between packets."""

    ts_ns: int
    bytes: int
    ecn: int
    source: str
    key: bytes


def seen(path) -> list[Seen]:
    """IPv4 packets of the senders at a tap."""
    data = gzip.decompress(path.read_bytes())
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D  # nanoseconds
    out, at = [], 24
    while at < len(data):
        seconds, ns, captured, size = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        assert frame[12:14] == b"\x08\x00"
        source = str(ipaddress.IPv4Address(frame[26:30]))
        if source.startswith("10.1."):
            # without TTL, ECN and checksums; the IP ID tells UDP's packets from each other
            key = (
                frame[16:20]
                + frame[23:24]
                + frame[26:42]
                + (frame[42:50] + frame[54:] if frame[23] == 6 else b"")
            )
            out.append(Seen(seconds * 10**9 + ns, size, frame[15] & 3, source, key))
    assert len({p.key for p in out}) == len(out)
    return out


@dataclass
class Replay:
    """What the model made of the packets."""

    arrived: int = 0
    left: int = 0
    marked: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: {"full": 0, "enqueue": 0, "dequeue": 0})
    #: departures that are another packet than the model's, or one with another ECN field: (number, time in ns)
    other: list[tuple[int, int]] = field(default_factory=list)


def replayed(scenario, folder, aqm, *, seed: int = 0) -> Replay:
    """Give the model the arrivals, let it decide as often as packets left, and compare which did.

    Time counts from the first packet, as in the modules. Of what happens in one tick, a departure comes first (the
    shaper's timer), then an update, then an arrival. A timer that is due between two ticks runs at the next.
    """
    limit = scenario.bottleneck.queue_list()[0].buffer_packets
    aggregates = {address(SENDERS, i): flow.aggregate for i, flow in enumerate(scenario.flow_list())}
    arrivals, departures = seen(folder / "ingress.pcap.gz"), seen(folder / "egress.pcap.gz")
    start_ns = arrivals[0].ts_ns
    model = Compiled(aqm, seed=seed)
    facts = model.queues
    facts["limit_packets"] = limit
    waiting: deque = deque()
    out = Replay()
    period, updates, update_ns = aqm.update_period_ns(), 1, 2**62
    if period:
        update_ns = _tick(period)

    def ask(event, pk, now):
        facts["packets"], facts["bytes"] = len(waiting), sum_bytes
        facts["head_enqueued_ns"] = waiting[0][1]["enqueued_ns"][0] if waiting else -1
        return model.call(event, 0, pk, now)

    sum_bytes = 0
    while out.left < len(departures):
        leaves = departures[out.left]
        leaves_ns = leaves.ts_ns - start_ns
        arrives_ns = arrivals[out.arrived].ts_ns - start_ns if out.arrived < len(arrivals) else 2**62
        if update_ns <= arrives_ns and update_ns < leaves_ns:
            ask("on_update", packet(), update_ns)
            updates += 1
            update_ns = _tick(updates * period)
        elif arrives_ns < leaves_ns or (arrives_ns == leaves_ns and not waiting):
            p = arrivals[out.arrived]
            out.arrived += 1
            pk = packet(enqueued_ns=arrives_ns, size=p.bytes, ecn=p.ecn, aggregate=aggregates[p.source])
            verdict = ask("on_enqueue", pk, arrives_ns)
            if verdict == DROP or (verdict == MARK and p.ecn == 0):
                out.dropped["enqueue"] += 1
            elif len(waiting) >= limit:
                out.dropped["full"] += 1
            else:
                out.marked += _marked(verdict, pk)
                waiting.append((p.key, pk))
                sum_bytes += p.bytes
        else:
            key = None
            while key is None and waiting:
                key, pk = waiting.popleft()
                sum_bytes -= int(pk["bytes"][0])
                verdict = ask("on_dequeue", pk, leaves_ns)
                if verdict in (DROP, DROP_LATE) or (verdict == MARK and pk["ecn"][0] == 0):
                    out.dropped["dequeue"] += 1
                    key = None
                else:
                    out.marked += _marked(verdict, pk)
            if (key, None if key is None else int(pk["ecn"][0])) != (leaves.key, leaves.ecn):
                out.other.append((out.left, leaves_ns))
                if len(out.other) > 20:
                    return out
            out.left += 1
    return out


def _tick(ns):
    return -(-ns // TICK_NS) * TICK_NS


def _marked(verdict, pk):
    new = verdict == MARK and pk["ecn"][0] != 3
    if new:
        pk["ecn"] = 3
    return int(new)
