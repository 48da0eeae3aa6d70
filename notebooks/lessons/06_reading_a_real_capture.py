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
# # Reading a real capture: a diagnosis in five questions
#
# **Takes** an hour, including the three patients at the end.
#
# **The question.** "The network is slow," somebody says and mails you a capture. What do you look at, in which order,
# and how sure can you be of what you find?
#
# **You need** lessons `01_bufferbloat` and `05_rtt_unfairness`. Notebook `00_start` explains each of the figures; here
# you put them to use.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # shortens only your own captures: the first packets
TRACE = cct.lessons.trace("../../traces/mixed.ingress.pcap.gz")  # or your own: TRACE=… make lab

# %% [markdown]
# Without `TRACE`, you get a bundled capture of real Linux TCP: some long flows and some short ones, calls and pings on
# one link. With `TRACE=/path/to/yours.pcap.gz make lab`, every step below is about your own capture.

# %%

cap = next(cct.iter_capture(TRACE, packets=200_000 if FAST else 2_000_000))
print(f"{TRACE.name}: {len(cap):,} packets in {cap.duration_s:.1f} s, {len(cap.flows)} flows")

# %% [markdown]
# ## Predict
#
# That line is all you know about this capture, but you know a lot about networks. How many of the flows carry nine
# tenths of the bytes? What share of the segments was retransmitted? And for the largest flow, how many times its
# smallest RTT is its median RTT?

# %%
prediction = {
    "flows that carry 90 % of the bytes": None,
    "segments retransmitted, %": None,
    "largest flow: median RTT over smallest": None,
}

# %% [markdown]
# ## 1. Which flows are there?
#
# Always ask this first, because most captures are about two or three flows and the rest is noise.

# %%
flows = cap.flows.assign(bytes=lambda f: f.bytes_fwd + f.bytes_rev).sort_values("bytes", ascending=False)
flows["share so far, %"] = (100 * flows.bytes.cumsum() / flows.bytes.sum()).round(1)
flows["retransmitted"] = flows.retransmits_fwd + flows.retransmits_rev
flows["reordered"] = flows.out_of_order_fwd + flows.out_of_order_rev
shown = [
    "flow_id",
    "src",
    "sport",
    "dst",
    "dport",
    "protocol",
    "bytes",
    "share so far, %",
    "retransmitted",
    "reordered",
]
flows[shown].head(6)

# %% [markdown]
# *Retransmitted* counts segments whose sequence numbers this tap has seen before, or that fill a gap too late to be
# mere reordering; *reordered* counts segments that were overtaken. Tools that do not remember sequence numbers decide
# by how soon a segment follows later ones. tshark is one of them:

# %%
tshark = {
    name: int(flows[f"tshark_{column}_fwd"].sum() + flows[f"tshark_{column}_rev"].sum())
    for name, column in (("retransmission", "retransmits"), ("out of order", "out_of_order"))
}
print(f"retransmitted: {flows.retransmitted.sum()}, reordered: {flows.reordered.sum()}; tshark says {tshark}")

# %% [markdown]
# In the bundled capture, the sender's kernel counted as well (`retransmits` in its labels). Which of the two does it
# agree with?

# %%
rtt = cct.rtt_samples(cap)
tcp = flows[flows.protocol == 6]
largest = next((int(f) for f in tcp.flow_id if (rtt.flow_id == f).sum() >= 5), None)
if largest is None:
    raise cct.errors.ParameterError("TRACE has no TCP flow with data and its ACKs; choose another capture")
bulk = rtt[rtt.flow_id == largest]
bulk = bulk[bulk.direction == bulk.direction.mode()[0]].rtt_ns  # of the direction that carries the data
cct.lessons.compare_prediction(
    prediction,
    {
        "flows that carry 90 % of the bytes": int((flows["share so far, %"] < 90).sum()) + 1,
        "segments retransmitted, %": 100 * cct.retransmitted_share(tcp.sum(numeric_only=True)),
        "largest flow: median RTT over smallest": bulk.median() / bulk.min(),
    },
)

