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
# # Fairness between short and long RTTs: queues by RTT
#
# **Takes** an hour with the exercises; all cells together compute for two minutes, most of it to compile code the first
# time.
#
# **The question.** When two flows share a queue, the one with the shorter RTT often gets more (CUBIC), or less (BBR).
# Can a network be fair to both without the senders' help, and with a router that cannot be programmed?
#
# Gomez, Kfoury, Mazloum and Crichigno ("Improving Flow Fairness in Non-programmable Networks using P4-programmable Data
# Planes") say yes: a switch listens at the router's links, measures the RTT of each flow, sorts flows into classes of
# similar RTT, and tells the router to give every class a queue of its own. This notebook shows the system step by step,
# first on a capture, then in a closed loop.
#
# **You need** to have seen `00_start`.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # shorter runs: for a quick look, not for results
TRACE = cct.lessons.trace("../traces/mixed.egress.pcap.gz")  # or your own: TRACE=… make lab

# %% [markdown]
# ## 1. Listen: each flow's RTT
#
# The system pairs each segment with its acknowledgement as they pass. This gives the round trip from the tap to either
# end; the two minima add up to the flow's base RTT.

# %%
from cctoolkit.separation.meters import capture_metrics

print(TRACE.name)
cap = next(cct.iter_capture(TRACE, packets=2_000_000))
LONG = 10_000_000 if cap.meta.wire_bytes > 100_000_000 else 100_000  # bytes; the paper's is the first
metrics = capture_metrics(cap, long_bytes=LONG)
if metrics.query("protocol == 6").rtt_ms.isna().all():
    raise cct.errors.ParameterError("TRACE has no TCP flow with data and its ACKs; choose another capture")
long = metrics[metrics.is_long & (metrics.protocol == 6) & metrics.rtt_ms.notna()]
long[["flow_id", "direction", "bytes", "rtt_ms", "latest_rtt_ms"]].round(2)

# %% [markdown]
# Only *long* flows matter: the paper draws the line at 10 MB (a capture as small as this one gets a lower line). On the
# switch, a count-min sketch finds them in a fixed amount of memory. It may mistake a short flow for a long one, but
# never the reverse:

# %%
cct.long_flows(cap, LONG, "count_min")[["flow_id", "direction", "bytes"]].head()

# %% [markdown]
# ## 2. Sort: classes of RTTs
#
# **Expected from the paper** (section 3.2): natural breaks (Jenks) put the limits where the variance within the classes
# is smallest. Start with all TCP flows of the capture, including the short ones. Move the slider: from which number of
# classes on is there nothing left to separate?

# %%
from ipywidgets import IntSlider, interact

seen = metrics.query("protocol == 6").rtt_ms.dropna().to_numpy()


@interact(k=IntSlider(3, 1, 8, description="classes"))
def classes_of_capture(k: int):
    return cct.plot.rtt_classes(seen, cct.jenks_classes(seen, k))


# %% [markdown]
# The short flows' true base RTT is also 20 ms: they arrived when the queue was full, so even their smallest RTT
# contains queueing delay. That is why only long flows are classified: they see an empty queue now and then.
#
# The next figure has the RTTs of a whole backbone link, where no gaps suggest limits. An excerpt of one second is
# enough, but only for flows whose ACKs came within it. Synthetic traffic has the RTTs that its generator chose:


# %%
def round_trips(path):
    part = next(cct.iter_capture(path, packets=200_000 if FAST else 1_000_000))
    found = capture_metrics(part).query("protocol == 6").rtt_ms.dropna()
    return found[found > 0.05].to_numpy()


found = {what: round_trips(path) for path, what in cct.real_traces() or [cct.find_trace()]}
what, rtts = max(found.items(), key=lambda one: len(one[1]))  # the trace with the most flows seen both ways
print(f"{what}: RTTs of {len(rtts):,} flows")


# %%
@interact(k=IntSlider(4, 1, 8, description="classes"))
def classes_of_backbone(k: int):
    return cct.plot.rtt_classes(rtts, cct.jenks_classes(rtts, k))


# %% [markdown]
# GVF, the goodness of variance fit, is 0 with one class and 1 if all values in each class are equal. The paper's
# Algorithm 1 searches for the limits step by step and does not always find the best ones:

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
print(f"from k = {choose_k(rtts)} on, one more class adds less than 0.02 to the GVF")

