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
# # An archive of captures as one dataset
#
# **Takes** a quarter of an hour with the exercises, five minutes without.
#
# **The question.** One capture fits into memory and a notebook. A year of them does not: how do you ask
# a thousand captures a question, and get the answer in seconds, the second time as well as the first?
#
# **You need** to have seen one capture (`00_start`), and some SQL helps.

# %% tags=["parameters"]
import os

FAST = os.environ.get("FAST", "") not in ("", "0")  # a smaller backbone: for a quick look, and for tests
TRACE = (
    os.environ.get("TRACE") or None
)  # a folder, a glob or a capture of your own, instead of the small archive below

# %% [markdown]
# ## A small archive
#
# Without an archive of your own you get a week of a synthetic backbone, made up from seeds, a day a file. With
# days of MAWI (`captures = ["2024-02-01..2024-02-07"]`, some gigabytes each) the rest is the same.

# %%
import tempfile
from pathlib import Path

import cctoolkit as cct

folder = Path(tempfile.mkdtemp(prefix="batch-"))
captures = [TRACE]
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
# Each capture is read once for all flows, and once more for the long ones. Here it happens in this process, one
# capture at a time; `workers=4` uses four processes, `scheduler="tcp://…"` a Dask cluster. On the command line:
# `cct batch week/*.pcap.gz -o archive --workers 4`.

# %%
output = folder / "archive"
settings = cct.BatchSettings(long_flow_bytes=500_000)  # small captures: the usual 10 MB would leave nothing
done = cct.run_batch(captures, output, settings, progress=False)
len(done.computed), "computed", len(done.failed), "failed"

# %% [markdown]
# Again: nothing is read, because everything is there. That also holds after a worker or this notebook was
# killed in the
# middle. What is done stays done, and is not done twice.

# %%
import time

start = time.perf_counter()
again = cct.run_batch(captures, output, settings, progress=False)
print(f"{1000 * (time.perf_counter() - start):.0f} ms")
len(again.computed), "computed", len(again.present), "there before"

# %% [markdown]
# ## What is there
#
# A folder a table, in it a folder a capture, in that Parquet files. Everything that reads Parquet can read it.

# %%
import pandas as pd

pd.read_parquet(output / "captures")[["capture", "packets", "wire_bytes", "flows", "long_flows", "truncated"]]

# %% [markdown]
# pandas reads what you ask for, and only that: columns, and rows that a filter lets through. The flows of all
# captures may be more than fits
# into memory; the long ones are few.

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
# DuckDB asks the files themselves, in parallel, without reading them all: `capture` is a column that it takes
# from the folders' names.

# %%
import duckdb


def table(name: str) -> str:
    return f"read_parquet('{output}/{name}/**/*.parquet', hive_partitioning = true)"


duckdb.sql(f"""
    select capture, count(*) as flows,
           round(100 * avg((packets_fwd = 0 or packets_rev = 0)::int), 1) as percent_one_way,
           round(sum(bytes_fwd + bytes_rev) / 1e6, 1) as megabytes
    from {table("flows")} where protocol = 6 group by capture order by capture
""").df()

# %% [markdown]
# **How far away is the Internet, day by day?** One line a capture: of each flow's least RTT, the share below
# a time.

# %%
import plotly.graph_objects as go

nearest = duckdb.sql(f"""
    select capture, rtt_min_ns / 1e6 as ms from {table("rtt")} where samples >= 3 order by capture, ms
""").df()
figure = go.Figure()
for capture, of in nearest.groupby("capture", observed=True):
    figure.add_scatter(
        x=of.ms, y=[(i + 1) / len(of) for i in range(len(of))], name=str(capture), mode="lines"
    )
figure.update_layout(
    template="plotly_white",
    xaxis_type="log",
    xaxis_title="least RTT of a flow (ms)",
    yaxis_title="share of flows",
)

# %% [markdown]
# **Who shares how?** Jain's index of the long flows, second by second: ten lines of SQL over the `rates` of
# all captures at once. Move the slider: how
# large must a flow be to count?

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
    figure = go.Figure()
    for capture, of in jain.groupby("capture", observed=True):
        figure.add_scatter(x=of.second, y=of.jain, name=str(capture), mode="lines")
    figure.update_layout(
        template="plotly_white",
        xaxis_title="second of the capture",
        yaxis_title="Jain's index",
        yaxis_range=[0, 1],
    )
    return figure


# %% [markdown]
# ## Inside a long flow
#
# The `slots` table has what each long flow sent in every 100 ms and what it had in flight; a classifier of
# congestion controls looks at
# nothing else (`classifier=` of `run_batch` adds its answers as the table `cca`).

# %%
one = long[long.bytes_rev > 0].sort_values("bytes_fwd", ascending=False).iloc[0]  # seen both ways
slots = duckdb.sql(f"""
    select slot / 10 as second, in_bytes, bytes_in_flight from {table("slots")}
    where capture = '{one.capture}' and flow_id = {one.flow_id} order by slot
""").df()
figure = go.Figure()
figure.add_scatter(x=slots.second, y=slots.in_bytes, name="sent in a slot (bytes)")
figure.add_scatter(x=slots.second, y=slots.bytes_in_flight, name="in flight (bytes)")
figure.update_layout(
    template="plotly_white",
    xaxis_title="second of the capture",
    title=f"{one.src} to {one.dst}, port {one.dport}",
)

# %% [markdown]
# ## What it took
#
# The journal has an entry for every piece of work. Multiply: what would ten years of MAWI take?
# `docs/scale.md` does the sum.

# %%
journal = duckdb.sql(
    f"select packets, passes, cpu_s, process_peak_bytes / 1e6 as peak_mb from read_json('{output}/journal/*.json')"
).df()
print(f"{1e6 * journal.cpu_s.sum() / journal.packets.sum():.2f} µs of processor time a packet")
journal.describe().loc[["mean", "max"]]

# %% [markdown]
# ## Exercises
#
# **1.** Which share of all bytes do the long flows carry, in each capture?

# %% tags=["solution"]
duckdb.sql(f"""
    select capture, round(sum((bytes_fwd + bytes_rev) * is_long::int) / sum(bytes_fwd + bytes_rev), 3) as share
    from {table("flows")} group by capture order by capture
""").df()

# %% [markdown]
# **2.** In which second of which capture did most new flows begin? Was it a scan: how many SYNs came in that
# second, and how many resets?

# %% tags=["solution"]
duckdb.sql(
    f"select capture, second, new_flows, syns, resets, packets from {table('seconds')} order by new_flows desc limit 3"
).df()

# %% [markdown]
# **3.** Do flows farther away retransmit more? Join `flows` with `rtt`, and take the share of segments
# sent again by RTT in steps of 50 ms.

# %% tags=["solution"]
duckdb.sql(f"""
    select floor(rtt_min_ns / 50e6) * 50 as from_ms, count(*) as flows,
           round(100 * sum(retransmits_fwd) / sum(segments_fwd), 2) as percent_again
    from {table("flows")} join {table("rtt")} using (capture, flow_id)
    where direction = 0 and samples >= 3 group by 1 order by 1
""").df()

# %% [markdown]
# **4.** Add a capture to the archive that is cut in the middle, and one that is no capture. What does the
# result say of each?

# %% tags=["solution"]
first = Path(captures[0])
if first.is_file():
    (folder / "cut.pcap.gz").write_bytes(first.read_bytes()[:100_000])
    (folder / "no.pcap").write_bytes(b"not a capture")
    more = cct.run_batch([folder / "cut.pcap.gz", folder / "no.pcap"], output, settings, progress=False)
    print(more.computed, more.notes, more.failed, sep="\n")