# %% [markdown]
# ## 2. How do they share?
#
# Look at the shares over time, because a mean hides which flows came and went.

# %%
big = [int(f) for f in tcp.flow_id.head(4)]
cct.plot.throughput(cap, flows=big)

# %% [markdown]
# In the bundled capture, one flow takes two thirds while it is active, and Jain's index is near one half. Is the reason
# congestion control or RTT? It can be either (lesson 5), so:
#
# ## 3. How much is base RTT, how much is queueing delay?
#
# An RTT is the base RTT (the distance) plus queueing delay. The base RTT does not change, so the smallest RTT is its
# best estimate, and anything above it is queueing delay. One tap is enough for this, if the queue was empty at least
# once while the flow was sending.

# %%
cct.plot.rtt(rtt, cap, flows=[f for f in big if (rtt.flow_id == f).any()])

# %% [markdown]
# If even the *smallest* RTT of each tenth of a second is far above the smallest of all, there is a standing queue:
# CoDel's test (RFC 8289, section 3), applied from outside.
#
# ## 4. What happened there?
#
# Figures of a whole capture show that something is wrong, but not what. So zoom in: one flow, one second. The upper
# panel shows what it sent (blue), what it retransmitted (red) and what was acknowledged (green); the lower one shows
# the bytes in flight. Move the slider through the capture until you find a loss, then narrow the window.

# %%
from ipywidgets import FloatSlider, SelectionSlider, interact

alone = cap.select(flow_id=largest)


@interact(
    at_s=FloatSlider(
        cap.duration_s / 2, min=0, max=cap.duration_s, step=cap.duration_s / 200, description="at (s)"
    ),
    width_s=SelectionSlider(options=[0.1, 0.2, 0.5, 1, 2, 5], value=1, description="width (s)"),
)
def look(at_s: float, width_s: float):
    window = (at_s, at_s + width_s)
    return cct.plot.stack(
        cct.plot.time_sequence(alone, largest, between_s=window),
        cct.plot.bytes_in_flight(alone, largest, between_s=window),
        heights=(300, 160),
    )


# %% [markdown]
# A line that climbs steadily and runs into red is a sender that fills a queue until it overflows. If it pauses for
# long, the sender has nothing to send, or the receiver's window is full (the light blue line). Losses without a queue
# before them suggest a lossy link.
#
# ## 5. Is it true?
#
# Everything so far was *inferred* from one tap. Sometimes there is a second one, behind the queue, and you can check.
# (The bundled captures have one. For others, this part is skipped.)

# %%
twin = TRACE.with_name(TRACE.name.replace(".ingress.", ".egress."))
if twin != TRACE and twin.exists():
    behind = cct.read_capture(twin)
    delays = cct.queue_delay(cap, behind)
    mine = delays[delays.flow_id == largest]
    print(f"queueing delay, inferred from RTTs:    {(bulk.median() - bulk.min()) / 1e6:.1f} ms (median)")
    print(f"queueing delay, between the two taps:  {mine.delay_ns.median() / 1e6:.1f} ms")
    split = cct.metrics.rtt_split(cap, behind)
    for way in split[split.flow_id == largest].nlargest(1, "samples").itertuples():
        print(f"smallest RTT, taken as base RTT:       {way.rtt_least_ns / 1e6:.1f} ms")
        print(f"  of which in the queue:               {way.queue_at_least_ns / 1e6:.1f} ms")
    again = int(flows.set_index("flow_id").retransmitted[largest])
    print(
        f"lost in the queue: {int(mine.lost.sum())} packets; retransmitted at the first tap: {again} segments"
    )
    display(cct.plot.queue_delay(delays, cap, flows=big))

