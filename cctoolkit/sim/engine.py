"""The event loop: senders, one bottleneck, receivers.

How it works
------------
Everything with a constant delay is a FIFO list, so there is no global event queue: each flow has its packets on the
way to the bottleneck, its acknowledgements on the way back, and its timers. The earliest of these times is the
flow's key in a heap over flows, and the link has a time of its own. A packet costs two events: it leaves the queue,
and its acknowledgement arrives. The receiver in between is computed when the packet leaves, at the receiver's time.

With thousands of flows, each event is about one whose state is in no cache, and loading it would take most of the
time. So the loop asks in advance for what the next events need (``_look_ahead``); this changes no result.

Packets and segments come from two pools with free lists. The record of a packet becomes that of its acknowledgement.
The record of a segment serves both as the sender's scoreboard and the receiver's reassembly list: it lives until the
cumulative acknowledgement passes it, so both can refer to it by number.

Loss detection follows RACK (RFC 8985): packets in flight that were sent before a delivered one are lost once three are
SACKed or during recovery, else after a quarter of the minimum RTT. Without reordering on the path this is the rule of
RFC 6675, except that it also notices lost retransmissions. A tail loss probe is sent after two RTTs of silence. The
retransmission timer follows RFC 6298 with Linux's bound (smoothed RTT plus the larger of four deviations and the
minimum). The window is reduced as in RFC 6937.

Not modelled: a receive window that limits the sender (Linux's is several times what slow start needs, if the receiver
reads at once), receivers with little memory, reneging, Nagle, ECN fallback, loss of acknowledgements. Of
spurious reductions, only those of a timeout are undone (Eifel, RFC 3522 and 4015: ``_undo_timeout``); nothing reorders
packets, so others are rare, and there is neither F-RTO nor DSACK. The timer of a SYN doubles from the first time on, in
Linux from the fifth (tcp_syn_linear_timeouts). As in Linux, the echo of a mark on the ACK that ends a recovery reduces
the window again, although RFC 3168, section 6.1.2, allows one reduction a round trip.
"""

from __future__ import annotations

import math

import numpy as np

from .._support.algorithm.random import random
from .._support.kernels import kernel, part
from .layout import (
    ACKNOWLEDGEMENT,
    CONNECTING,
    DATA,
    DONE,
    DRR,
    DUAL_WRR,
    FLAG_CWR,
    FLAG_ECE,
    FLAG_FIN,
    FLAG_SACK,
    FQ,
    IDLE,
    IN_FLIGHT,
    LOSSES,
    LOST,
    MARKS,
    NEVER,
    NOTHING,
    OPEN,
    PURE_ACK,
    SACKED,
    SYN,
    SYN_ACK,
    TIME_SHIFTED,
    TIMEOUT,
    UDP,
    ack_at,
    decide,
    drop_at,
    flow_at,
    line_at,
    node_at,
    place_at,
    prefetch_algorithm,
    prefetch_flow,
    prefetch_node,
    prefetch_segment,
    prefetch_sender,
    queue_at,
    react,
    row_at,
    seconds,
    segment_at,
    sender_at,
    slot_at,
)

__all__ = ["BROKEN", "BUSY", "FULL", "PAUSED", "run"]

#: Why :func:`run` returned: time reached, a second has passed, more room needed, an algorithm failed.
PAUSED, BUSY, FULL, BROKEN = range(4)

_PASS, _MARK, _DROP, _DROP_LATE = range(4)
_NOT_ECT, _ECT1, _ECT0, _CE = range(4)
_FULL, _ENQUEUE, _DEQUEUE, _PATH = range(4)

_FULL_PACKET = 1514
_HEADERS = 66  # Ethernet, IPv4, TCP with timestamps
_SYN_BYTES = 74
_DELAYED_ACK_NS = 40_000_000
_TIMER_SLACK_NS = 100_000
_QUICK_ACKS = 16
#: The flags AE (256), CWR (128) and ECE (64) of SYN and SYN/ACK, by the kind of ECN (none, RFC 3168, RFC 8257, AccECN),
#: and of AccECN's packets while nothing is marked (RFC 9768, sections 3.1.1 and 3.2.2.1).
_SYN_ECN = (0, 192, 192, 448)
_SYN_ACK_ECN = (0, 64, 64, 128)
_NO_CE = 320
_UNPACED = 10  # Linux does not pace the first packets of a connection
_MAX_RTO_NS = 120_000_000_000
_INITIAL_RTO_NS = 1_000_000_000
_MS = 1_000_000
#: Room that each event leaves in pools and buffers for the next one, apart from sending.
_RESERVE = 64

_inner = part(error_model="numpy")


# ---- the heap over flows ---------------------------------------------------------------------------------------------


@_inner
def _place(port, flow, key):
    """Change the key of a flow in the heap."""
    i = place_at(port.places, flow).slot
    while i > 0:
        up = (i - 1) >> 1
        other = slot_at(port.heap, up)
        if other.key <= key:
            break
        mine = slot_at(port.heap, i)
        mine.key = other.key
        mine.flow = other.flow
        place_at(port.places, other.flow).slot = i
        i = up
    n = port.n_flows
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and slot_at(port.heap, child + 1).key < slot_at(port.heap, child).key:
            child += 1
        other = slot_at(port.heap, child)
        if other.key >= key:
            break
        mine = slot_at(port.heap, i)
        mine.key = other.key
        mine.flow = other.flow
        place_at(port.places, other.flow).slot = i
        i = child
    mine = slot_at(port.heap, i)
    mine.key = key
    mine.flow = flow
    place_at(port.places, flow).slot = i


@_inner
def _key(sender):
    one = min(sender.ack_ns, sender.access_ns, sender.pace_ns)
    other = min(sender.timer_ns, sender.delack_ns, sender.app_ns)
    return min(one, other)


# ---- looking ahead ---------------------------------------------------------------------------------------------------


@_inner
def _look_ahead(port):
    """Start to load what the next events of flows need: with many flows, it is in no cache.

    The next flow is at the root of the heap, and its sender has been asked for when it was one of the root's children.
    """
    sender = sender_at(port.senders, slot_at(port.heap, 0).flow)
    prefetch_node(port.nodes, np.int64(sender.ack_head))
    prefetch_segment(port.segments, np.int64(sender.first))
    prefetch_algorithm(sender.s, 0)
    for i in range(1, 3):
        f = slot_at(port.heap, i).flow
        prefetch_sender(port.senders, f)
        prefetch_flow(port.flows, f)


@_inner
def _look_ahead_in_queue(port, node):
    """Start to load what the packet at the head of a queue needs when it leaves, and the packet after it."""
    prefetch_node(port.nodes, np.int64(node.next))
    prefetch_segment(port.segments, np.int64(node.segment))
    prefetch_sender(port.senders, np.int64(node.flow))
    prefetch_flow(port.flows, np.int64(node.flow))


# ---- pools -----------------------------------------------------------------------------------------------------------


@_inner
def _new_node(port):
    i = port.node_free
    if i >= 0:
        port.node_free = node_at(port.nodes, i).next
    else:
        i = port.node_used
        port.node_used = i + 1
    port.node_live += 1
    return i


@_inner
def _free_node(port, i):
    node_at(port.nodes, i).next = port.node_free
    port.node_free = i
    port.node_live -= 1


@_inner
def _new_segment(port):
    i = port.segment_free
    if i >= 0:
        port.segment_free = segment_at(port.segments, i).next
    else:
        i = port.segment_used
        port.segment_used = i + 1
    port.segment_live += 1
    return i


@_inner
def _free_segment(port, i):
    segment_at(port.segments, i).next = port.segment_free
    port.segment_free = i
    port.segment_live -= 1


@_inner
def _has_room(port):
    return (
        port.node_live + _RESERVE < port.node_room
        and port.segment_live + _RESERVE < port.segment_room
        and (
            not port.record
            or (
                port.rows_in + _RESERVE < port.room_in
                and port.rows_out + _RESERVE < port.room_out
                and port.rows_drops + _RESERVE < port.room_drops
            )
        )
    )


# ---- recording -------------------------------------------------------------------------------------------------------


