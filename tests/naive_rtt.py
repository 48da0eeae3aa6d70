"""The obvious twins of the kernels in cctoolkit/analysis/rtt_kernels.py: lists, dicts and unbounded integers.

Each takes packets as a list of dicts (the columns of the packets table) and returns samples as tuples
``(packet, ts_ns, flow_id, direction, rtt_ns)``. Below them: packets made by hand and at random.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field

import naive_handshake
import numpy as np

from cctoolkit.schema import PACKETS

FIN, SYN, RST, ACK = 1, 2, 4, 16
WINDOW = 2**30
UNSEEN = 2**20


def unwrapped(number, near):
    """The integer that is `number` modulo 2**32 and closest to `near`."""
    return near + (number - near + 2**31) % 2**32 - 2**31


@dataclass
class Sender:
    seen: bool = False
    edge: int | None = None  # end of the highest byte sent
    reference: int | None = None  # highest acknowledgement, else first byte sent
    acked: bool = False
    waiting: list = field(default_factory=list)  # (end, ts_ns)
    sent_again: list = field(
        default_factory=list
    )  # (first byte, the edge then), until that edge is acknowledged


def seq_ack(packets, karn=True, one_way=64):
    senders = {}
    samples = []
    for i, p in enumerate(packets):
        flags = p["tcp_flags"]
        if flags == 0 or (karn and flags & RST):
            continue
        me = senders.setdefault((p["flow_id"], p["direction"]), Sender())
        other = senders.setdefault((p["flow_id"], 1 - p["direction"]), Sender())
        me.seen = True

        if flags & ACK:
            if other.edge is None:
                a = p["ack"] if other.reference is None else unwrapped(p["ack"], other.reference)
                if not other.acked or a > other.reference:
                    other.reference, other.acked = a, True
            else:
                a = unwrapped(p["ack"], other.edge)
                if -WINDOW <= a - other.edge <= UNSEEN:
                    hit = [ts for end, ts in other.waiting if end == a]
                    other.waiting = [(end, ts) for end, ts in other.waiting if end > a]
                    if hit:
                        first = min((r[0] for r in other.sent_again), default=0)
                        last = max((r[1] for r in other.sent_again), default=0)
                        doubt = bool(other.sent_again) and first < a <= last
                        rtt = p["ts_ns"] - hit[0]  # of several copies the first counts
                        if rtt >= 0 and not doubt:
                            samples.append((i, p["ts_ns"], p["flow_id"], 1 - p["direction"], rtt))
                    if not other.acked or a > other.reference:
                        other.reference, other.acked = a, True
                        if all(r[1] <= a for r in other.sent_again):
                            other.sent_again = []

        length = p["payload_bytes"] + bool(flags & SYN) + bool(flags & FIN)
        if not length:
            continue
        if me.edge is not None:
            s = unwrapped(p["seq"], me.edge)
            gap = s - me.edge
            if flags & SYN:
                anew = not -(2**16) <= gap < 0
            else:
                anew = not -WINDOW < gap <= WINDOW or s + length - me.reference > WINDOW
            if anew:
                me.waiting, me.sent_again = [], []
                me.reference, me.acked = s, False
                me.edge = s
        else:
            s = p["seq"]
            if me.acked:
                s = unwrapped(s, me.reference)
                if not -UNSEEN <= s + length - me.reference <= WINDOW:
                    me.acked = False
            if not me.acked:
                me.reference = s
            me.edge = s
        end = s + length
        if karn:
            ahead = max([me.reference, *(e for e, _ in me.waiting if e < end)])
            if ahead <= s < me.edge and any(
                e == end and 0 <= p["ts_ns"] - ts < 200_000 for e, ts in me.waiting
            ):
                continue  # recorded twice
            if s < me.edge and not (me.acked and min(end, me.edge) <= me.reference):
                me.sent_again.append((s, me.edge))
            wait = end > me.edge and not (me.acked and end <= me.reference)
        else:
            wait = all(end != e for e, _ in me.waiting)
        me.edge = max(me.edge, end)
        if wait:
            if not other.seen and len(me.waiting) >= one_way:
                me.waiting.remove(min(me.waiting))
            me.waiting.append((end, p["ts_ns"]))
    return samples


def timestamps(packets, one_way=64):
    senders = {}
    samples = []
    for i, p in enumerate(packets):
        flags = p["tcp_flags"]
        if flags == 0 or not p["has_ts"]:
            continue
        me = senders.setdefault((p["flow_id"], p["direction"]), Sender())
        other = senders.setdefault((p["flow_id"], 1 - p["direction"]), Sender())
        me.seen = True
        if flags & ACK and p["tsecr"] and other.edge is not None:
            echo = unwrapped(p["tsecr"], other.edge)
            if -WINDOW <= echo - other.edge <= 0:
                for value, ts in other.waiting:
                    if value == echo and p["ts_ns"] >= ts:
                        samples.append((i, p["ts_ns"], p["flow_id"], 1 - p["direction"], p["ts_ns"] - ts))
                other.waiting = [(v, t) for v, t in other.waiting if v > echo]
                other.reference = max(other.reference, echo)
        if not p["tsval"]:
            continue
        value = p["tsval"] if me.edge is None else unwrapped(p["tsval"], me.edge)
        if me.edge is None:
            me.reference = value
        else:
            gap = value - me.edge
            if not -WINDOW <= gap <= WINDOW or (flags & SYN and gap < 0) or value - me.reference > WINDOW:
                me.waiting = []
                me.reference = value
            elif gap <= 0:
                continue
        me.edge = value
        if not other.seen and len(me.waiting) >= one_way:
            del me.waiting[0]
        me.waiting.append((value, p["ts_ns"]))
    return samples


def pping(packets):
    """Nichols's pping 2017, without ageing: what `timestamps` is compared with. Returns (packet, rtt_ns)."""
    directions, first_sight, samples = set(), {}, []
    for i, p in enumerate(packets):
        flow, side = p["flow_id"], p["direction"]
        if not p["has_ts"] or not p["tsval"] or (not p["tsecr"] and p["tcp_flags"] != SYN):
            continue
        directions.add((flow, side))
        if (flow, 1 - side) not in directions:
            continue
        first_sight.setdefault((flow, side, p["tsval"]), p["ts_ns"])
        sent = first_sight.get((flow, 1 - side, p["tsecr"]))
        if sent is not None:
            samples.append((i, p["ts_ns"] - sent))
            first_sight[flow, 1 - side, p["tsecr"]] = None  # matched, and not new any more
    return samples


