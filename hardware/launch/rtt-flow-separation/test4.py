#!/usr/bin/env python3
"""Write the scenarios of test 4 of the RTT paper (section 4.4, figure 8): transfers with many RTTs, K queues.

    test4.py DIR [--flows N] [--seed S]

From the paper: 6000 pairs of hosts; files of 150 MB to 2 GB; RTTs of 1 to 224 ms; sizes, RTTs and start times
as in a MAWI trace; 1 Gbit/s; one queue, and K queues to which Jenks' natural breaks of the RTTs assign the
flows; CUBIC, HTCP, BBR versions 1 and 2.

Chosen: sizes and RTTs log-uniform between the paper's limits, and starts uniform in the first third of the
time, because the paper does not publish the trace; 1/100 of the flows (6000 such files are terabytes, half a
day at this rate; `--flows 6000` writes them); queues of BDP / sqrt(N) with their mean RTT (section 3), and
one queue of the BDP of the largest RTT; weights by number of flows, work conserving (the paper says
"according to each queue's average RTT", but not how); K = 2, 4 and 8; no BBR version 2, which Linux lacks
(write "bbr2" for the simulator).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

import cctoolkit as cct
from cctoolkit.separation.jenks import jenks_classes

RATE_MBPS = 1000
RTT_MS = (1, 224)
SIZE_MB = (150, 2000)
QUEUES = (1, 2, 4, 8)
CCAS = ("cubic", "htcp", "bbr")
DURATION_S = 900

HEADER = """# RTT flow separation, test 4 (section 4.4, figure 8): {flows} transfers, {queues}.
# Written by test4.py, which says what comes from the paper and what was chosen.

"""


def _log_uniform(rng: np.random.Generator, low: float, high: float, n: int) -> np.ndarray:
    return np.exp(rng.uniform(math.log(low), math.log(high), n))


def scenario(queues: int, *, flows: int = 60, seed: int = 1) -> cct.Scenario:
    """The transfers through a number of queues; the transfers are the same for every number."""
    rng = np.random.default_rng(seed)
    rtts_ms = _log_uniform(rng, *RTT_MS, flows).round(1)
    sizes = (_log_uniform(rng, *SIZE_MB, flows) * 1e6).astype(int)
    starts_s = np.sort(rng.uniform(0, DURATION_S / 3, flows)).round(2)
    of_flow = jenks_classes(rtts_ms, queues).labels
    bdp_bytes = RATE_MBPS * 125 * rtts_ms
    rooms, weights = [], []
    for q in range(queues):
        mine = of_flow == q
        n = int(mine.sum())
        weights.append(n)
        rooms.append(int(bdp_bytes.max() if queues == 1 else bdp_bytes[mine].mean() / math.sqrt(n)))
    if queues == 1:
        bottleneck = cct.Bottleneck(rate_mbps=RATE_MBPS, buffer_bytes=rooms[0])
    else:
        made = tuple(cct.Queue(buffer_bytes=r, weight=w) for r, w in zip(rooms, weights, strict=True))
        bottleneck = cct.Bottleneck(rate_mbps=RATE_MBPS, scheduler="drr", queues=made)
    transfers = [
        cct.Flow("cubic", rtt_ms=float(r), bytes=int(b), start_s=float(s), queue=int(q) if queues > 1 else None,
                 max_window=138121)  # send and receive buffers of 200 MB (section 4)
        for r, b, s, q in zip(rtts_ms, sizes, starts_s, of_flow, strict=True)
    ]  # fmt: skip
    return cct.Scenario(
        bottleneck=bottleneck,
        flows=tuple(transfers),
        duration_s=DURATION_S,
        seed=seed,
        name=f"test4-{queues}",
    )


def text(queues: int, *, flows: int = 60, seed: int = 1) -> str:
    """The scenario file's text."""
    head = HEADER.format(flows=flows, queues="one queue" if queues == 1 else f"{queues} queues")
    ccas = ", ".join(f'"{c}"' for c in CCAS)
    body = scenario(queues, flows=flows, seed=seed).to_toml()
    return f'{head}{body}\n[sweep]\n"flows.*.cca" = [{ccas}]\n'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--flows", type=int, default=60, metavar="N", help="number of transfers")
    parser.add_argument("--seed", type=int, default=1, help="seed for random sampling")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    for queues in QUEUES:
        path = args.directory / f"test4-{queues}.toml"
        path.write_text(text(queues, flows=args.flows, seed=args.seed))
        print(path)


if __name__ == "__main__":
    main()
