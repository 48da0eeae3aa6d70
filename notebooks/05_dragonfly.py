# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which congestion control is this?
#
# **Takes** an hour and a half with the exercises; all cells together compute for a few minutes (less than one with
# `FAST=1`).
#
# **The question.** A router sees a flow for a tenth of a second, from somewhere in its middle. Is its sender Reno,
# CUBIC or BBR? The router has no labels, and acknowledgements may take another path.
#
# Carmel and Keslassy ("Dragonfly: In-Flight CCA Identification") answer with a small convolutional network. Its inputs
# are the flow's *bytes in the queue* (CBIQ) and its throughput in slots of 1 ms. **Expected from the paper:** CBIQ is
# more informative than any other input (Figure 2). With both inputs, F1 is 0.97 for windows of a minute in Mininet
# (Figure 6) and 0.58 for 100 ms in the cloud (Figure 11), and always better than DeePCCI, which looks at throughput
# alone. This notebook builds and trains all of this on a small scale; `cct experiment dragonfly --full` does it at full
# size.
#
# **You need** to have seen `00_start`, to know the three congestion controls (`lessons/06_reading_a_real_capture`), and
# to know roughly what training a network means. Training needs the extra `train` (torch).

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # fewer and shorter runs: for a quick look, not for results
TRACE = (
    cct.lessons.trace()
)  # a capture of your own for section 9, if the environment variable TRACE names one

# %% [markdown]
# ## 1. CBIQ by hand: the paper's Table I
#
# Table I has seventeen packets of one flow, before and after the queue. How many bytes of the flow are in the queue at
# the end of each millisecond? Counting would require the start of the flow, which was not captured. The paper's trick
# is to subtract sequence numbers: that of the *next* packet to arrive minus that of the next to leave,
# $CBIQ(t) = InSeq(t+1) - OutSeq(t+1)$.

# %%
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
# Slot 104 had no arrival, so the next one, in slot 105, is used instead. The last slot's value is not known yet.
#
# ## 2. The network's input
#
# This is a real capture of Reno, CUBIC and BBR in one queue. Move the window, and make it longer. Each window is
# divided by its maximum, so only the shape is left. From how many milliseconds on can *you* tell the three apart?

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
# Throughput is a comb: a packet, none, none, a burst. CBIQ is a smooth line because a queue has memory: it is the sum
# of the bytes that have arrived and not yet left. The paper calls throughput volatile, but gives no measure. Here is
# one, the mean step from slot to slot divided by the mean:

# %%
from cctoolkit.experiments import dragonfly

dragonfly.volatility(seen).round(3)

# %% [markdown]
# ## 3. Predict
#
# Next you train a Dragonfly network to tell Reno, CUBIC and BBR apart. Guessing is right for a third. **Write your
# numbers in place of `None` before you go on**: the F1 on runs it has not seen, with windows of 100 ms and of 1 s; and
# the F1 with 1 s if other flows *of the same runs* were in the training set.

# %%
prediction = {
    "F1 at 100 ms": None,
    "F1 at 1 s": None,
    "F1 at 1 s, flows of the same runs in training": None,
}

# %% [markdown]
# ## 4. Training data
#
# The settings are those of the paper's section IV-A: three flows, one of each congestion control, and up to 75 more,
# share 100 Mbit/s and a buffer of 500 packets. In the simulator, a run takes less than a second, so labelled data are
# cheap. (On real Linux: `cct dataset build paper --on uml`.)

# %%
import tempfile
from pathlib import Path

import torch
from cctoolkit import identify

torch.set_num_threads(1)  # such small networks gain nothing from more threads

scratch = Path(tempfile.mkdtemp(prefix="dragonfly-"))
RUNS, SECONDS, PER_FLOW = (10, 6, 3) if FAST else (60, 20, 6)
dataset = identify.build_dataset(
    dragonfly.jobs(RUNS, SECONDS, background=(0, 15) if FAST else (0, 15, 30, 60, 75)),
    scratch / "paper",
    background=0,
    workers=1 if FAST else None,
    progress=False,
)
dataset

# %% [markdown]
# Windows start anywhere within a flow. `split` keeps each run on one side, so training uses nothing from a test run.

# %%
windows = identify.cut_windows(dataset, window_ms=1000, inputs="cbiq+throughput", per_flow=PER_FLOW)
training, testing = windows.split(0.3, seed=1)
print(f"{len(training)} windows for training, {len(testing)} for testing; shape {windows.X.shape[1:]}")

# %% [markdown]
# ## 5. Train a Dragonfly
#
# The network has five modules of convolution, batch normalisation, ReLU and max-pooling with 50 filters each, then a
# convolution with one output per congestion control, and the mean over time. The interface is scikit-learn's. The paper
# trains on 1500 runs for 100 epochs at a learning rate of 1e-4; with less data, the rate must be higher.

# %%
EPOCHS, RATE = 30, 1e-3
one = identify.DragonflyClassifier(epochs=EPOCHS, learning_rate=RATE).fit(training)
print(f"accuracy: {one.score(training):.2f} on the training runs, {one.score(testing):.2f} on other runs")

