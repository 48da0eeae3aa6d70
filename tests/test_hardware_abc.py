"""P4-ABC on switches: its constants and tables, its control plane, and BMv2 against the models.

The models are :class:`cctoolkit.aqm.IntegerAbc` and, with the Tofino's arithmetic, :class:`cctoolkit.aqm.TofinoAbc`,
compiled as the simulator compiles them.
"""

from __future__ import annotations

import struct
from typing import ClassVar

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from one_queue import Compiled, packet
from switch_bench import TARGETS, TestInput, running, running_on

from cctoolkit.aqm import DROP, PASS, IntegerAbc, TofinoAbc, abc_tofino as tofino
from cctoolkit.errors import ParameterError
from cctoolkit.experiments.abc import scenario
from cctoolkit.sim.simulation import Simulation
from hardware.common.switch import Lpm, Switch, SwitchError, SwitchGoneError
from hardware.constants import Constant
from hardware.programs.abc import constants as abc, control as control_plane
from hardware.programs.abc.control import Aggregate, Domain, Link

MS = 1_000_000
WORD = 1 << 32
ARRIVES, LEAVES = 1, 2
DECISION = {PASS: 0, DROP: 2}


# ---- constants and tables --------------------------------------------------------------------------------------------


def test_constants_are_the_models():
    for memory, name in ((3.0, "METER"), (0.3, "AVERAGE")):
        step_ns = abc.NUMBER[f"{name}_STEP_NS"]
        assert step_ns * 1024 == pytest.approx(memory * 1e9 * np.log(2), rel=1e-5)
        # so that a division is a product: off by less than a step in 64 half-lives
        assert abc.NUMBER[f"{name}_RECIPROCAL_STEPS"] == 2**40 // step_ns
    half_life = 2.0 ** abc.NUMBER["METER_EPOCH_SHIFT"] / 8
    assert abc.TOFINO_MODEL.meter_s() == pytest.approx(half_life * 1e-9 / np.log(2))
    assert abc.NUMBER["AGGREGATE_ENTRIES"] == abc.MODEL.aggregates == abc.TOFINO_MODEL.aggregates
    # epochs are read from the clock's bits 47 to 16, and the program's steps of 2^16 ns are the model's
    assert 16 + tofino.COARSE_BITS + 3 == abc.NUMBER["METER_EPOCH_SHIFT"] < 47
    assert 16 < abc.NUMBER["AVERAGE_EPOCH_SHIFT"] < 47


