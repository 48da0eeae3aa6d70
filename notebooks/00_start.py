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
# # A capture, from packets to answers
#
# **Takes** half an hour with the exercises, ten minutes without.
#
# **The question.** Somebody gives you a capture from a slow link. Which flows are in it? How do they share the link?
# Where does the delay come from? And can you tell from the packets alone which congestion control each flow uses?
#
# **You need** to know what a TCP sequence number is. Everything else is explained along the way.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # only a few seconds of the capture: for a quick look, and for tests
TRACE = cct.lessons.trace("../traces/three-ccas-ipv6.ingress.pcap.gz")  # or your own: TRACE=… make lab

# %% [markdown]
# To look at your own capture, start with `TRACE=/path/to/yours.pcap.gz make lab`. By default, the notebook reads one of
# the captures in `traces/`: three real Linux senders behind one full buffer, at 8 Mbit/s.
#
# ## Read the capture

# %%
import pandas as pd

print(TRACE.name)
cap = next(cct.iter_capture(TRACE, packets=2_000_000))  # at most the first two million packets
if FAST:
    cap = cap.select(stop_s=9)
cap

# %% [markdown]
# Whatever the file format, you now have one table of packets. Everything in the rest of this notebook is a function of
# that table.

# %%
cap.packets.head()

# %% [markdown]
# ## Which flows are in it?

# %%
flows = cap.flows.sort_values("bytes_fwd", ascending=False)
flows[
    ["flow_id", "src", "sport", "dst", "dport", "protocol", "bytes_fwd", "bytes_rev", "retransmits_fwd"]
].head(8)

# %% [markdown]
# `fwd` is the direction of the side that opened the flow, `rev` the opposite one. The flows worth a closer look have
# enough data and appear in both directions:

# %%
seen_whole = flows[(flows.protocol == 6) & (flows.packets_fwd > 0) & (flows.packets_rev > 0)]
carried = seen_whole[["payload_fwd", "payload_rev"]].max(axis=1)
big = seen_whole.flow_id[carried >= 0.01 * carried.max()].tolist()[:6]
if not carried.any():
    raise cct.errors.ParameterError("TRACE has no TCP flow with data and its ACKs; choose another capture")
big

# %% [markdown]
# ## How is the link shared?
#
# The upper panel shows each flow's throughput. The lower panel shows Jain's fairness index: 1 if all flows get the
# same, 1/n if one of n flows gets everything.

# %%
cct.plot.throughput(cap, flows=big)

# %% [markdown]
# Is that fair? It depends on the time scale: within a millisecond, only one flow can have the link; over a day,
# everyone gets a turn. Move the slider.

# %%
from ipywidgets import SelectionSlider, interact


@interact(
    bin_ms=SelectionSlider(options=[20, 50, 100, 200, 500, 1000, 2000], value=200, description="bin (ms)")
)
def sharing(bin_ms: int):
    return cct.plot.throughput(cap, bin_s=bin_ms / 1000, flows=big)


# %% [markdown]
# ## How long are the round trips?
#
# A segment passes the tap, and some time later its ACK does. The difference is a round-trip time, from the tap to the
# receiver and back. No ping is needed.

# %%
rtt = cct.rtt_samples(cap)
cct.plot.rtt(rtt, cap, flows=big)

# %% [markdown]
# The lowest dots are the base RTT, provided the buffer was empty at least once while the flow was sending. Everything
# above them is queueing delay, and there is a lot of it: you are watching a buffer fill and drain.

# %%
cct.plot.rtt_cdf(rtt, cap, flows=big)

# %% [markdown]
# ## What did one flow do?
#
# The time-sequence graph shows every segment of a flow. The green line is what the receiver has acknowledged, the light
# blue line the limit of its receive window, and the distance from the green line to the segments is the data in flight.
# Zoom in on a red mark: a segment was lost and retransmitted.

# %%
cct.plot.time_sequence(cap, big[0])

