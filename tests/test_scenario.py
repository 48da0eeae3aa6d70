"""Scenarios: bad values are refused with their field's name, TOML gives back what went in, sweeps cover the grid."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import cctoolkit as cct
from cctoolkit.aqm import Aqm, CoDel
from cctoolkit.cca import Cubic
from cctoolkit.errors import ParameterError
from cctoolkit.scenario import Bottleneck, Flow, Queue, Scenario, read_scenario, read_sweep, sweep
from cctoolkit.scenario.scenario import scenario_of


def base(**changes):
    return Scenario(
        **{
            "bottleneck": Bottleneck(rate_mbps=10, buffer_packets=50),
            "flows": [Flow("reno"), Flow("cubic", rtt_ms=40)],
            "duration_s": 2,
        }
        | changes
    )


BOTTLENECKS = [
    ({"rate_mbps": -1}, r"bottleneck\.rate_mbps: -1 "),
    ({"rate_mbps": 0}, r"bottleneck\.rate_mbps: 0 "),
    ({"rate_mbps": math.nan}, r"bottleneck\.rate_mbps: nan is not a number"),
    ({"rate_mbps": "fast"}, r"bottleneck\.rate_mbps: 'fast' is not a number"),
    ({"rate_mbps": True}, r"bottleneck\.rate_mbps: True is not a number"),
    ({"buffer_packets": 0}, r"bottleneck\.buffer_packets: 0 "),
    ({"buffer_packets": 2.5}, r"bottleneck\.buffer_packets: 2\.5 is not a whole"),
    ({"buffer_bytes": -5}, r"bottleneck\.buffer_bytes: -5 "),
    ({"buffer_packets": None}, r"bottleneck\.buffer_packets: queue 0 needs a size"),
    ({"aqm": "coddle"}, r"bottleneck\.aqm: 'coddle' is unknown; expected one of .*codel"),
    ({"aqm": 3}, r"bottleneck\.aqm: 3 is unknown"),
    ({"aqm": Cubic()}, r"bottleneck\.aqm: .* is unknown"),
    (
        {"aqm": {"name": "codel", "traget_ms": 3}},
        r"bottleneck\.aqm\.traget_ms: codel has no such parameter.*target_ms",
    ),
    ({"aqm": {"name": "codel", "target_ms": -3}}, r"CoDel\.target_ms"),
    ({"scheduler": "lottery"}, r"bottleneck\.scheduler: 'lottery' must be one of fifo"),
    (
        {"scheduler": "fifo", "aqm": "dualpi2"},
        r"bottleneck\.aqm: dualpi2 couples two queues, but scheduler fifo has 1",
    ),
    (
        {"scheduler": "fq", "aqm": "dualpi2"},
        r"dualpi2 couples two queues, but scheduler fq has its own queues",
    ),
    (
        {"scheduler": "fifo", "queues": (Queue(), Queue())},
        r"bottleneck\.queues: 2 queues, but scheduler fifo",
    ),
    ({"scheduler": "dual_ts", "queues": (Queue(),)}, r"bottleneck\.queues: 1 queues, but scheduler dual_ts"),
    ({"scheduler": "fq", "queues": (Queue(),)}, r"bottleneck\.queues: scheduler fq"),
    ({"queues": [3]}, r"bottleneck\.queues: must be a list of Queue"),
    ({"queues": Queue()}, r"bottleneck\.queues: must be a list of Queue"),
    ({"quantum_bytes": 1}, r"bottleneck\.quantum_bytes: 1 "),
    ({"fq_queues": 0}, r"bottleneck\.fq_queues: 0 "),
    ({"link": "rope"}, r"bottleneck\.link: 'rope' "),
    ({"time_shift_ms": -1}, r"bottleneck\.time_shift_ms: -1 "),
    ({"rate_schedule": ((2, 5), (1, 5))}, r"bottleneck\.rate_schedule\[1\]\.time_s: 1 is before"),
    ({"rate_schedule": ((2, 0),)}, r"bottleneck\.rate_schedule\[0\]\.rate_mbps: 0 "),
    ({"rate_schedule": (3,)}, r"bottleneck\.rate_schedule\[0\]: 3 must be"),
]
FLOWS = [
    ({"cca": "qubic"}, r"flow\.cca: 'qubic' is unknown; expected one of .*cubic"),
    ({"cca": CoDel()}, r"flow\.cca: "),
    ({"cca": "udp"}, r"flow\.rate_mbps: required for UDP"),
    ({"rtt_ms": -1}, r"flow\.rtt_ms: -1 "),
    ({"access_ms": 11, "rtt_ms": 20}, r"flow\.access_ms: 11 in both directions exceeds rtt_ms = 20"),
    ({"access_mbps": 0}, r"flow\.access_mbps: 0 must be positive"),
    ({"start_s": -1}, r"flow\.start_s: -1 "),
    ({"start_s": 2, "stop_s": 2}, r"flow\.stop_s: 2 must be above 2"),
    ({"bytes": 0}, r"flow\.bytes: 0 "),
    ({"ecn": "perhaps"}, r"flow\.ecn: 'perhaps' must be one of off, classic"),
    ({"on_s": 1}, r"flow\.on_s and flow\.off_s"),
    ({"on_s": 0, "off_s": 1}, r"flow\.on_s: 0 "),
    ({"arrivals": "bursty"}, r"flow\.arrivals: 'bursty'"),
    ({"on_off": "pareto"}, r"flow\.on_off: 'pareto'"),
    ({"loss": 1.5}, r"flow\.loss: 1\.5 must be at most 1"),
    ({"jitter_ms": -1}, r"flow\.jitter_ms: -1 "),
    ({"packet_bytes": 100}, r"flow\.packet_bytes: 100 "),
    ({"initial_window": 0}, r"flow\.initial_window: 0 "),
    ({"max_window": 0}, r"flow\.max_window: 0 "),
    ({"delayed_ack": 0}, r"flow\.delayed_ack: 0 "),
    ({"quick_acks": -1}, r"flow\.quick_acks: -1 "),
    ({"min_rto_ms": 0}, r"flow\.min_rto_ms: 0 "),
    ({"count": 0}, r"flow\.count: 0 "),
    ({"queue": -1}, r"flow\.queue: -1 "),
    ({"rate_mbps": -2}, r"flow\.rate_mbps: -2 "),
    ({"aggregate": 1.5}, r"flow\.aggregate: 1\.5 "),
]
SCENARIOS = [
    ({"flows": []}, "flows: at least one"),
    ({"flows": ["cubic"]}, r"flows\[0\]: 'cubic' must be a Flow"),
    ({"flows": [Flow(), Flow(queue=1)]}, r"flows\[1\]\.queue: 1 does not exist; the bottleneck has 1"),
    ({"duration_s": 0}, "duration_s: 0 "),
    ({"duration_s": math.inf}, "duration_s: inf "),
    ({"seed": -1}, "seed: -1 "),
    ({"bottleneck": 10}, "bottleneck: must be"),
]


@pytest.mark.parametrize(("changes", "says"), BOTTLENECKS)
def test_bad_bottleneck_is_refused_by_name(changes, says):
    with pytest.raises(ParameterError, match=says):
        Bottleneck(**{"rate_mbps": 10, "buffer_packets": 50} | changes)


@pytest.mark.parametrize(("changes", "says"), FLOWS)
def test_bad_flow_is_refused_by_name(changes, says):
    with pytest.raises(ParameterError, match=says):
        Flow(**changes)


@pytest.mark.parametrize(("changes", "says"), SCENARIOS)
def test_bad_scenario_is_refused_by_name(changes, says):
    with pytest.raises(ParameterError, match=says):
        base(**changes)


def test_every_field_of_flow_and_bottleneck_is_checked():
    """A new field without a check, or a check without a case here, is noticed."""
    unchecked = {
        "name",
        "cca",
        "on_s",
        "off_s",
        "queues",
        "buffer_packets",
        "buffer_bytes",
    }  # free text; above
    for cls, cases in ((Flow, FLOWS), (Bottleneck, BOTTLENECKS)):
        tried = {key for changes, _ in cases for key in changes}
        assert {f.name for f in dataclasses.fields(cls)} - {"_"} <= tried | unchecked


NONSENSE = st.one_of(
    st.floats(),
    st.integers(),
    st.integers(60, 2000).map(lambda power: 2**power),
    st.floats().map(np.float64),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.sampled_from([0, 1, 0.5, 1e-300, 1e300, 10**400, 2**53, 1e9, 1e12]),
    st.booleans(),
    st.text(max_size=5),
    st.sampled_from(["cubic", "codel", "udp", "l4s", "drr", "nan", "10"]),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda x: (
            st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=2) | st.tuples(x, x)
        ),
        max_leaves=5,
    ),
    st.sampled_from([b"x", 1j, Decimal(1), object(), print, int, np.array(2), np.arange(3), {1: 2}, {1, 2}]),
)
BASES = {
    Flow: {"cca": "reno", "rate_mbps": 1},
    Bottleneck: {"rate_mbps": 10, "buffer_packets": 50},
    Queue: {"buffer_packets": 50},
    Scenario: {
        "bottleneck": Bottleneck(rate_mbps=10, buffer_packets=50),
        "flows": (Flow("reno"),),
        "duration_s": 1,
    },
}
FIELDS = [(cls, f.name) for cls in BASES for f in dataclasses.fields(cls) if f.name != "_"]


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(FIELDS), NONSENSE, st.booleans())
def test_any_value_is_refused_by_name_or_can_be_run(which, value, udp):
    """Whatever is given for whatever field: nothing but a ParameterError that names it, else TOML and a simulation."""
    cls, field = which
    given = BASES[cls] | ({"cca": "udp"} if cls is Flow and udp else {}) | {field: value}
    try:
        made = cls(**given)
    except ParameterError as err:
        assert field in str(err)
        return
    assert not isinstance(getattr(made, field), np.generic)
    scenario = {
        Flow: lambda: base(flows=(made,)),
        Bottleneck: lambda: base(bottleneck=made),
        Queue: lambda: base(bottleneck=Bottleneck(rate_mbps=10, buffer_packets=50, queues=(made,))),
        Scenario: lambda: made,
    }
    try:
        built = scenario[cls]()
    except ParameterError as err:  # a queue that is not there
        assert field in str(err)
        return
    assert scenario_of(tomllib.loads(built.to_toml())) == built
    if sum(flow.count for flow in built.flows) < 1000:
        cct.simulate(built.replace({"duration_s": 0.001}), record=False, sample_s=None)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["bottleneck", "flows", "duration_s", "seed", "name", "queues", "other"]), NONSENSE)
def test_any_table_is_refused_by_name_or_is_a_scenario(key, value):
    table = {
        "duration_s": 1,
        "bottleneck": {"rate_mbps": 10, "buffer_packets": 9},
        "flows": [{"cca": "reno"}],
    }
    (table["bottleneck"] if key == "queues" else table)[key] = value
    try:
        scenario_of(table)
    except ParameterError as err:
        assert key in str(err)
    else:
        assert key != "other"


def test_numbers_of_numpy_are_numbers():
    """As sweeps over arange and linspace give them."""
    grid = {
        "seed": np.arange(2),
        "flows.*.rtt_ms": np.linspace(10, 20, 2),
        "bottleneck.rate_mbps": [np.float32(5)],
    }
    found = list(sweep(base(), grid))
    assert [(s.seed, s.flows[0].rtt_ms) for _, s in found] == [(0, 10), (0, 20), (1, 10), (1, 20)]
    assert all(type(x) in (int, float) for changes, _ in found for x in changes.values())
    assert all(scenario_of(tomllib.loads(s.to_toml())) == s for _, s in found)


def test_simulate_wants_a_scenario():
    with pytest.raises(ParameterError, match="scenario: dict must be a Scenario"):
        cct.simulate({"flows": []})
    with pytest.raises(ParameterError, match=r"sample_s: 0"):
        cct.simulate(base(), sample_s=0)
    with pytest.raises(ParameterError, match=r"control_s: -1"):
        cct.simulate(base(), control=print, control_s=-1)


def test_what_a_bottleneck_fills_in():
    two = Bottleneck(
        rate_mbps=10, buffer_packets=50, queues=(Queue(weight=2), Queue(buffer_bytes=9000, aqm="codel"))
    )
    assert two.scheduler == "drr"
    first, second = two.queue_list()
    assert (first.buffer_packets, first.buffer_bytes, first.aqm.name) == (50, None, "tail_drop")
    assert (second.buffer_packets, second.buffer_bytes, second.aqm.name) == (None, 9000, "codel")
    assert len(Bottleneck(rate_mbps=1, buffer_packets=9, scheduler="dual_ts").queue_list()) == 2
    assert len(Bottleneck(rate_mbps=1, buffer_packets=9, scheduler="fq", fq_queues=7).queue_list()) == 7


TOML = """
name = "shared"
duration_s = 30
seed = 7

