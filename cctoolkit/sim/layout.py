"""State of the event loop: records with named fields, and how compiled code accesses them.

Compiled code gets addresses, not arrays: a record is then a plain pointer, and helper functions cost nothing (array
arguments would leave reference counting in the loop). The caller of the loop keeps the arrays alive.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, no_type_check

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from ..aqm import PACKET, QUEUE
from ..cca import ACK, FLOW

__all__ = ["DROPS", "LINE", "NODE", "PORT", "ROW", "SEGMENT", "SENDER", "SLOT"]

#: No time, no limit.
NEVER = 2**62
#: Bytes that the processor loads at a time.
CACHE_LINE = 64


def _dtype(*fields: tuple[str, Any]) -> np.dtype:
    return np.dtype(list(fields), align=True)


#: A packet in flight, and then its acknowledgement; the first fields are those that AQMs see.
NODE = _dtype(
    *((name, PACKET[name]) for name in PACKET.names or ()),
    ("kind", np.uint8),
    ("flags", np.uint8),
    ("next", np.int32),  # next in its list
    ("segment", np.int32),
    ("seq", np.int64),  # in packets, from 0
    ("sent_ns", np.int64),
    ("arrival_ns", np.int64),  # arrival at the bottleneck, then (as an acknowledgement) at the sender
    (
        "echo_ns",
        np.int64,
    ),  # echoed time: in data that of the last ACK, in an ACK that of the first packet acknowledged
    ("cum", np.int64),  # cumulative acknowledgement
    ("ce", np.int64),  # packets with CE seen by the receiver
    ("row", np.int64),  # row of the ingress capture
)
DATA, UDP, SYN, SYN_ACK, PURE_ACK, ACKNOWLEDGEMENT = range(6)  # NODE.kind
FLAG_CWR, FLAG_ECE, FLAG_FIN, FLAG_SACK = 1, 2, 4, 8  # NODE.flags

#: A segment sent but not yet cumulatively acknowledged: views of sender and receiver in one.
SEGMENT = _dtype(
    ("seq", np.int64),
    ("order", np.int64),  # transmissions of the flow before its own last one
    ("sent_ns", np.int64),
    ("first_sent_ns", np.int64),  # P.* of the delivery-rate estimator, as of the last transmission
    ("delivered_ns", np.int64),
    ("delivered", np.int64),
    ("lost", np.int64),
    ("marked", np.int64),
    ("inflight", np.int64),
    ("next", np.int32),  # next by sequence number
    ("before", np.int32),  # previous in the list of its state
    ("after", np.int32),
    ("state", np.uint8),
    ("received", np.bool_),
    ("retransmitted", np.bool_),
    ("missing", np.bool_),  # deemed lost and not delivered since
    ("app_limited", np.bool_),
)
IN_FLIGHT, SACKED, LOST = range(3)  # SEGMENT.state

#: Sender and receiver of a flow, besides the record that congestion controls see.
SENDER = _dtype(
    ("status", np.int64),
    # the next time of each kind; the earliest is the flow's key in the heap
    ("ack_ns", np.int64),
    ("access_ns", np.int64),
    ("pace_ns", np.int64),
    ("timer_ns", np.int64),
    ("delack_ns", np.int64),
    ("app_ns", np.int64),
    # path
    ("to_queue_ns", np.int64),
    ("to_receiver_ns", np.int64),
    ("to_sender_ns", np.int64),
    ("jitter_ns", np.int64),
    ("loss", np.float64),
    ("access_ns_per_byte", np.float64),  # sender's link; 0: unlimited
    ("access_free_ns", np.int64),  # when that link becomes idle
    ("queue", np.int64),  # -1: chosen by the scheduler
    ("aggregate", np.int64),
    ("last_arrival_ns", np.int64),  # last arrival at the receiver
    # algorithm
    ("p", np.int64),
    ("s", np.int64),
    ("stats", np.int64),
    ("on_start", np.int64),
    ("on_ack", np.int64),
    ("on_loss", np.int64),
    ("on_ecn", np.int64),
    ("on_recovered", np.int64),
    ("on_rto", np.int64),
    ("on_send", np.int64),
    ("on_restart", np.int64),
    ("owns_recovery", np.bool_),
    ("reduces_by_marks", np.bool_),
    # application
    ("stop_ns", np.int64),
    ("toggle_ns", np.int64),
    ("write_ns", np.int64),
    ("on_ns", np.float64),
    ("off_ns", np.float64),
    ("exponential", np.bool_),
    ("poisson", np.bool_),
    ("is_udp", np.bool_),
    ("writing", np.bool_),
    ("app_pps", np.float64),  # packets per second that the application writes; 0: unlimited
    ("app_base_ns", np.int64),
    ("app_base", np.float64),  # packets written before
    ("limit", np.int64),  # total packets to send
    ("last_bytes", np.int64),  # payload of the last of them
    ("fin", np.bool_),  # the last packet closes the connection
    # lists
    ("first", np.int32),  # segments by sequence number
    ("last", np.int32),
    ("flight_head", np.int32),  # segments in flight in order of transmission
    ("flight_tail", np.int32),
    ("lost_head", np.int32),  # segments to retransmit
    ("lost_tail", np.int32),
    ("ack_head", np.int32),
    ("ack_tail", np.int32),
    ("access_head", np.int32),
    ("access_tail", np.int32),
    # sender
    ("sacked", np.int64),
    ("order", np.int64),  # transmissions so far
    ("rack_order", np.int64),
    ("rack_rtt_ns", np.int64),
    ("reorder_ns", np.int64),  # timers: RACK reordering, tail loss probe, retransmission
    ("probe_ns", np.int64),
    ("rto_at_ns", np.int64),
    ("rto_ns", np.int64),
    ("min_rto_ns", np.int64),
    ("backoff", np.int64),
    ("probed", np.bool_),
    ("probe_end", np.int64),  # next new packet when the probe was sent; -1: no outstanding probe
    ("probe_again", np.bool_),  # the probe was a retransmission
    ("repair", np.int64),  # reason of the current recovery, see below
    ("recovery_point", np.int64),
    ("missing", np.int64),  # segments deemed lost and not delivered since, retransmitted or not
    ("timed_out_ns", np.int64),  # when the timer expired; -1: it did not, or was undone or confirmed
    ("prior_cwnd", np.float64),  # window before the reduction
    ("prior_ssthresh", np.float64),
    ("send_cwr", np.bool_),
    ("ecn", np.int64),  # 0 off, 1 classic, 2 accurate with ECT(0), 3 accurate with ECT(1)
    ("prr_delivered", np.int64),
    ("prr_out", np.int64),
    ("first_sent_ns", np.int64),
    ("limited", np.bool_),  # the window was full in this flight
    ("limited_until", np.int64),  # the flight ends with this packet
    ("most_out", np.int64),  # most packets out in an unlimited flight
    ("app_limited_until", np.int64),
    ("next_round", np.int64),
    ("max_window", np.int64),
    ("peer_ce", np.int64),
    ("peer_ts_ns", np.int64),
    ("isn", np.uint32),
    ("irs", np.uint32),
    # receiver
    ("expected", np.int64),  # next packet in order
    ("beyond", np.int64),  # packets received beyond a hole
    ("held", np.int32),  # node of the packet whose acknowledgement is delayed; several if out of order
    ("held_tail", np.int32),
    ("held_count", np.int64),
    ("repeated", np.int64),  # immediate acknowledgements for packets beyond this hole
    ("repeated_for", np.int64),  # the hole: `expected` at that time
    ("delayed_ack", np.int64),
    ("quick_acks", np.int64),  # number of further acknowledgements without delay
    ("window", np.int64),  # advertised window in packets
    ("window_clamp", np.int64),  # limit of its growth
    ("receiver_rtt_ms", np.int64),  # receiver's RTT estimate from echoed timestamps, times 8
    ("receiver_echo_ms", np.int64),  # the last echoed timestamp
    ("best_copied", np.int64),  # most packets delivered to the application in a round trip
    ("copied", np.int64),  # packets in order at the start of this round trip
    ("copied_ns", np.int64),  # start of this round trip
    ("ce", np.int64),
    ("echo_ece", np.bool_),
    ("was_marked", np.bool_),  # the last packet was marked
    # results
    ("sent", np.int64),  # data packets, retransmissions included
    ("retransmits", np.int64),
    ("timeouts", np.int64),
    ("recoveries", np.int64),
    ("received", np.int64),  # data packets, duplicates included
    ("received_bytes", np.int64),  # payload without duplicates
    ("dropped", np.int64),  # dropped at the bottleneck
    ("lost_on_path", np.int64),
    ("rtt_samples", np.int64),
    ("rtt_sum_ns", np.int64),
    ("established_ns", np.int64),
    ("end_ns", np.int64),  # when everything was acknowledged; -1: not yet
)
IDLE, CONNECTING, OPEN, DONE = range(4)  # SENDER.status
NOTHING, MARKS, LOSSES, TIMEOUT = range(4)  # SENDER.repair

#: A queue, besides the record that AQMs see.
LINE = _dtype(
    ("head", np.int32),
    ("tail", np.int32),
    ("p", np.int64),
    ("s", np.int64),
    ("stats", np.int64),
    ("on_enqueue", np.int64),
    ("on_dequeue", np.int64),
    ("on_update", np.int64),
    ("update_ns", np.int64),
    ("update_period_ns", np.int64),
    ("quantum", np.float64),
    ("deficit", np.float64),
    ("active", np.int64),  # list of the queue: 0 none, 1 old, 2 new
    ("next_active", np.int64),
    ("shaped_ns_per_byte", np.float64),  # 0: not shaped
    ("shaped_until_ns", np.float64),
    # results
    ("arrived", np.int64),
    ("arrived_bytes", np.int64),
    ("dropped_full", np.int64),
    ("dropped_enqueue", np.int64),
    ("dropped_dequeue", np.int64),
    ("marked", np.int64),
    ("sent", np.int64),
    ("sent_bytes", np.int64),
    ("delay_sum_ns", np.int64),
    ("delay_max_ns", np.int64),
)

#: The bottleneck and the loop itself; there is a single record.
PORT = _dtype(
    ("now_ns", np.int64),
    # addresses
    ("flows", np.int64),
    ("senders", np.int64),
    ("nodes", np.int64),
    ("segments", np.int64),
    ("queues", np.int64),
    ("lines", np.int64),
    ("heap", np.int64),
    ("places", np.int64),
    ("ack", np.int64),
    ("ingress", np.int64),
    ("egress", np.int64),
    ("drops", np.int64),
    # pools
    ("node_free", np.int64),
    ("node_used", np.int64),
    ("node_live", np.int64),
    ("node_room", np.int64),
    ("segment_free", np.int64),
    ("segment_used", np.int64),
    ("segment_live", np.int64),
    ("segment_room", np.int64),
    # link
    ("busy", np.bool_),
    ("free_ns", np.int64),  # when the link becomes free
    ("ns_per_byte", np.float64),
    ("fraction_ns", np.float64),
    ("rate_bps", np.float64),
    ("most_bytes", np.int64),  # largest packet of all flows
    ("n_queues", np.int64),
    ("n_flows", np.int64),
    ("look_ahead", np.bool_),  # prefetch: the state of all flows fits into no cache
    ("scheduler", np.int64),
    ("time_shift_ns", np.int64),
    ("shaper", np.bool_),  # packets leave at once and the next is held back
    ("owed", np.float64),  # owed to classic traffic in DUAL_WRR, bytes times weight
    ("old_head", np.int64),  # round robin
    ("old_tail", np.int64),
    ("new_head", np.int64),
    ("new_tail", np.int64),
    ("dual", np.bool_),  # queue 0 for low latency, 1 for classic traffic
    ("packets", np.int64),  # waiting in all queues
    ("bytes", np.int64),
    ("update_ns", np.int64),
    # recording
    ("record", np.bool_),
    ("rows_in", np.int64),
    ("rows_in_total", np.int64),
    ("rows_out", np.int64),
    ("rows_drops", np.int64),
    ("room_in", np.int64),
    ("room_out", np.int64),
    ("room_drops", np.int64),
    ("starved", np.int64),  # flow that could not send for lack of memory; -1: none
    ("events", np.int64),
    ("broken", np.int64),  # flow whose algorithm set an invalid window; -1: none
    ("refused", np.int64),  # queue whose algorithm returned what is no verdict; -1: none
    ("refused_verdict", np.int64),
    ("refused_on_enqueue", np.bool_),
)
FIFO, DRR, PRIORITY, FQ, TIME_SHIFTED, DUAL_WRR = range(6)  # PORT.scheduler

#: A row of a capture being recorded.
ROW = _dtype(
    ("ts_ns", np.int64),
    ("flow_id", np.uint32),
    ("seq", np.uint32),
    ("ack", np.uint32),
    ("tsval", np.uint32),
    ("tsecr", np.uint32),
    ("payload_bytes", np.uint32),
    ("wire_bytes", np.uint32),
    ("tcp_flags", np.uint16),
    ("window", np.uint16),
    ("direction", np.int8),
    ("ecn", np.uint8),
    ("has_ts", np.bool_),
)

#: A lost packet.
DROPS = _dtype(
    ("ts_ns", np.int64),
    ("packet", np.int64),  # row of the ingress capture
    ("flow_id", np.int32),
    ("queue", np.int32),
    ("why", np.int32),
)
WHY = ("full", "enqueue", "dequeue", "path")

SLOT = _dtype(("key", np.int64), ("flow", np.int64))
PLACE = _dtype(("slot", np.int64))


def _accessor(dtype: np.dtype) -> Any:
    """Make a function for compiled code: record `index` of the array of `dtype` at address `base`."""
    record = numba.from_dtype(dtype)
    size = dtype.itemsize

    @intrinsic
    def at(typingctx: Any, base: Any, index: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            offset = builder.mul(args[1], ir.Constant(ir.IntType(64), size))
            return builder.inttoptr(builder.add(args[0], offset), context.get_value_type(record))

        return record(types.int64, types.int64), code

    return at


def _prefetcher(dtype: np.dtype) -> Any:
    """Make a function for compiled code: ask for record `index` of the array of `dtype` at address `base`.

    It starts to load the record's cache lines and does not wait for them. The address may be out of range.
    """
    size = dtype.itemsize

    @intrinsic
    def prefetch(typingctx: Any, base: Any, index: Any) -> Any:
        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            function = get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [pointer, word, word, word]),
                "llvm.prefetch.p0i8",
            )
            start = builder.add(args[0], builder.mul(args[1], ir.Constant(ir.IntType(64), size)))
            for line in range(0, size, CACHE_LINE):
                address = builder.inttoptr(builder.add(start, ir.Constant(ir.IntType(64), line)), pointer)
                # arguments: for reading, into the first cache, data
                builder.call(function, [address, word(0), word(3), word(1)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return prefetch


node_at = _accessor(NODE)
segment_at = _accessor(SEGMENT)
sender_at = _accessor(SENDER)
flow_at = _accessor(FLOW)
ack_at = _accessor(ACK)
queue_at = _accessor(QUEUE)
line_at = _accessor(LINE)
slot_at = _accessor(SLOT)
place_at = _accessor(PLACE)
row_at = _accessor(ROW)
drop_at = _accessor(DROPS)

prefetch_flow = _prefetcher(FLOW)
prefetch_sender = _prefetcher(SENDER)
prefetch_node = _prefetcher(NODE)
prefetch_segment = _prefetcher(SEGMENT)
#: The state of an algorithm, as far as one cache line.
prefetch_algorithm = _prefetcher(np.dtype((np.void, CACHE_LINE)))


#: Seconds since 1970: the C function `time`, which takes a few nanoseconds, as a symbol that kernels can be kept with.
_library: Any = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
_time = _library._time64 if os.name == "nt" else _library.time
llvm.add_symbol("cctoolkit_time", ctypes.cast(_time, ctypes.c_void_p).value)


def _seconds(typingctx: Any) -> Any:
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        function = get_or_insert_function(builder.module, ir.FunctionType(word, [pointer]), "cctoolkit_time")
        return builder.call(function, [pointer(None)])

    return types.int64(), code


#: The time of day in whole seconds.
seconds: Any = intrinsic(_seconds)


def _call(builder: Any, result: Any, args: Any) -> Any:
    """Call the C function at args[0] with five pointers and a time."""
    pointer, word = ir.IntType(8).as_pointer(), ir.IntType(64)
    function = builder.inttoptr(args[0], ir.FunctionType(result, [pointer] * 5 + [word]).as_pointer())
    pointers = [builder.inttoptr(a, pointer) for a in args[1:4]] + [
        builder.bitcast(a, pointer) for a in args[4:6]
    ]
    return builder.call(function, [*pointers, args[6]])


@no_type_check
def _decide(typingctx, function, p, s, stats, queue, packet, now_ns):
    signature = types.int64(*(types.int64,) * 4, queue, packet, types.int64)
    return signature, lambda context, builder, sig, args: _call(builder, ir.IntType(64), args)


@no_type_check
def _react(typingctx, function, p, s, stats, flow, ack, now_ns):
    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _call(
            builder, ir.IntType(8).as_pointer(), args
        )  # numba's C functions that return nothing return a null pointer
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 4, flow, ack, types.int64), code


#: Call an AQM's function by address: ``decide(function, p, s, stats, queue, packet, now_ns)``.
decide: Any = intrinsic(_decide)
#: Call a congestion control's function by address: ``react(function, p, s, stats, flow, ack, now_ns)``.
react: Any = intrinsic(_react)
