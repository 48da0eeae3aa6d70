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
# # Your own queue management, raced against CoDel
#
# **Takes** an hour, or an afternoon if you get hooked.
#
# **The question.** CoDel is one page of pseudocode. Can you write something better in ten lines? And what would
# "better" mean?
#
# **You need** lesson `02_red_codel_pie`, and some Python.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # one seed instead of three

# %% [markdown]
# ## Ten lines
#
# An AQM is a class with typed parameters, optionally a `State`, and a function that is called for each packet:
# `on_enqueue` when it arrives, `on_dequeue` when it is about to leave. The function returns `PASS`, `DROP`, or
# `MARK`, which marks packets with ECN and drops the others. There is no `self`: `p` has the parameters (each `…_ms` also as `…_ns`), `s` the
# state. `help(cct.aqm)` lists what it may read from `queue` and `packet`.
#
# This one has no memory at all. It looks at how long the packet has waited, and drops at random, more often the longer
# the wait. **Change it as you like**: it is yours.

# %%
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
# When a scenario runs, the function is compiled to machine code and called for every packet, a few million times per
# second. The races are in `RACES`; here is one of them:

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
# You will make some, and the message says where. Can you spot this one? (`try` catches it here so that the notebook
# continues; otherwise you get the same line in red.)


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
# In the league everyone runs the same three scenarios with the same three seeds: one upload during a call at home,
# twelve flows at rush hour, and a link whose rate falls to a fifth. The score is
#
# $$\text{score} = \underbrace{\text{share of the link that is used}}_{\text{not idle}} \times
# \underbrace{\frac{\text{base RTT}}{\text{base RTT} + \text{mean queueing delay}}}_{\text{not late}} \times
# \underbrace{\text{Jain's index}}_{\text{not unfair}}$$
#
# The first two factors are Kleinrock's *power* (1979). The third is there because starving all flows but one also keeps
# a queue short. A score of 1 is a full link without a queue, evenly shared. Among the seven below, which places will
# `Mine` and CoDel take, from `"1st"` to `"7th"`? Which one will be last?

# %%
prediction = {"place of Mine": None, "place of CoDel": None, "last": None}

# %%
aqms = {
    "Mine": Mine(),
    "tail drop": "tail_drop",
    "RED": "red",
    "CoDel": "codel",
    "PIE": "pie",
    "DualPI2": "dualpi2",
    "FQ-CoDel": "fq_codel",
}
PLACES = ["1st", "2nd", "3rd", "4th", "5th", "6th", "7th"]
results = cct.league(aqms, seeds=1 if FAST else 3)
table = cct.standings(results)
cct.lessons.compare_prediction(
    prediction,
    {
        "place of Mine": PLACES[table["rank"]["Mine"] - 1],
        "place of CoDel": PLACES[table["rank"]["CoDel"] - 1],
        "last": table.index[-1],
    },
)

# %% [markdown]
# Here is the league table. An AQM that beats another with *every* seed ranks above it; those that take turns share a
# rank. `low` and `high` are the worst and the best seed, and the last columns are the races.

# %%
table.round(3)

# %% [markdown]
# The next figure shows what the score is made of; each mark is a run.

# %%
cct.plot.trade_off(results)

# %% [markdown]
# Two lines without memory beat CoDel! Did Nichols and Jacobson miss something? Before you write to them: `Mine` was
# tuned on *these* races.
#
# ## An away game
#
# All three races have RTTs of 20 to 80 ms. CoDel claims to work from 10 ms to a second without tuning (RFC 8289). So
# let both play away: one flow, 100 Mbit/s, and you choose the RTT. Watch the utilisation as it grows.

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
# A flow with a long RTT recovers slowly from a loss. CoDel waits for a whole interval before it assumes a standing
# queue, and then drops one packet. `Mine` rolls the dice for every packet that waits a little, and the more packets
# there are in a round trip, the more often it hits. Its 1 % fits the home races and nothing else: RED's thresholds in a
# new guise.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# Write an impatient AQM that signals *every* packet that has waited for more than 5 ms, and look at its row of the
# league. What is it bad at?
#
# <details><summary>Hint</summary>
#
# `Mine` with one condition instead of a probability. In the league's table, look at `jain_index` and `utilisation`.
#
# </details>