def test_products_fit_into_64_bits():
    """Of the 64-bit version: the largest time and step, a volume of 10**12 bits, a sum of activities."""
    for name in ("METER", "AVERAGE"):
        longest = abc.NUMBER[f"{name}_STEP_NS"] << 16
        assert longest * abc.NUMBER[f"{name}_RECIPROCAL_STEPS"] < 2**63
    assert (10**12 // 8 << 6) * 2**20 <= 2**63
    packets = 20_000_000 * 0.3  # in a memory; a software switch has far fewer
    assert 20 * 65536 * packets * 2**20 < 2**63  # a sum of activities of 20, 10 Gbit/s over 10 kbit/s


def test_the_leading_ones_table():
    macro = next(c for c in abc.CONSTANTS if c.name == "LEADING_ONE_ENTRIES")
    for n, line in enumerate(macro.lines):
        value, mask = (int(x, 16) for x in line.split(":")[0].split(" &&& "))
        assert value == 1 << n and f"found({n});" in line
        assert all(
            (x & mask == value) == (x.bit_length() - 1 == n) for x in (1, 2, 3, 1 << n, (2 << n) - 1, 2**63)
        )


def lookup(entries, key, bits=32):
    """What a longest-prefix match finds."""
    found = [
        (prefix.prefix_bits, what)
        for what, prefix in entries
        if (key ^ prefix.value) >> bits - prefix.prefix_bits == 0
    ]
    return max(found)[1] if found else None


OCTAVES = {
    "LENGTH_ENTRIES": list(control_plane.length_entries()),
    "LOGARITHM_ENTRIES": list(control_plane.octave_entries(tofino.LOG_BITS, 32, 32)),
    "YOUNG_ENTRIES": list(control_plane.octave_entries(tofino.YOUNG_BITS, 19, 32)),
}


@pytest.mark.parametrize(("name", "bits", "width"), [("LENGTH_ENTRIES", 7, 16), ("LOGARITHM_ENTRIES", 7, 32)])
def test_octaves_are_prefixes(name, bits, width):
    rng = np.random.default_rng(3)
    numbers = {1, 2, 127, 128, 129, 255, 256, 257, 2**width - 1} | {
        int(2**x) for x in rng.uniform(0, width, 60)
    }
    for x in numbers:
        assert lookup(OCTAVES[name], x, width) == tofino.octave(x, bits), x
    assert lookup(OCTAVES[name], 0, width) == (0 if name == "LENGTH_ENTRIES" else None)


def test_young_meters_entries_end_with_their_youth():
    entries = OCTAVES["YOUNG_ENTRIES"]
    for age in (1, 63, 64, 65, 1000, tofino.MATURE_STEPS - 1):
        assert lookup(entries, age) == tofino.octave(age, tofino.YOUNG_BITS)
    for age in (0, tofino.MATURE_STEPS, WORD - 1):
        assert lookup(entries, age) is None


@pytest.mark.parametrize("name", OCTAVES)
def test_tables_have_room(name):
    assert len(OCTAVES[name]) == abc.NUMBER[name]


def test_weighted_lengths():
    """Every frame at every time finds an entry, and products of lengths and weights are right within half a percent."""
    rng = np.random.default_rng(4)
    logs, units = tofino.length_logarithms(), tofino.weighted_lengths(1)
    assert len(units) == abc.NUMBER["WEIGHTED_ENTRIES"] <= 1 << 13 and units.max() < WORD
    for size in (34, 60, 64, 65, 200, 576, 1492, 1514, 9014, 9230):
        for within in (0, 8 * 65536 - 2, *rng.integers(0, 8 * 65536, 20).tolist()):
            at = (int(logs[tofino.octave(size - 14, 7)]) + (within >> 1)) >> 7
            assert units[at] == pytest.approx(min(size, 9216) * 2 ** (within / 65536), rel=0.008, abs=0.6)


@settings(deadline=None)
@given(st.integers(0, WORD - 1), st.integers(0, WORD - 1))
@example(0, WORD - 1)
@example(7, 7)
def test_prefixes_cover_a_range_once(a, b):
    low, high = min(a, b), max(a, b)
    covered = 0
    at = low
    for prefix in control_plane.range_prefixes(low, high):
        assert prefix.value == at and prefix.value % (1 << 32 - prefix.prefix_bits) == 0
        at += 1 << 32 - prefix.prefix_bits
        covered += 1
    assert at == high + 1 and covered <= 62


PARAMETERS = st.tuples(
    st.sampled_from([1, 2, 7, 24, 100]),
    st.sampled_from([0.0, 1.0, 6.0, 12.5]),
    st.sampled_from([0.0, 8.0, 20.0, 33.3]),
    st.sampled_from([0.0, 0.25, 1.0, 5.0, 16.0, 100.0]),
)


@settings(deadline=None, max_examples=60)
@given(
    PARAMETERS,
    st.lists(st.integers(-(2**23), 2**23) | st.integers(-(2**31), 2**31 - 1), min_size=10, max_size=20),
)
@example(
    (24, 6.0, 20.0, 16.0),
    [*range(-5, 5), 57344, 57345, 57343, -(2**31), 2**31 - 1, -16384, -16385, 4096, 0, 0],
)
def test_thresholds_are_equation_2(given_parameters, excesses):
    """Each excess finds the model's threshold, and one entry only."""
    buffer, least, base, gamma = given_parameters
    model = TofinoAbc(min_packets=least, base_packets=base, gamma_packets=gamma)
    entries = [(packets, prefix) for prefix, packets in control_plane.threshold_entries(model, buffer)]
    p = model.derived()
    for excess in excesses:
        wanted = min(max(p["min_fixed"], p["base_fixed"] - p["gamma_fixed"] * excess >> 24), buffer - 1)
        matches = [
            n for n, prefix in entries if (excess % WORD ^ prefix.value) >> 32 - prefix.prefix_bits == 0
        ]
        assert matches == [wanted]


def test_the_papers_thresholds_need_few_entries():
    entries = list(control_plane.threshold_entries(abc.TOFINO_MODEL, 24))
    assert len(entries) < 64


def test_gains_are_in_the_program():
    """The action for each shift, with 8 bits more after the point."""
    actions = next(c for c in abc.CONSTANTS if c.name == "GAIN_ACTIONS").lines
    for buffer in (1, 24, 65536):
        for shift in set(abc.TOFINO_MODEL.gains(buffer)[0].tolist()):
            (action,) = (line for line in actions if line.startswith(f"action gain_{shift}("))
            direction, places = action.split("excess ")[1].split(";")[0].split()
            assert (int(places) if direction == ">>" else -int(places)) == shift - 8
    assert len(abc.TOFINO_MODEL.gains(24)[0]) * abc.PROFILES == abc.NUMBER["GAIN_ENTRIES"]
    assert len(actions) <= 30  # instructions of a stage


def test_widths():
    for constant in abc.CONSTANTS:
        if isinstance(constant, Constant) and constant.name.endswith("_NS"):
            assert constant.bits == 64


# ---- the control plane, without a switch -----------------------------------------------------------------------------


class FakeSwitch(Switch):
    """Remembers what it is asked."""

    def __init__(self, target="bmv2", tofino_arithmetic=False):
        self.target = target
        self.gone = False
        self.tables, self.defaults, self.shaped, self.sessions = {}, {}, {}, {}
        self.registers = {
            "activities": np.zeros(abc.AGGREGATES, np.uint64),
            "aggregate_packets": np.zeros(abc.AGGREGATES, [("accepted", np.uint64), ("dropped", np.uint64)]),
            "port_packets": np.zeros(512, [("accepted", np.uint64), ("dropped", np.uint64)]),
        }
        if tofino_arithmetic:
            names = ("average", "departed", "accepted_number", "average_q24")
            self.registers |= {name: np.zeros(512, np.uint64) for name in names}
            self.registers["mature"] = np.zeros(abc.AGGREGATES, np.uint64)
            self.registers["first"] = np.zeros(abc.AGGREGATES, [("time", np.uint64), ("known", np.uint64)])
            pair = [("sum", np.uint64), ("cycle", np.uint64)]
            for slot in range(2):
                self.registers[f"volume_{slot}"] = np.zeros(abc.AGGREGATES, pair)
                self.registers[f"count_{slot}"] = np.zeros(512, pair)
        else:
            names = ("activity_sum", "activity_count", "averaged_ns", "queue_depth")
            self.registers |= {name: np.zeros(512, np.uint64) for name in names}
            names = ("started", "first_ns", "last_ns", "volume")
            self.registers |= {name: np.zeros(abc.AGGREGATES, np.uint64) for name in names}
            self.registers |= {name: np.zeros(1024, np.uint64) for name in ("powers", "logarithms")}
            self.registers["young_logarithms"] = np.zeros(3840, np.uint64)

    def add_entry(self, table, keys, action, data=None, *, priority=0):
        self.tables.setdefault(table, {})[tuple(keys.values())] = (action, data)

    def set_default(self, table, action, data=None):
        self.defaults[table] = (action, data)

    def read_register(self, name, first=0, count=None):
        if self.gone:
            raise SwitchGoneError("it does not answer")
        if name not in self.registers:
            raise SwitchError(f"no register {name}")
        return self.registers[name][first : None if count is None else first + count].copy()

    def write_register(self, name, value, index=None):
        cells = slice(None) if index is None else index
        if isinstance(value, dict):
            assert set(value) == set(self.registers[name].dtype.names)
            for field, word in value.items():
                self.registers[name][field][cells] = word
        else:
            self.registers[name][cells] = value

    def shape(self, port, rate_mbps, *, frame_bytes=1514, buffer_packets=None):
        self.shaped[port] = (rate_mbps, frame_bytes, buffer_packets)

    def mirror_session(self, session_id, port, max_bytes=None):
        self.sessions[session_id] = (port, max_bytes)

    close = reconnect = delete_entry = clear_table = digests = None


FakeSwitch.__abstractmethods__ = frozenset()

TWO = (Aggregate("10.0.0.0/24"), Aggregate("10.0.1.0/24", 20), Aggregate("2001:db8:1::/48", 40))
EDGE = Domain({0: 1, 1: 0}, domain_ports=frozenset({1}), links=[Link(1, 50.0)], aggregates=TWO)


def test_set_up_of_an_edge():
    switch = FakeSwitch()
    control_plane.set_up(switch, EDGE)
    assert switch.tables["wire"] == {(0,): ("send", {"port": 1}), (1,): ("send", {"port": 0})}
    assert switch.tables["ingress_role"] == {(0,): ("from_customer", None), (1,): ("from_domain", None)}
    assert switch.tables["egress_role"] == {(0,): ("strip", None), (1,): ("keep", None)}
    assert switch.tables["managed_ports"] == {
        (1,): ("manage", {"min_q16": 6 << 16, "base_q16": 20 << 16, "gamma": 16})
    }
    assert switch.shaped == {1: (50.0, 1514, 24)} and not switch.sessions
    model = IntegerAbc().derived()
    assert switch.registers["powers"].tolist() == model["power_table"].tolist()
    assert switch.registers["logarithms"].tolist() == model["log_table"].tolist()
    young = switch.registers["young_logarithms"].astype(np.int64)
    assert (-young).tolist() == model["start_table"].tolist() and young.min() >= 0


@pytest.mark.parametrize("arithmetic", [False, True])
def test_aggregates(arithmetic):
    """Their offsets: a bit less for twice the reference rate; all others have the last number."""
    switch = FakeSwitch(tofino_arithmetic=arithmetic)
    control_plane.set_up(switch, EDGE)
    entries = switch.tables["aggregates"] | switch.tables["aggregates_ipv6"]
    first, second, third = (
        entries[prefix,][1]
        for prefix in (Lpm(0x0A000000, 24), Lpm(0x0A000100, 24), Lpm(0x20010DB80001 << 80, 48))
    )
    assert [x["aggregate"] for x in (first, second, third)] == [0, 1, 2]
    assert (first["offset_q16"] - second["offset_q16"]) % WORD == 65536
    assert (second["offset_q16"] - third["offset_q16"]) % WORD == 65536
    model = abc.TOFINO_MODEL if arithmetic else abc.MODEL
    assert first["offset_q16"] == int(model.derived()["offset"][0]) % WORD
    others = ("meter_as", {"aggregate": abc.AGGREGATES - 1, "offset_q16": first["offset_q16"]})
    assert switch.defaults == {"aggregates": others, "aggregates_ipv6": others}


@pytest.mark.parametrize(("target", "port"), [("tofino", 68), ("tofino2", 6)])
def test_set_up_of_a_tofino(target, port):
    switch = FakeSwitch(target, tofino_arithmetic=True)
    domain = Domain({8: 130, 130: 8}, links=[Link(130, 50), Link(8, 50, base_packets=12.0)], aggregates=TWO)
    control_plane.set_up(switch, domain)
    assert switch.sessions == {1: (port, 64), 2: (port + 128, 64)}
    assert switch.tables["ingress_role"][port,] == ("from_egress", None)
    assert switch.tables["ingress_role"][port + 128,] == ("from_egress", None)
    assert switch.tables["managed_ports"] == {
        (130,): ("manage", {"profile": 0}),
        (8,): ("manage", {"profile": 1}),
    }
    sizes = {name: len(entries) for name, entries in switch.tables.items()}
    for table, limit in (
        ("length_logarithms", "LENGTH"), ("length_logarithms_ipv6", "LENGTH"), ("weighted_lengths", "WEIGHTED"),
        ("logarithms", "LOGARITHM"), ("count_logarithms", "LOGARITHM"), ("young_logarithms", "YOUNG"),
    ):  # fmt: skip
        assert sizes[table] == abc.NUMBER[f"{limit}_ENTRIES"]
    assert sizes["gains"] == 2 * 264 <= abc.NUMBER["GAIN_ENTRIES"]
    for table, width in (("count_logarithms", 9), ("young_logarithms", 32), ("logarithms", 32)):
        for _, data in switch.tables[table].values():
            assert all(0 <= value < 1 << width for value in data.values())
    with pytest.raises(ParameterError, match="port 68"):
        control_plane.set_up(FakeSwitch("tofino", True), Domain({68: 1}))


def test_set_up_may_be_repeated():
    switch = FakeSwitch(tofino_arithmetic=True)
    control_plane.set_up(switch, EDGE)
    tables = {name: dict(entries) for name, entries in switch.tables.items()}
    control_plane.set_up(switch, EDGE)
    assert switch.tables == tables


def test_thresholds_must_fit():
    domain = Domain({0: 1}, links=[Link(1, buffer_packets=20_000, base_packets=10_000, gamma_packets=777.7)])
    with pytest.raises(ParameterError, match="thresholds need"):
        control_plane.set_up(FakeSwitch(tofino_arithmetic=True), domain)


def test_which_arithmetic():
    assert control_plane.uses_tofino_arithmetic(FakeSwitch(tofino_arithmetic=True))
    assert control_plane.uses_tofino_arithmetic(FakeSwitch("tofino2", True))
    assert not control_plane.uses_tofino_arithmetic(FakeSwitch())
    gone = FakeSwitch()
    gone.gone = True
    with pytest.raises(SwitchGoneError):
        control_plane.uses_tofino_arithmetic(gone)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Aggregate("10.0.0.1/24"), "aggregate"),
        (lambda: Aggregate("10.0.0.0/24", 0), "reference_kbps"),
        (lambda: Link(1, 0), "rate_mbps"),
        (lambda: Link(1, 50, 0), "buffer"),
        (lambda: Link(1, gamma_packets=-1), "gamma"),
        (lambda: Domain({}, aggregates=[Aggregate("10.0.0.0/8")] * 2), "twice"),
        (lambda: Domain({}, links=[Link(1), Link(1)]), "twice"),
        (lambda: Domain({}, links=[Link(i, 50, 10 + i) for i in range(17)]), "16 different"),
        (
            lambda: Domain({}, aggregates=[Aggregate(f"10.{i >> 8}.{i & 255}.0/24") for i in range(1024)]),
            "1023",
        ),
        (lambda: Domain({}, others_kbps=0), "others_kbps"),
        (lambda: control_plane.parse_links(["1:50"]), "--link"),
        (lambda: control_plane.parse_links(["600:50:24"]), "port 600 must be"),
        (lambda: control_plane.parse_aggregates(["10.0.0.0/24=x"]), "--aggregate"),
        # not the form is wrong, but a value
        (lambda: control_plane.parse_links(["1:20:0"]), "^--link: '1:20:0': link 1: buffer_packets: 0 must"),
        (lambda: control_plane.parse_links(["1:-5:24"]), "^--link: '1:-5:24': link 1: rate_mbps"),
        (
            lambda: control_plane.parse_links(["1:20:24"], gamma_packets=-1.0),
            "^--link: '1:20:24': .*gamma_packets",
        ),
        (
            lambda: control_plane.parse_aggregates(["10.0.0.1/24=10"]),
            "^--aggregate: '10.0.0.1/24=10': .*host bits",
        ),
        (
            lambda: control_plane.parse_aggregates(["10.0.0.0/24=-3"]),
            "^--aggregate: '10.0.0.0/24=-3': .*kbps",
        ),
    ],
)
def test_what_cannot_be(make, match):
    with pytest.raises(ParameterError, match=match):
        make()