@_inner
def _write_data(row, port, node, flow, sender, ts_ns):
    kind = node.kind
    row.ts_ns = ts_ns
    row.flow_id = node.flow
    row.wire_bytes = node.bytes
    row.direction = 0
    row.ecn = node.ecn
    row.has_ts = kind != UDP
    if kind == UDP:
        row.seq = 0
        row.ack = 0
        row.tsval = 0
        row.tsecr = 0
        row.payload_bytes = node.bytes - 42
        row.tcp_flags = 0
        row.window = 0
        return
    row.tsval = node.sent_ns // _MS + sender.isn
    row.tsecr = 0 if kind == SYN else node.echo_ns // _MS + sender.irs
    row.window = 0xFFFF
    if kind == SYN:
        row.seq = sender.isn
        row.ack = 0
        row.payload_bytes = 0
        row.tcp_flags = 2 | _SYN_ECN[sender.ecn]
        return
    row.seq = sender.isn + 1 + node.seq * flow.mss_bytes
    row.ack = sender.irs + 1
    row.tcp_flags = 16
    if sender.ecn == 3:  # AccECN: nothing is marked on the way back
        row.tcp_flags |= _SYN_ACK_ECN[3] if kind == PURE_ACK and node.seq == 0 else _NO_CE
    if kind == PURE_ACK:
        if node.seq == sender.limit:  # the last packet: this ACK answers the FIN
            row.seq = sender.isn + 2 + (node.seq - 1) * flow.mss_bytes + sender.last_bytes
            row.ack = sender.irs + 2
        row.payload_bytes = 0
        return
    row.payload_bytes = node.bytes - _HEADERS
    if node.flags & FLAG_FIN:
        row.tcp_flags |= 8 | 1
    if node.flags & FLAG_CWR:
        row.tcp_flags |= 128


@_inner
def _write_ack(row, node, flow, sender, ts_ns):
    row.ts_ns = ts_ns
    row.flow_id = node.flow
    row.seq = sender.irs + 1
    row.ack = sender.isn + 1 + node.cum * flow.mss_bytes
    row.tsval = (node.arrival_ns - sender.to_sender_ns) // _MS + sender.irs
    row.tsecr = node.echo_ns // _MS + sender.isn
    row.payload_bytes = 0
    row.wire_bytes = node.bytes
    row.tcp_flags = 16
    row.window = 0xFFFF
    row.direction = 1
    row.ecn = 0
    row.has_ts = True
    if node.kind == SYN_ACK:
        row.seq = sender.irs
        row.tcp_flags = 16 | 2 | _SYN_ACK_ECN[sender.ecn]
        return
    if node.cum == sender.limit:
        row.ack = sender.isn + 1 + (node.cum - 1) * flow.mss_bytes + sender.last_bytes
        if node.flags & FLAG_FIN:
            row.ack += 1
            row.tcp_flags |= 1
    if sender.ecn == 3:  # AccECN's counter in the flags AE, CWR, ECE
        row.tcp_flags |= ((node.ce + 5) & 7) << 6
    elif node.flags & FLAG_ECE:
        row.tcp_flags |= 64


@_inner
def _note_drop(port, node, queue, why, now):
    if port.record:
        drop = drop_at(port.drops, port.rows_drops)
        port.rows_drops += 1
        drop.ts_ns = now
        drop.packet = node.row
        drop.flow_id = node.flow
        drop.queue = queue
        drop.why = why


# ---- the bottleneck --------------------------------------------------------------------------------------------------


@_inner
def _choose_queue(port, node, sender):
    if sender.queue >= 0:
        return sender.queue
    if port.scheduler == FQ:
        return node.flow % port.n_queues
    if port.n_queues == 2 and port.dual:
        return 0 if node.ecn == _ECT1 or node.ecn == _CE else 1
    return 0


@_inner
def _activate(port, q, line):
    """Add a queue to the round when it gets its first packet."""
    line.next_active = -1
    if port.scheduler == FQ and line.active == 0:
        line.active = 2
        line.deficit = line.quantum
        if port.new_tail >= 0:
            line_at(port.lines, port.new_tail).next_active = q
        else:
            port.new_head = q
        port.new_tail = q
        return
    line.active = 1
    line.deficit = 0.0
    if port.old_tail >= 0:
        line_at(port.lines, port.old_tail).next_active = q
    else:
        port.old_head = q
    port.old_tail = q


@_inner
def _refuse(port, q, verdict, on_enqueue):
    """An AQM returned something other than a verdict: end the run."""
    if port.refused < 0:
        port.refused = q
        port.refused_verdict = verdict
        port.refused_on_enqueue = on_enqueue


@_inner
def _arrive(port, i, now):
    """A packet arrives at the bottleneck."""
    node = node_at(port.nodes, i)
    sender = sender_at(port.senders, node.flow)
    if port.record:
        node.row = port.rows_in_total
        _write_data(
            row_at(port.ingress, port.rows_in), port, node, flow_at(port.flows, node.flow), sender, now
        )
        port.rows_in += 1
        port.rows_in_total += 1
    q = _choose_queue(port, node, sender)
    queue = queue_at(port.queues, q)
    line = line_at(port.lines, q)
    line.arrived += 1
    line.arrived_bytes += node.bytes
    node.enqueued_ns = now
    verdict = _PASS
    if line.on_enqueue != 0:
        verdict = decide(line.on_enqueue, line.p, line.s, line.stats, queue, node, now)
        if verdict == _DROP or (verdict == _MARK and node.ecn == _NOT_ECT):
            line.dropped_enqueue += 1
            sender.dropped += 1
            _note_drop(port, node, q, _ENQUEUE, now)
            _free_node(port, i)
            return
        if verdict < _PASS or verdict > _DROP:
            _refuse(port, q, verdict, True)
    full = queue.packets >= queue.limit_packets or queue.bytes + node.bytes > queue.limit_bytes
    if port.scheduler != FQ and full:
        line.dropped_full += 1
        sender.dropped += 1
        _note_drop(port, node, q, _FULL, now)
        _free_node(port, i)
        return
    if verdict == _MARK and node.ecn != _CE:
        node.ecn = _CE
        line.marked += 1
    node.next = -1
    if queue.packets == 0:
        line.head = i
        queue.head_enqueued_ns = now
        queue.idle_since_ns = -1
        if line.active == 0 and (port.scheduler == DRR or port.scheduler == FQ):
            _activate(port, q, line)
    else:
        node_at(port.nodes, line.tail).next = i
    line.tail = i
    queue.packets += 1
    queue.bytes += node.bytes
    port.packets += 1
    port.bytes += node.bytes
    if port.scheduler == FQ and (port.packets > queue.limit_packets or port.bytes > queue.limit_bytes):
        _drop_from_fattest(port, now)
    if not port.busy:  # at once: packets that arrive at the same time wait behind it
        port.free_ns = now
        _serve(port, now)


@_inner
def _take_head(port, q, queue, line, now):
    """Remove the packet at the head of a queue and return its number."""
    i = np.int64(line.head)
    node = node_at(port.nodes, i)
    line.head = node.next
    queue.packets -= 1
    queue.bytes -= node.bytes
    port.packets -= 1
    port.bytes -= node.bytes
    if queue.packets > 0:
        following = node_at(port.nodes, line.head)
        queue.head_enqueued_ns = following.enqueued_ns
        if port.look_ahead:
            _look_ahead_in_queue(port, following)
    else:
        line.tail = -1
        queue.head_enqueued_ns = -1
        queue.idle_since_ns = now
    return i


@_inner
def _drop_from_fattest(port, now):
    """RFC 8290, section 4.1: drop the head of the queue with the most bytes.

    It drops a single packet, since the limit is exceeded by one. (An overloaded router saves searches by dropping half
    of that queue, up to 64 packets; here that would only cause bursts of losses.)
    """
    fattest = 0
    most = np.int64(-1)
    for q in range(port.n_queues):
        if queue_at(port.queues, q).bytes > most:
            most = queue_at(port.queues, q).bytes
            fattest = q
    line = line_at(port.lines, fattest)
    i = _take_head(port, fattest, queue_at(port.queues, fattest), line, now)
    node = node_at(port.nodes, i)
    line.dropped_full += 1
    sender_at(port.senders, node.flow).dropped += 1
    _note_drop(port, node, fattest, _FULL, now)
    _free_node(port, i)


@_inner
def _may_send(queue, line, now):
    return queue.packets > 0 and (line.shaped_ns_per_byte == 0.0 or line.shaped_until_ns <= now)


@_inner
def _rotate(port, q, line):
    """Move the queue at the head of the old list to its end."""
    port.old_head = line.next_active
    if port.old_head < 0:
        port.old_tail = -1
    line.next_active = -1
    if port.old_tail >= 0:
        line_at(port.lines, port.old_tail).next_active = q
    else:
        port.old_head = q
    port.old_tail = q


