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
# # Fair to users, without knowing them: ABC
#
# **Takes** an hour and a half with the exercises; all cells together compute for about two minutes (less than one with
# `FAST=1`).
#
# **The question.** Two users share a link. One sends twice as much, or opens ten connections, or floods the link. A
# switch with a queue per user can stop that. Can a switch that knows nothing about users?
#
# Menth, Mostafaei, Merling and Häberle ("Implementation and Evaluation of Activity-Based Congestion Management Using P4
# (P4-ABC)") say yes. The network's edge meters every user and writes the result, the *activity*, into each packet.
# Inside the network, a switch compares the packets' activities and drops those of the most active users first. This
# notebook builds the scheme step by step, reproduces the paper's three experiments, and looks into why one of them does
# not come out as printed.
#
# **You need** to have seen `00_start`, and to know what a queue discipline is (`lessons/01_bufferbloat`,
# `lessons/02_red_codel_pie`).

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # fewer and shorter runs: for a quick look, not for results

# %% [markdown]
# ## 1. Activity
#
# The edge measures each user's rate with an exponentially decaying memory of $M$ = 3 s and takes its logarithm: the
# activity is $A = \log_2(R_m / R_r)$, with a reference rate $R_r$ of 10 kbit/s. One step of $A$ is a factor of two.
# Here are two users: one sends 5 Mbit/s all the time; the other sends 1 Mbit/s, and 40 Mbit/s between the fourth and
# the eighth second. Move the slider: for how long does the burst count against the user?

# %%
import numpy as np
import pandas as pd
from cctoolkit.aqm.abc import activities
from cctoolkit.plot.style import figure
from ipywidgets import FloatLogSlider, FloatSlider, IntSlider, interact

pd.set_option("display.max_colwidth", None)

steady_ns = np.arange(0, 15e9, 1514 * 8e9 / 5e6)  # packets of 1514 bytes at 5 Mbit/s
burst_ns = np.concatenate([np.arange(0, 15e9, 1514 * 8e9 / 1e6), np.arange(4e9, 8e9, 1514 * 8e9 / 39e6)])
ts_ns = np.concatenate([steady_ns, burst_ns])
user = np.repeat([0, 1], [len(steady_ns), len(burst_ns)])
order = np.argsort(ts_ns, kind="stable")
ts_ns, user = ts_ns[order], user[order]


@interact(memory_s=FloatLogSlider(value=3, base=10, min=-1, max=1.5, step=0.05, description="M, s"))
def meter(memory_s: float = 3.0):
    found = activities(ts_ns, np.full(len(ts_ns), 1514), user, meter_memory_s=memory_s)
    fig = figure(f"Activity of two users, memory {memory_s:.2g} s", height=360)
    for number, name in enumerate(("5 Mbit/s", "1 Mbit/s, from 4 to 8 s 40")):
        mine = np.flatnonzero(user == number)[1::8]  # every eighth packet, without the first
        fig.add_scatter(x=ts_ns[mine] / 1e9, y=found[mine], name=name, mode="lines")
    return fig.update_xaxes(title_text="s", range=[0, 15]).update_yaxes(title_text="activity", range=[5, 16])


# %% [markdown]
# The meter of a new user knows the rate at once, because it divides by the time since the first packet; for the first
# two packets, this time is short. Remember this for section 6.
#
# ## 2. Which packets are dropped
#
# A packet is dropped when the queue is longer than its threshold,
#
# $$T(A) = \max\bigl(Q_{min},\; Q_{base} - \gamma\,(A - \overline{A})\bigr),$$
#
# where $\overline{A}$ is the average activity of recently accepted packets. The paper has $Q_{min}$ = 6, $Q_{base}$ =
# 20 and $\gamma$ = 16 packets. How long may the queue be for each of two users, and how do the thresholds change when
# one sends more than it gets?

# %%
Q_MIN, Q_BASE, BUFFER = 6, 20, 24


def threshold(excess: float, gamma: float) -> float:
    return max(Q_MIN, Q_BASE - gamma * excess)