def test_options():
    assert control_plane.parse_links(["1:50:24", "3:10.5:100"], gamma_packets=8.0) == [
        Link(1, 50.0, 24, gamma_packets=8.0),
        Link(3, 10.5, 100, gamma_packets=8.0),
    ]
    assert control_plane.parse_aggregates(["10.0.0.0/24=20", "2001:db8::/32"]) == [
        Aggregate("10.0.0.0/24", 20.0),
        Aggregate("2001:db8::/32"),
    ]


@pytest.mark.parametrize("arithmetic", [False, True])
def test_tables_and_clear(arithmetic):
    switch = FakeSwitch(tofino_arithmetic=arithmetic)
    for name, cells in switch.registers.items():
        if name not in ("powers", "logarithms", "young_logarithms"):
            switch.write_register(name, dict.fromkeys(cells.dtype.names, 7) if cells.dtype.names else 7)
    switch.registers["activities"][:3] = 12 << 16, (-(1 << 15)) % WORD, 0
    switch.registers["aggregate_packets"][2] = (0, 0)
    table = control_plane.aggregate_table(switch, EDGE).set_index("prefix")
    assert table.activity[:2].tolist() == [12.0, -0.5] and np.isnan(table.activity.iloc[2])
    assert table.rate_mbps["10.0.0.0/24"] == pytest.approx(40.96)
    assert table.rate_mbps["10.0.1.0/24"] == pytest.approx(0.02 / np.sqrt(2))
    assert table.loc["others", ["aggregate", "accepted", "dropped"]].tolist() == [1023, 7, 7]
    ports = control_plane.port_table(switch, EDGE)
    assert ports.iloc[0, :3].tolist() == [1, 7, 7]
    assert ports.average_activity[0] == pytest.approx(7 / 65536 if arithmetic else 1.0)
    control_plane.clear(switch)
    for name, cells in switch.registers.items():
        assert (
            not cells.astype(object).any() if cells.dtype.names is None else not any(map(any, cells.tolist()))
        ), name