[bottleneck]
rate_mbps = 100
scheduler = "drr"
rate_schedule = [[10, 50], [20, 100]]

[[bottleneck.queues]]
buffer_packets = 500
aqm = { name = "codel", target_ms = 2 }
weight = 3

[[bottleneck.queues]]
buffer_bytes = 1_000_000
max_rate_mbps = 40

[[flows]]
cca = { name = "cubic", hystart = false }
rtt_ms = 20
count = 3
ecn = true

[[flows]]
cca = "udp"
rate_mbps = 5
arrivals = "poisson"
queue = 1

[sweep]
seed = [1, 2, 3]
"flows.0.rtt_ms" = [20, 40]
"""


def test_toml_says_what_python_says(tmp_path):
    path = tmp_path / "shared.toml"
    path.write_text(TOML)
    scenario = read_scenario(path)
    assert scenario == Scenario(
        name="shared",
        duration_s=30,
        seed=7,
        bottleneck=Bottleneck(
            rate_mbps=100,
            scheduler="drr",
            rate_schedule=((10, 50), (20, 100)),
            queues=(
                Queue(buffer_packets=500, aqm=CoDel(target_ms=2), weight=3),
                Queue(buffer_bytes=1_000_000, max_rate_mbps=40),
            ),
        ),
        flows=(
            Flow(Cubic(hystart=False), rtt_ms=20, count=3, ecn="classic"),
            Flow("udp", rate_mbps=5, arrivals="poisson", queue=1),
        ),
    )
    assert len(scenario.flow_list()) == 4
    path.write_text(scenario.to_toml())
    assert read_scenario(path) == scenario
    assert read_scenario(path).to_toml() == scenario.to_toml()


@settings(max_examples=60, deadline=None)
@given(
    flows=st.lists(
        st.builds(
            Flow,
            st.sampled_from(["reno", "cubic", Cubic(beta=0.5), {"name": "cubic", "c": 1.0}]),
            rtt_ms=st.floats(10, 1000),
            access_ms=st.floats(0, 5),
            bytes=st.none() | st.integers(1, 10**12),
            ecn=st.sampled_from([None, True, False, "off", "classic", "accurate", "l4s"]),
            name=st.text(
                st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('"\\\n\t#='), max_size=20
            ),
            loss=st.floats(0, 1),
            count=st.integers(1, 10),
        ),
        min_size=1,
        max_size=3,
    ),
    aqm=st.sampled_from(["tail_drop", "codel", CoDel(target_ms=1.5), {"name": "codel", "interval_ms": 30}]),
    rate=st.floats(1e-3, 1e6),
    seed=st.integers(0, 2**63 - 1),
    scheduler=st.sampled_from([None, "fq", "dual_wrr", "dual_ts"]),
)
def test_toml_round_trip(flows, aqm, rate, seed, scheduler):
    scenario = Scenario(
        bottleneck=Bottleneck(rate_mbps=rate, buffer_packets=10, aqm=aqm, scheduler=scheduler),
        flows=flows,
        duration_s=1.5,
        seed=seed,
    )
    assert scenario_of(tomllib.loads(scenario.to_toml())) == scenario


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("rate_mbps = 100", "rate_mbps = -100", r"x\.toml: bottleneck\.rate_mbps: -100"),
        (
            "rate_mbps = 100",
            "rate_gbps = 1",
            r"x\.toml: bottleneck\.rate_gbps: no such field; the fields are rate_mbps",
        ),
        ("rate_mbps = 100", "", r"x\.toml: bottleneck: missing 1 required .*'rate_mbps'"),
        ("duration_s = 30", "", r"x\.toml: scenario: missing 1 required .*'duration_s'"),
        ("duration_s = 30", "duration = 30", r"x\.toml: scenario\.duration: no such field"),
        ('cca = "udp"', 'cca = "upd"', r"x\.toml: flows\[1\]\.cca: 'upd' is unknown"),
        ("queue = 1", "queue = 2", r"x\.toml: flows\[1\]\.queue: 2 does not exist"),
        ("weight = 3", "weight = 0", r"x\.toml: bottleneck\.queues\[0\]\.weight: 0 must be positive"),
        (
            "hystart = false",
            "histart = false",
            r"x\.toml: flows\[0\]\.cca\.histart: cubic has no such parameter",
        ),
        ("target_ms = 2", 'target_ms = "2"', r"x\.toml: .*CoDel\.target_ms: '2' is not a number"),
        ("[bottleneck]", "[bottleneck", r"x\.toml: not TOML: .*line"),
        ("[[flows]]", "[[flaws]]", r"x\.toml: flows: at least one"),
    ],
)
def test_toml_mistakes_name_file_and_field(tmp_path, old, new, says):
    path = tmp_path / "x.toml"
    path.write_text(TOML.replace(old, new))
    with pytest.raises(ParameterError, match=says):
        read_scenario(path)


def test_no_file(tmp_path):
    with pytest.raises(ParameterError, match=r"none\.toml: No such file"):
        read_scenario(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ParameterError, match=r"b\.toml: not TOML"):
        read_scenario(tmp_path / "b.toml")


def test_sweep_covers_the_grid_last_one_fastest(tmp_path):
    grid = {"bottleneck.aqm.target_ms": [1, 5], "flows.*.cca": ["reno", "cubic"], "seed": range(3)}
    scenario = base().replace({"bottleneck.aqm": "codel"})
    found = list(sweep(scenario, grid))
    assert len(found) == 12
    assert [c["seed"] for c, _ in found[:4]] == [0, 1, 2, 0]
    for changes, changed in found:
        assert changed.bottleneck.aqm.target_ms == changes["bottleneck.aqm.target_ms"]
        assert {f.cca_name for f in changed.flows} == {changes["flows.*.cca"]}
        assert changed.seed == changes["seed"]
    assert next(sweep(scenario, {}))[1] == scenario
    assert next(sweep(scenario, {"bottleneck.aqm": "tail_drop"}))[1].bottleneck.aqm.name == "tail_drop"
    path = tmp_path / "s.toml"
    path.write_text(TOML)
    assert [(c["seed"], s.flows[0].rtt_ms) for c, s in read_sweep(path)] == [
        (1, 20), (1, 40), (2, 20), (2, 40), (3, 20), (3, 40),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"seed": []}, "sweep: seed: the list is empty"),
        ({"seed": range(10), "flows.*.rtt_ms": iter(())}, r"sweep: flows\.\*\.rtt_ms: the list is empty"),
        ({f"flows.{i}.rtt_ms": range(10) for i in range(10)}, "sweep: 10,000,000,000 combinations"),
        ({"seed": range(10**12)}, "sweep: 100,001 combinations or more; at most 100,000"),
        ({"seed": itertools.count()}, "combinations or more"),
    ],
)
def test_a_grid_that_is_empty_or_endless_is_refused_before_anything_is_built(grid, says, monkeypatch):
    monkeypatch.setattr(cct.Scenario, "replace", None)  # nothing is built
    with pytest.raises(ParameterError, match=says):
        cct.sweep(base(), grid)


def test_a_grid_of_a_file_is_refused_with_its_name(tmp_path):
    path = tmp_path / "grid.toml"
    text = base().to_toml()
    path.write_text(f"{text}\n[sweep]\n'flows.0.rtt_ms' = []\n")
    with pytest.raises(ParameterError, match=r"grid\.toml: sweep: flows\.0\.rtt_ms: the list is empty"):
        cct.scenario.read_sweep(path)
    tens = "\n".join(f"'flows.{i}.rtt_ms' = {list(range(10))}" for i in range(10))
    path.write_text(f"{text}\n[sweep]\n{tens}\n")
    with pytest.raises(ParameterError, match=r"grid\.toml: sweep: 10,000,000,000 combinations"):
        cct.scenario.read_sweep(path)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("bottleneck.rate", 3, "bottleneck.rate: no field 'rate'; the fields are rate_mbps"),
        ("flows.2.rtt_ms", 3, "flows.2.rtt_ms: '2' is not one of 2"),
        ("flows.first.rtt_ms", 3, "flows.first.rtt_ms: 'first' is not one of 2"),
        ("seed.low", 3, "seed.low: no field 'low'"),
        ("flows.0.rtt_ms", -3, "flow.rtt_ms: -3"),
        (
            "bottleneck.aqm.target_ms",
            3,
            "bottleneck.aqm.target_ms: no field 'target_ms'; there are none",
        ),
    ],
)
def test_bad_change_is_refused_by_path(path, value, says):
    with pytest.raises(ParameterError) as caught:
        base().replace({path: value})
    assert says in str(caught.value)


class Ticking(Aqm):
    """Of this test: a parameter of each kind."""

    every_ms: float = 2.0
    packets: int = 3
    mark: bool = True


def test_parameters_of_an_algorithm_are_checked():
    assert Ticking(every_ms=1).parameter_record()["every_ns"][0] == 1_000_000
    for changes, says in (
        ({"every_ms": "x"}, "Ticking.every_ms: 'x' is not a number"),
        ({"every_ms": -1}, "Ticking.every_ms: -1"),
        ({"packets": 1.5}, "Ticking.packets: 1.5 is not a whole number"),
        ({"mark": 1}, "Ticking.mark: 1 must be True or False"),
        ({"every_ms": math.nan}, "Ticking.every_ms: nan"),
    ):
        with pytest.raises(ParameterError) as caught:
            Ticking(**changes)
        assert says in str(caught.value)


def test_what_a_controller_says_is_checked_too():
    """Otherwise a wrong number would be a loop without an end, or memory of another."""
    sim = cct.sim.simulation.Simulation(
        base(flows=(Flow("reno"), Flow("udp", rate_mbps=1))), record=False, sample_s=None
    )
    for act, says in (
        (lambda: sim.set_rate(0), "rate_mbps: 0 must be positive"),
        (lambda: sim.set_rate("fast"), "rate_mbps: 'fast' is not a number"),
        (lambda: sim.set_rate(math.inf), "rate_mbps: inf must be at most"),
        (lambda: sim.set_buffer(1, 10), "queue: 1 does not exist; there are 1, from 0"),
        (lambda: sim.set_buffer(0, 0), "packets: 0 must be at least 1"),
        (lambda: sim.set_buffer(0, octets=-3), "octets: -3 must be at least 1"),
        (lambda: sim.set_weight(-1, 1), "queue: -1 does not exist"),
        (lambda: sim.set_weight(0, 1e-300), "weight: 1e-300 must be at least 0.001"),
        (lambda: sim.assign_queue(2, 0), "flow: 2 does not exist; there are 2, from 0"),
        (lambda: sim.assign_queue(0, 1.0), "queue: 1.0 does not exist"),
        (lambda: sim.aqm_state(1), "queue: 1 does not exist"),
        (lambda: sim.cca_state(1), "flow: 1 has no congestion control"),
        (lambda: sim.run(math.nan), "until_s: nan is not a number"),
        (lambda: cct.simulate(base(), sample_s="x"), "sample_s: 'x' is not a number"),
        (lambda: cct.simulate(base(), sample_s=1e-12), "sample_s: 1e-12 must be at least 1e-06"),
        (lambda: cct.simulate(base(), control=print, control_s=math.nan), "control_s: nan is not a number"),
    ):
        with pytest.raises(ParameterError) as caught:
            act()
        assert says in str(caught.value)
    sim.set_buffer(np.int64(0), packets=np.int64(7))
    sim.assign_queue(np.int64(1), np.int64(0))
    assert sim._arrays["queues"]["limit_packets"][0] == 7


def test_a_duration_is_whole_nanoseconds_so_that_a_run_reaches_its_end():
    s = Scenario(
        bottleneck=Bottleneck(rate_mbps=1, buffer_packets=5), flows=[Flow()], duration_s=0.6537452472047
    )
    assert s.duration_s == 0.653745247
    assert cct.simulate(s, record=False, sample_s=None).duration_s == s.duration_s


def test_another_aqm_brings_its_scheduler():
    plain = Bottleneck(rate_mbps=10, buffer_packets=100, aqm="codel")
    scenario = Scenario(bottleneck=plain, flows=[Flow("reno")], duration_s=1)

    def with_aqm(name, scenario=scenario):
        return scenario.replace({"bottleneck.aqm": name})

    assert with_aqm("fq_codel").bottleneck == Bottleneck(rate_mbps=10, buffer_packets=100, aqm="fq_codel")
    assert with_aqm("fq_codel").bottleneck.scheduler == "fq"
    assert with_aqm("dualpi2").bottleneck.scheduler == "dual_wrr"
    for there in ("fq_codel", "dualpi2"):
        assert with_aqm("codel", with_aqm(there)) == scenario  # and takes it away again
    asked_for = scenario.replace({"bottleneck.scheduler": "priority"})
    assert with_aqm("fq_codel", asked_for).bottleneck.scheduler == "priority"
    assert scenario.replace({"bottleneck.aqm.target_ms": 9}).bottleneck.scheduler == "fifo"