def handshake(packets):
    waiting, answered = {}, {}
    samples = []
    for i, p in enumerate(packets):
        flags, flow, side, ts = p["tcp_flags"], p["flow_id"], p["direction"], p["ts_ns"]
        if flags & (SYN | ACK | RST) == SYN:
            if answered.get(flow) != p["seq"]:
                answered.pop(flow, None)
                known = waiting.get(flow)
                if known is None or (known[0], known[1].seq) != (side, p["seq"]):
                    waiting[flow] = side, naive_handshake.Opening(p["seq"], p["payload_bytes"])
                waiting[flow][1].syn(ts, p["tsval"])
        elif flow not in waiting or not flags:
            continue
        elif side != waiting[flow][0]:
            waiting[flow][1].other_side(ts, p["seq"], p["ack"], flags, p["tsval"], p["tsecr"])
        elif waiting[flow][1].ends_with(flags, p["seq"]):
            opening = waiting.pop(flow)[1]
            answered[flow] = opening.seq
            rtt = opening.rtt(ts, p["ack"], flags, p["payload_bytes"], p["tsecr"])
            if rtt is not None and rtt >= 0:
                samples.append((i, ts, flow, side, rtt))
    return samples


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def data_plane(
    packets,
    table_size=65536,
    stages=2,
    timeout_ms=1000,
    signature_bits=32,
    per_direction=False,
    tick_bits=0,
    fid=None,
):
    """`fid` maps (flow_id, direction) to the hash of the five-tuple; returns samples and counters."""
    if fid is None:

        def fid(flow, side):
            return zlib.crc32(flow.to_bytes(4, "big") + bytes([side]))

    tick = 2**tick_bits
    sets = [
        [[None] * table_size for _ in range(stages)] for _ in range(2)
    ]  # None or [signature, ts_ns, void]
    samples = []
    names = "segments inserted expired not_inserted voided acks matched matched_void matched_late backwards"
    count = dict.fromkeys(names.split(), 0)

    def places(flow, side, number):
        key = fid(flow, side).to_bytes(4, "big") + number.to_bytes(4, "big")
        c1, c2 = zlib.crc32(key), crc32c(key)
        return [(c1 + k * c2) % table_size for k in range(stages)], c2 >> (32 - signature_bits) or 1

    def expired(entry):
        return now // tick - entry[1] // tick > timeout_ms * 1_000_000 // tick

    for i, p in enumerate(packets):
        flags, flow, side, now = p["tcp_flags"], p["flow_id"], p["direction"], p["ts_ns"]
        if flags == 0 or flags & RST:
            continue
        for_acks = for_data = sets[0]
        if per_direction:
            negative = (fid(flow, side) - fid(flow, 1 - side)) % 2**32 >= 2**31
            for_acks, for_data = sets if negative else sets[::-1]
        if flags & ACK:
            count["acks"] += 1
            at, signature = places(flow, 1 - side, p["ack"])
            for table, place in zip(for_acks, at, strict=True):
                entry = table[place]
                if entry and entry[0] == signature:
                    table[place] = None
                    if expired(entry):
                        count["matched_late"] += 1
                    elif entry[2]:
                        count["matched_void"] += 1
                    elif now < entry[1]:
                        count["backwards"] += 1
                    else:
                        count["matched"] += 1
                        samples.append((i, now, flow, 1 - side, now - entry[1]))
                    break
        length = p["payload_bytes"] + bool(flags & SYN) + bool(flags & FIN)
        if length:
            count["segments"] += 1
            at, signature = places(flow, side, (p["seq"] + length) % 2**32)
            done = False
            for table, place in zip(for_data, at, strict=True):
                entry = table[place]
                alive = entry is not None and not expired(entry)
                if alive and entry[0] == signature:
                    count["voided"] += not entry[2]
                    entry[2] = True
                    done = True
                elif not alive and not done:
                    count["expired"] += entry is not None
                    count["inserted"] += 1
                    table[place] = [signature, now, False]
                    done = True
            count["not_inserted"] += not done
    return samples, count