# ---- BMv2 against the models -----------------------------------------------------------------------------------------


def frame(aggregate, size, *, activity=None, vlan=False, ip=4):
    """A packet of an aggregate, of so many bytes; with an activity it has the domain's header."""
    head = bytes(12)
    kind = b"\x08\x00" if ip == 4 else b"\x86\xdd" if ip == 6 else b"\x08\x06"
    if activity is not None:
        head += b"\x88\xb6" + struct.pack("!i", activity)
    if vlan:
        head += b"\x81\x00" + b"\0\5"
    inner = size - 14 - 4 * vlan
    if ip == 4:
        source = bytes([10, aggregate >> 8, aggregate & 255, 1])
        body = struct.pack("!BBHHHBBH4s4s", 0x45, 0, inner, 0, 0, 64, 17, 0, source, b"\12\1\0\1")
    elif ip == 6:
        source = b"\x20\1\x0d\xb8" + struct.pack("!H", aggregate) + bytes(10)
        body = struct.pack("!IHBB", 6 << 28, inner - 40, 17, 64) + source + bytes(16)
    else:
        body = b""
    return head + kind + body + bytes(inner - len(body))


_integer = numba.njit(error_model="numpy")(IntegerAbc.on_enqueue)
_tofino_enqueue = numba.njit(error_model="numpy")(TofinoAbc.on_enqueue)
_tofino_dequeue = numba.njit(error_model="numpy")(TofinoAbc.on_dequeue)
ROWS = 40_000
FIELDS = (
    "leaves",
    "now_ns",
    "aggregate",
    "bytes",
    "depth",
    "verdict",
    "activity",
    "number",
    "excess",
    "average",
)


