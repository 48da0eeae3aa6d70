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
# # A capture, from packets to answers
#
# **Takes** half an hour with the exercises, ten minutes without.
#
# **The question.** Somebody hands you a capture they made at a slow link. Who is in it? How is the link
# shared? Where does the delay come from? And can you tell which congestion control each flow uses, from
# the packets alone?
#
# **You need** to know what a TCP sequence number is. Everything else is explained on the way.

# %% tags=["parameters"]
import os

FAST = os.environ.get("FAST", "") not in (
    "",
    "0",
)  # a few seconds of the capture only: for a quick look, and for tests
TRACE = os.environ.get("TRACE") or "../traces/three-ccas-ipv6.ingress.pcap.gz"

# %% [markdown]
# `TRACE` is any capture: `TRACE=/path/to/it.pcap.gz jupyter lab` looks at your own. Without it you get one of
# the captures in `traces/`: three real Linux senders behind one full buffer, at 8 Mbit/s.
#
# ## Read it

# %%
from pathlib import Path

import cctoolkit as cct
import pandas as pd

path = Path(TRACE).expanduser()
print(path.name)
cap = next(cct.iter_capture(path, packets=2_000_000))  # of a huge file, the first two million packets
if FAST:
    cap = cap.select(stop_s=9)
cap

# %% [markdown]
# Whatever the file was, you now have one table of packets. All the rest of this notebook is functions of
# that table.

# %%
cap.packets.head()

# %% [markdown]
# ## Who is in it?

# %%
flows = cap.flows.sort_values("bytes_fwd", ascending=False)
flows[
    ["flow_id", "src", "sport", "dst", "dport", "protocol", "bytes_fwd", "bytes_rev", "retransmits_fwd"]
].head(8)

# %% [markdown]
# `fwd` is from the side that began the flow, `rev` the other way. The flows worth a closer look are those
# of which the tap saw both directions, and enough data:

# %%
seen_whole = flows[(flows.protocol == 6) & (flows.packets_fwd > 0) & (flows.packets_rev > 0)]
carried = seen_whole[["payload_fwd", "payload_rev"]].max(axis=1)
big = seen_whole.flow_id[carried >= 0.01 * carried.max()].tolist()[:6]
big

# %% [markdown]
# ## How is the link shared?
#
# Above, what each flow got. Below, Jain's fairness index of these flows: 1 if all get the same, 1/n if one
# of n gets everything.

# %%
cct.plot.throughput(cap, flows=big)

# %% [markdown]
# Is that fair? It depends on how long you look: over a millisecond only one flow can have the link, over
# a day everybody had their turn. Move the slider.

# %%
from ipywidgets import SelectionSlider, interact


@interact(
    bin_ms=SelectionSlider(options=[20, 50, 100, 200, 500, 1000, 2000], value=200, description="bin (ms)")
)
def sharing(bin_ms: int):
    return cct.plot.throughput(cap, bin_s=bin_ms / 1000, flows=big)


# %% [markdown]
# ## How far away is everybody?
#
# A segment passes the tap, and a while later the ACK for it: that is a round-trip time, from the tap to the
# receiver and back. Nobody had to send a ping.

# %%
rtt = cct.rtt_samples(cap)
cct.plot.rtt(rtt, cap, flows=big)

# %% [markdown]
# The lowest dots are the distance, if the buffer was empty at least once when the flow sent. Everything above them is
# waiting, and there is a lot of it: that is a buffer being filled and emptied.

# %%
cct.plot.rtt_cdf(rtt, cap, flows=big)

# %% [markdown]
# ## What did one flow do?
#
# The time-sequence graph shows every segment of a flow. Green below is what the receiver has acknowledged,
# light blue above how far it allows the sender to go, and the distance between segments and green is
# what is in flight. Zoom in around a red mark: something was lost and is sent again.

# %%
cct.plot.time_sequence(cap, big[0])

# %% [markdown]
# The same as a number. The saw is the congestion window at work.

# %%
cct.plot.bytes_in_flight(cap, big[0])

# %% [markdown]
# ## Pick your own
#
# All of that, for the flows you pick. Zoom in one panel and the others follow.

# %%
cap.explore()

# %% [markdown]
# ## Inside the queue
#
# This capture has a twin: a second tap *behind* the queue. A packet's time between the two is its waiting
# time, and a packet that never comes out was dropped. (Other captures mostly have one tap. Then this part
# is skipped.)

# %%
twin = Path(str(path).replace(".ingress.", ".egress."))
two_taps = twin != path and twin.exists()
if two_taps:
    egress = cct.read_capture(twin)
    delays = cct.queue_delay(cap, egress)
    display(cct.plot.queue_delay(delays, cap, flows=big))
else:
    print("one tap only: nothing is known about the queue")

# %% [markdown]
# Now the bytes that each flow has in the queue: *connection bytes in queue*, CBIQ. It is what the Dragonfly
# classifier looks at (Carmel and Keslassy, Figure 1).
#
# **Expected from the paper:** CBIQ is smooth and has a shape (a line that grows for Reno, a cubic curve for
# CUBIC, a plateau for BBR) where the throughput next to it is mostly noise. That was with 15 flows in
# the background; here the flows have the queue to themselves.

