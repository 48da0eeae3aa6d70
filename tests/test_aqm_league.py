"""The league: every race is the run it says it is, and the table is what follows from the races."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import cctoolkit as cct
from cctoolkit.errors import ParameterError
from cctoolkit.experiments.league import RACES, league, standings

SHORT = {
    "two flows": cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=200),
        flows=[
            cct.Flow("reno", rtt_ms=10, jitter_ms=1),
            cct.Flow("reno", rtt_ms=50, jitter_ms=1, count=2),
            cct.Flow("udp", rate_mbps=0.1),
        ],
        duration_s=6,
    )
}


@pytest.fixture(scope="module")
def results():
    return league(["tail_drop", "codel", "fq_codel"], SHORT, seeds=2)


@pytest.mark.slow
def test_a_row_is_that_run(results):
    assert results[["scenario", "aqm", "seed"]].to_numpy().tolist() == [
        ["two flows", aqm, seed] for aqm in ("tail_drop", "codel", "fq_codel") for seed in (1, 2)
    ]
    bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=200, aqm="fq_codel")
    run = cct.simulate(SHORT["two flows"].replace({"bottleneck": bottleneck, "seed": 2}))
    row, summary = results.iloc[-1], run.summary()
    for name in ("mean_delay_ms", "utilisation", "jain_index", "drop_share", "mark_share"):
        assert row[name] == summary[name]
    delays = cct.queue_delay(run.ingress, run.egress).delay_ns.dropna().to_numpy(float) / 1e6
    assert row.delay_p99_ms == pytest.approx(np.quantile(delays, 0.99))
    base_rtt_ms = (10 + 50 + 50) / 3  # not of UDP
    queueing = base_rtt_ms / (base_rtt_ms + summary["mean_delay_ms"])
    assert row.score == pytest.approx(summary["utilisation"] * summary["jain_index"] * queueing)


def test_it_distinguishes_known_ones(results):
    """A deep buffer is full and late, CoDel is early, flow queueing is fair."""
    mean = results.groupby("aqm").mean(numeric_only=True)
    assert mean.mean_delay_ms["tail_drop"] > 5 * mean.mean_delay_ms["codel"]
    assert mean.utilisation["tail_drop"] > 0.99
    assert mean.jain_index["fq_codel"] > 0.95 > mean.jain_index["codel"]
    table = standings(results)
    assert table.index.to_list() == ["fq_codel", "codel", "tail_drop"]
    assert table["rank"].to_list() == [1, 2, 3]
    assert results.groupby("aqm").score.nunique().min() == 2  # seeds make a difference


def test_names_classes_and_objects_enter():
    class Never(cct.aqm.Aqm):
        """Drops nothing."""

    listed = league([Never, cct.aqm.CoDel(target_ms=2), {"name": "pie", "target_ms": 5}], SHORT, seeds=[7])
    assert listed.aqm.to_list() == ["never", "codel", "pie"] and set(listed.seed) == {7}
    mapped = league({"a": "codel", "b": cct.aqm.CoDel(target_ms=2)}, SHORT, seeds=[7])
    assert mapped.score[1] == listed.score[1] != mapped.score[0]


class DropsArrivals(cct.aqm.Aqm):
    """A beginner's mistake."""

    def on_enqueue(p, s, stats, queue, packet, now_ns):
        return cct.aqm.DROP


class DropsDepartures(cct.aqm.Aqm):
    """The same at the other end."""

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return cct.aqm.DROP


class DropsTcp(cct.aqm.Aqm):
    """Only UDP gets through."""

    def on_enqueue(p, s, stats, queue, packet, now_ns):
        return cct.aqm.PASS if packet.flow == 3 else cct.aqm.DROP