@numba.njit
def _note(s, leaves, now_ns, aggregate, size, depth, verdict, label, number, excess, average):
    at = 10 * s.rows
    if at < len(s.log):
        s.log[at], s.log[at + 1], s.log[at + 2], s.log[at + 3] = leaves, now_ns, aggregate, size
        s.log[at + 4], s.log[at + 5], s.log[at + 6] = depth, verdict, np.int64(np.round(label * 65536))
        s.log[at + 7], s.log[at + 8], s.log[at + 9] = number, excess, average
        s.rows += 1


class Recorder(IntegerAbc):
    """The model, with what it was asked and answered."""

    name: ClassVar[str] = "abc_integer_recorder"

    class State(IntegerAbc.State):
        rows = 0
        log = np.zeros(10 * ROWS, np.int64)

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        verdict = _integer(p, s, stats, queue, packet, now_ns)
        _note(s, 0, now_ns, packet.aggregate, packet.bytes, queue.packets, verdict, packet.label, 0, 0, 0)
        return verdict


class TofinoRecorder(TofinoAbc):
    name: ClassVar[str] = "abc_tofino_recorder"

    class State(TofinoAbc.State):
        rows = 0
        log = np.zeros(10 * ROWS, np.int64)

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        verdict = _tofino_enqueue(p, s, stats, queue, packet, now_ns)
        excess = np.int64(np.round(packet.label * 65536)) - (s.average >> 8)
        depth = s.accepted - s.departed - (1 if verdict == 0 else 0)
        _note(
            s,
            0,
            now_ns,
            packet.aggregate,
            packet.bytes,
            queue.packets,
            verdict,
            packet.label,
            s.accepted,
            excess,
            depth,
        )
        return verdict

    @staticmethod
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        verdict = _tofino_dequeue(p, s, stats, queue, packet, now_ns)
        excess = s.excess[s.departed % 65536]
        _note(
            s, 1, now_ns, packet.aggregate, packet.bytes, queue.packets, 0, 0.0, s.departed, excess, s.average
        )
        return verdict


