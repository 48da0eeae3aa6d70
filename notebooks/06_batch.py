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
# # An archive of captures as one dataset
#
# **Takes** a quarter of an hour with the exercises, five minutes without.
#
# **The question.** One capture fits into memory and a notebook. A year of captures does not. How do you put a question
# to a thousand captures and get the answer in seconds?
#
# **You need** to have seen one capture (`00_start`). Some SQL helps.

# %% tags=["parameters"]
import cctoolkit as cct

FAST = cct.lessons.fast()  # a smaller backbone: for a quick look, and for tests
TRACE = (
    cct.lessons.trace()
)  # a folder, glob or capture of your own, if the environment variable TRACE names one

# %% [markdown]
# ## A small archive
#
# Without an archive of your own, you get a week of synthetic backbone traffic, generated from seeds, with one file per
# day. With days of MAWI (`captures = ["2024-02-01..2024-02-07"]`, several gigabytes each), everything works the same.

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp(prefix="batch-"))
captures = [str(TRACE)]
if not TRACE:
    packets, days = (50_000, 3) if FAST else (400_000, 7)
    captures = [
        cct.synth_mawi(folder / f"day{day}.pcap.gz", packets, seed=day, progress=False)
        for day in range(1, days + 1)
    ]
    print(f"SYNTHETIC traffic: {days} days of {packets:,} packets")

# %% [markdown]
# ## Compute once
#
# Each capture is read once for all flows, and once more for the long ones. Here this happens in the notebook's process,
# one capture at a time; `workers=4` uses four processes, `scheduler="tcp://…"` a Dask cluster. On the command line:
# `cct batch week/*.pcap.gz -o archive --workers 4`.

# %%
output = folder / "archive"
settings = cct.BatchSettings(long_flow_bytes=500_000)  # small captures: the usual 10 MB would leave nothing
done = cct.run_batch(captures, output, settings, progress=False)
len(done.computed), "computed", len(done.failed), "failed"

# %% [markdown]
# Run it again, and nothing is read, because all results exist. The same holds if a worker or this notebook was killed
# halfway: finished work is kept and not repeated.

# %%
import time

start = time.perf_counter()
again = cct.run_batch(captures, output, settings, progress=False)
print(f"{1000 * (time.perf_counter() - start):.0f} ms")
len(again.computed), "computed", len(again.present), "already there"

# %% [markdown]
# ## The dataset
#
# Each table is a folder, with one folder per capture that contains Parquet files. Anything that reads Parquet can read
# it.

# %%
import pandas as pd

pd.read_parquet(output / "captures")[["capture", "packets", "wire_bytes", "flows", "long_flows", "truncated"]]

# %% [markdown]
# pandas reads only the columns you ask for and the rows that pass a filter. All flows of all captures may not fit into
# memory; the long ones are few.

# %%
columns = [
    "capture",
    "flow_id",
    "src",
    "dst",
    "dport",
    "bytes_fwd",
    "bytes_rev",
    "retransmits_fwd",
    "is_long",
]
long = pd.read_parquet(output / "flows", columns=columns, filters=[("is_long", "==", True)])
long.sort_values("bytes_fwd", ascending=False).head()

# %% [markdown]
# ## Questions in SQL
#
# DuckDB queries the files directly and in parallel, without loading them all; it takes the column `capture` from the
# folder names.

# %%
import duckdb
from cctoolkit.plot import style


def table(name: str) -> str:
    return f"read_parquet('{output}/{name}/**/*.parquet', hive_partitioning = true)"


duckdb.sql(f"""
    select capture, count(*) as flows,
           round(100 * avg((packets_fwd = 0 or packets_rev = 0)::int), 1) as percent_one_way,
           round(sum(bytes_fwd + bytes_rev) / 1e6, 1) as megabytes
    from {table("flows")} where protocol = 6 group by capture order by capture
""").df()

# %% [markdown]
# **How long are round trips, day by day?** Each line is a capture: the distribution of the flows' smallest RTTs.

# %%
nearest = duckdb.sql(f"""
    select capture, rtt_min_ns / 1e6 as ms from {table("rtt")} where samples >= 3 order by capture, ms
""").df()
figure = style.figure()
for capture, of in nearest.groupby("capture", observed=True):
    figure.add_scatter(
        x=of.ms, y=[(i + 1) / len(of) for i in range(len(of))], name=str(capture), mode="lines"
    )
figure.update_layout(
    xaxis_type="log",
    xaxis_title="smallest RTT of a flow (ms)",
    yaxis_title="share of flows",
)

# %% [markdown]
# **How fair is the link?** This is Jain's index of the long flows, second by second: ten lines of SQL over the `rates`
# of all captures at once. Move the slider: how large must a flow be to count?

# %%
from ipywidgets import SelectionSlider, interact


