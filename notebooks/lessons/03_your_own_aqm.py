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
# # Your own queue management, raced against CoDel
#
# **Takes** an hour, or an afternoon if you get caught by it.
#
# **The question.** CoDel is one page of pseudo code. Can you write something better in ten lines? And what would
# "better" mean?
#
# **You need** lesson `02_red_codel_pie`, and to be able to read Python.

# %% tags=["parameters"]
import os

FAST = os.environ.get("FAST", "") not in ("", "0")  # one seed instead of three

# %% [markdown]
# ## Ten lines
#
# An AQM is a class with parameters (with their types), perhaps a `State` that it remembers, and a function that is
# asked about each packet: `on_enqueue` when it comes, `on_dequeue` when it is its turn to leave. The answer is
# `PASS`, `DROP`, or `MARK`, which drops only packets that do not know ECN. There is no `self`: `p` has the
# parameters (each `…_ms` as `…_ns`, too), `s` the state. All it may know of `queue` and `packet` is in
# `help(cct.aqm)`.
#
# This one has no memory at all. It looks at what the packet has waited, and drops by chance, more boldly the longer
# that was. **Change it as you like**: it is yours.

# %%
import cctoolkit as cct
from cctoolkit.aqm import MARK, PASS, Aqm, random


class Mine(Aqm):
    """One packet in a hundred at the target, four in a hundred at twice the target, and so on."""

    target_ms: float = 10.0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        waited = (now_ns - packet.enqueued_ns) / p.target_ns
        if random(queue) < 0.01 * waited**2:
            return MARK
        return PASS


# %% [markdown]
# When a scenario runs, the function is compiled to machine code and called for every packet, a few million times a
# second. The races wait in `cct.aqm_league.RACES`; here is one of them:

# %%
from cctoolkit.experiments.league import RACES

race = RACES["changing link"]


def runs(*aqms: Aqm | str, scenario: cct.Scenario = race) -> dict[str, cct.Run]:
    return {
        aqm if isinstance(aqm, str) else aqm.name: cct.simulate(scenario.replace({"bottleneck.aqm": aqm}))
        for aqm in aqms
    }


cct.plot.queue(runs(Mine(), "codel"))

# %% [markdown]
# ## Mistakes
#
# will happen, and say where. This one has one; which? (Here `try` catches it so that the notebook goes on. You will
# get the same line in red.)


# %%
class Mistaken(Aqm):
    limit_ms: float = 10.0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        if now_ns - packet.enqueue_ns > p.limit_ns:
            return MARK
        return PASS


try:
    cct.simulate(race.replace({"bottleneck.aqm": Mistaken()}))
except cct.AlgorithmError as mistake:
    print(mistake)

# %% [markdown]
# ## Predict
#
# In the league everybody runs the same three scenarios with the same three seeds: one upload beside a call at home,
# twelve flows at rush hour, and a link whose rate falls to a fifth. What counts is
#
# $$\text{score} = \underbrace{\text{share of the link that is used}}_{\text{not idle}} \times
# \underbrace{\frac{\text{base RTT}}{\text{base RTT} + \text{mean queueing delay}}}_{\text{not late}} \times
# \underbrace{\text{Jain's index}}_{\text{not unfair}}$$
#
# The first two are Kleinrock's *power* (1979), the third is there because starving everybody but one is quick, too.
# A score of 1 is a full link without a queue, evenly shared. Which place will `Mine` have among the seven below,
# which CoDel? Who will be last?

# %%
prediction = {"place of Mine": None, "place of CoDel": None, "last": None}

# %%
from cctoolkit.experiments.lessons import compare_prediction

aqms = {
    "Mine": Mine(),
    "tail drop": "tail_drop",
    "RED": "red",
    "CoDel": "codel",
    "PIE": "pie",
    "DualPI2": "dualpi2",
    "FQ-CoDel": "fq_codel",
}
results = cct.league(aqms, seeds=1 if FAST else 3)
table = cct.standings(results)
compare_prediction(
    prediction,
    {
        "place of Mine": int(table["rank"]["Mine"]),
        "place of CoDel": int(table["rank"]["CoDel"]),
        "last": table.index[-1],
    },
)

# %% [markdown]
# The league table. Who beats another with *every* seed is ranked before it; those who are ahead of each other by
# turns share a rank. `low` and `high` are the worst and the best seed, and the last columns the races.

# %%
table.round(3)

# %% [markdown]
# And what the score is made of: each mark is a run.

# %%
cct.plot.trade_off(results)

# %% [markdown]
# Two lines without memory beat CoDel! Have Nichols and Jacobson missed something? Before you write to them: *you have
# seen the races before you wrote your AQM*, or at least I have.
#
# ## Away
#
# All three races are 20 to 80 ms long. CoDel promises to work from 10 ms to a second without being told (RFC
# 8289). So let both play away: one flow, 100 Mbit/s, and you choose the distance. Watch what is used of the link
# as it gets longer.

# %%
from ipywidgets import FloatSlider, IntSlider, interact


@interact(
    rtt_ms=IntSlider(40, 10, 300, 10, description="RTT (ms)"),
    target_ms=FloatSlider(10, min=1, max=50, step=1, description="target (ms)"),
)
def away(rtt_ms: int, target_ms: float):
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=100, buffer_packets=2000),
        flows=[cct.Flow("cubic", rtt_ms=rtt_ms, jitter_ms=1)],
        duration_s=15,
    )
    both = runs(Mine(target_ms=target_ms), "codel", scenario=scenario)
    used = ", ".join(f"{name} {run.summary()['utilisation']:.0%}" for name, run in both.items())
    return cct.plot.queue(both).update_layout(title_text=f"{rtt_ms} ms; link used: {used}")


