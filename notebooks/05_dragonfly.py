# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which congestion control is that?
#
# **Takes** an hour and a half with the exercises; all cells together compute for a few minutes (less than one with
# `FAST=1`).
#
# **The question.** A router sees a flow for a tenth of a second, from somewhere in its middle. Is its sender Reno,
# CUBIC or BBR? Nobody tells the router, and acknowledgements may take another way back.
#
# Carmel and Keslassy ("Dragonfly: In-Flight CCA Identification") answer with a small convolutional network, told of
# the flow's *bytes in the queue* (CBIQ) and its throughput in slots of 1 ms. **Expected from the paper:** CBIQ tells
# more than any other input (Figure 2); with both, F1 is 0.97 for windows of a minute in Mininet (Figure 6), 0.58 for
# 100 ms in the cloud (Figure 11), and everywhere above DeePCCI, which looks at throughput alone. Here all of that is
# built up and trained, on a small scale; `cct experiment dragonfly --full` is the large one.
#
# **You need** to have seen `00_start`, to know the three congestion controls (`lessons/06_reading_a_real_capture`),
# and roughly what training a network means. Training needs the extra `train` (torch).

# %% tags=["parameters"]
import os

FAST = os.environ.get("FAST", "") not in ("", "0")  # fewer runs, shorter training: to look, not to cite
TRACE = (
    os.environ.get("TRACE") or None
)  # a capture of your own for section 9, instead of MAWI or synthetic traffic

# %% [markdown]
# ## 1. CBIQ by hand: the paper's Table I
#
# Seventeen packets of one flow, before and behind the queue. How many bytes of the flow are in the queue at the end
# of each millisecond? Counting needs the flow's beginning, which nobody saw. The paper's trick: the sequence number of
# the *next* packet to arrive less that of the next to leave, $CBIQ(t) = InSeq(t+1) - OutSeq(t+1)$.

# %%
import cctoolkit as cct
import numpy as np
import pandas as pd

said = cct.paper_numbers("dragonfly", "Table I(a)")
said["paper"] = said.paper.astype(int)
printed = said.pivot_table(index="setting", columns="quantity", values="paper", aggfunc="first")
printed["tap"] = printed.index.str.split(",").str[0]


def tap(packets):
    """Packets of one flow as `compute_slots` wants them: arrays by column."""
    packets = packets.sort_values(["time_ms", "sequence"])
    columns = {name: np.zeros(len(packets), dtype) for name, dtype in cct.schema.PACKETS.items()}
    columns["tcp_flags"][:] = 16  # ACK
    columns["ts_ns"][:] = packets.time_ms * 1_000_000
    columns["seq"][:] = packets.sequence
    columns["payload_bytes"][:] = packets.length_bytes
    return columns


slots = cct.compute_slots(tap(printed[printed.tap == "ingress"]), tap(printed[printed.tap == "egress"]))
slots["slot"] += 101
in_print = cct.paper_numbers("dragonfly", "Table I(b)")
in_print = in_print[in_print.quantity.eq("cbiq_bytes") & in_print.setting.str.endswith("without sampling")]
slots[["slot", "in_seq", "out_seq", "cbiq_bytes", "throughput_bytes"]].assign(
    paper_cbiq=[*in_print.paper.astype(int), pd.NA]
)

# %% [markdown]
# Slot 104 had no arrival: the next one, in slot 105, stands for it. In the last slot nobody knows yet.
#
# ## 2. What the network gets to see
#
# A real capture, with Reno, CUBIC and BBR through one queue. Move the window, and make it longer. A window is divided
# by its own maximum: what is left is shape. From how many milliseconds on would *you* tell the three apart?

# %%
from cctoolkit.plot.style import COLOURS, figure
from ipywidgets import FloatLogSlider, FloatSlider, interact
from plotly.subplots import make_subplots

trace = cct.load_run("../traces/three-ccas-ipv6")
seen = cct.identify.record(trace)
seen.flows[["flow_id", "cca", "bytes_acked", "retransmits"]]


