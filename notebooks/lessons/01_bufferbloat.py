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
# # Bufferbloat: why a call breaks up while somebody uploads
#
# **Takes** 45 minutes with the exercises.
#
# **The question.** The line carries 10 Mbit/s and nothing is broken. But as soon as somebody at home uploads their
# holiday photos, calls stutter and pages take seconds. No packet is lost, and the line is as fast as ever. Where does
# the time go?
#
# **You need** to know that the Internet sends packets, and that TCP speeds up until something is lost. The only
# mathematics is a division.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # fewer points in the sweeps

# %% [markdown]
# ## A queue
#
# Your router receives packets from the house at 1000 Mbit/s and forwards them at 10. It stores what it cannot send yet
# in its *buffer*; the packets in the buffer are the *queue*. A packet that finds the buffer full is dropped. Any other
# packet must wait for all those ahead of it:
#
# $$\text{wait} = \frac{\text{packets ahead} \times \text{bits in a packet}}{\text{rate of the line}}$$
#
# Here is that house: an upload with CUBIC, the TCP of Linux, Windows and macOS (RFC 9438), and a call of 0.1 Mbit/s. A
# round trip to the server and back is 40 ms. The size of the buffer is up to you.


# %%
def house(
    buffer_packets: int, aqm: str = "tail_drop", upload: str = "cubic", start_s: float = 0
) -> cct.Scenario:
    return cct.Scenario(
        bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=buffer_packets, aqm=aqm),
        flows=[
            cct.Flow(upload, rtt_ms=40, start_s=start_s, name="upload"),
            cct.Flow("udp", rate_mbps=0.1, packet_bytes=200, rtt_ms=40, name="call"),
        ],
        duration_s=30,
    )


# %% [markdown]
# ## Predict
#
# Memory is cheap, and losing packets is bad, isn't it? So one vendor builds a router with room for 50 packets, another
# with ten times as much. A full packet has 1514 bytes. **Write down your numbers before you go on**, in place of
# `None`: the mean queueing delay in each router, and how much of the line is used.

# %%
prediction = {
    "wait with 50 packets, ms": None,
    "wait with 500 packets, ms": None,
    "line used with 50 packets, %": None,
    "line used with 500 packets, %": None,
}

# %%
small, large = (cct.simulate(house(buffer_packets)) for buffer_packets in (50, 500))
cct.lessons.compare_prediction(
    prediction,
    {
        "wait with 50 packets, ms": small.summary()["mean_delay_ms"],
        "wait with 500 packets, ms": large.summary()["mean_delay_ms"],
        "line used with 50 packets, %": 100 * small.summary()["utilisation"],
        "line used with 500 packets, %": 100 * large.summary()["utilisation"],
    },
)

# %% [markdown]
# The larger buffer gains the upload nothing and makes everyone wait nine times as long. The call needs 0.1 of the
# line's 10 Mbit/s, but its packets wait in the same queue.
#
# ## Watch it fill
#
# The upload begins after five seconds. TCP speeds up as long as nothing is lost, and nothing is lost as long as there
# is room in the buffer, so it fills the buffer, whatever its size. TCP does not notice that the line has long been
# full.

# %%
cct.plot.queue(cct.simulate(house(500, start_s=5)))

# %% [markdown]
# Now you are the vendor. How small can the buffer be before the upload suffers? Move the slider.

# %%
from ipywidgets import SelectionSlider, interact


@interact(
    buffer_packets=SelectionSlider(
        options=[5, 10, 20, 33, 50, 100, 200, 500, 1000], value=200, description="packets"
    )
)
def choose(buffer_packets: int):
    run = cct.simulate(house(buffer_packets))
    found = run.summary()
    title = f"{buffer_packets} packets: {found['utilisation']:.0%} used, {found['mean_delay_ms']:.0f} ms of waiting"
    return cct.plot.queue(run).update_layout(title_text=title)


# %% [markdown]
# Here are all sizes at once. Higher is better for the upload, and further left is better for the call:

# %%
import pandas as pd

sizes = [5, 20, 100, 1000] if FAST else [5, 10, 20, 33, 50, 100, 200, 500, 1000]
sweep = pd.DataFrame([{"packets": size} | cct.simulate(house(size)).summary() for size in sizes])
cct.plot.trade_off(sweep, by="packets")

# %% [markdown]
# There is a knee. To its left the line runs dry each time TCP slows down; to its right, all you buy is delay. Its
# position follows from what fits into the line itself, its **bandwidth-delay product**: 10 Mbit/s × 40 ms = 50 000
# bytes, 33 packets. The old rule of thumb is a buffer of one such product (Villamizar and Song 1994), because Reno
# keeps half of its window at a loss; CUBIC keeps 70 % (RFC 9438, section 4.6) and makes do with less: 1/0.7 − 1 = 43 %
# of it, 14 packets.
#
# So why not just build routers with 33 packets? Because 40 ms is *this* upload's RTT. To another server it is 5 ms or
# 200, a radio link's rate changes with the weather, and there may be one upload or a hundred. No fixed size is right.
#
# ## In the wild
#
# Enough simulations. These captures were taken around a queue of a real Linux router: an upload, and a small download
# every two seconds. Compare the figure with the one you have just seen.

# %%
real = cct.load_run("../../traces/bufferbloat")
cct.plot.queue_delay(real)

# %% [markdown]
# What did this do to the downloads? Each is 30 kB. The first two had the line to themselves.