DEFAULTS = dict.fromkeys(PACKETS, 0)


def packet(ms, side, seq=0, ack=0, payload=0, flags=ACK, flow=0, **more):
    """One row of the packets table."""
    numbers = {"seq": seq % 2**32, "ack": ack % 2**32, "payload_bytes": payload, "tcp_flags": flags}
    return DEFAULTS | {"ts_ns": round(ms * 1_000_000), "flow_id": flow, "direction": side} | numbers | more


def columns(packets):
    return {name: np.array([p[name] for p in packets], dtype) for name, dtype in PACKETS.items()}


def as_tuples(samples):
    names = ("packet", "ts_ns", "flow_id", "direction", "rtt_ns")
    return list(zip(*(samples[name].tolist() for name in names), strict=True))


KINDS = ["data"] * 8 + ["ack"] * 6 + ["again"] * 2 + ["fin", "syn", "rst", "jump", "stray_ack", "not_tcp"]
ODD = 5  # of KINDS


def stream(seed, n, kinds=None):
    """`n` packets of a few flows: data, retransmissions of any cut, ACKs of any kind, wraps, jumps, clocks set back."""
    rng = random.Random(seed)
    flows = rng.choice([1, 1, 1, 3])
    kinds = kinds or (KINDS[:-ODD] if rng.random() < 0.4 else KINDS)
    one_way = rng.random() < 0.2
    starts = [rng.choice([0, 1, 1000, 2**31 - 700, 2**32 - 900, 2**32 - 1]) for _ in range(2 * flows)]
    first = list(starts)  # of the bytes sent
    edge = list(starts)
    ends = [[s] for s in starts]  # where segments ended: what a receiver acknowledges
    acked = [0] * 2 * flows  # how many of these were
    clock, clock_start = [100, 100], rng.choice([0, 2**32 - 110])
    now, packets = 0, []
    for _ in range(n):
        now += rng.choice([0, 1, 1, 2, 3, 5, -2])
        flow, side, kind = rng.randrange(flows), rng.randrange(2), rng.choice(kinds)
        if one_way and rng.random() < 0.9:
            side = 0
        me, other = 2 * flow + side, 2 * flow + 1 - side
        seq, length, flags = edge[me], 0, ACK
        ack = ends[other][acked[other]]
        if kind == "data":
            length = rng.choice([1, 100, 100, 100, 250])
        elif kind == "ack":
            acked[other] = min(acked[other] + rng.choice([0, 1, 1, 1, 2, 9]), len(ends[other]) - 1)
            ack = ends[other][acked[other]] - (rng.random() < 0.1 and rng.randrange(150))
        elif kind == "again":
            if rng.random() < 0.5:
                i = rng.randrange(max(0, len(ends[me]) - 6), len(ends[me]))
                seq = ends[me][i]
                length = ends[me][i + 1] - seq if i + 1 < len(ends[me]) else 50
            else:
                seq -= rng.randrange(min(edge[me] - first[me], 600) + 1)
                length = rng.randrange(300)
            length = max(length, 0)
        elif kind == "syn":
            flags = rng.choice([SYN, SYN | ACK])
            seq = rng.choice(
                [first[me]] * 3
                + [edge[me], edge[me] + rng.randrange(2**32), edge[me] - 2**16 - rng.randrange(3)]
            )
            length = rng.choice([0, 0, 50])
        elif kind == "fin":
            flags, length = FIN | ACK, rng.randrange(3)
        elif kind == "rst":
            flags, length = rng.choice([RST, RST | ACK]), rng.randrange(2)
        elif kind == "jump":
            seq += rng.choice([2**30, -(2**30), 2**29, 2**31]) + rng.randrange(-2, 3) * rng.choice([1, 100])
            length = rng.choice([1, 100, 2**20])
        elif kind == "stray_ack":
            ack += rng.choice([2**20, 2**30, -(2**30), 2**31, 1000]) + rng.randrange(-1, 2)
        elif kind == "not_tcp":
            flags, length = 0, 100
        clock[side] += rng.choice([0, 0, 1, 1, 2, -1]) + (kind == "jump") * rng.choice([0, 2**30, 2**31 - 1])
        packets.append(
            packet(now, side, seq, ack, length, flags, flow, has_ts=rng.random() < 0.9,
                   tsval=(clock[side] + clock_start) % 2**32,
                   tsecr=(clock[1 - side] - rng.choice([0, 0, 0, 1, 2]) + clock_start) % 2**32)
        )  # fmt: skip
        end = seq + length + bool(flags & SYN) + bool(flags & FIN)
        if end != seq and flags and not flags & RST:
            if kind in ("syn", "jump"):
                first[me], ends[me], acked[me], edge[me] = seq, [seq], 0, end
            if end > edge[me] or kind in ("syn", "jump"):
                edge[me] = end
                ends[me].append(end)
    return packets


