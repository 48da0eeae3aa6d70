"""What the tests of iRED, PI2 and DualPI2 on switches share: models with known draws, packets, a fake switch."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import naive_aqm as naive
import numba
import numpy as np
from one_queue import Compiled, packet

from cctoolkit.sim.simulation import Simulation
from hardware.common.switch import Switch

MS = 1_000_000
WORD = 1 << 32


class Drawing:
    """A compiled AQM whose draws are known, as the whole numbers of so many bits that a switch gets."""

    def __init__(self, aqm, bits, *, queues=1, seed=1):
        self.compiled, self.bits = Compiled(aqm, queues=queues, seed=seed), bits

    def enqueue(self, now_ns, ecn):
        return self.compiled.call("on_enqueue", 0, packet(ecn=ecn, enqueued_ns=now_ns), now_ns)

    def dequeue(self, arrival_ns, delay_ns, ecn, queue=0):
        """The verdict, and the draw it was made with."""
        following = naive.SplitMix64(int(self.compiled.queues["rng"][queue]))()
        pk = packet(ecn=ecn, enqueued_ns=arrival_ns)
        verdict = self.compiled.call("on_dequeue", queue, pk, arrival_ns + delay_ns)
        return verdict, int(following * (1 << self.bits))


def walk(seed, rows, low_ms, high_ms, *, ecn=(0, 1, 2, 3), longest_ms=200):
    """Delays (ns) that walk between two bounds, and jump from there now and then; and the ECN field's values."""
    rng = np.random.default_rng(seed)
    width = high_ms - low_ms
    at = np.cumsum(rng.normal(0, width / 30, rows)) + rng.uniform(0, 2 * width)
    delay = ((np.abs(at % (2 * width) - width) + low_ms) * MS).astype(np.int64)
    jumps = rng.random(rows) < 0.03
    delay[jumps] = rng.choice([0, 1, 1023, 1024, longest_ms * MS], jumps.sum())
    return list(zip(delay.tolist(), rng.choice(ecn, rows).tolist(), strict=True))


class FakeSwitch(Switch):
    """Remembers what it is asked."""

    def __init__(self, target="tofino2", registers=()):
        self.target = target
        self.tables = {}
        self.defaults, self.shaped, self.mirrors, self.weights, self.log = {}, {}, {}, {}, []
        self.registers = {
            name: np.zeros(cells, [(f, np.uint64) for f in fields] if fields else np.uint64)
            for name, cells, fields in registers
        }

    def close(self):
        pass

    def reconnect(self, timeout_s=10.0):
        pass

    def add_entry(self, table, keys, action, data=None, *, priority=0):
        self.log.append((table, dict(keys), action, data))
        self.tables.setdefault(table, {})[tuple(keys.values())] = (action, data)

    def delete_entry(self, table, keys):
        del self.tables[table][tuple(keys.values())]

    def clear_table(self, table):
        self.tables[table] = {}

    def set_default(self, table, action, data=None):
        self.defaults[table] = (action, data)

    def read_register(self, name, first=0, count=None):
        return self.registers[name][first : None if count is None else first + count].copy()

    def write_register(self, name, value, index=None):
        cells = slice(None) if index is None else index
        if isinstance(value, dict):
            assert set(value) == set(self.registers[name].dtype.names)
            for field, word in value.items():
                self.registers[name][field][cells] = word
        else:
            self.registers[name][cells] = value

    def digests(self, name, fields=(), timeout_s=0.0):
        yield from ()

    def shape(self, port, rate_mbps, *, frame_bytes=1514, buffer_packets=None):
        self.shaped[port] = (rate_mbps, frame_bytes, buffer_packets)

    def mirror_session(self, session_id, port, max_bytes=None):
        self.mirrors[session_id] = (port, max_bytes)

    def weight(self, port, queue, weight):
        self.weights[port, queue] = weight


# ---- what an AQM was asked in a simulation, and what it answered -----------------------------------------------------

_FIELDS, _ROWS = ("now_ns", "delay_ns", "ecn", "queue", "backlog_packets", "rng", "verdict"), 60_000
UPDATE = -1  # instead of a verdict: the controller was asked


class Log(NamedTuple):
    """One row a packet that left, or an update."""

    now_ns: int
    delay_ns: int
    ecn: int
    queue: int
    backlog_packets: int
    rng: int
    verdict: int
    probability: float

    def draw(self, bits):
        """The number that the packet's verdict was made with."""
        return int(naive.SplitMix64(self.rng % (1 << 64))() * (1 << bits))


def recorder(cls, called):
    """The AQM's class, with a log of packets and updates."""
    dequeue, update = (numba.njit(error_model="numpy")(f) for f in (cls.on_dequeue, cls.on_update))
    width = len(_FIELDS)

    class Recorder(cls):
        name: ClassVar[str] = called

        class State(cls.State):
            rows = 0
            log = np.zeros(width * _ROWS, np.int64)
            probabilities = np.zeros(_ROWS)

        @staticmethod
        def on_dequeue(p, s, stats, queue, packet, now_ns):
            row = np.int64(s.rows)
            s.log[width * row + 1] = now_ns - packet.enqueued_ns
            s.log[width * row + 2] = packet.ecn
            s.log[width * row + 3] = queue.index
            s.log[width * row + 4] = queue.packets
            s.log[width * row + 5] = np.int64(queue.rng)
            verdict = dequeue(p, s, stats, queue, packet, now_ns)
            s.log[width * row] = now_ns
            s.log[width * row + 6] = verdict
            s.probabilities[row] = queue.probability
            s.rows = min(row + 1, _ROWS - 1)
            return verdict

        @staticmethod
        def on_update(p, s, stats, queue, packet, now_ns):
            update(p, s, stats, queue, packet, now_ns)
            row = np.int64(s.rows)
            s.log[width * row] = now_ns
            s.log[width * row + 6] = UPDATE
            s.probabilities[row] = queue.probability
            s.rows = min(row + 1, _ROWS - 1)
            return 0

    return Recorder


def recorded(scenario):
    """Run it; the rows of the (first) queue's AQM."""
    sim = Simulation(scenario, sample_s=None)
    sim.run(scenario.duration_s)
    state = sim.aqm_state(0)
    rows = int(state["rows"])
    assert rows < _ROWS - 1
    log = np.array(state["log"]).reshape(-1, len(_FIELDS))[:rows].tolist()
    return [Log(*row, p) for row, p in zip(log, state["probabilities"], strict=False)]
