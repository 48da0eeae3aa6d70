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
# # Fairness between near and far: queues by RTT
#
# **Takes** an hour with the exercises; the six tests at the end compute for ten minutes on two cores (a minute with
# `FAST=1`).
#
# **The question.** Of two flows through one queue, the one whose server is nearer often gets more (CUBIC), or less
# (BBR). Can a network be fair to both, without asking the senders for anything, and with a router nobody can program?
#
# Gomez, Kfoury, Mazloum and Crichigno ("Improving Flow Fairness in Non-programmable Networks using P4-programmable
# Data Planes") say yes: a switch listens at the router's links, measures the RTT of each flow, sorts flows into
# classes of similar RTT, and tells the router to give every class a queue of its own. This notebook walks through
# it, first on a capture, then in a closed loop.
#
# **You need** to have seen `00_start`.

# %% tags=["parameters"]
import os

FAST = os.environ.get("FAST", "") not in ("", "0")  # a tenth of the rate and shorter: to look, not to cite
TRACE = os.environ.get("TRACE") or "../traces/mixed.egress.pcap.gz"

# %% [markdown]
# ## 1. Listen: the RTT of each flow
#
# The system pairs a segment with its acknowledgement as both pass by. On either side of the tap that gives the way
# to one end and back; the least of each, added up, is the flow's base RTT.

# %%
from pathlib import Path

import cctoolkit as cct
from cctoolkit.separation.meters import capture_metrics

path = Path(TRACE).expanduser()
print(path.name)
cap = next(cct.iter_capture(path, packets=2_000_000))
LONG = 10_000_000 if cap.meta.wire_bytes > 100_000_000 else 100_000  # bytes; the paper's is the first
metrics = capture_metrics(cap, long_bytes=LONG)
long = metrics[metrics.is_long & (metrics.protocol == 6) & metrics.rtt_ms.notna()]
long[["flow_id", "direction", "bytes", "rtt_ms", "latest_rtt_ms"]].round(2)

# %% [markdown]
# Only *long* flows matter: the paper draws the line at 10 MB (a capture as small as this one gets a lower line).
# On the switch a count-min sketch finds them in a fixed piece of memory; it may take a short flow for a long one,
# never the other way round:

# %%
cct.long_flows(cap, LONG, "count_min")[["flow_id", "direction", "bytes"]].head()

# %% [markdown]
# ## 2. Sort: classes of RTT
#
# **Expected from the paper** (section 3.2): natural breaks (Jenks) put the limits where the variance inside the
# classes is least. First all TCP flows of the capture, short ones too. Move the slider: from which number of classes
# on is there nothing left to part?

# %%
from ipywidgets import IntSlider, interact

seen = metrics.query("protocol == 6").rtt_ms.dropna().to_numpy()


@interact(k=IntSlider(3, 1, 8, description="classes"))
def classes_of_capture(k: int):
    return cct.plot.rtt_classes(seen, cct.jenks_classes(seen, k))


# %% [markdown]
# The short flows have 20 ms, too, in truth: they came when the queue was full, so that even their least RTT has
# waiting in it. That is why only long flows are classified, who see the queue empty now and then.
#
# And here are the RTTs of a whole backbone, where no gaps show the limits:

# %%
backbone, what = cct.find_trace()
print(what)
day = next(cct.iter_capture(backbone, packets=200_000 if FAST else 2_000_000))
rtts = capture_metrics(day).query("protocol == 6").rtt_ms.dropna()
rtts = rtts[rtts > 0.05].to_numpy()


# %%
@interact(k=IntSlider(4, 1, 8, description="classes"))
def classes_of_backbone(k: int):
    return cct.plot.rtt_classes(rtts, cct.jenks_classes(rtts, k))


# %% [markdown]
# GVF, the goodness of variance fit, is 0 with one class and 1 when each class has one value only. The paper's
# Algorithm 1 looks for the limits step by step, and does not always get to the best ones:

# %%
import pandas as pd
from cctoolkit.separation.jenks import choose_k, kmeans_classes

pd.DataFrame(
    {
        "exact": [cct.jenks_classes(rtts, k).gvf for k in range(1, 9)],
        "Algorithm 1": [cct.jenks_classes(rtts, k, "paper").gvf for k in range(1, 9)],
        "k-means": [kmeans_classes(rtts, k).gvf for k in range(1, 9)],
    },
    index=pd.RangeIndex(1, 9, name="k"),
).round(4)