# %%
@interact(
    begin_s=FloatSlider(value=7, min=4, max=11, step=0.05, description="from, s"),
    window_ms=FloatLogSlider(value=1000, base=10, min=1, max=3.5, step=0.1, description="window, ms"),
)
def window(begin_s: float = 7.0, window_ms: float = 1000.0):
    fig = make_subplots(3, 1, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=list(seen.flows.cca))
    first = int(begin_s * 1000)
    for row, flow_id in enumerate(seen.flows.flow_id, 1):
        flow = seen.slots[seen.slots.flow_id == flow_id]
        part = flow[flow.slot.between(first, first + round(window_ms) - 1)]
        for column, name, colour in (
            ("throughput_bytes", "throughput", COLOURS[0]),
            ("cbiq_bytes", "CBIQ", COLOURS[1]),
        ):
            values = part[column].astype(float)
            fig.add_scatter(
                x=part.slot, y=values / max(values.max(), 1), name=name, mode="lines", legendgroup=name,
                showlegend=row == 1, line={"color": colour, "width": 1 + (name == "CBIQ")}, row=row, col=1,
            )  # fmt: skip
    fig.update_layout(figure(height=560).layout)
    fig.update_layout(title_text=f"{window_ms:.0f} ms, each divided by its maximum")
    return fig.update_xaxes(title_text="slot of 1 ms", row=3, col=1)


# %% [markdown]
# Throughput is a comb: a packet, none, none, a burst. CBIQ is a line, because a queue remembers: it is the sum of what
# came and has not left. The paper calls the one volatile and gives no measure. Here is one, the mean step from slot
# to slot over the mean:

# %%
from cctoolkit.experiments import dragonfly

dragonfly.volatility(seen).round(3)

# %% [markdown]
# ## 3. Predict
#
# Next a Dragonfly is trained to tell Reno, CUBIC and BBR apart. Guessing gives a third. **Write your numbers in place
# of `None` before you go on**: the F1 on runs it has not seen, with windows of 100 ms and of 1 s; and the F1 with 1 s
# when other flows *of the same runs* were in the training.

# %%
prediction = {
    "F1 at 100 ms": None,
    "F1 at 1 s": None,
    "F1 at 1 s, flows of the same runs in training": None,
}

# %% [markdown]
# ## 4. Data to learn from
#
# The settings of the paper's section IV-A: three flows, one of each congestion control, and up to 75 more, through 100
# Mbit/s and a buffer of 500 packets. On the simulator a run takes less than a second, so labels cost nothing. (On real
# Linux: `cct dataset build paper --on uml`.)

# %%
import tempfile
from pathlib import Path

import torch
from cctoolkit import identify

torch.set_num_threads(1)  # networks as small as these gain nothing from more

scratch = Path(tempfile.mkdtemp(prefix="dragonfly-"))
RUNS, SECONDS, PER_FLOW = (10, 6, 4) if FAST else (60, 20, 6)
dataset = identify.build_dataset(
    dragonfly.jobs(RUNS, SECONDS, background=(0, 15) if FAST else (0, 15, 30, 60, 75)),
    scratch / "paper",
    background=0,
    workers=1 if FAST else None,
    progress=False,
)
dataset

# %% [markdown]
# Windows are cut anywhere in flight. `split` keeps each run on one side: nothing of a test run was ever seen.

# %%
windows = identify.cut_windows(dataset, window_ms=1000, inputs="cbiq+throughput", per_flow=PER_FLOW)
training, testing = windows.split(0.3, seed=1)
print(f"{len(training)} windows to learn from, {len(testing)} to be tested on; each {windows.X.shape[1:]}")

# %% [markdown]
# ## 5. Train a Dragonfly
#
# Five modules of convolution, batch normalisation, ReLU and max-pooling with 50 filters each, then a convolution to as
# many outputs as there are congestion controls, and the mean over time. With scikit-learn's interface. The paper
# learns in steps of 1e-4 from 1500 runs and for 100 epochs; with less data the steps have to be larger.

# %%
EPOCHS, RATE = (10, 3e-3) if FAST else (30, 1e-3)
one = identify.DragonflyClassifier(epochs=EPOCHS, learning_rate=RATE).fit(training)
print(f"accuracy: {one.score(training):.2f} on what it learnt from, {one.score(testing):.2f} on other runs")