@interact(
    sent=FloatSlider(value=90, min=10, max=100, step=5, description="0 sends"),
    got=FloatSlider(value=32, min=2, max=46, step=1, description="0 gets"),
    gamma=FloatSlider(value=16, min=0.5, max=32, step=0.5, description="gamma"),
)
def thresholds(sent: float = 90.0, got: float = 32.0, gamma: float = 16.0):
    """User 0 sends a constant rate, user 1 adapts and gets the rest of 50 Mbit/s: what the switch compares."""
    rates, share = np.array([sent, 50 - got]), np.array([got, 50 - got]) / 50
    activity = np.log2(rates / 0.01)
    excess = activity - (share * activity).sum()
    limits = [threshold(x, gamma) for x in excess]
    fig = figure("The queue at which packets are dropped", height=360)
    fig.add_bar(x=[f"user 0: {sent:.0f} Mbit/s", f"user 1: {50 - got:.0f} Mbit/s"], y=limits,
                text=[f"{t:.1f}" for t in limits], marker_color=["#0072B2", "#D55E00"])  # fmt: skip
    fig.add_hline(
        y=BUFFER,
        line={"dash": "dot", "color": "#767676"},
        annotation_text="the buffer",
        annotation_position="top left",
    )
    return fig.update_yaxes(title_text="packets", range=[0, 60])


# %% [markdown]
# ## 3. Two constant rates: the paper's figure 4
#
# Client 1 sends 40 Mbit/s, client 0 between 10 and 100, into a link of 50 Mbit/s with a buffer of 24 packets.
#
# **Before you run the next cell:** draw both clients' goodput against client 0's rate, without ABC and with it. What
# happens at the point where the two lines cross?

# %%
RATES = range(20, 101, 20) if FAST else range(10, 101, 10)


def sharing(rate_mbps: float, aqm, seconds: float = 5 if FAST else 20):
    flows = [
        cct.Flow("udp", rate_mbps=r, aggregate=client, packet_bytes=1490, rtt_ms=20, arrivals="poisson")
        for client, r in enumerate((rate_mbps, 40))
    ]
    link = cct.Bottleneck(rate_mbps=50, buffer_packets=24, aqm=aqm)
    return cct.simulate(cct.Scenario(bottleneck=link, flows=flows, duration_s=seconds), record=False)


fig = figure("Two constant rates: dashed without ABC, solid with it")
for what, aqm, dash in (("without", cct.aqm.TailDrop(), "dash"), ("with", cct.aqm.Abc(), "solid")):
    got = np.array([sharing(rate, aqm).flows.goodput_mbps for rate in RATES])
    for client, colour in enumerate(("#0072B2", "#D55E00")):
        fig.add_scatter(x=list(RATES), y=got[:, client], name=f"client {client}, {what} ABC",
                        line={"dash": dash, "color": colour})  # fmt: skip
fig.update_xaxes(title_text="client 0 sends, Mbit/s").update_yaxes(
    title_text="goodput, Mbit/s", range=[0, 50]
)

# %% [markdown]
# **The paper:** without ABC, goodput is proportional to the sending rate; with ABC, the client that sends more than the
# other gets *clearly less*. This is by design: sending more than your share does not pay.
#
# Where does this begin? What does γ do? The next cell runs a simulation for each position of a slider.


# %%
@interact(
    rate=IntSlider(60, 10, 100, 5, description="0 sends"),
    gamma=FloatSlider(value=16, min=0, max=32, step=1, description="gamma"),
    q_min=IntSlider(6, 0, 20, 1, description="Q_min"),
)
def try_it(rate: int = 60, gamma: float = 16.0, q_min: int = 6):
    run = sharing(rate, cct.aqm.Abc(gamma_packets=gamma, min_packets=q_min), seconds=4)
    fig = figure("Goodput of two constant rates with ABC", height=340)
    fig.add_bar(x=[f"client 0: {rate} Mbit/s", "client 1: 40 Mbit/s"], y=run.flows.goodput_mbps,
                text=run.flows.goodput_mbps.round(1), marker_color=["#0072B2", "#D55E00"])  # fmt: skip
    return fig.update_yaxes(title_text="goodput, Mbit/s", range=[0, 50])