# %% [markdown]
# The next figure shows the bytes in flight. The sawtooth is the congestion window at work.

# %%
cct.plot.bytes_in_flight(cap, big[0])

# %% [markdown]
# ## Pick your own flows
#
# This widget shows all of these plots for the flows you pick. If you zoom in one panel, the others follow.

# %%
cap.explore()

# %% [markdown]
# ## Inside the queue
#
# This capture has a twin: a second tap *behind* the queue. The time a packet takes from one tap to the other is its
# queueing delay, and a packet that never comes out was dropped. (If there is only one tap, as in most captures, this
# part is skipped.)

# %%
twin = TRACE.with_name(TRACE.name.replace(".ingress.", ".egress."))
two_taps = twin != TRACE and twin.exists()
if two_taps:
    egress = cct.read_capture(twin)
    delays = cct.queue_delay(cap, egress)
    display(cct.plot.queue_delay(delays, cap, flows=big))
else:
    print("only one tap: the queue is not visible")

# %% [markdown]
# The next figure shows the bytes each flow has in the queue: *connection bytes in queue*, CBIQ. This is the input of
# the Dragonfly classifier (Carmel and Keslassy, Figure 1).
#
# **Expected from the paper:** CBIQ is smooth and has a characteristic shape (a rising line for Reno, a cubic curve for
# CUBIC, a plateau for BBR), while the throughput next to it is mostly noise. The paper had 15 flows in the background;
# here the flows have the queue to themselves.

# %%
if two_taps:
    slot_ms = 10
    slots = cct.compute_slots(cap, egress, slot_ms=slot_ms)
    display(cct.plot.cbiq(slots, cap, flows=big[:3], slot_ms=slot_ms))

# %% [markdown]
# ## Share the result
#
# The report is one self-contained page that you can mail to somebody; it works offline. In a terminal, run
# `cct report CAPTURE`.

# %%
from IPython.display import FileLink

cct.report.report(cap, "report.html", egress=egress if two_taps else None)
FileLink("report.html")

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# Which of the big flows retransmitted the largest share of its segments? If the capture comes with labels from the
# senders' kernels, compare with the kernels' counts.
#
# <details><summary>Hint</summary>
#
# `cct.retransmitted_share(table, "fwd")` takes a table with one row per flow. The kernel's counts are in the column
# `retransmits` of the file that ends in `.labels.csv`.
#
# </details>

# %% tags=["solution"]
again = seen_whole.set_index("flow_id").loc[big]
percent = 100 * cct.retransmitted_share(again, "fwd")
display(percent.round(1).sort_values(ascending=False).rename("retransmitted, %").to_frame())

labels = TRACE.with_name(TRACE.name.replace(".ingress.pcap.gz", ".labels.csv"))
if not FAST and labels != TRACE and labels.exists():
    kernel = pd.read_csv(labels).set_index(["src", "sport"]).retransmits
    display(again.set_index(["src", "sport"])[["retransmits_fwd"]].join(kernel.rename("the kernel's count")))

# %% [markdown]
# ### Exercise 2
#
# A standing queue hides in the RTT. For each flow, subtract the smallest RTT from its samples, and take the median of
# the differences. With two taps, compare it with the median of `delays`. For which flow are they the same, and why not
# for the others?
#
# <details><summary>Hint</summary>
#
# `rtt.groupby("flow_id").rtt_ns.transform("min")` gives each sample its flow's minimum. Which of the flows ever saw an
# empty queue?
#
# </details>

# %% tags=["solution"]
mine = rtt[rtt.flow_id.isin(big) & (rtt.direction == 0)]
waiting = mine.rtt_ns - mine.groupby("flow_id").rtt_ns.transform("min")
compared = {"from one tap (ms)": waiting.groupby(mine.flow_id).median() / 1e6}
if two_taps:
    sent = delays[delays.flow_id.isin(big) & (delays.direction == 0)]
    compared["from two taps (ms)"] = sent.groupby("flow_id").delay_ns.median().astype(float) / 1e6
