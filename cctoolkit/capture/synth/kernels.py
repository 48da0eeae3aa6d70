"""Kernels for synthetic captures: flows that generate packets, and a calendar that orders them by time.

Everything about a flow follows from the seed and its number, so its addresses and ground truth can be recomputed at
any time. A flow generates packets one round trip at a time: it is called at the start of a round, makes that round's
data and ACKs, and says when to call it next. Calls and packets wait in time buckets; once the calls of a bucket are
done, its packets are sorted and written out.

All times are at the tap, in ns from the start of the capture. ``rtt_ns[side]`` is the round trip from the tap to that
side and back: the answer of side `s` to a packet that passes at ``t`` is sent at ``t + rtt_ns[s] / 2`` and passes at
``t + rtt_ns[s]``.
"""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from ..._support.kernels import kernel, part
from ..protocols import ACK, CWR, ECE, FIN, PSH, RST, SYN

# ---- constants of the model; cctoolkit.capture.synth.mawi explains them
SCAN, PROBE, DNS, UDP, QUIC, WEB, LONG = range(7)
SHARES = np.array([0.25, 0.40, 0.15, 0.05, 0.03, 0.11, 0.01])  # of all flows
_CUMULATIVE = np.cumsum(SHARES)
LONG_ALPHA, LONG_MIN = 1.2, 150.0  # Pareto, segments
QUIC_ALPHA, QUIC_MIN, QUIC_MAX = 1.3, 20.0, 1e5  # Pareto, datagrams
WEB_BYTES, WEB_SIGMA, WEB_MORE = 8000.0, 1.5, 0.375  # lognormal object; probability that another one follows
RATE_BPS, RATE_SIGMA, RATE_MIN_BPS = 20e6, 1.3, 0.5e6  # lognormal
NEAR_RTT_NS, NEAR_SIGMA = 4e6, 0.9
FAR_SHARES = np.array([0.45, 0.40, 0.15])
FAR_RTT_NS = np.array([6e6, 130e6, 60e6])
FAR_SIGMA = np.array([0.6, 0.25, 0.4])
_FAR_CUMULATIVE = np.cumsum(FAR_SHARES)
OUTSIDE_SHARE = 0.35  # of the flows: the initiator is on the far side
JITTER_NS, JITTER_SHARE = 20e3, 0.01  # mean: a constant plus a share of the round trip
TIMESTAMPS_SHARE = 0.85
UPLOAD_SHARE = 0.15  # of the long flows
LOSSY_SHARE = 0.5  # of the TCP flows can lose segments
REORDERED_PAIRS = 0.01
SCAN_ANSWERED, SCAN_RETRIED, PROBE_ANSWERED = 0.1, 0.2, 0.3
MIN_RTT_NS, MAX_RTT_NS = 50e3, 1e9
MAX_WINDOW_SEGMENTS = 1000
_MS = 1_000_000
_WORD = 0xFFFFFFFF

# Values of the `event` column.
ORDINARY, RETRANSMITTED, FILLED, REORDERED = range(4)

# What a flow does in its next call.
_REQUEST, _ROUND, _CLOSE = range(3)

#: The most packets one call can make: data, an ACK for each, and the close of the flow.
MARGIN = 2 * MAX_WINDOW_SEGMENTS + 64

FLOW = np.dtype(
    [
        ("next_ns", "i8"),
        ("rtt_ns", "i8", 2),
        ("jitter_ns", "f8", 2),
        ("last_ns", "i8", 2),  # last packet in each direction: paths do not reorder
        ("gap_ns", "i8"),
        ("loss", "f8"),
        ("rng", "u8"),
        ("src_hi", "u8"),
        ("src_lo", "u8"),
        ("dst_hi", "u8"),
        ("dst_lo", "u8"),
        ("left", "i8"),  # segments of the current object
        ("previous_ns", "i8"),  # start of the previous round, whose timestamps this one echoes
        ("flow_id", "u4"),
        ("seq", "i8", 2),
        ("tsval", "i8", 2),  # last value sent by each side
        ("clock", "i8", 2),  # offset of the timestamp clock
        ("echo", "i8"),
        ("next", "i4"),
        ("cwnd", "i8"),
        ("cwnd_max", "i8"),
        ("previous_n", "i8"),
        ("sport", "u2"),
        ("dport", "u2"),
        ("payload", "i8"),
        ("last_payload", "i8"),
        ("window", "u2", 2),
        ("mss", "u2", 2),
        ("kind", "u1"),
        ("phase", "u1"),
        ("ip_version", "u1"),
        ("protocol", "u1"),
        ("visible", "u1"),  # bit d is set if direction d passes the tap
        ("sender", "i8"),  # of the data
        ("ttl", "u1", 2),
        ("window_scale", "u1", 2),
        ("ecn", "u1"),
        ("dscp", "u1"),
        ("has_ts", "?"),
        ("sack", "?"),
        ("answered", "?"),
        ("reorders", "?"),
        ("slow_start", "?"),
        ("in_progress", "?"),  # began before the capture
    ],
    align=True,
)