# %%
def downloads(run: cct.Run) -> pd.Series:
    """Seconds each took, by the second in which it began."""
    times = cct.flow_completion_times(run.ingress).query("transfer_bytes < 100_000")
    begun_s = ((times.start_ns - run.start_ns) / 1e9).round(1).rename("begun at, s")
    return pd.Series(times.fct_s.to_numpy(), index=begun_s, name="seconds")


downloads(real).round(2)

# %% [markdown]
# ## What helps?
#
# Not just a faster line: it drains the buffer sooner, but the line was never the problem. What helps is a router that
# notices a *standing* queue and drops a packet while there is still plenty of room. TCP takes the hint. This is
# **active queue management**, AQM; the one used here is called CoDel (RFC 8289), and the next lesson explains how it
# works. The buffer still has 500 packets.

# %%
runs = {
    name: cct.simulate(house(500, aqm, start_s=5))
    for name, aqm in (("drop when full", "tail_drop"), ("CoDel", "codel"))
}
display(cct.plot.queue(runs))
pd.DataFrame({name: run.summary() for name, run in runs.items()}).loc[
    ["goodput_mbps", "mean_delay_ms", "retransmits"]
].round(1)

# %% [markdown]
# The upload pays about a twentieth of its rate: with so short a queue, the line is idle for a moment again and again.
#
# It works on a real router, too: `bufferbloat-codel` is the same traffic with CoDel. Here are its downloads:

# %%
cured = cct.load_run("../../traces/bufferbloat-codel")
pd.DataFrame({"drop when full": downloads(real), "CoDel": downloads(cured)}).round(2)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# An old DSL router has a buffer of 256 KiB, and its uplink carries 1 Mbit/s. How long does a packet wait when the
# buffer is full? Compute it first, then let the simulator tell you the longest delay.
#
# <details><summary>Hint</summary>
#
# Waiting time is bits in the buffer divided by the rate. For the simulator, limit the buffer in bytes:
# `house(1).replace({"bottleneck.buffer_bytes": 256 * 1024, "bottleneck.buffer_packets": None})`. In a limit in packets, a
# small packet of the call takes as much room as a large one of the upload.
#
# </details>

# %% tags=["solution"]
print(256 * 1024 * 8 / 1e6, "s")
buffer = {"bottleneck.buffer_bytes": 256 * 1024, "bottleneck.buffer_packets": None}
dsl = house(1).replace(buffer | {"bottleneck.rate_mbps": 1, "duration_s": 60})
print(cct.simulate(dsl).summary()["max_delay_ms"] / 1000, "s")

# %% [markdown]
# ### Exercise 2
#
# Run four uploads at once (`{"flows.0.count": 4}`) with buffers of 5, 10 and 20 packets. Do many flows need more buffer
# than one, or less?
#
# <details><summary>Hint</summary>
#
# `house(size).replace({"flows.0.count": n})` runs n uploads; compare `utilisation` for n = 1 and n = 4.
#
# </details>

# %% tags=["solution"]
pd.DataFrame(
    [
        {
            "uploads": n,
            "packets": size,
            "line used": cct.simulate(house(size).replace({"flows.0.count": n})).summary()["utilisation"],
        }
        for n in (1, 4)
        for size in (5, 10, 20)
    ]
).pivot_table("line used", "packets", "uploads").round(3)

# %% [markdown] tags=["solution"]
# Less: they do not all slow down at the same moment, so while one does, the others fill the gap. With n unsynchronised
# flows, BDP/√n is enough (Appenzeller, Keslassy and McKeown, "Sizing router buffers", 2004). So a backbone needs
# smaller buffers than one would think, and a home with its single upload needs larger ones.

# %% [markdown]
# ### Exercise 3
#
# BBR is a TCP that does not wait for losses: it measures the bottleneck's rate and the shortest round trip, and sends
# accordingly. Let the upload use it (`house(500, upload="bbr")`). What happens to the queue? Is bufferbloat solved?
#
# <details><summary>Hint</summary>
#
# `cct.plot.queue` takes several runs by name: `{"cubic": run, "bbr": other}`. Then think of a neighbour who still uses
# CUBIC.
#
# </details>

# %% tags=["solution"]
cct.plot.queue({cca: cct.simulate(house(500, upload=cca)) for cca in ("cubic", "bbr")})

# %% [markdown] tags=["solution"]
# The queue is short, because this sender does not fill it. But a single CUBIC sender at home fills it again, for
# everyone: the people who suffer are not those who chose. That is an argument for solving the problem in the queue.

# %% [markdown]
# ## Questions
#
# - The upload's own goodput is the same with 50 and with 500 packets. Who, then, benefits from small buffers? Why did
#   vendors build large ones?
# - Speed tests used to show only Mbit/s. What else should they show?
# - With a buffer of 5 packets the line was not full. Did the call benefit? Would it with two packets?
# - The queue's delay is the same for a packet of the upload and one of the call. Could a router treat them differently
#   without knowing which is which?

# %% [markdown] tags=["solution"]
# - Those who wait: calls, games, web pages. Vendors were judged by throughput and losses, and both look better with
#   more memory.
# - The round-trip time while the line is busy, compared with that of an idle line: "latency under load".
# - Its packets waited a millisecond or two, which nobody hears; losses matter more to a call, and small buffers lose
#   more.
# - Yes: give each flow a queue of its own and serve them in turn (fq_codel, RFC 8290). A call never has more than one
#   packet in its queue, so it hardly waits.
