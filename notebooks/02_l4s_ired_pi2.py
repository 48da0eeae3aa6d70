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
# # Two kinds of senders, one link: iRED and PI2 for L4S
#
# **Takes** an hour and a half with the exercises; all cells together compute for two minutes (half a minute with
# `FAST=1`).
#
# **The question.** CUBIC cuts its window for one lost packet. Prague, the congestion control of L4S, backs off a little
# for each of many marks. If both use one link and know nothing of each other, can a switch still give both the same
# rate?
#
# De Almeida, Maciel and Verdi ("Evaluating L4S Framework Performance with Programmable Data Plane Hardware") implement
# two queue disciplines on a Tofino2: **PI2**, one queue with a controller in the control plane, and **iRED**, which
# decides at the egress and drops at the ingress. They find iRED the fairer of the two. This notebook repeats their
# experiment, and shows the reasons behind the result.
#
# **You need** to have seen `00_start`, and to know what ECN is (`lessons/04_ecn_and_l4s`).

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # shorter runs: for a quick look, not for results

# %% [markdown]
# ## 1. The paper's figure in a few lines
#
# A scenario is a link, its queue, and the flows. Here is one flow of each kind through PI2 on a Tofino (the paper's
# configuration I: 120 Mbit/s, 10 ms):

# %%
import pandas as pd

link = cct.Bottleneck(rate_mbps=120, buffer_bytes=3_750_000, aqm=cct.aqm.TofinoPi2(target_ms=20))
pair = [cct.Flow("cubic", rtt_ms=10), cct.Flow("prague", rtt_ms=10)]
run = cct.simulate(cct.Scenario(bottleneck=link, flows=pair, duration_s=10 if FAST else 30))
run.flows[["name", "goodput_mbps", "retransmits", "marked_packets", "mean_rtt_ms"]].round(1)

# %% [markdown]
# **Before you run the next cell:** in the paper's experiment, 1, 2, 10 and 25 flows of each kind join in four phases,
# so that there are 1, 3, 13 and 38. Which kind gets more in PI2's single queue, CUBIC or Prague, with one flow each?
# With 38? And through iRED? Write down your guess.

# %%
from cctoolkit.experiments import l4s
from cctoolkit.experiments.l4s import figures

PHASE_S = 15 if FAST else 60  # the paper's phases last 120 s: `cct experiment l4s --full`


def measured(*systems: str, configuration: str = "I", **changes) -> list[l4s.Outcome]:
    return l4s.outcomes([l4s.Case(configuration, s, phase_s=PHASE_S, **changes) for s in systems], workers=1)


def goodput(found: list[l4s.Outcome]) -> pd.DataFrame:
    return pd.concat([o.rates.reset_index().assign(**o.about) for o in found])


three = measured("iRED", "PI2", "DualPI2")
figures.goodput_figure(goodput(three), PHASE_S, "The paper's figure 5 (a, b), and DualPI2 (RFC 9332)")

# %% [markdown]
# **Expected from the paper** (section 5.1): iRED is even; PI2 is uneven at first, with "improved fairness only becoming
# apparent" in phases 3 and 4. The paper did not test DualPI2, which the IETF developed from PI2.
#
# ## 2. The paper's table
#
# Table 3 gives the difference between the two kinds in percent, without a formula. There are three ways to read it: the
# mean of the four phases' differences, the difference over the whole run, and the mean of each second's difference. The
# authors also published logs, for smaller packets. The next cells compute each reading from these logs and show which
# one is closest to the table:

# %%
from cctoolkit.experiments.l4s.logs import logged_differences, logged_shares

l4s.table_3(three).drop(columns=["configuration", "seed"]).set_index("system").round(2)

# %%
from cctoolkit.experiments.l4s.tables import READINGS, paper_differences

logged = logged_differences().query("mtu_bytes == 800 and system != 'P4-CoDel'")
logged = logged.set_index(["configuration", "system"])[READINGS].assign(paper=pd.Series(paper_differences()))
off = logged[READINGS].sub(logged.paper, axis=0).abs().mean()
print("points off on average:", off.round(1).to_dict())
logged