PACKET = np.dtype(
    [
        ("ts_ns", "i8"),
        ("flow_id", "u4"),
        ("seq", "u4"),
        ("ack", "u4"),
        ("tsval", "u4"),
        ("tsecr", "u4"),
        ("left", "u4"),
        ("right", "u4"),
        ("next", "i4"),
        ("payload", "u2"),
        ("wire", "u2"),
        ("window", "u2"),
        ("flags", "u2"),
        ("direction", "i1"),
        ("ecn", "u1"),
        ("dscp", "u1"),
        ("ttl", "u1"),
        ("has_ts", "?"),
        ("event", "u1"),
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        # the model
        ("seed", "u8"),
        ("packets", "i8"),
        ("birth_gap_ns", "f8"),
        ("in_progress", "i8"),
        ("max_segments", "f8"),
        ("max_rate_bps", "f8"),
        ("loss", "f8"),
        ("reordering", "f8"),
        ("one_way", "f8"),
        ("ipv6", "f8"),
        # the calendar
        ("bucket_ns", "i8"),
        ("bucket", "i8"),
        ("free_packet", "i4"),
        ("packets_free", "i4"),
        ("free_flow", "i4"),
        ("flows_free", "i4"),
        # the progress
        ("rng", "u8"),
        ("next_birth_ns", "i8"),
        ("next_id", "i8"),
        ("written", "i8"),
    ],
    align=True,
)

DONE, PART_FULL, GROW_PACKETS, GROW_FLOWS = range(4)


@part
@no_type_check
def _mix(x):
    """Finaliser of splitmix64."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


@part
@no_type_check
def _uniform(f):
    """Uniform in [0, 1), from the record's own generator (splitmix64)."""
    f.rng += np.uint64(0x9E3779B97F4A7C15)
    return np.float64(_mix(f.rng) >> np.uint64(11)) * 2.0**-53


@part
@no_type_check
def _exponential(f, mean):
    return -math.log(1.0 - _uniform(f)) * mean


@part
@no_type_check
def _lognormal(f, median, sigma):
    radius = math.sqrt(-2.0 * math.log(1.0 - _uniform(f)))
    return median * math.exp(sigma * radius * math.cos(2.0 * math.pi * _uniform(f)))


@part
@no_type_check
def _pareto(f, alpha, minimum, most):
    """Pareto distributed, truncated at `most`; `alpha` is the exponent of the cumulative distribution."""
    low, high = minimum**-alpha, most**-alpha
    return (low - _uniform(f) * (low - high)) ** (-1.0 / alpha)


@part
@no_type_check
def _below(f, n):
    return np.int64(_uniform(f) * n)