@_inner
def _pick_drr(port, now):
    """Deficit round robin (Shreedhar and Varghese 1996); skips a shaped queue that must wait."""
    waiting = 0
    while port.old_head >= 0 and waiting <= port.n_queues:
        q = port.old_head
        queue = queue_at(port.queues, q)
        line = line_at(port.lines, q)
        if queue.packets == 0:
            port.old_head = line.next_active
            if port.old_head < 0:
                port.old_tail = -1
            line.active = 0
        elif not _may_send(queue, line, now):
            waiting += 1
            _rotate(port, q, line)
        elif line.deficit >= node_at(port.nodes, line.head).bytes:
            return q
        else:
            line.deficit += line.quantum
            _rotate(port, q, line)
            waiting = 0
    return -1


@_inner
def _pick_fq(port, now):
    """RFC 8290, section 4.2: new queues before old ones."""
    while True:
        from_new = port.new_head >= 0
        q = port.new_head if from_new else port.old_head
        if q < 0:
            return -1
        queue = queue_at(port.queues, q)
        line = line_at(port.lines, q)
        if line.deficit > 0.0 and queue.packets > 0:
            return q
        if line.deficit > 0.0 and not from_new:  # empty, and already served from the old list
            port.old_head = line.next_active
            if port.old_head < 0:
                port.old_tail = -1
            line.active = 0
            continue
        if line.deficit <= 0.0:
            line.deficit += line.quantum
        if from_new:
            port.new_head = line.next_active
            if port.new_head < 0:
                port.new_tail = -1
            line.next_active = -1
            line.active = 1
            if port.old_tail >= 0:
                line_at(port.lines, port.old_tail).next_active = q
            else:
                port.old_head = q
            port.old_tail = q
        else:
            _rotate(port, q, line)


@_inner
def _pick_dual(port, now):
    """RFC 9332, section 4.2.2: low latency first, except for what is owed to classic traffic."""
    low, low_line = queue_at(port.queues, 0), line_at(port.lines, 0)
    classic, classic_line = queue_at(port.queues, 1), line_at(port.lines, 1)
    if not _may_send(classic, classic_line, now):
        return 0 if _may_send(low, low_line, now) else -1
    if not _may_send(low, low_line, now):
        return 1
    if port.scheduler == TIME_SHIFTED:
        return 0 if low.head_enqueued_ns - port.time_shift_ns <= classic.head_enqueued_ns else 1
    head_start = _FULL_PACKET * (low_line.quantum - classic_line.quantum)
    return 0 if port.owed <= head_start else 1


@_inner
def _settle(port, q, octets):
    """Weighted round robin as in Linux's dualpi2: what one queue sends while the other waits is owed to the other."""
    if queue_at(port.queues, 1 - q).packets > 0:
        due = octets * line_at(port.lines, 1 - q).quantum
        port.owed += due if q == 0 else -due


@_inner
def _pick(port, now):
    """Number of the queue that sends next, or -1."""
    if port.packets == 0:
        return -1
    if port.scheduler == DRR:
        return _pick_drr(port, now)
    if port.scheduler == FQ:
        return _pick_fq(port, now)
    if port.scheduler == DUAL_WRR or port.scheduler == TIME_SHIFTED:
        return _pick_dual(port, now)
    for q in range(port.n_queues):  # priority, or the only queue
        if _may_send(queue_at(port.queues, q), line_at(port.lines, q), now):
            return q
    return -1


@_inner
def _occupy(port, line, node, now):
    """Occupy the link with a packet of a queue; return when the packet has left."""
    octets = node.bytes
    line.deficit -= octets
    if line.shaped_ns_per_byte > 0.0:
        # a token bucket that holds the largest packet: waiting for others on the link does not cost rate
        waited = min(now - node.enqueued_ns, port.most_bytes * line.shaped_ns_per_byte)
        start = max(line.shaped_until_ns, now - waited)
        line.shaped_until_ns = start + octets * line.shaped_ns_per_byte
    exact = octets * port.ns_per_byte + port.fraction_ns
    whole = np.int64(exact)
    port.fraction_ns = exact - whole
    port.busy = True
    port.free_ns = now + whole
    return port.free_ns


@_inner
def _serve(port, now):
    """The link is free: send the next packet."""
    while True:
        if port.record and port.rows_drops + _RESERVE >= port.room_drops:
            return  # many drops in a row: return, and resume at the same time with an empty buffer
        q = _pick(port, now)
        if q < 0:
            port.busy = False
            port.free_ns = NEVER
            if port.packets == 0:
                port.owed = 0.0
            else:  # all are shaped: wake up when the first one may send
                wake = np.inf
                for j in range(port.n_queues):
                    if queue_at(port.queues, j).packets > 0:
                        wake = min(wake, line_at(port.lines, j).shaped_until_ns)
                port.free_ns = np.int64(math.ceil(wake))
            return
        queue = queue_at(port.queues, q)
        line = line_at(port.lines, q)
        i = _take_head(port, q, queue, line, now)
        node = node_at(port.nodes, i)
        if line.on_dequeue != 0:
            verdict = decide(line.on_dequeue, line.p, line.s, line.stats, queue, node, now)
            if verdict != _PASS:
                if verdict < _PASS or verdict > _DROP_LATE:
                    _refuse(port, q, verdict, False)
                if verdict != _MARK or node.ecn == _NOT_ECT:
                    line.dropped_dequeue += 1
                    sender_at(port.senders, node.flow).dropped += 1
                    _note_drop(port, node, q, _DEQUEUE, now)
                    if verdict == _DROP_LATE:
                        _occupy(port, line, node, now)
                    _free_node(port, i)
                    if verdict == _DROP_LATE:
                        return
                    continue
                if node.ecn != _CE:
                    node.ecn = _CE
                    line.marked += 1
        wait = now - node.enqueued_ns
        queue.last_delay_ns = wait
        queue.last_departure_ns = now
        line.delay_sum_ns += wait
        line.delay_max_ns = max(line.delay_max_ns, wait)
        line.sent += 1
        line.sent_bytes += node.bytes
        if port.scheduler == DUAL_WRR:
            _settle(port, q, node.bytes)
        gone = _occupy(port, line, node, now)
        if port.shaper:
            gone = np.int64(now)
        if port.record:
            f = node.flow
            row = row_at(port.egress, port.rows_out)
            _write_data(row, port, node, flow_at(port.flows, f), sender_at(port.senders, f), gone)
            port.rows_out += 1
        _deliver(port, i, node, gone)
        return


# ---- receivers -------------------------------------------------------------------------------------------------------


@_inner
def _answer(port, i, node, sender, rx_ns):
    """Turn the record of a packet into an acknowledgement that leaves the receiver at `rx_ns`."""
    node.kind = ACKNOWLEDGEMENT
    node.bytes = _HEADERS
    node.cum = sender.expected
    node.ce = sender.ce
    # RFC 8257, section 3.2: as the last packet was
    if sender.echo_ece or (sender.ecn == 2 and sender.was_marked):
        node.flags |= FLAG_ECE
    if sender.fin and sender.expected == sender.limit:
        node.flags |= FLAG_FIN
    _return(port, i, node, sender, rx_ns)


@_inner
def _acknowledge(port, i, node, sender, rx_ns):
    """Acknowledge a packet, together with those whose acknowledgement is delayed."""
    while sender.held >= 0:
        j = np.int64(sender.held)
        held = node_at(port.nodes, j)
        sender.held = held.next
        if held.flags & FLAG_SACK:
            _answer(port, j, held, sender, rx_ns)
        else:
            node.echo_ns = held.echo_ns
            _free_node(port, j)
    _answer(port, i, node, sender, rx_ns)
    sender.held_count = 0
    sender.delack_ns = NEVER
    if sender.quick_acks > 0:
        sender.quick_acks -= 1


@_inner
def _release_held(port, sender, rx_ns):
    """The timer of the delayed acknowledgement expired."""
    i = np.int64(sender.held)
    sender.held = node_at(port.nodes, i).next
    while sender.held >= 0:  # there may be several for packets out of order
        j = np.int64(sender.held)
        _answer(port, i, node_at(port.nodes, i), sender, rx_ns)
        i = j
        sender.held = node_at(port.nodes, i).next
    _acknowledge(port, i, node_at(port.nodes, i), sender, rx_ns)


