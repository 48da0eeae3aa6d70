"""The simulator against the bundled captures of Linux: utilisation, queueing delay, losses, marks, shares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pandas as pd

import cctoolkit as cct

TRACES = Path(__file__).parents[1] / "traces"
#: The receivers in the captures acknowledge about so many packets one by one when a flow begins.
_QUICK_ACKS = 60
#: Flows with less of the bytes are not compared.
_LEAST_SHARE = 0.02


def scenario_of(name: str, folder: Path = TRACES, seed: int = 1) -> cct.Scenario:
    """The scenario of a bundled capture, from its manifest and labels. Pings are left out."""
    manifest = tomllib.loads((folder / "MANIFEST.toml").read_text())
    entry = next(c for c in manifest["capture"] if c["name"] == name)
    run = cct.load_run(folder / name)
    seconds = run.ingress.duration_s
    flows = []
    for row in run.labels.itertuples():
        start_s, stop_s = (max(t - run.start_ns, 0) / 1e9 for t in (row.start_ns, row.stop_ns))
        if row.kind in ("bulk", "fetch"):
            whole = row.kind == "fetch"
            flows.append(
                cct.Flow(
                    row.cca,
                    rtt_ms=row.base_rtt_ms,
                    start_s=start_s,
                    stop_s=None if whole else min(stop_s, start_s + seconds),
                    bytes=int(row.bytes_acked) if whole else None,
                    ecn=entry["ecn"],
                    quick_acks=_QUICK_ACKS,
                    name=f"{row.cca} {row.base_rtt_ms:g} ms",
                )
            )
        elif row.kind == "udp":
            data = run.ingress.packets.query("flow_id == @row.flow_id and direction == 0")
            octets = int(data.wire_bytes.median())
            mbps = len(data) * octets * 8e-6 / (stop_s - start_s)
            flows.append(
                cct.Flow(
                    "udp", rate_mbps=mbps, packet_bytes=octets, start_s=start_s, stop_s=stop_s, name="udp"
                )
            )
    return cct.Scenario(
        # A rate limiter stood there: packets leave at the beginning of their sending time.
        bottleneck=cct.Bottleneck(rate_mbps=entry["rate_mbps"], link="shaper", **_queue(entry["queue"])),
        flows=flows,
        duration_s=seconds,
        seed=seed,
        name=name,
    )


def _queue(words: str) -> dict[str, object]:
    kind, limit = words.split()[0], int(re.findall(r"limit (\d+)", words)[0])
    aqm = {"pfifo": "tail_drop", "codel": "codel_linux", "fq_codel": "fq_codel"}[kind]
    return {"aqm": aqm, "buffer_packets": limit}


def measured(run: cct.Run, rate_mbps: float) -> dict[str, float]:
    """What is compared, from the two taps only: utilisation, mean queueing delay of data, losses, marks, shares."""
    assert run.ingress is not None and run.egress is not None
    delays = cct.queue_delay(run.ingress, run.egress)
    delays = delays[(delays.payload_bytes > 500) & delays.lost.notna()]
    out = run.egress.packets
    sent = out[out.payload_bytes > 500]
    seconds = (sent.ts_ns.iloc[-1] - sent.ts_ns.iloc[0]) / 1e9
    return {
        "utilisation": float(sent.wire_bytes.sum() * 8e-6 / rate_mbps / seconds),
        "queue delay, ms": float(delays.delay_ns.mean() / 1e6),
        "losses": float(delays.lost.sum()),
        "marks": float((sent.ecn == 3).sum()),
    }


def shares(run: cct.Run) -> pd.Series:
    """Of each flow the share of bytes behind the queue, by flow number."""
    assert run.egress is not None
    out = run.egress.packets
    sent = out[out.payload_bytes > 500].groupby("flow_id").wire_bytes.sum()
    return sent / sent.sum()


def compared(name: str, folder: Path = TRACES, seeds: int = 3) -> pd.DataFrame:
    """One row per quantity: of the capture, and the mean over `seeds` simulations."""
    real = cct.load_run(folder / name)
    kinds = real.labels.set_index("flow_id")
    found: dict[str, list[float]] = {}
    scenario = scenario_of(name, folder)
    for seed in [None, *range(1, seeds + 1)]:
        run = real if seed is None else cct.simulate(scenario.replace({"seed": seed}), sample_s=None)
        numbers = measured(run, scenario.bottleneck.rate_mbps)
        labels = kinds if seed is None else run.labels.set_index("flow_id")
        share = shares(run).groupby([labels.cca, labels.base_rtt_ms], dropna=False).sum()
        for (cca, rtt), value in share.items():
            numbers[f"share of {cca or 'udp'}, {rtt:g} ms"] = float(value)
        for key, value in numbers.items():
            found.setdefault(key, [float("nan")] * (seeds + 1))[0 if seed is None else seed] = value
    rows = [(name, key, v[0], sum(v[1:]) / seeds) for key, v in found.items()]
    table = pd.DataFrame(rows, columns=["capture", "quantity", "real", "simulated"])
    share = table.quantity.str.startswith("share")
    nothing = (table.real == 0) & (table.simulated == 0)
    table = table[~nothing & ~(share & ((table.real < _LEAST_SHARE) | (table.real > 0.999)))]
    return table.assign(ratio=table.simulated / table.real)


def run(directory: Path, packets: int | None, repeat: int) -> dict[str, pd.DataFrame]:
    names = [c["name"] for c in tomllib.loads((TRACES / "MANIFEST.toml").read_text())["capture"]]
    table = pd.concat([compared(name) for name in names], ignore_index=True)
    print(markdown(table))
    return {"traces": table}


def markdown(table: pd.DataFrame) -> str:
    """The table in Markdown."""
    lines = ["| capture | quantity | Linux | simulated | ratio |", "| --- | --- | ---: | ---: | ---: |"]
    last = ""
    for row in table.itertuples(index=False):
        shown = "" if row.capture == last else f"`{row.capture}`"
        last = row.capture
        lines.append(f"| {shown} | {row.quantity} | {row.real:.3g} | {row.simulated:.3g} | {row.ratio:.2f} |")
    return "\n".join(lines)
