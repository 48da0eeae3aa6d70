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
# # ECN and L4S: a signal that costs nothing
#
# **Takes** an hour with the exercises.
#
# **The question.** An AQM says "slow down" by destroying a packet. Could it not write on the packet instead? And if the
# signal costs nothing, how much shorter could queues be if it came much more often?
#
# **You need** lesson `02_red_codel_pie`: what an AQM does, and what CoDel's and PIE's targets are.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # shorter runs

# %% [markdown]
# ## Two bits
#
# Explicit congestion notification (RFC 3168) uses two bits of the IP header. A sender that supports it sets `ECT`; a
# router that would have dropped such a packet sets `CE` instead, *congestion experienced*; the receiver echoes it; and
# the sender reacts as if the packet had been lost. Here are four CUBIC flows through CoDel, without and with ECN:

# %%
import pandas as pd


def link(aqm, *flows: cct.Flow, rate_mbps: float = 40, seconds: float = 8 if FAST else 20) -> cct.Scenario:
    bottleneck = cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=1000, aqm=aqm)
    return cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=seconds)


runs = {
    ecn: cct.simulate(link("codel", cct.Flow("cubic", rtt_ms=20, ecn=ecn, count=4), rate_mbps=10))
    for ecn in ("off", "classic")
}
columns = ["mean_delay_ms", "utilisation", "drop_share", "mark_share", "retransmits"]
pd.DataFrame({f"ECN {name}": run.summary() for name, run in runs.items()}).loc[columns].round(3)

# %% [markdown]
# No packet is lost any more, and nothing is retransmitted. But the delay is no better. The signal is free now, yet each
# one still makes the sender cut its rate (CUBIC keeps 70 %), so the AQM must be as sparing as before, and the queue
# must be long enough to last through the sender's pause.
#
# ## Many small signals
#
# DCTCP (RFC 8257) turned that around, and TCP Prague brings it to the Internet: mark *every* packet that waited longer
# than a very short time, and let the sender reduce its rate by half the *share* of marked packets: a few marks, a few
# percent. Signals are so frequent that the sender tracks the queue closely. That is **L4S**, low latency, low loss, and
# scalable throughput (RFC 9330).

# %%
prague, cubic = cct.Flow("prague", rtt_ms=20), cct.Flow("cubic", rtt_ms=20)
alone = {name: cct.simulate(link("dualpi2", flow)) for name, flow in (("CUBIC", cubic), ("Prague", prague))}
cct.plot.window(alone["CUBIC"], flows=[0]).update_layout(title_text="CUBIC: few large steps")

# %%
cct.plot.window(alone["Prague"], flows=[0]).update_layout(title_text="Prague: many small ones")

# %% [markdown]
# Look at the lower panels: CUBIC's RTT swings between 20 and 40 ms, Prague's stays at 20.
#
# Why doesn't everyone do this? Because a sender that reacts so gently wins against one that gives up 30 % at a signal.
# In one queue with CoDel:

# %%
mixed = cct.simulate(link("codel", prague, cubic))
cct.plot.goodput(mixed)

# %% [markdown]
# ## Two queues that talk to each other
#
# In DualPI2 (RFC 9332), scalable flows (their packets carry `ECT(1)`, RFC 9331) get a queue of their own that marks
# from 1 ms of delay on. All others stay in a classic queue with a PI controller and a target of 15 ms. Both share the
# link; nothing is reserved. The **coupling** keeps the shares even: the controller computes one p' and
#
# $$p_\text{classic} = p'^2 \qquad p_\text{L4S} = k\,p', \quad k = 2$$
#
# The square is there because a classic flow's rate is proportional to $1/\sqrt{p}$ and a scalable one's to $1/p$. With
# the square, both are proportional to $1/p'$.
#
# ## Predict
#
# One Prague flow and one CUBIC flow share DualPI2 at 40 Mbit/s, both with 20 ms. What is the 99th percentile of the
# delay of Prague's packets, and of CUBIC's? And what share of the link does Prague get, where 50 % is even?

# %%
prediction = {
    "Prague's wait, 99th percentile, ms": None,
    "CUBIC's wait, 99th percentile, ms": None,
    "Prague's share, %": None,
}

# %%
both = cct.simulate(link("dualpi2", prague, cubic), record=True)
delays = cct.queue_delay(both.ingress, both.egress)
p99_ms = delays.groupby("flow_id").delay_ns.quantile(0.99) / 1e6
rate = both.flows.goodput_mbps
cct.lessons.compare_prediction(
    prediction,
    {
        "Prague's wait, 99th percentile, ms": p99_ms[0],
        "CUBIC's wait, 99th percentile, ms": p99_ms[1],
        "Prague's share, %": 100 * rate[0] / rate.sum(),
    },
)

# %% [markdown]
# A millisecond against twenty, on one link at the same time. (The percentiles include the packet's own 0.3 ms of
# transmission time.)

# %%
cct.plot.queue(both)

# %% [markdown]
# Queue 0 is the L4S queue, queue 1 the classic one.
#
# ## How strong a coupling?
#
# `k` says how much more often the L4S queue is marked than the square root of the classic queue's loss rate. Move the
# slider: which flow benefits from a small k, and which from a large one? Where are they even? Then give the classic
# flow another RTT.

# %%
from ipywidgets import FloatSlider, IntSlider, interact