@pytest.mark.parametrize("aqm", [DropsArrivals, DropsDepartures, DropsTcp])
def test_an_aqm_that_sends_nothing_scores_zero_with_a_note(aqm):
    with pytest.warns(UserWarning, match=rf"'{aqm.name}' scores 0 in 'two flows'.*dropped") as warned:
        found = league([aqm, "codel"], SHORT, seeds=1)
    assert warned[0].filename == __file__
    assert found.score[0] == 0 < found.score[1]
    assert found.drop_share[0] > 0
    sends = aqm is DropsTcp
    assert (found.utilisation[0] > 0) == sends
    assert np.isfinite(found[["mean_delay_ms", "delay_p99_ms"]].loc[0]).all() == sends
    for table in (standings(found), standings(found.assign(quick=-found.delay_p99_ms), by="quick")):
        assert set(table.index) == {aqm.name, "codel"}
    assert standings(found)["rank"].to_dict() == {"codel": 1, aqm.name: 2}
    if not sends:  # a delay that was never measured wins nothing
        quick = standings(found.assign(quick=-found.delay_p99_ms), by="quick")
        assert quick["rank"].to_dict() == {"codel": 1, aqm.name: 2}


def table_of(scores: dict[str, list[list[float]]]) -> pd.DataFrame:
    """Scores by AQM, scenario and seed."""
    return pd.DataFrame(
        [
            {"scenario": f"race {r}", "aqm": aqm, "seed": s, "score": score}
            for aqm, by_race in scores.items()
            for r, by_seed in enumerate(by_race)
            for s, score in enumerate(by_seed)
        ]
    )


def test_standings_by_hand():
    scores = {
        "last": [[0.1, 0.1], [0.1, 0.1]],
        "b": [[0.5, 0.9], [0.5, 0.7]],  # by seed: 0.5, 0.8
        "a": [[0.6, 0.6], [0.8, 0.7]],  # by seed: 0.7, 0.65, so ahead of b with one seed only
    }
    table = standings(table_of(scores))
    assert table.index.to_list() == ["a", "b", "last"]
    assert table["rank"].to_list() == [1, 1, 3]
    by_seed = [[0.675, 0.65, 0.7], [0.65, 0.5, 0.8], [0.1, 0.1, 0.1]]
    np.testing.assert_allclose(table[["score", "low", "high"]], by_seed)
    np.testing.assert_allclose(table[["race 0", "race 1"]], [[0.6, 0.75], [0.7, 0.6], [0.1, 0.1]])


def test_equals_share_a_rank():
    same = [[0.5, 0.6]]
    assert standings(table_of({"a": same, "b": same, "c": [[0.4, 0.7]]}))["rank"].to_list() == [1, 1, 1]


def test_another_score(results):
    negative = results.assign(quick=-results.delay_p99_ms)
    assert standings(negative, by="quick").index[-1] == "tail_drop"
    with pytest.raises(ParameterError, match="'beauty'"):
        standings(results, by="beauty")


def test_races_are_different_and_can_be_run():
    assert len(RACES) == 3
    for name, race in RACES.items():
        short = race.replace({"duration_s": 0.5, "bottleneck.rate_schedule": ()})
        assert league(["codel"], {name: short}, seeds=1).score[0] > 0


@pytest.mark.parametrize(
    ("aqms", "options", "message"),
    [
        ([], {}, "at least one AQM"),
        (["codel"], {"seeds": 0}, "at least one AQM, one scenario and one seed"),
        (["codel"], {"races": {}}, "at least one AQM, one scenario"),
        (["codel", cct.aqm.CoDel(target_ms=1)], {"races": SHORT}, "two called 'codel'"),
        (["kodel"], {"races": SHORT}, "bottleneck.aqm: 'kodel' is unknown"),
        (
            ["codel"],
            {"races": {"udp": SHORT["two flows"].replace({"flows": (cct.Flow("udp", rate_mbps=1),)})}},
            "udp: no flow has a congestion control",
        ),
    ],
)
def test_it_says_what_is_wrong(aqms, options, message):
    with pytest.raises(ParameterError, match=message):
        league(aqms, **options)


@pytest.mark.parametrize(
    ("aqms", "seeds", "message"),
    [
        (["codel"], "x", "seeds: 'x' is neither a number nor a list of seeds"),
        (["codel"], 1.5, "seeds: 1.5 is neither"),
        (["codel"], [1.5], "seeds: 1.5 is not a whole number"),
        ([1], 1, "league: 1 is not an AQM"),
        ([{"target_ms": 5}], 1, "is not an AQM"),
    ],
)
def test_what_cannot_race(aqms, seeds, message):
    with pytest.raises(ParameterError, match=message):
        league(aqms, SHORT, seeds=seeds)