# %%
from cctoolkit.identify.evaluation import confusion, evaluate

confusion(testing.y, one.predict(testing))

# %%
evaluate(one.predict, testing).round(2)

# %% [markdown]
# Rows are what it is, columns what was said. F1 is the harmonic mean of precision and recall, here the mean over the
# classes; the interval is what other test runs would have given. Which two are mixed up, and is that a surprise?
# CUBIC below its crossover with Reno grows as fast as Reno (RFC 9438's Reno-friendly region), but not step by step;
# and of how a window grows a few round trips are the least that has to be seen.
#
# ## 6. F1 against the window's length
#
# Dragonfly with both inputs, with CBIQ alone, DeePCCI, and a classifier of this package that sees a window at several
# scales and knows one tap or two (`help(identify.CCAClassifier)`). Crosses are what the paper prints, of other networks
# and far more data.

# %%
recipe = dragonfly.Training(epochs=EPOCHS, seeds=2 if FAST else 3, per_flow=PER_FLOW, learning_rate=RATE)
LENGTHS = [100, 1000] if FAST else [100, 1000, 5000]
NAMES = ["Dragonfly", "DeePCCI", "ours"] if FAST else list(dragonfly.CLASSIFIERS)
scores, by_background = dragonfly.f1_by_window(dataset, recipe, LENGTHS, NAMES, by=["background"])

from cctoolkit.experiments.dragonfly import figures as draw

draw.windows_figure(scores)

# %% [markdown]
# Bars are Student's intervals over splits and trainings: with few runs and seeds they are wide, and a classifier that
# is ahead by less than its bar is not ahead. By congestion control, as Figure 10:

# %%
draw.ccas_figure(scores)

# %% [markdown]
# And what the paper's Figure 8 asks, background flows:

# %%
longest = by_background[by_background.window_ms == LENGTHS[-1]]
draw.settings_figure(longest, "background", LENGTHS[-1])

# %% [markdown]
# ## 7. Leaks
#
# The published code splits *by flow*: the Reno flow of a run may be learnt from, and its CUBIC flow tested on. Both
# went through the same queue at the same time, so each carries the run's RTT, its background, its bursts. Split
# three ways, all else equal:

# %%
leaks = dragonfly.by_split(dataset, recipe, 1000, ["Dragonfly"] if FAST else ["Dragonfly", "ours"])
draw.splits_figure(leaks)

# %%
from cctoolkit.experiments.lessons import compare_prediction

mine = scores[scores.classifier == "Dragonfly"].set_index("window_ms").f1
flow = leaks[leaks.classifier == "Dragonfly"].set_index("split").f1
compare_prediction(
    prediction,
    {
        "F1 at 100 ms": mine[100],
        "F1 at 1 s": mine[1000],
        "F1 at 1 s, flows of the same runs in training": flow["by flow"],
    },
)

# %%
gained = {split: flow[split] - flow["by run"] for split in ("by flow", "by window")}
print("; ".join(f"{split} instead of by run: F1 {gain:+.2f}" for split, gain in gained.items()))

# %% [markdown]
# Is that more than the bars? By flow is not always higher: in a run each congestion control is there once, so the
# other flows of a run have *other* labels, and a network that remembers the run learns to say one of those. By window,
# when windows of one flow are on both sides, it can only help. Whichever it is here: a score by flow or by window is
# about runs that were seen, and the question was about flows that were not. (Settings never trained on are harder
# still: exercise 2.)
#
# ## 8. A trained model on a real capture
#
# What comes with the package was trained on real Linux, and needs no torch. The answer is a name with a probability,
# or "unknown".

# %%
there = identify.bundled_models()
if "cca" in there:
    model = identify.load("cca")
    slots = cct.compute_slots(trace.ingress, trace.egress)
    answer = model.predict(slots).merge(
        seen.flows[["flow_id", "cca"]].rename(columns={"cca": "is"}), on="flow_id"
    )
    display(answer)
else:
    print(
        "No model is bundled with this version: `cct train` makes one from a dataset, `identify.load(FOLDER)` opens it."
    )

# %% [markdown]
# How good the bundled models are, on sets of real-kernel runs that they never saw:

# %%
results = Path("../data/results/models/dragonfly.csv")
if results.is_file():
    found = pd.read_csv(results)
    found = found[found["by"].isna()] if "by" in found else found  # without the rows by setting
    wanted = ["model", "set", "window_ms", "background", "windows", "runs", "f1", "low", "high"]
    display(found[[name for name in wanted if name in found]].round(3))
else:
    print(f"{results.name} is not there: these results belong to a checkout of the package.")

# %% [markdown]
# ## 9. On MAWI: one tap
#
# A backbone trace has one tap: no CBIQ. What is left is throughput, and bytes in flight where both directions were
# captured: the highest sequence number sent less the highest acknowledged. Does it do? The same simulated runs, seen
# by one tap:

# %%
one_tap = identify.cut_windows(dataset, 1000, "bytes_in_flight+throughput", per_flow=PER_FLOW)
known, unseen = one_tap.split(0.3, seed=1)
single = identify.DragonflyClassifier(epochs=EPOCHS, learning_rate=RATE).fit(known)
pd.concat(
    {
        "two taps: CBIQ and throughput": evaluate(one.predict, testing),
        "one tap: bytes in flight and throughput": evaluate(single.predict, unseen),
    }
).droplevel(1)[["windows", "runs", "f1", "low", "high"]].round(2)

# %% [markdown]
# Now a trace: yours, a day of MAWI if one was fetched (`cct fetch mawi 2024-02-15`), else synthetic traffic.

# %%
path, what = (Path(TRACE), f"your trace {TRACE}") if TRACE else cct.find_trace()
print(what)
backbone = next(cct.iter_capture(path, packets=200_000 if FAST else 2_000_000))
flows = backbone.flows
payload = flows[["payload_fwd", "payload_rev"]].max(axis=1)
large = flows[(flows.protocol == 6) & (payload > (200_000 if FAST else 1_000_000))]
print(f"{len(large)} TCP flows with so much data in one direction, of {len(flows):,} flows")

# %%
from cctoolkit.identify.windows import slot_arrays

