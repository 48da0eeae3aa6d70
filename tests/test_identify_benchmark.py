"""The benchmark: the same windows for everyone, answers of others, scores, and the leaderboard."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from tools import mostly_slow

import cctoolkit as cct
from cctoolkit.errors import ParameterError, SchemaError
from cctoolkit.identify import SlotDataset, benchmark, bundled_models, load
from cctoolkit.identify.benchmark import PARTS, answers, build, questions, read_answers
from cctoolkit.identify.leaderboard import NAMELESS, leaderboard, scores, write
from cctoolkit.identify.leakage import trained_runs
from cctoolkit.identify.reliability import calibration_error, reliability, reliability_figure

KEY = ["part", "run", "flow_id", "window_ms", "first_slot", "taps"]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SlotDataset]:
    parts = ("capture", "limited", "others")
    return build(tmp_path_factory.mktemp("benchmark"), parts=parts, runs=2, workers=1, progress=False)


@pytest.fixture(scope="module")
def asked(datasets: dict[str, SlotDataset]) -> pd.DataFrame:
    return questions(datasets, [100, 1000])


def answers_with(
    names: list[str], truth: list[str], part: str = "home", probability: float = 0.9
) -> pd.DataFrame:
    n = len(names)
    return pd.DataFrame(
        {
            "part": part, "run": [f"run-{i % 4}" for i in range(n)], "flow_id": range(n), "window_ms": 1000.0,
            "first_slot": 0, "taps": 2, "cca": truth, "limited_by": "bottleneck", "said": names,
            "probability": probability,
        }
    )  # fmt: skip


# ---- questions and answers -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", cct.identify.bundled_models())
def test_no_bundled_model_was_trained_on_it(model, asked):
    trained = trained_runs(load(model))
    assert trained and not trained & set(asked.run)


@pytest.mark.slow
def test_everyone_gets_the_same_windows(datasets, asked):
    assert (
        not asked.duplicated(KEY).any() and set(asked.taps) == {1, 2} and set(asked.window_ms) == {100, 1000}
    )
    pd.testing.assert_frame_equal(questions(datasets, [100, 1000]), asked)
    one, two = (asked[asked.taps == taps].drop(columns="taps").reset_index(drop=True) for taps in (1, 2))
    pd.testing.assert_frame_equal(one, two)
    assert not questions(datasets, [100, 1000], seed=1).equals(asked)
    assert asked.as_reno[asked.cca == "reno"].all() and not asked.as_reno[asked.cca == "bbr"].any()
    for part, dataset in datasets.items():
        flows = asked[asked.part == part].groupby(["run", "flow_id"]).cca.first()
        known = dataset.flows.set_index(["run", "flow_id"]).cca
        assert (known.loc[flows.index] == flows).all()


@pytest.mark.slow
def test_flows_that_lost_something_are_not_called_limited(datasets, asked):
    flows = datasets["limited"].flows.set_index(["run", "flow_id"])
    there = asked[asked.part == "limited"].set_index(["run", "flow_id"]).index.unique()
    assert (flows.loc[there, "retransmits"] == 0).all()
    assert set(there) == set(flows.index[flows.retransmits == 0])


@pytest.mark.slow
def test_a_model_answers_as_it_does_of_slots(datasets, asked):
    model = load("cca")
    answered = answers(model, datasets, asked)
    assert set(map(tuple, answered[KEY].to_numpy())) == set(map(tuple, asked[KEY].to_numpy()))
    quiet = ~answered.limited_by.isin(["bottleneck", "unknown"])
    assert (
        quiet.any() and (answered.said[quiet] == "unknown").all() and answered.probability[quiet].isna().all()
    )
    window = answered[~quiet & (answered.taps == 1) & (answered.window_ms == 1000)].iloc[0]
    (recording,) = datasets[window.part].where([window.run])
    slots = recording.slots[recording.slots.flow_id == window.flow_id]
    at = slots.slot - window.first_slot
    part = slots[(at >= 0) & (at < 1000)].reset_index(drop=True)
    for name in ("out_bytes", "cbiq_bytes", "drops_estimate"):
        part[name] = np.nan
    (row,) = model.predict_slots(part, 1000).to_dict("records")
    assert row["probability"] == pytest.approx(window.probability, rel=1e-4)


@pytest.mark.slow
def test_answers_of_others(datasets, asked, tmp_path):
    path = tmp_path / "theirs.csv"
    asked[KEY].assign(said=asked.cca).to_csv(path, index=False)
    found = scores(read_answers(path, asked))
    assert (found[found.part == "capture"].score == 1).all() and found.ece.isna().all()
    assert (found[found.part != "capture"].score == 0).all()

    asked[KEY].iloc[::2].assign(said=asked.cca, probability=0.5).to_csv(path, index=False)
    half = read_answers(path, asked)
    assert len(half) == len(asked) and (half.said == "unknown").sum() == len(asked) // 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="said"), "said"),
        (lambda t: pd.concat([t, t]), "twice"),
        (lambda t: t.assign(run="elsewhere"), "are not in questions.csv, such as slot"),
        (lambda t: t.assign(window_ms="long"), "window_ms"),
    ],
)
def test_answers_that_fit_no_question(asked, tmp_path, change, message):
    path = tmp_path / "theirs.csv"
    change(asked[KEY].assign(said="reno")).to_csv(path, index=False)
    with pytest.raises(SchemaError, match=message):
        read_answers(path, asked)


ANYTHING = [
    "",
    "x",
    "nan",
    "inf",
    "-1",
    "1e400",
    "9" * 20,
    "true",
    "None",
    "\x1b[31m\n",
    "=cmd|x",
    "x" * 5000,
    "2",
]


@pytest.mark.slow
@pytest.mark.parametrize("value", mostly_slow(ANYTHING, ANYTHING[::4]), ids=lambda value: repr(value)[:20])
def test_anything_in_any_column_of_answers(tmp_path, value):
    """Scores or one short line, whatever is in one cell or in all of a column."""
    known = answers_with(["reno", "bbr"], ["reno", "cubic"])
    path = tmp_path / "theirs.csv"
    for column in (*KEY, "said", "probability"):
        for rows in (1, 2):
            table = known[[*KEY, "said", "probability"]].astype(object)
            table.loc[: rows - 1, column] = value
            table.to_csv(path, index=False)
            try:
                assert len(scores(read_answers(path, known.drop(columns=["said", "probability"])))) == 1
            except SchemaError as error:
                assert str(error).isprintable() and len(str(error)) < 500, column


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("leaderboard.csv", text) for text in ("", "\0", "," * 10**6, "model\nx\n", "model,model\n")),
        *(("experiment.json", text) for text in ("", "[]", "[" * 100_000, '{"options": 5}', "\0")),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_a_damaged_leaderboard_is_written_anew(tmp_path, file, content):
    answered = answers_with(["reno"], ["reno"])
    write(tmp_path, answered, {"old": answered}, {"seed": 1})
    (tmp_path / file).write_text(content)
    _, board = write(tmp_path, answered, {"new": answered}, {"seed": 1})
    assert board["model"].tolist() == ["new"]


def test_offload_is_home_on_hosts_that_have_it(tmp_path, monkeypatch):
    made = {}

    def noted(scenarios, folder, **options):
        made[folder.name] = ([scenario for _, scenario in scenarios], options["offload"])

    monkeypatch.setattr(benchmark, "build_dataset", noted)
    build(tmp_path, runs=2, progress=False)
    assert "offload" not in made  # the simulator's packets are segments
    made.clear()
    build(tmp_path, runs=2, on="uml", progress=False)
    assert tuple(made) == PARTS and [part for part, (_, offload) in made.items() if offload] == ["offload"]
    assert made["offload"][0] == made["home"][0]


def test_parts_that_are_none(tmp_path):
    with pytest.raises(ParameterError, match="part: 'moon' must be one of home, path"):
        build(tmp_path, parts=["moon"], progress=False)
    with pytest.raises(ParameterError, match="part: 'offload' must be one of home, path"):
        build(tmp_path, parts=["offload"], progress=False)
    with pytest.raises(ParameterError, match="no flow is long enough"):
        questions({})


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_a_score_is_macro_f1_or_the_share_called_unknown():
    known = answers_with(["reno", "reno", "bbr", "unknown"] * 3, ["reno", "cubic", "bbr", "bbr"] * 3)
    nothing = answers_with(["unknown", "bbr", "unknown", "unknown"] * 3, ["reno"] * 12, "limited")
    found = scores(pd.concat([known, nothing])).set_index("part")
    # reno: 2·3/(3+6), cubic: 0, bbr: 2·3/(6+3)
    assert found.score["home"] == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    assert (found.unknown["home"], found.wrong["home"]) == (0.25, 0.25)
    assert (found.score["limited"], found.unknown["limited"], found.wrong["limited"]) == (0.75, 0.75, 0.25)
    assert (found.windows == 12).all() and (found.runs == 4).all()
    assert (found.low <= found.score).all() and (found.score <= found.high).all()
    assert found.ece["home"] == pytest.approx(0.9 - 6 / 9)
    assert found.ece["limited"] == pytest.approx(0.9)  # no name is right there, whatever the sender used


def test_a_name_may_be_right_by_behaviour():
    """Reno where CUBIC would do the same, and an unknown congestion control that does what Reno does."""
    said, truth = ["reno", "reno", "bbr", "unknown"], ["cubic", "reno", "bbr", "bbr"]
    known = answers_with(said, truth).assign(
        as_reno=[True, True, False, False], as_cubic=[True, False, False, False]
    )
    others = answers_with(said, ["westwood"] * 4, "others").assign(
        as_reno=[True, False, False, True], as_cubic=False
    )
    found = scores(pd.concat([known, others])).set_index("part")
    # by name: reno 2·1/(2+1), cubic 0, bbr 2·1/(1+2)
    assert found.score["home"] == pytest.approx(4 / 9)
    assert found.by_behaviour["home"] == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert (found.wrong["home"], found.wrong_by_behaviour["home"]) == (0.25, 0)
    assert (found.score["others"], found.by_behaviour["others"]) == (0.25, 0.5)
    assert (found.wrong["others"], found.wrong_by_behaviour["others"]) == (0.75, 0.5)
    without = scores(answers_with(said, truth)).iloc[0]
    assert without.by_behaviour == without.score and without.wrong_by_behaviour == without.wrong


def test_reliability_is_of_names_and_their_probabilities():
    table = pd.concat(
        [
            answers_with(["reno"] * 10, ["reno"] * 6 + ["bbr"] * 4, probability=0.65),
            answers_with(["bbr"] * 5, ["bbr"] * 5, probability=1.0),
            answers_with(["unknown"] * 5, ["bbr"] * 5, probability=0.2),
            answers_with(["bbr"] * 5, ["bbr"] * 5, part="others"),
        ]
    )
    right = (table.said == table.cca) & ~table.part.isin(NAMELESS)
    found = reliability(table.assign(right=right), "part").set_index("bin")
    others, home = found.loc[found.part == "others"], found.loc[found.part != "others"]
    assert list(home.index) == [6, 9] and home.windows.to_list() == [10, 5]
    assert home.right.to_list() == [0.6, 1.0] and home.probability.to_list() == pytest.approx([0.65, 1.0])
    assert list(others.index) == [9] and others.right.to_list() == [0.0] and others.windows.to_list() == [5]
    # 10 windows: 0.6 for 0.65; 10 windows: a half for 1 and 0.9
    assert calibration_error(found.reset_index()) == pytest.approx((0.05 + 0.45) / 2)
    assert len(reliability_figure(found.reset_index().assign(model="mine"), "model").data) == 2


def test_the_leaderboard_keeps_models_of_the_same_benchmark(tmp_path, capsys):
    good = pd.concat(
        [answers_with(["reno", "bbr"] * 4, ["reno", "bbr"] * 4, part) for part in ("home", "path", "aqm")]
    )
    bad = good.assign(said="reno")
    asked = good.drop(columns=["said", "probability"])
    about = {"runs": 2, "seed": 1, "on": "simulator", "per_flow": 2}
    write(tmp_path, asked, {"bad": bad}, about)
    _, board = write(tmp_path, asked, {"good": good}, about)
    assert board.model.to_list() == ["good", "bad"] and board.elsewhere.to_list() == pytest.approx(
        [1, 1 / 3], abs=1e-4
    )
    assert list(board.columns) == ["model", "taps", "window_ms", "elsewhere", "home", "path", "aqm"]
    _, board = write(tmp_path, asked, {"bad": good}, about)  # again, and better
    assert sorted(board.model) == ["bad", "good"] and (board.elsewhere == 1).all()
    shorter = {"bad": bad.assign(window_ms=100.0)}
    _, board = write(tmp_path, asked, shorter, about)  # in other windows
    assert list(zip(board.model, board.window_ms, strict=True)) == [
        ("bad", 1000),
        ("good", 1000),
        ("bad", 100),
    ]
    assert capsys.readouterr().err == ""
    _, board = write(tmp_path, asked, {"other": bad}, about | {"per_flow": 3})
    assert board.model.to_list() == ["other"] and "was of another benchmark" in capsys.readouterr().err
    listed = pd.read_csv(tmp_path / "questions.csv")
    assert list(listed.columns) == KEY and len(listed) == len(good)  # without the truth


def test_parts_are_in_the_order_of_the_tables():
    scored = pd.DataFrame({"model": "m", "taps": 2, "window_ms": 100.0, "part": PARTS[::-1], "score": 0.5})
    assert tuple(leaderboard(scored).columns[4:]) == PARTS


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch, capsys):
    import sys

    from cctoolkit import cli

    monkeypatch.setattr("cctoolkit.identify.benchmark.PARTS", ("path", "limited"))
    monkeypatch.setattr(
        "cctoolkit.identify.benchmark.build.__kwdefaults__", build.__kwdefaults__ | {"parts": ("path", "limited")}
    )  # fmt: skip

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["cct", "benchmark", "cca", "-o", str(tmp_path / "b"), *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    options = ("--runs", "1", "--window-ms", "1000", "--workers", "1")
    assert call("cca", *options) == 0
    board = pd.read_csv(tmp_path / "b" / "leaderboard.csv")
    assert board.model.to_list() == ["cca", "cca"] and {"elsewhere", "path", "limited"} <= set(board)
    theirs = pd.read_csv(tmp_path / "b" / "questions.csv").assign(said="reno")
    theirs.to_csv(tmp_path / "theirs.csv", index=False)
    assert call("--answers", f"always reno={tmp_path / 'theirs.csv'}", *options) == 0
    assert set(pd.read_csv(tmp_path / "b" / "leaderboard.csv").model) == {"cca", "always reno"}
    capsys.readouterr()
    theirs.assign(
        said=theirs.index.map(lambda i: ("RENO", "TCP NewReno", " Unknown", "unknown")[i % 4])
    ).to_csv(tmp_path / "spelt.csv", index=False)
    assert call("--answers", f"spelt={tmp_path / 'spelt.csv'}", *options) == 0
    said = pd.read_parquet(tmp_path / "b" / "answers.parquet").said
    assert set(said) == {"reno", "unknown"}
    assert call("--answers", f"cca={tmp_path / 'theirs.csv'}", *options) == 1
    assert "cca is the name of a model" in capsys.readouterr().err
    for folder in ("p", "q"):
        shutil.copytree(bundled_models()["cca"], tmp_path / folder / "model")
    assert call(str(tmp_path / "p" / "model"), str(tmp_path / "q" / "model"), *options) == 0
    board = pd.read_csv(tmp_path / "b" / "leaderboard.csv")
    assert {"cca", "always reno", "spelt", "p/model", "q/model"} == set(board.model)
    same = board[board.model.isin(["p/model", "q/model", "cca"])]
    assert len(same) == 3 * len(same[["taps", "window_ms", "elsewhere"]].drop_duplicates())
    capsys.readouterr()
    assert call("--answers", "theirs.csv", *options) == 1
    assert "is not NAME=FILE" in capsys.readouterr().err


def test_flows_of_other_segments_are_named_alike():
    named = {}
    for frame in (602, 1514, 9014):
        flows = [cct.Flow(cca, rtt_ms=40, packet_bytes=frame) for cca in ("reno", "cubic", "bbr")]
        link = cct.Bottleneck(rate_mbps=40 * frame / 1514, buffer_packets=100, quantum_bytes=frame)
        run = cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=12), record=True)
        table = cct.identify.classify_flows(run.ingress, run.egress).sort_values("flow_id")
        named[frame] = table.cca.to_list()
    assert named[602] == named[1514] == named[9014] and "bbr" in named[1514]