def openings(seed, n):
    """`n` packets of connections that open: each SYN, SYN/ACK and ACK may be lost, late, repeated, copied or odd.

    Half of the time with timestamps that tick every millisecond, sometimes of one side only.
    """
    rng = random.Random(seed)
    stamping = rng.choice([(False, False), (True, True), (True, True), (True, False), (False, True)])
    side = [rng.choice([0, 0, 0, 1]) for _ in range(3)]
    isn = [(rng.choice([0, 99, 2**32 - 1]), rng.choice([499, 2**32 - 1])) for _ in range(3)]
    fast_open = [rng.choice([0, 0, 50]) for _ in range(3)]
    ticks = rng.choice([1, 1, 10, 2000])
    now, packets = 1000.0, []
    seen = [[0, 0] for _ in range(3)]  # the newest timestamp of each side
    kinds = 2 * ["syn", "syn_ack", "ack"] + ["data", "answer", "rst", "fin", "stray", "new_syn"]
    while len(packets) < n:
        now += rng.choice([0, 0.4, 1, 5, 20, 200, 900, 1000, 3500, -0.3, -400])
        flow, kind = rng.randrange(3), rng.choice(kinds)
        if kind == "new_syn":
            isn[flow] = isn[flow][0] + 1000, isn[flow][1]
        me, (mine, theirs) = side[flow], isn[flow]
        start = mine + 1 + rng.choice([0, fast_open[flow]])
        more = {"flow": flow}
        sender = 1 - me if kind in ("syn_ack", "answer") else me
        if stamping[sender] and rng.random() < 0.95:
            stamp = 5 + int(now) // ticks + 70_000 * sender
            echo = seen[flow][1 - sender] - rng.choice([0, 0, 0, 0, 1])
            more |= {"tsval": stamp % 2**32, "tsecr": echo % 2**32, "has_ts": True}
            seen[flow][sender] = stamp
        if kind in ("syn", "new_syn"):
            row = packet(now, me, mine, 0, fast_open[flow], SYN, **more)
        elif kind == "syn_ack":
            row = packet(now, 1 - me, theirs, start, 0, SYN | ACK, **more)
        elif kind in ("ack", "data", "fin"):
            length, flags = rng.choice([1, 100]) * (kind == "data"), ACK | FIN * (kind == "fin")
            row = packet(now, me, start, theirs + 1 + rng.choice([0, 0, 0, 20]), length, flags, **more)
        elif kind == "answer":
            row = packet(now, 1 - me, theirs + 1, start, rng.choice([0, 20]), ACK, **more)
        elif kind == "rst":
            row = packet(now, rng.randrange(2), theirs, start, 0, RST | ACK * rng.randrange(2), **more)
        else:
            row = packet(now, me, start + 7, theirs + 1, 0, rng.choice([0, ACK]), **more)
        packets.append(row)
        if rng.random() < 0.1:  # a mirror port's copy
            now += 0.01
            packets.append(row | {"ts_ns": round(now * 1_000_000)})
    return packets
