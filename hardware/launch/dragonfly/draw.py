#!/usr/bin/env python3
"""Write scenarios of the Dragonfly paper, with random starts, links and background flows.

    draw.py DIR [--runs N] [--seed S] [--seconds T]

Section IV-A (Mininet): three flows to identify, Reno, CUBIC and BBR, and equally many of each in the
background (0, 15, 30, 60 or 75 in all; or UDP, or Vegas), through two routers. The sources have links of 100
Mbit/s to 1 Gbit/s. Between the routers are 100 Mbit/s, 10 ms and the queue of 500 packets; the destination is
25 ms away. A run takes x + 60 s, with x uniform in 0 to 10 s, and each flow starts at a uniform time in 0 to
x. Section IV-B (physical network): 1 Gbit/s everywhere, propagation below 1 ms, buffers of 2000 to 16000
packets.

Without `--runs`, this writes one file for each kind of background, like those beside this script. With it, it
draws N files of each kind. `--seconds` is the time after x (the paper trains on runs of 10 s, section III-E).

Chosen: log-uniform rates of the sources' links, without propagation delay (the paper gives none), so the RTT
is 70 ms; a link to the destination that never limits; in IV-B 0.5 ms and buffers of 2000, 4000, 8000 and
16000 packets.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import cctoolkit as cct

CCAS = ("reno", "cubic", "bbr")
BACKGROUNDS = (0, 15, 30, 60, 75)
INITIAL_S = 10.0
KINDS = [f"{part}-{n}" for part in ("iv-a", "iv-b") for n in BACKGROUNDS] + ["iv-a-udp", "iv-a-vegas"]
BUFFERS = (2000, 4000, 8000, 16000)


def scenario(kind: str, *, seed: int = 1, seconds: float = 60.0) -> cct.Scenario:
    """A run: ``"iv-a-N"`` or ``"iv-b-N"`` with N background flows, ``"iv-a-udp"`` or ``"iv-a-vegas"``."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    initial_s = rng.uniform(0, INITIAL_S)
    physical = kind.startswith("iv-b")
    background = kind[5:]

    def source(cca: str, name: str = "") -> cct.Flow:
        start_s = round(float(rng.uniform(0, initial_s)), 3)
        access_mbps = 1000.0 if physical else round(float(100 * 10 ** rng.uniform(0, 1)), 1)
        rtt_ms = 0.5 if physical else 2 * (10 + 25)
        return cct.Flow(cca, rtt_ms=rtt_ms, access_mbps=access_mbps, start_s=start_s, name=name)

    flows = [source(cca, f"{cca} to identify") for cca in CCAS]
    if background == "udp":  # 1000 packets of 1.4 kB per second (section IV-A)
        size = 1400 + 42
        flows.append(cct.Flow("udp", rtt_ms=70, rate_mbps=size * 8e-3, packet_bytes=size, name="background"))
    elif background == "vegas":
        flows += [source("vegas", "background") for _ in range(10)]
    else:
        flows += [source(cca, "background") for cca in CCAS for _ in range(int(background) // 3)]
    return cct.Scenario(
        bottleneck=cct.Bottleneck(
            rate_mbps=1000 if physical else 100, buffer_packets=BUFFERS[0] if physical else 500
        ),
        flows=tuple(flows),
        duration_s=round(initial_s + seconds, 3),
        seed=seed,
        name=kind,
    )


def text(kind: str, *, seed: int = 1, seconds: float = 60.0) -> str:
    """The scenario file's text."""
    section, what = (
        ("IV-B", "physical network") if kind.startswith("iv-b") else ("IV-A", "two routers in Mininet")
    )
    background = {"iv-a-udp": "UDP", "iv-a-vegas": "ten flows of Vegas"}.get(kind, f"{kind[5:]} flows")
    head = f"# Dragonfly, section {section} ({what}), {background} in the background.\n"
    head += "# Written by draw.py, which says what comes from the paper and what was chosen.\n\n"
    body = scenario(kind, seed=seed, seconds=seconds).to_toml()
    if kind.startswith("iv-b"):
        body += f'\n[sweep]\n"bottleneck.buffer_packets" = {list(BUFFERS)}\n'
    return head + body


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--runs", type=int, metavar="N", help="files of each kind")
    parser.add_argument("--seed", type=int, default=1, help="seed for random sampling")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="T", help="time after the last start")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        for run in range(args.runs or 1):
            stem = kind if args.runs is None else f"{kind}-{run:04}"
            path = args.directory / f"{stem}.toml"
            path.write_text(text(kind, seed=args.seed + run, seconds=args.seconds))
            print(path)


if __name__ == "__main__":
    main()