rows = []
if len(large):
    slots = cct.compute_slots(backbone, flow_ids=large.flow_id)
    for flow_id, _, values in slot_arrays(slots, ("bytes_in_flight", "in_bytes")):
        row = {
            "flow_id": flow_id,
            "ms": len(values),
            "said": "no second with acknowledgements",
            "probability": np.nan,
        }
        pieces = values[: len(values) // 1000 * 1000].reshape(-1, 1000, 2)
        pieces = pieces[~np.isnan(pieces).any(axis=(1, 2)) & (pieces[:, :, 1].sum(axis=1) > 0)]
        if len(pieces):
            p = np.exp(np.log(single.predict_proba(pieces).clip(1e-9)).mean(axis=0))
            row |= {"said": single.classes_[p.argmax()], "probability": (p / p.sum()).max()}
        rows.append(row)
named = pd.DataFrame(rows, columns=["flow_id", "ms", "said", "probability"])
named.said.value_counts()

# %% [markdown]
# Do not believe it. The network knows one link of 100 Mbit/s and three congestion controls, and has to name one of
# them whatever comes: another rate, an application that pauses, QUIC's cousins. Nor does anybody know the truth: no
# label comes with MAWI (and synthetic traffic has no congestion control at all). What makes an answer worth something
# is data as varied as the traffic, and a classifier that may say "unknown": `cct dataset build hard --on uml`, and
# `cct classify TRACE` with the bundled model, which says which inputs it had.
#
# ## 10. On your own pair of captures
#
# Ten lines: a capture before the queue, one behind it, a table of who ran what (`src`, `dst`, `sport`, `dport`, `cca`;
# some of these are enough), and a classifier learns from them. Put your files in place of these three:

# %%
from cctoolkit.identify.readers import label_flows

before = cct.read_capture("../traces/three-ccas-ipv6.ingress.pcap.gz")
behind = cct.read_capture("../traces/three-ccas-ipv6.egress.pcap.gz")
labels = label_flows(before, "../traces/three-ccas-ipv6.labels.csv").dropna(subset="cca")
own = identify.record(before, behind, labels, name="my capture")
mine = identify.cut_windows([*dataset, own], 1000, "cbiq+throughput", per_flow=PER_FLOW)
again = identify.DragonflyClassifier(epochs=EPOCHS, learning_rate=RATE).fit(mine)
my_windows = identify.cut_windows([own], 1000, "cbiq+throughput", per_flow=20, seed=7)
print(
    f"before: {one.score(my_windows):.2f}, after: {again.score(my_windows):.2f} right on the capture itself"
)

# %% [markdown]
# The second number says next to nothing: it is tested on the flows it learnt from, section 7's worst case. The first is
# an honest one: from a simulator to a real capture of another rate. For a number that you can defend you need several
# captures, and `cut_windows([first, second, third, …]).split()`. On the command line: `cct dataset add`, `cct train`,
# `cct evaluate`.
#
# ## Exercises
#
# **1.** Which input tells most? Train Dragonfly's network on one input alone, as the paper's Figure 2
# (`identify.INPUTS` has the names, the paper's largest time gaps among them). Does CBIQ win on these data?

# %% tags=["solution"]
alone = dragonfly.f1_by_input(
    dataset, dragonfly.Training(epochs=5 if FAST else 30, seeds=2, per_flow=PER_FLOW, learning_rate=RATE)
)
draw.inputs_figure(alone)

# %% [markdown] tags=["solution"]
# Look at the bars before you crown one. All inputs had the same windows. Where packets have one size, `in_bytes` and
# `in_packets` are the same curve but for a factor, which division by the maximum takes away, so they come out the same.
# `throughput_bytes` says nearly the same in another way: how far apart it comes out is what luck does.

# %% [markdown]
# **2.** A router meets settings that nobody trained on. Leave each number of background flows out of training once.
# (`dragonfly.left_out`) What is the price?

# %% tags=["solution"]
dragonfly.left_out(dataset, recipe, 100, "background", "Dragonfly").round(2)

# %% [markdown] tags=["solution"]
# `f1` is without, `f1_trained` with these settings in the training; the test windows are the same. With a new queue
# discipline or another rate it is dearer than with a few more flows: `cct dataset build hard --part test` has those.

# %% [markdown]
# **3.** A collector that cannot keep up looks at every tenth packet (section III-D of the paper). How does CBIQ of
# section 2's flows look then? Compare `compute_slots(…, sampling=0.1, fill="interpolate")` with all packets, and reckon
# the error of CBIQ.

# %% tags=["solution"]
whole = cct.compute_slots(trace.ingress, trace.egress)
sample = cct.compute_slots(trace.ingress, trace.egress, sampling=0.1, fill="interpolate", seed=1)
both = whole.merge(sample, on=["flow_id", "slot"], suffixes=("", "_sampled"))
both["off"] = (both.cbiq_bytes_sampled - both.cbiq_bytes).abs().astype(float)
both.groupby("flow_id").agg(mean_cbiq=("cbiq_bytes", "mean"), mean_error=("off", "mean")).join(
    seen.flows.set_index("flow_id").cca
).round(0)

# %% [markdown] tags=["solution"]
# Between two sampled packets the line is straight, so sampling smooths: what is shorter than the gap is lost, a
# sawtooth of seconds stays. That is why long windows hardly suffer (the paper: 0.1 of F1 at 99 %).

# %% [markdown]
# ## Questions
#
# 1. Two congestion controls fill a queue in the same way. Can any classifier at the queue tell them apart?
# 2. A provider punishes flows that are "BBR with probability 0.9". What does a sender do next?
# 3. Why is a split by run still too kind, if all runs go through one topology?

# %% [markdown] tags=["solution"]
# 1. No: it sees what they do, not what they are. Linux's DCTCP without marks does what Reno does; group such
#    classes, or say that the label cannot be known.
# 2. It paces a little differently. A classifier trained on yesterday's senders is no fence; and of ten flows so named,
#    one was something else (if the probability is calibrated, which has to be measured).
# 3. The settings are drawn from one distribution: one rate, one buffer, a narrow range of RTTs. What is tested is
#    whether the network has understood *this* link. Test on other links.