# %% [markdown]
# ## 4. Ten connections against one: figure 5
#
# A client that opens more connections gets more of a shared queue; download accelerators work this way. **The paper:**
# with ABC, both clients stay at around 25 Mbit/s. From here on, the scenarios are those of `cct experiment abc`:
# several runs that differ in their random numbers, with 95 % confidence intervals, and the alternatives to ABC. These
# are **fair queueing** with a queue for each client, **CSFQ** (core-stateless fair queueing), in which the edge also
# labels packets, but with the rate itself, and **ABC in integers**, for switches without floating point.

# %%
from cctoolkit.experiments import abc
from cctoolkit.experiments.abc import figures

RUNS, SECONDS = (2, 8) if FAST else (5, 30)


def measured(name: str, steps, schemes=("without ABC", "ABC")) -> pd.DataFrame:
    rows = []
    for step in steps:
        for scheme in schemes:
            for seed in range(1, RUNS + 1):
                scenario = abc.scenario(name, step, scheme, duration_s=SECONDS, seed=seed)
                found = abc.clients(cct.simulate(scenario, record=False, sample_s=None))
                rows.append({"sharing": name, "value": step, "scheme": scheme, **found})
    return abc.intervals(pd.DataFrame(rows), ["sharing", "value", "scheme"])


connections = measured("tcp", (1, 4, 10) if FAST else (1, 2, 4, 6, 8, 10), tuple(abc.SCHEMES))
figures.sharing_figure("tcp", connections)

# %%
most = connections[connections.value == 10].set_index("scheme")
most[
    ["client_0_mbps", "client_0_mbps_ci", "client_1_mbps", "client_1_mbps_ci", "utilisation", "delay_ms"]
].round(2)

# %% [markdown]
# ## 5. A flood against one connection: figure 6
#
# **Before you run the next cell:** client 0 sends unresponsive UDP, and client 1 has one TCP connection. How much does
# the flood get with ABC? **The paper:** "only up to 32 Mb/s", and client 1 gets the rest.

# %%
flood = measured("cbr-tcp", (20, 40, 60, 100) if FAST else (10, 20, 30, 40, 50, 60, 80, 100))
figures.sharing_figure("cbr-tcp", flood)

# %% [markdown]
# ABC protects the connection even better than the paper says: here the flood gets much *less* than 32 Mbit/s. Go back
# to the sliders in section 2 and set the paper's numbers (0 sends 90, 0 gets 32): the flood's threshold is close to
# $Q_{min}$, that of the connection far beyond the buffer. ABC would let the connection have more. So why did it not
# take more?
#
# The paper names two places around ABC where packets can be lost, and `cct experiment abc` tries them (and eleven
# other causes). Both belong to the software switch:
#
# - **slow reading**: BMv2 "cannot read input traffic fast enough and drops packets at the ingress";
# - **link behind**: BMv2 is limited to 4170 packets per second, "50 Mb/s for packets that are 1500 bytes large". But a
#   full TCP packet is a frame of 1514 bytes. How many Mbit/s does this give? And with UDP frames of 1490 bytes?

# %%
{kind: round(4170 * frame * 8e-6, 2) for kind, frame in (("TCP, Mbit/s", 1514), ("UDP, Mbit/s", 1490))}

# %%
CAUSES = ("as described", "slow reading", "link behind")
rows = []
for cause in CAUSES:
    for name, steps in (("cbr-tcp", (20, 40, 60, 80, 100)), ("tcp", (1, 4, 10))):
        for step in steps:
            plain = abc.scenario(name, step, duration_s=10 if FAST else 40)
            found = abc.clients(cct.simulate(abc.CAUSES[cause].apply(plain), record=False, sample_s=None))
            rows.append({"cause": cause, "sharing": name, "value": step, **found})
