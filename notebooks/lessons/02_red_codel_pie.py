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
# # From RED to CoDel to PIE: thirty years of dropping early
#
# **Takes** an hour with the exercises.
#
# **The question.** A router should start dropping *before* its buffer is full: that was clear in 1993. Why did almost
# no router do so in 2010? And what did the answer of 2012 get right that the one of 1993 did not?
#
# **You need** lesson `01_bufferbloat`: what a queue is, and why TCP fills it.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # shorter runs

# %% [markdown]
# ## RED, 1993: drop by the length of the queue
#
# Floyd and Jacobson ("Random early detection gateways for congestion avoidance", 1993) keep a moving average of the
# queue's length in packets. Below a lower threshold nothing happens. Above it, packets are dropped at random, with a
# probability that grows linearly up to `max_probability` at the upper threshold. The average lets short bursts pass;
# the randomness keeps all flows from being hit at the same moment.
#
# A link of 20 Mbit/s, four CUBIC flows at 40 ms, and thresholds carefully chosen for this link:

# %%
red = cct.aqm.Red(min_packets=10, max_packets=30)


def office(aqm, rate_mbps: float = 20, flows: int = 4, seconds: float = 10 if FAST else 20) -> cct.Scenario:
    return cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=500, aqm=aqm),
        flows=[cct.Flow("cubic", rtt_ms=40, jitter_ms=1, count=flows)],
        duration_s=seconds,
    )


run = cct.simulate(office(red))
print(f"{run.summary()['mean_delay_ms']:.1f} ms of queue, {run.summary()['utilisation']:.0%} of the link")
cct.plot.queue(run)

# %% [markdown]
# The dotted line is the drop probability: it rises with the queue and makes it shrink again. RED worked in 1993: a few
# milliseconds of queue, where tail drop would have over 200.
#
# ## Predict
#
# Ten years later, the same router with the same settings serves a link with a quarter of the rate, 5 Mbit/s, and
# another such router serves 50 Mbit/s. Write down what RED will do: the mean delay at 5 Mbit/s, and how much of the
# link is used at 50. Do the same for CoDel, which you met in lesson 1: its target is 5 ms everywhere.

# %%
prediction = {
    "RED at 5 Mbit/s: delay, ms": None,
    "CoDel at 5 Mbit/s: delay, ms": None,
    "RED at 50 Mbit/s: link used, %": None,
    "CoDel at 50 Mbit/s: link used, %": None,
}

# %%
import pandas as pd

AQMS = {"RED": red, "CoDel": "codel", "PIE": "pie"}
table = pd.DataFrame(
    [
        {"Mbit/s": rate_mbps, "aqm": name} | cct.simulate(office(aqm, rate_mbps)).summary()
        for rate_mbps in (5, 20, 50)
        for name, aqm in AQMS.items()
    ]
).set_index(["Mbit/s", "aqm"])
cct.lessons.compare_prediction(
    prediction,
    {
        f"{aqm} at {rate} Mbit/s: {what}": factor * table.loc[(rate, aqm), column]
        for rate, what, column, factor in (
            (5, "delay, ms", "mean_delay_ms", 1),
            (50, "link used, %", "utilisation", 100),
        )
        for aqm in ("RED", "CoDel")
    },
)

# %%
table[["mean_delay_ms", "utilisation", "drop_share"]].round(3)

# %% [markdown]
# RED counts packets. Thirty packets are 18 ms at 20 Mbit/s, 73 ms at 5 and 7 ms at 50: too late on the one link, too
# early on the other. And it is not only the rate: the number of flows and their RTTs shift the right thresholds, too.
# There are five parameters to set and nobody to set them, so routers shipped with RED turned off.
#
# At 5 Mbit/s CoDel, too, is above its target: four flows with small windows need frequent drops, and its law reaches
# that rate slowly. A target is not a guarantee.
#
# ## CoDel, 2012: drop by the time packets waited
#
# Nichols and Jacobson ("Controlling queue delay", 2012; RFC 8289) change three things.
#
# - **Time, not length.** Each packet gets a timestamp on arrival. Its queueing delay is known when it leaves, whatever
#   the rate of the link.
# - **The minimum, not the average.** A burst is a *good* queue: gone in a moment. A *bad* queue persists. If even the
#   luckiest packet of the last 100 ms (`interval`) waited longer than 5 ms (`target`), the queue is bad.
# - **Slowly more.** Then one packet is dropped. As long as nothing changes, more packets follow at ever shorter
#   intervals: `interval / sqrt(n)` before drop n + 1. (TCP's rate is proportional to one over the square root of its
#   loss rate, so this reduces it linearly.)
#
# You can see this law. UDP does not react, so CoDel keeps dropping. Every dot is the time between one drop and the
# next:

# %%
from cctoolkit.plot.style import figure

deaf = cct.Scenario(
    bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=5000, aqm="codel"),
    flows=[cct.Flow("udp", rate_mbps=11)],
    duration_s=3,
)
gaps_ms = cct.simulate(deaf, record=True).drops.ts_ns.diff().dropna().head(100) / 1e6
n = pd.RangeIndex(1, len(gaps_ms) + 1)
law = figure(
    "CoDel and UDP",
    xaxis_title_text="drop",
    yaxis_title_text="time to the next (ms)",
    yaxis_rangemode="tozero",
)
law.add_scatter(x=n, y=gaps_ms, mode="markers", name="measured")
law.add_scatter(x=n, y=100 / n**0.5, mode="lines", name="100 ms / sqrt(n)")

# %% [markdown]
# The dots form rows because a packet can only be dropped when it is about to be sent, every 1.2 ms. In the end, CoDel
# drops so much that the rest fits into the link; then it stops, and starts over when there is a standing queue again.
#
# ## PIE, 2013: a controller
#
# Pan and others ("PIE: a lightweight control scheme to address the bufferbloat problem", 2013; RFC 8033) think like
# control engineers: there is a desired delay (`target`, 15 ms), an actual delay, and a probability to adjust. Every 15
# ms
#
# $$p \mathrel{+}= \alpha\,(\text{delay} - \text{target}) + \beta\,(\text{delay} - \text{delay before})$$
#
# so p rises while the delay is too long *or* is growing (RFC 8033, section 4.2; α = 0.125 Hz, β = 1.25 Hz). Packets are
# dropped at random with probability p as they arrive, which is cheaper for a router than deciding as they leave. Cable
# modems use it (DOCSIS-PIE, RFC 8034).
#
# Here are all three on a link whose rate falls to a fifth after 7 seconds and recovers after 14, as radio links do:

# %%
seconds = 21
changes = [(seconds / 3, 4), (2 * seconds / 3, 20)]
cct.plot.queue(
    {
        name: cct.simulate(office(aqm, seconds=seconds).replace({"bottleneck.rate_schedule": changes}))
        for name, aqm in AQMS.items()
    }
)

# %% [markdown]
# Nobody can avoid the peak: what was in flight for 20 Mbit/s now arrives at a link of 4. What counts is how soon it is
# gone, and what the delay is afterwards.
#
# ## How many flows?
#
# The other thing you cannot know when you set parameters is the number of flows. Move the slider. Which of them keeps
# its promise with one flow, and which with forty?

# %%
from ipywidgets import IntSlider, interact


@interact(flows=IntSlider(4, 1, 40, description="flows"))
def crowd(flows: int):
    runs = {name: cct.simulate(office(aqm, flows=flows, seconds=8)) for name, aqm in AQMS.items()}
    used = ", ".join(f"{name} {run.summary()['utilisation']:.0%}" for name, run in runs.items())
    return cct.plot.queue(runs).update_layout(title_text=f"{flows} flows; link used: {used}")


# %% [markdown]
# With one flow, RED and CoDel leave the link idle at times, while PIE uses its 15 ms to keep it busy. With forty flows,
# RED's average climbs its slope, CoDel's drops come too slowly (they speed up only as its law allows), and PIE, which
# does not care why there is a queue, finds its target after a while. What is best depends on what you want, but only
# RED had to know the rate.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# CoDel's target is 5 ms. Why not 1? Why not 50? Try targets of 1, 2, 5, 10, 20 and 50 ms with one flow
# (`office(cct.aqm.CoDel(target_ms=…), flows=1)`) and draw utilisation over delay
# (`cct.plot.trade_off(table, by="target")`).
#
# <details><summary>Hint</summary>
#
# Collect `cct.simulate(…).summary()` for each target into a table with a column `target`, and pass it to
# `cct.plot.trade_off`.
#
# </details>