def rows_of(state):
    rows = int(state["rows"])
    assert rows > 0
    return [
        dict(zip(FIELDS, row, strict=True))
        for row in np.array(state["log"][: 10 * rows]).reshape(-1, 10).tolist()
    ]


def recorded(aqm, sharing, value, count, seed=1):
    """What an AQM was asked in a run of the paper, the first so many packets."""
    given = scenario(sharing, value, duration_s=4.0, seed=seed).replace({"bottleneck.aqm": aqm})
    sim = Simulation(given, sample_s=None)
    sim.run(given.duration_s)
    rows = rows_of(sim.aqm_state(0))
    assert len(rows) > count
    return rows[:count]


def made(aqm, seed, count, *, aggregates=40, start_ns=2**40):
    """Bursts, constant rates and long pauses of many aggregates, on a link that lets a packet go each 200 µs."""
    rng = np.random.default_rng(seed)
    model = Compiled(aqm)
    model.queues["limit_packets"] = 24
    gap = rng.choice([0, 5, 120, 300, 5000], count, p=[0.25, 0.2, 0.25, 0.29, 0.01]) * 1000
    gap[rng.choice(count, 12, replace=False)] = rng.choice([3, 30, 150, 200, 700], 12) * 10**9
    at = start_ns + np.cumsum(gap + rng.integers(0, 900, count))
    busy = rng.integers(0, aggregates, count) * (rng.random(count) < 0.5)
    waiting, free = [], 0
    for now, aggregate in zip(at.tolist(), busy.tolist(), strict=True):
        while waiting and free <= now:
            model.queues["packets"] = len(waiting) - 1
            model.call("on_dequeue", 0, waiting.pop(0), free)
            free += 200_000
        model.queues["packets"] = len(waiting)
        pk = packet(size=int(rng.choice([60, 64, 577, 1358, 1514])), aggregate=aggregate)
        if model.call("on_enqueue", 0, pk, now) == PASS and len(waiting) < 24:
            if not waiting:
                free = max(free, now + 1)
            waiting.append(pk)
    return rows_of({name: model.state(name) for name in ("rows", "log")})


