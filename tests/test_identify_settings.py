"""Settings to learn from: what the paper says of them, and that a run is the same whatever is drawn beside it."""

from __future__ import annotations

import functools
import itertools
from collections import Counter

import numpy as np
import pytest

from cctoolkit.aqm import Aqm
from cctoolkit.cca import Cca
from cctoolkit.errors import ParameterError
from cctoolkit.identify import settings
from cctoolkit.identify.draws import aqm_of
from cctoolkit.identify.elsewhere import FAMILIES, LIMITED_BY, elsewhere
from cctoolkit.identify.settings import (
    BACKGROUND,
    HELD_OUT_AQMS,
    KERNEL_CCAS,
    PAPER_CCAS,
    SETTINGS,
    SIMULATOR_CCAS,
    TRAINED_AQMS,
    cloud,
    every_cca,
    hard,
    paper,
    physical,
    world,
)
from cctoolkit.testbed.testbed import planned

DRAWS = {
    **SETTINGS,
    "hard-test": lambda runs, seed=1: hard(runs, seed, part="test"),
} | {
    f"elsewhere-{part}": functools.partial(elsewhere, part=part) for part in FAMILIES if part != "path"
}  # fmt: skip


def names(scenario):
    return [flow.cca_name for flow in scenario.flows]


def last_start(scenario):
    return max(flow.start_s for flow in scenario.flows)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_run_does_not_know_how_many_there_are(draw):
    assert list(draw(3)) == list(itertools.islice(draw(10), 3)) == list(draw(3))
    assert [changes for changes, _ in draw(8, 2)] != [changes for changes, _ in draw(8, 3)] or [
        s for _, s in draw(8, 2)
    ] != [s for _, s in draw(8, 3)]


def test_runs_have_names_and_seeds_of_their_own():
    scenarios = [s for draw in DRAWS.values() for seed in (1, 2) for _, s in draw(4, seed)]
    assert len({s.name for s in scenarios}) == len(scenarios)
    for draw in DRAWS.values():
        seeds = [s.seed for seed in (1, 2) for _, s in draw(4, seed)]
        assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_testbed_takes_every_scenario(draw):
    runs = list(draw(len(KERNEL_CCAS) if draw is every_cca else 12))
    for _, scenario in runs:
        planned(scenario, "uml")
    if draw is every_cca:
        assert {name for _, s in runs for name in names(s)} == set(KERNEL_CCAS)


def test_names_of_ccas_and_aqms_exist():
    assert {*PAPER_CCAS, *KERNEL_CCAS, *SIMULATOR_CCAS} <= set(Cca.registry)
    assert {*TRAINED_AQMS, *HELD_OUT_AQMS} <= set(Aqm.registry)
    assert not set(TRAINED_AQMS) & set(HELD_OUT_AQMS)
    assert (
        len(KERNEL_CCAS) == len(set(KERNEL_CCAS)) == 17
        and len(SIMULATOR_CCAS) == len(set(SIMULATOR_CCAS)) == 9
    )


# ---- section IV-A ----------------------------------------------------------------------------------------------------


def test_paper_is_section_iv_a():
    runs = list(paper(60))
    assert [changes["background"] for changes, _ in runs] == list(BACKGROUND) * 12
    for changes, scenario in runs:
        link = scenario.bottleneck
        assert (link.rate_mbps, link.buffer_packets, link.aqm.name) == (100, 500, "tail_drop")
        assert names(scenario)[:3] == list(PAPER_CCAS)  # one special flow of each
        n = changes["background"] // 3
        assert Counter(names(scenario)) == dict.fromkeys(PAPER_CCAS, 1 + n)  # 3n behind them
        x = scenario.duration_s - 60
        assert (
            0 <= x <= 10 and 0 <= min(f.start_s for f in scenario.flows) <= last_start(scenario) <= x + 1e-3
        )
        for flow in scenario.flows:
            assert flow.rtt_ms == 70 + 2 * flow.access_ms and 0 <= flow.access_ms <= 5
            assert 100 <= flow.access_mbps <= 1000
        assert len({(f.rtt_ms, f.access_mbps) for f in scenario.flows}) <= 5
    xs = [scenario.duration_s - 60 for _, scenario in runs]
    assert min(xs) < 2 and max(xs) > 8 and abs(np.mean(xs) - 5) < 1.5  # uniform in 0 to 10 s


