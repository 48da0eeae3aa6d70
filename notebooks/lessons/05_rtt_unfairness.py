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
# # RTT unfairness: why the nearer server wins
#
# **Takes** 45 minutes with the exercises.
#
# **The question.** Two downloads use the same software and the same link at the same time. One server is in town, the
# other overseas. Which gets more, how much more, and can anyone on the path do anything about it?
#
# **You need** lesson `01_bufferbloat`.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # shorter runs

# %% [markdown]
# ## Two flows
#
# Reno is the textbook TCP (RFC 5681): the window grows by one packet per round trip and is halved at a loss. One flow
# has an RTT of 10 ms, the other has 80 ms. The link has 20 Mbit/s and a buffer of 33 packets.


# %%
def two(
    cca: str = "reno", far_ms: float = 80, aqm: str = "tail_drop", buffer_packets: int = 33
) -> cct.Scenario:
    return cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=buffer_packets, aqm=aqm),
        flows=[
            cct.Flow(cca, rtt_ms=10, jitter_ms=1, name="near"),
            cct.Flow(cca, rtt_ms=far_ms, jitter_ms=1, name="far"),
        ],
        duration_s=20 if FAST else 60,
    )


def share(run: cct.Run) -> float:
    """What the near flow gets of all that both get, in percent."""
    rate = run.flows.goodput_mbps
    return 100 * rate[0] / (rate[0] + rate[1])


def repeated(scenario: cct.Scenario) -> list[cct.Run]:
    """Five runs that differ by chance."""
    return [cct.simulate(scenario.replace({"seed": seed})) for seed in range(1, 6)]


# %% [markdown]
# ## Predict
#
# What share of the link does the near flow get? Write it down for Reno, for CUBIC (whose growth depends on time, not on
# round trips; RFC 9438), and for BBR, which looks at rates instead of losses. Chance plays a part, so what is measured
# is the mean of five runs.

# %%
prediction = {
    "Reno: near flow's share, %": None,
    "CUBIC: near flow's share, %": None,
    "BBR: near flow's share, %": None,
}

# %%
from statistics import mean

measured = {cca: repeated(two(cca)) for cca in ("reno", "cubic", "bbr")}
cct.lessons.compare_prediction(
    prediction,
    {
        f"{name}: near flow's share, %": mean(share(run) for run in measured[name.lower()])
        for name in ("Reno", "CUBIC", "BBR")
    },
)

# %% [markdown]
# ## Why
#
# A flow sends one window per round trip, so rate = window / RTT: with equal windows, eight times the RTT means an
# eighth of the rate. And the windows are not equal: the near flow's grows by a packet every 10 ms, the far flow's every
# 80 ms.

# %%
cct.plot.window(measured["reno"][0])

# %% [markdown]
# If both flows lost a packet at the same rate p, the far one's share would follow from Mathis, Semke, Mahdavi and Ott
# ("The macroscopic behavior of the TCP congestion avoidance algorithm", 1997):
#
# $$\text{rate} = \frac{\text{segment size}}{\text{RTT}} \sqrt{\frac{3}{2p}}$$
#
# that is, rates are proportional to RTT to the power of −1. If both lose at the same *moments* the exponent is −2
# (Lakshman and Madhow, "The performance of TCP/IP for networks with high bandwidth-delay products and random loss",
# 1997). Which is it here? What counts is the RTT *including* the queue they share:

# %%
import pandas as pd

run = measured["reno"][0]
pd.concat(
    {
        "RTT without queue": cct.rtt_unfairness(run.flows.goodput_mbps, run.flows.base_rtt_ms).iloc[0],
        "RTT with queue": cct.rtt_unfairness(run.flows.goodput_mbps, run.flows.mean_rtt_ms).iloc[0],
    },
    axis=1,
).loc[["rtt_ratio", "throughput_ratio", "exponent"]].round(2)

# %% [markdown]
# The exponent is in between, as the losses are partly shared.
#
# ## How far is far?
#
# Move the far server. Then make the buffer larger: which of the two flows benefits, and at what price? Then change the
# congestion control.

# %%
from ipywidgets import Dropdown, IntSlider, interact


@interact(
    far_ms=IntSlider(80, 10, 200, 10, description="far RTT (ms)"),
    buffer_packets=IntSlider(33, 10, 300, 10, description="buffer"),
    cca=Dropdown(options=["reno", "cubic", "bbr", "htcp", "vegas"], description="TCP"),
)
def distance(far_ms: int, buffer_packets: int, cca: str):
    run = cct.simulate(two(cca, far_ms, buffer_packets=buffer_packets).replace({"duration_s": 60}))
    waiting = run.summary()["mean_delay_ms"]
    title = f"near flow gets {share(run):.0f} %; both wait {waiting:.0f} ms in the queue"
    return cct.plot.goodput(run).update_layout(title_text=title)


# %% [markdown]
# With Reno and CUBIC, a large buffer makes it fairer: 10 and 80 ms are 1 : 8, but 110 and 180 ms are only 1 : 1.6, so
# after a minute the shares are closer. Bufferbloat as a cure! BBR usually reverses it, and the more buffer, the more
# clearly: it keeps up to two bandwidth-delay products in flight, computed with its *own* RTT, so the far flow has more
# packets in the queue, and the near one gets the rest of the link.
#
# ## Does AQM help?
#
# It shortens the delay. What about the shares?