# %%
from cctoolkit.identify.evaluation import confusion, evaluate

confusion(testing.y, one.predict(testing))

# %%
evaluate(one.predict, testing).round(2)

# %% [markdown]
# In the first table, rows are true labels and columns are predictions. F1 is the harmonic mean of precision and recall,
# averaged over the classes; the interval shows how much it would vary with other test runs. Which two are confused, and
# is that a surprise? Below its crossover with Reno (RFC 9438's Reno-friendly region), CUBIC's average window equals
# Reno's: it grows about half as fast and keeps 70 % at a loss. And it takes at least a few round trips to see how a
# window grows.
#
# ## 6. F1 against the window's length
#
# The next cell compares Dragonfly with both inputs, Dragonfly with CBIQ alone, DeePCCI, and a classifier of this
# package that sees a window at several scales and works with one tap or two (`help(identify.CCAClassifier)`). Crosses
# are the paper's numbers, from other links and far more data. The paper's DeePCCI is its authors' program, whose
# answers come a second late; `cct experiment dragonfly --only baseline` compares both.

# %%
recipe = dragonfly.Training(epochs=EPOCHS, seeds=1 if FAST else 3, per_flow=PER_FLOW, learning_rate=RATE)
LENGTHS = [100, 1000] if FAST else [100, 1000, 5000]
NAMES = ["Dragonfly", "DeePCCI", "ours"] if FAST else list(dragonfly.CLASSIFIERS)
scores, by_background = dragonfly.f1_by_window(dataset, recipe, LENGTHS, NAMES, by=["background"])

from cctoolkit.experiments.dragonfly import figures as draw

draw.windows_figure(scores)

# %% [markdown]
# Error bars are 95 % intervals by a bootstrap over trainings and test runs. With few runs they are wide, and a lead
# smaller than the bar is no lead. By congestion control (the paper's Figure 10 does that on its physical network):

# %%
draw.ccas_figure(scores)

# %% [markdown]
# And by the number of background flows. The paper's Figure 8 does that on its physical network, too;
# `cct experiment dragonfly --network physical` has runs like those.

# %%
longest = by_background[by_background.window_ms == LENGTHS[-1]]
draw.settings_figure(longest, "background", LENGTHS[-1])

# %% [markdown]
# ## 7. Leaking runs
#
# The published code splits *by flow*: the Reno flow of a run may be in the training set and its CUBIC flow in the test
# set. Both went through the same queue at the same time, so each carries the run's RTT, background and bursts. Here are
# three ways to split, with everything else equal:

# %%
leaks = dragonfly.by_split(dataset, recipe, 1000, ["Dragonfly"] if FAST else ["Dragonfly", "ours"])
draw.splits_figure(leaks)

# %%
mine = scores[scores.classifier == "Dragonfly"].set_index("window_ms").f1
flow = leaks[leaks.classifier == "Dragonfly"].set_index("split").f1
cct.lessons.compare_prediction(
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
# Is this more than the error bars? A split by flow does not always score higher: each congestion control occurs once in
# a run, so the other flows of a run have *other* labels, and a network that remembers the run learns to predict one of
# those. With a split by window, windows of one flow are on both sides, so leaking can only help. Either way, a score by
# flow or by window is about runs that the network has seen, while the question was about flows that it has not seen.
# (Settings never trained on are even harder: exercise 2.)
#
# ## 8. A trained model on a real capture
#
# The bundled models were trained on real Linux and do not need torch. The answer is a name with a probability, or
# "unknown".

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
        "This version has no bundled model: `cct train` makes one from a dataset, `identify.load(FOLDER)` loads it."
    )

# %% [markdown]
# The paper's network and DeePCCI, trained and tested on runs of real Linux:

# %%
results = Path("../data/results/models/dragonfly.csv")
if results.is_file():
    found = pd.read_csv(results)
    found = found[found["by"].isna()] if "by" in found else found  # only the rows over all settings
    wanted = ["model", "set", "window_ms", "background", "windows", "runs", "f1", "low", "high"]
    display(found[[name for name in wanted if name in found]].round(3))
else:
    print(f"{results.name} is missing: these results are only in a checkout of the package.")

# %% [markdown]
# ## 9. On MAWI: one tap
#
# A backbone trace has one tap, so there is no CBIQ. What is left is throughput and, if both directions were captured,
# bytes in flight: the highest sequence number sent minus the highest acknowledged. Is this enough? Here are the same
# simulated runs, seen by one tap:

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
# Next, a trace: yours, a day of MAWI if you fetched one (`cct fetch mawi 2024-02-15`), and otherwise synthetic traffic.