# %%
if two_taps:
    slot_ms = 10
    slots = cct.compute_slots(cap, egress, slot_ms=slot_ms)
    display(cct.plot.cbiq(slots, cap, flows=big[:3], slot_ms=slot_ms))

# %% [markdown]
# ## Take it with you
#
# One page with all of this, to mail to somebody; it needs nothing else, not even a network. The same from a
# terminal: `cct report CAPTURE`.

# %%
from IPython.display import FileLink

cct.report.report(cap, "report.html", egress=egress if two_taps else None)
FileLink("report.html")

# %% [markdown]
# ## Exercises
#
# **1.** Which of the big flows had to send the largest share of its segments again? If the senders' kernels left
# labels beside the capture, compare with what they counted.

# %% tags=["solution"]
again = seen_whole.set_index("flow_id").loc[big]
percent = 100 * cct.retransmitted_share(again, "fwd")
display(percent.round(1).sort_values(ascending=False).rename("sent again, %").to_frame())

labels = Path(str(path).replace(".ingress.pcap.gz", ".labels.csv"))
if not FAST and labels != path and labels.exists():
    kernel = pd.read_csv(labels).set_index(["src", "sport"]).retransmits
    display(again.set_index(["src", "sport"])[["retransmits_fwd"]].join(kernel.rename("the kernel's count")))

# %% [markdown]
# **2.** A standing queue hides in the RTT: subtract each flow's smallest RTT from its samples, and take the median of
# what is left, flow by flow. With two taps, compare it with the median of `delays`. For which flow are they the same,
# and why not for the others?

# %% tags=["solution"]
mine = rtt[rtt.flow_id.isin(big) & (rtt.direction == 0)]
waiting = mine.rtt_ns - mine.groupby("flow_id").rtt_ns.transform("min")
compared = {"from one tap (ms)": waiting.groupby(mine.flow_id).median() / 1e6}
if two_taps:
    sent = delays[delays.flow_id.isin(big) & (delays.direction == 0)]
    compared["from two taps (ms)"] = sent.groupby("flow_id").delay_ns.median().astype(float) / 1e6
pd.DataFrame(compared).round(1)

# %% [markdown] tags=["solution"]
# A tap before the queue sees all of the path: the wait, the way to the receiver, and the way back. It can only take the
# flow's smallest RTT for the path, which is right if the queue was empty once when the flow sent. Both taps together
# tell of each segment how much of its RTT passed between them (*queue*) and how much elsewhere (*rest*):

# %% tags=["solution"]
if two_taps:
    split = cct.metrics.rtt_split(cap, egress).query("flow_id in @big and direction == 0")
    ms = split.set_index("flow_id").filter(like="_ns").div(1e6).round(1)
    display(ms.rename(columns=lambda name: name.replace("_ns", " (ms)").replace("_", " ")))

# %% [markdown] tags=["solution"]
# The rest is the distance. *Growth*, the RTT over the flow's least, and the queue that was in that least RTT (*queue at
# least*) are together the wait. Who begins while others keep the queue full never sees it empty and takes a part of it
# for distance; so does whoever looks at that flow's RTTs alone. The flow itself is misled, too, if its congestion
# control steers by the smallest RTT, as BBR's does. (Medians here are of segments that gave an RTT; above, those from
# two taps are of all packets.)

# %% [markdown]
# **3.** Compute Jain's index of what the big flows got in the whole capture, by hand and with
# `cct.jain_index`. Why is it another number than in the figure?

# %% tags=["solution"]
got = again.payload_fwd.to_numpy(dtype=float)
print(got.sum() ** 2 / (len(got) * (got**2).sum()), cct.jain_index(got))

# %% [markdown] tags=["solution"]
# The figure looks at short times, and counts a flow only while it is there. Over the whole capture the
# flows that started late had less time, and the ups and downs of each cancel out.

# %% [markdown]
# **4.** Which flow is Reno, which CUBIC, which BBR? Decide from the figures above, write down why, and only
# then look at what the senders' kernels said.

# %% tags=["solution"]
if two_taps and labels.exists():
    display(pd.read_csv(labels)[["src", "sport", "cca", "base_rtt_ms"]].dropna())

# %% [markdown]
# **5.** Now a backbone. `cct.find_trace()` gives a day of the MAWI archive if you have one (`cct fetch mawi
# 2024-02-15`, some gigabytes), else synthetic traffic that looks like one, and says which. Of what share of
# the TCP flows do you see one direction only, and what does that take from you?

# %% tags=["solution"]
backbone, what = cct.find_trace()
print(what)
link = next(cct.iter_capture(backbone, packets=2_000_000))
tcp = link.flows[link.flows.protocol == 6]
print(
    f"{((tcp.packets_fwd == 0) | (tcp.packets_rev == 0)).mean():.0%} of {len(tcp):,} TCP flows in one direction only"
)
cct.plot.rtt_cdf(cct.rtt_samples(link), link)

# %% [markdown] tags=["solution"]
# No RTT, no handshake, nothing in flight for those: all of these need the ACKs. Throughput, and
# retransmissions, are still there.
