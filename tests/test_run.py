"""A run: what it says of itself, and that files give back what went in."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tools import examples, mostly_slow

import cctoolkit as cct
from cctoolkit.errors import ParameterError, SchemaError
from cctoolkit.scenario.run import LABELS

TRACES = Path(__file__).parents[1] / "traces"
TABLES = ("flows", "labels", "queues", "flow_series", "queue_series", "cca_stats", "aqm_stats", "drops")


def scenario(**changes):
    return cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=50, aqm="codel"),
        flows=[
            cct.Flow("cubic", rtt_ms=20),
            cct.Flow("reno", rtt_ms=60, bytes=300_001, start_s=0.5, name="<b>short</b>"),
            cct.Flow("udp", rate_mbps=1),
        ],
        duration_s=3,
        name="three",
        **changes,
    )


@pytest.fixture(scope="module")
def run():
    return cct.simulate(scenario())


def same_capture(a, b):
    for name in a.columns:
        assert a.columns[name].dtype == b.columns[name].dtype
        np.testing.assert_array_equal(a.columns[name], b.columns[name], err_msg=name)
    assert (a.keys.src_text(), a.keys.dst_text()) == (b.keys.src_text(), b.keys.dst_text())
    pd.testing.assert_frame_equal(a.sacks, b.sacks)


def test_saved_run_comes_back_whole(run, tmp_path):
    assert run.save(tmp_path / "deep" / "run") == tmp_path / "deep" / "run"
    again = cct.load_run(tmp_path / "deep" / "run")
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(again, name), getattr(run, name))
    assert again.scenario == run.scenario
    assert (again.name, again.made_by, again.events) == ("three", run.made_by, run.events)
    assert run.events > 1.4 * run.queues.sent_packets[0]  # each leaves, and an ACK of one or two comes back
    for tap in ("ingress", "egress"):
        same_capture(getattr(run, tap), getattr(again, tap))
        assert getattr(again, tap).meta == getattr(run, tap).meta
    for field in ("mss", "window_scale", "sack_permitted", "saw_syn"):
        np.testing.assert_array_equal(getattr(again.ingress.keys, field), getattr(run.ingress.keys, field))
    assert again.summary() == run.summary()


def test_run_without_taps_is_saved_too(tmp_path):
    bare = cct.simulate(scenario(), record=False, sample_s=None)
    bare.save(tmp_path / "run")
    again = cct.load_run(tmp_path / "run")
    assert again.ingress is None and again.drops is None
    pd.testing.assert_frame_equal(again.flows, bare.flows)
    with pytest.raises(ParameterError, match="not recorded"):
        bare.to_pcap(tmp_path)


def test_saving_replaces_a_run_and_nothing_else(run, tmp_path):
    target = tmp_path / "run"
    run.save(target)
    for name in ("provenance.json", "egress.pcap.gz", "notes.txt"):  # the first two of a testbed's run
        (target / name).write_text("")
    (tmp_path / "link").symlink_to(target)
    run.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "link").unlink()
    assert {p.name for p in target.iterdir()} & {"provenance.json", "egress.pcap.gz", "notes.txt"} == {
        "notes.txt"
    }
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.tex").write_text("years of work")
    with pytest.raises(ParameterError, match="not a saved run"):
        run.save(other)
    assert (other / "chapter.tex").read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "thesis"]


def test_failed_save_leaves_the_old_one(run, tmp_path, monkeypatch):
    run.save(tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cctoolkit.scenario.run._save_capture", full)
    with pytest.raises(OSError, match="No space"):
        run.save(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_captures_come_back_through_pcap(run, tmp_path):
    written = run.to_pcap(tmp_path)
    assert [p.name for p in written] == [
        "three.ingress.pcap.gz", "three.egress.pcap.gz", "three.labels.csv", "three.scenario.toml",
    ]  # fmt: skip
    assert all(p.is_file() for p in written)
    again = cct.load_run(tmp_path / "three")
    assert again.scenario == run.scenario
    pd.testing.assert_frame_equal(again.labels, run.labels)
    assert again.name == cct.load_run(tmp_path).name == "three"
    for tap in ("ingress", "egress"):
        before, after = getattr(run, tap).columns, getattr(again, tap).columns
        for name in (
            "ts_ns",
            "flow_id",
            "direction",
            "seq",
            "ack",
            "payload_bytes",
            "tcp_flags",
            "ecn",
            "tsval",
        ):
            np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    known = ["flow_id", "cca", "base_rtt_ms", "start_s", "retransmits", "min_rtt_ms"]
    tcp = slice(0, 2)
    pd.testing.assert_frame_equal(
        again.flows[known][tcp], run.flows[known][tcp], check_dtype=False, rtol=1e-12
    )


def test_taps_agree_on_flow_numbers_though_each_file_has_its_own(run, tmp_path):
    """The egress capture begins with another flow, and with an ACK of the first: read alone it is another matter."""
    columns = run.egress.columns
    ack = np.flatnonzero((columns["direction"] == 1) & (columns["ts_ns"] > 10**9))[0]
    egress = run.egress.rows((columns["flow_id"] > 0) | (np.arange(len(run.egress)) >= ack))
    cct.Run(**{**vars(run), "egress": egress}).to_pcap(tmp_path)
    assert cct.read_capture(tmp_path / "three.egress.pcap.gz").keys.sport[0] != 10_000
    again = cct.load_run(tmp_path / "three")
    np.testing.assert_array_equal(again.egress.columns["flow_id"], egress.columns["flow_id"])
    np.testing.assert_array_equal(again.ingress.columns["flow_id"], run.ingress.columns["flow_id"])
    np.testing.assert_array_equal(again.egress.columns["direction"], egress.columns["direction"])
    assert again.egress.keys.sport.tolist() == [10_000, 10_001, 10_002]
    assert again.egress.keys.src_text() == run.egress.keys.src_text()


def test_a_port_used_again_is_another_flow(run, tmp_path):
    capture = run.ingress
    later = {name: column.copy() for name, column in capture.columns.items()}
    later["ts_ns"] += 5 * 10**9
    later["flow_id"] += 3
    columns = {name: np.concatenate([capture.columns[name], later[name]]) for name in later}
    keys = capture.keys.take(np.array([0, 1, 2] * 2))
    keys.flow_id[3:] += 3
    twice = cct.Capture(columns, keys, capture.meta)
    labels = pd.concat([run.labels, run.labels])
    cct.Run(**{**vars(run), "ingress": twice, "egress": twice, "labels": labels}).to_pcap(tmp_path)
    again = cct.load_run(tmp_path / "three")
    assert again.ingress.keys.flow_id.tolist() == [0, 1, 2, 4]  # the others were not closed, and so go on
    assert again.ingress.keys.sport.tolist() == [10_000, 10_001, 10_002, 10_001]
    second = columns["flow_id"] == 4
    np.testing.assert_array_equal(again.egress.columns["flow_id"] == 4, second)


def test_analyses_work_on_a_run(run):
    delays = cct.queue_delay(run.ingress, run.egress)
    assert delays.delay_ns.notna().sum() > 4000
    rtt = cct.rtt_samples(run.ingress)
    assert set(rtt.flow_id) == {0, 1}
    for figure in (
        cct.plot.queue_delay(run),
        cct.plot.throughput(run.ingress),
        cct.plot.window(run),
        cct.plot.queue(run),
    ):
        assert len(figure.data) >= 2


def test_goodput_adds_up_to_what_was_received(run):
    fig = cct.plot.goodput(run, bin_s=0.5)
    assert [t.name for t in fig.data] == ["0: cubic", "2: udp", "1: &lt;b&gt;short&lt;/b&gt;"]
    by_flow = run.flows.set_index("flow_id").received_bytes
    for flow, trace in zip((0, 2, 1), fig.data, strict=True):
        np.testing.assert_allclose(trace.x, np.arange(0.25, 3, 0.5))
        assert sum(trace.y) * 0.5 / 8e-6 == pytest.approx(
            by_flow[flow], rel=0.02
        )  # the last sample is at the end
    assert fig.data[2].y[0] == 0 < fig.data[2].y[1]  # it starts after half a second
    assert len(cct.plot.goodput(run, bin_s=1e-9, flows=[1]).data[0].x) == len(run.flow_series.ts_ns.unique())
    silent = cct.simulate(scenario(), sample_s=None)
    assert "no series" in cct.plot.goodput(silent).layout.annotations[0].text
    with pytest.raises(ParameterError, match="bin_s"):
        cct.plot.goodput(run, bin_s=0)


def test_queues_of_several_runs_in_one_figure(run):
    alone = cct.plot.queue(run)
    twice = cct.plot.queue({"one & only": run, "again": run})
    assert [t.name for t in alone.data] == [
        "queue 0",
        "queue 0",
    ]  # delay and packets; CoDel shows no probability
    assert [t.name for t in twice.data] == ["one &amp; only"] * 2 + ["again"] * 2
    for a, b in zip(alone.data, twice.data[2:], strict=True):
        np.testing.assert_array_equal(a.y, b.y)
    assert twice.data[0].line.color != twice.data[2].line.color
    dual = cct.simulate(
        scenario().replace({"bottleneck.aqm": "dualpi2", "flows.0.cca": "prague", "flows.0.ecn": "l4s"})
    )
    names = {t.name for t in cct.plot.queue({"L4S": dual}).data}
    assert {"L4S: queue 0", "L4S: queue 1", "L4S: queue 1: probability"} <= names
    assert {t.name for t in cct.plot.queue({"L4S": dual}, queues=[1]).data} == {"L4S", "L4S: probability"}
    silent = cct.simulate(scenario(), sample_s=None)
    assert "no series" in cct.plot.queue({"silent": silent}).layout.annotations[0].text
    with pytest.raises(ParameterError, match="expected a run, not int"):
        cct.plot.queue({"no run": 3})


@pytest.mark.parametrize("name", ["cubic", "three-ccas-ipv6", "fq-codel-ecn", "mixed"])
def test_bundled_traces_are_runs(name):
    trace = cct.load_run(TRACES / name)
    assert trace.name == name and trace.scenario is None
    tcp = trace.labels.protocol == 6
    assert trace.labels.flow_id.notna().all()
    ends = dict(zip(trace.ingress.keys.flow_id.tolist(), trace.ingress.keys.sport.tolist(), strict=True))
    assert [ends[f] for f in trace.labels.flow_id[tcp]] == trace.labels.sport[tcp].to_list()
    # what the kernel acknowledged is what passed the tap
    table = trace.ingress.flows.set_index("flow_id")
    for row in trace.labels[tcp].itertuples():
        side = "fwd" if row.data_from == "src" else "rev"
        sent = table.loc[row.flow_id, f"payload_{side}"]
        assert row.bytes_acked <= sent + 2
    assert (trace.flows.start_s >= 0).all() and "<table>" in trace._repr_html_()
    assert cct.queue_delay(trace.ingress, trace.egress).delay_ns.notna().sum() > 1000


def test_summary_by_hand(run):
    s = run.summary()
    egress = run.egress.packets[run.egress.packets.direction == 0]
    assert s["utilisation"] == pytest.approx(egress.wire_bytes.sum() * 8 / 60e6, rel=0.001)
    delays = cct.queue_delay(run.ingress, run.egress).query("direction == 0 and payload_bytes > 0")
    sent_ns = delays.wire_bytes * 400
    assert s["mean_delay_ms"] == pytest.approx((delays.delay_ns - sent_ns).mean() / 1e6, rel=0.01)
    assert s["drop_share"] == pytest.approx(
        run.ingress.columns["dropped"].sum() / run.queues.arrived_packets[0]
    )
    assert s["completed"] == 1
    assert s["mean_completion_s"] == pytest.approx(run.flows.completion_s[1])
    a, b = run.flows.goodput_mbps[:2]
    assert s["jain_index"] == pytest.approx((a + b) ** 2 / (2 * (a * a + b * b)))


def test_utilisation_follows_the_rate_schedule():
    run = cct.simulate(
        scenario().replace({"bottleneck.rate_schedule": ((1, 5), (2, 10), (7, 1000))}), record=False
    )
    assert run.summary()["utilisation"] == pytest.approx(run.queues.sent_bytes[0] * 8 / 35e6)


def test_the_last_frame_does_not_exceed_the_link() -> None:
    """It takes 0.12 s of this link, most of that after the end."""
    link = cct.Bottleneck(rate_mbps=0.1, buffer_packets=50)
    run = cct.simulate(cct.Scenario(bottleneck=link, flows=(cct.Flow("udp", rate_mbps=2),), duration_s=1))
    assert run.queues.sent_bytes[0] * 8 > 1e5
    assert run.summary()["utilisation"] == 1
    run.queues.loc[0, "sent_bytes"] += 2 * 1514  # no link can do this: it must be seen
    assert run.summary()["utilisation"] > 1


def test_html_summary_is_harmless_and_short(run):
    text = run._repr_html_()
    assert "&lt;b&gt;short" in text and "<b>short" not in text
    for piece in ("three", "20 Mbit/s", "codel; 50 packets", "utilisation"):
        assert piece in text
    many = cct.simulate(scenario().replace({"flows.0.count": 100, "duration_s": 0.5}), record=False)
    assert many._repr_html_().count("<tr") < 60


def test_what_is_no_run_is_refused(run, tmp_path):
    with pytest.raises(ParameterError, match="neither a saved run nor"):
        cct.load_run(tmp_path / "nothing")
    with pytest.raises(ParameterError, match=r"several runs \(bbr, "):
        cct.load_run(TRACES)
    (tmp_path / "half.ingress.pcap").write_bytes(b"")
    with pytest.raises(ParameterError, match=r"no half\.egress"):
        cct.load_run(tmp_path / "half")
    run.save(tmp_path / "run")
    info = tmp_path / "run" / "run.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"format": 99}))
    with pytest.raises(SchemaError, match="format 99"):
        cct.load_run(tmp_path / "run")
    info.write_text("{")
    with pytest.raises(SchemaError, match=r"run\.json"):
        cct.load_run(tmp_path / "run")


def test_labels_without_a_column_are_refused(run, tmp_path):
    run.to_pcap(tmp_path)
    path = tmp_path / "three.labels.csv"
    path.write_text(path.read_text().replace("base_rtt_ms", "rtt"))
    with pytest.raises(SchemaError, match="'base_rtt_ms' is missing"):
        cct.load_run(tmp_path / "three")
    path.unlink()
    assert cct.load_run(tmp_path / "three").labels.cca.to_list() == ["", "", ""]
    assert list(cct.load_run(TRACES / "reno").labels.columns) == ["flow_id", *LABELS]


# ---- damaged runs ----------------------------------------------------------------------------------------------------

#: What a column may hold instead, for a number of rows.
INSTEAD = {
    "text": lambda n: pa.array(["x"] * n),
    "long text": lambda n: pa.array(["x" * 131_073] * n),
    "nothing": pa.nulls,
    "-7": lambda n: pa.array([-7] * n),
    "2**63 - 1": lambda n: pa.array([2**63 - 1] * n),
    "2**64 - 1": lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    "nan": lambda n: pa.array([math.nan] * n),
    "inf": lambda n: pa.array([math.inf] * n),
    "0.5": lambda n: pa.array([0.5] * n),
    "truth": lambda n: pa.array([True] * n),
    "lists": lambda n: pa.array([[1]] * n),
    "structs": lambda n: pa.array([{"a": 1}] * n),
    "dates": lambda n: pa.array([datetime.datetime(2020, 1, 1)] * n),
    "decimals": lambda n: pa.array([decimal.Decimal("1.5")] * n),
}


def damaged(table, how, column):
    """The table with one column, or all, in another state."""
    if how == "no rows":
        return table.slice(0, 0)
    if how == "no columns":
        return pa.table({})
    if how == "twice":
        return pa.table(
            [table.column(column), *table.columns], names=[table.column_names[column], *table.column_names]
        )
    name = table.column_names[column]
    if how == "missing":
        return table.drop_columns([name])
    return table.set_column(column, name, INSTEAD[how](len(table)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    short = scenario().replace({"duration_s": 0.2})
    return cct.simulate(short).save(path)


def loads_or_says_why(path):
    """A run that can be used, or one line that names the file."""
    try:
        run = cct.load_run(path)
    except (SchemaError, ParameterError) as err:
        assert str(path) in str(err) and "\n" not in str(err) and len(str(err)) < 500
        return False
    with np.errstate(all="ignore"):
        run.summary()
        run._repr_html_()
        run.save(path.parent / "again")
        assert cct.load_run(path.parent / "again").summary().keys() == run.summary().keys()
    return True


PARQUET = ["flows", "queues", "flow_series", "queue_series", "cca_stats", "aqm_stats", "drops", "ingress/packets",
           "ingress/keys", "ingress/sacks"]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_with_a_damaged_table_loads_or_says_why(saved, tmp_path, data):
    name = data.draw(st.sampled_from(PARQUET))
    source = saved / f"{name}.parquet"
    table = pq.read_table(source)
    how = data.draw(st.sampled_from(["no rows", "no columns", "twice", "missing", *INSTEAD]))
    column = data.draw(st.integers(0, table.num_columns - 1))
    other = damaged(table, how, column).replace_schema_metadata(table.schema.metadata)
    path = tmp_path / "run"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(saved, path)
    pq.write_table(other, path / f"{name}.parquet")
    loads_or_says_why(path)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_run_with_a_damaged_file_loads_or_says_why(saved, tmp_path, data):
    files = sorted(str(p.relative_to(saved)) for p in saved.rglob("*") if p.is_file())
    name = data.draw(st.sampled_from(files))
    content = bytearray((saved / name).read_bytes())
    how = data.draw(st.sampled_from(["missing", "empty", "cut", "other bytes"]))
    path = tmp_path / "run"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(saved, path)
    if how == "missing":
        (path / name).unlink()
    elif how == "other bytes":
        for at, byte in data.draw(
            st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)
        ):
            content[at] = byte
        (path / name).write_bytes(content)
    else:
        (path / name).write_bytes(content[: data.draw(st.integers(0, len(content))) if how == "cut" else 0])
    loads_or_says_why(path)


FACTS = st.sampled_from(["name", "made_by", "start_ns", "events", "format"])


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(fact=FACTS, value=st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([{}]))
def test_facts_of_a_run_are_checked(saved, tmp_path, fact, value):
    path = tmp_path / "run"
    if not path.exists():
        shutil.copytree(saved, path)
    about = json.loads((saved / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(about | {fact: value}))
    loads_or_says_why(path)


@pytest.mark.slow
@pytest.mark.parametrize("column", LABELS)
@pytest.mark.parametrize(
    "cell",
    mostly_slow(["", "x", "-1", "65536", "1e400", "0.5", "9" * 400, "x" * 131_073, '"'], ["x"]),
    ids=lambda cell: cell[:5],
)
def test_any_cell_of_the_labels_is_a_value_or_refused(saved, tmp_path, column, cell):
    path = tmp_path / "run"
    shutil.copytree(saved, path)
    labels = pd.read_csv(path / "labels.csv", dtype=str, keep_default_na=False)
    labels[column] = cell
    labels.to_csv(path / "labels.csv", index=False, quoting=csv.QUOTE_NONE, escapechar="\\")
    loads_or_says_why(path)