# %% [markdown]
# `cct experiment l4s --full` does this for the four configurations, with several seeds and their spread, and varies one
# thing at a time to find the cause.
#
# ## 3. What makes iRED fair?
#
# The two systems differ in two things: the algorithm *and* the queues. On the switch, iRED sends each kind of packet to
# "the corresponding output queue"; PI2 has one queue for all packets. **Predict**, then run: what do you get with iRED
# in one queue, and with PI2 in two queues that are served in turn?

# %%
swapped = measured("iRED, one queue", "PI2, two queues")
both = l4s.table_3([*three, *swapped]).set_index("system").by_phase
pd.DataFrame(
    {
        "one queue": [both["iRED, one queue"], both["PI2"]],
        "two queues": [both["iRED"], both["PI2, two queues"]],
    },
    index=["iRED", "PI2"],
).round(2)

# %% [markdown]
# In the simulator, the queues make the difference: two queues that are served in turn get half of the link each,
# whatever is in them, as long as neither is empty. Was this so on the authors' switch? Their logs have the goodput of
# each second, also for a third system, P4-CoDel. Prague's share in the four phases, in percent:

# %%
logged = logged_shares()
logged["share"] = 100 * logged.scalable_share
logged.pivot_table(index=["system", "configuration", "mtu_bytes"], columns="phase", values="share").round(0)

# %% [markdown]
# The chapter on iRED and PI2 in the book shows the simulator's shares next to these, for all settings and several
# seeds, and the switch's delays, drops and marks.
#
# Back to two queues: what happens with nine flows of one kind and one of the other?

# %%
uneven = measured(*l4s.SYSTEMS, pairs=((1, 9),))
pd.DataFrame(
    [
        {
            "system": o.case.system,
            "the CUBIC flow, Mbit/s": o.phases[0]["classic_mbps"],
            "each Prague flow, Mbit/s": o.phases[0]["scalable_mbps"] / 9,
        }
        for o in uneven
    ]
).set_index("system").round(1)

# %% [markdown]
# Fair to classes is not fair to flows. This is why PI2 and DualPI2 have a *coupling*: one probability p', squared for
# senders that halve their window and doubled for those that back off a little, so that a flow gets the same rate on
# either side, however many flows there are.
#
# ## 4. Why PI2 is uneven: an oscillating probability
#
# With a constant p', the arithmetic is fair: CUBIC's window is proportional to 1/√p, and it gets p'²; Prague's is
# proportional to 1/p, and it gets 2p'. But the mean of p'² is not the square of the mean of p'. Move the sliders: gains
# of the controller (1 is the paper's), coupling, flows of each kind.

# %%
import plotly.graph_objects as go
from cctoolkit.plot import style
from ipywidgets import FloatLogSlider, FloatSlider, IntSlider, interact


