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
# # Bufferbloat: why a call breaks up while somebody uploads
#
# **Takes** 45 minutes with the exercises.
#
# **The question.** The line carries 10 Mbit/s and nothing is broken. But as soon as somebody at home uploads their
# holiday photos, calls stutter and pages take seconds. No packet is lost and the line is as fast as ever. Where does
# the time go?
#
# **You need** to know that the Internet sends packets, and that TCP speeds up until something is lost. There is no
# mathematics here beyond a division.

# %% tags=["parameters"]
import os

FAST = os.environ.get("FAST", "") not in ("", "0")  # fewer points in the sweeps

# %% [markdown]
# ## A queue
#
# Your router gets packets from the house at 1000 Mbit/s and sends them on at 10. What it cannot send yet it keeps:
# that is the *buffer*, and the packets in it are the *queue*. A packet that finds the buffer full is dropped. One
# that does not has to wait for all that came before it:
#
# $$\text{wait} = \frac{\text{packets ahead} \times \text{bits in a packet}}{\text{rate of the line}}$$
#
# Here is that house: an upload with CUBIC, the TCP of Linux, Windows and macOS (RFC 9438), and a call of 0.1 Mbit/s.
# The nearest server is 40 ms away, there and back. Only the size of the buffer is left open.

# %%
import cctoolkit as cct


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
# Memory is cheap, and losing packets is bad, is it not? So one vendor builds a router with room for 50 packets,
# another with ten times as much. A full packet has 1514 bytes. **Write down your numbers before you go on**, in place
# of `None`: the mean wait in either router's queue, and how much of the line is used.

# %%
prediction = {
    "wait with 50 packets, ms": None,
    "wait with 500 packets, ms": None,
    "line used with 50 packets, %": None,
    "line used with 500 packets, %": None,
}

# %%
from cctoolkit.experiments.lessons import compare_prediction

small, large = (cct.simulate(house(buffer_packets)) for buffer_packets in (50, 500))
compare_prediction(
    prediction,
    {
        "wait with 50 packets, ms": small.summary()["mean_delay_ms"],
        "wait with 500 packets, ms": large.summary()["mean_delay_ms"],
        "line used with 50 packets, %": 100 * small.summary()["utilisation"],
        "line used with 500 packets, %": 100 * large.summary()["utilisation"],
    },
)

# %% [markdown]
# The larger buffer brings the upload nothing, and makes everybody wait nine times as long. The call is 0.1 Mbit/s
# in a line of 10, and its packets stand in the same queue.
#
# ## Watch it fill
#
# The upload begins after five seconds. TCP sends faster as long as nothing is lost, and nothing is lost as long as
# there is room: so it fills the room, whatever its size. That the line was full long ago, TCP does not notice.

# %%
cct.plot.queue(cct.simulate(house(500, start_s=5)))

# %% [markdown]
# Now you are the vendor. How small can the buffer get before the upload suffers? Move the slider.

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
# All sizes at once. Up is good for the upload, left is good for the call:

# %%
import pandas as pd

sizes = [5, 20, 100, 1000] if FAST else [5, 10, 20, 33, 50, 100, 200, 500, 1000]
sweep = pd.DataFrame([{"packets": size} | cct.simulate(house(size)).summary() for size in sizes])
cct.plot.trade_off(sweep, by="packets")

# %% [markdown]
# There is a knee. To the left of it the line runs dry each time TCP slows down, to the right all you buy is
# waiting. Where it is follows from what fits into the line itself, its **bandwidth-delay product**: 10 Mbit/s × 40
# ms = 50 000 bytes, 33 packets. The old rule says one such product of buffer (Villamizar and Song 1994), because
# Reno keeps half of its window at a loss; CUBIC keeps 70 % (RFC 9438, section 4.6) and does with less: 1/0.7 − 1 =
# 43 % of it, 14 packets.
#
# So why not just build routers with 33 packets? Because 40 ms is *this* upload's distance. To the next server it is
# 5 ms or 200, the line's rate changes with the weather if it is radio, and there may be one upload or a hundred. No
# fixed size is right.
#
# ## In the wild
#
# Enough of simulations. These captures were taken around a queue of a real Linux router: an upload, and a small
# download every two seconds. Compare the figure with the one you have just seen.