# %%
print("one class more gains less than 0.02 of GVF from k =", choose_k(rtts), "on")

# %% [markdown]
# ## 3. Tell the router
#
# Queues, their shares and buffers, and who goes where: this is what the controller would do about the first
# capture, and what it would say to a Juniper router.

# %%
from cctoolkit.separation.controller import RttSeparation

rate_mbps = 12  # the link of the bundled capture
controller = RttSeparation(rate_mbps, k=3)
decision = controller.decide(metrics, now_s=cap.duration_s)
decision.queues.round(2)

# %%
from cctoolkit.separation.router import Router

rules = Router("junos", rate_mbps, "xe-0/0/1", ingress="xe-0/0/0").update(decision, cap.flows)
lines = rules.splitlines()
print(len(lines), "lines; the schedulers and the first flow:")
print(*[line for line in lines if "schedulers" in line or "flow-100" in line], sep="\n")

# %% [markdown]
# On a terminal the same is `cct separate CAPTURE -k 3 --rate 12 --router junos --interface xe-0/0/1 --ingress
# xe-0/0/0`.
#
# ## 4. Close the loop
#
# The same object drives a simulation: it measures, decides and acts while the flows run. Two CUBIC flows, 10 and
# 60 ms:

# %%
rate_mbps = 100
flows = [
    cct.Flow("cubic", rtt_ms=10, name="10 ms"),
    cct.Flow("cubic", rtt_ms=60, name="60 ms"),
]
shared = cct.Scenario(
    bottleneck=cct.Bottleneck(rate_mbps=rate_mbps, buffer_bytes=rate_mbps * 125 * 60),
    flows=flows,
    duration_s=10 if FAST else 30,
)
alone = cct.simulate(shared, record=False)

controller = RttSeparation(rate_mbps, k=2, long_bytes=1_000_000)
separated = cct.simulate(controller.scenario(shared), control=controller, control_s=0.2, record=False)

pd.DataFrame(
    {
        name: {
            "10 ms, Mbit/s": run.flows.goodput_mbps[0],
            "60 ms, Mbit/s": run.flows.goodput_mbps[1],
            "Jain's index": run.summary()["jain_index"],
            "utilisation": run.summary()["utilisation"],
            "mean queue, ms": run.summary()["mean_delay_ms"],
        }
        for name, run in (("one queue", alone), ("queues by RTT", separated))
    }
).round(3)

# %% [markdown]
# Fairness alone is easily bought: give every flow a hard limit and let the rest of the link idle. That is why
# utilisation always stands beside it here, and why the queues are served in turn and never held back.
#
# ## 5. The paper's six tests
#
# From here on the experiments of `cct experiment rtt-separation`: the same scenarios with one queue, with the paper's
# system, and with its competitors. Beside each: what the paper says.

# %%
from cctoolkit.experiments import rtt_separation as tests

settings = tests.Settings(fast=FAST, seeds=1, scale=0.005 if FAST else 0.01)


def run_test(number: int):
    # starting processes takes longer than fast tests
    found = tests.PARTS[number].run(settings, workers=1 if FAST else None)
    for figure in found.figures.values():
        display(figure)
    table = found.tables[f"test{number}"]
    display(table.round(3))
    display(tests.paper(number))
    return table


# %% [markdown]
# ### Test 1: four flows that come and go
# **Expected:** with separation, a fairness index of about 98 % for four CUBIC and for four BBR flows (2, 20, 40
# and 60 ms).

# %%
first = run_test(1)

# %% [markdown]
# Separation does what the paper says, and costs no utilisation, because unused shares are not held back; with hard
# limits they are. Four flows of one congestion control are one queue for a scheme that looks at congestion
# controls: where its bars differ from those of one queue, it is by chance (more seeds: `cct experiment
# rtt-separation --test 1`).
#
# Of CUBIC *and* BBR (which the paper does not try) two share each class of RTT, and BBR takes most of it: there
# queues by congestion control do better. The two ideas answer different questions.
#
# ### Test 2: what one does not use, others get
# **Expected:** flow 1 has about 750 of 1000 Mbit/s while flow 2 is held back elsewhere.

# %%
second = run_test(2)

# %% [markdown]
# ### Test 3: further and further apart
# **Expected:** in one queue CUBIC's nearer flow gets about 60 %, BBR's farther one at least 75 %; separated, both
# have half as long as the difference is below 90 ms.

# %%
third = run_test(3)