why = pd.DataFrame(rows)
figures.why_figure(why)

# %% [markdown]
# With either, a flood of 100 Mbit/s gets more
# (<!-- results: abc/floods -->31.5 Mbit/s with slow reading, 29.5 Mbit/s with link behind, 3.2 Mbit/s as described<!-- end -->).
# The link behind needs no fitting, only the paper's own numbers: it is overloaded as long as fewer than 63 % of the
# packets are UDP. But look at the right-hand figure: with ten connections against one, the losses happen at that link,
# which ignores activities, and ABC's fairness is lost; the paper's figure 5 shows no such loss. Slow reading (with a
# rate fitted to the 32 Mbit/s) keeps figure 5, but makes the flood's goodput fall first and rise again. The paper's
# text does not say which of the two it was; the summary of the experiment has the whole table.
#
# A switch can be asked. On BMv2 (`python -m hardware.launch.abc_flood`, which slows its reading), the flood gets
# <!-- results: abc-bmv2/in-words -->
#
# 24.3 Mbit/s where it reads 10374 packets/s; 32.8 Mbit/s where it reads 9174 packets/s; 36.5 Mbit/s where it reads 9069 packets/s; 39.8 Mbit/s where it reads 7969 packets/s
#
# <!-- end -->.
#
# The paper's statements, compared with this notebook's results (from a few runs; `cct experiment abc` makes the same
# table from ten runs per point):

# %%
constant = measured("cbr", RATES)
abc.statements(pd.concat([constant, connections, flood]))

# %% [markdown]
# ## 6. On MAWI
#
# A day of backbone traffic has no clients 0 and 1. Let a *user* be the source network: a prefix of 24 bits (48 for
# IPv6). What does the paper's measure say about the trace?

# %%
path, what = cct.find_trace()
print(what)
day = next(cct.iter_capture(path, packets=200_000 if FAST else 1_000_000))
sources = abc.source_prefixes(day)
number = np.zeros((int(sources.flow_id.max()) + 1, 2), np.int64)
number[sources.flow_id, sources.direction] = sources["number"]

packets = pd.DataFrame({"s": (day.columns["ts_ns"] - day.columns["ts_ns"][0]) / 1e9})
packets["bytes"] = day.columns["wire_bytes"]
packets["network"] = number[day.columns["flow_id"], day.columns["direction"]]
packets["activity"] = activities(day.columns["ts_ns"], packets.bytes, packets.network)
packets["known_s"] = packets.s - packets.groupby("network").s.transform("min")  # since its first packet
packets["nth"] = packets.groupby("network").cumcount() + 1

volume = packets.groupby("network").bytes.sum().sort_values(ascending=False)
print(
    f"{len(volume):,} networks; the 10 largest have {volume.iloc[:10].sum() / volume.sum():.0%} of the bytes"
)

# %% [markdown]
# **Before you run the next cell:** which packets have the highest activity of all: those of the busiest network, or
# others?

# %%
fig = figure("Activity of packets, by how long their network has been seen", height=400)
for label, low, high in (
    ("less than 10 ms", 0, 0.01),
    ("10 ms to 3 s", 0.01, 3),
    ("more than 3 s", 3, np.inf),
):
    part = packets[(packets.nth > 1) & (packets.known_s >= low) & (packets.known_s < high)]
    share, edges = np.histogram(part.activity, bins=np.arange(-8, 26, 0.5))
    fig.add_scatter(
        x=edges[:-1],
        y=share / max(len(part), 1),
        name=f"{label}: {len(part):,} packets",
        line={"shape": "hv"},
    )
fig.update_xaxes(title_text="activity (about 10 at 10 Mbit/s; each step is a factor of two)")
fig.update_yaxes(title_text="share of these packets")

# %%
top = packets.loc[packets[packets.nth > 1].groupby("nth").activity.idxmax().iloc[:5]]
print(
    f"the largest network's highest: {packets[packets.network == volume.index[0]].activity.iloc[10:].max():.1f}"
)
top[["nth", "known_s", "bytes", "activity"]].round(6)