@interact(
    k=FloatSlider(2, min=0.5, max=6, step=0.5, description="k"),
    cubic_rtt_ms=IntSlider(20, 5, 100, 5, description="CUBIC's RTT"),
)
def coupled(k: float, cubic_rtt_ms: int):
    run = cct.simulate(
        link(cct.aqm.DualPi2(coupling=k), prague, cct.Flow("cubic", rtt_ms=cubic_rtt_ms), seconds=30)
    )
    share = run.flows.goodput_mbps[0] / run.flows.goodput_mbps.sum()
    return cct.plot.goodput(run).update_layout(title_text=f"k = {k:g}: Prague gets {share:.0%}")


# %% [markdown]
# RFC 9332 recommends k = 2. It makes *windows* equal, not rates: a flow's rate is its window over its round-trip time,
# and the classic flow's contains 15 ms of queue. So Prague gets more here (with equal base RTTs, the two are even only
# above k = 3), and a CUBIC flow with a long RTT gets much less: that is the subject of lesson 5, and no coupling cures
# it.
#
# What does a real kernel do? Here are two captures of Linux's DualPI2: one with two CUBIC flows, one with a CUBIC flow
# and DCTCP as the scalable one. The link has 6 Mbit/s: one packet takes 2 ms.

# %%
found = {}
for name in ("aqm-dualpi2", "aqm-dualpi2-l4s"):
    real = cct.load_run(f"../../traces/testbed/{name}")
    waits = cct.queue_delay(real.ingress, real.egress)
    waits["flow"] = waits.flow_id.map(real.labels.set_index("flow_id").cca.replace("", "udp"))
    found[name] = (waits.groupby("flow").delay_ns.median() / 1e6).astype(float)
pd.DataFrame(found).dropna(how="all").rename_axis("median wait, ms").round(1)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# Ten Prague and ten CUBIC flows instead of one each: does L4S keep its millisecond? How do the shares change?
#
# <details><summary>Hint</summary>
#
# `count=10` in `cct.Flow` makes ten of them. Compare goodput by `name` in `run.flows`, and the delays in `run.queues`.
#
# </details>

# %% tags=["solution"]
many = cct.simulate(
    link("dualpi2", cct.Flow("prague", rtt_ms=20, count=10), cct.Flow("cubic", rtt_ms=20, count=10))
)
print(many.flows.groupby("name").goodput_mbps.mean().round(2).to_dict())
print(many.queues.mean_delay_ms.round(2).tolist())

# %% [markdown]
# ### Exercise 2
#
# Two cheats want to use the fast queue, each next to an honest CUBIC flow. One uses classic ECN there and takes every
# mark for a loss: `cct.Flow("cubic", rtt_ms=20, ecn="classic", queue=0)`. The other sets `ECT(1)` and, in this
# simulator, ignores marks: `cct.Flow("cubic", rtt_ms=20, ecn="l4s")`. Which of them gains?
#
# <details><summary>Hint</summary>
#
# Run each cheat with `cubic` through `"dualpi2"` and compare the two goodputs. What does a sender do that takes every
# mark of the L4S queue for a loss?
#
# </details>

# %% tags=["solution"]
cheats = {
    "takes marks for losses": cct.Flow("cubic", rtt_ms=20, ecn="classic", queue=0),
    "does not listen": cct.Flow("cubic", rtt_ms=20, ecn="l4s"),
}
outcomes = {
    name: cct.simulate(link("dualpi2", cheat, cubic)).flows.goodput_mbps for name, cheat in cheats.items()
}
pd.DataFrame(outcomes, index=[0, 1]).set_axis(["cheat", "honest"]).round(1)

# %% [markdown] tags=["solution"]
# The first hurts itself: it gets the many marks meant for gentle senders and reacts to each as to a drop. The second
# takes nearly everything. As with drops, the network relies on senders that respond; L4S adds no policing, and RFC 9332
# (section 4.2) discusses how to survive those that do not.

# %% [markdown]
# ### Exercise 3
#
# The L4S queue marks from 1 ms of delay. What do steps of 0.25 ms and 5 ms do to a lone Prague flow's delay and
# utilisation (`cct.aqm.DualPi2(step_ms=…)`)?
#
# <details><summary>Hint</summary>
#
# Make a table with a column `step` from `cct.simulate(…).summary()`, and draw it with
# `cct.plot.trade_off(table, by="step")`.
#
# </details>

# %% tags=["solution"]
rows = [
    {"step": f"{ms} ms"} | cct.simulate(link(cct.aqm.DualPi2(step_ms=ms), prague)).summary()
    for ms in (0.25, 0.5, 1, 2, 5)
]
cct.plot.trade_off(pd.DataFrame(rows), by="step")

# %% [markdown]
# ## Questions
#
# - A mark and a drop had to mean the same until 2018 (RFC 8311). Why could the meaning of `CE` not simply be changed
#   for everyone?
# - The L4S queue is served first most of the time. Why does it not starve the classic queue?
# - Which applications benefit from 1 ms instead of 15? Which do not benefit at all?
# - A router without any AQM sees a Prague flow. What will happen in its buffer?

# %% [markdown] tags=["solution"]
# - Old senders would keep halving at each of the many marks and starve; old routers mark so rarely that gentle senders
#   would not slow down. Hence a new identifier, ECT(1), for the new meaning.
# - Because of the coupling: when the classic queue grows, p' grows, and with it the marks of the L4S queue, until its
#   senders leave room. The scheduler's 10 % for the classic queue is only a safety net.
# - Games, remote control, video with many short exchanges, anything with a human in the loop; a nightly backup gains
#   nothing.
# - Losses there still count as losses, and Prague answers them as Reno does: it fills the buffer like any other flow.