# %%
path, what = (TRACE, f"your trace {TRACE}") if TRACE else cct.find_trace()
print(what)
backbone = next(cct.iter_capture(path, packets=200_000 if FAST else 2_000_000))
flows = backbone.flows
payload = flows[["payload_fwd", "payload_rev"]].max(axis=1)
large = flows[(flows.protocol == 6) & (payload > (200_000 if FAST else 1_000_000))]
print(f"{len(large)} of {len(flows):,} flows are TCP flows with enough data in one direction")

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
# Do not believe these answers. The network knows one 100 Mbit/s link and three congestion controls, and must name one
# of them whatever it sees: another rate, an application that pauses, a congestion control it never met. Nor is there
# any ground truth: MAWI has no labels (and synthetic traffic has no congestion control at all). For a useful answer,
# you need training data as varied as the traffic, and a classifier that may answer "unknown":
# `cct dataset build hard --on uml`, and `cct classify TRACE` with the bundled model, which says which inputs it had.
#
# ## 10. On your own pair of captures
#
# Training on your own captures takes ten lines. You need a capture before the queue, one behind it, and a table of each
# flow's congestion control (`src`, `dst`, `sport`, `dport`, `cca`; as many of the columns as identify a flow). Put your
# files in place of these three:

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
# The second number means next to nothing: the test flows are the training flows, section 7's worst case. The first
# number is honest: from a simulator to a real capture at another rate. For a number you can defend, you need several
# captures, and `cut_windows([first, second, third, …]).split()`. On the command line: `cct dataset add`, `cct train`,
# `cct evaluate`.
#
# ## Exercises
#
# ### Exercise 1
#
# Which input is the most informative? Train Dragonfly's network on one input alone, as in the paper's Figure 2
# (`identify.INPUTS` has the names; the paper's largest time gaps are among them). Does CBIQ win here?
#
# <details><summary>Hint</summary>
#
# `dragonfly.f1_by_input(dataset, recipe)` trains one network per input; `draw.inputs_figure` shows the scores.
#
# </details>

# %% tags=["solution"]
alone = dragonfly.f1_by_input(
    dataset, dragonfly.Training(epochs=5 if FAST else 30, seeds=2, per_flow=PER_FLOW, learning_rate=RATE)
)
draw.inputs_figure(alone)

# %% [markdown] tags=["solution"]
# Look at the error bars before you pick a winner. All inputs had the same windows. If all packets have the same size,
# `in_bytes` and `in_packets` only differ by a factor, which normalisation removes, so their scores are equal.
# `throughput_bytes` carries nearly the same information: the difference in score is luck.

# %% [markdown]
# ### Exercise 2
#
# A router meets settings that were never in the training set. Leave out each number of background flows in turn
# (`dragonfly.left_out`). How much does the score drop?
#
# <details><summary>Hint</summary>
#
# `dragonfly.left_out(dataset, recipe, window_ms, "background", "Dragonfly")` runs the loop. Compare `f1` with
# `f1_trained`.
#
# </details>

# %% tags=["solution"]
dragonfly.left_out(dataset, recipe, 100, "background", "Dragonfly").round(2)

# %% [markdown] tags=["solution"]
# `f1` is without these settings in training, `f1_trained` with them; the test windows are the same. A new queue
# discipline or another rate costs more than a few more flows: `cct dataset build hard --part test` has those.

# %% [markdown]
# ### Exercise 3
#
# A collector that cannot keep up samples one packet in ten (section III-D of the paper). What does the CBIQ of section
# 2's flows look like then? Compare `compute_slots(…, sampling=0.1, fill="interpolate")` with all packets, and compute
# the error of CBIQ.
#
# <details><summary>Hint</summary>
#
# Merge both tables on `flow_id` and `slot`, and look at the absolute difference of `cbiq_bytes` relative to its mean.
#
# </details>

# %% tags=["solution"]
whole = cct.compute_slots(trace.ingress, trace.egress)
sample = cct.compute_slots(trace.ingress, trace.egress, sampling=0.1, fill="interpolate", seed=1)
both = whole.merge(sample, on=["flow_id", "slot"], suffixes=("", "_sampled"))
both["off"] = (both.cbiq_bytes_sampled - both.cbiq_bytes).abs().astype(float)
both.groupby("flow_id").agg(mean_cbiq=("cbiq_bytes", "mean"), mean_error=("off", "mean")).join(
    seen.flows.set_index("flow_id").cca
).round(0)

# %% [markdown] tags=["solution"]
# Between two sampled packets the line is straight, so sampling smooths: details shorter than the gap are lost, while a
# sawtooth of seconds remains. So long windows should suffer little: the paper loses 0.1 of F1 at 99 %, with windows of
# 10 s. A network trained on all packets, with windows of 1 s, loses far more (figure 9 in the book's chapter).

# %% [markdown]
# ## Questions
#
# 1. Two congestion controls fill a queue in the same way. Can any classifier at the queue tell them apart?
# 2. A provider throttles flows that are "BBR with probability 0.9". What does a sender do next?
# 3. Why is a split by run still too optimistic if all runs go through one topology?

# %% [markdown] tags=["solution"]
# 1. No: it sees what they do, not what they are. Linux's DCTCP without marks does what Reno does. Group such classes,
#    or say that the label cannot be known.
# 2. It paces a little differently. A classifier trained on yesterday's senders is no defence; and one in ten flows with
#    this label was something else (if the probability is calibrated, which must be measured).
# 3. The settings are drawn from one distribution: one rate, one buffer, a narrow range of RTTs. The test shows whether
#    the network has understood *this* link. Test on other links.