# %% [markdown]
# The highest activities belong to networks of which the switch has seen *two packets*, microseconds apart:
# extrapolated, two packets in a microsecond are gigabits per second. A meter younger than its memory divides by its age
# (section 3.2's TDRM). This makes it right for a steady sender from the start, and wildly wrong for a sender of two
# packets. The paper's experiments, with senders that run for 300 s, could not show this: in a network with many short
# flows, ABC would drop the newest first. (In the synthetic trace, such pairs are 1 µs apart; in a real one, the
# sender's link sets the gap.)
#
# Next, the trace's long transfers run through a link that they fill, with each network as one aggregate:

# %%
LONG = 100_000 if day.meta.wire_bytes < 1_000_000_000 else 1_000_000  # bytes: a small trace gets a lower line
again = abc.by_source(cct.scenario_from_capture(day, min_bytes=LONG, every=2 if FAST else 1), sources)
users = len({flow.aggregate for flow in again.flows})
carried = sum(flow.bytes for flow in again.flows)
rate = round(carried * 8e-6 / day.duration_s, 1)  # Mbit/s: the mean load
print(f"{len(again.flows)} transfers of {users} networks, {carried / 1e6:.0f} MB, through {rate} Mbit/s")


def through(aqm, buffer_packets: int = 24, **options) -> pd.DataFrame:
    link = cct.Bottleneck(rate_mbps=rate, buffer_packets=buffer_packets, aqm=aqm, **options)
    flows = cct.simulate(again.replace({"bottleneck": link}), record=False, sample_s=None).flows
    of = flows.assign(user=[f.aggregate for f in again.flows], volume=[f.bytes for f in again.flows])
    of["stretched"] = of.completion_s / (of.volume * 8e-6 / rate)  # times as long as alone on the link
    of["kind"] = np.where(of.groupby("user").volume.transform("sum") > of.groupby("user").volume.sum().median(),
                          "heavy half", "light half")  # fmt: skip
    return of


found = {
    "without ABC": through("tail_drop"),
    "ABC": through(cct.aqm.Abc(aggregates=users)),
    "CSFQ": through(cct.aqm.Csfq(aggregates=users)),
    "flow queueing": through("fq_codel", 1000),
}
pd.DataFrame({name: of.groupby("kind").stretched.median() for name, of in found.items()}).T.assign(
    completed=[int(of.completion_s.notna().sum()) for of in found.values()],
    lost_packets=[int(of.retransmits.sum()) for of in found.values()],
).round(2)

# %% [markdown]
# The table shows how much longer a transfer takes than it would alone on the link (median), for networks that send much
# and those that send little. Look at the light half's column: ABC is meant to protect light users from heavy ones, but
# *light* means a low rate in the last three seconds, not a small volume. A short transfer at full speed is as active as
# a long one.
#
# ## Exercises
#
# ### Exercise 1
#
# In section 3, let both clients send 40 Mbit/s. Run this with five seeds. Which client wins, and does it average out?
#
# <details><summary>Hint</summary>
#
# `abc.scenario("cbr", 40, seed=seed)` is this case. Plot or print the goodput of a short run and of a long one.
#
# </details>

# %% tags=["solution"]
for seed in range(1, 6):
    run = cct.simulate(abc.scenario("cbr", 40, duration_s=10, seed=seed), record=False)
    print(run.flows.goodput_mbps.round(1).tolist())

# %% [markdown] tags=["solution"]
# The client that is ahead by chance has the higher activity and loses. Rates of Poisson arrivals always differ a
# little, so the advantage changes sides every few seconds, and the two are equal only on average.

# %% [markdown]
# ### Exercise 2
#
# Give a third of the bandwidth to client 0 and two thirds to client 1: set reference rates
# (`cct.aqm.Abc(reference_kbps=(…, …))`) and check with five connections each.
#
# <details><summary>Hint</summary>
#
# A reference rate twice as high lowers the activity by one, so a client may send twice as much for the same activity.
#
# </details>