def domain_of(aggregates, **options):
    """Customers behind port 0, the link at port 1."""
    named = [Aggregate(f"10.{i >> 8}.{i & 255}.0/24") for i in range(aggregates)]
    named += [Aggregate(f"2001:db8:{i:x}::/48") for i in range(3)]
    return Domain({0: 1, 1: 0}, links=[Link(1)], aggregates=named, **options)


def signed(value, bits=32):
    return value - (value >> bits - 1 << bits)


def differences(rows, answers, tofino_arithmetic):
    """Rows whose answer is not the model's."""
    wrong = []
    for n, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        shown = signed(answer.value)
        if row["leaves"]:
            same = shown == row["average"]
        else:
            same = answer.decision == DECISION[row["verdict"]] and shown == row["activity"]
            if tofino_arithmetic:
                number, excess = answer.value2 >> 32, signed(answer.value2 % WORD)
                same &= excess == row["excess"]
                same &= number == (row["number"] if row["verdict"] == PASS else 0)
        if not same:
            wrong.append((n, row, answer))
    return wrong


def question(row, **options):
    """A row of a log as a packet for the switch."""
    given = TestInput(
        now_ns=row["now_ns"],
        queue_depth=row["number"] if row["leaves"] else row["depth"],
        random=row["excess"] % WORD,
        input=LEAVES if row["leaves"] else ARRIVES,
    )
    return given, frame(row["aggregate"], row["bytes"], **options)


def compared(bench, domain, rows, *, tofino_arithmetic=False, **options):
    """Send the rows; every activity, decision and average is the model's. Forgets what was before."""
    control_plane.clear(bench.switch)

    def notified(number):
        """A Tofino's egress tells its ingress what has left."""
        row = rows[number]
        return not row["leaves"] or bench.switch.read_register("departed", 1, 1)[0] == row["number"] % WORD

    answers = bench.exchange(
        [question(row, **options) for row in rows],
        in_flight=1 if tofino_arithmetic else 64,
        settled=None if bench.target == "bmv2" else notified,
    )
    wrong = differences(rows, answers, tofino_arithmetic)
    assert not wrong, f"{len(wrong)} of {len(rows)}, first {wrong[0]}"
    arrived = [row for row in rows if not row["leaves"]]
    dropped = sum(row["verdict"] == DROP for row in arrived)
    table = control_plane.port_table(bench.switch, domain)
    assert table.loc[0, ["accepted", "dropped"]].tolist() == [len(arrived) - dropped, dropped]
    return dropped


RUNS = (("cbr", 60), ("tcp", 3), ("cbr-tcp", 90))


