"""Which flows are monitored: the choice beside its rules, and the loop beside a collector as strict as the kernel's."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tools import examples

from cctoolkit.analysis.slots import CELL
from cctoolkit.errors import ParameterError
from cctoolkit.identify.live import CollectorError, FlowKey, Reading, watch
from cctoolkit.identify.live.selection import FlowSelection

KEYS = [FlowKey("10.0.0.1", port, "10.0.0.2", 80) for port in range(6)]
KEYS += [FlowKey("fd00::1", 1, "fd00::2", 80)]
some_keys = st.lists(st.sampled_from(KEYS), max_size=4)
#: As a collector lists them: in any order, and a key twice if the kernel's table changed while it was read.
some_sent = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 40)), max_size=10)


class Choice(RuleBasedStateMachine):
    """The rules of FlowSelection, checked after each update; they leave open only which of equal flows is chosen."""

    @initialize(requested=some_keys, heavy=st.integers(0, 4), idle_s=st.integers(1, 6))
    def begin(self, requested: list[FlowKey], heavy: int, idle_s: int) -> None:
        self.chosen = FlowSelection(requested, heavy, idle_s)
        self.heavy, self.idle_s, self.now_s = heavy, idle_s, 0
        self.requested = set(requested)
        self.last: dict[FlowKey, int] = {}  # when each chosen flow was heard last
        first = self.chosen.first()
        assert len(first) == len(set(first))
        assert set(first) == self.requested

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule(keys=some_keys)
    def hear(self, keys: list[FlowKey]) -> None:
        for key in keys:
            self.chosen.note_packet(key, self.now_s)
            if key in self.last:
                self.last[key] = self.now_s

    @rule(candidates=some_sent)
    def update(self, candidates: list[tuple[FlowKey, int]]) -> None:
        sent = dict(candidates)
        added, removed = self.chosen.update(candidates, self.now_s)
        assert len(set(added + removed)) == len(added) + len(removed)  # no flow twice, none in both
        assert set(removed) <= self.last.keys()
        assert not set(added) & (self.last.keys() | self.requested)
        assert set(added) <= sent.keys()
        self.last |= {key: self.now_s for key in sent if key in self.last}
        idle = {key for key in self.last if self.now_s - self.last[key] > self.idle_s}
        assert idle <= set(removed)
        displaced = set(removed) - idle
        for key in removed:
            del self.last[key]
        self.last |= dict.fromkeys(added, self.now_s)
        assert len(self.last) <= self.heavy
        left = [sent[key] for key in sent if key not in self.last and key not in self.requested]
        if displaced or (left and self.heavy):
            assert len(self.last) == self.heavy  # nobody goes, and nobody waits, while there is room
        for key in displaced:
            assert sum(sent[one] > 2 * sent.get(key, 0) for one in added) >= 1
        if self.heavy:
            least = min((sent.get(key, 0) for key in self.last), default=0)
            assert all(size <= 2 * least for size in left if size not in [sent.get(k, 0) for k in displaced])


Choice.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=20, deadline=None)
TestChoice = Choice.TestCase


class Strict:
    """A collector that refuses what the kernel's map of flows refuses; its traffic is given."""

    slot_ns = 10_000_000
    sampled = False
    has_egress = False

    def __init__(self, room: int, seen: list[list[FlowKey]], sent: list[list[tuple[FlowKey, int]]]) -> None:
        self.room, self.seen, self.sent = room, seen, sent
        self.now_ns = 0
        self.monitored: dict[FlowKey, int] = {}
        self.numbers: set[int] = set()
        self.periods = self.reports = 0

    def add(self, number: int, key: FlowKey) -> None:
        if key in self.monitored:
            raise CollectorError("already monitored")
        if len(self.monitored) == self.room:
            raise CollectorError("no room")
        assert number not in self.numbers
        self.numbers.add(number)
        self.monitored[key] = number

    def remove(self, key: FlowKey) -> None:
        if key not in self.monitored:
            raise CollectorError("not monitored")
        del self.monitored[key]

    def heavy(self, least_bytes: int) -> list[tuple[FlowKey, int]]:
        self.reports += 1
        return self.sent[self.reports % len(self.sent)] if least_bytes else []

    def read(self) -> Reading:
        cells = np.zeros(len(self.monitored), CELL)
        seen = self.seen[self.periods % len(self.seen)]
        for cell, (key, number) in zip(cells, self.monitored.items(), strict=True):
            cell["way"], cell["slot"], cell["first_seq"] = 2 * number, self.now_ns // self.slot_ns - 1, 1
            cell["bytes"] = cell["packets"] = key in seen
        cells = cells[cells["packets"] > 0]
        tap: dict[str, Any] = {"packets": 0}
        return Reading(cells, cells[:0], self.now_ns // self.slot_ns, {"ingress": tap, "egress": tap})

    def rtts(self) -> dict[int, tuple[float, float]]:
        return dict.fromkeys(self.monitored.values(), (4e7, 1e6))

    def wait(self, until_ns: int) -> bool:
        self.now_ns = until_ns
        self.periods += 1
        return True

    def close(self) -> None:
        pass


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    some_keys,
    st.integers(0, 4),
    st.integers(1, 3),
    st.lists(some_keys, min_size=1, max_size=9),
    st.lists(some_sent, min_size=1, max_size=7),
)
def test_the_loop_asks_the_collector_for_nothing_it_refuses(
    requested: list[FlowKey],
    heavy: int,
    idle_s: int,
    seen: list[list[FlowKey]],
    sent: list[list[tuple[FlowKey, int]]],
) -> None:
    """With no more room than for the flows that are monitored at one time."""
    collector = Strict(len(set(requested)) + heavy, seen, sent)
    spelled = [
        key._replace(src=key.src.upper(), dst=key.dst.replace("fd00::", "fd00:0::")) for key in requested
    ]
    before: set[FlowKey] = set(requested)
    for update in watch(collector, flows=spelled, heavy=heavy, idle_s=idle_s, period_ms=500, duration_s=20):
        if update.flows is not None:
            told = {
                FlowKey(*row)
                for row in update.flows[list(FlowKey._fields)].itertuples(index=False, name=None)
            }
            assert told == before
            before = set(collector.monitored)
            assert before >= set(requested)
    assert collector.reports > 15


def test_a_flow_needs_addresses() -> None:
    with pytest.raises(ParameterError, match="flows: 'host'"):
        next(watch(Strict(1, [[]], [[]]), flows=[KEYS[0]._replace(src="host")]))
