"""What a congestion control is told and what it may set."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numba import types

from .._support.algorithm.base import Algorithm
from .._support.algorithm.random import random

__all__ = ["ACK", "FLOW", "Cca", "random"]

#: A sender, as functions see it. Packets are full-sized segments; rates count all bytes on the wire.
FLOW = np.dtype(
    [
        # the algorithm writes these three
        ("cwnd", np.float64),  # packets
        ("ssthresh", np.float64),  # packets; starts as 1e9
        ("pacing_bps", np.float64),  # 0: not paced
        # and reads these
        ("index", np.int64),
        ("wire_bytes", np.int64),  # of a full packet
        ("mss_bytes", np.int64),  # its payload
        ("initial_window", np.int64),  # packets
        ("srtt_ns", np.int64),  # smoothed (RFC 6298); 0: no sample yet
        ("rttvar_ns", np.int64),
        ("min_rtt_ns", np.int64),  # of the whole connection; 2**62: no sample yet
        ("latest_rtt_ns", np.int64),
        ("inflight", np.int64),  # packets sent, neither delivered nor deemed lost
        ("delivered", np.int64),  # packets acknowledged or sacked so far
        ("delivered_ns", np.int64),  # when that last grew
        ("marked", np.int64),  # delivered packets that the receiver reported as CE (accurate feedback only)
        ("lost", np.int64),  # packets deemed lost so far; each transmission counts
        ("una", np.int64),  # first packet not acknowledged, counted from 0
        ("next_seq", np.int64),  # first packet never sent
        # round trips so far: one ends when a packet sent after the last end is delivered
        ("round", np.int64),
        ("start_ns", np.int64),
        ("next_send_ns", np.int64),  # pacing lets the next packet go then
        ("rng", np.uint64),  # for random()
        ("may_grow", np.bool_),  # cwnd_limited, nothing under repair, and this ACK is for packets in order
        ("cwnd_limited", np.bool_),  # the window is what stops it from sending more
        ("app_limited", np.bool_),  # it had nothing to send within the current flight
        # window reduction under way after loss or ECN; ends with all sent by then acknowledged
        ("in_recovery", np.bool_),
        ("in_rto", np.bool_),  # retransmitting after a timeout
    ],
    align=True,
)

#: What an acknowledgement told. The sample is that of the delivery-rate estimator (draft-cheng-iccrg-delivery-rate-
#: estimation): it belongs to the last sent of the packets just delivered.
ACK = np.dtype(
    [
        ("acked", np.int64),  # packets newly delivered, cumulatively or by SACK
        ("advanced", np.int64),  # packets by which the cumulative acknowledgement grew
        ("lost", np.int64),  # packets newly deemed lost
        ("marked", np.int64),  # packets newly reported as CE (accurate feedback only)
        ("rtt_ns", np.int64),  # -1: no sample
        ("prior_inflight", np.int64),  # before this ACK
        ("sample_interval_ns", np.int64),  # -1: no valid sample
        ("sample_delivered", np.int64),  # packets delivered over the interval
        ("sample_marked", np.int64),  # of these, reported as CE
        ("sample_lost", np.int64),  # packets lost over the interval
        ("sample_inflight", np.int64),  # in flight when the packet had been sent, itself included
        ("sample_prior_delivered", np.int64),  # flow.delivered when the packet was sent; -1: no packet
        ("delivery_bps", np.float64),  # on the wire; 0: no valid sample
        ("sample_app_limited", np.bool_),
        ("round_start", np.bool_),  # this ACK began a new round trip
        ("ece", np.bool_),  # classic ECN echo (RFC 3168)
    ],
    align=True,
)


class Cca(Algorithm):
    """Base of congestion controls; :mod:`cctoolkit.cca` says how to write one.

    Attributes
    ----------
    owns_recovery : bool
        It sets its window itself while losses are repaired (BBR). Otherwise the sender brings the window down to
        ``ssthresh`` by proportional rate reduction (RFC 6937) and leaves it there.
    reduces_by_marks : bool
        ``on_ecn`` is called for accurate feedback too (DCTCP).
    ecn : str
        What it does when a flow does not say: ``"off"``, ``"classic"`` (RFC 3168, ECT(0)), ``"accurate"`` (every
        mark is reported, ECT(0), as DCTCP wants it), ``"l4s"`` (the same with ECT(1)).
    """

    registry: ClassVar[dict[str, type[Algorithm]]] = {}
    events: ClassVar[tuple[str, ...]] = (
        "on_start",
        "on_ack",
        "on_loss",
        "on_ecn",
        "on_recovered",
        "on_rto",
        "on_send",
    )
    arguments: ClassVar[tuple[str, ...]] = ("p", "s", "stats", "flow", "ack", "now_ns")
    owns_recovery: ClassVar[bool] = False
    reduces_by_marks: ClassVar[bool] = False
    ecn: ClassVar[str] = "off"

    def addresses(self) -> dict[str, int]:
        """Addresses of the compiled functions, all ``void(p, s, stats, flow, ack, now_ns)``; 0: not defined."""
        return self.compiled(types.void, FLOW, ACK)