pd.DataFrame(compared).round(1)

# %% [markdown] tags=["solution"]
# A tap before the queue sees the whole path: the queueing delay, the way to the receiver, and the way back. It can only
# take the flow's smallest RTT as the base RTT, which is right if the queue was empty at least once while the flow was
# sending. With both taps, each segment's RTT splits into the time between the taps (*queue*) and the time elsewhere
# (*rest*):

# %% tags=["solution"]
if two_taps:
    split = cct.metrics.rtt_split(cap, egress).query("flow_id in @big and direction == 0")
    ms = split.set_index("flow_id").filter(like="_ns").div(1e6).round(1)
    display(ms.rename(columns=lambda name: name.replace("_ns", " (ms)").replace("_", " ")))

# %% [markdown] tags=["solution"]
# The rest is the base RTT. The queueing delay is the sum of *growth* (the RTT above the flow's smallest) and the queue
# that was part of that smallest RTT (*queue at least*). A flow that starts while others keep the queue full never sees
# it empty and mistakes part of the queueing delay for base RTT; so does anyone who looks at that flow's RTTs alone. The
# flow itself is misled, too, if its congestion control relies on the smallest RTT, as BBR does.

# %% [markdown]
# ### Exercise 3
#
# Compute Jain's index of the big flows' bytes over the whole capture, by hand and with `cct.jain_index`. Why does it
# differ from the figure?
#
# <details><summary>Hint</summary>
#
# The index of $x_1 \dots x_n$ is $(\sum x_i)^2 / (n \sum x_i^2)$; `payload_fwd` holds the bytes. Over which time does
# the figure average?
#
# </details>

# %% tags=["solution"]
got = again.payload_fwd.to_numpy(dtype=float)
print(got.sum() ** 2 / (len(got) * (got**2).sum()), cct.jain_index(got))

# %% [markdown] tags=["solution"]
# The figure uses short bins and counts a flow only while it is active. Over the whole capture, flows that started late
# had less time, and each flow's ups and downs cancel out.

# %% [markdown]
# ### Exercise 4
#
# Which flow is Reno, which CUBIC, which BBR? Decide from the figures above and write down why. Only then look at the
# labels from the senders' kernels.
#
# <details><summary>Hint</summary>
#
# Look at the plots of bytes in flight and CBIQ: after a loss, does the curve halve, drop by less and then flatten, or
# not react at all?
#
# </details>

# %% tags=["solution"]
if two_taps and labels.exists():
    display(pd.read_csv(labels)[["src", "sport", "cca", "base_rtt_ms"]].dropna())

# %% [markdown]
# ### Exercise 5
#
# Now look at backbone traffic. `cct.find_trace()` gives a day of the MAWI archive if you have one
# (`cct fetch mawi 2024-02-15`, several gigabytes), or an excerpt (in the folder that `CCTOOLKIT_MAWI` names), and
# otherwise synthetic traffic that resembles it; it says which. What share of the TCP flows was captured in one
# direction only, and what can you not measure for those?
#
# <details><summary>Hint</summary>
#
# A flow seen in one direction only has `packets_fwd` or `packets_rev` equal to 0. Which of the plots above need ACKs?
#
# </details>

# %% tags=["solution"]
backbone, what = cct.find_trace(excerpt=True)
print(what)
link = next(cct.iter_capture(backbone, packets=2_000_000))
tcp = link.flows[link.flows.protocol == 6]
print(
    f"{((tcp.packets_fwd == 0) | (tcp.packets_rev == 0)).mean():.0%} of {len(tcp):,} TCP flows appear in one direction only"
)
cct.plot.rtt_cdf(cct.rtt_samples(link), link)

# %% [markdown] tags=["solution"]
# RTTs, handshakes and bytes in flight all need the ACKs. Throughput and retransmissions do not.