def test_paper_with_all_of_the_simulators_ccas_and_other_backgrounds():
    runs = list(paper(6, ccas=SIMULATOR_CCAS, background=(0, 9)))
    for changes, scenario in runs:
        assert Counter(names(scenario)) == dict.fromkeys(SIMULATOR_CCAS, 1 + changes["background"] // 9)
    assert [changes["background"] for changes, _ in runs] == [0, 9] * 3


def test_physical_is_section_iv_b():
    runs = list(physical(20, measured_s=6))
    for changes, scenario in runs:
        assert scenario.bottleneck.rate_mbps == 1000
        assert scenario.bottleneck.buffer_packets == changes["buffer_packets"]
        assert all(0.2 <= flow.rtt_ms <= 1 for flow in scenario.flows)
        assert Counter(names(scenario)) == dict.fromkeys(PAPER_CCAS, 1 + changes["background"] // 3)
        x = scenario.duration_s - 6
        assert 0 <= x <= 1 and last_start(scenario) <= x + 1e-3
    assert {changes["buffer_packets"] for changes, _ in runs} == {2000, 4000, 8000, 16000}


def test_cloud_is_section_iv_c():
    runs = list(cloud(162, measured_s=6))
    told = Counter((changes["buffer_packets"], tuple(names(scenario))) for changes, scenario in runs)
    assert len(told) == 162 == 6 * 3**3
    assert {buffer for buffer, _ in told} == {1000, 2000, 3000, 4000, 5000, 6000}
    for changes, scenario in runs:
        assert scenario.bottleneck.rate_mbps == 1000
        assert scenario.bottleneck.buffer_packets == changes["buffer_packets"]
        assert sorted(flow.rtt_ms for flow in scenario.flows) == [40, 300, 300]
        assert set(names(scenario)) <= set(PAPER_CCAS)
        x = scenario.duration_s - 6
        assert 0 <= x <= 1 and last_start(scenario) <= x + 1e-3
    again = [changes | {"ccas": tuple(names(scenario))} for changes, scenario in cloud(324)]
    assert Counter(map(str, again[162:])) == Counter(map(str, again[:162])) and again[162:] != again[:162]


# ---- hard ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["train", "test"])
def test_hard_settings_lie_where_the_docstring_says(part):
    runs = list(hard(40, part=part))
    for changes, scenario in runs:
        link = scenario.bottleneck
        assert 20 <= link.rate_mbps == changes["rate_mbps"] <= 1000
        assert 5 <= changes["rtt_ms"] <= 100 and 0.1 <= changes["buffer_bdp"] <= 4
        bdp_packets = changes["rate_mbps"] * 1e6 / 8 * changes["rtt_ms"] / 1e3 / 1514
        assert link.buffer_packets == max(round(changes["buffer_bdp"] * bdp_packets), 10)
        assert 3 <= len(scenario.flows) == changes["flows"] <= 75
        assert names(scenario)[:3] == list(PAPER_CCAS) and set(names(scenario)) == set(PAPER_CCAS)
        rtts = {flow.rtt_ms for flow in scenario.flows}
        assert len(rtts) <= 4 and all(5 <= rtt <= 100 for rtt in rtts)
        assert link.aqm.name == changes["aqm"]
        x = scenario.duration_s - 20
        assert 0 <= x <= 5 and last_start(scenario) <= x + 1e-3
    for key, low, high in (
        ("rate_mbps", 20, 1000),
        ("rtt_ms", 5, 100),
        ("buffer_bdp", 0.1, 4),
        ("flows", 3, 75),
    ):
        values = [changes[key] for changes, _ in runs]
        assert min(values) < low * 1.5 and max(values) > high / 1.5, key
    several = [len({f.rtt_ms for f in s.flows}) > 1 for _, s in runs if len(s.flows) > 10]
    assert 0.3 < np.mean(several) < 0.7  # one base RTT in half of the runs


def test_hard_training_never_has_the_held_out_aqms_and_half_of_testing_has_no_other():
    trained = {changes["aqm"] for changes, _ in hard(40)}
    assert trained == set(TRAINED_AQMS)
    tested = [changes["aqm"] for changes, _ in hard(40, part="test")]
    assert set(tested[1::2]) == set(HELD_OUT_AQMS) and set(tested[::2]) == set(TRAINED_AQMS)


def test_hard_parts_are_drawn_apart():
    def drawn(part):
        return {(c["rate_mbps"], c["rtt_ms"], c["buffer_bdp"]) for c, _ in hard(40, part=part)}

    assert not drawn("train") & drawn("test")
    with pytest.raises(ParameterError, match="part: 'both' is neither 'train' nor 'test'"):
        next(hard(1, part="both"))


def test_hard_never_has_76_flows(monkeypatch):
    """Run 1720 of seed 2 draws 75.96 flows, which three digits make 76.0."""
    monkeypatch.setattr(settings, "run_rng", lambda *_: np.random.default_rng([2, 4, 1720]))
    changes, scenario = next(hard(1, 2, part="test"))
    assert changes["flows"] == len(scenario.flows) == 75


# ---- every congestion control ----------------------------------------------------------------------------------------


def test_every_cca_goes_through_them_in_turn():
    runs = list(every_cca(2 * len(KERNEL_CCAS)))
    assert [names(scenario)[0] for _, scenario in runs] == list(KERNEL_CCAS) * 2
    for changes, scenario in runs:
        assert 10 <= changes["rate_mbps"] == scenario.bottleneck.rate_mbps <= 200
        assert 10 <= changes["rtt_ms"] <= 150 and 0.3 <= changes["buffer_bdp"] <= 3
        assert {flow.rtt_ms for flow in scenario.flows} == {changes["rtt_ms"]}
        assert 1 <= len(scenario.flows) == changes["flows"] <= 6
        assert last_start(scenario) <= scenario.duration_s - 30 + 1e-3
    assert {len(scenario.flows) for _, scenario in runs} == {1, 2, 3, 4, 5, 6}
    shares = Counter(changes["aqm"] for changes, _ in every_cca(200))
    assert set(shares) == {"tail_drop", "codel", "red"} and 0.15 < 1 - shares["tail_drop"] / 200 < 0.35
    assert {flow.ecn for _, s in runs for flow in s.flows if flow.cca.name == "dctcp"} != {"off"}


def test_bursts_are_nebbys_settings_at_random():
    """Slow links in bursts of 14.5 packets, both ways, their congestion controls in turn, on real Linux only."""
    pairs = list(settings.bursts(34))
    ccas = [scenario.flows[0].cca_name for _, scenario in pairs]
    assert ccas == [*KERNEL_CCAS, *KERNEL_CCAS]
    for changes, scenario in pairs:
        (flow,), link = scenario.flows, scenario.bottleneck.aqm
        assert 0.045 <= changes["rate_mbps"] <= 0.5 and 30 <= changes["rtt_ms"] == flow.rtt_ms <= 250
        # packets of 142 bytes stand for their 104: bursts are as many packets, at whole numbers of them a second
        per_s = max(int(changes["rate_mbps"] * 1000) // 12, 1)
        assert link.interval_ms == pytest.approx(1000 / per_s, abs=1e-3) and link.both_ways
        assert link.bytes / flow.packet_bytes == pytest.approx(1504 / 104, abs=0.01)
        bdp_bytes = changes["buffer_bdp"] * changes["rate_mbps"] * changes["rtt_ms"] * 125
        assert abs(scenario.bottleneck.buffer_packets - bdp_bytes / 104) <= 1
        assert 2 <= changes["delayed_ack"] == flow.delayed_ack <= 10
    found, special = settings.jobs("bursts", on="uml", runs=17)
    assert special == 1 and {scenario.flows[0].cca_name for _, scenario in found} == set(KERNEL_CCAS)


def test_red_has_room_between_its_thresholds_whatever_the_buffer():
    for packets in (10, 30, 90, 10_000):
        red = aqm_of("red", packets)
        assert 5 <= red.min_packets < red.max_packets and (
            packets < 30 or red.max_packets == min(packets, 5000) / 2
        )


def test_the_testbed_takes_red_whatever_the_buffer():
    """Linux has no gentle RED, and tc wants thresholds of which it can make the weight."""
    for changes, scenario in itertools.chain(hard(30), hard(30, part="test"), every_cca(30)):
        if changes["aqm"] == "red":
            planned(scenario, "uml")


def test_congestion_controls_of_kernels_built_with_them_have_to_be_named() -> None:
    named, _ = settings.jobs("every-cca", on="uml", runs=4, ccas=("prague", "bbr3"))
    assert {flow.cca.name for _, scenario in named for flow in scenario.flows} == {"prague", "bbr3"}
    usual, _ = settings.jobs("every-cca", on="uml", runs=40)
    assert not {"prague", "bbr3"} & {flow.cca.name for _, scenario in usual for flow in scenario.flows}
    with pytest.raises(ParameterError, match="'bbr2' must be one that the testbed's kernel has"):
        settings.jobs("every-cca", on="uml", ccas=("bbr2",))


# ---- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", FAMILIES)
def test_families_change_what_they_say(part):
    runs = list(elsewhere(60, part=part))
    low, high = (5, 500) if part == "path" else (10, 200)
    for changes, scenario in runs:
        assert changes["family"] == part and low <= changes["rate_mbps"] <= high
        assert 0.2 <= changes["buffer_bdp"] <= 6 and names(scenario)[:3] == list(PAPER_CCAS)
        assert scenario.duration_s - last_start_of_three(scenario) >= 20
    changed = {
        "path": lambda s: (
            any(f.loss or f.jitter_ms for f in s.flows) or bool(s.bottleneck.rate_schedule),
            len({f.rtt_ms for f in s.flows}) > 1,
        ),
        "aqm": lambda s: (s.bottleneck.aqm.name != "tail_drop",),
        "application": lambda s: (len(s.flows) > 3,),
        "capture": lambda s: (s.flows[0].packet_bytes != 1514,),
        "stack": lambda s: (s.flows[0].delayed_ack == 1 or s.flows[0].ecn == "classic",),
        "limited": lambda s: (
            all(
                f.rate_mbps or f.access_mbps < s.bottleneck.rate_mbps or f.max_window < 10_000
                for f in s.flows[:3]
            ),
        ),
    }[part]
    shares = np.mean([changed(scenario) for _, scenario in runs], axis=0)
    assert (shares[1:] == 1).all() and (0.5 < shares[0] < 0.95 if part == "path" else shares[0] == 1)
    if part == "limited":
        assert {changes["limit"] for changes, _ in runs} == set(LIMITED_BY)
        for _, s in runs:  # what limits them leaves most of the link to others
            rates = [f.rate_mbps or f.access_mbps for f in s.flows[:3]]
            assert sum(min(r, s.bottleneck.rate_mbps) for r in rates if r < s.bottleneck.rate_mbps) < (
                0.9 * s.bottleneck.rate_mbps
            )


def last_start_of_three(scenario):
    return max(flow.start_s for flow in scenario.flows[:3])


def test_there_is_no_other_family():
    with pytest.raises(ParameterError, match="part: 'moon' must be one of path, aqm"):
        next(elsewhere(1, part="moon"))


def test_the_world_mixes_what_families_change():
    runs = list(world(300))
    flows = [scenario.flows[: changes["flows"]] for changes, scenario in runs]
    families = np.array(
        [
            (
                "path" in changes,
                "target_ms" in changes or changes["aqm"] == "red",
                len(scenario.flows) > changes["flows"],
                "packet_bytes" in changes,
                "stack" in changes,
            )
            for changes, scenario in runs
        ]
    )
    assert (abs(families.mean(axis=0) - 0.4) < 0.08).all()  # each in four of ten, whatever the others do
    assert families.sum(axis=1).min() == 0 and families.sum(axis=1).max() >= 4
    assert [of[0].cca_name for of in flows[:6]] == [*PAPER_CCAS, *PAPER_CCAS]
    for (changes, scenario), of in zip(runs, flows, strict=True):
        assert changes["aqm"] == scenario.bottleneck.aqm.name and 1 <= len(of) <= 6
        assert {f.packet_bytes for f in of} == {changes.get("packet_bytes", 1514)}
        for other in scenario.flows[len(of) :]:  # cross traffic is as it is
            assert (other.packet_bytes, other.delayed_ack, other.ecn) == (1514, 2, "off")


def test_who_has_an_ecn_of_its_own_keeps_it():
    for _, scenario in world(60, ccas=("prague", "dctcp", "cubic")):
        planned(scenario, "uml")
        for flow in scenario.flows:
            assert flow.ecn == {"prague": "l4s", "dctcp": "accurate"}.get(flow.cca_name, flow.ecn)
