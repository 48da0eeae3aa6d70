"""CoDel's drops are those of RFC 8289's pseudocode on the same delays."""

from __future__ import annotations

import numpy as np
import pytest
from naive_codel import NaiveCoDel

from cctoolkit import aqm
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import Bottleneck, Flow, Scenario
from cctoolkit.sim.simulation import simulate


@pytest.mark.parametrize(
    "flows",
    [
        [Flow("cubic", rtt_ms=30, count=3)],
        [Flow("udp", rate_mbps=12), Flow("udp", rate_mbps=9, arrivals="poisson", on_s=0.5, off_s=0.7)],
        [Flow("reno", rtt_ms=80), Flow("udp", rate_mbps=6, on_s=0.2, off_s=0.3, on_off="exponential")],
    ],
)
def test_drop_times_equal_a_naive_twins(flows):
    run = simulate(
        Scenario(
            bottleneck=Bottleneck(
                rate_mbps=10, buffer_packets=400, aqm=aqm.CoDel(target_ms=5, interval_ms=60)
            ),
            flows=flows,
            duration_s=30,
        )
    )
    came = run.ingress.packets[run.ingress.packets.direction == 0]
    full = set(run.drops[run.drops.why == "full"].packet)
    queue = came[~came.index.isin(full)]  # what came to the queue, in order
    arrival, size = queue.ts_ns.to_numpy(), queue.wire_bytes.to_numpy(np.int64)
    dropped = queue.dropped.to_numpy()
    twin = NaiveCoDel(5_000_000, 60_000_000, 1514)
    i, free, n_drops = 0, 0, 0
    while i < len(arrival) - 500:
        now = max(free, arrival[i])
        # an arrival at the same time comes after the departure
        present = max(np.searchsorted(arrival, now, side="left"), i + 1)
        first = i

        def fetch(now=now, present=present):
            nonlocal i
            i += 1
            return now - arrival[i - 1], int(size[i:present].sum())

        drops = twin.deque(fetch, now)
        assert dropped[first : i - 1].all() and not dropped[i - 1]
        assert i - 1 - first == drops
        n_drops += drops
        free = now + size[i - 1] * 800
    assert n_drops > 20


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match=r"CoDel.target_ms"):
        aqm.CoDel(target_ms=0)
    with pytest.raises(ParameterError, match=r"CoDel.interval_ms"):
        aqm.CoDel(target_ms=5, interval_ms=5)
    with pytest.raises(ParameterError, match=r"CoDel.target_ms.*number"):
        aqm.CoDel(target_ms="5")