# %%
real = cct.load_run("../../traces/bufferbloat")
cct.plot.queue_delay(real)

# %% [markdown]
# And what did the downloads notice? Each is 30 kB. The first two had the line to themselves.


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
# Not a faster line alone: it is empty sooner, but it was never the line. What helps is a router that notices that a
# queue *stands*, and drops a packet while there is still plenty of room. TCP takes the hint. That is **active queue
# management**, AQM; this one is called CoDel (RFC 8289), and the next lesson is about how it does that. The room is
# the same 500 packets.

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
# The upload pays a twentieth of its rate for it: it had to slow down now and then, and the line ran dry once.
#
# On a real router, too: `bufferbloat-codel` is the same traffic with CoDel. The downloads again:

# %%
cured = cct.load_run("../../traces/bufferbloat-codel")
pd.DataFrame({"drop when full": downloads(real), "CoDel": downloads(cured)}).round(2)

# %% [markdown]
# ## Exercises
#
# **1.** An old DSL router has a buffer of 256 KiB, and the line carries 1 Mbit/s upwards. How long does a packet wait
# in it when it is full? Compute it first, then let the simulator tell you the longest wait.

# %% tags=["solution"]
print(256 * 1024 * 8 / 1e6, "s")
dsl = house(256 * 1024 // 1514).replace({"bottleneck.rate_mbps": 1, "duration_s": 60})
print(cct.simulate(dsl).summary()["max_delay_ms"] / 1000, "s")

# %% [markdown]
# **2.** Four uploads at once (`{"flows.0.count": 4}`) with buffers of 5, 10 and 20 packets: do many flows need more
# buffer than one, or less?

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
# Less: they do not slow down all at the same moment, so while one does the others fill the gap. With n flows that are
# out of step BDP/√n is enough (Appenzeller, Keslassy and McKeown, "Sizing router buffers", 2004), which is why a
# backbone needs smaller buffers than one would think, and a home with its one upload larger ones.

# %% [markdown]
# **3.** BBR is a TCP that does not wait for losses; it measures the line's rate and the shortest round trip, and
# sends that much. Let the upload use it (`house(500, upload="bbr")`). What happens to the queue? Is bufferbloat
# solved?

# %% tags=["solution"]
cct.plot.queue({cca: cct.simulate(house(500, upload=cca)) for cca in ("cubic", "bbr")})

# %% [markdown] tags=["solution"]
# The queue is short, because this sender does not fill it. But it takes only one CUBIC sender at home to fill it
# again, for everybody: the one who suffers is not the one who chose. That is an argument for solving it in the
# queue.

# %% [markdown]
# ## Questions
#
# - The upload's own goodput is the same with 50 and with 500 packets. Who, then, has an interest in small buffers?
#   Why did vendors build large ones?
# - Speed tests used to show Mbit/s only. What would you have them show?
# - With a buffer of 5 packets the line was not full. Did the call profit? Would it with two packets?
# - The queue's delay is the same for a packet of the upload and one of the call. Could a router treat them
#   differently without knowing which is which?

# %% [markdown] tags=["solution"]
# - Those who wait: calls, games, web pages. Vendors were judged by throughput and losses, and both look better with
#   more memory.
# - The round-trip time while the line is full, beside the one while it is idle: "latency under load".
# - Its packets waited a millisecond or two, which nobody hears; it would rather have its packets not lost, and small
#   buffers lose more.
# - Yes: give each flow a queue of its own and serve them in turn (fq_codel, RFC 8290). A call never has more than one
#   packet in its queue, so it hardly waits.