@_inner
def _acknowledge_beyond(port, i, node, flow, sender, rx_ns):
    """Acknowledge a packet out of order: Linux sends three ACKs at once per hole, then one for each millisecond.

    On short paths, one for each third of an RTT (tcp_comp_sack_rtt_percent).
    """
    if sender.repeated_for != sender.expected:
        sender.repeated_for = sender.expected
        sender.repeated = 0
    if sender.quick_acks > 0 or sender.repeated < 3 or sender.held_count >= 44:
        sender.repeated += sender.quick_acks == 0
        _acknowledge(port, i, node, sender, rx_ns)
        return
    node.next = -1
    if sender.held < 0:
        sender.held = i
        sender.delack_ns = (
            rx_ns + min(_MS, flow.min_rtt_ns * 33 // 100) + _TIMER_SLACK_NS - sender.to_receiver_ns
        )
    else:
        node_at(port.nodes, sender.held_tail).next = i
    sender.held_tail = i
    sender.held_count += 1


@_inner
def _return(port, i, node, sender, rx_ns):
    node.arrival_ns = rx_ns + sender.to_sender_ns
    node.next = -1
    if sender.ack_tail >= 0:
        node_at(port.nodes, sender.ack_tail).next = i
    else:
        sender.ack_head = i
        sender.ack_ns = node.arrival_ns
    sender.ack_tail = i


@_inner
def _widen(sender, rx_ns):
    """Linux's receive window: the limit of its growth, from what arrived in order within a round trip.

    The window itself grows by two packets per packet up to the limit, and packets that make it grow are
    acknowledged at once: almost all of slow start, and later only every second packet.
    """
    if 8 * (rx_ns - sender.copied_ns) < sender.receiver_rtt_ms * _MS:
        return
    copied = sender.expected - sender.copied
    if copied > sender.best_copied:
        room = 2 * copied + 16
        room += 2 * (room * (copied - sender.best_copied) // sender.best_copied)
        sender.window_clamp = max(sender.window_clamp, min(room, sender.max_window))
        sender.best_copied = copied
    sender.copied = sender.expected
    sender.copied_ns = rx_ns


@_inner
def _deliver(port, i, node, gone_ns):
    """The receiver's reaction to a packet that left the bottleneck at `gone_ns`, at its time of arrival."""
    f = np.int64(node.flow)
    sender = sender_at(port.senders, f)
    flow = flow_at(port.flows, f)
    if sender.loss > 0.0 and random(flow) < sender.loss:
        sender.lost_on_path += 1
        _note_drop(port, node, -1, _PATH, gone_ns)
        _free_node(port, i)
        return
    rx_ns = gone_ns + sender.to_receiver_ns
    if sender.jitter_ns > 0:
        rx_ns = max(rx_ns + np.int64(random(flow) * sender.jitter_ns), sender.last_arrival_ns)
        sender.last_arrival_ns = rx_ns
    kind = node.kind
    if kind == UDP:
        sender.received += 1
        sender.received_bytes += node.bytes - 42
        sender.ce += node.ecn == _CE
        _free_node(port, i)
        return
    if kind == PURE_ACK:
        _free_node(port, i)
        return
    if sender.held >= 0 and rx_ns >= sender.delack_ns + sender.to_receiver_ns:
        _release_held(port, sender, sender.delack_ns + sender.to_receiver_ns)
    echo_ms = node.echo_ns // _MS  # milliseconds, as in Linux
    node.echo_ns = node.sent_ns
    if kind == SYN:
        node.kind = SYN_ACK
        node.bytes = _SYN_BYTES
        node.cum = 0
        _return(port, i, node, sender, rx_ns)
    else:
        sender.received += 1
        ecn_news = False  # a change about marks, to be acknowledged at once
        if sender.ecn > 0:
            if node.flags & FLAG_CWR:
                sender.echo_ece = False
                ecn_news = True
            marked = node.ecn == _CE
            ecn_news |= sender.ecn >= 2 and marked != sender.was_marked
            if marked:
                sender.ce += 1
                if not (sender.echo_ece or (sender.was_marked and sender.ecn >= 2)):
                    sender.quick_acks = max(sender.quick_acks, 2)
                sender.echo_ece = sender.ecn == 1
            sender.was_marked = marked
        node.flags = 0
        expected = sender.expected
        if echo_ms != sender.receiver_echo_ms:
            sender.receiver_echo_ms = echo_ms
            rtt_ms = rx_ns // _MS - echo_ms
            old = sender.receiver_rtt_ms
            sender.receiver_rtt_ms = 8 * rtt_ms if old == 0 else min(8 * rtt_ms, old - (old >> 3) + rtt_ms)
        if sender.window < sender.window_clamp:
            sender.window = min(sender.window + 2, sender.window_clamp)
            sender.quick_acks |= 1
        if node.seq > expected:
            segment = segment_at(port.segments, node.segment)
            if not segment.received:
                segment.received = True
                sender.beyond += 1
                sender.received_bytes += node.bytes - _HEADERS
                node.flags |= FLAG_SACK
            _acknowledge_beyond(port, i, node, flow, sender, rx_ns)
        elif node.seq < expected:
            sender.quick_acks = max(sender.quick_acks, _QUICK_ACKS)
            _acknowledge(port, i, node, sender, rx_ns)
        else:
            sender.received_bytes += node.bytes - _HEADERS
            segment = segment_at(port.segments, node.segment)
            segment.received = True
            expected += 1
            at_once = ecn_news or sender.beyond > 0 or expected == sender.limit or sender.quick_acks > 0
            j = segment.next
            while sender.beyond > 0 and j >= 0:
                other = segment_at(port.segments, j)
                if not other.received:
                    break
                expected += 1
                sender.beyond -= 1
                j = other.next
            sender.expected = expected
            _widen(sender, rx_ns)
            sender.held_count += 1
            if at_once or sender.held_count >= sender.delayed_ack:
                _acknowledge(port, i, node, sender, rx_ns)
            else:
                if sender.held >= 0:
                    held = node_at(port.nodes, sender.held)
                    node.echo_ns = held.echo_ns
                    _free_node(port, np.int64(sender.held))
                else:  # in the link's time, when all earlier arrivals have been handled
                    sender.delack_ns = rx_ns + _DELAYED_ACK_NS - sender.to_receiver_ns
                sender.held = i
                node.next = -1
    _place(port, f, _key(sender))


# ---- senders: lists of segments --------------------------------------------------------------------------------------


@_inner
def _append_flight(port, sender, i, segment):
    segment.state = IN_FLIGHT
    segment.after = -1
    segment.before = sender.flight_tail
    if sender.flight_tail >= 0:
        segment_at(port.segments, sender.flight_tail).after = i
    else:
        sender.flight_head = i
    sender.flight_tail = i


@_inner
def _leave_flight(port, sender, segment):
    if segment.before >= 0:
        segment_at(port.segments, segment.before).after = segment.after
    else:
        sender.flight_head = segment.after
    if segment.after >= 0:
        segment_at(port.segments, segment.after).before = segment.before
    else:
        sender.flight_tail = segment.before


@_inner
def _append_lost(port, sender, i, segment):
    segment.state = LOST
    segment.after = -1
    segment.before = sender.lost_tail
    if sender.lost_tail >= 0:
        segment_at(port.segments, sender.lost_tail).after = i
    else:
        sender.lost_head = i
    sender.lost_tail = i


@_inner
def _leave_lost(port, sender, segment):
    if segment.before >= 0:
        segment_at(port.segments, segment.before).after = segment.after
    else:
        sender.lost_head = segment.after
    if segment.after >= 0:
        segment_at(port.segments, segment.after).before = segment.before
    else:
        sender.lost_tail = segment.before


# ---- senders: sending ------------------------------------------------------------------------------------------------


@_inner
def _written(sender, now):
    """Number of packets that the application has written so far."""
    if not sender.writing:
        return np.int64(sender.app_base)
    if sender.app_pps == 0.0:
        return sender.limit
    return np.int64(sender.app_base + (now - sender.app_base_ns) * 1e-9 * sender.app_pps + 1e-6)


@_inner
def _emit(port, f, i, node, sender, now):
    """A packet leaves the host."""
    node.flow = f
    node.aggregate = sender.aggregate
    node.label = 0.0
    node.sent_ns = now
    node.echo_ns = sender.peer_ts_ns
    gone_ns = now
    if sender.access_ns_per_byte > 0.0:
        begin_ns = max(now, sender.access_free_ns)
        sender.access_free_ns = begin_ns + np.int64(node.bytes * sender.access_ns_per_byte)
        gone_ns = begin_ns if port.shaper else sender.access_free_ns
    elif sender.to_queue_ns == 0:
        _arrive(port, i, now)
        return
    node.arrival_ns = gone_ns + sender.to_queue_ns
    node.next = -1
    if sender.access_tail >= 0:
        node_at(port.nodes, sender.access_tail).next = i
    else:
        sender.access_head = i
        sender.access_ns = node.arrival_ns
    sender.access_tail = i


@_inner
def _emit_control(port, f, sender, kind, octets, seq, now):
    i = _new_node(port)
    node = node_at(port.nodes, i)
    node.kind = kind
    node.flags = 0
    node.bytes = octets
    node.ecn = _NOT_ECT
    node.segment = -1
    node.seq = seq
    _emit(port, f, i, node, sender, now)


@_inner
def _after_idle(flow, sender, now):
    """RFC 2861: halve the window for each retransmission timeout without anything to send."""
    idle_ns = now - flow.last_sent_ns - sender.rto_ns
    if idle_ns > 0 and flow.last_sent_ns > 0 and not sender.owns_recovery:
        flow.ssthresh = max(flow.ssthresh, 0.75 * flow.cwnd)
        while idle_ns > 0 and flow.cwnd > flow.initial_window:
            flow.cwnd = max(flow.cwnd / 2, np.float64(flow.initial_window))
            idle_ns -= sender.rto_ns


@_inner
def _transmit(port, f, flow, sender, j, segment, now):
    """Send or retransmit a segment."""
    if segment.seq == flow.una and not segment.retransmitted:  # nothing else is in flight
        _after_idle(flow, sender, now)
        sender.first_sent_ns = now
        flow.delivered_ns = now
        if sender.on_restart != 0:
            react(sender.on_restart, sender.p, sender.s, sender.stats, flow, ack_at(port.ack, 0), now)
    flow.last_sent_ns = now
    segment.order = sender.order
    sender.order += 1
    segment.sent_ns = now
    segment.first_sent_ns = sender.first_sent_ns
    segment.delivered_ns = flow.delivered_ns
    segment.delivered = flow.delivered
    segment.lost = flow.lost
    segment.marked = flow.marked
    segment.app_limited = flow.app_limited
    _append_flight(port, sender, j, segment)
    flow.inflight += 1
    segment.inflight = flow.inflight
    sender.sent += 1
    sender.prr_out += 1
    if sender.rto_at_ns == NEVER:
        sender.rto_at_ns = now + (sender.rto_ns << sender.backoff)
    i = _new_node(port)
    node = node_at(port.nodes, i)
    node.kind = DATA
    node.flags = 0
    node.segment = j
    node.seq = segment.seq
    node.bytes = flow.wire_bytes
    if segment.seq == sender.limit - 1:
        node.bytes = sender.last_bytes + _HEADERS
        if sender.fin:
            node.flags = FLAG_FIN
    if sender.ecn == 0:
        node.ecn = _NOT_ECT
    elif sender.ecn == 3:
        node.ecn = _ECT1
    else:
        node.ecn = _ECT0
        if segment.retransmitted and sender.ecn == 1:
            node.ecn = _NOT_ECT  # RFC 3168, section 6.1.5
        elif sender.send_cwr:
            node.flags |= FLAG_CWR
            sender.send_cwr = False
    late_ns = max(now - flow.next_send_ns, 0)
    flow.next_send_ns = max(now, flow.next_send_ns)
    if flow.pacing_bps > 0.0 and sender.sent >= _UNPACED:
        gap_ns = np.int64(node.bytes * 8e9 / flow.pacing_bps)
        flow.next_send_ns += gap_ns - min(gap_ns >> 1, late_ns)
    _emit(port, f, i, node, sender, now)
    if sender.on_send != 0:
        react(sender.on_send, sender.p, sender.s, sender.stats, flow, ack_at(port.ack, 0), now)


@_inner
def _new_data(port, f, flow, sender, now):
    """Send the next new segment."""
    j = _new_segment(port)
    segment = segment_at(port.segments, j)
    segment.seq = flow.next_seq
    segment.next = -1
    segment.received = False
    segment.retransmitted = False
    segment.missing = False
    if sender.last >= 0:
        segment_at(port.segments, sender.last).next = j
    else:
        sender.first = j
    sender.last = j
    flow.next_seq += 1
    _transmit(port, f, flow, sender, j, segment, now)


@_inner
def _retransmit(port, f, flow, sender, now):
    """Retransmit the first segment deemed lost."""
    j = np.int64(sender.lost_head)
    segment = segment_at(port.segments, j)
    _leave_lost(port, sender, segment)
    segment.retransmitted = True
    sender.retransmits += 1
    _transmit(port, f, flow, sender, j, segment, now)


@_inner
def _send(port, f, flow, sender, now):
    """Send as much as window, pacing, application and receiver allow."""
    sender.pace_ns = NEVER
    sent = False
    while sender.status == OPEN:
        if flow.inflight + 1 > max(flow.cwnd, 1.0):
            break
        again = sender.lost_head >= 0
        if not again:
            if flow.next_seq >= min(_written(sender, now), sender.limit):
                sender.app_limited_until = max(flow.delivered + flow.inflight, 1)
                flow.app_limited = True
                if sender.writing and sender.app_pps > 0.0 and flow.next_seq < sender.limit:
                    wait = (flow.next_seq + 1 - sender.app_base) / sender.app_pps * 1e9
                    sender.write_ns = max(sender.app_base_ns + np.int64(math.ceil(wait)), now + 1)
                break
            if flow.next_seq - flow.una >= sender.max_window:
                break
        if flow.pacing_bps > 0.0 and flow.next_send_ns > now:
            sender.pace_ns = flow.next_send_ns
            break
        if sender.access_ns_per_byte > 0.0:
            # TCP small queues of Linux: two packets wait in the host's queue, the others here
            ready_ns = sender.access_free_ns - np.int64(2 * flow.wire_bytes * sender.access_ns_per_byte)
            if ready_ns > now:
                sender.pace_ns = ready_ns
                break
        if not _has_room(port):
            port.starved = f
            break
        if again:
            _retransmit(port, f, flow, sender, now)
        else:
            _new_data(port, f, flow, sender, now)
        sent = True
    if not (flow.cwnd >= 0.0 and flow.ssthresh >= 0.0 and flow.pacing_bps >= 0.0):
        port.broken = f
    _note_limit(flow, sender, sent)
    quiet = sent or (sender.probe_ns == NEVER and flow.inflight > 0)  # new data, or an acknowledgement
    if quiet and sender.repair <= MARKS and sender.sacked == 0 and not sender.probed:
        _arm_probe(flow, sender, now)
    _arm_timer(sender)
    _arm_application(sender)


@_inner
def _note_limit(flow, sender, sent):
    """RFC 7661 as in Linux: remember whether the window was full in a flight, or else the most packets out."""
    full = flow.inflight + 1 > flow.cwnd
    if not sent and not full:
        return
    out = flow.next_seq - flow.una
    if full or flow.una >= sender.limited_until or (not sender.limited and out > sender.most_out):
        sender.limited = full
        sender.most_out = out
        sender.limited_until = flow.next_seq


@_inner
def _arm_probe(flow, sender, now):
    """RFC 8985, section 7.2: set the timer of the tail loss probe."""
    wait = 2 * flow.srtt_ns if flow.srtt_ns > 0 else _INITIAL_RTO_NS
    if flow.next_seq - flow.una == 1:
        wait += 200 * _MS  # the receiver may delay its acknowledgement
    sender.probe_ns = min(now + wait, sender.rto_at_ns)


@_inner
def _arm_timer(sender):
    sender.timer_ns = min(sender.reorder_ns, sender.probe_ns, sender.rto_at_ns)


@_inner
def _arm_application(sender):
    sender.app_ns = min(sender.stop_ns, sender.toggle_ns, sender.write_ns)


# ---- senders: acknowledgements ---------------------------------------------------------------------------------------


@_inner
def _sample_rtt(flow, sender, rtt, longest):
    """Take two RTT samples of an acknowledgement: of its last packet, and of its first, for the timer."""
    flow.latest_rtt_ns = rtt
    flow.min_rtt_ns = min(flow.min_rtt_ns, rtt)
    sender.rtt_samples += 1
    sender.rtt_sum_ns += rtt
    if flow.srtt_ns == 0:
        flow.srtt_ns = max(longest, 1)
        flow.rttvar_ns = longest >> 1
    else:
        flow.rttvar_ns += (abs(flow.srtt_ns - longest) - flow.rttvar_ns) >> 2
        flow.srtt_ns = max(flow.srtt_ns + ((longest - flow.srtt_ns) >> 3), 1)
    sender.rto_ns = min(flow.srtt_ns + max(4 * flow.rttvar_ns, sender.min_rto_ns), _MAX_RTO_NS)


@_inner
def _delivered(port, flow, sender, segment, newest, now):
    """Count a segment as delivered; return the order of the last sent one so far, whose sample `ack` holds."""
    if segment.state == IN_FLIGHT:
        _leave_flight(port, sender, segment)
        flow.inflight -= 1
    elif segment.state == LOST:
        _leave_lost(port, sender, segment)
    if segment.missing:
        segment.missing = False
        sender.missing -= 1
    flow.delivered += 1
    flow.delivered_ns = now
    if segment.order > newest:
        ack = ack_at(port.ack, 0)
        ack.sample_prior_delivered = segment.delivered
        ack.sample_app_limited = segment.app_limited
        ack.sample_inflight = segment.inflight
        ack.sample_lost = flow.lost - segment.lost
        ack.sample_marked = segment.marked
        # the two intervals, for now: that of sending, and the start of that of acknowledging
        ack.sample_interval_ns = segment.sent_ns - segment.first_sent_ns
        ack.sample_delivered = segment.delivered_ns
        sender.first_sent_ns = segment.sent_ns
        return segment.order
    return newest


@_inner
def _detect_losses(port, flow, sender, now):
    """Mark segments as lost by RACK; return how many, and whether any had been retransmitted before."""
    sender.reorder_ns = NEVER
    sure = sender.sacked >= 3 or sender.repair >= LOSSES
    n = 0
    again = False
    j = np.int64(sender.flight_head)
    while j >= 0:
        segment = segment_at(port.segments, j)
        if segment.order >= sender.rack_order:
            break
        if not sure:
            due = segment.sent_ns + sender.rack_rtt_ns + (flow.min_rtt_ns >> 2)
            if now < due:
                sender.reorder_ns = due
                break
        following = np.int64(segment.after)
        _lose(port, flow, sender, j, segment)
        again |= segment.retransmitted
        n += 1
        j = following
    return n, again


@_inner
def _lose(port, flow, sender, j, segment):
    """Deem a segment in flight lost."""
    _leave_flight(port, sender, segment)
    _append_lost(port, sender, j, segment)
    flow.inflight -= 1
    flow.lost += 1
    flow.lost_inflight = segment.inflight
    flow.lost_since = flow.lost - segment.lost
    if not segment.missing:
        segment.missing = True
        sender.missing += 1


@_inner
def _begin_reduction(port, flow, sender, function, repair, now):
    """Ask the algorithm for ssthresh and start to reduce the window."""
    sender.prior_cwnd = flow.cwnd
    sender.prior_ssthresh = flow.ssthresh
    if function != 0:
        react(function, sender.p, sender.s, sender.stats, flow, ack_at(port.ack, 0), now)
    else:
        flow.ssthresh = max(math.floor(flow.cwnd / 2), 2.0)
    sender.repair = repair
    sender.send_cwr = sender.ecn == 1  # RFC 3168, section 6.1.2: after a reduction for whatever reason
    flow.in_recovery = True
    flow.in_rto = False
    sender.recovery_point = flow.next_seq
    sender.prr_delivered = 0
    sender.prr_out = 0
    sender.probe_ns = NEVER
    sender.probe_end = -1


@_inner
def _end_repair(port, flow, sender, now):
    """Everything sent before the reduction (or timeout) is acknowledged."""
    if flow.in_recovery and not sender.owns_recovery:
        flow.cwnd = max(flow.ssthresh, 1.0)
    sender.repair = NOTHING
    flow.in_recovery = False
    flow.in_rto = False
    if sender.on_recovered != 0:
        react(sender.on_recovered, sender.p, sender.s, sender.stats, flow, ack_at(port.ack, 0), now)


@_inner
def _repair(port, flow, sender, again, now):
    """Losses were detected: start recovery, unless it is under way."""
    if sender.repair == MARKS and not sender.owns_recovery:
        sender.repair = LOSSES  # the window is already being reduced
        sender.recoveries += 1
    elif sender.repair < LOSSES or (sender.repair == TIMEOUT and again):
        sender.recoveries += 1
        _begin_reduction(port, flow, sender, sender.on_loss, LOSSES, now)


@_inner
def _reduce(flow, sender, acked, advanced, lost):
    """Proportional rate reduction (RFC 6937), with the slow-start bound on progress."""
    sender.prr_delivered += acked
    target = max(flow.ssthresh, 1.0)
    if flow.inflight > target:
        allowed = math.ceil(sender.prr_delivered * target / sender.prior_cwnd) - sender.prr_out
    else:
        limit = max(sender.prr_delivered - sender.prr_out, acked)
        if advanced > 0 and lost == 0:
            limit += 1
        allowed = min(target - flow.inflight, np.float64(limit))
    if sender.prr_out == 0:
        allowed = max(allowed, 1.0)  # the fast retransmit
    flow.cwnd = flow.inflight + max(allowed, 0.0)


@_inner
def _undo_timeout(port, flow, sender):
    """RFC 3522 and 4015 (Eifel): the packet was sent before the timeout, so perhaps nothing was lost."""
    flow.cwnd = max(flow.cwnd, sender.prior_cwnd)
    flow.ssthresh = max(flow.ssthresh, sender.prior_ssthresh)
    sender.send_cwr = False
    while sender.lost_tail >= 0:  # back into the flight, before retransmissions
        j = np.int64(sender.lost_tail)
        segment = segment_at(port.segments, j)
        _leave_lost(port, sender, segment)
        segment.state = IN_FLIGHT
        segment.missing = False
        segment.before = -1
        segment.after = sender.flight_head
        if sender.flight_head >= 0:
            segment_at(port.segments, sender.flight_head).before = j
        else:
            sender.flight_tail = j
        sender.flight_head = j
        sender.missing -= 1
        flow.inflight += 1
    sender.repair = NOTHING
    flow.in_rto = False


@_inner
def _answer_probe(port, flow, sender, duplicate, now):
    """RFC 8985, section 7.4: reduce the window if the probe repaired a loss that went unnoticed."""
    if not sender.probe_again or duplicate:
        sender.probe_end = -1  # new data arrived, or the packet arrived twice
    elif flow.una > sender.probe_end:
        _begin_reduction(port, flow, sender, sender.on_loss, LOSSES, now)
        _end_repair(port, flow, sender, now)


@_inner
def _no_sample(ack):
    ack.sample_interval_ns = -1
    ack.sample_delivered = 0
    ack.sample_marked = 0
    ack.sample_lost = 0
    ack.sample_inflight = 0
    ack.sample_prior_delivered = -1
    ack.delivery_bps = 0.0
    ack.sample_app_limited = False
    ack.round_start = False


@_inner
def _on_ack(port, f, flow, sender, i, now):
    """An acknowledgement arrives."""
    node = node_at(port.nodes, i)
    ack = ack_at(port.ack, 0)
    prior_inflight = flow.inflight
    prior_delivered = flow.delivered
    prior_una = flow.una
    newest = np.int64(-1)
    _no_sample(ack)
    sender.peer_ts_ns = node.arrival_ns - sender.to_sender_ns

    if sender.ecn >= 2:
        ack.marked = node.ce - sender.peer_ce
        sender.peer_ce = node.ce
        flow.marked += ack.marked
    else:
        ack.marked = 0
    ack.ece = (node.flags & FLAG_ECE) != 0

    # RACK: the transmission that triggered this acknowledgement
    current = node.seq >= prior_una
    if current:
        segment = segment_at(port.segments, node.segment)
        if segment.sent_ns == node.sent_ns and segment.order > sender.rack_order:
            sender.rack_order = segment.order
            sender.rack_rtt_ns = now - node.sent_ns
    earliest_ns = np.int64(NEVER)
    j = np.int64(sender.first)
    while flow.una < node.cum:
        segment = segment_at(port.segments, j)
        if segment.state == SACKED:
            sender.sacked -= 1
        else:
            if not segment.retransmitted:
                earliest_ns = min(earliest_ns, segment.sent_ns)
            newest = _delivered(port, flow, sender, segment, newest, now)
        following = np.int64(segment.next)
        _free_segment(port, j)
        j = following
        flow.una += 1
    sender.first = j
    if j < 0:
        sender.last = -1
    if node.flags & FLAG_SACK and node.seq >= node.cum:
        segment = segment_at(port.segments, node.segment)
        if segment.state != SACKED:
            newest = _delivered(port, flow, sender, segment, newest, now)
            segment.state = SACKED
            sender.sacked += 1

    rtt = now - node.sent_ns if current else np.int64(-1)
    if rtt >= 0:
        _sample_rtt(flow, sender, rtt, now - min(earliest_ns, node.sent_ns))
    acked = flow.delivered - prior_delivered
    advanced = flow.una - prior_una
    if rtt >= 0:
        sender.backoff = 0
    if acked > 0:
        head = segment_at(port.segments, np.int64(sender.first))
        if j < 0:
            sender.rto_at_ns = NEVER
        elif advanced > 0 or node.sent_ns < head.sent_ns:  # else the timer may have to repair the head
            sender.rto_at_ns = now + sender.rto_ns
        sender.probed = False
        sender.probe_ns = NEVER
    if sender.app_limited_until > 0 and flow.delivered > sender.app_limited_until:
        sender.app_limited_until = 0
        flow.app_limited = False

    # rounds and the delivery rate
    if newest >= 0:
        _finish_sample(flow, sender, ack, now)
    ack.acked = acked
    ack.advanced = advanced
    ack.rtt_ns = rtt
    ack.prior_inflight = prior_inflight

    # what is under repair
    if sender.probe_end >= 0 and flow.una >= sender.probe_end:
        _answer_probe(port, flow, sender, not current, now)
    if sender.timed_out_ns >= 0 and advanced > 0:
        if sender.repair == TIMEOUT and node.sent_ns < sender.timed_out_ns:
            _undo_timeout(port, flow, sender)
        sender.timed_out_ns = -1
    if sender.repair != NOTHING and flow.una >= sender.recovery_point + (sender.repair == MARKS):
        _end_repair(port, flow, sender, now)
    ack.lost, again = _detect_losses(port, flow, sender, now)
    ack.sample_lost += ack.lost
    if sender.missing > 0:
        _repair(port, flow, sender, again, now)
    elif sender.repair == NOTHING:
        if ack.ece and sender.ecn == 1:
            function = sender.on_ecn if sender.on_ecn != 0 else sender.on_loss
            _begin_reduction(port, flow, sender, function, MARKS, now)
        elif ack.marked > 0 and sender.reduces_by_marks:
            _begin_reduction(port, flow, sender, sender.on_ecn, MARKS, now)

    flow.cwnd_limited = sender.limited or (flow.cwnd < flow.ssthresh and flow.cwnd < 2 * sender.most_out)
    flow.may_grow = flow.cwnd_limited and advanced > 0 and not flow.in_recovery
    if sender.on_ack != 0:
        react(sender.on_ack, sender.p, sender.s, sender.stats, flow, ack, now)
    if acked > 0 and flow.in_recovery and not sender.owns_recovery:
        _reduce(flow, sender, acked, advanced, ack.lost)
    _free_node(port, i)
    if flow.una >= sender.limit:
        _finish(port, f, flow, sender, now)


@_inner
def _finish_sample(flow, sender, ack, now):
    """Compute the delivery rate over the longer of the times of sending and acknowledging; detect round ends."""
    interval = max(ack.sample_interval_ns, now - ack.sample_delivered)
    ack.sample_delivered = flow.delivered - ack.sample_prior_delivered
    ack.sample_marked = flow.marked - ack.sample_marked
    ack.sample_interval_ns = interval if interval >= flow.min_rtt_ns else -1
    if ack.sample_interval_ns > 0:
        ack.delivery_bps = ack.sample_delivered * flow.wire_bytes * 8e9 / interval
    if ack.sample_prior_delivered >= sender.next_round:
        sender.next_round = flow.delivered
        flow.round += 1
        ack.round_start = True


@_inner
def _on_timeout(port, f, flow, sender, now):
    """The retransmission timer (RFC 6298, section 5)."""
    sender.timeouts += 1
    sender.backoff = min(sender.backoff + 1, 10)
    sender.rto_at_ns = now + min(sender.rto_ns << sender.backoff, _MAX_RTO_NS)
    sender.reorder_ns = NEVER
    sender.probe_ns = NEVER
    sender.probe_end = -1
    if sender.status == CONNECTING:
        _emit_control(port, f, sender, SYN, _SYN_BYTES, 0, now)
        return
    ack = ack_at(port.ack, 0)
    _no_sample(ack)
    ack.acked = 0
    ack.advanced = 0
    ack.marked = 0
    ack.rtt_ns = -1
    ack.prior_inflight = flow.inflight
    # everything not SACKed is lost, except recent packets whose acknowledgement may still arrive
    j = np.int64(sender.first)
    while j >= 0:
        segment = segment_at(port.segments, j)
        old = j == sender.first or now >= segment.sent_ns + sender.rack_rtt_ns
        if segment.state == IN_FLIGHT and old:
            _lose(port, flow, sender, j, segment)
        j = np.int64(segment.next)
    ack.lost = ack.prior_inflight - flow.inflight
    again = sender.repair == TIMEOUT and sender.timed_out_ns < 0  # something arrived since the last timeout
    if again or sender.repair == NOTHING or flow.una >= sender.recovery_point:
        # not yet reduced in this flight (RFC 5681, section 3.1)
        _begin_reduction(port, flow, sender, sender.on_loss, TIMEOUT, now)
    sender.repair = TIMEOUT
    flow.in_rto = True
    flow.in_recovery = False
    sender.recovery_point = flow.next_seq
    sender.timed_out_ns = now
    if sender.on_rto != 0:
        react(sender.on_rto, sender.p, sender.s, sender.stats, flow, ack, now)
    if not sender.owns_recovery:
        flow.cwnd = flow.inflight + 1.0
    flow.next_send_ns = now


@_inner
def _on_timer(port, f, flow, sender, now):
    if sender.rto_at_ns <= now and sender.probe_ns > now:  # the probe comes first
        _on_timeout(port, f, flow, sender, now)
    elif sender.reorder_ns <= now:
        ack = ack_at(port.ack, 0)
        _no_sample(ack)
        ack.acked = 0
        ack.advanced = 0
        ack.marked = 0
        ack.rtt_ns = -1
        ack.prior_inflight = flow.inflight
        ack.lost, again = _detect_losses(port, flow, sender, now)
        if ack.lost > 0 and sender.repair != LOSSES:
            _repair(port, flow, sender, again, now)
            if flow.in_recovery and not sender.owns_recovery:
                _reduce(flow, sender, 1, 0, ack.lost)
    else:  # the tail loss probe: one packet more than the window allows
        sender.probe_ns = NEVER
        sender.probed = True
        if (
            flow.next_seq < min(_written(sender, now), sender.limit)
            and flow.next_seq - flow.una < sender.max_window
        ):
            _new_data(port, f, flow, sender, now)
            sender.probe_again = False
            sender.probe_end = flow.next_seq
        elif sender.flight_tail >= 0:
            # retransmit the last packet; the copy in flight no longer counts
            j = np.int64(sender.flight_tail)
            segment = segment_at(port.segments, j)
            _leave_flight(port, sender, segment)
            flow.inflight -= 1
            segment.retransmitted = True
            sender.retransmits += 1
            _transmit(port, f, flow, sender, j, segment, now)
            sender.probe_again = True
            sender.probe_end = flow.next_seq
        sender.rto_at_ns = now + (sender.rto_ns << sender.backoff)
    _send(port, f, flow, sender, now)


# ---- senders: start and end ------------------------------------------------------------------------------------------


@_inner
def _established(port, f, flow, sender, i, now):
    """The SYN-ACK has arrived."""
    node = node_at(port.nodes, i)
    sender.peer_ts_ns = node.arrival_ns - sender.to_sender_ns
    rtt = now - node.sent_ns
    _free_node(port, i)
    if sender.status != CONNECTING:
        return
    sender.status = OPEN
    sender.established_ns = now
    sender.rto_at_ns = NEVER
    sender.backoff = 0
    _sample_rtt(flow, sender, rtt, rtt)
    flow.delivered_ns = now
    sender.first_sent_ns = now
    sender.app_base_ns = now
    # as in Linux; RFC 5681, section 3.1, has it after the first one already
    if sender.timeouts > 1:
        flow.cwnd = 1.0
    if sender.on_start != 0:
        react(sender.on_start, sender.p, sender.s, sender.stats, flow, ack_at(port.ack, 0), now)
    _emit_control(port, f, sender, PURE_ACK, _HEADERS, 0, now)


@_inner
def _finish(port, f, flow, sender, now):
    """All data is acknowledged: close the flow."""
    sender.status = DONE
    sender.end_ns = now
    sender.rto_at_ns = NEVER
    sender.reorder_ns = NEVER
    sender.probe_ns = NEVER
    sender.stop_ns = NEVER
    sender.toggle_ns = NEVER
    sender.write_ns = NEVER
    sender.repair = NOTHING
    flow.in_recovery = False
    flow.in_rto = False
    _emit_control(port, f, sender, PURE_ACK, _HEADERS, flow.next_seq, now)


@_inner
def _on_application(port, f, flow, sender, now):
    """Events of the application: start, stop, on, off, and UDP packets."""
    if sender.status == IDLE:
        sender.write_ns = NEVER
        flow.start_ns = now
        if sender.on_ns > 0.0:
            sender.toggle_ns = now + _period(flow, sender, sender.on_ns)
        sender.writing = True
        sender.app_base_ns = now
        if sender.is_udp:
            sender.status = OPEN
            sender.write_ns = now
        else:
            sender.status = CONNECTING
            sender.rto_at_ns = now + _INITIAL_RTO_NS
            sender.rto_ns = _INITIAL_RTO_NS
            _emit_control(port, f, sender, SYN, _SYN_BYTES, 0, now)
            _arm_timer(sender)
            _arm_application(sender)
            return
    if sender.toggle_ns <= now:
        if sender.writing:
            if not sender.is_udp:
                greedy = sender.app_pps == 0.0
                sender.app_base = np.float64(flow.next_seq if greedy else _written(sender, now))
            sender.writing = False
            sender.write_ns = NEVER
            sender.toggle_ns = now + _period(flow, sender, sender.off_ns)
        else:
            sender.writing = True
            sender.app_base_ns = now
            sender.toggle_ns = now + _period(flow, sender, sender.on_ns)
            if sender.is_udp:
                sender.write_ns = now
    if sender.stop_ns <= now:
        sender.stop_ns = NEVER
        sender.toggle_ns = NEVER
        sender.write_ns = NEVER
        sender.writing = False
        if flow.next_seq < sender.limit:
            sender.limit = flow.next_seq
            sender.last_bytes = flow.mss_bytes if sender.limit > 0 else 0
        if sender.is_udp or sender.status == CONNECTING or flow.una >= sender.limit:
            sender.status = DONE
            sender.end_ns = now
            sender.rto_at_ns = NEVER
            _arm_timer(sender)
    if sender.is_udp:
        if sender.write_ns <= now and sender.status == OPEN:
            gap = 1e9 / sender.app_pps
            if sender.poisson:
                gap *= -math.log(1.0 - random(flow))
            exact = gap + sender.app_base  # keeps the fraction of a nanosecond
            sender.app_base = exact - np.int64(exact)
            sender.write_ns = now + np.int64(exact)
            octets = flow.wire_bytes
            if flow.next_seq >= sender.limit - 1:
                octets = sender.last_bytes + 42
                sender.write_ns = NEVER
                sender.toggle_ns = NEVER
                sender.stop_ns = NEVER
                sender.status = DONE
                sender.end_ns = now
            flow.next_seq += 1
            sender.sent += 1
            ecn = _NOT_ECT
            if sender.ecn == 3:
                ecn = _ECT1
            elif sender.ecn > 0:
                ecn = _ECT0
            i = _new_node(port)
            node = node_at(port.nodes, i)
            node.kind = UDP
            node.flags = 0
            node.bytes = octets
            node.ecn = ecn
            node.segment = -1
            node.seq = flow.next_seq
            _emit(port, f, i, node, sender, now)
        _arm_application(sender)
        return
    sender.write_ns = NEVER
    _send(port, f, flow, sender, now)


@_inner
def _period(flow, sender, mean_ns):
    if sender.exponential:
        return np.int64(-math.log(1.0 - random(flow)) * mean_ns) + 1
    return np.int64(mean_ns) + 1


# ---- the loop --------------------------------------------------------------------------------------------------------


@_inner
def _flow_event(port, f, now):
    sender = sender_at(port.senders, f)
    flow = flow_at(port.flows, f)
    if sender.ack_ns <= now:
        i = np.int64(sender.ack_head)
        node = node_at(port.nodes, i)
        following = np.int64(node.next)
        sender.ack_head = node.next
        prefetch_node(port.nodes, following)  # its time is read at the end
        if following < 0:  # before an answer to what is sent now joins the list
            sender.ack_tail = -1
            sender.ack_ns = NEVER
        if port.record:
            tap = now - sender.to_queue_ns
            _write_ack(row_at(port.ingress, port.rows_in), node, flow, sender, tap)
            _write_ack(row_at(port.egress, port.rows_out), node, flow, sender, tap)
            port.rows_in += 1
            port.rows_in_total += 1
            port.rows_out += 1
        if node.kind == SYN_ACK:
            _established(port, f, flow, sender, i, now)
            _send(port, f, flow, sender, now)
        elif sender.status == OPEN:
            _on_ack(port, f, flow, sender, i, now)
            _send(port, f, flow, sender, now)
        else:
            _free_node(port, i)
        if following >= 0:
            sender.ack_ns = node_at(port.nodes, following).arrival_ns
    elif sender.access_ns <= now:
        i = np.int64(sender.access_head)
        node = node_at(port.nodes, i)
        sender.access_head = node.next
        if node.next >= 0:
            sender.access_ns = node_at(port.nodes, node.next).arrival_ns
        else:
            sender.access_tail = -1
            sender.access_ns = NEVER
        _arrive(port, i, now)
    elif sender.pace_ns <= now:
        _send(port, f, flow, sender, now)
    elif sender.timer_ns <= now:
        _on_timer(port, f, flow, sender, now)
    elif sender.delack_ns <= now:
        _release_held(port, sender, now + sender.to_receiver_ns)
    else:
        _on_application(port, f, flow, sender, now)
    _place(port, f, _key(sender))


@_inner
def _update_queues(port, now):
    """Periodic work of the AQMs."""
    first = np.int64(NEVER)
    for q in range(port.n_queues):
        line = line_at(port.lines, q)
        if line.update_ns <= now:
            line.update_ns += line.update_period_ns
            # there is no packet; any record serves as the argument
            decide(
                line.on_update,
                line.p,
                line.s,
                line.stats,
                queue_at(port.queues, q),
                node_at(port.nodes, 0),
                now,
            )
        first = min(first, line.update_ns)
    port.update_ns = first


@kernel(error_model="numpy")
def run(
    port_,
    flows,
    senders,
    nodes,
    segments,
    queues,
    lines,
    heap,
    places,
    ack,
    ingress,
    egress,
    drops,
    until_ns,
):
    """Process all events before `until_ns`, or for at most about a second, or until an array is full.

    Parameters
    ----------
    port_ : array of one record
        Link, clock, and what the caller needs to know.
    flows, senders : arrays, one record a flow
        Settings and receivers of flows; their senders.
    nodes, segments : arrays
        Packets under way, and segments waiting for an acknowledgement.
    queues, lines : arrays
        The queues, and the state shared by the queues of one AQM.
    heap, places : arrays
        Flows by the time of their next event, and the place of each.
    ack : array of one record
        What a congestion control is told about an acknowledgement.
    ingress, egress, drops : arrays
        Receive the packets at both taps and the lost ones.
    until_ns : int
        Simulated time to stop at.

    Returns
    -------
    int
        ``PAUSED`` (the time is reached), ``BUSY`` (call again), ``FULL`` (an array must grow first) or ``BROKEN``.

    Notes
    -----
    The arrays are those of :mod:`~cctoolkit.sim.layout`; they hold all state.
    """
    port = port_[0]
    port.flows = flows.ctypes.data
    port.senders = senders.ctypes.data
    port.nodes = nodes.ctypes.data
    port.segments = segments.ctypes.data
    port.queues = queues.ctypes.data
    port.lines = lines.ctypes.data
    port.heap = heap.ctypes.data
    port.places = places.ctypes.data
    port.ack = ack.ctypes.data
    port.ingress = ingress.ctypes.data
    port.egress = egress.ctypes.data
    port.drops = drops.ctypes.data
    if port.starved >= 0:
        f = port.starved
        port.starved = -1
        sender = sender_at(port.senders, f)
        _send(port, f, flow_at(port.flows, f), sender, port.now_ns)
        _place(port, f, _key(sender))
        if port.starved >= 0:
            return FULL
    started = seconds()
    while port.events & 7 != 0 or seconds() == started:
        if not _has_room(port):
            return FULL
        root = slot_at(port.heap, 0)
        key = root.key
        now = min(key, port.free_ns, port.update_ns)
        if now >= until_ns:
            port.now_ns = until_ns
            return PAUSED
        port.now_ns = now
        if port.update_ns <= now:
            _update_queues(port, now)
        elif port.free_ns <= now:
            _serve(port, now)
        else:
            _flow_event(port, root.flow, now)
            if port.starved >= 0:
                return FULL
        if port.broken >= 0 or port.refused >= 0:
            return BROKEN
        port.events += 1
        if port.look_ahead:
            _look_ahead(port)
    return BUSY