# %% [markdown]
# ## 3. Tell the router
#
# The controller decides on queues, their shares and buffers, and the queue of each flow. These are its decisions for
# the first capture, and the configuration for a Juniper router:

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
# On the command line: `cct separate CAPTURE -k 3 --rate 12 --router junos --interface xe-0/0/1 --ingress xe-0/0/0`.
#
# ## 4. Close the loop
#
# The same controller works in a simulation: it measures, decides and acts while the flows run. Here are two CUBIC
# flows, with 10 and 60 ms:

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
# Fairness alone is cheap: give every flow a hard limit and leave the rest of the link idle. That is why this notebook
# always reports utilisation with fairness, and why the queues are served in turn and never shaped.
#
# ## 5. The paper's six tests
#
# This section repeats the experiments of `cct experiment rtt-separation`: the same scenarios with one queue, with the
# paper's system, and with its competitors, with the paper's numbers. Here, the link has a tenth of the paper's 1
# Gbit/s, runs take a quarter of its time, and test 4 has a hundredth of the bytes. The command runs them at the
# paper's rate, and test 4 with a fiftieth of its transfers (with `--full`, all of them; `docs/separation.md` has the
# result).

# %%
from cctoolkit.experiments import rtt_separation as tests

# a tenth of the paper's rate and a quarter of its time
settings = tests.Settings(fast=True, seeds=1 if FAST else 2, scale=0.005 if FAST else 0.01)


def run_test(number: int):
    found = tests.PARTS[number].run(settings)
    for figure in found.figures.values():
        display(figure)
    table = found.tables[f"test{number}"]
    display(table.round(3))
    display(tests.paper(number))
    return table


# %% [markdown]
# ### Test 1: four flows that come and go
# **Expected:** with separation, a fairness index of about 98 % for four CUBIC and for four BBR flows (2, 20, 40 and 60
# ms).

# %%
first = run_test(1)

# %% [markdown]
# Separation works as the paper says and costs no utilisation, because other queues may use an idle share; with hard
# limits they may not. A scheme that sorts by congestion control has two queues for four flows of one kind: one for new
# flows, one for the rest. Where its bars differ from those of one queue, that and chance are the reasons (for more
# seeds: `cct experiment rtt-separation --test 1`).
#
# With CUBIC *and* BBR (which the paper does not test), each RTT class has one flow of each, and BBR takes most of it.
# In this case, queues by congestion control do better. The two ideas solve different problems.
#
# In the authors' own logs, a flow is a bundle of streams, the queues have hard limits, and fairness costs a fifth of
# the goodput. Test 10 in `docs/separation.md` compares the two.
#
# ### Test 2: others may use an idle share
# **Expected:** flow 1 gets about 750 of 1000 Mbit/s while flow 2 is held back elsewhere.

# %%
second = run_test(2)

# %% [markdown]
# ### Test 3: increasing RTT differences
# **Expected:** in one queue, CUBIC's flow with the shorter RTT gets about 60 %, and BBR's flow with the longer RTT at
# least 75 %; separated, each gets half as long as the difference is below 90 ms.

# %%
third = run_test(3)

# %% [markdown]
# The paper's 60 % for CUBIC is not a constant: it tends to grow with the other flow's RTT (with 1 Gbit/s and two minutes, <!-- results: rtt-separation/cubic-beside-15 -->45 %<!-- end --> against 15 ms,
# <!-- results: rtt-separation/cubic-beside-40 -->59 %<!-- end --> against 40 ms,
# <!-- results: rtt-separation/cubic-beside-100 -->77 %<!-- end --> against 100 ms). How much more depends on the buffer
# (here the BDP of the longer RTT; the paper does not give it), because queueing delay makes RTTs more alike, and on the
# number of parallel streams per flow: test 11 in `docs/separation.md` varies both. On the small link used here, a CUBIC
# flow with a long RTT has not reached its share after half a minute.
#
# ### Test 4: completion times of large transfers
# **Expected:** about 20 % less on average with several queues for CUBIC, little change for BBR. The transfers are a
# sample with the paper's limits (`help(tests.sample_transfers)`);
# `cct experiment rtt-separation --test 4 --capture DAY` takes them from a capture.

# %%
fourth = run_test(4)

# %% [markdown]
# Fairness by itself does *not* shorten the mean completion time: on a full link, a flow that is slowed down in favour
# of another finishes later, and with few transfers the net gain depends on the sample. At 1 Gbit/s, several queues also slow
# CUBIC's transfers down more equally (test 8 in `docs/separation.md`); with the few transfers here, `jain_of_slowdown`
# need not show it.
#
# Where does CUBIC's gain come from? `cct experiment rtt-separation --test 8` changes one thing at a time, and
# `docs/separation.md` has the table: the gain of a separate queue for new flows and a short one for long flows, of four
# classes, of shares by RTT as the paper words them, and of the buffer size of the single queue. It also shows whether
# short queues alone help ("mitigating bufferbloat").
#
# ### Test 5: a light flow next to a heavy one
# **Expected:** in one queue, both RTTs rise; once the heavy flow is isolated, the light flow's RTT stays low.

# %%
fifth = run_test(5)