# %% [markdown]
# A flow that is far away recovers slowly from a loss. CoDel waits for a whole interval before it believes in a
# standing queue, and then drops one packet. `Mine` throws its dice for every packet that waits a little, and the
# more packets there are in a round trip, the more often it hits. Its 1 % fits the races at home, and nothing else.
# That is what RED's thresholds were, in another coat.

# %% [markdown]
# ## Exercises
#
# **1.** The impatient one: signal *every* packet that has waited for more than 5 ms. Write it, and look at its row of
# the league. What is it bad at?


# %% tags=["solution"]
class Impatient(Aqm):
    limit_ms: float = 5.0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return MARK if now_ns - packet.enqueued_ns > p.limit_ns else PASS


cct.league({"Impatient": Impatient(), "CoDel": "codel"}, seeds=1).round(3)

# %% [markdown] tags=["solution"]
# At sharing, and at keeping the link full. A burst that is 6 ms long loses its whole tail: whoever sent it pays for
# all, and several flows are hit at the same moment and leave a gap together. (Marks like these are what L4S senders
# are made for: lesson 4.)

# %% [markdown]
# **2.** Write a *fair* one: who has more packets in the queue than others shall be signalled more often. Count each
# flow's waiting packets in an array of the state, `waiting = np.zeros(64, np.int64)`, by `packet.flow % 64`. Does
# Jain's index at rush hour get better? Why does FQ-CoDel do that so much better still?

# %% tags=["solution"]
import numpy as np


class Fair(Aqm):
    target_ms: float = 10.0

    class State:
        waiting = np.zeros(64, np.int64)  # packets by flow

    def on_enqueue(p, s, stats, queue, packet, now_ns):
        if queue.packets < queue.limit_packets:  # else it is dropped
            s.waiting[packet.flow % 64] += 1
        return PASS

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        mine, flows = s.waiting[packet.flow % 64], (s.waiting > 0).sum()
        s.waiting[packet.flow % 64] -= 1
        share = mine * flows / (queue.packets + 1)  # 1: as many as the others
        waited = (now_ns - packet.enqueued_ns) / p.target_ns
        return MARK if random(queue) < 0.01 * (share * waited) ** 2 else PASS


league = cct.league({"Mine": Mine(), "Fair": Fair(), "FQ-CoDel": "fq_codel"}, seeds=1)
league.pivot_table("jain_index", "aqm", "scenario", sort=False).round(3)

# %% [markdown] tags=["solution"]
# Better, but it has only drops to talk with, and a far flow that loses as much as a near one still gets less.
# FQ-CoDel is more than an AQM: it has a queue for each flow and serves them in turn (RFC 8290).

# %% [markdown]
# **3.** "Better" is a choice. Rank the seven by what 99 % of the packets do not exceed (`delay_p99_ms`; more has to
# be better, so make it negative) and use `cct.standings(…, by="…")`. Who wins now?

# %% tags=["solution"]
cct.standings(results.assign(quick=-results.delay_p99_ms), by="quick").round(1)

# %% [markdown]
# **4.** Make the league harder to be lucky in: add a race of 200 ms and one with a UDP flood of three quarters of the
# link (`cct.league(aqms, {**RACES, "far": …, "flood": …})`). Where does `Mine` end? And why does FQ-CoDel look so bad
# in the flood: is it?

# %% tags=["solution"]
far = cct.Scenario(
    bottleneck=cct.Bottleneck(rate_mbps=50, buffer_packets=2000),
    flows=[cct.Flow("cubic", rtt_ms=200, jitter_ms=1)],
    duration_s=20 if FAST else 60,
)
flood = cct.Scenario(
    bottleneck=cct.Bottleneck(rate_mbps=20, buffer_packets=500),
    flows=[cct.Flow("cubic", rtt_ms=40, jitter_ms=1, count=2), cct.Flow("udp", rate_mbps=15, start_s=5)],
    duration_s=20,
)
few = {name: aqms[name] for name in ("Mine", "CoDel", "FQ-CoDel")}
cct.standings(cct.league(few, {**RACES, "far": far, "flood": flood}, seeds=1)).round(3)

# %% [markdown] tags=["solution"]
# Far away `Mine` falls behind. The flood is where the score misleads: under FQ-CoDel the flood waits in a queue of
# its own, and its long delays spoil the mean over all packets, while the two who behave wait for nothing and have
# their thirds. One number never says for whom.

# %% [markdown]
# ## Questions
#
# - Your AQM decided when packets left. What could it not do, had it to decide when they come?
# - `Mine` has one parameter and CoDel two. Why is that no answer to "which is easier to configure"?
# - What would you put into a league that vendors cannot train for?
# - The score multiplies. What would change if it added, with weights? Who would choose the weights?

# %% [markdown] tags=["solution"]
# - It would not know the packet's wait, only how long the queue is and how fast it went lately.
# - What counts is over which range of rates, distances and numbers of flows one setting works. CoDel's interval is
#   one round trip of the whole Internet, give or take.
# - Rates, distances and mixes drawn at random after the entries are in; real captures' flows
#   (`cct.scenario_from_capture`).
# - With a sum one can do terribly in one thing and make up for it elsewhere; with a product a zero stays a zero.
#   Weights are opinions about who matters, and belong to those who are affected.