@interact(least_mb=SelectionSlider(options=[0.5, 1, 2, 5], value=0.5, description="at least MB"))
def fairness(least_mb: float):
    jain = duckdb.sql(f"""
        with chosen as (select capture, flow_id from {table("flows")}
                        where greatest(bytes_fwd, bytes_rev) > {least_mb} * 1e6),
             got as (select capture, second, flow_id, max(bytes) as b
                     from {table("rates")} join chosen using (capture, flow_id) group by all having b > 0)
        select capture, second, sum(b) ^ 2 / (count(*) * sum(b * b)) as jain
        from got group by capture, second having count(*) > 1 order by capture, second
    """).df()
    figure = style.figure()
    for capture, of in jain.groupby("capture", observed=True):
        figure.add_scatter(x=of.second, y=of.jain, name=str(capture), mode="lines")
    figure.update_layout(
        xaxis_title="second of the capture",
        yaxis_title="Jain's index",
        yaxis_range=[0, 1],
    )
    return figure


# %% [markdown]
# ## Inside a long flow
#
# The `slots` table has the bytes that each long flow sent in every 100 ms and its bytes in flight; a congestion control
# classifier needs nothing else (`classifier=` of `run_batch` adds its answers as the table `cca`).

# %%
one = long[long.bytes_rev > 0].sort_values("bytes_fwd", ascending=False).iloc[0]  # seen both ways
slots = duckdb.sql(f"""
    select slot / 10 as second, in_bytes, bytes_in_flight from {table("slots")}
    where capture = '{one.capture}' and flow_id = {one.flow_id} order by slot
""").df()
figure = style.figure()
figure.add_scatter(x=slots.second, y=slots.in_bytes, name="sent in a slot")
figure.add_scatter(x=slots.second, y=slots.bytes_in_flight, name="in flight")
figure.update_layout(
    xaxis_title="second of the capture",
    yaxis_title="bytes",
    title=f"{one.src} to {one.dst}, port {one.dport}",
)

# %% [markdown]
# ## Resources used
#
# The journal has an entry for every task. What would ten years of MAWI take? `docs/scale.md` does the arithmetic.

# %%
journal = duckdb.sql(
    f"select packets, passes, cpu_s, process_peak_bytes / 1e6 as peak_mb from read_json('{output}/journal/*.json')"
).df()
print(f"{1e6 * journal.cpu_s.sum() / journal.packets.sum():.2f} µs of CPU time per packet")
journal.describe().loc[["mean", "max"]]

# %% [markdown]
# ## Exercises
#
# ### Exercise 1
#
# What share of all bytes do the long flows carry in each capture?
#
# <details><summary>Hint</summary>
#
# `is_long::int` is 1 for long flows, so `sum(bytes * is_long::int) / sum(bytes)` is their share.
#
# </details>

# %% tags=["solution"]
duckdb.sql(f"""
    select capture, round(sum((bytes_fwd + bytes_rev) * is_long::int) / sum(bytes_fwd + bytes_rev), 3) as share
    from {table("flows")} group by capture order by capture
""").df()

# %% [markdown]
# ### Exercise 2
#
# In which second of which capture did the most new flows begin? Was it a scan: how many SYNs arrived in that second,
# and how many resets?
#
# <details><summary>Hint</summary>
#
# The table `seconds` has one row per second: `new_flows`, `syns`, `resets`, `packets`. Order by `new_flows`.
#
# </details>

# %% tags=["solution"]
duckdb.sql(
    f"select capture, second, new_flows, syns, resets, packets from {table('seconds')} order by new_flows desc limit 3"
).df()

# %% [markdown]
# ### Exercise 3
#
# Do flows with longer RTTs retransmit more? Join `flows` with `rtt`, and compute the share of retransmitted segments by
# RTT in steps of 50 ms.
#
# <details><summary>Hint</summary>
#
# `floor(rtt_min_ns / 50e6) * 50` is the lower edge of a 50 ms bin; divide `sum(retransmits_fwd)` by `sum(segments_fwd)`
# in each.
#
# </details>

# %% tags=["solution"]
duckdb.sql(f"""
    select floor(rtt_min_ns / 50e6) * 50 as from_ms, count(*) as flows,
           round(100 * sum(retransmits_fwd) / sum(segments_fwd), 2) as percent_again
    from {table("flows")} join {table("rtt")} using (capture, flow_id)
    where direction = 0 and samples >= 3 group by 1 order by 1
""").df()

# %% [markdown]
# ### Exercise 4
#
# Add a truncated capture to the archive, and a file that is not a capture. What does the result say about each?
#
# <details><summary>Hint</summary>
#
# Write the first 100 000 bytes of a capture into a new file, and any text into another. `run_batch` returns `notes` and
# `failed`.
#
# </details>

# %% tags=["solution"]
first = Path(captures[0])
if first.is_file():
    (folder / "cut.pcap.gz").write_bytes(first.read_bytes()[:100_000])
    (folder / "no.pcap").write_bytes(b"not a capture")
    more = cct.run_batch([folder / "cut.pcap.gz", folder / "no.pcap"], output, settings, progress=False)
    print(more.computed, more.notes, more.failed, sep="\n")
