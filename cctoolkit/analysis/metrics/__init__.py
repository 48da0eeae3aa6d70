"""Metrics of captures: rates, fairness, completion times, queueing delay, loss, utilisation."""

from __future__ import annotations

from .completion import FlowCompletion, cdf, flow_completion_times
from .delay import QueueDelay, queue_delay, queue_loss, rtt_split
from .fairness import jain_index, jain_over_time, rtt_unfairness, share_difference
from .rates import RateTable, goodput, throughput
from .utilisation import LinkUtilisation, link_utilisation

__all__ = [
    "FlowCompletion",
    "LinkUtilisation",
    "QueueDelay",
    "RateTable",
    "cdf",
    "flow_completion_times",
    "goodput",
    "jain_index",
    "jain_over_time",
    "link_utilisation",
    "queue_delay",
    "queue_loss",
    "rtt_split",
    "rtt_unfairness",
    "share_difference",
    "throughput",
]