# %% [markdown]
# ### Test 6: unresponsive UDP
# **Expected:** Jain's index of 50, 33 and 25 % in one queue with one, two and three TCP flows; fair shares when
# separated.

# %%
sixth = run_test(6)

# %% [markdown]
# ### Table 1
# The paper's table has 5 to 10 % of fairness gained (P4air), 8 to 12 % (P4CCI), 10 % (P4BS) and 15 % (its own), and does
# not say how these were measured; P4air's and P4CCI's are for mixed congestion controls. Here all of them run in the same
# scenarios:

# %%
tests.table_1(first, fourth).round(2)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# In section 4, give the two flows the same RTT of 20 ms. How many queues does the controller use, and why?
#
# <details><summary>Hint</summary>
#
# `shared.replace({"flows.*.rtt_ms": 20})` changes both flows; after the run, `controller.decision.flows` shows each
# flow's queue.
#
# </details>

# %% tags=["solution"]
same = shared.replace({"flows.*.rtt_ms": 20})
controller = RttSeparation(rate_mbps, k=2, long_bytes=1_000_000)
cct.simulate(controller.scenario(same), control=controller, record=False)
controller.decision.flows

# %% [markdown] tags=["solution"]
# One: RTTs are rounded to a millisecond before they are classified, and flows with equal RTTs need no protection from
# each other.

# %% [markdown]
# ### Exercise 2
#
# What is the result of section 4 with BBR? Which flow has the advantage in one queue?
#
# <details><summary>Hint</summary>
#
# `shared.replace({"flows.*.cca": "bbr"})`. BBR keeps up to two BDPs in flight, computed with its own RTT.
#
# </details>

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
# ### Exercise 3
#
# Algorithm 1 gets stuck. Find three RTTs and a k for which it does not find the best classes.
#
# <details><summary>Hint</summary>
#
# Algorithm 1 starts from equal intervals. Try values for which one of the intervals is empty.
#
# </details>

# %% tags=["solution"]
three = [1.0, 2.0, 100.0]
print(cct.jenks_classes(three, 3, "paper"), cct.jenks_classes(three, 3), sep="\n")

# %% [markdown] tags=["solution"]
# With three equal intervals, the middle one is empty. Its deviation is zero, so it gains width from the first, by one
# standard deviation of (1, 2), which is a half: the limit moves from 34 to 33.5, and no flow changes its class.

# %% [markdown]
# ### Exercise 4
#
# The rules change when flows come and go. Replay the bundled capture every half second with
# `cctoolkit.separation.replay.replay`: how many rules does a router have to change, and does a flow ever change its
# class?
#
# <details><summary>Hint</summary>
#
# `for _ in replay(cap, controller, 0.5, LONG): pass` fills `controller.log`: one entry per decision, with the number of
# rules added, moved and removed.
#
# </details>

# %% tags=["solution"]
from cctoolkit.separation.replay import replay

controller = RttSeparation(12, k=3)
for _ in replay(cap, controller, 0.5, LONG):
    pass
pd.DataFrame(controller.log)[["added", "moved", "removed", "settings"]].sum()

# %% [markdown]
# ### Exercise 5
#
# Separation gives every class its share, and does nothing within a class. Give eight CUBIC flows RTTs of 10 to 12 ms,
# and compare Jain's index in one queue, separated, and with `RttSeparation(..., guard=True)`. How many queues does the
# guard use? Then give the flows half a millisecond of jitter (`jitter_ms=0.5`).
#
# <details><summary>Hint</summary>
#
# `cct.Flow("cubic", rtt_ms=10 + 2 * i / 7)` for `i` from 0 to 7. The default queue is number 0.
#
# </details>

# %% tags=["solution"]
eight = shared.replace({"bottleneck.buffer_bytes": rate_mbps * 125 * 12, "duration_s": 20})
for jitter_ms in (0, 0.5):
    near = [cct.Flow("cubic", rtt_ms=10 + 2 * i / 7, jitter_ms=jitter_ms) for i in range(8)]
    scenario = eight.replace({"flows": near})
    print(jitter_ms, "ms of jitter: one queue", cct.simulate(scenario, record=False).summary()["jain_index"])
    for guard in (False, True):
        controller = RttSeparation(rate_mbps, k=4, long_bytes=1_000_000, guard=guard)
        run = cct.simulate(controller.scenario(scenario), control=controller, record=False)
        used = int((controller.decision.queues.flows > 0).sum())
        print(f"  guard {guard}: {used} queues used, Jain's index", run.summary()["jain_index"])

# %% [markdown] tags=["solution"]
# The guard merges classes with similar RTTs, and if only one class is left, all flows stay in queue 0. Without jitter,
# the same flow loses packets at a full queue again and again (phase effects). `docs/separation.md` says when separation
# pays, and how much of the difference jitter removes.