@part
@no_type_check
def _draw(f, c, flow_id):
    """Fill in the constant properties of flow `flow_id`."""
    f.flow_id = flow_id
    f.rng = _mix(c.seed ^ _mix(np.uint64(flow_id) + np.uint64(1)))
    f.in_progress = flow_id < c.in_progress
    u = _uniform(f)
    kind = 0
    while kind < LONG and u >= _CUMULATIVE[kind]:
        kind += 1
    if f.in_progress:
        kind = LONG
    f.kind = kind
    is_tcp = kind == SCAN or kind >= WEB

    # ---- the path
    near = _lognormal(f, NEAR_RTT_NS, NEAR_SIGMA)
    u = _uniform(f)
    area = 0
    while area < 2 and u >= _FAR_CUMULATIVE[area]:
        area += 1
    far = _lognormal(f, FAR_RTT_NS[area], FAR_SIGMA[area])
    far_side = 0 if _uniform(f) < OUTSIDE_SHARE else 1
    for side in range(2):
        rtt = min(max(far if side == far_side else near, MIN_RTT_NS), MAX_RTT_NS)
        f.rtt_ns[side] = np.int64(rtt)
        f.jitter_ns[side] = JITTER_NS + JITTER_SHARE * rtt
        u = _uniform(f)
        f.ttl[side] = (64 if u < 0.6 else 128 if u < 0.9 else 255) - 5 - _below(f, 16)
        f.last_ns[side] = -(1 << 60)
    f.visible = 3
    u = _uniform(f)
    if u < c.one_way:
        f.visible = 1 if u < c.one_way / 2 else 2
    f.answered = True
    u = _uniform(f)
    if kind == SCAN:
        f.answered = u < SCAN_ANSWERED
    elif kind == PROBE:
        f.answered = u < PROBE_ANSWERED
    if not f.answered:
        f.visible = 1

    # ---- the endpoints. Clients, scanners and probers follow from a permutation of the flow number, so no 5-tuple
    # repeats within 2**32 flows.
    n = (flow_id ^ np.int64(c.seed & np.uint64(_WORD))) & _WORD
    n = (n ^ n >> 16) * 0x2C1B3C6D & _WORD
    n = (n ^ n >> 12) * 0x297A2D39 & _WORD
    n = n ^ n >> 15
    version = 6 if kind != SCAN and kind != PROBE and _uniform(f) < c.ipv6 else 4
    f.ip_version = version
    client = n & 0x1FFFF
    server = np.int64(2.0**18 * _uniform(f) ** 3)  # a few servers have most of the flows
    f.src_lo = f.dst_lo = 0
    if version == 6:
        f.src_hi = np.uint64(0x20010DB800010000)  # 2001:db8::/32, for documentation
        f.src_lo = np.uint64(client + 1)
        f.dst_hi = np.uint64(0x20010DB800020000)
        f.dst_lo = np.uint64(server + 1)
    else:
        f.src_hi = np.uint64(0xC6120000 + client) << np.uint64(32)  # 198.18.0.0/15, for benchmarks
        f.dst_hi = np.uint64(0x0A000000 + (server * 0x9E3779 + 0x10001 & 0xFFFFFF)) << np.uint64(32)
    f.sport = 0x8000 | n >> 17
    f.protocol = 6 if is_tcp else 17
    u = _uniform(f)
    if kind == SCAN:
        f.src_hi = np.uint64(0xC0000200 + (n & 15) * 16) << np.uint64(32)  # 192.0.2.0/24
        f.dst_hi = np.uint64(0x0A000000 + (n >> 8)) << np.uint64(32)
        f.sport = 40_000 + (n & 0xFF)
        f.dport = 23 if u < 0.4 else 445 if u < 0.6 else 22 if u < 0.75 else 3389 if u < 0.9 else 8080
    elif kind == PROBE:
        f.src_hi = np.uint64(0xC6336400 + (n & 0xFF)) << np.uint64(32)  # 198.51.100.0/24
        f.dst_hi = np.uint64(0x0A000000 + (n >> 8)) << np.uint64(32)
        f.protocol = 1
        f.sport = f.dport = 0
    elif kind == DNS:
        f.dport = 53
    elif kind == UDP:
        f.dport = 20_000 + np.int64(10_000 * u)
    elif kind == QUIC:
        f.dport = 443
    else:
        f.dport = 443 if u < 0.85 else 80 if u < 0.95 else 8443

    # ---- TCP
    f.dscp = 0
    if _uniform(f) < 0.05:
        f.dscp = 8 * (1 + _below(f, 5))
    u = _uniform(f)
    f.ecn = 2 if kind >= WEB and u < 0.04 else 1 if kind >= WEB and u < 0.05 else 0
    f.has_ts = kind >= WEB and _uniform(f) < TIMESTAMPS_SHARE
    f.sack = kind >= WEB
    for side in range(2):
        u = _uniform(f)
        mss = 1460 if u < 0.8 else 1452 if u < 0.9 else 1400
        if version == 6:
            mss -= 20
        f.mss[side] = mss
        f.window_scale[side] = 7 if _uniform(f) < 0.7 else 8
        f.window[side] = 20_000 + _below(f, 45_000)
        f.seq[side] = _below(f, 2.0**32)
        f.clock[side] = _below(f, 2.0**32)
    if kind == SCAN:
        f.window[0] = 1024
        for side in range(2):
            f.mss[side] = 0
            f.window_scale[side] = 255
    f.payload = min(f.mss[0], f.mss[1]) - (12 if f.has_ts else 0)
    if kind == QUIC:
        f.payload = 1250

    # ---- size and rate. A flow in progress at the start is more likely a large and slow one.
    median = RATE_BPS * math.exp(-(RATE_SIGMA**2)) if f.in_progress else RATE_BPS
    rate = _lognormal(f, median, RATE_SIGMA)
    rate = max(min(rate, c.max_rate_bps), min(RATE_MIN_BPS, c.max_rate_bps / 2))
    f.gap_ns = np.int64((f.payload + 66) * 8e9 / rate)
    round_trip = f.rtt_ns[0] + f.rtt_ns[1]
    f.cwnd_max = max(4, min(MAX_WINDOW_SEGMENTS, round_trip // f.gap_ns))
    f.cwnd = min(10, f.cwnd_max)
    f.slow_start = True
    f.sender = 0 if kind == LONG and _uniform(f) < UPLOAD_SHARE else 1
    f.loss = 0.0
    if _uniform(f) < LOSSY_SHARE:
        # log-uniform over two decades, with mean `loss` over all flows
        f.loss = min(c.loss / LOSSY_SHARE * math.log(100.0) / 0.99 * 10.0 ** (-2.0 * _uniform(f)), 0.05)
    f.reorders = _uniform(f) < c.reordering
    f.previous_n = 0
    f.left = 0
    f.last_payload = f.payload


@kernel
@no_type_check
def describe(control, ids, flows):
    """Fill in `flows` (FLOW records) for these flow numbers."""
    for i in range(ids.size):
        _draw(flows[i], control[0], ids[i])


@part
@no_type_check
def _clock(f, side, stamp_ns):
    """Timestamp clock of a side, in ms."""
    return (f.clock[side] + stamp_ns // _MS) & _WORD


@part
@no_type_check
def _late(f, side):
    """Delay of an answer of this side beyond its base round trip, in ns."""
    return np.int64(_exponential(f, f.jitter_ns[side]))


@part
@no_type_check
def _emit(f, c, pool, heads, d, t, stamp_ns, seq, ack, flags, payload, tsecr, event, left, right):
    """Emit a packet that passes the tap at `t`, or right after the previous one; return the time."""
    if event != REORDERED:
        t = max(t, f.last_ns[d] + 500)
        f.last_ns[d] = t
    tsval = np.int64(0)
    if f.has_ts:
        tsval = _clock(f, d, stamp_ns)
        f.tsval[d] = tsval
    if (f.visible >> d) & 1 == 0:
        return t
    slot = c.free_packet
    p = pool[slot]
    c.free_packet = p.next
    c.packets_free -= 1
    header = 34 if f.ip_version == 4 else 54
    if f.protocol == 6:
        header += 20
        if flags & SYN:
            header += (4 if f.mss[d] else 0) + (4 if f.window_scale[d] != 255 else 0)
            header += 4 if f.sack and not f.has_ts else 0
        header += 12 if f.has_ts else 0
        header += 12 if left != right else 0
    elif f.protocol == 17:
        header += 8
    p.ts_ns = t
    p.flow_id = f.flow_id
    p.seq = seq
    p.ack = ack
    p.tsval = tsval
    p.tsecr = tsecr if f.has_ts else 0
    p.left = left
    p.right = right
    p.payload = payload
    p.wire = max(header + payload, 60)
    p.window = (
        0 if f.protocol != 6 or flags & RST else 64_240 if flags & SYN and f.kind != SCAN else f.window[d]
    )
    p.flags = flags
    p.direction = d
    p.ecn = f.ecn if payload else 0
    p.dscp = f.dscp
    p.ttl = f.ttl[d]
    p.has_ts = f.has_ts
    p.event = event
    mask = heads.size - 1
    bucket = min(max(t // c.bucket_ns, c.bucket), c.bucket + mask)
    p.next = heads[bucket & mask]
    heads[bucket & mask] = slot
    return t


@part
@no_type_check
def _send(f, c, pool, heads, d, t, stamp_ns, seq, ack, flags, payload, tsecr):
    """Emit an ordinary segment."""
    return _emit(f, c, pool, heads, d, t, stamp_ns, seq, ack, flags, payload, tsecr, ORDINARY, 0, 0)


@part
@no_type_check
def _datagram(f, c, pool, heads, d, t, payload):
    """Emit a packet that is not TCP."""
    return _emit(f, c, pool, heads, d, t, 0, 0, 0, 0, payload, 0, ORDINARY, 0, 0)


@part
@no_type_check
def _begin_object(f):
    """Draw the size of the next object of a download or upload."""
    if f.kind == WEB:
        size = max(_lognormal(f, WEB_BYTES, WEB_SIGMA), 100.0)
        f.left = np.int64(math.ceil(size / f.payload))
        f.last_payload = max(1, np.int64(size - (f.left - 1) * f.payload))
    f.previous_n = 0


@part
@no_type_check
def _born(f, c, pool, heads, t):
    """Emit the first packets of a flow; return whether there will be more."""
    a, b = f.rtt_ns[0], f.rtt_ns[1]
    if f.kind == SCAN:
        _send(f, c, pool, heads, 0, t, t, f.seq[0], 0, SYN, 0, 0)
        if f.answered:
            t += b + _late(f, 1)
            _send(f, c, pool, heads, 1, t, t, 0, f.seq[0] + 1, RST | ACK, 0, 0)
        elif c.loss > 0 and _uniform(f) < SCAN_RETRIED:
            for wait_s in (1, 3):  # RFC 6298: the timer doubles
                again = t + wait_s * 1000 * _MS
                _emit(f, c, pool, heads, 0, again, t, f.seq[0], 0, SYN, 0, 0, RETRANSMITTED, 0, 0)
        return False
    if f.kind == PROBE:
        size = 8 + (32 if _uniform(f) < 0.5 else 56)
        _datagram(f, c, pool, heads, 0, t, size)
        if f.answered:
            _datagram(f, c, pool, heads, 1, t + b + _late(f, 1), size)
        return False
    if f.kind == DNS:
        question = 28 + _below(f, 30)
        _datagram(f, c, pool, heads, 0, t, question)
        answer = question + 16 + _below(f, 400)
        t += b + _late(f, 1)
        _datagram(f, c, pool, heads, 1, t, answer)
        return False
    if f.kind == UDP:
        n = 1
        while n < 64 and _uniform(f) < 0.8:
            n += 1
        for i in range(n):
            d = i & 1
            _datagram(f, c, pool, heads, d, t, 20 + _below(f, 500))
            t += f.rtt_ns[1 - d] + _late(f, 1 - d) + np.int64(_exponential(f, 20e6))
        return False
    if f.kind == QUIC:
        f.left = np.int64(_pareto(f, QUIC_ALPHA, QUIC_MIN, QUIC_MAX))
        _datagram(f, c, pool, heads, 0, t, 1200)
        for _ in range(2):
            _datagram(f, c, pool, heads, 1, t + b, 1200)
        t += a + b + _late(f, 0)
        _datagram(f, c, pool, heads, 0, t, 1200)
        f.phase = _ROUND
        f.next_ns = t + b + np.int64(_exponential(f, 10e6))
        return True

    if f.kind == LONG:
        # flows in progress are sampled in proportion to size, so the exponent is one less
        alpha = LONG_ALPHA - 1 if f.in_progress else LONG_ALPHA
        f.left = np.int64(_pareto(f, alpha, LONG_MIN, c.max_segments))
        if f.in_progress:
            f.left = 1 + np.int64(f.left * _uniform(f))
            f.cwnd = f.cwnd_max
            f.slow_start = False
            f.phase = _ROUND
            f.next_ns = np.int64(_uniform(f) * (a + b))
            f.previous_n = f.cwnd
            f.previous_ns = f.next_ns - max(a + b + f.gap_ns, f.cwnd * f.gap_ns)
            return True
    offer = SYN | (ECE | CWR if f.ecn else 0)
    accept = SYN | ACK | (ECE if f.ecn else 0)
    _send(f, c, pool, heads, 0, t, t - a // 2, f.seq[0], 0, offer, 0, 0)
    f.seq[0] += 1
    t = _send(
        f, c, pool, heads, 1, t + b + _late(f, 1), t + b // 2, f.seq[1], f.seq[0], accept, 0, f.tsval[0]
    )
    f.seq[1] += 1
    t = _send(f, c, pool, heads, 0, t + a + _late(f, 0), t + a // 2, f.seq[0], f.seq[1], ACK, 0, f.tsval[1])
    f.next_ns = t + np.int64(_exponential(f, 1e6))
    if f.sender == 0:
        f.phase = _ROUND
        f.echo = f.tsval[1]
    else:
        f.phase = _REQUEST
    return True


@part
@no_type_check
def _request(f, c, pool, heads):
    """The initiator sends a request; the responder acknowledges at once and answers later."""
    t = f.next_ns
    size = 200 + _below(f, 700)
    t = _send(f, c, pool, heads, 0, t, t - f.rtt_ns[0] // 2, f.seq[0], f.seq[1], ACK | PSH, size, f.tsval[1])
    f.seq[0] += size
    f.echo = f.tsval[0]
    b = f.rtt_ns[1]
    acked = _send(f, c, pool, heads, 1, t + b + _late(f, 1), t + b // 2, f.seq[1], f.seq[0], ACK, 0, f.echo)
    _begin_object(f)
    f.phase = _ROUND
    f.next_ns = acked + np.int64(_exponential(f, 10e6))


@part
@no_type_check
def _datagrams(f, c, pool, heads):
    """A round of QUIC-like datagrams, a small one back for every fourth; return whether there will be more."""
    n = min(f.cwnd, f.left)
    t = f.next_ns
    for i in range(n):
        x = _datagram(f, c, pool, heads, 1, t + i * f.gap_ns, f.payload)
        if i % 4 == 3 or i == n - 1:
            y = x + f.rtt_ns[0] + _late(f, 0)
            _datagram(f, c, pool, heads, 0, y, 33 + _below(f, 12))
    f.left -= n
    f.cwnd = min(2 * f.cwnd, f.cwnd_max)
    f.next_ns = t + max(f.rtt_ns[0] + f.rtt_ns[1], n * f.gap_ns)
    return f.left > 0


@part
@no_type_check
def _round(f, c, pool, heads):
    """Emit a window of segments, its ACKs, and the recovery of at most one lost segment."""
    s = f.sender
    r = 1 - s
    to_sender, to_receiver = f.rtt_ns[s], f.rtt_ns[r]
    round_trip = to_sender + to_receiver
    t, gap = f.next_ns, f.gap_ns
    n = min(f.cwnd, f.left)
    base, acked = f.seq[s], f.seq[r]
    size = f.payload
    last_size = f.last_payload if n == f.left else size
    end = base + (n - 1) * size + last_size
    lost = np.int64(-1)
    never_seen = False
    if f.loss > 0 and _uniform(f) < n * f.loss:
        lost = _below(f, n)
        never_seen = _uniform(f) < 0.5  # lost upstream of the tap
    n_after = 0  # segments that arrive after the lost one
    third = third_tsval = np.int64(0)
    recent = f.tsval[s]  # echoed by the receiver: from the first segment not yet acknowledged
    waits = False  # a delayed ACK waits for a second segment
    latest = np.int64(0)  # largest delay of an ACK of this round beyond the base round trip
    y = t
    i = np.int64(0)
    while i < n:
        x = t + i * gap
        seq = base + i * size
        bytes_i = last_size if i == n - 1 else size
        # the ACK of the previous round that released this segment
        echo = f.echo
        if f.previous_n > 0:
            j = min(i | 1, f.previous_n - 1)
            echo = _clock(f, r, f.previous_ns + j * gap + to_receiver // 2)
        flags = ACK | PSH if i == n - 1 else ACK
        if f.reorders and lost < 0 and i & 1 == 0 and i + 1 < n - 1 and _uniform(f) < REORDERED_PAIRS:
            after = seq + size
            x = _send(f, c, pool, heads, s, x, x - to_sender // 2, after, acked, flags, size, echo)
            y = x + to_receiver + _late(f, r)
            _emit(
                f,
                c,
                pool,
                heads,
                r,
                y,
                x + to_receiver // 2,
                acked,
                seq,
                ACK,
                0,
                recent,
                ORDINARY,
                after,
                after + size,
            )
            stamp = x - to_sender // 2
            x = t + (i + 1) * gap
            _emit(f, c, pool, heads, s, x, stamp, seq, acked, flags, size, echo, REORDERED, 0, 0)
            recent = f.tsval[s]
            y = x + to_receiver + _late(f, r)
            y = _send(f, c, pool, heads, r, y, x + to_receiver // 2, acked, after + size, ACK, 0, recent)
            latest = max(latest, y - x - to_receiver)
            i += 2
            continue
        if i != lost or not never_seen:
            x = _send(f, c, pool, heads, s, x, x - to_sender // 2, seq, acked, flags, bytes_i, echo)
        if i == lost:
            i += 1
            continue
        if not waits:
            recent = f.tsval[s] if lost < 0 or i < lost else recent
        y = x + to_receiver + _late(f, r)
        if lost >= 0 and i > lost:
            first = base + (lost + 1) * size
            y = _emit(
                f,
                c,
                pool,
                heads,
                r,
                y,
                x + to_receiver // 2,
                acked,
                base + lost * size,
                ACK,
                0,
                recent,
                ORDINARY,
                first,
                seq + bytes_i,
            )
            n_after += 1
            if n_after == 3:
                third, third_tsval = y, f.tsval[r]
        elif i & 1 or i == n - 1:
            y = _send(f, c, pool, heads, r, y, x + to_receiver // 2, acked, seq + bytes_i, ACK, 0, recent)
            latest = max(latest, y - x - to_receiver)
            waits = False
        elif i + 1 == lost and lost == n - 1:  # no further segment triggers the delayed ACK
            y = _send(
                f,
                c,
                pool,
                heads,
                r,
                y + 40 * _MS,
                y + 40 * _MS - to_receiver // 2,
                acked,
                seq + bytes_i,
                ACK,
                0,
                recent,
            )
        else:
            waits = True
        i += 1
    if lost >= 0:
        if n_after >= 3:
            again, echo = third + to_sender, third_tsval
        else:  # the retransmission timer of RFC 6298, with Linux's minimum of 200 ms
            again, echo = t + (n - 1) * gap + round_trip + max(round_trip, 200 * _MS), f.tsval[r]
        again = max(again, f.last_ns[s] + 500)
        seq = base + lost * size
        bytes_i = last_size if lost == n - 1 else size
        event = FILLED if never_seen else RETRANSMITTED
        _emit(
            f,
            c,
            pool,
            heads,
            s,
            again,
            again - to_sender // 2,
            seq,
            acked,
            ACK | PSH,
            bytes_i,
            echo,
            event,
            0,
            0,
        )
        y = again + to_receiver + _late(f, r)
        y = _send(f, c, pool, heads, r, y, again + to_receiver // 2, acked, end, ACK, 0, f.tsval[s])
        f.cwnd = max(2, n // 2)
        f.slow_start = False
        f.previous_n = 0
        f.echo = f.tsval[r]
        f.next_ns = y + to_sender
    else:
        f.cwnd = min(2 * f.cwnd if f.slow_start else f.cwnd + 1, f.cwnd_max)
        f.previous_n = n
        f.previous_ns = t
        # segment i is sent when the ACK of segment i or i + 1 is back, however late that is
        f.next_ns = t + max(round_trip + latest + gap, n * gap)
    f.seq[s] = end
    f.left -= n
    if f.left == 0:
        if f.kind == WEB and _uniform(f) < WEB_MORE:
            f.phase = _REQUEST
            f.next_ns = y + np.int64(_exponential(f, 300e6))
        else:
            f.phase = _CLOSE
            f.next_ns = y + np.int64(_exponential(f, 50e6))


@part
@no_type_check
def _close(f, c, pool, heads):
    """End the flow: FIN, FIN and ACK, or a RST, or silence."""
    u = _uniform(f)
    if u < 0.04:
        return
    a = np.int64(0)
    if u >= 0.56:
        a = np.int64(1)
    b = 1 - a
    # the sender of the data waits for the last ACK
    t = f.next_ns + (f.rtt_ns[a] if a == f.sender else 0)
    flags = RST | ACK if u < 0.12 else FIN | ACK
    t = _send(f, c, pool, heads, a, t, t - f.rtt_ns[a] // 2, f.seq[a], f.seq[b], flags, 0, f.tsval[b])
    if flags & RST:
        return
    f.seq[a] += 1
    y = t + f.rtt_ns[b] + _late(f, b)
    t = _send(f, c, pool, heads, b, y, t + f.rtt_ns[b] // 2, f.seq[b], f.seq[a], flags, 0, f.tsval[a])
    f.seq[b] += 1
    y = t + f.rtt_ns[a] + _late(f, a)
    _send(f, c, pool, heads, a, y, t + f.rtt_ns[a] // 2, f.seq[a], f.seq[b], ACK, 0, f.tsval[b])


@kernel
@no_type_check
def advance(control, flows, pool, flow_heads, packet_heads, columns, event, sacks, rows, n_sacks):
    """Write packets in order of time until the part or the capture is full.

    Parameters
    ----------
    control : array of one record
        Clock, free lists, and settings.
    flows, pool : arrays
        Flows and packets under way, in lists.
    flow_heads, packet_heads : int arrays
        First flow and first packet of each time bucket.
    columns : PacketColumns
        Receives the packets.
    event : uint8 array
        Receives what each packet is, by the constants above.
    sacks : int64 array, shape (blocks, 3)
        Receives the SACK blocks: row of the packet, left and right edge.
    rows, n_sacks : int
        Current lengths of the part.

    Returns
    -------
    status : int
        DONE, PART_FULL, or GROW_PACKETS or GROW_FLOWS if those arrays must grow before the next call.
    rows, n_sacks : int
        The new lengths.
    """
    c = control[0]
    mask = packet_heads.size - 1
    order = np.empty(256, np.int32)
    c_ts, c_flow, c_direction = columns.ts_ns, columns.flow_id, columns.direction
    c_seq, c_ack, c_flags = columns.seq, columns.ack, columns.tcp_flags
    c_payload, c_wire, c_window = columns.payload_bytes, columns.wire_bytes, columns.window
    c_ecn, c_dscp, c_ttl = columns.ecn, columns.dscp, columns.ttl
    c_tsval, c_tsecr, c_has_ts = columns.tsval, columns.tsecr, columns.has_ts
    capacity = c_ts.size
    while True:
        index = c.bucket & mask
        bucket_end = (c.bucket + 1) * c.bucket_ns
        # ---- births
        while c.next_birth_ns < bucket_end:
            if c.packets_free < MARGIN:
                return GROW_PACKETS, rows, n_sacks
            if c.flows_free == 0:
                return GROW_FLOWS, rows, n_sacks
            slot = c.free_flow
            f = flows[slot]
            following = f.next
            _draw(f, c, c.next_id)
            c.next_id += 1
            if _born(f, c, pool, packet_heads, c.next_birth_ns):
                c.free_flow = following
                c.flows_free -= 1
                bucket = min(max(f.next_ns // c.bucket_ns, c.bucket), c.bucket + mask)
                f.next = flow_heads[bucket & mask]
                flow_heads[bucket & mask] = slot
            else:
                f.next = following
            if c.next_id >= c.in_progress:
                c.next_birth_ns += np.int64(_exponential(c, c.birth_gap_ns))
        # ---- calls
        while flow_heads[index] >= 0:
            if c.packets_free < MARGIN:
                return GROW_PACKETS, rows, n_sacks
            slot = flow_heads[index]
            f = flows[slot]
            flow_heads[index] = f.next
            alive = True
            if f.next_ns < bucket_end:  # else it is beyond the calendar, and only parked here
                if f.kind == QUIC:
                    alive = _datagrams(f, c, pool, packet_heads)
                elif f.phase == _REQUEST:
                    _request(f, c, pool, packet_heads)
                elif f.phase == _ROUND:
                    _round(f, c, pool, packet_heads)
                else:
                    _close(f, c, pool, packet_heads)
                    alive = False
            if alive:
                bucket = min(max(f.next_ns // c.bucket_ns, c.bucket), c.bucket + mask)
                f.next = flow_heads[bucket & mask]
                flow_heads[bucket & mask] = slot
            else:
                f.next = c.free_flow
                c.free_flow = slot
                c.flows_free += 1
        # ---- packets: the list is newest first, so fill from the end, then sort stably
        n = 0
        slot = packet_heads[index]
        while slot >= 0:
            n += 1
            slot = pool[slot].next
        if rows + n > capacity:
            return PART_FULL, rows, n_sacks
        if n > order.size:
            order = np.empty(2 * n, np.int32)
        slot = packet_heads[index]
        for k in range(n - 1, -1, -1):
            order[k] = slot
            slot = pool[slot].next
        packet_heads[index] = -1
        for k in range(1, n):
            slot = order[k]
            ts = pool[slot].ts_ns
            j = k - 1
            while j >= 0 and pool[order[j]].ts_ns > ts:
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = slot
        for k in range(n):
            p = pool[order[k]]
            if c.written < c.packets:
                c.written += 1
                c_ts[rows] = p.ts_ns
                c_flow[rows] = p.flow_id
                c_direction[rows] = p.direction
                c_seq[rows] = p.seq
                c_ack[rows] = p.ack
                c_flags[rows] = p.flags
                c_payload[rows] = p.payload
                c_wire[rows] = p.wire
                c_window[rows] = p.window
                c_ecn[rows] = p.ecn
                c_dscp[rows] = p.dscp
                c_ttl[rows] = p.ttl
                c_tsval[rows] = p.tsval
                c_tsecr[rows] = p.tsecr
                c_has_ts[rows] = p.has_ts
                event[rows] = p.event
                if p.left != p.right:
                    sacks[n_sacks, 0] = rows
                    sacks[n_sacks, 1] = p.left
                    sacks[n_sacks, 2] = p.right
                    n_sacks += 1
                rows += 1
            p.next = c.free_packet
            c.free_packet = order[k]
        c.packets_free += n
        c.bucket += 1
        if c.written == c.packets:
            return DONE, rows, n_sacks