# %% [markdown]
# In the bundled capture, every lost packet was retransmitted, and the delays agree within a few milliseconds, because
# this flow saw the queue empty at least once. A flow that never does mistakes queueing delay for base RTT: always
# compare with others on the same path.
#
# ## A second opinion
#
# All of this can be written as rules. The report (`cct report`) has them, and every sentence comes with its rule. Do
# you agree?

# %%
for finding in cct.summarise(TRACE).findings():
    print("•", finding.text)

# %% [markdown]
# ## Exercises
#
# Here are three patients. Their names would give them away, so they are spelled backwards; try not to read them. For
# each: what is wrong, which figure shows it, and what would you prescribe?


# %%
def patient(name_backwards: str) -> cct.Capture:
    return cct.read_capture(f"../../traces/{name_backwards[::-1]}.ingress.pcap.gz")


# %% [markdown]
# ### Exercise 1
#
# `patient("taolbreffub")` complains that web pages take seconds while somebody uploads.
#
# <details><summary>Hint</summary>
#
# Question 3: plot the RTT. Does it climb before anything is lost?
#
# </details>

# %% tags=["solution"]
first = patient("taolbreffub")
cct.plot.rtt(cct.rtt_samples(first), first)

# %% [markdown] tags=["solution"]
# One upload carries nearly all bytes, its RTT climbs from 20 ms to almost half a second before anything is lost, and
# the downloads suffer with it. The buffer is too large: CoDel or FQ-CoDel at the uplink (lesson 1).

# %% [markdown]
# ### Exercise 2
#
# `patient("ssenriafnu-ttr")` pays for the same line as a neighbour and gets an eighth.
#
# <details><summary>Hint</summary>
#
# Compare the smallest RTTs of the two large flows.
#
# </details>

# %% tags=["solution"]
second = patient("ssenriafnu-ttr")
display(cct.plot.throughput(second))
cct.rtt_summary(cct.rtt_samples(second)).query("samples > 100")[
    ["flow_id", "samples", "rtt_min_ns", "rtt_median_ns"]
]

# %% [markdown] tags=["solution"]
# Two flows, both with losses, and smallest RTTs of 10 and 80 ms: the reason is the base RTT. A queue per flow (or per
# class of RTTs) would share evenly (lesson 5).

# %% [markdown]
# ### Exercise 3
#
# `patient("rbb-cibuc")`: the first flow was fine for two seconds. Then another one started. Their RTTs are equal.
#
# <details><summary>Hint</summary>
#
# Draw the newcomer's bytes in flight. Is there a sawtooth?
#
# </details>

# %% tags=["solution"]
third = patient("rbb-cibuc")
display(cct.plot.throughput(third))
cct.plot.bytes_in_flight(third, int(third.flows.sort_values("bytes_fwd").flow_id.iloc[-1]))

# %% [markdown] tags=["solution"]
# The newcomer's bytes in flight have no sawtooth: apart from short probes upwards they stay where they are, losses or
# not. That is BBR, which looks at rates, competing with CUBIC, which backs off at each loss. Nothing in the network is
# broken; a queue per flow would protect the one that backs off.

# %% [markdown]
# ## Questions
#
# - The tap was on the sender's side of the queue. What would questions 3 and 4 look like from the other side?
# - You see only one direction of a flow. Which of the five questions can you still answer?
# - "There are retransmissions, so the network loses packets." Name two other reasons for a retransmission.
# - The capture's clock jumps by 50 ms once. Which figures show it, and what would you conclude if you did not know?

# %% [markdown] tags=["solution"]
# - Behind the queue, the RTT of the data covers only the rest of the path: queueing delay does not show, and losses
#   appear as gaps that are filled later, not as repeated segments.
# - Which flows there are and how they share, and the sender's retransmissions. No RTT, no queueing delay, no bytes in
#   flight.
# - A spurious timeout because the RTT rose; reordered packets that looked lost. (A tap that captured a packet twice
#   only looks like one.)
# - RTTs across the jump and all time axes: it looks as if every flow paused at the same moment, which gives it away.