# %%
QUEUES = {
    "small buffer": ("tail_drop", 33),
    "large buffer": ("tail_drop", 300),
    "CoDel": ("codel", 300),
    "FQ-CoDel": ("fq_codel", 300),
}
rows = []
for cca in ("reno", "cubic", "bbr"):
    for name, (aqm, buffer_packets) in QUEUES.items():
        runs = repeated(two(cca, aqm=aqm, buffer_packets=buffer_packets))
        rows.append(
            {
                "TCP": cca,
                "queue": name,
                "near share, %": mean(share(run) for run in runs),
                "delay, ms": mean(run.summary()["mean_delay_ms"] for run in runs),
                "link used, %": mean(100 * run.summary()["utilisation"] for run in runs),
            }
        )
pd.DataFrame(rows).set_index(["TCP", "queue"]).round(0).astype(int)

# %% [markdown]
# For Reno and CUBIC, CoDel is hardly better than the small buffer: without queueing delay, base RTTs count in full.
# What helps is a queue per flow, served in turn (FQ-CoDel, RFC 8290): then it hardly matters what the others send. With
# Reno, the shares are not quite even, because the far flow cannot always use its turn. Notebook `01_rtt_fairness` shows
# another way for routers that have only a few queues: one per *class of RTTs*.
#
# ## Real kernels
#
# These are the testbed's captures of Linux's own TCP, 10 and 80 ms (`traces/README.md` says how they were made). On this
# slower link, a full buffer of 30 packets adds 60 ms: the RTTs of Reno and CUBIC are then 70 and 140 ms, only 1 : 2.

# %%
real = {}
for cca in ("reno", "cubic", "bbr"):
    found = cct.load_run(f"../../traces/testbed/rtt-{cca}")
    bottleneck = found.scenario.bottleneck
    real[cca] = {
        "near share, %": share(found),
        "link, Mbit/s": bottleneck.rate_mbps,
        "buffer, packets": bottleneck.buffer_packets,
    }
pd.DataFrame(real).T.round(0).astype(int)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# Measure the near share for far RTTs of 10, 20, 40, 80 and 160 ms with Reno and with CUBIC. Which curve is flatter, and
# is CUBIC really independent of the RTT?
#
# <details><summary>Hint</summary>
#
# `share(cct.simulate(two(cca, far_ms)))` for each distance. At what window does CUBIC switch from Reno's growth to its
# own?
#
# </details>

# %% tags=["solution"]
distances = (10, 20, 40, 80, 160)
shares = {cca: [share(cct.simulate(two(cca, far_ms))) for far_ms in distances] for cca in ("reno", "cubic")}
pd.DataFrame(shares, index=pd.Index(distances, name="far RTT, ms")).round(0)

# %% [markdown] tags=["solution"]
# CUBIC's is flatter at first: its window grows with the time since the last loss. But the rate is still the window over
# the RTT, and on small links like this one CUBIC has the average window that Reno would have, for compatibility (RFC
# 9438, section 4.3).

# %% [markdown]
# ### Exercise 2
#
# The far user opens four connections at once (`{"flows.1.count": 4}`). Fair now? To whom?
#
# <details><summary>Hint</summary>
#
# `two().replace({"flows.1.count": 4})`. Add up the four, then compare users and flows.
#
# </details>

# %% tags=["solution"]
four = cct.simulate(two().replace({"flows.1.count": 4}))
print(four.flows.goodput_mbps.round(1).tolist(), f"Jain's index {four.summary()['jain_index']:.2f}")

# %% [markdown] tags=["solution"]
# Together the four get more than the one did, but each of them still gets little. Fairness per flow is easy to game by
# opening more flows, which is why the P4-ABC paper (notebook `03_p4_abc`) looks at users.

# %% [markdown]
# ### Exercise 3
#
# `../../traces/rtt-unfairness` was captured on a real machine: two Reno flows. Which ports do the near and the far flow
# use, what share does the near one get, and what is the exponent?
#
# <details><summary>Hint</summary>
#
# `cct.load_run` reads the labels, too: `labels.base_rtt_ms` and `labels.sport`. `cct.rtt_unfairness` computes the
# exponent.
#
# </details>

# %% tags=["solution"]
capture = cct.load_run("../../traces/rtt-unfairness")
print(capture.labels[["sport", "base_rtt_ms"]])
cct.rtt_unfairness(capture.flows.goodput_mbps, capture.flows.base_rtt_ms).round(2)

# %% [markdown]
# ## Questions
#
# - Is it unfair at all that the near flow gets more? It uses a shorter path.
# - Content providers put servers into every town. Name two effects from this lesson that they benefit from.
# - What would have to change to make BBR's unfairness go away: senders, routers, or both?
# - Jain's index of shares 90 : 10 is 0.61, and of 50 : 50 it is 1. What is it if the link is half idle and both get the
#   same? Why does fairness alone say little?

# %% [markdown] tags=["solution"]
# - You can defend it: "proportional" fairness weighs what a flow costs all links together. But with one bottleneck both
#   cost the same there, and the user of the far server pays the same price.
# - Shorter completion times from the shorter round trip itself, and a larger share wherever they share a queue with a
#   flow from farther away.
# - Either. BBR version 3 probes less and reacts to losses; a router with a queue per flow needs no help from senders.
# - Still 1. A hard limit per flow makes everyone equal and leaves the link idle: always report utilisation with it.
