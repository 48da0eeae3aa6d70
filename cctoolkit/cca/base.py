"""The interface of a congestion control: what it reads and what it sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numba import types

from .._support.algorithm.base import Algorithm
from .._support.algorithm.checks import share
from .._support.algorithm.random import random

__all__ = ["ACK", "FLOW", "Cca", "random"]

#: A sender, as functions see it. Packets are full-sized segments; rates count all bytes on the wire.
FLOW = np.dtype(
    [
        # set by the algorithm
        ("cwnd", np.float64),  # packets
        ("ssthresh", np.float64),  # packets; initially 1e9
        ("pacing_bps", np.float64),  # 0: not paced
        # read by the algorithm
        ("index", np.int64),
        ("wire_bytes", np.int64),  # size of a full packet
        ("mss_bytes", np.int64),  # its payload
        ("initial_window", np.int64),  # packets
        ("srtt_ns", np.int64),  # smoothed (RFC 6298); 0: no sample yet
        ("rttvar_ns", np.int64),
        ("min_rtt_ns", np.int64),  # minimum over the connection; 2**62: no sample yet
        ("latest_rtt_ns", np.int64),
        ("inflight", np.int64),  # packets sent but neither delivered nor deemed lost
        ("delivered", np.int64),  # packets acknowledged or SACKed so far
        ("delivered_ns", np.int64),  # when `delivered` last grew
        ("marked", np.int64),  # delivered packets reported as CE (accurate feedback only)
        ("lost", np.int64),  # packets deemed lost so far, counting each transmission
        # of the packet last deemed lost: in flight after it was sent, and lost since, itself included in both
        ("lost_inflight", np.int64),
        ("lost_since", np.int64),
        ("una", np.int64),  # first unacknowledged packet, counted from 0
        ("next_seq", np.int64),  # first packet never sent
        # round trips so far; each ends when a packet sent after the last end is delivered
        ("round", np.int64),
        ("start_ns", np.int64),
        ("next_send_ns", np.int64),  # earliest time of the next packet, by pacing
        ("last_sent_ns", np.int64),  # when data was last sent; 0: not yet
        ("rng", np.uint64),  # for random()
        ("may_grow", np.bool_),  # cwnd_limited, no recovery, and this ACK is for packets in order
        ("cwnd_limited", np.bool_),  # the window limits what it sends
        ("app_limited", np.bool_),  # it ran out of data within the current flight
        # reducing the window after loss or ECN, until everything sent before is acknowledged
        ("in_recovery", np.bool_),
        ("in_rto", np.bool_),  # retransmitting after a timeout
    ],
    align=True,
)

#: The content of an acknowledgement. The sample is that of the delivery-rate estimator
#: (draft-cheng-iccrg-delivery-rate-estimation), for the last sent of the packets just delivered.
ACK = np.dtype(
    [
        ("acked", np.int64),  # packets newly delivered, cumulatively or by SACK
        ("advanced", np.int64),  # packets newly acknowledged cumulatively
        ("lost", np.int64),  # packets newly deemed lost
        ("marked", np.int64),  # packets newly reported as CE (accurate feedback only)
        ("rtt_ns", np.int64),  # -1: no sample
        ("prior_inflight", np.int64),  # in flight before this ACK
        ("sample_interval_ns", np.int64),  # -1: no valid sample
        ("sample_delivered", np.int64),  # packets delivered over the interval
        ("sample_marked", np.int64),  # those of them reported as CE
        ("sample_lost", np.int64),  # packets lost over the interval
        ("sample_inflight", np.int64),  # in flight after the packet was sent, itself included
        ("sample_prior_delivered", np.int64),  # flow.delivered when the packet was sent; -1: no packet
        ("delivery_bps", np.float64),  # delivery rate on the wire; 0: no valid sample
        ("sample_app_limited", np.bool_),
        ("round_start", np.bool_),  # this ACK starts a new round trip
        ("ece", np.bool_),  # classic ECN echo (RFC 3168)
    ],
    align=True,
)


share(FLOW, "flow", writable=("cwnd", "ssthresh", "pacing_bps"))
share(ACK, "ack", writable=())


class Cca(Algorithm):
    """Base class of congestion controls; :mod:`cctoolkit.cca` explains how to write one.

    Attributes
    ----------
    owns_recovery : bool
        Sets its window itself during recovery (BBR). If false, the sender brings the window down to ``ssthresh`` by
        proportional rate reduction (RFC 6937) and leaves it there.
    reduces_by_marks : bool
        Whether ``on_ecn`` is also called with accurate feedback (DCTCP).
    in_linux : mapping of str to float
        Parameters whose values in Linux differ from the defaults here.
    ecn : str
        Default for flows that do not set it: ``"off"``, ``"classic"`` (RFC 3168, ECT(0)), ``"accurate"`` (every
        mark is reported, ECT(0), as for DCTCP), ``"l4s"`` (the same with ECT(1)).

    See Also
    --------
    Reno, Cubic : to start from
    cctoolkit.Flow : where a congestion control works
    cctoolkit.aqm.Aqm : the same for AQMs

    Examples
    --------
    Subclasses register under their name, which scenarios may use:

    >>> {"bbr", "cubic", "reno"} <= set(cct.cca.Cca.registry)
    True
    >>> cct.Flow("vegas").cca.beta
    4.0
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
        "on_restart",
    )
    arguments: ClassVar[tuple[str, ...]] = ("p", "s", "stats", "flow", "ack", "now_ns")
    in_linux: ClassVar[Mapping[str, float]] = {}
    owns_recovery: ClassVar[bool] = False
    reduces_by_marks: ClassVar[bool] = False
    ecn: ClassVar[str] = "off"

    def addresses(self) -> dict[str, int]:
        """Addresses of the compiled functions, each ``void(p, s, stats, flow, ack, now_ns)``; 0: not defined."""
        return self.compiled(types.void, FLOW, ACK)