# %% tags=["solution"]
cct.plot.trade_off(
    pd.DataFrame(
        [
            {"target": f"{ms} ms"} | cct.simulate(office(cct.aqm.CoDel(target_ms=ms), flows=1)).summary()
            for ms in (1, 2, 5, 10, 20, 50)
        ]
    ),
    by="target",
)

# %% [markdown] tags=["solution"]
# Below 5 ms, the delay hardly gets shorter and the link idles; above 20 ms, all you add is delay. RFC 8289 (section
# 4.3) puts the target at 5 to 10 % of the interval, on the shoulder of such a curve.

# %% [markdown]
# ### Exercise 2
#
# Give RED thresholds that fit 5 Mbit/s. What happens with them at 50?
#
# <details><summary>Hint</summary>
#
# Thresholds in packets mean a time only at one rate. What were 10 and 30 packets at 20 Mbit/s, and how many packets is
# that at 5?
#
# </details>

# %% tags=["solution"]
for rate_mbps in (5, 20, 50):
    found = cct.simulate(office(cct.aqm.Red(min_packets=2.5, max_packets=7.5), rate_mbps)).summary()
    print(f"{rate_mbps} Mbit/s: {found['mean_delay_ms']:.1f} ms, {found['utilisation']:.0%} of the link")

# %% [markdown] tags=["solution"]
# A quarter of the thresholds for a quarter of the rate: the delay is short again, and faster links idle even more. No
# pair of numbers fits all.

# %% [markdown]
# ### Exercise 3
#
# PIE lets bursts pass: for the first 150 ms after a quiet period it drops nothing (`burst_ms`, RFC 8033, section 4.4).
# Take that away with `cct.aqm.Pie(burst_ms=0)` and look at the first seconds. What else causes that first peak?
#
# <details><summary>Hint</summary>
#
# Draw both runs with `cct.plot.queue({"0 ms": …, "150 ms": …})` for the first five seconds. How fast does p grow from
# zero, and how fast does slow start?
#
# </details>

# %% tags=["solution"]
cct.plot.queue({f"{ms} ms": cct.simulate(office(cct.aqm.Pie(burst_ms=ms), seconds=5)) for ms in (0, 150)})

# %% [markdown] tags=["solution"]
# It changes little: p starts at 0 and moves in small steps while it is small (the table in section 4.2), so PIE takes
# its time against slow start, which doubles every round trip. Every adaptive AQM pays that price once.

# %% [markdown]
# ## Questions
#
# - RED, CoDel and PIE all drop packets on purpose, although there is room. Why is that better than waiting until the
#   buffer is full?
# - CoDel decides when a packet leaves, RED and PIE when it arrives. Which of them learns sooner that a flow has slowed
#   down? Which can be built into a switch that only knows lengths?
# - With a packet of 12 000 bits on a link of 1 Mbit/s, can CoDel hold 5 ms?
# - Why does an AQM not make flows' shares fair? (Lesson 5 measures it.)

# %% [markdown] tags=["solution"]
# - A drop is a message, and TCP slows down only when it gets one. An early one costs a retransmission after a short
#   round trip. A full buffer sends it only after everyone has waited behind hundreds of packets, and the
#   retransmission has to wait behind them, too.
# - CoDel: the delay of the packet at the head reflects the queue now; the packet at the tail will show it only after it
#   has waited. But an earlier signal is better, too, and dropping on arrival costs no memory bandwidth, which is why
#   hardware favours PIE.
# - No: one packet takes 12 ms. RFC 8289 wants a target of at least one packet's transmission time, and CoDel never
#   drops when at most one more packet is waiting.
# - It treats all packets alike, so a flow with more packets gets more signals; but its rate depends on how it reacts,
#   and above all on its round-trip time. Sharing is the scheduler's job.