def tug_of_war(gains: float = 1.0, coupling: float = 2.0, flows: int = 1) -> go.Figure:
    """Goodput of both kinds and p' over time, 25 Mbit/s and 10 ms."""
    aqm = cct.aqm.TofinoPi2(alpha=0.3125 * gains, beta=3.125 * gains, coupling=coupling)
    scenario = cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=25, buffer_bytes=780_000, aqm=aqm),
        flows=[cct.Flow("cubic", rtt_ms=10, count=flows), cct.Flow("prague", rtt_ms=10, count=flows)],
        duration_s=30,
    )
    run = cct.simulate(scenario, record=False, sample_s=0.25)
    rates = (
        run.flow_series.merge(run.flows[["flow_id", "name"]]).groupby(["name", "ts_ns"]).received_bytes.sum()
    )
    p = run.queue_series.probability
    late = p[len(p) // 4 :]
    share = run.flows.groupby("name").received_bytes.sum()
    fig = style.figure(
        f"Prague has {share.prague / share.sum():.0%}; mean of p'² over square of the mean: "
        f"{(late**2).mean() / late.mean() ** 2:.2f}"
    )
    for name in ("cubic", "prague"):
        fig.add_scatter(
            x=rates[name].index / 1e9,
            y=rates[name].diff() * 8e-6 / 0.25,
            name=f"{name}, Mbit/s (all together)",
        )
    fig.add_scatter(
        x=run.queue_series.ts_ns / 1e9, y=100 * p, name="p', %", line={"color": "#767676", "dash": "dot"}
    )
    return fig.update_layout(yaxis_range=[0, 26], xaxis_title="s")


@interact(
    gains=FloatLogSlider(value=1, base=10, min=-2, max=1, step=0.25),
    coupling=FloatSlider(value=2, min=0.5, max=4, step=0.25),
    flows=IntSlider(value=1, min=1, max=20),
)
def moved(gains: float, coupling: float, flows: int) -> go.Figure:
    return tug_of_war(gains, coupling, flows)


# %% [markdown]
# ## 5. How long does a drop take?
#
# The paper's figure 7 compares iRED's recirculation time with the time that PI2's dropped packets had waited, and finds
# iRED faster. The simulator can also show when the gap left by a drop comes out of the queue, which is when a receiver
# can notice it:

# %%
drops = l4s.drop_delays(three)
figures.drop_delay_figure(drops)

# %% [markdown]
# Both views are right. iRED's drop costs the link nothing and happens at once, but all packets ahead of the gap are
# still in the queue. PI2 drops a packet that has already waited, and the next one leaves right behind the gap.
#
# ## 6. Low latency
#
# Both of the paper's systems aim at 20 ms for all packets. Low latency, the first L of L4S, is the purpose of DualPI2's
# second queue. How long did the packets of each kind wait?

# %%
waits = pd.DataFrame([row for o in three for row in o.phases])
figures.delay_figure(waits)

# %% [markdown]
# RFC 9332 aims at about a millisecond. What does a real kernel do? These are captures from both sides of Linux's own
# DualPI2 with CUBIC and DCTCP. Their link has 6 Mbit/s: sending one packet takes 2 ms, so most of DCTCP's packets wait
# for one other packet. (`cct experiment l4s --testbed` runs the kernel at the paper's 120 Mbit/s.)

# %%
real = cct.load_run("../traces/testbed/aqm-dualpi2-l4s")
delay = cct.queue_delay(real.ingress, real.egress)
delay = delay[(delay.direction == 0) & (delay.payload_bytes > 0)].merge(real.flows[["flow_id", "cca"]])
delay_ms = delay.assign(delay_ms=delay.delay_ns.astype(float) / 1e6).groupby("cca").delay_ms
delay_ms.describe(percentiles=[0.5, 0.99])[["count", "50%", "99%"]].round(2)

# %% [markdown]
# ## 7. Which iRED was it?
#
# The authors published iRED's program, and it differs from the paper. The paper's probability rises along a line from 20
# to 40 ms of delay, separately for each queue. The program's is a counter for the whole port: one up with each packet
# that finds more than 20 ms, one down with each mark or drop. **Predict** where each of them holds the queue. The
# switch's registers had the delay of a packet in each second; the dashed line is their median in each phase.

# %%
from cctoolkit.experiments.l4s.tables import register_phases

both = measured("iRED", "iRED, as published", mtu_bytes=800, about={"mtu_bytes": 800})
figures.queue_delays_figure(register_phases(both)).update_yaxes(rangemode="normal")

# %% [markdown]
# RED's line needs a queue above the threshold to have any probability at all, and the more flows there are, the more it
# needs. A counter does not: it stands at whatever value keeps the queue at the threshold. So a log of delays can tell
# two programs apart. The book's chapter on iRED and PI2 has all configurations, and PI2, whose program is not public.
#
# ## 8. Which flows does the switch treat as scalable?
#
# According to RFC 9331, scalable flows are those with ECT(1). Published switch programs look at a bit of the DSCP, or
# accept any ECN codepoint. **Predict** what happens to each of these pairs in PI2's queue; the numbers are the second
# sender's share, in percent.

# %%
found = l4s.outcomes(
    [
        l4s.Case(
            "I", "PI2", phase_s=5 if FAST else 30, classic=classic, scalable=scalable,
            aqm={"identifier": identifier}, about={"senders": senders, "identifier": identifier},
        )
        for senders, (classic, scalable) in l4s.SENDERS.items()
        for identifier in ("ect1", "dscp", "any_ect")
    ],
    workers=1,
)  # fmt: skip
shares = l4s.identified_shares(found)
(100 * shares.pivot_table(index="senders", columns="identifier", values="second_share", sort=False)).round(0)

# %% [markdown]
# An identifier is a promise about behaviour. DCTCP's ECT(0) promises nothing, since a CUBIC sender with ECN sets it as
# well, and a DSCP often gets rewritten at network borders. With either mistake, one side loses most of its share.
#
# ## 9. On MAWI
#
# Is there L4S traffic on a backbone? The ECN field can tell, but only in captured packets: days of the MAWI archive
# (`cct fetch mawi 2024-02-15`, several gigabytes) or excerpts (`CCTOOLKIT_MAWI=FOLDER`). In synthetic traffic, the bits
# are those that its generator chose.

# %%
rows = {}
for path, what in cct.real_traces():
    packets = next(cct.iter_capture(path, packets=200_000 if FAST else 2_000_000)).packets
    share = packets.ecn.value_counts(normalize=True).reindex([0, 2, 1, 3], fill_value=0)
    syn = packets[(packets.tcp_flags & 0x12) == 0x02]  # SYN without ACK
    answer = packets[(packets.tcp_flags & 0x12) == 0x12]
    rows[what] = {
        "packets": len(packets),
        "not ECT, %": 100 * share[0],
        "ECT(0), %": 100 * share[2],
        "ECT(1): L4S, %": 100 * share[1],
        "CE: marked on the way, %": 100 * share[3],
        "SYNs that ask for ECN, %": 100 * ((syn.tcp_flags & 0xC0) == 0xC0).mean(),  # ECE and CWR
        "answers that agree, %": 100 * ((answer.tcp_flags & 0xC0) == 0x40).mean(),  # ECE alone
        "lowest bit of the DSCP set, %": 100 * ((packets.dscp & 1) == 1).mean(),  # scalable, by a DSCP
    }
if rows:
    display(pd.DataFrame(rows).T.round(2))
else:
    print("No backbone capture on this machine: fetch a day, or set CCTOOLKIT_MAWI to a folder of excerpts.")

# %% [markdown]
# Next, the long flows of a day, or of synthetic traffic (the first line says which), run through the paper's queues.
# Every second flow is Prague; then they run once more with the roles swapped, so that each transfer can be compared
# with itself. The link has a third of the rate of the trace's busiest second, so that a queue builds up.

# %%
import dataclasses
import itertools

path, what = cct.find_trace()
print(what)
day = next(cct.iter_capture(path, packets=200_000 if FAST else 2_000_000))
replay = cct.scenario_from_capture(day, min_bytes=300_000, default_rtt_ms=50)
rate_mbps = replay.bottleneck.rate_mbps / 3
replay = replay.replace(
    {"bottleneck.rate_mbps": rate_mbps, "bottleneck.buffer_bytes": round(rate_mbps * 125 * 250)}
)
print(
    f"{len(replay.flows)} transfers, {sum(f.bytes for f in replay.flows) / 1e6:.0f} MB, {rate_mbps:.1f} Mbit/s"
)


def replayed(system: str) -> dict[str, object]:
    """Each transfer as CUBIC and as Prague, among others of both kinds."""
    took = {"cubic": [], "prague": []}
    for order in (("cubic", "prague"), ("prague", "cubic")):
        ccas = itertools.islice(itertools.cycle(order), len(replay.flows))
        flows = [dataclasses.replace(f, cca=cca, ecn=None) for f, cca in zip(replay.flows, ccas, strict=True)]
        run = cct.simulate(l4s.through(dataclasses.replace(replay, flows=flows), system), record=False)
        for name, part in run.flows.groupby("cca"):
            took[name].append(part)
    cubic, prague = (pd.concat(took[name]).sort_index() for name in ("cubic", "prague"))
    return {
        "system": system,
        "Prague's time over CUBIC's, median": (prague.completion_s / cubic.completion_s).median(),
        "CUBIC: RTT above its base, ms": (cubic.mean_rtt_ms - cubic.base_rtt_ms).mean(),
        "Prague: the same": (prague.mean_rtt_ms - prague.base_rtt_ms).mean(),
        "completed, %": 100 * pd.concat([cubic, prague]).completion_s.notna().mean(),
    }


pd.DataFrame([replayed(system) for system in l4s.SYSTEMS]).set_index("system").round(2)

# %% [markdown]
# Short transfers never see the shares of section 1. They are in slow start, which for Prague ends with the first
# mark, and in a queue that other flows have filled, the first mark comes early. What DualPI2 gives Prague instead is a
# short RTT.
#
# ## Exercises
#
# ### Exercise 1
#
# The paper suspects that PI2 is uneven because it marks too little at first. Section 4 suggests another reason: p'
# oscillates. Test it: in configuration I, make the controller ten times slower (`aqm={"alpha": ..., "beta": ...}`).
# What happens to Prague's share in phase 2, and to the delay?
#
# <details><summary>Hint</summary>
#
# The gains are `alpha` and `beta`: a tenth of the paper's gains is 0.03125 and 0.3125. Compare `probability_swing` and
# `scalable_p99_ms` by phase.
#
# </details>

# %% tags=["solution"]
slow = measured("PI2", aqm={"alpha": 0.03125, "beta": 0.3125})
columns = ["phase", "scalable_share", "probability_swing", "scalable_p99_ms"]
gains = {"paper's gains": waits[waits.system == "PI2"], "a tenth": pd.DataFrame(slow[0].phases)}
pd.concat({name: table[columns].set_index("phase") for name, table in gains.items()}).round(2)

# %% [markdown] tags=["solution"]
# In phase 2, the shares come closer because p' oscillates less, not because more packets are marked. The price is
# delay: a slow controller reacts late when flows join.

# %% [markdown]
# ### Exercise 2
#
# What happens to CUBIC if the programmer forgets to square (`IRed(square=False)`, as in the published program), in one
# queue and in two?
#
# <details><summary>Hint</summary>
#
# `measured("iRED, one queue", "iRED", aqm={"square": False})`. What keeps the two kinds apart when there are two
# queues?
#
# </details>

# %% tags=["solution"]
forgot = measured("iRED, one queue", "iRED", aqm={"square": False})
l4s.table_3(forgot).set_index("system")[["by_phase", "whole_run"]].round(1)

# %% [markdown] tags=["solution"]
# In one queue, CUBIC nearly starves. In two queues nobody notices the mistake: the scheduler hides what the coupling
# does.

# %% [markdown]
# ### Exercise 3
#
# Put DCTCP in Prague's place in PI2's queue: `scalable={"cca": "dctcp", "ecn": "l4s"}`. Which flow gets more now, and
# which of the differences between Prague and DCTCP (`help(cct.cca.Prague)`) may be the reason?
#
# <details><summary>Hint</summary>
#
# `measured("PI2", scalable={…})` runs it. Prague differs from DCTCP in how it grows, how it paces, and what it does at
# short RTTs.
#
# </details>

# %% tags=["solution"]
dctcp = pd.DataFrame(measured("PI2", scalable={"cca": "dctcp", "ecn": "l4s"})[0].phases)
both = {"Prague": waits[waits.system == "PI2"], "DCTCP": dctcp}
pd.DataFrame({cca: table.set_index("phase").scalable_share for cca, table in both.items()}).round(2)

# %% [markdown] tags=["solution"]
# Given a minute, DCTCP takes more than Prague when it is alone with one CUBIC flow; with many flows, the two hardly
# differ. Prague does not grow for packets that were marked, paces its packets over the round trip (so fewer packets
# of a burst are marked), and grows more slowly if the RTT is below 25 ms. The last point plays no part here, because
# 20 ms of queue and 10 ms of path are more than 25 (try `scalable={"cca": {"name": "prague", "virtual_rtt_ms": 0}}`).

# %% [markdown]
# ### Exercise 4
#
# How slow may the control plane be (`control_plane_ms`) before PI2 gets worse? Use configuration II.
#
# <details><summary>Hint</summary>
#
# Call `measured("PI2", configuration="II", aqm={"control_plane_ms": …})` for a few values and look at `.differences()`.
#
# </details>

# %% tags=["solution"]
pd.DataFrame(
    {
        late: measured("PI2", configuration="II", aqm={"control_plane_ms": late})[0].differences()
        for late in (0, 15, 60, 200)
    }
).T.rename_axis("control plane, ms").round(1)

# %% [markdown]
# ## Questions
#
# - A scheduler that serves two queues in turn is fair to classes. Who would have an incentive to open connections in
#   the emptier class, and how would you notice?
# - Why does DualPI2 not serve its two queues in turn with equal weights, although the paper's measure would be perfect?
# - iRED drops the *next* classic packet, not the one that found the queue long. Whose packet is that likely to be?
# - The paper gives Table 3 without a formula. What would it have to include for others to check it?