# %% [markdown]
# The paper's 60 % for CUBIC is not a constant: the farther the other flow, the more the near one gets (with 1 Gbit/s
# and two minutes, <!-- results: rtt-separation/cubic-beside-15 -->46 %<!-- end --> beside 15 ms,
# <!-- results: rtt-separation/cubic-beside-40 -->69 %<!-- end --> beside 40 ms,
# <!-- results: rtt-separation/cubic-beside-100 -->73 %<!-- end --> beside 100 ms). How much depends on the buffer (here the
# BDP of the longer RTT; the paper does not say), for waiting makes RTTs more alike. With few seconds and a small link
# (`FAST`), a far CUBIC flow has not filled its share yet when time is up.
#
# ### Test 4: completion times of large transfers
# **Expected:** about 20 % less on average with several queues for CUBIC, little change for BBR. The transfers are
# a sample with the paper's limits (`help(tests.sample_transfers)`); `cct experiment rtt-separation --test 4
# --capture DAY` takes them from a capture.

# %%
fourth = run_test(4)

# %% [markdown]
# A shorter mean completion time is *not* what fairness gives by itself: on a full link, whoever is slowed down for
# another's sake ends later, and how much is won or lost depends on the sample of transfers. What several queues do with
# large transfers is treat them alike: see `jain_of_slowdown`.
#
# Where does what CUBIC gains come from? `cct experiment rtt-separation --test 8` changes one thing at a time, and
# `docs/separation.md` has its table: what a single class gains with a queue for beginners beside a short one for long
# flows, what four classes add, what shares by RTT change, as the paper words it, and what the room in the one queue
# does. Look there whether short queues themselves help ("mitigating bufferbloat").
#
# ### Test 5: a quiet flow and a loud one
# **Expected:** in one queue both RTTs rise; once the loud flow is isolated, the quiet one's stays low.

# %%
fifth = run_test(5)

# %% [markdown]
# ### Test 6: UDP that does not yield
# **Expected:** Jain's index of 50, 33 and 25 % in one queue with one, two and three TCP flows; fair shares when
# separated.

# %%
sixth = run_test(6)

# %% [markdown]
# ### Table 1
# The paper quotes its competitors from their papers: 5 to 10 % of fairness gained (P4air), 8 to 12 % (P4CCI), 10 %
# (P4BS), 15 % (its own). Here all of them on the same scenarios:

# %%
tests.table_1(first, fourth).round(2)

# %% [markdown]
# ## Exercises
#
# **1.** In section 4, give the two flows the same RTT of 20 ms. How many queues does the controller use, and why?

# %% tags=["solution"]
same = shared.replace({"flows.*.rtt_ms": 20})
controller = RttSeparation(rate_mbps, k=2, long_bytes=1_000_000)
cct.simulate(controller.scenario(same), control=controller, record=False)
controller.decision.flows

# %% [markdown] tags=["solution"]
# One: RTTs are rounded to a millisecond before they are classified, and flows that are equally far away need no
# protection from each other.

# %% [markdown]
# **2.** What does the answer in section 4 look like with BBR? Who has the advantage in one queue?

# %% tags=["solution"]
bbr = shared.replace({"flows.*.cca": "bbr"})
controller = RttSeparation(rate_mbps, k=2, long_bytes=1_000_000)
print(cct.simulate(bbr, record=False).flows.goodput_mbps.round(1).tolist())
print(
    cct.simulate(controller.scenario(bbr), control=controller, record=False)
    .flows.goodput_mbps.round(1)
    .tolist()
)

# %% [markdown]
# **3.** Algorithm 1 gets stuck. Find three RTTs and a k for which its GVF is far from the best.

# %% tags=["solution"]
three = [1.0, 2.0, 100.0]
print(cct.jenks_classes(three, 3, "paper"), cct.jenks_classes(three, 3), sep="\n")

# %% [markdown] tags=["solution"]
# With three equal intervals the middle one is empty. Its deviation is zero, so it should get width from the first,
# by one standard deviation of (1, 2), which is a half: the limit moves from 34 to 33.5, and no flow with it.

# %% [markdown]
# **4.** The rules change when flows come and go. Replay the bundled capture every half second with
# `cctoolkit.separation.replay.replay`: how many rules does a router have to change, and does a flow ever change
# its class?

# %% tags=["solution"]
from cctoolkit.separation.replay import replay

controller = RttSeparation(12, k=3)
for _ in replay(cap, controller, 0.5, LONG):
    pass
pd.DataFrame(controller.log)[["added", "moved", "removed", "settings"]].sum()