# %% tags=["solution"]
weighted = abc.scenario("tcp", 5, duration_s=15).replace(
    {"bottleneck.aqm": cct.aqm.Abc(reference_kbps=(10, 20))}
)
five = weighted.flows[:5] + tuple(cct.Flow("cubic", rtt_ms=20, aggregate=1) for _ in range(5))
got = cct.simulate(weighted.replace({"flows": five}), record=False).flows.goodput_mbps
print(got[:5].sum().round(1), got[5:].sum().round(1))

# %% [markdown]
# ### Exercise 3
#
# An activity rounded to an integer would fit into four bits. Subclass `Abc` so that it compares rounded activities, and
# see what happens to figure 4 at 50 Mbit/s. (`help(cct.aqm)` explains how to write an AQM.)
#
# <details><summary>Hint</summary>
#
# Copy `on_enqueue` from the source of `Abc` and round `measure(…)` before it is used. Between which rates do two
# activities round to the same number?
#
# </details>

# %% tags=["solution"]
import math

from cctoolkit.aqm import DROP, PASS, Abc
from cctoolkit.aqm.abc import measure


class WholeAbc(Abc):
    """ABC with activities rounded to whole numbers."""

    @staticmethod
    def on_enqueue(p, s, stats, queue, packet, now_ns):
        packet.label = math.floor(measure(p, s, packet, now_ns) + 0.5)
        decay = math.exp(-(now_ns - s.averaged_ns) / p.average_memory_ns)
        s.activity_sum *= decay
        s.activity_count *= decay
        s.averaged_ns = now_ns
        average = s.activity_sum / s.activity_count if s.activity_count > 0 else packet.label
        if queue.packets > max(p.min_packets, p.base_packets - p.gamma_packets * (packet.label - average)):
            return DROP
        s.activity_sum += packet.label
        s.activity_count += 1
        return PASS


for rate_mbps in (50, 60, 80):
    for aqm in (Abc(), WholeAbc()):
        print(rate_mbps, type(aqm).__name__, sharing(rate_mbps, aqm).flows.goodput_mbps.round(1).tolist())

# %% [markdown] tags=["solution"]
# 40 and 50 Mbit/s have activities of 11.97 and 12.29: both round to 12, neither is preferred, and goodput is
# proportional to the sending rate again. From 58 Mbit/s (12.5) on, it rounds to 13, and everything is as before. Ten
# fractional bits, as in `IntegerAbc`, are plenty.

# %% [markdown]
# ### Exercise 4
#
# Give new networks in section 6 the benefit of the doubt: an activity as if the meter had been running for a whole
# memory. What happens to the second packets? Compute it for the trace (of a network's first packets, $\beta S$ without
# the division) and compare the highest activities.
#
# <details><summary>Hint</summary>
#
# The meter divides by $1 - e^{-t/M}$, where $t$ is how long the network has been known. In logarithms, undoing a
# division is adding $\log_2$ of the divisor.
#
# </details>

# %% tags=["solution"]
young = packets.known_s < 3
grown = packets.activity + np.log2(-np.expm1(-packets.known_s.clip(lower=1e-9) / 3))
doubt = packets.activity.where(~young | (packets.nth == 1), grown)
pd.DataFrame({"divided by its time": packets.activity, "as if a memory old": doubt}).quantile(
    [0.5, 0.9, 0.99, 1]
).round(1)

# %% [markdown] tags=["solution"]
# The extreme values are gone. The price is that a flood passes as light traffic until it has lasted for a while.

# %% [markdown]
# ## Questions
#
# - Above a short queue, ABC drops *all* packets of the more active client, and CSFQ drops some at random. Which is
#   better for a TCP connection that has just become the faster one, and why?
# - Who must be trusted for ABC to work, and what would a user do who could write activities?
# - Fair queueing beats ABC in all three figures and needs no trust. What does it need instead, and where would that be
#   too expensive?
# - How can a switch that reads too slowly hold the connection back without losing its packets? (`docs/abc.md` has its
#   RTT beside the flood.)