# %% tags=["solution"]
class Impatient(Aqm):
    limit_ms: float = 5.0

    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return MARK if now_ns - packet.enqueued_ns > p.limit_ns else PASS


cct.league({"Impatient": Impatient(), "CoDel": "codel"}, seeds=1).round(3)

# %% [markdown] tags=["solution"]
# Sharing, and keeping the link full. A 6 ms burst loses its whole tail: its sender pays for everyone, and several flows
# are hit at the same moment and back off together. (L4S senders are made for marks like these: lesson 4.) Its mean
# score is still higher than CoDel's: the score rewards its short queue more than it punishes this.

# %% [markdown]
# ### Exercise 2
#
# Write a *fair* one: a flow with more packets in the queue than others gets signalled more often. Count each flow's
# waiting packets in an array of the state, `waiting = np.zeros(64, np.int64)`, by `packet.flow % 64`. Does Jain's index
# at rush hour get better? Why is FQ-CoDel still so much better?
#
# <details><summary>Hint</summary>
#
# Count up in `on_enqueue` (unless the queue is full) and down in `on_dequeue`. A flow with its fair share has
# `queue.packets / flows` packets waiting.
#
# </details>

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
# It does, but drops are its only means, and a flow with a long RTT that loses as much as one with a short RTT still
# gets less. FQ-CoDel is more than an AQM: it has a queue for each flow and serves them in turn (RFC 8290).

# %% [markdown]
# ### Exercise 3
#
# "Better" is a choice. Rank the seven by the 99th percentile of the delay (`delay_p99_ms`; more must be better, so
# negate it) with `cct.standings(…, by="…")`. Who wins now?
#
# <details><summary>Hint</summary>
#
# `results.assign(quick=-results.delay_p99_ms)` adds the column; then `by="quick"`.
#
# </details>

# %% tags=["solution"]
cct.standings(results.assign(quick=-results.delay_p99_ms), by="quick").round(1)

# %% [markdown]
# ### Exercise 4
#
# Make the league harder to win by luck: add a race with an RTT of 200 ms, and one with a UDP flood of three quarters of
# the link (`cct.league(aqms, {**RACES, "far": …, "flood": …})`). Where does `Mine` end up? And why does FQ-CoDel look
# so bad in the flood? Is it?
#
# <details><summary>Hint</summary>
#
# A race is a `cct.Scenario`. In the flood, look at the delays of the two TCP flows alone before you judge FQ-CoDel.
#
# </details>

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
# At 200 ms `Mine` falls behind. In the flood the score misleads: under FQ-CoDel the flood waits in a queue of its own,
# and its long delays spoil the mean over all packets, while the two responsive flows hardly wait and get a third each.
# A single number never says for whom.

# %% [markdown]
# ## Questions
#
# - Your AQM decides when packets leave. What could it not do if it had to decide when they arrive?
# - `Mine` has one parameter and CoDel two. Why does this not answer the question "which is easier to configure"?
# - What would you put into a league that vendors cannot tune for?
# - The score multiplies. What would change if it added, with weights? Who would choose the weights?

# %% [markdown] tags=["solution"]
# - It would not know the packet's delay, only how long the queue is and how fast it has been draining.
# - What counts is the range of rates, RTTs and numbers of flows over which one setting works. CoDel's interval is about
#   one Internet round trip, give or take.
# - Rates, RTTs and mixes drawn at random after the entries are in; real captures' flows (`cct.scenario_from_capture`).
# - With a sum you can fail at one thing and make up for it elsewhere; with a product a zero stays a zero. Weights are
#   opinions about who matters, and belong to those who are affected.