@pytest.mark.p4
@pytest.mark.slow
def test_bmv2_is_the_integer_model():
    """Packet for packet: the paper's experiments, and many aggregates with bursts and pauses of up to 700 s."""
    domain = domain_of(64)
    with running("abc") as bench:
        control_plane.set_up(bench.switch, domain)
        dropped = [compared(bench, domain, recorded(Recorder(), *run, 3500)) for run in RUNS]
        dropped.append(compared(bench, domain, made(Recorder(), 3, 4000)))
        assert min(dropped) > 50
        for row in control_plane.aggregate_table(bench.switch, domain).itertuples():
            assert row.accepted + row.dropped > 0 or row.aggregate >= 40


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_switch_with_the_tofinos_arithmetic_is_its_model(target):
    """Arrivals and departures in the simulation's order; the queue's length is the switch's own count of them."""
    domain = domain_of(64)
    flags = ["-DTOFINO_ARITHMETIC"] if target == "bmv2" else []
    with running_on(target, "abc", *flags) as bench:
        control_plane.set_up(bench.switch, domain)
        logs = [recorded(TofinoRecorder(), *run, 6000) for run in RUNS]
        logs.append(made(TofinoRecorder(), 3, 4000))
        for rows in logs:
            # what the model counts is what waits
            assert all(row["average"] == row["depth"] for row in rows if not row["leaves"])
            assert compared(bench, domain, rows, tofino_arithmetic=True) > 50
        # the clock of 48 bits wraps
        rows = made(TofinoRecorder(), 8, 1000, start_ns=2**48 - 10**9)
        assert rows[0]["now_ns"] < 2**48 < rows[-1]["now_ns"]
        compared(bench, domain, rows, tofino_arithmetic=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "tofino_arithmetic"),
    [
        pytest.param("bmv2", False, marks=pytest.mark.p4),
        pytest.param("bmv2", True, marks=pytest.mark.p4),
        pytest.param("tofino", True, marks=pytest.mark.tofino_model),
        pytest.param("tofino2", True, marks=pytest.mark.tofino_model),
    ],
)
def test_switch_labels_and_believes(target, tofino_arithmetic):
    """Customers at ports 0 and 2, a node of the domain at port 1; IPv4, IPv6 and others, VLAN tags, forged headers."""
    domain = Domain(
        {0: 1, 1: 0, 2: 1},
        domain_ports=frozenset({1}),
        links=[Link(1), Link(0)],
        aggregates=[Aggregate("10.0.0.0/24"), Aggregate("2001:db8::/48", 40)],
    )
    rates = (10.0, 40.0, *[10.0] * (abc.AGGREGATES - 2))

    def meter(header_bytes):
        given = {"reference_kbps": rates, "aggregates": abc.AGGREGATES}
        return Compiled(
            TofinoAbc(header_bytes=header_bytes, **given) if tofino_arithmetic else IntegerAbc(**given)
        )

    meters = {4: meter(14), 6: meter(54)}
    kinds = [
        {"ip": ip, "vlan": vlan, "activity": activity}
        for ip in (4, 6, None)
        for vlan in (False, True)
        for activity in (None, -70_000, 12 << 16)
    ]
    rng = np.random.default_rng(6)
    packets, ports, wanted = [], [], []
    now = 2**41
    for _ in range(300):
        kind, port = kinds[rng.integers(len(kinds))], int(rng.integers(3))
        now += int(rng.integers(1, 5 * MS))
        size = int(rng.choice([64, 700, 1400])) if kind["ip"] != 6 else int(rng.choice([58, 64, 700, 1400]))
        packets.append((TestInput(now_ns=now, input=ARRIVES | LEAVES), frame(0, size, **kind)))
        ports.append(port)
        if port == 1:
            wanted.append((0, kind["activity"], frame(0, size, **kind | {"activity": None})))
        elif kind["ip"] is None:
            wanted.append((1, None, frame(0, size, **kind | {"activity": None})))
        else:
            sent = len(packets[-1][1])
            counted = size - 4 * kind["vlan"] if tofino_arithmetic else sent
            model = meters[kind["ip"]]
            pk = packet(size=counted, aggregate=0 if kind["ip"] == 4 else 1)
            model.call("on_enqueue", 0, pk, now)
            activity = round(pk["label"][0] * 65536)
            wanted.append((1, activity, frame(0, size, **kind | {"activity": activity})))
    flags = ["-DTOFINO_ARITHMETIC"] if tofino_arithmetic and target == "bmv2" else []
    with running_on(target, "abc", *flags, ports=3) as bench:
        control_plane.set_up(bench.switch, domain)
        answers = bench.exchange(packets, port=ports, in_flight=1)
        table = control_plane.port_table(bench.switch, domain).set_index("port")
        assert table.accepted.to_dict() == {1: sum(p != 1 for p in ports), 0: ports.count(1)}
    for n, (answer, (port, activity, out)) in enumerate(zip(answers, wanted, strict=True)):
        assert answer.port == port and answer.decision == DECISION[PASS], n
        assert activity is None or signed(answer.value) == activity, n
        assert answer.frame == out, n
